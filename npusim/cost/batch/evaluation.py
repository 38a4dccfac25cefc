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

from npusim.compiling import kernels
from npusim.compiling.kernels import compiled, compiled_making_arrays, compiled_or_plain
from npusim.compiling.records import Floats, Ints
from npusim.cost.batch import design_batch
from npusim.cost.batch import incumbents as pruning
from npusim.cost.batch.design_batch import PointGroups, Work, fill_batch, new_work
from npusim.cost.batch.incumbents import Incumbents
from npusim.cost.batch.nests import Nest, search_nested_rows, with_nests
from npusim.cost.batch.totals import cost_operators, fill_columns, fill_device_uses, write_point_totals
from npusim.cost.lowering.plans import PlanTable, plan_table
from npusim.cost.lowering.tables import CONVOLUTION, DEVICE_USE_DTYPE, DPU, DSP, RESULT_DTYPE, TOTAL_DTYPE
from npusim.cost.machine.architecture import ARCH_DTYPE, Archs, weighs_energy
from npusim.cost.machine.design_point import ARRAY_SIZE, SHARED_SIZE, SRAM_COLUMN, ArchRow
from npusim.cost.network.plan_costs import change_rows, keep_better_plan, start_plans, sum_rows
from npusim.cost.network.prefetch import schedule
from npusim.cost.network.terms import ROOT, Costing, fill_terms
from npusim.cost.tilings.search import GroupSearch, fits, plain_ms, search_rows
from npusim.cost.units import rates as laws
from npusim.cost.units import resources
from npusim.cost.units.levels import SERVED_DTYPE, add_candidate_demands, serve_rows
from npusim.cost.units.resources import BODY, CANDIDATE_SIZE, COUNT, dynamic_j, moved_bytes

if TYPE_CHECKING:
    from numba import prange  # the decorator of the kernel provides it

_ENERGY = 1.0
"""Number of `energy` in `npusim.arch.npu.MAPPING_OBJECTIVES`; smaller is latency, greater the product."""
_ROW_MS = 0.5
"""Time to cost a row at a point under all plans as plain Python."""
_POINT_COUNT = 1
"""Entry of `Batch.counts` with the number of points."""
SHARED_SEARCH = 1024
"""Most points of a group whose search reads their rates; for more points that pays for convolutions only."""


def _search_ms(base: Floats, groups: PointGroups, table: PlanTable, points: int) -> float:
    arrays = base[SHARED_SIZE : SHARED_SIZE + groups.arrays * ARRAY_SIZE].view(ARCH_DTYPE)
    return plain_ms(table.rows, arrays) * points


@compiled_or_plain(lambda base, groups, start, stop, table: _search_ms(base, groups, table, stop - start))
def _search_group(base: Floats, groups: PointGroups, start: int, stop: int, table: PlanTable) -> GroupSearch:
    """Return the tiling search of a group of points."""
    batch, arrays = design_batch.new_batch(base, groups, table, stop - start), groups.arrays
    archs, rate_bounds = batch.archs, np.empty((arrays, laws.RATES, 2))
    row_starts = np.empty(table.rows.shape[0] + 1, np.int64)
    next_point = fill_batch(batch, groups, start, stop)
    for d in range(arrays):
        laws.start_rate_bounds(rate_bounds[d])
        laws.widen_rate_bounds(batch.rates[d], batch.counts[0], rate_bounds[d])
    if next_point < stop and _reads_rates(stop - start, table.rows):
        # Candidates that are too slow at all points need not be kept.
        while next_point < stop:
            next_point = fill_batch(batch, groups, next_point, stop)
            for d in range(arrays):
                laws.widen_rate_bounds(batch.rates[d], batch.counts[0], rate_bounds[d])
        fill_batch(batch, groups, start, stop)
    elif next_point < stop:
        _widen_by_sram_alone(groups, next_point, stop, rate_bounds)
    for d in range(arrays if weighs_energy(archs) else 0):
        laws.clear_rate_bounds(rate_bounds[d])
    candidates = search_rows(archs, table.rows, rate_bounds, row_starts)
    return _served_search(archs, table.rows, candidates, row_starts, batch.operators)


@compiled_or_plain(lambda archs, rows, *_: 0.1 * len(rows))
def _served_search(archs: Archs, rows: Any, candidates: Any, row_starts: Ints, operators: Any) -> GroupSearch:
    """Return a search result with what memory levels serve, and demands under any plan."""
    demands, macs = np.zeros((archs.arrays.shape[0], COUNT)), 0.0
    served = np.zeros(rows.shape[0], SERVED_DTYPE)
    serve_rows(archs.arrays, rows, candidates, row_starts, served)
    for o in range(operators.shape[0]):
        op = operators[o]
        macs += op.repeats * op.macs
        if op.unit == DPU or op.unit == DSP:
            resources.add_operator_demand(archs.arrays[op.device], op, demands, op.device)
    return GroupSearch(candidates, row_starts, served, demands, macs)


@compiled
def _reads_rates(points: int, rows: Any) -> bool:
    """Return whether the search of a group depends on the rates of its points."""
    has_convolutions = False  # they have pieces of several sizes
    for r in range(rows.shape[0]):
        has_convolutions |= rows[r].unit == DPU and rows[r].dpu_operation == CONVOLUTION
    return bool(points <= SHARED_SEARCH or has_convolutions)


@compiled
def _widen_by_sram_alone(groups: PointGroups, start: int, stop: int, rate_bounds: Floats) -> None:
    """Widen the bounds of SRAM by points `start` to `stop`; clear the bounds of all rates."""
    for d in range(groups.arrays):
        laws.clear_rate_bounds(rate_bounds[d])
    columns, values = groups.columns, groups.values
    for c in range(columns.shape[0]):
        device, column = (columns[c] - SHARED_SIZE) // ARRAY_SIZE, columns[c] - SHARED_SIZE
        if column >= 0 and device < groups.arrays and column % ARRAY_SIZE == SRAM_COLUMN:
            for p in range(start, stop):
                laws.widen_sram_bounds(values[p, c], rate_bounds[device])


class Output(NamedTuple):
    """What is written of points: totals, array of TOTAL_DTYPE, and the best plan."""

    totals: Any
    plans: Ints


@compiled_or_plain(
    lambda work, groups, start, stop, *_: _ROW_MS * len(work.costing.table.rows) * (stop - start)
)
def _evaluate_group(
    work: Work, groups: PointGroups, start: int, stop: int, front: Incumbents, thread: int, output: Output
) -> None:
    """Evaluate points `start` to `stop` of a group, which have the same candidate mappings, in batches.

    Each `thread` has its own incumbents. Where bounds show that they dominate a whole batch, its totals are
    infinite. `groups.order` says where in `output` each point is written.
    """
    batch, first, totals = work.batch, start, output.totals
    while first < stop:
        next_point = fill_batch(batch, groups, first, stop)
        work.costing.terms.is_filled[:] = False  # terms depend on the points: forget the last batch
        points, order = batch.counts[_POINT_COUNT], groups.order[first:]
        if pruning.can_bound(work, front, thread) and _is_dominated(work, front, thread):
            for p in range(points):
                totals[order[p]].latency_s = totals[order[p]].energy_j = np.inf
        else:
            _compare_plans(work)  # fills work.best
            _add_demands(work)  # fills work.demands under these plans
            fill_columns(work)  # fills work.totals: points of a column share all times
            write_point_totals(work, totals, order, output.plans)
            if pruning.is_pruning(front):
                pruning.add_incumbents(front, thread, totals, order, points)
        first = next_point


@compiled
def _fill_row_terms(work: Work, o: int, r: int, d: int) -> None:
    """Write the costs of row `r` (operator `o` on array `d`): its best candidate's at each column."""
    costing, columns, rates = work.costing, work.batch.counts[0], work.batch.rates[d]
    arch, search = work.batch.archs.arrays[d], costing.search
    for c in range(columns):
        rates[laws.DSP, c] = costing.independent.dsp_s[o, c]
    if arch.objective < _ENERGY:
        start, stop, is_served = search.row_starts[r], search.row_starts[r + 1], search.served[r].is_any > 0.0
        laws.choose(search.candidates, start, stop, is_served, rates, columns, work.choices)
    else:
        _choose_by_energy(work, r, d)
    fill_terms(costing, r, work.choices, rates, arch.prefetch > 0.0, columns)


@compiled
def _choose_by_energy(work: Work, r: int, d: int) -> None:
    """Choose the candidate of least energy, or of least energy times latency, at each column.

    Energy is that of an operator alone: what its candidate moves and computes, and the power of device and
    machine while it works. A search for energy keeps slow mappings too, which may move less, so it takes
    about four times as long. Candidates that a memory level serves are compared as for latency, where a byte
    from an inner level is never worse than one from outside.
    """
    search, choices, demands, columns = work.costing.search, work.choices, work.demand, work.batch.counts[0]
    arch, op, states = work.batch.archs.arrays[d], work.costing.table.rows[r], work.batch.states
    start, stop, is_served = search.row_starts[r], search.row_starts[r + 1], search.served[r].is_any > 0.0
    unit_j, best_cost, numbers = states.unit_j[d], choices.plain_best_s, search.candidates.view(np.float64)
    rates = work.batch.rates[d]
    laws.fill_latencies(search.candidates, start, stop, is_served, is_served, rates, columns, choices)
    demands[0, :] = 0.0
    best_cost[:] = np.inf
    resources.add_operator_demand(arch, op, demands, 0)
    for k in range(COUNT):
        demands[0, k] /= op.repeats
    for c in range(stop - start):
        for k in range(BODY):
            demands[0, k] = numbers[(start + c) * CANDIDATE_SIZE + k]
        dram_bytes, read_bytes, written_bytes = moved_bytes(demands, 0)
        for p in range(columns):
            latency_s, state = choices.latencies_s[c * columns + p], work.batch.column_state[p]
            if latency_s == np.inf:
                continue
            cost = latency_s * (unit_j[state, resources.STATIC_W] + states.idle_w[state])
            for joules in dynamic_j(demands, 0, dram_bytes, read_bytes + written_bytes, unit_j, state):
                cost += joules
            if arch.objective > _ENERGY:
                cost *= latency_s
            if cost < best_cost[p]:
                best_cost[p], choices.best_s[p], choices.candidate[p] = cost, latency_s, start + c


@compiled
def _sum_plan(work: Work, costing: Costing, plan: int, is_bound: bool) -> bool:
    """Cost and add up what differs from the plan before; return whether all operators fit into SRAM.

    `costing` is that of the columns of a batch, or the one of lower bounds.
    """
    table, is_filled = costing.table, costing.terms.is_filled
    if not change_rows(costing, plan):
        return False
    for o in range(costing.row_of.shape[0]):
        r, d = costing.row_of[o], table.array_of[o]
        if d >= 0 and not is_filled[r]:
            is_filled[r] = True
            if is_bound:
                pruning.fill_row_bounds(work, o, r, d)
            else:
                _fill_row_terms(work, o, r, d)
    sum_rows(costing, plan, work.batch.archs.arrays, 1 if is_bound else work.batch.counts[0])
    return True


@compiled
def _is_dominated(work: Work, front: Incumbents, thread: int) -> bool:
    """Return whether incumbents dominate all points of a batch, by lower bounds of its costs."""
    costing = work.bounds.costing
    pruning.fill_batch_bounds(work)
    start_plans(costing)
    for plan in range(costing.table.family.shape[0]):
        if _sum_plan(work, costing, plan, True) and not pruning.are_dominated(work, front, thread):
            return False
    return True


@compiled
def _compare_plans(work: Work) -> None:
    """Find the best plan of each column, and its sums."""
    arrays, costing = work.batch.archs.arrays, work.costing
    work.best.plans[:] = -1
    start_plans(costing)
    for plan in range(costing.table.family.shape[0]):
        if _sum_plan(work, costing, plan, False):
            _fill_prefetch_savings(work, costing.table.family[plan])
            keep_better_plan(costing, plan, arrays, work.batch.counts[0], work.prefetch.saved_s, work.best)


@compiled
def _least_latency_s(work: Work, column: int) -> float:
    """Return a lower bound of the latency under the latest plan (s): prefetch saves all stalls at most."""
    sums, independent = work.costing.sums, work.batch.independent
    least_s = independent.launches_s[column]
    for d in range(work.batch.archs.arrays.shape[0]):
        work_s = sums.work_s[ROOT, d, column] - sums.stalls_s[ROOT, d, column]
        least_s += work_s + independent.dispatches_s[d, column]
    for h in range(independent.hosts_s.shape[0]):
        least_s += independent.hosts_s[h, column]
    return float(least_s)


@compiled
def _fill_prefetch_savings(work: Work, family: int) -> None:
    """Write the time that prefetch saves under the latest plan, at each column (design points) of a batch.

    `family` is that of the plan: plans of one fusion. The schedule is skipped where it changes nothing: there
    is no stall, or the plan cannot become the best even without stalls. The latter is known for one request
    in flight alone, where latency is the sum of all times.
    """
    batch, sums, best = work.batch, work.costing.sums, work.best
    arrays, is_prefetching = batch.archs.arrays, False
    for d in range(arrays.shape[0]):
        is_prefetching = is_prefetching or arrays[d].prefetch > 0.0
    for column in range(batch.counts[0] if is_prefetching else 0):
        stalls_s = 0.0
        for d in range(arrays.shape[0]):
            stalls_s += sums.stalls_s[ROOT, d, column]
        may_be_best = best.plans[column] < 0 or batch.independent.requests[column] > 1.0
        may_be_best = may_be_best or not _least_latency_s(work, column) > best.latency_s[column]
        if stalls_s > 0.0 and may_be_best:
            schedule(work.costing, family, arrays, column, work.prefetch)
        else:
            work.prefetch.saved_s[:, column] = 0.0


@compiled
def _add_demands(work: Work) -> None:
    """Write the demands on each array device under the best plan of each column."""
    costing, demands, plans, columns = work.costing, work.demands, work.best.plans, work.batch.counts[0]
    table, search, row_of = costing.table, costing.search, costing.row_of
    numbers, candidate_of = search.candidates.view(np.float64), costing.terms.candidate
    for device in range(demands.shape[0]):
        for column in range(columns):
            for resource in range(COUNT):
                demands[device, column, resource] = search.demands[device, resource]
    for plan in range(table.family.shape[0]):
        for i in range(table.change_start[plan], table.change_start[plan + 1]):
            row_of[table.changes[i, 0]] = table.changes[i, 1]
        is_best = False  # a function of numpy would load linear algebra with the compiled code
        for column in range(columns):
            is_best = is_best or plans[column] == plan
        for operator in range(row_of.shape[0] if is_best else 0):
            device, row = table.array_of[operator], row_of[operator]
            for column in range(columns if device >= 0 else 0):
                if plans[column] == plan:
                    candidate, repeats = candidate_of[row, column], table.rows[row].repeats
                    rates, own = work.batch.rates[device], demands[device, column]
                    add_candidate_demands(numbers, candidate, repeats, rates, column, own)


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
    base: Floats,
    groups: PointGroups,
    table: PlanTable,
    front: Incumbents,
    output: Output,
    share: int,
    shares: int,
) -> None:
    """Evaluate a group of each round of `shares` groups: the work of one thread.

    Every second round is dealt in reverse, so that groups whose costs alternate are shared evenly.
    """
    # numba counts references to arrays: shared by all threads, a count would move from core to core.
    own_table, numbers = _own_table(table), base.copy()
    is_objective, bounded, low, high = front.is_objective, front.bounded, front.low, front.high
    own_front = Incumbents(
        is_objective.copy(), bounded.copy(), low.copy(), high.copy(), front.objectives, front.counts
    )
    previous_search = -1
    thread: Any = np.int64(share)
    for r in range(groups.spans.shape[0] // shares + 1):
        g = r * shares + (thread if r % 2 == 0 else shares - 1 - thread)
        if g >= groups.spans.shape[0]:
            continue
        for c in range(groups.group_columns.shape[0]):
            numbers[groups.group_columns[c]] = groups.group_values[g, c]
        first, start, stop = groups.first[g], groups.spans[g, 0], groups.spans[g, 1]
        holds_for_all_rates = not _reads_rates(stop - start, own_table.rows)
        if not (holds_for_all_rates and groups.search_of[g] == previous_search):
            search = _search_group(numbers, groups, start, stop, own_table)
        work = new_work(
            design_batch.new_batch(numbers, groups, own_table, stop - start), groups, own_table, search
        )
        own_output = Output(output.totals[first:], output.plans[first:])
        _evaluate_group(work, groups, start, stop, own_front, thread, own_output)
        previous_search = groups.search_of[g] if holds_for_all_rates else -1


@kernels.compiled_parallel_or_plain(
    lambda base, groups, table, front, output, *_: _search_ms(base, groups, table, len(output.totals))
)
def _evaluate_all(
    base: Floats, groups: PointGroups, table: PlanTable, front: Incumbents, output: Output, threads: int
) -> None:
    """Evaluate all groups of points; `base` are the numbers that all of them start from."""
    for thread in prange(threads):
        _evaluate_share(base, groups, table, front, output, thread, threads)


@compiled_or_plain(lambda work, *_: 0.2 * len(work.costing.row_of))
def _cost_chosen(work: Work, plan: int, uses: Any, results: Any) -> None:
    """Write busy times of devices, prefetched transfers and costs of operators at a single point.

    `plan` is the best plan, or one that does not fit: of its operators those that do not fit have infinite
    latency.
    """
    costing, transfers = work.costing, work.prefetch.transfers
    table, row_of, count = costing.table, costing.row_of, 0
    transfers[0].operator = -1
    for i in range(table.change_start[plan + 1]):  # the last change of an operator holds
        row_of[table.changes[i, 0]] = table.changes[i, 1]
    for o in range(row_of.shape[0]):
        r, d = row_of[o], table.array_of[o]
        if d >= 0 and fits(table.rows[r], costing.search.row_starts, r) and not costing.terms.is_filled[r]:
            costing.terms.is_filled[r] = True
            _fill_row_terms(work, o, r, d)
    column: Any = np.int64(0)  # a literal would make a second specialisation
    if work.best.plans[0] >= 0:
        fill_device_uses(work, uses)
        schedule(costing, table.family[plan], work.batch.archs.arrays, column, work.prefetch)
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
        archs, transfers = self.work.batch.archs, self.work.prefetch.transfers
        results = np.zeros(len(self.work.costing.row_of), RESULT_DTYPE)
        uses = np.zeros(archs.arrays.shape[0] + archs.hosts.shape[0], DEVICE_USE_DTYPE)
        _cost_chosen(self.work, max(self.plan, 0), uses, results)
        return results, uses, transfers[: int(np.argmax(transfers["operator"] < 0))]


def evaluate_plans(row: ArchRow, table: PlanTable, nests: Sequence[Nest | None] | None = None) -> PlanCosts:
    """Return the costs of a network on one architecture under the best of its residency plans.

    `nests` restricts the tilings of each operator.
    """
    point = design_batch.points_in_groups(np.empty(0, np.int64), np.empty((1, 0)), np.arange(2))
    groups = point._replace(arrays=len(row.arrays), hosts=len(row.hosts))
    if nests is None:
        search = _search_group(row.numbers, groups, 0, 1, table)
    else:
        table, row_nests = with_nests(table, nests)
        candidates, row_starts = search_nested_rows(row.archs, table.rows, row_nests)
        operators = table.rows[table.changes[: len(table.array_of), 1]]
        search = _served_search(row.archs, table.rows, candidates, row_starts, operators)
    with kernels.plain_kernels():
        work = new_work(design_batch.new_batch(row.numbers, groups, table, 1), groups, table, search)
    output = Output(np.zeros(1, TOTAL_DTYPE), np.zeros(1, np.int64))
    _evaluate_group(work, groups, 0, 1, pruning.no_incumbents(), 0, output)
    return PlanCosts(output.totals[0], int(output.plans[0]), work)


def operator_costs(row: ArchRow, ops: Any) -> Any:
    """Return the costs of each operator of a network under one residency plan, array of RESULT_DTYPE."""
    return evaluate_plans(row, plan_table(ops[np.newaxis])).operators()[0]


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
    front = pruning.no_incumbents() if incumbents is None else incumbents
    groups = points._replace(arrays=len(base.arrays), hosts=len(base.hosts))
    _evaluate_all(base.numbers, groups, table, front, Output(totals, plans), kernels.thread_count())
