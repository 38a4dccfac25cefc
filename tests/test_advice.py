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

from npusim.frontends.openvino_nodes import UnwritableError  # noqa: E402
from npusim.frontends.pyg import all_results, module_at  # noqa: E402
from npusim.frontends.valued import load_valued, valued_module  # noqa: E402
from npusim.scenario import Scenario  # noqa: E402
from npusim.studies import agreement  # noqa: E402
from npusim.studies.agreement import NumericalRewriting  # noqa: E402

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


class Sliced(torch.nn.Module):
    def forward(self, x):
        return x.relu()[2:5] * 2


def sliced():
    return Sliced(), {"x": torch.arange(20.0).view(10, 2)}


def looped():  # the layer adds the self-loops that are missing: their number depends on the edges
    ends = torch.cat([edges(300, 900), torch.arange(9).repeat(2, 1)], 1)
    return Layers(GCNConv(24, 16), GCNConv(16, 7)), (torch.rand(300, 24), ends)


class Chained(torch.nn.Module):  # two results; steps over a sequence
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.GRU(8, 6, batch_first=True)

    def forward(self, x):
        every, last = self.cell(x)
        return {"last": last.squeeze(0), "every": every[:, ::2]}


def chained():
    return Chained(), {"x": torch.rand(5, 7, 8)}


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


@pytest.mark.few(3)
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
        ("sampled", ["stagr", "grad"]),
        ("attending", []),
        ("sliced", []),
        ("looped", ["stagr", "grad"]),
        ("chained", []),
    ],
)  # fmt: skip
def test_a_rewritten_module_answers_as_the_module(file, name, stacks):
    found = module_at(f"{file}:{name}")
    network = load_valued(f"{file}:{name}")
    numbers = NumericalRewriting(network)
    torch.manual_seed(0)  # the file was run twice: take the module that `network` was made of
    want = all_results(found.module, network.inputs)[0]
    assert difference(network, numbers, "none", want) < ROUNDING
    for stack in stacks:
        allowed = INT8 if "quantgr" in parse(stack).names else ROUNDING
        assert legal(network.graph, stack) is None, stack
        assert difference(network, numbers, stack, want) < allowed, stack


@pytest.mark.laws
def test_sums_of_sums_are_all_products(file):
    graph = apply(load_valued(f"{file}:simple").graph, "stagr")
    assert sorted(op.type for op in graph) == ["Add", "MatMul", "MatMul", "MatMul"]


def test_a_single_number_is_the_same_within_a_hundredth_of_the_largest(file):
    numbers = NumericalRewriting(load_valued(f"{file}:scaled"))
    assert numbers.judge("stagr").same_answers == 1.0
    rounded = numbers.judge("stagr+quantgr")
    assert rounded.kept == (rounded.same_answers >= 0.95)


def test_a_list_of_numbers_is_compared_number_by_number():
    ours, original = np.array([1.0, 0.5, 0.2]), np.array([1.0, 0.52, 0.2])
    assert agreement._same(ours, original) == agreement._same(ours[:, None], original[:, None])
    assert agreement._same(ours, original) == pytest.approx(2 / 3)
    assert agreement._same(ours[None], original[None]) == 1.0  # a row of three classes


@pytest.mark.laws
def test_advice_on_a_module_tries_what_keeps_its_answers(file, tmp_path, capsys):
    target = tmp_path / "rewritten.xml"
    assert run(["advise", f"{file}:gat", "--export", str(target), "--format", "json"]) == 0
    advice = json.loads(capsys.readouterr().out)
    tried = advice["agreement"]
    assert tried[-1]["stack"] == advice["today"]["techniques"]
    assert [one["kept"] for one in tried] == [False] * (len(tried) - 1) + [True]
    assert tried[-1]["same_answers"] >= 0.95 and [on["inputs"] for on in tried[-1]["on"]][:2] == [
        "example",
        "other",
    ]
    assert advice["file"] == str(target)
    assert advice["benchmark"].startswith(f"benchmark_app -m {target} -d NPU")
    assert run(["estimate", str(target), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["latency_s"] == pytest.approx(
        advice["today"]["latency_s"], rel=0.1
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["sliced", "sampled", "looped", "attending", "chained"])
def test_the_file_that_is_written_is_the_module(file, name, tmp_path, capsys):
    target = tmp_path / "exported.xml"
    found = module_at(f"{file}:{name}")
    advice = advise(found.module, inputs=found.inputs, samples=0, export=target)
    inputs = {key: value.numpy() for key, value in found.inputs.items()}
    compiled = openvino.Core().compile_model(target, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    answers = compiled({port: inputs[port.get_any_name()] for port in compiled.inputs})
    for want, port in zip(all_results(found.module, inputs), compiled.outputs, strict=True):
        error = np.abs(answers[port] - want).max() / np.abs(want).max()
        assert error <= max(1e-3, advice.agreement[-1].error_fp32 * 1.001)
    assert (
        "Answers" in str(advice) and advice.benchmark.split()[0] in str(advice) and len(repr(advice)) < 1000
    )
    assert "1.00x" not in advice.conclusion


def test_a_wrong_model_is_not_taken_for_the_network(file, monkeypatch):
    numbers = NumericalRewriting(load_valued(f"{file}:sliced"))
    wrong = openvino.opset15
    x = wrong.parameter([10, 2], np.float32)
    x.output(0).get_tensor().set_names({"x"})
    last = wrong.slice(wrong.relu(x), np.int64([7]), np.int64([10]), np.int64([1]), np.int64([0]))
    model = openvino.Model([wrong.result(wrong.multiply(last, np.float32(2)))], [x], "wrong")
    numbers._models["none"] = model
    judged = numbers.judge("none")
    assert judged.same_answers == 1.0 and not judged.kept  # the largest column is the same, the rows are not


def test_constants_that_do_not_fit_are_refused_before_they_are_computed(file, monkeypatch):
    network = load_valued(f"{file}:looped")
    free = type("Memory", (), {"available": 1e5})()
    monkeypatch.setattr("npusim.frontends.splicing.psutil.virtual_memory", lambda: free)
    with pytest.raises(
        UnwritableError, match=r"such as 'norm' of \[300, 300\], to be computed, and .*sample neighbours"
    ):
        network.rewritten(apply(network.graph, "stagr"))


@pytest.mark.laws
def test_rounding_that_costs_too_many_answers_is_left_out(file):
    found = module_at(f"{file}:gin")
    for share in (0.5, 1.0):
        numbers = NumericalRewriting(valued_module(found.module, found.inputs, "gin"), share)
        (judged, half) = numbers.judge("stagr+quantgr"), numbers.judge("stagr")
        assert judged.same_answers_fp16 == half.same_answers and half.rounded_products is None
        assert judged.kept == (judged.same_answers >= share)
        if share == 0.5:
            every = judged.rounded_products
            assert every > 0 and judged.kept
        else:
            assert judged.rounded_products <= every


def test_agreement_is_that_of_the_file_under_default_settings(file, tmp_path):
    values = load_valued(f"{file}:gin")
    judged = NumericalRewriting(values, 0.0)
    for stack in ("stagr", "stagr+quantgr"):
        target = tmp_path / "exported.xml"
        agreement = judged.judge(stack)
        judged.save(stack, target)
        compiled = openvino.Core().compile_model(target, "CPU")
        answers = compiled({port: values.inputs[port.get_any_name()] for port in compiled.inputs})[0]
        (want,) = values.answers(values.inputs)
        example = agreement.on[0]
        assert example.same_answers == np.mean(answers.argmax(-1) == want.argmax(-1))
        assert example.error == pytest.approx(np.abs(answers - want).max() / np.abs(want).max())
        assert (agreement.same_answers_fp16 is None) == (stack == "stagr")


@pytest.mark.laws
def test_measure_compares_the_answers_of_a_file_with_its_original(file, tmp_path, capsys, monkeypatch):
    numbers, right, wrong = (
        NumericalRewriting(load_valued(f"{file}:gin")),
        tmp_path / "a.xml",
        tmp_path / "b.xml",
    )
    expected = numbers.judge("stagr").on[0]
    numbers.save("stagr", right)
    (model := numbers.model("stagr").clone()).get_results()[0].input(0).replace_source_output(
        openvino.opset15.negative(model.get_results()[0].input_value(0)).output(0)
    )
    openvino.save_model(model, wrong)
    errors = {}
    for each in (right, wrong):
        words = ["measure", str(each), "--compare", f"{file}:gin", "--device", "CPU", "--hint", "latency"]
        assert run([*words, "--seconds", "0.05", "--format", "json"]) == 0
        errors[each] = json.loads(capsys.readouterr().out)["comparison"]
    assert errors[right]["same_answers"] == expected.same_answers
    assert errors[right]["error"] == pytest.approx(expected.error)
    assert errors[wrong]["same_answers"] < 0.5 and errors[wrong]["error"] > 1.0
    assert run(["measure", "absent.xml", "--compare", f"{file}:gin", "--device", "CPU"]) == 2
    assert "absent.xml: does not exist" in " ".join(capsys.readouterr().err.split())
    with monkeypatch.context() as without:
        without.setattr(openvino.Core, "available_devices", ["CPU"])
        assert run(["measure", str(right), "--compare", f"{file}:gin", "--device", "NPU"]) == 2
    assert "finds no device NPU" in " ".join(capsys.readouterr().err.split())


class AllPairs(torch.nn.Module):
    def forward(self, x, links):
        x = torch.zeros_like(x).index_add(0, links[1], x[links[0]])
        return x @ x.t() @ x


def test_a_network_that_exceeds_the_memory_is_refused_before_it_is_run():
    torch.manual_seed(0)
    inputs = {"x": torch.rand(1_000_000, 4), "links": torch.randint(0, 1_000_000, (2, 100_000))}
    numbers = NumericalRewriting(valued_module(AllPairs(), inputs, "pairs"))
    with pytest.raises(
        UnwritableError, match=r"pairs with \w+ needs about 8e\+03 GB .* GB are free; use"
    ) as e:
        numbers.judge("none")
    assert "NeighborLoader" in str(e.value)


@pytest.mark.laws
def test_a_calibration_set_has_samples_along_a_first_axis(file, tmp_path, capsys):
    samples = tmp_path / "samples.npz"
    np.savez(samples, x=np.random.default_rng(0).random((3, 300, 24), np.float32))
    scenario = Scenario(f"{file}:gin")
    numbers = NumericalRewriting.of(scenario, None, required=True, calibration=samples)
    assert [sample["x"].shape for sample in numbers.calibration] == [(300, 24)] * 3
    assert numbers.judge("stagr+quantgr").rounded_products > 0
    np.savez(samples, x=np.zeros((3, 299, 24), np.float32))
    assert run(["advise", f"{file}:gin", "--calibration", str(samples)]) == 2
    assert "x has the shape [3, 299, 24]; allowed: [300, 24]" in " ".join(capsys.readouterr().err.split())


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


@pytest.mark.laws
def test_attention_that_mixes_both_ends_is_told_how_to_be_written(file):
    (one, two) = rewritings(load_valued(f"{file}:gatv2").graph)
    assert "GATConv" in one.what and "stagr" in one.opens and one.operator != two.operator
    assert not rewritings(load_valued(f"{file}:gat").graph)


@pytest.mark.laws
def test_a_maximum_along_the_edges_is_told_of_its_gathered_form():
    found = rewritings(load_workload("sage-max-cora", ["workload.form=edges"]))
    assert found and all("grax3" in one.opens for one in found)


@pytest.mark.laws
def test_a_module_of_a_file_is_a_network_everywhere(file):
    soc = load_soc("core-ultra-series2")
    assert advise(f"{file}:gin", soc, samples=0).workload == "gin"
    assert load_workload(f"{file}:gin").macs == load_valued(f"{file}:gin").graph.macs


@pytest.mark.few(3)
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


@pytest.mark.laws
def test_a_module_of_a_file_is_measured_as_it_is(file, capsys):
    words = ["measure", f"{file}:looped", "--device", "CPU", "--seconds", "0.05", "--hint", "latency"]
    assert run([*words, "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["id"] == "looped:none"


@pytest.mark.laws
def test_operators_that_the_compiler_does_not_take_are_named_with_a_rewrite(file):
    notes = [note for note in advise(f"{file}:looped", samples=0).notes if "compiler does not take" in note]
    assert notes[0].startswith("none: ") and not any(note.startswith("stagr") for note in notes)
    assert "NonZero" in notes[0] and "add_self_loops=False" in notes[0] and "npu_ud_2024_44" in notes[0]
    assert not any("does not take" in note for note in advise(f"{file}:gat", samples=0).notes)


@pytest.mark.laws
def test_dictionaries_of_tutorials_are_inputs_by_name(tmp_path, capsys):
    (tmp_path / "hetero.py").write_text(
        """
import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv

BUYS, BOUGHT = ("user", "buys", "item"), ("item", "bought_by", "user")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = HeteroConv({BUYS: SAGEConv((4, 6), 5), BOUGHT: SAGEConv((6, 4), 5)})

    def forward(self, x_dict, edge_index_dict):
        return {kind: x.relu() for kind, x in self.layer(x_dict, edge_index_dict).items()}


def dictionaries():
    torch.manual_seed(0)
    ends = torch.stack([torch.randint(0, 30, (90,)), torch.randint(0, 20, (90,))])
    features = {"user": torch.rand(30, 4), "item": torch.rand(20, 6)}
    return Net(), {"x_dict": features, "edge_index_dict": {BUYS: ends, BOUGHT: ends.flip(0)}}


def data():
    module, inputs = dictionaries()
    graph = HeteroData()
    for kind, x in inputs["x_dict"].items():
        graph[kind].x = x
    for kind, ends in inputs["edge_index_dict"].items():
        graph[kind].edge_index = ends
    return module, graph
"""
    )
    names = ["x_user", "x_item", "edge_index_user_buys_item", "edge_index_item_bought_by_user"]
    for name in ("dictionaries", "data"):
        what = f"{tmp_path}/hetero.py:{name}"
        assert list(module_at(what).inputs) == names
        agreement = advise(what, samples=0).agreement[-1]
        assert agreement.kept and agreement.error_fp32 < 1e-3
    assert run(["measure", what, "--device", "CPU", "--seconds", "0.05", "--hint", "latency"]) == 0
