"""Units that execute tasks one at a time in program order: DPUs, DSPs, CPU, GPU, DMA engines."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from npusim.engines.event.clock import Timer

if TYPE_CHECKING:
    from npusim.engines.event.machine import Machine


class ComputeUnit:
    """A MAC grid or DSP: a task takes its own duration."""

    __slots__ = ("_machine", "_ready", "current")

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.current = -1
        """Task that runs, -1 for none."""
        self._ready: list[int] = []

    def push(self, task: int) -> None:
        """Queue a task that waits for nothing else."""
        heappush(self._ready, task)

    def go(self) -> None:
        """Start the first ready task in program order, if the unit is free."""
        if self.current < 0 and self._ready:
            self.current = task = heappop(self._ready)
            machine = self._machine
            machine.log.start[task] = machine.clock.now
            self._start(task % machine.count)

    def _start(self, number: int) -> None:
        """Start a task, by its number in the program."""
        machine = self._machine
        machine.clock.after(machine.program.duration_s[number], self.done)

    def done(self) -> None:
        """End the task that runs and start the next."""
        task, self.current = self.current, -1
        self._machine.end(task)
        self.go()


class HostUnit(ComputeUnit):
    """CPU or GPU: a fixed part, then a flow from DRAM."""

    __slots__ = ("_flow",)

    def __init__(self, machine: Machine, flow: int) -> None:
        super().__init__(machine)
        self._flow = flow

    def _start(self, number: int) -> None:
        machine = self._machine
        machine.clock.after(machine.program.fixed_s[number], self._move)

    def _move(self) -> None:
        machine = self._machine
        program, number = machine.program, self.current % machine.count
        seconds = program.duration_s[number]
        if seconds <= 0.0:
            self.done()
        else:
            machine.memory.begin(self._flow, seconds, 1.0, program.bytes[number] / seconds)


class DmaEngine(ComputeUnit):
    """A DMA engine: the latency of the next transfer is hidden behind the bytes of the one before."""

    __slots__ = ("_flow", "_pending", "_speed", "_timer")

    def __init__(self, machine: Machine, flow: int, device: int) -> None:
        super().__init__(machine)
        self._flow, self._speed = flow, machine.rates.speed[device]
        self._pending: list[tuple[float, int]] = []
        """Transfers whose latency runs: (when it is over, task)."""
        self._timer = Timer(machine.clock, self.go)

    def push(self, task: int) -> None:
        """Queue a transfer: its descriptor is fetched at once."""
        machine = self._machine
        heappush(self._pending, (machine.clock.now + machine.program.fixed_s[task % machine.count], task))

    def go(self) -> None:
        """Start the first transfer in program order whose latency is over, if the engine is free."""
        if self.current >= 0:
            return
        pending, now = self._pending, self._machine.clock.now
        while pending and pending[0][0] <= now:
            heappush(self._ready, heappop(pending)[1])
        if self._ready:
            super().go()
        elif pending:
            self._timer.set(pending[0][0])

    def _start(self, number: int) -> None:
        machine, program = self._machine, self._machine.program
        seconds = program.duration_s[number]
        top_speed, on_dram = self._speed[program.kind[number]]
        rate = program.bytes[number] / seconds if on_dram else 0.0
        machine.memory.begin(self._flow, seconds, top_speed, rate)
