"""Pages of documents: which HTML page a document has, and what other packages add below."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from npusim.documents import Document
from npusim.plugins import Registry

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Page:
    """A page that is shown below the tables of one kind of document."""

    name: str
    """What it is called."""
    document: type[Document]
    """Documents that it is shown for, such as `npusim.Estimate`."""
    render: Callable[[Any], RenderableType | None]
    """Returns what rich prints below, from the document; None: nothing."""


_HTML = {
    "estimate": "npusim.report.estimate_html:estimate_html",
    "whatif": "npusim.report.whatif_html:whatif_html",
    "pareto": "npusim.report.pareto_html:pareto_html",
    "calibration": "npusim.report.calibration_html:calibration_html",
    "compare": "npusim.report.study_html:compare_html",
    "llm": "npusim.report.language_html:language_html",
    "map": "npusim.report.study_html:placement_html",
    "map-front": "npusim.report.map_front:map_front_html",
    "stream": "npusim.report.study_html:stream_html",
    "accuracy": "npusim.report.study_html:accuracy_html",
    "measurement": "npusim.report.study_html:measurement_html",
    "search": "npusim.report.study_html:search_html",
}
"""What makes the HTML page of each kind of document; all others get their tables."""

PAGES = Registry("npusim.reports", "report page", Page)
"""Every added page by name."""


def with_pages(page: RenderableType, document: Document) -> RenderableType:
    """Return a page with what is added for its document below."""
    added = [one.render(document) for one in PAGES.values() if isinstance(document, one.document)]
    shown = [one for one in added if one is not None]
    if not shown:
        return page
    from rich.console import Group

    return Group(page, *shown)


def html_of(document: Document, command: str) -> str:
    """Return a document as an HTML page that needs no other file; `command` asked for it."""
    kind = document.schema_name().partition("/")[0].removeprefix("npusim.")
    module, name = _HTML.get(kind, "npusim.report.document_html:document_html").split(":")
    html: str = getattr(import_module(module), name)(document, command)
    return html.replace("</body>", f"{_added(document)}</body>")


def _added(document: Document) -> str:
    """Return the pages of other packages as preformatted text."""
    from io import StringIO

    from rich.console import Console, Group

    shown = with_pages(Group(), document)
    if isinstance(shown, Group) and not shown.renderables:
        return ""
    written = StringIO()
    Console(file=written, width=100, color_system=None).print(shown)
    return f"<pre>{escape(written.getvalue())}</pre>"
