"""The non-dominated points of a set: no other is at least as good in all objectives and better in one.

Exact at any size. Points are cut into ranges whose own fronts are found on all cores; what remains is
sorted by the first objective and swept once. For up to three objectives the sweep asks a Fenwick tree
over the second objective for the least third one so far (n log n); for more it compares with the front
found so far. Of equal points all stay: which of two equal machines is better, the metrics do not say.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from npusim.cost import compiled, compiled_making_arrays, compiled_parallel

_STRETCH = 8192
_STRETCHES = 64
"""Least points of a stretch, and stretches of a large set: in a longer stretch more points are dominated."""
_PIVOTS = 8
WORST = float(np.finfo(np.float64).max)
"""Stands for infinity where all objectives must be finite."""


def front(objectives: Any) -> Any:
    """Return the points that no other point dominates.

    Parameters
    ----------
    objectives : array of float, shape (objectives, points)
        Less is better; nan counts as worse than anything.

    Returns
    -------
    array of int64, shape (kept,)
        Positions of the front's points, ascending.
    """
    # The sweep starts from infinity, so what is infinite itself is made finite: worse than all else, still
    # equal.
    values = np.nan_to_num(np.asarray(objectives, np.float64), nan=WORST, posinf=WORST, neginf=-WORST)
    return finite_front(np.ascontiguousarray(values))


def finite_front(values: Any) -> Any:
    """Return the front of finite objectives, a C-contiguous float64 array; see `front`."""
    places = np.arange(values.shape[1], dtype=np.int64)
    while len(places) > _STRETCH:
        kept, count = np.ones(len(places), np.bool_), len(places)
        _stretches(values, max(_STRETCH, count // _STRETCHES), kept)
        places, values = places[kept], np.ascontiguousarray(values[:, kept])
        if len(places) > count // 2:
            break
    kept = np.ones(len(places), np.bool_)
    _sweep(values, 0, len(places), kept)
    return places[kept]


@compiled_parallel
def _stretches(values: Any, length: int, kept: Any) -> None:
    """Clear in `kept` the points that another point of the same stretch of `length` points dominates."""
    for s in numba.prange((kept.shape[0] + length - 1) // length):
        start, stop = s * length, min((s + 1) * length, kept.shape[0])
        _clear_by_pivots(values, start, stop, kept)
        _sweep(values, start, stop, kept)


@compiled_making_arrays
def _clear_by_pivots(values: Any, start: int, stop: int, kept: Any) -> None:
    """Clear in `kept` the points that a few good points (pivots) dominate, so that few are left to sort.

    A pivot is the remaining point with the least sum of objectives, each scaled to its range and weighted.
    """
    count = values.shape[0]
    low, scale = np.empty(count), np.empty(count)
    for k in range(count):
        low[k], high = np.inf, -np.inf
        for p in range(start, stop):
            low[k], high = min(low[k], values[k, p]), max(high, values[k, p])
        scale[k] = 1.0 / (high - low[k]) if low[k] < high < 1e300 else 0.0
    for turn in range(_PIVOTS):
        best, pivot = np.inf, -1
        for p in range(start, stop):
            if kept[p]:
                total = 0.0
                for k in range(count):
                    # Weights that differ from turn to turn send the pivots to different parts of the front.
                    total += (
                        (values[k, p] - low[k]) * scale[k] * (8.0 if turn % (count + 1) == k + 1 else 1.0)
                    )
                if total < best:
                    best, pivot = total, p
        if pivot < 0:
            return
        for p in range(start, stop):
            if kept[p] and _dominates(values, pivot, p):
                kept[p] = False


@compiled
def _dominates(values: Any, a: int, b: int) -> bool:
    """Return whether point `a` is at least as good as `b` in all objectives and better in one."""
    better = False
    for k in range(values.shape[0]):
        if values[k, a] > values[k, b]:
            return False
        if values[k, a] < values[k, b]:
            better = True
    return better


@compiled_making_arrays
def _sweep(values: Any, start: int, stop: int, kept: Any) -> None:
    """Clear in `kept[start:stop]` every point that another of those points dominates."""
    order = _lexicographic(values, start + np.flatnonzero(kept[start:stop]))
    if values.shape[0] <= 3:
        _sweep_three(values, order, kept)
    else:
        _sweep_many(values, order, kept)


@compiled_making_arrays
def _lexicographic(values: Any, places: Any) -> Any:
    """Return places in lexicographic order of their objectives."""
    order = places[np.argsort(values[0][places])]
    start = 0
    while start < order.shape[0]:
        stop = start + 1
        while stop < order.shape[0] and values[0, order[stop]] == values[0, order[start]]:
            stop += 1
        if stop - start > 1 and values.shape[0] > 1:
            tied = order[start:stop].copy()
            for k in range(values.shape[0] - 1, 0, -1):  # stable sorts, the most important one last
                tied = tied[np.argsort(values[k][tied], kind="mergesort")]
            order[start:stop] = tied
        start = stop
    return order


@compiled
def _is_equal(values: Any, a: int, b: int) -> bool:
    same = True
    for k in range(values.shape[0]):
        same = same and values[k, a] == values[k, b]
    return same


@compiled_making_arrays
def _sweep_three(values: Any, order: Any, kept: Any) -> None:
    """Clear dominated points of up to three objectives, given in lexicographic order."""
    count = order.shape[0]
    second, third = values[min(1, values.shape[0] - 1)][order], values[values.shape[0] - 1][order]
    level = np.empty(count, np.int64)  # rank of the second objective, from 1; equal ones share a rank
    rank = 0
    by_second = np.argsort(second)
    for i in range(count):
        if i == 0 or second[by_second[i]] != second[by_second[i - 1]]:
            rank += 1
        level[by_second[i]] = rank
    least = np.full(rank + 1, np.inf)  # Fenwick tree: least third objective up to a level of the second
    i = 0
    while i < count:
        beaten, node = False, level[i]
        while node > 0 and not beaten:
            beaten = least[node] <= third[i]
            node -= node & -node
        if not beaten:
            node = level[i]
            while node <= rank:
                least[node] = min(least[node], third[i])
                node += node & -node
        same = i
        while same < count and _is_equal(values, order[same], order[i]):
            kept[order[same]] = not beaten
            same += 1
        i = same


@compiled_making_arrays
def _sweep_many(values: Any, order: Any, kept: Any) -> None:
    """Clear dominated points of any number of objectives; only points earlier in `order` can dominate."""
    survivors = np.empty(order.shape[0], np.int64)
    count = 0
    for point in order:
        beaten = False
        for i in range(count):
            if _dominates(values, survivors[i], point):
                beaten = True
                break
        kept[point] = not beaten
        if not beaten:
            survivors[count] = point
            count += 1


def stand_ins(objectives: Any, tolerance: float) -> Any:
    """Return which point of a front stands for each, where points within a tolerance are one.

    A point stands for all that it exceeds by no more than the tolerance in any objective. The cheapest come
    first: those with the least sum of objectives, each scaled to its range.

    Parameters
    ----------
    objectives : array of float, shape (objectives, points)
        Less is better.
    tolerance : float
        Share of an objective; at 0 a point stands for its equals alone.

    Returns
    -------
    array of int64, shape (points,)
    """
    values = np.asarray(objectives, float)
    stands_in = np.full(values.shape[1], -1, np.int64)
    most, sums = values + tolerance * np.abs(values), scaled(values, corner_of(values)).sum(axis=0)
    for point in np.argsort(sums, kind="stable"):
        if stands_in[point] < 0:
            is_near = np.all(values[:, [point]] <= most, axis=0)
            stands_in[is_near & (stands_in < 0)] = point
    return stands_in


def hypervolume(objectives: Any, reference: Any) -> float:
    """Return the volume that points dominate, bounded by a reference point; computed by moocore.

    Parameters
    ----------
    objectives : array of float, shape (objectives, points)
        Less is better; points that are not below the reference in every objective count nothing.
    reference : array of float, shape (objectives,)
    """
    import moocore  # comes with the extra `search`

    values = np.asarray(objectives, float)
    values = values[:, np.all(values < np.asarray(reference)[:, np.newaxis], axis=0)]
    return float(moocore.hypervolume(np.ascontiguousarray(values.T), ref=reference)) if values.size else 0.0


def corner_of(objectives: Any) -> tuple[Any, Any]:
    """Return (the best of each objective, the range of each) on a front of shape (objectives, points)."""
    low, high = objectives.min(axis=1), objectives.max(axis=1)
    return low, np.where(high > low, high - low, 1.0)


def scaled(objectives: Any, corner: tuple[Any, Any]) -> Any:
    """Return objectives so that a front's best is 0 and its worst 1 in each."""
    low, width = corner
    return (objectives - low[:, np.newaxis]) / width[:, np.newaxis]


def corner_of_unit(count: int) -> Any:
    """Return the reference point of scaled objectives: a tenth beyond the front's worst in each."""
    return np.full(count, 1.1)
