"""Costs of residency plans at many points, and the time between two inferences.

Operators are costed once, plans are sums of them. Hosts, calls of runtimes and DSPs cost the same under every
plan (`PlanIndependent`). Plans are compared by the time between two inferences (`interval_s`), which engines
and placements use too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.compiling.kernels import compiled, compiled_making_arrays
from npusim.compiling.records import Bools, Floats, Ints
from npusim.cost.lowering.plans import NO_LEAF, PlanTable
from npusim.cost.lowering.tables import Unit
from npusim.cost.machine.architecture import Archs
from npusim.cost.network.terms import Terms, fused_s, fused_work
from npusim.cost.tilings.search import fits
from npusim.cost.units.dsp import dsp_time_s
from npusim.cost.units.hosts import cost_host, host_energy_j
from npusim.cost.units.levels import shared_levels_s
from npusim.cost.units.resources import dsp_lane_cycles


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


@compiled_making_arrays
def plan_independent(arrays: int, hosts: int, operators: int, points: int) -> PlanIndependent:
    """Return empty tables of a size."""
    of_hosts = 5 + 5 * arrays
    of_operators = of_hosts + 2 * hosts
    table = np.empty((of_operators + operators, points))
    return PlanIndependent(
        table=table,
        requests=table[0],
        dram_bytes_per_s=table[1],
        launches_s=table[2],
        host_dram=table[3],
        host_moved=table[4],
        contexts=table[5 : 5 + arrays],
        shared_bytes_per_s=table[5 + arrays : 5 + 2 * arrays],
        dispatches_s=table[5 + 2 * arrays : 5 + 3 * arrays],
        dsps_s=table[5 + 3 * arrays : 5 + 4 * arrays],
        lane_cycles=table[5 + 4 * arrays : of_hosts],
        hosts_s=table[of_hosts : of_hosts + hosts],
        hosts_j=table[of_hosts + hosts : of_operators],
        dsp_s=table[of_operators:],
    )


@compiled
def fill_independent(archs: Archs, ops: Any, each: PlanIndependent, column: int) -> None:
    """Write the costs of a point that are equal under all plans into a column.

    `ops` are the operators under any one plan, array of OP_DTYPE.
    """
    shared = archs.shared[0, 0]
    for row in range(each.table.shape[0]):
        each.table[row, column] = 0.0
    for d in range(archs.arrays.shape[1]):
        array = archs.arrays[0, d]
        each.contexts[d, column] = array.contexts
        if array.shared_place > 0.0:
            each.shared_bytes_per_s[d, column] = array.level_bytes_per_s[int(array.shared_place) - 1]
    for o in range(ops.shape[0]):
        op = ops[o]
        d = op.device
        if op.unit == _HOST:
            host = archs.hosts[0, d]
            cost = cost_host(host, op)
            each.hosts_s[d, column] += cost.time_s * op.repeats
            each.hosts_j[d, column] += host_energy_j(host, cost) * op.repeats
            each.host_dram[column] += cost.streamed_bytes * op.repeats
            each.host_moved[column] += (cost.read_bytes + cost.written_bytes) * op.repeats
            each.launches_s[column] += op.launches * host.launch_s
        elif archs.arrays.shape[1] > 0:  # a network of views calls the runtime, too
            array = archs.arrays[0, d]
            each.launches_s[column] += op.launches * array.launch_s
            each.dispatches_s[d, column] += op.repeats * op.dispatches * array.dispatch_s
            if op.unit == _DSP:
                time_s = dsp_time_s(array, op)
                each.dsp_s[o, column] = time_s
                each.dsps_s[d, column] += op.repeats * time_s
                each.lane_cycles[d, column] += op.repeats * dsp_lane_cycles(array, op, time_s)
    each.requests[column] = shared.requests
    each.dram_bytes_per_s[column] = shared.dram_bytes_per_s if shared.requests > 1.0 else 1.0


class Sums(NamedTuple):
    """Sums over operators, shape (nodes, array devices, columns)."""

    work_s: Floats
    """Latencies with waits, calls of the NPU apart."""
    dma_s: Floats
    dram_bytes: Floats
    shared_bytes: Floats
    stalls_s: Floats
    sram_peak_bytes: Floats
    """The largest."""


@compiled_making_arrays
def new_sums(nodes: int, devices: int, columns: int) -> Sums:
    """Return storage for sums."""
    each = np.zeros((6, nodes, devices, columns))
    return Sums(each[0], each[1], each[2], each[3], each[4], each[5])


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
def _add(scale: float, terms: Floats, sums: Floats, points: int) -> None:
    """Add the scaled terms of an operator to the sums at the first points."""
    for p in range(points):
        sums[p] += scale * terms[p]


@compiled
def _add_operator(
    terms: Terms, r: int, repeats: float, is_row_fused: bool, points: int, sums: Sums, node: int, d: int
) -> None:
    """Add all runs of an operator to the sums of its device; a row-fused one adds its waits alone."""
    _add(repeats, terms.dma_s[r], sums.dma_s[node, d], points)
    _add(repeats, terms.dram_bytes[r], sums.dram_bytes[node, d], points)
    _add(repeats, terms.shared_bytes[r], sums.shared_bytes[node, d], points)
    _add(1.0, terms.stall_s[r], sums.stalls_s[node, d], points)  # the first run alone can be prefetched
    work_s, wait_s, best_s = sums.work_s[node, d], terms.wait_s[r], terms.best_s[r]
    for p in range(points):
        work_s[p] += repeats * wait_s[p] + (0.0 if is_row_fused else repeats * best_s[p])
    _raise_to(terms.sram_peak_bytes[r], sums.sram_peak_bytes[node, d], points)


@compiled
def _raise_to(bytes_: Floats, peaks: Floats, points: int) -> None:
    for p in range(points):
        peaks[p] = max(peaks[p], bytes_[p])


class SumTree(NamedTuple):
    """Sums of a plan as a tree over its operators: few changes need few new sums.

    A node sums `_FANOUT` leaves (`npusim.cost.lowering.plans.PlanTable.leaf_op`) or nodes below it, in their
    order, lowest level first. The last node sums the plan.
    """

    sums: Sums
    stale: Bools
    queue: Ints


_FANOUT = 64


@compiled_making_arrays
def sum_tree(leaves: int, devices: int, columns: int) -> SumTree:
    """Return an empty tree of sums over `leaves` leaves, for each array device."""
    level = max(1, -(-leaves // _FANOUT))
    count = level
    while level > 1:
        level = -(-level // _FANOUT)
        count += level
    return SumTree(new_sums(count, devices, columns), np.zeros(count, np.bool_), np.empty(count, np.int64))


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
    terms: Terms,
    dsp_s: Floats,
    arrays: Any,
    points: int,
) -> None:
    """Recompute the queued nodes and all nodes above them from `terms`.

    The first `queued` nodes of the queue belong to the lowest level. `arrays` (ARCH_DTYPE) gives the blocks
    of rows of a row-wise fusion.
    """
    leaf_op, sums = table.leaf_op[family], tree.sums
    below, start, size, done = 0, 0, max(1, -(-leaf_op.shape[0] // _FANOUT)), 0
    while done < queued:
        node = tree.queue[done]
        done += 1
        while node >= start + size:  # the queue is ordered by level
            below, start, size = start, start + size, -(-size // _FANOUT)
        _clear(sums, node)
        first = (node - start) * _FANOUT
        if start > 0:
            for child in range(below + first, min(below + first + _FANOUT, start)):
                _add_node(sums, child, node, points)
        else:
            for leaf in range(first, min(first + _FANOUT, leaf_op.shape[0])):
                op = leaf_op[leaf]
                if op >= 0:
                    r, is_fused = row_of[op], table.chain_leaf[family, op] >= 0
                    repeats = table.rows[r].repeats
                    _add_operator(terms, r, repeats, is_fused, points, sums, node, table.array_of[op])
                elif op != NO_LEAF:
                    members = leaf_op[leaf + op : leaf]
                    device = table.array_of[members[0]]
                    work_s, pieces = sums.work_s[node, device], arrays[device].stream_pieces
                    for p in range(points):
                        work = fused_work(table.rows, members, row_of, terms, dsp_s, p)
                        work_s[p] += fused_s(work, pieces)
        tree.stale[node] = False
        if size > 1:
            queued = _queue(tree, start + size + (node - start) // _FANOUT, queued)


@compiled
def _clear(sums: Sums, node: int) -> None:
    sums.work_s[node] = sums.dma_s[node] = sums.dram_bytes[node] = 0.0
    sums.shared_bytes[node] = sums.stalls_s[node] = sums.sram_peak_bytes[node] = 0.0


@compiled
def _add_node(sums: Sums, child: int, node: int, points: int) -> None:
    """Add the sums of a node to those of the node above it."""
    for d in range(sums.work_s.shape[1]):
        _add(1.0, sums.work_s[child, d], sums.work_s[node, d], points)
        _add(1.0, sums.dma_s[child, d], sums.dma_s[node, d], points)
        _add(1.0, sums.dram_bytes[child, d], sums.dram_bytes[node, d], points)
        _add(1.0, sums.shared_bytes[child, d], sums.shared_bytes[node, d], points)
        _add(1.0, sums.stalls_s[child, d], sums.stalls_s[node, d], points)
        _raise_to(sums.sram_peak_bytes[child, d], sums.sram_peak_bytes[node, d], points)


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


@compiled_making_arrays
def new_best_plans(arrays: int, columns: int) -> BestPlans:
    """Return storage for the best plans of columns."""
    each, of_arrays = np.empty((4, columns)), np.empty((2, arrays, columns))
    plans = np.empty(columns, np.int64)
    return BestPlans(plans, each[0], each[1], each[2], each[3], of_arrays[0], of_arrays[1])


@compiled
def keep_better_plan(
    devices: Any,
    independent: PlanIndependent,
    sums: Sums,
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
            interval = interval_s(requests, times, launches_s, memory_s, bounds)
            latency = max(latency, requests * interval)
        before = (best.interval_s[p], best.latency_s[p], best.dram_bytes[p], best.sram_peak_bytes[p])
        if best.plans[p] >= 0 and not (interval, latency, dram, sram_peak) < before:
            continue
        best.plans[p], best.latency_s[p], best.interval_s[p] = plan, latency, interval
        best.dram_bytes[p], best.sram_peak_bytes[p] = dram, sram_peak
        for d in range(arrays):
            best.work_s[d, p] = sums.work_s[last, d, p] - saved_s[d, p]
            best.dma_s[d, p] = sums.dma_s[last, d, p]
