"""Batched evaluation: operators x architectures -> costs, for one design point and for ten million.

Candidates say what each operator needs (`npusim.cost.search`), rates make latencies of that
(`npusim.cost.candidate_latency`), plans add them up (`npusim.cost.plan_costs`). Points that differ in rates
only share the candidates.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from npusim.cost.architecture import ARCH_DTYPE, ArchRecord, derive, row_numbers
from npusim.cost.breakdown import operator_costs
from npusim.cost.candidate_latency import (
    BLOCK,
    CHOICES,
    RATES,
    Rate,
    choose,
    clear_rate_bounds,
    fill_rate_bounds,
    fill_rates,
)
from npusim.cost.candidates import CANDIDATE_DTYPE, reads_dram
from npusim.cost.dsp import dsp_time_s
from npusim.cost.energy import dsp_lane_cycles, dynamic_j, fixed_work
from npusim.cost.hosts import cost_host
from npusim.cost.jit import compiled, compiled_parallel
from npusim.cost.plan_costs import (
    FUSED_SUMS,
    SUMS,
    TERMS,
    PlanIndependent,
    add_plan,
    fill_terms,
    keep_better_plan,
    on_npu,
    plan_fits,
    waits_for_host,
)
from npusim.cost.search import search_rows
from npusim.cost.tables import TOTAL_DTYPE, Unit

__all__ = ["evaluate", "evaluate_plans", "evaluate_points"]

_VIEW, _DPU, _DSP, _DMA, _CPU, _GPU = (
    int(u) for u in (Unit.VIEW, Unit.DPU, Unit.DSP, Unit.DMA, Unit.CPU, Unit.GPU)
)
_DSP_RATE = int(Rate.DSP)
_CPU_S, _GPU_S, _LAUNCHES_S, _DSP_S = (
    int(c)
    for c in (PlanIndependent.CPU_S, PlanIndependent.GPU_S, PlanIndependent.LAUNCHES_S, PlanIndependent.DSP_S)
)
_LANE_CYCLES, _HOST_J, _HOST_DRAM = (
    int(PlanIndependent.LANE_CYCLES),
    int(PlanIndependent.HOST_J),
    int(PlanIndependent.HOST_DRAM),
)
_INDEPENDENT = len(PlanIndependent)


@compiled
def _independent_costs(arch: ArchRecord, ops: Any, dsp_s: Any, independent: Any, p: int) -> None:
    """Cost at one point what no residency plan changes: hosts, launches, DSPs."""
    independent[:, p] = 0.0
    for o in range(ops.shape[0]):
        op = ops[o]
        dsp_s[o, p] = 0.0
        if op.unit == _CPU:
            time, moved = cost_host(arch.cpu, op)
            independent[_CPU_S, p] += time
            independent[_HOST_DRAM, p] += moved
            independent[_HOST_J, p] += time * arch.cpu.busy_w
            independent[_LAUNCHES_S, p] += op.launches * arch.cpu.launch_s
        elif op.unit == _GPU:
            time, moved = cost_host(arch.gpu, op)
            independent[_GPU_S, p] += time
            independent[_HOST_DRAM, p] += moved
            independent[_HOST_J, p] += time * arch.gpu.busy_w
            independent[_LAUNCHES_S, p] += op.launches * arch.gpu.launch_s
        else:
            independent[_LAUNCHES_S, p] += op.launches * arch.launch_s
            if op.unit == _DSP:
                time = dsp_time_s(arch, op)
                dsp_s[o, p] = time
                independent[_DSP_S, p] += time
                independent[_LANE_CYCLES, p] += dsp_lane_cycles(arch, op, time)


@compiled
def _finish(
    archs: Any, ops: Any, independent: Any, traffic: Any, points: int, totals: Any, first: int, plans: Any
) -> None:
    """Fill in what follows from the plan that was taken: energy, rates, and what the machine itself is."""
    int8_macs, fp16_macs, sram_traffic_bytes = fixed_work(archs[0, 0], ops)
    for p in range(points):
        arch, total = archs[p, 0], totals[first + p]
        total.area_mm2, total.peak_ops_per_s = arch.area_mm2, arch.peak_ops_per_s
        if plans[first + p] < 0:
            total.latency_s = total.energy_j = np.inf
            total.throughput_per_s = 0.0
            continue
        interval = total.throughput_per_s
        npu_dram = total.dram_bytes - independent[_HOST_DRAM, p]
        energy = dynamic_j(
            arch,
            npu_dram,
            traffic[p] + sram_traffic_bytes,
            int8_macs,
            fp16_macs,
            independent[_LANE_CYCLES, p],
        )
        total.energy_j = energy + independent[_HOST_J, p] + arch.static_w * interval
        total.dsp_s, total.cpu_s, total.gpu_s = (
            independent[_DSP_S, p],
            independent[_CPU_S, p],
            independent[_GPU_S, p],
        )
        total.throughput_per_s = 1.0 / interval if interval > 0.0 else np.inf


@compiled
def _evaluate_group(
    base: Any,
    columns: Any,
    values: Any,
    start: int,
    stop: int,
    ops: Any,
    rows: Any,
    row_of: Any,
    totals: Any,
    plans: Any,
) -> None:
    """Cost the points `start` to `stop`, which share one search, block by block."""
    flat = np.empty((min(BLOCK, stop - start), base.shape[0]))
    for p in range(flat.shape[0]):
        for c in range(base.shape[0]):
            flat[p, c] = base[c]
    archs = flat.view(ARCH_DTYPE)
    bounds, rate_bounds = np.empty(rows.shape[0] + 1, np.int64), np.empty((RATES, 2))
    found = np.empty(0, CANDIDATE_DTYPE)
    rates, choices = np.zeros((RATES, BLOCK)), np.empty((CHOICES, BLOCK))
    dsp_s, terms = np.empty((ops.shape[1], BLOCK)), np.empty((rows.shape[0], TERMS, BLOCK))
    independent, traffic = np.empty((_INDEPENDENT, BLOCK)), np.empty(BLOCK)
    sums, fused_sums = np.empty((SUMS, BLOCK)), np.empty((FUSED_SUMS, BLOCK))
    has_terms = np.empty(rows.shape[0], np.bool_)
    for first in range(start, stop, BLOCK):
        points = min(BLOCK, stop - first)
        has_terms[:] = False
        for p in range(points):
            for c in range(columns.shape[0]):
                flat[p, columns[c]] = values[first + p, c]
            derive(archs[p, 0])
            fill_rates(archs[p, 0], rates, p)
            _independent_costs(archs[p, 0], ops[0], dsp_s, independent, p)
            plans[first + p] = -1
        if first == start:
            clear_rate_bounds(rate_bounds)
            if stop - start <= BLOCK:  # few points: what is too slow at all of them need not be kept
                fill_rate_bounds(rates, points, rate_bounds)
            found = search_rows(archs[0, 0], rows, rate_bounds, bounds)
        for plan in range(ops.shape[0]):
            if not plan_fits(ops[plan], row_of[plan], bounds):
                continue
            for o in range(ops.shape[1]):
                op, r = ops[plan, o], row_of[plan, o]
                if on_npu(op) and not has_terms[r]:
                    has_terms[r] = True
                    for p in range(points):
                        rates[_DSP_RATE, p] = dsp_s[o, p]
                    choose(found, bounds[r], bounds[r + 1], rates, points, choices)
                    fill_terms(found, choices, rates, reads_dram(op), op.c_dram_bytes > 0.0, points, terms[r])
            pieces = archs[0, 0].stream_pieces
            add_plan(ops[plan], row_of[plan], terms, dsp_s, pieces, points, sums, fused_sums)
            waits = waits_for_host(ops[plan])
            keep_better_plan(archs, independent, sums, plan, waits, points, totals, first, plans, traffic)
        _finish(archs, ops[0], independent, traffic, points, totals, first, plans)


@compiled_parallel
def _evaluate_all(
    base: Any,
    columns: Any,
    values: Any,
    groups: Any,
    ops: Any,
    rows: Any,
    row_of: Any,
    totals: Any,
    plans: Any,
    threads: int,
) -> None:
    # Neighbouring groups cost much the same, so dealing them out in turn gives all threads equal work.
    for thread in numba.prange(threads):
        # numba counts references to arrays: shared by all threads, the count would move from core to core all
        # the time.
        own_ops, own_rows, own_slots = ops.copy(), rows.copy(), row_of.copy()
        own_base, own_columns = base.copy(), columns.copy()
        for g in range(thread, groups.shape[0] - 1, threads):
            _evaluate_group(
                own_base,
                own_columns,
                values,
                groups[g],
                groups[g + 1],
                own_ops,
                own_rows,
                own_slots,
                totals,
                plans,
            )


def _distinct(ops: Any) -> tuple[Any, Any]:
    """Return the operators under all plans, each that is alike under several once, and the row of each.

    Returns
    -------
    rows : array of OP_DTYPE, shape (rows,)
    row_of : array of int64, shape (plans, operators)
        The row of each operator under each plan.
    """
    alike = ops.copy()
    alike["fused_chain"] = 0  # it says who works at the same time, not what an operator needs
    place: dict[bytes, int] = {}
    row_of = [place.setdefault(row.tobytes(), len(place)) for row in alike.reshape(-1)]
    rows = np.frombuffer(b"".join(place), ops.dtype).copy()
    return rows, np.array(row_of, np.int64).reshape(ops.shape)


def evaluate_plans(arch: ArchRecord, ops: Any, totals: Any, plans: Any) -> None:
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
    rows, row_of = _distinct(ops)
    _evaluate_group(arch, np.empty(0, np.int64), np.empty((1, 0)), 0, 1, ops, rows, row_of, totals, plans)


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
    rows, row_of = _distinct(ops)
    threads = numba.get_num_threads()
    _evaluate_all(base, columns, values, groups, ops, rows, row_of, totals, plans, threads)


def evaluate(arch: ArchRecord, ops: Any, results: Any, total: Any) -> None:
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
