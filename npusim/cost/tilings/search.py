"""Tiling search: the mapping candidates of each operator that can be the fastest.

They depend on sizes, capacities and cycles, not on clocks and bandwidths: a sweep searches once for all
design points with equal sizes. Products and convolutions have candidates by split, MPE mode, piece, order and
tiling; each that can be the fastest at some rates is kept (`npusim.cost.tilings.candidates`). At a single
point its rates decide, and the search ends early. Operators without a reduction over channels have one
candidate: elements stream in, are processed, and results stream out.

SymG: a product whose left operand is symmetric and stored as its lower triangle. Block (i, j) serves output
rows i as it stands and output rows j transposed. A transposed block is read at `symg_transposed_rate` of the
normal pace, so half of the work is slower. The better of two ways is chosen. *Once*: each block is fetched
once and both uses follow each other, so the partial sums of all output rows stay in SRAM with all of the
right operand. *Twice*: each off-diagonal block is fetched for each use, which moves the bytes of dense
storage; only memory is saved. No way has the DMA engines transpose blocks as they fetch them. Once never
moves more than any candidate that fetches a dense matrix. Cutting the columns into passes whose partial sums
fit would be a third way, but two passes over a triangle move more than one over the dense matrix.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.compiling.kernels import compiled, compiled_making_arrays
from npusim.compiling.records import Floats, Ints
from npusim.cost.lowering import tables
from npusim.cost.lowering.tables import DPU, DSP, HOST, MATMUL, OUTPUTS_HELD, ROWS, VIEW, OpRecord
from npusim.cost.machine.architecture import ArchRecord, Archs
from npusim.cost.tilings import tiling
from npusim.cost.tilings.candidates import KEYS, add_candidate, end_or_full, sort_candidates
from npusim.cost.tilings.products import SRAM_RANGES, Task, is_of_one_point, search_product, start_limits
from npusim.cost.tilings.tiling import tile_share
from npusim.cost.units import grid
from npusim.cost.units.arrays import mapper
from npusim.cost.units.arrays.mapper import KnownTiles, has_array, modes_of
from npusim.cost.units.grid import mode_shape
from npusim.cost.units.levels import fill_again, has_levels
from npusim.cost.units.rates import LOWER, UPPER, point_rates
from npusim.cost.units.resources import CANDIDATE_DTYPE, CANDIDATE_SIZE, fed_bytes

_INITIAL_CANDIDATES, _MOST_OF_ONE_POINT = 4096, 8
"""Places of a new table; most candidates of an operator after a search for one point."""
_MATMUL_MS, _CONVOLUTION_MS, _CHANNEL_MS, _OTHER_MS = 3.0, 20.0, 0.003, 0.2
"""Time of the search for a product, for a convolution, for each of their input and output channels (long
products have more tilings), and for another operator, as plain Python."""
_LONGER_BY_ENERGY = 20.0
"""How many times as long a search takes that compares no latencies."""


class GroupSearch(NamedTuple):
    """Results of a search for all points of a group."""

    candidates: Any
    """Array of CANDIDATE_DTYPE."""
    row_starts: Ints
    """Candidates of row `r` are `candidates[row_starts[r] : row_starts[r + 1]]`."""
    served: Any
    """Bytes of each row that memory levels serve, array of SERVED_DTYPE."""
    demands: Floats
    """Demands on each array device under any plan, shape (array devices, COUNT)."""
    macs: float
    """Multiply-accumulates of all devices, zeros counted."""


@compiled
def fits(op: OpRecord, row_starts: Ints, row: int) -> bool:
    """Whether an operator has a candidate, or needs none."""
    return bool(op.unit == VIEW or op.unit == HOST or row_starts[row] < row_starts[row + 1])


def plain_ms(ops: Any, arrays: Any) -> float:
    """Return the estimated time of a search on array devices as plain Python (ms)."""
    on_grid, operation = ops["unit"] == DPU, ops["dpu_operation"]
    matmuls, convolutions = on_grid & (operation == MATMUL), on_grid & (operation == tables.CONVOLUTION)
    channels = float(np.sum((ops["in_c"] + ops["out_c"])[matmuls | convolutions]))
    search_ms = _MATMUL_MS * np.count_nonzero(matmuls) + _CONVOLUTION_MS * np.count_nonzero(convolutions)
    search_ms += _CHANNEL_MS * channels + _OTHER_MS * len(ops)
    return search_ms * (_LONGER_BY_ENERGY if np.any(arrays["objective"] > 0.0) else 1.0)


@compiled
def grid_stream_cycles(arch: ArchRecord, op: OpRecord) -> float:
    """Return the cycles of a tile for channelwise work split by rows: depthwise, pooling, elementwise."""
    if op.dpu_operation == tables.ELTWISE:
        pixels = np.ceil(op.out_w * op.out_h / arch.tiles)
        return float(grid.eltwise_cycles(arch, grid.tile_workload(op, pixels, 1.0, op.out_c, False)))
    work = grid.tile_workload(op, op.out_w, np.ceil(op.out_h / arch.tiles), op.out_c, False)
    if op.dpu_operation == tables.DEPTHWISE and has_array(arch):
        return mapper.array_tile(arch, op, work.out_h, op.out_c)[0]
    if op.dpu_operation == tables.MAXPOOL:
        best = np.inf
        for mode in range(3):
            best = min(best, grid.maxpool_cycles(arch, work, mode))
        return float(best)
    return float(grid.depthwise_cycles(arch, work))


@compiled
def search_stream(task: Task) -> int:
    """Add the one candidate that streams elements through the MAC grid, the DSPs, or DMA alone.

    Pieces are double-buffered; the first piece in and the last out are a `stream_pieces`-th of the traffic,
    or a band, and overlap with nothing. The rates add the time of DSPs. Return as `search_product`.
    """
    arch, op, on_grid = task.arch, task.op, task.op.unit == DPU
    read = op.a_dram_bytes + op.b_dram_bytes + op.extra_dram_bytes
    pieces = max(arch.stream_pieces, op.bands)
    first, last = read / pieces, op.c_dram_bytes / pieces
    new = task.candidates[task.start]
    new.held_bytes = new.needed_bytes = tiling.live_tile_bytes(arch, op)
    if first + last > 0.0:  # a stream needs some SRAM
        new.needed_bytes = np.nextafter(new.held_bytes, np.inf)
    if new.needed_bytes > task.lower.tile_sram_bytes:
        return task.start
    new.grid_cycles = op.batch * grid_stream_cycles(arch, op) if on_grid else 0.0
    new.read_bytes, new.read_gaps, new.written_bytes = read, 0.0, op.c_dram_bytes
    # Bytes that neither come from DRAM nor go there are copied within SRAM.
    copied_bytes = max(0.0, op.copy_bytes - max(read, op.c_dram_bytes))
    new.copied_bytes = 0.0 if on_grid or op.unit == DSP else copied_bytes
    new.prologue_bytes, new.epilogue_bytes = 0.0 if op.a_prefetch else first, last
    new.streamed_bytes, new.known_bytes, new.fine = read / arch.tiles, 0.0, 0.0
    new.page_walks = 1.0 if new.prologue_bytes > arch.dma_page_bytes else 0.0
    new.restarts, new.buffers, new.parts, new.most_bytes = 0.0, 2.0, 0.0, np.inf
    new.fed_bytes = fed_bytes(arch, op, 0) if on_grid else 0.0
    new.sram_peak_bytes = tiling.live_bytes(arch, op) + 2.0 * (first + last)
    new.split, new.order, new.mode, new.tiles = ROWS, 0.0, 0.0, arch.tiles
    new.row_pieces, new.strips = arch.stream_pieces, 1.0
    new.row_blocks, new.column_blocks, new.channel_chunks = arch.stream_pieces, 1.0, 1.0
    new.piece_level = 0.0
    return end_or_full(task.candidates, task.start + 1)


@compiled
def search_triangle(task: Task) -> int:
    """Find each candidate that can be the fastest: fetching blocks of the triangle twice, and once.

    Return as `search_product`.
    """
    # Twice: the DRAM bytes of the row are those of the dense matrix.
    arch, stop = task.arch, search_product(task)
    for mode in range(modes_of(arch)):
        for split in range(3):
            most, _, channels = tile_share(arch, task.op, split)
            # Tiles that share the triangle add up their partial sums, so fewer tiles may be faster.
            used = 1.0 if split == ROWS else most
            while used <= most:
                stop = fetch_once(task, stop, split, mode, used, channels)
                used += 1.0
    return stop


@compiled
def fetch_once(task: Task, stop: int, split: int, mode: int, used: float, channels: float) -> int:
    """Try to fetch a triangle once in one split, mode and number of tiles; return as `search_product`."""
    arch, op = task.arch, task.op
    if stop < 0:
        return -1
    across, down, _ = mode_shape(arch, mode)
    pixels = min(op.out_w, across * arch.dpu_pixel_lanes_w * down * arch.dpu_pixel_lanes_h)
    block_bytes = 2.0 * pixels * pixels * op.a_item
    b_bytes = 0.0 if op.b_resident else op.in_c * channels * op.b_item
    sums = op.out_w * channels * arch.dpu_sum_bytes
    out_bytes = 0.0 if op.c_resident else 2.0 * pixels * channels * op.c_item
    working = b_bytes + sums + block_bytes + out_bytes
    needed = tiling.live_tile_bytes(arch, op) + working
    if needed > task.lower.tile_sram_bytes:
        return stop
    first = 0.5 * block_bytes if op.a_triangle_bytes > 0.0 and not op.a_prefetch else 0.0
    if op.b_dram_bytes > 0.0 and not op.b_prefetch:
        first += pixels * channels * op.b_item
    blocks = np.ceil(op.out_w / pixels)
    new = task.candidates[stop]
    new.grid_cycles = _triangle_cycles(arch, op, pixels, channels, mode, used if split == ROWS else 1.0)
    new.read_bytes = op.a_triangle_bytes + op.b_dram_bytes + op.extra_dram_bytes
    new.read_gaps, new.written_bytes = 0.0, op.c_dram_bytes
    new.copied_bytes = (used - 1.0) * sums if split == ROWS else 0.0
    new.prologue_bytes, new.epilogue_bytes = first, 0.5 * out_bytes
    new.streamed_bytes = op.a_triangle_bytes / used
    new.held_bytes = tiling.live_tile_bytes(arch, op) + b_bytes + sums
    new.needed_bytes, new.known_bytes, new.fine = needed, 0.0, 0.0
    new.page_walks = 1.0 if first > arch.dma_page_bytes else 0.0
    new.restarts, new.buffers, new.parts, new.most_bytes = 0.0, 2.0, 0.0, np.inf
    new.fed_bytes = fed_bytes(arch, op, mode)
    new.sram_peak_bytes = used * working + tiling.live_bytes(arch, op)
    new.split, new.order, new.mode, new.tiles = split, OUTPUTS_HELD, mode, used
    new.row_pieces, new.strips = blocks, 1.0
    new.row_blocks, new.column_blocks, new.channel_chunks = blocks, 1.0, blocks
    new.piece_level = tiling.TRIANGLE_ONCE
    if has_levels(arch):
        fill_again(arch, op, new, task.candidates.view(np.float64), stop * CANDIDATE_SIZE)
    least, greatest = task.upper.tile_sram_bytes, task.lower.tile_sram_bytes
    is_by_latency = arch.objective == 0.0
    return add_candidate(task.candidates, task.keys, task.start, stop, least, greatest, is_by_latency)


@compiled
def _triangle_cycles(
    arch: ArchRecord, op: OpRecord, pixels: float, channels: float, mode: int, sharing: float
) -> float:
    """Cycles of the MAC grid on the busiest of `sharing` tiles that share the blocks of the triangle."""
    row_blocks = np.ceil(op.out_w / pixels)
    blocks = row_blocks * (row_blocks + 1.0) / 2.0
    share = np.ceil(blocks / sharing) / blocks  # tiles get the blocks in turn
    rows = np.ceil(op.out_w * share)
    if has_array(arch):
        cycles = mapper.array_tile(arch, op, rows, channels)[0]
    else:
        cycles = grid.matmul_mode_cycles(arch, grid.tile_workload(op, rows, 1.0, channels, False), mode)
    # Each block adds to the sums of its columns' rows: read and written once per block.
    update = 0.5 * row_blocks * op.out_w * share * channels * 2.0 * arch.dpu_sum_bytes / tiling.sum_rate(arch)
    starts = (np.ceil(row_blocks * row_blocks * share) - 1.0) * mapper.block_start_cycles(arch)
    return float(op.batch * (cycles * tiling.transposing_factor(arch, op) + update + starts))


@compiled
def search_operator(
    arch: ArchRecord,
    op: OpRecord,
    rate_bounds: Floats,
    candidates: Any,
    start: int,
    keys: Floats,
    known: KnownTiles,
    limits: Floats,
) -> int:
    """Write the candidates of an operator from `start`; return their end, -1 where the table is too short."""
    lower, upper = point_rates(rate_bounds, LOWER), point_rates(rate_bounds, UPPER)
    is_exact = is_of_one_point(arch, rate_bounds)
    ranges = start_limits(upper.tile_sram_bytes, lower.tile_sram_bytes, limits)
    task = Task(arch, op, lower, upper, candidates, start, is_exact, keys, known, ranges, limits)
    if op.unit == DPU and (op.dpu_operation == MATMUL or op.dpu_operation == tables.CONVOLUTION):
        return search_triangle(task) if op.triangle else search_product(task)
    return search_stream(task)


@compiled_making_arrays
def search_rows(archs: Archs, rows: Any, rate_bounds: Floats, row_starts: Ints) -> Any:
    """Return the candidates of each row of an operator table at the first point of `archs`.

    Parameters
    ----------
    rows : array of OP_DTYPE, shape (rows,)
        The distinct operators under all plans.
    rate_bounds : array of float64, shape (array devices, RATES, 2)
        Bounds of each rate and of SRAM over the points (`npusim.cost.units.rates.widen_rate_bounds`).
    row_starts : array of int64, shape (rows + 1,)
        Written: the candidates of row `r` are `candidates[row_starts[r] : row_starts[r + 1]]`. Views and
        operators on a host have none.

    Returns
    -------
    candidates : array of CANDIDATE_DTYPE
    """
    places, known = _INITIAL_CANDIDATES, mapper.no_known_tiles(archs.arrays)
    for d in range(archs.arrays.shape[0]):
        if is_of_one_point(archs.arrays[d], rate_bounds[d]):
            places = _MOST_OF_ONE_POINT * (rows.shape[0] + 1)
    candidates, limits = np.zeros(places, CANDIDATE_DTYPE), np.empty((3, SRAM_RANGES + 1))
    keys = np.empty((places, KEYS))
    index: Any = np.int64(0)  # a literal would make a second specialisation
    for r in range(rows.shape[0]):
        op = rows[r]
        row_starts[r] = index
        if op.unit == VIEW or op.unit == HOST:
            continue
        arch, own_rates = archs.arrays[op.device], rate_bounds[op.device]
        stop = search_operator(arch, op, own_rates, candidates, index, keys, known, limits)
        while stop < 0:  # the table was too short
            longer = np.zeros(2 * candidates.shape[0], CANDIDATE_DTYPE)
            for i in range(index):
                longer[i] = candidates[i]
            candidates, keys = longer, np.empty((longer.shape[0], KEYS))
            stop = search_operator(arch, op, own_rates, candidates, index, keys, known, limits)
        sort_candidates(candidates, index, stop)
        index = stop
    row_starts[rows.shape[0]] = index
    return candidates
