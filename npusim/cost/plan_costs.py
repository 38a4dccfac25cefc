"""Costs of residency plans at many points: operators are costed once, plans are sums of them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from npusim.cost.architecture import ArchRecord
from npusim.cost.candidate_latency import Choice, Rate, dma_time_s, overlapped_s, prologue_epilogue_s
from npusim.cost.jit import compiled
from npusim.cost.tables import OpRecord, Unit

__all__ = [
    "FUSED_SUMS",
    "SUMS",
    "TERMS",
    "PlanIndependent",
    "add_plan",
    "fill_terms",
    "inference_times",
    "keep_better_plan",
    "on_npu",
    "plan_fits",
    "waits_for_host",
]

_DPU, _DSP, _DMA, _CPU, _GPU = (int(u) for u in (Unit.DPU, Unit.DSP, Unit.DMA, Unit.CPU, Unit.GPU))
_CYCLE, _READ_WAIT, _WRITE_WAIT = int(Rate.CYCLE), int(Rate.READ_WAIT), int(Rate.WRITE_WAIT)
_PAGE_WALK, _BEST, _INDEX = int(Rate.PAGE_WALK), int(Choice.BEST), int(Choice.INDEX)


class PlanIndependent(IntEnum):
    """Rows of the table of what a point costs under every plan."""

    CPU_S = 0
    """Time on the CPU."""
    GPU_S = 1
    """Time on the GPU."""
    LAUNCHES_S = 2
    """Time of launches."""
    DSP_S = 3
    """Time on the DSPs."""
    LANE_CYCLES = 4
    """Cycles of single DSP lanes."""
    HOST_J = 5
    """Energy of CPU and GPU."""
    HOST_DRAM = 6
    """Bytes between DRAM and CPU or GPU."""


_CPU_S, _GPU_S, _LAUNCHES_S = (
    int(PlanIndependent.CPU_S),
    int(PlanIndependent.GPU_S),
    int(PlanIndependent.LAUNCHES_S),
)
_HOST_DRAM = int(PlanIndependent.HOST_DRAM)

# Rows of the table of sums that a plan makes at each point.
_NPU_S, _DRAM, _SRAM_TRAFFIC, _SRAM_PEAK, _DPU_S, _DMA_S = range(6)
SUMS = 6
# Rows of the table of sums over a row-wise fusion: time of each unit, and of what cannot overlap.
_FUSED_DPU, _FUSED_DSP, _FUSED_DMA, _FUSED_PROLOGUE, _FUSED_REFILL_WAIT, _FUSED_PAGE_WALKS, _FUSED_APART = (
    range(7)
)
FUSED_SUMS = 7
# Rows of the table of what one operator comes to at each point.
_BEST_S, _WAIT_S, _PROLOGUE_EPILOGUE_S, _REFILL_WAIT_S, _PAGE_WALKS_S = range(5)
_ITEM_DPU_S, _ITEM_DMA_S, _ITEM_DRAM, _ITEM_TRAFFIC, _ITEM_SRAM = range(5, 10)
TERMS = 10


@compiled
def inference_times(
    arch: ArchRecord, npu_s: float, cpu_s: float, gpu_s: float, launches_s: float, dram_bytes: float
) -> tuple[float, float]:
    """Return (latency of an inference, interval between two inferences), in s.

    Parameters
    ----------
    arch : record of ARCH_DTYPE
    npu_s, cpu_s, gpu_s : float
        Sums of the operators' latencies by device.
    launches_s : float
        Sum of all launches.
    dram_bytes : float
        Bytes that an inference moves between DRAM and the devices.
    """
    serial_s = npu_s + cpu_s + gpu_s + launches_s
    if arch.requests <= 1.0:
        return serial_s, serial_s
    interval_s = max(max(npu_s, dram_bytes / arch.dram_bytes_per_s), max(cpu_s, gpu_s))
    interval_s = max(interval_s, serial_s / arch.requests)
    return max(serial_s, arch.requests * interval_s), interval_s


@compiled
def on_npu(op: OpRecord) -> bool:
    """Whether an operator runs on the NPU."""
    return bool(op.unit == _DPU or op.unit == _DSP or op.unit == _DMA)


@compiled
def plan_fits(ops: Any, row_of: Any, bounds: Any) -> bool:
    """Whether every operator of a plan has a candidate to be done."""
    fits = True
    for o in range(ops.shape[0]):
        fits = fits and not (on_npu(ops[o]) and bounds[row_of[o]] == bounds[row_of[o] + 1])
    return fits


@compiled
def fill_terms(
    found: Any, choices: Any, rates: Any, reads: bool, writes: bool, points: int, terms: Any
) -> None:
    """Write down, for each point, what the chosen candidate of one operator comes to."""
    for p in range(points):
        candidate = found[int(choices[_INDEX, p])]
        terms[_BEST_S, p] = choices[_BEST, p]
        terms[_WAIT_S, p] = (rates[_READ_WAIT, p] if reads else 0.0) + (
            rates[_WRITE_WAIT, p] if writes else 0.0
        )
        terms[_PROLOGUE_EPILOGUE_S, p] = prologue_epilogue_s(candidate, rates, p)
        terms[_REFILL_WAIT_S, p] = candidate.refills * rates[_READ_WAIT, p]
        terms[_PAGE_WALKS_S, p] = candidate.page_walks * rates[_PAGE_WALK, p]
        terms[_ITEM_DPU_S, p] = candidate.grid_cycles * rates[_CYCLE, p]
        terms[_ITEM_DMA_S, p] = dma_time_s(candidate, rates, p)
        terms[_ITEM_DRAM, p], terms[_ITEM_TRAFFIC, p] = candidate.dram_bytes, candidate.grid_traffic_bytes
        terms[_ITEM_SRAM, p] = candidate.sram_peak_bytes


@compiled
def _add_up(terms: Any, is_row_fused: bool, points: int, sums: Any) -> None:
    """Add one operator to the sums of a plan; of a row-fused one only the waits."""
    for p in range(points):
        sums[_NPU_S, p] += terms[_WAIT_S, p] + (0.0 if is_row_fused else terms[_BEST_S, p])
        sums[_DRAM, p] += terms[_ITEM_DRAM, p]
        sums[_SRAM_TRAFFIC, p] += terms[_ITEM_TRAFFIC, p]
        sums[_SRAM_PEAK, p] = max(sums[_SRAM_PEAK, p], terms[_ITEM_SRAM, p])
        sums[_DPU_S, p] += terms[_ITEM_DPU_S, p]
        sums[_DMA_S, p] += terms[_ITEM_DMA_S, p]


@compiled
def _add_fused(terms: Any, dsp_s: Any, points: int, fused_sums: Any) -> None:
    """Add one row-fused operator to the sums of its fusion, unit by unit."""
    for p in range(points):
        fused_sums[_FUSED_DPU, p] += terms[_ITEM_DPU_S, p]
        fused_sums[_FUSED_DSP, p] += dsp_s[p]
        fused_sums[_FUSED_DMA, p] += terms[_ITEM_DMA_S, p]
        fused_sums[_FUSED_PROLOGUE, p] += terms[_PROLOGUE_EPILOGUE_S, p]
        fused_sums[_FUSED_REFILL_WAIT, p] += terms[_REFILL_WAIT_S, p]
        fused_sums[_FUSED_PAGE_WALKS, p] += terms[_PAGE_WALKS_S, p]
        fused_sums[_FUSED_APART, p] += terms[_BEST_S, p] - terms[_PAGE_WALKS_S, p]


@compiled
def _add_fused_chain(fused_sums: Any, pieces: float, points: int, sums: Any) -> None:
    """Add the time of a row-wise fusion, in place of the latencies of its operators.

    They work at the same time: the units overlap, prologues and epilogues add up. But one of `pieces` blocks
    of rows has to go through all of them, one after the other (filling the pipeline).
    """
    for p in range(points):
        work_s, dma_s = max(fused_sums[_FUSED_DPU, p], fused_sums[_FUSED_DSP, p]), fused_sums[_FUSED_DMA, p]
        fusion_s = overlapped_s(
            work_s, dma_s, fused_sums[_FUSED_PROLOGUE, p], fused_sums[_FUSED_REFILL_WAIT, p]
        )
        filling_s = (fused_sums[_FUSED_APART, p] - fusion_s) / pieces
        sums[_NPU_S, p] += fusion_s + filling_s + fused_sums[_FUSED_PAGE_WALKS, p]


@compiled
def _fused_chain_count(ops: Any) -> int:
    """Return how many row-wise fusions a plan has: numbers run from 1."""
    most = 0
    for o in range(ops.shape[0]):
        most = max(most, ops[o].fused_chain)
    return most


@compiled
def add_plan(
    ops: Any, row_of: Any, terms: Any, dsp_s: Any, pieces: float, points: int, sums: Any, fused_sums: Any
) -> None:
    """Add up the operators of one plan, fusion by fusion; a row-wise fusion has `pieces` blocks of rows."""
    sums[:] = 0.0
    for number in range(_fused_chain_count(ops) + 1):
        fused_sums[:] = 0.0
        for o in range(ops.shape[0]):
            op = ops[o]
            if op.fused_chain != number or not on_npu(op):
                continue
            _add_up(terms[row_of[o]], number > 0, points, sums)
            if number > 0:
                _add_fused(terms[row_of[o]], dsp_s[o], points, fused_sums)
        if number > 0:
            _add_fused_chain(fused_sums, pieces, points, sums)


@compiled
def waits_for_host(ops: Any) -> bool:
    """Whether a plan keeps something in the NPU's SRAM while a host works."""
    for o in range(ops.shape[0]):
        on_host = ops[o].unit == _CPU or ops[o].unit == _GPU
        if on_host and ops[o].live_spread_bytes + ops[o].live_copied_bytes > 0.0:
            return True
    return False


@compiled
def keep_better_plan(
    archs: Any,
    independent: Any,
    sums: Any,
    plan: int,
    waits: bool,
    points: int,
    totals: Any,
    first: int,
    plans: Any,
    traffic: Any,
) -> None:
    """Compare a plan with the best so far at each point: by time, traffic, then bytes held.

    A plan under which something `waits` in SRAM while a host works is none for points with several requests
    in flight: the others need the room.
    """
    for p in range(points):
        arch, total = archs[p, 0], totals[first + p]
        if waits and arch.requests > 1.0:
            continue
        dram = sums[_DRAM, p] + independent[_HOST_DRAM, p]
        latency, interval = inference_times(
            arch,
            sums[_NPU_S, p],
            independent[_CPU_S, p],
            independent[_GPU_S, p],
            independent[_LAUNCHES_S, p],
            dram,
        )
        # The total's throughput holds the interval until all plans are compared.
        if plans[first + p] >= 0:
            if interval > total.throughput_per_s:
                continue
            if interval == total.throughput_per_s:
                if latency > total.latency_s:
                    continue
                if latency == total.latency_s:
                    if dram > total.dram_bytes:
                        continue
                    if dram == total.dram_bytes and sums[_SRAM_PEAK, p] >= total.sram_peak_bytes:
                        continue
        plans[first + p] = plan
        total.latency_s, total.throughput_per_s = latency, interval
        total.dram_bytes, total.sram_peak_bytes = dram, sums[_SRAM_PEAK, p]
        total.dpu_s, total.dma_s = sums[_DPU_S, p], sums[_DMA_S, p]
        traffic[p] = sums[_SRAM_TRAFFIC, p]
