"""Ways to do an operator that no other way beats, whatever clocks and bandwidths will be: a shortlist
before prices are known.

Choosing a caterer, one can strike off whoever needs more cooks, more deliveries and a longer setting-up
than another before asking for a single price. A way is struck off when another needs no more of anything
that will be priced: cycles of the grid, bytes and gaps of the DMA, first and last piece, refills, bytes
through SRAM. What remains is priced for each design point (`npusim.cost.pricing`), and the cheapest of the
shortlist is the cheapest of all, because every price rises with each of these amounts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.jit import kernel

__all__ = ["CANDIDATE_DTYPE", "add_candidate", "sort_candidates"]

CANDIDATE_DTYPE = np.dtype(
    [
        # What will be priced
        ("grid_cycles", "f8"),  # cycles of the busiest tile's MAC grid
        ("read_bytes", "f8"),
        ("read_gaps", "f8"),  # gaps between rows of what is read, all engines together
        ("written_bytes", "f8"),
        ("copied_bytes", "f8"),  # between the tiles' SRAM
        ("first_bytes", "f8"),  # the pieces at the edges, which nothing hides
        ("last_bytes", "f8"),
        ("refills", "f8"),  # times that what is read fills the room that SRAM has for it
        ("walks", "f8"),  # 1 where the first piece waits for address translation
        ("grid_sram_bytes", "f8"),  # what the MAC grid reads and writes in SRAM
        ("dram_bytes", "f8"),
        ("sram_bytes", "f8"),  # largest working set of all tiles, tensors that live across it included
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
"""One way to do an operator, by what it needs."""


@kernel
def _needs_no_more(a: Any, b: Any) -> bool:
    """Whether `a` needs at most what `b` needs of everything that is priced."""
    return bool(
        a.grid_cycles <= b.grid_cycles
        and a.read_bytes <= b.read_bytes
        and a.first_bytes <= b.first_bytes
        and a.read_gaps <= b.read_gaps
        and a.last_bytes <= b.last_bytes
        and a.refills <= b.refills
        and a.copied_bytes <= b.copied_bytes
        and a.grid_sram_bytes <= b.grid_sram_bytes
    )


@kernel
def add_candidate(found: Any, start: int, stop: int, new: int) -> int:
    """Put a candidate on the shortlist of one operator, unless it is beaten; strike off what it beats.

    Parameters
    ----------
    found : array of CANDIDATE_DTYPE, shape (places,)
    start, stop : int
        The shortlist is `found[start:stop]`.
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
        if _needs_no_more(found[i], found[new]):
            same = _needs_no_more(found[new], found[i])
            if not same or found[i].sram_bytes <= found[new].sram_bytes:
                return stop
    kept = start
    for i in range(start, stop):
        if not _needs_no_more(found[new], found[i]):
            if kept != i:
                found[kept] = found[i]
            kept += 1
    found[kept] = found[new]
    return kept + 1


@kernel
def _comes_first(a: Any, b: Any) -> bool:
    """Order of a shortlist: of equally fast ways the one that moves least is taken, which is the first."""
    if a.dram_bytes != b.dram_bytes:
        return bool(a.dram_bytes < b.dram_bytes)
    return bool(a.grid_sram_bytes < b.grid_sram_bytes)


@kernel
def sort_candidates(found: Any, start: int, stop: int) -> None:
    """Sort a shortlist so that the first of equally fast candidates is the one to take; `found[stop]` is
    scratch.
    """
    for i in range(start + 1, stop):
        found[stop] = found[i]
        place = i
        while place > start and _comes_first(found[stop], found[place - 1]):
            found[place] = found[place - 1]
            place -= 1
        found[place] = found[stop]
