"""Techniques find what they rewrite by structure, not by npusim's own names: as imported models need it."""

import pytest
from shape_rules import misfits
from test_techniques import ALL, graph_of, types

from npusim.graph import Editor, Graph
from npusim.ops import Role, TensorKind
from npusim.techniques import apply, legal, technique_names
from npusim.techniques.preprocessing import value_numbers


def anonymous(graph: Graph) -> Graph:
    """The same graph as a file would bring it: no telling names, regions or roles, no statistics."""
    tensors = {name: f"t{number}" for number, name in enumerate(sorted(graph.tensors))}
    renamed = [
        tensor.with_(name=tensors[name], role=tensor.role if tensor.kind is TensorKind.INPUT else Role.NONE)
        for name, tensor in graph.tensors.items()
    ]
    operators = [
        op.with_(
            name=f"o{number}",
            region="",
            inputs=tuple(tensors[t] for t in op.inputs),
            outputs=tuple(tensors[t] for t in op.outputs),
        )
        for number, op in enumerate(graph)
    ]
    return Graph("imported", renamed, operators, [tensors[t] for t in graph.outputs])


@pytest.mark.few(20)
@pytest.mark.parametrize("name", [n for n in technique_names() if n not in ("nodepad", "symg")])
@pytest.mark.parametrize(("model", "form"), ALL)
def test_an_imported_graph_is_rewritten_like_a_built_one(model: str, form: str, name: str) -> None:
    built, imported = graph_of(model, form), anonymous(graph_of(model, form))
    before = {"cacheg": "stagr+", "symg": "stagr+"}.get(name, "")
    stack = before + name
    assert (legal(built, stack) is None) == (legal(imported, stack) is None)
    if legal(built, stack) is None:
        done = apply(imported, stack)
        assert types(done) == types(apply(built, stack))
        assert misfits(done) == []
        assert not any(operator.startswith("/") for operator in done.operators)


def test_nodepad_says_that_an_imported_graph_has_no_statistics() -> None:
    reason = legal(anonymous(graph_of("gcn")), "nodepad")
    assert reason == "nodepad needs the number of nodes of a data graph; imported has none"


@pytest.mark.parametrize("kind", [TensorKind.CONSTANT, TensorKind.INPUT])
def test_symg_takes_an_imported_norm_that_is_known_to_be_symmetric(kind: TensorKind) -> None:
    editor = Editor.of(anonymous(apply(graph_of("gcn"), "stagr")))
    norm = next(t for t in editor.tensors.values() if t.shape == (2708, 2708))
    editor.change_tensor(norm.name, role=Role.NORM, kind=kind)
    graph = editor.finish()
    assert apply(graph, "symg+cacheg").tensors[norm.name].stored_bytes == 7_335_972
    editor.change_tensor(norm.name, symmetric=False)
    assert (
        legal(editor.finish(), "symg")
        == "symg needs a symmetric constant or input norm matrix; imported has none"
    )


def test_the_two_ends_of_the_edges_are_not_taken_for_the_same() -> None:
    same = value_numbers(graph_of("gcn"))
    assert same["preprocess/source"] != same["preprocess/target"]
