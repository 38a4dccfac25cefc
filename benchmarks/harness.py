"""Measures each row of docs/performance.md before and after, by turns in one run, and writes the page.

`make bench` measures all rows, `make bench ROWS="sram pareto"` some of them; the others keep the figures of
benchmarks/results.json. The state before is a revision (`BASE`), checked out into a temporary folder. A row
is a file of benchmarks/rows that declares

    WHAT      what is measured, a cell of the table
    WANTED    what is wanted of it
    UNIT      what `work` does so many of, where the table shall have a rate; else nothing
    COMMANDS  case to arguments of Python: whole processes, start included; {out} is an empty folder; or
    CASES     names of cases, with `prepare(case)` and `work(case)`: a process each, `work` alone is measured
    AMOUNTS   of commands, how much of UNIT each case does; `work` returns it
    TURNS     how often each is measured at most (3), the median counts; what takes long is measured once
    LIMIT_S   what is stopped after that (60); BEFORE_S of single cases, for the revision before
    PROFILE   the case of which shares of processor time are shown; the last one without

so it imports nothing of the harness, and the revision before needs no benchmarks.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks import growth, page, peers
from benchmarks.one import load_row
from npusim.locate import cache_dir

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS, PAGE = HERE / "results.json", ROOT / "docs" / "performance.md"
BASE = "ea1ea17"
"""The revision before the first of these rows was worked on."""
_ENOUGH_S = 6.0
"""What has been measured for that long is not measured again."""
Figures = dict[str, Any]
"""wall_s, processor_s, memory_mb, amount of one case; or `over_s` where it was stopped."""


def rows() -> dict[str, Path]:
    """Return the file of each row by its name, in the order of the table."""
    return {path.stem.partition("_")[2]: path for path in sorted((HERE / "rows").glob("[0-9]*.py"))}


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """Yield a temporary folder with a revision's files."""
    with tempfile.TemporaryDirectory(prefix="npusim-base-") as folder:
        archive = Path(folder) / "tree.tar"
        with archive.open("wb") as file:
            subprocess.run(["git", "-C", str(ROOT), "archive", revision], stdout=file, check=True)
        tree = Path(folder) / "tree"
        shutil.unpack_archive(archive, tree, filter="data")
        yield tree


def run_case(row: ModuleType, case: str, tree: Path, limit_s: float, profile: Path | None = None) -> Figures:
    """Measure one case of a row once on one tree; with a profile, sample it instead."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    commands = getattr(row, "COMMANDS", None)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        if commands:
            arguments = [part.replace("{out}", str(out)) for part in commands[case]]
        else:
            arguments = ["-P", str(HERE / "one.py"), str(row.__file__), case]
        if profile is not None:
            sampled = arguments if commands else ["run", *arguments[1:]]
            arguments = ["-P", str(HERE / "sampling.py"), str(profile), *sampled]
        with (Path(folder) / "said").open("w+b") as said, (Path(folder) / "told").open("w+b") as told:
            began = time.perf_counter()
            child = subprocess.Popen(
                [sys.executable, *arguments], cwd=folder, env=environment, stdout=said, stderr=told
            )
            status, usage = _wait(child, began + limit_s)
            wall_s = time.perf_counter() - began
            if status is None:
                return {"over_s": limit_s}
            if status:
                told.seek(0)
                last = told.read().decode(errors="replace").strip().splitlines()[-1:]
                return {"failed": " ".join(last)[:200] or f"exit status {status}"}
            said.seek(0)
            if not commands:
                found: Figures = json.loads(said.read().splitlines()[-1])
                return found
    amount = getattr(row, "AMOUNTS", {}).get(case)
    return {
        "wall_s": wall_s,
        "processor_s": usage.ru_utime + usage.ru_stime,
        "memory_mb": usage.ru_maxrss / 1024,
        "amount": amount,
    }


def _wait(child: subprocess.Popen[bytes], deadline: float) -> tuple[int | None, Any]:
    """Wait for a process with its use of resources; None where it was stopped at the deadline."""
    while True:
        process, status, usage = os.wait4(child.pid, os.WNOHANG)
        if process:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode, usage
        if time.perf_counter() > deadline:
            child.kill()
            os.wait4(child.pid, 0)
            child.returncode = -9
            return None, None
        time.sleep(0.002)


def measure(row: ModuleType, trees: dict[str, Path]) -> dict[str, dict[str, Figures]]:
    """Return the figures of each case by tree: medians of turns, one tree after the other in each turn."""
    turns, limit_s = getattr(row, "TURNS", 3), getattr(row, "LIMIT_S", 60)
    found: dict[str, dict[str, Figures]] = {}
    for case in getattr(row, "COMMANDS", None) or row.CASES:
        limits_s = {"before": getattr(row, "BEFORE_S", {}).get(case, limit_s)}
        taken: dict[str, list[Figures]] = {name: [] for name in trees}
        for _ in range(turns):
            for name, tree in trees.items():
                spent_s = sum(one.get("wall_s", _ENOUGH_S) for one in taken[name])
                if spent_s < _ENOUGH_S:
                    taken[name].append(_warm(row, case, tree, limits_s.get(name, limit_s)))
        found[case] = {name: _median(figures) for name, figures in taken.items()}
    return found


def _warm(row: ModuleType, case: str, tree: Path, limit_s: float) -> Figures:
    """Measure a case, and once more where that compiled something."""
    before = _compiled()
    figures = run_case(row, case, tree, limit_s)
    return figures if before == _compiled() else run_case(row, case, tree, limit_s)


def _compiled() -> int:
    """Return how many files of compiled code there are."""
    return sum(1 for _ in cache_dir("kernels").rglob("*.nb*"))


def profiled(row: ModuleType, tree: Path) -> Figures:
    """Return where the processor time of one case goes, by a sampling profiler."""
    cases = list(getattr(row, "COMMANDS", None) or row.CASES)
    case = getattr(row, "PROFILE", cases[-1])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "profile.json"
        run_case(row, case, tree, getattr(row, "LIMIT_S", 60), out)
        return {"case": case, **json.loads(_text(str(out)) or "{}")}


_WARMING = (
    ("estimate", "gcn-cora"),
    ("estimate", "gcn-cora", "--engine", "event"),
    ("sweep", "warming.yaml", "-o", "warm", "--quiet"),
)
_SPACE = {
    "schema": "npusim.space/1", "workload": "gcn-cora", "keep": "pareto",
    "axes": {"npu.tiles": {"values": [1, 2]}, "npu.dsp.per_tile": {"values": [1, 2]}},
}  # fmt: skip


def compile_kernels(tree: Path) -> None:
    """Have a tree compile what it will need, so that no turn counts it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "warming.yaml").write_text(json.dumps(_SPACE), encoding="utf-8")
        for arguments in _WARMING:
            command = [sys.executable, "-m", "npusim", *arguments]
            environment = {**os.environ, "PYTHONPATH": str(tree), "NPUSIM_KERNELS": "compiled"}
            subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


def _median(turns: list[Figures]) -> Figures:
    good = [figures for figures in turns if "wall_s" in figures]
    if not good:
        return turns[0]
    return {key: statistics.median(one[key] for one in good) if good[0][key] is not None else None
            for key in good[0]}  # fmt: skip


def machine() -> str:
    """Return what the figures were measured on."""
    names = [line for line in _text("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    name = names[0].partition(":")[2].strip() if names else platform.processor() or platform.machine()
    return f"{os.cpu_count()} cores of {name}"


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def revision() -> str:
    """Return the revision of this tree, with a plus where files differ from it."""
    described = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return described.stdout.strip()


def main() -> None:
    """Measure the rows that are asked for and write the page."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    names = [*rows(), "growth", "peers"]
    parser.add_argument("names", nargs="*", help=f"rows to measure, of {', '.join(names)}; default: all")
    parser.add_argument("--base", default=BASE, help="revision to compare with")
    parser.add_argument("--page", action="store_true", help="write the page of what was measured before")
    asked = parser.parse_args()
    wrong = [name for name in asked.names if name not in names]
    if wrong:
        parser.error(f"no row {', '.join(wrong)}; there are {', '.join(names)}")
    results = json.loads(_text(str(RESULTS)) or "{}")
    if not asked.page:
        _measure_all(asked.names or names, asked.base, results)
    PAGE.write_text(page.written({name: load_row(path) for name, path in rows().items()}, results), "utf-8")


def _measure_all(names: list[str], base: str, results: dict[str, Any]) -> None:
    """Measure what is asked for; what is measured is kept after each row."""
    with checked_out(base) as before:
        trees, profiles = {"before": before, "after": ROOT}, dict[str, Figures]()
        for tree in trees.values():
            compile_kernels(tree)
        for name in names:
            began = time.perf_counter()
            if name == "growth":
                found: Any = growth.measure(ROOT)
                growth.write_pictures(found, PAGE.parent)
            elif name == "peers":
                found = peers.measure()
            else:
                row = load_row(rows()[name])
                found = measure(row, trees)
                profiles[name] = profiled(row, ROOT)
            results[name] = {"figures": found, "machine": machine(), "base": base, "revision": revision()}
            results[name] |= {"profile": profiles[name]} if name in profiles else {}
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
