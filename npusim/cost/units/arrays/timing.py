"""Stalls of an order of the loops, and cycles before its first step and after its last.

A step is a cycle of the array. Each transfer between two levels recurs once per period. It may take a whole
period where the lower level has room for a second copy; else only the steps at the end of the period in which
the operand does not change. Transfers through one port add up: the *stall* of a port is their needed less
their allowed cycles, less slack that no other transfer of the port needs. Ports work in parallel, so the
longest stall counts. Source: L. Mei et al., "A Uniform Latency Model for DNN Accelerators with Diverse
Architectures and Dataflows", DATE 2022.

Before the first step all levels fill in turn; after the last the results pass out through all of them. The
spare cycles of a port carry a tensor that passes as a whole while the array works, the longest first, except
for the part in the level nearest to the PEs. A systolic array has a skew of a cycle for each PE of an axis.
Where folds do not overlap, each fold pays it, and the loading of a stationary operand too (A. Samajdar et
al., "A Systematic Methodology for Characterizing Scalability of DNN Accelerators using SCALE-Sim", ISPASS
2020).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npusim.arch.array import LEVELS, LOOPS_OF_AXIS
from npusim.compiling.kernels import compiled, compiled_making_arrays
from npusim.compiling.records import Floats, Ints
from npusim.cost.machine import spatial_array as spatial
from npusim.cost.machine.spatial_array import INPUTS, OPERAND_COUNT, OUTPUTS, WEIGHTS, ArrayRecord, NestOrder
from npusim.cost.units.arrays.allocation import FROM_ABOVE, FROM_BELOW, TO_ABOVE, TO_BELOW, Allocation

_PORTS = 4
"""Most ports of a level."""
_UPPER_PORT = OPERAND_COUNT
"""Where each operand has a port towards the PEs: the one port to the level above, behind these."""
_MOST = OPERAND_COUNT * LEVELS * 4
_SECOND_COPY_ORDER = np.array([OUTPUTS, INPUTS, WEIGHTS], np.int64)
"""Operands in the order in which they get space for a second copy."""


class Transfers(NamedTuple):
    """Recurring transfers through ports, one per place of the arrays unless stated."""

    port: Ints
    """Level times 4, plus the port of the level."""
    needed_cycles: Floats
    allowed_cycles: Floats
    period: Floats
    repeats: Floats
    rate: Floats
    least: Floats
    """Cycles of the part in the level nearest to the PEs."""
    link: Ints
    """Place of its link in `waits`; -1 for returning sums."""
    waits: Floats
    """Exposed cycles of each side of each link, see `link_index`."""
    has_room: Floats
    """1 where a level has room for a second copy of an operand, shape (operands, levels)."""
    taken_bits: Floats
    """Bits of each level that first copies take, and the second copies granted so far, shape (levels,)."""


@compiled_making_arrays
def new_transfers() -> Transfers:
    """Return empty storage for the transfers of one order."""
    t, port, link = np.ones((6, _MOST)), np.zeros(_MOST, np.int64), np.zeros(_MOST, np.int64)
    waits, has_room = np.zeros(2 * OPERAND_COUNT * LEVELS), np.zeros((OPERAND_COUNT, LEVELS))
    return Transfers(port, t[0], t[1], t[2], t[3], t[4], t[5], link, waits, has_room, np.zeros(LEVELS))


@compiled
def _find_room(order: NestOrder, work: Allocation, moves: Transfers) -> None:
    """Mark the levels that have room for a second copy of each operand (double buffering).

    In a level that first copies fill up to half, all operands fit twice. In a fuller one operands take room
    for a second copy one after the other (`_SECOND_COPY_ORDER`), while it lasts.
    """
    chain, depth, taken_bits = order.unrolling.chain, order.unrolling.depth, moves.taken_bits
    taken_bits[:] = 0.0
    for operand in range(OPERAND_COUNT):
        for place in range(depth[operand]):
            taken_bits[chain[operand, place]] += work.used_bits[operand, place]
    for operand in _SECOND_COPY_ORDER:
        for place in range(depth[operand]):
            level, used = chain[operand, place], work.used_bits[operand, place]
            capacity = order.machine.level_bits[level]
            moves.has_room[operand, place] = 1.0
            if taken_bits[level] > 0.5 * capacity:
                if used <= capacity - taken_bits[level]:
                    taken_bits[level] += used
                else:
                    moves.has_room[operand, place] = 0.0


@compiled
def _port_index(machine: ArrayRecord, level: int, operand: int, flow: int) -> int:
    """Return the index, among the ports of all levels, of the port that a flow of an operand occupies.

    A flow goes to or comes from the level below (nearer to the PEs) or above; what comes in is written.
    """
    kind, first = int(machine.level_ports[level]), level * _PORTS
    if kind == spatial.ONE_OF_EACH_OPERAND:  # one for each operand below, one for all operands above
        return first + (operand if flow in (TO_BELOW, FROM_BELOW) else _UPPER_PORT)
    if kind == spatial.ONE_PORT:  # one for all flows
        return first
    if kind == spatial.TWO_OF_EACH:  # a read port and a write port towards either level: one for each flow
        return first + flow
    is_write = flow in (FROM_BELOW, FROM_ABOVE)  # READ_AND_WRITE: one for all reads, one for all writes
    return first + (1 if is_write else 0)


@compiled
def _port_cycles(machine: ArrayRecord, level: int, bits: float) -> float:
    """Return the cycles in which a port of a level moves `bits`: whole words, several in parallel."""
    words = machine.level_words[level]
    return float(np.ceil(bits / machine.level_width_bits[level] * words) / words)


@compiled
def link_index(side: int, operand: int, place: int) -> int:
    """Return the place of the lower (0) or upper side (1) of a link in `Transfers.waits`."""
    return (side * OPERAND_COUNT + operand) * LEVELS + place


@compiled
def list_transfers(order: NestOrder, steps: float, outside: int, work: Allocation, moves: Transfers) -> int:
    """List the recurring transfers of an order between neighbouring levels; return their number.

    `steps` are the cycles of the nest without stalls. Where zeros are skipped, one step stands for several,
    and needs the operands of all. A transfer between two levels is listed at the port of either level, and
    once per direction. Transfers of the outermost `outside` levels (0, or 1: DRAM) are left out.
    """
    _find_room(order, work, moves)
    machine, unrolling, count = order.machine, order.unrolling, 0
    for operand in range(OPERAND_COUNT):
        is_output = operand == OUTPUTS
        passed = 1.0 if is_output else 1.0 / order.nest.kept
        nearest_bits = 0.0
        if unrolling.depth[operand] > 1:
            nearest_bits = work.below[1, operand, 1] * work.bits[operand, 1] * passed
        for place in range(unrolling.depth[operand] - outside):
            period = allowed = work.period[operand, place]
            if place > 0 and moves.has_room[operand, place - 1] == 0.0:
                allowed = np.floor(period / work.stays[operand, place - 1])
            sums_return = work.is_returned[operand, place] > 0.0
            for flow in range(4):
                is_upper = flow in (TO_BELOW, FROM_BELOW)
                is_outward = flow in (FROM_BELOW, TO_ABOVE)
                if (not is_upper and place == 0) or (
                    is_outward != is_output and not (is_output and sums_return)
                ):
                    continue
                level = unrolling.chain[operand, place if is_upper else place - 1]
                bits = work.below[1, operand, place] * work.bits[operand, place] * passed
                bits *= unrolling.feeds[1, operand, place] if is_upper else 1.0
                moves.port[count] = _port_index(machine, level, operand, flow)
                moves.needed_cycles[count] = _port_cycles(machine, level, bits)
                moves.allowed_cycles[count], moves.period[count] = allowed, period
                moves.repeats[count] = np.floor(steps / period)
                moves.rate[count] = bits / (machine.level_width_bits[level] * period)
                moves.least[count] = _port_cycles(machine, level, nearest_bits)
                is_returning = is_outward != is_output
                moves.link[count] = -1 if is_returning else link_index(1 if is_upper else 0, operand, place)
                count += 1
    return count


@compiled_making_arrays
def covered_cycles(moves: Transfers, members: Ints, count: int) -> float:
    """Return the cycles of the longest period in which some transfers of a port may happen.

    Transfers come longest period first; each may happen at the start of its period. The cycles of a length
    that transfers leave free are a sum over free cycles of shorter `lengths`, each with its count.
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
def _port_stall(moves: Transfers, members: Ints, count: int) -> float:
    """Return the stall of one port: needed less allowed cycles of its transfers, less usable slack."""
    excess_total = slack_total = windows = always = 0.0
    for m in range(count):
        i = members[m]
        excess = (moves.needed_cycles[i] - moves.allowed_cycles[i]) * (moves.repeats[i] - 1.0)
        if excess > 0.0:
            excess_total += excess
        else:
            slack_total += excess
        windows += moves.allowed_cycles[i] * (moves.repeats[i] - 1.0)
        if moves.period[i] == moves.allowed_cycles[i]:
            always = max(always, moves.period[i] * moves.repeats[i])
    if count == 1:
        return float(excess_total + slack_total)
    union = always
    if always == 0.0:
        longest = members[0]
        union = covered_cycles(moves, members, count) * moves.repeats[longest]
    return float(excess_total + max(0.0, slack_total + windows - union))


@compiled_making_arrays
def stall_cycles(machine: ArrayRecord, count: int, moves: Transfers) -> float:
    """Return the steady-state stall of the first `count` transfers: that of the slowest port."""
    members = np.zeros(count, np.int64)
    longest = 0.0
    for port in range(int(machine.levels) * _PORTS):
        port_members = 0
        for i in range(count):
            if moves.port[i] == port:
                place = port_members  # longest periods first
                while place > 0 and moves.period[members[place - 1]] < moves.period[i]:
                    members[place] = members[place - 1]
                    place -= 1
                members[place] = i
                port_members += 1
        if port_members > 0:
            longest = max(longest, _port_stall(moves, members, port_members))
    return longest


@compiled_making_arrays
def find_waits(busy: float, count: int, moves: Transfers) -> None:
    """Fill in `moves.waits`: the cycles of each link that `busy` cycles of work and stalls do not hide."""
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
        exposed = moves.needed_cycles[longest]
        if moves.repeats[longest] <= 1.0:
            port = moves.port[longest]
            hidden = max(0.0, min(exposed - moves.least[longest], spare[port]))
            spare[port] -= hidden
            exposed -= hidden
        moves.waits[moves.link[longest]] = exposed


@compiled
def _link_wait(moves: Transfers, operand: int, place: int) -> float:
    """Return the exposed cycles of the slower side of a link."""
    return float(max(moves.waits[link_index(0, operand, place)], moves.waits[link_index(1, operand, place)]))


@compiled
def first_fill_cycles(order: NestOrder, outside: int, moves: Transfers) -> float:
    """Return the cycles until weights and inputs are in all levels; common ports serve them in turn."""
    weights_shared, weights_alone = _fill_cycles(order, WEIGHTS, outside, moves)
    inputs_shared, inputs_alone = _fill_cycles(order, INPUTS, outside, moves)
    weights_first = weights_shared + max(inputs_shared + inputs_alone, weights_alone)
    inputs_first = inputs_shared + max(weights_shared + weights_alone, inputs_alone)
    return float(min(weights_first, inputs_first))


@compiled
def _fill_cycles(order: NestOrder, operand: int, outside: int, moves: Transfers) -> tuple[float, float]:
    """Return the cycles to fill all levels with one operand: (links shared with the other, other links)."""
    level_holds, chain, other = order.machine.level_holds, order.unrolling.chain, 1 - operand
    shared = alone = half = 0.0
    for place in range(1, order.unrolling.depth[operand] - outside):
        cycles = _link_wait(moves, operand, place)
        is_shared = level_holds[chain[operand, place] * OPERAND_COUNT + other] > 0.0
        is_shared_below = level_holds[chain[operand, place - 1] * OPERAND_COUNT + other] > 0.0
        if is_shared and is_shared_below:
            shared += cycles
        elif is_shared or is_shared_below:
            half = cycles
        else:
            alone += cycles
    return shared, alone + half


@compiled
def write_back_cycles(unrolling: spatial.Unrolling, outside: int, moves: Transfers) -> float:
    """Return the cycles in which the last results pass out through all levels."""
    total = 0.0
    for place in range(1, unrolling.depth[OUTPUTS] - outside):
        total += _link_wait(moves, OUTPUTS, place)
    return float(total)


@compiled
def skew_cycles(order: NestOrder) -> float:
    """Return the cycles in which the array fills and drains: skew, and loading of a stationary operand."""
    machine, skew = order.machine, 0.0
    if machine.is_systolic == 0.0:
        return 0.0
    if machine.is_serial == 0.0:
        for place in range(int(machine.axes) * LOOPS_OF_AXIS):
            skew += order.unrolling.lanes[place] - 1.0
        return float(np.ceil(skew))
    stays, folds, is_inside = int(machine.stationary), 1.0, True
    if stays < OPERAND_COUNT:
        for i in range(order.loops.shape[0]):
            is_inside = is_inside and spatial.is_irrelevant(stays, order.loops[i])
            folds *= 1.0 if is_inside else order.factors[i]
    for axis in range(int(machine.axes)):
        skew += machine.axis_pes[axis] - 1.0
    loading = machine.axis_pes[0] if stays in (WEIGHTS, INPUTS) else 0.0
    return float(folds * (skew + loading))
