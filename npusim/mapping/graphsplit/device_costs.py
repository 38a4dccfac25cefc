"""Costs every group on every device, as the numbers of a placement problem.

Each device is costed as if the whole network ran there: an NPU under its best residency plan, a host with its
fused chains and caches. Passing a result to another device costs the difference between the kernel's results
with that result in SRAM and in DRAM.

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

from npusim import cost
from npusim.arch import Soc
from npusim.cost import OP_DTYPE, ArchRow, Decisions, Group, Residency, Roots, Unit
from npusim.errors import InfeasibleError
from npusim.graph import Graph
from npusim.mapping.fusion import fuse, list_schedule, producers_of, stored_inputs
from npusim.mapping.graphsplit.problem import Link, Load, Problem
from npusim.mapping.mapped import Run, map_placed, refuse_too_large
from npusim.mapping.placing import can_run
from npusim.ops import Family

CostsUnder = Callable[[Residency], Any]
"""Returns the load of each group on an array device under a residency plan, shape (groups, loads)."""
Passed = Mapping[str, tuple[int, tuple[int, ...]]]
"""Maker and readers of each tensor that passes between nodes."""
# Results of the kernel that make a `Load`.
_FIELDS = ("latency_s", "streamed_bytes", "energy_j", "dma_s")


def placement_problem(
    graph: Graph,
    soc: Soc,
    run: Run,
    devices: Sequence[str],
    fixed: Mapping[str, str] | None = None,
    kept: Residency | None = None,
) -> Problem:
    """Return the placement problem of a graph: the cost of each group on each device, and of links.

    Parameters
    ----------
    graph : Graph
        Techniques applied; wishes on operators are ignored.
    fixed : mapping, optional
        Device of each operator that may not be placed freely; the main operator decides for its group.
    kept : Residency, optional
        The best residency plan with everything on the NPU, where it is known.

    Returns
    -------
    Problem
        A node for each group of operators that the NPU fuses (or the only device, a host); without an NPU for
        each operator. Preprocessing comes first in its order, to be one run.

    Raises
    ------
    InfeasibleError
        Where the network does not fit into DRAM.
    """
    refuse_too_large(graph, soc, run.requests)
    devices, fixed = tuple(devices), fixed or {}
    every = _grouped(graph, soc, devices)
    root = cost.roots(graph, every)
    groups = _in_order(graph, every, root)
    arch, passed = run.row(soc), _passed(graph, groups, root)
    costs = np.zeros((len(groups), len(devices), len(Load._fields)))
    links: tuple[Link, ...] = ()
    for d, device in enumerate(devices):
        if device in soc.array_devices:
            costs_under = _costs_on_array(graph, soc, arch, groups, device)
            best = kept if kept is not None else _best_residency(graph, soc, replace(run, device=device))
            residency, costs[:, d] = _most_feasible(costs_under, best)
            movable = {i for i, group in enumerate(groups) if fixed.get(group.main) != device}
            users = {t: (maker, *used) for t, (maker, used) in passed.items() if movable & {maker, *used}}
            links += _links(costs_under, d, residency, costs[:, d], users)
        else:
            hosted = HostCosting(graph, soc, arch, groups, device, root)
            costs[:, d] = hosted.loads(len(groups))
            if len(devices) > 1:
                links += tuple(hosted.links(passed, d))
    allowed = np.ones(costs.shape[:2], bool)
    for i, group in enumerate(groups):
        members = [graph.operators[name] for name in group.members]
        allowed[i] = [all(can_run(op, graph, soc, device) for op in members) for device in devices]
        if group.main in fixed:
            allowed[i] = [device == fixed[group.main] for device in devices]
    return Problem(
        names=tuple(g.main for g in groups),
        devices=devices,
        allowed=allowed,
        costs=costs,
        launch_s=np.array([float(arch[device]["launch_s"]) for device in devices]),
        links=links,
        handed=tuple((maker, used, float(graph.tensors[t].bytes)) for t, (maker, used) in passed.items()),
        members=tuple(g.members for g in groups),
    )


def _in_order(graph: Graph, groups: tuple[Group, ...], root: Roots) -> tuple[Group, ...]:
    """Return the groups without views: preprocessing first, then one branch after the other."""
    work = [g for g in groups if g.unit is not Unit.VIEW]
    structural = graph.structural
    is_early = [structural.issuperset(graph.operators[g.main].outputs) for g in work]
    early = [g for g, early in zip(work, is_early, strict=True) if early]
    rest = [g for g, early in zip(work, is_early, strict=True) if not early]
    return (*_by_branches(graph, early, root), *_by_branches(graph, rest, root))


def _by_branches(graph: Graph, groups: list[Group], root: Roots) -> list[Group]:
    """Return groups in an order that reads each result as soon as its reader is ready."""
    producers = producers_of(graph, groups, root)
    order = list_schedule(producers, lambda ready, last: {i for i in ready if last in producers[i]})
    return [groups[i] for i in order]


def _best_residency(graph: Graph, soc: Soc, run: Run) -> Residency:
    try:
        return map_placed(graph, soc, run).decisions.residency
    except InfeasibleError:  # a group that fits under no plan will run elsewhere
        return Residency()


def _costs_on_array(
    graph: Graph, soc: Soc, arch: ArchRow, groups: tuple[Group, ...], device: str
) -> CostsUnder:
    """Return the function from a residency plan to the costs of groups on one array device."""
    home = {name: i for i, group in enumerate(groups) for name in group.members}
    fused = [group for group in fuse(graph, soc, device, whole=True) if group.main in home]
    device_groups = tuple(sorted(fused, key=lambda group: home[group.main]))

    def costs_under(residency: Residency) -> Any:
        costs = np.zeros((len(groups), len(Load._fields)))
        rows = cost.lower(graph, Decisions(device_groups, residency), soc).ops
        np.add.at(costs, [home[group.main] for group in device_groups], costed(arch, rows))
        return costs

    return costs_under


def _most_feasible(costs_under: CostsUnder, residency: Residency) -> tuple[Residency, Any]:
    """Return a residency plan and its costs, or the empty plan where more groups fit under that.

    The plan was chosen for the order of the network. Here one branch follows the other, so more bytes may be
    live.
    """
    costs = costs_under(residency)
    if np.isfinite(costs).all():
        return residency, costs
    tried = ((residency, costs), (Residency(), costs_under(Residency())))
    return max(tried, key=lambda plan: np.isfinite(plan[1][:, 0]).sum())


def _grouped(graph: Graph, soc: Soc, devices: tuple[str, ...]) -> tuple[Group, ...]:
    """Return the groups of operators that are placed together, and the views."""
    arrays = [device for device in (*devices, *soc.array_devices) if device in soc.array_devices]
    if len(devices) == 1 and devices[0] in soc.hosts:
        arrays = [devices[0]]
    if arrays:
        return fuse(graph, soc, arrays[0], whole=True)
    view = Group("", (), Unit.VIEW, device="")
    work = Group("", (), Unit.HOST, device=devices[0])
    return tuple(replace(view if op.family is Family.VIEW else work, main=op.name) for op in graph)


def _passed(graph: Graph, groups: tuple[Group, ...], root: Roots) -> Passed:
    """Return the producer and the readers of each result that passes between groups."""
    maker = {t: i for i, group in enumerate(groups) for t in graph.operators[group.members[-1]].outputs}
    readers: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        for tensor in sorted(stored_inputs(graph, group, root)):
            readers.setdefault(tensor, []).append(i)
    return {tensor: (maker[tensor], tuple(used)) for tensor, used in readers.items() if tensor in maker}


def _links(
    costs_under: CostsUnder, device: int, residency: Residency, kept: Any, users: dict[str, tuple[int, ...]]
) -> tuple[Link, ...]:
    """Return a link for each tensor that stays in SRAM; `users` are its producer and readers."""
    links = []
    staying = sorted(residency.whole | residency.row_fused)
    for batch in _batches({tensor: users[tensor] for tensor in staying if tensor in users}):
        whole, row_fused = (names.difference(batch) for names in (residency.whole, residency.row_fused))
        with np.errstate(invalid="ignore"):
            added = costs_under(replace(residency, whole=whole, row_fused=row_fused)) - kept
        # The plan with a tensor is the best: it costs nothing to keep it.
        added = np.where(np.isfinite(added), np.maximum(0.0, added), 0.0)
        for tensor in batch:
            write, *reads = (Load(*added[i].tolist()) for i in users[tensor])
            maker, *readers = users[tensor]
            links.append(Link(tensor, maker, tuple(readers), write, tuple(reads), device))
    return tuple(sorted(links, key=lambda link: (link.maker, link.tensor)))


def _batches(users: Mapping[str, tuple[int, ...]]) -> list[list[str]]:
    """Return batches of tensors without a common group, so that one lowering evaluates a batch."""
    batches: list[tuple[set[int], list[str]]] = []
    for tensor, touching in users.items():
        batch = next((b for b in batches if not b[0].intersection(touching)), None)
        if batch is None:
            batch = (set(), [])
            batches.append(batch)
        batch[0].update(touching)
        batch[1].append(tensor)
    return [tensors for _, tensors in batches]


@dataclass(frozen=True, slots=True)
class _Segment:
    """The operators of a host's chain that belong to one node, in order of the chain's segments.

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
        """Return a row of the operator table with one tensor moved through DRAM."""
        row = row.copy()
        members = [self.graph.operators[name] for name in names]
        parts = {t for op in members for t in (*op.inputs, *op.outputs) if tensor in self.root[t]}
        host = self.soc.hosts[self.device]
        cost.hand_over(row, self.graph, Group(names[0], names[1:], Unit.HOST), host, parts)
        return row

    def _rows(self, part: Callable[[_Segment], tuple[str, ...]]) -> Any:
        """Return a row of the operator table for each segment, with the operators that `part` selects."""
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
            lowered = cost.lower(self.graph, Decisions(tuple(groups)), self.soc)
            for segment, row in zip(numbers, lowered.ops, strict=True):
                if segment >= 0:
                    rows[segment] = row
        return rows


def costed(arch: ArchRow, rows: Any) -> Any:
    """Return the load of each row of an operator table, shape (rows, loads); equal rows are costed once.

    Rows of a row-wise fusion share its time, so each of them is costed.
    """
    number = np.where(rows["fused_chain"] > 0, np.arange(len(rows)), -1)
    keys = [(at, row.tobytes()) for at, row in zip(number.tolist(), rows, strict=True)]
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    if not keys:
        return np.zeros((0, len(_FIELDS)))
    results = cost.operator_costs(arch, rows[[first[key] for key in place]])
    loads = np.stack([results[field] for field in _FIELDS], axis=-1)
    return loads[[place[key] for key in keys]]


def homes(graph: Graph, members: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return the node of each operator; an operator outside all nodes joins the node of its inputs."""
    home = {name: i for i, names in enumerate(members) for name in names}
    for op in graph:
        if op.name not in home:
            writers = (graph.writer(t) for t in op.inputs)
            home[op.name] = max((home[w.name] for w in writers if w is not None), default=0)
    return home
