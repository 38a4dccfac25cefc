"""What an order of the loops moves between memory levels, and the energy of that.

Between a level and the one below it, what the lower one holds of an operand is moved once per *period*: the
steps of all loops that run inside the lower level. An instance hands on what all instances below it need of
different elements; lanes that need the same are served at once. Accesses are of whole words, or of the least
part of a word that a level can access. Outputs that are not finished are written up and read again, in the
width of partial sums; the first time that a sum is begun counts as a read too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.arch.array import LEVELS
from npusim.cost.arrays.allocation import Scratch, has_sums_left, part_steps
from npusim.cost.arrays.loops import (
    OPERAND_COUNT,
    OUTPUTS,
    Nest,
    elements,
    is_index,
    is_irrelevant,
    multiply_accumulates,
)
from npusim.cost.arrays.machine import NONE_STAYS, ArrayRecord
from npusim.cost.arrays.unrolling import Unrolling
from npusim.cost.jit import compiled, compiled_making_arrays

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
def links() -> Links:
    """Return room for the links of one order."""
    shape = (OPERAND_COUNT, LEVELS)
    return Links(
        np.ones((2, OPERAND_COUNT, LEVELS)), np.ones(shape), np.ones(shape), np.zeros(shape), np.zeros(shape),
        np.ones(shape), np.zeros((OPERAND_COUNT, LEVELS, FLOWS)),
    )  # fmt: skip


@compiled
def fill_links(
    machine: ArrayRecord, nest: Nest, unrolling: Unrolling, loops: Any, factors: Any, room: Scratch,
    found: Links,
) -> None:  # fmt: skip
    """Fill in the links of an order that has been allocated."""
    for operand in range(OPERAND_COUNT):
        for place in range(unrolling.depth[operand]):
            level = unrolling.chain[operand, place]
            inside = 0 if place == 0 else room.cuts[operand, place - 1]
            found.bits[operand, place] = nest.bits[operand]
            found.is_returned[operand, place] = 0.0
            if operand == OUTPUTS and has_sums_left(machine, unrolling.lanes, loops, level, inside):
                found.bits[operand, place] = nest.bits[OPERAND_COUNT]
                found.is_returned[operand, place] = 1.0
            if place == 0:
                found.held[:, operand, 0] = 1.0
                found.period[operand, 0] = _steps_of_one_element(machine, operand, loops, factors, room)
                continue
            below = unrolling.chain[operand, place - 1]
            for is_whole in range(2):
                part_steps(machine, unrolling.lanes, loops, factors, below, inside, is_whole == 1, room.steps)
                found.held[is_whole, operand, place] = max(1.0, elements(nest, operand, room.steps))
            period = 1.0
            for i in range(inside):
                period *= factors[i]
            found.period[operand, place] = period
            _fill_exchange(operand, place, loops, factors, room, found)


@compiled
def _steps_of_one_element(
    machine: ArrayRecord, operand: int, loops: Any, factors: Any, room: Scratch
) -> float:
    """Steps for which a PE works with one element of a weight or an input; sums are updated at each step.

    Where folds do not overlap, the PEs start empty-handed into the next one.
    """
    stays = int(machine.stationary)
    if operand == OUTPUTS or stays == NONE_STAYS:
        return 1.0
    steps = 1.0
    for i in range(room.cuts[operand, 0]):
        is_next_fold = (
            machine.is_serial > 0.0 and stays < OPERAND_COUNT and not is_irrelevant(stays, loops[i])
        )
        if is_next_fold or not is_irrelevant(operand, loops[i]):
            break
        steps *= factors[i]
    return steps


@compiled
def _fill_exchange(operand: int, place: int, loops: Any, factors: Any, room: Scratch, found: Links) -> None:
    """Fill in how the level below exchanges what it holds while it works."""
    first = 0 if place == 1 else room.cuts[operand, place - 2]
    indexed = stays = 1.0
    i = room.cuts[operand, place - 1] - 1
    while i >= first and is_index(operand, loops[i]):
        indexed *= factors[i]
        i -= 1
    i = room.cuts[operand, place - 1] - 1
    while i >= first and is_irrelevant(operand, loops[i]):
        stays *= factors[i]
        i -= 1
    bits = found.held[0, operand, place] * found.bits[operand, place]
    found.used_bits[operand, place - 1] = np.floor(bits / indexed)
    found.stays[operand, place - 1] = stays


@compiled
def billed(bits: float, least: float) -> float:
    """Bits of an access: whole parts of a word."""
    return float(np.ceil(bits / least - 1e-9) * least)


@compiled
def fill_traffic(machine: ArrayRecord, unrolling: Unrolling, steps: float, found: Links) -> None:
    """Fill in the bits of all accesses; `steps` are those of the whole order."""
    found.billed_bits[:] = 0.0
    for operand in range(OPERAND_COUNT):
        is_output = operand == OUTPUTS
        for place in range(unrolling.depth[operand]):
            level = unrolling.chain[operand, place]
            times = np.floor(steps / found.period[operand, place])
            low = found.held[0, operand, place] * found.bits[operand, place]
            high = low * unrolling.feeds[0, operand, place]
            above = (
                times * unrolling.instances[operand, place] * billed(high, machine.level_least_bits[level])
            )
            returned = found.is_returned[operand, place] > 0.0
            if is_output:
                found.billed_bits[operand, place, FROM_BELOW] = above
            if not is_output or returned:
                found.billed_bits[operand, place, TO_BELOW] = above
            if place > 0:
                lower = unrolling.chain[operand, place - 1]
                below = times * unrolling.instances[operand, place - 1]
                below *= billed(low, machine.level_least_bits[lower])
                if is_output:
                    found.billed_bits[operand, place - 1, TO_ABOVE] = below
                if not is_output or returned:
                    found.billed_bits[operand, place - 1, FROM_ABOVE] = below


@compiled
def level_energy_j(
    machine: ArrayRecord, unrolling: Unrolling, found: Links, operand: int, place: int
) -> float:
    """Energy of the accesses of one operand to one of its levels (J)."""
    level = unrolling.chain[operand, place]
    flows = found.billed_bits[operand, place]
    read = (flows[TO_BELOW] + flows[TO_ABOVE]) * machine.level_read_j[level]
    return float(read + (flows[FROM_BELOW] + flows[FROM_ABOVE]) * machine.level_write_j[level])


@compiled
def energy_j(machine: ArrayRecord, nest: Nest, unrolling: Unrolling, found: Links) -> float:
    """Energy of a whole order (J): multiply-accumulates and accesses to all levels."""
    total = machine.mac_j * multiply_accumulates(nest)
    for operand in range(OPERAND_COUNT):
        for place in range(unrolling.depth[operand]):
            total += level_energy_j(machine, unrolling, found, operand, place)
    return float(total)
