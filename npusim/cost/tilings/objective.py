"""What a mapping is chosen for: latency, energy, or their product (`npu.schedule.objective`).

Energy is that of an operator alone: what its candidate moves and computes, and the power of device and
machine while it works. A search for energy keeps slow mappings too, which may move less, so it takes about
four times as long. Candidates that a memory level serves are compared as for latency, where a byte from an
inner level is never worse than one from outside.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.compiling.kernels import compiled
from npusim.compiling.records import Floats, Ints
from npusim.cost.lowering.tables import OpRecord
from npusim.cost.machine.architecture import Archs
from npusim.cost.units.needs import CANDIDATE_SIZE
from npusim.cost.units.rates import Choices, choose, fill_latencies
from npusim.cost.units.resources import BODY, COUNT, STATIC_W, add_operator_demand, dynamic_j, moved_bytes

_ENERGY = 1.0
"""Number of `energy` in `npusim.arch.npu.MAPPING_OBJECTIVES`; smaller is latency, greater the product."""


class States(NamedTuple):
    """States of a machine: what differs between points and takes no time; shape (states,)."""

    area_mm2: Floats
    peak_ops_per_s: Floats
    idle_w: Floats
    limit_w: Floats
    unit_j: Floats
    """Unit energies, shape (array devices, states, UNIT_ENERGIES)."""


@compiled
def weighs_energy(archs: Archs) -> bool:
    """Whether an array device has its mappings chosen by their energy."""
    has_energy = False
    for d in range(archs.arrays.shape[1]):
        has_energy = has_energy or archs.arrays[0, d].objective >= _ENERGY
    return has_energy


@compiled
def choose_mapping(
    archs: Archs,
    op: OpRecord,
    candidates: Any,
    start: int,
    stop: int,
    is_served: bool,
    rates: Floats,
    points: int,
    states: States,
    state_of: Ints,
    choices: Choices,
    demands: Floats,
) -> None:
    """Choose the best of `candidates[start:stop]` for the objective at each point; arguments as `choose`.

    Parameters
    ----------
    state_of : array of int64
        State of the machine at each point.
    demands : array of float64, shape (1, COUNT)
        Scratch.
    """
    arch, unit_j, best_cost = archs.arrays[0, op.device], states.unit_j[op.device], choices.plain_best_s
    if arch.objective < _ENERGY:
        choose(candidates, start, stop, is_served, rates, points, choices)
        return
    fill_latencies(candidates, start, stop, is_served, is_served, rates, points, choices)
    demands[0, :] = 0.0
    best_cost[:] = np.inf
    numbers = candidates.view(np.float64)
    add_operator_demand(arch, op, demands, 0)
    for k in range(COUNT):
        demands[0, k] /= op.repeats
    for c in range(stop - start):
        for k in range(BODY):
            demands[0, k] = numbers[(start + c) * CANDIDATE_SIZE + k]
        dram_bytes, read_bytes, written_bytes = moved_bytes(demands, 0)
        for p in range(points):
            latency_s, state = choices.latencies_s[c * points + p], state_of[p]
            if latency_s == np.inf:
                continue
            cost = latency_s * (unit_j[state, STATIC_W] + states.idle_w[state])
            for joules in dynamic_j(demands, 0, dram_bytes, read_bytes + written_bytes, unit_j, state):
                cost += joules
            if arch.objective > _ENERGY:
                cost *= latency_s
            if cost < best_cost[p]:
                best_cost[p], choices.best_s[p], choices.candidate[p] = cost, latency_s, start + c
