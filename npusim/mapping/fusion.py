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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import groupby

from npusim.arch import Soc
from npusim.cost import Group, Roots, Unit, listed_as
from npusim.graph import Graph
from npusim.mapping.placing import DeviceChoice, Place, place_of
from npusim.ops import Family, Operator, RowUse, Storage, Tensor, TensorKind, WorkClass

_IMAGE = 4
"""Axes of a batch of images: [N, C, H, W]."""


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
    groups: list[tuple[int, Group]] = []
    in_group: set[str] = set()
    place = {op.name: i for i, op in enumerate(graph)}
    places = {op.name: place_of(op, graph, soc, device, whole) for op in graph}
    for op in graph:
        if op.name in in_group:
            continue
        home, unit = places[op.name]
        fused = _followers(op, places, graph, soc, in_group)
        in_group.update(fused)
        wanted = swap_operands if isinstance(swap_operands, bool) else op.name in swap_operands
        swapped = wanted and unit is Unit.DPU and op.family is Family.MATMUL and graph.work(op).batch == 1
        # A follower may read a tensor that is made after its group's main operator; no other group waits for
        # the operators in between.
        late = unit.is_host or _reads_others(fused, graph)
        last = place[fused[-1]] if fused and late else place[op.name]
        groups.append((last, Group(op.name, fused, unit, swapped, home)))
    turn = {part: i for i, part in enumerate(graph.parts)}
    groups.sort(key=lambda placed: (turn[graph.operators[placed[1].main].part], placed[0]))
    return in_runs(graph, in_place(graph, soc, tuple(group for _, group in groups)))


def _followers(
    op: Operator, places: Mapping[str, Place], graph: Graph, soc: Soc, in_group: set[str]
) -> tuple[str, ...]:
    """Return the operators that are applied to the result of `op` on its way out, in order."""
    here = places[op.name]
    if not _leads(op, here, soc):
        return ()
    followers: list[str] = []
    current = op
    while True:
        result = current.outputs[0]
        readers = graph.readers(result)
        if len(readers) != 1 or result in graph.outputs:
            return tuple(followers)
        follower = readers[0]
        is_free = follower.name not in in_group and places[follower.name].device == here.device
        if not is_free or not _can_follow(follower, op, result, here, graph, soc):
            return tuple(followers)
        followers.append(follower.name)
        current = follower


def _leads(op: Operator, here: Place, soc: Soc) -> bool:
    """Return whether others may be fused into an operator: on a host into products and elementwise ones."""
    if here.unit.is_host:
        return op.traits.work_class is WorkClass.CONTRACTION or _is_listed(op, here.device, soc)
    return here.unit is Unit.DPU


def _can_follow(op: Operator, main: Operator, result: str, here: Place, graph: Graph, soc: Soc) -> bool:
    """Return whether an operator that reads `result` is fused into the main operator of a group."""
    if not _is_listed(op, here.device, soc) or op.part != main.part:
        return False
    if graph.tensors[op.outputs[0]].elements != graph.tensors[result].elements:
        return False
    if here.unit.is_host:
        return True
    if graph.tensors[op.outputs[0]].dtype.bits > graph.tensors[result].dtype.bits:
        return False  # outputs are narrowed on their way out, not widened: traced networks widen on DSPs
    others = [graph.tensors[t] for t in op.inputs if t != result]
    if (
        op.type == "Add"
        and soc.array_devices[here.device].dpu.fuse_residual
        and len(others) == 1
        and main.traits.work_class is WorkClass.CONTRACTION
    ):
        return others[0].shape == graph.tensors[result].shape or _is_loaded_with(
            others[0], main, graph.tensors[result]
        )
    return all(_is_loaded_with(t, main, graph.tensors[result]) for t in others)


def _is_listed(op: Operator, device: str, soc: Soc) -> bool:
    """Return whether an operator can be fused, and the device lists its type."""
    return op.traits.rides_along and listed_as(op) in fused_on(soc, device)


def _reads_others(fused: Sequence[str], graph: Graph) -> bool:
    """Return whether a fused operator reads a computed tensor other than its group's own result."""
    computed = [
        t
        for name in fused
        for t in graph.operators[name].inputs
        if graph.tensors[t].kind is TensorKind.ACTIVATION
    ]
    return len(computed) > len(fused)


def _is_loaded_with(other: Tensor, main: Operator, result: Tensor) -> bool:
    """Return whether an operand is loaded with the workload: a constant, one number or one per channel."""
    if other.kind is not TensorKind.CONSTANT:
        return False
    if other.elements == 1:
        return True
    if main.traits.work_class is not WorkClass.CONTRACTION:
        return False
    rank = len(result.shape)
    axis = rank - 1 if main.family is Family.MATMUL else 1
    along = dict(enumerate(other.shape, start=rank - len(other.shape)))
    return (
        all(length == 1 or i == axis for i, length in along.items()) and other.elements == result.shape[axis]
    )


def stored_inputs(graph: Graph, group: Group, root: Roots) -> list[str]:
    """Return the stored tensors that a group reads, without its own results."""
    members = [graph.operators[name] for name in group.members]
    own = {tensor for op in members for tensor in op.outputs}
    read = (tensor for op in members for tensor in op.inputs if tensor not in own)
    return list(dict.fromkeys(stored for tensor in read for stored in root[tensor]))


def fused_on(soc: Soc, device: str) -> Sequence[str]:
    """Return the operator types that a device applies to a result on its way out."""
    array = soc.array_devices.get(device)
    return array.dpu.fused_ops if array is not None else soc.hosts[device].fused_ops


def row_fusable(graph: Graph, groups: tuple[Group, ...], root: Roots) -> frozenset[str]:
    """Return the tensors that the NPU's operators can pass in blocks of rows."""
    readers: dict[str, list[tuple[Group, str]]] = {}
    run_of: dict[str, int] = {}
    """Number of the uninterrupted run on one device that a group belongs to."""
    run, device = 0, ""
    for group in groups:
        if group.device and group.device != device:
            run, device = run + 1, group.device
        run_of[group.main] = run
        if group.unit is not Unit.VIEW:
            for name in dict.fromkeys(
                t for op in (group.main, *group.fused) for t in graph.operators[op].inputs
            ):
                for stored in root[name]:
                    readers.setdefault(stored, []).append((group, name))
    leaving = {stored for name in (*graph.outputs, *graph.passed_between_parts) for stored in root[name]}
    fusable = set()
    for group in groups:
        op = graph.operators[group.main]
        last = graph.operators[group.fused[-1]] if group.fused else op
        if not group.unit.is_array or len(last.outputs) != 1 or not _makes_rows(op, graph):
            continue
        if op.repeats > 1:  # its result exists as a whole each time
            continue
        name = last.outputs[0]
        if (
            name not in leaving
            and len(readers.get(name, ())) == 1
            and _reads_rows(*readers[name][0], name, graph)
            and run_of[readers[name][0][0].main] == run_of[group.main]
        ):
            fusable.add(name)
    return frozenset(fusable)


def _makes_rows(op: Operator, graph: Graph) -> bool:
    """Return whether an operator can make its result row by row, each from rows of its operands."""
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
    unit = {name: group.unit for group in groups for name in (group.main, *group.fused)}
    device = {name: group.device for group in groups for name in (group.main, *group.fused)}
    for group in reversed(groups):  # readers first
        op = graph.operators[group.main]
        if _joins_on_host(group, graph, soc):
            if _is_made_on(group.device, op, graph, device, unit):
                unit[op.name] = Unit.VIEW
            continue
        if group.unit is not Unit.DMA:
            continue
        schedule = soc.array_devices[group.device].schedule
        writers = [graph.writer(name) for name in op.inputs]
        if (
            listed_as(op) in schedule.in_place_ops
            and all(writer is None or device[writer.name] in ("", group.device) for writer in writers)
            and _fits(op, graph, float(schedule.in_place_alignment))
            and (
                _joins(op, graph, unit, returned) if op.type == "Concat" else returned.isdisjoint(op.outputs)
            )
        ):
            unit[op.name] = Unit.VIEW
    return tuple(
        replace(group, unit=Unit.VIEW, device="") if unit[group.main] is Unit.VIEW else group
        for group in groups
    )


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


def _parts(op: Operator, graph: Graph) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the whole tensor and its parts."""
    inputs, outputs = graph.inputs_of(op), graph.outputs_of(op)
    return (outputs[0], inputs) if op.type == "Concat" else (inputs[0], outputs)


def _fits(op: Operator, graph: Graph, alignment: float) -> bool:
    """Return whether the layout of parts is that of the whole, aligned, and contiguous for a split."""
    axes = op.attrs.get("axes", ())
    whole, parts = _parts(op, graph)
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
    return all(
        math.prod(part.shape[i] for i in inner) * part.dtype.bytes % alignment == 0.0 for part in parts[:-1]
    )


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
        stays on a device while any of its work is ready.
    """
    devices = list(dict.fromkeys(g.device for g in groups if g.unit is not Unit.VIEW))
    if len(devices) < 2:
        return groups
    if len(graph.parts) > 1:  # one part after the other
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
    devices = [group.device for group in groups if group.unit is not Unit.VIEW]
    return sum(1 for _ in groupby(devices))


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
    """Return the order that does all ready work of a device, then enters that of the earliest group."""
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
