"""Batched evaluation of single units: tables of work through the equations of `npusim.cost`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.cost.channelwise import depthwise_cycles, eltwise_cycles, maxpool_cycles
from npusim.cost.dma import transfer_s
from npusim.cost.dpu import conv_cycles, matmul_cycles
from npusim.cost.dsp import dsp_kernel_cycles
from npusim.cost.jit import compiled
from npusim.cost.tables import DpuOperation

__all__ = ["DPU_ROW", "dpu_cycles", "dpu_rows", "dsp_seconds", "transfer_seconds"]

Floats = NDArray[np.float64]

_MATMUL, _CONVOLUTION, _MAXPOOL = (
    int(DpuOperation.MATMUL),
    int(DpuOperation.CONVOLUTION),
    int(DpuOperation.MAXPOOL),
)
_ELTWISE = int(DpuOperation.ELTWISE)

DPU_ROW = np.dtype(
    [
        ("dpu_operation", "i8"),
        ("out_w", "f8"),
        ("out_h", "f8"),
        ("out_c", "f8"),
        ("in_c", "f8"),
        ("kernel_w", "f8"),
        ("kernel_h", "f8"),
        ("stride", "f8"),
        ("pad_top", "f8"),
        ("pad_bottom", "f8"),
        ("item_bytes", "f8"),
        ("mode", "i8"),
        ("write_tiles", "f8"),
        ("act_density", "f8"),
        ("weight_density", "f8"),
    ]
)
"""A workload of the DPU on one tile; a product M x K x N has M as `out_w`, K as `in_c` and N as `out_c`."""


def dpu_rows(count: int, **columns: Any) -> NDArray[Any]:
    """Return a table of DPU_ROW: one pixel, kernel 1x1, one byte an item and dense unless told otherwise."""
    table = np.ones(count, DPU_ROW)
    table["pad_top"] = table["pad_bottom"] = 0.0
    table["mode"] = 0
    for name, values in columns.items():
        table[name] = values
    return table


@compiled
def dpu_cycles(arch: Any, table: Any) -> Any:
    """Cycles of each row of DPU_ROW on an architecture (record of ARCH_DTYPE); shape (rows,)."""
    cycles = np.empty(table.shape[0])
    for i in range(table.shape[0]):
        r = table[i]
        if r.dpu_operation == _MATMUL:
            cycles[i] = matmul_cycles(
                arch, r.out_w, r.in_c, r.out_c, r.item_bytes, r.item_bytes, r.item_bytes, r.write_tiles,
                r.act_density, r.weight_density, 1.0, 1.0,
            )  # fmt: skip
        elif r.dpu_operation == _CONVOLUTION:
            cycles[i] = conv_cycles(
                arch, r.out_w, r.out_h, r.out_c, r.in_c, r.kernel_w, r.kernel_h, r.pad_top, r.pad_bottom,
                r.item_bytes, r.item_bytes, r.item_bytes, r.mode, r.write_tiles,
                r.act_density, r.weight_density, 1.0, 1.0,
            )  # fmt: skip
        elif r.dpu_operation == _MAXPOOL:
            cycles[i] = maxpool_cycles(
                arch, r.out_w, r.out_h, r.out_c, r.kernel_w, r.kernel_h, r.item_bytes, r.mode, r.write_tiles
            )
        elif r.dpu_operation == _ELTWISE:
            cycles[i] = eltwise_cycles(arch, r.out_w, r.out_h, r.out_c, r.item_bytes, r.write_tiles)
        else:
            cycles[i] = depthwise_cycles(
                arch, r.out_w, r.out_h, r.out_c, r.kernel_w, r.kernel_h, r.stride, r.pad_top, r.pad_bottom,
                r.item_bytes, r.write_tiles,
            )  # fmt: skip
    return cycles


@compiled
def transfer_seconds(arch: Any, direction: Any, payload: Any, row: Any, engines: Any) -> Any:
    """Seconds of each transfer on an architecture (record of ARCH_DTYPE); all arrays of shape (rows,)."""
    seconds = np.empty(payload.shape[0])
    for i in range(payload.shape[0]):
        seconds[i] = transfer_s(arch, direction[i], payload[i], row[i], engines[i])
    return seconds


@compiled
def dsp_seconds(kernels: Any, which: Any, elements: Any, rows: Any, lanes: float, clock_hz: float) -> Any:
    """Seconds of bare calls on one DSP, as tables of kernels list them (no padding by the compiler).

    Parameters
    ----------
    kernels : array of DSP_KERNEL_DTYPE, shape (kernels,)
    which : array of int, shape (calls,)
        Kernel of each call.
    elements, rows : array, shape (calls,)
    lanes, clock_hz : float
        fp16 lanes and clock of the DSP.
    """
    seconds = np.empty(which.shape[0])
    for i in range(which.shape[0]):
        cycles = dsp_kernel_cycles(kernels[which[i]], elements[i], rows[i], lanes, False)
        seconds[i] = cycles / clock_hz
    return seconds
