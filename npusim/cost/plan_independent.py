"""What design points cost under every residency plan: hosts, calls of runtimes, DSPs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.architecture import Archs
from npusim.cost.dsp import dsp_time_s
from npusim.cost.energy import dsp_lane_cycles
from npusim.cost.hosts import cost_host, host_energy_j
from npusim.cost.jit import compiled
from npusim.cost.tables import Unit

_DSP, _HOST = int(Unit.DSP), int(Unit.HOST)


class PlanIndependent(NamedTuple):
    """What points cost under every plan; float64 arrays, a column for each point."""

    launches_s: Any
    """Time of calls of runtimes, shape (points,)."""
    host_dram: Any
    """Bytes between DRAM and hosts that take time, shape (points,)."""
    host_moved: Any
    """All bytes between DRAM and hosts, shape (points,)."""
    dispatches_s: Any
    """Time of the calls of operators that DSPs or DMA engines do by themselves, shape (array devices,
    points).
    """
    dsps_s: Any
    """Time on the DSPs, shape (array devices, points)."""
    lane_cycles: Any
    """Cycles of single DSP lanes, shape (array devices, points)."""
    hosts_s: Any
    """Time on each host, shape (hosts, points)."""
    hosts_j: Any
    """Energy of each host beyond its idle power, shape (hosts, points)."""


@compiled
def plan_independent(arrays: int, hosts: int, points: int) -> PlanIndependent:
    """Return tables of so many devices and points, not filled in."""
    of_arrays = np.empty((3, arrays, points))
    of_hosts = np.empty((2, hosts, points))
    return PlanIndependent(
        np.empty(points), np.empty(points), np.empty(points), of_arrays[0], of_arrays[1], of_arrays[2],
        of_hosts[0], of_hosts[1],
    )  # fmt: skip


@compiled
def fill_independent(archs: Archs, ops: Any, dsp_s: Any, found: PlanIndependent, points: int) -> None:
    """Cost at the first points what no residency plan changes.

    Parameters
    ----------
    ops : array of OP_DTYPE, shape (operators,)
        Under any plan.
    dsp_s : array of float64, shape (operators, points)
        Written: the time of the DSPs for each operator.
    found : PlanIndependent
        Written.
    """
    for p in range(points):
        found.launches_s[p] = found.host_dram[p] = found.host_moved[p] = 0.0
        for d in range(archs.arrays.shape[1]):  # slices would take longer than the equations
            found.dispatches_s[d, p] = found.dsps_s[d, p] = found.lane_cycles[d, p] = 0.0
        for h in range(archs.hosts.shape[1]):
            found.hosts_s[h, p] = found.hosts_j[h, p] = 0.0
        for o in range(ops.shape[0]):
            op = ops[o]
            d = op.device
            dsp_s[o, p] = 0.0
            if op.unit == _HOST:
                host = archs.hosts[p, d]
                cost = cost_host(host, op)
                found.hosts_s[d, p] += cost.time_s * op.repeats
                found.hosts_j[d, p] += host_energy_j(host, cost) * op.repeats
                found.host_dram[p] += cost.streamed_bytes * op.repeats
                found.host_moved[p] += (cost.read_bytes + cost.written_bytes) * op.repeats
                found.launches_s[p] += op.launches * host.launch_s
            elif archs.arrays.shape[1] > 0:  # of views alone the runtime is called all the same
                array = archs.arrays[p, d]
                found.launches_s[p] += op.launches * array.launch_s
                found.dispatches_s[d, p] += op.repeats * op.dispatches * array.dispatch_s
                if op.unit == _DSP:
                    time = dsp_time_s(array, op)
                    dsp_s[o, p] = time
                    found.dsps_s[d, p] += op.repeats * time
                    found.lane_cycles[d, p] += op.repeats * dsp_lane_cycles(array, op, time)
