"""Traces: what Perfetto and Intel's profiler expect, a Gantt chart that stays small, and two traces side by
side.
"""

import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from npusim.cli.program import run as main
from npusim.engines.chrome_trace import chrome_trace
from npusim.engines.event import event_estimate
from npusim.engines.timeline import Timeline, critical_path, dram_bandwidth
from npusim.errors import ConfigError, FileError
from npusim.measuring.traces import diff_traces, layers_of, read_trace
from npusim.reporting.timeline import MOST_BARS, timeline_page
from npusim.scenario import Scenario
from npusim.techniques import apply
from npusim.workloads import load_workload


@cache
def timeline(workload: str = "gcn-cora", stack: str = "stagr", hint: str = "latency") -> Timeline:
    graph = apply(load_workload(workload), stack)
    return event_estimate(Scenario(graph, hint=hint)).timeline


def events(phase: str) -> list[dict]:
    return [e for e in json.loads(chrome_trace(timeline()))["traceEvents"] if e["ph"] == phase]


def test_every_task_is_an_event_on_the_track_of_its_unit():
    line = timeline()
    tasks = [e for e in events("X") if e["cat"] != "Layer"]
    assert len(tasks) == len(line.working)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events("M") if e["name"] == "thread_name"}
    assert len(set(names.values())) == len(names)
    assert {(e["pid"], e["tid"]) for e in events("X")} == names.keys()
    assert {e["cat"] for e in events("X")} == {"DPU", "SW", "DMA", "Layer", "Launch"}
    assert max(e["ts"] + e["dur"] for e in tasks) == pytest.approx(line.makespan_s * 1e6)


def test_layers_carry_what_intels_profiler_writes():
    layers = [e for e in events("X") if e["cat"] == "Layer"]
    assert layers[0]["name"] == "layer0/combine/matmul"
    assert all({"Layer type", "DPU time:", "Shave time:"} <= set(e["args"]) for e in layers)


@pytest.mark.parametrize(
    "case",
    [
        ("gcn-cora", "stagr", "latency"),
        ("gat-cora", "none", "latency"),
        ("gcn-cora", "graphsplit", "throughput"),
    ],
)
def test_no_two_slices_of_a_thread_overlap(case):
    threads: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for e in json.loads(chrome_trace(timeline(*case)))["traceEvents"]:
        if e["ph"] == "X":
            threads.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for slices in threads.values():
        assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(slices)))


def test_arrows_show_the_critical_path_from_unit_to_unit():
    starts, ends = {e["id"]: e for e in events("s")}, {e["id"]: e for e in events("f")}
    assert starts.keys() == ends.keys()
    assert 0 < len(starts) < len(critical_path(timeline()))
    for number, start in starts.items():
        end = ends[number]
        assert start["ts"] <= end["ts"]
        assert (start["pid"], start["tid"]) != (end["pid"], end["tid"])
    boxes = {(e["pid"], e["tid"]): [] for e in events("X")}
    for e in events("X"):
        boxes[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for arrow in starts.values():
        assert any(a <= arrow["ts"] <= b for a, b in boxes[arrow["pid"], arrow["tid"]])


def test_counters_show_sram_bandwidth_and_power():
    assert {e["name"] for e in events("C")} == {"SRAM", "DRAM bandwidth", "power"}


@pytest.mark.parametrize("case", [("gcn-cora", "none", "latency"), ("gcn-cora", "graphsplit", "throughput")])
def test_the_traffic_on_dram_is_never_above_what_dram_sustains(case):
    line = timeline(*case)
    assert 0.0 < dram_bandwidth(line).value.max() <= line.dram_limit_bytes_per_s * (1.0 + 1e-12)


def test_a_gantt_chart_of_many_tasks_is_joined_and_small():
    line = timeline("gat-citeseer", "none", "throughput")
    assert len(line.working) > 10 * MOST_BARS
    page = timeline_page(line).html()
    few = timeline_page(timeline()).html()
    assert page.count("tasks, busy") <= len(line.units) * len(line.operators) * line.inferences * 2
    assert len(page) < len(few) + 6_000_000
    assert "aggregate" in few


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    path.write_text(chrome_trace(timeline()))
    return path


def test_a_trace_agrees_with_itself(written):
    found = diff_traces(written, written)
    assert not found.only_measured
    assert not found.only_simulated
    assert all(pair.difference_s == 0.0 and pair.measured == pair.simulated for pair in found.layers)


def test_layers_are_matched_by_normalised_name_then_by_type_and_order(tmp_path, written):
    """A profile whose compiler renamed layers and that has one more: renamed ones are found, the new one is
    listed.
    """
    ours = layers_of(read_trace(written).events)
    profile = [
        {"ph": "X", "cat": "Layer", "name": f"{x.name.upper().replace('/', '.')}?t_{x.type}", "ts": i * 100.0,
         "dur": 90.0,
         "args": {"Layer type": x.type}, "pid": 0, "tid": 0}
        for i, x in enumerate(ours)
    ]  # fmt: skip
    profile[-1]["name"] = "quite_another_name"
    profile.append({**profile[0], "name": "output_copy", "ts": 1e4, "args": {"Layer type": "Copy"}})
    measured = tmp_path / "profiling.json"
    measured.write_text(json.dumps({"traceEvents": profile}))
    found = diff_traces(measured, written)
    assert [pair.simulated for pair in found.layers] == [x.name for x in ours]
    assert found.layers[-1].measured == "quite_another_name"
    assert found.only_measured == ["output_copy"]
    assert [(x.trace, x.name, x.latency_s) for x in found.alone] == [
        ("first", "output_copy", pytest.approx(90e-6))
    ]
    assert found.first == "profiling.json"
    assert found.second == "gcn-cora on core-ultra-series2 with stagr"
    assert found.measured_launch_s == 0.0 < found.simulated_launch_s
    assert found.layers[0].measured_s == pytest.approx(90e-6)


def test_tasks_stand_in_for_layers_where_a_profile_has_none(tmp_path):
    tasks = [
        {"ph": "X", "cat": "DPU", "name": f"conv?t_Convolution/cluster_{i}", "ts": 10.0 * i, "dur": 15.0}
        for i in range(2)
    ]
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(tasks))
    (layer,) = layers_of(read_trace(path).events)
    assert (layer.name, layer.start_s, layer.end_s) == ("conv", 0.0, pytest.approx(25e-6))


@pytest.mark.parametrize("text", ["no json", "{}", '{"traceEvents": [{"ph": "X"}]}', '{"traceEvents": []}'])
def test_what_is_no_trace_is_refused(tmp_path, text):
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises((ConfigError, FileError), match=r"odd\.json"):
        diff_traces(path, path)


def test_from_the_command_line(tmp_path, capsys):
    trace, chart = tmp_path / "run.json", tmp_path / "run.html"
    base = ["estimate", "gcn-cora", "-t", "stagr", "--engine", "event"]
    assert main([*base, "--trace", str(trace)]) == 0
    page = capsys.readouterr().out
    assert all(words in page for words in ("event engine", "Critical path"))
    assert "What would help" not in page
    assert main([*base, "--advice"]) == 0
    assert "What would help" in capsys.readouterr().out
    assert main([*base, "--trace", str(chart), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["engine"] == "event"
    assert chart.read_text().startswith("<!doctype html>")
    assert main(["trace", "diff", str(trace), str(trace)]) == 0
    assert "keep step" in capsys.readouterr().out
    assert main(["trace", "diff", str(trace), str(trace), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "npusim.trace-diff/1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trace", "run.json"], "--engine event"),
        (["--advice"], "--engine event"),
        (["--engine", "event", "--trace", "run.txt"], ".json or .html"),
    ],
)
def test_a_trace_that_cannot_be_made_is_refused_at_once(options, message, capsys):
    assert main(["estimate", "gcn-cora", *options]) == 2
    assert message in capsys.readouterr().err


def test_times_are_numbers_that_any_reader_takes():
    text = chrome_trace(timeline())
    assert "NaN" not in text
    assert "Infinity" not in text
    assert not re.search(r'"(ts|dur)":[-0-9.]*e', text)  # Perfetto reads no exponents
    assert np.isfinite([e["ts"] for e in json.loads(text)["traceEvents"] if "ts" in e]).all()
