"""Batched evaluation: operators x architectures -> costs, for one design point and for ten million.

Candidates say what each operator needs (`npusim.cost.search`), rates make latencies of that
(`npusim.cost.candidate_latency`), plans add them up (`npusim.cost.plan_costs`). Points that differ in rates
only share the candidates.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from npusim.cost.architecture import ARCH_DTYPE, ArchRecord, derive, derive_npu, row_numbers
from npusim.cost.breakdown import operator_costs
from npusim.cost.candidate_latency import (
    BLOCK,
    CHOICES,
    RATES,
    Rate,
    choose,
    clear_rate_bounds,
    fill_rates,
    start_rate_bounds,
    widen_rate_bounds,
)
from npusim.cost.candidates import CANDIDATE_DTYPE
from npusim.cost.dsp import dsp_time_s
from npusim.cost.energy import dsp_lane_cycles, dynamic_energies, fixed_work
from npusim.cost.hosts import cost_host, host_energy_j
from npusim.cost.jit import compiled, compiled_or_plain, compiled_parallel
from npusim.cost.plan_costs import (
    TERMS,
    PlanIndependent,
    SumTree,
    add_up,
    fill_terms,
    keep_better_plan,
    mark_all_stale,
    mark_stale,
    on_npu,
    sum_tree,
)
from npusim.cost.plan_table import PlanTable, plan_table
from npusim.cost.power import throttled_interval_s
from npusim.cost.search import plain_ms, search_rows
from npusim.cost.tables import TOTAL_DTYPE, DpuOperation, OpRecord, Unit

_VIEW, _DPU, _DSP, _DMA, _CPU, _GPU = (
    int(u) for u in (Unit.VIEW, Unit.DPU, Unit.DSP, Unit.DMA, Unit.CPU, Unit.GPU)
)
_CONVOLUTION = int(DpuOperation.CONVOLUTION)
_DSP_RATE = int(Rate.DSP)
_CPU_S, _GPU_S, _LAUNCHES_S, _DSP_S = (
    int(c)
    for c in (PlanIndependent.CPU_S, PlanIndependent.GPU_S, PlanIndependent.LAUNCHES_S, PlanIndependent.DSP_S)
)
_DISPATCH_S, _LANE_CYCLES, _HOST_DRAM, _HOST_MOVED = (
    int(PlanIndependent.DISPATCH_S),
    int(PlanIndependent.LANE_CYCLES),
    int(PlanIndependent.HOST_DRAM),
    int(PlanIndependent.HOST_MOVED),
)
_CPU_J, _GPU_J = int(PlanIndependent.CPU_J), int(PlanIndependent.GPU_J)
_INDEPENDENT = len(PlanIndependent)


SHARED_SEARCH = 1024
"""Points of different SRAM sizes that share one search at most; more points have one size."""


class Design(NamedTuple):
    """Design points: what they start from and what each sets."""

    base: Any
    """Float64 view of a row of the architecture table, shape (columns of ARCH_DTYPE,)."""
    columns: Any
    """Places in that view that points set, int64, shape (changed,)."""
    values: Any
    """What each point sets them to, float64, shape (points, changed)."""


@compiled
def _independent_costs(arch: ArchRecord, ops: Any, dsp_s: Any, independent: Any, p: int) -> None:
    """Cost at one point what no residency plan changes: hosts, launches, DSPs."""
    independent[:, p] = 0.0
    for o in range(ops.shape[0]):
        op = ops[o]
        dsp_s[o, p] = 0.0
        if op.unit == _CPU:
            host = cost_host(arch.cpu, op)
            independent[_CPU_S, p] += host.time_s * op.repeats
            independent[_CPU_J, p] += host_energy_j(arch.cpu, host) * op.repeats
            independent[_HOST_DRAM, p] += host.streamed_bytes * op.repeats
            independent[_HOST_MOVED, p] += (host.read_bytes + host.written_bytes) * op.repeats
            independent[_LAUNCHES_S, p] += op.launches * arch.cpu.launch_s
        elif op.unit == _GPU:
            host = cost_host(arch.gpu, op)
            independent[_GPU_S, p] += host.time_s * op.repeats
            independent[_GPU_J, p] += host_energy_j(arch.gpu, host) * op.repeats
            independent[_HOST_DRAM, p] += host.streamed_bytes * op.repeats
            independent[_HOST_MOVED, p] += (host.read_bytes + host.written_bytes) * op.repeats
            independent[_LAUNCHES_S, p] += op.launches * arch.gpu.launch_s
        else:
            independent[_LAUNCHES_S, p] += op.launches * arch.launch_s
            independent[_DISPATCH_S, p] += op.repeats * op.dispatches * arch.dispatch_s
            if op.unit == _DSP:
                time = dsp_time_s(arch, op)
                dsp_s[o, p] = time
                independent[_DSP_S, p] += op.repeats * time
                independent[_LANE_CYCLES, p] += op.repeats * dsp_lane_cycles(arch, op, time)


@compiled
def _finish(
    archs: Any, ops: Any, independent: Any, traffic: Any, points: int, totals: Any, first: int, plans: Any
) -> None:  # fmt: skip
    """Fill in what follows from the plan that was taken: energy, rates, and what the machine itself is."""
    fixed = fixed_work(archs[0, 0], ops)
    for p in range(points):
        arch, total = archs[p, 0], totals[first + p]
        total.area_mm2, total.peak_ops_per_s = arch.area_mm2, arch.peak_ops_per_s
        if plans[first + p] < 0:
            total.latency_s = total.energy_j = np.inf
            total.throughput_per_s = 0.0
            continue
        interval = total.throughput_per_s
        total.dsp_s, total.cpu_s, total.gpu_s = (
            independent[_DSP_S, p],
            independent[_CPU_S, p],
            independent[_GPU_S, p],
        )
        npu_dram = total.dram_bytes - independent[_HOST_DRAM, p]
        total.dram_bytes = npu_dram + independent[_HOST_MOVED, p]
        total.sram_traffic_bytes = traffic[p] + fixed.dsp_read_bytes + fixed.dsp_written_bytes + npu_dram
        found = dynamic_energies(
            arch, npu_dram, total.sram_traffic_bytes, fixed.grid_macs, independent[_LANE_CYCLES, p]
        )
        total.mac_j, total.sram_j, total.dram_j, total.dsp_j = found.mac, found.sram, found.dram, found.dsp
        total.cpu_j, total.gpu_j = independent[_CPU_J, p], independent[_GPU_J, p]
        total.static_j = arch.static_w * min(total.npu_s / arch.contexts, interval)
        on_devices_j = total.cpu_j + total.gpu_j + total.static_j
        work_j = found.mac + found.sram + found.dram + found.dsp + on_devices_j
        throttled_s = throttled_interval_s(interval, work_j, arch.idle_w, arch.limit_w)
        if throttled_s > interval:
            total.latency_s *= throttled_s / interval
            interval = throttled_s
        total.idle_j = arch.idle_w * interval
        total.energy_j = work_j + total.idle_j
        total.ops_per_j = 2.0 * fixed.macs / total.energy_j if total.energy_j > 0.0 else 0.0
        total.throughput_per_s = 1.0 / interval if interval > 0.0 else np.inf


class _Work(NamedTuple):
    """What plans are compared by at the points of a block."""

    archs: Any
    table: PlanTable
    found: Any
    """Candidates, array of CANDIDATE_DTYPE."""
    bounds: Any
    """Candidates of row `r` are `found[bounds[r] : bounds[r + 1]]`."""
    rates: Any
    dsp_s: Any
    """Time of the DSPs, shape (operators, points)."""
    independent: Any
    terms: Any
    """What each row comes to, shape (rows, TERMS, points), where it `has_terms`."""
    has_terms: Any
    choices: Any
    tree: SumTree
    row_of: Any
    """Row of each operator under the plan at hand."""
    pending: Any
    """Operators whose sums are out of date, and whether each is among them."""
    is_pending: Any
    traffic: Any
    """Bytes through SRAM of the best plan, shape (points,)."""


def _group_ms(_: Design, start: int, stop: int, table: PlanTable, *__: Any) -> float:
    return plain_ms(table.rows) * (stop - start)


@compiled_or_plain(_group_ms)
def _evaluate_group(design: Design, start: int, stop: int, table: PlanTable, totals: Any, plans: Any) -> None:
    """Cost the points `start` to `stop`, which share one search, block by block."""
    width, rows, operators = min(BLOCK, stop - start), table.rows, table.fused_chains.shape[1]
    flat = np.empty((width, design.base.shape[0]))
    for p in range(width):
        for c in range(design.base.shape[0]):
            flat[p, c] = design.base[c]
    archs = flat.view(ARCH_DTYPE)
    bounds, rate_bounds = np.empty(rows.shape[0] + 1, np.int64), np.empty((RATES, 2))
    found = np.empty(0, CANDIDATE_DTYPE)
    rates, dsp_s = np.zeros((RATES, BLOCK)), np.empty((operators, width))
    independent, terms = np.empty((_INDEPENDENT, width)), np.empty((rows.shape[0], TERMS, width))
    has_terms, choices = np.empty(rows.shape[0], np.bool_), np.empty((CHOICES, BLOCK))
    row_of, pending = np.empty(operators, np.int64), np.empty(operators, np.int64)
    is_pending, traffic = np.empty(operators, np.bool_), np.empty(width)
    tree = sum_tree(table.leaf_op.shape[1], width)
    first_ops, uses_host = np.empty(operators, rows.dtype), False
    for o in range(operators):
        first_ops[o] = rows[table.changes[o, 1]]
        uses_host = uses_host or first_ops[o].unit == _CPU or first_ops[o].unit == _GPU
    for first in range(start, stop, BLOCK):
        points = min(BLOCK, stop - first)
        has_terms[:] = False
        for p in range(points):
            for c in range(design.columns.shape[0]):
                flat[p, design.columns[c]] = design.values[first + p, c]
            if uses_host:
                derive(archs[p, 0])
            else:
                derive_npu(archs[p, 0])
            fill_rates(archs[p, 0], rates, p)
            _independent_costs(archs[p, 0], first_ops, dsp_s, independent, p)
            plans[first + p] = -1
        if first == start:
            # What is too slow at all points need not be kept; of many points that pays for convolutions only.
            start_rate_bounds(rate_bounds)
            widen_rate_bounds(rates, points, rate_bounds)
            if stop - start <= SHARED_SEARCH or _has_convolutions(rows):
                _widen_by_others(design, start + points, stop, rate_bounds)
            else:
                clear_rate_bounds(rate_bounds)
            found = search_rows(archs[0, 0], rows, rate_bounds, bounds)
        work = _Work(
            archs, table, found, bounds, rates, dsp_s, independent, terms, has_terms, choices, tree, row_of,
            pending, is_pending, traffic,
        )  # fmt: skip
        _compare_plans(work, points, totals, first, plans)
        _finish(archs, first_ops, independent, traffic, points, totals, first, plans)


@compiled
def _has_convolutions(rows: Any) -> bool:
    """Whether an operator has pieces of several sizes (`npusim.cost.granularity`)."""
    found = False
    for r in range(rows.shape[0]):
        found |= rows[r].unit == _DPU and rows[r].dpu_operation == _CONVOLUTION
    return found


@compiled
def _widen_by_others(design: Design, start: int, stop: int, rate_bounds: Any) -> None:
    """Widen the bounds of rates by the points `start` to `stop`."""
    rates, flat = np.zeros((RATES, 1)), np.empty((1, design.base.shape[0]))
    flat[0] = design.base
    arch = flat.view(ARCH_DTYPE)
    for p in range(start, stop):
        for c in range(design.columns.shape[0]):
            flat[0, design.columns[c]] = design.values[p, c]
        derive_npu(arch[0, 0])
        fill_rates(arch[0, 0], rates, 0)
        widen_rate_bounds(rates, 1, rate_bounds)


@compiled
def _compare_plans(work: _Work, points: int, totals: Any, first: int, plans: Any) -> None:
    """Write the best plan of each point and its sums."""
    table, rows, bounds, tree, row_of = work.table, work.table.rows, work.bounds, work.tree, work.row_of
    changes, has_terms, pending, is_pending = table.changes, work.has_terms, work.pending, work.is_pending
    pieces, leaf_of, chain_leaf = work.archs[0, 0].stream_pieces, table.leaf_of, table.chain_leaf
    found, rates, dsp_s, terms, choices = work.found, work.rates, work.dsp_s, work.terms, work.choices
    row_of[:] = -1
    is_pending[:] = False
    last, unfit, waiting = -1, 0, 0
    for plan in range(table.family.shape[0]):
        for c in range(table.change_start[plan], table.change_start[plan + 1]):
            o, r = changes[c, 0], changes[c, 1]
            if row_of[o] >= 0 and not _fits(rows[row_of[o]], bounds, row_of[o]):
                unfit -= 1
            if not _fits(rows[r], bounds, r):
                unfit += 1
            row_of[o] = r
            if not is_pending[o]:
                is_pending[o] = True
                pending[waiting] = o
                waiting += 1
        if unfit > 0:
            continue
        family = table.family[plan]
        queued = 0 if family == last else mark_all_stale(tree, table.leaf_op.shape[1])
        last = family
        for i in range(waiting):
            o = pending[i]
            is_pending[o] = False
            r = row_of[o]
            if leaf_of[family, o] >= 0 and not has_terms[r]:
                has_terms[r] = True
                for p in range(points):
                    rates[_DSP_RATE, p] = dsp_s[o, p]
                choose(found, bounds[r], bounds[r + 1], rates, points, choices)
                fill_terms(found, choices, rates, rows[r], points, terms[r])
            queued = mark_stale(tree, leaf_of[family, o], queued)
            queued = mark_stale(tree, chain_leaf[family, o], queued)
        waiting = 0
        add_up(
            tree, queued, table.leaf_op[family], chain_leaf[family], row_of, terms, dsp_s, pieces,
            points,
        )  # fmt: skip
        sums = tree.nodes[tree.nodes.shape[0] - 1]
        keep_better_plan(
            work.archs, work.independent, sums, plan, table.waits[plan], points, totals, first, plans,
            work.traffic,
        )  # fmt: skip


@compiled
def _fits(op: OpRecord, bounds: Any, row: int) -> bool:
    """Whether an operator has a candidate, or needs none."""
    return not on_npu(op) or bounds[row] < bounds[row + 1]


@compiled_parallel
def _evaluate_all(
    design: Design, groups: Any, table: PlanTable, totals: Any, plans: Any, threads: int
) -> None:
    # Neighbouring groups cost much the same, so dealing them out in turn gives all threads equal work.
    for thread in numba.prange(threads):
        # numba counts references to arrays: shared by all threads, the count would move from core to core all
        # the time.
        own = PlanTable(
            table.rows.copy(), table.changes.copy(), table.change_start.copy(), table.family.copy(),
            table.fused_chains.copy(), table.leaf_op.copy(), table.leaf_of.copy(), table.chain_leaf.copy(),
            table.waits.copy(),
        )  # fmt: skip
        own_design = Design(design.base.copy(), design.columns.copy(), design.values)
        for g in range(thread, groups.shape[0] - 1, threads):
            _evaluate_group(own_design, groups[g], groups[g + 1], own, totals, plans)


def evaluate_plans(arch: Any, table: PlanTable, totals: Any, plans: Any) -> None:
    """Cost a network on one architecture under the best of its residency plans.

    Parameters
    ----------
    arch : array of float64, shape (columns of ARCH_DTYPE,)
        Float64 view of a row of the architecture table.
    totals : array of TOTAL_DTYPE, shape (1,)
        Written.
    plans : array of int64, shape (1,)
        Written: the plan that is taken; -1 where the network does not fit under any.
    """
    design = Design(arch, np.empty(0, np.int64), np.empty((1, 0)))
    _evaluate_group(design, 0, 1, table, totals, plans)


def evaluate_points(
    base: Any, columns: Any, values: Any, groups: Any, table: PlanTable, totals: Any, plans: Any
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
        The points `groups[g]` to `groups[g + 1]` share all that the tiling search looks at, but for the size
        of SRAM where they are no more than `SHARED_SEARCH`.
    table : PlanTable
        The network under each residency plan.
    totals : array of TOTAL_DTYPE, shape (points,)
        Written.
    plans : array of int64, shape (points,)
        Written: the plan that is taken; -1 where the network does not fit under any.
    """
    design = Design(base, columns, values)
    _evaluate_all(design, groups, table, totals, plans, numba.get_num_threads())


def evaluate(arch: ArchRecord, ops: Any, results: Any, total: Any) -> None:
    """Cost a network on one architecture under one residency plan, operator by operator.

    Parameters
    ----------
    ops : array of OP_DTYPE, shape (operators,)
    results : array of RESULT_DTYPE, shape (operators,)
        Written; zero before.
    """
    operator_costs(arch, ops, results)
    totals = np.zeros(1, TOTAL_DTYPE)
    evaluate_plans(row_numbers(np.array([arch])), plan_table(ops[np.newaxis]), totals, np.zeros(1, np.int64))
    for name in TOTAL_DTYPE.names or ():
        total[name] = totals[name][0]
