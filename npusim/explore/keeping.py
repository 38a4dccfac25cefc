"""Which points of a stretch are worth writing down: all, the front, or the best few.

Like a jury that sits in many rooms: each room passes on its best, and the final looks at those alone. The
best of all rooms are among the best of each, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npusim.explore.gathering import gather
from npusim.explore.metrics import objectives
from npusim.explore.pareto import finite_front, front
from npusim.explore.spaces import Space, parse_keep

__all__ = ["best_of", "keep"]


def keep(space: Space, totals: Any) -> tuple[Any, int]:
    """Return the points of a stretch that are kept, and how many keep to the constraints.

    Parameters
    ----------
    space : Space
    totals : array of TOTAL_DTYPE, shape (points,)

    Returns
    -------
    kept : array of int64
        Positions in the stretch, ascending.
    count : int
    """
    values, good = gather(totals, space.minimise, space.constraints)
    count = int(np.count_nonzero(good))
    way, best = parse_keep(space.keep)
    if way == "all" or count == 0:
        return np.flatnonzero(good), count
    if way == "pareto":
        return finite_front(values), count
    places = np.flatnonzero(good)
    # Of equally good points those with smaller numbers, which stand first.
    return np.sort(places[np.argsort(values[0, places], kind="stable")[:best]]), count


def best_of(space: Space, scores: Mapping[str, Any]) -> Any:
    """Return the positions, ascending, of the points that `space.keep` asks for among some."""
    way, count = parse_keep(space.keep)
    values = objectives(scores, space.minimise)
    if way == "pareto":
        return front(values)
    if way == "top":
        # Of equally good points those with smaller numbers, which stand first.
        return np.sort(np.argsort(values[0], kind="stable")[:count])
    return np.arange(values.shape[1])
