"""How products and convolutions are laid on the grid, and what a tiling of a layout needs.

Splitting by rows gives each tile some of the output pixels and all of the weights, splitting by columns some
of the output channels and all of the activations. Convolutions are cut into pieces of several sizes
(`npusim.cost.granularity`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.candidates import CandidateRecord
from npusim.cost.demands import grid_written_bytes, stencil_fed_bytes
from npusim.cost.granularity import TilePart, halo_factor, strip_width
from npusim.cost.jit import compiled
from npusim.cost.tables import DpuOperation, OpRecord, Order, Split
from npusim.cost.tiling import Block, copies, largest_share, live_bytes, live_tile_bytes

_MATMUL = int(DpuOperation.MATMUL)
_ROWS, _COLUMNS = int(Split.ROWS), int(Split.COLUMNS)
_WEIGHTS_HELD, _ACTIVATIONS_HELD = int(Order.WEIGHTS_HELD), int(Order.ACTIVATIONS_HELD)


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
    fed_bytes: float
    """Bytes that the MACs read in SRAM, of all tiles and products."""


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
def block_of(arch: ArchRecord, op: OpRecord, rows: float, channels: float, piece: TilePart) -> Block:
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
def set_streamed_held(
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
def fed_by_layout(op: OpRecord, piece: TilePart, array_bytes: float) -> float:
    """Bytes that the MACs read in SRAM: those of an array, or of the grid's stencils where that is 0."""
    if array_bytes == 0.0:
        return stencil_fed_bytes(op, piece.stencil_pixels, piece.stencil_channels)
    return array_bytes - grid_written_bytes(op)


@compiled
def contiguous_bytes(op: OpRecord, piece: TilePart, chunks: float) -> float:
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
def set_tiling(
    arch: ArchRecord, op: OpRecord, new: CandidateRecord, layout: Layout, order: int, row_blocks: float,
    columns: float, chunks: float,
) -> None:  # fmt: skip
    """Fill in what a candidate takes of SRAM, and what it is."""
    block = layout.block
    working = new.needed_bytes - block.live_bytes
    new.sram_peak_bytes, new.fed_bytes = layout.tiles * working + live_bytes(arch, op), layout.fed_bytes
    new.split, new.order, new.mode, new.tiles = layout.split, order, layout.mode, layout.tiles
    new.row_pieces, new.strips = block.rows, block.strips
    new.row_blocks, new.column_blocks, new.channel_chunks = row_blocks, columns, chunks


@compiled
def set_least(layout: Layout, least: CandidateRecord) -> None:
    """Fill in what no tiling of a layout has less of, but for what grid and DMA need."""
    least.streamed_bytes = least.held_bytes = least.sram_peak_bytes = 0.0
    least.split, least.mode, least.fed_bytes = layout.split, layout.mode, layout.fed_bytes


@compiled
def fill_needs(
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
def set_prologue_epilogue(
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
