"""The default comparison: stacks that fit the network, the devices beside them, and advice that was tried."""

import io
import json
import re
from functools import cache

import pytest
from rich.console import Console

from npusim import Scenario, estimate, load_soc, load_workload, whatif
from npusim.cli.program import run
from npusim.reporting.whatif import whatif_page
from npusim.studies import WhatIf
from npusim.studies.elasticity import elasticities
from npusim.studies.fitting_stacks import LEAST_GAIN, FittingStacks, fitting_stacks
from npusim.techniques import apply, get, legal, parse, stacks, technique_names

NETWORKS = ["gcn-cora", "gat-cora", "sage-max-cora", "resnet-50"]


@cache
def fitting(network: str) -> FittingStacks:
    return fitting_stacks(Scenario(network))


@pytest.fixture(scope="module")
def gcn() -> WhatIf:
    return whatif("gcn-cora")


def text_of(result: WhatIf, columns: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=columns, color_system=None, highlight=False).print(whatif_page(result))
    return out.getvalue()


def interval_s(network: str, stack: str) -> float:
    return 1.0 / estimate(network, techniques=stack).throughput_per_s


# Stacks


@pytest.mark.few(1)
@pytest.mark.parametrize("network", NETWORKS)
def test_default_stacks_are_legal_and_the_last_is_the_fastest(network):
    graph = load_workload(network)
    assert all(legal(graph, stack) is None for stack in fitting(network).stacks)
    times = [interval_s(network, stack) for stack in fitting(network).stacks]
    assert times[-1] == min(times)
    assert len(set(fitting(network).stacks)) == len(times)


@pytest.mark.few(1)
@pytest.mark.parametrize("network", NETWORKS)
def test_no_technique_gains_on_the_best_default_stack(network):
    graph = load_workload(network)
    best = parse(fitting(network).stacks[-1])
    least = (1.0 - LEAST_GAIN) * interval_s(network, str(best))
    for name in set(technique_names()) - set(best.names):
        more = [*best.to_data(), name]
        if legal(graph, more) is None:
            assert interval_s(network, str(parse(more))) >= least, name


@pytest.mark.few(1)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_technique_is_compared_or_left_out_with_a_reason(network):
    compared = {name for stack in fitting(network).stacks for name in parse(stack).names}
    named = set(re.findall(r"[a-z0-9-]+", fitting(network).left_out))
    assert set(technique_names()) <= compared | named
    assert not compared & (named - {"stagr"})  # `grad (instead of stagr)`


@pytest.mark.laws
def test_default_stacks_find_what_the_named_lists_find():
    for network in ("gat-cora", "sage-max-cora"):
        named = [str(stack) for stack in stacks()["all"] if legal(load_workload(network), stack) is None]
        best = min(interval_s(network, stack) for stack in named)
        assert interval_s(network, fitting(network).stacks[-1]) <= best * 1.02


def test_the_baseline_runs_today_with_the_same_results():
    for network in NETWORKS:
        base = parse(fitting(network).stacks[0])
        assert all(get(name).exact and not get(name).what_if for name in base.names)
    assert (fitting("gcn-cora").stacks[0], fitting("resnet-50").stacks[0]) == ("stagr", "none")


def test_an_imported_model_gets_default_stacks(tmp_path):
    openvino = pytest.importorskip("openvino")
    from npusim.frontends.openvino_write import model_of_graph

    file = tmp_path / "gcn.xml"
    openvino.save_model(model_of_graph(apply(load_workload("gcn-cora"), "stagr")), file)
    found = fitting_stacks(Scenario(file)).stacks
    assert found[0] == "none" and "quantgr" in found[1]


# Devices and what they rest on


@pytest.mark.laws
def test_the_untouched_network_stands_first_on_every_device(gcn):
    assert [d.device for d in gcn.devices] == ["cpu", "gpu", "npu"]
    for d in gcn.devices:
        e = estimate("gcn-cora", device=d.device)
        assert (d.latency_s, d.energy_j, d.dram_bytes) == (e.latency_s, e.energy_j, e.dram_bytes)
        assert d.latency_interval_s[0] < d.latency_s < d.latency_interval_s[1]
        assert d.speedup_throughput == pytest.approx(gcn.variants[0].latency_s / d.latency_s)
    lines = text_of(gcn).splitlines()
    first = [i for i, line in enumerate(lines) if line.startswith("none on the")]
    assert lines[first[0] + 3].startswith("stagr ")


def test_a_machine_without_an_npu_has_one_device():
    assert [d.device for d in whatif("gcn-cora", "generic-cpu", samples=0).devices] == ["cpu"]


def test_a_number_that_carries_most_of_a_time_is_named(gcn):
    npu = gcn.devices[-1]
    assert "scatter" in npu.rests_on.number
    assert npu.rests_on.share > 0.5 and npu.rests_on.uncertainty > 0.1
    assert npu.rests_on.number in "".join(gcn.notes)
    value, unit = npu.rests_on.value.split()
    doubled = load_soc("core-ultra-series2", [f"{npu.rests_on.number}={2 * float(value)} {unit}"])
    ratio = estimate("gcn-cora", doubled, device="npu").latency_s / npu.latency_s
    assert ratio == pytest.approx(1 + npu.rests_on.share, abs=0.05)


def test_a_number_that_is_well_known_is_not_named():
    sure = {"npu.launch_overhead": {"value": "0.25 ms", "uncertainty": "1 %"}}
    result = whatif("gcn-cora", stacks=["stagr", "stagr+quantgr"], settings=sure)
    assert all(v.rests_on is None for v in result.variants)


# Advice


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("network", "compared"),
    [("gcn-cora", ["none", "graphsplit"]), ("gcn-cora", ["stagr"]), ("gat-cora", ["stagr", "stagr+quantgr"])],
)
def test_the_conclusion_advises_only_what_was_tried_and_helped(network, compared):
    result = whatif(network, stacks=compared, samples=0)
    best = max(result.variants, key=lambda v: v.throughput_per_s)
    assert result.tried == elasticities(Scenario(network, techniques=best.techniques), estimate)
    head, _, idle = result.conclusion.partition("Tried: ")[2].rpartition(";")
    for tried in result.tried:
        if f"{tried.resource} saves" in head:
            assert tried.gain >= 0.005
        if abs(tried.gain) < 0.005:
            assert tried.resource in idle


def test_more_dsps_are_no_advice_for_a_scatter():
    result = whatif("gcn-cora", stacks=["none", "graphsplit"], samples=0)
    dsps = next(tried for tried in result.tried if tried.resource == "DSPs of a tile")
    assert dsps.gain < 0.005
    assert not re.search(r"DSPs of a tile saves", result.conclusion)


# The page


def test_one_slow_stack_flattens_no_other():
    result = whatif("gcn-cora", stacks=["none", "stagr", "stagr+quantgr", "stagr+symg"], samples=0)
    bars = dict(re.findall(r"^(\S+)\s+(█+)", text_of(result), flags=re.MULTILINE))
    assert "none" in bars and "bars end at" in text_of(result)
    assert len(bars["none"]) >= len(bars["stagr"]) >= len(bars["stagr+quantgr"]) >= 5


def test_no_figure_has_more_digits_than_its_interval_bears(gcn):
    row = next(line for line in text_of(gcn).splitlines() if line.startswith("none on the NPU"))
    (latency,) = re.findall(r"NPU +(\d+) ms", row)
    assert len(latency.rstrip("0")) == 1  # 33.0 ms of 13 to 86


@pytest.mark.laws
def test_over_keeps_names_and_times_at_eighty_columns():
    values = [f"{size}MiB" for size in ("0.5", "1", "1.5", "2", "3", "4")]
    compared = ["stagr", "stagr+symg", "stagr+quantgr+symg+cacheg"]
    result = whatif("gcn-cora", stacks=compared, over={"npu.sram.per_tile": values}, samples=16)
    page = text_of(result)
    assert max(map(len, page.splitlines())) <= 80
    assert any(line.startswith("npu.sram.per_tile") for line in page.splitlines())
    assert all(value in page for value in values)
    assert all(
        re.search(rf"^{re.escape(name)}\b", page, flags=re.MULTILINE) for name in ("stagr", "stagr+symg")
    )
    assert page.count(" µs") >= len(values) * len(compared)


def test_over_tiles_with_a_fixed_number_says_so(capsys):
    arguments = ["whatif", "gcn-cora", "--stack", "stagr", "--over", "npu.tiles=2,4,8", "--tiles", "4"]
    assert run([*arguments, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "--tiles 4 fixes" in document["notes"][0]
    assert {skipped["at"]["npu.tiles"] for skipped in document["skipped"]} == {"2"}
    assert {v["at"]["npu.tiles"] for v in document["variants"]} == {"4", "8"}


def test_over_tiles_uses_them():
    result = whatif("gat-cora", stacks=["stagr"], over={"npu.tiles": ["2", "4", "8"]}, samples=0)
    times = [v.latency_s for v in result.variants]
    assert times == sorted(times, reverse=True) and len(set(times)) == 3


def test_what_only_an_npu_uses_does_not_run_today_on_a_cpu():
    result = whatif("gcn-cora", "generic-cpu", ["stagr", "stagr+quantgr", "stagr+grasp"], samples=0)
    assert "today: stagr+quantgr" in result.conclusion or "stagr+grasp" not in result.conclusion
    assert any("OpenVINO multiplies them dense" in note for note in result.notes)
