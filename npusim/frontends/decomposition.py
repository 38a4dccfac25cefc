"""Composite operators that an import splits as compilers do: attention, einsum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from npusim.graph import Editor

__all__ = ["DECOMPOSITIONS", "Decomposition"]

Decomposition = Callable[[Editor, str, Sequence[str], Mapping[str, Any]], str | None]
"""(editor, operator's name, operands, attributes) -> name of the result; None: it stays one operator."""


def _attention(editor: Editor, name: str, inputs: Sequence[str], attrs: Mapping[str, Any]) -> str | None:
    """Softmax(query x scale x key^T + mask) x value, as OpenVINO splits it."""
    query, key, value = inputs[:3]
    dtype = editor.tensors[query].dtype
    scale = inputs[4] if len(inputs) > 4 else editor.constant(f"{name}/scale", (), dtype)
    query = editor.eltwise("Multiply", query, scale, f"{name}/scaled_query")
    scores = editor.matmul(query, key, f"{name}/scores", transpose_b=True)
    shape = editor.tensors[scores].shape
    mask = inputs[3] if len(inputs) > 3 and editor.tensors[inputs[3]].shape else None
    if attrs.get("causal"):
        mask = editor.constant(f"{name}/causal_mask", shape[-2:], dtype, density=0.5)
    if mask is not None:
        scores = editor.eltwise("Add", scores, mask, f"{name}/masked_scores")
    weights = editor.unary("Softmax", scores, f"{name}/weights", axes=(len(shape) - 1,))
    return editor.matmul(weights, value, name)


def _einsum(editor: Editor, name: str, inputs: Sequence[str], attrs: Mapping[str, Any]) -> str | None:
    """A product of two tensors: operands laid out as [batch, rows, depth] x [batch, depth, columns]."""
    terms, _, result = str(attrs["equation"]).replace(" ", "").partition("->")
    labels = terms.split(",")
    plain = all(term.isalpha() and len(set(term)) == len(term) for term in (*labels, result))
    if len(inputs) != 2 or len(labels) != 2 or not plain:
        return None
    left, right = labels
    size = {
        label: length
        for tensor, term in zip(inputs, labels, strict=True)
        for label, length in zip(term, editor.tensors[tensor].shape, strict=True)
    }
    batch = [x for x in left if x in right and x in result]
    depth = [x for x in left if x in right and x not in result]
    rows = [x for x in left if x not in right and x in result]
    columns = [x for x in right if x not in left and x in result]
    if sorted(left + right) != sorted(2 * (batch + depth) + rows + columns):
        return None  # a label that is summed over in one operand alone

    def laid_out(tensor: str, term: str, parts: Sequence[list[str]], suffix: str) -> str:
        order = [term.index(label) for part in parts for label in part]
        if order != sorted(order):
            shape = [editor.tensors[tensor].shape[i] for i in order]
            dtype = editor.tensors[tensor].dtype
            turned = f"{name}/{suffix}_transposed"
            tensor = editor.op("Transpose", (tensor,), shape, dtype, turned, order=tuple(order))
        shape = [math.prod(size[label] for label in part) for part in parts]
        return editor.reshape(tensor, shape, f"{name}/{suffix}")

    a = laid_out(inputs[0], left, (batch, rows, depth), "left")
    b = laid_out(inputs[1], right, (batch, depth, columns), "right")
    product = editor.matmul(a, b, f"{name}/product")
    made = [*batch, *rows, *columns]
    found = editor.reshape(product, [size[label] for label in made], f"{name}/result")
    order = tuple(made.index(label) for label in result)
    if order == tuple(range(len(order))):
        return found
    shape = [size[label] for label in result]
    return editor.op("Transpose", (found,), shape, editor.tensors[found].dtype, name, order=order)


DECOMPOSITIONS: Mapping[str, Decomposition] = {
    "ScaledDotProductAttention": _attention,
    "Einsum": _einsum,
}
"""By OpenVINO's name of the operation."""
