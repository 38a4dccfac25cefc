"""Sweeps: what is kept, what is on disk at every moment, and that being stopped leaves no trace."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from spaces import MIXED, QUICK, changed

import npusim
from npusim.errors import FileError, NpusimError
from npusim.explore.campaign import campaign_of
from npusim.explore.fronts import pareto
from npusim.explore.query import query
from npusim.explore.sensitivity import exact_indices, influences
from npusim.explore.spaces import load_space
from npusim.explore.sweep import Interrupted, chunk_points, sweep
from npusim.metrics import METRICS, column_of, objectives
from npusim.studies.pareto import front


def bytes_of(directory: Path) -> dict[str, bytes]:
    """Every file of a directory of results with its content."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("undisturbed")
    sweep(QUICK, directory, chunk=300)
    return bytes_of(directory)


def space_file(tmp_path: Path, space: dict[str, Any] = QUICK) -> Path:
    path = tmp_path / "space.yaml"
    path.write_text(yaml.safe_dump(space, sort_keys=False))
    return path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "npusim", *words]


def test_all_points_are_kept_with_their_axes_and_metrics(tmp_path):
    result = sweep(changed(QUICK, keep="all"), tmp_path, chunk=1000)
    table = query(tmp_path, "SELECT * FROM points ORDER BY point")
    assert result.kept == result.points == table.num_rows == 7200
    assert table["point"].to_pylist() == list(range(7200))
    campaign = campaign_of(load_space(changed(QUICK, keep="all")))
    scores = campaign.scores(0, 7200)
    for name in (name for name, metric in METRICS.items() if not metric.is_asked):
        assert np.array_equal(table[name].to_numpy(), scores[name])
    point = table.slice(4711, 1).to_pylist()[0]
    settings = campaign.settings_at(campaign.points.coordinates([4711])[0])
    assert point["npu.tiles"] == settings["npu.tiles"]
    assert point["npu.dsp.per_tile"] == settings["npu.dsp.per_tile"]
    assert 20e9 <= point["dram.bandwidth"] <= 140e9


def test_the_kept_front_is_the_front_of_all_points(tmp_path):
    space = load_space(QUICK)
    sweep(space, tmp_path, chunk=700)
    scores = campaign_of(space).scores(0, 7200)
    expected = front(objectives(scores, space.minimise))
    assert query(tmp_path, "SELECT point FROM points ORDER BY 1")["point"].to_pylist() == expected.tolist()


def test_the_kept_best_are_the_best_of_all_points(tmp_path):
    sweep(QUICK, tmp_path, keep="top:50", chunk=700)
    scores = campaign_of(load_space(QUICK)).scores(0, 7200)
    expected = np.sort(np.argsort(scores["latency_s"], kind="stable")[:50])
    assert query(tmp_path, "SELECT point FROM points ORDER BY 1")["point"].to_pylist() == expected.tolist()


def test_constraints_leave_points_out(tmp_path):
    bounds = {"area_mm2": {"max": 6.0}, "peak_ops_per_s": {"min": 1e13}}
    result = sweep(changed(QUICK, keep="all", constraints=bounds), tmp_path)
    table = query(tmp_path, "SELECT max(area_mm2) AS a, min(peak_ops_per_s) AS p FROM points").to_pylist()[0]
    assert 0 < result.kept < result.points
    assert table["a"] <= 6.0 and table["p"] >= 1e13


def test_points_without_room_for_the_network_are_left_out(tmp_path):
    axes = {"npu.sram.per_tile": {"values": ["64 B", "1 MiB"]}}
    assert sweep(changed(QUICK, axes=axes, keep="all"), tmp_path).kept == 1


@pytest.mark.parametrize(
    ("points", "chunks"), [(7_200, 1), (1 << 17, 2), (1_166_400, 16), (13_996_800, 27), (10**8, 191)]
)
def test_a_sweep_has_enough_chunks_for_several_workers(points, chunks):
    assert -(-points // chunk_points(load_space(QUICK), points)) == chunks


@pytest.mark.few(1)
@pytest.mark.parametrize("chunk", [299, 7200, 10**6])
def test_the_size_of_chunks_does_not_change_what_is_kept(tmp_path, chunk, undisturbed):
    sweep(QUICK, tmp_path, chunk=chunk)
    assert (tmp_path / "kept.parquet").read_bytes() == undisturbed["kept.parquet"]


def test_a_stopped_sweep_is_resumed_to_the_same_bytes(tmp_path, undisturbed):
    with pytest.raises(Interrupted, match="--resume"):
        sweep(QUICK, tmp_path, chunk=300, stop=lambda: True)
    assert len(list((tmp_path / "chunks").iterdir())) == 1
    sweep(QUICK, tmp_path, resume=True)
    assert bytes_of(tmp_path) == undisturbed


def test_resuming_a_finished_sweep_changes_nothing(tmp_path, undisturbed):
    sweep(QUICK, tmp_path, chunk=300)
    sweep(QUICK, tmp_path, resume=True)
    assert bytes_of(tmp_path) == undisturbed


def test_a_changed_space_is_refused(tmp_path):
    sweep(QUICK, tmp_path)
    with pytest.raises(NpusimError, match=r"techniques.*another directory"):
        sweep(changed(QUICK, techniques="stagr+quantgr"), tmp_path, resume=True)


def test_a_changed_machine_is_refused(tmp_path):
    text = (npusim.locate.resource("configs", "socs", "core-ultra-series2.yaml")).read_text()
    soc = tmp_path / "soc.yaml"
    soc.write_text(text)
    sweep(changed(QUICK, soc=str(soc)), tmp_path / "out")
    soc.write_text(text.replace("1440 KiB", "1441 KiB"))
    with pytest.raises(NpusimError, match="data sheet"):
        sweep(changed(QUICK, soc=str(soc)), tmp_path / "out", resume=True)


def test_a_directory_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileError, match="not empty"):
        sweep(QUICK, tmp_path)
    assert bytes_of(tmp_path) == {"thesis.tex": b"years of work"}


def wait_for_chunks(directory: Path, process: "subprocess.Popen[Any]", count: int) -> None:
    while process.poll() is None and len(list(directory.glob("chunks/*.parquet"))) < count:
        time.sleep(0.005)


@pytest.mark.laws
def test_killed_at_random_instants_the_result_has_the_same_bytes(tmp_path, undisturbed):
    """The runs die at random instants from the first chunk on, and each goes on where the last one died."""
    space, out = space_file(tmp_path), tmp_path / "out"
    chance = random.Random(1)
    kills = 0
    # One process forks the doomed ones, so that numba and its kernels are loaded once.
    script = f"""
import os, sys
from npusim.explore.sweep import sweep
from npusim.explore.spaces import load_space
from npusim.explore.campaign import campaign_of
space = load_space({str(space)!r})
import numba
numba.set_num_threads(1)
campaign_of(space).scores(0, 1)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        import time
        slow = lambda done, total: time.sleep(0.02)
        sweep(space, {str(out)!r}, chunk=300, resume=True, progress=slow)
        os._exit(0)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""
    environment = os.environ | {"NUMBA_NUM_THREADS": "1", "NUMBA_THREADING_LAYER": "workqueue"}
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        finished = 0
        while kills < 6:
            if finished:  # all chunks are there: take some away and go on
                finished = 0
                for path in chance.sample(sorted(out.glob("chunks/*.parquet")), 8):
                    path.unlink()
                (out / "kept.parquet").unlink()
            parent.stdin.write("go\n")
            parent.stdin.flush()
            child = int(parent.stdout.readline())
            time.sleep(chance.uniform(0.0, 0.25))
            with suppress(ProcessLookupError):  # it was faster
                os.kill(child, signal.SIGKILL)
            status = int(parent.stdout.readline())
            kills += os.WIFSIGNALED(status)
            finished += not os.WIFSIGNALED(status)
        parent.stdin.write("go\n")
        parent.stdin.close()
        parent.wait(timeout=900)
    if not (out / "kept.parquet").exists():
        sweep(load_space(space), out, resume=True)
    assert bytes_of(out) == undisturbed


@pytest.mark.laws
def test_ctrl_c_finishes_the_chunk_and_says_how_to_go_on(tmp_path):
    space, out = space_file(tmp_path, changed(MIXED, keep="all")), tmp_path / "out"
    process = subprocess.Popen(
        command("sweep", str(space), "-o", str(out), "--chunk", "5", "--quiet"),
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_chunks(out, process, 1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=900)
    assert process.returncode == 130, errors
    assert "--resume" in errors and "Traceback" not in errors
    assert all(pq.read_table(path).num_columns for path in out.glob("chunks/*.parquet"))


def test_a_full_disk_is_told_and_what_is_written_stays_valid(tmp_path):
    space = load_space(changed(QUICK, keep="all"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    written: list[int] = []

    def fill_up(done: int, total: int) -> None:
        written.append(done)
        if len(written) == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))

    try:
        with pytest.raises(FileError, match="make room and resume"):
            sweep(space, tmp_path, chunk=1000, progress=fill_up)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    chunks = sorted((tmp_path / "chunks").iterdir())
    assert [pq.read_table(path).num_rows for path in chunks] == [1000, 1000]
    assert sweep(space, tmp_path, resume=True).kept == 7200


@pytest.mark.laws
def test_the_command_prints_one_json_document(tmp_path, undisturbed):
    words = ("sweep", str(space_file(tmp_path)), "-o", str(tmp_path / "out"), "--format", "json", "--quiet")
    done = subprocess.run(command(*words), capture_output=True, text=True, check=True, timeout=900)
    found = json.loads(done.stdout)
    assert found.keys() == {"schema", "points", "kept", "recomputed", "seconds", "directory"}
    assert (found["schema"], found["points"]) == ("npusim.sweep/1", 7200)
    assert not done.stderr


def test_query_explains_what_is_wrong(tmp_path):
    sweep(QUICK, tmp_path)
    with pytest.raises(NpusimError, match=r"npu\.tiles"):
        query(tmp_path, "SELECT tiles FROM points")
    with pytest.raises(FileError, match="no such file"):
        query(tmp_path / "elsewhere", "SELECT 1")


def test_front_of_a_sweep_names_the_knee_and_warns_of_what_was_left_out(tmp_path):
    sweep(QUICK, tmp_path)
    same = pareto(tmp_path)
    assert same.knee["point"] in [row["point"] for row in same.rows]
    assert not same.notes
    other = pareto(tmp_path, ["dram_bytes", "area_mm2"], '"npu.tiles" < 3')
    assert other.notes and all(row["npu.tiles"] < 3 for row in other.rows)
    with pytest.raises(NpusimError, match="latency_s"):
        pareto(tmp_path, ["latency"])
    with pytest.raises(NpusimError, match="no kept point"):
        pareto(tmp_path, None, "area_mm2 < 0")


@pytest.mark.laws
@pytest.mark.parametrize("where", [None, '"npu.tiles" < 5 and latency_s > 0.0005'])
def test_a_front_is_that_of_all_points_of_all_chunks(tmp_path, where):
    sweep(changed(QUICK, keep="all"), tmp_path, chunk=2000)
    names = ["latency_s", "power_w", "area_mm2"]
    whole = pareto(tmp_path, names, where)
    rows = query(tmp_path, f"SELECT * FROM points {f'WHERE {where}' if where else ''} ORDER BY point")
    scores = {name: column_of(name, {m: rows[m].to_numpy() for m in METRICS if m in rows.column_names})
              for name in names}  # fmt: skip
    expected = front(objectives(scores, names))
    assert {row["point"] for row in whole.rows} == set(rows["point"].to_numpy()[expected].tolist())
    assert whole.compared == rows.num_rows
    behind = np.setdiff1d(np.arange(rows.num_rows), expected)
    step = -(-len(behind) // len(whole.beaten))
    assert [b["area_mm2"] for b in whole.beaten] == list(scores["area_mm2"][behind[::step]])


@pytest.mark.laws
def test_the_page_of_a_front_holds_everything(tmp_path):
    from npusim.reporting.exploration import pareto_page

    sweep(QUICK, tmp_path)
    found = pareto(tmp_path)
    page = pareto_page(found).html()
    assert f"point {found.knee['point']}" in page
    assert "parcoords" in page and "https://cdn" not in page.split("</script>")[-1]


def test_influences_tell_what_matters():
    axes = {
        "npu.tiles": {"from": 1, "to": 6, "step": 1},
        "npu.dpu.clock": {"values": ["1.80 GHz", "1.81 GHz"]},
    }
    found = influences(load_space(changed(QUICK, axes=axes)), samples=64)
    ranked = found["area_mm2"]
    assert ranked[0].axis == "npu.tiles" and ranked[0].total > 0.9
    assert ranked[1].total < 0.1


def test_indices_of_a_known_function_are_exact():
    a, b, c = np.meshgrid([-1.0, 1.0], [-2.0, 0.0, 2.0], [5.0, 7.0], indexing="ij")
    sums, products, same = a + b, a * c, np.full(a.shape, 0.3)
    first, total = exact_indices(np.stack([sums, products, same]))
    assert first[0] == pytest.approx([3 / 11, 8 / 11, 0.0]) and total[0] == pytest.approx(first[0])
    # a * c: the mean over c leaves 6 a; what is left of the variance needs both.
    assert first[1] == pytest.approx([36 / 37, 0.0, 0.0])
    assert total[1] == pytest.approx([1.0, 0.0, 1 / 37], abs=1e-12)
    assert not first[2].any() and not total[2].any()
