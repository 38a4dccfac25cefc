"""Pieces that a tile's share of a product or convolution is cut into: whole stencils, or less.

Blocks are made of whole pieces (`npusim.cost.tiling`). Of a matrix product a piece is a stencil of the MPE
mode. Of a convolution it is so many image rows of a vertical strip of the image by so many output channels:

- rows of a stencil, of a group of pixels (4), or one row;
- channels of a stencil, or of a group of channel lanes (16);
- the whole width of the image, or 2, 4, 8, ... strips, down to the width of a group of pixels.

A piece below a stencil has the grid work on partial stencils: its cycles are those of the piece, times the
number of pieces. Blocks of rows share `kernel - stride` input rows at their border, and strips as many
columns; these are fetched for each block and strip. Tiles that split the rows take neighbouring blocks at the
same time, and a broadcast serves both, so the split adds no such rows.

A piece of one row, four pixels and 16 channels, of which 16 input channels are brought in at a time, takes a
few KiB: every convolution fits. The set does not depend on SRAM, so more SRAM is never slower.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.arrays.loops import BATCH, OUTPUT_CHANNELS, OUTPUT_HEIGHT
from npusim.cost.arrays.tile import has_array, lanes_along
from npusim.cost.dpu import conv_cycles, matmul_mode_cycles
from npusim.cost.grid import mode_shape, startup_cycles, tile_workload
from npusim.cost.jit import compiled
from npusim.cost.tables import DpuOperation, OpRecord

_MATMUL = int(DpuOperation.MATMUL)
ROW_LEVELS, CHANNEL_LEVELS = 3, 2


class TilePart(NamedTuple):
    """The smallest part of a tile's share that blocks are made of, by its outputs."""

    rows: float
    """Image rows; of a product pixels. 0 where a coarser level has the same piece."""
    width: float
    """Pixels across a strip."""
    strips: float
    """Strips that the width is cut into."""
    channels: float
    """Output channels."""
    grid_rows: float
    """Rows that the grid works through at a time: all of the tile's where a piece has those of a stencil."""
    grid_channels: float
    """The same for the channels."""
    stencil_pixels: float
    """Pixels of a stencil."""
    stencil_channels: float
    """Output channels of a stencil."""
    is_fine: bool
    """Whether it has less than the rows and channels of a stencil, or less than the whole width."""


@compiled
def more_strips(arch: ArchRecord, op: OpRecord, strips: float) -> float:
    """Return the next number of strips to try, twice as many down to a group of pixels each; 0 for none."""
    groups = np.ceil(op.out_w / arch.dpu_pixel_lanes_w)
    is_last = op.dpu_operation == _MATMUL or has_array(arch) or np.ceil(groups / strips) <= 1.0
    return 0.0 if is_last else 2.0 * strips


@compiled
def _array_piece(arch: ArchRecord, op: OpRecord, rows: float, channels: float, level: int) -> TilePart:
    """Return the piece of an array, which has no stencils: what its PEs hold side by side, or a line."""
    is_matmul = op.dpu_operation == _MATMUL
    tall = lanes_along(arch, BATCH if is_matmul else OUTPUT_HEIGHT, rows)
    if level > 0:
        tall = 0.0 if tall == 1.0 else 1.0
    if is_matmul:
        tall = max(tall, min(rows, arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h))
    wide = max(lanes_along(arch, OUTPUT_CHANNELS, channels), min(channels, arch.dpu_channel_lanes))
    width = 1.0 if is_matmul else op.out_w
    return TilePart(tall, width, 1.0, wide, rows, channels, tall, wide, False)


@compiled
def piece_of(
    arch: ArchRecord, op: OpRecord, rows: float, channels: float, mode: int, row_level: int,
    channel_level: int, strips: float,
) -> TilePart:  # fmt: skip
    """Return the piece of one level.

    Parameters
    ----------
    rows, channels : float
        A tile's share (`npusim.cost.products.tile_share`).
    row_level : int
        0 rows of a stencil, 1 of a group of pixels, 2 one row; 0 for products.
    channel_level : int
        0 channels of a stencil, 1 of a group of lanes; 0 for products.
    strips : float
        Strips to cut the width into, see `more_strips`; 1 for products.
    """
    if has_array(arch):
        return _array_piece(arch, op, rows, channels, channel_level)
    across, down, groups = mode_shape(arch, mode)
    stencil_w, stencil_h = across * arch.dpu_pixel_lanes_w, down * arch.dpu_pixel_lanes_h
    stencil_c = groups * arch.dpu_channel_lanes
    if op.dpu_operation == _MATMUL:
        pixels = stencil_w * stencil_h
        return TilePart(
            min(rows, pixels), 1.0, 1.0, min(channels, stencil_c), rows, channels, pixels, stencil_c, False
        )
    width = op.out_w
    if strips > 1.0:
        lanes = arch.dpu_pixel_lanes_w
        width = min(op.out_w, np.ceil(np.ceil(op.out_w / lanes) / strips) * lanes)
    piece_h, coarser_h = min(rows, stencil_h), 0.0
    if row_level > 0:
        coarser_h, piece_h = piece_h, min(piece_h, arch.dpu_pixel_lanes_h)
    if row_level > 1:
        coarser_h, piece_h = piece_h, 1.0
    piece_c, coarser_c = min(channels, stencil_c), 0.0
    if channel_level > 0:
        coarser_c, piece_c = piece_c, min(piece_c, arch.dpu_channel_lanes)
    return TilePart(
        0.0 if piece_h == coarser_h or piece_c == coarser_c else piece_h,
        width,
        np.ceil(op.out_w / width),
        piece_c,
        piece_h if row_level > 0 else rows,
        piece_c if channel_level > 0 else channels,
        min(stencil_w, width) * min(stencil_h, piece_h)
        if strips > 1.0 or row_level > 0
        else stencil_w * stencil_h,
        min(stencil_c, piece_c) if channel_level > 0 else stencil_c,
        row_level > 0 or channel_level > 0 or strips > 1.0,
    )


@compiled
def strip_width(op: OpRecord, piece: TilePart) -> float:
    """Input columns of a strip, those that it shares with the next one included."""
    if piece.strips == 1.0:
        return float(op.in_w)
    return float(min(op.in_w, piece.width * op.stride_w + max(0.0, op.kernel_w - op.stride_w)))


@compiled
def tile_cycles(
    arch: ArchRecord, op: OpRecord, rows: float, channels: float, mode: int, piece: TilePart
) -> float:
    """Cycles of the MAC grid for one tile's share of one product or image of a batch."""
    if op.dpu_operation == _MATMUL:
        return matmul_mode_cycles(arch, tile_workload(op, rows, 1.0, channels, True), mode)
    work = tile_workload(op, piece.width, piece.grid_rows, piece.grid_channels, True)
    cycles = conv_cycles(arch, work, mode)
    if not piece.is_fine:
        return cycles
    count = piece.strips * np.ceil(rows / piece.grid_rows) * np.ceil(channels / piece.grid_channels)
    start = startup_cycles(arch, 1.0)
    return float(start + count * (cycles - start))


@compiled
def halo_factor(op: OpRecord, row_blocks: float, strips: float) -> float:
    """Input rows and columns that are fetched when activations are passed over once, over those there are."""
    if op.dpu_operation == _MATMUL:
        return 1.0
    down = min(op.in_h, max(0.0, op.kernel_h - op.stride_h)) / op.in_h
    across = min(op.in_w, max(0.0, op.kernel_w - op.stride_w)) / op.in_w
    return float((1.0 + (row_blocks - 1.0) * down) * (1.0 + (strips - 1.0) * across))
