"""Post-training quantisation of an `openvino.Model` to 8 bits, with NNCF."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.files import optional_module

Sample = Mapping[str, npt.NDArray[Any]]
FLOATING = (
    "Add",
    "Subtract",
    "Multiply",
    "Divide",
    "Greater",
    "Maximum",
    "MaxPool",
    "ReduceMax",
    "ReduceSum",
)
"""Operators that are not rounded: QuantGr rounds products only."""
_VNNI = ("avxvnni", "avx512vnni", "avx10.1-256", "avx10.1-512", "dotprod")


def load_nncf(why: str = ", and quantgr rounds with it") -> Any:
    """Return the module nncf, silent; a `FileError` says that it is not installed."""
    os.environ.setdefault("NNCF_CI", "1")  # no telemetry
    nncf = optional_module("nncf", '"npusim[gnn]"', why)
    nncf.set_log_level(logging.ERROR)
    return nncf


def has_vnni() -> bool:
    """Return whether this processor adds products of bytes in 32 bits (VNNI, on ARM dot products).

    Without, OpenVINO adds pairs of them in 16 bits, which saturate.
    """
    from llvmlite.binding import get_host_cpu_features

    features = get_host_cpu_features()
    return any(features.get(name, False) for name in _VNNI)


def quantised(
    model: Any, samples: Sequence[Sample], names: Sequence[str] = (), parameters: Any = None
) -> Any:
    """Return a copy of a model whose matrix products are rounded to 8 bits.

    Weights are 8-bit integers with a scale per channel; activations pass FakeQuantize with a scale per
    tensor.

    Parameters
    ----------
    samples : sequence of mapping
        Values of the inputs by name, from which the ranges of activations follow.
    names : sequence of str
        Operators that stay floating point.
    parameters : nncf.AdvancedQuantizationParameters, optional
        Further parameters of NNCF.
    """
    nncf = load_nncf()
    quantise = partial(nncf.quantize, model, nncf.Dataset(list(samples)))
    parameters = parameters or nncf.AdvancedQuantizationParameters()
    return _with_left_bytes(_rounded(quantise, len(samples), names, advanced_parameters=parameters))


def _rounded(quantise: Callable[..., Any], samples: int, names: Sequence[str], **advanced: Any) -> Any:
    """Return a model that NNCF rounds, without its bias correction where that fails.

    NNCF 3.4 raises an IndexError for a product with a constant on its left whose sum with a bias follows.
    """
    nncf = load_nncf()
    common = {
        "subset_size": samples,
        "preset": nncf.QuantizationPreset.PERFORMANCE,
        "ignored_scope": nncf.IgnoredScope(names=list(names), types=list(FLOATING), validate=False),
    }
    ((key, parameters),) = advanced.items()
    with redirect_stdout(StringIO()):  # NNCF's progress bars, which have no place in a JSON document
        try:
            return quantise(**common, **advanced)
        except IndexError:
            return quantise(**common, **{key: replace(parameters, disable_bias_correction=True)})


def _with_left_bytes(model: Any) -> Any:
    """Give products with a constant on their left the form that OpenVINO's CPU multiplies in 8 bits.

    One scale for the constant, and a signed right operand. In NNCF's form it multiplies floats.
    """
    from npusim.frontends.openvino_ir import openvino

    ops = openvino().opset15
    for node in [node for node in model.get_ops() if node.get_type_name() == "MatMul"]:
        scaled, right = (node.input_value(port).get_node() for port in (0, 1))
        while right.get_type_name() in ("Reshape", "Gather", "Transpose"):
            right = right.input_value(0).get_node()
        chain = [scaled]
        while chain[-1].get_type_name() in ("Multiply", "Convert"):
            chain.append(chain[-1].input_value(0).get_node())
        is_constant = [each.get_type_name() for each in chain] == ["Multiply", "Convert", "Constant"]
        scale = chain[0].input_value(1).get_node() if is_constant else None
        if scale is None or scale.get_type_name() != "Constant" or right.get_type_name() != "FakeQuantize":
            continue
        values = chain[-1].get_data().astype(np.float32) * scale.get_data()
        step = np.float32(max(float(np.abs(values).max()), 1e-30) / 127.0)
        numbers = ops.convert(ops.constant(np.round(values / step).astype(np.int8)), "f32")
        node.input(0).replace_source_output(ops.multiply(numbers, ops.constant(step)).output(0))
        low, high = (right.input_value(port).get_node() for port in (1, 2))
        if low.get_type_name() == high.get_type_name() == "Constant" and not low.get_data().any():
            least = ops.constant(-high.get_data() * np.float32(128.0 / 127.0)).output(0)
            for port in (1, 3):
                right.input(port).replace_source_output(least)
    model.validate_nodes_and_infer_types()
    return model


def whole_ranges() -> Any:
    """Return NNCF's parameters: ranges that hold every number, 7-bit weights where 8 saturate.

    By default NNCF takes the mean of the samples' ranges, which cuts the largest sums over neighbours off.
    """
    nncf = load_nncf()
    estimator = nncf.quantization.range_estimator.RangeEstimatorParametersSet.MINMAX
    return nncf.AdvancedQuantizationParameters(
        overflow_fix=nncf.OverflowFix.DISABLE if has_vnni() else nncf.OverflowFix.ENABLE,
        activations_range_estimator_params=estimator,
    )


def quantised_where_accurate(
    model: Any, samples: Sequence[Sample], score: Callable[[Any, Sequence[Sample]], float], drop: float
) -> Any:
    """Return a copy of a model of which as many products are rounded as a score allows.

    Parameters
    ----------
    score : callable
        Returns the score of a compiled model on samples, 1 at best.
    drop : float
        Largest loss of the score that rounding may cost.
    """
    nncf = load_nncf()
    data = [nncf.Dataset(list(samples)) for _ in range(2)]
    quantise = partial(
        nncf.quantize_with_accuracy_control,
        model,
        *data,
        lambda compiled, items: (score(compiled, list(items)), None),
        max_drop=drop,
    )
    return _rounded(quantise, len(samples), (), advanced_quantization_parameters=whole_ranges())


def rounded_products(model: Any) -> int:
    """Return how many products of a model read rounded numbers."""

    def is_rounded(port: Any) -> bool:
        node = port.get_source_output().get_node()
        while node.get_type_name() in ("Convert", "Multiply", "Reshape", "Transpose") and node.inputs():
            node = node.input_value(0).get_node()
        return bool(node.get_type_name() == "FakeQuantize" or node.get_element_type().bitwidth == 8)

    products = [node for node in model.get_ops() if node.get_type_name() in ("MatMul", "Convolution")]
    return sum(all(map(is_rounded, node.inputs())) for node in products)
