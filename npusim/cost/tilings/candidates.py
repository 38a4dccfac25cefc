"""Mapping candidates of an operator that no other dominates at any clock and bandwidth.

A candidate is dominated where another that precedes it needs no more of each resource that takes time, and
no more SRAM to be feasible. The others are evaluated at each design point (`npusim.cost.units.rates`). The
fastest feasible one is optimal, because latency grows with each need. No need depends on the size of SRAM, so
one search serves all sizes of a range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.compiling.kernels import compiled, compiled_making_arrays
from npusim.compiling.records import Floats
from npusim.cost.lowering.tables import OpRecord
from npusim.cost.units.resources import CANDIDATE_SIZE, CandidateRecord


@compiled
def _rank(a: CandidateRecord) -> tuple[float, ...]:
    """Return the rank among equally fast candidates: pieces, bytes, restarts, start and end, cycles.

    A row-wise fusion adds up starts and ends. More SRAM makes more candidates equally fast; were SRAM traffic
    compared first, one with a longer start would win then, and the fusion would be slower. Candidates with
    different needs never tie, so it does not matter which others are compared.
    """
    return (
        a.fine,
        a.read_bytes + a.written_bytes,
        a.restarts,
        a.prologue_bytes + a.epilogue_bytes,
        a.grid_cycles,
        a.fed_bytes,
        a.split,
        a.mode,
        a.read_gaps + a.copied_bytes,
        a.streamed_bytes,
        a.held_bytes,
        a.sram_peak_bytes,
    )


@compiled
def precedes(a: CandidateRecord, b: CandidateRecord) -> bool:
    """Whether `a` comes before `b`; of equally fast candidates the first is chosen."""
    return bool(_rank(a) < _rank(b))


@compiled
def _streams_more(a: CandidateRecord, b: CandidateRecord, sram_tile_bytes: float) -> bool:
    """Whether `a` has more refills than `b` in SRAM that both fit into."""
    room_a, room_b = sram_tile_bytes - a.held_bytes, sram_tile_bytes - b.held_bytes
    return bool(a.streamed_bytes * room_b > b.streamed_bytes * room_a)


@compiled
def _passes_more(a: CandidateRecord, b: CandidateRecord) -> bool:
    """Whether more bytes of `a` than of `b` come from some memory level or from outside it."""
    a_inside = a.level0_read_bytes + a.level1_read_bytes
    b_inside = b.level0_read_bytes + b.level1_read_bytes
    a_bytes, b_bytes = a.read_bytes, b.read_bytes
    return bool(
        (a_bytes - a.level0_read_bytes > b_bytes - b.level0_read_bytes)
        | (a_bytes - a_inside > b_bytes - b_inside)
        | (a_bytes - a_inside - a.level2_read_bytes > b_bytes - b_inside - b.level2_read_bytes)
    )


@compiled
def dominates(
    a: CandidateRecord, b: CandidateRecord, least: float, greatest: float, is_by_latency: bool
) -> bool:
    """Whether `a` needs no more than `b` of each resource that takes time, and fits wherever `b` does.

    The difference of their refills changes sign at most once, so both ends of the range of SRAM sizes
    suffice. `a` must come first, so that it is chosen wherever `b` would be. Unless mappings are chosen by
    latency alone (`is_by_latency`), it may feed the grid no more bytes either.
    """
    # Comparisons without branches, which no processor could predict.
    if not (
        (a.grid_cycles <= b.grid_cycles)
        & (a.prologue_bytes <= b.prologue_bytes)
        & (a.read_bytes <= b.read_bytes)
        & (a.read_gaps <= b.read_gaps)
        & (a.epilogue_bytes <= b.epilogue_bytes)
        & (a.copied_bytes <= b.copied_bytes)
        & (a.page_walks <= b.page_walks)
        & (a.restarts <= b.restarts)
        & (a.fine <= b.fine)
        & (is_by_latency | (a.fed_bytes <= b.fed_bytes))
        & (a.needed_bytes <= max(b.needed_bytes, least))
        & ((a.most_bytes > greatest) | (a.most_bytes >= b.most_bytes))
    ):
        return False
    if _streams_more(a, b, max(b.needed_bytes, least)) or _streams_more(a, b, greatest):
        return False
    if _passes_more(a, b):
        return False
    return not precedes(b, a)


KEYS = 5
"""Needs of a candidate that part most pairs, kept side by side in a table of their own."""


@compiled
def _copy_key(keys: Floats, to: int, source: int) -> None:
    for k in range(KEYS):
        keys[to, k] = keys[source, k]


@compiled
def _write_key(candidates: Any, i: int, keys: Floats) -> None:
    new = candidates[i]
    keys[i, 0], keys[i, 1], keys[i, 2] = new.prologue_bytes, new.epilogue_bytes, new.grid_cycles
    keys[i, 3], keys[i, 4] = new.read_bytes, new.needed_bytes


@compiled
def _swap(candidates: Any, keys: Floats, i: int, j: int) -> None:
    numbers = candidates.view(np.float64)
    for k in range(CANDIDATE_SIZE):
        a, b = i * CANDIDATE_SIZE + k, j * CANDIDATE_SIZE + k
        numbers[a], numbers[b] = numbers[b], numbers[a]
    for k in range(KEYS):
        keys[i, k], keys[j, k] = keys[j, k], keys[i, k]


@compiled
def is_dominated(
    candidates: Any, keys: Floats, start: int, new: int, least: float, greatest: float, is_by_latency: bool
) -> bool:
    """Whether one of `candidates[start:new]` dominates candidate `new`; arguments as of `add_candidate`.

    The dominating one moves halfway to `start`, so that the next search finds it earlier.
    """
    _write_key(candidates, new, keys)
    prologue, epilogue, cycles, read = keys[new, 0], keys[new, 1], keys[new, 2], keys[new, 3]
    needed = max(keys[new, 4], least)
    for i in range(start, new):
        # One branch for all comparisons: rarely all hold, which a processor predicts.
        is_possible = (
            (keys[i, 0] <= prologue)
            & (keys[i, 1] <= epilogue)
            & (keys[i, 2] <= cycles)
            & (keys[i, 3] <= read)
            & (keys[i, 4] <= needed)
        )
        if is_possible and dominates(candidates[i], candidates[new], least, greatest, is_by_latency):
            _swap(candidates, keys, start + (i - start) // 2, i)
            return True
    return False


@compiled
def add_candidate(
    candidates: Any, keys: Floats, start: int, new: int, least: float, greatest: float, is_by_latency: bool
) -> int:
    """Add candidate `new` to `candidates[start:new]` unless dominated; drop those that it dominates.

    `least` and `greatest` bound the SRAM of a tile (bytes); `keys`, of shape (places, KEYS), holds needs of
    the candidates before. Return where the candidates end, -1 where the table is full (`end_or_full`). Of two
    with equal needs, the one that precedes stays.
    """
    if is_dominated(candidates, keys, start, new, least, greatest, is_by_latency):
        return new
    kept, prologue, epilogue, cycles, read = start, keys[new, 0], keys[new, 1], keys[new, 2], keys[new, 3]
    needed = keys[new, 4]
    for i in range(start, new):
        is_possible = (
            (prologue <= keys[i, 0])
            & (epilogue <= keys[i, 1])
            & (cycles <= keys[i, 2])
            & (read <= keys[i, 3])
            & (needed <= max(keys[i, 4], least))
        )
        if not (is_possible and dominates(candidates[new], candidates[i], least, greatest, is_by_latency)):
            if kept != i:
                candidates[kept] = candidates[i]
                _copy_key(keys, kept, i)
            kept += 1
    if kept != new:
        candidates[kept] = candidates[new]
        _copy_key(keys, kept, new)
    return end_or_full(candidates, kept + 1)


@compiled
def end_or_full(candidates: Any, stop: int) -> int:
    """Return where candidates end, or -1 where the table has no place for another one."""
    return stop if stop < candidates.shape[0] else -1


@compiled_making_arrays
def sort_candidates(candidates: Any, start: int, stop: int) -> None:
    """Sort candidates by `precedes` (merge sort of their places)."""
    count = stop - start
    if count < 2:
        return
    order, merged, width = np.arange(start, stop), np.empty(count, np.int64), 1
    while width < count:
        for first in range(0, count, 2 * width):
            i, middle = first, min(first + width, count)
            j, last = middle, min(first + 2 * width, count)
            for place in range(first, last):
                if j >= last or (i < middle and not precedes(candidates[order[j]], candidates[order[i]])):
                    merged[place] = order[i]
                    i += 1
                else:
                    merged[place] = order[j]
                    j += 1
        order, merged, width = merged, order, 2 * width
    if width > 1:
        before = candidates[start:stop].copy()
        for place in range(count):
            candidates[start + place] = before[order[place] - start]


@compiled
def reads_dram(op: OpRecord) -> bool:
    """Whether an operator reads from DRAM."""
    return bool(op.a_dram_bytes + op.b_dram_bytes + op.extra_dram_bytes > 0.0)
