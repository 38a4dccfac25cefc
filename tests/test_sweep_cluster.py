"""The same sweep on a Dask cluster: a real scheduler and workers over TCP, one of them killed half-way."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from spaces import QUICK, changed

from npusim.errors import NpusimError
from npusim.explore.sweep import sweep

pytest.importorskip("distributed")

from distributed import Client

from npusim.explore.cluster import scored_on_cluster

SPACE = changed(QUICK, keep="all")


def dask(*words: str) -> "subprocess.Popen[Any]":
    environment = os.environ | {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextmanager
def cluster_of(count: int, folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """Context with the address of a scheduler and its workers, a thread each."""
    file = folder / "scheduler.json"
    common = ["--host", "127.0.0.1", "--no-dashboard"]
    started = [dask("dask_scheduler", *common, "--port", "0", "--scheduler-file", str(file))]
    try:
        while not file.exists():
            assert started[0].poll() is None
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        for i in range(count):
            where = ["--local-directory", str(folder / f"worker{i}")]
            started.append(dask("dask_worker", address, *common, "--nthreads", "1", "--no-nanny", *where))
        with Client(address) as client:
            client.wait_for_workers(count, timeout=900)
        yield address, started[1:]
    finally:
        for process in reversed(started):
            process.kill()
            process.wait(timeout=300)


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()
    }


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_gives_the_same_bytes(tmp_path):
    killed: list[int] = []

    def kill_one(done: int, total: int) -> None:
        if done > total // 3 and not killed:
            killed.append(done)
            workers[0].send_signal(signal.SIGKILL)

    sweep(SPACE, tmp_path / "local", chunk=300)
    with cluster_of(2, tmp_path) as (address, workers):
        with scored_on_cluster(lambda texts: [float(len(text)) for text in texts], address) as score:
            assert score(["a", "bbb", "cc"] * 9) == [1.0, 3.0, 2.0] * 9
        sweep(SPACE, tmp_path / "cluster", chunk=300, scheduler=address, progress=kill_one)
        assert killed and workers[0].wait(timeout=300) == -signal.SIGKILL
    assert files(tmp_path / "cluster") == files(tmp_path / "local")


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4])
def test_any_number_of_workers_gives_the_same_front_to_the_bit(count, tmp_path):
    space = changed(QUICK, keep="pareto")
    sweep(space, tmp_path / "local", chunk=700)
    with cluster_of(count, tmp_path) as (address, _):
        sweep(space, tmp_path / "cluster", chunk=700, scheduler=address)
    assert files(tmp_path / "cluster") == files(tmp_path / "local")


def test_a_scheduler_that_is_not_there_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("npusim.explore.cluster._CONNECT_S", 1)
    with pytest.raises(NpusimError, match="no Dask scheduler answers"):
        sweep(SPACE, tmp_path, scheduler="tcp://127.0.0.1:9")
    with (
        pytest.raises(NpusimError, match="no Dask scheduler answers"),
        scored_on_cluster(len, "tcp://127.0.0.1:9"),
    ):
        pass
