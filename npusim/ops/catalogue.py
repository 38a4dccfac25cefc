"""Declarations of npusim's operator types by family, with the rules for their shapes and work.

Types have their OpenVINO names. A shape rule returns the shape of a result, from settings and shapes of
operands; a work rule counts MACs, elements, rows and windows.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from npusim.errors import ShapeError
from npusim.ops.operator import (
    OPERATORS,
    Family,
    Int8Use,
    Operator,
    OpType,
    RowUse,
    Settings,
    Tensor,
    Tensors,
    Work,
    WorkRule,
    element_work,
)

Shape = tuple[int, ...]
Shapes = Sequence[Shape]


def broadcast(attrs: dict[str, Any], shapes: Shapes) -> Shape:
    """Return the shape of all operands after NumPy's broadcasting."""
    rank = max(len(s) for s in shapes)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    result = []
    for dims in zip(*padded, strict=True):
        wide = {d for d in dims if d != 1}
        if len(wide) > 1:
            raise ShapeError(f"shapes {', '.join(map(str, map(tuple, shapes)))} do not broadcast")
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def unchanged(attrs: dict[str, Any], shapes: Shapes) -> Shape:
    """Return the shape of the first operand."""
    return shapes[0]


def product(attrs: dict[str, Any], shapes: Shapes) -> Shape:
    """Return the shape of a matrix product, with broadcast batches."""
    left, right = shapes[:2]
    rows = left[-1] if attrs.get("transpose_a") else left[-2]
    columns = right[-2] if attrs.get("transpose_b") else right[-1]
    return (*broadcast(attrs, [left[:-2], right[:-2]]), rows, columns)


def reduced(attrs: dict[str, Any], shapes: Shapes) -> Shape:
    """Return the shape of the operand without its `axes`, or with ones in their place (`keep_dims`)."""
    axes, keep = attrs["axes"], attrs.get("keep_dims")
    return tuple((1 if i in axes else d) for i, d in enumerate(shapes[0]) if keep or i not in axes)


def gathered(attrs: dict[str, Any], shapes: Shapes) -> Shape:
    """Return the shape of the table with that of the indices in place of the axis."""
    (axis,) = attrs.get("axes", (0,))
    table, indices = shapes[:2]
    return (*table[:axis], *indices, *table[axis + 1 :])


def no_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Return no work: a view or a state."""
    return Work()


def product_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Return rows, columns, depth and batch of a matrix product; a ShapeError if inner dimensions differ."""
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
    """Return non-zeros times width, and a fetched row per non-zero; a ShapeError if dimensions differ."""
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
    """Return the comparisons of a sort of the edges by target, E log2 E."""
    edges = max((t.shape[-1] for t in inputs if t.shape), default=1)
    return Work(elements=float(edges * math.log2(max(2, edges))), rows=float(edges), row_length=1.0)


def _spatial(op: Operator, image: tuple[int, ...]) -> int:
    """Return the number of spatial dimensions of an image [batch, channels, ...]."""
    spatial = len(image) - 2
    if spatial not in (1, 2, 3):
        raise ShapeError(f"operator {op.name!r} ({op.type}): {spatial} spatial dimensions; 1 to 3 are known")
    return spatial


def _planes(sizes: Sequence[int]) -> int:
    """Return the planes of a kernel or image: the first size of three."""
    return sizes[0] if len(sizes) > 2 else 1


def _window(
    image: tuple[int, ...], out: tuple[int, ...], kernel: Sequence[int], strides: Sequence[int]
) -> dict[str, int]:
    """Return heights (1 if there is none) and widths of image, result, kernel and strides."""
    sizes = {"in": image[2:], "out": out[2:], "kernel": kernel, "stride": strides}
    return {
        f"{name}_{side}": size
        for name, of in sizes.items()
        for side, size in zip("hw", (1, *of)[-2:], strict=True)
    }


def convolution_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Return output pixels, channels, kernel taps and strides of a convolution, 1-D to 3-D.

    In 3-D each plane of the result is a 2-D convolution over the channels of all planes under its kernel.
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
    """Return the windows of a pooling; a ShapeError if it has no kernel."""
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
    """Return elements and rows along the axes (default: the last)."""
    shape = inputs[0].shape
    axes = op.attrs.get("axes", (len(shape) - 1,))
    row_length = math.prod(shape[a] for a in axes) if shape else 1
    elements = float(math.prod(shape))
    return Work(
        elements=elements, rows=elements / row_length if row_length else 0.0, row_length=float(row_length)
    )


def gather_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Return the rows that are read."""
    return _rows_of(outputs[0])


def scatter_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Return the rows that are written."""
    return _rows_of(inputs[2] if len(inputs) > 2 else outputs[0])


def _rows_of(moved: Tensor) -> Work:
    row_length = moved.shape[-1] if len(moved.shape) > 1 else 1
    rows = moved.elements / row_length if row_length else 0.0
    return Work(elements=float(moved.elements), rows=rows, row_length=float(row_length))


def deconvolution_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Return the work of a transposed convolution: output pixels sum taps that meet an input pixel."""
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
    """Return the elements of an interpolation: its taps for each result."""
    taps = 1
    if op.attrs.get("mode") != "nearest":
        resized = sum(a != b for a, b in zip(inputs[0].shape, outputs[0].shape, strict=False))
        taps = (4 if op.attrs.get("mode") in ("cubic", "bicubic") else 2) ** max(1, resized)
    return Work(elements=float(outputs[0].elements * taps))


def group_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Return the rows of a normalisation over groups of channels."""
    groups = inputs[0].shape[0] * int(op.attrs.get("num_groups", 1))
    return _rows(float(inputs[0].elements), groups)


def adaptive_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Return a row per result, of all elements that it covers."""
    return _rows(float(inputs[0].elements), outputs[0].elements)


def _rows(elements: float, rows: float) -> Work:
    return Work(elements=elements, rows=float(rows), row_length=elements / rows if rows else 0.0)


def recurrent_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Return the sequential steps of a recurrent layer, each of which reads the weights."""
    weights = [t for t in inputs if len(t.shape) == 3][-2:]  # [directions, gates x hidden, input or hidden]
    batch, steps = inputs[0].shape[:2]
    macs = float(batch * steps * sum(t.elements for t in weights))
    return Work(macs=macs, elements=macs, rows=float(steps), row_length=macs / max(1, steps))


def gates_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Return the elements of the gates of a recurrent step and of the new state."""
    return Work(elements=float(inputs[0].elements + outputs[0].elements))


def attention_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Return the two products of an attention, and its softmax."""
    query, value = inputs[0], inputs[2]
    keys = inputs[1].shape[-2]
    rows = query.elements // query.shape[-1]
    macs = float(rows * keys * (query.shape[-1] + value.shape[-1]))
    return Work(macs=macs, elements=macs, rows=float(rows), row_length=float(keys))


def suppression_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Return the comparisons to sort all scores, and of the box of each result with all others."""
    scores = inputs[1] if len(inputs) > 1 else inputs[0]
    boxes = scores.shape[-1] if scores.shape else 1
    kept = outputs[0].shape[0] if outputs[0].shape else 1
    return Work(elements=float(scores.elements * (1 + math.log2(max(2, boxes))) + kept * boxes))


_MULTIPLIES, _PASSES, _FLOAT = Int8Use.MULTIPLIES, Int8Use.PASSES, Int8Use.NEEDS_FLOAT
_NOTHING = Settings()
_WHOLE, _SAME, _LEFT, _MADE = RowUse.WHOLE, RowUse.SAME, RowUse.LEFT_OPERAND, RowUse.MADE
_WINDOW = ("strides", "pads_begin", "pads_end", "dilations")
_AXIS = Settings(axes="axis")


def _ports(*ports: int, **more: Any) -> Settings:
    return Settings(ports=frozenset(ports), **more)


def _declare(names: str, family: Family, work: WorkRule, rows: RowUse, int8: Int8Use, **more: Any) -> None:
    """Register types that have all traits in common; `names` are separated by blanks."""
    traits = {"settings": _NOTHING, "shape": None, "is_identity": False} | more
    for name in names.split():
        OPERATORS.register(OpType(name=name, family=family, work=work, rows=rows, int8=int8, **traits))


def _takes(*attributes: str, **more: Any) -> Settings:
    return Settings(attributes=attributes, **more)


_product = partial(_declare, rows=_LEFT, shape=product)
_product(
    "MatMul", Family.MATMUL, product_work, int8=_MULTIPLIES, settings=_takes("transpose_a", "transpose_b")
)
# A matrix in compressed rows times features, and what builds such a matrix from edges.
_product("SparseMatMul", Family.AGGREGATE, sparse_product_work, int8=_FLOAT)
_declare("EdgesToCsr", Family.COMPOSITE, sorting_work, _WHOLE, _FLOAT)
# Newly allocated memory: an element is a page.
_declare("TakePages", Family.COMPOSITE, element_work, _WHOLE, _FLOAT)
_convolution = partial(_declare, rows=_WHOLE, int8=_MULTIPLIES, settings=_takes(*_WINDOW))
_convolution("Convolution", Family.CONVOLUTION, convolution_work)
_convolution("GroupConvolution", Family.DEPTHWISE, convolution_work)
_convolution(
    "ConvolutionBackpropData GroupConvolutionBackpropData",
    Family.CONVOLUTION,
    deconvolution_work,
    settings=_ports(2, attributes=_WINDOW),
)

_pooling = partial(_declare, settings=_takes(*_WINDOW, "kernel", "exclude-pad"))
_pooling("MaxPool", Family.POOLING, pooling_work, RowUse.IMAGE, _PASSES)
_pooling("AvgPool", Family.POOLING, pooling_work, RowUse.IMAGE, _FLOAT)

_pointwise = partial(_declare, work=element_work, rows=_SAME)
_binary = partial(_pointwise, shape=broadcast)
_binary("Add Multiply Maximum Minimum", Family.ELTWISE, int8=_PASSES)
_binary("Subtract Divide Power SquaredDifference FloorMod Mod", Family.ELTWISE, int8=_FLOAT)
_binary(
    "BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitwiseLeftShift BitwiseRightShift",
    Family.ELTWISE,
    int8=_FLOAT,
)
_binary(
    "Greater GreaterEqual Less LessEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot LogicalXor IsInf "
    "IsNaN IsFinite",
    Family.COMPARE,
    int8=_FLOAT,
)
_binary("Select", Family.SELECT, int8=_PASSES)
_unary = partial(_pointwise, shape=unchanged)
_unary("Relu", Family.ACTIVATION, int8=_PASSES)
_unary("Elu", Family.ACTIVATION, int8=_FLOAT, settings=_takes("alpha"))
_unary(
    "PRelu Sigmoid Tanh Exp Log Sqrt Abs Negative Sign Floor Ceiling Erf Swish HSwish HSigmoid SoftPlus "
    "Mish Selu Sin Cos Tan Sinh Cosh Asin Acos Atan Asinh Acosh Atanh Round SoftSign RegionYolo",
    Family.ACTIVATION,
    int8=_FLOAT,
)
_unary("Clamp", Family.ACTIVATION, int8=_FLOAT, settings=_takes("min", "max"))
_unary("Gelu", Family.ACTIVATION, int8=_FLOAT, settings=_takes("approximation_mode"))
_unary("HardSigmoid", Family.ACTIVATION, int8=_FLOAT, settings=_ports(1, 2))
_unary("Convert", Family.CONVERT, int8=_FLOAT, is_identity=True)
_unary("ConvertLike FakeQuantize FakeConvert", Family.CONVERT, int8=_FLOAT)

_row_wise = partial(_declare, work=row_work, rows=RowUse.ALONG_AXES)
_row_wise("Softmax LogSoftmax", Family.SOFTMAX, int8=_FLOAT, settings=_AXIS, shape=unchanged)
_reduction = partial(_row_wise, settings=_ports(1, axes=1, attributes=("keep_dims",)), shape=reduced)
_reduction("ReduceMax ReduceMin", Family.REDUCE, int8=_PASSES)
_reduction(
    "ReduceSum ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceLogicalOr ReduceLogicalAnd",
    Family.REDUCE,
    int8=_FLOAT,
)
_along = partial(_row_wise, shape=unchanged)
_along("CumSum NormalizeL2", Family.REDUCE, int8=_FLOAT, settings=_ports(1, axes=1))
_mvn = _ports(1, axes=1, attributes=("normalize_variance", "eps", "eps_mode"))
_along("MVN", Family.REDUCE, int8=_FLOAT, settings=_mvn)
_groups = _ports(1, 2, attributes=("num_groups",))
_declare("GroupNormalization", Family.REDUCE, group_work, _WHOLE, _FLOAT, settings=_groups, shape=unchanged)
_declare("AdaptiveAvgPool AdaptiveMaxPool", Family.REDUCE, adaptive_work, _WHOLE, _FLOAT, settings=_ports(1))
_row_wise("TopK", Family.REDUCE, int8=_FLOAT, settings=_ports(1, axes="axis"), decides=True)

_declare("Gather", Family.GATHER, gather_work, _MADE, _PASSES, settings=_ports(2, axes=2), shape=gathered)
_declare("GatherElements", Family.GATHER, gather_work, _MADE, _PASSES, settings=_AXIS)
_declare("GatherND EmbeddingBagOffsets", Family.GATHER, gather_work, _MADE, _PASSES)
_scatter = partial(
    _declare, family=Family.SCATTER, work=scatter_work, rows=_WHOLE, int8=_FLOAT, shape=unchanged
)
_scatter(
    "ScatterElementsUpdate ScatterUpdate",
    settings=_ports(3, axes=3, attributes=("reduction", "use_init_val")),
)
_scatter("ScatterNDUpdate", settings=_takes("reduction"))

_move = partial(_declare, family=Family.MOVE, work=element_work, rows=_WHOLE, int8=_PASSES)
_move("Transpose", settings=_ports(1))
_move("Concat", settings=_AXIS)
_move("Broadcast", settings=_ports(1, 2, attributes=("mode",)), rows=_MADE, is_identity=True)
_move("Tile", settings=_ports(1), is_identity=True)
_move("Slice", settings=_ports(1, 2, 3, 4), is_identity=True)
_move("StridedSlice", settings=_ports(1, 2, 3))
_move("Split", settings=_ports(1, axes=1))
_move("VariadicSplit", settings=_ports(1, 2, axes=1))
_move("Pad Roll", settings=_ports(1, 2))
_move("Reverse ReverseSequence ShuffleChannels DepthToSpace SpaceToDepth")

_declare("Reshape Squeeze Unsqueeze", Family.VIEW, no_work, _WHOLE, _PASSES, settings=_ports(1))
_declare("Assign ReadValue", Family.VIEW, element_work, _WHOLE, _PASSES, shape=unchanged)
_declare("Identity", Family.VIEW, no_work, _WHOLE, _PASSES, shape=unchanged, is_identity=True)
_declare("View", Family.VIEW, no_work, _WHOLE, _PASSES)
_declare("Result", Family.VIEW, no_work, _WHOLE, _FLOAT, shape=unchanged)

_generate = partial(_declare, family=Family.GENERATE, work=element_work, rows=_WHOLE, int8=_FLOAT)
_generate("Range", settings=_ports(0, 1, 2))
_generate("Eye", settings=_ports(0, 1, 2, 3))
_generate("OneHot", settings=_ports(1, 2, 3, axes="axis"), decides=True)
_generate("NonZero", decides=True)
_generate("ShapeOf")

_composite = partial(_declare, family=Family.COMPOSITE, rows=_WHOLE, int8=_FLOAT)
_composite("Interpolate", work=window_work, settings=_ports(1, 2, 3, attributes=("mode",)))
_composite("LRN", work=element_work, settings=_ports(1), shape=unchanged)
_composite("GridSample", work=window_work, settings=_takes("mode"))
_composite("ROIAlign ROIPooling PSROIPooling", work=element_work)
_composite("LSTMSequence GRUSequence RNNSequence", work=recurrent_work)
_composite("LSTMGates GRUGates", work=gates_work)
_composite("ScaledDotProductAttention", work=attention_work)
_composite(
    "NonMaxSuppression MatrixNms MulticlassNms NMSRotated DetectionOutput Proposal",
    work=suppression_work,
    decides=True,
)
