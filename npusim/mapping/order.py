"""The order in which groups run: as few entries into each device as operands allow.

Entering a device costs a call of its runtime, so work for one device is done in as few runs as its operands
allow. Work that stays on one device keeps the graph's order.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import groupby

from npusim.cost import Group, Unit
from npusim.graph import Graph


def in_runs(graph: Graph, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Return the groups in an order that enters devices seldom and keeps producers before consumers.

    Parameters
    ----------
    groups : tuple of Group
        In the graph's order; each reads only what inputs, constants or earlier groups give.

    Returns
    -------
    tuple of Group
        Of the orders that stay on a device as long as any of its work is ready, the one whose first device
        makes the fewest entries; the order given where all groups run on one device or none of these is
        better.
    """
    devices = list(dict.fromkeys(g.device for g in groups if g.unit is not Unit.VIEW))
    if len(devices) < 2:
        return groups
    if len(graph.parts) > 1:  # one part after the other, as they are given
        parts = groupby(groups, key=lambda group: graph.operators[group.main].part)
        return tuple(group for _, part in parts for group in _in_runs(graph, tuple(part), devices))
    return _in_runs(graph, groups, devices)


def _in_runs(graph: Graph, groups: tuple[Group, ...], devices: list[str]) -> tuple[Group, ...]:
    """Return the groups of one part in an order that enters devices seldom."""
    producers = _producers(graph, groups)
    candidates = [groups, *(_greedy(groups, producers, first) for first in devices)]
    return min(candidates, key=entries)


def entries(groups: tuple[Group, ...]) -> int:
    """Return how often a device is entered when groups run one after the other."""
    found, device = 0, ""
    for group in groups:
        if group.unit is not Unit.VIEW:
            found += group.device != device
            device = group.device
    return found


def _producers(graph: Graph, groups: tuple[Group, ...]) -> list[set[int]]:
    """Return for each group the groups whose results it reads."""
    home = {name: i for i, group in enumerate(groups) for name in (group.main, *group.fused)}
    producers: list[set[int]] = []
    for i, group in enumerate(groups):
        read = {t for name in (group.main, *group.fused) for t in graph.operators[name].inputs}
        writers = (graph.writer(t) for t in read)
        producers.append({home[w.name] for w in writers if w is not None and w.name in home} - {i})
    return producers


def _greedy(groups: tuple[Group, ...], producers: list[set[int]], first: str) -> tuple[Group, ...]:
    """Work through all that is ready on one device, then go on to that of the earliest group that is left."""
    missing = [len(needed) for needed in producers]
    consumers: list[list[int]] = [[] for _ in groups]
    for i, needed in enumerate(producers):
        for producer in needed:
            consumers[producer].append(i)
    ready: dict[str, list[int]] = {device: [] for device in ("", first, *(g.device for g in groups))}
    for i, count in enumerate(missing):
        if not count:
            ready[groups[i].device].append(i)  # in order, so each list is a heap
    order: list[Group] = []
    device = first
    while any(ready.values()):
        while heaps := [heap for heap in (ready[device], ready[""]) if heap]:  # views run anywhere
            i = heappop(min(heaps, key=lambda heap: heap[0]))
            order.append(groups[i])
            for consumer in consumers[i]:
                missing[consumer] -= 1
                if not missing[consumer]:
                    heappush(ready[groups[consumer].device], consumer)
        left = [heap[0] for heap in ready.values() if heap]
        if left:
            device = groups[min(left)].device
    return tuple(order)
