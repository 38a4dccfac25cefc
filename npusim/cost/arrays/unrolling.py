"""Spatial unrolling: which steps of which loops the PEs of an array take side by side.

An axis of P PEs takes its loops in turn. The first, of `n` steps, has ceil(n / P) rounds left to be done one
after the other, and n / rounds lanes at work on average; the next has the PEs that are left over: P divided
by those lanes. What does not divide leaves lanes idle in the last round. On average a fraction of lanes is at
work, which is what traffic counts; a transfer of one round moves whole lanes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.arch.array import AXES, LEVELS, LOOPS_OF_AXIS
from npusim.cost.arrays.loops import LOOP_COUNT, OPERAND_COUNT, Nest, elements
from npusim.cost.arrays.machine import ArrayRecord
from npusim.cost.jit import compiled, compiled_making_arrays

_PLACES = AXES * LOOPS_OF_AXIS


class Unrolling(NamedTuple):
    """A nest laid on an array."""

    lanes: Any
    """Lanes at work on average, by axis and place on it, float64, shape (AXES * LOOPS_OF_AXIS,)."""
    steps: Any
    """Steps of each loop that are left to be done in turn, float64, shape (LOOP_COUNT,)."""
    chain: Any
    """Level of each operand, from the PEs outwards, int64, shape (OPERAND_COUNT, LEVELS)."""
    depth: Any
    """Levels of each operand, int64, shape (OPERAND_COUNT,)."""
    feeds: Any
    """Lanes with different elements that an instance of a level feeds below it, by operand and level, on
    average and whole, float64, shape (2, OPERAND_COUNT, LEVELS)."""
    instances: Any
    """Instances of a level at work, float64, shape (OPERAND_COUNT, LEVELS)."""


@compiled
def lanes_of(pes: float, steps: float) -> float:
    """Lanes of `pes` that are at work on average while `steps` are done."""
    return float(steps / np.ceil(steps / max(1.0, pes)))


@compiled_making_arrays
def unroll(machine: ArrayRecord, nest: Nest) -> Unrolling:
    """Lay a nest on an array."""
    lanes = np.ones(_PLACES)
    steps = nest.sizes.copy()
    for axis in range(int(machine.axes)):
        room = machine.axis_pes[axis]
        for place in range(axis * LOOPS_OF_AXIS, (axis + 1) * LOOPS_OF_AXIS):
            loop = int(machine.axis_loops[place])
            if loop >= 0 and nest.sizes[loop] > 1.0:
                lanes[place] = lanes_of(room, nest.sizes[loop])
                steps[loop] = np.ceil(nest.sizes[loop] / max(1.0, room))
                room = np.floor(room / np.ceil(lanes[place]))
    chain, depth = _chains(machine)
    feeds, instances = _neighbours(machine, nest, lanes, chain, depth)
    return Unrolling(lanes, steps, chain, depth, feeds, instances)


@compiled_making_arrays
def _chains(machine: ArrayRecord) -> tuple[Any, Any]:
    """List the levels of each operand."""
    chain = np.zeros((OPERAND_COUNT, LEVELS), np.int64)
    depth = np.zeros(OPERAND_COUNT, np.int64)
    for operand in range(OPERAND_COUNT):
        for level in range(int(machine.levels)):
            if machine.level_holds[level * OPERAND_COUNT + operand] > 0.0:
                chain[operand, depth[operand]] = level
                depth[operand] += 1
    return chain, depth


@compiled
def is_inside(machine: ArrayRecord, level: int, axis: int) -> bool:
    """Whether the PEs along an axis share an instance of a level; DRAM is everybody's."""
    return bool(level == int(machine.levels) - 1 or machine.level_spans[level * AXES + axis] > 0.0)


@compiled
def add_lanes(
    machine: ArrayRecord, lanes: Any, inside: int, outside: int, is_whole: bool, steps: Any
) -> None:
    """Multiply the steps of a part by the lanes that an instance of a level holds.

    Parameters
    ----------
    inside : int
        The level.
    outside : int
        A level whose lanes are left out; -1: none is.
    is_whole : bool
        Whether lanes count whole, as in one round.
    """
    for axis in range(int(machine.axes)):
        if is_inside(machine, inside, axis) and (outside < 0 or not is_inside(machine, outside, axis)):
            for place in range(axis * LOOPS_OF_AXIS, (axis + 1) * LOOPS_OF_AXIS):
                loop = int(machine.axis_loops[place])
                if loop >= 0:
                    steps[loop] *= np.floor(lanes[place]) if is_whole else lanes[place]


@compiled_making_arrays
def _neighbours(machine: ArrayRecord, nest: Nest, lanes: Any, chain: Any, depth: Any) -> tuple[Any, Any]:
    """Count what each level feeds, and its instances."""
    feeds = np.ones((2, OPERAND_COUNT, LEVELS))
    instances = np.ones((OPERAND_COUNT, LEVELS))
    steps = np.ones(LOOP_COUNT)
    for operand in range(OPERAND_COUNT):
        below = -1
        for place in range(depth[operand]):
            level = chain[operand, place]
            for is_whole in range(2):
                steps[:] = 1.0
                add_lanes(machine, lanes, level, below, is_whole == 1, steps)
                feeds[is_whole, operand, place] = elements(nest, operand, steps)
            count = 1.0
            for axis in range(int(machine.axes)):
                if not is_inside(machine, level, axis):
                    for at in range(axis * LOOPS_OF_AXIS, (axis + 1) * LOOPS_OF_AXIS):
                        count *= lanes[at]
            instances[operand, place] = count
            below = level
    return feeds, instances
