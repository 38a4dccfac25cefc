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
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.arch import Soc
from npusim.calibration.device_rows import DeviceRow, Parameter
from npusim.calibration.least_squares import Floats, FreeNumber, solve
from npusim.cost import arch_row
from npusim.studies.perturbation import evaluated, lowered_on, moved

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
_FIRST_ERROR = 0.1
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
        self.tables: list[Any] = [None] * len(self.rows)
        self._memory: dict[bytes, Floats] = {}

    def restricted(self, informative: Mask) -> DeviceFit:
        """Return the same fit with some of its parameters, shape (parameters,) of bool."""
        kept = [self.parameters[j] for j in np.flatnonzero(informative)]
        names = {self.parameters[j].name for j in np.flatnonzero(self.may_move)}
        fit = DeviceFit(self.soc, self.rows, kept, names)
        fit.affects, fit.tables = self.affects[:, informative], self.tables
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
        machine = self.machine(logs)
        archs: dict[tuple[int, int, str], object] = {}
        seconds = np.empty(len(which))
        for place, i in enumerate(which):
            row = self.rows[i]
            run = row.mapped.run
            key = (run.tiles, run.requests, run.hint)
            if key not in archs:
                archs[key] = arch_row(machine, *key)
            seconds[place] = row.seconds(evaluated(row.mapped, machine, archs[key], self.tables[i]))
        logs_s: Floats = np.log(seconds)
        return logs_s

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
        self._keep_tables(logs)
        self._memory.clear()
        return influence

    def _keep_tables(self, logs: Floats) -> None:
        """Keep the operator tables that no parameter changes."""
        self.tables = [lowered_on(row.mapped, self.machine(logs)) for row in self.rows]
        for j in range(len(self.parameters)):
            there = logs.copy()
            there[j] -= self.widths[j]
            machine = self.machine(there)
            for i in np.flatnonzero(self.affects[:, j]):
                table = self.tables[i]
                if table is not None:
                    same = lowered_on(self.rows[i].mapped, machine).tobytes() == table.tobytes()
                    self.tables[i] = table if same else None

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
        residuals = (self.predicted(logs) - self.measured) / self.sigmas(error)
        at_bound = moving & ((logs - self.low < 1e-6) | (self.high - logs < 1e-6))
        return FitResult(
            logs=logs,
            moving=moving,
            covariance=self._covariance(slopes, moving, residuals, error),
            predicted=self.predicted(logs),
            model_error=error,
            freedom=self._freedom(slopes, moving, error),
            at_bound=tuple(self.parameters[j].name for j in np.flatnonzero(at_bound)),
        )

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
        weights = 1.0 / self.sigmas(error)
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
        target = self._freedom(slopes, moving, error) * _CLIPPED_SQUARE

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

    def sigmas(self, error: float) -> Floats:
        """Return each row's standard deviation, noise and model error together, shape (rows,)."""
        sigmas: Floats = np.sqrt(self.noise**2 + error**2)
        return sigmas

    def _freedom(self, slopes: Floats, moving: Mask, error: float) -> float:
        if not moving.any():
            return float(len(self.rows))
        strong = slopes[:, moving] / self.sigmas(error)[:, None]
        data = strong.T @ strong
        used = float(np.trace(np.linalg.solve(data + np.diag(self.widths[moving] ** -2.0), data)))
        return max(1.0, len(self.rows) - used)

    def _undetermined(self, logs: Floats, slopes: Floats, moving: Mask, error: float) -> Mask:
        """Return the parameters that the data do not determine, starting from the least determined.

        A number stays in the fit where the data rule the data sheet's value out, however loosely they
        determine another: an overhead that does not show has no slope left, but is known to be small.
        """
        left, open_, here = moving.copy(), moving.copy(), logs.copy()
        strong = slopes / self.sigmas(error)[:, None]
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

    def _covariance(self, slopes: Floats, moving: Mask, residuals: Floats, error: float) -> Floats:
        """Return the covariance of the errors of all logarithms, shape (parameters, parameters).

        Sandwich estimate of the robust fit; the held numbers' uncertainty propagates into the moved ones
        (Schmidt's consider covariance).
        """
        strong = slopes / self.sigmas(error)[:, None]
        m, h = np.flatnonzero(moving), np.flatnonzero(~moving)
        whole = np.diag(self.widths**2)
        if not len(m):
            return whole
        data = strong[:, m].T @ strong[:, m]
        prior = np.diag(self.widths[m] ** -2.0)
        spread = float(np.mean(_loss_slope(residuals) ** 2)) * len(self.rows)
        spread /= self._freedom(slopes, moving, error)
        slack = float(np.mean((1.0 + (residuals / _SOFT) ** 2) ** -1.5))
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
        return (predicted - self.measured) / self.sigmas(error)

    def objective(self, residuals: Floats, logs: Floats) -> float:
        """Return the objective: soft squares of weighted residuals, squares of all priors."""
        soft = 2.0 * _SOFT**2 * (np.sqrt(1.0 + (residuals / _SOFT) ** 2) - 1.0)
        return float(soft.sum() + (((logs - self.start) / self.widths) ** 2).sum())


def _loss_slope(residuals: Floats) -> Floats:
    """Return the slope of the soft loss at weighted residuals, shape (rows,)."""
    return residuals / np.sqrt(1.0 + (residuals / _SOFT) ** 2)


@dataclass
class _ProfilePoint:
    """A point of the objective: logarithms, weighted residuals, and their slopes (rows, parameters)."""

    fit: DeviceFit
    error: float
    logs: Floats
    residuals: Floats
    slopes: Floats

    @property
    def objective(self) -> float:
        return self.fit.objective(self.residuals, self.logs)

    def gradient(self, residuals: Floats) -> Floats:
        """Return half the gradient of the objective at other residuals, shape (parameters,)."""
        prior = (self.logs - self.fit.start) / self.fit.widths**2
        gradient: Floats = self.slopes.T @ _loss_slope(residuals) + prior
        return gradient

    def hessian(self) -> Floats:
        """Return half the Hessian of the objective, shape (parameters, parameters)."""
        curvature = (1.0 + (self.residuals / _SOFT) ** 2) ** -1.5
        hessian: Floats = (self.slopes.T * curvature) @ self.slopes + np.diag(self.fit.widths**-2.0)
        return hessian

    def move_to(self, there: Floats) -> None:
        """Move the point and update its slopes (Broyden)."""
        move = there - self.logs
        residuals = self.fit.weighted(there, self.error)
        length = float(move @ move)
        if length > 0.0:
            missed = residuals - self.residuals - self.slopes @ move
            self.slopes = self.slopes + np.outer(missed, move) / length
        self.logs, self.residuals = there, residuals


def half_widths(fit: DeviceFit, best: FitResult) -> Floats:
    """Return the half-widths of the 90 % intervals of all logarithms, down and up, shape (2, parameters).

    A held number has the data sheet's interval.
    """
    widths = np.tile(NORMAL * fit.widths, (2, 1))
    if not best.moving.any():
        return widths
    every, error = np.ones(len(best.logs), bool), best.model_error
    logs = fit.solve(best.logs, every, error)
    slopes = fit.slopes(logs, every) * (1.0 / fit.sigmas(error))[:, None]
    minimum = _ProfilePoint(fit, error, logs, fit.weighted(logs, error), slopes)
    inverse = np.linalg.inv(minimum.hessian())
    for j in np.flatnonzero(best.moving):
        sigma = float(np.sqrt(inverse[j, j]))
        for side, sign in enumerate((-1.0, 1.0)):
            steps = _profile_steps(minimum, int(j), sign * sigma, best.quantile)
            off = sign * (minimum.logs[j] - best.logs[j])
            widths[side, j] = max(0.1 * sigma, off + steps * sigma)
    return widths


def _profile_steps(minimum: _ProfilePoint, j: int, step: float, quantile: float) -> float:
    """Return the number of steps of a parameter that raises the objective by the square of a quantile."""
    fit, here = minimum.fit, replace(minimum)
    others = np.arange(len(minimum.logs)) != j
    ground = minimum.gradient(minimum.residuals)  # the minimum may be a kink, where slopes do not vanish
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
            slope = here.gradient(along) - ground
            move[others] = -np.linalg.solve(here.hessian()[np.ix_(others, others)], slope[others])
            here.move_to(np.clip(here.logs + move, fit.low, fit.high))
            rises.append(here.objective - minimum.objective)
        rise = min(rises)
        if rise <= 0.0:  # flat within rounding
            return quantile * _WIDEST
        factor = float(np.clip(quantile / np.sqrt(rise), 1.0 / _WIDEST, _WIDEST))
        steps = float(np.clip(steps * factor, quantile / _WIDEST, quantile * _WIDEST))
        if abs(factor - 1.0) < 0.02:
            break
    return steps
