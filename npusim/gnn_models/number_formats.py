"""Results of a rewritten network in number formats: fp16, int8, or any for its products.

fp16: products are accumulated in fp32 and results are stored in fp16, as on an NPU (`frontends.half`).

int8: NNCF rounds weights, activations and masks of the matrix products. It finds the ranges once on the given
inputs (calibration) and keeps them. Rounding is signed and symmetric: the zero point is 0 and the levels are
-128 to 127, as on the MAC grid.

Formats of `configs/formats.yaml`: floating-point formats round to the nearest, ties to even, and saturate.
Integers are signed and symmetric: a scale for each output channel of weights, one for a whole activation.
Blocks lie along the reduction of a product; microscaling formats share a power of two (OCP MX 1.0, section
6.3), and products are summed in fp32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from npusim.frontends import quantising
from npusim.frontends.half import in_half
from npusim.frontends.openvino_ir import openvino
from npusim.frontends.openvino_write import run_model
from npusim.graph import Graph
from npusim.ops import Role
from npusim.ops.formats import FORMATS, NumberFormat

Scores = npt.NDArray[np.float32]
Inputs = Mapping[str, npt.NDArray[Any]]
_LEVELS = 256


def scores_in(numbers: str, graph: Graph, model: Any, inputs: Inputs) -> Scores:
    """Return the first result of a graph's `openvino.Model` in a number format.

    Parameters
    ----------
    numbers : str
        fp32, fp16 or int8, or two: `int4 x fp16` are the formats of weights and activations of products.
    """
    if " x " in numbers:
        weights = {tensor.name for tensor in graph.tensors.values() if tensor.role is Role.WEIGHT}
        model = in_formats(model, inputs, weights, *numbers.split(" x "))
    elif numbers == "int8":
        model = quantised(model, inputs)
    elif numbers == "fp16":
        model = in_half(model)
    return answers_of(model, inputs)


def answers_of(model: Any, inputs: Inputs) -> Scores:
    """Return the first result of an `openvino.Model` on the CPU."""
    return run_model(model, inputs)[0].astype(np.float32)


def quantised(model: Any, inputs: Inputs) -> Any:
    """Return an `openvino.Model` with its matrix products rounded to 8 bits.

    The inputs are also the calibration set: a full graph is the whole data set. Weights are 8-bit integers
    with a scale per channel; activations pass FakeQuantize with a scale per tensor, signed and symmetric. A
    `FileError` says that NNCF is not installed.
    """
    floating = [op.get_friendly_name() for op in model.get_ops() if _spreads_scores(op)]
    return _signed(quantising.quantised(model, [inputs], floating))


def _spreads_scores(op: Any) -> bool:
    """Return whether an operator is GrAx2's product of rank 2, whose results are attention scores."""
    is_product = op.get_type_name() == "MatMul"
    return is_product and bool(op.input_value(0).get_node().get_type_name() == "Concat")


def _signed(model: Any) -> Any:
    """Make the ranges of non-negative tensors signed; NNCF gives them 0 to 255."""
    ov = openvino()
    for op in model.get_ops():
        if op.get_type_name() != "FakeQuantize":
            continue
        low, high = (op.input_value(port).get_node().get_data() for port in (1, 2))
        if op.get_attributes()["levels"] != _LEVELS or not np.all(low == 0):
            continue
        least = ov.opset13.constant(np.asarray(-high * _LEVELS / (_LEVELS - 2), dtype=np.float32))
        for port in (1, 3):
            op.input(port).replace_source_output(least.output(0))
    return model


_WIDE_BITS = 32
"""Bits from which a format holds what fp32 holds."""


def in_formats(model: Any, inputs: Inputs, parameters: set[str], weights: str, activations: str) -> Any:
    """Return an `openvino.Model` with the operands of its products as constants, rounded to formats.

    Operands are computed product by product, each from rounded ones: the model holds for these inputs alone.

    Parameters
    ----------
    parameters : set of str
        Names of the constants that are weights.
    weights, activations : str
        Formats of weights, and of what products read besides.
    """
    ops, copy = openvino().opset13, model.clone()
    for product in (op for op in copy.get_ordered_ops() if op.get_type_name() == "MatMul"):
        for port, side in enumerate("ab"):
            source = product.input_value(port)
            node, is_transposed = source.get_node(), product.get_attributes()[f"transpose_{side}"]
            part = openvino().Model([source], copy.get_parameters())
            values = torch.from_numpy(answers_of(part, inputs))
            is_weight = node.get_friendly_name() in parameters
            form = FORMATS[weights if is_weight else activations]
            axis = -1 if is_transposed == (side == "b") else -2
            operand = rounded(values, form, max(axis, -values.dim()), is_weight).numpy()
            product.input(port).replace_source_output(ops.constant(operand).output(0))
    return copy


def rounded(values: Tensor, form: NumberFormat, axis: int = -1, by_channel: bool = False) -> Tensor:
    """Return fp32 values rounded to a format.

    Parameters
    ----------
    axis : int
        Reduction of the product, along which blocks lie.
    by_channel : bool
        Whether integers have a scale for each place across `axis`; else one for all values.
    """
    if form.bits >= _WIDE_BITS:
        return values
    if form.block > 1:
        return _in_blocks(values.movedim(axis, -1), form).movedim(-1, axis)
    if form.floating is not None:
        return _as_float(values, form.bits, *form.floating)
    largest = values.abs().amax(axis, keepdim=True) if by_channel else values.abs().amax()
    return _as_integer(values, form.bits, torch.where(largest > 0.0, largest, 1.0) / _most(form.bits))


def _in_blocks(values: Tensor, form: NumberFormat) -> Tensor:
    """Return values whose blocks along the last axis share a power of two."""
    length = values.shape[-1]
    padded = nn.functional.pad(values, (0, -length % form.block))
    blocks = padded.reshape(*values.shape[:-1], -1, form.block)
    exponent = _exponent(blocks.abs().amax(-1, keepdim=True))
    if form.floating is None:
        blocks = _as_integer(blocks, form.bits, 2.0 ** (exponent + 2.0 - form.bits))
    else:
        scale = 2.0 ** (exponent - _exponent(torch.tensor(form.floating[1])))
        blocks = _as_float(blocks / scale, form.bits, *form.floating) * scale
    return blocks.reshape(padded.shape)[..., :length]


def _most(bits: int) -> float:
    return 2.0 ** (bits - 1) - 1.0


def _as_integer(values: Tensor, bits: int, scale: Tensor) -> Tensor:
    """Return values as whole multiples of a scale that the bits hold; beyond them the largest."""
    return torch.round(values / scale).clamp(-_most(bits), _most(bits)) * scale


def _as_float(values: Tensor, bits: int, exponent_bits: int, largest: float) -> Tensor:
    """Return values as floating-point numbers of few bits, subnormal ones included."""
    least = 2.0 - 2.0 ** (exponent_bits - 1)
    step = 2.0 ** (_exponent(values).clamp(min=least) - (bits - 1 - exponent_bits))
    return (torch.round(values / step) * step).clamp(-largest, largest)


def _exponent(values: Tensor) -> Tensor:
    """Return the exponent of the highest bit of each value; 0 of zero."""
    return torch.frexp(torch.where(values == 0.0, 1.0, values)).exponent - 1.0
