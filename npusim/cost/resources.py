"""Resources of an array device: what its work needs, and what a unit of each does there.

One row for each resource. A mapping candidate says how many units of the first ones it needs (`BODY`: its
columns of the same names, in this order), an operator how many of the others (`npusim.cost.demands`).
Rates are the seconds of a unit (`npusim.cost.rates`), other tables its joules (`npusim.cost.energy`).
Latency, busy times, traffic and energy are read out of these vectors.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from npusim.arch.array import OUTER_LEVELS


class Server(IntEnum):
    """Unit of an array device that a resource keeps busy."""

    NONE = 0
    """It takes energy, but no time of its own."""
    GRID = 1
    """MACs."""
    DSP = 2
    """Vector processors; how long they take is their kernel's (`npusim.cost.dsp`)."""
    DMA = 3
    """DMA engines."""


class Resource(NamedTuple):
    """One resource."""

    name: str
    unit: str
    server: Server
    meaning: str
    dram: float = 0.0
    """Bytes between DRAM and the device with each unit."""
    sram_reads: float = 0.0
    """Bytes read in SRAM with each unit ..."""
    sram_writes: float = 0.0
    """... and written."""


def _level(level: int, verb: str, reads: float, writes: float) -> Resource:
    meaning = f"{verb.capitalize()} in memory level {level}, the nearest first."
    name = f"level{level}_{verb}_bytes"
    return Resource(name, "B", Server.DMA, meaning, sram_reads=reads, sram_writes=writes)


LEVELS = OUTER_LEVELS
"""Most memory levels of a device."""

_BODY = (
    Resource("grid_cycles", "cycles", Server.GRID, "Cycles of the busiest tile's MAC grid."),
    Resource("read_bytes", "B", Server.DMA, "Read from DRAM.", dram=1.0, sram_writes=1.0),
    Resource("written_bytes", "B", Server.DMA, "Written to DRAM.", dram=1.0, sram_reads=1.0),
    Resource("read_gaps", "", Server.DMA, "Gaps between rows of what is read, all engines together."),
    Resource("copied_bytes", "B", Server.DMA, "Copied between the tiles' SRAM.", 0.0, 1.0, 1.0),
    Resource("fed_bytes", "B", Server.NONE, "Read in SRAM by the MAC grid.", sram_reads=1.0),
    *(_level(k, "read", 0.0, 1.0) for k in range(LEVELS)),
    *(_level(k, "written", 1.0, 0.0) for k in range(LEVELS)),
)
BODY = len(_BODY)
"""Resources that a mapping candidate decides about."""

RESOURCES: tuple[Resource, ...] = (
    *_BODY,
    Resource("int4_macs", "", Server.NONE, "Multiply-accumulates of the MAC grid in int4 ..."),
    Resource("int8_macs", "", Server.NONE, "... in int8 ..."),
    Resource("fp16_macs", "", Server.NONE, "... in fp16 ..."),
    Resource("fp32_macs", "", Server.NONE, "... and in fp32."),
    Resource("grid_written_bytes", "B", Server.NONE, "Written in SRAM by the MAC grid.", sram_writes=1.0),
    Resource("dsp_read_bytes", "B", Server.NONE, "Read in SRAM by the DSPs.", sram_reads=1.0),
    Resource("dsp_written_bytes", "B", Server.NONE, "Written in SRAM by the DSPs.", sram_writes=1.0),
    Resource("lane_cycles", "cycles", Server.DSP, "Cycles of single DSP lanes."),
)
"""All of them; the place of one is its column in every vector of demands."""

PLACE_OF = {resource.name: place for place, resource in enumerate(RESOURCES)}
COUNT = len(RESOURCES)
GRID_CYCLES, READ_BYTES, WRITTEN_BYTES, READ_GAPS, COPIED_BYTES, FED_BYTES = range(6)
LEVEL_READ_BYTES, LEVEL_WRITTEN_BYTES = PLACE_OF["level0_read_bytes"], PLACE_OF["level0_written_bytes"]
"""The first of `LEVELS` places each."""
MACS, LANE_CYCLES = PLACE_OF["int4_macs"], PLACE_OF["lane_cycles"]
"""The first of the multiply-accumulates, in the order of `npusim.cost.architecture.MAC_FORMATS`."""
GRID_WRITTEN_BYTES, DSP_READ_BYTES, DSP_WRITTEN_BYTES = (
    PLACE_OF[name] for name in ("grid_written_bytes", "dsp_read_bytes", "dsp_written_bytes")
)

DRAM_OF, SRAM_READS_OF, SRAM_WRITES_OF = (
    np.array([getattr(resource, field) for resource in RESOURCES])
    for field in ("dram", "sram_reads", "sram_writes")
)
"""Bytes that a unit of each resource moves, shape (COUNT,)."""
