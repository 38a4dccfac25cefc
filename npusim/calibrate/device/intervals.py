"""90 % intervals of fitted numbers by profiling the posterior; both sides may differ.

An overhead that hides behind longer work can well be smaller than it seems, for then it hides even better; it
can hardly be larger. So the objective is followed to both sides of its minimum, all other numbers (those that
a fit held, too) being re-optimised, until it has risen as far as a 90 % interval asks. Re-optimising is a
Gauss-Newton step whose slopes are learned on the way (Broyden), so that a point costs one evaluation of the
rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npusim.calibrate.device.fit import DeviceFit, FitResult
from npusim.calibrate.least_squares import Floats

NORMAL = 1.6448536269514722
"""Half a 90 % interval of a normal variable, in standard deviations."""
_STEPS = 3
"""Corrections of how far a side reaches."""
_REOPTIMISE_STEPS = 2
"""Steps in which the other numbers are re-optimised at each of them."""
_WIDEST = 3.0
"""A side is followed to this many times its first guess at most."""


@dataclass
class _ProfilePoint:
    """A point of the profile: parameters, residuals, slopes."""

    logs: Floats
    residuals: Floats
    slopes: Floats
    """Of the weighted residuals, shape (rows, parameters)."""


def quantile_of(best: FitResult) -> float:
    """Return half the 90 % interval of a fitted number in standard deviations.

    The width of the residuals is itself estimated, so it is Student's.
    """
    from scipy.special import stdtrit  # slow to import

    return float(stdtrit(max(best.freedom, 1.0), 0.95))


def half_widths(fit: DeviceFit, best: FitResult) -> Floats:
    """Return the half-widths of the 90 % intervals of all logarithms, down and up, shape (2, parameters).

    Of a number that was held it is what the data sheet says.
    """
    found = np.tile(NORMAL * fit.widths, (2, 1))
    if not best.moving.any():
        return found
    minimum = _minimum(fit, best)
    inverse = np.linalg.inv(_hessian(fit, minimum))
    lowest = fit.objective(minimum.residuals, minimum.logs)
    quantile = quantile_of(best)
    for j in np.flatnonzero(best.moving):
        sigma = float(np.sqrt(inverse[j, j]))
        for side, sign in enumerate((-1.0, 1.0)):
            steps = _profile_steps(fit, best, minimum, lowest, int(j), sign * sigma, quantile)
            off = sign * (minimum.logs[j] - best.logs[j])
            found[side, j] = max(0.1 * sigma, off + steps * sigma)
    return found


def _minimum(fit: DeviceFit, best: FitResult) -> _ProfilePoint:
    """Return the minimum of the objective when nothing is held."""
    every = np.ones(len(best.logs), bool)
    logs = fit.lowest(best.logs, every, best.model_error)
    weights = 1.0 / np.sqrt(fit.noise**2 + best.model_error**2)
    slopes = fit.slopes(logs, every) * weights[:, None]
    return _ProfilePoint(logs, fit.weighted(logs, best.model_error), slopes)


def _hessian(fit: DeviceFit, point: _ProfilePoint) -> Floats:
    curvature = fit.loss_curvature(point.residuals)
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
    ground = minimum.slopes.T @ fit.loss_slope(minimum.residuals) + (minimum.logs - fit.start) / fit.widths**2
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
            slope = here.slopes.T @ fit.loss_slope(along) + (here.logs - fit.start) / fit.widths**2 - ground
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
    """Move to a point and update the slopes (Broyden), in point."""
    move = there - here.logs
    residuals = fit.weighted(there, best.model_error)
    length = float(move @ move)
    if length > 0.0:
        missed = residuals - here.residuals - here.slopes @ move
        here.slopes = here.slopes + np.outer(missed, move) / length
    here.logs, here.residuals = there, residuals
