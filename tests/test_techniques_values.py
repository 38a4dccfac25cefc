"""Techniques that promise the same results give them: graphs run with numbers before and after."""

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import pytest
from graph_values import run

from npusim.graph import Graph, GraphStructure
from npusim.ops import Role, Tensor
from npusim.techniques import apply
from npusim.workloads import GnnSpec, build_gnn

NODES, FEATURES, CLASSES, NEIGHBOURS, CAPACITY = 13, 6, 3, 5, 17
FORMS = [
    ("gcn", "edges", 1),
    ("gcn", "dense", 1),
    ("gat", "dense", 1),
    ("gat", "dense", 2),
    ("gat", "edges", 1),
    ("gat", "edges", 2),
    ("sage-mean", "gathered", 1),
    ("sage-mean", "edges", 1),
    ("sage-mean", "dense", 1),
    ("sage-max", "gathered", 1),
    ("sage-max", "edges", 1),
]


def ring() -> np.ndarray:
    """A ring with some chords: every node has 2 to 5 neighbours."""
    pairs = {(i, (i + 1) % NODES) for i in range(NODES)} | {(0, 3), (0, 6), (2, 9), (5, 11), (6, 11)}
    both = sorted(pairs | {(b, a) for a, b in pairs})
    return np.array(both).T


EDGES = ring()


@cache
def graph_of(model: str, form: str, heads: int) -> Graph:
    degree = np.bincount(EDGES[1], minlength=NODES)
    structure = GraphStructure(
        "ring", NODES, EDGES.shape[1], FEATURES, CLASSES, degree_histogram=tuple(np.bincount(degree).tolist())
    )
    spec = GnnSpec(model=model, dataset="ring", hidden=4, heads=heads, form=form, neighbours=NEIGHBOURS)
    return build_gnn(spec, structure)


class World(Mapping):
    """Values of every input and constant of a graph, worked out from the edges alone, by hand."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.model = graph.meta.model
        self.nodes = graph.meta.capacity or NODES
        self.loops = self.model in ("gcn", "gat")

    def __iter__(self) -> Iterator[str]:
        return iter(self.graph.tensors)

    def __len__(self) -> int:
        return len(self.graph.tensors)

    def __getitem__(self, name: str) -> np.ndarray:
        tensor = self.graph.tensors[name]
        if tensor.role in (Role.WEIGHT, Role.BIAS):
            return np.random.default_rng(list(name.encode())).normal(size=tensor.shape)
        exact = {
            "x": self.features,
            "edge_index": lambda: EDGES,
            "neighbours": lambda: self.sample()[0],
            "source": lambda: EDGES[0],
            "target": lambda: np.broadcast_to(EDGES[1][:, None], tensor.shape),
            "target_1": lambda: np.broadcast_to(EDGES[1][:, None], tensor.shape),
            "norm": self.norm,
            "adjacency": self.adjacency,
            "edge_norm": lambda: self.edge_norm(tensor),
            "mask": lambda: self.mask(tensor),
            "mask_present": lambda: self.mask(tensor),
            "mask_negative": lambda: (self.mask(tensor) - 1.0) * 1e4,
        }
        if name in exact:
            return exact[name]()
        numbers = {
            "blank": 0.0,
            "blank_1": 0.0,
            "zero": 0.0,
            "one": 1.0,
            "ones": 1.0,
            "ones_1": 1.0,
            "ones_right": 1.0,
            "ones_below": 1.0,
            "exponent": -0.5,
            "slope": 0.2,
            "low": -1e4,
            "minus_infinity": -9e15,
            "lowering": 1e4,
            "minus_lowering": -1e4,
            "nodes": self.nodes,
        }
        last = name.rsplit("/", 1)[-1]
        if last in numbers:
            return np.full(tensor.shape, numbers[last])
        if last == "loops":
            return np.arange(NODES) * np.ones((2, 1), int)
        if last == "row":
            return np.array(int("target" in name))
        raise AssertionError(f"no value for {name}")

    def features(self) -> np.ndarray:
        x = np.zeros((self.nodes, FEATURES))
        chance = np.random.default_rng(7)
        x[:NODES] = chance.exponential(size=(NODES, FEATURES)) * chance.integers(0, 2, size=(NODES, FEATURES))
        return x

    def adjacency(self) -> np.ndarray:
        matrix = np.zeros((self.nodes, self.nodes))
        matrix[EDGES[1], EDGES[0]] = 1.0
        if self.loops:
            matrix[range(NODES), range(NODES)] = 1.0
        return matrix

    def norm(self) -> np.ndarray:
        matrix = self.adjacency()
        degree = np.maximum(matrix.sum(1), 1)
        return matrix / np.sqrt(np.outer(degree, degree)) if self.model == "gcn" else matrix / degree[:, None]

    def edge_norm(self, tensor: Tensor) -> np.ndarray:
        if self.graph.meta.form == "gathered":
            _, mask = self.sample()
            return mask / np.maximum(mask.sum(1, keepdims=True), 1)
        source, target = (
            np.concatenate([EDGES, np.arange(NODES) * np.ones((2, 1), int)], 1) if self.loops else EDGES
        )
        return self.norm()[target, source].reshape(tensor.shape)

    def sample(self) -> tuple[np.ndarray, np.ndarray]:
        chosen, mask = np.zeros((self.nodes, NEIGHBOURS), int), np.zeros((self.nodes, NEIGHBOURS))
        for node in range(NODES):
            neighbours = EDGES[0][EDGES[1] == node]
            chosen[node, : len(neighbours)] = neighbours
            mask[node, : len(neighbours)] = 1.0
        return chosen, mask

    def mask(self, tensor: Tensor) -> np.ndarray:
        full = self.sample()[1] if self.model.startswith("sage") else self.adjacency()
        return full.reshape(tensor.shape)


def result(graph: Graph) -> np.ndarray:
    return run(graph, World(graph))[:NODES]


EXACT = {
    "gcn": [
        "graphsplit",
        "preg",
        "stagr",
        "grad",
        "preg+stagr",
        "preg+nodepad",
        "stagr+nodepad",
        "grad+nodepad",
    ],
    "gat": [
        "graphsplit",
        "nodepad",
        "stagr",
        "stagr+nodepad",
        "grad",
        "stagr+effop",
        "grad+effop",
        "stagr+effop+grax1",
        "grad+grax1",
    ],
    "sage-mean": ["preg", "stagr", "grad", "preg+grad", "stagr+nodepad"],
    "sage-max": ["nodepad", "stagr", "grad", "stagr+nodepad"],
}
FOR_FORM = {
    ("gcn", "edges"): ["effop", "nodepad"],
    ("gat", "dense"): ["effop", "grax1", "grax2:form=rank2", "stagr+effop+grax1+grax2:form=rank2"],
    ("gat", "edges"): ["stagr+effop+grax2:form=rank2"],
    ("sage-mean", "gathered"): ["effop"],
    ("sage-mean", "edges"): ["effop"],
    ("sage-max", "gathered"): [
        "effop",
        "grax3",
        "grax3:maximum=reduce",
        "stagr+effop+grax3",
        "grad+nodepad+grax3",
    ],
}


def cases() -> list[tuple[str, str, int, str]]:
    found = []
    for model, form, heads in FORMS:
        for stack in (*EXACT[model], *FOR_FORM.get((model, form), [])):
            found.append((model, form, heads, stack.replace("nodepad", f"nodepad:capacity={CAPACITY}")))
    return found


@pytest.mark.few(8)
@pytest.mark.parametrize(("model", "form", "heads", "stack"), cases())
def test_an_exact_rewrite_gives_the_same_results(model: str, form: str, heads: int, stack: str) -> None:
    graph = graph_of(model, form, heads)
    np.testing.assert_allclose(result(apply(graph, stack)), result(graph), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("model", "forms"), [("gcn", 2), ("sage-mean", 3), ("sage-max", 2)])
def test_all_forms_of_a_model_compute_the_same(model: str, forms: int) -> None:
    results = [result(graph_of(m, form, 1)) for m, form, _ in FORMS if m == model]
    assert len(results) == forms
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("heads", [1, 2])
def test_literal_grax2_makes_attention_a_uniform_mean(heads: int) -> None:
    graph = graph_of("gat", "dense", heads)
    literal = result(apply(graph, "effop+grax2:form=literal"))
    assert not np.allclose(literal, result(graph), atol=1e-3)

    class Uniform(World):
        """Score vectors of zeros: every neighbour counts alike."""

        def __getitem__(self, name: str) -> np.ndarray:
            value = super().__getitem__(name)
            return 0.0 * value if "_score/" in name else value

    np.testing.assert_allclose(literal, run(graph, Uniform(graph)), rtol=1e-9, atol=1e-9)


def test_source_grax2_drops_what_the_softmax_would_cancel_but_for_the_kink() -> None:
    graph = graph_of("gat", "dense", 1)

    class Straight(World):
        """A LeakyReLU without a kink: then the target's score shifts a whole row, which softmax ignores."""

        def __getitem__(self, name: str) -> np.ndarray:
            return np.array(1.0) if name.endswith("/slope") else super().__getitem__(name)

    source = apply(graph, "effop+grax2:form=source")
    np.testing.assert_allclose(
        run(source, Straight(source)), run(graph, Straight(graph)), rtol=1e-9, atol=1e-9
    )
    assert not np.allclose(result(source), result(graph), atol=1e-6)
