"""What design points cost under every residency plan: hosts, calls of runtimes, DSPs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.architecture import Archs
from npusim.cost.demands import dsp_lane_cycles
from npusim.cost.dsp import dsp_time_s
from npusim.cost.hosts import cost_host, host_energy_j
from npusim.cost.jit import compiled, compiled_making_arrays
from npusim.cost.tables import Unit

_DSP, _HOST = int(Unit.DSP), int(Unit.HOST)


class PlanIndependent(NamedTuple):
    """What points cost under every plan, and what plans are compared by; a column for each point."""

    table: Any
    """All rows, float64, shape (rows, points); the others are views of them."""
    requests: Any
    """Inferences in flight, shape (points,)."""
    dram_bytes_per_s: Any
    """Bandwidth of DRAM; 1 with one request in flight, when plans do not depend on it, shape (points,)."""
    launches_s: Any
    """Time of calls of runtimes, shape (points,)."""
    host_dram: Any
    """Bytes between DRAM and hosts that take time, shape (points,)."""
    host_moved: Any
    """All bytes between DRAM and hosts, shape (points,)."""
    contexts: Any
    """Inferences that each array device works on side by side, shape (array devices, points)."""
    shared_bytes_per_s: Any
    """Bandwidth of the memory level that each array device shares, 0 for none, shape (array devices, points).
    """
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
    dsp_s: Any
    """Time of the DSPs for each operator, shape (operators, points)."""


_SHARED, _OF_ARRAY, _OF_HOST = 5, 5, 2
"""Rows of all devices together, of an array device, of a host."""


@compiled_making_arrays
def plan_independent(arrays: int, hosts: int, operators: int, points: int) -> PlanIndependent:
    """Return tables of so many devices, operators and points, not filled in."""
    a, h = _SHARED + _OF_ARRAY * arrays, _SHARED + _OF_ARRAY * arrays + _OF_HOST * hosts
    table = np.empty((h + operators, points))
    return PlanIndependent(
        table, table[0], table[1], table[2], table[3], table[4], table[5 : 5 + arrays],
        table[5 + arrays : 5 + 2 * arrays], table[5 + 2 * arrays : 5 + 3 * arrays],
        table[5 + 3 * arrays : 5 + 4 * arrays], table[5 + 4 * arrays : a], table[a : a + hosts],
        table[a + hosts : h], table[h:],
    )  # fmt: skip


@compiled
def fill_independent(archs: Archs, ops: Any, table: Any, column: int) -> None:
    """Cost at one point what no residency plan changes.

    Parameters
    ----------
    archs : Archs
        The point.
    ops : array of OP_DTYPE, shape (operators,)
        Under any plan.
    table : array of float64, shape (rows, points)
        All rows of a `PlanIndependent`; a column is written.
    """
    # One array in place of the views: each call counts references to every array that it is given.
    arrays, hosts, shared = archs.arrays.shape[1], archs.hosts.shape[1], archs.shared[0, 0]
    dispatches, dsps, lanes = _SHARED + 2 * arrays, _SHARED + 3 * arrays, _SHARED + 4 * arrays
    hosts_s, hosts_j = _SHARED + _OF_ARRAY * arrays, _SHARED + _OF_ARRAY * arrays + hosts
    launches_s = host_dram = host_moved = 0.0
    for row in range(table.shape[0]):
        table[row, column] = 0.0
    for d in range(arrays):
        array = archs.arrays[0, d]
        table[_SHARED + d, column] = array.contexts
        if array.shared_place > 0.0:
            level = int(array.shared_place) - 1
            table[_SHARED + arrays + d, column] = array.level_bytes_per_s[level]
    for o in range(ops.shape[0]):
        op = ops[o]
        d = op.device
        if op.unit == _HOST:
            host = archs.hosts[0, d]
            cost = cost_host(host, op)
            table[hosts_s + d, column] += cost.time_s * op.repeats
            table[hosts_j + d, column] += host_energy_j(host, cost) * op.repeats
            host_dram += cost.streamed_bytes * op.repeats
            host_moved += (cost.read_bytes + cost.written_bytes) * op.repeats
            launches_s += op.launches * host.launch_s
        elif arrays > 0:  # of views alone the runtime is called all the same
            array = archs.arrays[0, d]
            launches_s += op.launches * array.launch_s
            table[dispatches + d, column] += op.repeats * op.dispatches * array.dispatch_s
            if op.unit == _DSP:
                time = dsp_time_s(array, op)
                table[hosts_j + hosts + o, column] = time
                table[dsps + d, column] += op.repeats * time
                table[lanes + d, column] += op.repeats * dsp_lane_cycles(array, op, time)
    table[0, column] = shared.requests
    table[1, column] = shared.dram_bytes_per_s if shared.requests > 1.0 else 1.0
    table[2, column], table[3, column], table[4, column] = launches_s, host_dram, host_moved
