"""Accuracy of technique stacks on real Cora and Citeseer: each technique's effect is the measured one."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import npusim
from npusim.errors import ConfigError, FileError, IllegalTechniqueError
from npusim.gnn_models.document import AccuracyReport, StackAccuracy
from npusim.plugins import announced
from npusim.techniques import stacks, technique_names

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
pytest.importorskip("openvino")
pytest.importorskip("nncf")

from npusim.api.trusting import parse_seeds  # noqa: E402
from npusim.cli.program import run  # noqa: E402
from npusim.gnn_models import training  # noqa: E402
from npusim.gnn_models.judging import judge  # noqa: E402
from npusim.gnn_models.training import Recipe  # noqa: E402
from npusim.reporting.accuracy import accuracy_page  # noqa: E402

TOLERANCE = 0.005
"""Half a point of accuracy: five of the thousand test nodes."""
MODELS = ("gcn", "gat", "sage-mean", "sage-max")

# Base accuracy and change by technique as measured on Cora with these versions of PyTorch, torch_geometric,
# OpenVINO and NNCF, before this project.
BASE = {
    "cora": {
        "gcn": (0.806, 0.812), "gat": (0.789, 0.815), "sage-mean": (0.793, 0.807), "sage-max": (0.756, 0.777),
    },
    "citeseer": {
        "gcn": (0.677, 0.686), "gat": (0.663, 0.663), "sage-mean": (0.673, 0.673), "sage-max": (0.661, 0.661),
    },
}  # fmt: skip
CHANGED = {"grax2": 0.003, "grax2:form=source": 0.0, "quantgr": -0.001}
"""All other techniques: no change."""


def expected_change(techniques: str) -> float:
    return sum(CHANGED.get(part, 0.0) for part in techniques.split("+"))


@pytest.fixture(scope="module")
def cora(planetoid_root: Path) -> AccuracyReport:
    """One training per model, and each technique on what it needs."""
    chosen = [
        "graphsplit+preg", "stagr+grasp+symg+cacheg", "grad+nodepad", "effop", "effop+grax1",
        "effop+grax2:form=literal", "effop+grax2:form=source", "effop+grax2:form=rank2", "grax3",
        "stagr+quantgr", "grax3+quantgr",
    ]  # fmt: skip
    return judge([f"{model}-cora" for model in MODELS], chosen, planetoid_root)


def of(report: AccuracyReport, workload: str) -> list[StackAccuracy]:
    return [result for result in report.results if result.workload == workload]


@pytest.mark.laws
@pytest.mark.parametrize("model", MODELS)
def test_base_accuracy_is_that_of_the_published_recipe(model: str, cora: AccuracyReport) -> None:
    low, high = BASE["cora"][model]
    base = of(cora, f"{model}-cora")[0]
    assert (base.techniques, base.numbers, base.agreement, base.largest_difference) == ("none", "fp32", 1, 0)
    assert low - 2 * TOLERANCE <= base.accuracy <= high + 2 * TOLERANCE


@pytest.mark.laws
def test_each_technique_changes_accuracy_as_measured(cora: AccuracyReport) -> None:
    for result in cora.results:
        assert result.change == pytest.approx(expected_change(result.techniques), abs=TOLERANCE), result
    judged = {name for result in cora.results for name in result.techniques.replace(":", "+").split("+")}
    # of modules, whose edges have values: tests/test_neighbourhoods.py, tests/test_large_graphs.py
    of_values = {"blocks", "padded", "tiles", "csr"}
    assert judged >= set(technique_names()) - set(announced("npusim.techniques")) - of_values


@pytest.mark.laws
def test_exact_techniques_keep_every_answer_in_fp32(cora: AccuracyReport) -> None:
    for result in cora.results:
        if result.numbers == "fp32" and result.techniques not in ("effop+grax2", "effop+grax2:form=source"):
            assert result.agreement == 1.0, result
            assert result.largest_difference is not None
            assert result.largest_difference < 1e-4, result


@pytest.mark.laws
def test_fp16_and_8_bits_change_few_answers(cora: AccuracyReport) -> None:
    exact = [r for r in cora.results if "grax2" not in r.techniques or "rank2" in r.techniques]
    assert all(result.agreement > 0.998 for result in exact if result.numbers == "fp16")
    assert all(result.agreement > 0.98 for result in exact if result.numbers == "int8")
    numbers = {(r.techniques, r.numbers) for r in exact}
    assert {("stagr+quantgr", "int8"), ("none", "fp16")} <= numbers
    assert ("stagr+quantgr", "fp32") not in numbers


@pytest.mark.laws
def test_grax2_literal_differs_where_rank2_does_not(cora: AccuracyReport) -> None:
    found = {r.techniques: r for r in of(cora, "gat-cora") if r.numbers == "fp32"}
    literal, exact = found["effop+grax2"], found["effop+grax2:form=rank2"]
    assert literal.largest_difference > 1 > 1e-4 > exact.largest_difference
    assert literal.agreement < exact.agreement == 1.0


@pytest.mark.laws
def test_stacks_that_a_model_does_not_allow_are_left_out_with_the_reason(cora: AccuracyReport) -> None:
    left = {(one.workload, one.techniques): one.reason for one in cora.skipped}
    assert "masked maximum" in left[("gcn-cora", "grax3")]
    assert "symmetric" in left[("sage-mean-cora", "stagr+grasp+symg+cacheg")]
    assert not {(r.workload, r.techniques) for r in cora.results} & set(left)


@pytest.mark.laws
def test_the_report_is_a_document_of_its_schema_and_a_page(cora: AccuracyReport) -> None:
    import jsonschema
    from rich.console import Console

    from npusim.config import schema_of

    document = json.loads(cora.to_json())
    jsonschema.validate(document, schema_of(AccuracyReport))
    assert document["schema"] == "npusim.accuracy/1"
    assert {"workload", "techniques", "numbers", "accuracy", "change", "agreement"} <= set(
        document["results"][0]
    )
    console = Console(width=80, record=True, file=StringIO())
    console.print(accuracy_page(cora))
    text = console.export_text()
    assert "effop+grax2:form=rank2" in text
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.laws
def test_a_training_is_kept_and_found_again(
    planetoid_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "cache_dir", lambda *_: tmp_path)
    trainings: list[int] = []
    train = training.train

    def counted(*given: object) -> object:
        trainings.append(1)
        return train(*given)

    monkeypatch.setattr(training, "train", counted)
    quick = Recipe(epochs=2)
    first, again = (judge(["gcn-cora"], ["stagr"], planetoid_root, recipe=quick) for _ in range(2))
    assert (len(trainings), first) == (1, again)
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]
    judge(["gcn-cora"], ["grad"], planetoid_root, overrides=("workload.form=dense",), recipe=quick)
    assert len(trainings) == 1  # the form matters to no parameter
    judge(["gcn-cora"], [], planetoid_root, overrides=("workload.hidden=8",), recipe=quick)
    judge(["gcn-cora"], [], planetoid_root, seeds=[1], recipe=quick)
    judge(["gcn-cora"], [], planetoid_root, recipe=quick, retrain=True)
    assert len(trainings) == 4
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:100])
    assert judge(["gcn-cora"], ["stagr"], planetoid_root, recipe=quick) == first
    assert len(trainings) == 5


def test_bad_requests_are_told_before_any_training(
    planetoid_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NPUSIM_DATA", raising=False)
    monkeypatch.setattr(training, "train", None)
    with pytest.raises(IllegalTechniqueError, match="grax1 needs a masked softmax"):
        judge(["gcn-cora"], ["grax1"], planetoid_root)
    with pytest.raises(FileError, match="pass --data DIR"):
        judge(["gcn-cora"], ["stagr"])
    assert parse_seeds("0-2, 7") == [0, 1, 2, 7]
    for wrong in ("", "x", "2-1", "1-", "-3", "0-5000"):
        with pytest.raises(ConfigError, match="--seeds"):
            parse_seeds(wrong)


@pytest.mark.laws
def test_the_command_prints_a_table_or_one_json_document(
    planetoid_root: Path, cora: AccuracyReport, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["accuracy", "gcn-cora", "-t", "stagr+quantgr", "--data", str(planetoid_root)]
    assert run(words) == 0
    table = capsys.readouterr().out
    assert "stagr+quantgr" in table
    assert "int8" in table
    assert run([*words, "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["results"][0]["techniques"] == "none"
    assert captured.err == ""
    assert run([*words, "--set", "npu.tiles=2"]) == 2
    assert "depends on no machine" in capsys.readouterr().err


@pytest.mark.laws
def test_whatif_shows_accuracy_beside_the_speed_up(
    planetoid_root: Path, cora: AccuracyReport, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = {r.techniques: r.accuracy for r in of(cora, "gcn-cora")}  # the last format is the machine's
    words = ["whatif", "gcn-cora", "--stack", "none,stagr+quantgr", "--data", str(planetoid_root)]
    assert run([*words, "--accuracy", "--format", "json"]) == 0
    variants = json.loads(capsys.readouterr().out)["variants"]
    assert {v["techniques"]: v["accuracy"] for v in variants} == {
        stack: judged[stack] for stack in ("none", "stagr+quantgr")
    }
    assert run(["whatif", "model.xml", "--accuracy"]) == 2
    assert "model.xml" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("dataset", ["cora", "citeseer"])
@pytest.mark.parametrize("model", MODELS)
def test_every_technique_on_three_seeds_changes_accuracy_as_measured(
    model: str, dataset: str, planetoid_root: Path
) -> None:
    report = judge([f"{model}-{dataset}"], stacks()["accuracy"], planetoid_root, seeds=range(3))
    low, high = BASE[dataset][model]
    base = [one.accuracy for one in report.results[0].seeds]
    assert min(base) <= high + 2 * TOLERANCE
    assert max(base) >= low - 4 * TOLERANCE
    for result in report.results:
        assert result.change == pytest.approx(expected_change(result.techniques), abs=TOLERANCE), result


# -------------------------------------------------------------------------------------- a module of one's own
def own_data() -> Any:
    from torch_geometric.data import Data

    draw = torch.Generator().manual_seed(3)
    one_way = torch.randint(0, 60, (2, 200), generator=draw)
    x = torch.rand(60, 8, generator=draw)
    y = torch.randint(0, 3, (60,), generator=draw)
    edges = torch.unique(torch.cat([one_way, one_way.flip(0)], dim=1), dim=1)
    return Data(x=x, edge_index=edges, y=y, test_mask=torch.arange(60) >= 20)


class Own(torch.nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = layer(8, 16), layer(16, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.few(1)
@pytest.mark.parametrize("layer", ["GCNConv", "SAGEConv"])
def test_a_module_of_ones_own_is_judged_on_its_own_data(layer: str) -> None:
    import torch_geometric.nn

    module, data = Own(getattr(torch_geometric.nn, layer)), own_data()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    report = npusim.accuracy(module, "stagr,stagr+quantgr,grax1", data=data)
    found = {(one.techniques, one.numbers): one for one in report.results}
    with torch.no_grad():
        right = (module(data.x, data.edge_index).argmax(1) == data.y)[data.test_mask].float().mean()
    assert report.training is None
    assert found["none", "fp32"].accuracy == pytest.approx(float(right))
    assert found["stagr", "fp32"].largest_difference < 1e-5
    assert 0 < found["stagr", "fp16"].largest_difference < 0.1
    assert found["stagr+quantgr", "int8"].largest_difference > found["stagr", "fp32"].largest_difference
    assert [one.techniques for one in report.skipped] == ["grax1"]
    assert before.keys() == module.state_dict().keys(), "the module stays as it is"
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_a_module_of_ones_own_is_judged_as_its_file_would_be_written() -> None:
    from torch_geometric.nn import GATConv

    report = npusim.accuracy(Own(GATConv), "stagr,padded,padded+stagr", data=own_data())
    assert [one.techniques for one in report.skipped] == ["stagr"], (
        "the count of its self-loops is no constant"
    )
    assert {one.techniques for one in report.results} == {"none", "padded", "padded+stagr"}
    assert all(one.largest_difference < 0.1 for one in report.results)


def test_a_module_with_wrong_data_is_refused() -> None:
    from torch_geometric.nn import GCNConv

    data = own_data()
    with pytest.raises(npusim.NpusimError, match="no `y` in dict"):
        npusim.accuracy(Own(GCNConv), "stagr", data={"x": data.x, "edge_index": data.edge_index})
    with pytest.raises(npusim.NpusimError, match="a mask of 3 values"):
        npusim.accuracy(Own(GCNConv), "stagr", data=data, mask=[True] * 3)
    data.y = data.y[:5]
    with pytest.raises(npusim.NpusimError, match=r"a result of shape \[60, 3\].*5 nodes"):
        npusim.accuracy(Own(GCNConv), "stagr", data=data, mask=[True] * 5)
