"""Documents in a console and in a notebook: a few lines of text, the page of the terminal as HTML."""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING, Any

from npusim.documents import Display, Document
from npusim.metrics import METRICS, unit_of
from npusim.reporting.engineering import engineering, last_digit

if TYPE_CHECKING:
    from rich.console import Console

# Fields that say what a document is about.
_SUBJECT = ("title", "workload", "soc", "techniques", "device", "chip", "engine", "hint", "directory")
_MOST_METRICS = 4
_COLUMNS = 100
_STYLE = "font-family: monospace; line-height: 1.2; font-size: 90%; overflow-x: auto"


def text_of(document: Document) -> str:
    """Return a few lines: what the document is about, its first metrics, the size of its tables."""
    fields: dict[str, Any] = dict(document)
    about = [fields[name] for name in _SUBJECT if fields.get(name)]
    subject = [str(getattr(each, "name", each)) for each in about if not isinstance(each, list | dict)]
    lines = [f"{type(document).__name__}: {', '.join(subject)}".removesuffix(": ")]
    metrics = [name for name in METRICS if isinstance(fields.get(name), int | float)][:_MOST_METRICS]
    last = {"latency_s": last_digit(fields.get("latency_interval_s"))}
    figures = [
        f"{METRICS[name].title} {engineering(fields[name], unit_of(name), last.get(name))}"
        for name in metrics
    ]
    for line in (", ".join(figures), fields.get("conclusion", "")):
        lines += textwrap.wrap(line, _COLUMNS, initial_indent="  ", subsequent_indent="  ")
    tables = {name: fields[name] for name in document.tables() if not isinstance(fields[name], int)}
    sizes = [f"{name.replace('_', ' ')}: {len(rows)}" for name, rows in tables.items() if rows]
    counts = [f"{name}: {value:,}" for name, value in fields.items() if not tables and type(value) is int]
    lines.append(f"  {', '.join([*sizes, *counts])}; to_frame(), to_json()")
    return "\n".join(lines)


def html_of(document: Document) -> str:
    """Return the document's page as HTML for a notebook; its text where its kind has no page."""
    console = _printed(document, color=True)
    return console.export_html(inline_styles=True, code_format=f'<pre style="{_STYLE}">{{code}}</pre>')


def page_of(document: Document) -> str:
    """Return the document's page as text, as the command prints it; a few lines where it has no page."""
    return _printed(document, color=False).export_text().rstrip()


def _printed(document: Document, *, color: bool) -> Console:
    from rich.console import Console

    from npusim.reporting.pages import own_page, with_supplements

    page = own_page(document)
    how: dict[str, Any] = {"force_terminal": True} if color else {"color_system": None}
    how |= {"highlight": False, "emoji": False, "width": _COLUMNS, "record": True}
    console = Console(markup=False, file=io.StringIO(), **how)
    console.print(text_of(document) if page is None else with_supplements(page, document))
    return console


DISPLAY = Display("notebook", text_of, html_of, page_of)
"""How documents are shown: `npusim.documents.DISPLAYS` loads it."""
