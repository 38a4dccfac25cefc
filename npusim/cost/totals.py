"""Costs of each operator at one design point, and totals of a network at many points.

Both use the same candidates, rates and vectors of demands (`npusim.cost.resources`), from which traffic, busy
times and energy follow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.architecture import Archs
from npusim.cost.candidates import CANDIDATE_SIZE, CandidateRecord, reads_dram
from npusim.cost.design_batch import Batch, Work
from npusim.cost.dsp import dsp_time_s
from npusim.cost.hosts import HostRecord, cost_host, host_energy_j
from npusim.cost.kernels import compiled, compiled_making_arrays, compiled_or_plain
from npusim.cost.levels import (
    add_candidate_demands,
    fill_through,
    first_wait_s,
    sets_pace,
)
from npusim.cost.objective import IDLE_W, Energies, choose_mapping, weighs_energy
from npusim.cost.plan_costs import DMA_S, WORK_S, throttled_interval_s
from npusim.cost.rates import (
    BEST,
    BLOCK,
    CHOICES,
    CYCLE,
    DSP,
    INDEX,
    RATES,
    SRAM,
    WRITE_WAIT,
    clear_rate_bounds,
    dma_time_s,
    fill_beside,
    fill_rates,
    start_rate_bounds,
    widen_rate_bounds,
)
from npusim.cost.records import Floats, Ints
from npusim.cost.resources import (
    COUNT,
    GRID_CYCLES,
    LANE_CYCLES,
    LEVEL_READ_BYTES,
    LEVEL_WRITTEN_BYTES,
    LEVELS,
    READ_BYTES,
    STATIC_W,
    UNIT_ENERGIES,
    add_operator_demand,
    dsp_lane_cycles,
    dynamic_j,
    fill_unit_energies,
    moved_bytes,
)
from npusim.cost.search import GroupSearch
from npusim.cost.tables import Bound, DpuOperation, OpRecord, ResultRecord, Unit
from npusim.cost.terms import FUSED_SUMS, TERMS, add_fused, fill_terms, fused_chain_s
from npusim.cost.tiling import tile_share

_VIEW, _DPU, _DSP, _HOST = (int(u) for u in (Unit.VIEW, Unit.DPU, Unit.DSP, Unit.HOST))
_COMPUTE_BOUND, _DMA_BOUND, _DSP_BOUND = int(Bound.COMPUTE), int(Bound.DMA), int(Bound.DSP)
_LAUNCH_BOUND, _LEVEL_BOUND = int(Bound.LAUNCH), int(Bound.LEVEL)
_ELTWISE = int(DpuOperation.ELTWISE)


@compiled_or_plain(lambda archs, ops, *_: 0.2 * len(ops))
def cost_candidates(archs: Archs, ops: Any, row_of: Ints, search: GroupSearch, results: Any) -> None:
    """Cost each operator of a network at one design point by the best of its candidates.

    Parameters
    ----------
    ops : array of OP_DTYPE, shape (operators,)
    row_of : array of int64, shape (operators,)
        Row of the search that has an operator's candidates.
    results : array of RESULT_DTYPE, shape (operators,)
        Written; zero before, except `ahead_s`. The latency of an operator that does not fit into SRAM is
        infinite.
    """
    choices, candidates, row_starts = np.empty((CHOICES, BLOCK)), search.candidates, search.row_starts
    point: Any = np.int64(0)  # a literal would make a second specialisation
    points: Any = np.int64(1)
    every_rate, _ = rates_at_point(archs)
    latencies, states, demand = np.empty(candidates.shape[0]), np.zeros(1, np.int64), np.empty((1, COUNT))
    unit_j, machine = np.empty((1, 1, UNIT_ENERGIES)), np.zeros((1, 4))
    machine[0, IDLE_W] = archs.shared[0, 0].idle_w
    numbers, demands = candidates.view(np.float64), np.zeros((ops.shape[0], COUNT))
    is_mapped = np.zeros(ops.shape[0], np.bool_)
    chains = 1
    for o in range(ops.shape[0]):
        chains = max(chains, ops[o].fused_chain + 1)
    fused_sums, terms, dsp_times = np.zeros((chains, FUSED_SUMS, 1)), np.zeros((TERMS, 1)), np.zeros((1, 1))
    apart_s = np.zeros(chains)
    for o in range(ops.shape[0]):
        op, result = ops[o], results[o]
        if op.unit == _VIEW:
            continue
        if op.unit == _HOST:
            _host_cost(archs.hosts[0, op.device], op, result)
            continue
        start, stop = row_starts[row_of[o]], row_starts[row_of[o] + 1]
        if start == stop:
            result.latency_s = np.inf
            continue
        arch, rates = archs.arrays[0, op.device], every_rate[op.device]
        dsp_s = dsp_time_s(arch, op) if op.unit == _DSP else 0.0
        rates[DSP, 0], served = dsp_s, search.served[row_of[o]]
        fill_unit_energies(arch, unit_j, 0, point)
        energies, is_served = Energies(unit_j[0], machine, states), served.is_any > 0.0
        choose_mapping(
            arch, op, candidates, start, stop, is_served, rates, points, energies, choices, latencies, demand
        )
        index = int(choices[INDEX, 0])
        candidate = candidates[index]
        wait_s = (first_wait_s(served, rates, point) if reads_dram(op) else 0.0) + (
            rates[WRITE_WAIT, 0] if op.c_dram_bytes > 0.0 else 0.0
        )
        separate_s = op.repeats * (choices[BEST, 0] + wait_s + op.dispatches * arch.dispatch_s)
        result.latency_s = separate_s - result.ahead_s
        first = index * CANDIDATE_SIZE
        fill_beside(numbers, first, is_served, rates, point, points)
        fill_through(numbers, first, rates, point, result)
        result.dma_s = op.repeats * dma_time_s(candidate, rates, point)
        result.dsp_s = op.repeats * dsp_s
        result.sram_peak_bytes = min(candidate.sram_peak_bytes, rates[SRAM, 0]) - op.reserved_bytes
        is_mapped[o] = True
        add_candidate_demands(numbers, choices[INDEX, 0], op.repeats, rates, point, demands[o])
        add_operator_demand(arch, op, demands, o)
        if op.unit == _DSP:
            demands[o, LANE_CYCLES] = dsp_lane_cycles(arch, op, result.dsp_s)
        result.dpu_s = demands[o, GRID_CYCLES] * rates[CYCLE, 0]
        result.critical_s = result.latency_s
        if op.fused_chain > 0:
            fill_terms(candidates, choices, served, rates, op, False, points, terms)
            dsp_times[0, 0] = dsp_s
            add_fused(terms, dsp_times[0], points, fused_sums[op.fused_chain])
            apart_s[op.fused_chain] += op.repeats * choices[BEST, 0]
            result.critical_s = op.repeats * choices[BEST, 0]
        result.bound = _bound(result, sets_pace(arch, result, numbers, first, rates, point))
        for k in range(LEVELS):
            result.through_bytes[k] *= op.repeats
        _fill_tiling(result, candidate)
        result.tile_rows, result.tile_columns = np.ceil(op.elements / arch.tiles), 1.0
        if op.unit == _DPU and op.dpu_operation != _ELTWISE:
            _, result.tile_rows, result.tile_columns = tile_share(arch, op, result.split)
    _share_chains(archs, ops, results, fused_sums, apart_s)
    _read_out(archs, ops, demands, is_mapped, results)


@compiled_making_arrays
def rates_at_point(archs: Archs) -> tuple[Floats, Floats]:
    """Return the rates of all array devices at one point, and their bounds for a search."""
    point: Any = np.int64(0)
    points: Any = np.int64(1)
    devices = archs.arrays.shape[1]
    rates, rate_bounds = np.zeros((devices, RATES, BLOCK)), np.empty((devices, RATES, 2))
    for d in range(devices):
        fill_rates(archs.arrays[0, d], rates, d, point)
        start_rate_bounds(rate_bounds[d])
        widen_rate_bounds(rates[d], points, rate_bounds[d])
        if weighs_energy(archs):
            clear_rate_bounds(rate_bounds[d])
    return rates, rate_bounds


@compiled
def _fill_tiling(result: ResultRecord, candidate: CandidateRecord) -> None:
    """Copy the mapping of the chosen candidate to the result of an operator."""
    result.split, result.order, result.mode = int(candidate.split), int(candidate.order), int(candidate.mode)
    result.tiles, result.row_blocks = int(candidate.tiles), int(candidate.row_blocks)
    result.row_pieces, result.strips = int(candidate.row_pieces), int(candidate.strips)
    result.column_blocks = int(candidate.column_blocks)
    result.channel_chunks, result.buffers = int(candidate.channel_chunks), int(candidate.buffers)
    result.piece_level, result.parts = int(candidate.piece_level), int(candidate.parts)


@compiled
def _share_chains(archs: Archs, ops: Any, results: Any, fused_sums: Any, apart_s: Any) -> None:
    """Divide the time of each row-wise fusion among its operators, in proportion to separate latencies.

    `critical_s` of a fused operator is on entry its separate latency without waits. Its waits are added.
    """
    point: Any = np.int64(0)
    for o in range(ops.shape[0]):
        chain, result = ops[o].fused_chain, results[o]
        if chain > 0 and apart_s[chain] > 0.0 and result.latency_s < np.inf:
            separate_s = result.critical_s
            pieces = archs.arrays[0, ops[o].device].stream_pieces
            chain_s = fused_chain_s(fused_sums[chain], pieces, point)
            result.critical_s = separate_s * (chain_s / apart_s[chain]) + result.latency_s - separate_s


@compiled_making_arrays
def _read_out(archs: Archs, ops: Any, demands: Any, is_mapped: Any, results: Any) -> None:
    """Write the traffic and energy of operators on array devices to their results."""
    devices = archs.arrays.shape[1]
    first: Any = np.int64(0)
    unit_j = np.empty((1, devices, UNIT_ENERGIES))
    for d in range(devices):
        fill_unit_energies(archs.arrays[0, d], unit_j, first, d)
    for o in range(ops.shape[0]):
        if is_mapped[o]:
            result, device = results[o], ops[o].device
            for k in range(LEVELS):
                result.level_bytes += demands[o, LEVEL_READ_BYTES + k] + demands[o, LEVEL_WRITTEN_BYTES + k]
            place = int(archs.arrays[0, device].shared_place)
            if place > 0:
                result.shared_bytes = demands[o, LEVEL_READ_BYTES + place - 1]
                result.shared_bytes += demands[o, LEVEL_WRITTEN_BYTES + place - 1]
            dram_bytes, read_bytes, written_bytes = moved_bytes(demands, o)
            result.dram_bytes = result.streamed_bytes = dram_bytes
            result.dram_read_bytes = demands[o, READ_BYTES]
            result.sram_read_bytes, result.sram_written_bytes = read_bytes, written_bytes
            energies_j = dynamic_j(demands, o, dram_bytes, read_bytes + written_bytes, unit_j[0], device)
            result.mac_j, result.sram_j, result.dram_j, result.dsp_j = energies_j
            result.energy_j = result.mac_j + result.sram_j + result.dram_j + result.dsp_j


@compiled
def _host_cost(host: HostRecord, op: OpRecord, result: ResultRecord) -> None:
    cost = cost_host(host, op)
    result.latency_s = result.critical_s = result.host_s = op.repeats * cost.time_s
    result.dram_read_bytes = op.repeats * cost.read_bytes
    result.dram_bytes = op.repeats * (cost.read_bytes + cost.written_bytes)
    result.streamed_bytes = op.repeats * cost.streamed_bytes
    result.energy_j = op.repeats * host_energy_j(host, cost)
    if host.is_gpu > 0.0:
        result.gpu_j = result.energy_j
    else:
        result.cpu_j = result.energy_j
    result.bound = _LAUNCH_BOUND if op.repeats * host.dispatch_s > 0.5 * result.latency_s else _COMPUTE_BOUND


@compiled
def _bound(result: ResultRecord, is_level_paced: bool) -> int:
    """Return the bottleneck of an operator: its busiest unit, or its launch if that takes longer.

    Where DMA is the busiest, it is a memory level if that sets the pace of the transfers.
    """
    dma_s = result.dma_s - result.ahead_s
    longest = max(result.dpu_s, result.dsp_s, dma_s)
    if result.latency_s > 2.0 * longest:
        return _LAUNCH_BOUND
    if longest == dma_s:
        return _LEVEL_BOUND if is_level_paced else _DMA_BOUND
    return _DSP_BOUND if longest == result.dsp_s else _COMPUTE_BOUND


@compiled
def fill_columns(batch: Batch, work: Work) -> None:
    """Write the traffic and busy times of each column under its best plan."""
    independent, best, sums, demands = batch.independent, work.best.totals, work.best.sums, work.demands
    for c in range(batch.counts[0]):
        total = best[c]
        if work.best.plans[c] < 0:
            total.latency_s = total.energy_j = np.inf
            total.throughput_per_s = 0.0
            continue
        total.dram_bytes = independent.host_moved[c]
        for d in range(sums.shape[0]):
            total.npu_s += sums[d, WORK_S, c] + independent.dispatches_s[d, c]
            total.dpu_s += demands[d, c, GRID_CYCLES] * batch.rates[d, CYCLE, c]
            total.dsp_s += independent.dsps_s[d, c]
            total.dma_s += sums[d, DMA_S, c]
            demands[d, c, LANE_CYCLES] = independent.lane_cycles[d, c]
            dram_bytes, read_bytes, written_bytes = moved_bytes(demands[d], c)
            work.moved[d, c, 0], work.moved[d, c, 1] = dram_bytes, read_bytes + written_bytes
            total.dram_bytes += dram_bytes
            total.sram_traffic_bytes += read_bytes + written_bytes
            for k in range(LEVELS):
                total.level_traffic_bytes += demands[d, c, LEVEL_READ_BYTES + k]
                total.level_traffic_bytes += demands[d, c, LEVEL_WRITTEN_BYTES + k]
        for h in range(independent.hosts_s.shape[0]):
            if batch.archs.hosts[0, h].is_gpu > 0.0:
                total.gpu_s += independent.hosts_s[h, c]
                total.gpu_j += independent.hosts_j[h, c]
            else:
                total.cpu_s += independent.hosts_s[h, c]
                total.cpu_j += independent.hosts_j[h, c]


@compiled
def write_point_totals(batch: Batch, work: Work, totals: Any, order: Ints, plans: Ints) -> None:
    """Write the totals of the points of a batch, with their own area, energy and throttling.

    Energy adds static power while the NPU works and idle power from one inference to the next. A point where
    no plan fits has infinite latency and energy, and no throughput. `order` has the place of each point in
    `totals`, array of TOTAL_DTYPE, and in `plans`.
    """
    sums, unit_j, independent, machine = work.best.sums, batch.unit_j, batch.independent, batch.machine
    column_of, state_of = batch.column_of, batch.state_of
    for p in range(batch.counts[1]):
        c, state = column_of[p], state_of[p]
        totals[order[p]], plans[order[p]] = work.best.totals[c], work.best.plans[c]
        total = totals[order[p]]
        total.area_mm2, total.peak_ops_per_s = machine[state, 0], machine[state, 1]
        if work.best.plans[c] < 0:
            continue
        interval = total.throughput_per_s  # until here it holds the interval
        for d in range(sums.shape[0]):
            dram_bytes, sram_bytes = work.moved[d, c, 0], work.moved[d, c, 1]
            energies_j = dynamic_j(work.demands[d], c, dram_bytes, sram_bytes, unit_j[d], state)
            total.mac_j += energies_j[0]
            total.sram_j += energies_j[1]
            total.dram_j += energies_j[2]
            total.dsp_j += energies_j[3]
            work_s = sums[d, WORK_S, c] + independent.dispatches_s[d, c]
            static_w = unit_j[d, state, STATIC_W]
            total.static_j += static_w * min(work_s / independent.contexts[d, c], interval)
        on_devices_j = total.cpu_j + total.gpu_j + total.static_j
        work_j = total.mac_j + total.sram_j + total.dram_j + total.dsp_j + on_devices_j
        idle_w, limit_w = machine[state, 2], machine[state, 3]
        throttled_s = throttled_interval_s(interval, work_j, idle_w, limit_w)
        if throttled_s > interval:
            total.latency_s *= throttled_s / interval
            interval = throttled_s
        total.idle_j = idle_w * interval
        total.energy_j = work_j + total.idle_j
        total.ops_per_j = 2.0 * work.search.macs / total.energy_j if total.energy_j > 0.0 else 0.0
        total.throughput_per_s = 1.0 / interval if interval > 0.0 else np.inf


@compiled
def fill_device_uses(batch: Batch, work: Work, uses: Any) -> None:
    """Write the busy times of array devices, then hosts, at the only point of a batch."""
    sums, independent = work.best.sums, batch.independent
    arrays = sums.shape[0]
    if work.best.plans[0] >= 0:
        for d in range(arrays):
            use = uses[d]
            use.work_s = sums[d, WORK_S, 0] + independent.dispatches_s[d, 0]
            use.dpu_s = work.demands[d, 0, GRID_CYCLES] * batch.rates[d, CYCLE, 0]
            use.dma_s, use.dsp_s = sums[d, DMA_S, 0], independent.dsps_s[d, 0]
        for h in range(independent.hosts_s.shape[0]):
            uses[arrays + h].work_s = independent.hosts_s[h, 0]
