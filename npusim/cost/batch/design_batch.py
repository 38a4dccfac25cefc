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
from npusim.compiling.records import Floats, Ints
from npusim.cost.lowering.plans import PlanTable
from npusim.cost.lowering.tables import HOST, TOTAL_DTYPE
from npusim.cost.machine import architecture
from npusim.cost.machine.architecture import ARCH_DTYPE, SHARED_DTYPE, Archs
from npusim.cost.machine.design_point import ARRAY_SIZE, SHARED_SIZE, column_in
from npusim.cost.machine.hosts import HOST_DTYPE
from npusim.cost.network import terms
from npusim.cost.network.plan_costs import BestPlans, new_best_plans
from npusim.cost.network.prefetch import Prefetch, new_prefetch
from npusim.cost.network.terms import Costing, PlanIndependent, new_costing, plan_independent
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
    arrays: int = 0
    """Array devices of the machine (`npusim.cost.batch.evaluation.evaluate_points`)."""
    hosts: int = 0
    """Its hosts."""


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


class States(NamedTuple):
    """States of a machine: what differs between points and takes no time; shape (states,)."""

    area_mm2: Floats
    peak_ops_per_s: Floats
    idle_w: Floats
    limit_w: Floats
    unit_j: Floats
    """Unit energies, shape (array devices, states, UNIT_ENERGIES)."""


class Batch(NamedTuple):
    """Consecutive points of a group. Each has a column of times, and a state of the machine.

    `numbers` are those of the latest point, `archs` the same as records. `counts` has the numbers of columns
    and points.
    """

    operators: Any
    """Operators under any one plan, array of OP_DTYPE."""
    has_hosts: bool
    """Whether any of them runs on a host."""
    numbers: Floats
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
def new_batch(base: Floats, groups: PointGroups, table: PlanTable, points: int) -> Batch:
    """Return an empty batch for at most `points` points, whose numbers start as `base`.

    Numbers of the machine come first, then those of each array device, then those of each host. A batch has
    storage for `POINTS` points at most: each may have a state of its own, and they share `BLOCK` columns of
    rates and times.
    """
    arrays, hosts, operator_count = groups.arrays, groups.hosts, table.fused_chains.shape[1]
    operators, has_hosts = np.empty(operator_count, table.rows.dtype), False
    for o in range(operator_count):  # the first plan changes every operator, in order
        operators[o] = table.rows[table.changes[o, 1]]
        has_hosts = has_hosts or operators[o].unit == HOST
    points, numbers = min(points, POINTS), base.copy()
    hosts_start = SHARED_SIZE + arrays * ARRAY_SIZE
    shared, of_arrays = numbers[:SHARED_SIZE], numbers[SHARED_SIZE:hosts_start]
    of_hosts = numbers[hosts_start:]
    return Batch(
        operators=operators,
        has_hosts=has_hosts,
        numbers=numbers,
        archs=Archs(shared.view(SHARED_DTYPE), of_arrays.view(ARCH_DTYPE), of_hosts.view(HOST_DTYPE)),
        rates=np.zeros((arrays, RATES, BLOCK)),
        independent=plan_independent(arrays, hosts, operator_count, min(BLOCK, points)),
        states=new_states(arrays, points),
        counts=np.zeros(2, np.int64),
        column_of=np.empty(points, np.int64),
        state_of=np.empty(points, np.int64),
        column_state=np.zeros(BLOCK, np.int64),
    )


@compiled
def fill_batch(batch: Batch, groups: PointGroups, start: int, stop: int) -> int:
    """Fill a batch with points from `start` on, at most to `stop`; return the first point not included."""
    archs, states, counts = batch.archs, batch.states, batch.counts
    rates, table, cuts = batch.rates, batch.independent.table, groups.cuts
    bandwidth = batch.independent.dram_bytes_per_s
    point, columns, state, has_columns_by_state = start, 0, -1, architecture.weighs_energy(archs)
    stop, cut = min(stop, start + batch.column_of.shape[0]), np.searchsorted(cuts, start, side="right")
    if cut < cuts.shape[0]:
        stop = min(stop, cuts[cut])
    while point < stop and columns < table.shape[1]:
        changed = max(_write_point(batch, groups, point), _MORE if point == start else _NOTHING)
        several = archs.shared[0].requests > 1.0
        is_new = columns == 0 or (several and changed != _NOTHING)
        is_new = is_new or (has_columns_by_state and changed != _NOTHING)
        if changed == _MORE:
            architecture.derive(archs, batch.has_hosts)
            terms.fill_independent(archs, batch.operators, batch.independent, columns)
            for row in range(table.shape[0]):
                is_new = is_new or table[row, columns] != table[row, columns - 1]
        elif changed == _BANDWIDTH:
            architecture.derive_interface(archs.shared[0])
        if changed != _NOTHING:
            state += 1
            _fill_state(archs, states, state)
            for d in range(groups.arrays):
                archs.arrays[d].dram_bytes_per_s = archs.shared[0].dram_bytes_per_s
                fill_rates(archs.arrays[d], rates, d, columns)
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
                    bandwidth[columns] = archs.shared[0].dram_bytes_per_s
            columns += 1
        batch.column_of[point - start], batch.state_of[point - start] = columns - 1, state
        point += 1
    counts[0], counts[1] = columns, point - start
    return point


@compiled
def _write_point(batch: Batch, groups: PointGroups, point: int) -> int:
    """Write the numbers of a point over those of the point before; return what changed."""
    numbers, changed = batch.numbers, _NOTHING
    for c in range(groups.columns.shape[0]):
        column, value = groups.columns[c], groups.values[point, c]
        if numbers[column] != value:
            numbers[column] = value
            changed = max(changed, _BANDWIDTH if column == _DRAM_BANDWIDTH else _MORE)
    return changed


@compiled
def _fill_state(archs: Archs, states: States, state: int) -> None:
    """Write area, peak rate, powers and unit energies of one state of the machine."""
    shared = archs.shared[0]
    states.area_mm2[state], states.peak_ops_per_s[state] = shared.area_mm2, shared.peak_ops_per_s
    states.idle_w[state], states.limit_w[state] = shared.idle_w, shared.limit_w
    for d in range(archs.arrays.shape[0]):
        fill_unit_energies(archs.arrays[d], states.unit_j, d, state)


class Bounds(NamedTuple):
    """Lower bounds of all costs in a batch (`npusim.cost.batch.incumbents`)."""

    costing: Costing
    """In one column; its costs under every plan have the most contexts."""
    rates: Floats
    """Least and greatest rates of the columns, shape (array devices, RATES, 2)."""
    needs: Floats
    """Least needs of each row, shape (rows, BODY)."""
    demands: Floats
    """Demands on each array device under a plan, shape (array devices, 1, COUNT)."""
    states: States
    """The least of each, in one state."""


class Work(NamedTuple):
    """Tables and scratch to evaluate the batches of a group."""

    batch: Batch
    costing: Costing
    bounds: Bounds
    choices: Choices
    demand: Floats
    """Demands of one mapping, shape (1, COUNT)."""
    prefetch: Prefetch
    best: BestPlans
    totals: Any
    """Totals of each column without area, energy and throttling, array of TOTAL_DTYPE."""
    demands: Floats
    """Demands on each array device under the best plans, shape (array devices, columns, COUNT)."""
    dram_bytes: Floats
    """Bytes that these move to and from DRAM, shape (array devices, columns)."""
    sram_bytes: Floats
    """Bytes that they read and write in SRAM, likewise."""


@compiled_making_arrays
def new_work(batch: Batch, groups: PointGroups, table: PlanTable, search: GroupSearch) -> Work:
    """Return empty storage to evaluate batches."""
    columns, arrays, hosts, most = batch.independent.requests.shape[0], groups.arrays, groups.hosts, 1
    operators = table.fused_chains.shape[1]
    for r in range(table.rows.shape[0]):
        most = max(most, search.row_starts[r + 1] - search.row_starts[r])
    least = plan_independent(arrays, hosts, operators, 1)
    bounds = Bounds(
        costing=new_costing(table, search, least, arrays, 1),
        rates=np.empty((arrays, RATES, 2)),
        needs=np.empty((table.rows.shape[0], BODY)),
        demands=np.empty((arrays, 1, COUNT)),
        states=new_states(arrays, 1),
    )
    return Work(
        batch=batch,
        costing=new_costing(table, search, batch.independent, arrays, columns),
        bounds=bounds,
        choices=new_choices(most),
        demand=np.empty((1, COUNT)),
        prefetch=new_prefetch(arrays, operators, columns),
        best=new_best_plans(arrays, hosts, columns),
        totals=np.zeros(columns, TOTAL_DTYPE),
        demands=np.empty((arrays, columns, COUNT)),
        dram_bytes=np.empty((arrays, columns)),
        sram_bytes=np.empty((arrays, columns)),
    )
