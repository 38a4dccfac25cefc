"""Tensor: shape, number format, density and storage of what flows between operators."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from npusim.errors import ShapeError
from npusim.ops.dtypes import DType


class TensorKind(StrEnum):
    """Where a tensor comes from."""

    INPUT = "input"
    """Handed over by the host for every inference."""
    CONSTANT = "constant"
    """Baked into the model: weights, biases, a static mask."""
    ACTIVATION = "activation"
    """Made by an operator of the graph."""
    STATE = "state"
    """Kept from one inference to the next: read (ReadValue), updated, and written back (Assign)."""


class Storage(StrEnum):
    """How a tensor lies in DRAM."""

    DENSE = "dense"
    ZVC = "zvc"
    """Zero-value compression: a bitmap of one bit per element, then the non-zeros."""
    TRIANGLE = "triangle"
    """Lower triangle with the diagonal of a symmetric matrix: n (n + 1) / 2 elements (GraNNite's SymG)."""
    CSR = "csr"
    """Compressed rows: the non-zeros, a column index for each, and where each row starts; never unpacked."""


GRANULE = 16
"""Edge of the blocks that `Tensor.block_density` counts."""

CSR_INDEX_BYTES = 4
"""Bytes of a column index and of a row's start in compressed rows: 32-bit integers."""


class Annotation(StrEnum):
    """What a technique can ask for beside operators and formats, in words for messages."""

    DEVICE = "a preferred device"
    """`Operator.device`."""
    COMPRESSED = "compressed storage"
    """`Tensor.storage` with zero-value compression."""
    TRIANGLE = "storage as a triangle"
    """`Tensor.storage` as a triangle."""
    RESIDENT = "a tensor that stays in SRAM"
    """`Tensor.cached`."""


class Role(StrEnum):
    """What a tensor means to the network; techniques look for these."""

    NONE = ""
    EDGES = "edges"
    """The graph as a list of edges [2, E] (an input, or a constant made of it)."""
    ADJACENCY = "adjacency"
    """The graph as a dense 0/1 matrix [N, N]."""
    NORM = "norm"
    """The aggregation matrix with its normalisation [N, N]."""
    MASK = "mask"
    """The attention mask [N, N] or the neighbour mask of a pooling aggregation."""
    FEATURES = "features"
    WEIGHT = "weight"
    BIAS = "bias"


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: description only, no values."""

    name: str
    shape: tuple[int, ...]
    dtype: DType = DType.FP16
    kind: TensorKind = TensorKind.ACTIVATION
    role: Role = Role.NONE
    density: float = 1.0
    """Share of elements that are not zero, in [0, 1]."""
    block_density: float | None = None
    """Share of the MAC grid's granules (16 x 16 elements) that hold any non-zero; None: not known, zeros
    count as independent."""
    symmetric: bool = False
    storage: Storage = Storage.DENSE
    cached: bool = False
    """Whether to keep the tensor in SRAM from its first use to its last (GraNNite's CacheG)."""
    structural: bool = False
    """Depends on the graph's edges alone, not on its features: preprocessing."""
    fill: float | None = None
    """The value of all elements of a constant, where it has only one by its meaning."""
    scales_bytes: float = 0.0
    """Bytes of scales and zero points that are stored and moved with packed elements."""

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
        """Bytes of the tensor laid out for work: dense, but for compressed rows, which stay as stored."""
        if self.storage is Storage.CSR:
            return self.stored_bytes
        return self.elements * self.dtype.bytes + self.scales_bytes

    @property
    def nonzeros(self) -> int:
        """Elements that are not zero, by the density."""
        return round(self.elements * self.density)

    @property
    def stored_bytes(self) -> float:
        """Bytes of the tensor as it is stored in DRAM (see `Storage`)."""
        columns = self.shape[-1] if self.shape else 1
        stored = stored_bytes(self.elements, self.dtype, self.storage, self.density, columns)
        return stored + self.scales_bytes

    @property
    def annotations(self) -> frozenset[Annotation]:
        """What storage and residency ask for."""
        stored = {Storage.ZVC: Annotation.COMPRESSED, Storage.TRIANGLE: Annotation.TRIANGLE}
        asked = {Annotation.RESIDENT} if self.cached else set()
        return frozenset(asked | {stored[self.storage]} if self.storage in stored else asked)

    def with_(self, **changes: Any) -> Tensor:
        """Return a copy with some fields changed."""
        return replace(self, **changes)


def stored_bytes(elements: int, dtype: DType, storage: Storage, density: float, columns: int) -> float:
    """Bytes in DRAM of `elements` elements under a storage scheme.

    Parameters
    ----------
    elements : int
        Number of elements of the dense tensor.
    dtype : DType
        Element format.
    storage : Storage
        Dense; zero-value compression: one bit per element and the non-zeros (Cora's norm, fp16: 0.943 MB);
        triangle: n (n + 1) / 2 elements of a square matrix of n columns (GraNNite section IV-B); compressed
        rows: a 32-bit column index with each non-zero and a 32-bit start of each row.
    density : float
        Share of non-zeros, used by ZVC and compressed rows.
    columns : int
        Length of the last axis, used by the triangle and compressed rows.

    Returns
    -------
    float
        Bytes.
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
