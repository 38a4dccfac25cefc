"""The lessons by number: modules in `lessons/` and of other packages, known by their docstrings."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from npusim.plugins import announced, folder_of

_DOCSTRING = re.compile(r"(\d+)\. ([^\n]+?)\.?\n\n(.+?)(?:\n\n(.*?))?\n\nQuestion\n-+\n.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LessonPage:
    """What the docstring of a lesson says, and where its module lies."""

    number: int
    name: str
    """Name of its address."""
    title: str
    about: str
    """What it answers, in a sentence or two."""
    introduction: str
    """Markdown, with `{name}` for numbers that the lesson fills in."""
    path: Path
    module: str


@cache
def lessons() -> tuple[LessonPage, ...]:
    """Return the page of every lesson in order, without importing the lesson.

    Raises
    ------
    ValueError
        A docstring does not begin with a number and a title, or two lessons have one number.
    """
    folder = Path(__file__).with_name("lessons")
    names = (path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    sources = {name: (folder / f"{name}.py", f"npusim.course.lessons.{name}") for name in names}
    for name, entry in announced("npusim.lessons").items():
        sources[name] = folder_of(entry) / f"{entry.module.rpartition('.')[2]}.py", entry.module
    pages = sorted((_read(name, *source) for name, source in sources.items()), key=lambda page: page.number)
    if len({page.number for page in pages}) < len(pages):
        raise ValueError(f"{folder}: two lessons have one number")
    return tuple(pages)


def _read(name: str, path: Path, module: str) -> LessonPage:
    source = path.read_text(encoding="utf-8")
    parts = _DOCSTRING.fullmatch(ast.get_docstring(ast.parse(source)) or "")
    if parts is None:
        raise ValueError(
            f"{path}: the docstring must have `number. title`, what it answers, `Question` and `Exercise`"
        )
    number, title, about, introduction = parts.groups()
    about = " ".join(about.split())
    return LessonPage(int(number), name, title, about, introduction or "", path, module)
