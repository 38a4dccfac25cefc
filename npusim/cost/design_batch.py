"""Design points in batches: the rates of those that differ in time, the energies of units of all.

Points of a group follow each other with few of their numbers changed. One record of each device holds the
latest point; what follows from it is made again only where a number that it reads has changed, and DRAM's
bandwidth, the number that most sweeps vary most, is read by rates alone. Points at which every rate is the
same, as where the DMA engines are narrower than DRAM, share a *column*: what takes time is costed once for
all of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.architecture import ARCH_DTYPE, SHARED_DTYPE, Archs, derive, derive_arrays
from npusim.cost.design_point import ARRAY_SIZE, HOST_SIZE, SHARED_SIZE, column_in
from npusim.cost.energy import UNIT_ENERGIES, fill_unit_energies
from npusim.cost.hosts import HOST_DTYPE
from npusim.cost.jit import compiled, compiled_making_arrays
from npusim.cost.plan_independent import PlanIndependent, fill_independent, plan_independent
from npusim.cost.rates import BLOCK, MACHINE_RATES, RATES, fill_rates

POINTS = 1024
"""Points of a batch, at most; they have no more than `BLOCK` columns."""
_DRAM_BANDWIDTH = column_in(SHARED_DTYPE, "dram_bytes_per_s")
_NOTHING, _BANDWIDTH, _MORE = range(3)


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
    """What each place sets them to, float64, shape (places, changed)."""
    order: Any
    """Which point each place is, int64, shape (places,)."""
    cuts: Any
    """Places at which a batch ends, ascending, int64."""


class Batch(NamedTuple):
    """Consecutive points of a design."""

    shared: Any
    """Numbers of the latest point: of what devices share, float64, shape (1, numbers) ..."""
    arrays: Any
    """... of the array devices ..."""
    hosts: Any
    """... and of the hosts."""
    archs: Archs
    """The same as records: a table of one point."""
    rates: Any
    """Of each array device, float64, shape (array devices, RATES, BLOCK)."""
    independent: PlanIndependent
    """What columns cost under every plan."""
    unit_j: Any
    """Energies of units of each array device and state, float64, shape (array devices, points,
    UNIT_ENERGIES).
    """
    machine: Any
    """Area (mm2), peak rate (1/s), idle power and limit of power (W) of each state, float64, shape
    (points, 4).
    """
    column_of: Any
    """Column of each point, int64, shape (points,)."""
    state_of: Any
    """State of the machine at each point, DRAM's bandwidth left out, int64, shape (points,)."""
    counts: Any
    """Columns and points that are filled in, int64, shape (2,)."""


@compiled_making_arrays
def new_batch(design: Design, operators: int, points: int) -> Batch:
    """Return room for so many points of a design, none of which is filled in."""
    arrays, hosts, first = design.arrays, design.hosts, SHARED_SIZE + design.arrays * ARRAY_SIZE
    shared = np.empty((1, SHARED_SIZE))
    of_arrays, of_hosts = np.empty((1, arrays * ARRAY_SIZE)), np.empty((1, hosts * HOST_SIZE))
    shared[0, :] = design.base[:SHARED_SIZE]
    of_arrays[0, :] = design.base[SHARED_SIZE:first]
    of_hosts[0, :] = design.base[first:]
    return Batch(
        shared, of_arrays, of_hosts,
        Archs(shared.view(SHARED_DTYPE), of_arrays.view(ARCH_DTYPE), of_hosts.view(HOST_DTYPE)),
        np.zeros((arrays, RATES, BLOCK)), plan_independent(arrays, hosts, operators, min(BLOCK, points)),
        np.empty((arrays, points, UNIT_ENERGIES)), np.empty((points, 4)),
        np.empty(points, np.int64), np.empty(points, np.int64), np.zeros(2, np.int64),
    )  # fmt: skip


@compiled
def _first_beyond(cuts: Any, point: int) -> int:
    """Return the place of the first cut after a point, of cuts that rise."""
    low, high = 0, cuts.shape[0]
    while low < high:
        middle = (low + high) // 2
        if cuts[middle] > point:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def fill_batch(batch: Batch, design: Design, start: int, stop: int, ops: Any, has_hosts: bool) -> int:
    """Fill a batch with points from `start` on, `stop` at most; return the point after the last.

    Parameters
    ----------
    ops : array of OP_DTYPE, shape (operators,)
        Under any plan.
    has_hosts : bool
        Whether any of them runs on a host.
    """
    # Few calls: each counts references to every array that it is given.
    shared, arrays, hosts, archs = batch.shared, batch.arrays, batch.hosts, batch.archs
    rates, table, values = batch.rates, batch.independent.table, design.values
    column_of, state_of, bandwidth = batch.column_of, batch.state_of, batch.independent.dram_bytes_per_s
    devices, first_host = design.arrays, SHARED_SIZE + arrays.shape[1]
    one: Any = np.int64(1)  # of a literal all would be compiled again
    point, columns, state = start, 0, -1
    stop, cut = min(stop, start + column_of.shape[0]), _first_beyond(design.cuts, start)
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
        if changed == _MORE:
            if has_hosts:
                derive(archs, one)
            else:
                derive_arrays(archs, one)
            state += 1
            _fill_state(archs, batch.machine, batch.unit_j, state)
            fill_independent(archs, ops, table, columns)
            for row in range(table.shape[0]):
                is_new = is_new or table[row, columns] != table[row, columns - 1]
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
def _fill_state(archs: Archs, machine: Any, unit_j: Any, state: int) -> None:
    """Write down what the machine is and what its work costs."""
    shared = archs.shared[0, 0]
    machine[state, 0], machine[state, 1] = shared.area_mm2, shared.peak_ops_per_s
    machine[state, 2], machine[state, 3] = shared.idle_w, shared.limit_w
    for d in range(archs.arrays.shape[1]):
        fill_unit_energies(archs.arrays[0, d], unit_j, d, state)
