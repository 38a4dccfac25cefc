"""Rounding of a module to fp16 and int8 (QuantGr), as a device would compute it.

fp16: products are accumulated in fp32 and results are stored in fp16, as on an NPU. Numbers beyond 65504
become infinite, and 0 times infinity is no number.

int8: NNCF rounds weights, activations and masks of the matrix products. The ranges are found once on given
inputs (calibration) and then kept (static). Signed and symmetric throughout: the zero point is 0 and the
levels are -128 to 127, which is what the MAC grid multiplies.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import redirect_stdout
from copy import deepcopy
from io import StringIO
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from npusim.errors import FileError
from npusim.frontends.openvino_ir import openvino
from npusim.frontends.openvino_write import run_model
from npusim.frontends.pyg import convert

LARGEST = 65504.0
"""Largest finite number of fp16 (IEEE 754 binary16)."""


def run_in_half(module: nn.Module, inputs: Mapping[str, Tensor], saturate: bool = True) -> Tensor:
    """Return what a module gives with parameters, inputs and every intermediate result in fp16.

    Parameters
    ----------
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


_LEVELS = 256
_FLOATING = (
    "Add", "Subtract", "Multiply", "Divide", "Greater", "Maximum", "MaxPool", "ReduceMax", "ReduceSum",
)  # fmt: skip
"""Operators that get no rounding of their own: what is around the products stays floating (QuantGr)."""


def quantised(module: nn.Module, inputs: Mapping[str, Tensor]) -> Any:
    """Return a module as an `openvino.Model` whose matrix products are rounded to 8 bits.

    Parameters
    ----------
    inputs : mapping of str to Tensor
        Its inputs; they are the calibration: a full graph is the whole data set.

    Returns
    -------
    openvino.Model
        Weights as 8-bit integers with a scale per channel, activations through FakeQuantize with one scale
        per tensor; signed and symmetric.

    Raises
    ------
    FileError
        When NNCF is not installed.
    """
    nncf = _nncf()
    model = convert(module, inputs)
    sample = {name: value.numpy() for name, value in inputs.items()}
    ignored = nncf.IgnoredScope(
        names=[op.get_friendly_name() for op in model.get_ops() if _spreads_scores(op)],
        types=list(_FLOATING),
        validate=False,
    )
    with redirect_stdout(StringIO()):  # NNCF's progress bars, which have no place in a JSON document
        model = nncf.quantize(
            model,
            nncf.Dataset([sample]),
            subset_size=1,
            preset=nncf.QuantizationPreset.PERFORMANCE,
            ignored_scope=ignored,
        )
    return _signed(model)


def run_int8(module: nn.Module, inputs: Mapping[str, Tensor]) -> npt.NDArray[np.float32]:
    """Return what a module gives when its matrix products are rounded to 8 bits."""
    return answers_of(quantised(module, inputs), inputs)


def answers_of(model: Any, inputs: Mapping[str, Tensor]) -> npt.NDArray[np.float32]:
    """Run an `openvino.Model` on the CPU as it stands and return its first result."""
    return run_model(model, {name: value.numpy() for name, value in inputs.items()})[0].astype(np.float32)


def _nncf() -> Any:
    # A simulator tells nobody what it is used for.
    os.environ.setdefault("NNCF_CI", "1")
    try:
        import nncf
    except ImportError:
        raise FileError(
            "nncf", "is not installed, and quantgr rounds with it", 'install it: pip install "npusim[gnn]"'
        ) from None
    nncf.set_log_level(logging.ERROR)
    return nncf


def _spreads_scores(op: Any) -> bool:
    """Whether an operator is GrAx2's product of rank 2, whose results are attention scores."""
    if op.get_type_name() != "MatMul":
        return False
    return bool(op.input_value(0).get_node().get_type_name() == "Concat")


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
