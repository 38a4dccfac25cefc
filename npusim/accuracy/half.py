"""Emulation of fp16: every result of a module rounded to half precision as it is stored.

As on an NPU, products are accumulated in fp32 and results are stored in fp16. Numbers beyond 65504 become
infinite, and 0 times infinity is no number.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

__all__ = ["LARGEST", "run_in_half", "to_half"]

LARGEST = 65504.0
"""Largest finite number of fp16 (IEEE 754 binary16)."""


def run_in_half(module: nn.Module, inputs: Mapping[str, Tensor], saturate: bool = True) -> Tensor:
    """Return what a module gives with parameters, inputs and every intermediate result in fp16.

    Parameters
    ----------
    module : module
        The module; it stays as it is.
    inputs : mapping of str to Tensor
        Its inputs in fp32, in the order of `forward`.
    saturate : bool
        Whether numbers that stand in the model, such as -9e15, become -65504, as OpenVINO writes them into an
        fp16 file; otherwise they overflow to infinity, as PyTorch and numpy convert them.

    Returns
    -------
    Tensor
        In fp32, every value one of fp16's.
    """
    copy = deepcopy(module)
    with torch.no_grad():
        for tensor in (*copy.parameters(), *copy.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(to_half(tensor, saturate))
        given = [to_half(t, saturate) if t.is_floating_point() else t for t in inputs.values()]
        with _Rounding(saturate):
            result: Tensor = copy(*given)
        return result


def to_half(values: Tensor, saturate: bool = True) -> Tensor:
    """Return fp32 values rounded to fp16's; beyond its range the largest, or else infinity."""
    if saturate:
        values = values.clamp(-LARGEST, LARGEST)
    return values.half().float()


class _Rounding(TorchDispatchMode):
    """Rounds the results of all operators, and the numbers among their arguments."""

    def __init__(self, saturate: bool) -> None:
        super().__init__()
        self.saturate = saturate

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator."""
        result = func(*tree_map(self._number, args), **tree_map(self._number, kwargs or {}))
        return tree_map(_rounded, result)

    def _number(self, value: Any) -> Any:
        if not isinstance(value, float):
            return value
        return float(to_half(torch.tensor(value, dtype=torch.float32), self.saturate))


def _rounded(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype is torch.float32:
        return to_half(value, saturate=False)
    return value
