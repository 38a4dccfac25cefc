"""How a product is cut into blocks that fit into SRAM, and why few candidates suffice.

A product of M pixels, K input channels and N output channels is spread over tiles by rows or by columns, or
done on one tile, and within a tile cut into `row_blocks` x `column_blocks` blocks of whole pieces
(`npusim.cost.granularity`), the operand of the outer loop waiting in SRAM while the other streams past
(double-buffered); or both stream in `channel_chunks` while partial sums wait. An image that is cut into
strips is worked on strip by strip, each in `row_blocks`.

Why the candidates suffice. For one split, mode, size of piece and order, latency grows with compute, with DMA
traffic and with how often what streams past fills its room in SRAM. Compute grows with the number of blocks
(each is a start-up); DMA traffic, and with it what streams past, grows with `row_blocks` and `column_blocks`
(the streamed operand is fetched again for each block of the held one, input rows at the border of two blocks
for each of them); the start does not depend on either. So
latency never falls when one of these counts grows, and only the smallest feasible `row_blocks` for each
`column_blocks` (and each `channel_chunks`) can be the best. What fits, what must arrive before the start, and
the room of what waits, depend on a count only through its largest piece, ceil(total / count); everything else
gets worse as the count grows. So of all counts with the same largest piece the smallest is the best, which
leaves about 2 sqrt(total) values of `column_blocks` and of `channel_chunks`. The search runs over all of
these for each size of piece. The set does not depend on SRAM, and a larger SRAM makes every candidate it
allowed before allowed again, so more SRAM is never slower. A search for a range of sizes takes of each such
pair all `row_blocks` that are the fewest feasible at some size of the range; each says from which size on it
is possible, and sizes differ in nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.jit import compiled
from npusim.cost.tables import OpRecord


class Block(NamedTuple):
    """One tile's share of a product, in pieces; sizes in bytes."""

    strips: float
    """Strips that the image is cut into, worked on one after the other."""
    rows: float
    """Pieces along M, in a strip."""
    columns: float
    """Pieces along N."""
    chunks: float
    """Pieces that K can be cut into."""
    a_bytes: float
    """Activations of one row of pieces, all input channels; 0 where they are in SRAM already."""
    a_halo_bytes: float
    """Further input rows that a block of rows needs at its border (convolutions)."""
    b_bytes: float
    """Weights of one column of pieces; 0 where they are in SRAM already."""
    c_bytes: float
    """Outputs of one piece; 0 where the output stays in SRAM as a whole."""
    sum_bytes: float
    """Partial sums of one piece."""
    live_bytes: float
    """SRAM of the tile that tensors living across this product take."""


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
    """Return the next larger count that cuts `total` into smaller blocks; 0 when they are single."""
    block = np.ceil(total / count)
    return 0.0 if block <= 1.0 else np.ceil(total / (block - 1.0))


@compiled
def largest_share(count: float, total: float) -> float:
    """Return the share of the largest piece when `total` units are cut into `count` pieces of whole units."""
    return float(np.ceil(total / count) / total)


@compiled
def copies(count: float) -> float:
    """Buffers of an operand that comes in `count` pieces: two as soon as there is a next one."""
    return 2.0 if count > 1.0 else 1.0


class Room(NamedTuple):
    """What blocks need of a tile's SRAM, for one count of columns and of chunks."""

    fixed: float
    """However many row blocks there are (bytes)."""
    once: float
    """A piece along the rows where there is one row block (bytes)."""
    each: float
    """The same where there are more, which are double-buffered (bytes)."""


@compiled
def room_of(block: Block, column_blocks: float, channel_chunks: float) -> Room:
    """Return what blocks need of a tile's SRAM."""
    columns = np.ceil(block.columns / column_blocks)
    chunk = largest_share(channel_chunks, block.chunks)
    b_once = columns * block.b_bytes * chunk * copies(column_blocks * channel_chunks)
    c_each = columns * block.c_bytes
    sums = columns * block.sum_bytes if channel_chunks > 1.0 else 0.0
    a_each = block.a_bytes * chunk
    # Outputs of a block are written while the next one is computed, so they are double-buffered unless
    # there is only one.
    once = (
        copies(channel_chunks * block.strips) * a_each + copies(column_blocks * block.strips) * c_each + sums
    )
    fixed = b_once + 2.0 * block.a_halo_bytes * chunk
    return Room(fixed, once, 2.0 * a_each + 2.0 * c_each + sums)


@compiled
def needed_bytes(block: Block, room: Room, row_blocks: float) -> float:
    """Return the SRAM that a tile must have for so many row blocks, tensors that live on included."""
    each = room.each if row_blocks > 1.0 else room.once
    return float(block.live_bytes + (room.fixed + np.ceil(block.rows / row_blocks) * each))


@compiled
def fewest_row_blocks(block: Block, room: Room, sram_tile_bytes: float) -> float:
    """Return the fewest row blocks that fit into a tile's SRAM; 0 where none do."""
    # Rounding may have as many pieces as just fit look too many, so what is found is checked.
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
