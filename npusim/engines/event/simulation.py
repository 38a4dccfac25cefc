"""The run of a program, action by action, in time: compiled for many tasks, as plain Python for few.

`agenda` is a heap of (time, how many were asked for before, action, what it is about); of equal times the
action that was asked for first comes first.
"""

from __future__ import annotations

from heapq import heappop
from typing import Any

from npusim.cost import compiled, compiled_or_plain
from npusim.engines.event.flows import after, begin_flow, end_flows, set_timer
from npusim.engines.event.places import (
    BEGIN,
    COMPUTE,
    DONE,
    END,
    ENGINE,
    FLOWS,
    HOST,
    KINDS,
    LATENCY,
    MOVE,
    Places,
)
from npusim.engines.timeline import TaskKind

_RESERVE, _LAUNCH = int(TaskKind.RESERVE), int(TaskKind.LAUNCH)
_ENTER, _LEAVE = int(TaskKind.ENTER), int(TaskKind.LEAVE)
_TASK_MS = 0.012


@compiled
def _push(values: Any, first: int, size: int, value: Any) -> None:
    """Put a value into a heap of `size` values."""
    place = size
    while place > 0:
        parent = (place - 1) // 2
        if values[first + parent] <= value:
            break
        values[first + place] = values[first + parent]
        place = parent
    values[first + place] = value


@compiled
def _pop(values: Any, first: int, size: int) -> Any:
    """Take the least of a heap of `size` values."""
    least, value = values[first], values[first + size - 1]
    size -= 1
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and values[first + child + 1] < values[first + child]:
            child += 1
        if values[first + child] >= value:
            break
        values[first + place] = values[first + child]
        place = child
    values[first + place] = value
    return least


@compiled
def _unit_done(real: Any, whole: Any, at: Places, agenda: Any, unit: int) -> None:
    """End the task that a unit runs and start its next."""
    task = whole[at.current + unit]
    whole[at.current + unit] = -1
    _end(real, whole, at, agenda, task)
    _go(real, whole, at, agenda, unit)


@compiled
def _end(real: Any, whole: Any, at: Places, agenda: Any, task: int) -> None:
    """End a task that took time, and let its followers go on."""
    real[at.end_s + task] = real[at.now]
    _followers(real, whole, at, task)
    _proceed(real, whole, at, agenda, task)


@compiled
def _followers(real: Any, whole: Any, at: Places, task: int) -> None:
    """Give back a task's room and stack the followers that wait for nothing else."""
    local = task % at.tasks
    inference = task // at.tasks
    first, last = whole[at.free_start + local], whole[at.free_start + local + 1]
    offset = at.users + inference * at.buffers
    for place in range(first, last):
        buffer = whole[at.free_buffer + place]
        whole[offset + buffer] -= 1
        if not whole[offset + buffer]:
            context = _context(whole, at, whole[at.buffer_owner + buffer], inference)
            real[at.freed + context] += real[at.buffer_bytes + buffer]
    for place in range(first, last):
        context = _context(whole, at, whole[at.buffer_owner + whole[at.free_buffer + place]], inference)
        freed = real[at.freed + context]
        if freed:
            real[at.freed + context] = 0.0
            _take(real, whole, at, context, -freed)
    base, stacked = task - local, whole[at.stacked]
    for place in range(whole[at.next_start + local], whole[at.next_start + local + 1]):
        follower = base + whole[at.next_task + place]
        whole[at.waits + follower] -= 1
        if not whole[at.waits + follower]:
            stacked += 1
            whole[at.stacked + stacked] = follower
    whole[at.stacked] = stacked


@compiled
def _context(whole: Any, at: Places, local: int, inference: int) -> int:
    """Return the context that a task of an inference belongs to."""
    return int(whole[at.context + inference * at.devices + whole[at.device + local]])


@compiled
def _take(real: Any, whole: Any, at: Places, context: int, wanted: float) -> None:
    """Take room in the SRAM of a context, or give back room where it is less than 0; note what is in use."""
    real[at.free_bytes + context] -= wanted
    capacity = free = 0.0
    for other in range(at.contexts):
        capacity += real[at.capacity + other]
        free += real[at.free_bytes + other]
    now, used = real[at.now], capacity - free
    if whole[at.is_seen + context] and now > real[at.sram_since_s + context]:
        # What came and went at one time was never in use.
        real[at.peak] = max(real[at.peak], real[at.sram_before + context])
    whole[at.is_seen + context] = 1
    real[at.sram_since_s + context] = now
    real[at.sram_before + context] = real[at.capacity + context] - real[at.free_bytes + context]
    entries = whole[at.sram_entries]
    if not entries or real[at.sram_time + entries - 1] != now:
        real[at.sram_time + entries] = now
        entries += 1
        whole[at.sram_entries] = entries
    real[at.sram_bytes + entries - 1] = used


@compiled
def _proceed(real: Any, whole: Any, at: Places, agenda: Any, cause: int) -> None:
    """Queue the tasks on the stack on their units; complete at once those that take no time."""
    now = real[at.now]
    for unit in range(at.units):
        whole[at.woken + unit] = 0
    while True:
        while whole[at.stacked] > 0:
            task = whole[at.stacked + whole[at.stacked]]
            whole[at.stacked] -= 1
            local = task % at.tasks
            context, device = _context(whole, at, local, task // at.tasks), whole[at.device + local]
            real[at.ready_s + task] = now
            whole[at.cause + task] = cause
            unit, kind = whole[at.unit + local], whole[at.kind + local]
            if unit >= 0:
                unit += whole[at.stride + unit] * (context - whole[at.first_context + device])
                whole[at.log_unit + task] = unit
                _queue(real, whole, at, unit, task, now + real[at.fixed_s + local])
                whole[at.woken + unit] = 1
            elif kind == _RESERVE:
                ring = at.reserved + context * (at.reserves + 2)
                whole[ring + 2 + whole[ring + 1] % at.reserves] = task
                whole[ring + 1] += 1
            elif kind == _LAUNCH:
                real[at.start_s + task] = now
                after(real, whole, at, agenda, real[at.duration_s + local], END, task)
            elif kind == _ENTER and not _enter(real, whole, at, task):
                ring = at.entering + device * (at.enters + 2)
                whole[ring + 2 + whole[ring + 1] % at.enters] = task
                whole[ring + 1] += 1
            else:
                if kind == _LEAVE:
                    whole[at.is_open + context] = 1
                _pass(real, whole, at, agenda, task)
                cause = task
        task = _granted(real, whole, at)
        if task < 0:
            break
        if cause >= 0:
            whole[at.cause + task] = cause
        _pass(real, whole, at, agenda, task)
    for unit in range(at.units):
        if whole[at.woken + unit]:
            _go(real, whole, at, agenda, unit)


@compiled
def _queue(real: Any, whole: Any, at: Places, unit: int, task: int, from_s: float) -> None:
    """Queue a task on a unit; a transfer waits for its latency first."""
    if whole[at.unit_kind + unit] != ENGINE:
        _push(whole, at.heap + whole[at.heap_start + unit], whole[at.heap_size + unit], task)
        whole[at.heap_size + unit] += 1
        return
    first, size = whole[at.heap_start + unit], whole[at.heap_start + unit + 1] - whole[at.heap_start + unit]
    place = whole[at.pending_end + unit]
    # Latencies are few: mostly the last to come is the last to be over.
    while place > whole[at.pending_first + unit]:
        before = first + (place - 1) % size
        if (real[at.pending_s + before], whole[at.pending + before]) <= (from_s, task):
            break
        real[at.pending_s + first + place % size] = real[at.pending_s + before]
        whole[at.pending + first + place % size] = whole[at.pending + before]
        place -= 1
    real[at.pending_s + first + place % size], whole[at.pending + first + place % size] = from_s, task
    whole[at.pending_end + unit] += 1


@compiled
def _pass(real: Any, whole: Any, at: Places, agenda: Any, task: int) -> None:
    """Start and end a task that takes no time."""
    real[at.start_s + task] = real[at.end_s + task] = real[at.now]
    if task % at.tasks == at.tasks - 1:
        number = task // at.tasks
        real[at.ended_s + number] = real[at.now]
        whole[at.ended] += 1
        if whole[at.begun] < at.inferences:
            after(real, whole, at, agenda, 0.0, BEGIN, whole[at.slot + number])
    _followers(real, whole, at, task)


@compiled
def _enter(real: Any, whole: Any, at: Places, task: int) -> bool:
    """Let a phase of work enter the open context with the most room; False where none is open."""
    context, device = -1, whole[at.device + task % at.tasks]
    for other in range(whole[at.first_context + device], whole[at.first_context + device + 1]):
        if whole[at.is_open + other] and (
            context < 0 or real[at.free_bytes + other] > real[at.free_bytes + context]
        ):
            context = other
    if context < 0:
        return False
    whole[at.is_open + context] = 0
    whole[at.context + task // at.tasks * at.devices + device] = context
    return True


@compiled
def _granted(real: Any, whole: Any, at: Places) -> int:
    """Return the next phase or reservation that can go on; -1 where there is none."""
    for device in range(at.devices):
        ring = at.entering + device * (at.enters + 2)
        if whole[ring] < whole[ring + 1]:
            task = whole[ring + 2 + whole[ring] % at.enters]
            if _enter(real, whole, at, task):
                whole[ring] += 1
                return int(task)
    for context in range(at.contexts):
        ring = at.reserved + context * (at.reserves + 2)
        if whole[ring] < whole[ring + 1]:
            task = whole[ring + 2 + whole[ring] % at.reserves]
            wanted, free = real[at.bytes + task % at.tasks], real[at.free_bytes + context]
            if wanted <= free or wanted <= free * (1.0 + 1e-12):
                _take(real, whole, at, context, wanted)
                whole[ring] += 1
                return int(task)
    return -1


@compiled
def _go(real: Any, whole: Any, at: Places, agenda: Any, unit: int) -> None:
    """Start the first ready task of a unit in program order, if the unit is free."""
    if whole[at.current + unit] >= 0:
        return
    heap, size = at.heap + whole[at.heap_start + unit], whole[at.heap_size + unit]
    kind, now = whole[at.unit_kind + unit], real[at.now]
    if kind == ENGINE:
        first, room = (
            whole[at.heap_start + unit],
            whole[at.heap_start + unit + 1] - whole[at.heap_start + unit],
        )
        place, end = whole[at.pending_first + unit], whole[at.pending_end + unit]
        while place < end and real[at.pending_s + first + place % room] <= now:
            _push(whole, heap, size, whole[at.pending + first + place % room])
            size += 1
            place += 1
        whole[at.pending_first + unit], whole[at.heap_size + unit] = place, size
        if size == 0 and place < end:
            set_timer(real, whole, at, agenda, unit, real[at.pending_s + first + place % room])
    if size == 0:
        return
    task = _pop(whole, heap, size)
    whole[at.heap_size + unit] = size - 1
    whole[at.current + unit] = task
    real[at.start_s + task] = now
    local = task % at.tasks
    seconds = real[at.duration_s + local]
    if kind == COMPUTE:
        after(real, whole, at, agenda, seconds, DONE, unit)
    elif kind == HOST:
        after(real, whole, at, agenda, real[at.fixed_s + local], MOVE, unit)
    else:
        flow = whole[at.flow + unit]
        home = whole[at.home + flow]
        speed, level = home * KINDS + whole[at.kind + local], whole[at.level_of + home]
        whole[at.moves + flow] = whole[at.on_dram + speed]
        rate = real[at.bytes + local] / seconds if whole[at.on_dram + speed] else 0.0
        if level >= 0:
            real[at.near + level * at.flows + flow] = real[at.shared_bytes + local] / seconds
        begin_flow(real, whole, at, agenda, flow, seconds, real[at.top_speed + speed], rate)


@compiled
def _move(real: Any, whole: Any, at: Places, agenda: Any, unit: int) -> None:
    """Start the flow of a host's task."""
    local = whole[at.current + unit] % at.tasks
    seconds = real[at.duration_s + local]
    if seconds <= 0.0:
        _unit_done(real, whole, at, agenda, unit)
    else:
        rate = real[at.bytes + local] / seconds
        begin_flow(real, whole, at, agenda, whole[at.flow + unit], seconds, 1.0, rate)


@compiled
def _begin(real: Any, whole: Any, at: Places, agenda: Any, slot: int) -> None:
    """Begin the next inference."""
    number = whole[at.begun]
    whole[at.begun] += 1
    whole[at.slot + number] = slot
    real[at.begun_s + number] = real[at.now]
    for source in range(at.sources):
        whole[at.stacked + source + 1] = number * at.tasks + whole[at.source + source]
    whole[at.stacked] = at.sources
    _proceed(real, whole, at, agenda, -1)


@compiled_or_plain(lambda _, __, at, ___, until: _TASK_MS * at.tasks * until, in_lists=True)
def execute(real: Any, whole: Any, at: Places, in_flight: int, until: int) -> None:
    """Run a program until so many inferences have ended, or nothing can go on.

    `in_flight` of them begin; 0 takes up a run that was left.
    """
    agenda = [(0.0, 0, -1, 0)]
    agenda.pop()
    for k in range(whole[at.kept]):
        first = at.kept + 1 + 3 * k
        agenda.append((real[at.kept_s + k], whole[first], whole[first + 1], whole[first + 2]))
    for slot in range(in_flight):
        _begin(real, whole, at, agenda, slot)
    while len(agenda) > 0 and (whole[at.ended] < until or len(agenda) > at.room):
        now, _, action, what = heappop(agenda)
        real[at.now] = now
        if action == DONE:
            _unit_done(real, whole, at, agenda, what)
        elif action == FLOWS:
            whole[at.timers + what] = max(0, whole[at.timers + what] - 1)
            for e in range(end_flows(real, whole, at, agenda)):
                _unit_done(real, whole, at, agenda, whole[at.unit_of + whole[at.ended_flows + e]])
        elif action == LATENCY:
            whole[at.timers + what] = max(0, whole[at.timers + what] - 1)
            _go(real, whole, at, agenda, what)
        elif action == END:
            _end(real, whole, at, agenda, what)
        elif action == MOVE:
            _move(real, whole, at, agenda, what)
        else:
            _begin(real, whole, at, agenda, what)
    whole[at.kept] = len(agenda)
    for k in range(len(agenda)):  # in the order of the heap, which is one again
        first = at.kept + 1 + 3 * k
        real[at.kept_s + k], whole[first], whole[first + 1], whole[first + 2] = agenda[k]
