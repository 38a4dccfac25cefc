"""Measures networks on a device: compilation by groups, timing in alternating turns, energy, profile.

A group of networks is compiled first. Each network is then timed for one turn after the other, so that a
drift of the machine (a hot processor, background load) affects all alike. Energy and operator times are read
in runs of their own, because reading them slows a network down.
"""

from __future__ import annotations

import datetime
import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from npusim import __version__
from npusim.errors import ConfigError, FileError, NpusimError, shown
from npusim.measuring.devices import (
    Setting,
    describe,
    devices_found,
    find_device,
    load_openvino,
    properties_of,
    written,
)
from npusim.measuring.document import UNSTEADY_SPREAD, Counter, Device, Measurement, Row
from npusim.measuring.energy import EnergyReading, Measured, Meter, find_meter, with_logged_energy
from npusim.measuring.models import (
    Sources,
    footprint_bytes,
    model_of,
    short_reason,
    with_file_names,
    without_folders,
)
from npusim.measuring.suites import Item, folder_kind
from npusim.measuring.timing import TimeBudget, TimedNetwork, profile_operators

Progress = Callable[[float, int, str], None]
"""Progress callback: rows done (with fractions), rows in all, what runs."""

PROCESSOR_TIME = "one thread, processor time"
"""Note of a row in processor time."""
_COMPILED, _RUN = 0.25, 0.75  # progress of a row after compilation, and after its turns
# Length of a run for energy: from a counter; from a log with an entry every 2 s (s).
_COUNTED_S, _LOGGED_S = 1.0, 6.0
_LOG_LAG_S = 2.5  # wait for the log's entry about the last row (s)
_MANY_UNSTEADY = 0.5  # share of unsteady rows that is worth a warning
_MOST_TOGETHER = 32  # most networks of a group
_SHARE_OF_MEMORY = 0.25  # part of the free memory that a group may take, as its size is an estimate
_MOST_NAMED = 3  # rows that a warning names; it counts the others


class NothingMeasuredError(NpusimError):
    """A measurement without a single row."""

    def __init__(self, device: str, failures: Mapping[str, str], found: Sequence[str] = ()) -> None:
        self.failures = dict(failures)
        reasons = list(dict.fromkeys(failures.values()))
        reason = reasons[0] if reasons else "stopped before the first reading"
        more = f" (and {len(reasons) - 1} other reasons)" if len(reasons) > 1 else ""
        row = f"{next(iter(failures))}: " if len(reasons) > 1 else ""
        text = f"nothing was measured on {device}: {row}{reason}{more}"
        if found and "compiler" in reason.lower():
            text += f". The compiler of {device} comes with its driver: install or update that"
        if found:
            text += f". Devices found: {'; '.join(found)}"
        super().__init__(text)


def measure(
    items: Sequence[Item],
    device: str,
    *,
    precision: str | None = None,
    budget_s: float = 2.0,
    tiles: int | None = None,
    processor_time: bool = False,
    files: Sources | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    hwinfo: Path | None = None,
    earlier: Measurement | None = None,
    save: Callable[[Measurement], None] | None = None,
    root: Path = Path("/"),
) -> Measurement:
    """Measure networks on a device of this machine with OpenVINO.

    Parameters
    ----------
    items : sequence of Item
        Rows to measure: ``npusim.measuring.suites.load_suite("default").items``.
    device : str
        NPU, GPU or CPU, in any case; GPU.1 for the second of several.
    precision : str, optional
        Format to compute in: f32, bf16, f16. Default: f32 on a CPU, f16 elsewhere.
    budget_s : float, optional
        Time for one row, without compilation (s). Slow networks take longer: each runs at least 5 times.
    tiles : int, optional
        Tiles of the NPU to compile for.
    processor_time : bool
        Whether a CPU computes with one thread and its processor time is read; other programs lengthen that
        only through the caches. Rows of the hint ``throughput`` are left out.
    files : Sources, optional
        Model files, and networks of Python, by the name in a row.
    progress : callable, optional
        See `Progress`.
    stop : callable, optional
        Called between repetitions; True ends the measurement with the rows so far.
    hwinfo : Path, optional
        Log that HWiNFO writes meanwhile: power of the device over time.
    earlier : Measurement, optional
        An interrupted measurement of the same rows on the same device: its rows are kept.
    save : callable, optional
        Called with the rows so far after each group of networks; not with `hwinfo`, whose log ends later.
    root : Path, optional
        Folder of ``sys`` and ``proc``.

    Returns
    -------
    Measurement
        A row for each item that could be measured, in their order; a warning for each that could not.

    Raises
    ------
    NpusimError
        Where openvino, the device or the log of HWiNFO is missing, no item could be measured, or `earlier` is
        of other rows or another device.
    """
    core = load_openvino().Core()
    setting = Setting.of(core, find_device(core, device), precision, tiles, processor_time)
    entries, sources = with_file_names(items, files or {})
    left_out = _without_processor_time(entries) if processor_time else []
    order = {item.id: number for number, item in enumerate(entries) if item.id not in left_out}
    kept = _kept_rows(entries, earlier, core, setting) if earlier else []
    missing = [item for item in entries if item.id in order.keys() - {row.id for row in kept}]
    if earlier and not missing:
        return earlier.model_copy(update={"complete": True})
    if hwinfo is not None and not hwinfo.is_file():
        raise FileError(str(hwinfo), "no such file", "start logging in HWiNFO before you measure")
    meter, obstacle = find_meter(setting.kind, root) if hwinfo is None else (None, "")
    energy_s = _LOGGED_S if hwinfo is not None else _COUNTED_S if meter else 0.0
    most = math.inf if processor_time else _background_allowed(setting.kind)
    budget = TimeBudget(budget_s, energy_s=energy_s, max_background_cores=most, processor_time=processor_time)
    stop, progress = stop or (lambda: False), progress or (lambda done, total, what: None)
    runner = DeviceRunner(core, setting, budget, sources, meter, stop, progress, root, len(missing))
    busy = [text for text in earlier.warnings if text.startswith("other programs")] if earlier else []
    measured: Measured = []

    def document(complete: bool, *warnings: str) -> Measurement:
        assert runner.device is not None
        rows = sorted([*kept, *(row for row, _ in measured)], key=lambda row: order[row.id])
        return Measurement(
            npusim=__version__,
            date=datetime.date.today().isoformat(),
            complete=complete,
            device=runner.device,
            rows=tuple(rows),
            warnings=(*busy, *runner.warnings(), *noise_warnings(rows), *warnings),
        )

    for group in runner.run(missing):
        measured += group
        if save is not None and hwinfo is None and measured:
            save(document(False))
    if hwinfo is not None:
        time.sleep(_LOG_LAG_S)
        measured, obstacle = with_logged_energy(measured, setting.kind, hwinfo)
    runner.failures.update(dict.fromkeys(left_out, "left out: several inferences in flight"))
    if not measured or runner.device is None:
        available = devices_found(core) if runner.failures and runner.device is None else ()
        raise NothingMeasuredError(setting.device, runner.failures, available)
    without_energy = [f"energy is not available: {without_folders(obstacle)}"] if obstacle else []
    return document(not stop(), *without_energy)


def _kept_rows(items: Sequence[Item], earlier: Measurement, core: Any, setting: Setting) -> list[Row]:
    """Return the rows of an interrupted measurement; refuse those of another device or of other networks."""
    models = {item.id: item.model for item in items}
    device = str(properties_of(core, setting.device).get("FULL_DEVICE_NAME", earlier.device.name)).strip()
    if earlier.device.name != device:
        raise ConfigError(f"a measurement of {shown(earlier.device.name)}", file="--resume", allowed=device)
    for row in earlier.rows:
        if models.get(row.id) != row.model:
            raise ConfigError(f"another row {shown(row.id)}", file="--resume", allowed="rows of this command")
    return list(earlier.rows)


def _without_processor_time(items: Sequence[Item]) -> list[str]:
    """Return the rows that cannot be measured in processor time; refuse exported language models.

    The parts of a language model share the processor with the host's work.
    """
    for item in items:
        if item.folder is not None:
            found = f"the exported language model `{item.folder.name}`"
            raise ConfigError(found, file="--processor-time", allowed="other networks")
    rows = [item.id for item in items if item.hint == "throughput" or (item.requests or 1) > 1]
    if len(rows) == len(items):
        raise ConfigError(
            "several inferences in flight", file="--processor-time", allowed="the hint latency, one request"
        )
    return rows


def interleaved(items: Sequence[Item]) -> list[Item]:
    """Return rows in an order in which each group has some of every part of the suite.

    A slow minute of the machine then hits a few rows of each kind and not all of one. Rows of the same
    network stay together, because they share its memory.
    """
    rows_of: dict[str, list[Item]] = {}
    for item in items:
        rows_of.setdefault(_network_key(item), []).append(item)
    networks = list(rows_of.values())
    groups = max(1, -(-len(items) // _MOST_TOGETHER))
    return [item for first in range(groups) for rows in networks[first::groups] for item in rows]


def noise_warnings(rows: Sequence[Row]) -> list[str]:
    """Return a warning where the readings of many rows spread more than on a quiet machine."""
    many = sum(row.latency_s.is_unsteady for row in rows if row.latency_s is not None)
    if many <= _MANY_UNSTEADY * len(rows):
        return []
    return [
        f"unsteady: the readings of {many} of {len(rows)} rows spread over more than {UNSTEADY_SPREAD:.0%} "
        "of their median; other programs may have run: close them, plug in the power supply and measure again"
    ]


def _background_allowed(kind: str) -> float:
    """Return the cores that other programs may take: few of a measured CPU, else all but two."""
    spare = 0.0 if kind == "cpu" else (psutil.cpu_count() or 1) - 2.0
    return max(TimeBudget.max_background_cores, spare)


@dataclass(frozen=True)
class LoadedModel:
    """A model with values for its inputs, and the estimated memory of one compiled network (B).

    The rows of a group that run it share it.
    """

    model: Any
    feed: list[Any]
    bytes: int


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
        """Return the row; None without readings."""
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
    """Compiles and runs networks on one device in one setting, group by group, and collects warnings."""

    core: Any
    setting: Setting
    budget: TimeBudget
    files: Sources
    meter: Meter | None
    stop: Callable[[], bool]
    progress: Progress
    root: Path
    rows: int
    done: float = 0.0  # rows that are done, with fractions
    device: Device | None = None  # description of the device; known after the first compilation
    failures: dict[str, str] = field(default_factory=dict)  # reasons of the rows that could not be measured
    disturbed: list[str] = field(default_factory=list)  # rows with too few undisturbed turns
    _computed_in: dict[str, list[str]] = field(default_factory=dict)

    def run(self, items: Sequence[Item]) -> Iterator[Measured]:
        """Measure group after group, releasing each group's networks; yield the rows of each."""
        remaining = interleaved(items)
        while remaining and not self.stop():
            group = self._compile_group(remaining)
            self._time_group(group)
            for run in group:
                if not run.timed.drop_disturbed(self.budget):
                    self.disturbed.append(run.item.id)
                self._read_energy_and_counters(run)
            rows = [(run.row(self.setting.tiles), run.energy) for run in group]
            group.clear()
            gc.collect()
            yield [(row, energy) for row, energy in rows if row is not None]

    def _compile_group(self, remaining: list[Item]) -> list[RowRun]:
        """Compile the next networks that fit into memory together, and remove them from the list."""
        group: list[RowRun] = []
        models: dict[str, LoadedModel] = {}
        free_bytes = _SHARE_OF_MEMORY * psutil.virtual_memory().available
        while remaining and len(group) < _MOST_TOGETHER and not self.stop():
            item = remaining[0]
            self._show(f"compiling {item.id}")
            loaded, run = models.get(_network_key(item)), None
            with self._attempt(item.id):
                loaded = loaded or self._load(item)
            if loaded is not None and group and loaded.bytes > free_bytes:
                break  # it opens the next group
            remaining.pop(0)
            with self._attempt(item.id):
                run = self._prepare(item, loaded) if loaded else None
            if loaded is None or run is None:
                self.done += 1.0
                continue
            models[_network_key(item)] = loaded
            free_bytes -= loaded.bytes
            group.append(run)
            self.done += _COMPILED
        return group

    def _time_group(self, group: list[RowRun]) -> None:
        """Time the networks of a group in alternating turns until each has had its own."""
        shares = {id(run): (_RUN - _COMPILED) / max(1, run.timed.turns_left) for run in group}
        waiting = list(group)
        while waiting:
            for run in waiting:
                if self.stop():
                    return
                self._show(f"running {run.item.id}")
                before = run.timed.turns_left
                with self._attempt(run.item.id):
                    run.timed.run_turn(self.budget)
                if run.item.id in self.failures:
                    run.timed.turns_left = 0
                self.done += shares[id(run)] * (before - run.timed.turns_left)
            waiting = [run for run in waiting if run.timed.turns_left > 0]

    def _read_energy_and_counters(self, run: RowRun) -> None:
        """Read energy and counters of a network after its turns.

        Counters need one inference at a time: several at once overlap. For an exported language model they
        would take its memory a second time, and are left out.
        """
        row = run.item.id
        if self.budget.energy_s > 0 and not self.stop():
            self._show(f"energy of {row}")
            with self._attempt(row):
                before = self.meter.read() if self.meter else 0
                began_s, monotonic_s = time.time(), time.monotonic()
                inferences = run.timed.run_for(self.budget.energy_s)
                ended_s = began_s + time.monotonic() - monotonic_s  # the system clock may jump
                joules = self.meter.joules(before, self.meter.read()) if self.meter else None
                source = self.meter.source if self.meter else None
                run.energy = EnergyReading(began_s, ended_s, inferences, joules, source)
        if run.item.hint == "latency" and run.item.folder is None and not self.stop():
            self._show(f"operators of {row}")
            with self._attempt(row):
                compiled = self._compile(run.item, run.loaded, profiling=True)
                runs = self.budget.profiled_runs(run.timed.inference_s)
                means = self.setting.kind == "cpu"
                run.operators = profile_operators(compiled, run.loaded.feed, runs, means, self.stop)
        self.done += 1.0 - _RUN

    def _show(self, what: str) -> None:
        self.progress(self.done, self.rows, what)

    @contextmanager
    def _attempt(self, row: str) -> Iterator[None]:
        """Note an error as the reason why a row could not be measured."""
        try:
            yield
        except Exception as error:  # no error of one row may lose minutes of measurement
            paths = [source for source in self.files.values() if isinstance(source, Path)]
            kind = "" if isinstance(error, NpusimError | RuntimeError) else f"{type(error).__name__}: "
            self.failures.setdefault(row, kind + short_reason(error, paths))

    def _load(self, item: Item) -> LoadedModel:
        """Return a row's model with its inputs; NpusimError where it cannot be built.

        An exported folder is compiled at once: its rows share the parts.
        """
        if item.folder is not None:
            properties = self.setting.properties(item.hint, item.requests, profiling=False)
            exported, size = folder_kind(item.folder).load(item.folder, self.setting.device, properties)
            return LoadedModel(exported, [], size)
        model, feed = model_of(self.core, item.model, self.setting.precision, self.files)
        return LoadedModel(model, feed, footprint_bytes(model))

    def _compile(self, item: Item, loaded: LoadedModel, profiling: bool = False) -> Any:
        properties = self.setting.properties(item.hint, item.requests, profiling)
        return self.core.compile_model(loaded.model, self.setting.device, properties)

    def _prepare(self, item: Item, loaded: LoadedModel) -> RowRun:
        """Compile a network and warm it up."""
        kind = folder_kind(item.folder) if item.folder is not None else None
        compiled = kind.compiled(loaded.model) if kind is not None else self._compile(item, loaded)
        if self.device is None:
            self.device = describe(self.core, self.setting.device, compiled, self.root)
        if kind is not None:
            timed = kind.timed(item, loaded.model)
        else:
            requests = item.requests or (1 if item.hint == "latency" else None)
            timed = TimedNetwork.prepare(compiled, loaded.feed, requests, self.budget.processor_time)
        run = RowRun(item, loaded, timed, self._precision(item, compiled))
        run.timed.warm_up(self.budget)
        return run

    def _precision(self, item: Item, compiled: Any) -> str | None:
        """Return the format that the device reports, or the requested one where it reports none."""
        if "INFERENCE_PRECISION_HINT" not in set(compiled.get_property("SUPPORTED_PROPERTIES")):
            return self.setting.precision
        precision = written(compiled.get_property("INFERENCE_PRECISION_HINT"))
        self._computed_in.setdefault(precision, []).append(item.id)
        return precision

    def warnings(self) -> list[str]:
        """Return the warnings: failed rows, other formats than requested, background load."""
        warnings = [f"{row}: {reason}" for row, reason in self.failures.items()]
        wanted = self.setting.precision
        warnings += [
            f"asked for {wanted}, but the device computes in {actual}: {_first_named(rows)}"
            for actual, rows in self._computed_in.items()
            if actual != wanted
        ]
        if self.disturbed:
            warnings.append(
                f"other programs kept more than {self.budget.max_background_cores:g} cores busy while these "
                f"ran: {_first_named(self.disturbed)}; close them and measure again"
            )
        return warnings


def _first_named(rows: list[str]) -> str:
    """Return the first rows by name and the number of the others."""
    more = f" and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else ""
    return ", ".join(rows[:_MOST_NAMED]) + more


def _network_key(item: Item) -> str:
    """Return a key that rows of the same network share."""
    return str(item.folder or item.model.model_dump_json())
