"""What compares figures of two revisions finds each that moved, and says nothing else."""

import importlib.util
import json
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


def script(name: str) -> ModuleType:
    """Return a script as a module of its own."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Replays the first scenario and no sweep."""
    module = script("replay")
    first = list(islice(module.scenarios(), 1))
    monkeypatch.setattr(module, "scenarios", lambda: iter(first))
    monkeypatch.setattr(module, "SPACES", {})
    return module


def test_a_replay_names_the_figure_that_moved_alone(
    replay: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = replay.figures_here(1)
    ((name, ours),) = figures.items()
    latency_s = ours["latency_s"]
    assert latency_s > 0.0
    monkeypatch.setattr(replay, "_in_tree", lambda tree, every: figures)
    monkeypatch.setattr(sys, "argv", ["replay.py", "HEAD"])
    monkeypatch.setattr(replay, "figures_at", lambda revision, every: figures)
    assert replay.main() == 0
    assert "0 figures differ" in capsys.readouterr().out
    other = {name: ours | {"latency_s": 2.0 * latency_s}}
    monkeypatch.setattr(replay, "figures_at", lambda revision, every: other)
    assert replay.main() == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first == f"{name}: latency_s: {2.0 * latency_s} -> {latency_s}"
    assert last == "1 figures differ in 1 of 1 scenarios"


def test_a_scenario_is_replayed_in_a_process_and_kept(
    replay: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["replay.py", "--collect", str(file)])
    assert replay.main() == 0
    assert json.loads(file.read_text()) == json.loads(json.dumps(replay.figures_here(1)))


@pytest.fixture
def golden() -> ModuleType:
    """Compares with the stored errors."""
    return script("golden")


def test_every_suite_has_its_errors_in_the_table_or_is_long(golden: ModuleType) -> None:
    stored = json.loads(golden.STORED.read_text(encoding="utf-8"))
    suites = {file.stem for file in (ROOT / "validate").glob("*.yaml")} - set(golden.LONG)
    assert set(stored) >= suites and not set(stored) & set(golden.LONG)


def test_a_figure_that_moved_is_printed_with_old_new_and_difference(
    golden: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, other = tmp_path / "golden.json", tmp_path / "other.json"
    assert golden.main(["clocks", "--write"], file) == 0
    assert "absent ->" in capsys.readouterr().out
    table: dict[str, Any] = json.loads(file.read_text())
    group, statistics = next(iter(table["clocks"].items()))
    old = statistics["mean"]
    statistics["mean"] = 0.5
    other.write_text(json.dumps(table))
    assert golden.main([], file) == 0
    assert capsys.readouterr().out == "no figure moved\n"
    assert golden.main([], other) == 0
    assert capsys.readouterr().out == f"clocks, {group}, mean: 0.5 -> {old} ({old - 0.5:+.2g})\n"
