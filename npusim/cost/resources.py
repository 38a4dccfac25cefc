"""Resources of an array device: what work needs of each, the bytes that it moves, and its energy.

One row of `RESOURCES` for each resource. A mapping candidate needs units of the first ones (`BODY`: its
columns of the same names, in this order); the operator alone decides about the others. Vectors of demands
have a column for each resource, and add up over operators. Their seconds stand in `npusim.cost.rates`, their
joules in the table of energies of units. Latency, busy times, traffic and energy are read out of these
vectors.

Energy. MACs, bytes through SRAM and DRAM, and DSP lane operations have an energy each in the SoC's
technology. Dynamic energy on the chip goes with the square of the voltage. The NPU's leakage, fabric and
clock tree draw power while it works. CPU and GPU draw their power while they work, with the memory traffic
that they cause. What each device draws idle counts from one inference to the next; all of the above is beyond
it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from npusim.arch.array import OUTER_LEVELS
from npusim.cost.architecture import MAC_FORMATS, ArchRecord
from npusim.cost.grid import mac_format, mode_shape
from npusim.cost.kernels import compiled
from npusim.cost.records import Floats, Ints
from npusim.cost.tables import DpuOperation, OpRecord, Unit


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
    """Bytes read in SRAM with each unit."""
    sram_writes: float = 0.0
    """Bytes written in SRAM with each unit."""


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
    Resource("int4_macs", "", Server.NONE, "Multiply-accumulates of the MAC grid in int4."),
    Resource("int8_macs", "", Server.NONE, "Multiply-accumulates in int8."),
    Resource("fp16_macs", "", Server.NONE, "Multiply-accumulates in fp16."),
    Resource("fp32_macs", "", Server.NONE, "Multiply-accumulates in fp32."),
    Resource("grid_written_bytes", "B", Server.NONE, "Written in SRAM by the MAC grid.", sram_writes=1.0),
    Resource("dsp_read_bytes", "B", Server.NONE, "Read in SRAM by the DSPs.", sram_reads=1.0),
    Resource("dsp_written_bytes", "B", Server.NONE, "Written in SRAM by the DSPs.", sram_writes=1.0),
    Resource("lane_cycles", "cycles", Server.DSP, "Cycles of single DSP lanes."),
)
"""The place of a resource is its column in every vector of demands."""

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


_MATMUL, _CONVOLUTION = int(DpuOperation.MATMUL), int(DpuOperation.CONVOLUTION)
_DEPTHWISE, _MAXPOOL = int(DpuOperation.DEPTHWISE), int(DpuOperation.MAXPOOL)
_AVGPOOL = int(DpuOperation.AVGPOOL)
_DPU, _DSP = int(Unit.DPU), int(Unit.DSP)
DRAM_BYTES, SRAM_READ_BYTES, SRAM_WRITTEN_BYTES = range(3)
"""Columns of the table of bytes that are moved (`fill_moved`)."""
MOVED = 3


@compiled
def fed_bytes(arch: ArchRecord, op: OpRecord, mode: int) -> float:
    """Bytes that the MAC grid reads in SRAM: operands once for each stencil that uses them."""
    across, down, channel_groups = mode_shape(arch, mode)
    if op.dpu_operation == _MATMUL or op.dpu_operation == _CONVOLUTION:
        pixels = across * down * arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h
        return stencil_fed_bytes(op, pixels, channel_groups * arch.dpu_channel_lanes)
    return float(op.elements * op.a_item)


@compiled
def stencil_fed_bytes(op: OpRecord, stencil_pixels: float, stencil_channels: float) -> float:
    """Bytes that the MAC grid reads in SRAM for a product or convolution in stencils of a size."""
    pixels = op.out_w * op.out_h
    stencils_c = np.ceil(op.out_c / stencil_channels)
    stencils_m = np.ceil(pixels / stencil_pixels)
    taps = op.kernel_w * op.kernel_h
    a_bytes = pixels * op.in_c * taps * op.a_item * stencils_c
    b_bytes = op.out_c * op.in_c * taps * op.b_item * stencils_m
    return float(op.batch * (a_bytes + b_bytes))


@compiled
def grid_written_bytes(op: OpRecord) -> float:
    """Bytes that the MAC grid writes to SRAM: its outputs, once."""
    return float(op.batch * op.out_w * op.out_h * op.out_c * op.c_item)


@compiled
def grid_macs(arch: ArchRecord, op: OpRecord) -> float:
    """Work of the MAC grid in the energy of multiply-accumulates of the operands' format.

    Skipped products cost nothing. Other work costs its factor for each operation: an ideal cycle is as many
    operations as there are multipliers, of every operator alike (VPUNN, `DPU_Power_IdealCycles`).
    """
    if op.dpu_operation == _MATMUL or op.dpu_operation == _CONVOLUTION:
        return float(op.macs * min(op.a_density, op.b_density) * arch.energy_convolution)
    factor = arch.energy_eltwise
    if op.dpu_operation == _DEPTHWISE:
        factor = arch.energy_depthwise
    elif op.dpu_operation == _MAXPOOL:
        factor = arch.energy_maxpool
    elif op.dpu_operation == _AVGPOOL:
        factor = arch.energy_avgpool
    return float(max(op.macs, op.elements) * factor)


@compiled
def dsp_lane_cycles(arch: ArchRecord, op: OpRecord, dsp_s: float) -> float:
    """Cycles of single lanes in which the DSPs are busy with an operator for `dsp_s` seconds."""
    lanes = arch.dsp_lanes if op.dsp.vector_share > 0.5 else 1.0
    dsps = 1.0 if op.dsp.serial > 0.0 else arch.tiles * arch.dsps_per_tile
    return float(dsp_s * arch.vpu_clock_hz * dsps * lanes)


@compiled
def add_operator_demand(arch: ArchRecord, op: OpRecord, demands: Floats, row: int) -> None:
    """Add what an operator needs on an array device under any mapping, without the time of DSPs.

    Parameters
    ----------
    demands : array of float64, shape (rows, COUNT)
        A row is added to.
    """
    if op.unit == _DPU:
        demands[row, MACS + mac_format(op.a_item)] += op.repeats * grid_macs(arch, op)
        demands[row, GRID_WRITTEN_BYTES] += op.repeats * grid_written_bytes(op)
    elif op.unit == _DSP:
        demands[row, DSP_READ_BYTES] += op.repeats * op.elements * op.a_item
        demands[row, DSP_WRITTEN_BYTES] += op.repeats * op.elements * op.c_item


@compiled
def fill_moved(demands: Floats, rows: int, moved: Floats) -> None:
    """Read out of demands the bytes that are moved.

    Parameters
    ----------
    demands : array of float64, shape (rows, COUNT)
    moved : array of float64, shape (rows, MOVED)
        Written: between DRAM and the device, read in its SRAM, written there.
    """
    for row in range(rows):
        dram = read = written = 0.0
        for r in range(COUNT):
            # Not a sum of all products: cycles may be infinite, and infinity times 0 is no number.
            dram += DRAM_OF[r] * demands[row, r] if DRAM_OF[r] > 0.0 else 0.0
            read += SRAM_READS_OF[r] * demands[row, r] if SRAM_READS_OF[r] > 0.0 else 0.0
            written += SRAM_WRITES_OF[r] * demands[row, r] if SRAM_WRITES_OF[r] > 0.0 else 0.0
        moved[row, DRAM_BYTES], moved[row, SRAM_READ_BYTES] = dram, read
        moved[row, SRAM_WRITTEN_BYTES] = written


SRAM, DRAM, LANE, STATIC_W, MAC = range(5)
"""Columns of the table of energies of units, by device and state: joules of a byte in SRAM, of a byte to or
from DRAM, of a cycle of a DSP lane; watts while the device works; joules of a multiply-accumulate (one column
for each of `MAC_FORMATS`)."""
LEVEL_READ = MAC + len(MAC_FORMATS)
"""Joules of a byte that a memory level supplies, with its filling (`LEVELS` columns)."""
LEVEL_WRITE = LEVEL_READ + LEVELS
"""Joules of a byte that is written there (`LEVELS` columns)."""
UNIT_ENERGIES = LEVEL_WRITE + LEVELS
MAC_J, SRAM_J, DRAM_J, DSP_J = range(4)
"""Columns of the table of energies of work on an array device."""
PARTS = 4
FORMATS = len(MAC_FORMATS)


@compiled
def fill_unit_energies(arch: ArchRecord, unit_j: Floats, device: int, row: int) -> None:
    """Fill a row of the table of energies of units of an array device.

    Parameters
    ----------
    unit_j : array of float64, shape (array devices, rows, UNIT_ENERGIES)
    """
    unit_j[device, row, SRAM], unit_j[device, row, DRAM] = arch.sram_j_per_byte, arch.dram_j_per_byte
    unit_j[device, row, LANE], unit_j[device, row, STATIC_W] = arch.dsp_j_per_lane_op, arch.static_w
    for f in range(FORMATS):
        unit_j[device, row, MAC + f] = arch.mac_j[f]
    for k in range(LEVELS):
        unit_j[device, row, LEVEL_READ + k] = arch.level_read_j[k] + arch.level_write_j[k]
        unit_j[device, row, LEVEL_WRITE + k] = arch.level_write_j[k]


@compiled
def fill_energies(
    demands: Floats,
    moved: Floats,
    demand_of: Ints,
    unit_j: Floats,
    state_of: Ints,
    points: int,
    energies: Floats,
) -> None:
    """Read the dynamic energy of work on an array device out of what it needs, by part (J).

    Parameters
    ----------
    demands, moved : array of float64, shape (rows, COUNT) and (rows, MOVED)
        What the work needs, and the bytes that it moves (`npusim.cost.resources`).
    unit_j : array of float64, shape (rows, UNIT_ENERGIES)
    demand_of, state_of : array of int64, shape (points,)
        Rows of the tables above that hold at each point.
    energies : array of float64, shape (points, PARTS)
        Written: MACs, SRAM with memory levels, DRAM, DSPs.
    """
    for p in range(points):
        demand, state = demand_of[p], state_of[p]
        mac, traffic = 0.0, moved[demand, SRAM_READ_BYTES] + moved[demand, SRAM_WRITTEN_BYTES]
        sram = traffic * unit_j[state, SRAM]
        for f in range(FORMATS):
            mac += demands[demand, MACS + f] * unit_j[state, MAC + f]
        for k in range(LEVELS):
            sram += demands[demand, LEVEL_READ_BYTES + k] * unit_j[state, LEVEL_READ + k]
            sram += demands[demand, LEVEL_WRITTEN_BYTES + k] * unit_j[state, LEVEL_WRITE + k]
        energies[p, MAC_J], energies[p, SRAM_J] = mac, sram
        energies[p, DRAM_J] = moved[demand, DRAM_BYTES] * unit_j[state, DRAM]
        energies[p, DSP_J] = demands[demand, LANE_CYCLES] * unit_j[state, LANE]
