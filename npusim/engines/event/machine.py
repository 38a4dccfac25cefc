"""Executes a program: units do one task at a time, SRAM is granted in program order, DRAM is shared."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from npusim.engines.event.clock import Clock
from npusim.engines.event.memory import SharedMemory, TransferRates
from npusim.engines.event.program import EventLog, Program
from npusim.engines.event.units import ComputeUnit, DmaEngine, HostUnit
from npusim.engines.timeline import ExecutionUnit, TaskKind
from npusim.errors import InfeasibleError

_RESERVE, _LAUNCH = int(TaskKind.RESERVE), int(TaskKind.LAUNCH)
_ENTER, _LEAVE = int(TaskKind.ENTER), int(TaskKind.LEAVE)


class Machine:
    """A run of a program: `inferences` times, `in_flight` at once.

    An inference works in one context of the NPU at a time, with the MAC grids, DSPs and SRAM of that context.
    It takes a free one when a phase of its work enters the NPU.
    """

    def __init__(self, program: Program, rates: TransferRates, inferences: int, in_flight: int) -> None:
        self.clock = Clock()
        self.program, self.rates, self.count = program, rates, len(program)
        self.inferences, self.in_flight = inferences, min(in_flight, inferences)
        self.log = EventLog.of(self.count, inferences, self.in_flight)
        self._waits = program.waits * inferences
        self._users = program.buffer_users * inferences
        contexts = 1 + max(unit.context for unit in program.units)
        self._context = array("h", [0]) * inferences
        self._stride = _strides(program.units)
        self._free_bytes = [program.sram_bytes] * contexts
        self._reservations: list[deque[int]] = [deque() for _ in range(contexts)]
        self._waiting_to_enter: deque[int] = deque()
        self._open = [True] * contexts
        self._begun = self._ended = 0
        names = [unit.group for unit in program.units]
        engines = [i for i, name in enumerate(names) if name == "npu.dma"]
        hosts = [i for i, name in enumerate(names) if "." not in name]
        self.memory = SharedMemory(
            self.clock, len(engines), len(hosts), rates.dram_bytes_per_s, self._flow_done
        )
        self.units: list[Any] = []
        for i, _ in enumerate(names):
            if i in engines:
                self.units.append(DmaEngine(self, engines.index(i)))
            elif i in hosts:
                self.units.append(HostUnit(self, len(engines) + hosts.index(i)))
            else:
                self.units.append(ComputeUnit(self))
        self._flows = [self.units[i] for i in (*engines, *hosts)]
        self._sources = [i for i in range(self.count) if program.waits[i] == 0]

    def run(self) -> EventLog:
        """Execute the program and return its log."""
        for slot in range(self.in_flight):
            self._begin(slot)
        self.clock.run()
        if self._ended < self.inferences:
            raise InfeasibleError(self._stuck())
        self.log.dram_time, self.log.dram_bytes_per_s = self.memory.changed_at, self.memory.bytes_per_s
        return self.log

    def _begin(self, slot: int) -> None:
        number = self._begun
        self._begun += 1
        self.log.slot[number] = slot
        self.log.begun[number] = self.clock.now
        base = number * self.count
        self._proceed([base + i for i in self._sources], -1)

    def _flow_done(self, flow: int) -> None:
        self._flows[flow].done()

    def end(self, task: int) -> None:
        """End a task that took time, and let its followers go on."""
        self.log.end[task] = self.clock.now
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
        inference = base // self.count
        offset = inference * len(program.buffer_bytes)
        freed = 0.0
        for buffer in buffers:
            users[offset + buffer] -= 1
            if not users[offset + buffer]:
                freed += program.buffer_bytes[buffer]
        if freed:
            self._take(self._context[inference], -freed)

    def _take(self, context: int, wanted: float) -> None:
        """Take room in the SRAM of a context, or give back room where it is less than 0."""
        free, capacity = self._free_bytes, self.program.sram_bytes
        free[context] -= wanted
        used_bytes = capacity * len(free) - sum(free)
        self.log.sram(self.clock.now, used_bytes, context, capacity - free[context])

    def _proceed(self, ready: list[int], cause: int) -> None:
        """Queue ready tasks on their units; complete at once those that take no time."""
        program, count, log, now = self.program, self.count, self.log, self.clock.now
        units, kinds, unit_of = self.units, program.kind, program.unit
        woken = set()
        while True:
            while ready:
                task = ready.pop()
                local = task % count
                log.ready[task] = now
                log.cause[task] = cause
                unit, context = unit_of[local], self._context[task // count]
                if unit >= 0:
                    unit += self._stride[unit] * context
                    log.unit[task] = unit
                    units[unit].push(task)
                    woken.add(unit)
                    continue
                kind = kinds[local]
                if kind == _RESERVE:
                    self._reservations[context].append(task)
                elif kind == _LAUNCH:
                    log.start[task] = now
                    self.clock.after(program.duration_s[local], partial(self.end, task))
                elif kind == _ENTER and not self._enter(task):
                    self._waiting_to_enter.append(task)
                else:
                    if kind == _LEAVE:
                        self._open[context] = True
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
        """Start and end a task that takes no time."""
        log, now = self.log, self.clock.now
        log.start[task] = log.end[task] = now
        if task % self.count == self.count - 1:
            self._finish(task // self.count)
        ready.extend(self._followers(task))

    def _enter(self, task: int) -> bool:
        """Let a phase of work enter the open context with the most room; False where none is open."""
        free = self._free_bytes
        context = max(range(len(free)), key=lambda c: (self._open[c], free[c]))
        if not self._open[context]:
            return False
        self._open[context] = False
        self._context[task // self.count] = context
        return True

    def _granted(self) -> int:
        """Return the next phase or reservation that can go on; -1 where there is none."""
        if self._waiting_to_enter and self._enter(self._waiting_to_enter[0]):
            return self._waiting_to_enter.popleft()
        for context, (reservations, free) in enumerate(
            zip(self._reservations, self._free_bytes, strict=True)
        ):
            if reservations:
                wanted = self.program.bytes[reservations[0] % self.count]
                if wanted <= free or wanted <= free * (1.0 + 1e-12):
                    self._take(context, wanted)
                    return reservations.popleft()
        return -1

    def _finish(self, number: int) -> None:
        self.log.ended[number] = self.clock.now
        self._ended += 1
        if self._begun < self.inferences:
            slot = self.log.slot[number]
            self.clock.after(0.0, partial(self._begin, slot))

    def _stuck(self) -> str:
        """Say which tensors do not fit, and what is in their way."""
        program = self.program
        context = next((c for c, waiting in enumerate(self._reservations) if waiting), -1)
        if context < 0:
            return "the run came to a halt: tasks wait for each other"
        local = self._reservations[context][0] % self.count
        wanted = [i for i, owner in enumerate(program.buffer_owner) if owner == local]
        held = []
        buffers = len(program.buffer_bytes)
        for i, left in enumerate(self._users):
            owner = i // buffers * self.count + program.buffer_owner[i % buffers]
            if left and self.log.end[owner] >= 0.0 and self._context[i // buffers] == context:
                held.append((program.buffer_bytes[i % buffers], program.buffer_tensor[i % buffers]))
        held.sort(reverse=True)
        name = program.operators[program.operator[local]]
        missing = ", ".join(
            f"{program.buffer_tensor[b]!r} ({program.buffer_bytes[b] / 1024:.0f} KiB)" for b in wanted
        )
        inside = ", ".join(f"{tensor!r} ({size / 1024:.0f} KiB)" for size, tensor in held[:5]) or "nothing"
        free = f"{self._free_bytes[context] / 1024:.0f} of {program.sram_bytes / 1024:.0f} KiB"
        return (
            f"deadlock in SRAM: operator {name!r} needs room for {missing}, but {free} are free and nothing "
            f"else will be; held: {inside}; give more: --set npu.sram.per_tile=..."
        )


def _strides(units: Sequence[ExecutionUnit]) -> list[int]:
    """Return for each unit how much higher the number of the same unit of the next context is; 0: shared."""
    own = Counter(unit.group for unit in units if unit.context == 0)
    repeated = {unit.group for unit in units if unit.context > 0}
    return [own[unit.group] if unit.group in repeated else 0 for unit in units]


def simulate(program: Program, rates: TransferRates, inferences: int = 1, in_flight: int = 1) -> EventLog:
    """Run a program on its machine.

    Returns
    -------
    EventLog
        When every task was ready, started and ended; the same for the same input, to the bit.

    Raises
    ------
    InfeasibleError
        Where tensors do not fit into SRAM together; they are named.
    """
    return Machine(program, rates, inferences, in_flight).run()
