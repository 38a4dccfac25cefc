"""`npusim advise`: rewritten models answer as the original, and refusals say what to write instead."""

import json

import numpy as np
import pytest

from npusim import advise, load_soc
from npusim.cli.program import run
from npusim.techniques import apply, legal, parse, rewritings, technique_names
from npusim.workloads import load_workload

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
openvino = pytest.importorskip("openvino")

from npusim.frontends.pyg import module_at  # noqa: E402
from npusim.frontends.valued import load_valued  # noqa: E402
from npusim.studies.advice import NumericalRewriting  # noqa: E402

MODULES = """
import torch
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv, SGConv, TransformerConv

torch.manual_seed(0)


def edges(nodes, count, loops=False):
    ends = torch.randint(0, nodes, (2, count))
    ends = ends[:, ends[0] != ends[1]]
    ends = torch.cat([ends, ends.flip(0)], 1).unique(dim=1)
    return torch.cat([ends, torch.arange(nodes).repeat(2, 1)], 1) if loops else ends


class Layers(torch.nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x, edge_index):
        for layer in self.layers[:-1]:
            x = layer(x, edge_index).relu()
        return self.layers[-1](x, edge_index)


def dense(inputs, outputs):
    last = torch.nn.Linear(outputs, outputs)
    return torch.nn.Sequential(torch.nn.Linear(inputs, outputs), torch.nn.ReLU(), last)


def gin():
    return Layers(GINConv(dense(24, 32)), GINConv(dense(32, 7))), (torch.rand(300, 24), edges(300, 900))


def gat():
    layers = GATConv(24, 8, heads=2, add_self_loops=False), GATConv(16, 7, add_self_loops=False)
    return Layers(*layers), (torch.rand(300, 24), edges(300, 900, True))


def gatv2():
    layers = GATv2Conv(24, 8, heads=2, add_self_loops=False), GATv2Conv(16, 7, add_self_loops=False)
    return Layers(*layers), {"x": torch.rand(300, 24), "edge_index": edges(300, 900, True)}


def sage():
    layers = SAGEConv(24, 32), SAGEConv(32, 32), SAGEConv(32, 7)
    return Layers(*layers), (torch.rand(5000, 24), edges(5000, 15000))


class Scaled(torch.nn.Module):
    # divides by constants; one number a node
    def __init__(self):
        super().__init__()
        self.layer = SAGEConv(24, 1)
        self.register_buffer("scale", torch.rand(24) + 0.5)

    def forward(self, x, edge_index):
        return self.layer(x / self.scale, edge_index) / 3.0


def scaled():
    return Scaled(), (torch.rand(300, 24), edges(300, 900))


def gcn():  # some edges twice
    ends = edges(300, 900, True)
    layers = GCNConv(24, 16, add_self_loops=False), GCNConv(16, 7, add_self_loops=False)
    return Layers(*layers), (torch.rand(300, 24), torch.cat([ends, ends[:, :200]], 1))


def simple():
    return Layers(SGConv(24, 7, K=2, add_self_loops=False)), (torch.rand(300, 24), edges(300, 900, True))


class Dense(torch.nn.Module):
    # makes its normalised matrix of the edges; some stand there twice
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(24, 7)

    def forward(self, x, edge_index):
        cell = edge_index[1] * x.shape[0] + edge_index[0]
        flat = torch.zeros(300 * 300).scatter_add(0, cell, torch.ones(cell.shape[0]))
        adjacency = flat.view(300, 300)
        factor = adjacency.sum(1).pow(-0.5)
        return adjacency * factor[:, None] * factor[None, :] @ self.layer(x)


def dense_matrix():
    ends = edges(300, 900, True)
    return Dense(), (torch.rand(300, 24), torch.cat([ends, ends[:, :200]], 1))


class Rows(torch.nn.Module):
    # neighbours side by side: mean, then maximum
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(24, 16), torch.nn.Linear(16, 7)

    def forward(self, x, neighbours, mask):
        mean = (x[neighbours] * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        x = self.first(mean).relu()
        kept = torch.where(mask[:, :, None] > 0, x[neighbours], torch.tensor(-1e4))
        return self.last(kept.amax(1))


def rows():
    mask = (torch.rand(300, 5) > 0.3).float()
    mask[:, 0] = 1.0
    neighbours = torch.randint(0, 300, (300, 5))
    return Rows(), {"x": torch.rand(300, 24), "neighbours": neighbours, "mask": mask}


def lonely():  # nodes without an edge
    return Layers(TransformerConv(24, 7)), (torch.rand(60, 24), edges(60, 60))


class Sampled(torch.nn.Module):
    # answers for the first nodes alone, as with sampled neighbours
    def __init__(self):
        super().__init__()
        self.layers = Layers(SAGEConv(24, 16), SAGEConv(16, 7))

    def forward(self, x, edge_index):
        return self.layers(x, edge_index)[:40]


def sampled():
    return Sampled(), (torch.rand(200, 24), edges(200, 600))


class Branching(torch.nn.Module):
    # a GELU of another formula, and a maximum that sees the zeros it starts from
    def forward(self, x, edge_index):
        x = torch.nn.functional.gelu(x - 0.5, approximate="tanh")
        blank = torch.zeros(x.shape[0], x.shape[1])
        ends = edge_index[1][:, None].expand(-1, x.shape[1])
        return blank.scatter_reduce(0, ends, x[edge_index[0]], "amax", include_self=True)


def maximum():
    return Branching(), (torch.rand(60, 8), edges(60, 200))


class Attending(torch.nn.Module):
    # attention in one operator, which npusim splits
    def forward(self, x, edge_index):
        x = x.unsqueeze(0)
        x = torch.nn.functional.scaled_dot_product_attention(x, x, x).squeeze(0)
        return x[edge_index[0]] + x[edge_index[1]]


def attending():
    return Attending(), (torch.rand(60, 8), edges(60, 200))


number = 3
"""
ROUNDING = 2e-6
"""Of the largest output: sums in another order, in fp32."""
INT8 = 0.05
"""Of the largest output: a few layers rounded to 255 levels."""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("advice") / "model.py"
    path.write_text(MODULES)
    return path


def difference(network, numbers, stack, want):
    got = network.outputs(apply(network.graph, stack), numbers.model(stack))[0]
    return np.abs(got - want).max() / np.abs(want).max()


@pytest.mark.parametrize(
    ("name", "stacks"),
    [
        ("gin", ["stagr", "grad", "effop", "graphsplit", "quantgr", "stagr+quantgr"]),
        ("gat", ["stagr", "grad", "stagr+effop", "stagr+grax1", "stagr+grax2:form=rank2", "grad+quantgr"]),
        ("gatv2", ["stagr", "grad", "graphsplit", "quantgr"]),
        ("sage", ["stagr", "grad", "effop", "stagr+quantgr"]),
        ("scaled", ["stagr", "stagr+quantgr"]),
        ("gcn", ["preg", "graphsplit+preg", "preg+stagr", "preg+quantgr"]),
        ("simple", ["preg", "stagr", "grad", "effop"]),
        ("dense_matrix", ["preg", "preg+grad"]),
        ("rows", ["preg", "stagr", "grad+effop", "stagr+effop+grax3"]),
        ("lonely", ["stagr", "grad"]),
        ("maximum", []),
    ],
)  # fmt: skip
def test_a_rewritten_module_answers_as_the_module(file, name, stacks):
    found = module_at(f"{file}:{name}")
    network = load_valued(f"{file}:{name}")
    numbers = NumericalRewriting(network)
    inputs = [torch.tensor(value) for value in network.inputs.values()]
    torch.manual_seed(0)  # the file was run twice: take the module that `network` was made of
    with torch.no_grad():
        want = found.module(*inputs).numpy()
    assert difference(network, numbers, "none", want) < ROUNDING
    for stack in stacks:
        allowed = INT8 if "quantgr" in parse(stack).names else ROUNDING
        assert legal(network.graph, stack) is None, stack
        assert difference(network, numbers, stack, want) < allowed, stack


def test_sums_of_sums_are_all_products(file):
    graph = apply(load_valued(f"{file}:simple").graph, "stagr")
    assert sorted(op.type for op in graph) == ["Add", "MatMul", "MatMul", "MatMul"]


def test_a_single_number_is_the_same_within_a_hundredth_of_the_largest(file):
    numbers = NumericalRewriting(load_valued(f"{file}:scaled"))
    assert numbers.judge("stagr").same_answers == 1.0
    rounded = numbers.judge("stagr+quantgr")
    assert (rounded.same_answers == 1.0) == (rounded.largest_difference < 0.01 * rounded.largest_output)


def test_advice_on_a_module_tries_what_keeps_its_answers(file, tmp_path, capsys):
    target = tmp_path / "rewritten.xml"
    assert run(["advise", f"{file}:gat", "--export", str(target), "--format", "json"]) == 0
    advice = json.loads(capsys.readouterr().out)
    tried = advice["agreement"]
    assert tried[-1]["stack"] == advice["today"]["techniques"]
    assert tried[-1]["same_answers"] >= 0.95 > max([0.0, *(one["same_answers"] for one in tried[:-1])])
    assert advice["file"] == str(target)
    assert run(["estimate", str(target), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["latency_s"] == pytest.approx(
        advice["today"]["latency_s"], rel=0.1
    )


def test_a_network_that_can_be_written_for_timing_only_is_not_exported(file, tmp_path, capsys):
    target = tmp_path / "wrong.xml"
    assert run(["advise", f"{file}:sampled", "--export", str(target)]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "(Slice) cannot be exported: npusim can write Slice for timing only" in message
    assert "compute it outside of the network, or ask for advice without --export" in message
    assert not list(tmp_path.iterdir())
    advice = advise(f"{file}:sampled", samples=0)
    assert advice.agreement == [] and advice.file is None and advice.today.techniques != "none"
    assert any("were not compared" in note and "(Slice)" in note for note in advice.notes)


def test_an_operator_that_was_split_for_timing_is_not_exported(file, tmp_path, capsys):
    assert run(["advise", f"{file}:attending", "--export", str(tmp_path / "wrong.xml")]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "cannot be exported: it is part of one that was split for timing" in message
    assert not list(tmp_path.iterdir())


def test_agreement_is_that_of_the_file_under_default_settings(file, tmp_path):
    values = load_valued(f"{file}:gin")
    judged = NumericalRewriting(values)
    for stack in ("stagr", "stagr+quantgr"):
        target = tmp_path / "exported.xml"
        judged.save(stack, target)
        compiled = openvino.Core().compile_model(target, "CPU")
        answers = compiled({port: values.inputs[port.get_any_name()] for port in compiled.inputs})[0]
        told = judged.judge(stack)
        assert told.same_answers == np.mean(answers.argmax(-1) == values.answers().argmax(-1))
        assert told.largest_difference == np.abs(answers - values.answers()).max()
        assert (told.same_answers_fp16 is None) == (stack == "stagr")


def test_every_technique_has_a_verdict_and_a_reason_where_it_is_refused():
    advice = advise("gcn-cora", samples=8)
    assert {one.technique for one in advice.techniques} == set(technique_names())
    verdicts = {one.technique: one for one in advice.techniques}
    assert verdicts["stagr"].verdict == "gains"
    assert verdicts["grad"].verdict == "instead"
    assert verdicts["grax3"].verdict == "refused" and "masked maximum" in verdicts["grax3"].reason
    assert not verdicts["symg"].today and "symg" in advice.with_compiler.techniques
    assert all((one.gain is None) == (one.verdict == "refused") for one in advice.techniques)
    for one in advice.techniques:
        assert (one.gain_interval is None) == (one.gain is None)
        assert one.gain_interval is None or one.gain_interval[0] <= one.gain_interval[1]
    assert "the throughput of the network as it is (90 %:" in advice.conclusion
    assert advice.today.throughput_per_s <= advice.with_compiler.throughput_per_s


def test_attention_that_mixes_both_ends_is_told_how_to_be_written(file):
    (one, two) = rewritings(load_valued(f"{file}:gatv2").graph)
    assert "GATConv" in one.what and "stagr" in one.opens and one.operator != two.operator
    assert not rewritings(load_valued(f"{file}:gat").graph)


def test_a_maximum_along_the_edges_is_told_of_its_gathered_form():
    found = rewritings(load_workload("sage-max-cora", ["workload.form=edges"]))
    assert found and all("grax3" in one.opens for one in found)


def test_a_module_of_a_file_is_a_network_everywhere(file):
    soc = load_soc("core-ultra-series2")
    assert advise(f"{file}:gin", soc, samples=0).workload == "gin"
    assert load_workload(f"{file}:gin").macs == load_valued(f"{file}:gin").graph.macs


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{file}:gim"], "did you mean `gin`?"),
        (["{file}:number"], "allowed: a pair (module, example inputs)"),
        (["missing.py:net"], "does not exist"),
        (["{folder}/broken.py:net"], "cannot be run: ZeroDivisionError"),
        (["gcn-cora", "--export", "a.xml"], "allowed: a module (model.py:net) or a model file"),
        (["{file}:gin", "--export", "a.onnx"], "does not end in .xml"),
        (["gcn-cora", "--values", "{file}"], "allowed: a module (model.py:net) or a model file"),
    ],
)
def test_what_is_no_network_is_refused(file, capsys, words, message):
    (file.parent / "broken.py").write_text("1 / 0")
    assert run(["advise", *(word.format(file=file, folder=file.parent) for word in words)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
