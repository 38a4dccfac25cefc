"""Costs every group on every device, as the numbers of a placement problem.

Each device is costed as if the whole network ran there: an NPU under its best residency plan, a host with its
fused chains and caches (`host_costs`). Passing a result to another device costs the difference between the
kernel's results with that result in SRAM and in DRAM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from npusim.arch import Soc
from npusim.cost import ArchRow, Decisions, Group, Residency, Roots, Unit, lower, roots
from npusim.errors import InfeasibleError
from npusim.graph import Graph
from npusim.mapping.fusion import fuse, list_schedule, producers_of, stored_inputs
from npusim.mapping.graphsplit.host_costs import HostCosting, Passed, costed
from npusim.mapping.graphsplit.problem import Link, Load, Problem
from npusim.mapping.mapped import Run, map_placed
from npusim.mapping.placing import can_run
from npusim.ops import Family

CostsUnder = Callable[[Residency], Any]
"""Returns the load of each group on an array device under a residency plan, shape (groups, loads)."""


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
        **{name: costs[:, :, i] for i, name in enumerate(Load._fields)},
        launch_s=np.array([float(arch[device]["launch_s"]) for device in devices]),
        links=links,
        handed=tuple((maker, used, float(graph.tensors[t].bytes)) for t, (maker, used) in passed.items()),
        members=tuple(g.members for g in groups),
    )


def _in_order(graph: Graph, groups: tuple[Group, ...], root: Roots) -> tuple[Group, ...]:
    """Return the groups without views, preprocessing first, one branch after the other."""
    work = [g for g in groups if g.unit is not Unit.VIEW]
    structural = graph.structural
    is_early = [structural.issuperset(graph.operators[g.main].outputs) for g in work]
    early = [g for g, early in zip(work, is_early, strict=True) if early]
    rest = [g for g, early in zip(work, is_early, strict=True) if not early]
    return (*_by_branches(graph, early, root), *_by_branches(graph, rest, root))


def _by_branches(graph: Graph, groups: list[Group], root: Roots) -> list[Group]:
    """Return groups in an order in which few results wait: each is read as soon as its reader is ready."""
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
    """Return the costs of groups on one array device, which may fuse operators differently."""
    home = {name: i for i, group in enumerate(groups) for name in group.members}
    fused = [group for group in fuse(graph, soc, device, whole=True) if group.main in home]
    own = tuple(sorted(fused, key=lambda group: home[group.main]))

    def costs_under(residency: Residency) -> Any:
        costs = np.zeros((len(groups), len(Load._fields)))
        rows = lower(graph, Decisions(own, residency), soc).ops
        np.add.at(costs, [home[group.main] for group in own], costed(arch, rows))
        return costs

    return costs_under


def _most_feasible(costs_under: CostsUnder, residency: Residency) -> tuple[Residency, Any]:
    """Return a residency plan, or the empty one where more groups fit with it, and the costs under it.

    The plan is for the order of the network; here one branch follows the other, so more may wait in SRAM.
    """
    costs = costs_under(residency)
    if np.isfinite(costs).all():
        return residency, costs
    tried = ((residency, costs), (Residency(), costs_under(Residency())))
    return max(tried, key=lambda plan: np.isfinite(plan[1][:, 0]).sum())


def _grouped(graph: Graph, soc: Soc, devices: tuple[str, ...]) -> tuple[Group, ...]:
    """Return the groups of operators that are placed as one, with views."""
    arrays = [device for device in (*devices, *soc.array_devices) if device in soc.array_devices]
    if len(devices) == 1 and devices[0] in soc.hosts:
        arrays = [devices[0]]
    if arrays:
        return fuse(graph, soc, arrays[0], whole=True)
    view = Group("", (), Unit.VIEW, device="")
    work = Group("", (), Unit.HOST, device=devices[0])
    return tuple(replace(view if op.family is Family.VIEW else work, main=op.name) for op in graph)


def _passed(graph: Graph, groups: tuple[Group, ...], root: Roots) -> Passed:
    """Return maker and readers of each result that passes between groups."""
    maker = {t: i for i, group in enumerate(groups) for t in graph.operators[group.members[-1]].outputs}
    readers: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        for tensor in sorted(stored_inputs(graph, group, root)):
            readers.setdefault(tensor, []).append(i)
    return {tensor: (maker[tensor], tuple(used)) for tensor, used in readers.items() if tensor in maker}


def _links(
    costs_under: CostsUnder, device: int, residency: Residency, kept: Any, users: dict[str, tuple[int, ...]]
) -> tuple[Link, ...]:
    """Return a link for each tensor that stays in SRAM, given the maker and readers of each."""
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
