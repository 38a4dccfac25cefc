"""What a shortlisted way takes at a design point's clocks and bandwidths: the price tags, hung on many
points at once.

A hauler's quotation: amounts stand on the shortlist (`npusim.cost.candidates`), rates in a table with a
column for each point of a block, and a quotation is a sum of products. The loop over points is the inner
one and has no branches, so the processor quotes for several at once.

    work    = max(grid, DSP)
    latency = max(work + first piece in + last piece out, DMA, (work + DMA) / 2 + refills * wait) + waits

Of `n` pieces that come in, are worked on and go out, three things set the pace. Work waits for the first
piece and the last result is written after it. DMA carries all pieces, the first and the last among them; what
it cannot do while the last piece is worked on, it uses for what the next operator needs. And pieces need
room: with two buffers each of half the room, a buffer is taken while its piece is waited for, brought in and
worked on, so `n` pieces take `n / 2` times (wait + DMA / n + work / n), where n = 2 * refills. The third only
shows where SRAM has little room for much that streams past.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from npusim.cost.dma import CMX2CMX, CMX2DDR, DDR2CMX, bytes_per_s, latency_s, row_gap_s, width_bytes_per_s
from npusim.cost.jit import kernel

__all__ = [
    "BLOCK",
    "CHOICES",
    "RATES",
    "Choice",
    "Rate",
    "ceiling_s",
    "choose",
    "dma_time_s",
    "edges_s",
    "extreme_rates",
    "fill_rates",
    "floor_s",
    "forget_rates",
    "together_s",
]

BLOCK = 128
"""Points that are priced at a time, so that their rates stay in the nearest cache."""


class Rate(IntEnum):
    """Rows of the table of rates: seconds a unit of each amount, a column for each point of a block."""

    CYCLE = 0
    """Cycle of the MAC grid."""
    READ = 1
    """Byte from DRAM, by all engines."""
    WRITE = 2
    """Byte to DRAM."""
    GAP = 3
    """Gap between two rows that are read."""
    PAGE = 4
    """Translation of the address of a first piece beyond a page."""
    READ_WAIT = 5
    """Wait for the first byte from DRAM."""
    WRITE_WAIT = 6
    """Wait for DRAM to take the last piece."""
    COPY = 7
    """Byte copied within SRAM ..."""
    QUICK_COPY = 8
    """... and while the engines' buffers are not full."""
    BUFFER = 9
    """Bytes (not seconds) that these buffers take."""
    # Of one operator
    DSP = 10
    """Time of the DSPs for all of the operator; 0 where they have no part in it."""
    COPIES = 11
    """Time of the copies of the candidate that is quoted."""


class Choice(IntEnum):
    """Rows of the table of choices: of each point of a block what is best so far."""

    BEST = 0
    """Latency without the waits that all candidates share (s); infinite where there is no candidate."""
    PLACE = 1
    """Place of the candidate on the shortlists."""


RATES, CHOICES = len(Rate), len(Choice)

_CYCLE, _READ, _WRITE, _GAP, _PAGE = (
    int(Rate.CYCLE),
    int(Rate.READ),
    int(Rate.WRITE),
    int(Rate.GAP),
    int(Rate.PAGE),
)
_READ_WAIT, _WRITE_WAIT = int(Rate.READ_WAIT), int(Rate.WRITE_WAIT)
_COPY, _QUICK_COPY, _BUFFER = int(Rate.COPY), int(Rate.QUICK_COPY), int(Rate.BUFFER)
_DSP, _COPIES = int(Rate.DSP), int(Rate.COPIES)
_BEST, _PLACE = int(Choice.BEST), int(Choice.PLACE)

# Columns of the table of extreme rates.
_CHEAPEST, _DEAREST = 0, 1

# Places of the rows in a flat view: with row lengths known to the compiler it sees that no two rows overlap.
_AT_CYCLE, _AT_READ, _AT_WRITE, _AT_GAP, _AT_PAGE = (
    _CYCLE * BLOCK,
    _READ * BLOCK,
    _WRITE * BLOCK,
    _GAP * BLOCK,
    _PAGE * BLOCK,
)
_AT_DSP, _AT_COPIES, _AT_WAIT = _DSP * BLOCK, _COPIES * BLOCK, _READ_WAIT * BLOCK
_AT_BEST, _AT_PLACE = _BEST * BLOCK, _PLACE * BLOCK


@kernel
def fill_rates(arch: Any, rates: Any, point: int) -> None:
    """Fill one column of the table of rates.

    Parameters
    ----------
    arch : record of ARCH_DTYPE
    rates : array of float64, shape (RATES, BLOCK)
        Column `point` is written.
    """
    rates[_CYCLE, point] = 1.0 / arch.dpu_clock_hz
    rates[_READ, point] = 1.0 / bytes_per_s(arch, DDR2CMX, arch.dma_engines)
    rates[_WRITE, point] = 1.0 / bytes_per_s(arch, CMX2DDR, arch.dma_engines)
    rates[_GAP, point] = row_gap_s(arch, DDR2CMX) / arch.dma_engines
    rates[_READ_WAIT, point] = latency_s(arch, DDR2CMX, 0.0)
    rates[_WRITE_WAIT, point] = latency_s(arch, CMX2DDR, 0.0)
    rates[_PAGE, point] = arch.dma_page_walk_s
    rates[_COPY, point] = 1.0 / bytes_per_s(arch, CMX2CMX, arch.dma_engines)
    rates[_QUICK_COPY, point] = 1.0 / width_bytes_per_s(arch, arch.dma_engines)
    rates[_BUFFER, point] = arch.dma_copy_buffer_bytes * arch.dma_engines


@kernel
def copies_s(copied: float, rates: Any, point: int) -> float:
    """Time of copies between tiles (s): quick until the engines' buffers are full."""
    quick = min(copied, rates[_BUFFER, point])
    return float(quick * rates[_QUICK_COPY, point] + (copied - quick) * rates[_COPY, point])


@kernel
def dma_time_s(way: Any, rates: Any, point: int) -> float:
    """Time of all transfers of a candidate by all engines, latencies hidden (s)."""
    moved_s = (
        way.read_bytes * rates[_READ, point]
        + way.written_bytes * rates[_WRITE, point]
        + way.read_gaps * rates[_GAP, point]
    )
    return float(moved_s + copies_s(way.copied_bytes, rates, point))


@kernel
def edges_s(way: Any, rates: Any, point: int) -> float:
    """Time of the first piece in and the last piece out of a candidate (s)."""
    return float(way.first_bytes * rates[_READ, point] + way.last_bytes * rates[_WRITE, point])


@kernel
def together_s(work_s: float, dma_s: float, edges_s: float, refilling_s: float) -> float:
    """Time of work and transfers that overlap piece by piece, without the waits that nothing hides (s).

    Parameters
    ----------
    work_s, dma_s : float
        Time of the busiest of MAC grid and DSPs, and of all transfers.
    edges_s : float
        Time of the first piece in and the last piece out.
    refilling_s : float
        Waits for the first byte from DRAM, one each time that what is read fills its room in SRAM.
    """
    return max(max(work_s + edges_s, dma_s), 0.5 * (work_s + dma_s) + refilling_s)


@kernel
def choose(found: Any, start: int, stop: int, rates: Any, points: int, choices: Any) -> None:
    """Choose, for each point of a block, the fastest candidate of one operator; of equally fast ones the
    first.

    Parameters
    ----------
    found : array of CANDIDATE_DTYPE
        The shortlist is `found[start:stop]`, sorted.
    rates : array of float64, shape (RATES, BLOCK)
        The row COPIES is scratch.
    points : int
        Columns in use.
    choices : array of float64, shape (CHOICES, BLOCK)
        Written.
    """
    choices[_BEST, :] = np.inf
    choices[_PLACE, :] = start
    rates[_COPIES, :] = 0.0
    flat_rates, flat_choices = rates.reshape(-1), choices.reshape(-1)
    was_copied = False
    for c in range(start, stop):
        way = found[c]
        if way.copied_bytes > 0.0 or was_copied:
            was_copied = way.copied_bytes > 0.0
            for p in range(points):
                rates[_COPIES, p] = copies_s(way.copied_bytes, rates, p)
        _quote(
            way.grid_cycles, way.read_bytes, way.written_bytes, way.read_gaps, way.first_bytes,
            way.last_bytes, way.refills, way.walks, float(c), flat_rates, points, flat_choices,
        )  # fmt: skip


@kernel
def latency_of(
    grid: float, read: float, written: float, gaps: float, first: float, last: float, refills: float,
    walks: float, cycle_s: float, read_s: float, write_s: float, gap_s: float, wait_s: float, page_s: float,
    dsp_s: float, copies: float,
) -> float:  # fmt: skip
    """Latency (s) of amounts at rates, without the waits that all ways share."""
    dma = read * read_s + written * write_s + gaps * gap_s + copies
    edges = first * read_s + last * write_s
    together = together_s(max(grid * cycle_s, dsp_s), dma, edges, refills * wait_s)
    return float(together + walks * page_s)


@kernel
def quote_s(way: Any, rates: Any, point: int) -> float:
    """Latency (s) of a candidate at one point, without waits and without the DSPs."""
    copies = copies_s(way.copied_bytes, rates, point)
    latency = latency_of(
        way.grid_cycles, way.read_bytes, way.written_bytes, way.read_gaps, way.first_bytes, way.last_bytes,
        way.refills, way.walks, rates[_CYCLE, point], rates[_READ, point], rates[_WRITE, point],
        rates[_GAP, point], rates[_READ_WAIT, point], rates[_PAGE, point], 0.0, copies,
    )  # fmt: skip
    return float(latency)


@kernel
def extreme_rates(rates: Any, points: int, extremes: Any) -> None:
    """Write the cheapest and the dearest of each rate over some points into two columns of a table."""
    for r in range(RATES):
        low, high = np.inf, -np.inf
        for p in range(points):
            low, high = min(low, rates[r, p]), max(high, rates[r, p])
        extremes[r, _CHEAPEST], extremes[r, _DEAREST] = low, high
    # A larger buffer makes copies cheaper.
    low, high = extremes[_BUFFER, _CHEAPEST], extremes[_BUFFER, _DEAREST]
    extremes[_BUFFER, _CHEAPEST], extremes[_BUFFER, _DEAREST] = high, low


@kernel
def ceiling_s(way: Any, extremes: Any) -> float:
    """Latency (s) that a candidate keeps to at every point; infinite where prices are not known."""
    if extremes[_CYCLE, _DEAREST] == np.inf:
        return np.inf
    return quote_s(way, extremes, _DEAREST)


@kernel
def floor_s(way: Any, extremes: Any) -> float:
    """Latency (s) that a candidate falls below at no point."""
    return quote_s(way, extremes, _CHEAPEST)


@kernel
def forget_rates(extremes: Any) -> None:
    """Fill the two columns so that nothing is ruled out by price: everything may be for nothing."""
    extremes[:, _CHEAPEST] = 0.0
    extremes[:, _DEAREST] = np.inf


@kernel
def _quote(
    grid: float, read: float, written: float, gaps: float, first: float, last: float, refills: float,
    walks: float, place: float, rates: Any, points: int, choices: Any,
) -> None:  # fmt: skip
    """Quote one candidate for all points."""
    for p in range(points):
        latency = latency_of(
            grid, read, written, gaps, first, last, refills, walks, rates[_AT_CYCLE + p], rates[_AT_READ + p],
            rates[_AT_WRITE + p], rates[_AT_GAP + p], rates[_AT_WAIT + p], rates[_AT_PAGE + p],
            rates[_AT_DSP + p], rates[_AT_COPIES + p],
        )  # fmt: skip
        better = latency < choices[_AT_BEST + p]
        choices[_AT_BEST + p] = latency if better else choices[_AT_BEST + p]
        choices[_AT_PLACE + p] = place if better else choices[_AT_PLACE + p]
