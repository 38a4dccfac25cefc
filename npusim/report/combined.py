"""Several results on one page: a summary, then the page of each with the command or file behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from npusim.documents import Document
from npusim.report.html import body_of, page, text
from npusim.report.notebook import text_of
from npusim.report.pages import html_of
from npusim.validation.document import Validation

_LOWER = {"h1": "h2", "h2": "h3", "h3": "h4"}
_NAMED = re.compile(r'(\bid="|\bhref="#|url\(#)(?![0-9a-f]{8}-)')
"""Where an element has a name, or is meant by it, but for plots, whose names differ already: a number before
it keeps those of two results apart."""


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a report."""

    document: Document
    command: str
    """Command line that makes it; empty where it was read from a file."""
    origin: str
    """File or directory that it was read from, and the fingerprint of a file; empty where it was made."""
    html: Callable[[str], str] | None = None
    """Makes its page from the command line; None: pictures and tables of the document alone."""


def report_html(title: str, results: Sequence[Result], command: str) -> str:
    """Return a page of all results that needs no other file.

    Parameters
    ----------
    title : str
    results : sequence of Result
        In the order in which they are shown.
    command : str
        The command line that wrote the page.
    """
    return page(
        title,
        _summary(results),
        *(_section(number, result) for number, result in enumerate(results, 1)),
        lead=f"{len(results)} results" if len(results) > 1 else "",
        command=command,
    )


def _summary(results: Sequence[Result]) -> str:
    entries = []
    for number, result in enumerate(results, 1):
        subject, *figures, sizes = text_of(result.document).splitlines()
        said = " ".join(line.strip() for line in figures) or _verdict(result.document)
        said = said or sizes.partition(";")[0].strip()
        origin = f"made by <code>{escape(result.command)}</code>" if result.command else escape(result.origin)
        entries.append(
            f'<li><a href="#result-{number}">{escape(subject)}</a><br>{escape(said)}'
            f"<br><span class=note>{origin}</span></li>"
        )
    return f"<h2>Summary</h2><ol>{''.join(entries)}</ol>"


def _verdict(document: Document) -> str:
    """Return how many limits of a validation are kept; nothing for other documents."""
    if not isinstance(document, Validation):
        return ""
    groups = [group for suite in document.suites for group in suite.groups]
    kept = sum(group.ok for group in groups)
    names = ", ".join(suite.name for suite in document.suites)
    return f"{names}: {kept} of {len(groups)} groups of figures within their limits"


def _section(number: int, result: Result) -> str:
    made = result.html(result.command) if result.html else html_of(result.document, result.command)
    body = body_of(made)
    body = re.sub(r"(</?)(h[123])\b", lambda found: found[1] + _LOWER[found[2]], body)
    body = _NAMED.sub(rf"\1r{number}-", body)
    origin = text(f"Read from {result.origin}", "note") if result.origin else ""
    return f'<section class=result id="result-{number}">{body}{origin}</section>'
