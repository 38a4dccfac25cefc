"""Executes a program: units do one task at a time, SRAM is granted in program order, DRAM is shared."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise
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

    An inference works in one context of an NPU at a time, with the MAC grids, DSPs and SRAM of that context.
    It takes a free one when a phase of its work enters the NPU. Contexts of all NPUs are numbered one after
    the other.
    """

    def __init__(self, program: Program, rates: TransferRates, inferences: int, in_flight: int) -> None:
        self.clock = Clock()
        self.program, self.rates, self.count = program, rates, len(program)
        self.inferences, self.in_flight = inferences, min(in_flight, inferences)
        self.log = EventLog.of(self.count, inferences, self.in_flight)
        self._waits = program.waits * inferences
        self._users = program.buffer_users * inferences
        devices = array_devices(program.units) or [""]
        counts = [
            1 + max((u.context for u in program.units if device_of(u) == d), default=0) for d in devices
        ]
        contexts = sum(counts)
        starts = [*accumulate(counts, initial=0)]
        self._contexts_of = [range(a, b) for a, b in pairwise(starts)]
        """Contexts of each array device."""
        self._devices = len(devices)
        self._context = array("h", starts[:-1]) * inferences
        """Context of each inference on each array device."""
        self._stride = _strides(program.units)
        self._capacity = [
            size
            for size, count in zip(program.sram_bytes or (0.0,), counts, strict=True)
            for _ in range(count)
        ]
        """SRAM of each context."""
        self._free_bytes = [*self._capacity]
        self._reservations: list[deque[int]] = [deque() for _ in range(contexts)]
        self._waiting_to_enter: list[deque[int]] = [deque() for _ in devices]
        self._open = [True] * contexts
        self._begun = self._ended = 0
        names = [unit.group for unit in program.units]
        engines = [i for i, name in enumerate(names) if name.endswith(".dma")]
        home = [devices.index(device_of(program.units[i])) for i in engines]
        hosts = [i for i, name in enumerate(names) if "." not in name]
        self.memory = SharedMemory(self.clock, home, len(hosts), rates.dram_bytes_per_s, self._flow_done)
        self.units: list[Any] = []
        for i, _ in enumerate(names):
            if i in engines:
                self.units.append(DmaEngine(self, engines.index(i), home[engines.index(i)]))
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
        freed: dict[int, float] = {}
        for buffer in buffers:
            users[offset + buffer] -= 1
            if not users[offset + buffer]:
                context = self._context_at(program.buffer_owner[buffer], inference)
                freed[context] = freed.get(context, 0.0) + program.buffer_bytes[buffer]
        for context, size in freed.items():
            self._take(context, -size)

    def _context_at(self, local: int, inference: int) -> int:
        """Return the context that a task of an inference belongs to."""
        return self._context[inference * self._devices + self.program.device[local]]

    def _take(self, context: int, wanted: float) -> None:
        """Take room in the SRAM of a context, or give back room where it is less than 0."""
        free, capacity = self._free_bytes, self._capacity
        free[context] -= wanted
        used_bytes = sum(capacity) - sum(free)
        self.log.sram(self.clock.now, used_bytes, context, capacity[context] - free[context])

    def _proceed(self, ready: list[int], cause: int) -> None:
        """Queue ready tasks on their units; complete at once those that take no time."""
        program, count, log, now = self.program, self.count, self.log, self.clock.now
        units, kinds, unit_of = self.units, program.kind, program.unit
        device_at, devices, starts = program.device, self._devices, self._contexts_of
        woken = set()
        while True:
            while ready:
                task = ready.pop()
                local = task % count
                log.ready[task] = now
                log.cause[task] = cause
                unit, inference, device = unit_of[local], task // count, device_at[local]
                context = self._context[inference * devices + device]
                if unit >= 0:
                    unit += self._stride[unit] * (context - starts[device].start)
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
                    self._waiting_to_enter[device].append(task)
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
        free, device = self._free_bytes, self.program.device[task % self.count]
        context = max(self._contexts_of[device], key=lambda c: (self._open[c], free[c]))
        if not self._open[context]:
            return False
        self._open[context] = False
        self._context[task // self.count * self._devices + device] = context
        return True

    def _granted(self) -> int:
        """Return the next phase or reservation that can go on; -1 where there is none."""
        for waiting in self._waiting_to_enter:
            if waiting and self._enter(waiting[0]):
                return waiting.popleft()
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
            mine = self._context_at(program.buffer_owner[i % buffers], i // buffers) == context
            if left and mine and self.log.end[owner] >= 0.0:
                held.append((program.buffer_bytes[i % buffers], program.buffer_tensor[i % buffers]))
        held.sort(reverse=True)
        name = program.operators[program.operator[local]]
        missing = ", ".join(
            f"{program.buffer_tensor[b]!r} ({program.buffer_bytes[b] / 1024:.0f} KiB)" for b in wanted
        )
        inside = ", ".join(f"{tensor!r} ({size / 1024:.0f} KiB)" for size, tensor in held[:5]) or "nothing"
        free = f"{self._free_bytes[context] / 1024:.0f} of {self._capacity[context] / 1024:.0f} KiB"
        return (
            f"deadlock in SRAM: operator {name!r} needs room for {missing}, but {free} are free and nothing "
            f"else will be; held: {inside}; give more: --set {self._name_of(context)}.sram.per_tile=..."
        )

    def _name_of(self, context: int) -> str:
        """Return the name of the array device that a context is part of."""
        device = next(d for d, contexts in enumerate(self._contexts_of) if context in contexts)
        return array_devices(self.program.units)[device]


def device_of(unit: ExecutionUnit) -> str:
    """Return the name of the array device that a unit is part of; empty for a host."""
    return unit.group.rpartition(".")[0]


def array_devices(units: Sequence[ExecutionUnit]) -> list[str]:
    """Return the names of the array devices, in the order of their units."""
    return [name for name in dict.fromkeys(map(device_of, units)) if name]


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
