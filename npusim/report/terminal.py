"""Building blocks of terminal pages: title, tables without lines, bars, remarks, wrapped names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.bar import Bar
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.style import Style
from rich.table import Table
from rich.text import Text

_THINNEST = 1 / 64
"""Least length drawn, as a part of the whole: what is not nothing must not look like nothing."""


def title(workload: str, soc: str, techniques: str) -> Text:
    """Return the first line of a page: what runs where, changed how."""
    text = Text(workload, style="bold")
    text.append(" on ", style="dim")
    text.append(soc, style="bold")
    if techniques == "none":
        text.append(", no techniques", style="dim")
    elif techniques:
        text.append(" with ", style="dim")
        text.append(techniques, style="bold")
    return text


def counted(number: int, what: str) -> str:
    """Return a number of things: 1 request, 2 requests."""
    return f"{number} {what}{'s' if number != 1 else ''}"


def conditions(hint: str, requests: int, tiles: int, contexts: int = 1, npu_tiles: int = 0) -> str:
    """Return how a network runs: hint, inferences in flight; with an NPU, tiles in use and contexts.

    Parameters
    ----------
    npu_tiles : int
        Tiles of the NPU, told where it has more than are in use.

    Examples
    --------
    >>> conditions("throughput", 8, 2, 3, 6)
    'throughput hint, 8 requests in flight, 2 tiles x 3 contexts'
    >>> conditions("latency", 1, 4, 1, 6), conditions("throughput", 8, 2, 2, 6)[-37:]
    ('latency hint, 1 request in flight, 4 of 6 tiles', ', 2 tiles x 2 contexts (4 of 6 tiles)')
    """
    used = tiles * contexts
    idle = used < npu_tiles
    of_npu = f", {tiles} of {npu_tiles} tiles" if idle else f", {counted(tiles, 'tile')}"
    if contexts > 1:
        of_npu = f", {counted(tiles, 'tile')} x {contexts} contexts"
        of_npu += f" ({used} of {npu_tiles} tiles)" if idle else ""
    return f"{hint} hint, {counted(requests, 'request')} in flight{of_npu if tiles else ''}"


def grid(gap: int = 2) -> Table:
    """Return a table without lines and edges, its columns `gap` characters apart."""
    return Table(box=None, show_header=False, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0))


def headed(first: str | Text, *numbers: str | Text, gap: int = 2, **of_first: Any) -> Table:
    """Return a table without lines under dim headings: a column of words, then columns of numbers.

    Parameters
    ----------
    first, *numbers : str or Text
        Headings; numbers stand on the right and on one line.
    **of_first
        Settings of the first column, as for `rich.table.Table.add_column`.
    """
    table = grid(gap)
    table.show_header, table.header_style = True, "dim"
    table.add_column(first, **of_first)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def remarks(*blocks: tuple[str, str, Iterable[str]]) -> Table:
    """Return remarks below a page, with headings in the margin.

    Parameters
    ----------
    *blocks
        Heading, style and lines; a block without lines leaves no trace.

    Returns
    -------
    Table
        Without rows where there is nothing to remark.
    """
    table = grid(gap=1)
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for heading, style, lines in blocks:
        for number, line in enumerate(lines):
            table.add_row(Text("" if number else heading, style=style), "-", Text(line))
    return table


def bar(value: float, longest: float, style: str = "cyan", width: int | None = None) -> RenderableType:
    """Return a bar as long as `value` is in relation to `longest`.

    Parameters
    ----------
    value : float
        What it shows; nothing is drawn for 0 and for what is no number.
    longest : float
        The value that fills the cell.
    width : int, optional
        Characters of the longest bar; as many as there is room for unless told.
    """
    # Written so that a NaN fails the comparison too.
    if not (value > 0 and longest > 0):
        return Text("")
    part = min(max(value / longest, _THINNEST), 1.0)
    return Bar(size=1.0, begin=0.0, end=part, width=width, color=style)


class LongName:
    """A name such as ``stagr+quantgr`` or ``layer0/aggregate/matmul``, wrapped as needed.

    Parameters
    ----------
    name : str
        On one line.
    joints : str
        Characters before which it may be broken.
    """

    def __init__(self, name: str, joints: str, style: str | Style = "") -> None:
        self.name, self.style = name, style
        at = re.escape(joints)
        self._parts = re.findall(f"[{at}]*[^{at}]+[{at}]*$|[{at}]*[^{at}]+", name) or [name]

    def lines(self, width: int) -> list[str]:
        """Return the name in lines of at most `width` characters; a longer part stays whole."""
        lines: list[str] = []
        for part in self._parts:
            if lines and len(lines[-1]) + len(part) <= width:
                lines[-1] += part
            else:
                lines.append(part)
        return lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        for line in self.lines(options.max_width):
            yield Text(line, style=self.style, overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Ask for the whole name, and at least for its longest part."""
        return Measurement(max(map(len, self._parts)), len(self.name)).with_maximum(options.max_width)
