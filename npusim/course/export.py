"""Lessons as static pages: every position computed before, drawn by the scripts of the live pages.

A page holds its positions as deduplicated data. Plotting and formula libraries stand in one file beside
the pages, compressed and written as text of seven bits a character: a page needs no server and no network.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from html import escape
from importlib import import_module
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import marimo as mo
import numpy as np

from npusim.course.catalogue import LessonPage, lessons
from npusim.course.drawings import alternative
from npusim.course.lesson import (
    INVITATION,
    Exercise,
    Lesson,
    Picture,
    Slider,
    drawing_spec,
    heading,
    links,
)
from npusim.errors import FileError, NpusimError
from npusim.files import write_whole
from npusim.reporting.html import plotting_library

MOST_POSITIONS = 600
"""Positions of a picture up to which a page has all; beyond, lines of each slider through a grid."""
_HERE = Path(__file__).parent
Places = tuple[int, ...]
"""Place of each thumb among its slider's values; a slider with two ends has two."""


def export_lessons(folder: Path, names: Sequence[str], tell: Callable[[str], None]) -> None:
    """Write lessons as static pages, with an index and the library that they share.

    Parameters
    ----------
    folder : Path
        Made where it is missing; files of the same names are replaced.
    names : sequence of str
        Names of lessons; none: all.
    tell : callable
        Called with a line for each file: its name and size.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pages = [page for page in lessons() if not names or page.name in names]
    listed = [page for page in lessons() if page in pages or (folder / f"{page.name}.html").is_file()]
    files: dict[str, Callable[[], str]] = {"library.js": _library, "index.html": lambda: _index(listed)}
    for page in pages:
        files[f"{page.name}.html"] = lambda page=page: _page(page)  # type: ignore[misc]
    for name, content in files.items():
        size = content().encode()
        write_whole(folder / name, size)
        tell(f"{folder / name}: {len(size) / 1e6:.2f} MB")


def thumbs(slider: Slider) -> list[int]:
    """Return the place of each thumb of a slider at first."""
    ends = slider.value if isinstance(slider.value, tuple) else (slider.value,)
    return [list(slider.values).index(end) for end in ends]


def grid_of(picture: Picture) -> list[list[int]] | None:
    """Return the places of each thumb on the grid of a picture with too many positions; None: it has all."""
    sizes = [len(slider.values) for slider in picture.sliders.values() for _ in thumbs(slider)]
    starts = [place for slider in picture.sliders.values() for place in thumbs(slider)]
    if prod(sizes) <= MOST_POSITIONS:
        return None

    def grid(stops: int) -> list[list[int]]:
        even = (np.linspace(size - 1, 0, max(2, stops))[: stops - 1] for size in sizes)
        return [
            sorted({start, *(round(each) for each in places)})
            for start, places in zip(starts, even, strict=True)
        ]

    most = 1
    while sum(size * (most + 1) ** (len(sizes) - 1) for size in sizes) <= MOST_POSITIONS:
        most += 1
    return grid(most)


def positions(picture: Picture) -> Iterator[Places]:
    """Yield the positions that a static page has; the first of two ends is not beyond the second."""
    sizes = [len(slider.values) for slider in picture.sliders.values() for _ in thumbs(slider)]
    grid = grid_of(picture)
    lines: list[list[Sequence[int]]] = [[range(size) for size in sizes]]
    if grid is not None:
        lines = [
            [range(sizes[i]) if i == j else grid[j] for j in range(len(sizes))] for i in range(len(sizes))
        ]
    for places in dict.fromkeys(each for line in lines for each in product(*line)):
        values = values_at(picture, places).values()
        if all(value[0] <= value[1] for value in values if isinstance(value, tuple)):
            yield places


def values_at(picture: Picture, places: Places) -> dict[str, Any]:
    """Return the value of each slider where its thumbs stand at some places."""
    values: dict[str, Any] = {}
    rest = iter(places)
    for name, slider in picture.sliders.items():
        ends = tuple(slider.values[next(rest)] for _ in thumbs(slider))
        values[name] = ends if isinstance(slider.value, tuple) else ends[0]
    return values


class _Pool:
    """Values that the positions of a page share, each once."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def add(self, value: Any) -> int:
        return self._places.setdefault(json.dumps(value), len(self._places))

    def encoded(self, value: Any, depth: int = 3) -> Any:
        """Return a value with its parts replaced by their places in the pool."""
        if depth and isinstance(value, dict):
            return {key: self.encoded(each, depth - 1) for key, each in value.items()}
        if depth and isinstance(value, list) and value and isinstance(value[0], dict):
            return [self.encoded(each, depth - 1) for each in value]
        return self.add(value)

    @property
    def values(self) -> list[Any]:
        return [json.loads(text) for text in self._places]


def _markdown(text: str) -> str:
    """Return Markdown as the HTML of the live page, with links between static pages."""
    shown: str = mo.md(text).text
    return _static(shown)


def _static(shown: str) -> str:
    return re.sub(r'href="/lessons/(\w+)/"', r'href="\1.html"', shown).replace(
        'href="/"', 'href="index.html"'
    )


def shown_at(picture: Picture, places: Places) -> tuple[str | None, str, str]:
    """Return what a page shows at a position: drawing as JSON (None: refused), its words, the text below."""
    try:
        drawing, text = picture.show(**values_at(picture, places))
    except NpusimError as error:
        return None, "", f"<p>{escape(str(error))}</p>"
    said = alternative(drawing)
    return drawing_spec(drawing, picture.height), said, _markdown(text)


def _picture(picture: Picture, pool: _Pool) -> dict[str, Any]:
    at = {}
    for places in positions(picture):
        spec, said, text = shown_at(picture, places)
        tree = None if spec is None else pool.encoded(json.loads(spec))
        at[",".join(map(str, places))] = [pool.add(tree), pool.add(said), pool.add(text)]
    sliders = [
        {
            "label": _markdown(slider.label),
            "values": [str(value) for value in slider.values],
            "start": thumbs(slider),
            "isList": isinstance(slider.value, str),
        }
        for slider in picture.sliders.values()
    ]
    return {"sliders": sliders, "grid": grid_of(picture), "isPlayer": picture.is_player, "at": at}


def _verdict(verdict: tuple[str, str]) -> str:
    text, kind = verdict
    return f'<div class="verdict {kind}">{_markdown(text)}</div>'


def _exercise(exercise: Exercise) -> dict[str, Any]:
    beyond = 7 * abs(exercise.right) + 7
    typed = {"right": exercise.right, "large": exercise.right + beyond, "small": exercise.right - beyond}
    replies = {name: _verdict(exercise.verdict(f"{value!r}")) for name, value in typed.items()}
    replies["none"] = _verdict(exercise.verdict("no number"))
    hints = [[wrong, _verdict(exercise.verdict(f"{wrong!r}"))] for wrong in exercise.hints.values()]
    return {"right": exercise.right, "within": exercise.within, "replies": replies, "hints": hints}


def _page(page: LessonPage) -> str:
    """Return the static page of a lesson."""
    lesson: Lesson = import_module(page.module).LESSON
    pool, question = _Pool(), lesson.question
    data = {
        "name": page.name,
        "replies": [_verdict(question.verdict(option)) for option in question.options],
        "pictures": [_picture(picture, pool) for picture in lesson.pictures],
        "exercise": _exercise(lesson.exercise),
        "pool": pool.values,
    }
    options = "".join(
        f'<label><input type="radio" name="guess" value="{i}"> {_markdown(option)}</label>'
        for i, option in enumerate(question.options)
    )
    figures = "".join(f'<section class="figure" data-picture="{i}"></section>' for i in range(page.pictures))
    unit = f" (in {lesson.exercise.unit})" if lesson.exercise.unit else ""
    return _document(
        f"{page.number}. {page.title}",
        _static(heading(page).text),
        _static(lesson.introduction(page).text),
        f"<fieldset><legend>{_markdown(f'**First a guess.** {question.words}')}</legend>{options}</fieldset>",
        f'<div class="reply" role="status">{_markdown(INVITATION)}</div>{figures}',
        _markdown(lesson.closing()) if lesson.closing else "",
        f'<label class="exercise">{_markdown(f"**Exercise.** {lesson.exercise.words}{unit}")}'
        '<input inputmode="decimal" placeholder="a number"></label><div class="checked" role="status"></div>',
        '<p class="progress"></p>',
        _static(links(page).text),
        data=data,
    )


def _index(pages: Sequence[LessonPage]) -> str:
    """Return the list of lessons, with what was solved in this browser."""
    entries = "".join(
        f'<li value="{page.number}" data-name="{page.name}">'
        f'<a href="{page.name}.html">{escape(page.title)}</a><br>{escape(page.about)} <em></em></li>'
        for page in pages
    )
    lead = (
        "<h1>npusim: lessons</h1><p>Each asks for a guess, lets you move the machine, ends with an exercise."
    )
    data = {"names": [page.name for page in pages]}
    return _document("Lessons", lead, f'<ol>{entries}</ol><p class="progress"></p>', data=data)


def _document(title: str, *parts: str, data: dict[str, Any]) -> str:
    packed = base64.b64encode(zlib.compress(json.dumps(data).encode(), 9)).decode()
    scripts = ""
    for name in ("figure", "steps"):
        # Modules of the live page, as functions of a page without modules.
        source = (_HERE / f"{name}.js").read_text(encoding="utf-8").replace("export default", "return")
        scripts += f"globalThis.npusim_{name} = (() => {{\n{source}\n}})();\n"
    scripts += (_HERE / "static.js").read_text(encoding="utf-8")
    style = (_HERE / "static.css").read_text(encoding="utf-8")
    library = '<script src="library.js" async></script>' if "pictures" in data else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>npusim: {escape(title)}</title><style>{style}</style>{library}</head>"
        f'<body><main>{"".join(parts)}</main><script type="text/plain" id="data">{packed}</script>'
        f"<script>{scripts}</script></body></html>\n"
    )


def _library() -> str:
    """Return the plotting and the formula library as one compressed string of a script."""
    packed = _seven_bits(zlib.compress(f"{plotting_library()};\n{_formulas()}".encode(), 9))
    return f'globalThis.npusimLibrary = "{packed}";\nglobalThis.npusimLoaded?.();\n'


def _formulas() -> str:
    """Return KaTeX from marimo's own files, which a notebook draws its formulas with."""
    assets = Path(mo.__file__).parent / "_static" / "assets"
    for door in sorted(assets.glob("katex-*.js")):
        names = re.fullmatch(
            r'import\{(\w+) as \w+\}from"\./([\w.-]+)";export\{.*\};?\s*', door.read_text("utf-8")
        )
        if names:
            source, exports = (assets / names[2]).read_text("utf-8").rsplit("export{", 1)
            own = re.search(rf"(\S+?) as {names[1]}\b", exports.replace(",", " "))
            if own:
                return f"(()=>{{{source};globalThis.npusimKatex={own[1]}}})();"
    raise FileError(str(assets), "holds no KaTeX that is known")


def _seven_bits(content: bytes) -> str:
    """Return bytes as text of seven bits a character, with a script's escapes."""
    bits = np.unpackbits(np.frombuffer(content, np.uint8))
    rows = np.pad(bits, (0, -len(bits) % 7)).reshape(-1, 7)
    text = (np.packbits(rows, axis=1)[:, 0] >> 1).tobytes().decode("ascii")
    escapes: dict[str, str | int | None] = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return text.translate(str.maketrans(escapes))
