"""The hypervolume of a front: the volume between it and a worst corner.

Exact for two and three objectives (slices along the last one); the measure by which fronts found in
different ways are compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.errors import NpusimError
from npusim.explore.pareto import front

__all__ = ["corner_of", "corner_of_unit", "hypervolume", "scaled"]


def hypervolume(objectives: Any, reference: Any) -> float:
    """Return the volume that points dominate below a reference point.

    Parameters
    ----------
    objectives : array of float, shape (objectives, points)
        Less is better; points that are not below the reference in every objective count nothing.
    reference : array of float, shape (objectives,)

    Raises
    ------
    NpusimError
        For more than three objectives.
    """
    if len(objectives) > 3:
        raise NpusimError("the hypervolume is computed for up to three objectives")
    values = np.asarray(objectives, float)
    values = values[:, np.all(values < np.asarray(reference)[:, np.newaxis], axis=0)]
    if not values.shape[1]:
        return 0.0
    values = values[:, front(values)]
    while len(values) < 3:  # a further objective in which all are alike adds a factor of one
        values, reference = np.vstack([values, np.zeros(values.shape[1])]), [*reference, 1.0]
    values = values[:, np.argsort(values[2], kind="stable")]
    heights = np.append(values[2, 1:], reference[2]) - values[2]
    volume, skyline = 0.0, np.empty((2, 0))
    for i, height in enumerate(heights):
        skyline = np.hstack([skyline, values[:2, i : i + 1]])
        skyline = skyline[:, front(skyline)]
        if height > 0.0:
            volume += height * _area(skyline, reference)
    return float(volume)


def _area(points: Any, reference: Any) -> float:
    """Return the area that a front of two objectives dominates."""
    order = np.argsort(points[0], kind="stable")
    x, y = points[0][order], points[1][order]
    return float(np.sum((np.append(x[1:], reference[0]) - x) * (reference[1] - y)))


def corner_of(found: Any) -> tuple[Any, Any]:
    """Return (the best of each objective, the range of each) on a front of shape (objectives, points)."""
    low, high = found.min(axis=1), found.max(axis=1)
    return low, np.where(high > low, high - low, 1.0)


def scaled(objectives: Any, corner: tuple[Any, Any]) -> Any:
    """Return objectives so that a front's best is 0 and its worst 1 in each."""
    low, width = corner
    return (objectives - low[:, np.newaxis]) / width[:, np.newaxis]


def corner_of_unit(count: int) -> Any:
    """Return the reference point of scaled objectives: a tenth beyond the front's worst in each."""
    return np.full(count, 1.1)
