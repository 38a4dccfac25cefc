"""Graphs with costs as ONNX, GraphML and DOT, results as Parquet: read back by other libraries."""

import io
import json
import re
from pathlib import Path

import networkx as nx
import pyarrow.parquet as pq
import pytest

import npusim
from npusim.cli.program import run
from npusim.engines import Estimate
from npusim.engines.graph_files import WRITERS, costed_graph
from npusim.graph import Editor
from npusim.metrics import unit_of


@pytest.fixture(scope="module")
def scenario() -> npusim.Scenario:
    """A network on a machine, neither as it is shipped."""
    return npusim.Scenario(
        "gat-cora",
        techniques="stagr",
        settings=["workload.hidden=24", "npu.tiles=3", "npu.sram.per_tile=1MiB"],
    )


@pytest.fixture(scope="module")
def estimate(scenario: npusim.Scenario) -> Estimate:
    return npusim.estimate(scenario)


FIGURES = ("latency_s", "busy_s", "energy_j", "dram_bytes", "macs")


def test_graphml_keeps_every_figure(scenario: npusim.Scenario, estimate: Estimate) -> None:
    """networkx reads the file back with the figures of the estimate, to the last digit."""
    back = nx.read_graphml(io.BytesIO(WRITERS[".graphml"](scenario.graph, estimate)))
    costed = costed_graph(scenario.graph, estimate)
    assert set(back.nodes) == set(costed.nodes) and set(back.edges) == set(costed.edges)
    for cost in estimate.operators:
        assert {key: back.nodes[cost.name][key] for key in FIGURES} == {
            key: getattr(cost, key) for key in FIGURES
        }
        assert all(back.nodes[name]["fused_into"] == cost.name for name in cost.fused)
    assert back.graph["latency_s"] == estimate.latency_s


def test_onnx_keeps_graph_and_figures(scenario: npusim.Scenario, estimate: Estimate) -> None:
    """onnx checks the file; nodes, tensors, shapes and costs are those of the graph."""
    onnx = pytest.importorskip("onnx")
    model = onnx.load_from_string(WRITERS[".onnx"](scenario.graph, estimate))
    onnx.checker.check_model(model)
    nodes = {node.name: node for node in model.graph.node}
    assert list(nodes) == [op.name for op in scenario.graph]
    for cost in estimate.operators:
        facts = {each.key.removeprefix("npusim."): each.value for each in nodes[cost.name].metadata_props}
        assert {key: float(facts[key]) for key in FIGURES} == {key: getattr(cost, key) for key in FIGURES}
    tensors = {
        info.name: info for part in ("input", "output", "value_info") for info in getattr(model.graph, part)
    }
    assert set(tensors) == set(scenario.graph.tensors)
    for name, tensor in scenario.graph.tensors.items():
        shape = tuple(each.dim_value for each in tensors[name].type.tensor_type.shape.dim)
        assert shape == tensor.shape


def test_dot_names_every_node_and_its_costs(scenario: npusim.Scenario, estimate: Estimate) -> None:
    """Each operator's line has its latency."""
    text = WRITERS[".dot"](scenario.graph, estimate).decode()
    latencies = dict(re.findall(r'^  "([^"]+)" \[.*?latency_s="([^"]+)"', text, re.MULTILINE))
    assert {name: float(value) for name, value in latencies.items()} == {
        cost.name: cost.latency_s for cost in estimate.operators
    }


@pytest.mark.parametrize("ending", sorted(WRITERS))
def test_hostile_names_break_no_file(ending: str) -> None:
    """Names with quotes, brackets and control characters are written, and read back where XML allows."""
    editor = Editor('a "graph" <&>')
    x = editor.input('in"put\x07<&>', (4, 4))
    editor.outputs = [editor.unary("Relu", x, 'op\\er"ator\x1b</node>')]
    graph = editor.finish()
    content = WRITERS[ending](graph, npusim.estimate(graph))
    if ending == ".graphml":
        assert len(nx.read_graphml(io.BytesIO(content))) == 2
    if ending == ".onnx":
        onnx = pytest.importorskip("onnx")
        assert onnx.load_from_string(content).graph.node[0].name == 'op\\er"ator\x1b</node>'
    if ending == ".dot":
        assert content.count(b"->") == 1


def test_parquet_of_an_estimate_says_units(tmp_path: Path, estimate: Estimate) -> None:
    """Every number has a unit, and the document comes back whole."""
    file = tmp_path / "estimate.parquet"
    words = "-t stagr --set workload.hidden=24 --set npu.tiles=3 --set npu.sram.per_tile=1MiB"
    assert run(["estimate", "gat-cora", *words.split(), "-o", str(file)]) == 0
    table = pq.read_table(file)
    assert Estimate.model_validate_json(table.schema.metadata[b"npusim.document"]) == estimate
    for field in table.schema:
        facts = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        if str(field.type) in ("double", "int64"):
            assert facts["unit"] == (unit_of(field.name) or "1")
    rows = table.to_pylist()
    assert [row["latency_s"] for row in rows] == [cost.latency_s for cost in estimate.operators]
    assert json.loads(table.schema.metadata[b"npusim.document"])["schema"] == "npusim.estimate/1"


def test_parquet_of_a_sweep_says_units(tmp_path: Path) -> None:
    """Axes and metrics of a sweep carry their units."""
    space = tmp_path / "space.yaml"
    space.write_text(
        "schema: npusim.space/1\nworkload: gcn-cora\ntechniques: stagr\nsoc: core-ultra-series2\n"
        "axes:\n  npu.sram.per_tile: [1MiB, 2MiB]\n  npu.tiles: [2, 4]\n"
    )
    npusim.sweep(space, tmp_path / "out")
    schema = pq.read_table(tmp_path / "out" / "kept.parquet").schema
    units = {field.name: field.metadata[b"unit"].decode() for field in schema}
    assert units["npu.sram.per_tile"] == "B" and units["npu.tiles"] == "1"
    assert units["latency_s"] == "s" and units["energy_j"] == "J" and units["throughput_per_s"] == "/s"


@pytest.mark.parametrize(
    "words", [["--save-graph", "x.png"], ["-o", "x.xlsx"], ["--save-graph", "no/folder/x.dot"]]
)
def test_other_files_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """An ending that no writer knows, or a folder that is not there, is one message before any work."""
    assert run(["estimate", "gcn-cora", *words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
