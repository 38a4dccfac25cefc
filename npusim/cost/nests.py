"""Own loop nests of products: the tiling search restricted to what a user or another search fixes.

A nest fixes some or all of split, tiles, MPE mode, loop order, buffers, strips, pieces, and blocks by count
or by size; the others are open. Every legal tiling that agrees is tried, also ones that the search of
`npusim.cost.products` leaves out because another is never slower. What is open is tried as there: the fewest
row blocks that fit, and counts with blocks of different size. Each tiling is costed by the same function.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.architecture import Archs
from npusim.cost.arrays.mapper import has_array, modes_of, no_known_tiles
from npusim.cost.candidates import CANDIDATE_DTYPE, sort_candidates
from npusim.cost.kernels import compiled, compiled_making_arrays, compiled_or_plain, plain_kernels
from npusim.cost.plans import PlanTable
from npusim.cost.products import (
    SRAM_RANGES,
    Task,
    add_tiling,
    is_hopeless,
    is_hopeless_in_chunks,
    is_of_one_point,
    layout_of,
    part_bytes,
    part_sizes,
    start_limits,
    tiled_cycles,
)
from npusim.cost.rates import LOWER, TILE_SRAM, UPPER, point_rates
from npusim.cost.records import Elements, Floats, Ints, Number, dtype_of
from npusim.cost.search import fetch_once, plain_ms, search_operator
from npusim.cost.tables import DpuOperation, Order, Split, Unit
from npusim.cost.tiling import (
    CHANNEL_LEVELS,
    ROW_LEVELS,
    TRIANGLE_ONCE,
    Block,
    Layout,
    Tiling,
    block_of,
    contiguous_bytes,
    fewest_row_blocks,
    has_stencils,
    is_in_parts,
    lane_block_of,
    more_strips,
    needed_bytes,
    next_count,
    piece_of,
    room_of,
    row_lanes,
    tile_share,
)
from npusim.cost.totals import cost_candidates, rates_at_point

_VIEW, _DPU, _HOST = (int(unit) for unit in (Unit.VIEW, Unit.DPU, Unit.HOST))
_MATMUL, _CONVOLUTION = int(DpuOperation.MATMUL), int(DpuOperation.CONVOLUTION)
_WEIGHTS_HELD, _ACTIVATIONS_HELD = int(Order.WEIGHTS_HELD), int(Order.ACTIVATIONS_HELD)
_OUTPUTS_HELD, _ROWS = int(Order.OUTPUTS_HELD), int(Split.ROWS)
OPEN = -1.0
"""Value of a column that a nest leaves to the search."""
_PLACES, _AMPLE_BYTES = 512, 2.0**50


class NestRecord:
    """Loop nest of a product; `OPEN` in a column leaves it to the search."""

    is_fixed: Number
    """1 where any other column is fixed."""
    split: Number
    """See `npusim.cost.tables.Split`."""
    tiles: Number
    mode: Number
    """MPE mode."""
    order: Number
    """See `npusim.cost.tables.Order`."""
    buffers: Number
    """Buffers of a stationary operand in several blocks, 1 or 2."""
    is_once: Number
    """1 where a stored triangle is fetched once, 0 where twice."""
    strips: Number
    piece_rows: Elements
    piece_width: Elements
    piece_columns: Elements
    row_blocks: Number
    column_blocks: Number
    depth_blocks: Number
    block_rows: Elements
    block_columns: Elements
    block_depth: Elements


NEST_DTYPE = dtype_of(NestRecord)


def open_nests(count: int) -> Any:
    """Return nests that fix nothing, array of NEST_DTYPE, shape (count,)."""
    nests = np.zeros(count, NEST_DTYPE)
    for name in NEST_DTYPE.names or ():
        nests[name] = OPEN
    return nests


def with_nests(table: PlanTable, nests: Any) -> tuple[PlanTable, Any]:
    """Return a plan table in which operators share a row only with equal nests, and the nests of its rows.

    `nests` is an array of NEST_DTYPE, shape (operators,).
    """
    places: dict[tuple[int, bytes], int] = {}
    changes, texts = table.changes.copy(), [nest.tobytes() for nest in nests]
    for change, (operator, row) in enumerate(table.changes.tolist()):
        changes[change, 1] = places.setdefault((row, texts[operator]), len(places))
    rows = table.rows[[row for row, _ in places]]
    of_rows = np.frombuffer(b"".join(text for _, text in places), NEST_DTYPE).copy()
    return table._replace(rows=rows, changes=changes), of_rows


@compiled
def _agrees(fixed: float, value: float) -> bool:
    """Return whether a value is the fixed one, or that is open."""
    return fixed < 0.0 or fixed == value


@compiled
def _first_count(count: float, size: float, length: float, pieces: float, piece: float) -> float:
    """Return the first count of blocks to try; 0 where no count gives the fixed one, or the fixed size.

    Parameters
    ----------
    count, size : float
        Fixed blocks, and fixed elements of a block, or `OPEN`.
    length, pieces, piece : float
        Elements and pieces to divide among blocks, and elements of a piece.
    """
    first = 1.0
    if size >= 0.0:
        in_block = np.ceil(size / piece)
        if in_block * piece != size and size != length:
            return 0.0
        first = np.ceil(pieces / min(in_block, pieces))
    if count >= 0.0:
        if size >= 0.0 and first != count:
            return 0.0
        first = count
    is_whole = 1.0 <= first <= pieces and np.ceil(pieces / np.ceil(pieces / first)) == first
    return float(first) if is_whole else 0.0


@compiled
def _has_piece(nest: NestRecord, layout: Layout, block: Block) -> bool:
    """Return whether the pieces of a block are those of a nest."""
    return bool(
        _agrees(nest.piece_rows, block.piece_rows)
        and _agrees(nest.piece_width, layout.piece.width)
        and _agrees(nest.piece_columns, layout.piece.channels)
    )


@compiled
def _try_agreeing(task: Task, nest: NestRecord, layout: Layout, block: Block, stop: int) -> int:
    """Try the blocks of one layout that agree with a nest; return as `search_product`."""
    if stop < 0 or layout.piece.rows == 0.0 or not _has_piece(nest, layout, block):
        return stop
    arch, op, sram_bytes = task.arch, task.op, task.lower.tile_sram_bytes
    row_parts, column_parts = layout.row_parts, layout.column_parts
    rows, channels = part_sizes(arch, op, layout.split, row_parts, column_parts)
    is_depth_fixed = nest.depth_blocks >= 0.0 or nest.block_depth >= 0.0 or is_in_parts(layout)
    is_width_fixed = nest.column_blocks >= 0.0 or nest.block_columns >= 0.0 or column_parts > 1.0
    is_height_fixed = nest.row_blocks >= 0.0 or nest.block_rows >= 0.0
    # Blocks of lanes that no nest names serve tilings in chunks alone.
    is_last_resort = block.piece_rows != layout.block.piece_rows and nest.piece_rows < 0.0
    chunks = _first_count(nest.depth_blocks, nest.block_depth, op.in_c, block.chunks, arch.dpu_channel_lanes)
    while chunks > 0.0:
        row_bytes = contiguous_bytes(op, layout.piece, chunks)
        if stop + 2 >= task.candidates.shape[0]:
            return -1
        if is_hopeless_in_chunks(task, layout, block, chunks, row_bytes, stop):
            return stop
        is_skipped = is_last_resort and chunks == 1.0
        is_skipped = is_skipped or is_hopeless(task, layout, block, chunks, row_bytes, stop)
        count = nest.column_blocks / column_parts if nest.column_blocks >= 0.0 else OPEN
        columns = _first_count(count, nest.block_columns, channels, block.columns, layout.piece.channels)
        while columns > 0.0 and not is_skipped:
            room = room_of(block, columns, chunks)
            count = nest.row_blocks / row_parts if nest.row_blocks >= 0.0 else OPEN
            row_blocks = _first_count(count, nest.block_rows, rows, block.rows, block.piece_rows)
            if not is_height_fixed:
                row_blocks = fewest_row_blocks(block, room, sram_bytes)
            is_legal = row_blocks > 0.0 and (row_parts == 1.0 or row_blocks == 1.0)
            if is_legal and needed_bytes(block, room, row_blocks) <= sram_bytes:
                stop = _try_orders(task, nest, layout, block, row_blocks, columns, chunks, row_bytes, stop)
                if stop < 0:
                    return stop
            columns = 0.0 if is_width_fixed else next_count(columns, block.columns)
        chunks = 0.0 if is_depth_fixed else next_count(chunks, block.chunks)
    return stop


@compiled
def _try_orders(
    task: Task,
    nest: NestRecord,
    layout: Layout,
    block: Block,
    row_blocks: float,
    columns: float,
    chunks: float,
    row_bytes: float,
    stop: int,
) -> int:
    """Try each loop order of a nest for so many blocks; return as `search_product`."""
    needed = needed_bytes(block, room_of(block, columns, chunks), row_blocks)
    cycles = tiled_cycles(task, layout, block, row_blocks, columns, chunks)
    all_rows, all_columns = layout.row_parts * row_blocks, layout.column_parts * columns
    for order in range(3):
        is_legal = (order == _OUTPUTS_HELD) == (chunks > 1.0)
        is_legal = is_legal and (layout.column_parts == 1.0 or (order == _WEIGHTS_HELD and columns == 1.0))
        is_legal = is_legal and (layout.row_parts == 1.0 or order == _ACTIVATIONS_HELD)
        if is_legal and _agrees(nest.order, order):
            if stop + 2 >= task.candidates.shape[0]:
                return -1
            tiling = Tiling(order, block.strips, all_rows, all_columns, chunks)
            stop = add_tiling(task, layout, block, tiling, needed, cycles, row_bytes, stop)
    return stop


@compiled
def _try_parts(
    task: Task,
    nest: NestRecord,
    split: int,
    mode: int,
    level: int,
    strips: float,
    along_rows: bool,
    stop: int,
) -> int:
    """Try parts along one axis that agree with a nest: a block of a single-buffered operand in each."""
    arch, op = task.arch, task.op
    _, rows, channels = tile_share(arch, op, split)
    groups = np.ceil(channels / arch.dpu_channel_lanes)
    fixed = nest.column_blocks
    if along_rows:
        groups, fixed = np.ceil(rows / row_lanes(arch, op)), nest.row_blocks
    parts = fixed if fixed >= 0.0 else next_count(1.0, groups)
    while 1.0 < parts <= groups and stop >= 0:
        row_parts, column_parts = (parts, 1.0) if along_rows else (1.0, parts)
        if fixed < 0.0 and parts >= 4.0:  # twice the fewest that fit are the most
            fewer = np.floor(parts / 2.0)
            needed = part_bytes(task, split, mode, level, strips, fewer, along_rows)
            if needed <= task.lower.tile_sram_bytes:
                return stop
        layout = layout_of(task, split, mode, level, strips, row_parts, column_parts, np.inf)
        stop = _try_agreeing(task, nest, layout, layout.block, stop)
        parts = 0.0 if fixed >= 0.0 else next_count(parts, groups)
    return stop


@compiled
def _try_layouts(task: Task, nest: NestRecord, split: int, mode: int, strips: float, stop: int) -> int:
    """Try the tilings of one split, mode and number of strips that agree with a nest."""
    arch, op = task.arch, task.op
    is_matmul, is_array = op.dpu_operation == _MATMUL, has_array(arch)
    for level in range(1 if is_matmul else CHANNEL_LEVELS * (1 if is_array else ROW_LEVELS)):
        layout = layout_of(task, split, mode, level, strips, 1.0, 1.0, np.inf)
        if not (_agrees(nest.strips, layout.block.strips) and _agrees(nest.tiles, layout.tiles)):
            continue
        if _agrees(nest.buffers, 2.0):
            stop = _try_agreeing(task, nest, layout, layout.block, stop)
            if has_stencils(arch, op) and layout.piece.rows > 0.0:
                finest = lane_block_of(arch, op, layout)
                if finest.piece_rows != layout.block.piece_rows:
                    stop = _try_agreeing(task, nest, layout, finest, stop)
        whole_bytes = needed_bytes(layout.block, room_of(layout.block, 1.0, 1.0), 1.0)
        has_parts = nest.buffers == 1.0 or whole_bytes > task.lower.tile_sram_bytes
        has_parts = has_parts and arch.fewest_buffers <= 1.0 and _agrees(nest.buffers, 1.0)
        if has_parts and level % CHANNEL_LEVELS == 0 and layout.piece.rows > 0.0:
            for along_rows in range(2):
                stop = _try_parts(task, nest, split, mode, level, strips, along_rows > 0, stop)
    return stop


@compiled
def _search_agreeing(task: Task, nest: NestRecord) -> int:
    """Write the candidates of a product that agree with a nest; return as `search_product`."""
    arch, op, stop = task.arch, task.op, task.start
    strips = nest.strips if nest.strips >= 1.0 else 1.0
    while strips > 0.0:
        for split in range(3):
            for mode in range(modes_of(arch)):
                if _agrees(nest.split, split) and _agrees(nest.mode, mode):
                    if _agrees(nest.is_once, 0.0):
                        stop = _try_layouts(task, nest, split, mode, strips, stop)
                    if op.triangle and _agrees(nest.is_once, 1.0) and strips == 1.0:
                        stop = _try_once(task, nest, split, mode, stop)
        strips = 0.0 if nest.strips >= 0.0 else more_strips(arch, op, strips)
    return stop


@compiled
def _try_once(task: Task, nest: NestRecord, split: int, mode: int, stop: int) -> int:
    """Try to fetch a stored triangle once in one split and mode."""
    most, _, channels = tile_share(task.arch, task.op, split)
    used = 1.0 if split == _ROWS else most
    while used <= most and stop >= 0 and _agrees(nest.order, _OUTPUTS_HELD):
        if _agrees(nest.tiles, used):
            stop = fetch_once(task, stop, split, mode, used, channels)
        used += 1.0
    return stop


@compiled
def _search_row(
    arch: Any,
    op: Any,
    nest: NestRecord,
    rate_bounds: Floats,
    candidates: Any,
    start: int,
    seconds: Floats,
    known: Any,
    limits: Floats,
) -> int:
    """Write the candidates of an operator from `start`; return their end, -1 where the table is too short."""
    is_product = op.dpu_operation == _MATMUL or op.dpu_operation == _CONVOLUTION
    if nest.is_fixed <= 0.0 or op.unit != _DPU or not is_product:
        return search_operator(arch, op, rate_bounds, candidates, start, seconds, known, limits)
    lower, upper = point_rates(rate_bounds, LOWER), point_rates(rate_bounds, UPPER)
    is_exact = is_of_one_point(arch, rate_bounds)
    ranges = start_limits(upper.tile_sram_bytes, lower.tile_sram_bytes, limits)
    task = Task(arch, op, lower, upper, candidates, start, is_exact, seconds, known, ranges, limits)
    return _search_agreeing(task, nest)


@compiled_making_arrays
def search_nested_rows(archs: Archs, rows: Any, nests: Any, rate_bounds: Floats, row_starts: Ints) -> Any:
    """Return the candidates of each row of an operator table that agree with its nest.

    Parameters
    ----------
    nests : array of NEST_DTYPE, shape (rows,)
    others
        As for `npusim.cost.search.search_rows`.

    Returns
    -------
    candidates : array of CANDIDATE_DTYPE
    """
    candidates, known = np.zeros(_PLACES, CANDIDATE_DTYPE), no_known_tiles(archs.arrays[0])
    limits, seconds = np.empty((3, SRAM_RANGES + 1)), np.empty(_PLACES)
    index: Any = np.int64(0)  # a literal would make a second specialisation
    for r in range(rows.shape[0]):
        op = rows[r]
        row_starts[r] = index
        if op.unit == _VIEW or op.unit == _HOST:
            continue
        arch, own_rates = archs.arrays[0, op.device], rate_bounds[op.device]
        stop = _search_row(arch, op, nests[r], own_rates, candidates, index, seconds, known, limits)
        while stop < 0:  # the table was too short
            longer = np.zeros(2 * candidates.shape[0], CANDIDATE_DTYPE)
            for i in range(index):
                longer[i] = candidates[i]
            candidates, seconds = longer, np.empty(longer.shape[0])
            stop = _search_row(arch, op, nests[r], own_rates, candidates, index, seconds, known, limits)
        sort_candidates(candidates, index, stop)
        index = stop
    row_starts[rows.shape[0]] = index
    return candidates


@compiled_or_plain(lambda archs, ops, *_: plain_ms(ops, archs.arrays))
def nested_costs(archs: Archs, ops: Any, nests: Any, results: Any) -> None:
    """Cost each operator of a network as `operator_costs`, with tilings that agree with its nest.

    `nests` is an array of NEST_DTYPE, shape (operators,).
    """
    every_rate, rate_bounds = rates_at_point(archs)
    row_starts = np.empty(ops.shape[0] + 1, np.int64)
    candidates = search_nested_rows(archs, ops, nests, rate_bounds, row_starts)
    cost_candidates(archs, ops, every_rate, candidates, row_starts, results)


def nest_of(arch: Any, op: Any, result: Any) -> Any:
    """Return the loop nest of a product as the search chose it, a row of NEST_DTYPE without an open column.

    Parameters
    ----------
    arch, op, result
        Records of the array device, of the operator and of its costs.
    """
    nest = open_nests(1)[0]
    nest["is_fixed"], nest["is_once"] = 1.0, 1.0 if result["piece_level"] == TRIANGLE_ONCE else 0.0
    for name in ("split", "tiles", "mode", "order"):
        nest[name] = result[name]
    if nest["is_once"] > 0.0:
        return nest
    for name in ("buffers", "strips", "row_blocks", "column_blocks"):
        nest[name] = result[name]
    nest["depth_blocks"] = chunks = float(result["channel_chunks"])
    row_parts = column_parts = 1.0
    if result["buffers"] == 1:
        held = "column_blocks" if result["order"] == _WEIGHTS_HELD else "row_blocks"
        row_parts, column_parts = (1.0, nest[held]) if held == "column_blocks" else (nest[held], 1.0)
    rows, columns = part_sizes(arch, op, int(result["split"]), row_parts, column_parts)
    level, mode = int(result["piece_level"]), int(result["mode"])
    piece = piece_of(arch, op, rows, columns, mode, level, float(result["strips"]))
    block, piece_rows = block_of(arch, op, rows, columns, piece), piece.rows
    if result["row_pieces"] != row_parts * block.rows:
        piece_rows = min(rows, row_lanes(arch, op))
    nest["piece_rows"], nest["piece_width"], nest["piece_columns"] = piece_rows, piece.width, piece.channels
    pieces = np.ceil(np.ceil(rows / piece_rows) / (nest["row_blocks"] / row_parts))
    nest["block_rows"] = min(rows, pieces * piece_rows)
    pieces = np.ceil(block.columns / (nest["column_blocks"] / column_parts))
    nest["block_columns"] = min(columns, pieces * piece.channels)
    depth = np.ceil(block.chunks / chunks) * arch["dpu_channel_lanes"]
    nest["block_depth"] = min(float(op["in_c"]), depth)
    return nest


def least_sram_bytes(archs: Archs, op: Any, nest: Any) -> float:
    """Return the least SRAM of a tile in which some tiling agrees with a nest; infinite where none does.

    Parameters
    ----------
    op, nest
        Records of OP_DTYPE and NEST_DTYPE.
    """
    row_starts, device = np.empty(2, np.int64), int(op["device"])
    ops, nests = np.array([op], op.dtype), np.array([nest], NEST_DTYPE)

    def needed_within(sram_bytes: float) -> float:
        """Return the bytes of a tiling that needs at most so many; infinite where there is none."""
        rate_bounds = rates_at_point(archs)[1]
        rate_bounds[device, TILE_SRAM] = sram_bytes
        candidates = search_nested_rows(archs, ops, nests, rate_bounds, row_starts)[: row_starts[1]]
        return float(candidates["needed_bytes"].min(initial=np.inf))

    with plain_kernels():
        too_small, needed = 0.0, needed_within(_AMPLE_BYTES)
        while needed < np.inf and needed - too_small > 1.0:
            middle = (too_small + needed) / 2.0
            fitting = needed_within(middle)
            too_small, needed = (too_small, fitting) if fitting < np.inf else (middle, needed)
    return needed
