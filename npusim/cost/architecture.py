"""From a SoC's data sheet to a row of the architecture table: the machine in the kernel's own words.

A tailor's card: whatever the customer's wardrobe looks like, these are the measures the scissors need. Every column is one number of
the data sheet, or follows from a few by counting (area); nothing is fitted here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.arch import Cpu, Gpu, Soc
from npusim.arch.dma_model import DmaModel
from npusim.arch.dpu_model import DpuModel
from npusim.arch.npu import Npu

__all__ = ["ARCH_DTYPE", "arch_row", "npu_area_m2", "set_npu"]

_HOST_DTYPE = np.dtype(
    [
        ("float_macs_per_s", "f8"),
        ("int8_macs_per_s", "f8"),
        ("bytes_per_s", "f8"),
        ("random_accesses_per_s", "f8"),
        ("dispatch_s", "f8"),
        ("launch_s", "f8"),
        ("busy_w", "f8"),
    ]
)
"""A CPU or GPU, as its roofline."""

_DPU_MODEL = tuple(DpuModel.model_fields)
_DMA_MODEL = tuple(DmaModel.model_fields)
_MODES = 3

ARCH_DTYPE = np.dtype(
    [
        ("tiles", "f8"),  # tiles an inference uses
        ("requests", "f8"),
        ("launch_s", "f8"),
        # MAC grid
        ("dpu_clock_hz", "f8"),
        ("dpu_pixel_lanes_w", "f8"),
        ("dpu_pixel_lanes_h", "f8"),
        ("dpu_channel_lanes", "f8"),
        ("dpu_mac_bytes_per_cycle", "f8"),
        ("dpu_mode_w", "f8", (_MODES,)),
        ("dpu_mode_h", "f8", (_MODES,)),
        ("dpu_mode_c", "f8", (_MODES,)),
        ("dpu_sum_bytes", "f8"),  # a partial sum in SRAM
        ("dpu_read_ports", "f8"),
        ("dpu_sram_word_bytes", "f8"),
        *((f"dpu_{name}", "f8") for name in _DPU_MODEL),
        ("stream_pieces", "f8"),
        # SRAM, DMA, DRAM
        ("sram_tile_bytes", "f8"),
        ("vpu_clock_hz", "f8"),
        ("dma_engines", "f8"),
        ("dma_engine_bytes_per_cycle", "f8"),
        *((f"dma_{name}", "f8") for name in _DMA_MODEL),
        ("dram_bytes_per_s", "f8"),
        ("symg_transposed_rate", "f8"),
        # DSPs
        ("dsps_per_tile", "f8"),
        ("dsp_lanes", "f8"),
        # Energy and area
        ("mac_j_int8", "f8"),
        ("mac_j_fp16", "f8"),
        ("sram_j_per_byte", "f8"),
        ("dram_j_per_byte", "f8"),
        ("dsp_j_per_lane_op", "f8"),
        ("static_w", "f8"),
        ("area_mm2", "f8"),
        ("energy_depthwise", "f8"),
        ("energy_avgpool", "f8"),
        ("energy_maxpool", "f8"),
        ("energy_eltwise", "f8"),
        # Other devices
        ("cpu", _HOST_DTYPE),
        ("gpu", _HOST_DTYPE),
    ]
)
"""A row of the architecture table: one design point; SI units and cycles, `npusim.arch` says what each number means."""


def _host(record: Any, device: Cpu | Gpu, dram_latency_s: float) -> None:
    """Fill the roofline of a CPU or GPU."""
    rates = device.macs_per_cycle
    floating = "fp16" if "fp16" in rates else "fp32"
    record["float_macs_per_s"] = device.peak_macs_per_s(floating) * device.dense_efficiency
    record["int8_macs_per_s"] = device.peak_macs_per_s("int8" if "int8" in rates else floating) * device.dense_efficiency
    record["bytes_per_s"] = device.dram_bandwidth
    record["random_accesses_per_s"] = device.cores * device.outstanding_misses / dram_latency_s
    record["dispatch_s"] = device.dispatch_overhead
    record["launch_s"] = device.launch_overhead
    record["busy_w"] = device.power.busy


def set_npu(record: Any, npu: Npu, soc: Soc) -> None:
    """Fill the NPU's columns of a record of ARCH_DTYPE, and those of the memory and technology it uses."""
    dpu, grid = npu.dpu, npu.dpu.grid
    record["launch_s"] = npu.launch_overhead
    record["dpu_clock_hz"] = dpu.clock
    record["dpu_pixel_lanes_w"] = record["dpu_pixel_lanes_h"] = grid.vpe
    record["dpu_channel_lanes"] = dpu.channel_lanes
    record["dpu_sum_bytes"], record["stream_pieces"] = grid.accumulator, npu.schedule.stream_pieces
    record["dpu_mac_bytes_per_cycle"] = dpu.macs_per_mpe["int8"]
    modes = list(dpu.modes.values())
    for i in range(_MODES):  # a grid with fewer modes has its last one more than once
        mode = modes[min(i, len(modes) - 1)]
        record["dpu_mode_w"][i], record["dpu_mode_h"][i] = mode.groups_w, mode.groups_h
        record["dpu_mode_c"][i] = mode.groups_c
    record["dpu_read_ports"], record["dpu_sram_word_bytes"] = npu.sram.read_ports, npu.sram.word
    for name in _DPU_MODEL:
        record[f"dpu_{name}"] = getattr(dpu.model, name)
    record["sram_tile_bytes"], record["vpu_clock_hz"] = npu.sram.per_tile, npu.vpu_clock
    record["dma_engines"], record["dma_engine_bytes_per_cycle"] = npu.dma.engines, npu.dma.width
    for name in _DMA_MODEL:
        record[f"dma_{name}"] = getattr(npu.dma.model, name)
    record["dram_bytes_per_s"] = soc.dram.bandwidth
    record["symg_transposed_rate"] = npu.symg.transposed_read_rate
    record["dsps_per_tile"], record["dsp_lanes"] = npu.dsp.per_tile, npu.dsp.lanes["fp16"]
    _energy(record, npu, soc)


def _energy(record: Any, npu: Npu, soc: Soc) -> None:
    prices, factors = soc.technology.energy, npu.dpu.energy_factors
    scale = (npu.voltage / soc.technology.nominal_voltage) ** 2  # dynamic energy goes with the square of the voltage
    record["mac_j_int8"], record["mac_j_fp16"] = prices.mac["int8"] * scale, prices.mac["fp16"] * scale
    record["sram_j_per_byte"], record["dsp_j_per_lane_op"] = prices.sram * scale, prices.dsp_op * scale
    record["dram_j_per_byte"] = prices.dram  # DRAM has a supply of its own
    for name in ("depthwise", "avgpool", "maxpool", "eltwise"):
        record[f"energy_{name}"] = getattr(factors, name)
    area_m2 = npu_area_m2(npu, soc)
    leakage_w = soc.technology.leakage * area_m2 * (npu.voltage / soc.technology.nominal_voltage)
    record["static_w"] = leakage_w + npu.power.active
    record["area_mm2"] = area_m2 * 1e6


def npu_area_m2(npu: Npu, soc: Soc) -> float:
    """Return the area of an NPU (m^2): its building blocks, counted, times the technology's price of each."""
    prices = soc.technology.area
    macs = sum(float(prices.mac[name]) * npu.dpu.macs_per_cycle(name) for name in npu.dpu.macs_per_mpe)
    sram = float(prices.sram) * (npu.sram.per_tile + npu.sram.reserved)
    tile = macs + sram + float(prices.dsp) * npu.dsp.per_tile
    return float(npu.tiles * tile + prices.dma_engine * npu.dma.engines + prices.fixed)


def arch_row(soc: Soc, tiles: int, requests: int) -> Any:
    """Return the architecture table of one design point.

    Parameters
    ----------
    soc : Soc
    tiles : int
        NPU tiles that an inference uses.
    requests : int
        Inferences in flight.

    Returns
    -------
    array of ARCH_DTYPE, shape (1,)
    """
    table = np.zeros(1, ARCH_DTYPE)
    record = table[0]
    record["tiles"], record["requests"] = tiles, requests
    set_npu(record, soc.npu, soc)
    if soc.has("cpu"):
        _host(record["cpu"], soc.cpu, float(soc.dram.latency))
    if soc.has("gpu"):
        _host(record["gpu"], soc.gpu, float(soc.dram.latency))
    return table
