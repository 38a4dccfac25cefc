"""Spaces take a graph or a factory of graphs as well as a name: sweep, search, resume, other processes."""

import pickle

import pytest

import npusim
from npusim import Editor, Graph, Space, estimate, load_workload
from npusim.errors import NpusimError
from npusim.explore.query import query


def product(width: int = 64) -> Graph:
    editor = Editor("product")
    x = editor.input("x", (256, 128))
    editor.outputs.append(editor.matmul(x, editor.constant("w", (128, width)), "layer"))
    return editor.finish()


def space(network, **more):
    axes = {"npu.tiles": {"values": [1, 4]}, "npu.dsp.per_tile": {"values": [1, 2]}}
    head = {"schema": "npusim.space/1", "workload": network, "keep": "all"}
    return {**head, **more, "axes": {**axes, **more.get("axes", {})}}


def latencies(directory) -> list[float]:
    return query(directory, "SELECT latency_s FROM points ORDER BY point")["latency_s"].to_pylist()


def test_a_graph_is_swept_like_the_workload_of_its_name(tmp_path):
    npusim.sweep(space("gcn-cora", techniques="stagr"), tmp_path / "named")
    npusim.sweep(space(load_workload("gcn-cora"), techniques="stagr"), tmp_path / "held")
    assert latencies(tmp_path / "named") == latencies(tmp_path / "held")


def test_a_factory_takes_the_settings_of_an_axis(tmp_path):
    widths = {"workload.width": {"values": [64, 1024]}}
    npusim.sweep(space(product, axes=widths), tmp_path)
    rows = query(tmp_path, "SELECT * FROM points ORDER BY point").to_pylist()
    assert len(rows) == 8
    for row in rows:
        settings = [f"{path}={row[path]}" for path in ("workload.width", "npu.tiles", "npu.dsp.per_tile")]
        assert row["latency_s"] == pytest.approx(estimate(product, settings=settings).latency_s)


def test_another_graph_of_the_same_name_does_not_resume(tmp_path):
    npusim.sweep(space(product()), tmp_path)
    assert npusim.sweep(space(product()), tmp_path, resume=True).kept == 4
    with pytest.raises(NpusimError, match="cannot be resumed"):
        npusim.sweep(space(product(65)), tmp_path, resume=True)


def test_a_front_is_found_and_searched(tmp_path):
    npusim.sweep(space(product, keep="pareto"), tmp_path / "swept")
    assert npusim.pareto(tmp_path / "swept").front >= 1
    pytest.importorskip("pymoo")
    assert npusim.search(space(product), tmp_path / "searched", budget=20, population=4).front >= 1


def test_a_graph_goes_to_another_process_whole():
    graph = npusim.apply(load_workload("gat-cora"), "stagr+effop")
    there = pickle.loads(pickle.dumps(graph))
    assert there.digest == graph.digest
    assert estimate(there) == estimate(graph)
    assert graph.digest != load_workload("gat-cora").digest


def test_a_space_with_a_graph_is_written_with_its_name():
    made = Space.model_validate(space(product()))
    assert isinstance(made.workload, Graph)
    assert '"workload":"product"' in made.model_dump_json(by_alias=True)
