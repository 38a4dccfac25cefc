"""One DMA engine: transfers in the order of the program, latency of the next hidden behind the bytes of the
one before.

A ferryman who takes bookings: while one load is being carried over, the next passengers already walk down to
the jetty.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from npusim.engines.event.alarm import Alarm

if TYPE_CHECKING:
    from npusim.engines.event.machine import Machine

__all__ = ["DmaEngine"]


class DmaEngine:
    """A DMA engine.

    Parameters
    ----------
    machine : Machine
    flow : int
        Number of its flow in the shared memory.
    """

    __slots__ = ("_alarm", "_booked", "_flow", "_machine", "_ready", "current")

    def __init__(self, machine: Machine, flow: int) -> None:
        self._machine, self._flow = machine, flow
        self.current = -1
        self._booked: list[tuple[float, int]] = []
        """Transfers whose latency runs: (when it is over, task)."""
        self._ready: list[int] = []
        self._alarm = Alarm(machine.env, self._ring)

    def push(self, task: int) -> None:
        """Book a transfer: its descriptor is fetched at once."""
        machine = self._machine
        heappush(self._booked, (machine.env._now + machine.program.fixed_s[task % machine.count], task))

    def go(self) -> None:
        """Start the first transfer in program order whose latency is over, if the engine is free."""
        if self.current >= 0:
            return
        machine, booked = self._machine, self._booked
        now = machine.env._now
        while booked and booked[0][0] <= now:
            heappush(self._ready, heappop(booked)[1])
        if self._ready:
            self.current = task = heappop(self._ready)
            machine.log.start[task] = now
            program, local = machine.program, task % machine.count
            seconds = program.duration_s[local]
            top, on_dram = machine.road.speed[program.kind[local]]
            machine.memory.begin(self._flow, seconds, top, program.bytes[local] / seconds if on_dram else 0.0)
        elif booked:
            self._alarm.set(booked[0][0])

    def _ring(self, _: Any) -> None:
        if self.current < 0:
            self.go()

    def done(self) -> None:
        """The bytes are over."""
        task, self.current = self.current, -1
        self._machine.end(task)
        self.go()
