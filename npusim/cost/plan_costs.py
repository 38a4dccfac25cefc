"""Costs of residency plans at many points: operators are costed once, plans are sums of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.candidate_latency import dma_time_s, fill_beside, overlapped_s, prologue_epilogue_s
from npusim.cost.candidates import CANDIDATE_SIZE, reads_dram, refills
from npusim.cost.interval import DeviceTimes, interval_s
from npusim.cost.jit import compiled, compiled_making_arrays
from npusim.cost.levels import ServedRecord, first_wait_s, shared_bytes, shared_levels_s
from npusim.cost.plan_independent import PlanIndependent
from npusim.cost.plan_table import NO_LEAF
from npusim.cost.rates import Choice, Rate
from npusim.cost.tables import OpRecord, Unit

_DPU, _DSP, _DMA = (int(u) for u in (Unit.DPU, Unit.DSP, Unit.DMA))
_CYCLE, _READ_WAIT, _WRITE_WAIT = int(Rate.CYCLE), int(Rate.READ_WAIT), int(Rate.WRITE_WAIT)
_PAGE_WALK, _BEST, _INDEX = int(Rate.PAGE_WALK), int(Choice.BEST), int(Choice.INDEX)
_TILE_SRAM, _SRAM = int(Rate.TILE_SRAM), int(Rate.SRAM)


# Rows of the table of sums that plans are compared by at each point: these for each array device.
WORK_S, DMA_S, DRAM, _SRAM_PEAK, _SHARED = range(5)
SUMS = 5
# Rows of the table of sums over a row-wise fusion: time of each unit, and of what cannot overlap.
_FUSED_DPU, _FUSED_DSP, _FUSED_DMA, _FUSED_PROLOGUE, _FUSED_REFILL_WAIT, _FUSED_PAGE_WALKS, _FUSED_APART = (
    range(7)
)
FUSED_SUMS = 7
# Rows of the table of what one operator comes to at each point.
_BEST_S, _WAIT_S, _PROLOGUE_EPILOGUE_S, _REFILL_WAIT_S, _PAGE_WALKS_S = range(5)
_ITEM_DPU_S, _ITEM_DMA_S, _ITEM_DRAM, _ITEM_SHARED, _ITEM_SRAM, CANDIDATE = range(5, 11)
TERMS = 11


@compiled
def on_array(op: OpRecord) -> bool:
    """Whether an operator runs on an array device."""
    return bool(op.unit == _DPU or op.unit == _DSP or op.unit == _DMA)


@compiled
def fill_terms(
    found: Any, choices: Any, served: ServedRecord, rates: Any, op: OpRecord, points: int, terms: Any
) -> None:
    """Write down, for each point, what the chosen candidate of one operator comes to, all times it runs."""
    reads, writes, numbers = reads_dram(op), op.c_dram_bytes > 0.0, found.view(np.float64)
    is_served = served.is_any > 0.0
    for p in range(points):
        terms[_BEST_S, p] = choices[_BEST, p]
    for p in range(points):
        terms[CANDIDATE, p] = choices[_INDEX, p]
    for p in range(points):
        wait_s = rates[_READ_WAIT, p] if reads else 0.0
        terms[_WAIT_S, p] = wait_s + (rates[_WRITE_WAIT, p] if writes else 0.0)
    if reads and is_served:
        for p in range(points):
            terms[_WAIT_S, p] = first_wait_s(served, rates, p) + (rates[_WRITE_WAIT, p] if writes else 0.0)
    first: Any = np.int64(0)
    while first < points:  # neighbours mostly take the same candidate
        index, last = int(choices[_INDEX, first]), first + 1
        while last < points and choices[_INDEX, last] == index:
            last += 1
        candidate = found[index]
        fill_beside(numbers, index * CANDIDATE_SIZE, is_served, rates, first, last)
        for p in range(first, last):
            terms[_ITEM_DMA_S, p] = dma_time_s(candidate, rates, p)
        for p in range(first, last):
            terms[_PROLOGUE_EPILOGUE_S, p] = prologue_epilogue_s(candidate, rates, p)
        for p in range(first, last):
            terms[_REFILL_WAIT_S, p] = refills(candidate, rates[_TILE_SRAM, p]) * rates[_READ_WAIT, p]
        for p in range(first, last):
            terms[_PAGE_WALKS_S, p] = candidate.page_walks * rates[_PAGE_WALK, p]
        for p in range(first, last):
            terms[_ITEM_DPU_S, p] = candidate.grid_cycles * rates[_CYCLE, p]
        for p in range(first, last):
            terms[_ITEM_DRAM, p] = candidate.read_bytes + candidate.written_bytes
        near = shared_bytes(served, numbers, index * CANDIDATE_SIZE)
        for p in range(first, last):
            terms[_ITEM_SHARED, p] = near
        for p in range(first, last):
            terms[_ITEM_SRAM, p] = min(candidate.sram_peak_bytes, rates[_SRAM, p])
        first = last
    if op.repeats != 1.0:
        for term in range(_ITEM_SRAM):
            for p in range(points):
                terms[term, p] *= op.repeats


@compiled
def _add_operator(terms: Any, is_row_fused: bool, points: int, sums: Any) -> None:
    """Add one operator to the sums of its device under a plan; of a row-fused one only the waits."""
    for p in range(points):
        sums[WORK_S, p] += terms[_WAIT_S, p] + (0.0 if is_row_fused else terms[_BEST_S, p])
    for p in range(points):
        sums[DRAM, p] += terms[_ITEM_DRAM, p]
    for p in range(points):
        sums[_SRAM_PEAK, p] = max(sums[_SRAM_PEAK, p], terms[_ITEM_SRAM, p])
    for p in range(points):
        sums[DMA_S, p] += terms[_ITEM_DMA_S, p]
    for p in range(points):
        sums[_SHARED, p] += terms[_ITEM_SHARED, p]


@compiled
def add_fused(terms: Any, dsp_s: Any, points: int, fused_sums: Any) -> None:
    """Add one row-fused operator to the sums of its fusion, unit by unit."""
    for p in range(points):
        fused_sums[_FUSED_DPU, p] += terms[_ITEM_DPU_S, p]
    for p in range(points):
        fused_sums[_FUSED_DSP, p] += dsp_s[p]
    for p in range(points):
        fused_sums[_FUSED_DMA, p] += terms[_ITEM_DMA_S, p]
    for p in range(points):
        fused_sums[_FUSED_PROLOGUE, p] += terms[_PROLOGUE_EPILOGUE_S, p]
    for p in range(points):
        fused_sums[_FUSED_REFILL_WAIT, p] += terms[_REFILL_WAIT_S, p]
    for p in range(points):
        fused_sums[_FUSED_PAGE_WALKS, p] += terms[_PAGE_WALKS_S, p]
    for p in range(points):
        fused_sums[_FUSED_APART, p] += terms[_BEST_S, p] - terms[_PAGE_WALKS_S, p]


@compiled
def fused_chain_s(fused_sums: Any, pieces: float, p: int) -> float:
    """Time of a row-wise fusion at a point, in place of the latencies of its operators without waits (s).

    They work at the same time: the units overlap, prologues and epilogues add up. But one of `pieces` blocks
    of rows has to go through all of them, one after the other (filling the pipeline).
    """
    work_s, dma_s = max(fused_sums[_FUSED_DPU, p], fused_sums[_FUSED_DSP, p]), fused_sums[_FUSED_DMA, p]
    fusion_s = overlapped_s(work_s, dma_s, fused_sums[_FUSED_PROLOGUE, p], fused_sums[_FUSED_REFILL_WAIT, p])
    filling_s = (fused_sums[_FUSED_APART, p] - fusion_s) / pieces
    return float(fusion_s + filling_s + fused_sums[_FUSED_PAGE_WALKS, p])


class SumTree(NamedTuple):
    """Sums of a plan, as a tree over its operators: where few change, few sums are made again.

    A node is the sum of `_FANOUT` leaves (`npusim.cost.plan_table.PlanTable.leaf_op`) or nodes below it, in
    their order; the last one is the sum of the plan.
    """

    nodes: Any
    """Sums of each node, lowest level first, float64, shape (nodes, array devices, SUMS, points)."""
    stale: Any
    """Whether each node has to be made again, bool, shape (nodes,)."""
    queue: Any
    """These nodes, int64, shape (nodes,)."""
    fused_sums: Any
    """Scratch, float64, shape (FUSED_SUMS, points)."""


_FANOUT = 64


@compiled_making_arrays
def sum_tree(leaves: int, devices: int, points: int) -> SumTree:
    """Return a tree of sums over so many leaves, none of which is in it yet, for each array device."""
    level = max(1, -(-leaves // _FANOUT))
    count = level
    while level > 1:
        level = -(-level // _FANOUT)
        count += level
    nodes, stale = np.zeros((count, devices, SUMS, points)), np.zeros(count, np.bool_)
    return SumTree(nodes, stale, np.empty(count, np.int64), np.empty((FUSED_SUMS, points)))


@compiled
def mark_stale(tree: SumTree, leaf: int, queued: int) -> int:
    """Have the sums that hold a leaf made again; return how many nodes are queued."""
    return _queue(tree, leaf // _FANOUT, queued) if leaf >= 0 else queued


@compiled
def mark_all_stale(tree: SumTree, leaves: int) -> int:
    """Have all sums made again; return how many nodes are queued."""
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
    tree: SumTree, queued: int, leaf_op: Any, chain_leaf: Any, array_of: Any, row_of: Any, terms: Any,
    dsp_s: Any, arrays: Any, points: int,
) -> None:  # fmt: skip
    """Make the queued nodes again, and those above them.

    Parameters
    ----------
    queued : int
        Nodes of the lowest level that are queued.
    leaf_op, chain_leaf, array_of : array of int64, shape (leaves,), (operators,) and (operators,)
        See `npusim.cost.plan_table.PlanTable`.
    terms : array of float64, shape (rows, TERMS, points)
        Of each row.
    arrays : array of ARCH_DTYPE, shape (array devices,)
        For the blocks of rows of a row-wise fusion.
    """
    below, start, size, done = 0, 0, max(1, -(-leaf_op.shape[0] // _FANOUT)), 0
    while done < queued:
        node = tree.queue[done]
        done += 1
        while node >= start + size:  # the queue has the nodes of a level before those of the next
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
def _add_sums(part: Any, points: int, sums: Any) -> None:
    for d in range(sums.shape[0]):
        for s in range(SUMS):
            for p in range(points):
                if s == _SRAM_PEAK:
                    sums[d, s, p] = max(sums[d, s, p], part[d, s, p])
                else:
                    sums[d, s, p] += part[d, s, p]


@compiled
def keep_better_plan(
    devices: Any, independent: PlanIndependent, sums: Any, plan: int, waits: bool, points: int, best: Any,
    plans: Any, kept: Any, times: DeviceTimes, bounds: Any,
) -> None:  # fmt: skip
    """Compare a plan with the best so far at each point: by time, traffic, then bytes held.

    A plan under which something `waits` in SRAM while another device works is none for points with several
    requests in flight: the others need the room.

    Parameters
    ----------
    devices : array of ARCH_DTYPE, shape (array devices,)
        For the levels that they share.
    sums : array of float64, shape (array devices, SUMS, points)
        Of the plan.
    best : array of TOTAL_DTYPE, shape (points,)
        Written: time, traffic and bytes held under the best plan; the throughput holds the interval between
        two inferences until all plans are compared.
    kept : array of float64, shape (array devices, SUMS, points)
        Written: the sums of the best plan.
    times : DeviceTimes
        Scratch, array devices first; so is `bounds` (`npusim.cost.interval.interval_s`).
    """
    arrays, hosts, shared = sums.shape[0], independent.hosts_s.shape[0], sums[:, _SHARED]
    for p in range(points):
        total, requests = best[p], independent.requests[p]
        if waits and requests > 1.0:
            continue
        dram, sram_peak, work_s = 0.0, 0.0, 0.0
        for d in range(arrays):
            dram += sums[d, DRAM, p]
            sram_peak = max(sram_peak, sums[d, _SRAM_PEAK, p])
            work_s += sums[d, WORK_S, p] + independent.dispatches_s[d, p]
        for h in range(hosts):
            work_s += independent.hosts_s[h, p]
        dram += independent.host_dram[p]
        launches_s = independent.launches_s[p]
        latency = interval = work_s + launches_s
        if not latency < np.inf:  # something does not fit into SRAM; parts of a fusion may be no number
            continue
        if requests > 1.0:
            for d in range(arrays):
                times.work_s[d] = sums[d, WORK_S, p] + independent.dispatches_s[d, p]
                times.dma_s[d], times.contexts[d] = sums[d, DMA_S, p], independent.contexts[d, p]
            for h in range(hosts):
                times.work_s[arrays + h] = independent.hosts_s[h, p]
            dram_bytes_per_s = independent.dram_bytes_per_s[p]
            levels_s = shared_levels_s(devices, shared, independent.shared_bytes_per_s, dram_bytes_per_s, p)
            memory_s = max(dram / dram_bytes_per_s, levels_s)
            interval = interval_s(requests, times, launches_s, memory_s, bounds)
            latency = max(latency, requests * interval)
        if plans[p] >= 0:
            if interval > total.throughput_per_s:
                continue
            if interval == total.throughput_per_s:
                if latency > total.latency_s:
                    continue
                if latency == total.latency_s:
                    if dram > total.dram_bytes:
                        continue
                    if dram == total.dram_bytes and sram_peak >= total.sram_peak_bytes:
                        continue
        plans[p] = plan
        total.latency_s, total.throughput_per_s = latency, interval
        total.dram_bytes, total.sram_peak_bytes = dram, sram_peak
        for d in range(arrays):
            for s in range(SUMS):
                kept[d, s, p] = sums[d, s, p]
