"""What a mapping is chosen for: latency, energy, or their product (`npu.schedule.objective`).

Energy is that of an operator alone: what its candidate moves and computes, and the power of device and
machine while it works. A search for energy keeps slow mappings too, which may move less, so it takes about
four times as long. Candidates that a memory level serves are compared as for latency, where a byte from an
inner level is never worse than one from outside.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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


class Energies(NamedTuple):
    """Energies of a device in each state of the machine, and the state at each point."""

    unit_j: Floats
    """Shape (states, UNIT_ENERGIES)."""
    machine: Floats
    """Shape (states, 4); column `IDLE_W` has the idle power."""
    states: Ints


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
    energies: Energies,
    choices: Floats,
    latencies: Floats,
    demands: Floats,
) -> None:
    """Choose the best of `candidates[start:stop]` for the objective at each point; arguments as `choose`.

    Parameters
    ----------
    demands : array of float64, shape (1, COUNT)
        Scratch.
    """
    if arch.objective < _ENERGY:
        choose(candidates, start, stop, is_served, rates, points, choices, latencies)
        return
    fill_latencies(candidates, start, stop, is_served, is_served, rates, points, choices, latencies)
    demands[0, :] = 0.0
    choices[PLAIN_BEST, :] = np.inf
    numbers, unit_j, states = candidates.view(np.float64), energies.unit_j, energies.states
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
            state = states[p]
            cost = latency_s * (unit_j[state, STATIC_W] + energies.machine[state, IDLE_W])
            for joules in dynamic_j(demands, 0, dram_bytes, read_bytes + written_bytes, unit_j, state):
                cost += joules
            if arch.objective > _ENERGY:
                cost *= latency_s
            if cost < choices[PLAIN_BEST, p]:
                choices[PLAIN_BEST, p], choices[BEST, p], choices[INDEX, p] = cost, latency_s, start + c
    for p in range(points):
        choices[PLAIN_BEST, p] = choices[BEST, p]
