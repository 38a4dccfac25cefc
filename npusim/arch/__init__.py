"""What a machine is: typed, frozen data sheets of SoCs, read from YAML. Nothing here knows what work costs.

Like the shelf of data sheets in a design office: clocks, widths and sizes with their sources, to be put
side by side, altered with a pencil, and handed to whoever calculates.
"""

from npusim.arch.accelerator import Accelerator
from npusim.arch.calibration import Calibration
from npusim.arch.cpu import Cpu
from npusim.arch.device import Cache, DevicePoint, DevicePower, RooflineDevice
from npusim.arch.dma_model import DmaModel
from npusim.arch.dpu import Dpu, DpuMode, EnergyFactors, Grid
from npusim.arch.dpu_model import DpuModel
from npusim.arch.dram import Dram
from npusim.arch.dsp_model import DspGeneration, DspKernel
from npusim.arch.gpu import Gpu
from npusim.arch.loading import load_soc, soc_file, soc_names, with_overrides
from npusim.arch.npu import Dma, Dsp, Npu, NpuPoint, NpuPower, PerHint, Schedule, Sparsity, Sram, Symg
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
    "PerHint",
    "RooflineDevice",
    "Schedule",
    "Soc",
    "Sparsity",
    "Sram",
    "Symg",
    "Technology",
    "load_soc",
    "soc_file",
    "soc_names",
    "with_overrides",
]
