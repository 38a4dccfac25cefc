"""Amount of work of an operator: MACs, elements, rows, window sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from npusim.errors import ShapeError
from npusim.ops.catalogue import Family
from npusim.ops.operator import Operator
from npusim.ops.tensor import Tensor

__all__ = ["Work", "work_of"]


@dataclass(frozen=True, slots=True)
class Work:
    """The quantities of one operator."""

    macs: float = 0.0
    """Multiply-accumulates, zeros counted as work."""
    elements: float = 0.0
    """Elements that an elementwise, moving or reducing kernel has to visit."""
    rows: float = 0.0
    """Independent rows of a softmax, reduction, gather or scatter."""
    row_length: float = 0.0
    """Elements of one such row."""
    batch: int = 1
    """Independent products or images."""
    out_w: int = 1
    out_h: int = 1
    """Output pixels a channel; a product has its M rows in `out_w`."""
    in_c: int = 1
    """Input channels; a product's K."""
    out_c: int = 1
    """Output channels; a product's N."""
    kernel_w: int = 1
    kernel_h: int = 1
    stride_w: int = 1
    stride_h: int = 1
    in_w: int = 1
    in_h: int = 1


def work_of(op: Operator, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Work:
    """Return what `op` has to do.

    Parameters
    ----------
    op : Operator
        The operator.
    inputs, outputs : sequence of Tensor
        Its tensors, in the order of its ports.

    Returns
    -------
    Work
        Quantities by the operator's family. A view has no work.

    Raises
    ------
    ShapeError
        When shapes do not fit the type (a product whose inner dimensions differ, a pooling without a kernel).
    """
    family = op.family
    if family is Family.VIEW:
        return Work()
    if family is Family.MATMUL:
        return _matmul(op, inputs, outputs)
    if family in (Family.CONVOLUTION, Family.DEPTHWISE):
        return _convolution(op, inputs, outputs)
    if family is Family.POOLING:
        return _pooling(op, inputs, outputs)
    if family in (Family.SOFTMAX, Family.REDUCE):
        return _row_wise(op, inputs)
    if family is Family.GATHER:
        return _rows_of(outputs[0])
    if family is Family.SCATTER:
        return _rows_of(inputs[2] if len(inputs) > 2 else outputs[0])
    elements = max((t.elements for t in (*inputs, *outputs)), default=0)
    return Work(elements=float(elements))


def _matmul(op: Operator, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Work:
    a, b = inputs[0].shape, inputs[1].shape
    a = (1, *a) if len(a) == 1 else a
    b = (*b, 1) if len(b) == 1 else b
    m, k = (a[-1], a[-2]) if op.attrs.get("transpose_a") else (a[-2], a[-1])
    kb, n = (b[-1], b[-2]) if op.attrs.get("transpose_b") else (b[-2], b[-1])
    if k != kb:
        raise ShapeError(
            f"operator {op.name!r} (MatMul): inner dimensions differ, "
            f"{inputs[0].shape} x {inputs[1].shape}: {k} and {kb}"
        )
    batch = math.prod(outputs[0].shape[:-2]) if len(outputs[0].shape) > 2 else 1
    if math.prod(b[:-2]) == 1:  # one matrix on the right: the batch is only more rows
        m, batch = m * batch, 1
    return Work(macs=float(batch * m * k * n), batch=batch, out_w=m, in_c=k, out_c=n)


def _convolution(op: Operator, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Work:
    image, weight, out = inputs[0].shape, inputs[1].shape, outputs[0].shape
    spatial = len(image) - 2
    if spatial not in (1, 2):
        raise ShapeError(f"operator {op.name!r} ({op.type}): {spatial} spatial dimensions; 1 or 2 are known")
    grouped = op.type == "GroupConvolution"
    groups = weight[0] if grouped else 1
    kernel = weight[-spatial:]
    in_c = weight[2] if grouped else weight[1]
    strides = tuple(op.attrs.get("strides", (1,) * spatial))
    pixels = math.prod(out[2:])
    macs = float(out[0] * out[1] * pixels * in_c * math.prod(kernel))
    kernel_h, kernel_w = (1, *kernel)[-2:]
    stride_h, stride_w = (1, *strides)[-2:]
    out_h, out_w = (1, *out[2:])[-2:]
    in_h, in_w = (1, *image[2:])[-2:]
    depthwise = grouped and in_c == 1
    batch = out[0] if depthwise else out[0] * groups
    out_c = out[1] if depthwise else out[1] // groups
    return Work(
        macs=macs,
        elements=float(math.prod(out)),
        batch=batch,
        out_w=out_w,
        out_h=out_h,
        in_c=in_c,
        out_c=out_c,
        kernel_w=kernel_w,
        kernel_h=kernel_h,
        stride_w=stride_w,
        stride_h=stride_h,
        in_w=in_w,
        in_h=in_h,
    )


def _pooling(op: Operator, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Work:
    image, out = inputs[0].shape, outputs[0].shape
    kernel = tuple(op.attrs.get("kernel", ()))
    spatial = len(out) - 2
    if len(kernel) != spatial or spatial not in (1, 2):
        raise ShapeError(
            f"operator {op.name!r} ({op.type}): kernel {kernel} does not fit {spatial} spatial dimensions"
        )
    strides = tuple(op.attrs.get("strides", (1,) * spatial))
    kernel_h, kernel_w = (1, *kernel)[-2:]
    stride_h, stride_w = (1, *strides)[-2:]
    out_h, out_w = (1, *out[2:])[-2:]
    in_h, in_w = (1, *image[2:])[-2:]
    return Work(
        elements=float(math.prod(out) * math.prod(kernel)),
        batch=out[0],
        out_w=out_w,
        out_h=out_h,
        out_c=out[1],
        in_c=1,
        kernel_w=kernel_w,
        kernel_h=kernel_h,
        stride_w=stride_w,
        stride_h=stride_h,
        in_w=in_w,
        in_h=in_h,
    )


def _row_wise(op: Operator, inputs: Sequence[Tensor]) -> Work:
    shape = inputs[0].shape
    axes = op.attrs.get("axes", (len(shape) - 1,))
    row_length = math.prod(shape[a] for a in axes) if shape else 1
    elements = float(math.prod(shape))
    return Work(
        elements=elements, rows=elements / row_length if row_length else 0.0, row_length=float(row_length)
    )


def _rows_of(moved: Tensor) -> Work:
    row_length = moved.shape[-1] if len(moved.shape) > 1 else 1
    rows = moved.elements / row_length if row_length else 0.0
    return Work(elements=float(moved.elements), rows=rows, row_length=float(row_length))
