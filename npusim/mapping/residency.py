"""Residency plans: which tensors may stay in SRAM between operators.

Two kinds of tensors compete for SRAM. Intermediate results that fit need not go through DRAM. A matrix that
several layers read, such as a GCN's norm, can be kept from its first use, in full or in part (GraNNite's
CacheG, by the `cached` mark). A kept tensor takes SRAM from the operators' own tiles, so plans are costed and
the cheapest wins.

There are two kinds of plans. *By size*: keep all intermediates up to a size and, in steps, none to all of the
marked matrices. *By moment*: keep as many intermediates as fit into a capacity at every moment, the smallest
first, or first the ones that save most traffic for the time they stay. Capacities fall by `_CAPACITY_STEP`
from the most bytes alive at a time; they do not depend on the machine. There are at most `_MOST_SIZES` and
twice `_MOST_CAPACITIES`, so plans times operators are linear in the operators; where few tensors pass between
operators there are plans by size only.

Weights can stay in SRAM from one inference to the next where the data sheet's compiler keeps them
(`npu.schedule.resident_weights`): then an estimate is of the steady state.

Intermediates that can be fused row-wise are (`npusim.mapping.fusion`). Blocks of rows and the weights of
their readers may not fit together, so some plans have no row-wise fusion and no marked matrices. Where the
compiler fuses depth-first, further plans pass images in bands (`npusim.mapping.depth_first`). A plan
that is possible with some SRAM is possible with more, at hardly more cost. Tensors that stay while a host
works stay for one request in flight only; with several the kernel leaves such plans out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npusim import cost
from npusim.arch import Soc
from npusim.cost import Fusion, Group, Plan, Plans, Roots, Unit
from npusim.graph import Graph
from npusim.mapping.depth_first import segmentations
from npusim.mapping.fusion import row_fusable, stored_inputs
from npusim.ops import Family, TensorKind

CACHE_STEPS = 32
"""Steps between keeping nothing and all of a marked matrix: blocks of about 3 % of it."""
# Most plans by size.
_MOST_SIZES = 14
# Most sizes for which runs of layers are cut into segments.
_MOST_SIZES_OF_SEGMENTS = 4
# Most capacities of plans by moment, and the ratio of two.
_MOST_CAPACITIES, _CAPACITY_STEP = 14, 2.0**0.5
# Ratio of two capacities for weights that stay between inferences; other plans that each is combined with.
_RESIDENT_STEP, _RESIDENT_SETS, _FEW_PLANS = 2.0**0.5, 12, 12
# Ratio of two sizes of SRAM that are left free for prefetched weights, and how many are tried.
_RESERVE_STEP, _RESERVES = 4.0, 4
# Intermediates up to which plans by size do: small networks are swept by the million.
_FEW_TENSORS = 12


class _Use(NamedTuple):
    """Groups that produce and last read a tensor, and its number of DRAM transfers if it is not kept."""

    bytes: float
    first: int
    last: int
    moves: int


def plans(graph: Graph, groups: tuple[Group, ...], soc: Soc) -> Plans:
    """Return every residency plan worth costing; the first one keeps nothing."""
    root = cost.roots(graph, groups)
    unable = {name for name, device in soc.array_devices.items() if not device.sram.holds_results}
    # Results that SRAM cannot hold.
    sent = {t for g in groups if g.device in unable for t in graph.operators[g.members[-1]].outputs}
    uses = {name: use for name, use in _uses(graph, groups, root).items() if name not in sent}
    marked = _marked(graph, groups, root)
    row_fused = row_fusable(graph, groups, root) - sent
    fuses = bool(row_fused)
    apart = {name: use for name, use in uses.items() if name not in row_fused}
    fusions = [Fusion(), Fusion(row_fused)] if fuses else [Fusion()]
    steps = [Plan(fusion) for fusion in range(len(fusions))]
    shares = [step / CACHE_STEPS for step in range(CACHE_STEPS + 1 if marked else 1)]
    for whole in (frozenset[str](), *_by_size(apart)):
        steps += [Plan(int(fuses), whole, share) for share in shares if whole or share]
    steps += [Plan(int(fuses), whole) for whole in _by_moment(apart)]
    if fuses:  # row blocks and the weights of their readers may not fit side by side
        steps += [Plan(0, whole) for whole in (*_by_size(uses), *_by_moment(uses))]
    resident = _resident(graph, groups, soc, root)
    reserved = _reserved_bytes(graph, groups, soc, root)
    few = [step for step in steps if not step.share]
    few = sorted(few[:: max(1, len(few) // _FEW_PLANS)], key=lambda step: not step.fusion)
    steps += [step._replace(reserved_bytes=size) for size in reserved for step in few]
    steps += [step._replace(resident=i) for i in range(1, len(resident)) for step in few]
    if any(npu.schedule.depth_first for npu in soc.array_devices.values()):
        wholes = [frozenset[str](), *_by_size(uses, _MOST_SIZES_OF_SEGMENTS)]
        for fusion, kept in segmentations(graph, groups, root, soc, row_fused, wholes):
            steps += [Plan(len(fusions), whole) for whole in kept]
            fusions.append(fusion)
    return Plans(tuple(dict.fromkeys(steps)), tuple(fusions), tuple(marked), resident)


def _reserved_bytes(graph: Graph, groups: tuple[Group, ...], soc: Soc, root: Roots) -> tuple[float, ...]:
    """Return sizes of SRAM that operators may leave free for prefetched weights, at most all weights."""
    devices = {name for name, device in soc.array_devices.items() if device.schedule.prefetch}
    ops = [graph.operators[group.main] for group in groups if group.device in devices]
    read = {name: graph.tensors[name] for op in ops for t in op.inputs for name in root[t]}
    known = sum(t.stored_bytes for t in read.values() if t.kind is not TensorKind.ACTIVATION)
    return tuple(known / _RESERVE_STEP**step for step in range(_RESERVES if known else 0))


def _resident(graph: Graph, groups: tuple[Group, ...], soc: Soc, root: Roots) -> tuple[dict[str, float], ...]:
    """Return sets of weights that may stay between inferences, one for each capacity; the first is empty.

    A knapsack for each capacity. Any share of a weight may stay, so the weights that save most seconds by
    byte of SRAM fill it exactly, those that save none by traffic. A product saves what its weights take
    longer at the bandwidth of DRAM than its work at the peak of the MAC grid.
    """
    devices = {name for name, device in soc.array_devices.items() if device.schedule.resident_weights}
    saved_s: dict[str, float] = {}
    for group in groups:
        if group.device not in devices or group.unit is Unit.VIEW:
            continue
        op, npu = graph.operators[group.main], soc.array_devices[group.device]
        if op.family is Family.GATHER:  # it reads some rows of a table
            continue
        names = [n for t in op.inputs for n in root[t] if graph.tensors[n].kind is TensorKind.CONSTANT]
        dram_s = sum(graph.tensors[name].stored_bytes for name in names) / float(soc.dram.bandwidth)
        macs_per_s = npu.peak_macs_per_s(graph.tensors[op.inputs[0]].dtype.value) if names else 1.0
        work_s = graph.macs_of(op) / macs_per_s if macs_per_s else 0.0
        for name in names:
            saved_s[name] = saved_s.get(name, 0.0) + max(0.0, dram_s - work_s)
    live = cost.Liveness(graph, cost.Decisions(groups), soc) if saved_s else None
    sizes = {name: live.sram_bytes(name) for name in saved_s} if live is not None else {}
    order = sorted(
        (name for name in saved_s if sizes[name] > 0.0),
        key=lambda name: (
            -saved_s[name] / sizes[name],
            -graph.tensors[name].stored_bytes / sizes[name],
            name,
        ),
    )
    most, sets = sum(sizes[name] for name in order), list[dict[str, float]]([{}])
    for step in range(_RESIDENT_SETS if order else 0):
        room, kept = most / _RESIDENT_STEP**step, dict[str, float]()
        for name in order:
            kept[name] = min(1.0, room / sizes[name])
            room -= kept[name] * sizes[name]
            if room <= 0.0:
                break
        sets.append(kept)
    return tuple(sets)


def _by_size(uses: dict[str, _Use], most: int = _MOST_SIZES) -> list[frozenset[str]]:
    """Return sets of tensors to keep: those up to some size, for at most `most` sizes."""
    sizes = sorted({use.bytes for use in uses.values()})
    places = sorted({*map(round, np.linspace(0, len(sizes) - 1, min(len(sizes), most)).tolist())})
    return [frozenset(name for name, use in uses.items() if use.bytes <= sizes[place]) for place in places]


def _by_moment(uses: dict[str, _Use]) -> list[frozenset[str]]:
    """Return sets of tensors that fit together at every moment, for several capacities."""
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
    # The traffic that keeping a tensor saves, per byte and group that it stays over.
    worth = {name: use.moves / (use.last - use.first + 1) for name, use in uses.items()}
    orders = (smallest, sorted(smallest, key=lambda name: -worth[name]))
    fitting = [_fitting(uses, order, size, len(alive)) for order in orders for size in capacities]
    return [whole for whole in dict.fromkeys(fitting) if whole]


def _fitting(uses: dict[str, _Use], order: list[str], capacity: float, moments: int) -> frozenset[str]:
    """Return the tensors that fit into a capacity at every moment, taken greedily in `order`."""
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
    """Return the use of every result that may stay in SRAM: one array device makes it and reads it.

    What a host touches, or another part of the network reads, has to be in DRAM. A result that nobody reads
    is in SRAM while its maker works. An output of the network may stay for later readers, and is written too.
    """
    maker: dict[str, int] = {}
    must_be_in_dram: set[str] = set()
    users: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        op = graph.operators[group.main]
        if group.unit.is_host:
            must_be_in_dram.update(stored for t in (*op.inputs, *op.outputs) for stored in root[t])
        elif group.unit is not Unit.VIEW:
            if cost.is_state_copy(op, group.unit):  # the driver copies into DRAM
                must_be_in_dram.update(op.outputs)
            maker.update(dict.fromkeys(graph.operators[group.members[-1]].outputs, i))
            for tensor in stored_inputs(graph, group, root):
                users.setdefault(tensor, []).append(i)
    must_be_in_dram.update(stored for name in graph.passed_between_parts for stored in root[name])
    uses = {}
    for name, first in maker.items():
        readers = users.get(name, [])
        is_of_one_device = all(groups[i].device == groups[first].device for i in readers)
        if name not in must_be_in_dram and is_of_one_device:
            last, moves = max(readers, default=first), 1 + len(readers)  # one write, and a read per reader
            uses[name] = _Use(bytes=graph.tensors[name].bytes, first=first, last=last, moves=moves)
    return uses


def _marked(graph: Graph, groups: tuple[Group, ...], root: Roots) -> list[str]:
    """Return inputs and constants marked `cached` that several groups of an array device read."""
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
