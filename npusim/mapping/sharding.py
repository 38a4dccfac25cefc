"""A network divided over equal devices: the operators of the one that has most to do, and what it exchanges.

Each tensor is whole on every device, or split along an axis. An operator says which layouts of its operands
give which layout of its result: a product by rows of its left operand, by columns of its right one, or by the
depth, which leaves partial sums. Of the layouts that divide it, the one that moves the fewest bytes is taken.
Constants, states and inputs are divided beforehand. Where an operand has another layout than it needs,
devices exchange it over DRAM: each writes its own share and reads the others'. Then another part of the
network is launched. Layouts are those of GSPMD (Xu et al. 2021), partial sums those of Megatron-LM (2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, prod
from typing import Literal, NamedTuple

from npusim.errors import InfeasibleError
from npusim.graph import Editor, Graph
from npusim.ops import Family, Operator, RowUse, Tensor, TensorKind, WorkClass

Way = Literal["rows", "channels"]
"""How products are divided at equal cost: by rows (data parallel) or by channels (tensor parallel)."""
Axis = int | None
"""Axis along which a tensor is split; None: it is whole."""


class Layout(NamedTuple):
    """A way to divide an operator."""

    operands: tuple[Axis, ...]
    result: Axis
    is_partial: bool = False
    """Whether each device has a sum over its share of the depth."""
    halo: int = 0
    """Rows of the neighbour's image that windows reach."""


class Sharding:
    """The network of the busiest device, operator by operator."""

    def __init__(self, graph: Graph, devices: int, way: Way) -> None:
        self.graph, self.devices, self.way = graph, devices, way
        self.editor = Editor(f"{graph.name}", graph.structure, graph.techniques, graph.meta)
        self.exchanged_bytes, self.exchanges = 0.0, 0
        self._axis: dict[str, Axis] = {}
        self._names: dict[tuple[str, Axis], str] = {}
        self._step: dict[str, int] = {}
        """Part of the network in which a tensor of the shard is ready."""
        order = {part: number for number, part in enumerate(graph.parts)}
        first, part = 0, ""
        for op in sorted(graph, key=lambda op: order[op.part]):
            if op.part != part:
                first, part = max(self._step.values(), default=0) + 1, op.part
            self._divide(op, first)
        for name in graph.outputs:
            self.editor.outputs.append(self._names[name, self._axis.get(name)])

    @property
    def is_divided(self) -> bool:
        """Whether any operator is."""
        return any(axis is not None for axis in self._axis.values())

    def _tensors(self, names: Sequence[str]) -> list[Tensor]:
        return [self.graph.tensors[name] for name in names]

    def _divide(self, op: Operator, first: int) -> None:
        layout = min(self._layouts(op), key=lambda layout: self._moved_bytes(op, layout))
        pairs = zip(op.inputs, layout.operands, strict=True)
        inputs = [self._brought(name, axis, layout.halo * (i == 0)) for i, (name, axis) in enumerate(pairs)]
        step = max([first, *(self._step[name] for name in inputs)])
        for result in self._tensors(op.outputs):
            self._axis[result.name] = layout.result
            self._names[result.name, layout.result] = result.name
            self._step[result.name] = step
        results = [self._local(tensor, layout.result) for tensor in self._tensors(op.outputs)]
        self.editor.add_operator(op.with_(inputs=tuple(inputs), part=f"step{step:04}"), results)
        if layout.is_partial:
            self._names[op.outputs[0], None] = self._exchange(results[0], None, self.devices - 1)

    def _local(self, tensor: Tensor, axis: Axis) -> Tensor:
        """Return a tensor's largest share."""
        if axis is None:
            return tensor
        shape = list(tensor.shape)
        shape[axis] = -(-shape[axis] // self.devices)
        return tensor.with_(shape=tuple(shape))

    def _moved_bytes(self, op: Operator, layout: Layout) -> float:
        """Return the bytes that a layout makes devices exchange, a little more for what stays undivided."""
        pairs = [*zip(self._tensors(op.inputs), layout.operands, strict=True)]
        moved = sum(
            tensor.bytes
            for tensor, axis in pairs
            if self._axis.get(tensor.name) is not None and self._axis[tensor.name] != axis
        )
        moved += sum(tensor.bytes * layout.halo / tensor.shape[axis] for tensor, axis in pairs[:1] if axis)
        if layout.is_partial:
            moved += (self.devices - 1) * self.graph.tensors[op.outputs[0]].bytes
        is_whole = layout.result is None and not layout.is_partial
        return inf if is_whole and op.family.work_class is WorkClass.CONTRACTION else moved

    def _brought(self, name: str, axis: Axis, halo: int) -> str:
        """Return the name of a tensor under a layout; what another one needs is exchanged."""
        tensor, have = self.graph.tensors[name], self._axis.get(name)
        if (name, axis) not in self._names:
            if tensor.kind is not TensorKind.ACTIVATION:
                local = self._local(tensor, axis).with_(name=name if axis is None else f"{name}/{axis}")
                self.editor.tensors[local.name] = local
                self._names[name, axis], self._step[local.name] = local.name, 0
            elif have is not None:
                local = self._local(tensor, have)
                whole = self._exchange(local, have, tensor.shape[have] - local.shape[have])
                self._names[name, None] = whole
            if (name, axis) not in self._names:  # a share of what each device has as a whole
                whole, share = self._names[name, None], self._local(tensor, axis).with_(name=f"{name}/{axis}")
                step = self._step[whole]
                op = Operator(share.name, "StridedSlice", (whole,), (share.name,), part=f"step{step:04}")
                self.editor.add_operator(op, [share])
                self._names[name, axis], self._step[share.name] = share.name, step
        local_name = self._names[name, axis]
        if halo and axis is not None and tensor.kind is TensorKind.ACTIVATION:
            return self._exchange(self.editor.tensors[local_name], axis, halo)
        return local_name

    def _exchange(self, local: Tensor, axis: Axis, count: int) -> str:
        """Write a share to DRAM, read others', and join them; without an axis add them up."""
        step = self._step[local.name] + 1
        name = f"{local.name}/exchanged/{axis}/{count}"
        if name not in self.editor.operators:
            others, whole = local, local.with_(name=name)
            if axis is not None:
                sizes = [*local.shape]
                sizes[axis] = count
                others = local.with_(shape=tuple(sizes))
                sizes[axis] += local.shape[axis]
                whole = whole.with_(shape=tuple(sizes))
            copies = 1 if axis is not None else count
            joined = local.name
            for i in range(copies):
                other = others.with_(name=f"{name}/from/{i}", kind=TensorKind.INPUT)
                self.editor.tensors[other.name] = other
                result = whole if i == copies - 1 else whole.with_(name=f"{name}/{i}")
                kind, attrs = ("Add", {}) if axis is None else ("Concat", {"axes": (axis,)})
                inputs = (joined, other.name)
                op = Operator(result.name, kind, inputs, (result.name,), attrs, part=f"step{step:04}")
                self.editor.add_operator(op, [result])
                joined = result.name
                self.exchanged_bytes += other.bytes
            self.editor.outputs.append(local.name)
            self.exchanges, self._step[name] = self.exchanges + 1, step
        return name

    def _layouts(self, op: Operator) -> Iterator[Layout]:
        """Yield the ways to divide an operator, the preferred ones first, and that it stays whole."""
        whole = Layout((None,) * len(op.inputs), None)
        for layout in self._of_family(op):
            axes = zip(
                (*self._tensors(op.inputs), *self._tensors(op.outputs)),
                (*layout.operands, *[layout.result] * len(op.outputs)),
                strict=True,
            )
            if all(axis is None or tensor.shape[axis] >= self.devices for tensor, axis in axes):
                yield layout
        yield whole

    def _of_family(self, op: Operator) -> Sequence[Layout]:
        rank = len(self.graph.tensors[op.outputs[0]].shape)
        work_class, further = op.family.work_class, (None,) * (len(op.inputs) - 2)
        if op.family in (Family.MATMUL, Family.AGGREGATE):
            return self._of_product(op, further)
        if op.family in (Family.CONVOLUTION, Family.DEPTHWISE) and len(op.inputs) > 1:
            return self._of_convolution(op, rank, further)
        if op.family is Family.POOLING:
            return [Layout((1,), 1), Layout((0,), 0)]
        if work_class is WorkClass.POINTWISE or op.traits.rows in (RowUse.SAME, RowUse.ALONG_AXES):
            return self._of_elements(op, rank)
        (source, *more), axis = op.inputs, self._axis.get(op.inputs[0])
        if axis is None:
            return []
        if "order" in op.attrs:
            return [Layout((axis, *(None for _ in more)), op.attrs["order"].index(axis))]
        if op.family is Family.VIEW:
            before, after = self.graph.tensors[source].shape, self.graph.tensors[op.outputs[0]].shape
            outer = [i for i, d in enumerate(after) if prod(after[:i]) == prod(before[:axis]) and d > 1]
            even = [i for i in outer if max(after[i], before[axis]) % min(after[i], before[axis]) == 0]
            return [
                Layout((axis, *(None for _ in more)), i) for i in even[:1] if after[i] % self.devices == 0
            ]
        return []

    def _of_product(self, op: Operator, further: tuple[Axis, ...]) -> list[Layout]:
        left, right, result = (self.graph.tensors[name].shape for name in (*op.inputs[:2], op.outputs[0]))
        if min(len(left), len(right)) < 2:
            return []
        rank, swapped = len(result), (bool(op.attrs.get("transpose_a")), bool(op.attrs.get("transpose_b")))
        rows, depth_a = len(left) - 2 + swapped[0], len(left) - 1 - swapped[0]
        columns, depth_b = len(right) - 1 - swapped[1], len(right) - 2 + swapped[1]
        by_rows, by_columns = (
            Layout((rows, None, *further), rank - 2),
            Layout((None, columns, *further), rank - 1),
        )
        batches = []
        for axis in range(rank - 2):
            sides = [axis - (rank - len(shape)) for shape in (left, right)]
            pairs = zip(sides, (left, right), strict=True)
            split = [i if i >= 0 and shape[i] > 1 else None for i, shape in pairs]
            batches.append(Layout((*split, *further), axis))
        partial = Layout((depth_a, depth_b, *further), None, is_partial=True)
        constant = self.graph.tensors[op.inputs[1]].kind is TensorKind.CONSTANT
        if self.way == "rows":
            return [*batches, by_rows, by_columns]
        return [
            by_columns,
            *batches,
            *([partial] if constant and op.family is Family.MATMUL else []),
            by_rows,
        ]

    def _of_convolution(self, op: Operator, rank: int, further: tuple[Axis, ...]) -> list[Layout]:
        weight = self.graph.tensors[op.inputs[1]].shape
        stride = op.attrs.get("strides", (1,))[0]
        halo = max(0, weight[2 - rank] - stride) if rank > 2 else 0
        by_rows = [Layout((0, None, *further), 0), Layout((2, None, *further), 2, halo=halo)]
        if op.family is Family.DEPTHWISE:
            by_channels = [Layout((1, 0, *further), 1)] if weight[1] == 1 or len(weight) > rank else []
        elif op.type == "Convolution":
            by_channels = [Layout((None, 0, *further), 1), Layout((1, 1, *further), None, is_partial=True)]
        else:
            return by_rows[:1]
        return [*by_rows, *by_channels] if self.way == "rows" else [*by_channels, *by_rows]

    def _of_elements(self, op: Operator, rank: int) -> list[Layout]:
        """Return the layouts of elementwise operators and of independent rows."""
        result, layouts = self.graph.tensors[op.outputs[0]].shape, []
        reduced = () if op.traits.rows is RowUse.SAME else op.attrs.get("axes", (-1,))
        operands = self._tensors(op.inputs)
        for operand in operands:
            axis, size = self._axis.get(operand.name), len(operand.shape)
            if axis is None or size > rank or axis in {at % size for at in reduced}:
                continue
            target = axis + rank - size
            if result[target] == operand.shape[axis]:
                sides = [(t, target - rank + len(t.shape)) for t in operands]
                split = (i if i >= 0 and t.shape[i] == result[target] else None for t, i in sides)
                layouts.append(Layout(tuple(split), target))
        return layouts


def sharded(graph: Graph, devices: int, way: Way) -> tuple[Graph, Sharding]:
    """Return the network of the busiest of some equal devices, and how it was divided.

    Raises
    ------
    InfeasibleError
        Where no operator can be divided.
    """
    sharding = Sharding(graph, devices, way)
    if not sharding.is_divided:
        raise InfeasibleError(f"{graph.name} has no operator that {devices} devices could divide by {way}")
    return sharding.editor.finish(), sharding
