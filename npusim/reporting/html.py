"""HTML back end of pages: one file, one style, plots with their tables, nothing sent anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from npusim.reporting.engineering import Amount, Cell, engineering
from npusim.reporting.page import Figures, Later, Lines, Page, Plot, Section, field_sections
from npusim.reporting.plotly_library import plotting_library
from npusim.reporting.tables import Table
from npusim.reporting.terminal import LongName, as_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

_BRIGHT = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
COLOURS = (*_BRIGHT, "#885522", "#000000", "#ee7733", "#44bb99")
"""Colours that the colour-blind can tell apart (Paul Tol's bright scheme and others)."""
GREY = "#bbbbbb"
_SCALED = "#21918c"  # middle of the scale Viridis: the legend's colour of marks that a scale colours
UNIT_COLOURS = {f"npu.{unit}": COLOURS[i] for unit, i in (("dpu", 0), ("dsp", 5), ("dma", 3))} | {
    "cpu": COLOURS[8],
    "gpu": COLOURS[2],
}
"""Colour of each unit, the same on every page."""
HATCHING = {"": "■", "/": "▨", "\\": "▧", "x": "▩", "-": "▤", "|": "▥", ".": "▒", "+": "▦"}
"""Patterns of bars, one after the other, each with its sign in a legend."""
DASHES = {"solid": "━", "dash": "╍", "dot": "┅", "dashdot": "═"}
"""Dashes of lines, with their signs."""
_MARKERS = ("circle", "diamond", "square", "triangle-up", "x", "cross", "star")
_SIGNS = {"bar": HATCHING, "line": DASHES, "dots": dict(zip(_MARKERS, "●◆□▲✖✚★", strict=True))}
_MOST_HATCHED = 400  # bars of a figure from which hatching would be too fine to see and slow to draw
_FEW_DECADES = 0.5  # powers of ten below which a logarithmic axis would have too few ticks
_LONGEST_NAME = 18  # characters in a line of a name beside a plot
_MOST_SAID = 12  # points of a trace, and traces of a figure, that a text names one by one
_MARGIN = {"l": 10, "r": 10, "t": 30, "b": 40}
FONT = "system-ui, sans-serif"
# What a browser may do with the page: run what stands in it, and load nothing from anywhere.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; form-action 'none'; base-uri 'none'"
)
_CONFIG = {
    "displaylogo": False,
    "showSendToCloud": False,
    "modeBarButtonsToRemove": ["sendChartToCloud", "lasso2d", "select2d", "autoScale2d"],
    "responsive": True,
}


_CLASSES = {"bold green": "kept", "bold red": "missed"}  # class of a cell by its style on the terminal
_MOST_ROWS = 1000
_OWN = ("Note", "Warning")  # headings of remarks that have places of their own


def rendered(page_: Page, command: str = "") -> str:
    """Return a page as HTML that needs no other file; `command` is the command line behind it."""
    lines = {name: [line for r in page_.remarks if r.heading == name for line in r.lines] for name in _OWN}
    headed = [r for r in page_.remarks if r.heading not in _OWN and r.lines]
    below = "".join(f"<pre>{escape(as_text(one))}</pre>" for one in page_.supplements)
    return page(
        page_.heading,
        text(page_.rest) if page_.rest else "",
        text(page_.subject) if page_.subject else "",
        bullets(lines["Warning"], "warning"),
        *map(section, page_.shown),
        *(_heading(remark.title or remark.heading) + bullets(remark.lines) for remark in headed),
        _further_fields(page_),
        below,
        lead=page_.headline,
        notes=lines["Note"],
        command=command,
    )


def section(part: Section) -> str:
    """Return a section as HTML; nothing for what only the terminal shows."""
    match part:
        case Table():
            return _table(part) if part.rows and part.only != "terminal" else ""
        case Plot():
            return _plot(part)
        case Later():
            return "".join(map(section, part.build()))
        case Figures():
            cells = (f"<div>{escape(name)}<b>{escape(v)}</b></div>" for name, v in part.pairs)
            return f"<div class=figures>{''.join(cells)}</div>"
        case Lines():
            if part.only == "terminal" or not part.lines:
                return ""
            style = "note" if part.style == "dim" else ""
            shown = bullets(part.lines, style) if len(part.lines) > 1 else text(part.lines[0], style)
            return _heading(part.title) + shown
    return ""


def _further_fields(page_: Page) -> str:
    """Return the fields of the page's document that no table of the page shows, folded away."""
    if page_.document is None:
        return ""
    tables = [part.table if isinstance(part, Plot) else part for part in page_.shown]
    names = [table.name for table in tables if isinstance(table, Table)]
    return folded("All figures and tables", "".join(map(section, field_sections(page_.document, names))))


def _heading(words: str) -> str:
    return f"<h2>{escape(words)}</h2>" if words else ""


def _table(part: Table) -> str:
    columns, rows = part.cells("html", part.rows[:_MOST_ROWS])
    words = [i for i, column in enumerate(columns) if column.is_left([row[i] for row in rows])]
    keys = [column.key for column in columns] if part.name else []
    shown = table([column.title for column in columns], rows, words, name=part.name, keys=keys)
    left = len(part.rows) - len(rows)
    below = text(f"and {left:,} more: --format json", "note") if left else ""
    below += text(part.caption, "note") if part.caption else ""
    return _heading(part.title) + (folded(part.folded, shown + below) if part.folded else shown + below)


def _plot(part: Plot) -> str:
    drawing = part.draw()
    listed = section(part.table) if part.table is not None else ""
    note = text(part.note) if part.note else ""
    if drawing is None or not drawing.data:
        return listed
    title = drawing.layout.title.text or part.title
    drawing.layout.title = None
    height = drawing.layout.height
    return plot(drawing, height, title, data=listed, least_width=part.least_width) + note


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
    kinds = " ".join(re.findall(r'data-kinds="([\w ]+)"', content)).split()
    library = f"<script>{plotting_library(frozenset(kinds))}</script>" if kinds else ""
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    head = f"{policy}<script>{text_beside(__file__, 'page.js')}</script>{library}"
    return frame(title, text_beside(__file__, "page.css"), content, head=head)


def frame(
    title: str, style: str, shown: str, *, head: str = "", scripts: str = "", language: str = "en"
) -> str:
    """Return an HTML document: what stands in its head, what it shows, and scripts below that."""
    return (
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>npusim: {escape(title)}</title><style>{style}</style>{head}</head>"
        f"<body><main>{shown}</main>{scripts}</body></html>\n"
    )


@cache
def text_beside(module: str, name: str) -> str:
    """Return the text of a file beside a module, such as a script or a style."""
    return Path(module).with_name(name).read_text("utf-8")


def body_of(page_: str) -> str:
    """Return what a page shows, to stand within another one."""
    return page_.partition("<main>")[2].rpartition("</main>")[0]


def plot(figure: go.Figure, height: int, title: str = "", *, data: str = "", least_width: int = 0) -> str:
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
        Table of its numbers, folded away below it.
    least_width : int
        In pixels; a narrower screen scrolls sideways.
    """
    legend = _legend(figure)
    figure.update_layout(
        height=height,
        font={"family": FONT, "size": 13},
        template="plotly_white",
        margin={**_MARGIN, **figure.layout.margin.to_plotly_json()},
        hoverlabel={"align": "left"},
        showlegend=False,
        separators=". ",
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    drawn: str = figure.to_html(full_html=False, include_plotlyjs=False, config=_CONFIG)
    kinds = " ".join(sorted({trace.type for trace in figure.data}))
    drawn = f'<div role=figure data-kinds="{kinds}" aria-label="{escape(figure_text(figure))}">{drawn}</div>'
    if least_width:
        drawn = f'<div class=wide><div style="min-width: {least_width}px">{drawn}</div></div>'
    return f"<section class=picture>{_heading(title)}{legend}{drawn}{folded('Table', data)}</section>"


def _legend(figure: go.Figure) -> str:
    """Return the names of a figure's traces as buttons, which wrap on any screen and hide what they name."""
    swatches = distinguish(figure)
    buttons = []
    for name, swatch in swatches.items():
        shown = enumerate(figure.data)
        traces = [k for k, trace in shown if trace.name == name and trace.showlegend is not False]
        off = figure.data[traces[0]].visible == "legendonly"
        buttons.append(
            f'<button class="{"off" if off else ""}" aria-pressed={json.dumps(not off)} '
            f'onclick="toggle(this)" data-traces="{json.dumps(traces)}">{swatch}{escape(name)}</button>'
        )
    return f"<p class=legend>{''.join(buttons)}</p>" if len(swatches) > 1 else ""


def distinguish(figure: go.Figure) -> dict[str, str]:
    """Hatch bars, dash lines and vary symbols of a figure where nothing is set.

    Returns
    -------
    dict of str to str
        HTML of a swatch by the name of its trace, for every trace that a legend names.
    """
    named = [trace for trace in figure.data if trace.name and trace.showlegend is not False]
    bars = (trace for trace in figure.data if trace.type == "bar" and trace.x is not None)
    is_coarse = sum(len(trace.x) for trace in bars) <= _MOST_HATCHED
    places: dict[str, list[str]] = {}
    swatches: dict[str, str] = {}
    for trace in named:
        kind = _kind(trace)
        known = places.setdefault(kind, [])
        if trace.name not in known:
            known.append(trace.name)
        number = known.index(trace.name) if is_coarse or kind != "bar" else 0
        sign = _sign(trace, kind, number)
        swatches.setdefault(trace.name, f'<i aria-hidden=true style="color: {_colour(trace)}">{sign}</i>')
    return swatches


def _kind(trace: Any) -> str:
    """Return whether a trace is seen as bars (or areas), lines or dots."""
    if trace.type == "bar" or getattr(trace, "stackgroup", None) or getattr(trace, "fill", None):
        return "bar"
    mode = getattr(trace, "mode", None) or "lines+markers"
    return "line" if "lines" in mode else "dots"


def _sign(trace: Any, kind: str, number: int) -> str:
    """Set hatching, dashes or symbol by number where none is set, and return the sign of it."""
    signs = _SIGNS[kind]
    first, *_ = signs.values()
    if kind == "bar" and trace.type != "bar":
        return first
    part, name = (trace.line, "dash") if kind == "line" else (trace.marker, "symbol")
    if kind == "bar":
        part, name = trace.marker.pattern, "shape"
    if part[name] is None:
        part[name] = list(signs)[number % len(signs)]
        if kind == "bar":
            part.update(fgcolor="#ffffff", size=6)
    return signs.get(str(part[name]).removesuffix("-open"), first)


def _colour(trace: Any) -> str:
    """Return the colour that a trace is drawn in, as text that is safe in a style."""
    for part in ("marker", "line"):
        colour = getattr(getattr(trace, part, None), "color", None)
        if isinstance(colour, str) and re.fullmatch(r"#[0-9a-fA-F]{3,8}", colour):
            return colour
    return _SCALED if getattr(getattr(trace, "marker", None), "colorscale", None) else GREY


def figure_text(figure: go.Figure) -> str:
    """Return a text that says what a figure shows: its axes, and for each trace its values or their range."""
    layout = figure.layout
    axes = [layout[key] for key in layout.to_plotly_json() if key.startswith(("xaxis", "yaxis"))]
    titles = [axis.title.text for axis in axes if axis.title.text]
    rows = [note.text for note in layout.annotations if note.text]
    texts = list(filter(None, (_trace_text(trace, layout, rows) for trace in figure.data)))
    more = f" And {len(texts) - _MOST_SAID} more series." if len(texts) > _MOST_SAID else ""
    return f"Chart. Axes: {', '.join(titles) or 'none'}. {' '.join(texts[:_MOST_SAID])}{more}"


def _trace_text(trace: Any, layout: Any, rows: Sequence[str]) -> str:
    """Return what one trace shows: a few points each, of many points the range; empty for a legend entry."""
    if trace.type == "heatmap":
        cells = np.asarray(trace.z, float)
        share = np.count_nonzero(cells) / max(cells.size, 1)
        return f"A map of {cells.shape[0]} x {cells.shape[1]} cells, {100 * share:.0f} % of them marked."
    if trace.type == "parcoords":
        return f"Lines across {', '.join(str(each.label) for each in trace.dimensions)}."
    x = [value for value in ([] if trace.x is None else trace.x) if value is not None]
    y = [] if trace.y is None else list(trace.y)
    if not x or trace.type == "histogram":
        return f"{trace.name}: a histogram of {len(x)} values." if x else ""
    name = f"{trace.name}: " if trace.name else ""
    units = [
        layout[f"{axis[0]}axis{axis[1:]}"].ticksuffix or ""
        for axis in (trace.xaxis or "x", trace.yaxis or "y")
    ]
    if trace.type == "bar" and trace.orientation == "h" and rows and len(trace.x) == len(rows):
        bars = ((row, value) for row, value in zip(rows, trace.x, strict=True) if value is not None)
        return f"{name}{', '.join(f'{row} {_amount(value, units[0])}' for row, value in bars)}."
    if len(x) <= _MOST_SAID and len(x) == len(y):
        pairs = ((_amount(a, units[0]), _amount(b, units[1])) for a, b in zip(x, y, strict=True))
        is_named = isinstance(y[0], str)
        return f"{name}{', '.join(f'{b} {a}' if is_named else f'{b} at {a}' for a, b in pairs)}."
    ranges = (_range(values, unit) for values, unit in zip((x, y), units, strict=True))
    return f"{name}{len(x)} points, {' by '.join(filter(None, ranges))}."


def _amount(value: Any, unit: str) -> str:
    """Return a value of an axis with its unit."""
    if isinstance(value, str):
        return value
    return engineering(float(value), unit) if unit not in ("", "x", "%") else f"{value:.4g}{unit}"


def _range(values: Iterable[Any], unit: str) -> str:
    numbers = [value for value in values if value is not None and not isinstance(value, str)]
    return f"{_amount(min(numbers), unit)} to {_amount(max(numbers), unit)}" if numbers else ""


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
        "ticktext": [
            "<br>".join(map(escape, LongName(name, joints="/+ ").lines(_LONGEST_NAME))) for name in names
        ],
    }


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    words: Sequence[int] = (0,),
    *,
    name: str = "",
    keys: Sequence[str] = (),
) -> str:
    """Return a table that scrolls sideways where it is wider than the screen.

    Parameters
    ----------
    words : sequence of int
        Columns aligned to the left; the others hold numbers.
    name : str
        With a name the table can be saved as a CSV file of that name, its amounts as raw numbers.
    keys : sequence of str
        Where each column stands in the JSON document.
    """
    lines = [tuple(row) for row in rows]
    units = [next((c.unit for c in cells if isinstance(c, Amount)), "") for cells in zip(*lines, strict=True)]
    data = [
        (f' data-key="{escape(key)}"' if keys else "") + (f' data-unit="{escape(unit)}"' if unit else "")
        for key, unit in zip(keys or heads, units or [""] * len(heads), strict=True)
    ]
    head = "".join(_cell("th", name, i in words, data[i]) for i, name in enumerate(heads))
    body = "".join(
        f"<tr>{''.join(_cell('td', cell, i in words) for i, cell in enumerate(row))}</tr>" for row in lines
    )
    content = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    whole = f"<div class=wide><table>{content}</table></div>"
    if not name:
        return whole
    button = f'<button class=csv data-name="{escape(name)}" onclick="saveCsv(this)">Save as CSV</button>'
    return f'<div class=data id="{escape(name)}">{whole}{button}</div>'


def _cell(tag: str, cell: Cell, is_left: bool, data: str = "") -> str:
    """Return a cell of a table; a long name may be broken where its parts meet."""
    style = _CLASSES.get(str(cell.style), "") if isinstance(cell, Text) else ""
    style = style or ("text" if is_left else "")
    if isinstance(cell, Amount):
        data = f' data-value="{"" if cell.value is None else escape(json.dumps(cell.value))}"'
    content = escape(str(cell))
    if tag == "th":
        tag, data = ("th", data + " scope=col") if content else ("td", data)
    if is_left and len(str(cell)) > _LONGEST_NAME:
        content = re.sub(r"([/+])(?=\w)", r"\1<wbr>", content)
    return f'<{tag} class="{style}"{data}>{content}</{tag}>'


def folded(summary: str, content: str) -> str:
    """Return content that shows on demand and in print; nothing where there is none."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>" if content else ""


def text(words: str, style: str = "") -> str:
    """Return a paragraph."""
    return f'<p class="{style}">{escape(words)}</p>'


def bullets(lines: Iterable[str], style: str = "") -> str:
    """Return a list; nothing where it has no lines."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="{style}">{items}</ul>' if items else ""
