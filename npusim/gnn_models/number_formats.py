"""Rounding of products to number formats of `configs/formats.yaml`: weights and activations apart.

Floating-point formats round to the nearest, ties to even, and saturate. Integers are signed and symmetric: a
scale for each output channel of weights, one for a whole activation. Blocks lie along the reduction of a
product; microscaling formats share a power of two (OCP MX 1.0, section 6.3), and products are summed in fp32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from npusim.ops.formats import FORMATS, NumberFormat

_WIDE_BITS = 32
"""Bits from which a format holds what fp32 holds."""
_ATEN = torch.ops.aten
_FIRST = {_ATEN.mm.default: 0, _ATEN.bmm.default: 0, _ATEN.mv.default: 0}
_FIRST |= {_ATEN.addmm.default: 1, _ATEN.baddbmm.default: 1}
"""Place of the first operand of each kind of product; the second follows it."""


def run_in_formats(module: nn.Module, inputs: Mapping[str, Tensor], weights: str, activations: str) -> Tensor:
    """Return a module's result, in fp32, with the operands of its products rounded to formats.

    Parameters
    ----------
    weights, activations : str
        Formats of the module's parameters, and of what products read besides.
    """
    parameters = {each.untyped_storage().data_ptr() for each in module.parameters()}
    with torch.no_grad(), _Products(weights, activations, parameters):
        result: Tensor = module(*inputs.values())
    return result


class _Products(TorchDispatchMode):
    """Rounds the operands of each product."""

    def __init__(self, weights: str, activations: str, parameters: set[int]) -> None:
        super().__init__()
        self.forms, self.parameters = (FORMATS[weights], FORMATS[activations]), parameters

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator."""
        operands = list(args)
        for axis in (-1, -2) if func in _FIRST else ():
            place = _FIRST[func] - axis - 1
            values = operands[place]
            is_weight = values.untyped_storage().data_ptr() in self.parameters
            form = self.forms[0] if is_weight else self.forms[1]
            operands[place] = rounded(values, form, max(axis, -values.dim()), is_weight)
        return func(*operands, **(kwargs or {}))


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
