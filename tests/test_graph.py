"""The operator graph: what it refuses, how it is ordered, how it is rewritten."""

import itertools

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.errors import EmptyGraphError, GraphError, ShapeError
from npusim.graph import Editor, Graph, GraphStructure
from npusim.ops import DType, Operator, Role, Tensor, TensorKind


def chain(length: int = 3) -> Graph:
    """An input through `length` activations."""
    editor = Editor("chain")
    current = editor.input("x", (4, 8))
    for i in range(length):
        current = editor.unary("Relu", current, f"relu{i}")
    editor.outputs.append(current)
    return editor.finish()


def test_an_empty_graph_is_refused() -> None:
    with pytest.raises(EmptyGraphError, match="no operators"):
        Graph("nothing", [Tensor("x", (1,), kind=TensorKind.INPUT)], [], ["x"])


@pytest.mark.parametrize(
    ("tensors", "operators", "outputs", "message"),
    [
        (["x"], [("a", ["y"], [])], [], "reads unknown tensor 'y'"),
        (["x"], [("a", ["x"], ["y"])], [], "writes unknown tensor 'y'"),
        (["x", "y"], [("a", ["x"], ["y"]), ("b", ["x"], ["y"])], [], "both 'a' and 'b' write tensor 'y'"),
        (["x", "y"], [("a", ["x"], [])], [], "nothing writes it"),
        (["x", "y"], [("a", ["x"], ["y"])], ["z"], "output 'z' is no tensor"),
        (["x", "x", "y"], [("a", ["x"], ["y"])], [], "two tensors are called 'x'"),
        (["x", "y"], [("a", ["x"], ["y"]), ("a", ["x"], [])], [], "two operators are called 'a'"),
        (["x", "y", "z"], [("a", ["z"], ["y"]), ("b", ["y"], ["z"])], [], "has a cycle"),
    ],
)
def test_what_is_no_graph_is_refused_with_the_reason(
    tensors: list[str], operators: list[tuple[str, list[str], list[str]]], outputs: list[str], message: str
) -> None:
    made = [Tensor(t, (1,), kind=TensorKind.INPUT if t == "x" else TensorKind.ACTIVATION) for t in tensors]
    ops = [Operator(name, "Relu", tuple(i), tuple(o)) for name, i, o in operators]
    with pytest.raises(GraphError, match=message):
        Graph("g", made, ops, outputs)


@given(st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(random: object) -> None:
    graph = chain(6)
    operators = list(graph)
    random.shuffle(operators)  # type: ignore[attr-defined]
    again = Graph("chain", graph.tensors.values(), operators, graph.outputs)
    assert list(again.operators) == list(graph.operators)


def test_producers_stand_before_consumers() -> None:
    graph = chain(5)
    place = {op.name: i for i, op in enumerate(graph)}
    for op in graph:
        for reader in itertools.chain.from_iterable(graph.readers(t) for t in op.outputs):
            assert place[op.name] < place[reader.name]


def test_the_networkx_view_holds_operators_and_inputs() -> None:
    view = chain(2).to_networkx()
    assert dict(view.nodes(data="kind")) == {"x": "input", "relu0": "operator", "relu1": "operator"}
    assert list(view.edges) == [("x", "relu0"), ("relu0", "relu1")]
    assert nx.is_directed_acyclic_graph(view)
    assert "relu0" in "".join(nx.generate_graphml(view))


def test_what_follows_from_the_edges_alone_is_structural() -> None:
    editor = Editor("g", GraphStructure("tiny", 4, 6, 8, 2))
    edges = editor.input("edge_index", (2, 6), DType.INT64, role=Role.EDGES, structural=True)
    degree = editor.reduce("ReduceSum", edges, (1,), "degree")
    x = editor.input("x", (4, 2))
    weight = editor.constant("w", (2, 2))
    h = editor.matmul(x, weight, "h")
    scaled = editor.eltwise("Multiply", h, degree, "scaled")
    editor.outputs.append(scaled)
    graph = editor.finish()
    assert {"edge_index", "degree"} <= graph.structural
    assert not {"h", "scaled", "w", "x"} & graph.structural


def test_rewriting_leaves_the_old_graph_alone_and_prunes_what_nobody_needs() -> None:
    graph = chain(3)
    editor = Editor.of(graph)
    editor.rewire("relu1", "relu0", only=["relu2"])
    shorter = editor.finish()
    assert list(graph.operators) == ["relu0", "relu1", "relu2"]
    assert list(shorter.operators) == ["relu0", "relu2"]
    assert "relu1" not in shorter.tensors


def test_outputs_follow_when_every_reader_is_rewired() -> None:
    editor = Editor.of(chain(2))
    editor.rewire("relu1", "relu0")
    assert editor.finish().outputs == ("relu0",)


@pytest.mark.parametrize(
    ("a", "b", "expected"), [((4, 1), (1, 5), (4, 5)), ((5,), (4, 5), (4, 5)), ((2, 1, 3), (4, 1), (2, 4, 3))]
)
def test_elementwise_operators_broadcast_as_numpy_does(
    a: tuple[int, ...], b: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    editor = Editor("g")
    result = editor.eltwise("Add", editor.input("a", a), editor.input("b", b), "sum")
    assert editor.tensors[result].shape == expected


def test_shapes_that_do_not_go_together_are_refused() -> None:
    editor = Editor("g")
    a, b = editor.input("a", (3, 4)), editor.input("b", (5, 4))
    with pytest.raises(ShapeError, match="do not broadcast"):
        editor.eltwise("Add", a, b, "sum")
    with pytest.raises(ShapeError, match="cannot become"):
        editor.reshape(a, (5, 5), "view")
    editor.outputs.append(editor.matmul(a, b, "product"))
    graph = editor.finish()
    with pytest.raises(ShapeError, match="inner dimensions differ"):
        graph.work(graph.operators["product"])


def test_comparisons_give_booleans_and_reductions_drop_their_axes() -> None:
    editor = Editor("g")
    a = editor.input("a", (3, 4))
    assert editor.tensors[editor.eltwise("Greater", a, a, "greater")].dtype is DType.BOOL
    assert editor.tensors[editor.reduce("ReduceMax", a, (-1,), "max")].shape == (3,)
    assert editor.tensors[editor.reduce("ReduceMax", a, (0,), "kept", keep_dims=True)].shape == (1, 4)


def test_a_new_density_leaves_no_block_density_of_the_old_one() -> None:
    editor = Editor("thinned")
    norm = editor.constant("norm", (64, 64), density=0.1, block_density=0.5)
    editor.change_tensor(norm, density=0.1, cached=True)
    assert editor.tensors[norm].block_density == 0.5
    editor.change_tensor(norm, density=0.01)
    assert editor.tensors[norm].block_density is None
    editor.change_tensor(norm, density=0.02, block_density=0.3)
    assert editor.tensors[norm].block_density == 0.3


def test_padding_thins_the_adjacency_out() -> None:
    cora = GraphStructure("cora", 2708, 10556, 1433, 7, adjacency_block_density={16: 0.26})
    assert cora.adjacency_density() == pytest.approx(13264 / 2708**2)
    assert cora.adjacency_density(3000) == pytest.approx(13264 / 3000**2)
    assert cora.padded_block_density(16, 3000) == pytest.approx(0.26 * 170**2 / 188**2)
    assert cora.padded_block_density(128) is None
