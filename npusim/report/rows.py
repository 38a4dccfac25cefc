"""Points of a space as tables for the terminal: values with their units, one row or one block a point.

Like a timetable that is printed across the page where it fits, and as a list of trains where the page is
narrow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from npusim.report.engineering import engineering
from npusim.report.layout import grid
from npusim.units import format_quantity

__all__ = ["rows_page", "shown_value"]

_MOST_ROWS = 1000
_POINT = "point"
_LONG = 12
"""Characters from which an exact value is rounded."""
_UNITS = {"_s_low": "s", "_s_high": "s", "_per_s": "/s", "_s": "s", "_j": "J", "_bytes": "B"}
"""Unit of a metric by the end of its name."""
_OF_ONE = re.compile(r'(?:any_value|avg|first|last|max|mean|median|min|sum)\("?([^"()]+)"?\)')
"""Column of a query that is some values' sum or one of them: it has their unit."""


def shown_value(name: str, value: Any, units: Mapping[str, str] | None = None) -> str:
    """Return a metric or a knob's value as an engineer writes it.

    Parameters
    ----------
    name : str
        Metric, or path of a knob.
    value : number, str or None
    units : mapping of str to str, optional
        SI units of the knobs by path.

    Examples
    --------
    >>> shown_value("min(latency_s)", 0.00123456), shown_value("count(*)", 1270)
    ('1.23 ms', '1,270')
    >>> shown_value("npu.sram.per_tile", 786432.0, {"npu.sram.per_tile": "B"})
    '768 KiB'
    """
    if value is None:
        return "-"
    if not isinstance(value, int | float) or isinstance(value, bool) or name == _POINT:
        return str(value)
    of_one = _OF_ONE.fullmatch(name)
    name = of_one[1] if of_one else name
    if name.endswith("_mm2"):
        return f"{value:.2f} mm²"
    knob = (units or {}).get(name)
    if knob is not None:
        exact = format_quantity(float(value), knob)
        return exact if len(exact) <= _LONG else engineering(float(value), knob)
    unit = next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), "")
    return f"{value:,}" if isinstance(value, int) and not unit else engineering(float(value), unit)


def rows_page(table: Any, units: Mapping[str, str] | None = None) -> RenderableType:
    """Return the answer of a query, an Arrow table or None, for the terminal.

    Parameters
    ----------
    table : pyarrow.Table or None
    units : mapping of str to str, optional
        SI units of the knobs by path.
    """
    if table is None or not table.num_columns:
        return Text("done")
    rows = table.slice(0, _MOST_ROWS).to_pylist()
    page = _Rows(table.column_names, [[shown_value(n, row[n], units) for n in row] for row in rows])
    left = table.num_rows - len(rows)
    return Group(page, Text(f"and {left:,} more: --format json", style="dim")) if left else page


@dataclass
class _Rows:
    """Cells by row: a table where the terminal is wide enough, else a block a row."""

    columns: Sequence[str]
    cells: Sequence[Sequence[str]]
    table: Table = field(init=False)

    def __post_init__(self) -> None:
        self.table = Table(box=None, pad_edge=False, header_style="bold")
        for name in self.columns:
            self.table.add_column(Text(name), justify="right", no_wrap=True)
        for row in self.cells:
            self.table.add_row(*map(Text, row))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needed = Measurement.get(console, options.update(max_width=10**6), self.table).maximum
        if needed <= options.max_width:
            yield self.table
            return
        for number, row in enumerate(self.cells):
            if number:
                yield Text()
            block = grid()
            block.add_column(style="bold", overflow="fold")
            block.add_column(overflow="fold")
            for name, cell in zip(self.columns, row, strict=True):
                block.add_row(Text(name), Text(cell))
            yield block
