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
from npusim.cost.bill import (
    ITEMS,
    LINKS,
    SUMS,
    Common,
    add_plan,
    itemise,
    keep_better,
    on_npu,
    plan_fits,
    waits_for_host,
)
from npusim.cost.breakdown import operator_costs
from npusim.cost.candidates import CANDIDATE_DTYPE
from npusim.cost.derived import derive
from npusim.cost.energy import dsp_lane_cycles, dynamic_j
from npusim.cost.fixed import dsp_time_s, fixed_work, reads
from npusim.cost.hosts import cost_host
from npusim.cost.jit import kernel, parallel_kernel
from npusim.cost.pricing import BLOCK, CHOICES, RATES, Rate, choose, extreme_rates, fill_rates, forget_rates
from npusim.cost.search import search_rows
from npusim.cost.tables import TOTAL_DTYPE, Unit

__all__ = ["evaluate", "evaluate_plans", "evaluate_points"]

_VIEW, _DPU, _DSP, _DMA, _CPU, _GPU = (
    int(u) for u in (Unit.VIEW, Unit.DPU, Unit.DSP, Unit.DMA, Unit.CPU, Unit.GPU)
)
_DSP_RATE = int(Rate.DSP)
_CPU_S, _GPU_S, _LAUNCHES_S, _DSP_S = (
    int(c) for c in (Common.CPU_S, Common.GPU_S, Common.LAUNCHES_S, Common.DSP_S)
)
_LANE_CYCLES, _HOST_J, _HOST_DRAM = int(Common.LANE_CYCLES), int(Common.HOST_J), int(Common.HOST_DRAM)
_COMMON = len(Common)


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
    base: Any,
    columns: Any,
    values: Any,
    start: int,
    stop: int,
    ops: Any,
    rows: Any,
    slots: Any,
    totals: Any,
    plans: Any,
) -> None:
    """Cost the points `start` to `stop`, which share all that the search looks at: search once, then price
    block by block.
    """
    flat = np.empty((min(BLOCK, stop - start), base.shape[0]))
    for p in range(flat.shape[0]):
        for c in range(base.shape[0]):
            flat[p, c] = base[c]
    archs = flat.view(ARCH_DTYPE)
    bounds, extremes = np.empty(rows.shape[0] + 1, np.int64), np.empty((RATES, 2))
    found = np.empty(0, CANDIDATE_DTYPE)
    rates, choices = np.zeros((RATES, BLOCK)), np.empty((CHOICES, BLOCK))
    dsp_s, items = np.empty((ops.shape[1], BLOCK)), np.empty((rows.shape[0], ITEMS, BLOCK))
    common, traffic = np.empty((_COMMON, BLOCK)), np.empty(BLOCK)
    sums, links = np.empty((SUMS, BLOCK)), np.empty((LINKS, BLOCK))
    is_itemised = np.empty(rows.shape[0], np.bool_)
    for first in range(start, stop, BLOCK):
        points = min(BLOCK, stop - first)
        is_itemised[:] = False
        for p in range(points):
            for c in range(columns.shape[0]):
                flat[p, columns[c]] = values[first + p, c]
            derive(archs[p, 0])
            fill_rates(archs[p, 0], rates, p)
            _common_costs(archs[p, 0], ops[0], dsp_s, common, p)
            plans[first + p] = -1
        if first == start:
            forget_rates(extremes)
            if stop - start <= BLOCK:  # few points: what is too dear for all of them need not be listed
                extreme_rates(rates, points, extremes)
            found = search_rows(archs[0, 0], rows, extremes, bounds)
        for plan in range(ops.shape[0]):
            if not plan_fits(ops[plan], slots[plan], bounds):
                continue
            for o in range(ops.shape[1]):
                op, r = ops[plan, o], slots[plan, o]
                if on_npu(op) and not is_itemised[r]:
                    is_itemised[r] = True
                    for p in range(points):
                        rates[_DSP_RATE, p] = dsp_s[o, p]
                    choose(found, bounds[r], bounds[r + 1], rates, points, choices)
                    itemise(found, choices, rates, reads(op), op.c_dram_bytes > 0.0, points, items[r])
            pieces = archs[0, 0].stream_pieces
            add_plan(ops[plan], slots[plan], items, dsp_s, pieces, points, sums, links)
            waits = waits_for_host(ops[plan])
            keep_better(archs, common, sums, plan, waits, points, totals, first, plans, traffic)
        _finish(archs, ops[0], common, traffic, points, totals, first, plans)


@parallel_kernel
def _evaluate_all(
    base: Any,
    columns: Any,
    values: Any,
    groups: Any,
    ops: Any,
    rows: Any,
    slots: Any,
    totals: Any,
    plans: Any,
    hands: int,
) -> None:
    # Neighbouring groups cost much the same, so dealing them out in turn gives all hands equal work.
    for hand in numba.prange(hands):
        # Whoever looks at an array counts itself in and out of it: shared by all hands, that count would
        # wander from core to core all the time.
        own_ops, own_rows, own_slots = ops.copy(), rows.copy(), slots.copy()
        own_base, own_columns = base.copy(), columns.copy()
        for g in range(hand, groups.shape[0] - 1, hands):
            _cost_group(
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
    """Return the operators under all plans, each that is alike under several once, and who is which.

    Returns
    -------
    rows : array of OP_DTYPE, shape (rows,)
    slots : array of int64, shape (plans, operators)
        The row of each operator under each plan.
    """
    alike = ops.copy()
    alike["chain"] = 0  # it says who works at the same time, not what an operator needs
    place: dict[bytes, int] = {}
    slots = [place.setdefault(row.tobytes(), len(place)) for row in alike.reshape(-1)]
    rows = np.frombuffer(b"".join(place), ops.dtype).copy()
    return rows, np.array(slots, np.int64).reshape(ops.shape)


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
    rows, slots = _distinct(ops)
    _cost_group(arch, np.empty(0, np.int64), np.empty((1, 0)), 0, 1, ops, rows, slots, totals, plans)


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
    rows, slots = _distinct(ops)
    hands = numba.get_num_threads()
    _evaluate_all(base, columns, values, groups, ops, rows, slots, totals, plans, hands)


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
