"""`npusim calibrate`: from files of measurements to a fitted SoC, its intervals and its report."""

from __future__ import annotations

import json
from difflib import unified_diff
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npusim
from npusim.arch import load_soc, soc_file
from npusim.calibration.device import Calibrated, assign_folds, calibrate, source_after
from npusim.calibration.device_rows import noise_of
from npusim.cli.program import run
from npusim.measuring.document import Benchmark, Device, Measurement, Network, Row, Spread, Workload
from npusim.measuring.models import graph_of
from npusim.reporting.calibration import FITTED
from npusim.scenario import Scenario
from npusim.studies.perturbation import moved
from npusim.studies.uncertainty import draw

SOC = "core-ultra-series2"
CHIP = "Intel(R) Core(TM) Ultra 7 256V"
TRUTH = {
    ("devices", "cpu", "clock"): 2.6e9,
    ("devices", "cpu", "launch_overhead"): 40e-6,
    ("devices", "cpu", "dram_bandwidth"): 70e9,
}


def models() -> dict[str, Any]:
    found: dict[str, Any] = {"empty": Benchmark(operator="Empty", sizes={})}
    for m, k, n in ((64, 64, 64), (2708, 1433, 64), (1024, 1024, 1024), (2048, 512, 1024)):
        found[f"MatMul {m}"] = Benchmark(operator="MatMul", sizes={"m": m, "k": k, "n": n})
    for operator in ("Add", "Softmax"):
        for rows, columns in ((64, 64), (2708, 256), (2708, 2708)):
            sizes = {"rows": rows, "columns": columns}
            found[f"{operator} {rows}x{columns}"] = Benchmark(operator=operator, sizes=sizes)
    for size in (1 << 14, 1 << 20, 1 << 25):
        found[f"Copy {size}"] = Benchmark(operator="Copy", sizes={"bytes": size})
    found["gcn"] = Workload(workload="gcn-cora", techniques="stagr")
    found["alexnet"] = Network(network="alexnet", precision="int8")
    return found


def measurement(**device: Any) -> Measurement:
    """Return a measurement of a machine that differs from its data sheet, with 2 % of noise."""
    machine = moved(load_soc(SOC), TRUTH)
    random = np.random.default_rng(0)
    rows = []
    for name, model in models().items():
        seconds = 1e-3
        if not isinstance(model, Network):
            mapped = Scenario(graph_of(model, "f32"), machine, device="cpu").mapped
            seconds = float(mapped.total["latency_s"])
        seconds *= float(np.exp(0.02 * random.standard_normal()))
        spread = Spread(median_s=seconds, low_s=0.98 * seconds, high_s=1.05 * seconds, repetitions=9)
        rows.append(Row(id=name, model=model, precision="f32", latency_s=spread))
    told = {"kind": "cpu", "name": CHIP, **device}
    return Measurement(npusim="0", date="2026-01-31", device=Device(**told), rows=tuple(rows))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("measured")
    found = {"run": folder / "run.json", "other": folder / "other.json", "gpu": folder / "gpu.json"}
    found["run"].write_text(measurement().to_json())
    found["other"].write_text(measurement(name="Chip of somebody else").to_json())
    found["gpu"].write_text(measurement(kind="gpu", name="unknown").to_json())
    return found


@pytest.fixture(scope="module")
def fitted(files: dict[str, Path]) -> Calibrated:
    return calibrate(SOC, [files["run"]])


class TestTheFittedSheet:
    def test_it_moves_towards_the_machine_that_was_measured(self, fitted: Calibrated) -> None:
        assert float(fitted.soc.cpu.launch_overhead) == pytest.approx(40e-6, rel=0.15)
        assert float(fitted.soc.cpu.dram_bandwidth) == pytest.approx(70e9, rel=0.1)

    def test_it_differs_from_its_parent_in_numbers_and_one_section_only(self, fitted: Calibrated) -> None:
        parent = soc_file(SOC).read_text(encoding="utf-8").splitlines()
        changes = list(unified_diff(parent, fitted.text.splitlines(), lineterm="", n=0))
        removed = [line for line in changes if line.startswith("-") and not line.startswith("---")]
        moved_numbers = [p for p in fitted.report.parameters if p.status in FITTED]
        assert len(removed) == len(moved_numbers) > 0

    def test_each_number_says_where_it_comes_from_and_where_it_stood(self, fitted: Calibrated) -> None:
        source = fitted.soc.cpu.launch_overhead.source
        assert source.startswith(f"measured: {fitted.report.rows_fitted} rows of {CHIP}, 2026-01-31")
        assert "before 20 us, [EST] one OpenVINO inference call" in source

    def test_a_second_calibration_keeps_the_first_source(self) -> None:
        once = source_after("measured: 5 rows of A", "20 us", "[EST] guessed")
        assert source_after("measured: 9 rows of B", "25 us", once) == (
            "measured: 9 rows of B; before 20 us, [EST] guessed"
        )

    def test_it_can_be_calibrated_again(self, files: dict[str, Path], fitted: Calibrated, tmp_path) -> None:
        sheet = tmp_path / "fitted.yaml"
        sheet.write_text(fitted.text)
        again = calibrate(sheet, [files["run"]], name="mine", folds=2)
        assert again.soc.name == "mine"
        assert again.text.count("\ncalibration:") == 1

    def test_numbers_that_were_not_identified_are_untouched(self, fitted: Calibrated) -> None:
        stayed = [p for p in fitted.report.parameters if p.status == "not identified"]
        assert stayed
        assert all(p.after == p.before for p in stayed)


class TestIntervals:
    def test_an_estimate_with_a_fitted_soc_has_an_interval(self, fitted: Calibrated) -> None:
        graph = npusim.apply(npusim.load_workload("gcn-cora"), "stagr")
        found = npusim.estimate(graph, fitted.soc, device="cpu")
        assert found.latency_interval_s is not None
        low, high = found.latency_interval_s
        assert low < found.latency_s < high
        assert npusim.estimate(graph, load_soc(SOC), device="cpu").latency_interval_s is None

    def test_errors_that_go_together_make_it_narrower_than_errors_apart(self, fitted: Calibrated) -> None:
        section = fitted.soc.calibration
        assert section is not None
        apart = section.model_copy(update={"parameters": [], "correlation": []})
        graph = graph_of(Benchmark(operator="MatMul", sizes={"m": 1024, "k": 1024, "n": 1024}), "f32")

        def width(soc: npusim.arch.Soc) -> float:
            mapped = Scenario(graph, soc, device="cpu").mapped
            low, high = draw([mapped]).latency_interval(0)
            return high / low

        together = width(fitted.soc)
        assert together < width(fitted.soc.model_copy(update={"calibration": apart}))

    def test_what_the_equations_leave_out_widens_it(self, fitted: Calibrated) -> None:
        section = fitted.soc.calibration
        assert section is not None
        worse = section.model_copy(update={"model_error": dict.fromkeys(section.model_error, 0.5)})
        graph = npusim.load_workload("gcn-cora")

        def width(soc: npusim.arch.Soc) -> float:
            interval = npusim.estimate(graph, soc, device="cpu").latency_interval_s
            assert interval is not None
            return interval[1] / interval[0]

        assert width(fitted.soc.model_copy(update={"calibration": worse})) > 1.2 * width(fitted.soc)


class TestTheReport:
    def test_rows_that_cannot_be_built_are_named(self, fitted: Calibrated) -> None:
        assert [row.id for row in fitted.report.left_out] == ["alexnet"]

    def test_networks_are_predicted_and_not_fitted_to(self, fitted: Calibrated) -> None:
        checks = [row for row in fitted.report.rows if not row.fitted]
        assert [row.id for row in checks] == ["gcn"]
        assert checks[0].interval_s is not None
        assert checks[0].after_s == pytest.approx(checks[0].measured_s, rel=0.15)

    def test_unseen_rows_are_predicted_well_where_the_equations_are_right(self, fitted: Calibrated) -> None:
        all_rows = fitted.report.families[0]
        assert all_rows.family == "all"
        assert all_rows.held_out_median < 0.06 < all_rows.before_median

    def test_folds_hold_out_whole_networks_and_spread_families(self, fitted: Calibrated) -> None:
        class Dealt:
            def __init__(self, family: str, instance: str) -> None:
                self.family, self.instance = family, instance

        rows: list[Any] = [Dealt("Add", str(i % 10)) for i in range(20)]
        dealt = assign_folds(rows, 5, seed=1)
        assert dealt[:10] == dealt[10:]
        assert sorted(dealt[:10]) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]

    def test_noise_falls_with_repetitions(self) -> None:
        def row(repetitions: int) -> Row:
            spread = Spread(median_s=1.0, low_s=0.9, high_s=1.1, repetitions=repetitions)
            return Row(id="a", model=Network(network="x", precision="int8"), latency_s=spread)

        assert noise_of(row(100)) == pytest.approx(noise_of(row(25)) / 2.0)


class TestChoosing:
    def test_only_what_is_freed_moves(self, files: dict[str, Path]) -> None:
        found = calibrate(SOC, [files["run"]], free=["cpu.launch_overhead"], folds=2)
        moved_paths = [p.path for p in found.report.parameters if p.status in FITTED]
        assert moved_paths == ["cpu.launch_overhead"]

    def test_what_is_held_stays(self, files: dict[str, Path]) -> None:
        found = calibrate(SOC, [files["run"]], hold=["cpu.launch_overhead"], folds=2)
        status = {p.path: p.status for p in found.report.parameters}
        assert status["cpu.launch_overhead"] == "held"

    @pytest.mark.parametrize("option", ["free", "hold"])
    def test_an_unknown_path_is_refused_with_the_nearest(self, files: dict[str, Path], option: str) -> None:
        with pytest.raises(npusim.errors.ConfigError, match=r"did you mean `cpu\.launch_overhead`"):
            calibrate(SOC, [files["run"]], **{option: ["cpu.launch_overhed"]})


class TestTheCommand:
    def test_it_writes_all_and_prints_one_document(self, files: dict[str, Path], tmp_path, capsys) -> None:
        sheet, page = tmp_path / "fitted.yaml", tmp_path / "report.html"
        words = ["calibrate", SOC, "--measurements", str(files["run"]), "-o", str(sheet)]
        assert run([*words, "--report", str(page), "--folds", "2", "--format", "json", "--quiet"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["schema"] == "npusim.calibration/1"
        assert load_soc(sheet).calibration is not None
        text = page.read_text(encoding="utf-8")
        assert "cpu.launch_overhead" in text
        assert "What the equations leave out" in text
        assert 'src="http' not in text

    def test_its_table_fits_a_terminal(self, files: dict[str, Path], capsys, monkeypatch) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        assert run(["calibrate", SOC, "--measurements", str(files["run"]), "--folds", "2", "--quiet"]) == 0
        out = capsys.readouterr().out
        assert "farthest off end to end" in " ".join(out.split())
        assert max(map(len, out.splitlines())) <= 80

    def refused(self, words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
        """Run what has to be refused, and see that nothing is left behind."""
        before = sorted(folder.iterdir())
        targets = ["-o", str(folder / "new.yaml"), "--report", str(folder / "new.html"), "--quiet"]
        assert run(["calibrate", *words, *targets]) == 2
        assert sorted(folder.iterdir()) == before
        return capsys.readouterr().err

    def test_a_device_that_the_soc_lacks(self, files: dict[str, Path], tmp_path, capsys) -> None:
        error = self.refused(["generic-cpu", "--measurements", str(files["gpu"])], tmp_path, capsys)
        assert str(files["gpu"]) in error
        assert "found `gpu`" in error
        assert "allowed: cpu" in error

    def test_a_chip_that_is_none_of_the_socs(self, files: dict[str, Path], tmp_path, capsys) -> None:
        words = [SOC, "--measurements", str(files["other"])]
        error = self.refused(words, tmp_path, capsys)
        assert "Chip of somebody else" in error
        assert "--force-soc" in error
        assert run(["calibrate", *words, "--force-soc", "--folds", "2", "--quiet", "--format", "json"]) == 0
        assert any("taken all the same" in w for w in json.loads(capsys.readouterr().out)["warnings"])

    def test_files_of_different_devices(self, files: dict[str, Path], tmp_path, capsys) -> None:
        words = [SOC, "--measurements", str(files["run"]), str(files["gpu"])]
        assert "different devices" in self.refused(words, tmp_path, capsys)

    def test_a_file_that_is_cut_off(self, files: dict[str, Path], tmp_path, capsys) -> None:
        broken = tmp_path / "broken.json"
        broken.write_text(files["run"].read_text()[:500])
        error = self.refused([SOC, "--measurements", str(broken)], tmp_path, capsys)
        assert "broken.json" in error

    def test_no_file_at_all(self, tmp_path, capsys) -> None:
        assert "--measurements" in self.refused([SOC], tmp_path, capsys)

    def test_nothing_but_networks_that_cannot_be_built(self, tmp_path, capsys) -> None:
        whole = measurement()
        only = whole.model_copy(update={"rows": whole.rows[-1:]})
        path = tmp_path / "networks.json"
        path.write_text(only.to_json())
        assert "alexnet" in self.refused([SOC, "--measurements", str(path)], tmp_path, capsys)

    def test_the_parent_is_not_overwritten(self, files: dict[str, Path], tmp_path, capsys) -> None:
        parent = tmp_path / "parent.yaml"
        text = soc_file(SOC).read_text()
        parent.write_text(text)
        words = ["calibrate", str(parent), "--measurements", str(files["run"]), "-o", str(parent)]
        assert run(words) == 2
        assert parent.read_text() == text
        assert "name another file" in capsys.readouterr().err


class TestSweeps:
    SPACE: dict[str, Any] = {  # noqa: RUF012
        "schema": "npusim.space/1",
        "workload": "gcn-cora",
        "techniques": "stagr",
        "run": {"device": "cpu"},
        "axes": {
            "cpu.dispatch_overhead": {"values": ["2 us", "4 us"]},
            "cpu.clock": {"values": ["2 GHz", "3 GHz"]},
        },
        "minimise": ["latency_s"],
        "keep": "top:3",
    }

    def test_kept_points_of_a_fitted_soc_get_intervals(self, fitted: Calibrated, tmp_path: Path) -> None:
        from npusim.explore.fronts import pareto

        sheet = tmp_path / "fitted.yaml"
        sheet.write_text(fitted.text)
        npusim.sweep({**self.SPACE, "soc": str(sheet)}, tmp_path / "fitted")
        row = pareto(tmp_path / "fitted").rows[0]
        assert row["latency_s_low"] < row["latency_s"] < row["latency_s_high"]

    def test_points_of_a_shipped_soc_get_them_where_they_are_asked_for(self, tmp_path: Path) -> None:
        from npusim.explore.fronts import pareto

        npusim.sweep(self.SPACE, tmp_path / "plain")
        assert "latency_s_low" not in pareto(tmp_path / "plain").rows[0]
        npusim.sweep(self.SPACE, tmp_path / "asked", intervals=True)
        assert "latency_s_low" in pareto(tmp_path / "asked").rows[0]


def disturbed(*names: str) -> Measurement:
    """Return the measurement with some rows' readings spread over all of their median."""

    def row(one: Row) -> Row:
        spread = one.latency_s
        wide = {"low_s": 0.6 * spread.median_s, "high_s": 1.6 * spread.median_s}
        update = {"latency_s": spread.model_copy(update=wide)} if one.id.startswith(names) else {}
        return one.model_copy(update=update)

    calm = measurement()
    return calm.model_copy(update={"rows": tuple(map(row, calm.rows))})


@pytest.mark.laws
def test_rows_of_a_busy_machine_are_left_out_of_the_fit(fitted: Calibrated) -> None:
    found = npusim.calibrate(SOC, disturbed("Softmax", "gcn"), folds=2)
    assert found.report.rows_fitted == fitted.report.rows_fitted - 3
    assert {row.id for row in found.report.left_out if "unsteady" in row.reason} == {
        row.id for row in measurement().rows if row.id.startswith("Softmax")
    }
    assert any("the machine was busy: 3 of 16 rows" in warning for warning in found.report.warnings[:2])
    assert any(not row.fitted and row.id == "gcn" for row in found.report.rows), "checks stay"


@pytest.mark.laws
def test_a_measurement_without_calm_rows_is_refused() -> None:
    everything = ("empty", "MatMul", "Add", "Softmax", "Copy")
    with pytest.raises(npusim.NpusimError, match=r"found 0 rows to fit to; .*unsteady.*at least 2"):
        npusim.calibrate(SOC, disturbed(*everything))
    taken = npusim.calibrate(SOC, disturbed(*everything), keep_unsteady=True, folds=2)
    assert taken.report.rows_fitted == len(measurement().rows) - 2


def test_what_a_fit_makes_worse_is_said_first(fitted: Calibrated) -> None:
    from npusim.calibration.device import worse_families

    rows = [row for row in fitted.report.rows if row.family == "Softmax"]
    assert worse_families(rows) == []
    spoilt = [
        row.model_copy(update={"before_s": row.measured_s, "held_out_s": 1.5 * row.measured_s})
        for row in rows
    ]
    (said,) = worse_families([*spoilt, *(row for row in fitted.report.rows if row.family == "Copy")])
    assert "worse than the data sheet" in said and "Softmax 0% to 50%" in said and "Copy" not in said


def test_a_fitted_machine_shows_as_its_report(fitted: Calibrated, tmp_path: Path) -> None:
    assert repr(fitted).startswith("CalibrationReport: ") and fitted._repr_html_().startswith("<pre")
    fitted.write(tmp_path / "fitted.yaml")
    assert load_soc(tmp_path / "fitted.yaml") == fitted.soc


@pytest.mark.laws
def test_ctrl_c_leaves_nothing_behind(files: dict[str, Path], tmp_path: Path) -> None:
    words = ["calibrate", SOC, "--measurements", str(files["run"])]
    targets = ["-o", str(tmp_path / "new.yaml"), "--report", str(tmp_path / "new.html")]
    with pytest.MonkeyPatch.context() as patch:

        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr("npusim.calibration.device.held_out", interrupted)
        assert run([*words, *targets, "--quiet"]) == 130
    assert not list(tmp_path.iterdir())
