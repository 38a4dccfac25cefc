"""A result as a page of sections, built once; `terminal` and `html` render it.

A cell of a table, a remark or a conclusion is worked out here once, so both say the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rich.bar import Bar
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from npusim.documents import Document
from npusim.metrics import HEADINGS
from npusim.reporting.engineering import (
    MOST_IN_CELL,
    Amount,
    Cell,
    cell,
    flattened,
    interval_key,
    last_digit,
    worded,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

Key = TypeVar("Key")
Item = TypeVar("Item")
Only = Literal["", "terminal", "html"]
"""The one back end that shows something; empty: both."""
_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z])")
FOLD = {"overflow": "fold"}
"""Layout of a column whose words may be broken anywhere."""
CYAN = {"style": "cyan"}
_OWN_PLACES = ("notes", "warnings", "conclusion")
"""Fields of a document that no table shows."""


@dataclass(frozen=True)
class Column:
    """A column of a table, read from each of its records."""

    key: str
    """Attribute or key of a record, `a.b` within a part; also the heading of a CSV file."""
    heading: str | None = None
    """Default: the words of the key."""
    show: Callable[..., Cell | float | None] | None = None
    """Returns the cell of a record, or its number; default: the value of its key."""
    only: Only = ""
    words: bool | None = None
    """Aligned to the left; default: whether any cell is text."""
    text: str | Callable[[Any], str] = ""
    """Format of the value, such as `{:.0%}`, or what returns its text; default: by its key."""
    layout: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the column on the terminal, as for `rich.table.Table.add_column`."""

    def cell(self, record: Any) -> Cell:
        """Return the cell of a record."""
        if self.show is not None:
            content = self.show(record)
            return cell(self.key, content) if isinstance(content, int | float) else content or ""
        value = _value(record, self.key)
        if self.text:
            text = self.text.format if isinstance(self.text, str) else self.text
            return "" if value is None else Amount(value, "", text(value))
        return cell(self.key, value, last_digit(_value(record, interval_key(self.key))))

    def is_left(self, cells: Sequence[Cell]) -> bool:
        """Tell whether the column is aligned to the left."""
        if self.words is None:
            return any(not isinstance(cell, Amount | Bar) and str(cell) for cell in cells)
        return self.words

    @property
    def title(self) -> str:
        """Heading of the column."""
        words = "90 %" if "interval" in self.key else HEADINGS.get(self.key, worded(self.key))
        return words if self.heading is None else self.heading


def fields(line: str, only: Only = "", **options: Any) -> tuple[Column, ...]:
    """Return the columns of a line of keys; a column's own heading stands behind a colon.

    Unit and format of each column are those of its key; `options` are settings of the columns.

    Examples
    --------
    >>> [column.title for column in fields("latency_s, dram_bytes, token_s: time of a token")]
    ['latency', 'DRAM', 'time of a token']
    """
    keys = [pair.partition(":") for pair in line.split(",")]
    return tuple(
        Column(key.strip(), heading.strip() if colon else None, only=only, **options)
        for key, colon, heading in keys
    )


@dataclass(frozen=True)
class Table:
    """Records under headings."""

    columns: Sequence[Column]
    rows: Sequence[Any]
    title: str = ""
    """Heading above it; on the terminal only where `titled`."""
    name: str = ""
    """Name of its CSV file, which HTML offers; empty: none."""
    caption: str | Text = ""
    """What its columns mean, below it."""
    terminal: Sequence[Any] | None = None
    """Records that the terminal shows in place of all: fewer, in another order, or with sums."""
    most: int = 0
    """Rows that the terminal shows at most; 0: all."""
    style: Callable[[Any], str] = lambda record: ""
    """Returns the style of a record's row on the terminal."""
    only: Only = ""
    titled: bool = False
    detail: bool = False
    """Shown on the terminal where details are asked for."""
    gap: int = 2
    """Characters between columns on the terminal."""
    folded: str = ""
    """Line of HTML that unfolds the table; empty: it is open."""
    whole: bool = False
    """Whether HTML has a column for every other field of its records."""

    @property
    def on_terminal(self) -> Sequence[Any]:
        """Records that the terminal shows."""
        return self.rows if self.terminal is None else self.terminal

    def cells(self, back_end: Only, records: Sequence[Any]) -> tuple[list[Column], list[list[Cell]]]:
        """Return the columns that a back end shows and the cells of records; empty columns are left out."""
        columns = [column for column in self.columns if column.only in ("", back_end)]
        if self.whole and (back_end == "html" or not columns):
            columns += self._other_fields()
        rows = [[column.cell(record) for column in columns] for record in records]
        kept = [i for i in range(len(columns)) if not i or any(not _is_empty(row[i]) for row in rows)]
        return [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]

    def _other_fields(self) -> list[Column]:
        """Return a column for each field that has none, but for lists that are no interval."""
        shown = {column.key for column in self.columns if column.only != "terminal"}
        pairs = [pair for record in self.rows for pair in flattened(record).items()]
        keys = dict.fromkeys(key for key, value in pairs if "interval" in key or not isinstance(value, list))
        parts = {key[:i] for key in keys for i, letter in enumerate(key) if letter == "."}
        return [Column(key, worded(key)) for key in keys if key not in shown | parts]


@dataclass(frozen=True)
class Plot:
    """A picture of an HTML page; the terminal shows its table."""

    title: str
    """Heading; the title of the figure's layout replaces it."""
    draw: Callable[..., go.Figure | str | None]
    """Returns a figure with its height, SVG, or None where there is nothing to draw."""
    table: Table | None = None
    """Numbers behind it, folded away below it."""
    note: str = ""
    least_width: int = 0
    """In pixels; a narrower screen scrolls sideways."""


@dataclass(frozen=True)
class Figures:
    """Headline figures: name and amount."""

    pairs: Sequence[tuple[str, str]]
    more: Sequence[tuple[str, str]] = ()
    """Figures that HTML shows too."""


@dataclass(frozen=True)
class Lines:
    """Sentences, each on a line of its own."""

    lines: Sequence[str]
    title: str = ""
    style: str = ""
    only: Only = ""
    anchor: str = ""
    """Name of its place in HTML, which the page links to at its top."""


@dataclass(frozen=True)
class Later:
    """Sections of an HTML page that are built when it is written."""

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
    rows = [(key, value) for key, value in own if value not in ("", None, [], {})]
    columns = (
        Column("", "what", lambda row: worded(row[0])),
        Column("", "value", lambda row: cell(*row), words=True),
    )
    return [*sections, Table(columns, rows, "All figures", name="figures")] if rows else sections


def summed(pairs: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """Return the sum of the numbers of each key, in the order in which keys come first."""
    sums: dict[Key, float] = {}
    for key, number in pairs:
        sums[key] = sums.get(key, 0.0) + number
    return sums


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items of each key, in the order in which keys come first."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def cells_table(
    headings: Sequence[str], rows: Sequence[Any], title: str = "", name: str = "", **options: Any
) -> Table:
    """Return a table of cells that are known already: words on the left, amounts on the right."""
    columns = [Column("", heading, lambda row, i=i: row[i]) for i, heading in enumerate(headings)]
    return Table(columns, rows, title, name, **options)


def _is_empty(cell: Cell) -> bool:
    return not str(cell) or (isinstance(cell, Amount) and cell.value is None)


def _value(record: Any, key: str) -> Any:
    """Return a value of a record; None where it has no such key."""
    if isinstance(record, Mapping):
        if key in record:
            return record[key]
        first, _, rest = key.partition(".")
        return _value(record[first], rest) if rest and first in record else None
    for name in key.split("."):
        record = record.get(name) if isinstance(record, Mapping) else getattr(record, name, None)
    return record
