"""Resources of an array device: needs of mapping candidates, demands, the bytes moved, and the energy.

`RESOURCES` has one row per resource. A mapping candidate needs the first ones (`BODY`: its columns of the
same names, in this order); the operator alone decides about the others. Vectors of demands have a column for
each resource and add up over operators. `npusim.cost.units.rates` has their seconds, the table of unit
energies their joules. Latency, busy times, traffic and energy follow from these vectors.

Energy. The technology of a SoC has an energy for MACs, for bytes through SRAM and DRAM, and for DSP lane
operations. Dynamic energy on the chip grows with the square of the voltage. Leakage, fabric and clock tree of
an NPU draw power while it works; CPU and GPU draw power while they work, with the memory traffic that they
cause. Idle power of each device counts from one inference to the next, in addition.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np

from npusim.arch.array import OUTER_LEVELS
from npusim.compiling.kernels import compiled
from npusim.compiling.records import Bytes, Floats, Number, dtype_of
from npusim.cost.lowering import tables
from npusim.cost.lowering.tables import CONVOLUTION, DPU, DSP, MATMUL, OpRecord, TilingRecord
from npusim.cost.machine.architecture import MAC_FORMATS, ArchRecord
from npusim.cost.units.grid import mac_format, mode_shape


class Server(IntEnum):
    """Unit of an array device that a resource keeps busy."""

    NONE = 0
    """Energy, but no time."""
    GRID = 1
    """MACs."""
    DSP = 2
    """Vector processors, timed by their kernels (`npusim.cost.units.dsp`)."""
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
    return Resource(f"level{level}_{verb}_bytes", "B", Server.DMA, meaning, 0.0, reads, writes)


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
"""The first of the multiply-accumulates, in the order of `npusim.cost.machine.architecture.MAC_FORMATS`."""
GRID_WRITTEN_BYTES, DSP_READ_BYTES, DSP_WRITTEN_BYTES = (
    PLACE_OF[name] for name in ("grid_written_bytes", "dsp_read_bytes", "dsp_written_bytes")
)

DRAM_OF, SRAM_READS_OF, SRAM_WRITES_OF = (
    np.array([getattr(resource, field) for resource in RESOURCES])
    for field in ("dram", "sram_reads", "sram_writes")
)
"""Bytes that a unit of each resource moves, shape (COUNT,)."""


@compiled
def fed_bytes(arch: ArchRecord, op: OpRecord, mode: int) -> float:
    """Return the bytes that the MAC grid reads from SRAM: operands once per register tile that uses them."""
    across, down, channel_groups = mode_shape(arch, mode)
    if op.dpu_operation == MATMUL or op.dpu_operation == CONVOLUTION:
        pixels = across * down * arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h
        return register_tile_fed_bytes(op, pixels, channel_groups * arch.dpu_channel_lanes)
    return float(op.elements * op.a_item)


@compiled
def register_tile_fed_bytes(
    op: OpRecord, register_tile_pixels: float, register_tile_channels: float
) -> float:
    """Return the bytes that the grid reads from SRAM for a product or convolution, by register tile size."""
    pixels = op.out_w * op.out_h
    register_tiles_c = np.ceil(op.out_c / register_tile_channels)
    register_tiles_m = np.ceil(pixels / register_tile_pixels)
    taps = op.kernel_w * op.kernel_h
    a_bytes = pixels * op.in_c * taps * op.a_item * register_tiles_c
    b_bytes = op.out_c * op.in_c * taps * op.b_item * register_tiles_m
    return float(op.batch * (a_bytes + b_bytes))


@compiled
def grid_written_bytes(op: OpRecord) -> float:
    """Return the bytes that the MAC grid writes to SRAM: its outputs, once."""
    images = op.bands if op.bands > 0.0 else op.batch  # the last band may be lower
    return float(images * op.out_w * op.out_h * op.out_c * op.c_item)


@compiled
def _grid_macs(arch: ArchRecord, op: OpRecord) -> float:
    """Return the work of the MAC grid in multiply-accumulates of the operands' format, for its energy.

    Skipped products cost nothing. Other work costs its factor for each operation: an ideal cycle is as many
    operations as there are multipliers, for every operator (VPUNN, `DPU_Power_IdealCycles`).
    """
    if op.dpu_operation == MATMUL or op.dpu_operation == CONVOLUTION:
        performed = op.macs * min(op.a_density, op.b_density)
        return float(performed * op.mac_energy * arch.energy_convolution)
    factor = arch.energy_eltwise
    if op.dpu_operation == tables.DEPTHWISE:
        factor = arch.energy_depthwise
    elif op.dpu_operation == tables.MAXPOOL:
        factor = arch.energy_maxpool
    elif op.dpu_operation == tables.AVGPOOL:
        factor = arch.energy_avgpool
    return float(max(op.macs, op.elements) * op.mac_energy * factor)


@compiled
def dsp_lane_cycles(arch: ArchRecord, op: OpRecord, dsp_s: float) -> float:
    """Return the lane cycles of DSPs that are busy with an operator for `dsp_s` seconds."""
    lanes = arch.dsp_lanes if op.dsp.vector_share > 0.5 else 1.0
    dsps = 1.0 if op.dsp.serial > 0.0 else arch.tiles * arch.dsps_per_tile
    return float(dsp_s * arch.vpu_clock_hz * dsps * lanes)


@compiled
def add_operator_demand(arch: ArchRecord, op: OpRecord, demands: Floats, row: int) -> None:
    """Add to a row of `demands` what an operator needs under any mapping, without the time of DSPs."""
    if op.unit == DPU:
        demands[row, MACS + mac_format(op.a_item)] += op.repeats * _grid_macs(arch, op)
        demands[row, GRID_WRITTEN_BYTES] += op.repeats * grid_written_bytes(op)
    elif op.unit == DSP:
        demands[row, DSP_READ_BYTES] += op.repeats * op.elements * op.a_item
        demands[row, DSP_WRITTEN_BYTES] += op.repeats * op.elements * op.c_item


@compiled
def moved_bytes(demands: Floats, row: int) -> tuple[float, float, float]:
    """Return the bytes that one row of demands moves: (to and from DRAM, read in SRAM, written there)."""
    dram = read = written = 0.0
    for r in range(COUNT):
        # Not a sum of all products: cycles may be infinite, and infinity times 0 is no number.
        dram += DRAM_OF[r] * demands[row, r] if DRAM_OF[r] > 0.0 else 0.0
        read += SRAM_READS_OF[r] * demands[row, r] if SRAM_READS_OF[r] > 0.0 else 0.0
        written += SRAM_WRITES_OF[r] * demands[row, r] if SRAM_WRITES_OF[r] > 0.0 else 0.0
    return dram, read, written


_SRAM, _DRAM, _LANE, STATIC_W, _MAC = range(5)
"""Columns of the table of unit energies, by device and state: joules of a byte in SRAM, of a byte to or from
DRAM, of a cycle of a DSP lane; watts while the device works; joules of a multiply-accumulate (one column per
format)."""
_FORMATS = len(MAC_FORMATS)
_LEVEL_READ = _MAC + _FORMATS
"""Joules of a byte from a memory level, with its filling (`LEVELS` columns)."""
_LEVEL_WRITE = _LEVEL_READ + LEVELS
"""Joules of a byte written to a memory level (`LEVELS` columns)."""
UNIT_ENERGIES = _LEVEL_WRITE + LEVELS


@compiled
def fill_unit_energies(arch: ArchRecord, unit_j: Floats, device: int, row: int) -> None:
    """Fill a row of the unit energies of an array device, shape (array devices, rows, UNIT_ENERGIES)."""
    unit_j[device, row, _SRAM], unit_j[device, row, _DRAM] = arch.sram_j_per_byte, arch.dram_j_per_byte
    unit_j[device, row, _LANE], unit_j[device, row, STATIC_W] = arch.dsp_j_per_lane_op, arch.static_w
    for f in range(_FORMATS):
        unit_j[device, row, _MAC + f] = arch.mac_j[f]
    for k in range(LEVELS):
        unit_j[device, row, _LEVEL_READ + k] = arch.read_j[k] + arch.write_j[k]
        unit_j[device, row, _LEVEL_WRITE + k] = arch.write_j[k]


@compiled
def dynamic_j(
    demands: Floats, row: int, dram_bytes: float, sram_bytes: float, unit_j: Floats, state: int
) -> tuple[float, float, float, float]:
    """Return the dynamic energy of a row of demands (J): (MACs, SRAM with memory levels, DRAM, DSPs).

    Parameters
    ----------
    dram_bytes, sram_bytes : float
        Bytes that the demands move (`moved_bytes`).
    unit_j : array of float64, shape (states, UNIT_ENERGIES)
    """
    mac, sram = 0.0, sram_bytes * unit_j[state, _SRAM]
    for f in range(_FORMATS):
        mac += demands[row, MACS + f] * unit_j[state, _MAC + f]
    for k in range(LEVELS):
        sram += demands[row, LEVEL_READ_BYTES + k] * unit_j[state, _LEVEL_READ + k]
        sram += demands[row, LEVEL_WRITTEN_BYTES + k] * unit_j[state, _LEVEL_WRITE + k]
    dsp = demands[row, LANE_CYCLES] * unit_j[state, _LANE]
    return mac, sram, dram_bytes * unit_j[state, _DRAM], dsp


class NeedsRecord:
    """Needs of a mapping: a column for each resource of a candidate, in their order."""

    if TYPE_CHECKING:  # the columns of the table of resources

        def __getattr__(self, name: str) -> float: ...
        def __setattr__(self, name: str, value: float) -> None: ...


NeedsRecord.__annotations__ = {
    resource.name: Annotated[float, resource.unit, resource.meaning] for resource in RESOURCES[:BODY]
}


class CandidateRecord(TilingRecord, NeedsRecord):
    """A mapping of one operator: its needs of resources, its tiling, and further needs.

    `npusim.cost.units.levels.serve_rows` deducts the bytes of memory levels after the search.
    """

    prologue_bytes: Bytes
    """The first piece in, which overlaps with no work."""
    known_bytes: Bytes
    """Part of the prologue that exists before the inference begins (`npusim.cost.network.prefetch`)."""
    epilogue_bytes: Bytes
    """The last piece out, which overlaps with no work."""
    streamed_bytes: Bytes
    """Streamed through SRAM of a tile (`refills`)."""
    held_bytes: Bytes
    """SRAM of a tile for live tensors and stationary operands."""
    needed_bytes: Bytes
    """Least SRAM of a tile."""
    most_bytes: Bytes
    """SRAM of a tile from which on half as many parts fit and so many are not tried; else infinite."""
    page_walks: Number
    """First pieces that wait for address translation."""
    restarts: Number
    """Blocks of a single-buffered operand after the first: work and transfers pause before each."""
    sram_peak_bytes: Bytes
    """Largest working set of all tiles with live tensors."""
    fine: Number
    """1 where pieces are smaller than a register tile: chosen only where strictly faster."""


CANDIDATE_DTYPE = dtype_of(CandidateRecord)
CANDIDATE_SIZE = CANDIDATE_DTYPE.itemsize // 8
"""Numbers of a candidate; as numbers, its first ones are a vector over resources."""


@compiled
def refills(candidate: CandidateRecord, sram_tile_bytes: float) -> float:
    """Return how often the streamed operand fills its free SRAM."""
    if candidate.streamed_bytes <= 0.0:
        return 0.0
    return float(candidate.streamed_bytes / (sram_tile_bytes - candidate.held_bytes))


@compiled
def halo_factor(op: OpRecord, row_blocks: float, strips: float) -> float:
    """Return the fetched over the existing input pixels, for one pass over the activations."""
    if op.dpu_operation == MATMUL:
        return 1.0
    # Neighbouring blocks and strips both fetch the input rows and columns that their windows share.
    shared_rows = min(op.in_h, max(0.0, op.kernel_h - op.stride_h)) / op.in_h
    shared_columns = min(op.in_w, max(0.0, op.kernel_w - op.stride_w)) / op.in_w
    return float((1.0 + (row_blocks - 1.0) * shared_rows) * (1.0 + (strips - 1.0) * shared_columns))
