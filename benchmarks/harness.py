"""Measures each row of docs/performance.md before and after, by turns in one run, and writes the pages.

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
    LIMIT_S   what is stopped after that (60); BEFORE_S of single cases, for the revision before (15)
    PROFILE   the case of which shares of processor time are shown; else the last that takes up to 20 s

so it imports nothing of the harness, and the revision before needs no benchmarks. Each revision keeps its
compiled kernels and bytecode in .benchmarks, made before anything is measured; the first run of all takes
some minutes for that.
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
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks import growth, page, peers
from benchmarks.one import load_row

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS, DOCS = HERE / "results.json", ROOT / "docs"
KEPT = ROOT / ".benchmarks"
"""Trees of revisions, their compiled kernels and bytecode; `make clean` removes them."""
BASE = "88574a6"
"""The revision before the house was made smaller."""
_ENOUGH_S, _BEFORE_S, _PROFILED_S = 4.0, 15.0, 20.0
"""What has been measured for that long is not measured again; limit of the revision before; of a profile."""
Figures = dict[str, Any]
"""wall_s, processor_s, memory_mb, amount of one case; or `over_s` where it was stopped."""


def rows() -> dict[str, Path]:
    """Return the file of each row by its name, in the order of the table."""
    return {path.stem.partition("_")[2]: path for path in sorted((HERE / "rows").glob("[0-9]*.py"))}


class State(NamedTuple):
    """A revision that is measured, or this tree."""

    tree: Path
    kept: Path
    """Where its compiled kernels and bytecode lie."""

    @property
    def environment(self) -> dict[str, str]:
        """What a process that runs it sees."""
        told = {"PYTHONPATH": self.tree, "NPUSIM_CACHE": self.kept / "cache"}
        told |= {"PYTHONPYCACHEPREFIX": self.kept / "bytecode"}
        given = {
            k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "NPUSIM_KERNELS")
        }
        return given | {name: str(value) for name, value in told.items()}

    def compiled(self) -> int:
        """Return how many files of compiled code there are."""
        return sum(1 for _ in (self.kept / "cache").rglob("*.nb*"))


def checked_out(name: str) -> State:
    """Return the state of a revision: its files in a folder of their own, always the same."""
    told = ["git", "-C", str(ROOT), "rev-parse", "--short", f"{name}^{{commit}}"]
    kept = KEPT / subprocess.run(told, capture_output=True, text=True, check=True).stdout.strip()
    if not (kept / "tree").exists():
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept) as folder:
            archive, tree = Path(folder) / "tree.tar", Path(folder) / "tree"
            subprocess.run(["git", "-C", str(ROOT), "archive", "-o", str(archive), name], check=True)
            shutil.unpack_archive(archive, tree, filter="data")
            _declare(tree)
            tree.rename(kept / "tree")
    return State(kept / "tree", kept)


def _declare(tree: Path) -> None:
    """Give a tree its own entry points, which come before the entry points of the installed package."""
    groups = tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))["project"].get("entry-points", {})
    metadata = tree / "npusim-0.0.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: npusim\nVersion: 0.0.0\n", "utf-8")
    lines = [
        line
        for group, names in groups.items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in names.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", "utf-8")


def run_case(
    row: ModuleType, case: str, state: State, limit_s: float, profile: Path | None = None
) -> Figures:
    """Measure one case of a row once on one state; with a profile, sample it instead."""
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
                [sys.executable, *arguments], cwd=folder, env=state.environment, stdout=said, stderr=told
            )
            status, usage = _wait(child, began + limit_s)
            wall_s = time.perf_counter() - began
            if status is None:
                return {"over_s": limit_s}
            if status:
                told.seek(0)
                last = told.read().decode(errors="replace").strip().splitlines()[-1:]
                said_why = " ".join(last).partition(" (/")[0]  # without a path of this machine
                return {"failed": said_why[:200] or f"exit status {status}"}
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


def measure(row: ModuleType, states: dict[str, State]) -> dict[str, dict[str, Figures]]:
    """Return the figures of each case by state: medians of turns, one state after the other in each turn."""
    turns, limit_s = getattr(row, "TURNS", 3), getattr(row, "LIMIT_S", 60)
    found: dict[str, dict[str, Figures]] = {}
    for case in getattr(row, "COMMANDS", None) or row.CASES:
        limits_s = {"before": getattr(row, "BEFORE_S", {}).get(case, _BEFORE_S)}
        taken: dict[str, list[Figures]] = {name: [] for name in states}
        for _ in range(turns):
            for name, state in states.items():
                spent_s = sum(one.get("wall_s", _ENOUGH_S) for one in taken[name])
                if spent_s < _ENOUGH_S:
                    taken[name].append(_warm(row, case, state, limits_s.get(name, limit_s)))
        found[case] = {name: _median(figures) for name, figures in taken.items()}
    return found


def _warm(row: ModuleType, case: str, state: State, limit_s: float) -> Figures:
    """Measure a case, and once more where that compiled something."""
    before = state.compiled()
    figures = run_case(row, case, state, limit_s)
    return figures if before == state.compiled() else run_case(row, case, state, limit_s)


def profiled(row: ModuleType, state: State, found: dict[str, dict[str, Figures]]) -> Figures:
    """Return where the processor time of one case goes, by a sampling profiler; nothing of long ones."""
    quick = [
        case for case, one in found.items() if one["after"].get("wall_s", _PROFILED_S + 1.0) <= _PROFILED_S
    ]
    case = getattr(row, "PROFILE", None) or (quick[-1] if quick else None)
    if case is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "profile.json"
        run_case(row, case, state, 2.0 * _PROFILED_S, out)
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


def compile_kernels(state: State) -> None:
    """Have a state compile what it will need, so that no turn counts it; once for each revision."""
    done = state.kept / "cache" / "complete"
    if state.tree != ROOT and done.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "warming.yaml").write_text(json.dumps(_SPACE), encoding="utf-8")
        for arguments in _WARMING:
            command = [sys.executable, "-m", "npusim", *arguments]
            environment = {**state.environment, "NPUSIM_KERNELS": "compiled"}
            subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    done.touch()


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
    """Measure the rows that are asked for and write the pages."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    names = [*rows(), "growth"]
    told = f"rows to measure, of {', '.join(names)} and peers; default: all but peers"
    parser.add_argument("names", nargs="*", help=told)
    parser.add_argument("--base", default=BASE, help="revision to compare with")
    parser.add_argument("--page", action="store_true", help="write the pages of what was measured before")
    asked = parser.parse_args()
    wrong = [name for name in asked.names if name not in (*names, "peers")]
    if wrong:
        parser.error(f"no row {', '.join(wrong)}; there are {', '.join(names)}")
    results = json.loads(_text(str(RESULTS)) or "{}")
    if not asked.page:
        _measure_all(asked.names or names, asked.base, results)
    for name, text in page.pages({name: load_row(path) for name, path in rows().items()}, results).items():
        (DOCS / name).write_text(text, encoding="utf-8")


def _measure_all(names: list[str], base: str, results: dict[str, Any]) -> None:
    """Measure what is asked for; what is measured is kept after each row."""
    states = {"before": checked_out(base), "after": State(ROOT, KEPT / "here")}
    for name, state in states.items():
        began = time.perf_counter()
        compile_kernels(state)
        print(f"kernels of the state {name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    for name in names:
        began = time.perf_counter()
        profile: Figures = {}
        if name == "growth":
            found: Any = growth.measure(states["after"].environment)
            growth.write_pictures(found, DOCS)
        elif name == "peers":
            found = peers.measure()
        else:
            row = load_row(rows()[name])
            found = measure(row, states)
            profile = profiled(row, states["after"], found)
        results[name] = {"figures": found, "machine": machine(), "base": base, "revision": revision()}
        results[name] |= {"profile": profile} if profile else {}
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
