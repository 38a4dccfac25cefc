"""Each paper's system is one package: the core knows none of them, and works where they are removed."""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from npusim.course.catalogue import lessons

ROOT = Path(__file__).resolve().parents[1]
SLICES = ("llm", "magnas", "pruning", "decomposition")
CORE_WORK = """
import importlib, pkgutil, sys
import npusim
from npusim.cli.program import run
from npusim.plugins import GROUPS, announced

missing = {"dask", "distributed", "openvino", "torch", "torch_geometric", "pymoo", "marimo"}
for module in pkgutil.walk_packages(npusim.__path__, "npusim."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            assert (error.name or "").partition(".")[0] in missing, (module.name, error)
for words in (["list", "workloads"], ["list", "suites"], ["list", "techniques"], ["--help"],
              ["estimate", "gcn-cora", "-t", "stagr"], ["validate", "silicon-dma"], ["schema", "estimate"]):
    assert run(words) == 0, words
for removed in sys.argv[1:]:
    assert not any(f"npusim.{removed}" in name for name in sys.modules)
    assert not any(f"npusim.{removed}." in e.value for group in GROUPS for e in announced(group).values())
"""
"""Imports every module of the package that is left, and runs commands of the core."""


def named_modules(path: Path) -> set[str]:
    """Return the packages of npusim that a source names, in imports or in strings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            names.add(node.value.partition(":")[0])
    return {name.split(".")[1] for name in names if name.startswith("npusim.") and name.count(".")}


@pytest.mark.laws
def test_the_core_names_no_slice_and_no_slice_another() -> None:
    sources = [path for ending in ("*.py", "*.pyi") for path in (ROOT / "npusim").rglob(ending)]
    for path in sources:
        home = path.relative_to(ROOT / "npusim").parts[0]
        assert not named_modules(path) & (set(SLICES) - {home}), path


def test_lessons_of_core_and_slices_are_numbered_without_a_gap() -> None:
    numbers = [lesson.number for lesson in lessons()]
    assert numbers == list(range(1, len(numbers) + 1))


def without(folder: Path, removed: tuple[str, ...], *more: str) -> dict[str, str]:
    """Copy the package without some slices and return the environment of a process that imports the copy."""
    for name in ("npusim", "configs", "workloads", "validate", *more):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in removed:
        shutil.rmtree(folder / "npusim" / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines: list[str] = []
    for group, entries in project["entry-points"].items():
        kept = [
            f"{name} = {value}"
            for name, value in entries.items()
            if not any(value.startswith(f"npusim.{slice}.") for slice in removed)
        ]
        lines += [f"[{group}]", *kept]
    info = folder / "npusim-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: npusim\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return {**os.environ, "PYTHONPATH": str(folder), "NPUSIM_KERNELS": "auto"}


@pytest.mark.slow
@pytest.mark.parametrize("removed", [SLICES, *((name,) for name in SLICES)], ids="+".join)
def test_the_core_works_without(removed: tuple[str, ...], tmp_path: Path) -> None:
    environment = without(tmp_path, removed)
    subprocess.run(
        [sys.executable, "-c", CORE_WORK, *removed], check=True, env=environment, cwd=tmp_path, stdout=-3
    )


OF_THE_CHECKOUT = (
    "architecture",
    "cli_readme",
    "glossary",
    "locate",
    "packaging",
    "site",
    "slices",
    "techniques_page",
    "walk",
)
"""Tests of the whole checkout: its installation, documentation, README, wheel and layers."""


@pytest.mark.slow
def test_the_tests_of_the_core_pass_without_slices(tmp_path: Path) -> None:
    environment = without(tmp_path, SLICES, "tests", "scripts", "docs")
    for name in SLICES:
        shutil.rmtree(tmp_path / "tests" / name)
    ignored = [f"--ignore=tests/test_{name}.py" for name in OF_THE_CHECKOUT]
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "tests", *ignored]
    subprocess.run([sys.executable, *words], check=True, env=environment, cwd=tmp_path)
