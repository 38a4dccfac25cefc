"""The same sweep on a Dask cluster: a real scheduler and workers over TCP, one of them killed half-way."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from spaces import QUICK, changed

from npusim.errors import NpusimError
from npusim.explore.sweep import sweep

pytest.importorskip("distributed")

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


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    file = tmp_path / "scheduler.json"
    scheduler = dask(
        "dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-dashboard",
        "--scheduler-file",
        str(file),
    )
    started = [scheduler]
    try:
        while not file.exists():
            assert scheduler.poll() is None
            time.sleep(0.05)
        import json

        address = json.loads(file.read_text())["address"]
        workers = [
            dask(
                "dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
                "--local-directory", str(tmp_path / f"worker{i}"),
            )
            for i in range(2)
        ]  # fmt: skip
        started += workers
        yield address, workers
    finally:
        for process in reversed(started):
            process.kill()
            process.wait(timeout=300)


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()
    }


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_gives_the_same_bytes(cluster, tmp_path):
    address, workers = cluster
    from distributed import Client

    with Client(address) as client:
        client.wait_for_workers(2, timeout=900)
    with scored_on_cluster(lambda texts: [float(len(text)) for text in texts], address) as score:
        assert score(["a", "bbb", "cc"] * 9) == [1.0, 3.0, 2.0] * 9
    killed: list[int] = []

    def kill_one(done: int, total: int) -> None:
        if done > total // 3 and not killed:
            killed.append(done)
            workers[0].send_signal(signal.SIGKILL)

    sweep(SPACE, tmp_path / "local", chunk=300)
    sweep(SPACE, tmp_path / "cluster", chunk=300, scheduler=address, progress=kill_one)
    assert killed and workers[0].wait(timeout=300) == -signal.SIGKILL
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
