"""Which points of a range are kept: all that meet the constraints, the front, or the best few.

The best points of all chunks are among the best of each, so a chunk keeps its own best alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numba
import numpy as np

from npusim.cost import TOTAL_DTYPE, compiled_parallel_or_plain
from npusim.explore.pareto import WORST, finite_front, front
from npusim.explore.spaces import Space, parse_keep
from npusim.metrics import METRICS, objectives

_BLOCK, _POINT_MS = 4096, 0.01
"""Points that a core looks at in turn, and what one takes as plain Python, roughly."""
_COLUMNS = list(TOTAL_DTYPE.names or ())
_LATENCY = _COLUMNS.index("latency_s")


@compiled_parallel_or_plain(lambda figures, *_: _POINT_MS * len(figures))
def _select_objectives(
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
    for block in numba.prange((figures.shape[0] + _BLOCK - 1) // _BLOCK):
        for p in range(block * _BLOCK, min((block + 1) * _BLOCK, figures.shape[0])):
            admitted = figures[p, _LATENCY] < np.inf
            for b in range(bounded.shape[0]):
                figure = figures[p, bounded[b]]
                admitted = admitted and low[b] <= figure <= high[b]
            good[p] = admitted
            for w in range(wanted.shape[0]):
                values[w, p] = signs[w] * figures[p, wanted[w]] if admitted else worst


def select_objectives(
    totals: Any, minimise: Sequence[str], constraints: Mapping[Any, Any]
) -> tuple[Any, Any]:
    """Return the objectives of points, and which keep to the constraints.

    Parameters
    ----------
    totals : array of TOTAL_DTYPE, shape (points,)
        The latency of a point that cannot run the network is infinite.

    Returns
    -------
    values : array of float64, shape (metrics, points)
        Less is better; as bad as can be where a point is not admitted.
    good : array of bool, shape (points,)
    """
    figures = totals.view(np.float64).reshape(len(totals), len(_COLUMNS))
    columns, derived = _COLUMNS, {*minimise, *constraints} - set(_COLUMNS)
    if derived:
        columns = [*_COLUMNS, *derived]
        figures = np.column_stack([figures, *(METRICS[name].values(totals) for name in derived)])
    wanted = np.array([columns.index(name) for name in minimise], np.int64)
    signs = np.array([METRICS[name].sign for name in minimise])
    bounded = np.array([columns.index(name) for name in constraints], np.int64)
    low = np.array([-np.inf if b.min is None else b.min for b in constraints.values()], np.float64)
    high = np.array([np.inf if b.max is None else b.max for b in constraints.values()], np.float64)
    values, good = np.empty((len(wanted), len(totals))), np.empty(len(totals), np.bool_)
    _select_objectives(figures, wanted, signs, bounded, low, high, WORST, values, good)
    return values, good


def keep(space: Space, totals: Any) -> tuple[Any, int]:
    """Return the points of a range that are kept, and how many are admitted: of a front those kept.

    Parameters
    ----------
    totals : array of TOTAL_DTYPE, shape (points,)

    Returns
    -------
    kept : array of int64
        Positions in the range, ascending.
    count : int
    """
    values, good = select_objectives(totals, space.objectives, space.constraints)
    count = int(np.count_nonzero(good))
    rule, best = parse_keep(space.keep)
    if rule == "all" or count == 0:
        return np.flatnonzero(good), count
    places = np.flatnonzero(good)
    if rule == "pareto":
        kept = places[finite_front(np.ascontiguousarray(values[:, places]))]
        return kept, len(kept)
    # Of equally good points those with smaller numbers, which stand first.
    return np.sort(places[np.argsort(values[0, places], kind="stable")[:best]]), count


def best_of(space: Space, scores: Mapping[str, Any]) -> Any:
    """Return the positions, ascending, of the points that `space.keep` asks for among some."""
    rule, count = parse_keep(space.keep)
    values = objectives(scores, space.objectives)
    if rule == "pareto":
        return front(values)
    if rule == "top":
        # Of equally good points those with smaller numbers, which stand first.
        return np.sort(np.argsort(values[0], kind="stable")[:count])
    return np.arange(values.shape[1])
