"""Amount of work of an operator (MACs, elements, rows, windows), and the rules that count it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.errors import ShapeError
from npusim.ops.tensor import Tensor

if TYPE_CHECKING:
    from npusim.ops.operator import Operator

Tensors = Sequence[Tensor]


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


def no_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """A view or a state: the same bytes."""
    return Work()


def element_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """As many elements as the largest tensor has."""
    return Work(elements=float(max((t.elements for t in (*inputs, *outputs)), default=0)))


def product_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Rows, columns, depth and batch of a matrix product; a ShapeError where the inner dimensions differ."""
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


def sparse_product_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Non-zeros times width, and a fetched row for each non-zero; a ShapeError where dimensions differ."""
    matrix, features = inputs[:2]
    if matrix.shape[-1] != features.shape[-2]:
        raise ShapeError(
            f"operator {op.name!r} ({op.type}): inner dimensions differ, "
            f"{matrix.shape} x {features.shape}: {matrix.shape[-1]} and {features.shape[-2]}"
        )
    width, fetched = features.shape[-1], float(matrix.nonzeros)
    return Work(
        macs=fetched * width,
        rows=fetched,
        row_length=float(width),
        out_w=matrix.elements // max(1, matrix.shape[-1]),
        in_c=max(1, round(fetched * matrix.shape[-1] / max(1, matrix.elements))),
        out_c=width,
    )


def sorting_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Comparisons of a sort of the edges by target, E log2 E."""
    edges = max((t.shape[-1] for t in inputs if t.shape), default=1)
    return Work(elements=float(edges * math.log2(max(2, edges))), rows=float(edges), row_length=1.0)


def _spatial(op: Operator, image: tuple[int, ...]) -> int:
    """Return the spatial dimensions of an image [batch, channels, ...]."""
    spatial = len(image) - 2
    if spatial not in (1, 2, 3):
        raise ShapeError(f"operator {op.name!r} ({op.type}): {spatial} spatial dimensions; 1 to 3 are known")
    return spatial


def _planes(sizes: Sequence[int]) -> int:
    """Return how many planes a kernel or an image has: the first size of three."""
    return sizes[0] if len(sizes) > 2 else 1


def _window(
    image: tuple[int, ...], out: tuple[int, ...], kernel: Sequence[int], strides: Sequence[int]
) -> dict[str, int]:
    """Return heights and widths of image, result, kernel and strides, a height of 1 where there is none."""
    sizes = {"in": image[2:], "out": out[2:], "kernel": kernel, "stride": strides}
    return {
        f"{name}_{side}": size
        for name, of in sizes.items()
        for side, size in zip("hw", (1, *of)[-2:], strict=True)
    }


def convolution_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Output pixels, channels, kernel taps and strides of a convolution, 1-D to 3-D.

    A 3-D one is a 2-D one for each plane of the result, over the channels of all planes under its kernel.
    """
    image, weight, out = inputs[0].shape, inputs[1].shape, outputs[0].shape
    spatial = _spatial(op, image)
    grouped = op.type == "GroupConvolution"
    groups = weight[0] if grouped else 1
    kernel = weight[-spatial:]
    in_c = weight[2] if grouped else weight[1]
    strides = tuple(op.attrs.get("strides", (1,) * spatial))
    macs = float(out[0] * out[1] * math.prod(out[2:]) * in_c * math.prod(kernel))
    window = _window(image, out, kernel, strides)
    depthwise = grouped and in_c == 1
    batch = (out[0] if depthwise else out[0] * groups) * _planes(out[2:])
    out_c = out[1] if depthwise else out[1] // groups
    if depthwise:
        window["kernel_h"] *= _planes(kernel)
    else:
        in_c *= _planes(kernel)
    return Work(macs=macs, elements=float(math.prod(out)), batch=batch, in_c=in_c, out_c=out_c, **window)


def pooling_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Windows of a pooling; a ShapeError where it has no kernel."""
    image, out = inputs[0].shape, outputs[0].shape
    kernel = tuple(op.attrs.get("kernel", ()))
    spatial = _spatial(op, out)
    if len(kernel) != spatial:
        raise ShapeError(
            f"operator {op.name!r} ({op.type}): kernel {kernel} does not fit {spatial} spatial dimensions"
        )
    window = _window(image, out, kernel, op.attrs.get("strides", (1,) * spatial))
    window["kernel_h"] *= _planes(kernel)
    elements, batch = float(math.prod(out) * math.prod(kernel)), out[0] * _planes(out[2:])
    return Work(elements=elements, batch=batch, out_c=out[1], in_c=1, **window)


def row_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Elements and rows along the axes (default: the last)."""
    shape = inputs[0].shape
    axes = op.attrs.get("axes", (len(shape) - 1,))
    row_length = math.prod(shape[a] for a in axes) if shape else 1
    elements = float(math.prod(shape))
    return Work(
        elements=elements, rows=elements / row_length if row_length else 0.0, row_length=float(row_length)
    )


def gather_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Rows that are taken."""
    return _rows_of(outputs[0])


def scatter_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Rows that are written."""
    return _rows_of(inputs[2] if len(inputs) > 2 else outputs[0])


def _rows_of(moved: Tensor) -> Work:
    row_length = moved.shape[-1] if len(moved.shape) > 1 else 1
    rows = moved.elements / row_length if row_length else 0.0
    return Work(elements=float(moved.elements), rows=rows, row_length=float(row_length))


def deconvolution_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """A transposed convolution: each output pixel sums over the taps that meet an input pixel."""
    image, weight, out = inputs[0].shape, inputs[1].shape, outputs[0].shape
    spatial = _spatial(op, image)
    groups = weight[0] if op.type.startswith("Group") else 1
    in_c, out_c = weight[-spatial - 2], weight[-spatial - 1]
    strides = tuple(op.attrs.get("strides", (1,) * spatial))
    macs = float(image[0] * groups * in_c * out_c * math.prod(image[2:]) * math.prod(weight[-spatial:]))
    taps = [-(-size // stride) for size, stride in zip(weight[-spatial:], strides, strict=True)]
    return Work(
        macs=macs,
        elements=float(math.prod(out)),
        batch=out[0] * groups * _planes(out[2:]),
        in_c=in_c * _planes(taps),
        out_c=out_c,
        **_window(image, out, taps, (1, 1)),
    )


def window_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """As many elements per result as go into it: taps of an interpolation."""
    taps = 1
    if op.attrs.get("mode") != "nearest":
        resized = sum(a != b for a, b in zip(inputs[0].shape, outputs[0].shape, strict=False))
        taps = (4 if op.attrs.get("mode") in ("cubic", "bicubic") else 2) ** max(1, resized)
    return Work(elements=float(outputs[0].elements * taps))


def group_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Rows of a normalisation over groups of channels."""
    groups = inputs[0].shape[0] * int(op.attrs.get("num_groups", 1))
    return _rows(float(inputs[0].elements), groups)


def adaptive_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """A row for each result, of all elements that it covers."""
    return _rows(float(inputs[0].elements), outputs[0].elements)


def _rows(elements: float, rows: float) -> Work:
    return Work(elements=elements, rows=float(rows), row_length=elements / rows if rows else 0.0)


def recurrent_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Steps of a recurrent layer, each of which waits for the one before and reads its weights again."""
    weights = [t for t in inputs if len(t.shape) == 3][-2:]  # [directions, gates x hidden, input or hidden]
    batch, steps = inputs[0].shape[:2]
    macs = float(batch * steps * sum(t.elements for t in weights))
    return Work(macs=macs, elements=macs, rows=float(steps), row_length=macs / max(1, steps))


def gates_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """The gates of a recurrent step, and an activation for each element of the new state."""
    return Work(elements=float(inputs[0].elements + outputs[0].elements))


def attention_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """The two products of an attention, and its softmax."""
    query, value = inputs[0], inputs[2]
    keys = inputs[1].shape[-2]
    rows = query.elements // query.shape[-1]
    macs = float(rows * keys * (query.shape[-1] + value.shape[-1]))
    return Work(macs=macs, elements=macs, rows=float(rows), row_length=float(keys))


def suppression_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Sorting all scores, and comparing each result's box with all others of its class."""
    scores = inputs[1] if len(inputs) > 1 else inputs[0]
    boxes = scores.shape[-1] if scores.shape else 1
    kept = outputs[0].shape[0] if outputs[0].shape else 1
    return Work(elements=float(scores.elements * (1 + math.log2(max(2, boxes))) + kept * boxes))
