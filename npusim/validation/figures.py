"""Figures of a suite and their predictions: rows of a CSV table, or values of a YAML file by key path.

A `TablePredictor` predicts the rows of a table, machine by machine; a `PathPredictor` predicts the values of
a YAML file. The suite's file declares columns and key paths.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from npusim.config.reading import read_yaml
from npusim.config.tables import Choice, Column, MaybeNumber, Number, Pair, Text, read_table
from npusim.errors import ConfigError, NpusimError, nearest, shown
from npusim.validation.suite import Suite, figures_path, load_suite
from npusim.validation.unit_models import Machine

Floats = NDArray[np.float64]
Key = Mapping[str, str]
"""Columns of a figure in a YAML file; empty where its key path has no such part."""


# Columns by the kind that a suite's file names.
_KINDS: Mapping[str, Callable[[str], Column]] = {
    "text": Text,
    "number": Number,
    "count": partial(Number, whole=True),
    "share": partial(Number, above=False, most=1.0),
    "density": partial(Number, most=1.0),
    "amount": partial(Number, above=False),
    "amount?": partial(MaybeNumber, above=False),
    "axis?": partial(MaybeNumber, least=1.0, above=False, most=65536.0),
    "whole": partial(Number, above=False, whole=True),
    "size": partial(Number, whole=True, most=65536.0),
    "1x1": partial(Pair, parts=2, sign="x"),
    "0-0-0-0": partial(Pair, parts=4, sign="-", least=0),
}


@dataclass(frozen=True)
class Figures:
    """A table of figures: numbers as floats, words as objects, one array per column."""

    file: str
    """The file, as messages call it."""
    ids: NDArray[Any]
    """Line of each row in the file. Shape (rows,)."""
    columns: dict[str, NDArray[Any]]
    """Values by column, each of shape (rows,)."""
    notes: tuple[str, ...] = ()
    """Remarks on what was skipped."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.ids)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column."""
        return self.columns[name]

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the line and the values of each row."""
        for i, line in enumerate(self.ids):
            yield int(line), {name: values[i] for name, values in self.columns.items()}

    def where(self, mask: NDArray[Any]) -> Figures:
        """Return the rows of a mask, or of positions, in their order."""
        picked = {name: values[mask] for name, values in self.columns.items()}
        return replace(self, ids=self.ids[mask], columns=picked)

    def with_columns(self, **columns: NDArray[Any]) -> Figures:
        """Return the same rows with further columns."""
        return replace(self, columns=self.columns | columns)

    def sizes(self, column: str) -> Floats:
        """Return the numbers of a column of kernels (3x5) or paddings (1-0-1-1), shape (rows, numbers)."""
        rows = [re.split("[x-]", text) for text in self[column]]
        return np.array(rows, float) if rows else np.empty((0, 4))

    def keys(self, columns: Sequence[str]) -> list[str]:
        """Return a key per row; rows with equal values in the columns have equal keys."""
        values = zip(*(self[name] for name in columns), strict=True)
        return ["/".join(map(str, row)) for row in values]

    def refusal(self, row: int, column: str, allowed: str, words: Sequence[str] = ()) -> ConfigError:
        """Return the error that a row's value does not belong in its column; it names the nearest word."""
        value = self[column][row]
        return ConfigError(
            shown(value) if value else "nothing",
            file=self.file,
            line=int(self.ids[row]),
            key=column,
            allowed=allowed,
            suggestion=nearest(value, words),
        )


def read_csv(path: Path, columns: Sequence[Column]) -> Figures:
    """Read a CSV file with a header; further columns are skipped with a note.

    Raises
    ------
    FileError
        Where the file cannot be read.
    ConfigError
        Where a column is missing, a value does not fit its column, or there is no row.
    """
    table = read_table(path, columns)
    notes = (f"{path.name}: skipped the unknown columns {', '.join(table.skipped)}",) if table.skipped else ()
    arrays = {
        column.name: np.array(table.columns[column.name], float if isinstance(column, Number) else object)
        for column in columns
    }
    return Figures(table.file, np.array(table.lines), arrays, notes)


def read_declared(suite: Suite, path: Path, *further: Column) -> Figures:
    """Read the columns of a CSV file that its suite declares; errors as for `read_csv`."""
    columns = [
        _KINDS[kind](name) if isinstance(kind, str) else Choice(name, kind)
        for name, kind in suite.columns.items()
    ]
    return read_csv(path, [*further, *columns])


class KeyedFigure(NamedTuple):
    """One number of a YAML file."""

    id: str
    """Its key path."""
    value: float


def read_keyed(
    path: Path, known: Callable[[str], bool], branches: Sequence[str] = ()
) -> tuple[list[KeyedFigure], list[str]]:
    """Read the numbers of a YAML file by their key paths.

    Parameters
    ----------
    known : callable
        Whether the suite knows a path such as ``granite.fig20_speedup_over_baseline.gat.effop``.
    branches : sequence of str, optional
        Beginnings of known paths, which misspelt keys are compared with.

    Returns
    -------
    figures : list of KeyedFigure
        Known figures, in the order of the file.
    notes : list of str
        One note per skipped branch, and one for all branches of other suites.

    Raises
    ------
    FileError, ConfigError
        Where the file cannot be read, a known path holds no number from 1e-9 to 1e9, a branch is misspelt, or
        no path is known.
    """
    document = read_yaml(path)
    figures: list[KeyedFigure] = []
    skipped: Counter[str] = Counter()
    for key, value in _leaves(document.data, ()):
        name, line = ".".join(map(str, key)), document.line(key)
        if not known(name):
            branch = ".".join(map(str, key[:2]))
            meant = nearest(branch, branches)
            if meant and branch not in branches:
                unknown = f"the unknown key {shown(branch)}"
                raise ConfigError(unknown, file=str(path), line=line, suggestion=meant)
            skipped[branch] += 1
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 1e-9 < value < 1e9:
            allowed = "a number above 0, and of sense"
            raise ConfigError(shown(value), file=str(path), line=line, key=name, allowed=allowed)
        else:
            figures.append(KeyedFigure(name, float(value)))
    if not figures:
        allowed = f"keys such as {', '.join(branches)}"
        raise ConfigError("no figure that the suite knows", file=str(path), line=1, allowed=allowed)
    ours = {branch.partition(".")[0] for branch in branches}
    others = sorted({key.partition(".")[0] for key in skipped} - ours) if ours else []
    own = {key: count for key, count in skipped.items() if key.partition(".")[0] not in others}
    notes = [f"{path.name}: skipped {count} keys of `{key}`" for key, count in own.items()]
    if others:
        notes.append(f"{path.name}: skipped {', '.join(others)}, which are of other suites")
    return figures, notes


def _leaves(data: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if not isinstance(data, dict | list):
        yield path, data
        return
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield from _leaves(value, (*path, key))


_COLUMN = re.compile(r"\{(\w+)\}")


def key_of(suite: Suite, path: str) -> Key | None:
    """Return the columns of a key path; None where the suite does not know the path."""
    for template, columns in suite.paths.items():
        parts = _COLUMN.split(template)
        pattern = re.escape(parts[0])
        for column, text in zip(parts[1::2], parts[2::2], strict=True):
            words = suite.words[column]
            words = words if isinstance(words, str) else "|".join(map(re.escape, words))
            pattern += f"(?P<{column}>{words})" + re.escape(text)
        match = re.fullmatch(pattern, path)
        if match is not None:
            return dict.fromkeys(_key_columns(suite), "") | columns | match.groupdict()
    return None


def _key_columns(suite: Suite) -> list[str]:
    names = (name for path, more in suite.paths.items() for name in (*_COLUMN.findall(path), *more))
    return list(dict.fromkeys(names))


def read_figures(suite: Suite, path: Path) -> tuple[list[tuple[KeyedFigure, Key]], list[str]]:
    """Return the figures of a YAML file that a suite knows, with their columns; and notes.

    Raises
    ------
    FileError, ConfigError
        As for `read_keyed`.
    """
    beginnings = (".".join(path.partition("{")[0].split(".")[:2]) for path in suite.paths)
    branches = suite.branches or list(dict.fromkeys(beginnings))
    figures, notes = read_keyed(path, lambda name: key_of(suite, name) is not None, branches)
    notes = [note for note in notes if not any(f"`{key}" in note for key in suite.ignored)]
    return [(figure, key) for figure in figures if (key := key_of(suite, figure.id)) is not None], notes


@cache
def shipped_figures(name: str) -> list[tuple[KeyedFigure, Key]]:
    """Return the shipped figures of a suite, with their columns."""
    suite = load_suite(name)
    return read_figures(suite, figures_path(suite))[0]


@dataclass(frozen=True)
class Evidence:
    """Rows of a suite with their predictions."""

    ids: Sequence[int | str]
    """Line in a CSV file, or key path in a YAML file."""
    columns: Mapping[str, NDArray[Any]]
    """What is known of each row, for groups and plots; arrays of shape (rows,)."""
    measured: Floats
    predicted: Floats
    """`measured`, `predicted`: in `unit`. Shape (rows,)."""
    unit: str
    """Unit of both; empty for a ratio."""
    dimensions: Sequence[str]
    """Columns that the residuals are plotted against."""
    notes: Sequence[str]
    """Remarks on what was skipped."""
    intervals: Floats | None = None
    """90 % interval of each prediction; NaN where a row has none. Shape (rows, 2). None: no row has one."""

    @property
    def inside(self) -> Floats:
        """1 for a row inside its interval, 0 for one outside, NaN without an interval. Shape (rows,)."""
        if self.intervals is None:
            return np.full(len(self.measured), np.nan)
        low, high = self.intervals.T
        inside = (low <= self.measured) & (self.measured <= high)
        return np.where(np.isnan(low), np.nan, inside.astype(float))

    @property
    def differences(self) -> Floats:
        """|predicted - measured| of each row."""
        return np.abs(self.predicted - self.measured)

    @property
    def errors(self) -> Floats:
        """|predicted - measured| / measured of each row."""
        return self.differences / self.measured


class Row(NamedTuple):
    """One figure with its prediction."""

    id: int | str
    measured: float
    predicted: float
    columns: Mapping[str, Any]
    interval: tuple[float, float] | None = None
    """90 % interval of the prediction."""


def evidence_of(
    suite: Suite, rows: Sequence[Row], notes: Sequence[str] = (), columns: Iterable[str] = ()
) -> Evidence:
    """Return rows as evidence; `columns` names their columns where there may be no row."""
    names = rows[0].columns if rows else columns
    bounds = [row.interval or (np.nan, np.nan) for row in rows]
    return Evidence(
        intervals=np.array(bounds) if any(row.interval for row in rows) else None,
        ids=[row.id for row in rows],
        columns={name: np.array([row.columns[name] for row in rows], object) for name in names},
        measured=np.array([row.measured for row in rows]),
        predicted=np.array([row.predicted for row in rows]),
        unit=suite.unit,
        dimensions=suite.dimensions,
        notes=notes,
    )


class Predictor(Protocol):
    """Predicts the rows of a suite."""

    def evidence(self, suite: Suite, path: Path, machines: Mapping[str, Machine]) -> Evidence:
        """Return the rows of a suite with their predictions, in the order of the file."""
        ...


@dataclass(frozen=True)
class RowPredictor:
    """Predicts rows that a function makes or reads itself, with notes."""

    rows: Callable[[Suite, Path], tuple[list[Row], list[str]]]

    def evidence(self, suite: Suite, path: Path, machines: Mapping[str, Machine]) -> Evidence:
        """Return the rows with their predictions."""
        return evidence_of(suite, *self.rows(suite, path))


@dataclass(frozen=True)
class PathPredictor:
    """Predicts the figures of a YAML file, one by one."""

    predict: Callable[[Key], float]
    """Predicted value of a figure."""
    skips_errors: bool = False
    """Whether a figure that cannot be predicted is skipped with a note, not refused."""

    def figures(self, suite: Suite, path: Path) -> tuple[list[tuple[KeyedFigure, Key]], list[str]]:
        """Return the figures of a file with their columns, and notes."""
        return read_figures(suite, path)

    def evidence(self, suite: Suite, path: Path, machines: Mapping[str, Machine]) -> Evidence:
        """Return the figures of a file with their predictions; unknown keys are skipped with a note."""
        figures, notes = self.figures(suite, path)
        rows = []
        for figure, key in figures:
            try:
                rows.append(Row(figure.id, figure.value, self.predict(key), key))
            except NpusimError as error:
                if not self.skips_errors:
                    raise
                notes.append(f"{figure.id}: skipped, {error}")
        return evidence_of(suite, rows, notes, _key_columns(suite))


@dataclass(frozen=True)
class TablePredictor:
    """Predicts the rows of a CSV table, machine by machine; the suite's file declares the columns."""

    predict: Callable[[Figures, Machine], Floats]
    """Predicted values of rows that belong to one machine."""
    prepare: Callable[[Figures], Figures] = lambda figures: figures
    """Adds columns that follow from others; it may leave rows out, with a note."""
    unmodelled: Callable[[Figures, Machine], Sequence[bool]] | None = None
    """Rows of one machine for which no equation or parameter exists; a fallback predicts them."""

    def read(self, suite: Suite, path: Path) -> Figures:
        """Return the rows of a file that belong to a machine of the suite."""
        figures = read_declared(suite, path, Text("npu"))
        names = np.array([str(name).lower() for name in figures["npu"]], object)
        known = [*suite.machines, *suite.unmodelled]
        for row, name in enumerate(names):
            if name not in known:
                raise figures.refusal(row, "npu", f"one of {', '.join(known)}", known)
        return _modelled(self.prepare(figures.with_columns(npu=names)), suite)

    def evidence(self, suite: Suite, path: Path, machines: Mapping[str, Machine]) -> Evidence:
        """Return the rows of a file with their predictions, in the order of the file."""
        figures = self.read(suite, path)
        columns = {name: values for name, values in figures.columns.items() if values.dtype.names is None}
        notes = list(figures.notes)
        predicted, fallback = np.full(len(figures), np.nan), np.zeros(len(figures), bool)
        for name, machine in machines.items():
            own = figures["npu"] == name
            if own.any():
                predicted[own] = self.predict(figures.where(own), machine)
                if self.unmodelled is not None:
                    fallback[own] = self.unmodelled(figures.where(own), machine)
        if self.unmodelled is not None:
            columns["modelled"] = np.where(fallback, "no", "yes").astype(object)
        if fallback.any():
            notes.append(f"{int(fallback.sum())} rows are unmodelled: their prediction is a makeshift")
        ids, measured = [int(line) for line in figures.ids], figures[suite.measured]
        return Evidence(ids, columns, measured, predicted, suite.unit, suite.dimensions, notes)


def _modelled(figures: Figures, suite: Suite) -> Figures:
    """Leave out the rows of machines that are not modelled, with a note."""
    names, notes = figures["npu"], list(figures.notes)
    for name, reason in suite.unmodelled.items():
        count = int((names == name).sum())
        if count:
            notes.append(f"{Path(figures.file).name}: left out {count} rows of {name}: {reason}")
    kept = figures.where(np.array([name not in suite.unmodelled for name in names], bool))
    if not len(kept):
        allowed = ", ".join(suite.machines)
        raise ConfigError("no row of a machine that npusim models", file=figures.file, allowed=allowed)
    return replace(kept, notes=tuple(notes))
