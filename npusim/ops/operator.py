"""Operator: one node of a network, with its type, tensors and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from npusim.ops.catalogue import op_type
from npusim.ops.types import Family, OpType


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
    key that is not here is at OpenVINO's default."""
    region: str = ""
    """Part of the network it belongs to, such as "layer0/aggregate" or "preprocess"."""
    device: str | None = None
    """Preferred device of the SoC ("cpu", "npu", "gpu"); None lets the mapping decide."""
    repeats: int = 1
    """Times that it runs in one inference, each after the one before: iterations of a loop or recurrence."""

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
