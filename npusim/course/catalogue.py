"""The lessons: notebooks in `lessons/` and of other packages, by the number in their docstring."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from npusim.plugins import announced, folder_of

_FIRST_LINE = re.compile(r"(\d+)\. (.+?)\.?\n\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Lesson:
    """A lesson and where its notebook lies."""

    number: int
    name: str
    """Name of the file, and of its address."""
    title: str
    about: str
    """What it answers, in a sentence or two."""
    path: Path
    module: str
    """Name of the module."""


@cache
def lessons() -> tuple[Lesson, ...]:
    """Return every lesson in order.

    Raises
    ------
    ValueError
        A notebook's docstring does not begin with a number and a title, or two have one number.
    """
    folder = Path(__file__).with_name("lessons")
    notebooks = {
        path.stem: (path, f"npusim.course.lessons.{path.stem}")
        for path in folder.glob("*.py")
        if path.stem != "__init__"
    }
    for name, entry in announced("npusim.lessons").items():
        notebooks[name] = folder_of(entry) / f"{entry.module.rpartition('.')[2]}.py", entry.module
    read = [_read(name, *notebook) for name, notebook in notebooks.items()]
    by_number = {lesson.number: lesson for lesson in read}
    if len(by_number) < len(read):
        raise ValueError(f"{folder}: two lessons have one number")
    return tuple(by_number[number] for number in sorted(by_number))


def _read(name: str, path: Path, module: str) -> Lesson:
    begun = _FIRST_LINE.fullmatch(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
    if begun is None:
        raise ValueError(
            f"{path}: the docstring must be a line `number. title`, a blank line, and what it answers"
        )
    number, title, about = begun.groups()
    return Lesson(int(number), name, title, " ".join(about.split()), path, module)
