"""Pruning of dominated batches by lower bounds, for a sweep that keeps its front alone.

Before a batch is evaluated, each residency plan gets a lower bound of latency and energy over its points. For
every operator it takes the least of each amount over its candidates, at the best rates of the batch. These
are overlapped and added up as in `npusim.cost.plan_costs`, which never falls where an amount grows. Where
points evaluated before (*incumbents*) dominate these bounds of every plan, no point of the batch is on the
front.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from npusim.cost.candidates import CANDIDATE_SIZE, reads_dram, refills
from npusim.cost.design_batch import Batch
from npusim.cost.kernels import compiled, compiled_making_arrays
from npusim.cost.latency import copies_s, lower_bound_s, point_rates
from npusim.cost.plan_costs import FUSED_SUMS, PlanIndependent, fused_chain_s, plan_independent
from npusim.cost.plans import NO_LEAF, PlanTable
from npusim.cost.rates import LOWER, READ_WAIT, WRITE_WAIT
from npusim.cost.records import Bools, Floats, Ints
from npusim.cost.resources import (
    BODY,
    COUNT,
    LANE_CYCLES,
    LEVEL_READ_BYTES,
    MOVED,
    PARTS,
    STATIC_W,
    UNIT_ENERGIES,
    fill_energies,
    fill_moved,
)
from npusim.cost.search import GroupSearch, fits
from npusim.cost.tables import TOTAL_DTYPE, OpRecord

_COLUMNS = list(TOTAL_DTYPE.names or ())
_TOTALS = len(_COLUMNS)
_LATENCY, _ENERGY, _AREA = (_COLUMNS.index(name) for name in ("latency_s", "energy_j", "area_mm2"))
OBJECTIVES = ("latency_s", "energy_j", "area_mm2")
"""Metrics with a lower bound; area is exact."""
_MARGIN = 1e-9
"""Share by which bounds are lowered; it exceeds all rounding."""
_MOST = 256
"""Most incumbents of a thread."""
_MOST_BOUNDED = 2048
"""Operators times plans up to which bounds take less time than evaluating a batch."""

_BEST_S, _WAIT_S, _GRID_S, _DSP_S, _DMA_S, _EXPOSED_S, _REFILLS_S, _WALKS_S, _APART_S = range(9)
"""Columns of the bounds of a row (s). From `_GRID_S` on a row-wise fusion adds them up, in the order of its
sums."""
_RESOURCES = 9
"""First of the columns of resources (`BODY` columns)."""
_ROW_BOUNDS = _RESOURCES + BODY


class Incumbents(NamedTuple):
    """Best points of a front so far, and the bounds that its points keep to."""

    is_objective: Bools
    """Whether each of `OBJECTIVES` is minimised."""
    bounded: Ints
    """Columns of TOTAL_DTYPE with bounds."""
    low: Floats
    """Lower bound of each of these columns."""
    high: Floats
    """Upper bound of each of these columns."""
    objectives: Floats
    """Objectives of each thread's incumbents, -inf where they are not minimised, shape (threads, _MOST, 3).
    Empty where all points are evaluated."""
    counts: Ints
    """Incumbents of each thread."""


def no_incumbents() -> Incumbents:
    """Return incumbents that prune nothing."""
    return _incumbents([], {}, 0, 0)


def incumbents_of(
    minimise: Collection[str], constraints: Mapping[str, tuple[float, float]], threads: int
) -> Incumbents:
    """Return empty storage for the best points of a front.

    It prunes nothing where a metric of the front has no lower bound, where area is the only one, or where a
    constrained metric is not in TOTAL_DTYPE.

    Parameters
    ----------
    constraints : mapping of str to pair of float
        Least and greatest value of metrics.
    """
    has_bounds = set(minimise) <= set(OBJECTIVES) and set(minimise) != {"area_mm2"}
    can_check = set(constraints) <= set(_COLUMNS)
    return _incumbents(minimise, constraints, threads, _MOST) if has_bounds and can_check else no_incumbents()


def _incumbents(
    minimise: Collection[str], constraints: Mapping[str, tuple[float, float]], threads: int, most: int
) -> Incumbents:
    low, high = np.array(list(constraints.values()), np.float64).reshape(-1, 2).T.copy()
    is_objective = np.array([name in minimise for name in OBJECTIVES])
    bounded = np.array([_COLUMNS.index(name) for name in constraints], np.int64)
    objectives, count = np.zeros((threads, most, 3)), np.zeros(threads, np.int64)
    return Incumbents(is_objective, bounded, low, high, objectives, count)


class Bounds(NamedTuple):
    """Lower bounds over the points of a batch; scratch of one thread."""

    rows: Floats
    """Bounds of each row, shape (rows, _ROW_BOUNDS), where it `is_bounded`."""
    is_bounded: Bools
    independent: PlanIndependent
    """Bounds of costs under every plan, in one column; the most contexts."""
    unit_j: Floats
    """Energies of units, shape (array devices, 1, UNIT_ENERGIES)."""
    work_s: Floats
    """Work of each array device under a plan."""
    demands: Floats
    """Demands on each array device, shape (array devices, 1, COUNT)."""
    moved: Floats
    """Bytes that it moves, shape (array devices, 1, MOVED)."""
    energies: Floats
    """Its energies, shape (array devices, 1, PARTS)."""
    fused_sums: Floats
    machine: Floats
    """Area (mm2) and idle power (W)."""
    row: Ints
    """Row 0 of tables of one row."""


@compiled_making_arrays
def new_bounds(rows: int, arrays: int, hosts: int, operators: int) -> Bounds:
    """Return empty storage for bounds."""
    independent = plan_independent(arrays, hosts, operators, 1)
    demands, unit_j = np.empty((arrays, 1, COUNT)), np.empty((arrays, 1, UNIT_ENERGIES))
    moved, energies = np.empty((arrays, 1, MOVED)), np.empty((arrays, 1, PARTS))
    row_bounds, is_bounded = np.empty((rows, _ROW_BOUNDS)), np.zeros(rows, np.bool_)
    work_s, fused_sums, machine = np.empty(arrays), np.empty((FUSED_SUMS, 1)), np.empty(2)
    row = np.zeros(1, np.int64)
    return Bounds(
        row_bounds,
        is_bounded,
        independent,
        unit_j,
        work_s,
        demands,
        moved,
        energies,
        fused_sums,
        machine,
        row,
    )


@compiled
def are_bounded(table: PlanTable, batch: Batch) -> bool:
    """Whether bounds of a batch are worth computing: it has one request in flight and few plans."""
    few = table.family.shape[0] * table.array_of.shape[0] <= _MOST_BOUNDED
    for c in range(batch.counts[0]):
        few = few and batch.independent.requests[c] <= 1.0
    return bool(few)


@compiled
def _fill_batch_bounds(batch: Batch, bounds: Bounds) -> None:
    """Write bounds of costs under every plan, of energies of units, of area and of idle power."""
    table, least, unit_j, columns = batch.independent.table, bounds.independent, batch.unit_j, batch.counts[0]
    states = batch.state_of[batch.counts[1] - 1] + 1
    for row in range(table.shape[0]):
        least.table[row, 0] = np.inf
        for c in range(columns):
            least.table[row, 0] = min(least.table[row, 0], table[row, c])
    for d in range(unit_j.shape[0]):
        for c in range(columns):
            least.contexts[d, 0] = max(least.contexts[d, 0], batch.independent.contexts[d, c])
        for e in range(UNIT_ENERGIES):
            bounds.unit_j[d, 0, e] = np.inf
            for state in range(states):
                bounds.unit_j[d, 0, e] = min(bounds.unit_j[d, 0, e], unit_j[d, state, e])
    bounds.machine[:] = np.inf
    for state in range(states):
        bounds.machine[0] = min(bounds.machine[0], batch.machine[state, 0])
        bounds.machine[1] = min(bounds.machine[1], batch.machine[state, 2])


@compiled
def _fill_row_bounds(
    candidates: Any,
    start: int,
    stop: int,
    is_served: bool,
    rate_bounds: Floats,
    op: OpRecord,
    dsp_s: float,
    least: Floats,
) -> None:
    """Write lower bounds of an operator's amounts over its candidates in a batch.

    Parameters
    ----------
    start, stop : int
        The operator's candidates are `candidates[start:stop]`.
    rate_bounds : array of float64, shape (RATES, 2)
    dsp_s : float
        Least time of the DSPs for one run of the operator.
    least : array of float64, shape (_ROW_BOUNDS,)
        Written: bounds for all runs of the operator, but for DSPs one run, as the sums of fusions have it.
        Infinite where no candidate fits into SRAM.
    """
    numbers, lower = candidates.view(np.float64), point_rates(rate_bounds, LOWER)
    least[:] = np.inf
    for c in range(start, stop):
        candidate = candidates[c]
        if candidate.needed_bytes > lower.tile_sram_bytes:
            continue
        walks_s = candidate.page_walks * lower.rates.page_walk_s
        latency_s = max(lower_bound_s(candidate, lower), dsp_s)
        moved_s = candidate.read_bytes * lower.rates.read_s + candidate.written_bytes * lower.rates.write_s
        dma_s = moved_s + candidate.read_gaps * lower.rates.gap_s
        dma_s += copies_s(candidate.copied_bytes, rate_bounds, LOWER)
        exposed_s = candidate.prologue_bytes * lower.rates.read_s
        exposed_s += candidate.epilogue_bytes * lower.rates.write_s
        waits_s = refills(candidate, lower.tile_sram_bytes) * lower.read_wait_s
        least[_BEST_S] = min(least[_BEST_S], latency_s)
        least[_GRID_S] = min(least[_GRID_S], candidate.grid_cycles * lower.rates.cycle_s)
        least[_DSP_S] = min(least[_DSP_S], dsp_s)
        least[_DMA_S] = min(least[_DMA_S], dma_s)
        least[_EXPOSED_S] = min(least[_EXPOSED_S], exposed_s)
        least[_REFILLS_S] = min(least[_REFILLS_S], waits_s)
        least[_WALKS_S] = min(least[_WALKS_S], walks_s)
        least[_APART_S] = min(least[_APART_S], latency_s - walks_s)
        for r in range(BODY):
            least[_RESOURCES + r] = min(least[_RESOURCES + r], numbers[c * CANDIDATE_SIZE + r])
    for r in range(LEVEL_READ_BYTES, BODY if is_served else 0):
        least[_RESOURCES + r] = 0.0  # at some points DRAM supplies these bytes
    wait_s = rate_bounds[READ_WAIT, LOWER] if reads_dram(op) and not is_served else 0.0
    least[_WAIT_S] = wait_s + (rate_bounds[WRITE_WAIT, LOWER] if op.c_dram_bytes > 0.0 else 0.0)
    if op.repeats != 1.0:
        for k in range(_ROW_BOUNDS):
            if k != _DSP_S:
                least[k] *= op.repeats


@compiled
def _fill_plan_bounds(
    table: PlanTable, family: int, row_of: Ints, demands: Floats, devices: Any, bounds: Bounds
) -> None:
    """Write bounds of the work of each array device under a plan, and of its demands."""
    leaf_op, chain_leaf, array_of = table.leaf_op[family], table.chain_leaf[family], table.array_of
    fused_sums, least = bounds.fused_sums, bounds.rows
    for d in range(bounds.work_s.shape[0]):
        bounds.work_s[d] = 0.0
        for r in range(COUNT):
            bounds.demands[d, 0, r] = demands[d, r]
    for leaf in range(leaf_op.shape[0]):
        o = leaf_op[leaf]
        if o == NO_LEAF:
            continue
        if o >= 0:
            row, d = row_of[o], array_of[o]
            bounds.work_s[d] += least[row, _WAIT_S]
            if chain_leaf[o] < 0:
                bounds.work_s[d] += least[row, _BEST_S]
            for r in range(BODY):
                bounds.demands[d, 0, r] += least[row, _RESOURCES + r]
        else:
            fused_sums[:] = 0.0
            for member in range(leaf + o, leaf):
                for s in range(FUSED_SUMS):
                    fused_sums[s, 0] += least[row_of[leaf_op[member]], _GRID_S + s]
            d = array_of[leaf_op[leaf - 1]]
            bounds.work_s[d] += fused_chain_s(fused_sums, devices[d].stream_pieces, 0)


@compiled
def _latency_bound_s(bounds: Bounds) -> float:
    """Return a lower bound of latency over a batch under the current plan."""
    independent, latency_s = bounds.independent, bounds.independent.launches_s[0]
    for d in range(bounds.work_s.shape[0]):
        latency_s += bounds.work_s[d] + independent.dispatches_s[d, 0]
    for h in range(independent.hosts_s.shape[0]):
        latency_s += independent.hosts_s[h, 0]
    return float(latency_s)


@compiled
def _energy_bound_j(bounds: Bounds, latency_s: float) -> float:
    """Return a lower bound of energy over a batch under the current plan."""
    independent, unit_j, energies = bounds.independent, bounds.unit_j, bounds.energies
    total_j = bounds.machine[1] * latency_s
    for d in range(bounds.work_s.shape[0]):
        demands, moved = bounds.demands[d], bounds.moved[d]
        demands[0, LANE_CYCLES] = independent.lane_cycles[d, 0]
        fill_moved(demands, 1, moved)
        fill_energies(demands, moved, bounds.row, unit_j[d], bounds.row, 1, energies[d])
        for part in range(PARTS):
            total_j += energies[d, 0, part]
        work_s = bounds.work_s[d] + independent.dispatches_s[d, 0]
        total_j += unit_j[d, 0, STATIC_W] * work_s / independent.contexts[d, 0]
    for h in range(independent.hosts_j.shape[0]):
        total_j += independent.hosts_j[h, 0]
    return float(total_j)


@compiled
def has_better(
    incumbents: Incumbents, thread: int, latency_s: float, energy_j: float, area_mm2: float
) -> bool:
    """Whether an incumbent dominates all points with at least this latency, energy and area."""
    latency_s, energy_j = latency_s * (1.0 - _MARGIN), energy_j * (1.0 - _MARGIN)
    objectives, is_worse = incumbents.objectives[thread], False
    for i in range(incumbents.counts[thread]):
        is_better = objectives[i, 0] <= latency_s and objectives[i, 1] <= energy_j
        is_worse = is_worse or (is_better and objectives[i, 2] <= area_mm2)
    return bool(is_worse and latency_s > 0.0 and energy_j > 0.0)


@compiled
def is_dominated(
    table: PlanTable,
    search: GroupSearch,
    rate_bounds: Floats,
    batch: Batch,
    row_of: Ints,
    bounds: Bounds,
    incumbents: Incumbents,
    thread: int,
) -> bool:
    """Whether incumbents dominate all points of a batch, by lower bounds.

    Parameters
    ----------
    rate_bounds : array of float64, shape (array devices, RATES, 2)
        Least and greatest rates of the batch.
    row_of : array of int64, shape (operators,)
        Scratch.
    """
    if incumbents.counts.shape[0] == 0 or incumbents.counts[thread] == 0 or not are_bounded(table, batch):
        return False
    _fill_batch_bounds(batch, bounds)
    row_of[:] = -1
    unfit, dsp_s = 0, bounds.independent.dsp_s
    for plan in range(table.family.shape[0]):
        for c in range(table.change_start[plan], table.change_start[plan + 1]):
            o, r = table.changes[c, 0], table.changes[c, 1]
            if row_of[o] >= 0 and not fits(table.rows[row_of[o]], search.row_starts, row_of[o]):
                unfit -= 1
            if not fits(table.rows[r], search.row_starts, r):
                unfit += 1
            row_of[o] = r
        if unfit > 0:
            continue
        for o in range(row_of.shape[0]):
            r, d = row_of[o], table.array_of[o]
            if d >= 0 and not bounds.is_bounded[r]:
                bounds.is_bounded[r] = True
                is_served = search.served[r].is_any > 0.0
                start, stop = search.row_starts[r], search.row_starts[r + 1]
                own, candidates = rate_bounds[d], search.candidates
                _fill_row_bounds(
                    candidates, start, stop, is_served, own, table.rows[r], dsp_s[o, 0], bounds.rows[r]
                )
        _fill_plan_bounds(table, table.family[plan], row_of, search.demands, batch.archs.arrays[0], bounds)
        latency_s = _latency_bound_s(bounds)
        if latency_s == np.inf:
            continue  # it fits at no point
        energy_j = _energy_bound_j(bounds, latency_s)
        if not has_better(incumbents, thread, latency_s, energy_j, bounds.machine[0]):
            return False
    return True


@compiled
def skip_points(totals: Any, order: Ints, points: int) -> None:
    """Write infinite latency and energy for points that are not evaluated."""
    for p in range(points):
        total = totals[order[p]]
        total.latency_s = total.energy_j = np.inf


@compiled
def add_incumbents(incumbents: Incumbents, thread: int, totals: Any, order: Ints, points: int) -> None:
    """Add the points of a batch with the least latency, energy, and product of both."""
    figures, best, places = totals.view(np.float64), (np.inf, np.inf, np.inf), (-1, -1, -1)
    for p in range(points):
        first = order[p] * _TOTALS
        latency_s, energy_j = figures[first + _LATENCY], figures[first + _ENERGY]
        if not latency_s < np.inf:
            continue
        is_admitted = True
        for b in range(incumbents.bounded.shape[0]):
            figure = figures[first + incumbents.bounded[b]]
            is_admitted = is_admitted and incumbents.low[b] <= figure <= incumbents.high[b]
        if is_admitted:
            if latency_s < best[0]:
                best, places = (latency_s, best[1], best[2]), (first, places[1], places[2])
            if energy_j < best[1]:
                best, places = (best[0], energy_j, best[2]), (places[0], first, places[2])
            if latency_s * energy_j < best[2]:
                best = (best[0], best[1], latency_s * energy_j)
                places = (places[0], places[1], first)
    for first in places:
        if first >= 0:
            _add_incumbent(
                incumbents,
                thread,
                figures[first + _LATENCY],
                figures[first + _ENERGY],
                figures[first + _AREA],
            )


@compiled
def _add_incumbent(
    incumbents: Incumbents, thread: int, latency_s: float, energy_j: float, area_mm2: float
) -> None:
    """Add an incumbent unless another dominates it; drop those that it dominates."""
    objectives, wanted, kept = incumbents.objectives[thread], incumbents.is_objective, 0
    latency_s = latency_s if wanted[0] else -np.inf
    energy_j = energy_j if wanted[1] else -np.inf
    area_mm2 = area_mm2 if wanted[2] else -np.inf
    for i in range(incumbents.counts[thread]):
        if objectives[i, 0] <= latency_s and objectives[i, 1] <= energy_j and objectives[i, 2] <= area_mm2:
            return
    for i in range(incumbents.counts[thread]):
        if objectives[i, 0] < latency_s or objectives[i, 1] < energy_j or objectives[i, 2] < area_mm2:
            for k in range(3):
                objectives[kept, k] = objectives[i, k]
            kept += 1
    if kept < objectives.shape[0]:
        objectives[kept, 0], objectives[kept, 1], objectives[kept, 2] = latency_s, energy_j, area_mm2
        kept += 1
    incumbents.counts[thread] = kept
