"""The HTML page of all reports: one file, one style, plots with their tables, nothing sent anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from npusim.report.engineering import engineering
from npusim.report.marks import told_apart

COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee",
    "#aa3377", "#885522", "#000000", "#ee7733", "#44bb99",
)  # fmt: skip
"""Colours that stay apart for the colour-blind (Paul Tol's bright scheme and others)."""
GREY = "#bbbbbb"
UNIT_COLOURS = {
    "npu.dpu": COLOURS[0], "npu.dsp": COLOURS[5], "npu.dma": COLOURS[3], "cpu": COLOURS[8], "gpu": COLOURS[2],
}  # fmt: skip
"""Colour of each unit, the same on every page."""
_FEW_DECADES = 0.5
"""Powers of ten below which a logarithmic axis would have too few ticks."""
_LONGEST_NAME = 18
"""Characters in a line of a name beside a plot."""
_MANY_COLUMNS = 14
"""Columns from which a table is printed in smaller type."""
FONT = "system-ui, sans-serif"
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; form-action 'none'; base-uri 'none'"
)
"""What a browser may do with the page: run what stands in it, and load nothing from anywhere."""
_FOREIGN = ("https://cloud.plotly.com/newchart", "https://plotly.com/", "https://cdn.plot.ly/un/")
"""Addresses in the plotting library that a chart could be sent to, or something be loaded from."""
_CONFIG = {
    "displaylogo": False,
    "showSendToCloud": False,
    "modeBarButtonsToRemove": ["sendChartToCloud", "lasso2d", "select2d", "autoScale2d"],
    "responsive": True,
}


@dataclass(frozen=True, slots=True)
class Amount:
    """A number in a table: shown with three digits, kept whole for CSV."""

    value: Any
    """A number in the unit itself, or several; None shows nothing."""
    unit: str = ""
    shown: str | None = None
    """What is shown in place of three digits and a prefix."""

    def __str__(self) -> str:
        if self.shown is not None or not isinstance(self.value, int | float):
            return self.shown or ""
        return engineering(self.value, self.unit)


Cell = str | Amount


def page(title: str, *parts: str, lead: str = "", notes: Iterable[str] = (), command: str = "") -> str:
    """Return a page that needs no other file.

    Parameters
    ----------
    title : str
        What is shown, of which network and machine.
    *parts : str
        HTML, from `plot`, `table`, `text` and `bullets`.
    lead : str
        One sentence below the title: what it means.
    notes : iterable of str
        What a reader should know, at the end.
    command : str
        The command line that wrote the page.
    """
    listed = bullets(notes, "note")
    body = [
        f"<h1>{escape(title)}</h1>",
        text(lead, "verdict") if lead else "",
        *parts,
        f"<h2>Notes</h2>{listed}" if listed else "",
        f"<p class=note>Written by <code>{escape(command)}</code></p>" if command else "",
    ]
    content = "".join(body)
    library = f"<script>{_library()}</script>" if "Plotly.newPlot" in content else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>npusim: {escape(title)}</title><style>{_beside('page.css')}</style>"
        f"<script>{_beside('page.js')}</script>{library}</head>"
        f"<body>{content}</body></html>\n"
    )


def body_of(page_: str) -> str:
    """Return what a page shows, to stand within another one."""
    return page_.partition("<body>")[2].rpartition("</body>")[0]


def plot(
    figure: go.Figure,
    height: int,
    title: str = "",
    *,
    data: str = "",
    least_width: int = 0,
    margin: Mapping[str, int] | None = None,
) -> str:
    """Return a figure as part of a page, in the page's style, its legend above it.

    Parameters
    ----------
    figure : plotly.graph_objects.Figure
        Written to: fonts, margins, legend.
    height : int
        In pixels.
    title : str
        Heading above it: a title within the figure is cut on narrow screens.
    data : str
        What it shows, from `table`: folded away below it.
    least_width : int
        In pixels; a narrower screen scrolls sideways.
    margin : mapping of str to int, optional
        Margins other than the page's.
    """
    legend = _legend(figure)
    figure.update_layout(
        height=height,
        font={"family": FONT, "size": 13},
        template="plotly_white",
        margin={"l": 10, "r": 10, "t": 30, "b": 40, **(margin or {})},
        hoverlabel={"align": "left"},
        showlegend=False,
        separators=". ",
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    drawn: str = figure.to_html(full_html=False, include_plotlyjs=False, config=_CONFIG)
    if least_width:
        drawn = f'<div class=wide><div style="min-width: {least_width}px">{drawn}</div></div>'
    heading = f"<h2>{escape(title)}</h2>" if title else ""
    return f"<section class=picture>{heading}{legend}{drawn}{folded('Table', data)}</section>"


def _legend(figure: go.Figure) -> str:
    """Return the names of a figure's traces as buttons, which wrap on any screen and hide what they name."""
    swatches = told_apart(figure)
    if len(swatches) < 2:
        return ""
    buttons = []
    for name, swatch in swatches.items():
        traces = [
            k for k, trace in enumerate(figure.data) if trace.name == name and trace.showlegend is not False
        ]
        off = any(figure.data[k].visible == "legendonly" for k in traces[:1])
        buttons.append(
            f'<button class="{"off" if off else ""}" onclick="toggle(this)" '
            f'data-traces="{json.dumps(traces)}">{swatch}{escape(name)}</button>'
        )
    return f"<p class=legend>{''.join(buttons)}</p>"


def seconds_axis(title: str, log: bool = True) -> dict[str, Any]:
    """Return settings of an axis over times in s, its ticks with SI prefixes."""
    return amount_axis(title, "s", log)


def amount_axis(title: str, unit: str, log: bool = False) -> dict[str, Any]:
    """Return settings of an axis over amounts, its ticks with SI prefixes and the unit."""
    scale: dict[str, Any] = {"type": "log", "dtick": 1} if log else {"rangemode": "tozero"}
    return {"title": title, "tickformat": "~s", "ticksuffix": unit, **scale}


def log_axis(title: str, unit: str, low: float, high: float) -> dict[str, Any]:
    """Return settings of a logarithmic axis from `low` to `high`; of a linear one where they are near.

    Parameters
    ----------
    low, high : float
        Above 0.
    """
    decades = log10(high / low)
    if decades < _FEW_DECADES:
        return {"title": title, "tickformat": "~s", "ticksuffix": unit}
    steps = (1, 2, 5) if decades < 1 else (1, 3) if decades < 2 else (1,)
    powers = range(floor(log10(low)) - 1, ceil(log10(high)) + 2)
    values = [step * 10.0**power for power in powers for step in steps]
    room = max(0.04, 0.05 * decades)
    return {
        "title": title,
        "type": "log",
        "range": [log10(low) - room, log10(high) + room],
        "tickvals": values,
        "ticktext": [_tick(value, unit) for value in values],
        "tickangle": 0,
    }


def _tick(value: float, unit: str) -> str:
    """Return an amount at a tick: its first digit alone, for all others are 0."""
    if unit in ("", "x"):  # a factor takes no prefix
        return f"{value:g}{unit}"
    return re.sub(r"\.0+", "", engineering(value, unit))


def names_axis(names: Sequence[str]) -> dict[str, Any]:
    """Return settings of a vertical axis of names, the first on top; long ones are broken at a joint."""
    return {
        "type": "category",
        "autorange": "reversed",
        "categoryorder": "array",
        "categoryarray": list(names),
        "tickvals": list(names),
        "ticktext": [_broken(name) for name in names],
    }


def _broken(name: str) -> str:
    """Return a name in lines of some 18 characters."""
    lines = [""]
    for part in re.findall(r"[^/+ ]*[/+ ]?", name):
        if lines[-1] and len(lines[-1] + part) > _LONGEST_NAME:
            lines.append("")
        lines[-1] += part
    return "<br>".join(escape(line) for line in lines)


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    words: Sequence[int] = (0,),
    styles: Mapping[str, str] | None = None,
    *,
    name: str = "",
    keys: Sequence[str] = (),
) -> str:
    """Return a table that scrolls sideways where it is wider than the screen.

    Parameters
    ----------
    rows : iterable of sequence of str or Amount
    words : sequence of int
        Columns that hold words; the others hold numbers, to the right.
    styles : mapping of str to str, optional
        Class of cells by their text.
    name : str
        With a name the table can be saved as a CSV file called so, its amounts as raw numbers.
    keys : sequence of str
        Where each column stands in the JSON document.
    """
    classes, lines = styles or {}, [tuple(row) for row in rows]
    units = [next((c.unit for c in cells if isinstance(c, Amount)), "") for cells in zip(*lines, strict=True)]
    units = units or [""] * len(heads)

    def drawn(cell: Cell, column: int, tag: str) -> str:
        shown = str(cell)
        style = classes.get(shown, "text" if column in words else "")
        kept = ""
        if isinstance(cell, Amount):
            kept = f' data-value="{"" if cell.value is None else escape(json.dumps(cell.value))}"'
        elif tag == "th":
            kept = f' data-key="{escape(keys[column])}"' if keys else ""
            kept += f' data-unit="{escape(units[column])}"' if units[column] else ""
        words_of = escape(shown)
        if column in words and len(shown) > _LONGEST_NAME:  # broken where its parts meet
            words_of = re.sub(r"([/+])(?=\w)", r"\1<wbr>", words_of)
        return f'<{tag} class="{style}"{kept}>{words_of}</{tag}>'

    def line(cells: Sequence[Cell], tag: str) -> str:
        return f"<tr>{''.join(drawn(cell, i, tag) for i, cell in enumerate(cells))}</tr>"

    body = "".join(line(row, "td") for row in lines)
    wide = "wide many" if len(heads) > _MANY_COLUMNS else "wide"
    whole = f'<div class="{wide}"><table>{line(heads, "th")}{body}</table></div>'
    if not name:
        return whole
    button = f'<button class=csv data-name="{escape(name)}" onclick="saveCsv(this)">Save as CSV</button>'
    return f'<div class=data id="{escape(name)}">{whole}{button}</div>'


def folded(summary: str, content: str) -> str:
    """Return content that shows on demand and in print; nothing where there is none."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>" if content else ""


def figures(pairs: Iterable[tuple[str, Cell]]) -> str:
    """Return the headline figures of a page: what, and how much."""
    cells = "".join(f"<div>{escape(what)}<b>{escape(str(value))}</b></div>" for what, value in pairs)
    return f"<div class=figures>{cells}</div>"


def text(words: str, style: str = "") -> str:
    """Return a paragraph."""
    return f'<p class="{style}">{escape(words)}</p>'


def bullets(lines: Iterable[str], style: str = "") -> str:
    """Return a list; nothing where it has no lines."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="{style}">{items}</ul>' if items else ""


@cache
def _beside(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Return the plotting library without addresses of others."""
    script: str = get_plotlyjs()
    for address in _FOREIGN:
        script = script.replace(address, "")
    return script
