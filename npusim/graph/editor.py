"""Editor: builds a graph, or a new graph from an existing one.

Each method that adds an operator computes the shape of its result by OpenVINO's rules and returns the name of
the result, so that calls nest like expressions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Self

from npusim.errors import GraphError, ShapeError
from npusim.graph.graph import Array, Graph, GraphMeta, GraphStructure
from npusim.ops import DType, Family, Operator, Tensor, TensorKind, op_type


class Editor:
    """A graph under construction."""

    def __init__(
        self,
        name: str,
        structure: GraphStructure | None = None,
        techniques: str = "none",
        meta: GraphMeta | None = None,
    ) -> None:
        self.name = name
        self.structure = structure
        self.techniques = techniques
        self.meta = meta if meta is not None else GraphMeta()
        self.tensors: dict[str, Tensor] = {}
        self.operators: dict[str, Operator] = {}
        self.outputs: list[str] = []
        self.region = ""
        """Region of the operators that are added next."""
        self.part_name = ""
        """Part of the operators that are added next."""
        self.prepared: dict[str, Graph | Array] = {}

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """Return an editor that starts from a finished graph."""
        editor = cls(graph.name, graph.structure, graph.techniques, graph.meta)
        editor._copy(graph)
        editor.outputs.extend(graph.outputs)
        return editor

    def _copy(self, source: Graph | Editor) -> None:
        """Take over tensors, operators and prepared graphs."""
        self.tensors.update(source.tensors)
        self.operators.update(source.operators)
        self.prepared.update(source.prepared)

    def unused_name(self, name: str) -> str:
        """Return the name that an added tensor or operator gets; a subclass may change it."""
        return name

    def input(self, name: str, shape: Sequence[int], dtype: DType = DType.FP16, **fields: Any) -> str:
        """Add an input and return its name; `fields` are fields of `Tensor`."""
        return self._source(TensorKind.INPUT, name, shape, dtype, fields)

    def constant(self, name: str, shape: Sequence[int], dtype: DType = DType.FP16, **fields: Any) -> str:
        """Add a constant and return its name; `fields` are fields of `Tensor`."""
        return self._source(TensorKind.CONSTANT, name, shape, dtype, fields)

    def state(self, name: str, shape: Sequence[int], dtype: DType = DType.FP16, **fields: Any) -> str:
        """Add a state, which survives an inference, and return its name; `fields` are fields of `Tensor`."""
        return self._source(TensorKind.STATE, name, shape, dtype, fields)

    def _source(
        self, kind: TensorKind, name: str, shape: Sequence[int], dtype: DType, fields: dict[str, Any]
    ) -> str:
        return self._tensor(Tensor(self.unused_name(name), tuple(shape), dtype, kind, **fields))

    def change_tensor(self, name: str, **changes: Any) -> None:
        """Change fields of a tensor (not its name); a new density makes an old block density unknown."""
        tensor = self.tensors[name]
        if changes.get("density", tensor.density) != tensor.density:
            changes.setdefault("block_density", None)
        self.tensors[name] = tensor.with_(**changes)

    def _tensor(self, tensor: Tensor) -> str:
        if tensor.name in self.tensors:
            raise GraphError(f"graph {self.name!r}: two tensors are called {tensor.name!r}")
        self.tensors[tensor.name] = tensor
        return tensor.name

    def op(
        self,
        type_: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        dtype: DType,
        name: str,
        *,
        device: str | None = None,
        tensor: dict[str, Any] | None = None,
        **attrs: Any,
    ) -> str:
        """Add an operator with one result of the same name and return the name.

        `tensor` holds further fields of the result's `Tensor` (density, role ...), `attrs` the operator's
        settings.
        """
        name = self.unused_name(name)
        if name in self.operators:
            raise GraphError(f"graph {self.name!r}: two operators are called {name!r}")
        result = self._tensor(Tensor(name, tuple(shape), dtype, TensorKind.ACTIVATION, **(tensor or {})))
        self.operators[name] = Operator(
            name, type_, tuple(inputs), (result,), attrs, self.region, device, part=self.part_name
        )
        return result

    def add_operator(self, op: Operator, results: Iterable[Tensor]) -> None:
        """Add an operator with its results; for importers and operators of several results."""
        if op.name in self.operators:
            raise GraphError(f"graph {self.name!r}: two operators are called {op.name!r}")
        for tensor in results:
            self._tensor(tensor)
        self.operators[op.name] = op

    def add(
        self, type_: str, inputs: Sequence[str], name: str, dtype: DType | None = None, **more: Any
    ) -> str:
        """Add an operator whose type declares a shape rule, and return its result's name.

        The result's format is by default that of the first operand; `more` as for `op`.
        """
        rule = op_type(type_).shape
        if rule is None:
            raise GraphError(f"operator {name!r} ({type_}): the type has no shape rule; use Editor.op")
        try:
            shape = rule(more, [self.tensors[t].shape for t in inputs])
        except ShapeError as error:
            raise ShapeError(f"operator {name!r}: {error}") from None
        return self.op(type_, inputs, shape, dtype or self.tensors[inputs[0]].dtype, name, **more)

    def eltwise(self, type_: str, a: str, b: str, name: str, dtype: DType | None = None, **more: Any) -> str:
        """Add a binary elementwise operator or comparison with NumPy's broadcasting."""
        if dtype is None and op_type(type_).family is Family.COMPARE:
            dtype = DType.BOOL
        return self.add(type_, (a, b), name, dtype, **more)

    def select(self, condition: str, then: str, otherwise: str, name: str, **more: Any) -> str:
        """Add a Select with NumPy's broadcasting."""
        return self.add("Select", (condition, then, otherwise), name, self.tensors[then].dtype, **more)

    def unary(self, type_: str, a: str, name: str, **more: Any) -> str:
        """Add an operator whose result has the shape and dtype of its operand (activations, softmax)."""
        return self.op(type_, (a,), self.tensors[a].shape, self.tensors[a].dtype, name, **more)

    def assign(self, state: str, value: str, name: str) -> str:
        """Add an Assign, which writes a value to a state when the inference ends: an output of the graph."""
        held = self.tensors[state]
        result = self.op("Assign", (value,), held.shape, held.dtype, name, variable=state)
        self.outputs.append(result)
        return result

    def matmul(
        self, a: str, b: str, name: str, transpose_a: bool = False, transpose_b: bool = False, **more: Any
    ) -> str:
        """Add a matrix product."""
        return self.add("MatMul", (a, b), name, **more, transpose_a=transpose_a, transpose_b=transpose_b)

    def reduce(
        self, type_: str, a: str, axes: Sequence[int], name: str, keep_dims: bool = False, **more: Any
    ) -> str:
        """Add a reduction over `axes`."""
        axes = tuple(x % len(self.tensors[a].shape) for x in axes)
        return self.add(type_, (a,), name, axes=axes, keep_dims=keep_dims, **more)

    def reshape(self, a: str, shape: Sequence[int], name: str, type_: str = "Reshape", **more: Any) -> str:
        """Add a view of the same elements under another shape."""
        source = self.tensors[a]
        result = self.op(type_, (a,), shape, source.dtype, name, **more)
        if self.tensors[result].elements != source.elements:
            raise ShapeError(f"operator {name!r} ({type_}): {source.shape} cannot become {tuple(shape)}")
        return result

    def transpose(self, a: str, order: Sequence[int], name: str, **more: Any) -> str:
        """Add a permutation of the axes."""
        shape = [self.tensors[a].shape[axis] for axis in order]
        return self.op("Transpose", (a,), shape, self.tensors[a].dtype, name, **more, order=tuple(order))

    def concat(self, inputs: Sequence[str], axis: int, name: str, **more: Any) -> str:
        """Join tensors along an axis."""
        shape = list(self.tensors[inputs[0]].shape)
        shape[axis] = sum(self.tensors[t].shape[axis] for t in inputs)
        return self.op("Concat", inputs, shape, self.tensors[inputs[0]].dtype, name, **more, axes=(axis,))

    def gather(self, a: str, indices: str, name: str, axis: int = 0, **more: Any) -> str:
        """Add a Gather along `axis`."""
        return self.add("Gather", (a, indices), name, axes=(axis,), **more)

    def change_operator(self, name: str, **changes: Any) -> None:
        """Change fields of an operator (not its name)."""
        self.operators[name] = self.operators[name].with_(**changes)

    def remove(self, names: Iterable[str]) -> None:
        """Remove operators and the tensors they write; rewire readers before `finish`."""
        for name in names:
            for tensor in self.operators.pop(name).outputs:
                del self.tensors[tensor]

    def rewire(self, old: str, new: str, only: Iterable[str] | None = None) -> None:
        """Make readers of `old` (all, or the operators in `only`) read `new`; without `only`, outputs too."""
        chosen = None if only is None else set(only)
        for name, op in self.operators.items():
            if old in op.inputs and new not in op.outputs and (chosen is None or name in chosen):
                self.operators[name] = op.with_(inputs=tuple(new if t == old else t for t in op.inputs))
        if chosen is None:
            self.outputs = [new if t == old else t for t in self.outputs]

    def _prune(self) -> None:
        """Drop operators that no output needs, then tensors that no operator reads or writes."""
        writer = {t: op for op in self.operators.values() for t in op.outputs}
        needed: set[str] = set()
        stack = list(self.outputs)
        while stack:
            op = writer.get(stack.pop())
            if op is not None and op.name not in needed:
                needed.add(op.name)
                stack.extend(op.inputs)
        self.operators = {name: op for name, op in self.operators.items() if name in needed}
        kept = self.operators.values()
        touched = {t for op in kept for t in (*op.inputs, *op.outputs)} | set(self.outputs)
        touched |= {op.attrs["variable"] for op in kept if op.type == "Assign"}
        self.tensors = {name: t for name, t in self.tensors.items() if name in touched}

    def part(self, output: str) -> Graph:
        """Return the graph that computes one tensor; the editor does not change."""
        other = Editor(self.name, self.structure, self.techniques, self.meta)
        other._copy(self)
        dtype, shape = self.tensors[output].dtype, self.tensors[output].shape
        if not any(output in op.outputs for op in self.operators.values()):  # an input as it comes
            output = other.op("Convert", (output,), shape, dtype, f"{output}/as_it_is")
        other.outputs.append(output)
        return other.finish()

    def finish(self, techniques: str | None = None) -> Graph:
        """Prune what no output needs, check, and return the finished graph."""
        self._prune()
        return Graph(
            self.name,
            self.tensors.values(),
            self.operators.values(),
            self.outputs,
            structure=self.structure,
            techniques=techniques if techniques is not None else self.techniques,
            meta=self.meta,
            prepared={name: part for name, part in self.prepared.items() if name in self.tensors},
        )


class Rewriter(Editor):
    """An editor that makes names unique: relative to its region, or absolute with a slash in front."""

    def unused_name(self, name: str) -> str:
        """Return the first unused of `name`, `name_1` ... in the region."""
        return unique_name(self, name if name.startswith("/") else f"{self.region}/{name}")


def with_meta(graph: Graph, **changes: Any) -> Graph:
    """Return a graph with other fields of its `GraphMeta`."""
    editor = Editor.of(graph)
    editor.meta = replace(graph.meta, **changes)
    return editor.finish()


def unique_name(editor: Editor, wanted: str) -> str:
    """Return a name, or the first of `name_1`, `name_2` ... that no tensor or operator has."""
    wanted = wanted.lstrip("/")  # an operator without a region
    name, count = wanted, 0
    while name in editor.tensors or name in editor.operators:
        count += 1
        name = f"{wanted}_{count}"
    return name


def in_parts(graph: Graph, count: int) -> Graph:
    """Return a graph in consecutive parts whose operators read and write about as many bytes."""
    if count == 1:
        return graph
    sizes = [sum(graph.tensors[t].stored_bytes for t in (*op.inputs, *op.outputs)) for op in graph]
    ends = accumulate(sizes)
    middles = [end - size / 2.0 for end, size in zip(ends, sizes, strict=True)]
    whole = max(sum(sizes), 1.0)
    numbers = (min(count - 1, int(count * middle / whole)) for middle in middles)
    return _divided(graph, dict(zip(graph.operators, numbers, strict=True)))


def cut_at(graph: Graph, tensors: Collection[str]) -> Graph:
    """Return a graph in which whatever depends on one of the tensors is a later part than what makes it."""
    part_of, number_of = dict[str, int](), dict[str, int]()
    for op in graph:
        number = max((part_of.get(t, 0) + (t in tensors) for t in op.inputs), default=0)
        part_of |= dict.fromkeys(op.outputs, number)
        number_of[op.name] = number
    return _divided(graph, number_of)


def _divided(graph: Graph, number_of: Mapping[str, int]) -> Graph:
    editor = Editor.of(graph)
    for name, number in number_of.items():
        editor.change_operator(name, part=f"part{number}")
    return editor.finish()
