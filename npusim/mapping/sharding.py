"""A network divided over equal devices: operators of the busiest one, and what it exchanges.

Each tensor is whole on every device, or split along an axis. An operator says which layouts of its operands
give which layout of its result: a product by rows of its left operand, by columns of its right one, or by the
depth, which leaves partial sums. Of the layouts that divide it, the one that moves the fewest bytes is taken.
Constants, states and inputs are divided beforehand. Where an operand has another layout than it needs,
devices exchange it over DRAM: each writes its own share and reads the others'. Then another part of the
network is launched. Layouts are those of GSPMD (Xu et al. 2021), partial sums those of Megatron-LM (2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any, Literal, NamedTuple

from npusim.errors import InfeasibleError
from npusim.graph import Editor, Graph
from npusim.ops import Family, Operator, RowUse, Tensor, TensorKind, WorkClass

Division = Literal["rows", "channels"]
"""How products are divided at equal cost: by rows (data parallel) or by channels (tensor parallel)."""
Axis = int | None
"""Axis along which a tensor is split; None: it is whole."""


class Layout(NamedTuple):
    """A way to divide an operator."""

    operands: tuple[Axis, ...]
    result: Axis
    """None with a split operand: each device has a partial sum."""
    halo: int = 0
    """Rows of the neighbour's image that windows reach."""


class Sharding:
    """The network of the busiest device, operator by operator."""

    def __init__(self, graph: Graph, devices: int, way: Division) -> None:
        self.graph, self.devices, self.way = graph, devices, way
        self.editor = Editor(graph.name, graph.structure, graph.techniques, graph.meta)
        self.exchanged_bytes, self.exchanges = 0.0, 0
        self._axis: dict[str, Axis] = {}
        self._names: dict[tuple[str, Axis], str] = {}
        self._step: dict[str, int] = {}
        """Part of the network in which a tensor of the shard is ready."""
        order = {part: number for number, part in enumerate(graph.parts)}
        first, part = 0, graph.parts[0]
        for op in sorted(graph, key=lambda op: order[op.part]):
            if op.part != part:
                first, part = max(self._step.values()) + 1, op.part
            self._divide(op, first)
        self.editor.outputs += [self._names[name, self._axis.get(name)] for name in graph.outputs]
        if not any(axis is not None for axis in self._axis.values()):
            raise InfeasibleError(f"{graph.name} has no operator that {devices} devices could divide")

    def _divide(self, op: Operator, first: int) -> None:
        layout = min(self._layouts(op), key=lambda layout: self._moved_bytes(op, layout))
        inputs = [self._brought(name, axis) for name, axis in zip(op.inputs, layout.operands, strict=True)]
        if layout.halo and self._axis.get(op.inputs[0]) is not None:
            inputs[0] = self._exchanged(inputs[0], layout.operands[0], layout.halo)
        step = max([first, *(self._step[name] for name in inputs)])
        for name in op.outputs:
            self._axis[name], self._names[name, layout.result] = layout.result, name
        results = [self._share(self.graph.tensors[name], layout.result, name) for name in op.outputs]
        self._add(op.with_(inputs=tuple(inputs)), results, step)
        if layout.result is None and any(axis is not None for axis in layout.operands):
            self._names[op.outputs[0], None] = self._exchanged(op.outputs[0], None, 0)

    def _add(self, op: Operator, results: Sequence[Tensor], step: int) -> None:
        self.editor.add_operator(op.with_(part=f"step{step:04}"), results)
        self._step |= {tensor.name: step for tensor in results}

    def _share(self, tensor: Tensor, axis: Axis, name: str, length: int | None = None) -> Tensor:
        """Return a tensor's largest share under a name, or a share of some length."""
        shape = list(tensor.shape)
        if axis is not None:
            shape[axis] = -(-shape[axis] // self.devices) if length is None else length
        return tensor.with_(name=name, shape=tuple(shape))

    def _moved_bytes(self, op: Operator, layout: Layout) -> float:
        """Return the bytes that a layout makes devices exchange; infinite where it leaves a product whole."""
        moved, is_split = 0.0, any(axis is not None for axis in layout.operands)
        for name, axis in zip(op.inputs, layout.operands, strict=True):
            if self._axis.get(name, axis) not in (None, axis):
                moved += self.graph.tensors[name].bytes
        if layout.halo and self._axis.get(op.inputs[0]) is not None:
            image = self.graph.tensors[op.inputs[0]]
            moved += image.bytes * layout.halo / image.shape[2]
        if is_split and layout.result is None:
            moved += (self.devices - 1) * self.graph.tensors[op.outputs[0]].bytes
        return moved if is_split or op.family.work_class is not WorkClass.CONTRACTION else inf

    def _brought(self, name: str, axis: Axis) -> str:
        """Return the name of a tensor under a layout; what another one needs is exchanged."""
        tensor, have = self.graph.tensors[name], self._axis.get(name)
        if (name, axis) in self._names:
            return self._names[name, axis]
        share = self._share(tensor, axis, name if axis is None else f"{name}/{axis}")
        if tensor.kind is not TensorKind.ACTIVATION:
            self.editor.tensors[share.name], self._step[share.name] = share, 0
        elif axis is None:
            local = self._names[name, have]
            others = tensor.shape[have or 0] - self.editor.tensors[local].shape[have or 0]
            share = share.with_(name=self._exchanged(local, have, others))
        else:  # a share of what each device has as a whole
            whole = self._brought(name, None)
            self._add(
                Operator(share.name, "StridedSlice", (whole,), (share.name,)), [share], self._step[whole]
            )
        self._names[name, axis] = share.name
        return share.name

    def _exchanged(self, name: str, axis: Axis, length: int) -> str:
        """Write a device's share to DRAM, read the others', and join them; return the name of all.

        Along an axis the others' shares have `length` together, and are read at once. Without an axis, shares
        are partial sums: those of the others are added one by one.
        """
        local, joined = self.editor.tensors[name], f"{name}/exchanged{length or ''}"
        if joined in self.editor.tensors:
            return joined
        kind, attrs, reads, joined_length = "Add", {}, self.devices - 1, length
        if axis is not None:
            kind, attrs, reads, joined_length = "Concat", {"axes": (axis,)}, 1, length + local.shape[axis]
        so_far, step = name, self._step[name] + 1
        for number in range(reads):
            other = self._share(local, axis, f"{joined}/other{number}", length).with_(kind=TensorKind.INPUT)
            self.editor.tensors[other.name] = other
            self.exchanged_bytes += other.bytes
            result = joined if number == reads - 1 else f"{joined}/{number}"
            tensor = self._share(local, axis, result, joined_length)
            self._add(Operator(result, kind, (so_far, other.name), (result,), attrs), [tensor], step)
            so_far = result
        self.editor.outputs.append(name)
        self.exchanges += 1
        return joined

    def _layouts(self, op: Operator) -> list[Layout]:
        """Return the layouts of an operator: that it stays whole, then the preferred ones first."""
        shapes = [self.graph.tensors[name].shape for name in op.inputs]
        result, whole = self.graph.tensors[op.outputs[0]].shape, (None,) * len(op.inputs)
        layouts = _layouts_of(op, shapes, result, self.way)

        def is_possible(layout: Layout) -> bool:
            pairs = zip((*shapes, result), (*layout.operands, layout.result), strict=True)
            return all(axis is None or shape[axis] >= self.devices for shape, axis in pairs)

        padded = (layout._replace(operands=(*layout.operands, *whole)[: len(shapes)]) for layout in layouts)
        return [Layout(whole, None), *filter(is_possible, padded)]


Shape = tuple[int, ...]


def _layouts_of(op: Operator, shapes: Sequence[Shape], result: Shape, way: Division) -> list[Layout]:
    """Return the layouts that divide an operator, the preferred ones first.

    Of layouts that move equally many bytes the first is taken: `way` prefers those that divide rows and
    images, or those that divide channels. Operands that a layout leaves out stay whole.
    """
    if op.family in (Family.MATMUL, Family.AGGREGATE) and min(map(len, shapes[:2])) > 1:
        return _of_product(op.attrs, shapes[:2], len(result), way)
    # Transposed convolutions stay whole: neighbouring inputs add to the same outputs, and the axes of
    # their filters are others.
    if op.family in (Family.CONVOLUTION, Family.DEPTHWISE) and "Backprop" not in op.type:
        return _of_convolution(op, shapes[1], len(result), way)
    if op.family is Family.POOLING:  # by channels, by images of the batch
        return [Layout(operands=(1,), result=1), Layout(operands=(0,), result=0)]
    if "order" in op.attrs:  # a transpose: axis `order[i]` becomes axis i
        return [Layout(operands=(axis,), result=i) for i, axis in enumerate(op.attrs["order"])]
    if op.family is Family.VIEW and shapes:
        return _of_view(shapes[0], result)
    if op.family.work_class is WorkClass.POINTWISE or op.traits.rows in (RowUse.SAME, RowUse.ALONG_AXES):
        return _of_independent_rows(op, shapes, len(result))
    return []


def _of_convolution(op: Operator, kernel: Shape, rank: int, way: Division) -> list[Layout]:
    """Return the layouts of a convolution of images (batch, channels, height, ...), as its result has."""
    if op.family is Family.DEPTHWISE:  # each channel has a filter of its own
        channels = [Layout(operands=(1, 0), result=1)]
    else:  # by output channels; by input channels, which leaves partial sums
        channels = [Layout(operands=(None, 0), result=1), Layout(operands=(1, 1), result=None)]
    halo = max(0, kernel[2 - rank] - op.attrs.get("strides", (1,))[0])  # height of the kernel less its step
    # By images of the batch; by rows of each image, where windows reach into the neighbour's rows.
    images = [Layout(operands=(0,), result=0), Layout(operands=(2,), result=2, halo=halo)]
    return [*images, *channels] if way == "rows" else [*channels, *images]


def _of_view(shape: Shape, result: Shape) -> list[Layout]:
    """Return the layouts of a view: axes of operand and result whose shares are the same bytes.

    The axes before both must have equally many elements, and one length must be a multiple of the other.
    """
    return [
        Layout(operands=(axis,), result=target)
        for axis, size in enumerate(shape)
        for target, length in enumerate(result)
        if prod(shape[:axis]) == prod(result[:target]) and min(size, length) > 1
        if size % length == 0 or length % size == 0
    ]


def _of_independent_rows(op: Operator, shapes: Sequence[Shape], rank: int) -> list[Layout]:
    """Return the layouts of an operator along the axes that it does not reduce; operands are broadcast."""
    if any(len(shape) > rank for shape in shapes):
        return []
    reduced = () if op.traits.rows is RowUse.SAME else op.attrs.get("axes", (-1,))
    kept = [axis for axis in range(rank) if axis not in {at % rank for at in reduced}]
    return [
        Layout(operands=tuple(_aligned(shape, axis - rank) for shape in shapes), result=axis) for axis in kept
    ]


def _aligned(shape: Shape, from_end: int) -> Axis:
    """Return the axis of an operand that is broadcast to an axis of the result, counted from the end."""
    axis = len(shape) + from_end
    return axis if axis >= 0 and shape[axis] > 1 else None


def _of_product(attrs: Any, shapes: Sequence[Shape], rank: int, way: Division) -> list[Layout]:
    """Return the layouts of a product: by batch, rows, columns, or depth, which leaves partial sums."""
    (left, right), a, b = map(len, shapes), attrs.get("transpose_a", 0), attrs.get("transpose_b", 0)
    by_rows, by_columns = Layout((left - 2 + a, None), rank - 2), Layout((None, right - 1 - b), rank - 1)
    batches = [
        Layout((_aligned(shapes[0], axis - rank), _aligned(shapes[1], axis - rank)), axis)
        for axis in range(rank - 2)
    ]
    by_depth = Layout((left - 1 - a, right - 2 + b), None)
    return [*batches, by_rows, by_columns] if way == "rows" else [by_columns, *batches, by_depth, by_rows]
