"""Predictions beside measurements, row by row; and the predictors, one per kind of figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from npusim.config.tables import Column
from npusim.errors import ConfigError, nearest, shown
from npusim.validation.figures import Figures, Floats, read_csv
from npusim.validation.suite import Suite
from npusim.validation.unit_models import Machine


@dataclass(frozen=True)
class Evidence:
    """Rows of a suite with their predictions."""

    ids: Sequence[int | str]
    """Line in a CSV file, or path in a YAML file."""
    columns: Mapping[str, NDArray[Any]]
    """What is known of each row, for groups and plots; arrays of shape (rows,)."""
    measured: Floats
    predicted: Floats
    """`measured`, `predicted`: in `unit`. Shape (rows,)."""
    unit: str
    """Unit of both; empty for a ratio."""
    dimensions: Sequence[str]
    """Columns worth plotting the residuals against."""
    notes: Sequence[str]
    """What was skipped, and what a reader should know."""

    @property
    def differences(self) -> Floats:
        """|predicted - measured| of each row."""
        return np.abs(self.predicted - self.measured)

    @property
    def errors(self) -> Floats:
        """|predicted - measured| / measured of each row."""
        return self.differences / self.measured


class Predictor(Protocol):
    """Makes the evidence of a suite."""

    def evidence(self, suite: Suite, path: Path | None, machines: Mapping[str, Machine]) -> Evidence:
        """Return the rows of a suite with their predictions, in the order of the file."""
        ...


@dataclass(frozen=True)
class TablePredictor:
    """A CSV table whose rows are predicted machine by machine."""

    columns: Sequence[Column]
    """What the table must hold beside `npu`."""
    measured: Callable[[Figures], Floats]
    """Measured values of a table's rows, in `unit`."""
    predict: Callable[[Figures, Machine], Floats]
    """Predicted values of rows that belong to one machine."""
    unit: str
    """Unit of both; empty for a ratio."""
    dimensions: Sequence[str]
    """Columns worth plotting the residuals against."""
    duplicates: Callable[[Figures], Sequence[str]]
    """A key per row; rows that share it are near-duplicates and stay together in a cross-validation."""
    prepare: Callable[[Figures], Figures] = field(default=lambda figures: figures)
    """Adds columns that follow from others; it may leave rows out, with a note."""
    unmodelled: Callable[[Figures, Machine], Sequence[bool]] | None = None
    """For rows of one machine: which of them have a fallback prediction, because no equation or parameter is
    theirs."""

    def read(self, suite: Suite, path: Path) -> Figures:
        """Return the rows of a file that belong to a machine of the suite."""
        figures = read_csv(path, [_NPU, *self.columns])
        names = np.array([str(name).lower() for name in figures["npu"]], object)
        figures = figures.with_columns(npu=names)
        _refuse_unknown(figures, suite)
        figures = self.prepare(figures)
        return _modelled(figures, suite)

    def evidence(self, suite: Suite, path: Path | None, machines: Mapping[str, Machine]) -> Evidence:
        """Return the rows of a file with their predictions, in the order of the file."""
        assert path is not None, "a table needs a file"
        return self.judged(self.read(suite, path), machines)

    def judged(self, figures: Figures, machines: Mapping[str, Machine]) -> Evidence:
        """Return rows that have been read with their predictions."""
        columns, notes = dict(figures.columns), list(figures.notes)
        if self.unmodelled is not None:
            fallback = self._on_fallback(figures, machines)
            columns["modelled"] = np.array(["no" if row else "yes" for row in fallback], object)
            if fallback.any():
                notes.append(f"{int(fallback.sum())} rows are unmodelled: their prediction is a makeshift")
        return Evidence(
            ids=[int(line) for line in figures.ids],
            columns=columns,
            measured=self.measured(figures),
            predicted=self.predicted(figures, machines),
            unit=self.unit,
            dimensions=self.dimensions,
            notes=notes,
        )

    def _on_fallback(self, figures: Figures, machines: Mapping[str, Machine]) -> NDArray[Any]:
        assert self.unmodelled is not None
        fallback = np.zeros(len(figures), bool)
        for name, machine in machines.items():
            mine = figures["npu"] == name
            if mine.any():
                fallback[mine] = self.unmodelled(figures.where(mine), machine)
        return fallback

    def predicted(self, figures: Figures, machines: Mapping[str, Machine]) -> Floats:
        """Return the predictions of rows, each on its machine; shape (rows,)."""
        predicted = np.full(len(figures), np.nan)
        for name, machine in machines.items():
            mine = figures["npu"] == name
            if mine.any():
                predicted[mine] = self.predict(figures.where(mine), machine)
        return predicted


class _Npu(Column):
    """Name of the NPU; the suite decides which are known."""

    @property
    def allowed(self) -> str:
        return "the name of an NPU"

    def value(self, text: str) -> str | None:
        return text or None


_NPU = _Npu("npu")


def _refuse_unknown(figures: Figures, suite: Suite) -> None:
    known = [*suite.machines, *suite.unmodelled]
    for row, name in enumerate(figures["npu"]):
        if name not in known:
            raise ConfigError(
                shown(name), file=figures.file, line=int(figures.ids[row]), key="npu",
                allowed=f"one of {', '.join(known)}", suggestion=nearest(name, known),
            )  # fmt: skip


def _modelled(figures: Figures, suite: Suite) -> Figures:
    """Leave out the rows of machines that are not modelled; note their number."""
    notes = list(figures.notes)
    for name, reason in suite.unmodelled.items():
        count = int((figures["npu"] == name).sum())
        if count:
            notes.append(f"{Path(figures.file).name}: left out {count} rows of {name}: {reason}")
    kept = figures.where(np.array([name not in suite.unmodelled for name in figures["npu"]], bool))
    if not len(kept):
        raise ConfigError(
            "no row of a machine that npusim models", file=figures.file, allowed=", ".join(suite.machines)
        )
    return Figures(kept.file, kept.ids, kept.columns, tuple(notes))
