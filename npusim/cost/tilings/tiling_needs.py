"""Needs of a tiling: grid cycles, DMA traffic and fills of a candidate, and lower bounds of them.

The search of `npusim.cost.tilings.products` drops a layout whose lower bounds are not below what it has.

A fill is a transfer that overlaps with no work, at start, end and between blocks. A stationary block must be
in SRAM before the second piece streams past it. So its fill overlaps only with work on the first piece, in
both engines; double-buffered blocks after the first fill during work.
"""

from __future__ import annotations

import numpy as np

from npusim.compiling.kernels import compiled
from npusim.cost.lowering.tables import ACTIVATIONS_HELD, COLUMNS, OUTPUTS_HELD, ROWS, WEIGHTS_HELD, OpRecord
from npusim.cost.machine.architecture import ArchRecord
from npusim.cost.tilings.tiling import Cut, Layout, Tiling, largest_share, paused_parts
from npusim.cost.units.resources import CandidateRecord, halo_factor

_Pair = tuple[float, float]


@compiled
def fill_least(
    op: OpRecord, least: CandidateRecord, layout: Layout, cut: Cut, cycles: float, row_bytes: float
) -> None:
    """Fill in lower bounds of the needs over all tilings of a layout in a cut with so many grid cycles."""
    order = WEIGHTS_HELD if cut.row_parts == 1.0 else ACTIVATIONS_HELD
    if cut.is_streamed:
        order = OUTPUTS_HELD
    tiling = Tiling(order, layout.block.strips, cut.row_parts, cut.column_parts, 1.0)
    fill_needs(op, least, tiling, cycles, row_bytes)
    least.fine = 1.0 if layout.piece.is_fine else 0.0
    least.prologue_bytes = least.known_bytes = least.epilogue_bytes = least.page_walks = 0.0
    least.restarts, least.needed_bytes, least.most_bytes = paused_parts(cut) - 1.0, 0.0, np.inf
    least.streamed_bytes = least.held_bytes = least.sram_peak_bytes = 0.0
    least.split, least.mode, least.fed_bytes = layout.cut.split, layout.cut.mode, layout.fed_bytes


@compiled
def fill_needs(op: OpRecord, new: CandidateRecord, tiling: Tiling, cycles: float, row_bytes: float) -> None:
    """Fill in the needs of a candidate: grid cycles and DMA traffic.

    Parameters
    ----------
    row_bytes : float
        See `contiguous_bytes`.
    """
    a_passes = 1.0 if tiling.order == ACTIVATIONS_HELD else tiling.column_blocks
    b_passes = tiling.strips * tiling.row_blocks
    if tiling.order == WEIGHTS_HELD or op.b_resident:  # a segment fetches its weights once
        b_passes = 1.0
    a_read = op.a_dram_bytes * halo_factor(op, tiling.row_blocks, tiling.strips) * a_passes
    new.grid_cycles = op.batch * cycles
    new.read_bytes = a_read + (op.b_dram_bytes * b_passes + op.extra_dram_bytes)
    new.read_gaps = max(0.0, a_read / row_bytes - 1.0) if row_bytes > 0.0 else 0.0
    new.written_bytes = op.c_dram_bytes
    new.copied_bytes = 0.0


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
    if tiling.order == WEIGHTS_HELD:
        columns = np.ceil(block.columns / (tiling.column_blocks / layout.cut.column_parts))
        copies = layout.tiles if layout.cut.split == COLUMNS else 1.0  # a broadcast serves all tiles
        b_first = max(b_first, copies * columns * block.b_bytes * (1.0 - 1.0 / (block.rows * block.strips)))
    else:
        rows = np.ceil(block.rows / (tiling.row_blocks / layout.cut.row_parts))
        held = rows * block.a_bytes + block.a_halo_bytes
        columns = np.ceil(block.columns / tiling.column_blocks)
        b_first = columns * block.b_bytes * (layout.tiles if layout.cut.split == COLUMNS else 1.0)
        copies = layout.tiles if layout.cut.split == ROWS else 1.0
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
