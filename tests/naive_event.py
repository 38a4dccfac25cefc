"""The slow twin of the event engine's machine: objects that call each other, an action at a time."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from math import ulp
from types import SimpleNamespace
from typing import Any

import numpy as np

from npusim.engines.event.machine import TransferRates, array_devices, device_of
from npusim.engines.event.program import Program
from npusim.engines.timeline import EventLog, ExecutionUnit, StepFunction, TaskKind


def integral(curve: StepFunction, until_s: float) -> float:
    """The integral of a step function from its first time up to `until_s`."""
    times = np.append(curve.time_s, until_s)
    return float((curve.value * np.maximum(0.0, np.diff(times))).sum())


class Log(EventLog):
    """A log that is written as the run goes on."""

    def __init__(self, tasks: int, inferences: int) -> None:
        total = tasks * inferences

        def times(count: int) -> array[float]:
            return array("d", [-1.0]) * count

        super().__init__(
            times(total), times(total), times(total), array("q", [-1]) * total, array("h", [-1]) * total,
            array("i", [0]) * inferences, times(inferences), times(inferences), array("d"), array("d"),
            0.0, array("d"), array("d"),
        )  # fmt: skip
        self.by_context: dict[int, tuple[float, float]] = {}

    def sram(self, time_s: float, used_bytes: float, context: int, in_context: float) -> None:
        """Note the bytes in use in SRAM: over all contexts, and in the one where they changed."""
        since_s, before = self.by_context.get(context, (time_s, 0.0))
        if time_s > since_s:  # what came and went at one time was never in use
            self.sram_peak_bytes = max(self.sram_peak_bytes, before)
        self.by_context[context] = (time_s, in_context)
        if self.sram_time and self.sram_time[-1] == time_s:
            self.sram_bytes[-1] = used_bytes
        else:
            self.sram_time.append(time_s)
            self.sram_bytes.append(used_bytes)


class Clock:
    """Calls actions in the order of their times; of equal times, first what was asked for first."""

    __slots__ = ("_agenda", "_asked", "now")

    def __init__(self) -> None:
        self.now = 0.0
        """Simulated time (s)."""
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._asked = 0

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call an action `delay_s` from now, at least 0."""
        self._asked += 1
        heappush(self._agenda, (self.now + delay_s, self._asked, action))

    def run(self) -> None:
        """Call actions until none is left."""
        agenda = self._agenda
        while agenda:
            self.now, _, action = heappop(agenda)
            action()


class Timer:
    """Calls an action at a time, or earlier.

    A call cannot be taken back: a timer that is set to an earlier time calls twice. The action looks at the
    clock and, where nothing is due, sets the timer again.
    """

    __slots__ = ("_action", "_clock", "_times")

    def __init__(self, clock: Clock, action: Callable[[], None]) -> None:
        self._clock, self._action = clock, action
        self._times: list[float] = []
        """When it will call, soonest first."""

    def set(self, at: float) -> None:
        """Make sure that the action is called at `at` (s) or before."""
        if not self._times or at < self._times[0]:
            heappush(self._times, at)
            self._clock.after(at - self._clock.now, self._call)

    def _call(self) -> None:
        heappop(self._times)
        self._action()


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
        near = rate + program.shared_bytes[number] / seconds
        machine.memory.begin(self._flow, seconds, top_speed, rate, near=near, moves=on_dram)


class SharedMemory:
    """Bandwidth of DRAM, then of levels that devices share, under max-min fairness.

    Flows are counted in seconds: what is left of a flow is the time it would take with all DMA engines at
    work and nobody else.

    Parameters
    ----------
    homes : sequence of int
        Device of each DMA engine, whose flows are the first ones; those of a device share DRAM evenly.
    hosts : int
        Further flows.
    done : callable
        Called with the number of a flow when it has ended.
    levels : sequence of float
        What each shared level moves (bytes/s).
    level_of : sequence of int
        Shared level of each device; -1: none.
    """

    def __init__(
        self, clock: Clock, homes: Sequence[int], hosts: int, bytes_per_s: float,
        done: Callable[[int], None], levels: Sequence[float] = (), level_of: Sequence[int] = (),
    ) -> None:  # fmt: skip
        engines = len(homes)
        count = engines + hosts
        self._homes = [*homes]
        self._engines_of = [homes.count(d) for d in range(max(homes, default=-1) + 1)]
        self._clock, self._engines, self._total, self._done = clock, engines, bytes_per_s, done
        self._left_s = [0.0] * count
        self._speed = [0.0] * count
        self._top = [0.0] * count
        self._rate = [0.0] * count
        self._moves = [False] * count
        self._levels, self._near = levels, [[0.0] * count for _ in levels]
        self._level_of_flow = [level_of[home] if level_of else -1 for home in self._homes]
        self._active: list[int] = []
        self._hosts_active = 0
        self._since = 0.0
        self._timer = Timer(clock, self._end_flows)
        self.changed_at = array("d")
        """When the traffic on DRAM changed (s) ..."""
        self.bytes_per_s = array("d")
        """... and to what, over all flows."""

    def begin(
        self, flow: int, seconds: float, top_speed: float, bytes_per_s: float, near: float = 0.0,
        moves: bool | None = None,
    ) -> None:  # fmt: skip
        """Start a flow.

        Parameters
        ----------
        seconds : float
            Time it takes at speed 1: for an engine, with all engines at work.
        top_speed : float
            How much faster it may be where the others leave room.
        bytes_per_s : float
            Bytes of DRAM it moves at speed 1; 0 where it does not touch DRAM.
        near : float
            Bytes through the level that its device shares.
        moves : bool
            Whether it shares the engines of its device with others.
        """
        self._advance()
        self._left_s[flow], self._top[flow], self._rate[flow] = seconds, top_speed, bytes_per_s
        self._moves[flow] = flow < self._engines and (bytes_per_s > 0.0 if moves is None else moves)
        if flow < self._engines and self._level_of_flow[flow] >= 0:
            self._near[self._level_of_flow[flow]][flow] = near
        self._active.append(flow)
        if flow >= self._engines:
            self._hosts_active += 1
        self._share()

    def _advance(self) -> None:
        now = self._clock.now
        passed = now - self._since
        if passed > 0.0:
            left, speed = self._left_s, self._speed
            for flow in self._active:
                left[flow] -= speed[flow] * passed
        self._since = now

    def _share(self) -> None:
        """Divide the bandwidth again and set the timer for the next flow to end."""
        rate, speed = self._rate, self._speed
        homes, on_dram = self._homes, [0] * len(self._engines_of)
        for flow in self._active:
            if self._moves[flow]:
                on_dram[homes[flow]] += 1
        limits = [own / using if using else 0.0 for own, using in zip(self._engines_of, on_dram, strict=True)]
        for flow in self._active:
            top = self._top[flow]
            speed[flow] = limits[homes[flow]] if self._moves[flow] and limits[homes[flow]] < top else top
        if self._hosts_active or len(on_dram) - on_dram.count(0) > 1:
            self._fill(rate, self._total)
            for near, level in zip(self._near, self._levels, strict=True):
                self._fill(near, level)
        self._note(sum([speed[flow] * rate[flow] for flow in self._active]))
        if self._active:
            left = self._left_s
            soonest = min([left[flow] / speed[flow] for flow in self._active])
            self._timer.set(self._clock.now + max(soonest, 0.0))

    def _note(self, bytes_per_s: float) -> None:
        """Note the traffic from now on; what came and went at one time never was."""
        now, times = self._clock.now, self.changed_at
        if times and times[-1] == now:
            self.bytes_per_s[-1] = bytes_per_s
        elif not times or self.bytes_per_s[-1] != bytes_per_s:
            times.append(now)
            self.bytes_per_s.append(bytes_per_s)

    def _fill(self, rate: list[float], total: float) -> None:
        """Limit flows to a memory's bandwidth by max-min fairness: an equal share each, or the demand."""
        speed = self._speed
        asking = sorted((speed[flow] * rate[flow], flow) for flow in self._active if rate[flow] > 0.0)
        left, count = total, len(asking)
        for wanted, flow in asking:
            given = min(wanted, left / count)
            speed[flow] = given / rate[flow]
            left -= given
            count -= 1

    def _end_flows(self) -> None:
        self._advance()
        left = self._left_s
        # Rounding must not leave a sliver: what ends within a few units in the last place ends now.
        sliver = 8.0 * ulp(self._clock.now)
        ended = [flow for flow in self._active if left[flow] <= sliver * self._speed[flow]]
        if not ended:
            self._share()
            return
        for flow in ended:
            self._active.remove(flow)
            if flow >= self._engines:
                self._hosts_active -= 1
        self._share()
        for flow in sorted(ended):
            self._done(flow)


_RESERVE, _LAUNCH = int(TaskKind.RESERVE), int(TaskKind.LAUNCH)
_ENTER, _LEAVE = int(TaskKind.ENTER), int(TaskKind.LEAVE)


def in_lists(program: Program) -> SimpleNamespace:
    """Return a program as a list for each property of its tasks and buffers."""
    tasks, buffers = (
        {name: of[name].tolist() for name in of.dtype.names} for of in (program.tasks, program.buffers)
    )
    lists = SimpleNamespace(units=program.units, sram_bytes=program.sram_bytes, **tasks)
    lists.next_task, lists.free_buffer = program.followers.tolist(), program.freed.tolist()
    lists.next_start, lists.free_start = [0, *lists.end_follower], [0, *lists.end_freed]
    lists.buffer_bytes, lists.buffer_owner = buffers["bytes"], buffers["owner"]
    lists.buffer_users = buffers["users"]
    return lists


class Machine:
    """A run of a program: `inferences` times, `in_flight` at once.

    An inference works in one context of an NPU at a time, with the MAC grids, DSPs and SRAM of that context.
    It takes a free one when a phase of its work enters the NPU. Contexts of all NPUs are numbered one after
    the other.
    """

    def __init__(self, program: Program, rates: TransferRates, inferences: int, in_flight: int) -> None:
        self.clock = Clock()
        self.program, self.rates, self.count = in_lists(program), rates, len(program)
        program = self.program
        self.inferences, self.in_flight = inferences, min(in_flight, inferences)
        self.log = Log(self.count, inferences)
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
        self.memory = SharedMemory(
            self.clock, home, len(hosts), rates.dram_bytes_per_s, self._flow_done,
            rates.levels_bytes_per_s, rates.level_of,
        )  # fmt: skip
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
        assert self._ended == self.inferences
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

    def _free(self, task: int, base: int, buffers: list[int]) -> None:
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
