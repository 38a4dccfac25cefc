"""A rewritten graph in the network's own `openvino.Model`: only what techniques changed is written.

OpenVINO's conversion of the network stays. A node is kept where all operators that it became stand in the
rewritten graph as they were; its inputs are connected again where their tensors changed. The other operators
are written by exact writers, and constants have the network's own numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import psutil

from npusim.frontends.openvino_ir import input_name, openvino
from npusim.frontends.openvino_nodes import EXACT, Call, UnwritableError, refusal, write_node
from npusim.frontends.openvino_write import element_type, meant_value, refuse_annotations, run_model
from npusim.frontends.translation import Origin
from npusim.graph import Graph
from npusim.graph.graph import Array
from npusim.ops import DType, Operator, Tensor, TensorKind

_COPIES = 3  # of a prepared constant: where it is computed, in the model, and in the compiled network
_FP32_BYTES = 4
_SHARE_OF_MEMORY = 0.8


def spliced(
    origin: Origin, before: Graph, after: Graph, prepared: Callable[[str], Array], *, whole: bool = True
) -> Any:
    """Return a rewritten graph as an `openvino.Model`.

    Parameters
    ----------
    origin : Origin
        The nodes that `before` was translated from; they do not change.
    prepared : callable
        Returns the value of a constant that a technique prepares, by name.
    whole : bool
        Whether `after` stands for the network; otherwise it is a part, and its outputs are the results.

    Raises
    ------
    UnwritableError
        Where an operator that a technique made cannot be written so that it computes its values, no model
        file can hold the stack, or its constants do not fit into this machine's memory.
    """
    refuse_annotations(after, before)
    _refuse_too_large(after)
    return refused_empty_products(after, _Splice(origin, before, after, prepared).model(whole))


def refused_empty_products(graph: Graph, model: Any) -> Any:
    """Return a graph's model; refuse one with a product of no rows."""
    for node in model.get_ops():
        if node.get_type_name() == "MatMul" and _is_empty(node.output(0)):
            raise UnwritableError(
                f"{graph.name} with {graph.techniques}: {node.get_friendly_name()!r} multiplies no rows for "
                "these edges, and compiling such a product ends the process of OpenVINO's CPU device"
            )
    return model


def with_constants(graph: Graph, model: Any, values: Mapping[str, Array]) -> Any:
    """Return a graph's model with constants for some inputs; sizes that follow from them are fixed."""
    inputs = {input_name(port): port for port in model.inputs}
    for name in values.keys() & inputs.keys():
        node = inputs[name].get_node()
        node.output(0).replace(_held(values[name], node.get_element_type()))
        model.remove_parameter(node)
    constant = set[str]()
    for node in model.get_ordered_ops():
        sources = [port.get_source_output().get_node().get_name() for port in node.inputs()]
        if node.get_type_name() != "Parameter" and constant.issuperset(sources):
            constant.add(node.get_name())
            if node.get_type_name() == "NonZero":
                part = openvino().Model([openvino().opset15.result(node.output(0))], [], "sizes")
                found = _held(run_model(part, {})[0], node.get_output_element_type(0))
                node.output(0).replace(found)
                constant.add(found.get_node().get_name())
    model.validate_nodes_and_infer_types()
    for node in model.get_ordered_ops():
        if node.get_type_name() == "ScatterNDUpdate" and _is_empty(node.input(2)):
            node.output(0).replace(node.input_value(0))  # OpenVINO's CPU device divides by the number of rows
    model.validate_nodes_and_infer_types()
    return refused_empty_products(graph, model)


def _held(value: Array, type_: Any) -> Any:
    return openvino().opset15.constant(value, type_).output(0)


def _is_empty(port: Any) -> bool:
    sizes = port.get_partial_shape()
    return bool(sizes.is_static and 0 in sizes.to_shape())


def _refuse_too_large(graph: Graph) -> None:
    constants = [t for name in graph.prepared if (t := graph.tensors[name]).kind is TensorKind.CONSTANT]
    for largest in sorted(constants, key=lambda t: -t.elements)[:1]:
        what = f"its constants, such as {largest.name!r} of {list(largest.shape)}, to be computed"
        refuse_memory(graph, what, _COPIES * sum(t.elements for t in constants), "sample neighbours")


def refuse_memory(graph: Graph, what: str, numbers: float, instead: str) -> None:
    """Raise an `UnwritableError` where so many numbers in fp32 do not fit into free memory."""
    needed, free = _FP32_BYTES * numbers, _SHARE_OF_MEMORY * psutil.virtual_memory().available
    if needed > free:
        raise UnwritableError(
            f"{graph.name} with {graph.techniques} needs about {needed / 1e9:.3g} GB for {what}, and "
            f"{free / 1e9:.3g} GB are free; {instead}, or export the module on a part of the graph or on a "
            "batch of NeighborLoader: its weights are the same"
        )


def nodes_behind(ends: Sequence[Any]) -> dict[str, Any]:
    """Return nodes and all that they depend on, by their unique names."""
    behind, waiting = dict[str, Any](), list(ends)
    while waiting:
        node = waiting.pop()
        if node.get_name() not in behind:
            behind[node.get_name()] = node
            waiting += [port.get_source_output().get_node() for port in node.inputs()]
    return behind


def _is_broadcast(port: Any, value: Any) -> bool:
    """Whether a Select spreads a smaller operand (GrAx2's scores) over the same result."""
    node, sizes = port.get_node(), value.get_partial_shape()
    if node.get_type_name() != "Select" or not sizes.is_static:
        return False
    others = [each.get_shape() for each in node.inputs() if each.get_index() != port.get_index()]
    return bool(np.broadcast_shapes(sizes.to_shape(), *map(tuple, others)) == tuple(node.get_output_shape(0)))


def _place(output: Any) -> tuple[str, int]:
    return output.get_node().get_name(), output.get_index()


class _Splice:
    """A copy of the original model, and which of its outputs each tensor of the rewritten graph is."""

    def __init__(self, origin: Origin, before: Graph, after: Graph, prepared: Callable[[str], Array]) -> None:
        self.origin, self.before, self.after, self.prepared = origin, before, after, prepared
        self.ov: Any = openvino()
        self.ops: Any = self.ov.opset15
        self.copy = origin.model.clone()
        pairs = list(zip(origin.model.get_ordered_ops(), self.copy.get_ordered_ops(), strict=True))
        nodes = {ours.get_name(): theirs for ours, theirs in pairs}
        self.names = {theirs.get_name(): ours.get_name() for ours, theirs in pairs}
        self.outputs: dict[str, Any] = {}
        """Output of the original that computes each of its tensors."""
        for (node, port), tensor in origin.tensors.items():
            if node in nodes:
                self.outputs.setdefault(tensor, nodes[node].output(port))
        self.kept = {
            name: (nodes[name], renamed)
            for name, operators in origin.operators.items()
            if (renamed := self._renamed(operators)) is not None
        }
        self.node_of = {op: name for name in self.kept for op in origin.operators[name]}
        self.built: dict[str, Any] = {}
        """Output of each tensor of the rewritten graph."""
        for node in nodes.values():
            if node.get_type_name() == "ShapeOf" and node.get_input_partial_shape(0).is_static:
                # Nothing is computed for its size alone.
                sizes = np.asarray(node.input(0).get_shape(), node.get_element_type().to_dtype())
                node.output(0).replace(self.ops.constant(sizes).output(0))

    def _renamed(self, operators: tuple[str, ...]) -> dict[str, str] | None:
        """Return the tensor read in place of each that a node read; None where its operators changed."""
        renamed: dict[str, str] = {}
        names = [name for name in operators if name in self.before.operators]
        inner = {tensor for name in names for tensor in self.before.operators[name].outputs}
        for name in names:
            old, new = self.before.operators[name], self.after.operators.get(name)
            if new is None or self._as_seen(self.before, old) != self._as_seen(self.after, new):
                return None
            for source, other in zip(old.inputs, new.inputs, strict=True):
                if renamed.setdefault(source, other) != other or (source in inner and source != other):
                    return None
        return {source: other for source, other in renamed.items() if source not in inner} if names else None

    @staticmethod
    def _as_seen(graph: Graph, op: Operator) -> tuple[Any, ...]:
        """Return what makes an operator of two graphs the same apart from its operands."""
        results = [(t.name, t.shape, t.dtype) for t in graph.outputs_of(op)]
        return op.type, dict(op.attrs), op.repeats, results, len(op.inputs)

    def model(self, whole: bool) -> Any:
        """Write what changed, connect what stayed, and return the model."""
        last = {self.node_of[op.name]: op.name for op in self.after if op.name in self.node_of}
        for op in self.after:
            if op.name not in self.node_of:
                self._write(op)
                continue
            self.built |= {name: self.outputs[name] for name in op.outputs if name in self.outputs}
            name = self.node_of[op.name]
            if last[name] == op.name:  # all that the node reads is there; sizes may be fixed now
                node, renamed = self.kept[name]
                for port in node.inputs():
                    self._connect(port, renamed)
                node.validate_and_infer_types()
        for node in self.copy.get_ops():
            if node.get_type_name() == "ShapeOf":  # of a size that depends on values
                source = node.input_value(0)
                old = self.origin.tensors.get((self.names[source.get_node().get_name()], source.get_index()))
                if old is not None and old in self.after.tensors:
                    self._connect(node.input(0), {old: old})
        if whole:
            outputs = dict(zip(self.before.outputs, self.after.outputs, strict=True))
            results, sinks = self.copy.get_results(), self.copy.get_sinks()
            for result in results:
                self._connect(result.input(0), outputs)
        else:
            results, sinks = [self.ops.result(self._value(name)) for name in self.after.outputs], []
        model = self.ov.Model(results, sinks, self._parameters([*results, *sinks]), self.after.name)
        model.validate_nodes_and_infer_types()
        return model

    def _parameters(self, ends: list[Any]) -> list[Any]:
        """Return the inputs that results depend on, those of the original first."""
        seen = nodes_behind(ends)
        order = {node.get_name(): i for i, node in enumerate(self.copy.get_parameters())}
        parameters = [node for node in seen.values() if node.get_type_name() == "Parameter"]
        return sorted(parameters, key=lambda node: order.get(node.get_name(), len(order)))

    def _connect(self, port: Any, renamed: dict[str, str]) -> None:
        """Let a port of a kept node read the tensor that the rewritten graph has there."""
        source = port.get_source_output()
        old = self.origin.tensors.get((self.names.get(source.get_node().get_name(), ""), source.get_index()))
        if old is None or old not in renamed or old not in self.outputs:
            return
        new, first = self._value(renamed[old]), self.outputs[old]
        if _place(new) == _place(first):
            return
        transposed, at = False, source
        while _place(at) != _place(first):  # over what the graph passes over
            transposed ^= self.names[at.get_node().get_name()] in self.origin.absorbed
            at = at.get_node().input_value(0)
        if transposed:
            rank = len(new.get_partial_shape())
            order = [*range(rank - 2), rank - 1, rank - 2]
            new = self.ops.transpose(new, self.ops.constant(np.array(order, np.int64))).output(0)
        sizes = new.get_partial_shape(), port.get_partial_shape()
        is_same = new.get_element_type() == port.get_element_type() and (
            sizes[0].compatible(sizes[1]) or _is_broadcast(port, new)
        )
        if not is_same:
            raise UnwritableError(
                f"{self.after.name} with {self.after.techniques}: {port.get_node().get_friendly_name()!r} "
                f"({port.get_node().get_type_name()}) reads {sizes[1]} and would get {sizes[0]}"
            )
        if port.get_node().get_type_name() == "Result":
            names = source.get_names()
            source.get_tensor().set_names(set())
            new.get_tensor().add_names(names)
        port.replace_source_output(new)

    def _value(self, name: str) -> Any:
        """Return the output that computes a tensor, or holds it."""
        if name not in self.built:
            self.built[name] = self._source(self.after.tensors[name])
        return self.built[name]

    def _source(self, tensor: Tensor) -> Any:
        """Return an input or constant: the original's, a prepared one, or a technique's own."""
        name, known = tensor.name, self.before.tensors.get(tensor.name)
        if tensor.kind is TensorKind.CONSTANT and name in self.after.prepared:
            return self._constant(tensor, self.prepared(name))
        is_same = known is not None and (known.kind, known.shape) == (tensor.kind, tensor.shape)
        if is_same and name in self.outputs and name not in self.after.prepared:
            return self.outputs[name]
        if tensor.kind is TensorKind.INPUT:
            node = self.ops.parameter(list(tensor.shape), element_type(self.after, tensor))
            node.set_friendly_name(name)
            node.output(0).get_tensor().set_names({name})
            return node.output(0)
        value = meant_value(self.after, name) if tensor.kind is TensorKind.CONSTANT else None
        if value is None:
            reader = self.after.readers(name)[0]
            raise refusal(
                self.after.name,
                reader,
                f"rewritten: it is part of one that was split for timing, and {name!r} has no value of its "
                "own; write the network with single operators there",
            )
        return self._constant(tensor, value)

    def _constant(self, tensor: Tensor, value: Array) -> Any:
        node = self.ops.constant(value, element_type(self.after, tensor))
        node.set_friendly_name(tensor.name)
        return node.output(0)

    def _write(self, op: Operator) -> None:
        """Write an operator that a technique made or changed."""
        writer = EXACT.get(op.type)
        several = len(op.outputs) != 1 and op.type != "VariadicSplit"
        if writer is None or several or op.repeats > 1:
            raise refusal(
                self.after.name,
                op,
                f"rewritten by {self.after.techniques}: npusim has no writer that reproduces its values; "
                "compute it outside of the network",
            )
        results, sources = self.after.outputs_of(op), self.after.inputs_of(op)
        if any(tensor.dtype is DType.INT8 for tensor in (*results, *sources)):
            raise refusal(self.after.name, op, "rewritten: it has 8-bit numbers; quantise the network last")
        operands = [self._value(name) for name in op.inputs]
        pairs = [(o.get_partial_shape(), s.shape) for o, s in zip(operands, sources, strict=True)]
        bounds = {size for sizes in pairs for d, size in zip(*sizes, strict=True) if d.is_dynamic}
        for operand, source in zip(operands, sources, strict=True):
            if operand.get_partial_shape().is_static and bounds & {*source.shape} - {1}:
                raise refusal(
                    self.after.name,
                    op,
                    f"rewritten by {self.after.techniques}: how much it reads depends on values; give layers "
                    "add_self_loops=False and hand the self-loops in, or keep sizes fixed",
                )
        call = Call(self.ops, op, operands, sources[0], results[0])
        node = write_node(self.after.name, writer, call, results)
        self.built |= {result.name: node.output(port) for port, result in enumerate(results)}
