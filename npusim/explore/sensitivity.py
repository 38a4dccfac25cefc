"""Sobol indices: the share of a metric's variation that each axis explains, alone and with the others.

An axis with a large first-order index matters whatever the others do; one with a large total index alone
matters together with others. Indices of the logarithm of the metric (Saltelli's scheme,
scipy.stats.sobol_indices), each value of an axis equally likely.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.documents import Part
from npusim.explore.campaign import campaign_of
from npusim.explore.points import positions_in_unit_cube
from npusim.explore.spaces import Space
from npusim.metrics import METRICS

_SAMPLES = 1024


class Influence(Part):
    """How much an axis matters for a metric."""

    axis: str
    """Path of the axis."""
    first_order: float
    """Share of the variance that the axis explains alone."""
    total: float
    """Share that vanishes when the axis is fixed: with all its interactions."""


def influences(space: Space, samples: int = _SAMPLES, seed: int = 0) -> dict[str, list[Influence]]:
    """Return, for each metric that the space minimises, the influence of each axis, the strongest first.

    Parameters
    ----------
    samples : int
        A power of two; `samples` times (axes + 2) points are evaluated.

    Notes
    -----
    Where the network does not fit, a point counts as ten times the worst that fits: it must be avoided, not
    be left out, or the sample were no longer even. Constraints are not looked at.
    """
    from scipy.stats import sobol_indices, uniform  # slow to import

    campaign = campaign_of(space)

    def evaluated(cube: Any) -> Any:
        points = np.asarray(cube, float)
        flat = points.reshape(points.shape[0], -1).T
        scores = campaign.scores_at(positions_in_unit_cube(campaign.axes, flat))
        rows = []
        for name in space.minimise:
            values = np.asarray(scores[name], float)
            fits = np.isfinite(scores["latency_s"]) & (values > 0.0)
            worst = values[fits].max(initial=1.0)
            rows.append(np.log(np.where(fits, values, 10.0 * worst)))
        return np.stack(rows).reshape(len(space.minimise), *points.shape[1:])

    axes = campaign.axes
    if len(axes) < 1 or not set(space.minimise) <= set(METRICS):
        return {}
    found = sobol_indices(
        func=evaluated, n=samples, dists=[uniform(0.0, 1.0)] * len(axes), rng=np.random.default_rng(seed)
    )
    shape = (len(space.minimise), len(axes))  # scipy leaves out dimensions of length one
    first = np.nan_to_num(found.first_order).reshape(shape)
    total = np.nan_to_num(found.total_order).reshape(shape)
    return {
        name: sorted(
            (
                Influence(axis=axis.path, first_order=float(first[k, i]), total=float(total[k, i]))
                for i, axis in enumerate(axes)
            ),
            key=lambda one: -one.total,
        )
        for k, name in enumerate(space.minimise)
    }
