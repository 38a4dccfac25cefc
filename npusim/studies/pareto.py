"""The non-dominated points of a set: no other is at least as good in all objectives and better in one.

Exact at any size: moocore finds the front. From many points, those that a few good ones dominate are left out
before. Of equal points all stay: which of two equal machines is better, the metrics do not say.
"""

from collections.abc import Iterable
from typing import Any

import moocore
import numpy as np

_MANY = 8192
"""Points from which on pivots leave out most of them first."""
_WORST = float(np.finfo(np.float64).max)
"""Stands for infinity: moocore wants finite objectives."""


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
    values = np.nan_to_num(np.asarray(objectives, np.float64), nan=_WORST, posinf=_WORST, neginf=-_WORST)
    places = np.arange(values.shape[1], dtype=np.int64)
    if len(places) > _MANY:
        places = _not_dominated_by_pivots(values)
    if not len(places):
        return places
    return places[moocore.is_nondominated(np.ascontiguousarray(values[:, places].T), keep_weakly=True)]


def _not_dominated_by_pivots(values: Any) -> Any:
    """Return the points that no pivot dominates: a point with the least weighted sum of scaled objectives.

    After a pivot that leaves more than half there are no more.
    """
    count, (_, width) = len(values), corner_of(values)
    places = np.arange(values.shape[1], dtype=np.int64)
    for weights in np.vstack([np.ones(count), np.ones(count) + 7.0 * np.eye(count)]):
        pivot = values[:, [np.argmin(weights / width @ values)]]
        kept = ~((values >= pivot).all(axis=0) & (values > pivot).any(axis=0))
        places, values = places[kept], values[:, kept]
        if 2 * len(places) > len(kept):
            break
    return places


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
    if tolerance == 0.0:
        _, first, group = np.unique(values, axis=1, return_index=True, return_inverse=True)
        return first[group.reshape(-1)]
    most, sums = values + tolerance * np.abs(values), scaled(values, corner_of(values)).sum(axis=0)
    stands_in, left = np.empty(values.shape[1], np.int64), np.argsort(sums, kind="stable")
    while len(left):
        is_near = np.all(values[:, left[:1]] <= most[:, left], axis=0)
        stands_in[left[is_near]] = left[0]
        left = left[~is_near]
    return stands_in


def hypervolume(objectives: Any, reference: Any) -> float:
    """Return the volume that points dominate, bounded by a reference point; computed by moocore.

    Parameters
    ----------
    objectives : array of float, shape (objectives, points)
        Less is better; points that are not below the reference in every objective count nothing.
    reference : array of float, shape (objectives,)
    """
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


def hypervolume_shares(parts: Iterable[Any], whole: Any) -> list[float]:
    """Return the hypervolumes of some sets of points over that of all.

    Objectives are scaled to the range of the front of all. The reference point is a tenth of it beyond the
    front's worst in each.

    Parameters
    ----------
    parts : iterable of array of float, shape (objectives, points)
        Less is better.
    whole : array of float, shape (objectives, points)
        All points, of which there is at least one.
    """
    corner, reference = corner_of(whole[:, front(whole)]), np.full(len(whole), 1.1)
    total = hypervolume(scaled(whole, corner), reference)
    return [hypervolume(scaled(part, corner), reference) / total for part in parts]
