"""Lessons as declarations, and the notebook that shows a lesson."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from math import isclose
from pathlib import Path
from typing import Any, TypeAlias

import anywidget
import marimo as mo
import plotly.graph_objects as go
import traitlets

from npusim.course.catalogue import LessonPage, lessons
from npusim.course.drawings import alternative
from npusim.course.machine_view import MachineSteps
from npusim.errors import NpusimError
from npusim.reporting.html import FONT

Drawing: TypeAlias = "go.Figure | MachineSteps"
"""What a picture shows."""
Shown = tuple[Drawing, str]
"""A drawing, and the Markdown below it."""
STYLE = Path(__file__).with_name("lesson.css")
INVITATION = "*Choose, and the slider below wakes up.*"
_EMPTY = json.dumps({"data": [], "layout": {"height": 1}, "config": {}})
_CONFIG = {"displayModeBar": False, "responsive": True}
_SECTION = re.compile(r"\n\n(?:Question|Exercise)\n-+\n")
_OPTION = re.compile(r"- \[([ x])\] (.+)")
_ANSWER = re.compile(r"Answer: (\S+?)(?: (\S+?))?(?:, within (\S+))?")
_MISTAKE = re.compile(r"- (\S+): (.+)")


def script(name: str) -> str:
    """Return the module of a widget, with what makes the page around it accessible."""
    return "\n".join(Path(__file__).with_name(part).read_text("utf-8") for part in ("accessible.js", name))


class _Widget(anywidget.AnyWidget):
    """A figure as JSON; `figure.js` draws it and follows its changes."""

    _esm = script("figure.js")
    spec = traitlets.Unicode(_EMPTY).tag(sync=True)
    label = traitlets.Unicode("").tag(sync=True)
    is_waiting = traitlets.Bool(True).tag(sync=True)


class _Player(_Widget):
    """A product step by step as JSON; `steps.js` draws it."""

    _esm = script("steps.js")


def drawing_spec(drawing: Drawing, height: int) -> str:
    """Return what `figure.js` or `steps.js` draws, as JSON; `height` of a figure in pixels."""
    if isinstance(drawing, MachineSteps):
        return drawing.spec
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
    return json.dumps({**json.loads(drawing.to_json()), "config": _CONFIG})


class Figure:
    """A place on a page that shows a drawing, and another one after a slider has moved.

    One cell creates it and ends in `figure.place`; the cell that reads the slider calls `show`.
    """

    def __init__(self, height: int = 360, is_player: bool = False) -> None:
        """Take the height in pixels, and whether it shows a machine step by step, not a plotly figure."""
        self._widget = _Player(spec="") if is_player else _Widget()
        self._empty = self._widget.spec
        self._height = height
        self.place = mo.ui.anywidget(self._widget)

    def show(self, drawing: Drawing, height: int = 0) -> None:
        """Show a drawing in place of the last one; `height` (pixels) replaces the own height."""
        self._widget.label = alternative(drawing)
        self._widget.spec = drawing_spec(drawing, height or self._height)
        self._widget.is_waiting = False

    def wait(self) -> None:
        """Say that the next figure is being prepared, if it takes long."""
        self._widget.is_waiting = True

    def clear(self) -> None:
        """Take the figure away: what it showed no longer holds."""
        self._widget.spec, self._widget.is_waiting = self._empty, False


def shown(figures: Sequence[Figure], draw: Callable[[], Any]) -> Any:
    """Return what `draw` returns after it has drawn figures; if npusim refuses, clear them and say why."""
    for figure in figures:
        figure.wait()
    try:
        return draw()
    except Exception as error:
        for figure in figures:
            figure.clear()
        if not isinstance(error, NpusimError):
            raise
        return mo.callout(mo.plain_text(str(error)), kind="warn")


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

    def ask(self) -> Any:
        """Return an element whose value is one of the options, or None at first."""
        return mo.ui.radio(list(self.options), label=f"**First a guess.** {self.words}")

    def verdict(self, guess: str) -> tuple[str, str]:
        """Return whether a guess is right and why, in Markdown, and the kind of callout."""
        is_right = guess == self.right
        verdict = "Yes." if is_right else f"Not quite: **{self.right}**."
        return f"{verdict} {self.because}", "success" if is_right else "info"

    def reply(self, guess: str | None) -> Any:
        """Return the verdict on a guess; before the guess, an invitation."""
        if guess is None:
            return mo.md(INVITATION)
        text, kind = self.verdict(guess)
        return mo.callout(mo.md(text), kind=kind)


@dataclass(frozen=True)
class Slider:
    """A number that a visitor sets; with names as values, a list to choose from."""

    label: str
    values: Sequence[float] | Sequence[str]
    value: float | str | tuple[float, float]
    """Value at first; a pair makes a slider with two ends."""

    def element(self, is_disabled: bool = False) -> Any:
        """Return the element of the page."""
        if isinstance(self.value, str):
            return mo.ui.dropdown(list(self.values), value=self.value, label=self.label)
        create = mo.ui.range_slider if isinstance(self.value, tuple) else mo.ui.slider
        return create(
            steps=list(self.values),
            value=self.value,
            label=self.label,
            show_value=True,
            disabled=is_disabled,
        )


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

    def figure(self) -> Figure:
        """Return the place that it is drawn in."""
        return Figure(self.height, self.is_player)

    def elements(self, is_disabled: bool) -> Any:
        """Return the sliders of the page."""
        return mo.ui.dictionary({name: each.element(is_disabled) for name, each in self.sliders.items()})

    def draw(self, figure: Figure, values: Mapping[str, Any]) -> Any:
        """Draw the figure for the values of the sliders, and return the text below it."""

        def draw() -> Any:
            drawing, text = self.show(**values)
            figure.show(drawing)
            return mo.md(text)

        return shown([figure], draw)


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

    def ask(self) -> Any:
        """Return an element whose value is the text that was typed."""
        unit = f" (in {self.unit})" if self.unit else ""
        label = f"**Exercise.** {self.words}{unit}"
        return mo.ui.text(label=label, placeholder="a number", full_width=True)

    def verdict(self, typed: str) -> tuple[str, str]:
        """Return whether what was typed is the right number, in Markdown, and the kind of callout.

        It is read as a number and as nothing else.
        """
        try:
            value = float(typed.replace(",", ".").rstrip("%x× "))
        except ValueError:
            return "That is not a number; `0.25`, `12` and `3e6` are.", "warn"
        if isclose(value, self.right, rel_tol=self.within):
            return f"Right. {self.because}", "success"
        hints = (hint for hint, wrong in self.hints.items() if isclose(value, wrong, rel_tol=self.within))
        side = "large" if value > self.right else "small"
        default = f"too {side}. {self.because.partition('. ')[0]}."
        return f"Not yet: {next(hints, default)}", "warn"

    def check(self, typed: str | None) -> Any:
        """Return the verdict on what was typed."""
        if not typed:
            return mo.md("")
        text, kind = self.verdict(typed)
        return mo.callout(mo.md(text), kind=kind)


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


def heading(page: LessonPage) -> str:
    """Return the title of a lesson and what it answers, as Markdown."""
    return f"[All lessons](/) \n\n# {page.number}. {page.title}\n\n{page.about}"


def links(page: LessonPage) -> str:
    """Return links to the lessons before and after one, as Markdown."""
    pages = [None, *lessons(), None]
    place = pages.index(page)
    before, after = pages[place - 1], pages[place + 1]
    shown = [
        f"[← {before.title}](/lessons/{before.name}/)" if before else "",
        "[All lessons](/)",
        f"[{after.title} →](/lessons/{after.name}/)" if after else "",
    ]
    return " &nbsp; ".join(filter(None, shown))


_SETUP = """\
import marimo

app = marimo.App(app_title={title!r}, css_file={style!r})

with app.setup:
    import marimo as mo
    from npusim.course.catalogue import lessons
    from npusim.course.lesson import heading, lesson_of, links

    PAGE = next(page for page in lessons() if page.name == {name!r})
"""
_PREPARING = "*Preparing the lesson; the first visit of lessons that search or sweep may take two minutes …*"


def lesson_of(page: LessonPage) -> Lesson:
    """Return the declaration of a lesson; the page says that it is prepared, for some search as they load."""
    mo.output.replace(mo.md(_PREPARING))
    lesson: Lesson = import_module(page.module).LESSON
    mo.output.replace(mo.md(""))
    return lesson


def _cell(*lines: str, reads: str = "", defines: str = "") -> str:
    body = "".join(f"    {line}\n" for line in lines)
    returned = f" ({defines},)" if defines else ""
    return f"@app.cell\ndef _({reads}):\n{body}    return{returned}\n"


def _picture_cells(number: int) -> list[str]:
    """Return the cells of a picture: its sliders, its place, and what follows the sliders."""
    picture, sliders, figure = f"LESSON.pictures[{number}]", f"sliders_{number}", f"figure_{number}"
    row = f'mo.hstack(list({sliders}.elements.values()), justify="start", gap=2, wrap=True)'
    return [
        _cell(
            f"{sliders} = {picture}.elements(guess.value is None)",
            row,
            reads="LESSON, guess",
            defines=sliders,
        ),
        _cell(f"{figure} = {picture}.figure()", f"{figure}.place", reads="LESSON", defines=figure),
        _cell(f"{picture}.draw({figure}, {sliders}.value)", reads=f"LESSON, {figure}, {sliders}"),
    ]


def write_notebook(page: LessonPage, folder: Path) -> Path:
    """Write the marimo notebook that shows a lesson into a folder, and return its path; import no lesson."""
    title = f"{page.number}. {page.title}"
    cells = [
        _cell("mo.md(heading(PAGE))"),
        _cell("LESSON = lesson_of(PAGE)", defines="LESSON"),
        _cell("mo.md(LESSON.introduction(PAGE))", reads="LESSON"),
        _cell("guess = LESSON.question.ask()", "guess", reads="LESSON", defines="guess"),
        _cell("LESSON.question.reply(guess.value)", reads="LESSON, guess"),
        *(cell for number in range(page.pictures) for cell in _picture_cells(number)),
        *([_cell("mo.md(LESSON.closing())", reads="LESSON")] if page.has_closing else []),
        _cell("answer = LESSON.exercise.ask()", "answer", reads="LESSON", defines="answer"),
        _cell("LESSON.exercise.check(answer.value)", reads="LESSON, answer"),
        _cell("mo.md(links(PAGE))"),
    ]
    path = folder / f"{page.name}.py"
    setup = _SETUP.format(title=title, style=str(STYLE), name=page.name)
    path.write_text("\n\n".join([setup, *cells]), encoding="utf-8")
    return path
