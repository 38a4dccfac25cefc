"""Compiles and runs networks on one device in one setting, and collects warnings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npusim.errors import NpusimError
from npusim.measure.counters import count_operators
from npusim.measure.document import Counter, Device, Row
from npusim.measure.energy import Drawn, Meter
from npusim.measure.environment import describe, written
from npusim.measure.loading import footprint_bytes, model_of, telling
from npusim.measure.pace import Pace
from npusim.measure.setting import Setting
from npusim.measure.trial import Trial

if TYPE_CHECKING:
    from npusim.measure.suites import Item

__all__ = ["Bench", "Entrant"]

_MOST_NAMED = 3
"""Rows that a warning names; it counts the others."""


@dataclass(frozen=True)
class Piece:
    """A model with values for its inputs, for all rows of a group that run it.

    Attributes
    ----------
    model : openvino.Model
    feed : list of openvino.Tensor
    bytes : int
        About how much memory one compiled network of it takes.
    """

    model: Any
    feed: list[Any]
    bytes: int


@dataclass
class Entrant:
    """A row on its way: its compiled network and what was read so far."""

    item: Item
    piece: Piece
    trial: Trial
    precision: str | None
    drawn: Drawn | None = None
    operators: tuple[Counter, ...] = ()

    def row(self, tiles: int | None) -> Row | None:
        """Return the row; None where nothing was read."""
        latency = self.trial.latency()
        if latency is None:
            return None
        joules = self.drawn.joules_each if self.drawn else None
        return Row(
            id=self.item.id,
            model=self.item.model,
            hint=self.item.hint,
            requests=self.trial.requests,
            tiles=tiles,
            precision=self.precision,
            latency_s=latency,
            throughput_per_s=self.trial.throughput_per_s(),
            energy_j=joules,
            energy_source=self.drawn.source if self.drawn and joules else None,
            operators=self.operators,
        )


@dataclass
class Bench:
    """A device, set one way, with what is needed to measure on it.

    Attributes
    ----------
    core : openvino.Core
    setting : Setting
    pace : Pace
    files : mapping of str to Path
        Where model files lie, by name.
    meter : Meter or None
        What counts energy.
    stop : callable
        Whether to stop.
    root : Path
        Where ``sys`` and ``proc`` lie.
    device : Device or None
        What is measured; known once the first network is compiled.
    failures : dict of str to str
        Rows that could not be measured, and why.
    """

    core: Any
    setting: Setting
    pace: Pace
    files: Mapping[str, Path]
    meter: Meter | None
    stop: Callable[[], bool]
    root: Path
    device: Device | None = None
    failures: dict[str, str] = field(default_factory=dict)
    _computed_in: dict[str, list[str]] = field(default_factory=dict)
    _disturbed: list[str] = field(default_factory=list)

    def piece(self, item: Item) -> Piece:
        """Return a row's model with its inputs; NpusimError where it cannot be built."""
        model, feed = model_of(self.core, item.model, self.setting.precision, self.files)
        return Piece(model, feed, footprint_bytes(model))

    def attempt(self, row: str, work: Callable[[], Any]) -> Any:
        """Do something for a row; None, and a note, where it fails: the other rows go on."""
        try:
            return work()
        except Exception as error:  # whatever it is: minutes of measurement must not be lost to one row
            kind = "" if isinstance(error, NpusimError | RuntimeError) else f"{type(error).__name__}: "
            self.failures.setdefault(row, kind + telling(error, self.files.values()))
            return None

    def compile(self, item: Item, piece: Piece, profiling: bool = False) -> Any:
        """Return a row's network compiled."""
        properties = self.setting.properties(item.hint, item.requests, profiling)
        return self.core.compile_model(piece.model, self.setting.device, properties)

    def enter(self, item: Item, piece: Piece) -> Entrant:
        """Compile a network and warm it up."""
        compiled = self.compile(item, piece)
        if self.device is None:
            self.device = describe(self.core, self.setting.device, compiled, self.root)
        requests = item.requests or (1 if item.hint == "latency" else None)
        trial = Trial.prepare(compiled, piece.feed, requests)
        entrant = Entrant(item, piece, trial, self._precision(item, compiled))
        entrant.trial.warm_up(self.pace)
        return entrant

    def settle(self, entrant: Entrant) -> None:
        """Leave out the turns of a row that other programs disturbed; note it where too few are left."""
        if not entrant.trial.settle(self.pace):
            self._disturbed.append(entrant.item.id)

    def weigh(self, entrant: Entrant) -> None:
        """Run a network without a pause and note the energy, or when that was."""
        before = self.meter.read() if self.meter else 0
        began_s = time.time()
        done = entrant.trial.run_for(self.pace.energy_s)
        ended_s = time.time()
        joules = self.meter.joules(before, self.meter.read()) if self.meter else None
        source = self.meter.source if self.meter else None
        entrant.drawn = Drawn(began_s, ended_s, done, joules, source)

    def count(self, entrant: Entrant) -> None:
        """Run a network with profiling and note each operator's time."""
        compiled = self.compile(entrant.item, entrant.piece, profiling=True)
        runs = self.pace.profiled_runs(entrant.trial.inference_s)
        means = self.setting.kind == "cpu"
        entrant.operators = count_operators(compiled, entrant.piece.feed, runs, means, self.stop)

    def warnings(self) -> list[str]:
        """Return what was not as one would expect."""
        told = [f"{row}: {reason}" for row, reason in self.failures.items()]
        asked = self.setting.precision
        for found, rows in self._computed_in.items():
            if found != asked:
                told.append(f"asked for {asked}, but the device computes in {found}: {_few(rows)}")
        if self._disturbed:
            told.append(
                f"other programs kept more than {self.pace.others_cores:g} cores busy while these ran: "
                f"{_few(self._disturbed)}; close them and measure again"
            )
        return told

    def _precision(self, item: Item, compiled: Any) -> str | None:
        """Return the format that the device says it computes in; what was asked for where it does not say."""
        supported = set(compiled.get_property("SUPPORTED_PROPERTIES"))
        if "INFERENCE_PRECISION_HINT" not in supported:
            return self.setting.precision
        found = written(compiled.get_property("INFERENCE_PRECISION_HINT"))
        self._computed_in.setdefault(found, []).append(item.id)
        return found


def _few(rows: list[str]) -> str:
    """Return the first rows by name and the others by number."""
    more = f" and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else ""
    return ", ".join(rows[:_MOST_NAMED]) + more
