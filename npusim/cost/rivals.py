"""Batches of which no point is on a front: bounds of latency and energy, and points that beat them.

A sweep that keeps its front alone need not evaluate a point that another one beats. Before a batch is
evaluated, each residency plan gets a latency and an energy that none of its points falls below: of every
operator the least of each amount over the candidates that can be the fastest there
(`npusim.cost.shortlist`), at the best rates of the batch, overlapped and added up as
`npusim.cost.plan_costs` does, which never falls where an amount grows. Where points evaluated before
(*rivals*) beat these bounds of every plan, no point of the batch is on the front, whichever plan it takes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.candidate_latency import copies_s, lower_bound_s, point_rates
from npusim.cost.candidates import CANDIDATE_SIZE, reads_dram, refills
from npusim.cost.demands import MOVED, fill_moved
from npusim.cost.design_batch import Batch
from npusim.cost.energy import PARTS, UNIT_ENERGIES, UnitEnergy, fill_energies
from npusim.cost.group_search import Found, fits
from npusim.cost.jit import compiled, compiled_making_arrays
from npusim.cost.plan_costs import FUSED_SUMS, fused_chain_s
from npusim.cost.plan_independent import PlanIndependent, plan_independent
from npusim.cost.plan_table import NO_LEAF, PlanTable
from npusim.cost.rates import LOWER, Rate
from npusim.cost.resources import BODY, COUNT, LANE_CYCLES
from npusim.cost.shortlist import Shortlist, list_candidates
from npusim.cost.tables import TOTAL_DTYPE, OpRecord

_READ_WAIT, _WRITE_WAIT, _STATIC_W = int(Rate.READ_WAIT), int(Rate.WRITE_WAIT), int(UnitEnergy.STATIC_W)
_COLUMNS = list(TOTAL_DTYPE.names or ())
_TOTALS = len(_COLUMNS)
_LATENCY, _ENERGY, _AREA = (_COLUMNS.index(name) for name in ("latency_s", "energy_j", "area_mm2"))
OBJECTIVES = ("latency_s", "energy_j", "area_mm2")
"""Metrics that are bounded; area is known as it is."""
_MARGIN = 1e-9
"""Share by which a bound is lowered, beyond all rounding."""
_MOST = 256
"""Rivals that are remembered."""
_MOST_BOUNDED = 2048
"""Operators times plans up to which bounds take less than evaluating a batch."""

# Columns of the table of least amounts of a row, before those of its resources: seconds.
_BEST_S, _WAIT_S = range(2)
_FUSED = 2
"""First of the columns that a row-wise fusion adds up, in the order of its sums."""
_RESOURCES = _FUSED + FUSED_SUMS
_LEAST = _RESOURCES + BODY


class Rivals(NamedTuple):
    """Points that others are compared with, and what they have to keep to."""

    is_objective: Any
    """Whether each of `OBJECTIVES` is minimised, bool, shape (3,)."""
    bounded: Any
    """Columns of TOTAL_DTYPE that points of a front keep within bounds, int64, shape (constraints,)."""
    low: Any
    """These bounds, float64, shape (constraints,)."""
    high: Any
    found: Any
    """Objectives of the rivals of each thread, those that are not minimised as -inf, float64, shape (threads,
    _MOST, 3); of no length where all points are evaluated."""
    count: Any
    """Rivals of each thread, int64, shape (threads,)."""


def no_rivals() -> Rivals:
    """Return what has all points evaluated."""
    return _rivals([], {}, 0, 0)


def rivals_for(minimise: Any, constraints: Any, threads: int) -> Rivals:
    """Return room for the rivals of a front, none of which is known yet.

    Parameters
    ----------
    minimise : sequence of str
        Metrics of the front; where one of them is not bounded, all points are evaluated.
    constraints : mapping of str to pair of float
        Least and greatest value of metrics; one that is not in TOTAL_DTYPE has all points evaluated.
    """
    is_bounded = set(minimise) <= set(OBJECTIVES) and set(minimise) != {"area_mm2"}
    is_told = set(constraints) <= set(_COLUMNS)
    return _rivals(minimise, constraints, threads, _MOST) if is_bounded and is_told else no_rivals()


def _rivals(minimise: Any, constraints: Any, threads: int, most: int) -> Rivals:
    low, high = np.array(list(constraints.values()), np.float64).reshape(-1, 2).T.copy()
    return Rivals(
        np.array([name in minimise for name in OBJECTIVES]),
        np.array([_COLUMNS.index(name) for name in constraints], np.int64), low, high,
        np.zeros((threads, most, 3)), np.zeros(threads, np.int64),
    )  # fmt: skip


class Bounds(NamedTuple):
    """Scratch of one thread: what no point of a batch falls below."""

    least: Any
    """Of each row, float64, shape (rows, _LEAST), where it `has_least`."""
    has_least: Any
    independent: PlanIndependent
    """Of what no plan changes, one column; of contexts the most."""
    unit_j: Any
    """Of energies of units, float64, shape (array devices, 1, UNIT_ENERGIES)."""
    work_s: Any
    """Of the work of each array device under a plan, float64, shape (array devices,)."""
    demands: Any
    """Of what it needs, float64, shape (array devices, 1, COUNT) ..."""
    moved: Any
    """... of the bytes that it moves ..."""
    energies: Any
    """... and of its energies."""
    fused_sums: Any
    machine: Any
    """Of area (mm2), and of idle power (W), float64, shape (2,)."""
    row: Any
    """Row 0 of all tables of one row, int64, shape (1,)."""


@compiled_making_arrays
def new_bounds(rows: int, arrays: int, hosts: int, operators: int) -> Bounds:
    """Return room for bounds, none of which is filled in."""
    return Bounds(
        np.empty((rows, _LEAST)), np.zeros(rows, np.bool_), plan_independent(arrays, hosts, operators, 1),
        np.empty((arrays, 1, UNIT_ENERGIES)), np.empty(arrays), np.empty((arrays, 1, COUNT)),
        np.empty((arrays, 1, MOVED)), np.empty((arrays, 1, PARTS)), np.empty((FUSED_SUMS, 1)), np.empty(2),
        np.zeros(1, np.int64),
    )  # fmt: skip


@compiled
def are_bounded(table: PlanTable, batch: Batch) -> bool:
    """Whether the points of a batch have bounds that are worth finding: one request, few plans."""
    few = table.family.shape[0] * table.array_of.shape[0] <= _MOST_BOUNDED
    for c in range(batch.counts[0]):
        few = few and batch.independent.requests[c] <= 1.0
    return bool(few)


@compiled
def _fill_batch_bounds(batch: Batch, bounds: Bounds) -> None:
    """Write the least of what no plan changes, of energies of units, of area and of idle power."""
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
def _fill_least(
    found: Any, listed: Any, is_served: bool, rate_bounds: Any, op: OpRecord, dsp_s: float, least: Any
) -> None:
    """Write the least amounts of an operator over the candidates that can be the fastest in a batch.

    Parameters
    ----------
    found : array of CANDIDATE_DTYPE
    listed : array of int64, shape (candidates,)
        Places of these candidates.
    rate_bounds : array of float64, shape (RATES, 2)
    dsp_s : float
        Least time of the DSPs.
    least : array of float64, shape (_LEAST,)
        Written, all times that the operator runs; infinite where no candidate fits into SRAM.
    """
    numbers, lower = found.view(np.float64), point_rates(rate_bounds, LOWER)
    least[:] = np.inf
    for c in listed:
        candidate = found[c]
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
        least[_FUSED] = min(least[_FUSED], candidate.grid_cycles * lower.rates.cycle_s)
        least[_FUSED + 1] = min(least[_FUSED + 1], dsp_s)
        least[_FUSED + 2] = min(least[_FUSED + 2], dma_s)
        least[_FUSED + 3] = min(least[_FUSED + 3], exposed_s)
        least[_FUSED + 4] = min(least[_FUSED + 4], waits_s)
        least[_FUSED + 5] = min(least[_FUSED + 5], walks_s)
        least[_FUSED + 6] = min(least[_FUSED + 6], latency_s - walks_s)
        for r in range(BODY):
            least[_RESOURCES + r] = min(least[_RESOURCES + r], numbers[c * CANDIDATE_SIZE + r])
    wait_s = rate_bounds[_READ_WAIT, LOWER] if reads_dram(op) and not is_served else 0.0
    least[_WAIT_S] = wait_s + (rate_bounds[_WRITE_WAIT, LOWER] if op.c_dram_bytes > 0.0 else 0.0)
    if op.repeats != 1.0:
        for k in range(_LEAST):
            if k != _FUSED + 1:  # as `npusim.cost.plan_costs.add_fused` has it
                least[k] *= op.repeats


@compiled
def _fill_plan_bounds(
    table: PlanTable, family: int, row_of: Any, demands: Any, devices: Any, bounds: Bounds
) -> None:
    """Write what no point of a batch falls below under a plan: work, demands and energies of each device."""
    leaf_op, chain_leaf, array_of = table.leaf_op[family], table.chain_leaf[family], table.array_of
    fused_sums, least = bounds.fused_sums, bounds.least
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
                    fused_sums[s, 0] += least[row_of[leaf_op[member]], _FUSED + s]
            d = array_of[leaf_op[leaf - 1]]
            bounds.work_s[d] += fused_chain_s(fused_sums, devices[d].stream_pieces, 0)


@compiled
def _least_latency_s(bounds: Bounds) -> float:
    """Return a latency that no point of a batch falls below under the plan at hand."""
    independent, latency_s = bounds.independent, bounds.independent.launches_s[0]
    for d in range(bounds.work_s.shape[0]):
        latency_s += bounds.work_s[d] + independent.dispatches_s[d, 0]
    for h in range(independent.hosts_s.shape[0]):
        latency_s += independent.hosts_s[h, 0]
    return float(latency_s)


@compiled
def _least_energy_j(bounds: Bounds, latency_s: float) -> float:
    """Return an energy that no point of a batch falls below under the plan at hand."""
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
        total_j += unit_j[d, 0, _STATIC_W] * work_s / independent.contexts[d, 0]
    for h in range(independent.hosts_j.shape[0]):
        total_j += independent.hosts_j[h, 0]
    return float(total_j)


@compiled
def is_beaten(rivals: Rivals, thread: int, latency_s: float, energy_j: float, area_mm2: float) -> bool:
    """Whether a rival is better than all that has no less than this of latency, energy and area."""
    latency_s, energy_j = latency_s * (1.0 - _MARGIN), energy_j * (1.0 - _MARGIN)
    found, beaten = rivals.found[thread], False
    for i in range(rivals.count[thread]):
        beaten = beaten or (found[i, 0] <= latency_s and found[i, 1] <= energy_j and found[i, 2] <= area_mm2)
    return bool(beaten and latency_s > 0.0 and energy_j > 0.0)


@compiled
def is_behind(
    table: PlanTable, found: Found, shortlist: Shortlist, rate_bounds: Any, batch: Batch, row_of: Any,
    bounds: Bounds, rivals: Rivals, thread: int,
) -> bool:  # fmt: skip
    """Whether no point of a batch is on the front, for all that rivals tell.

    Parameters
    ----------
    rate_bounds : array of float64, shape (array devices, RATES, 2)
        Of the batch.
    row_of : array of int64, shape (operators,)
        Scratch.
    thread : int
        Whose rivals are looked at.
    """
    if rivals.count.shape[0] == 0 or rivals.count[thread] == 0 or not are_bounded(table, batch):
        return False
    _fill_batch_bounds(batch, bounds)
    row_of[:] = -1
    unfit, columns, dsp_s = 0, batch.counts[0], bounds.independent.dsp_s
    for plan in range(table.family.shape[0]):
        for c in range(table.change_start[plan], table.change_start[plan + 1]):
            o, r = table.changes[c, 0], table.changes[c, 1]
            if row_of[o] >= 0 and not fits(table.rows[row_of[o]], found.bounds, row_of[o]):
                unfit -= 1
            if not fits(table.rows[r], found.bounds, r):
                unfit += 1
            row_of[o] = r
        if unfit > 0:
            continue
        for o in range(row_of.shape[0]):
            r, d = row_of[o], table.array_of[o]
            if d >= 0 and not bounds.has_least[r]:
                bounds.has_least[r] = True
                is_served = found.served[r].is_any > 0.0
                compared = 0 if is_served else columns
                count = list_candidates(shortlist, found.bounds, r, rate_bounds[d], compared)
                listed = shortlist.listed[found.bounds[r] : found.bounds[r] + count]
                _fill_least(
                    found.candidates, listed, is_served, rate_bounds[d], table.rows[r], dsp_s[o, 0],
                    bounds.least[r],
                )  # fmt: skip
        _fill_plan_bounds(table, table.family[plan], row_of, found.demands, batch.archs.arrays[0], bounds)
        latency_s = _least_latency_s(bounds)
        if latency_s == np.inf:
            continue  # it fits at no point
        energy_j = _least_energy_j(bounds, latency_s)
        if not is_beaten(rivals, thread, latency_s, energy_j, bounds.machine[0]):
            return False
    return True


@compiled
def leave_out(totals: Any, order: Any, points: int) -> None:
    """Write the totals of points that are not evaluated: such as those of points that do not fit."""
    for p in range(points):
        total = totals[order[p]]
        total.latency_s = total.energy_j = np.inf


@compiled
def remember(rivals: Rivals, thread: int, totals: Any, order: Any, points: int) -> None:
    """Remember the points of a batch with the least latency, energy, and product of both, as rivals."""
    figures, best, places = totals.view(np.float64), (np.inf, np.inf, np.inf), (-1, -1, -1)
    for p in range(points):
        first = order[p] * _TOTALS
        latency_s, energy_j = figures[first + _LATENCY], figures[first + _ENERGY]
        if not latency_s < np.inf:
            continue
        is_admitted = True
        for b in range(rivals.bounded.shape[0]):
            figure = figures[first + rivals.bounded[b]]
            is_admitted = is_admitted and rivals.low[b] <= figure <= rivals.high[b]
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
            _add(rivals, thread, figures[first + _LATENCY], figures[first + _ENERGY], figures[first + _AREA])


@compiled
def _add(rivals: Rivals, thread: int, latency_s: float, energy_j: float, area_mm2: float) -> None:
    """Add a rival unless another is as good; drop those that it is as good as."""
    found, wanted, kept = rivals.found[thread], rivals.is_objective, 0
    latency_s = latency_s if wanted[0] else -np.inf
    energy_j = energy_j if wanted[1] else -np.inf
    area_mm2 = area_mm2 if wanted[2] else -np.inf
    for i in range(rivals.count[thread]):
        if found[i, 0] <= latency_s and found[i, 1] <= energy_j and found[i, 2] <= area_mm2:
            return
    for i in range(rivals.count[thread]):
        if found[i, 0] < latency_s or found[i, 1] < energy_j or found[i, 2] < area_mm2:
            for k in range(3):
                found[kept, k] = found[i, k]
            kept += 1
    if kept < found.shape[0]:
        found[kept, 0], found[kept, 1], found[kept, 2] = latency_s, energy_j, area_mm2
        kept += 1
    rivals.count[thread] = kept
