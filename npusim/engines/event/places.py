"""Where the numbers of a run lie, all in one array of reals and one of whole numbers."""

from __future__ import annotations

from typing import NamedTuple

from npusim.engines.timeline import TaskKind

COMPUTE, ENGINE, HOST = range(3)
"""Kinds of units: a task takes its time; a flow follows a latency; a flow follows a fixed part."""
DONE, MOVE, LATENCY, FLOWS, END, BEGIN = range(6)
"""Actions: a unit's task ends; a host's flow starts; an engine's latency is over; flows end; a launch ends;
an inference begins."""
TIMERS = 16
"""Times that a timer is set to at once; of more the latest are forgotten, but called all the same."""
KINDS = 1 + max(int(kind) for kind in TaskKind)


class Places(NamedTuple):
    """Where the columns of a run begin; first what is one number, then reals, then whole numbers."""

    tasks: int
    """Tasks of an inference."""
    inferences: int
    room: int
    """Actions that are kept where a run is left to be taken up again."""
    contexts: int
    """Contexts of all array devices."""
    devices: int
    """Array devices."""
    units: int
    engines: int
    """Flows up to here are those of DMA engines, the others hosts'."""
    flows: int
    levels: int
    """Memory levels that devices share."""
    buffers: int
    sources: int
    """Tasks that wait for nothing."""
    reserves: int
    """Room for reservations that wait, in each context."""
    enters: int
    """Room for phases that wait to enter."""
    now: int
    since: int
    """Since when the flows move as they do (s)."""
    capacity: int
    """Bytes of SRAM of each context."""
    dram: int
    """What DRAM sustains (bytes/s)."""
    level_bytes_per_s: int
    """What each shared level moves."""
    peak: int
    """Most bytes of SRAM in use at any time in one context."""
    duration_s: int
    fixed_s: int
    bytes: int
    shared_bytes: int
    """Of a task: bytes of the shared level of its device."""
    buffer_bytes: int
    top_speed: int
    """Of each device by kind of task: how much faster one engine moves alone."""
    free_bytes: int
    sram_since_s: int
    sram_before: int
    left_s: int
    speed: int
    top: int
    rate: int
    near: int
    """Bytes per second of each shared level by flow, at speed 1."""
    asked: int
    """Bytes per second that a flow asks for, and as many places for the flows."""
    pending_s: int
    timer_s: int
    ready_s: int
    start_s: int
    end_s: int
    begun_s: int
    ended_s: int
    sram_time: int
    sram_bytes: int
    dram_time: int
    dram_bytes_per_s: int
    kept_s: int
    """Times of the actions that are kept."""
    actions: int
    """Actions that were asked for."""
    kept: int
    """Actions that are kept: how many, then of each what was asked for before it, which, and about what."""
    begun: int
    ended: int
    active: int
    """Flows that move: how many, then which."""
    hosts_active: int
    sram_entries: int
    dram_entries: int
    entering: int
    """Phases that wait to enter, for each device: first, end, then which."""
    stacked: int
    """Tasks that are ready: how many, then which."""
    kind: int
    unit: int
    next_start: int
    next_task: int
    free_start: int
    free_buffer: int
    source: int
    on_dram: int
    """Of each device by kind of task: whether it moves over DRAM."""
    stride: int
    unit_kind: int
    flow: int
    """Of a unit."""
    unit_of: int
    """Of a flow."""
    waits: int
    users: int
    context: int
    """Of an inference on each device."""
    device: int
    """Of a task."""
    buffer_owner: int
    freed: int
    """Scratch, for each context."""
    first_context: int
    """Of each device; one entry more than devices."""
    home: int
    """Device of an engine."""
    own_engines: int
    """Of each device."""
    level_of: int
    """Shared level of each device; -1: none."""
    moves: int
    """Of a flow: whether it shares the engines of its device with others, from or to DRAM or a level."""
    moving: int
    """Scratch, for each device."""
    is_open: int
    is_seen: int
    current: int
    heap_start: int
    """Where the ready tasks of a unit lie in `heap`; one entry more than units."""
    heap_size: int
    heap: int
    pending_first: int
    pending_end: int
    pending: int
    """Transfers of an engine whose latency runs, in a ring, the first to be over first."""
    timers: int
    woken: int
    reserved: int
    """Reservations that wait, for each context: first, end, then which."""
    ended_flows: int
    cause: int
    log_unit: int
    slot: int
