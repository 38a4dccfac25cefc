"""A tile's share of a product or convolution on its MAC array: cycles, and bytes through SRAM.

The tile's SRAM is the outermost level here, and holds what the share needs: what is brought there, and when,
is up to the search that all dataflows share (`npusim.cost.products`). Within it every order of the loops is
tried; the one with the fewest cycles is taken, and of equally fast ones that with the least traffic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.arch.array import LOOPS_OF_AXIS
from npusim.cost.architecture import ArchRecord
from npusim.cost.arrays.loops import (
    BATCH,
    GROUPS,
    INPUT_CHANNELS,
    KERNEL_HEIGHT,
    KERNEL_WIDTH,
    LOOP_COUNT,
    OPERAND_COUNT,
    OUTPUT_CHANNELS,
    OUTPUT_HEIGHT,
    OUTPUT_WIDTH,
    Nest,
)
from npusim.cost.arrays.mapper import cost_order, workspace
from npusim.cost.arrays.orders import MOST_FACTORS, loop_factors, next_order
from npusim.cost.arrays.traffic import FROM_BELOW, TO_BELOW
from npusim.cost.arrays.unrolling import Unrolling, lanes_of, unroll
from npusim.cost.grid import mac_format
from npusim.cost.jit import compiled, compiled_always, compiled_making_arrays
from npusim.cost.tables import DpuOperation, OpRecord

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
def tile_nest(arch: ArchRecord, op: OpRecord, rows: float, channels: float) -> Nest:
    """Return a tile's share of one product or image as a nest.

    Parameters
    ----------
    rows, channels : float
        Rows of a product or lines of an image, and output channels (`npusim.cost.products.tile_share`).
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
    return Nest(sizes, op.stride_w, op.stride_h, op.in_w, op.in_h, bits)


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
            bits = _sram_bits(unrolling, work.found.billed_bits)
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
