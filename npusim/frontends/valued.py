"""A network with its numbers: constants, examples of inputs, and what techniques prepare of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.errors import FileError, NpusimError, ShapeError, UnknownNameError
from npusim.frontends.composites import BODIES
from npusim.frontends.openvino_ir import graph_of_model, import_model, input_name, openvino
from npusim.frontends.openvino_nodes import UnwritableError
from npusim.frontends.openvino_write import Numbers, example_value, model_of_graph, run_model, run_saved
from npusim.frontends.pyg import MODULE, convert, first_result, module_at
from npusim.graph import Graph
from npusim.ops import DType, TensorKind

Array = npt.NDArray[Any]
_INT8 = "/int8"  # ending of a tensor's copy in 8 bits beside one that stays floating


@dataclass(frozen=True)
class ValuedNetwork:
    """A network without techniques, and its numbers.

    `original` is the `openvino.Model` as it came; `constants` maps each constant tensor to its output in a
    model, and whether the tensor is its reciprocal; `inputs` are example values by name.
    """

    graph: Graph
    original: Any
    constants: Mapping[str, Any]
    inputs: Mapping[str, Array]
    expected: Array | None = None
    """First result of the module itself on the example inputs; None where a model file is all there is."""
    _prepared_values: dict[int, tuple[Graph, Array]] = field(default_factory=dict, repr=False)
    """Values of what techniques prepare, by the identity of the graph that makes them."""

    def rewritten(self, graph: Graph, floating: Graph | None = None) -> Any:
        """Return a rewritten graph as an `openvino.Model` with the network's own numbers.

        Parameters
        ----------
        floating : Graph, optional
            The same without 8-bit formats: the ranges of its tensors on the example inputs give the scales.

        Raises
        ------
        NpusimError, UnwritableError
            Where an input has no example value, or the model would not compute what the network computes.
        """
        for node in self.original.get_ops():
            if node.get_type_name() in BODIES:
                raise UnwritableError(
                    f"{graph.name}: operator {node.get_friendly_name()!r} ({node.get_type_name()}) cannot be "
                    "exported: branches and loops are imported for timing only; write the network without, "
                    "or ask for advice without --export"
                )
        ranges = self._ranges(graph, floating) if floating is not None else {}
        return model_of_graph(graph, numbers=Numbers(lambda name: self._value(graph, name), ranges))

    def answers(self) -> Array:
        """Return the first result of the network as it came: a module's own, a file's on OpenVINO's CPU."""
        if self.expected is not None:
            return self.expected
        return run_model(self.original, self._fed(self.graph, self.original))[0]

    def outputs(self, graph: Graph, model: Any) -> list[Array]:
        """Run a rewritten graph, written as a model, on OpenVINO's CPU device with the example inputs."""
        return run_model(model, self._fed(graph, model))

    def outputs_of_file(self, graph: Graph, model: Any) -> list[Array]:
        """Run a rewritten graph as its file, weights in fp16, with OpenVINO's default settings on the CPU."""
        return run_saved(model, self._fed(graph, model), half=True)

    def _fed(self, graph: Graph, model: Any) -> dict[str, Array]:
        return {input_name(port): self._value(graph, input_name(port)) for port in model.inputs}

    def _value(self, graph: Graph, name: str) -> Array:
        """Return the value of an input or constant of a rewritten graph."""
        base = name.removesuffix(_INT8)
        if base in graph.prepared:
            part = graph.prepared[base]
            key = id(part)
            if key not in self._prepared_values:
                # Names are looked up in the part: its input may have the same name as its result.
                model = model_of_graph(part, numbers=Numbers(lambda leaf: self._value(part, leaf)))
                self._prepared_values[key] = part, self.outputs(part, model)[0]
            return self._prepared_values[key][1]
        if base in self.inputs:
            return np.asarray(self.inputs[base])
        output, inverted = self.constants.get(base, (None, False))
        if output is not None:
            return np.reciprocal(_folded(output)) if inverted else _folded(output)
        kind = (graph.tensors[name] if name in graph.tensors else self.graph.tensors[base]).kind
        if kind is TensorKind.INPUT:
            raise NpusimError(
                f"{self.graph.name}: no value for its input {base!r}, which the rewritten model is made of; "
                "allowed: an .npz file with an array for it"
            )
        if base in self.graph.tensors:
            reader = self.graph.readers(base)[0]
            raise UnwritableError(
                f"{self.graph.name}: operator {reader.name!r} ({reader.type}) cannot be exported: it is part "
                f"of one that was split for timing, and its constant {base!r} has no value; compute it "
                "outside of the network, or ask for advice without --export"
            )
        return example_value(graph, name)  # a technique's own constant, known by its role

    def _ranges(self, graph: Graph, floating: Graph) -> dict[str, float]:
        """Return the largest magnitude of each 8-bit tensor on the example inputs."""
        names = [t.name for t in graph.tensors.values() if t.dtype is DType.INT8]
        base = {name: name.removesuffix(_INT8) for name in names}
        computed = sorted({base[name] for name in names if floating.writer(base[name]) is not None})
        outputs = tuple(dict.fromkeys((*floating.outputs, *computed)))
        tensors, operators = floating.tensors.values(), floating.operators.values()
        observed = Graph(floating.name, tensors, operators, outputs, prepared=floating.prepared)
        values = dict(zip(outputs, self.outputs(observed, self.rewritten(observed)), strict=True))
        values |= {source: self._value(floating, source) for source in base.values() if source not in values}
        return {name: float(np.abs(values[base[name]]).max()) or 1.0 for name in names}


def load_valued(
    network: str | Path, values: str | Path | None = None, shapes: Mapping[str, Sequence[int]] | None = None
) -> ValuedNetwork:
    """Load a user's network with its numbers.

    Parameters
    ----------
    network : str or Path
        A model file (.xml, .onnx), or a module as `model.py:net`.
    values : str or Path, optional
        An `.npz` file with values of inputs, by name; a module brings its own.

    Raises
    ------
    FileError, UnknownNameError, ShapeError
        Where `values` is no `.npz` file, or has an array for an unknown input or of another shape.
    """
    if MODULE.fullmatch(str(network)):
        named = module_at(str(network))
        return valued_module(named.module, named.inputs, named.name)
    constants: dict[str, Any] = {}
    graph = import_model(network, shapes, precision=None, constants=constants)
    original = openvino().Core().read_model(str(network))
    if shapes:
        original.reshape({name: list(shape) for name, shape in shapes.items()})
    return ValuedNetwork(graph, original, constants, _read_values(graph, values))


def valued_module(module: Any, inputs: Mapping[str, Any], name: str) -> ValuedNetwork:
    """Return a `torch.nn.Module` with its numbers and example inputs."""
    constants: dict[str, Any] = {}
    model = convert(module, inputs)
    graph = graph_of_model(model, name, precision=None, constants=constants)
    examples = {key: value.detach().numpy() for key, value in inputs.items()}
    return ValuedNetwork(graph, model, constants, examples, first_result(module, inputs))


def _read_values(graph: Graph, path: str | Path | None) -> dict[str, Array]:
    if path is None:
        return {}
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise FileError(str(path), "is no .npz file of arrays", "write it with numpy.savez") from error
    known = {t.name: t for t in graph.tensors.values() if t.kind is TensorKind.INPUT}
    for name, array in arrays.items():
        if name not in known:
            raise UnknownNameError("input", name, known)
        if array.shape != known[name].shape:
            raise ShapeError(
                f"{path}: {name} has the shape {list(array.shape)}; allowed: {list(known[name].shape)}"
            )
    return arrays


def _folded(output: Any) -> Array:
    """Return the value of a constant of a model, or of an output that follows from constants."""
    node = output.get_node()
    if node.get_type_name() == "Constant":
        return np.asarray(node.get_data())
    unvisited, parameters = [node], {}
    while unvisited:  # the shape of an input is a constant, too: inputs are fed with zeros
        node = unvisited.pop()
        if node.get_type_name() == "Parameter":
            parameters[node.get_name()] = node
        unvisited += [port.get_source_output().get_node() for port in node.inputs()]
    ov = openvino()
    model = ov.Model([ov.opset15.result(output)], list(parameters.values()), "constant")
    return run_model(model, {input_name(port): np.zeros(tuple(port.get_shape())) for port in model.inputs})[0]
