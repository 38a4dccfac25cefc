"""Networks that nobody here wrote: where each file comes from, and a count of its work made another way."""

import math
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import pytest

LIGHT = ["bvlc_alexnet", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet"]
LARGE = ["densenet121", "vgg19", "zfnet512"]
"""Of onnx's light models those that take longest."""

CONVERTED = [
    "pytorch-converted/test_Conv1d_dilated",
    "pytorch-converted/test_Conv2d_depthwise_with_multiplier",
    "pytorch-converted/test_Conv2d_groups",
    "pytorch-converted/test_Conv3d_groups",
    "pytorch-converted/test_ConvTranspose2d",
    "pytorch-converted/test_BatchNorm3d_eval",
    "pytorch-converted/test_Embedding",
    "pytorch-converted/test_GLU",
    "pytorch-converted/test_Linear",
    "pytorch-converted/test_MaxPool3d_stride_padding",
    "pytorch-converted/test_PReLU_2d_multiparam",
    "pytorch-converted/test_PixelShuffle",
    "pytorch-converted/test_ReflectionPad2d",
    "pytorch-operator/test_operator_convtranspose",
    "pytorch-operator/test_operator_symbolic_override",
    "simple/test_shrink",
]
"""Exports of old versions of torch that onnx ships."""

NODES = [
    "argmax_default_axis_example",
    "attention_4d_gqa",
    "averagepool_2d_pads",
    "basic_conv_with_padding",
    "batchnorm_epsilon",
    "convtranspose_3d",
    "cumsum_1d_exclusive",
    "depthtospace_example",
    "einsum_batch_matmul",
    "gathernd_example_float32",
    "gelu_tanh_1",
    "gemm_all_attributes",
    "gridsample",
    "group_normalization_epsilon",
    "gru_bidirectional",
    "hardswish",
    "instancenorm_epsilon",
    "layer_normalization_3d_axis1_epsilon",
    "lppool_2d_default",
    "lrn",
    "lstm_bidirectional",
    "matmul_3d",
    "mish",
    "qlinearconv",
    "qlinearmatmul_2D_uint8_float32",
    "rms_normalization_2d_axis0",
    "roialign_aligned_true",
    "rotary_embedding",
    "scan9_sum",
    "scatter_elements_with_axis",
    "simple_rnn_with_initial_bias",
    "spacetodepth",
    "top_k",
    "where_example",
]
"""Tests of single operators of the ONNX standard."""


@cache
def _node_tests() -> dict[str, Any]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name.removeprefix("test_"): case.model for case in collect_testcases(None)}


def _data() -> Path:
    return Path(onnx.__file__).parent / "backend" / "test" / "data"


def light(name: str) -> Callable[[Path], object]:
    """One of the networks whose weights onnx leaves out."""
    return lambda path: path.write_bytes((_data() / "light" / f"light_{name}.onnx").read_bytes())


def converted(name: str) -> Callable[[Path], object]:
    """A test that onnx ships as a file."""
    return lambda path: path.write_bytes((_data() / name / "model.onnx").read_bytes())


def node_test(name: str) -> Callable[[Path], object]:
    """A test that onnx makes."""
    return lambda path: path.write_bytes(_node_tests()[name].SerializeToString())


def exported(name: str) -> Callable[[Path], object]:
    """A module of torch, written by its exporter."""

    def write(path: Path) -> None:
        torch = pytest.importorskip("torch")
        from torch_modules import MODULES

        module, *inputs = MODULES[name]()
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(module.eval(), tuple(inputs), str(path), dynamo=False)

    return write


def macs_of(model: Any) -> float:
    """Multiply-accumulates of an `openvino.Model` as it was read, by the shapes of its nodes alone."""
    return sum(_macs_of_node(node) for node in model.get_ordered_ops())


def _macs_of_node(node: Any) -> float:
    kind = node.get_type_name()
    if kind in _BODIES:
        return _BODIES[kind](node)
    if kind not in _PRODUCTS:
        return 0.0
    inputs = [tuple(port.get_partial_shape().get_max_shape()) for port in node.inputs()]
    return float(_PRODUCTS[kind](node.get_attributes(), inputs, tuple(node.get_output_shape(0))))


def _product(attributes: Any, inputs: list[Any], out: Any) -> float:
    a = inputs[0]
    depth = a[-2] if attributes["transpose_a"] and len(a) > 1 else a[-1]
    return math.prod(out) * depth


def _einsum(attributes: Any, inputs: list[Any], out: Any) -> float:
    terms = attributes["equation"].partition("->")[0].split(",")
    size = {x: n for term, shape in zip(terms, inputs, strict=True) for x, n in zip(term, shape, strict=True)}
    return math.prod(size.values()) if len(terms) == 2 else 0.0


def _attention(attributes: Any, inputs: list[Any], out: Any) -> float:
    query, key, value = inputs[:3]
    return math.prod(out[:-1]) * key[-2] * (query[-1] + value[-1])


def _recurrence(states: int) -> Callable[[Any, list[Any], Any], float]:
    def count(attributes: Any, inputs: list[Any], out: Any) -> float:
        (batch, steps, _), weights, recurrent = inputs[0], inputs[2 + states], inputs[3 + states]
        return batch * steps * (math.prod(weights) + math.prod(recurrent))

    return count


_PRODUCTS: dict[str, Callable[[Any, list[Any], Any], float]] = {
    "MatMul": _product,
    "Einsum": _einsum,
    "ScaledDotProductAttention": _attention,
    "Convolution": lambda _, inputs, out: math.prod(out) * math.prod(inputs[1][1:]),
    "GroupConvolution": lambda _, inputs, out: math.prod(out) * math.prod(inputs[1][2:]),
    "ConvolutionBackpropData": lambda _, inputs, out: math.prod(inputs[0]) * math.prod(inputs[1][1:]),
    "GroupConvolutionBackpropData": lambda _, inputs, out: math.prod(inputs[0]) * math.prod(inputs[1][2:]),
    "LSTMSequence": _recurrence(2),
    "GRUSequence": _recurrence(1),
    "RNNSequence": _recurrence(1),
}
"""Multiply-accumulates of a node from its attributes, the shapes of its inputs and of its result."""

_BODIES: dict[str, Callable[[Any], float]] = {
    "If": lambda node: max(macs_of(node.get_function(branch)) for branch in (0, 1)),
    "Loop": lambda node: node.get_num_iterations() * macs_of(node.get_function()),
    "TensorIterator": lambda node: node.get_num_iterations() * macs_of(node.get_function()),
}
