"""Documents in a console and in a notebook: a few lines of text, the page of the terminal as HTML."""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING, Any

from npusim.documents import Display, Document
from npusim.metrics import METRICS, unit_of
from npusim.report.engineering import engineering, last_digit

if TYPE_CHECKING:
    from rich.console import RenderableType

_SUBJECT = ("title", "workload", "soc", "techniques", "device", "chip", "engine", "hint", "directory")
"""Fields that say what a document is about."""
_MOST_METRICS = 4
_COLUMNS = 100
_STYLE = "font-family: monospace; line-height: 1.2; font-size: 90%; overflow-x: auto"


def page_of(document: Document) -> RenderableType | None:
    """Return the page of a document for the terminal; None where its kind has none."""
    from npusim.report.pages import DOCUMENTS, kind_name, loaded, with_pages

    kind = DOCUMENTS.get(kind_name(document))
    return with_pages(loaded(kind.page)(document), document) if kind is not None and kind.page else None


def text_of(document: Document) -> str:
    """Return a few lines: what the document is about, its first metrics, the size of its tables."""
    held: dict[str, Any] = dict(document)
    subject = [str(getattr(held[name], "name", held[name])) for name in _SUBJECT if held.get(name)]
    lines = [f"{type(document).__name__}: {', '.join(subject)}".removesuffix(": ")]
    metrics = [name for name in METRICS if isinstance(held.get(name), int | float)][:_MOST_METRICS]
    borne = {"latency_s": last_digit(held.get("latency_interval_s"))}
    figures = [
        f"{METRICS[name].title} {engineering(held[name], unit_of(name), borne.get(name))}" for name in metrics
    ]
    for line in (", ".join(figures), held.get("conclusion", "")):
        lines += textwrap.wrap(line, _COLUMNS, initial_indent="  ", subsequent_indent="  ")
    tables = {name: held[name] for name in document.tables() if not isinstance(held[name], int)}
    sizes = [f"{name.replace('_', ' ')}: {len(rows)}" for name, rows in tables.items() if rows]
    counts = [f"{name}: {value:,}" for name, value in held.items() if not tables and type(value) is int]
    lines.append(f"  {', '.join([*sizes, *counts])}; to_frame(), to_json()")
    return "\n".join(lines)


def html_of(document: Document) -> str:
    """Return the document's page as HTML for a notebook; its text where its kind has no page."""
    from rich.console import Console

    page = page_of(document)
    console = Console(
        file=io.StringIO(), record=True, width=_COLUMNS, force_terminal=True, highlight=False, emoji=False
    )
    console.print(text_of(document) if page is None else page, markup=False)
    return console.export_html(inline_styles=True, code_format=f'<pre style="{_STYLE}">{{code}}</pre>')


DISPLAY = Display("notebook", text_of, html_of)
"""How documents are shown: `npusim.documents.DISPLAYS` loads it."""
