"""Mapping candidates of an operator that no other dominates, whatever clocks and bandwidths will be.

A candidate is dominated when another needs no more of anything that takes time or energy: cycles of the grid,
bytes and gaps of the DMA, prologue and epilogue, refills, bytes through SRAM. What remains is evaluated for
each design point (`npusim.cost.candidate_latency`); the fastest of these is the fastest of all, because
latency rises with each of these amounts.
"""

from __future__ import annotations

from typing import Any

from npusim.cost.jit import compiled
from npusim.cost.records import Bytes, Cycles, Number, dtype_of
from npusim.cost.tables import OpRecord


class CandidateRecord:
    """A mapping of one operator, by what it needs of the units; the last nine columns are the tiling."""

    grid_cycles: Cycles
    """Cycles of the busiest tile's MAC grid."""
    read_bytes: Bytes
    """Read from DRAM."""
    read_gaps: Number
    """Gaps between rows of what is read, all engines together."""
    written_bytes: Bytes
    """Written to DRAM."""
    copied_bytes: Bytes
    """Copied between the tiles' SRAM."""
    prologue_bytes: Bytes
    """The first piece in, which nothing hides."""
    epilogue_bytes: Bytes
    """The last piece out, which nothing hides."""
    refills: Number
    """Times that what is read fills the room that SRAM has for it."""
    page_walks: Number
    """1 where the first piece waits for address translation."""
    grid_traffic_bytes: Bytes
    """Read and written in SRAM by the MAC grid."""
    dram_bytes: Bytes
    """Between DRAM and SRAM."""
    sram_peak_bytes: Bytes
    """Largest working set of all tiles, tensors that live across the operator included."""
    split: Number
    """See `npusim.cost.tables.Split`."""
    order: Number
    """See `npusim.cost.tables.Order`."""
    mode: Number
    """MPE mode."""
    tiles: Number
    """Tiles that have a part in it."""
    row_pieces: Number
    """Pieces along the rows of a tile's share (`npusim.cost.granularity`)."""
    strips: Number
    """Vertical strips of the image."""
    row_blocks: Number
    """Blocks of output rows of a strip."""
    column_blocks: Number
    """Blocks of output channels."""
    channel_chunks: Number
    """Chunks of input channels."""


CANDIDATE_DTYPE = dtype_of(CandidateRecord)


@compiled
def _dominates(a: CandidateRecord, b: CandidateRecord) -> bool:
    """Whether `a` needs at most what `b` needs of everything that takes time or energy."""
    return bool(
        a.grid_cycles <= b.grid_cycles
        and a.read_bytes <= b.read_bytes
        and a.prologue_bytes <= b.prologue_bytes
        and a.read_gaps <= b.read_gaps
        and a.epilogue_bytes <= b.epilogue_bytes
        and a.refills <= b.refills
        and a.copied_bytes <= b.copied_bytes
        and a.grid_traffic_bytes <= b.grid_traffic_bytes
    )


@compiled
def add_candidate(found: Any, start: int, stop: int, new: int) -> int:
    """Add a candidate of one operator unless it is dominated; drop those that it dominates.

    Parameters
    ----------
    found : array of CANDIDATE_DTYPE, shape (places,)
    start, stop : int
        The operator's candidates are `found[start:stop]`.
    new : int
        Place of the new candidate, at least `stop`.

    Returns
    -------
    int
        The new `stop`.

    Notes
    -----
    Of two that need the same of everything, the one with the smaller working set stays.
    """
    for i in range(start, stop):
        if _dominates(found[i], found[new]):
            same = _dominates(found[new], found[i])
            if not same or found[i].sram_peak_bytes <= found[new].sram_peak_bytes:
                return stop
    kept = start
    for i in range(start, stop):
        if not _dominates(found[new], found[i]):
            if kept != i:
                found[kept] = found[i]
            kept += 1
    found[kept] = found[new]
    return kept + 1


@compiled
def _precedes(a: CandidateRecord, b: CandidateRecord) -> bool:
    """Order of candidates, of which the first of equally fast ones is taken.

    It is the one that moves least; then the one with the shortest start and end, which a row-wise fusion adds
    up. More SRAM makes more candidates equally fast: by SRAM traffic alone, one with larger stencils and a
    longer start was taken then, and the fusion was slower.
    """
    if a.dram_bytes != b.dram_bytes:
        return bool(a.dram_bytes < b.dram_bytes)
    first, second = a.prologue_bytes + a.epilogue_bytes, b.prologue_bytes + b.epilogue_bytes
    if first != second:
        return first < second
    return bool(a.grid_traffic_bytes < b.grid_traffic_bytes)


@compiled
def sort_candidates(found: Any, start: int, stop: int) -> None:
    """Sort candidates so that the first of equally fast ones is taken; `found[stop]` is scratch."""
    for i in range(start + 1, stop):
        found[stop] = found[i]
        place = i
        while place > start and _precedes(found[stop], found[place - 1]):
            found[place] = found[place - 1]
            place -= 1
        found[place] = found[stop]


@compiled
def reads_dram(op: OpRecord) -> bool:
    """Whether an operator reads from DRAM."""
    return bool(op.a_dram_bytes + op.b_dram_bytes + op.extra_dram_bytes > 0.0)
