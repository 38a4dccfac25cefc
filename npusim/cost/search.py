"""Mapping candidates of a whole network: those that can be fastest, per operator and plan.

They depend on what fits where and on cycles, not on clocks and bandwidths: a sweep makes them once for all
the design points that share the former. Operators without a reduction over channels have one candidate:
elements stream in, something is done to each, results stream out.

SymG: a product whose left operand is symmetric and of which only the lower triangle is stored. Block (i, j)
serves output rows i as it stands and output rows j transposed. There are two ways, and the better is taken.
*Once*: every block is fetched once and both uses follow each other, so the partial sums of all output rows
stay in SRAM with all of the right operand; the second use reads the block transposed, at
`symg_transposed_rate` of the normal pace. *Twice*: every off-diagonal block is fetched for each use, which
moves what dense storage moves; only the memory is saved. Once never moves more than any candidate to fetch a
dense matrix. Cutting the columns into passes whose partial sums fit would be a third candidate, but two
passes over a triangle move more than one over the dense matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.architecture import ArchRecord, Archs
from npusim.cost.arrays.tile import (
    KnownTiles,
    array_tile,
    block_start_cycles,
    has_array,
    modes_of,
    no_known_tiles,
)
from npusim.cost.candidates import CANDIDATE_DTYPE, add_candidate, sort_candidates
from npusim.cost.channelwise import depthwise_cycles, eltwise_cycles, maxpool_cycles
from npusim.cost.demands import fed_bytes
from npusim.cost.dpu import matmul_mode_cycles
from npusim.cost.grid import mode_shape, tile_workload
from npusim.cost.jit import compiled, compiled_making_arrays
from npusim.cost.layouts import sum_rate, tile_share
from npusim.cost.products import is_of_one_point, search_product
from npusim.cost.rates import greatest_sram_bytes, least_sram_bytes
from npusim.cost.tables import DpuOperation, OpRecord, Order, Split, Unit
from npusim.cost.tiling import live_bytes, live_tile_bytes

_VIEW, _DPU, _DSP, _HOST = (int(u) for u in (Unit.VIEW, Unit.DPU, Unit.DSP, Unit.HOST))
_MATMUL, _CONVOLUTION = int(DpuOperation.MATMUL), int(DpuOperation.CONVOLUTION)
_DEPTHWISE = int(DpuOperation.DEPTHWISE)
_MAXPOOL, _ELTWISE = int(DpuOperation.MAXPOOL), int(DpuOperation.ELTWISE)
_ROWS, _OUTPUTS_HELD = int(Split.ROWS), int(Order.OUTPUTS_HELD)
_INITIAL_CANDIDATES, _MOST_OF_ONE_POINT = 512, 2
"""Places of a new table; candidates of an operator that a search for one point leaves."""
_PRODUCT_MS, _OTHER_MS = 8.0, 0.2


def plain_ms(ops: Any) -> float:
    """Return what the search for so many operators takes as plain Python, roughly (ms)."""
    operation = ops["dpu_operation"]
    products = (ops["unit"] == _DPU) & ((operation == _MATMUL) | (operation == _CONVOLUTION))
    return _PRODUCT_MS * float(np.count_nonzero(products)) + _OTHER_MS * len(ops)


@compiled
def grid_stream_cycles(arch: ArchRecord, op: OpRecord) -> float:
    """Cycles of one tile for depthwise convolution, pooling or an elementwise operator split by rows."""
    if op.dpu_operation == _ELTWISE:
        pixels = np.ceil(op.out_w * op.out_h / arch.tiles)
        return float(eltwise_cycles(arch, tile_workload(op, pixels, 1.0, op.out_c, False)))
    work = tile_workload(op, op.out_w, np.ceil(op.out_h / arch.tiles), op.out_c, False)
    if op.dpu_operation == _DEPTHWISE and has_array(arch):
        return array_tile(arch, op, work.out_h, op.out_c)[0]
    if op.dpu_operation == _MAXPOOL:
        best = np.inf
        for mode in range(3):
            best = min(best, maxpool_cycles(arch, work, mode))
        return float(best)
    return float(depthwise_cycles(arch, work))


@compiled
def search_stream(
    arch: ArchRecord, op: OpRecord, rate_bounds: Any, found: Any, start: int, on_grid: bool, on_dsp: bool
) -> int:
    """Add the one candidate that streams elements through the MAC grid, the DSPs, or DMA alone.

    Pieces are double-buffered; the first piece in and the last out are a `stream_pieces`-th of the traffic
    and hidden by nothing. Arguments and result as of `npusim.cost.products.search_product`; the time of
    DSPs is added by the rates.
    """
    read = op.a_dram_bytes + op.b_dram_bytes + op.extra_dram_bytes
    first, last = read / arch.stream_pieces, op.c_dram_bytes / arch.stream_pieces
    new = found[start]
    new.held_bytes = new.needed_bytes = live_tile_bytes(arch, op)
    if first + last > 0.0:  # what streams needs some room
        new.needed_bytes = np.nextafter(new.held_bytes, np.inf)
    if new.needed_bytes > greatest_sram_bytes(rate_bounds):
        return start
    new.grid_cycles = op.batch * grid_stream_cycles(arch, op) if on_grid else 0.0
    new.read_bytes = read
    new.read_gaps = 0.0
    new.written_bytes = op.c_dram_bytes
    # What neither comes from DRAM nor goes there is copied within SRAM.
    new.copied_bytes = 0.0 if on_grid or on_dsp else max(0.0, op.copy_bytes - max(read, op.c_dram_bytes))
    new.prologue_bytes = 0.0 if op.a_prefetch else first
    new.epilogue_bytes = last
    new.streamed_bytes, new.fine = read / arch.tiles, 0.0
    new.page_walks = 1.0 if new.prologue_bytes > arch.dma_page_bytes else 0.0
    new.fed_bytes = fed_bytes(arch, op, 0) if on_grid else 0.0
    new.sram_peak_bytes = live_bytes(arch, op) + 2.0 * (first + last)
    new.split, new.order, new.mode, new.tiles = _ROWS, 0.0, 0.0, arch.tiles
    new.row_pieces, new.strips = arch.stream_pieces, 1.0
    new.row_blocks, new.column_blocks, new.channel_chunks = arch.stream_pieces, 1.0, 1.0
    return start + 1


@compiled
def busiest_share(row_blocks: float, tiles: float) -> float:
    """Share of the work that the busiest tile has when the triangle's blocks are dealt out one by one."""
    blocks = row_blocks * (row_blocks + 1.0) / 2.0
    return float(np.ceil(blocks / tiles) / blocks)


@compiled
def search_triangle(
    arch: ArchRecord, op: OpRecord, rate_bounds: Any, found: Any, start: int, known: KnownTiles
) -> int:
    """Find every candidate that can be the fastest: fetching blocks of the triangle twice, and once.

    Arguments and result as of `npusim.cost.products.search_product`.
    """
    # Twice: the DRAM bytes of the row are those of the dense matrix.
    stop = search_product(arch, op, rate_bounds, found, start, known)
    for mode in range(modes_of(arch)):
        for split in range(3):
            most, _, channels = tile_share(arch, op, split)
            # Tiles that share the triangle add up each other's partial sums, so fewer tiles may be quicker.
            used = 1.0 if split == _ROWS else most
            while used <= most:
                stop = _fetch_once(arch, op, rate_bounds, found, start, stop, split, mode, used, channels)
                used += 1.0
    return stop


@compiled
def _fetch_once(
    arch: ArchRecord,
    op: OpRecord,
    rate_bounds: Any,
    found: Any,
    start: int,
    stop: int,
    split: int,
    mode: int,
    used: float,
    channels: float,
) -> int:
    """Try one split, mode and number of tiles."""
    if stop < 0 or stop + 1 >= found.shape[0]:
        return -1
    across, down, _ = mode_shape(arch, mode)
    pixels = min(op.out_w, across * arch.dpu_pixel_lanes_w * down * arch.dpu_pixel_lanes_h)
    block_bytes = 2.0 * pixels * pixels * op.a_item
    b_bytes = 0.0 if op.b_resident else op.in_c * channels * op.b_item
    sums = op.out_w * channels * arch.dpu_sum_bytes
    out_bytes = 0.0 if op.c_resident else 2.0 * pixels * channels * op.c_item
    working = b_bytes + sums + block_bytes + out_bytes
    needed = live_tile_bytes(arch, op) + working
    if needed > greatest_sram_bytes(rate_bounds):
        return stop
    first = 0.5 * block_bytes if op.a_triangle_bytes > 0.0 and not op.a_prefetch else 0.0
    if op.b_dram_bytes > 0.0 and not op.b_prefetch:
        first += pixels * channels * op.b_item
    blocks = np.ceil(op.out_w / pixels)
    new = found[stop]
    new.grid_cycles = _grid_cycles(arch, op, pixels, channels, mode, used if split == _ROWS else 1.0)
    new.read_bytes = op.a_triangle_bytes + op.b_dram_bytes + op.extra_dram_bytes
    new.read_gaps = 0.0
    new.written_bytes = op.c_dram_bytes
    new.copied_bytes = (used - 1.0) * sums if split == _ROWS else 0.0
    new.prologue_bytes, new.epilogue_bytes = first, 0.5 * out_bytes
    new.streamed_bytes, new.held_bytes = (
        op.a_triangle_bytes / used,
        live_tile_bytes(arch, op) + b_bytes + sums,
    )
    new.needed_bytes, new.fine = needed, 0.0
    new.page_walks = 1.0 if first > arch.dma_page_bytes else 0.0
    new.fed_bytes = fed_bytes(arch, op, mode)
    new.sram_peak_bytes = used * working + live_bytes(arch, op)
    new.split, new.order, new.mode, new.tiles = split, _OUTPUTS_HELD, mode, used
    new.row_pieces, new.strips = blocks, 1.0
    new.row_blocks, new.column_blocks, new.channel_chunks = blocks, 1.0, blocks
    return add_candidate(
        found, start, stop, stop, least_sram_bytes(rate_bounds), greatest_sram_bytes(rate_bounds)
    )


@compiled
def _grid_cycles(
    arch: ArchRecord, op: OpRecord, pixels: float, channels: float, mode: int, sharing: float
) -> float:
    """Cycles of the MAC grid on the busiest of `sharing` tiles that share the blocks of the triangle."""
    row_blocks = np.ceil(op.out_w / pixels)
    share = busiest_share(row_blocks, sharing)
    rows = np.ceil(op.out_w * share)
    if has_array(arch):
        cycles = array_tile(arch, op, rows, channels)[0]
    else:
        cycles = matmul_mode_cycles(arch, tile_workload(op, rows, 1.0, channels, False), mode)
    # Half of the products read their block as it stands, half transposed.
    turned = 0.5 + 0.5 / arch.symg_transposed_rate
    # Each block adds to the sums of its columns' rows: read and written once per block.
    update = 0.5 * row_blocks * op.out_w * share * channels * 2.0 * arch.dpu_sum_bytes / sum_rate(arch)
    starts = (np.ceil(row_blocks * row_blocks * share) - 1.0) * block_start_cycles(arch)
    return float(op.batch * (cycles * turned + update + starts))


@compiled
def _search_operator(
    arch: ArchRecord, op: OpRecord, rate_bounds: Any, found: Any, start: int, known: KnownTiles
) -> int:
    if op.unit == _DPU and (op.dpu_operation == _MATMUL or op.dpu_operation == _CONVOLUTION):
        if op.triangle:
            return search_triangle(arch, op, rate_bounds, found, start, known)
        return search_product(arch, op, rate_bounds, found, start, known)
    if start + 1 >= found.shape[0]:
        return -1
    return search_stream(arch, op, rate_bounds, found, start, op.unit == _DPU, op.unit == _DSP)


@compiled_making_arrays
def search_rows(archs: Archs, rows: Any, rate_bounds: Any, bounds: Any) -> Any:
    """Find the candidates of every row of an operator table.

    Parameters
    ----------
    archs : Archs
        Its first point is looked at.
    rows : array of OP_DTYPE, shape (rows,)
        The operators under all plans, those that are alike under several once.
    rate_bounds : array of float64, shape (array devices, RATES, 2)
        See `npusim.cost.products.search_product`.
    bounds : array of int64, shape (rows + 1,)
        Written: the candidates of row `r` are `found[bounds[r] : bounds[r + 1]]`. Views and operators on a
        host have none.

    Returns
    -------
    found : array of CANDIDATE_DTYPE
    """
    places, known = _INITIAL_CANDIDATES, no_known_tiles(archs.arrays[0])
    for d in range(archs.arrays.shape[1]):
        if is_of_one_point(archs.arrays[0, d], rate_bounds[d]):
            places = _MOST_OF_ONE_POINT * (rows.shape[0] + 1)
    found = np.zeros(places, CANDIDATE_DTYPE)
    # Of a type of its own: a literal would have everything compiled for it as well.
    index: Any = np.int64(0)
    for r in range(rows.shape[0]):
        op = rows[r]
        bounds[r] = index
        if op.unit == _VIEW or op.unit == _HOST:
            continue
        arch, own_bounds = archs.arrays[0, op.device], rate_bounds[op.device]
        stop = _search_operator(arch, op, own_bounds, found, index, known)
        while stop < 0:  # the table was too short
            longer = np.zeros(2 * found.shape[0], CANDIDATE_DTYPE)
            for i in range(index):
                longer[i] = found[i]
            found = longer
            stop = _search_operator(arch, op, own_bounds, found, index, known)
        sort_candidates(found, index, stop)
        index = stop
    bounds[rows.shape[0]] = index
    return found
