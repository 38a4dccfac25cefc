"""Positions of the sliders of lessons, and what each shows."""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

from npusim.course.drawings import alternative
from npusim.course.lesson import Picture, Slider

_FEW = 100
_WRONG = re.compile(r"\b(nan|inf|None|Error)\b|\\frac\{[^}]*\}\{0?\}|-0\.0\b")


def values_of(slider: Slider) -> list[Any]:
    """Return all positions of a slider; of one with two ends, all pairs."""
    if isinstance(slider.value, tuple):
        return [(low, high) for low, high in product(slider.values, slider.values) if low <= high]
    return list(slider.values)


def marks_of(slider: Slider) -> list[Any]:
    """Return both ends of a slider and its middle."""
    values = values_of(slider)
    return list(dict.fromkeys([values[0], values[len(values) // 2], values[-1]]))


def sampled(picture: Picture) -> Iterator[dict[str, Any]]:
    """Yield all sliders at one end, and each at its ends and middle with the others at their start."""
    start = {name: slider.value for name, slider in picture.sliders.items()}
    yield from ({name: values_of(each)[i] for name, each in picture.sliders.items()} for i in (0, -1))
    for name, slider in picture.sliders.items():
        yield from ({**start, name: value} for value in marks_of(slider))


def walked(picture: Picture) -> Iterator[dict[str, Any]]:
    """Yield each position of each slider, with the others at their start and, if few, at both ends."""
    few = sum(len(values_of(each)) for each in picture.sliders.values()) <= _FEW
    for name, slider in picture.sliders.items():
        others = {other: each for other, each in picture.sliders.items() if other != name}
        starts = {other: each.value for other, each in others.items()}
        ends = [{other: values_of(each)[i] for other, each in others.items()} for i in (0, -1) if few]
        yield from ({**fixed, name: v} for fixed in (starts, *ends) for v in values_of(slider))


SHOWN: dict[tuple[int, str], Any] = {}


def shown(picture: Picture, values: dict[str, Any]) -> Any:
    """Return figure and text of one position; several tests look at the same ones."""
    key = id(picture), repr(sorted(values.items()))
    if key not in SHOWN:
        SHOWN[key] = picture.show(**values)
    return SHOWN[key]


def check(picture: Picture, values: dict[str, Any]) -> str:
    """Draw one position, and return its text after a look at figure and text."""
    figure, text = shown(picture, values)
    assert not _WRONG.search(text), (values, text)
    said = alternative(figure)
    assert len(said) > 40 and not _WRONG.search(said), (values, said)
    return text
