"""Reads tables of figures: CSV rows by their line, YAML values by their path.

Like a clerk who enters receipts: every amount keeps the number of its receipt, and a smudged one goes back
with that number on it instead of being guessed at.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.config.reading import read_document
from npusim.errors import ConfigError, FileError, nearest, shown
from npusim.validation.columns import Column, Number

__all__ = ["Figures", "KeyedFigure", "read_csv", "read_keyed"]


@dataclass(frozen=True)
class Figures:
    """A table of figures: numbers as floats, words as objects, one array a column.

    Attributes
    ----------
    file : str
        The file, as messages call it.
    ids : array, shape (rows,)
        What a result calls each row: its line in the file.
    columns : dict
        Values by column, each of shape (rows,).
    notes : tuple of str
        What was skipped.
    """

    file: str
    ids: NDArray[Any]
    columns: dict[str, NDArray[Any]]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.ids)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column."""
        return self.columns[name]

    def where(self, mask: NDArray[Any]) -> Figures:
        """Return the rows of a mask, or of positions, in their order."""
        picked = {name: values[mask] for name, values in self.columns.items()}
        return replace(self, ids=self.ids[mask], columns=picked)

    def having(self, **columns: NDArray[Any]) -> Figures:
        """Return the same rows with further columns."""
        return replace(self, columns=self.columns | columns)

    def refusal(self, row: int, column: str, allowed: str) -> ConfigError:
        """Return the error that a value is not what its column takes."""
        return ConfigError(
            shown(self[column][row]), file=self.file, line=int(self.ids[row]), key=column, allowed=allowed
        )


@dataclass(frozen=True)
class KeyedFigure:
    """One number of a YAML file: its path, its value and its line."""

    id: str
    value: float
    line: int | None


def read_csv(path: Path, columns: Sequence[Column]) -> Figures:
    """Read a CSV file with a header.

    Parameters
    ----------
    path : Path
        The file, UTF-8.
    columns : sequence of Column
        What it must hold, in any order. Further columns are skipped with a note.

    Returns
    -------
    Figures
        All rows, in the order of the file.

    Raises
    ------
    FileError
        Where the file cannot be read.
    ConfigError
        Where a column is missing, a value is none of its kind, or there is no row.
    """
    lines = _records(_text(path), str(path))
    line, header = next(lines, (1, []))
    if not any(header):
        raise ConfigError("an empty file", file=str(path), line=1, allowed=_header(columns))
    places = _places(header, columns, str(path), line)
    ids: list[int] = []
    values: list[list[Any]] = [[] for _ in columns]
    for line, record in lines:
        if len(record) != len(header):
            found = f"{len(record)} fields"
            raise ConfigError(found, file=str(path), line=line, allowed=f"{len(header)}, as in the header")
        ids.append(line)
        for into, column, place in zip(values, columns, places, strict=True):
            into.append(_value(column, record[place].strip(), str(path), line))
    if not ids:
        raise ConfigError("no rows below the header", file=str(path), line=1, allowed="at least one row")
    extra = sorted(set(header) - {column.name for column in columns})
    notes = (f"{path.name}: skipped the unknown columns {', '.join(extra)}",) if extra else ()
    arrays = {
        column.name: np.array(into, float if isinstance(column, Number) else object)
        for column, into in zip(columns, values, strict=True)
    }
    return Figures(str(path), np.array(ids), arrays, notes)


def read_keyed(path: Path, known: Callable[[str], bool]) -> tuple[list[KeyedFigure], list[str]]:
    """Read the numbers of a YAML file by their paths.

    Parameters
    ----------
    path : Path
        The file.
    known : callable
        Whether the suite knows a path such as ``granite.fig20_speedup_over_baseline.gat.effop``.

    Returns
    -------
    figures : list of KeyedFigure
        Those that the suite knows, in the order of the file.
    notes : list of str
        One line that names the top of each branch that was skipped.

    Raises
    ------
    FileError, ConfigError
        Where the file cannot be read, or a known path holds no number above zero.
    """
    document = read_document(path)
    found: list[KeyedFigure] = []
    skipped: dict[str, int] = {}
    for key, value in _leaves(document.data, ()):
        name = ".".join(map(str, key))
        line = document.line(key)
        if not known(name):
            branch = ".".join(map(str, key[:2]))
            skipped[branch] = skipped.get(branch, 0) + 1
        elif isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ConfigError(shown(value), file=str(path), line=line, key=name, allowed="a number above 0")
        else:
            found.append(KeyedFigure(name, float(value), line))
    notes = [f"{path.name}: skipped {count} keys of `{key}`" for key, count in skipped.items()]
    return found, notes


def _leaves(data: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else None
    if inner is None:
        yield path, data
        return
    for key, value in inner:
        yield from _leaves(value, (*path, key))


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise FileError(str(path), "no such file", "check the path") from None
    except IsADirectoryError:
        raise FileError(str(path), "is a directory", "name a file in it") from None
    except UnicodeDecodeError as error:
        remedy = f"byte {error.start} is not text; save the file as UTF-8"
        raise FileError(str(path), "is not UTF-8", remedy) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(str(path), f"cannot be read ({reason})", "check its name and permissions") from None


def _records(text: str, file: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line it begins on, fields) of each record that is not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
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


def _header(columns: Sequence[Column]) -> str:
    return f"a table with the columns {', '.join(column.name for column in columns)}"


def _places(header: list[str], columns: Sequence[Column], file: str, line: int) -> list[int]:
    for name in header:
        if name and header.count(name) > 1:
            raise ConfigError(f"the column `{name}` twice", file=file, line=line, allowed="each column once")
    for column in columns:
        if column.name not in header:
            others = set(header) - {known.name for known in columns}
            meant = nearest(column.name, others)
            raise ConfigError(
                f"no column `{column.name}`" + (f" but `{meant}`" if meant else ""),
                file=file, line=line, allowed=_header(columns),
            )  # fmt: skip
    return [header.index(column.name) for column in columns]


def _value(column: Column, text: str, file: str, line: int) -> float | str:
    value = column.value(text)
    if value is None:
        found = shown(text) if text else "nothing"
        raise ConfigError(found, file=file, line=line, key=column.name, allowed=column.allowed)
    return value
