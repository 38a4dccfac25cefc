"""What each operator costs at one design point, by the same candidates and rates as the total."""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.architecture import ArchRecord, Archs
from npusim.cost.candidate_latency import (
    BLOCK,
    CHOICES,
    RATES,
    Choice,
    Rate,
    choose,
    dma_time_s,
    fill_rates,
    level_energy_j,
    read_wait_s,
    start_rate_bounds,
    widen_rate_bounds,
)
from npusim.cost.candidates import CandidateRecord, reads_dram
from npusim.cost.dsp import dsp_time_s
from npusim.cost.energy import dsp_lane_cycles, dynamic_energies, fixed_work, grid_written_bytes
from npusim.cost.hosts import HostRecord, cost_host, host_energy_j
from npusim.cost.jit import compiled, compiled_or_plain
from npusim.cost.levels import SERVED_DTYPE, fill_all_served, read_bytes_served, served_bytes, shared_bytes
from npusim.cost.plan_costs import FUSED_SUMS, TERMS, add_fused, fill_terms, fused_chain_s
from npusim.cost.products import tile_share
from npusim.cost.search import plain_ms, search_rows
from npusim.cost.tables import Bound, DpuOperation, OpRecord, ResultRecord, Unit

_VIEW, _DPU, _DSP, _HOST = (int(u) for u in (Unit.VIEW, Unit.DPU, Unit.DSP, Unit.HOST))
_COMPUTE_BOUND, _DMA_BOUND, _DSP_BOUND = int(Bound.COMPUTE), int(Bound.DMA), int(Bound.DSP)
_LAUNCH_BOUND, _ELTWISE = int(Bound.LAUNCH), int(DpuOperation.ELTWISE)
_CYCLE, _READ_WAIT, _WRITE_WAIT = int(Rate.CYCLE), int(Rate.READ_WAIT), int(Rate.WRITE_WAIT)
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
    rate_bounds, bounds = np.empty((devices, RATES, 2)), np.empty(ops.shape[0] + 1, np.int64)
    for d in range(devices):
        fill_rates(archs.arrays[0, d], every_rate[d], point)
        start_rate_bounds(rate_bounds[d])
        widen_rate_bounds(every_rate[d], points, rate_bounds[d])
    found, all_served = search_rows(archs, ops, rate_bounds, bounds), np.zeros(ops.shape[0], SERVED_DTYPE)
    fill_all_served(archs.arrays[0], ops, all_served)
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
        choose(found, bounds[o], bounds[o + 1], served, rates, points, choices)
        candidate = found[int(choices[_INDEX, 0])]
        wait_s = (read_wait_s(served, rates, point) if reads_dram(op) else 0.0) + (
            rates[_WRITE_WAIT, 0] if op.c_dram_bytes > 0.0 else 0.0
        )
        result.latency_s = choices[_BEST, 0] + wait_s + op.dispatches * arch.dispatch_s
        result.dpu_s, result.dsp_s = candidate.grid_cycles * rates[_CYCLE, 0], dsp_s
        result.dma_s = dma_time_s(candidate, served, rates, point)
        near, result.shared_bytes = served_bytes(served, candidate), shared_bytes(served, candidate)
        result.level_bytes, result.dram_bytes = near, candidate.dram_bytes - near
        result.sram_peak_bytes = min(candidate.sram_peak_bytes, rates[_SRAM, 0])
        result.dram_read_bytes = candidate.read_bytes - read_bytes_served(served, candidate)
        result.streamed_bytes = result.dram_bytes
        _repeat(result, op.repeats)
        result.critical_s = result.latency_s
        if op.fused_chain > 0:
            fill_terms(found, choices, served, rates, op, points, terms)
            dsp_times[0, 0] = dsp_s
            add_fused(terms, dsp_times[0], points, fused_sums[op.fused_chain])
            apart_s[op.fused_chain] += op.repeats * choices[_BEST, 0]
            result.critical_s = op.repeats * choices[_BEST, 0]
        _sram_and_energy(arch, ops[o : o + 1], candidate, result)
        level_j = op.repeats * level_energy_j(candidate, served, rates, point)
        result.sram_j += level_j
        result.energy_j += level_j
        result.bound = _bound(result)
        _fill_tiling(result, candidate)
        result.tile_rows, result.tile_columns = np.ceil(op.elements / arch.tiles), 1.0
        if op.unit == _DPU and op.dpu_operation != _ELTWISE:
            _, result.tile_rows, result.tile_columns = tile_share(arch, op, result.split)
    _share_chains(archs, ops, results, fused_sums, apart_s)


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


@compiled
def _sram_and_energy(arch: ArchRecord, ops: Any, candidate: CandidateRecord, result: ResultRecord) -> None:
    """Fill in what the work of one operator on the NPU moves through SRAM, and its energy by part."""
    op, fixed = ops[0], fixed_work(arch, ops, ops[0].device)
    on_grid = grid_written_bytes(op) if op.unit == _DPU else 0.0
    copied, written = op.repeats * candidate.copied_bytes, op.repeats * candidate.written_bytes
    fed = op.repeats * (candidate.grid_traffic_bytes - on_grid)
    result.sram_read_bytes = fed + fixed.dsp_read_bytes + copied + written
    result.sram_written_bytes = op.repeats * on_grid + fixed.dsp_written_bytes + copied
    result.sram_written_bytes += op.repeats * candidate.read_bytes
    traffic = result.sram_read_bytes + result.sram_written_bytes
    lane_cycles = dsp_lane_cycles(arch, op, result.dsp_s) if op.unit == _DSP else 0.0
    found = dynamic_energies(arch, result.dram_bytes, traffic, fixed.grid_macs, lane_cycles)
    result.mac_j, result.sram_j, result.dram_j, result.dsp_j = found.mac, found.sram, found.dram, found.dsp
    result.energy_j = found.mac + found.sram + found.dram + found.dsp


@compiled
def _host_cost(host: HostRecord, op: OpRecord, result: ResultRecord) -> None:
    found = cost_host(host, op)
    result.latency_s, result.dram_read_bytes = found.time_s, found.read_bytes
    result.dram_bytes = found.read_bytes + found.written_bytes
    result.streamed_bytes = found.streamed_bytes
    _repeat(result, op.repeats)
    result.critical_s = result.latency_s
    result.host_s, result.energy_j = result.latency_s, op.repeats * host_energy_j(host, found)
    if host.is_gpu > 0.0:
        result.gpu_j = result.energy_j
    else:
        result.cpu_j = result.energy_j
    result.bound = _LAUNCH_BOUND if op.repeats * host.dispatch_s > 0.5 * result.latency_s else _COMPUTE_BOUND


@compiled
def _repeat(result: ResultRecord, times: float) -> None:
    """Count all times that an operator runs; what it holds in SRAM is the same each time."""
    result.latency_s *= times
    result.dpu_s *= times
    result.dsp_s *= times
    result.dma_s *= times
    result.dram_bytes *= times
    result.level_bytes *= times
    result.shared_bytes *= times
    result.dram_read_bytes *= times
    result.streamed_bytes *= times


@compiled
def _bound(result: ResultRecord) -> int:
    """Return what the operator waits for: its longest unit, or its start where that is longer still."""
    longest = max(result.dpu_s, result.dsp_s, result.dma_s)
    if result.latency_s > 2.0 * longest:
        return _LAUNCH_BOUND
    if longest == result.dma_s:
        return _DMA_BOUND
    return _DSP_BOUND if longest == result.dsp_s else _COMPUTE_BOUND
