"""The machine of a measurement, and batched evaluation of its units by the equations of `npusim.cost`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.arch import DspGeneration, DspKernel, Soc, load_soc
from npusim.arch.dsp import Dsp
from npusim.cost import (
    DSP_KERNEL_DTYPE,
    DpuOperation,
    DpuWorkload,
    arch_row,
    compiled_making_arrays,
    conv_cycles,
    depthwise_cycles,
    dma_transfer_s,
    dsp_kernel_cycles,
    eltwise_cycles,
    fill_numbers,
    matmul_cycles,
    maxpool_cycles,
    rows_of,
)
from npusim.validation.suite import MachineAt

_MATMUL = int(DpuOperation.MATMUL)
_CONVOLUTION = int(DpuOperation.CONVOLUTION)
_MAXPOOL = int(DpuOperation.MAXPOOL)
_ELTWISE = int(DpuOperation.ELTWISE)

_NUMBERS = (
    "out_w out_h out_c in_c kernel_w kernel_h stride pad_top pad_bottom item_bytes write_tiles act_density "
    "weight_density"
)
DPU_ROW = rows_of([("dpu_operation", "i8"), ("mode", "i8"), *((name, "f8") for name in _NUMBERS.split())])
"""A workload of the DPU on one tile; a product M x K x N has M as `out_w`, K as `in_c` and N as `out_c`."""


@dataclass(frozen=True)
class Machine:
    """The machine of a measurement: a SoC at its clocks, with replaceable numbers."""

    name: str
    """Name in the figures, such as npu4000."""
    soc: Soc
    arch: Any
    """The NPU's record of the architecture table, for one tile. Shape (1,)."""
    generations: Mapping[str, DspGeneration]
    """DSP kernels that replace the shipped ones, by generation."""

    def with_numbers(self, numbers: Mapping[str, float]) -> Machine:
        """Return the machine with other numbers in columns of its row, such as ``dma_start_cycles``."""
        arch = self.arch.copy()
        for name, value in numbers.items():
            arch[name] = value
        return replace(self, arch=arch)

    def with_generations(self, generations: Mapping[str, DspGeneration]) -> Machine:
        """Return the machine with other DSP kernels."""
        return replace(self, generations={**self.generations, **generations})

    def generation(self, name: str) -> DspGeneration:
        """Return a generation of DSP kernels; `UnknownNameError` where there is none of that name."""
        return self._dsp.generation(name)

    def dsp_kernel(self, generation: str, name: str) -> tuple[DspGeneration, DspKernel] | None:
        """Return a kernel and its generation, or a fallback generation that has it; None without any."""
        known = self._dsp.model_copy(update={"kernel_generation": generation}).kernel(name)
        return None if known is None else known[1:]

    @property
    def _dsp(self) -> Dsp:
        """The DSPs of the SoC with the replaced kernels."""
        dsp = self.soc.npu.dsp
        return dsp.model_copy(update={"kernels": {**dsp.kernels, **self.generations}})


def machine_at(name: str, place: MachineAt) -> Machine:
    """Return the machine of a suite: the shipped data sheet at the clocks of the measurement."""
    soc = load_soc(place.soc, {"npu.operating_point": place.operating_point})
    return Machine(name, soc, arch_row(soc, 1, 1, "latency").archs.arrays.copy(), {})


def dpu_rows(count: int, **columns: Any) -> NDArray[Any]:
    """Return a table of DPU_ROW; the default is one pixel, kernel 1x1, one byte per item, no zeros."""
    table = np.ones(count, DPU_ROW)
    table["pad_top"] = table["pad_bottom"] = 0.0
    table["mode"] = 0
    for name, values in columns.items():
        table[name] = values
    return table


@compiled_making_arrays
def dpu_cycles(arch: Any, table: Any) -> Any:
    """Cycles of each row of DPU_ROW on an architecture (record of ARCH_DTYPE); shape (rows,)."""
    cycles = np.empty(table.shape[0])
    for i in range(table.shape[0]):
        r = table[i]
        sizes = (r.out_w, r.out_h, r.out_c, r.in_c, r.kernel_w, r.kernel_h, r.stride, r.pad_top, r.pad_bottom)
        item_bytes = (r.item_bytes, r.item_bytes, r.item_bytes)
        densities = (r.act_density, r.weight_density, 1.0, 1.0)
        work = DpuWorkload(*sizes, *item_bytes, r.write_tiles, *densities, 1.0, 0.0, 0.0)
        if r.dpu_operation == _MATMUL:
            cycles[i] = matmul_cycles(arch, work)
        elif r.dpu_operation == _CONVOLUTION:
            cycles[i] = conv_cycles(arch, work, r.mode)
        elif r.dpu_operation == _MAXPOOL:
            cycles[i] = maxpool_cycles(arch, work, r.mode)
        elif r.dpu_operation == _ELTWISE:
            cycles[i] = eltwise_cycles(arch, work)
        else:
            cycles[i] = depthwise_cycles(arch, work)
    return cycles


@compiled_making_arrays
def transfer_seconds(arch: Any, direction: Any, payload: Any, row: Any, engines: Any) -> Any:
    """Seconds of each transfer on an architecture (record of ARCH_DTYPE); all arrays of shape (rows,)."""
    seconds = np.empty(payload.shape[0])
    for i in range(payload.shape[0]):
        seconds[i] = dma_transfer_s(arch, direction[i], payload[i], row[i], engines[i])
    return seconds


def call_seconds(
    machine: Machine,
    kernels: Sequence[tuple[DspGeneration, DspKernel] | None],
    which: NDArray[np.int64],
    elements: NDArray[np.float64],
    rows: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the seconds of bare calls on one DSP; see `dsp_seconds`. None stands for a kernel of no cost."""
    table = np.zeros(len(kernels), DSP_KERNEL_DTYPE)
    for record, kernel in zip(table, kernels, strict=True):
        if kernel is not None:
            fill_numbers(record, *kernel)
    lanes, clock_hz = float(machine.arch["dsp_lanes"][0]), float(machine.arch["vpu_clock_hz"][0])
    seconds: NDArray[np.float64] = dsp_seconds(table, which, elements, rows, lanes, clock_hz)
    return seconds


@compiled_making_arrays
def dsp_seconds(kernels: Any, which: Any, elements: Any, rows: Any, lanes: float, clock_hz: float) -> Any:
    """Seconds of bare calls on one DSP, as tables of kernels list them (no padding by the compiler).

    Parameters
    ----------
    kernels : array of DSP_KERNEL_DTYPE, shape (kernels,)
    which : array of int, shape (calls,)
        Kernel of each call.
    elements, rows : array, shape (calls,)
    """
    seconds = np.empty(which.shape[0])
    for i in range(which.shape[0]):
        cycles = dsp_kernel_cycles(kernels[which[i]], elements[i], rows[i], lanes, False)
        seconds[i] = cycles / clock_hz
    return seconds
