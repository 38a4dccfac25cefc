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
allowed before allowed again, so more SRAM is never slower.
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
    free_bytes: float
    """SRAM of the tile that is free for this product."""


class Tiling(NamedTuple):
    """A way to cut one tile's share."""

    row_blocks: float
    column_blocks: float
    channel_chunks: float
    working_set_bytes: float
    """Working set of the tile; infinite where nothing fits."""


@compiled
def free_tile_bytes(arch: ArchRecord, op: OpRecord) -> float:
    """Return the SRAM of a tile that live tensors leave to an operator; negative where they do not fit."""
    return float(arch.sram_tile_bytes - op.live_copied_bytes - op.live_spread_bytes / arch.tiles)


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
def _fit(total: float, fixed: float, once: float, each: float, available: float) -> float:
    """Return the fewest blocks such that fixed + piece * (once | each) fits into SRAM; 0 if none.

    A single block needs `once` a piece; two or more are double-buffered and need `each` a piece.
    """
    if fixed + once * total <= available:
        return 1.0
    free = available - fixed
    if free < each:
        return 0.0
    return float(np.ceil(total / np.floor(free / each)))


@compiled
def copies(count: float) -> float:
    """Buffers of an operand that comes in `count` pieces: two as soon as there is a next one."""
    return 2.0 if count > 1.0 else 1.0


@compiled
def best_blocks(block: Block, column_blocks: float, channel_chunks: float) -> Tiling:
    """Return the tiling with the fewest row blocks for given `column_blocks` and `channel_chunks`.

    Returns
    -------
    Tiling
        With an infinite working set where nothing fits.
    """
    columns = np.ceil(block.columns / column_blocks)
    chunk = largest_share(channel_chunks, block.chunks)
    b_buffers = copies(column_blocks * channel_chunks)
    b_once = columns * block.b_bytes * chunk * b_buffers
    c_each = columns * block.c_bytes
    sums = columns * block.sum_bytes if channel_chunks > 1.0 else 0.0
    a_each = block.a_bytes * chunk
    a_single = copies(channel_chunks * block.strips)
    halo = block.a_halo_bytes * chunk
    # Outputs of a block are written while the next one is computed, so they are double-buffered unless
    # there is only one.
    c_single = copies(column_blocks * block.strips)
    fixed = b_once + 2.0 * halo
    row_blocks = _fit(
        block.rows,
        fixed,
        a_single * a_each + c_single * c_each + sums,
        2.0 * a_each + 2.0 * c_each + sums,
        block.free_bytes,
    )
    if row_blocks == 0.0:
        return Tiling(1.0, column_blocks, channel_chunks, np.inf)
    rows = np.ceil(block.rows / row_blocks)
    if row_blocks > 1.0:
        used = fixed + rows * (2.0 * a_each + 2.0 * c_each + sums)
    else:
        used = fixed + rows * (a_single * a_each + c_single * c_each + sums)
    return Tiling(row_blocks, column_blocks, channel_chunks, used)
