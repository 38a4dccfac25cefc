"""Runs side by side: ratios of two estimates, operators matched by name, bad questions refused."""

import json
from pathlib import Path

import pytest

import npusim
from npusim.cli.program import run
from npusim.studies.side_by_side import Comparison, kind_of

SOCS = ("core-ultra-series1", "core-ultra-series2")


@pytest.fixture(scope="module")
def stacks():
    return npusim.compare("gcn-cora", "stagr", "stagr+quantgr", "none")


def test_figures_and_ratios_are_those_of_the_estimates(stacks):
    assert stacks.differ_in == "techniques"
    one, two, _ = (npusim.estimate("gcn-cora", techniques=run.name) for run in stacks.runs)
    for found, estimate in zip(stacks.runs, (one, two), strict=False):
        assert found.figures["latency_s"] == estimate.latency_s and found.energy == estimate.energy
        for name, ratio in found.ratios.items():
            first = getattr(one, name)
            assert ratio == (getattr(estimate, name) / first if first else None)


def test_operators_match_by_name_and_what_only_one_has_is_listed(stacks):
    by_name = {op.name: op for op in stacks.operators}
    product = by_name["layer0/combine/matmul"]
    assert product.ratios[0] == 1.0
    assert product.ratios[1] == pytest.approx(product.runs[1].latency_s / product.runs[0].latency_s)
    scatter = by_name["layer0/aggregate/scatter"]
    assert scatter.runs[:2] == [None, None] and scatter.ratios == [None, None, None]
    assert "layer0/aggregate/scatter" in stacks.runs[2].alone
    assert stacks.runs[2].alone_s >= scatter.runs[2].latency_s
    assert product.name not in {name for run in stacks.runs for name in run.alone}


def test_an_operator_that_rides_along_elsewhere_is_not_missing_there(stacks):
    relu = next(op for op in stacks.operators if op.name == "layer0/activation/relu")
    assert relu.runs[0] is None and relu.fused_into[0] == "layer0/aggregate/matmul"
    assert relu.runs[2] is not None and relu.name not in stacks.runs[2].alone


@pytest.mark.parametrize("what", [("gcn-cora", "gat-cora"), ("gcn-cora", *SOCS)])
def test_the_command_prints_a_page_of_80_columns_and_one_document(what, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["compare", *what, "--hint", "throughput"]) == 0
    page = capsys.readouterr().out
    assert all(run in page for run in what[-2:]) and "ratio" in page
    assert max(map(len, page.splitlines())) <= 80
    assert run(["compare", *what, "--format", "json"]) == 0
    assert Comparison.model_validate(json.loads(capsys.readouterr().out)).runs[0].name in what


def test_saved_estimates_are_compared_too(tmp_path: Path):
    for stack in ("none", "stagr"):
        npusim.estimate("gcn-cora", techniques=stack).write(tmp_path / f"{stack}.json")
    found = npusim.compare(tmp_path / "none.json", tmp_path / "stagr.json")
    assert found.differ_in == "estimate" and found.runs[1].ratios["latency_s"] < 1.0
    scenario = npusim.Scenario("gcn-cora", techniques="stagr")
    assert npusim.compare(tmp_path / "none.json", scenario).runs[1].figures == found.runs[1].figures


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["gcn-cora"], "nothing that differs"),
        (["stagr", "none"], "a network beside them"),
        (["gcn-cora", "gat-cora", "none", "stagr"], "2 networks and 2 technique stacks"),
        (["gcn-cora", "gcn-cora"], "a second time"),
        (["gcn-cora", "gta-cora"], "gat-cora"),
        (["gcn-cora", *SOCS, "stagr", "--techniques", "effop"], "--techniques"),
        (["gcn-cora", "missing.yaml"], "missing.yaml"),
        (["a.json", "b.json"], "a.json"),
        (["a.json", "b.json", "gcn-cora"], "estimates beside names"),
    ],
)
def test_a_bad_question_gets_one_message(arguments, message, capsys):
    assert run(["compare", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("error") == 1


def test_what_is_compared_is_known_by_its_name():
    names = ("gcn-cora", "x.onnx", "core-ultra-series2", "none", "stagr+quantgr", "x.json")
    kinds = ["network", "network", "soc", "techniques", "techniques", "estimate"]
    assert [kind_of(name) for name in names] == kinds
