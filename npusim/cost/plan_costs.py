"""Costs of residency plans at many points, and the time between two inferences.

Operators are costed once, plans are sums of them. Hosts, calls of runtimes and DSPs cost the same under every
plan (`PlanIndependent`). Plans are compared by the time between two inferences (`interval_s`), which engines
and placements use too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.architecture import Archs
from npusim.cost.dsp import dsp_time_s
from npusim.cost.hosts import cost_host, host_energy_j
from npusim.cost.kernels import compiled, compiled_making_arrays
from npusim.cost.levels import shared_levels_s
from npusim.cost.plans import NO_LEAF, PlanTable
from npusim.cost.records import Bools, Floats, Ints
from npusim.cost.resources import dsp_lane_cycles
from npusim.cost.search import fits
from npusim.cost.tables import OpRecord, Unit
from npusim.cost.terms import BEST_S, DMA_TERM_S, FUSED_SUMS, SRAM_TERM, WAIT_S, add_fused, fused_chain_s


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


_DPU, _DSP, _DMA, _HOST = (int(unit) for unit in (Unit.DPU, Unit.DSP, Unit.DMA, Unit.HOST))


class PlanIndependent(NamedTuple):
    """Costs of points under every plan; the last axis is the points.

    First come rows of the machine, then rows by array device (contexts, bandwidth of its shared level, calls
    of DSPs and DMA engines, time of DSPs, cycles of DSP lanes), by host (time, energy beyond idle), and by
    operator (time of the DSPs).
    """

    table: Floats
    """All rows; the others are views of them."""
    requests: Floats
    dram_bytes_per_s: Floats
    """Bandwidth of DRAM; 1 with one request in flight, where plans do not depend on it."""
    launches_s: Floats
    host_dram: Floats
    """Bytes between DRAM and hosts that take time."""
    host_moved: Floats
    """All bytes between DRAM and hosts."""
    contexts: Floats
    shared_bytes_per_s: Floats
    """Bandwidth of the shared memory level, by array device; 0 for none."""
    dispatches_s: Floats
    dsps_s: Floats
    lane_cycles: Floats
    hosts_s: Floats
    hosts_j: Floats
    dsp_s: Floats


_TOGETHER, _OF_ARRAY, _OF_HOST = 5, 5, 2
"""Rows of all devices together, of an array device, of a host."""


@compiled_making_arrays
def plan_independent(arrays: int, hosts: int, operators: int, points: int) -> PlanIndependent:
    """Return empty tables of a size."""
    a, h = _TOGETHER + _OF_ARRAY * arrays, _TOGETHER + _OF_ARRAY * arrays + _OF_HOST * hosts
    table = np.empty((h + operators, points))
    return PlanIndependent(
        table,
        table[0],
        table[1],
        table[2],
        table[3],
        table[4],
        table[5 : 5 + arrays],
        table[5 + arrays : 5 + 2 * arrays],
        table[5 + 2 * arrays : 5 + 3 * arrays],
        table[5 + 3 * arrays : 5 + 4 * arrays],
        table[5 + 4 * arrays : a],
        table[a : a + hosts],
        table[a + hosts : h],
        table[h:],
    )


@compiled
def fill_independent(archs: Archs, ops: Any, table: Floats, column: int) -> None:
    """Write the costs of a point that are equal under all plans into a column of `PlanIndependent.table`.

    `ops` are the operators under any one plan, array of OP_DTYPE.
    """
    # One array in place of the views: numba counts references to each array in a call.
    arrays, hosts, shared = archs.arrays.shape[1], archs.hosts.shape[1], archs.shared[0, 0]
    dispatches, dsps, lanes = _TOGETHER + 2 * arrays, _TOGETHER + 3 * arrays, _TOGETHER + 4 * arrays
    hosts_s, hosts_j = _TOGETHER + _OF_ARRAY * arrays, _TOGETHER + _OF_ARRAY * arrays + hosts
    launches_s = host_dram = host_moved = 0.0
    for row in range(table.shape[0]):
        table[row, column] = 0.0
    for d in range(arrays):
        array = archs.arrays[0, d]
        table[_TOGETHER + d, column] = array.contexts
        if array.shared_place > 0.0:
            level = int(array.shared_place) - 1
            table[_TOGETHER + arrays + d, column] = array.level_bytes_per_s[level]
    for o in range(ops.shape[0]):
        op = ops[o]
        d = op.device
        if op.unit == _HOST:
            host = archs.hosts[0, d]
            cost = cost_host(host, op)
            table[hosts_s + d, column] += cost.time_s * op.repeats
            table[hosts_j + d, column] += host_energy_j(host, cost) * op.repeats
            host_dram += cost.streamed_bytes * op.repeats
            host_moved += (cost.read_bytes + cost.written_bytes) * op.repeats
            launches_s += op.launches * host.launch_s
        elif arrays > 0:  # a network of views calls the runtime, too
            array = archs.arrays[0, d]
            launches_s += op.launches * array.launch_s
            table[dispatches + d, column] += op.repeats * op.dispatches * array.dispatch_s
            if op.unit == _DSP:
                time = dsp_time_s(array, op)
                table[hosts_j + hosts + o, column] = time
                table[dsps + d, column] += op.repeats * time
                table[lanes + d, column] += op.repeats * dsp_lane_cycles(array, op, time)
    table[0, column] = shared.requests
    table[1, column] = shared.dram_bytes_per_s if shared.requests > 1.0 else 1.0
    table[2, column], table[3, column], table[4, column] = launches_s, host_dram, host_moved


DMA_S, DRAM, SHARED, STALLS_S, WORK_S, _SRAM_PEAK = range(6)
SUMS = 6
"""Rows of the sums over a plan, for each array device; the first four sum the terms from `DMA_TERM_S` on."""


@compiled
def change_rows(table: PlanTable, row_starts: Ints, plan: int, unfit: int, row_of: Ints) -> int:
    """Switch operators to their rows under the next plan; return how many operators do not fit into SRAM."""
    for c in range(table.change_start[plan], table.change_start[plan + 1]):
        o, r = table.changes[c, 0], table.changes[c, 1]
        if row_of[o] >= 0 and not fits(table.rows[row_of[o]], row_starts, row_of[o]):
            unfit -= 1
        if not fits(table.rows[r], row_starts, r):
            unfit += 1
        row_of[o] = r
    return unfit


@compiled
def on_array(op: OpRecord) -> bool:
    """Whether an operator runs on an array device."""
    return bool(op.unit == _DPU or op.unit == _DSP or op.unit == _DMA)


@compiled
def _add_operator(terms: Floats, is_row_fused: bool, points: int, sums: Floats) -> None:
    """Add one operator to the sums of its device; the latency of a row-fused one is its waits alone."""
    for s in range(STALLS_S + 1):
        for p in range(points):
            sums[s, p] += terms[DMA_TERM_S + s, p]
    for p in range(points):
        sums[WORK_S, p] += terms[WAIT_S, p] + (0.0 if is_row_fused else terms[BEST_S, p])
    for p in range(points):
        sums[_SRAM_PEAK, p] = max(sums[_SRAM_PEAK, p], terms[SRAM_TERM, p])


class SumTree(NamedTuple):
    """Sums of a plan as a tree over its operators: few changes need few new sums.

    A node sums `_FANOUT` leaves (`npusim.cost.plans.PlanTable.leaf_op`) or nodes below it, in their order.
    The last node sums the plan.
    """

    nodes: Floats
    """Sums of each node, lowest level first, shape (nodes, array devices, SUMS, points)."""
    stale: Bools
    queue: Ints
    fused_sums: Floats
    """Scratch, shape (FUSED_SUMS, points)."""


_FANOUT = 64


@compiled_making_arrays
def sum_tree(leaves: int, devices: int, points: int) -> SumTree:
    """Return an empty tree of sums over `leaves` leaves, for each array device."""
    level = max(1, -(-leaves // _FANOUT))
    count = level
    while level > 1:
        level = -(-level // _FANOUT)
        count += level
    nodes, stale = np.zeros((count, devices, SUMS, points)), np.zeros(count, np.bool_)
    return SumTree(nodes, stale, np.empty(count, np.int64), np.empty((FUSED_SUMS, points)))


@compiled
def mark_stale(tree: SumTree, leaf: int, queued: int) -> int:
    """Queue the node above a leaf for recomputation; return the length of the queue."""
    return _queue(tree, leaf // _FANOUT, queued) if leaf >= 0 else queued


@compiled
def mark_all_stale(tree: SumTree, leaves: int) -> int:
    """Queue all nodes of the lowest level for recomputation; return the length of the queue."""
    queued = 0
    for node in range(max(1, -(-leaves // _FANOUT))):
        queued = _queue(tree, node, queued)
    return queued


@compiled
def _queue(tree: SumTree, node: int, queued: int) -> int:
    if tree.stale[node]:
        return queued
    tree.stale[node] = True
    tree.queue[queued] = node
    return queued + 1


@compiled
def add_up(
    tree: SumTree,
    queued: int,
    table: PlanTable,
    family: int,
    row_of: Ints,
    terms: Floats,
    dsp_s: Floats,
    arrays: Any,
    points: int,
) -> None:
    """Recompute the queued nodes and all nodes above them from `terms`, shape (rows, TERMS, points).

    The first `queued` nodes of the queue belong to the lowest level. `arrays` (ARCH_DTYPE) gives the blocks
    of rows of a row-wise fusion.
    """
    leaf_op, chain_leaf, array_of = table.leaf_op[family], table.chain_leaf[family], table.array_of
    below, start, size, done = 0, 0, max(1, -(-leaf_op.shape[0] // _FANOUT)), 0
    while done < queued:
        node = tree.queue[done]
        done += 1
        while node >= start + size:  # the queue is ordered by level
            below, start, size = start, start + size, -(-size // _FANOUT)
        sums = tree.nodes[node]
        sums[:] = 0.0
        first = (node - start) * _FANOUT
        if start > 0:
            for child in range(below + first, min(below + first + _FANOUT, start)):
                _add_sums(tree.nodes[child], points, sums)
        else:
            for leaf in range(first, min(first + _FANOUT, leaf_op.shape[0])):
                op = leaf_op[leaf]
                if op >= 0:
                    _add_operator(terms[row_of[op]], chain_leaf[op] >= 0, points, sums[array_of[op]])
                elif op != NO_LEAF:
                    fused_sums = tree.fused_sums
                    fused_sums[:] = 0.0
                    for member in range(leaf + op, leaf):
                        o = leaf_op[member]
                        add_fused(terms[row_of[o]], dsp_s[o], points, fused_sums)
                    device = array_of[leaf_op[leaf - 1]]
                    pieces = arrays[device].stream_pieces
                    for p in range(points):
                        sums[device, WORK_S, p] += fused_chain_s(fused_sums, pieces, p)
        tree.stale[node] = False
        if size > 1:
            queued = _queue(tree, start + size + (node - start) // _FANOUT, queued)


@compiled
def _add_sums(part: Floats, points: int, sums: Floats) -> None:
    for d in range(sums.shape[0]):
        for s in range(SUMS):
            for p in range(points):
                if s == _SRAM_PEAK:
                    sums[d, s, p] = max(sums[d, s, p], part[d, s, p])
                else:
                    sums[d, s, p] += part[d, s, p]


class BestPlans(NamedTuple):
    """The best residency plan of each column of a batch."""

    totals: Any
    """Array of TOTAL_DTYPE; its throughput is the interval between inferences (s) until all plans are
    compared."""
    plans: Ints
    """Number of the plan; -1 where none fits."""
    sums: Floats
    """Sums, shape (array devices, SUMS, columns)."""


@compiled
def keep_better_plan(
    devices: Any,
    independent: PlanIndependent,
    sums: Floats,
    plan: int,
    waits: bool,
    points: int,
    best: BestPlans,
    times: DeviceTimes,
    bounds: Floats,
    saved_s: Floats,
) -> None:
    """Replace the best plan of a point by `plan` where its time, DRAM traffic or SRAM (in turn) is less.

    Points with several requests in flight skip a plan that `waits`, that is, holds bytes in SRAM while
    another device works: other requests need the space. `times` and `bounds` are scratch (`interval_s`).
    `saved_s` is the time that prefetch saves each array device, shape (array devices, points).
    """
    arrays, hosts, shared = sums.shape[0], independent.hosts_s.shape[0], sums[:, SHARED]
    for p in range(points):
        total, requests = best.totals[p], independent.requests[p]
        if waits and requests > 1.0:
            continue
        dram, sram_peak, work_s = 0.0, 0.0, 0.0
        for d in range(arrays):
            dram += sums[d, DRAM, p]
            sram_peak = max(sram_peak, sums[d, _SRAM_PEAK, p])
            work_s += sums[d, WORK_S, p] - saved_s[d, p] + independent.dispatches_s[d, p]
        for h in range(hosts):
            work_s += independent.hosts_s[h, p]
        dram += independent.host_dram[p]
        launches_s = independent.launches_s[p]
        latency = interval = work_s + launches_s
        if not latency < np.inf:  # something does not fit into SRAM; parts of a fusion may be no number
            continue
        if requests > 1.0:
            for d in range(arrays):
                times.work_s[d] = sums[d, WORK_S, p] - saved_s[d, p] + independent.dispatches_s[d, p]
                times.dma_s[d], times.contexts[d] = sums[d, DMA_S, p], independent.contexts[d, p]
            for h in range(hosts):
                times.work_s[arrays + h] = independent.hosts_s[h, p]
            dram_bytes_per_s = independent.dram_bytes_per_s[p]
            levels_s = shared_levels_s(devices, shared, independent.shared_bytes_per_s, dram_bytes_per_s, p)
            memory_s = max(dram / dram_bytes_per_s, levels_s)
            interval = interval_s(requests, times, launches_s, memory_s, bounds)
            latency = max(latency, requests * interval)
        ranks = (interval, latency, dram, sram_peak)
        if best.plans[p] >= 0 and not ranks < (
            total.throughput_per_s,
            total.latency_s,
            total.dram_bytes,
            total.sram_peak_bytes,
        ):
            continue
        best.plans[p] = plan
        total.latency_s, total.throughput_per_s = latency, interval
        total.dram_bytes, total.sram_peak_bytes = dram, sram_peak
        for d in range(arrays):
            for s in range(SUMS):
                best.sums[d, s, p] = sums[d, s, p]
            best.sums[d, WORK_S, p] -= saved_s[d, p]
