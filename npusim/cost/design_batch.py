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

from npusim.cost.architecture import ARCH_DTYPE, SHARED_DTYPE, Archs, derive, derive_interface
from npusim.cost.design_point import ARRAY_SIZE, HOST_SIZE, SHARED_SIZE, column_in
from npusim.cost.hosts import HOST_DTYPE
from npusim.cost.kernels import compiled, compiled_making_arrays
from npusim.cost.objective import weighs_energy
from npusim.cost.plan_costs import (
    SUMS,
    BestPlans,
    DeviceTimes,
    PlanIndependent,
    SumTree,
    fill_independent,
    plan_independent,
    sum_tree,
)
from npusim.cost.plans import PlanTable
from npusim.cost.prefetch import TRANSFER_DTYPE, Prefetch, new_prefetch
from npusim.cost.rates import BLOCK, CHOICES, MACHINE_RATES, RATES, fill_rates
from npusim.cost.records import Bools, Floats, Ints
from npusim.cost.resources import BODY, COUNT, UNIT_ENERGIES, fill_unit_energies
from npusim.cost.search import GroupSearch
from npusim.cost.tables import TOTAL_DTYPE
from npusim.cost.terms import TERMS


class PointGroups(NamedTuple):
    """Design points in groups; points of a group agree in all numbers that the search reads, except SRAM.

    Columns are places of primitives among the numbers of a point (`npusim.cost.design_point.ArchRow`).
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
ROW_BOUNDS = 9 + BODY
"""Lower bounds of an operator (`npusim.cost.incumbents`)."""


class Design(NamedTuple):
    """A group of points: numbers of its first point, counts of devices, and places as in `PointGroups`."""

    base: Floats
    arrays: int
    hosts: int
    columns: Ints
    values: Floats
    order: Ints
    cuts: Ints


def array_devices(design: Design) -> Any:
    """Return the records of the array devices of a design's first point."""
    return design.base[SHARED_SIZE : SHARED_SIZE + design.arrays * ARRAY_SIZE].view(ARCH_DTYPE)


class Batch(NamedTuple):
    """Consecutive points of a group.

    `shared`, `arrays` and `hosts` are the numbers of the latest point, shape (1, numbers), `archs` the same
    as records. `column_of` has the column of each point, `counts` the numbers of columns and points.
    """

    shared: Floats
    arrays: Floats
    hosts: Floats
    archs: Archs
    rates: Floats
    """Rates of each column, shape (array devices, RATES, BLOCK)."""
    independent: PlanIndependent
    """Costs of each column under every plan."""
    unit_j: Floats
    """Unit energies in each state, shape (array devices, points, UNIT_ENERGIES)."""
    machine: Floats
    """Area (mm2), peak rate (1/s), idle power and limit of power (W) of each state, shape (points, 4)."""
    column_of: Ints
    state_of: Ints
    """State of the machine at each point."""
    counts: Ints
    column_state: Ints
    """State at the first point of each column; at all of its points where energies choose mappings."""


class Work(NamedTuple):
    """Tables and scratch to evaluate the batches of a group, `columns` at a time.

    `row_of` has the row of each operator under the current plan, `pending` the operators with stale sums.
    """

    table: PlanTable
    search: GroupSearch
    rate_bounds: Floats
    """Least and greatest rates of the columns, shape (array devices, RATES, 2)."""
    rates_before: Floats
    """Rates of the previous batch, shape (array devices, RATES, BLOCK)."""
    terms: Floats
    """Costs of each row, shape (rows, TERMS, columns), where it `has_terms`."""
    has_terms: Bools
    choices: Floats
    latencies: Floats
    """Of all candidates of a row at each column."""
    tree: SumTree
    row_of: Ints
    pending: Ints
    is_pending: Bools
    times: DeviceTimes
    interval_bounds: Floats
    best: BestPlans
    demands: Floats
    """Demands on each array device under the best plans, shape (array devices, columns, COUNT)."""
    demand: Floats
    """Demands of one mapping, shape (1, COUNT)."""
    moved: Floats
    """Bytes through DRAM and through SRAM of these, shape (array devices, columns, 2)."""
    row_bounds: Floats
    """Lower bounds of each row over a batch, shape (rows, ROW_BOUNDS), where it `is_bounded`."""
    is_bounded: Bools
    least: PlanIndependent
    """Lower bounds of costs under every plan, in one column; the most contexts."""
    least_unit_j: Floats
    """Lower bounds of unit energies, shape (array devices, 1, UNIT_ENERGIES)."""
    least_s: Floats
    """Lower bounds of the time of each array device under a plan."""
    prefetch: Prefetch
    no_transfers: Any
    """Empty array of TRANSFER_DTYPE."""


@compiled_making_arrays
def new_work(design: Design, table: PlanTable, search: GroupSearch, width: int) -> Work:
    """Return empty storage for batches of `width` columns."""
    rows, operators = table.rows.shape[0], table.fused_chains.shape[1]
    arrays, devices, most = design.arrays, design.arrays + design.hosts, 1
    for r in range(rows):
        most = max(most, search.row_starts[r + 1] - search.row_starts[r])
    best = BestPlans(np.zeros(width, TOTAL_DTYPE), np.empty(width, np.int64), np.empty((arrays, SUMS, width)))
    return Work(
        table,
        search,
        np.empty((arrays, RATES, 2)),
        np.empty((arrays, RATES, BLOCK)),
        np.empty((rows, TERMS, width)),
        np.empty(rows, np.bool_),
        np.empty((CHOICES, BLOCK)),
        np.empty(most * BLOCK),
        sum_tree(table.leaf_op.shape[1], arrays, width),
        np.empty(operators, np.int64),
        np.empty(operators, np.int64),
        np.empty(operators, np.bool_),
        DeviceTimes(np.zeros(devices), np.zeros(devices), np.ones(devices)),
        np.empty(2 * devices + 2),
        best,
        np.empty((arrays, width, COUNT)),
        np.empty((1, COUNT)),
        np.empty((arrays, width, 2)),
        np.empty((rows, ROW_BOUNDS)),
        np.zeros(rows, np.bool_),
        plan_independent(arrays, design.hosts, operators, 1),
        np.empty((arrays, 1, UNIT_ENERGIES)),
        np.empty(arrays),
        new_prefetch(arrays, operators, width),
        np.empty(0, TRANSFER_DTYPE),
    )


@compiled_making_arrays
def new_batch(design: Design, operators: int, points: int) -> Batch:
    """Return an empty batch for at most `points` points."""
    arrays, hosts, first = design.arrays, design.hosts, SHARED_SIZE + design.arrays * ARRAY_SIZE
    shared = np.empty((1, SHARED_SIZE))
    of_arrays, of_hosts = np.empty((1, arrays * ARRAY_SIZE)), np.empty((1, hosts * HOST_SIZE))
    shared[0, :] = design.base[:SHARED_SIZE]
    of_arrays[0, :] = design.base[SHARED_SIZE:first]
    of_hosts[0, :] = design.base[first:]
    return Batch(
        shared,
        of_arrays,
        of_hosts,
        Archs(shared.view(SHARED_DTYPE), of_arrays.view(ARCH_DTYPE), of_hosts.view(HOST_DTYPE)),
        np.zeros((arrays, RATES, BLOCK)),
        plan_independent(arrays, hosts, operators, min(BLOCK, points)),
        np.empty((arrays, points, UNIT_ENERGIES)),
        np.empty((points, 4)),
        np.empty(points, np.int64),
        np.empty(points, np.int64),
        np.zeros(2, np.int64),
        np.zeros(BLOCK, np.int64),
    )


@compiled
def fill_batch(batch: Batch, design: Design, start: int, stop: int, ops: Any, has_hosts: bool) -> int:
    """Fill a batch with points from `start` on, at most to `stop`; return the first point not included.

    `ops` are the operators under any one plan. `has_hosts` tells whether any operator runs on a host.
    """
    # Few calls: numba counts references to each array in a call.
    shared, arrays, hosts, archs = batch.shared, batch.arrays, batch.hosts, batch.archs
    rates, table, values = batch.rates, batch.independent.table, design.values
    column_of, state_of, bandwidth = batch.column_of, batch.state_of, batch.independent.dram_bytes_per_s
    devices, first_host = design.arrays, SHARED_SIZE + arrays.shape[1]
    point, columns, state, has_columns_by_state = start, 0, -1, weighs_energy(archs)
    stop, cut = min(stop, start + column_of.shape[0]), np.searchsorted(design.cuts, start, side="right")
    if cut < design.cuts.shape[0]:
        stop = min(stop, design.cuts[cut])
    while point < stop and columns < table.shape[1]:
        changed = _MORE if point == start else _NOTHING
        for c in range(design.columns.shape[0]):
            column, value = design.columns[c], values[point, c]
            if column < SHARED_SIZE:
                if shared[0, column] != value:
                    shared[0, column] = value
                    changed = max(changed, _BANDWIDTH if column == _DRAM_BANDWIDTH else _MORE)
            elif column < first_host:
                if arrays[0, column - SHARED_SIZE] != value:
                    arrays[0, column - SHARED_SIZE], changed = value, _MORE
            elif hosts[0, column - first_host] != value:
                hosts[0, column - first_host], changed = value, _MORE
        several = archs.shared[0, 0].requests > 1.0
        is_new = columns == 0 or (several and changed != _NOTHING)
        is_new = is_new or (has_columns_by_state and changed != _NOTHING)
        if changed == _MORE:
            derive(archs, has_hosts)
            state += 1
            _fill_state(archs, batch.machine, batch.unit_j, state)
            fill_independent(archs, ops, table, columns)
            for row in range(table.shape[0]):
                is_new = is_new or table[row, columns] != table[row, columns - 1]
        elif changed == _BANDWIDTH:
            derive_interface(archs.shared[0, 0])
            state += 1
            _copy_state(archs, batch.machine, batch.unit_j, state)
        if changed != _NOTHING:
            for d in range(devices):
                archs.arrays[0, d].dram_bytes_per_s = shared[0, _DRAM_BANDWIDTH]
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
                    bandwidth[columns] = shared[0, _DRAM_BANDWIDTH]
            columns += 1
        column_of[point - start], state_of[point - start] = columns - 1, state
        point += 1
    batch.counts[0], batch.counts[1] = columns, point - start
    return point


@compiled
def _copy_state(archs: Archs, machine: Any, unit_j: Any, state: int) -> None:
    """Write a state that differs from the one before it in the bandwidth of DRAM alone."""
    shared = archs.shared[0, 0]
    machine[state, 0], machine[state, 1] = shared.area_mm2, machine[state - 1, 1]
    machine[state, 2], machine[state, 3] = shared.idle_w, machine[state - 1, 3]
    for d in range(unit_j.shape[0]):
        for e in range(UNIT_ENERGIES):
            unit_j[d, state, e] = unit_j[d, state - 1, e]


@compiled
def _fill_state(archs: Archs, machine: Any, unit_j: Any, state: int) -> None:
    """Write area, peak rate, powers and unit energies of one state of the machine."""
    shared = archs.shared[0, 0]
    machine[state, 0], machine[state, 1] = shared.area_mm2, shared.peak_ops_per_s
    machine[state, 2], machine[state, 3] = shared.idle_w, shared.limit_w
    for d in range(archs.arrays.shape[1]):
        fill_unit_energies(archs.arrays[0, d], unit_j, d, state)
