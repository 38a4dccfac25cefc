"""Pages of lessons, live and static: one document, one script, and data that say what the page holds.

A static page holds its positions; a live page asks the server for each position that a visitor reaches.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Sequence
from html import escape
from importlib import import_module
from importlib.util import find_spec
from inspect import cleandoc
from pathlib import Path
from typing import Any

from markdown import markdown

from npusim.course.catalogue import LessonPage, lessons
from npusim.course.words import word, words
from npusim.errors import FileError, NpusimError
from npusim.reporting.html import frame, text_beside
from npusim.reporting.plotly_library import KINDS_OF_LESSONS, plotting_library

Places = tuple[int, ...]
"""Place of each thumb among its slider's values; a slider with two ends has two thumbs."""
Address = Callable[[str], str]
"""Returns the address of a lesson's page by its name, and of the list of lessons by an empty name."""


def thumbs(slider: Any) -> list[int]:
    """Return the place of each thumb of a slider at first."""
    ends = slider.value if isinstance(slider.value, tuple) else (slider.value,)
    return [list(slider.values).index(end) for end in ends]


def values_at(picture: Any, places: Places) -> dict[str, Any]:
    """Return the value of each slider where its thumbs stand at some places."""
    values: dict[str, Any] = {}
    rest = iter(places)
    for name, slider in picture.sliders.items():
        ends = tuple(slider.values[next(rest)] for _ in thumbs(slider))
        values[name] = ends if isinstance(slider.value, tuple) else ends[0]
    return values


def shown_at(picture: Any, places: Places) -> tuple[str, str, str]:
    """Return what a page shows at a position: drawing as JSON, empty where refused, its words, the text."""
    from npusim.course.drawings import alternative
    from npusim.course.lesson import drawing_spec

    try:
        drawing, text = picture.show(**values_at(picture, places))
    except NpusimError as error:
        return "", "", f"<p>{escape(str(error))}</p>"
    said = alternative(drawing)
    return drawing_spec(drawing, picture.height), said, html(text)


def written(value: float | str) -> str:
    """Return a value of a slider as it is shown: whole numbers without decimals."""
    return value if isinstance(value, str) else f"{value:.15g}"


def html(text: str) -> str:
    """Return Markdown as HTML; formulas stay as they are written, for KaTeX."""
    shown: str = markdown(
        cleandoc(text),
        extensions=["tables", "pymdownx.superfences", "pymdownx.arithmatex"],
        extension_configs={"pymdownx.arithmatex": {"generic": True}},
    )
    return shown


def picture_data(picture: Any) -> dict[str, Any]:
    """Return the sliders of a picture, without positions."""
    sliders = [
        {
            "label": html(slider.label),
            "values": [written(value) for value in slider.values],
            "start": thumbs(slider),
            "isList": isinstance(slider.value, str),
        }
        for slider in picture.sliders.values()
    ]
    return {"sliders": sliders, "isPlayer": picture.is_player, "at": {}}


def _verdict(verdict: tuple[str, str]) -> list[str]:
    return [html(verdict[0]), verdict[1]]


def _exercise(exercise: Any) -> dict[str, Any]:
    """Return an exercise with the verdict on each kind of answer."""
    beyond, unit = (
        7 * abs(exercise.right) + 7,
        f" {word('in_unit', unit=exercise.unit)}" if exercise.unit else "",
    )
    typed = {"right": exercise.right, "large": exercise.right + beyond, "small": exercise.right - beyond}
    return {
        "words": html(f"**{word('exercise')}** {exercise.words}{unit}"),
        "right": exercise.right,
        "within": exercise.within,
        "none": _verdict(exercise.verdict("no number")),
        "hints": [[wrong, _verdict(exercise.verdict(repr(wrong)))] for wrong in exercise.hints.values()],
        **{f"is_{name}": _verdict(exercise.verdict(repr(value))) for name, value in typed.items()},
    }


def lesson_data(page: LessonPage) -> dict[str, Any]:
    """Return what the page of a lesson holds, without positions of its pictures."""
    lesson = import_module(page.module).LESSON
    return {
        "introduction": html(lesson.introduction(page)),
        "question": html(f"**{word('guess')}** {lesson.question.words}"),
        "options": [html(option) for option in lesson.question.options],
        "replies": [_verdict(lesson.question.verdict(option)) for option in lesson.question.options],
        "invitation": html(f"*{word('invitation')}*"),
        "pictures": [picture_data(picture) for picture in lesson.pictures],
        "pool": [],
        "closing": html(lesson.closing()) if lesson.closing else "",
        "exercise": _exercise(lesson.exercise),
    }


def stored_data(page: LessonPage) -> dict[str, Any]:
    """Return the data of a lesson with its first pictures that stand beside its module; nothing without.

    `python scripts/first_pictures.py` writes them for lessons that take seconds on a new machine.
    """
    path = page.path.with_suffix(".json")
    is_there = path.is_file() and words()["language"] == "en"
    return json.loads(path.read_text("utf-8")) if is_there else {}


def places_of(text: str, counts: Sequence[int]) -> Places:
    """Return the places that a text such as 3,0,12 names, below `counts`; nothing where it names no such."""
    places = tuple(int(place) for place in re.findall(r"[0-9]{1,6}", text))
    if text != ",".join(map(str, places)) or len(places) != len(counts):
        return ()
    return places if all(at < count for at, count in zip(places, counts, strict=True)) else ()


def lesson_document(
    page: LessonPage,
    address: Address,
    data: dict[str, Any],
    library: str,
    others: dict[str, Any] | None = None,
) -> str:
    """Return the page of a lesson as HTML.

    Parameters
    ----------
    page : LessonPage
    address : callable
    data : dict
        What `lesson_data` returns; on a live page empty: the page asks for it.
    library : str
        Address of the plotting library.
    others : dict, optional
        Positions of a static page beyond the first ones.
    """
    pages = [None, *lessons(), None]
    before, after = (pages[pages.index(page) + step] for step in (-1, 1))
    links = [
        f'<a href="{address(before.name)}">← {escape(before.title)}</a>' if before else "",
        f'<a href="{address("")}">{word("all_lessons")}</a>',
        f'<a href="{address(after.name)}">{escape(after.title)} →</a>' if after else "",
    ]
    title = f"{page.number}. {page.title}"
    shown = (
        f'<p>{links[1]}</p><h1>{escape(title)}</h1><p>{escape(page.about)}</p><div id="lesson"></div>'
        f'<p class="progress"></p><p>{" &nbsp; ".join(filter(None, links))}</p>'
    )
    return document(title, shown, {"name": page.name, "library": library, **data}, others=others)


def list_document(pages: Sequence[LessonPage], address: Address, more: str = "") -> str:
    """Return the list of lessons as a page; `more` is HTML below it."""
    entries = "".join(
        f'<li value="{page.number}" data-name="{page.name}"><a href="{address(page.name)}">'
        f"{escape(page.title)}</a><br>{escape(page.about)} <em></em></li>"
        for page in pages
    )
    shown = (
        f"<h1>{word('lessons_heading')}</h1><p>{word('lessons_about')}</p>"
        f'<ol>{entries}</ol>{more}<p class="progress"></p>'
    )
    return document(word("lessons"), shown, {})


def document(
    title: str, shown: str, data: dict[str, Any], *scripts: str, others: dict[str, Any] | None = None
) -> str:
    """Return a page with what it shows, its data, and further scripts by name."""

    def beside(name: str) -> str:
        return text_beside(__file__, name)

    # Each stands in a function of its own.
    figure, steps = (beside(name).replace("export default", "return") for name in ("figure.js", "steps.js"))
    texts, more = json.dumps(words()).replace("</", "<\\/"), "".join(map(beside, scripts))
    below = (
        f"{_packed('data', data)}<script>const WORDS = {texts};\n"
        f"const figureIn = (() => {{{figure}}})(), machineIn = (() => {{{steps}}})();\n"
        f"{more}{beside('page.js')}</script>{_packed('others', others) if others else ''}"
    )
    icon = '<link rel="icon" href="data:,">'
    style, language = beside("page.css"), word("language")
    return frame(title, style, shown, head=icon, scripts=below, language=language)


def _packed(name: str, data: dict[str, Any]) -> str:
    """Return data as an element of a page."""
    return f'<script type="text/plain" id="{name}">{packed(json.dumps(data))}</script>'


def packed(content: str) -> str:
    """Return text as base64 that `page.js` unpacks."""
    return base64.b64encode(zlib.compress(content.encode(), 9)).decode()


def libraries() -> str:
    """Return the plotting library and KaTeX, from marimo's own files, as one script."""
    marimo = find_spec("marimo")
    assert marimo is not None and marimo.origin is not None
    assets = Path(marimo.origin).parent / "_static" / "assets"
    for door in sorted(assets.glob("katex-*.js")):
        names = re.match(r'import\{(\w+) as \w+\}from"\./([\w.-]+)";export', door.read_text("utf-8"))
        if names:
            source, exports = (assets / names[2]).read_text("utf-8").rsplit("export{", 1)
            katex = re.search(rf"(\S+) as {names[1]}\b", exports.replace(",", " "))
            assert katex is not None
            plotly = plotting_library(KINDS_OF_LESSONS)
            return f"{plotly};\n(()=>{{{source};globalThis.npusimKatex={katex[1]}}})();"
    raise FileError(
        str(assets), "holds no KaTeX that is known", "install the version of marimo that is pinned"
    )
