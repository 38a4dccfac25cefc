"""Search over the orders of the temporal loops of a nest, and a tile's share on its MAC array.

The steps of each loop that remain after unrolling are cut into prime factors. These are merged, the two
smallest of the loop that has most, until `MOST_FACTORS` remain (or one per loop). A candidate is an order of
these factors, the innermost first (720 at most); its cuts into levels follow (`allocation`). Every order is
allocated and costed, and the best is chosen.

Why these suffice. Which elements move, and how often, depends on two things: which loops run inside the part
of a tensor that a level holds, and the order of the loops outside. An order of factors and a cut through it
at each level settle both. So every tiling whose sizes are products of the factors is among the candidates,
and the search is complete. Tilings with merged factors, and tiles that do not divide a loop, are left out. A
dataflow that keeps an operand in the PEs runs all loops that do not concern it inside the others, which
leaves fewer orders.

A tile's share. The tile's SRAM is the outermost level and holds what the share needs; what is brought there,
and when, is up to the search that all dataflows share (`npusim.cost.search`). The order with the fewest
cycles is chosen, and of equally fast ones the one with the least traffic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.arch.array import LOOPS_OF_AXIS
from npusim.cost.architecture import ArchRecord
from npusim.cost.arrays.allocation import (
    FROM_BELOW,
    TO_BELOW,
    Links,
    Scratch,
    allocate,
    energy_j,
    fill_links,
    fill_traffic,
    new_links,
    new_scratch,
)
from npusim.cost.arrays.nest import (
    BATCH,
    GROUPS,
    INPUT_CHANNELS,
    INPUTS,
    KERNEL_HEIGHT,
    KERNEL_WIDTH,
    LOOP_COUNT,
    OPERAND_COUNT,
    OUTPUT_CHANNELS,
    OUTPUT_HEIGHT,
    OUTPUT_WIDTH,
    OUTPUTS,
    WEIGHTS,
    ArrayRecord,
    LoopNest,
    Unrolling,
    is_irrelevant,
    lanes_of,
    unroll,
)
from npusim.cost.arrays.timing import (
    Transfers,
    find_waits,
    first_fill_cycles,
    list_transfers,
    new_transfers,
    skew_cycles,
    stall_cycles,
    write_back_cycles,
)
from npusim.cost.grid import mac_format
from npusim.cost.kernels import compiled, compiled_always, compiled_making_arrays
from npusim.cost.tables import DpuOperation, OpRecord

MOST_FACTORS = 6
"""Factors that all loops together are cut into; a tool that searches the same orders has the same limit."""

_LONGEST = 64
_OUTPUT_LOOPS = (OUTPUT_CHANNELS, GROUPS, OUTPUT_WIDTH, OUTPUT_HEIGHT)
_TURNS = np.array([*_OUTPUT_LOOPS, INPUT_CHANNELS, KERNEL_WIDTH, KERNEL_HEIGHT, BATCH], np.int64)
"""Which of loops with equally many factors has two of them merged first."""


@compiled_making_arrays
def loop_factors(steps: Any, most: int) -> tuple[Any, Any]:
    """Cut loops into factors and merge them.

    Parameters
    ----------
    steps : array of float64, shape (LOOP_COUNT,)
    most : int
        Factors of all loops together, but never less than one a loop.

    Returns
    -------
    loops : array of int64, shape (factors,)
        Loop of each factor.
    factors : array of float64, shape (factors,)
    """
    of = np.zeros((LOOP_COUNT, _LONGEST))
    counts = np.zeros(LOOP_COUNT, np.int64)
    total = loops = 0
    for loop in range(LOOP_COUNT):
        rest, prime = steps[loop], 2.0
        while rest > 1.0:
            if prime * prime > rest:
                prime = rest
            if np.floor(rest / prime) * prime == rest:
                of[loop, counts[loop]] = prime
                counts[loop] += 1
                rest = rest / prime
            else:
                prime += 1.0
        total += counts[loop]
        loops += 1 if counts[loop] > 0 else 0
    while total > max(most, loops):
        _merge(of, counts)
        total -= 1
    return _flat(of, counts, total)


@compiled
def _merge(of: Any, counts: Any) -> None:
    """Merge the two smallest factors of the loop that has most."""
    longest = _TURNS[0]
    for loop in _TURNS:
        if counts[loop] > counts[longest]:
            longest = loop
    last = counts[longest] - 1
    product = of[longest, 0] * of[longest, 1]
    place = 0
    while place < last - 1 and of[longest, place + 2] < product:
        of[longest, place] = of[longest, place + 2]
        place += 1
    for later in range(place + 1, last):
        of[longest, later] = of[longest, later + 1]
    of[longest, place] = product
    counts[longest] = last


@compiled_making_arrays
def _flat(of: Any, counts: Any, total: int) -> tuple[Any, Any]:
    """List the factors of all loops, loop by loop, ascending."""
    loops, factors = np.zeros(total, np.int64), np.ones(total)
    place = 0
    for loop in range(LOOP_COUNT):
        for i in range(counts[loop]):
            loops[place], factors[place] = loop, of[loop, i]
            place += 1
    return loops, factors


@compiled
def next_order(loops: Any, factors: Any) -> bool:
    """Rearrange factors to the next distinct order; False after the last, which is a descending one."""
    last = loops.shape[0] - 1
    place = last - 1
    while place >= 0 and not _is_before(loops, factors, place, place + 1):
        place -= 1
    if place < 0:
        return False
    other = last
    while not _is_before(loops, factors, place, other):
        other -= 1
    _swap(loops, factors, place, other)
    low, high = place + 1, last
    while low < high:
        _swap(loops, factors, low, high)
        low, high = low + 1, high - 1
    return True


@compiled
def _is_before(loops: Any, factors: Any, a: int, b: int) -> bool:
    return bool(loops[a] < loops[b] or (loops[a] == loops[b] and factors[a] < factors[b]))


@compiled
def _swap(loops: Any, factors: Any, a: int, b: int) -> None:
    loops[a], loops[b] = loops[b], loops[a]
    factors[a], factors[b] = factors[b], factors[a]


@compiled
def is_allowed(machine: ArrayRecord, loops: Any) -> bool:
    """Whether a dataflow allows an order: what keeps its operand in place runs inside everything else."""
    place, count = 0, loops.shape[0]
    inner = 0
    for loop in range(LOOP_COUNT):
        if machine.inner[loop] > 0.0:
            for i in range(count):
                inner += 1 if loops[i] == loop else 0
    while place < inner:
        if machine.inner[loops[place]] == 0.0:
            return False
        place += 1
    stays = int(machine.stationary)
    if stays >= OPERAND_COUNT:
        return True
    has_moved = False
    for i in range(count):
        if not is_irrelevant(stays, loops[i]):
            has_moved = True
        elif has_moved:
            return False
    return True


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

    scratch: Scratch
    links: Links
    moves: Transfers


class ArrayMapping(NamedTuple):
    """A nest on an array: the best order, and what it takes."""

    cost: OrderCost
    dram_bits: Any
    """Bits of weights, inputs, outputs read from DRAM, and of outputs written, shape (4,)."""
    billed_bits: Any
    """Bits of all accesses, shape (operands, levels, flows); see `npusim.cost.arrays.allocation`."""
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
    return Workspace(new_scratch(), new_links(), new_transfers())


@compiled
def cost_order(
    machine: ArrayRecord,
    nest: LoopNest,
    unrolling: Unrolling,
    loops: Any,
    factors: Any,
    outside: int,
    work: Workspace,
) -> OrderCost:
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
    if not is_allowed(machine, loops) or not allocate(machine, nest, unrolling, loops, factors, work.scratch):
        return OrderCost(np.inf, 0.0, 0.0, 0.0, 0.0, 0.0, np.inf)
    steps = 1.0
    for factor in factors:
        steps *= factor
    links, moves = work.links, work.moves
    fill_links(machine, nest, unrolling, loops, factors, work.scratch, links)
    fill_traffic(machine, unrolling, steps, links)
    count = list_transfers(machine, unrolling, steps, outside, links, moves)
    stalls = stall_cycles(machine, count, moves)
    find_waits(machine, steps + stalls, count, moves)
    filling = first_fill_cycles(machine, unrolling, outside, moves)
    leaving = write_back_cycles(unrolling, outside, moves)
    skew = skew_cycles(machine, unrolling, loops, factors)
    cycles = steps + stalls + filling + leaving + skew
    joules = energy_j(machine, nest, unrolling, links)
    return OrderCost(cycles, steps, stalls, filling, leaving, skew, joules)


@compiled_making_arrays
def mapped_order(machine: ArrayRecord, nest: LoopNest, loops: Any, factors: Any, tried: int) -> ArrayMapping:
    """Return what one order takes and moves."""
    unrolling, work = unroll(machine, nest), workspace()
    cost = cost_order(machine, nest, unrolling, loops, factors, 0, work)
    billed_bits, dram_bits = work.links.billed_bits, np.zeros(4)
    for operand in (WEIGHTS, INPUTS, OUTPUTS):
        dram_bits[operand] = billed_bits[operand, unrolling.depth[operand] - 1, TO_BELOW]
    dram_bits[3] = billed_bits[OUTPUTS, unrolling.depth[OUTPUTS] - 1, FROM_BELOW]
    return ArrayMapping(cost, dram_bits, billed_bits, loops, factors, work.scratch.cuts, tried)


@compiled_making_arrays
def best_order(machine: ArrayRecord, nest: LoopNest, by_energy: bool) -> ArrayMapping:
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


_MATMUL, _DEPTHWISE = int(DpuOperation.MATMUL), int(DpuOperation.DEPTHWISE)
_KEY, _PLACES = 15, 256
"""Numbers that the cost of a tile's share depends on, and how many shares are kept."""


class KnownTiles(NamedTuple):
    """Tiles' shares costed so far: rows of a table often differ in what is in SRAM alone."""

    keys: Any
    """What each depends on, shape (places, _KEY)."""
    costs: Any
    """Cycles and bytes of each, shape (places, 2)."""
    count: Any
    """How many there are, shape (1,)."""


@compiled
def has_array(arch: ArchRecord) -> bool:
    """Whether products run by a dataflow other than the grid's."""
    return bool(arch.array.axes > 0.0)


@compiled
def modes_of(arch: ArchRecord) -> int:
    """Return how many layouts of a stencil there are: an array has no stencils."""
    return 1 if has_array(arch) else 3


@compiled
def lanes_along(arch: ArchRecord, loop: int, steps: float) -> float:
    """PEs that work on different steps of a loop side by side: at most."""
    for place in range(int(arch.array.axes) * LOOPS_OF_AXIS):
        if int(arch.array.axis_loops[place]) == loop:
            pes = arch.array.axis_pes[place // LOOPS_OF_AXIS]
            return float(np.ceil(lanes_of(pes, steps)))
    return 1.0


@compiled_making_arrays
def tile_nest(arch: ArchRecord, op: OpRecord, rows: float, channels: float) -> LoopNest:
    """Return a tile's share of one product or image as a nest.

    Parameters
    ----------
    rows, channels : float
        Rows of a product or lines of an image, and output channels (`npusim.cost.search.tile_share`).
    """
    sizes = np.ones(LOOP_COUNT)
    if op.dpu_operation == _MATMUL:
        sizes[BATCH], sizes[OUTPUT_CHANNELS], sizes[INPUT_CHANNELS] = rows, channels, op.in_c
    else:
        sizes[OUTPUT_WIDTH], sizes[OUTPUT_HEIGHT] = op.out_w, rows
        sizes[KERNEL_WIDTH], sizes[KERNEL_HEIGHT] = op.kernel_w, op.kernel_h
        if op.dpu_operation == _DEPTHWISE:
            sizes[GROUPS] = channels
        else:
            sizes[OUTPUT_CHANNELS], sizes[INPUT_CHANNELS] = channels, op.in_c
    bits = np.empty(OPERAND_COUNT + 1)
    bits[0], bits[1], bits[2] = 8.0 * op.b_item, 8.0 * op.a_item, 8.0 * op.c_item
    bits[3] = 8.0 * arch.dpu_sum_bytes
    return LoopNest(sizes, op.stride_w, op.stride_h, op.in_w, op.in_h, bits)


@compiled
def format_cost(arch: ArchRecord, op: OpRecord) -> float:
    """Cycles of a multiply-accumulate in the operands' format, in those of the fastest."""
    fastest, item = 0.0, 0.5
    for form in range(4):
        fastest = max(fastest, arch.dpu_mac_bytes_per_cycle[form] / item)
        item *= 2.0
    return float(fastest / (arch.dpu_mac_bytes_per_cycle[mac_format(op.a_item)] / op.a_item))


@compiled
def _sram_bits(unrolling: Unrolling, billed_bits: Any) -> float:
    """Bits of all operands between SRAM and the array."""
    total = 0.0
    for operand in range(OPERAND_COUNT):
        place = unrolling.depth[operand] - 2
        total += billed_bits[operand, place, TO_BELOW] + billed_bits[operand, place, FROM_BELOW]
    return float(total)


@compiled_always
def array_tile(arch: ArchRecord, op: OpRecord, rows: float, channels: float) -> tuple[float, float]:
    """Return (cycles, bytes through SRAM) of a tile's share of one product or image."""
    machine, nest = arch.array, tile_nest(arch, op, rows, channels)
    unrolling, work = unroll(machine, nest), workspace()
    loops, factors = loop_factors(unrolling.steps, MOST_FACTORS if machine.is_deep > 0.0 else 1)
    fewest, least, is_left = np.inf, np.inf, True
    while is_left:
        cost = cost_order(machine, nest, unrolling, loops, factors, 1, work)
        if cost.cycles <= fewest:
            bits = _sram_bits(unrolling, work.links.billed_bits)
            if cost.cycles < fewest or bits < least:
                fewest, least = cost.cycles, bits
        is_left = next_order(loops, factors)
    return float(fewest * format_cost(arch, op)), float(least / 8.0)


@compiled_making_arrays
def no_known_tiles(arrays: Any) -> KnownTiles:
    """Return room for the shares of some array devices; none where all of them are grids."""
    places = 0
    for d in range(arrays.shape[0]):
        if has_array(arrays[d]):
            places = _PLACES
    return KnownTiles(np.empty((places, _KEY)), np.empty((places, 2)), np.zeros(1, np.int64))


@compiled_making_arrays
def known_tile(
    arch: ArchRecord, op: OpRecord, rows: float, channels: float, known: KnownTiles
) -> tuple[float, float]:
    """Return what `array_tile` does; of shares that are alike it is asked once."""
    key, count = np.empty(_KEY), known.count[0]
    key[0], key[1], key[2], key[3], key[4] = op.device, op.dpu_operation, rows, channels, op.in_c
    key[5], key[6], key[7], key[8], key[9] = op.out_w, op.in_w, op.in_h, op.kernel_w, op.kernel_h
    key[10], key[11], key[12], key[13], key[14] = op.stride_w, op.stride_h, op.a_item, op.b_item, op.c_item
    for i in range(count):
        place = 0
        while place < _KEY and known.keys[i, place] == key[place]:
            place += 1
        if place == _KEY:
            return known.costs[i, 0], known.costs[i, 1]
    cycles, moved_bytes = array_tile(arch, op, rows, channels)
    if count < known.keys.shape[0]:
        known.keys[count] = key
        known.costs[count, 0], known.costs[count, 1] = cycles, moved_bytes
        known.count[0] = count + 1
    return cycles, moved_bytes


@compiled
def block_start_cycles(arch: ArchRecord) -> float:
    """Cycles that each further block adds: start-up of the grid, or skew of a systolic array."""
    if not has_array(arch):
        return float(arch.dpu_startup_cycles)
    skew = 0.0
    if arch.array.is_systolic > 0.0:
        for axis in range(int(arch.array.axes)):
            skew += arch.array.axis_pes[axis] - 1.0
    return float(skew)
