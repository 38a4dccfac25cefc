"""Records of the architecture table: the data sheet of a SoC as the numbers that equations read.

A design point has columns that all devices share (DRAM, process node, requests), a record for each *array
device* (NPU, accelerator) and a record for each *host* (CPU, GPU: `npusim.cost.machine.hosts`). Most columns
are one number of the data sheet; the others follow from them (`derive`): lanes, energy at the voltage, area,
leakage, rooflines. A sweep writes new numbers into a point and calls `derive`, so an estimate and a sweep
agree by construction. `npusim.cost.machine.design_point` fills the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from npusim.arch.array import GRID_FORMATS, OPERANDS, OUTER_LEVELS
from npusim.arch.dpu import DpuModel, EnergyFactors
from npusim.arch.npu import DmaModel, Npu
from npusim.arch.silicon import Parts, Technology
from npusim.arch.soc import SHEET_PATHS
from npusim.compiling import records
from npusim.compiling.kernels import compiled
from npusim.compiling.records import Elements, Floats, Number, Vector, columns_at, dtype_of
from npusim.cost.machine.hosts import DramRates, derive_host, dynamic_scale, leakage_scale
from npusim.cost.machine.silicon import LAW_SIZE, sram_law, supply_voltage
from npusim.cost.machine.spatial_array import ArrayRecord

MAC_FORMATS: tuple[str, ...] = GRID_FORMATS
"""Formats by width that a MAC unit may work in; others run at a multiple of the rate of one of these."""
BIT_OF = {name: float(1 << i) for i, name in enumerate(OPERANDS)}
"""Bit of each operand that may pass through a level."""
MODES = 3
"""MPE modes of a grid."""
_Modes = Annotated[Vector, MODES, "groups"]
_Formats = Annotated[Vector, len(MAC_FORMATS), "B"]
_Levels = Annotated[Vector, OUTER_LEVELS, ""]
_Energy = Annotated[float, "J"]
_Law = Annotated[Vector, LAW_SIZE, ""]
_Sizes = tuple[float, float, float]


_SEARCHED = {
    "npu_tiles": "tiles",
    "most_contexts": "contexts",
    "dpu_vpe": "dpu.grid.vpe",
    "dpu_mpe": "dpu.grid.mpe",
    "dpu_sum_bytes": "dpu.grid.accumulator",
    "dpu_skips_by_both": "dpu.skips_by_both",
    "dpu_read_ports": "sram.read_ports",
    "dpu_sram_word_bytes": "sram.word",
    "sram_tile_bytes": "sram.per_tile",
    "stream_pieces": "schedule.stream_pieces",
    "fewest_buffers": "schedule.fewest_buffers",
    "prefetch": "schedule.prefetch",
    "symg_transposed_rate": "symg.transposed_read_rate",
    "dma_page_bytes": "dma.model.page_bytes",
    **{f"dpu_{name}": f"dpu.model.{name}" for name in DpuModel.model_fields},
    **{f"energy_{name}": f"dpu.energy_factors.{name}" for name in EnergyFactors.model_fields},
}
_RATED = {
    "dpu_clock_hz": "dpu.clock",
    "vpu_clock_hz": "vpu_clock",
    "dma_engines": "dma.engines",
    "dma_engine_bytes_per_cycle": "dma.width",
    **{f"dma_{name}": f"dma.model.{name}" for name in DmaModel.model_fields if name != "page_bytes"},
}
_FURTHER = {
    "launch_s": "launch_overhead",
    "dispatch_s": "dispatch_overhead",
    "voltage": "voltage",
    "rated_clock_hz": "power.rated_at.clock",
    "rated_voltage": "power.rated_at.voltage",
    "active_w": "power.active",
    "npu_idle_w": "power.idle",
    "sram_reserved_bytes": "sram.reserved",
    "dpu_stages": "dpu.grid.stages",
    "dsps_per_tile": "dsp.per_tile",
    "dsp_lanes": "dsp.lanes.fp16",
}
NPU_COLUMNS = _SEARCHED | _RATED | _FURTHER
"""Columns of an array device with a number of its data sheet."""
SHEET_COLUMNS = {f"sheet_{column}": path for column, path in NPU_COLUMNS.items() if path in SHEET_PATHS}
"""Columns with a number of the data sheet that settings leave."""
TECHNOLOGY_COLUMNS = {
    "nominal_voltage": "nominal_voltage",
    "tech_sram_j_per_byte": "energy.sram",
    "tech_dsp_j_per_lane_op": "energy.dsp_op",
    "dram_j_per_byte": "energy.dram",
    "leakage_w_per_m2": "leakage",
    "leakage_rise": "leakage_rise",
    "rise": "rise",
    "sram_m2_per_byte": "area.sram",
    "dsp_m2": "area.dsp",
    "dma_engine_m2": "area.dma_engine",
    "fixed_m2": "area.fixed",
}
"""Columns with a number of the technology."""

PART_COLUMNS = (
    *("dsp_lane_share", "dma_width_share", "interface_share"),
    *("stage_area", "stage_energy", "stage_delay", "wire"),
    *("leakage_doubling", "sequencer_share", "fabric_share"),
)
"""Columns with a number of the parts besides memories (`npusim.arch.silicon.Parts`)."""


@columns_at(Npu, _SEARCHED)
class SearchedColumns:
    """Columns that the tiling search reads: sizes, capacities and cycles."""

    wanted_tiles: Number
    """Tiles of an inference where the chip has them."""
    dpu_mac_bytes_per_cycle: _Formats
    """Bytes of input channels that a MAC unit takes in a cycle, by format."""
    dpu_mode_w: _Modes
    """Groups of pixels along the width of a register tile, by MPE mode."""
    dpu_mode_h: _Modes
    """Groups of pixels along the height of a register tile, by MPE mode."""
    dpu_mode_c: _Modes
    """Groups of channels of a register tile, by MPE mode."""
    level_bytes: _Levels
    """Capacity of each memory level between SRAM and DRAM, the nearest first; 0: no such level."""
    level_operands: _Levels
    """Operands that pass through it, a bit each (`npusim.cost.units.levels`)."""
    level_is_cache: _Levels
    """1 for a cache, 0 where software manages it."""
    shared_place: Number
    """Place of the shared level, counted from 1; 0: none."""
    shared_level: Number
    """Number of the shared level in the SoC, counted from 1."""
    objective: Number
    """What mappings are chosen for: its number in `npusim.arch.npu.MAPPING_OBJECTIVES`."""
    array: ArrayRecord
    """The MACs of a tile under a dataflow; all 0 where the register tiles of the grid run products."""

    if TYPE_CHECKING:  # the columns of the data sheet

        def __getattr__(self, name: str) -> float: ...


@columns_at(Npu, _RATED)
class RatedColumns(SearchedColumns):
    """Columns that the rates of operators depend on, without DSPs, hosts and DRAM."""

    level_bytes_per_s: _Levels
    """Bandwidth of each level, all banks."""
    level_latency_s: _Levels
    """Wait for its first byte."""
    level_read_j: _Levels
    """Energy of a byte that is read there."""
    level_write_j: _Levels
    """Energy of a byte that is written there."""


@columns_at(Npu, SHEET_COLUMNS)
@columns_at(Npu, _FURTHER)
class PrimitiveColumns(RatedColumns):
    """All columns of an array device with numbers of its data sheet."""

    level_banks: _Levels
    """Banks of each level."""
    level_counts: _Levels
    """1 where the level counts for this device's area; 0 where another device that shares it counts it."""
    level_stated_m2: _Levels
    """Area of each level in the data sheet; 0: by the law."""
    level_stated_bytes: _Levels
    """Capacity of that area; 0: none is stated."""
    level_rated_bytes: _Levels
    """Capacity at which the energies of each level hold; 0: they do not depend on it."""
    sheet_level_word: _Levels
    """Bytes that a bank moves per cycle in the data sheet."""
    sheet_level_banks: _Levels
    """Banks of each level in the data sheet."""
    voltage_follows: Number
    """1 where the voltage follows the clocks."""
    array_law_m2: Annotated[float, "m2"]
    """Memories of a MAC array beyond those of the data sheet, by the law of SRAM."""
    own_formats_m2: Annotated[float, "m2"]
    """Hardware of an MPE for formats besides `MAC_FORMATS`."""


for _format in MAC_FORMATS:
    _rate = f"Multiply-accumulates of an MPE in {_format}; 0 where the grid lacks the format."
    PrimitiveColumns.__annotations__[f"mpe_macs_{_format}"] = Annotated[float, "1/cycle", _rate]


class ArchRecord(PrimitiveColumns):
    """An array device of a design point: its primitives, and columns that follow from them."""

    tiles: Number
    """Tiles of an inference."""
    contexts: Number
    """Parallel inferences, each on its own `tiles`; at least 1."""
    sharers: Number
    """Parallel inferences on all devices that share its level; at least 1."""
    dpu_pixel_lanes_w: Elements
    """Parallel pixels of the grid along the width."""
    dpu_pixel_lanes_h: Elements
    """Parallel pixels of the grid along the height."""
    dpu_channel_lanes: Elements
    """Parallel output channels of the grid."""
    dram_bytes_per_s: records.BytesPerSecond
    """Bandwidth of DRAM."""
    supply_voltage: records.Volts
    """Voltage at the clocks."""
    mac_j: Annotated[Vector, len(MAC_FORMATS), "J"]
    """A multiply-accumulate at the supply's voltage, by format."""
    sram_j_per_byte: _Energy
    """A byte read or written in SRAM."""
    dram_j_per_byte: _Energy
    """A byte to or from DRAM."""
    dsp_j_per_lane_op: _Energy
    """A cycle of a DSP lane."""
    read_j: _Levels
    """A byte read in each memory level."""
    write_j: _Levels
    """A byte written to each memory level."""
    area_mm2: Annotated[float, "mm2"]
    """Area of the device."""
    static_w: records.Watts
    """Power of any work beyond idle power."""
    peak_ops_per_s: records.PerSecond
    """Two operations per MAC, in the fastest format."""


@columns_at(Parts, {name: name for name in PART_COLUMNS})
@columns_at(Technology, TECHNOLOGY_COLUMNS)
class SharedPrimitives:
    """Columns of all devices of a design point: numbers of the data sheet."""

    requests: Number
    """Inferences in flight."""
    dram_bytes_per_s: records.BytesPerSecond
    """Bandwidth of DRAM at its clock."""
    dram_latency_s: records.Seconds
    """Latency of DRAM, for a host."""
    dram_clock_ratio: Number
    """Clock of DRAM over the rated one."""
    dram_voltage_ratio: Number
    """Voltage of DRAM over the rated one."""
    dram_idle_w: records.Watts
    """Idle power of DRAM at its clock and voltage."""
    limit_w: records.Watts
    """Limit of the mean power of the package; 0: none."""
    sheet_dram_bytes_per_s: records.BytesPerSecond
    """Bandwidth of DRAM in the data sheet."""
    interface_m2_s_per_byte: Annotated[float, "m2 s/B"]
    """Area of the DRAM interface per bandwidth."""
    interface_w_s_per_byte: Annotated[float, "W s/B"]
    """Power of the idle DRAM interface per bandwidth."""
    threshold_voltage: records.Volts
    """Threshold of the alpha-power law of the process node."""
    clock_exponent: Number
    """Exponent of that law."""
    least_voltage: records.Volts
    """Lowest supply voltage."""
    read_law: _Law
    """Energy to read a word of SRAM (`npusim.cost.machine.silicon.sram_law`)."""
    write_law: _Law
    """Energy to write a word."""
    area_law: _Law
    """Area of all banks."""

    if TYPE_CHECKING:  # the columns of the technology

        def __getattr__(self, name: str) -> float: ...


for _format in MAC_FORMATS:
    SharedPrimitives.__annotations__ |= {
        f"tech_mac_j_{_format}": Annotated[float, "J", f"A {_format} multiply-accumulate at that voltage."],
        f"mac_m2_{_format}": Annotated[float, "m2", f"A {_format} multiply-accumulate per cycle."],
    }


class SharedRecord(SharedPrimitives):
    """Columns of all devices of a design point, and columns that follow from them."""

    arrays_mm2: Annotated[float, "mm2"]
    """Area of the array devices."""
    interfaces_mm2: Annotated[float, "mm2"]
    """Fixed area of the array devices."""
    devices_idle_w: records.Watts
    """Power of the idle package at the data sheet's bandwidth of DRAM."""
    area_mm2: Annotated[float, "mm2"]
    """Area of the array devices; another bandwidth of DRAM adds or saves interface."""
    idle_w: records.Watts
    """Power of the package while all devices idle."""
    peak_ops_per_s: records.PerSecond
    """Two operations per MAC of the array devices, in the fastest format of each."""


ARCH_DTYPE, SHARED_DTYPE = dtype_of(ArchRecord), dtype_of(SharedRecord)


class Archs(NamedTuple):
    """A design point of a machine, as records."""

    shared: Any
    """Array of SHARED_DTYPE, shape (1,)."""
    arrays: Any
    """Array of ARCH_DTYPE, shape (array devices,)."""
    hosts: Any
    """Array of HOST_DTYPE, shape (hosts,)."""


@compiled
def weighs_energy(archs: Archs) -> bool:
    """Whether an array device has its mappings chosen by their energy."""
    has_energy = False
    for d in range(archs.arrays.shape[0]):
        has_energy = has_energy or archs.arrays[d].objective > 0.0
    return has_energy


@compiled
def derive(archs: Archs, has_hosts: bool) -> None:
    """Fill the derived columns of a design point, of its hosts where it `has_hosts`."""
    shared, arrays, hosts = archs.shared[0], archs.arrays, archs.hosts
    shared.arrays_mm2 = shared.peak_ops_per_s = shared.devices_idle_w = 0.0
    for d in range(arrays.shape[0]):
        array = arrays[d]
        _derive_array(array, shared)
        shared.arrays_mm2 += array.area_mm2
        shared.peak_ops_per_s += array.peak_ops_per_s
        shared.devices_idle_w += array.npu_idle_w
    for d in range(arrays.shape[0]):
        if arrays[d].shared_place > 0.0:
            contexts = 0.0  # on all devices that share its level
            for other in range(arrays.shape[0]):
                if arrays[other].shared_level == arrays[d].shared_level:
                    contexts += arrays[other].contexts
            arrays[d].sharers = max(1.0, min(contexts, shared.requests))
    for h in range(hosts.shape[0]):
        shared.devices_idle_w += hosts[h].idle_w
    shared.devices_idle_w += shared.dram_idle_w
    shared.interfaces_mm2 = shared.fixed_m2 * 1e6 * arrays.shape[0]
    derive_interface(shared)
    dram = DramRates(
        shared.dram_latency_s, shared.dram_j_per_byte, shared.dram_clock_ratio, shared.dram_voltage_ratio
    )
    for h in range(hosts.shape[0] if has_hosts else 0):
        derive_host(hosts[h], dram)


@compiled
def derive_interface(shared: SharedRecord) -> None:
    """Fill the area and the idle power, which alone depend on the bandwidth of DRAM.

    Less bandwidth than the data sheet's saves of the NPU's own interface, in the fixed area and idle power.
    More adds PHY and controller, which a data sheet of an NPU leaves to the SoC.
    """
    sheet_bytes_per_s = shared.sheet_dram_bytes_per_s
    further_bytes_per_s = shared.dram_bytes_per_s / shared.dram_clock_ratio - sheet_bytes_per_s
    mm2, watts = shared.interface_m2_s_per_byte * 1e6, shared.interface_w_s_per_byte
    if further_bytes_per_s < 0.0:
        mm2 = min(mm2, shared.interface_share * shared.interfaces_mm2 / sheet_bytes_per_s)
        watts = min(watts, shared.interface_share * shared.devices_idle_w / sheet_bytes_per_s)
    shared.area_mm2 = shared.arrays_mm2 + further_bytes_per_s * mm2
    shared.idle_w = shared.devices_idle_w + further_bytes_per_s * watts


@compiled
def _derive_array(arch: ArchRecord, shared: SharedRecord) -> None:
    arch.tiles = min(arch.npu_tiles, arch.wanted_tiles)
    side_by_side = np.floor(arch.npu_tiles / max(1.0, arch.tiles))
    arch.contexts = max(1.0, min(min(side_by_side, arch.most_contexts), shared.requests))
    arch.dpu_pixel_lanes_w = arch.dpu_vpe
    arch.dpu_pixel_lanes_h = arch.dpu_vpe
    arch.dpu_channel_lanes = arch.dpu_mpe * arch.dpu_mpe
    fastest = max(max(arch.mpe_macs_int8, arch.mpe_macs_fp16), max(arch.mpe_macs_int4, arch.mpe_macs_fp32))
    if arch.array.is_of_grid > 0.0:  # the same MACs in a plane
        arch.array.axis_pes[0] = arch.dpu_vpe * arch.dpu_vpe * fastest
        arch.array.axis_pes[1] = arch.dpu_mpe * arch.dpu_mpe
    if arch.array.axes > 0.0:
        sram = int(arch.array.levels) - 2
        arch.array.level_width_bits[sram] = 8.0 * arch.dpu_sram_word_bytes * arch.dpu_read_ports
        arch.array.level_words[sram] = arch.dpu_read_ports
    arch.dram_bytes_per_s = shared.dram_bytes_per_s
    _energy(arch, shared)
    _area(arch, shared)
    arch.peak_ops_per_s = 2.0 * macs_per_s(arch, fastest, arch.npu_tiles)


@compiled
def macs_per_s(arch: ArchRecord, macs_per_mpe: float, tiles: float) -> float:
    """Return the most multiply-accumulates per second of tiles whose MPEs or PEs do so many in a cycle."""
    return float(macs_per_mpe * _mpes(arch) * tiles * arch.dpu_clock_hz)


@compiled
def _mpes(arch: ArchRecord) -> float:
    """Return the MPEs of a tile (M x M x N x N), or the PEs of an array."""
    if arch.array.axes > 0.0 and arch.array.is_of_grid == 0.0:
        pes = 1.0
        for axis in range(int(arch.array.axes)):
            pes *= arch.array.axis_pes[axis]
        return pes
    return float(arch.dpu_vpe * arch.dpu_vpe * arch.dpu_mpe * arch.dpu_mpe)


@compiled
def _energy(arch: ArchRecord, shared: SharedRecord) -> None:
    """Fill the energies at the device's voltage and sizes of memories (`npusim.cost.machine.silicon`).

    Dynamic energy scales with the square of the voltage. The grid's clock sets the voltage; DSPs, SRAM and
    DMA reach the data sheet's clock at any. The read ports of SRAM are banks of one port.
    """
    arch.supply_voltage = arch.voltage
    if arch.voltage_follows > 0.0 and arch.voltage == arch.sheet_voltage:
        cycle = _stage_cycle(arch.dpu_stages, shared) / _stage_cycle(arch.sheet_dpu_stages, shared)
        ratio = arch.dpu_clock_hz / arch.sheet_dpu_clock_hz
        ratio = max(ratio * cycle, min(1.0, ratio))  # further stages serve faster clocks alone
        if arch.vpu_clock_hz > arch.sheet_vpu_clock_hz:
            ratio = max(ratio, arch.vpu_clock_hz / arch.sheet_vpu_clock_hz)
        arch.supply_voltage = supply_voltage(
            arch.voltage, ratio, shared.threshold_voltage, shared.clock_exponent, shared.least_voltage
        )
    scale = dynamic_scale(1.0, arch.supply_voltage / shared.nominal_voltage)
    mac_scale = scale * _staged(arch, shared.stage_energy)
    int4_j, int8_j = shared.tech_mac_j_int4, shared.tech_mac_j_int8
    fp16_j, fp32_j = shared.tech_mac_j_fp16, shared.tech_mac_j_fp32
    # A format that the grid lacks costs what the format costs that it is computed in.
    arch.mac_j[0] = (int4_j if arch.mpe_macs_int4 > 0.0 else int8_j) * mac_scale
    arch.mac_j[1] = int8_j * mac_scale
    arch.mac_j[2] = (fp16_j if arch.mpe_macs_fp16 > 0.0 else fp32_j) * mac_scale
    arch.mac_j[3] = (fp32_j if arch.mpe_macs_fp32 > 0.0 else fp16_j) * mac_scale
    sizes = (_sram_bytes(arch), arch.dpu_sram_word_bytes, arch.dpu_read_ports)
    arch.sram_j_per_byte = (
        shared.tech_sram_j_per_byte * scale * _grown(shared.read_law, sizes, _sheet_sizes(arch))
    )
    arch.dsp_j_per_lane_op = shared.tech_dsp_j_per_lane_op * scale
    side_m, sheet_m = np.sqrt(arch.npu_tiles * _tile_m2(arch, shared)), np.sqrt(_sheet_tiles_m2(arch, shared))
    wire_j = 0.5 * shared.wire * scale * (side_m - sheet_m)
    arch.dram_j_per_byte = max(0.0, shared.dram_j_per_byte + wire_j)
    for k in range(OUTER_LEVELS):
        read, write = 1.0, 1.0
        if arch.level_bytes[k] > 0.0 and arch.level_rated_bytes[k] > 0.0:
            sizes = (arch.level_bytes[k], _level_word(arch, k), arch.level_banks[k])
            rated = (arch.level_rated_bytes[k], arch.sheet_level_word[k], arch.sheet_level_banks[k])
            read, write = _grown(shared.read_law, sizes, rated), _grown(shared.write_law, sizes, rated)
        arch.read_j[k] = max(0.0, arch.level_read_j[k] * read + wire_j)
        arch.write_j[k] = max(0.0, arch.level_write_j[k] * write + wire_j)


@compiled
def _grown(law: Floats, sizes: _Sizes, rated: _Sizes) -> float:
    """Return the energy of a byte at sizes of an SRAM (capacity, word, banks) over that at the rated ones."""
    energy = sram_law(law, sizes[0], sizes[1], sizes[2]) / sizes[1]
    return float(energy / (sram_law(law, rated[0], rated[1], rated[2]) / rated[1]))


@compiled
def _sheet_sizes(arch: ArchRecord) -> _Sizes:
    """Return the data sheet's SRAM of a tile, reserved bytes included, its word and read ports."""
    sram_bytes = arch.sheet_sram_tile_bytes + arch.sheet_sram_reserved_bytes
    return sram_bytes, arch.sheet_dpu_sram_word_bytes, arch.sheet_dpu_read_ports


@compiled
def _stage_cycle(stages: float, shared: SharedRecord) -> float:
    """Return the cycle of a multiply-accumulate in several stages, over that in one."""
    return float((1.0 - shared.stage_delay) / stages + shared.stage_delay)


@compiled
def _staged(arch: ArchRecord, share: float) -> float:
    """Return a cost of a multiply-accumulate over that at the sheet's stages; `share`: of a further stage."""
    return float((1.0 + share * (arch.dpu_stages - 1.0)) / (1.0 + share * (arch.sheet_dpu_stages - 1.0)))


@compiled
def _mac_m2(arch: ArchRecord, shared: SharedRecord) -> float:
    """Return the area of the multiply-accumulates of an MPE, at the sheet's pipeline stages."""
    integers_m2 = arch.mpe_macs_int8 * shared.mac_m2_int8 + arch.mpe_macs_int4 * shared.mac_m2_int4
    floats_m2 = arch.mpe_macs_fp16 * shared.mac_m2_fp16 + arch.mpe_macs_fp32 * shared.mac_m2_fp32
    return float(integers_m2 + floats_m2 + arch.own_formats_m2)


@compiled
def _tile_m2(arch: ArchRecord, shared: SharedRecord) -> float:
    """Return the area of a tile."""
    sram_bytes = _sram_bytes(arch)
    # The data sheet's area of a byte, over that by the law: 1 where nothing was changed.
    grown = sram_law(shared.area_law, sram_bytes, arch.dpu_sram_word_bytes, arch.dpu_read_ports) / sram_bytes
    rated_m2 = _law_m2_per_byte(arch, shared)
    sram_m2 = shared.sram_m2_per_byte * sram_bytes * (grown / rated_m2)
    lanes = arch.dsp_lanes / arch.sheet_dsp_lanes
    dsp_m2 = shared.dsp_m2 * (1.0 + shared.dsp_lane_share * (lanes - 1.0)) * arch.dsps_per_tile
    macs_m2 = _mac_m2(arch, shared) * _staged(arch, shared.stage_area) * _mpes(arch)
    macs_m2 = max(0.0, macs_m2 + shared.sram_m2_per_byte / rated_m2 * arch.array_law_m2)
    return float(macs_m2 + sram_m2 + dsp_m2)


@compiled
def _sheet_tiles_m2(arch: ArchRecord, shared: SharedRecord) -> float:
    """Return the area of all tiles of the data sheet."""
    mpes = _mpes(arch) * ((arch.sheet_dpu_vpe / arch.dpu_vpe) * (arch.sheet_dpu_mpe / arch.dpu_mpe)) ** 2
    sram_m2 = shared.sram_m2_per_byte * _sheet_sizes(arch)[0]
    return float(
        arch.sheet_npu_tiles * (_mac_m2(arch, shared) * mpes + sram_m2 + shared.dsp_m2 * arch.dsps_per_tile)
    )


@compiled
def _law_m2_per_byte(arch: ArchRecord, shared: SharedRecord) -> float:
    """Return the area of a byte of the data sheet's SRAM by the law."""
    sram_bytes, word_bytes, ports = _sheet_sizes(arch)
    return sram_law(shared.area_law, sram_bytes, word_bytes, ports) / sram_bytes


@compiled
def _sram_bytes(arch: ArchRecord) -> float:
    """Return the SRAM of a tile, reserved bytes included."""
    return float(arch.sram_tile_bytes + arch.sram_reserved_bytes)


@compiled
def _level_word(arch: ArchRecord, level: int) -> float:
    """Return the bytes that a bank of a memory level moves per cycle of the sheet's clock; at least 1."""
    return float(max(1.0, arch.level_bytes_per_s[level] / arch.level_banks[level] / arch.sheet_vpu_clock_hz))


@compiled
def _area(arch: ArchRecord, shared: SharedRecord) -> None:
    """Fill area (mm2), from counts of building blocks, and the power that no workload changes."""
    rated_m2 = _law_m2_per_byte(arch, shared)
    width = arch.dma_engine_bytes_per_cycle / arch.sheet_dma_engine_bytes_per_cycle
    dma_m2 = shared.dma_engine_m2 * (1.0 + shared.dma_width_share * (width - 1.0))
    tiles_m2, tiles = arch.npu_tiles * _tile_m2(arch, shared), arch.npu_tiles / arch.sheet_npu_tiles
    links = tiles * np.sqrt(tiles_m2 / _sheet_tiles_m2(arch, shared)) if tiles_m2 > 0.0 else tiles
    further = shared.sequencer_share * (tiles - 1.0) + shared.fabric_share * (links - 1.0)
    area_m2 = tiles_m2 + dma_m2 * arch.dma_engines + shared.fixed_m2 * (1.0 + further)
    for k in range(OUTER_LEVELS):
        if arch.level_bytes[k] > 0.0 and arch.level_counts[k] > 0.0:
            law_m2 = sram_law(shared.area_law, arch.level_bytes[k], _level_word(arch, k), arch.level_banks[k])
            if arch.level_stated_bytes[k] > 0.0:
                rated_word, banks = arch.sheet_level_word[k], arch.sheet_level_banks[k]
                law_m2 -= sram_law(shared.area_law, arch.level_stated_bytes[k], rated_word, banks)
            area_m2 += max(0.0, arch.level_stated_m2[k] + shared.sram_m2_per_byte / rated_m2 * law_m2)
    arch.area_mm2 = area_m2 * 1e6
    leakage_w = (
        shared.leakage_w_per_m2 * area_m2 * leakage_scale(arch.supply_voltage / shared.nominal_voltage)
    )
    if shared.rise != shared.leakage_rise:
        leakage_w *= 2.0 ** ((shared.rise - shared.leakage_rise) / shared.leakage_doubling)
    scale = dynamic_scale(arch.vpu_clock_hz / arch.rated_clock_hz, arch.supply_voltage / arch.rated_voltage)
    active_w = arch.active_w * (1.0 + further) * scale
    arch.static_w = max(0.0, leakage_w + active_w - arch.npu_idle_w)
