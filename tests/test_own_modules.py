"""A module of one's own is a network in every command: stream, NodePad, parts, accuracy, export, buckets."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npusim
from npusim.cli.program import run
from npusim.graph.editor import cut_at, in_parts
from npusim.studies.deployments import _best_choices
from npusim.workloads import load_workload

torch = pytest.importorskip("torch")
torch_geometric = pytest.importorskip("torch_geometric")
openvino = pytest.importorskip("openvino")

from npusim.frontends.openvino_write import run_model  # noqa: E402
from npusim.frontends.pyg import all_results, module_at  # noqa: E402
from npusim.scenario import Scenario  # noqa: E402
from npusim.studies.stream.following import resized  # noqa: E402
from npusim.studies.stream.updates import Size  # noqa: E402
from npusim.techniques import apply  # noqa: E402

MODULES = """
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, TransformerConv

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.first, self.second = kind(12, 16), kind(16, 5)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def data():
    ends = torch.randint(0, 200, (2, 700))
    ends = ends[:, ends[0] != ends[1]].unique(dim=1)
    y, tested = torch.randint(0, 5, (200,)), torch.arange(200) > 99
    return Net(GCNConv), Data(x=torch.rand(200, 12), edge_index=ends, y=y, test_mask=tested)


def trained():
    module, graph = data()
    graph.edge_index = torch.cat([graph.edge_index, graph.edge_index.flip(0)], 1).unique(dim=1)
    graph.train_mask, graph.val_mask = torch.arange(200) < 70, ~graph.test_mask & (torch.arange(200) > 69)
    return module, graph


def plain():
    graph = data()[1]
    return Net(TransformerConv), {"x": graph.x, "edge_index": graph.edge_index}


def points():
    return torch.nn.Linear(3, 4), {"x": torch.rand(50, 3)}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("modules") / "own.py"
    path.write_text(MODULES)
    return path


def answered(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict:
    assert run([*words, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.laws
@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["data", "plain"])
def test_a_stream_of_updates_on_a_module_has_every_way(file, name, capsys):
    followed = answered(["stream", f"{file}:{name}", "--updates", "5"], capsys)
    assert followed["nodes"][0] == 200 and followed["strategies"][2]["name"] == "pad and mask"
    assert all(way["total_s"] > 0 for way in followed["strategies"])


@pytest.mark.laws
def test_a_module_of_another_size_is_that_of_a_larger_example(file):
    scenario = Scenario(f"{file}:data")
    graph = scenario.on_structure(resized(scenario.baseline.structure, Size(320, 400)))
    assert graph.structure.nodes == 320 and graph.structure.edges == 800
    assert graph.tensors["x"].shape == (320, 12) and graph.tensors["edge_index"].shape == (2, 800)
    assert apply(graph, "grad").macs > apply(scenario.baseline, "grad").macs


@pytest.mark.laws
def test_nodepad_on_a_module_is_the_module_on_more_nodes(file):
    scenario = Scenario(f"{file}:data")
    padded = apply(scenario.baseline, "grad+nodepad:capacity=320")
    larger = scenario.on_structure(resized(scenario.baseline.structure, Size(320, 400)))
    assert padded.macs == apply(larger, "grad").macs


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.cell = torch_geometric.nn.GraphConv(6, 6), torch.nn.GRU(6, 6)

    def forward(self, x, links):
        return self.cell(self.layer(x, links).unsqueeze(0), x.unsqueeze(0))[0].squeeze(0)


def test_recurrent_cells_over_the_nodes_are_padded():
    links = torch.randint(0, 30, (2, 70))
    scenario = Scenario(Recurrent(), inputs={"x": torch.rand(30, 6), "links": links})
    padded = apply(scenario.baseline, "grad+nodepad:capacity=40")
    assert padded.tensors["x"].shape == (40, 6) and padded.macs > apply(scenario.baseline, "grad").macs
    assert all(30 not in t.shape for t in padded.tensors.values() if t.dtype.is_float)


@pytest.mark.laws
@pytest.mark.parametrize("command", [["stream"], ["advise", "--sizes", "10,20"]])
def test_a_module_without_edges_has_no_stream_and_no_sizes(file, command, capsys):
    assert run([command[0], f"{file}:points", *command[1:]]) == 2
    assert "data graph" in " ".join(capsys.readouterr().err.split())


@pytest.mark.laws
def test_parts_of_a_module_are_compiled_one_by_one(file, capsys):
    words = ["estimate", f"{file}:data", "-t", "stagr"]
    whole = answered(words, capsys)
    parted = answered([*words, "--set", "workload.chunks=3"], capsys)
    assert len(parted["parts"]) == 3 and parted["compilation"]["models"] == 3
    assert parted["compilation"]["memory_peak_bytes"] < whole["compilation"]["memory_peak_bytes"]
    assert run([*words, "--set", "workload.chunks=0"]) == 2


@pytest.mark.parametrize("name", ["gcn-cora", "gat-cora", "resnet-50", "bert-base"])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_parts_are_consecutive_and_of_similar_bytes(name, count):
    graph = load_workload(name)
    parted = in_parts(graph, count)
    place = {op.name: parted.parts.index(op.part) for op in parted}
    assert len(parted.parts) <= count and parted.macs == graph.macs
    touched = dict.fromkeys(parted.parts, 0.0)
    largest = 0.0
    for op in parted:
        makers = filter(None, map(parted.writer, op.inputs))
        assert all(place[maker.name] <= place[op.name] for maker in makers)
        size = sum(parted.tensors[t].stored_bytes for t in (*op.inputs, *op.outputs))
        touched[op.part], largest = touched[op.part] + size, max(largest, size)
    assert max(touched.values()) <= sum(touched.values()) / count + largest


def test_what_depends_on_a_cut_tensor_is_a_later_part():
    graph = load_workload("gcn-cora")
    cut = next(t for op in graph if op.type == "Relu" for t in op.outputs)
    parted = cut_at(graph, [cut])
    assert len(parted.parts) == 2 and cut in parted.passed_between_parts


@pytest.mark.laws
def test_accuracy_of_a_module_of_a_file_is_on_its_own_labels(file, capsys):
    report = answered(["accuracy", f"{file}:data", "-t", "stagr"], capsys)
    named = module_at(f"{file}:data")
    with torch.no_grad():
        right = named.module(*named.inputs.values()).argmax(1) == named.example.y
    found = {(one["techniques"], one["numbers"]): one for one in report["results"]}
    assert found["none", "fp32"]["accuracy"] == pytest.approx(float(right[100:].float().mean()))
    assert found["stagr", "fp32"]["largest_difference"] < 1e-5
    assert run(["accuracy", f"{file}:plain", "-t", "stagr"]) == 2
    assert "no `y` in dict" in capsys.readouterr().err
    assert run(["accuracy", f"{file}:data", "gcn-cora"]) == 2
    assert "allowed: one module" in capsys.readouterr().err


@pytest.mark.laws
def test_an_exported_module_answers_as_the_module(file, tmp_path, capsys):
    target = tmp_path / "net.xml"
    assert run(["export", f"{file}:plain", "-t", "stagr", "-o", str(target)]) == 0
    assert "answer the same" in capsys.readouterr().out
    named = module_at(f"{file}:plain")
    inputs = {name: value.numpy() for name, value in named.inputs.items()}
    model = openvino.Core().read_model(target)
    fed = {port.any_name: inputs[port.any_name] for port in model.inputs}
    (answers,), (wanted,) = run_model(model, fed), all_results(named.module, inputs)
    assert np.abs(answers - wanted).max() <= 2e-3 * np.abs(wanted).max()
    assert run(["export", f"{file}:plain", "--weights", "a.pth", "-o", str(target)]) == 2
    assert "none for a module" in capsys.readouterr().err


def test_a_module_of_graph_convolutions_is_pruned(file, tmp_path, capsys):
    words = ["prune", f"{file}:trained", "--budget", "2", "--models", str(tmp_path / "pruned")]
    report = answered([*words, "--soc", "core-ultra-series2"], capsys)
    named = module_at(f"{file}:trained")
    with torch.no_grad():
        answers = named.module(*named.inputs.values())
    right = (answers.argmax(1) == named.example.y)[named.example.test_mask].float().mean()
    assert report["baseline_accuracy"] == pytest.approx(float(right))
    lasso = next(each for each in report["networks"] if each["method"] == "lasso")
    assert lasso["channels"] == [[[1, 12, 8]], [[1, 8, 5]]]
    assert report["runs"][0]["latency_s"] > 0
    whole = openvino.Core().read_model(tmp_path / "pruned" / "trained-1x.xml")
    fed = {name: value.numpy() for name, value in named.inputs.items()}
    (ours,) = run_model(whole, {port.any_name: fed[port.any_name] for port in whole.inputs})
    assert np.abs(ours - torch.log_softmax(answers, 1).numpy()).max() < 1e-3
    for name, message in (("plain", "allowed: a data object"), ("points", "allowed: a data object")):
        assert run(["prune", f"{file}:{name}", "--budget", "2"]) == 2
        assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.laws
def test_buckets_hold_every_size_and_the_fewest_that_suffice_are_advised(file, tmp_path, capsys):
    sizes = np.random.default_rng(0).choice([300, 1200, 2400, 4000], 40)
    (tmp_path / "sizes.txt").write_text("\n".join(map(str, sizes)))
    advice = answered(["advise", f"{file}:data", "--sizes", str(tmp_path / "sizes.txt")], capsys)
    rows = advice["buckets"]
    assert [len(row["capacities"]) for row in rows] == [1, 2, 3, 4]
    assert all(row["capacities"][-1] == 4000 for row in rows)
    paddings = [row["padding"] for row in rows]
    assert paddings == sorted(paddings, reverse=True) and paddings[-1] == 0.0
    assert paddings[0] == pytest.approx(1.0 - sizes.mean() / 4000)
    least = min(row["latency_s"] for row in rows)
    assert rows[0]["latency_s"] > 1.05 * least
    (best,) = [row for row in rows if row["advised"]]
    assert best["latency_s"] <= 1.05 * least
    assert all(row["latency_s"] > 1.05 * least for row in rows[: rows.index(best)])
    assert "Compile" in advice["conclusion"] and "4,000" in advice["conclusion"]


@settings(deadline=None, max_examples=60)
@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=7),
    data=st.data(),
)
def test_choices_of_buckets_are_those_of_all_combinations(counts, data):
    latencies = data.draw(
        st.lists(st.floats(0.1, 9.0), min_size=len(counts), max_size=len(counts)).map(np.array)
    )
    last = len(counts) - 1
    for number, chosen in enumerate(_best_choices(np.array(counts), latencies), start=1):
        every = [
            sum(n * latencies[min(j for j in picks if j >= i)] for i, n in enumerate(counts))
            for others in combinations(range(last), number - 1)
            for picks in [(*others, last)]
        ]
        total = sum(n * latencies[min(j for j in chosen if j >= i)] for i, n in enumerate(counts))
        assert len(chosen) == number and total == pytest.approx(min(every))


def test_npusim_advise_in_python_takes_sizes_as_a_list():
    advice = npusim.advise("gcn-cora", sizes=[2000, 2708, 2708], samples=0)
    assert [row.capacities for row in advice.buckets] == [[2708], [2000, 2708]]
