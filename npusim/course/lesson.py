"""Lessons as declarations."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isclose
from typing import Any, TypeAlias

import numpy as np
import plotly.graph_objects as go

from npusim.course.catalogue import LessonPage
from npusim.course.machine_view import MachineSteps
from npusim.course.words import word
from npusim.reporting.html import FONT
from npusim.reporting.plotly_library import KINDS_OF_LESSONS

Drawing: TypeAlias = "go.Figure | MachineSteps"
"""What a picture shows."""
Shown = tuple[Drawing, str]
"""A drawing, and the Markdown below it."""
_CONFIG = {"displayModeBar": False, "responsive": True}
_SECTION = re.compile(r"\n\n(?:Question|Exercise)\n-+\n")
_OPTION = re.compile(r"- \[([ x])\] (.+)")
_ANSWER = re.compile(r"Answer: (\S+?)(?: (\S+?))?(?:, within (\S+))?")
_MISTAKE = re.compile(r"- (\S+): (.+)")


def drawing_spec(drawing: Drawing, height: int) -> str:
    """Return what `figure.js` or `steps.js` draws, as JSON; `height` of a figure in pixels."""
    if isinstance(drawing, MachineSteps):
        return drawing.spec
    assert {trace.type for trace in drawing.data} <= KINDS_OF_LESSONS, KINDS_OF_LESSONS
    drawing.update_layout(
        height=height,
        font={"family": FONT, "size": 13},
        template="plotly_white",
        margin={"l": 10, "r": 10, "t": 30, "b": 40},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        separators=". ",
    )
    drawing.update_xaxes(automargin=True, ticklabelstandoff=4)
    drawing.update_yaxes(automargin=True, ticklabelstandoff=4)
    short = json.loads(drawing.to_json(), parse_float=_single, object_hook=_single_array)
    return json.dumps({**short, "config": _CONFIG})


def _single(number: str) -> float:
    """Return a number of single precision: a screen shows no more."""
    return float(f"{float(number):.7g}")


def _single_array(value: dict[str, Any]) -> dict[str, Any]:
    """Return an array of double precision, as plotly writes it, in single precision."""
    if value.get("dtype") != "f8":
        return value
    array = np.frombuffer(base64.b64decode(value["bdata"])).astype(np.float32)
    return {**value, "dtype": "f4", "bdata": base64.b64encode(array.tobytes()).decode()}


@dataclass(frozen=True)
class Question:
    """A question to guess at before a slider moves."""

    words: str
    options: Sequence[str]
    right: str
    """The right option."""
    because: str
    """Why it is right, in Markdown."""

    @classmethod
    def of(cls, section: str) -> Question:
        """Return the question of a docstring's section."""
        words, listed, because = section.split("\n\n")
        options = [(option, mark == "x") for mark, option in _OPTION.findall(listed)]
        (right,) = (option for option, is_right in options if is_right)
        return cls(
            " ".join(words.split()), [option for option, _ in options], right, " ".join(because.split())
        )

    def verdict(self, guess: str) -> tuple[str, str]:
        """Return whether a guess is right and why, in Markdown, and the kind of callout."""
        is_right = guess == self.right
        verdict = word("yes") if is_right else word("not_quite", right=f"**{self.right}**")
        return f"{verdict} {self.because}", "success" if is_right else "info"


@dataclass(frozen=True)
class Slider:
    """A number that a visitor sets; with names as values, a list to choose from."""

    label: str
    values: Sequence[float] | Sequence[str]
    value: float | str | tuple[float, float]
    """Value at first; a pair makes a slider with two ends."""


@dataclass(frozen=True)
class Picture:
    """A figure with the text below it, both drawn again when a slider moves."""

    sliders: Mapping[str, Slider]
    show: Callable[..., Shown]
    """Takes the value of each slider by name."""
    height: int = 360
    """In pixels."""
    is_player: bool = False
    """Whether `show` returns a machine step by step."""


def picture(
    *, height: int = 360, is_player: bool = False, **sliders: Slider
) -> Callable[[Callable[..., Shown]], Picture]:
    """Return a decorator that makes a picture of a function, which takes the value of each slider by name."""
    return lambda show: Picture(sliders, show, height, is_player)


@dataclass(frozen=True)
class Exercise:
    """An exercise whose answer is a number."""

    words: str
    right: float
    because: str
    """How to find the number, in Markdown: the first sentence says the way, not the number."""
    unit: str = ""
    within: float = 0.02
    """Relative error that counts as right."""
    hints: Mapping[str, float] = field(default_factory=dict)
    """Likely mistakes, each with the number that it leads to."""

    @classmethod
    def of(cls, section: str) -> Exercise:
        """Return the exercise of a docstring's section; numbers may be fractions such as 3/127."""
        words, answer, because, *listed = section.strip().split("\n\n")
        match = _ANSWER.fullmatch(answer)
        assert match is not None, f"{answer!r} is no `Answer: NUMBER UNIT, within ERROR`"
        hints = {hint: float(Fraction(wrong)) for wrong, hint in _MISTAKE.findall("".join(listed))}
        right, within = float(Fraction(match[1])), float(match[3] or cls.within)
        return cls(" ".join(words.split()), right, " ".join(because.split()), match[2] or "", within, hints)

    def verdict(self, typed: str) -> tuple[str, str]:
        """Return whether what was typed is the right number, in Markdown, and the kind of callout.

        It is read as a number and as nothing else.
        """
        try:
            value = float(typed.replace(",", ".").rstrip("%x× "))
        except ValueError:
            return word("no_number"), "warn"
        if isclose(value, self.right, rel_tol=self.within):
            return f"{word('right')} {self.because}", "success"
        hints = (hint for hint, wrong in self.hints.items() if isclose(value, wrong, rel_tol=self.within))
        side = "too_large" if value > self.right else "too_small"
        default = word(side, way=self.because.partition(". ")[0])
        return word("not_yet", hint=next(hints, default)), "warn"


class Lesson:
    """A lesson: pictures, and the texts of its module's docstring.

    The docstring holds number, title, what the lesson answers, an introduction, and two sections. `Question`
    has words, options as a list of tasks with the right one ticked, and the reason. `Exercise` has words,
    ``Answer: NUMBER UNIT, within RELATIVE ERROR``, the way to the number, and a list of likely mistakes,
    ``NUMBER: hint``.

    Parameters
    ----------
    docstring : str
    *pictures : Picture
    numbers : mapping of str to object, optional
        What `{name}` or `{name:.2f}` stands for in the docstring.
    closing : callable, optional
        Returns Markdown that stands before the exercise and follows no slider.
    """

    def __init__(
        self,
        docstring: str | None,
        *pictures: Picture,
        numbers: Mapping[str, Any] | None = None,
        closing: Callable[[], str] | None = None,
    ) -> None:
        self.pictures, self.closing, self._numbers = pictures, closing, numbers or {}
        _, question, exercise = _SECTION.split(self._filled(docstring or ""))
        self.question, self.exercise = Question.of(question), Exercise.of(exercise)

    def introduction(self, page: LessonPage) -> str:
        """Return the introduction with its numbers, as Markdown."""
        return self._filled(page.introduction)

    def _filled(self, text: str) -> str:
        def number(at: re.Match[str]) -> str:
            return format(self._numbers[at[1]], at[2] or "") if at[1] in self._numbers else at[0]

        return re.sub(r"\{(\w+)(?::([^{}]+))?\}", number, text)
