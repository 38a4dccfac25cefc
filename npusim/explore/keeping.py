"""Which points of a stretch are worth writing down: all, the front, or the best few.

Like a jury that sits in many rooms: each room passes on its best, and the final looks at those alone. The
best of all rooms are among the best of each, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npusim.explore.metrics import admitted, objectives
from npusim.explore.pareto import front
from npusim.explore.spaces import Space, parse_keep

__all__ = ["best_of", "keep"]


def keep(space: Space, scores: Mapping[str, Any]) -> tuple[Any, int]:
    """Return the points of a stretch that are kept, and how many keep to the constraints.

    Parameters
    ----------
    space : Space
    scores : mapping of metric to array, shape (points,)

    Returns
    -------
    kept : array of int64
        Positions in the stretch, ascending.
    count : int
    """
    good = np.flatnonzero(admitted(scores, space.constraints))
    if parse_keep(space.keep)[0] == "all":
        return good, len(good)
    return good[best_of(space, {name: scores[name][good] for name in space.minimise})], len(good)


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
