"""What each memory level holds of each operand, for one order of the loops.

Going outwards, a level takes, of each operand it holds, as many of the loops that are left as it has room
for; where operands share it, those that leave least to be moved from the next level. More held is never more
moved, so no smaller part needs to be tried. Then a loop that an operand does not depend on, and that comes
next, is done with what is held already: nothing is moved for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.arch.array import LEVELS, LOOPS_OF_AXIS
from npusim.cost.arrays.loops import (
    LOOP_COUNT,
    OPERAND_COUNT,
    OUTPUTS,
    Nest,
    elements,
    is_irrelevant,
)
from npusim.cost.arrays.machine import ArrayRecord
from npusim.cost.arrays.unrolling import Unrolling, add_lanes, is_inside
from npusim.cost.jit import compiled, compiled_making_arrays

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
    taken: Any
    """Factors taken so far by each operand, int64, shape (OPERAND_COUNT,)."""
    place: Any
    """Levels passed so far by each operand, int64, shape (OPERAND_COUNT,)."""
    steps: Any
    """Steps of a part of the nest, float64, shape (LOOP_COUNT,)."""


@compiled_making_arrays
def scratch() -> Scratch:
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
    machine: ArrayRecord, lanes: Any, loops: Any, factors: Any, level: int, count: int, is_whole: bool,
    steps: Any,
) -> None:  # fmt: skip
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
    machine: ArrayRecord, nest: Nest, unrolling: Unrolling, loops: Any, factors: Any, room: Scratch
) -> bool:
    """Cut one order at every level; False where not even the lanes fit."""
    room.taken[:] = 0
    room.place[:] = 0
    for level in range(int(machine.levels)):
        is_last = level == int(machine.levels) - 1
        for operand in range(OPERAND_COUNT):
            room.choices[operand] = 1
            if machine.level_holds[level * OPERAND_COUNT + operand] > 0.0:
                if is_last:
                    room.taken[operand] = loops.shape[0]
                elif not _list_choices(machine, nest, unrolling, loops, factors, level, operand, room):
                    return False
            else:
                room.bits[operand, 0] = room.moved[operand, 0] = 0.0
        if not is_last and not _choose(machine.level_bits[level], room):
            return False
        for operand in range(OPERAND_COUNT):
            if machine.level_holds[level * OPERAND_COUNT + operand] > 0.0:
                room.cuts[operand, room.place[operand]] = room.taken[operand]
                room.place[operand] += 1
    _keep_what_stays(unrolling, loops, room)
    return True


@compiled
def _list_choices(
    machine: ArrayRecord, nest: Nest, unrolling: Unrolling, loops: Any, factors: Any, level: int,
    operand: int, room: Scratch,
) -> bool:  # fmt: skip
    """List how much of an operand a level could hold; False where it cannot even hold its lanes."""
    count, first = loops.shape[0], room.taken[operand]
    bits = nest.bits[operand]
    if operand == OUTPUTS and has_sums_left(machine, unrolling.lanes, loops, level, first):
        bits = nest.bits[OPERAND_COUNT]
    part_steps(machine, unrolling.lanes, loops, factors, level, count, False, room.steps)
    whole = elements(nest, operand, room.steps) * bits
    left = 1.0
    for i in range(first, count):
        left *= factors[i]
    choices = 0
    part_steps(machine, unrolling.lanes, loops, factors, level, first, False, room.steps)
    for taken in range(first, count + 1):
        if taken > first:
            room.steps[loops[taken - 1]] *= factors[taken - 1]
            left /= factors[taken - 1]
        size = elements(nest, operand, room.steps) * bits
        if taken < count and size < whole:
            size *= machine.level_copies[level]
        if size > machine.level_bits[level]:
            break
        room.bits[operand, choices], room.moved[operand, choices] = size, left * size
        choices += 1
    room.choices[operand] = choices
    return bool(choices > 0)


@compiled
def _choose(capacity: float, room: Scratch) -> bool:
    """Take, of all combinations that fit, the one that leaves least to be moved; False where none fits."""
    least, best = np.inf, -1
    second, third = room.choices[1], room.choices[2]
    for way in range(room.choices[0] * second * third):
        a, b, c = way // (second * third), way // third % second, way % third
        bits = room.bits[0, a] + room.bits[1, b] + room.bits[2, c]
        moved = room.moved[0, a] + room.moved[1, b] + room.moved[2, c]
        if bits <= capacity and moved <= least:
            least, best = moved, way
    if best < 0:
        return False
    room.taken[0] += best // (second * third)
    room.taken[1] += best // third % second
    room.taken[2] += best % third
    return True


@compiled
def _keep_what_stays(unrolling: Unrolling, loops: Any, room: Scratch) -> None:
    """Have each level hold on to an operand while loops run that do not concern it."""
    for operand in range(OPERAND_COUNT):
        for place in range(unrolling.depth[operand] - 1):
            taken = room.cuts[operand, place]
            while taken < loops.shape[0] and is_irrelevant(operand, loops[taken]):
                taken += 1
            room.cuts[operand, place] = taken
        for place in range(1, unrolling.depth[operand]):
            room.cuts[operand, place] = max(room.cuts[operand, place], room.cuts[operand, place - 1])
