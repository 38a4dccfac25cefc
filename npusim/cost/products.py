"""Matrix products and convolutions: candidates by split, MPE mode, parts, order and tiling.

Which is faster depends on clocks and bandwidths too, so every candidate that can be the best is kept
(`npusim.cost.candidates`). Where there is one point only, its rates tell, and the search ends early.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.arrays.tile import KnownTiles, block_start_cycles, has_array, known_tile, modes_of
from npusim.cost.candidate_latency import TIE, PointRates, lower_bound_s, point_rates, upper_bound_s
from npusim.cost.candidates import CandidateRecord, add_candidate, precedes
from npusim.cost.granularity import (
    CHANNEL_LEVELS,
    ROW_LEVELS,
    more_strips,
    piece_of,
    tile_cycles,
)
from npusim.cost.jit import compiled
from npusim.cost.layouts import (
    Layout,
    block_of,
    contiguous_bytes,
    fed_by_layout,
    fill_needs,
    set_least,
    set_prologue_epilogue,
    set_streamed_held,
    set_tiling,
    sum_rate,
    tile_share,
)
from npusim.cost.rates import LOWER, MACHINE_RATES, UPPER
from npusim.cost.tables import DpuOperation, OpRecord, Order
from npusim.cost.tiling import fewest_row_blocks, needed_bytes, next_count, room_of

_MATMUL = int(DpuOperation.MATMUL)
_WEIGHTS_HELD, _OUTPUTS_HELD = int(Order.WEIGHTS_HELD), int(Order.OUTPUTS_HELD)


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
    arch: ArchRecord, op: OpRecord, rate_bounds: Any, found: Any, start: int, known: KnownTiles
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
    found : array of CANDIDATE_DTYPE, shape (places,)
        Written from `start`.
    known : KnownTiles
        What arrays take for shares so far; added to.

    Returns
    -------
    int
        Where the candidates end: `start` where no tiling fits into SRAM, -1 where `found` is too short.
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
                        stop, uppers = _search(arch, op, layout, sides, found, start, stop, uppers)
        strips = more_strips(arch, op, strips)
    return stop


@compiled
def is_of_one_point(arch: ArchRecord, rate_bounds: Any) -> bool:
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
    """Whether another candidate is taken instead of one of which no amount can be less."""
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
    arch: ArchRecord, op: OpRecord, layout: Layout, sides: Sides, found: Any, start: int, stop: int,
    uppers: Uppers,
) -> tuple[int, Uppers]:  # fmt: skip
    """Try every candidate tiling of one layout (see `npusim.cost.tiling`).

    More chunks never shorten anything but the start, so the search ends where even the shortest start is too
    long.
    """
    if stop < 0 or stop + 1 >= found.shape[0]:
        return -1, uppers
    block, chunks = layout.block, 1.0
    while chunks > 0.0:
        # Partial sums are written and read again once for each further chunk.
        pieces = block.strips * block.rows * block.columns
        spill = (chunks - 1.0) * 2.0 * pieces * block.sum_bytes / sum_rate(arch)
        row_bytes = contiguous_bytes(op, layout.piece, chunks)
        least, fine = found[stop], 1.0 if layout.piece.is_fine else 0.0
        least.fine = fine
        fill_needs(op, least, _WEIGHTS_HELD, block.strips, 1.0, 1.0, layout.cycles + spill, row_bytes)
        set_least(layout, least)
        set_prologue_epilogue(arch, op, least, block, block.chunks)
        if _is_slower(least, sides, uppers):
            return stop, uppers
        if uppers.is_exact and stop > start:  # there is one of each kind at most
            best = start if found[start].fine == fine else start + 1
            if best < stop and _is_beaten(least, found[best], sides.lower):
                return stop, uppers
        set_prologue_epilogue(arch, op, least, block, chunks)
        if not _is_slower(least, sides, uppers):
            stop, uppers = _try_blocks(
                arch, op, layout, chunks, spill, row_bytes, sides, found, start, stop, uppers
            )
            if stop < 0:
                return stop, uppers
        chunks = next_count(chunks, block.chunks)
    return stop, uppers


@compiled
def _try_blocks(
    arch: ArchRecord, op: OpRecord, layout: Layout, chunks: float, spill: float, row_bytes: float,
    sides: Sides, found: Any, start: int, stop: int, uppers: Uppers,
) -> tuple[int, Uppers]:  # fmt: skip
    """Try all column blocks, each with all row blocks that are the fewest at some size of SRAM."""
    block, columns = layout.block, 1.0
    least, greatest = sides.upper.tile_sram_bytes, sides.lower.tile_sram_bytes
    fine = 1.0 if layout.piece.is_fine else 0.0
    while columns > 0.0:
        if uppers.is_exact and stop > start:
            fewest = found[stop]  # starts of so many blocks at least
            starts = (block.strips * columns * chunks - 1.0) * block_start_cycles(arch)
            fewest.fine = fine
            fill_needs(
                op, fewest, _WEIGHTS_HELD, block.strips, 1.0, 1.0, layout.cycles + spill + starts, row_bytes
            )
            set_least(layout, fewest)
            set_prologue_epilogue(arch, op, fewest, block, chunks)
            best = start if found[start].fine == fine else start + 1
            if best < stop and _is_beaten(fewest, found[best], sides.lower):
                break
        room = room_of(block, columns, chunks)
        row_blocks, before = fewest_row_blocks(block, room, greatest), np.inf
        while row_blocks > 0.0:
            needed = needed_bytes(block, room, row_blocks)
            if needed < before:
                if stop + 2 >= found.shape[0]:
                    return -1, uppers
                before = needed
                for held in range(1 if chunks > 1.0 else 2):
                    order = _OUTPUTS_HELD if chunks > 1.0 else held
                    new = found[stop]
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
                            best = start if stop == start or found[start].fine == fine else start + 1
                            if best == stop:
                                stop += 1
                            elif not _is_beaten(new, found[best], sides.lower):
                                found[best] = new
                        else:
                            stop = add_candidate(found, start, stop, stop, least, greatest)
            if before <= least:
                break
            row_blocks = next_count(row_blocks, block.rows)
        columns = next_count(columns, block.columns)
    return stop, uppers


@compiled
def _lowered(uppers: Uppers, new: CandidateRecord, upper_s: float) -> Uppers:
    """Return the least upper bounds, those of another candidate taken into account."""
    of_coarse = uppers.of_coarse if new.fine > 0.0 else min(uppers.of_coarse, upper_s)
    return Uppers(min(uppers.of_any, upper_s), of_coarse, uppers.is_exact)
