"""Tensors, operators, their types and the amount of their work.

A type is declared once, as an `OpType`; a missing trait is a TypeError at its declaration. How machines run a
type (kernel names, support by a MAC grid) is in `npusim.cost.lowering.execution`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Any

from npusim.errors import ShapeError, UnknownNameError
from npusim.ops.formats import FORMATS, dense_bytes
from npusim.ops.sparsity import index_bits
from npusim.plugins import Registry


class DType(StrEnum):
    """An element format: the names of `configs/formats.yaml`, those that the code speaks of written out."""

    _ignore_ = "_names _name"
    _names = vars()
    FP64 = "fp64"
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    INT4 = "int4"
    UINT4 = "uint4"
    BOOL = "bool"
    for _name in FORMATS:
        if _name.upper() not in _names:
            _names[_name.upper()] = _name

    @property
    def bits(self) -> int:
        """Bits of an element in memory (8 for a boolean), without the scale of its block."""
        return _BITS[self._value_]  # not `value`, a slow descriptor: there are millions of calls

    @property
    def bytes(self) -> float:
        """Bytes of an element in memory (int4: 0.5) with its share of a scale."""
        return _STORED_BYTES[self._value_]

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point format."""
        return _IS_FLOAT[self._value_]

    @classmethod
    def parse(cls, name: str) -> DType:
        """Return the dtype of a name; an `UnknownNameError` names the nearest one."""
        try:
            return cls(name.lower())
        except ValueError:
            raise UnknownNameError("dtype", name, [d.value for d in cls]) from None


_BITS = {name: form.bits for name, form in FORMATS.items()}
_STORED_BYTES = {name: form.stored_bits / 8 for name, form in FORMATS.items()}
_IS_FLOAT = {name: form.kind == "float" for name, form in FORMATS.items()}


class TensorKind(StrEnum):
    """Where a tensor comes from."""

    INPUT = "input"  # passed by the host for every inference
    CONSTANT = "constant"  # part of the model: weights, biases, a static mask
    ACTIVATION = "activation"  # written by an operator of the graph
    STATE = "state"  # kept between inferences: read (ReadValue), updated, and written back (Assign)


class Storage(StrEnum):
    """Layout of a tensor in DRAM."""

    DENSE = "dense"
    ZVC = "zvc"  # zero-value compression: a bitmap of one bit per element, then the non-zeros
    TRIANGLE = "triangle"  # lower triangle with the diagonal: n (n + 1) / 2 elements (SymG)
    CSR = "csr"  # compressed rows: non-zeros, their column indices and the start of each row; never unpacked


GRANULE = 16
"""Edge of the blocks that `Tensor.block_density` counts."""

CSR_INDEX_BYTES = 4
"""Bytes of a column index and of a row's start in compressed rows: 32-bit integers."""


class Annotation(StrEnum):
    """Requests of techniques other than operators and formats, in words for messages."""

    DEVICE = "a preferred device"  # `Operator.device`
    COMPRESSED = "compressed storage"  # `Tensor.storage` with zero-value compression
    TRIANGLE = "storage as a triangle"  # `Tensor.storage` as a triangle
    RESIDENT = "a tensor that stays in SRAM"  # `Tensor.cached`


class Role(StrEnum):
    """Meaning of a tensor in the network, by which techniques find it."""

    NONE = ""
    EDGES = "edges"  # the graph as a list of edges [2, E]: an input, or a constant computed from it
    ADJACENCY = "adjacency"  # the graph as a dense 0/1 matrix [N, N]
    NORM = "norm"  # the aggregation matrix with its normalisation [N, N]
    MASK = "mask"  # the attention mask [N, N] or the neighbour mask of a pooling aggregation
    FEATURES = "features"
    WEIGHT = "weight"
    BIAS = "bias"


@dataclass(frozen=True, slots=True)
class Tensor:
    """The description of a tensor, without values."""

    name: str
    shape: tuple[int, ...]
    dtype: DType = DType.FP16
    kind: TensorKind = TensorKind.ACTIVATION
    role: Role = Role.NONE
    density: float = 1.0
    """Share of elements that are not zero, in [0, 1]."""
    block_density: float | None = None
    """Share of 16 x 16 granules that hold a non-zero. None: zeros count as independent."""
    symmetric: bool = False
    storage: Storage = Storage.DENSE
    cached: bool = False
    """Whether to keep the tensor in SRAM from its first use to its last (GraNNite's CacheG)."""
    structural: bool = False
    """Whether it follows from the edges alone, not from features: preprocessing."""
    fill: float | None = None
    """Value of all elements of a constant, if its meaning determines it."""
    scales_bytes: float = 0.0
    """Bytes of the scales and zero points of packed elements, beside those of their format."""
    pattern: str = ""
    """Pattern of the zeros, a `npusim.ops.sparsity.PatternName`; "": anywhere."""
    channels: int | None = None
    """Output channels of weights with a pattern. None: the first axis."""
    value: str = field(default="", repr=False, compare=False)
    """Digest of an imported constant's numbers, or of the settings of the operator that computes it."""

    def __post_init__(self) -> None:
        if any((not isinstance(d, int)) or d < 0 for d in self.shape):
            raise ShapeError(
                f"tensor {self.name!r}: shape {self.shape} has a dimension that is not a whole number >= 0"
            )
        if not (0.0 <= self.density <= 1.0) or math.isnan(self.density):
            raise ShapeError(f"tensor {self.name!r}: density {self.density} is not in [0, 1]")
        if self.block_density is not None and not (0.0 <= self.block_density <= self._most_blocks):
            raise ShapeError(
                f"tensor {self.name!r}: block density {self.block_density} is not in "
                f"[0, {self._most_blocks:.4g}], what a density of {self.density:.4g} allows"
            )

    @property
    def _most_blocks(self) -> float:
        """Highest block density: every non-zero in a granule of its own; 1 % for rounded statistics."""
        return min(1.0, 1.01 * GRANULE**2 * self.density)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> float:
        """Bytes of the tensor during work: dense, except compressed rows."""
        if self.storage is Storage.CSR:
            return self.stored_bytes
        return dense_bytes(self.elements, self.dtype) + self.scales_bytes

    @property
    def nonzeros(self) -> int:
        """Number of non-zeros, by the density."""
        return round(self.elements * self.density)

    @property
    def stored_bytes(self) -> float:
        """Bytes of the tensor in DRAM (see `Storage`)."""
        columns = self.shape[-1] if self.shape else 1
        stored = stored_bytes(self.elements, self.dtype, self.storage, self.density, columns)
        if self.pattern and self.storage is Storage.ZVC:
            kept_bytes = stored - self.elements / 8
            channels = self.shape[0] if self.channels is None else self.channels
            stored = kept_bytes + index_bits(self.pattern, self.elements, channels, self.density) / 8
        return stored + self.scales_bytes

    @property
    def annotations(self) -> frozenset[Annotation]:
        """Annotations of its storage and residency."""
        stored = {Storage.ZVC: Annotation.COMPRESSED, Storage.TRIANGLE: Annotation.TRIANGLE}
        residency = {Annotation.RESIDENT} if self.cached else set()
        return frozenset(residency | {stored[self.storage]} if self.storage in stored else residency)

    def with_(self, **changes: Any) -> Tensor:
        """Return a copy with some fields changed."""
        return replace(self, **changes)


def stored_bytes(elements: int, dtype: DType, storage: Storage, density: float, columns: int) -> float:
    """Return the bytes in DRAM of a tensor of a density, whose last axis has a number of columns.

    Zero-value compression takes one bit per element and the non-zeros (Cora's norm, fp16: 0.943 MB); a
    triangle n (n + 1) / 2 elements of a square matrix of n columns (GraNNite, section IV-B); compressed rows
    a 32-bit column index per non-zero and a 32-bit start per row.
    """
    if storage is Storage.ZVC:
        return elements / 8 + elements * density * dtype.bytes
    if storage is Storage.TRIANGLE:
        matrices = elements / (columns * columns) if columns else 0.0
        return matrices * columns * (columns + 1) / 2 * dtype.bytes
    if storage is Storage.CSR:
        rows = elements / columns if columns else 0.0
        return elements * density * (dtype.bytes + CSR_INDEX_BYTES) + (rows + 1) * CSR_INDEX_BYTES
    return dense_bytes(elements, dtype)


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
    """An `npusim.cost.lowering.execution.Execution`, how machines run it. None: that module lists it."""

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
