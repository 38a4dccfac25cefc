"""Totals of an inference under the plan that is taken: traffic, busy times, energy, rates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.demands import DRAM_BYTES, SRAM_READ_BYTES, SRAM_WRITTEN_BYTES, fill_moved
from npusim.cost.design_batch import Batch
from npusim.cost.energy import DRAM_J, DSP_J, MAC_J, SRAM_J, UnitEnergy, fill_energies
from npusim.cost.jit import compiled
from npusim.cost.plan_costs import DMA_S, WORK_S
from npusim.cost.power import throttled_interval_s
from npusim.cost.rates import Rate
from npusim.cost.resources import GRID_CYCLES, LANE_CYCLES, LEVEL_READ_BYTES, LEVEL_WRITTEN_BYTES, LEVELS

_CYCLE, _STATIC_W = int(Rate.CYCLE), int(UnitEnergy.STATIC_W)


class Taken(NamedTuple):
    """What the columns of a batch come to under the plan that each takes."""

    best: Any
    """Array of TOTAL_DTYPE, shape (columns,)."""
    plans: Any
    """That plan, -1 for none, int64, shape (columns,)."""
    kept: Any
    """Its sums, float64, shape (array devices, SUMS, columns)."""
    demands: Any
    """What each array device has to do under it, float64, shape (array devices, columns, COUNT) ..."""
    moved: Any
    """... and the bytes that it moves, float64, shape (array devices, columns, MOVED)."""
    energies: Any
    """Its energy at each point of the batch, float64, shape (array devices, points, PARTS)."""


@compiled
def fill_columns(batch: Batch, taken: Taken) -> None:
    """Fill in what follows from the plan that each column takes, whatever that costs in energy."""
    independent, best, kept, demands = batch.independent, taken.best, taken.kept, taken.demands
    moved, rates = taken.moved, batch.rates
    for d in range(kept.shape[0]):
        for c in range(batch.counts[0]):
            demands[d, c, LANE_CYCLES] = independent.lane_cycles[d, c]
        fill_moved(demands[d], batch.counts[0], moved[d])
    for c in range(batch.counts[0]):
        total = best[c]
        if taken.plans[c] < 0:
            total.latency_s = total.energy_j = np.inf
            total.throughput_per_s = 0.0
            continue
        total.dram_bytes = independent.host_moved[c]
        for d in range(kept.shape[0]):
            total.npu_s += kept[d, WORK_S, c] + independent.dispatches_s[d, c]
            total.dpu_s += demands[d, c, GRID_CYCLES] * rates[d, _CYCLE, c]
            total.dsp_s += independent.dsps_s[d, c]
            total.dma_s += kept[d, DMA_S, c]
            total.dram_bytes += moved[d, c, DRAM_BYTES]
            total.sram_traffic_bytes += moved[d, c, SRAM_READ_BYTES] + moved[d, c, SRAM_WRITTEN_BYTES]
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
def finish(batch: Batch, taken: Taken, macs: float, totals: Any, order: Any, plans: Any) -> None:
    """Write the totals of the points of a batch: those of its column, and its own energy and machine.

    Parameters
    ----------
    macs : float
        Multiply-accumulates of all devices, zeros counted.
    totals, plans : array of TOTAL_DTYPE and of int64
        Written.
    order : array of int64, shape (points of the batch or more,)
        Place of each point among them.
    """
    kept, unit_j, independent, machine = taken.kept, batch.unit_j, batch.independent, batch.machine
    column_of, state_of, energies = batch.column_of, batch.state_of, taken.energies
    for d in range(kept.shape[0]):
        fill_energies(
            taken.demands[d], taken.moved[d], column_of, unit_j[d], state_of, batch.counts[1], energies[d]
        )
    for p in range(batch.counts[1]):
        c, state = column_of[p], state_of[p]
        totals[order[p]], plans[order[p]] = taken.best[c], taken.plans[c]
        total = totals[order[p]]
        total.area_mm2, total.peak_ops_per_s = machine[state, 0], machine[state, 1]
        if taken.plans[c] < 0:
            continue
        interval = total.throughput_per_s
        for d in range(kept.shape[0]):
            total.mac_j += energies[d, p, MAC_J]
            total.sram_j += energies[d, p, SRAM_J]
            total.dram_j += energies[d, p, DRAM_J]
            total.dsp_j += energies[d, p, DSP_J]
            work_s = kept[d, WORK_S, c] + independent.dispatches_s[d, c]
            static_w = unit_j[d, state, _STATIC_W]
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
        total.ops_per_j = 2.0 * macs / total.energy_j if total.energy_j > 0.0 else 0.0
        total.throughput_per_s = 1.0 / interval if interval > 0.0 else np.inf


@compiled
def fill_device_uses(batch: Batch, taken: Taken, uses: Any) -> None:
    """Write how long each device works at the one point of a batch: array devices first, then hosts.

    Parameters
    ----------
    uses : array of DEVICE_USE_DTYPE, shape (devices,)
    """
    kept, independent = taken.kept, batch.independent
    arrays = kept.shape[0]
    if taken.plans[0] >= 0:
        for d in range(arrays):
            use = uses[d]
            use.work_s = kept[d, WORK_S, 0] + independent.dispatches_s[d, 0]
            use.dpu_s = taken.demands[d, 0, GRID_CYCLES] * batch.rates[d, _CYCLE, 0]
            use.dma_s, use.dsp_s = kept[d, DMA_S, 0], independent.dsps_s[d, 0]
        for h in range(independent.hosts_s.shape[0]):
            uses[arrays + h].work_s = independent.hosts_s[h, 0]
