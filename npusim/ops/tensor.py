"""Tensors between operators: shape, number format, density and storage."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from npusim.errors import ShapeError, UnknownNameError


class DType(StrEnum):
    """An element format."""

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

    @property
    def bits(self) -> int:
        """Bits of an element in memory (8 for a boolean)."""
        return _BITS[self._value_]  # not `value`, a slow descriptor: there are millions of calls

    @property
    def bytes(self) -> float:
        """Bytes of an element in memory (int4: 0.5)."""
        return self.bits / 8

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point format."""
        return self.value.startswith(("fp", "bf"))

    @classmethod
    def parse(cls, name: str) -> DType:
        """Return the dtype of a name; an `UnknownNameError` names the nearest one."""
        try:
            return cls(name.lower())
        except ValueError:
            raise UnknownNameError("dtype", name, [d.value for d in cls]) from None


_BITS = {dtype.value: int(dtype.value.lstrip("abfilnoptu") or 8) for dtype in DType}


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
    """Bytes of the scales and zero points of packed elements."""

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
        return self.elements * self.dtype.bytes + self.scales_bytes

    @property
    def nonzeros(self) -> int:
        """Number of non-zeros, by the density."""
        return round(self.elements * self.density)

    @property
    def stored_bytes(self) -> float:
        """Bytes of the tensor in DRAM (see `Storage`)."""
        columns = self.shape[-1] if self.shape else 1
        stored = stored_bytes(self.elements, self.dtype, self.storage, self.density, columns)
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
    return elements * dtype.bytes
