"""How each operator type is written as an OpenVINO node: settings become constant operands.

The inverse of reading settings (`npusim.ops.Settings`). Writers are exact, or for timing where an operator
does not say all that its values depend on. Only exact ones take part in an export.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.errors import NpusimError
from npusim.files import optional_module
from npusim.ops import DType, Family, Operator, Tensor

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

    def integers(self, values: Iterable[int]) -> Any:
        """Return a constant of integers."""
        return self.ops.constant(np.array([*values], dtype=np.int64))

    def create(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """Return a node of the operator's type."""
        factory = optional_module("openvino.utils.node_factory", '"npusim[openvino]"').NodeFactory(OPSET)
        return factory.create(self.op.type, inputs, dict(attributes))


WriteRule = Callable[[Call], Any]
OPSET = "opset15"
"""Version of OpenVINO's operation set that is written."""
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "MVN": {"normalize_variance": True, "eps": 1e-5, "eps_mode": "inside_sqrt"},
    "Elu": {"alpha": 1.0},
    "AvgPool": {"exclude-pad": True},
}
"""Attributes that OpenVINO's node has where an operator does not say them."""


def _by_settings(call: Call) -> Any:
    """Write an operator as it is read (`npusim.ops.Settings`): settings are operands and attributes."""
    op, settings, inputs, rank = call.op, call.op.traits.settings, list(call.inputs), len(call.source.shape)
    attributes = {key: op.attrs[key] for key in settings.attributes if key in op.attrs}
    default = {Family.REDUCE: tuple(range(rank)), Family.SOFTMAX: (rank - 1,)}.get(op.family, (0,))
    axes = op.attrs.get("axes", default)
    if isinstance(settings.axes, int):
        inputs[settings.axes :] = [call.integers(axes)]
    elif settings.axes is not None:
        attributes[settings.axes] = int(axes[0])
    return call.create(inputs, {**_DEFAULTS.get(op.type, {}), **attributes})


def _slice(call: Call) -> Any:
    """Take the last elements of each axis: where a slice starts is not known, and hardly changes the time."""
    starts = [whole - part for whole, part in zip(call.source.shape, call.result.shape, strict=True)]
    ends = (starts, call.source.shape, [1] * len(starts), range(len(starts)))
    return call.create([call.inputs[0], *map(call.integers, ends)], {})


def _scatter_elements(call: Call) -> Any:
    reduction = call.op.attrs.get("reduction", "none")
    # A maximum over messages must not see the blank's zero; a sum may start from it, which is one pass less.
    initial = bool(call.op.attrs.get("use_init_val", reduction in ("none", "sum")))
    operands = [*call.inputs[:3], call.integers(call.op.attrs.get("axes", (0,)))]
    return call.create(operands, {"reduction": reduction, "use_init_val": initial})


def _reshaped(call: Call) -> Any:
    """Write an Unsqueeze or Squeeze, whose axes are those of length 1 that make the longer shape."""
    short, long = sorted((call.source.shape, call.result.shape), key=len)
    axes, left = list[int](), list(short)
    for axis, size in enumerate(long):
        if left and left[0] == size:
            left.pop(0)
        elif size == 1:
            axes.append(axis)
    if left or len(long) - len(axes) != len(short):
        raise UnwritableError(
            f"operator {call.op.name!r} ({call.op.type}): {short} and {long} differ by more than ones"
        )
    return call.create([call.inputs[0], call.integers(axes)], {})


def _reshape(call: Call) -> Any:
    """Fix all sizes; of an operand whose size depends on values, one size follows from it."""
    sizes, operand = list(call.result.shape), call.inputs[0].get_partial_shape()
    if operand.is_dynamic:
        fixed = math.prod(d.get_length() for d in operand if d.is_static)
        rests = [i for i, size in enumerate(sizes) if math.prod(sizes) == fixed * size]
        if sum(d.is_dynamic for d in operand) != 1 or not rests:
            raise UnwritableError(f"operator {call.op.name!r} (Reshape): its sizes depend on values")
        sizes[rests[0]] = -1
    return call.create([call.inputs[0], call.integers(sizes)], {"special_zero": False})


def _broadcast(call: Call) -> Any:
    if call.inputs[0].get_partial_shape().is_dynamic:
        raise UnwritableError(f"operator {call.op.name!r} (Broadcast): its sizes depend on values")
    if call.op.attrs.get("mode", "numpy") == "explicit":
        raise UnwritableError(f"operator {call.op.name!r} (Broadcast): the axes that it fills are not known")
    return call.create([call.inputs[0], call.integers(call.result.shape)], {"mode": "numpy"})


def _interpolate(call: Call) -> Any:
    axes, sizes = range(2, len(call.source.shape)), call.integers(call.result.shape[2:])
    mode = call.op.attrs.get("mode", "nearest")
    return call.ops.interpolate(call.inputs[0], sizes, mode, "sizes", axes=call.integers(axes))


def _swish(call: Call) -> Any:
    one = call.ops.constant(1.0, call.inputs[0].get_element_type())
    return call.create([*call.inputs, one][:2], {})


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


_PLAIN = (
    "Abs Add AvgPool Ceiling Clamp Concat Convolution ConvolutionBackpropData Cos Divide Elu Equal Erf Exp "
    "Floor FloorMod Gather GatherElements GatherND Gelu Greater GreaterEqual GroupConvolution HSwish Less "
    "LessEqual Log LogSoftmax LogicalAnd LogicalNot LogicalOr MVN MatMul MaxPool Maximum Minimum Mish "
    "Multiply Negative NotEqual PRelu Power ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "Relu ScatterNDUpdate Select Sigmoid Sin SoftPlus Softmax Sqrt SquaredDifference Subtract Tanh"
)
"""Types that their settings say how to write."""
EXACT: Mapping[str, WriteRule] = {
    **dict.fromkeys(_PLAIN.split(), _by_settings),
    "Assign": lambda call: call.ops.assign(call.inputs[0].get_node(), call.op.attrs["variable"]),
    "ScatterElementsUpdate": _scatter_elements,
    "Reshape": _reshape,
    "Unsqueeze": _reshaped,
    "Squeeze": _reshaped,
    "Transpose": lambda call: call.create(
        [call.inputs[0], call.integers(call.op.attrs.get("order", range(len(call.source.shape))[::-1]))], {}
    ),
    "Broadcast": _broadcast,
    "Convert": lambda call: call.create(call.inputs, {"destination_type": ELEMENT_TYPES[call.result.dtype]}),
    "Swish": _swish,
    "VariadicSplit": lambda call: call.create(
        [call.inputs[0], call.integers(call.op.attrs["axes"]), call.integers(call.op.attrs["lengths"])], {}
    ),
}
"""Writers whose node computes what the operator computes, by type: they may take part in an export."""
TIMING: Mapping[str, WriteRule] = {
    "Slice": _slice,  # where it starts is not known
    "Interpolate": _interpolate,  # which pixels it reads is not known
    "RegionYolo": _region,  # its anchors are not known
    "DetectionOutput": _detection,  # its thresholds are not known
}
"""Writers whose node takes the operator's time and computes other values, by type: for measuring only."""


def refusal(graph: str, op: Operator, problem: str) -> UnwritableError:
    """Return the error that names an operator that cannot be written, and why."""
    return UnwritableError(f"{graph}: operator {op.name!r} ({op.type}) cannot be {problem}")


def write_node(graph: str, write: WriteRule, call: Call, results: Sequence[Tensor]) -> Any:
    """Return the node of an operator, under its name; an UnwritableError says why there is none."""
    op = call.op
    try:
        node = write(call)
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
