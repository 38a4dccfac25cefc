"""A row of the architecture table: a SoC's data sheet as the numbers that the compiled equations read.

Most columns are one number of the data sheet each; the others follow from them (`derive`): lanes, energy at
the voltage, area, leakage, rooflines. A sweep writes new numbers into a row and calls `derive`, so an
estimate and a sweep agree by construction. Nothing is fitted here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, get_args

import numpy as np

from npusim.arch import Soc
from npusim.arch.device import GridFormat
from npusim.arch.dpu import DpuModel, EnergyFactors
from npusim.arch.npu import DmaModel, Npu
from npusim.arch.technology import Technology
from npusim.cost.hosts import HOST_PRIMITIVES, HostRecord, derive_host, fill_host
from npusim.cost.jit import compiled
from npusim.cost.power import DramRates, dynamic_scale, leakage_scale
from npusim.cost.records import (
    Bytes,
    BytesPerSecond,
    Elements,
    Hertz,
    Number,
    PerSecond,
    Seconds,
    Share,
    Vector,
    Volts,
    Watts,
    columns_of,
    dtype_of,
)

MAC_FORMATS: tuple[str, ...] = get_args(GridFormat)
"""Formats a MAC unit may work in."""
_MODES = 3
_Modes = Annotated[Vector, _MODES, "groups"]
_Formats = Annotated[Vector, len(MAC_FORMATS), "B"]
_Energy = Annotated[float, "J"]
_Area = Annotated[float, "m2"]


@columns_of(DpuModel, "dpu_")
@columns_of(EnergyFactors, "energy_")
class SearchedColumns:
    """What the tiling search looks at: what fits where, and how many cycles it takes."""

    npu_tiles: Number
    """Tiles on the chip."""
    wanted_tiles: Number
    """Tiles that an inference uses where the chip has them."""
    dpu_vpe: Number
    """VPEs along each side of the grid."""
    dpu_mpe: Number
    """MPEs along each side of a VPE."""
    dpu_mac_bytes_per_cycle: _Formats
    """Bytes of input channels that a MAC unit takes in a cycle, by format."""
    dpu_mode_w: _Modes
    """Groups of pixels along the width of a stencil, by MPE mode."""
    dpu_mode_h: _Modes
    """Groups of pixels along the height of a stencil, by MPE mode."""
    dpu_mode_c: _Modes
    """Groups of channels of a stencil, by MPE mode."""
    dpu_sum_bytes: Bytes
    """A partial sum in SRAM."""
    dpu_read_ports: Number
    """Read ports of a tile's SRAM."""
    dpu_sram_word_bytes: Bytes
    """Word of a tile's SRAM."""
    stream_pieces: Number
    """Pieces that a stream of elements is cut into."""
    sram_tile_bytes: Bytes
    """SRAM of a tile that the compiler may use."""
    symg_transposed_rate: Share
    """Rate of a block read transposed, over that of one read as it stands."""
    dma_page_bytes: Bytes
    """Reads into SRAM beyond this size wait for address translation once."""

    if TYPE_CHECKING:  # the columns of the sections above

        def __getattr__(self, name: str) -> float: ...


@columns_of(DmaModel, "dma_", "page_bytes")
class PrimitiveColumns(SearchedColumns):
    """All columns that are one number of the data sheet each: clocks, rates, energies, areas too."""

    requests: Number
    """Inferences in flight."""
    most_contexts: Number
    """Inferences that the NPU works on side by side, at most."""
    launch_s: Seconds
    """Call of the NPU's runtime."""
    dispatch_s: Seconds
    """Call of an operator that DSPs or DMA engines do by themselves."""
    dpu_clock_hz: Hertz
    """Clock of the MAC grid."""
    vpu_clock_hz: Hertz
    """Clock of DSPs and DMA."""
    voltage: Volts
    """Supply of the NPU."""
    rated_clock_hz: Hertz
    """Clock of DSPs and DMA at which `active_w` holds ..."""
    rated_voltage: Volts
    """... and voltage."""
    active_w: Watts
    """Power at that point while it works that does not depend on the work."""
    npu_idle_w: Watts
    """Power of the NPU while it has nothing to do."""
    sram_reserved_bytes: Bytes
    """SRAM of a tile that the compiler may not use."""
    dma_engines: Number
    """DMA engines."""
    dma_engine_bytes_per_cycle: Bytes
    """Width of an engine."""
    dram_bytes_per_s: BytesPerSecond
    """Bandwidth of DRAM."""
    dram_latency_s: Seconds
    """Latency of DRAM, for a host."""
    dram_clock_ratio: Number
    """Clock of DRAM over the rated one; the bandwidths are those at the clock."""
    dram_voltage_ratio: Number
    """Voltage of DRAM over the rated one; the energy of a byte is that at the voltage."""
    dram_idle_w: Watts
    """Power of DRAM while nothing is moved, at its clock and voltage."""
    limit_w: Watts
    """Mean power that an inference is stretched for; 0: it is not."""
    dsps_per_tile: Number
    """DSPs of a tile."""
    dsp_lanes: Number
    """fp16 lanes of a DSP."""
    nominal_voltage: Volts
    """Voltage at which the technology's energies hold."""
    tech_sram_j_per_byte: _Energy
    """A byte read or written in SRAM at that voltage."""
    tech_dsp_j_per_lane_op: _Energy
    """A cycle of a DSP lane at that voltage."""
    dram_j_per_byte: _Energy
    """A byte to or from DRAM, which has a supply of its own."""
    leakage_w_per_m2: Annotated[float, "W/m2"]
    """Leakage at that voltage."""
    sram_m2_per_byte: _Area
    """A byte of SRAM."""
    dsp_m2: _Area
    """A DSP."""
    dma_engine_m2: _Area
    """A DMA engine."""
    fixed_m2: _Area
    """What the NPU has once."""
    cpu: HostRecord
    """The CPU."""
    gpu: HostRecord
    """The GPU."""


for _format in MAC_FORMATS:
    _rate = f"Multiply-accumulates of an MPE in {_format}; 0 where the grid lacks the format."
    PrimitiveColumns.__annotations__ |= {
        f"mpe_macs_{_format}": Annotated[float, "1/cycle", _rate],
        f"tech_mac_j_{_format}": Annotated[float, "J", f"A {_format} multiply-accumulate at that voltage."],
        f"mac_m2_{_format}": Annotated[float, "m2", f"A {_format} multiply-accumulate per cycle."],
    }


class ArchRecord(PrimitiveColumns):
    """A design point: its primitives, and what follows from them (`derive`); SI units and cycles."""

    tiles: Number
    """Tiles that an inference uses."""
    contexts: Number
    """Inferences that work side by side, each on `tiles` of its own; at least 1."""
    dpu_pixel_lanes_w: Elements
    """Pixels that the grid takes along the width."""
    dpu_pixel_lanes_h: Elements
    """Pixels that the grid takes along the height."""
    dpu_channel_lanes: Elements
    """Output channels that the grid takes."""
    mac_j: Annotated[Vector, len(MAC_FORMATS), "J"]
    """A multiply-accumulate at the supply's voltage, by format."""
    sram_j_per_byte: _Energy
    """A byte read or written in SRAM."""
    dsp_j_per_lane_op: _Energy
    """A cycle of a DSP lane."""
    area_mm2: Annotated[float, "mm2"]
    """Area of the NPU."""
    static_w: Watts
    """Power of the NPU while it works that does not depend on the work, beyond its idle power."""
    idle_w: Watts
    """Power of the package while all devices idle."""
    peak_ops_per_s: PerSecond
    """Two operations per MAC, in the fastest format."""


ARCH_DTYPE = dtype_of(ArchRecord)


def _places(names: Iterable[str]) -> Iterator[int]:
    """Yield the places of columns in the float64 view of a row; of a host those of its primitives."""
    for name in names:
        dtype, offset = ARCH_DTYPE.fields[name][:2]
        if dtype.names is None:
            yield from range(offset // 8, (offset + dtype.itemsize) // 8)
        else:
            for part in HOST_PRIMITIVES:
                inner, start = dtype.fields[part][:2]
                yield from range((offset + start) // 8, (offset + start + inner.itemsize) // 8)


SEARCH_COLUMNS = frozenset(_places(dtype_of(SearchedColumns).names))
"""Places, in the float64 view of a row, of what the tiling search looks at."""

SRAM_COLUMNS = frozenset(_places(("sram_tile_bytes",)))
"""Those of a tile's SRAM: a search serves a range of its sizes."""

PRIMITIVE_COLUMNS = tuple(sorted(_places(dtype_of(PrimitiveColumns).names)))
"""Places of all columns that are one number of the data sheet each; none depends on another."""


def arch_row(soc: Soc, tiles: float, requests: float, hint: str) -> Any:
    """Return the architecture table of one design point.

    Parameters
    ----------
    tiles : float
        NPU tiles that an inference uses, as far as the chip has them; infinite for all. A SoC without an
        NPU has none, and none of its numbers: their columns are 0.
    requests : float
        Inferences in flight.
    hint : {"latency", "throughput"}
        Performance hint, on which the cores and clocks of CPU and GPU depend.

    Returns
    -------
    array of ARCH_DTYPE, shape (1,)
    """
    table = np.zeros(1, ARCH_DTYPE)
    record = table[0]
    record["wanted_tiles"], record["requests"] = tiles, requests
    _dram(record, soc)
    record["nominal_voltage"] = record["rated_voltage"] = record["rated_clock_hz"] = 1.0
    if soc.has("npu"):
        _npu(record, soc.npu)
    if soc.technology is not None:
        _technology(record, soc.technology)
        record["dram_j_per_byte"] *= soc.dram.voltage_ratio**2
    for name, device in (
        ("cpu", soc.cpu if soc.has("cpu") else None),
        ("gpu", soc.gpu if soc.has("gpu") else None),
    ):
        if device is not None:
            fill_host(record[name], device, hint)
            record[name]["bytes_per_s"] *= soc.dram.clock_ratio
    derive(record)
    return table


def row_numbers(row: Any) -> Any:
    """Return the numbers of a row of the architecture table: its float64 view, shape (columns,)."""
    return row.view(np.float64).reshape(-1)


_BYTES = {"int4": 0.5, "int8": 1.0, "fp16": 2.0, "fp32": 4.0}
_WIDER = {"int4": ("int4", "int8"), "int8": ("int8",), "fp16": ("fp16", "fp32"), "fp32": ("fp32", "fp16")}
"""Formats that a grid may compute in what it is given in, the first that it has."""


def _computed_in(form: str, formats: Collection[Any]) -> Any:
    """Return the format that a grid computes in; one that it never computes counts as any that it has."""
    return next((one for one in _WIDER[form] if one in formats), next(iter(formats)))


def _dram(record: Any, soc: Soc) -> None:
    dram, package = soc.dram, soc.package
    record["dram_bytes_per_s"], record["dram_latency_s"] = dram.bandwidth * dram.clock_ratio, dram.latency
    record["dram_clock_ratio"], record["dram_voltage_ratio"] = dram.clock_ratio, dram.voltage_ratio
    record["dram_idle_w"] = dram.idle_w
    if package is not None and package.throttle:
        record["limit_w"] = package.power_limit


def _npu(record: Any, npu: Npu) -> None:
    dpu, grid = npu.dpu, npu.dpu.grid
    record["npu_tiles"], record["launch_s"] = npu.tiles, npu.launch_overhead
    record["dispatch_s"] = npu.dispatch_overhead
    record["most_contexts"] = npu.contexts
    record["dpu_clock_hz"], record["vpu_clock_hz"], record["voltage"] = dpu.clock, npu.vpu_clock, npu.voltage
    record["dpu_vpe"], record["dpu_mpe"], record["dpu_sum_bytes"] = grid.vpe, grid.mpe, grid.accumulator
    rates = dict(dpu.macs_per_mpe)
    for i, form in enumerate(MAC_FORMATS):
        record["dpu_mac_bytes_per_cycle"][i] = rates[_computed_in(form, rates)] * _BYTES[form]
    for dtype, rate in rates.items():
        record[f"mpe_macs_{dtype}"] = rate
    modes = list(dpu.modes.values())
    for i in range(_MODES):  # a grid with fewer modes has its last one more than once
        mode = modes[min(i, len(modes) - 1)]
        record["dpu_mode_w"][i], record["dpu_mode_h"][i] = mode.groups_w, mode.groups_h
        record["dpu_mode_c"][i] = mode.groups_c
    record["dpu_read_ports"], record["dpu_sram_word_bytes"] = npu.sram.read_ports, npu.sram.word
    for name in DpuModel.model_fields:
        record[f"dpu_{name}"] = getattr(dpu.model, name)
    for name in EnergyFactors.model_fields:
        if f"energy_{name}" in ARCH_DTYPE.names:
            record[f"energy_{name}"] = getattr(dpu.energy_factors, name)
    record["stream_pieces"] = npu.schedule.stream_pieces
    record["sram_tile_bytes"], record["sram_reserved_bytes"] = npu.sram.per_tile, npu.sram.reserved
    record["dma_engines"], record["dma_engine_bytes_per_cycle"] = npu.dma.engines, npu.dma.width
    for name in DmaModel.model_fields:
        record[f"dma_{name}"] = getattr(npu.dma.model, name)
    record["symg_transposed_rate"], record["active_w"] = npu.symg.transposed_read_rate, npu.power.active
    record["npu_idle_w"], rated = npu.power.idle, npu.power.rated_at
    record["rated_clock_hz"], record["rated_voltage"] = rated.clock, rated.voltage
    record["dsps_per_tile"], record["dsp_lanes"] = npu.dsp.per_tile, npu.dsp.lanes.fp16


def _technology(record: Any, technology: Technology) -> None:
    energy, area = technology.energy, technology.area
    record["nominal_voltage"], record["leakage_w_per_m2"] = technology.nominal_voltage, technology.leakage
    for dtype, joules in energy.mac.items():
        record[f"tech_mac_j_{dtype}"] = joules
    record["tech_sram_j_per_byte"], record["tech_dsp_j_per_lane_op"] = energy.sram, energy.dsp_op
    record["dram_j_per_byte"] = energy.dram
    for name, m2 in area.mac.items():
        record[f"mac_m2_{name}"] = m2
    record["sram_m2_per_byte"], record["dsp_m2"] = area.sram, area.dsp
    record["dma_engine_m2"], record["fixed_m2"] = area.dma_engine, area.fixed


@compiled
def derive(arch: ArchRecord) -> None:
    """Fill the derived columns of a row of the architecture table."""
    derive_npu(arch)
    dram = DramRates(
        arch.dram_latency_s, arch.dram_j_per_byte, arch.dram_clock_ratio, arch.dram_voltage_ratio
    )
    for host in (arch.cpu, arch.gpu):
        derive_host(host, dram)


@compiled
def derive_npu(arch: ArchRecord) -> None:
    """Fill the derived columns of a row but those of its hosts, which only work on hosts reads."""
    arch.tiles = min(arch.npu_tiles, arch.wanted_tiles)
    side_by_side = np.floor(arch.npu_tiles / max(1.0, arch.tiles))
    arch.contexts = max(1.0, min(min(side_by_side, arch.most_contexts), arch.requests))
    arch.dpu_pixel_lanes_w = arch.dpu_vpe
    arch.dpu_pixel_lanes_h = arch.dpu_vpe
    arch.dpu_channel_lanes = arch.dpu_mpe * arch.dpu_mpe
    _energy(arch)
    _area(arch)
    fastest = max(max(arch.mpe_macs_int8, arch.mpe_macs_fp16), max(arch.mpe_macs_int4, arch.mpe_macs_fp32))
    arch.peak_ops_per_s = 2.0 * fastest * _mpes(arch) * arch.npu_tiles * arch.dpu_clock_hz


@compiled
def _mpes(arch: ArchRecord) -> float:
    """MPEs of a tile: M x M x N x N."""
    return float(arch.dpu_vpe * arch.dpu_vpe * arch.dpu_mpe * arch.dpu_mpe)


@compiled
def _energy(arch: ArchRecord) -> None:
    """Energies at the voltage: dynamic energy goes with its square."""
    scale = dynamic_scale(1.0, arch.voltage / arch.nominal_voltage)
    # A format that the grid lacks costs what the format costs that it is computed in.
    arch.mac_j[0] = (arch.tech_mac_j_int4 if arch.mpe_macs_int4 > 0.0 else arch.tech_mac_j_int8) * scale
    arch.mac_j[1] = arch.tech_mac_j_int8 * scale
    arch.mac_j[2] = (arch.tech_mac_j_fp16 if arch.mpe_macs_fp16 > 0.0 else arch.tech_mac_j_fp32) * scale
    arch.mac_j[3] = (arch.tech_mac_j_fp32 if arch.mpe_macs_fp32 > 0.0 else arch.tech_mac_j_fp16) * scale
    arch.sram_j_per_byte = arch.tech_sram_j_per_byte * scale
    arch.dsp_j_per_lane_op = arch.tech_dsp_j_per_lane_op * scale


@compiled
def _area(arch: ArchRecord) -> None:
    """Area (mm2): building blocks, counted, times the technology's area of each; power beside the work."""
    mac_m2 = arch.mpe_macs_int8 * arch.mac_m2_int8 + arch.mpe_macs_fp16 * arch.mac_m2_fp16
    mac_m2 += arch.mpe_macs_int4 * arch.mac_m2_int4 + arch.mpe_macs_fp32 * arch.mac_m2_fp32
    sram_m2 = arch.sram_m2_per_byte * (arch.sram_tile_bytes + arch.sram_reserved_bytes)
    tile_m2 = mac_m2 * _mpes(arch) + sram_m2 + arch.dsp_m2 * arch.dsps_per_tile
    area_m2 = arch.npu_tiles * tile_m2 + arch.dma_engine_m2 * arch.dma_engines + arch.fixed_m2
    arch.area_mm2 = area_m2 * 1e6
    leakage_w = arch.leakage_w_per_m2 * area_m2 * leakage_scale(arch.voltage / arch.nominal_voltage)
    scale = dynamic_scale(arch.vpu_clock_hz / arch.rated_clock_hz, arch.voltage / arch.rated_voltage)
    arch.static_w = max(0.0, leakage_w + arch.active_w * scale - arch.npu_idle_w)
    arch.idle_w = arch.npu_idle_w + arch.cpu.idle_w + arch.gpu.idle_w + arch.dram_idle_w
