"""Stalls of an order of the loops, and cycles before its first step and after its last.

A step is a cycle of the array. Each transfer between two levels recurs once per period. It may take a whole
period where the lower level has room for a second copy; else it waits for the steps at the end of the period
in which the operand does not change. Transfers that share a port add up: the port's *stall* is their needed
less their allowed cycles, less slack that no other transfer of the port needs. Ports work side by side, so
the longest stall counts. Source: L. Mei et al., "A Uniform Latency Model for DNN Accelerators with Diverse
Architectures and Dataflows", DATE 2022.

Before the first step all levels are filled, one after the other; after the last the results pass out through
all of them. The spare cycles of a port carry a tensor that passes as a whole while the array works, the
longest first, except for the part that the level nearest to the PEs holds. An array that hands operands on
from PE to PE has a skew of a cycle for each PE of an axis. Where folds do not overlap, each fold pays it, and
the loading of a stationary operand too (A. Samajdar et al., "A Systematic Methodology for Characterizing
Scalability of DNN Accelerators using SCALE-Sim", ISPASS 2020).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.arch.array import LEVELS, LOOPS_OF_AXIS
from npusim.cost.arrays.allocation import FROM_ABOVE, FROM_BELOW, TO_ABOVE, TO_BELOW, Links
from npusim.cost.arrays.nest import (
    INPUTS,
    ONE_PORT,
    OPERAND_COUNT,
    OUTPUTS,
    TWO_OF_EACH,
    WEIGHTS,
    ArrayRecord,
    Unrolling,
    is_irrelevant,
)
from npusim.cost.kernels import compiled, compiled_making_arrays
from npusim.cost.records import Floats

_PORTS = 4
_MOST = OPERAND_COUNT * LEVELS * 4
_ORDER = np.array([OUTPUTS, INPUTS, WEIGHTS], np.int64)
"""Which operand is given room for a second copy first."""


class Transfers(NamedTuple):
    """Recurring transfers through ports; arrays of shape (most,)."""

    port: Any
    """Port: level times 4, and the port of the level."""
    needed_cycles: Floats
    """Cycles that one takes."""
    allowed_cycles: Floats
    """Cycles that it may take."""
    period: Any
    """Steps after which it recurs."""
    repeats: Floats
    """How often it happens."""
    rate: Any
    """Share of the port's time that it takes on average."""
    least: Any
    """Cycles that the part takes which the level nearest to the PEs holds."""
    link: Any
    """Side, operand and place of the link that it is part of, as an index of `waits`; -1 for sums that come
    back."""
    waits: Any
    """Cycles of each link's lower and upper side that nothing hides, shape (2 * operands * levels,)."""
    has_room: Any
    """Whether a level has room for a second copy of an operand, shape (operands, levels)."""
    second_bits: Any
    """Bits in use in each level, second copies included, shape (LEVELS,)."""


@compiled_making_arrays
def new_transfers() -> Transfers:
    """Return room for the transfers of one order."""
    return Transfers(
        np.zeros(_MOST, np.int64),
        np.zeros(_MOST),
        np.zeros(_MOST),
        np.ones(_MOST),
        np.zeros(_MOST),
        np.zeros(_MOST),
        np.zeros(_MOST),
        np.zeros(_MOST, np.int64),
        np.zeros(2 * OPERAND_COUNT * LEVELS),
        np.zeros((OPERAND_COUNT, LEVELS)),
        np.zeros(LEVELS),
    )


@compiled
def _find_room(machine: ArrayRecord, unrolling: Unrolling, links: Links, moves: Transfers) -> None:
    """Find which level has room for a second copy of which operand."""
    moves.second_bits[:] = 0.0
    for operand in range(OPERAND_COUNT):
        for place in range(unrolling.depth[operand]):
            moves.second_bits[unrolling.chain[operand, place]] += links.used_bits[operand, place]
    for operand in _ORDER:
        for place in range(unrolling.depth[operand]):
            level = unrolling.chain[operand, place]
            capacity, used = machine.level_bits[level], links.used_bits[operand, place]
            if moves.second_bits[level] <= 0.5 * capacity:
                moves.has_room[operand, place] = 1.0
            elif used <= capacity - moves.second_bits[level]:
                moves.has_room[operand, place] = 1.0
                moves.second_bits[level] += used
            else:
                moves.has_room[operand, place] = 0.0


@compiled
def _port(machine: ArrayRecord, level: int, flow: int) -> int:
    kind = int(machine.level_ports[level])
    if kind == ONE_PORT:
        return level * _PORTS
    if kind == TWO_OF_EACH:
        return level * _PORTS + flow
    return level * _PORTS + (1 if flow in (FROM_BELOW, FROM_ABOVE) else 0)


@compiled
def port_cycles(machine: ArrayRecord, level: int, bits: float) -> float:
    """Return the cycles of a level's port that so many bits take: whole words, several side by side."""
    words = machine.level_words[level]
    return float(np.ceil(bits / machine.level_width_bits[level] * words) / words)


@compiled
def link_cycles(
    machine: ArrayRecord, unrolling: Unrolling, links: Links, operand: int, place: int
) -> tuple[float, float]:
    """Return the cycles that a transfer takes at the lower and at the upper level."""
    bits = links.held[1, operand, place] * links.bits[operand, place]
    level = unrolling.chain[operand, place]
    high = port_cycles(machine, level, bits * unrolling.feeds[1, operand, place])
    if place == 0:
        return 0.0, high
    return port_cycles(machine, unrolling.chain[operand, place - 1], bits), high


@compiled
def link_index(side: int, operand: int, place: int) -> int:
    """Return the place of a link's lower (0) or upper side (1) among `Transfers.waits`."""
    return (side * OPERAND_COUNT + operand) * LEVELS + place


@compiled
def list_transfers(
    machine: ArrayRecord, unrolling: Unrolling, steps: float, outside: int, links: Links, moves: Transfers
) -> int:
    """List all transfers but those of the links to `outside` levels (0, or 1: DRAM); return how many."""
    _find_room(machine, unrolling, links, moves)
    count = 0
    for operand in range(OPERAND_COUNT):
        is_output = operand == OUTPUTS
        nearest = 0.0
        if unrolling.depth[operand] > 1:
            nearest = links.held[1, operand, 1] * links.bits[operand, 1]
        for place in range(unrolling.depth[operand] - outside):
            low, high = link_cycles(machine, unrolling, links, operand, place)
            period = links.period[operand, place]
            may = period
            if place > 0 and moves.has_room[operand, place - 1] == 0.0:
                may = np.floor(period / links.stays[operand, place - 1])
            returned = links.is_returned[operand, place] > 0.0
            level = unrolling.chain[operand, place]
            for flow in range(4):
                is_upper = flow in (TO_BELOW, FROM_BELOW)
                is_up = flow in (FROM_BELOW, TO_ABOVE)
                if (not is_upper and place == 0) or (is_up != is_output and not (is_output and returned)):
                    continue
                at = level if is_upper else unrolling.chain[operand, place - 1]
                moves.port[count] = _port(machine, at, flow)
                moves.needed_cycles[count] = high if is_upper else low
                moves.allowed_cycles[count], moves.period[count] = may, period
                moves.repeats[count] = np.floor(steps / period)
                bits = links.held[1, operand, place] * links.bits[operand, place]
                bits *= unrolling.feeds[1, operand, place] if is_upper else 1.0
                moves.rate[count] = bits / (machine.level_width_bits[at] * period)
                moves.least[count] = port_cycles(machine, at, nearest)
                is_back = is_up != is_output
                moves.link[count] = -1 if is_back else link_index(1 if is_upper else 0, operand, place)
                count += 1
    return count


@compiled_making_arrays
def covered_cycles(moves: Transfers, members: Any, count: int) -> float:
    """Cycles of the longest period in which some of a port's transfers may happen.

    Transfers come longest period first; each may happen at the start of its period. What is left free in
    some length by the transfers from one on is a sum over what is left free in other lengths by those after
    it; `lengths` are these, each with how often it counts.
    """
    lengths, counts = np.zeros(2 * count + 2), np.zeros(2 * count + 2)
    longest = moves.period[members[0]]
    lengths[0], counts[0], terms = longest, 1.0, 1
    for m in range(count):
        period, may = moves.period[members[m]], moves.allowed_cycles[members[m]]
        whole = starts = 0.0
        for t in range(terms):
            rounds = np.floor(lengths[t] / period)
            rest = lengths[t] - rounds * period
            whole += counts[t] * rounds
            if rest > may:
                starts += counts[t]
                lengths[t] = rest
            else:
                lengths[t] = counts[t] = 0.0
        lengths[terms], counts[terms] = period, whole
        lengths[terms + 1], counts[terms + 1] = may, -(whole + starts)
        terms += 2
    free = 0.0
    for t in range(terms):
        free += lengths[t] * counts[t]
    return float(longest - free)


@compiled
def _port_stall(moves: Transfers, members: Any, count: int) -> float:
    """Cycles that the transfers through one port take beyond what they may."""
    late = spare = windows = 0.0
    always = 0.0
    for m in range(count):
        i = members[m]
        beyond = (moves.needed_cycles[i] - moves.allowed_cycles[i]) * (moves.repeats[i] - 1.0)
        if beyond > 0.0:
            late += beyond
        else:
            spare += beyond
        windows += moves.allowed_cycles[i] * (moves.repeats[i] - 1.0)
        if moves.period[i] == moves.allowed_cycles[i]:
            always = max(always, moves.period[i] * moves.repeats[i])
    if count == 1:
        return float(late + spare)
    union = always
    if always == 0.0:
        longest = members[0]
        union = covered_cycles(moves, members, count) * moves.repeats[longest]
    return float(late + max(0.0, spare + windows - union))


@compiled_making_arrays
def stall_cycles(machine: ArrayRecord, count: int, moves: Transfers) -> float:
    """Cycles of waiting in the steady state, for so many transfers that have been listed."""
    members = np.zeros(count, np.int64)
    longest = 0.0
    for port in range(int(machine.levels) * _PORTS):
        mine = 0
        for i in range(count):
            if moves.port[i] == port:
                place = mine  # longest periods first
                while place > 0 and moves.period[members[place - 1]] < moves.period[i]:
                    members[place] = members[place - 1]
                    place -= 1
                members[place] = i
                mine += 1
        if mine > 0:
            longest = max(longest, _port_stall(moves, members, mine))
    return longest


@compiled_making_arrays
def find_waits(machine: ArrayRecord, busy: float, count: int, moves: Transfers) -> None:
    """Fill in the cycles of each link that nothing hides, for so many transfers that have been listed.

    Parameters
    ----------
    busy : float
        Cycles of work, stalls included.
    """
    moves.waits[:] = 0.0
    spare = np.full(_PORTS * LEVELS, busy)
    for i in range(count):
        if moves.link[i] >= 0 and moves.repeats[i] > 1.0:
            spare[moves.port[i]] -= busy * moves.rate[i]
    is_done = np.zeros(count, np.bool_)
    for _ in range(count):
        longest = -1
        for i in range(count):
            if not is_done[i] and (longest < 0 or moves.needed_cycles[i] > moves.needed_cycles[longest]):
                longest = i
        is_done[longest] = True
        if moves.link[longest] < 0:
            continue
        takes = moves.needed_cycles[longest]
        if moves.repeats[longest] <= 1.0:
            port = moves.port[longest]
            hidden = max(0.0, min(takes - moves.least[longest], spare[port]))
            spare[port] -= hidden
            takes -= hidden
        moves.waits[moves.link[longest]] = takes


@compiled
def _link_wait(moves: Transfers, operand: int, place: int) -> float:
    """Cycles of a link that nothing hides: those of its slower side."""
    return float(max(moves.waits[link_index(0, operand, place)], moves.waits[link_index(1, operand, place)]))


@compiled_making_arrays
def first_fill_cycles(machine: ArrayRecord, unrolling: Unrolling, outside: int, moves: Transfers) -> float:
    """Cycles until weights and inputs have arrived in all levels; what shares ports on both sides waits."""
    shared, alone = np.zeros(2), np.zeros(2)
    for operand in (WEIGHTS, INPUTS):
        half = 0.0
        for place in range(1, unrolling.depth[operand] - outside):
            takes = _link_wait(moves, operand, place)
            level, below = unrolling.chain[operand, place], unrolling.chain[operand, place - 1]
            other = 1 - operand
            is_shared = machine.level_holds[level * OPERAND_COUNT + other] > 0.0
            is_shared_below = machine.level_holds[below * OPERAND_COUNT + other] > 0.0
            if is_shared and is_shared_below:
                shared[operand] += takes
            elif is_shared or is_shared_below:
                half = takes
            else:
                alone[operand] += takes
        alone[operand] += half
    weights_first = shared[0] + max(shared[1] + alone[1], alone[0])
    inputs_first = shared[1] + max(shared[0] + alone[0], alone[1])
    return float(min(weights_first, inputs_first))


@compiled
def write_back_cycles(unrolling: Unrolling, outside: int, moves: Transfers) -> float:
    """Cycles in which the last results pass out through all levels."""
    total = 0.0
    for place in range(1, unrolling.depth[OUTPUTS] - outside):
        total += _link_wait(moves, OUTPUTS, place)
    return float(total)


@compiled
def skew_cycles(machine: ArrayRecord, unrolling: Unrolling, loops: Any, factors: Any) -> float:
    """Cycles in which the array fills and drains: skew, and loading what stays."""
    if machine.is_systolic == 0.0:
        return 0.0
    if machine.is_serial == 0.0:
        skew = 0.0
        for place in range(int(machine.axes) * LOOPS_OF_AXIS):
            skew += unrolling.lanes[place] - 1.0
        return float(np.ceil(skew))
    stays, folds, is_inside = int(machine.stationary), 1.0, True
    if stays < OPERAND_COUNT:
        for i in range(loops.shape[0]):
            is_inside = is_inside and is_irrelevant(stays, loops[i])
            folds *= 1.0 if is_inside else factors[i]
    skew = 0.0
    for axis in range(int(machine.axes)):
        skew += machine.axis_pes[axis] - 1.0
    loading = machine.axis_pes[0] if stays in (WEIGHTS, INPUTS) else 0.0
    return float(folds * (skew + loading))
