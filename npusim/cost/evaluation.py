"""Batched evaluation: operators x architectures -> costs, for one design point and for ten million.

The tiling search finds the needs of each operator (`npusim.cost.search`), rates turn them into latencies
(`npusim.cost.rates`), plans add these up (`npusim.cost.plan_costs`). Points that differ in rates alone share
the search. Points that differ in energies alone share all times (`npusim.cost.design_batch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npusim.cost.architecture import Archs
from npusim.cost.candidates import CANDIDATE_DTYPE
from npusim.cost.design_batch import (
    POINTS,
    Batch,
    Design,
    PointGroups,
    Work,
    array_devices,
    fill_batch,
    new_batch,
    new_work,
    points_in_groups,
)
from npusim.cost.design_point import ARRAY_SIZE, SHARED_SIZE, SRAM_COLUMN, ArchRow
from npusim.cost.incumbents import Incumbents, add_incumbents, is_dominated, no_incumbents
from npusim.cost.kernels import (
    compiled,
    compiled_making_arrays,
    compiled_or_plain,
    compiled_parallel_or_plain,
    thread_count,
)
from npusim.cost.levels import SERVED_DTYPE, add_candidate_demands, serve_rows
from npusim.cost.nests import Nest, search_nested_rows, searched_rows, with_nests
from npusim.cost.objective import Energies, choose_mapping, weighs_energy
from npusim.cost.plan_costs import (
    STALLS_S,
    WORK_S,
    add_up,
    change_rows,
    keep_better_plan,
    mark_all_stale,
    mark_stale,
    on_array,
)
from npusim.cost.plans import PlanTable, operators_of, plan_table, rows_under
from npusim.cost.prefetch import TRANSFER_DTYPE, fill_chains, schedule
from npusim.cost.rates import (
    DSP,
    MACHINE_RATES,
    RATES,
    are_alike,
    clear_rate_bounds,
    start_rate_bounds,
    widen_rate_bounds,
    widen_sram_bounds,
)
from npusim.cost.records import Floats, Ints
from npusim.cost.resources import COUNT, add_operator_demand
from npusim.cost.search import GroupSearch, plain_ms, search_rows
from npusim.cost.tables import DEVICE_USE_DTYPE, RESULT_DTYPE, TOTAL_DTYPE, DpuOperation, Unit
from npusim.cost.terms import CANDIDATE, fill_terms
from npusim.cost.totals import cost_candidates, fill_columns, fill_device_uses, write_point_totals

if TYPE_CHECKING:
    from numba import prange  # the decorator of the kernel provides it

_DPU, _DSP, _HOST = int(Unit.DPU), int(Unit.DSP), int(Unit.HOST)
_CONVOLUTION = int(DpuOperation.CONVOLUTION)
SHARED_SEARCH = 1024
"""Most points of a group whose search reads their rates; for more points that pays for convolutions only."""


def no_search() -> GroupSearch:
    """Return an empty search result."""
    candidates, served = np.empty(0, CANDIDATE_DTYPE), np.empty(0, SERVED_DTYPE)
    return GroupSearch(candidates, np.zeros(1, np.int64), served, np.empty((0, COUNT)), 0.0)


@compiled_making_arrays
def _search_group(
    design: Design, start: int, stop: int, rows: Any, first_ops: Any, has_hosts: bool, batch: Batch
) -> GroupSearch:
    """Return the tiling search of a group of points; fill a batch with its first points."""
    arrays, archs = design.arrays, batch.archs
    rate_bounds, row_starts = np.empty((arrays, RATES, 2)), np.empty(rows.shape[0] + 1, np.int64)
    next_point = fill_batch(batch, design, start, stop, first_ops, has_hosts)
    for d in range(arrays):
        start_rate_bounds(rate_bounds[d])
        widen_rate_bounds(batch.rates[d], batch.counts[0], rate_bounds[d])
    if next_point < stop and _reads_rates(stop - start, rows):
        # Candidates that are too slow at all points need not be kept.
        while next_point < stop:
            next_point = fill_batch(batch, design, next_point, stop, first_ops, has_hosts)
            for d in range(arrays):
                widen_rate_bounds(batch.rates[d], batch.counts[0], rate_bounds[d])
        fill_batch(batch, design, start, stop, first_ops, has_hosts)
    elif next_point < stop:
        _widen_by_sram_alone(design, next_point, stop, rate_bounds)
    for d in range(arrays if weighs_energy(archs) else 0):
        clear_rate_bounds(rate_bounds[d])
    candidates = search_rows(archs, rows, rate_bounds, row_starts)
    return _served_search(archs, rows, candidates, row_starts, first_ops)


@compiled_or_plain(lambda archs, rows, *_: 0.1 * len(rows))
def _served_search(archs: Archs, rows: Any, candidates: Any, row_starts: Ints, first_ops: Any) -> GroupSearch:
    """Return a search result with what memory levels serve, and demands under any plan."""
    demands, macs = np.zeros((archs.arrays.shape[1], COUNT)), 0.0
    served = np.zeros(rows.shape[0], SERVED_DTYPE)
    serve_rows(archs.arrays[0], rows, candidates, row_starts, served)
    for o in range(first_ops.shape[0]):
        op = first_ops[o]
        macs += op.repeats * op.macs
        if on_array(op):
            add_operator_demand(archs.arrays[0, op.device], op, demands, op.device)
    return GroupSearch(candidates, row_starts, served, demands, macs)


@compiled
def _reads_rates(points: int, rows: Any) -> bool:
    """Return whether the search of a group depends on the rates of its points."""
    has_convolutions = False  # they have pieces of several sizes
    for r in range(rows.shape[0]):
        has_convolutions |= rows[r].unit == _DPU and rows[r].dpu_operation == _CONVOLUTION
    return bool(points <= SHARED_SEARCH or has_convolutions)


@compiled
def _widen_by_sram_alone(design: Design, start: int, stop: int, rate_bounds: Floats) -> None:
    """Widen the bounds of SRAM by points `start` to `stop`; clear the bounds of all rates."""
    for d in range(design.arrays):
        clear_rate_bounds(rate_bounds[d])
    for c in range(design.columns.shape[0]):
        device, column = (design.columns[c] - SHARED_SIZE) // ARRAY_SIZE, design.columns[c] - SHARED_SIZE
        if column >= 0 and device < design.arrays and column % ARRAY_SIZE == SRAM_COLUMN:
            for p in range(start, stop):
                widen_sram_bounds(design.values[p, c], rate_bounds[device])


class Results(NamedTuple):
    """Arrays that receive the costs of points."""

    totals: Any
    """Array of TOTAL_DTYPE, shape (points,)."""
    plans: Ints
    """The best plan of each point, -1 for none."""
    uses: Any
    """Busy times of each device at a single point, array of DEVICE_USE_DTYPE; empty for many points."""
    transfers: Any
    """Prefetched transfers at a single point, array of TRANSFER_DTYPE; empty for many points."""


def _group_ms(design: Design, start: int, stop: int, table: PlanTable, *_: Any) -> float:
    return plain_ms(table.rows, array_devices(design)) * (stop - start)


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
    """Evaluate points `start` to `stop`, which share one search, batch by batch; return the search.

    `search` is used as it is if `is_searched`; otherwise these points are searched first. Each `thread` has
    its own incumbents.
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
        search = _search_group(design, start, stop, rows, first_ops, has_hosts, batch)
    work = new_work(design, table, search, batch.independent.requests.shape[0])
    zero_total, first, previous_columns = np.zeros(1, TOTAL_DTYPE), start, 0
    while first < stop:
        _keep_terms(work, batch, previous_columns)
        previous_columns, points, order = batch.counts[0], batch.counts[1], design.order[first:]
        if is_dominated(work, batch, incumbents, thread):
            for p in range(points):
                results.totals[order[p]].latency_s = results.totals[order[p]].energy_j = np.inf
        else:
            for c in range(previous_columns):
                work.best.totals[c], work.best.plans[c] = zero_total[0], -1
            _compare_plans(work, batch)
            _add_demands(work, batch)
            fill_columns(batch, work)
            write_point_totals(batch, work, results.totals, order, results.plans)
            if incumbents.counts.shape[0] > 0:
                add_incumbents(incumbents, thread, results.totals, order, points)
        if results.uses.shape[0] > 0:
            fill_device_uses(batch, work, results.uses)
            _fill_transfers(batch, work, results.transfers)
        first += points
        if first < stop:
            fill_batch(batch, design, first, stop, first_ops, has_hosts)
    return search


@compiled
def _keep_terms(work: Work, batch: Batch, columns_before: int) -> None:
    """Invalidate row costs of the previous batch, except where rates are equal and no DSP is involved."""
    columns, has_terms, is_bounded = batch.counts[0], work.has_terms, work.is_bounded
    is_same = columns == columns_before and are_alike(batch.rates, work.rates_before, columns)
    is_same = is_same and not weighs_energy(batch.archs)
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
def _fill_row_terms(work: Work, batch: Batch, o: int) -> None:
    """Write the costs of an operator's row: those of its fastest candidate at each column."""
    r, d, points, search = work.row_of[o], work.table.array_of[o], batch.counts[0], work.search
    rates, served = batch.rates[d], search.served[r]
    for p in range(points):
        rates[DSP, p] = batch.independent.dsp_s[o, p]
    start, stop = search.row_starts[r], search.row_starts[r + 1]
    is_served, is_prefetching = served.is_any > 0.0, batch.archs.arrays[0, d].prefetch > 0.0
    arch, op, terms = batch.archs.arrays[0, d], work.table.rows[r], work.terms[r]
    choose_mapping(
        arch,
        op,
        search.candidates,
        start,
        stop,
        is_served,
        rates,
        points,
        Energies(batch.unit_j[d], batch.machine, batch.column_state),
        work.choices,
        work.latencies,
        work.demand,
    )
    fill_terms(search.candidates, work.choices, served, rates, op, is_prefetching, points, terms)


@compiled
def _compare_plans(work: Work, batch: Batch) -> None:
    """Find the best plan of each column, and its sums."""
    table, tree, row_of, points = work.table, work.tree, work.row_of, batch.counts[0]
    leaf_of, chain_leaf, arrays = table.leaf_of, table.chain_leaf, batch.archs.arrays[0]
    row_of[:] = -1
    work.is_pending[:] = False
    last, unfit, waiting = -1, 0, 0
    for plan in range(table.family.shape[0]):
        unfit = change_rows(table, work.search.row_starts, plan, unfit, row_of)
        for c in range(table.change_start[plan], table.change_start[plan + 1]):
            o = table.changes[c, 0]
            if not work.is_pending[o]:
                work.is_pending[o] = True
                work.pending[waiting] = o
                waiting += 1
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
        add_up(tree, queued, table, family, row_of, work.terms, batch.independent.dsp_s, arrays, points)
        sums, waits, best = tree.nodes[tree.nodes.shape[0] - 1], table.waits[plan], work.best
        independent, times, bounds = batch.independent, work.times, work.interval_bounds
        _prefetch(batch, work, family, sums)
        saved_s = work.prefetch.saved_s
        keep_better_plan(arrays, independent, sums, plan, waits, points, best, times, bounds, saved_s)


@compiled
def _prefetch(batch: Batch, work: Work, family: int, sums: Floats) -> None:
    """Write the time that prefetch saves under a plan, at the columns where the plan may become the best."""
    is_prefetching = False
    for d in range(batch.archs.arrays.shape[1]):
        is_prefetching = is_prefetching or batch.archs.arrays[0, d].prefetch > 0.0
    if not is_prefetching:
        return
    independent, best, has_chains = batch.independent, work.best, False
    for c in range(batch.counts[0]):
        least_s, stalls_s = independent.launches_s[c], 0.0
        for d in range(sums.shape[0]):
            stalls_s += sums[d, STALLS_S, c]
            least_s += sums[d, WORK_S, c] - sums[d, STALLS_S, c] + independent.dispatches_s[d, c]
        for h in range(independent.hosts_s.shape[0]):
            least_s += independent.hosts_s[h, c]
        is_single = independent.requests[c] <= 1.0 and best.plans[c] >= 0
        if stalls_s > 0.0 and not (is_single and least_s > best.totals[c].latency_s):
            if not has_chains:
                has_chains = True
                fill_chains(
                    work.table,
                    family,
                    work.row_of,
                    work.terms,
                    independent.dsp_s,
                    batch.archs.arrays[0],
                    work.prefetch,
                )
            schedule(work.table, family, work.row_of, work.terms, c, work.prefetch, work.no_transfers)
        else:
            work.prefetch.saved_s[:, c] = 0.0


@compiled
def _add_demands(work: Work, batch: Batch) -> None:
    """Write the demands on each array device under the best plan of each column."""
    table, demands, row_of, plans = work.table, work.demands, work.row_of, work.best.plans
    numbers, columns = work.search.candidates.view(np.float64), batch.counts[0]
    for d in range(demands.shape[0]):
        for c in range(columns):
            for r in range(COUNT):
                demands[d, c, r] = work.search.demands[d, r]
    for plan in range(table.family.shape[0]):
        for i in range(table.change_start[plan], table.change_start[plan + 1]):
            row_of[table.changes[i, 0]] = table.changes[i, 1]
        is_best = False  # a function of numpy would load linear algebra with the compiled code
        for c in range(columns):
            is_best = is_best or plans[c] == plan
        for o in range(row_of.shape[0] if is_best else 0):
            d, r = table.array_of[o], row_of[o]
            if d >= 0:
                for c in range(columns):
                    if plans[c] == plan:
                        candidate, repeats = work.terms[r, CANDIDATE, c], table.rows[r].repeats
                        add_candidate_demands(numbers, candidate, repeats, batch.rates[d], c, demands[d, c])


@compiled
def _fill_transfers(batch: Batch, work: Work, transfers: Any) -> None:
    """Write the transfers that are prefetched at the only point of a batch under its best plan."""
    table, row_of, best = work.table, work.row_of, work.best.plans[0]
    point: Any = np.int64(0)
    transfers[0].operator = -1
    if best < 0 or batch.archs.arrays.shape[1] == 0:
        return
    for i in range(table.change_start[best + 1]):  # the last change of an operator holds
        row_of[table.changes[i, 0]] = table.changes[i, 1]
    family, arrays, dsp_s = table.family[best], batch.archs.arrays[0], batch.independent.dsp_s
    fill_chains(table, family, row_of, work.terms, dsp_s, arrays, work.prefetch)
    schedule(table, family, row_of, work.terms, point, work.prefetch, transfers)


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
    """Evaluate a group of each round of `shares` groups: the work of one thread.

    Every second round is dealt in reverse, so that groups whose costs alternate are shared evenly.
    """
    # numba counts references to arrays: shared by all threads, a count would move from core to core.
    own_table, base, columns = _own_table(table), design.base.copy(), design.columns.copy()
    own_design = Design(base, design.arrays, design.hosts, columns, design.values, design.order, design.cuts)
    own_incumbents = Incumbents(
        incumbents.is_objective.copy(),
        incumbents.bounded.copy(),
        incumbents.low.copy(),
        incumbents.high.copy(),
        incumbents.objectives,
        incumbents.counts,
    )
    previous_search = -1
    thread: Any = np.int64(share)
    for r in range(points.spans.shape[0] // shares + 1):
        g = r * shares + (thread if r % 2 == 0 else shares - 1 - thread)
        if g >= points.spans.shape[0]:
            continue
        for c in range(points.group_columns.shape[0]):
            base[points.group_columns[c]] = points.group_values[g, c]
        first, start, stop = points.first[g], points.spans[g, 0], points.spans[g, 1]
        holds_for_all_rates = not _reads_rates(stop - start, own_table.rows)
        is_searched = holds_for_all_rates and points.search_of[g] == previous_search
        group_results = Results(
            results.totals[first:], results.plans[first:], results.uses, results.transfers
        )
        search = _evaluate_group(
            own_design, start, stop, own_table, search, is_searched, own_incumbents, thread, group_results
        )
        previous_search = points.search_of[g] if holds_for_all_rates else -1


def _all_ms(*arguments: Any) -> float:
    design, table, results = arguments[0], arguments[2], arguments[5]
    return plain_ms(table.rows, array_devices(design)) * len(results.totals)


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
    for thread in prange(threads):
        _evaluate_share(design, points, table, search, incumbents, results, thread, threads)


class PlanCosts(NamedTuple):
    """Costs of a network on one architecture under the best of its residency plans."""

    uses: Any
    """Busy times of array devices, then hosts, array of DEVICE_USE_DTYPE."""
    transfers: Any
    """Prefetched transfers, array of TRANSFER_DTYPE."""
    table: PlanTable
    """The plans that were compared."""
    search: GroupSearch
    """Candidates of each row of `table`."""

    def operators(self, archs: Archs, plan: int) -> Any:
        """Return the costs of each operator under the best plan, array of RESULT_DTYPE."""
        ops = operators_of(self.table, plan)
        results = np.zeros(len(ops), RESULT_DTYPE)
        np.add.at(results["ahead_s"], self.transfers["operator"], self.transfers["seconds"])
        cost_candidates(archs, ops, rows_under(self.table, plan), self.search, results)
        return results


def evaluate_plans(
    row: ArchRow, table: PlanTable, totals: Any, plans: Ints, nests: Sequence[Nest | None] | None = None
) -> PlanCosts:
    """Cost a network on one architecture under the best of its residency plans.

    `nests` restricts the tilings of each operator. Write the network's `totals`, array of TOTAL_DTYPE, shape
    (1,), and its `plans`, -1 where it fits under none.
    """
    uses = np.zeros(len(row.arrays) + len(row.hosts), DEVICE_USE_DTYPE)
    design = _design(row, points_in_groups(np.empty(0, np.int64), np.empty((1, 0)), np.arange(2)))
    transfers = np.zeros(1 + 2 * table.fused_chains.shape[1], TRANSFER_DTYPE)
    results, search = Results(totals, plans, uses, transfers), no_search()
    if nests is not None:
        table, of_rows = with_nests(table, nests)
        candidates, row_starts = search_nested_rows(row.archs, table.rows, of_rows)
        first_ops = table.rows[table.changes[: table.fused_chains.shape[1], 1]]
        search = _served_search(row.archs, table.rows, candidates, row_starts, first_ops)
    search = _evaluate_group(design, 0, 1, table, search, nests is not None, no_incumbents(), 0, results)
    return PlanCosts(uses, transfers[: int(np.argmax(transfers["operator"] < 0))], table, search)


def operator_costs(archs: Archs, ops: Any, results: Any) -> None:
    """Search and cost each operator of a network by itself; `ops` and `results` as of `cost_candidates`."""
    row_starts = np.empty(len(ops) + 1, np.int64)
    candidates = searched_rows(archs, ops, row_starts)
    search = _served_search(archs, ops, candidates, row_starts, ops)
    cost_candidates(archs, ops, np.arange(len(ops)), search, results)


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
    results = Results(totals, plans, np.empty(0, DEVICE_USE_DTYPE), np.empty(0, TRANSFER_DTYPE))
    own = no_incumbents() if incumbents is None else incumbents
    _evaluate_all(_design(base, points), points, table, no_search(), own, results, thread_count())


def evaluate(
    row: ArchRow, ops: Any, results: Any, total: Any, nests: Sequence[Nest | None] | None = None
) -> None:
    """Cost a network on one architecture under one residency plan, operator by operator.

    Parameters
    ----------
    ops : array of OP_DTYPE, shape (operators,)
    results : array of RESULT_DTYPE, shape (operators,)
        Written.
    nests : sequence of Nest or None, optional
        Loop nest that restricts the tilings of each operator.
    """
    totals = np.zeros(1, TOTAL_DTYPE)
    costs = evaluate_plans(row, plan_table(ops[np.newaxis]), totals, np.zeros(1, np.int64), nests)
    results[:] = costs.operators(row.archs, 0)
    for name in TOTAL_DTYPE.names or ():
        total[name] = totals[name][0]
