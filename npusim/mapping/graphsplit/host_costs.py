"""Costs the nodes of a placement problem on one CPU or GPU, as if the whole network ran there.

A host fuses chains of operators across nodes; each node costs its addition to the chain, so that all nodes
add up to the network on that host. A tensor that another device touches passes through DRAM, and interrupts a
chain: both are links (`npusim.mapping.graphsplit.problem`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from npusim.arch import Soc
from npusim.cost import (
    OP_DTYPE,
    RESULT_DTYPE,
    ArchRow,
    Decisions,
    Group,
    Unit,
    hand_over,
    lower,
    operator_costs,
)
from npusim.graph import Graph
from npusim.mapping.fusion import fuse
from npusim.mapping.graphsplit.problem import NOTHING, Link, Load

FIELDS = ("latency_s", "streamed_bytes", "energy_j", "dma_s")
"""Results of the kernel that placements add up."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """The part of a host's chain of operators that one node has."""

    node: int
    chain: int
    place: int
    """Place among the segments of its chain."""
    names: tuple[str, ...]
    """Operators of the chain up to its end."""
    own: tuple[str, ...]
    """Operators of its own."""


class HostCosting:
    """Nodes of a problem on one host.

    Parameters
    ----------
    nodes : sequence of Group
        In the order of execution, without views.
    root : mapping
        Of each tensor those whose bytes it is.
    """

    def __init__(
        self,
        graph: Graph,
        soc: Soc,
        arch: ArchRow,
        nodes: Sequence[Group],
        device: str,
        root: Mapping[str, Any],
    ) -> None:
        self.graph, self.soc, self.arch, self.device, self.root = graph, soc, arch, device, root
        self.groups = [g for g in fuse(graph, soc, device) if g.unit is not Unit.VIEW]
        self.home = homes(graph, [(g.main, *g.fused) for g in nodes])
        self.segments: list[_Segment] = []
        self.segment_of: dict[str, int] = {}
        """Number of each operator's segment."""
        for chain, group in enumerate(self.groups):
            names: tuple[str, ...] = ()
            parts = groupby((group.main, *group.fused), key=lambda name: self.home[name])
            for place, (node, part) in enumerate(parts):
                own = tuple(part)
                names = (*names, *own)
                self.segment_of.update(dict.fromkeys(own, len(self.segments)))
                self.segments.append(_Segment(node, chain, place, names, own))
        self.rows = self._rows(lambda segment: segment.names)
        """Row of each chain up to the end of a segment."""
        self.costs = costed(arch, self.rows)
        self.apart = self._rows(lambda segment: segment.own)
        """Row of each segment by itself."""

    def results(self, count: int) -> Any:
        """Return the cost of each node on this host, array of RESULT_DTYPE, shape (count,), by `FIELDS`."""
        results = np.zeros(count, RESULT_DTYPE)
        for i, segment in enumerate(self.segments):
            for field, added in zip(FIELDS, self._added(i, self.costs[i]), strict=True):
                results[field][segment.node] += added
        return results

    def links(self, touched: Mapping[str, tuple[int, Sequence[int]]], device: int) -> list[Link]:
        """Return the links of tensors that pass to or from another device, given their makers and readers."""
        changed: list[Any] = []
        wanted: list[tuple[str, int, int]] = []
        """Tensor, node and segment of each changed row."""
        readers = self._readers()
        for tensor, (maker, used) in touched.items():
            writer = self.graph.writer(tensor)
            made_in = self.segment_of.get(writer.name) if writer is not None else None
            if made_in is not None:
                changed.append(self._handed(self.rows[made_in], self.segments[made_in].names, tensor))
                wanted.append((tensor, maker, made_in))
            for i in readers.get(tensor, ()) if used else ():
                segment = self.segments[i]
                if segment.node in used:
                    cut = segment.place > 0 and made_in == i - 1
                    row, names = (self.apart[i], segment.own) if cut else (self.rows[i], segment.names)
                    changed.append(self._handed(row, names, tensor))
                    wanted.append((tensor, segment.node, -1 - i if cut else i))
        costs = costed(self.arch, np.array(changed, self.rows.dtype))
        more: dict[tuple[str, int], Load] = {}
        for (tensor, node, i), cost in zip(wanted, costs, strict=True):
            before = self._added(-1 - i, self.costs[-1 - i]) if i < 0 else _load(self.costs[i])
            deltas = (max(0.0, after - was) for after, was in zip(_load(cost), before, strict=True))
            more[tensor, node] = more.get((tensor, node), NOTHING).plus(Load(*deltas))
        links = []
        for tensor, (maker, used) in touched.items():
            write, *reads = (more.get((tensor, node), NOTHING) for node in (maker, *used))
            if any(any(load) for load in (write, *reads)):
                links.append(Link(tensor, maker, tuple(used), write, tuple(reads), device))
        return links

    def _added(self, i: int, cost: Any) -> Load:
        """Return the load that a segment adds to its chain."""
        segment, whole = self.segments[i], _load(cost)
        if segment.place == 0:
            return whole
        return Load(*(a - b for a, b in zip(whole, _load(self.costs[i - 1]), strict=True)))

    def _readers(self) -> dict[str, list[int]]:
        """Return the segments that read each stored tensor."""
        readers: dict[str, list[int]] = {}
        for i, segment in enumerate(self.segments):
            made = {t for name in segment.own for t in self.graph.operators[name].outputs}
            read = {t for name in segment.own for t in self.graph.operators[name].inputs if t not in made}
            for stored in sorted({stored for t in read for stored in self.root[t]}):
                readers.setdefault(stored, []).append(i)
        return readers

    def _handed(self, row: Any, names: tuple[str, ...], tensor: str) -> Any:
        """Return a row with one tensor through DRAM."""
        row = row.copy()
        members = [self.graph.operators[name] for name in names]
        parts = {t for op in members for t in (*op.inputs, *op.outputs) if tensor in self.root[t]}
        host = self.soc.hosts[self.device]
        hand_over(row, self.graph, Group(names[0], names[1:], Unit.HOST), host, parts)
        return row

    def _rows(self, part: Any) -> Any:
        """Return a row of the operator table for each segment, of the operators that `part` returns."""
        rows: list[Any] = [None] * len(self.segments)
        rounds = max((s.place for s in self.segments), default=-1) + 1
        for place in range(rounds):
            groups: list[Group] = []
            numbers: list[int] = []
            for chain, group in enumerate(self.groups):
                own = [i for i in self._of_chain(chain) if self.segments[i].place == place]
                names = part(self.segments[own[0]]) if own else (group.main, *group.fused)
                rest = [name for name in (group.main, *group.fused) if name not in names]
                numbers += [own[0] if own else -1, *(-1 for _ in rest)]
                groups += [replace(group, main=names[0], fused=tuple(names[1:]))]
                groups += [replace(group, main=name, fused=()) for name in rest]
            lowered = lower(self.graph, Decisions(tuple(groups)), self.soc)
            for number, row in zip(numbers, lowered.ops, strict=True):
                if number >= 0:
                    rows[number] = row.copy()
        return np.array(rows, OP_DTYPE)

    def _of_chain(self, chain: int) -> Sequence[int]:
        first = self.segment_of[self.groups[chain].main]
        last = self.segment_of[(self.groups[chain].main, *self.groups[chain].fused)[-1]]
        return range(first, last + 1)


def costed(arch: ArchRow, rows: Any) -> Any:
    """Return the kernel's result of each row of an operator table; equal rows are costed once.

    Rows of a row-wise fusion share its time, and each of them is costed.
    """
    if not len(rows):
        return np.zeros(0, RESULT_DTYPE)
    number = np.where(rows["fused_chain"] > 0, np.arange(len(rows)), -1)
    keys = [(at, row.tobytes()) for at, row in zip(number.tolist(), rows, strict=True)]
    place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    first = {place[key]: i for i, key in reversed(list(enumerate(keys)))}
    results = np.zeros(len(place), RESULT_DTYPE)
    operator_costs(arch.archs, rows[[first[i] for i in range(len(place))]], results)
    return results[[place[key] for key in keys]]


def _load(result: Any) -> Load:
    return Load(*(float(result[field]) for field in FIELDS))


def homes(graph: Graph, members: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return the node of each operator; an operator of no node belongs with its inputs."""
    home = {name: i for i, names in enumerate(members) for name in names}
    for op in graph:
        if op.name not in home:
            writers = (graph.writer(t) for t in op.inputs)
            home[op.name] = max((home[w.name] for w in writers if w is not None), default=0)
    return home
