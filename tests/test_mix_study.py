"""Mixes of networks on many designs: the same arrivals, fronts, refusals and the usual changes."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npusim
from npusim.cli.program import run
from npusim.errors import NpusimError
from npusim.explore import mix_study
from npusim.explore.mix_study import combinations
from npusim.system.document import MixStudy
from npusim.system.statistics import decides, paired_change

CAMERA = "mobilenet-v2:poisson=100/s,deadline=30ms,name=camera"
GNN = "gcn-cora:poisson=5/s,techniques=stagr,priority=1"


def study(**asked: object) -> MixStudy:
    result = npusim.mix(CAMERA, GNN, duration="10s", **asked)  # type: ignore[arg-type]
    assert isinstance(result, MixStudy)
    return result


@pytest.mark.laws
def test_each_design_equals_its_own_simulation() -> None:
    rows = study(over={"npu.tiles": [2, 6], "scheduler": ["fifo", "edf"]}).rows
    assert [row.at for row in rows[1:]] == [
        {"npu.tiles": tiles, "scheduler": name} for tiles in ("2", "6") for name in ("fifo", "edf")
    ]
    alone = npusim.mix(CAMERA, GNN, duration="10s", settings=["npu.tiles=2"], scheduler="edf")
    assert [each.p99_s for each in rows[2].streams] == [each.p99_s for each in alone.streams]


def test_a_design_that_changes_nothing_is_the_mix_itself() -> None:
    base, same = study(over={"scheduler": ["fifo"]}).rows
    assert same.change == (0.0, 0.0)
    assert [each.p99_s for each in base.streams] == [each.p99_s for each in same.streams]
    assert (base.energy_j, base.area_mm2) == (same.energy_j, same.area_mm2)


@pytest.mark.laws
def test_the_front_holds_what_nothing_dominates() -> None:
    result = study(over={"npu.tiles": [1, 2, 4, 6], "dram.bandwidth": ["40 GB/s", "80 GB/s"]})
    assert result.stream == "camera"
    figures = [(row.streams[0].p99_s, row.power_w or 0.0, row.area_mm2 or 0.0) for row in result.rows]
    for row, own in zip(result.rows, figures, strict=True):
        beaten = any(
            all(a <= b for a, b in zip(other, own, strict=True)) and other != own for other in figures
        )
        assert row.on_front is not beaten
    assert sum(row.on_front for row in result.rows) > 1


def test_a_design_above_its_capacity_is_a_row_with_its_reason() -> None:
    result = study(over={"streams.camera.rate": ["50/s", "100000/s"]})
    assert result.rows[1].refused is None
    assert "grow without end" in (result.rows[2].refused or "")
    assert not result.rows[2].on_front


@pytest.mark.laws
def test_the_usual_changes_run_and_a_second_npu_costs_its_area() -> None:
    result = study(changes=True)
    names = [row.name for row in result.rows]
    assert names[0] == "as it is" and "a second npu" in names and "throughput hint" in names
    second = next(row for row in result.rows if row.name == "a second npu")
    assert second.area_mm2 == pytest.approx(2.0 * (result.rows[0].area_mm2 or 0.0), rel=0.01)
    assert (second.power_w or 0.0) > (result.rows[0].power_w or 0.0)
    assert second.streams[0].mean_s < result.rows[0].streams[0].mean_s


@pytest.mark.laws
def test_every_placement_is_a_row_and_the_best_is_no_worse_than_the_mix() -> None:
    result = study(placements=True, minimise="p99_s")
    placed = [row.at["streams.camera.device"] for row in result.rows[1:]]
    assert len(placed) == 9 and set(placed) == {"npu", "cpu", "gpu"}
    times = [row.streams[0].p99_s for row in result.rows if row.refused is None]
    assert min(times) <= times[0]
    assert next(row.streams[0].p99_s for row in result.rows if row.on_front) == min(times)


@pytest.mark.laws
def test_whatif_of_a_mix_tries_its_usual_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mix.yaml"
    stream = "{network: mobilenet-v2, arrivals: {kind: poisson, rate: 100/s}, deadline: 20 ms}"
    file.write_text(f"schema: npusim.mix/1\nduration: 2 s\nstreams:\n- {stream}\n")
    study = npusim.whatif(file)
    assert study == npusim.mix(file, changes=True)
    names = [row.name for row in study.rows]
    assert {"9 tiles", "throughput hint", "preemption at layers (edf)", "a second npu"} <= {*names}
    assert run(["whatif", str(file), "--scheduler"]) == 2
    assert "see npusim mix" in capsys.readouterr().err


@pytest.mark.laws
def test_a_comparison_has_as_many_replications_as_it_needs() -> None:
    """A sixth of the NPU is decided at once; a change that noise hides takes more seeds."""
    decided, close = (
        study(over={"npu.tiles": [1, 6]}).rows[1:],
        study(over={"dram.bandwidth": ["84 GB/s"]}).rows[1],
    )
    assert [row.replications for row in decided[:1]] == [1] and decides(decided[0].change)
    assert close.replications in (1, 2, 4, 8)
    assert decides(close.change) or close.replications == 8
    few = npusim.mix(CAMERA, GNN, duration="1s", over={"npu.tiles": [5]})
    row = few.rows[1]
    alone = npusim.mix(CAMERA, GNN, duration="1s", settings=["npu.tiles=5"]).streams[0]
    assert row.streams[0].mean_s == alone.mean_s  # the figures of a row are those of its first seed
    assert row.replications > 1 or decides(row.change)


@pytest.mark.laws
def test_placements_beyond_the_exact_size_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = study(placements=True, minimise="p99_s")
    monkeypatch.setattr(mix_study, "_MOST_PLACEMENTS", 8)
    near = study(placements=True, minimise="p99_s")
    assert len(near.rows) == 6 and "5 of 9 placements" in near.notes[1]
    assert {row.name for row in near.rows} <= {row.name for row in exact.rows}
    busiest, bound = (float(share) / 100.0 for share in re.findall(r"([\d.]+)%", near.notes[2]))
    assert bound <= busiest + 1e-3
    used = [row.utilisation or 0.0 for row in exact.rows[1:] if row.refused is None]
    assert bound <= min(used) * 1.1


def test_paired_changes_are_surer_than_the_means() -> None:
    random = np.random.default_rng(0)
    before = random.exponential(1.0, 10_000)
    low, high = paired_change([(before, 1.1 * before)]) or (0.0, 0.0)
    assert low <= 0.1 <= high and high - low < 0.02
    assert paired_change([(before, before)]) == (0.0, 0.0)
    assert paired_change([(before[:10], before[:10])]) is None


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (["--over", "nonsense=1,2"], "nonsense"),
        (["--over", "streams.nobody.rate=1/s"], "stream.*nobody"),
        (["--over", "devices.npu.preemption=never"], "preemption.*layer"),
        (["--over", "npu.tiles=2,4", "--changes"], "--over and --changes"),
        (["--over", "npu.tiles=2,4", "--find-rate", "camera"], "find-rate"),
        (["--over", "npu.tiles=2,4", "--minimise", "beauty"], "beauty"),
        (["--changes", "--judged", "nobody"], "nobody"),
        (["--judged", "camera"], "only with"),
        (["--placements", "--changes"], "--changes and --placements"),
        (["--changes", "--trace", "t.json"], "--trace"),
    ],
)
def test_what_cannot_be_studied_is_refused(
    asked: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["mix", CAMERA, "--duration", "1s", *asked]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ") and len(message.splitlines()) < 5
    assert re.search(says, message)


def test_the_document_is_read_again_and_shown(tmp_path: Path) -> None:
    target = tmp_path / "study.json"
    assert run(["mix", CAMERA, "--duration", "5s", "--over", "npu.tiles=2,6", "-q", "-o", str(target)]) == 0
    assert json.loads(target.read_text())["schema"] == "npusim.mix-study/1"
    page = tmp_path / "page.html"
    assert run(["report", str(target), "-o", str(page)]) == 0
    assert "npu.tiles 2" in page.read_text()


class Killed:
    """Values of a design at which the system ends the process that simulates it."""

    def items(self) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mix_study, "thread_count", lambda: 2)
    jobs: Any = [(None, "camera", (f"design {number}", Killed())) for number in range(10)]
    with (
        pytest.raises(NpusimError, match=r"ended from outside.*use fewer cores"),
        mix_study._in_processes(len(jobs)) as simulated,
    ):
        list(simulated(jobs))


def test_combinations_are_typed_as_settings_are() -> None:
    assert [values for _, values in combinations({"npu.tiles": ["2"], "scheduler": ["edf"]})] == [
        {"npu.tiles": 2, "scheduler": "edf"}
    ]


@pytest.mark.parametrize("command", ["estimate", "sweep"])
def test_a_mix_in_place_of_another_file_is_named(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(__file__).parents[1] / "examples" / "camera-llm-gnn.yaml"
    assert run([command, str(file)]) == 2
    message = capsys.readouterr().err
    assert "npusim.mix/1" in message or "Missing option" in message
    assert len(message.splitlines()) <= 2
