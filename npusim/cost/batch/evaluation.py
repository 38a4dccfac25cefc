"""Batched evaluation: operators x architectures -> costs, for one design point and for ten million.

The tiling search finds the needs of each operator (`npusim.cost.tilings.search`), rates turn them into
latencies (`npusim.cost.units.rates`), plans add these up (`npusim.cost.network.plan_costs`). Points that
differ in rates alone share the search. Points that differ in energies alone share all times
(`npusim.cost.batch.design_batch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npusim.compiling.kernels import (
    compiled,
    compiled_making_arrays,
    compiled_or_plain,
    compiled_parallel_or_plain,
    thread_count,
)
from npusim.compiling.records import Floats, Ints
from npusim.cost.batch.design_batch import (
    Costing,
    Design,
    PointGroups,
    Work,
    array_devices,
    fill_batch,
    new_batch,
    new_work,
    points_in_groups,
)
from npusim.cost.batch.incumbents import (
    Incumbents,
    add_incumbents,
    are_dominated,
    can_bound,
    fill_batch_bounds,
    fill_row_bounds,
    no_incumbents,
)
from npusim.cost.batch.nests import Nest, search_nested_rows, with_nests
from npusim.cost.batch.totals import cost_operators, fill_columns, fill_device_uses, write_point_totals
from npusim.cost.lowering.plans import PlanTable, plan_table
from npusim.cost.lowering.tables import DEVICE_USE_DTYPE, RESULT_DTYPE, TOTAL_DTYPE, DpuOperation, Unit
from npusim.cost.machine.architecture import Archs
from npusim.cost.machine.design_point import ARRAY_SIZE, SHARED_SIZE, SRAM_COLUMN, ArchRow
from npusim.cost.network.plan_costs import add_up, change_rows, keep_better_plan, mark_all_stale, mark_stale
from npusim.cost.network.prefetch import TRANSFER_DTYPE, schedule
from npusim.cost.network.terms import fill_terms
from npusim.cost.tilings.objective import choose_mapping, weighs_energy
from npusim.cost.tilings.search import GroupSearch, fits, plain_ms, search_rows
from npusim.cost.units.levels import SERVED_DTYPE, add_candidate_demands, serve_rows
from npusim.cost.units.rates import (
    DSP,
    MACHINE_RATES,
    RATES,
    are_alike,
    clear_rate_bounds,
    start_rate_bounds,
    widen_rate_bounds,
    widen_sram_bounds,
)
from npusim.cost.units.resources import COUNT, add_operator_demand

if TYPE_CHECKING:
    from numba import prange  # the decorator of the kernel provides it

_DPU, _DSP = int(Unit.DPU), int(Unit.DSP)
_CONVOLUTION = int(DpuOperation.CONVOLUTION)
_FAMILY, _UNFIT, _WAITING = range(3)
"""Places in `npusim.cost.batch.design_batch.Costing.plan`."""
_ROW_MS = 0.5
"""Time to cost a row at a point under all plans as plain Python."""
SHARED_SEARCH = 1024
"""Most points of a group whose search reads their rates; for more points that pays for convolutions only."""


def _group_ms(design: Design, start: int, stop: int, table: PlanTable, *_: Any) -> float:
    return plain_ms(table.rows, array_devices(design)) * (stop - start)


@compiled_or_plain(_group_ms)
def _search_group(design: Design, start: int, stop: int, table: PlanTable) -> GroupSearch:
    """Return the tiling search of a group of points."""
    batch, arrays = new_batch(design, table, stop - start), design.arrays
    archs, rate_bounds = batch.archs, np.empty((arrays, RATES, 2))
    row_starts = np.empty(table.rows.shape[0] + 1, np.int64)
    next_point = fill_batch(batch, design, start, stop)
    for d in range(arrays):
        start_rate_bounds(rate_bounds[d])
        widen_rate_bounds(batch.rates[d], batch.counts[0], rate_bounds[d])
    if next_point < stop and _reads_rates(stop - start, table.rows):
        # Candidates that are too slow at all points need not be kept.
        while next_point < stop:
            next_point = fill_batch(batch, design, next_point, stop)
            for d in range(arrays):
                widen_rate_bounds(batch.rates[d], batch.counts[0], rate_bounds[d])
        fill_batch(batch, design, start, stop)
    elif next_point < stop:
        _widen_by_sram_alone(design, next_point, stop, rate_bounds)
    for d in range(arrays if weighs_energy(archs) else 0):
        clear_rate_bounds(rate_bounds[d])
    candidates = search_rows(archs, table.rows, rate_bounds, row_starts)
    return _served_search(archs, table.rows, candidates, row_starts, batch.operators)


@compiled_or_plain(lambda archs, rows, *_: 0.1 * len(rows))
def _served_search(archs: Archs, rows: Any, candidates: Any, row_starts: Ints, operators: Any) -> GroupSearch:
    """Return a search result with what memory levels serve, and demands under any plan."""
    demands, macs = np.zeros((archs.arrays.shape[1], COUNT)), 0.0
    served = np.zeros(rows.shape[0], SERVED_DTYPE)
    serve_rows(archs.arrays[0], rows, candidates, row_starts, served)
    for o in range(operators.shape[0]):
        op = operators[o]
        macs += op.repeats * op.macs
        if op.unit == _DPU or op.unit == _DSP:
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
    columns, values = design.points.columns, design.points.values
    for c in range(columns.shape[0]):
        device, column = (columns[c] - SHARED_SIZE) // ARRAY_SIZE, columns[c] - SHARED_SIZE
        if column >= 0 and device < design.arrays and column % ARRAY_SIZE == SRAM_COLUMN:
            for p in range(start, stop):
                widen_sram_bounds(values[p, c], rate_bounds[device])


@compiled_or_plain(lambda design, start, stop, table, *_: _ROW_MS * len(table.rows) * (stop - start))
def _evaluate_group(
    design: Design,
    start: int,
    stop: int,
    table: PlanTable,
    search: GroupSearch,
    incumbents: Incumbents,
    thread: int,
    totals: Any,
    plans: Ints,
) -> Work:
    """Evaluate points `start` to `stop`, which share a search, in batches; return the last batch's work.

    Each `thread` has its own incumbents. `totals`, array of TOTAL_DTYPE, and `plans` are written, at the
    places that the order of points says.
    """
    batch = new_batch(design, table, stop - start)
    work, first, columns_before = new_work(design, table, search, batch), start, 0
    while first < stop:
        next_point = fill_batch(batch, design, first, stop)
        _keep_terms(work, columns_before)
        columns_before, points, order = batch.counts[0], batch.counts[1], design.points.order[first:]
        if can_bound(work, incumbents, thread) and _is_dominated(work, incumbents, thread):
            for p in range(points):
                totals[order[p]].latency_s = totals[order[p]].energy_j = np.inf
        else:
            _compare_plans(work)
            _add_demands(work)
            fill_columns(work)
            write_point_totals(work, totals, order, plans)
            if incumbents.counts.shape[0] > 0:
                add_incumbents(incumbents, thread, totals, order, points)
        first = next_point
    return work


@compiled
def _keep_terms(work: Work, columns_before: int) -> None:
    """Invalidate row costs of the previous batch, except where rates are equal and no DSP is involved."""
    batch, columns = work.batch, work.batch.counts[0]
    terms, bounds = work.costing.terms, work.bounds.costing.terms
    is_same = columns == columns_before and are_alike(batch.rates, work.rates_before, columns)
    is_same = is_same and not weighs_energy(batch.archs)
    for r in range(terms.is_filled.shape[0]):
        is_kept = is_same and work.table.rows[r].unit != _DSP
        terms.is_filled[r] = is_kept and terms.is_filled[r]
        bounds.is_filled[r] = is_kept and bounds.is_filled[r]
    if is_same:
        return
    for d in range(batch.rates.shape[0]):
        start_rate_bounds(work.rate_bounds[d])
        widen_rate_bounds(batch.rates[d], columns, work.rate_bounds[d])
        for r in range(MACHINE_RATES):
            for c in range(columns):
                work.rates_before[d, r, c] = batch.rates[d, r, c]


@compiled
def _fill_row_terms(work: Work, o: int, r: int, d: int) -> None:
    """Write the costs of row `r` (operator `o` on array `d`): its best candidate's at each column."""
    batch, search, columns = work.batch, work.search, work.batch.counts[0]
    arch, op, rates, served = batch.archs.arrays[0, d], work.table.rows[r], batch.rates[d], search.served[r]
    for c in range(columns):
        rates[DSP, c] = batch.independent.dsp_s[o, c]
    choose_mapping(
        batch.archs,
        op,
        search.candidates,
        search.row_starts[r],
        search.row_starts[r + 1],
        served.is_any > 0.0,
        rates,
        columns,
        batch.states,
        batch.column_state,
        work.choices,
        work.demand,
    )
    terms, is_prefetching = work.costing.terms, arch.prefetch > 0.0
    fill_terms(search.candidates, work.choices, served, rates, op, is_prefetching, columns, terms, r)


@compiled
def _start_plans(costing: Costing) -> None:
    """Forget the latest plan."""
    costing.row_of[:] = -1
    costing.is_pending[:] = False
    costing.plan[_FAMILY], costing.plan[_UNFIT], costing.plan[_WAITING] = -1, 0, 0


@compiled
def _sum_plan(work: Work, costing: Costing, plan: int, is_bound: bool) -> bool:
    """Cost and add up what differs from the plan before; return whether all operators fit into SRAM.

    `costing` is that of the columns of a batch, or the one of lower bounds.
    """
    table, terms, tree, row_of = work.table, costing.terms, costing.tree, costing.row_of
    pending, is_pending = costing.pending, costing.is_pending
    costing.plan[_UNFIT] = change_rows(table, work.search.row_starts, plan, costing.plan[_UNFIT], row_of)
    for c in range(table.change_start[plan], table.change_start[plan + 1]):
        o = table.changes[c, 0]
        if not is_pending[o]:
            is_pending[o], pending[costing.plan[_WAITING]] = True, o
            costing.plan[_WAITING] += 1
    if costing.plan[_UNFIT] > 0:
        return False
    family, queued = table.family[plan], 0
    if family != costing.plan[_FAMILY]:
        queued = mark_all_stale(tree, table.leaf_op.shape[1])
    for i in range(costing.plan[_WAITING]):
        o = pending[i]
        r, leaf, is_pending[o] = row_of[o], table.leaf_of[family, o], False
        if leaf >= 0 and not terms.is_filled[r]:
            terms.is_filled[r] = True
            if is_bound:
                fill_row_bounds(work, o, r, table.array_of[o])
            else:
                _fill_row_terms(work, o, r, table.array_of[o])
        queued = mark_stale(tree, leaf, queued)
        queued = mark_stale(tree, table.chain_leaf[family, o], queued)
    costing.plan[_FAMILY], costing.plan[_WAITING] = family, 0
    each, points = work.batch.independent, work.batch.counts[0]
    if is_bound:
        each, points = work.bounds.independent, 1
    add_up(tree, queued, table, family, row_of, terms, each.dsp_s, work.batch.archs.arrays[0], points)
    return True


@compiled
def _is_dominated(work: Work, incumbents: Incumbents, thread: int) -> bool:
    """Return whether incumbents dominate all points of a batch, by lower bounds of its costs."""
    costing = work.bounds.costing
    fill_batch_bounds(work)
    _start_plans(costing)
    for plan in range(work.table.family.shape[0]):
        if _sum_plan(work, costing, plan, True) and not are_dominated(work, incumbents, thread):
            return False
    return True


@compiled
def _compare_plans(work: Work) -> None:
    """Find the best plan of each column, and its sums."""
    batch, table, costing, sums = work.batch, work.table, work.costing, work.costing.tree.sums
    arrays, independent, best = batch.archs.arrays[0], batch.independent, work.best
    best.plans[:] = -1
    _start_plans(costing)
    for plan in range(table.family.shape[0]):
        if _sum_plan(work, costing, plan, False):
            _prefetch(work, table.family[plan])
            saved_s, waits, points = work.prefetch.saved_s, table.waits[plan], batch.counts[0]
            bounds = work.interval_bounds
            keep_better_plan(
                arrays, independent, sums, plan, waits, points, best, work.times, bounds, saved_s
            )


@compiled
def _prefetch(work: Work, family: int) -> None:
    """Write the time that prefetch saves under a plan, at the columns where the plan may become the best."""
    batch, sums, best = work.batch, work.costing.tree.sums, work.best
    arrays, independent, is_prefetching = batch.archs.arrays[0], batch.independent, False
    for d in range(arrays.shape[0]):
        is_prefetching = is_prefetching or arrays[d].prefetch > 0.0
    for c in range(batch.counts[0] if is_prefetching else 0):
        least_s, stalls_s = independent.launches_s[c], 0.0
        for d in range(arrays.shape[0]):
            stalls_s += sums.stalls_s[-1, d, c]
            least_s += sums.work_s[-1, d, c] - sums.stalls_s[-1, d, c] + independent.dispatches_s[d, c]
        for h in range(independent.hosts_s.shape[0]):
            least_s += independent.hosts_s[h, c]
        is_single = independent.requests[c] <= 1.0 and best.plans[c] >= 0
        if stalls_s > 0.0 and not (is_single and least_s > best.latency_s[c]):
            _schedule(work, family, c, work.no_transfers)
        else:
            work.prefetch.saved_s[:, c] = 0.0


@compiled
def _schedule(work: Work, family: int, column: int, transfers: Any) -> None:
    """Schedule prefetches at one column under the latest plan; arguments as of `schedule`."""
    costing, arrays, dsp_s = work.costing, work.batch.archs.arrays[0], work.batch.independent.dsp_s
    row_of, terms, scratch = costing.row_of, costing.terms, work.prefetch
    schedule(work.table, family, row_of, terms, dsp_s, arrays, column, scratch, transfers)


@compiled
def _add_demands(work: Work) -> None:
    """Write the demands on each array device under the best plan of each column."""
    table, demands, row_of, plans = work.table, work.demands, work.costing.row_of, work.best.plans
    numbers, candidate_of = work.search.candidates.view(np.float64), work.costing.terms.candidate
    columns = work.batch.counts[0]
    for device in range(demands.shape[0]):
        for column in range(columns):
            for resource in range(COUNT):
                demands[device, column, resource] = work.search.demands[device, resource]
    for plan in range(table.family.shape[0]):
        for i in range(table.change_start[plan], table.change_start[plan + 1]):
            row_of[table.changes[i, 0]] = table.changes[i, 1]
        if not _is_best_somewhere(plans, plan, columns):
            continue
        for operator in range(row_of.shape[0]):
            device, row = table.array_of[operator], row_of[operator]
            for column in range(columns if device >= 0 else 0):
                if plans[column] == plan:
                    candidate, repeats = candidate_of[row, column], table.rows[row].repeats
                    rates, own = work.batch.rates[device], demands[device, column]
                    add_candidate_demands(numbers, candidate, repeats, rates, column, own)


@compiled
def _is_best_somewhere(plans: Ints, plan: int, columns: int) -> bool:
    """Return whether a plan is the best of any column."""
    is_best = False  # a function of numpy would load linear algebra with the compiled code
    for column in range(columns):
        is_best = is_best or plans[column] == plan
    return is_best


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
    numbers: Floats,
    arrays: int,
    hosts: int,
    points: PointGroups,
    table: PlanTable,
    incumbents: Incumbents,
    totals: Any,
    plans: Ints,
    share: int,
    shares: int,
) -> None:
    """Evaluate a group of each round of `shares` groups: the work of one thread.

    Every second round is dealt in reverse, so that groups whose costs alternate are shared evenly.
    """
    # numba counts references to arrays: shared by all threads, a count would move from core to core.
    own_table, base = _own_table(table), numbers.copy()
    own_design = Design(base, arrays, hosts, points)
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
        if not (holds_for_all_rates and points.search_of[g] == previous_search):
            search = _search_group(own_design, start, stop, own_table)
        own_totals, own_plans = totals[first:], plans[first:]
        _evaluate_group(
            own_design, start, stop, own_table, search, own_incumbents, thread, own_totals, own_plans
        )
        previous_search = points.search_of[g] if holds_for_all_rates else -1


def _all_ms(
    numbers: Floats,
    arrays: int,
    hosts: int,
    points: PointGroups,
    table: PlanTable,
    incumbents: Incumbents,
    totals: Any,
    *_: Any,
) -> float:
    design = Design(numbers, arrays, hosts, points)
    return plain_ms(table.rows, array_devices(design)) * len(totals)


@compiled_parallel_or_plain(_all_ms)
def _evaluate_all(
    numbers: Floats,
    arrays: int,
    hosts: int,
    points: PointGroups,
    table: PlanTable,
    incumbents: Incumbents,
    totals: Any,
    plans: Ints,
    threads: int,
) -> None:
    """Evaluate all groups of a `Design`, given in its parts: numba hands threads no tuple within a tuple."""
    for thread in prange(threads):
        _evaluate_share(numbers, arrays, hosts, points, table, incumbents, totals, plans, thread, threads)


@compiled_or_plain(lambda work, *_: 0.2 * len(work.table.array_of))
def _cost_chosen(work: Work, plan: int, uses: Any, transfers: Any, results: Any) -> None:
    """Write busy times of devices, prefetched transfers and costs of operators at a single point.

    `plan` is the best plan, or one that does not fit: of its operators those that do not fit have infinite
    latency.
    """
    table, costing = work.table, work.costing
    transfers[0].operator = -1
    for i in range(table.change_start[plan + 1]):  # the last change of an operator holds
        costing.row_of[table.changes[i, 0]] = table.changes[i, 1]
    for o in range(costing.row_of.shape[0]):
        r, d = costing.row_of[o], table.array_of[o]
        if d >= 0 and fits(table.rows[r], work.search.row_starts, r) and not costing.terms.is_filled[r]:
            costing.terms.is_filled[r] = True
            _fill_row_terms(work, o, r, d)
    column: Any = np.int64(0)  # a literal would make a second specialisation
    if work.best.plans[0] >= 0:
        fill_device_uses(work, uses)
        _schedule(work, table.family[plan], column, transfers)
    count = 0
    while transfers[count].operator >= 0:
        results[transfers[count].operator].ahead_s += transfers[count].seconds
        count += 1
    cost_operators(work, table.family[plan], results)


class PlanCosts(NamedTuple):
    """Costs of a network on one architecture under the best of its residency plans."""

    total: Any
    """Record of TOTAL_DTYPE."""
    plan: int
    """The best plan; -1 where the network fits under none."""
    work: Work

    def operators(self) -> tuple[Any, Any, Any]:
        """Return costs of operators, busy times of devices and prefetched transfers under the best plan.

        Arrays of RESULT_DTYPE, of DEVICE_USE_DTYPE (array devices, then hosts) and of TRANSFER_DTYPE. Where
        no plan fits, it is the first one.
        """
        count, archs = len(self.work.table.array_of), self.work.batch.archs
        results, transfers = np.zeros(count, RESULT_DTYPE), np.zeros(1 + 2 * count, TRANSFER_DTYPE)
        uses = np.zeros(archs.arrays.shape[1] + archs.hosts.shape[1], DEVICE_USE_DTYPE)
        _cost_chosen(self.work, max(self.plan, 0), uses, transfers, results)
        return results, uses, transfers[: int(np.argmax(transfers["operator"] < 0))]


def evaluate_plans(row: ArchRow, table: PlanTable, nests: Sequence[Nest | None] | None = None) -> PlanCosts:
    """Return the costs of a network on one architecture under the best of its residency plans.

    `nests` restricts the tilings of each operator.
    """
    design = _design(row, points_in_groups(np.empty(0, np.int64), np.empty((1, 0)), np.arange(2)))
    if nests is None:
        search = _search_group(design, 0, 1, table)
    else:
        table, of_rows = with_nests(table, nests)
        candidates, row_starts = search_nested_rows(row.archs, table.rows, of_rows)
        operators = table.rows[table.changes[: len(table.array_of), 1]]
        search = _served_search(row.archs, table.rows, candidates, row_starts, operators)
    totals, plans = np.zeros(1, TOTAL_DTYPE), np.zeros(1, np.int64)
    work = _evaluate_group(design, 0, 1, table, search, no_incumbents(), 0, totals, plans)
    return PlanCosts(totals[0], int(plans[0]), work)


def operator_costs(row: ArchRow, ops: Any) -> Any:
    """Return the costs of each operator of a network under one residency plan, array of RESULT_DTYPE."""
    return evaluate_plans(row, plan_table(ops[np.newaxis])).operators()[0]


def _design(row: ArchRow, points: PointGroups) -> Design:
    return Design(row.numbers, len(row.arrays), len(row.hosts), points)


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
    own = no_incumbents() if incumbents is None else incumbents
    design = _design(base, points)
    _evaluate_all(*design, table, own, totals, plans, thread_count())
