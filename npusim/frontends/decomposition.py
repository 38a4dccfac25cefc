"""Composite operators that an import splits as compilers do: attention, einsum, recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from npusim.frontends.einsum import decompose_einsum
from npusim.frontends.recurrence import decompose_recurrence
from npusim.graph import Editor

Decomposition = Callable[[Editor, str, Sequence[str], Mapping[str, Any]], list[str]]
"""(editor, operator's name, operands, attributes) -> names of the results."""


def _attention(editor: Editor, name: str, inputs: Sequence[str], attrs: Mapping[str, Any]) -> list[str]:
    """Softmax(query x key^T x scale + mask) x value; the scale rides along on the product."""
    query, key, value = inputs[:3]
    dtype = editor.tensors[query].dtype
    scale = inputs[4] if len(inputs) > 4 else editor.constant(f"{name}/scale", (), dtype)
    scores = editor.matmul(query, key, f"{name}/product", transpose_b=True)
    scores = editor.eltwise("Multiply", scores, scale, f"{name}/scores")
    shape = editor.tensors[scores].shape
    mask = inputs[3] if len(inputs) > 3 and editor.tensors[inputs[3]].shape else None
    if attrs.get("causal"):
        mask = editor.constant(f"{name}/causal_mask", shape[-2:], dtype, density=0.5)
    if mask is not None:
        scores = editor.eltwise("Add", scores, mask, f"{name}/masked_scores")
    weights = editor.unary("Softmax", scores, f"{name}/weights", axes=(len(shape) - 1,))
    return [editor.matmul(weights, value, name)]


def _recurrence(kind: str) -> Decomposition:
    return lambda editor, name, inputs, attrs: decompose_recurrence(editor, name, kind, inputs, attrs)


DECOMPOSITIONS: Mapping[str, Decomposition] = {
    "ScaledDotProductAttention": _attention,
    "Einsum": decompose_einsum,
    **{kind: _recurrence(kind) for kind in ("LSTMSequence", "GRUSequence", "RNNSequence")},
}
"""By OpenVINO's name of the operation."""
