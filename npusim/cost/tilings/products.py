"""Search over splits, modes, orders and tilings of products and convolutions.

`npusim.cost.tilings.tiling` says why few candidates suffice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.compiling.kernels import compiled
from npusim.compiling.records import Floats
from npusim.cost.lowering.tables import ACTIVATIONS_HELD, MATMUL, OUTPUTS_HELD, WEIGHTS_HELD, OpRecord
from npusim.cost.machine.architecture import ArchRecord
from npusim.cost.tilings import tiling
from npusim.cost.tilings import tiling_needs as needs
from npusim.cost.tilings.candidates import add_candidate, end_or_full, is_dominated, precedes
from npusim.cost.tilings.tiling import Block, Cut, Layout, Tiling
from npusim.cost.units import rates as laws
from npusim.cost.units.arrays.mapper import KnownTiles, block_start_cycles, has_array, known_tile, modes_of
from npusim.cost.units.levels import assume_all_repeats_served, fill_again, has_levels
from npusim.cost.units.rates import LOWER, UPPER, PointRates
from npusim.cost.units.resources import CANDIDATE_SIZE, CandidateRecord

_MOST_REGISTER_TILES = 4.0
"""Length in register tiles above which blocks are whole register tiles: of so many, a last one that is
partly filled wastes little."""
_SHORTENED = 3.0
"""Times by which a part that holds an operand may be shorter than one that fits."""


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
    keys: Floats
    """Latency of each candidate of an exact search (first column), else see `add_candidate`."""
    known: KnownTiles
    """Costs of shares on arrays so far."""
    ranges: int
    """Ranges of SRAM sizes with limits of their own."""
    limits: Floats
    """SRAM of a tile at which each range begins (bytes); least upper bound of the latency of candidates that
    fit in all of it (s), and of those with pieces of register tiles, shape (3, ranges + 1)."""


SRAM_RANGES = 12
"""Most ranges of SRAM sizes with limits of their own."""
_EDGE, _LIMIT, _COARSE_LIMIT = range(3)


@compiled
def start_limits(least: float, greatest: float, limits: Floats) -> int:
    """Divide the SRAM sizes of a search evenly by their ratio; return the number of ranges."""
    ranges = SRAM_RANGES if 0.0 < least < greatest < np.inf else 1
    for k in range(ranges):
        limits[_EDGE, k] = least * (greatest / least) ** (k / ranges) if ranges > 1 else least
        limits[_LIMIT, k] = limits[_COARSE_LIMIT, k] = np.inf
    limits[_EDGE, ranges] = greatest
    return ranges


@compiled
def search_product(task: Task) -> int:
    """Find each split, mode, order and tiling of a product that can be the fastest.

    Candidates with a lower bound of latency above the upper bound of another are left out. Return where the
    candidates end: `task.start` where no tiling fits into SRAM, -1 where the table is full.
    """
    arch, op, stop, strips = task.arch, task.op, task.start, 1.0
    is_matmul, is_array = op.dpu_operation == MATMUL, has_array(arch)
    levels = 1 if is_matmul else tiling.CHANNEL_LEVELS * (1 if is_array else tiling.ROW_LEVELS)
    while strips > 0.0:
        for level in range(levels):
            for split in range(3):
                for mode in range(modes_of(arch)):
                    cut = Cut(split, mode, level, strips, 1.0, 1.0, False)
                    if _is_promising(task, cut):
                        stop = _search_layout(task, layout_of(task, cut, np.inf), stop)
        strips = tiling.more_strips(arch, op, strips)
    strips = 1.0
    while strips > 0.0:
        for row_level in range(1 if is_matmul or is_array else tiling.ROW_LEVELS):
            for split in range(3):
                for mode in range(modes_of(arch)):
                    cut = Cut(split, mode, row_level * tiling.CHANNEL_LEVELS, strips, 1.0, 1.0, False)
                    if _needs_no_parts(task, cut):
                        continue
                    whole = layout_of(task, cut, np.inf)
                    for axis in range(2 if arch.fewest_buffers <= 1.0 else 0):
                        stop = _search_parts(task, whole, axis > 0, False, stop)
                    if not is_array:
                        stop = _search_parts(task, whole, False, True, stop)
        strips = tiling.more_strips(arch, op, strips)
    return stop


@compiled
def _is_promising(task: Task, cut: Cut) -> bool:
    """Whether the grid alone takes no longer than candidates in all; not if a coarser level has the piece."""
    arch, op, slowest_s = task.arch, task.op, 0.0
    _, rows, channels = tiling.tile_share(arch, op, cut.split)
    piece = tiling.piece_of(arch, op, rows, channels, cut.mode, cut.piece_level, cut.strips)
    if piece.rows == 0.0 or has_array(arch):
        return bool(piece.rows > 0.0)
    for k in range(task.ranges):
        slowest_s = max(slowest_s, _limit_s(task, k, piece.is_fine))
    cycles = op.batch * tiling.tile_cycles(arch, op, rows, channels, cut.mode, piece)
    return bool(cycles * task.lower.rates.cycle_s <= slowest_s)


@compiled
def _needs_no_parts(task: Task, cut: Cut) -> bool:
    """Whether the least SRAM (`upper`) holds a whole share as a block, or a coarser level has its pieces."""
    _, rows, channels = tiling.tile_share(task.arch, task.op, cut.split)
    piece = tiling.piece_of(task.arch, task.op, rows, channels, cut.mode, cut.piece_level, cut.strips)
    block = tiling.block_of(task.arch, task.op, rows, channels, piece)
    return bool(
        piece.rows == 0.0
        or tiling.needed_bytes(block, tiling.room_of(block, 1.0, 1.0), 1.0) <= task.upper.tile_sram_bytes
    )


@compiled
def groups_along(task: Task, split: int, along_rows: bool) -> float:
    """Return the groups of lanes of a share along an axis."""
    _, rows, channels = tiling.tile_share(task.arch, task.op, split)
    if along_rows:
        return float(np.ceil(rows / tiling.row_lanes(task.arch, task.op)))
    return float(np.ceil(channels / task.arch.dpu_channel_lanes))


@compiled
def cut_along(cut: Cut, parts: float, along_rows: bool, is_streamed: bool) -> Cut:
    """Return a cut into so many parts along an axis."""
    row_parts, column_parts = (parts, 1.0) if along_rows else (1.0, parts)
    return Cut(cut.split, cut.mode, cut.piece_level, cut.strips, row_parts, column_parts, is_streamed)


@compiled
def _search_parts(task: Task, whole: Layout, along_rows: bool, is_streamed: bool, stop: int) -> int:
    """Try parts along an axis.

    Of parts that hold an operand those are tried that fit where ones over three times as long do not, at each
    size of SRAM; of parts that stream both all that are worth it.
    """
    groups, least = groups_along(task, whole.cut.split, along_rows), whole.cycles
    if tiling.has_register_tiles(task.arch, task.op):
        _, rows, channels = tiling.tile_share(task.arch, task.op, whole.cut.split)
        least, _ = tiling.least_cycles(task.arch, task.op, rows, channels, whole.cut.mode)
    parts = tiling.next_count(1.0, groups)
    while parts > 0.0 and stop >= 0:
        cut, most_bytes = cut_along(whole.cut, parts, along_rows, is_streamed), np.inf
        needs.fill_least(task.op, task.candidates[stop], whole, cut, least, 0.0)
        if _is_slower(task, task.candidates[stop]) or _is_beaten(task, task.candidates[stop], stop):
            return stop
        if is_streamed:
            is_tried = is_worth_streaming(task, whole, cut)
        else:
            rows, channels = tiling.part_sizes(task.arch, task.op, cut)
            is_tried = part_bytes(task, cut, rows, channels) <= task.lower.tile_sram_bytes
            most_bytes = larger_part_bytes(task, cut) if is_tried else np.inf
            if most_bytes <= task.upper.tile_sram_bytes:
                return stop
        if is_tried:
            layout = layout_of(task, cut, most_bytes)
            if layout.piece.rows > 0.0:
                stop = _search_layout(task, layout, stop)
        parts = tiling.next_count(parts, groups)
    return stop


@compiled
def is_worth_streaming(task: Task, whole: Layout, cut: Cut) -> bool:
    """Whether parts that stream both operands have half to less than all channels of a register tile."""
    _, channels = tiling.part_sizes(task.arch, task.op, cut)
    return bool(cut.column_parts > 1.0 and whole.piece.channels / 2.0 <= channels < whole.piece.channels)


@compiled
def part_bytes(task: Task, cut: Cut, rows: float, channels: float) -> float:
    """Return the least SRAM of a tile for a part of that size that holds an operand, the other in pieces."""
    arch, op = task.arch, task.op
    piece = tiling.piece_of(arch, op, rows, channels, cut.mode, cut.piece_level, cut.strips)
    if piece.rows == 0.0:
        return np.inf
    block = tiling.block_of(arch, op, rows, channels, piece)
    column_blocks, row_blocks = (block.columns, 1.0) if cut.row_parts > 1.0 else (1.0, block.rows)
    return tiling.needed_bytes(block, tiling.room_of(block, column_blocks, 1.0), row_blocks)


@compiled
def larger_part_bytes(task: Task, cut: Cut) -> float:
    """Return the same for a part over `_SHORTENED` times as long; infinite where no share is as long."""
    arch, op = task.arch, task.op
    _, most_rows, most_channels = tiling.tile_share(arch, op, cut.split)
    rows, channels = tiling.part_sizes(arch, op, cut)
    if cut.row_parts > 1.0:
        rows = _SHORTENED * rows + tiling.row_lanes(arch, op)
    else:
        channels = _SHORTENED * channels + arch.dpu_channel_lanes
    is_shorter = rows < most_rows if cut.row_parts > 1.0 else channels < most_channels
    return part_bytes(task, cut, rows, channels) if is_shorter else np.inf


@compiled
def parts_cost(task: Task, cut: Cut, block_rows: float, is_least: bool) -> tuple[float, float]:
    """Return the cycles of the grid for all parts of a share, and the SRAM bytes of an array's reads.

    All parts are equal and the last may be smaller; or, where that is quicker, sizes differ by a group of
    lanes at most. With `block_rows` the share is that high; with `is_least` rows are cut at no cost.
    """
    arch, op, mode = task.arch, task.op, cut.mode
    is_array, parts, by_rows = has_array(arch), cut.row_parts * cut.column_parts, cut.row_parts > 1.0
    _, rows, channels = tiling.tile_share(arch, op, cut.split)
    part_rows, part_channels = tiling.part_sizes(arch, op, cut)
    if block_rows > 0.0:
        rows = part_rows = block_rows
    lanes = tiling.row_lanes(arch, op) if by_rows else arch.dpu_channel_lanes
    length, size = (rows, part_rows) if by_rows else (channels, part_channels)
    groups, in_part = np.ceil(length / lanes), np.ceil(size / lanes)
    larger = groups - parts * (in_part - 1.0)
    smaller = (in_part - 1.0) * lanes
    ways = 2 if 0.0 < larger < parts - 1.0 and in_part > 1.0 and not is_array else 1
    passes = rows if is_array and cut.piece_level > 0 else 1.0  # a line at a time
    least, array_bytes = np.inf, 0.0
    for way in range(ways):
        cycles, first, last = 0.0, parts - 1.0, length - (parts - 1.0) * size
        if way > 0:
            first, last = larger, smaller - (groups * lanes - length)
        for kind in range(3):
            many, some = (first, size) if kind == 0 else (parts - 1.0 - first, smaller)
            if kind == 2:
                many, some = 1.0, last
            if many == 0.0:
                continue
            some_rows, some_channels = (some, part_channels) if by_rows else (part_rows, some)
            if is_array:
                some_cycles, some_bytes = known_tile(arch, op, some_rows / passes, some_channels, task.known)
                cycles += many * passes * some_cycles * tiling.transposing_factor(arch, op)
                array_bytes += many * passes * some_bytes
            elif is_least:
                cycles += many * tiling.least_cycles(arch, op, some_rows, some_channels, mode)[1]
            else:
                piece = tiling.piece_of(
                    arch, op, some_rows, some_channels, cut.mode, cut.piece_level, cut.strips
                )
                cycles += many * tiling.tile_cycles(arch, op, some_rows, some_channels, cut.mode, piece)
        least = min(least, cycles)
    return least, array_bytes


@compiled
def layout_of(task: Task, cut: Cut, most_bytes: float) -> Layout:
    """Return a layout of a share in a cut; its piece has no rows where a coarser level has the same."""
    arch, op = task.arch, task.op
    used, rows, channels = tiling.tile_share(arch, op, cut.split)
    part_rows, part_channels = tiling.part_sizes(arch, op, cut)
    piece = tiling.piece_of(arch, op, part_rows, part_channels, cut.mode, cut.piece_level, cut.strips)
    cycles = least_cycles = array_bytes = 0.0
    if piece.rows > 0.0:
        cycles, array_bytes = parts_cost(task, cut, 0.0, False)
        has_lanes = tiling.has_register_tiles(arch, op)
        least_cycles = parts_cost(task, cut, 0.0, True)[0] if has_lanes else cycles
    return Layout(
        cut,
        used,
        most_bytes,
        piece,
        cycles,
        least_cycles,
        tiling.block_of(arch, op, part_rows, part_channels, piece),
        op.a_dram_bytes * rows / (op.out_w if op.dpu_operation == MATMUL else op.out_h),
        op.b_dram_bytes * channels / op.out_c,
        tiling.fed_by_layout(op, piece, op.batch * used * array_bytes),
    )


@compiled
def is_of_one_point(arch: ArchRecord, rate_bounds: Floats) -> bool:
    """Whether all points have the same rates, so that a search may compare latencies."""
    for r in range(laws.MACHINE_RATES):
        if rate_bounds[r, LOWER] != rate_bounds[r, UPPER]:
            return False
    return not has_levels(arch)


@compiled
def _is_beaten(task: Task, new: CandidateRecord, stop: int) -> bool:
    """Whether an exact search has a candidate that is as fast as one with these needs and precedes it."""
    if not task.is_exact or stop == task.start:
        return False
    new_s = laws.lower_bound_s(new, task.lower, task.lower.tile_sram_bytes)
    for c in range(task.start, stop):
        if task.keys[c, 0] <= new_s and not precedes(new, task.candidates[c]):
            return True
    return False


@compiled
def _add_exact(task: Task, new: CandidateRecord, stop: int) -> int:
    """Add a candidate to those of an exact search; drop those that it beats, or that are too slow."""
    candidates, keys, limit_s = task.candidates, task.keys, task.limits[_LIMIT, 0] * (1.0 + laws.TOLERANCE)
    new_s, kept = laws.lower_bound_s(new, task.lower, task.lower.tile_sram_bytes), task.start
    for c in range(task.start, stop):
        if keys[c, 0] <= limit_s and (keys[c, 0] < new_s or precedes(candidates[c], new)):
            if kept != c:
                candidates[kept], keys[kept, 0] = candidates[c], keys[c, 0]
            kept += 1
    candidates[kept], keys[kept, 0] = new, new_s
    return end_or_full(candidates, kept + 1)


@compiled
def _limit_s(task: Task, k: int, is_fine: bool) -> float:
    """Return the latency in a range of SRAM sizes from which on a candidate is too slow."""
    limit_s = task.limits[_LIMIT, k] * (1.0 + laws.TOLERANCE)
    return float(min(limit_s, task.limits[_COARSE_LIMIT, k]) if is_fine else limit_s)


@compiled
def _is_slower(task: Task, new: CandidateRecord) -> bool:
    """Whether a candidate is too slow at each point; with small pieces, as slow as one with larger ones."""
    limits, least_s = task.limits, laws.lower_bound_s(new, task.lower, np.inf)
    for k in range(task.ranges):
        limit_s = _limit_s(task, k, new.fine > 0.0)
        first, last = limits[_EDGE, k], limits[_EDGE, k + 1]
        is_possible = least_s <= limit_s and new.needed_bytes <= last and new.most_bytes > first
        if is_possible and (
            new.streamed_bytes <= 0.0 or laws.lower_bound_s(new, task.lower, last) <= limit_s
        ):
            return False
    return True


@compiled
def _is_dominated(task: Task, stop: int) -> bool:
    """Whether a candidate dominates all that have at least the needs behind the last one.

    An exact search asks `_is_beaten`. Memory levels serve of these needs at most all repeated reads.
    """
    if task.is_exact:
        return False
    if has_levels(task.arch):
        assume_all_repeats_served(task.op, task.candidates[stop])
    first, last = task.upper.tile_sram_bytes, task.lower.tile_sram_bytes
    is_by_latency = task.arch.objective == 0.0
    return is_dominated(task.candidates, task.keys, task.start, stop, first, last, is_by_latency)


@compiled
def _search_layout(task: Task, layout: Layout, stop: int) -> int:
    """Try each candidate tiling of one layout (see `npusim.cost.tilings.tiling`).

    More chunks shorten nothing but the start, so the search ends where even the shortest start is too long.
    """
    if stop < 0:
        return -1
    arch, op, block, chunks = task.arch, task.op, layout.block, 1.0
    if layout.cut.is_streamed:
        chunks = tiling.next_count(1.0, block.chunks)
    has_lanes = tiling.has_register_tiles(arch, op) and layout.cut.row_parts == 1.0
    has_lanes = has_lanes and (layout.cut.is_streamed or layout.cut.column_parts == 1.0)
    while chunks > 0.0:
        row_bytes = tiling.contiguous_bytes(op, layout.piece, chunks)
        finest = tiling.lane_block_of(arch, op, layout) if has_lanes else block
        if is_hopeless_in_chunks(task, layout, finest, chunks, row_bytes, stop):
            return stop
        stop = _try_blocks(task, layout, block, chunks, row_bytes, stop)
        if stop >= 0 and chunks > 1.0 and has_lanes:
            stop = _try_blocks(task, layout, finest, chunks, row_bytes, stop)
        if stop < 0:
            return stop
        chunks = 0.0 if tiling.paused_parts(layout.cut) > 1.0 else tiling.next_count(chunks, block.chunks)
    return stop


@compiled
def is_hopeless_in_chunks(
    task: Task, layout: Layout, finest: Block, chunks: float, row_bytes: float, stop: int
) -> bool:
    """Whether so many chunks of a layout, or more, are too slow; `finest` are its finest blocks of rows."""
    least = task.candidates[stop]
    cycles = layout.cycles if finest.piece_rows == layout.piece.rows else layout.least_cycles
    cycles += _spill_cycles(task, layout, finest, chunks)
    needs.fill_least(task.op, least, layout, layout.cut, cycles, row_bytes)
    needs.set_prologue_epilogue(task.arch, task.op, least, layout, layout.block.chunks)
    return _is_slower(task, least) or _is_beaten(task, least, stop)


@compiled
def is_hopeless(task: Task, layout: Layout, block: Block, chunks: float, row_bytes: float, stop: int) -> bool:
    """Whether every number of blocks of a layout is too slow, or dominated, by lower bounds of the needs.

    The bounds are written to `candidates[stop]`. `row_bytes` are contiguous in DRAM (`contiguous_bytes`).
    """
    arch, op, least = task.arch, task.op, task.candidates[stop]
    cycles = layout.cycles if block.piece_rows == layout.piece.rows else layout.least_cycles
    cycles += _spill_cycles(task, layout, block, chunks)
    needs.fill_least(op, least, layout, layout.cut, cycles, row_bytes)
    needs.set_prologue_epilogue(arch, op, least, layout, chunks)
    if chunks == 1.0 and layout.cut.column_parts > 1.0:  # each part fills its weights before the second piece
        loops = Tiling(WEIGHTS_HELD, block.strips, 1.0, layout.cut.column_parts, 1.0)
        needs.set_fills(arch, op, least, layout, loops)
    tiling.set_least_streamed(least, layout, chunks)
    return _is_slower(task, least) or _is_dominated(task, stop)


@compiled
def _spill_cycles(task: Task, layout: Layout, block: Block, chunks: float) -> float:
    """Return the cycles in which partial sums are written and read again, once for each further chunk."""
    columns = block.columns
    if layout.cut.column_parts > 1.0:
        columns = tiling.tile_share(task.arch, task.op, layout.cut.split)[2] / layout.piece.channels
    sum_bytes = block.strips * block.rows * columns * block.sum_bytes
    return float((chunks - 1.0) * 2.0 * sum_bytes / tiling.sum_rate(task.arch))


@compiled
def _try_blocks(task: Task, layout: Layout, block: Block, chunks: float, row_bytes: float, stop: int) -> int:
    """Try all column blocks, each with all row blocks that are the fewest at some size of SRAM."""
    arch, op, candidates, cut, columns = task.arch, task.op, task.candidates, layout.cut, 1.0
    start_cycles, parts = block_start_cycles(arch), cut.row_parts * cut.column_parts
    bound_cycles = layout.cycles if block.piece_rows == layout.piece.rows else layout.least_cycles
    spill = _spill_cycles(task, layout, block, chunks)
    if is_hopeless(task, layout, block, chunks, row_bytes, stop):
        return stop
    fewest_short = np.ceil(block.rows / np.floor(_MOST_REGISTER_TILES * layout.piece.rows / block.piece_rows))
    held = ACTIVATIONS_HELD if cut.row_parts > 1.0 else WEIGHTS_HELD
    first = OUTPUTS_HELD if chunks > 1.0 else held
    last = first if chunks > 1.0 or cut.column_parts > 1.0 else ACTIVATIONS_HELD
    while columns > 0.0:
        if task.is_exact and stop > task.start:
            fewest = candidates[stop]  # starts of so many blocks at least
            starts = parts * (block.strips * columns * chunks - 1.0) * start_cycles
            cycles = bound_cycles + spill + starts
            needs.fill_least(op, fewest, layout, cut, cycles, row_bytes)
            needs.set_prologue_epilogue(arch, op, fewest, layout, chunks)
            if _is_beaten(task, fewest, stop):
                break
        room = tiling.room_of(block, columns, chunks)
        row_blocks, before = tiling.fewest_row_blocks(block, room, task.lower.tile_sram_bytes), np.inf
        while row_blocks > 0.0 and (cut.row_parts == 1.0 or row_blocks == 1.0):
            needed = tiling.needed_bytes(block, room, row_blocks)
            if needed < before:
                before = needed
                is_worth_costing = _is_worth_costing(layout, block, row_blocks, columns, chunks, needed)
                for order in range(first, last + 1 if is_worth_costing else first):
                    all_rows, all_columns = cut.row_parts * row_blocks, cut.column_parts * columns
                    loops = Tiling(order, block.strips, all_rows, all_columns, chunks)
                    stop = add_tiling(task, layout, block, loops, needed, row_bytes, stop)
                    if stop < 0:
                        return -1
            # Of blocks in lanes another number may fill register tiles better.
            is_whole = block.piece_rows == layout.piece.rows
            is_short = np.ceil(block.rows / row_blocks) * block.piece_rows <= layout.piece.rows
            if before <= task.upper.tile_sram_bytes and (is_whole or is_short):
                break
            row_blocks = tiling.next_count(row_blocks, block.rows)
            if not is_whole and row_blocks > 0.0:  # longer ones are of no use, see `_is_worth_costing`
                row_blocks = max(row_blocks, fewest_short)
        columns = 0.0 if cut.column_parts > 1.0 else tiling.next_count(columns, block.columns)
    return stop


@compiled
def add_tiling(
    task: Task, layout: Layout, block: Block, loops: Tiling, needed: float, row_bytes: float, stop: int
) -> int:
    """Add the candidate of a tiling of `needed` bytes unless it is too slow; return as `add_candidate`."""
    arch, op, new, chunks = task.arch, task.op, task.candidates[stop], loops.chunks
    is_whole = block.piece_rows == layout.piece.rows
    blocks = block.strips * loops.row_blocks * loops.column_blocks * chunks
    beside_work = (blocks - layout.cut.row_parts * layout.cut.column_parts) * block_start_cycles(arch)
    beside_work += _spill_cycles(task, layout, block, chunks)
    cycles = beside_work + (layout.cycles if is_whole else layout.least_cycles)
    new.fine = 1.0 if layout.piece.is_fine else 0.0
    new.needed_bytes, new.most_bytes = needed, layout.most_bytes
    needs.fill_needs(op, new, loops, cycles, row_bytes)
    needs.set_prologue_epilogue(arch, op, new, layout, chunks)
    if chunks == 1.0:
        needs.set_fills(arch, op, new, layout, loops)
    tiling.set_streamed_held(op, new, layout, loops)
    if _is_slower(task, new):
        return stop
    tiling.set_tiling(arch, op, new, layout, block, loops)
    if not is_whole:
        if _is_dominated(task, stop) or _is_beaten(task, new, stop):
            return stop
        cycles = beside_work + _blocks_cycles(task, layout, block, loops.row_blocks)
        new.grid_cycles = op.batch * cycles
        if _is_slower(task, new):
            return stop
    return _with_new(task, new, stop)


@compiled
def _is_worth_costing(
    layout: Layout, block: Block, row_blocks: float, columns: float, chunks: float, needed: float
) -> bool:
    """Return whether a division of rows into so many blocks may be faster than all others.

    Blocks of whole register tiles may. Blocks in groups of lanes may where no division into whole register
    tiles has as few blocks in as much SRAM (`needed`, bytes): each further block is a further start-up.
    """
    register_tile = layout.piece.rows
    if block.piece_rows == register_tile:
        return True
    block_rows = np.ceil(block.rows / row_blocks) * block.piece_rows
    if not register_tile < block_rows <= _MOST_REGISTER_TILES * register_tile:
        return False
    room = tiling.room_of(layout.block, columns, chunks)
    fewest = tiling.fewest_row_blocks(layout.block, room, needed)
    return fewest == 0.0 or fewest > row_blocks  # 0: no division into whole register tiles fits


@compiled
def _blocks_cycles(task: Task, layout: Layout, block: Block, row_blocks: float) -> float:
    """Return the cycles of the grid for blocks whose rows may end in a register tile, without starts."""
    arch, op = task.arch, task.op
    _, rows, _ = tiling.tile_share(arch, op, layout.cut.split)
    block_rows = np.ceil(block.rows / row_blocks) * block.piece_rows
    cycles, _ = parts_cost(task, layout.cut, rows - (row_blocks - 1.0) * block_rows, False)
    if row_blocks > 1.0:
        each, _ = parts_cost(task, layout.cut, block_rows, False)
        cycles += (row_blocks - 1.0) * (each - layout.cut.column_parts * block_start_cycles(arch))
    return float(cycles)


@compiled
def _with_new(task: Task, new: CandidateRecord, stop: int) -> int:
    """Add a new candidate, which lies behind the last, and lower the limits; return as `add_candidate`."""
    limits = task.limits
    if has_levels(task.arch):
        numbers = task.candidates.view(np.float64)
        fill_again(task.arch, task.op, new, numbers, stop * CANDIDATE_SIZE)
    for k in range(task.ranges):
        last = limits[_EDGE, k + 1]
        if new.most_bytes > last:
            upper_s = laws.upper_bound_s(new, task.upper, limits[_EDGE, k])
            limits[_LIMIT, k] = min(limits[_LIMIT, k], upper_s)
            if new.fine == 0.0:
                limits[_COARSE_LIMIT, k] = min(limits[_COARSE_LIMIT, k], upper_s)
    if not task.is_exact:
        least, greatest = task.upper.tile_sram_bytes, task.lower.tile_sram_bytes
        is_by_latency = task.arch.objective == 0.0
        return add_candidate(task.candidates, task.keys, task.start, stop, least, greatest, is_by_latency)
    return stop if _is_beaten(task, new, stop) else _add_exact(task, new, stop)
