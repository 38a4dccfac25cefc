"""What follows from a machine's numbers: the small print that is worked out anew when a figure on the sheet
changes.

A row of the architecture table holds numbers of the data sheet and what is derived from them: lanes, energy
at the voltage, area, leakage, rooflines. A sweep changes the former and calls `derive` for the latter, so
an estimate and a sweep agree by construction.
"""

from __future__ import annotations

from typing import Any, get_args

from npusim.arch.device import DtypeName
from npusim.cost.hosts import derive_host
from npusim.cost.jit import kernel

__all__ = ["MAC_FORMATS", "derive"]

MAC_FORMATS: tuple[str, ...] = get_args(DtypeName)
"""Formats a MAC unit may work in."""


@kernel
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


@kernel
def _mpes(arch: Any) -> float:
    """MPEs of a tile: M x M x N x N."""
    return float(arch.dpu_vpe * arch.dpu_vpe * arch.dpu_mpe * arch.dpu_mpe)


@kernel
def _energy(arch: Any) -> None:
    """Energies at the voltage: dynamic energy goes with its square."""
    relative = arch.voltage / arch.nominal_voltage
    scale = relative * relative
    arch.mac_j_int8 = arch.tech_mac_j_int8 * scale
    arch.mac_j_fp16 = arch.tech_mac_j_fp16 * scale
    arch.sram_j_per_byte = arch.tech_sram_j_per_byte * scale
    arch.dsp_j_per_lane_op = arch.tech_dsp_j_per_lane_op * scale


@kernel
def _area(arch: Any) -> None:
    """Area (mm2): building blocks, counted, times the technology's price of each; and the power that goes
    with it.
    """
    mac_m2 = arch.mpe_macs_int8 * arch.mac_m2_int8 + arch.mpe_macs_fp16 * arch.mac_m2_fp16
    mac_m2 += arch.mpe_macs_int4 * arch.mac_m2_int4 + arch.mpe_macs_bf16 * arch.mac_m2_bf16
    mac_m2 += arch.mpe_macs_fp32 * arch.mac_m2_fp32 + arch.mpe_macs_fp64 * arch.mac_m2_fp64
    mac_m2 += arch.mpe_macs_int16 * arch.mac_m2_int16
    sram_m2 = arch.sram_m2_per_byte * (arch.sram_tile_bytes + arch.sram_reserved_bytes)
    tile_m2 = mac_m2 * _mpes(arch) + sram_m2 + arch.dsp_m2 * arch.dsps_per_tile
    area_m2 = arch.npu_tiles * tile_m2 + arch.dma_engine_m2 * arch.dma_engines + arch.fixed_m2
    arch.area_mm2 = area_m2 * 1e6
    arch.static_w = arch.leakage_w_per_m2 * area_m2 * (arch.voltage / arch.nominal_voltage) + arch.active_w
