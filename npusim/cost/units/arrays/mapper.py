"""Search over the orders of the temporal loops of a nest, and the share of a tile on its MAC array.

The remaining steps of each loop are cut into prime factors. The two smallest factors of the loop with most
are merged until `MOST_FACTORS` remain (or one per loop). A candidate is an order of these factors, the
innermost first (720 at most). Each order is allocated to levels (`allocation`) and costed; the best is
chosen.

Why these suffice. The moved elements depend on two things: the loops inside the part of a tensor in a level,
and the order of the loops outside. An order of factors with a cut at each level settles both. So every tiling
whose sizes are products of the factors is a candidate. Tilings with merged factors, and tiles that do not
divide a loop, are left out. A dataflow with a stationary operand runs all loops that do not index it inside
the others, which leaves fewer orders.

The share of a tile. SRAM of the tile is the outermost level and holds what the share needs; the search common
to all dataflows decides what is brought there (`npusim.cost.tilings.search`). The order with the fewest
cycles is chosen, and of equally fast orders the one with the least traffic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.arch.array import LOOPS_OF_AXIS
from npusim.compiling.kernels import compiled, compiled_always, compiled_making_arrays
from npusim.compiling.records import Floats, Ints
from npusim.cost.lowering.tables import DEPTHWISE, MATMUL, OpRecord
from npusim.cost.machine import spatial_array as spatial
from npusim.cost.machine.architecture import ArchRecord
from npusim.cost.machine.spatial_array import OPERAND_COUNT, OUTPUTS, ArrayRecord, LoopNest, NestOrder
from npusim.cost.units.arrays import allocation, timing
from npusim.cost.units.arrays.allocation import FROM_BELOW, TO_BELOW, Allocation, new_allocation
from npusim.cost.units.arrays.timing import Transfers
from npusim.cost.units.grid import mac_format

MOST_FACTORS = 6
"""Factors that all loops together are cut into; a tool that searches the same orders has the same limit."""

_LONGEST = 64
_OUTPUT_LOOPS = (spatial.OUTPUT_CHANNELS, spatial.GROUPS, spatial.OUTPUT_WIDTH, spatial.OUTPUT_HEIGHT)
_SUMMED_LOOPS = (spatial.INPUT_CHANNELS, spatial.KERNEL_WIDTH, spatial.KERNEL_HEIGHT, spatial.BATCH)
_TURNS = np.array([*_OUTPUT_LOOPS, *_SUMMED_LOOPS], np.int64)
"""Which of loops with equally many factors has two of them merged first."""


@compiled_making_arrays
def loop_factors(steps: Floats, most: int) -> tuple[Ints, Floats]:
    """Cut loops into factors and merge them until `most` remain in all, or one per loop.

    Returns
    -------
    loops : array of int64, shape (factors,)
        Loop of each factor, ascending.
    factors : array of float64, shape (factors,)
        The factors, ascending within a loop.
    """
    of, counts = np.zeros((spatial.LOOP_COUNT, _LONGEST)), np.zeros(spatial.LOOP_COUNT, np.int64)
    total = used = 0
    for loop in range(spatial.LOOP_COUNT):
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
        used += 1 if counts[loop] > 0 else 0
    while total > max(most, used):
        _merge(of, counts)
        total -= 1
    loops, factors, place = np.zeros(total, np.int64), np.ones(total), 0
    for loop in range(spatial.LOOP_COUNT):
        for i in range(counts[loop]):
            loops[place], factors[place] = loop, of[loop, i]
            place += 1
    return loops, factors


@compiled
def _merge(of: Floats, counts: Ints) -> None:
    """Merge the two smallest factors of the loop that has the most factors."""
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


@compiled
def next_order(loops: Ints, factors: Floats) -> bool:
    """Permute factors in place to the next distinct order; return False after the last one."""
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
def _is_before(loops: Ints, factors: Floats, a: int, b: int) -> bool:
    return bool(loops[a] < loops[b] or (loops[a] == loops[b] and factors[a] < factors[b]))


@compiled
def _swap(loops: Ints, factors: Floats, a: int, b: int) -> None:
    loops[a], loops[b] = loops[b], loops[a]
    factors[a], factors[b] = factors[b], factors[a]


@compiled
def _is_allowed(machine: ArrayRecord, loops: Ints) -> bool:
    """Return whether a dataflow allows an order of loops, the innermost first.

    The loops that it names as inner ones come before all others, and loops that do not index its stationary
    operand before those that do.
    """
    stays, has_left_inner, has_moved = int(machine.stationary), False, False
    for loop in loops:
        if has_left_inner and machine.inner[loop] > 0.0:
            return False
        has_left_inner |= machine.inner[loop] == 0.0
        if stays < OPERAND_COUNT:
            if has_moved and spatial.is_irrelevant(stays, loop):
                return False
            has_moved |= not spatial.is_irrelevant(stays, loop)
    return True


class OrderCost(NamedTuple):
    """Cycles of an array and energy of an order.

    `cycles` is the sum, infinite where nothing fits: steps of work, stalls, cycles before the first step and
    after the last, and cycles in which the array fills and drains.
    """

    cycles: float
    steps: float
    stalls: float
    first_fill: float
    write_back: float
    skew: float
    energy_j: float


class ArrayMapping(NamedTuple):
    """A nest on an array in its best order."""

    cost: OrderCost
    dram_bits: Floats
    """Bits of weights, inputs, outputs read from DRAM, and of outputs written."""
    billed_bits: Floats
    """Bits of all accesses, shape (operands, levels, flows); see `npusim.cost.units.arrays.allocation`."""
    loops: Ints
    """Loop of each factor of the order, innermost first."""
    factors: Floats
    cuts: Ints
    """Factors inside each level, shape (operands, levels)."""
    tried: int
    """Orders that were tried and fit."""


@compiled
def _cost_order(order: NestOrder, outside: int, work: Allocation, moves: Transfers) -> OrderCost:
    """Allocate one order and return its cost, of infinite cycles where it is impossible.

    Transfers of the outermost `outside` levels (0, or 1: DRAM) take no time.
    """
    if not _is_allowed(order.machine, order.loops) or not allocation.allocate(order, work):
        return OrderCost(np.inf, 0.0, 0.0, 0.0, 0.0, 0.0, np.inf)
    steps = 1.0
    for factor in order.factors:
        steps *= factor
    allocation.fill_links(order, work)
    allocation.fill_traffic(order, steps, work)
    count = timing.list_transfers(order, steps, outside, work, moves)
    stalls = timing.stall_cycles(order.machine, count, moves)
    timing.find_waits(steps + stalls, count, moves)
    filling = timing.first_fill_cycles(order, outside, moves)
    leaving = timing.write_back_cycles(order.unrolling, outside, moves)
    skew = timing.skew_cycles(order)
    cycles = steps + stalls + filling + leaving + skew
    return OrderCost(cycles, steps, stalls, filling, leaving, skew, allocation.energy_j(order, work))


@compiled_making_arrays
def mapped_order(
    machine: ArrayRecord, nest: LoopNest, loops: Ints, factors: Floats, tried: int
) -> ArrayMapping:
    """Return the cost and traffic of one order of the loops; `tried` is copied to the result."""
    unrolling, work = spatial.unroll(machine, nest), new_allocation()
    cost = _cost_order(NestOrder(machine, nest, unrolling, loops, factors), 0, work, timing.new_transfers())
    billed_bits, dram_bits = work.billed_bits, np.zeros(4)
    for operand in range(OPERAND_COUNT):
        dram_bits[operand] = billed_bits[operand, unrolling.depth[operand] - 1, TO_BELOW]
    dram_bits[3] = billed_bits[OUTPUTS, unrolling.depth[OUTPUTS] - 1, FROM_BELOW]
    return ArrayMapping(cost, dram_bits, billed_bits, loops, factors, work.cuts, tried)


@compiled_making_arrays
def best_order(machine: ArrayRecord, nest: LoopNest, by_energy: bool) -> ArrayMapping:
    """Return the order with the fewest cycles, or the least energy; the other breaks ties."""
    unrolling, work, moves = spatial.unroll(machine, nest), new_allocation(), timing.new_transfers()
    loops, factors = loop_factors(unrolling.steps, MOST_FACTORS)
    order = NestOrder(machine, nest, unrolling, loops, factors)
    best_loops, best_factors = loops.copy(), factors.copy()
    least, other, tried, is_left = np.inf, np.inf, 0, True
    while is_left:
        cost = _cost_order(order, 0, work, moves)
        first, second = (cost.energy_j, cost.cycles) if by_energy else (cost.cycles, cost.energy_j)
        tried += 1 if cost.cycles < np.inf else 0
        if first < least or (first == least and second < other):
            least, other = first, second
            best_loops[:], best_factors[:] = loops, factors
        is_left = next_order(loops, factors)
    return mapped_order(machine, nest, best_loops, best_factors, tried)


_KEY, _PLACES = 19, 256
"""Numbers that the cost of a share depends on; most shares that are kept."""


class KnownTiles(NamedTuple):
    """Cache of `array_tile`: rows of a table often differ in residency alone.

    Fields: numbers that a cost depends on, shape (places, _KEY); cycles and bytes, shape (places, 2); number
    of places in use, shape (1,).
    """

    keys: Floats
    costs: Floats
    used: Ints


@compiled
def has_array(arch: ArchRecord) -> bool:
    """Whether products run by a dataflow other than the grid's."""
    return bool(arch.array.axes > 0.0)


@compiled
def modes_of(arch: ArchRecord) -> int:
    """Return the number of MPE modes: 1 for an array, which has no register tiles."""
    return 1 if has_array(arch) else 3


@compiled
def lanes_along(arch: ArchRecord, loop: int, steps: float) -> float:
    """Return the most PEs that work on different steps of a loop in parallel."""
    for place in range(int(arch.array.axes) * LOOPS_OF_AXIS):
        if int(arch.array.axis_loops[place]) == loop:
            pes = arch.array.axis_pes[place // LOOPS_OF_AXIS]
            return float(np.ceil(spatial.lanes_of(pes, steps)))
    return 1.0


@compiled_making_arrays
def _tile_nest(arch: ArchRecord, op: OpRecord, rows: float, channels: float) -> LoopNest:
    """Return the loop nest of one tile's rows and channels (`npusim.cost.tilings.tiling.tile_share`)."""
    sizes = np.ones(spatial.LOOP_COUNT)
    if op.dpu_operation == MATMUL:
        sizes[spatial.BATCH], sizes[spatial.OUTPUT_CHANNELS] = rows, channels
        sizes[spatial.INPUT_CHANNELS] = op.in_c
    else:
        sizes[spatial.OUTPUT_WIDTH], sizes[spatial.OUTPUT_HEIGHT] = op.out_w, rows
        sizes[spatial.KERNEL_WIDTH], sizes[spatial.KERNEL_HEIGHT] = op.kernel_w, op.kernel_h
        if op.dpu_operation == DEPTHWISE:
            sizes[spatial.GROUPS] = channels
        else:
            sizes[spatial.OUTPUT_CHANNELS], sizes[spatial.INPUT_CHANNELS] = channels, op.in_c
    bits = 8.0 * np.array([op.b_item, op.a_item, op.c_item, arch.dpu_sum_bytes])
    if op.kept < 1.0:  # an array that skips zeros holds operands as they are stored
        bits[0], bits[1] = bits[0] * op.b_pack, bits[1] * op.a_pack
    return LoopNest(sizes, op.stride_w, op.stride_h, op.in_w, op.in_h, bits, op.kept)


@compiled
def _format_cost(arch: ArchRecord, op: OpRecord) -> float:
    """Return the cycles of a multiply-accumulate in the operands' format, relative to the fastest format."""
    fastest, item = 0.0, 0.5
    for form in range(4):
        fastest = max(fastest, arch.dpu_mac_bytes_per_cycle[form] / item)
        item *= 2.0
    rate = arch.dpu_mac_bytes_per_cycle[mac_format(op.a_item)] / op.a_item
    return float(fastest / (rate * op.mac_rate))


@compiled_always
def array_tile(arch: ArchRecord, op: OpRecord, rows: float, channels: float) -> tuple[float, float]:
    """Return (cycles, bytes through SRAM) of one tile's rows and channels of a product or image."""
    machine, nest = arch.array, _tile_nest(arch, op, rows, channels)
    unrolling, work, moves = spatial.unroll(machine, nest), new_allocation(), timing.new_transfers()
    loops, factors = loop_factors(unrolling.steps, MOST_FACTORS if machine.is_deep > 0.0 else 1)
    order = NestOrder(machine, nest, unrolling, loops, factors)
    fewest, least, is_left = np.inf, np.inf, True
    while is_left:
        cycles, bits = _cost_order(order, 1, work, moves).cycles, 0.0
        if cycles <= fewest:
            for operand in range(OPERAND_COUNT):
                flows = work.billed_bits[operand, unrolling.depth[operand] - 2]
                bits += flows[TO_BELOW] + flows[FROM_BELOW]
            if cycles < fewest or bits < least:
                fewest, least = cycles, bits
        is_left = next_order(loops, factors)
    return float(fewest * _format_cost(arch, op)), float(least / 8.0)


@compiled_making_arrays
def no_known_tiles(arrays: Any) -> KnownTiles:
    """Return an empty cache of tile costs; it has no places where all devices are grids."""
    places = 0
    for d in range(arrays.shape[0]):
        if has_array(arrays[d]):
            places = _PLACES
    return KnownTiles(np.empty((places, _KEY)), np.empty((places, 2)), np.zeros(1, np.int64))


@compiled_making_arrays
def known_tile(
    arch: ArchRecord, op: OpRecord, rows: float, channels: float, known: KnownTiles
) -> tuple[float, float]:
    """Return the result of `array_tile`, from the cache where equal numbers were costed before."""
    key, count = np.empty(_KEY), known.used[0]
    key[0], key[1], key[2], key[3], key[4] = op.device, op.dpu_operation, rows, channels, op.in_c
    key[5], key[6], key[7], key[8], key[9] = op.out_w, op.in_w, op.in_h, op.kernel_w, op.kernel_h
    key[10], key[11], key[12], key[13], key[14] = op.stride_w, op.stride_h, op.a_item, op.b_item, op.c_item
    key[15], key[16], key[17], key[18] = op.mac_rate, op.kept, op.a_pack, op.b_pack
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
        known.used[0] = count + 1
    return cycles, moved_bytes


@compiled
def block_start_cycles(arch: ArchRecord) -> float:
    """Return the cycles of each further block: start-up of the grid, or skew of a systolic array."""
    if not has_array(arch):
        return float(arch.dpu_startup_cycles)
    skew = 0.0
    if arch.array.is_systolic > 0.0:
        for axis in range(int(arch.array.axes)):
            skew += arch.array.axis_pes[axis] - 1.0
    return float(skew)
