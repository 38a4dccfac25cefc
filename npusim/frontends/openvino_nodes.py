"""How each operator type is written as an OpenVINO node: settings become constant operands.

The inverse of reading settings (`npusim.ops.Settings`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.errors import NpusimError
from npusim.ops import DType, Operator, Tensor

ELEMENT_TYPES: Mapping[DType, str] = {
    DType.FP64: "f64",
    DType.FP32: "f32",
    DType.FP16: "f16",
    DType.BF16: "bf16",
    DType.INT64: "i64",
    DType.INT32: "i32",
    DType.INT16: "i16",
    DType.INT8: "i8",
    DType.UINT8: "u8",
    DType.BOOL: "boolean",
}
"""OpenVINO's name of each number format that can be written."""

WriteRule = Callable[[Any, Operator, Sequence[Any], Tensor, Tensor], Any]
"""(operation set, operator, written operands, first operand's tensor, result's tensor) -> node."""


@dataclass(frozen=True, slots=True)
class Writer:
    """How a type of operator is written."""

    write: WriteRule
    reproduces_values: bool
    """Whether the node computes the operator's values; False: it only takes the operator's time."""


class UnwritableError(NpusimError):
    """An operator or tensor that cannot be written as an OpenVINO model."""


def _same_name(function: str) -> WriteRule:
    return lambda ops, _, inputs, __, ___: getattr(ops, function)(*inputs)


def _integers(ops: Any, values: Sequence[int]) -> Any:
    return ops.constant(np.asarray(values, dtype=np.int64))


def _matmul(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    transposed = bool(op.attrs.get("transpose_a")), bool(op.attrs.get("transpose_b"))
    return ops.matmul(inputs[0], inputs[1], *transposed)


def _assign(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    return ops.assign(inputs[0].get_node(), op.attrs["variable"])


def _slice(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    """Take the last elements of each axis: which ones are taken is not known, and hardly changes the time."""
    starts = [whole - part for whole, part in zip(source.shape, result.shape, strict=True)]
    ones, axes = [1] * len(starts), range(len(starts))
    return ops.slice(inputs[0], *(_integers(ops, list(v)) for v in (starts, source.shape, ones, axes)))


def _by_axis(function: str) -> WriteRule:
    def write(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
        return getattr(ops, function)(inputs[0], axis=_axis(op, len(source.shape) - 1))

    return write


def _axis(op: Operator, default: int) -> int:
    return int((*op.attrs.get("axes", ()), default)[0])


def _reduce(function: str) -> WriteRule:
    def write(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
        axes = _integers(ops, op.attrs.get("axes", range(len(source.shape))))
        return getattr(ops, function)(inputs[0], axes, keep_dims=bool(op.attrs.get("keep_dims")))

    return write


def _concat(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    return ops.concat(list(inputs), axis=_axis(op, 0))


def _gather(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    return ops.gather(inputs[0], inputs[1], ops.constant(np.int64(_axis(op, 0))))


def _gather_elements(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    return ops.gather_elements(inputs[0], inputs[1], _axis(op, 0))


def _gather_nd(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    return ops.gather_nd(inputs[0], inputs[1])


def _scatter_elements(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    reduction = op.attrs.get("reduction", "none")
    # A maximum over messages must not see the blank's zero; a sum may start from it, which is one pass less.
    initial = bool(op.attrs.get("use_init_val", reduction in ("none", "sum")))
    axis = ops.constant(np.int64(_axis(op, 0)))
    return ops.scatter_elements_update(*inputs[:3], axis, reduction=reduction, use_init_val=initial)


def _scatter_nd(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    return ops.scatter_nd_update(*inputs[:3], reduction=op.attrs.get("reduction", "none"))


def _reshape(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    return ops.reshape(inputs[0], _integers(ops, result.shape), special_zero=False)


def _unsqueeze(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    return ops.unsqueeze(inputs[0], _integers(ops, _inserted(op, source.shape, result.shape)))


def _squeeze(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    return ops.squeeze(inputs[0], _integers(ops, _inserted(op, result.shape, source.shape)))


def _inserted(op: Operator, short: tuple[int, ...], long: tuple[int, ...]) -> list[int]:
    """Return the places of the ones that make the longer shape of the shorter one."""
    axes, left = [], list(short)
    for axis, size in enumerate(long):
        if left and left[0] == size:
            left.pop(0)
        elif size == 1:
            axes.append(axis)
    if left or len(long) - len(axes) != len(short):
        raise UnwritableError(
            f"operator {op.name!r} ({op.type}): {short} and {long} differ by more than ones"
        )
    return axes


def _transpose(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    order = op.attrs.get("order", tuple(reversed(range(len(source.shape)))))
    return ops.transpose(inputs[0], _integers(ops, order))


def _broadcast(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    if op.attrs.get("mode") == "explicit":
        raise UnwritableError(f"operator {op.name!r} (Broadcast): the axes that it fills are not known")
    return ops.broadcast(inputs[0], _integers(ops, result.shape))


def _convert(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    return ops.convert(inputs[0], ELEMENT_TYPES[result.dtype])


def _elu(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    return ops.elu(inputs[0], float(op.attrs.get("alpha", 1.0)))


def _window(op: Operator, rank: int) -> dict[str, list[int]]:
    """Return strides and padding of a convolution or pooling over `rank` spatial dimensions."""
    defaults = {"strides": 1, "pads_begin": 0, "pads_end": 0, "dilations": 1}
    return {key: list(op.attrs.get(key, (value,) * rank)) for key, value in defaults.items()}


def _convolution(function: str) -> WriteRule:
    def write(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
        window = _window(op, len(source.shape) - 2)
        return getattr(ops, function)(inputs[0], inputs[1], **window)

    return write


def _max_pool(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    kernel = list(op.attrs["kernel"])
    return ops.max_pool(inputs[0], **_window(op, len(kernel)), kernel_shape=kernel)


def _avg_pool(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    kernel = list(op.attrs["kernel"])
    window = _window(op, len(kernel))
    del window["dilations"]
    exclude_pad = bool(op.attrs.get("exclude-pad", True))
    return ops.avg_pool(inputs[0], **window, kernel_shape=kernel, exclude_pad=exclude_pad)


def _backprop(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    window = _window(op, len(source.shape) - 2)
    return ops.convolution_backprop_data(inputs[0], inputs[1], window.pop("strides"), **window)


def _interpolate(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    axes = range(2, len(source.shape))
    sizes, places = _integers(ops, result.shape[2:]), _integers(ops, list(axes))
    return ops.interpolate(inputs[0], sizes, op.attrs.get("mode", "nearest"), "sizes", axes=places)


def _variadic_split(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    axis = _axis(op, 0)
    return ops.variadic_split(inputs[0], ops.constant(np.int64(axis)), _integers(ops, op.attrs["lengths"]))


def _mvn(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    scaled = bool(op.attrs.get("normalize_variance", True))
    eps, mode = float(op.attrs.get("eps", 1e-5)), str(op.attrs.get("eps_mode", "inside_sqrt")).lower()
    return ops.mvn(inputs[0], _integers(ops, op.attrs["axes"]), scaled, eps, mode)


def _swish(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    beta = inputs[1] if len(inputs) > 1 else ops.constant(1.0, inputs[0].get_element_type())
    return ops.swish(inputs[0], beta)


def _gelu(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    return ops.gelu(inputs[0], str(op.attrs.get("approximation_mode", "erf")).lower())


def _clamp(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    return ops.clamp(inputs[0], float(op.attrs["min"]), float(op.attrs["max"]))


def _region(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    boxes, coordinates = int(op.attrs["num"]), 4
    classes = source.shape[1] // boxes - coordinates - 1
    anchors = [1.0] * (2 * boxes)
    return ops.region_yolo(
        inputs[0], coordinates, classes, boxes, False, list(range(boxes)), 1, 3, anchors=anchors
    )


_DETECTION = {
    "background_label_id": 0, "share_location": True, "code_type": "caffe.PriorBoxParameter.CENTER_SIZE",
    "nms_threshold": 0.6, "confidence_threshold": 0.3, "normalized": True,
    "variance_encoded_in_target": False,
}  # fmt: skip
"""Settings of detection that change no shape, as the Open Model Zoo's SSDs have them."""


def _detection(ops: Any, op: Operator, inputs: Sequence[Any], source: Tensor, result: Tensor) -> Any:
    kept = list(op.attrs["keep_top_k"])
    return ops.detection_output(*inputs, {**_DETECTION, "top_k": int(op.attrs["top_k"]), "keep_top_k": kept})


_REPRODUCING: Mapping[str, WriteRule] = {
    **{
        name: _same_name(function)
        for name, function in {
            "Add": "add", "Subtract": "subtract", "Multiply": "multiply", "Divide": "divide",
            "Maximum": "maximum", "Minimum": "minimum", "Power": "power", "FloorMod": "floor_mod",
            "SquaredDifference": "squared_difference", "Greater": "greater", "GreaterEqual": "greater_equal",
            "Less": "less", "LessEqual": "less_equal", "Equal": "equal", "NotEqual": "not_equal",
            "LogicalAnd": "logical_and", "LogicalOr": "logical_or", "LogicalNot": "logical_not",
            "Select": "select", "Relu": "relu", "PRelu": "prelu", "Sigmoid": "sigmoid", "Tanh": "tanh",
            "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Abs": "abs", "Negative": "negative", "Erf": "erf",
            "Floor": "floor", "Ceiling": "ceiling", "HSwish": "hswish", "SoftPlus": "softplus",
            "Mish": "mish", "Sin": "sin", "Cos": "cos",
        }.items()
    },
    **{
        name: _reduce(function)
        for name, function in {
            "ReduceSum": "reduce_sum", "ReduceMean": "reduce_mean", "ReduceMax": "reduce_max",
            "ReduceMin": "reduce_min", "ReduceProd": "reduce_prod", "ReduceL2": "reduce_l2",
        }.items()
    },
    "Assign": _assign,
    "MatMul": _matmul,
    "Softmax": _by_axis("softmax"),
    "LogSoftmax": _by_axis("log_softmax"),
    "Concat": _concat,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElementsUpdate": _scatter_elements,
    "ScatterNDUpdate": _scatter_nd,
    "Reshape": _reshape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Broadcast": _broadcast,
    "Convert": _convert,
    "Elu": _elu,
    "Convolution": _convolution("convolution"),
    "GroupConvolution": _convolution("group_convolution"),
    "MaxPool": _max_pool,
    "AvgPool": _avg_pool,
    "ConvolutionBackpropData": _backprop,
    "VariadicSplit": _variadic_split,
    "MVN": _mvn,
    "Clamp": _clamp,
    "Gelu": _gelu,
    "Swish": _swish,
}  # fmt: skip
"""Writers of nodes that compute what the operator computes."""

_TIMING_ONLY: Mapping[str, WriteRule] = {
    "Slice": _slice,  # where it starts is not known
    "Interpolate": _interpolate,  # which pixels it reads is not known
    "RegionYolo": _region,  # its anchors are not known
    "DetectionOutput": _detection,  # its thresholds are not known
}
"""Writers of nodes that take the operator's time, and compute other values."""

WRITERS: Mapping[str, Writer] = {
    **{kind: Writer(rule, reproduces_values=True) for kind, rule in _REPRODUCING.items()},
    **{kind: Writer(rule, reproduces_values=False) for kind, rule in _TIMING_ONLY.items()},
}
"""How each type that can be written is written."""
