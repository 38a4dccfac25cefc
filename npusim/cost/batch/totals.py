"""Costs of each operator at one design point, and totals of a network at many points.

Both read the terms of the chosen mappings (`npusim.cost.network.terms`) and vectors of demands
(`npusim.cost.units.resources`), from which traffic, busy times and energy follow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.compiling.kernels import compiled, compiled_making_arrays
from npusim.compiling.records import Floats, Ints
from npusim.cost.batch.design_batch import Work
from npusim.cost.lowering.plans import NO_LEAF
from npusim.cost.lowering.tables import DPU, DSP, ELTWISE, HOST, VIEW, Bound, OpRecord, ResultRecord
from npusim.cost.machine.architecture import ArchRecord, Archs, weighs_energy
from npusim.cost.machine.hosts import HostRecord
from npusim.cost.network.plan_costs import fused_s, fused_work, throttled_interval_s
from npusim.cost.network.terms import Costing
from npusim.cost.tilings.search import fits
from npusim.cost.tilings.tiling import tile_share
from npusim.cost.units import rates as laws
from npusim.cost.units import resources
from npusim.cost.units.hosts import cost_host, host_energy_j
from npusim.cost.units.levels import add_candidate_demands, fill_through, sets_pace
from npusim.cost.units.resources import LEVELS, CandidateRecord, dynamic_j, moved_bytes

_COMPUTE_BOUND, _DMA_BOUND, _DSP_BOUND = int(Bound.COMPUTE), int(Bound.DMA), int(Bound.DSP)
_LAUNCH_BOUND, _LEVEL_BOUND = int(Bound.LAUNCH), int(Bound.LEVEL)


@compiled
def cost_operators(work: Work, family: int, results: Any) -> None:
    """Write the costs of each operator under its current row, at the only point of a batch.

    `results`, array of RESULT_DTYPE, is zero before, except `ahead_s`. The latency of an operator that does
    not fit into SRAM is infinite.
    """
    costing, archs = work.costing, work.batch.archs
    row_of, leaf_op = costing.row_of, costing.table.leaf_op[family]
    for o in range(row_of.shape[0]):
        op, result = costing.table.rows[row_of[o]], results[o]
        if op.unit == HOST:
            _host_cost(archs.hosts[op.device], op, result)
        elif op.unit != VIEW and not fits(op, costing.search.row_starts, row_of[o]):
            result.latency_s = np.inf
        elif op.unit != VIEW:
            _array_cost(work, o, row_of[o], op, archs.arrays[op.device], result)
    for leaf in range(leaf_op.shape[0]):
        if NO_LEAF < leaf_op[leaf] < 0:
            _share_chain(costing, leaf_op[leaf + leaf_op[leaf] : leaf], archs.arrays, results)


@compiled
def _array_cost(work: Work, o: int, r: int, op: OpRecord, arch: ArchRecord, result: ResultRecord) -> None:
    """Write the costs of an operator on an array device, alone."""
    point: Any = np.int64(0)  # a literal would make a second specialisation
    search, terms, rates = work.costing.search, work.costing.terms, work.batch.rates[op.device]
    dsp_s, index = work.costing.independent.dsp_s[o, 0], terms.candidate[r, 0]
    numbers, first = search.candidates.view(np.float64), index * resources.CANDIDATE_SIZE
    called_s = op.dispatches * arch.dispatch_s
    separate_s = op.repeats * (terms.best_s[r, 0] + terms.wait_s[r, 0] + called_s)
    result.latency_s = result.critical_s = separate_s - result.ahead_s
    result.dma_s, result.dsp_s = op.repeats * terms.dma_s[r, 0], op.repeats * dsp_s
    result.sram_peak_bytes, demand = terms.sram_peak_bytes[r, 0], work.demand
    demand[0, :] = 0.0
    add_candidate_demands(numbers, index, op.repeats, rates, point, demand[0])
    resources.add_operator_demand(arch, op, demand, 0)
    if op.unit == DSP:
        demand[0, resources.LANE_CYCLES] = resources.dsp_lane_cycles(arch, op, result.dsp_s)
    result.dpu_s = demand[0, resources.GRID_CYCLES] * rates[laws.CYCLE, 0]
    _read_out(arch, demand, work.batch.states.unit_j[op.device], result)
    fill_through(numbers, first, rates, point, result)
    laws.fill_beside(numbers, first, search.served[r].is_any > 0.0, rates, point, point + 1)
    result.bound = _bound(result, sets_pace(arch, result, numbers, first, rates, point))
    for k in range(LEVELS):
        result.through_bytes[k] *= op.repeats
    _fill_tiling(result, search.candidates[index])
    result.tile_rows, result.tile_columns = np.ceil(op.elements / arch.tiles), 1.0
    if op.unit == DPU and op.dpu_operation != ELTWISE:
        _, result.tile_rows, result.tile_columns = tile_share(arch, op, int(result.split))


@compiled
def _read_out(arch: ArchRecord, demand: Floats, unit_j: Floats, result: ResultRecord) -> None:
    """Write the traffic and energy of the demands of an operator on an array device, shape (1, COUNT)."""
    point: Any = np.int64(0)
    place = int(arch.shared_place)
    for k in range(LEVELS):
        level_bytes = demand[0, resources.LEVEL_READ_BYTES + k] + demand[0, resources.LEVEL_WRITTEN_BYTES + k]
        result.level_bytes += level_bytes
        if k == place - 1:
            result.shared_bytes = level_bytes
    dram_bytes, read_bytes, written_bytes = moved_bytes(demand, point)
    result.dram_bytes = result.streamed_bytes = dram_bytes
    result.dram_read_bytes = demand[0, resources.READ_BYTES]
    result.sram_read_bytes, result.sram_written_bytes = read_bytes, written_bytes
    energies_j = dynamic_j(demand, point, dram_bytes, read_bytes + written_bytes, unit_j, point)
    result.mac_j, result.sram_j, result.dram_j, result.dsp_j = energies_j
    result.energy_j = result.mac_j + result.sram_j + result.dram_j + result.dsp_j


@compiled
def _share_chain(costing: Costing, members: Ints, arrays: Any, results: Any) -> None:
    """Divide the time of a row-wise fusion among its operators, in proportion to separate latencies.

    Each has its own waits in addition.
    """
    rows, row_of, terms, sum_s = costing.table.rows, costing.row_of, costing.terms, 0.0
    point: Any = np.int64(0)
    for i in range(members.shape[0]):
        r = row_of[members[i]]
        if not fits(rows[r], costing.search.row_starts, r):
            return
        sum_s += rows[r].repeats * terms.best_s[r, 0]
    if sum_s <= 0.0:
        return
    pieces = arrays[rows[row_of[members[0]]].device].stream_pieces
    fusion_s = fused_s(fused_work(costing, members, point), pieces)
    for i in range(members.shape[0]):
        r, result = row_of[members[i]], results[members[i]]
        separate_s = rows[r].repeats * terms.best_s[r, 0]  # without waits, which the latency has
        result.critical_s = separate_s * (fusion_s / sum_s) + result.latency_s - separate_s


@compiled_making_arrays
def rates_at_point(archs: Archs) -> tuple[Floats, Floats]:
    """Return the rates of all array devices at one point, and their bounds for a search."""
    point: Any = np.int64(0)
    points: Any = np.int64(1)
    devices = archs.arrays.shape[0]
    rates, rate_bounds = (np.zeros((devices, laws.RATES, laws.BLOCK)), np.empty((devices, laws.RATES, 2)))
    for d in range(devices):
        laws.fill_rates(archs.arrays[d], rates, d, point)
        laws.start_rate_bounds(rate_bounds[d])
        laws.widen_rate_bounds(rates[d], points, rate_bounds[d])
        if weighs_energy(archs):
            laws.clear_rate_bounds(rate_bounds[d])
    return rates, rate_bounds


@compiled
def _fill_tiling(result: ResultRecord, candidate: CandidateRecord) -> None:
    """Copy the mapping of the chosen candidate to the result of an operator."""
    result.split, result.order, result.mode = candidate.split, candidate.order, candidate.mode
    result.tiles, result.row_blocks = candidate.tiles, candidate.row_blocks
    result.row_pieces, result.strips = candidate.row_pieces, candidate.strips
    result.column_blocks = candidate.column_blocks
    result.channel_chunks, result.buffers = candidate.channel_chunks, candidate.buffers
    result.piece_level, result.parts = candidate.piece_level, candidate.parts


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
def fill_columns(work: Work) -> None:
    """Write the traffic and busy times of each column under its best plan."""
    batch, best, demands, arrays = work.batch, work.best, work.demands, work.demands.shape[0]
    independent, figures = batch.independent, work.totals.view(np.float64)
    figures[:] = 0.0
    for c in range(batch.counts[0]):
        total = work.totals[c]
        if best.plans[c] < 0:
            total.latency_s = total.energy_j = np.inf
            continue
        total.latency_s, total.sram_peak_bytes = best.latency_s[c], best.sram_peak_bytes[c]
        total.dram_bytes = independent.host_moved[c]
        for d in range(arrays):
            total.npu_s += best.work_s[d, c] + independent.dispatches_s[d, c]
            total.dpu_s += demands[d, c, resources.GRID_CYCLES] * batch.rates[d, laws.CYCLE, c]
            total.dsp_s += independent.dsps_s[d, c]
            total.dma_s += best.dma_s[d, c]
            demands[d, c, resources.LANE_CYCLES] = independent.lane_cycles[d, c]
            dram_bytes, read_bytes, written_bytes = moved_bytes(demands[d], c)
            work.dram_bytes[d, c], work.sram_bytes[d, c] = dram_bytes, read_bytes + written_bytes
            total.dram_bytes += dram_bytes
            total.sram_traffic_bytes += read_bytes + written_bytes
            for k in range(LEVELS):
                total.level_traffic_bytes += demands[d, c, resources.LEVEL_READ_BYTES + k]
                total.level_traffic_bytes += demands[d, c, resources.LEVEL_WRITTEN_BYTES + k]
        for h in range(independent.hosts_s.shape[0]):
            if batch.archs.hosts[h].is_gpu > 0.0:
                total.gpu_s += independent.hosts_s[h, c]
                total.gpu_j += independent.hosts_j[h, c]
            else:
                total.cpu_s += independent.hosts_s[h, c]
                total.cpu_j += independent.hosts_j[h, c]


@compiled
def write_point_totals(work: Work, totals: Any, order: Ints, plans: Ints) -> None:
    """Write the totals of the points of a batch, with their own area, energy and throttling.

    Energy adds static power while the NPU works and idle power from one inference to the next. A point where
    no plan fits has infinite latency and energy, and no throughput. `order` has the place of each point in
    `totals`, array of TOTAL_DTYPE, and in `plans`.
    """
    batch, best, independent, states = work.batch, work.best, work.batch.independent, work.batch.states
    for p in range(batch.counts[1]):
        c, state = batch.column_of[p], batch.state_of[p]
        totals[order[p]], plans[order[p]] = work.totals[c], best.plans[c]
        total = totals[order[p]]
        total.area_mm2, total.peak_ops_per_s = states.area_mm2[state], states.peak_ops_per_s[state]
        if best.plans[c] < 0:
            continue
        interval_s = best.interval_s[c]
        for d in range(work.demands.shape[0]):
            unit_j, dram_bytes, sram_bytes = states.unit_j[d], work.dram_bytes[d, c], work.sram_bytes[d, c]
            energies_j = dynamic_j(work.demands[d], c, dram_bytes, sram_bytes, unit_j, state)
            total.mac_j += energies_j[0]
            total.sram_j += energies_j[1]
            total.dram_j += energies_j[2]
            total.dsp_j += energies_j[3]
            work_s = best.work_s[d, c] + independent.dispatches_s[d, c]
            total.static_j += unit_j[state, resources.STATIC_W] * min(
                work_s / independent.contexts[d, c], interval_s
            )
        on_devices_j = total.cpu_j + total.gpu_j + total.static_j
        work_j = total.mac_j + total.sram_j + total.dram_j + total.dsp_j + on_devices_j
        throttled_s = throttled_interval_s(interval_s, work_j, states.idle_w[state], states.limit_w[state])
        if throttled_s > interval_s:
            total.latency_s *= throttled_s / interval_s
            interval_s = throttled_s
        total.idle_j = states.idle_w[state] * interval_s
        total.energy_j = work_j + total.idle_j
        total.ops_per_j = 2.0 * work.costing.search.macs / total.energy_j if total.energy_j > 0.0 else 0.0
        total.throughput_per_s = 1.0 / interval_s if interval_s > 0.0 else np.inf


@compiled
def fill_device_uses(work: Work, uses: Any) -> None:
    """Write the busy times of array devices, then hosts, at the only point of a batch."""
    best, independent, arrays = work.best, work.batch.independent, work.demands.shape[0]
    for d in range(arrays):
        use = uses[d]
        use.work_s = best.work_s[d, 0] + independent.dispatches_s[d, 0]
        use.dpu_s = work.demands[d, 0, resources.GRID_CYCLES] * work.batch.rates[d, laws.CYCLE, 0]
        use.dma_s, use.dsp_s = best.dma_s[d, 0], independent.dsps_s[d, 0]
    for h in range(independent.hosts_s.shape[0]):
        uses[arrays + h].work_s = independent.hosts_s[h, 0]
