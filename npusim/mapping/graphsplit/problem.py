"""The placement problem as numbers: cost of groups on devices, and of transfers between them.

Nodes are groups of operators in their order of execution, each with its time, DRAM traffic and energy on each
device. Entering a device costs a launch. A *link* is a result that would stay in an NPU's SRAM if everyone
who touches it ran there: as soon as somebody else does, the groups on that NPU pay for the way through DRAM.
Results that go through DRAM anyway cost nothing more when they cross: the devices of a SoC share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np


class Load(NamedTuple):
    """What work costs."""

    time_s: float = 0.0
    dram_bytes: float = 0.0
    energy_j: float = 0.0
    dma_s: float = 0.0


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
    """What writing it to DRAM adds to the maker at home."""
    reads: tuple[Load, ...] = ()
    """What reading it from DRAM adds to each reader at home."""
    home: int = 0
    """Place of the device among those of the problem."""


@dataclass(frozen=True, slots=True)
class ObjectiveWeights:
    """What a unit of each cost counts: a linear objective."""

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
    """Which group may run where, bool array of shape (groups, devices)."""
    time_s: Any
    """Time of each group on each device, shape (groups, devices); infinite where it cannot run."""
    dram_bytes: Any
    """The same for DRAM traffic."""
    energy_j: Any
    """The same for dynamic energy."""
    dma_s: Any
    """The same for the time of all DMA engines."""
    launch_s: Any
    """Time to enter a device, shape (devices,)."""
    links: tuple[Link, ...] = ()
    handed: tuple[tuple[int, tuple[int, ...], float], ...] = ()
    """Every result that passes between groups: maker, readers, bytes; for counting what crosses."""
    members: tuple[tuple[str, ...], ...] = ()
    """Operators of each group, its main one first."""

    def loads(self, placement: Sequence[int]) -> Any:
        """Add up a placement.

        Returns
        -------
        array, shape (2 * devices + 3,)
            Time of each device (s), time of launches (s), DRAM traffic (B), dynamic energy (J), time of the
            DMA engines of each device (s).
        """
        k = len(self.devices)
        found = np.zeros(2 * k + 3)
        last = -1
        for i, device in enumerate(placement):
            found[device] += self.time_s[i, device]
            found[k] += self.launch_s[device] if device != last else 0.0
            found[k + 1] += self.dram_bytes[i, device]
            found[k + 2] += self.energy_j[i, device]
            found[k + 3 + device] += self.dma_s[i, device]
            last = device
        for link in self.links:
            self._add_link(found, link, placement)
        return found

    def _add_link(self, loads: Any, link: Link, placement: Sequence[int], sign: float = 1.0) -> None:
        """Add to the loads of a placement what a link costs there."""
        k, home, users = len(self.devices), link.home, (link.maker, *link.readers)
        if all(placement[i] == home for i in users):
            return
        for i, load in zip(users, (link.write, *link.reads), strict=True):
            if placement[i] == home:
                loads[home] += sign * load.time_s
                loads[k + 1] += sign * load.dram_bytes
                loads[k + 2] += sign * load.energy_j
                loads[k + 3 + home] += sign * load.dma_s

    @cached_property
    def _links_of(self) -> list[list[Link]]:
        found: list[list[Link]] = [[] for _ in self.names]
        for link in self.links:
            for i in {link.maker, *link.readers}:
                found[i].append(link)
        return found

    def moved(self, loads: Any, placement: list[int], group: int, device: int) -> Any:
        """Return the loads of a placement (`loads`) with one group on another device, but for rounding."""
        k, before = len(self.devices), placement[group]
        found = loads.copy()
        for sign, here in ((-1.0, before), (1.0, device)):
            placement[group] = here
            found[here] += sign * self.time_s[group, here]
            found[k + 1] += sign * self.dram_bytes[group, here]
            found[k + 2] += sign * self.energy_j[group, here]
            found[k + 3 + here] += sign * self.dma_s[group, here]
            for i in range(group, min(group + 2, len(placement))):
                if i == 0 or placement[i] != placement[i - 1]:
                    found[k] += sign * self.launch_s[placement[i]]
            for link in self._links_of[group]:
                self._add_link(found, link, placement, sign)
        placement[group] = before
        return found

    def cost(self, placement: Sequence[int], weights: ObjectiveWeights) -> float:
        """Return the weighted cost of a placement."""
        loads, k = self.loads(placement), len(self.devices)
        times = sum(weights.time[d] * loads[d] for d in range(k) if loads[d])
        return float(
            times
            + weights.launch * loads[k]
            + weights.dram_byte * loads[k + 1]
            + weights.energy * loads[k + 2]
            + sum(weight * loads[k + 3 + d] for d, weight in enumerate(weights.dma))
        )

    def transfer_bytes(self, placement: Sequence[int]) -> float:
        """Return the bytes that cross from the producing device to others, once per reading device."""
        return sum(
            size * len({placement[r] for r in readers} - {placement[maker]})
            for maker, readers, size in self.handed
        )

    def switches(self, placement: Sequence[int]) -> int:
        """Return how often work passes to another device."""
        return sum(a != b for a, b in pairwise(placement))
