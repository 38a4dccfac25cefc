"""The search over orders: every one is allocated and costed, and the best is taken."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.arrays.allocation import Scratch, allocate, scratch
from npusim.cost.arrays.filling import find_waits, first_fill_cycles, skew_cycles, write_back_cycles
from npusim.cost.arrays.loops import INPUTS, OUTPUTS, WEIGHTS, Nest
from npusim.cost.arrays.machine import ArrayRecord
from npusim.cost.arrays.orders import MOST_FACTORS, is_allowed, loop_factors, next_order
from npusim.cost.arrays.timing import Transfers, list_transfers, stall_cycles, transfers
from npusim.cost.arrays.traffic import (
    FROM_BELOW,
    TO_BELOW,
    Links,
    energy_j,
    fill_links,
    fill_traffic,
    links,
)
from npusim.cost.arrays.unrolling import Unrolling, unroll
from npusim.cost.jit import compiled, compiled_making_arrays


class OrderCost(NamedTuple):
    """What an order takes, in cycles of the array."""

    cycles: float
    """All of the below together; infinite where nothing fits."""
    steps: float
    """Cycles of work."""
    stalls: float
    """Cycles of waiting in between."""
    first_fill: float
    """Cycles before the first step."""
    write_back: float
    """Cycles after the last step."""
    skew: float
    """Cycles in which the array fills and drains."""
    energy_j: float
    """Energy of multiply-accumulates and memories (J)."""


class Workspace(NamedTuple):
    """Room to cost one order after the other."""

    room: Scratch
    found: Links
    moves: Transfers


class Mapped(NamedTuple):
    """A nest on an array: the best order, and what it takes."""

    cost: OrderCost
    dram_bits: Any
    """Bits of weights, inputs, outputs read from DRAM, and of outputs written, shape (4,)."""
    billed_bits: Any
    """Bits of all accesses, shape (operands, levels, flows); see `npusim.cost.arrays.traffic`."""
    loops: Any
    """Loop of each factor of the order, innermost first, shape (factors,)."""
    factors: Any
    """The factors, shape (factors,)."""
    cuts: Any
    """Factors inside each level, shape (operands, levels)."""
    tried: int
    """Orders that were tried and fit."""


@compiled_making_arrays
def workspace() -> Workspace:
    """Return room to cost orders."""
    return Workspace(scratch(), links(), transfers())


@compiled
def cost_order(
    machine: ArrayRecord, nest: Nest, unrolling: Unrolling, loops: Any, factors: Any, outside: int,
    work: Workspace,
) -> OrderCost:  # fmt: skip
    """Allocate one order and return what it takes.

    Parameters
    ----------
    outside : int
        Levels whose transfers are left out of the time: 0, or 1 for DRAM.
    work : Workspace
        Holds the cuts and the links afterwards.

    Returns
    -------
    OrderCost
        Of infinite cycles where the lanes do not fit, or the dataflow does not allow the order.
    """
    if not is_allowed(machine, loops) or not allocate(machine, nest, unrolling, loops, factors, work.room):
        return OrderCost(np.inf, 0.0, 0.0, 0.0, 0.0, 0.0, np.inf)
    steps = 1.0
    for factor in factors:
        steps *= factor
    found, moves = work.found, work.moves
    fill_links(machine, nest, unrolling, loops, factors, work.room, found)
    fill_traffic(machine, unrolling, steps, found)
    count = list_transfers(machine, unrolling, steps, outside, found, moves)
    stalls = stall_cycles(machine, count, moves)
    find_waits(machine, steps + stalls, count, moves)
    filling = first_fill_cycles(machine, unrolling, outside, moves)
    leaving = write_back_cycles(unrolling, outside, moves)
    skew = skew_cycles(machine, unrolling, loops, factors)
    cycles = steps + stalls + filling + leaving + skew
    joules = energy_j(machine, nest, unrolling, found)
    return OrderCost(cycles, steps, stalls, filling, leaving, skew, joules)


@compiled_making_arrays
def mapped_order(machine: ArrayRecord, nest: Nest, loops: Any, factors: Any, tried: int) -> Mapped:
    """Return what one order takes and moves."""
    unrolling, work = unroll(machine, nest), workspace()
    cost = cost_order(machine, nest, unrolling, loops, factors, 0, work)
    billed_bits, dram_bits = work.found.billed_bits, np.zeros(4)
    for operand in (WEIGHTS, INPUTS, OUTPUTS):
        dram_bits[operand] = billed_bits[operand, unrolling.depth[operand] - 1, TO_BELOW]
    dram_bits[3] = billed_bits[OUTPUTS, unrolling.depth[OUTPUTS] - 1, FROM_BELOW]
    return Mapped(cost, dram_bits, billed_bits, loops, factors, work.room.cuts, tried)


@compiled_making_arrays
def best_order(machine: ArrayRecord, nest: Nest, by_energy: bool) -> Mapped:
    """Return the order with the fewest cycles, or the least energy; the other decides between equals.

    Parameters
    ----------
    machine : record of ARRAY_DTYPE
    by_energy : bool
        What is least.
    """
    unrolling, work = unroll(machine, nest), workspace()
    loops, factors = loop_factors(unrolling.steps, MOST_FACTORS)
    best_loops, best_factors = loops.copy(), factors.copy()
    least, other, tried, is_left = np.inf, np.inf, 0, True
    while is_left:
        cost = cost_order(machine, nest, unrolling, loops, factors, 0, work)
        first, second = (cost.energy_j, cost.cycles) if by_energy else (cost.cycles, cost.energy_j)
        tried += 1 if cost.cycles < np.inf else 0
        if first < least or (first == least and second < other):
            least, other = first, second
            best_loops[:], best_factors[:] = loops, factors
        is_left = next_order(loops, factors)
    return mapped_order(machine, nest, best_loops, best_factors, tried)
