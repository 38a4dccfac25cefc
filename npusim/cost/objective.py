"""What a mapping is chosen for: latency, energy, or their product (`npu.schedule.objective`).

Energy is that of an operator alone: what its candidate moves and computes, and the power of device and
machine while it works. A search for energy keeps slow mappings too, which may move less, so it takes about
four times as long. Candidates that a memory level serves are compared as for latency, where a byte from an
inner level is never worse than one from outside.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.architecture import ArchRecord, Archs
from npusim.cost.candidates import CANDIDATE_SIZE
from npusim.cost.kernels import compiled
from npusim.cost.rates import BEST, INDEX, PLAIN_BEST, choose, fill_latencies
from npusim.cost.records import Floats, Ints
from npusim.cost.resources import BODY, COUNT, STATIC_W, add_operator_demand, dynamic_j, moved_bytes
from npusim.cost.tables import OpRecord

IDLE_W = 2
"""Column of the idle power in the table of the machine's states (`npusim.cost.design_batch.Batch`)."""
_ENERGY = 1.0
"""Number of `energy` in `npusim.arch.npu.MAPPING_OBJECTIVES`; smaller is latency, greater the product."""


@compiled
def weighs_energy(archs: Archs) -> bool:
    """Whether an array device has its mappings chosen by their energy."""
    has_energy = False
    for d in range(archs.arrays.shape[1]):
        has_energy = has_energy or archs.arrays[0, d].objective >= _ENERGY
    return has_energy


@compiled
def choose_mapping(
    arch: ArchRecord,
    op: OpRecord,
    candidates: Any,
    start: int,
    stop: int,
    is_served: bool,
    rates: Floats,
    points: int,
    unit_j: Floats,
    machine: Floats,
    states: Ints,
    choices: Floats,
    latencies: Floats,
    demands: Floats,
) -> None:
    """Choose the best of `candidates[start:stop]` for the objective at each point; arguments as `choose`.

    Parameters
    ----------
    unit_j : array of float64, shape (states, UNIT_ENERGIES)
        Energies of the device in each state of the machine.
    machine : array of float64, shape (states, 4)
        Its column `IDLE_W` has the idle power of the machine.
    states : array of int64
        State at each point.
    demands : array of float64, shape (1, COUNT)
        Scratch.
    """
    if arch.objective < _ENERGY:
        choose(candidates, start, stop, is_served, rates, points, choices, latencies)
        return
    fill_latencies(candidates, start, stop, is_served, is_served, rates, points, choices, latencies)
    demands[0, :] = 0.0
    choices[PLAIN_BEST, :] = np.inf
    numbers = candidates.view(np.float64)
    add_operator_demand(arch, op, demands, 0)
    for k in range(COUNT):
        demands[0, k] /= op.repeats
    for c in range(stop - start):
        for k in range(BODY):
            demands[0, k] = numbers[(start + c) * CANDIDATE_SIZE + k]
        dram_bytes, read_bytes, written_bytes = moved_bytes(demands, 0)
        for p in range(points):
            latency_s = latencies[c * points + p]
            if latency_s == np.inf:
                continue
            cost = latency_s * (unit_j[states[p], STATIC_W] + machine[states[p], IDLE_W])
            for joules in dynamic_j(demands, 0, dram_bytes, read_bytes + written_bytes, unit_j, states[p]):
                cost += joules
            if arch.objective > _ENERGY:
                cost *= latency_s
            if cost < choices[PLAIN_BEST, p]:
                choices[PLAIN_BEST, p], choices[BEST, p], choices[INDEX, p] = cost, latency_s, start + c
    for p in range(points):
        choices[PLAIN_BEST, p] = choices[BEST, p]
