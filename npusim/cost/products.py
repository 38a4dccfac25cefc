"""Matrix products and convolutions: candidates by split over tiles, MPE mode, order and tiling.

Splitting by rows gives each tile some of the output pixels and all of the weights, splitting by columns some
of the output channels and all of the activations. Which is faster depends on clocks and bandwidths too, so
every candidate that can be the best is kept (`npusim.cost.candidates`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.candidate_latency import lower_bound_s, upper_bound_s
from npusim.cost.candidates import CandidateRecord, add_candidate
from npusim.cost.dpu import conv_cycles, matmul_mode_cycles, mode_shape
from npusim.cost.energy import grid_traffic_bytes
from npusim.cost.grid import tile_workload
from npusim.cost.jit import compiled
from npusim.cost.tables import DpuOperation, OpRecord, Order, Split
from npusim.cost.tiling import (
    Block,
    Tiling,
    best_blocks,
    copies,
    free_tile_bytes,
    largest_share,
    live_bytes,
    next_count,
)

__all__ = ["search_product", "sum_rate", "tile_share"]

_MATMUL = int(DpuOperation.MATMUL)
_ROWS, _COLUMNS, _SINGLE = int(Split.ROWS), int(Split.COLUMNS), int(Split.SINGLE)
_WEIGHTS_HELD, _ACTIVATIONS_HELD, _OUTPUTS_HELD = (
    int(Order.WEIGHTS_HELD),
    int(Order.ACTIVATIONS_HELD),
    int(Order.OUTPUTS_HELD),
)


class Layout(NamedTuple):
    """A product spread over tiles and laid on the grid in one way."""

    split: int
    """See `npusim.cost.tables.Split`."""
    mode: int
    """MPE mode."""
    tiles: float
    """Tiles that have a part in it."""
    cycles: float
    """Cycles of the busiest tile's MAC grid, for one product of a batch that is not cut further."""
    block: Block
    """A tile's share in stencils."""
    a_dram_bytes: float
    """Activations that one pass over them brings from DRAM into a tile."""
    b_dram_bytes: float
    """Weights that one pass over them brings from DRAM into a tile."""


@compiled
def tile_share(arch: ArchRecord, op: OpRecord, split: int) -> tuple[float, float, float]:
    """Return (tiles used, output rows of a tile, output channels of a tile) under a split.

    A product's rows are dealt out in groups of pixel lanes, a convolution's as image rows, channels in
    groups of channel lanes.
    """
    lanes = arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h if op.dpu_operation == _MATMUL else 1.0
    length = op.out_w if op.dpu_operation == _MATMUL else op.out_h
    if split == _ROWS:
        share = np.ceil(np.ceil(length / lanes) / arch.tiles) * lanes
        return min(arch.tiles, np.ceil(length / share)), min(share, length), op.out_c
    if split == _COLUMNS:
        share = np.ceil(np.ceil(op.out_c / arch.dpu_channel_lanes) / arch.tiles) * arch.dpu_channel_lanes
        return min(arch.tiles, np.ceil(op.out_c / share)), length, min(share, op.out_c)
    return 1.0, length, op.out_c


@compiled
def _tile_cycles(arch: ArchRecord, op: OpRecord, rows: float, channels: float, mode: int) -> float:
    """Cycles of the MAC grid for one tile's share of one product of a batch."""
    if op.dpu_operation == _MATMUL:
        return matmul_mode_cycles(arch, tile_workload(op, rows, 1.0, channels, True), mode)
    return conv_cycles(arch, tile_workload(op, op.out_w, rows, channels, True), mode)


@compiled
def _block(arch: ArchRecord, op: OpRecord, rows: float, channels: float, mode: int) -> Block:
    """Cut a tile's share into stencils of a mode and size them in bytes."""
    across, down, channel_groups = mode_shape(arch, mode)
    stencil_c = min(channels, channel_groups * arch.dpu_channel_lanes)
    taps = op.kernel_w * op.kernel_h
    if op.dpu_operation == _MATMUL:
        stencil_m = min(rows, across * arch.dpu_pixel_lanes_w * down * arch.dpu_pixel_lanes_h)
        a_bytes = stencil_m * op.in_c * op.a_item * op.a_pack
        halo = 0.0
        pixels = stencil_m
    else:
        stencil_m = min(rows, down * arch.dpu_pixel_lanes_h)
        line = op.in_w * op.in_c * op.a_item * op.a_pack
        a_bytes = stencil_m * op.stride_h * line
        halo = max(0.0, op.kernel_h - op.stride_h) * line
        pixels = stencil_m * op.out_w
    b_bytes = stencil_c * op.in_c * taps * op.b_item * op.b_pack
    c_bytes = pixels * stencil_c * op.c_item
    return Block(
        np.ceil(rows / stencil_m),
        np.ceil(channels / stencil_c),
        max(1.0, np.ceil(op.in_c / arch.dpu_channel_lanes)) if op.dpu_operation == _MATMUL else 1.0,
        0.0 if op.a_resident else a_bytes,
        0.0 if op.a_resident else halo,
        0.0 if op.b_resident else b_bytes,
        0.0 if op.c_resident else c_bytes,
        pixels * stencil_c * arch.dpu_sum_bytes,
        free_tile_bytes(arch, op),
    )


@compiled
def _reads(op: OpRecord, order: int, row_blocks: float, column_blocks: float) -> tuple[float, float]:
    """Return bytes read from DRAM: (of the activations, of everything else)."""
    a_passes = 1.0 if order == _ACTIVATIONS_HELD else column_blocks
    b_passes = 1.0 if order == _WEIGHTS_HELD else row_blocks
    return op.a_dram_bytes * a_passes, op.b_dram_bytes * b_passes + op.extra_dram_bytes


@compiled
def _refills(layout: Layout, order: int, tiling: Tiling) -> float:
    """Return how often what streams past fills the SRAM of a tile that is free for it.

    Weights that wait take their room; of other operands that wait no more is known than that they fit.
    """
    block, free_bytes, streamed = layout.block, layout.block.free_bytes, 0.0
    if order != _ACTIVATIONS_HELD:
        streamed += layout.a_dram_bytes * tiling.column_blocks
    if order == _WEIGHTS_HELD:
        free_bytes -= (
            np.ceil(block.columns / tiling.column_blocks) * block.b_bytes * copies(tiling.column_blocks)
        )
    else:
        streamed += layout.b_dram_bytes * tiling.row_blocks
    return float(streamed / free_bytes) if streamed > 0.0 else 0.0


@compiled
def sum_rate(arch: ArchRecord) -> float:
    """Bytes of partial sums per cycle that the grid writes or reads again: the rate of its outputs."""
    return float(arch.dpu_drain_bytes_per_port_cycle * arch.dpu_write_ports)


@compiled
def search_product(arch: ArchRecord, op: OpRecord, rate_bounds: Any, found: Any, start: int) -> int:
    """Find every split, mode, order and tiling of a product that can be the fastest.

    Parameters
    ----------
    arch : record of ARCH_DTYPE
        Only what the search may look at (`npusim.cost.architecture.SEARCH_COLUMNS`) and what follows from it.
    op : record of OP_DTYPE
    rate_bounds : array of float64, shape (RATES, 2)
        Lower and upper bound of each rate, where that is known
        (`npusim.cost.candidate_latency.fill_rate_bounds`): a candidate whose lower bound of latency is above
        another's upper bound is left out.
    found : array of CANDIDATE_DTYPE, shape (places,)
        Written from `start`.
    start : int

    Returns
    -------
    int
        Where the candidates end: `start` where no tiling fits into SRAM, -1 where `found` is too short.
    """
    stop, upper_s = start, np.inf
    for split in range(3):
        used, rows, channels = tile_share(arch, op, split)
        for mode in range(3):
            length = op.out_w if op.dpu_operation == _MATMUL else op.out_h
            layout = Layout(
                split,
                mode,
                used,
                _tile_cycles(arch, op, rows, channels, mode),
                _block(arch, op, rows, channels, mode),
                op.a_dram_bytes * rows / length,
                op.b_dram_bytes * channels / op.out_c,
            )
            stop, upper_s = _search(arch, op, layout, rate_bounds, found, start, stop, upper_s)
    return stop


@compiled
def _search(
    arch: ArchRecord, op: OpRecord, layout: Layout, rate_bounds: Any, found: Any, start: int, stop: int,
    upper_s: float,
) -> tuple[int, float]:  # fmt: skip
    """Try every candidate tiling of one layout (see `npusim.cost.tiling`).

    More chunks never shorten anything but the start, so the search ends where even the shortest start is too
    long. `upper_s` is the least upper bound of latency so far.
    """
    if stop < 0 or stop + 1 >= found.shape[0]:
        return -1, upper_s
    block, chunks = layout.block, 1.0
    while chunks > 0.0:
        # Partial sums are written and read again once for each further chunk.
        spill = (chunks - 1.0) * 2.0 * block.rows * block.columns * block.sum_bytes / sum_rate(arch)
        # Blocks of whole rows are contiguous in DRAM; a chunk of the input channels is a piece of each
        # row, unless the compiler laid a constant out in the order of its use.
        row_bytes = op.in_c * op.a_item / chunks if chunks > 1.0 and not op.a_constant else 0.0
        least = found[stop]
        _fill(op, least, 0, 1.0, 1.0, layout.cycles + spill, row_bytes)
        least.refills = 0.0
        _set_prologue_epilogue(arch, op, least, block, block.chunks)
        if lower_bound_s(least, rate_bounds) > upper_s:
            return stop, upper_s
        _set_prologue_epilogue(arch, op, least, block, chunks)
        if lower_bound_s(least, rate_bounds) <= upper_s:
            stop, upper_s = _try_blocks(
                arch, op, layout, chunks, spill, row_bytes, rate_bounds, found, start, stop, upper_s
            )
            if stop < 0:
                return stop, upper_s
        chunks = next_count(chunks, block.chunks)
    return stop, upper_s


@compiled
def _try_blocks(
    arch: ArchRecord, op: OpRecord, layout: Layout, chunks: float, spill: float, row_bytes: float,
    rate_bounds: Any, found: Any, start: int, stop: int, upper_s: float,
) -> tuple[int, float]:  # fmt: skip
    """Try every candidate of column blocks, each with the fewest row blocks."""
    block, columns = layout.block, 1.0
    while columns > 0.0:
        tiling = best_blocks(block, columns, chunks)
        if tiling.working_set_bytes < np.inf:
            for held in range(1 if chunks > 1.0 else 2):
                if stop + 1 >= found.shape[0]:
                    return -1, upper_s
                order = _OUTPUTS_HELD if chunks > 1.0 else held
                new = found[stop]
                starts = (tiling.row_blocks * columns * chunks - 1.0) * arch.dpu_startup_cycles
                cycles = layout.cycles + spill + starts
                _fill(op, new, order, tiling.row_blocks, columns, cycles, row_bytes)
                _set_prologue_epilogue(arch, op, new, block, chunks)
                new.refills = _refills(layout, order, tiling)
                if lower_bound_s(new, rate_bounds) <= upper_s:
                    upper_s = min(upper_s, upper_bound_s(new, rate_bounds))
                    new.sram_peak_bytes = layout.tiles * tiling.working_set_bytes + live_bytes(arch, op)
                    new.grid_traffic_bytes = grid_traffic_bytes(arch, op, layout.mode)
                    new.split, new.order, new.mode, new.tiles = layout.split, order, layout.mode, layout.tiles
                    new.row_blocks, new.column_blocks = tiling.row_blocks, columns
                    new.channel_chunks = chunks
                    stop = add_candidate(found, start, stop, stop)
        columns = next_count(columns, block.columns)
    return stop, upper_s


@compiled
def _fill(
    op: OpRecord,
    new: CandidateRecord,
    order: int,
    row_blocks: float,
    columns: float,
    cycles: float,
    row_bytes: float,
) -> None:
    """Fill in what a candidate needs of the grid and of the DMA."""
    a_read, other_read = _reads(op, order, row_blocks, columns)
    new.grid_cycles = op.batch * cycles
    new.read_bytes = a_read + other_read
    new.read_gaps = max(0.0, a_read / row_bytes - 1.0) if row_bytes > 0.0 else 0.0
    new.written_bytes = op.c_dram_bytes
    new.copied_bytes = 0.0
    new.dram_bytes = a_read + other_read + op.c_dram_bytes


@compiled
def _set_prologue_epilogue(
    arch: ArchRecord, op: OpRecord, new: CandidateRecord, block: Block, chunks: float
) -> None:
    """Fill in prologue and epilogue, which nothing hides: the first pieces in, the last one out."""
    share = largest_share(chunks, block.chunks)
    first = 0.0
    if op.a_dram_bytes > 0.0 and not op.a_prefetch:
        first += (block.a_bytes + block.a_halo_bytes) * share
    if op.b_dram_bytes > 0.0 and not op.b_prefetch:
        first += block.b_bytes * share
    new.prologue_bytes = first
    new.epilogue_bytes = block.c_bytes if op.c_dram_bytes > 0.0 else 0.0
    new.page_walks = 1.0 if first > arch.dma_page_bytes else 0.0
