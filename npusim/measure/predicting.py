"""Estimates beside measured times: each row of a measurement, predicted on a SoC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from npusim.arch import Soc, load_soc
from npusim.errors import ConfigError, NpusimError, shown
from npusim.graph import Graph
from npusim.mapping import Mapped
from npusim.measure.document import (
    UNKNOWN_CHIP,
    Device,
    Measurement,
    ModelFile,
    ModelRef,
    Network,
    Row,
    Workload,
    read_measurement,
)
from npusim.measure.models import Sources, graph_of
from npusim.scenario import Network as AnyNetwork
from npusim.scenario import Scenario, name_of, split_settings
from npusim.studies.placement import OperatorTime, Profile
from npusim.techniques import parse


def predicted(measurement: Measurement, soc: str | Path | Soc, files: Sources | None = None) -> Measurement:
    """Return a measurement whose rows say what a SoC's estimate is.

    Parameters
    ----------
    soc : str, Path or Soc
        Machine that stands for the one measured: fitted to it by `npusim calibrate`, or a shipped one.
    files : Sources, optional
        Where model files lie, and networks of Python, by their name in the measurement.

    Returns
    -------
    Measurement
        With `predicted_s` and `predicted_on` in each row that can be built; a warning for each other one,
        for another chip, and for another number of cores than were measured.

    Raises
    ------
    NpusimError
        Where the SoC has no device of the class that was measured.
    """
    machine = soc if isinstance(soc, Soc) else load_soc(soc)
    device = measurement.device
    warnings = match_device(measurement, machine, "the measurement", force=True)
    if device.kind == "cpu" and device.cores is not None and int(machine.cpu.cores) != device.cores:
        warnings.append(
            f"{machine.name} has {int(machine.cpu.cores)} cores, {device.cores} were measured: predicted "
            "times are of the former"
        )
    rows = []
    for row in measurement.rows:
        try:
            mapped = mapped_row(row, machine, device.kind, partial(_graph, files=files))
        except NpusimError as error:
            warnings.append(f"{row.id} is not predicted: {str(error).splitlines()[0]}")
            rows.append(row)
            continue
        said = {"predicted_s": predicted_seconds(mapped.total, row.is_interval), "predicted_on": machine.name}
        rows.append(row.model_copy(update=said))
    return measurement.model_copy(
        update={"rows": tuple(rows), "warnings": (*measurement.warnings, *warnings)}
    )


def _graph(row: Row, files: Sources | None) -> Graph:
    return graph_of(row.model, row.precision, files)


def mapped_row(row: Row, soc: Soc, kind: str, graph: Callable[[Row], Graph]) -> Mapped:
    """Return a row's network mapped on a device of a SoC, run as it was measured."""
    how = {"hint": row.hint, "requests": row.requests, "tiles": row.tiles}
    return Scenario(partial(graph, row), soc, device=kind, **how).mapped  # type: ignore[arg-type]


def predicted_seconds(total: object, interval: bool) -> float:
    """Return the time between two results, or the latency (s), from a record of TOTAL_DTYPE."""
    if interval:
        return 1.0 / float(total["throughput_per_s"])  # type: ignore[index]
    return float(total["latency_s"])  # type: ignore[index]


def match_device(measurement: Measurement, soc: Soc, file: str, force: bool = False) -> list[str]:
    """Check that a SoC has the device that was measured; return warnings.

    Raises
    ------
    NpusimError
        Where the SoC has no device of that class, or its chips have other names and `force` is not set.
    """
    device = measurement.device
    if not soc.has(device.kind):
        there = ", ".join(sorted({one.kind for one in soc.devices.values()}))
        raise NpusimError(
            f"{file}: device.kind: found `{device.kind}` ({device.name}); {soc.name} has no such device; "
            f"allowed: {there}; choose a SoC that has one (npusim list socs)"
        )
    name = chip_text(device)
    if device.name == UNKNOWN_CHIP:
        return [f"{file} does not name its chip: it is taken for one of {soc.title}"]
    if soc.is_chip(device.kind, name):
        return []
    if force:
        return [f"{file} was measured on {name}, which is no chip of {soc.title}: taken all the same"]
    raise NpusimError(
        f"{file}: device.name: found `{name}`, which is no {device.kind} of {soc.title}; allowed: a name "
        f"that matches {' or '.join(soc.chips[device.kind])}; --force-soc takes it all the same"
    )


def chip_text(device: Device) -> str:
    """Return the chip's name, and architecture, which tells NPUs apart."""
    architecture = device.settings.get("DEVICE_ARCHITECTURE", "") if device.kind != "cpu" else ""
    return f"{device.name} {architecture}".strip()


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a row must have run to say something of a scenario."""

    name: str
    techniques: str
    settings: Mapping[str, str]

    def __str__(self) -> str:
        return f"`{self.name}` with {self.techniques}"

    def is_run_by(self, model: ModelRef) -> bool:
        if isinstance(model, Workload):
            own = (Path(model.workload).stem, str(parse(model.techniques)), dict(model.settings))
            return own == (Path(self.name).stem, self.techniques, self.settings)
        if isinstance(model, ModelFile):
            return model.name == Path(self.name).name and self.techniques == "none"
        return isinstance(model, Network) and f"{model.network}" == self.name


def operator_profiles(files: Sequence[str | Path], scenario: Scenario) -> list[Profile]:
    """Read what devices took for the operators of a network.

    Parameters
    ----------
    files : sequence of str or Path
        Measurements (`npusim.measurement/1`), one for each device; each has a row of this network under these
        techniques with the times of its operators.

    Returns
    -------
    list of Profile
        One for each file.

    Raises
    ------
    ConfigError
        Where a file has no such row, or two are of one device; the message lists the rows there are.
    """
    asked = _asked(scenario)
    found: dict[str, Profile] = {}
    for file in files:
        measurement = read_measurement(file)
        kind = measurement.device.kind
        if kind in found:
            raise ConfigError(
                f"a second profile of the {kind}", file=str(file), allowed="one file for each device"
            )
        row = _row(measurement, asked, str(file))
        found[kind] = Profile(
            device=kind,
            chip=measurement.device.name,
            row=row.id,
            operators=tuple(OperatorTime((*one.originals, one.name), one.latency_s) for one in row.operators),
        )
    return list(found.values())


def _asked(scenario: Scenario) -> _Asked:
    network: AnyNetwork = scenario.network
    settings = {".".join(o.path[1:]): str(o.value) for o in split_settings(scenario.settings)[0]}
    return _Asked(name_of(network), str(parse(scenario.techniques)), settings)


def _row(measurement: Measurement, asked: _Asked, file: str) -> Row:
    fitting = [row for row in measurement.rows if row.operators and asked.is_run_by(row.model)]
    if fitting:
        return min(fitting, key=lambda row: (row.hint != "latency", row.requests))
    profiled = ", ".join(shown(row.id) for row in measurement.rows if row.operators) or "none"
    raise ConfigError(
        f"no operator times of {asked}", file=file,
        allowed=f"a row of this very network; rows with operator times: {profiled}",
    )  # fmt: skip
