"""Costs every group on every device, as the numbers of a placement problem.

Each device is costed as if the whole network ran there: an NPU under its best residency plan, a host with its
fused chains and caches (`host_costs`). Passing a result to another device costs the difference between the
kernel's results with that result in SRAM and in DRAM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

import numpy as np

from npusim.arch import Soc
from npusim.cost import RESULT_DTYPE, ArchRow, Decisions, Group, Residency, Roots, Unit, lower, roots
from npusim.errors import InfeasibleError
from npusim.graph import Graph
from npusim.mapping.fusion import fuse
from npusim.mapping.graphsplit.host_costs import FIELDS, HostCosting, costed
from npusim.mapping.graphsplit.problem import Link, Load, Problem
from npusim.mapping.mapped import Run, map_placed
from npusim.mapping.placing import can_run
from npusim.ops import Family


def placement_problem(
    graph: Graph,
    soc: Soc,
    run: Run,
    devices: Sequence[str],
    fixed: Mapping[str, str] | None = None,
    kept: Residency | None = None,
) -> Problem:
    """Cost every group of a graph on every device.

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
    """
    devices, fixed = tuple(devices), fixed or {}
    every = _grouped(graph, soc, devices)
    root = roots(graph, every)
    groups = _in_order(graph, every, root)
    arch = run.row(soc)
    shape = (len(groups), len(devices))
    costs = {field: np.zeros(shape) for field in FIELDS}
    passed = _passed(graph, groups, root)
    links: tuple[Link, ...] = ()
    for d, device in enumerate(devices):
        if device in soc.array_devices:
            alone = replace(run, device=device)
            residency = kept if kept is not None else _best_residency(graph, soc, alone)
            costing = _OnArray(graph, soc, arch, groups, device)
            residency, results = costing.feasible(residency)
            movable = frozenset(i for i, g in enumerate(groups) if fixed.get(g.main) != device)
            links += _links(costing, d, residency, results, movable)
        else:
            hosted = HostCosting(graph, soc, arch, groups, device, root)
            results = hosted.results(len(groups))
            if len(devices) > 1:
                links += tuple(hosted.links(passed, d))
        for field in FIELDS:
            costs[field][:, d] = results[field]
    allowed = np.ones(shape, bool)
    for i, group in enumerate(groups):
        allowed[i] = [_can_run(graph, soc, group, device) for device in devices]
        if group.main in fixed:
            allowed[i] = [device == fixed[group.main] for device in devices]
    return Problem(
        names=tuple(g.main for g in groups),
        devices=devices,
        allowed=allowed,
        time_s=costs["latency_s"],
        dram_bytes=costs["streamed_bytes"],
        energy_j=costs["energy_j"],
        dma_s=costs["dma_s"],
        launch_s=np.array([float(arch[device]["launch_s"]) for device in devices]),
        links=links,
        handed=tuple((maker, used, float(graph.tensors[t].bytes)) for t, (maker, used) in passed.items()),
        members=tuple((g.main, *g.fused) for g in groups),
    )


def _can_run(graph: Graph, soc: Soc, group: Group, device: str) -> bool:
    return all(can_run(graph.operators[name], graph, soc, device) for name in (group.main, *group.fused))


def _in_order(graph: Graph, groups: tuple[Group, ...], root: Roots) -> tuple[Group, ...]:
    """Return the groups without views, preprocessing first, one branch after the other."""
    work = [g for g in groups if g.unit is not Unit.VIEW]
    structural = graph.structural
    first = [g for g in work if structural.issuperset(graph.operators[g.main].outputs)]
    early = {g.main for g in first}
    rest = [g for g in work if g.main not in early]
    return (*_by_branches(graph, first, root), *_by_branches(graph, rest, root))


def _by_branches(graph: Graph, groups: list[Group], root: Roots) -> list[Group]:
    """Return groups in an order in which few results wait: each is read as soon as its reader is ready."""
    home = {name: g.main for g in groups for name in (g.main, *g.fused)}
    needs: dict[str, set[str]] = {}
    for group in groups:
        inputs = (t for name in (group.main, *group.fused) for t in graph.operators[name].inputs)
        read = {stored for t in inputs for stored in root[t]}
        writers = {home.get(w.name) for w in map(graph.writer, read) if w is not None}
        needs[group.main] = {w for w in writers if w is not None and w != group.main}
    place = {g.main: i for i, g in enumerate(groups)}
    missing = {name: len(needed) for name, needed in needs.items()}
    readers: dict[str, list[str]] = {}
    for name, needed in needs.items():
        for writer in needed:
            readers.setdefault(writer, []).append(name)
    ready = [place[name] for name, count in missing.items() if not count]  # in order, so it is a heap
    order: list[Group] = []
    done: set[str] = set()
    last = ""
    while ready:
        following = [name for name in readers.get(last, ()) if not missing[name] and name not in done]
        name = min(following, key=place.__getitem__) if following else groups[heappop(ready)].main
        if name not in done:
            order.append(groups[place[name]])
            done.add(name)
            last = name
            for reader in readers.get(name, ()):
                missing[reader] -= 1
                if not missing[reader]:
                    heappush(ready, place[reader])
    return order


def _best_residency(graph: Graph, soc: Soc, run: Run) -> Residency:
    try:
        return map_placed(graph, soc, run).decisions.residency
    except InfeasibleError:  # a group that fits under no plan will run elsewhere
        return Residency()


class _OnArray:
    """Costs the groups of a problem on one array device, which may fuse operators differently."""

    def __init__(self, graph: Graph, soc: Soc, arch: ArchRow, groups: tuple[Group, ...], device: str) -> None:
        self.graph, self.soc, self.arch, self.groups = graph, soc, arch, groups
        home = {name: i for i, g in enumerate(groups) for name in (g.main, *g.fused)}
        own = [g for g in fuse(graph, soc, device, whole=True) if g.main in home]
        self.own = tuple(sorted(own, key=lambda group: home[group.main]))
        self.home = [home[group.main] for group in self.own]

    def feasible(self, residency: Residency) -> tuple[Residency, Any]:
        """Return a residency plan, or the empty one where more groups fit with it, and the results under it.

        The plan is for the order of the network; here one branch follows the other, so more may wait in SRAM.
        """
        results = self.results(residency)
        if not np.isfinite(results["latency_s"]).all():
            without = self.results(Residency())
            if np.isfinite(without["latency_s"]).sum() > np.isfinite(results["latency_s"]).sum():
                return Residency(), without
        return residency, results

    def results(self, residency: Residency) -> Any:
        """Return the kernel's result of each group under a residency plan, by `FIELDS`."""
        results = np.zeros(len(self.groups), RESULT_DTYPE)
        own = costed(self.arch, lower(self.graph, Decisions(self.own, residency), self.soc).ops)
        for field in FIELDS:
            np.add.at(results[field], self.home, own[field])
        return results


def _grouped(graph: Graph, soc: Soc, devices: tuple[str, ...]) -> tuple[Group, ...]:
    """Return the groups of operators that are placed as one, with views."""
    if len(devices) == 1 and devices[0] in soc.hosts:
        return fuse(graph, soc, devices[0], whole=True)
    arrays = [*(d for d in devices if d in soc.array_devices), *soc.array_devices]
    if arrays:
        return fuse(graph, soc, arrays[0], whole=True)
    view = Group("", (), Unit.VIEW, device="")
    work = Group("", (), Unit.HOST, device=devices[0])
    return tuple(replace(view if op.family is Family.VIEW else work, main=op.name) for op in graph)


def _touched(
    graph: Graph, groups: tuple[Group, ...], root: Roots
) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Return the maker and the readers of each tensor that is not a view, by group."""
    maker: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        inner = {t for name in (group.main, *group.fused) for t in graph.operators[name].outputs}
        last = graph.operators[group.fused[-1] if group.fused else group.main]
        maker.update(dict.fromkeys(last.outputs, i))
        read = {
            stored
            for name in (group.main, *group.fused)
            for t in graph.operators[name].inputs
            if t not in inner
            for stored in root[t]
        }
        for tensor in sorted(read):
            readers.setdefault(tensor, []).append(i)
    return maker, readers


def _passed(graph: Graph, groups: tuple[Group, ...], root: Roots) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Return maker and readers of each result that passes between groups."""
    maker, readers = _touched(graph, groups, root)
    return {tensor: (maker[tensor], tuple(used)) for tensor, used in readers.items() if tensor in maker}


def _links(
    costing: _OnArray, device: int, residency: Residency, kept: Any, movable: frozenset[int]
) -> tuple[Link, ...]:
    """Return a link for each tensor that stays in SRAM and that a movable group touches."""
    graph, groups = costing.graph, costing.groups
    passed = _passed(graph, groups, roots(graph, groups))
    stays = sorted(residency.whole | residency.row_fused)
    users = {t: (passed[t][0], *passed[t][1]) for t in stays if t in passed}
    users = {tensor: touching for tensor, touching in users.items() if movable.intersection(touching)}
    links = []
    for batch in _batches(users):
        left = replace(
            residency,
            whole=residency.whole.difference(batch),
            row_fused=residency.row_fused.difference(batch),
        )
        streamed = costing.results(left)
        for tensor in batch:
            write, *reads = (_difference(streamed[i], kept[i]) for i in users[tensor])
            links.append(Link(tensor, *passed[tensor], write, tuple(reads), device))
    return tuple(sorted(links, key=lambda link: (link.maker, link.tensor)))


def _batches(users: Mapping[str, tuple[int, ...]]) -> list[list[str]]:
    """Return batches of tensors such that no group uses two of one, which one lowering evaluates."""
    batches: list[tuple[set[int], list[str]]] = []
    for tensor, touching in users.items():
        batch = next((b for b in batches if not b[0].intersection(touching)), None)
        if batch is None:
            batch = (set(), [])
            batches.append(batch)
        batch[0].update(touching)
        batch[1].append(tensor)
    return [tensors for _, tensors in batches]


def _difference(streamed: Any, kept: Any) -> Load:
    """Return the additional load of a result through DRAM; at least 0: the plan with it is the best."""
    deltas = []
    for field in FIELDS:
        delta = float(streamed[field]) - float(kept[field])
        deltas.append(max(0.0, delta) if np.isfinite(delta) else 0.0)
    return Load(*deltas)
