"""Costs of operators at each design point: what no plan changes, and what plans and fusions add up."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.compiling.kernels import compiled, compiled_making_arrays
from npusim.compiling.records import Bools, Floats, Ints
from npusim.cost.lowering.plans import PlanTable
from npusim.cost.lowering.tables import COLUMNS, CONVOLUTION, DSP, HOST, MATMUL, ROWS, WEIGHTS_HELD, OpRecord
from npusim.cost.machine.architecture import Archs
from npusim.cost.tilings.candidates import reads_dram
from npusim.cost.tilings.search import GroupSearch
from npusim.cost.units import rates as laws
from npusim.cost.units.dsp import dsp_time_s
from npusim.cost.units.hosts import cost_host, host_energy_j
from npusim.cost.units.levels import first_wait_s, sourced_bytes
from npusim.cost.units.rates import PAGE_WALK, READ, READ_WAIT, SRAM, TILE_SRAM, WRITE_WAIT, Choices
from npusim.cost.units.resources import CANDIDATE_SIZE, LEVELS, CandidateRecord, dsp_lane_cycles, refills


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
    shared = archs.shared[0]
    for row in range(each.table.shape[0]):
        each.table[row, column] = 0.0
    for d in range(archs.arrays.shape[0]):
        array = archs.arrays[d]
        each.contexts[d, column] = array.contexts
        if array.shared_place > 0.0:
            each.shared_bytes_per_s[d, column] = array.level_bytes_per_s[int(array.shared_place) - 1]
    for o in range(ops.shape[0]):
        op = ops[o]
        d = op.device
        if op.unit == HOST:
            host = archs.hosts[d]
            cost = cost_host(host, op)
            each.hosts_s[d, column] += cost.time_s * op.repeats
            each.hosts_j[d, column] += host_energy_j(host, cost) * op.repeats
            each.host_dram[column] += cost.streamed_bytes * op.repeats
            each.host_moved[column] += (cost.read_bytes + cost.written_bytes) * op.repeats
            each.launches_s[column] += op.launches * host.launch_s
        elif archs.arrays.shape[0] > 0:  # a network of views calls the runtime, too
            array = archs.arrays[d]
            each.launches_s[column] += op.launches * array.launch_s
            each.dispatches_s[d, column] += op.repeats * op.dispatches * array.dispatch_s
            if op.unit == DSP:
                time_s = dsp_time_s(array, op)
                each.dsp_s[o, column] = time_s
                each.dsps_s[d, column] += op.repeats * time_s
                each.lane_cycles[d, column] += op.repeats * dsp_lane_cycles(array, op, time_s)
    each.requests[column] = shared.requests
    each.dram_bytes_per_s[column] = shared.dram_bytes_per_s if shared.requests > 1.0 else 1.0


class Terms(NamedTuple):
    """Costs of one run of each row of a plan table under its chosen mapping; shape (rows, columns).

    `best_s` is the latency without the common wait for a first byte, `wait_s` that wait. Its parts: time of
    the grid (`dpu_s`), of the first piece in and the last out (`exposed_s`, of which `known_s` can be
    prefetched), of all transfers (`dma_s`), waits of refills and pauses. Prefetch over operators reads the
    last four (`npusim.cost.network.prefetch`): the stall that it can save, the room in SRAM for weights of
    later operators and for its own, and the SRAM that a second of its transfers takes.
    """

    is_filled: Bools
    """Whether a row has its costs, shape (rows,)."""
    candidate: Ints
    """Place of the mapping in the table of candidates."""
    best_s: Floats
    wait_s: Floats
    dpu_s: Floats
    exposed_s: Floats
    known_s: Floats
    refill_wait_s: Floats
    pauses_s: Floats
    dma_s: Floats
    dram_bytes: Floats
    shared_bytes: Floats
    """Bytes through the level that devices share, DRAM's included."""
    sram_peak_bytes: Floats
    stall_s: Floats
    room_bytes: Floats
    own_room_bytes: Floats
    held_bytes_per_s: Floats


@compiled_making_arrays
def new_terms(rows: int, columns: int) -> Terms:
    """Return empty storage for the costs of rows."""
    t, candidate = np.zeros((15, rows, columns)), np.zeros((rows, columns), np.int64)
    costs = (t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10], t[11], t[12], t[13], t[14])
    return Terms(np.zeros(rows, np.bool_), candidate, *costs)


class Sums(NamedTuple):
    """Sums over the operators of a plan, in blocks: few changes need few new sums.

    A node sums `FANOUT` leaves (`npusim.cost.lowering.plans.PlanTable.leaf_op`) or nodes below it, in their
    order, lowest level first. The last node sums the plan.
    """

    table: Floats
    """All sums, shape (sums, nodes, array devices, columns); the others are its first places."""
    work_s: Floats
    """Latencies with waits, calls of the NPU apart; shape (nodes, array devices, columns)."""
    dma_s: Floats
    dram_bytes: Floats
    shared_bytes: Floats
    stalls_s: Floats
    sram_peak_bytes: Floats
    """The largest."""
    is_stale: Bools
    """Whether a node of the lowest level has to be summed again, shape (nodes,)."""


FANOUT = 64
ROOT = -1
"""Place of the node that sums the whole plan: the last one."""


@compiled_making_arrays
def new_sums(leaves: int, devices: int, columns: int) -> Sums:
    """Return storage for sums over `leaves` leaves, for each array device."""
    level = max(1, -(-leaves // FANOUT))
    count = level
    while level > 1:
        level = -(-level // FANOUT)
        count += level
    t = np.zeros((6, count, devices, columns))
    return Sums(t, t[0], t[1], t[2], t[3], t[4], t[5], np.zeros(count, np.bool_))


class Costing(NamedTuple):
    """Costs of rows, and their sums over a plan: of the columns of a batch, or lower bounds in one column."""

    table: PlanTable
    search: GroupSearch
    independent: PlanIndependent
    terms: Terms
    sums: Sums
    row_of: Ints
    """Row of each operator under the latest plan."""
    plan_state: Ints
    """Family of the latest plan that was summed, and operators that do not fit under the latest one."""


@compiled_making_arrays
def new_costing(
    table: PlanTable, search: GroupSearch, independent: PlanIndependent, arrays: int, columns: int
) -> Costing:
    """Return empty storage for costs of rows in so many columns."""
    terms, sums = new_terms(table.rows.shape[0], columns), new_sums(table.leaf_op.shape[1], arrays, columns)
    row_of, plan_state = np.empty(table.fused_chains.shape[1], np.int64), np.zeros(2, np.int64)
    return Costing(table, search, independent, terms, sums, row_of, plan_state)


@compiled
def fill_terms(
    costing: Costing, r: int, choices: Choices, rates: Floats, is_prefetching: bool, points: int
) -> None:
    """Write the costs of the chosen candidates of row `r` at each point.

    `is_prefetching` tells whether the device fetches weights over operators (`npusim.cost.network.prefetch`).
    """
    terms, op, served = costing.terms, costing.table.rows[r], costing.search.served[r]
    candidates, is_served, writes = costing.search.candidates, served.is_any > 0.0, op.c_dram_bytes > 0.0
    numbers = candidates.view(np.float64)
    for p in range(points):
        terms.best_s[r, p] = choices.best_s[p]
    for p in range(points):
        terms.candidate[r, p] = choices.candidate[p]
    for p in range(points):
        wait_s = rates[READ_WAIT, p] if reads_dram(op) else 0.0
        if is_served and reads_dram(op):
            wait_s = first_wait_s(served, rates, p)
        terms.wait_s[r, p] = wait_s + (rates[WRITE_WAIT, p] if writes else 0.0)
    first: Any = np.int64(0)
    while first < points:  # neighbours mostly have the same candidate
        index, last = choices.candidate[first], first + 1
        while last < points and choices.candidate[last] == index:
            last += 1
        candidate, at = candidates[index], index * CANDIDATE_SIZE
        laws.fill_beside(numbers, at, is_served, rates, first, last)
        for p in range(first, last):
            terms.dma_s[r, p] = laws.dma_time_s(candidate, rates, p)
        for p in range(first, last):
            terms.exposed_s[r, p] = laws.prologue_epilogue_s(candidate, rates, p)
        for p in range(first, last):
            terms.known_s[r, p] = candidate.known_bytes * rates[READ, p]
        for p in range(first, last):
            terms.refill_wait_s[r, p] = refills(candidate, rates[TILE_SRAM, p]) * rates[READ_WAIT, p]
        for p in range(first, last):
            pause_s = candidate.restarts * laws.restart_s(rates, p)
            terms.pauses_s[r, p] = candidate.page_walks * rates[PAGE_WALK, p] + pause_s
        for p in range(first, last):
            terms.dpu_s[r, p] = candidate.grid_cycles * rates[laws.CYCLE, p]
        for p in range(first, last):
            terms.dram_bytes[r, p] = candidate.read_bytes + candidate.written_bytes
            if is_served:
                terms.dram_bytes[r, p] += sourced_bytes(numbers, at, rates, p, LEVELS)
        for p in range(first, last):
            terms.shared_bytes[r, p] = terms.dram_bytes[r, p]
            if is_served:
                shared_level = int(served.shared_place) - 1
                terms.shared_bytes[r, p] += sourced_bytes(numbers, at, rates, p, shared_level)
        for p in range(first, last):
            sram_peak_bytes = min(candidate.sram_peak_bytes, rates[SRAM, p])
            terms.sram_peak_bytes[r, p] = sram_peak_bytes - op.reserved_bytes
        for p in range(first, last if is_prefetching else first):
            _fill_prefetch(costing, candidate, rates, r, p)
        first = last


@compiled
def _fill_prefetch(costing: Costing, candidate: CandidateRecord, rates: Floats, row: int, point: int) -> None:
    """Write the stall that prefetch can save in a candidate's first run, and the SRAM it takes.

    Prefetch saves the stall, but at most one pass over operands that exist before the inference. Weights of
    other operators take the room that the candidate leaves (`_free_bytes`); its own lie in its buffers where
    its tiling fills them once.
    """
    terms, op, served = costing.terms, costing.table.rows[row], costing.search.served[row]
    a_bytes = (op.a_triangle_bytes if op.triangle else op.a_dram_bytes) if op.a_prefetch else 0.0
    b_bytes = op.b_dram_bytes if op.b_prefetch else 0.0
    read_s = (a_bytes + b_bytes) * (1.0 - served.first_share) * rates[READ, point]
    work_s, dma_s = max(terms.dpu_s[row, point], rates[laws.DSP, point]), terms.dma_s[row, point]
    exposed_s, refills_s = terms.exposed_s[row, point], terms.refill_wait_s[row, point]
    stall_s = laws.stall_s(work_s, dma_s, exposed_s, terms.known_s[row, point], refills_s)
    terms.stall_s[row, point] = min(read_s, stall_s)
    # Waits of refills cost nothing while they and half of work and transfers take less than the latency
    # (`overlapped_s`).
    slack_s = terms.best_s[row, point] - terms.pauses_s[row, point] - 0.5 * (work_s + dma_s)
    peak_bytes = terms.sram_peak_bytes[row, point]
    room_bytes = max(0.0, _free_bytes(candidate, op, peak_bytes, slack_s, rates, point))
    terms.room_bytes[row, point] = room_bytes
    fills_once = _is_product(op) and _fills_once(candidate, a_bytes, b_bytes)
    terms.own_room_bytes[row, point] = np.inf if fills_once else room_bytes
    held_bytes = _prefetched_bytes(candidate, op, a_bytes, b_bytes)
    # Without reads nothing is prefetched, and any number will do.
    terms.held_bytes_per_s[row, point] = held_bytes / read_s if read_s > 0.0 else 1.0


@compiled
def _is_product(op: OpRecord) -> bool:
    """Return whether an operator is a matrix product or a convolution."""
    return bool(op.dpu_operation == MATMUL or op.dpu_operation == CONVOLUTION)


@compiled
def _prefetched_bytes(candidate: CandidateRecord, op: OpRecord, a_bytes: float, b_bytes: float) -> float:
    """Return the SRAM of all tiles that prefetched operands take.

    Tiles that divide the columns of a product hold all of its activations each, those that divide its rows
    all of its weights.
    """
    a_copies = candidate.tiles if _is_product(op) and candidate.split == COLUMNS else 1.0
    b_copies = candidate.tiles if _is_product(op) and candidate.split == ROWS else 1.0
    return float(a_bytes * a_copies + b_bytes * b_copies)


@compiled
def _fills_once(candidate: CandidateRecord, a_bytes: float, b_bytes: float) -> bool:
    """Return whether a product fills its buffers of the prefetched operands (bytes) only once."""
    if candidate.channel_chunks != 1.0 or candidate.strips != 1.0:
        return False
    if candidate.order == WEIGHTS_HELD:
        return bool(candidate.column_blocks == 1.0 and a_bytes == 0.0)
    return bool(candidate.row_blocks == 1.0 and b_bytes == 0.0)


@compiled
def _free_bytes(
    candidate: CandidateRecord, op: OpRecord, peak_bytes: float, slack_s: float, rates: Floats, p: int
) -> float:
    """Return the SRAM of all tiles that a candidate leaves to weights of later operators.

    Half of the buffers of results counts again: one result is written while two are made. The streamed
    operand keeps buffers that are long enough for the wait of each refill: `slack_s` is the part of the
    latency that these waits may fill.
    """
    tiles, free_bytes = rates[SRAM, p] / rates[TILE_SRAM, p], rates[SRAM, p] - peak_bytes
    if op.c_dram_bytes > 0.0:
        c_share = op.c_dram_bytes / (op.c_dram_bytes + op.a_dram_bytes)
        streaming_bytes = peak_bytes + op.reserved_bytes - tiles * candidate.held_bytes
        free_bytes -= 0.5 * c_share * max(0.0, streaming_bytes)
    if candidate.streamed_bytes > 0.0:
        wait_s = rates[READ_WAIT, p]
        buffer_bytes = candidate.streamed_bytes * wait_s / slack_s if slack_s > 0.0 else np.inf
        unused_bytes = rates[TILE_SRAM, p] - candidate.held_bytes - buffer_bytes
        free_bytes = min(free_bytes, tiles * unused_bytes + op.reserved_bytes)
    return float(free_bytes)
