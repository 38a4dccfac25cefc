"""Acts a program out: units that do one task at a time, SRAM that is handed out in order, DRAM that is
shared.

A restaurant kitchen on a busy evening: each station works on the first ticket that has everything it needs,
bowls are handed out in the order of the tickets, and a new guest is seated when one leaves. A task costs two
entries in simpy's agenda at most; no process, request or event object is made for it.
"""

from __future__ import annotations

from array import array
from collections import deque
from heapq import heappop, heappush
from typing import Any

from simpy.core import Environment
from simpy.events import Event

from npusim.engines.event.dma_engine import DmaEngine
from npusim.engines.event.log import Log
from npusim.engines.event.memory import SharedMemory
from npusim.engines.event.tasks import Program
from npusim.engines.event.traffic import Road
from npusim.engines.timeline.kinds import Kind
from npusim.errors import InfeasibleError

__all__ = ["simulate"]

_SYNC, _RESERVE, _ENTER, _LEAVE = int(Kind.SYNC), int(Kind.RESERVE), int(Kind.ENTER), int(Kind.LEAVE)
_LAUNCH = int(Kind.LAUNCH)


class _Worker:
    """A unit whose tasks take a time of their own: MAC grid, DSP."""

    __slots__ = ("_call", "_event", "_machine", "current", "ready")

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.current = -1
        self.ready: list[int] = []
        event: Any = Event(machine.env)
        event._ok, event._value = True, None
        self._event = event
        self._call = [self._ended]

    def push(self, task: int) -> None:
        heappush(self.ready, task)

    def go(self) -> None:
        """Start the first ready task in program order, if the unit is free."""
        if self.current < 0 and self.ready:
            machine = self._machine
            self.current = task = heappop(self.ready)
            machine.log.start[task] = machine.env._now
            self._event.callbacks = self._call
            machine.env.schedule(self._event, delay=machine.program.duration_s[task % machine.count])

    def _ended(self, _: Any) -> None:
        task, self.current = self.current, -1
        self._machine.end(task)
        self.go()


class _Host:
    """CPU or GPU: a fixed part, then a flow from DRAM."""

    __slots__ = ("_flow", "_machine", "current", "ready")

    def __init__(self, machine: Machine, flow: int) -> None:
        self._machine, self._flow = machine, flow
        self.current = -1
        self.ready: list[int] = []

    def push(self, task: int) -> None:
        heappush(self.ready, task)

    def go(self) -> None:
        if self.current < 0 and self.ready:
            machine = self._machine
            self.current = task = heappop(self.ready)
            machine.log.start[task] = machine.env._now
            machine.after(machine.program.fixed_s[task % machine.count], self._move)

    def _move(self, _: Any) -> None:
        machine = self._machine
        local = self.current % machine.count
        seconds = machine.program.duration_s[local]
        if seconds <= 0.0:
            self.done()
        else:
            machine.memory.begin(self._flow, seconds, 1.0, machine.program.bytes[local] / seconds)

    def done(self) -> None:
        task, self.current = self.current, -1
        self._machine.end(task)
        self.go()


class Machine:
    """One run of a program: `inferences` times, `in_flight` at once.

    Attributes
    ----------
    env : simpy.Environment
    program : Program
    log : Log
        Written as the run goes on.
    memory : SharedMemory
    """

    def __init__(self, program: Program, road: Road, inferences: int, in_flight: int) -> None:
        self.env = Environment()
        self.program, self.road, self.count = program, road, len(program)
        self.inferences, self.in_flight = inferences, min(in_flight, inferences)
        self.log = Log.of(self.count, inferences, self.in_flight)
        self._waits = program.waits * inferences
        self._users = program.buffer_users * inferences
        self._free_bytes = program.sram_bytes
        self._asking: deque[int] = deque()
        self._at_the_gate: deque[int] = deque()
        self._gate_open = True
        self._begun = self._ended = 0
        names = [unit.group for unit in program.units]
        engines = [i for i, name in enumerate(names) if name == "npu.dma"]
        hosts = [i for i, name in enumerate(names) if name in ("cpu", "gpu")]
        self.memory = SharedMemory(self.env, len(engines), len(hosts), road.dram_bytes_per_s, self._flow_done)
        self.units: list[Any] = []
        for i, _ in enumerate(names):
            if i in engines:
                self.units.append(DmaEngine(self, engines.index(i)))
            elif i in hosts:
                self.units.append(_Host(self, len(engines) + hosts.index(i)))
            else:
                self.units.append(_Worker(self))
        self._flows = [self.units[i] for i in (*engines, *hosts)]
        self._sources = [i for i in range(self.count) if program.waits[i] == 0]

    def run(self) -> Log:
        """Act the program out and return its log."""
        for slot in range(self.in_flight):
            self._begin(slot)
        self.env.run()
        if self._ended < self.inferences:
            raise InfeasibleError(self._stuck())
        return self.log

    def _begin(self, slot: int) -> None:
        number = self._begun
        self._begun += 1
        self.log.slot[number] = slot
        self.log.begun[number] = self.env._now
        base = number * self.count
        self._proceed([base + i for i in self._sources], -1)

    def after(self, delay_s: float, call: Any) -> None:
        """Call something later."""
        event: Any = Event(self.env)
        event._ok, event._value = True, None
        event.callbacks = [call]
        self.env.schedule(event, delay=delay_s)

    def _flow_done(self, flow: int) -> None:
        self._flows[flow].done()

    def end(self, task: int) -> None:
        """A task with a unit has ended: let its followers go on."""
        self.log.end[task] = self.env._now
        self._proceed(self._followers(task), task)

    def _followers(self, task: int) -> list[int]:
        """Give back a task's room and return the followers that wait for nothing else."""
        program, count, waits = self.program, self.count, self._waits
        local = task % count
        base = task - local
        first, last = program.free_start[local], program.free_start[local + 1]
        if first < last:
            self._free(task, base, program.free_buffer[first:last])
        ready = []
        for follower in program.next_task[program.next_start[local] : program.next_start[local + 1]]:
            follower += base
            waits[follower] -= 1
            if not waits[follower]:
                ready.append(follower)
        return ready

    def _free(self, task: int, base: int, buffers: array[int]) -> None:
        program, users = self.program, self._users
        offset = base // self.count * len(program.buffer_bytes)
        freed = 0.0
        for buffer in buffers:
            users[offset + buffer] -= 1
            if not users[offset + buffer]:
                freed += program.buffer_bytes[buffer]
        if freed:
            self._free_bytes += freed
            self.log.sram(self.env._now, program.sram_bytes - self._free_bytes)

    def _proceed(self, ready: list[int], cause: int) -> None:
        """Let tasks that wait for nothing any more go on: to their units, or at once where nothing is to be
        done.
        """
        program, count, log, now = self.program, self.count, self.log, self.env._now
        units, kinds, unit_of = self.units, program.kind, program.unit
        woken = set()
        while True:
            while ready:
                task = ready.pop()
                local = task % count
                log.ready[task] = now
                log.cause[task] = cause
                unit = unit_of[local]
                if unit >= 0:
                    units[unit].push(task)
                    woken.add(unit)
                    continue
                kind = kinds[local]
                if kind == _RESERVE:
                    self._asking.append(task)
                elif kind == _LAUNCH:
                    log.start[task] = now
                    self.after(program.duration_s[local], lambda _, task=task: self.end(task))
                elif kind == _ENTER and not self._gate_open:
                    self._at_the_gate.append(task)
                else:
                    if kind == _ENTER:
                        self._gate_open = False
                    elif kind == _LEAVE:
                        self._gate_open = True
                    self._pass(task, ready)
                    cause = task
            task = self._granted()
            if task < 0:
                break
            log.cause[task] = cause if cause >= 0 else log.cause[task]
            self._pass(task, ready)
        for unit in sorted(woken):
            units[unit].go()

    def _pass(self, task: int, ready: list[int]) -> None:
        """A task that takes no time: over as it starts."""
        log, now = self.log, self.env._now
        log.start[task] = log.end[task] = now
        if task % self.count == self.count - 1:
            self._finish(task // self.count)
        ready.extend(self._followers(task))

    def _granted(self) -> int:
        """Return the next stretch of work or reservation that can go on; -1 where there is none."""
        if self._gate_open and self._at_the_gate:
            self._gate_open = False
            return self._at_the_gate.popleft()
        if self._asking:
            wanted = self.program.bytes[self._asking[0] % self.count]
            if wanted <= self._free_bytes or wanted <= self._free_bytes * (1.0 + 1e-12):
                self._free_bytes -= wanted
                self.log.sram(self.env._now, self.program.sram_bytes - self._free_bytes)
                return self._asking.popleft()
        return -1

    def _finish(self, number: int) -> None:
        self.log.ended[number] = self.env._now
        self._ended += 1
        if self._begun < self.inferences:
            slot = self.log.slot[number]
            self.after(0.0, lambda _: self._begin(slot))

    def _stuck(self) -> str:
        """Say which tensors do not fit, and what is in their way."""
        program = self.program
        if not self._asking:
            return "the run came to a halt: tasks wait for each other"
        local = self._asking[0] % self.count
        wanted = [i for i, owner in enumerate(program.buffer_owner) if owner == local]
        held = []
        buffers = len(program.buffer_bytes)
        for i, left in enumerate(self._users):
            owner = i // buffers * self.count + program.buffer_owner[i % buffers]
            if left and self.log.end[owner] >= 0.0:
                held.append((program.buffer_bytes[i % buffers], program.buffer_tensor[i % buffers]))
        held.sort(reverse=True)
        name = program.operators[program.operator[local]]
        missing = ", ".join(
            f"{program.buffer_tensor[b]!r} ({program.buffer_bytes[b] / 1024:.0f} KiB)" for b in wanted
        )
        inside = ", ".join(f"{tensor!r} ({size / 1024:.0f} KiB)" for size, tensor in held[:5]) or "nothing"
        free = f"{self._free_bytes / 1024:.0f} of {program.sram_bytes / 1024:.0f} KiB"
        return (
            f"deadlock in SRAM: operator {name!r} needs room for {missing}, but {free} are free and nothing "
            f"else will be; held: {inside}; give more: --set npu.sram.per_tile=..."
        )


def simulate(program: Program, road: Road, inferences: int = 1, in_flight: int = 1) -> Log:
    """Run a program on its machine.

    Parameters
    ----------
    program : Program
    road : Road
        How its transfers move.
    inferences : int
        How often it runs, at least 1.
    in_flight : int
        Inferences at once: when one ends the next begins.

    Returns
    -------
    Log
        When every task was ready, started and ended; the same for the same input, to the bit.

    Raises
    ------
    InfeasibleError
        Where tensors do not fit into SRAM together; they are named.
    """
    return Machine(program, road, inferences, in_flight).run()
