"""Step functions over time: bytes in SRAM, DRAM bandwidth, power."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.engines.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class StepFunction:
    """Values, each of which holds from its time until the next."""

    time_s: Any
    """float64 array, shape (steps,), rising."""
    value: Any
    """float64 array, shape (steps,)."""

    def integral(self, until_s: float) -> float:
        """Integral from the first time up to `until_s`."""
        times = np.append(self.time_s, until_s)
        return float((self.value * np.maximum(0.0, np.diff(times))).sum())


def _sum_of_rates(start: Any, end: Any, amount: Any) -> StepFunction:
    """Add up amounts, each spread evenly from its start to its end."""
    moving = end > start
    start, end = start[moving], end[moving]
    rate = amount[moving] / (end - start)
    times, places = np.unique(np.concatenate((start, end)), return_inverse=True)
    change = np.bincount(places, np.concatenate((rate, -rate)), len(times)) if len(times) else np.zeros(0)
    value = np.cumsum(change)
    # Sums of many rates leave a residue of rounding where nothing moves.
    floor = 1e-9 * value.max(initial=0.0)
    return StepFunction(times, np.where(value > floor, value, 0.0))


def sram_in_use(line: Timeline) -> StepFunction:
    """Return the bytes in use in SRAM, all tiles together."""
    return StepFunction(line.sram_time, line.sram_bytes)


def dram_bandwidth(line: Timeline) -> StepFunction:
    """Return the bytes per second to and from DRAM, as the engines share it."""
    return StepFunction(line.dram_time, line.dram_bytes_per_s)


def power(line: Timeline) -> StepFunction:
    """Return the power of the package: of tasks, static power of the NPU while it works, idle power (W)."""
    rows = line.working
    begins, ends, amounts = [line.start[rows]], [line.end[rows]], [line.energy_j[rows]]
    for device, (begin, end) in line.npu_phases.items():
        begins.append(begin)
        ends.append(end)
        amounts.append(line.static_w[device] * (end - begin))
    work = _sum_of_rates(np.concatenate(begins), np.concatenate(ends), np.concatenate(amounts))
    return StepFunction(work.time_s, work.value + line.idle_w)
