"""The catalogue of operator types: the kind of work of each, by its OpenVINO name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["CATALOGUE", "Family", "OpType", "op_type"]


class Family(StrEnum):
    """Kinds of work that are costed alike."""

    MATMUL = "matmul"
    CONVOLUTION = "convolution"
    DEPTHWISE = "depthwise"
    POOLING = "pooling"
    ELTWISE = "eltwise"
    COMPARE = "compare"
    SELECT = "select"
    ACTIVATION = "activation"
    SOFTMAX = "softmax"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    MOVE = "move"
    """Data that is laid out again: transpose, concat, broadcast, pad."""
    VIEW = "view"
    """The same bytes under another shape: costs nothing."""
    CONVERT = "convert"
    GENERATE = "generate"
    """Tensors made from shapes or conditions: Range, NonZero, ShapeOf."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class OpType:
    """One type of operator."""

    name: str
    family: Family
    dsp_kernel: str
    """Name of the DSP kernel that does it (the key of a SoC's kernel tables); '' if the DSP is never used."""
    dpu: bool = False
    """Whether the MAC grid can do it; elementwise types are asked for in the SoC's `dpu.eltwise_ops` too."""
    known: bool = True
    """False for a type that the catalogue does not list: costed by the bytes it moves, with a warning."""


def _types(family: Family, dpu: bool = False, **kernels: str) -> dict[str, OpType]:
    return {name: OpType(name, family, kernel, dpu) for name, kernel in kernels.items()}


CATALOGUE: dict[str, OpType] = {
    **_types(Family.MATMUL, dpu=True, MatMul=""),
    **_types(Family.CONVOLUTION, dpu=True, Convolution=""),
    **_types(Family.DEPTHWISE, dpu=True, GroupConvolution=""),
    **_types(Family.POOLING, dpu=True, MaxPool="", AvgPool=""),
    **_types(
        Family.ELTWISE,
        dpu=True,
        Add="add",
        Subtract="sub",
        Multiply="mul",
        Divide="div",
        Maximum="max",
        Minimum="min",
        Power="power",
        SquaredDifference="squareddiff",
        FloorMod="floormod",
        Mod="floormod",
    ),
    **_types(
        Family.COMPARE,
        Greater="greater",
        GreaterEqual="greaterequal",
        Less="less",
        LessEqual="lessequal",
        Equal="equal",
        NotEqual="notequal",
        LogicalAnd="and",
        LogicalOr="or",
        LogicalNot="not",
        LogicalXor="xor",
        IsInf="equal",
        IsNaN="equal",
    ),
    **_types(Family.SELECT, Select="select"),
    **_types(
        Family.ACTIVATION,
        Relu="relu",
        PRelu="prelu",
        Elu="elu",
        Sigmoid="sigmoid",
        Tanh="tanh",
        Exp="exp",
        Log="log",
        Sqrt="sqrt",
        Abs="abs",
        Negative="neg",
        Sign="sign",
        Floor="floor",
        Ceiling="ceiling",
        Erf="erf",
        Gelu="gelu",
        Swish="swish",
        HSwish="hswish",
        HSigmoid="hardsigmoid",
        SoftPlus="softplus",
        Mish="mish",
        Selu="selu",
        Clamp="clamp",
        Sin="sin",
        Cos="cos",
    ),
    **_types(Family.SOFTMAX, Softmax="softmax", LogSoftmax="logsoftmax"),
    **_types(
        Family.REDUCE,
        ReduceSum="reducesum",
        ReduceMean="reducemean",
        ReduceMax="reducemax",
        ReduceMin="reducemin",
        ReduceProd="reducesum",
        ReduceL2="reducel2",
        ReduceLogicalOr="reducemax",
        ReduceLogicalAnd="reducemin",
        CumSum="cumsum",
        MVN="mvn",
        NormalizeL2="normalizel2onlyc",
        TopK="topk",
    ),
    **_types(
        Family.GATHER,
        Gather="gather",
        GatherElements="gather",
        GatherND="gather",
        EmbeddingBagOffsets="gather",
    ),
    **_types(
        Family.SCATTER,
        ScatterElementsUpdate="scatterupdate",
        ScatterUpdate="scatterupdate",
        ScatterNDUpdate="scatterupdate",
    ),
    **_types(
        Family.MOVE,
        Transpose="mempermute",
        Concat="concat",
        Broadcast="broadcast",
        Tile="broadcast",
        StridedSlice="slice",
        Slice="slice",
        Split="slice",
        VariadicSplit="slice",
        Pad="pad",
        Roll="roll",
        Reverse="roll",
    ),
    **_types(Family.VIEW, Reshape="", Squeeze="", Unsqueeze="", Result="", Assign="", ReadValue=""),
    **_types(
        Family.CONVERT,
        Convert="convert",
        ConvertLike="convert",
        FakeQuantize="quantize",
        FakeConvert="quantize",
    ),
    **_types(
        Family.GENERATE, Range="range", NonZero="nonzero", ShapeOf="shapeof", Eye="range", OneHot="onehot"
    ),
}
"""Every type npusim knows, by its OpenVINO name."""


def op_type(name: str) -> OpType:
    """Return the catalogue's entry of an operator type; family `unknown` where it is not listed."""
    entry = CATALOGUE.get(name)
    return entry if entry is not None else OpType(name, Family.UNKNOWN, "unknown", known=False)
