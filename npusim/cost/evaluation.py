"""Batched evaluation: operators x architectures -> costs, for one design point and for ten million.

The tiling search says what each operator needs (`npusim.cost.search`), rates turn that into latencies
(`npusim.cost.latency`), plans add them up (`npusim.cost.plan_costs`). Points that differ in rates only share
the search. Points that differ in energies only share everything that takes time (`npusim.cost.design_batch`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npusim.cost.candidates import CANDIDATE_DTYPE
from npusim.cost.design_batch import (
    POINTS,
    Batch,
    Design,
    PointGroups,
    fill_batch,
    new_batch,
    points_in_groups,
)
from npusim.cost.design_point import ARRAY_SIZE, SHARED_SIZE, SRAM_COLUMN, ArchRow
from npusim.cost.incumbents import (
    Bounds,
    Incumbents,
    add_incumbents,
    is_dominated,
    new_bounds,
    no_incumbents,
    skip_points,
)
from npusim.cost.kernels import (
    compiled,
    compiled_making_arrays,
    compiled_or_plain,
    compiled_parallel_or_plain,
    thread_count,
)
from npusim.cost.latency import choose
from npusim.cost.levels import SERVED_DTYPE, add_candidate_demands, fill_all_served, serve
from npusim.cost.plan_costs import (
    CANDIDATE,
    SUMS,
    TERMS,
    BestPlans,
    DeviceTimes,
    SumTree,
    add_up,
    fill_terms,
    keep_better_plan,
    mark_all_stale,
    mark_stale,
    on_array,
    sum_tree,
)
from npusim.cost.plans import PlanTable, plan_table
from npusim.cost.rates import (
    BLOCK,
    CHOICES,
    DSP,
    MACHINE_RATES,
    RATES,
    are_alike,
    clear_rate_bounds,
    start_rate_bounds,
    widen_rate_bounds,
    widen_sram_bounds,
)
from npusim.cost.records import Bools, Floats, Ints
from npusim.cost.resources import COUNT, MOVED, PARTS, add_operator_demand
from npusim.cost.search import GroupSearch, fits, plain_ms, search_rows
from npusim.cost.tables import DEVICE_USE_DTYPE, TOTAL_DTYPE, DpuOperation, Unit
from npusim.cost.totals import (
    PlanWork,
    fill_columns,
    fill_device_uses,
    operator_costs,
    write_point_totals,
)

if TYPE_CHECKING:
    from numba import prange  # the kernel's decorator provides it

_DPU, _DSP, _HOST = int(Unit.DPU), int(Unit.DSP), int(Unit.HOST)
_CONVOLUTION = int(DpuOperation.CONVOLUTION)
SHARED_SEARCH = 1024
"""Most points of a group whose search looks at their rates; for more points that pays for convolutions
only."""


def no_search() -> GroupSearch:
    """Return the result of a search before any."""
    candidates, served = np.empty(0, CANDIDATE_DTYPE), np.empty(0, SERVED_DTYPE)
    return GroupSearch(candidates, np.zeros(1, np.int64), served, np.empty((0, COUNT)), 0.0)


@compiled_making_arrays
def search_group(
    design: Design, start: int, stop: int, rows: Any, first_ops: Any, has_hosts: bool, batch: Batch
) -> GroupSearch:
    """Fill a batch with the first points, and search for what all points of a group share."""
    arrays, archs = design.arrays, batch.archs
    rate_bounds, row_starts = np.empty((arrays, RATES, 2)), np.empty(rows.shape[0] + 1, np.int64)
    next_point = fill_batch(batch, design, start, stop, first_ops, has_hosts)
    for d in range(arrays):
        start_rate_bounds(rate_bounds[d])
        widen_rate_bounds(batch.rates[d], batch.counts[0], rate_bounds[d])
    if next_point < stop and looks_at_rates(stop - start, rows):
        # Candidates that are too slow at all points need not be kept.
        while next_point < stop:
            next_point = fill_batch(batch, design, next_point, stop, first_ops, has_hosts)
            for d in range(arrays):
                widen_rate_bounds(batch.rates[d], batch.counts[0], rate_bounds[d])
        fill_batch(batch, design, start, stop, first_ops, has_hosts)
    elif next_point < stop:
        _widen_by_sram_alone(design, next_point, stop, rate_bounds)
    candidates = search_rows(archs, rows, rate_bounds, row_starts)
    served, demands, macs = np.zeros(rows.shape[0], SERVED_DTYPE), np.zeros((arrays, COUNT)), 0.0
    fill_all_served(archs.arrays[0], rows, served)
    serve(candidates, row_starts, served)
    for o in range(first_ops.shape[0]):
        op = first_ops[o]
        macs += op.repeats * op.macs
        if on_array(op):
            add_operator_demand(archs.arrays[0, op.device], op, demands, op.device)
    return GroupSearch(candidates, row_starts, served, demands, macs)


@compiled
def looks_at_rates(points: int, rows: Any) -> bool:
    """Whether the search for a group of points looks at their rates."""
    has_convolutions = False  # they have pieces of several sizes
    for r in range(rows.shape[0]):
        has_convolutions |= rows[r].unit == _DPU and rows[r].dpu_operation == _CONVOLUTION
    return bool(points <= SHARED_SEARCH or has_convolutions)


@compiled
def _widen_by_sram_alone(design: Design, start: int, stop: int, rate_bounds: Floats) -> None:
    """Widen the bounds of SRAM by the points `start` to `stop`, and clear the bounds of rates."""
    for d in range(design.arrays):
        clear_rate_bounds(rate_bounds[d])
    for c in range(design.columns.shape[0]):
        device, column = (design.columns[c] - SHARED_SIZE) // ARRAY_SIZE, design.columns[c] - SHARED_SIZE
        if column >= 0 and device < design.arrays and column % ARRAY_SIZE == SRAM_COLUMN:
            for p in range(start, stop):
                widen_sram_bounds(design.values[p, c], rate_bounds[device])


class _Work(NamedTuple):
    """Tables and scratch of the comparison of plans for the columns of a batch."""

    table: PlanTable
    search: GroupSearch
    rate_bounds: Floats
    """Least and greatest rates of the columns, shape (array devices, RATES, 2)."""
    rates_before: Floats
    """Rates of the batch before, shape (array devices, RATES, BLOCK)."""
    terms: Floats
    """Costs of each row, shape (rows, TERMS, columns), where it `has_terms`."""
    has_terms: Bools
    choices: Floats
    tree: SumTree
    row_of: Ints
    """Row of each operator under the current plan."""
    pending: Ints
    """Operators whose sums are out of date."""
    is_pending: Bools
    bounds: Bounds
    times: DeviceTimes
    interval_bounds: Floats


@compiled_making_arrays
def _new_work(design: Design, table: PlanTable, search: GroupSearch, width: int) -> _Work:
    """Return empty tables for batches of `width` columns."""
    rows, operators = table.rows.shape[0], table.fused_chains.shape[1]
    arrays, devices = design.arrays, design.arrays + design.hosts
    rate_bounds, rates_before = np.empty((arrays, RATES, 2)), np.empty((arrays, RATES, BLOCK))
    terms, has_terms = np.empty((rows, TERMS, width)), np.empty(rows, np.bool_)
    tree = sum_tree(table.leaf_op.shape[1], arrays, width)
    row_of, pending = np.empty(operators, np.int64), np.empty(operators, np.int64)
    bounds = new_bounds(rows, arrays, design.hosts, operators)
    times = DeviceTimes(np.zeros(devices), np.zeros(devices), np.ones(devices))
    return _Work(
        table,
        search,
        rate_bounds,
        rates_before,
        terms,
        has_terms,
        np.empty((CHOICES, BLOCK)),
        tree,
        row_of,
        pending,
        np.empty(operators, np.bool_),
        bounds,
        times,
        np.empty(2 * devices + 2),
    )


@compiled_making_arrays
def _new_plan_work(arrays: int, width: int, points: int) -> PlanWork:
    best = BestPlans(np.zeros(width, TOTAL_DTYPE), np.empty(width, np.int64), np.empty((arrays, SUMS, width)))
    demands, moved = np.empty((arrays, width, COUNT)), np.empty((arrays, width, MOVED))
    return PlanWork(best, demands, moved, np.empty((arrays, points, PARTS)))


class Results(NamedTuple):
    """Where the costs of points are written."""

    totals: Any
    """Array of TOTAL_DTYPE, shape (points,)."""
    plans: Ints
    """The best plan of each point, -1 for none."""
    uses: Any
    """Busy times of each device at a single point, array of DEVICE_USE_DTYPE; empty for many points."""


def _group_ms(_: Design, start: int, stop: int, table: PlanTable, *__: Any) -> float:
    return plain_ms(table.rows) * (stop - start)


@compiled_or_plain(_group_ms)
def _evaluate_group(
    design: Design,
    start: int,
    stop: int,
    table: PlanTable,
    search: GroupSearch,
    is_searched: bool,
    incumbents: Incumbents,
    thread: int,
    results: Results,
) -> GroupSearch:
    """Cost the points `start` to `stop`, which share one search, batch by batch; return the search.

    Parameters
    ----------
    search : GroupSearch
        An earlier search; it holds for these points where they are `is_searched`.
    incumbents : Incumbents
        Points that points of a front have to beat; each `thread` has its own.
    """
    rows, operators = table.rows, table.fused_chains.shape[1]
    first_ops, has_hosts = np.empty(operators, rows.dtype), False
    for o in range(operators):
        first_ops[o] = rows[table.changes[o, 1]]
        has_hosts = has_hosts or first_ops[o].unit == _HOST
    batch = new_batch(design, operators, min(POINTS, stop - start))
    if is_searched:
        fill_batch(batch, design, start, stop, first_ops, has_hosts)
    else:
        search = search_group(design, start, stop, rows, first_ops, has_hosts, batch)
    width = batch.independent.requests.shape[0]
    work = _new_work(design, table, search, width)
    plan_work = _new_plan_work(design.arrays, width, batch.column_of.shape[0])
    nothing, first, before = np.zeros(1, TOTAL_DTYPE), start, 0
    while first < stop:
        _keep_terms(work, batch, before)
        before, points, order = batch.counts[0], batch.counts[1], design.order[first:]
        if is_dominated(table, search, work.rate_bounds, batch, work.row_of, work.bounds, incumbents, thread):
            skip_points(results.totals, order, points)
        else:
            for c in range(width):
                plan_work.best.totals[c], plan_work.best.plans[c] = nothing[0], -1
            _compare_plans(work, batch, plan_work.best)
            _add_demands(work, batch, plan_work)
            fill_columns(batch, plan_work)
            write_point_totals(batch, plan_work, search.macs, results.totals, order, results.plans)
            if incumbents.counts.shape[0] > 0:
                add_incumbents(incumbents, thread, results.totals, order, points)
        if results.uses.shape[0] > 0:
            fill_device_uses(batch, plan_work, results.uses)
        first += points
        if first < stop:
            fill_batch(batch, design, first, stop, first_ops, has_hosts)
    return search


@compiled
def _keep_terms(work: _Work, batch: Batch, columns_before: int) -> None:
    """Keep the costs of rows only where the batch has the rates of the one before and no DSP is involved."""
    columns, has_terms, is_bounded = batch.counts[0], work.has_terms, work.bounds.is_bounded
    is_same = columns == columns_before and are_alike(batch.rates, work.rates_before, columns)
    for r in range(has_terms.shape[0]):
        is_kept = is_same and work.table.rows[r].unit != _DSP
        has_terms[r], is_bounded[r] = is_kept and has_terms[r], is_kept and is_bounded[r]
    if is_same:
        return
    for d in range(batch.rates.shape[0]):
        start_rate_bounds(work.rate_bounds[d])
        widen_rate_bounds(batch.rates[d], columns, work.rate_bounds[d])
        for r in range(MACHINE_RATES):
            for c in range(columns):
                work.rates_before[d, r, c] = batch.rates[d, r, c]


@compiled
def _change_rows(work: _Work, plan: int, unfit: int, waiting: int) -> tuple[int, int]:
    """Give operators their rows under a plan; return the counts that do not fit, and that are pending."""
    table, rows, row_of, starts = work.table, work.table.rows, work.row_of, work.search.row_starts
    for c in range(table.change_start[plan], table.change_start[plan + 1]):
        o, r = table.changes[c, 0], table.changes[c, 1]
        if row_of[o] >= 0 and not fits(rows[row_of[o]], starts, row_of[o]):
            unfit -= 1
        if not fits(rows[r], starts, r):
            unfit += 1
        row_of[o] = r
        if not work.is_pending[o]:
            work.is_pending[o] = True
            work.pending[waiting] = o
            waiting += 1
    return unfit, waiting


@compiled
def _fill_row_terms(work: _Work, batch: Batch, o: int) -> None:
    """Write the costs of an operator's row: its fastest candidate at each column."""
    r, d, points, search = work.row_of[o], work.table.array_of[o], batch.counts[0], work.search
    rates = batch.rates[d]
    for p in range(points):
        rates[DSP, p] = batch.independent.dsp_s[o, p]
    served = search.served[r]
    start, stop = search.row_starts[r], search.row_starts[r + 1]
    choose(search.candidates, start, stop, served.is_any > 0.0, rates, points, work.choices)
    fill_terms(search.candidates, work.choices, served, rates, work.table.rows[r], points, work.terms[r])


@compiled
def _compare_plans(work: _Work, batch: Batch, best: BestPlans) -> None:
    """Write the best plan of each column and its sums."""
    table, tree, row_of, points = work.table, work.tree, work.row_of, batch.counts[0]
    leaf_of, chain_leaf, dsp_s = table.leaf_of, table.chain_leaf, batch.independent.dsp_s
    row_of[:] = -1
    work.is_pending[:] = False
    last, unfit, waiting = -1, 0, 0
    for plan in range(table.family.shape[0]):
        unfit, waiting = _change_rows(work, plan, unfit, waiting)
        if unfit > 0:
            continue
        family = table.family[plan]
        queued = 0 if family == last else mark_all_stale(tree, table.leaf_op.shape[1])
        last = family
        for i in range(waiting):
            o = work.pending[i]
            work.is_pending[o] = False
            if leaf_of[family, o] >= 0 and not work.has_terms[row_of[o]]:
                work.has_terms[row_of[o]] = True
                _fill_row_terms(work, batch, o)
            queued = mark_stale(tree, leaf_of[family, o], queued)
            queued = mark_stale(tree, chain_leaf[family, o], queued)
        waiting = 0
        arrays = batch.archs.arrays[0]
        add_up(tree, queued, table, family, row_of, work.terms, dsp_s, arrays, points)
        sums = tree.nodes[tree.nodes.shape[0] - 1]
        keep_better_plan(
            arrays,
            batch.independent,
            sums,
            plan,
            table.waits[plan],
            points,
            best,
            work.times,
            work.interval_bounds,
        )


@compiled
def _add_demands(work: _Work, batch: Batch, plan_work: PlanWork) -> None:
    """Write the demands on each array device under the best plan of each column."""
    table, demands, row_of, plans = work.table, plan_work.demands, work.row_of, plan_work.best.plans
    numbers, columns = work.search.candidates.view(np.float64), batch.counts[0]
    for d in range(demands.shape[0]):
        for c in range(columns):
            for r in range(COUNT):
                demands[d, c, r] = work.search.demands[d, r]
    for plan in range(table.family.shape[0]):
        for i in range(table.change_start[plan], table.change_start[plan + 1]):
            row_of[table.changes[i, 0]] = table.changes[i, 1]
        is_best = False  # numpy's own function would load linear algebra with finished code
        for c in range(columns):
            is_best = is_best or plans[c] == plan
        for o in range(row_of.shape[0] if is_best else 0):
            d, r = table.array_of[o], row_of[o]
            if d >= 0:
                for c in range(columns):
                    if plans[c] == plan:
                        candidate, repeats = work.terms[r, CANDIDATE, c], table.rows[r].repeats
                        add_candidate_demands(numbers, candidate, repeats, batch.rates[d], c, demands[d, c])


@compiled_making_arrays
def _own_table(table: PlanTable) -> PlanTable:
    return PlanTable(
        table.rows.copy(),
        table.changes.copy(),
        table.change_start.copy(),
        table.family.copy(),
        table.fused_chains.copy(),
        table.leaf_op.copy(),
        table.leaf_of.copy(),
        table.chain_leaf.copy(),
        table.array_of.copy(),
        table.waits.copy(),
    )


@compiled_making_arrays
def _evaluate_share(
    design: Design,
    points: PointGroups,
    table: PlanTable,
    search: GroupSearch,
    incumbents: Incumbents,
    results: Results,
    share: int,
    shares: int,
) -> None:
    """Cost every group of points whose number leaves the remainder `share` when divided by `shares`."""
    # numba counts references to arrays: shared by all threads, a count would move from core to core.
    own, base = _own_table(table), design.base.copy()
    columns, cuts = design.columns.copy(), design.cuts
    own_design = Design(base, design.arrays, design.hosts, columns, design.values, design.order, cuts)
    is_objective, bounded = incumbents.is_objective.copy(), incumbents.bounded.copy()
    low, high, count = incumbents.low.copy(), incumbents.high.copy(), incumbents.counts
    own_incumbents = Incumbents(is_objective, bounded, low, high, incumbents.objectives, count)
    searched = -1
    thread: Any = np.int64(share)
    for g in range(share, points.spans.shape[0], shares):
        for c in range(points.group_columns.shape[0]):
            base[points.group_columns[c]] = points.group_values[g, c]
        first, start, stop = points.first[g], points.spans[g, 0], points.spans[g, 1]
        is_free = not looks_at_rates(stop - start, own.rows)
        is_searched = is_free and points.search_of[g] == searched
        there = Results(results.totals[first:], results.plans[first:], results.uses)
        search = _evaluate_group(
            own_design, start, stop, own, search, is_searched, own_incumbents, thread, there
        )
        searched = points.search_of[g] if is_free else -1


def _all_ms(
    _: Design,
    __: PointGroups,
    table: PlanTable,
    ___: GroupSearch,
    ____: Incumbents,
    results: Results,
    _____: int,
) -> float:
    return plain_ms(table.rows) * len(results.totals)


@compiled_parallel_or_plain(_all_ms)
def _evaluate_all(
    design: Design,
    points: PointGroups,
    table: PlanTable,
    search: GroupSearch,
    incumbents: Incumbents,
    results: Results,
    threads: int,
) -> None:
    # Neighbouring groups cost much the same, so dealing them out in turn gives all threads equal work.
    for thread in prange(threads):
        _evaluate_share(design, points, table, search, incumbents, results, thread, threads)


def evaluate_plans(row: ArchRow, table: PlanTable, totals: Any, plans: Ints) -> Any:
    """Cost a network on one architecture under the best of its residency plans.

    Parameters
    ----------
    totals : array of TOTAL_DTYPE, shape (1,)
        Written.
    plans : array of int64, shape (1,)
        Written: the best plan; -1 where the network does not fit under any.

    Returns
    -------
    array of DEVICE_USE_DTYPE, shape (devices,)
        Busy times of each device: array devices first, then hosts.
    """
    uses = np.zeros(len(row.arrays) + len(row.hosts), DEVICE_USE_DTYPE)
    design = _design(row, points_in_groups(np.empty(0, np.int64), np.empty((1, 0)), np.arange(2)))
    results = Results(totals, plans, uses)
    _evaluate_group(design, 0, 1, table, no_search(), False, no_incumbents(), 0, results)
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
    plans: Ints,
    incumbents: Incumbents | None = None,
) -> None:
    """Cost a network at many design points over all cores.

    Parameters
    ----------
    base : ArchRow
        The point that all others start from.
    table : PlanTable
        The network under each residency plan.
    totals : array of TOTAL_DTYPE, shape (points,)
        Written.
    plans : array of int64, shape (points,)
        Written: the best plan; -1 where the network does not fit under any.
    incumbents : Incumbents, optional
        Best points of a front so far; points found here are added. Points that cannot be on the front may be
        skipped, with infinite latency. Default: all points are evaluated.
    """
    results = Results(totals, plans, np.empty(0, DEVICE_USE_DTYPE))
    own = no_incumbents() if incumbents is None else incumbents
    _evaluate_all(_design(base, points), points, table, no_search(), own, results, thread_count())


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
