"""Typed, frozen data sheets of SoCs, read from YAML; nothing here knows what work costs."""

from npusim.arch.accelerator import Accelerator
from npusim.arch.calibration import Calibration
from npusim.arch.device import (
    Cache,
    Cpu,
    DevicePoint,
    Gpu,
    PerHint,
    RooflineDevice,
)
from npusim.arch.dpu import Dpu, DpuMode, DpuModel, EnergyFactors, Grid
from npusim.arch.dram import Dram
from npusim.arch.dsp import Dsp, DspGeneration, DspKernel
from npusim.arch.loading import load_soc, sheet_text, soc_file, soc_names, with_overrides
from npusim.arch.npu import Dma, DmaModel, Npu, NpuPoint, Schedule, Sparsity, Sram, Symg
from npusim.arch.power import DevicePower, NpuPower, Package, SharePerHint
from npusim.arch.shared_levels import outer_levels
from npusim.arch.soc import Device, Soc
from npusim.arch.technology import AreaCosts, EnergyCosts, Technology

__all__ = [
    "Accelerator",
    "AreaCosts",
    "Cache",
    "Calibration",
    "Cpu",
    "Device",
    "DevicePoint",
    "DevicePower",
    "Dma",
    "DmaModel",
    "Dpu",
    "DpuMode",
    "DpuModel",
    "Dram",
    "Dsp",
    "DspGeneration",
    "DspKernel",
    "EnergyCosts",
    "EnergyFactors",
    "Gpu",
    "Grid",
    "Npu",
    "NpuPoint",
    "NpuPower",
    "Package",
    "PerHint",
    "RooflineDevice",
    "Schedule",
    "SharePerHint",
    "Soc",
    "Sparsity",
    "Sram",
    "Symg",
    "Technology",
    "load_soc",
    "outer_levels",
    "sheet_text",
    "soc_file",
    "soc_names",
    "with_overrides",
]
