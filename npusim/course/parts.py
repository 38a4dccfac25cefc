"""What every lesson has: a question before the slider moves, an exercise with a checked answer, links."""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose
from typing import Any

import marimo as mo

from npusim.course.catalogue import lessons


def heading(file: str) -> Any:
    """Return the title of a lesson and what it answers, from its own file."""
    lesson = next(lesson for lesson in lessons() if lesson.path.samefile(file))
    return mo.md(f"[All lessons](/) \n\n# {lesson.number}. {lesson.title}\n\n{lesson.about}")


def links(file: str) -> Any:
    """Return links to the lessons before and after the one in `file`."""
    known = lessons()
    at = next(position for position, lesson in enumerate(known) if lesson.path.samefile(file))
    before = f"[← {known[at - 1].title}](/lessons/{known[at - 1].name}/)" if at else ""
    after = f"[{known[at + 1].title} →](/lessons/{known[at + 1].name}/)" if at + 1 < len(known) else ""
    return mo.md(" &nbsp; ".join(filter(None, (before, "[All lessons](/)", after))))


def question(words: str, options: list[str]) -> Any:
    """Return a question to guess at: an element whose value is one of `options`, or None at first."""
    return mo.ui.radio(options, label=f"**First a guess.** {words}")


def reply(guess: str | None, right: str, because: str) -> Any:
    """Return what a guess deserves: why the right option is right, once one was chosen.

    Parameters
    ----------
    guess : str or None
        Value of `question`.
    right : str
        The right option.
    because : str
        Why, in Markdown.
    """
    if guess is None:
        return mo.md("*Choose, and the slider below wakes up.*")
    verdict = "Yes." if guess == right else f"Not quite: **{right}**."
    return mo.callout(mo.md(f"{verdict} {because}"), kind="success" if guess == right else "info")


def exercise(words: str, unit: str = "") -> Any:
    """Return an exercise: an element whose value is the number that was entered, or None at first."""
    shown = f" (in {unit})" if unit else ""
    return mo.ui.text(label=f"**Exercise.** {words}{shown}", placeholder="a number", full_width=True)


def checked(
    given: str | None,
    right: float,
    because: str,
    *,
    within: float = 0.02,
    hints: Mapping[str, float] | None = None,
) -> Any:
    """Return whether a number that was entered is right, and if not what it would be the answer to.

    Parameters
    ----------
    given : str
        Value of `exercise`: what was typed. It is read as a number and as nothing else.
    right : float
    because : str
        How to find it, in Markdown; shown with the right answer.
    within : float
        Relative error that is taken as right.
    hints : mapping of str to float, optional
        Mistakes that are likely, each with the number that it leads to.
    """
    if not given:
        return mo.md("")
    try:
        value = float(given.replace(",", ".").rstrip("%x× "))
    except ValueError:
        return mo.callout(mo.md("That is not a number; `0.25`, `12` and `3e6` are."), kind="warn")
    if isclose(value, right, rel_tol=within):
        return mo.callout(mo.md(f"Right. {because}"), kind="success")
    for mistake, wrong in (hints or {}).items():
        if isclose(value, wrong, rel_tol=within):
            return mo.callout(mo.md(f"Not yet: {mistake}"), kind="warn")
    side = "large" if value > right else "small"
    return mo.callout(mo.md(f"Not yet: too {side}. {_way(because)}"), kind="warn")


def _way(because: str) -> str:
    """Return the first sentence of an explanation, which says the way but not the number."""
    return because.partition(". ")[0] + "."
