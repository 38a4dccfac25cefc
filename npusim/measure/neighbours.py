"""Background load: processor time that other programs took while something was timed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import psutil

__all__ = ["Moment", "others_cores"]

_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
"""What processors do when they are not idle, by psutil's names; an operating system has some of them. Time
that a virtual machine waits for its host is busy, too: somebody else is."""

_STEP_S = 0.01
"""Steps in which processors' time is counted (s): USER_HZ of Linux is 100; Windows has 0.016."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Clocks at one moment (s): the wall's, the processors' together, and this program's share of those."""

    wall_s: float
    busy_s: float
    own_s: float

    @classmethod
    def now(cls) -> Moment:
        """Read the clocks."""
        times = psutil.cpu_times()
        busy_s = sum(getattr(times, name, 0.0) for name in _BUSY)
        return cls(time.perf_counter(), busy_s, time.process_time())


def others_cores(begun: Moment, ended: Moment) -> float:
    """Return how many cores other programs took between two moments, on average, as far as it can be told.

    An operating system counts processors' time in steps, one clock for each core: what may be no more than
    their rounding is taken off.
    """
    wall_s = ended.wall_s - begun.wall_s
    if wall_s <= 0.0:
        return 0.0
    rounding_s = _STEP_S * math.sqrt(psutil.cpu_count() or 1)
    others_s = (ended.busy_s - begun.busy_s) - (ended.own_s - begun.own_s)
    return max(0.0, others_s - rounding_s) / wall_s
