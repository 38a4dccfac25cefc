"""Rows of a measurement as mapped graphs, the numbers that a fit may change, and predicted times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.arch import Soc
from npusim.calibration.device_report import SkippedRow
from npusim.calibration.least_squares import Floats
from npusim.cost import arch_row
from npusim.errors import ConfigError, NpusimError, nearest
from npusim.graph import Graph
from npusim.mapping import Mapped, map_graph
from npusim.measuring.document import (
    UNSTEADY_SPREAD,
    Benchmark,
    Given,
    Measurement,
    ModelFile,
    Network,
    Row,
    Workload,
)
from npusim.measuring.models import Sources
from npusim.measuring.predicting import mapped_row, predicted_seconds
from npusim.studies.perturbation import (
    Uncertain,
    evaluated,
    lowered_on,
    moved,
    number_at,
    numbers_of,
    uncertain_numbers,
    with_library,
)

NOISE_FLOOR = 1e-3
"""Least relative standard error of a row's median: clocks and caches drift."""
LAUNCH_ONLY = "Empty"
"""Benchmark of a network that does next to nothing."""
INFLUENCE = 0.01
"""A number affects a row whose time changes by more than this share when it moves by its uncertainty."""
_FAR = 100.0
"""Largest factor by which a fit changes a number."""
_VAGUE = 1.0
"""Relative uncertainty of a number that a user frees and whose sheet states none."""
_STEP = 0.02
"""Step of the logarithms for slopes: smaller than most widths, and wide enough to span the kinks where one
bound of an operator replaces another."""
_KINDS = {Workload: "workload", ModelFile: "model file", Network: "network", Given: "network of Python"}

GraphOf = Callable[[Row], Graph]
"""From a row to the graph that ran."""


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A row that can be predicted."""

    row: Row
    measured_s: float
    """Measured latency, or time between two inferences."""
    noise: float
    """Relative standard error of the measurement."""
    mapped: Mapped

    @property
    def id(self) -> str:
        """Name of the row in the measurement."""
        return self.row.id

    @property
    def end_to_end(self) -> bool:
        """Whether it is a whole network, not one operator."""
        return not isinstance(self.row.model, Benchmark)

    @property
    def family(self) -> str:
        """Family of its errors: the operator of a benchmark, or the kind of model."""
        model = self.row.model
        return model.operator if isinstance(model, Benchmark) else _KINDS[type(model)]

    @property
    def instance(self) -> str:
        """Name of its network, however it was run; rows of one network are held out together."""
        return f"{self.text} {self.row.precision}"

    @property
    def text(self) -> str:
        """Description for a reader."""
        model = self.row.model
        if isinstance(model, Benchmark):
            sizes = " ".join(f"{name}={size}" for name, size in model.sizes.items())
            return f"{model.operator} {sizes} {model.dtype}"
        if isinstance(model, Workload):
            settings = "".join(f" {key}={value}" for key, value in model.settings.items())
            return f"{model.workload} {model.techniques}{settings}"
        if isinstance(model, Network):
            return f"{model.network} {model.precision}"
        return f"{model.name} {model.techniques}" if isinstance(model, Given) else model.name

    @property
    def type(self) -> str:
        """Type of the operator that takes longest, as the graph has it."""
        costly = int(np.argmax(self.mapped.results["latency_s"]))
        return self.mapped.graph.operators[self.mapped.decisions.groups[costly].main].type

    def seconds(self, total: object) -> float:
        """Return the predicted time, from a record of TOTAL_DTYPE."""
        return predicted_seconds(total, self.row.is_interval)


def noise_of(row: Row) -> float:
    """Return the relative standard error of a row's median, at least `NOISE_FLOOR`."""
    return max(NOISE_FLOOR, row.latency_s.median_error) if row.latency_s is not None else NOISE_FLOOR


def calm_rows(measurement: Measurement, fit_networks: bool) -> tuple[Measurement, list[SkippedRow]]:
    """Return a measurement without its unsteady rows to be fitted, and these rows.

    Networks that are only predicted as a check stay: their intervals hold their noise.
    """

    def disturbed(row: Row) -> bool:
        fitted = fit_networks or isinstance(row.model, Benchmark)
        return fitted and row.latency_s is not None and row.latency_s.is_unsteady

    reason = f"unsteady: its readings spread over more than {UNSTEADY_SPREAD:.0%} of their median"
    left_out = [SkippedRow(id=row.id, reason=reason) for row in measurement.rows if disturbed(row)]
    calm = tuple(row for row in measurement.rows if not disturbed(row))
    return measurement.model_copy(update={"rows": calm}), left_out


def map_rows(
    measurement: Measurement,
    soc: Soc,
    files: Sources | None = None,
    graph_of: GraphOf | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[DeviceRow], list[SkippedRow]]:
    """Map every row that can be built on a SoC.

    Returns
    -------
    rows : list of DeviceRow
    left_out : list of SkippedRow
        Rows that cannot be built or run on the SoC.
    """
    from npusim.measuring.models import graph_of as graph_of_model

    def build(row: Row) -> Graph:
        return graph_of_model(row.model, row.precision, files or {}) if graph_of is None else graph_of(row)

    rows: list[DeviceRow] = []
    left_out: list[SkippedRow] = []
    for number, row in enumerate(measurement.rows, start=1):
        try:
            mapped = mapped_row(row, soc, measurement.device.kind, build)
            rows.append(DeviceRow(row, row.measured_s, noise_of(row), mapped))
        except NpusimError as error:
            left_out.append(SkippedRow(id=row.id, reason=str(error).splitlines()[0]))
        if progress is not None:
            progress(number, len(measurement.rows))
    return rows, left_out


def remapped(rows: Sequence[DeviceRow], soc: Soc) -> list[DeviceRow]:
    """Return the rows with fusion and residency decided on another machine."""
    return [replace(row, mapped=map_graph(row.mapped.graph, soc, row.mapped.run)) for row in rows]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number of a data sheet that a fit may change."""

    number: Uncertain
    """Path, value and uncertainty before the fit."""
    unit: str
    low: float
    high: float
    """`low`, `high`: bounds, in the unit."""
    in_file: bool
    """Whether the SoC's own file holds it, not a library."""

    @property
    def name(self) -> str:
        """The path as `--set` writes it."""
        return self.number.name


def candidates(soc: Soc, kind: str, mapped: Sequence[Mapped]) -> tuple[Soc, list[Parameter]]:
    """Return the uncertain numbers of a device and of the DRAM that affect time."""
    home = next(name for name, device in soc.devices.items() if device.kind == kind)
    own = {number.path for number, _ in numbers_of(soc)}
    soc, used = with_library(soc, mapped) if kind == "npu" else (soc, frozenset())
    parameters = [
        _parameter(soc, number, number.path in own)
        for number in uncertain_numbers(soc, used)
        if not number.whole and (number.path[0] == "dram" or number.path[1] == home)
    ]
    return soc, parameters


def _parameter(soc: Soc, number: Uncertain, in_file: bool) -> Parameter:
    unit = str(getattr(number_at(soc, number.path), "unit", ""))
    high = min(number.value * _FAR, number.upper)
    of_dram = number.path == ("dram", "bandwidth") or number.path[-1] == "dram_bandwidth"
    if of_dram and soc.dram.peak_bandwidth is not None:
        high = min(high, float(soc.dram.peak_bandwidth))  # a sheet that beats its own memory does not load
    return Parameter(number, unit, number.value / _FAR, max(high, number.value), in_file)


def chosen(
    soc: Soc, parameters: Sequence[Parameter], free: Sequence[str], hold: Sequence[str]
) -> tuple[list[Parameter], set[str]]:
    """Return the parameters, including those that a user frees, and the names of those that may move.

    Parameters
    ----------
    free : sequence of str
        Paths of numbers or sections that alone are free; empty: all.

    Raises
    ------
    ConfigError
        Where a path names no number that can be fitted; it names the nearest one.
    """
    everything = {number.name: (number, stated) for number, stated in numbers_of(soc)}
    listed = {one.name: one for one in parameters}
    wanted: set[str] = set()
    for path in free:
        names = _below(path, everything, "--free")
        # A section stands for its uncertain numbers; a number that is named itself need not state an
        # uncertainty.
        if path in everything:
            number, stated = everything[path]
            if number.value <= 0.0 or number.whole:
                what = "a count" if number.whole else "0, which has no logarithm"
                allowed = "a positive number that is no count"
                raise ConfigError(what, file="--free", key=path, allowed=allowed)
            if not stated:
                sigma = float(np.sqrt(np.log1p(_VAGUE**2)))
                number = Uncertain(number.path, number.value, sigma, number.upper, number.whole)
            listed.setdefault(path, _parameter(soc, number, True))
        wanted.update(name for name in names if name in listed)
    held = {name for path in hold for name in _below(path, everything, "--hold")}
    moving = (wanted if free else set(listed)) - held
    return list(listed.values()), {name for name in moving if listed[name].in_file}


def _below(path: str, names: dict[str, Any], option: str) -> list[str]:
    below = [name for name in names if name == path or name.startswith(path + ".")]
    if not below:
        raise ConfigError(
            f"the unknown path `{path}`",
            file=option,
            allowed="the path of a number or section of the SoC, as --set has it",
            suggestion=nearest(path, names),
        )
    return below


class DeviceTimes:
    """Predicts rows on machines that differ in some numbers."""

    def __init__(
        self,
        soc: Soc,
        rows: Sequence[DeviceRow],
        parameters: Sequence[Parameter],
    ) -> None:
        self.soc, self.rows = soc, list(rows)
        self.parameters = list(parameters)
        self.start = np.log([p.number.value for p in self.parameters])
        self.widths = np.array([p.number.sigma for p in self.parameters])
        self.low = np.log([p.low for p in self.parameters])
        self.high = np.log([p.high for p in self.parameters])
        self.affects = np.ones((len(self.rows), len(self.parameters)), bool)
        self.tables: list[Any] = [None] * len(self.rows)
        self._memory: dict[bytes, Floats] = {}

    def machine(self, logs: Floats) -> Soc:
        """Return the SoC with parameters at given logarithms."""
        values = {p.number.path: v for p, v in zip(self.parameters, np.exp(logs).tolist(), strict=True)}
        return moved(self.soc, values)

    def predicted(self, logs: Floats, only: Sequence[int] | None = None) -> Floats:
        """Return the logarithms of predicted times, shape (rows,); `only` names some rows."""
        if only is not None:
            return self._evaluate(logs, only)
        key = logs.tobytes()
        if key not in self._memory:
            self._memory[key] = self._evaluate(logs, range(len(self.rows)))
        return self._memory[key]

    def _evaluate(self, logs: Floats, which: Sequence[int]) -> Floats:
        machine = self.machine(logs)
        archs: dict[tuple[int, int, str], object] = {}
        seconds = np.empty(len(which))
        for place, i in enumerate(which):
            row = self.rows[i]
            run = row.mapped.run
            key = (run.tiles, run.requests, run.hint)
            if key not in archs:
                archs[key] = arch_row(machine, *key)
            seconds[place] = row.seconds(evaluated(row.mapped, machine, archs[key], self.tables[i]))
        logs_s: Floats = np.log(seconds)
        return logs_s

    def find_influence(self, logs: Floats) -> Floats:
        """Return how much each parameter affects each row, shape (rows, parameters).

        It is the largest change of the row's logarithm when the parameter moves by its uncertainty, up or
        down.
        """
        here = self.predicted(logs)
        influence = np.zeros((len(self.rows), len(self.parameters)))
        for j in range(len(self.parameters)):
            for sign in (1.0, -1.0):
                there = logs.copy()
                there[j] = np.clip(logs[j] + sign * self.widths[j], self.low[j], self.high[j])
                influence[:, j] = np.maximum(influence[:, j], np.abs(self.predicted(there) - here))
        self.affects = influence > 1e-9
        self._keep_tables(logs)
        self._memory.clear()
        return influence

    def _keep_tables(self, logs: Floats) -> None:
        """Keep the operator tables that no parameter changes."""
        tables = [lowered_on(row.mapped, self.machine(logs)) for row in self.rows]
        for j in range(len(self.parameters)):
            there = logs.copy()
            there[j] -= self.widths[j]
            machine = self.machine(there)
            for i in np.flatnonzero(self.affects[:, j]):
                table = tables[i]
                if table is None:
                    continue
                if lowered_on(self.rows[i].mapped, machine).tobytes() != table.tobytes():
                    tables[i] = None
        self.tables = tables

    def slopes(self, logs: Floats, which: NDArray[np.bool_]) -> Floats:
        """Return d log(time) / d log(parameter), shape (rows, parameters); 0 where `which` is false."""
        here = self.predicted(logs)
        slopes = np.zeros((len(self.rows), len(self.parameters)))
        for j in np.flatnonzero(which):
            rows = np.flatnonzero(self.affects[:, j])
            there = logs.copy()
            # At a bound the difference is taken inwards.
            step = -_STEP if logs[j] + _STEP > self.high[j] else _STEP
            there[j] += step
            slopes[rows, j] = (self.predicted(there, rows.tolist()) - here[rows]) / step
        return slopes
