"""Lessons as static pages: every position computed before, so that they need no server and no network.

A page holds its positions as deduplicated data. Plotting and formula libraries stand in one file beside
the pages, compressed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from npusim.course import pages
from npusim.course.catalogue import LessonPage, lessons
from npusim.course.lesson import Picture
from npusim.files import write_whole

MOST_POSITIONS = 1000
"""Positions of a picture up to which a page has all; beyond, each slider moves with the others at first."""


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
    write("library.js", f'globalThis.npusimLibrary = "{pages.packed(pages.libraries())}";\n')
    for page in lessons():
        if not names or page.name in names:
            data = with_first(page)
            others = other_positions(page, data["pool"])
            write(_address(page.name), pages.lesson_document(page, _address, data, "library.js", others))
    listed = [page for page in lessons() if (folder / _address(page.name)).is_file()]
    write(_address(""), pages.list_document(listed, _address))


def _address(name: str) -> str:
    return f"{name or 'index'}.html"


def positions(picture: Picture) -> Iterator[pages.Places]:
    """Yield the positions that a static page has; the first of two ends is not beyond the second."""
    thumbs_of = [(slider, place) for slider in picture.sliders.values() for place in pages.thumbs(slider)]
    lines: list[list[Sequence[int]]] = [[range(len(slider.values)) for slider, _ in thumbs_of]]
    if prod(map(len, lines[0])) > MOST_POSITIONS:
        start = [[place] for _, place in thumbs_of]
        lines = [[*start[:i], stops, *start[i + 1 :]] for i, stops in enumerate(lines[0])]
    for places in dict.fromkeys(each for line in lines for each in product(*line)):
        values = pages.values_at(picture, places).values()
        if all(value[0] <= value[1] for value in values if isinstance(value, tuple)):
            yield places


def with_first(page: LessonPage) -> dict[str, Any]:
    """Return the data of a lesson with the first position of each picture; `pool` has each value once."""
    pool: dict[str, int] = {}
    pictures = [
        {**pages.picture_data(each), "at": _encoded(each, [_first(each)], pool)}
        for each in import_module(page.module).LESSON.pictures
    ]
    return {**pages.lesson_data(page), "pictures": pictures, "pool": [json.loads(text) for text in pool]}


def other_positions(page: LessonPage, values: Sequence[Any]) -> dict[str, Any]:
    """Return the other positions of each picture, and the values that they need beyond those of a pool."""
    pool = {json.dumps(value): place for place, value in enumerate(values)}
    at = [
        _encoded(each, [places for places in positions(each) if places != _first(each)], pool)
        for each in import_module(page.module).LESSON.pictures
    ]
    return {"at": at, "pool": [json.loads(text) for text in list(pool)[len(values) :]]}


def _first(picture: Picture) -> pages.Places:
    return tuple(place for slider in picture.sliders.values() for place in pages.thumbs(slider))


def _encoded(picture: Picture, stops: Iterable[pages.Places], pool: dict[str, int]) -> dict[str, list[Any]]:
    """Return what a picture shows at some positions; `pool` has the place of each value, as JSON."""

    def encoded(value: Any, depth: int) -> Any:
        if depth and isinstance(value, dict):
            return {key: encoded(each, depth - 1) for key, each in value.items()}
        if depth and isinstance(value, list) and value and isinstance(value[0], dict):
            return [encoded(each, depth - 1) for each in value]
        return pool.setdefault(json.dumps(value), len(pool))

    at = {}
    for places in stops:
        spec, said, text = pages.shown_at(picture, places)
        tree = encoded(json.loads(spec), 3) if spec else None
        at[",".join(map(str, places))] = [encoded(each, 0) for each in (tree, said, text)]
    return at
