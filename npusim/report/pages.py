"""Report pages that other packages add below npusim's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
