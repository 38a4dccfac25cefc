"""The shape of the code itself: small files, short functions, nothing half done, floors as documented."""

import ast
import re
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "npusim"
SOURCES = sorted(PACKAGE.rglob("*.py"))
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
UNTELLING_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body of a function; signature and docstring are what its readers are given."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def layers() -> list[set[str]]:
    """The floors of the import contract, lowest first, each as the set of the modules on it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (floors,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["npusim"]]
    return [set(re.findall(r"\w+", floor)) for floor in reversed(floors)]


def modules_of_the_package() -> set[str]:
    """The packages and modules right below npusim that hold code."""
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    return folders | files


def test_each_module_is_one_documented_idea_with_short_functions() -> None:
    problems = []
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        if text.count("\n") >= MAX_FILE_LINES:
            problems.append(f"{relative(path)} has {text.count(chr(10))} lines: is it one idea?")
        if path.stem in UNTELLING_NAMES:
            problems.append(f"{relative(path)} does not say what is in it")
        if not ast.get_docstring(tree):
            problems.append(f"{relative(path)} has no docstring")
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and lines_of(node) > MAX_FUNCTION_LINES
            ):
                problems.append(f"{relative(path)}: {node.name} has {lines_of(node)} lines")
    assert not problems, "\n".join(problems)


def test_nothing_is_left_half_done() -> None:
    mark = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XXX|HACK)\b|NotImplemented" + "Error")
    found = [
        f"{relative(path)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if mark.search(line)
    ]
    assert not found, "\n".join(found)


def test_no_comment_is_a_banner() -> None:
    banner = re.compile(r"^\s*#\s*[-=*#]{3,}")
    lines = [
        f"{relative(path)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if banner.search(line)
    ]
    assert not lines, "\n".join(lines)


def test_every_module_has_a_floor() -> None:
    assert modules_of_the_package() <= set().union(*layers())


def test_the_documented_floors_are_those_of_the_code() -> None:
    document = ROOT / "docs" / "architecture.md"
    rows = re.findall(r"^\|\s*\d+\s*\|([^|]*)\|", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    documented = [
        {Path(name.rstrip("/")).stem for name in re.findall(r"`([\w./]+)`", row)} - {"npusim"} for row in rows
    ]
    existing = modules_of_the_package()
    assert documented, "docs/architecture.md has no table of floors: | number | packages | what lives there |"
    assert set().union(*documented) == existing
    order = {module: number for number, floor in enumerate(layers()) for module in floor}
    for lower, higher in pairwise(documented):
        assert max(order[m] for m in lower) < min(order[m] for m in higher), (
            f"{lower} is documented below {higher}"
        )


def test_the_documented_counts_are_those_of_the_code() -> None:
    """Files exactly, code lines to the nearest hundred: `python scripts/size.py` prints both."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    stated = re.search(r"`npusim/` has ([\d,]+) files and ([\d,]+) code lines", page)
    assert stated is not None
    files, lines = (int(number.replace(",", "")) for number in stated.groups())
    printed = subprocess.run(
        [sys.executable, "scripts/size.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    counted = printed.splitlines()[-1].split()
    assert (files, lines) == (int(counted[1]), round(int(counted[3]), -2))
