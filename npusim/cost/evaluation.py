"""Batched evaluation: operators x architectures -> costs, for one design point and for ten million.

Candidates say what each operator needs (`npusim.cost.search`), rates make latencies of that
(`npusim.cost.candidate_latency`), plans add them up (`npusim.cost.plan_costs`). Points that differ in rates
only share the candidates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npusim.cost.architecture import ARCH_DTYPE, SHARED_DTYPE, Archs, derive, derive_arrays
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
from npusim.cost.design_point import ARRAY_SIZE, HOST_SIZE, SHARED_SIZE, ArchRow
from npusim.cost.hosts import HOST_DTYPE
from npusim.cost.interval import DeviceTimes
from npusim.cost.jit import compiled, compiled_or_plain, compiled_parallel
from npusim.cost.levels import SERVED_DTYPE, fill_all_served
from npusim.cost.plan_costs import (
    SUMS,
    TERMS,
    SumTree,
    add_up,
    fill_terms,
    keep_better_plan,
    mark_all_stale,
    mark_stale,
    on_array,
    sum_tree,
)
from npusim.cost.plan_independent import PlanIndependent, fill_independent, plan_independent
from npusim.cost.plan_table import PlanTable, plan_table
from npusim.cost.search import plain_ms, search_rows
from npusim.cost.tables import DEVICE_USE_DTYPE, TOTAL_DTYPE, DpuOperation, OpRecord, Unit
from npusim.cost.totals import Taken, fill_device_uses, finish

if TYPE_CHECKING:
    from numba import prange  # `compiled_parallel` puts it here: importing the compiler takes its time

_DPU, _HOST, _CONVOLUTION = int(Unit.DPU), int(Unit.HOST), int(DpuOperation.CONVOLUTION)
_DSP_RATE = int(Rate.DSP)


SHARED_SEARCH = 1024
"""Points of different SRAM sizes that share one search at most; more points have one size."""


class Design(NamedTuple):
    """Design points: what they start from and what each sets."""

    base: Any
    """Numbers of a point (`npusim.cost.design_point.ArchRow`), float64, shape (columns,)."""
    arrays: int
    """Array devices of the machine."""
    hosts: int
    """CPUs and GPUs of the machine."""
    columns: Any
    """Places among these numbers that points set, int64, shape (changed,)."""
    values: Any
    """What each point sets them to, float64, shape (points, changed)."""


class Block(NamedTuple):
    """Room for some design points: their numbers, and the same as records."""

    shared: Any
    """Float64, shape (points, numbers of what devices share)."""
    arrays: Any
    """Float64, shape (points, numbers of the array devices)."""
    hosts: Any
    """Float64, shape (points, numbers of the hosts)."""
    archs: Archs


@compiled
def _block(design: Design, points: int) -> Block:
    """Return a block of points as the design has them before they set anything."""
    shared = np.empty((points, SHARED_SIZE))
    arrays, hosts = (
        np.empty((points, design.arrays * ARRAY_SIZE)),
        np.empty((points, design.hosts * HOST_SIZE)),
    )
    first = SHARED_SIZE + arrays.shape[1]
    for p in range(points):
        shared[p, :] = design.base[:SHARED_SIZE]
        arrays[p, :] = design.base[SHARED_SIZE:first]
        hosts[p, :] = design.base[first:]
    return Block(
        shared,
        arrays,
        hosts,
        Archs(shared.view(SHARED_DTYPE), arrays.view(ARCH_DTYPE), hosts.view(HOST_DTYPE)),
    )


@compiled
def _set_columns(block: Block, design: Design, start: int, points: int) -> None:
    """Write what points of the design set, from `start` on, into the first points of a block."""
    first = SHARED_SIZE + block.arrays.shape[1]
    for c in range(design.columns.shape[0]):
        column = design.columns[c]
        if column < SHARED_SIZE:
            for p in range(points):
                block.shared[p, column] = design.values[start + p, c]
        elif column < first:
            for p in range(points):
                block.arrays[p, column - SHARED_SIZE] = design.values[start + p, c]
        else:
            for p in range(points):
                block.hosts[p, column - first] = design.values[start + p, c]


@compiled
def _fill_rates(archs: Archs, rates: Any, points: int) -> None:
    """Fill the tables of rates of all array devices at the first points."""
    for d in range(archs.arrays.shape[1]):
        own = rates[d]
        for p in range(points):
            fill_rates(archs.arrays[p, d], own, p)


class _Work(NamedTuple):
    """What plans are compared by at the points of a block."""

    archs: Archs
    table: PlanTable
    found: Any
    """Candidates, array of CANDIDATE_DTYPE."""
    bounds: Any
    """Candidates of row `r` are `found[bounds[r] : bounds[r + 1]]`."""
    served: Any
    """What memory levels serve of each row, array of SERVED_DTYPE."""
    rates: Any
    """Of each array device, shape (array devices, RATES, BLOCK)."""
    dsp_s: Any
    """Time of the DSPs, shape (operators, points)."""
    independent: PlanIndependent
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
    kept: Any
    """Sums of the best plan, shape (array devices, SUMS, points)."""
    times: DeviceTimes
    interval_bounds: Any
    """Scratch of `npusim.cost.interval`, as `times`."""


def _group_ms(_: Design, start: int, stop: int, table: PlanTable, *__: Any) -> float:
    return plain_ms(table.rows) * (stop - start)


@compiled_or_plain(_group_ms)
def _evaluate_group(
    design: Design, start: int, stop: int, table: PlanTable, totals: Any, plans: Any, uses: Any
) -> None:
    """Cost the points `start` to `stop`, which share one search, block by block."""
    width, rows, operators = min(BLOCK, stop - start), table.rows, table.fused_chains.shape[1]
    arrays, hosts = design.arrays, design.hosts
    block = _block(design, width)
    archs = block.archs
    bounds, rate_bounds = np.empty(rows.shape[0] + 1, np.int64), np.empty((arrays, RATES, 2))
    found, served = np.empty(0, CANDIDATE_DTYPE), np.zeros(rows.shape[0], SERVED_DTYPE)
    rates, dsp_s = np.zeros((arrays, RATES, BLOCK)), np.empty((operators, width))
    independent, terms = plan_independent(arrays, hosts, width), np.empty((rows.shape[0], TERMS, width))
    has_terms, choices = np.empty(rows.shape[0], np.bool_), np.empty((CHOICES, BLOCK))
    row_of, pending = np.empty(operators, np.int64), np.empty(operators, np.int64)
    is_pending, kept = np.empty(operators, np.bool_), np.empty((arrays, SUMS, width))
    devices = arrays + hosts
    times = DeviceTimes(np.zeros(devices), np.zeros(devices), np.ones(devices))
    interval_bounds = np.empty(2 * devices + 2)
    tree = sum_tree(table.leaf_op.shape[1], arrays, width)
    first_ops, uses_host = np.empty(operators, rows.dtype), False
    for o in range(operators):
        first_ops[o] = rows[table.changes[o, 1]]
        uses_host = uses_host or first_ops[o].unit == _HOST
    for first in range(start, stop, BLOCK):
        points = min(BLOCK, stop - first)
        has_terms[:] = False
        _set_columns(block, design, first, points)
        if uses_host:
            derive(archs, points)
        else:
            derive_arrays(archs, points)
        _fill_rates(archs, rates, points)
        fill_independent(archs, first_ops, dsp_s, independent, points)
        plans[first : first + points] = -1
        if first == start:
            # What is too slow at all points need not be kept; of many points that pays for convolutions only.
            for d in range(arrays):
                start_rate_bounds(rate_bounds[d])
                widen_rate_bounds(rates[d], points, rate_bounds[d])
            if stop - start <= SHARED_SEARCH or _has_convolutions(rows):
                _widen_by_others(design, start + points, stop, rate_bounds)
            else:
                for d in range(arrays):
                    clear_rate_bounds(rate_bounds[d])
            found = search_rows(archs, rows, rate_bounds, bounds)
            fill_all_served(archs.arrays[0], rows, served)
        work = _Work(
            archs, table, found, bounds, served, rates, dsp_s, independent, terms, has_terms, choices, tree,
            row_of, pending, is_pending, kept, times, interval_bounds,
        )  # fmt: skip
        _compare_plans(work, points, totals, first, plans)
        taken = Taken(archs, independent, kept)
        finish(taken, first_ops, points, totals, first, plans)
        if uses.shape[0] > 0:
            fill_device_uses(taken, points, first, plans, uses)


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
    rates, block = np.zeros((design.arrays, RATES, 1)), _block(design, 1)
    one: Any = np.int64(1)
    for p in range(start, stop):
        _set_columns(block, design, p, one)
        derive_arrays(block.archs, one)
        _fill_rates(block.archs, rates, one)
        for d in range(design.arrays):
            widen_rate_bounds(rates[d], one, rate_bounds[d])


@compiled
def _compare_plans(work: _Work, points: int, totals: Any, first: int, plans: Any) -> None:
    """Write the best plan of each point and its sums."""
    table, rows, bounds, tree, row_of = work.table, work.table.rows, work.bounds, work.tree, work.row_of
    changes, has_terms, pending, is_pending = table.changes, work.has_terms, work.pending, work.is_pending
    leaf_of, chain_leaf = table.leaf_of, table.chain_leaf
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
                own_rates = rates[table.array_of[o]]
                for p in range(points):
                    own_rates[_DSP_RATE, p] = dsp_s[o, p]
                served = work.served[r]
                choose(found, bounds[r], bounds[r + 1], served, own_rates, points, choices)
                fill_terms(found, choices, served, own_rates, rows[r], points, terms[r])
            queued = mark_stale(tree, leaf_of[family, o], queued)
            queued = mark_stale(tree, chain_leaf[family, o], queued)
        waiting = 0
        add_up(
            tree, queued, table.leaf_op[family], chain_leaf[family], table.array_of, row_of, terms, dsp_s,
            work.archs.arrays[0], points,
        )  # fmt: skip
        sums = tree.nodes[tree.nodes.shape[0] - 1]
        keep_better_plan(
            work.archs, work.independent, sums, plan, table.waits[plan], points, totals, first, plans,
            work.kept, work.times, work.interval_bounds,
        )  # fmt: skip


@compiled
def _fits(op: OpRecord, bounds: Any, row: int) -> bool:
    """Whether an operator has a candidate, or needs none."""
    return not on_array(op) or bounds[row] < bounds[row + 1]


@compiled_parallel
def _evaluate_all(
    design: Design, groups: Any, table: PlanTable, totals: Any, plans: Any, threads: int
) -> None:
    # Neighbouring groups cost much the same, so dealing them out in turn gives all threads equal work.
    for thread in prange(threads):
        # numba counts references to arrays: shared by all threads, the count would move from core to core all
        # the time.
        own = PlanTable(
            table.rows.copy(), table.changes.copy(), table.change_start.copy(), table.family.copy(),
            table.fused_chains.copy(), table.leaf_op.copy(), table.leaf_of.copy(), table.chain_leaf.copy(),
            table.array_of.copy(), table.waits.copy(),
        )  # fmt: skip
        own_design = Design(
            design.base.copy(), design.arrays, design.hosts, design.columns.copy(), design.values
        )
        no_uses = np.empty((0, 0), DEVICE_USE_DTYPE)
        for g in range(thread, groups.shape[0] - 1, threads):
            _evaluate_group(own_design, groups[g], groups[g + 1], own, totals, plans, no_uses)


def evaluate_plans(row: ArchRow, table: PlanTable, totals: Any, plans: Any) -> Any:
    """Cost a network on one architecture under the best of its residency plans.

    Parameters
    ----------
    totals : array of TOTAL_DTYPE, shape (1,)
        Written.
    plans : array of int64, shape (1,)
        Written: the plan that is taken; -1 where the network does not fit under any.

    Returns
    -------
    array of DEVICE_USE_DTYPE, shape (devices,)
        How long each device works: array devices first, then hosts.
    """
    uses = np.zeros((1, len(row.arrays) + len(row.hosts)), DEVICE_USE_DTYPE)
    _evaluate_group(_design(row, np.empty(0, np.int64), np.empty((1, 0))), 0, 1, table, totals, plans, uses)
    return uses[0]


def _design(row: ArchRow, columns: Any, values: Any) -> Design:
    return Design(row.numbers, len(row.arrays), len(row.hosts), columns, values)


def evaluate_points(
    base: ArchRow, columns: Any, values: Any, groups: Any, table: PlanTable, totals: Any, plans: Any
) -> None:
    """Cost a network at many design points over all cores.

    Parameters
    ----------
    base : ArchRow
        The point that all others start from.
    columns : array of int64, shape (changed,)
        Places among its numbers that points set; primitives only.
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
    import numba

    _evaluate_all(_design(base, columns, values), groups, table, totals, plans, numba.get_num_threads())


def evaluate(row: ArchRow, ops: Any, results: Any, total: Any) -> None:
    """Cost a network on one architecture under one residency plan, operator by operator.

    Parameters
    ----------
    ops : array of OP_DTYPE, shape (operators,)
    results : array of RESULT_DTYPE, shape (operators,)
        Written; zero before.
    """
    operator_costs(row.archs, ops, results)
    totals = np.zeros(1, TOTAL_DTYPE)
    evaluate_plans(row, plan_table(ops[np.newaxis]), totals, np.zeros(1, np.int64))
    for name in TOTAL_DTYPE.names or ():
        total[name] = totals[name][0]
