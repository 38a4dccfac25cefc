"""Allocation of one order of the loops to memory levels, and the traffic and energy of that.

Going outwards, a level holds of each operand as many of the remaining loops as it has room for. Where
operands share it, it holds the combination that leaves least to be moved from the next level. Holding more
never moves more, so no smaller part needs to be tried. A loop that an operand does not depend on, and that
comes next, moves nothing.

Traffic. The content of a lower level is moved once per *period*: the steps of all loops that run inside it.
An instance hands on the different elements that all instances below it need; lanes that need the same are
served at once. Accesses are of whole words, or of the least part of a word that a level can access.
Unfinished outputs are written up and read again, in the width of partial sums; the first time that a sum
begins counts as a read too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.arch.array import LEVELS, LOOPS_OF_AXIS
from npusim.cost.arrays.nest import (
    LOOP_COUNT,
    NONE_STAYS,
    OPERAND_COUNT,
    OUTPUTS,
    ArrayRecord,
    LoopNest,
    Unrolling,
    add_lanes,
    is_index,
    is_inside,
    is_irrelevant,
    multiply_accumulates,
    operand_elements,
)
from npusim.cost.kernels import compiled, compiled_making_arrays

MOST_LOOPS = 9
"""Most factors in an order, plus one."""


class Scratch(NamedTuple):
    """Room for the allocation of one order."""

    cuts: Any
    """Factors that a level and those below it hold, by operand and level, int64,
    shape (OPERAND_COUNT, LEVELS)."""
    bits: Any
    """Bits of a level's room for so many more factors, float64, shape (OPERAND_COUNT, MOST_LOOPS)."""
    moved: Any
    """Bits that would then be moved from the next level, of the same shape."""
    choices: Any
    """Ways to go on with each operand, int64, shape (OPERAND_COUNT,)."""
    held: Any
    """Factors held so far by each operand, int64, shape (OPERAND_COUNT,)."""
    place: Any
    """Levels passed so far by each operand, int64, shape (OPERAND_COUNT,)."""
    steps: Any
    """Steps of a part of the nest, float64, shape (LOOP_COUNT,)."""


@compiled_making_arrays
def new_scratch() -> Scratch:
    """Return room for an allocation."""
    return Scratch(
        np.zeros((OPERAND_COUNT, LEVELS), np.int64),
        np.zeros((OPERAND_COUNT, MOST_LOOPS)),
        np.zeros((OPERAND_COUNT, MOST_LOOPS)),
        np.zeros(OPERAND_COUNT, np.int64),
        np.zeros(OPERAND_COUNT, np.int64),
        np.zeros(OPERAND_COUNT, np.int64),
        np.ones(LOOP_COUNT),
    )


@compiled
def part_steps(
    machine: ArrayRecord,
    lanes: Any,
    loops: Any,
    factors: Any,
    level: int,
    count: int,
    is_whole: bool,
    steps: Any,
) -> None:
    """Write the steps that an instance of a level has, of the `count` innermost factors and its lanes."""
    steps[:] = 1.0
    for i in range(count):
        steps[loops[i]] *= factors[i]
    add_lanes(machine, lanes, level, -1, is_whole, steps)


@compiled
def has_sums_left(machine: ArrayRecord, lanes: Any, loops: Any, level: int, first: int) -> bool:
    """Whether outputs are still added to by the factors from `first` on, or by lanes outside a level."""
    for i in range(first, loops.shape[0]):
        if is_irrelevant(OUTPUTS, loops[i]):
            return True
    for axis in range(int(machine.axes)):
        if not is_inside(machine, level, axis):
            for place in range(axis * LOOPS_OF_AXIS, (axis + 1) * LOOPS_OF_AXIS):
                loop = int(machine.axis_loops[place])
                if loop >= 0 and lanes[place] > 1.0 and is_irrelevant(OUTPUTS, loop):
                    return True
    return False


@compiled
def allocate(
    machine: ArrayRecord, nest: LoopNest, unrolling: Unrolling, loops: Any, factors: Any, scratch: Scratch
) -> bool:
    """Cut one order at every level; False where not even the lanes fit."""
    scratch.held[:] = 0
    scratch.place[:] = 0
    for level in range(int(machine.levels)):
        is_last = level == int(machine.levels) - 1
        for operand in range(OPERAND_COUNT):
            scratch.choices[operand] = 1
            if machine.level_holds[level * OPERAND_COUNT + operand] > 0.0:
                if is_last:
                    scratch.held[operand] = loops.shape[0]
                elif not _list_choices(machine, nest, unrolling, loops, factors, level, operand, scratch):
                    return False
            else:
                scratch.bits[operand, 0] = scratch.moved[operand, 0] = 0.0
        if not is_last and not _choose(machine.level_bits[level], scratch):
            return False
        for operand in range(OPERAND_COUNT):
            if machine.level_holds[level * OPERAND_COUNT + operand] > 0.0:
                scratch.cuts[operand, scratch.place[operand]] = scratch.held[operand]
                scratch.place[operand] += 1
    _keep_what_stays(unrolling, loops, scratch)
    return True


@compiled
def _list_choices(
    machine: ArrayRecord,
    nest: LoopNest,
    unrolling: Unrolling,
    loops: Any,
    factors: Any,
    level: int,
    operand: int,
    scratch: Scratch,
) -> bool:
    """List how much of an operand a level could hold; False where it cannot even hold its lanes."""
    count, first = loops.shape[0], scratch.held[operand]
    bits = nest.bits[operand]
    if operand == OUTPUTS and has_sums_left(machine, unrolling.lanes, loops, level, first):
        bits = nest.bits[OPERAND_COUNT]
    part_steps(machine, unrolling.lanes, loops, factors, level, count, False, scratch.steps)
    whole = operand_elements(nest, operand, scratch.steps) * bits
    left = 1.0
    for i in range(first, count):
        left *= factors[i]
    choices = 0
    part_steps(machine, unrolling.lanes, loops, factors, level, first, False, scratch.steps)
    for held in range(first, count + 1):
        if held > first:
            scratch.steps[loops[held - 1]] *= factors[held - 1]
            left /= factors[held - 1]
        size = operand_elements(nest, operand, scratch.steps) * bits
        if held < count and size < whole:
            size *= machine.level_copies[level]
        if size > machine.level_bits[level]:
            break
        scratch.bits[operand, choices], scratch.moved[operand, choices] = size, left * size
        choices += 1
    scratch.choices[operand] = choices
    return bool(choices > 0)


@compiled
def _choose(capacity: float, scratch: Scratch) -> bool:
    """Take, of all combinations that fit, the one that leaves least to be moved; False where none fits."""
    least, best = np.inf, -1
    second, third = scratch.choices[1], scratch.choices[2]
    for way in range(scratch.choices[0] * second * third):
        a, b, c = way // (second * third), way // third % second, way % third
        bits = scratch.bits[0, a] + scratch.bits[1, b] + scratch.bits[2, c]
        moved = scratch.moved[0, a] + scratch.moved[1, b] + scratch.moved[2, c]
        if bits <= capacity and moved <= least:
            least, best = moved, way
    if best < 0:
        return False
    scratch.held[0] += best // (second * third)
    scratch.held[1] += best // third % second
    scratch.held[2] += best % third
    return True


@compiled
def _keep_what_stays(unrolling: Unrolling, loops: Any, scratch: Scratch) -> None:
    """Have each level hold on to an operand while loops run that do not concern it."""
    for operand in range(OPERAND_COUNT):
        for place in range(unrolling.depth[operand] - 1):
            held = scratch.cuts[operand, place]
            while held < loops.shape[0] and is_irrelevant(operand, loops[held]):
                held += 1
            scratch.cuts[operand, place] = held
        for place in range(1, unrolling.depth[operand]):
            scratch.cuts[operand, place] = max(scratch.cuts[operand, place], scratch.cuts[operand, place - 1])


TO_BELOW, FROM_BELOW, TO_ABOVE, FROM_ABOVE = range(4)
FLOWS = 4


class Links(NamedTuple):
    """What passes between each level of an operand and what is below it; all of shape (operands, levels)."""

    held: Any
    """Elements that an instance below holds, on average and whole lanes, shape (2, operands, levels)."""
    period: Any
    """Steps between two transfers."""
    bits: Any
    """Bits of an element."""
    is_returned: Any
    """1 where partial sums come back."""
    used_bits: Any
    """Bits that the level itself holds without its outermost loops that index the operand: what must stay
    while the rest is exchanged."""
    stays: Any
    """Steps at the end of a period of the level in which what it holds does not change."""
    billed_bits: Any
    """Bits of all accesses by flow, shape (operands, levels, FLOWS)."""


@compiled_making_arrays
def new_links() -> Links:
    """Return room for the links of one order."""
    shape = (OPERAND_COUNT, LEVELS)
    return Links(
        np.ones((2, OPERAND_COUNT, LEVELS)),
        np.ones(shape),
        np.ones(shape),
        np.zeros(shape),
        np.zeros(shape),
        np.ones(shape),
        np.zeros((OPERAND_COUNT, LEVELS, FLOWS)),
    )


@compiled
def fill_links(
    machine: ArrayRecord,
    nest: LoopNest,
    unrolling: Unrolling,
    loops: Any,
    factors: Any,
    scratch: Scratch,
    links: Links,
) -> None:
    """Fill in the links of an order that has been allocated."""
    for operand in range(OPERAND_COUNT):
        for place in range(unrolling.depth[operand]):
            level = unrolling.chain[operand, place]
            inside = 0 if place == 0 else scratch.cuts[operand, place - 1]
            links.bits[operand, place] = nest.bits[operand]
            links.is_returned[operand, place] = 0.0
            if operand == OUTPUTS and has_sums_left(machine, unrolling.lanes, loops, level, inside):
                links.bits[operand, place] = nest.bits[OPERAND_COUNT]
                links.is_returned[operand, place] = 1.0
            if place == 0:
                links.held[:, operand, 0] = 1.0
                links.period[operand, 0] = _steps_of_one_element(machine, operand, loops, factors, scratch)
                continue
            below = unrolling.chain[operand, place - 1]
            for is_whole in range(2):
                part_steps(
                    machine, unrolling.lanes, loops, factors, below, inside, is_whole == 1, scratch.steps
                )
                links.held[is_whole, operand, place] = max(
                    1.0, operand_elements(nest, operand, scratch.steps)
                )
            period = 1.0
            for i in range(inside):
                period *= factors[i]
            links.period[operand, place] = period
            _fill_exchange(operand, place, loops, factors, scratch, links)


@compiled
def _steps_of_one_element(
    machine: ArrayRecord, operand: int, loops: Any, factors: Any, scratch: Scratch
) -> float:
    """Steps for which a PE works with one element of a weight or an input; sums are updated at each step.

    Where folds do not overlap, the PEs start empty-handed into the next one.
    """
    stays = int(machine.stationary)
    if operand == OUTPUTS or stays == NONE_STAYS:
        return 1.0
    steps = 1.0
    for i in range(scratch.cuts[operand, 0]):
        is_next_fold = (
            machine.is_serial > 0.0 and stays < OPERAND_COUNT and not is_irrelevant(stays, loops[i])
        )
        if is_next_fold or not is_irrelevant(operand, loops[i]):
            break
        steps *= factors[i]
    return steps


@compiled
def _fill_exchange(
    operand: int, place: int, loops: Any, factors: Any, scratch: Scratch, links: Links
) -> None:
    """Fill in how the level below exchanges what it holds while it works."""
    first = 0 if place == 1 else scratch.cuts[operand, place - 2]
    indexed = stays = 1.0
    i = scratch.cuts[operand, place - 1] - 1
    while i >= first and is_index(operand, loops[i]):
        indexed *= factors[i]
        i -= 1
    i = scratch.cuts[operand, place - 1] - 1
    while i >= first and is_irrelevant(operand, loops[i]):
        stays *= factors[i]
        i -= 1
    bits = links.held[0, operand, place] * links.bits[operand, place]
    links.used_bits[operand, place - 1] = np.floor(bits / indexed)
    links.stays[operand, place - 1] = stays


@compiled
def billed(bits: float, least: float) -> float:
    """Bits of an access: whole parts of a word."""
    return float(np.ceil(bits / least - 1e-9) * least)


@compiled
def fill_traffic(machine: ArrayRecord, unrolling: Unrolling, steps: float, links: Links) -> None:
    """Fill in the bits of all accesses; `steps` are those of the whole order."""
    links.billed_bits[:] = 0.0
    for operand in range(OPERAND_COUNT):
        is_output = operand == OUTPUTS
        for place in range(unrolling.depth[operand]):
            level = unrolling.chain[operand, place]
            times = np.floor(steps / links.period[operand, place])
            low = links.held[0, operand, place] * links.bits[operand, place]
            high = low * unrolling.feeds[0, operand, place]
            above = (
                times * unrolling.instances[operand, place] * billed(high, machine.level_least_bits[level])
            )
            returned = links.is_returned[operand, place] > 0.0
            if is_output:
                links.billed_bits[operand, place, FROM_BELOW] = above
            if not is_output or returned:
                links.billed_bits[operand, place, TO_BELOW] = above
            if place > 0:
                lower = unrolling.chain[operand, place - 1]
                below = times * unrolling.instances[operand, place - 1]
                below *= billed(low, machine.level_least_bits[lower])
                if is_output:
                    links.billed_bits[operand, place - 1, TO_ABOVE] = below
                if not is_output or returned:
                    links.billed_bits[operand, place - 1, FROM_ABOVE] = below


@compiled
def level_energy_j(
    machine: ArrayRecord, unrolling: Unrolling, links: Links, operand: int, place: int
) -> float:
    """Energy of the accesses of one operand to one of its levels (J)."""
    level = unrolling.chain[operand, place]
    flows = links.billed_bits[operand, place]
    read = (flows[TO_BELOW] + flows[TO_ABOVE]) * machine.level_read_j[level]
    return float(read + (flows[FROM_BELOW] + flows[FROM_ABOVE]) * machine.level_write_j[level])


@compiled
def energy_j(machine: ArrayRecord, nest: LoopNest, unrolling: Unrolling, links: Links) -> float:
    """Energy of a whole order (J): multiply-accumulates and accesses to all levels."""
    total = machine.mac_j * multiply_accumulates(nest)
    for operand in range(OPERAND_COUNT):
        for place in range(unrolling.depth[operand]):
            total += level_energy_j(machine, unrolling, links, operand, place)
    return float(total)
