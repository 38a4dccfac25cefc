"""The page that lists the lessons."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from npusim.course.catalogue import Lesson
from npusim.reporting.html import page, text


def start_page(known: Iterable[Lesson]) -> str:
    """Return the page: each lesson with its number, title and what it answers, as a link."""
    entries = "".join(
        f'<li value="{one.number}"><a href="/lessons/{one.name}/">{escape(one.title)}</a>'
        f"<br>{escape(one.about)}</li>"
        for one in known
    )
    return page(
        "See the machine work",
        text(
            "Each lesson asks for a guess, lets you move the machine, shows the equation with its numbers, "
            "and ends with an exercise. Figures come from the same model as npusim estimate."
        ),
        f"<ol>{entries}</ol>",
        '<p><a href="/explorer/">Explorer</a>: two designs side by side, with all their pictures</p>',
        lead="Why is a graph neural network slow on an NPU, and what helps?",
    )
