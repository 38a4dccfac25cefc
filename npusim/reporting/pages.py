"""Pages of documents: which page a document has, what other packages add, several results on one page."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pkgutil import resolve_name
from typing import Any

from rich.console import Group, RenderableType

from npusim.documents import Document
from npusim.errors import FileError
from npusim.plugins import Registry
from npusim.reporting.kinds import DOCUMENTS
from npusim.reporting.page import Page, document_page, kind_name


@dataclass(frozen=True)
class Supplement:
    """What a package shows below the page of one kind of document."""

    name: str
    document: type[Document]
    """Documents that it is shown for, such as `npusim.Estimate`."""
    render: Callable[[Any], RenderableType | None]
    """Returns what rich prints, from the document; None: nothing."""


PAGES = Registry("npusim.reports", "report page", Supplement)
"""Every supplement of other packages by name."""


def own_page(document: Document) -> Page | None:
    """Return the page of a document; None where its kind has no page of its own."""
    kind = DOCUMENTS.get(kind_name(document))
    page: Page | None = resolve_name(kind.page)(document) if kind is not None and kind.page else None
    return page


def supplements_of(document: Document) -> list[RenderableType]:
    """Return what other packages show below the page of a document; a list of names imports no package."""
    if kind_name(document) == "list":
        return []
    shown = [one.render(document) for one in PAGES.values() if isinstance(document, one.document)]
    return [one for one in shown if one is not None]


def with_supplements(page: RenderableType, document: Document) -> RenderableType:
    """Return what a command prints with what other packages show below it."""
    below = supplements_of(document)
    if isinstance(page, Page):
        return replace(page, supplements=below)
    return Group(page, *below) if below else page


def html_of(document: Document, command: str, page: RenderableType | None = None) -> str:
    """Return a document as an HTML page that needs no other file.

    Parameters
    ----------
    command : str
        Command line behind it.
    page : Page, optional
        Its page where that holds more than the document tells.
    """
    own = page if isinstance(page, Page) else own_page(document) or document_page(document)
    return replace(own, supplements=supplements_of(document)).html(command)


_LOWER = {"h1": "h2", "h2": "h3", "h3": "h4"}
# Names of elements and links to them, except those of plots, which differ already.
_NAMED = re.compile(r'(\bid="|\bhref="#|url\(#)(?![0-9a-f]{8}-)')


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a report."""

    document: Document
    command: str
    """Command line that makes it; empty where it was read from a file."""
    origin: str
    """File or directory that it was read from, and the fingerprint of a file; empty where it was computed."""
    page: Callable[[], RenderableType] | None = None
    """Returns its page; None: that of the document alone."""


def report_html(title: str, results: Sequence[Result], command: str) -> str:
    """Return a page of all results, summary first, that needs no other file."""
    from npusim.reporting.html import page

    return page(
        title,
        _summary(results),
        *(_section(number, result) for number, result in enumerate(results, 1)),
        lead=_of_result(results[0], _headline) if results else "",
        command=command,
    )


def _summary(results: Sequence[Result]) -> str:
    from npusim.reporting.notebook import text_of

    entries = []
    for number, result in enumerate(results, 1):
        subject, *_, sizes = text_of(result.document).splitlines()
        headline = _verdict(result.document) or _of_result(result, _headline)
        summary = headline or sizes.partition(";")[0].strip()
        origin = f"made by <code>{escape(result.command)}</code>" if result.command else escape(result.origin)
        entries.append(
            f'<li><a href="#result-{number}">{escape(subject)}</a><br>{escape(summary)}'
            f"<br><span class=note>{origin}</span></li>"
        )
    return f"<h2>Summary</h2><ol>{''.join(entries)}</ol>"


def _of_result(result: Result, show: Callable[[Result], str]) -> str:
    """Return what a page shows of a result; one read from a file may hold parts that do not fit together.

    Raises
    ------
    FileError
        Names the file.
    """
    try:
        return show(result)
    except (LookupError, AttributeError, TypeError, ValueError, ArithmeticError) as error:
        if not result.origin:
            raise
        problem = f"its parts do not fit together ({type(error).__name__}: {error})"
        raise FileError(result.origin, problem, "give it as npusim wrote it") from error


def _headline(result: Result) -> str:
    """Return the headline of a result's page; nothing where it has none."""
    page = result.page() if result.page else own_page(result.document)
    return page.headline if isinstance(page, Page) else ""


def _verdict(document: Document) -> str:
    """Return how many limits of a validation are kept; nothing for other documents."""
    from npusim.validation.document import Validation

    if not isinstance(document, Validation):
        return ""
    groups = [group for suite in document.suites for group in suite.groups]
    kept = sum(group.ok for group in groups)
    names = ", ".join(suite.name for suite in document.suites)
    return f"{names}: {kept} of {len(groups)} groups of figures within their limits"


def _section(number: int, result: Result) -> str:
    """Return a result's page as a section: headings a level lower, names with its number before them."""
    from npusim.reporting.html import body_of, text

    def page_of(result: Result) -> str:
        return html_of(result.document, result.command, result.page() if result.page else None)

    body = body_of(_of_result(result, page_of))
    body = re.sub(r"(</?)(h[123])\b", lambda match: match[1] + _LOWER[match[2]], body)
    body = _NAMED.sub(rf"\1r{number}-", body)
    origin = text(f"Read from {result.origin}", "note") if result.origin else ""
    return f'<section class=result id="result-{number}">{body}{origin}</section>'
