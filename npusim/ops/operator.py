"""Operators and their types: a node of a network, and the declared traits that every package reads.

A type is declared once, as an `OpType`; a trait that is left out is a TypeError where it is declared. What
machines make of a type (kernel names, whether a MAC grid can run it) stands in `npusim.cost.execution`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Any

from npusim.ops.tensor import Tensor
from npusim.ops.work import Work, element_work
from npusim.plugins import Registry

WorkRule = Callable[["Operator", Sequence[Tensor], Sequence[Tensor]], Work]
"""(operator, its inputs, its outputs) -> how much it has to do."""

ShapeRule = Callable[[dict[str, Any], Sequence[tuple[int, ...]]], tuple[int, ...]]
"""(settings, shapes of the inputs) -> shape of the first result; a ShapeError where they do not fit."""


class WorkClass(StrEnum):
    """Classes of work: what a fusion or a cost model asks first."""

    CONTRACTION = "contraction"
    """Multiply-accumulates of two operands."""
    WINDOW = "window"
    """A value for each window of pixels, channel by channel."""
    POINTWISE = "pointwise"
    """Each element of the result from the same element of each operand: it can ride along on another."""
    ROW_WISE = "row-wise"
    """Rows along an axis, each by itself."""
    INDEXED = "indexed"
    """Rows read or written where an index says."""
    MOVE = "move"
    """Data laid out anew."""
    STATE = "state"
    """The same bytes under another shape or name, kept or handed on: no work."""
    GENERATE = "generate"
    """Tensors made from shapes or conditions."""
    COMPOSITE = "composite"
    """Several of these in one operator; its work rule counts them."""
    UNKNOWN = "unknown"


class Family(StrEnum):
    """Kinds of operators that rewrites and cost equations tell apart, each of one class of work."""

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
        """Whether values decide what its operators pick, and where: comparisons, choices, indices."""
        return self in (Family.COMPARE, Family.SELECT, Family.GATHER, Family.SCATTER)


_CLASSES = {
    Family.MATMUL: WorkClass.CONTRACTION,
    Family.AGGREGATE: WorkClass.CONTRACTION,
    Family.CONVOLUTION: WorkClass.CONTRACTION,
    Family.DEPTHWISE: WorkClass.CONTRACTION,
    Family.POOLING: WorkClass.WINDOW,
    Family.ELTWISE: WorkClass.POINTWISE,
    Family.COMPARE: WorkClass.POINTWISE,
    Family.SELECT: WorkClass.POINTWISE,
    Family.ACTIVATION: WorkClass.POINTWISE,
    Family.CONVERT: WorkClass.POINTWISE,
    Family.SOFTMAX: WorkClass.ROW_WISE,
    Family.REDUCE: WorkClass.ROW_WISE,
    Family.GATHER: WorkClass.INDEXED,
    Family.SCATTER: WorkClass.INDEXED,
    Family.MOVE: WorkClass.MOVE,
    Family.VIEW: WorkClass.STATE,
    Family.GENERATE: WorkClass.GENERATE,
    Family.COMPOSITE: WorkClass.COMPOSITE,
    Family.UNKNOWN: WorkClass.UNKNOWN,
}


class RowUse(StrEnum):
    """Which rows of its operands a row of the result needs (rows: the first axis longer than 1)."""

    WHOLE = "whole"
    """All of them."""
    SAME = "same"
    """The same row of each operand."""
    ALONG_AXES = "along_axes"
    """The same row, unless its axes are those of the rows."""
    LEFT_OPERAND = "left_operand"
    """The same row of the first operand, all of the second."""
    IMAGE = "image"
    """The same image and channel: windows cross neither."""
    MADE = "made"
    """Made row after row, from any rows of the operands."""


class Int8Use(StrEnum):
    """What an operator does with 8-bit integers in place of floating-point numbers."""

    MULTIPLIES = "multiplies"
    """Takes them as both operands of a product."""
    PASSES = "passes"
    """Hands them on: moves, picks, compares, or the grid's output stage adds and scales."""
    NEEDS_FLOAT = "needs_float"
    """Computes in floating point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an imported operator brings along beside its data operands."""

    ports: frozenset[int] = frozenset()
    """Operands that are settings: where one is a constant, it moves no data at run time."""
    axes: int | str | None = None
    """Port, or attribute of the file, that holds `attrs["axes"]`."""
    attributes: tuple[str, ...] = ()
    """Attributes of the file that are taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpType:
    """The declaration of one type of operator."""

    name: str
    """OpenVINO's name of the operation."""
    family: Family
    work: WorkRule
    """How much there is to do."""
    rows: RowUse
    """Whether it can be fused row by row with the operators before and after it."""
    int8: Int8Use
    settings: Settings
    shape: ShapeRule | None
    """Shape of its first result; None: it follows from values, or whoever adds the operator says it."""
    is_identity: bool
    """Whether it does nothing where its result has the shape and format of its operand."""
    decides: bool | None = None
    """Whether values decide what is picked, where, or how much there is of it (control flow); None: as its
    family."""
    execution: object = None
    """How machines run it, an `npusim.cost.execution.Execution`; None: that module lists it."""

    @property
    def known(self) -> bool:
        """False for a type that nobody declared: costed by the bytes it moves, with a warning."""
        return self.family is not Family.UNKNOWN

    @property
    def work_class(self) -> WorkClass:
        """Class of its work."""
        return self.family.work_class

    @property
    def control_flow(self) -> bool:
        """Whether values decide what is picked, where it is found or how much there is of it."""
        return self.family.decides if self.decides is None else self.decides

    @property
    def rides_along(self) -> bool:
        """Whether it can be applied to each element of another operator's result on its way out."""
        return self.work_class is WorkClass.POINTWISE


OPERATORS = Registry("npusim.operators", "operator type", OpType)
"""Every declared type by its OpenVINO name: npusim's own, and those that other packages register."""


def op_type(name: str) -> OpType:
    """Return the declaration of an operator type; of family `unknown` for one that nobody declared."""
    found = OPERATORS.get(name)
    return found if found is not None else _unknown(name)


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
    """Names of the tensors read, in OpenVINO's order of ports."""
    outputs: tuple[str, ...]
    """Names of the tensors written."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """Settings: `transpose_a`, `transpose_b` (MatMul); `strides`, `pads_begin`, `pads_end`, `dilations`
    (Convolution, pooling), `kernel` (pooling), `groups`; `axes` (Softmax, Reduce, Gather, Scatter, Concat:
    non-negative); `order` (Transpose); `reduction` (Scatter: "none", "sum", "max", "mean"); `slope` ...; a
    key that is not here is at OpenVINO's default. `variable` (Assign): the state that is written."""
    region: str = ""
    """Path of the part of the network it belongs to, such as "layer0/aggregate", "preprocess" or, of an
    imported model, "convs.0.lin"; `Graph.regions` tells block and phase."""
    device: str | None = None
    """Preferred device of the SoC ("cpu", "npu", "gpu"); None lets the mapping decide."""
    pinned: bool = False
    """Whether it stays on its preferred device wherever the network is sent: work of the host around it."""
    repeats: int = 1
    """Times that it runs in one inference, each after the one before: iterations of a loop or recurrence."""
    part: str = ""
    """Compiled model that it belongs to, of a network that is compiled, launched and fed part by part."""

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
