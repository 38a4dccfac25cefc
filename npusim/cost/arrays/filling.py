"""Cycles before the first step and after the last: fills, write-back, and skew of the array.

Before the first step all levels are filled, one after the other; after the last the results pass out through
all of them. A tensor that passes as a whole need not be waited for: what its port has to spare while the
array works carries it, the longest first, but for the part that the level nearest to the PEs holds.

An array that hands operands on from PE to PE has a skew of a cycle for each PE of an axis. Where folds do not
overlap, it is paid for each fold, and so is the loading of an operand that stays (A. Samajdar et al., "A
Systematic Methodology for Characterizing Scalability of DNN Accelerators using SCALE-Sim", ISPASS 2020).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.arch.array import LEVELS, LOOPS_OF_AXIS
from npusim.cost.arrays.loops import INPUTS, OPERAND_COUNT, OUTPUTS, WEIGHTS, is_irrelevant
from npusim.cost.arrays.machine import ArrayRecord
from npusim.cost.arrays.timing import Transfers, link_index
from npusim.cost.arrays.unrolling import Unrolling
from npusim.cost.jit import compiled, compiled_making_arrays

_PORTS = 4 * LEVELS


@compiled_making_arrays
def find_waits(machine: ArrayRecord, busy: float, count: int, moves: Transfers) -> None:
    """Fill in the cycles of each link that nothing hides, for so many transfers that have been listed.

    Parameters
    ----------
    busy : float
        Cycles of work, stalls included.
    """
    moves.waits[:] = 0.0
    spare = np.full(_PORTS, busy)
    for i in range(count):
        if moves.link[i] >= 0 and moves.times[i] > 1.0:
            spare[moves.port[i]] -= busy * moves.rate[i]
    is_done = np.zeros(count, np.bool_)
    for _ in range(count):
        longest = -1
        for i in range(count):
            if not is_done[i] and (longest < 0 or moves.takes[i] > moves.takes[longest]):
                longest = i
        is_done[longest] = True
        if moves.link[longest] < 0:
            continue
        takes = moves.takes[longest]
        if moves.times[longest] <= 1.0:
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
