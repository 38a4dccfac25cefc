"""Transfers and host traffic on shared memories, in time: max-min fairness divides bandwidth.

Flows are counted in seconds: what is left of a flow is the time it would take with all DMA engines at work
and nobody else. When one begins or ends, all speeds are worked out again and one timer is set for the next
end. DRAM limits them first, then each memory level that several devices share; what a level holds back is not
given to others on DRAM.
"""

from __future__ import annotations

from heapq import heappush
from typing import Any

import numpy as np

from npusim.cost import compiled, compiled_making_arrays
from npusim.engines.event.places import FLOWS, LATENCY, TIMERS, Places


@compiled_making_arrays
def after(real: Any, whole: Any, at: Places, agenda: Any, delay_s: float, action: int, what: int) -> None:
    """Ask for an action in so many seconds."""
    whole[at.actions] += 1
    heappush(agenda, (real[at.now] + delay_s, whole[at.actions], action, what))


@compiled
def set_timer(real: Any, whole: Any, at: Places, agenda: Any, timer: int, time_s: float) -> None:
    """Make sure that a timer's action is called at a time or before; timers of engines by unit, then DRAM."""
    depth = whole[at.timers + timer]
    first = at.timer_s + timer * TIMERS
    if depth == 0 or time_s < real[first + depth - 1]:
        place = min(depth, TIMERS - 1)
        real[first + place] = time_s
        whole[at.timers + timer] = place + 1
        action = FLOWS if timer == at.units else LATENCY
        after(real, whole, at, agenda, time_s - real[at.now], action, timer)


@compiled
def _advance(real: Any, whole: Any, at: Places) -> None:
    passed = real[at.now] - real[at.since]
    if passed > 0.0:
        for a in range(1, whole[at.active] + 1):
            flow = whole[at.active + a]
            real[at.left_s + flow] -= real[at.speed + flow] * passed
    real[at.since] = real[at.now]


@compiled
def _share(real: Any, whole: Any, at: Places, agenda: Any) -> None:
    """Divide the bandwidth again and set the timer for the next flow to end."""
    active, using = whole[at.active], 0
    for device in range(at.devices):
        whole[at.moving + device] = 0
    for a in range(1, active + 1):
        flow = whole[at.active + a]
        if whole[at.moves + flow]:
            home = at.moving + whole[at.home + flow]
            using += whole[home] == 0
            whole[home] += 1
    for a in range(1, active + 1):
        flow = whole[at.active + a]
        top = real[at.top + flow]
        real[at.speed + flow] = top
        if whole[at.moves + flow]:
            home = whole[at.home + flow]
            real[at.speed + flow] = min(top, whole[at.own_engines + home] / whole[at.moving + home])
    if whole[at.hosts_active] or using > 1:
        _fill(real, whole, at, at.rate, real[at.dram])
        for level in range(at.levels):
            _fill(real, whole, at, at.near + level * at.flows, real[at.level_bytes_per_s + level])
    bytes_per_s, soonest = 0.0, np.inf
    for a in range(1, active + 1):
        flow = whole[at.active + a]
        bytes_per_s += real[at.speed + flow] * real[at.rate + flow]
        soonest = min(soonest, real[at.left_s + flow] / real[at.speed + flow])
    _note_dram(real, whole, at, bytes_per_s)
    if active:
        set_timer(real, whole, at, agenda, at.units, real[at.now] + max(soonest, 0.0))


@compiled
def _fill(real: Any, whole: Any, at: Places, rates: int, left: float) -> None:
    """Limit flows to a memory's bandwidth by max-min fairness: an equal share each, or the demand.

    Parameters
    ----------
    rates : int
        Where the bytes per second begin that each flow asks of the memory at speed 1.
    left : float
        What the memory moves (bytes/s).
    """
    count, flows = 0, at.asked + whole[at.active]
    for a in range(1, whole[at.active] + 1):
        flow = whole[at.active + a]
        if real[rates + flow] > 0.0:
            wanted, place = real[at.speed + flow] * real[rates + flow], count
            while place > 0 and (real[at.asked + place - 1], real[flows + place - 1]) > (wanted, float(flow)):
                real[at.asked + place] = real[at.asked + place - 1]
                real[flows + place] = real[flows + place - 1]
                place -= 1
            real[at.asked + place], real[flows + place] = wanted, float(flow)
            count += 1
    for place in range(count):
        flow = int(real[flows + place])
        given = min(real[at.asked + place], left / (count - place))
        real[at.speed + flow] = given / real[rates + flow]
        left -= given


@compiled
def _note_dram(real: Any, whole: Any, at: Places, bytes_per_s: float) -> None:
    """Note the traffic from now on; what came and went at one time never was."""
    entries, now = whole[at.dram_entries], real[at.now]
    if entries and real[at.dram_time + entries - 1] == now:
        real[at.dram_bytes_per_s + entries - 1] = bytes_per_s
    elif not entries or real[at.dram_bytes_per_s + entries - 1] != bytes_per_s:
        real[at.dram_time + entries], real[at.dram_bytes_per_s + entries] = now, bytes_per_s
        whole[at.dram_entries] += 1


@compiled
def begin_flow(
    real: Any, whole: Any, at: Places, agenda: Any, flow: int, seconds: float, top: float, rate: float
) -> None:
    """Start a flow: seconds at speed 1, how much faster it may be, bytes of DRAM per second at speed 1."""
    _advance(real, whole, at)
    real[at.left_s + flow], real[at.top + flow], real[at.rate + flow] = seconds, top, rate
    whole[at.active] += 1
    whole[at.active + whole[at.active]] = flow
    if flow >= at.engines:
        whole[at.hosts_active] += 1
    _share(real, whole, at, agenda)


@compiled
def end_flows(real: Any, whole: Any, at: Places, agenda: Any) -> int:
    """End the flows that nothing is left of; return how many, which lie in order at `ended_flows`."""
    _advance(real, whole, at)
    # Rounding must not leave a sliver: what ends within a few units in the last place ends now.
    sliver = 8.0 * np.spacing(real[at.now])
    ended = kept = 0
    for a in range(1, whole[at.active] + 1):
        flow = whole[at.active + a]
        if real[at.left_s + flow] <= sliver * real[at.speed + flow]:
            place = ended
            while place > 0 and whole[at.ended_flows + place - 1] > flow:
                whole[at.ended_flows + place] = whole[at.ended_flows + place - 1]
                place -= 1
            whole[at.ended_flows + place] = flow
            ended += 1
            if flow >= at.engines:
                whole[at.hosts_active] -= 1
        else:
            kept += 1
            whole[at.active + kept] = flow
    whole[at.active] = kept
    _share(real, whole, at, agenda)
    return ended
