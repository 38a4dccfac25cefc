"""Feature decomposition: what is cut, what stays the same, memory, edges read, misses, refusals."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shape_rules import misfits

import npusim
from npusim.decomposition import suite as decomposition
from npusim.decomposition.technique import (
    DecompositionParameters,
    chunks_of,
    divisor,
    moved_bytes,
    segments,
)
from npusim.errors import IllegalTechniqueError
from npusim.graph import Graph, GraphStructure
from npusim.measuring.aggregation import MessagePassing, miss_rates
from npusim.techniques import apply, legal, technique_names
from npusim.validation.running import run_suite
from npusim.workloads import GnnSpec, build_gnn

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from test_techniques_numerics import data, outputs  # noqa: E402, F401

from npusim.gnn_models.judging import judge  # noqa: E402

STRUCTURE = GraphStructure("g", 1000, 200_000, 32, 8)
CACHES = decomposition.load_definitions().caches
FORMS = [
    ("gcn", "edges"), ("gcn", "csr"), ("gcn", "dense"), ("sage-mean", "edges"), ("sage-max", "edges"),
    ("gat", "edges"), ("sage-concat", "edges"), ("sage-concat", "csr"),
]  # fmt: skip


def network(model: str = "gcn", form: str = "edges", **keys: object) -> Graph:
    told = {"model": model, "form": form, "dataset": "g", "hidden": 32, "precision": "fp32"} | keys
    return build_gnn(GnnSpec.model_validate(told), STRUCTURE)


@pytest.mark.few(4)
@pytest.mark.parametrize(("model", "form"), FORMS)
@pytest.mark.parametrize("chunks", [2, 8])
def test_aggregation_runs_in_chunks_and_gives_the_same_shape_and_work(
    model: str, form: str, chunks: int
) -> None:
    graph = network(model, form)
    done = apply(graph, f"feature-decomposition:chunks={chunks}")
    assert misfits(done) == []
    assert [done.tensors[t].shape for t in done.outputs] == [graph.tensors[t].shape for t in graph.outputs]
    assert done.macs == graph.macs
    assert {op.repeats for op in done if op.name.endswith("/chunk")} == {chunks}


@pytest.mark.parametrize("model", ["gcn", "gat", "sage"])
def test_the_suites_memory_is_an_estimates_whose_indices_are_views(model: str) -> None:
    """By hand: features, sums and messages of edges with loops; an estimate repeats the indices as well."""
    whole, chunked = (decomposition.memory_bytes(model, 32, chunks) for chunks in (1, 8))
    nodes, edges = 232_965, 114_615_892
    messages = (edges + nodes) * 32 * 4.0
    copies = 1 if model == "sage" else 2
    assert copies * messages < whole < copies * messages + 6e9
    assert chunked < whole - 0.7 * copies * messages
    graph = network(model if model != "sage" else "sage-mean", layers=1)
    views = decomposition._with_views(graph)
    peaks = [npusim.estimate(g, "generic-cpu", device="cpu").memory.dram_peak_bytes for g in (graph, views)]
    assert peaks[1] < peaks[0]


def test_heads_are_cut_each() -> None:
    done = apply(network("gat", heads=4), "feature-decomposition:chunks=4")
    gather = next(op for op in done if op.name == "layer0/aggregate/gather/chunk")
    assert done.outputs_of(gather)[0].shape[1:] == (4, 2)


def test_memory_on_a_cpu_never_rises_with_the_chunks() -> None:
    stacks = ["none", *(f"feature-decomposition:chunks={p}" for p in (2, 4, 8))]
    peaks = [npusim.estimate(network(), "generic-cpu", techniques=s).memory.dram_peak_bytes for s in stacks]
    assert all(more >= less for more, less in pairwise(peaks))
    assert peaks[-1] < peaks[0] / 2


@given(
    st.integers(2, 10**6), st.integers(1, 10**8), st.sampled_from([8, 16, 32, 64]), st.booleans(),
    st.sampled_from([1, 2, 4]),
)  # fmt: skip
def test_rates_are_shares(nodes: int, edges: int, width: int, scaled: bool, chunks: int) -> None:
    few, many = (MessagePassing(nodes, edges, width, p, scaled) for p in (chunks, 2 * chunks))
    for rates in (miss_rates(few, CACHES), miss_rates(many, CACHES)):
        assert 0.0 < rates.pop("ipc") <= 1.0 / CACHES.busy_cycles
        assert 0.0 <= min(rates.values()) <= max(rates.values()) <= 1.0


@given(st.integers(1, 512), st.integers(1, 512))
def test_chunks_divide_the_width(width: int, chunks: int) -> None:
    found = divisor(width, chunks)
    assert width % found == 0 and found >= min(chunks, width)


def test_auto_takes_the_fewest_chunks_that_fit() -> None:
    graph = network()
    loose = apply(graph, "feature-decomposition:chunks=auto:memory_gb=1")
    tight = apply(graph, "feature-decomposition:chunks=auto:memory_gb=0.02")
    repeats = [max(op.repeats for op in g) for g in (loose, tight)]
    assert repeats[0] == 1 < repeats[1] < 32


def test_auto_takes_the_chunks_that_move_the_fewest_bytes_through_a_cache() -> None:
    structure = GraphStructure("g", 200_000, 20_000_000, 32, 8)
    told = {"model": "gcn", "form": "edges", "dataset": "g", "hidden": 64, "precision": "fp32"}
    graph = build_gnn(GnnSpec.model_validate(told), structure)
    segment = segments(graph)[0]
    quickest = {}
    for cache_mb in (0.001, 16.0, 1000.0):
        parameters = DecompositionParameters(chunks="auto", cache_mb=cache_mb)
        found = chunks_of(graph, segment, parameters)
        moved = {p: moved_bytes(graph, segment, p, cache_mb * 1e6, 64.0) for p in (1, 2, 4, 8, 16, 32, 64)}
        assert found == min(moved, key=lambda p: moved[p])
        quickest[cache_mb] = found
    assert quickest[0.001] == quickest[1000.0] == 1 < quickest[16.0] < 64
    lines = [DecompositionParameters(chunks="auto", cache_mb=4.0, line_bytes=size) for size in (4.0, 64.0)]
    assert [chunks_of(graph, segment, one) for one in lines] == [8, 4]
    both = DecompositionParameters(chunks="auto", cache_mb=1000.0, memory_gb=4.0)
    assert 1 < chunks_of(graph, segment, both) <= 8


@pytest.mark.parametrize(
    ("model", "stack", "reason"),
    [
        ("gcn", "chunks=64", "at most 32"),
        ("gcn", "chunks=auto", "needs memory_gb"),
        ("gcn", "chunks=auto:memory_gb=0.001", "at least"),
        ("gat", "chunks=3", "divide the 32 features of a head"),
    ],
)
def test_impossible_chunks_are_refused_with_what_is_allowed(model: str, stack: str, reason: str) -> None:
    found = legal(network(model), f"feature-decomposition:{stack}")
    assert found is not None and reason in found


def test_a_network_without_aggregation_is_refused() -> None:
    with pytest.raises(IllegalTechniqueError, match="works feature by feature"):
        apply(npusim.load_workload("bert-base"), "feature-decomposition")


@pytest.mark.few(2)
@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
@pytest.mark.parametrize("chunks", [2, 4, 16])
def test_any_number_of_chunks_gives_the_same_bits_in_pyg(reduce: str, chunks: int) -> None:
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric.nn")

    class Aggregation(pyg.MessagePassing):
        def forward(self, x: object, edges: object) -> object:
            return self.propagate(edges, x=x)

    torch.manual_seed(0)
    x, edges = torch.randn(50, 16), torch.randint(0, 50, (2, 400))
    whole, cut = (Aggregation(aggr=reduce, decomposed_layers=p) for p in (1, chunks))
    assert torch.equal(whole(x, edges), cut(x, edges))


def test_gat_with_hidden_64_needs_more_than_32_gb_whole_and_less_in_chunks_of_8() -> None:
    peaks = [decomposition.memory_bytes("gat", 64, chunks) / 1e9 for chunks in (1, 8)]
    assert peaks[0] > 32.0 > peaks[1]


def test_the_papers_memory_and_misses_follow() -> None:
    assert run_suite("feature-decomposition").ok


def test_aggregation_that_chunks_do_not_change_misses_every_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    known = decomposition.load_definitions()
    whole = known.model_copy(update={"chunk_width": dict.fromkeys(known.chunk_width, 32)})
    monkeypatch.setattr(decomposition, "load_definitions", lambda: whole)
    judged = run_suite("feature-decomposition")
    assert [group.group for group in judged.groups if group.limit is not None and group.ok] == []


def test_it_runs_behind_the_rewrites_of_operators_and_before_those_of_storage() -> None:
    names = list(technique_names())
    assert names.index("grax3") < names.index("feature-decomposition") < names.index("quantgr")


def test_the_numbers_are_the_same(data) -> None:  # noqa: F811
    whole, cut = (outputs("gcn", stack, data) for stack in ("none", "feature-decomposition:chunks=4"))
    torch.testing.assert_close(cut, whole, atol=2e-5, rtol=1e-4)


@pytest.mark.laws
def test_accuracy_stays(planetoid_root: Path) -> None:
    report = judge(["gcn-cora"], ["feature-decomposition:chunks=4"], planetoid_root)
    exact = [one for one in report.results if one.numbers == "fp32"]
    assert exact[-1].techniques == "feature-decomposition:chunks=4"
    assert exact[-1].accuracy == exact[0].accuracy and exact[-1].agreement == 1.0
