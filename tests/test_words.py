"""The package speaks the field's words: no similes, no private names; `docs/glossary.md` has the words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "npusim"

_BANNED = """
Bench Bill Entrant Pace Piece Price Prices Road Sibling Staircase Way Workshop bench bill
ceiling_s dealt edges_s entrant extreme_rates extremes floor_s forget_rates gauge give hand
hands handed_on letterpress makers pressing pressings price prices priced pricing quote quote_s road
road_of say_goodbye shop stripe_bytes stripe_sizes stripes striped swings till together_s twin twins
unsteady weigh wired wires workshop
"""
LONGEST = 100
"""Characters of a summary line."""

BANNED = frozenset(_BANNED.split())
"""Names that say nothing to an architect."""

SIMILE = re.compile(
    r"(^|[.;:]\s)Like |\blike (a|an|the|those|someone|somebody|any|every)\b|\bas (a|an) \w+ does\b",
    re.MULTILINE,
)
"""How a comparison begins."""

PICTURES = re.compile(
    r"\b(bak(er|ery)|bookkeeper|carpenter|clerk|conveyor|dish(es)?|guests?|hotel|house|innkeeper|kitchen"
    r"|larder|laundry|letterpress|orchestra|pantry|piano|porter|price tags?|recipes?|repertoire|restaurant"
    r"|shops?|stage hands|suitcase|tailor|theatre|till|timetable|wardrobe|waiter|warehouse|workshop)\b",
    re.IGNORECASE,
)
"""What pictures are taken from; none belongs into a summary line."""


Modules = list[tuple[str, list[ast.AST]]]


@pytest.fixture(scope="module")
def modules() -> Modules:
    """Return (path, nodes of the syntax tree) of every module."""
    return [
        (str(path.relative_to(PACKAGE.parent)), list(ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


def documented(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of all docstrings: of the module, classes, functions and attributes."""
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text.strip()


def names(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of what a module defines: classes, functions, arguments, variables, attributes."""
    for node in nodes:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def test_no_name_is_private_to_the_house(modules: Modules) -> None:
    found = [f"{path}: the module itself" for path, _ in modules if Path(path).stem in BANNED]
    found += [
        f"{path}:{line}: {name}"
        for path, nodes in modules
        for line, name in names(nodes)
        if name.strip("_") in BANNED
    ]
    assert found == []


def test_no_docstring_says_what_a_thing_is_like(modules: Modules) -> None:
    found = [
        f"{path}:{line}: {match.group(0).strip()!r} in {text.splitlines()[0]!r}"
        for path, nodes in modules
        for line, text in documented(nodes)
        for match in (SIMILE.search(text), PICTURES.search(text.partition("\n")[0]))
        if match
    ]
    assert found == []


def test_every_summary_is_one_short_line(modules: Modules) -> None:
    """Of modules, classes and functions; every module has one."""
    found = []
    for path, nodes in modules:
        for node in nodes:
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                summary = (text or "").partition("\n\n")[0]
                if len(summary) > LONGEST or "\n" in summary or (isinstance(node, ast.Module) and not text):
                    found.append(f"{path}:{getattr(node, 'lineno', 1)}: {summary!r}")
    assert found == []
