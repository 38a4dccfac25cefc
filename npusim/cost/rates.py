"""Rates: seconds of a unit of each resource at each point of a block; their bounds over many."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.dma import CMX2CMX, CMX2DDR, DDR2CMX, bytes_per_s, latency_s, row_gap_s, width_bytes_per_s
from npusim.cost.jit import compiled
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

BLOCK = 128
"""Columns that are evaluated at a time, so that their rates stay in the nearest cache."""


class Rate(IntEnum):
    """Rows of the table of rates, a column for each point of a block.

    The first rows are seconds of a unit of each resource that a candidate decides about, at the resource's
    place (`npusim.cost.resources`); some of them have a name here as well.
    """

    CYCLE = GRID_CYCLES
    """Cycle of the MAC grid."""
    READ = READ_BYTES
    """Byte from DRAM, by all engines."""
    WRITE = WRITTEN_BYTES
    """Byte to DRAM."""
    GAP = READ_GAPS
    """Gap between two rows that are read."""
    COPY = COPIED_BYTES
    """Byte copied within SRAM ..."""
    QUICK_COPY = BODY
    """... and while the engines' buffers are not full."""
    PAGE_WALK = BODY + 1
    """Translation of the address of a first piece beyond a page."""
    READ_WAIT = BODY + 2
    """Wait for the first byte from DRAM."""
    WRITE_WAIT = BODY + 3
    """Wait for DRAM to take the last piece."""
    BUFFER = BODY + 4
    """Bytes (not seconds) that the engines' buffers take."""
    TILE_SRAM = BODY + 5
    """Bytes (not seconds) that a tile's SRAM has ..."""
    SRAM = BODY + 6
    """... and that of all tiles together."""
    LEVEL_WAIT = BODY + 7
    """Wait for the first byte from each memory level, a row each."""
    # Of one operator
    DSP = BODY + 7 + LEVELS
    """Time of the DSPs for all of the operator; 0 where they have no part in it."""
    BESIDE = BODY + 8 + LEVELS
    """Time of the candidate that is evaluated for copies and for bytes of memory levels."""
    REFILL_WAIT = BODY + 9 + LEVELS
    """Its waits for refills; infinite where it does not fit into SRAM."""


class Choice(IntEnum):
    """Rows of the table of choices: of each point of a block what is best so far."""

    BEST = 0
    """Latency without the waits that all candidates share (s); infinite where there is no candidate."""
    INDEX = 1
    """Index of the candidate in the table of candidates."""
    BEST_COARSE = 2
    """The best latency of those with pieces of stencils."""


MACHINE_RATES = int(Rate.DSP)
"""Rows that hold for all operators."""
RATES, CHOICES = int(Rate.REFILL_WAIT) + 1, len(Choice)

_CYCLE, _READ, _WRITE, _GAP, _PAGE_WALK = (
    int(Rate.CYCLE),
    int(Rate.READ),
    int(Rate.WRITE),
    int(Rate.GAP),
    int(Rate.PAGE_WALK),
)
_READ_WAIT, _WRITE_WAIT, _LEVEL_WAIT = int(Rate.READ_WAIT), int(Rate.WRITE_WAIT), int(Rate.LEVEL_WAIT)
_COPY, _QUICK_COPY, _BUFFER = int(Rate.COPY), int(Rate.QUICK_COPY), int(Rate.BUFFER)
_TILE_SRAM, _SRAM = int(Rate.TILE_SRAM), int(Rate.SRAM)
LOWER, UPPER = 0, 1
"""Columns of the table of bounds."""


@compiled
def fill_rates(arch: ArchRecord, rates: Any, device: int, point: int) -> None:
    """Fill one column of the table of rates.

    A byte from a memory level takes as long as the DMA engines or the level take, whichever is longer, and
    never longer than from the level outside: they are filled from DRAM to the tiles.

    Parameters
    ----------
    rates : array of float64, shape (array devices, RATES, BLOCK)
        Column `point` of a device is written.
    """
    width = width_bytes_per_s(arch, arch.dma_engines)
    read_s, write_s = (
        1.0 / bytes_per_s(arch, DDR2CMX, arch.dma_engines),
        1.0 / bytes_per_s(arch, CMX2DDR, arch.dma_engines),
    )
    wait_s, near_wait_s = latency_s(arch, DDR2CMX, 0.0), latency_s(arch, CMX2CMX, 0.0)
    rates[device, _CYCLE, point] = 1.0 / arch.dpu_clock_hz
    rates[device, _READ, point], rates[device, _WRITE, point] = read_s, write_s
    rates[device, _GAP, point] = row_gap_s(arch, DDR2CMX) / arch.dma_engines
    rates[device, _READ_WAIT, point], rates[device, _WRITE_WAIT, point] = (
        wait_s,
        latency_s(arch, CMX2DDR, 0.0),
    )
    rates[device, _PAGE_WALK, point] = arch.dma_page_walk_s
    rates[device, _COPY, point] = 1.0 / bytes_per_s(arch, CMX2CMX, arch.dma_engines)
    rates[device, _QUICK_COPY, point] = 1.0 / width
    rates[device, _BUFFER, point] = arch.dma_copy_buffer_bytes * arch.dma_engines
    rates[device, _TILE_SRAM, point] = arch.sram_tile_bytes
    rates[device, _SRAM, point] = arch.tiles * arch.sram_tile_bytes
    for behind in range(LEVELS):
        k = LEVELS - 1 - behind
        if arch.level_bytes[k] > 0.0:
            level_s = 1.0 / arch.level_bytes_per_s[k]
            read_s = min(read_s, max(level_s, 1.0 / (width * arch.dma_ddr2cmx_share)))
            write_s = min(write_s, max(level_s, 1.0 / (width * arch.dma_cmx2ddr_share)))
            wait_s = min(wait_s, near_wait_s + arch.level_latency_s[k])
        rates[device, LEVEL_READ_BYTES + k, point], rates[device, LEVEL_WRITTEN_BYTES + k, point] = (
            read_s,
            write_s,
        )
        rates[device, _LEVEL_WAIT + k, point] = wait_s


@compiled
def are_alike(rates: Any, others: Any, points: int) -> bool:
    """Whether two tables of all devices have the same rates at the first points, those of operators apart."""
    for d in range(rates.shape[0]):
        for r in range(MACHINE_RATES):
            for p in range(points):
                if rates[d, r, p] != others[d, r, p]:
                    return False
    return True


@compiled
def widen_rate_bounds(rates: Any, points: int, rate_bounds: Any) -> None:
    """Widen the lower and upper bound of each rate, two columns of a table, to those of some points."""
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
        rate_bounds[_READ, LOWER] = min(rate_bounds[_READ, LOWER], rates[LEVEL_READ_BYTES, p])
        rate_bounds[_WRITE, LOWER] = min(rate_bounds[_WRITE, LOWER], rates[LEVEL_WRITTEN_BYTES, p])


@compiled
def start_rate_bounds(rate_bounds: Any) -> None:
    """Write the bounds of rates over no point."""
    for r in range(RATES):
        rate_bounds[r, LOWER], rate_bounds[r, UPPER] = (-np.inf, np.inf) if _is_room(r) else (np.inf, -np.inf)


@compiled
def clear_rate_bounds(rate_bounds: Any) -> None:
    """Forget the bounds of rates but those of SRAM, so that no candidate is ruled out by its latency."""
    for r in range(RATES):
        if r != _TILE_SRAM:
            rate_bounds[r, LOWER], rate_bounds[r, UPPER] = 0.0, np.inf


@compiled
def widen_sram_bounds(sram_tile_bytes: float, rate_bounds: Any) -> None:
    """Widen the bounds of a tile's SRAM to a size."""
    rate_bounds[_TILE_SRAM, UPPER] = min(rate_bounds[_TILE_SRAM, UPPER], sram_tile_bytes)
    rate_bounds[_TILE_SRAM, LOWER] = max(rate_bounds[_TILE_SRAM, LOWER], sram_tile_bytes)


@compiled
def _is_room(rate: int) -> bool:
    """Whether a row of the table of rates has bytes of room."""
    return rate in (_BUFFER, _TILE_SRAM, _SRAM)


@compiled
def least_sram_bytes(rate_bounds: Any) -> float:
    """Return the least SRAM of a tile over all points."""
    return float(rate_bounds[_TILE_SRAM, UPPER])


@compiled
def greatest_sram_bytes(rate_bounds: Any) -> float:
    """Return the greatest SRAM of a tile over all points."""
    return float(rate_bounds[_TILE_SRAM, LOWER])
