"""Which tensors of a graph can be 8-bit integers: the part of QuantGr that is arithmetic about readers and
writers.

Like working out which roads of a town can be closed to lorries: a road may be closed when everybody who uses
it can come by bicycle, and closing one may decide about the next.
"""

from __future__ import annotations

from npusim.graph import Graph
from npusim.ops import Family, Operator, Role, Tensor, TensorKind

__all__ = ["anchors", "int8_tensors"]

_PRODUCTS = frozenset({Family.MATMUL, Family.CONVOLUTION, Family.DEPTHWISE})
_SAME_VALUES = frozenset({Family.VIEW, Family.MOVE})
_MONOTONE = frozenset({"Relu", "MaxPool", "ReduceMax", "ReduceMin", "Maximum", "Minimum"})


def anchors(graph: Graph) -> tuple[Operator, ...]:
    """Products and convolutions on floating-point numbers: what runs twice as fast in 8 bits.

    A product whose setting `keep_float` is true stays as it is: its results are attention scores.
    """
    return tuple(
        op
        for op in graph
        if op.family in _PRODUCTS
        and not op.attrs.get("keep_float")
        and all(t.dtype.is_float for t in graph.inputs_of(op)[:2])
    )


def int8_tensors(graph: Graph) -> frozenset[str]:
    """Return the floating activations and inputs that can be 8-bit integers as they stand.

    A tensor can when each of its readers takes integers and its writer can store them. Products take them;
    views, moves, gathers and monotone operators take them when their own result is one; so do additions of a
    bias and products with a constant, which the MAC grid's output stage does in wider numbers. What the DSPs
    compute (softmax, scatter, ELU) is floating, on both sides.
    """
    products = {op.name for op in anchors(graph)}
    able = {t.name for t in graph.tensors.values() if _may(graph, t, products)}
    while True:
        kept = {name for name in able if _holds(graph, name, able, products)}
        if kept == able:
            return frozenset(kept)
        able = kept


def _may(graph: Graph, tensor: Tensor, products: set[str]) -> bool:
    if not tensor.dtype.is_float or tensor.kind is TensorKind.CONSTANT or tensor.name in graph.outputs:
        return False
    if not graph.readers(tensor.name):
        return False
    writer = graph.writer(tensor.name)
    if writer is None:
        return True
    return tensor.name not in graph.structural and (writer.name in products or _carries(writer))


def _carries(op: Operator) -> bool:
    """Whether an operator can pass integers on."""
    if op.type == "Result":
        return False
    return (
        op.family in _SAME_VALUES
        or op.family in (Family.GATHER, Family.SELECT)
        or op.type in _MONOTONE
        or op.type in ("Add", "Multiply")
    )


def _holds(graph: Graph, name: str, able: set[str], products: set[str]) -> bool:
    if not all(_takes(graph, op, name, able, products) for op in graph.readers(name)):
        return False
    writer = graph.writer(name)
    if writer is None or writer.name in products:
        return True
    if writer.type == "Relu":  # the output stage of the grid clips and rounds in one go
        return True
    return all(_is_source(graph, writer, t, able) for t in writer.inputs)


def _is_source(graph: Graph, op: Operator, name: str, able: set[str]) -> bool:
    tensor = graph.tensors[name]
    if name in able or not tensor.dtype.is_float:
        return True
    return tensor.kind is TensorKind.CONSTANT and not _is_wide(op, tensor)


def _is_wide(op: Operator, tensor: Tensor) -> bool:
    """Whether a constant's range would swamp the other operand: the -1e4 of an attention mask."""
    return op.type == "Add" and tensor.role is Role.MASK


def _takes(graph: Graph, op: Operator, name: str, able: set[str], products: set[str]) -> bool:
    if op.name in products:
        return name in op.inputs[:2]
    if not _carries(op):
        return False
    if op.family is Family.GATHER and op.inputs[0] != name:
        return False
    if op.family is Family.SELECT and op.inputs[0] == name:
        return False
    return set(op.outputs) <= able
