"""The one compiled kernel: operators x architectures -> costs. One point and ten million points take the
same road.

It is the till of the shop: shortlists say what each article needs (`npusim.cost.search`), prices are hung
on them (`npusim.cost.pricing`), then the bill is added up once. Points that differ in prices only share the
shortlists.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from npusim.cost.architecture import ARCH_DTYPE, row_numbers
from npusim.cost.breakdown import operator_costs
from npusim.cost.derived import derive
from npusim.cost.energy import dsp_lane_cycles, dynamic_j
from npusim.cost.fixed import dsp_time_s, fixed_work, reads
from npusim.cost.hosts import cost_host
from npusim.cost.jit import kernel, parallel_kernel
from npusim.cost.pricing import (
    BLOCK,
    CHOICES,
    RATES,
    Choice,
    Rate,
    choose,
    dma_time_s,
    edges_s,
    fill_rates,
    together_s,
)
from npusim.cost.search import search_plans
from npusim.cost.tables import TOTAL_DTYPE, Unit
from npusim.cost.totals import inference_times

__all__ = ["evaluate", "evaluate_plans", "evaluate_points"]

_VIEW, _DPU, _DSP, _DMA, _CPU, _GPU = (
    int(u) for u in (Unit.VIEW, Unit.DPU, Unit.DSP, Unit.DMA, Unit.CPU, Unit.GPU)
)
_CYCLE, _READ_WAIT, _WRITE_WAIT = int(Rate.CYCLE), int(Rate.READ_WAIT), int(Rate.WRITE_WAIT)
_PAGE = int(Rate.PAGE)
_DSP_RATE, _BEST, _PLACE = int(Rate.DSP), int(Choice.BEST), int(Choice.PLACE)

# Rows of the table of sums that a plan makes at each point.
_NPU_S, _DRAM, _SRAM_TRAFFIC, _SRAM_PEAK, _DPU_S, _DMA_S = range(6)
_SUMS = 6
# Rows of the table of sums over a chain: time of each unit, and of what cannot overlap.
_CHAIN_DPU, _CHAIN_DSP, _CHAIN_DMA, _CHAIN_EDGES, _CHAIN_REFILLING, _CHAIN_WALKS = range(6)
_CHAIN_SUMS = 6
# Rows of the table of what is the same under all plans.
_CPU_S, _GPU_S, _LAUNCHES_S, _DSP_S, _LANE_CYCLES, _HOST_J, _HOST_DRAM = range(7)
_COMMON = 7


@kernel
def _common_costs(arch: Any, ops: Any, dsp_s: Any, common: Any, p: int) -> None:
    """Cost at one point what no residency plan changes: hosts, launches, DSPs; `ops` are the operators of
    any plan.
    """
    common[:, p] = 0.0
    for o in range(ops.shape[0]):
        op = ops[o]
        dsp_s[o, p] = 0.0
        if op.unit == _CPU:
            time, moved = cost_host(arch.cpu, op)
            common[_CPU_S, p] += time
            common[_HOST_DRAM, p] += moved
            common[_HOST_J, p] += time * arch.cpu.busy_w
            common[_LAUNCHES_S, p] += op.launches * arch.cpu.launch_s
        elif op.unit == _GPU:
            time, moved = cost_host(arch.gpu, op)
            common[_GPU_S, p] += time
            common[_HOST_DRAM, p] += moved
            common[_HOST_J, p] += time * arch.gpu.busy_w
            common[_LAUNCHES_S, p] += op.launches * arch.gpu.launch_s
        else:
            common[_LAUNCHES_S, p] += op.launches * arch.launch_s
            if op.unit == _DSP:
                time = dsp_time_s(arch, op)
                dsp_s[o, p] = time
                common[_DSP_S, p] += time
                common[_LANE_CYCLES, p] += dsp_lane_cycles(arch, op, time)


@kernel
def _add_up(
    found: Any, choices: Any, rates: Any, reads: bool, writes: bool, chained: bool, points: int, sums: Any
) -> None:
    """Add the chosen candidates of one operator to the sums of a plan; of a link in a chain only the
    waits.
    """
    for p in range(points):
        way = found[int(choices[_PLACE, p])]
        wait_s = (rates[_READ_WAIT, p] if reads else 0.0) + (rates[_WRITE_WAIT, p] if writes else 0.0)
        sums[_NPU_S, p] += wait_s if chained else choices[_BEST, p] + wait_s
        sums[_DRAM, p] += way.dram_bytes
        sums[_SRAM_TRAFFIC, p] += way.grid_sram_bytes
        sums[_SRAM_PEAK, p] = max(sums[_SRAM_PEAK, p], way.sram_bytes)
        sums[_DPU_S, p] += way.grid_cycles * rates[_CYCLE, p]
        sums[_DMA_S, p] += dma_time_s(way, rates, p)


@kernel
def _add_link(found: Any, choices: Any, rates: Any, points: int, links: Any) -> None:
    """Add the chosen candidates of one operator of a chain to the chain's sums, unit by unit."""
    for p in range(points):
        way = found[int(choices[_PLACE, p])]
        links[_CHAIN_DPU, p] += way.grid_cycles * rates[_CYCLE, p]
        links[_CHAIN_DSP, p] += rates[_DSP_RATE, p]
        links[_CHAIN_DMA, p] += dma_time_s(way, rates, p)
        links[_CHAIN_EDGES, p] += edges_s(way, rates, p)
        links[_CHAIN_REFILLING, p] += way.refills * rates[_READ_WAIT, p]
        links[_CHAIN_WALKS, p] += way.walks * rates[_PAGE, p]


@kernel
def _join_chain(links: Any, points: int, sums: Any) -> None:
    """Replace the latencies of a chain's operators, added up one by one, by the time of the chain.

    Operators that hand rows on in stripes work at the same time: the units overlap, starts and ends add up.
    """
    for p in range(points):
        work_s, dma_s = max(links[_CHAIN_DPU, p], links[_CHAIN_DSP, p]), links[_CHAIN_DMA, p]
        chain_s = together_s(work_s, dma_s, links[_CHAIN_EDGES, p], links[_CHAIN_REFILLING, p])
        sums[_NPU_S, p] += chain_s + links[_CHAIN_WALKS, p]


@kernel
def _keep_better(
    archs: Any,
    common: Any,
    sums: Any,
    plan: int,
    waits: bool,
    points: int,
    totals: Any,
    first: int,
    plans: Any,
    traffic: Any,
) -> None:
    """Compare a plan with the best so far at each point: by time, then by what it moves, then by what it
    holds.

    A plan under which something `waits` in SRAM while a host works is none for points with several requests
    in flight: the others need the room.
    """
    for p in range(points):
        arch, total = archs[p, 0], totals[first + p]
        if waits and arch.requests > 1.0:
            continue
        dram = sums[_DRAM, p] + common[_HOST_DRAM, p]
        latency, interval = inference_times(
            arch, sums[_NPU_S, p], common[_CPU_S, p], common[_GPU_S, p], common[_LAUNCHES_S, p], dram
        )
        # The total's throughput holds the interval until all plans are compared.
        if plans[first + p] >= 0:
            if interval > total.throughput_per_s:
                continue
            if interval == total.throughput_per_s:
                if latency > total.latency_s:
                    continue
                if latency == total.latency_s:
                    if dram > total.dram_bytes:
                        continue
                    if dram == total.dram_bytes and sums[_SRAM_PEAK, p] >= total.sram_peak_bytes:
                        continue
        plans[first + p] = plan
        total.latency_s, total.throughput_per_s = latency, interval
        total.dram_bytes, total.sram_peak_bytes = dram, sums[_SRAM_PEAK, p]
        total.dpu_s, total.dma_s = sums[_DPU_S, p], sums[_DMA_S, p]
        traffic[p] = sums[_SRAM_TRAFFIC, p]


@kernel
def _finish(
    archs: Any, ops: Any, common: Any, traffic: Any, points: int, totals: Any, first: int, plans: Any
) -> None:
    """Fill in what follows from the plan that was taken: energy, rates, and what the machine itself is."""
    int8_macs, fp16_macs, sram_bytes = fixed_work(archs[0, 0], ops)
    for p in range(points):
        arch, total = archs[p, 0], totals[first + p]
        total.area_mm2, total.peak_ops_per_s = arch.area_mm2, arch.peak_ops_per_s
        if plans[first + p] < 0:
            total.latency_s = total.energy_j = np.inf
            total.throughput_per_s = 0.0
            continue
        interval = total.throughput_per_s
        npu_dram = total.dram_bytes - common[_HOST_DRAM, p]
        energy = dynamic_j(
            arch, npu_dram, traffic[p] + sram_bytes, int8_macs, fp16_macs, common[_LANE_CYCLES, p]
        )
        total.energy_j = energy + common[_HOST_J, p] + arch.static_w * interval
        total.dsp_s, total.cpu_s, total.gpu_s = common[_DSP_S, p], common[_CPU_S, p], common[_GPU_S, p]
        total.throughput_per_s = 1.0 / interval if interval > 0.0 else np.inf


@kernel
def _cost_group(
    base: Any, columns: Any, values: Any, start: int, stop: int, ops: Any, totals: Any, plans: Any
) -> None:
    """Cost the points `start` to `stop`, which share all that the search looks at: search once, then price
    block by block.
    """
    row = np.empty((1, base.shape[0]))
    for c in range(base.shape[0]):
        row[0, c] = base[c]
    for c in range(columns.shape[0]):
        row[0, columns[c]] = values[start, c]
    arch = row.view(ARCH_DTYPE)[0, 0]
    derive(arch)
    bounds = np.empty((ops.shape[0], ops.shape[1] + 1), np.int64)
    found = search_plans(arch, ops, bounds)
    flat = np.empty((min(BLOCK, stop - start), base.shape[0]))
    for p in range(flat.shape[0]):
        for c in range(base.shape[0]):
            flat[p, c] = row[0, c]
    archs = flat.view(ARCH_DTYPE)
    rates, choices, dsp_s = (
        np.zeros((RATES, BLOCK)),
        np.empty((CHOICES, BLOCK)),
        np.empty((ops.shape[1], BLOCK)),
    )
    common, sums, traffic = np.empty((_COMMON, BLOCK)), np.empty((_SUMS, BLOCK)), np.empty(BLOCK)
    links = np.empty((_CHAIN_SUMS, BLOCK))
    for first in range(start, stop, BLOCK):
        points = min(BLOCK, stop - first)
        for p in range(points):
            for c in range(columns.shape[0]):
                flat[p, columns[c]] = values[first + p, c]
            derive(archs[p, 0])
            fill_rates(archs[p, 0], rates, p)
            _common_costs(archs[p, 0], ops[0], dsp_s, common, p)
            plans[first + p] = -1
        for plan in range(ops.shape[0]):
            if not plan_fits(ops[plan], bounds[plan]):
                continue
            sums[:] = 0.0
            for chain in range(_chains(ops[plan]) + 1):
                links[:] = 0.0
                for o in range(ops.shape[1]):
                    op = ops[plan, o]
                    if op.chain != chain or op.unit == _VIEW or op.unit == _CPU or op.unit == _GPU:
                        continue
                    for p in range(points):
                        rates[_DSP_RATE, p] = dsp_s[o, p]
                    choose(found, bounds[plan, o], bounds[plan, o + 1], rates, points, choices)
                    _add_up(found, choices, rates, reads(op), op.c_dram_bytes > 0.0, chain > 0, points, sums)
                    if chain > 0:
                        _add_link(found, choices, rates, points, links)
                if chain > 0:
                    _join_chain(links, points, sums)
            waits = _waits_for_host(ops[plan])
            _keep_better(archs, common, sums, plan, waits, points, totals, first, plans, traffic)
        _finish(archs, ops[0], common, traffic, points, totals, first, plans)


@kernel
def _chains(ops: Any) -> int:
    """Return how many chains a plan has: numbers run from 1."""
    most = 0
    for o in range(ops.shape[0]):
        most = max(most, ops[o].chain)
    return most


@kernel
def _waits_for_host(ops: Any) -> bool:
    """Whether a plan keeps something in the NPU's SRAM while a host works."""
    for o in range(ops.shape[0]):
        on_host = ops[o].unit == _CPU or ops[o].unit == _GPU
        if on_host and ops[o].live_spread_bytes + ops[o].live_copied_bytes > 0.0:
            return True
    return False


@kernel
def plan_fits(ops: Any, bounds: Any) -> bool:
    """Whether every operator of a plan has a way to be done."""
    for o in range(ops.shape[0]):
        on_npu = ops[o].unit == _DPU or ops[o].unit == _DSP or ops[o].unit == _DMA
        if on_npu and bounds[o] == bounds[o + 1]:
            return False
    return True


def evaluate_plans(arch: Any, ops: Any, totals: Any, plans: Any) -> None:
    """Cost a network on one architecture under the best of its residency plans.

    Parameters
    ----------
    arch : array of float64, shape (columns of ARCH_DTYPE,)
        Float64 view of a row of the architecture table.
    ops : array of OP_DTYPE, shape (plans, operators)
    totals : array of TOTAL_DTYPE, shape (1,)
        Written.
    plans : array of int64, shape (1,)
        Written: the plan that is taken; -1 where the network does not fit under any.
    """
    _cost_group(arch, np.empty(0, np.int64), np.empty((1, 0)), 0, 1, ops, totals, plans)


@parallel_kernel
def evaluate_points(
    base: Any, columns: Any, values: Any, groups: Any, ops: Any, totals: Any, plans: Any
) -> None:
    """Cost a network at many design points over all cores.

    Parameters
    ----------
    base : array of float64, shape (columns of ARCH_DTYPE,)
        Float64 view of the row that all points start from.
    columns : array of int64, shape (changed,)
        Places in that view that points set; primitives only.
    values : array of float64, shape (points, changed)
        What each point sets them to.
    groups : array of int64, shape (groups + 1,)
        The points `groups[g]` to `groups[g + 1]` share all that the tiling search looks at.
    ops : array of OP_DTYPE, shape (plans, operators)
        The network under each residency plan.
    totals : array of TOTAL_DTYPE, shape (points,)
        Written.
    plans : array of int64, shape (points,)
        Written: the plan that is taken; -1 where the network does not fit under any.
    """
    for g in numba.prange(groups.shape[0] - 1):
        _cost_group(base, columns, values, groups[g], groups[g + 1], ops, totals, plans)


def evaluate(arch: Any, ops: Any, results: Any, total: Any) -> None:
    """Cost a network on one architecture under one residency plan, operator by operator.

    Parameters
    ----------
    arch : record of ARCH_DTYPE
    ops : array of OP_DTYPE, shape (operators,)
    results : array of RESULT_DTYPE, shape (operators,)
        Written; zero before.
    total : record of TOTAL_DTYPE
        Written.
    """
    operator_costs(arch, ops, results)
    totals = np.zeros(1, TOTAL_DTYPE)
    evaluate_plans(row_numbers(np.array([arch])), ops[np.newaxis], totals, np.zeros(1, np.int64))
    for name in TOTAL_DTYPE.names or ():
        total[name] = totals[name][0]
