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
from typing import Any

import numpy as np

from npusim.cost import compiled, compiled_making_arrays
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
        amounts = np.empty((len(placements), 2))
        units = np.ascontiguousarray(placements, np.int64)
        _evaluate(units, self.time_s, self.energy_j, self.crossing_s, self.crossing_j, amounts)
        return amounts


@compiled
def _evaluate(
    placements: Any, time_s: Any, energy_j: Any, crossing_s: Any, crossing_j: Any, amounts: Any
) -> None:
    """Write latency and energy of each placement."""
    for p in range(placements.shape[0]):
        last = placements[p, 0]
        latency, energy = time_s[0, last], energy_j[0, last]
        for i in range(1, placements.shape[1]):
            unit = placements[p, i]
            latency += time_s[i, unit]
            energy += energy_j[i, unit]
            if unit != last:
                latency += crossing_s[i - 1, last, unit]
                energy += crossing_j[i - 1, last, unit]
            last = unit
        amounts[p, LATENCY], amounts[p, ENERGY] = latency, energy


@dataclass(frozen=True)
class Front:
    """Pareto-optimal placements by rising latency."""

    latency_s: Any
    energy_j: Any
    placements: Any
    """Unit of each block, shape (placements, blocks)."""


def transitions_limit(problem: ChainProblem, most: int) -> Limit:
    """Return the limit on how often work passes to another unit."""
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
    """Return the limit on mean power (W): no joule beyond it."""
    return Limit("mean_power_w", 0.0, np.zeros(problem.time_s.shape), per_second=-most_w, per_joule=1.0)


def chain_front(problem: ChainProblem, limits: Sequence[Limit] = ()) -> Front:
    """Return every Pareto-optimal placement of a chain within limits, one of each set of equal ones.

    Raises
    ------
    InfeasibleError
        Where no placement keeps the limits; it names the nearest feasible ones.
    """
    front = _front(*_amounts(problem, limits))
    if front is None:
        raise _nearest(problem, limits)
    values, placements = front
    return Front(values[:, LATENCY], values[:, ENERGY], placements)


def _amounts(problem: ChainProblem, limits: Sequence[Limit]) -> tuple[Any, Any, Any]:
    """Return amounts of blocks on units and of crossings, and the limit of each."""
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
    """Return amounts and placements of the front; None where it is empty."""
    count, units, amounts = nodes.shape
    least, largest = _still_to_come(nodes, edges)
    scale = np.abs(np.where(np.isfinite(nodes), nodes, 0.0)).max(1).sum(0) + np.abs(edges).max((1, 2)).sum(0)
    slack = _ROUNDING * np.maximum(scale, np.finfo(float).tiny)
    values, last_unit = np.zeros((1, amounts)), np.zeros(1, np.int64)
    history = []
    for i in range(count):
        crossing = edges[i - 1] if i else np.zeros((units, units, amounts))
        values, last_unit, before = _longer(
            values, last_unit, crossing, nodes[i], least[i], largest[i], most, slack
        )
        if not len(values):
            return None
        history.append((last_unit, before))
    kept = planar_front(values, _ROUNDING)
    placements, place = np.empty((len(kept), count), np.int64), kept
    for i, (last_unit, before) in reversed(list(enumerate(history))):
        placements[:, i] = last_unit[place]
        place = before[place]
    return values[kept], placements


def _still_to_come(nodes: Any, edges: Any) -> tuple[Any, Any]:
    """Return the least and the largest amounts that all later blocks add, for each block and its unit."""
    least, largest = np.zeros(nodes.shape), np.zeros(nodes.shape)
    added = edges + nodes[1:, None]  # by the next block: shape (blocks - 1, unit, next unit, amounts)
    can_run = np.isfinite(nodes[1:, None, :, LATENCY, None])
    low, high = np.where(can_run, added, np.inf), np.where(can_run, added, -np.inf)
    for i in reversed(range(len(nodes) - 1)):
        least[i] = (low[i] + least[i + 1]).min(1)
        largest[i] = (high[i] + largest[i + 1]).max(1)
    return least, largest


@compiled_making_arrays
def _longer(
    values: Any, last_unit: Any, crossing: Any, node: Any, least: Any, largest: Any, most: Any, slack: Any
) -> Any:
    """Return amounts and last units of the placements with one more block, and which one each extends."""
    units, amounts = node.shape
    out, count = np.empty((len(values) * units, amounts)), 0
    out_unit, out_before = np.empty(len(out), np.int64), np.empty(len(out), np.int64)
    starts = np.searchsorted(last_unit, np.arange(units + 1))
    for unit in range(units):
        if not np.isfinite(node[unit, LATENCY]):
            continue
        longer = values + crossing[:, unit][last_unit] + node[unit]
        heads, first = starts[:-1].copy(), count  # merge the runs of each last unit, which are sorted
        for _ in range(len(values)):
            before = -1
            for last in range(units):
                is_left = heads[last] < starts[last + 1]
                if is_left and (before < 0 or _precedes(longer[heads[last]], longer[before])):
                    before = heads[last]
            heads[last_unit[before]] += 1
            out[count], out_unit[count], out_before[count] = longer[before], unit, before
            fits = True
            for c in range(amounts):
                fits = fits and out[count, c] + least[unit, c] <= most[c] + slack[c]
            if fits and not _is_dominated(out, first, count, largest[unit], most, slack):
                count += 1
    return out[:count].copy(), out_unit[:count].copy(), out_before[:count].copy()


@compiled
def _precedes(a: Any, b: Any) -> bool:
    """Return whether one vector of amounts precedes another, latency first."""
    for c in range(a.shape[0]):
        if a[c] != b[c]:
            return bool(a[c] < b[c])
    return False


@compiled
def _is_dominated(out: Any, first: int, last: int, largest: Any, most: Any, slack: Any) -> bool:
    """Return whether a placement from `first` on dominates `last`, up to rounding.

    Amounts that stay within their limit in any case, given the largest still to come, are equal.
    """
    new, amounts = out[last], out.shape[1]
    for other in range(last - 1, first - 1, -1):
        dominated = True
        for c in range(amounts):
            safe = c > 1 and out[other, c] + largest[c] <= most[c]
            if not safe and out[other, c] > new[c] + slack[c]:
                dominated = False
                break
        if dominated or amounts == 2:  # earlier ones have more energy
            return dominated
    return False


def planar_front(values: Any, rounding: float = 0.0) -> Any:
    """Return the rows of (latency, energy, ...) that no other dominates, one of equal ones, by latency.

    Parameters
    ----------
    rounding : float
        Relative difference below which two energies are equal.
    """
    order = np.lexsort((values[:, ENERGY], values[:, LATENCY]))
    energy = values[order, ENERGY]
    best = np.concatenate(([np.inf], np.minimum.accumulate(energy)[:-1]))
    return order[energy < best * (1.0 - rounding)]


def _nearest(problem: ChainProblem, limits: Sequence[Limit]) -> InfeasibleError:
    """Return the error about limits that cannot be met, alone or together, and the nearest feasible ones."""
    blocking = []
    for limit in limits:
        others = [other for other in limits if other is not limit]
        most, lowest = limit.most, _lowest(problem, limit)
        if lowest > limit.most + _ROUNDING * abs(limit.most):
            if limit.per_second < 0.0:  # joules beyond a mean power
                most, lowest = -limit.per_second, _least_power_w(problem)
            unmet = f"no placement has {limit.name} of at most {most:.4g}"
            return InfeasibleError(unmet, levers=[f"the least is {lowest:.4g}"])
        if _front(*_amounts(problem, others)) is not None:
            blocking.append(limit.name)
    names = " or ".join(blocking) or "several of them"
    lever = f"one without that on {names} would"
    return InfeasibleError("no placement keeps all limits", levers=[lever])


def _lowest(problem: ChainProblem, limit: Limit) -> float:
    """Return the least of a limited amount over all placements."""
    nodes, edges, _ = _amounts(problem, [limit])
    least, _ = _still_to_come(nodes, edges)
    possible = np.isfinite(problem.time_s[0])
    return float(np.min((nodes[0, :, 2] + least[0, :, 2])[possible], initial=np.inf))


def _least_power_w(problem: ChainProblem) -> float:
    """Return the least mean power (W): some placement has no joule beyond it.

    The least joules beyond a power are convex and piecewise linear in it, so Newton's method ends.
    """
    power_w, moved = 1.0, np.inf
    while moved > _POWER_STEP * power_w:
        here = _lowest(problem, power_limit(problem, power_w))
        step_w = _POWER_STEP * power_w
        slope = (_lowest(problem, power_limit(problem, power_w + step_w)) - here) / step_w
        moved, power_w = abs(here / slope), power_w - here / slope
    return power_w
