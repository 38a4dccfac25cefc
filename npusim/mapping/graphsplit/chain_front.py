"""All Pareto-optimal placements of a chain of blocks, by dynamic programming with dominance.

A *partial placement* puts the first blocks on units. It has a vector of amounts that add up along the chain:
latency, energy, and one for each limit (joules beyond a mean power, blocks on a unit, transitions). Future
amounts depend only on the unit that ran last. So of two partial placements that end on the same unit, one
that is no better in any amount is dominated and pruned, without loss: the set is exact. A partial placement
is also pruned where a lower bound of some amount breaks its limit. An amount that can no longer break its
limit is not compared.

Amounts that differ by rounding alone, such as those of equal blocks in another order, count as equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from npusim.cost import compiled
from npusim.errors import InfeasibleError

# Relative difference, to the largest amount of a chain, below which two amounts are equal.
_ROUNDING = 1e-12
# Relative precision of the least mean power that a message names.
_POWER_STEP = 1e-6
LATENCY, ENERGY = 0, 1


@dataclass(frozen=True)
class Limit:
    """An upper limit on an amount that adds up along the chain."""

    name: str
    """Name of the amount in messages."""
    most: float
    blocks: Any
    """Amount of each block on each unit, shape (blocks, units)."""
    transition: float = 0.0
    """Amount of a transition between units."""
    per_second: float = 0.0
    """Amount of each second of the placement's latency."""
    per_joule: float = 0.0
    """Amount of each joule of its energy."""


@dataclass(frozen=True)
class ChainProblem:
    """A chain of blocks to place on units (MaGNAS, Eq. 6 and 7)."""

    blocks: tuple[str, ...]
    units: tuple[str, ...]
    time_s: Any
    """Time of each block on each unit, shape (blocks, units); infinite where it cannot run."""
    energy_j: Any
    """Energy, shape (blocks, units)."""
    crossing_s: Any
    """Time for each block's result to pass from unit to unit, shape (blocks - 1, units, units)."""
    crossing_j: Any
    """Energy, shape (blocks - 1, units, units)."""

    @property
    def allowed(self) -> Any:
        """Whether a unit can run a block, bool array of shape (blocks, units)."""
        return np.isfinite(self.time_s)

    def evaluate(self, placements: Any) -> Any:
        """Return latency (s) and energy (J) of placements.

        Parameters
        ----------
        placements : array of int64, shape (placements, blocks)
            Unit of each block.

        Returns
        -------
        array of float64, shape (placements, 2)
        """
        units = np.asarray(placements, np.int64)
        amounts = []
        for work, crossing in ((self.time_s, self.crossing_s), (self.energy_j, self.crossing_j)):
            total = work[0, units[:, 0]]
            for i, (before, after) in enumerate(pairwise(units.T)):
                total = total + work[i + 1, after]
                total += np.where(before != after, crossing[i, before, after], 0.0)
            amounts.append(total)
        return np.stack(amounts, axis=1)


@dataclass(frozen=True)
class Front:
    """Pareto-optimal placements by rising latency."""

    latency_s: Any
    energy_j: Any
    placements: Any
    """Unit of each block, shape (placements, blocks)."""


def transitions_limit(problem: ChainProblem, most: int) -> Limit:
    """Return the limit on the number of times that work passes to another unit."""
    return Limit("transitions", float(most), np.zeros(problem.time_s.shape), transition=1.0)


def share_limit(problem: ChainProblem, unit: str, most: float) -> Limit:
    """Return the limit on the share of blocks that a unit runs."""
    blocks = np.zeros(problem.time_s.shape)
    blocks[:, problem.units.index(unit)] = 1.0 / len(problem.blocks)
    return Limit(f"share of {unit}", most, blocks)


def latency_limit(problem: ChainProblem, most_s: float) -> Limit:
    """Return the limit on latency (s)."""
    return Limit("latency_s", most_s, np.zeros(problem.time_s.shape), per_second=1.0)


def energy_limit(problem: ChainProblem, most_j: float) -> Limit:
    """Return the limit on energy (J)."""
    return Limit("energy_j", most_j, np.zeros(problem.time_s.shape), per_joule=1.0)


def power_limit(problem: ChainProblem, most_w: float) -> Limit:
    """Return the limit on mean power (W); the limited amount is the energy beyond it."""
    return Limit("mean_power_w", 0.0, np.zeros(problem.time_s.shape), per_second=-most_w, per_joule=1.0)


def chain_front(problem: ChainProblem, limits: Sequence[Limit] = ()) -> Front:
    """Return every Pareto-optimal placement of a chain within limits; of equal ones only one.

    Raises
    ------
    InfeasibleError
        Where no placement keeps the limits; it names the nearest feasible ones.
    """
    front = _front(*_amounts(problem, limits))
    if front is None:
        raise InfeasibleError(_nearest(problem, limits))
    values, placements = front
    return Front(values[:, LATENCY], values[:, ENERGY], placements)


def _amounts(problem: ChainProblem, limits: Sequence[Limit]) -> tuple[Any, Any, Any]:
    """Return the amounts of blocks on units, the amounts of transitions, and the limit of each amount."""
    nodes, edges = [problem.time_s, problem.energy_j], [problem.crossing_s, problem.crossing_j]
    time_s, energy_j = (np.where(np.isfinite(table), table, 0.0) for table in nodes)
    apart = 1.0 - np.eye(len(problem.units))
    for limit in limits:
        nodes.append(limit.blocks + limit.per_second * time_s + limit.per_joule * energy_j)
        crossing = limit.per_second * problem.crossing_s + limit.per_joule * problem.crossing_j
        edges.append(crossing + limit.transition * apart)
    most = np.array([np.inf, np.inf, *(limit.most for limit in limits)])
    return np.stack(nodes, -1), np.stack(edges, -1) * apart[None, :, :, None], most


def _front(nodes: Any, edges: Any, most: Any) -> tuple[Any, Any] | None:
    """Return amounts and placements of the front; None where no placement keeps the limits."""
    count, units, amounts = nodes.shape
    least, largest = _still_to_come(nodes, edges)
    scale = np.abs(np.where(np.isfinite(nodes), nodes, 0.0)).max(1).sum(0) + np.abs(edges).max((1, 2)).sum(0)
    slack = _ROUNDING * np.maximum(scale, np.finfo(float).tiny)
    values, last_unit = np.zeros((1, amounts)), np.zeros(1, np.int64)
    possible, history = np.isfinite(nodes[..., LATENCY]), []
    for i in range(count):
        crossing = edges[i - 1] if i else np.zeros((units, units, amounts))
        longer = values[:, None] + crossing[last_unit] + nodes[i]  # partial placements, units, amounts
        before, unit = np.nonzero(possible[i] & (longer + least[i] <= most + slack).all(axis=-1))
        values = longer[before, unit]
        order = np.lexsort((*values.T[::-1], unit))
        kept = np.empty(len(order), np.int64)
        total = _undominated(values[order], unit[order], largest[i], most, slack, kept)
        order = order[kept[:total]]
        values, last_unit = values[order], unit[order]
        if not total:
            return None
        history.append((last_unit, before[order]))
    values, kept = _pareto(values)
    placements, place = np.empty((len(kept), count), np.int64), kept
    for i, (last_unit, before) in reversed(list(enumerate(history))):
        placements[:, i] = last_unit[place]
        place = before[place]
    return values, placements


def _still_to_come(nodes: Any, edges: Any) -> tuple[Any, Any]:
    """Return for each block the least and largest sum of each amount over the blocks after it."""
    least, largest = np.zeros(nodes.shape), np.zeros(nodes.shape)
    possible = np.isfinite(nodes[..., LATENCY])
    for i in range(len(nodes) - 2, -1, -1):
        through = edges[i] + nodes[i + 1][None]  # from, to, amounts
        ways = possible[i + 1][None, :, None]
        least[i] = np.where(ways, through + least[i + 1][None], np.inf).min(1)
        largest[i] = np.where(ways, through + largest[i + 1][None], -np.inf).max(1)
    return least, largest


@compiled
def _undominated(values: Any, units: Any, largest: Any, most: Any, slack: Any, kept: Any) -> int:
    """List the partial placements that no earlier one on the same unit dominates, up to rounding.

    Amounts that keep their limit in any case, given the largest remaining sum, count as equal.

    Parameters
    ----------
    values : array, shape (placements, amounts)
        Sorted by unit, then by amounts.
    units : array of int64, shape (placements,)
    kept : array of int64, shape (placements,)
        Filled with the placements.

    Returns
    -------
    int
        How many there are.
    """
    count, first, amounts = 0, 0, values.shape[1]
    for new in range(values.shape[0]):
        if new > 0 and units[new] != units[new - 1]:
            first = count
        earliest = max(first, count - 1) if amounts == 2 else first  # earlier ones have more energy
        dominated = False
        for place in range(count - 1, earliest - 1, -1):
            other, dominated = kept[place], True
            for c in range(amounts):
                safe = c > 1 and values[other, c] + largest[units[new], c] <= most[c]
                if not safe and values[other, c] > values[new, c] + slack[c]:
                    dominated = False
                    break
            if dominated:
                break
        if not dominated:
            kept[count] = new
            count += 1
    return count


def _pareto(values: Any) -> tuple[Any, Any]:
    """Return amounts and places of the placements that are not dominated, by latency."""
    order = np.lexsort((values[:, ENERGY], values[:, LATENCY]))
    energy = values[order, ENERGY]
    best = np.concatenate(([np.inf], np.minimum.accumulate(energy)[:-1]))
    kept = order[energy < best * (1.0 - _ROUNDING)]
    return values[kept], kept


def _nearest(problem: ChainProblem, limits: Sequence[Limit]) -> str:
    """Return a message on limits that no placement keeps, with the nearest feasible limits."""
    blocking = []
    for limit in limits:
        others = [other for other in limits if other is not limit]
        most, lowest = limit.most, _lowest(problem, limit)
        if lowest > limit.most + _ROUNDING * abs(limit.most):
            if limit.per_second < 0.0:  # joules beyond a mean power
                most, lowest = -limit.per_second, _least_power_w(problem)
            return f"no placement has {limit.name} of at most {most:.4g}; the least is {lowest:.4g}"
        if _front(*_amounts(problem, others)) is not None:
            blocking.append(limit.name)
    names = " or ".join(blocking) or "several of them"
    return f"no placement keeps all limits; one without that on {names} would"


def _lowest(problem: ChainProblem, limit: Limit) -> float:
    """Return the least value of a limited amount over all placements."""
    nodes, edges, _ = _amounts(problem, [limit])
    least, _ = _still_to_come(nodes, edges)
    possible = np.isfinite(problem.time_s[0])
    return float(np.min((nodes[0, :, 2] + least[0, :, 2])[possible], initial=np.inf))


def _least_power_w(problem: ChainProblem) -> float:
    """Return the least mean power of all placements (W).

    The least energy beyond a power is convex and piecewise linear in that power, so Newton's method ends.
    """
    power_w, moved = 1.0, np.inf
    while moved > _POWER_STEP * power_w:
        here = _lowest(problem, power_limit(problem, power_w))
        step_w = _POWER_STEP * power_w
        slope = (_lowest(problem, power_limit(problem, power_w + step_w)) - here) / step_w
        moved, power_w = abs(here / slope), power_w - here / slope
    return power_w
