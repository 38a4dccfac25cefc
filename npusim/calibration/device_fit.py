"""Bayesian fit of a device's numbers to measured times, with covariance and intervals.

The unknowns are logarithms of numbers, with the log-normal priors of the data sheet. A row errs by its own
noise and by what the equations leave out; the residuals give an estimate of the latter. Outliers count less
(soft L1). Among numbers that only act together, those with the widest priors move; the others stay at the
data sheet's value, and their uncertainty widens the error bars of the moved ones (a consider covariance).

Intervals (90 %) come from profiles of the posterior, and their sides may differ: an overhead that hides
behind longer work may be much smaller than it seems, but hardly larger. The objective is followed to both
sides of its minimum with all other numbers re-optimised, held ones too. Each re-optimisation is a
Gauss-Newton step with slopes by Broyden's updates, so that a point costs one evaluation of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from npusim.arch import Soc
from npusim.calibration.device_rows import DeviceRow, DeviceTimes, Parameter
from npusim.calibration.least_squares import Floats, FreeNumber, solve

Mask = NDArray[np.bool_]
IDENTIFIED = 0.7
"""Share of the prior uncertainty below which a number is identified."""
_SOFT = 3.0
"""Residual, in standard deviations, from which a row counts less than its square."""
_CLIP = 2.0
"""Standard deviations at which residuals are clipped in the estimate of the model error."""
_ROUNDS = 6
_RULED_OUT = 2.706
"""Rise of the objective beyond which a value lies outside of a 90 % interval (chi-squared)."""
_FIRST_ERROR = 0.1


NORMAL = 1.6448536269514722
"""Half a 90 % interval of a normal variable, in standard deviations."""
_STEPS = 3
"""Corrections of the length of a side."""
_REOPTIMISE_STEPS = 2
"""Steps of re-optimisation per correction."""
_WIDEST = 3.0
"""Longest side, in first guesses."""


@dataclass(frozen=True)
class FitResult:
    """A fitted device."""

    logs: Floats
    """Logarithms of all parameters, held ones too. Shape (parameters,)."""
    moving: Mask
    """Which of them were fitted. Shape (parameters,)."""
    covariance: Floats
    """Of the errors of the logarithms: held parameters err as the data sheet says, and moved ones with them.
    Shape (parameters, parameters)."""
    predicted: Floats
    """Logarithms of the predicted times. Shape (rows,)."""
    model_error: float
    """Relative standard deviation of what the equations leave out."""
    freedom: float
    """Rows less the degrees of freedom of the parameters."""
    at_bound: tuple[str, ...]
    """Parameters at a bound."""

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

    def restricted(self, informative: Mask) -> DeviceFit:
        """Return the same fit with some of its parameters, shape (parameters,) of bool."""
        kept = [p for p, informs in zip(self.parameters, informative, strict=True) if informs]
        names = {p.name for p, free in zip(self.parameters, self.may_move, strict=True) if free}
        fit = DeviceFit(self.soc, self.rows, kept, names)
        fit.affects, fit.tables = self.affects[:, informative], self.tables
        return fit

    def fit(self, start: Floats | None = None) -> FitResult:
        """Fit the parameters that the data determine; hold the others at the data sheet's values."""
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

    def _fit_with_model_error(self, logs: Floats, moving: Mask, error: float) -> tuple[Floats, float]:
        """Fit and estimate the model error in turn until both converge."""
        for _ in range(_ROUNDS):
            logs = self.solve(logs, moving, error)
            slopes = self.slopes(logs, moving)
            before, error = error, self._model_error(logs, slopes, moving, error)
            if abs(error - before) < 0.02 * before + 1e-4:
                break
        return logs, error

    def solve(self, logs: Floats, moving: Mask, error: float, rows: Mask | slice = slice(None)) -> Floats:
        """Return the most likely parameters near `logs`, fitted to some rows, at a given model error."""
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
            trial = logs.copy()
            trial[places] = np.log(list(values.values()))
            return trial

        def residual(values: Mapping[str, float]) -> Floats:
            return ((self.predicted(at(values)) - self.measured) * weights)[rows]

        def slopes(values: Mapping[str, float]) -> Floats:
            return (self.slopes(at(values), moving) * weights[:, None])[rows][:, places]

        solution = solve(free, residual, _SOFT, slopes)
        self._memory.clear()
        return at(solution.values)

    def _model_error(self, logs: Floats, slopes: Floats, moving: Mask, error: float) -> float:
        """Return the standard deviation of what neither parameters nor noise explain.

        At this width clipped residuals have the mean square of clipped normal variables (Huber, Robust
        Statistics, proposal 2), counting rows less the parameters' degrees of freedom.
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

    def _freedom(self, slopes: Floats, moving: Mask, error: float) -> float:
        if not moving.any():
            return float(len(self.rows))
        strong = self._weighted(slopes[:, moving], error)
        data = strong.T @ strong
        used = float(np.trace(np.linalg.solve(data + np.diag(self.widths[moving] ** -2.0), data)))
        return max(1.0, len(self.rows) - used)

    def _undetermined(self, logs: Floats, slopes: Floats, moving: Mask, error: float) -> Mask:
        """Return the parameters that the data do not determine, starting from the least determined.

        A number stays in the fit where the data rule the data sheet's value out, however loosely they
        determine another: an overhead that does not show has no slope left, but is known to be small.
        """
        left, open_, here = moving.copy(), moving.copy(), logs.copy()
        strong = self._weighted(slopes, error)
        lowest = self.objective(self.weighted(here, error), here)
        while (left & open_).any():
            places = np.flatnonzero(left)
            data = strong[:, places].T @ strong[:, places]
            posterior = np.linalg.inv(data + np.diag(self.widths[places] ** -2.0))
            ratio = np.sqrt(np.diag(posterior)) / self.widths[places]
            worst = int(np.argmax(np.where(open_[places], ratio, 0.0)))
            if ratio[worst] <= IDENTIFIED:
                break
            j = int(places[worst])
            open_[j] = False
            there = here.copy()  # back to the data sheet's value, the others re-optimised
            there[places] += posterior[:, worst] / posterior[worst, worst] * (self.start[j] - here[j])
            there = np.clip(there, self.low, self.high)
            height = self.objective(self.weighted(there, error), there)
            if height - lowest <= _RULED_OUT:
                left[j], here, lowest = False, there, height
        return moving & ~left

    def _result(self, logs: Floats, moving: Mask, slopes: Floats, error: float) -> FitResult:
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
            model_error=error,
            freedom=self._freedom(slopes, moving, error),
            at_bound=tuple(edge),
        )

    def _covariance(self, slopes: Floats, moving: Mask, residuals: Floats, error: float) -> Floats:
        """Return the covariance of the errors of all logarithms, shape (parameters, parameters).

        Sandwich estimate of the robust fit; the held numbers' uncertainty propagates into the moved ones
        (Schmidt's consider covariance).
        """
        strong = self._weighted(slopes, error)
        m, h = np.flatnonzero(moving), np.flatnonzero(~moving)
        whole = np.diag(self.widths**2)
        if not len(m):
            return whole
        data = strong[:, m].T @ strong[:, m]
        prior = np.diag(self.widths[m] ** -2.0)
        spread = float(np.mean(_loss_slope(residuals) ** 2)) * len(self.rows)
        spread /= self._freedom(slopes, moving, error)
        slack = float(np.mean(_loss_curvature(residuals)))
        inverse = np.linalg.inv(slack * data + prior)
        whole[np.ix_(m, m)] = inverse @ (spread * data + prior) @ inverse
        if len(h):
            carry = -inverse @ (slack * strong[:, m].T @ strong[:, h])
            held = np.diag(self.widths[h] ** 2)
            whole[np.ix_(m, m)] += carry @ held @ carry.T
            whole[np.ix_(m, h)] = carry @ held
            whole[np.ix_(h, m)] = (carry @ held).T
        return whole

    def weighted(self, logs: Floats, error: float) -> Floats:
        """Return the rows' residuals in standard deviations, shape (rows,)."""
        predicted = self._evaluate(logs, range(len(self.rows)))
        return (predicted - self.measured) / np.sqrt(self.noise**2 + error**2)

    def objective(self, residuals: Floats, logs: Floats) -> float:
        """Return the objective: soft squares of weighted residuals, squares of all priors."""
        soft = 2.0 * _SOFT**2 * (np.sqrt(1.0 + (residuals / _SOFT) ** 2) - 1.0)
        return float(soft.sum() + (((logs - self.start) / self.widths) ** 2).sum())


def _loss_slope(residuals: Floats) -> Floats:
    """Return the slope of the soft loss at weighted residuals, shape (rows,)."""
    return residuals / np.sqrt(1.0 + (residuals / _SOFT) ** 2)


def _loss_curvature(residuals: Floats) -> Floats:
    """Return the curvature of the soft loss at weighted residuals, shape (rows,)."""
    return (1.0 + (residuals / _SOFT) ** 2) ** -1.5


def _clipped_square(limit: float) -> float:
    """Return the mean square of a standard normal variable that is clipped at a limit."""
    normal = NormalDist()
    inside = 2.0 * normal.cdf(limit) - 1.0
    return inside - 2.0 * limit * normal.pdf(limit) + 2.0 * limit**2 * (1.0 - normal.cdf(limit))


@dataclass
class _ProfilePoint:
    """A point of the profile: parameters, residuals, slopes."""

    logs: Floats
    residuals: Floats
    slopes: Floats
    """Of the weighted residuals, shape (rows, parameters)."""


def quantile_of(best: FitResult) -> float:
    """Return half the 90 % interval of a fitted number in standard deviations, by Student's distribution."""
    from scipy.special import stdtrit  # slow to import

    return float(stdtrit(max(best.freedom, 1.0), 0.95))


def half_widths(fit: DeviceFit, best: FitResult) -> Floats:
    """Return the half-widths of the 90 % intervals of all logarithms, down and up, shape (2, parameters).

    A held number has the data sheet's interval.
    """
    widths = np.tile(NORMAL * fit.widths, (2, 1))
    if not best.moving.any():
        return widths
    minimum = _minimum(fit, best)
    inverse = np.linalg.inv(_hessian(fit, minimum))
    lowest = fit.objective(minimum.residuals, minimum.logs)
    quantile = quantile_of(best)
    for j in np.flatnonzero(best.moving):
        sigma = float(np.sqrt(inverse[j, j]))
        for side, sign in enumerate((-1.0, 1.0)):
            steps = _profile_steps(fit, best, minimum, lowest, int(j), sign * sigma, quantile)
            off = sign * (minimum.logs[j] - best.logs[j])
            widths[side, j] = max(0.1 * sigma, off + steps * sigma)
    return widths


def _minimum(fit: DeviceFit, best: FitResult) -> _ProfilePoint:
    """Return the minimum of the objective with all parameters free."""
    every = np.ones(len(best.logs), bool)
    logs = fit.solve(best.logs, every, best.model_error)
    weights = 1.0 / np.sqrt(fit.noise**2 + best.model_error**2)
    slopes = fit.slopes(logs, every) * weights[:, None]
    return _ProfilePoint(logs, fit.weighted(logs, best.model_error), slopes)


def _hessian(fit: DeviceFit, point: _ProfilePoint) -> Floats:
    curvature = _loss_curvature(point.residuals)
    return (point.slopes.T * curvature) @ point.slopes + np.diag(fit.widths**-2.0)


def _profile_steps(
    fit: DeviceFit,
    best: FitResult,
    minimum: _ProfilePoint,
    lowest: float,
    j: int,
    step: float,
    quantile: float,
) -> float:
    """Return the number of steps of a parameter that raises the objective by the square of a quantile."""
    others = np.arange(len(minimum.logs)) != j
    here = _ProfilePoint(minimum.logs.copy(), minimum.residuals.copy(), minimum.slopes.copy())
    # The minimum may be a kink, where slopes do not vanish.
    ground = minimum.slopes.T @ _loss_slope(minimum.residuals) + (minimum.logs - fit.start) / fit.widths**2
    steps = quantile
    for _ in range(_STEPS):
        goal = minimum.logs[j] + steps * step
        if not fit.low[j] < goal < fit.high[j]:  # the bound of the number
            return float(abs(np.clip(goal, fit.low[j], fit.high[j]) - minimum.logs[j]) / abs(step))
        rises = []
        for _ in range(_REOPTIMISE_STEPS):
            move = np.zeros(len(here.logs))
            move[j] = goal - here.logs[j]
            along = here.residuals + here.slopes[:, j] * move[j]
            slope = here.slopes.T @ _loss_slope(along) + (here.logs - fit.start) / fit.widths**2 - ground
            curved = _hessian(fit, here)[np.ix_(others, others)]
            move[others] = -np.linalg.solve(curved, slope[others])
            _step_to(fit, best, here, np.clip(here.logs + move, fit.low, fit.high))
            rises.append(fit.objective(here.residuals, here.logs) - lowest)
        rise = min(rises)
        if rise <= 0.0:  # flat within rounding
            return quantile * _WIDEST
        factor = float(np.clip(quantile / np.sqrt(rise), 1.0 / _WIDEST, _WIDEST))
        steps = float(np.clip(steps * factor, quantile / _WIDEST, quantile * _WIDEST))
        if abs(factor - 1.0) < 0.02:
            break
    return steps


def _step_to(fit: DeviceFit, best: FitResult, here: _ProfilePoint, there: Floats) -> None:
    """Move a point and update its slopes (Broyden)."""
    move = there - here.logs
    residuals = fit.weighted(there, best.model_error)
    length = float(move @ move)
    if length > 0.0:
        missed = residuals - here.residuals - here.slopes @ move
        here.slopes = here.slopes + np.outer(missed, move) / length
    here.logs, here.residuals = there, residuals
