"""Bayesian fit of a device's numbers to measured times, with covariance and intervals.

The unknowns are logarithms of numbers, with the log-normal priors of the data sheet. A row errs by its own
noise and by what the equations leave out; the residuals give an estimate of the latter. Outliers count less
(soft L1). Among numbers that only act together, those with the widest priors move; the others stay at the
data sheet's value, and their uncertainty widens the error bars of the moved ones (a consider covariance).

Intervals (90 %) come from profiles of the posterior, and their sides may differ: an overhead that hides
behind longer work may be much smaller than it seems, but hardly larger. The objective is followed to both
sides of its minimum with all other numbers re-optimised, held ones too. Each re-optimisation is a
Gauss-Newton step with the slopes at the minimum, so that a point costs one evaluation of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from npusim.arch import Soc
from npusim.calibration.device_rows import DeviceRow, Parameter
from npusim.calibration.least_squares import Floats, FreeNumber, solve
from npusim.studies.perturbation import evaluated, moved

Mask = NDArray[np.bool_]
IDENTIFIED = 0.7
"""Share of the prior uncertainty below which a number is identified."""
NORMAL = 1.6448536269514722
"""Half a 90 % interval of a normal variable, in standard deviations."""
# Step of the logarithms for slopes: spans the kinks where one bound of an operator replaces another.
_STEP = 0.02
_SOFT = 3.0  # residual, in standard deviations, from which a row counts less than its square
_CLIP = 2.0  # standard deviations at which residuals are clipped in the estimate of the model error
_NORMAL, _ROUNDS = NormalDist(), 6
_INSIDE = 2.0 * _NORMAL.cdf(_CLIP) - 1.0
# Mean square of a clipped normal variable.
_CLIPPED_SQUARE = _INSIDE - 2.0 * _CLIP * _NORMAL.pdf(_CLIP) + 2.0 * _CLIP**2 * (1.0 - _NORMAL.cdf(_CLIP))
_FIRST_ERROR, _MOST_ERROR = 0.1, 10.0
_RULED_OUT = 2.706  # rise of the objective beyond which a value lies outside of a 90 % interval (chi-squared)
# Corrections of the length of an interval's side, and steps of re-optimisation for each.
_STEPS, _REOPTIMISE_STEPS = 3, 2
_WIDEST = 3.0  # longest side, in first guesses


@dataclass(frozen=True)
class FitResult:
    """A fitted device."""

    logs: Floats  # logarithms of all parameters, held ones too. Shape (parameters,)
    moving: Mask  # which parameters were fitted. Shape (parameters,)
    covariance: Floats  # covariance of the logarithms' errors; held parameters err as the data sheet says
    predicted: Floats  # logarithms of the predicted times. Shape (rows,)
    model_error: float  # relative standard deviation of what the equations leave out
    freedom: float  # rows less the degrees of freedom of the parameters
    at_bound: tuple[str, ...]  # parameters at a bound

    @property
    def sigma(self) -> Floats:
        """Standard deviation of the logarithms' errors, shape (parameters,)."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def correlation(self) -> Floats:
        """Correlation of the logarithms' errors, shape (parameters, parameters)."""
        sigma = np.maximum(self.sigma, 1e-300)
        correlation: Floats = np.clip(self.covariance / np.outer(sigma, sigma), -1.0, 1.0)
        return correlation

    @property
    def quantile(self) -> float:
        """Half the 90 % interval of a fitted number in standard deviations, by Student's distribution."""
        from scipy.special import stdtrit  # slow to import

        return float(stdtrit(max(self.freedom, 1.0), 0.95))


class DeviceFit:
    """Predicts rows on machines that differ in some numbers, and fits these numbers to the rows."""

    def __init__(
        self, soc: Soc, rows: Sequence[DeviceRow], parameters: Sequence[Parameter], may_move: set[str]
    ) -> None:
        self.soc, self.rows, self.parameters = soc, list(rows), list(parameters)
        self.start = np.log([p.number.value for p in self.parameters])
        self.widths = np.array([p.number.sigma for p in self.parameters])
        self.low = np.log([p.low for p in self.parameters])
        self.high = np.log([p.high for p in self.parameters])
        self.may_move = np.array([p.name in may_move for p in self.parameters], bool)
        self.measured = np.log([row.measured_s for row in self.rows])
        self.noise = np.array([row.noise for row in self.rows])
        self.affects = np.ones((len(self.rows), len(self.parameters)), bool)
        self._memory: dict[bytes, Floats] = {}

    def restricted(self, informative: Mask) -> DeviceFit:
        """Return the same fit with some of its parameters, shape (parameters,) of bool."""
        kept = [self.parameters[j] for j in np.flatnonzero(informative)]
        names = {self.parameters[j].name for j in np.flatnonzero(self.may_move)}
        fit = DeviceFit(self.soc, self.rows, kept, names)
        fit.affects = self.affects[:, informative]
        return fit

    def machine(self, logs: Floats) -> Soc:
        """Return the SoC with parameters at given logarithms."""
        values = {p.number.path: v for p, v in zip(self.parameters, np.exp(logs).tolist(), strict=True)}
        return moved(self.soc, values)

    def predicted(self, logs: Floats, only: Sequence[int] | None = None) -> Floats:
        """Return the logarithms of predicted times, shape (rows,); `only` names some rows."""
        if only is not None:
            return self._evaluate(logs, only)
        key = logs.tobytes()
        if key not in self._memory:
            self._memory[key] = self._evaluate(logs, range(len(self.rows)))
        return self._memory[key]

    def _evaluate(self, logs: Floats, which: Sequence[int]) -> Floats:
        rows = [self.rows[i] for i in which]
        totals = evaluated([row.mapped for row in rows], self.machine(logs))
        seconds = [row.seconds(total) for row, total in zip(rows, totals, strict=True)]
        return np.log(seconds)

    def find_influence(self, logs: Floats) -> Floats:
        """Return how much each parameter affects each row, shape (rows, parameters).

        It is the largest change of the row's logarithm when the parameter moves by its uncertainty, up or
        down.
        """
        here = self.predicted(logs)
        influence = np.zeros((len(self.rows), len(self.parameters)))
        for j in range(len(self.parameters)):
            for sign in (1.0, -1.0):
                there = logs.copy()
                there[j] = np.clip(logs[j] + sign * self.widths[j], self.low[j], self.high[j])
                influence[:, j] = np.maximum(influence[:, j], np.abs(self.predicted(there) - here))
        self.affects = influence > 1e-9
        self._memory.clear()
        return influence

    def slopes(self, logs: Floats, which: Mask) -> Floats:
        """Return d log(time) / d log(parameter), shape (rows, parameters); 0 where `which` is false."""
        here = self.predicted(logs)
        slopes = np.zeros((len(self.rows), len(self.parameters)))
        for j in np.flatnonzero(which):
            rows = np.flatnonzero(self.affects[:, j])
            there = logs.copy()
            # At a bound the difference is taken inwards.
            step = -_STEP if logs[j] + _STEP > self.high[j] else _STEP
            there[j] += step
            slopes[rows, j] = (self.predicted(there, rows.tolist()) - here[rows]) / step
        return slopes

    def fit(self, start: Floats | None = None) -> FitResult:
        """Fit the parameters that the data determine; hold the others at the data sheet's values."""
        moving, every = self.may_move.copy(), np.ones(len(self.start), bool)
        logs, error = self.start if start is None else start, _FIRST_ERROR
        while True:
            logs = np.where(moving, logs, self.start)
            logs, error = self._fit_with_model_error(logs, moving, error)
            strong = self.strengths(logs, every, error)
            stays = self._undetermined(logs, strong, moving, error)
            if not stays.any():
                break
            moving &= ~stays
        at_bound = moving & ((logs - self.low < 1e-6) | (self.high - logs < 1e-6))
        return FitResult(
            logs=logs,
            moving=moving,
            covariance=self._covariance(strong, moving, self.weighted(logs, error)),
            predicted=self.predicted(logs),
            model_error=error,
            freedom=self._freedom(strong, moving),
            at_bound=tuple(self.parameters[j].name for j in np.flatnonzero(at_bound)),
        )

    def _fit_with_model_error(self, logs: Floats, moving: Mask, error: float) -> tuple[Floats, float]:
        """Fit and estimate the model error in turn until both converge."""
        for _ in range(_ROUNDS):
            logs = self.solve(logs, moving, error)
            before, error = error, self._model_error(logs, moving, error)
            if abs(error - before) < 0.02 * before + 1e-4:
                break
        return logs, error

    def solve(self, logs: Floats, moving: Mask, error: float, rows: Mask | slice = slice(None)) -> Floats:
        """Return the most likely parameters near `logs`, fitted to some rows, at a given model error."""
        if not moving.any():
            return logs
        places = np.flatnonzero(moving)
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
            return self.weighted(at(values), error)[rows]

        def slopes(values: Mapping[str, float]) -> Floats:
            return self.strengths(at(values), moving, error)[rows][:, places]

        solution = solve(free, residual, _SOFT, slopes)
        self._memory.clear()
        return at(solution.values)

    def _model_error(self, logs: Floats, moving: Mask, error: float) -> float:
        """Return the standard deviation of what neither parameters nor noise explain.

        At this width clipped residuals have the mean square of clipped normal variables (Huber, Robust
        Statistics, proposal 2), counting rows less the parameters' degrees of freedom.
        """
        from scipy.optimize import brentq  # slow to import

        residuals = self.predicted(logs) - self.measured
        target = self._freedom(self.strengths(logs, moving, error), moving) * _CLIPPED_SQUARE

        def excess(width: float) -> float:
            squares = residuals**2 / (self.noise**2 + width**2)
            return float(np.minimum(squares, _CLIP**2).sum()) - target

        return float(brentq(excess, 0.0, _MOST_ERROR)) if excess(0.0) > 0.0 else 0.0

    def sigmas(self, error: float) -> Floats:
        """Return each row's standard deviation, noise and model error together, shape (rows,)."""
        sigmas: Floats = np.hypot(self.noise, error)
        return sigmas

    def _freedom(self, strong: Floats, moving: Mask) -> float:
        if not moving.any():
            return float(len(self.rows))
        data = strong[:, moving].T @ strong[:, moving]
        used = float(np.trace(np.linalg.solve(data + np.diag(self.widths[moving] ** -2.0), data)))
        return max(1.0, len(self.rows) - used)

    def _undetermined(self, logs: Floats, strong: Floats, moving: Mask, error: float) -> Mask:
        """Return the parameters that the data do not determine, starting from the least determined.

        A number stays in the fit where the data rule the data sheet's value out, however loosely they
        determine another: an overhead that does not show has no slope left, but is known to be small.
        """
        left, open_, here = moving.copy(), moving.copy(), logs.copy()
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

    def _covariance(self, strong: Floats, moving: Mask, residuals: Floats) -> Floats:
        """Return the covariance of the errors of all logarithms, shape (parameters, parameters).

        Sandwich estimate of the robust fit; the held numbers' uncertainty propagates into the moved ones
        (Schmidt's consider covariance).
        """
        m, h = np.flatnonzero(moving), np.flatnonzero(~moving)
        whole = np.diag(self.widths**2)
        if not len(m):
            return whole
        data, prior = strong[:, m].T @ strong[:, m], np.diag(self.widths[m] ** -2.0)
        spread = float(np.square(_pull(residuals)).sum()) / self._freedom(strong, moving)
        slack = float(_curvature(residuals).mean())
        inverse = np.linalg.inv(slack * data + prior)
        carry = -inverse @ (slack * strong[:, m].T @ strong[:, h])
        held = np.diag(self.widths[h] ** 2)
        whole[np.ix_(m, m)] = inverse @ (spread * data + prior) @ inverse + carry @ held @ carry.T
        whole[np.ix_(m, h)] = carry @ held
        whole[np.ix_(h, m)] = (carry @ held).T
        return whole

    def strengths(self, logs: Floats, which: Mask, error: float) -> Floats:
        """Return the slopes of the weighted residuals, shape (rows, parameters); see `slopes`."""
        return self.slopes(logs, which) / self.sigmas(error)[:, None]

    def weighted(self, logs: Floats, error: float) -> Floats:
        """Return the rows' residuals in standard deviations, shape (rows,)."""
        return (self.predicted(logs) - self.measured) / self.sigmas(error)

    def objective(self, residuals: Floats, logs: Floats) -> float:
        """Return the objective: soft squares of weighted residuals, squares of all priors."""
        soft = 2.0 * _SOFT**2 * (np.sqrt(1.0 + (residuals / _SOFT) ** 2) - 1.0)
        return float(soft.sum() + (((logs - self.start) / self.widths) ** 2).sum())


def _pull(residuals: Floats) -> Floats:
    """Return half the slope of the soft loss at weighted residuals, shape (rows,)."""
    return residuals / np.sqrt(1.0 + (residuals / _SOFT) ** 2)


def _curvature(residuals: Floats) -> Floats:
    """Return half the curvature of the soft loss at weighted residuals, shape (rows,)."""
    curvature: Floats = (1.0 + (residuals / _SOFT) ** 2) ** -1.5
    return curvature


def half_widths(fit: DeviceFit, best: FitResult) -> Floats:
    """Return the half-widths of the 90 % intervals of all logarithms, down and up, shape (2, parameters).

    A held number has the data sheet's interval.
    """
    widths = np.tile(NORMAL * fit.widths, (2, 1))
    if not best.moving.any():
        return widths
    minimum = _Minimum(fit, best)
    for j in np.flatnonzero(best.moving):
        for side, sign in enumerate((-1.0, 1.0)):
            length = minimum.length(int(j), sign, best.quantile)
            off = sign * (minimum.logs[j] - best.logs[j])
            widths[side, j] = max(0.1 * minimum.sigmas[j], off + length)
    return widths


class _Minimum:
    """The minimum of the objective with all parameters free, from which profiles start."""

    def __init__(self, fit: DeviceFit, best: FitResult) -> None:
        every = np.ones(len(best.logs), bool)
        self.fit, self.error = fit, best.model_error
        self.logs = fit.solve(best.logs, every, self.error)
        self.residuals = fit.weighted(self.logs, self.error)
        self.slopes = fit.strengths(self.logs, every, self.error)
        curved = self.slopes.T * _curvature(self.residuals)
        self.hessian = curved @ self.slopes + np.diag(fit.widths**-2.0)
        self.sigmas = np.sqrt(np.diag(np.linalg.inv(self.hessian)))
        self.height = fit.objective(self.residuals, self.logs)
        # The minimum may be a kink, where slopes do not vanish.
        self.ground = self.gradient(self.logs, self.residuals)

    def gradient(self, logs: Floats, residuals: Floats) -> Floats:
        """Return half the gradient of the objective, shape (parameters,)."""
        prior = (logs - self.fit.start) / self.fit.widths**2
        gradient: Floats = self.slopes.T @ _pull(residuals) + prior
        return gradient

    def length(self, j: int, sign: float, quantile: float) -> float:
        """Return how far a parameter moves until the objective has risen by the square of a quantile."""
        fit, logs, residuals = self.fit, self.logs, self.residuals
        others = np.arange(len(logs)) != j
        length = quantile * float(self.sigmas[j])
        shortest, longest = length / _WIDEST, length * _WIDEST
        for _ in range(_STEPS):
            goal = self.logs[j] + sign * length
            if not fit.low[j] < goal < fit.high[j]:
                return float(abs(np.clip(goal, fit.low[j], fit.high[j]) - self.logs[j]))
            rises = []
            for _ in range(_REOPTIMISE_STEPS):
                move = np.zeros(len(logs))
                move[j] = goal - logs[j]
                slope = self.gradient(logs + move, residuals + self.slopes[:, j] * move[j]) - self.ground
                move[others] = -np.linalg.solve(self.hessian[np.ix_(others, others)], slope[others])
                logs = np.clip(logs + move, fit.low, fit.high)
                residuals = fit.weighted(logs, self.error)
                rises.append(fit.objective(residuals, logs) - self.height)
            if min(rises) <= 0.0:  # flat within rounding
                return longest
            factor = float(np.clip(quantile / np.sqrt(min(rises)), 1.0 / _WIDEST, _WIDEST))
            length = float(np.clip(length * factor, shortest, longest))
            if abs(factor - 1.0) < 0.02:
                break
        return length
