"""Example values of inputs and constants that are known by description only.

Floating-point values are neither tiny (a CPU computes denormal numbers slowly) nor large. The share of zeros
follows from the tensor's density. Indices are in range and spread evenly.
"""

from __future__ import annotations

import math
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from npusim.graph import Graph
from npusim.ops import DType, Family, Operator, Role, Tensor

_MASKED_OUT = -1e4  # minus infinity of an additive mask: 0 x inf would be NaN, fp16 ends at 65504
_SLOPE = 0.2  # of GAT's leaky ReLU (Velickovic et al. 2018, section 2.1)
_EXPONENT = -0.5  # power that makes a norm of degrees (Kipf and Welling 2017, equation 2)
_NEIGHBOURS = (Role.NORM, Role.MASK, Role.ADJACENCY)
_INTEGERS = {DType.INT64: np.int64, DType.INT32: np.int32, DType.INT16: np.int16, DType.UINT8: np.uint8}


def example_value(graph: Graph, name: str, seed: int = 0) -> npt.NDArray[Any]:
    """Return values for an input or constant of a graph, such as its readers allow.

    They are of the tensor's shape: float32 for floating-point formats and int8 (between -1 and 1, to be
    rounded to 8 bits), integers of the tensor's width, or booleans. Each tensor has a random stream of its
    own.

    Examples
    --------
    >>> from npusim.workloads import load_workload
    >>> graph = load_workload("gcn-cora")
    >>> int(example_value(graph, "edge_index").max())
    2707
    """
    tensor = graph.tensors[name]
    random = np.random.default_rng([seed, crc32(name.encode())])
    if tensor.fill is not None:
        return np.full(tensor.shape, tensor.fill, dtype=np.float32)
    if tensor.dtype is DType.BOOL:
        return _filled(tensor, random, np.ones(_nonzeros(tensor), dtype=bool))
    if tensor.dtype in _INTEGERS:
        return _indices(graph, tensor, random).astype(_INTEGERS[tensor.dtype])
    level = None if tensor.dtype is DType.INT8 else _level(graph, name)
    count = _nonzeros(tensor)
    if level is not None:
        return _filled(tensor, random, np.full(count, level, dtype=np.float32))
    numbers = (random.random(count, dtype=np.float32) * 0.5 + 0.5) * np.float32(_scale(tensor))
    if tensor.role in (Role.WEIGHT, Role.BIAS):
        numbers[random.random(count, dtype=np.float32) < 0.5] *= -1
    return _filled(tensor, random, numbers)


def _nonzeros(tensor: Tensor) -> int:
    return round(tensor.density * tensor.elements)


def _filled(tensor: Tensor, random: np.random.Generator, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Spread non-zeros over the tensor; in a symmetric matrix in pairs, the diagonal first."""
    size, count = tensor.elements, len(numbers)
    if count == size:
        return numbers.reshape(tensor.shape)
    values = np.zeros(size, dtype=numbers.dtype)
    if tensor.symmetric and len(tensor.shape) == 2 and count < size / 2:
        rows = tensor.shape[0]
        loops = min(rows, count)
        values[np.arange(loops) * (rows + 1)] = numbers[:loops]
        pairs = (count - loops) // 2
        row, column = _below_the_diagonal(random, rows, pairs)
        values[row * rows + column] = values[column * rows + row] = numbers[loops : loops + pairs]
    elif tensor.role in _NEIGHBOURS and len(tensor.shape) == 2 and count >= tensor.shape[0]:
        values[_each_row_once(random, tensor.shape, count)] = numbers
    elif count:
        values[random.choice(size, count, replace=False, shuffle=False)] = numbers
    return values.reshape(tensor.shape)


def _each_row_once(random: np.random.Generator, shape: tuple[int, ...], count: int) -> Any:
    """Return positions of non-zeros, at least one in each row: a mean over no neighbour would be 0 / 0."""
    rows, columns = shape
    first = random.integers(0, columns, rows)
    more = random.choice(rows * (columns - 1), count - rows, replace=False, shuffle=False)
    row, column = np.divmod(more, max(1, columns - 1))
    column = column + (column >= first[row])
    return np.concatenate([np.arange(rows) * columns + first, row * columns + column])


def _below_the_diagonal(random: np.random.Generator, rows: int, pairs: int) -> tuple[Any, Any]:
    """Return rows and columns of distinct positions below the diagonal."""
    place = random.choice(rows * (rows - 1) // 2, pairs, replace=False, shuffle=False)
    row = ((1 + np.sqrt(8.0 * place + 1)) / 2).astype(np.int64)  # place = row (row - 1) / 2 + column
    return row, place - row * (row - 1) // 2


def _scale(tensor: Tensor) -> float:
    """Return a scale of the values that keeps results near 1 for sums of any length."""
    if tensor.dtype is DType.INT8 or not tensor.shape:
        return 1.0
    if tensor.role is Role.WEIGHT:
        return 1.0 / math.sqrt(max(tensor.shape))
    if tensor.role is Role.NORM:
        return 1.0 / max(1.0, tensor.density * tensor.shape[-1])
    return 1.0


def _level(graph: Graph, name: str) -> float | None:
    """Return the value that all non-zeros of a tensor have by its role; None if they differ."""
    tensor = graph.tensors[name]
    for op in graph.readers(name):
        port = op.inputs.index(name)
        if op.type == "Broadcast":
            return _level(graph, op.outputs[0])
        if op.family is Family.SELECT and port > 0:
            return _MASKED_OUT
        if op.family is Family.SCATTER and port == 2:
            return 1.0
        if port == 1 and op.type in ("Power", "PRelu"):
            return _EXPONENT if op.type == "Power" else _SLOPE
        makes_mask = graph.tensors[op.outputs[0]].role is Role.MASK and tensor.elements == 1
        if op.type == "Add" and (tensor.role is Role.MASK or makes_mask):
            return _MASKED_OUT
        if op.type == "Multiply" and makes_mask:
            return -_MASKED_OUT
    return 1.0 if tensor.role in (Role.MASK, Role.ADJACENCY) else None


def _indices(graph: Graph, tensor: Tensor, random: np.random.Generator) -> npt.NDArray[Any]:
    limit = max(1, _limit(graph, tensor.name))
    shape = tensor.shape
    if tensor.elements == 1:
        return np.full(shape, _single(graph, tensor, limit))
    if any(op.type == "Concat" for op in graph.readers(tensor.name)) and tensor.role is not Role.EDGES:
        return np.broadcast_to(np.arange(shape[-1]) % limit, shape)  # self-loops: each node once
    for op in graph.readers(tensor.name):
        if op.type == "ScatterElementsUpdate" and op.inputs[1] == tensor.name:  # whole rows, as messages do
            axis = op.attrs["axes"][0]
            alone = tuple(d if i == axis else 1 for i, d in enumerate(shape))
            return np.broadcast_to(random.integers(0, limit, alone), shape)
    if shape[-1] >= limit:  # each index appears equally often, so that each node has an edge
        return random.permuted(np.broadcast_to(np.arange(shape[-1]) % limit, shape), axis=-1)
    return random.integers(0, limit, shape)


def _single(graph: Graph, tensor: Tensor, limit: int) -> int:
    """Return the value of a single index: a row that is picked, or the length of a row of cells."""
    if any(op.type == "Multiply" for op in graph.readers(tensor.name)):
        return limit
    return limit - 1 if tensor.density > 0 else 0


def _limit(graph: Graph, name: str) -> int:
    """Return the exclusive upper bound of a tensor's integers; 1 if no reader sets one."""
    limits = [limit for op in graph.readers(name) if (limit := _limit_by(graph, op, name)) is not None]
    tensor = graph.tensors[name]
    if tensor.role is Role.EDGES and graph.structure is not None and graph.structure.nodes:
        limits.append(graph.structure.nodes)
    return min(limits, default=1)


def _limit_by(graph: Graph, op: Operator, name: str) -> int | None:
    port, axis = op.inputs.index(name), int((*op.attrs.get("axes", ()), 0)[0])
    if port == 1 and (op.family is Family.GATHER or op.type == "ScatterElementsUpdate"):
        return graph.tensors[op.inputs[0]].shape[axis]
    if port == 1 and op.type == "ScatterNDUpdate":
        depth = graph.tensors[name].shape[-1]
        return min(graph.tensors[op.inputs[0]].shape[:depth])
    if op.family in (Family.GATHER, Family.VIEW, Family.MOVE, Family.CONVERT):
        return _limit(graph, op.outputs[0])
    if op.type in ("Multiply", "Add") and not graph.tensors[name].dtype.is_float:
        # Cells of a square matrix, numbered row by row: row x width + column.
        cells = _limit(graph, op.outputs[0])
        writer = graph.writer(name)
        return cells if writer is not None and writer.type == "Multiply" else math.isqrt(cells)
    return None
