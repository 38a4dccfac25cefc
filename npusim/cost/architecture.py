"""A row of the architecture table: a SoC's data sheet as the numbers that the compiled equations read.

Most columns are one number of the data sheet each; the others follow from them (`derive`): lanes, energy at
the voltage, area, leakage, rooflines. A sweep writes new numbers into a row and calls `derive`, so an
estimate and a sweep agree by construction. Nothing is fitted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, get_args

import numpy as np

from npusim.arch import Soc
from npusim.arch.device import DtypeName
from npusim.arch.dpu import DpuModel
from npusim.arch.npu import DmaModel, Npu
from npusim.arch.technology import Technology
from npusim.cost.hosts import HOST_DTYPE, HOST_PRIMITIVES, derive_host, fill_host
from npusim.cost.jit import compiled

__all__ = [
    "ARCH_DTYPE",
    "MAC_FORMATS",
    "PRIMITIVE_COLUMNS",
    "SEARCH_COLUMNS",
    "arch_row",
    "derive",
    "row_numbers",
]

_DPU_MODEL = tuple(DpuModel.model_fields)
_DMA_MODEL = tuple(DmaModel.model_fields)
_MODES = 3
MAC_FORMATS: tuple[str, ...] = get_args(DtypeName)
"""Formats a MAC unit may work in."""

_ENERGY_FACTORS = ("depthwise", "avgpool", "maxpool", "eltwise")


def _numbers(prefix: str, names: Iterable[str]) -> list[tuple[str, Any]]:
    """Return a column for each name."""
    return [(prefix + name, "f8") for name in names]


# What the tiling search looks at: what fits where, and how many cycles it takes.
_SEARCHED: list[tuple[str, Any]] = [
    ("npu_tiles", "f8"),  # tiles on the chip
    ("wanted_tiles", "f8"),  # tiles an inference uses where the chip has them
    ("dpu_vpe", "f8"),
    ("dpu_mpe", "f8"),
    ("dpu_mac_bytes_per_cycle", "f8"),
    ("dpu_mode_w", (np.float64, (_MODES,))),
    ("dpu_mode_h", (np.float64, (_MODES,))),
    ("dpu_mode_c", (np.float64, (_MODES,))),
    ("dpu_sum_bytes", "f8"),  # a partial sum in SRAM
    ("dpu_read_ports", "f8"),
    ("dpu_sram_word_bytes", "f8"),
    *((f"dpu_{name}", "f8") for name in _DPU_MODEL),
    ("stream_pieces", "f8"),
    ("sram_tile_bytes", "f8"),
    ("symg_transposed_rate", "f8"),
    ("dma_page_bytes", "f8"),
    *_numbers("energy_", _ENERGY_FACTORS),
]

# What makes latency, energy and area of the candidates found: clocks, rates, energies, areas.
_RATED: list[tuple[str, Any]] = [
    ("requests", "f8"),
    ("launch_s", "f8"),
    ("dpu_clock_hz", "f8"),
    ("vpu_clock_hz", "f8"),
    ("voltage", "f8"),
    ("active_w", "f8"),
    ("sram_reserved_bytes", "f8"),
    ("dma_engines", "f8"),
    ("dma_engine_bytes_per_cycle", "f8"),
    *_numbers("dma_", [name for name in _DMA_MODEL if name != "page_bytes"]),
    ("dram_bytes_per_s", "f8"),
    ("dram_latency_s", "f8"),
    ("dsps_per_tile", "f8"),
    ("dsp_lanes", "f8"),
    # Technology
    ("nominal_voltage", "f8"),
    ("tech_mac_j_int8", "f8"),
    ("tech_mac_j_fp16", "f8"),
    ("tech_sram_j_per_byte", "f8"),
    ("tech_dsp_j_per_lane_op", "f8"),
    ("dram_j_per_byte", "f8"),  # DRAM has a supply of its own
    ("leakage_w_per_m2", "f8"),
    *_numbers("mpe_macs_", MAC_FORMATS),  # 0 where the grid has no such format
    *_numbers("mac_m2_", MAC_FORMATS),
    ("sram_m2_per_byte", "f8"),
    ("dsp_m2", "f8"),
    ("dma_engine_m2", "f8"),
    ("fixed_m2", "f8"),
    # Other devices
    ("cpu", HOST_DTYPE),
    ("gpu", HOST_DTYPE),
]

# What follows from the others; `derive` fills it in.
_DERIVED: list[tuple[str, Any]] = [
    ("tiles", "f8"),  # tiles an inference uses
    ("dpu_pixel_lanes_w", "f8"),
    ("dpu_pixel_lanes_h", "f8"),
    ("dpu_channel_lanes", "f8"),
    ("mac_j_int8", "f8"),
    ("mac_j_fp16", "f8"),
    ("sram_j_per_byte", "f8"),
    ("dsp_j_per_lane_op", "f8"),
    ("area_mm2", "f8"),
    ("static_w", "f8"),
    ("peak_ops_per_s", "f8"),  # two operations per MAC, in the fastest format
]

ARCH_DTYPE = np.dtype([*_SEARCHED, *_RATED, *_DERIVED])
"""A row of the architecture table: one design point; SI units and cycles, `npusim.arch` says what each
number means."""


def _places(names: set[str]) -> Iterator[int]:
    """Yield the places of columns in the float64 view of a row; of a host those of its primitives."""
    for name in names:
        dtype, offset = ARCH_DTYPE.fields[name][:2]  # type: ignore[index]  # it has fields
        if dtype.names is None:
            yield from range(offset // 8, (offset + dtype.itemsize) // 8)
        else:
            for part in HOST_PRIMITIVES:
                inner, start = dtype.fields[part][:2]  # type: ignore[index]  # it has fields
                yield from range((offset + start) // 8, (offset + start + inner.itemsize) // 8)


SEARCH_COLUMNS = frozenset(_places({column[0] for column in _SEARCHED}))
"""Places, in the float64 view of a row, of what the tiling search looks at."""

PRIMITIVE_COLUMNS = tuple(sorted(_places({column[0] for column in (*_SEARCHED, *_RATED)})))
"""Places of all columns that are one number of the data sheet each; none depends on another."""


def arch_row(soc: Soc, tiles: float, requests: float) -> Any:
    """Return the architecture table of one design point.

    Parameters
    ----------
    soc : Soc
    tiles : float
        NPU tiles that an inference uses, as far as the chip has them; infinite for all. A SoC without an
        NPU has none, and none of its numbers: their columns are 0.
    requests : float
        Inferences in flight.

    Returns
    -------
    array of ARCH_DTYPE, shape (1,)
    """
    table = np.zeros(1, ARCH_DTYPE)
    record = table[0]
    record["wanted_tiles"], record["requests"] = tiles, requests
    record["dram_bytes_per_s"], record["dram_latency_s"] = soc.dram.bandwidth, soc.dram.latency
    record["nominal_voltage"] = 1.0
    if soc.has("npu"):
        _npu(record, soc.npu)
    if soc.technology is not None:
        _technology(record, soc.technology)
    for name, device in (
        ("cpu", soc.cpu if soc.has("cpu") else None),
        ("gpu", soc.gpu if soc.has("gpu") else None),
    ):
        if device is not None:
            fill_host(record[name], device)
    derive(record)
    return table


def row_numbers(row: Any) -> Any:
    """Return the numbers of a row of the architecture table: its float64 view, shape (columns,)."""
    return row.view(np.float64).reshape(-1)


def _npu(record: Any, npu: Npu) -> None:
    dpu, grid = npu.dpu, npu.dpu.grid
    record["npu_tiles"], record["launch_s"] = npu.tiles, npu.launch_overhead
    record["dpu_clock_hz"], record["vpu_clock_hz"], record["voltage"] = dpu.clock, npu.vpu_clock, npu.voltage
    record["dpu_vpe"], record["dpu_mpe"], record["dpu_sum_bytes"] = grid.vpe, grid.mpe, grid.accumulator
    record["dpu_mac_bytes_per_cycle"] = dpu.macs_per_mpe["int8"]
    for dtype, rate in dpu.macs_per_mpe.items():
        record[f"mpe_macs_{dtype}"] = rate
    modes = list(dpu.modes.values())
    for i in range(_MODES):  # a grid with fewer modes has its last one more than once
        mode = modes[min(i, len(modes) - 1)]
        record["dpu_mode_w"][i], record["dpu_mode_h"][i] = mode.groups_w, mode.groups_h
        record["dpu_mode_c"][i] = mode.groups_c
    record["dpu_read_ports"], record["dpu_sram_word_bytes"] = npu.sram.read_ports, npu.sram.word
    for name in _DPU_MODEL:
        record[f"dpu_{name}"] = getattr(dpu.model, name)
    for name in _ENERGY_FACTORS:
        record[f"energy_{name}"] = getattr(dpu.energy_factors, name)
    record["stream_pieces"] = npu.schedule.stream_pieces
    record["sram_tile_bytes"], record["sram_reserved_bytes"] = npu.sram.per_tile, npu.sram.reserved
    record["dma_engines"], record["dma_engine_bytes_per_cycle"] = npu.dma.engines, npu.dma.width
    for name in _DMA_MODEL:
        record[f"dma_{name}"] = getattr(npu.dma.model, name)
    record["symg_transposed_rate"], record["active_w"] = npu.symg.transposed_read_rate, npu.power.active
    record["dsps_per_tile"], record["dsp_lanes"] = npu.dsp.per_tile, npu.dsp.lanes["fp16"]


def _technology(record: Any, technology: Technology) -> None:
    energy, area = technology.energy, technology.area
    record["nominal_voltage"], record["leakage_w_per_m2"] = technology.nominal_voltage, technology.leakage
    record["tech_mac_j_int8"], record["tech_mac_j_fp16"] = energy.mac["int8"], energy.mac["fp16"]
    record["tech_sram_j_per_byte"], record["tech_dsp_j_per_lane_op"] = energy.sram, energy.dsp_op
    record["dram_j_per_byte"] = energy.dram
    for name, m2 in area.mac.items():
        record[f"mac_m2_{name}"] = m2
    record["sram_m2_per_byte"], record["dsp_m2"] = area.sram, area.dsp
    record["dma_engine_m2"], record["fixed_m2"] = area.dma_engine, area.fixed


@compiled
def derive(arch: Any) -> None:
    """Fill the derived columns of a row of the architecture table.

    Parameters
    ----------
    arch : record of ARCH_DTYPE
    """
    arch.tiles = min(arch.npu_tiles, arch.wanted_tiles)
    arch.dpu_pixel_lanes_w = arch.dpu_vpe
    arch.dpu_pixel_lanes_h = arch.dpu_vpe
    arch.dpu_channel_lanes = arch.dpu_mpe * arch.dpu_mpe
    _energy(arch)
    _area(arch)
    fastest = max(arch.mpe_macs_int8, max(arch.mpe_macs_fp16, arch.mpe_macs_int4))
    arch.peak_ops_per_s = 2.0 * fastest * _mpes(arch) * arch.npu_tiles * arch.dpu_clock_hz
    for host in (arch.cpu, arch.gpu):
        derive_host(host, arch.dram_latency_s)


@compiled
def _mpes(arch: Any) -> float:
    """MPEs of a tile: M x M x N x N."""
    return float(arch.dpu_vpe * arch.dpu_vpe * arch.dpu_mpe * arch.dpu_mpe)


@compiled
def _energy(arch: Any) -> None:
    """Energies at the voltage: dynamic energy goes with its square."""
    relative = arch.voltage / arch.nominal_voltage
    scale = relative * relative
    arch.mac_j_int8 = arch.tech_mac_j_int8 * scale
    arch.mac_j_fp16 = arch.tech_mac_j_fp16 * scale
    arch.sram_j_per_byte = arch.tech_sram_j_per_byte * scale
    arch.dsp_j_per_lane_op = arch.tech_dsp_j_per_lane_op * scale


@compiled
def _area(arch: Any) -> None:
    """Area (mm2): building blocks, counted, times the technology's area of each; and static power."""
    mac_m2 = arch.mpe_macs_int8 * arch.mac_m2_int8 + arch.mpe_macs_fp16 * arch.mac_m2_fp16
    mac_m2 += arch.mpe_macs_int4 * arch.mac_m2_int4 + arch.mpe_macs_bf16 * arch.mac_m2_bf16
    mac_m2 += arch.mpe_macs_fp32 * arch.mac_m2_fp32 + arch.mpe_macs_fp64 * arch.mac_m2_fp64
    mac_m2 += arch.mpe_macs_int16 * arch.mac_m2_int16
    sram_m2 = arch.sram_m2_per_byte * (arch.sram_tile_bytes + arch.sram_reserved_bytes)
    tile_m2 = mac_m2 * _mpes(arch) + sram_m2 + arch.dsp_m2 * arch.dsps_per_tile
    area_m2 = arch.npu_tiles * tile_m2 + arch.dma_engine_m2 * arch.dma_engines + arch.fixed_m2
    arch.area_mm2 = area_m2 * 1e6
    arch.static_w = arch.leakage_w_per_m2 * area_m2 * (arch.voltage / arch.nominal_voltage) + arch.active_w
