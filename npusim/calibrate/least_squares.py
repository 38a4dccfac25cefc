"""Robust least squares of every unit's fit: bounds, error bars, undetermined numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROBUST = 1.4826
"""Standard deviation of a normal variable over the median of its absolute value."""
_NEGLIGIBLE = 1e-6
"""Singular value, relative to the largest, that counts as none."""
_NEAR = 1e-5
"""Step of the logarithms, relative to them, at which a fit with slopes stops: far below any error bar."""
_UNKNOWN = 0.5
"""A number whose error bar is wider than this share of it is called undetermined."""


@dataclass(frozen=True)
class FreeNumber:
    """A number to fit, in log space: it is positive, and its error bar is relative."""

    name: str
    start: float
    low: float
    high: float
    """`start`, `low`, `high`: first guess and bounds, in the number's unit."""
    prior: tuple[float, float] | None = None
    """What was known before: median, in the number's unit, and standard deviation of the logarithm. None:
    nothing."""


@dataclass(frozen=True)
class Solution:
    """Fitted numbers."""

    values: dict[str, float]
    """By name."""
    relative_sigma: dict[str, float]
    """One standard deviation over the value, by name."""
    covariance: Floats
    """Of the logarithms, in the order of `values`. Shape (numbers, numbers)."""
    undetermined: tuple[str, ...]
    """Numbers that the figures leave open: at a bound, or with a standard deviation above half the value."""


def solve(
    free: Sequence[FreeNumber],
    residual: Callable[[Mapping[str, float]], Floats],
    softness: float,
    slopes: Callable[[Mapping[str, float]], Floats] | None = None,
) -> Solution:
    """Fit numbers by robust least squares; priors count by their plain squares.

    Parameters
    ----------
    residual : callable
        From numbers by name to weighted log errors, shape (rows,).
    softness : float
        Residual above which a row counts less than its square (soft L1), so that outliers do not dominate.
    slopes : callable, optional
        From numbers by name to the slopes of the weighted log errors against the numbers' logarithms, shape
        (rows, numbers); None: finite differences.
    """
    from scipy.optimize import least_squares  # slow to import

    names = [number.name for number in free]
    start, low, high = np.log([[number.start, number.low, number.high] for number in free]).T
    known = [i for i, number in enumerate(free) if number.prior is not None]
    centre, width = np.array([number.prior for number in free if number.prior]).reshape(-1, 2).T
    centre = np.log(centre)

    def named(logs: Floats) -> dict[str, float]:
        return dict(zip(names, np.exp(logs), strict=True))

    def at(logs: Floats) -> Floats:
        return np.concatenate([residual(named(logs)), (logs[known] - centre) / width])

    def slopes_at(logs: Floats) -> Floats:
        assert slopes is not None, "asked only where there are slopes"
        return np.concatenate([slopes(named(logs)), np.eye(len(free))[known] / width[:, None]])

    found = least_squares(
        at,
        start,
        jac="2-point" if slopes is None else slopes_at,
        bounds=(low, high),
        loss="soft_l1" if not known else _soft_but_for(len(known)),
        f_scale=softness,
        ftol=1e-8 if slopes is None else _NEAR,
        xtol=1e-8 if slopes is None else _NEAR,
    )
    covariance = np.linalg.inv(found.jac.T @ found.jac) if known else _covariance(found.jac, found.fun)
    sigma = np.sqrt(np.diag(covariance))
    edge = (found.x - low < 1e-6) | (high - found.x < 1e-6)
    open_ = [name for name, at_edge, s in zip(names, edge, sigma, strict=True) if at_edge or not s < _UNKNOWN]
    return Solution(
        values=dict(zip(names, np.exp(found.x).tolist(), strict=True)),
        relative_sigma=dict(zip(names, sigma.tolist(), strict=True)),
        covariance=covariance,
        undetermined=tuple(open_),
    )


def _soft_but_for(priors: int) -> Callable[[Floats], Any]:
    """Return the soft L1 loss of scipy, with its slopes, for all residuals but the last: those of priors."""

    def loss(squares: Floats) -> Floats:
        root = np.sqrt(1.0 + squares)
        rho = np.stack([2.0 * (root - 1.0), 1.0 / root, -0.5 / root**3])
        last = len(squares) - priors
        rho[:, last:] = np.stack([squares[last:], np.ones(priors), np.zeros(priors)])
        return rho

    return loss


def _covariance(jacobian: Floats, residuals: Floats) -> Floats:
    """Covariance of the fitted logarithms, scaled by the residuals' median, not their squares.

    A direction in which no row moves gets a large but finite variance, never the 0 of a pseudo-inverse.
    """
    rows, numbers = jacobian.shape
    spread = _ROBUST * float(np.median(np.abs(residuals)))
    _, strengths, directions = np.linalg.svd(jacobian, full_matrices=False)
    strengths = np.maximum(strengths, _NEGLIGIBLE * max(float(strengths.max()), _NEGLIGIBLE))
    scale = max(spread, _NEGLIGIBLE) ** 2 * rows / max(1, rows - numbers)
    covariance: Floats = scale * ((directions.T / strengths**2) @ directions)
    return covariance
