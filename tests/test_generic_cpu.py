"""A machine without an NPU: every command works on it, and says clearly what it cannot do."""

import json

import pytest

import npusim
from npusim import map as place
from npusim.arch import load_soc
from npusim.cli.program import run
from npusim.config import valid_paths
from npusim.errors import ConfigError, NpusimError
from npusim.explore.axes import resolve_axes
from npusim.explore.query import query
from npusim.explore.spaces import Space
from npusim.units import format_quantity

CPU = load_soc("generic-cpu")
STACKS = ["none", "stagr", "grad+nodepad+graphsplit+quantgr", "stagr+symg+cacheg", "stagr+grasp"]


def act_out(*arguments, **settings):
    return npusim.estimate(*arguments, engine="event", **settings)


@pytest.fixture(scope="module")
def gcn():
    return npusim.load_workload("gcn-cora")


@pytest.mark.parametrize("stack", STACKS)
def test_both_engines_run_everything_on_the_cpu_and_agree(gcn, stack):
    graph = npusim.apply(gcn, stack)
    for hint in ("latency", "throughput"):
        added, acted = (engine(graph, CPU, hint=hint) for engine in (npusim.estimate, act_out))
        assert set(added.units) == {"cpu"}
        assert {op.unit for op in added.operators} <= {"cpu", "none"}
        assert (added.tiles, added.area_mm2, added.sram_peak_bytes) == (0, 0.0, 0.0)
        assert acted.throughput_per_s == pytest.approx(added.throughput_per_s, rel=0.02)
        assert acted.latency_s == pytest.approx(added.latency_s, rel=0.02)


def test_throughput_has_one_request_a_core(gcn):
    assert npusim.estimate(gcn, CPU).requests == 1
    assert npusim.estimate(gcn, CPU, hint="throughput").requests == int(CPU.cpu.cores)


def test_what_means_nothing_without_an_npu_is_said(gcn):
    warnings = npusim.estimate(npusim.apply(gcn, "stagr+symg+cacheg"), CPU).warnings
    assert any("symg, cacheg" in warning for warning in warnings)
    assert not npusim.estimate(npusim.apply(gcn, "stagr"), CPU).warnings


@pytest.mark.parametrize(
    ("wish", "told"),
    [({"device": "npu"}, "has no NPU"), ({"device": "gpu"}, "has no GPU"), ({"tiles": 2}, "no NPU")],
)
def test_devices_and_tiles_that_are_not_there_are_refused(gcn, wish, told):
    with pytest.raises(NpusimError, match=told):
        npusim.estimate(gcn, CPU, **wish)


def test_the_placement_is_the_cpu(gcn):
    found = place(gcn, CPU)
    assert found.devices == ["cpu"]
    assert found.latency_s == pytest.approx(npusim.estimate(gcn, CPU).latency_s)
    assert found.value == pytest.approx(found.latency_s)


def test_stacks_can_be_compared_with_intervals(gcn):
    compared = npusim.whatif(gcn, CPU, ["none", "stagr", "stagr+symg"], samples=16)
    assert [v.techniques for v in compared.variants] == ["none", "stagr", "stagr+symg"]
    low, high = compared.variants[1].latency_interval_s
    assert low < compared.variants[1].latency_s < high


def space(**changes):
    text = {
        "schema": "npusim.space/1",
        "workload": "gcn-cora",
        "soc": "generic-cpu",
        "axes": {
            "cpu.clock": {"from": "1GHz", "to": "4GHz", "step": "1GHz"},
            "cpu.cores": {"values": [2, 8]},
        },
    }
    return Space.model_validate(text | changes)


def test_numbers_of_the_cpu_are_axes_of_a_sweep(tmp_path):
    resolved = resolve_axes(space(), CPU)
    assert not any(axis.is_lowered or axis.is_searched for axis in resolved)
    assert npusim.sweep(space(), tmp_path / "found").points == 8


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "path",
    [
        "cpu.macs_per_cycle.fp32",
        "cpu.caches.l2.size",
        "cpu.element_cycles.scatter",
        "cpu.write_cost",
        "cpu.scatter_cost",
        "cpu.product_lanes",
    ],
)
def test_a_point_of_a_sweep_is_what_an_estimate_says(path, gcn, tmp_path):
    now = valid_paths(CPU)[path]
    other = 0.25 if path.endswith("size") else 4.0  # what the network keeps fits into this cache as it is
    values = [format_quantity(factor * float(now), now.unit) for factor in (1.0, other)]
    npusim.sweep(space(axes={path: {"values": values}}, keep="all"), tmp_path / "found")
    found = query(tmp_path / "found", "SELECT latency_s FROM points ORDER BY point")["latency_s"]
    machines = [load_soc("generic-cpu", [f"{path}={value}"]) for value in values]
    assert found.to_pylist() == pytest.approx(
        [npusim.estimate(gcn, machine).latency_s for machine in machines]
    )


def test_a_space_cannot_ask_for_tiles_that_are_not_there():
    with pytest.raises(ConfigError, match="has no NPU"):
        resolve_axes(space(run={"tiles": 2}), CPU)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "arguments",
    [
        ["estimate", "gat-cora", "--soc", "generic-cpu", "--techniques", "stagr+effop"],
        ["estimate", "sage-max-cora", "--soc", "generic-cpu", "--engine", "event"],
        ["whatif", "gcn-cora", "--soc", "generic-cpu", "--stack", "none,stagr"],
        ["map", "gat-cora", "--soc", "generic-cpu"],
        ["stream", "gcn-cora", "--soc", "generic-cpu", "--updates", "5"],
        ["list", "socs"],
    ],
    ids=" ".join,
)
def test_commands_work(arguments, capsys):
    assert run([*arguments, "--format", "json"]) == 0
    assert "generic-cpu" in json.dumps(json.loads(capsys.readouterr().out))
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert "tile" not in shown or arguments[0] == "list"


def test_arithmetic_in_fp16_takes_as_long_as_in_fp32():
    """It has none for fp16, and converts what comes in."""
    seconds = [
        npusim.estimate(
            npusim.apply(npusim.load_workload("gcn-cora", {"precision": precision}), "stagr"), CPU
        ).latency_s
        for precision in ("fp16", "fp32")
    ]
    assert seconds[0] == pytest.approx(seconds[1])
