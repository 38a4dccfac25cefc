"""Writing graphs for OpenVINO: a device runs what npusim costs, and computes what the graph says."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_agreement import assert_agreement
from graph_values import run

from npusim.frontends.openvino_write import example_value
from npusim.graph import Editor, Graph, GraphStructure
from npusim.measuring.benchmarks import OPERATORS, benchmark_graph
from npusim.ops import DType, Family, Operator, Role, Tensor, TensorKind
from npusim.techniques import TECHNIQUES, apply
from npusim.workloads import GnnSpec, build_gnn, load_workload

openvino = pytest.importorskip("openvino")

from npusim.frontends.openvino_ir import graph_of_model, import_model  # noqa: E402
from npusim.frontends.openvino_nodes import EXACT, TIMING  # noqa: E402
from npusim.frontends.openvino_write import (  # noqa: E402
    UnmeasurableError,
    UnwritableError,
    model_of_graph,
    run_model,
)
from npusim.frontends.splicing import spliced  # noqa: E402
from npusim.frontends.translation import Origin  # noqa: E402
from npusim.frontends.valued import ValuedNetwork  # noqa: E402

SMALL = GraphStructure(
    "small",
    nodes=24,
    edges=96,
    features=12,
    classes=3,
    degree_histogram=(0, 0, 0, 0, 24),
    feature_density=0.5,
)
PADDING = "nodepad:capacity=30"
GCN, GAT = {"model": "gcn"}, {"model": "gat"}
MEAN, MAX = {"model": "sage-mean", "neighbours": 5}, {"model": "sage-max", "neighbours": 5}
DENSE, EDGES = {"form": "dense"}, {"form": "edges"}

VARIANTS = [
    (GCN, "none"),
    (GCN, "preg"),
    (GCN, "effop"),
    (GCN, "stagr"),
    (GCN, "preg+stagr"),
    (GCN, PADDING),
    (GCN, f"grad+{PADDING}"),
    (GCN | {"order": "aggregate_first", "layers": 3}, "none"),
    (GCN | DENSE, "none"),
    (GCN | DENSE, "preg"),
    (GAT, "none"),
    (GAT, "stagr"),
    (GAT, "grad"),
    (GAT, PADDING),
    (GAT, "effop"),
    (GAT, "stagr+effop"),
    (GAT, "effop+grax1"),
    (GAT, "grax2:form=literal"),
    (GAT, "grax2:form=source"),
    (GAT, f"grad+{PADDING}+effop+grax1+grax2:form=rank2"),
    (GAT | {"heads": 4}, "none"),
    (GAT | {"heads": 4}, "effop+grax1+grax2:form=rank2"),
    (GAT | EDGES, "none"),
    (GAT | EDGES | {"heads": 4}, "none"),
    (MEAN, "none"),
    (MEAN, "stagr"),
    (MEAN, "preg"),
    (MEAN, "effop"),
    (MEAN, f"grad+{PADDING}"),
    (MEAN | EDGES, "none"),
    (MEAN | DENSE, "none"),
    (MAX, "none"),
    (MAX, "stagr"),
    (MAX, "effop"),
    (MAX, "stagr+effop"),
    (MAX, "grax3"),
    (MAX, "grax3:maximum=reduce"),
    (MAX, "effop+grax3"),
    (MAX | EDGES, "none"),
    (MAX | EDGES, PADDING),
]
QUANTISED = [
    (GCN, "stagr+quantgr"),
    (GCN, "grad+quantgr"),
    (GCN, "stagr+quantgr:inputs=npu"),
    (GCN, "preg+quantgr"),
    (GAT, "stagr+effop+quantgr"),
    (GAT, "effop+grax1+grax2:form=rank2+quantgr"),
    (MEAN, "stagr+quantgr"),
    (MEAN, "quantgr"),
    (MAX, "effop+grax3+quantgr"),
]
named = pytest.mark.parametrize(
    ("settings", "stack"), VARIANTS, ids=lambda v: v if isinstance(v, str) else "-".join(map(str, v.values()))
)
quantised = pytest.mark.parametrize(
    ("settings", "stack"),
    QUANTISED,
    ids=lambda v: v if isinstance(v, str) else "-".join(map(str, v.values())),
)


def small(settings: dict[str, object], stack: str, precision: str = "fp32") -> Graph:
    spec = GnnSpec(dataset="small", hidden=8, precision=precision, **settings)
    return apply(build_gnn(spec, SMALL), stack)


def values_of(graph: Graph) -> dict[str, np.ndarray]:
    return {
        t.name: example_value(graph, t.name) for t in graph.tensors.values() if graph.writer(t.name) is None
    }


def compiled(graph: Graph, **settings: Any) -> Any:
    properties = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1} | settings
    return openvino.Core().compile_model(model_of_graph(graph), "CPU", properties)


def answer(graph: Graph, model: Any) -> np.ndarray:
    given = {}
    for port in model.inputs:
        name = port.get_any_name()
        value, dtype = example_value(graph, name), graph.tensors[name].dtype
        if dtype is DType.INT8:
            value = np.round(value * 127).astype(np.int8)
        given[name] = value.astype(np.float16) if dtype is DType.FP16 else value
    return np.asarray(model(given)[0], dtype=np.float32)


# --- the round trip


@pytest.mark.few(4)
@named
def test_a_written_graph_is_read_as_the_graph_it_was(settings: dict[str, object], stack: str) -> None:
    graph = small(settings, stack)
    assert_agreement(graph, graph_of_model(model_of_graph(graph), "read", precision=None))


@pytest.mark.few(3)
@named
def test_a_device_computes_what_the_graph_says(settings: dict[str, object], stack: str) -> None:
    graph = small(settings, stack)
    found = answer(graph, compiled(graph))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, run(graph, values_of(graph)), rtol=2e-3, atol=2e-4)


@pytest.mark.few(1)
@pytest.mark.parametrize("stack", ["none", "stagr", "effop"])
@pytest.mark.parametrize("workload", ["gcn-cora", "gat-cora", "sage-mean-cora", "sage-max-cora"])
def test_networks_on_cora_agree_and_run(workload: str, stack: str) -> None:
    graph = apply(load_workload(workload, ["workload.precision=fp32"]), stack)
    assert_agreement(graph, graph_of_model(model_of_graph(graph), "read", precision=None))
    assert np.isfinite(answer(graph, compiled(graph))).all()


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_tensors_keep_the_format_of_the_graph(precision: str) -> None:
    graph = small(GAT, "stagr+effop", precision)
    assert_agreement(graph, graph_of_model(model_of_graph(graph), "read", precision=None))
    compiled(graph, INFERENCE_PRECISION_HINT="bf16" if precision == "bf16" else "f32")


def test_a_written_graph_can_be_saved_as_a_file(tmp_path: Path) -> None:
    graph = small(GCN, "stagr")
    openvino.save_model(model_of_graph(graph), tmp_path / "m.xml", compress_to_fp16=False)
    assert_agreement(graph, import_model(tmp_path / "m.xml", precision=None))


def test_nodes_and_inputs_have_the_names_of_the_graph() -> None:
    graph = small(GCN, "none")
    model = model_of_graph(graph)
    assert {port.get_any_name() for port in model.inputs} == {"x", "edge_index"}
    assert set(graph.operators) <= {node.get_friendly_name() for node in model.get_ops()}


def test_the_same_seed_writes_the_same_constants() -> None:
    def weights(seed: int) -> list[np.ndarray]:
        model = model_of_graph(small(GCN, "stagr"), seed)
        nodes = [node for node in model.get_ordered_ops() if node.get_type_name() == "Constant"]
        return [node.get_data() for node in nodes if "weight" in node.get_friendly_name()]

    assert all(np.array_equal(a, b) for a, b in zip(weights(3), weights(3), strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(weights(3), weights(4), strict=True))


# --- 8 bits


def products(graph: Graph) -> Counter[tuple[object, ...]]:
    """Shapes and formats of the operands of every product."""
    of = (op for op in graph if op.family is Family.MATMUL)
    return Counter(tuple((t.shape, t.dtype) for t in graph.inputs_of(op)) for op in of)


@pytest.mark.few(2)
@quantised
def test_a_quantised_graph_is_read_with_the_same_products_of_bytes(
    settings: dict[str, object], stack: str
) -> None:
    graph = small(settings, stack)
    read = graph_of_model(model_of_graph(graph), "read", precision=None)
    assert products(graph) == products(read)
    assert any(dtype is DType.INT8 for pair in products(read) for _, dtype in pair)
    added = {"FakeQuantize", "Convert", "Multiply"}
    assert Counter(op.type for op in graph if op.type not in added) == Counter(
        op.type for op in read if op.type not in added
    )


@pytest.mark.few(2)
@quantised
def test_the_cpu_multiplies_bytes_where_the_graph_does(settings: dict[str, object], stack: str) -> None:
    graph = small(settings, stack)
    expected = sum(
        count for pair, count in products(graph).items() if all(dtype is DType.INT8 for _, dtype in pair)
    )
    model = compiled(graph)
    formats = []
    for node in model.get_runtime_model().get_ops():
        told = {key: node.get_rt_info()[key].astype(str) for key in ("layerType", "runtimePrecision")}
        if told["layerType"].startswith(("MatMul", "FullyConnected")):
            formats.append(told["runtimePrecision"].lower())
    assert sum(found in ("i8", "u8") for found in formats) == expected
    assert np.isfinite(answer(graph, model)).all()


# --- what cannot be written


@pytest.mark.parametrize("technique", [name for name in TECHNIQUES if TECHNIQUES[name].compiler_only])
def test_what_only_a_compiler_can_apply_is_refused(technique: str) -> None:
    graph, annotation = small(GCN, f"stagr+{technique}"), TECHNIQUES[technique].annotation
    with pytest.raises(UnmeasurableError, match=f"cannot be run on a real device.*ask for {annotation};"):
        model_of_graph(graph)


def test_an_operator_without_a_writer_is_named() -> None:
    editor = Editor("odd")
    x = editor.input("x", (4, 4), DType.FP32)
    editor.outputs = [editor.op("TopK", (x,), (4, 2), DType.FP32, "best")]
    with pytest.raises(UnwritableError, match=r"odd: operator 'best' .*type TopK; there are Abs, Add"):
        model_of_graph(editor.finish())


def test_an_operator_with_several_results_is_named() -> None:
    editor = Editor("odd")
    x = editor.input("x", (4, 4), DType.FP32)
    results = [Tensor(name, (4, 4), DType.FP32) for name in ("a", "b")]
    editor.add_operator(Operator("twice", "Relu", (x,), ("a", "b")), results)
    editor.outputs = ["a"]
    with pytest.raises(UnwritableError, match=r"'twice' .*several results"):
        model_of_graph(editor.finish())


def test_a_format_that_numpy_lacks_is_named() -> None:
    editor = Editor("odd")
    x = editor.input("x", (4, 4), DType.INT4)
    editor.outputs = [editor.unary("Relu", x, "relu")]
    with pytest.raises(UnwritableError, match=r"tensor 'x' .*int4; there are .*fp32"):
        model_of_graph(editor.finish())


def test_shapes_that_openvino_sees_otherwise_are_refused() -> None:
    editor = Editor("odd")
    x = editor.input("x", (4, 4), DType.FP32)
    editor.outputs = [editor.op("Relu", (x,), (4, 5), DType.FP32, "relu")]
    with pytest.raises(UnwritableError, match=r"'relu' .*\(4, 4\).*\(4, 5\)"):
        model_of_graph(editor.finish())


# --- each type of operator


@pytest.mark.few(3)
@pytest.mark.parametrize("operator", [name for name in OPERATORS if name != "RoundedMatMul"])
def test_every_benchmark_agrees_and_computes_what_it_says(operator: str) -> None:
    sizes = {
        "m": 24,
        "k": 16,
        "n": 8,
        "rows": 24,
        "columns": 12,
        "table": 10,
        "features": 8,
        "neighbours": 5,
        "bytes": 4096,
        "layers": 3,
        "size": 16,
        "batch": 3,
    }
    graph = benchmark_graph(operator, {name: sizes[name] for name in OPERATORS[operator].sizes})
    assert_agreement(graph, graph_of_model(model_of_graph(graph), "read", precision=None))
    np.testing.assert_allclose(
        answer(graph, compiled(graph)), run(graph, values_of(graph)).astype(np.float32), rtol=1e-3, atol=1e-4
    )


def image(type_: str, weights: tuple[int, ...] | None, shape: tuple[int, ...], **attrs: Any) -> Graph:
    editor = Editor("image")
    inputs = [editor.input("x", (1, 4, 8, 8), DType.FP32)]
    if weights is not None:
        inputs.append(editor.constant("w", weights, DType.FP32, role=Role.WEIGHT))
    editor.outputs = [editor.op(type_, inputs, shape, DType.FP32, "op", **attrs)]
    return editor.finish()


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "graph",
    [
        image("Convolution", (6, 4, 3, 3), (1, 6, 8, 8), strides=(1, 1), pads_begin=(1, 1), pads_end=(1, 1)),
        image("Convolution", (6, 4, 1, 1), (1, 6, 4, 4), strides=(2, 2)),
        image("GroupConvolution", (4, 1, 1, 3, 3), (1, 4, 6, 6)),
        image("MaxPool", None, (1, 4, 4, 4), kernel=(2, 2), strides=(2, 2)),
        image("AvgPool", None, (1, 4, 7, 7), kernel=(2, 2), strides=(1, 1)),
        image("Transpose", None, (1, 8, 8, 4), order=(0, 2, 3, 1)),
        image("Squeeze", None, (4, 8, 8)),
        image("Unsqueeze", None, (1, 4, 1, 8, 8, 1)),
        image("Reshape", None, (4, 64)),
        image("ReduceMean", None, (1, 4), axes=(2, 3)),
        image("ReduceMin", None, (1, 4, 1, 1), axes=(2, 3), keep_dims=True),
        image("Softmax", None, (1, 4, 8, 8), axes=(1,)),
        *(image(name, None, (1, 4, 8, 8)) for name in ("Sigmoid", "Tanh", "Exp", "Sqrt", "HSwish")),
        *(image(name, (1, 4, 1, 1), (1, 4, 8, 8)) for name in ("Subtract", "Maximum", "SquaredDifference")),
    ],
    ids=lambda graph: next(iter(graph)).type,
)
def test_further_operators_of_imported_networks_agree(graph: Graph) -> None:
    read = graph_of_model(model_of_graph(graph), "read", precision=None)
    assert_agreement(graph, read)
    assert np.isfinite(answer(graph, compiled(graph))).all()


# --- values


@pytest.mark.few(4)
@named
def test_values_fit_the_graph(settings: dict[str, object], stack: str) -> None:
    graph = small(settings, stack)
    for tensor in graph.tensors.values():
        if tensor.kind is TensorKind.ACTIVATION:
            continue
        value = example_value(graph, tensor.name)
        assert value.shape == tensor.shape
        if tensor.dtype.is_float:
            sizes = np.abs(value[value != 0])
            assert np.count_nonzero(value) == pytest.approx(tensor.density * tensor.elements, abs=1)
            assert sizes.size == 0 or (sizes.min() > 1e-3 and sizes.max() <= 1e4)
        else:
            assert value.min() >= 0
            assert value.max() < 30 or value.size == 1


def test_an_edge_list_names_every_node_and_none_that_does_not_exist() -> None:
    edges = example_value(load_workload("gcn-cora"), "edge_index")
    for row in edges:
        assert set(row.tolist()) == set(range(2708))


def test_self_loops_join_each_node_with_itself() -> None:
    loops = example_value(load_workload("gcn-cora"), "preprocess/loops")
    assert np.array_equal(loops[0], np.arange(2708)) and np.array_equal(loops[0], loops[1])


def test_a_norm_is_as_sparse_as_the_graph_and_symmetric_with_its_diagonal() -> None:
    graph = apply(load_workload("gcn-cora"), "stagr")
    norm = example_value(graph, "norm")
    assert np.array_equal(norm, norm.T)
    assert np.count_nonzero(norm.diagonal()) == 2708
    assert np.count_nonzero(norm) == 13264


def test_every_node_has_a_neighbour() -> None:
    graph = load_workload("sage-mean-cora")
    assert example_value(graph, "mask").any(axis=1).all()
    assert example_value(graph, "neighbours").max() == 2707


def test_all_that_only_a_compiler_can_do_is_named_at_once() -> None:
    with pytest.raises(
        UnmeasurableError, match="compressed storage or storage as a triangle or a tensor that"
    ):
        model_of_graph(small(GCN, "stagr+grasp+symg+cacheg"))


# --- the network's own numbers


def formula(kind: str, ops: Any, x: Any, other: Any, index: Any) -> Any:
    """Return a node with settings that are not the default ones."""
    window = {"strides": [2, 2], "pads_begin": [1, 1], "pads_end": [1, 1]}
    weights = np.random.default_rng(1).random((3, 3, 3, 3), dtype=np.float32)
    grouped = weights[:, :1].reshape(3, 1, 1, 3, 3)
    axis, flat = np.int64(2), ops.reshape(x, [6, 48], False)
    special: dict[str, Any] = {
        "MatMul": lambda: ops.matmul(x, other, True, False),
        "PRelu": lambda: ops.prelu(x, np.float32([0.1, 0.2, 0.3])),
        "Swish": lambda: ops.swish(x, np.float32(1.7)),
        "Gelu": lambda: ops.gelu(x, "tanh"),
        "Elu": lambda: ops.elu(x, 0.3),
        "Clamp": lambda: ops.clamp(x, -0.2, 0.4),
        "MVN": lambda: ops.mvn(x, [1, 2], True, 0.1, "outside_sqrt"),
        "LogicalNot": lambda: ops.logical_not(ops.greater(x, other)),
        "Select": lambda: ops.select(ops.less(x, other), x, ops.sin(other)),
        "Softmax": lambda: ops.softmax(x, 1),
        "LogSoftmax": lambda: ops.log_softmax(x, 1),
        "Concat": lambda: ops.concat([x, other], 2),
        "Gather": lambda: ops.gather(flat, index, np.int64(1)),
        "GatherElements": lambda: ops.gather_elements(flat, index, 1),
        "GatherND": lambda: ops.gather_nd(flat, index),
        "ScatterElementsUpdate": lambda: ops.scatter_elements_update(
            flat, index, ops.gather_elements(flat, index, 1), np.int64(1), "max", True
        ),
        "ScatterNDUpdate": lambda: ops.scatter_nd_update(
            flat, index, ops.gather_nd(ops.cos(flat), index), reduction="sum"
        ),
        "Reshape": lambda: flat,
        "Unsqueeze": lambda: ops.unsqueeze(x, [0, 3]),
        "Squeeze": lambda: ops.squeeze(ops.reduce_max(x, [1], True), [1]),
        "Transpose": lambda: ops.transpose(x, [0, 3, 1, 2]),
        "Broadcast": lambda: ops.broadcast(ops.reduce_max(x, [1], True), [2, 5, 8, 6]),
        "Convert": lambda: ops.convert(ops.greater(x, other), "f32"),
        "Convolution": lambda: ops.convolution(x, weights, dilations=[1, 1], **window),
        "GroupConvolution": lambda: ops.group_convolution(x, grouped, dilations=[1, 1], **window),
        "ConvolutionBackpropData": lambda: ops.convolution_backprop_data(x, weights, **window),
        "MaxPool": lambda: ops.max_pool(x, [2, 1], [1, 1], [1, 0], [0, 1], [2, 3]),
        "AvgPool": lambda: ops.avg_pool(x, [2, 1], [1, 0], [0, 1], [2, 3], False),
        "VariadicSplit": lambda: ops.variadic_split(x, axis, [3, 1, 4]),
    }
    if kind in special:
        return special[kind]()
    names = {"HSwish": "hswish", "SoftPlus": "softplus"}
    name = names.get(kind, "".join(f"_{c.lower()}" if c.isupper() else c for c in kind).lstrip("_"))
    function = getattr(ops, name)
    if kind.startswith("Reduce"):
        return function(x, [1, 3], True)
    if kind.startswith("Logical"):
        return function(ops.greater(x, other), ops.less(x, np.float32(0.7)))
    return function(*(x, other)[: 2 if kind in BINARY else 1])


BINARY = {
    *("Add", "Subtract", "Multiply", "Divide", "Maximum", "Minimum", "Power", "FloorMod"),
    *("SquaredDifference", "Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual"),
}


@pytest.mark.few(6)
@pytest.mark.parametrize("kind", sorted(EXACT.keys() - {"Assign"}))
def test_a_writer_that_reproduces_values_does(kind: str) -> None:
    ops = openvino.opset15
    random = np.random.default_rng(0)
    shapes = {"x": (2, 3, 8, 6), "other": (2, 3, 8, 6), "index": (6, 2)}
    nodes = {
        name: ops.parameter(list(shape), np.int64 if name == "index" else np.float32, name=name)
        for name, shape in shapes.items()
    }
    for name, node in nodes.items():
        node.output(0).get_tensor().set_names({name})
    built = formula(kind, ops, *nodes.values())
    ports = built.outputs() if kind == "VariadicSplit" else [built.output(0)]
    model = openvino.Model([ops.result(port) for port in ports], list(nodes.values()), kind)
    values = {name: random.random(shape, dtype=np.float32) + 0.1 for name, shape in shapes.items()}
    values["index"] = random.integers(0, 6, shapes["index"])
    origin = Origin()
    graph = graph_of_model(model, kind, precision=None, origin=origin)
    assert kind in {op.type for op in graph}
    origin.operators = {}  # as if techniques had made every operator: all are written
    network = ValuedNetwork(graph, origin, values, lambda _: [])
    written = network.outputs(graph, network.rewritten(graph))
    for ours, theirs in zip(written, run_model(model, values), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", TIMING)
def test_a_writer_for_timing_never_reaches_an_export(kind: str) -> None:
    assert kind not in EXACT
    ops = openvino.opset15
    x = ops.parameter([1, 4, 8, 8], np.float32, name="x")
    origin = Origin()
    model = openvino.Model([ops.result(ops.relu(x))], [x], "odd")
    before = graph_of_model(model, "odd", precision=None, origin=origin)
    editor = Editor("odd")
    editor.input("x", (1, 4, 8, 8), DType.FP32)
    editor.outputs = [editor.op(kind, ("x",), (1, 4, 2, 2), DType.FP32, "part")]
    with pytest.raises(UnwritableError, match=rf"'part' \({kind}\) cannot be rewritten .*no writer that"):
        spliced(origin, before, editor.finish(), lambda name: np.zeros(1))
