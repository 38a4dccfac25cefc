"""States of an `openvino.Model`: what ReadValue and Assign read and write by a variable's name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from npusim.errors import ShapeError, shown
from npusim.frontends.attributes import DTYPES, shape_of
from npusim.graph import Editor
from npusim.ops import DType


class Translator(Protocol):
    """What states need of the translation that they are part of."""

    editor: Editor
    states: dict[str, str]

    def tensor_at(self, output: Any) -> str:
        """Return the tensor that an output of the model became."""

    def set_result(self, node: Any, port: int, tensor: str) -> None:
        """Say which tensor an output became."""

    def dtype(self, output: Any) -> DType:
        """Return the format that an output has at run time."""

    def unused(self, name: str) -> str:
        """Return the name, numbered where it is taken."""


def assigned_last(nodes: Iterable[Any]) -> list[Any]:
    """Return nodes with the writing of states last: a model's order promises nothing about it."""
    return sorted(nodes, key=lambda node: node.get_type_name() == "Assign")


def add_read(translator: Translator, node: Any) -> None:
    """Add a state, in the format of the file, and its reading.

    Raises
    ------
    ShapeError
        Where the state has no initial value. What it is does not matter: it is no part of an inference.
    """
    name, output, variable = str(node.get_friendly_name()), node.output(0), _variable(node)
    editor, states, shape = translator.editor, translator.states, shape_of(output)
    if not node.get_input_size():
        raise ShapeError(
            f"operator {shown(name)} (ReadValue): the state {shown(variable)} has no initial value; allowed: "
            "a constant of its shape as the operand of ReadValue, such as zeros"
        )
    if variable not in states:
        held = DTYPES[output.get_element_type().get_type_name()]
        states[variable] = editor.state(translator.unused(variable), shape, held)
    dtype, name = translator.dtype(output), translator.unused(name)
    translator.set_result(node, 0, editor.op("ReadValue", (states[variable],), shape, dtype, name))


def add_assign(translator: Translator, node: Any) -> None:
    """Add the writing of a state; one that nobody reads is no state."""
    state = translator.states.get(_variable(node))
    if state is not None:
        value = translator.tensor_at(node.input(0).get_source_output())
        translator.editor.assign(state, value, translator.unused(str(node.get_friendly_name())))


STATES = {"Assign": add_assign, "ReadValue": add_read}
"""By OpenVINO's name of the operation."""


def _variable(node: Any) -> str:
    return str(node.get_attributes()["variable_id"])
