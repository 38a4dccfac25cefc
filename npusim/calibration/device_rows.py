"""Rows of a measurement as mapped graphs, and the numbers that a fit may change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from npusim.arch import Soc
from npusim.calibration.device_report import SkippedRow
from npusim.errors import ConfigError, NpusimError, nearest
from npusim.mapping import Mapped, map_graph
from npusim.measuring import document
from npusim.measuring.models import Sources, mapped_row, predicted_seconds
from npusim.studies.perturbation import Uncertain, number_at, numbers_of, uncertain_numbers, with_library

NOISE_FLOOR = 1e-3
"""Least relative standard error of a row's median: clocks and caches drift."""
LAUNCH_ONLY = "Empty"
"""Benchmark of a network that does next to nothing."""
_SINGLE = document.Benchmark | document.SingleOperator
INFLUENCE = 0.01
"""Least change of a row's time, as a share, when a number that affects it moves by its uncertainty."""
_FAR = 100.0  # largest factor by which a fit changes a number
_VAGUE = 1.0  # relative uncertainty of a number that a user frees and whose sheet states none
_KINDS = {
    document.Workload: "workload",
    document.ModelFile: "model file",
    document.Network: "network",
    document.Given: "network of Python",
}


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A row that can be predicted: measured time (s), its relative standard error, and the mapped network."""

    row: document.Row
    measured_s: float
    noise: float
    mapped: Mapped

    @property
    def end_to_end(self) -> bool:
        """Whether it is a whole network, not one operator."""
        return not isinstance(self.row.model, _SINGLE)

    @property
    def family(self) -> str:
        """Family of its errors: the operator of a benchmark, or the kind of model."""
        model = self.row.model
        return model.operator if isinstance(model, _SINGLE) else _KINDS[type(model)]

    @property
    def instance(self) -> str:
        """Name of its network, however it was run; rows of one network are held out together."""
        return f"{self.text} {self.row.precision}"

    @property
    def text(self) -> str:
        """Description for a reader."""
        model = self.row.model
        if isinstance(model, document.Benchmark):
            return f"{model.operator} {_listed(model.sizes)} {model.dtype}"
        if isinstance(model, document.Workload):
            return f"{model.workload} {model.techniques} {_listed(model.settings)}".rstrip()
        if isinstance(model, document.Network):
            return f"{model.network} {model.precision}"
        return f"{model.name} {model.techniques}" if isinstance(model, document.Given) else model.name

    @property
    def type(self) -> str:
        """Type of the operator that takes longest, as the graph has it."""
        costly = int(np.argmax(self.mapped.results["latency_s"]))
        return self.mapped.graph.operators[self.mapped.decisions.groups[costly].main].type

    def seconds(self, total: object) -> float:
        """Return the predicted time, from a record of TOTAL_DTYPE."""
        return predicted_seconds(total, self.row.is_interval)


def _listed(values: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def noise_of(row: document.Row) -> float:
    """Return the relative standard error of a row's median, at least `NOISE_FLOOR`."""
    return max(NOISE_FLOOR, row.latency_s.median_error) if row.latency_s is not None else NOISE_FLOOR


def calm_rows(
    measurement: document.Measurement, fit_networks: bool
) -> tuple[document.Measurement, list[SkippedRow]]:
    """Return a measurement without the unsteady rows of the fit, and these rows.

    Networks that are only predicted as a check stay: their intervals hold their noise.
    """
    reason = f"unsteady: its readings spread over more than {document.UNSTEADY_SPREAD:.0%} of their median"
    fitted = [row for row in measurement.rows if fit_networks or isinstance(row.model, _SINGLE)]
    noisy = {row.id for row in fitted if row.latency_s is not None and row.latency_s.is_unsteady}
    calm = tuple(row for row in measurement.rows if row.id not in noisy)
    left_out = [SkippedRow(id=row.id, reason=reason) for row in fitted if row.id in noisy]
    return measurement.model_copy(update={"rows": calm}), left_out


def map_rows(
    measurement: document.Measurement,
    soc: Soc,
    files: Sources | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> tuple[list[DeviceRow], list[SkippedRow]]:
    """Map every row of a measurement on a SoC; return also the rows that cannot be built or run on it."""
    rows: list[DeviceRow] = []
    left_out: list[SkippedRow] = []
    for number, row in enumerate(measurement.rows, start=1):
        try:
            mapped = mapped_row(row, soc, measurement.device.kind, files)
            rows.append(DeviceRow(row, row.measured_s, noise_of(row), mapped))
        except NpusimError as error:
            left_out.append(SkippedRow(id=row.id, reason=str(error).splitlines()[0]))
        progress(number, len(measurement.rows), "rows mapped")
    return rows, left_out


def remapped(rows: Sequence[DeviceRow], soc: Soc) -> list[DeviceRow]:
    """Return the rows with fusion and residency decided on another machine."""
    return [replace(row, mapped=map_graph(row.mapped.graph, soc, row.mapped.run)) for row in rows]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number of a data sheet that a fit may change within bounds, in its unit."""

    number: Uncertain  # path, value and uncertainty before the fit
    unit: str
    low: float
    high: float
    in_file: bool  # whether the SoC's own file holds it, not a library

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
    numbers = {number.name: (number, stated) for number, stated in numbers_of(soc)}
    listed = {parameter.name: parameter for parameter in parameters}
    moving = set() if free else set(listed)
    for path in free:
        # A section stands for its uncertain numbers; a number that is named itself need not state an
        # uncertainty.
        moving |= _below(path, numbers, "--free")
        if path in numbers:
            number, stated = numbers[path]
            if number.value <= 0.0 or number.whole:
                what = "a count" if number.whole else "0, which has no logarithm"
                allowed = "a positive number that is no count"
                raise ConfigError(what, file="--free", key=number.name, allowed=allowed)
            sigma = number.sigma if stated else float(np.sqrt(np.log1p(_VAGUE**2)))
            listed.setdefault(path, _parameter(soc, replace(number, sigma=sigma), True))
    for path in hold:
        moving -= _below(path, numbers, "--hold")
    return list(listed.values()), {name for name in moving if name in listed and listed[name].in_file}


def _below(path: str, names: Iterable[str], option: str) -> set[str]:
    """Return the names of a path, or below it; refuse an unknown path."""
    below = {name for name in names if name == path or name.startswith(path + ".")}
    if not below:
        raise ConfigError(
            f"the unknown path `{path}`",
            file=option,
            allowed="the path of a number or section of the SoC, as --set has it",
            suggestion=nearest(path, list(names)),
        )
    return below
