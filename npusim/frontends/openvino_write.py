"""Writing an operator graph as an OpenVINO model, so that a real device runs the very network npusim costs.

The booth for the way back: what `npusim.frontends.openvino_ir` translates from OpenVINO's language, this
says in it. Nobody knows the values of a graph's weights, so they are made up (see
`npusim.frontends.example_values`); how long a network takes hardly depends on them.
"""

from __future__ import annotations

from typing import Any

from npusim.frontends.example_values import example_value
from npusim.frontends.openvino_int8 import rounded, rounds_here, stored, unpacked
from npusim.frontends.openvino_ir import openvino
from npusim.frontends.openvino_nodes import ELEMENT_TYPES, WRITERS, UnwritableError
from npusim.graph import Graph
from npusim.ops import DType, Operator, Storage, Tensor, TensorKind

__all__ = ["UNMEASURABLE", "UnmeasurableError", "UnwritableError", "model_of_graph", "refuse_unmeasurable"]

UNMEASURABLE = ("grasp", "symg", "cacheg")
"""Techniques that stand in no model file: only a compiler can apply them."""


class UnmeasurableError(UnwritableError):
    """A graph with a technique that a model file cannot hold: only a compiler can apply it."""


def refuse_unmeasurable(graph: Graph) -> None:
    """Raise an `UnmeasurableError` where a graph asks for what only a compiler can do.

    GraSp's compressed storage, SymG's triangle and CacheG's wish to keep a tensor in SRAM stand in no model
    file: a device would run the stack without them, and its time would be taken for theirs.
    """
    tensors = graph.tensors.values()
    asked = {
        "grasp": ("compressed storage", any(t.storage is Storage.ZVC for t in tensors)),
        "symg": ("storage as a triangle", any(t.storage is Storage.TRIANGLE for t in tensors)),
        "cacheg": ("a tensor that stays in SRAM", any(t.cached for t in tensors)),
    }
    found = {name: what for name, (what, stands) in asked.items() if stands}
    if found:
        wishes = " or ".join(f"{what} ({name})" for name, what in found.items())
        raise UnmeasurableError(
            f"{graph.name} with {graph.techniques} cannot be run on a real device: no model file can ask for "
            f"{wishes}; measure the stack without {', '.join(found)}"
        )


def model_of_graph(graph: Graph, seed: int = 0) -> Any:
    """Return a graph as an `openvino.Model`.

    Parameters
    ----------
    graph : Graph
        Any graph; inputs become Parameters, constants Constants with made-up values, each in its tensor's
        format.
    seed : int, optional
        Of the values.

    Returns
    -------
    openvino.Model
        One operation an operator, under the operator's name. Tensors of int8 are bytes where the host or the
        file holds them, and FakeQuantize where the network rounds.

    Raises
    ------
    UnmeasurableError
        When a technique of the graph is one that only a compiler can apply.
    UnwritableError
        When an operator or format has no writer; it is named.
    FileError
        When openvino is not installed.
    """
    refuse_unmeasurable(graph)
    return _Writing(graph, seed).model()


class _Writing:
    """The state of one writing: which tensor became which output."""

    def __init__(self, graph: Graph, seed: int) -> None:
        self.graph, self.seed = graph, seed
        self.openvino: Any = openvino()
        self.ops: Any = self.openvino.opset15
        self.outputs: dict[str, Any] = {}
        floats = [t.dtype for t in graph.tensors.values() if t.dtype.is_float]
        self.carrier = ELEMENT_TYPES[floats[0]] if floats else "f32"
        """Format in which 8-bit numbers are written until a device rounds them."""

    def model(self) -> Any:
        """Write everything."""
        parameters = []
        for tensor in self.graph.tensors.values():
            if tensor.kind is TensorKind.INPUT:
                parameters.append(self._parameter(tensor))
            elif tensor.kind is TensorKind.CONSTANT:
                self.outputs[tensor.name] = self._constant(tensor)
        for op in self.graph:
            self._operator(op)
        results = []
        for name in self.graph.outputs:
            result = self.ops.result(self.outputs[name])
            result.set_friendly_name(f"{name}/result")
            results.append(result)
        return self.openvino.Model(results, parameters, self.graph.name)

    def _element(self, tensor: Tensor) -> Any:
        if tensor.dtype not in ELEMENT_TYPES:
            raise UnwritableError(
                f"{self.graph.name}: tensor {tensor.name!r} cannot be written for a real device: it is "
                f"{tensor.dtype.value}; there are {', '.join(ELEMENT_TYPES)}"
            )
        return getattr(self.openvino.Type, ELEMENT_TYPES[tensor.dtype])

    def _parameter(self, tensor: Tensor) -> Any:
        node = self.ops.parameter(list(tensor.shape), self._element(tensor))
        node.set_friendly_name(tensor.name)
        node.output(0).get_tensor().set_names({tensor.name})
        held = node
        if tensor.dtype is DType.INT8:
            # OpenVINO's CPU looks for 8-bit products only in a model with a FakeQuantize; this one changes
            # nothing, and it leaves it out.
            held = rounded(self.ops, unpacked(self.ops, node, self.carrier), self.carrier)
        self.outputs[tensor.name] = held.output(0)
        return node

    def _constant(self, tensor: Tensor) -> Any:
        element = self._element(tensor)
        values = example_value(self.graph, tensor.name, self.seed)
        if tensor.dtype is not DType.INT8:
            node = self.ops.constant(values, element)
            node.set_friendly_name(tensor.name)
            return node.output(0)
        packed = stored(self.graph, tensor, values)
        if packed is not None:
            node = unpacked(self.ops, self.ops.constant(packed), self.carrier)
        else:
            carrier = getattr(self.openvino.Type, self.carrier)
            node = rounded(self.ops, self.ops.constant(values, carrier), self.carrier)
        node.set_friendly_name(tensor.name)
        return node.output(0)

    def _operator(self, op: Operator) -> None:
        inputs = [self.outputs[name] for name in op.inputs]
        tensors = self.graph.inputs_of(op)
        result = self.graph.tensors[op.outputs[0]]
        node = self._node(op, inputs, tensors, result)
        node.set_friendly_name(op.name)
        found = tuple(node.output(0).get_shape())
        if found != result.shape:
            raise UnwritableError(
                f"{self.graph.name}: operator {op.name!r} ({op.type}) cannot be written: OpenVINO makes "
                f"{found} of it, the graph {result.shape}"
            )
        if op.type != "Convert" and rounds_here(self.graph, result):
            node = rounded(self.ops, node, self.carrier)
            node.set_friendly_name(f"{op.name}/rounded")
        self.outputs[result.name] = node.output(0)

    def _node(self, op: Operator, inputs: list[Any], tensors: tuple[Tensor, ...], result: Tensor) -> Any:
        write = WRITERS.get(op.type)
        if write is None or len(op.outputs) != 1:
            several = " with several results" if write is not None else ""
            raise UnwritableError(
                f"{self.graph.name}: operator {op.name!r} cannot be written for a real device: type "
                f"{op.type}{several}; there are {', '.join(sorted(WRITERS))}"
            )
        if op.type == "Convert" and result.dtype is DType.INT8:
            return rounded(self.ops, inputs[0], self.carrier)
        if op.type == "Convert" and tensors[0].dtype is DType.INT8:
            return self.ops.convert(inputs[0], ELEMENT_TYPES[result.dtype])
        return write(self.ops, op, inputs, tensors[0], result)
