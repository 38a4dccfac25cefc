"""Rounding to 8 bits as OpenVINO writes it, so that a device really multiplies bytes.

Like marking a pattern for the tailor: the cloth is still whole, chalk lines (FakeQuantize) say where to cut,
and the device cuts there if it has the scissors. Signed and symmetric throughout, 256 levels, between -1 and
1: what the values are does not matter to the time they take.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.graph import Graph
from npusim.ops import DType, Family, Tensor

__all__ = ["rounded", "rounds_here", "stored", "unpacked"]

_LEVELS = 256
_LARGEST = 127
_PRODUCTS = (Family.MATMUL, Family.CONVOLUTION, Family.DEPTHWISE)
_SAME_VALUES = (Family.GATHER, Family.VIEW, Family.MOVE)
"""Operators whose result is rounded where their operand is."""


def rounded(ops: Any, node: Any, carrier: str) -> Any:
    """Return a FakeQuantize of a floating-point node; `carrier` is OpenVINO's name of its format."""
    high = ops.convert(ops.constant(np.float32(1.0)), carrier) if carrier != "f32" else np.float32(1.0)
    least = np.float32(-(_LARGEST + 1) / _LARGEST)
    low = ops.convert(ops.constant(least), carrier) if carrier != "f32" else least
    return ops.fake_quantize(node, low, high, low, high, _LEVELS)


def unpacked(ops: Any, node: Any, carrier: str) -> Any:
    """Return the real numbers that a node of bytes stands for: Convert and Multiply, which devices fold."""
    scale = ops.constant(np.float32(1.0 / _LARGEST))
    scale = ops.convert(scale, carrier) if carrier != "f32" else scale
    return ops.multiply(ops.convert(node, carrier), scale)


def stored(graph: Graph, tensor: Tensor, values: npt.NDArray[np.float32]) -> npt.NDArray[Any] | None:
    """Return a constant's bytes where it must be kept as bytes; None where rounding stands in the model.

    OpenVINO's CPU folds the FakeQuantize of a constant on the left of a product (an aggregation matrix) and
    multiplies floats; kept as bytes it is multiplied as bytes. On the right (weights) it knows both.
    """
    left = any(
        op.family is Family.MATMUL and op.inputs[0] == tensor.name for op in graph.readers(tensor.name)
    )
    return np.round(values * _LARGEST).astype(np.int8) if left else None


def rounds_here(graph: Graph, tensor: Tensor) -> bool:
    """Whether an 8-bit result is rounded right behind its operator.

    A chain of product, bias and activation is rounded once, at its end, as the output stage of a grid does
    and as OpenVINO's quantised models have it.
    """
    if tensor.dtype is not DType.INT8:
        return False
    writer = graph.writer(tensor.name)
    if writer is None:
        return False
    if writer.family in _SAME_VALUES and graph.tensors[writer.inputs[0]].dtype is DType.INT8:
        return False
    return any(op.family in (*_PRODUCTS, *_SAME_VALUES) for op in graph.readers(tensor.name))
