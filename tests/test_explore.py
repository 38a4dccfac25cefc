"""Design spaces: what a file may say, how points are numbered, that a point costs what `estimate` says."""

from typing import Any

import numpy as np
import pytest
from spaces import MIXED, QUICK, changed, estimated

from npusim.arch import load_soc, with_overrides
from npusim.config import valid_paths
from npusim.cost.machine.design_point import arch_row
from npusim.cost.tilings.search import search_rows
from npusim.cost.units.rates import RATES, TILE_SRAM, clear_rate_bounds
from npusim.errors import ConfigError, InfeasibleError, NpusimError
from npusim.explore.campaign import Campaign
from npusim.explore.spaces import load_space, parse_keep, space_names
from npusim.mapping.mapped import is_read_by_lowering, plan_tables
from npusim.techniques import apply
from npusim.units import Count, Quantity
from npusim.workloads import load_workload

FIGURES = ("latency_s", "throughput_per_s", "energy_j", "area_mm2", "dram_bytes", "sram_peak_bytes")
RELATIVE = 1e-9


def campaign(space: dict[str, Any]) -> Campaign:
    return Campaign(load_space(space))


def check_points(c: Campaign, numbers: Any) -> None:
    for number in numbers:
        coordinates = c.points.coordinates([number])[0]
        found = c.scores(int(number), int(number) + 1)
        try:
            e = estimated(c, coordinates)
        except InfeasibleError:
            assert np.isinf(found["latency_s"][0])
            continue
        for name in FIGURES:
            assert found[name][0] == pytest.approx(getattr(e, name), rel=RELATIVE), (number, name)


@pytest.mark.laws
def test_random_points_of_every_kind_of_axis_cost_what_an_estimate_says():
    c = campaign(MIXED)
    check_points(c, np.random.default_rng(1).integers(0, c.total, 40))


@pytest.mark.few(1)
@pytest.mark.parametrize("run", [{"hint": "throughput"}, {"tiles": 2}, {"requests": 3}, {"hint": "latency"}])
def test_points_cost_what_an_estimate_says_however_the_network_is_run(run):
    c = campaign(changed(MIXED, run=run))
    check_points(c, np.random.default_rng(2).integers(0, c.total, 6))


@pytest.mark.parametrize("stack", ["none", "graphsplit", "graphsplit+stagr"])
def test_points_of_a_network_that_is_placed_by_cost_cost_what_an_estimate_says(stack):
    c = campaign(
        changed(MIXED, techniques=stack, axes={"dram.bandwidth": {"values": ["20 GB/s", "90 GB/s"]}})
    )
    check_points(c, range(2))


@pytest.mark.slow
def test_a_thousand_random_points_of_the_shipped_space_cost_what_an_estimate_says():
    c = Campaign(load_space("gcn-cora"))
    check_points(c, np.random.default_rng(3).integers(0, c.total, 1000))


def test_points_in_a_crowd_cost_what_each_costs_alone():
    c = campaign(MIXED)
    together = c.scores(100, 700)
    alone = c.scores_at(c.points.coordinates(np.arange(100, 700)))
    for name in together:
        assert np.array_equal(together[name], alone[name]), name


@pytest.mark.laws
def test_the_search_looks_at_nothing_but_its_columns():
    soc = load_soc("core-ultra-series2")
    graph = apply(load_workload("gcn-cora"), "stagr+symg")
    rows = plan_tables(graph, soc).table.rows
    rate_bounds, bounds = np.empty((1, RATES, 2)), np.empty(len(rows) + 1, np.int64)
    row = arch_row(soc, 4, 1, "latency")
    rate_bounds[0, TILE_SRAM] = row["npu"]["sram_tile_bytes"]
    clear_rate_bounds(rate_bounds[0])
    before = search_rows(row.archs, rows, rate_bounds, bounds)[: bounds[-1]].copy()
    for column in set(row.primitives) - row.searched:
        row.numbers[column] = np.nan
    row.derive()
    after = search_rows(row.archs, rows, rate_bounds, bounds)[: bounds[-1]]
    assert before.tobytes() == after.tobytes()


def rows_and_changes(graph, soc):
    table = plan_tables(graph, soc).table
    return table.rows.tobytes(), table.changes.tobytes()


@pytest.mark.laws
def test_tables_of_operators_depend_on_no_number_of_the_machine_that_an_axis_may_set_in_its_row():
    """A number that lowering reads must be told (`is_read_by_lowering`), or sweeps cost the wrong network."""
    soc = load_soc("core-ultra-series2", ["npu.sparsity.decompress_activations=true"])
    graphs = [
        apply(load_workload("gat-cora"), "stagr+grasp"),
        apply(load_workload("gcn-cora"), "stagr+symg+cacheg+quantgr"),
        apply(load_workload("sage-max-cora"), "none"),
    ]
    tables = [rows_and_changes(graph, soc) for graph in graphs]
    base = arch_row(soc, np.inf, 1, "latency").numbers
    for path, value in valid_paths(soc).items():
        if not isinstance(value, Quantity | Count) or path.startswith("npu.dsp.kernels"):
            continue
        if is_read_by_lowering(path):
            continue
        less = 0.98 if path.endswith("voltage") else 0.75  # a clock needs its voltage
        new = int(value) + 1 if isinstance(value, Count) else float(value) * less
        other = with_overrides(
            soc, {path: new if not getattr(value, "unit", "") else f"{new!r} {value.unit}"}
        )
        if np.array_equal(arch_row(other, np.inf, 1, "latency").numbers, base):
            continue  # it is a lowering axis anyway
        assert [rows_and_changes(g, other) for g in graphs] == tables, path


def test_points_are_numbered_by_network_then_by_what_the_search_looks_at_then_by_prices():
    c = campaign(MIXED)
    kinds = [0 if a.is_lowered else 1 if a.is_searched else 2 for a in c.axes]
    assert kinds == sorted(kinds)
    assert {a.path for a in c.axes if a.is_lowered} == {
        "techniques",
        "npu.sparsity.decompress_activations",
        "npu.dpu.grid.vpe",
    }
    assert len({tuple(c.points.coordinates([i])[0]) for i in range(0, c.total, 97)}) == len(
        range(0, c.total, 97)
    )


@pytest.mark.parametrize("method", ["sobol", "latin-hypercube"])
def test_a_sampled_design_is_the_same_in_parts_and_costs_what_estimates_say(method):
    axes = {
        "npu.dpu.clock": {"from": "0.8 GHz", "to": "2.2 GHz"},
        "npu.sram.per_tile": {"from": "256 KiB", "to": "8 MiB", "scale": "log"},
        "npu.tiles": {"from": 1, "to": 6},
        "techniques": {"values": ["stagr", "stagr+quantgr"]},
    }
    c = campaign(changed(MIXED, axes=axes, design={"method": method, "points": 64, "seed": 5}))
    whole = c.points.coordinates(np.arange(64))
    parts = [c.points.coordinates(np.arange(a, b)) for a, b in ((0, 10), (10, 33), (33, 64))]
    assert np.array_equal(np.concatenate(parts), whole)
    clock = [a.path for a in c.axes].index("npu.dpu.clock")
    assert whole[:, clock].min() < 1.0e9 and whole[:, clock].max() > 2.0e9
    scores = c.scores(0, 64)
    for p in (0, 17, 63):
        e = estimated(c, whole[p])
        assert scores["latency_s"][p] == pytest.approx(e.latency_s, rel=RELATIVE)
        assert scores["energy_j"][p] == pytest.approx(e.energy_j, rel=RELATIVE)


def test_every_shipped_space_loads():
    assert "gcn-cora" in space_names()
    for name in space_names():
        assert Campaign(load_space(name)).total > 0


def test_the_shipped_space_is_as_large_as_promised():
    c = Campaign(load_space("gcn-cora"))
    assert c.total >= 10**7
    paths = {axis.path for axis in c.axes}
    assert len(paths) >= 7
    assert paths >= {"npu.tiles", "npu.sram.per_tile", "dram.bandwidth", "npu.dma.width", "npu.dsp.per_tile"}


AXIS = {"npu.tiles": {"values": [1, 2]}}
BAD = {
    "a misspelt path": ({"npu.tyles": {"values": [1]}}, "npu.tiles"),
    "a value without unit": ({"npu.dpu.clock": {"values": [1.2]}}, "unit"),
    "no values at all": ({"npu.tiles": {}}, "values"),
    "values and a range": ({"npu.tiles": {"values": [1], "from": 1, "to": 2}}, "either"),
    "step and count": ({"npu.tiles": {"from": 1, "to": 4, "step": 1, "count": 2}}, "either"),
    "an empty range": ({"npu.tiles": {"from": 4, "to": 1, "step": 1}}, "above"),
    "an open range in a full design": ({"npu.dpu.clock": {"from": "1 GHz", "to": "2 GHz"}}, "sampled"),
    "two axes on one number": (
        {"npu.dpu.clock": {"values": ["1 GHz", "2 GHz"]}, "npu.operating_point": {"values": ["dpu_900mhz"]}},
        "same number",
    ),
    "an unknown operating point": ({"npu.operating_point": {"values": ["turbo"]}}, "operating point"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_wrong_axis_is_refused_with_what_is_allowed(what):
    axes, word = BAD[what]
    with pytest.raises(NpusimError, match=word):
        campaign(changed(QUICK, axes=axes))


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ({"constraints": {"latency": {"max": 1}}}, "latency_s"),
        ({"constraints": {"latency_s": {"min": 2, "max": 1}}}, "min"),
        ({"keep": "best"}, "keep"),
        ({"design": {"method": "sobol"}}, "points"),
        ({"minimise": ["latency_s", "latency_s"]}, "twice"),
        (
            {"minimise": ["latency_s", "throughput_per_s"]},
            "more is better: name it under `maximise`",
        ),
        ({"maximise": ["ops_per_j", "energy_j"]}, "of which less is better: name it under `minimise`"),
        ({"minimise": []}, "no objective"),
        ({"run": {"hint": "fast"}}, "latency"),
    ],
)
def test_a_wrong_space_is_refused(parts, word):
    with pytest.raises(ConfigError, match=word):
        load_space(changed(QUICK, **parts))


def test_objectives_are_what_is_minimised_then_what_is_maximised():
    assert load_space(changed(QUICK, maximise=["throughput_per_s"])).objectives == ["throughput_per_s"]
    both = changed(QUICK, minimise=["area_mm2"], maximise=["throughput_per_s"])
    assert load_space(both).objectives == ["area_mm2", "throughput_per_s"]


def test_ways_to_keep():
    assert parse_keep("all") == ("all", 0)
    assert parse_keep("top:12") == ("top", 12)
    for wrong in ("top", "top:0", "top:x", "pareto:3", ""):
        with pytest.raises(ValueError, match="keep"):
            parse_keep(wrong)
