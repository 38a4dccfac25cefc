"""A network with its numbers: constants, examples of inputs, and what techniques prepare of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.errors import NpusimError, ShapeError, UnknownNameError
from npusim.files import read_arrays
from npusim.frontends.apart import graph_of_file
from npusim.frontends.openvino_ir import graph_of_model, import_model, input_name, openvino
from npusim.frontends.openvino_nodes import UnwritableError
from npusim.frontends.openvino_write import run_model
from npusim.frontends.pyg import (
    MODULE,
    all_results,
    as_arrays,
    convert,
    flattened,
    module_at,
    with_known_values,
)
from npusim.frontends.splicing import spliced, with_constants
from npusim.frontends.translation import Origin
from npusim.graph import Graph
from npusim.ops import Role, Tensor, TensorKind

Array = npt.NDArray[Any]
Inputs = Mapping[str, Array]
_FEWEST = 4
"""Nodes and edges from which on some edges may be odd."""


@dataclass(frozen=True)
class ValuedNetwork:
    """A network without techniques, and its numbers.

    `origin` has the `openvino.Model` that the graph was translated from, and its nodes; `inputs` are example
    values by name; `answers` runs the network as it came, a module in PyTorch, and returns its results.
    """

    graph: Graph
    origin: Origin
    inputs: Inputs
    answers: Callable[[Inputs], list[Array]]
    _prepared_values: dict[int, tuple[Graph, Array]] = field(default_factory=dict, repr=False)
    """Values of what techniques prepare of the example, by the identity of the graph that makes them."""

    def rewritten(self, graph: Graph) -> Any:
        """Return a rewritten graph as an `openvino.Model` with the network's own numbers.

        Inputs that its constants follow from become constants: it holds for their example values alone.

        Raises
        ------
        NpusimError, UnwritableError
            Where an input has no example value, or the model would not compute what the network computes.
        """
        if tuple(graph) == tuple(self.graph):
            return self.origin.model.clone()
        model = spliced(self.origin, self.graph, graph, lambda name: self._value(graph, name, self.inputs))
        fixed = {name: self.inputs[name] for name in self.fixed_inputs(graph)}
        return with_constants(graph, model, fixed) if fixed else model

    def fixed_inputs(self, graph: Graph) -> list[str]:
        """Return the inputs that constants of a rewritten graph follow from.

        A technique computes an array from known values, which may follow from every structural input.
        """
        fixed, structural = set[str](), {t.name for t in self.graph.tensors.values() if t.structural}
        waiting = [
            part for name, part in graph.prepared.items() if graph.tensors[name].kind is TensorKind.CONSTANT
        ]
        while waiting:
            part = waiting.pop()
            if isinstance(part, Graph):
                read = {*part.outputs, *(name for op in part for name in op.inputs)}
                waiting += [part.prepared[name] for name in read & part.prepared.keys()]
                fixed |= read - part.prepared.keys()
            else:
                fixed |= structural
        return [name for name in self.inputs if name in fixed]

    def outputs(self, graph: Graph, model: Any, inputs: Inputs | None = None) -> list[Array]:
        """Run a rewritten graph's model in fp32 on OpenVINO's CPU device; default: on the example inputs."""
        return run_model(model, self.fed(graph, model, inputs))

    def fed(self, graph: Graph, model: Any, inputs: Inputs | None = None) -> dict[str, Array]:
        """Return a value of each input of a rewritten graph's model."""
        values, fed = self.inputs if inputs is None else inputs, {}
        for port in model.inputs:
            name, sizes = input_name(port), port.get_partial_shape()
            fed[name] = self._value(graph, name, values)
            if sizes.is_static and tuple(sizes.to_shape()) != fed[name].shape:
                raise UnwritableError(
                    f"{graph.name} with {graph.techniques}: input {name!r} has the shape {sizes} and is "
                    f"given {list(fed[name].shape)}: its size depends on values"
                )
        return fed

    def other_inputs(self, graph: Graph, count: int, seed: int = 0) -> list[Inputs]:
        """Return other inputs of the same shapes: features of other nodes, edges between other nodes.

        Inputs that the rewritten graph's constants follow from stay. Every second one has edges that leave
        a node out, run twice, and run from a node to itself.
        """
        random, others = np.random.default_rng(seed), list[Inputs]()
        fixed = self.fixed_inputs(graph)
        for i in range(count):
            values = dict(self.inputs)
            for name, value in self.inputs.items():
                tensor = self.graph.tensors.get(name)
                if name not in fixed and value.ndim and tensor is not None:
                    values[name] = _other_values(tensor, value, random, odd=i % 2 == 1)
            others.append(values)
        return others

    def _value(self, graph: Graph, name: str, inputs: Inputs) -> Array:
        """Return the value of an input of a rewritten graph, or of a constant that is prepared."""
        if name in graph.prepared:
            part = graph.prepared[name]
            if not isinstance(part, Graph):
                return part
            if inputs is self.inputs and id(part) in self._prepared_values:
                return self._prepared_values[id(part)][1]
            # Names are looked up in the part: its input may have the same name as its result.
            prepared = partial(self._value, part, inputs=inputs)
            model = spliced(self.origin, self.graph, part, prepared, whole=False)
            value = self.outputs(part, model, inputs)[0]
            if inputs is self.inputs:
                self._prepared_values[id(part)] = part, value
            return value
        if name in inputs:
            return np.asarray(inputs[name])
        raise NpusimError(
            f"{self.graph.name}: no value for its input {name!r}, which the rewritten model is made of; "
            "allowed: an .npz file with an array for it"
        )


def _other_values(tensor: Tensor, value: Array, random: np.random.Generator, *, odd: bool) -> Array:
    """Return other values of an input; whole numbers are of those that the example has in a column."""
    is_whole = value.dtype.kind in "iu"
    if tensor.role is Role.EDGES and is_whole and value.ndim > 1:
        pairs = random.permuted(value, axis=-1)
        return _odd_edges(pairs) if odd else pairs
    if tensor.structural:
        return value
    if value.dtype.kind == "f":
        return random.permutation(value, axis=0)
    if is_whole and value.size:
        columns = value.reshape(len(value), -1).T
        drawn = [random.choice(np.unique(column), len(column)) for column in columns]
        return np.stack(drawn, axis=1).reshape(value.shape).astype(value.dtype)
    return value


def _odd_edges(pairs: Array) -> Array:
    """Return edges [2, E] of which some repeat, some are self-loops, and none meets one of the nodes."""
    odd, common = pairs.copy(), np.intersect1d(pairs[0], pairs[-1])
    if len(common) < _FEWEST or pairs.shape[-1] < _FEWEST:
        return odd
    odd[:, 1] = odd[:, 0]
    odd[:, 2] = common[-1]
    odd[odd == common[0]] = common[1]
    return odd


def load_valued(
    network: str | Path,
    values: str | Path | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    roles: Mapping[str, Role] | None = None,
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
        return valued_module(named.module, named.inputs, named.name, roles)
    graph_of_file(network, shapes, None)  # where the reader dies, it does so there
    origin = Origin()
    graph = import_model(network, shapes, roles, None, origin)
    original = openvino().Core().read_model(str(network))
    if shapes:
        original.reshape({name: list(shape) for name, shape in shapes.items()})
    inputs = {} if values is None else _one_sample(values, read_samples(graph, values))

    def answers(values: Inputs) -> list[Array]:
        missing = [name for port in original.inputs if (name := input_name(port)) not in values]
        if missing:
            raise NpusimError(
                f"{graph.name}: no value for its input {missing[0]!r}; allowed: an .npz file with an array "
                "for it"
            )
        return run_model(original, {input_name(port): values[input_name(port)] for port in original.inputs})

    return ValuedNetwork(with_known_values(graph, origin, inputs), origin, inputs, answers)


def valued_module(
    module: Any, inputs: Any, name: str, roles: Mapping[str, Role] | None = None
) -> ValuedNetwork:
    """Return a `torch.nn.Module` with its numbers and example inputs; see `from_pyg`."""
    module, tensors = flattened(module, inputs)
    origin, examples = Origin(), as_arrays(tensors)
    graph = graph_of_model(convert(module, tensors), name, None, roles, None, origin, examples)
    graph = with_known_values(graph, origin, examples)
    return ValuedNetwork(graph, origin, examples, lambda values: all_results(module, values))


def read_samples(graph: Graph, path: str | Path) -> list[dict[str, Array]]:
    """Read values of a network's inputs: arrays of their shapes, or several along a first axis.

    Raises
    ------
    FileError, UnknownNameError, ShapeError
        Where it is no `.npz` file, or has an array for an unknown input, of another shape, or of another
        number of samples than the others.
    """
    arrays = read_arrays(Path(path).expanduser(), "write it with numpy.savez")
    known = {t.name: t for t in graph.tensors.values() if t.kind is TensorKind.INPUT}
    samples = 1
    for name, array in arrays.items():
        if name not in known:
            raise UnknownNameError("input", name, known)
        shape = known[name].shape
        if array.shape != shape:
            counts = {samples, len(array)} - {1} if array.shape[1:] == shape and len(array) else {0, 1}
            if len(counts) > 1:
                raise ShapeError(
                    f"{path}: {name} has the shape {list(array.shape)}; allowed: {list(shape)}, or as many "
                    "of them along a first axis as the other inputs have"
                )
            samples = max(samples, len(array))
    return [
        {name: a if a.shape == known[name].shape else a[i % len(a)] for name, a in arrays.items()}
        for i in range(samples)
    ]


def _one_sample(path: str | Path, samples: list[dict[str, Array]]) -> dict[str, Array]:
    if len(samples) > 1:
        raise ShapeError(
            f"{path}: has {len(samples)} values of each input; allowed: one (--calibration takes more)"
        )
    return samples[0]
