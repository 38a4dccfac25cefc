"""Joins and splits in place: what producers write side by side and readers read as parts, uncopied.

A Concat moves nothing where the MAC grid makes all of its inputs, nobody else reads them, the grid alone
reads what is joined (or the parts lie one behind the other), and each begins at an address that the grid can
write to (`npu.schedule.in_place_alignment`). A Split moves nothing where its parts lie one behind the other:
the grid reads contiguous blocks. Any other is a copy by DMA.

Images are stored with their channels innermost, other tensors in the order of their axes.

A CPU's or GPU's runtime joins in place what it makes itself, where the data sheet says so
(`gpu.in_place_ops`).

Source: the pass CMXConcat of OpenVINO's NPU compiler (getInputPattern, inputConcatOnlyMeetRequirement,
areNCEOutputsAligned, isSplitSupportedOnDPU).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from npusim.arch import Soc
from npusim.cost import Group, Unit, listed_as
from npusim.graph import Graph
from npusim.ops import Family, Operator, Storage, Tensor

_IMAGE = 4
"""Axes of a batch of images: [N, C, H, W]."""


def in_place(graph: Graph, soc: Soc, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Return the groups, those as views that need no copy.

    Parameters
    ----------
    soc : Soc
        For the operators that it does so (`npu.schedule.in_place_ops`).
    groups : tuple of Group
        With a copy by DMA for each join and split.
    """
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
    """Whether a group is nothing but an operator that its host does in place."""
    if not group.unit.is_host or group.fused:
        return False
    return listed_as(graph.operators[group.main]) in soc.hosts[group.device].in_place_ops


def _is_made_on(
    host: str, op: Operator, graph: Graph, device: Mapping[str, str], unit: Mapping[str, Unit]
) -> bool:
    """Whether a host makes every input of an operator itself, as such or under another shape."""
    for name in op.inputs:
        writer = graph.writer(name)
        while writer is not None and unit[writer.name] is Unit.VIEW and writer.inputs:
            writer = graph.writer(writer.inputs[0])
        if writer is None or device[writer.name] != host or writer.repeats > 1:
            return False
    return len(set(op.inputs)) == len(op.inputs)


def _parts(op: Operator, graph: Graph) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the whole and its parts."""
    inputs, outputs = graph.inputs_of(op), graph.outputs_of(op)
    return (outputs[0], inputs) if op.type == "Concat" else (inputs[0], outputs)


def _fits(op: Operator, graph: Graph, alignment: float) -> bool:
    """Whether parts are as the whole is, and begin where they may; of a split, lie one behind the other."""
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
    """Whether the grid writes all inputs of a Concat for nobody else, and readers can do with the result."""
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
    """Yield the units that read a tensor, as such or as a view."""
    for reader in graph.readers(name):
        if unit[reader.name] is Unit.VIEW:
            for output in reader.outputs:
                yield from _reading(output, graph, unit)
        else:
            yield unit[reader.name]


def _is_outermost(whole: Tensor, axis: int) -> bool:
    """Whether parts along an axis lie one behind the other."""
    order = _memory_order(whole)
    return all(whole.shape[i] == 1 for i in order[: order.index(axis)])


def _memory_order(tensor: Tensor) -> tuple[int, ...]:
    """Axes of a tensor, the outermost first."""
    axes = tuple(range(len(tensor.shape)))
    return (axes[0], *axes[2:], axes[1]) if len(axes) == _IMAGE else axes


def _returned(graph: Graph) -> frozenset[str]:
    """Tensors that the network returns, under whatever shape."""
    found = set(graph.outputs)
    for op in reversed(list(graph)):
        if op.family is Family.VIEW and found.intersection(op.outputs):
            found.update(op.inputs[:1])
    return frozenset(found)
