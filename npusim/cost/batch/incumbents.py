"""Pruning of dominated batches by lower bounds, for a sweep that keeps its front alone.

Each residency plan gets lower bounds of latency and energy over the points of a batch before the batch is
evaluated. For each operator they take the least of each need over its candidates, at the best rates of the
batch. These overlap and add up as in `npusim.cost.network.plan_costs`, whose results never fall where a need
grows. Where earlier points (*incumbents*) dominate these bounds of every plan, no point of the batch is on
the front.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from npusim.compiling.kernels import compiled
from npusim.compiling.records import Bools, Floats, Ints
from npusim.cost.batch.design_batch import Work
from npusim.cost.lowering.tables import TOTAL_DTYPE
from npusim.cost.network.terms import ROOT
from npusim.cost.tilings.candidates import reads_dram
from npusim.cost.units import rates as laws
from npusim.cost.units import resources
from npusim.cost.units.rates import LOWER, READ_WAIT, WRITE_WAIT
from npusim.cost.units.resources import BODY, CANDIDATE_SIZE, COUNT, dynamic_j, moved_bytes

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
def is_pruning(incumbents: Incumbents) -> bool:
    """Return whether there is storage for incumbents: without it nothing is pruned."""
    return bool(incumbents.counts.shape[0] > 0)


@compiled
def can_bound(work: Work, incumbents: Incumbents, thread: int) -> bool:
    """Return whether bounds hold for a batch and take less time than evaluating it.

    They hold with one request in flight and no prefetch: that overlaps operators, the bounds add them up.
    """
    table, batch = work.costing.table, work.batch
    if not is_pruning(incumbents) or incumbents.counts[thread] == 0:
        return False
    is_cheap = table.family.shape[0] * table.array_of.shape[0] <= _MOST_BOUNDED
    for c in range(batch.counts[0]):
        is_cheap = is_cheap and batch.independent.requests[c] <= 1.0
    for d in range(batch.archs.arrays.shape[0]):
        is_cheap = is_cheap and batch.archs.arrays[d].prefetch <= 0.0
    return bool(is_cheap)


@compiled
def fill_batch_bounds(work: Work) -> None:
    """Write lower bounds of what no plan changes: rates, costs under every plan, states of the machine."""
    batch, least, columns = work.batch, work.bounds.costing.independent, work.batch.counts[0]
    work.bounds.costing.terms.is_filled[:] = False
    for d in range(batch.rates.shape[0]):
        laws.start_rate_bounds(work.bounds.rates[d])
        laws.widen_rate_bounds(batch.rates[d], columns, work.bounds.rates[d])
    for row in range(least.table.shape[0]):
        least.table[row, 0] = _least(batch.independent.table[row], columns)
    for d in range(least.contexts.shape[0]):
        for c in range(columns):
            least.contexts[d, 0] = max(least.contexts[d, 0], batch.independent.contexts[d, c])
    states, of_batch, count = work.bounds.states, batch.states, batch.state_of[batch.counts[1] - 1] + 1
    states.area_mm2[0], states.idle_w[0] = _least(of_batch.area_mm2, count), _least(of_batch.idle_w, count)
    states.unit_j[:] = np.inf
    for d in range(states.unit_j.shape[0]):
        for state in range(count):
            for e in range(resources.UNIT_ENERGIES):
                states.unit_j[d, 0, e] = min(states.unit_j[d, 0, e], of_batch.unit_j[d, state, e])


@compiled
def _least(values: Floats, count: int) -> float:
    """Return the least of the first values."""
    least = np.inf
    for i in range(count):
        least = min(least, values[i])
    return float(least)


@compiled
def fill_row_bounds(work: Work, o: int, r: int, d: int) -> None:
    """Write lower bounds of the terms and needs of an operator's row over its candidates in a batch.

    They are infinite where no candidate fits into SRAM.
    """
    costing, least, rates = work.bounds.costing, work.bounds.needs[r], work.bounds.rates[d]
    search, op, terms, dsp_s = (
        costing.search,
        costing.table.rows[r],
        costing.terms,
        costing.independent.dsp_s[o, 0],
    )
    lower, is_served = laws.point_rates(rates, LOWER), search.served[r].is_any > 0.0
    numbers, sram_bytes = search.candidates.view(np.float64), lower.tile_sram_bytes
    working_s = dpu_s = dma_s = exposed_s = refill_wait_s = pauses_s = np.inf
    least[:] = np.inf
    for c in range(search.row_starts[r], search.row_starts[r + 1]):
        candidate = search.candidates[c]
        if candidate.needed_bytes > sram_bytes:
            continue
        pause_s = candidate.page_walks * lower.rates.page_walk_s
        pause_s += candidate.restarts * lower.rates.restart_s
        moved_s = candidate.read_bytes * lower.rates.read_s + candidate.written_bytes * lower.rates.write_s
        gaps_s = candidate.read_gaps * lower.rates.gap_s
        in_s = (candidate.prologue_bytes - candidate.known_bytes) * lower.rates.read_s
        waits_s = resources.refills(candidate, sram_bytes) * lower.read_wait_s
        latency_s = max(laws.lower_bound_s(candidate, lower, sram_bytes), dsp_s)
        working_s = min(working_s, latency_s - pause_s)
        dpu_s = min(dpu_s, candidate.grid_cycles * lower.rates.cycle_s)
        dma_s = min(dma_s, moved_s + gaps_s + laws.copies_s(candidate.copied_bytes, lower))
        exposed_s = min(exposed_s, in_s + candidate.epilogue_bytes * lower.rates.write_s)
        refill_wait_s, pauses_s = min(refill_wait_s, waits_s), min(pauses_s, pause_s)
        for k in range(BODY):
            least[k] = min(least[k], numbers[c * CANDIDATE_SIZE + k])
    for k in range(resources.LEVEL_READ_BYTES, BODY if is_served else 0):
        least[k] = 0.0  # at some points DRAM supplies these bytes
    wait_s = rates[READ_WAIT, LOWER] if reads_dram(op) and not is_served else 0.0
    terms.wait_s[r, 0] = wait_s + (rates[WRITE_WAIT, LOWER] if op.c_dram_bytes > 0.0 else 0.0)
    terms.best_s[r, 0], terms.pauses_s[r, 0] = working_s + pauses_s, pauses_s
    terms.dpu_s[r, 0], terms.dma_s[r, 0] = dpu_s, dma_s
    terms.exposed_s[r, 0], terms.refill_wait_s[r, 0] = exposed_s, refill_wait_s


@compiled
def are_dominated(work: Work, incumbents: Incumbents, thread: int) -> bool:
    """Return whether incumbents dominate all points of a batch under the plan whose bounds were summed."""
    bounds, states, costing = work.bounds, work.bounds.states, work.bounds.costing
    least, work_s, search = costing.independent, costing.sums.work_s, costing.search
    latency_s = least.launches_s[0]
    for d in range(work_s.shape[1]):
        latency_s += work_s[ROOT, d, 0] + least.dispatches_s[d, 0]
        for k in range(COUNT):
            bounds.demands[d, 0, k] = search.demands[d, k]
    for h in range(least.hosts_s.shape[0]):
        latency_s += least.hosts_s[h, 0]
    if not latency_s < np.inf:  # the plan fits at no point
        return True
    for o in range(costing.row_of.shape[0]):
        r, d = costing.row_of[o], costing.table.array_of[o]
        for k in range(BODY if d >= 0 else 0):
            bounds.demands[d, 0, k] += costing.table.rows[r].repeats * bounds.needs[r, k]
    energy_j = states.idle_w[0] * latency_s
    for d in range(work_s.shape[1]):
        demands = bounds.demands[d]
        demands[0, resources.LANE_CYCLES] = least.lane_cycles[d, 0]
        dram_bytes, read_bytes, written_bytes = moved_bytes(demands, 0)
        for part_j in dynamic_j(demands, 0, dram_bytes, read_bytes + written_bytes, states.unit_j[d], 0):
            energy_j += part_j
        device_s = work_s[ROOT, d, 0] + least.dispatches_s[d, 0]
        energy_j += states.unit_j[d, 0, resources.STATIC_W] * device_s / least.contexts[d, 0]
    for h in range(least.hosts_j.shape[0]):
        energy_j += least.hosts_j[h, 0]
    return _has_better(incumbents, thread, latency_s, energy_j, states.area_mm2[0])


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
