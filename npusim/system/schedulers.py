"""Schedulers: which waiting request a device serves next. Packages add theirs as `npusim.schedulers`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from npusim.plugins import Registry


@dataclass(frozen=True, slots=True)
class Request:
    """What a scheduler knows of a request, or of a batch, when it begins to wait for a device."""

    stream: int  # number of its stream in the mix
    arrival_s: float  # time of its arrival, of a batch that of its first request
    deadline_s: float  # time by which it should be answered; infinite without a deadline
    priority: int  # priority of its stream; lower numbers are more urgent
    share: float  # share of its stream
    service_s: float  # time that the device takes for it, alone


class Order:
    """Order of a device's queue: that of arrival. A scheduler overrides `key`."""

    def key(self, request: Request) -> float:
        """Return the rank of a request that begins to wait: the least is served first, ties by arrival."""
        return 0.0

    def begins(self, key: float) -> None:
        """Note that the request of this rank is served now."""


@dataclass(frozen=True)
class Scheduler:
    """A way to order the queues of devices."""

    name: str
    summary: str
    order: Callable[[], Order]  # returns the order of a device's queue, one for each device and run
    preempts: bool = False  # whether a waiting request interrupts one with a greater key, where possible


class _Priority(Order):
    def key(self, request: Request) -> float:
        return float(request.priority)


class _EarliestDeadline(Order):
    def key(self, request: Request) -> float:
        return request.deadline_s if request.deadline_s < inf else 1e18 + request.arrival_s


class _Fair(Order):
    """Self-clocked fair queueing: tags of finished work by share (Golestani, INFOCOM 1994)."""

    def __init__(self) -> None:
        self._now = 0.0
        self._last: dict[int, float] = defaultdict(float)

    def key(self, request: Request) -> float:
        tag = max(self._now, self._last[request.stream]) + request.service_s / request.share
        self._last[request.stream] = tag
        return tag

    def begins(self, key: float) -> None:
        self._now = key


SCHEDULERS = Registry("npusim.schedulers", "scheduler", Scheduler)
"""Every scheduler of npusim and of other packages, by name."""
for _scheduler in (
    Scheduler("fifo", "in the order of arrival", Order),
    Scheduler("priority", "lower numbers first, preemptive where the device can", _Priority, preempts=True),
    Scheduler("edf", "earliest deadline first, preemptive where the device can", _EarliestDeadline, True),
    Scheduler("fair", "a share of the device's time for each stream, by finish tags", _Fair),
):
    SCHEDULERS.register(_scheduler)
