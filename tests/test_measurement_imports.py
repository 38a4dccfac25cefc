"""Files of Intel's own tools become measurements, or are refused by file and line.

The reports are those that the real benchmark_app leaves when it runs a small model on the CPU.
"""

import csv
import hashlib
import json
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npusim
from npusim.errors import NpusimError
from npusim.measuring.benchmark_app import from_benchmark_app
from npusim.measuring.document import read_measurement
from npusim.measuring.energy import read_power_log
from npusim.measuring.traces import (
    choose_platform,
    from_npu_profiling,
    from_openvino_benchmarks,
)

ov = pytest.importorskip("openvino")
ops = pytest.importorskip("openvino.opset13")

KINDS = {
    "average": ["-hint", "latency", "-report_type", "average_counters", "-infer_precision", "f32"],
    "detailed": ["-hint", "throughput", "-nireq", "2", "-report_type", "detailed_counters"],
    "json": ["-hint", "throughput", "-nireq", "2", "-report_type", "detailed_counters", "-json_stats"],
    "short": ["-hint", "latency", "-report_type", "no_counters", "-api", "sync"],
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """What benchmark_app leaves, with what it prints in `run.log`; by kind of report."""
    root = tmp_path_factory.mktemp("private folder")
    x = ops.parameter([256, 512], np.float32, name="x")
    product = ops.matmul(x, ops.constant(np.ones((512, 512), np.float32)), False, False)
    ov.save_model(ov.Model([ops.softmax(product, 1)], [x], "net"), root / "net.xml", compress_to_fp16=False)
    for kind, options in KINDS.items():
        (root / kind).mkdir()
        code = "import sys; from openvino.tools.benchmark.main import main; sys.exit(main())"
        command = [sys.executable, "-c", code, "-m", str(root / "net.xml"), "-d", "CPU", "-niter", "20"]
        command += [*options, "-report_folder", str(root / kind)] + (["-pc"] if kind != "short" else [])
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        (root / kind / "run.log").write_text(done.stdout)
    return root


@pytest.fixture
def folder(folders, tmp_path):
    """Return a copy of a folder that a test may spoil."""

    def copy(kind, *, log=False):
        shutil.copytree(folders / kind, tmp_path / kind)
        if not log:
            (tmp_path / kind / "run.log").unlink()
        return tmp_path / kind

    return copy


def edited(path, change):
    text = path.read_text()
    assert change(text) != text
    path.write_text(change(text))


def refusal(call):
    with pytest.raises(NpusimError) as refused:
        call()
    return str(refused.value)


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_report_becomes_one_row(folder, kind, log):
    directory = folder(kind, log=log)
    taken = from_benchmark_app(directory)
    (row,) = taken.rows
    assert (taken.tool, taken.device.kind, row.model.name) == ("benchmark_app", "cpu", "net.xml")
    assert row.hint == ("latency" if kind in ("average", "short") else "throughput")
    assert row.id == f"net {row.hint}"
    assert row.requests == (1 if row.hint == "latency" else 2)
    assert row.latency_s.repetitions == 20
    assert row.latency_s.low_s <= row.latency_s.median_s <= row.latency_s.high_s
    assert row.throughput_per_s > 0.0
    assert ("profiling" in row.note) == (kind != "short")
    assert (taken.device.openvino is not None) == log


@pytest.mark.parametrize("kind", ["average", "detailed", "json"])
def test_counters_are_those_of_the_operators_that_ran(folder, kind):
    (row,) = from_benchmark_app(folder(kind)).rows
    types = [operator.type for operator in row.operators]
    assert "FullyConnected" in types
    assert "Softmax" in types
    assert not {"Parameter", "Result"} & set(types)
    assert all(operator.latency_s > 0.0 for operator in row.operators)


def test_a_report_and_what_was_printed_tell_the_same_times(folder, tmp_path):
    directory = folder("average", log=True)
    both = from_benchmark_app(directory).rows[0]
    (directory / "run.log").unlink()
    assert from_benchmark_app(directory).rows[0].latency_s.median_s == pytest.approx(
        both.latency_s.median_s, abs=6e-6
    )


def test_a_run_is_known_by_what_was_printed_alone(folders, tmp_path):
    for encoding in ("utf-8", "utf-16"):  # a PowerShell that redirects writes UTF-16
        text = (folders / "short" / "run.log").read_text()
        (tmp_path / "run.txt").write_text(text, encoding=encoding)
        taken = from_benchmark_app(tmp_path)
        assert taken.rows[0].latency_s.repetitions == 20
        assert taken.rows[0].model.name == "net"
        assert any("file" in warning for warning in taken.warnings)


def test_precision_is_told_or_doubted(folder):
    assert from_benchmark_app(folder("average")).rows[0].precision == "f32"
    doubtful = from_benchmark_app(folder("detailed"))
    assert doubtful.rows[0].precision is None
    assert any("bf16" in warning for warning in doubtful.warnings)


def test_no_folder_is_recorded(folder, folders):
    text = from_benchmark_app(folder("average", log=True)).to_json()
    assert "private" not in text
    assert str(folders.parent) not in text


def test_what_is_taken_in_is_read_again(folder, tmp_path):
    taken = from_benchmark_app(folder("json", log=True), name="EPYC")
    (tmp_path / "run.json").write_text(taken.to_json())
    assert read_measurement(tmp_path / "run.json") == taken


def test_throughput_counts_inferences_not_inputs(folder):
    directory = folder("short")
    before = from_benchmark_app(directory).rows[0].throughput_per_s
    edited(directory / "benchmark_report.csv", lambda t: t.replace("batch size;1", "batch size;4"))
    assert from_benchmark_app(directory).rows[0].throughput_per_s == pytest.approx(before / 4)


def test_reports_of_the_program_in_cpp_are_read(folder):
    """Its lines end with a separator, its latencies have other names, its states no prefix."""
    directory = folder("average")
    renamed = {
        "latency (ms)": "Median latency (ms)", "avg latency": "Average latency (ms)",
        "min latency": "Min latency (ms)", "max latency": "Max latency (ms)",
    }  # fmt: skip

    def report(text):
        lines = [line.partition(";") for line in text.splitlines()]
        named = [(renamed.get(name, name.removeprefix("-")), value) for name, _, value in lines]
        return "\n".join(f"{name};{value};" if value else f"{name};" if name else "" for name, value in named)

    def counters(text):
        return "\n".join(f"{line};" if line else "" for line in text.replace("Status.", "").splitlines())

    before = from_benchmark_app(directory)
    edited(directory / "benchmark_report.csv", report)
    edited(directory / "benchmark_average_counters_report.csv", counters)
    assert from_benchmark_app(directory) == before


def test_a_device_that_openvino_chose_must_be_named(folder):
    directory = folder("short")
    edited(directory / "benchmark_report.csv", lambda t: t.replace("-d;CPU", "-d;AUTO:NPU,CPU"))
    assert "benchmark_report.csv:3: found the device `AUTO:NPU,CPU`" in refusal(
        lambda: from_benchmark_app(directory)
    )
    assert from_benchmark_app(directory, kind="npu").device.kind == "npu"


def test_a_device_of_another_class_than_named_is_refused(folder):
    assert "found the device CPU; allowed: NPU" in refusal(
        lambda: from_benchmark_app(folder("short"), kind="npu")
    )


def test_the_average_stands_in_where_another_percentile_was_asked_for(folder):
    directory = folder("short")
    figures = dict(
        line.partition(";")[::2] for line in (directory / "benchmark_report.csv").read_text().split("\n")
    )
    edited(
        directory / "benchmark_report.csv",
        lambda t: t.replace("\nlatency (ms)", "\nlatency (90 percentile) (ms)"),
    )
    (row,) = from_benchmark_app(directory).rows
    assert row.latency_s.median_s == pytest.approx(float(figures["avg latency"]) * 1e-3)
    assert "average" in row.note


def set_to(name, value):
    return lambda text: "\n".join(
        f"{name};{value}" if line.startswith(f"{name};") else line for line in text.splitlines()
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (set_to("latency (ms)", "0.00"), ("latency (ms)", "`0.00`", "above 0", "rounded")),
        (set_to("latency (ms)", "-1"), ("latency (ms)", "`-1`", "above 0")),
        (set_to("min latency", "nan"), ("min latency", "`nan`", "above 0")),
        (set_to("min latency", "1e9"), ("between minimum and maximum",)),
        (set_to("throughput", "0"), ("throughput", "`0`", "above 0")),
        (set_to("total number of iterations", "many"), ("total number of iterations", "`many`")),
        (set_to("number of parallel infer requests", "1.5"), ("`1.5`", "a whole number")),
        (lambda t: t[: t.index("throughput")], ("no throughput", "a finished run")),
        (lambda t: t[: t.index("Execution")], ("no results",)),
        (lambda t: "layer,time\n" + t, (":1:", "`layer,time`", "Execution results")),
    ],
)
def test_a_report_that_says_something_impossible_is_refused(folder, change, said):
    directory = folder("short")
    edited(directory / "benchmark_report.csv", change)
    message = refusal(lambda: from_benchmark_app(directory))
    assert "benchmark_report.csv" in message
    assert all(words in message for words in said), message


COUNTERS = "benchmark_average_counters_report.csv"


def with_time(value):
    def change(text):
        lines = text.splitlines()
        place = next(i for i, line in enumerate(lines) if "FullyConnected" in line)
        lines[place] = ";".join([*lines[place].split(";")[:4], *value.split(";")])
        return "\n".join(lines)

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.replace("cpuTime (ms)", "wallTime (ms)", 1), (":1:", "no column `cpuTime (ms)`")),
        (lambda t: t.replace("cpuTime (ms)", "cpuTime (ms);cycles", 1), (":1:", "unknown column `cycles`")),
        (lambda t: t.replace("cpuTime (ms)", "realTime (ms)", 1), (":1:", "column `realTime (ms)` twice")),
        (with_time("-0.1;0.1"), ("realTime (ms)", "`-0.1`", "at least 0")),
        (with_time("nan;0.1"), ("realTime (ms)", "`nan`")),
        (with_time("0.1"), ("5 fields", "6, as in the header")),
        (lambda t: t.replace("Status.EXECUTED", "Status.DONE", 1), ("execStatus", "`DONE`", "EXECUTED")),
        (lambda t: t[: t.index("Total")], ("ends before its `Total`",)),
        (lambda t: "\n", ("an empty file",)),
    ],
)  # fmt: skip
def test_counters_that_say_something_impossible_are_refused(folder, change, said):
    directory = folder("average")
    edited(directory / COUNTERS, change)
    message = refusal(lambda: from_benchmark_app(directory))
    assert COUNTERS in message
    assert all(words in message for words in said), message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.replace('"cpu_time"', '"cycles"', 1), ("nodes.0", "unknown key `cycles`", "real_time")),
        (
            lambda t: t.replace('"real_time": "', '"real_time": "-1', 1),
            ("nodes.0.real_time", "or equal to 0"),
        ),
        (lambda t: t[: len(t) // 2], ("JSON",)),
        (lambda t: t.replace("Status.EXECUTED", "DONE", 1), (".status", "DONE", "EXECUTED")),
        (lambda t: '{"report_type": "detailed", "detailed_performance": []}', ("no counters",)),
    ],
)
def test_json_counters_that_say_something_impossible_are_refused(folder, change, said):
    directory = folder("json")
    edited(directory / "benchmark_detailed_counters_report.json", change)
    message = refusal(lambda: from_benchmark_app(directory))
    assert "benchmark_detailed_counters_report.json" in message
    assert all(words in message for words in said), message


@pytest.mark.parametrize("name", ["benchmark_report.csv", COUNTERS])
def test_a_csv_in_windows_1252_is_refused_with_its_line(folder, name):
    directory = folder("average")
    data = (directory / name).read_bytes().splitlines(keepends=True)
    (directory / name).write_bytes(b"".join([*data[:2], b"Gr\xf6\xdfe;1\n", *data[2:]]))
    message = refusal(lambda: from_benchmark_app(directory))
    assert name in message
    assert "not UTF-8" in message
    assert "line 3" in message


def test_files_of_different_runs_are_refused(folder):
    directory = folder("short", log=True)
    edited(directory / "benchmark_report.csv", set_to("throughput", "0.01"))
    assert "files of one run" in refusal(lambda: from_benchmark_app(directory))
    shutil.copy(directory / "run.log", directory / "again.log")
    assert "again.log, run.log" in refusal(lambda: from_benchmark_app(directory))


def test_what_is_no_folder_of_benchmark_app_is_refused(tmp_path):
    assert "no such folder" in refusal(lambda: from_benchmark_app(tmp_path / "none"))
    assert "holds no report" in refusal(lambda: from_benchmark_app(tmp_path))
    (tmp_path / "file").touch()
    assert "is a file" in refusal(lambda: from_benchmark_app(tmp_path / "file"))


def profile(**changes):
    """Return a profile of the form that the NPU's driver writes, of two layers that overlap."""
    task = {"ph": "X", "pid": 0, "tid": 0}
    layer = {"ph": "X", "pid": 2, "tid": 4, "cat": "Layer"}
    document = {
        "traceEvents": [
            {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "Cluster (0)"}},
            {**task, "name": "fc?t_MatMul/cluster_0", "cat": "DPU", "ts": 1.0, "dur": 4.0},
            {**task, "name": "fc?t_MatMul/cluster_1", "cat": "DPU", "ts": 1.5, "dur": 4.0, "pid": 1},
            {**task, "name": "out?t_Softmax/cluster_0", "cat": "Shave", "ts": 5.0, "dur": 6.0,
             "args": {"Total cycles:": "600", "Stall cycles:": "100"}},
            {**layer, "name": "fc", "ts": 1.0, "dur": 4.5,
             "args": {"Layer type": "MatMul", "DPU time:": "8us"}},
            {**layer, "name": "out", "ts": 5.0, "dur": 6.0,
             "args": {"Layer type": "Softmax", "Shave time:": "6us 0ns", "DMA time:": "1us"}},
        ],
        "taskStatistics": {"total duration": 10.0, "DMA duration": 0.0},
        "workpoint": {"freq": 1850.0, "status": "OK"},
        "displayTimeUnit": "ns",
    }  # fmt: skip
    return document | changes


def saved(path, document):
    path.write_text(json.dumps(document, indent=1))
    return path


def test_a_profile_becomes_one_row_with_its_layers(tmp_path):
    path = saved(tmp_path / "profiling.json", profile())
    taken = from_npu_profiling(path, model="C:\\models\\gcn.xml", name="Intel(R) AI Boost")
    (row,) = taken.rows
    assert (taken.device.kind, taken.device.clock_hz, taken.tool) == ("npu", 1.85e9, "npu-profiling")
    assert (row.id, row.model.name, row.tiles) == ("gcn", "gcn.xml", 2)
    assert row.latency_s.median_s == pytest.approx(10e-6)
    assert [(o.name, o.type, o.executed_as) for o in row.operators] == [
        ("fc", "MatMul", "DPU"),
        ("out", "Softmax", "Shave+DMA"),
    ]
    assert [o.latency_s for o in row.operators] == pytest.approx([4.5e-6, 6e-6])
    assert not taken.warnings


def test_a_model_that_is_at_hand_is_known_by_its_hash(folders, tmp_path):
    path = saved(tmp_path / "profiling.json", profile())
    model = from_npu_profiling(path, model=str(folders / "net.xml")).rows[0].model
    assert model.sha256 == hashlib.sha256((folders / "net.xml").read_bytes()).hexdigest()
    assert model.name == "net.xml"
    assert from_npu_profiling(path, model="net.xml").rows[0].model.sha256 is None


def test_a_profile_whose_total_differs_from_its_events_is_doubted(tmp_path):
    path = saved(tmp_path / "p.json", profile(taskStatistics={"total duration": 20.0}))
    assert "total" in from_npu_profiling(path, model="m.xml").warnings[0]


def event(number, **keys):
    def change(document):
        document["traceEvents"][number].update(keys)

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (event(3, cat="GPU"), ("traceEvents.3 (`out?t_Softmax/cluster_0`).cat", "`GPU`", "DPU, SW, Shave")),
        (event(4, dur=-1), ("traceEvents.4 (`fc`).dur", "`-1`", "equal to 0")),
        (event(4, dur="long"), ("traceEvents.4 (`fc`).dur", "`long`")),
        (event(4, ts=float("nan")), ("traceEvents.4 (`fc`).ts", "`nan`")),
        (event(5, name="fc"), ("traceEvents.5 (`fc`)", "a second time (first in event 4)", "one inference")),
        (event(5, name=""), ("traceEvents.5.name", "a text")),
        (event(5, args=3), ("traceEvents.5 (`out`).args", "`3`")),
        (lambda d: d["traceEvents"].append(7), ("traceEvents.6", "`7`", "a mapping")),
        (lambda d: d.update(traceEvents=d["traceEvents"][:4]), ("no event of the category `Layer`",)),
        (lambda d: d.update(traceEvents={}), ("traceEvents", "a list")),
        (lambda d: d.update(taskStatistics={"total duration": "x"}), ("taskStatistics.total", "`x`")),
        (lambda d: d.update(workpoint={"freq": -1}), ("workpoint.freq", "`-1`")),
        (lambda d: [one.update(ts=0, dur=0) for one in d["traceEvents"]], ("take no time", "above 0")),
        (lambda d: d.update(otherData={"simulated": "npusim"}), ("npusim simulated", "a real NPU")),
    ],
)  # fmt: skip
def test_a_profile_that_says_something_impossible_is_refused_by_its_event(tmp_path, change, said):
    document = profile()
    change(document)
    message = refusal(lambda: from_npu_profiling(saved(tmp_path / "profiling.json", document)))
    assert "profiling.json" in message
    assert all(words in message for words in said), message


def test_a_profile_that_is_cut_off_or_no_json_is_refused(tmp_path):
    path = tmp_path / "profiling.json"
    text = json.dumps(profile(), indent=1)
    for cut in (0, 1, 100, len(text) // 2, len(text) - 1):
        path.write_text(text[:cut])
        assert "profiling.json:" in refusal(lambda: from_npu_profiling(path))
    path.write_text("Task(DPU): fc Time(us): 4.0 Start(us): 1.0\n")
    assert ":1: found broken JSON" in refusal(lambda: from_npu_profiling(path))


@pytest.fixture(scope="module")
def published(repository):
    return repository / "validate" / "figures" / "openvino_published.csv"


def test_published_figures_make_a_measurement_a_platform(published):
    with published.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    taken = from_openvino_benchmarks(published)
    assert [one.device.name for one in taken] == list(dict.fromkeys(line["platform"] for line in lines))
    rows = [row for one in taken for row in one.rows]
    assert sorted(r.throughput_per_s for r in rows if r.throughput_per_s) == sorted(
        float(line["throughput"]) for line in lines
    )
    assert sorted(round(r.latency_s.median_s * 1e3, 6) for r in rows if r.latency_s) == sorted(
        float(line["latency_ms_sync_int8"]) for line in lines if line["latency_ms_sync_int8"]
    )
    assert sum("anomalous" in row.note for row in rows) >= sum("anomalous" in x["note"] for x in lines)


def test_a_published_platform_is_chosen_by_a_part_of_its_name(published):
    taken = from_openvino_benchmarks(published)
    chosen = choose_platform(taken, "288v")
    latency = next(row for row in chosen.rows if row.id == "resnet-50 int8 latency")
    rate = next(row for row in chosen.rows if row.id == "resnet-50 int8 throughput")
    sheet = npusim.load_soc("core-ultra-series2").devices["npu"]
    assert (latency.requests, latency.tiles) == (1, sheet.tiles_used("latency"))
    assert (rate.requests, rate.tiles) == (sheet.inflight_requests.throughput, sheet.tiles_used("throughput"))
    assert choose_platform([chosen]) == chosen
    for odd in (None, "", "Core Ultra", "Xeon"):
        message = refusal(lambda odd=odd: choose_platform(taken, odd))
        assert all(one.device.name in message for one in taken)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("779.54,FPS", "0,FPS", (":6:", "throughput", "`0`", "above 0")),
        ("779.54,FPS", "fast,FPS", (":6:", "throughput", "`fast`")),
        ("779.54,FPS", "779.54,fps", (":6:", "throughput_unit", "`fps`", "FPS, tok/s")),
        ("779.54,FPS,1.55", "779.54,FPS,-1.55", (":6:", "latency_ms_sync_int8", "`-1.55`", "or nothing")),
        ("7 165H,NPU3720,resnet-50,int8", "7 165H,NPU9,resnet-50,int8", (":2:", "NPU3720 and NPU9")),
        ("NPU4000", "NPU9", ("npu", "`NPU9`", "NPU3720, NPU4000")),
        ("resnet-50,fp16,384.38", "resnet-50,int8,384.38", (":7:", "a second time")),
        ("resnet-50,int8", ",int8", (":6:", "model", "nothing")),
        ("throughput_unit", "throughput_unti", (":1:", "no column `throughput_unit` but `throughput_unti`")),
        ("source,note", "source,note,watts", (":1:", "the unknown column `watts`")),
        ("1.55,OV", "1.55,extra,OV", (":6:", "11 fields")),
    ],
)
def test_a_published_table_that_says_something_impossible_is_refused(published, tmp_path, old, new, said):
    path = Path(shutil.copy(published, tmp_path / "table.csv"))
    if new == "NPU9":
        edited(path, lambda text: text.replace(old, new))
    else:
        edited(path, lambda text: text.replace(old, new, 1))
    message = refusal(lambda: from_openvino_benchmarks(path))
    assert "table.csv" in message
    assert all(words in message for words in said), message


def test_a_published_table_in_windows_1252_is_refused_with_its_line(published, tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(published.read_bytes().replace(b"Ultra 7 155H", "Ultra® 7 155H".encode("cp1252")))
    message = refusal(lambda: from_openvino_benchmarks(path))
    assert "table.csv" in message
    assert "line 12" in message


@pytest.fixture(scope="session")
def good_files(folders, tmp_path_factory):
    """One good file of each kind, and what reads it."""
    repository = Path(__file__).resolve().parents[1]
    root = tmp_path_factory.mktemp("good")
    run = saved(root / "run.json", {})
    run.write_text(from_benchmark_app(folders / "json").to_json())
    log = root / "log.csv"
    log.write_text("Date,Time,NPU Power [W]\n1.2.2026,10:00:00,1.5\n1.2.2026,10:00:01,2.5\n")

    def folder_of(name):
        def read(path):
            (path.parent / name).write_bytes(path.read_bytes())
            return from_benchmark_app(path.parent)

        return read

    return {
        run: read_measurement,
        saved(root / "profiling.json", profile()): from_npu_profiling,
        repository / "validate" / "figures" / "openvino_published.csv": from_openvino_benchmarks,
        log: lambda path: read_power_log(path, "npu"),
        folders / "average" / "benchmark_report.csv": folder_of("benchmark_report.csv"),
        folders / "average" / "run.log": folder_of("run.log"),
        folders / "json" / "benchmark_report.json": folder_of("benchmark_report.json"),
    }


@settings(max_examples=150)
@given(data=st.data())
def test_no_damage_to_a_file_causes_anything_but_a_clear_error(good_files, tmp_path_factory, data):
    source = data.draw(st.sampled_from(list(good_files)))
    content = bytearray(source.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        piece = data.draw(
            st.sampled_from(
                [b"", b"\xe9", b"\0", b"-", b"0", b"nan", b'"', b"{", b"[]", b";", b",", b"\n", b"null"]
            )
        )
        content[place : place + data.draw(st.integers(0, 12))] = piece
        if not content:
            break
    copy = tmp_path_factory.mktemp("damaged") / source.name
    copy.write_bytes(content)
    with suppress(NpusimError):
        good_files[source](copy)
