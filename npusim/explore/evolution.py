"""NSGA-II over positions of axes: a generation is one call of each of pymoo's operators.

pymoo's own algorithm keeps an object for each individual, which takes longer than evaluating it. Points are
not asked for twice.

Source: Deb, Pratap, Agarwal, Meyarivan: A fast and elitist multiobjective genetic algorithm: NSGA-II, IEEE
Transactions on Evolutionary Computation 6(2), 2002.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pymoo.operators.crossover.sbx import cross_sbx
from pymoo.operators.mutation.pm import mut_pm
from pymoo.operators.survival.rank_and_crowding.metrics import calc_crowding_distance
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

_CROSSED, _MUTATED, _AXES_CROSSED = 0.9, 0.9, 0.5
"""Shares of pairs that are crossed, of children that mutate, and of the axes of a pair that are crossed."""
_SPREAD = 5.0
"""Index of the distributions of crossing and mutation: children lie this near to their parents."""
_TRIES = 20
"""Times that parents are drawn for children that are new, before points are drawn at random."""
_MOST_DRAWN = 8
"""Children that are drawn at a time, in populations: the more of them are known, the more are drawn."""


class Evolution:
    """A population that is asked for points, and told what they are worth.

    Parameters
    ----------
    sizes : sequence of int
        Values of each axis.
    population : int
        Points of a generation.
    seed : int
        The same seed asks for the same points.
    """

    def __init__(self, sizes: Sequence[int], population: int, seed: int) -> None:
        self._sizes, self._population = np.asarray(sizes, np.int64), population
        self._random = np.random.default_rng([seed, 0])
        self._asked, self._new_share = np.empty(0, np.int64), 1.0
        self._points = np.empty((0, len(sizes)), np.int64)
        self._values, self._good = np.empty((0, 0)), np.empty(0, bool)
        self._rank, self._crowding = np.empty(0, np.int64), np.empty(0)

    def ask(self) -> Any:
        """Return points that were not asked for before, shape (points, axes); none where none is left."""
        found: list[Any] = []
        wanted = self._population
        for _ in range(_TRIES if len(self._points) else 0):
            count = int(min(np.ceil(wanted / self._new_share), _MOST_DRAWN * self._population))
            found.append(self._new(self._children(count), wanted))
            wanted -= len(found[-1])
            if wanted == 0:
                return np.concatenate(found)
        found.append(self._new(self._anywhere(wanted), wanted))
        return np.concatenate(found)

    def tell(self, points: Any, values: Any, good: Any) -> None:
        """Choose the next parents from the population and some points.

        Parameters
        ----------
        values : array of float, shape (points, objectives)
            Finite; less is better.
        good : array of bool, shape (points,)
            Whether a point may be taken at all.
        """
        if not len(self._points):
            self._values = np.empty((0, values.shape[1]))
        points = np.concatenate([self._points, points])
        values, good = np.concatenate([self._values, values]), np.concatenate([self._good, good])
        rank, crowding = np.full(len(points), np.iinfo(np.int64).max), np.zeros(len(points))
        places = np.flatnonzero(good)
        fronts = NonDominatedSorting().do(values[places], n_stop_if_ranked=self._population)
        for level, members in enumerate(fronts):
            front = places[members]
            rank[front] = level
            crowding[front] = calc_crowding_distance(values[front]) if len(front) > 2 else np.inf
        best = np.lexsort([self._random.random(len(points)), -crowding, rank])[: self._population]
        self._points, self._values, self._good = points[best], values[best], good[best]
        self._rank, self._crowding = rank[best], crowding[best]

    def _children(self, wanted: int) -> Any:
        """Return children of parents that won tournaments of two, each by its front, then by its distance."""
        random, count = self._random, len(self._points)
        drawn = random.integers(0, count, (2, 2 * -(-wanted // 2)))
        order = np.empty(count, np.int64)
        order[np.lexsort([random.random(count), -self._crowding, self._rank])] = np.arange(count)
        parents = np.where(order[drawn[0]] < order[drawn[1]], drawn[0], drawn[1])
        pairs = self._points[parents].astype(float).reshape(2, -1, len(self._sizes))
        low, high = np.zeros(len(self._sizes)), self._sizes - 1.0
        column = (pairs.shape[1], 1)
        crossed = cross_sbx(
            pairs, low, high, np.full(column, _SPREAD), _AXES_CROSSED, np.full(column, 0.5),
            random_state=random,
        )  # fmt: skip
        children = np.where(random.random(column) < _CROSSED, np.rint(crossed), pairs)
        children = children.reshape(-1, len(self._sizes))
        shares = np.full(len(children), min(0.5, 1.0 / len(self._sizes)))
        mutated = mut_pm(
            children, low, high, np.full(len(children), _SPREAD), shares, False, random_state=random
        )
        mutates = random.random((len(children), 1)) < _MUTATED
        return np.where(mutates, np.rint(mutated), children).astype(np.int64)

    def _new(self, points: Any, most: int) -> Any:
        """Return at most so many of some points, those that were not asked for; note them."""
        numbers = np.ravel_multi_index(tuple(points.T), self._sizes)
        first = np.sort(np.unique(numbers, return_index=True)[1])
        places = np.searchsorted(self._asked, numbers[first])
        known = np.append(self._asked, -1)[places] == numbers[first]
        self._new_share = max(np.count_nonzero(~known) / max(len(points), 1), 1.0 / _MOST_DRAWN)
        kept = first[~known][:most]
        self._asked = np.sort(np.concatenate([self._asked, numbers[kept]]), kind="stable")
        return points[kept]

    def _anywhere(self, count: int) -> Any:
        """Return points drawn at random; where few are left, of those."""
        total = int(np.prod(self._sizes))
        if total - len(self._asked) > 4 * len(self._asked) + count:
            return self._random.integers(0, self._sizes, (8 * count, len(self._sizes)))
        left = np.setdiff1d(np.arange(total), self._asked)
        drawn = self._random.permutation(left)[:count]
        return np.stack(np.unravel_index(drawn, self._sizes), axis=1)
