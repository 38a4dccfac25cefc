"""Groups of operators: which run as one, which need no copy, and in which order groups run.

The post-processing engine behind the MAC grid applies biases, activations and requantisation to an output on
its way to SRAM (`npu.dpu.fused_ops`, a switch for each operator type). An addend or factor that is constant
is one number or one per output channel: the last axis of a matrix product, axis 1 of a convolution (NCHW).
With `npu.dpu.fuse_residual` the sum with a second whole tensor is fused too.

The runtime of a CPU or GPU fuses whole chains of elementwise operators into one pass over the data, whatever
other tensors they read (`cpu.fused_ops`); each operator costs its arithmetic. Operators on different devices
of a shared network are not fused.

Row-wise fusion: attention makes N x N scores, and masks, scales and normalises them row by row before a
product consumes them. Compilers run such operators a block of rows at a time (vertical fusion), so that only
masks and results cross DRAM. A tensor passes in blocks of rows where its maker makes it by rows, its only
reader uses it by rows, and no host works in between.

Joins and splits in place: a Concat moves nothing where the MAC grid makes all of its inputs for it alone, the
grid alone reads the result (or the parts are contiguous), and each part begins at an address that the grid
can write to (`npu.schedule.in_place_alignment`). A Split moves nothing where its parts are contiguous. Any
other is a copy by DMA. Images are stored with their channels innermost, other tensors in the order of their
axes. The runtime of a CPU or GPU joins its own results in place where the data sheet says so
(`gpu.in_place_ops`). Source: the pass CMXConcat of OpenVINO's NPU compiler (getInputPattern,
inputConcatOnlyMeetRequirement, areNCEOutputsAligned, isSplitSupportedOnDPU).

Entering a device costs a call of its runtime, so work for one device is done in as few runs as its operands
allow. Work that stays on one device keeps the graph's order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import groupby
from typing import NamedTuple

from npusim.arch import Soc
from npusim.cost import Group, Roots, Unit, listed_as
from npusim.graph import Graph
from npusim.mapping.placing import DeviceChoice, Place, place_of
from npusim.ops import Family, Operator, RowUse, Storage, Tensor, TensorKind, WorkClass

# Axes of a batch of images: [N, C, H, W].
_IMAGE = 4


def fuse(
    graph: Graph,
    soc: Soc,
    device: DeviceChoice,
    swap_operands: bool | Collection[str] = False,
    whole: bool = False,
) -> tuple[Group, ...]:
    """Group a graph's operators for a SoC.

    Parameters
    ----------
    swap_operands : bool or collection of str
        Products of two 2-D matrices whose right operand is laid on the pixels, so that the left one is the
        weight: all, none, or the named ones.
    whole : bool
        See `place_of`.

    Returns
    -------
    tuple of Group
        Each operator in exactly one group, in an order that enters devices seldom.
    """
    # Groups behind their part and their place in the graph.
    groups: list[tuple[int, int, Group]] = []
    in_group: set[str] = set()
    place = {op.name: i for i, op in enumerate(graph)}
    part = {name: i for i, name in enumerate(graph.parts)}
    places = {op.name: place_of(op, graph, soc, device, whole) for op in graph}
    for op in graph:
        if op.name in in_group:
            continue
        home, unit = places[op.name]
        fused = _followers(op, places, graph, soc, in_group)
        in_group.update(fused)
        wanted = swap_operands if isinstance(swap_operands, bool) else op.name in swap_operands
        swapped = wanted and unit is Unit.DPU and op.family is Family.MATMUL and graph.work(op).batch == 1
        swapped = swapped and graph.inputs_of(op)[1].dtype not in soc.array_devices[home].dpu.weights_only
        # A follower may read a tensor that is made after its group's main operator; no other group waits for
        # the operators in between.
        late = unit.is_host or _reads_others(fused, graph)
        last = place[fused[-1]] if fused and late else place[op.name]
        groups.append((part[op.part], last, Group(op.name, fused, unit, swapped, home)))
    groups.sort(key=lambda placed: placed[:2])
    return in_runs(graph, in_place(graph, soc, tuple(group for *_, group in groups)))


def _followers(
    op: Operator, places: Mapping[str, Place], graph: Graph, soc: Soc, in_group: set[str]
) -> tuple[str, ...]:
    """Return the operators that are applied to the result of `op` on its way out, in order."""
    here, followers = places[op.name], list[str]()
    if here.unit not in (Unit.DPU, Unit.HOST):
        return ()
    is_product = op.traits.work_class is WorkClass.CONTRACTION
    if here.unit.is_host and not is_product and not _is_listed(op, here.device, soc):
        return ()
    result = op.outputs[0]
    while len(readers := graph.readers(result)) == 1 and result not in graph.outputs:
        (follower,) = readers
        is_free = follower.name not in in_group and places[follower.name].device == here.device
        if not is_free or not _can_follow(follower, op, result, here, graph, soc):
            break
        followers.append(follower.name)
        result = follower.outputs[0]
    return tuple(followers)


def _can_follow(op: Operator, main: Operator, result: str, here: Place, graph: Graph, soc: Soc) -> bool:
    """Return whether an operator that reads `result` is fused into the main operator of a group."""
    before, after = graph.tensors[result], graph.tensors[op.outputs[0]]
    if not _is_listed(op, here.device, soc) or op.part != main.part or after.elements != before.elements:
        return False
    if here.unit.is_host:
        return True
    if after.dtype.bits > before.dtype.bits:
        return False  # outputs are narrowed on their way out, not widened: traced networks widen on DSPs
    others = [graph.tensors[t] for t in op.inputs if t != result]
    if all(_is_constant_by_channel(t, main, before) for t in others):
        return True
    adds_residual = op.type == "Add" and soc.array_devices[here.device].dpu.fuse_residual
    is_product = main.traits.work_class is WorkClass.CONTRACTION
    return adds_residual and is_product and len(others) == 1 and others[0].shape == before.shape


def _is_listed(op: Operator, device: str, soc: Soc) -> bool:
    """Return whether an operator can be fused, and the device lists its type."""
    return op.traits.rides_along and listed_as(op) in fused_on(soc, device)


def _reads_others(fused: Sequence[str], graph: Graph) -> bool:
    """Return whether a fused operator reads a computed tensor other than its group's own result."""
    inputs = [graph.tensors[t] for name in fused for t in graph.operators[name].inputs]
    return sum(tensor.kind is TensorKind.ACTIVATION for tensor in inputs) > len(fused)


def _is_constant_by_channel(other: Tensor, main: Operator, result: Tensor) -> bool:
    """Return whether an operand of a fused operator is a constant of one number, or one per channel.

    Such a constant is loaded with the workload of the main operator. One number fits any operator; only
    contractions have a table of biases or scales per output channel.
    """
    if other.kind is not TensorKind.CONSTANT:
        return False
    if other.elements == 1:
        return True
    if main.traits.work_class is not WorkClass.CONTRACTION:
        return False
    rank = len(result.shape)
    channel_axis = rank - 1 if main.family is Family.MATMUL else 1  # (..., channels) of a matmul, else NCHW
    # Broadcasting aligns the last axes.
    length_by_axis = dict(enumerate(other.shape, start=rank - len(other.shape)))
    is_along_channels = all(length == 1 or axis == channel_axis for axis, length in length_by_axis.items())
    return is_along_channels and other.elements == result.shape[channel_axis]


def stored_inputs(graph: Graph, group: Group, stored_of: Mapping[str, Collection[str]]) -> list[str]:
    """Return the stored tensors that a group reads, without its own results; see `producers_of`."""
    members = [graph.operators[name] for name in group.members]
    own = {tensor for op in members for tensor in op.outputs}
    read = (tensor for op in members for tensor in op.inputs if tensor not in own)
    return list(dict.fromkeys(stored for tensor in read for stored in stored_of[tensor]))


def fused_on(soc: Soc, device: str) -> Sequence[str]:
    """Return the operator types that a device applies to a result on its way out."""
    array = soc.array_devices.get(device)
    return array.dpu.fused_ops if array is not None else soc.hosts[device].fused_ops


class Handover(NamedTuple):
    """A result that one group alone reads, in the same uninterrupted run on an array device."""

    stored: str
    maker: Group
    reader: Group
    seen_as: str
    """The tensor that the reader reads: the result itself or a view of it."""


def handovers(graph: Graph, groups: tuple[Group, ...], root: Roots) -> Iterator[Handover]:
    """Yield the results of array devices that need not exist as a whole for anyone but one reader."""
    readers: dict[str, list[tuple[Group, str]]] = {}
    # Number of the uninterrupted run on one device that a group belongs to.
    run_of: dict[str, int] = {}
    run, device = 0, ""
    for group in groups:
        if group.device and group.device != device:
            run, device = run + 1, group.device
        run_of[group.main] = run
        if group.unit is not Unit.VIEW:
            for name in dict.fromkeys(t for op in group.members for t in graph.operators[op].inputs):
                for stored in root[name]:
                    readers.setdefault(stored, []).append((group, name))
    leaving = {stored for name in (*graph.outputs, *graph.passed_between_parts) for stored in root[name]}
    for group in groups:
        name, *others = graph.operators[group.members[-1]].outputs
        if not group.unit.is_array or others or name in leaving or len(readers.get(name, ())) != 1:
            continue
        ((reader, seen_as),) = readers[name]
        if run_of[reader.main] == run_of[group.main]:
            yield Handover(name, group, reader, seen_as)


def row_fusable(graph: Graph, groups: tuple[Group, ...], root: Roots) -> frozenset[str]:
    """Return the tensors that the NPU's operators can pass in blocks of rows."""
    return frozenset(
        stored
        for stored, maker, reader, seen_as in handovers(graph, groups, root)
        if _makes_rows(graph.operators[maker.main], graph) and _reads_rows(reader, seen_as, stored, graph)
    )


def _makes_rows(op: Operator, graph: Graph) -> bool:
    """Return whether an operator can make its result row by row, each from rows of its operands."""
    if op.repeats > 1:  # its result exists as a whole each time
        return False
    if op.traits.rows is RowUse.ALONG_AXES:
        return _spares_rows(op, graph.tensors[op.inputs[0]])
    return op.traits.rows is not RowUse.WHOLE


def _reads_rows(group: Group, name: str, stored: str, graph: Graph) -> bool:
    """Return whether a group uses rows of a tensor in order, each for the same row of its result."""
    op, tensor = graph.operators[group.main], graph.tensors[name]
    if not group.unit.is_array or name not in op.inputs or not tensor.shape or op.repeats > 1:
        return False
    if _rows(tensor) != _rows(graph.tensors[stored]):  # seen under another shape
        return False
    rows = op.traits.rows
    if rows is RowUse.LEFT_OPERAND:
        whole = op.inputs[1] == name or op.attrs.get("transpose_a")
        return not whole and not group.swapped
    if rows is RowUse.ALONG_AXES:
        return _spares_rows(op, tensor)
    if rows is RowUse.IMAGE:  # [images, channels, ...]
        return _rows(tensor) in tensor.shape[:2]
    result = graph.tensors[op.outputs[0]]
    return rows is RowUse.SAME and result.shape[: len(tensor.shape) - 1] == tensor.shape[:-1]


def _rows(tensor: Tensor) -> int:
    """Return the length of the first axis that is longer than 1."""
    return next((length for length in tensor.shape if length > 1), 1)


def _spares_rows(op: Operator, tensor: Tensor) -> bool:
    """Return whether an operator along axes leaves the first axis (the rows) alone."""
    rank = len(tensor.shape)
    axes = op.attrs.get("axes", (rank - 1,))
    return rank > 1 and all(axis % rank for axis in axes)


def in_place(graph: Graph, soc: Soc, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Return the groups with joins and splits that need no copy as views."""
    if not any(group.unit is Unit.DMA or _joins_on_host(group, graph, soc) for group in groups):
        return groups
    returned = _returned(graph)
    unit = {name: group.unit for group in groups for name in group.members}
    device = {name: group.device for group in groups for name in group.members}
    for group in reversed(groups):  # readers first
        op = graph.operators[group.main]
        is_view = False
        if _joins_on_host(group, graph, soc):
            is_view = _is_made_on(group.device, op, graph, device, unit)
        elif group.unit is Unit.DMA:
            schedule = soc.array_devices[group.device].schedule
            sources = {device[w.name] for w in map(graph.writer, op.inputs) if w is not None}
            is_here = listed_as(op) in schedule.in_place_ops and sources <= {"", group.device}
            if is_here and _fits(op, graph, float(schedule.in_place_alignment)):
                is_copied = not returned.isdisjoint(op.outputs)
                is_view = _joins(op, graph, unit, returned) if op.type == "Concat" else not is_copied
        if is_view:
            unit[op.name] = Unit.VIEW
    views = {g.main: replace(g, unit=Unit.VIEW, device="") for g in groups if unit[g.main] is Unit.VIEW}
    return tuple(views.get(group.main, group) for group in groups)


def _joins_on_host(group: Group, graph: Graph, soc: Soc) -> bool:
    """Return whether a group is a single operator that its host does in place."""
    if not group.unit.is_host or group.fused:
        return False
    return listed_as(graph.operators[group.main]) in soc.hosts[group.device].in_place_ops


def _is_made_on(
    host: str, op: Operator, graph: Graph, device: Mapping[str, str], unit: Mapping[str, Unit]
) -> bool:
    """Return whether a host makes every input of an operator itself, perhaps under another shape."""
    for name in op.inputs:
        writer = graph.writer(name)
        while writer is not None and unit[writer.name] is Unit.VIEW and writer.inputs:
            writer = graph.writer(writer.inputs[0])
        if writer is None or device[writer.name] != host or writer.repeats > 1:
            return False
    return len(set(op.inputs)) == len(op.inputs)


def _fits(op: Operator, graph: Graph, alignment: float) -> bool:
    """Return whether the layout of parts is that of the whole, aligned, and contiguous for a split."""
    axes, inputs, outputs = op.attrs.get("axes", ()), graph.inputs_of(op), graph.outputs_of(op)
    whole, parts = (outputs[0], inputs) if op.type == "Concat" else (inputs[0], outputs)
    if len(axes) != 1 or op.repeats > 1 or sum(part.bytes for part in parts) != whole.bytes:
        return False
    if any(t.storage is not Storage.DENSE for t in (whole, *parts)):
        return False
    if any(part.dtype is not whole.dtype or len(part.shape) != len(whole.shape) for part in parts):
        return False
    if op.type != "Concat" and not _is_outermost(whole, axes[0]):
        return False
    order = _memory_order(whole)
    inner = order[order.index(axes[0]) :]
    lengths = (math.prod(part.shape[i] for i in inner) * part.dtype.bytes for part in parts[:-1])
    return all(length % alignment == 0.0 for length in lengths)


def _joins(op: Operator, graph: Graph, unit: Mapping[str, Unit], returned: frozenset[str]) -> bool:
    """Return whether the grid writes all inputs of a Concat for it alone, and readers accept the result."""
    if len(set(op.inputs)) < len(op.inputs):
        return False
    for name in op.inputs:
        writer = graph.writer(name)
        if writer is None or unit[writer.name] is not Unit.DPU or writer.repeats > 1:
            return False
        if graph.readers(name) != (op,) or name in graph.outputs:
            return False
    (whole,) = op.outputs
    read_by_grid = whole not in returned and set(_reading(whole, graph, unit)) == {Unit.DPU}
    return read_by_grid or _is_outermost(graph.tensors[whole], op.attrs["axes"][0])


def _reading(name: str, graph: Graph, unit: Mapping[str, Unit]) -> Iterator[Unit]:
    """Yield the units that read a tensor or a view of it."""
    for reader in graph.readers(name):
        if unit[reader.name] is Unit.VIEW:
            for output in reader.outputs:
                yield from _reading(output, graph, unit)
        else:
            yield unit[reader.name]


def _is_outermost(whole: Tensor, axis: int) -> bool:
    """Return whether parts along an axis are contiguous."""
    order = _memory_order(whole)
    return all(whole.shape[i] == 1 for i in order[: order.index(axis)])


def _memory_order(tensor: Tensor) -> tuple[int, ...]:
    """Return the axes of a tensor, the outermost first."""
    axes = tuple(range(len(tensor.shape)))
    return (axes[0], *axes[2:], axes[1]) if len(axes) == _IMAGE else axes


def _returned(graph: Graph) -> frozenset[str]:
    """Return the tensors that the network returns, perhaps under another shape."""
    returned = set(graph.outputs)
    for op in reversed(list(graph)):
        if op.family is Family.VIEW and returned.intersection(op.outputs):
            returned.update(op.inputs[:1])
    return frozenset(returned)


def in_runs(graph: Graph, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Return the groups in an order that enters devices seldom and keeps producers before consumers.

    Parameters
    ----------
    groups : tuple of Group
        In the graph's order; each reads only inputs, constants or results of earlier groups.

    Returns
    -------
    tuple of Group
        The order with the fewest entries, among the graph's own and, for each first device, the one that
        stays on a device while any of its work is ready. One part of the network follows the other.
    """
    devices = list(dict.fromkeys(g.device for g in groups if g.unit is not Unit.VIEW))
    if len(devices) < 2:
        return groups
    ordered: list[Group] = []
    for _, part in groupby(groups, key=lambda group: graph.operators[group.main].part):
        members = tuple(part)
        producers = producers_of(graph, members, {name: (name,) for name in graph.tensors})
        candidates = [members, *(_staying(members, producers, first) for first in devices)]
        best: tuple[Group, ...] = min(candidates, key=entries)
        ordered += best
    return tuple(ordered)


def entries(groups: tuple[Group, ...]) -> int:
    """Return how often a device is entered when groups run one after the other."""
    devices = [group.device for group in groups if group.unit is not Unit.VIEW]
    return sum(1 for _ in groupby(devices))


def producers_of(
    graph: Graph, groups: Sequence[Group], stored_of: Mapping[str, Collection[str]]
) -> list[set[int]]:
    """Return for each group the groups whose results it reads, as places in `groups`.

    `stored_of` names for each tensor those that hold its data: a view has no data of its own.
    """
    group_of = {name: i for i, group in enumerate(groups) for name in group.members}
    producers: list[set[int]] = []
    for group in groups:
        writers = (graph.writer(tensor) for tensor in stored_inputs(graph, group, stored_of))
        producers.append({group_of[w.name] for w in writers if w is not None and w.name in group_of})
    return producers


def list_schedule(
    producers: Sequence[set[int]], preferred: Callable[[set[int], int], Collection[int]]
) -> list[int]:
    """Return an order in which producers come first: always the first node that is ready, or is preferred.

    Parameters
    ----------
    preferred : callable
        Returns the preferred nodes, given those that are ready and the last one (-1: none).
    """
    sorter = TopologicalSorter(dict(enumerate(producers)))
    sorter.prepare()
    ready, order = set(sorter.get_ready()), [-1]
    while ready:
        node = min(preferred(ready, order[-1]) or ready)
        order.append(node)
        ready.remove(node)
        sorter.done(node)
        ready.update(sorter.get_ready())
    return order[1:]


def _staying(groups: tuple[Group, ...], producers: list[set[int]], first: str) -> tuple[Group, ...]:
    """Return the order that does all ready work of a device, then enters that of the earliest group."""
    device = first

    def here(ready: set[int], last: int) -> set[int]:
        nonlocal device
        if last >= 0 and groups[last].device:  # views run anywhere
            device = groups[last].device
        return {i for i in ready if groups[i].device in (device, "")}

    return tuple(groups[i] for i in list_schedule(producers, here))
