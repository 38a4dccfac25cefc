"""Input values of a network: random numbers, and indices within range."""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.frontends.example_values import example_value
from npusim.graph import Graph
from npusim.measure.devices import load_openvino

__all__ = ["graph_tensors", "input_tensors"]

_POINTS = {"Gather": 2, "GatherElements": None, "ScatterElementsUpdate": 3, "ScatterUpdate": 3}
"""Operations whose input 1 points into input 0, and which of their inputs says along which axis (None: an
attribute says it)."""

_LARGEST_INT8 = 127
"""What 1 is stored as in 8 bits."""
_PASSES = frozenset(
    {"Broadcast", "Concat", "Convert", "Gather", "Reshape", "Slice", "Split", "Squeeze", "StridedSlice",
     "Tile", "Transpose", "Unsqueeze", "VariadicSplit"}
)  # fmt: skip
"""Operations after which integers are still the same integers."""


def graph_tensors(graph: Graph, model: Any, seed: int = 0) -> list[Any]:
    """Return a value for each input of a model that was written from a graph.

    Parameters
    ----------
    graph : Graph
        Whose meaning of each tensor decides its values (`npusim.frontends.example_values`).
    model : openvino.Model
        Its inputs are called like the graph's tensors.
    seed : int, optional
        The same seed gives the same values.

    Returns
    -------
    list of openvino.Tensor
    """
    return [
        _converted(example_value(graph, port.get_any_name(), seed), port.get_element_type())
        for port in model.inputs
    ]


def input_tensors(model: Any, seed: int = 0) -> list[Any]:
    """Return a value for each input of a model.

    Parameters
    ----------
    model : openvino.Model
        With fixed shapes.
    seed : int, optional
        The same seed gives the same values.

    Returns
    -------
    list of openvino.Tensor
        Floats uniform between 0 and 1 (no denormals, which a CPU computes slowly); integers below the
        shortest axis that they point into, 0 where none is known.
    """
    random = np.random.default_rng(seed)
    return [_tensor(port, random) for port in model.inputs]


def _tensor(port: Any, random: np.random.Generator) -> Any:
    openvino = load_openvino()
    element, shape = port.get_element_type(), list(port.get_shape())
    if element.is_real():
        return _converted(random.random(shape, dtype=np.float32), element)
    if element == openvino.Type.boolean:
        return openvino.Tensor(random.random(shape) < 0.5)
    tensor = openvino.Tensor(element, shape)
    if element.bitwidth < 8:  # packed: bytes, whatever they mean
        tensor.data[...] = 0
        return tensor
    tensor.data[...] = random.integers(0, _extent(port), shape)
    return tensor


def _converted(values: Any, element: Any) -> Any:
    """Return numbers in a format of OpenVINO that numpy may not know."""
    openvino = load_openvino()
    values = np.ascontiguousarray(values)
    if element == openvino.Type.bf16:
        upper = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        tensor = openvino.Tensor(element, list(values.shape))
        tensor.data.view(np.uint16)[...] = upper
        return tensor
    if element.is_integral_number() and values.dtype.kind == "f":
        values = np.rint(values * _LARGEST_INT8)
    return openvino.Tensor(np.ascontiguousarray(values, dtype=element.to_dtype()))


def _extent(port: Any) -> int:
    """Return the length of the shortest axis into which integers of a port point; 1 where none is known."""
    lengths, ahead, seen = [], [port], set()
    while ahead:
        for target in ahead.pop().get_target_inputs():
            node, at = target.get_node(), target.get_index()
            kind = node.get_type_name()
            if kind in _POINTS and at == 1:
                lengths.append(_indexed_length(node, _POINTS[kind]))
            elif kind in _PASSES and at == 0 and node.get_friendly_name() not in seen:
                seen.add(node.get_friendly_name())
                ahead += node.outputs()
    return max(1, min(lengths, default=1))


def _indexed_length(node: Any, axis_input: int | None) -> int:
    """Return the length of the axis that a node indexes; of its shortest one where that is computed."""
    shape = list(node.input(0).get_shape())
    if axis_input is None:
        return int(shape[int(node.get_attributes()["axis"])])
    axis = node.input(axis_input).get_source_output().get_node()
    if axis.get_type_name() != "Constant":
        return int(min(shape, default=1))
    return int(shape[int(np.asarray(axis.data).ravel()[0])])
