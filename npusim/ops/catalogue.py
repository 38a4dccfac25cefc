"""The declarations of npusim's own operator types, by family, under their OpenVINO names."""

from __future__ import annotations

from functools import partial
from typing import Any

from npusim.ops.operator import OPERATORS, Family, Int8Use, OpType, RowUse, Settings, WorkRule
from npusim.ops.shapes import broadcast, gathered, product, reduced, unchanged
from npusim.ops.work import (
    adaptive_work,
    attention_work,
    convolution_work,
    deconvolution_work,
    element_work,
    gates_work,
    gather_work,
    group_work,
    no_work,
    pooling_work,
    product_work,
    recurrent_work,
    row_work,
    scatter_work,
    sorting_work,
    sparse_product_work,
    suppression_work,
    window_work,
)

_FLOAT, _PASSES = Int8Use.NEEDS_FLOAT, Int8Use.PASSES
_NOTHING = Settings()
_WINDOW = ("strides", "pads_begin", "pads_end", "dilations")


def _declare(
    names: str, family: Family, work: WorkRule, settings: Settings = _NOTHING, **traits: Any
) -> None:
    """Register types that have all traits in common; `names` are separated by blanks."""
    for name in names.split():
        OPERATORS.register(
            OpType(
                name=name,
                family=family,
                work=work,
                settings=settings,
                **({"shape": None, "is_identity": False} | traits),
            )
        )


def _ports(*ports: int, **more: Any) -> Settings:
    return Settings(ports=frozenset(ports), **more)


_contraction = partial(_declare, int8=Int8Use.MULTIPLIES)
_contraction(
    "MatMul",
    Family.MATMUL,
    product_work,
    Settings(attributes=("transpose_a", "transpose_b")),
    rows=RowUse.LEFT_OPERAND,
    shape=product,
)
_contraction(  # a matrix in compressed rows times features, and what makes such a matrix of edges
    "SparseMatMul",
    Family.AGGREGATE,
    sparse_product_work,
    Settings(),
    rows=RowUse.LEFT_OPERAND,
    shape=product,
    int8=Int8Use.NEEDS_FLOAT,
)
_declare("EdgesToCsr", Family.COMPOSITE, sorting_work, rows=RowUse.WHOLE, int8=Int8Use.NEEDS_FLOAT)
# Memory that a program takes from the operating system anew: an element a page.
_declare("TakePages", Family.COMPOSITE, element_work, rows=RowUse.WHOLE, int8=Int8Use.NEEDS_FLOAT)
_contraction(
    "Convolution", Family.CONVOLUTION, convolution_work, Settings(attributes=_WINDOW), rows=RowUse.WHOLE
)
_contraction(
    "GroupConvolution", Family.DEPTHWISE, convolution_work, Settings(attributes=_WINDOW), rows=RowUse.WHOLE
)
_contraction(
    "ConvolutionBackpropData GroupConvolutionBackpropData",
    Family.CONVOLUTION,
    deconvolution_work,
    _ports(2, attributes=_WINDOW),
    rows=RowUse.WHOLE,
)

_pooling = partial(
    _declare,
    family=Family.POOLING,
    work=pooling_work,
    settings=Settings(attributes=(*_WINDOW, "kernel", "exclude-pad")),
    rows=RowUse.IMAGE,
)
_pooling("MaxPool", int8=_PASSES)
_pooling("AvgPool", int8=_FLOAT)

_pointwise = partial(_declare, work=element_work, rows=RowUse.SAME)
_binary = partial(_pointwise, family=Family.ELTWISE, shape=broadcast)
_binary("Add Multiply Maximum Minimum", int8=_PASSES)
_binary("Subtract Divide Power SquaredDifference FloorMod Mod", int8=_FLOAT)
_binary("BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitwiseLeftShift BitwiseRightShift", int8=_FLOAT)
_pointwise(
    "Greater GreaterEqual Less LessEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot LogicalXor IsInf "
    "IsNaN IsFinite",
    Family.COMPARE,
    int8=_FLOAT,
    shape=broadcast,
)
_pointwise("Select", Family.SELECT, int8=_PASSES, shape=broadcast)
_activation = partial(_pointwise, family=Family.ACTIVATION, shape=unchanged)
_activation("Relu", int8=_PASSES)
_activation("Elu", settings=Settings(attributes=("alpha",)), int8=_FLOAT)
_activation(
    "PRelu Sigmoid Tanh Exp Log Sqrt Abs Negative Sign Floor Ceiling Erf Swish HSwish HSigmoid SoftPlus "
    "Mish Selu Sin Cos Tan Sinh Cosh Asin Acos Atan Asinh Acosh Atanh Round SoftSign RegionYolo",
    int8=_FLOAT,
)
_activation("Clamp", settings=Settings(attributes=("min", "max")), int8=_FLOAT)
_activation("Gelu", settings=Settings(attributes=("approximation_mode",)), int8=_FLOAT)
_activation("HardSigmoid", settings=_ports(1, 2), int8=_FLOAT)
_convert = partial(_pointwise, family=Family.CONVERT, int8=_FLOAT, shape=unchanged)
_convert("Convert", is_identity=True)
_convert("ConvertLike FakeQuantize FakeConvert")

_row_wise = partial(_declare, work=row_work, rows=RowUse.ALONG_AXES)
_row_wise("Softmax LogSoftmax", Family.SOFTMAX, settings=Settings(axes="axis"), int8=_FLOAT, shape=unchanged)
_reduction = partial(_row_wise, family=Family.REDUCE, settings=_ports(1, axes=1, attributes=("keep_dims",)))
_reduction("ReduceMax ReduceMin", int8=_PASSES, shape=reduced)
_reduction(
    "ReduceSum ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceLogicalOr ReduceLogicalAnd",
    int8=_FLOAT,
    shape=reduced,
)
_row_wise("CumSum NormalizeL2", Family.REDUCE, settings=_ports(1, axes=1), int8=_FLOAT, shape=unchanged)
_row_wise(
    "MVN",
    Family.REDUCE,
    settings=_ports(1, axes=1, attributes=("normalize_variance", "eps", "eps_mode")),
    int8=_FLOAT,
    shape=unchanged,
)
_row_wise(
    "GroupNormalization",
    Family.REDUCE,
    work=group_work,
    settings=_ports(1, 2, attributes=("num_groups",)),
    rows=RowUse.WHOLE,
    int8=_FLOAT,
    shape=unchanged,
)
_row_wise(
    "AdaptiveAvgPool AdaptiveMaxPool",
    Family.REDUCE,
    work=adaptive_work,
    settings=_ports(1),
    rows=RowUse.WHOLE,
    int8=_FLOAT,
)
_row_wise("TopK", Family.REDUCE, settings=_ports(1, axes="axis"), int8=_FLOAT, decides=True)

_gather = partial(_declare, family=Family.GATHER, work=gather_work, rows=RowUse.MADE, int8=_PASSES)
_gather("Gather", settings=_ports(2, axes=2), shape=gathered)
_gather("GatherElements", settings=Settings(axes="axis"))
_gather("GatherND EmbeddingBagOffsets")
_scatter = partial(_declare, family=Family.SCATTER, work=scatter_work, rows=RowUse.WHOLE, int8=_FLOAT)
_scatter(
    "ScatterElementsUpdate ScatterUpdate",
    settings=_ports(3, axes=3, attributes=("reduction", "use_init_val")),
    shape=unchanged,
)
_scatter("ScatterNDUpdate", settings=Settings(attributes=("reduction",)), shape=unchanged)

_move = partial(_declare, family=Family.MOVE, work=element_work, int8=_PASSES)
_move("Transpose", settings=_ports(1), rows=RowUse.WHOLE)
_move("Concat", settings=Settings(axes="axis"), rows=RowUse.WHOLE)
_move("Broadcast", settings=_ports(1, 2, attributes=("mode",)), rows=RowUse.MADE, is_identity=True)
_move("Tile", settings=_ports(1), rows=RowUse.WHOLE, is_identity=True)
_move("Slice", settings=_ports(1, 2, 3, 4), rows=RowUse.WHOLE, is_identity=True)
_move("StridedSlice", settings=_ports(1, 2, 3), rows=RowUse.WHOLE)
_move("Split", settings=_ports(1, axes=1), rows=RowUse.WHOLE)
_move("VariadicSplit", settings=_ports(1, 2, axes=1), rows=RowUse.WHOLE)
_move("Pad Roll", settings=_ports(1, 2), rows=RowUse.WHOLE)
_move("Reverse ReverseSequence ShuffleChannels DepthToSpace SpaceToDepth", rows=RowUse.WHOLE)

_state = partial(_declare, family=Family.VIEW, work=no_work, rows=RowUse.WHOLE)
_state("Reshape Squeeze Unsqueeze", settings=_ports(1), int8=_PASSES)
_state("Assign ReadValue", work=element_work, int8=_PASSES, shape=unchanged)
_state("Identity", int8=_PASSES, shape=unchanged, is_identity=True)
_state("View", int8=_PASSES)
_state("Result", int8=_FLOAT, shape=unchanged)

_generate = partial(_declare, family=Family.GENERATE, work=element_work, rows=RowUse.WHOLE, int8=_FLOAT)
_generate("Range", settings=_ports(0, 1, 2))
_generate("Eye", settings=_ports(0, 1, 2, 3))
_generate("OneHot", settings=_ports(1, 2, 3, axes="axis"), decides=True)
_generate("NonZero", decides=True)
_generate("ShapeOf")

_composite = partial(_declare, family=Family.COMPOSITE, rows=RowUse.WHOLE, int8=_FLOAT)
_composite("Interpolate", work=window_work, settings=_ports(1, 2, 3, attributes=("mode",)))
_composite("LRN", work=element_work, settings=_ports(1), shape=unchanged)
_composite("GridSample", work=window_work, settings=Settings(attributes=("mode",)))
_composite("ROIAlign ROIPooling PSROIPooling", work=element_work)
_composite("LSTMSequence GRUSequence RNNSequence", work=recurrent_work)
_composite("LSTMGates GRUGates", work=gates_work)
_composite("ScaledDotProductAttention", work=attention_work)
_composite(
    "NonMaxSuppression MatrixNms MulticlassNms NMSRotated DetectionOutput Proposal",
    work=suppression_work,
    decides=True,
)
