"""Pruning of dominated batches by lower bounds, for a sweep that keeps its front alone.

Each residency plan gets lower bounds of latency and energy over the points of a batch before the batch is
evaluated. For each operator they take the least of each need over its candidates, at the best rates of the
batch. These overlap and add up as in `npusim.cost.plan_costs`, whose results never fall where a need grows.
Where earlier points (*incumbents*) dominate these bounds of every plan, no point of the batch is on the
front.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from npusim.cost.candidates import CANDIDATE_SIZE, reads_dram, refills
from npusim.cost.design_batch import ROW_BOUNDS, Batch, Work
from npusim.cost.kernels import compiled
from npusim.cost.plan_costs import change_rows
from npusim.cost.plans import NO_LEAF
from npusim.cost.rates import LOWER, READ_WAIT, WRITE_WAIT, copies_s, lower_bound_s, point_rates
from npusim.cost.records import Bools, Floats, Ints
from npusim.cost.resources import (
    BODY,
    COUNT,
    LANE_CYCLES,
    LEVEL_READ_BYTES,
    STATIC_W,
    UNIT_ENERGIES,
    dynamic_j,
    moved_bytes,
)
from npusim.cost.tables import TOTAL_DTYPE
from npusim.cost.terms import FUSED_SUMS, fused_chain_s

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

_BEST_S, _WAIT_S, _GRID_S, _EXPOSED_S, _REFILLS_S, _PAUSES_S, _DMA_S, _DSP_S, _APART_S = range(9)
"""Lower bounds of a row (s); from `_GRID_S` on in the order of the sums of a row-wise fusion."""
_RESOURCES = ROW_BOUNDS - BODY
"""First lower bound of a resource (`BODY` columns)."""


class Incumbents(NamedTuple):
    """Best points of a front so far (`counts` for each thread), and the constraints of the front."""

    is_objective: Bools
    """Whether each of `OBJECTIVES` is minimised."""
    bounded: Ints
    """Columns of TOTAL_DTYPE with constraints."""
    low: Floats
    high: Floats
    objectives: Floats
    """Objectives of the incumbents, -inf where not minimised, shape (threads, _MOST, 3); empty: no
    pruning."""
    counts: Ints


def no_incumbents() -> Incumbents:
    """Return incumbents that prune nothing."""
    return incumbents_of([], {}, 0)


def incumbents_of(
    minimise: Collection[str], constraints: Mapping[str, tuple[float, float]], threads: int
) -> Incumbents:
    """Return empty storage for the best points of a front under (least, greatest) values of metrics.

    It prunes nothing where a metric of the front has no lower bound, where area is the only one, or where a
    constrained metric is not in TOTAL_DTYPE.
    """
    has_bounds = set(minimise) <= set(OBJECTIVES) and set(minimise) != {"area_mm2"}
    if not has_bounds or not set(constraints) <= set(_COLUMNS):
        return no_incumbents()
    low, high = np.array(list(constraints.values()), np.float64).reshape(-1, 2).T.copy()
    is_objective = np.array([name in minimise for name in OBJECTIVES])
    bounded = np.array([_COLUMNS.index(name) for name in constraints], np.int64)
    objectives, counts = np.zeros((threads, _MOST, 3)), np.zeros(threads, np.int64)
    return Incumbents(is_objective, bounded, low, high, objectives, counts)


@compiled
def _fill_batch_bounds(batch: Batch, work: Work) -> tuple[float, float]:
    """Write lower bounds of plan-independent costs; return lower bounds of area (mm2) and idle power (W)."""
    table, least, unit_j, columns = batch.independent.table, work.least, work.least_unit_j, batch.counts[0]
    area_mm2 = idle_w = np.inf
    for row in range(table.shape[0]):
        least.table[row, 0] = np.inf
        for c in range(columns):
            least.table[row, 0] = min(least.table[row, 0], table[row, c])
    for d in range(unit_j.shape[0]):
        for c in range(columns):
            least.contexts[d, 0] = max(least.contexts[d, 0], batch.independent.contexts[d, c])
    unit_j[:] = np.inf
    for state in range(batch.state_of[batch.counts[1] - 1] + 1):
        area_mm2 = min(area_mm2, batch.machine[state, 0])
        idle_w = min(idle_w, batch.machine[state, 2])
        for d in range(unit_j.shape[0]):
            for e in range(UNIT_ENERGIES):
                unit_j[d, 0, e] = min(unit_j[d, 0, e], batch.unit_j[d, state, e])
    return area_mm2, idle_w


@compiled
def _fill_row_bounds(work: Work, r: int, rate_bounds: Floats, dsp_s: float) -> None:
    """Write lower bounds of the needs of a row over its candidates in a batch.

    They hold for all repeats of the operator, those of DSPs (at least `dsp_s`) for one run, as the sums of
    fusions have them. They are infinite where no candidate fits into SRAM.
    """
    search, op, least = work.search, work.table.rows[r], work.row_bounds[r]
    is_served, candidates = search.served[r].is_any > 0.0, search.candidates
    numbers, lower = candidates.view(np.float64), point_rates(rate_bounds, LOWER)
    least[:] = np.inf
    for c in range(search.row_starts[r], search.row_starts[r + 1]):
        candidate = candidates[c]
        if candidate.needed_bytes > lower.tile_sram_bytes:
            continue
        pauses_s = candidate.page_walks * lower.rates.page_walk_s
        pauses_s += candidate.restarts * lower.rates.restart_s
        latency_s = max(lower_bound_s(candidate, lower, lower.tile_sram_bytes), dsp_s)
        moved_s = candidate.read_bytes * lower.rates.read_s + candidate.written_bytes * lower.rates.write_s
        dma_s = moved_s + candidate.read_gaps * lower.rates.gap_s
        dma_s += copies_s(candidate.copied_bytes, lower)
        exposed_s = (candidate.prologue_bytes - candidate.known_bytes) * lower.rates.read_s
        exposed_s += candidate.epilogue_bytes * lower.rates.write_s
        waits_s = refills(candidate, lower.tile_sram_bytes) * lower.read_wait_s
        least[_BEST_S] = min(least[_BEST_S], latency_s)
        least[_GRID_S] = min(least[_GRID_S], candidate.grid_cycles * lower.rates.cycle_s)
        least[_DSP_S] = min(least[_DSP_S], dsp_s)
        least[_DMA_S] = min(least[_DMA_S], dma_s)
        least[_EXPOSED_S] = min(least[_EXPOSED_S], exposed_s)
        least[_REFILLS_S] = min(least[_REFILLS_S], waits_s)
        least[_PAUSES_S] = min(least[_PAUSES_S], pauses_s)
        least[_APART_S] = min(least[_APART_S], latency_s - pauses_s)
        for k in range(BODY):
            least[_RESOURCES + k] = min(least[_RESOURCES + k], numbers[c * CANDIDATE_SIZE + k])
    for k in range(LEVEL_READ_BYTES, BODY if is_served else 0):
        least[_RESOURCES + k] = 0.0  # at some points DRAM supplies these bytes
    wait_s = rate_bounds[READ_WAIT, LOWER] if reads_dram(op) and not is_served else 0.0
    least[_WAIT_S] = wait_s + (rate_bounds[WRITE_WAIT, LOWER] if op.c_dram_bytes > 0.0 else 0.0)
    if op.repeats != 1.0:
        for k in range(ROW_BOUNDS):
            if k != _DSP_S:
                least[k] *= op.repeats


@compiled
def _fill_plan_bounds(work: Work, family: int, devices: Any) -> None:
    """Write bounds of the time of each array device under a plan, and of the demands on it (first column)."""
    table, row_of, bounds, fused_sums = work.table, work.row_of, work.row_bounds, work.tree.fused_sums
    leaf_op, chain_leaf = table.leaf_op[family], table.chain_leaf[family]
    for d in range(work.least_s.shape[0]):
        work.least_s[d] = 0.0
        for k in range(COUNT):
            work.demands[d, 0, k] = work.search.demands[d, k]
    for leaf in range(leaf_op.shape[0]):
        o = leaf_op[leaf]
        if o == NO_LEAF:
            continue
        if o >= 0:
            row, d = row_of[o], table.array_of[o]
            work.least_s[d] += bounds[row, _WAIT_S]
            if chain_leaf[o] < 0:
                work.least_s[d] += bounds[row, _BEST_S]
            for k in range(BODY):
                work.demands[d, 0, k] += bounds[row, _RESOURCES + k]
        else:
            fused_sums[:, 0] = 0.0
            for member in range(leaf + o, leaf):
                for s in range(FUSED_SUMS):
                    fused_sums[s, 0] += bounds[row_of[leaf_op[member]], _GRID_S + s]
            d = table.array_of[leaf_op[leaf - 1]]
            work.least_s[d] += fused_chain_s(fused_sums, devices[d].stream_pieces, 0)


@compiled
def _latency_energy_bounds(work: Work, idle_w: float) -> tuple[float, float]:
    """Return lower bounds of latency (s) and energy (J) over a batch under the current plan."""
    least, unit_j = work.least, work.least_unit_j
    latency_s = least.launches_s[0]
    for d in range(work.least_s.shape[0]):
        latency_s += work.least_s[d] + least.dispatches_s[d, 0]
    for h in range(least.hosts_s.shape[0]):
        latency_s += least.hosts_s[h, 0]
    total_j = idle_w * latency_s
    for d in range(work.least_s.shape[0]):
        demands = work.demands[d]
        demands[0, LANE_CYCLES] = least.lane_cycles[d, 0]
        dram_bytes, read_bytes, written_bytes = moved_bytes(demands, 0)
        for part_j in dynamic_j(demands, 0, dram_bytes, read_bytes + written_bytes, unit_j[d], 0):
            total_j += part_j
        device_s = work.least_s[d] + least.dispatches_s[d, 0]
        total_j += unit_j[d, 0, STATIC_W] * device_s / least.contexts[d, 0]
    for h in range(least.hosts_j.shape[0]):
        total_j += least.hosts_j[h, 0]
    return latency_s, total_j


@compiled
def _has_better(
    incumbents: Incumbents, thread: int, latency_s: float, energy_j: float, area_mm2: float
) -> bool:
    """Return whether an incumbent dominates all points with at least this latency, energy and area."""
    latency_s, energy_j = latency_s * (1.0 - _MARGIN), energy_j * (1.0 - _MARGIN)
    objectives, is_worse = incumbents.objectives[thread], False
    for i in range(incumbents.counts[thread]):
        is_better = objectives[i, 0] <= latency_s and objectives[i, 1] <= energy_j
        is_worse = is_worse or (is_better and objectives[i, 2] <= area_mm2)
    return bool(is_worse and latency_s > 0.0 and energy_j > 0.0)


@compiled
def is_dominated(work: Work, batch: Batch, incumbents: Incumbents, thread: int) -> bool:
    """Return whether incumbents dominate all points of a batch, by lower bounds of its costs.

    Bounds are computed only where they hold and take less time than evaluating the batch: with one request
    in flight, no prefetch (`npusim.cost.prefetch` overlaps operators, the bounds add them up) and few plans.
    """
    table, row_of, unfit = work.table, work.row_of, 0
    if incumbents.counts.shape[0] == 0 or incumbents.counts[thread] == 0:
        return False
    if table.family.shape[0] * table.array_of.shape[0] > _MOST_BOUNDED:
        return False
    for c in range(batch.counts[0]):
        if batch.independent.requests[c] > 1.0:
            return False
    for d in range(batch.archs.arrays.shape[1]):
        if batch.archs.arrays[0, d].prefetch > 0.0:
            return False
    area_mm2, idle_w = _fill_batch_bounds(batch, work)
    row_of[:] = -1
    for plan in range(table.family.shape[0]):
        unfit = change_rows(table, work.search.row_starts, plan, unfit, row_of)
        if unfit > 0:
            continue
        for o in range(row_of.shape[0]):
            r, d = row_of[o], table.array_of[o]
            if d >= 0 and not work.is_bounded[r]:
                work.is_bounded[r] = True
                _fill_row_bounds(work, r, work.rate_bounds[d], work.least.dsp_s[o, 0])
        _fill_plan_bounds(work, table.family[plan], batch.archs.arrays[0])
        latency_s, energy_j = _latency_energy_bounds(work, idle_w)
        # An infinite bound: the plan fits at no point.
        if latency_s < np.inf and not _has_better(incumbents, thread, latency_s, energy_j, area_mm2):
            return False
    return True


@compiled
def add_incumbents(incumbents: Incumbents, thread: int, totals: Any, order: Ints, points: int) -> None:
    """Add three points of a batch: the least latency, the least energy, the least product of both."""
    figures = totals.view(np.float64)
    least_s = least_j = least_js = np.inf
    at_s = at_j = at_js = -1
    for p in range(points):
        first = order[p] * _TOTALS
        latency_s, energy_j = figures[first + _LATENCY], figures[first + _ENERGY]
        is_admitted = latency_s < np.inf
        for b in range(incumbents.bounded.shape[0]):
            figure = figures[first + incumbents.bounded[b]]
            is_admitted = is_admitted and incumbents.low[b] <= figure <= incumbents.high[b]
        if is_admitted and latency_s < least_s:
            least_s, at_s = latency_s, first
        if is_admitted and energy_j < least_j:
            least_j, at_j = energy_j, first
        if is_admitted and latency_s * energy_j < least_js:
            least_js, at_js = latency_s * energy_j, first
    for first in (at_s, at_j, at_js):
        if first >= 0:
            latency_s, energy_j = figures[first + _LATENCY], figures[first + _ENERGY]
            _add_incumbent(incumbents, thread, latency_s, energy_j, figures[first + _AREA])


@compiled
def _add_incumbent(
    incumbents: Incumbents, thread: int, latency_s: float, energy_j: float, area_mm2: float
) -> None:
    """Add an incumbent unless another dominates it; drop those that it dominates."""
    objectives, is_minimised, kept = incumbents.objectives[thread], incumbents.is_objective, 0
    latency_s = latency_s if is_minimised[0] else -np.inf
    energy_j = energy_j if is_minimised[1] else -np.inf
    area_mm2 = area_mm2 if is_minimised[2] else -np.inf
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
