"""Sobol indices: the share of a metric's variation that each axis explains, alone and with the others.

An axis with a large first-order index matters whatever the others do; one with a large total index alone
matters together with others. Indices of the logarithm of the metric, each value of an axis equally likely:
exact ones where a space has few points, else from a sample (Saltelli's scheme, scipy.stats.sobol_indices).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npusim.documents import Part
from npusim.explore.campaign import Campaign, campaign_of
from npusim.explore.points import positions_in_unit_cube
from npusim.explore.spaces import Space
from npusim.metrics import METRICS

_SAMPLES = 256
_CONSTANT = 1e-20
"""Variance of a logarithm that is rounding alone."""


class Influence(Part):
    """How much an axis matters for a metric."""

    axis: str
    """Path of the axis."""
    first_order: float
    """Share of the variance that the axis explains alone."""
    total: float
    """Share that vanishes when the axis is fixed: with all its interactions."""


def influences(space: Space, samples: int = _SAMPLES, seed: int = 0) -> dict[str, list[Influence]]:
    """Return for each minimised metric of a space the influence of its axes, strongest first.

    Parameters
    ----------
    samples : int
        A power of two; `samples` times (axes + 2) points are evaluated, or all where there are no more.

    Notes
    -----
    A point where the network does not fit counts as ten times the worst value that fits: leaving it out would
    make the sample uneven. Constraints are ignored.
    """
    campaign = campaign_of(space)
    axes, sizes = campaign.axes, [axis.size for axis in campaign.axes]
    if len(axes) < 1 or not set(space.objectives) <= set(METRICS):
        return {}
    if any(axis.is_continuous for axis in axes) or prod(sizes) > samples * (len(axes) + 2):
        first, total = _sampled(campaign, samples, seed)
    else:
        whole = np.stack(np.unravel_index(np.arange(prod(sizes)), sizes), axis=1).astype(float)
        first, total = exact_indices(_logarithms(campaign, whole).reshape(-1, *sizes))
    return {
        name: sorted(
            (
                Influence(axis=axis.path, first_order=float(first[k, i]), total=float(total[k, i]))
                for i, axis in enumerate(axes)
            ),
            key=lambda influence: -influence.total,
        )
        for k, name in enumerate(space.objectives)
    }


def _logarithms(campaign: Campaign, points: Any) -> Any:
    """Return the logarithms of the metrics that are minimised, shape (metrics, points)."""
    scores, rows = campaign.scores_at(points), []
    for name in campaign.space.objectives:
        values = np.asarray(scores[name], float)
        fits = np.isfinite(scores["latency_s"]) & (values > 0.0)
        worst = values[fits].max(initial=1.0)
        rows.append(np.log(np.where(fits, values, 10.0 * worst)))
    return np.stack(rows)


def exact_indices(values: Any) -> tuple[Any, Any]:
    """Return first-order and total indices of metrics that are known at every point of a space.

    Parameters
    ----------
    values : array of float, shape (metrics, size of the first axis, of the second, ...)

    Returns
    -------
    first, total : array of float, shape (metrics, axes)
        0 where a metric is the same everywhere.
    """
    axes = range(1, values.ndim)
    whole = values.var(axis=tuple(axes))
    scale = np.where(whole > _CONSTANT, whole, np.inf)
    first = [values.mean(axis=tuple(a for a in axes if a != i)).var(axis=1) for i in axes]
    total = [values.var(axis=i).mean(axis=tuple(range(1, values.ndim - 1))) for i in axes]
    return np.stack(first, axis=1) / scale[:, np.newaxis], np.stack(total, axis=1) / scale[:, np.newaxis]


def _sampled(campaign: Campaign, samples: int, seed: int) -> tuple[Any, Any]:
    """Return estimates of first-order and total indices, shape (metrics, axes)."""
    from scipy.stats import sobol_indices, uniform  # slow to import

    axes, metrics = campaign.axes, len(campaign.space.objectives)

    def evaluated(cube: Any) -> Any:
        points = np.asarray(cube, float)
        flat = points.reshape(points.shape[0], -1).T
        logarithms = _logarithms(campaign, positions_in_unit_cube(axes, flat))
        return logarithms.reshape(metrics, *points.shape[1:])

    indices = sobol_indices(
        func=evaluated, n=samples, dists=[uniform(0.0, 1.0)] * len(axes), rng=np.random.default_rng(seed)
    )
    shape = (metrics, len(axes))  # scipy leaves out dimensions of length one
    return np.nan_to_num(indices.first_order).reshape(shape), np.nan_to_num(indices.total_order).reshape(
        shape
    )
