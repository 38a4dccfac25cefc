"""What the tensors of an imported model mean to it, guessed from names and from who reads them.

A new postman learns by the nameplates, and where there is none by the letters that arrive.
"""

from __future__ import annotations

from collections.abc import Iterable

from npusim.graph import Editor
from npusim.ops import Family, Operator, Role, TensorKind

__all__ = ["assign_roles", "role_of_name"]

_NAMES = {
    "x": Role.FEATURES,
    "features": Role.FEATURES,
    "edge_index": Role.EDGES,
    "neighbours": Role.EDGES,
    "neighbors": Role.EDGES,
    "adj": Role.ADJACENCY,
    "adj_t": Role.ADJACENCY,
    "adjacency": Role.ADJACENCY,
    "norm": Role.NORM,
    "mask": Role.MASK,
    "attention_mask": Role.MASK,
}
STRUCTURAL = frozenset({Role.EDGES, Role.ADJACENCY, Role.NORM, Role.MASK})
"""Roles of inputs that depend on the data graph's edges alone."""


def role_of_name(name: str) -> Role:
    """Return the role that an input's name stands for; `Role.NONE` where it says nothing."""
    role = _NAMES.get(name.lower())
    return role if role is not None else Role.MASK if name.lower().startswith("mask") else Role.NONE


def assign_roles(editor: Editor) -> None:
    """Give constants their role by the operators that read them."""
    readers: dict[str, list[tuple[Operator, int]]] = {}
    for op in editor.operators.values():
        for port, name in enumerate(op.inputs):
            readers.setdefault(name, []).append((op, port))
    for name, tensor in list(editor.tensors.items()):
        if tensor.kind is TensorKind.CONSTANT and tensor.role is Role.NONE:
            role = _role_by_use(tensor.shape, readers.get(name, ()))
            if role is not Role.NONE:
                editor.change_tensor(name, role=role)


def _role_by_use(shape: tuple[int, ...], readers: Iterable[tuple[Operator, int]]) -> Role:
    square = len(shape) == 2 and shape[0] == shape[1] > 1
    for op, port in readers:
        if op.family is Family.MATMUL:
            # A weight stands on the right of a product of GNN layers, an aggregation matrix on the left.
            return Role.NORM if square and port == 0 else Role.WEIGHT
        if op.family in (Family.CONVOLUTION, Family.DEPTHWISE) and port == 1:
            return Role.WEIGHT
        if square and op.family in (Family.ELTWISE, Family.SELECT, Family.COMPARE):
            return Role.MASK
        if op.type == "Add" and max(shape, default=1) == _size(shape) > 1:
            return Role.BIAS
    return Role.NONE


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for dim in shape:
        size *= dim
    return size
