"""How each operator type is written as an OpenVINO node: settings become constant operands.

The inverse of reading settings (`npusim.ops.Settings`). A writer is `Exact`, or `ForTiming` where the
operator does not say all that its values depend on. Only exact ones take part in an export.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.errors import NpusimError
from npusim.ops import DType, Operator, Tensor

_ELEMENT_TYPES = {
    DType.FP64: "f64",
    DType.FP32: "f32",
    DType.FP16: "f16",
    DType.BF16: "bf16",
    DType.INT64: "i64 u64",
    DType.INT32: "i32 u32",
    DType.INT16: "i16 u16",
    DType.INT8: "i8",
    DType.UINT8: "u8 f8e4m3 f8e5m2",
    DType.INT4: "i4",
    DType.UINT4: "u4 nf4 f4e2m1",
    DType.BOOL: "boolean",
}
"""OpenVINO's element types of each number format, the one that is written first."""
DTYPES = {name: dtype for dtype, names in _ELEMENT_TYPES.items() for name in names.split()}
"""Number format of each element type of OpenVINO; a format without a name here has one of its size."""
ELEMENT_TYPES = {dtype: names.split()[0] for dtype, names in _ELEMENT_TYPES.items() if dtype.bits >= 8}
"""OpenVINO's name of each number format that can be written."""


class UnwritableError(NpusimError):
    """An operator or tensor that cannot be written as an OpenVINO model."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a writer needs to make the node of an operator."""

    ops: Any  # OpenVINO's operation set
    op: Operator
    inputs: Sequence[Any]  # nodes of its operands
    source: Tensor  # its first operand
    result: Tensor  # its first result

    @property
    def rank(self) -> int:
        """Dimensions of the first operand."""
        return len(self.source.shape)

    def setting(self, name: str, default: Any) -> Any:
        """Return a setting, or OpenVINO's default."""
        return self.op.attrs.get(name, default)

    def integers(self, values: Sequence[int]) -> Any:
        """Return a constant of integers."""
        return self.ops.constant(np.asarray(values, dtype=np.int64))

    def axis(self, default: int = 0) -> int:
        """Return the first axis of the operator."""
        return int((*self.setting("axes", ()), default)[0])

    def axis_node(self) -> Any:
        """Return the first axis as a constant."""
        return self.ops.constant(np.int64(self.axis()))

    def window(self, *without: str) -> dict[str, list[int]]:
        """Return strides, padding and dilations of a convolution or pooling."""
        values = {"strides": 1, "pads_begin": 0, "pads_end": 0, "dilations": 1}
        window = {key: list(self.setting(key, (v,) * (self.rank - 2))) for key, v in values.items()}
        return {key: sizes for key, sizes in window.items() if key not in without}


WriteRule = Callable[[Call], Any]


def _same_name(function: str) -> WriteRule:
    return lambda call: getattr(call.ops, function)(*call.inputs)


def _by_axis(function: str) -> WriteRule:
    return lambda call: getattr(call.ops, function)(call.inputs[0], axis=call.axis(call.rank - 1))


def _convolution(function: str) -> WriteRule:
    return lambda call: getattr(call.ops, function)(*call.inputs[:2], **call.window())


def _reduce(function: str) -> WriteRule:
    def write(call: Call) -> Any:
        axes, keep = call.integers(call.setting("axes", range(call.rank))), call.setting("keep_dims", False)
        return getattr(call.ops, function)(call.inputs[0], axes, keep_dims=bool(keep))

    return write


def _slice(call: Call) -> Any:
    """Take the last elements of each axis: where a slice starts is not known, and hardly changes the time."""
    starts = [whole - part for whole, part in zip(call.source.shape, call.result.shape, strict=True)]
    ends = (starts, call.source.shape, [1] * len(starts), range(len(starts)))
    return call.ops.slice(call.inputs[0], *(call.integers(list(values)) for values in ends))


def _scatter_elements(call: Call) -> Any:
    reduction = call.setting("reduction", "none")
    # A maximum over messages must not see the blank's zero; a sum may start from it, which is one pass less.
    initial = bool(call.setting("use_init_val", reduction in ("none", "sum")))
    operands = (*call.inputs[:3], call.axis_node())
    return call.ops.scatter_elements_update(*operands, reduction=reduction, use_init_val=initial)


def _inserted_axes(op: Operator, short: tuple[int, ...], long: tuple[int, ...]) -> list[int]:
    """Return the axes of length 1 that make the longer shape of the shorter one."""
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


def _unsqueeze(call: Call) -> Any:
    axes = _inserted_axes(call.op, call.source.shape, call.result.shape)
    return call.ops.unsqueeze(call.inputs[0], call.integers(axes))


def _squeeze(call: Call) -> Any:
    axes = _inserted_axes(call.op, call.result.shape, call.source.shape)
    return call.ops.squeeze(call.inputs[0], call.integers(axes))


def _transpose(call: Call) -> Any:
    order = call.setting("order", range(call.rank)[::-1])
    return call.ops.transpose(call.inputs[0], call.integers(order))


def _reshape(call: Call) -> Any:
    """Fix all sizes; of an operand whose size depends on values, one size follows from it."""
    sizes, operand = list(call.result.shape), call.inputs[0].get_partial_shape()
    if operand.is_dynamic:
        fixed = math.prod(d.get_length() for d in operand if d.is_static)
        rests = [i for i, size in enumerate(sizes) if math.prod(sizes) == fixed * size]
        if sum(d.is_dynamic for d in operand) != 1 or not rests:
            raise UnwritableError(f"operator {call.op.name!r} (Reshape): its sizes depend on values")
        sizes[rests[0]] = -1
    return call.ops.reshape(call.inputs[0], call.integers(sizes), special_zero=False)


def _broadcast(call: Call) -> Any:
    if call.inputs[0].get_partial_shape().is_dynamic:
        raise UnwritableError(f"operator {call.op.name!r} (Broadcast): its sizes depend on values")
    if call.setting("mode", "numpy") == "explicit":
        raise UnwritableError(f"operator {call.op.name!r} (Broadcast): the axes that it fills are not known")
    return call.ops.broadcast(call.inputs[0], call.integers(call.result.shape))


def _max_pool(call: Call) -> Any:
    return call.ops.max_pool(call.inputs[0], **call.window(), kernel_shape=list(call.op.attrs["kernel"]))


def _avg_pool(call: Call) -> Any:
    kernel, exclude_pad = list(call.op.attrs["kernel"]), bool(call.setting("exclude-pad", True))
    window = call.window("dilations")
    return call.ops.avg_pool(call.inputs[0], **window, kernel_shape=kernel, exclude_pad=exclude_pad)


def _backprop(call: Call) -> Any:
    window = call.window()
    return call.ops.convolution_backprop_data(*call.inputs[:2], window.pop("strides"), **window)


def _interpolate(call: Call) -> Any:
    axes, sizes = call.integers(range(2, call.rank)), call.integers(call.result.shape[2:])
    return call.ops.interpolate(call.inputs[0], sizes, call.setting("mode", "nearest"), "sizes", axes=axes)


def _mvn(call: Call) -> Any:
    scaled, eps = bool(call.setting("normalize_variance", True)), float(call.setting("eps", 1e-5))
    mode = str(call.setting("eps_mode", "inside_sqrt")).lower()
    return call.ops.mvn(call.inputs[0], call.integers(call.op.attrs["axes"]), scaled, eps, mode)


def _swish(call: Call) -> Any:
    source = call.inputs[0]
    beta = call.inputs[1] if len(call.inputs) > 1 else call.ops.constant(1.0, source.get_element_type())
    return call.ops.swish(source, beta)


def _region(call: Call) -> Any:
    boxes, coordinates = int(call.op.attrs["num"]), 4
    classes, anchors = call.source.shape[1] // boxes - coordinates - 1, [1.0] * (2 * boxes)
    sizes = (coordinates, classes, boxes, False, list(range(boxes)), 1, 3)
    return call.ops.region_yolo(call.inputs[0], *sizes, anchors=anchors)


_DETECTION = {
    "background_label_id": 0,
    "share_location": True,
    "code_type": "caffe.PriorBoxParameter.CENTER_SIZE",
    "nms_threshold": 0.6,
    "confidence_threshold": 0.3,
    "normalized": True,
    "variance_encoded_in_target": False,
}
"""Settings of detection that change no shape, as the Open Model Zoo's SSDs have them."""


def _detection(call: Call) -> Any:
    kept = {"top_k": int(call.op.attrs["top_k"]), "keep_top_k": list(call.op.attrs["keep_top_k"])}
    return call.ops.detection_output(*call.inputs, _DETECTION | kept)


def _named_alike(rule: Callable[[str], WriteRule], kinds: str) -> dict[str, WriteRule]:
    """Return writers of types whose function in OpenVINO's operation set has their name."""
    special = {"HSwish": "hswish", "PRelu": "prelu", "SoftPlus": "softplus"}
    return {
        kind: rule(special.get(kind, re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower())) for kind in kinds.split()
    }


@dataclass(frozen=True, slots=True)
class Exact:
    """A writer whose node computes what the operator computes."""

    write: WriteRule


@dataclass(frozen=True, slots=True)
class ForTiming:
    """A writer whose node takes the operator's time and computes other values."""

    write: WriteRule


_RULES: Mapping[str, WriteRule] = {
    **_named_alike(
        _same_name,
        "Abs Add Ceiling Cos Divide Equal Erf Exp Floor FloorMod Greater GreaterEqual HSwish Less LessEqual "
        "Log LogicalAnd LogicalNot LogicalOr Maximum Minimum Mish Multiply Negative NotEqual PRelu Power "
        "Relu Select Sigmoid Sin SoftPlus Sqrt SquaredDifference Subtract Tanh",
    ),
    **_named_alike(_reduce, "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL2"),
    "Assign": lambda call: call.ops.assign(call.inputs[0].get_node(), call.op.attrs["variable"]),
    "MatMul": lambda call: call.ops.matmul(
        *call.inputs[:2], bool(call.setting("transpose_a", False)), bool(call.setting("transpose_b", False))
    ),
    "Softmax": _by_axis("softmax"),
    "LogSoftmax": _by_axis("log_softmax"),
    "Concat": lambda call: call.ops.concat(list(call.inputs), axis=call.axis()),
    "Gather": lambda call: call.ops.gather(*call.inputs[:2], call.axis_node()),
    "GatherElements": lambda call: call.ops.gather_elements(*call.inputs[:2], call.axis()),
    "GatherND": lambda call: call.ops.gather_nd(*call.inputs[:2]),
    "ScatterElementsUpdate": _scatter_elements,
    "ScatterNDUpdate": lambda call: call.ops.scatter_nd_update(
        *call.inputs[:3], reduction=call.setting("reduction", "none")
    ),
    "Reshape": _reshape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Broadcast": _broadcast,
    "Convert": lambda call: call.ops.convert(call.inputs[0], ELEMENT_TYPES[call.result.dtype]),
    "Elu": lambda call: call.ops.elu(call.inputs[0], float(call.setting("alpha", 1.0))),
    "Clamp": lambda call: call.ops.clamp(
        call.inputs[0], float(call.op.attrs["min"]), float(call.op.attrs["max"])
    ),
    "Gelu": lambda call: call.ops.gelu(
        call.inputs[0], str(call.setting("approximation_mode", "erf")).lower()
    ),
    "Swish": _swish,
    "MVN": _mvn,
    "Convolution": _convolution("convolution"),
    "GroupConvolution": _convolution("group_convolution"),
    "ConvolutionBackpropData": _backprop,
    "MaxPool": _max_pool,
    "AvgPool": _avg_pool,
    "VariadicSplit": lambda call: call.ops.variadic_split(
        call.inputs[0], call.axis_node(), call.integers(call.op.attrs["lengths"])
    ),
}
EXACT: Mapping[str, Exact] = {kind: Exact(rule) for kind, rule in _RULES.items()}
"""Writers that may take part in an export, by type."""
TIMING: Mapping[str, ForTiming] = {
    "Slice": ForTiming(_slice),  # where it starts is not known
    "Interpolate": ForTiming(_interpolate),  # which pixels it reads is not known
    "RegionYolo": ForTiming(_region),  # its anchors are not known
    "DetectionOutput": ForTiming(_detection),  # its thresholds are not known
}
"""Writers for measuring only, by type."""


def refusal(graph: str, op: Operator, problem: str) -> UnwritableError:
    """Return the error that names an operator that cannot be written, and why."""
    return UnwritableError(f"{graph}: operator {op.name!r} ({op.type}) cannot be {problem}")


def write_node(graph: str, writer: Exact | ForTiming, call: Call, results: Sequence[Tensor]) -> Any:
    """Return the node of an operator, under its name; an UnwritableError says why there is none."""
    op = call.op
    try:
        node = writer.write(call)
    except (KeyError, RuntimeError) as error:
        reason = f"it has no setting {error}" if isinstance(error, KeyError) else str(error).strip()
        raise refusal(graph, op, f"written: {reason.rpartition(chr(10))[2]}") from error
    node.set_friendly_name(op.name)
    for port, result in enumerate(results):
        shape = node.output(port).get_partial_shape()
        if len(shape) != len(result.shape) or any(
            (d.get_length() != size if d.is_static else 0 <= d.get_max_length() < size)
            for d, size in zip(shape, result.shape, strict=True)
        ):
            sizes = tuple(d.get_max_length() for d in shape)
            raise refusal(graph, op, f"written: OpenVINO makes {sizes} of it, the graph {result.shape}")
    return node
