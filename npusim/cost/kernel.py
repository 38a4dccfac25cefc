"""The one compiled kernel: operators x architectures -> costs. One point and ten million points take the same road.

It is the till of the shop: every article is rung up by its own rule (`cost_product`, `cost_stream`, `cost_host`), then the bill is
added up once.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from npusim.cost.energy import operator_energy_j
from npusim.cost.hosts import cost_host
from npusim.cost.jit import kernel, parallel_kernel
from npusim.cost.products import cost_product
from npusim.cost.streams import cost_stream
from npusim.cost.tables import RESULT_DTYPE, Bound, Form, Unit
from npusim.cost.triangle import cost_triangle

__all__ = ["cost_operator", "evaluate", "evaluate_many", "total_cost"]

_VIEW, _DPU, _DSP, _DMA, _CPU, _GPU = (int(u) for u in (Unit.VIEW, Unit.DPU, Unit.DSP, Unit.DMA, Unit.CPU, Unit.GPU))
_MATMUL, _CONVOLUTION = int(Form.MATMUL), int(Form.CONVOLUTION)
_COMPUTE_BOUND, _DMA_BOUND, _DSP_BOUND = int(Bound.COMPUTE), int(Bound.DMA), int(Bound.DSP)
_LAUNCH_BOUND = int(Bound.LAUNCH)


@kernel
def cost_operator(arch: Any, op: Any, result: Any) -> None:
    """Cost one operator on one architecture.

    Parameters
    ----------
    arch : record of ARCH_DTYPE
    op : record of OP_DTYPE
    result : record of RESULT_DTYPE
        Written; zero before.
    """
    if op.unit == _VIEW:
        return
    if op.unit == _CPU:
        result.cpu_s, result.dram_bytes = cost_host(arch.cpu, op)
        result.latency_s = result.cpu_s
        result.energy_j = result.cpu_s * arch.cpu.busy_w
        result.bound = _LAUNCH_BOUND if arch.cpu.dispatch_s > 0.5 * result.cpu_s else _COMPUTE_BOUND
        return
    if op.unit == _GPU:
        result.gpu_s, result.dram_bytes = cost_host(arch.gpu, op)
        result.latency_s = result.gpu_s
        result.energy_j = result.gpu_s * arch.gpu.busy_w
        result.bound = _LAUNCH_BOUND if arch.gpu.dispatch_s > 0.5 * result.gpu_s else _COMPUTE_BOUND
        return
    if op.unit == _DPU and (op.form == _MATMUL or op.form == _CONVOLUTION):
        if op.triangle:
            cost_triangle(arch, op, result)
        else:
            cost_product(arch, op, result)
    else:
        cost_stream(arch, op, result, op.unit == _DPU, op.unit == _DSP)
    result.energy_j = operator_energy_j(arch, op, result)
    result.bound = _bound(result)


@kernel
def _bound(result: Any) -> int:
    """Name what the operator waits for: the longest of its units, or its start when that is longer than all of them."""
    longest = max(result.dpu_s, result.dsp_s, result.dma_s)
    if result.latency_s > 2.0 * longest:
        return _LAUNCH_BOUND
    if longest == result.dma_s:
        return _DMA_BOUND
    return _DSP_BOUND if longest == result.dsp_s else _COMPUTE_BOUND


@kernel
def total_cost(arch: Any, ops: Any, results: Any, total: Any) -> None:
    """Add up one inference from the costs of its operators.

    With one request in flight, operators follow each other and every entry into a device is launched. With several, devices work
    on different requests at once: the slowest of the devices and of the shared DRAM sets the rate, and launches are hidden unless
    too few requests are in flight to hide them.
    """
    npu_s = 0.0
    serial_s = 0.0
    launch_s = 0.0
    for i in range(ops.shape[0]):
        op, result = ops[i], results[i]
        total.dpu_s += result.dpu_s
        total.dsp_s += result.dsp_s
        total.dma_s += result.dma_s
        total.cpu_s += result.cpu_s
        total.gpu_s += result.gpu_s
        total.dram_bytes += result.dram_bytes
        total.energy_j += result.energy_j
        total.sram_peak_bytes = max(total.sram_peak_bytes, result.sram_bytes)
        serial_s += result.latency_s
        if op.unit == _CPU:
            launch_s += op.launches * arch.cpu.launch_s
        elif op.unit == _GPU:
            launch_s += op.launches * arch.gpu.launch_s
        else:
            npu_s += result.latency_s
            launch_s += op.launches * arch.launch_s
    serial_s += launch_s
    if arch.requests <= 1.0:
        interval_s = serial_s
        total.latency_s = serial_s
    else:
        shared_s = total.dram_bytes / arch.dram_bytes_per_s
        interval_s = max(max(npu_s, shared_s), max(total.cpu_s, total.gpu_s))
        interval_s = max(interval_s, serial_s / arch.requests)
        total.latency_s = max(serial_s, arch.requests * interval_s)
    total.throughput_per_s = 1.0 / interval_s if interval_s > 0.0 else np.inf
    total.energy_j += arch.static_w * interval_s
    total.area_mm2 = arch.area_mm2


@kernel
def evaluate(arch: Any, ops: Any, results: Any, total: Any) -> None:
    """Cost a graph on one architecture, operator by operator.

    Parameters
    ----------
    arch : record of ARCH_DTYPE
    ops : array of OP_DTYPE, shape (operators,)
    results : array of RESULT_DTYPE, shape (operators,)
        Written; zero before.
    total : record of TOTAL_DTYPE
        Written; zero before.
    """
    for i in range(ops.shape[0]):
        cost_operator(arch, ops[i], results[i])
    total_cost(arch, ops, results, total)


@kernel
def _total(arch: Any, ops: Any, total: Any) -> None:
    """Cost a graph on one architecture, the total alone; numba's parallel loops cannot make a table of records themselves."""
    evaluate(arch, ops, np.zeros(ops.shape[0], RESULT_DTYPE), total)


@parallel_kernel
def evaluate_many(archs: Any, ops: Any, totals: Any) -> None:
    """Cost a graph on many architectures over all cores.

    Parameters
    ----------
    archs : array of ARCH_DTYPE, shape (points,)
    ops : array of OP_DTYPE, shape (operators,)
    totals : array of TOTAL_DTYPE, shape (points,)
        Written; zero before.
    """
    for point in numba.prange(archs.shape[0]):
        _total(archs[point], ops, totals[point])
