"""Matrix products and convolutions: candidates by split, MPE mode, parts, order and tiling.

Splitting by rows gives each tile some of the output pixels and all of the weights, splitting by columns some
of the output channels and all of the activations. Convolutions are cut into pieces of several sizes
(`npusim.cost.granularity`), the larger ones first. Which is faster depends on clocks and bandwidths too, so
every candidate that can be the best is kept (`npusim.cost.candidates`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.arrays.tile import array_tile, block_start_cycles, has_array, modes_of
from npusim.cost.candidate_latency import TIE, lower_bound_s, upper_bound_s
from npusim.cost.candidates import CandidateRecord, add_candidate
from npusim.cost.demands import grid_written_bytes, stencil_fed_bytes
from npusim.cost.granularity import (
    CHANNEL_LEVELS,
    ROW_LEVELS,
    TilePart,
    halo_factor,
    more_strips,
    piece_of,
    strip_width,
    tile_cycles,
)
from npusim.cost.jit import compiled
from npusim.cost.rates import greatest_sram_bytes, least_sram_bytes
from npusim.cost.tables import DpuOperation, OpRecord, Order, Split
from npusim.cost.tiling import (
    Block,
    copies,
    fewest_row_blocks,
    largest_share,
    live_bytes,
    live_tile_bytes,
    needed_bytes,
    next_count,
    room_of,
)

_MATMUL = int(DpuOperation.MATMUL)
_ROWS, _COLUMNS, _SINGLE = int(Split.ROWS), int(Split.COLUMNS), int(Split.SINGLE)
_WEIGHTS_HELD, _ACTIVATIONS_HELD, _OUTPUTS_HELD = (
    int(Order.WEIGHTS_HELD),
    int(Order.ACTIVATIONS_HELD),
    int(Order.OUTPUTS_HELD),
)


class Uppers(NamedTuple):
    """Least upper bounds of latency (s) so far; infinite where rates are not known."""

    of_any: float
    of_coarse: float
    """Of candidates with pieces of stencils."""


class Layout(NamedTuple):
    """A product spread over tiles and laid on the grid in one way."""

    split: int
    """See `npusim.cost.tables.Split`."""
    mode: int
    """MPE mode."""
    tiles: float
    """Tiles that have a part in it."""
    piece: TilePart
    """What blocks are made of."""
    cycles: float
    """Cycles of the busiest tile's MAC grid, for one product of a batch that is not cut further."""
    block: Block
    """A tile's share in pieces."""
    a_dram_bytes: float
    """Activations that one pass over them brings from DRAM into a tile."""
    b_dram_bytes: float
    """Weights that one pass over them brings from DRAM into a tile."""
    sram_bytes: float
    """Bytes of an array in SRAM, of all tiles and products; 0 for the grid, whose stencils tell."""


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
def _block(arch: ArchRecord, op: OpRecord, rows: float, channels: float, piece: TilePart) -> Block:
    """Cut a tile's share into pieces and size them in bytes."""
    taps = op.kernel_w * op.kernel_h
    if op.dpu_operation == _MATMUL:
        a_bytes = piece.rows * op.in_c * op.a_item * op.a_pack
        halo = 0.0
        pixels = piece.rows
    else:
        line = strip_width(op, piece) * op.in_c * op.a_item * op.a_pack
        a_bytes = piece.rows * op.stride_h * line
        halo = max(0.0, op.kernel_h - op.stride_h) * line
        pixels = piece.rows * piece.width
    b_bytes = piece.channels * op.in_c * taps * op.b_item * op.b_pack
    c_bytes = pixels * piece.channels * op.c_item
    return Block(
        piece.strips,
        np.ceil(rows / piece.rows),
        np.ceil(channels / piece.channels),
        max(1.0, np.ceil(op.in_c / arch.dpu_channel_lanes)),
        0.0 if op.a_resident else a_bytes,
        0.0 if op.a_resident else halo,
        0.0 if op.b_resident else b_bytes,
        0.0 if op.c_resident else c_bytes,
        pixels * piece.channels * arch.dpu_sum_bytes,
        live_tile_bytes(arch, op),
    )


@compiled
def _reads(
    op: OpRecord, order: int, strips: float, row_blocks: float, column_blocks: float
) -> tuple[float, float]:
    """Return bytes read from DRAM: (of the activations, of everything else)."""
    a_passes = 1.0 if order == _ACTIVATIONS_HELD else column_blocks
    b_passes = 1.0 if order == _WEIGHTS_HELD else strips * row_blocks
    a_once = op.a_dram_bytes * halo_factor(op, row_blocks, strips)
    return a_once * a_passes, op.b_dram_bytes * b_passes + op.extra_dram_bytes


@compiled
def _set_streamed_held(
    op: OpRecord, new: CandidateRecord, layout: Layout, order: int, row_blocks: float, column_blocks: float
) -> None:
    """Fill in what streams past in a tile, and what is no room for it.

    Weights that wait take their room; of other operands that wait no more is known than that they fit.
    """
    block = layout.block
    new.streamed_bytes, new.held_bytes = 0.0, block.live_bytes
    if order != _ACTIVATIONS_HELD:
        halo = halo_factor(op, row_blocks, block.strips)
        new.streamed_bytes += layout.a_dram_bytes * halo * column_blocks
    if order == _WEIGHTS_HELD:
        new.held_bytes += np.ceil(block.columns / column_blocks) * block.b_bytes * copies(column_blocks)
    else:
        new.streamed_bytes += layout.b_dram_bytes * (block.strips * row_blocks)


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
        Only what the search may look at (`npusim.cost.architecture.SearchedColumns`) and what follows from
        that.
    rate_bounds : array of float64, shape (RATES, 2)
        The range of SRAM sizes that the search is for, and lower and upper bound of each rate, where that is
        known (`npusim.cost.rates.widen_rate_bounds`): a candidate whose lower bound of latency is
        above another's upper bound is left out.
    found : array of CANDIDATE_DTYPE, shape (places,)
        Written from `start`.

    Returns
    -------
    int
        Where the candidates end: `start` where no tiling fits into SRAM, -1 where `found` is too short.
    """
    stop, uppers, strips = start, Uppers(np.inf, np.inf), 1.0
    is_matmul, is_array = op.dpu_operation == _MATMUL, has_array(arch)
    while strips > 0.0:
        for level in range(1 if is_matmul else CHANNEL_LEVELS * (1 if is_array else ROW_LEVELS)):
            row_level, channel_level = level // CHANNEL_LEVELS, level % CHANNEL_LEVELS
            for split in range(3):
                used, rows, channels = tile_share(arch, op, split)
                passes = rows if is_array and level > 0 else 1.0  # a line at a time
                array_cycles, array_bytes = 0.0, 0.0
                if is_array:
                    array_cycles, array_bytes = array_tile(arch, op, rows / passes, channels)
                for mode in range(modes_of(arch)):
                    piece = piece_of(arch, op, rows, channels, mode, row_level, channel_level, strips)
                    if piece.rows > 0.0:
                        layout = Layout(
                            split,
                            mode,
                            used,
                            piece,
                            array_cycles * passes
                            if is_array
                            else tile_cycles(arch, op, rows, channels, mode, piece),
                            _block(arch, op, rows, channels, piece),
                            op.a_dram_bytes * rows / (op.out_w if is_matmul else op.out_h),
                            op.b_dram_bytes * channels / op.out_c,
                            op.batch * used * array_bytes * passes,
                        )
                        stop, uppers = _search(arch, op, layout, rate_bounds, found, start, stop, uppers)
        strips = more_strips(arch, op, strips)
    return stop


@compiled
def _contiguous_bytes(op: OpRecord, piece: TilePart, chunks: float) -> float:
    """Bytes of the activations that lie in DRAM without a gap; 0 where a whole block does.

    Blocks of whole rows do; a chunk of the input channels is a part of each pixel, a strip a part of each
    row, unless the compiler laid a constant out in the order of its use.
    """
    if op.a_constant:
        return 0.0
    if chunks > 1.0:
        return float(op.in_c * op.a_item / chunks)
    if piece.strips > 1.0:
        return float(strip_width(op, piece) * op.in_c * op.a_item)
    return 0.0


@compiled
def _is_slower(new: CandidateRecord, rate_bounds: Any, uppers: Uppers) -> bool:
    """Whether a candidate is at no point faster than another, or as fast with smaller pieces."""
    lower_s = lower_bound_s(new, rate_bounds)
    if new.fine > 0.0:
        return bool(lower_s > uppers.of_any or lower_s > uppers.of_coarse * TIE)
    return bool(lower_s * TIE > uppers.of_any or lower_s > uppers.of_coarse)


@compiled
def _search(
    arch: ArchRecord, op: OpRecord, layout: Layout, rate_bounds: Any, found: Any, start: int, stop: int,
    uppers: Uppers,
) -> tuple[int, Uppers]:  # fmt: skip
    """Try every candidate tiling of one layout (see `npusim.cost.tiling`).

    More chunks never shorten anything but the start, so the search ends where even the shortest start is too
    long.
    """
    if stop < 0 or stop + 1 >= found.shape[0]:
        return -1, uppers
    block, chunks = layout.block, 1.0
    while chunks > 0.0:
        # Partial sums are written and read again once for each further chunk.
        pieces = block.strips * block.rows * block.columns
        spill = (chunks - 1.0) * 2.0 * pieces * block.sum_bytes / sum_rate(arch)
        row_bytes = _contiguous_bytes(op, layout.piece, chunks)
        least = found[stop]
        least.fine = 1.0 if layout.piece.is_fine else 0.0
        _fill(op, least, _WEIGHTS_HELD, block.strips, 1.0, 1.0, layout.cycles + spill, row_bytes)
        least.streamed_bytes = least.held_bytes = 0.0
        _set_prologue_epilogue(arch, op, least, block, block.chunks)
        if _is_slower(least, rate_bounds, uppers):
            return stop, uppers
        _set_prologue_epilogue(arch, op, least, block, chunks)
        if not _is_slower(least, rate_bounds, uppers):
            stop, uppers = _try_blocks(
                arch, op, layout, chunks, spill, row_bytes, rate_bounds, found, start, stop, uppers
            )
            if stop < 0:
                return stop, uppers
        chunks = next_count(chunks, block.chunks)
    return stop, uppers


@compiled
def _try_blocks(
    arch: ArchRecord, op: OpRecord, layout: Layout, chunks: float, spill: float, row_bytes: float,
    rate_bounds: Any, found: Any, start: int, stop: int, uppers: Uppers,
) -> tuple[int, Uppers]:  # fmt: skip
    """Try all column blocks, each with all row blocks that are the fewest at some size of SRAM."""
    block, columns = layout.block, 1.0
    least, greatest = least_sram_bytes(rate_bounds), greatest_sram_bytes(rate_bounds)
    while columns > 0.0:
        room = room_of(block, columns, chunks)
        row_blocks, before = fewest_row_blocks(block, room, greatest), np.inf
        while row_blocks > 0.0:
            needed = needed_bytes(block, room, row_blocks)
            if needed < before:
                if stop + 2 >= found.shape[0]:
                    return -1, uppers
                before = needed
                for held in range(1 if chunks > 1.0 else 2):
                    order = _OUTPUTS_HELD if chunks > 1.0 else held
                    new = found[stop]
                    new.fine = 1.0 if layout.piece.is_fine else 0.0
                    blocks = block.strips * row_blocks * columns * chunks
                    cycles = layout.cycles + spill + (blocks - 1.0) * block_start_cycles(arch)
                    _fill(op, new, order, block.strips, row_blocks, columns, cycles, row_bytes)
                    _set_prologue_epilogue(arch, op, new, block, chunks)
                    _set_streamed_held(op, new, layout, order, row_blocks, columns)
                    if not _is_slower(new, rate_bounds, uppers):
                        new.needed_bytes = needed
                        uppers = _lowered(uppers, new, upper_bound_s(new, rate_bounds))
                        _set_tiling(arch, op, new, layout, order, row_blocks, columns, chunks)
                        stop = add_candidate(found, start, stop, stop, least, greatest)
            if before <= least:
                break
            row_blocks = next_count(row_blocks, block.rows)
        columns = next_count(columns, block.columns)
    return stop, uppers


@compiled
def _lowered(uppers: Uppers, new: CandidateRecord, upper_s: float) -> Uppers:
    """Return the least upper bounds, those of another candidate taken into account."""
    of_coarse = uppers.of_coarse if new.fine > 0.0 else min(uppers.of_coarse, upper_s)
    return Uppers(min(uppers.of_any, upper_s), of_coarse)


@compiled
def _set_tiling(
    arch: ArchRecord, op: OpRecord, new: CandidateRecord, layout: Layout, order: int, row_blocks: float,
    columns: float, chunks: float,
) -> None:  # fmt: skip
    """Fill in what a candidate takes of SRAM, and what it is."""
    block, piece = layout.block, layout.piece
    working = new.needed_bytes - block.live_bytes
    new.sram_peak_bytes = layout.tiles * working + live_bytes(arch, op)
    new.fed_bytes = layout.sram_bytes - grid_written_bytes(op)
    if layout.sram_bytes == 0.0:
        new.fed_bytes = stencil_fed_bytes(op, piece.stencil_pixels, piece.stencil_channels)
    new.split, new.order, new.mode, new.tiles = layout.split, order, layout.mode, layout.tiles
    new.row_pieces, new.strips = block.rows, block.strips
    new.row_blocks, new.column_blocks, new.channel_chunks = row_blocks, columns, chunks


@compiled
def _fill(
    op: OpRecord,
    new: CandidateRecord,
    order: int,
    strips: float,
    row_blocks: float,
    columns: float,
    cycles: float,
    row_bytes: float,
) -> None:
    """Fill in what a candidate needs of the grid and of the DMA."""
    a_read, other_read = _reads(op, order, strips, row_blocks, columns)
    new.grid_cycles = op.batch * cycles
    new.read_bytes = a_read + other_read
    new.read_gaps = max(0.0, a_read / row_bytes - 1.0) if row_bytes > 0.0 else 0.0
    new.written_bytes = op.c_dram_bytes
    new.copied_bytes = 0.0


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
