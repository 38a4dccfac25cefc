"""Fields of imported tensors: role by name and reader, density and symmetry by value; regions by name."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.graph import Editor
from npusim.graph.regions import module_path
from npusim.ops import Family, Operator, Role, TensorKind

_COUNTED = 1 << 25
"""Elements that are counted one by one (some 20 ms); of more, evenly spaced ones are counted."""
_SPARSE = 0.25
"""Density below which a matrix's pattern is looked at; a denser one has no empty block worth knowing."""
_GRANULE = 16
"""Edge of the blocks of `Tensor.block_density`."""

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


def assign_regions(editor: Editor) -> None:
    """Give operators their region by their names, which hold the path of the module that they come from."""
    for name, op in list(editor.operators.items()):
        if not op.region:
            editor.change_operator(name, region=module_path(name))


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
        if op.type == "Add" and max(shape, default=1) == math.prod(shape) > 1:
            return Role.BIAS
    return Role.NONE


def value_statistics(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Return the fields of `Tensor` that follow from the values: density, block_density, symmetric.

    Returns
    -------
    dict
        Fields for `Tensor`; block density and symmetry of sparse matrices only.
    """
    if values.size == 0:
        return {}
    flat = values.reshape(-1)
    if flat.size > _COUNTED:
        flat = flat[:: -(-flat.size // _COUNTED)]
        return {"density": float(np.count_nonzero(flat)) / flat.size}
    density = float(np.count_nonzero(flat)) / flat.size
    fields: dict[str, Any] = {"density": density}
    if values.ndim == 2 and 0.0 < density < _SPARSE and min(values.shape) > _GRANULE:
        rows, columns = np.nonzero(values)
        across = -(-values.shape[1] // _GRANULE)
        touched = np.unique(rows // _GRANULE * across + columns // _GRANULE)
        fields["block_density"] = len(touched) / (-(-values.shape[0] // _GRANULE) * across)
        if values.shape[0] == values.shape[1]:
            fields["symmetric"] = bool(np.array_equal(values[rows, columns], values[columns, rows]))
    return fields
