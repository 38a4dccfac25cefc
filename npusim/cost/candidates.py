"""Mapping candidates of an operator that no other dominates, whatever clocks and bandwidths will be.

A candidate is dominated when another needs no more of anything that takes time or energy: cycles of the grid,
bytes and gaps of the DMA, prologue and epilogue, what streams past and what is held meanwhile, bytes through
SRAM; and no more SRAM to be possible at all. What remains is evaluated for each design point
(`npusim.cost.latency`); the fastest of these that are possible there is the fastest of all, because
latency rises with each of these amounts. None of them depends on the size of SRAM, so one search serves all
sizes of a range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from npusim.cost.kernels import compiled, compiled_making_arrays
from npusim.cost.records import Bytes, Number, dtype_of
from npusim.cost.resources import BODY, RESOURCES
from npusim.cost.tables import OpRecord


class NeedsRecord:
    """What a mapping needs of the units: a column for each resource of a candidate, in their order."""

    if TYPE_CHECKING:  # the columns of the table of resources

        def __getattr__(self, name: str) -> float: ...
        def __setattr__(self, name: str, value: float) -> None: ...


NeedsRecord.__annotations__ = {
    resource.name: Annotated[float, resource.unit, resource.meaning] for resource in RESOURCES[:BODY]
}


class CandidateRecord(NeedsRecord):
    """A mapping of one operator, by what it needs of the units; the last nine columns are the tiling.

    Bytes that memory levels serve are set after the search (`npusim.cost.levels.serve`).
    """

    prologue_bytes: Bytes
    """The first piece in, which nothing hides."""
    epilogue_bytes: Bytes
    """The last piece out, which nothing hides."""
    streamed_bytes: Bytes
    """Streams through a tile's SRAM; it fills the room that SRAM has for it so many times (`refills`)."""
    held_bytes: Bytes
    """SRAM of a tile that is no room for it: tensors that live across the operator, and what waits."""
    needed_bytes: Bytes
    """SRAM that a tile must have."""
    page_walks: Number
    """1 where the first piece waits for address translation."""
    sram_peak_bytes: Bytes
    """Largest working set of all tiles, tensors that live across it included; no more than there is."""
    fine: Number
    """1 where its pieces are smaller than a stencil: it is taken where it is faster, not where it ties."""
    split: Number
    """See `npusim.cost.tables.Split`."""
    order: Number
    """See `npusim.cost.tables.Order`."""
    mode: Number
    """MPE mode."""
    tiles: Number
    """Tiles that have a part in it."""
    row_pieces: Number
    """Pieces along the rows of a tile's share (`npusim.cost.tiling`)."""
    strips: Number
    """Vertical strips of the image."""
    row_blocks: Number
    """Blocks of output rows of a strip."""
    column_blocks: Number
    """Blocks of output channels."""
    channel_chunks: Number
    """Chunks of input channels."""


CANDIDATE_DTYPE = dtype_of(CandidateRecord)
CANDIDATE_SIZE = CANDIDATE_DTYPE.itemsize // 8
"""Numbers of a candidate; as numbers, its first ones are a vector over resources."""


@compiled
def refills(candidate: CandidateRecord, sram_tile_bytes: float) -> float:
    """Return how often what streams past fills the room that a tile's SRAM has for it."""
    if candidate.streamed_bytes <= 0.0:
        return 0.0
    return float(candidate.streamed_bytes / (sram_tile_bytes - candidate.held_bytes))


@compiled
def precedes(a: CandidateRecord, b: CandidateRecord) -> bool:
    """Whether `a` comes before `b`; of equally fast candidates the first is chosen.

    It is the one that moves least; then the one with the shortest start and end, which a row-wise fusion adds
    up. More SRAM makes more candidates equally fast: by SRAM traffic alone, one with larger stencils and a
    longer start was taken then, and the fusion was slower. No two that need different amounts are equal, so
    it does not matter with which others a candidate was candidates.
    """
    if a.fine != b.fine:
        return bool(a.fine < b.fine)
    first, second = a.read_bytes + a.written_bytes, b.read_bytes + b.written_bytes
    if first != second:
        return bool(first < second)
    first, second = a.prologue_bytes + a.epilogue_bytes, b.prologue_bytes + b.epilogue_bytes
    if first != second:
        return bool(first < second)
    if a.fed_bytes != b.fed_bytes:
        return bool(a.fed_bytes < b.fed_bytes)
    if a.split != b.split:
        return bool(a.split < b.split)
    if a.mode != b.mode:
        return bool(a.mode < b.mode)
    if a.grid_cycles != b.grid_cycles:
        return bool(a.grid_cycles < b.grid_cycles)
    first, second = a.read_gaps + a.copied_bytes, b.read_gaps + b.copied_bytes
    if first != second:
        return bool(first < second)
    if a.streamed_bytes != b.streamed_bytes:
        return bool(a.streamed_bytes < b.streamed_bytes)
    if a.held_bytes != b.held_bytes:
        return bool(a.held_bytes < b.held_bytes)
    return bool(a.sram_peak_bytes < b.sram_peak_bytes)


@compiled
def _streams_more(a: CandidateRecord, b: CandidateRecord, sram_tile_bytes: float) -> bool:
    """Whether `a` has more refills than `b` in so much SRAM, both of which fit into it."""
    room_a, room_b = sram_tile_bytes - a.held_bytes, sram_tile_bytes - b.held_bytes
    return bool(a.streamed_bytes * room_b > b.streamed_bytes * room_a)


@compiled
def _dominates(a: CandidateRecord, b: CandidateRecord, least: float, greatest: float) -> bool:
    """Whether `a` needs at most what `b` needs of everything, and is possible wherever `b` is.

    The difference of their refills changes sign no more than once, so the ends of the range of SRAM sizes
    tell. Where latencies tie, `a` must be the one that is taken.
    """
    # Comparisons without branches, whose outcome no processor foresees.
    if not (
        (a.grid_cycles <= b.grid_cycles)
        & (a.prologue_bytes <= b.prologue_bytes)
        & (a.read_bytes <= b.read_bytes)
        & (a.read_gaps <= b.read_gaps)
        & (a.epilogue_bytes <= b.epilogue_bytes)
        & (a.copied_bytes <= b.copied_bytes)
        & (a.fed_bytes <= b.fed_bytes)
        & (a.fine <= b.fine)
        & (a.needed_bytes <= max(b.needed_bytes, least))
    ):
        return False
    if _streams_more(a, b, max(b.needed_bytes, least)) or _streams_more(a, b, greatest):
        return False
    return not precedes(b, a)


@compiled
def add_candidate(candidates: Any, start: int, stop: int, new: int, least: float, greatest: float) -> int:
    """Add a candidate of one operator unless it is dominated; drop those that it dominates.

    Parameters
    ----------
    candidates : array of CANDIDATE_DTYPE, shape (places,)
    start, stop : int
        The operator's candidates are `candidates[start:stop]`.
    new : int
        Place of the new candidate, at least `stop`.
    least, greatest : float
        SRAM of a tile (bytes) that the search is made for.

    Returns
    -------
    int
        The new `stop`.

    Notes
    -----
    Of two that need the same of everything, the one that precedes stays.
    """
    kept, cycles = start, candidates[new].grid_cycles
    for i in range(start, stop):
        # Where one is dropped, no other dominates the new one: it would have dominated that one before.
        if candidates[i].grid_cycles <= cycles and _dominates(
            candidates[i], candidates[new], least, greatest
        ):
            return stop
        if cycles > candidates[i].grid_cycles or not _dominates(
            candidates[new], candidates[i], least, greatest
        ):
            if kept != i:
                candidates[kept] = candidates[i]
            kept += 1
    candidates[kept] = candidates[new]
    return kept + 1


@compiled_making_arrays
def sort_candidates(candidates: Any, start: int, stop: int) -> None:
    """Sort candidates so that the first of equally fast ones is taken (merge sort of their places)."""
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
