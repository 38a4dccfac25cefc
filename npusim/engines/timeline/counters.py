"""Curves over time: bytes in SRAM, bandwidth of DRAM, power. The gauges on the dashboard.

Each is a staircase: a value holds from its time until the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.engines.timeline.kinds import Kind
from npusim.engines.timeline.timeline import Timeline

__all__ = ["Staircase", "dram_bandwidth", "power", "sram_in_use"]

_ON_DRAM = [int(k) for k in (Kind.DMA_IN, Kind.DMA_OUT, Kind.CPU, Kind.GPU)]


@dataclass(frozen=True, slots=True)
class Staircase:
    """Values that hold from their time on."""

    time_s: Any
    """float64 array, shape (steps,), rising."""
    value: Any
    """float64 array, shape (steps,)."""

    def integral(self, until_s: float) -> float:
        """Area below the staircase up to a time."""
        times = np.append(self.time_s, until_s)
        return float((self.value * np.maximum(0.0, np.diff(times))).sum())


def _sum_of_rates(start: Any, end: Any, amount: Any) -> Staircase:
    """Add up amounts, each spread evenly from its start to its end."""
    moving = end > start
    start, end = start[moving], end[moving]
    rate = amount[moving] / (end - start)
    times, places = np.unique(np.concatenate((start, end)), return_inverse=True)
    change = np.bincount(places, np.concatenate((rate, -rate)), len(times)) if len(times) else np.zeros(0)
    value = np.cumsum(change)
    # Sums of many rates leave a residue of rounding where nothing moves.
    floor = 1e-9 * value.max(initial=0.0)
    return Staircase(times, np.where(value > floor, value, 0.0))


def sram_in_use(line: Timeline) -> Staircase:
    """Bytes in use in SRAM over all tiles."""
    return Staircase(line.sram_time, line.sram_bytes)


def dram_bandwidth(line: Timeline) -> Staircase:
    """Bytes a second to and from DRAM."""
    rows = np.flatnonzero(np.isin(line.kind, _ON_DRAM))
    return _sum_of_rates(line.start[rows], line.end[rows], line.bytes[rows])


def power(line: Timeline) -> Staircase:
    """Watts: what tasks use while they run, and what flows anyway."""
    rows = line.working
    dynamic = _sum_of_rates(line.start[rows], line.end[rows], line.energy_j[rows])
    return Staircase(dynamic.time_s, dynamic.value + line.static_w)
