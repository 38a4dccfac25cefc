"""`npusim map`: the document agrees with the engine, no cut beats the placement, the page fits a terminal."""

import io
import json

import pytest
from rich.console import Console

from npusim import estimate
from npusim import map as place
from npusim.arch import load_soc
from npusim.cli.program import run
from npusim.errors import NpusimError, UnknownNameError
from npusim.reporting.placement import _notes, placement_page
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


@pytest.mark.laws
def test_a_network_with_many_open_branches_has_a_bound_that_is_true():
    """Each of 16 layers reads what the graph's preprocessing made: more states than are kept."""
    found = place("gat-cora", "core-ultra-series2", settings={"workload.layers": 16})
    assert 0.5 * found.value <= found.bound <= found.value
    assert all(found.bound <= cut.latency_s * ROUNDING for cut in found.cuts)
    assert "above the least" in "".join(_notes(found)) or found.exact


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


@pytest.mark.few(1)
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


def profile_of(path, times_s, kind="cpu", network="gcn-cora", techniques="none"):
    """Write a measurement whose profiler told a time for some operators."""
    operators = [
        {"name": name, "type": "x", "originals": list(originals), "latency_s": time_s}
        for name, (originals, time_s) in times_s.items()
    ]
    row = {
        "id": "a row",
        "model": {"kind": "workload", "workload": network, "techniques": techniques},
        "latency_s": {"median_s": 1e-3, "low_s": 1e-3, "high_s": 1e-3, "repetitions": 3},
        "operators": operators,
    }
    document = {"schema": "npusim.measurement/1", "npusim": "0", "device": {"kind": kind, "name": "chip"}}
    path.write_text(json.dumps(document | {"rows": [row]}))
    return path


def test_measured_times_decide_where_operators_run_and_are_marked(tmp_path):
    model = place("gcn-cora", SERIES2)
    slow, quick = model.groups[-1], max(model.groups, key=lambda group: group.costs["cpu"].latency_s)
    times_s = {slow.name: ((slow.name,), 1.0), quick.name: ((quick.name, "not of the network"), 1e-9)}
    times_s["Convert_1"] = (("Convert_1",), 0.25)
    found = place("gcn-cora", SERIES2, profiles=[profile_of(tmp_path / "cpu.json", times_s)])
    on = {group.name: group for group in found.groups}
    assert on[slow.name].device != "cpu" and on[quick.name].device == "cpu"
    measured = {name for name, group in on.items() if group.costs["cpu"].measured}
    assert measured == {slow.name, quick.name}
    assert not any(group.costs["npu"].measured for group in found.groups)
    (told,) = found.profiles
    assert (told.groups, told.used_s, told.unused_s) == (2, pytest.approx(1.0), pytest.approx(0.25))
    assert found.value == pytest.approx(found.latency_s)
    assert next(a for a in found.alone if a.device == "cpu").latency_s > 1.0


def test_a_time_of_several_operators_is_shared_out_and_kept_whole(tmp_path):
    model = place("gcn-cora", SERIES2, devices=["npu", "cpu"])
    names = [group.name for group in model.groups]
    file = profile_of(tmp_path / "cpu.json", {"all": (names, 2.0)})
    found = place("gcn-cora", SERIES2, devices=["npu", "cpu"], profiles=[file])
    assert sum(group.costs["cpu"].latency_s for group in found.groups) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ({"network": "gat-cora"}, [], "no operator times of `gcn-cora` with none"),
        ({"techniques": "stagr"}, [], "rows with operator times: `a row`"),
        ({"kind": "gpu"}, ["--devices", "npu,cpu"], "measured on the gpu"),
        ({}, ["--profile", "{file}"], "a second profile of the cpu"),
    ],
)
def test_a_profile_that_does_not_fit_is_refused(tmp_path, capsys, given, options, message):
    file = profile_of(tmp_path / "run.json", {"a": (("a",), 1e-3)}, **given)
    options = [option.format(file=file) for option in options]
    assert run(["map", "gcn-cora", "--profile", str(file), *options]) == 2
    error = capsys.readouterr().err
    assert message in " ".join(error.split())
