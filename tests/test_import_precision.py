"""Formats of imported networks: what an fp32 file is compiled to, packed weights, quantised files."""

import io
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npusim
from npusim.graph import Graph
from npusim.ops import DType
from npusim.reporting.estimate import estimate_page

ov = pytest.importorskip("openvino")

from npusim.frontends.openvino_ir import import_model  # noqa: E402

ops = ov.opset13
ROWS, DEPTH, COLUMNS = 16, 128, 64
INTEGERS = {(4, False): "i4", (4, True): "u4", (8, False): "i8", (8, True): "u8"}
"""Element types by bits and whether there are zero points."""


def integers(kind: str, *shape: int) -> Any:
    count = int(np.prod(shape))
    return ov.op.Constant(getattr(ov.Type, kind), ov.Shape(list(shape)), [3] * count)


def saved(result: Any, inputs: list[Any], path: Path) -> Graph:
    ov.save_model(ov.Model([result], inputs, "net"), path, compress_to_fp16=False)
    return import_model(path)


def compressed(bits: int, has_zeros: bool, group: int, scale: type, tmp_path: Path) -> Graph:
    """A product whose weights are packed, with a scale a channel or for each `group` of its inputs."""
    kind = INTEGERS[bits, has_zeros]
    shape = (COLUMNS, DEPTH // group, group) if group else (COLUMNS, DEPTH)
    scales = (*shape[:-1], 1)
    weight = ops.convert(integers(kind, *shape), scale)
    if has_zeros:
        weight = ops.subtract(weight, ops.convert(integers(kind, *scales), scale))
    weight = ops.multiply(weight, ops.constant(np.full(scales, 0.1, scale)))
    if group:
        weight = ops.reshape(weight, ops.constant(np.array([COLUMNS, DEPTH])), False)
    if scale is np.float16:
        weight = ops.convert(weight, np.float32)
    x = ops.parameter([ROWS, DEPTH], np.float32, name="x")
    return saved(ops.matmul(x, weight, False, True), [x], tmp_path / "net.xml")


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("bits", "has_zeros", "group", "scale"),
    list(product([4, 8], [False, True], [0, 32], [np.float16, np.float32])),
)
def test_packed_weights_stay_packed_through_their_decompression(
    bits: int, has_zeros: bool, group: int, scale: type, tmp_path: Path
) -> None:
    graph = compressed(bits, has_zeros, group, scale, tmp_path)
    (op,) = graph
    weight = graph.tensors[op.inputs[1]]
    scales = COLUMNS * (DEPTH // group if group else 1)
    zeros = 1 if bits == 4 else scales  # OpenVINO makes one of zero points of 4 bits that are all alike
    size = COLUMNS * DEPTH * bits / 8 + scales * 2 + has_zeros * zeros * bits / 8
    assert (op.type, weight.shape, weight.bytes) == ("MatMul", (COLUMNS, DEPTH), size)
    assert graph.precision_of(op) == f"fp16 x {'u' * has_zeros}int{bits}"


def test_packed_weights_are_moved_packed(tmp_path: Path) -> None:
    plain, packed = (
        npusim.estimate(graph, "core-ultra-series2")
        for graph in (dense(tmp_path / "dense.xml"), compressed(4, False, 32, np.float16, tmp_path))
    )
    saved_bytes = COLUMNS * DEPTH * (2 - 0.5) - COLUMNS * DEPTH / 32 * 2  # a scale in fp16 for each group
    assert plain.dram_bytes - packed.dram_bytes == saved_bytes
    assert plain.macs == packed.macs == ROWS * DEPTH * COLUMNS


def dense(path: Path) -> Graph:
    x = ops.parameter([ROWS, DEPTH], np.float32, name="x")
    weight = ops.constant(np.ones((COLUMNS, DEPTH), np.float32))
    return saved(ops.matmul(x, weight, False, True), [x], path)


def test_an_estimate_says_what_an_fp32_file_is_compiled_to(tmp_path: Path) -> None:
    graph = dense(tmp_path / "net.xml")
    estimate = npusim.estimate(graph, "core-ultra-series2")
    assert (estimate.precision, estimate.source_precision) == ("fp16", "fp32")
    assert [op.precision for op in estimate.operators] == ["fp16"]
    assert "fp16 (the file: fp32)" in shown(estimate)
    kept = npusim.estimate(import_model(tmp_path / "net.xml", precision=DType.FP32), "generic-cpu")
    assert (kept.precision, kept.source_precision) == ("fp32", "fp32")
    assert "the file" not in shown(kept)
    built = npusim.estimate("gcn-cora", "core-ultra-series2")
    assert built.source_precision is None


def shown(estimate: Any) -> str:
    from rich.console import Console

    console = Console(width=200, record=True, file=io.StringIO())
    console.print(estimate_page(estimate))
    return console.export_text()


def quantised(make: Callable[[Any, Any], Any], per_channel: bool, has_zeros: bool, path: Path) -> Graph:
    """An ONNX file in which every operand of `make(dequantised x, dequantised w)` is quantised (QDQ)."""
    onnx = pytest.importorskip("onnx")
    helper, arrays = onnx.helper, onnx.numpy_helper
    zero = arrays.from_array(np.uint8(117 if has_zeros else 128), "z")
    channels = 16
    shape = (channels, 3, 3, 3)
    count = channels if per_channel else 1
    scales = np.full(count, 0.01, np.float32) if per_channel else np.float32(0.01)
    zeros = np.zeros(count, np.int8) if per_channel else np.int8(0)
    constants = [
        arrays.from_array(np.ones(shape, np.int8), "w"),
        arrays.from_array(scales, "ws"),
        arrays.from_array(zeros, "wz"),
        arrays.from_array(np.float32(0.02), "s"),
        zero,
    ]
    axis = {"axis": 0} if per_channel else {}

    def rounded(name: str) -> list[Any]:
        return [
            helper.make_node("QuantizeLinear", [name, "s", "z"], [f"{name}q"]),
            helper.make_node("DequantizeLinear", [f"{name}q", "s", "z"], [f"{name}d"]),
        ]

    nodes = [
        *rounded("x"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], **axis),
        *make(helper, "xd"),
        *rounded("y"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", 1, [1, 3, 32, 32])], [value("yd", 1, list("abcd"))], constants
    )
    opset = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return import_model(path)


def convolved(helper: Any, x: str) -> list[Any]:
    return [
        helper.make_node("Conv", [x, "wd"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_a_file_with_quantisers_and_dequantisers_is_multiplied_in_8_bits(
    per_channel: bool, has_zeros: bool, tmp_path: Path
) -> None:
    graph = quantised(convolved, per_channel, has_zeros, tmp_path / "net.onnx")
    (conv,) = [op for op in graph if op.type == "Convolution"]
    assert graph.precision_of(conv) == "int8" and graph.precision == "int8"
    assert not {op.type for op in graph} & {"Convert", "Subtract", "Multiply"}
    assert {op.type for op in graph} == {"FakeQuantize", "Convolution", "Relu"}
