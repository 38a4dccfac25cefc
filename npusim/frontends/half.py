"""fp16 as an NPU computes it, on OpenVINO's CPU device: each operator in fp32, and its result rounded.

Products are summed in fp32 and results are stored in fp16. Results beyond 65504 become infinite, and 0 times
infinity is no number. The device has no such mode: it computes in fp32 or bf16, or in fp16 throughout.
"""

from typing import Any

import numpy as np

from npusim.frontends.openvino_ir import openvino

LARGEST = 65504.0
"""Largest finite number of fp16 (IEEE 754 binary16)."""
_OVERFLOWS = 65520.0  # least number that rounds to infinity
_LEAST_NORMAL = 2.0**-14
_LEAST = 2.0**-24
_LOST_BITS = 13  # of the 24 bits of an fp32 significand fp16 keeps 11
_KEEPS = {
    *("Abs", "Broadcast", "Concat", "Gather", "GatherElements", "GatherND", "MaxPool", "Maximum", "Minimum"),
    *("Negative", "Pad", "ReduceMax", "ReduceMin", "Relu", "Reshape", "ScatterNDUpdate", "ScatterUpdate"),
    *("Select", "Slice", "Split", "Squeeze", "StridedSlice", "Tile", "Transpose", "Unsqueeze"),
    "VariadicSplit",
}
"""Operators whose results are among their operands, which are rounded already."""


def in_half(model: Any) -> Any:
    """Return a copy of an `openvino.Model` whose constants, inputs and results are rounded to fp16.

    Constants and inputs beyond the range become the largest number, as in a file with fp16 weights.
    """
    ov = openvino()
    copy, fp32 = model.clone(), ov.Type.f32
    for op in copy.get_ordered_ops():
        kind = op.get_type_name()
        for output in op.outputs():
            if output.get_element_type() != fp32 or kind in _KEEPS:
                continue
            readers = list(output.get_target_inputs())
            if kind == "Constant":
                values = np.clip(op.get_data(), -LARGEST, LARGEST).astype(np.float16).astype(np.float32)
                rounded = ov.opset13.constant(values)
            elif kind == "Parameter":
                rounded = _rounded(ov.opset13.clamp(output, -LARGEST, LARGEST))
            else:
                rounded = _rounded(output)
            for reader in readers:
                reader.replace_source_output(rounded.output(0))
    return copy


def _rounded(value: Any) -> Any:
    """Return the node that rounds fp32 numbers to the nearest of fp16, ties to even.

    Adding 2^13 times a number and taking it off again leaves the leading 11 bits. Below the least normal
    number the steps are even.
    """
    ops = openvino().opset13

    def number(constant: float) -> Any:
        return ops.constant(np.float32(constant))

    scaled = ops.multiply(value, number(2.0**_LOST_BITS))
    leading = ops.subtract(ops.add(scaled, value), scaled)
    steps = ops.round(ops.multiply(value, number(1.0 / _LEAST)), "half_to_even")
    size = ops.abs(value)
    finite = ops.select(ops.less(size, number(_LEAST_NORMAL)), ops.multiply(steps, number(_LEAST)), leading)
    infinite = ops.multiply(ops.sign(value), number(np.inf))
    return ops.select(ops.greater_equal(size, number(_OVERFLOWS)), infinite, finite)
