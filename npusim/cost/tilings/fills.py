"""Fills: transfers of a tiling that overlap with no work, at start, end and between blocks.

A stationary block must be in SRAM before the second piece streams past it. So its fill overlaps only
with work on the first piece, in both engines; double-buffered blocks after the first fill during work.
"""

from __future__ import annotations

import numpy as np

from npusim.compiling.kernels import compiled
from npusim.cost.lowering.tables import OpRecord, Order, Split
from npusim.cost.machine.architecture import ArchRecord
from npusim.cost.tilings.tiling import Layout, Tiling, largest_share, paused_parts
from npusim.cost.units.needs import CandidateRecord

_Pair = tuple[float, float]
_ROWS, _COLUMNS, _WEIGHTS_HELD = int(Split.ROWS), int(Split.COLUMNS), int(Order.WEIGHTS_HELD)


@compiled
def set_prologue_epilogue(
    arch: ArchRecord, op: OpRecord, new: CandidateRecord, layout: Layout, chunks: float
) -> None:
    """Fill in the least that overlaps with no work: the first pieces in, the last one out, and pauses."""
    block, parts = layout.block, paused_parts(layout.cut)
    share = largest_share(chunks, block.chunks)
    first = ((block.a_bytes + block.a_halo_bytes) * share, block.b_bytes * share)
    _set_exposed(arch, op, new, parts, first, (np.inf, np.inf), block.c_bytes)


@compiled
def set_fills(arch: ArchRecord, op: OpRecord, new: CandidateRecord, layout: Layout, tiling: Tiling) -> None:
    """Fill in what overlaps with no work where an operand is stationary: the fill with its block.

    Work on the first piece that streams past goes on while the block comes in; other pieces need all of it.
    Weights that stream past stationary activations come a column block at a time.
    """
    block = layout.block
    a_first, b_first = block.a_bytes + block.a_halo_bytes, block.b_bytes
    a_piece, b_piece = a_first, b_first
    if tiling.order == _WEIGHTS_HELD:
        columns = np.ceil(block.columns / (tiling.column_blocks / layout.cut.column_parts))
        copies = layout.tiles if layout.cut.split == _COLUMNS else 1.0  # a broadcast serves all tiles
        b_first = max(b_first, copies * columns * block.b_bytes * (1.0 - 1.0 / (block.rows * block.strips)))
    else:
        rows = np.ceil(block.rows / (tiling.row_blocks / layout.cut.row_parts))
        held = rows * block.a_bytes + block.a_halo_bytes
        columns = np.ceil(block.columns / tiling.column_blocks)
        b_first = columns * block.b_bytes * (layout.tiles if layout.cut.split == _COLUMNS else 1.0)
        copies = layout.tiles if layout.cut.split == _ROWS else 1.0
        a_first = max(a_first, copies * held * (1.0 - 1.0 / tiling.column_blocks))
    parts = paused_parts(layout.cut)
    _set_exposed(arch, op, new, parts, (a_first, b_first), (a_piece, b_piece), block.c_bytes)


@compiled
def _set_exposed(
    arch: ArchRecord, op: OpRecord, new: CandidateRecord, parts: float, first: _Pair, piece: _Pair, out: float
) -> None:
    """Fill in prologue, epilogue and pauses; a piece that is known beforehand is prefetched.

    Bytes of activations and of weights: the first ones of each part, and a piece of them.
    """
    a_first = first[0] if op.a_dram_bytes > 0.0 else 0.0
    b_first = first[1] if op.b_dram_bytes > 0.0 else 0.0
    a_rest, b_rest = max(0.0, a_first - piece[0]), max(0.0, b_first - piece[1])
    new.known_bytes = (a_rest if op.a_prefetch else 0.0) + (b_rest if op.b_prefetch else 0.0)
    prologue = (a_rest if op.a_prefetch else a_first) + (b_rest if op.b_prefetch else b_first)
    walks = 1.0 if prologue > arch.dma_page_bytes else 0.0
    new.prologue_bytes = prologue + (parts - 1.0) * (a_first + b_first)
    new.epilogue_bytes = parts * out if op.c_dram_bytes > 0.0 else 0.0
    new.page_walks = walks + (parts - 1.0 if a_first + b_first > arch.dma_page_bytes else 0.0)
    new.restarts = parts - 1.0
