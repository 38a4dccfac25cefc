"""Energy counters are read right where they are, also across their end; where there are none nobody guesses.

The trees of files below are those that Linux shows under /sys, with real files.
"""

import os
import struct
import time
from pathlib import Path

import numpy as np
import pytest

from npusim.measuring import Benchmark
from npusim.measuring.document import Row, Spread
from npusim.measuring.energy import EnergyReading, Meter, find_meter, with_logged_energy

METEOR_LAKE, LUNAR_LAKE, PANTHER_LAKE = 0x130670B2, 0x03072005, 0x03086000


def write_rapl(
    root: Path, domain: str, energy_uj: int, wraps_at: int = 262_143_328_850, at: str = "0"
) -> Path:
    folder = root / "sys/class/powercap" / f"intel-rapl:{at}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{domain}\n")
    (folder / "max_energy_range_uj").write_text(f"{wraps_at}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    return folder / "energy_uj"


def write_pmt(root: Path, guid: int, offset: int, count: int, name: str = "telem1") -> Path:
    folder = root / "sys/class/intel_pmt" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "guid").write_text(f"{guid:#x}\n")
    page = bytearray(b"\xa5" * 0x1000)
    page[offset : offset + 4] = struct.pack("<I", count)
    (folder / "telem").write_bytes(page)
    return folder / "telem"


def meter_of(kind: str, root: Path) -> Meter:
    meter, obstacle = find_meter(kind, root)
    assert meter is not None and obstacle == ""
    return meter


@pytest.mark.parametrize("kind", ["npu", "gpu", "cpu"])
def test_without_a_counter_there_is_no_meter(kind: str, tmp_path: Path) -> None:
    assert find_meter(kind, tmp_path) == (None, "")


def test_rapl_counts_microjoules_of_the_package(tmp_path: Path) -> None:
    write_rapl(tmp_path, "psys", 1, at="1")
    counter = write_rapl(tmp_path, "package-0", 5_000_000)
    meter = meter_of("cpu", tmp_path)
    before = meter.read()
    counter.write_text("7500000\n")
    assert meter.source == "intel-rapl"
    assert meter.joules(before, meter.read()) == pytest.approx(2.5)


def test_rapl_starts_again_after_the_value_that_it_names(tmp_path: Path) -> None:
    write_rapl(tmp_path, "package-0", 0, wraps_at=999_999)
    meter = meter_of("cpu", tmp_path)
    assert meter.joules(900_000, 100_000) == pytest.approx(0.2)
    assert meter.joules(999_999, 0) == pytest.approx(1e-6)


def test_the_gpu_has_a_domain_of_its_own(tmp_path: Path) -> None:
    write_rapl(tmp_path, "package-0", 0)
    assert find_meter("gpu", tmp_path)[0] is None
    write_rapl(tmp_path, "uncore", 42, at="0:1")
    assert meter_of("gpu", tmp_path).read() == 42


@pytest.mark.parametrize(
    ("guid", "offset"), [(METEOR_LAKE, 0x628), (LUNAR_LAKE, 0x5D0), (PANTHER_LAKE, 0x670)]
)
def test_pmt_finds_the_counter_of_each_generation(guid: int, offset: int, tmp_path: Path) -> None:
    write_pmt(tmp_path, 0xDEAD, 0, 0, name="telem0")
    page = write_pmt(tmp_path, guid, offset, 16384)
    meter = meter_of("npu", tmp_path)
    before = meter.read()
    assert before == 16384 and meter.source == "intel-pmt"
    write_pmt(tmp_path, guid, offset, 16384 + 8192)
    assert meter.joules(before, meter.read()) == pytest.approx(0.5)
    assert page.stat().st_size == 0x1000


def test_pmt_wraps_after_32_bits(tmp_path: Path) -> None:
    write_pmt(tmp_path, LUNAR_LAKE, 0x5D0, 0)
    meter = meter_of("npu", tmp_path)
    assert meter.joules(2**32 - 16384, 16384) == pytest.approx(2.0)
    assert meter.joules(0, 2**32 - 1) == pytest.approx(262_144, rel=1e-6)


def test_an_unknown_layout_is_left_alone(tmp_path: Path) -> None:
    write_pmt(tmp_path, 0x12345678, 0x5D0, 1)
    assert find_meter("npu", tmp_path) == (None, "")


def test_a_page_that_is_too_short_is_told(tmp_path: Path) -> None:
    write_pmt(tmp_path, LUNAR_LAKE, 0x5D0, 1).write_bytes(b"\0" * 16)
    meter, obstacle = find_meter("npu", tmp_path)
    assert meter is None and "cannot be read" in obstacle


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_counter_that_only_root_may_read_is_told(tmp_path: Path) -> None:
    write_rapl(tmp_path, "package-0", 0).chmod(0)
    meter, obstacle = find_meter("cpu", tmp_path)
    assert meter is None and "only root" in obstacle


def test_a_broken_counter_is_told(tmp_path: Path) -> None:
    write_rapl(tmp_path, "package-0", 0).write_text("many\n")
    meter, obstacle = find_meter("cpu", tmp_path)
    assert meter is None and obstacle


def test_a_row_gets_the_energy_of_its_run_divided_by_its_inferences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter rises by 3 J during a run of 100 inferences, past its end."""
    pytest.importorskip("openvino")
    from npusim.measuring.running import measure
    from npusim.measuring.suites import Item
    from npusim.measuring.timing import TimedNetwork

    counter = write_rapl(tmp_path, "package-0", 39_000_000, wraps_at=39_999_999)

    def run_for(network: TimedNetwork, seconds: float) -> int:
        counter.write_text("2000000\n")
        return 100

    monkeypatch.setattr(TimedNetwork, "run_for", run_for)
    product = Benchmark(operator="MatMul", sizes={"m": 16, "k": 16, "n": 16})
    row = measure([Item("product", product)], "CPU", budget_s=0.05, root=tmp_path).rows[0]
    assert row.energy_source == "intel-rapl"
    assert row.energy_j == pytest.approx(0.03)


def test_a_counter_that_stands_still_gives_no_energy(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    from npusim.measuring.running import measure
    from npusim.measuring.suites import Item

    write_rapl(tmp_path, "package-0", 123)
    product = Benchmark(operator="MatMul", sizes={"m": 16, "k": 16, "n": 16})
    row = measure([Item("product", product)], "CPU", budget_s=0.05, root=tmp_path).rows[0]
    assert row.energy_j is None and row.energy_source is None


def logged_row(name: str) -> Row:
    spread = Spread(median_s=0.01, low_s=0.01, high_s=0.01, repetitions=5)
    return Row(id=name, model=Benchmark(operator="Empty", sizes={}), latency_s=spread)


def write_log(path: Path, start_s: float, readings_w: list[float]) -> None:
    lines = ["Date,Time,CPU Package Power [W],NPU Power [W]"]
    for i, watts in enumerate(readings_w):
        moment = time.strftime("%d.%m.%Y,%H:%M:%S.000", time.localtime(start_s + 2 * i))
        lines.append(f"{moment},{watts},{watts / 10}")
    path.write_text("\n".join(lines) + "\n", encoding="cp1252")


def test_energy_from_a_log_is_power_while_the_row_ran(tmp_path: Path) -> None:
    start_s = float(int(time.time()) - 100)
    path = tmp_path / "log.csv"
    write_log(path, start_s, [10.0, 10.0, 10.0, 10.0, 30.0, 30.0, 30.0, 30.0])
    runs = [
        EnergyReading(start_s + 1, start_s + 5, 100, None, None),
        EnergyReading(start_s + 9, start_s + 13, 400, None, None),
    ]
    rows = [(logged_row("calm"), runs[0]), (logged_row("busy"), runs[1])]
    found, obstacle = with_logged_energy(rows, "cpu", path)
    assert obstacle == ""
    energies = [row.energy_j for row, _ in found]
    assert np.allclose(np.array(energies, dtype=float), [10.0 * 4 / 100, 30.0 * 4 / 400])
    assert {row.energy_source for row, _ in found} == {"hwinfo"}
    on_npu, _ = with_logged_energy(rows, "npu", path)
    assert on_npu[0][0].energy_j == pytest.approx(1.0 * 4 / 100)


def test_a_log_that_does_not_cover_a_row_leaves_it_without_energy(tmp_path: Path) -> None:
    start_s = float(int(time.time()) - 100)
    path = tmp_path / "log.csv"
    write_log(path, start_s, [10.0, 10.0])
    found, obstacle = with_logged_energy(
        [(logged_row("late"), EnergyReading(start_s + 50, start_s + 60, 1, None, None))], "cpu", path
    )
    assert found[0][0].energy_j is None and "log.csv" in obstacle


def test_a_broken_log_does_not_lose_the_times(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("nothing of the kind\n")
    found, obstacle = with_logged_energy([(logged_row("row"), None)], "cpu", path)
    assert [row.id for row, _ in found] == ["row"] and obstacle
