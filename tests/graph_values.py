"""Running an operator graph with numbers, slowly and plainly: a rewrite must not change the result."""

from collections.abc import Mapping

import numpy as np

from npusim.graph import Graph
from npusim.ops import Family, Operator

Values = Mapping[str, np.ndarray]


def run(graph: Graph, given: Values) -> np.ndarray:
    """Return the first output for values of every input and constant (wrong shapes are errors)."""
    values = {}
    for tensor in graph.tensors.values():
        if graph.writer(tensor.name) is None:
            values[tensor.name] = np.asarray(given[tensor.name])
            assert values[tensor.name].shape == tensor.shape, tensor
    for op in graph:
        (result,) = graph.outputs_of(op)
        made = _compute(op, [values[t] for t in op.inputs], result.shape)
        assert made.shape == result.shape, (op, made.shape, result.shape)
        values[result.name] = made
    return values[graph.outputs[0]]


_BINARY = {
    "Add": np.add,
    "Subtract": np.subtract,
    "Multiply": np.multiply,
    "Divide": np.divide,
    "Power": np.power,
    "Greater": np.greater,
    "Maximum": np.maximum,
}


def _compute(op: Operator, v: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    if op.type in _BINARY:
        with np.errstate(divide="ignore"):  # the degree of an added node is 0, and nobody reads its root
            return _BINARY[op.type](v[0], v[1])
    if op.type == "MatMul":
        a = v[0].swapaxes(-1, -2) if op.attrs.get("transpose_a") else v[0]
        b = v[1].swapaxes(-1, -2) if op.attrs.get("transpose_b") else v[1]
        return a @ b
    if op.family is Family.VIEW:
        return v[0].reshape(shape)
    if op.family in (Family.ACTIVATION, Family.SOFTMAX):
        return _pointwise(op, v)
    if op.family is Family.SCATTER:
        return _scatter(op, v)
    axes = op.attrs.get("axes", (0,))
    if op.type == "Select":
        return np.where(v[0], v[1], v[2])
    if op.type == "Concat":
        return np.concatenate(v, axes[0])
    if op.type == "Transpose":
        return v[0].transpose(op.attrs["order"])
    if op.type == "Broadcast":
        return np.broadcast_to(v[0], shape)
    if op.type == "Convert":
        return v[0]
    if op.type == "Gather":
        return np.take(v[0], v[1], axes[0])
    if op.type in ("ReduceSum", "ReduceMax"):
        reduce = np.sum if op.type == "ReduceSum" else np.max
        return reduce(v[0], axis=axes, keepdims=bool(op.attrs.get("keep_dims")))
    if op.type == "MaxPool":
        assert op.attrs["kernel"] == (v[0].shape[2], 1)
        return v[0].max(axis=2, keepdims=True)
    raise AssertionError(f"no rule for {op.type}")


def _pointwise(op: Operator, v: list[np.ndarray]) -> np.ndarray:
    x = v[0]
    if op.type == "Relu":
        return np.maximum(x, 0)
    if op.type == "PRelu":
        return np.where(x > 0, x, v[1] * x)
    if op.type == "Elu":
        return np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)
    if op.type == "Exp":
        return np.exp(x)
    if op.type == "SoftPlus":
        return np.log1p(np.exp(x))
    if op.type == "Sigmoid":
        return 1 / (1 + np.exp(-x))
    lowered = x - x.max(axis=op.attrs["axes"], keepdims=True)
    total = np.exp(lowered).sum(axis=op.attrs["axes"], keepdims=True)
    return np.exp(lowered) / total if op.type == "Softmax" else lowered - np.log(total)


def _scatter(op: Operator, v: list[np.ndarray]) -> np.ndarray:
    result = v[0].astype(float).copy()
    if op.type == "ScatterNDUpdate":
        where = tuple(v[1][..., i] for i in range(v[1].shape[-1]))
    else:
        axis = op.attrs["axes"][0]
        where = tuple(v[1] if i == axis else grid for i, grid in enumerate(np.indices(v[1].shape)))
    reduction = op.attrs.get("reduction", "none")
    if reduction == "none":
        result[where] = v[2]
    elif reduction == "sum":
        np.add.at(result, where, v[2])
    elif reduction == "max":  # a node without messages keeps the blank's value
        result[where] = -np.inf
        np.maximum.at(result, where, v[2])
    else:
        raise AssertionError(f"no rule for reduction {reduction}")
    return result
