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


@dataclass(frozen=True)
class DocumentKind:
    """A kind of JSON document and what makes its pages, each as `module:name`, imported on first use."""

    name: str
    """Name of its schema without `npusim.` and version."""
    model: str
    """The `Document`."""
    page: str = ""
    """Returns the page for the terminal, from the document; empty: it has none."""
    html: str = "npusim.report.document_html:document_html"
    """Returns the HTML page, from the document and the command that made it."""


DOCUMENTS = Registry("npusim.documents", "document", DocumentKind)
"""Every kind of document that npusim and other packages write."""

for _kind in (
    DocumentKind(
        "estimate",
        "npusim.engines:Estimate",
        page="npusim.report.estimate:estimate_page",
        html="npusim.report.estimate_html:estimate_html",
    ),
    DocumentKind(
        "compare",
        "npusim.studies.side_by_side:Comparison",
        page="npusim.report.side_by_side:comparison_page",
        html="npusim.report.study_html:compare_html",
    ),
    DocumentKind(
        "whatif",
        "npusim.studies:WhatIf",
        page="npusim.report.whatif:whatif_page",
        html="npusim.report.whatif_html:whatif_html",
    ),
    DocumentKind(
        "graph-difference",
        "npusim.graph:GraphDifference",
        page="npusim.report.graph_difference:difference_page",
    ),
    DocumentKind("advise", "npusim.studies.advice:Advice"),
    DocumentKind(
        "map",
        "npusim.studies.placement_document:Placement",
        page="npusim.report.placement:placement_page",
        html="npusim.report.study_html:placement_html",
    ),
    DocumentKind(
        "map-front",
        "npusim.studies.map_front_document:MapFront",
        page="npusim.report.map_front:map_front_page",
        html="npusim.report.map_front:map_front_html",
    ),
    DocumentKind(
        "stream",
        "npusim.studies.stream:Followed",
        page="npusim.report.stream:stream_page",
        html="npusim.report.study_html:stream_html",
    ),
    DocumentKind("validate", "npusim.validation:Validation"),
    DocumentKind("trace-diff", "npusim.measure.traces:TraceDiff", page="npusim.report.trace_diff:diff_page"),
    DocumentKind(
        "accuracy",
        "npusim.accuracy.document:AccuracyReport",
        page="npusim.report.accuracy:accuracy_page",
        html="npusim.report.study_html:accuracy_html",
    ),
    DocumentKind("sweep", "npusim.explore:SweepResult"),
    DocumentKind("query", "npusim.explore.query:Answer"),
    DocumentKind(
        "pareto",
        "npusim.explore.fronts:Front",
        page="npusim.report.exploration:pareto_page",
        html="npusim.report.pareto_html:pareto_html",
    ),
    DocumentKind(
        "search",
        "npusim.explore.search:SearchResult",
        page="npusim.report.exploration:search_page",
        html="npusim.report.study_html:search_html",
    ),
    DocumentKind(
        "calibration",
        "npusim.calibrate.device_report:CalibrationReport",
        page="npusim.report.calibration:calibration_page",
        html="npusim.report.calibration_html:calibration_html",
    ),
    DocumentKind("list", "npusim.catalogues:Listing"),
    DocumentKind(
        "measurement",
        "npusim.measure:Measurement",
        page="npusim.report.measurement:measurement_page",
        html="npusim.report.study_html:measurement_html",
    ),
    DocumentKind("parameters", "npusim.validation.document:Unmeasured"),
):
    DOCUMENTS.register(_kind)


def loaded(name: str) -> Any:
    """Return what `module:name` names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def kind_name(document: Document) -> str:
    """Return the name of a document's kind."""
    return document.schema_name().partition("/")[0].removeprefix("npusim.")


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
    kind = DOCUMENTS.get(kind_name(document))
    html: str = loaded(kind.html if kind is not None else DocumentKind.html)(document, command)
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
