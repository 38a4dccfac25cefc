"""DMA equations, seconds per unit of each resource, and latency of mapping candidates at these rates.

A DMA transfer between DRAM and SRAM takes latency + bytes / bandwidth + gaps between rows. Its bandwidth is
the smaller of the engines' and DRAM's. The numbers stand in `npu.dma.model`, `npu.dma` and `dram.bandwidth`
of a SoC. Shares, latencies and the sustained rate of DRAM are fitted to measured transfers, row gaps to
Intel's cost model (`validate/figures`).

The table of rates has a column for each point of a block. It has a row for each resource of a mapping
candidate, at the place of the resource (`npusim.cost.units.resources`), and the rows below. Rows from `DSP`
on belong to one operator. The inner loop runs over points without branches, so the compiler vectorises it.

    work    = max(grid, DSP)
    latency = max(work + prologue + epilogue, DMA, (work + DMA) / 2 + refills * wait) + waits + restarts

An operator has `n` pieces. Work waits for the first piece (prologue), and the last result is written after it
(epilogue). DMA carries all pieces, and during the last piece it serves the next operator. Two buffers of half
the free SRAM hold the pieces: a buffer is in use while its piece is awaited, fetched and processed, so `n`
pieces take `n / 2` times (wait + DMA / n + work / n), where n = 2 * refills. The third term dominates only
where little SRAM is free for a large streamed operand. Where a stationary operand has one buffer, each of its
blocks has a prologue and an epilogue, and between two blocks units and DMA pause (a restart).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.compiling.kernels import compiled, compiled_making_arrays
from npusim.compiling.records import Floats, Ints
from npusim.cost.machine.architecture import ArchRecord
from npusim.cost.units import resources
from npusim.cost.units.resources import BODY, LEVEL_READ_BYTES, LEVEL_WRITTEN_BYTES, LEVELS, CandidateRecord

DDR2CMX, CMX2DDR, CMX2CMX, DDR2DDR = range(4)
"""Directions of a DMA transfer."""
BLOCK = 128
"""Columns of a block, whose rates stay in the nearest cache."""
CYCLE, READ, WRITE = resources.GRID_CYCLES, resources.READ_BYTES, resources.WRITTEN_BYTES
GAP, COPY = resources.READ_GAPS, resources.COPIED_BYTES
"""Rows of resources."""
QUICK_COPY, PAGE_WALK, READ_WAIT, WRITE_WAIT, BUFFER, TILE_SRAM, SRAM, LEVEL_WAIT = range(BODY, BODY + 8)
"""Copied byte while engine buffers are free; address translation of a first piece beyond a page; wait for the
first byte from DRAM, and to DRAM; bytes of the engine buffers, of SRAM of a tile, of SRAM of all tiles; wait
for the first byte of each memory level (`LEVELS` rows)."""
LEVEL_SOURCE = LEVEL_WAIT + LEVELS
"""Memory level that supplies the bytes of each level; `LEVELS` is DRAM."""
MACHINE_RATES = LEVEL_SOURCE + LEVELS
"""Rows for all operators."""
DSP, BESIDE, REFILL_WAIT = range(MACHINE_RATES, MACHINE_RATES + 3)
"""Time of the DSPs of an operator; of copies and levels of a candidate; of its refill waits (infinite:
unfit)."""
RATES = MACHINE_RATES + 3
LOWER, UPPER = 0, 1
"""Columns of the table of bounds."""
TOLERANCE = 0.005
"""Share of the least latency by which the choice may be slower, to save traffic."""
SERVED_TOLERANCE = 0.001
"""The same where memory levels make an operator faster by more than `TOLERANCE`."""
# Places of the rows in a flat view: with row lengths known to the compiler it sees that no two rows overlap.
_AT_CYCLE, _AT_READ, _AT_WRITE, _AT_GAP = CYCLE * BLOCK, READ * BLOCK, WRITE * BLOCK, GAP * BLOCK
_AT_PAGE_WALK, _AT_DSP, _AT_BESIDE = PAGE_WALK * BLOCK, DSP * BLOCK, BESIDE * BLOCK
_AT_REFILL_WAIT, _AT_READ_WAIT, _AT_TILE_SRAM = REFILL_WAIT * BLOCK, READ_WAIT * BLOCK, TILE_SRAM * BLOCK
_AT_WRITE_WAIT = WRITE_WAIT * BLOCK


class Choices(NamedTuple):
    """Choice among the candidates of an operator at each point, shape (BLOCK,)."""

    candidate: Ints
    """Place in the table of candidates."""
    best_s: Floats
    """Latency without common waits."""
    plain_best_s: Floats
    """Least latency without memory levels, or least cost for another objective than latency."""
    latencies_s: Floats
    """Latency of each candidate at each point, shape (candidates * points,) or longer; scratch."""


@compiled_making_arrays
def new_choices(candidates: int) -> Choices:
    """Return storage for choices among so many candidates."""
    return Choices(np.zeros(BLOCK, np.int64), np.zeros(BLOCK), np.zeros(BLOCK), np.empty(candidates * BLOCK))


@compiled
def dma_latency_s(arch: ArchRecord, direction: int, payload_bytes: float) -> float:
    """Return the time before the first byte arrives (s); a copy in DRAM overlaps its write with its read.

    A read into SRAM beyond one page of host memory waits once for address translation.
    """
    start_s = arch.dma_start_cycles / arch.vpu_clock_hz
    if direction == CMX2CMX:
        return float(start_s)
    if direction == CMX2DDR:
        return float(start_s + arch.dma_dram_write_latency_s)
    if direction == DDR2CMX and payload_bytes > arch.dma_page_bytes:
        return float(start_s + arch.dma_dram_read_latency_s + arch.dma_page_walk_s)
    return float(start_s + arch.dma_dram_read_latency_s)


@compiled
def width_bytes_per_s(arch: ArchRecord, engines: float) -> float:
    """Return the rate of `engines` engines at full width (B/s)."""
    return float(arch.dma_engine_bytes_per_cycle * arch.vpu_clock_hz * engines)


@compiled
def dma_bytes_per_s(arch: ArchRecord, direction: int, engines: float) -> float:
    """Return the rate of `engines` engines on one stream (B/s): at most their own width, and that of DRAM.

    A copy from DRAM to DRAM reads at the read share of the engines, and DRAM carries each byte twice.
    """
    shares = (arch.dma_ddr2cmx_share, arch.dma_cmx2ddr_share, arch.dma_cmx2cmx_share, arch.dma_ddr2cmx_share)
    limits = (arch.dram_bytes_per_s, arch.dram_bytes_per_s, np.inf, 0.5 * arch.dram_bytes_per_s)
    return float(min(width_bytes_per_s(arch, engines) * shares[direction], limits[direction]))


@compiled
def row_gap_s(arch: ArchRecord, direction: int) -> float:
    """Return the gap before each further row (s)."""
    read_cycles = arch.dma_ddr2cmx_row_cycles
    cycles = (read_cycles, arch.dma_cmx2ddr_row_cycles, arch.dma_cmx2cmx_row_cycles, read_cycles)
    return float(cycles[direction] / arch.vpu_clock_hz)


@compiled
def _payload_s(
    arch: ArchRecord, direction: int, payload_bytes: float, row_bytes: float, engines: float
) -> float:
    """Time of the bytes and the gaps between their rows, without the latency (s)."""
    rate = dma_bytes_per_s(arch, direction, engines)
    moved_s = payload_bytes / rate
    if direction == CMX2CMX:  # a copy runs at full width until its buffer is full
        full = width_bytes_per_s(arch, engines)
        buffered = min(payload_bytes, arch.dma_copy_buffer_bytes * engines)
        moved_s = buffered / full + (payload_bytes - buffered) / rate
    if row_bytes <= 0.0:
        return moved_s
    gaps = max(0.0, payload_bytes / row_bytes - 1.0) / engines
    return moved_s + gaps * row_gap_s(arch, direction)


@compiled
def dma_transfer_s(
    arch: ArchRecord, direction: int, payload_bytes: float, row_bytes: float, engines: float
) -> float:
    """Return the time of one transfer divided evenly among `engines` engines (s).

    Parameters
    ----------
    row_bytes : float
        Bytes of a contiguous row; 0 where the transfer is one piece.
    """
    if payload_bytes <= 0.0:
        return 0.0
    latency_s = dma_latency_s(arch, direction, payload_bytes / engines)
    return latency_s + _payload_s(arch, direction, payload_bytes, row_bytes, engines)


@compiled
def sram_copy_s(arch: ArchRecord, copied_bytes: float) -> float:
    """Return the time of copies between SRAM of tiles by all engines (s)."""
    return _payload_s(arch, CMX2CMX, copied_bytes, 0.0, arch.dma_engines) if copied_bytes > 0.0 else 0.0


@compiled
def fill_rates(arch: ArchRecord, rates: Floats, device: int, point: int) -> None:
    """Fill one column of the rates of a device, shape (array devices, RATES, BLOCK).

    A byte takes the longer time of the DMA engines and the memory that it passes through. A level that is
    slower than a memory outside it supplies nothing: that memory supplies its bytes. So no level supplies
    more bytes than its bandwidth allows, and none makes an operator slower.
    """
    column, engines = rates[device, :, point], arch.dma_engines
    width = width_bytes_per_s(arch, engines)
    read_s = 1.0 / dma_bytes_per_s(arch, DDR2CMX, engines)
    write_s = 1.0 / dma_bytes_per_s(arch, CMX2DDR, engines)
    wait_s, near_wait_s = dma_latency_s(arch, DDR2CMX, 0.0), dma_latency_s(arch, CMX2CMX, 0.0)
    column[CYCLE] = 1.0 / arch.dpu_clock_hz
    column[READ], column[WRITE] = read_s, write_s
    column[GAP] = row_gap_s(arch, DDR2CMX) / engines
    column[READ_WAIT], column[WRITE_WAIT] = wait_s, dma_latency_s(arch, CMX2DDR, 0.0)
    column[PAGE_WALK] = arch.dma_page_walk_s
    column[COPY] = 1.0 / dma_bytes_per_s(arch, CMX2CMX, engines)
    column[QUICK_COPY], column[BUFFER] = 1.0 / width, arch.dma_copy_buffer_bytes * engines
    column[TILE_SRAM], column[SRAM] = arch.sram_tile_bytes, arch.tiles * arch.sram_tile_bytes
    source, source_bytes_per_s = LEVELS, arch.dram_bytes_per_s
    for behind in range(LEVELS):
        k = LEVELS - 1 - behind
        if arch.level_bytes[k] > 0.0 and arch.level_bytes_per_s[k] >= source_bytes_per_s:
            source, source_bytes_per_s = k, arch.level_bytes_per_s[k]
            level_s = 1.0 / source_bytes_per_s
            read_s = min(read_s, max(level_s, 1.0 / (width * arch.dma_ddr2cmx_share)))
            write_s = min(write_s, max(level_s, 1.0 / (width * arch.dma_cmx2ddr_share)))
            wait_s = min(wait_s, near_wait_s + arch.level_latency_s[k])
        column[LEVEL_READ_BYTES + k], column[LEVEL_WRITTEN_BYTES + k] = read_s, write_s
        column[LEVEL_WAIT + k], column[LEVEL_SOURCE + k] = wait_s, source


@compiled
def widen_rate_bounds(rates: Floats, points: int, rate_bounds: Floats) -> None:
    """Widen the bounds of each rate, two columns of a table, to include some points."""
    for r in range(MACHINE_RATES):
        # More room makes things faster.
        lower, upper = (UPPER, LOWER) if _is_room(r) else (LOWER, UPPER)
        least, greatest = rate_bounds[r, lower], rate_bounds[r, upper]
        for p in range(points):
            rate = rates[r, p]
            least = rate if rate < least else least
            greatest = rate if rate > greatest else greatest
        rate_bounds[r, lower], rate_bounds[r, upper] = least, greatest
    for p in range(points):  # the nearest level may serve any byte
        rate_bounds[READ, LOWER] = min(rate_bounds[READ, LOWER], rates[LEVEL_READ_BYTES, p])
        rate_bounds[WRITE, LOWER] = min(rate_bounds[WRITE, LOWER], rates[LEVEL_WRITTEN_BYTES, p])


@compiled
def start_rate_bounds(rate_bounds: Floats) -> None:
    """Write the bounds of rates over no point."""
    for r in range(RATES):
        rate_bounds[r, LOWER], rate_bounds[r, UPPER] = (-np.inf, np.inf) if _is_room(r) else (np.inf, -np.inf)


@compiled
def clear_rate_bounds(rate_bounds: Floats) -> None:
    """Clear all bounds except SRAM's, so that no candidate is ruled out by its latency."""
    for r in range(RATES):
        if r != TILE_SRAM:
            rate_bounds[r, LOWER], rate_bounds[r, UPPER] = 0.0, np.inf


@compiled
def widen_sram_bounds(sram_tile_bytes: float, rate_bounds: Floats) -> None:
    """Widen the bounds of a tile's SRAM to a size."""
    rate_bounds[TILE_SRAM, UPPER] = min(rate_bounds[TILE_SRAM, UPPER], sram_tile_bytes)
    rate_bounds[TILE_SRAM, LOWER] = max(rate_bounds[TILE_SRAM, LOWER], sram_tile_bytes)


@compiled
def _is_room(rate: int) -> bool:
    """Whether a row of the table of rates has bytes of room."""
    return rate in (BUFFER, TILE_SRAM, SRAM)


class Amounts(NamedTuple):
    """Needs of a candidate that take time (`npusim.cost.tilings.candidates.CandidateRecord`)."""

    grid_cycles: float
    read_bytes: float
    written_bytes: float
    read_gaps: float
    prologue_bytes: float
    epilogue_bytes: float
    page_walks: float
    restarts: float


class Rates(NamedTuple):
    """Seconds per unit of these needs at one point."""

    cycle_s: float
    read_s: float
    write_s: float
    gap_s: float
    page_walk_s: float
    restart_s: float


class PointRates(NamedTuple):
    """All rates of one column, as numbers: numba counts references to arrays in a call."""

    rates: Rates
    read_wait_s: float
    buffer_bytes: float
    quick_copy_s: float
    copy_s: float
    tile_sram_bytes: float


@compiled
def restart_s(rates: Floats, point: int) -> float:
    """Return the pause between two blocks of a single-buffered operand (s): a last write, a first read."""
    return float(rates[READ_WAIT, point] + rates[WRITE_WAIT, point])


@compiled
def point_rates(rates: Floats, point: int) -> PointRates:
    """Return all rates of one column of a table."""
    read_s, write_s, gap_s = rates[READ, point], rates[WRITE, point], rates[GAP, point]
    return PointRates(
        Rates(rates[CYCLE, point], read_s, write_s, gap_s, rates[PAGE_WALK, point], restart_s(rates, point)),
        rates[READ_WAIT, point],
        rates[BUFFER, point],
        rates[QUICK_COPY, point],
        rates[COPY, point],
        rates[TILE_SRAM, point],
    )


@compiled
def copies_s(copied_bytes: float, at: PointRates) -> float:
    """Return the time of copies between tiles (s): quick until the engine buffers are full."""
    quick_bytes = min(copied_bytes, at.buffer_bytes)
    return float(quick_bytes * at.quick_copy_s + (copied_bytes - quick_bytes) * at.copy_s)


@compiled
def fill_beside(numbers: Floats, first: int, is_served: bool, rates: Floats, start: int, stop: int) -> None:
    """Write the time of copies, and of memory levels beyond DRAM's, into row BESIDE of some columns.

    The numbers of the candidate start at `numbers[first]` in the table of candidates. A byte passes through
    the memory that supplies it and through each level inside that one. These transfer at the same time, so
    the transfer takes as long as the busiest of them.
    """
    for p in range(start, stop):
        rates[BESIDE, p] = 0.0
    read, written, copied = numbers[first + READ], numbers[first + WRITE], numbers[first + COPY]
    read_through, written_through = read, written
    for inward in range(LEVELS if is_served else 0):
        k = LEVELS - 1 - inward
        at = first + LEVEL_READ_BYTES + k
        inner_read, inner_written = numbers[at], numbers[at + LEVELS]
        if inner_read + inner_written == 0.0:  # no busier than the memory outside it
            continue
        read_through, written_through = read_through + inner_read, written_through + inner_written
        for p in range(start, stop):
            level_s = read_through * rates[LEVEL_READ_BYTES + k, p]
            level_s += written_through * rates[LEVEL_WRITTEN_BYTES + k, p]
            beyond_s = level_s - (read * rates[READ, p] + written * rates[WRITE, p])
            beside_s = rates[BESIDE, p]
            rates[BESIDE, p] = beyond_s if beyond_s > beside_s else beside_s
    if copied > 0.0:
        for p in range(start, stop):
            rates[BESIDE, p] += copies_s(copied, point_rates(rates, p))


@compiled
def dma_time_s(candidate: CandidateRecord, rates: Floats, point: int) -> float:
    """Return the time of all transfers of a candidate by all engines (s), after `fill_beside`."""
    moved_s = candidate.read_bytes * rates[READ, point] + candidate.written_bytes * rates[WRITE, point]
    return float(moved_s + candidate.read_gaps * rates[GAP, point] + rates[BESIDE, point])


@compiled
def prologue_epilogue_s(candidate: CandidateRecord, rates: Floats, point: int) -> float:
    """Return the time of the first piece in and the last piece out of a candidate (s)."""
    in_s = candidate.prologue_bytes * rates[READ, point]
    return float(in_s + candidate.epilogue_bytes * rates[WRITE, point])


@compiled
def overlapped_s(work_s: float, dma_s: float, prologue_epilogue_s: float, refill_wait_s: float) -> float:
    """Return the time of work and transfers that overlap piece by piece (s), without common waits.

    Parameters
    ----------
    work_s, dma_s : float
        Time of the busiest of MAC grid and DSPs, and of all transfers.
    refill_wait_s : float
        Waits for the first byte from DRAM, one per refill.
    """
    return max(max(work_s + prologue_epilogue_s, dma_s), 0.5 * (work_s + dma_s) + refill_wait_s)


@compiled
def stall_s(
    work_s: float, dma_s: float, prologue_epilogue_s: float, known_s: float, refill_wait_s: float
) -> float:
    """Return the time by which prefetch can shorten `overlapped_s` (s), a second for a second.

    `known_s` is the part of the prologue that can be prefetched.
    """
    least_s = work_s + max(prologue_epilogue_s - known_s, 2.0 * refill_wait_s)
    return max(0.0, overlapped_s(work_s, dma_s, prologue_epilogue_s, refill_wait_s) - least_s)


@compiled
def choose(
    candidates: Any, start: int, stop: int, is_served: bool, rates: Floats, points: int, choices: Choices
) -> None:
    """Choose the first of `candidates[start:stop]` within `TOLERANCE` of the fastest, at each point.

    Candidates are sorted by `precedes`: coarse pieces first, then bytes moved. The latency is infinite at a
    point where none fits into SRAM. Rows BESIDE and REFILL_WAIT of the rates are scratch; `choices` is
    written.

    An operator that memory levels serve (`is_served`) keeps its choice without levels, unless another mapping
    is faster than any without levels by more than `TOLERANCE`; then it is the first within
    `SERVED_TOLERANCE` of the fastest. The least latency falls with capacity and bandwidth of levels. So more
    of either is never slower by more than `SERVED_TOLERANCE`, and levels that save no time change no mapping.
    """
    best_s, place, latencies_s = choices.best_s, choices.candidate, choices.latencies_s
    fill_latencies(candidates, start, stop, is_served, False, rates, points, choices)
    for p in range(points):
        place[p] = _first_within(latencies_s, points, p, best_s[p] * (1.0 + TOLERANCE))
        choices.plain_best_s[p] = best_s[p]
        best_s[p] = latencies_s[place[p] * points + p]
    if is_served:
        fill_latencies(candidates, start, stop, True, True, rates, points, choices)
        for p in range(points):
            if best_s[p] * (1.0 + TOLERANCE) < choices.plain_best_s[p]:
                place[p] = _first_within(latencies_s, points, p, best_s[p] * (1.0 + SERVED_TOLERANCE))
            best_s[p] = latencies_s[place[p] * points + p]
    for p in range(points):
        place[p] += start


@compiled
def _first_within(latencies: Floats, points: int, p: int, limit_s: float) -> int:
    """Return the first candidate whose latency at a point is at most a limit that one of them keeps."""
    c = 0
    while latencies[c * points + p] > limit_s:
        c += 1
    return c


@compiled
def fill_latencies(
    candidates: Any,
    start: int,
    stop: int,
    is_served: bool,
    from_levels: bool,
    rates: Floats,
    points: int,
    choices: Choices,
) -> None:
    """Write the latency of each candidate and the least at each point, with or without memory levels."""
    best_s, latencies = choices.best_s, choices.latencies_s
    best_s[:] = np.inf
    rates[BESIDE, :] = rates[REFILL_WAIT, :] = 0.0
    flat_rates, numbers = rates.reshape(-1), candidates.view(np.float64)
    least, greatest = np.inf, -np.inf
    for p in range(points):
        least, greatest = min(least, rates[TILE_SRAM, p]), max(greatest, rates[TILE_SRAM, p])
    was_beside, has_waited, row = False, False, 0
    for c in range(start, stop):
        candidate = candidates[c]
        if candidate.needed_bytes > greatest or candidate.most_bytes <= least:
            for p in range(points):
                latencies[row + p] = np.inf
            row += points
            continue
        is_everywhere = candidate.needed_bytes <= least and candidate.most_bytes > greatest
        waits = candidate.streamed_bytes > 0.0 or not is_everywhere
        if waits or has_waited:
            _fill_refill_waits(candidate, least, greatest, flat_rates, points)
            has_waited = waits
        if candidate.copied_bytes > 0.0 or was_beside or from_levels:
            was_beside = candidate.copied_bytes > 0.0 or from_levels
            fill_beside(numbers, c * resources.CANDIDATE_SIZE, from_levels, rates, 0, points)
        read, written = candidate.read_bytes, candidate.written_bytes
        for k in range(LEVELS if is_served and not from_levels else 0):  # DRAM supplies all bytes
            read += numbers[c * resources.CANDIDATE_SIZE + LEVEL_READ_BYTES + k]
            written += numbers[c * resources.CANDIDATE_SIZE + LEVEL_WRITTEN_BYTES + k]
        _fill_row(_amounts(candidate, read, written), flat_rates, points, latencies, row)
        for p in range(points):
            best_s[p] = min(best_s[p], latencies[row + p])
        row += points


@compiled
def _fill_refill_waits(
    candidate: CandidateRecord, least: float, greatest: float, rates: Floats, points: int
) -> None:
    """Write the refill waits of a candidate at points with SRAM between `least` and `greatest`."""
    needed, streamed, held = candidate.needed_bytes, candidate.streamed_bytes, candidate.held_bytes
    most = candidate.most_bytes
    if least == greatest:
        count = resources.refills(candidate, greatest)
        for p in range(points):
            rates[_AT_REFILL_WAIT + p] = count * rates[_AT_READ_WAIT + p]
        return
    if streamed <= 0.0:
        held = -1.0
    for p in range(points):
        sram = rates[_AT_TILE_SRAM + p]
        wait_s = streamed / (sram - held) * rates[_AT_READ_WAIT + p]
        rates[_AT_REFILL_WAIT + p] = wait_s if (needed <= sram) & (sram < most) else np.inf


@compiled
def _amounts(candidate: CandidateRecord, read_bytes: float, written_bytes: float) -> Amounts:
    """Return the needs of a candidate that take time, without copies, with so many bytes from and to DRAM."""
    return Amounts(
        candidate.grid_cycles,
        read_bytes,
        written_bytes,
        candidate.read_gaps,
        candidate.prologue_bytes,
        candidate.epilogue_bytes,
        candidate.page_walks,
        candidate.restarts,
    )


@compiled
def _latency_s(amounts: Amounts, rates: Rates, dsp_s: float, beside_s: float, refill_wait_s: float) -> float:
    """Latency of needs at rates (s), without common waits."""
    read_s, written_s = amounts.read_bytes * rates.read_s, amounts.written_bytes * rates.write_s
    dma = read_s + written_s + amounts.read_gaps * rates.gap_s + beside_s
    exposed = amounts.prologue_bytes * rates.read_s + amounts.epilogue_bytes * rates.write_s
    work = max(amounts.grid_cycles * rates.cycle_s, dsp_s)
    overlapped = overlapped_s(work, dma, exposed, refill_wait_s)
    return float(overlapped + amounts.page_walks * rates.page_walk_s + amounts.restarts * rates.restart_s)


@compiled
def lower_bound_s(candidate: CandidateRecord, lower: PointRates, sram_tile_bytes: float) -> float:
    """Return the latency of a candidate at least rates and most SRAM (s), without DSPs and common waits."""
    copying_s = copies_s(candidate.copied_bytes, lower)
    wait_s = resources.refills(candidate, sram_tile_bytes) * lower.read_wait_s
    amounts = _amounts(candidate, candidate.read_bytes, candidate.written_bytes)
    return _latency_s(amounts, lower.rates, 0.0, copying_s, wait_s)


@compiled
def upper_bound_s(candidate: CandidateRecord, upper: PointRates, sram_tile_bytes: float) -> float:
    """Return an upper bound of that latency (s); infinite where rates are unknown or SRAM is too small."""
    if upper.rates.cycle_s == np.inf or candidate.needed_bytes > sram_tile_bytes:
        return np.inf
    return lower_bound_s(candidate, upper, sram_tile_bytes)


@compiled
def _fill_row(amounts: Amounts, rates: Floats, points: int, latencies: Floats, row: int) -> None:
    """Write the latency of needs at each point of a flat table of rates (s), without common waits."""
    for p in range(points):
        read_s, write_s, gap_s = rates[_AT_READ + p], rates[_AT_WRITE + p], rates[_AT_GAP + p]
        pause_s = rates[_AT_READ_WAIT + p] + rates[_AT_WRITE_WAIT + p]
        at = Rates(rates[_AT_CYCLE + p], read_s, write_s, gap_s, rates[_AT_PAGE_WALK + p], pause_s)
        dsp_s, beside_s, wait_s = rates[_AT_DSP + p], rates[_AT_BESIDE + p], rates[_AT_REFILL_WAIT + p]
        latencies[row + p] = _latency_s(amounts, at, dsp_s, beside_s, wait_s)
