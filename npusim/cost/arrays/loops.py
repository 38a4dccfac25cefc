"""Loops of a convolution or product, the operands they index, the elements that a part touches.

A part of the loop nest is given by how many steps of each loop it has. Weights and outputs have an element
for each combination of the steps of their loops. Inputs are read through a window: `o` outputs and `f` taps
at stride `s` touch s (o - 1) + f positions where windows overlap, else o f, and never more than the image
has; padding is nowhere stored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.arch.array import LOOPS, OPERANDS
from npusim.cost.jit import compiled

LOOP_COUNT, OPERAND_COUNT = len(LOOPS), len(OPERANDS)
BATCH, GROUPS, OUTPUT_CHANNELS, INPUT_CHANNELS, OUTPUT_HEIGHT, OUTPUT_WIDTH, KERNEL_HEIGHT, KERNEL_WIDTH = (
    range(LOOP_COUNT)
)
WEIGHTS, INPUTS, OUTPUTS = range(OPERAND_COUNT)

_NO, _WINDOW, _YES = 0, 1, 2
_CONCERNS = np.array(
    [
        [_NO, _YES, _YES, _YES, _NO, _NO, _YES, _YES],
        [_YES, _YES, _NO, _YES, _WINDOW, _WINDOW, _WINDOW, _WINDOW],
        [_YES, _YES, _YES, _NO, _YES, _YES, _NO, _NO],
    ],
    np.int64,
)
"""Whether a loop indexes an operand, by itself or as one of the two loops of a window."""


class Nest(NamedTuple):
    """A convolution or product as a loop nest; channels are per group."""

    sizes: Any
    """Steps of each loop, float64, shape (LOOP_COUNT,)."""
    stride_w: float
    stride_h: float
    """Step of the window."""
    in_w: float
    in_h: float
    """Positions of the image, padding excluded."""
    bits: Any
    """Bits of a weight, an input, an output, and a partial sum, float64, shape (OPERAND_COUNT + 1,)."""


@compiled
def is_irrelevant(operand: int, loop: int) -> bool:
    """Whether an operand stays the same while a loop runs."""
    return bool(_CONCERNS[operand, loop] == _NO)


@compiled
def is_index(operand: int, loop: int) -> bool:
    """Whether every step of a loop has elements of the operand that no other step has."""
    return bool(_CONCERNS[operand, loop] == _YES)


@compiled
def window_positions(outputs: float, taps: float, stride: float, positions: float) -> float:
    """Positions along one side of an image that `outputs` windows of `taps` touch."""
    return float(min(min(outputs * taps, stride * (outputs - 1.0) + taps), positions))


@compiled
def elements(nest: Nest, operand: int, steps: Any) -> float:
    """Elements of an operand that a part of the nest touches.

    Parameters
    ----------
    steps : array of float64, shape (LOOP_COUNT,)
        Steps of each loop that the part has.
    """
    product = 1.0
    for loop in range(LOOP_COUNT):
        if _CONCERNS[operand, loop] == _YES:
            product *= steps[loop]
    if operand == INPUTS:
        product *= window_positions(steps[OUTPUT_HEIGHT], steps[KERNEL_HEIGHT], nest.stride_h, nest.in_h)
        product *= window_positions(steps[OUTPUT_WIDTH], steps[KERNEL_WIDTH], nest.stride_w, nest.in_w)
    return float(product)


@compiled
def multiply_accumulates(nest: Nest) -> float:
    """Multiply-accumulates of the whole nest."""
    product = 1.0
    for loop in range(LOOP_COUNT):
        product *= nest.sizes[loop]
    return float(product)
