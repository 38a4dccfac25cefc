"""Reading model files: what becomes of constants, shape arithmetic, unknown operators and broken files."""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npusim.errors import (
    ConfigError,
    DynamicShapeError,
    EmptyGraphError,
    FileError,
    ModelFileError,
    ShapeError,
    UnknownNameError,
)
from npusim.frontends.openvino_ir import import_model
from npusim.graph import Graph
from npusim.ops import DType, Family, Role, TensorKind
from npusim.workloads import load_workload

ov = pytest.importorskip("openvino")
ops = pytest.importorskip("openvino.opset13")


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    def save(results: list[Any], parameters: list[Any], compress: bool = True) -> Path:
        path = tmp_path / "model.xml"
        ov.save_model(ov.Model(results, parameters), path, compress_to_fp16=compress)
        return path

    return save


def named(shape: list[int], name: str = "x", dtype: Any = np.float32) -> Any:
    parameter = ops.parameter(shape, dtype)
    parameter.set_friendly_name(name)
    parameter.output(0).get_tensor().set_names({name})
    return parameter


def types(graph: Graph) -> list[str]:
    return [op.type for op in graph]


def linear_of(x: Any) -> Any:
    weight = np.ones((8, 4), np.float32)
    return ops.add(ops.matmul(x, weight, False, True), np.ones((1, 8), np.float32))


def test_constants_become_tensors_with_roles_and_stored_formats(saved: Callable[..., Path]) -> None:
    x = named([16, 4])
    graph = import_model(saved([linear_of(x)], [x]))
    assert types(graph) == ["MatMul", "Add"]
    kinds = {(t.kind, t.role, t.shape, t.dtype) for t in graph.tensors.values()}
    assert (TensorKind.CONSTANT, Role.WEIGHT, (8, 4), DType.FP16) in kinds
    assert (TensorKind.CONSTANT, Role.BIAS, (1, 8), DType.FP16) in kinds
    assert (TensorKind.INPUT, Role.FEATURES, (16, 4), DType.FP16) in kinds
    assert graph.macs == 16 * 4 * 8


def test_precision_none_keeps_the_formats_of_the_file(saved: Callable[..., Path]) -> None:
    x = named([16, 4])
    path = saved([linear_of(x)], [x], compress=False)
    assert {t.dtype for t in import_model(path, precision=None).tensors.values()} == {DType.FP32}
    assert {t.dtype for t in load_workload(path).tensors.values()} == {DType.FP16}
    graph = load_workload(path, ["workload.precision=fp32"])
    assert {t.dtype for t in graph.tensors.values()} == {DType.FP32}
    with pytest.raises(ConfigError, match="hidden"):
        load_workload(path, ["workload.hidden=3"])


def test_a_sparse_constant_tells_its_density_blocks_and_symmetry(saved: Callable[..., Path]) -> None:
    matrix = np.zeros((64, 64), np.float32)
    matrix[3, 40] = matrix[40, 3] = matrix[5, 5] = 0.5
    x = named([64, 4])
    graph = import_model(saved([ops.matmul(ops.constant(matrix), x, False, False)], [x]))
    (norm,) = graph.with_role(Role.NORM)
    assert (norm.density, norm.block_density, norm.symmetric) == (3 / 4096, 3 / 16, True)
    matrix[40, 3] = 0.25
    graph = import_model(saved([ops.matmul(ops.constant(matrix), x, False, False)], [x]))
    assert not graph.with_role(Role.NORM)[0].symmetric


def test_axes_and_orders_leave_the_inputs_and_become_settings(saved: Callable[..., Path]) -> None:
    x = named([2, 3, 4])
    turned = ops.transpose(ops.softmax(x, 1), np.array([0, 2, 1]))
    reduced = ops.reduce_max(ops.exp(x), np.array([-1]), False)
    graph = import_model(saved([turned, ops.softmax(reduced, -1)], [x]))
    attrs = {op.name: op.attrs for op in graph if op.type != "Exp"}
    found = {op.type: op.attrs.get("order", op.attrs.get("axes")) for op in graph if op.name in attrs}
    assert found["Transpose"] == (0, 2, 1) and found["ReduceMax"] == (2,)
    assert sorted(op.attrs["axes"] for op in graph if op.type == "Softmax") == [(1,), (1,)]
    assert all(len(op.inputs) == 1 for op in graph)


def test_shape_arithmetic_is_folded_but_a_broadcast_of_one_number_is_work(saved: Callable[..., Path]) -> None:
    x = named([64, 64])
    filled = ops.broadcast(ops.constant(np.float32(-1.0)), ops.shape_of(x))
    graph = import_model(saved([ops.concat([x, filled], 0)], [x]))
    assert sorted(types(graph)) == ["Broadcast", "Concat"]


def test_an_onnx_file_and_the_ir_made_of_it_give_one_graph(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    node, value, tensor = (
        onnx.helper.make_node,
        onnx.helper.make_tensor_value_info,
        onnx.numpy_helper.from_array,
    )
    rng = np.random.default_rng(0)
    normal = {
        "w": (32, 3, 3, 3), "gamma": (32,), "beta": (32,), "mean": (32,), "fc": (32, 64), "bias": (64,)
    }  # fmt: skip
    weights = [tensor(rng.normal(size=shape).astype(np.float32), name) for name, shape in normal.items()]
    weights.append(tensor(np.full(32, 2, np.float32), "variance"))
    weights += [tensor(np.float32(v), name) for name, v in (("root", 2**0.5), ("one", 1), ("half", 0.5))]
    nodes = [
        node("Conv", ["x", "w"], ["conv"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["conv", "gamma", "beta", "mean", "variance"], ["bn"]),
        node("Relu", ["bn"], ["relu"]),
        node("GlobalAveragePool", ["relu"], ["pooled"]),
        node("Flatten", ["pooled"], ["flat"]),
        node("Gemm", ["flat", "fc", "bias"], ["gemm"]),
        node("Div", ["gemm", "root"], ["scaled"]),
        node("Erf", ["scaled"], ["erf"]),
        node("Add", ["erf", "one"], ["plus"]),
        node("Mul", ["gemm", "plus"], ["times"]),
        node("Mul", ["times", "half"], ["y"]),
    ]
    graph = onnx.helper.make_graph(
        nodes, "net", [value("x", 1, (1, 3, 32, 32))], [value("y", 1, (1, 64))], weights
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
    onnx.save(model, tmp_path / "net.onnx")
    ov.save_model(ov.convert_model(tmp_path / "net.onnx"), tmp_path / "net.xml")
    read, converted = (import_model(tmp_path / f"net.{ending}") for ending in ("onnx", "xml"))
    assert sorted(types(read)) == sorted(types(converted))
    assert "BatchNormInference" not in types(read) and "Divide" not in types(read) and "Gelu" in types(read)
    assert read.macs == converted.macs == 32 * 32 * 32 * 27 + 32 * 64


def test_a_transpose_before_a_product_is_taken_into_it(saved: Callable[..., Path]) -> None:
    x, y = named([16, 4], "left"), named([8, 4], "right")

    def rounded(node: Any) -> Any:
        return ops.fake_quantize(node, *(np.float32(v) for v in (-1, 1, -1, 1)), 256)

    matrix = rounded(ops.constant(np.ones((16, 16), np.float32)))
    product = ops.matmul(matrix, rounded(ops.matmul(x, y, False, True)), False, False)
    graph = import_model(saved([product], [x, y]))
    assert sorted(set(types(graph))) == ["FakeQuantize", "MatMul"]
    assert graph.macs == 16 * 8 * 4 + 16 * 16 * 8


def test_a_slice_of_the_whole_is_passed_over_and_a_reversal_is_not(saved: Callable[..., Path]) -> None:
    def sliced(step: int) -> Graph:
        x = named([8, 4])
        start, stop = (0, 8) if step > 0 else (7, -9)
        part = ops.slice(x, *(np.array([v]) for v in (start, stop, step, 0)))
        return import_model(saved([ops.relu(part)], [x]))

    assert types(sliced(1)) == ["Relu"]
    assert types(sliced(-1)) == ["Slice", "Relu"]


def test_weights_in_eight_bits_stay_in_eight_bits_through_their_dequantisation(
    saved: Callable[..., Path],
) -> None:
    x = named([16, 4])
    weight = ops.convert(ops.constant(np.ones((8, 4), np.int8)), np.float32)
    scaled = ops.multiply(weight, np.full((8, 1), 0.1, np.float32))
    graph = import_model(saved([ops.matmul(x, scaled, False, True)], [x]))
    assert types(graph) == ["MatMul"]
    assert graph.with_role(Role.WEIGHT)[0].dtype is DType.INT8


def test_an_unknown_operator_is_kept_with_its_bytes(saved: Callable[..., Path]) -> None:
    x, borders = named([4, 8]), named([3], "borders")
    graph = import_model(saved([ops.bucketize(x, borders)], [x, borders]))
    (op,) = graph
    assert (op.type, op.family, op.traits.known) == ("Bucketize", Family.UNKNOWN, False)
    assert graph.bytes(op) == 2 * (32 + 3) + 8 * 32


def test_a_branch_is_its_body(saved: Callable[..., Path]) -> None:
    def body(add: float) -> tuple[Any, Any]:
        inner = ops.parameter([4], np.float32)
        model = ov.Model([ops.result(ops.add(inner, np.float32(add)))], [inner])
        return model, inner

    x, condition = named([4]), named([], "condition", np.bool_)
    branch = ops.if_op(condition)
    (one, a), (two, b) = body(1.0), body(2.0)
    branch.set_then_body(one)
    branch.set_else_body(two)
    branch.set_input(x.output(0), a, b)
    output = branch.set_output(one.get_results()[0], two.get_results()[0])
    graph = import_model(saved([output], [condition, x]))
    assert [(op.type, op.traits.known) for op in graph] == [("Add", True)]


def test_unused_indices_of_a_pooling_are_no_output(saved: Callable[..., Path]) -> None:
    x = named([2, 6, 10])
    pooled = ops.max_pool(x, [10], [1], [0], [0], [10])
    (op,) = import_model(saved([pooled.output(0)], [x]))
    assert (op.type, len(op.outputs), op.attrs["kernel"]) == ("MaxPool", 1, (10,))


def test_dynamic_inputs_are_listed_and_a_shape_mends_them(saved: Callable[..., Path]) -> None:
    x, y = named([-1, 4]), named([3, 8], "y")
    path = saved([ops.matmul(y, linear_of(x), False, True)], [x, y])
    with pytest.raises(DynamicShapeError, match=re.escape("--shape 'x=[...]'")) as caught:
        import_model(path)
    assert list(caught.value.inputs) == ["x"]
    assert import_model(path, {"x": [16, 4]}).tensors["x"].shape == (16, 4)
    with pytest.raises(UnknownNameError, match="`x`"):
        import_model(path, {"xx": [16, 4]})
    with pytest.raises(ShapeError, match="does not take these shapes"):
        import_model(path, {"x": [16, 5]})


def test_a_size_that_depends_on_values_is_taken_at_its_upper_end(saved: Callable[..., Path]) -> None:
    x, mask = named([4, 4]), named([4], "mask")
    chosen = ops.squeeze(ops.non_zero(mask), 0)
    graph = import_model(saved([ops.gather(x, chosen, 0)], [x, mask]))
    assert types(graph) == ["NonZero", "Squeeze", "Gather"]
    assert graph.tensors[graph.outputs[0]].shape == (4, 4)


def test_a_size_without_bound_is_refused_by_operator(saved: Callable[..., Path]) -> None:
    x, length = named([4, 4]), named([], "length", np.int64)
    index = ops.range(ops.constant(np.int64(0)), length, ops.constant(np.int64(1)), "i64")
    with pytest.raises(ShapeError, match=r"\(Range\): its result .* has no fixed size"):
        import_model(saved([ops.gather(x, index, 0)], [x, length]))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda p: p.write_bytes(b""), "is empty"),
        (lambda p: p.write_text("<net><layers>"), "cannot be read as a model"),
        (lambda p: p.write_text("hello"), "cannot be read as a model"),
        (lambda p: p.unlink(), "does not exist"),
        (lambda p: p.with_suffix(".bin").unlink(), r"weights model\.bin are missing"),
        (lambda p: p.with_suffix(".bin").write_bytes(b""), "cannot be read as a model"),
        (lambda p: p.with_suffix(".bin").write_bytes(b"\0" * 5), "cannot be read as a model"),
        (lambda p: p.write_bytes(p.read_bytes()[:900]), "cannot be read as a model"),
    ],
    ids=["empty", "cut", "text", "missing", "no weights", "empty weights", "cut weights", "cut graph"],
)
def test_a_damaged_file_is_one_clear_error(
    saved: Callable[..., Path],
    damage: Callable[[Path], object],
    complaint: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    x = named([16, 4])
    path = saved([linear_of(x)], [x])
    damage(path)
    with pytest.raises(ModelFileError, match=complaint) as caught:
        load_workload(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_another_suffix_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"\.xml, \.onnx"):
        import_model(tmp_path / "model.pt")
    (tmp_path / "folder.xml").mkdir()
    with pytest.raises(ModelFileError, match="is a directory"):
        import_model(tmp_path / "folder.xml")


def test_a_model_without_operators_is_an_empty_graph(saved: Callable[..., Path]) -> None:
    x = named([4])
    with pytest.raises(EmptyGraphError):
        import_model(saved([x.output(0)], [x]))


def test_without_openvino_the_message_says_how_to_install_it(
    saved: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = named([16, 4])
    path = saved([linear_of(x)], [x])
    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    with pytest.raises(FileError, match=re.escape('pip install "npusim[openvino]"')):
        import_model(path)


@pytest.mark.skipif(importlib.util.find_spec("onnx") is None, reason="onnx is not installed")
def test_an_onnx_file_is_read_by_the_same_reader(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    weight = helper.make_tensor("w", TensorProto.FLOAT, (4, 8), np.ones(32, np.float32))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 8))],
        [weight],
    )
    path = tmp_path / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with pytest.raises(DynamicShapeError, match="x"):
        load_workload(path)
    read = load_workload(path, shapes={"x": (16, 4)})
    assert (read.name, types(read), read.macs) == ("tiny", ["MatMul", "Relu"], 16 * 4 * 8)


def test_divisions_by_constants_and_squares_are_multiplications(saved: Callable[..., Path]) -> None:
    x = named([16, 4])
    square = ops.power(ops.divide(x, np.full((1, 4), 3, np.float32)), np.float32(2))
    root = ops.power(ops.divide(x, square), np.float32(0.5))
    graph = import_model(saved([ops.power(root, np.float32(1.7))], [x]))
    assert types(graph) == ["Multiply", "Multiply", "Divide", "Sqrt", "Power"]
