"""A pruning that is killed keeps its trainings, and ends as one that nothing disturbed."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from test_killed import ran

pytest.importorskip("torch_geometric")

PRUNE = ["prune", "gcn-cora", "--budget", "2,4", "-o"]


def figures(value: Any) -> Any:
    """Return a document without the times of its steps."""
    if isinstance(value, dict):
        return {name: figures(part) for name, part in value.items() if not name.endswith("ing_s")}
    return [figures(part) for part in value] if isinstance(value, list) else value


@pytest.mark.slow
def test_a_killed_pruning_keeps_its_trainings(tmp_path: Path, planetoid_root: Path) -> None:
    def pruned(file: str, cache: str, renames: int = 0, **more: Any) -> Any:
        variables = {"NPUSIM_CACHE": str(tmp_path / cache), "NPUSIM_DATA": str(planetoid_root)}
        return ran([*PRUNE, file], tmp_path, renames, target="trained", **more, **variables)

    assert pruned("whole.json", "one").returncode == 0
    killed = pruned("a.json", "two", renames=4)
    assert killed.returncode == -signal.SIGKILL and not (tmp_path / "a.json").exists()
    kept = {file: os.stat(file).st_mtime_ns for file in (tmp_path / "two").rglob("*.npz")}
    assert len(kept) == 3
    full = pruned("a.json", "two", most_bytes=700)
    assert full.returncode == 2 and "a.json: cannot be written" in full.stderr, full.stderr
    again = pruned("a.json", "two")
    assert again.returncode == 0, again.stderr
    assert {file: os.stat(file).st_mtime_ns for file in kept} == kept
    documents = [json.loads((tmp_path / name).read_text()) for name in ("whole.json", "a.json")]
    assert figures(documents[0]) == figures(documents[1])
