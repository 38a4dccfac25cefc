"""Compiles and runs networks on one device in one setting, and collects warnings."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npusim.errors import NpusimError
from npusim.measure.counters import profile_operators
from npusim.measure.devices import Setting
from npusim.measure.document import Counter, Device, Row
from npusim.measure.energy import EnergyReading, Meter
from npusim.measure.environment import describe, written
from npusim.measure.folders import folder_kind
from npusim.measure.loading import footprint_bytes, model_of, short_reason
from npusim.measure.models import Sources
from npusim.measure.timing import TimeBudget, TimedNetwork

if TYPE_CHECKING:
    from npusim.measure.suites import Item

PROCESSOR_TIME = "one thread, processor time"
"""Note of a row whose time is the processor's."""
_MOST_NAMED = 3
"""Rows that a warning names; it counts the others."""


@dataclass(frozen=True)
class LoadedModel:
    """A model with values for its inputs, for all rows of a group that run it."""

    model: Any
    feed: list[Any]
    bytes: int
    """About how much memory one compiled network of it takes."""


@dataclass
class RowRun:
    """A row under test: its compiled network and the readings so far."""

    item: Item
    loaded: LoadedModel
    timed: TimedNetwork
    precision: str | None
    energy: EnergyReading | None = None
    operators: tuple[Counter, ...] = ()

    def row(self, tiles: int | None) -> Row | None:
        """Return the row; None where nothing was read."""
        latency = self.timed.latency()
        if latency is None:
            return None
        joules = self.energy.per_inference_j if self.energy else None
        return Row(
            id=self.item.id,
            model=self.item.model,
            hint=self.item.hint,
            requests=self.timed.requests,
            tiles=tiles,
            precision=self.precision,
            latency_s=latency,
            throughput_per_s=self.timed.throughput_per_s(),
            energy_j=joules,
            energy_source=self.energy.source if self.energy and joules else None,
            operators=self.operators,
            note=PROCESSOR_TIME if self.timed.processor_time else "",
        )


@dataclass
class DeviceRunner:
    """Compiles and runs networks on one device in one setting."""

    core: Any
    setting: Setting
    budget: TimeBudget
    files: Sources
    """Where model files lie, and networks of Python, by name."""
    meter: Meter | None
    """What counts energy."""
    stop: Callable[[], bool]
    """Whether to stop."""
    root: Path
    """Where ``sys`` and ``proc`` lie."""
    device: Device | None = None
    """What is measured; known once the first network is compiled."""
    failures: dict[str, str] = field(default_factory=dict)
    """Rows that could not be measured, and why."""
    _computed_in: dict[str, list[str]] = field(default_factory=dict)
    _disturbed: list[str] = field(default_factory=list)

    def load(self, item: Item) -> LoadedModel:
        """Return a row's model with its inputs; NpusimError where it cannot be built.

        An exported folder is compiled at once: its rows share the parts.
        """
        if item.folder is not None:
            properties = self.setting.properties(item.hint, item.requests, profiling=False)
            exported, size = folder_kind(item.folder).load(item.folder, self.setting.device, properties)
            return LoadedModel(exported, [], size)
        model, feed = model_of(self.core, item.model, self.setting.precision, self.files)
        return LoadedModel(model, feed, footprint_bytes(model))

    def attempt(self, row: str, work: Callable[[], Any]) -> Any:
        """Do something for a row; None, and a note, where it fails: the other rows go on."""
        try:
            return work()
        except Exception as error:  # whatever it is: minutes of measurement must not be lost to one row
            paths = [one for one in self.files.values() if isinstance(one, Path)]
            kind = "" if isinstance(error, NpusimError | RuntimeError) else f"{type(error).__name__}: "
            self.failures.setdefault(row, kind + short_reason(error, paths))
            return None

    def compile(self, item: Item, loaded: LoadedModel, profiling: bool = False) -> Any:
        """Return a row's network compiled."""
        properties = self.setting.properties(item.hint, item.requests, profiling)
        return self.core.compile_model(loaded.model, self.setting.device, properties)

    def prepare(self, item: Item, loaded: LoadedModel) -> RowRun:
        """Compile a network and warm it up."""
        kind = folder_kind(item.folder) if item.folder is not None else None
        compiled = kind.compiled(loaded.model) if kind is not None else self.compile(item, loaded)
        if self.device is None:
            self.device = describe(self.core, self.setting.device, compiled, self.root)
        requests = item.requests or (1 if item.hint == "latency" else None)
        if kind is not None:
            timed = kind.timed(item, loaded.model)
        else:
            timed = TimedNetwork.prepare(compiled, loaded.feed, requests, self.budget.processor_time)
        run = RowRun(item, loaded, timed, self._precision(item, compiled))
        run.timed.warm_up(self.budget)
        return run

    def drop_disturbed(self, run: RowRun) -> None:
        """Drop the turns of a row that other programs disturbed; note it where too few are left."""
        if not run.timed.drop_disturbed(self.budget):
            self._disturbed.append(run.item.id)

    def measure_energy(self, run: RowRun) -> None:
        """Run a network without a pause and note the energy, or when that was."""
        before = self.meter.read() if self.meter else 0
        began_s = time.time()
        done = run.timed.run_for(self.budget.energy_s)
        ended_s = time.time()
        joules = self.meter.joules(before, self.meter.read()) if self.meter else None
        source = self.meter.source if self.meter else None
        run.energy = EnergyReading(began_s, ended_s, done, joules, source)

    def profile(self, run: RowRun) -> None:
        """Run a network with profiling and note each operator's time."""
        compiled = self.compile(run.item, run.loaded, profiling=True)
        runs = self.budget.profiled_runs(run.timed.inference_s)
        means = self.setting.kind == "cpu"
        run.operators = profile_operators(compiled, run.loaded.feed, runs, means, self.stop)

    def warnings(self) -> list[str]:
        """Return the warnings: rows that failed, other formats than asked for, background load."""
        told = [f"{row}: {reason}" for row, reason in self.failures.items()]
        asked = self.setting.precision
        for found, rows in self._computed_in.items():
            if found != asked:
                told.append(f"asked for {asked}, but the device computes in {found}: {_first_named(rows)}")
        if self._disturbed:
            told.append(
                f"other programs kept more than {self.budget.max_background_cores:g} cores busy while these "
                f"ran: "
                f"{_first_named(self._disturbed)}; close them and measure again"
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


def _first_named(rows: list[str]) -> str:
    """Return the first rows by name and the number of the others."""
    more = f" and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else ""
    return ", ".join(rows[:_MOST_NAMED]) + more
