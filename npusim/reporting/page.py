"""A result as a page of sections, built once; `terminal` and `html` render it.

A cell of a table, a remark or a conclusion is worked out here once, so both say the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

from npusim.documents import Document
from npusim.reporting.engineering import MOST_IN_CELL, cell, flattened, worded
from npusim.reporting.tables import Column as Column
from npusim.reporting.tables import Only, cells_table
from npusim.reporting.tables import Table as Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z])")
_OWN_PLACES = ("notes", "warnings", "conclusion")
"""Fields of a document that no table shows."""


@dataclass(frozen=True)
class Plot:
    """A picture of an HTML page; the terminal shows its table."""

    title: str
    """Heading; the title of the figure's layout replaces it."""
    draw: Callable[..., go.Figure | None]
    """Returns a figure with its height, or None where there is nothing to draw."""
    table: Table | None = None
    """Numbers behind it, folded away below it."""
    note: str = ""
    least_width: int = 0
    """In pixels; a narrower screen scrolls sideways."""


@dataclass(frozen=True)
class Figures:
    """Headline figures: name and amount."""

    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Lines:
    """Sentences, each on a line of its own."""

    lines: Sequence[str]
    title: str = ""
    style: str = ""
    only: Only = ""


@dataclass(frozen=True)
class Later:
    """Sections that are built for HTML, and for the terminal where details are asked for."""

    build: Callable[[], Sequence[Any]]


Section = Table | Plot | Figures | Lines | Later | RenderableType
"""Part of a page; what rich alone can draw is left out of HTML."""


@dataclass(frozen=True)
class Remark:
    """Lines under a heading in the margin, below the sections."""

    heading: str
    """`Note` and `Warning` have places of their own in HTML."""
    lines: Sequence[str]
    style: str = "dim"
    title: str = ""
    """Heading in HTML; default: `heading`."""
    most: int = 0
    """Lines that the terminal shows at most; 0: all."""


@dataclass(frozen=True)
class Page:
    """A whole page; rich prints it, `html` returns it as a file."""

    title: str
    """What it shows."""
    of: tuple[str, str, str] | None = None
    """Network, machine and techniques, each may be empty; the terminal shows them as the title."""
    subject: str = ""
    """Line below the title: how the network runs."""
    sections: Sequence[Section | None] = ()
    remarks: Sequence[Remark] = ()
    conclusion: str = ""
    """Last line on the terminal, first in HTML."""
    lead: str = ""
    """First line in HTML where there is no conclusion."""
    document: Document | None = None
    """Document whose other fields follow in HTML."""
    details: bool = False
    """Whether the terminal shows sections of detail."""
    supplements: Sequence[RenderableType] = ()
    """What other packages show below the page."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the page for the terminal."""
        from npusim.reporting.terminal import rendered

        yield rendered(self)

    def html(self, command: str = "") -> str:
        """Return the page as HTML that needs no other file; `command` is the command line behind it."""
        from npusim.reporting.html import rendered

        return rendered(self, command)

    @property
    def shown(self) -> list[Section]:
        """Sections that are there."""
        return [section for section in self.sections if section is not None]

    @property
    def headline(self) -> str:
        """First sentence of what the page concludes."""
        return _SENTENCE_END.split(self.conclusion or self.lead, 1)[0]

    @property
    def rest(self) -> str:
        """Sentences after the headline."""
        return (self.conclusion or self.lead)[len(self.headline) :].strip()

    @property
    def heading(self) -> str:
        """Title with network, machine and techniques."""
        workload, soc, techniques = self.of or ("", "", "")
        named = f"{workload} on {soc}" if workload and soc else workload or soc
        changed = f" with {techniques}" if techniques and techniques != "none" else ""
        return f"{self.title}{': ' if named else ''}{named}{changed}"


def kind_name(document: Document) -> str:
    """Return the name of a document's kind."""
    return document.schema_name().partition("/")[0].removeprefix("npusim.")


def document_page(
    document: Document,
    title: str = "",
    subject: str = "",
    sections: Sequence[Section | None] | None = None,
    remarks: Sequence[Remark] = (),
    notes: Iterable[str] = (),
    **options: Any,
) -> Page:
    """Return the page of a document; network, machine, warnings, notes and conclusion are its own.

    Parameters
    ----------
    title : str
        Default: the name of its kind.
    sections : sequence of Section, optional
        Default: all its fields; HTML has those that no section shows, too.
    remarks : sequence of Remark
        Between warnings and notes.
    notes : iterable of str
        Below the document's own.
    **options
        Further settings of the `Page`, in place of what the document says.
    """
    values = dict(document)
    head = [values.get(key) for key in ("workload", "soc", "techniques")]
    workload, soc, techniques = (each if isinstance(each, str) else "" for each in head)
    defaults = {
        "of": (workload or values.get("catalogue", ""), soc, techniques),
        "conclusion": values.get("conclusion", ""),
        "document": None if sections is None else document,
    }
    return Page(
        title or kind_name(document).replace("-", " ").capitalize(),
        subject=subject,
        sections=field_sections(document) if sections is None else sections,
        remarks=[
            Remark("Warning", values.get("warnings", ()), "bold yellow"),
            *remarks,
            Remark("Note", [*values.get("notes", ()), *notes]),
        ],
        **{**defaults, **options},
    )


def field_sections(document: Document, without: Sequence[str] = ()) -> list[Section]:
    """Return the fields of a document: a table of each list of records, one table of all other values."""
    data = document.model_dump(mode="json", by_alias=True, exclude={*_OWN_PLACES, "schema_"})
    scalars: dict[str, Any] = {}
    sections: list[Section] = []
    for key, value in data.items():
        heading = worded(key).capitalize()
        if key in without:
            continue
        if isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
            value = [{"name": name, **part} for name, part in value.items()]
        if isinstance(value, list) and value and isinstance(value[0], dict):
            sections.append(Table((), value, heading, key, whole=True))
        elif isinstance(value, list) and len(value) > MOST_IN_CELL and isinstance(value[0], str):
            sections.append(Lines(value, heading))
        else:
            scalars |= flattened({key: value})
    own = (pair for pair in scalars.items() if pair[0].rpartition(".")[2] not in _OWN_PLACES)
    rows = [(worded(key), cell(key, value)) for key, value in own if value not in ("", None, [], {})]
    figures = cells_table(("what", "value"), rows, "All figures", "figures")
    return [*sections, figures] if rows else sections
