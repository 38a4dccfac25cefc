"""The discrete-event simulation of a program: one action at a time, compiled or as plain Python.

`agenda` is a heap of (time, number of requests before it, action, subject). Actions at equal times run in the
order of their requests. Tasks of a program are numbered in program order, executions of tasks inference by
inference: execution = inference x tasks + task.

Transfers and host traffic are *flows*, counted in seconds: the time left with all DMA engines at work and no
other flow. Max-min fairness divides bandwidth whenever a flow begins or ends: of DRAM first, then of each
memory level that devices share, through which their bytes from DRAM pass, too. What such a level holds back
is not given to other flows on DRAM.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from npusim.cost import compiled, compiled_making_arrays, compiled_or_plain
from npusim.engines.event.program import record_type
from npusim.engines.timeline import TaskKind

# Kinds of units: a task takes its time; a flow follows a latency; a flow follows a fixed part.
COMPUTE, ENGINE, HOST = range(3)
# Actions; their subject is a unit, a unit, a unit, nothing, an execution, a slot.
_UNIT_DONE, _HOST_MOVES, _LATENCY_OVER, _FLOWS_END, _LAUNCH_ENDS, _INFERENCE_BEGINS = range(6)
# Times that a timer is set to at once; later ones are forgotten, but their action still runs.
TIMERS = 16
KINDS = 1 + max(int(kind) for kind in TaskKind)
_RESERVE, _LAUNCH = int(TaskKind.RESERVE), int(TaskKind.LAUNCH)
_ENTER, _LEAVE = int(TaskKind.ENTER), int(TaskKind.LEAVE)
# Time of a task as plain Python.
_TASK_MS = 0.012


# The run: time; begin of the present speeds; most SRAM in use in one context; numbers of actions, of begun
# and ended inferences, moving flows (and hosts' flows), ready tasks, logged changes.
RUN = record_type(
    "now_s flows_since_s peak_bytes",
    "actions begun ended active hosts_active ready sram_changes dram_changes",
)
# A task in one inference, with times in s; `waits` counts the tasks that must still end.
EXECUTION = record_type("ready start end", "cause unit waits")
INFERENCE = record_type("begun ended", "slot")
# A unit. `stride` leads to the same unit of the next context. From `first` on, `ready` tasks are in
# `State.queue`, and `pending` transfers whose latency runs are in `State.pending`.
UNIT = record_type("", "kind flow stride current is_woken first ready pending timers")
PENDING = record_type("time_s", "execution")
FLOW = record_type("left_s speed top_speed", "unit device shares_engines")
# A context of an array device, with its SRAM.
CONTEXT = record_type("capacity_bytes free_bytes freed_bytes changed_s used_before_bytes", "is_open is_seen")
DEVICE = record_type("", "first_context end_context level engines moving")
# Executions that wait in a line: `State.waiting` from `first` to `end`.
LINE = record_type("", "first end")
CHANGE = record_type("time_s value")


class State(NamedTuple):
    """The state of a run: arrays of the records above, or of numbers.

    Per inference: `buffer_users` counts the tasks that still use a buffer, shape (inferences, buffers);
    `context_of` is the context that it works in, shape (inferences, devices). `ready` is a stack of the
    executions that wait for nothing else. `lines` are of phases that wait to enter each device, then of
    reservations that wait for SRAM of each context; `waiting` holds their executions, a ring for each line.

    There is one unit more than in the program: the last holds the timer of flows. `timer_s` has the times
    that each timer is set to, shape (units + 1, TIMERS).

    `top_speed` is the speed of one engine alone, relative to one of all, and `on_dram` whether a kind of task
    moves over DRAM, shape (devices, KINDS). Flows are of DMA engines, then of hosts; `active` are those that
    move. `bandwidth` (bytes/s) is of DRAM, then of each shared memory level; `bytes_per_s` the rate of each
    flow through each memory at speed 1. `sram` and `dram` log bytes in use over all contexts, and bytes/s.
    """

    run: Any
    tasks: Any
    followers: Any
    freed: Any
    buffers: Any
    executions: Any
    inferences: Any
    buffer_users: Any
    context_of: Any
    ready: Any
    units: Any
    queue: Any
    pending: Any
    timer_s: Any
    contexts: Any
    devices: Any
    lines: Any
    waiting: Any
    top_speed: Any
    on_dram: Any
    flows: Any
    bandwidth: Any
    bytes_per_s: Any
    active: Any
    sram: Any
    dram: Any


@compiled
def _make_ready(state: State, number: int, execution: int) -> None:
    """Insert a task into the short ready list of a unit, whose last entry comes first in program order."""
    unit = state.units[number]
    place = unit.first + unit.ready
    while place > unit.first and state.queue[place - 1] < execution:
        state.queue[place] = state.queue[place - 1]
        place -= 1
    state.queue[place] = execution
    unit.ready += 1


@compiled_making_arrays
def _request(state: State, agenda: Any, delay_s: float, action: int, subject: int) -> None:
    """Schedule an action after a delay."""
    run = state.run[0]
    run.actions += 1
    heappush(agenda, (run.now_s + delay_s, run.actions, action, subject))


@compiled
def _set_timer(state: State, agenda: Any, timer: int, time_s: float) -> None:
    """Schedule a timer's action at `time_s`, unless it is already due earlier; the last timer is of flows."""
    unit = state.units[timer]
    due_s = state.timer_s[timer]
    if unit.timers == 0 or time_s < due_s[unit.timers - 1]:
        place = min(unit.timers, TIMERS - 1)
        due_s[place] = time_s
        unit.timers = place + 1
        action = _FLOWS_END if timer == len(state.units) - 1 else _LATENCY_OVER
        _request(state, agenda, time_s - state.run[0].now_s, action, timer)


@compiled
def _drop_time(state: State, timer: int) -> None:
    """Drop the time at which a timer has gone off; beyond `TIMERS` of them it was not kept."""
    unit = state.units[timer]
    unit.timers = max(0, unit.timers - 1)


@compiled
def _advance_flows(state: State) -> None:
    """Deduct from what is left of each flow its progress since its speed last changed."""
    run = state.run[0]
    passed_s = run.now_s - run.flows_since_s
    if passed_s > 0.0:
        for place in range(run.active):
            flow = state.flows[state.active[place]]
            flow.left_s -= flow.speed * passed_s
    run.flows_since_s = run.now_s


@compiled
def _share_bandwidth(state: State, agenda: Any) -> None:
    """Set the speed of every flow, and the timer for the next flow to end."""
    run, devices_moving = state.run[0], 0
    for number in range(len(state.devices)):
        state.devices[number].moving = 0
    for place in range(run.active):
        flow = state.flows[state.active[place]]
        if flow.shares_engines:
            device = state.devices[flow.device]
            devices_moving += device.moving == 0
            device.moving += 1
    for place in range(run.active):
        flow = state.flows[state.active[place]]
        flow.speed = flow.top_speed
        if flow.shares_engines:
            device = state.devices[flow.device]
            flow.speed = min(flow.top_speed, device.engines / device.moving)
    if run.hosts_active or devices_moving > 1:
        for memory in range(len(state.bandwidth)):
            _limit_flows(state, memory)
    dram_bytes_per_s, soonest_s = 0.0, np.inf
    for place in range(run.active):
        flow = state.flows[state.active[place]]
        dram_bytes_per_s += flow.speed * state.bytes_per_s[0][state.active[place]]
        soonest_s = min(soonest_s, flow.left_s / flow.speed)
    _log_dram(state, dram_bytes_per_s)
    if run.active:
        _set_timer(state, agenda, len(state.units) - 1, run.now_s + max(soonest_s, 0.0))


@compiled_making_arrays
def _limit_flows(state: State, memory: int) -> None:
    """Limit the speed of flows to the bandwidth of one memory by max-min fairness."""
    rates, demands = state.bytes_per_s[memory], [(0.0, 0)]
    demands.pop()
    for place in range(state.run[0].active):
        number = state.active[place]
        if rates[number] > 0.0:
            heappush(demands, (state.flows[number].speed * rates[number], number))
    free_bytes_per_s = state.bandwidth[memory]
    while len(demands) > 0:
        share = free_bytes_per_s / len(demands)
        demand, number = heappop(demands)
        granted = min(demand, share)
        state.flows[number].speed = granted / rates[number]
        free_bytes_per_s -= granted


@compiled
def _log_dram(state: State, bytes_per_s: float) -> None:
    """Log the DRAM traffic from now on; a second change at the same time overwrites the first."""
    run = state.run[0]
    entries = run.dram_changes
    if entries and state.dram[entries - 1].time_s == run.now_s:
        state.dram[entries - 1].value = bytes_per_s
    elif not entries or state.dram[entries - 1].value != bytes_per_s:
        state.dram[entries].time_s = run.now_s
        state.dram[entries].value = bytes_per_s
        run.dram_changes += 1


@compiled
def _begin_flow(
    state: State, agenda: Any, number: int, seconds: float, top_speed: float, dram_bytes_per_s: float
) -> None:
    """Start a flow; `seconds` and `dram_bytes_per_s` are its length and DRAM traffic at speed 1."""
    _advance_flows(state)
    run, flow = state.run[0], state.flows[number]
    flow.left_s, flow.top_speed = seconds, top_speed
    state.bytes_per_s[0][number] = dram_bytes_per_s
    state.active[run.active] = number
    run.active += 1
    if flow.device < 0:
        run.hosts_active += 1
    _share_bandwidth(state, agenda)


@compiled_making_arrays
def _end_flows(state: State, agenda: Any) -> Any:
    """End the flows that are complete; return a heap of their numbers."""
    _advance_flows(state)
    run = state.run[0]
    # Rounding must not leave a sliver: what ends within a few units in the last place ends now.
    sliver_s = 8.0 * np.spacing(run.now_s)
    ended, kept = [0], 0
    ended.pop()
    for place in range(run.active):
        number = state.active[place]
        flow = state.flows[number]
        if flow.left_s <= sliver_s * flow.speed:
            heappush(ended, number)
            if flow.device < 0:
                run.hosts_active -= 1
        else:
            state.active[kept] = number
            kept += 1
    run.active = kept
    _share_bandwidth(state, agenda)
    return ended


@compiled
def _unit_done(state: State, agenda: Any, number: int) -> None:
    """End the task that a unit runs and start its next."""
    unit = state.units[number]
    execution = unit.current
    unit.current = -1
    _end(state, agenda, execution)
    _start_next(state, agenda, number)


@compiled
def _end(state: State, agenda: Any, execution: int) -> None:
    """End a task that took time, and let its followers proceed."""
    state.executions[execution].end = state.run[0].now_s
    _release(state, execution)
    _proceed(state, agenda, execution)


@compiled
def _release(state: State, execution: int) -> None:
    """Free the SRAM that a task used last, and stack the followers that no longer wait for anything."""
    local, inference = execution % len(state.tasks), execution // len(state.tasks)
    task = state.tasks[local]
    users = state.buffer_users[inference]
    for place in range(task.first_freed, task.end_freed):
        number = state.freed[place]
        users[number] -= 1
        if not users[number]:
            buffer = state.buffers[number]
            state.contexts[_context(state, buffer.owner, inference)].freed_bytes += buffer.bytes
    for place in range(task.first_freed, task.end_freed):
        number = _context(state, state.buffers[state.freed[place]].owner, inference)
        context = state.contexts[number]
        freed_bytes = context.freed_bytes
        if freed_bytes:
            context.freed_bytes = 0.0
            _take_sram(state, number, -freed_bytes)
    run = state.run[0]
    for place in range(task.first_follower, task.end_follower):
        follower = execution - local + state.followers[place]
        state.executions[follower].waits -= 1
        if not state.executions[follower].waits:
            state.ready[run.ready] = follower
            run.ready += 1


@compiled
def _context(state: State, local: int, inference: int) -> int:
    """Return the context that a task of an inference belongs to."""
    return int(state.context_of[inference][state.tasks[local].device])


@compiled
def _take_sram(state: State, number: int, wanted_bytes: float) -> None:
    """Take SRAM of a context, or return it for negative `wanted_bytes`, and log the bytes in use."""
    run, context = state.run[0], state.contexts[number]
    context.free_bytes -= wanted_bytes
    capacity_bytes = free_bytes = 0.0
    for other in range(len(state.contexts)):
        capacity_bytes += state.contexts[other].capacity_bytes
        free_bytes += state.contexts[other].free_bytes
    if context.is_seen and run.now_s > context.changed_s:
        # What was taken and returned at one time was never in use.
        run.peak_bytes = max(run.peak_bytes, context.used_before_bytes)
    context.is_seen = 1
    context.changed_s = run.now_s
    context.used_before_bytes = context.capacity_bytes - context.free_bytes
    if not run.sram_changes or state.sram[run.sram_changes - 1].time_s != run.now_s:
        state.sram[run.sram_changes].time_s = run.now_s
        run.sram_changes += 1
    state.sram[run.sram_changes - 1].value = capacity_bytes - free_bytes


@compiled
def _memory_line(state: State, context: int) -> int:
    """Return the number of the waiting line for SRAM of a context.

    The lines to enter devices come first and have the numbers of the devices.
    """
    return len(state.devices) + context


@compiled
def _unit_of(state: State, task: Any, context: int) -> int:
    """Return the unit of a task: each context has its own copy, of shared ones (stride 0) the same."""
    copy = context - state.devices[task.device].first_context
    return int(task.unit + state.units[task.unit].stride * copy)


@compiled
def _proceed(state: State, agenda: Any, cause: int) -> None:
    """Dispatch the tasks on the ready stack, and all that get ready at the same time.

    `cause` is the execution whose end made them ready, -1 where an inference begins. Each notes it for
    the critical path. One without duration ends at once, and is the cause of what comes next.
    """
    run = state.run[0]
    for number in range(len(state.units)):
        state.units[number].is_woken = 0
    while True:
        while run.ready > 0:
            run.ready -= 1
            execution = state.ready[run.ready]
            is_complete = _dispatch(state, agenda, execution, cause)
            if is_complete:
                cause = execution
        granted = _granted(state)
        if granted < 0:
            break
        if cause >= 0:
            state.executions[granted].cause = cause
        _complete(state, agenda, granted)
    # Units choose only now, among all tasks that are ready at this time.
    for number in range(len(state.units)):
        if state.units[number].is_woken:
            _start_next(state, agenda, number)


@compiled
def _dispatch(state: State, agenda: Any, number: int, cause: int) -> bool:
    """Hand a ready task to its unit or waiting line; return True where it completes at once."""
    run, execution = state.run[0], state.executions[number]
    local = number % len(state.tasks)
    task, context = state.tasks[local], _context(state, local, number // len(state.tasks))
    execution.ready, execution.cause = run.now_s, cause
    if task.unit >= 0:
        unit = _unit_of(state, task, context)
        execution.unit = unit
        _queue(state, unit, number, run.now_s + task.fixed_s)
        state.units[unit].is_woken = 1
        return False
    if task.kind == _RESERVE:
        _wait(state, _memory_line(state, context), number)
        return False
    if task.kind == _LAUNCH:
        execution.start = run.now_s
        _request(state, agenda, task.duration_s, _LAUNCH_ENDS, number)
        return False
    if task.kind == _ENTER:
        has_entered = _enter(state, number)
        if not has_entered:
            _wait(state, task.device, number)  # in the line of the device
            return False
    if task.kind == _LEAVE:
        state.contexts[context].is_open = 1
    _complete(state, agenda, number)
    return True


@compiled
def _queue(state: State, number: int, execution: int, from_s: float) -> None:
    """Queue a task on a unit; a transfer waits for its latency first."""
    unit = state.units[number]
    if unit.kind == ENGINE:
        entry = state.pending[unit.first + unit.pending]
        entry.time_s, entry.execution = from_s, execution
        unit.pending += 1
    else:
        _make_ready(state, number, execution)


@compiled
def _complete(state: State, agenda: Any, number: int) -> None:
    """Start and end a task without duration; the last task of an inference ends the inference."""
    run, execution = state.run[0], state.executions[number]
    execution.start = execution.end = run.now_s
    if number % len(state.tasks) == len(state.tasks) - 1:
        inference = state.inferences[number // len(state.tasks)]
        inference.ended = run.now_s
        run.ended += 1
        if run.begun < len(state.inferences):
            _request(state, agenda, 0.0, _INFERENCE_BEGINS, inference.slot)
    _release(state, number)


@compiled
def _enter(state: State, execution: int) -> bool:
    """Let a phase enter the open context with the most free SRAM; return False where none is open."""
    context, number = -1, state.tasks[execution % len(state.tasks)].device
    for other in range(state.devices[number].first_context, state.devices[number].end_context):
        if state.contexts[other].is_open and (
            context < 0 or state.contexts[other].free_bytes > state.contexts[context].free_bytes
        ):
            context = other
    if context < 0:
        return False
    state.contexts[context].is_open = 0
    state.context_of[execution // len(state.tasks)][number] = context
    return True


@compiled
def _wait(state: State, number: int, execution: int) -> None:
    """Append a phase or reservation to its waiting line."""
    line, places = state.lines[number], state.waiting[number]
    places[line.end % len(places)] = execution
    line.end += 1


@compiled
def _granted(state: State) -> int:
    """Grant the next waiting phase or reservation that fits; return its execution, -1 where there is none."""
    for number in range(len(state.lines)):
        line, places = state.lines[number], state.waiting[number]
        if line.first < line.end:
            execution = places[line.first % len(places)]
            context = number - len(state.devices)  # < 0: a line to enter a device, see `_memory_line`
            if _enter(state, execution) if context < 0 else _reserve(state, execution, context):
                line.first += 1
                return int(execution)
    return -1


@compiled
def _reserve(state: State, execution: int, number: int) -> bool:
    """Take the SRAM that a reservation needs; return False where too little is free."""
    free_bytes = state.contexts[number].free_bytes
    wanted_bytes = state.tasks[execution % len(state.tasks)].bytes
    if wanted_bytes > free_bytes and wanted_bytes > free_bytes * (1.0 + 1e-12):
        return False
    _take_sram(state, number, wanted_bytes)
    return True


@compiled
def _start_next(state: State, agenda: Any, number: int) -> None:
    """Start the first ready task of a unit in program order if the unit is free."""
    run, unit = state.run[0], state.units[number]
    if unit.current >= 0:
        return
    if unit.kind == ENGINE:
        kept, soonest_s = 0, np.inf
        for place in range(unit.first, unit.first + unit.pending):
            transfer, free = state.pending[place], state.pending[unit.first + kept]
            if transfer.time_s <= run.now_s:
                _make_ready(state, number, transfer.execution)
            else:
                free.time_s, free.execution = transfer.time_s, transfer.execution
                soonest_s = min(soonest_s, transfer.time_s)
                kept += 1
        unit.pending = kept
        if unit.ready == 0 and kept > 0:
            _set_timer(state, agenda, number, soonest_s)
    if unit.ready == 0:
        return
    unit.ready -= 1
    execution = state.queue[unit.first + unit.ready]
    unit.current = execution
    state.executions[execution].start = run.now_s
    task = state.tasks[execution % len(state.tasks)]
    if unit.kind == COMPUTE:
        _request(state, agenda, task.duration_s, _UNIT_DONE, number)
    elif unit.kind == HOST:
        _request(state, agenda, task.fixed_s, _HOST_MOVES, number)
    else:
        flow = state.flows[unit.flow]
        flow.shares_engines = state.on_dram[flow.device][task.kind]
        rate = task.bytes / task.duration_s if flow.shares_engines else 0.0
        level = state.devices[flow.device].level
        if level >= 0:
            state.bytes_per_s[1 + level][unit.flow] = rate + task.shared_bytes / task.duration_s
        _begin_flow(state, agenda, unit.flow, task.duration_s, state.top_speed[flow.device][task.kind], rate)


@compiled
def _move(state: State, agenda: Any, number: int) -> None:
    """Start the flow of a host's task; a task without memory time is done at once."""
    unit = state.units[number]
    task = state.tasks[unit.current % len(state.tasks)]
    if task.duration_s <= 0.0:
        _unit_done(state, agenda, number)
    else:
        _begin_flow(state, agenda, unit.flow, task.duration_s, 1.0, task.bytes / task.duration_s)


@compiled
def _begin(state: State, agenda: Any, slot: int) -> None:
    """Begin the next inference."""
    run = state.run[0]
    inference, first = state.inferences[run.begun], run.begun * len(state.tasks)
    run.begun += 1
    inference.slot = slot
    inference.begun = run.now_s
    for number in range(first, first + len(state.tasks)):
        if state.executions[number].waits == 0:
            state.ready[run.ready] = number
            run.ready += 1
    _proceed(state, agenda, -1)


@compiled_or_plain(lambda state, _, until: _TASK_MS * len(state.tasks) * until, in_lists=True)
def execute(state: State, in_flight: int, until: int) -> None:
    """Run a program, `in_flight` times at once, until `until` inferences ended or nothing proceeds."""
    run = state.run[0]
    # A heap of (time, request, action, subject), from whose first entry numba takes the type. Numbers of
    # requests differ, so actions at the same time always run in the same order.
    agenda = [(0.0, 0, -1, 0)]
    agenda.pop()
    for slot in range(in_flight):
        _begin(state, agenda, slot)
    while len(agenda) > 0 and run.ended < until:
        now_s, _, action, subject = heappop(agenda)
        run.now_s = now_s
        if action == _UNIT_DONE:
            _unit_done(state, agenda, subject)
        elif action == _FLOWS_END:
            _drop_time(state, subject)
            ended = _end_flows(state, agenda)
            while len(ended) > 0:  # a heap: flows that end at the same time do so by number
                _unit_done(state, agenda, state.flows[heappop(ended)].unit)
        elif action == _LATENCY_OVER:
            _drop_time(state, subject)
            _start_next(state, agenda, subject)
        elif action == _LAUNCH_ENDS:
            _end(state, agenda, subject)
        elif action == _HOST_MOVES:
            _move(state, agenda, subject)
        elif action == _INFERENCE_BEGINS:
            _begin(state, agenda, subject)
