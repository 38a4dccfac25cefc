"""Operators, their types and the amount of their work.

A type is declared once, as an `OpType`; a missing trait is a TypeError at its declaration. How machines run a
type (kernel names, support by a MAC grid) is in `npusim.cost.execution`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Any

from npusim.ops.tensor import Tensor
from npusim.plugins import Registry

Tensors = Sequence[Tensor]


@dataclass(frozen=True, slots=True)
class Work:
    """Amount of work of an operator."""

    macs: float = 0.0
    """Multiply-accumulates, including zeros."""
    elements: float = 0.0
    """Elements that an elementwise, moving or reducing kernel visits."""
    rows: float = 0.0
    """Independent rows of a softmax, reduction, gather or scatter."""
    row_length: float = 0.0
    """Elements of one such row."""
    batch: int = 1
    """Independent products or images."""
    out_w: int = 1
    out_h: int = 1
    """Output pixels of a channel; `out_w` is the number of rows M of a product."""
    in_c: int = 1
    """Input channels; K of a product."""
    out_c: int = 1
    """Output channels; N of a product."""
    kernel_w: int = 1
    kernel_h: int = 1
    stride_w: int = 1
    stride_h: int = 1
    in_w: int = 1
    in_h: int = 1


WorkRule = Callable[["Operator", Sequence[Tensor], Sequence[Tensor]], Work]
"""(operator, its inputs, its outputs) -> amount of its work."""

ShapeRule = Callable[[dict[str, Any], Sequence[tuple[int, ...]]], tuple[int, ...]]
"""(settings, shapes of the inputs) -> shape of the first result; a ShapeError if they do not fit."""


class WorkClass(StrEnum):
    """Classes of work, for fusion and cost models."""

    CONTRACTION = "contraction"  # multiply-accumulates of two operands
    WINDOW = "window"  # a value for each window of pixels, channel by channel
    POINTWISE = "pointwise"  # element by element: it can be fused into another operator
    ROW_WISE = "row-wise"  # independent rows along an axis
    INDEXED = "indexed"  # rows read or written by index
    MOVE = "move"  # data in another order
    STATE = "state"  # the same bytes under another shape or name: no work
    GENERATE = "generate"  # tensors made from shapes or conditions
    COMPOSITE = "composite"  # several classes in one operator; its work rule counts them
    UNKNOWN = "unknown"


class Family(StrEnum):
    """Kinds of operators that rewrites and cost equations distinguish, each of one class of work."""

    MATMUL = "matmul"
    AGGREGATE = "aggregate"
    CONVOLUTION = "convolution"
    DEPTHWISE = "depthwise"
    POOLING = "pooling"
    ELTWISE = "eltwise"
    COMPARE = "compare"
    SELECT = "select"
    ACTIVATION = "activation"
    CONVERT = "convert"
    SOFTMAX = "softmax"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    MOVE = "move"
    VIEW = "view"
    GENERATE = "generate"
    COMPOSITE = "composite"
    UNKNOWN = "unknown"

    @property
    def work_class(self) -> WorkClass:
        """Class of its work."""
        return _CLASSES[self]

    @property
    def decides(self) -> bool:
        """Whether values control its operators: comparisons, choices, indices."""
        return self in (Family.COMPARE, Family.SELECT, Family.GATHER, Family.SCATTER)


_CLASSES = {
    Family(name): work_class
    for work_class, names in {
        WorkClass.CONTRACTION: "matmul aggregate convolution depthwise",
        WorkClass.WINDOW: "pooling",
        WorkClass.POINTWISE: "eltwise compare select activation convert",
        WorkClass.ROW_WISE: "softmax reduce",
        WorkClass.INDEXED: "gather scatter",
        WorkClass.MOVE: "move",
        WorkClass.STATE: "view",
        WorkClass.GENERATE: "generate",
        WorkClass.COMPOSITE: "composite",
        WorkClass.UNKNOWN: "unknown",
    }.items()
    for name in names.split()
}


class RowUse(StrEnum):
    """Rows of the operands that a row of the result needs (rows: the first axis longer than 1)."""

    WHOLE = "whole"  # all of them
    SAME = "same"  # the same row of each operand
    ALONG_AXES = "along_axes"  # the same row, unless its axes are those of the rows
    LEFT_OPERAND = "left_operand"  # the same row of the first operand, all of the second
    IMAGE = "image"  # the same image and channel: windows cross neither
    MADE = "made"  # any rows; results are produced row after row


class Int8Use(StrEnum):
    """Support of an operator for 8-bit integers in place of floating-point numbers."""

    MULTIPLIES = "multiplies"  # takes them as both operands of a product
    PASSES = "passes"  # moves, picks, compares, or adds and scales in the output stage
    NEEDS_FLOAT = "needs_float"  # computes in floating point


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of an imported operator in addition to its data operands."""

    ports: frozenset[int] = frozenset()
    """Operands that are settings: a constant one moves no data at run time."""
    axes: int | str | None = None
    """Port, or attribute of the file, that holds `attrs["axes"]`."""
    attributes: tuple[str, ...] = ()
    """Attributes of the file that become settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpType:
    """The declaration of one type of operator."""

    name: str
    """OpenVINO's name of the operation."""
    family: Family
    work: WorkRule
    rows: RowUse
    int8: Int8Use
    settings: Settings
    shape: ShapeRule | None
    """Rule for the shape of its first result; None: it depends on values, or is stated with the operator."""
    is_identity: bool
    """Whether it does nothing if its result has the shape and format of its operand."""
    decides: bool | None = None
    """Whether it is control flow: values decide what is picked, where, or how much. None: as its family."""
    execution: object = None
    """An `npusim.cost.execution.Execution`, how machines run it. None: that module lists it."""

    @property
    def known(self) -> bool:
        """False for an undeclared type: it is costed by the bytes that it moves, with a warning."""
        return self.family is not Family.UNKNOWN

    @property
    def work_class(self) -> WorkClass:
        """Class of its work."""
        return self.family.work_class

    @property
    def control_flow(self) -> bool:
        """Whether values decide what is picked, where, or how much."""
        return self.family.decides if self.decides is None else self.decides

    @property
    def rides_along(self) -> bool:
        """Whether another operator can apply it to each element of its result."""
        return self.work_class is WorkClass.POINTWISE


OPERATORS = Registry("npusim.operators", "operator type", OpType)
"""Every declared type by its OpenVINO name, also those of other packages."""


def op_type(name: str) -> OpType:
    """Return the declaration of an operator type; an undeclared one is of family `unknown`."""
    declared = OPERATORS.get(name)
    return declared if declared is not None else _unknown(name)


@cache
def _unknown(name: str) -> OpType:
    return OpType(
        name=name,
        family=Family.UNKNOWN,
        work=element_work,
        rows=RowUse.WHOLE,
        int8=Int8Use.NEEDS_FLOAT,
        settings=Settings(),
        shape=None,
        is_identity=False,
    )


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a graph."""

    name: str
    type: str
    """OpenVINO operation name, such as "MatMul"."""
    inputs: tuple[str, ...]
    """Tensors that it reads, in OpenVINO's order of ports."""
    outputs: tuple[str, ...]
    """Tensors that it writes."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """Settings by name: `strides`, `kernel`, `axes` (non-negative), `order`, `variable` (Assign) ..."""
    region: str = ""
    """Path of its part of the network, such as "layer0/aggregate" or "convs.0.lin"."""
    device: str | None = None
    """Preferred device of the SoC ("cpu", "npu", "gpu"). None: the mapping decides."""
    pinned: bool = False
    """Whether it always runs on its preferred device: work of the host around the network."""
    repeats: int = 1
    """Sequential executions per inference: iterations of a loop or recurrence."""
    part: str = ""
    """Compiled model that it belongs to, if a network is compiled and launched in parts."""

    @property
    def traits(self) -> OpType:
        """The declaration of its type."""
        return op_type(self.type)

    @property
    def family(self) -> Family:
        """Kind of work."""
        return self.traits.family

    def with_(self, **changes: Any) -> Operator:
        """Return a copy with some fields changed."""
        return replace(self, **changes)


def element_work(op: Operator, inputs: Tensors, outputs: Tensors) -> Work:
    """Return the elements of the largest tensor."""
    return Work(elements=float(max((t.elements for t in (*inputs, *outputs)), default=0)))
