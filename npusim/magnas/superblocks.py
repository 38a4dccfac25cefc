"""NSGA-II over superblocks: an individual is an architecture with every mapping that is worth having.

An architecture's objectives are not one point but its whole exact front of mappings. Its rank is the best
rank of its points, its crowding distance the largest of theirs; the points of architectures that are ranked
already are left out of the next front. Of each population the best few are parents; children take superblocks
of two of them, and some superblocks are drawn anew (MaGNAS, section 4.2.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pymoo.operators.survival.rank_and_crowding.metrics import calc_crowding_distance

from npusim.explore.pareto import front

_TRIES = 50
"""Times that children are made for ones that are new, before they are drawn at random."""


@dataclass(frozen=True)
class Rates:
    """How children are made; MaGNAS's, section 4.2.2 (section 5.1.3 says 0.8 and 0.4)."""

    mutation: float = 0.4
    """Probability that a superblock is drawn anew."""
    crossover: float = 0.5
    """Probability that a superblock is taken from the other parent."""
    elite: float = 0.3
    """Share of the population that may be parents."""


class SuperblockEvolution:
    """A population of architectures that is asked for new ones, and told their objectives.

    Parameters
    ----------
    sizes : sequence of int
        Values of each gene.
    genes : int
        Genes of a superblock.
    population : int
        Architectures of a generation.
    seed : sequence of int
        The same seed asks for the same architectures.
    first : array of int64, shape (architectures, genes), optional
        Genes that the first generation begins with, as `anywhere` draws them.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        genes: int,
        population: int,
        rates: Rates,
        seed: Sequence[int],
        first: Any = None,
    ) -> None:
        self._sizes, self._genes = np.asarray(sizes, np.int64), genes
        self._population, self._rates = population, rates
        self._random = np.random.default_rng(list(seed))
        self._known: set[str] = set()
        self._first = first
        self._members: list[tuple[Any, Any]] = []
        """Genes and objectives of the population, the best first."""

    def ask(self, text_of: Any) -> list[Any]:
        """Return genes of architectures that were not asked for before, fewer where none are left.

        Parameters
        ----------
        text_of : callable
            Returns the text of genes; genes of one text are one architecture.
        """
        found: list[Any] = []
        for turn in range(2 * _TRIES):
            if self._first is not None:
                drawn, self._first = self._first, None
            elif turn < _TRIES and len(self._members) > 1:
                drawn = self._children()
            else:
                drawn = self._anywhere()
            for one in drawn:
                text = text_of(one)
                if text not in self._known:
                    self._known.add(text)
                    found.append(one)
                    if len(found) == self._population:
                        return found
        return found

    def tell(self, genes: Sequence[Any], objectives: Sequence[Any]) -> None:
        """Choose the next population from this one and some architectures.

        Parameters
        ----------
        objectives : sequence of array of float, shape (points, objectives)
            Of each architecture, less is better; no points where it may not be taken.
        """
        everyone = [*self._members, *zip(genes, objectives, strict=True)]
        order = ranked([points for _, points in everyone], self._population)
        self._members = [everyone[i] for i in order]

    def _children(self) -> Any:
        """Return children of the elite, shape (population, genes)."""
        random, rates, count = self._random, self._rates, self._population
        parents = max(2, round(rates.elite * len(self._members)))
        elite = np.stack([genes for genes, _ in self._members[:parents]])
        first, second = elite[random.integers(0, len(elite), (2, count))]
        blocks = len(self._sizes) // self._genes
        swapped = np.repeat(random.random((count, blocks)) < rates.crossover, self._genes, axis=1)
        mutated = np.repeat(random.random((count, blocks)) < rates.mutation, self._genes, axis=1)
        return np.where(mutated, self._anywhere(), np.where(swapped, second, first))

    def _anywhere(self) -> Any:
        return anywhere(self._sizes, self._population, self._random)


def anywhere(sizes: Any, count: int, random: np.random.Generator) -> Any:
    """Draw genes, all values of each of these sizes alike; array of int64, shape (count, genes)."""
    return random.integers(0, np.asarray(sizes, np.int64), (count, len(sizes)))


def ranked(objectives: Sequence[Any], count: int) -> list[int]:
    """Return the best so many architectures by the rank of their best point, then by crowding distance.

    Parameters
    ----------
    objectives : sequence of array of float, shape (points, objectives)
        Of each architecture.
    """
    left = [i for i, points in enumerate(objectives) if len(points)]
    found: list[int] = []
    while left and len(found) < count:
        points = np.concatenate([objectives[i] for i in left])
        owner = np.repeat(left, [len(objectives[i]) for i in left])
        on_front = front(points.T)
        distance = (
            calc_crowding_distance(points[on_front]) if len(on_front) > 2 else np.full(len(on_front), np.inf)
        )
        largest: dict[int, float] = {}
        for one, far in zip(owner[on_front].tolist(), distance.tolist(), strict=True):
            largest[one] = max(largest.get(one, 0.0), far)
        found += sorted(largest, key=lambda one: (-largest[one], one))
        left = [i for i in left if i not in largest]
    return found[:count]
