"""DMA equations, and the table of rates: seconds of a unit of each resource at each point of a block.

A DMA transfer between DRAM and the tiles' SRAM takes latency + bytes / bandwidth + gaps between rows. Its
bandwidth is the smaller of the engines' and DRAM's. The numbers stand in a SoC's `npu.dma.model`, `npu.dma`
and `dram.bandwidth`. Shares, latencies and the sustained rate of DRAM are fitted to measured transfers, row
gaps to Intel's cost model (`validate/figures`).

The table of rates has a row for each resource that a mapping candidate decides about, at the resource's place
(`npusim.cost.resources`), and the rows below. Rows from `DSP` on belong to one operator.
"""

from __future__ import annotations

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.kernels import compiled
from npusim.cost.records import Floats
from npusim.cost.resources import (
    BODY,
    COPIED_BYTES,
    GRID_CYCLES,
    LEVEL_READ_BYTES,
    LEVEL_WRITTEN_BYTES,
    LEVELS,
    READ_BYTES,
    READ_GAPS,
    WRITTEN_BYTES,
)

DDR2CMX = 0
CMX2DDR = 1
CMX2CMX = 2
DDR2DDR = 3


@compiled
def dma_latency_s(arch: ArchRecord, direction: int, payload_bytes: float) -> float:
    """Time before the first byte arrives (s); a copy in DRAM hides its write behind its read.

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
    """Rate of `engines` engines at full width (B/s)."""
    return float(arch.dma_engine_bytes_per_cycle * arch.vpu_clock_hz * engines)


@compiled
def dma_bytes_per_s(arch: ArchRecord, direction: int, engines: float) -> float:
    """Rate of `engines` engines on one stream (B/s): their own width, or DRAM where that is narrower.

    A copy from DRAM to DRAM reads at the engines' read share, and DRAM carries each byte twice.
    """
    width = width_bytes_per_s(arch, engines)
    if direction == CMX2CMX:
        return float(width * arch.dma_cmx2cmx_share)
    if direction == CMX2DDR:
        return float(min(width * arch.dma_cmx2ddr_share, arch.dram_bytes_per_s))
    if direction == DDR2CMX:
        return float(min(width * arch.dma_ddr2cmx_share, arch.dram_bytes_per_s))
    return float(min(width * arch.dma_ddr2cmx_share, 0.5 * arch.dram_bytes_per_s))


@compiled
def row_gap_s(arch: ArchRecord, direction: int) -> float:
    """Gap before each further row (s)."""
    cycles = arch.dma_ddr2cmx_row_cycles
    if direction == CMX2CMX:
        cycles = arch.dma_cmx2cmx_row_cycles
    elif direction == CMX2DDR:
        cycles = arch.dma_cmx2ddr_row_cycles
    return float(cycles / arch.vpu_clock_hz)


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
    """Time of one transfer shared evenly by `engines` engines (s).

    Parameters
    ----------
    row_bytes : float
        Bytes of a contiguous row; 0 where the transfer is one piece.
    """
    if payload_bytes <= 0.0:
        return 0.0
    return dma_latency_s(arch, direction, payload_bytes / engines) + _payload_s(
        arch, direction, payload_bytes, row_bytes, engines
    )


@compiled
def sram_copy_s(arch: ArchRecord, copied_bytes: float) -> float:
    """Time of copies between tiles' SRAM by all engines (s)."""
    return _payload_s(arch, CMX2CMX, copied_bytes, 0.0, arch.dma_engines) if copied_bytes > 0.0 else 0.0


BLOCK = 128
"""Columns that are evaluated together, so that their rates stay in the nearest cache."""

CYCLE, READ, WRITE, GAP, COPY = GRID_CYCLES, READ_BYTES, WRITTEN_BYTES, READ_GAPS, COPIED_BYTES
"""Rows of resources by a shorter name."""
QUICK_COPY, PAGE_WALK, READ_WAIT, WRITE_WAIT, BUFFER, TILE_SRAM, SRAM, LEVEL_WAIT = range(BODY, BODY + 8)
"""Copied byte while the engines' buffers have room; address translation of a first piece beyond a page; wait
for the first byte from DRAM, and for DRAM to take the last piece; bytes of the engines' buffers, of a tile's
SRAM, of all tiles' SRAM; wait for the first byte of each memory level (`LEVELS` rows)."""
LEVEL_SOURCE = LEVEL_WAIT + LEVELS
"""Memory level that supplies the bytes of each level, `LEVELS` for DRAM (`LEVELS` rows)."""
MACHINE_RATES = LEVEL_SOURCE + LEVELS
"""Rows that hold for all operators."""
DSP, BESIDE, REFILL_WAIT = range(MACHINE_RATES, MACHINE_RATES + 3)
"""Time of an operator's DSPs; of a candidate's copies and bytes of memory levels; of its waits for refills,
infinite where it does not fit into SRAM."""
RATES = MACHINE_RATES + 3
BEST, INDEX, BEST_COARSE = range(3)
"""Rows of the table of choices: least latency so far (s), without the waits that all candidates share; its
candidate; least latency of candidates with pieces of stencils."""
CHOICES = 3
LOWER, UPPER = 0, 1
"""Columns of the table of bounds."""


@compiled
def fill_rates(arch: ArchRecord, rates: Floats, device: int, point: int) -> None:
    """Fill one column of the table of rates.

    A byte of a memory level takes as long as the DMA engines or the level need, whichever is longer. A level
    that is slower than a memory outside it supplies nothing: that memory does, so no level supplies more
    bytes than its bandwidth moves, and none makes an operator slower.

    Parameters
    ----------
    rates : array of float64, shape (array devices, RATES, BLOCK)
        Column `point` of a device is written.
    """
    width = width_bytes_per_s(arch, arch.dma_engines)
    read_s = 1.0 / dma_bytes_per_s(arch, DDR2CMX, arch.dma_engines)
    write_s = 1.0 / dma_bytes_per_s(arch, CMX2DDR, arch.dma_engines)
    wait_s, near_wait_s = dma_latency_s(arch, DDR2CMX, 0.0), dma_latency_s(arch, CMX2CMX, 0.0)
    rates[device, CYCLE, point] = 1.0 / arch.dpu_clock_hz
    rates[device, READ, point], rates[device, WRITE, point] = read_s, write_s
    rates[device, GAP, point] = row_gap_s(arch, DDR2CMX) / arch.dma_engines
    rates[device, READ_WAIT, point] = wait_s
    rates[device, WRITE_WAIT, point] = dma_latency_s(arch, CMX2DDR, 0.0)
    rates[device, PAGE_WALK, point] = arch.dma_page_walk_s
    rates[device, COPY, point] = 1.0 / dma_bytes_per_s(arch, CMX2CMX, arch.dma_engines)
    rates[device, QUICK_COPY, point] = 1.0 / width
    rates[device, BUFFER, point] = arch.dma_copy_buffer_bytes * arch.dma_engines
    rates[device, TILE_SRAM, point] = arch.sram_tile_bytes
    rates[device, SRAM, point] = arch.tiles * arch.sram_tile_bytes
    source, source_bytes_per_s = LEVELS, arch.dram_bytes_per_s
    for behind in range(LEVELS):
        k = LEVELS - 1 - behind
        if arch.level_bytes[k] > 0.0 and arch.level_bytes_per_s[k] >= source_bytes_per_s:
            source, source_bytes_per_s = k, arch.level_bytes_per_s[k]
            level_s = 1.0 / source_bytes_per_s
            read_s = min(read_s, max(level_s, 1.0 / (width * arch.dma_ddr2cmx_share)))
            write_s = min(write_s, max(level_s, 1.0 / (width * arch.dma_cmx2ddr_share)))
            wait_s = min(wait_s, near_wait_s + arch.level_latency_s[k])
        rates[device, LEVEL_READ_BYTES + k, point] = read_s
        rates[device, LEVEL_WRITTEN_BYTES + k, point] = write_s
        rates[device, LEVEL_WAIT + k, point] = wait_s
        rates[device, LEVEL_SOURCE + k, point] = source


@compiled
def are_alike(rates: Floats, others: Floats, points: int) -> bool:
    """Whether two tables have the same machine rates at the first points."""
    for d in range(rates.shape[0]):
        for r in range(MACHINE_RATES):
            for p in range(points):
                if rates[d, r, p] != others[d, r, p]:
                    return False
    return True


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


@compiled
def least_sram_bytes(rate_bounds: Floats) -> float:
    """Return the least SRAM of a tile over all points."""
    return float(rate_bounds[TILE_SRAM, UPPER])


@compiled
def greatest_sram_bytes(rate_bounds: Floats) -> float:
    """Return the greatest SRAM of a tile over all points."""
    return float(rate_bounds[TILE_SRAM, LOWER])
