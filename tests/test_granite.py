"""GraNNite's figures: the suite keeps its limits, knows the keys of figures it has not seen, and its
graphs are what they say.
"""

from pathlib import Path

import pytest
from graph_agreement import assert_agreement

from npusim.graph import GraphStructure
from npusim.techniques import apply
from npusim.validation import load_suite, run_suite
from npusim.validation.figures import Key, key_of
from npusim.validation.granite import (
    GraniteRunner,
    by_elements,
    each_layer,
    formula,
    load_definitions,
    predict,
    row_scaled,
)
from npusim.workloads import GnnSpec, build_gnn, load_workload


def key(figure: str, model: str, dataset: str = "cora", **columns: str) -> Key:
    empty = dict.fromkeys(("layer", "stack", "device", "measure"), "")
    return {"figure": figure, "model": model, "dataset": dataset, **empty, **columns}


@pytest.fixture(scope="module")
def runner() -> GraniteRunner:
    return GraniteRunner(load_definitions())


def test_every_published_figure_is_met_within_its_limit() -> None:
    judged = run_suite("granite")
    missed = [group.group for group in judged.groups if not group.ok]
    assert not missed
    assert len(judged.evidence.ids) == 18


def test_the_mean_over_all_figures_is_within_8_percent() -> None:
    assert run_suite("granite").evidence.errors.mean() < 0.08


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "fig20_speedup_over_baseline.sage_max.effop",
            key("fig20", "sage_max", stack="effop"),
        ),
        (
            "fig20_speedup_over_baseline.sage_max.effop+grax3",
            key("fig20", "sage_max", stack="effop+grax3"),
        ),
        (
            "fig20_speedup_over_baseline.gcn_citeseer.stagr+graphsplit",
            key("fig20", "gcn", "citeseer", stack="stagr+graphsplit"),
        ),
        (
            "fig21_series2_over_series1_throughput.gcn_citeseer_grad_nodepad_quantgr",
            key("fig21", "gcn", "citeseer", stack="grad_nodepad_quantgr"),
        ),
        (
            "fig22_npu_speedup_series2.sage_mean.over_cpu",
            key("fig22", "sage_mean", device="cpu"),
        ),
        (
            "fig23_npu_energy_efficiency_citeseer.over_gpu",
            key("fig23", "gcn", "citeseer", device="gpu"),
        ),
    ],
)
def test_figures_that_were_not_given_are_known_and_predicted(
    path: str, expected: Key, runner: GraniteRunner
) -> None:
    assert key_of(load_suite("granite"), f"granite.{path}") == expected
    assert 0.3 < predict(expected, runner) < 30.0


@pytest.mark.parametrize(
    "path", ["peers.ms_per_row.gcn.npu", "granite.setup.hidden_features", "granite.fig99.x"]
)
def test_other_keys_are_no_figures(path: str) -> None:
    assert key_of(load_suite("granite"), path) is None


def test_unknown_keys_and_stacks_that_do_not_apply_are_skipped_with_a_note(tmp_path: Path) -> None:
    file = tmp_path / "more.yaml"
    file.write_text(
        "granite:\n"
        "  fig20_speedup_over_baseline:\n"
        "    gcn: {stagr+graphsplit: 1.5, grax3: 2.0}\n"
        "  fig99_something: {gcn: 1.0}\n"
    )
    evidence = run_suite("granite", file).evidence
    assert list(evidence.ids) == ["granite.fig20_speedup_over_baseline.gcn.stagr+graphsplit"]
    assert any("fig99_something" in note for note in evidence.notes)
    assert any("gcn.grax3" in note for note in evidence.notes)


def test_graphs_with_preprocessing_in_each_layer_compute_the_same_twice() -> None:
    graph = load_workload("gat-cora")
    twice = each_layer(graph)
    made = [op.type for op in graph if graph.structural.issuperset(op.outputs)]
    assert sorted(op.type for op in twice) == sorted([*(op.type for op in graph), *made])
    assert all(op.region == "layer1/preprocess" for op in twice if op.name.startswith("layer1/preprocess/"))


def test_the_formula_divides_by_a_root_on_all_pairs_of_nodes() -> None:
    graph = formula(load_workload("gcn-cora", {"form": "dense"}))
    shapes = {op.type: graph.tensors[op.outputs[0]].shape for op in graph if op.region == "preprocess"}
    assert shapes["Sqrt"] == shapes["Divide"] == (2708, 2708)
    assert "Power" not in shapes


def test_row_scaling_leaves_the_adjacency_alone() -> None:
    graph = row_scaled(apply(load_workload("gcn-cora", {"form": "dense"}), "grad"))
    products = [op for op in graph if op.type == "MatMul" and op.region.endswith("aggregate")]
    assert len(products) == 2
    assert len({op.inputs[0] for op in products}) == 1
    assert all(max(graph.tensors[t].elements for t in op.outputs) < 2708**2 for op in graph)


def test_the_baseline_of_sage_max_is_what_pytorch_exports_operator_for_operator() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("openvino")
    from npusim.frontends.pyg import from_pyg

    class Baseline(torch.nn.Module):
        """Fig. 18, left: each element of a neighbour is gathered, and kept where the mask says so."""

        def __init__(self) -> None:
            super().__init__()
            self.neighbours = torch.nn.ModuleList([torch.nn.Linear(12, 8), torch.nn.Linear(8, 3)])
            self.root = torch.nn.ModuleList(torch.nn.Linear(i, o, bias=False) for i, o in ((12, 8), (8, 3)))

        def forward(self, x, neighbours, mask):  # type: ignore[no-untyped-def]
            for own, root in zip(self.neighbours, self.root, strict=True):
                wide = (x.shape[0], neighbours.shape[1], x.shape[1])
                gathered = torch.gather(x.unsqueeze(1).expand(wide), 0, neighbours.unsqueeze(2).expand(wide))
                low = -9e15 * torch.ones_like(gathered)
                most = torch.where(mask.unsqueeze(2).expand(wide) > 0, gathered, low).amax(dim=1)
                x = own(most) + root(x)
                x = torch.relu(x) if own is not self.neighbours[-1] else x
            return torch.log_softmax(x, dim=1)

    structure = GraphStructure("small", 24, 96, 12, 3, degree_histogram=(0, 0, 0, 0, 24))
    built = by_elements(
        build_gnn(GnnSpec(dataset="small", model="sage-max", hidden=8, neighbours=5), structure)
    )
    torch.manual_seed(0)
    inputs = {
        "x": torch.rand(24, 12),
        "neighbours": torch.randint(0, 24, (24, 5)),
        "mask": (torch.rand(24, 5) > 0.5).float(),
    }
    assert_agreement(built, from_pyg(Baseline().eval(), inputs))


def test_an_alternative_replaces_what_it_names_and_nothing_else(runner: GraniteRunner) -> None:
    for other in runner.definitions.alternatives:
        changed = runner.with_alternative(other).definitions
        for model, named in runner.definitions.variants.items():
            replaced = other.variants.get(model, {})
            assert {**named, **replaced} == changed.variants[model]
    without = next(o for o in runner.definitions.alternatives if o.title == "GrAd + NodePad without the CPU")
    figure = key("fig20", "gcn", stack="grad+nodepad+graphsplit")
    assert predict(figure, runner.with_alternative(without)) > predict(figure, runner)


def test_every_definition_says_why(runner: GraniteRunner) -> None:
    definitions = runner.definitions
    variants = [v for by_name in definitions.variants.values() for v in by_name.values()]
    others = [
        v for a in definitions.alternatives for by_name in a.variants.values() for v in by_name.values()
    ]
    assert all(v.reason for v in [*variants, *others])


def test_each_device_takes_its_best_variant(runner: GraniteRunner) -> None:
    figure = key("fig22", "gcn", device="cpu")
    places, variants = runner.definitions.places, runner.definitions.variants["gcn"]
    names = runner.definitions.best_of["gcn"]
    best = {
        p: min(runner.outcome("gcn-cora", variants[n], places[p]).interval_s for n in names)
        for p in ("series2", "series2_cpu")
    }
    assert predict(figure, runner) == pytest.approx(best["series2_cpu"] / best["series2"])
