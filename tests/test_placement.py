"""`npusim map`: the document agrees with the engine, no cut beats the placement, the page fits a terminal."""

import io
import json

import pytest
from rich.console import Console

from npusim import estimate
from npusim.api import place
from npusim.arch import load_soc
from npusim.cli.running import run
from npusim.errors import NpusimError, UnknownNameError
from npusim.report.placement import placement_page
from npusim.techniques import apply
from npusim.workloads import load_workload

SERIES2 = load_soc("core-ultra-series2")
ROUNDING = 1 + 1e-9


@pytest.mark.parametrize("name", ["gcn-cora", "gat-cora", "sage-max-cora"])
def test_no_cut_and_no_single_device_beats_the_placement(name):
    found = place(load_workload(name), SERIES2)
    assert found.exact
    assert found.bound == pytest.approx(found.value)
    assert all(found.value <= cut.latency_s * ROUNDING for cut in found.cuts)
    assert all(found.latency_s <= alone.latency_s * ROUNDING for alone in found.alone)
    assert 0.8 * found.value <= found.latency_s <= 1.05 * found.value


def test_least_energy_takes_no_more_energy_than_least_latency():
    graph = load_workload("gcn-cora")
    saving, fast = (place(graph, SERIES2, minimise=aim) for aim in ("energy", "latency"))
    assert saving.energy_j <= fast.energy_j
    assert fast.latency_s <= saving.latency_s
    assert all(saving.value <= cut.energy_j * ROUNDING for cut in saving.cuts)


def test_a_device_alone_costs_what_estimate_says():
    graph = apply(load_workload("gat-cora"), "effop")
    for alone in place(graph, SERIES2).alone:
        expected = estimate(graph, SERIES2, device=alone.device)
        assert alone.latency_s == pytest.approx(expected.latency_s)
        assert alone.energy_j == pytest.approx(expected.energy_j)


def test_with_several_in_flight_the_pace_counts_and_its_bound_is_told():
    found = place(load_workload("gcn-cora"), SERIES2, hint="throughput")
    assert found.bound <= found.value * ROUNDING
    assert all(1 / cut.throughput_per_s * ROUNDING >= found.bound for cut in found.cuts)
    assert found.throughput_per_s >= max(alone.throughput_per_s for alone in found.alone)


def test_devices_are_those_asked_for():
    found = place(load_workload("gcn-cora"), SERIES2, devices=["gpu", "npu"])
    assert found.devices == ["npu", "gpu"]
    assert {group.device for group in found.groups} <= {"npu", "gpu"}
    assert {(cut.first, cut.rest) for cut in found.cuts} == {("npu", "gpu"), ("gpu", "npu")}
    with pytest.raises(UnknownNameError, match="npu"):
        place(load_workload("gcn-cora"), SERIES2, devices=["nqu"])
    with pytest.raises(NpusimError, match="each device once"):
        place(load_workload("gcn-cora"), SERIES2, devices=["npu", "npu"])


def test_the_command_writes_a_document_of_its_schema(capsys):
    from jsonschema import validate

    assert run(["schema", "map"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert run(["map", "sage-mean-cora", "--minimise", "energy", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate(document, schema)
    assert document["schema"] == "npusim.map/1"


def test_a_wrong_device_is_answered_with_the_nearest(capsys):
    assert run(["map", "gcn-cora", "--devices", "npu,cpv"]) == 2
    assert "did you mean `cpu`?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [{}, {"minimise": "energy"}, {"hint": "throughput"}, {"devices": ["npu"]}]
)
def test_the_page_fits_into_eighty_columns(options):
    text = io.StringIO()
    result = place(load_workload("gat-cora"), SERIES2, **options)
    Console(file=text, width=80, highlight=False).print(placement_page(result))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in text.getvalue()
    assert lines[-1].startswith("Best:") or lines[-2].startswith("Best:")
