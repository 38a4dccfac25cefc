"""The placement problem as numbers: cost of groups on devices, and of transfers between them.

Nodes are groups of operators in their order of execution, each with its time, DRAM traffic and energy on each
device. Entering a device costs a launch. A *link* is a result that stays in the SRAM of an NPU if all groups
that touch it run there: otherwise the groups on that NPU pay for its way through DRAM. Results that go
through DRAM anyway cost nothing more when they cross: the devices of a SoC share it.

A problem can be made coarser: an operator, a layer or a block is placed as one. Such a unit costs the sum of
its nodes, and results within it cross nothing, so a finer granularity is never worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from npusim.graph import Graph

Granularity = Literal["operator", "layer", "block"]
"""What is placed as one: a group of operators, a module, or a block."""
GRANULARITIES: tuple[Granularity, ...] = get_args(Granularity)
"""From fine to coarse."""


class Load(NamedTuple):
    """Cost of some work on one device."""

    time_s: float = 0.0
    dram_bytes: float = 0.0
    energy_j: float = 0.0
    dma_s: float = 0.0

    def plus(self, other: Load) -> Load:
        """Return the sum of two loads."""
        return Load(*(a + b for a, b in zip(self, other, strict=True)))


NOTHING = Load()


@dataclass(frozen=True, slots=True)
class Link:
    """A result that stays in the SRAM of the device `home` while only groups there touch it.

    A result that several devices would keep has a link for each of them.
    """

    tensor: str
    maker: int
    readers: tuple[int, ...]
    """In order of execution, all after the maker."""
    write: Load = NOTHING
    """Load on the maker at home of writing it to DRAM."""
    reads: tuple[Load, ...] = ()
    """Load on each reader at home of reading it from DRAM."""
    home: int = 0
    """Number of the device in the problem."""

    @property
    def users(self) -> tuple[int, ...]:
        """Maker and readers."""
        return (self.maker, *self.readers)

    @property
    def loads(self) -> tuple[Load, ...]:
        """Load on each user."""
        return (self.write, *self.reads)


@dataclass(frozen=True, slots=True)
class ObjectiveWeights:
    """A linear objective: the weight of a unit of each cost."""

    time: Sequence[float]
    """Weight of a second on each device."""
    launch: float
    """Weight of a second of launching."""
    dram_byte: float = 0.0
    """Weight of a byte to or from DRAM."""
    energy: float = 0.0
    """Weight of a joule."""
    dma: Sequence[float] = ()
    """Weight of a second of all DMA engines of each device; none: 0."""

    def cost(self, load: Load, device: int) -> float:
        """Return the weighted cost of a load on a device."""
        return (
            self.time[device] * load.time_s
            + self.dram_byte * load.dram_bytes
            + self.energy * load.energy_j
            + (self.dma[device] * load.dma_s if self.dma else 0.0)
        )


@dataclass(frozen=True)
class Problem:
    """Groups to place on devices."""

    names: tuple[str, ...]
    """Main operator of each group, in order of execution."""
    devices: tuple[str, ...]
    allowed: Any
    """Whether a group may run on a device, bool array of shape (groups, devices)."""
    costs: Any
    """Load of each group on each device, shape (groups, devices, fields of `Load`)."""
    launch_s: Any
    """Time to enter a device, shape (devices,)."""
    links: tuple[Link, ...] = ()
    handed: tuple[tuple[int, tuple[int, ...], float], ...] = ()
    """Every result that passes between groups: maker, readers, bytes; to count the bytes that cross."""
    members: tuple[tuple[str, ...], ...] = ()
    """Operators of each group, its main one first."""

    @property
    def time_s(self) -> Any:
        """Time of each group on each device, shape (groups, devices); infinite where it cannot run."""
        return self.costs[:, :, 0]

    @property
    def energy_j(self) -> Any:
        """Dynamic energy, shape (groups, devices)."""
        return self.costs[:, :, 2]

    def places(self, device: int) -> list[int]:
        """Return the indices of `loads` to which the load of a group on a device is added."""
        k = len(self.devices)
        return [device, k + 1, k + 2, k + 3 + device]

    def loads(self, placement: Sequence[int]) -> Any:
        """Return the sums over a placement.

        Returns
        -------
        array, shape (2 * devices + 3,)
            Time of each device (s), time of launches (s), DRAM traffic (B), dynamic energy (J), time of the
            DMA engines of each device (s).
        """
        loads = np.zeros(2 * len(self.devices) + 3)
        last = -1
        for i, device in enumerate(placement):
            loads[self.places(device)] += self.costs[i, device]
            loads[len(self.devices)] += self.launch_s[device] if device != last else 0.0
            last = device
        for link in self.links:
            self._add_link(loads, link, placement, 1.0)
        return loads

    def _add_link(self, loads: Any, link: Link, placement: Sequence[int], sign: float) -> None:
        """Add the cost of a link under a placement to `loads`, times `sign`."""
        if all(placement[i] == link.home for i in link.users):
            return
        for i, load in zip(link.users, link.loads, strict=True):
            if placement[i] == link.home:
                loads[self.places(link.home)] += sign * np.array(load)

    def moved(self, loads: Any, placement: list[int], group: int, device: int) -> Any:
        """Return the loads of a placement with one group moved to another device, up to rounding."""
        before, moved = placement[group], loads.copy()
        for sign, here in ((-1.0, before), (1.0, device)):
            placement[group] = here
            moved[self.places(here)] += sign * self.costs[group, here]
            for i in range(group, min(group + 2, len(placement))):
                if i == 0 or placement[i] != placement[i - 1]:
                    moved[len(self.devices)] += sign * self.launch_s[placement[i]]
            for link in self._links_of[group]:
                self._add_link(moved, link, placement, sign)
        placement[group] = before
        return moved

    @cached_property
    def _links_of(self) -> list[list[Link]]:
        return [[link for link in self.links if i in link.users] for i in range(len(self.names))]

    def transfer_bytes(self, placement: Sequence[int]) -> float:
        """Return the bytes that leave their producing device, counted once per reading device."""
        return sum(
            size * len({placement[r] for r in readers} - {placement[maker]})
            for maker, readers, size in self.handed
        )

    def switches(self, placement: Sequence[int]) -> int:
        """Return the number of times that work passes to another device."""
        return sum(a != b for a, b in pairwise(placement))


def units_of(graph: Graph, problem: Problem, granularity: Granularity) -> tuple[tuple[int, ...], ...]:
    """Return the nodes of each placement unit, in order of execution.

    Operators of a layer or block that do not follow each other in this order form several units.
    """
    if granularity == "operator":
        return tuple((i,) for i in range(len(problem.names)))

    def label(node: int) -> tuple[str, ...]:
        name = problem.names[node]
        block = graph.regions[name].block
        return (block,) if granularity == "block" else (block, graph.operators[name].region)

    return tuple(tuple(nodes) for _, nodes in groupby(range(len(problem.names)), key=label))


def merged(problem: Problem, units: Sequence[Sequence[int]]) -> Problem:
    """Return the problem whose groups are units of nodes.

    Parameters
    ----------
    units : sequence of sequence of int
        Nodes that follow each other; every node is in one.
    """
    if all(len(nodes) == 1 for nodes in units):
        return problem
    unit = np.repeat(np.arange(len(units)), [len(nodes) for nodes in units]).tolist()
    first = [nodes[0] for nodes in units]
    links = (_merged_link(link, unit) for link in problem.links)
    handed = ((unit[m], _others(readers, m, unit), size) for m, readers, size in problem.handed)
    return replace(
        problem,
        names=tuple(problem.names[i] for i in first),
        allowed=np.logical_and.reduceat(problem.allowed, first, axis=0),
        costs=np.add.reduceat(problem.costs, first, axis=0),
        links=tuple(link for link in links if link.readers),
        handed=tuple(result for result in handed if result[1]),
        members=tuple(tuple(n for m in problem.members[u[0] : u[-1] + 1] for n in m) for u in units),
    )


def spread(units: Sequence[Sequence[int]], placement: Sequence[int]) -> tuple[int, ...]:
    """Return the device of each node from the device of each unit."""
    return tuple(device for nodes, device in zip(units, placement, strict=True) for _ in nodes)


def _others(readers: Sequence[int], maker: int, unit: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({unit[reader] for reader in readers} - {unit[maker]}))


def _merged_link(link: Link, unit: Sequence[int]) -> Link:
    """Return a link between units; a link within one unit has no readers."""
    loads: dict[int, Load] = {}
    for user, load in zip(link.users, link.loads, strict=True):
        loads[unit[user]] = loads.get(unit[user], NOTHING).plus(load)
    maker, readers = unit[link.maker], _others(link.readers, link.maker, unit)
    reads = tuple(loads[reader] for reader in readers)
    return replace(link, maker=maker, readers=readers, write=loads[maker], reads=reads)


def cut_loads(problem: Problem, first: int, rest: int) -> Any:
    """Return the loads of every cut in two: one device runs the groups before it, another the rest.

    Returns
    -------
    array of float64, shape (groups - 1, 2 * devices + 3)
        `Problem.loads` of the placement with groups 0 to i on `first` and the others on `rest`.
    """
    k, n = len(problem.devices), len(problem.names)
    loads = np.zeros((max(0, n - 1), 2 * k + 3))
    loads[:, problem.places(first)] += np.cumsum(problem.costs[:, first], axis=0)[: n - 1]
    loads[:, problem.places(rest)] += np.cumsum(problem.costs[::-1, rest], axis=0)[::-1][1:]
    loads[:, k] = problem.launch_s[first] + problem.launch_s[rest]
    for home in (first, rest):
        loads[:, problem.places(home)] += _link_loads(problem, home, is_first=home == first)
    return loads


def _link_loads(problem: Problem, home: int, is_first: bool) -> Any:
    """Return the loads, on users at home, of links that each cut divides; shape (groups - 1, 4).

    A link costs nothing where none or all of its users are at home.
    """
    # Changes from each cut to the next.
    steps = np.zeros((len(problem.names) + 1, len(Load._fields)))
    for link in problem.links:
        if link.home != home:
            continue
        users, loads = list(link.users), np.array(link.loads)
        if is_first:  # users before the cut are at home; the link is free once all are
            np.add.at(steps, users, loads)
            steps[users[-1]] -= loads.sum(axis=0)
        else:  # users behind the cut are at home; the link costs once the first is not
            steps[users[0]] += loads.sum(axis=0)
            np.subtract.at(steps, users, loads)
    sums = np.cumsum(steps, axis=0)[: max(0, len(problem.names) - 1)]
    # An amount that was added and subtracted again leaves rounding alone.
    return np.where(sums > 1e-12 * np.abs(steps).sum(axis=0), sums, 0.0)


def cut_transfer_bytes(problem: Problem) -> Any:
    """Return the bytes that cross each cut, shape (groups - 1,)."""
    steps = np.zeros(len(problem.names) + 1)
    for maker, readers, size in problem.handed:
        last = max(readers, default=maker)
        steps[maker] += size
        steps[last] -= size
    return np.cumsum(steps)[: max(0, len(problem.names) - 1)]
