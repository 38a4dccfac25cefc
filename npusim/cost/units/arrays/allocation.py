"""Allocation of one order of the loops to memory levels, with its traffic and energy.

Going outwards, a level holds as many of the remaining loops of each operand as fit. Where operands share a
level, it holds the combination that leaves the fewest bits to move from the next level. Holding more never
moves more, so no smaller part is tried. A loop that an operand does not depend on, and that comes next, moves
nothing.

Traffic. The content of a lower level is moved once per *period*: the steps of all loops inside it. An
instance supplies the different elements that all instances below it need; lanes with the same element share
one access. Accesses have whole words, or the least part of a word that a level can access. Unfinished outputs
are written up and read again, in the width of partial sums; the first read of a sum counts too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npusim.arch.array import LEVELS, LOOPS_OF_AXIS
from npusim.compiling.kernels import compiled, compiled_making_arrays
from npusim.compiling.records import Floats, Ints
from npusim.cost.machine import spatial_array as spatial
from npusim.cost.machine.spatial_array import LOOP_COUNT, OPERAND_COUNT, OUTPUTS, ArrayRecord, NestOrder

MOST_LOOPS = 9
"""Most factors in an order, plus one."""
TO_BELOW, FROM_BELOW, TO_ABOVE, FROM_ABOVE = range(4)
FLOWS = 4


class Allocation(NamedTuple):
    """Factors in each level, and transfers between each level of an operand and the one below it.

    Arrays have shape (operands, levels) unless stated.
    """

    cuts: Ints
    """Factors that a level and those below it hold."""
    choice_bits: Floats
    """Bits that a level needs for more factors, shape (operands, MOST_LOOPS)."""
    choice_moved: Floats
    """Bits that the next level would then move, shape (operands, MOST_LOOPS)."""
    choices: Ints
    """Numbers of factors that fit, shape (operands,)."""
    loops_held: Ints
    """Factors allocated so far, shape (operands,)."""
    next_cut: Ints
    """Levels allocated so far: the next column of `cuts`, shape (operands,)."""
    steps: Floats
    """Scratch: steps of a part of the nest, shape (loops,)."""
    below: Floats
    """Elements in an instance below: average lanes, whole lanes; shape (2, operands, levels)."""
    period: Floats
    """Steps between two transfers."""
    bits: Floats
    """Bits of an element."""
    is_returned: Floats
    """1 where partial sums come back."""
    used_bits: Floats
    """Bits that must stay in the level while its outermost loops exchange the rest."""
    stays: Floats
    """Steps at the end of a period in which the content of the level does not change."""
    billed_bits: Floats
    """Bits of all accesses by flow, shape (operands, levels, FLOWS)."""


@compiled_making_arrays
def new_allocation() -> Allocation:
    """Return empty storage for an allocation."""
    # Rows in the order of the fields, those of equal shapes together.
    cuts, operands = np.zeros((OPERAND_COUNT, LEVELS), np.int64), np.zeros((3, OPERAND_COUNT), np.int64)
    c, t = np.zeros((2, OPERAND_COUNT, MOST_LOOPS)), np.zeros((5, OPERAND_COUNT, LEVELS))
    steps, below = np.ones(LOOP_COUNT), np.ones((2, OPERAND_COUNT, LEVELS))
    billed = np.zeros((OPERAND_COUNT, LEVELS, FLOWS))
    t[:2] = t[4:] = 1.0
    choices, loops_held, next_cut = operands[0], operands[1], operands[2]
    return Allocation(
        cuts, c[0], c[1], choices, loops_held, next_cut, steps, below, t[0], t[1], t[2], t[3], t[4], billed
    )


@compiled
def _fill_steps(order: NestOrder, level: int, count: int, is_whole: bool, steps: Floats) -> None:
    """Write the steps of each loop in one instance of a level: its `count` innermost factors, its lanes."""
    steps[:] = 1.0
    for i in range(count):
        steps[order.loops[i]] *= order.factors[i]
    spatial.add_lanes(order.machine, order.unrolling.lanes, level, -1, is_whole, steps)


@compiled
def _has_sums_left(order: NestOrder, level: int, first: int) -> bool:
    """Return whether outputs in a level are partial sums: factors from `first` on or lanes outside add."""
    machine = order.machine
    for i in range(first, order.loops.shape[0]):
        if spatial.is_irrelevant(OUTPUTS, order.loops[i]):
            return True
    for axis in range(int(machine.axes)):
        if not spatial.is_inside(machine, level, axis):
            for place in range(axis * LOOPS_OF_AXIS, (axis + 1) * LOOPS_OF_AXIS):
                loop = int(machine.axis_loops[place])
                if loop >= 0 and order.unrolling.lanes[place] > 1.0 and spatial.is_irrelevant(OUTPUTS, loop):
                    return True
    return False


@compiled
def _holds(machine: ArrayRecord, level: int, operand: int) -> bool:
    """Return whether a level stores an operand."""
    return bool(machine.level_holds[level * OPERAND_COUNT + operand] > 0.0)


@compiled
def _add_cuts(machine: ArrayRecord, level: int, work: Allocation) -> None:
    """Write the loops that a level and those inside it hold, for each operand that it stores."""
    for operand in range(OPERAND_COUNT):
        if _holds(machine, level, operand):
            work.cuts[operand, work.next_cut[operand]] = work.loops_held[operand]
            work.next_cut[operand] += 1


@compiled
def allocate(order: NestOrder, work: Allocation) -> bool:
    """Write to `work.cuts` how many innermost loops of an order each level holds of each operand.

    From the innermost level outwards each holds what leaves the fewest bits to move. Returns False where a
    level cannot hold even the operands of the lanes that work in parallel.
    """
    machine, outermost = order.machine, int(order.machine.levels) - 1
    work.loops_held[:] = 0
    work.next_cut[:] = 0
    for level in range(outermost):
        for operand in range(OPERAND_COUNT):
            if _holds(machine, level, operand):
                if not _list_choices(order, level, operand, work):
                    return False
            else:  # the only choice is to hold no further loop, in no bits
                work.choices[operand] = 1
                work.choice_bits[operand, 0] = work.choice_moved[operand, 0] = 0.0
        if not _choose(machine.level_bits[level], work):
            return False
        _add_cuts(machine, level, work)
    work.loops_held[:] = order.loops.shape[0]  # the outermost level holds whole tensors
    _add_cuts(machine, outermost, work)
    _keep_what_stays(order, work)
    return True


@compiled
def _list_choices(order: NestOrder, level: int, operand: int, work: Allocation) -> bool:
    """List how many factors of an operand a level can hold; return False where not even its lanes fit."""
    machine, loops, factors, steps = order.machine, order.loops, order.factors, work.steps
    count, first = loops.shape[0], work.loops_held[operand]
    bits = order.nest.bits[operand]
    if operand == OUTPUTS and _has_sums_left(order, level, first):
        bits = order.nest.bits[OPERAND_COUNT]
    _fill_steps(order, level, count, False, steps)
    whole_bits = spatial.operand_elements(order.nest, operand, steps) * bits
    transfers_left = 1.0
    for i in range(first, count):
        transfers_left *= factors[i]
    choices = 0
    _fill_steps(order, level, first, False, steps)
    for held in range(first, count + 1):
        if held > first:
            steps[loops[held - 1]] *= factors[held - 1]
            transfers_left /= factors[held - 1]
        size = spatial.operand_elements(order.nest, operand, steps) * bits
        if held < count and size < whole_bits:
            size *= machine.level_copies[level]
        if size > machine.level_bits[level]:
            break
        work.choice_bits[operand, choices], work.choice_moved[operand, choices] = size, transfers_left * size
        choices += 1
    work.choices[operand] = choices
    return bool(choices > 0)


@compiled
def _choose(capacity: float, work: Allocation) -> bool:
    """Choose the factors of all operands that fit with the fewest bits to move; False where none fit."""
    least, best = np.inf, -1
    second, third = work.choices[1], work.choices[2]
    for combination in range(work.choices[0] * second * third):
        a, b, c = combination // (second * third), combination // third % second, combination % third
        bits = work.choice_bits[0, a] + work.choice_bits[1, b] + work.choice_bits[2, c]
        moved = work.choice_moved[0, a] + work.choice_moved[1, b] + work.choice_moved[2, c]
        if bits <= capacity and moved <= least:
            least, best = moved, combination
    if best < 0:
        return False
    work.loops_held[0] += best // (second * third)
    work.loops_held[1] += best // third % second
    work.loops_held[2] += best % third
    return True


@compiled
def _keep_what_stays(order: NestOrder, work: Allocation) -> None:
    """Extend what each level holds of an operand over the next loops that do not change it.

    The same content serves all of their steps, so this takes no more bits.
    """
    loops, depth = order.loops, order.unrolling.depth
    for operand in range(OPERAND_COUNT):
        for place in range(depth[operand] - 1):
            held = work.cuts[operand, place]
            while held < loops.shape[0] and spatial.is_irrelevant(operand, loops[held]):
                held += 1
            work.cuts[operand, place] = held
        for place in range(1, depth[operand]):
            work.cuts[operand, place] = max(work.cuts[operand, place], work.cuts[operand, place - 1])


@compiled
def fill_links(order: NestOrder, work: Allocation) -> None:
    """Fill in the transfers between levels of an allocated order: elements, bits and period."""
    unrolling = order.unrolling
    for operand in range(OPERAND_COUNT):
        for place in range(unrolling.depth[operand]):
            held_below = 0 if place == 0 else work.cuts[operand, place - 1]
            work.bits[operand, place] = order.nest.bits[operand]
            work.is_returned[operand, place] = 0.0
            if operand == OUTPUTS and _has_sums_left(order, unrolling.chain[operand, place], held_below):
                work.bits[operand, place] = order.nest.bits[OPERAND_COUNT]
                work.is_returned[operand, place] = 1.0
            if place == 0:
                work.below[:, operand, 0] = 1.0
                work.period[operand, 0] = _steps_of_one_element(order, operand, work)
                continue
            below = unrolling.chain[operand, place - 1]
            for is_whole in range(2):
                _fill_steps(order, below, held_below, is_whole == 1, work.steps)
                elements = spatial.operand_elements(order.nest, operand, work.steps)
                work.below[is_whole, operand, place] = max(1.0, elements)
            period = 1.0
            for i in range(held_below):
                period *= order.factors[i]
            work.period[operand, place] = period
            _fill_exchange(order, operand, place, work)


@compiled
def _steps_of_one_element(order: NestOrder, operand: int, work: Allocation) -> float:
    """Return the steps for which a PE uses one weight or input; 1 for sums and for serial folds."""
    stays, loops = int(order.machine.stationary), order.loops
    if operand == OUTPUTS or stays == spatial.NONE_STAYS:
        return 1.0
    steps, is_serial = 1.0, order.machine.is_serial > 0.0
    for i in range(work.cuts[operand, 0]):
        is_next_fold = is_serial and stays < OPERAND_COUNT and not spatial.is_irrelevant(stays, loops[i])
        if is_next_fold or not spatial.is_irrelevant(operand, loops[i]):
            break
        steps *= order.factors[i]
    return steps


@compiled
def _fill_exchange(order: NestOrder, operand: int, place: int, work: Allocation) -> None:
    """Fill in the bits of the level below that are in use while it exchanges its content, and its steps."""
    first, last = 0 if place == 1 else work.cuts[operand, place - 2], work.cuts[operand, place - 1] - 1
    indexed = unchanged = 1.0
    i = last
    while i >= first and spatial.is_index(operand, order.loops[i]):
        indexed *= order.factors[i]
        i -= 1
    i = last
    while i >= first and spatial.is_irrelevant(operand, order.loops[i]):
        unchanged *= order.factors[i]
        i -= 1
    bits = work.below[0, operand, place] * work.bits[operand, place]
    work.used_bits[operand, place - 1] = np.floor(bits / indexed)
    work.stays[operand, place - 1] = unchanged


@compiled
def _billed(bits: float, least: float) -> float:
    """Return the bits of an access, rounded up to whole parts of a word."""
    return float(np.ceil(bits / least - 1e-9) * least)


@compiled
def fill_traffic(order: NestOrder, steps: float, work: Allocation) -> None:
    """Fill in the bits of all accesses in an order of `steps` steps."""
    unrolling, least_bits, billed = order.unrolling, order.machine.level_least_bits, work.billed_bits
    billed[:] = 0.0
    for operand in range(OPERAND_COUNT):
        is_output = operand == OUTPUTS
        for place in range(unrolling.depth[operand]):
            level = unrolling.chain[operand, place]
            transfers = np.floor(steps / work.period[operand, place])
            low = work.below[0, operand, place] * work.bits[operand, place]
            high = low * unrolling.feeds[0, operand, place]
            above = transfers * unrolling.instances[operand, place] * _billed(high, least_bits[level])
            is_read = not is_output or work.is_returned[operand, place] > 0.0
            if is_output:
                billed[operand, place, FROM_BELOW] = above
            if is_read:
                billed[operand, place, TO_BELOW] = above
            if place > 0:
                below = transfers * unrolling.instances[operand, place - 1]
                below *= _billed(low, least_bits[unrolling.chain[operand, place - 1]])
                if is_output:
                    billed[operand, place - 1, TO_ABOVE] = below
                if is_read:
                    billed[operand, place - 1, FROM_ABOVE] = below


@compiled
def energy_j(order: NestOrder, work: Allocation) -> float:
    """Return the energy of an order (J): multiply-accumulates, and accesses to all levels."""
    machine, unrolling = order.machine, order.unrolling
    total = machine.mac_j * spatial.multiply_accumulates(order.nest)
    for operand in range(OPERAND_COUNT):
        for place in range(unrolling.depth[operand]):
            level, flows = unrolling.chain[operand, place], work.billed_bits[operand, place]
            read_j = (flows[TO_BELOW] + flows[TO_ABOVE]) * machine.level_read_j[level]
            total += read_j + (flows[FROM_BELOW] + flows[FROM_ABOVE]) * machine.level_write_j[level]
    return float(total)
