"""Typed, frozen data sheets of SoCs, read from YAML, without any cost model."""

from npusim.arch.device import Cpu, Gpu
from npusim.arch.dpu import Dpu
from npusim.arch.dsp import DspGeneration, DspKernel
from npusim.arch.loading import load_soc, sheet_text, soc_file, soc_names, with_overrides
from npusim.arch.npu import Accelerator, Npu
from npusim.arch.soc import Calibration, Soc, outer_levels

__all__ = [
    "Accelerator",
    "Calibration",
    "Cpu",
    "Dpu",
    "DspGeneration",
    "DspKernel",
    "Gpu",
    "Npu",
    "Soc",
    "load_soc",
    "outer_levels",
    "sheet_text",
    "soc_file",
    "soc_names",
    "with_overrides",
]
