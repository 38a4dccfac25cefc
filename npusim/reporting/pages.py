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


# Names of elements and links to them, except those of plots, which differ already.
_NAMED = re.compile(r'(\bid="|\bhref="#)(?![0-9a-f]{8}-)')


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
    """Return a page of all results, summary first, that needs no other file.

    Raises
    ------
    FileError
        Names a file whose parts do not fit together.
    """
    from npusim.reporting.html import page
    from npusim.reporting.notebook import text_of

    entries, sections, headlines = [], [], []
    for number, result in enumerate(results, 1):
        headline, body = _shown(result)
        subject, *_, sizes = text_of(result.document).splitlines()
        origin = f"made by <code>{escape(result.command)}</code>" if result.command else escape(result.origin)
        entries.append(
            f'<li><a href="#result-{number}">{escape(subject)}</a><br>'
            f"{escape(headline or sizes.partition(';')[0].strip())}<br><span class=note>{origin}</span></li>"
        )
        # Headings a level lower, and names with the result's number before them.
        body = re.sub(r"(</?h)([123])\b", lambda match: f"{match[1]}{int(match[2]) + 1}", body)
        body = _NAMED.sub(rf"\1r{number}-", body)
        read = f"<p class=note>Read from {escape(result.origin)}</p>" if result.origin else ""
        sections.append(f'<section class=result id="result-{number}">{body}{read}</section>')
        headlines.append(headline)
    summary = f"<h2>Summary</h2><ol>{''.join(entries)}</ol>"
    return page(title, summary, *sections, lead=headlines[0] if results else "", command=command)


def _shown(result: Result) -> tuple[str, str]:
    """Return the headline of a result and its page, as HTML to stand within another one."""
    from npusim.reporting.html import body_of

    try:
        page = result.page() if result.page else own_page(result.document)
        headline = page.headline if isinstance(page, Page) else ""
        body = body_of(html_of(result.document, result.command, page))
        return _verdict(result.document) or headline, body
    except (LookupError, AttributeError, TypeError, ValueError, ArithmeticError) as error:
        if not result.origin:
            raise
        problem = f"its parts do not fit together ({type(error).__name__}: {error})"
        raise FileError(result.origin, problem, "give it as npusim wrote it") from error


def _verdict(document: Document) -> str:
    """Return how many limits of a validation are kept; nothing for other documents."""
    from npusim.validation.document import Validation

    if not isinstance(document, Validation):
        return ""
    groups = [group for suite in document.suites for group in suite.groups]
    kept = sum(group.ok for group in groups)
    names = ", ".join(suite.name for suite in document.suites)
    return f"{names}: {kept} of {len(groups)} groups of figures within their limits"
