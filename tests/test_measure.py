"""Measuring on a real device, the CPU: what comes out are its times, whatever happens meanwhile."""

import getpass
import json
import os
import platform
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

pytest.importorskip("openvino")

import openvino as ov

from npusim.cli.program import run
from npusim.config import schema_of
from npusim.errors import ConfigError, FileError
from npusim.measuring import Benchmark, Measurement, ModelFile, Row, Spread, Workload
from npusim.measuring.devices import DeviceMissingError, find_device, highest_clock_hz
from npusim.measuring.document import ModelRef
from npusim.measuring.models import model_of, short_reason
from npusim.measuring.running import NothingMeasuredError, measure, noise_warnings
from npusim.measuring.suites import Item
from npusim.measuring.timing import TimeBudget, TimedNetwork, times_from_last, times_from_means

SHORT_S = 0.15


def product(size: int, dtype: str = "fp32") -> Benchmark:
    return Benchmark(operator="MatMul", sizes={"m": size, "k": size, "n": size}, dtype=dtype)


def item(ref: ModelRef, name: str = "it", **more: Any) -> Item:
    return Item(id=name, model=ref, **more)


@pytest.fixture(scope="module")
def measured() -> Measurement:
    """A product measured under both hints, a small one, and a workload."""
    return measure(
        [
            item(product(256), "product"),
            item(product(256), "product@throughput", hint="throughput"),
            item(product(256, "int8"), "bytes"),
            item(Benchmark(operator="Empty", sizes={}), "empty"),
            item(Workload(workload="gcn-cora", techniques="stagr", settings={"hidden": "16"}), "gcn"),
        ],
        "cpu",
        budget_s=SHORT_S,
    )


def told(measurement: Measurement) -> list[str]:
    """Warnings, without those that the machine was busy."""
    return [one for one in measurement.warnings if not one.startswith(("unsteady", "other programs"))]


def row(measurement: Measurement, name: str) -> Any:
    return next(row for row in measurement.rows if row.id == name)


@pytest.mark.laws
def test_every_row_has_a_time_its_spread_and_a_rate(measured: Measurement) -> None:
    assert [row.id for row in measured.rows] == ["product", "product@throughput", "bytes", "empty", "gcn"]
    for one in measured.rows:
        assert one.latency_s is not None and one.throughput_per_s is not None
        assert 0 < one.latency_s.low_s <= one.latency_s.median_s <= one.latency_s.high_s
        assert one.latency_s.repetitions >= TimeBudget().rounds // 2
    assert measured.complete and measured.tool == "npusim" and told(measured) == []


def test_counters_tell_what_ran_and_which_operators_it_stands_for(measured: Measurement) -> None:
    gcn = row(measured, "gcn")
    assert gcn.operators and all(counter.executed_as for counter in gcn.operators)
    originals = {name for counter in gcn.operators for name in counter.originals}
    assert any("matmul" in name.lower() for name in originals)
    assert all(counter.latency_s > 0.0 for counter in gcn.operators)


def test_the_throughput_hint_says_how_many_were_in_flight(measured: Measurement) -> None:
    assert row(measured, "product").requests == 1
    assert row(measured, "product@throughput").requests >= 1


@pytest.mark.parametrize("requests", [1, 2])
def test_a_time_is_part_of_the_time_of_its_turn_and_long_enough_for_the_work(requests: int) -> None:
    """No processor does 2^28 operations in less than a microsecond."""
    model, feed = model_of(ov.Core(), product(512), "f32", {})
    network = TimedNetwork(ov.Core().compile_model(model, "CPU"), feed, requests)
    network.warm_up(TimeBudget(row_s=0.1))
    network.run_turn(TimeBudget(row_s=0.1))
    (turn,) = network.batches
    assert all(1e-6 < one <= turn.seconds for one in turn.latencies_s)
    assert sum(turn.latencies_s) <= requests * turn.seconds * (1.0 + 1e-9)


@pytest.mark.calm
def test_measured_times_go_together(measured: Measurement) -> None:
    assert row(measured, "empty").latency_s.median_s < row(measured, "product").latency_s.median_s
    gcn, in_flight = row(measured, "gcn"), row(measured, "product@throughput")
    total_s = sum(counter.latency_s for counter in gcn.operators)
    assert 0.3 * gcn.latency_s.low_s < total_s < 3.0 * gcn.latency_s.high_s
    # Little's law: rate x time in the system is what is in it; idle gaps make it less.
    inside = in_flight.throughput_per_s * in_flight.latency_s.median_s
    assert 0.1 < inside / in_flight.requests < 2.0


def test_the_document_keeps_to_its_schema(measured: Measurement) -> None:
    document = json.loads(measured.to_json())
    jsonschema.validate(document, schema_of(Measurement))
    assert Measurement.model_validate(document) == measured
    assert document["schema"] == "npusim.measurement/1"


def test_the_device_is_described(measured: Measurement) -> None:
    device = measured.device
    assert device.kind == "cpu" and device.name != "unknown"
    assert device.openvino is not None and ov.get_version().startswith(device.openvino)
    assert device.os == platform.system()
    assert device.cores is not None and 1 <= device.cores <= (os.cpu_count() or 1)
    assert device.settings["INFERENCE_PRECISION_HINT"] == "f32"


def test_energy_that_nothing_counts_is_null_and_never_0(tmp_path: Path) -> None:
    found = measure([item(product(16))], "CPU", budget_s=0.05, root=tmp_path)
    assert found.rows[0].energy_j is None and found.rows[0].energy_source is None
    assert '"energy_j": null' in found.to_json()


@pytest.mark.laws
def test_nothing_private_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "home of alice" / "secret"
    folder.mkdir(parents=True)
    path = folder / "net.xml"
    save_product(path, 16)
    found = measure(
        [item(ModelFile(name="net.xml"), "net"), item(ModelFile(name="gone.xml"), "gone")],
        "CPU",
        budget_s=0.05,
        files={"net.xml": path, "gone.xml": folder / "gone.xml"},
    )
    text = found.to_json()
    private = [platform.node(), str(tmp_path), "secret", "alice", os.path.expanduser("~") + os.sep]
    private += [getpass.getuser()] if len(getpass.getuser()) > 4 else []
    assert [word for word in private if word and word in text] == []
    assert not re.search(r"uuid|luid|serial|hostname", text, re.IGNORECASE)


def test_a_workload_file_is_called_by_its_name_alone(tmp_path: Path, repository: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text((repository / "workloads" / "gcn-cora.yaml").read_text())
    found = measure(
        [item(Workload(workload=str(path), techniques="stagr"), f"{path}:stagr")], "CPU", budget_s=0.05
    )
    assert found.rows[0].id == "mine.yaml:stagr"
    assert found.rows[0].model == Workload(workload="mine.yaml", techniques="stagr")


def save_product(path: Path, rows: int, size: int = 16) -> None:
    """Save a product; -1 rows leave its shape open."""
    ops = ov.opset13
    left = ops.parameter(ov.PartialShape([rows, size]), np.float32)
    right = ops.constant(np.ones((size, size), np.float32))
    ov.save_model(ov.Model([ops.matmul(left, right, False, False)], [left], "net"), path)


def test_folders_are_left_out_of_messages() -> None:
    for text in (
        "cannot open /home/ann/m/a.bin",
        r"cannot open C:\Users\ann\m\a.bin",
        "cannot open ~/m/a.bin",
    ):
        assert short_reason(RuntimeError(text)) == "cannot open a.bin"
    assert (
        short_reason(ValueError("latency and/or throughput at 3 m/s")) == "latency and/or throughput at 3 m/s"
    )


def test_what_fails_becomes_a_warning_and_the_others_go_on() -> None:
    found = measure(
        [
            item(ModelFile(name="absent.xml"), "absent"),
            item(product(16), "product"),
            item(Workload(workload="gcn-cora", techniques="grasp"), "grasp"),
        ],
        "CPU",
        budget_s=0.05,
    )
    assert [row.id for row in found.rows] == ["product"]
    assert found.complete and len(told(found)) == 2
    assert told(found)[0].startswith("absent: ") and told(found)[1].startswith("grasp: ")


def test_if_nothing_works_that_is_an_error() -> None:
    with pytest.raises(NothingMeasuredError, match=r"nothing was measured on CPU: absent\.xml"):
        measure([item(ModelFile(name="absent.xml"))], "CPU")


def test_a_missing_compiler_is_told_with_its_remedy_and_the_devices() -> None:
    reason = "Cannot load library libopenvino_intel_npu_compiler_loader.so"
    error = NothingMeasuredError("NPU", {"a": reason, "b": reason}, ("CPU (one)", "NPU (other)"))
    remedy = "The compiler of NPU comes with its driver: install or update that"
    found = "Devices found: CPU (one); NPU (other)"
    assert str(error) == f"nothing was measured on NPU: {reason}. {remedy}. {found}"


def test_a_model_with_open_shapes_is_refused_with_its_inputs(tmp_path: Path) -> None:
    save_product(tmp_path / "open.xml", -1)
    with pytest.raises(NothingMeasuredError, match=r"dynamic shapes: .*\[\?,16\].*--shape"):
        measure([item(ModelFile(name="open.xml"))], "CPU", files={"open.xml": tmp_path / "open.xml"})


def test_a_missing_device_is_told_with_those_that_are_there() -> None:
    there = ov.Core().available_devices
    missing = next(name for name in ("NPU", "GPU", "GPU.9") if name not in there)
    with pytest.raises(DeviceMissingError, match=rf"no device {missing} here. Devices found: .*CPU \("):
        measure([item(product(16))], missing)


def test_a_device_is_found_in_any_case_and_by_its_number() -> None:
    core = ov.Core()
    assert find_device(core, "cpu") == find_device(core, "CPU") == "CPU"


def test_tiles_are_refused_where_there_are_none() -> None:
    with pytest.raises(ConfigError, match=r"--tiles.*CPU has none"):
        measure([item(product(16))], "CPU", tiles=2)


def test_a_missing_log_of_hwinfo_is_refused_before_anything_runs(tmp_path: Path) -> None:
    ran: list[str] = []
    with pytest.raises(FileError, match="start logging"):
        measure(
            [item(product(16))],
            "CPU",
            hwinfo=tmp_path / "log.csv",
            progress=lambda done, total, what: ran.append(what),
        )
    assert ran == []


def test_a_precision_that_the_device_does_not_take_is_told() -> None:
    """A CPU without fp16 arithmetic computes in another format, whatever it is asked."""
    found = measure([item(product(64), "product")], "CPU", precision="f16", budget_s=0.05)
    took = found.rows[0].precision
    if took == "f16":
        assert told(found) == []
    else:
        assert told(found) == [f"asked for f16, but the device computes in {took}: product"]


@pytest.mark.laws
def test_a_cpu_computes_in_f32_unless_told_otherwise() -> None:
    default = measure([item(product(64))], "CPU", budget_s=0.05)
    assert default.rows[0].precision == "f32"
    if "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        asked = measure([item(product(64))], "CPU", precision="bf16", budget_s=0.05)
        assert (asked.rows[0].precision, told(asked)) == ("bf16", [])


@pytest.mark.laws
def test_networks_take_turns() -> None:
    """Each runs once in each round, so that drift hits all alike."""
    ran: list[str] = []

    def progress(done: float, total: int, what: str) -> None:
        if what.startswith("running "):
            ran.append(what.removeprefix("running "))

    names = ["a", "b", "c"]
    measure(
        [item(product(16 + i), name) for i, name in enumerate(names)], "CPU", budget_s=1.0, progress=progress
    )
    rounds = names * TimeBudget().rounds
    assert ran[: len(rounds)] == rounds  # a turn that others disturbed is repeated afterwards


def test_progress_rises_to_the_number_of_rows() -> None:
    told: list[tuple[float, int]] = []
    items = [item(product(16), "a"), item(ModelFile(name="no.xml"), "b"), item(product(32), "c")]
    measure(items, "CPU", budget_s=0.05, progress=lambda done, total, what: told.append((done, total)))
    done = [one for one, _ in told]
    assert done == sorted(done) and done[0] == 0.0 and 2.5 < done[-1] <= 3.0
    assert {total for _, total in told} == {3}


def test_stopping_keeps_what_was_measured() -> None:
    turns = 0

    def progress(done: float, total: int, what: str) -> None:
        nonlocal turns
        turns += what.startswith("running ")

    items = [item(product(16), "a"), item(product(32), "b")]
    found = measure(items, "CPU", budget_s=0.05, progress=progress, stop=lambda: turns >= 3)
    assert not found.complete
    assert [row.id for row in found.rows] == ["a", "b"]
    assert all(row.latency_s is not None and row.operators == () for row in found.rows)


def test_stopped_before_the_first_reading_there_is_nothing_to_keep() -> None:
    with pytest.raises(NothingMeasuredError, match="stopped before the first reading"):
        measure([item(product(16))], "CPU", stop=lambda: True)


def test_readings_that_waver_are_told() -> None:
    def written(high_s: float) -> Row:
        spread = Spread(median_s=1.0, low_s=1.0, high_s=high_s, repetitions=9)
        return Row(id="row", model=product(16), latency_s=spread)

    assert noise_warnings([written(1.4)] * 9) == []
    assert noise_warnings([written(1.6), written(1.4)]) == []
    assert "2 of 3 rows" in noise_warnings([written(1.6), written(1.6), written(1.4)])[0]


def test_slow_networks_are_run_less_often_but_never_too_little() -> None:
    budget = TimeBudget(row_s=2.0)
    assert budget.turns(1e-5) == budget.rounds
    assert budget.turns(10.0) == budget.min_readings == 5
    assert (
        budget.profiled_runs(10.0) == budget.min_readings
        and budget.profiled_runs(1e-6) == budget.max_readings
    )


def test_times_are_found_from_a_profiler_that_shows_means() -> None:
    """The first run of each operator is slow; the profiler cuts its mean to whole microseconds."""
    true_us = {"long": 1000.0, "short": 7.3, "none": 0.0}
    readings, total, done = [], {name: 20 * us for name, us in true_us.items()}, 1
    for size in (1, 10, 10, 10, 10, 10):
        done += size
        total = {name: us + size * true_us[name] for name, us in total.items()}
        readings.append((done, {name: int(us / done) * 1e-6 for name, us in total.items()}))
    found = times_from_means(readings)
    assert found["long"] == pytest.approx(1000e-6, rel=0.01)
    assert found["short"] == pytest.approx(7.3e-6, abs=1e-6)
    assert 0.0 <= found["none"] <= 1e-6


def test_one_disturbed_batch_does_not_move_the_time() -> None:
    readings, total_us, done = [(1, {"a": 500e-6})], 500.0, 1
    for batch_us in (500.0, 500.0, 5000.0, 500.0, 500.0):
        done, total_us = done + 10, total_us + 10 * batch_us
        readings.append((done, {"a": int(total_us / done) * 1e-6}))
    assert times_from_means(readings)["a"] == pytest.approx(500e-6, rel=0.02)


def test_times_are_found_from_a_profiler_that_shows_the_last_run() -> None:
    readings = [(2, {"a": 9.0}), (3, {"a": 1.0, "b": 5.0}), (4, {"a": 2.0}), (5, {"a": 3.0})]
    assert times_from_last(readings) == {"a": 2.0, "b": 5.0}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_clocks_are_read_where_the_system_tells_them(tmp_path: Path) -> None:
    assert [highest_clock_hz(kind, tmp_path) for kind in ("cpu", "gpu", "npu")] == [None] * 3
    write(tmp_path / "proc/cpuinfo", "processor : 0\ncpu MHz\t\t: 2596.132\nprocessor : 1\ncpu MHz : 800.0\n")
    assert highest_clock_hz("cpu", tmp_path) == 2596.132e6
    write(tmp_path / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "4800000\n")
    write(tmp_path / "sys/devices/system/cpu/cpu8/cpufreq/cpuinfo_max_freq", "3700000\n")
    write(tmp_path / "sys/bus/pci/drivers/intel_vpu/0000:00:0b.0/npu_max_frequency_mhz", "1950\n")
    write(tmp_path / "sys/class/drm/card0/gt_max_freq_mhz", "2050\n")
    found = [highest_clock_hz(kind, tmp_path) for kind in ("cpu", "gpu", "npu")]
    assert found == [4.8e9, 2.05e9, 1.95e9]


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run npusim; returns status, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = run(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_the_command_writes_a_file_and_shows_a_table(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    options = ("--device", "CPU", "--seconds", "0.05", "--set", "workload.hidden=16", "-o", str(path))
    status, out, err = command("measure", "gcn-cora", "-t", "stagr", *options)
    assert (status, err) == (0, "")
    found = Measurement.model_validate_json(path.read_text())
    assert [row.id for row in found.rows] == [
        "gcn-cora,hidden=16:stagr",
        "gcn-cora,hidden=16:stagr@throughput",
    ]
    assert found.rows[0].model == Workload(workload="gcn-cora", techniques="stagr", settings={"hidden": "16"})
    assert "latency" in out and "energy is not available" in out and "MatMul" in out


def test_the_command_measures_a_model_file(command: Command, tmp_path: Path) -> None:
    save_product(tmp_path / "net.xml", 16)
    options = ("--device", "cpu", "--seconds", "0.05", "--hint", "latency", "--format", "json")
    status, out, err = command("measure", str(tmp_path / "net.xml"), *options)
    assert (status, err) == (0, "")
    model = json.loads(out)["rows"][0]["model"]
    assert model["name"] == "net.xml" and len(model["sha256"]) == 64


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("gcn-coora", "--device", "CPU"), "did you mean `gcn-cora`?"),
        (("gcn-cora", "--device", "TPU"), "unknown value of --device `TPU`"),
        (("gcn-cora", "--device", "CPU", "--suite", "default"), "not both"),
        (("--device", "CPU", "--techniques", "stagr"), "with a WORKLOAD"),
        (("gcn-cora", "--device", "CPU", "--set", "npu.tiles=2"), "workload.KEY=VALUE"),
        (("gcn-cora", "--device", "CPU", "-t", "stagr+grasp"), "cannot be run on a real device"),
        (("net.xml", "--device", "CPU", "-t", "stagr"), "a model file as it is"),
        (("net.xml", "--device", "CPU"), "net.xml: cannot be read"),
        (("--from", "benchmark_app"), "no file to read"),
        (("gcn-cora", "--model", "net.xml"), "only with --from"),
        (("out", "--from", "benchmark_app", "--hint", "latency"), "--from benchmark_app runs nothing"),
        (("--device", "CPU", "--suite", "defalt"), "did you mean `default`?"),
        (("gcn-cora", "--device", "CPU", "--soc", "generic-cpuu"), "did you mean `generic-cpu`?"),
        (("gcn-cora", "--device", "CPU", "--soc", "three-arrays"), "a machine with a CPU"),
        (("gcn-cora", "--device", "CPU", "--hint", "throughput", "--processor-time"), "the hint latency"),
        (("--suite", "aggregation", "--processor-time"), "which reads it always"),
        (("out", "--from", "benchmark_app", "--soc", "generic-cpu"), "--from benchmark_app runs nothing"),
    ],
)
def test_bad_input_is_refused_in_one_message(arguments: tuple[str, ...], said: str, command: Command) -> None:
    status, out, err = command("measure", *arguments)
    assert (status, out) == (2, "") and said in err
    assert err.count("error:") == 1 and "Traceback" not in err


def test_nothing_is_written_where_nothing_was_measured(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    status, _, _ = command("measure", "gcn-cora", "-t", "grasp", "--device", "CPU", "-o", str(path))
    assert status == 2 and not path.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a shell")
def test_ctrl_c_keeps_what_was_measured_and_says_so(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes during the fourth turn of three rows."""
    suite = tmp_path / "suite.yaml"
    suite.write_text(
        "schema: npusim.measurements/1\nbenchmarks:\n"
        "  - {operator: MatMul, grid: {m: [16, 17, 18], k: [16], n: [16]}}\n"
    )
    turns, run_turn = [], TimedNetwork.run_turn

    def run_turn_and_press(network: TimedNetwork, budget: TimeBudget) -> None:
        turns.append(network)
        run_turn(network, budget)
        if len(turns) == 4:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TimedNetwork, "run_turn", run_turn_and_press)
    path = tmp_path / "run.json"
    options = ("--suite", str(suite), "--device", "CPU", "--seconds", "0.05", "-o", str(path))
    status, _, err = command("measure", *options)
    assert status == 130
    assert "marked as not complete" in err
    assert len(turns) == 4
    found = Measurement.model_validate_json(path.read_text())
    assert not found.complete and len(found.rows) == 3
