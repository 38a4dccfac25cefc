"""Parts, samples and tiles of large graphs: exact counts and products; advice keeps to its notes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import halo_of_part

from npusim.frontends.pyg import ExampleGraph, sample
from npusim.techniques.blocks import count_tiles, places_of_nodes
from npusim.techniques.neighbourhoods import matrix_from


def example(nodes: int, edges: int, seed: int) -> ExampleGraph:
    random = np.random.default_rng(seed)
    ends = (nodes * random.random((2, edges)) ** 2).astype(np.int64)
    return ExampleGraph(nodes, "links", {"links": ends})


GRAPHS = {"nodes": st.integers(2, 150), "edges": st.integers(1, 400), "seed": st.integers(0, 1 << 16)}


@settings(deadline=None)
@given(**GRAPHS, parts=st.integers(1, 90), hops=st.integers(1, 3))
def test_partitions_own_every_edge_once_and_their_halos_are_counted(nodes, edges, seed, parts, hops):
    graph, parts = example(nodes, edges, seed), min(parts, nodes)
    part_of = np.random.default_rng(seed).permutation(nodes) * parts // nodes
    counts = graph.nodes_with_halos(part_of, hops)
    sizes = np.bincount(part_of, minlength=parts)
    assert sizes.max() - sizes.min() <= 1 and len(counts) == parts
    owned_by = np.zeros(edges, int)
    for part in range(parts):
        inside, read = halo_of_part(
            graph.sources.tolist(), graph.targets.tolist(), part_of.tolist(), part, hops
        )
        all_nodes, all_edges = graph.with_halo(part_of == part, hops)
        assert (set(all_nodes), set(all_edges)) == (inside, read)
        assert counts[part] == len(inside)
        own = all_edges[part_of[graph.targets[all_edges]] == part]
        owned_by[own] += 1
    assert (owned_by == 1).all()


@settings(deadline=None)
@given(**GRAPHS, fan_out=st.lists(st.integers(1, 6), min_size=1, max_size=3), roots=st.integers(1, 20))
def test_samples_stay_within_the_fan_out(nodes, edges, seed, fan_out, roots):
    graph, roots = example(nodes, edges, seed), min(roots, nodes)
    seeds = np.random.default_rng(seed).permutation(nodes)[:roots]
    sampled, chosen = sample(graph, seeds, fan_out, seed)
    assert (sampled[:roots] == seeds).all() and len(set(sampled)) == len(sampled)
    assert len(set(chosen)) == len(chosen)
    assert {*graph.sources[chosen], *graph.targets[chosen]} <= set(sampled)
    most, reached = 0, roots
    for count in fan_out:
        reached *= count
        most += reached
    assert len(chosen) <= most and len(sampled) <= roots + most
    degrees = np.bincount(graph.targets, minlength=nodes)
    kept = np.bincount(graph.targets[chosen], minlength=nodes)
    assert (kept <= np.minimum(degrees, max(fan_out))).all()
    assert (kept[seeds] == np.minimum(degrees[seeds], fan_out[0])).all()


@settings(deadline=None)
@given(**GRAPHS, size=st.sampled_from([16, 32]))
def test_an_order_of_nodes_is_a_permutation_with_at_most_the_tiles_of_the_graph_itself(
    nodes, edges, seed, size
):
    graph = example(nodes, edges, seed)
    matrix = matrix_from(np.ones(edges), graph.targets, graph.sources, (nodes, nodes))
    place = places_of_nodes(matrix, size)
    assert sorted(place) == list(range(nodes))
    tiles = {(place[t] // size, place[s] // size) for s, t in zip(graph.sources, graph.targets, strict=True)}
    assert count_tiles(matrix, place, size) == len(tiles) <= count_tiles(matrix, np.arange(nodes), size)


def test_a_graph_with_two_lists_of_edges_or_one_type_of_nodes_alone_is_told_apart():
    ends = np.array([[0, 1], [1, 2]])
    features = np.zeros((3, 4), np.float32)
    assert ExampleGraph.of({"x": features, "e": ends}).edges == 2
    assert ExampleGraph.of({"x": features, "e": ends, "pairs": ends}) is None
    assert ExampleGraph.of({"x": features[:2], "e": ends}) is None


torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
pytest.importorskip("openvino")

from torch_geometric import nn as pyg  # noqa: E402

from npusim import advise  # noqa: E402
from npusim.errors import ShapeError  # noqa: E402
from npusim.frontends import pyg as importing  # noqa: E402
from npusim.frontends.pyg import from_pyg  # noqa: E402
from npusim.frontends.valued import valued_module  # noqa: E402
from npusim.scenario import Scenario  # noqa: E402
from npusim.studies import deployments  # noqa: E402
from npusim.techniques import apply, legal  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x, links):
        for layer in self.layers:
            x = layer(x, links).relu()
        return x


def mesh(side: int) -> torch.Tensor:
    """Return the edges of a square mesh whose nodes are shuffled."""
    at = torch.arange(side * side).view(side, side)
    ends = [
        torch.stack([a.reshape(-1), b.reshape(-1)]) for a, b in ((at[:, 1:], at[:, :-1]), (at[1:], at[:-1]))
    ]
    ends = torch.randperm(side * side)[torch.cat(ends, 1)]
    return torch.cat([ends, ends.flip(0)], 1)


@pytest.mark.few(1)
@pytest.mark.parametrize("stack", ["tiles", "tiles:size=16", "tiles+padded"])
def test_products_of_tiles_are_the_dense_product(stack):
    torch.manual_seed(0)
    layers = pyg.GCNConv(6, 5), pyg.SAGEConv(5, 4), pyg.SAGEConv(4, 3, aggr="max")
    module = Net(*layers[: 2 + ("padded" in stack)]).eval()
    network = valued_module(module, {"x": torch.randn(1024, 6), "links": mesh(32)}, "mesh")
    graph = apply(network.graph, stack)
    ours, theirs = network.outputs(graph, network.rewritten(graph))[0], network.answers(network.inputs)[0]
    np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max())
    held = sum(graph.tensors[name].elements for name in graph.prepared if "norm" in name)
    assert held < 2 * 1024**2 / 3


def test_tiles_of_a_graph_without_order_are_refused_with_their_number():
    ends = torch.randint(0, 2000, (2, 40000))
    graph = from_pyg(pyg.SAGEConv(4, 4), {"x": torch.rand(2000, 4), "e": ends})
    assert "64 x 64 with an edge" in str(legal(graph, "tiles"))
    assert legal(graph, "tiles+grad") is not None


def test_a_module_traced_on_fewer_nodes_is_the_same_network(monkeypatch):
    torch.manual_seed(0)
    inputs = {"x": torch.rand(3000, 6), "links": torch.randint(0, 3000, (2, 9000))}
    fixed = Net(pyg.GCNConv(6, 5))
    fixed.layers[0].forward = lambda x, links: x + torch.zeros(int(links.max()) + 1, 1)
    for module in (Net(pyg.GCNConv(6, 5), pyg.GATConv(5, 4)), fixed):
        whole = from_pyg(module, inputs)
        with monkeypatch.context() as patch:
            patch.setattr(importing, "_MANY_EDGES", 0)
            few = from_pyg(module, inputs)
        assert few.meta.known == whole.meta.known and few.macs == whole.macs
        shapes = [[(op.type, graph.tensors[op.outputs[0]].shape) for op in graph] for graph in (few, whole)]
        assert shapes[0] == shapes[1]


def large(module, nodes=20_736, links=None):
    torch.manual_seed(0)
    links = mesh(144) if links is None else links
    return Scenario(module.eval(), inputs={"x": torch.rand(nodes, 8), "links": links})


@pytest.mark.laws
def test_ways_of_a_large_graph_are_compared_and_the_conclusion_keeps_to_them():
    advice = advise(large(Net(pyg.GCNConv(8, 8), pyg.GCNConv(8, 4))), samples=0)
    kinds = {way.graph.split(",")[0] for way in advice.deployments}
    assert {"whole", "6 parts"} <= kinds and any("batches of 1024" in kind for kind in kinds)
    assert {"tiles", "csr", "padded", "none"} <= {way.techniques for way in advice.deployments}
    for way in advice.deployments:
        assert bool(way.problem) == (way.all_nodes_s is None) or "compiling" in way.problem
        assert way.is_exact == ("sampled" not in way.graph)
        assert way.same_answers is None or not way.is_exact
    best = min((way for way in advice.deployments if way.is_advisable), key=lambda way: way.all_nodes_s)
    named = f"Run it on the {best.device.upper()}" in advice.conclusion
    assert named == (1.05 * advice.today.throughput_per_s * best.all_nodes_s <= 1.0)
    assert "csr" not in advice.conclusion.split(";")[0] and "csr" not in advice.today.techniques
    assert "parts" in str(advice)


@pytest.mark.laws
@pytest.mark.parametrize("megabytes", [1000, 60, 30])
def test_no_way_that_exceeds_the_memory_is_advised(megabytes):
    settings = [f"dram.capacity={megabytes}MB"]
    scenario = large(Net(pyg.GCNConv(8, 16), pyg.GCNConv(16, 4))).with_(settings=settings)
    advice = advise(scenario, samples=0)
    for way in advice.deployments:
        assert way.problem or max(way.memory_bytes, way.compile_peak_bytes or 0.0) <= megabytes * 1e6
    if advice.as_it_is is None:
        assert "takes more memory than the machine has" in advice.conclusion and "none: " in str(advice.notes)
        assert any(one.verdict == "gains" and one.gain is None for one in advice.techniques)
    refused = [one for one in advice.techniques if one.verdict == "refused"]
    assert all(one.reason for one in refused) and "padded" not in {one.technique for one in refused}
    assert advice.conclusion.split()[-1] in " ".join(str(advice).split())


def test_parts_whose_models_exceed_the_memory_together_have_a_problem():
    scenario = large(Net(pyg.GCNConv(8, 8))).with_(settings=["dram.capacity=100MB"])
    way = deployments._costed(
        scenario.with_(techniques="padded", device="cpu"), deployments.Deployment(graph="parts", runs=200)
    )
    assert way.memory_bytes > 100e6 and "all models take" in way.problem and not way.is_advisable


def ring_with(nodes: int, edges: torch.Tensor) -> Scenario:
    torch.manual_seed(0)
    return Scenario(
        Net(pyg.GCNConv(8, 8), pyg.SAGEConv(8, 4)).eval(), inputs={"x": torch.rand(nodes, 8), "links": edges}
    )


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("nodes", "edges"),
    [
        (1, torch.zeros((2, 1), dtype=torch.long)),
        (30_000, torch.stack([torch.arange(9), torch.arange(1, 10)])),
        (30_000, torch.stack([torch.arange(29_999), torch.full((29_999,), 7)])),
    ],
    ids=["a loop", "isolated", "star"],
)
def test_degenerate_graphs_have_advice(nodes, edges):
    advice = advise(ring_with(nodes, edges), samples=0)
    assert advice.conclusion and "nan" not in str(advice)
    assert all(way.all_nodes_s > 0 for way in advice.deployments if not way.problem)


def test_a_graph_without_edges_is_refused_in_one_message():
    with pytest.raises(ShapeError, match="holds nothing; sizes are at least 1"):
        advise(ring_with(30, torch.zeros((2, 0), dtype=torch.long)), samples=0)


def test_networks_whose_answers_depend_on_all_nodes_are_not_cut():
    class Centred(Net):
        def forward(self, x, links):
            x = super().forward(x, links)
            return x - x.mean(0, keepdim=True)

    scenario = large(Centred(pyg.GCNConv(8, 4)))
    example = deployments._example_of(scenario)
    ((way, inputs, _),) = deployments._shares(scenario.baseline, *example, is_run=False)
    assert inputs is None and "more than the neighbours" in way.problem


@pytest.mark.few(1)
@pytest.mark.parametrize(("layers", "hops"), [((pyg.GCNConv,), 1), ((pyg.GATConv, pyg.SAGEConv), 2)])
def test_layers_along_edges_are_hops(layers, hops):
    scenario = large(Net(*(layer(8, 8) for layer in layers)), 30, torch.randint(0, 30, (2, 70)))
    assert deployments.layers_of(scenario.baseline)[0] == hops


def test_layer_by_layer_reads_less_than_parts_with_deep_halos_and_launches_each_layer():
    scenario = large(Net(pyg.GCNConv(8, 8), pyg.GCNConv(8, 4)))
    hops, names = deployments.layers_of(scenario.baseline)
    assert hops == 2 and names <= scenario.baseline.tensors.keys() and len(names) == 1
    share = deployments.Deployment(graph="part", runs=3)
    cached = {name: float(scenario.baseline.tensors[name].bytes) for name in names}
    cpu = scenario.with_(device="cpu")
    whole, layered = (deployments._costed(cpu, share, each) for each in ({}, cached))
    assert layered.all_nodes_s > whole.all_nodes_s, "the same part, with a launch and a transfer more"
    assert layered.memory_bytes >= whole.memory_bytes + sum(cached.values()) - 1e-6 * whole.memory_bytes
    absent = deployments._costed(cpu, share, {"no such tensor": 1.0})
    assert "leaves no features" in absent.problem
