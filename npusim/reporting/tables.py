"""Tables of pages: records under headings, cells with the digits and the unit that their key says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from rich.bar import Bar

from npusim.metrics import HEADINGS
from npusim.reporting.engineering import Amount, Cell, cell, flattened, interval_key, last_digit, worded

Key = TypeVar("Key")
Item = TypeVar("Item")
Only = Literal["", "terminal", "html"]
"""The one back end that shows something; empty: both."""
FOLD = {"overflow": "fold"}
"""Layout of a column whose words may be broken anywhere."""
CYAN = {"style": "cyan"}


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
    caption: str = ""
    """What its columns mean, below it."""
    terminal: Sequence[Any] | None = None
    """Records that the terminal shows in place of all: fewer, in another order, or with sums."""
    most: int = 0
    """Rows that the terminal shows at most; 0: all."""
    style: Callable[[Any], str] = lambda record: ""
    """Returns the style of a record's row on the terminal; see `marked`."""
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


def marked(*best: Any) -> Callable[[Any], str]:
    """Return a style of rows by which some records stand out."""
    return lambda record: "bold green" if any(record is one for one in best) else ""


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
