"""Residency plans: which tensors may stay in SRAM between operators.

Two kinds of tensors compete for room. Intermediate results that fit need never see DRAM. A matrix that
several layers read, such as a GCN's norm, can be kept from its first use, as much of it as fits (GraNNite's
CacheG, asked for by the `cached` mark). What is kept takes room from the operators' own tiles, so plans are
costed and the cheapest is taken.

There are two kinds of plans. *By size*: keep all intermediates up to a size; with each of them, keep none to
all of the marked matrices in steps. *By moment*: keep as many intermediates as fit into a capacity at every
moment, either the smallest first or those that save most traffic for the time they stay. Capacities run down
from the most that is alive at a time, by `_CAPACITY_STEP`; they do not depend on the machine. There are at
most `_MOST_SIZES` and twice `_MOST_CAPACITIES`, so plans times operators grow as the operators do; where few
tensors pass between operators there are plans by size only.

Intermediates that can be fused row-wise are (`npusim.mapping.fusion`); as blocks of rows and the weights
of their readers may not fit side by side, there are plans without row-wise fusion and marked matrices, too. A
plan that is possible with some SRAM is possible with more, where it costs hardly more.
What stays in SRAM while a host works stays for one request in flight only; the kernel leaves such plans out
where there are several.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npusim.arch import Soc
from npusim.cost import Group, Plan, Plans, Roots, Unit, is_state_copy, roots
from npusim.graph import Graph
from npusim.mapping.fusion import row_fusable
from npusim.ops import TensorKind

CACHE_STEPS = 32
"""Steps between keeping nothing and all of a marked matrix: blocks of about 3 % of it."""
_MOST_SIZES = 14
"""Most plans by size."""
_MOST_CAPACITIES, _CAPACITY_STEP = 14, 2.0**0.5
"""Most capacities of plans by moment, and the ratio of two."""
_FEW_TENSORS = 12
"""Intermediates up to which plans by size do: small networks are swept by the million."""


class _Use(NamedTuple):
    """When an intermediate tensor is alive, and how often it would be moved."""

    bytes: float
    first: int
    """Group that makes it."""
    last: int
    """Last group that reads it."""
    moves: int
    """One for each group that makes or reads it."""


def plans(graph: Graph, groups: tuple[Group, ...], soc: Soc) -> Plans:
    """Return every residency plan worth costing, the one that keeps nothing first."""
    root = roots(graph, groups)
    unable = {name for name, device in soc.array_devices.items() if not device.sram.holds_results}
    sent = {t for g in groups if g.device in unable for t in graph.operators[(g.main, *g.fused)[-1]].outputs}
    """Results that SRAM cannot hold."""
    uses = {name: use for name, use in _uses(graph, groups, root).items() if name not in sent}
    marked = _marked(graph, groups, root)
    row_fused = row_fusable(graph, groups, root) - sent
    fuses = bool(row_fused)
    beside = {name: use for name, use in uses.items() if name not in row_fused}
    steps = [Plan(False)]
    if fuses:
        steps.append(Plan(True))
    shares = [step / CACHE_STEPS for step in range(CACHE_STEPS + 1 if marked else 1)]
    for whole in (frozenset[str](), *_by_size(beside)):
        steps += [Plan(fuses, whole, share) for share in shares if whole or share]
    steps += [Plan(fuses, whole) for whole in _by_moment(beside)]
    if fuses:  # row blocks and the weights of their readers may not fit side by side
        steps += [Plan(False, whole) for whole in (*_by_size(uses), *_by_moment(uses))]
    return Plans(tuple(dict.fromkeys(steps)), row_fused, tuple(marked))


def _by_size(uses: dict[str, _Use]) -> list[frozenset[str]]:
    """Return tensors up to each size, or up to `_MOST_SIZES` of them where there are more."""
    sizes = sorted({use.bytes for use in uses.values()})
    places = np.unique(np.linspace(0, len(sizes) - 1, min(len(sizes), _MOST_SIZES)).round().astype(int))
    return [frozenset(name for name, use in uses.items() if use.bytes <= sizes[place]) for place in places]


def _by_moment(uses: dict[str, _Use]) -> list[frozenset[str]]:
    """Return what fits into each capacity at every moment."""
    if len(uses) <= _FEW_TENSORS:
        return []
    alive = np.zeros(max(use.last for use in uses.values()) + 1)
    for use in uses.values():
        alive[use.first : use.last + 1] += use.bytes
    least, most = min(use.bytes for use in uses.values()), float(alive.max())
    count = min(_MOST_CAPACITIES, (len(uses) - _FEW_TENSORS) // 2)
    scale = [most / _CAPACITY_STEP**i for i in range(count)]
    capacities = [capacity for capacity in reversed(scale) if capacity >= least]
    smallest = sorted(uses, key=lambda name: (uses[name].bytes, name))
    worthiest = sorted(smallest, key=lambda name: -_worth(uses[name]))
    found = dict.fromkeys(
        _fitting(uses, order, capacity, len(alive))
        for order in (smallest, worthiest)
        for capacity in capacities
    )
    return [whole for whole in found if whole]


def _worth(use: _Use) -> float:
    """Bytes of traffic that keeping a tensor saves, for its bytes and the groups that it stays over."""
    return use.moves / (use.last - use.first + 1)


def _fitting(uses: dict[str, _Use], order: list[str], capacity: float, moments: int) -> frozenset[str]:
    """Keep tensors in an order as long as all that are alive at a time fit into a capacity."""
    room = np.full(moments, capacity)
    kept = []
    for name in order:
        size, first, last, _ = uses[name]
        span = room[first : last + 1]
        if span.min() >= size:
            span -= size
            kept.append(name)
    return frozenset(kept)


def _uses(graph: Graph, groups: tuple[Group, ...], root: Roots) -> dict[str, _Use]:
    """Return the use of every tensor that passes between groups on one array device only."""
    made: dict[str, int] = {}
    foreign: set[str] = set()
    users: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        names = (group.main, *group.fused)
        last = group.fused[-1] if group.fused else group.main
        op = graph.operators[group.main]
        if group.unit.is_host:
            foreign.update(stored for t in (*op.inputs, *op.outputs) for stored in root[t])
        elif group.unit is not Unit.VIEW:
            if is_state_copy(op, group.unit):  # what the driver copies, it leaves in DRAM
                foreign.update(op.outputs)
            made.update((tensor, i) for tensor in graph.operators[last].outputs)
            read = (t for name in names for t in graph.operators[name].inputs)
            for tensor in {stored for t in read for stored in root[t]}:
                users.setdefault(tensor, []).append(i)
    foreign.update(stored for name in graph.passed_between_parts for stored in root[name])
    found = {}
    for name, first in made.items():
        readers = [i for i in users.get(name, ()) if i != first]
        if name not in foreign and all(groups[i].device == groups[first].device for i in readers):
            found[name] = _Use(
                graph.tensors[name].bytes, first, max(readers, default=first), 1 + len(readers)
            )
    return found


def _marked(graph: Graph, groups: tuple[Group, ...], root: Roots) -> list[str]:
    """Inputs and constants with the `cached` mark that more than one group of an array device reads."""
    readers: dict[tuple[str, str], set[str]] = {}
    for group in groups:
        if not group.unit.is_array:
            continue
        for tensor in graph.operators[group.main].inputs:
            for stored in root[tensor]:
                readers.setdefault((stored, group.device), set()).add(group.main)
    shared = {stored for (stored, _), mains in readers.items() if len(mains) > 1}
    return sorted(
        name
        for name, tensor in graph.tensors.items()
        if tensor.cached and tensor.kind is not TensorKind.ACTIVATION and name in shared
    )
