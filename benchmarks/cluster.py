"""Sweeps a space on worker processes of a Dask scheduler on this machine, a thread each.

`python benchmarks/cluster.py SPACE OUT WORKERS`; without workers this process does all, on one core. Printed
are the seconds of the sweep, and the processor seconds of each process before it and during it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

_START_S = 300
_THREADS = {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def _dask(*words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "distributed.cli." + words[0], *words[1:], "--no-dashboard"]
    return subprocess.Popen(command, env=os.environ | _THREADS, stderr=subprocess.DEVNULL)


@contextmanager
def workers_of(count: int) -> Iterator[tuple[str, dict[str, subprocess.Popen[bytes]]]]:
    """Context with the address of a scheduler that has `count` workers, and the processes by name."""
    started: dict[str, subprocess.Popen[bytes]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scheduler.json"
        try:
            started["scheduler"] = _dask(
                "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file)
            )
            for i in range(count):
                where = ("--scheduler-file", str(file), "--local-directory", f"{folder}/{i}")
                started[f"worker {i + 1}"] = _dask("dask_worker", *where, "--nthreads", "1", "--no-nanny")
            from distributed import Client

            with Client(scheduler_file=str(file), timeout=_START_S, set_as_default=False) as client:
                client.wait_for_workers(count, timeout=_START_S)
                address = client.scheduler.address
            yield address, started
        finally:
            for process in reversed(started.values()):
                process.terminate()
                process.wait()


def _processor_s(processes: dict[str, subprocess.Popen[bytes]]) -> dict[str, float]:
    """Return the processor time of processes, and of this one, so far."""
    pids = {"this process": os.getpid()} | {name: process.pid for name, process in processes.items()}
    return {name: sum(psutil.Process(pid).cpu_times()[:2]) for name, pid in pids.items()}


def _sweep(words: list[str], processes: dict[str, subprocess.Popen[bytes]]) -> None:
    """Sweep, and print what it took."""
    from npusim.cli import main as command

    sys.argv[1:] = ["sweep", *words, "--keep", "pareto", "--quiet"]
    before, began = _processor_s(processes), time.perf_counter()
    try:
        status = command()
    except SystemExit as ended:
        status = ended.code
    wall_s, after = time.perf_counter() - began, _processor_s(processes)
    print(f"sweep {wall_s:.2f} s; processor time in s before it and during it:")
    for name, seconds in after.items():
        print(f"  {name:13}{before[name]:8.2f}{seconds - before[name]:8.2f}")
    if status:
        sys.exit(status)


def main() -> None:
    """Run one case."""
    space, out, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if not count:
        _sweep([space, "-o", out, "--cores", "1"], {})
        return
    with workers_of(count) as (address, processes):
        _sweep([space, "-o", out, "--scheduler", address], processes)


if __name__ == "__main__":
    main()
