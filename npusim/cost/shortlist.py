"""The candidates of an operator that can be the fastest at some point of a block of design points.

Rates of the points of a block lie between a least and a greatest one each. With these two candidates are
compared for all points at once: the latency of a candidate is the longest of three sums of amounts times
rates (`npusim.cost.candidate_latency`), and one sum is no longer than another at any point where their
difference, each amount at the rate that makes most of it, is not positive. A candidate is left out where
another, possible at all points, has no sum longer than the same sum of this one; sums that are never its
longest do not count. So few of many candidates are left to be evaluated point by point.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.candidate_latency import Amounts, Rates, amounts_latency_s, copies_s, rates_at
from npusim.cost.candidates import CandidateRecord
from npusim.cost.jit import compiled, compiled_making_arrays
from npusim.cost.rates import LOWER, UPPER, Rate

_READ_WAIT, _TILE_SRAM = int(Rate.READ_WAIT), int(Rate.TILE_SRAM)
_GRID, _READ, _WRITTEN, _GAPS, _PROLOGUE, _EPILOGUE, _WALKS, _COPIED, _STREAMED, _HELD, _NEEDED = range(11)
_AMOUNTS = 11
_MARGIN = 1e-9
"""Share of a latency by which another is longer beyond all rounding."""
_FEW, _FEW_POINTS = 2, 8
"""So many candidates, or points, are evaluated faster than compared."""


class Shortlist(NamedTuple):
    """Candidates as columns, so that the processor works on several at once."""

    amounts: Any
    """What takes time or room of each, float64, shape (_AMOUNTS, candidates)."""
    bounds_s: Any
    """Scratch: lower and upper bound of the latency of each, float64, shape (2, candidates)."""
    is_beaten: Any
    """Scratch: whether another is as fast at all points, bool, shape (candidates,)."""
    listed: Any
    """Places of the candidates that are left, those of an operator from where its candidates begin, int64,
    shape (candidates,) ..."""
    counts: Any
    """... and how many of each row, -1 where they are not listed, int64, shape (rows,)."""


@compiled_making_arrays
def shortlist_of(found: Any, rows: int, points: int) -> Shortlist:
    """Return the columns of a table of candidates, not filled in where they serve few points."""
    count = found.shape[0]
    amounts = np.empty((_AMOUNTS, count))
    if points >= _FEW_POINTS:
        for c in range(count):
            _fill_amounts(found[c], amounts, c)
    return Shortlist(
        amounts, np.empty((2, count)), np.empty(count, np.bool_), np.empty(count, np.int64),
        np.full(rows, -1),
    )  # fmt: skip


@compiled
def _fill_amounts(candidate: CandidateRecord, amounts: Any, c: int) -> None:
    amounts[_GRID, c], amounts[_READ, c] = candidate.grid_cycles, candidate.read_bytes
    amounts[_WRITTEN, c], amounts[_GAPS, c] = candidate.written_bytes, candidate.read_gaps
    amounts[_PROLOGUE, c], amounts[_EPILOGUE, c] = candidate.prologue_bytes, candidate.epilogue_bytes
    amounts[_WALKS, c], amounts[_COPIED, c] = candidate.page_walks, candidate.copied_bytes
    # Where nothing streams, the room for it only must not be zero.
    amounts[_STREAMED, c] = max(0.0, candidate.streamed_bytes)
    amounts[_HELD, c] = candidate.held_bytes if candidate.streamed_bytes > 0.0 else -1.0
    amounts[_NEEDED, c] = candidate.needed_bytes


@compiled
def _refills(amounts: Any, c: int, sram_tile_bytes: float) -> float:
    """Refills of a candidate; anything where it does not fit."""
    room = sram_tile_bytes - amounts[_HELD, c]
    return float(amounts[_STREAMED, c] / (room if room > 0.0 else 1.0))


@compiled
def _fill_bounds(shortlist: Shortlist, start: int, stop: int, rate_bounds: Any, side: int) -> None:
    """Write the lower or upper bounds of latencies (s); infinite where SRAM is too small for a candidate."""
    amounts, bounds_s = shortlist.amounts, shortlist.bounds_s[side]
    at: Rates = rates_at(rate_bounds, side)
    sram, wait_s = rate_bounds[_TILE_SRAM, side], rate_bounds[_READ_WAIT, side]
    for c in range(start, stop):
        needs = Amounts(
            amounts[_GRID, c], amounts[_READ, c], amounts[_WRITTEN, c], amounts[_GAPS, c],
            amounts[_PROLOGUE, c], amounts[_EPILOGUE, c], amounts[_WALKS, c],
        )  # fmt: skip
        copying_s = copies_s(amounts[_COPIED, c], rate_bounds, side)
        latency_s = amounts_latency_s(needs, at, 0.0, copying_s, _refills(amounts, c, sram) * wait_s)
        bounds_s[c] = latency_s if amounts[_NEEDED, c] <= sram else np.inf


@compiled
def _most(difference: float, least: float, greatest: float) -> float:
    """Return the most that a difference of amounts makes at rates of a range."""
    return max(difference * least, difference * greatest)


class _Sums(NamedTuple):
    """Which sums of a candidate are its longest at some point, for all that is known."""

    work: bool
    dma: bool
    refills: bool


@compiled
def _longest_sums(amounts: Any, b: int, low: Rates, high: Rates, rate_bounds: Any, margin_s: float) -> _Sums:
    """Return which sums of a candidate count in a block."""
    wait_s = _refills(amounts, b, rate_bounds[_TILE_SRAM, UPPER]) * rate_bounds[_READ_WAIT, UPPER]
    copied = amounts[_COPIED, b]
    grid_s = amounts[_GRID, b] * high.cycle_s
    # The sum of work less that of DMA, and half of the work less half of the DMA.
    exposed = _most(amounts[_PROLOGUE, b] - amounts[_READ, b], low.read_s, high.read_s) + _most(
        amounts[_EPILOGUE, b] - amounts[_WRITTEN, b], low.write_s, high.write_s
    )
    gaps_s = amounts[_GAPS, b] * low.gap_s + copies_s(copied, rate_bounds, LOWER)
    by_dma = grid_s + exposed - gaps_s < -margin_s
    moved_s = amounts[_READ, b] * low.read_s + amounts[_WRITTEN, b] * low.write_s + gaps_s
    by_dma_refills = 0.5 * (grid_s - moved_s) + wait_s < -margin_s
    most_s = amounts[_READ, b] * high.read_s + amounts[_WRITTEN, b] * high.write_s
    most_s += amounts[_GAPS, b] * high.gap_s + copies_s(copied, rate_bounds, UPPER)
    least_work_s = amounts[_GRID, b] * low.cycle_s
    started_s = amounts[_PROLOGUE, b] * low.read_s + amounts[_EPILOGUE, b] * low.write_s
    by_work = most_s - least_work_s - started_s < -margin_s
    by_work_refills = 0.5 * (most_s - least_work_s) + wait_s - started_s < -margin_s
    return _Sums(not by_dma, not by_work, not (by_dma_refills or by_work_refills))


@compiled
def _mark_beaten(shortlist: Shortlist, start: int, stop: int, b: int, rate_bounds: Any) -> None:
    """Mark the candidates that candidate `b` lets be the fastest at no point of a block."""
    amounts, is_beaten, shortest_s = shortlist.amounts, shortlist.is_beaten, shortlist.bounds_s[LOWER]
    low: Rates = rates_at(rate_bounds, LOWER)
    high: Rates = rates_at(rate_bounds, UPPER)
    longest_s = shortlist.bounds_s[UPPER, b]
    margin_s = _MARGIN * longest_s
    longest_s += margin_s
    counted: _Sums = _longest_sums(amounts, b, low, high, rate_bounds, margin_s)
    least, greatest = rate_bounds[_TILE_SRAM, UPPER], rate_bounds[_TILE_SRAM, LOWER]
    low_wait_s, high_wait_s = rate_bounds[_READ_WAIT, LOWER], rate_bounds[_READ_WAIT, UPPER]
    wait_s = _refills(amounts, b, least) * high_wait_s
    copying_s, copied = copies_s(amounts[_COPIED, b], rate_bounds, UPPER), amounts[_COPIED, b]
    grid, read, written, gaps = amounts[_GRID, b], amounts[_READ, b], amounts[_WRITTEN, b], amounts[_GAPS, b]
    prologue, epilogue, walks = amounts[_PROLOGUE, b], amounts[_EPILOGUE, b], amounts[_WALKS, b]
    streamed, held = amounts[_STREAMED, b], amounts[_HELD, b]
    for c in range(start, stop):
        work_s = _most(grid - amounts[_GRID, c], low.cycle_s, high.cycle_s)
        walks_s = _most(walks - amounts[_WALKS, c], low.page_walk_s, high.page_walk_s)
        exposed_s = _most(prologue - amounts[_PROLOGUE, c], low.read_s, high.read_s)
        exposed_s += _most(epilogue - amounts[_EPILOGUE, c], low.write_s, high.write_s)
        dma_s = _most(read - amounts[_READ, c], low.read_s, high.read_s)
        dma_s += _most(written - amounts[_WRITTEN, c], low.write_s, high.write_s)
        dma_s += _most(gaps - amounts[_GAPS, c], low.gap_s, high.gap_s)
        dma_s += copying_s - copies_s(amounts[_COPIED, c], rate_bounds, LOWER)
        refills_s = wait_s - _refills(amounts, c, greatest) * low_wait_s
        # Where no amount is larger, rounding cannot make a sum longer; of equal ones the first is taken.
        is_first = (b < c) & (walks <= amounts[_WALKS, c])
        less_work = is_first & (grid <= amounts[_GRID, c])
        less_exposed = (prologue <= amounts[_PROLOGUE, c]) & (epilogue <= amounts[_EPILOGUE, c])
        less_dma = is_first & (read <= amounts[_READ, c]) & (written <= amounts[_WRITTEN, c])
        less_dma &= (gaps <= amounts[_GAPS, c]) & (copied <= amounts[_COPIED, c])
        fewer_refills = (streamed <= amounts[_STREAMED, c]) & (
            (streamed == 0.0) | (held <= amounts[_HELD, c])
        )
        by_work = (less_work & less_exposed) | (work_s + exposed_s + walks_s < -margin_s)
        by_dma = less_dma | (dma_s + walks_s < -margin_s)
        by_refills = (less_work & less_dma & fewer_refills) | (
            0.5 * (work_s + dma_s) + refills_s + walks_s < -margin_s
        )
        is_slower = (
            (by_work | (not counted.work))
            & (by_dma | (not counted.dma))
            & (by_refills | (not counted.refills))
        )
        is_beaten[c] |= (c != b) & (is_slower | (shortest_s[c] > longest_s))


@compiled
def list_candidates(shortlist: Shortlist, bounds: Any, row: int, rate_bounds: Any, points: int) -> int:
    """List the candidates of one operator that can be the fastest, unless they are; return how many.

    Parameters
    ----------
    bounds : array of int64, shape (rows + 1,)
        The operator's candidates stand from `bounds[row]` to `bounds[row + 1]`, sorted; those that are listed
        are in the same order.
    rate_bounds : array of float64, shape (RATES, 2)
        Least and greatest rates of a block (`npusim.cost.rates.widen_rate_bounds`).
    points : int
        Points of the block; of few all are listed, as where memory levels serve the operator (0).
    """
    listed, bounds_s, is_beaten, count = shortlist.listed, shortlist.bounds_s, shortlist.is_beaten, 0
    if shortlist.counts[row] >= 0:
        return int(shortlist.counts[row])
    start, stop = bounds[row], bounds[row + 1]
    for c in range(start, stop):
        is_beaten[c] = False
    if points >= _FEW_POINTS and stop - start > _FEW:
        _fill_bounds(shortlist, start, stop, rate_bounds, LOWER)
        _fill_bounds(shortlist, start, stop, rate_bounds, UPPER)
        best, quickest = start, start
        for c in range(start, stop):
            if bounds_s[UPPER, c] < bounds_s[UPPER, best]:
                best = c
            if bounds_s[LOWER, c] < bounds_s[LOWER, quickest]:
                quickest = c
        if bounds_s[UPPER, best] < np.inf:
            _mark_beaten(shortlist, start, stop, best, rate_bounds)
        if quickest != best and bounds_s[UPPER, quickest] < np.inf and not is_beaten[quickest]:
            _mark_beaten(shortlist, start, stop, quickest, rate_bounds)
    for c in range(start, stop):
        if not is_beaten[c]:
            listed[start + count] = c
            count += 1
    shortlist.counts[row] = count
    return count
