"""Tiling search: the mapping candidates of every operator of a network that can be the fastest.

They depend on what fits where and on cycles, not on clocks and bandwidths: a sweep searches once for all the
design points that share the former. Products and convolutions have candidates by split, MPE mode, part, order
and tiling; each that can be the fastest at some rates is kept (`npusim.cost.candidates`). For a single point
its rates decide, and the search ends early. Operators without a reduction over channels have one candidate:
elements stream in, are worked on, and results stream out.

SymG: a product whose left operand is symmetric and of which only the lower triangle is stored. Block (i, j)
serves output rows i as it stands and output rows j transposed. There are two ways, and the better is chosen.
*Once*: every block is fetched once and both uses follow each other, so the partial sums of all output rows
stay in SRAM with all of the right operand; the second use reads the block transposed, at
`symg_transposed_rate` of the normal pace. *Twice*: every off-diagonal block is fetched for each use, which
moves what dense storage moves; only the memory is saved. Once never moves more than any candidate to fetch a
dense matrix. Cutting the columns into passes whose partial sums fit would be a third candidate, but two
passes over a triangle move more than one over the dense matrix.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.architecture import ArchRecord, Archs
from npusim.cost.arrays.mapper import (
    KnownTiles,
    array_tile,
    block_start_cycles,
    has_array,
    known_tile,
    modes_of,
    no_known_tiles,
)
from npusim.cost.candidates import CANDIDATE_DTYPE, CandidateRecord, add_candidate, precedes, sort_candidates
from npusim.cost.grid import (
    depthwise_cycles,
    eltwise_cycles,
    matmul_mode_cycles,
    maxpool_cycles,
    mode_shape,
    tile_workload,
)
from npusim.cost.kernels import compiled, compiled_making_arrays
from npusim.cost.latency import TIE, PointRates, lower_bound_s, point_rates, upper_bound_s
from npusim.cost.rates import LOWER, MACHINE_RATES, UPPER, greatest_sram_bytes, least_sram_bytes
from npusim.cost.records import Floats, Ints
from npusim.cost.resources import fed_bytes
from npusim.cost.tables import DpuOperation, OpRecord, Order, Split, Unit
from npusim.cost.tiling import (
    CHANNEL_LEVELS,
    ROW_LEVELS,
    Layout,
    block_of,
    contiguous_bytes,
    fed_by_layout,
    fewest_row_blocks,
    fill_needs,
    live_bytes,
    live_tile_bytes,
    more_strips,
    needed_bytes,
    next_count,
    piece_of,
    room_of,
    set_least,
    set_prologue_epilogue,
    set_streamed_held,
    set_tiling,
    sum_rate,
    tile_cycles,
    tile_share,
)

_VIEW, _DPU, _DSP, _HOST = (int(u) for u in (Unit.VIEW, Unit.DPU, Unit.DSP, Unit.HOST))
_MATMUL, _CONVOLUTION = int(DpuOperation.MATMUL), int(DpuOperation.CONVOLUTION)
_DEPTHWISE, _MAXPOOL = int(DpuOperation.DEPTHWISE), int(DpuOperation.MAXPOOL)
_ELTWISE = int(DpuOperation.ELTWISE)
_ROWS = int(Split.ROWS)
_WEIGHTS_HELD, _OUTPUTS_HELD = int(Order.WEIGHTS_HELD), int(Order.OUTPUTS_HELD)
_INITIAL_CANDIDATES, _MOST_OF_ONE_POINT = 512, 2
"""Places of a new table; most candidates of an operator after a search for one point."""
_PRODUCT_MS, _OTHER_MS = 8.0, 0.2
"""Time of the search for a product, and for another operator, as plain Python."""


class GroupSearch(NamedTuple):
    """Results of a search that all points of a group share."""

    candidates: Any
    """Array of CANDIDATE_DTYPE."""
    row_starts: Ints
    """Candidates of row `r` are `candidates[row_starts[r] : row_starts[r + 1]]`."""
    served: Any
    """What memory levels serve of each row, array of SERVED_DTYPE."""
    demands: Floats
    """Demands on each array device under any plan, shape (array devices, COUNT)."""
    macs: float
    """Multiply-accumulates of all devices, zeros counted."""


@compiled
def fits(op: OpRecord, row_starts: Ints, row: int) -> bool:
    """Whether an operator has a candidate, or needs none."""
    return bool(op.unit == _VIEW or op.unit == _HOST or row_starts[row] < row_starts[row + 1])


class Uppers(NamedTuple):
    """Least upper bounds of latency (s) so far; infinite where rates are not known."""

    of_any: float
    of_coarse: float
    """Of candidates with pieces of stencils."""
    is_exact: bool
    """Whether the bounds are the latencies themselves, as at a single point: only the best is kept."""


class Sides(NamedTuple):
    """Least and greatest rates of the points that a search is for."""

    lower: PointRates
    upper: PointRates


@compiled
def search_product(
    arch: ArchRecord, op: OpRecord, rate_bounds: Floats, candidates: Any, start: int, known: KnownTiles
) -> int:
    """Find every split, mode, order and tiling of a product that can be the fastest.

    Parameters
    ----------
    arch : record of ARCH_DTYPE
        Only what the search may look at (`npusim.cost.architecture.SearchedColumns`) and what follows from
        that.
    rate_bounds : array of float64, shape (RATES, 2)
        The range of SRAM sizes that the search is for, and lower and upper bound of each rate, where that is
        known (`npusim.cost.rates.widen_rate_bounds`): a candidate whose lower bound of latency is
        above another's upper bound is left out.
    candidates : array of CANDIDATE_DTYPE, shape (places,)
        Written from `start`.
    known : KnownTiles
        What arrays take for shares so far; added to.

    Returns
    -------
    int
        Where the candidates end: `start` where no tiling fits into SRAM, -1 where `candidates` is too short.
    """
    stop, uppers, strips = start, Uppers(np.inf, np.inf, is_of_one_point(arch, rate_bounds)), 1.0
    sides = Sides(point_rates(rate_bounds, LOWER), point_rates(rate_bounds, UPPER))
    is_matmul, is_array = op.dpu_operation == _MATMUL, has_array(arch)
    while strips > 0.0:
        for level in range(1 if is_matmul else CHANNEL_LEVELS * (1 if is_array else ROW_LEVELS)):
            row_level, channel_level = level // CHANNEL_LEVELS, level % CHANNEL_LEVELS
            for split in range(3):
                used, rows, channels = tile_share(arch, op, split)
                passes = rows if is_array and level > 0 else 1.0  # a line at a time
                for mode in range(modes_of(arch)):
                    piece = piece_of(arch, op, rows, channels, mode, row_level, channel_level, strips)
                    if piece.rows > 0.0:
                        array_cycles, array_bytes = 0.0, 0.0
                        if is_array:
                            array_cycles, array_bytes = known_tile(arch, op, rows / passes, channels, known)
                        layout = Layout(
                            split,
                            mode,
                            used,
                            piece,
                            array_cycles * passes
                            if is_array
                            else tile_cycles(arch, op, rows, channels, mode, piece),
                            block_of(arch, op, rows, channels, piece),
                            op.a_dram_bytes * rows / (op.out_w if is_matmul else op.out_h),
                            op.b_dram_bytes * channels / op.out_c,
                            fed_by_layout(op, piece, op.batch * used * array_bytes * passes),
                        )
                        stop, uppers = _search(arch, op, layout, sides, candidates, start, stop, uppers)
        strips = more_strips(arch, op, strips)
    return stop


@compiled
def is_of_one_point(arch: ArchRecord, rate_bounds: Floats) -> bool:
    """Whether all points that a search is for have the same rates, so that it may compare latencies."""
    for r in range(MACHINE_RATES):
        if rate_bounds[r, LOWER] != rate_bounds[r, UPPER]:
            return False
    level_bytes = 0.0  # what levels serve is known after the search
    for k in range(len(arch.level_bytes)):
        level_bytes += arch.level_bytes[k]
    return level_bytes == 0.0


@compiled
def _is_beaten(least: CandidateRecord, best: CandidateRecord, lower: PointRates) -> bool:
    """Whether another candidate is better than one with these least amounts."""
    best_s, least_s = lower_bound_s(best, lower), lower_bound_s(least, lower)
    return bool(best_s < least_s or (best_s == least_s and not precedes(least, best)))


@compiled
def _is_slower(new: CandidateRecord, sides: Sides, uppers: Uppers) -> bool:
    """Whether a candidate is at no point faster than another, or as fast with smaller pieces."""
    lower_s = lower_bound_s(new, sides.lower)
    if new.fine > 0.0:
        return bool(lower_s > uppers.of_any or lower_s > uppers.of_coarse * TIE)
    return bool(lower_s * TIE > uppers.of_any or lower_s > uppers.of_coarse)


@compiled
def _search(
    arch: ArchRecord,
    op: OpRecord,
    layout: Layout,
    sides: Sides,
    candidates: Any,
    start: int,
    stop: int,
    uppers: Uppers,
) -> tuple[int, Uppers]:
    """Try every candidate tiling of one layout (see `npusim.cost.tiling`).

    More chunks never shorten anything but the start, so the search ends where even the shortest start is too
    long.
    """
    if stop < 0 or stop + 1 >= candidates.shape[0]:
        return -1, uppers
    block, chunks = layout.block, 1.0
    while chunks > 0.0:
        # Partial sums are written and read again once for each further chunk.
        pieces = block.strips * block.rows * block.columns
        spill = (chunks - 1.0) * 2.0 * pieces * block.sum_bytes / sum_rate(arch)
        row_bytes = contiguous_bytes(op, layout.piece, chunks)
        least, fine = candidates[stop], 1.0 if layout.piece.is_fine else 0.0
        least.fine = fine
        fill_needs(op, least, _WEIGHTS_HELD, block.strips, 1.0, 1.0, layout.cycles + spill, row_bytes)
        set_least(layout, least)
        set_prologue_epilogue(arch, op, least, block, block.chunks)
        if _is_slower(least, sides, uppers):
            return stop, uppers
        if uppers.is_exact and stop > start:  # there is one of each kind at most
            best = start if candidates[start].fine == fine else start + 1
            if best < stop and _is_beaten(least, candidates[best], sides.lower):
                return stop, uppers
        set_prologue_epilogue(arch, op, least, block, chunks)
        if not _is_slower(least, sides, uppers):
            stop, uppers = _try_blocks(
                arch, op, layout, chunks, spill, row_bytes, sides, candidates, start, stop, uppers
            )
            if stop < 0:
                return stop, uppers
        chunks = next_count(chunks, block.chunks)
    return stop, uppers


@compiled
def _try_blocks(
    arch: ArchRecord,
    op: OpRecord,
    layout: Layout,
    chunks: float,
    spill: float,
    row_bytes: float,
    sides: Sides,
    candidates: Any,
    start: int,
    stop: int,
    uppers: Uppers,
) -> tuple[int, Uppers]:
    """Try all column blocks, each with all row blocks that are the fewest at some size of SRAM."""
    block, columns = layout.block, 1.0
    least, greatest = sides.upper.tile_sram_bytes, sides.lower.tile_sram_bytes
    fine = 1.0 if layout.piece.is_fine else 0.0
    while columns > 0.0:
        if uppers.is_exact and stop > start:
            fewest = candidates[stop]  # starts of so many blocks at least
            starts = (block.strips * columns * chunks - 1.0) * block_start_cycles(arch)
            fewest.fine = fine
            fill_needs(
                op, fewest, _WEIGHTS_HELD, block.strips, 1.0, 1.0, layout.cycles + spill + starts, row_bytes
            )
            set_least(layout, fewest)
            set_prologue_epilogue(arch, op, fewest, block, chunks)
            best = start if candidates[start].fine == fine else start + 1
            if best < stop and _is_beaten(fewest, candidates[best], sides.lower):
                break
        room = room_of(block, columns, chunks)
        row_blocks, before = fewest_row_blocks(block, room, greatest), np.inf
        while row_blocks > 0.0:
            needed = needed_bytes(block, room, row_blocks)
            if needed < before:
                if stop + 2 >= candidates.shape[0]:
                    return -1, uppers
                before = needed
                for held in range(1 if chunks > 1.0 else 2):
                    order = _OUTPUTS_HELD if chunks > 1.0 else held
                    new = candidates[stop]
                    new.fine = fine
                    blocks = block.strips * row_blocks * columns * chunks
                    cycles = layout.cycles + spill + (blocks - 1.0) * block_start_cycles(arch)
                    fill_needs(op, new, order, block.strips, row_blocks, columns, cycles, row_bytes)
                    set_prologue_epilogue(arch, op, new, block, chunks)
                    set_streamed_held(op, new, layout, order, row_blocks, columns)
                    if not _is_slower(new, sides, uppers):
                        new.needed_bytes = needed
                        uppers = _lowered(uppers, new, upper_bound_s(new, sides.upper))
                        set_tiling(arch, op, new, layout, order, row_blocks, columns, chunks)
                        if uppers.is_exact:
                            best = start if stop == start or candidates[start].fine == fine else start + 1
                            if best == stop:
                                stop += 1
                            elif not _is_beaten(new, candidates[best], sides.lower):
                                candidates[best] = new
                        else:
                            stop = add_candidate(candidates, start, stop, stop, least, greatest)
            if before <= least:
                break
            row_blocks = next_count(row_blocks, block.rows)
        columns = next_count(columns, block.columns)
    return stop, uppers


@compiled
def _lowered(uppers: Uppers, new: CandidateRecord, upper_s: float) -> Uppers:
    """Return the least upper bounds after one more candidate."""
    of_coarse = uppers.of_coarse if new.fine > 0.0 else min(uppers.of_coarse, upper_s)
    return Uppers(min(uppers.of_any, upper_s), of_coarse, uppers.is_exact)


def plain_ms(ops: Any) -> float:
    """Return the estimated time of a search as plain Python (ms)."""
    operation = ops["dpu_operation"]
    products = (ops["unit"] == _DPU) & ((operation == _MATMUL) | (operation == _CONVOLUTION))
    return _PRODUCT_MS * float(np.count_nonzero(products)) + _OTHER_MS * len(ops)


@compiled
def grid_stream_cycles(arch: ArchRecord, op: OpRecord) -> float:
    """Cycles of one tile for depthwise convolution, pooling or an elementwise operator split by rows."""
    if op.dpu_operation == _ELTWISE:
        pixels = np.ceil(op.out_w * op.out_h / arch.tiles)
        return float(eltwise_cycles(arch, tile_workload(op, pixels, 1.0, op.out_c, False)))
    work = tile_workload(op, op.out_w, np.ceil(op.out_h / arch.tiles), op.out_c, False)
    if op.dpu_operation == _DEPTHWISE and has_array(arch):
        return array_tile(arch, op, work.out_h, op.out_c)[0]
    if op.dpu_operation == _MAXPOOL:
        best = np.inf
        for mode in range(3):
            best = min(best, maxpool_cycles(arch, work, mode))
        return float(best)
    return float(depthwise_cycles(arch, work))


@compiled
def search_stream(
    arch: ArchRecord,
    op: OpRecord,
    rate_bounds: Floats,
    candidates: Any,
    start: int,
    on_grid: bool,
    on_dsp: bool,
) -> int:
    """Add the one candidate that streams elements through the MAC grid, the DSPs, or DMA alone.

    Pieces are double-buffered; the first piece in and the last out are a `stream_pieces`-th of the traffic
    and hidden by nothing. Arguments and result as of `npusim.cost.search.search_product`; the time of
    DSPs is added by the rates.
    """
    read = op.a_dram_bytes + op.b_dram_bytes + op.extra_dram_bytes
    first, last = read / arch.stream_pieces, op.c_dram_bytes / arch.stream_pieces
    new = candidates[start]
    new.held_bytes = new.needed_bytes = live_tile_bytes(arch, op)
    if first + last > 0.0:  # what streams needs some room
        new.needed_bytes = np.nextafter(new.held_bytes, np.inf)
    if new.needed_bytes > greatest_sram_bytes(rate_bounds):
        return start
    new.grid_cycles = op.batch * grid_stream_cycles(arch, op) if on_grid else 0.0
    new.read_bytes = read
    new.read_gaps = 0.0
    new.written_bytes = op.c_dram_bytes
    # What neither comes from DRAM nor goes there is copied within SRAM.
    new.copied_bytes = 0.0 if on_grid or on_dsp else max(0.0, op.copy_bytes - max(read, op.c_dram_bytes))
    new.prologue_bytes = 0.0 if op.a_prefetch else first
    new.epilogue_bytes = last
    new.streamed_bytes, new.fine = read / arch.tiles, 0.0
    new.page_walks = 1.0 if new.prologue_bytes > arch.dma_page_bytes else 0.0
    new.fed_bytes = fed_bytes(arch, op, 0) if on_grid else 0.0
    new.sram_peak_bytes = live_bytes(arch, op) + 2.0 * (first + last)
    new.split, new.order, new.mode, new.tiles = _ROWS, 0.0, 0.0, arch.tiles
    new.row_pieces, new.strips = arch.stream_pieces, 1.0
    new.row_blocks, new.column_blocks, new.channel_chunks = arch.stream_pieces, 1.0, 1.0
    return start + 1


@compiled
def busiest_share(row_blocks: float, tiles: float) -> float:
    """Share of the work that the busiest tile has when the triangle's blocks are dealt out one by one."""
    blocks = row_blocks * (row_blocks + 1.0) / 2.0
    return float(np.ceil(blocks / tiles) / blocks)


@compiled
def search_triangle(
    arch: ArchRecord, op: OpRecord, rate_bounds: Floats, candidates: Any, start: int, known: KnownTiles
) -> int:
    """Find every candidate that can be the fastest: fetching blocks of the triangle twice, and once.

    Arguments and result as of `npusim.cost.search.search_product`.
    """
    # Twice: the DRAM bytes of the row are those of the dense matrix.
    stop = search_product(arch, op, rate_bounds, candidates, start, known)
    for mode in range(modes_of(arch)):
        for split in range(3):
            most, _, channels = tile_share(arch, op, split)
            # Tiles that share the triangle add up each other's partial sums, so fewer tiles may be quicker.
            used = 1.0 if split == _ROWS else most
            while used <= most:
                stop = _fetch_once(
                    arch, op, rate_bounds, candidates, start, stop, split, mode, used, channels
                )
                used += 1.0
    return stop


@compiled
def _fetch_once(
    arch: ArchRecord,
    op: OpRecord,
    rate_bounds: Floats,
    candidates: Any,
    start: int,
    stop: int,
    split: int,
    mode: int,
    used: float,
    channels: float,
) -> int:
    """Try one split, mode and number of tiles."""
    if stop < 0 or stop + 1 >= candidates.shape[0]:
        return -1
    across, down, _ = mode_shape(arch, mode)
    pixels = min(op.out_w, across * arch.dpu_pixel_lanes_w * down * arch.dpu_pixel_lanes_h)
    block_bytes = 2.0 * pixels * pixels * op.a_item
    b_bytes = 0.0 if op.b_resident else op.in_c * channels * op.b_item
    sums = op.out_w * channels * arch.dpu_sum_bytes
    out_bytes = 0.0 if op.c_resident else 2.0 * pixels * channels * op.c_item
    working = b_bytes + sums + block_bytes + out_bytes
    needed = live_tile_bytes(arch, op) + working
    if needed > greatest_sram_bytes(rate_bounds):
        return stop
    first = 0.5 * block_bytes if op.a_triangle_bytes > 0.0 and not op.a_prefetch else 0.0
    if op.b_dram_bytes > 0.0 and not op.b_prefetch:
        first += pixels * channels * op.b_item
    blocks = np.ceil(op.out_w / pixels)
    new = candidates[stop]
    new.grid_cycles = _grid_cycles(arch, op, pixels, channels, mode, used if split == _ROWS else 1.0)
    new.read_bytes = op.a_triangle_bytes + op.b_dram_bytes + op.extra_dram_bytes
    new.read_gaps = 0.0
    new.written_bytes = op.c_dram_bytes
    new.copied_bytes = (used - 1.0) * sums if split == _ROWS else 0.0
    new.prologue_bytes, new.epilogue_bytes = first, 0.5 * out_bytes
    new.streamed_bytes, new.held_bytes = (
        op.a_triangle_bytes / used,
        live_tile_bytes(arch, op) + b_bytes + sums,
    )
    new.needed_bytes, new.fine = needed, 0.0
    new.page_walks = 1.0 if first > arch.dma_page_bytes else 0.0
    new.fed_bytes = fed_bytes(arch, op, mode)
    new.sram_peak_bytes = used * working + live_bytes(arch, op)
    new.split, new.order, new.mode, new.tiles = split, _OUTPUTS_HELD, mode, used
    new.row_pieces, new.strips = blocks, 1.0
    new.row_blocks, new.column_blocks, new.channel_chunks = blocks, 1.0, blocks
    return add_candidate(
        candidates, start, stop, stop, least_sram_bytes(rate_bounds), greatest_sram_bytes(rate_bounds)
    )


@compiled
def _grid_cycles(
    arch: ArchRecord, op: OpRecord, pixels: float, channels: float, mode: int, sharing: float
) -> float:
    """Cycles of the MAC grid on the busiest of `sharing` tiles that share the blocks of the triangle."""
    row_blocks = np.ceil(op.out_w / pixels)
    share = busiest_share(row_blocks, sharing)
    rows = np.ceil(op.out_w * share)
    if has_array(arch):
        cycles = array_tile(arch, op, rows, channels)[0]
    else:
        cycles = matmul_mode_cycles(arch, tile_workload(op, rows, 1.0, channels, False), mode)
    # Half of the products read their block as it stands, half transposed.
    turned = 0.5 + 0.5 / arch.symg_transposed_rate
    # Each block adds to the sums of its columns' rows: read and written once per block.
    update = 0.5 * row_blocks * op.out_w * share * channels * 2.0 * arch.dpu_sum_bytes / sum_rate(arch)
    starts = (np.ceil(row_blocks * row_blocks * share) - 1.0) * block_start_cycles(arch)
    return float(op.batch * (cycles * turned + update + starts))


@compiled
def _search_operator(
    arch: ArchRecord, op: OpRecord, rate_bounds: Floats, candidates: Any, start: int, known: KnownTiles
) -> int:
    if op.unit == _DPU and (op.dpu_operation == _MATMUL or op.dpu_operation == _CONVOLUTION):
        if op.triangle:
            return search_triangle(arch, op, rate_bounds, candidates, start, known)
        return search_product(arch, op, rate_bounds, candidates, start, known)
    if start + 1 >= candidates.shape[0]:
        return -1
    return search_stream(arch, op, rate_bounds, candidates, start, op.unit == _DPU, op.unit == _DSP)


@compiled_making_arrays
def search_rows(archs: Archs, rows: Any, rate_bounds: Floats, row_starts: Ints) -> Any:
    """Find the candidates of every row of an operator table.

    Parameters
    ----------
    archs : Archs
        Its first point is looked at.
    rows : array of OP_DTYPE, shape (rows,)
        The distinct operators under all plans.
    rate_bounds : array of float64, shape (array devices, RATES, 2)
        See `npusim.cost.search.search_product`.
    row_starts : array of int64, shape (rows + 1,)
        Written: the candidates of row `r` are `candidates[row_starts[r] : row_starts[r + 1]]`. Views and
        operators on a host have none.

    Returns
    -------
    candidates : array of CANDIDATE_DTYPE
    """
    places, known = _INITIAL_CANDIDATES, no_known_tiles(archs.arrays[0])
    for d in range(archs.arrays.shape[1]):
        if is_of_one_point(archs.arrays[0, d], rate_bounds[d]):
            places = _MOST_OF_ONE_POINT * (rows.shape[0] + 1)
    candidates = np.zeros(places, CANDIDATE_DTYPE)
    # Of a type of its own: a literal would have everything compiled for it as well.
    index: Any = np.int64(0)
    for r in range(rows.shape[0]):
        op = rows[r]
        row_starts[r] = index
        if op.unit == _VIEW or op.unit == _HOST:
            continue
        arch, own_rates = archs.arrays[0, op.device], rate_bounds[op.device]
        stop = _search_operator(arch, op, own_rates, candidates, index, known)
        while stop < 0:  # the table was too short
            longer = np.zeros(2 * candidates.shape[0], CANDIDATE_DTYPE)
            for i in range(index):
                longer[i] = candidates[i]
            candidates = longer
            stop = _search_operator(arch, op, own_rates, candidates, index, known)
        sort_candidates(candidates, index, stop)
        index = stop
    row_starts[rows.shape[0]] = index
    return candidates
