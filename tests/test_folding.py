"""Equal steps of a tiling folded: the same figures as when every tile is simulated."""

import json
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, event, given, reject, settings
from hypothesis import strategies as st

from npusim import DType, Editor, estimate
from npusim.arch import load_soc
from npusim.cli.program import run
from npusim.engines.event import run_events
from npusim.engines.event.emission import _Emission
from npusim.engines.event.jobs import Steps
from npusim.engines.event.steady_state import is_periodic
from npusim.errors import ConfigError, InfeasibleError
from npusim.scenario import Scenario

BOUND = 1e-3
"""What figures may differ by; steps are of whole bytes when simulated."""
SMALL = ["npu.sram.per_tile=64KiB"]


def folded_and_acted_out(network, machine, **run):
    mapped = Scenario(network, settings=machine, **run).mapped
    return run_events(mapped), run_events(mapped, every_tile=True)


def check_same(one, other, bound=BOUND):
    line, estimate, acted = one.timeline, one, other
    assert len(line) + line.folded == len(other.timeline)
    assert estimate.sram_peak_bytes == pytest.approx(acted.sram_peak_bytes, rel=bound)
    for name in ("latency_s", "throughput_per_s", "energy_j", "grid_utilisation"):
        assert getattr(estimate, name) == pytest.approx(getattr(acted, name), rel=bound)
    within = bound * acted.latency_s
    for name, use in acted.units.items():
        assert estimate.units[name].busy_s == pytest.approx(use.busy_s, abs=within)
    for mine, theirs in zip(estimate.operators, acted.operators, strict=True):
        for name in ("span_s", "busy_s"):
            assert getattr(mine, name) == pytest.approx(getattr(theirs, name), abs=within)
    if line.left_out:
        return  # what is left out of several requests is in no sum
    for name in ("bytes", "macs", "energy_j"):
        rows = line.working, other.timeline.working
        sums = [getattr(run.timeline, name)[at].sum() for run, at in zip((one, other), rows, strict=True)]
        assert sums[0] == pytest.approx(sums[1], rel=1e-9)


@st.composite
def networks(draw, fewest=10_000, most=40_000):
    """Two or three products, with an operator between them, of sizes that tilings cut into many steps."""
    sizes = [draw(st.integers(20, 500)) for _ in range(draw(st.integers(3, 4)))]
    editor = Editor("steps")
    value = editor.input("x", (draw(st.integers(fewest, most)), sizes[0]), DType.FP16)
    for i, (rows, columns) in enumerate(pairwise(sizes)):
        weights = editor.constant(f"w{i}", (rows, columns), DType.FP16)
        value = editor.matmul(value, weights, f"product{i}")
        if draw(st.booleans()):
            value = editor.unary("Softmax", value, f"softmax{i}")
    editor.outputs.append(value)
    return editor.finish()


machines = st.tuples(
    st.sampled_from(["npu.sram.per_tile=96KiB", "npu.sram.per_tile=128KiB", "npu.sram.per_tile=256KiB"]),
    st.sampled_from(["npu.dma.engines=1", "npu.dma.engines=2", "npu.dma.engines=3"]),
    st.sampled_from(["dram.bandwidth=10GB/s", "dram.bandwidth=40GB/s", "dram.bandwidth=136GB/s"]),
)


@given(networks(), machines)
@settings(max_examples=12)
def test_folded_steps_cost_what_they_cost_acted_out(network, machine):
    try:
        one, other = folded_and_acted_out(network, machine)
    except InfeasibleError:
        reject()
    assume(one.timeline.folded)
    check_same(one, other)


@pytest.mark.parametrize("stack", ["stagr", "stagr+symg", "none"])
def test_gnns_on_a_small_machine(stack):
    one, other = folded_and_acted_out(Scenario("gcn-cora", techniques=stack).graph, SMALL)
    assert one.timeline.folded > 0.0 or stack == "none"  # whose loops are too short there
    check_same(one, other)
    assert other.timeline.folded == other.folded_tasks == 0.0


@given(networks(500, 1000), machines, st.integers(8, 20), st.booleans())
@settings(max_examples=8)
def test_left_out_inferences_cost_what_they_cost_acted_out(network, machine, requests, shares):
    """Contexts of a tile each, or one context of all tiles."""
    run = {"hint": "throughput", "requests": requests, "tiles": 1 if shares else None}
    try:
        one, other = folded_and_acted_out(network, machine, **run)
    except InfeasibleError:
        reject()
    check_same(one, other)


@pytest.mark.parametrize(
    ("network", "stack", "soc", "requests"),
    [
        ("gcn-cora", "stagr", "core-ultra-series1", 4),
        ("gcn-cora", "graphsplit+grad+nodepad", "core-ultra-series2", 8),
        ("gcn-cora", "stagr", "core-ultra-series2", 21),
    ],
)
def test_gnns_with_several_requests_in_flight(network, stack, soc, requests):
    """The graphs of two hosts and an NPU; loads of two contexts that drift; an odd number of requests."""
    mapped = Scenario(network, soc, stack, hint="throughput", requests=requests).mapped
    one, other = run_events(mapped), run_events(mapped, every_tile=True)
    assert one.timeline.left_out > requests > other.timeline.left_out == 0
    check_same(one, other)
    assert one.folded_tasks == one.timeline.left_out * one.timeline.per_inference


@contextmanager
def steps_of_equal_size():
    """A folded run has them; a full one has steps of whole bytes, which may order two transfers otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Emission, "_parts", lambda self, total, shares: [total * share for share in shares])
        patch.setattr(_Emission, "_divided", lambda self, total, parts: [total / parts] * parts)
        yield


slow_machines = st.tuples(
    st.sampled_from(["npu.sram.per_tile=64KiB", "npu.sram.per_tile=96KiB"]),
    st.sampled_from(["npu.dma.engines=1", "npu.dma.engines=2", "npu.dma.engines=3"]),
    st.sampled_from(["dram.bandwidth=5GB/s", "dram.bandwidth=20GB/s"]),
)


@pytest.mark.laws
@given(networks(8_000, 16_000), slow_machines, st.integers(2, 9), st.sampled_from([None, 1, 6]))
@settings(max_examples=6)
def test_steps_of_several_requests_are_folded(network, machine, requests, tiles):
    """One context of all tiles, two, or six; loops that overlap others are acted out."""
    run = {"hint": "throughput", "requests": requests, "tiles": tiles}
    try:
        with steps_of_equal_size():
            one, other = folded_and_acted_out(network, machine, **run)
    except InfeasibleError:
        reject()
    event(f"folded: {one.timeline.per_inference < other.timeline.per_inference}")
    check_same(one, other, 1e-6)


@pytest.mark.parametrize("stack", ["stagr", "stagr+symg"])
@pytest.mark.parametrize("requests", [2, 8])
def test_steps_of_gcn_with_several_requests_are_folded(stack, requests):
    machine, run = ["workload.dataset=pubmed"], {"hint": "throughput", "requests": requests}
    mapped = Scenario("gcn-cora", techniques=stack, settings=machine, **run).mapped
    with steps_of_equal_size():
        one, other = run_events(mapped), run_events(mapped, every_tile=True)
    assert one.timeline.per_inference < 0.6 * other.timeline.per_inference
    check_same(one, other, 1e-6)


@pytest.mark.parametrize(("requests", "tiles"), [(1, None), (6, 6), (6, None)])
def test_what_is_acted_out_does_not_grow_with_the_rows(requests, tiles):
    """More turns are left out, and as many are written: of one inference, and of contexts at DRAM's pace."""
    acted, slow = [], [*SMALL, "dram.bandwidth=5GB/s"]
    for rows in (48 * 1024, 8 * 48 * 1024):
        editor = Editor("rows")
        value = editor.input("x", (rows, 256), DType.FP16)
        for i in range(2):
            value = editor.matmul(value, editor.constant(f"w{i}", (256, 256), DType.FP16), f"product{i}")
        editor.outputs.append(value)
        run = {"hint": "throughput", "requests": requests, "tiles": tiles} if requests > 1 else {}
        acted.append(run_events(Scenario(editor.finish(), settings=slow, **run).mapped).timeline)
    assert len(acted[1]) < 1.5 * len(acted[0])
    assert acted[1].folded > 7 * acted[0].folded > 0


def test_what_is_acted_out_does_not_grow_with_the_requests():
    acted = []
    for requests in (16, 64):
        mapped = Scenario("gcn-cora", techniques="stagr", hint="throughput", requests=requests).mapped
        acted.append(run_events(mapped).timeline.inferences)
    assert acted[0] == acted[1]


def test_what_is_seen_of_a_period_is_drawn_out_over_all():
    """A time line of folded steps has no gaps in it, and its traffic adds up."""
    line = folded_and_acted_out(Scenario("gcn-cora", techniques="stagr").graph, SMALL)[0].timeline
    for rows in line.by_unit:
        assert (line.start[rows][1:] >= line.end[rows][:-1]).all()
    moved = (line.dram_bytes_per_s[:-1] * np.diff(line.dram_time)).sum()
    on_dram = np.isin(line.kind, [4, 5])
    assert moved == pytest.approx(line.bytes[on_dram].sum(), rel=1e-6)


@given(st.integers(1, 5000), st.integers(24, 200))
def test_what_is_left_out_of_a_loop_are_whole_periods(turns, most):
    steps = Steps(most)
    written = len(list(steps.turns(turns)))
    assert written == steps.written(turns) <= turns
    assert (turns - written) % 24 == 0
    assert [loop.turns for loop in steps.loops] == ([turns] if written < turns else [])


def test_loops_that_drift_come_to_no_period():
    """Loads that run ahead a little more each turn are no steady state, however little it is."""
    turns = np.arange(40.0)[:, None] + np.array([0.0, 0.3, 0.6])
    assert is_periodic(turns, 1, 30.6, 1.0)
    assert not is_periodic(turns * [1.0, 1.0 - 1e-6, 1.0], 1, 30.6, 1.0)
    turns[30] += 0.1
    assert not is_periodic(turns, 1, 30.6, 1.0)


def test_the_switch_is_told_in_the_document(capsys, tmp_path):
    def found(*more):
        arguments = ["estimate", "gcn-cora", "-t", "stagr", "--set", SMALL[0], *more]
        assert run(arguments) == 0
        return capsys.readouterr().out

    event = ("--engine", "event", "--format", "json")
    folded, acted = (json.loads(found(*event, *more)) for more in ((), ("--every-tile",)))
    assert folded["folded_tasks"] > 0 == acted["folded_tasks"]
    traced = json.loads(found(*event, "--trace", str(tmp_path / "run.json")))
    assert traced == acted
    assert "--every-tile simulates all" in " ".join(found("--engine", "event").split())
    assert run(["estimate", "gcn-cora", "--every-tile"]) == 2
    assert "--every-tile" in capsys.readouterr().err


def test_the_analytical_engine_has_no_tiles_to_act_out():
    with pytest.raises(ConfigError, match="event"):
        estimate("gcn-cora", load_soc("core-ultra-series2"), every_tile=True)
