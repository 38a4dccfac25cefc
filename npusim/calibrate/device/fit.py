"""Bayesian fit of a device's numbers to measured times: maximum a posteriori, with its covariance.

The unknowns are logarithms of numbers, each with a log-normal prior as its data sheet says. A row errs by its
own noise and by what the equations leave out; the latter is estimated from the residuals themselves, so that
rows do not claim more than they know. Outliers count less (soft L1). Of numbers that only act together, those
with the widest priors are moved and the others stay at the data sheet's value; their uncertainty goes on into
the error bars of those that moved (a consider covariance).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npusim.arch import Soc
from npusim.calibrate.device.parameters import Parameter
from npusim.calibrate.device.rows import DeviceRow
from npusim.calibrate.device.times import DeviceTimes
from npusim.calibrate.least_squares import Floats, FreeNumber, solve

IDENTIFIED = 0.7
"""A number is identified where the data leave less than this share of its uncertainty beforehand."""
_SOFT = 3.0
"""Residual, in standard deviations, from which a row counts less than its square."""
_CLIP = 2.0
"""Residuals beyond so many standard deviations say nothing more about the width of the others."""
_ROUNDS = 6
_RULED_OUT = 2.706
"""Rise of the objective beyond which a value lies outside of a 90 % interval (chi-squared)."""
_FIRST_ERROR = 0.1


@dataclass(frozen=True)
class FitResult:
    """A fitted device."""

    logs: Floats
    """Logarithms of all parameters, those that were held included. Shape (parameters,)."""
    moving: NDArray[np.bool_]
    """Which of them were fitted. Shape (parameters,)."""
    covariance: Floats
    """Of the errors of the logarithms: what was held errs as the data sheet says, and what moved errs with
    it. Shape (parameters, parameters)."""
    predicted: Floats
    """Logarithms of the predicted times. Shape (rows,)."""
    slopes: Floats
    """Shape (rows, parameters)."""
    model_error: float
    """Relative standard deviation of what the equations leave out."""
    freedom: float
    """Rows less what the parameters took up."""
    at_bound: tuple[str, ...]
    """Parameters that a bound stopped."""

    @property
    def sigma(self) -> Floats:
        """Standard deviation of the logarithms' errors, shape (parameters,)."""
        return np.sqrt(np.diag(self.covariance))


class DeviceFit(DeviceTimes):
    """Fits parameters of one device to rows."""

    def __init__(
        self,
        soc: Soc,
        rows: Sequence[DeviceRow],
        parameters: Sequence[Parameter],
        may_move: set[str],
    ) -> None:
        super().__init__(soc, rows, parameters)
        self.may_move = np.array([p.name in may_move for p in self.parameters], bool)
        self.measured = np.log([row.measured_s for row in self.rows])
        self.noise = np.array([row.noise for row in self.rows])

    def restricted(self, informative: NDArray[np.bool_]) -> DeviceFit:
        """Return the same fit with some of its parameters, shape (parameters,) of bool."""
        kept = [p for p, informs in zip(self.parameters, informative, strict=True) if informs]
        names = {p.name for p, free in zip(self.parameters, self.may_move, strict=True) if free}
        fit = DeviceFit(self.soc, self.rows, kept, names)
        fit.affects, fit.tables = self.affects[:, informative], self.tables
        return fit

    def fit(self, start: Floats | None = None) -> FitResult:
        """Fit what the data determine, and hold the rest at the data sheet's values."""
        moving = self.may_move.copy()
        logs, error = self.start if start is None else start, _FIRST_ERROR
        while True:
            logs = np.where(moving, logs, self.start)
            logs, error = self._fit_with_model_error(logs, moving, error)
            slopes = self.slopes(logs, np.ones(len(logs), bool))
            stays = self._undetermined(logs, slopes, moving, error)
            if not stays.any():
                break
            moving &= ~stays
        return self._result(logs, moving, slopes, error)

    def lowest(self, logs: Floats, moving: NDArray[np.bool_], error: float) -> Floats:
        """Return the most likely parameters near some, with a given choice and model error."""
        return self._solve(logs, moving, error, np.ones(len(self.rows), bool))

    def refit(self, best: FitResult, rows: NDArray[np.bool_]) -> Floats:
        """Return the parameters fitted to some rows, shape (parameters,); same choice and model error."""
        return self._solve(best.logs, best.moving, best.model_error, rows)

    def _fit_with_model_error(
        self, logs: Floats, moving: NDArray[np.bool_], error: float
    ) -> tuple[Floats, float]:
        """Fit and estimate the model error in turn until both converge."""
        every = np.ones(len(self.rows), bool)
        for _ in range(_ROUNDS):
            logs = self._solve(logs, moving, error, every)
            slopes = self.slopes(logs, moving)
            before, error = error, self._model_error(logs, slopes, moving, error)
            if abs(error - before) < 0.02 * before + 1e-4:
                break
        return logs, error

    def _solve(
        self, logs: Floats, moving: NDArray[np.bool_], error: float, rows: NDArray[np.bool_]
    ) -> Floats:
        if not moving.any():
            return logs
        places = np.flatnonzero(moving)
        weights = 1.0 / np.sqrt(self.noise**2 + error**2)
        free = []
        for j in places:
            p = self.parameters[j]
            inside = float(np.clip(np.exp(logs[j]), p.low * (1 + 1e-9), p.high * (1 - 1e-9)))
            free.append(FreeNumber(p.name, inside, p.low, p.high, (p.number.value, p.number.sigma)))

        def at(values: Mapping[str, float]) -> Floats:
            found = logs.copy()
            found[places] = np.log(list(values.values()))
            return found

        def residual(values: Mapping[str, float]) -> Floats:
            return ((self.predicted(at(values)) - self.measured) * weights)[rows]

        def slopes(values: Mapping[str, float]) -> Floats:
            return (self.slopes(at(values), moving) * weights[:, None])[np.ix_(rows, places)]

        solution = solve(free, residual, _SOFT, slopes)
        self._memory.clear()
        return at(solution.values)

    def _model_error(self, logs: Floats, slopes: Floats, moving: NDArray[np.bool_], error: float) -> float:
        """Return the standard deviation of what neither parameters nor noise explain.

        The width at which clipped residuals have the mean square that clipped normal variables have (Huber,
        Robust Statistics, proposal 2); rows less degrees of freedom that the parameters took up.
        """
        residuals = self.predicted(logs) - self.measured
        freedom = self._freedom(slopes, moving, error)
        target = freedom * _clipped_square(_CLIP)

        def excess(width: float) -> float:
            squares = residuals**2 / (self.noise**2 + width**2)
            return float(np.minimum(squares, _CLIP**2).sum()) - target

        low, high = 0.0, 10.0
        if excess(low) <= 0.0:
            return 0.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if excess(middle) > 0.0 else (low, middle)
        return 0.5 * (low + high)

    def _weighted(self, slopes: Floats, error: float) -> Floats:
        return slopes / np.sqrt(self.noise**2 + error**2)[:, None]

    def _freedom(self, slopes: Floats, moving: NDArray[np.bool_], error: float) -> float:
        if not moving.any():
            return float(len(self.rows))
        strong = self._weighted(slopes[:, moving], error)
        data = strong.T @ strong
        used = float(np.trace(np.linalg.solve(data + np.diag(self.widths[moving] ** -2.0), data)))
        return max(1.0, len(self.rows) - used)

    def _undetermined(
        self, logs: Floats, slopes: Floats, moving: NDArray[np.bool_], error: float
    ) -> NDArray[np.bool_]:
        """Return the parameters that the data do not determine, found one by one from the least determined.

        A number stays in the fit where the data rule the data sheet's value out, however loosely they say
        what it is instead: an overhead that does not show at all has no slope left, but is known to be small.
        """
        left, asked, here = moving.copy(), moving.copy(), logs.copy()
        strong = self._weighted(slopes, error)
        lowest = self.objective(self.weighted(here, error), here)
        while (left & asked).any():
            places = np.flatnonzero(left)
            data = strong[:, places].T @ strong[:, places]
            posterior = np.linalg.inv(data + np.diag(self.widths[places] ** -2.0))
            ratio = np.sqrt(np.diag(posterior)) / self.widths[places]
            worst = int(np.argmax(np.where(asked[places], ratio, 0.0)))
            if ratio[worst] <= IDENTIFIED:
                break
            j = int(places[worst])
            asked[j] = False
            there = here.copy()  # back to the data sheet's value, the others re-optimised
            there[places] += posterior[:, worst] / posterior[worst, worst] * (self.start[j] - here[j])
            there = np.clip(there, self.low, self.high)
            height = self.objective(self.weighted(there, error), there)
            if height - lowest <= _RULED_OUT:
                left[j], here, lowest = False, there, height
        return moving & ~left

    def _result(self, logs: Floats, moving: NDArray[np.bool_], slopes: Floats, error: float) -> FitResult:
        residuals = (self.predicted(logs) - self.measured) / np.sqrt(self.noise**2 + error**2)
        edge = [
            p.name
            for p, log, moves in zip(self.parameters, logs, moving, strict=True)
            if moves and (log - np.log(p.low) < 1e-6 or np.log(p.high) - log < 1e-6)
        ]
        return FitResult(
            logs=logs,
            moving=moving,
            covariance=self._covariance(slopes, moving, residuals, error),
            predicted=self.predicted(logs),
            slopes=slopes,
            model_error=error,
            freedom=self._freedom(slopes, moving, error),
            at_bound=tuple(edge),
        )

    def _covariance(
        self, slopes: Floats, moving: NDArray[np.bool_], residuals: Floats, error: float
    ) -> Floats:
        """Covariance of the errors of all logarithms, shape (parameters, parameters).

        Sandwich estimate of the robust fit; the held numbers' uncertainty is propagated into those that moved
        (Schmidt's consider covariance).
        """
        strong = self._weighted(slopes, error)
        m, h = np.flatnonzero(moving), np.flatnonzero(~moving)
        whole = np.diag(self.widths**2)
        if not len(m):
            return whole
        data = strong[:, m].T @ strong[:, m]
        prior = np.diag(self.widths[m] ** -2.0)
        spread = float(np.mean(self.loss_slope(residuals) ** 2)) * len(self.rows)
        spread /= self._freedom(slopes, moving, error)
        slack = float(np.mean(self.loss_curvature(residuals)))
        inverse = np.linalg.inv(slack * data + prior)
        whole[np.ix_(m, m)] = inverse @ (spread * data + prior) @ inverse
        if len(h):
            carry = -inverse @ (slack * strong[:, m].T @ strong[:, h])
            held = np.diag(self.widths[h] ** 2)
            whole[np.ix_(m, m)] += carry @ held @ carry.T
            whole[np.ix_(m, h)] = carry @ held
            whole[np.ix_(h, m)] = (carry @ held).T
        return whole

    @staticmethod
    def loss_slope(residuals: Floats) -> Floats:
        """Return the slope of the soft loss at weighted residuals, shape (rows,)."""
        return residuals / np.sqrt(1.0 + (residuals / _SOFT) ** 2)

    @staticmethod
    def loss_curvature(residuals: Floats) -> Floats:
        """Return the curvature of the soft loss at weighted residuals, shape (rows,)."""
        return (1.0 + (residuals / _SOFT) ** 2) ** -1.5

    def weighted(self, logs: Floats, error: float) -> Floats:
        """Return the rows' residuals in standard deviations, shape (rows,)."""
        predicted = self._evaluate(logs, range(len(self.rows)))
        return (predicted - self.measured) / np.sqrt(self.noise**2 + error**2)

    def objective(self, residuals: Floats, logs: Floats) -> float:
        """Return the objective: soft squares of weighted residuals, squares of all priors."""
        soft = 2.0 * _SOFT**2 * (np.sqrt(1.0 + (residuals / _SOFT) ** 2) - 1.0)
        return float(soft.sum() + (((logs - self.start) / self.widths) ** 2).sum())


def _clipped_square(limit: float) -> float:
    """Return the mean square of a standard normal variable that is clipped at a limit."""
    from statistics import NormalDist

    normal = NormalDist()
    inside = 2.0 * normal.cdf(limit) - 1.0
    return inside - 2.0 * limit * normal.pdf(limit) + 2.0 * limit**2 * (1.0 - normal.cdf(limit))
