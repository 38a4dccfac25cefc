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
    script,
)
from npusim.errors import FileError, NpusimError
from npusim.files import write_whole
from npusim.reporting.html import plotting_library

MOST_POSITIONS = 1000
"""Positions of a picture up to which a page has all; beyond, each slider moves with the others at first."""
_HERE = Path(__file__).parent
Places = tuple[int, ...]
"""Place of each thumb among its slider's values; a slider with two ends has two thumbs."""


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

    def write(name: str, content: str) -> None:
        write_whole(folder / name, content.encode())
        tell(f"{folder / name}: {len(content.encode()) / 1e6:.2f} MB")

    folder.mkdir(parents=True, exist_ok=True)
    write("library.js", _library())
    for page in lessons():
        if not names or page.name in names:
            write(f"{page.name}.html", _page(page))
    listed = [page for page in lessons() if (folder / f"{page.name}.html").is_file()]
    entries = [[page.number, page.name, page.title, page.about] for page in listed]
    write("index.html", _document("Lessons", {"lessons": entries}))


def thumbs(slider: Slider) -> list[int]:
    """Return the place of each thumb of a slider at first."""
    ends = slider.value if isinstance(slider.value, tuple) else (slider.value,)
    return [list(slider.values).index(end) for end in ends]


def positions(picture: Picture) -> Iterator[Places]:
    """Yield the positions that a static page has; the first of two ends is not beyond the second."""
    thumbs_of = [(slider, place) for slider in picture.sliders.values() for place in thumbs(slider)]
    lines: list[list[Sequence[int]]] = [[range(len(slider.values)) for slider, _ in thumbs_of]]
    if prod(map(len, lines[0])) > MOST_POSITIONS:
        start = [[place] for _, place in thumbs_of]
        lines = [[*start[:i], stops, *start[i + 1 :]] for i, stops in enumerate(lines[0])]
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


def _html(text: str) -> str:
    """Return Markdown as the HTML of the live page, with links between static pages."""
    shown = re.sub(r'href="/lessons/(\w+)/"', r'href="\1.html"', mo.md(text).text)
    return shown.replace('href="/"', 'href="index.html"')


def shown_at(picture: Picture, places: Places) -> tuple[str, str, str]:
    """Return what a page shows at a position: drawing as JSON, empty where refused, its words, the text."""
    try:
        drawing, text = picture.show(**values_at(picture, places))
    except NpusimError as error:
        return "", "", f"<p>{escape(str(error))}</p>"
    said = alternative(drawing)
    return drawing_spec(drawing, picture.height), said, _html(text)


def _picture(picture: Picture, pool: dict[str, int]) -> dict[str, Any]:
    """Return sliders and positions of a picture; `pool` has the place of each value, as JSON."""

    def encoded(value: Any, depth: int) -> Any:
        if depth and isinstance(value, dict):
            return {key: encoded(each, depth - 1) for key, each in value.items()}
        if depth and isinstance(value, list) and value and isinstance(value[0], dict):
            return [encoded(each, depth - 1) for each in value]
        return pool.setdefault(json.dumps(value), len(pool))

    at = {}
    for places in positions(picture):
        spec, said, text = shown_at(picture, places)
        tree = encoded(json.loads(spec), 3) if spec else None
        at[",".join(map(str, places))] = [encoded(each, 0) for each in (tree, said, text)]
    sliders = [
        {
            "label": _html(slider.label),
            "values": [str(value) for value in slider.values],
            "start": thumbs(slider),
            "isList": isinstance(slider.value, str),
        }
        for slider in picture.sliders.values()
    ]
    return {"sliders": sliders, "isPlayer": picture.is_player, "at": at}


def _verdict(verdict: tuple[str, str]) -> list[str]:
    return [_html(verdict[0]), verdict[1]]


def _exercise(exercise: Exercise) -> dict[str, Any]:
    """Return an exercise with the verdict on each kind of answer."""
    beyond, unit = 7 * abs(exercise.right) + 7, f" (in {exercise.unit})" if exercise.unit else ""
    typed = {"right": exercise.right, "large": exercise.right + beyond, "small": exercise.right - beyond}
    return {
        "words": _html(f"**Exercise.** {exercise.words}{unit}"),
        "right": exercise.right,
        "within": exercise.within,
        "none": _verdict(exercise.verdict("no number")),
        "hints": [[wrong, _verdict(exercise.verdict(repr(wrong)))] for wrong in exercise.hints.values()],
        **{f"is_{name}": _verdict(exercise.verdict(repr(value))) for name, value in typed.items()},
    }


def _page(page: LessonPage) -> str:
    """Return the static page of a lesson."""
    lesson: Lesson = import_module(page.module).LESSON
    pool: dict[str, int] = {}
    data = {
        "name": page.name,
        "heading": _html(heading(page)) + _html(lesson.introduction(page)),
        "question": _html(f"**First a guess.** {lesson.question.words}"),
        "options": [_html(option) for option in lesson.question.options],
        "replies": [_verdict(lesson.question.verdict(option)) for option in lesson.question.options],
        "invitation": _html(INVITATION),
        "pictures": [_picture(picture, pool) for picture in lesson.pictures],
        "closing": _html(lesson.closing()) if lesson.closing else "",
        "exercise": _exercise(lesson.exercise),
        "links": _html(links(page)),
    }
    values = [json.loads(text) for text in pool]
    return _document(f"{page.number}. {page.title}", {**data, "pool": values})


def _document(title: str, data: dict[str, Any]) -> str:
    packed = base64.b64encode(zlib.compress(json.dumps(data).encode(), 9)).decode()
    style, static = ((_HERE / name).read_text(encoding="utf-8") for name in ("static.css", "static.js"))
    # Modules of live pages, as functions of a page without modules.
    figure, steps = (script(name).replace("export default", "return") for name in ("figure.js", "steps.js"))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>npusim: {escape(title)}</title><style>{style}</style></head><body><main></main>"
        f'<script type="text/plain" id="data">{packed}</script>'
        f"<script>const liveFigure = (() => {{{figure}}})(), liveSteps = (() => {{{steps}}})();\n"
        f"{static}</script></body></html>\n"
    )


def _library() -> str:
    """Return the plotting library and KaTeX, from marimo's own files, as one compressed string."""
    assets = Path(mo.__file__).parent / "_static" / "assets"
    for door in sorted(assets.glob("katex-*.js")):
        names = re.match(r'import\{(\w+) as \w+\}from"\./([\w.-]+)";export', door.read_text("utf-8"))
        if names:
            source, exports = (assets / names[2]).read_text("utf-8").rsplit("export{", 1)
            katex = re.search(rf"(\S+) as {names[1]}\b", exports.replace(",", " "))
            assert katex is not None
            formulas = f"(()=>{{{source};globalThis.npusimKatex={katex[1]}}})();"
            packed = _seven_bits(zlib.compress(f"{plotting_library()};\n{formulas}".encode(), 9))
            return f'globalThis.npusimLibrary = "{packed}";\nglobalThis.npusimLoaded?.();\n'
    raise FileError(
        str(assets), "holds no KaTeX that is known", "install the version of marimo that is pinned"
    )


def _seven_bits(content: bytes) -> str:
    """Return bytes as text of seven bits a character, which any encoding keeps, with a script's escapes."""
    bits = np.unpackbits(np.frombuffer(content, np.uint8))
    rows = np.pad(bits, (0, -len(bits) % 7)).reshape(-1, 7)
    text = (np.packbits(rows, axis=1)[:, 0] >> 1).tobytes().decode("ascii")
    return re.sub(r'[\\"]', r"\\\g<0>", text).replace("\n", "\\n").replace("\r", "\\r")
