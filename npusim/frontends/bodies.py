"""Branches and loops: the costlier branch of an If; the body of a loop, once with how often it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from npusim.errors import ShapeError, shown
from npusim.frontends.attributes import shape_of
from npusim.frontends.recurrence import repeat
from npusim.graph import Editor
from npusim.ops import DType

_MOST_ITERATIONS = 1 << 31
"""ONNX gives a loop that ends by its condition alone the largest integer as its trip count."""


class Translator(Protocol):
    """What bodies need of the translation that they are part of."""

    editor: Editor
    values: dict[str, list[int]]

    def tensor_at(self, output: Any) -> str:
        """Return the tensor that an output of the model became."""

    def set_result(self, node: Any, port: int, tensor: str) -> None:
        """Say which tensor an output became."""

    def inline(self, body: Any, bound: Mapping[int, str]) -> list[str]:
        """Translate a body whose parameters are given, and return its results."""

    def unused(self, name: str) -> str:
        """Return the name, numbered where it is taken."""


def _add_if(translator: Translator, node: Any) -> None:
    """Add the branch with more multiply-accumulates, of equal ones the one with more elements."""
    editor, best = translator.editor, (-1.0, -1.0, 0)
    for branch in (0, 1):
        before = set(editor.operators)
        _branch(translator, node, branch)
        made = editor.operators.keys() - before
        best = max(best, (*_amount(editor, made), -branch))
        editor.remove(made)
    results = _branch(translator, node, -int(best[2]))
    for description in node.get_output_descriptions(-int(best[2])):
        translator.set_result(node, description.output_index, results[description.body_value_index])


def _branch(translator: Translator, node: Any, branch: int) -> list[str]:
    bound = {
        description.body_parameter_index: translator.tensor_at(
            node.input(description.input_index).get_source_output()
        )
        for description in node.get_input_descriptions(branch)
    }
    return translator.inline(node.get_function(branch), bound)


def _amount(editor: Editor, names: set[str]) -> tuple[float, float]:
    """Return the multiply-accumulates and the elements of operators."""
    macs = elements = 0.0
    for op in map(editor.operators.__getitem__, names):
        tensors = editor.tensors
        work = op.traits.work(op, [tensors[t] for t in op.inputs], [tensors[t] for t in op.outputs])
        macs += op.repeats * work.macs
        elements += op.repeats * work.elements
    return macs, elements


def _add_loop(translator: Translator, node: Any) -> None:
    """Add the first iteration, and the second with how many times it and all others run."""
    times = _iterations(translator, node)
    editor, results = translator.editor, list[list[str]]()
    for count in (1, times - 1):
        if count:
            before = set(editor.operators)
            results.append(
                translator.inline(
                    node.get_function(), _bound(translator, node, results[-1] if results else [])
                )
            )
            repeat(editor, editor.operators.keys() - before, count)
    for description in node.get_output_descriptions():
        made = [each[description.body_value_index] for each in results]
        port = description.output_index
        if type(description).__name__.startswith("Concat"):
            shape = shape_of(node.output(port))
            name = translator.unused(f"{node.get_friendly_name()}/sequence{port}")
            axis = description.axis % len(shape)
            dtype = editor.tensors[made[0]].dtype
            translator.set_result(node, port, editor.op("Concat", made, shape, dtype, name, axes=(axis,)))
        else:
            translator.set_result(node, port, made[0] if description.iteration == 0 else made[-1])


def _iterations(translator: Translator, node: Any) -> int:
    """Return how often a body runs: the trip count, as far as it is a constant."""
    times = int(node.get_num_iterations())
    if times < 0 and node.get_type_name() == "Loop":
        trip_count = translator.values.get(translator.tensor_at(node.input(0).get_source_output()), [-1])
        times = trip_count[0]
    if not 0 < times < _MOST_ITERATIONS:
        raise ShapeError(
            f"operator {shown(node.get_friendly_name())} ({node.get_type_name()}): how often its body runs "
            "depends on values; export the model with a constant number of iterations, at least 1"
        )
    return times


def _bound(translator: Translator, node: Any, before: list[str]) -> dict[int, str]:
    """Return the tensors of a body's parameters, given the results of the iteration before."""
    editor, name = translator.editor, node.get_friendly_name()
    parameters = node.get_function().get_parameters()
    bound: dict[int, str] = {}
    if node.get_type_name() == "Loop":
        iteration = node.get_special_body_ports()[0]
        if iteration >= 0:
            bound[iteration] = editor.constant(translator.unused(f"{name}/iteration"), (), DType.INT64)
    for description in node.get_input_descriptions():
        index = description.body_parameter_index
        tensor = translator.tensor_at(node.input(description.input_index).get_source_output())
        if type(description).__name__.startswith("Merged") and before:
            tensor = before[description.body_value_index]
        elif type(description).__name__.startswith("Slice"):
            shape = shape_of(parameters[index].output(0))
            if math.prod(shape) != editor.tensors[tensor].elements:
                part = translator.unused(f"{name}/part{index}")
                tensor = editor.op("View", (tensor,), shape, editor.tensors[tensor].dtype, part)
        bound[index] = tensor
    return bound


BODIES = {"If": _add_if, "Loop": _add_loop, "TensorIterator": _add_loop}
"""By OpenVINO's name of the operation."""
