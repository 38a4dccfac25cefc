"""Mapping candidates of an operator that no other dominates, whatever clocks and bandwidths will be.

A candidate is dominated when another needs no more of anything that takes time or energy: cycles of the grid,
bytes and gaps of the DMA, prologue and epilogue, refills, bytes through SRAM. What remains is evaluated for
each design point (`npusim.cost.candidate_latency`); the fastest of these is the fastest of all, because
latency rises with each of these amounts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.jit import compiled

__all__ = ["CANDIDATE_DTYPE", "add_candidate", "reads_dram", "sort_candidates"]

CANDIDATE_DTYPE = np.dtype(
    [
        # What takes time or energy
        ("grid_cycles", "f8"),  # cycles of the busiest tile's MAC grid
        ("read_bytes", "f8"),
        ("read_gaps", "f8"),  # gaps between rows of what is read, all engines together
        ("written_bytes", "f8"),
        ("copied_bytes", "f8"),  # between the tiles' SRAM
        ("prologue_bytes", "f8"),  # the pieces at the edges, which nothing hides
        ("epilogue_bytes", "f8"),
        ("refills", "f8"),  # times that what is read fills the room that SRAM has for it
        ("page_walks", "f8"),  # 1 where the first piece waits for address translation
        ("grid_traffic_bytes", "f8"),  # what the MAC grid reads and writes in SRAM
        ("dram_bytes", "f8"),
        ("sram_peak_bytes", "f8"),  # largest working set of all tiles, tensors that live across it included
        # The tiling
        ("split", "f8"),
        ("order", "f8"),
        ("mode", "f8"),
        ("tiles", "f8"),
        ("row_blocks", "f8"),
        ("column_blocks", "f8"),
        ("channel_chunks", "f8"),
    ]
)
"""A mapping of one operator, by what it needs."""


@compiled
def _dominates(a: Any, b: Any) -> bool:
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
def _precedes(a: Any, b: Any) -> bool:
    """Order of candidates: of equally fast ones the one that moves least is taken, which is the first."""
    if a.dram_bytes != b.dram_bytes:
        return bool(a.dram_bytes < b.dram_bytes)
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
def reads_dram(op: Any) -> bool:
    """Whether an operator reads from DRAM."""
    return bool(op.a_dram_bytes + op.b_dram_bytes + op.extra_dram_bytes > 0.0)
