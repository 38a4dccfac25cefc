"""What the shell offers when the user presses Tab.

Like a waiter who knows the menu: after the first letters he says the dishes that begin so.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["complete_soc", "complete_stack", "complete_stacks", "complete_workload"]

MODEL_FILES = (".yaml", ".yml", ".xml", ".onnx")


def complete_soc(incomplete: str) -> list[str]:
    """Return shipped SoCs and YAML files that begin as written."""
    from npusim.arch import soc_names

    return [*_matching(soc_names(), incomplete), *_files(incomplete, (".yaml", ".yml"))]


def complete_workload(incomplete: str) -> list[str]:
    """Return shipped workloads, workload files and model files that begin as written."""
    from npusim.workloads import workload_names

    return [*_matching(workload_names(), incomplete), *_files(incomplete, MODEL_FILES)]


def complete_stack(incomplete: str) -> list[tuple[str, str]]:
    """Return the stack as written, its last technique completed, each with what that technique does."""
    from npusim.techniques import get, technique_names

    *before, last = incomplete.split("+")
    head = "".join(f"{technique}+" for technique in before)
    named = {technique.partition(":")[0] for technique in before}
    open_names = [name for name in technique_names() if name not in named]
    return [(head + name, get(name).summary) for name in _matching(open_names, last)]


def complete_stacks(incomplete: str) -> list[str]:
    """Return named lists that begin as written, or stacks as written with the last one completed."""
    from npusim.techniques import stacks

    *before, last = incomplete.split(",")
    head = "".join(f"{stack}," for stack in before)
    completed = [head + stack for stack, _ in complete_stack(last)]
    return completed if before else [*_matching(stacks(), incomplete), *completed]


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _files(incomplete: str, suffixes: tuple[str, ...]) -> list[str]:
    """Return files of those kinds, and folders, that begin as written; none before the first letter."""
    if not incomplete:
        return []
    folder = Path(incomplete if incomplete.endswith("/") else str(Path(incomplete).parent))
    try:
        entries = sorted(folder.expanduser().iterdir())
    except OSError:
        return []
    prefix = incomplete[: incomplete.rfind("/") + 1]
    found = [
        prefix + entry.name + ("/" if entry.is_dir() else "")
        for entry in entries
        if (entry.is_dir() or entry.suffix in suffixes) and not entry.name.startswith(".")
    ]
    return _matching(found, incomplete)
