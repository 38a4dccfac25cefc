"""Tilings of products and convolutions: every split, mode, order and tiling that can be the fastest.

`npusim.cost.tiling` says which are tried and why they suffice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.arrays.mapper import (
    KnownTiles,
    block_start_cycles,
    has_array,
    known_tile,
    modes_of,
)
from npusim.cost.candidates import CANDIDATE_SIZE, CandidateRecord, add_candidate, precedes
from npusim.cost.kernels import compiled
from npusim.cost.levels import fill_again, has_levels
from npusim.cost.rates import (
    LOWER,
    MACHINE_RATES,
    TOLERANCE,
    UPPER,
    PointRates,
    lower_bound_s,
    upper_bound_s,
)
from npusim.cost.records import Floats
from npusim.cost.tables import DpuOperation, OpRecord, Order
from npusim.cost.tiling import (
    CHANNEL_LEVELS,
    ROW_LEVELS,
    Block,
    Layout,
    Tiling,
    block_of,
    contiguous_bytes,
    fed_by_layout,
    fewest_row_blocks,
    fill_least,
    fill_needs,
    has_stencils,
    is_in_parts,
    lane_block_of,
    more_strips,
    needed_bytes,
    next_count,
    piece_of,
    room_of,
    row_lanes,
    set_fills,
    set_prologue_epilogue,
    set_streamed_held,
    set_tiling,
    sum_rate,
    tile_cycles,
    tile_share,
)

_MATMUL = int(DpuOperation.MATMUL)
_WEIGHTS_HELD, _ACTIVATIONS_HELD = int(Order.WEIGHTS_HELD), int(Order.ACTIVATIONS_HELD)
_OUTPUTS_HELD = int(Order.OUTPUTS_HELD)
_MOST_STENCILS = 4.0
"""Length in stencils above which blocks are whole stencils."""


class Task(NamedTuple):
    """The search for the candidates of one operator over a range of rates."""

    arch: ArchRecord
    """The search reads its `SearchedColumns`, and columns that follow from them."""
    op: OpRecord
    lower: PointRates
    """Least rates and greatest SRAM of all points."""
    upper: PointRates
    """Greatest rates and least SRAM of all points; infinite where unknown."""
    candidates: Any
    """Array of CANDIDATE_DTYPE, shape (places,); written from `start`."""
    start: int
    is_exact: bool
    """Whether all points have the same rates: the search compares latencies and keeps the best alone."""
    known: KnownTiles
    """Costs of shares on arrays so far."""


class Found(NamedTuple):
    """Candidates of one operator so far."""

    stop: int
    """Where they end; -1 where the table is too short."""
    upper_s: float
    """Least upper bound of their latency (s)."""
    coarse_upper_s: float
    """Least upper bound of candidates with pieces of stencils (s)."""


@compiled
def search_product(task: Task) -> int:
    """Find each split, mode, order and tiling of a product that can be the fastest.

    Candidates with a lower bound of latency above the upper bound of another are left out. Return where the
    candidates end: `task.start` where no tiling fits into SRAM, -1 where the table is too short.
    """
    arch, op, found, strips = task.arch, task.op, Found(task.start, np.inf, np.inf), 1.0
    is_matmul, is_array = op.dpu_operation == _MATMUL, has_array(arch)
    levels = 1 if is_matmul else CHANNEL_LEVELS * (1 if is_array else ROW_LEVELS)
    while strips > 0.0:
        for level in range(levels):
            for split in range(3):
                for mode in range(modes_of(arch)):
                    layout = _layout_of(task, split, mode, level, strips, 1.0, 1.0, np.inf)
                    if layout.piece.rows > 0.0:
                        found = _search_layout(task, layout, found)
        strips = more_strips(arch, op, strips)
    for split in range(3 if arch.fewest_buffers <= 1.0 else 0):
        for mode in range(modes_of(arch)):
            for along_rows in range(2):
                found = _search_parts(task, split, mode, along_rows > 0, found)
    return found.stop


@compiled
def _search_parts(task: Task, split: int, mode: int, along_rows: bool, found: Found) -> Found:
    """Try parts along one axis: the fewest that fit, and up to twice as many, at each size of SRAM."""
    arch, op = task.arch, task.op
    whole = _layout_of(task, split, mode, 0, 1.0, 1.0, 1.0, np.inf)
    _, rows, channels = tile_share(arch, op, split)
    groups = np.ceil(channels / arch.dpu_channel_lanes)
    if along_rows:
        groups = np.ceil(rows / row_lanes(arch, op))
    parts = next_count(1.0, groups)
    while parts > 0.0 and 0 <= found.stop < task.candidates.shape[0]:
        row_parts, column_parts = (parts, 1.0) if along_rows else (1.0, parts)
        most_bytes = (
            np.inf if parts < 4.0 else _part_bytes(task, split, mode, np.floor(parts / 2.0), along_rows)
        )
        if most_bytes <= task.upper.tile_sram_bytes:
            return found
        if _part_bytes(task, split, mode, parts, along_rows) <= task.lower.tile_sram_bytes:
            layout = _layout_of(task, split, mode, 0, 1.0, row_parts, column_parts, most_bytes)
            least = task.candidates[found.stop]
            fill_least(op, least, layout, whole.cycles, 0.0)
            if _is_slower(task, least, found) or _is_beaten(task, least, found.stop):
                return found
            found = _search_layout(task, layout, found)
        parts = next_count(parts, groups)
    return found


@compiled
def _part_bytes(task: Task, split: int, mode: int, parts: float, along_rows: bool) -> float:
    """Return the least SRAM of a tile for so many parts along an axis, the other operand in pieces."""
    arch, op = task.arch, task.op
    row_parts, column_parts = (parts, 1.0) if along_rows else (1.0, parts)
    part_rows, part_channels = _part_sizes(arch, op, split, row_parts, column_parts)
    piece = piece_of(arch, op, part_rows, part_channels, mode, 0, 1.0)
    block = block_of(arch, op, part_rows, part_channels, piece)
    column_blocks, row_blocks = (block.columns, 1.0) if along_rows else (1.0, block.rows)
    return needed_bytes(block, room_of(block, column_blocks, 1.0), row_blocks)


@compiled
def _layout_of(
    task: Task,
    split: int,
    mode: int,
    level: int,
    strips: float,
    row_parts: float,
    column_parts: float,
    most_bytes: float,
) -> Layout:
    """Return a layout of a share in parts; its piece has no rows where a coarser level has the same."""
    arch, op = task.arch, task.op
    is_matmul, is_array = op.dpu_operation == _MATMUL, has_array(arch)
    used, rows, channels = tile_share(arch, op, split)
    part_rows, part_channels = _part_sizes(arch, op, split, row_parts, column_parts)
    piece = piece_of(arch, op, part_rows, part_channels, mode, level, strips)
    passes = rows if is_array and level > 0 else 1.0  # a line at a time
    cycles = array_bytes = 0.0
    for last in range(2 if piece.rows > 0.0 else 0):  # equal parts, then one that may be smaller
        parts, some_rows, some_channels = row_parts * column_parts - 1.0, part_rows, part_channels
        if last > 0:
            parts = 1.0
            some_rows = rows - (row_parts - 1.0) * part_rows
            some_channels = channels - (column_parts - 1.0) * part_channels
        if parts > 0.0 and is_array:
            some_cycles, some_bytes = known_tile(arch, op, some_rows / passes, some_channels, task.known)
            cycles += parts * passes * some_cycles
            array_bytes += parts * passes * some_bytes
        elif parts > 0.0:
            some_piece = piece_of(arch, op, some_rows, some_channels, mode, level, strips)
            cycles += parts * tile_cycles(arch, op, some_rows, some_channels, mode, some_piece)
    block = block_of(arch, op, part_rows, part_channels, piece)
    return Layout(
        split,
        mode,
        used,
        row_parts,
        column_parts,
        most_bytes,
        piece,
        cycles,
        block,
        op.a_dram_bytes * rows / (op.out_w if is_matmul else op.out_h),
        op.b_dram_bytes * channels / op.out_c,
        fed_by_layout(op, piece, op.batch * used * array_bytes),
    )


@compiled
def _part_sizes(
    arch: ArchRecord, op: OpRecord, split: int, row_parts: float, column_parts: float
) -> tuple[float, float]:
    """Return the rows and channels of the largest part of a share."""
    _, rows, channels = tile_share(arch, op, split)
    lanes = row_lanes(arch, op)
    return _part_size(rows, lanes, row_parts), _part_size(channels, arch.dpu_channel_lanes, column_parts)


@compiled
def _part_size(length: float, lanes: float, parts: float) -> float:
    """Return the largest of so many parts of a length, in whole groups of lanes."""
    return float(min(length, np.ceil(np.ceil(length / lanes) / parts) * lanes))


@compiled
def is_of_one_point(arch: ArchRecord, rate_bounds: Floats) -> bool:
    """Whether all points have the same rates, so that a search may compare latencies."""
    for r in range(MACHINE_RATES):
        if rate_bounds[r, LOWER] != rate_bounds[r, UPPER]:
            return False
    return not has_levels(arch)


@compiled
def _is_beaten(task: Task, new: CandidateRecord, stop: int) -> bool:
    """Whether an exact search has a candidate that is as fast as one with these needs and precedes it."""
    if not task.is_exact or stop == task.start:
        return False
    new_s, is_beaten = lower_bound_s(new, task.lower), False
    for c in range(task.start, stop):
        kept = task.candidates[c]
        is_beaten = is_beaten or (lower_bound_s(kept, task.lower) <= new_s and not precedes(new, kept))
    return is_beaten


@compiled
def _add_exact(task: Task, new: CandidateRecord, stop: int, upper_s: float) -> int:
    """Add a candidate to those of an exact search; drop those that it beats, or that are too slow."""
    new_s, limit_s, kept = lower_bound_s(new, task.lower), upper_s * (1.0 + TOLERANCE), task.start
    for c in range(task.start, stop):
        old_s = lower_bound_s(task.candidates[c], task.lower)
        if old_s <= limit_s and (old_s < new_s or precedes(task.candidates[c], new)):
            if kept != c:
                task.candidates[kept] = task.candidates[c]
            kept += 1
    task.candidates[kept] = new
    return kept + 1


@compiled
def _is_slower(task: Task, new: CandidateRecord, found: Found) -> bool:
    """Whether a candidate is too slow at each point; with small pieces, as slow as one with larger ones."""
    lower_s = lower_bound_s(new, task.lower)
    is_slow = lower_s > found.upper_s * (1.0 + TOLERANCE)
    return bool(is_slow or (new.fine > 0.0 and lower_s > found.coarse_upper_s))


@compiled
def _search_layout(task: Task, layout: Layout, found: Found) -> Found:
    """Try each candidate tiling of one layout (see `npusim.cost.tiling`).

    More chunks shorten nothing but the start, so the search ends where even the shortest start is too long.
    """
    if found.stop < 0 or found.stop + 1 >= task.candidates.shape[0]:
        return Found(-1, found.upper_s, found.coarse_upper_s)
    arch, op, block, chunks = task.arch, task.op, layout.block, 1.0
    while chunks > 0.0:
        # Partial sums are written and read again once for each further chunk.
        pieces = block.strips * block.rows * block.columns
        spill = (chunks - 1.0) * 2.0 * pieces * block.sum_bytes / sum_rate(arch)
        row_bytes = contiguous_bytes(op, layout.piece, chunks)
        least = task.candidates[found.stop]
        fill_least(op, least, layout, layout.cycles + spill, row_bytes)
        set_prologue_epilogue(arch, op, least, layout, block.chunks)
        if _is_slower(task, least, found) or _is_beaten(task, least, found.stop):
            return found
        set_prologue_epilogue(arch, op, least, layout, chunks)
        if not _is_slower(task, least, found):
            found = _try_blocks(task, layout, block, chunks, spill, row_bytes, found)
            if found.stop >= 0 and chunks > 1.0 and has_stencils(arch, op):
                lane_block = lane_block_of(arch, op, layout)
                found = _try_blocks(task, layout, lane_block, chunks, spill, row_bytes, found)
            if found.stop < 0:
                return found
        chunks = 0.0 if is_in_parts(layout) else next_count(chunks, block.chunks)
    return found


@compiled
def _try_blocks(
    task: Task, layout: Layout, block: Block, chunks: float, spill: float, row_bytes: float, found: Found
) -> Found:
    """Try all column blocks, each with all row blocks that are the fewest at some size of SRAM."""
    arch, op, candidates, columns = task.arch, task.op, task.candidates, 1.0
    start_cycles, parts = block_start_cycles(arch), layout.row_parts * layout.column_parts
    first = (
        _OUTPUTS_HELD if chunks > 1.0 else (_ACTIVATIONS_HELD if layout.row_parts > 1.0 else _WEIGHTS_HELD)
    )
    last = first if chunks > 1.0 or layout.column_parts > 1.0 else _ACTIVATIONS_HELD
    while columns > 0.0:
        if task.is_exact and found.stop > task.start:
            fewest = candidates[found.stop]  # starts of so many blocks at least
            starts = parts * (block.strips * columns * chunks - 1.0) * start_cycles
            fill_least(op, fewest, layout, layout.cycles + spill + starts, row_bytes)
            set_prologue_epilogue(arch, op, fewest, layout, chunks)
            if _is_beaten(task, fewest, found.stop):
                break
        room = room_of(block, columns, chunks)
        row_blocks, before = fewest_row_blocks(block, room, task.lower.tile_sram_bytes), np.inf
        while row_blocks > 0.0 and (layout.row_parts == 1.0 or row_blocks == 1.0):
            needed = needed_bytes(block, room, row_blocks)
            if needed < before:
                if found.stop + 2 >= candidates.shape[0]:
                    return Found(-1, found.upper_s, found.coarse_upper_s)
                before = needed
                starts = parts * (block.strips * row_blocks * columns * chunks - 1.0) * start_cycles
                is_useful = _is_useful(layout, block, row_blocks, columns, chunks, needed)
                cycles = (
                    spill + starts + (_blocks_cycles(task, layout, block, row_blocks) if is_useful else 0.0)
                )
                for order in range(first, last + 1 if is_useful else first):
                    all_rows, all_columns = layout.row_parts * row_blocks, layout.column_parts * columns
                    tiling = Tiling(order, block.strips, all_rows, all_columns, chunks)
                    new = candidates[found.stop]
                    new.fine = 1.0 if layout.piece.is_fine else 0.0
                    fill_needs(op, new, tiling, cycles, row_bytes)
                    set_prologue_epilogue(arch, op, new, layout, chunks)
                    if chunks == 1.0:
                        set_fills(arch, op, new, layout, tiling)
                    set_streamed_held(op, new, layout, tiling)
                    if not _is_slower(task, new, found):
                        new.needed_bytes = needed
                        set_tiling(arch, op, new, layout, block, tiling)
                        found = _with_new(task, new, found)
            if before <= task.upper.tile_sram_bytes:
                break
            row_blocks = next_count(row_blocks, block.rows)
        columns = 0.0 if layout.column_parts > 1.0 else next_count(columns, block.columns)
    return found


@compiled
def _is_useful(
    layout: Layout, block: Block, row_blocks: float, columns: float, chunks: float, needed: float
) -> bool:
    """Whether blocks are whole stencils, or fewer than whole stencils would be in as much SRAM (`needed`)."""
    size, stencil = np.ceil(block.rows / row_blocks) * block.piece_rows, layout.piece.rows
    if block.piece_rows == stencil:
        return True
    if not stencil < size <= _MOST_STENCILS * stencil:
        return False
    fewest = fewest_row_blocks(layout.block, room_of(layout.block, columns, chunks), needed)
    return fewest == 0.0 or fewest > row_blocks


@compiled
def _blocks_cycles(task: Task, layout: Layout, block: Block, row_blocks: float) -> float:
    """Return the cycles of the grid for blocks whose rows may end within a stencil, without their starts."""
    arch, op = task.arch, task.op
    if block.piece_rows == layout.piece.rows:
        return layout.cycles
    _, rows, channels = tile_share(arch, op, layout.split)
    block_rows = np.ceil(block.rows / row_blocks) * block.piece_rows
    last_rows = rows - (row_blocks - 1.0) * block_rows
    cycles = (row_blocks - 1.0) * tile_cycles(arch, op, block_rows, channels, layout.mode, layout.piece)
    cycles += tile_cycles(arch, op, last_rows, channels, layout.mode, layout.piece)
    return float(cycles - (row_blocks - 1.0) * block_start_cycles(arch))


@compiled
def _with_new(task: Task, new: CandidateRecord, found: Found) -> Found:
    """Return the candidates with a new one, which lies behind the last."""
    stop, upper_s = found.stop, upper_bound_s(new, task.upper)
    if has_levels(task.arch):
        numbers = task.candidates.view(np.float64)
        fill_again(task.arch, task.op, new, numbers, stop * CANDIDATE_SIZE)
    upper_s = upper_s if new.most_bytes > task.lower.tile_sram_bytes else np.inf
    coarse_upper_s = found.coarse_upper_s if new.fine > 0.0 else min(found.coarse_upper_s, upper_s)
    if not task.is_exact:
        least, greatest = task.upper.tile_sram_bytes, task.lower.tile_sram_bytes
        stop = add_candidate(task.candidates, task.start, stop, stop, least, greatest)
    elif not _is_beaten(task, new, stop):
        stop = _add_exact(task, new, stop, min(found.upper_s, upper_s))
    return Found(stop, min(found.upper_s, upper_s), coarse_upper_s)
