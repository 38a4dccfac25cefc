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
from npusim.metrics import METRICS, unit_of
from npusim.reporting.engineering import engineering, factor, factors, last_digit, percent

if TYPE_CHECKING:
    import plotly.graph_objects as go

Key = TypeVar("Key")
Item = TypeVar("Item")
Only = Literal["", "terminal", "html"]
"""The one back end that shows something; empty: both."""
_UNIT_AT_END = re.compile(r"_(per_s|per_j|js|s|j|w|bytes|mm2)$")
_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z])")
_SHARES = ("agreement", "utilisation", "share", "change")
_FACTORS = ("speedup", "gain", "step_")  # parts of the keys of factors
FOLD = {"overflow": "fold"}
"""Layout of a column whose words may be broken anywhere."""
CYAN = {"style": "cyan"}
_REMARKS = ("notes", "warnings")
_MOST_IN_CELL = 3


@dataclass(frozen=True, slots=True)
class Amount:
    """A number in a table: shown with three digits, kept whole for CSV."""

    value: Any
    """A number in base units, or several; None shows nothing."""
    unit: str = ""
    shown: str | None = None
    """Text in place of three digits and a prefix."""

    def __str__(self) -> str:
        if self.shown is not None or not isinstance(self.value, int | float):
            return self.shown or ""
        return engineering(self.value, self.unit)


Cell = str | Amount | RenderableType
"""What a table shows: words on the left, amounts on the right; a bar is drawn on the terminal alone."""


@dataclass(frozen=True)
class Column:
    """A column of a table, read from each of its records."""

    key: str
    """Attribute or key of a record, `a.b` within a part; also the heading of a CSV file."""
    heading: str | None = None
    """Default: the words of the key."""
    show: Callable[..., Cell | None] | None = None
    """Returns the cell of a record; default: the value with three digits and the unit of its key."""
    only: Only = ""
    words: bool | None = None
    """Aligned to the left; default: whether any cell is text."""
    text: str | Callable[[Any], str] = ""
    """Format of the value, such as `{:.0%}`, or what returns its text; default: by its key."""
    digits: str = ""
    """Key of the interval that says how many digits the value bears."""
    layout: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the column on the terminal, as for `rich.table.Table.add_column`."""

    def cell(self, record: Any) -> Cell:
        """Return the cell of a record."""
        if self.text:
            value = _value(record, self.key)
            text = self.text.format if isinstance(self.text, str) else self.text
            return "" if value is None else Amount(value, "", text(value))
        if self.show is None:
            interval = _value(record, self.digits) if self.digits else None
            return cell(self.key, _value(record, self.key), last_digit(interval))
        content = self.show(record)
        return "" if content is None else content

    def is_left(self, cells: Sequence[Cell]) -> bool:
        """Tell whether the column is aligned to the left."""
        if self.words is None:
            return any(not isinstance(cell, Amount | Bar) and str(cell) for cell in cells)
        return self.words

    @property
    def title(self) -> str:
        """Heading of the column."""
        return worded(self.key) if self.heading is None else self.heading


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

    @property
    def on_terminal(self) -> Sequence[Any]:
        """Records that the terminal shows."""
        return self.rows if self.terminal is None else self.terminal

    def cells(self, back_end: Only, records: Sequence[Any]) -> tuple[list[Column], list[list[Cell]]]:
        """Return the columns that a back end shows and the cells of records; empty columns are left out."""
        columns = [column for column in self.columns if column.only in ("", back_end)]
        rows = [[column.cell(record) for column in columns] for record in records]
        kept = [i for i in range(len(columns)) if not i or any(not _is_empty(row[i]) for row in rows)]
        return [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]


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


def document_page(document: Document) -> Page:
    """Return the page of a document whose kind has none of its own: its fields."""
    values = dict(document)
    kind = kind_name(document).replace("-", " ").capitalize()
    workload, soc, techniques = (str(values.get(key) or "") for key in ("workload", "soc", "techniques"))
    catalogue = str(values.get("catalogue", ""))
    return Page(
        kind,
        (workload or catalogue, soc, techniques),
        sections=field_sections(document),
        remarks=remarks_of(document),
        lead=str(values.get("conclusion", "")),
    )


def remarks_of(document: Any) -> list[Remark]:
    """Return the warnings and notes that a document carries."""
    return [
        Remark("Warning", getattr(document, "warnings", ()), "bold yellow"),
        Remark("Note", getattr(document, "notes", ())),
    ]


def field_sections(document: Document, without: Sequence[str] = ()) -> list[Section]:
    """Return the fields of a document: a table of each list of records, one table of all other values."""
    data = document.model_dump(mode="json", by_alias=True, exclude={*_REMARKS, "schema_"})
    return sections_of({key: value for key, value in data.items() if key not in without})


def sections_of(data: Mapping[str, Any]) -> list[Section]:
    """Return JSON values as sections: records as tables, all others in one table."""
    scalars: dict[str, Any] = {}
    sections: list[Section] = []
    for key, value in data.items():
        heading = worded(key).capitalize()
        if isinstance(value, list) and value and isinstance(value[0], dict):
            sections.append(records_table(key, value, title=heading))
        elif isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
            records = [{"name": name, **part} for name, part in value.items()]
            sections.append(records_table(key, records, title=heading))
        elif isinstance(value, list) and len(value) > 3 and all(isinstance(v, str) for v in value):
            sections.append(Lines(value, heading))
        else:
            scalars |= flattened(value, f"{key}.") if isinstance(value, dict) else {key: value}
    rows = [(key, value) for key, value in scalars.items() if value not in ("", None, [], {})]
    if rows:
        columns = (
            Column("", "what", lambda row: worded(row[0])),
            Column("", "value", lambda row: cell(*row), words=True),
        )
        sections.append(Table(columns, rows, "All figures", name="figures"))
    return sections


def records_table(
    name: str, records: Sequence[Any], headings: Mapping[str, str] | None = None, **options: Any
) -> Table:
    """Return a table of the records of a JSON list or of parts of a document.

    Parameters
    ----------
    name : str
        Where the list stands in the document.
    headings : mapping of str to str, optional
        Heading by key; `a.b` leads into a part. Default: all keys. Columns without a value are left out.
    **options
        Settings of the `Table`.
    """
    flat = [flattened(row if isinstance(row, dict) else row.model_dump(mode="json")) for row in records]
    headings = headings or {key: worded(key) for record in flat for key in record}
    columns = [
        Column(key, heading, words=False if key.endswith(("_s", "_j")) else None)
        for key, heading in headings.items()
        if any(record.get(key) not in (None, "") for record in flat)
    ]
    return Table(columns, flat, name=name, **options)


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


def flattened(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a record with the keys of its parts among its own, as `part.key`."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict) and value:
            flat |= flattened(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            flat[f"{prefix}{key}"] = f"{len(value)} entries"
        else:
            flat[prefix + key] = value
    return flat


def worded(key: str) -> str:
    """Return the words for a key: without its unit, blanks in place of joints.

    Examples
    --------
    >>> worded("input_bytes"), worded("throughput_per_s"), worded("costs.npu.latency_s")
    ('input', 'throughput', 'costs npu latency')
    """
    if key in METRICS:
        return METRICS[key].title
    return _UNIT_AT_END.sub("", key).replace("_", " ").replace(".", " ")


def cell(key: str, value: Any, last: int | None = None) -> Cell:
    """Return a value as a cell: a number with three digits and the unit that the end of its key says.

    Parameters
    ----------
    last : int, optional
        The last digit that it bears; see `npusim.rounding.last_digit`.
    """
    unit = _unit(key)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and not unit:
        return Amount(value, "", f"{value:,}")
    if isinstance(value, int | float):
        return Amount(value, unit, _shown(key, value, last))
    if isinstance(value, list | tuple) and value and all(isinstance(v, int | float) for v in value):
        if len(value) == 2 and "interval" in key:
            return span(value, unit)
        several = f"{len(value)} values" if len(value) > _MOST_IN_CELL else ""
        return Amount(list(value), unit, several or " to ".join(_shown(key, v, last) for v in value))
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if value is None:
        return Amount(None, unit) if unit and "interval" not in key and unit != "x" else ""
    return "" if isinstance(value, dict) else str(value)


def _shown(key: str, value: float, last: int | None) -> str:
    unit, name = _unit(key), key.rpartition(".")[2]
    if unit == "x":
        return factor(value, last)
    if name.endswith("accuracy"):
        return f"{100 * value:.1f} %"
    if name.endswith(_SHARES) and abs(value) <= 1.0:
        return percent(value)
    return engineering(value, unit, last) if unit else f"{value:.4g}"


def _unit(key: str) -> str:
    if key.endswith("macs"):
        return "MAC"
    name = key.rpartition(".")[2]
    return unit_of(key) or ("x" if any(word in name for word in _FACTORS) else "")


def part(value: float | None) -> Cell:
    """Return a share as a cell."""
    return "" if value is None else Amount(value, "", percent(value))


def times(value: float | None, last: int | None = None) -> Cell:
    """Return a factor as a cell, to the digit that it bears."""
    return "" if value is None else Amount(value, "x", factor(value, last))


def span(interval: Sequence[float] | None, unit: str = "s") -> Cell:
    """Return an interval as a cell, to the digit that it bears; its unit once where both ends share it."""
    if interval is None:
        return ""
    low, high = interval
    if unit == "x":
        return Amount([low, high], unit, factors((low, high)))
    first, last = (engineering(bound, unit, last_digit((low, high))) for bound in (low, high))
    number, first_unit = first.split()
    shown = f"{number}-{last}" if last.endswith(f" {first_unit}") else f"{first}-{last}"
    return Amount([low, high], unit, shown)
