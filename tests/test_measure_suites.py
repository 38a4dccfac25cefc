"""Measurement suites: what the shipped one measures, how a file is expanded, and how a bad one is refused."""

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from npusim.config import schema_of
from npusim.errors import ConfigError, FileError, NpusimError, UnknownNameError
from npusim.frontends.openvino_write import model_of_graph
from npusim.measuring import Benchmark, ModelFile, Network, Workload
from npusim.measuring.benchmarks import OPERATORS, benchmark_graph, benchmark_id
from npusim.measuring.document import SingleOperator
from npusim.measuring.models import UnbuildableError, graph_of
from npusim.measuring.suites import MeasurementSuite, load_suite, operator_items, suite_names
from npusim.ops import DType, op_type
from npusim.scenario import Scenario
from npusim.techniques import apply
from npusim.workloads import load_workload

HEAD = "schema: npusim.measurements/1\n"
SIZES = {
    "m": 24, "k": 16, "n": 8, "rows": 24, "columns": 12,
    "table": 10, "features": 8, "neighbours": 5, "bytes": 4096, "layers": 3, "size": 16, "batch": 2,
}  # fmt: skip


def sizes_of(operator: str) -> dict[str, int]:
    return {name: SIZES[name] for name in OPERATORS[operator].sizes}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "suite.yaml"
    path.write_text(HEAD + text, encoding="utf-8")
    return path


# --- the shipped suite


def test_the_default_suite_has_every_operator_and_every_kind_of_network() -> None:
    items = load_suite("default").items
    known = (*items, *load_suite("gnn").items)
    assert {item.model.operator for item in known if isinstance(item.model, Benchmark)} == set(OPERATORS)
    models = {item.model.workload.rsplit("-", 1)[0] for item in items if isinstance(item.model, Workload)}
    assert models == {"gcn", "gat", "sage-mean", "sage-max"}
    assert {item.hint for item in items} == {"latency", "throughput"}


def test_the_default_suite_is_short_enough_for_ten_minutes_at_two_seconds_a_row() -> None:
    assert 120 <= len(load_suite("default").items) <= 170


def test_names_of_the_default_suite_differ() -> None:
    names = Counter(item.id for item in load_suite("default").items)
    assert max(names.values()) == 1


def test_every_row_of_the_default_suite_can_be_built() -> None:
    for item in (*load_suite("default").items, *load_suite("gnn").items):
        assert len(graph_of(item.model, "f32")) >= 1


@pytest.mark.parametrize(
    "operator",
    sorted(
        {item.model.operator for item in load_suite("default").items if isinstance(item.model, Benchmark)}
        - {"Empty", "LogSoftmax", "Divide", "Greater"}
    ),
)
def test_sizes_of_a_family_spread_over_orders_of_magnitude(operator: str) -> None:
    graphs = [
        graph_of(item.model, "f32")
        for item in load_suite("default").items
        if isinstance(item.model, Benchmark)
        and item.model.operator == operator
        and item.model.dtype == "fp32"
    ]
    moved = sorted(sum(t.bytes for t in graph.tensors.values()) for graph in graphs)
    assert len(moved) >= 3
    assert moved[-1] > 50 * moved[0]
    steps = [math.log10(b / a) for a, b in pairwise(moved)]
    assert max(steps) < 1.7


def test_products_of_the_gnn_layers_are_in_the_default_suite() -> None:
    names = {item.id for item in load_suite("default").items}
    assert {"MatMul-2708x1433x64", "MatMul-2708x64x7", "MatMul-2708x2708x64"} <= names
    assert {"Aggregate-2708x2708x64", "Aggregate-3000x3000x64-int8", "gcn-cora:stagr+quantgr"} <= names


# --- benchmarks


@pytest.mark.few(4)
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_benchmark_is_its_operator_and_little_else(operator: str) -> None:
    types = [op.type for op in benchmark_graph(operator, sizes_of(operator))]
    real = {
        "Copy": "Concat",
        "Empty": "Relu",
        **dict.fromkeys(("Aggregate", "Chain", "Blocks", "RoundedMatMul"), "MatMul"),
        "ScatterMax": "ScatterElementsUpdate",
        "Spread": "Broadcast",
        "GatherNeighbours": "Gather",
        "ScaleNeighbours": "Multiply",
        "SumNeighbours": "ReduceSum",
        "SoftmaxNeighbours": "Softmax",
    }.get(operator, operator)
    assert real in types
    assert set(types) - {real} <= {"Greater", "Convert"}
    assert all(op_type(name).known for name in types)


@pytest.mark.parametrize("precision", ["f32", "f16", "bf16"])
def test_a_benchmark_takes_the_format_that_the_device_computes_in(precision: str) -> None:
    graph = graph_of(Benchmark(operator="Softmax", sizes={"rows": 4, "columns": 4}), precision)
    formats = {"f32": DType.FP32, "f16": DType.FP16, "bf16": DType.BF16}
    assert {t.dtype for t in graph.tensors.values()} == {formats[precision]}


def test_a_product_of_bytes_stays_one_and_gives_the_floats_of_the_device() -> None:
    graph = graph_of(Benchmark(operator="MatMul", sizes={"m": 4, "k": 4, "n": 4}, dtype="int8"), "f16")
    (op,) = graph
    assert [t.dtype for t in graph.inputs_of(op)] == [DType.INT8, DType.INT8]
    assert graph.tensors[graph.outputs[0]].dtype is DType.FP16


def test_a_copy_moves_each_byte_once_in_and_once_out() -> None:
    for dtype in (DType.FP32, DType.FP16):
        graph = benchmark_graph("Copy", {"bytes": 1 << 16}, dtype)
        assert sum(graph.bytes(op) for op in graph) == 2 * (1 << 16)


@pytest.mark.parametrize(
    ("operator", "sizes", "dtype", "named"),
    [
        ("Matmul", {}, "fp32", "did you mean `MatMul`"),
        ("MatMul", {"m": 1, "k": 1}, "fp32", "no n"),
        ("MatMul", {"m": 1, "k": 1, "n": 1, "batch": 2}, "fp32", "batch"),
        ("Add", {"rows": 1, "columns": 1}, "int8", "fp32, fp16, bf16"),
        ("Add", {"rows": 0, "columns": 1}, "fp32", "at least 1"),
        ("Copy", {"bytes": 100}, "fp32", "multiple of 2048"),
    ],
)
def test_an_impossible_benchmark_is_refused(
    operator: str, sizes: dict[str, int], dtype: str, named: str
) -> None:
    with pytest.raises(NpusimError, match=named):
        benchmark_graph(operator, sizes, DType(dtype))


# --- from a row to its graph


def test_a_workload_of_a_row_is_the_named_one_in_the_precision_of_the_row() -> None:
    ref = Workload(workload="gcn-cora", techniques="stagr", settings={"hidden": "32"})
    graph = graph_of(ref, "f32")
    same = apply(load_workload("gcn-cora", ["hidden=32", "workload.precision=fp32"]), "stagr")
    assert dict(graph.tensors) == dict(same.tensors)


def test_a_network_known_by_name_and_a_file_elsewhere_cannot_be_built(tmp_path: Path) -> None:
    with pytest.raises(UnbuildableError, match="alexnet"):
        graph_of(Network(network="alexnet", precision="int8"), None)
    with pytest.raises(UnbuildableError, match="not at hand"):
        graph_of(ModelFile(name="m.xml"), None)
    (tmp_path / "m.xml").write_text("<net/>")
    with pytest.raises(UnbuildableError, match="another one than was measured"):
        graph_of(ModelFile(name="m.xml", sha256="0" * 64), None, {"m.xml": tmp_path / "m.xml"})


def test_a_precision_that_no_device_computes_in_is_refused() -> None:
    with pytest.raises(ConfigError, match="f32, f16, bf16"):
        graph_of(Benchmark(operator="Empty", sizes={}), "f8")


# --- files


def test_a_grid_is_every_combination_in_every_format_and_hint(tmp_path: Path) -> None:
    text = """benchmarks:
  - operator: MatMul
    dtype: [fp32, int8]
    hints: [latency, throughput]
    grid: {m: [1, 2], k: [3], n: [4, 5]}
    cases: [{n: 8, m: 6, k: 7}]
"""
    items = load_suite(written(tmp_path, text)).items
    assert len(items) == (2 * 2 + 1) * 2 * 2
    assert items[-1].id == "MatMul-6x7x8-int8@throughput"
    assert items[-1].hint == "throughput"


def test_networks_are_a_row_for_each_stack_and_hint(tmp_path: Path) -> None:
    text = """networks:
  - {workload: gcn-cora, techniques: [none, quantgr+stagr], set: {hidden: 128}}
  - {workload: gcn-cora, hints: [latency, throughput], requests: 4}
"""
    items = load_suite(written(tmp_path, text)).items
    assert [item.id for item in items] == [
        "gcn-cora,hidden=128:none",
        "gcn-cora,hidden=128:stagr+quantgr",
        "gcn-cora:none",
        "gcn-cora:none@throughput",
    ]
    assert [item.requests for item in items] == [None, None, None, 4]
    assert any(128 in tensor.shape for tensor in graph_of(items[0].model, "f32").tensors.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r":1: found no row"),
        ("benchmarks:\n  - {operator: Matmul}\n", r":3: benchmarks.0.operator: .*did you mean `MatMul`"),
        ("benchmarks:\n  - {operator: MatMul}\n", r":3: benchmarks.0: found no sizes"),
        (
            "benchmarks:\n  - operator: Add\n    cases:\n    - {rows: 1, columns: 2}\n    - {colums: 2}\n",
            r":6: benchmarks.0.cases.1: .*`colums`.*did you mean `columns`",
        ),
        ("benchmarks:\n  - operator: Add\n    cases:\n      - {rows: 1}\n", r":5: .*found no columns"),
        ("benchmarks:\n  - {operator: Empty, dtype: [int8]}\n", r":3: benchmarks.0.dtype: .*MatMul"),
        ("benchmarks:\n  - operator: Copy\n    grid:\n      bytes: [2048, 100]\n", r":4: .*multiple of 2048"),
        ("benchmarks:\n  - {operator: Copy, grid: {bytes: [2048, 2048]}}\n", r"Copy-2048 a second time"),
        ("benchmarks:\n  - {operator: Copy, grid: {bytes: [0]}}\n", r"greater than or equal to 1"),
        ("networks:\n  - {workload: gcn-crora}\n", r":3: networks.0.workload: .*did you mean `gcn-cora`"),
        ("networks:\n  - {workload: gcn-cora, techniques: [stag]}\n", r"did you mean `stagr`"),
        ("networks:\n  - {workload: gcn-cora, techniques: [stagr+symg]}\n", r"the stack without symg"),
        ("networks:\n  - {workload: gcn-cora, hints: [fast]}\n", r"latency, throughput"),
        ("benchmark: []\n", r"did you mean `benchmarks`"),
    ],
)
def test_a_suite_that_says_something_impossible_is_refused_with_its_place(
    text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_suite(written(tmp_path, text))


def test_a_grid_that_would_take_hours_is_refused_at_once(tmp_path: Path) -> None:
    many = list(range(1, 1001))
    text = f"benchmarks:\n  - {{operator: MatMul, grid: {{m: {many}, k: {many}, n: {many}}}}}\n"
    with pytest.raises(ConfigError, match="more than 10,000 rows"):
        load_suite(written(tmp_path, text))


def test_an_unknown_suite_and_a_missing_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean `default`"):
        load_suite("defalt")
    with pytest.raises(FileError):
        load_suite(tmp_path / "none.yaml")


def test_the_schema_describes_every_key() -> None:
    text = schema_of(MeasurementSuite)
    for part in (text, *text["$defs"].values()):
        assert all(field.get("description") for field in part["properties"].values())
    assert suite_names() == ["aggregation", "default", "gnn"]


def test_ids_name_the_operator_the_sizes_and_a_format_of_bytes() -> None:
    assert benchmark_id("Gather", {"rows": 1, "table": 2, "features": 3}) == "Gather-1x2x3"
    assert benchmark_id("MatMul", {"k": 2, "m": 1, "n": 3}, DType.INT8) == "MatMul-1x2x3-int8"


def test_the_example_of_the_docs_is_a_suite(tmp_path: Path, repository: Path) -> None:
    page = (repository / "docs" / "measuring.md").read_text(encoding="utf-8")
    path = tmp_path / "example.yaml"
    path.write_text(page.split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    assert len(load_suite(path).items) == 3 * 2 * 2 + 2 + 3 * 2
    table = page.split("| operator | dimensions |")[1].split("\n\n")[0]
    assert all(operator in table for operator in OPERATORS)


# --- the operators of a network


def test_the_operators_of_a_network_are_rows_of_the_same_work() -> None:
    scenario = Scenario("gcn-cora", "generic-cpu", device="cpu")
    items = operator_items(scenario, ["none", "stagr"])
    launches, single = items[:3], [item.model for item in items[3:]]
    assert {item.model.operator for item in launches} == {"Empty", "Chain"}
    graphs = [scenario.with_(techniques=stack).graph for stack in ("none", "stagr")]
    work = {(op.type, graph.macs_of(op)) for graph in graphs for op in graph}
    for model in single:
        assert isinstance(model, SingleOperator)
        again = SingleOperator.model_validate_json(model.model_dump_json())
        graph = graph_of(again, "f32")
        (op,) = graph
        assert (op.type, graph.macs_of(op)) in work
        assert model_of_graph(graph) is not None
    assert len({item.id for item in items}) == len(items)
    assert {"MatMul", "ScatterElementsUpdate"} <= {model.operator for model in single}


def test_operators_that_take_no_time_are_not_measured() -> None:
    items = operator_items(Scenario("gcn-cora", "generic-cpu", device="cpu"), ["none"])
    assert not {"Reshape", "Squeeze"} & {item.model.operator for item in items}
