"""Channel pruning of a trained network: masks, refits, shapes, files, refusals; on a small graph."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from small_networks import CLASSES, FEATURES, NODES, data, spec  # noqa: E402

from npusim.errors import ConfigError, FileError  # noqa: E402
from npusim.gnn_models.models import module_of, propagation, trainable  # noqa: E402
from npusim.gnn_models.planetoid import GraphData  # noqa: E402
from npusim.gnn_models.views import EdgeView, MatrixView, dense_adjacency  # noqa: E402
from npusim.pruning import pruned_networks  # noqa: E402
from npusim.pruning.channel_pruning import (  # noqa: E402
    METHODS,
    Reads,
    best,
    chosen,
    masks,
    on_training_graph,
    prune,
    refitted,
)
from npusim.pruning.pruned_networks import parse_budgets, parse_multiple  # noqa: E402
from npusim.workloads.gnn.spec import BranchChannels, Layer, Pruning  # noqa: E402


def reads(channels: int = 10, needed: int = 4, seed: int = 0) -> Reads:
    """Two branches whose results depend on the first `needed` channels alone."""
    torch.manual_seed(seed)
    weights = tuple(torch.randn(6, channels) for _ in range(2))
    for weight in weights:
        weight[:, needed:] = 0.0
    return Reads(tuple(torch.randn(200, channels) for _ in range(2)), weights)


@given(st.integers(1, 9), st.integers(0, 5))
@settings(max_examples=10)
def test_masks_keep_the_channels_that_the_results_depend_on(needed: int, seed: int) -> None:
    found = reads(needed=needed, seed=seed)
    kept = chosen(found, needed, "lasso", seed).argsort(descending=True)[:needed]
    assert sorted(kept.tolist()) == list(range(needed))
    assert found.loss(kept.sort().values, refitted(found, kept.sort().values)) < 1e-6


def test_masks_are_shared_by_the_branches_and_meet_the_budget() -> None:
    found = reads(needed=10)
    beta = masks(found, 4)
    assert beta.shape == (10,)
    assert int((beta != 0).sum()) <= 4


@pytest.mark.laws
def test_a_refit_is_never_worse_than_the_weights_left_as_they_were() -> None:
    found = reads(needed=10)
    kept = torch.tensor([0, 2, 5, 7])
    plain = tuple(weight[:, kept] for weight in found.weights)
    assert found.loss(kept, refitted(found, kept)) <= found.loss(kept, plain)


@pytest.mark.laws
def test_lasso_approximates_better_than_random_choice() -> None:
    torch.manual_seed(0)
    weights = tuple(torch.randn(6, 40) * torch.linspace(0.01, 2.0, 40) for _ in range(2))
    found = Reads(tuple(torch.randn(300, 40) for _ in range(2)), weights)
    losses = {}
    for method in METHODS:
        kept = chosen(found, 10, method, 1).argsort(descending=True)[:10].sort().values
        losses[method] = found.loss(kept, refitted(found, kept))
    assert losses["lasso"] <= losses["random"]


def test_channels_of_each_branch_are_kept_in_multiples() -> None:
    layer = Layer(tuple(BranchChannels(order=k, inputs=5, outputs=32) for k in (0, 1)), 5)
    scores = torch.cat([torch.linspace(2.0, 3.0, 32), torch.linspace(0.0, 1.0, 32)])
    kept = best(scores, layer, 32, 16)
    assert [int((kept < 32).sum()), int((kept >= 32).sum())] == [32, 16]


def test_validation_and_test_nodes_are_not_looked_at() -> None:
    given_data, module = data(), module_of(spec(), data())
    _, x = on_training_graph(module, given_data)
    assert len(x) == 40
    other = GraphData(**{f: getattr(given_data, f) for f in given_data.__dataclass_fields__})
    changed = other.x.copy()
    changed[40:] = 9.0
    moved = GraphData(other.name, changed, other.edge_index, other.y, other.train, other.valid, other.test)
    kept = [prune(module, d, Pruning(budget=2.0)).kept for d in (given_data, moved)]
    assert kept[0] == kept[1]


@pytest.mark.few(2)
@pytest.mark.parametrize("model", ["sage-concat", "gcn", "mixhop", "jk", "sign"])
@pytest.mark.parametrize("method", METHODS)
def test_a_pruned_module_runs_and_has_fewer_channels(model: str, method: str) -> None:
    torch.manual_seed(0)
    found = data()
    module = module_of(spec(model=model), found)
    both = prune(module, found, Pruning(budget=2.0), method)  # type: ignore[arg-type]
    pruned = both.module
    pruned.eval()
    last = len(module.plan) - 1
    old, cut = (m.layers[last][0].weight for m in (module, both.cut))
    assert torch.equal(cut, old[:, list(both.kept[last])]) and both.cut.plan == pruned.plan
    assert pruned(torch.from_numpy(found.x)).shape == (NODES, CLASSES)
    whole, small = (sum(p.numel() for p in m.parameters()) for m in (module, pruned))
    assert small < whole
    assert [b.inputs for b in pruned.plan[0].branches] == [FEATURES] * len(pruned.plan[0].branches)


def test_the_batched_scheme_prunes_what_the_neighbours_branch_reads() -> None:
    torch.manual_seed(0)
    found = data()
    module = module_of(spec(), found)
    pruned = prune(module, found, Pruning(budget=4.0, scheme="batched")).module
    own, neighbours = pruned.plan[0].branches
    assert own.inputs == FEATURES and max(3, neighbours.outputs) <= neighbours.inputs < FEATURES
    assert pruned(torch.from_numpy(found.x)).shape == (NODES, CLASSES)
    assert [b.outputs for b in pruned.plan[1].branches] == [8, 8]


@pytest.mark.few(2)
@pytest.mark.parametrize("model", ["sage-concat", "mixhop", "jk", "sign", "sgc"])
@pytest.mark.parametrize("order", ["aggregate_first", "transform_first"])
def test_a_model_by_equation_1_answers_alike_along_edges_and_by_a_matrix(model: str, order: str) -> None:
    found, one = data(), spec(model=model, order=order)
    mean = model == "sage-concat"
    kind = "mean" if mean else "norm"
    matrix = dense_adjacency(found.edge_index, NODES, not mean, kind)
    views = (MatrixView({kind: matrix}, True), EdgeView(found.edge_index, NODES, not mean))
    torch.manual_seed(0)
    modules = [propagation(one, found, view) for view in views]
    modules[1].load_state_dict(modules[0].state_dict())
    x = torch.from_numpy(found.x)
    answers = [m.eval()(x, *v.example.values()).detach() for m, v in zip(modules, views, strict=True)]
    assert torch.allclose(*answers, atol=1e-5)
    assert trainable(one, found, 0)(x).shape == (NODES, CLASSES)


@pytest.mark.few(2)
@pytest.mark.parametrize("text", ["0", "1", "-2", "x", "2,,4", "nan", "1e9"])
def test_budgets_that_prune_nothing_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"numbers above 1|2,,4"):
        parse_budgets(text)


def test_channels_snap_to_what_a_machine_works_on_side_by_side() -> None:
    assert parse_multiple("4", []) == 4
    assert parse_multiple("auto", ["core-ultra-series2", "generic-cpu"]) == 16
    for text, socs in (("auto", []), ("0", []), ("x", ["generic-cpu"]), ("1.5", [])):
        with pytest.raises(ConfigError, match="or auto with --soc"):
            parse_multiple(text, socs)


@pytest.mark.parametrize(
    ("workload", "budget", "scheme", "complaint"),
    [
        ("sage-mean-cora", 2.0, "full", "networks by Eq. 1"),
        ("gat-cora", 2.0, "batched", "full: gat has one width"),
        ("gcn-cora", 2.0, "batched", "full"),
        ("sage-concat-cora", 1000.0, "full", "at most 64"),
    ],
)
def test_what_cannot_be_pruned_is_refused_before_training(
    workload: str, budget: float, scheme: str, complaint: str, tmp_path: Path, planetoid_root: Path
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        pruned_networks.prune(workload, budget, scheme=scheme, data=planetoid_root, models=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_told_before_training(tmp_path: Path, planetoid_root: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be made"):
        pruned_networks.prune("gcn-cora", 2.0, data=planetoid_root, models=tmp_path / "file" / "out")


@pytest.mark.slow
def test_pruned_networks_on_cora_keep_their_accuracy(tmp_path: Path, planetoid_root: Path) -> None:
    report = pruned_networks.prune("gcn-cora", 4.0, seeds="0,1", data=planetoid_root, models=tmp_path)
    by_method = {network.method: network for network in report.networks}
    assert by_method["lasso"].lost_points <= 1.0
    assert len(report.files) == 6 and all(Path(file).is_file() for file in report.files)
