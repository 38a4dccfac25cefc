"""Latency of mapping candidates at the clocks and bandwidths of a block of design points.

Amounts stand in the candidate (`npusim.cost.candidates`), rates in a table with a column for each point of a
block. The loop over points is the inner one and has no branches, so the processor works on several at once.

    work    = max(grid, DSP)
    latency = max(work + prologue + epilogue, DMA, (work + DMA) / 2 + refills * wait) + waits

Of `n` pieces that come in, are worked on and go out, three things set the pace. Work waits for the first
piece (prologue) and the last result is written after it (epilogue). DMA carries all pieces, the first and the
last among them; what it cannot do while the last piece is worked on, it uses for what the next operator
needs. And pieces need room: with two buffers each of half the room, a buffer is taken while its piece is
waited for, brought in and worked on, so `n` pieces take `n / 2` times (wait + DMA / n + work / n), where n =
2 * refills. The third only shows where SRAM has little room for much that streams past.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.candidates import CANDIDATE_SIZE, CandidateRecord, refills
from npusim.cost.kernels import compiled
from npusim.cost.rates import (
    BESIDE,
    BEST,
    BEST_COARSE,
    BLOCK,
    BUFFER,
    COPY,
    CYCLE,
    DSP,
    GAP,
    INDEX,
    PAGE_WALK,
    QUICK_COPY,
    READ,
    READ_WAIT,
    REFILL_WAIT,
    TILE_SRAM,
    WRITE,
)
from npusim.cost.records import Floats
from npusim.cost.resources import LEVEL_READ_BYTES, LEVEL_WRITTEN_BYTES, LEVELS


class Amounts(NamedTuple):
    """Amounts of a candidate that take time, see `npusim.cost.candidates.CANDIDATE_DTYPE`."""

    grid_cycles: float
    read_bytes: float
    written_bytes: float
    read_gaps: float
    prologue_bytes: float
    epilogue_bytes: float
    page_walks: float


class Rates(NamedTuple):
    """Seconds that each amount takes at one point."""

    cycle_s: float
    read_s: float
    write_s: float
    gap_s: float
    page_walk_s: float


TIE = 1.0 - 1e-13
"""A candidate with pieces smaller than a stencil is taken where it takes less than this share of another."""

# Places of the rows in a flat view: with row lengths known to the compiler it sees that no two rows overlap.
_AT_CYCLE, _AT_READ, _AT_WRITE, _AT_GAP = CYCLE * BLOCK, READ * BLOCK, WRITE * BLOCK, GAP * BLOCK
_AT_PAGE_WALK, _AT_DSP, _AT_BESIDE = PAGE_WALK * BLOCK, DSP * BLOCK, BESIDE * BLOCK
_AT_REFILL_WAIT, _AT_READ_WAIT, _AT_TILE_SRAM = REFILL_WAIT * BLOCK, READ_WAIT * BLOCK, TILE_SRAM * BLOCK
_AT_BEST, _AT_INDEX = BEST * BLOCK, INDEX * BLOCK


@compiled
def copies_s(copied: float, rates: Floats, point: int) -> float:
    """Time of copies between tiles (s): quick until the engines' buffers are full."""
    return _copies_s(copied, rates[BUFFER, point], rates[QUICK_COPY, point], rates[COPY, point])


@compiled
def _copies_s(copied: float, buffer_bytes: float, quick_s: float, copy_s: float) -> float:
    quick = min(copied, buffer_bytes)
    return float(quick * quick_s + (copied - quick) * copy_s)


@compiled
def fill_beside(numbers: Floats, first: int, is_served: bool, rates: Floats, start: int, stop: int) -> None:
    """Write the time of a candidate's copies within SRAM, and of memory levels, at some points.

    Parameters
    ----------
    numbers : array of float64
        The table of candidates as numbers; those of the candidate begin at `first`.
    rates : array of float64, shape (RATES, BLOCK)
        The row BESIDE is written from column `start` to `stop`.
    """
    copied = numbers[first + COPY]
    for p in range(start, stop):
        rates[BESIDE, p] = copies_s(copied, rates, p)
    if is_served:
        for k in range(LEVELS):
            read, written = numbers[first + LEVEL_READ_BYTES + k], numbers[first + LEVEL_WRITTEN_BYTES + k]
            for p in range(start, stop):
                rates[BESIDE, p] += read * rates[LEVEL_READ_BYTES + k, p]
                rates[BESIDE, p] += written * rates[LEVEL_WRITTEN_BYTES + k, p]


@compiled
def dma_time_s(candidate: CandidateRecord, rates: Floats, point: int) -> float:
    """Time of all transfers of a candidate by all engines, latencies hidden (s).

    Parameters
    ----------
    rates : array of float64, shape (RATES, BLOCK)
        With the candidate's time for copies and memory levels (`fill_beside`).
    """
    moved_s = candidate.read_bytes * rates[READ, point] + candidate.written_bytes * rates[WRITE, point]
    return float(moved_s + candidate.read_gaps * rates[GAP, point] + rates[BESIDE, point])


@compiled
def prologue_epilogue_s(candidate: CandidateRecord, rates: Floats, point: int) -> float:
    """Time of the first piece in and the last piece out of a candidate (s)."""
    return float(
        candidate.prologue_bytes * rates[READ, point] + candidate.epilogue_bytes * rates[WRITE, point]
    )


@compiled
def overlapped_s(work_s: float, dma_s: float, prologue_epilogue_s: float, refill_wait_s: float) -> float:
    """Time of work and transfers that overlap piece by piece, without the waits that nothing hides (s).

    Parameters
    ----------
    work_s, dma_s : float
        Time of the busiest of MAC grid and DSPs, and of all transfers.
    prologue_epilogue_s : float
        Time of the first piece in and the last piece out.
    refill_wait_s : float
        Waits for the first byte from DRAM, one each time that what is read fills its room in SRAM.
    """
    return max(max(work_s + prologue_epilogue_s, dma_s), 0.5 * (work_s + dma_s) + refill_wait_s)


@compiled
def choose(
    candidates: Any, start: int, stop: int, is_served: bool, rates: Floats, points: int, choices: Floats
) -> None:
    """Choose the fastest candidate of one operator for each point of a block; ties go to the first.

    The best latency is infinite at a point where none fits into SRAM.

    Parameters
    ----------
    candidates : array of CANDIDATE_DTYPE
    start, stop : int
        The operator's candidates are `candidates[start:stop]`, sorted.
    is_served : bool
        Whether memory levels serve anything of the operator.
    rates : array of float64, shape (RATES, BLOCK)
        The rows BESIDE and REFILL_WAIT are scratch.
    choices : array of float64, shape (CHOICES, BLOCK)
        Written.
    """
    choices[BEST, :] = np.inf
    choices[INDEX, :] = start
    rates[BESIDE, :] = rates[REFILL_WAIT, :] = 0.0
    flat_rates, flat_choices, numbers = rates.reshape(-1), choices.reshape(-1), candidates.view(np.float64)
    least, greatest = np.inf, -np.inf
    for p in range(points):
        least, greatest = min(least, rates[TILE_SRAM, p]), max(greatest, rates[TILE_SRAM, p])
    was_beside, has_waited, is_fine, fine_from = False, False, False, np.inf
    for c in range(start, stop):
        candidate = candidates[c]
        if candidate.needed_bytes > greatest:
            continue
        if candidate.fine > 0.0 and not is_fine:
            is_fine, fine_from = True, float(c)
            for p in range(points):
                choices[BEST_COARSE, p] = choices[BEST, p]
                choices[BEST, p] *= TIE
        waits = candidate.streamed_bytes > 0.0 or candidate.needed_bytes > least
        if waits or has_waited:
            _fill_refill_waits(candidate, least, greatest, flat_rates, points)
            has_waited = waits
        if candidate.copied_bytes > 0.0 or was_beside or is_served:
            was_beside = candidate.copied_bytes > 0.0 or is_served
            fill_beside(numbers, c * CANDIDATE_SIZE, is_served, rates, 0, points)
        _update_choices(_amounts(candidate), float(c), flat_rates, points, flat_choices)
    if is_fine:
        for p in range(points):
            if choices[INDEX, p] < fine_from:
                choices[BEST, p] = choices[BEST_COARSE, p]


@compiled
def _fill_refill_waits(
    candidate: CandidateRecord, least: float, greatest: float, rates: Floats, points: int
) -> None:
    """Fill in the waits of a candidate for refills at points whose SRAM lies in a range."""
    needed, streamed, held = candidate.needed_bytes, candidate.streamed_bytes, candidate.held_bytes
    if least == greatest:
        count = refills(candidate, greatest)
        for p in range(points):
            rates[_AT_REFILL_WAIT + p] = count * rates[_AT_READ_WAIT + p]
        return
    if streamed <= 0.0:
        held = -1.0
    for p in range(points):
        sram = rates[_AT_TILE_SRAM + p]
        wait_s = streamed / (sram - held) * rates[_AT_READ_WAIT + p]
        rates[_AT_REFILL_WAIT + p] = wait_s if needed <= sram else np.inf


@compiled
def _amounts(candidate: CandidateRecord) -> Amounts:
    """Return the amounts of a candidate that take time, copies apart."""
    return Amounts(
        candidate.grid_cycles,
        candidate.read_bytes,
        candidate.written_bytes,
        candidate.read_gaps,
        candidate.prologue_bytes,
        candidate.epilogue_bytes,
        candidate.page_walks,
    )


@compiled
def amounts_latency_s(
    amounts: Amounts, rates: Rates, dsp_s: float, beside_s: float, refill_wait_s: float
) -> float:
    """Latency (s) of amounts at rates, without the waits that all candidates share."""
    read_s, written_s = amounts.read_bytes * rates.read_s, amounts.written_bytes * rates.write_s
    dma = read_s + written_s + amounts.read_gaps * rates.gap_s + beside_s
    exposed = amounts.prologue_bytes * rates.read_s + amounts.epilogue_bytes * rates.write_s
    work = max(amounts.grid_cycles * rates.cycle_s, dsp_s)
    overlapped = overlapped_s(work, dma, exposed, refill_wait_s)
    return float(overlapped + amounts.page_walks * rates.page_walk_s)


@compiled
def rates_at(rates: Floats, point: int) -> Rates:
    """Return the rates of one column of a table."""
    return Rates(
        rates[CYCLE, point],
        rates[READ, point],
        rates[WRITE, point],
        rates[GAP, point],
        rates[PAGE_WALK, point],
    )


class PointRates(NamedTuple):
    """All rates of one column, as numbers: numba counts references to arrays in a call."""

    rates: Rates
    read_wait_s: float
    buffer_bytes: float
    quick_copy_s: float
    copy_s: float
    tile_sram_bytes: float


@compiled
def point_rates(rates: Floats, point: int) -> PointRates:
    """Return all rates of one column of a table."""
    return PointRates(
        rates_at(rates, point),
        rates[READ_WAIT, point],
        rates[BUFFER, point],
        rates[QUICK_COPY, point],
        rates[COPY, point],
        rates[TILE_SRAM, point],
    )


@compiled
def lower_bound_s(candidate: CandidateRecord, lower: PointRates) -> float:
    """Return a lower bound of a candidate's latency (s), without DSPs and common waits.

    Parameters
    ----------
    lower : PointRates
        Least rates and most room of the points.
    """
    copying_s = _copies_s(candidate.copied_bytes, lower.buffer_bytes, lower.quick_copy_s, lower.copy_s)
    wait_s = refills(candidate, lower.tile_sram_bytes) * lower.read_wait_s
    return amounts_latency_s(_amounts(candidate), lower.rates, 0.0, copying_s, wait_s)


@compiled
def upper_bound_s(candidate: CandidateRecord, upper: PointRates) -> float:
    """Return an upper bound of that latency (s); infinite where rates are unknown or SRAM is too small."""
    if upper.rates.cycle_s == np.inf or candidate.needed_bytes > upper.tile_sram_bytes:
        return np.inf
    return lower_bound_s(candidate, upper)


@compiled
def _update_choices(amounts: Amounts, index: float, rates: Floats, points: int, choices: Floats) -> None:
    """Compare one candidate with the best so far at each point."""
    for p in range(points):
        at = Rates(
            rates[_AT_CYCLE + p],
            rates[_AT_READ + p],
            rates[_AT_WRITE + p],
            rates[_AT_GAP + p],
            rates[_AT_PAGE_WALK + p],
        )
        latency = amounts_latency_s(
            amounts, at, rates[_AT_DSP + p], rates[_AT_BESIDE + p], rates[_AT_REFILL_WAIT + p]
        )
        better = latency < choices[_AT_BEST + p]
        choices[_AT_BEST + p] = latency if better else choices[_AT_BEST + p]
        choices[_AT_INDEX + p] = index if better else choices[_AT_INDEX + p]
