"""Batched evaluation: operators x architectures -> costs, for one design point and for ten million.

Candidates say what each operator needs (`npusim.cost.search`), rates make latencies of that
(`npusim.cost.candidate_latency`), plans add them up (`npusim.cost.plan_costs`). Points that differ in rates
only share the candidates, those that differ in energies only share all that takes time
(`npusim.cost.design_batch`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npusim.cost.breakdown import operator_costs
from npusim.cost.candidate_latency import choose
from npusim.cost.demands import MOVED, add_candidate_demands
from npusim.cost.design_batch import POINTS, Batch, Design, fill_batch, new_batch
from npusim.cost.design_point import ArchRow
from npusim.cost.energy import PARTS
from npusim.cost.group_search import Found, fits, looks_at_rates, nothing_found, search_group
from npusim.cost.interval import DeviceTimes
from npusim.cost.jit import compiled, compiled_making_arrays, compiled_or_plain, compiled_parallel_or_plain
from npusim.cost.plan_costs import (
    CANDIDATE,
    SUMS,
    TERMS,
    SumTree,
    add_up,
    fill_terms,
    keep_better_plan,
    mark_all_stale,
    mark_stale,
    sum_tree,
)
from npusim.cost.plan_table import PlanTable, plan_table
from npusim.cost.point_groups import PointGroups, points_in_groups
from npusim.cost.rates import (
    BLOCK as BLOCK,
)
from npusim.cost.rates import (
    CHOICES,
    MACHINE_RATES,
    RATES,
    Rate,
    are_alike,
    start_rate_bounds,
    widen_rate_bounds,
)
from npusim.cost.resources import COUNT
from npusim.cost.rivals import (
    Bounds,
    Rivals,
    is_behind,
    leave_out,
    new_bounds,
    no_rivals,
    remember,
)
from npusim.cost.search import plain_ms
from npusim.cost.shortlist import Shortlist, list_candidates, shortlist_of
from npusim.cost.tables import DEVICE_USE_DTYPE, TOTAL_DTYPE, Unit
from npusim.cost.threads import thread_count
from npusim.cost.totals import Taken, fill_columns, fill_device_uses, finish

if TYPE_CHECKING:
    from numba import prange  # `compiled_parallel` puts it here: importing the compiler takes its time

_DPU, _DSP, _HOST = int(Unit.DPU), int(Unit.DSP), int(Unit.HOST)
_DSP_RATE = int(Rate.DSP)


class _Work(NamedTuple):
    """What plans are compared by at the columns of a batch."""

    table: PlanTable
    found: Found
    shortlist: Shortlist
    rate_bounds: Any
    """Least and greatest rates of the columns, shape (array devices, RATES, 2)."""
    rates_before: Any
    """Rates of the batch before, shape (array devices, RATES, BLOCK)."""
    terms: Any
    """What each row comes to, shape (rows, TERMS, columns), where it `has_terms`."""
    has_terms: Any
    choices: Any
    tree: SumTree
    row_of: Any
    """Row of each operator under the plan at hand."""
    pending: Any
    """Operators whose sums are out of date, and whether each is among them."""
    is_pending: Any
    bounds: Bounds
    times: DeviceTimes
    interval_bounds: Any
    """Scratch of `npusim.cost.interval`, as `times`."""


def _group_ms(_: Design, start: int, stop: int, table: PlanTable, *__: Any) -> float:
    return plain_ms(table.rows) * (stop - start)


@compiled_or_plain(_group_ms)
def _evaluate_group(
    design: Design, start: int, stop: int, table: PlanTable, found: Found, is_found: bool, rivals: Rivals,
    thread: int, totals: Any, plans: Any, uses: Any,
) -> Found:  # fmt: skip
    """Cost the points `start` to `stop`, which share one search, batch by batch; return what that found.

    Parameters
    ----------
    found : Found
        What a search found before; holds for these points where it `is_found`.
    rivals : Rivals
        Points that those on a front have to beat; `thread` has its own.
    """
    rows, operators, arrays = table.rows, table.fused_chains.shape[1], design.arrays
    first_ops, has_hosts = np.empty(operators, rows.dtype), False
    for o in range(operators):
        first_ops[o] = rows[table.changes[o, 1]]
        has_hosts = has_hosts or first_ops[o].unit == _HOST
    batch = new_batch(design, operators, min(POINTS, stop - start))
    if is_found:
        fill_batch(batch, design, start, stop, first_ops, has_hosts)
    else:
        found = search_group(design, start, stop, rows, first_ops, has_hosts, batch)
    width, devices = batch.independent.requests.shape[0], arrays + design.hosts
    work = _Work(
        table, found, shortlist_of(found.candidates, rows.shape[0], stop - start),
        np.empty((arrays, RATES, 2)), np.empty((arrays, RATES, BLOCK)),
        np.empty((rows.shape[0], TERMS, width)),
        np.empty(rows.shape[0], np.bool_), np.empty((CHOICES, BLOCK)),
        sum_tree(table.leaf_op.shape[1], arrays, width),
        np.empty(operators, np.int64), np.empty(operators, np.int64), np.empty(operators, np.bool_),
        new_bounds(rows.shape[0], arrays, design.hosts, operators),
        DeviceTimes(np.zeros(devices), np.zeros(devices), np.ones(devices)), np.empty(2 * devices + 2),
    )  # fmt: skip
    taken = Taken(
        np.zeros(width, TOTAL_DTYPE), np.empty(width, np.int64), np.empty((arrays, SUMS, width)),
        np.empty((arrays, width, COUNT)), np.empty((arrays, width, MOVED)),
        np.empty((arrays, batch.column_of.shape[0], PARTS)),
    )  # fmt: skip
    nothing, first, before = np.zeros(1, TOTAL_DTYPE), start, 0
    while first < stop:
        _keep_terms(work, batch, before)
        before, points, order = batch.counts[0], batch.counts[1], design.order[first:]
        if is_behind(
            table, found, work.shortlist, work.rate_bounds, batch, work.row_of, work.bounds, rivals, thread
        ):
            leave_out(totals, order, points)
        else:
            for c in range(width):
                taken.best[c], taken.plans[c] = nothing[0], -1
            _compare_plans(work, batch, taken)
            _add_demands(work, batch.counts[0], taken)
            fill_columns(batch, taken)
            finish(batch, taken, found.macs, totals, order, plans)
            if rivals.count.shape[0] > 0:
                remember(rivals, thread, totals, order, points)
        if uses.shape[0] > 0:
            fill_device_uses(batch, taken, uses)
        first += points
        if first < stop:
            fill_batch(batch, design, first, stop, first_ops, has_hosts)
    return found


@compiled
def _keep_terms(work: _Work, batch: Batch, columns_before: int) -> None:
    """Forget what rows come to, but for those without DSPs where rates are those of the batch before."""
    columns, has_terms, has_least = batch.counts[0], work.has_terms, work.bounds.has_least
    is_alike = columns == columns_before and are_alike(batch.rates, work.rates_before, columns)
    for r in range(has_terms.shape[0]):
        is_kept = is_alike and work.table.rows[r].unit != _DSP
        has_terms[r], has_least[r] = is_kept and has_terms[r], is_kept and has_least[r]
        if not is_alike:
            work.shortlist.counts[r] = -1
    if is_alike:
        return
    for d in range(batch.rates.shape[0]):
        start_rate_bounds(work.rate_bounds[d])
        widen_rate_bounds(batch.rates[d], columns, work.rate_bounds[d])
        for r in range(MACHINE_RATES):
            for c in range(columns):
                work.rates_before[d, r, c] = batch.rates[d, r, c]


@compiled
def _compare_plans(work: _Work, batch: Batch, taken: Taken) -> None:
    """Write the best plan of each column and its sums."""
    table, rows, bounds, tree, row_of = work.table, work.table.rows, work.found.bounds, work.tree, work.row_of
    changes, has_terms, pending, is_pending = table.changes, work.has_terms, work.pending, work.is_pending
    leaf_of, chain_leaf = table.leaf_of, table.chain_leaf
    found, terms, choices, points = work.found.candidates, work.terms, work.choices, batch.counts[0]
    rates, dsp_s, shortlist = batch.rates, batch.independent.dsp_s, work.shortlist
    row_of[:] = -1
    is_pending[:] = False
    last, unfit, waiting = -1, 0, 0
    for plan in range(table.family.shape[0]):
        for c in range(table.change_start[plan], table.change_start[plan + 1]):
            o, r = changes[c, 0], changes[c, 1]
            if row_of[o] >= 0 and not fits(rows[row_of[o]], bounds, row_of[o]):
                unfit -= 1
            if not fits(rows[r], bounds, r):
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
                served = work.found.served[r]
                # What memory levels serve is no amount that candidates are compared by.
                compared = points if served.is_any == 0.0 else 0
                rate_bounds = work.rate_bounds[table.array_of[o]]
                count = list_candidates(shortlist, bounds, r, rate_bounds, compared)
                listed = shortlist.listed[bounds[r] : bounds[r] + count]
                choose(found, listed, served.is_any > 0.0, own_rates, points, choices)
                fill_terms(found, choices, served, own_rates, rows[r], points, terms[r])
            queued = mark_stale(tree, leaf_of[family, o], queued)
            queued = mark_stale(tree, chain_leaf[family, o], queued)
        waiting = 0
        add_up(
            tree, queued, table.leaf_op[family], chain_leaf[family], table.array_of, row_of, terms, dsp_s,
            batch.archs.arrays[0], points,
        )  # fmt: skip
        sums = tree.nodes[tree.nodes.shape[0] - 1]
        keep_better_plan(
            batch.archs.arrays[0], batch.independent, sums, plan, table.waits[plan], points, taken.best,
            taken.plans, taken.kept, work.times, work.interval_bounds,
        )  # fmt: skip


@compiled
def _add_demands(work: _Work, columns: int, taken: Taken) -> None:
    """Write what each array device has to do under the plan that each column takes."""
    table, demands, terms, row_of = work.table, taken.demands, work.terms, work.row_of
    numbers, plans = work.found.candidates.view(np.float64), taken.plans[:columns]
    for d in range(demands.shape[0]):
        for c in range(columns):
            for r in range(COUNT):
                demands[d, c, r] = work.found.demands[d, r]
    for plan in range(table.family.shape[0]):
        for i in range(table.change_start[plan], table.change_start[plan + 1]):
            row_of[table.changes[i, 0]] = table.changes[i, 1]
        if _is_taken(plan, plans):
            for o in range(row_of.shape[0]):
                d, r = table.array_of[o], row_of[o]
                if d >= 0:
                    repeats = table.rows[r].repeats
                    add_candidate_demands(numbers, terms[r, CANDIDATE], plans, plan, repeats, demands[d])


@compiled
def _is_taken(plan: int, plans: Any) -> bool:
    """Whether any column takes a plan; numpy's own function would load linear algebra with finished code."""
    found = False
    for taken in plans:
        found = found or taken == plan
    return found


@compiled_making_arrays
def _evaluate_share(
    design: Design, points: PointGroups, table: PlanTable, found: Found, rivals: Rivals, totals: Any,
    plans: Any, share: int, shares: int,
) -> None:  # fmt: skip
    """Cost every so-manieth group of points, from one on."""
    # numba counts references to arrays: shared by all threads, the count would move from core to core all the
    # time.
    own = PlanTable(
        table.rows.copy(), table.changes.copy(), table.change_start.copy(), table.family.copy(),
        table.fused_chains.copy(), table.leaf_op.copy(), table.leaf_of.copy(), table.chain_leaf.copy(),
        table.array_of.copy(), table.waits.copy(),
    )  # fmt: skip
    base = design.base.copy()
    own_design = Design(
        base, design.arrays, design.hosts, design.columns.copy(), design.values, design.order, design.cuts
    )
    no_uses, searched = np.empty(0, DEVICE_USE_DTYPE), -1
    thread: Any = np.int64(share)
    own_rivals = Rivals(
        rivals.is_objective.copy(), rivals.bounded.copy(), rivals.low.copy(), rivals.high.copy(),
        rivals.found, rivals.count,
    )  # fmt: skip
    for g in range(share, points.spans.shape[0], shares):
        for c in range(points.group_columns.shape[0]):
            base[points.group_columns[c]] = points.group_values[g, c]
        first, start, stop = points.first[g], points.spans[g, 0], points.spans[g, 1]
        is_free = not looks_at_rates(stop - start, own.rows)
        found = _evaluate_group(
            own_design, start, stop, own, found, is_free and points.search_of[g] == searched, own_rivals,
            thread, totals[first:], plans[first:], no_uses,
        )  # fmt: skip
        searched = points.search_of[g] if is_free else -1


def _all_ms(
    _: Design, __: PointGroups, table: PlanTable, ___: Found, ____: Rivals, totals: Any, *_____: Any
) -> float:
    return plain_ms(table.rows) * len(totals)


@compiled_parallel_or_plain(_all_ms)
def _evaluate_all(
    design: Design, points: PointGroups, table: PlanTable, found: Found, rivals: Rivals, totals: Any,
    plans: Any, threads: int,
) -> None:  # fmt: skip
    # Neighbouring groups cost much the same, so dealing them out in turn gives all threads equal work.
    for thread in prange(threads):
        _evaluate_share(design, points, table, found, rivals, totals, plans, thread, threads)


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
    uses = np.zeros(len(row.arrays) + len(row.hosts), DEVICE_USE_DTYPE)
    one = points_in_groups(np.empty(0, np.int64), np.empty((1, 0)), np.arange(2))
    design = _design(row, one)
    _evaluate_group(design, 0, 1, table, nothing_found(), False, no_rivals(), 0, totals, plans, uses)
    return uses


def _design(row: ArchRow, points: PointGroups) -> Design:
    return Design(
        row.numbers, len(row.arrays), len(row.hosts), points.columns, points.values, points.order, points.cuts
    )


def evaluate_points(
    base: ArchRow,
    points: PointGroups,
    table: PlanTable,
    totals: Any,
    plans: Any,
    rivals: Rivals | None = None,
) -> None:
    """Cost a network at many design points over all cores.

    Parameters
    ----------
    base : ArchRow
        The point that all others start from.
    points : PointGroups
    table : PlanTable
        The network under each residency plan.
    totals : array of TOTAL_DTYPE, shape (points,)
        Written.
    plans : array of int64, shape (points,)
        Written: the plan that is taken; -1 where the network does not fit under any.
    rivals : Rivals, optional
        Points of a front that is looked for, those found here added: points that cannot be on it may be left
        out, with infinite latency. Default: all points are evaluated.
    """
    found, rivals = nothing_found(), no_rivals() if rivals is None else rivals
    _evaluate_all(_design(base, points), points, table, found, rivals, totals, plans, thread_count())


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
