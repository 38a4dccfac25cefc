"""Totals of an inference under the plan that is taken: energy, rates, each device's part."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.architecture import Archs
from npusim.cost.energy import dynamic_energies, fixed_work
from npusim.cost.jit import compiled
from npusim.cost.plan_costs import DMA_S, DPU_S, DRAM, LEVEL_J, SRAM_TRAFFIC, WORK_S
from npusim.cost.plan_independent import PlanIndependent
from npusim.cost.power import throttled_interval_s


class Taken(NamedTuple):
    """What the points of a block come to under the plan that each takes."""

    archs: Archs
    independent: PlanIndependent
    kept: Any
    """Sums of that plan, float64, shape (array devices, SUMS, points)."""


@compiled
def finish(taken: Taken, ops: Any, points: int, totals: Any, first: int, plans: Any) -> None:
    """Fill in what follows from the plan that was taken: energy, rates, and what the machine itself is."""
    archs, independent = taken.archs, taken.independent
    for p in range(points):
        total, shared = totals[first + p], archs.shared[p, 0]
        total.area_mm2, total.peak_ops_per_s = shared.area_mm2, shared.peak_ops_per_s
        if plans[first + p] < 0:
            total.latency_s = total.energy_j = np.inf
            total.throughput_per_s = 0.0
            continue
        total.dram_bytes = independent.host_moved[p]
        total.npu_s = total.dpu_s = total.dsp_s = total.dma_s = total.cpu_s = total.gpu_s = 0.0
        total.mac_j = total.sram_j = total.dram_j = total.dsp_j = 0.0
        total.cpu_j = total.gpu_j = total.static_j = total.sram_traffic_bytes = 0.0
    macs = 0.0
    for d in range(archs.arrays.shape[1]):
        macs = _add_array(taken, ops, d, points, totals, first, plans)
    if archs.arrays.shape[1] == 0:
        for o in range(ops.shape[0]):
            macs += ops[o].repeats * ops[o].macs
    for p in range(points):
        if plans[first + p] >= 0:
            _add_hosts(archs, independent, p, totals[first + p], macs)


@compiled
def _add_array(
    taken: Taken, ops: Any, d: int, points: int, totals: Any, first: int, plans: Any
) -> float:  # fmt: skip
    """Add what an array device does to the totals of some points; return the MACs of all devices."""
    archs, independent, kept = taken.archs, taken.independent, taken.kept[d]
    fixed = fixed_work(archs.arrays[0, d], ops, d)
    for p in range(points):
        if plans[first + p] < 0:
            continue
        arch, total = archs.arrays[p, d], totals[first + p]
        interval = total.throughput_per_s
        dram, work_s = kept[DRAM, p], kept[WORK_S, p] + independent.dispatches_s[d, p]
        traffic = kept[SRAM_TRAFFIC, p] + fixed.dsp_read_bytes + fixed.dsp_written_bytes + dram
        found = dynamic_energies(arch, dram, traffic, fixed.grid_macs, independent.lane_cycles[d, p])
        total.npu_s += work_s
        total.dpu_s += kept[DPU_S, p]
        total.dsp_s += independent.dsps_s[d, p]
        total.dma_s += kept[DMA_S, p]
        total.dram_bytes += dram
        total.sram_traffic_bytes += traffic
        total.mac_j += found.mac
        total.sram_j += found.sram + kept[LEVEL_J, p]
        total.dram_j += found.dram
        total.dsp_j += found.dsp
        total.static_j += arch.static_w * min(work_s / arch.contexts, interval)
    return fixed.macs


@compiled
def _add_hosts(archs: Archs, independent: PlanIndependent, p: int, total: Any, macs: float) -> None:
    """Add what hosts do to the total of a point, and fill in what follows from all devices."""
    for h in range(archs.hosts.shape[1]):
        host, time_s = archs.hosts[p, h], independent.hosts_s[h, p]
        if host.is_gpu > 0.0:
            total.gpu_s += time_s
            total.gpu_j += independent.hosts_j[h, p]
        else:
            total.cpu_s += time_s
            total.cpu_j += independent.hosts_j[h, p]
    interval, shared = total.throughput_per_s, archs.shared[p, 0]
    on_devices_j = total.cpu_j + total.gpu_j + total.static_j
    work_j = total.mac_j + total.sram_j + total.dram_j + total.dsp_j + on_devices_j
    throttled_s = throttled_interval_s(interval, work_j, shared.idle_w, shared.limit_w)
    if throttled_s > interval:
        total.latency_s *= throttled_s / interval
        interval = throttled_s
    total.idle_j = shared.idle_w * interval
    total.energy_j = work_j + total.idle_j
    total.ops_per_j = 2.0 * macs / total.energy_j if total.energy_j > 0.0 else 0.0
    total.throughput_per_s = 1.0 / interval if interval > 0.0 else np.inf


@compiled
def fill_device_uses(taken: Taken, points: int, first: int, plans: Any, uses: Any) -> None:
    """Write how long each device works: array devices first, then hosts."""
    arrays, independent, kept = taken.archs.arrays.shape[1], taken.independent, taken.kept
    for p in range(points):
        if plans[first + p] < 0:
            continue
        for d in range(arrays):
            use = uses[first + p, d]
            use.work_s = kept[d, WORK_S, p] + independent.dispatches_s[d, p]
            use.dpu_s, use.dma_s = kept[d, DPU_S, p], kept[d, DMA_S, p]
            use.dsp_s = independent.dsps_s[d, p]
        for h in range(taken.archs.hosts.shape[1]):
            uses[first + p, arrays + h].work_s = independent.hosts_s[h, p]
