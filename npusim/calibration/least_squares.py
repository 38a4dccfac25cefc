"""Robust least squares by logarithms: bounds, priors, error bars, undetermined numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

Floats = NDArray[np.float64]
ByNumbers = Callable[[Mapping[str, float]], Floats]
"""A function of free numbers by name."""

_ROBUST = 1.4826  # standard deviation of a normal variable over the median of its absolute value
_NEGLIGIBLE = 1e-6  # singular value, relative to the largest, that counts as zero
_EXACT = 1e-8  # change of the objective, or of a logarithm, at which a fit stops
_NEAR = 1e-5  # the same of fits with slopes of their own: far below any error bar
_UNKNOWN = 0.5  # error bar, as a share of a number, above which the number is called undetermined


@dataclass(frozen=True)
class FreeNumber:
    """A positive number to fit, by its logarithm; its error bar is relative."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    start: float
    low: float = 0.0
    high: float = np.inf  # `start`, `low`, `high`: first guess and bounds, in `unit`
    prior: tuple[float, float] | None = None
    """Prior knowledge: median, and standard deviation of the logarithm. None: none."""
    unit: str = ""  # SI unit, as `--set` takes it


@dataclass(frozen=True)
class Solution:
    """Fitted numbers."""

    values: dict[str, float]  # by name
    relative_sigma: dict[str, float]  # one standard deviation over the value, by name
    covariance: Floats  # of the logarithms, in the order of `values`. Shape (numbers, numbers)
    undetermined: tuple[str, ...]  # numbers at a bound, or with a standard deviation above half the value


def slopes_by_logs(function: ByNumbers, values: Mapping[str, float], step: float) -> Floats:
    """Return the slopes of a function by the logarithms of numbers, shape (rows, numbers)."""
    here = function(values)
    moved = ({**values, name: value * np.exp(step)} for name, value in values.items())
    return np.stack([(function(there) - here) / step for there in moved], -1)


def solve(
    free: Sequence[FreeNumber],
    residual: ByNumbers,
    softness: float = np.inf,
    slopes: ByNumbers | None = None,
    step: float | None = None,
) -> Solution:
    """Fit numbers by robust least squares; priors count by their plain squares.

    Parameters
    ----------
    residual : callable
        From numbers by name to weighted log errors, shape (rows,).
    softness : float, optional
        Residual above which a row counts less than its square (soft L1), so that outliers do not dominate.
    slopes : callable, optional
        From numbers by name to the slopes of the weighted log errors against the numbers' logarithms, shape
        (rows, numbers); None: finite differences.
    step : float, optional
        Step of the logarithms for these; None: that of rounding.
    """
    from scipy.optimize import least_squares  # slow to import

    if slopes is None and step is not None:
        slopes = partial(slopes_by_logs, residual, step=step)
    names = [number.name for number in free]
    with np.errstate(divide="ignore"):  # a bound of 0 is no bound
        start, low, high = np.log([[number.start, number.low, number.high] for number in free]).T
    known = [i for i, number in enumerate(free) if number.prior is not None]
    centre, width = np.array([number.prior for number in free if number.prior]).reshape(-1, 2).T
    centre = np.log(centre)

    def named(logs: Floats) -> dict[str, float]:
        return dict(zip(names, np.exp(logs).tolist(), strict=True))

    def at(logs: Floats) -> Floats:
        return np.concatenate([residual(named(logs)), (logs[known] - centre) / width])

    def slopes_at(logs: Floats) -> Floats:
        assert slopes is not None, "called only where there are slopes"
        return np.concatenate([slopes(named(logs)), np.eye(len(free))[known] / width[:, None]])

    tolerance = _EXACT if slopes is None else _NEAR
    result = least_squares(
        at,
        start,
        jac="2-point" if slopes is None else slopes_at,
        bounds=(low, high),
        loss=_loss(softness, len(known)),
        f_scale=softness if np.isfinite(softness) else 1.0,
        ftol=tolerance,
        xtol=tolerance,
    )
    jacobian = result.jac
    covariance = np.linalg.inv(jacobian.T @ jacobian) if known else _covariance(jacobian, result.fun)
    sigma = np.sqrt(np.diag(covariance))
    edge = (result.x - low < 1e-6) | (high - result.x < 1e-6)
    return Solution(
        values=named(result.x),
        relative_sigma=dict(zip(names, sigma.tolist(), strict=True)),
        covariance=covariance,
        undetermined=tuple(
            name for name, at_edge, s in zip(names, edge, sigma, strict=True) if at_edge or not s < _UNKNOWN
        ),
    )


def _loss(softness: float, priors: int) -> str | Callable[[Floats], Any]:
    """Return scipy's loss: soft L1 for all residuals but the last ones, which belong to priors."""
    if not np.isfinite(softness):
        return "linear"
    if not priors:
        return "soft_l1"

    def loss(squares: Floats) -> Floats:
        root = np.sqrt(1.0 + squares)
        rho = np.stack([2.0 * (root - 1.0), 1.0 / root, -0.5 / root**3])
        last = len(squares) - priors
        rho[:, last:] = np.stack([squares[last:], np.ones(priors), np.zeros(priors)])
        return rho

    return loss


def _covariance(jacobian: Floats, residuals: Floats) -> Floats:
    """Return the covariance of the fitted logarithms, scaled by the residuals' median, not their squares.

    A direction in which no row moves gets a large but finite variance, never the 0 of a pseudo-inverse.
    """
    rows, numbers = jacobian.shape
    spread = _ROBUST * float(np.median(np.abs(residuals)))
    _, strengths, directions = np.linalg.svd(jacobian, full_matrices=False)
    strengths = np.maximum(strengths, _NEGLIGIBLE * max(float(strengths.max()), _NEGLIGIBLE))
    scale = max(spread, _NEGLIGIBLE) ** 2 * rows / max(1, rows - numbers)
    covariance: Floats = scale * ((directions.T / strengths**2) @ directions)
    return covariance
