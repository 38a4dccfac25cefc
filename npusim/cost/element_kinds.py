"""What a processor does with each element of a tensor, as far as that tells in its time."""

from __future__ import annotations

from npusim.arch.device import ElementKind, RowKind
from npusim.ops import Family, Operator, Tensor

__all__ = ["element_kind", "row_kind"]

_BY_TYPE: dict[str, ElementKind] = {
    **dict.fromkeys(("Divide", "Sqrt", "Mod", "FloorMod"), "division"),
    "Exp": "exponential",
    **dict.fromkeys(
        ("Elu", "Selu", "Sigmoid", "Tanh", "Gelu", "Erf", "Swish", "Mish", "SoftPlus"), "sigmoid"
    ),
    "Log": "logarithm",
    **dict.fromkeys(("Power", "Sin", "Cos"), "power"),
    "Transpose": "relayout",
}
_BY_FAMILY: dict[Family, ElementKind] = {
    Family.SOFTMAX: "softmax",
    Family.POOLING: "pooling",
    Family.GATHER: "gather",
    Family.SCATTER: "scatter",
}


def element_kind(op: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> ElementKind:
    """Return what an operator does with each of its elements (`Work.elements`).

    Parameters
    ----------
    op : Operator
    inputs, outputs : tuple of Tensor
        Its tensors, in the order of its ports.
    """
    if op.family in _BY_FAMILY:
        return _BY_FAMILY[op.family]
    if op.family is Family.REDUCE:
        return "arithmetic" if _along_rows(op, inputs) else "reduction"
    if op.type == "Transpose":
        return "arithmetic" if _keeps_order(op, inputs) else "relayout"
    if op.type in ("Broadcast", "Tile"):
        return "relayout" if _spreads_within_rows(inputs, outputs) else "arithmetic"
    return _BY_TYPE.get(op.type, "arithmetic")


def row_kind(op: Operator, row_length: float) -> RowKind | None:
    """Return which rows an operator has to take up one by one; None where rows do not matter."""
    if op.family is Family.SOFTMAX:
        return "softmax"
    if op.family is Family.REDUCE:
        return "reduction"
    return "gather" if op.family is Family.GATHER and row_length > 1 else None


def _along_rows(op: Operator, inputs: tuple[Tensor, ...]) -> bool:
    rank = len(inputs[0].shape)
    return rank - 1 in op.attrs.get("axes", (rank - 1,))


def _keeps_order(op: Operator, inputs: tuple[Tensor, ...]) -> bool:
    """Whether a transposition only moves axes of length one."""
    shape = inputs[0].shape
    order = op.attrs.get("order") or tuple(reversed(range(len(shape))))
    long = [axis for axis in order if shape[axis] > 1]
    return long == sorted(long)


def _spreads_within_rows(inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> bool:
    shape, wider = inputs[0].shape, outputs[0].shape
    return bool(shape) and bool(wider) and shape[-1] == 1 and wider[-1] > 1 and inputs[0].elements > 1
