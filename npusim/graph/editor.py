"""Editor: makes a graph, or a new graph out of an old one.

Each method that adds an operator works out the shape of its result by OpenVINO's rules and returns the
result's name, so that calls nest as expressions do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from npusim.errors import GraphError, ShapeError
from npusim.graph.graph import Graph
from npusim.graph.structure import GraphMeta, GraphStructure
from npusim.ops import DType, Family, Operator, Tensor, TensorKind, op_type

__all__ = ["Editor"]


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
        """Region given to the operators added from here on."""

    @classmethod
    def of(cls, graph: Graph) -> Editor:
        """Return an editor that starts from a finished graph."""
        editor = cls(graph.name, graph.structure, graph.techniques, graph.meta)
        editor.tensors.update(graph.tensors)
        editor.operators.update(graph.operators)
        editor.outputs.extend(graph.outputs)
        return editor

    # --- tensors
    # -----------------------------------------------------------------------------------------------------

    def input(self, name: str, shape: Sequence[int], dtype: DType = DType.FP16, **fields: Any) -> str:
        """Add an input and return its name; `fields` are those of `Tensor`."""
        return self._tensor(Tensor(name, tuple(shape), dtype, TensorKind.INPUT, **fields))

    def constant(self, name: str, shape: Sequence[int], dtype: DType = DType.FP16, **fields: Any) -> str:
        """Add a constant and return its name; `fields` are those of `Tensor`."""
        return self._tensor(Tensor(name, tuple(shape), dtype, TensorKind.CONSTANT, **fields))

    def change_tensor(self, name: str, **changes: Any) -> None:
        """Change fields of a tensor (not its name)."""
        self.tensors[name] = self.tensors[name].with_(**changes)

    def _tensor(self, tensor: Tensor) -> str:
        if tensor.name in self.tensors:
            raise GraphError(f"graph {self.name!r}: two tensors are called {tensor.name!r}")
        self.tensors[tensor.name] = tensor
        return tensor.name

    # --- operators
    # ---------------------------------------------------------------------------------------------------

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
        """Add an operator with one result and return the result's name.

        Parameters
        ----------
        type_ : str
            OpenVINO operation name.
        inputs : sequence of str
            Tensors read.
        shape, dtype
            Of the result.
        name : str
            Of the operator; its result has the same name.
        device : str, optional
            Preferred device.
        tensor : dict, optional
            Further fields of the result's `Tensor` (density, role ...).
        **attrs
            The operator's settings.
        """
        if name in self.operators:
            raise GraphError(f"graph {self.name!r}: two operators are called {name!r}")
        result = self._tensor(Tensor(name, tuple(shape), dtype, TensorKind.ACTIVATION, **(tensor or {})))
        self.operators[name] = Operator(name, type_, tuple(inputs), (result,), attrs, self.region, device)
        return result

    def add_operator(self, op: Operator, results: Iterable[Tensor]) -> None:
        """Add a ready-made operator with its results (importers, operators of several results)."""
        if op.name in self.operators:
            raise GraphError(f"graph {self.name!r}: two operators are called {op.name!r}")
        for tensor in results:
            self._tensor(tensor)
        self.operators[op.name] = op

    def eltwise(self, type_: str, a: str, b: str, name: str, dtype: DType | None = None, **more: Any) -> str:
        """Add a binary elementwise operator or comparison with NumPy's broadcasting."""
        shape = _broadcast(name, self.tensors[a].shape, self.tensors[b].shape)
        if dtype is None:
            dtype = DType.BOOL if op_type(type_).family is Family.COMPARE else self.tensors[a].dtype
        return self.op(type_, (a, b), shape, dtype, name, **more)

    def select(self, condition: str, then: str, otherwise: str, name: str, **more: Any) -> str:
        """Add a Select with NumPy's broadcasting."""
        shape = _broadcast(
            name, self.tensors[condition].shape, self.tensors[then].shape, self.tensors[otherwise].shape
        )
        return self.op("Select", (condition, then, otherwise), shape, self.tensors[then].dtype, name, **more)

    def unary(self, type_: str, a: str, name: str, **more: Any) -> str:
        """Add an operator whose result has the shape and dtype of its operand (activations, softmax)."""
        return self.op(type_, (a,), self.tensors[a].shape, self.tensors[a].dtype, name, **more)

    def matmul(
        self, a: str, b: str, name: str, transpose_a: bool = False, transpose_b: bool = False, **more: Any
    ) -> str:
        """Add a matrix product."""
        left, right = self.tensors[a].shape, self.tensors[b].shape
        rows = left[-1] if transpose_a else left[-2]
        columns = right[-2] if transpose_b else right[-1]
        batch = _broadcast(name, left[:-2], right[:-2])
        more |= {"transpose_a": transpose_a, "transpose_b": transpose_b}
        return self.op("MatMul", (a, b), (*batch, rows, columns), self.tensors[a].dtype, name, **more)

    def reduce(
        self, type_: str, a: str, axes: Sequence[int], name: str, keep_dims: bool = False, **more: Any
    ) -> str:
        """Add a reduction over `axes`."""
        source = self.tensors[a]
        axes = tuple(x % len(source.shape) for x in axes)
        kept = [(1 if i in axes else d) for i, d in enumerate(source.shape) if keep_dims or i not in axes]
        return self.op(type_, (a,), kept, source.dtype, name, axes=axes, keep_dims=keep_dims, **more)

    def reshape(self, a: str, shape: Sequence[int], name: str, type_: str = "Reshape", **more: Any) -> str:
        """Add a view of the same elements under another shape."""
        source = self.tensors[a]
        result = self.op(type_, (a,), shape, source.dtype, name, **more)
        if self.tensors[result].elements != source.elements:
            raise ShapeError(f"operator {name!r} ({type_}): {source.shape} cannot become {tuple(shape)}")
        return result

    def gather(self, a: str, indices: str, name: str, axis: int = 0, **more: Any) -> str:
        """Add a Gather along `axis`."""
        source, index = self.tensors[a], self.tensors[indices]
        shape = (*source.shape[:axis], *index.shape, *source.shape[axis + 1 :])
        return self.op("Gather", (a, indices), shape, source.dtype, name, axes=(axis,), **more)

    # --- changes
    # -----------------------------------------------------------------------------------------------------

    def change_operator(self, name: str, **changes: Any) -> None:
        """Change fields of an operator (not its name)."""
        self.operators[name] = self.operators[name].with_(**changes)

    def remove(self, names: Iterable[str]) -> None:
        """Remove operators and the tensors they write; rewire readers before `finish`."""
        for name in names:
            for tensor in self.operators.pop(name).outputs:
                del self.tensors[tensor]

    def rewire(self, old: str, new: str, only: Iterable[str] | None = None) -> None:
        """Let readers of `old` (all, or those in `only`) read `new`; outputs follow when all do."""
        chosen = None if only is None else set(only)
        for name, op in self.operators.items():
            if old in op.inputs and new not in op.outputs and (chosen is None or name in chosen):
                self.operators[name] = op.with_(inputs=tuple(new if t == old else t for t in op.inputs))
        if chosen is None:
            self.outputs = [new if t == old else t for t in self.outputs]

    def _prune(self) -> None:
        """Drop operators that no output needs, then tensors that nobody touches."""
        writer = {t: op for op in self.operators.values() for t in op.outputs}
        needed: set[str] = set()
        stack = list(self.outputs)
        while stack:
            op = writer.get(stack.pop())
            if op is not None and op.name not in needed:
                needed.add(op.name)
                stack.extend(op.inputs)
        self.operators = {name: op for name, op in self.operators.items() if name in needed}
        touched = {t for op in self.operators.values() for t in (*op.inputs, *op.outputs)} | set(self.outputs)
        self.tensors = {name: t for name, t in self.tensors.items() if name in touched}

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
        )


def _broadcast(name: str, *shapes: Sequence[int]) -> tuple[int, ...]:
    rank = max(len(s) for s in shapes)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    result = []
    for dims in zip(*padded, strict=True):
        wide = {d for d in dims if d != 1}
        if len(wide) > 1:
            raise ShapeError(f"operator {name!r}: shapes {', '.join(map(str, shapes))} do not broadcast")
        result.append(wide.pop() if wide else 1)
    return tuple(result)
