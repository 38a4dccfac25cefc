"""A plan's bill at many points: items are written down once, plans add them up, the cheapest plan stays.

Like packages in a travel agency: flights and hotels are priced once, every package is a sum of some of them,
and the customer takes the best.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from npusim.cost.jit import kernel
from npusim.cost.pricing import Choice, Rate, dma_time_s, edges_s, together_s
from npusim.cost.tables import Unit
from npusim.cost.totals import inference_times

__all__ = [
    "ITEMS",
    "LINKS",
    "SUMS",
    "Common",
    "add_plan",
    "itemise",
    "keep_better",
    "on_npu",
    "plan_fits",
    "waits_for_host",
]

_DPU, _DSP, _DMA, _CPU, _GPU = (int(u) for u in (Unit.DPU, Unit.DSP, Unit.DMA, Unit.CPU, Unit.GPU))
_CYCLE, _READ_WAIT, _WRITE_WAIT = int(Rate.CYCLE), int(Rate.READ_WAIT), int(Rate.WRITE_WAIT)
_PAGE, _BEST, _PLACE = int(Rate.PAGE), int(Choice.BEST), int(Choice.PLACE)


class Common(IntEnum):
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


_CPU_S, _GPU_S, _LAUNCHES_S = int(Common.CPU_S), int(Common.GPU_S), int(Common.LAUNCHES_S)
_HOST_DRAM = int(Common.HOST_DRAM)

# Rows of the table of sums that a plan makes at each point.
_NPU_S, _DRAM, _SRAM_TRAFFIC, _SRAM_PEAK, _DPU_S, _DMA_S = range(6)
SUMS = 6
# Rows of the table of sums over a chain: time of each unit, and of what cannot overlap.
_CHAIN_DPU, _CHAIN_DSP, _CHAIN_DMA, _CHAIN_EDGES, _CHAIN_REFILLING, _CHAIN_WALKS, _CHAIN_APART = range(7)
LINKS = 7
# Rows of the table of what one operator comes to at each point.
_BEST_S, _WAIT_S, _EDGES_S, _REFILLING_S, _WALKS_S = range(5)
_ITEM_DPU_S, _ITEM_DMA_S, _ITEM_DRAM, _ITEM_TRAFFIC, _ITEM_SRAM = range(5, 10)
ITEMS = 10


@kernel
def on_npu(op: Any) -> bool:
    """Whether an operator runs on the NPU."""
    return bool(op.unit == _DPU or op.unit == _DSP or op.unit == _DMA)


@kernel
def plan_fits(ops: Any, slots: Any, bounds: Any) -> bool:
    """Whether every operator of a plan has a way to be done."""
    fits = True
    for o in range(ops.shape[0]):
        fits = fits and not (on_npu(ops[o]) and bounds[slots[o]] == bounds[slots[o] + 1])
    return fits


@kernel
def itemise(found: Any, choices: Any, rates: Any, reads: bool, writes: bool, points: int, items: Any) -> None:
    """Write down, for each point, what the chosen candidate of one operator comes to."""
    for p in range(points):
        way = found[int(choices[_PLACE, p])]
        items[_BEST_S, p] = choices[_BEST, p]
        items[_WAIT_S, p] = (rates[_READ_WAIT, p] if reads else 0.0) + (
            rates[_WRITE_WAIT, p] if writes else 0.0
        )
        items[_EDGES_S, p] = edges_s(way, rates, p)
        items[_REFILLING_S, p] = way.refills * rates[_READ_WAIT, p]
        items[_WALKS_S, p] = way.walks * rates[_PAGE, p]
        items[_ITEM_DPU_S, p] = way.grid_cycles * rates[_CYCLE, p]
        items[_ITEM_DMA_S, p] = dma_time_s(way, rates, p)
        items[_ITEM_DRAM, p], items[_ITEM_TRAFFIC, p] = way.dram_bytes, way.grid_sram_bytes
        items[_ITEM_SRAM, p] = way.sram_bytes


@kernel
def _add_up(items: Any, chained: bool, points: int, sums: Any) -> None:
    """Add one operator to the sums of a plan; of a link in a chain only the waits."""
    for p in range(points):
        sums[_NPU_S, p] += items[_WAIT_S, p] + (0.0 if chained else items[_BEST_S, p])
        sums[_DRAM, p] += items[_ITEM_DRAM, p]
        sums[_SRAM_TRAFFIC, p] += items[_ITEM_TRAFFIC, p]
        sums[_SRAM_PEAK, p] = max(sums[_SRAM_PEAK, p], items[_ITEM_SRAM, p])
        sums[_DPU_S, p] += items[_ITEM_DPU_S, p]
        sums[_DMA_S, p] += items[_ITEM_DMA_S, p]


@kernel
def _add_link(items: Any, dsp_s: Any, points: int, links: Any) -> None:
    """Add one operator of a chain to the chain's sums, unit by unit."""
    for p in range(points):
        links[_CHAIN_DPU, p] += items[_ITEM_DPU_S, p]
        links[_CHAIN_DSP, p] += dsp_s[p]
        links[_CHAIN_DMA, p] += items[_ITEM_DMA_S, p]
        links[_CHAIN_EDGES, p] += items[_EDGES_S, p]
        links[_CHAIN_REFILLING, p] += items[_REFILLING_S, p]
        links[_CHAIN_WALKS, p] += items[_WALKS_S, p]
        links[_CHAIN_APART, p] += items[_BEST_S, p] - items[_WALKS_S, p]


@kernel
def _join_chain(links: Any, pieces: float, points: int, sums: Any) -> None:
    """Replace the latencies of a chain's operators, added up one by one, by the time of the chain.

    Operators that hand rows on in stripes work at the same time: the units overlap, starts and ends add up.
    But one of `pieces` stripes has to go through all of them, one after the other, as in any pipeline.
    """
    for p in range(points):
        work_s, dma_s = max(links[_CHAIN_DPU, p], links[_CHAIN_DSP, p]), links[_CHAIN_DMA, p]
        chain_s = together_s(work_s, dma_s, links[_CHAIN_EDGES, p], links[_CHAIN_REFILLING, p])
        filling_s = (links[_CHAIN_APART, p] - chain_s) / pieces
        sums[_NPU_S, p] += chain_s + filling_s + links[_CHAIN_WALKS, p]


@kernel
def _chains(ops: Any) -> int:
    """Return how many chains a plan has: numbers run from 1."""
    most = 0
    for o in range(ops.shape[0]):
        most = max(most, ops[o].chain)
    return most


@kernel
def add_plan(
    ops: Any, slots: Any, items: Any, dsp_s: Any, pieces: float, points: int, sums: Any, links: Any
) -> None:
    """Add the operators of one plan up, chain by chain; a chain's stripes are `pieces`."""
    sums[:] = 0.0
    for chain in range(_chains(ops) + 1):
        links[:] = 0.0
        for o in range(ops.shape[0]):
            op = ops[o]
            if op.chain != chain or not on_npu(op):
                continue
            _add_up(items[slots[o]], chain > 0, points, sums)
            if chain > 0:
                _add_link(items[slots[o]], dsp_s[o], points, links)
        if chain > 0:
            _join_chain(links, pieces, points, sums)


@kernel
def waits_for_host(ops: Any) -> bool:
    """Whether a plan keeps something in the NPU's SRAM while a host works."""
    for o in range(ops.shape[0]):
        on_host = ops[o].unit == _CPU or ops[o].unit == _GPU
        if on_host and ops[o].live_spread_bytes + ops[o].live_copied_bytes > 0.0:
            return True
    return False


@kernel
def keep_better(
    archs: Any,
    common: Any,
    sums: Any,
    plan: int,
    waits: bool,
    points: int,
    totals: Any,
    first: int,
    plans: Any,
    traffic: Any,
) -> None:
    """Compare a plan with the best so far at each point: by time, then by what it moves, then by what it
    holds.

    A plan under which something `waits` in SRAM while a host works is none for points with several requests
    in flight: the others need the room.
    """
    for p in range(points):
        arch, total = archs[p, 0], totals[first + p]
        if waits and arch.requests > 1.0:
            continue
        dram = sums[_DRAM, p] + common[_HOST_DRAM, p]
        latency, interval = inference_times(
            arch, sums[_NPU_S, p], common[_CPU_S, p], common[_GPU_S, p], common[_LAUNCHES_S, p], dram
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
