"""Picks out of a stretch of points what judges look at, on all cores: a clerk with two hands and one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numba
import numpy as np

from npusim.cost.jit import parallel_kernel
from npusim.cost.tables import TOTAL_DTYPE
from npusim.explore.metrics import METRICS, sign_of
from npusim.explore.pareto import WORST

__all__ = ["gather"]

_STRETCH = 4096
_LATENCY = METRICS.index("latency_s")


@parallel_kernel
def _gather(
    figures: Any,
    wanted: Any,
    signs: Any,
    bounded: Any,
    low: Any,
    high: Any,
    worst: float,
    values: Any,
    good: Any,
) -> None:
    for stretch in numba.prange((figures.shape[0] + _STRETCH - 1) // _STRETCH):
        for p in range(stretch * _STRETCH, min((stretch + 1) * _STRETCH, figures.shape[0])):
            admitted = figures[p, _LATENCY] < np.inf
            for b in range(bounded.shape[0]):
                figure = figures[p, bounded[b]]
                admitted = admitted and low[b] <= figure <= high[b]
            good[p] = admitted
            for w in range(wanted.shape[0]):
                values[w, p] = signs[w] * figures[p, wanted[w]] if admitted else worst


def gather(totals: Any, minimise: Sequence[str], constraints: Mapping[Any, Any]) -> tuple[Any, Any]:
    """Return the objectives of points, and which keep to the constraints.

    Parameters
    ----------
    totals : array of TOTAL_DTYPE, shape (points,)
        The latency of a point that cannot run the network is infinite.
    minimise : sequence of str
        Metrics; more of those a second is better.
    constraints : mapping of metric to Bound

    Returns
    -------
    values : array of float64, shape (metrics, points)
        Less is better; as bad as can be where a point is not admitted.
    good : array of bool, shape (points,)
    """
    assert TOTAL_DTYPE.names == METRICS
    figures = totals.view(np.float64).reshape(len(totals), len(METRICS))
    wanted = np.array([METRICS.index(name) for name in minimise], np.int64)
    signs = np.array([sign_of(name) for name in minimise])
    bounded = np.array([METRICS.index(name) for name in constraints], np.int64)
    low = np.array([-np.inf if b.min is None else b.min for b in constraints.values()], np.float64)
    high = np.array([np.inf if b.max is None else b.max for b in constraints.values()], np.float64)
    values, good = np.empty((len(wanted), len(totals))), np.empty(len(totals), np.bool_)
    _gather(figures, wanted, signs, bounded, low, high, WORST, values, good)
    return values, good
