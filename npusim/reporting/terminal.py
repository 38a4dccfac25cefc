"""Terminal back end of pages: titles, tables without lines, bars, remarks, wrapped names."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from rich.bar import Bar
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from npusim.errors import brief, printable
from npusim.reporting.engineering import Amount, Cell
from npusim.reporting.page import Figures, Later, Lines, Page, Plot, Remark, Section
from npusim.reporting.tables import Table

_JOINTS = "/:+.@,"
_THINNEST = 1 / 64  # shortest bar as a share of the longest: a small value must not look like 0


def rendered(page: Page) -> RenderableType:
    """Return a page for the terminal: its parts with a blank line between them."""
    head: list[RenderableType] = [_title(page)]
    if page.subject:
        head.append(Text(page.subject, style="dim"))
    built = (s.build() if isinstance(s, Later) and page.details else [s] for s in page.shown)
    blocks = [Group(*head), *(_section(section, page.details) for part in built for section in part)]
    remarks = _remarks(page.remarks)
    blocks += [remarks] if remarks.row_count else []
    blocks += [Text(page.conclusion, style="bold")] if page.conclusion else []
    parts: list[RenderableType] = []
    for block in blocks:
        if block is not None:
            parts += [Text(), block] if parts else [block]
    return Group(*parts, *page.supplements)


def _title(page: Page) -> Text:
    if page.of is None or not (page.of[0] and page.of[1]):
        return Text(printable(page.heading), style="bold")
    workload, soc, techniques = map(brief, page.of)
    text = Text.assemble((workload, "bold"), (" on ", "dim"), (soc, "bold"))
    if techniques == "none":
        return text.append(", no techniques", style="dim")
    return text.append(" with ", style="dim").append(techniques, style="bold") if techniques else text


def _section(section: Section, details: bool) -> RenderableType | None:
    match section:
        case Table():
            hidden = section.only == "html" or (section.detail and not details)
            return None if hidden or not section.on_terminal else drawn_table(section)
        case Plot():
            return None if section.table is None else _section(section.table, details)
        case Later():
            return None
        case Figures():
            return _figures(section.pairs)
        case Lines():
            lines = [Text(printable(line), style=section.style) for line in section.lines]
            title = [Text(section.title, style="bold")] if section.title else []
            return Group(*title, *lines) if lines and section.only != "html" else None
    return section


def _figures(pairs: Sequence[tuple[str, str]]) -> RichTable:
    table = grid()
    for _ in range(2):
        table.add_column(style="dim")
        table.add_column(style="bold", justify="left", min_width=18)
    for left, right in zip_longest(pairs[::2], pairs[1::2], fillvalue=("", "")):
        table.add_row(*left, *right)
    return table


def drawn_table(table: Table) -> RenderableType:
    """Return a table as rich draws it."""
    records = table.on_terminal[: table.most or len(table.on_terminal)]
    columns, cells = table.cells("terminal", records)
    drawn = grid(table.gap)
    drawn.show_header, drawn.header_style = True, "dim"
    for i, column in enumerate(columns):
        width = {"overflow": "fold"} if i == 0 or "overflow" in column.layout else {"no_wrap": True}
        justify = "left" if column.is_left([row[i] for row in cells]) else "right"
        drawn.add_column(Text(column.title), **{"justify": justify, **width, **column.layout})
    for record, row in zip(records, cells, strict=True):
        drawn.add_row(*(_cell(cell, not i) for i, cell in enumerate(row)), style=table.style(record))
    left = len(table.on_terminal) - len(records)
    more = f"and {left:,} more: --format json" if left else ""
    below = [Text(line, style="dim") for line in (more, table.caption) if line]
    above = [Text(table.title, style="bold")] if table.titled else []
    return Group(*above, drawn, *below) if above or below else drawn


def _cell(cell: Cell, is_name: bool) -> RenderableType:
    if isinstance(cell, Amount):
        return Text("-" if cell.value is None and cell.shown is None else str(cell))
    if isinstance(cell, str):
        return LongName(cell) if is_name and "\n" not in cell else Text(printable(cell))
    return cell


def _remarks(remarks: Sequence[Remark]) -> RichTable:
    """Return remarks with their headings in the margin; one without lines leaves no trace."""
    table = grid(gap=1)
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for remark in remarks:
        lines = list(remark.lines[: remark.most or len(remark.lines)])
        left = len(remark.lines) - len(lines)
        for number, line in enumerate([*lines, *([f"and {left} more"] if left else [])]):
            table.add_row(
                Text("" if number else remark.heading, style=remark.style), "-", Text(printable(line))
            )
    return table


def counted(number: int, what: str) -> str:
    """Return a number of things: 1 request, 2 requests."""
    return f"{number} {what}{'s' if number != 1 else ''}"


def conditions(run: Any, tiles: int | None = None) -> str:
    """Return how a network runs: hint, inferences in flight; with an NPU, tiles in use and contexts.

    Parameters
    ----------
    run : Document or Part
        With `hint` and `requests`; with `tiles`, `contexts` and `npu_tiles` unless `tiles` is 0.
    tiles : int, optional
        Tiles of the NPU in use in place of the run's own; 0 leaves the NPU out.
    """
    how = f"{run.hint} hint, {counted(run.requests, 'request')} in flight"
    tiles = run.tiles if tiles is None else tiles
    if not tiles:
        return how
    used = tiles * run.contexts
    part = f"{used} of {run.npu_tiles} tiles" if used < run.npu_tiles else counted(used, "tile")
    return f"{how}, {part}" + (f" in {run.contexts} contexts" if run.contexts > 1 else "")


def grid(gap: int = 2) -> RichTable:
    """Return a table without lines and edges, its columns `gap` characters apart."""
    return RichTable(box=None, show_header=False, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0))


def bar(value: float, longest: float, style: str = "cyan", width: int | None = None) -> RenderableType:
    """Return a bar as long as `value` is in relation to `longest`; nothing for 0 and for NaN.

    Parameters
    ----------
    longest : float
        Value that fills the cell.
    width : int, optional
        Characters of the longest bar; default: all the room there is.
    """
    # Written so that a NaN fails the comparison too.
    if not (value > 0 and longest > 0):
        return Text("")
    part = min(max(value / longest, _THINNEST), 1.0)
    return Bar(size=1.0, begin=0.0, end=part, width=width, color=style)


def share_bar(share: float) -> RenderableType:
    """Return a bar of 24 characters that a share fills."""
    return bar(share, 1.0, width=24)


class LongName:
    """A name such as ``stagr+quantgr`` or ``layer0/aggregate/matmul``, wrapped as needed.

    Parameters
    ----------
    name : str
    joints : str
        Characters before which it may be broken.
    below : sequence of str
        Names that stand below it, dim, each after a plus.
    """

    def __init__(
        self, name: str, style: str | Style = "", below: Sequence[str] = (), joints: str = _JOINTS
    ) -> None:
        name = printable(name)
        self.name, self.style = name, style
        at = re.escape(joints)
        self._parts = re.findall(f"[{at}]*[^{at}]+[{at}]*$|[{at}]*[^{at}]+", name) or [name]
        self._below = [LongName(f"+ {fused}", "dim", joints=joints) for fused in below]

    def __str__(self) -> str:
        return self.name

    def lines(self, width: int) -> list[str]:
        """Return the name in lines of at most `width` characters; a longer part stays whole."""
        lines: list[str] = []
        for piece in self._parts:
            if lines and len(lines[-1]) + len(piece) <= width:
                lines[-1] += piece
            else:
                lines.append(piece)
        return lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        for line in self.lines(options.max_width):
            yield Text(line, style=self.style, overflow="fold")
        yield from self._below

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Ask for the whole name, and at least for its longest part."""
        names = [self, *self._below]
        least = max(len(part) for name in names for part in name._parts)
        return Measurement(least, max(len(name.name) for name in names)).with_maximum(options.max_width)


def as_text(content: RenderableType) -> str:
    """Return what rich prints as plain text of 100 columns."""
    written = io.StringIO()
    Console(file=written, width=100, color_system=None, markup=False).print(content)
    return written.getvalue()
