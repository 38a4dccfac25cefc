"""What each operator costs at one design point, by the same candidates and rates as the total."""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.architecture import Archs
from npusim.cost.candidate_latency import choose, dma_time_s, fill_beside
from npusim.cost.candidates import CANDIDATE_SIZE, CandidateRecord, reads_dram
from npusim.cost.demands import (
    DRAM_BYTES,
    MOVED,
    SRAM_READ_BYTES,
    SRAM_WRITTEN_BYTES,
    add_candidate_demands,
    add_operator_demand,
    dsp_lane_cycles,
    fill_moved,
)
from npusim.cost.dsp import dsp_time_s
from npusim.cost.energy import (
    DRAM_J,
    DSP_J,
    MAC_J,
    PARTS,
    SRAM_J,
    UNIT_ENERGIES,
    fill_energies,
    fill_unit_energies,
)  # fmt: skip
from npusim.cost.hosts import HostRecord, cost_host, host_energy_j
from npusim.cost.jit import compiled, compiled_making_arrays, compiled_or_plain
from npusim.cost.layouts import tile_share
from npusim.cost.levels import SERVED_DTYPE, fill_all_served, first_wait_s, serve
from npusim.cost.plan_costs import FUSED_SUMS, TERMS, add_fused, fill_terms, fused_chain_s
from npusim.cost.rates import (
    BLOCK,
    CHOICES,
    RATES,
    Choice,
    Rate,
    fill_rates,
    start_rate_bounds,
    widen_rate_bounds,
)
from npusim.cost.resources import (
    COUNT,
    GRID_CYCLES,
    LANE_CYCLES,
    LEVEL_READ_BYTES,
    LEVEL_WRITTEN_BYTES,
    LEVELS,
    READ_BYTES,
)
from npusim.cost.search import plain_ms, search_rows
from npusim.cost.tables import Bound, DpuOperation, OpRecord, ResultRecord, Unit

_VIEW, _DPU, _DSP, _HOST = (int(u) for u in (Unit.VIEW, Unit.DPU, Unit.DSP, Unit.HOST))
_COMPUTE_BOUND, _DMA_BOUND, _DSP_BOUND = int(Bound.COMPUTE), int(Bound.DMA), int(Bound.DSP)
_LAUNCH_BOUND, _ELTWISE = int(Bound.LAUNCH), int(DpuOperation.ELTWISE)
_CYCLE, _WRITE_WAIT = int(Rate.CYCLE), int(Rate.WRITE_WAIT)
_DSP_RATE, _SRAM, _BEST, _INDEX = int(Rate.DSP), int(Rate.SRAM), int(Choice.BEST), int(Choice.INDEX)


@compiled_or_plain(lambda _, ops, *__: plain_ms(ops))
def operator_costs(archs: Archs, ops: Any, results: Any) -> None:
    """Cost every operator of a network under one plan.

    Parameters
    ----------
    archs : Archs
        One design point.
    ops : array of OP_DTYPE, shape (operators,)
    results : array of RESULT_DTYPE, shape (operators,)
        Written; zero before. The latency of an operator that does not fit into SRAM is infinite.
    """
    devices = archs.arrays.shape[1]
    every_rate, choices = np.zeros((devices, RATES, BLOCK)), np.empty((CHOICES, BLOCK))
    # Numbers of a type of their own: callees would be compiled again for each literal.
    point: Any = np.int64(0)
    points: Any = np.int64(1)
    bounds, all_served = np.empty(ops.shape[0] + 1, np.int64), np.zeros(ops.shape[0], SERVED_DTYPE)
    found = _search(archs, ops, every_rate, bounds, all_served)
    numbers, demands = found.view(np.float64), np.zeros((ops.shape[0], COUNT))
    chosen, is_mapped = np.zeros(ops.shape[0]), np.zeros(ops.shape[0], np.int64)
    chains, dsp_times = _chains(ops), np.zeros((1, 1))
    fused_sums, terms = np.zeros((chains, FUSED_SUMS, 1)), np.zeros((TERMS, 1))
    apart_s = np.zeros(chains)
    for o in range(ops.shape[0]):
        op, result = ops[o], results[o]
        if op.unit == _VIEW:
            continue
        if op.unit == _HOST:
            _host_cost(archs.hosts[0, op.device], op, result)
            continue
        if bounds[o] == bounds[o + 1]:
            result.latency_s = np.inf
            continue
        arch, rates = archs.arrays[0, op.device], every_rate[op.device]
        dsp_s = dsp_time_s(arch, op) if op.unit == _DSP else 0.0
        rates[_DSP_RATE, 0], served = dsp_s, all_served[o]
        choose(found, np.arange(bounds[o], bounds[o + 1]), served.is_any > 0.0, rates, points, choices)
        index = int(choices[_INDEX, 0])
        candidate = found[index]
        wait_s = (first_wait_s(served, rates, point) if reads_dram(op) else 0.0) + (
            rates[_WRITE_WAIT, 0] if op.c_dram_bytes > 0.0 else 0.0
        )
        result.latency_s = op.repeats * (choices[_BEST, 0] + wait_s + op.dispatches * arch.dispatch_s)
        fill_beside(numbers, index * CANDIDATE_SIZE, served.is_any > 0.0, rates, point, points)
        result.dma_s = op.repeats * dma_time_s(candidate, rates, point)
        result.dsp_s = op.repeats * dsp_s
        result.sram_peak_bytes = min(candidate.sram_peak_bytes, rates[_SRAM, 0])
        chosen[o], is_mapped[o] = choices[_INDEX, 0], 1
        own = demands[o : o + 1]
        add_candidate_demands(numbers, chosen[o : o + 1], is_mapped[o : o + 1], points, op.repeats, own)
        add_operator_demand(arch, op, demands, o)
        if op.unit == _DSP:
            demands[o, LANE_CYCLES] = dsp_lane_cycles(arch, op, result.dsp_s)
        result.dpu_s = demands[o, GRID_CYCLES] * rates[_CYCLE, 0]
        result.critical_s = result.latency_s
        if op.fused_chain > 0:
            fill_terms(found, choices, served, rates, op, points, terms)
            dsp_times[0, 0] = dsp_s
            add_fused(terms, dsp_times[0], points, fused_sums[op.fused_chain])
            apart_s[op.fused_chain] += op.repeats * choices[_BEST, 0]
            result.critical_s = op.repeats * choices[_BEST, 0]
        result.bound = _bound(result)
        _fill_tiling(result, candidate)
        result.tile_rows, result.tile_columns = np.ceil(op.elements / arch.tiles), 1.0
        if op.unit == _DPU and op.dpu_operation != _ELTWISE:
            _, result.tile_rows, result.tile_columns = tile_share(arch, op, result.split)
    _share_chains(archs, ops, results, fused_sums, apart_s)
    _read_out(archs, ops, demands, is_mapped, results)


@compiled_making_arrays
def _search(archs: Archs, ops: Any, rates: Any, bounds: Any, served: Any) -> Any:
    """Fill the rates of all array devices and return the candidates of all operators, with their bounds."""
    point: Any = np.int64(0)
    points: Any = np.int64(1)
    rate_bounds = np.empty((rates.shape[0], RATES, 2))
    for d in range(rates.shape[0]):
        fill_rates(archs.arrays[0, d], rates, d, point)
        start_rate_bounds(rate_bounds[d])
        widen_rate_bounds(rates[d], points, rate_bounds[d])
    found = search_rows(archs, ops, rate_bounds, bounds)
    fill_all_served(archs.arrays[0], ops, served)
    serve(found, bounds, served)
    return found


@compiled
def _fill_tiling(result: ResultRecord, candidate: CandidateRecord) -> None:
    """Write down how the chosen candidate lays an operator on its device."""
    result.split, result.order, result.mode = int(candidate.split), int(candidate.order), int(candidate.mode)
    result.tiles, result.row_blocks = int(candidate.tiles), int(candidate.row_blocks)
    result.row_pieces, result.strips = int(candidate.row_pieces), int(candidate.strips)
    result.column_blocks, result.channel_chunks = (
        int(candidate.column_blocks),
        int(candidate.channel_chunks),
    )


@compiled
def _chains(ops: Any) -> int:
    """Return how many numbers fused chains have, 0 for none among them."""
    most = 0
    for o in range(ops.shape[0]):
        most = max(most, ops[o].fused_chain)
    return int(most + 1)


@compiled
def _share_chains(archs: Archs, ops: Any, results: Any, fused_sums: Any, apart_s: Any) -> None:
    """Share the time of each row-wise fusion among its operators, as their times apart; add their waits.

    Before, the `critical_s` of such an operator is its latency apart without waits.
    """
    point: Any = np.int64(0)
    for o in range(ops.shape[0]):
        chain, result = ops[o].fused_chain, results[o]
        if chain > 0 and apart_s[chain] > 0.0 and result.latency_s < np.inf:
            best_s = result.critical_s
            pieces = archs.arrays[0, ops[o].device].stream_pieces
            chain_s = fused_chain_s(fused_sums[chain], pieces, point)
            result.critical_s = best_s * (chain_s / apart_s[chain]) + result.latency_s - best_s


@compiled_making_arrays
def _read_out(archs: Archs, ops: Any, demands: Any, is_mapped: Any, results: Any) -> None:
    """Fill in what operators on array devices move, and their energy by part."""
    count, devices = ops.shape[0], archs.arrays.shape[1]
    unit_j, moved, energies = (
        np.empty((1, devices, UNIT_ENERGIES)),
        np.empty((count, MOVED)),
        np.empty((count, PARTS)),
    )
    own, device_of = np.arange(count), np.zeros(count, np.int64)
    at: Any = np.int64(0)
    for d in range(devices):
        fill_unit_energies(archs.arrays[0, d], unit_j, at, d)
    for o in range(count):
        device_of[o] = ops[o].device if is_mapped[o] == 1 else 0
    fill_moved(demands, count, moved)
    if devices > 0:
        fill_energies(demands, moved, own, unit_j[0], device_of, count, energies)
    for o in range(count):
        if is_mapped[o] == 1:
            result = results[o]
            for k in range(LEVELS):
                result.level_bytes += demands[o, LEVEL_READ_BYTES + k] + demands[o, LEVEL_WRITTEN_BYTES + k]
            place = int(archs.arrays[0, device_of[o]].shared_place)
            if place > 0:
                result.shared_bytes = demands[o, LEVEL_READ_BYTES + place - 1]
                result.shared_bytes += demands[o, LEVEL_WRITTEN_BYTES + place - 1]
            result.dram_bytes = result.streamed_bytes = moved[o, DRAM_BYTES]
            result.dram_read_bytes = demands[o, READ_BYTES]
            result.sram_read_bytes = moved[o, SRAM_READ_BYTES]
            result.sram_written_bytes = moved[o, SRAM_WRITTEN_BYTES]
            result.mac_j, result.sram_j = energies[o, MAC_J], energies[o, SRAM_J]
            result.dram_j, result.dsp_j = energies[o, DRAM_J], energies[o, DSP_J]
            result.energy_j = result.mac_j + result.sram_j + result.dram_j + result.dsp_j


@compiled
def _host_cost(host: HostRecord, op: OpRecord, result: ResultRecord) -> None:
    found = cost_host(host, op)
    result.latency_s = result.critical_s = result.host_s = op.repeats * found.time_s
    result.dram_read_bytes = op.repeats * found.read_bytes
    result.dram_bytes = op.repeats * (found.read_bytes + found.written_bytes)
    result.streamed_bytes = op.repeats * found.streamed_bytes
    result.energy_j = op.repeats * host_energy_j(host, found)
    if host.is_gpu > 0.0:
        result.gpu_j = result.energy_j
    else:
        result.cpu_j = result.energy_j
    result.bound = _LAUNCH_BOUND if op.repeats * host.dispatch_s > 0.5 * result.latency_s else _COMPUTE_BOUND


@compiled
def _bound(result: ResultRecord) -> int:
    """Return what the operator waits for: its longest unit, or its start where that is longer still."""
    longest = max(result.dpu_s, result.dsp_s, result.dma_s)
    if result.latency_s > 2.0 * longest:
        return _LAUNCH_BOUND
    if longest == result.dma_s:
        return _DMA_BOUND
    return _DSP_BOUND if longest == result.dsp_s else _COMPUTE_BOUND
