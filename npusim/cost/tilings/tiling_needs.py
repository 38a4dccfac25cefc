"""Needs of a tiling: grid cycles and DMA traffic of a candidate, and lower bounds of both.

The search of `npusim.cost.tilings.products` drops a layout whose lower bounds are not below what it has.
"""

from __future__ import annotations

import numpy as np

from npusim.compiling.kernels import compiled
from npusim.cost.lowering.tables import OpRecord, Order
from npusim.cost.tilings.tiling import Block, Cut, Layout, Tiling, largest_share, paused_parts
from npusim.cost.units.needs import CandidateRecord, halo_factor

_ACTIVATIONS_HELD, _WEIGHTS_HELD = int(Order.ACTIVATIONS_HELD), int(Order.WEIGHTS_HELD)
_OUTPUTS_HELD = int(Order.OUTPUTS_HELD)
_BOUND_ROUNDING = 1e-9


@compiled
def fill_least(
    op: OpRecord, least: CandidateRecord, layout: Layout, cut: Cut, cycles: float, row_bytes: float
) -> None:
    """Fill in lower bounds of the needs over all tilings of a layout in a cut with so many grid cycles."""
    order = _WEIGHTS_HELD if cut.row_parts == 1.0 else _ACTIVATIONS_HELD
    if cut.is_streamed:
        order = _OUTPUTS_HELD
    tiling = Tiling(order, layout.block.strips, cut.row_parts, cut.column_parts, 1.0)
    fill_needs(op, least, tiling, cycles, row_bytes)
    least.fine = 1.0 if layout.piece.is_fine else 0.0
    least.prologue_bytes = least.known_bytes = least.epilogue_bytes = least.page_walks = 0.0
    least.restarts, least.needed_bytes, least.most_bytes = paused_parts(cut) - 1.0, 0.0, np.inf
    least.streamed_bytes = least.held_bytes = least.sram_peak_bytes = 0.0
    least.split, least.mode, least.fed_bytes = layout.cut.split, layout.cut.mode, layout.fed_bytes


@compiled
def raise_least_read(
    op: OpRecord, least: CandidateRecord, layout: Layout, block: Block, chunks: float, sram_tile_bytes: float
) -> None:
    """Raise the lower bound of DRAM reads to what blocks with partial sums fetch in so much SRAM.

    A block of r x c pieces needs r * c * sums + 2 * (r * a + c * b) / chunks bytes, at least
    sums * x ** 2 + 4 * sqrt(a * b) * x / chunks where x ** 2 = r * c. So there are at least
    rows * columns / x ** 2 blocks. Column blocks fetch all activations, row blocks all weights.
    """
    sums, free = block.c_bytes + block.sum_bytes, sram_tile_bytes - block.live_bytes
    if sums <= 0.0 or free <= 0.0 or free == np.inf:
        return
    side = 2.0 * np.sqrt(block.a_bytes * block.b_bytes) * largest_share(chunks, block.chunks)
    pieces = ((np.sqrt(side * side + sums * free) - side) / sums) ** 2
    blocks = max(1.0, block.rows * block.columns / pieces * (1.0 - _BOUND_ROUNDING))
    a_bytes = op.a_dram_bytes * layout.cut.column_parts * halo_factor(op, 1.0, block.strips)
    b_bytes = 0.0 if op.b_resident else op.b_dram_bytes * block.strips
    columns = np.sqrt(blocks * b_bytes / a_bytes) if a_bytes > 0.0 else blocks
    columns = min(max(1.0, columns), blocks, block.columns)
    columns = 1.0 if layout.cut.column_parts > 1.0 else columns
    read_bytes = a_bytes * columns + b_bytes * max(1.0, blocks / columns)
    least.read_bytes = max(least.read_bytes, read_bytes + op.extra_dram_bytes)


@compiled
def fill_needs(op: OpRecord, new: CandidateRecord, tiling: Tiling, cycles: float, row_bytes: float) -> None:
    """Fill in the needs of a candidate: grid cycles and DMA traffic.

    Parameters
    ----------
    row_bytes : float
        See `contiguous_bytes`.
    """
    a_passes = 1.0 if tiling.order == _ACTIVATIONS_HELD else tiling.column_blocks
    b_passes = tiling.strips * tiling.row_blocks
    if tiling.order == _WEIGHTS_HELD or op.b_resident:  # a segment fetches its weights once
        b_passes = 1.0
    a_read = op.a_dram_bytes * halo_factor(op, tiling.row_blocks, tiling.strips) * a_passes
    new.grid_cycles = op.batch * cycles
    new.read_bytes = a_read + (op.b_dram_bytes * b_passes + op.extra_dram_bytes)
    new.read_gaps = max(0.0, a_read / row_bytes - 1.0) if row_bytes > 0.0 else 0.0
    new.written_bytes = op.c_dram_bytes
    new.copied_bytes = 0.0
