"""MaGNAS's tables and figures of mapping as a page: ours beside the paper's."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from npusim.report.engineering import engineering
from npusim.report.terminal import headed, remarks

if TYPE_CHECKING:
    from npusim.magnas.figures_document import MappingFigure, MappingFigures


def mapping_figures_page(found: MappingFigures) -> RenderableType:
    """Return numbers by table and figure, and below each what the paper says of it."""
    parts: list[RenderableType] = [Text(found.title, style="bold")]
    for name, rows in groupby(found.figures, key=lambda one: one.figure):
        table = headed(name, "", "ours", "paper", style="cyan", overflow="fold")
        for row in rows:
            table.add_row(row.what, row.quantity, _amount(row, row.ours), _amount(row, row.paper))
        said = [one for one in found.statements if one.figure == name]
        holds = remarks(
            ("Holds", "green", (one.says for one in said if one.holds)),
            ("Does not", "yellow", (one.says for one in said if not one.holds)),
        )
        parts += [Text(), table, Text(), holds]
    return Group(*parts)


def _amount(row: MappingFigure, value: float | None) -> str:
    if value is None:
        return "-"
    return engineering(value, row.unit) if row.unit else f"{value:.3f}"
