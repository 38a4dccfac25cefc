"""Differences of graphs: what techniques remove, add and change, and drawings of it."""

import json
from collections import Counter

import networkx as nx
import pytest

from npusim.graph import Editor, Graph, GraphDifference, graph_difference, to_dot
from npusim.ops import DType, Storage
from npusim.techniques import apply
from npusim.workloads import load_workload


def small(**weights: object) -> Graph:
    editor = Editor("small")
    x = editor.input("x", (4, 8))
    product = editor.matmul(x, editor.constant("w", (8, 2), **weights), "product")
    editor.outputs.append(editor.unary("Relu", product, "out"))
    return editor.finish()


def changed(before: Graph, after: Graph) -> dict[str, list[str]]:
    return {one.name: one.changes for one in graph_difference(before, after).changed}


def test_a_graph_does_not_differ_from_itself() -> None:
    difference = graph_difference(small(), small())
    assert (difference.removed, difference.added, difference.changed) == ([], [], [])
    assert difference.before == difference.after
    assert (difference.before.operators, difference.before.macs) == (2, 4 * 8 * 2)
    assert difference.before.bytes == 2 * (4 * 8 + 8 * 2 + 4 * 2) + 2 * 2 * (4 * 2)


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({"dtype": DType.INT8}, "dtype"),
        ({"storage": Storage.ZVC}, "storage"),
        ({"cached": True}, "storage"),
    ],
)
def test_a_changed_operand_is_a_change_of_its_readers(fields: dict[str, object], change: str) -> None:
    assert changed(small(), small(**fields)) == {"product": [change]}


@pytest.mark.parametrize(
    ("fields", "change"),
    [({"type": "Sigmoid"}, "type"), ({"device": "cpu"}, "device"), ({"inputs": ("x",)}, "inputs")],
)
def test_a_changed_operator_is_matched_by_its_name(fields: dict[str, object], change: str) -> None:
    editor = Editor.of(small())
    editor.change_operator("out", **fields)
    assert change in changed(small(), editor.finish())["out"]


def test_a_technique_is_seen_by_what_it_removes_and_adds() -> None:
    graph = load_workload("gcn-cora")
    rewritten = apply(graph, "stagr")
    difference = graph_difference(graph, rewritten)
    kept = {op.name for op in graph} - {op.name for op in difference.removed}
    assert kept | {op.name for op in difference.added} == {op.name for op in rewritten}
    assert Counter(op.type for op in difference.added)["MatMul"] == 2
    assert "ScatterElementsUpdate" in {op.type for op in difference.removed}
    assert (difference.before.techniques, difference.after.techniques) == ("none", "stagr")
    assert difference.after.macs == rewritten.macs
    symmetric = graph_difference(rewritten, apply(graph, "stagr+symg"))
    norms = {t.name: t.storage for one in symmetric.changed for t in one.after.inputs}
    assert norms["norm"] == "triangle" and not symmetric.removed and not symmetric.added


def test_a_difference_is_a_document() -> None:
    difference = graph_difference(small(), small(dtype=DType.INT8))
    data = json.loads(difference.to_json())
    assert data["schema"] == "npusim.graph-difference/1"
    assert GraphDifference.model_validate(data) == difference
    assert difference.records("changed")[0]["name"] == "product"
    assert "changed: 1" in str(difference)


def test_a_drawing_holds_every_operator_and_marks_the_changes() -> None:
    before, after = small(), small(dtype=DType.INT8)
    difference = graph_difference(before, after)
    drawing = to_dot(after, difference)
    assert drawing.startswith('digraph "small" {') and drawing.rstrip().endswith("}")
    assert drawing.count("->") == nx.number_of_edges(after.to_networkx()) == 3
    (product,) = [line for line in drawing.splitlines() if line.startswith('  "product" [')]
    assert '"MatMul\\nproduct\\n[4, 2] fp16"' in product and "fillcolor" in product
    assert "fillcolor" not in to_dot(after).split(";", 1)[1]
