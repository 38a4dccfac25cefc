"""Design points in groups that share a tiling search, in batches that share rates, and their storage.

Points of a full design repeat each other: all groups have the same values of the axes that the search does
not read. These values stand once, as *places*; a group has values of its own, and a range of places. The
order of places is free (`npusim.explore.points`): neighbours have similar rates, so few candidates compete
there.

Consecutive points of a group differ in few numbers. One record of each device holds the latest point. Derived
numbers are computed again only where a number that they read has changed. Only rates read the bandwidth of
DRAM, which most sweeps vary most. Points at which every rate is the same, as where the DMA engines are
narrower than DRAM, share a *column*: time is costed once for all of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.compiling.kernels import compiled, compiled_making_arrays
from npusim.compiling.records import Bools, Floats, Ints
from npusim.cost.lowering.plans import PlanTable
from npusim.cost.lowering.tables import TOTAL_DTYPE, Unit
from npusim.cost.machine.architecture import ARCH_DTYPE, SHARED_DTYPE, Archs, derive, derive_interface
from npusim.cost.machine.design_point import ARRAY_SIZE, HOST_SIZE, SHARED_SIZE, column_in
from npusim.cost.machine.hosts import HOST_DTYPE
from npusim.cost.network.plan_costs import (
    BestPlans,
    DeviceTimes,
    PlanIndependent,
    SumTree,
    fill_independent,
    new_best_plans,
    plan_independent,
    sum_tree,
)
from npusim.cost.network.prefetch import TRANSFER_DTYPE, Prefetch, new_prefetch
from npusim.cost.network.terms import Terms, new_terms
from npusim.cost.tilings.objective import States, weighs_energy
from npusim.cost.tilings.search import GroupSearch
from npusim.cost.units.rates import BLOCK, MACHINE_RATES, RATES, Choices, fill_rates, new_choices
from npusim.cost.units.resources import BODY, COUNT, UNIT_ENERGIES, fill_unit_energies


class PointGroups(NamedTuple):
    """Design points in groups; points of a group agree in all numbers that the search reads, except SRAM.

    Columns are places of primitives among the numbers of a point
    (`npusim.cost.machine.design_point.ArchRow`).
    """

    group_columns: Ints
    """Columns that groups set."""
    group_values: Floats
    """Their values, shape (groups, columns)."""
    first: Ints
    """First total of each group."""
    spans: Ints
    """First place of each group and the place behind its last, shape (groups, 2)."""
    columns: Ints
    """Columns that places set."""
    values: Floats
    """Their values, shape (places, columns)."""
    order: Ints
    """Number of each place among the points of its group."""
    cuts: Ints
    """Places at which a batch ends, ascending."""
    search_of: Ints
    """Number of the search of each group."""


def points_in_groups(columns: Ints, values: Floats, groups: Ints) -> PointGroups:
    """Return points, shape (points, columns), in groups: `groups[g]` to `groups[g + 1]` share a search."""
    spans = np.stack([groups[:-1], groups[1:]], axis=1)
    count, none = len(spans), np.empty(0, np.int64)
    first, order = np.zeros(count, np.int64), np.arange(len(values))
    return PointGroups(
        none, np.empty((count, 0)), first, spans, columns, values, order, none, np.arange(count)
    )


POINTS = 1024
"""Most points of a batch; they have at most `BLOCK` columns."""
_DRAM_BANDWIDTH = column_in(SHARED_DTYPE, "dram_bytes_per_s")
_NOTHING, _BANDWIDTH, _MORE = range(3)
_HOST = int(Unit.HOST)


class Design(NamedTuple):
    """Design points of a machine: all numbers of the first one, counts of devices, and the groups."""

    base: Floats
    arrays: int
    hosts: int
    points: PointGroups


def array_devices(design: Design) -> Any:
    """Return the records of the array devices of a design's first point."""
    return design.base[SHARED_SIZE : SHARED_SIZE + design.arrays * ARRAY_SIZE].view(ARCH_DTYPE)


class Batch(NamedTuple):
    """Consecutive points of a group. Each has a column of times, and a state of the machine.

    `shared`, `arrays` and `hosts` are the numbers of the latest point, shape (1, numbers), `archs` the same
    as records. `counts` has the numbers of columns and points.
    """

    operators: Any
    """Operators under any one plan, array of OP_DTYPE."""
    has_hosts: bool
    """Whether any of them runs on a host."""
    shared: Floats
    arrays: Floats
    hosts: Floats
    archs: Archs
    rates: Floats
    """Rates of each column, shape (array devices, RATES, BLOCK)."""
    independent: PlanIndependent
    """Costs of each column under every plan."""
    states: States
    counts: Ints
    column_of: Ints
    """Column of each point."""
    state_of: Ints
    """State at each point."""
    column_state: Ints
    """State at the first point of each column; at all of its points where energies choose mappings."""


@compiled_making_arrays
def new_states(arrays: int, states: int) -> States:
    """Return empty storage for states of a machine."""
    each, unit_j = np.empty((4, states)), np.empty((arrays, states, UNIT_ENERGIES))
    return States(area_mm2=each[0], peak_ops_per_s=each[1], idle_w=each[2], limit_w=each[3], unit_j=unit_j)


@compiled_making_arrays
def new_batch(design: Design, table: PlanTable, points: int) -> Batch:
    """Return an empty batch for at most so many points."""
    arrays, hosts, first = design.arrays, design.hosts, SHARED_SIZE + design.arrays * ARRAY_SIZE
    operators, has_hosts = np.empty(table.fused_chains.shape[1], table.rows.dtype), False
    for o in range(operators.shape[0]):
        operators[o] = table.rows[table.changes[o, 1]]
        has_hosts = has_hosts or operators[o].unit == _HOST
    points = min(points, POINTS)
    shared = np.empty((1, SHARED_SIZE))
    of_arrays, of_hosts = np.empty((1, arrays * ARRAY_SIZE)), np.empty((1, hosts * HOST_SIZE))
    shared[0, :] = design.base[:SHARED_SIZE]
    of_arrays[0, :] = design.base[SHARED_SIZE:first]
    of_hosts[0, :] = design.base[first:]
    return Batch(
        operators=operators,
        has_hosts=has_hosts,
        shared=shared,
        arrays=of_arrays,
        hosts=of_hosts,
        archs=Archs(shared.view(SHARED_DTYPE), of_arrays.view(ARCH_DTYPE), of_hosts.view(HOST_DTYPE)),
        rates=np.zeros((arrays, RATES, BLOCK)),
        independent=plan_independent(arrays, hosts, operators.shape[0], min(BLOCK, points)),
        states=new_states(arrays, points),
        counts=np.zeros(2, np.int64),
        column_of=np.empty(points, np.int64),
        state_of=np.empty(points, np.int64),
        column_state=np.zeros(BLOCK, np.int64),
    )


@compiled
def fill_batch(batch: Batch, design: Design, start: int, stop: int) -> int:
    """Fill a batch with points from `start` on, at most to `stop`; return the first point not included."""
    archs, states, counts = batch.archs, batch.states, batch.counts
    rates, table, cuts = batch.rates, batch.independent.table, design.points.cuts
    bandwidth = batch.independent.dram_bytes_per_s
    point, columns, state, has_columns_by_state = start, 0, -1, weighs_energy(archs)
    stop, cut = min(stop, start + batch.column_of.shape[0]), np.searchsorted(cuts, start, side="right")
    if cut < cuts.shape[0]:
        stop = min(stop, cuts[cut])
    while point < stop and columns < table.shape[1]:
        changed = max(_write_point(batch, design, point), _MORE if point == start else _NOTHING)
        several = archs.shared[0, 0].requests > 1.0
        is_new = columns == 0 or (several and changed != _NOTHING)
        is_new = is_new or (has_columns_by_state and changed != _NOTHING)
        if changed == _MORE:
            derive(archs, batch.has_hosts)
            state += 1
            _fill_state(archs, states, state)
            fill_independent(archs, batch.operators, batch.independent, columns)
            for row in range(table.shape[0]):
                is_new = is_new or table[row, columns] != table[row, columns - 1]
        elif changed == _BANDWIDTH:
            derive_interface(archs.shared[0, 0])
            state += 1
            _copy_state(archs, states, state)
        if changed != _NOTHING:
            for d in range(design.arrays):
                archs.arrays[0, d].dram_bytes_per_s = archs.shared[0, 0].dram_bytes_per_s
                fill_rates(archs.arrays[0, d], rates, d, columns)
                row = 1  # the rate of reads varies most
                while not is_new and row < MACHINE_RATES:
                    is_new = rates[d, row, columns] != rates[d, row, columns - 1]
                    row += 1
                is_new = is_new or rates[d, 0, columns] != rates[d, 0, columns - 1]
        if is_new:
            batch.column_state[columns] = state
            if changed == _BANDWIDTH:
                for row in range(table.shape[0]):
                    table[row, columns] = table[row, columns - 1]
                if several:
                    bandwidth[columns] = archs.shared[0, 0].dram_bytes_per_s
            columns += 1
        batch.column_of[point - start], batch.state_of[point - start] = columns - 1, state
        point += 1
    counts[0], counts[1] = columns, point - start
    return point


@compiled
def _write_point(batch: Batch, design: Design, point: int) -> int:
    """Write the numbers of a point over those of the point before; return what changed."""
    shared, arrays, hosts = batch.shared, batch.arrays, batch.hosts
    changed, first_host = _NOTHING, SHARED_SIZE + arrays.shape[1]
    for c in range(design.points.columns.shape[0]):
        column, value = design.points.columns[c], design.points.values[point, c]
        if column < SHARED_SIZE:
            if shared[0, column] != value:
                shared[0, column] = value
                changed = max(changed, _BANDWIDTH if column == _DRAM_BANDWIDTH else _MORE)
        elif column < first_host:
            if arrays[0, column - SHARED_SIZE] != value:
                arrays[0, column - SHARED_SIZE], changed = value, _MORE
        elif hosts[0, column - first_host] != value:
            hosts[0, column - first_host], changed = value, _MORE
    return changed


@compiled
def _copy_state(archs: Archs, states: States, state: int) -> None:
    """Write a state that differs from the one before it in the bandwidth of DRAM alone."""
    shared, limit_w = archs.shared[0, 0], states.limit_w[state - 1]
    states.area_mm2[state], states.peak_ops_per_s[state] = shared.area_mm2, states.peak_ops_per_s[state - 1]
    states.idle_w[state], states.limit_w[state] = shared.idle_w, limit_w
    for d in range(states.unit_j.shape[0]):
        for e in range(UNIT_ENERGIES):
            states.unit_j[d, state, e] = states.unit_j[d, state - 1, e]


@compiled
def _fill_state(archs: Archs, states: States, state: int) -> None:
    """Write area, peak rate, powers and unit energies of one state of the machine."""
    shared = archs.shared[0, 0]
    states.area_mm2[state], states.peak_ops_per_s[state] = shared.area_mm2, shared.peak_ops_per_s
    states.idle_w[state], states.limit_w[state] = shared.idle_w, shared.limit_w
    for d in range(archs.arrays.shape[1]):
        fill_unit_energies(archs.arrays[0, d], states.unit_j, d, state)


class Costing(NamedTuple):
    """Costs of rows, and their sums over a plan: of the columns of a batch, or lower bounds in one column."""

    terms: Terms
    tree: SumTree
    plan: Ints
    """Family of the latest plan, operators that do not fit under it, and operators with stale sums."""
    row_of: Ints
    """Row of each operator under the latest plan."""
    pending: Ints
    """Operators with stale sums."""
    is_pending: Bools


@compiled_making_arrays
def new_costing(table: PlanTable, arrays: int, columns: int) -> Costing:
    """Return empty storage for costs of rows in so many columns."""
    operators = table.fused_chains.shape[1]
    return Costing(
        terms=new_terms(table.rows.shape[0], columns),
        tree=sum_tree(table.leaf_op.shape[1], arrays, columns),
        plan=np.zeros(3, np.int64),
        row_of=np.empty(operators, np.int64),
        pending=np.empty(operators, np.int64),
        is_pending=np.zeros(operators, np.bool_),
    )


class Bounds(NamedTuple):
    """Lower bounds of all costs in a batch (`npusim.cost.batch.incumbents`)."""

    costing: Costing
    needs: Floats
    """Least needs of each row, shape (rows, BODY)."""
    demands: Floats
    """Demands on each array device under a plan, shape (array devices, 1, COUNT)."""
    independent: PlanIndependent
    """Costs under every plan, in one column; the most contexts."""
    states: States
    """The least of each, in one state."""


class Work(NamedTuple):
    """Tables and scratch to evaluate the batches of a group."""

    table: PlanTable
    search: GroupSearch
    batch: Batch
    rates_before: Floats
    """Rates of the previous batch, shape (array devices, RATES, BLOCK)."""
    rate_bounds: Floats
    """Least and greatest rates of the columns, shape (array devices, RATES, 2)."""
    choices: Choices
    demand: Floats
    """Demands of one mapping, shape (1, COUNT)."""
    costing: Costing
    times: DeviceTimes
    interval_bounds: Floats
    prefetch: Prefetch
    no_transfers: Any
    """Empty array of TRANSFER_DTYPE."""
    best: BestPlans
    totals: Any
    """Totals of each column without area, energy and throttling, array of TOTAL_DTYPE."""
    no_total: Any
    """A zero, shape (1,)."""
    demands: Floats
    """Demands on each array device under the best plans, shape (array devices, columns, COUNT)."""
    dram_bytes: Floats
    """Bytes that these move to and from DRAM, shape (array devices, columns)."""
    sram_bytes: Floats
    """Bytes that they read and write in SRAM, likewise."""
    bounds: Bounds


@compiled_making_arrays
def new_work(design: Design, table: PlanTable, search: GroupSearch, batch: Batch) -> Work:
    """Return empty storage to evaluate batches."""
    columns, arrays, most = batch.independent.requests.shape[0], design.arrays, 1
    operators, devices = table.fused_chains.shape[1], design.arrays + design.hosts
    for r in range(table.rows.shape[0]):
        most = max(most, search.row_starts[r + 1] - search.row_starts[r])
    bounds = Bounds(
        costing=new_costing(table, arrays, 1),
        needs=np.empty((table.rows.shape[0], BODY)),
        demands=np.empty((arrays, 1, COUNT)),
        independent=plan_independent(arrays, design.hosts, operators, 1),
        states=new_states(arrays, 1),
    )
    return Work(
        table=table,
        search=search,
        batch=batch,
        rates_before=np.empty((arrays, RATES, BLOCK)),
        rate_bounds=np.empty((arrays, RATES, 2)),
        choices=new_choices(most),
        demand=np.empty((1, COUNT)),
        costing=new_costing(table, arrays, columns),
        times=DeviceTimes(np.zeros(devices), np.zeros(devices), np.ones(devices)),
        interval_bounds=np.empty(2 * devices + 2),
        prefetch=new_prefetch(arrays, operators, columns),
        no_transfers=np.empty(0, TRANSFER_DTYPE),
        best=new_best_plans(arrays, columns),
        totals=np.zeros(columns, TOTAL_DTYPE),
        no_total=np.zeros(1, TOTAL_DTYPE),
        demands=np.empty((arrays, columns, COUNT)),
        dram_bytes=np.empty((arrays, columns)),
        sram_bytes=np.empty((arrays, columns)),
        bounds=bounds,
    )
