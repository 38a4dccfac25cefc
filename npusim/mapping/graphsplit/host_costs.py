"""Costs the nodes of a placement problem on one CPU or GPU, as if the whole network ran there.

A host fuses chains of operators across nodes; each node costs its addition to the chain, so that all nodes
add up to the network on that host. A tensor that another device touches passes through DRAM, and interrupts a
chain: both are links (`npusim.mapping.graphsplit.problem`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    Roots,
    Unit,
    hand_over,
    lower,
    operator_costs,
)
from npusim.graph import Graph
from npusim.mapping.fusion import fuse, stored_inputs
from npusim.mapping.graphsplit.problem import Link, Load

Passed = Mapping[str, tuple[int, tuple[int, ...]]]
"""Maker and readers of each tensor that passes between nodes."""
# Results of the kernel that make a `Load`.
_FIELDS = ("latency_s", "streamed_bytes", "energy_j", "dma_s")


@dataclass(frozen=True, slots=True)
class _Segment:
    """The part of a host's chain of operators that one node has, in its place among the chain's segments.

    `own` are its operators, `names` all operators of the chain up to its end.
    """

    node: int
    chain: int
    place: int
    names: tuple[str, ...]
    own: tuple[str, ...]


class HostCosting:
    """Nodes of a problem on one host; nodes are in the order of execution, without views."""

    def __init__(
        self, graph: Graph, soc: Soc, arch: ArchRow, nodes: Sequence[Group], device: str, root: Roots
    ) -> None:
        self.graph, self.soc, self.arch, self.device, self.root = graph, soc, arch, device, root
        self.chains = [g for g in fuse(graph, soc, device) if g.unit is not Unit.VIEW]
        home = homes(graph, [node.members for node in nodes])
        self.segments: list[_Segment] = []
        self.segment_of: dict[str, int] = {}
        """Number of each operator's segment."""
        for number, chain in enumerate(self.chains):
            names: tuple[str, ...] = ()
            for place, (node, part) in enumerate(groupby(chain.members, key=home.__getitem__)):
                own = tuple(part)
                names = (*names, *own)
                self.segment_of.update(dict.fromkeys(own, len(self.segments)))
                self.segments.append(_Segment(node, number, place, names, own))
        self.rows = self._rows(lambda segment: segment.names)
        """Row of each chain up to the end of a segment."""
        self.apart = self._rows(lambda segment: segment.own)
        """Row of each segment by itself."""
        self.costs = costed(arch, self.rows)
        is_later = np.array([segment.place > 0 for segment in self.segments], bool)[:, None]
        self.added = self.costs - np.where(is_later, np.roll(self.costs, 1, axis=0), 0.0)
        """Load that each segment adds to its chain, shape (segments, loads)."""

    def loads(self, count: int) -> Any:
        """Return the load of each of `count` nodes on this host, shape (count, loads)."""
        loads = np.zeros((count, len(_FIELDS)))
        np.add.at(loads, [segment.node for segment in self.segments], self.added)
        return loads

    def links(self, passed: Passed, device: int) -> list[Link]:
        """Return the links of tensors that pass to or from another device."""
        # Segments that read each stored tensor.
        readers: dict[str, list[int]] = {}
        for i, segment in enumerate(self.segments):
            for stored in stored_inputs(self.graph, Group(segment.own[0], segment.own[1:]), self.root):
                readers.setdefault(stored, []).append(i)
        rows: list[Any] = []
        before: list[Any] = []
        # Tensor and node of each changed row.
        changed: list[tuple[str, int]] = []
        for tensor, (_, used) in passed.items():
            writer = self.graph.writer(tensor)
            made_in = self.segment_of.get(writer.name) if writer is not None else None
            if made_in is not None:
                rows.append(self._handed(self.rows[made_in], self.segments[made_in].names, tensor))
                before.append(self.costs[made_in])
                changed.append((tensor, passed[tensor][0]))
            for i in readers.get(tensor, ()):
                segment = self.segments[i]
                if segment.node in used:
                    cut = segment.place > 0 and made_in == i - 1
                    row, names = (self.apart[i], segment.own) if cut else (self.rows[i], segment.names)
                    rows.append(self._handed(row, names, tensor))
                    before.append(self.added[i] if cut else self.costs[i])
                    changed.append((tensor, segment.node))
        more: dict[tuple[str, int], Any] = {}
        loads = costed(self.arch, np.array(rows, OP_DTYPE)) - np.reshape(before, (-1, len(_FIELDS)))
        for key, load in zip(changed, np.maximum(0.0, loads), strict=True):
            more[key] = more.get(key, 0.0) + load
        links = []
        for tensor, (maker, used) in passed.items():
            nodes = (more.get((tensor, node), np.zeros(len(_FIELDS))) for node in (maker, *used))
            write, *reads = (Load(*load.tolist()) for load in nodes)
            if any(map(any, (write, *reads))):
                links.append(Link(tensor, maker, used, write, tuple(reads), device))
        return links

    def _handed(self, row: Any, names: tuple[str, ...], tensor: str) -> Any:
        """Return a row with one tensor through DRAM."""
        row = row.copy()
        members = [self.graph.operators[name] for name in names]
        parts = {t for op in members for t in (*op.inputs, *op.outputs) if tensor in self.root[t]}
        host = self.soc.hosts[self.device]
        hand_over(row, self.graph, Group(names[0], names[1:], Unit.HOST), host, parts)
        return row

    def _rows(self, part: Callable[[_Segment], tuple[str, ...]]) -> Any:
        """Return a row of the operator table for each segment, of the operators that `part` returns."""
        rows = np.zeros(len(self.segments), OP_DTYPE)
        for place in range(1 + max((s.place for s in self.segments), default=-1)):
            shown = {s.chain: (i, part(s)) for i, s in enumerate(self.segments) if s.place == place}
            groups: list[Group] = []
            numbers: list[int] = []
            for number, chain in enumerate(self.chains):
                segment, names = shown.get(number, (-1, chain.members))
                rest = [name for name in chain.members if name not in names]
                groups.append(replace(chain, main=names[0], fused=names[1:]))
                groups += [replace(chain, main=name, fused=()) for name in rest]
                numbers += [segment, *(-1 for _ in rest)]
            lowered = lower(self.graph, Decisions(tuple(groups)), self.soc)
            for segment, row in zip(numbers, lowered.ops, strict=True):
                if segment >= 0:
                    rows[segment] = row
        return rows


def costed(arch: ArchRow, rows: Any) -> Any:
    """Return the load of each row of an operator table, shape (rows, loads); equal rows are costed once.

    Rows of a row-wise fusion share its time, and each of them is costed.
    """
    number = np.where(rows["fused_chain"] > 0, np.arange(len(rows)), -1)
    keys = [(at, row.tobytes()) for at, row in zip(number.tolist(), rows, strict=True)]
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    results = np.zeros(len(place), RESULT_DTYPE)
    if len(place):
        operator_costs(arch.archs, rows[[first[key] for key in place]], results)
    loads = np.stack([results[field] for field in _FIELDS], axis=-1)
    return loads[[place[key] for key in keys]] if keys else loads


def homes(graph: Graph, members: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return the node of each operator; an operator of no node belongs with its inputs."""
    home = {name: i for i, names in enumerate(members) for name in names}
    for op in graph:
        if op.name not in home:
            writers = (graph.writer(t) for t in op.inputs)
            home[op.name] = max((home[w.name] for w in writers if w is not None), default=0)
    return home
