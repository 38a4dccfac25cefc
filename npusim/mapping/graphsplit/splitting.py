"""GraphSplit: the best placement of groups on devices, and its application to a graph.

Groups are placed in their order of execution by dynamic programming. Future costs depend on the past through
the device that ran last (the next launch) and, for each open link (made, and not yet read by all its
readers), through one bit: have only groups at home touched it so far? The cheapest path to each such state is
kept, so the result is exact for any number of devices: on chains with as many states as devices, on series-
parallel graphs with devices x 2^(open branches), and on any other graph whose open links are few. (A minimum
cut would be exact for two devices only.) Beyond `MOST_STATES` states only the cheapest are kept and the
result is not proven. The lower bound is then the exact solution of a relaxed problem: at each place at most
`_BOUND_LINKS` links are open, the most expensive ones, and the others cost nothing.

For one inference at a time the objective is a sum: time, or energy with leakage, so one solution of the
dynamic program is the best. With several in flight the slowest device sets the pace, a maximum of sums. Then
devices get weights, and busy devices larger ones round by round (Lagrangian relaxation with multiplicative
updates). Each round also proves a lower bound (no placement beats the best at any weights), so the answer
comes with its largest distance from the optimum. Moves of single groups then improve the placement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from npusim.arch import Soc
from npusim.cost import DeviceTimes, fill_interval_bounds_s, interval_s, throttled_interval_s
from npusim.errors import InfeasibleError
from npusim.graph import Editor, Graph
from npusim.mapping.graphsplit.device_costs import homes
from npusim.mapping.graphsplit.problem import Link, Load, ObjectiveWeights, Problem
from npusim.mapping.mapped import Run

MOST_STATES = 4096
"""States that are kept at a group: twelve open branches on one device."""
_BOUND_LINKS = 6
_ROUNDING = 1e-12
Objective = Literal["latency", "energy"]
_ROUNDS = 24
# Relative distance to the lower bound that ends the search.
_CLOSE = 1e-3
# How strongly weights follow the load: the weight of a fully busy device grows e^(step / sqrt(round))
# times.
_STEP = 2.0


@dataclass(frozen=True, slots=True)
class Split:
    """A placement of a problem's groups."""

    problem: Problem
    placement: tuple[int, ...]
    """Device of each group."""
    value: float
    """Time between two inferences (s), or energy of one (J), by the costs of the problem."""
    bound: float
    """No placement of this order has less."""
    exact: bool
    """Whether value and bound are proven to be the same."""
    others: tuple[tuple[int, ...], ...] = ()
    """Further good placements, the best first: costs are additive here, an engine may differ."""


class _Path(NamedTuple):
    """The cheapest path to a state."""

    cost: float
    device: int
    before: _Path | None


State = tuple[int, int]
"""Device that ran last; bits of the links that a device other than home has touched."""


class _Touch(NamedTuple):
    """A group's use of a link: cost of its own transfer, and of all earlier users' if all were at home."""

    home: int
    bit: int
    own: float
    past: float
    closes: bool
    """Whether it is the last use."""


def solve(problem: Problem, weights: ObjectiveWeights, most_states: int = MOST_STATES) -> Split:
    """Return the cheapest placement.

    Parameters
    ----------
    most_states : int
        States that are kept at a group, at least one for each device.

    Raises
    ------
    InfeasibleError
        Where no allowed device can run some group.
    """
    node = _node_costs(problem, weights)
    touches = _touches(problem, weights)
    launch = [weights.launch * float(s) for s in problem.launch_s]
    paths: dict[State, _Path] = {(-1, 0): _Path(0.0, -1, None)}
    exact = True
    for i, name in enumerate(problem.names):
        paths = _extended(paths, node[i], launch, touches[i])
        if not paths:
            raise InfeasibleError(f"operator {name!r} can run on none of {', '.join(problem.devices)}")
        if len(paths) > most_states:
            exact = False
            paths = dict(sorted(paths.items(), key=lambda item: item[1].cost)[:most_states])
    best = min(paths.values(), key=lambda path: path.cost)
    placement: list[int] = []
    step = best
    while step.before is not None:
        placement.append(step.device)
        step = step.before
    bound = best.cost
    if not exact:
        few = min(_BOUND_LINKS, int(np.log2(most_states / len(problem.devices))))
        bound = solve(_with_few_links(problem, weights, few), weights, most_states).value
    proven = exact or bound >= best.cost * (1.0 - _ROUNDING)
    return Split(problem, tuple(reversed(placement)), best.cost, min(bound, best.cost), proven)


def _extended(
    paths: Mapping[State, _Path], costs: Sequence[float], launch: Sequence[float], touches: Sequence[_Touch]
) -> dict[State, _Path]:
    """Return the cheapest path to each state after one more group, given its costs by device.

    A link costs nothing while all its users run at home. The first user elsewhere pays for the earlier ones.
    """
    longer: dict[State, _Path] = {}
    for (last, bits), path in paths.items():
        for device, cost in enumerate(costs):
            total = path.cost + cost + (launch[device] if device != last else 0.0)
            if total == np.inf:
                continue
            after = bits
            for touch in touches:
                if device != touch.home:
                    total += 0.0 if after & touch.bit else touch.past
                    after |= touch.bit
                elif after & touch.bit:
                    total += touch.own
                if touch.closes:
                    after &= ~touch.bit
            known = longer.get((device, after))
            if known is None or total < known.cost:
                longer[device, after] = _Path(total, device, path)
    return longer


def _with_few_links(problem: Problem, weights: ObjectiveWeights, most: int) -> Problem:
    """Return the problem with its most expensive links, of which at most `most` are open at any group."""
    open_links = np.zeros(len(problem.names), int)
    kept = []

    def cost(link: Link) -> float:
        return sum(weights.cost(load, link.home) for load in link.loads)

    for link in sorted(problem.links, key=cost, reverse=True):
        span = open_links[link.maker : link.readers[-1] if link.readers else link.maker]
        if not span.size or span.max() < most:
            span += 1
            kept.append(link)
    return replace(problem, links=tuple(sorted(kept, key=lambda link: link.maker)))


def _node_costs(problem: Problem, weights: ObjectiveWeights) -> list[list[float]]:
    """Return the cost of each group on each device; infinite where it cannot run."""
    possible = problem.allowed & np.isfinite(problem.time_s)
    return [
        [weights.cost(Load(*load), d) if possible[i, d] else np.inf for d, load in enumerate(row)]
        for i, row in enumerate(problem.costs.tolist())
    ]


def _touches(problem: Problem, weights: ObjectiveWeights) -> list[list[_Touch]]:
    """Return the links that each group uses, each with a bit of the state; closed links free their bit."""
    touches: list[list[_Touch]] = [[] for _ in problem.names]
    free: list[int] = []
    closing: list[list[int]] = [[] for _ in problem.names]
    used, reached = 0, 0
    for link in sorted((link for link in problem.links if link.readers), key=lambda link: link.maker):
        while reached < link.maker:
            free += closing[reached]
            reached += 1
        bit = free.pop() if free else used
        used = max(used, bit + 1)
        past = 0.0
        for user, load in zip(link.users, link.loads, strict=True):
            own = weights.cost(load, link.home)
            touches[user].append(_Touch(link.home, 1 << bit, own, past, user == link.readers[-1]))
            past += own
        closing[link.readers[-1]].append(bit)
    return touches


@dataclass(frozen=True, slots=True)
class Terms:
    """Numbers of the machine in the objective; arrays are by device."""

    requests: float
    contexts: Any
    dram_bytes_per_s: float
    idle_w: float
    """Power of the package while all devices idle."""
    static_w: Any
    """Further power of a device while an inference works on it, beyond the energy of operators."""
    minimise: Objective
    limit_w: float = 0.0
    """Mean power that the package is throttled to; 0: it is not."""

    @classmethod
    def of(cls, soc: Soc, run: Run, minimise: Objective, devices: tuple[str, ...]) -> Terms:
        """Return the terms of a machine in a run."""
        arch = run.row(soc)
        contexts, static_w = np.ones(len(devices)), np.zeros(len(devices))
        for d, device in enumerate(devices):
            if device in arch.arrays:
                contexts[d] = arch[device]["contexts"]
                static_w[d] = arch[device]["static_w"] / contexts[d]
        shared = (float(arch.shared[name]) for name in ("dram_bytes_per_s", "idle_w", "limit_w"))
        dram_bytes_per_s, idle_w, limit_w = shared
        return cls(float(run.requests), contexts, dram_bytes_per_s, idle_w, static_w, minimise, limit_w)


def objective_of(problem: Problem, terms: Terms, placement: tuple[int, ...]) -> float:
    """Return the objective of a placement: seconds between inferences, or joules per inference."""
    return objective_of_loads(terms, problem.loads(placement))


def objective_of_loads(terms: Terms, loads: Any) -> float:
    """Return the objective of a placement, given its loads (`Problem.loads`)."""
    k = len(terms.contexts)
    pace_s = float(interval_s(terms.requests, *_pace(terms, loads), np.empty(2 * k + 2)))
    work_j = float(loads[k + 2] + terms.static_w @ loads[:k])
    if np.isfinite(pace_s):
        pace_s = float(throttled_interval_s(pace_s, work_j, terms.idle_w, terms.limit_w))
    return pace_s if terms.minimise == "latency" else work_j + terms.idle_w * pace_s


def _pace(terms: Terms, loads: Any) -> tuple[DeviceTimes, float, float]:
    """Return (device times, launch time, DRAM time) of loads, arguments of the interval's bounds."""
    k = len(terms.contexts)
    times = DeviceTimes(np.ascontiguousarray(loads[:k]), np.ascontiguousarray(loads[k + 3 :]), terms.contexts)
    return times, float(loads[k]), float(loads[k + 1] / terms.dram_bytes_per_s)


def _bounds_per_load(terms: Terms) -> Any:
    """Return the matrix from loads to the bounds of the interval, without rows of zeros."""
    k = len(terms.contexts)
    matrix = np.empty((2 * k + 3, 2 * k + 2))
    for unit, bounds in zip(np.eye(2 * k + 3), matrix, strict=True):
        fill_interval_bounds_s(terms.requests, *_pace(terms, unit), bounds)
    matrix = matrix.T
    return matrix[matrix.any(axis=1)]


def best_placement(problem: Problem, terms: Terms) -> Split:
    """Return the best placement of a problem, with a lower bound of its objective.

    Notes
    -----
    With one request in flight the objective is linear in the loads, so one solution is the best. With several
    it grows with the time of the busiest resource, a maximum of linear functions of the loads. Any average of
    these with `weights` that add up to 1 is at most their maximum, so its least value over all placements,
    which `solve` finds, is a lower bound. After each round weight moves to the busiest resources
    (multiplicative weights), so that the next placement spares them. The best placement that was seen is
    returned; it is proven to be the best only where its value equals the highest bound (`Split.exact`).
    """
    per_load = _bounds_per_load(terms)
    weights = np.full(len(per_load), 1.0 / len(per_load))
    if terms.requests <= 1.0:
        return solve(problem, _objective_weights(per_load, terms, weights))
    values: dict[tuple[int, ...], float] = {}
    bound = 0.0
    for round_ in range(1, _ROUNDS + 1):
        solution = solve(problem, _objective_weights(per_load, terms, weights))
        if solution.placement not in values:
            value = objective_of(problem, terms, solution.placement)
            values[solution.placement] = value
            improved, placement = _improved(problem, terms, solution.placement, value)
            values[placement] = improved
        bound = max(bound, solution.bound)
        resource_s = per_load @ problem.loads(solution.placement)
        least = min(values.values())
        if least <= bound * (1.0 + _CLOSE):
            break
        weights = weights * np.exp(_STEP / np.sqrt(round_) * resource_s / resource_s.max())
        weights /= weights.sum()
    ranked = sorted(values, key=lambda placement: values[placement])
    proven = bound >= least * (1.0 - 1e-9)
    return Split(problem, ranked[0], least, min(bound, least), proven, tuple(ranked[1:]))


def _improved(
    problem: Problem, terms: Terms, placement: tuple[int, ...], value: float
) -> tuple[float, tuple[int, ...]]:
    """Return value and placement after single-group moves have lowered the objective as far as they can."""
    moves = np.argwhere(problem.allowed & np.isfinite(problem.time_s)).tolist()
    better, current = True, list(placement)
    loads = problem.loads(current)
    while better:
        better = False
        for i, device in moves:
            if device == current[i]:
                continue
            moved = objective_of_loads(terms, problem.moved(loads, current, i, device))
            if moved < value * (1.0 - _CLOSE):
                current[i], better = device, True
                loads = problem.loads(current)
                value = objective_of_loads(terms, loads)
    return value, tuple(current)


def _objective_weights(per_load: Any, terms: Terms, bound_weights: Any) -> ObjectiveWeights:
    """Return the weights of seconds, bytes and joules, given the weight of each bound of the interval."""
    scale, energy = (1.0, 0.0) if terms.minimise == "latency" else (terms.idle_w, 1.0)
    k, weights = len(terms.contexts), scale * (bound_weights @ per_load)
    time = (weights[:k] + energy * terms.static_w).tolist()
    launch, dram_byte, _, *dma = weights[k:].tolist()
    return ObjectiveWeights(time, launch, dram_byte, energy, dma)


def placed(graph: Graph, problem: Problem, placement: tuple[int, ...]) -> Graph:
    """Return the graph with the device of each operator set to its placement."""
    editor = Editor.of(graph)
    for name, node in homes(graph, problem.members).items():
        editor.change_operator(name, device=problem.devices[placement[node]])
    return editor.finish()
