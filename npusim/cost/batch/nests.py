"""Own loop nests of products: the tiling search restricted to what a user or another search fixes.

A nest fixes some or all of split, tiles, MPE mode, loop order, buffers, pieces, and blocks by count or by
size; the others are open. Every legal tiling that agrees is tried, also ones that the search of
`npusim.cost.tilings.products` leaves out because another is never slower. What is open is tried as there: the
fewest row blocks that fit, and counts with blocks of different size. Each tiling is costed by the same
kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from npusim.compiling.kernels import compiled_or_plain, plain_kernels
from npusim.compiling.records import Floats, Ints
from npusim.cost.batch.totals import rates_at_point
from npusim.cost.lowering.plans import PlanTable
from npusim.cost.lowering.tables import DpuOperation, Order, Split
from npusim.cost.machine.architecture import Archs
from npusim.cost.tilings import products, tiling
from npusim.cost.tilings.candidates import KEYS, sort_candidates
from npusim.cost.tilings.products import Task
from npusim.cost.tilings.search import fetch_once, plain_ms, search_rows
from npusim.cost.tilings.tiling import Block, Cut, Layout, Tiling
from npusim.cost.units.arrays.mapper import has_array, modes_of, no_known_tiles
from npusim.cost.units.rates import LOWER, TILE_SRAM, UPPER, point_rates
from npusim.cost.units.resources import CANDIDATE_DTYPE

Nest = Mapping[str, float]
"""What is fixed of a loop nest, by its place in a file (`npusim.mapping.nests`): `dram.blocks.rows` is
a number of blocks, `sram.block.rows` the elements of one, `grid.piece.rows` those of a piece. `dram.order`,
`tiles.split` and `grid.mode` are numbers of `Order`, `Split` and of a mode, `triangle` is 1 for once."""
_PLACES, _AMPLE_BYTES = 1 << 15, 2.0**50


def with_nests(table: PlanTable, nests: Sequence[Nest | None]) -> tuple[PlanTable, list[Nest | None]]:
    """Return a plan table whose rows serve operators with equal nests alone, and the nest of each row.

    Its rows are copies of those of `table`, one for each nest that an operator with that row has.
    """
    new_rows: dict[tuple[int, str], int] = {}  # by row and nest as text: mappings cannot be keys
    row_nests: list[Nest | None] = []
    changes = table.changes.copy()
    # Each change gives an operator the row of its costs from one plan on.
    for change, (operator, row) in enumerate(table.changes.tolist()):
        nest = nests[operator]
        key = (row, repr(nest))
        if key not in new_rows:
            new_rows[key] = len(new_rows)
            row_nests.append(nest)
        changes[change, 1] = new_rows[key]
    return table._replace(rows=table.rows[[row for row, _ in new_rows]], changes=changes), row_nests


def _counts(
    nest: Nest, along: str, length: float, pieces: float, piece: float, parts: float
) -> Iterator[float]:
    """Yield the numbers of blocks of a part along a loop that agree with a nest, the fewest first.

    Parameters
    ----------
    length, pieces, piece : float
        Elements and pieces to divide among blocks, and elements of a piece.
    parts : float
        Parts, each with so many blocks.
    """
    fixed, size = nest.get(f"dram.blocks.{along}"), nest.get(f"sram.block.{along}")
    if fixed is None and size is None:
        count = 1.0
        while count > 0.0:
            yield count
            count = tiling.next_count(count, pieces)
        return
    if size is not None and size != length and (size > length or size % piece):
        return
    said = {fixed / parts} if fixed is not None else set[float]()
    if size is not None:
        said.add(float(np.ceil(pieces / min(pieces, np.ceil(size / piece)))))
    count = said.pop()
    if not said and 1.0 <= count <= pieces and np.ceil(pieces / np.ceil(pieces / count)) == count:
        yield count


def _layouts(task: Task, nest: Nest) -> Iterator[tuple[Layout, Block]]:
    """Yield each layout that agrees with a nest, with the blocks of pieces that it may be cut into."""
    arch, op, strips = task.arch, task.op, nest.get("dram.blocks.width", 1.0)
    is_matmul, is_array = op.dpu_operation == DpuOperation.MATMUL, has_array(arch)
    levels = range(1 if is_matmul else tiling.CHANNEL_LEVELS * (1 if is_array else tiling.ROW_LEVELS))
    while strips > 0.0:
        for split in _open(nest, "tiles.split", range(3)):
            for mode in _open(nest, "grid.mode", range(modes_of(arch))):
                for level in levels:
                    cut = Cut(split, mode, level, strips, 1.0, 1.0, False)
                    whole = products.layout_of(task, cut, np.inf)
                    if whole.piece.rows == 0.0 or nest.get("tiles.count", whole.tiles) != whole.tiles:
                        continue
                    if nest.get("dram.blocks.width", whole.block.strips) != whole.block.strips:
                        continue
                    if nest.get("dram.buffers", 2.0) == 2.0:
                        yield whole, whole.block
                        if tiling.has_register_tiles(arch, op):
                            yield whole, tiling.lane_block_of(arch, op, whole)
                    for layout in _parts(task, nest, whole) if level % tiling.CHANNEL_LEVELS == 0 else ():
                        yield layout, layout.block
                        if layout.cut.is_streamed and tiling.has_register_tiles(arch, op):
                            yield layout, tiling.lane_block_of(arch, op, layout)
        strips = 0.0 if "dram.blocks.width" in nest else tiling.more_strips(arch, op, strips)


def _open(nest: Nest, key: str, choices: Sequence[int]) -> Sequence[int]:
    """Return the choices that a nest leaves."""
    return [int(nest[key])] if key in nest and nest[key] in choices else [] if key in nest else choices


def _parts(task: Task, nest: Nest, whole: Layout) -> Iterator[Layout]:
    """Yield layouts in parts that hold an operand in one buffer, or stream both operands in two.

    A nest fixes the number of parts; else all numbers are tried that the search tries.
    """
    sram_bytes = task.lower.tile_sram_bytes
    fits = tiling.needed_bytes(whole.block, tiling.room_of(whole.block, 1.0, 1.0), 1.0) <= sram_bytes
    tried_buffers = [nest["dram.buffers"]] if "dram.buffers" in nest else [2.0] if fits else [1.0, 2.0]
    is_possible = {1.0: task.arch.fewest_buffers <= 1.0, 2.0: not has_array(task.arch)}
    for buffers, along_rows in ((1.0, True), (1.0, False), (2.0, False)):
        if buffers not in tried_buffers or not is_possible[buffers]:
            continue
        is_streamed = buffers > 1.0
        groups = products.groups_along(task, whole.cut.split, along_rows)
        fixed = nest.get("dram.blocks.rows" if along_rows else "dram.blocks.columns")
        parts = tiling.next_count(1.0, groups) if fixed is None else fixed
        while 1.0 < parts <= groups:
            cut = products.cut_along(whole.cut, parts, along_rows, is_streamed)
            if fixed is None and not is_streamed and products.larger_part_bytes(task, cut) <= sram_bytes:
                break  # much longer parts fit
            layout = products.layout_of(task, cut, np.inf)
            is_worthwhile = not is_streamed or products.is_worth_streaming(task, whole, cut)
            if layout.piece.rows > 0.0 and is_worthwhile:
                yield layout
            parts = 0.0 if fixed is not None else tiling.next_count(parts, groups)


def _try_layout(task: Task, nest: Nest, layout: Layout, block: Block, stop: int) -> int:
    """Add the tilings of a layout that agree with a nest; return where candidates end."""
    arch, op, sram_bytes = task.arch, task.op, task.lower.tile_sram_bytes
    piece = {"rows": block.piece_rows, "width": layout.piece.width, "columns": layout.piece.channels}
    if any(nest.get(f"grid.piece.{along}", size) != size for along, size in piece.items()):
        return stop
    # Blocks of lanes that no nest names serve tilings in chunks alone.
    is_lane = block.piece_rows != layout.block.piece_rows and "grid.piece.rows" not in nest
    row_parts, column_parts = layout.cut.row_parts, layout.cut.column_parts
    rows, channels = tiling.part_sizes(arch, op, layout.cut)
    is_open = "dram.blocks.rows" not in nest and "sram.block.rows" not in nest
    for chunks in _counts(nest, "depth", op.in_c, block.chunks, arch.dpu_channel_lanes, 1.0):
        row_bytes = tiling.contiguous_bytes(op, layout.piece, chunks)
        if products.is_hopeless_in_chunks(task, layout, block, chunks, row_bytes, stop):
            return stop
        is_skipped = (is_lane or layout.cut.is_streamed) and chunks == 1.0
        is_skipped |= tiling.paused_parts(layout.cut) > 1.0 and chunks > 1.0
        if is_skipped or products.is_hopeless(task, layout, block, chunks, row_bytes, stop):
            continue
        for columns in _counts(nest, "columns", channels, block.columns, layout.piece.channels, column_parts):
            room = tiling.room_of(block, columns, chunks)
            if is_open:
                counts = [tiling.fewest_row_blocks(block, room, sram_bytes)]
            else:
                counts = [*_counts(nest, "rows", rows, block.rows, block.piece_rows, row_parts)]
            for row_blocks in counts:
                needed = tiling.needed_bytes(block, room, row_blocks) if row_blocks > 0.0 else np.inf
                if needed > sram_bytes:
                    continue
                for order in _orders(nest, layout, row_blocks, columns, chunks):
                    counted = (row_parts * row_blocks, column_parts * columns, chunks)
                    cut = Tiling(order, block.strips, *counted)
                    end = products.add_tiling(task, layout, block, cut, needed, row_bytes, stop)
                    if end < 0:  # the table is full: what it has is kept
                        return stop
                    stop = end
    return stop


def _orders(nest: Nest, layout: Layout, row_blocks: float, columns: float, chunks: float) -> Sequence[int]:
    """Return the legal loop orders of so many blocks that a nest leaves."""
    if chunks > 1.0:
        orders = [int(Order.OUTPUTS_HELD)]
    elif layout.cut.column_parts > 1.0:
        orders = [int(Order.WEIGHTS_HELD)] if columns == 1.0 else []
    elif layout.cut.row_parts > 1.0:
        orders = [int(Order.ACTIVATIONS_HELD)] if row_blocks == 1.0 else []
    else:
        orders = [int(Order.WEIGHTS_HELD), int(Order.ACTIVATIONS_HELD)]
    return _open(nest, "dram.order", orders)


def agreeing_candidates(archs: Archs, op: Any, nest: Nest, rate_bounds: Floats) -> Any:
    """Return the candidates of a product that agree with a nest, array of CANDIDATE_DTYPE.

    Parameters
    ----------
    op
        Record of OP_DTYPE.
    rate_bounds : array of float64, shape (array devices, RATES, 2)
        As for `npusim.cost.tilings.search.search_rows`.
    """
    arch, bounds = archs.arrays[op.device], rate_bounds[op.device]
    candidates, limits = np.zeros(_PLACES, CANDIDATE_DTYPE), np.empty((3, products.SRAM_RANGES + 1))
    lower, upper = point_rates(bounds, LOWER), point_rates(bounds, UPPER)
    ranges = products.start_limits(upper.tile_sram_bytes, lower.tile_sram_bytes, limits)
    known, keys = no_known_tiles(archs.arrays), np.empty((_PLACES, KEYS))
    is_exact = products.is_of_one_point(arch, bounds)
    task = Task(arch, op, lower, upper, candidates, 0, is_exact, keys, known, ranges, limits)
    stop = 0
    for layout, block in _layouts(task, nest) if nest.get("triangle", 0.0) == 0.0 else ():
        stop = _try_layout(task, nest, layout, block, stop)
    is_once = op.triangle and nest.get("triangle", 1.0) == 1.0
    for split in _open(nest, "tiles.split", range(3)) if is_once else ():
        most, _, channels = tiling.tile_share(arch, op, split)
        tiles = range(1 if split == Split.ROWS else int(most), int(most) + 1)
        for mode in _open(nest, "grid.mode", range(modes_of(arch))):
            for used in _open(nest, "tiles.count", tiles) if _open(nest, "dram.order", [2]) else ():
                stop = fetch_once(task, stop, split, mode, float(used), channels)
    sort_candidates(candidates, 0, stop)
    return candidates[:stop]


@compiled_or_plain(lambda archs, rows, *_: plain_ms(rows, archs.arrays))
def searched_rows(archs: Archs, rows: Any, row_starts: Ints) -> Any:
    """Return the candidates of each row of an operator table at one point; arguments as `search_rows`."""
    return search_rows(archs, rows, rates_at_point(archs)[1], row_starts)


def search_nested_rows(archs: Archs, rows: Any, nests: Sequence[Nest | None]) -> tuple[Any, Ints]:
    """Return the candidates of each row of an operator table at one point, and where those of each start.

    Rows with a nest have the candidates that agree with it, others those of the search.
    """
    is_open = np.array([nest is None for nest in nests], bool)
    starts = np.zeros(np.count_nonzero(is_open) + 1, np.int64)
    with plain_kernels():
        rate_bounds = rates_at_point(archs)[1]
    searched = searched_rows(archs, rows[is_open], starts)
    place, parts = np.cumsum(is_open) - 1, []
    with plain_kernels():
        for r, nest in enumerate(nests):
            own = None if nest is None else agreeing_candidates(archs, rows[r], nest, rate_bounds)
            parts.append(searched[starts[place[r]] : starts[place[r] + 1]] if own is None else own)
    return np.concatenate(parts), np.cumsum([0, *map(len, parts)])


def least_sram_bytes(archs: Archs, op: Any, nest: Nest) -> float:
    """Return the least SRAM of a tile in which some tiling agrees with a nest; infinite where none does."""

    def needed_within(sram_bytes: float) -> float:
        rate_bounds = rates_at_point(archs)[1]
        rate_bounds[op.device, TILE_SRAM] = sram_bytes
        candidates = agreeing_candidates(archs, op, nest, rate_bounds)
        return float(candidates["needed_bytes"].min(initial=np.inf))

    with plain_kernels():
        too_small, needed = 0.0, needed_within(_AMPLE_BYTES)
        while needed < np.inf and needed - too_small > 1.0:
            middle = (too_small + needed) / 2.0
            fitting = needed_within(middle)
            too_small, needed = (too_small, fitting) if fitting < np.inf else (middle, needed)
    return needed


def nest_of(arch: Any, op: Any, result: Any) -> dict[str, float]:
    """Return the whole loop nest of a product as the search chose it.

    Parameters
    ----------
    arch, op, result
        Records of the array device, of the operator and of its costs.
    """
    places = {"dram.order": "order", "tiles.split": "split", "tiles.count": "tiles", "grid.mode": "mode"}
    nest = {place: float(result[name]) for place, name in places.items()}
    if result["piece_level"] == tiling.TRIANGLE_ONCE:
        return nest | {"triangle": 1.0}
    nest |= {"triangle": 0.0} if op["triangle"] else {}
    row_blocks, column_blocks, chunks, strips = (
        float(result[name]) for name in ("row_blocks", "column_blocks", "channel_chunks", "strips")
    )
    row_parts = column_parts = 1.0
    if result["parts"]:
        is_along_rows = result["parts"] == tiling.PARTS_OF_ROWS
        row_parts, column_parts = (row_blocks, 1.0) if is_along_rows else (1.0, column_blocks)
    level, mode = int(result["piece_level"]), int(result["mode"])
    cut = Cut(int(result["split"]), mode, level, strips, row_parts, column_parts, False)
    rows, columns = tiling.part_sizes(arch, op, cut)
    piece = tiling.piece_of(arch, op, rows, columns, mode, level, strips)
    block, piece_rows = tiling.block_of(arch, op, rows, columns, piece), piece.rows
    if result["row_pieces"] != row_parts * block.rows:
        piece_rows = min(rows, tiling.row_lanes(arch, op))
    row_pieces = np.ceil(np.ceil(rows / piece_rows) * row_parts / row_blocks)
    column_pieces = np.ceil(block.columns * column_parts / column_blocks)
    depth = np.ceil(block.chunks / chunks) * arch["dpu_channel_lanes"]
    return nest | {
        "dram.buffers": float(result["buffers"]),
        "dram.blocks.rows": row_blocks,
        "dram.blocks.width": strips,
        "dram.blocks.columns": column_blocks,
        "dram.blocks.depth": chunks,
        "sram.block.rows": float(min(rows, row_pieces * piece_rows)),
        "sram.block.columns": float(min(columns, column_pieces * piece.channels)),
        "sram.block.depth": float(min(op["in_c"], depth)),
        "grid.piece.rows": float(piece_rows),
        "grid.piece.width": float(piece.width),
        "grid.piece.columns": float(piece.channels),
    }
