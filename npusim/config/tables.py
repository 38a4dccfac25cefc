"""CSV tables with a header: every value is checked against its column, and errors name its line."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from npusim.errors import ConfigError, nearest, shown
from npusim.files import read_text

_MOST_COLUMNS = 1_000
MOST_NUMBER, _MOST_TIME = 1e21, 1e9
"""Largest number of a file, in any unit, and largest time: nothing that is measured has more."""
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")


def most_of(name: str) -> float:
    """Return the largest number of a column or key: of times, by their name, a smaller one."""
    is_time = name.endswith(("_s", "_ms", "_us")) and not name.endswith("_per_s")
    return _MOST_TIME if is_time else MOST_NUMBER


@dataclass(frozen=True)
class Column:
    """A column, by its name in the header."""

    name: str
    allowed: str
    """Text that says what it may hold."""
    value: Callable[[str], float | str | None]
    """Returns the value of a text; None if it is not allowed."""
    choices: Sequence[str] = ()


def Text(name: str) -> Column:
    """Return a column of any text, also an empty one."""
    return Column(name, "any text", lambda text: text)


def Word(name: str) -> Column:
    """Return a column of any text but an empty one."""
    return Column(name, "a text", lambda text: text or None)


def Choice(name: str, choices: Sequence[str]) -> Column:
    """Return a column of one of a few words."""
    allowed = f"one of {', '.join(choices)}"
    return Column(name, allowed, lambda text: text if text in choices else None, choices)


class Number(Column):
    """A column of finite numbers between bounds; NaN for nothing, where `optional`."""

    value: Callable[[str], float | None]

    def __init__(
        self,
        name: str,
        least: float = 0.0,
        above: bool = True,
        most: float = MOST_NUMBER,
        whole: bool = False,
        optional: bool = False,
    ) -> None:
        most = min(most, most_of(name))
        allowed = f"a {'whole number' if whole else 'number'} {'above' if above else 'of at least'} {least:g}"
        allowed += f" and at most {most:g}" if most < MOST_NUMBER else ""

        def value(text: str) -> float | None:
            if not text and optional:
                return float("nan")
            number = float(text) if _NUMBER.fullmatch(text) else float("nan")
            fits = least <= number <= most and not (above and number == least)
            return number if fits and (not whole or number.is_integer()) else None

        super().__init__(name, allowed + (", or nothing" if optional else ""), value)


MaybeNumber = partial(Number, optional=True)


def Pair(name: str, parts: int, sign: str, least: int = 1) -> Column:
    """Return a column of whole numbers with a sign between them: a kernel as `3x5`, padding as `1-0-1-1`."""

    def value(text: str) -> str | None:
        numbers = text.split(sign)
        are_whole = len(numbers) == parts and all(re.fullmatch("[0-9]{1,6}", number) for number in numbers)
        return text if are_whole and all(int(number) >= least for number in numbers) else None

    return Column(name, f"{sign.join('N' * parts)} with whole numbers of at least {least}", value)


@dataclass(frozen=True)
class Table:
    """A table of values."""

    file: str
    lines: list[int]
    columns: dict[str, list[float | str]]
    """Values by column, one entry per row."""
    skipped: tuple[str, ...]
    """Further columns of the file, which are ignored."""

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the line and the values of each row."""
        for place, line in enumerate(self.lines):
            yield line, {name: values[place] for name, values in self.columns.items()}


def read_table(path: Path, columns: Sequence[Column], *, further: bool = True) -> Table:
    """Read a CSV file with a header, which holds some columns in any order.

    `further` columns are ignored, or refused. A `FileError` says that the file cannot be read, a
    `ConfigError` that a column is missing or not allowed, a value is not of its kind, or there is no row.
    """
    file = str(path)
    records = csv_records(read_text(path), file)
    line, header = next(records, (1, []))
    if not any(header):
        raise ConfigError("an empty file", file=file, line=1, allowed=_header(columns))
    places = places_of(header, columns, file, line, further=further)
    lines: list[int] = []
    values: list[list[float | str]] = [[] for _ in columns]
    for line, record in records:
        if len(record) != len(header):
            allowed = f"{len(header)}, as in the header"
            raise ConfigError(f"{len(record)} fields", file=file, line=line, allowed=allowed)
        lines.append(line)
        for into, column, place in zip(values, columns, places, strict=True):
            into.append(value_of(column, record[place].strip(), file, line))
    if not lines:
        raise ConfigError("no rows below the header", file=file, line=1, allowed="at least one row")
    skipped = tuple(sorted(set(header) - {column.name for column in columns}))
    return Table(file, lines, {c.name: v for c, v in zip(columns, values, strict=True)}, skipped)


def places_of(
    header: list[str], columns: Sequence[Column], file: str, line: int, *, further: bool = True
) -> list[int]:
    """Return the index of each column in a header; parameters and errors as for `read_table`."""

    def wrong(found: str, allowed: str) -> ConfigError:
        return ConfigError(found, file=file, line=line, allowed=allowed)

    if len(header) > _MOST_COLUMNS:
        raise wrong(f"{len(header):,} columns", f"at most {_MOST_COLUMNS:,}")
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice is not None:
        raise wrong(f"the column {shown(twice)} twice", "each column once")
    names = [column.name for column in columns]
    others = [name for name in header if name not in names]
    for name in names:
        if name not in header:
            meant = nearest(name, others)
            raise wrong(f"no column `{name}`{f' but `{meant}`' if meant else ''}", _header(columns))
    if others and not further:
        raise wrong(f"the unknown column {shown(others[0])}", _header(columns))
    return [header.index(name) for name in names]


def _header(columns: Sequence[Column]) -> str:
    return f"a table with the columns {', '.join(column.name for column in columns)}"


def value_of(column: Column, text: str, file: str, line: int | None) -> float | str:
    """Return the value of a text in a column; a `ConfigError` names the place of one that is not allowed."""
    value = column.value(text)
    if value is None:
        found = shown(text) if text else "nothing"
        meant = nearest(text, column.choices) if column.choices else None
        raise ConfigError(
            found, file=file, line=line, key=column.name, allowed=column.allowed, suggestion=meant
        )
    return value


def csv_records(text: str, file: str, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yield (first line, fields) of each record of a CSV text that is not blank.

    A `ConfigError` names the line of a quote that is not closed.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    before = 0
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            allowed = "comma-separated values, quotes closed"
            raise ConfigError(f"broken CSV ({error})", file=file, line=before + 1, allowed=allowed) from None
        line, before = before + 1, reader.line_num
        if any(field.strip() for field in record):
            yield line, [field.strip() for field in record]
