"""GraphSplit applied: objective weights, solutions, and device wishes on the operators.

One inference at a time is a sum: time (or energy with what leakage adds to it), so one solution of the
dynamic program is the best. With several in flight the slowest device sets the pace, which is a maximum of
sums: then devices get weights, the best placement at those weights is found, and busy devices get larger
ones, round after round (Lagrangian relaxation with multiplicative updates). Each round also proves a lower
bound (no placement can beat the best at any weights), so the answer comes with how far from the best it can
be at most. What is found is improved by moving single groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

import numpy as np

from npusim.arch import Soc
from npusim.cost import DeviceTimes, fill_interval_bounds_s, interval_s, throttled_interval_s
from npusim.graph import Editor, Graph
from npusim.mapping.fusion import wished
from npusim.mapping.graphsplit.device_costs import placement_problem
from npusim.mapping.graphsplit.dynamic import solve
from npusim.mapping.graphsplit.host_costs import homes
from npusim.mapping.graphsplit.problem import ObjectiveWeights, Problem
from npusim.mapping.mapped import Mapped, Run, map_placed

Objective = Literal["latency", "energy"]
_ROUNDS = 24
_CLOSE = 1e-3
"""Relative distance to the lower bound that ends the search."""
_STEP = 2.0
"""How strongly weights follow the load: that of a fully busy device grows e^(step / sqrt(round)) times.
"""


@dataclass(frozen=True, slots=True)
class Split:
    """A placement of a problem's groups."""

    problem: Problem
    placement: tuple[int, ...]
    value: float
    """Time between two inferences (s), or energy of one (J), by the costs of the problem."""
    bound: float
    """No placement of this order has less."""
    exact: bool
    """Whether value and bound are the same."""
    others: tuple[tuple[int, ...], ...] = ()
    """Further good placements, the best first: they are additive here, the engine knows better."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the objective needs to know of the machine; arrays have a number for each device."""

    requests: float
    contexts: Any
    dram_bytes_per_s: float
    idle_w: float
    """Power of the package while all devices idle."""
    static_w: Any
    """What each draws beyond that while an inference works on it that no operator's energy holds."""
    minimise: Objective
    limit_w: float = 0.0
    """Mean power that the package is throttled to; 0: it is not."""

    @classmethod
    def of(cls, soc: Soc, run: Run, minimise: Objective, devices: tuple[str, ...]) -> Terms:
        """Read them off the machine's data sheet."""
        arch = run.row(soc)
        contexts, static_w = np.ones(len(devices)), np.zeros(len(devices))
        for d, device in enumerate(devices):
            if device in arch.arrays:
                contexts[d] = arch[device]["contexts"]
                static_w[d] = arch[device]["static_w"] / contexts[d]
        shared = arch.shared
        return cls(
            float(run.requests),
            contexts,
            float(shared["dram_bytes_per_s"]),
            float(shared["idle_w"]),
            static_w,
            minimise,
            float(shared["limit_w"]),
        )


def objective_of(problem: Problem, terms: Terms, placement: tuple[int, ...]) -> float:
    """Return what is minimised, by the costs of the problem: seconds between inferences, or joules of one."""
    return objective_of_loads(terms, problem.loads(placement))


def objective_of_loads(terms: Terms, loads: Any) -> float:
    """Return what is minimised, given the loads of a placement (`Problem.loads`)."""
    k = len(terms.contexts)
    found_s = float(interval_s(terms.requests, *_pace(terms, loads), np.empty(2 * k + 2)))
    work_j = float(loads[k + 2] + terms.static_w @ loads[:k])
    if np.isfinite(found_s):
        found_s = float(throttled_interval_s(found_s, work_j, terms.idle_w, terms.limit_w))
    return found_s if terms.minimise == "latency" else work_j + terms.idle_w * found_s


def _pace(terms: Terms, loads: Any) -> tuple[DeviceTimes, float, float]:
    """Return what `npusim.cost.plan_costs` asks for, given the loads of a placement (`Problem.loads`)."""
    k = len(terms.contexts)
    times = DeviceTimes(np.ascontiguousarray(loads[:k]), np.ascontiguousarray(loads[k + 3 :]), terms.contexts)
    return times, float(loads[k]), float(loads[k + 1] / terms.dram_bytes_per_s)


def _bounds_per_load(terms: Terms) -> Any:
    """Return the bounds of the interval that a unit of each load makes, without those that are always 0."""
    k = len(terms.contexts)
    matrix = np.empty((2 * k + 3, 2 * k + 2))
    for unit, bounds in zip(np.eye(2 * k + 3), matrix, strict=True):
        fill_interval_bounds_s(terms.requests, *_pace(terms, unit), bounds)
    matrix = matrix.T
    return matrix[matrix.any(axis=1)]


def best_placement(problem: Problem, terms: Terms) -> Split:
    """Return the best placement of a problem, with a proof of how good it is."""
    per_load = _bounds_per_load(terms)
    share = np.full(len(per_load), 1.0 / len(per_load))
    if terms.requests <= 1.0:
        solution = solve(problem, _weights(per_load, terms, share))
        return Split(
            problem,
            solution.placement,
            solution.cost,
            solution.bound,
            solution.exact,
        )
    found: dict[tuple[int, ...], float] = {}
    bound = 0.0
    for round_ in range(1, _ROUNDS + 1):
        solution = solve(problem, _weights(per_load, terms, share))
        if solution.placement not in found:
            value = objective_of(problem, terms, solution.placement)
            found[solution.placement] = value
            improved, placement = _improved(problem, terms, solution.placement, value)
            found[placement] = improved
        bound = max(bound, solution.bound)
        intervals = per_load @ problem.loads(solution.placement)
        least = min(found.values())
        if least <= bound * (1.0 + _CLOSE):
            break
        share = share * np.exp(_STEP / np.sqrt(round_) * intervals / intervals.max())
        share /= share.sum()
    ranked = sorted(found, key=lambda placement: found[placement])
    proven = bound >= least * (1.0 - 1e-9)
    return Split(problem, ranked[0], least, min(bound, least), proven, tuple(ranked[1:]))


def _improved(
    problem: Problem, terms: Terms, placement: tuple[int, ...], value: float
) -> tuple[float, tuple[int, ...]]:
    """Move single groups to other devices as long as that helps; weights alone cannot part equal groups."""
    better, current = True, list(placement)
    loads = problem.loads(current)
    while better:
        better = False
        for i in range(len(current)):
            for device in range(len(problem.devices)):
                if device == current[i] or not (
                    problem.allowed[i, device] and isfinite(problem.time_s[i, device])
                ):
                    continue
                found = objective_of_loads(terms, problem.moved(loads, current, i, device))
                if found < value * (1.0 - _CLOSE):
                    current[i], better = device, True
                    loads = problem.loads(current)
                    value = objective_of_loads(terms, loads)
    return value, tuple(current)


def _weights(per_load: Any, terms: Terms, share: Any) -> ObjectiveWeights:
    """Turn shares of importance of the bounds into weights of seconds, bytes and joules."""
    scale, energy = (1.0, 0.0) if terms.minimise == "latency" else (terms.idle_w, 1.0)
    k, weights = len(terms.contexts), scale * (share @ per_load)
    time = (weights[:k] + energy * terms.static_w).tolist()
    launch, dram_byte, _, *dma = weights[k:].tolist()
    return ObjectiveWeights(time, launch, dram_byte, energy, dma)


def placed(graph: Graph, problem: Problem, placement: tuple[int, ...]) -> Graph:
    """Return the graph with each operator's device written on it."""
    editor = Editor.of(graph)
    for name, node in homes(graph, problem.members).items():
        editor.change_operator(name, device=problem.devices[placement[node]])
    return editor.finish()


def split(graph: Graph, soc: Soc, run: Run) -> Mapped:
    """Map a graph whose preprocessing may go to the CPU where that costs less than the NPU.

    The best placements found are mapped in full beside the NPU alone, and the fastest is taken.
    """
    movable, main = frozenset(wished(graph)), soc.main_device
    choice = (main, soc.named("cpu") or main)
    editor = Editor.of(graph)
    for name in movable:
        editor.change_operator(name, device=main)
    none = map_placed(editor.finish(), soc, run)
    stay = {op.name: soc.named(op.device or main) or main for op in graph if op.name not in movable}
    devices = tuple(dict.fromkeys((*choice, *stay.values())))
    problem = placement_problem(
        graph, soc, run, devices, stay, none.decisions.residency if set(stay.values()) == {main} else None
    )
    for i, name in enumerate(problem.names):
        if name in movable:
            problem.allowed[i] = [device in choice for device in devices]
    found = best_placement(problem, Terms.of(soc, run, "latency", devices))
    placements = (found.placement, *found.others[:1])
    mapped = [map_placed(placed(graph, problem, placement), soc, run) for placement in placements]
    return min(
        (none, *mapped), key=lambda m: (-float(m.total["throughput_per_s"]), float(m.total["energy_j"]))
    )
