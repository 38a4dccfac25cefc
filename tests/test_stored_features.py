"""Stored hidden features: neighbourhoods, ages, answers, predicted and counted shares, refusals."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npusim
from npusim.errors import ConfigError, FileError, NpusimError
from npusim.graph import GraphStructure
from npusim.scenario import Scenario
from npusim.studies.stream import StorePlan, stored_features
from npusim.studies.stream.stored import known_shares
from npusim.workloads import load_statistics
from npusim.workloads.gnn.spec import Batch, support_of

CORA = load_statistics("cora")
SCENARIO = Scenario("sage-concat-cora", "generic-cpu")
histograms = st.lists(st.integers(0, 40), min_size=2, max_size=12).filter(lambda h: sum(h[1:]) > 5)


def structure_of(histogram: list[int]) -> GraphStructure:
    nodes, edges = sum(histogram), sum(k * n for k, n in enumerate(histogram))
    return GraphStructure("g", nodes, edges, 8, 3, degree_histogram=tuple(histogram))


# --- predicted ---


@given(histograms, st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(1, 8))
@settings(max_examples=25)
def test_more_stored_features_never_need_more_supporting_nodes(
    histogram: list[int], first: float, second: float, hop2: int
) -> None:
    structure = structure_of(histogram)
    few, many = (
        support_of(Batch(roots=3, hop2=hop2, stored=share, counted="distinct"), structure, 2)
        for share in sorted((first, second))
    )
    assert 3 <= many.nodes[0] <= few.nodes[0] <= structure.nodes
    assert many.edges[0] <= few.edges[0] and many.stored >= few.stored


@given(histograms)
@settings(max_examples=15)
def test_every_node_as_a_root_needs_every_node_once(histogram: list[int]) -> None:
    structure = structure_of(histogram)
    support = support_of(Batch(roots=structure.nodes, counted="distinct"), structure, 2)
    assert support.nodes == (structure.nodes,) * 3


def test_a_node_that_neighbourhoods_share_counts_once() -> None:
    each, distinct = (
        support_of(Batch(roots=512, counted=counted), CORA, 2).nodes[0] for counted in ("each", "distinct")
    )
    assert distinct < each <= CORA.nodes


def test_stored_features_grow_with_the_batches_and_are_dropped_with_age() -> None:
    forever, aged = (known_shares(CORA, StorePlan([100], age_limit=age), 100, 1.0) for age in (None, 2))
    assert forever == sorted(forever) and forever[0] == aged[0] == CORA.training_neighbours
    assert aged[-1] == pytest.approx(200 / 2708)
    assert known_shares(CORA, StorePlan([100]), 100, 0.0) == [0.0] * 10


def test_storing_saves_nodes_and_costs_memory() -> None:
    none, half, whole = stored_features(SCENARIO, StorePlan([64], [0.0, 0.5, 1.0])).batches
    assert none.skipped_share == 0.0 < half.skipped_share < whole.skipped_share
    assert none.storing_s == none.indexing_s == 0.0 < whole.indexing_s < whole.latency_stored_s
    assert none.store_bytes < half.store_bytes < whole.store_bytes


@pytest.mark.parametrize(
    ("workload", "plan", "complaint"),
    [
        ("gcn-cora", StorePlan([64]), "sage-concat of two layers"),
        ("sage-concat-cora", StorePlan([0]), "from 1 to 1000"),
        ("sage-concat-cora", StorePlan([1001]), "from 1 to 1000"),
        ("sage-concat-cora", StorePlan([64], [1.5]), "from 0 to 1"),
    ],
)
def test_impossible_plans_are_refused(workload: str, plan: StorePlan, complaint: str) -> None:
    with pytest.raises(NpusimError, match=complaint):
        stored_features(Scenario(workload, "generic-cpu"), plan)


def test_a_stream_tells_of_stored_features() -> None:
    found = npusim.stream("sage-concat-cora", updates=2, roots=[64])
    assert found.stored_features is not None and found.stored_features.batches[0].batches == 16


# --- on real graphs ---

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from small_networks import NODES, data, spec  # noqa: E402

from npusim.gnn_models.batches import (  # noqa: E402
    BatchedNetwork,
    age_0_difference,
    arrivals,
    counted,
    model_digest,
    neighbourhood,
    neighbours_of,
    runner_of,
)
from npusim.gnn_models.models import module_of  # noqa: E402


def network(seed: int = 0) -> BatchedNetwork:
    torch.manual_seed(seed)
    return BatchedNetwork(module_of(spec(), data()).eval(), data())


def test_a_neighbourhood_holds_every_node_once_and_the_edges_of_both_layers() -> None:
    graph = data()
    neighbours = neighbours_of(graph.edge_index, NODES)
    roots, stored = np.array([7, 3]), np.zeros(NODES, bool)
    stored[::2] = True
    batch = neighbourhood(neighbours, roots, stored, 2, np.random.default_rng(0))
    met = {s for s, t in graph.edge_index.T.tolist() if t in (7, 3)} - {7, 3}
    assert set(batch.fresh.tolist()) == {n for n in met if n % 2}
    assert set(batch.stored.tolist()) == {n for n in met if not n % 2}
    assert len(set(batch.supporting.tolist())) == len(batch.supporting)
    assert batch.supporting[:2].tolist() == [7, 3]
    assert met <= set(batch.supporting.tolist())
    fresh_rows = np.diff(batch.first.indptr)[2:]
    assert fresh_rows.max() <= 2 and batch.first.shape == (2 + len(batch.fresh), len(batch.supporting))


def test_all_neighbours_of_a_batch_give_the_answers_of_full_inference() -> None:
    one = network()
    roots = np.flatnonzero(one.data.test)
    batch = neighbourhood(one.neighbours, roots, np.zeros(NODES, bool), NODES, np.random.default_rng(0))
    scores, _ = one.answers(batch, None)
    with torch.no_grad():
        whole = one.module(one.x)[torch.from_numpy(roots)]
    assert torch.allclose(scores, whole, atol=1e-5)


def test_features_of_age_0_give_the_answers_that_are_computed_anew() -> None:
    one = network()
    assert age_0_difference(one, np.flatnonzero(one.data.test)) < 1e-5


def test_old_features_are_dropped_and_others_models_are_refused(tmp_path: Path) -> None:
    one, nodes = network(), np.arange(4)
    store = one.store(age_limit=2)
    one.fill(store, nodes, 1)
    assert store.held(3)[:5].tolist() == [True] * 4 + [False]
    assert not store.held(4).any()
    with pytest.raises(ConfigError, match="another model"):
        store.read(nodes, model_digest(network(1).module))
    store.save(tmp_path / "s.npz")
    again = one.store()
    again.load(tmp_path / "s.npz")
    assert torch.equal(again.features, store.features) and again.held(0)[:4].all()
    with pytest.raises(ConfigError, match="another model"):
        network(1).store().load(tmp_path / "s.npz")
    (tmp_path / "s.npz").write_text("no")
    with pytest.raises(FileError, match=r"is no \.npz file of arrays"):
        again.load(tmp_path / "s.npz")


@pytest.mark.laws
def test_a_run_answers_all_test_nodes_and_a_share_of_0_is_the_plain_batch() -> None:
    one = network()
    plan = StorePlan([3], hop2=4)
    row = stored_features(SCENARIO, StorePlan([64])).batches[0].model_copy(update={"roots": 3})
    none, whole = (counted(one, row.model_copy(update={"stored": s}), plan) for s in (0.0, 1.0))
    assert none.skipped_share == 0.0 and none.accuracy == none.accuracy_stored
    assert whole.skipped_share > 0.0 and whole.mean_age > 0.0


@pytest.mark.laws
def test_nodes_that_arrive_are_answered_at_once_and_a_renewed_model_starts_with_an_empty_store() -> None:
    found = arrivals(network, 2, StorePlan([2], renewed_after=2))
    assert [p.batches for p in found.periods] == [2, 2, 1]
    assert found.periods[-1].nodes == NODES
    assert all(p.refill_s >= 0.0 and 0.0 <= p.accuracy_stored <= 1.0 for p in found.periods)


@pytest.mark.laws
def test_predicted_shares_of_skipped_nodes_are_those_counted_on_cora(planetoid_root: Path) -> None:
    plan = StorePlan([32, 64, 128, 256, 512])
    found = stored_features(SCENARIO, plan, runner_of(planetoid_root))
    for row in found.batches:
        assert row.counted is not None
        assert abs(row.skipped_share - row.counted.skipped_share) < 0.1
        assert row.counted.largest_difference < 1e-4


def test_neighbourhoods_are_those_of_the_neighbor_loader() -> None:
    typing = pytest.importorskip("torch_geometric.typing")
    if not (typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE):
        pytest.skip("NeighborLoader needs pyg-lib or torch-sparse")
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    graph = data()
    whole = Data(x=torch.from_numpy(graph.x), edge_index=torch.from_numpy(graph.edge_index))
    roots = np.array([1, 5, 9])
    loaded = next(iter(NeighborLoader(whole, [-1, -1], torch.from_numpy(roots), batch_size=3)))
    neighbours, none = neighbours_of(graph.edge_index, NODES), np.zeros(NODES, bool)
    mine = neighbourhood(neighbours, roots, none, NODES, np.random.default_rng(0))
    assert set(loaded.n_id.tolist()) == set(mine.supporting.tolist())
