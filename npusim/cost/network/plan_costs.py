"""Costs of residency plans at many points, and the time between two inferences.

Operators are costed once, plans are sums of them. Hosts, calls of runtimes and DSPs cost the same under every
plan (`PlanIndependent`). Plans are compared by the time between two inferences (`interval_s`), which engines
and placements use too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.compiling.kernels import compiled, compiled_making_arrays
from npusim.compiling.records import Floats, Ints
from npusim.cost.lowering.plans import NO_LEAF
from npusim.cost.network.terms import FANOUT, Costing, Sums
from npusim.cost.tilings.search import fits
from npusim.cost.units.levels import shared_levels_s
from npusim.cost.units.rates import overlapped_s, stall_s

FAMILY, UNFIT = range(2)
"""Places in `Costing.plan_state`."""
_PEAK = 5
"""Place of the SRAM peak in `Sums.table`."""


class DeviceTimes(NamedTuple):
    """Time of an inference on each device; arrays of shape (devices,)."""

    work_s: Floats
    """Sum of the latencies of its operators."""
    dma_s: Floats
    """Time of all its DMA engines; 0 for a host."""
    contexts: Floats
    """Parallel inferences on the device, each on its own tiles and SRAM; 1 for a host."""


@compiled
def throttled_interval_s(interval_s: float, work_j: float, idle_w: float, limit_w: float) -> float:
    """Return the least time between two inferences that keeps mean package power within its limit (s).

    The limit holds over seconds, which is many inferences: the package works at its clocks and pauses in
    between.

    Parameters
    ----------
    work_j : float
        Energy of an inference beyond idle power.
    limit_w : float
        The limit; 0 for none. The time is infinite where idle power alone exceeds it.
    """
    if limit_w <= 0.0:
        return interval_s
    room_w = limit_w - idle_w
    return max(interval_s, work_j / room_w) if room_w > 0.0 else np.inf


@compiled
def fill_interval_bounds_s(
    requests: float, times: DeviceTimes, launches_s: float, memory_s: float, bounds: Floats
) -> None:
    """Write lower bounds of the time between two inferences (s), each linear in the times.

    Parameters
    ----------
    requests : float
        Inferences in flight; with one there is one bound.
    launches_s : float
        Time of all calls of runtimes.
    memory_s : float
        Time of the busiest shared memory, DRAM or a level, for the bytes of an inference.
    bounds : array of float64, shape (2 * devices + 2,)
        Written: by each device, by the DMA engines of each, by memory, by requests in flight. Engines serve
        all contexts of a device; with one context they are no separate bound: its work contains their time.
    """
    bounds[:] = 0.0
    devices = times.work_s.shape[0]
    for d in range(devices):
        bounds[2 * devices + 1] += times.work_s[d]
    bounds[2 * devices + 1] += launches_s
    if requests <= 1.0:
        return
    bounds[2 * devices + 1] /= requests
    bounds[2 * devices] = memory_s
    for d in range(devices):
        bounds[d] = times.work_s[d] / times.contexts[d]
        bounds[devices + d] = times.dma_s[d] if times.contexts[d] > 1.0 else 0.0


@compiled
def contention_interval_s(contexts: float, npu_s: float, dma_s: float) -> float:
    """Return the time between two inferences of contexts that share the DMA engines (s).

    A closed queueing network: each context works alone for `npu_s` less `dma_s`, then waits for the engines,
    which divide their rate among contexts. Its throughput depends on the means alone (Baskett et al., JACM
    1975) and follows by mean value analysis (Reiser and Lavenberg, JACM 1980).
    """
    if contexts <= 1.0 or not 0.0 < npu_s < np.inf:
        return npu_s
    apart_s = max(0.0, npu_s - dma_s)
    queue, interval = 0.0, npu_s
    for customers in range(1, int(contexts) + 1):
        shared_s = dma_s * (1.0 + queue)
        interval = (apart_s + shared_s) / customers
        queue = shared_s / interval
    return interval


@compiled
def interval_s(
    requests: float, times: DeviceTimes, launches_s: float, memory_s: float, bounds: Floats
) -> float:
    """Return the time between two inferences (s): the largest bound, or more where contexts wait for DMA.

    Parameters as of `fill_interval_bounds_s`; `bounds` is scratch.
    """
    fill_interval_bounds_s(requests, times, launches_s, memory_s, bounds)
    longest = bounds[0]
    for b in range(1, len(bounds)):  # the array's own maximum makes loading import linear algebra
        longest = max(longest, bounds[b])
    for d in range(times.work_s.shape[0]):
        longest = max(longest, contention_interval_s(times.contexts[d], times.work_s[d], times.dma_s[d]))
    return float(longest)


class FusedWork(NamedTuple):
    """Work of the operators of a row-wise fusion, summed by what does it (s)."""

    dpu_s: float
    dsp_s: float
    dma_s: float
    exposed_s: float
    refill_wait_s: float
    pauses_s: float
    apart_s: float
    """Latency of the operators one after the other, without waits and pauses."""


@compiled
def fused_work(costing: Costing, members: Ints, column: int) -> FusedWork:
    """Return the summed work of the operators (`members`) of a row-wise fusion.

    SRAM has room for the weights of all of them, so these come in while others work.
    """
    terms, dsp_s = costing.terms, costing.independent.dsp_s
    dpu = dsp = dma = exposed = refill_wait = pauses = apart = 0.0
    for member in range(members.shape[0]):
        o = members[member]
        r = costing.row_of[o]
        repeats = costing.table.rows[r].repeats
        pause_s = repeats * terms.pauses_s[r, column]
        dpu += repeats * terms.dpu_s[r, column]
        dsp += dsp_s[o, column]
        dma += repeats * terms.dma_s[r, column]
        exposed += repeats * terms.exposed_s[r, column]
        exposed -= repeats * terms.known_s[r, column]
        refill_wait += repeats * terms.refill_wait_s[r, column]
        pauses += pause_s
        apart += repeats * terms.best_s[r, column] - pause_s
    return FusedWork(dpu, dsp, dma, exposed, refill_wait, pauses, apart)


@compiled
def fused_s(work: FusedWork, pieces: float) -> float:
    """Return the time of a row-wise fusion (s), which replaces the latencies of its operators.

    The operators work at the same time: units overlap, prologues and epilogues add up. Filling the pipeline
    takes longer: one of `pieces` blocks of rows passes through all operators in turn.
    """
    fusion_s = overlapped_s(max(work.dpu_s, work.dsp_s), work.dma_s, work.exposed_s, work.refill_wait_s)
    return float(fusion_s + (work.apart_s - fusion_s) / pieces + work.pauses_s)


@compiled
def fused_stall_s(work: FusedWork) -> float:
    """Return how much longer than work and buffers allow the transfers of a row-wise fusion take (s)."""
    return stall_s(max(work.dpu_s, work.dsp_s), work.dma_s, work.exposed_s, 0.0, work.refill_wait_s)


@compiled
def start_plans(costing: Costing) -> None:
    """Forget the latest plan."""
    costing.row_of[:] = -1
    costing.plan_state[FAMILY], costing.plan_state[UNFIT] = -1, 0


@compiled
def _mark_stale(sums: Sums, leaf: int) -> None:
    """Mark the lowest node of the tree of sums that adds up a leaf; -1: the operator has no such leaf."""
    if leaf >= 0:
        sums.is_stale[leaf // FANOUT] = True


@compiled
def change_rows(costing: Costing, plan: int) -> bool:
    """Give each operator that a plan changes its new row; return whether all operators fit into SRAM.

    A row of the table is an operator with the bytes that a plan leaves it to move and to hold. A plan lists
    only its changes from the plan before it, so plans are called in their order, after `start_plans`. Sums
    that contain a changed operator become stale; `sum_rows` computes them again.
    """
    table = costing.table
    family = table.family[plan]
    row_of = costing.row_of
    row_starts = costing.search.row_starts
    state = costing.plan_state
    for c in range(table.change_start[plan], table.change_start[plan + 1]):
        operator, row = table.changes[c, 0], table.changes[c, 1]
        before = row_of[operator]
        if before >= 0 and not fits(table.rows[before], row_starts, before):
            state[UNFIT] -= 1
        if not fits(table.rows[row], row_starts, row):
            state[UNFIT] += 1
        row_of[operator] = row
        _mark_stale(costing.sums, table.leaf_of[family, operator])
        _mark_stale(costing.sums, table.chain_leaf[family, operator])
    return bool(state[UNFIT] == 0)


@compiled
def sum_rows(costing: Costing, plan: int, arrays: Any, points: int) -> None:
    """Sum the rows of a plan whose terms are filled in: the stale blocks of leaves, and all nodes above.

    `arrays` (ARCH_DTYPE) gives the blocks of rows of a row-wise fusion.
    """
    family, is_stale, table = costing.table.family[plan], costing.sums.is_stale, costing.sums.table
    leaves = costing.table.leaf_op.shape[1]
    size, start, below = max(1, -(-leaves // FANOUT)), 0, 0
    for node in range(size):
        if is_stale[node] or family != costing.plan_state[FAMILY]:
            is_stale[node] = False
            table[:, node] = 0.0
            for leaf in range(node * FANOUT, min((node + 1) * FANOUT, leaves)):
                _add_leaf(costing, family, leaf, arrays, points, node)
    while size > 1:
        below, start, size = start, start + size, -(-size // FANOUT)
        for node in range(start, start + size):
            table[:, node] = 0.0
            first = below + (node - start) * FANOUT
            for child in range(first, min(first + FANOUT, start)):
                _add_node(costing.sums, child, node, points)
    costing.plan_state[FAMILY] = family


@compiled
def _add_leaf(costing: Costing, family: int, leaf: int, arrays: Any, points: int, node: int) -> None:
    """Add a leaf to a node: all runs of an operator, or the time of a row-wise fusion."""
    table, terms, sums, row_of = costing.table, costing.terms, costing.sums, costing.row_of
    op = table.leaf_op[family, leaf]
    if op == NO_LEAF:
        return
    if op < 0:
        members = table.leaf_op[family, leaf + op : leaf]
        d = table.array_of[members[0]]
        for p in range(points):
            sums.work_s[node, d, p] += fused_s(fused_work(costing, members, p), arrays[d].stream_pieces)
        return
    r, d, is_fused = row_of[op], table.array_of[op], table.chain_leaf[family, op] >= 0
    repeats = table.rows[r].repeats
    _add(repeats, terms.dma_s[r], sums.dma_s[node, d], points)
    _add(repeats, terms.dram_bytes[r], sums.dram_bytes[node, d], points)
    _add(repeats, terms.shared_bytes[r], sums.shared_bytes[node, d], points)
    _add(1.0, terms.stall_s[r], sums.stalls_s[node, d], points)  # the first run alone can be prefetched
    work_s, wait_s, best_s = sums.work_s[node, d], terms.wait_s[r], terms.best_s[r]
    for p in range(points):  # the time of a fusion is a leaf of its own
        work_s[p] += repeats * wait_s[p] + (0.0 if is_fused else repeats * best_s[p])
    _raise_to(terms.sram_peak_bytes[r], sums.sram_peak_bytes[node, d], points)


@compiled
def _add_node(sums: Sums, child: int, node: int, points: int) -> None:
    """Add the sums of a node to those of the node above it."""
    for d in range(sums.work_s.shape[1]):
        for k in range(_PEAK):
            _add(1.0, sums.table[k, child, d], sums.table[k, node, d], points)
        _raise_to(sums.table[_PEAK, child, d], sums.table[_PEAK, node, d], points)


@compiled
def _add(scale: float, terms: Floats, sums: Floats, points: int) -> None:
    """Add the scaled terms of an operator to the sums at the first points."""
    for p in range(points):
        sums[p] += scale * terms[p]


@compiled
def _raise_to(bytes_: Floats, peaks: Floats, points: int) -> None:
    for p in range(points):
        peaks[p] = max(peaks[p], bytes_[p])


class BestPlans(NamedTuple):
    """The best residency plan of each column of a batch."""

    plans: Ints
    """Number of the plan; -1 where none fits."""
    latency_s: Floats
    interval_s: Floats
    """Time between two inferences."""
    dram_bytes: Floats
    sram_peak_bytes: Floats
    work_s: Floats
    """Work of each array device less what prefetch saves, shape (array devices, columns)."""
    dma_s: Floats
    """Time of its DMA engines, likewise."""
    times: DeviceTimes
    """Scratch, as the next one (`interval_s`)."""
    bounds: Floats


@compiled_making_arrays
def new_best_plans(arrays: int, hosts: int, columns: int) -> BestPlans:
    """Return storage for the best plans of columns."""
    t, d, plans, devices = (
        np.empty((4, columns)),
        np.empty((2, arrays, columns)),
        np.empty(columns, np.int64),
        arrays + hosts,
    )
    times = DeviceTimes(np.zeros(devices), np.zeros(devices), np.ones(devices))
    return BestPlans(plans, t[0], t[1], t[2], t[3], d[0], d[1], times, np.empty(2 * devices + 2))


@compiled
def keep_better_plan(
    costing: Costing, plan: int, devices: Any, points: int, saved_s: Floats, best: BestPlans
) -> None:
    """Replace the best plan of a point by `plan` where its time, DRAM traffic or SRAM (in turn) is less.

    Points with several requests in flight skip a plan that waits, that is, holds bytes in SRAM while another
    device works: other requests need the space. `saved_s` is the time that prefetch saves each array device,
    shape (array devices, points).
    """
    sums, independent, waits, times = (
        costing.sums,
        costing.independent,
        costing.table.waits[plan],
        best.times,
    )
    last, hosts = sums.work_s.shape[0] - 1, independent.hosts_s.shape[0]  # the last node sums the plan
    arrays, shared = sums.work_s.shape[1], sums.shared_bytes[last]
    for p in range(points):
        requests = independent.requests[p]
        if waits and requests > 1.0:
            continue
        dram, sram_peak, work_s = 0.0, 0.0, 0.0
        for d in range(arrays):
            dram += sums.dram_bytes[last, d, p]
            sram_peak = max(sram_peak, sums.sram_peak_bytes[last, d, p])
            work_s += sums.work_s[last, d, p] - saved_s[d, p] + independent.dispatches_s[d, p]
        for h in range(hosts):
            work_s += independent.hosts_s[h, p]
        dram += independent.host_dram[p]
        launches_s = independent.launches_s[p]
        latency = interval = work_s + launches_s
        if not latency < np.inf:  # something does not fit into SRAM; parts of a fusion may be no number
            continue
        if requests > 1.0:
            for d in range(arrays):
                work_s = sums.work_s[last, d, p] - saved_s[d, p]
                times.work_s[d] = work_s + independent.dispatches_s[d, p]
                times.dma_s[d], times.contexts[d] = sums.dma_s[last, d, p], independent.contexts[d, p]
            for h in range(hosts):
                times.work_s[arrays + h] = independent.hosts_s[h, p]
            dram_bytes_per_s = independent.dram_bytes_per_s[p]
            levels_s = shared_levels_s(devices, shared, independent.shared_bytes_per_s, dram_bytes_per_s, p)
            memory_s = max(dram / dram_bytes_per_s, levels_s)
            interval = interval_s(requests, times, launches_s, memory_s, best.bounds)
            latency = max(latency, requests * interval)
        before = (best.interval_s[p], best.latency_s[p], best.dram_bytes[p], best.sram_peak_bytes[p])
        if best.plans[p] >= 0 and not (interval, latency, dram, sram_peak) < before:
            continue
        best.plans[p], best.latency_s[p], best.interval_s[p] = plan, latency, interval
        best.dram_bytes[p], best.sram_peak_bytes[p] = dram, sram_peak
        for d in range(arrays):
            best.work_s[d, p] = sums.work_s[last, d, p] - saved_s[d, p]
            best.dma_s[d, p] = sums.dma_s[last, d, p]
