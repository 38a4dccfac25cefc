"""The best placement by dynamic programming over the order of execution.

Groups are placed in their order of execution. What is still to come depends on the past only through the
device that ran last (the next launch) and, for each link that is open (made, and not yet read by all its
readers), through one bit: have only groups at home touched it so far? For each such state the cheapest path
there is kept, so the result is exact for any number of devices: on chains with devices states, on series-
parallel graphs with devices x 2^(open branches), and on any other graph whose open links are few. (A minimum
cut would be exact for two devices only.)

Where there would be more than `MOST_STATES` states, only the cheapest are kept and the result says that it is
not proven. A lower bound is then the exact solution of a problem that is easier: at each place no more than
`_BOUND_LINKS` links are open, those that cost most, and the others cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from npusim.errors import InfeasibleError
from npusim.mapping.graphsplit.problem import Link, Load, ObjectiveWeights, Problem

MOST_STATES = 4096
"""States that are kept at a group: twelve open branches on one device."""
_BOUND_LINKS = 6
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Solution:
    """A placement and what it costs at the weights asked for."""

    placement: tuple[int, ...]
    """Device of each group."""
    cost: float
    exact: bool
    """Whether it is proven that no placement of this order is cheaper."""
    bound: float
    """No placement costs less."""


class _Path(NamedTuple):
    """The cheapest path to a state."""

    cost: float
    device: int
    before: _Path | None


State = tuple[int, int]
"""Device that ran last; bits of the links that a device other than home has touched."""


class _Touch(NamedTuple):
    """A group's use of a link: its transfer cost, and that of earlier readers on the other device."""

    home: int
    bit: int
    own: float
    past: float
    """What the users so far, all at home, would pay."""
    closes: bool


def solve(problem: Problem, weights: ObjectiveWeights, most_states: int = MOST_STATES) -> Solution:
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
    count, devices = len(problem.names), range(len(problem.devices))
    node = _node_costs(problem, weights)
    touches = _touches(problem, weights)
    launch = [weights.launch * float(s) for s in problem.launch_s]
    paths: dict[State, _Path] = {(-1, 0): _Path(0.0, -1, None)}
    exact = True
    for i in range(count):
        following: dict[State, _Path] = {}
        for (last, bits), path in paths.items():
            for device in devices:
                cost = path.cost + node[i][device] + (launch[device] if device != last else 0.0)
                if cost == np.inf:
                    continue
                after = bits
                for touch in touches[i]:
                    if device != touch.home:
                        cost += 0.0 if after & touch.bit else touch.past
                        after |= touch.bit
                    elif after & touch.bit:
                        cost += touch.own
                    if touch.closes:
                        after &= ~touch.bit
                known = following.get((device, after))
                if known is None or cost < known.cost:
                    following[device, after] = _Path(cost, device, path)
        if not following:
            raise InfeasibleError(
                f"operator {problem.names[i]!r} can run on none of {', '.join(problem.devices)}"
            )
        if len(following) > most_states:
            exact = False
            cheapest = sorted(following.items(), key=lambda item: item[1].cost)[:most_states]
            following = dict(cheapest)
        paths = following
    best = min(paths.values(), key=lambda path: path.cost)
    bound = best.cost
    if not exact:
        few = min(_BOUND_LINKS, int(np.log2(most_states / len(problem.devices))))
        bound = solve(_with_few_links(problem, weights, few), weights, most_states).cost
    proven = exact or bound >= best.cost * (1.0 - _ROUNDING)
    return Solution(_trace(best), best.cost, proven, min(bound, best.cost))


def _with_few_links(problem: Problem, weights: ObjectiveWeights, most: int) -> Problem:
    """Return the problem without some of its links, so that no more than `most` are open at any place."""
    open_links = np.zeros(len(problem.names), int)
    kept = []

    def cost(link: Link) -> float:
        return sum(weights.cost(load, link.home) for load in (link.write, *link.reads))

    for link in sorted(problem.links, key=cost, reverse=True):
        span = open_links[link.maker : link.readers[-1] if link.readers else link.maker]
        if not span.size or span.max() < most:
            span += 1
            kept.append(link)
    return replace(problem, links=tuple(sorted(kept, key=lambda link: link.maker)))


def _node_costs(problem: Problem, weights: ObjectiveWeights) -> list[list[float]]:
    costs = []
    for i in range(len(problem.names)):
        row = []
        for d in range(len(problem.devices)):
            possible = bool(problem.allowed[i, d]) and np.isfinite(problem.time_s[i, d])
            load = Load(
                float(problem.time_s[i, d]),
                float(problem.dram_bytes[i, d]),
                float(problem.energy_j[i, d]),
                float(problem.dma_s[i, d]),
            )
            row.append(weights.cost(load, d) if possible else float("inf"))
        costs.append(row)
    return costs


def _touches(problem: Problem, weights: ObjectiveWeights) -> list[list[_Touch]]:
    """Return what each group has to do with each link."""
    found: list[list[_Touch]] = [[] for _ in problem.names]
    free: list[int] = []
    closing: dict[int, list[int]] = {}
    by_maker: dict[int, list[int]] = {}
    for number, link in enumerate(problem.links):
        by_maker.setdefault(link.maker, []).append(number)
    used = 0
    for i in range(len(problem.names)):
        for number in by_maker.get(i, ()):
            link = problem.links[number]
            if not link.readers:
                continue
            if free:
                place = free.pop()
            else:
                place, used = used, used + 1
            due = weights.cost(link.write, link.home)
            found[i].append(_Touch(link.home, 1 << place, due, 0.0, False))
            for reader, load in zip(link.readers, link.reads, strict=True):
                own = weights.cost(load, link.home)
                found[reader].append(_Touch(link.home, 1 << place, own, due, reader == link.readers[-1]))
                due += own
            closing.setdefault(link.readers[-1], []).append(place)
        free.extend(closing.get(i, ()))
    return found


def _trace(path: _Path) -> tuple[int, ...]:
    placement: list[int] = []
    step: _Path | None = path
    while step is not None and step.before is not None:
        placement.append(step.device)
        step = step.before
    return tuple(reversed(placement))
