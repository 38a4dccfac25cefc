"""Bars for a terminal: a length that can be compared at a glance.

Like columns of coins side by side on a table: before counting, everybody sees which is the highest.
"""

from __future__ import annotations

from rich.bar import Bar
from rich.console import RenderableType
from rich.text import Text

__all__ = ["bar"]

_THINNEST = 1 / 64
"""Least length drawn, as a part of the whole: what is not nothing must not look like nothing."""


def bar(value: float, longest: float, style: str = "cyan", width: int | None = None) -> RenderableType:
    """Return a bar as long as `value` is in relation to `longest`.

    Parameters
    ----------
    value : float
        What it shows; nothing is drawn for 0 and for what is no number.
    longest : float
        The value that fills the cell.
    style : str
        Colour.
    width : int, optional
        Characters of the longest bar; as many as there is room for unless told.

    Returns
    -------
    renderable
        For a cell of a table.
    """
    # Written so that a NaN fails the comparison too.
    if not (value > 0 and longest > 0):
        return Text("")
    part = min(max(value / longest, _THINNEST), 1.0)
    return Bar(size=1.0, begin=0.0, end=part, width=width, color=style)
