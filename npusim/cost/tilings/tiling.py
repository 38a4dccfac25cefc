"""Tilings: how a product is cut into blocks that fit into SRAM, and why few candidates suffice.

A product of M pixels, K input channels and N output channels is divided among tiles by rows or by columns, or
one tile computes it. By rows each tile has some output pixels and all weights, by columns some output
channels and all activations. Within a tile it is cut into `row_blocks` x `column_blocks` blocks of whole
pieces. The operand of the outer loop is stationary in SRAM and the other streams, double-buffered; or both
stream in `channel_chunks` and partial sums stay. The strips of an image follow each other, each in
`row_blocks`. The blocks of a stationary operand are double-buffered, or single-buffered: then the share is
computed in *parts*, one after the other, each with one block of that operand, its own prologue and epilogue.

Why the candidates suffice. For one split, mode, size of piece and order, latency grows with compute, DMA
traffic and refills of the streamed operand. Compute grows with the number of blocks (each is a start-up). DMA
traffic grows with `row_blocks` and `column_blocks`: each block of the stationary operand fetches the streamed
one again, and two blocks both fetch the input rows at their border. The start is shorter with smaller blocks
of a stationary operand; all `column_blocks` are tried, so only stationary activations could gain by more
`row_blocks`, and move more for it: these are left out. So the smallest feasible `row_blocks` is tried for
each `column_blocks` (and each `channel_chunks`). The size of blocks depends on a count only through its
largest piece, ceil(total / count). So the smallest count with the same largest piece is the best: about 2
sqrt(total) values of `column_blocks` and of `channel_chunks` remain. The search tries all of them for each
size of piece. More SRAM is never slower beyond the tolerance of the choice
(`npusim.cost.units.rates.TOLERANCE`). A search for a range of sizes tries, for each such pair, all
`row_blocks` that are the fewest feasible at some size.

Parts of weights have one column block each, parts of activations one row block. Parts are whole groups of
lanes, finer than a piece, so that they fill SRAM; where all have equally many groups, they are of equal
length. The last part is smaller, or sizes differ by a group at most, whichever takes fewer cycles. Traffic,
fills and restarts grow with the number of parts; more parts leave more SRAM for what streams. So the fewest
parts that fit are tried, and those at least a third as long as what fits, where the share does not fit as a
whole; of convolutions with each number of strips and height of pieces. Lengths are compared, not numbers, so
a whole has every part that its halves have.

Parts of channels may also stream both operands in chunks, with blocks of rows as a share has. They are blocks
of outputs, so nothing pauses between them. They are tried from half a register tile to less than one. Longer
blocks are nearly whole register tiles; shorter ones, and parts of rows, take long to search. Without them a
whole costs no more than its parts (`tests/test_mapping_law.py`).

Blocks of outputs are whole register tiles, or one to four register tiles long in groups of lanes, whose
cycles are exact; of these every number that fits is tried.

Pieces. The piece of a matrix product is a register tile of the MPE mode. The piece of a convolution has

- rows of a register tile, of a group of pixels (4), or one row;
- channels of a register tile, or of a group of channel lanes (16);
- the whole width of the image, or 2, 4, 8, ... strips, down to the width of a group of pixels.

With a piece smaller than a register tile the grid computes partial register tiles: its cycles are those of
the piece, times the number of pieces. Blocks of rows share `kernel - stride` input rows at their border, and
strips as many columns; each block and strip fetches these. Tiles that divide the rows compute neighbouring
blocks at the same time, and a broadcast serves both, so the split adds no such rows. The smallest piece, with
16 input channels at a time, takes a few KiB: every convolution fits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npusim.compiling.kernels import compiled
from npusim.cost.lowering.tables import ACTIVATIONS_HELD, COLUMNS, MATMUL, ROWS, WEIGHTS_HELD, OpRecord
from npusim.cost.machine.architecture import ArchRecord
from npusim.cost.machine.spatial_array import BATCH, OUTPUT_CHANNELS, OUTPUT_HEIGHT
from npusim.cost.units import grid, resources
from npusim.cost.units.arrays.mapper import has_array, lanes_along
from npusim.cost.units.resources import CandidateRecord, halo_factor


class Block(NamedTuple):
    """The share of one tile: pieces along M (in a strip), N and K, and sizes in bytes.

    Outputs and partial sums are of one piece. Sizes are 0 for operands that are in SRAM already.
    """

    strips: float
    """Strips of the image, in sequence."""
    rows: float
    columns: float
    chunks: float
    a_bytes: float
    """Activations of one row of pieces, all input channels."""
    a_halo_bytes: float
    """Further input rows at the border of a block of rows (convolutions)."""
    b_bytes: float
    """Weights of one column of pieces."""
    c_bytes: float
    sum_bytes: float
    live_bytes: float
    """SRAM of the tile for tensors that live across this product."""
    piece_rows: float
    """Output rows of a piece."""


class Tiling(NamedTuple):
    """A stationary operand, and the number of blocks along each loop."""

    order: int
    """See `npusim.cost.lowering.tables.Order`."""
    strips: float
    row_blocks: float
    column_blocks: float
    chunks: float


_ROUNDING = 1e-12


@compiled
def live_tile_bytes(arch: ArchRecord, op: OpRecord) -> float:
    """Return the SRAM of a tile that tensors living across an operator take."""
    return float(op.live_copied_bytes + op.live_spread_bytes / arch.tiles)


@compiled
def live_bytes(arch: ArchRecord, op: OpRecord) -> float:
    """Return the SRAM of all tiles that tensors living across an operator take."""
    return float(arch.tiles * op.live_copied_bytes + op.live_spread_bytes)


@compiled
def next_count(count: float, total: float) -> float:
    """Return the next larger count with smaller blocks of `total`; 0 where they are single."""
    block = np.ceil(total / count)
    return 0.0 if block <= 1.0 else np.ceil(total / (block - 1.0))


@compiled
def largest_share(count: float, total: float) -> float:
    """Return the share of the largest piece when `total` units are cut into `count` pieces of whole units."""
    return float(np.ceil(total / count) / total)


@compiled
def _copies(count: float) -> float:
    """Buffers of an operand in `count` pieces: two where there is a next one."""
    return 2.0 if count > 1.0 else 1.0


class Room(NamedTuple):
    """SRAM of a tile for blocks (bytes), for one count of columns and of chunks."""

    fixed: float
    """For any number of row blocks."""
    once: float
    """A piece along the rows in a single row block."""
    each: float
    """A piece along the rows in several row blocks, which are double-buffered."""


@compiled
def room_of(block: Block, column_blocks: float, channel_chunks: float) -> Room:
    """Return the SRAM of a tile that blocks need."""
    columns = np.ceil(block.columns / column_blocks)
    chunk = largest_share(channel_chunks, block.chunks)
    b_once = columns * block.b_bytes * chunk * _copies(column_blocks * channel_chunks)
    c_each, a_each = columns * block.c_bytes, block.a_bytes * chunk
    fixed = b_once + 2.0 * block.a_halo_bytes * chunk
    a_once = _copies(channel_chunks * block.strips) * a_each
    if channel_chunks > 1.0:  # outputs are written while the partial sums of the next block add up
        sums = columns * block.sum_bytes
        return Room(fixed, a_once + c_each + sums, 2.0 * a_each + c_each + sums)
    # Outputs of a block are written while the next one is computed, so several are double-buffered.
    return Room(fixed, a_once + _copies(column_blocks * block.strips) * c_each, 2.0 * (a_each + c_each))


@compiled
def needed_bytes(block: Block, room: Room, row_blocks: float) -> float:
    """Return the SRAM of a tile that so many row blocks need, live tensors included."""
    each = room.each if row_blocks > 1.0 else room.once
    return float(block.live_bytes + (room.fixed + np.ceil(block.rows / row_blocks) * each))


@compiled
def fewest_row_blocks(block: Block, room: Room, sram_tile_bytes: float) -> float:
    """Return the fewest row blocks that fit into SRAM of a tile; 0 where none do."""
    # Rounding may refuse as many pieces as just fit, so the result is checked.
    free = (sram_tile_bytes - block.live_bytes - room.fixed) * (1.0 + _ROUNDING)
    if room.once * block.rows <= free:
        row_blocks = 1.0
    elif free < room.each:
        return 0.0
    else:
        row_blocks = np.ceil(block.rows / np.floor(free / room.each))
    while row_blocks > 0.0 and needed_bytes(block, room, row_blocks) > sram_tile_bytes:
        row_blocks = next_count(row_blocks, block.rows)
    return float(row_blocks)


ROW_LEVELS, CHANNEL_LEVELS = 3, 2
PARTS_OF_CHANNELS, PARTS_OF_ROWS = 1.0, 2.0
"""Axis of the parts of a share, in `CandidateRecord.parts`; 0 for none."""
TRIANGLE_ONCE = -1.0
"""In place of a size of pieces: a stored triangle is fetched once (`npusim.cost.tilings.search`)."""


_NOT_FINER = 0.0
"""Rows of a piece that a coarser level has already: it is not tried again."""


class TilePart(NamedTuple):
    """A piece: the smallest block of outputs by which blocks of the share of a tile grow."""

    rows: float
    """Image rows; of a product pixels; or `_NOT_FINER`."""
    width: float
    """Pixels across a strip."""
    strips: float
    channels: float
    grid_rows: float
    """Rows of the grid at a time: of the whole share where a piece has the rows of a register tile."""
    grid_channels: float
    register_tile_pixels: float
    register_tile_channels: float
    is_fine: bool
    """Whether it is smaller than a register tile, or narrower than the image."""


@compiled
def more_strips(arch: ArchRecord, op: OpRecord, strips: float) -> float:
    """Return the next number of strips to try, twice as many down to a group of pixels each; 0 for none."""
    groups = np.ceil(op.out_w / arch.dpu_pixel_lanes_w)
    is_last = op.dpu_operation == MATMUL or has_array(arch) or np.ceil(groups / strips) <= 1.0
    return 0.0 if is_last else 2.0 * strips


@compiled
def _array_piece(arch: ArchRecord, op: OpRecord, rows: float, channels: float, level: int) -> TilePart:
    """Return the smallest block of outputs by which a share grows on a PE array: its piece.

    At level 0 it is what the lanes of the PEs produce at once; an array has no register tiles. At level 1, of
    convolutions alone, it is one row of the image. Cycles are those of the whole share, `rows` by `channels`.
    """
    if op.dpu_operation == MATMUL:
        pixel_lanes = arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h
        piece_h, width = max(lanes_along(arch, BATCH, rows), min(rows, pixel_lanes)), 1.0
    else:
        piece_h, width = lanes_along(arch, OUTPUT_HEIGHT, rows), op.out_w
        if level > 0:
            piece_h = _NOT_FINER if piece_h == 1.0 else 1.0
    piece_c = max(lanes_along(arch, OUTPUT_CHANNELS, channels), min(channels, arch.dpu_channel_lanes))
    return TilePart(
        rows=piece_h,
        width=width,
        strips=1.0,
        channels=piece_c,
        grid_rows=rows,
        grid_channels=channels,
        register_tile_pixels=piece_h,
        register_tile_channels=piece_c,
        is_fine=False,
    )


@compiled
def piece_of(
    arch: ArchRecord, op: OpRecord, rows: float, channels: float, mode: int, level: int, strips: float
) -> TilePart:
    """Return the piece of a share (`tile_share`) at one level.

    Parameters
    ----------
    level : int
        0 for products. Row level times CHANNEL_LEVELS, plus channel level. Rows: 0 of a register tile, 1 of a
        group of pixels, 2 one row. Channels: 0 of a register tile, 1 of a group of lanes.
    strips : float
        Strips to cut the width into, see `more_strips`; 1 for products.
    """
    row_level, channel_level = level // CHANNEL_LEVELS, level % CHANNEL_LEVELS
    if has_array(arch):
        return _array_piece(arch, op, rows, channels, channel_level)
    across, down, groups = grid.mode_shape(arch, mode)
    register_tile_w, register_tile_h = across * arch.dpu_pixel_lanes_w, down * arch.dpu_pixel_lanes_h
    pixels, register_tile_c = register_tile_w * register_tile_h, groups * arch.dpu_channel_lanes
    piece_c, width = min(channels, register_tile_c), op.out_w
    if op.dpu_operation == MATMUL:
        return TilePart(min(rows, pixels), 1.0, 1.0, piece_c, rows, channels, pixels, register_tile_c, False)
    if strips > 1.0:
        lanes = arch.dpu_pixel_lanes_w
        width = min(op.out_w, np.ceil(np.ceil(op.out_w / lanes) / strips) * lanes)
    piece_h, coarser_h, coarser_c = min(rows, register_tile_h), 0.0, 0.0
    if row_level > 0:
        coarser_h, piece_h = piece_h, min(piece_h, arch.dpu_pixel_lanes_h)
    if row_level > 1:
        coarser_h, piece_h = piece_h, 1.0
    if channel_level > 0:
        coarser_c, piece_c = piece_c, min(piece_c, arch.dpu_channel_lanes)
        channels, register_tile_c = piece_c, min(register_tile_c, piece_c)
    if strips > 1.0 or row_level > 0:
        pixels = min(register_tile_w, width) * min(register_tile_h, piece_h)
    tall = 0.0 if piece_h == coarser_h or piece_c == coarser_c else piece_h
    grid_rows, count, is_fine = piece_h if row_level > 0 else rows, np.ceil(op.out_w / width), level > 0
    is_fine = is_fine or strips > 1.0
    return TilePart(tall, width, count, piece_c, grid_rows, channels, pixels, register_tile_c, is_fine)


@compiled
def _strip_width(op: OpRecord, piece: TilePart) -> float:
    """Input columns of a strip, with the columns at its border."""
    if piece.strips == 1.0:
        return float(op.in_w)
    return float(min(op.in_w, piece.width * op.stride_w + max(0.0, op.kernel_w - op.stride_w)))


@compiled
def transposing_factor(arch: ArchRecord, op: OpRecord) -> float:
    """Return the cycles of a product over those of straight reads; half of a triangle's are transposed."""
    return float(0.5 + 0.5 / arch.symg_transposed_rate) if op.triangle else 1.0


@compiled
def tile_cycles(
    arch: ArchRecord, op: OpRecord, rows: float, channels: float, mode: int, piece: TilePart
) -> float:
    """Return the cycles of the MAC grid for a tile's share of one product or image, in one MPE mode."""
    if op.dpu_operation == MATMUL:
        work = grid.tile_workload(op, rows, 1.0, channels, True)
        return grid.matmul_mode_cycles(arch, work, mode) * transposing_factor(arch, op)
    work = grid.tile_workload(op, piece.width, piece.grid_rows, piece.grid_channels, True)
    cycles = grid.conv_cycles(arch, work, mode)
    if not piece.is_fine:
        return cycles
    # Pieces follow each other without a pause: the start-up counts once.
    pieces = piece.strips * np.ceil(rows / piece.grid_rows) * np.ceil(channels / piece.grid_channels)
    startup = grid.startup_cycles(arch, 1.0)
    return float(startup + pieces * (cycles - startup))


@compiled
def least_cycles(
    arch: ArchRecord, op: OpRecord, rows: float, channels: float, mode: int
) -> tuple[float, float]:
    """Return lower bounds of the cycles of a share of a product: cut in any way, and along its rows alone.

    The first has full register tiles, the second register tiles with all pixels.
    """
    across, down, groups = grid.mode_shape(arch, mode)
    row_register_tiles = rows / (across * down * arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h)
    register_tile, row = grid.full_register_tile_cycles(
        arch, grid.tile_workload(op, rows, 1.0, channels, True), mode
    )
    start = grid.startup_cycles(arch, 1.0)
    in_row, factor = channels / (groups * arch.dpu_channel_lanes), transposing_factor(arch, op)
    least = start + row_register_tiles * in_row * register_tile
    return float(least * factor), float((start + row_register_tiles * row) * factor)


class Cut(NamedTuple):
    """How a product is divided among tiles, and the share of a tile into parts that follow each other."""

    split: int
    mode: int
    piece_level: int
    """Size of the pieces, see `piece_of`."""
    strips: float
    """As for `piece_of`."""
    row_parts: float
    """Parts along the rows; each has one block of activations."""
    column_parts: float
    """Parts along the columns; each has one block of weights unless it is streamed."""
    is_streamed: bool
    """Whether parts stream both operands, double-buffered across parts, instead of holding one."""


class Layout(NamedTuple):
    """A product divided among `tiles` and placed on the grid in one cut."""

    cut: Cut
    tiles: float
    most_bytes: float
    """See `CandidateRecord.most_bytes`."""
    piece: TilePart
    cycles: float
    """Cycles of the busiest MAC grid for all parts, for one product of a batch that is not cut further."""
    least_cycles: float
    """Lower bound of these cycles for blocks of rows in groups of lanes."""
    block: Block
    """A part."""
    a_dram_bytes: float
    """Activations from DRAM into a tile in one pass."""
    b_dram_bytes: float
    """Weights from DRAM into a tile in one pass."""
    fed_bytes: float
    """Reads of the MACs in SRAM, of all tiles and products."""


@compiled
def row_lanes(arch: ArchRecord, op: OpRecord) -> float:
    """Return the output rows that are never divided: pixel lanes of a product, a row of an image."""
    return float(arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h if op.dpu_operation == MATMUL else 1.0)


@compiled
def tile_share(arch: ArchRecord, op: OpRecord, split: int) -> tuple[float, float, float]:
    """Return (tiles used, output rows of a tile, output channels of a tile) under a split.

    Tiles get whole groups of pixel lanes of a product, image rows of a convolution, and whole groups of
    channel lanes.
    """
    lanes = row_lanes(arch, op)
    length = op.out_w if op.dpu_operation == MATMUL else op.out_h
    if split == ROWS:
        share = np.ceil(np.ceil(length / lanes) / arch.tiles) * lanes
        return min(arch.tiles, np.ceil(length / share)), min(share, length), op.out_c
    if split == COLUMNS:
        share = np.ceil(np.ceil(op.out_c / arch.dpu_channel_lanes) / arch.tiles) * arch.dpu_channel_lanes
        return min(arch.tiles, np.ceil(op.out_c / share)), length, min(share, op.out_c)
    return 1.0, length, op.out_c


@compiled
def part_sizes(arch: ArchRecord, op: OpRecord, cut: Cut) -> tuple[float, float]:
    """Return the rows and channels of the largest part of a share."""
    _, rows, channels = tile_share(arch, op, cut.split)
    rows = part_size(rows, row_lanes(arch, op), cut.row_parts)
    return rows, part_size(channels, arch.dpu_channel_lanes, cut.column_parts)


@compiled
def part_size(length: float, lanes: float, parts: float) -> float:
    """Return the largest of so many parts of a length.

    Parts have whole groups of lanes, or equal lengths where all have equally many groups.
    """
    groups = np.ceil(length / lanes)
    in_part = np.ceil(groups / parts)
    return float(np.ceil(length / parts) if in_part * parts == groups else min(length, in_part * lanes))


@compiled
def block_of(arch: ArchRecord, op: OpRecord, rows: float, channels: float, piece: TilePart) -> Block:
    """Return the share of a tile, or a part of it, in pieces."""
    taps = op.kernel_w * op.kernel_h
    if op.dpu_operation == MATMUL:
        a_bytes = piece.rows * op.in_c * op.a_item * op.a_pack
        halo = 0.0
        pixels = piece.rows
    else:
        line = _strip_width(op, piece) * op.in_c * op.a_item * op.a_pack
        a_bytes = piece.rows * op.stride_h * line
        halo = max(0.0, op.kernel_h - op.stride_h) * line
        pixels = piece.rows * piece.width
    b_bytes = piece.channels * op.in_c * taps * op.b_item * op.b_pack
    c_bytes = pixels * piece.channels * op.c_item
    return Block(
        piece.strips,
        np.ceil(rows / piece.rows) if piece.rows > 0.0 else 0.0,
        np.ceil(channels / piece.channels),
        max(1.0, np.ceil(op.in_c / arch.dpu_channel_lanes)),
        0.0 if op.a_resident else a_bytes,
        0.0 if op.a_resident else halo,
        0.0 if op.b_resident else b_bytes,
        0.0 if op.c_resident else c_bytes,
        pixels * piece.channels * arch.dpu_sum_bytes,
        live_tile_bytes(arch, op),
        piece.rows,
    )


@compiled
def has_register_tiles(arch: ArchRecord, op: OpRecord) -> bool:
    """Whether a row is a matrix product on a grid that works in register tiles."""
    return bool(op.dpu_operation == MATMUL and not has_array(arch))


@compiled
def lane_block_of(arch: ArchRecord, op: OpRecord, layout: Layout) -> Block:
    """Return a tile's share of a product, or a part, with rows in groups of lanes, not register tiles."""
    rows, channels = part_sizes(arch, op, layout.cut)
    piece, lanes = layout.piece, min(rows, row_lanes(arch, op))
    area = (piece.grid_rows, piece.grid_channels, piece.register_tile_pixels, piece.register_tile_channels)
    line = TilePart(lanes, piece.width, piece.strips, piece.channels, *area, piece.is_fine)
    return block_of(arch, op, rows, channels, line)


@compiled
def paused_parts(cut: Cut) -> float:
    """Return the parts of a share between which work and transfers pause: those that hold an operand."""
    return 1.0 if cut.is_streamed else cut.row_parts * cut.column_parts


@compiled
def set_streamed_held(op: OpRecord, new: CandidateRecord, layout: Layout, tiling: Tiling) -> None:
    """Fill in the streamed bytes of a tile, and the SRAM that they cannot use.

    Stationary weights use SRAM; of other stationary operands only that they fit is known.
    """
    block, columns = layout.block, tiling.column_blocks
    in_part = columns / layout.cut.column_parts
    new.streamed_bytes, new.held_bytes = 0.0, block.live_bytes
    if tiling.order != ACTIVATIONS_HELD:
        halo = halo_factor(op, tiling.row_blocks, block.strips)
        new.streamed_bytes += layout.a_dram_bytes * halo * columns
    if tiling.order == WEIGHTS_HELD:
        new.held_bytes += np.ceil(block.columns / in_part) * block.b_bytes * _copies(in_part)
    else:
        new.streamed_bytes += layout.b_dram_bytes * (block.strips * tiling.row_blocks)


@compiled
def set_least_streamed(least: CandidateRecord, layout: Layout, chunks: float) -> None:
    """Fill in lower bounds of the streamed bytes of a tile, and of the SRAM that they cannot use."""
    a_bytes, b_bytes = layout.a_dram_bytes, layout.b_dram_bytes
    least.held_bytes = layout.block.live_bytes
    if chunks > 1.0:
        least.streamed_bytes = a_bytes * layout.cut.column_parts + b_bytes
    elif layout.cut.row_parts > 1.0:
        least.streamed_bytes = b_bytes * layout.cut.row_parts
    elif layout.cut.column_parts > 1.0:
        least.streamed_bytes = a_bytes * layout.cut.column_parts
    else:
        least.streamed_bytes = min(a_bytes, b_bytes)


@compiled
def sum_rate(arch: ArchRecord) -> float:
    """Return the bytes of partial sums that the grid writes or reads in a cycle: the rate of its outputs."""
    return float(arch.dpu_drain_bytes_per_port_cycle * arch.dpu_write_ports)


@compiled
def fed_by_layout(op: OpRecord, piece: TilePart, array_bytes: float) -> float:
    """Return what the MACs read in SRAM (bytes): an array, or register tiles where `array_bytes` is 0."""
    if array_bytes == 0.0:
        return resources.register_tile_fed_bytes(op, piece.register_tile_pixels, piece.register_tile_channels)
    return array_bytes - resources.grid_written_bytes(op)


@compiled
def contiguous_bytes(op: OpRecord, piece: TilePart, chunks: float) -> float:
    """Return the contiguous bytes of activations in DRAM; 0 where a whole block is contiguous.

    A chunk of the input channels is a part of each pixel, a strip a part of each row. The compiler lays
    constants out in the order of use.
    """
    if op.a_constant:
        return 0.0
    if chunks > 1.0:
        return float(op.in_c * op.a_item / chunks)
    if piece.strips > 1.0:
        return float(_strip_width(op, piece) * op.in_c * op.a_item)
    return 0.0


@compiled
def set_tiling(
    arch: ArchRecord, op: OpRecord, new: CandidateRecord, layout: Layout, block: Block, tiling: Tiling
) -> None:
    """Fill in a candidate's mapping, the bytes that its MACs read, and its peak of SRAM over all tiles."""
    cut, working_bytes = layout.cut, new.needed_bytes - block.live_bytes
    new.sram_peak_bytes = layout.tiles * working_bytes + live_bytes(arch, op)
    new.fed_bytes = layout.fed_bytes
    new.split, new.order, new.mode, new.tiles = cut.split, tiling.order, cut.mode, layout.tiles
    new.row_pieces, new.strips, new.piece_level = cut.row_parts * block.rows, block.strips, cut.piece_level
    new.row_blocks, new.column_blocks = tiling.row_blocks, tiling.column_blocks
    new.channel_chunks = tiling.chunks
    new.buffers = 1.0 if paused_parts(cut) > 1.0 else 2.0
    new.parts = PARTS_OF_CHANNELS if cut.column_parts > 1.0 else 0.0
    if cut.row_parts > 1.0:
        new.parts = PARTS_OF_ROWS
