"""Rows of the tables of rates and choices that a block of design points is evaluated by."""

from __future__ import annotations

from enum import IntEnum

BLOCK = 128
"""Points that are evaluated at a time, so that their rates stay in the nearest cache."""


class Rate(IntEnum):
    """Rows of the table of rates: seconds per unit of each amount, a column for each point of a block."""

    CYCLE = 0
    """Cycle of the MAC grid."""
    READ = 1
    """Byte from DRAM, by all engines."""
    WRITE = 2
    """Byte to DRAM."""
    GAP = 3
    """Gap between two rows that are read."""
    PAGE_WALK = 4
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
    TILE_SRAM = 10
    """Bytes (not seconds) that a tile's SRAM has ..."""
    SRAM = 11
    """... and that of all tiles together."""
    # Of one operator
    DSP = 12
    """Time of the DSPs for all of the operator; 0 where they have no part in it."""
    COPIES = 13
    """Time of the copies of the candidate that is evaluated."""
    REFILL_WAIT = 14
    """Its waits for refills; infinite where it does not fit into SRAM."""


class Choice(IntEnum):
    """Rows of the table of choices: of each point of a block what is best so far."""

    BEST = 0
    """Latency without the waits that all candidates share (s); infinite where there is no candidate."""
    INDEX = 1
    """Index of the candidate in the table of candidates."""
    BEST_COARSE = 2
    """The best latency of those with pieces of stencils."""
