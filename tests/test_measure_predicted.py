"""Estimates beside measured times, times of the processor, and folders of models."""

from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from simulated_device import SimulatedDevice

pytest.importorskip("openvino")

from npusim.calibration.device import calibrate
from npusim.errors import ConfigError
from npusim.measuring import Benchmark, Measurement, ModelFile, Row, Spread
from npusim.measuring.devices import Setting, cache_bytes
from npusim.measuring.document import Device
from npusim.measuring.models import predicted
from npusim.measuring.running import measure
from npusim.measuring.suites import Item, items_of
from npusim.measuring.timing import TimedNetwork
from npusim.reporting.measurement import measurement_page
from npusim.scenario import Scenario

PRODUCT = Benchmark(operator="MatMul", sizes={"m": 64, "k": 64, "n": 64})


def row(name: str, model: Benchmark | ModelFile, seconds: float, **more: object) -> Row:
    spread = Spread(median_s=seconds, low_s=seconds, high_s=seconds, repetitions=5)
    return Row.model_validate({"id": name, "model": model, "latency_s": spread, "precision": "f32", **more})


def measurement(*rows: Row) -> Measurement:
    return Measurement(npusim="1", device=Device(kind="cpu", name="a CPU", cores=8), rows=rows)


def test_a_row_gets_the_estimate_of_what_ran() -> None:
    found = predicted(measurement(row("product", PRODUCT, 1e-3)), "generic-cpu")
    one = found.rows[0]
    assert one.predicted_on == "generic-cpu" and one.predicted_s is not None and one.predicted_s > 0
    assert Measurement.model_validate_json(found.to_json()) == found
    assert found.warnings == ()


def test_a_wider_product_is_predicted_slower_and_compared_with_the_first() -> None:
    wide = Benchmark(operator="MatMul", sizes={"m": 1024, "k": 1024, "n": 1024})
    found = predicted(measurement(row("a", PRODUCT, 1e-3), row("b", wide, 2e-2)), "generic-cpu")
    first, second = (one.predicted_s for one in found.rows)
    assert first is not None and second is not None and first < second
    console = Console(width=200, record=True, file=StringIO())
    console.print(measurement_page(found))
    text = console.export_text()
    assert f"20, {second / first:.3g}" in text
    assert "median error" in text and "over a's" in text


def test_what_cannot_be_built_is_told_and_the_others_are_predicted() -> None:
    rows = (row("file", ModelFile(name="net.xml"), 1e-3), row("product", PRODUCT, 1e-3))
    found = predicted(measurement(*rows), "generic-cpu")
    assert found.rows[0].predicted_s is None and found.rows[1].predicted_s is not None
    assert ["file is not predicted" in said for said in found.warnings] == [True]


def test_another_number_of_cores_is_told() -> None:
    one = measurement(row("product", PRODUCT, 1e-3))
    one = one.model_copy(update={"device": Device(kind="cpu", name="a CPU", cores=1)})
    (said,) = predicted(one, "generic-cpu").warnings
    assert "8 cores, 1 were measured" in said


@pytest.mark.parametrize("others", [0.0, 3.0])
def test_processor_time_is_this_programs_own(others: float, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice(inference_s=5e-3, call_s=2e-3, others=lambda now: others)
    device.replace_clocks(monkeypatch)
    network = TimedNetwork(device, [], 1, processor_time=True)
    assert network._run(4).latencies_s == pytest.approx([2e-3] * 4)
    assert TimedNetwork(device, [], 1)._run(1).latencies_s == pytest.approx([5e-3])


def test_processor_time_is_of_one_thread_of_a_cpu() -> None:
    core = SimpleNamespace(get_property=lambda device, name: ["INFERENCE_NUM_THREADS"])
    told = Setting.of(core, "CPU", None, None, one_thread=True).properties("latency", 1, profiling=False)
    assert told["INFERENCE_NUM_THREADS"] == "1"
    with pytest.raises(ConfigError, match="no other device works in processor time"):
        Setting.of(core, "GPU", None, None, one_thread=True)


def test_rows_of_several_inferences_in_flight_are_left_out_of_processor_time() -> None:
    items = [Item("one", PRODUCT), Item("many", PRODUCT, "throughput")]
    found = measure(items, "CPU", budget_s=0.05, processor_time=True)
    assert [one.id for one in found.rows] == ["one"] and found.device.cores == 1
    assert found.rows[0].note == "one thread, processor time"
    assert "many: left out: several inferences in flight" in found.warnings
    with pytest.raises(ConfigError, match="--processor-time"):
        measure(items[1:], "CPU", processor_time=True)


def test_models_of_a_folder_are_rows_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("net-16x", "net-2x", "net-1x", "a"):
        (tmp_path / f"{name}.xml").write_text("<net/>")
    items, files = items_of(Scenario(tmp_path), "latency")
    assert [item.id for item in items] == ["a.xml", "net-1x.xml", "net-2x.xml", "net-16x.xml"]
    assert files["net-2x.xml"] == tmp_path / "net-2x.xml"
    with pytest.raises(ConfigError, match="a model file as it is"):
        items_of(Scenario(tmp_path, techniques="stagr"), "latency")


def test_caches_are_those_that_the_threads_work_in(tmp_path: Path) -> None:
    """Private caches count once a core, shared ones once for all that share them."""
    caches = {1: ("Data", "48K", "0"), 2: ("Unified", "2048K", "0"), 3: ("Unified", "32768K", "0-3,8")}
    for level, (kind, size, shared) in caches.items():
        place = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{level}"
        place.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
            (place / name).write_text(f"{text}\n")
    assert cache_bytes(1, tmp_path) == (48 << 10, 2 << 20, 32 << 20)
    assert cache_bytes(4, tmp_path) == (4 * 48 << 10, 8 << 20, 32 << 20)
    assert cache_bytes(1, tmp_path / "nowhere") == ()


def test_a_generic_sheet_takes_over_the_caches_that_were_measured() -> None:
    sizes = [Benchmark(operator="MatMul", sizes={"m": n, "k": n, "n": n}) for n in (64, 256, 512)]
    rows = [row(str(i), size, 1e-4 * 10**i) for i, size in enumerate(sizes)]
    given = Measurement(
        npusim="1",
        device=Device(kind="cpu", name="a CPU", cores=1, cache_bytes=(49152, 2 << 20, 32 << 20)),
        rows=tuple(rows),
    )
    found = calibrate("generic-cpu", [given], free=["cpu.launch_overhead"], folds=2).soc
    assert int(found.cpu.cores) == 1
    sizes_bytes = [float(cache.size) for cache in found.cpu.caches.values()]
    assert sizes_bytes == pytest.approx([49152, 2 << 20, 32 << 20], rel=1e-3)
