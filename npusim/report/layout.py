"""What all pages share: a title, plain tables without lines, remarks at the foot.

Like the letterhead of a firm: whatever the letter says, one sees whose it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

__all__ = ["grid", "remarks", "title"]


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


def grid(gap: int = 2) -> Table:
    """Return a table without lines and edges, its columns `gap` characters apart."""
    return Table(box=None, show_header=False, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0))


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
