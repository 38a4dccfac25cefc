"""Design points in groups that share a tiling search.

Points of a full design repeat each other: all groups have the same values of the axes that the search does
not look at. These stand once, as *places*, and a group says only what it sets beside them and which places
its points have. The order of places is free: where neighbours have similar rates, few candidates are left to
be compared (`npusim.cost.shortlist`), and points whose rates are those of the points before take over what
operators come to.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class PointGroups(NamedTuple):
    """Design points in groups, those of a group alike in all that the tiling search looks at but for SRAM."""

    group_columns: Any
    """Places among a point's numbers (`npusim.cost.design_point.ArchRow`) that groups set, int64, shape
    (set,); primitives only."""
    group_values: Any
    """What each group sets them to, float64, shape (groups, set)."""
    first: Any
    """Where the totals of each group begin, int64, shape (groups,)."""
    spans: Any
    """First place of each group and the place behind its last, int64, shape (groups, 2)."""
    columns: Any
    """Numbers that places set, int64, shape (changed,); primitives only."""
    values: Any
    """What they set them to, float64, shape (places, changed)."""
    order: Any
    """Which of its group's points each place is, int64, shape (places,)."""
    cuts: Any
    """Places at which a batch of points ends, ascending, int64."""
    search_of: Any
    """Groups of the same number set all that the search looks at to the same, int64, shape (groups,)."""


def points_in_groups(columns: Any, values: Any, groups: Any) -> PointGroups:
    """Return points, shape (points, changed), of which `groups[g]` to `groups[g + 1]` share a search."""
    spans = np.stack([groups[:-1], groups[1:]], axis=1)
    return PointGroups(
        np.empty(0, np.int64), np.empty((len(spans), 0)), np.zeros(len(spans), np.int64), spans, columns,
        values, np.arange(len(values)), np.empty(0, np.int64), np.arange(len(spans)),
    )  # fmt: skip
