"""NSGA-II: ranks of a population, and placements by evolution or at random.

Placements are searched where graphs are no chains, and to check exact fronts. MaGNAS's inner search (section
4.3.2) has a gene for each block, the unit that runs it. Source of the defaults: section 4.3.2 (mutation 0.4,
crossover 0.8) and 5.1.3 (population 200).

Source: Deb, Pratap, Agarwal, Meyarivan: A fast and elitist multiobjective genetic algorithm: NSGA-II, IEEE
Transactions on Evolutionary Computation 6(2), 2002.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from npusim.mapping import planar_front
from npusim.studies.pareto import front

UNRANKED = np.iinfo(np.int64).max
"""Rank of a member that owns no point, or is worse than all those that are wanted."""
SearchMethod = Literal["nsga2", "random"]


def ranked(values: Any, owners: Any, members: int, wanted: int) -> tuple[Any, Any]:
    """Return the rank and the crowding distance of each member of a population, by its best points.

    A member leaves with the first front that holds a point of its own. The less rank and the more distance,
    the better.

    Parameters
    ----------
    values : array of float, shape (points, objectives)
        Finite; less is better.
    owners : array of int64, shape (points,)
        Member that each point belongs to.
    members, wanted : int
        Size of the population; members to rank at least.
    """
    from pymoo.operators.survival.rank_and_crowding.metrics import calc_crowding_distance

    rank, crowding, left, level = np.full(members, UNRANKED), np.zeros(members), np.arange(len(owners)), 0
    while len(left) and np.count_nonzero(rank < UNRANKED) < wanted:
        best = left[front(values[left].T)]
        rank[owners[best]] = level
        np.maximum.at(crowding, owners[best], calc_crowding_distance(values[best]))
        left, level = left[rank[owners[left]] == UNRANKED], level + 1
    return rank, crowding


class Genes(NamedTuple):
    """Search space of placements: allowed units of each block, and the cost function."""

    allowed: Any
    """Which unit may run each block, bool array of shape (blocks, units)."""
    evaluate: Callable[[Any], Any]
    """From placements, int64 of shape (placements, blocks), to latency (s) and energy (J), shape
    (placements, 2); infinite where limits are broken."""


class Budget(NamedTuple):
    """How long to search, and with which parameters."""

    evaluations: int = 5000
    population: int = 200
    mutation: float = 0.4
    """Share of children with one block or more on another unit."""
    crossover: float = 0.8
    """Share of pairs that exchange units of blocks."""
    seed: int = 0


class Evolved(NamedTuple):
    """Non-dominated placements, by rising latency."""

    values: Any
    """Latency (s) and energy (J), shape (placements, 2)."""
    placements: Any
    """Shape (placements, blocks)."""


def searched(genes: Genes, method: SearchMethod, budget: Budget, first: Any = None) -> Evolved:
    """Return the best placements of a search.

    Parameters
    ----------
    first : array of int64, shape (placements, blocks), optional
        Placements that it starts with.
    """
    random = np.random.default_rng(budget.seed)
    kept = np.empty((0, len(genes.allowed)), np.int64) if first is None else first
    values = genes.evaluate(kept) if len(kept) else np.empty((0, 2))
    every, of_all, evaluated = [kept], [values], len(kept)
    while evaluated < budget.evaluations:
        count = min(budget.population, budget.evaluations - evaluated)
        if method == "random" or len(kept) < 2:
            points = _drawn(genes.allowed, count, random)
        else:
            points = _children(genes.allowed, kept, count, budget, random)
        evaluated += count
        every.append(points)
        of_all.append(genes.evaluate(points))
        kept, values = np.concatenate([kept, points]), np.concatenate([values, of_all[-1]])
        kept, values = _survivors(kept, values, budget.population)
    values = np.concatenate(of_all)
    best = planar_front(values)
    return Evolved(values[best], np.concatenate(every)[best])


def _drawn(allowed: Any, count: int, random: np.random.Generator) -> Any:
    """Return random placements; all allowed units of a block are equally likely."""
    chance = allowed / allowed.sum(1, keepdims=True)
    return (random.random((count, len(allowed), 1)) > chance.cumsum(1)[None, :, :-1]).sum(2)


def _children(allowed: Any, kept: Any, count: int, budget: Budget, random: np.random.Generator) -> Any:
    """Return children of parents chosen by binary tournaments; survivors are sorted best first."""
    drawn = random.integers(0, len(kept), (2, 2 * count))
    parents = kept[drawn.min(0)].reshape(2, count, -1)
    blocks = kept.shape[1]
    crosses = (random.random((count, 1)) < budget.crossover) & (random.random((count, blocks)) < 0.5)
    children = np.where(crosses, parents[1], parents[0])
    mutates = random.random((count, 1)) < budget.mutation
    flips = mutates & (random.random((count, blocks)) < 1.0 / blocks)
    flips[np.arange(count), random.integers(0, blocks, count)] |= mutates[:, 0]
    return np.where(flips, _drawn(allowed, count, random), children)


def _survivors(points: Any, values: Any, population: int) -> tuple[Any, Any]:
    """Return the best distinct placements: by front, within a front by crowding distance."""
    points, first = np.unique(points, axis=0, return_index=True)
    values = values[first]
    good = np.isfinite(values).all(1)
    points, values = points[good], values[good]
    if not len(points):
        return points, values
    rank, crowding = ranked(values, np.arange(len(points)), len(points), population)
    order = np.lexsort([-crowding, rank])[:population]
    return points[order], values[order]
