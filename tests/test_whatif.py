"""Comparisons: what a stack adds, how sure that is, where it pays, and that a lone technique gets what it
needs.
"""

import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from npusim import estimate, load_soc, load_workload, whatif
from npusim.cli.program import run
from npusim.errors import IllegalTechniqueError, InfeasibleError
from npusim.mapping import Run, map_graph
from npusim.metrics import METRICS
from npusim.reporting.whatif import whatif_page
from npusim.scenario import Scenario
from npusim.studies import WhatIf
from npusim.studies.perturbation import sampled, uncertain_numbers
from npusim.studies.uncertainty import DRAWN_METRICS, draw
from npusim.studies.whatif import step_from
from npusim.techniques import apply, completed, parse

SERIES2 = load_soc("core-ultra-series2")
GCN = load_workload("gcn-cora")
STACKS = ["stagr", "stagr+symg", "stagr+cacheg", "stagr+symg+cacheg"]
EXAMPLE = "symg,cacheg,symg+cacheg,grasp,grasp+cacheg"


@pytest.fixture(scope="module")
def compared() -> WhatIf:
    return whatif(GCN, SERIES2, STACKS)


@pytest.fixture(scope="module")
def over() -> WhatIf:
    axes = {"npu.sram.per_tile": ["1MiB", "4MiB"], "workload.precision": ["fp16", "int8"]}
    return whatif("gcn-cora", SERIES2, STACKS, over=axes, samples=16)


# Stacks


def test_a_technique_that_needs_a_matrix_gets_one_and_says_so():
    stacks, added = completed(GCN, EXAMPLE)
    assert list(map(str, stacks)) == [
        "stagr",
        "stagr+symg",
        "stagr+cacheg",
        "stagr+symg+cacheg",
        "stagr+grasp",
        "stagr+grasp+cacheg",
    ]
    assert "symg" in added and "stagr" in added


def test_a_list_that_is_legal_stays_as_it_is():
    for which in ("stagr,stagr+symg", "none,grad+cacheg", "grasp,quantgr"):
        stacks, added = completed(GCN, which)
        assert ",".join(map(str, stacks)) == which
        assert added is None


def test_a_single_stack_is_compared_with_the_bare_network():
    assert [str(s) for s in completed(GCN, "stagr")[0]] == ["none", "stagr"]
    assert [str(s) for s in completed(GCN, "symg")[0]] == ["none", "stagr", "stagr+symg"]


def test_what_a_matrix_does_not_help_stays_illegal():
    gat = load_workload("gat-cora")
    stacks, added = completed(gat, "none,symg")
    assert [str(s) for s in stacks] == ["none", "symg"]
    assert added is None
    assert whatif(gat, SERIES2, list(map(str, stacks)), samples=0).skipped[0].techniques == "symg"


def test_a_stack_is_compared_with_the_one_that_lacks_what_is_applied_last():
    stacks = ["none", "stagr", "stagr+quantgr", "stagr+symg", "stagr+quantgr+symg", "grad"]
    assert [step_from(stacks, i) for i in range(6)] == [None, 0, 1, 1, 2, 0]


# Intervals


@pytest.mark.laws
def test_every_speed_up_lies_in_its_interval_and_the_baseline_has_no_width(compared):
    base, *others = compared.variants
    assert base.speedup_interval == (1.0, 1.0)
    for v in others:
        low, high = v.speedup_interval
        assert low < v.speedup_throughput < high
        assert v.latency_interval_s[0] < v.latency_s < v.latency_interval_s[1]


def test_symg_is_uncertain_by_the_rate_of_transposed_reads_and_cacheg_is_not(compared):
    by_name = {v.techniques: v for v in compared.variants}
    assert next(iter(by_name["stagr+symg"].step_uncertain_by)) == "npu.symg.transposed_read_rate"
    assert "npu.symg.transposed_read_rate" not in by_name["stagr+cacheg"].step_uncertain_by


@pytest.mark.laws
def test_the_same_seed_draws_the_same_machines():
    first, again, other = (whatif(GCN, SERIES2, STACKS, samples=16, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.variants[1].speedup_interval != other.variants[1].speedup_interval


@pytest.mark.few(2)
@pytest.mark.parametrize("hint", ["latency", "throughput"])
@pytest.mark.parametrize("name", ["gcn-cora", "gat-cora", "sage-mean-cora", "sage-max-cora"])
def test_a_machine_drawn_in_the_middle_is_the_machine_itself(name, hint):
    stacks = ["none", "stagr", "graphsplit"]
    mapped = [Scenario(name, SERIES2, s, hint=hint).mapped for s in stacks]
    still = draw(mapped, samples=1)  # the only sample of one lies in the middle
    assert len(still.numbers) > 20
    for i, one in enumerate(mapped):
        assert still.latency_s[i, 0] == pytest.approx(float(one.total["latency_s"]))
        assert still.interval_s[i, 0] == pytest.approx(1.0 / float(one.total["throughput_per_s"]))
        for metric in METRICS.values():
            assert metric.values(still.totals[i])[0] == pytest.approx(float(metric.values(one.total)))


@given(st.integers(0, 2**31), st.floats(-3, 3))
@settings(max_examples=20)
def test_a_drawn_number_keeps_to_what_its_kind_allows(seed, size):
    numbers = uncertain_numbers(SERIES2)
    normals = np.random.default_rng(seed).normal(size=len(numbers)) * size
    machine = sampled(SERIES2, numbers, list(normals))
    drawn = {number.name: number.at(normal) for number, normal in zip(numbers, normals, strict=True)}
    assert machine.dram.bandwidth == drawn["dram.bandwidth"]
    assert 0.0 < machine.npu.symg.transposed_read_rate <= 1.0
    assert all(value > 0.0 for value in drawn.values())
    assert machine.npu.sram == SERIES2.npu.sram


@pytest.mark.laws
def test_a_more_uncertain_number_widens_the_interval():
    wide = load_soc("core-ultra-series2", ["npu.symg.transposed_read_rate={value: 0.5, uncertainty: 200 %}"])
    sure, unsure = (whatif(GCN, soc, STACKS).variants[1].step_interval for soc in (SERIES2, wide))
    assert unsure[1] - unsure[0] > sure[1] - sure[0]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("number", "value", "metric"),
    [
        ("technology.energy.dram", "50 pJ/B", "energy_j"),
        ("technology.area.sram", "0.25 um^2/B", "area_mm2"),
        ("npu.power.active", "1 W", "power_w"),
    ],
)
def test_a_less_certain_energy_or_area_widens_its_own_interval_and_no_time(number, value, metric):
    settings_ = (f"{number}={{value: {value}, uncertainty: {share}}}" for share in ("1 %", "200 %"))
    sure, unsure = (
        estimate(GCN, load_soc("core-ultra-series2", [one]), techniques="stagr", interval=True)
        for one in settings_
    )
    assert sure.latency_interval_s == unsure.latency_interval_s
    assert sure.intervals["throughput_per_s"] == unsure.intervals["throughput_per_s"]
    widths = [np.subtract(*e.intervals[metric][::-1]) for e in (sure, unsure)]
    assert widths[1] > 1.2 * widths[0]


def test_intervals_hold_the_figures_and_agree_with_each_other():
    e = estimate(GCN, SERIES2, interval=True)
    assert {*e.all_intervals} == {"latency_s", *DRAWN_METRICS}
    for name, (low, high) in e.all_intervals.items():
        assert 0.0 < low < getattr(e, name) < high
    slow, fast = e.latency_interval_s[1], e.latency_interval_s[0]
    assert e.intervals["throughput_per_s"] == pytest.approx((1.0 / slow, 1.0 / fast), rel=0.02)


def test_a_number_is_drawn_alike_for_networks_that_rest_on_other_numbers():
    draws = [draw([Scenario(name, SERIES2).mapped], samples=8) for name in ("gcn-cora", "resnet-50")]
    by_name = [dict(zip((n.name for n in d.numbers), d.normals.T, strict=True)) for d in draws]
    shared = by_name[0].keys() & by_name[1].keys()
    assert by_name[0].keys() != by_name[1].keys() and len(shared) > 20
    assert all((by_name[0][name] == by_name[1][name]).all() for name in shared)


# Settings that are varied


@pytest.mark.laws
def test_every_combination_is_a_point_with_every_stack(over):
    assert len(over.points) == 4
    assert len(over.variants) == 4 * len(STACKS)
    for point in over.points:
        alone = whatif(
            "gcn-cora",
            SERIES2,
            [f"{s}+quantgr" if point["workload.precision"] == "int8" else s for s in STACKS],
            settings={k: v for k, v in point.items() if v != "int8"},
            samples=0,
        )
        assert [v.latency_s for v in over.at(point)] == pytest.approx([v.latency_s for v in alone.variants])


def test_every_point_says_what_its_dram_traffic_is(over):
    for v in over.variants:
        sizes = v.dram.model_dump().values()
        assert min(sizes) >= 0.0 and sum(sizes) == pytest.approx(v.dram_bytes, rel=1e-9)
    assert "DRAM traffic by kind" in whatif_page(over).html()
    assert all(word in text_of(over) for word in ("DRAM traffic by kind", "refetched", "spilled"))


def test_eight_bits_mean_quantgr(over):
    for v in over.variants:
        names = parse(v.techniques).names
        assert ("quantgr" in names) == (v.at["workload.precision"] == "int8")
        assert "quantgr" not in v.stack


def test_a_crossover_lies_where_both_are_equally_fast(over):
    fp16 = {"workload.precision": "fp16"}
    found = [c for c in over.crossovers if c.axis == "npu.sram.per_tile" and c.at == fp16]
    (crossing,) = [c for c in found if {c.first, c.then} == {"stagr+symg", "stagr+cacheg"}]
    assert crossing.first == "stagr+symg"
    near = float(crossing.near.removesuffix("MiB"))
    assert 1.0 < near < 4.0
    times = {}
    for size in (near * 0.95, near * 1.05):  # interpolated between 1 and 4 MiB
        soc = load_soc("core-ultra-series2", [f"npu.sram.per_tile={size}MiB"])
        pair = ("stagr+symg", "stagr+cacheg")
        first, then = (map_graph(apply(GCN, s), soc, Run(tiles=4)).total["latency_s"] for s in pair)
        times[size] = first / then
    assert min(times.values()) < 1.0 < max(times.values())


def test_more_sram_never_makes_cacheg_pay_less(over):
    for precision in ("fp16", "int8"):
        mine = [
            v for v in over.variants if v.stack == "stagr+cacheg" and v.at["workload.precision"] == precision
        ]
        assert mine[0].latency_s >= mine[1].latency_s


def test_a_point_where_nothing_fits_is_left_out_with_the_reason():
    result = whatif("gcn-cora", SERIES2, STACKS, over={"npu.sram.per_tile": ["1KiB", "1MiB"]}, samples=0)
    assert [p["npu.sram.per_tile"] for p in result.points] == ["1MiB"]
    assert {s.at["npu.sram.per_tile"] for s in result.skipped} == {"1KiB"}
    assert "SRAM" in result.skipped[0].reason


def test_where_no_stack_fits_the_error_says_so():
    with pytest.raises(InfeasibleError):
        whatif(GCN, load_soc("core-ultra-series2", ["npu.sram.per_tile=1KiB"]), STACKS)
    with pytest.raises(IllegalTechniqueError):
        whatif(load_workload("gat-cora"), SERIES2, ["symg"])


# Pages and the command


def text_of(result: WhatIf, columns: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=columns, color_system=None, highlight=False).print(whatif_page(result))
    return out.getvalue()


def test_pages_fit_into_eighty_columns_and_end_with_the_conclusion(compared, over):
    for result in (compared, over):
        page = text_of(result)
        assert max(map(len, page.splitlines())) <= 80
        assert "…" not in page
        assert page.split("\n\n")[-1].split() == result.conclusion.split()


def test_the_html_page_needs_no_other_file(compared, over):
    for result in (compared, over):
        page = whatif_page(result).html()
        assert "<script src" not in page and "<link" not in page
        assert page.count("Plotly.newPlot(") >= 2
        assert all(v.techniques in page or v.stack in page for v in result.variants)


@pytest.mark.laws
def test_the_example_of_the_help_runs_and_fits_the_schema(capsys, tmp_path):
    import jsonschema

    html = tmp_path / "over.html"
    arguments = ["whatif", "gcn-cora", "--stack", EXAMPLE, "--over", "npu.sram.per_tile=1MiB,4MiB"]
    arguments += ["--over", "workload.precision=fp16,int8", "--html", str(html), "--format", "json"]
    assert run(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert run(["schema", "whatif"]) == 0
    jsonschema.validate(document, json.loads(capsys.readouterr().out))
    assert document["over"] == {"npu.sram.per_tile": ["1MiB", "4MiB"], "workload.precision": ["fp16", "int8"]}
    assert len(document["variants"]) == 4 * 6
    assert all(v["speedup_interval"] for v in document["variants"])
    assert document["baseline"] == "stagr"
    assert html.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("npu.tiles", "PATH=V1,V2"),
        ("npu.tiles=2,,4", "PATH=V1,V2"),
        ("npu.tiles=2,2", "once"),
        ("npu.tils=2,4", "npu.tiles"),
        ("workload.precision=int9,fp16", "fp16"),
    ],
)
def test_a_wrong_axis_is_refused(capsys, option, message):
    assert run(["whatif", "gcn-cora", "--stack", "stagr", "--over", option]) == 2
    assert message in capsys.readouterr().err


def test_integers_as_a_format_are_refused_with_the_technique_that_makes_them(capsys):
    assert run(["estimate", "gcn-cora", "--set", "workload.precision=int8"]) == 2
    assert "quantgr" in capsys.readouterr().err
