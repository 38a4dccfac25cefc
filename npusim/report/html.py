"""The HTML page of all reports: one file, one style, plots with their tables, nothing sent anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee",
    "#aa3377", "#885522", "#000000", "#ee7733", "#44bb99",
)  # fmt: skip
"""Colours that stay apart for the colour-blind (Paul Tol's bright scheme and others)."""
GREY = "#bbbbbb"
_FONT = "system-ui, sans-serif"
_STYLE = f"""
body {{ font: 15px/1.5 {_FONT}; color: #222; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; overflow-wrap: anywhere; }} h2 {{ font-size: 1.2rem; margin-top: 2.5rem; }}
h3 {{ font-size: 1rem; }} code {{ overflow-wrap: anywhere; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #e5e5e5; white-space: nowrap; }}
th {{ font-weight: 600; color: #555; }} .wide {{ overflow-x: auto; }}
th.text, td.text {{ text-align: left; }} td.text {{ white-space: normal; min-width: 8rem; }}
.note {{ color: #555; }} .warning {{ color: #a05000; }} .verdict {{ font-weight: 600; }}
.missed {{ color: #b00020; font-weight: 600; }} .kept {{ color: #1b7837; }}
nav a {{ margin-right: 1rem; }} details {{ margin: .5rem 0; }}
"""
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
    "modeBarButtonsToRemove": ["sendChartToCloud", "lasso2d", "select2d"],
    "responsive": True,
}


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
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>npusim: {escape(title)}</title><style>{_STYLE}</style><script>{_library()}</script></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def plot(
    figure: go.Figure,
    height: int,
    title: str = "",
    *,
    least_width: int = 0,
    margin: Mapping[str, int] | None = None,
) -> str:
    """Return a figure as part of a page, in the page's style.

    Parameters
    ----------
    figure : plotly.graph_objects.Figure
        Written to: fonts, margins, legend.
    height : int
        In pixels.
    title : str
        Heading above it: a title within the figure is cut on narrow screens.
    least_width : int
        In pixels; a narrower screen scrolls sideways.
    margin : mapping of str to int, optional
        Margins other than the page's.
    """
    figure.update_layout(
        height=height,
        font={"family": _FONT, "size": 13},
        template="plotly_white",
        margin={"l": 10, "r": 10, "t": 30, "b": 40, **(margin or {})},
        hoverlabel={"align": "left"},
        legend={"orientation": "h", "y": -0.15, "yanchor": "top", "x": 0, "itemsizing": "constant"},
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    drawn: str = figure.to_html(full_html=False, include_plotlyjs=False, config=_CONFIG)
    if least_width:
        drawn = f'<div class=wide><div style="min-width: {least_width}px">{drawn}</div></div>'
    return f"<h2>{escape(title)}</h2>{drawn}" if title else drawn


def seconds_axis(title: str, log: bool = True) -> dict[str, Any]:
    """Return settings of an axis over times in s, its ticks with SI prefixes."""
    scale = {"type": "log", "dtick": 1} if log else {"rangemode": "tozero"}
    return {"title": title, "tickformat": "~s", "ticksuffix": "s", **scale}


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    words: Sequence[int] = (0,),
    styles: Mapping[str, str] | None = None,
) -> str:
    """Return a table that scrolls sideways where it is wider than the screen.

    Parameters
    ----------
    words : sequence of int
        Columns that hold words; the others hold numbers, to the right.
    styles : mapping of str to str, optional
        Class of cells by their text.
    """
    classes = styles or {}

    def line(cells: Sequence[str], tag: str) -> str:
        drawn = (
            f'<{tag} class="{classes.get(cell, "text" if i in words else "")}">{escape(cell)}</{tag}>'
            for i, cell in enumerate(cells)
        )
        return f"<tr>{''.join(drawn)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<div class=wide><table>{line(heads, 'th')}{body}</table></div>"


def text(words: str, style: str = "") -> str:
    """Return a paragraph."""
    return f'<p class="{style}">{escape(words)}</p>'


def bullets(lines: Iterable[str], style: str = "") -> str:
    """Return a list; nothing where it has no lines."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="{style}">{items}</ul>' if items else ""


def _library() -> str:
    """Return the plotting library without addresses of others."""
    script: str = get_plotlyjs()
    for address in _FOREIGN:
        script = script.replace(address, "")
    return script
