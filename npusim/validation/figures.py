"""Reads tables of figures: CSV rows by their line, YAML values by their path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.config.reading import read_yaml
from npusim.config.tables import Column, Number, read_table
from npusim.errors import ConfigError, nearest, shown

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Figures:
    """A table of figures: numbers as floats, words as objects, one array per column."""

    file: str
    """The file, as messages call it."""
    ids: NDArray[Any]
    """What a result calls each row: its line in the file. Shape (rows,)."""
    columns: dict[str, NDArray[Any]]
    """Values by column, each of shape (rows,)."""
    notes: tuple[str, ...] = ()
    """What was skipped."""

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

    def with_columns(self, **columns: NDArray[Any]) -> Figures:
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
    columns : sequence of Column
        What it must hold, in any order. Further columns are skipped with a note.

    Raises
    ------
    FileError
        Where the file cannot be read.
    ConfigError
        Where a column is missing, a value is none of its kind, or there is no row.
    """
    table = read_table(path, columns)
    notes = (f"{path.name}: skipped the unknown columns {', '.join(table.skipped)}",) if table.skipped else ()
    arrays = {
        column.name: np.array(table.columns[column.name], float if isinstance(column, Number) else object)
        for column in columns
    }
    return Figures(table.file, np.array(table.lines), arrays, notes)


def read_keyed(
    path: Path, known: Callable[[str], bool], branches: Sequence[str] = ()
) -> tuple[list[KeyedFigure], list[str]]:
    """Read the numbers of a YAML file by their paths.

    Parameters
    ----------
    known : callable
        Whether the suite knows a path such as ``granite.fig20_speedup_over_baseline.gat.effop``.
    branches : sequence of str, optional
        Beginnings of such paths, for what is misspelt.

    Returns
    -------
    figures : list of KeyedFigure
        Those that the suite knows, in the order of the file.
    notes : list of str
        One line that names the top of each branch that was skipped; one for all of other suites.

    Raises
    ------
    FileError, ConfigError
        Where the file cannot be read, a known path holds no number from 1e-9 to 1e9, a branch is misspelt, or
        no path is known.
    """
    document = read_yaml(path)
    found: list[KeyedFigure] = []
    skipped: dict[str, int] = {}
    for key, value in _leaves(document.data, ()):
        name = ".".join(map(str, key))
        line = document.line(key)
        if not known(name):
            branch = ".".join(map(str, key[:2]))
            meant = nearest(branch, branches)
            if meant and branch not in branches:
                found_key = f"the unknown key {shown(branch)}"
                raise ConfigError(found_key, file=str(path), line=line, suggestion=meant)
            skipped[branch] = skipped.get(branch, 0) + 1
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 1e-9 < value < 1e9:
            allowed = "a number above 0, and of sense"
            raise ConfigError(shown(value), file=str(path), line=line, key=name, allowed=allowed)
        else:
            found.append(KeyedFigure(name, float(value), line))
    if not found:
        allowed = f"keys such as {', '.join(branches)}"
        raise ConfigError("no figure that the suite knows", file=str(path), line=1, allowed=allowed)
    ours = {branch.partition(".")[0] for branch in branches}
    others = sorted({key.partition(".")[0] for key in skipped} - ours) if ours else []
    notes = [
        f"{path.name}: skipped {count} keys of `{key}`"
        for key, count in skipped.items()
        if key.partition(".")[0] not in others
    ]
    if others:
        notes.append(f"{path.name}: skipped {', '.join(others)}, which are of other suites")
    return found, notes


def _leaves(data: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else None
    if inner is None:
        yield path, data
        return
    for key, value in inner:
        yield from _leaves(value, (*path, key))


def key_of(*columns: str) -> Callable[[Figures], list[str]]:
    """Return the function that keys near-duplicates: rows with equal values in some columns share a key."""

    def keys(figures: Figures) -> list[str]:
        values = zip(*(figures[name] for name in columns), strict=True)
        return ["/".join(map(str, row)) for row in values]

    return keys
