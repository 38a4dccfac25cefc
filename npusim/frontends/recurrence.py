"""Recurrent layers as products on the grid and gates, each step once with how often it runs.

The product with the input is one over all steps. The product with the state waits for the step before; its
weights stay in SRAM where they fit, and else are read again at each step. So the first step, which fetches
them, stands apart from the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npusim.graph import Editor
from npusim.ops import Operator, Tensor, TensorKind

_STATES = {"LSTMSequence": 2, "GRUSequence": 1, "RNNSequence": 1}
"""States that each layer carries from step to step: LSTM has a cell beside the hidden state."""


@dataclass(frozen=True, slots=True)
class _Direction:
    """What one direction of a layer works with; names of tensors."""

    name: str
    recurrent: tuple[str, ...]
    """Weights of the products with the state, one a product."""
    projected: str
    """The product with the input, of all steps, [batch, steps, gates x hidden]."""
    states: tuple[str, ...]


def repeat(editor: Editor, made: set[str], times: int) -> None:
    """Let operators run so many times as often; constants that they read may stay in SRAM meanwhile."""
    for name in made:
        op = editor.operators[name]
        if times > 1:
            editor.change_operator(name, repeats=op.repeats * times)
        for tensor in op.inputs:
            if editor.tensors[tensor].kind is TensorKind.CONSTANT:
                editor.change_tensor(tensor, cached=True)


def decompose_recurrence(
    editor: Editor, name: str, kind: str, inputs: Sequence[str], attrs: Mapping[str, Any]
) -> list[str]:
    """Split an LSTM, GRU or RNN over a sequence into its products and gates.

    Parameters
    ----------
    inputs : sequence of str
        Input [batch, steps, size], states [batch, directions, hidden], lengths, weights of the input
        [directions, gates x hidden, size] and of the state [directions, gates x hidden, hidden], bias.
    attrs : mapping
        OpenVINO's attributes; `linear_before_reset` of a GRU.

    Returns
    -------
    list of str
        All hidden states [batch, directions, steps, hidden], and each state after the last step.
    """
    states = _STATES[kind]
    x, weights, recurrent, bias = inputs[0], *inputs[states + 2 : states + 5]
    batch, steps = editor.tensors[x].shape[:2]
    directions, width, hidden = editor.tensors[recurrent].shape
    ends: list[list[str]] = [[] for _ in range(states)]
    sequences: list[str] = []
    for d in range(directions):
        own = f"{name}/{d}" if directions > 1 else name
        one_by_one = kind == "GRUSequence" and not attrs.get("linear_before_reset")
        parts = (width // 3 * 2, width // 3) if one_by_one else (width,)
        own_weights = _part(editor, weights, f"{own}/weights", editor.tensors[weights].shape[1:])
        own_bias = _part(editor, bias, f"{own}/bias", (width,))
        product = editor.matmul(x, own_weights, f"{own}/input_product", transpose_b=True)
        direction = _Direction(
            own,
            tuple(_part(editor, recurrent, f"{own}/recurrent{i}", (n, hidden)) for i, n in enumerate(parts)),
            editor.eltwise("Add", product, own_bias, f"{own}/input_bias"),
            tuple(
                _part(editor, s, f"{own}/state{i}", (batch, hidden))
                for i, s in enumerate(inputs[1 : states + 1])
            ),
        )
        last, hiddens = direction.states, []
        for label, times in (("first", 1), ("others", steps - 1)):
            if times:
                before = set(editor.operators)
                last = _step(editor, kind, direction, last, label)
                repeat(editor, editor.operators.keys() - before, times)
                hiddens.append(last[0])
        sequences += hiddens
        for end, state in zip(ends, last, strict=True):
            end.append(state)
    dtype = editor.tensors[x].dtype
    shape = (batch, directions, steps, hidden)
    whole = editor.op("Concat", sequences, shape, dtype, f"{name}/sequence", axes=(2,))
    finals = [
        editor.op("Concat", end, (batch, directions, hidden), dtype, f"{name}/end{i}", axes=(1,))
        if directions > 1
        else editor.reshape(end[0], (batch, 1, hidden), f"{name}/end{i}")
        for i, end in enumerate(ends)
    ]
    return [whole, *finals]


def _part(editor: Editor, tensor: str, name: str, shape: Sequence[int]) -> str:
    """Return one direction's part of a tensor: a constant of its own, or a view of what is computed."""
    source = editor.tensors[tensor]
    if source.kind is TensorKind.CONSTANT:
        return editor.constant(name, tuple(shape), source.dtype, density=source.density)
    return editor.op("View", (tensor,), shape, source.dtype, name)


def _step(
    editor: Editor, kind: str, direction: _Direction, states: Sequence[str], label: str
) -> tuple[str, ...]:
    """Add one step and return the states after it."""
    name, hidden = f"{direction.name}/{label}", states[0]
    batch, size = editor.tensors[hidden].shape
    dtype = editor.tensors[hidden].dtype
    width = editor.tensors[direction.projected].shape[-1]
    shown = editor.op("View", (direction.projected,), (batch, width), dtype, f"{name}/input")
    if len(direction.recurrent) > 1:  # a GRU that resets the state before its product
        reset, new = direction.recurrent
        product = editor.matmul(hidden, reset, f"{name}/reset_product", transpose_b=True)
        gated = editor.op("GRUGates", (product, shown, hidden), (batch, size), dtype, f"{name}/reset")
        product = editor.matmul(gated, new, f"{name}/product", transpose_b=True)
        return (editor.op("GRUGates", (product, shown, hidden), (batch, size), dtype, f"{name}/state"),)
    product = editor.matmul(hidden, direction.recurrent[0], f"{name}/product", transpose_b=True)
    if kind == "GRUSequence":
        return (editor.op("GRUGates", (product, shown, hidden), (batch, size), dtype, f"{name}/state"),)
    gates = editor.eltwise("Add", product, shown, f"{name}/gates")
    if kind == "RNNSequence":
        return (editor.unary("Tanh", gates, f"{name}/state"),)
    made = [Tensor(f"{name}/{state}", (batch, size), dtype) for state in ("state", "cell")]
    outputs = tuple(tensor.name for tensor in made)
    editor.add_operator(Operator(f"{name}/state", "LSTMGates", (gates, states[1]), outputs), made)
    return outputs
