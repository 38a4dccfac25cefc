"""Predicted times of a measurement's rows on a SoC, and measured operator times for placement."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from npusim.arch import Soc, load_soc
from npusim.errors import ConfigError, NpusimError, shown
from npusim.mapping import Mapped
from npusim.measuring.document import (
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
from npusim.measuring.models import Sources, graph_of
from npusim.scenario import Scenario, name_of, split_settings
from npusim.studies.placement import OperatorTime, Profile
from npusim.techniques import parse


def predicted(measurement: Measurement, soc: str | Path | Soc, files: Sources | None = None) -> Measurement:
    """Return a measurement with a SoC's estimate in each row that can be built.

    Other rows, another chip, and another number of cores get a warning.

    Parameters
    ----------
    soc : str, Path or Soc
        The measured machine, fitted by `npusim calibrate`, or a shipped one.
    files : Sources, optional
        Model files, and networks of Python, by the name in the measurement.

    Raises
    ------
    NpusimError
        Where the SoC has no device of the measured class.
    """
    machine = soc if isinstance(soc, Soc) else load_soc(soc)
    device = measurement.device
    warnings = match_device(measurement, machine, "the measurement", force=True)
    if device.kind == "cpu" and device.cores not in (None, int(machine.cpu.cores)):
        warnings.append(
            f"{machine.name} has {int(machine.cpu.cores)} cores, {device.cores} were measured: predicted "
            "times are of the former"
        )
    rows = []
    for row in measurement.rows:
        try:
            total = mapped_row(row, machine, device.kind, files).total
            update = {"predicted_s": predicted_seconds(total, row.is_interval), "predicted_on": machine.name}
            rows.append(row.model_copy(update=update))
        except NpusimError as error:
            warnings.append(f"{row.id} is not predicted: {str(error).splitlines()[0]}")
            rows.append(row)
    update = {"rows": tuple(rows), "warnings": (*measurement.warnings, *warnings)}
    return measurement.model_copy(update=update)


def mapped_row(row: Row, soc: Soc, kind: str, files: Sources | None = None) -> Mapped:
    """Return a row's network mapped on a device of a SoC, with the row's hint, requests and tiles."""
    graph = partial(graph_of, row.model, row.precision, files)
    how = {"hint": row.hint, "requests": row.requests, "tiles": row.tiles}
    return Scenario(graph, soc, device=kind, **how).mapped  # type: ignore[arg-type]


def predicted_seconds(total: object, interval: bool) -> float:
    """Return the interval between results, or the latency (s), from a record of TOTAL_DTYPE."""
    if interval:
        return 1.0 / float(total["throughput_per_s"])  # type: ignore[index]
    return float(total["latency_s"])  # type: ignore[index]


def match_device(measurement: Measurement, soc: Soc, file: str, force: bool = False) -> list[str]:
    """Check that a SoC has the measured device; return warnings.

    Raises
    ------
    NpusimError
        Where the SoC has no device of that class, or its chips have other names and `force` is not set.
    """
    device = measurement.device
    if not soc.has(device.kind):
        kinds = ", ".join(sorted({device.kind for device in soc.devices.values()}))
        raise NpusimError(
            f"{file}: device.kind: found `{device.kind}` ({device.name}); {soc.name} has no such device; "
            f"allowed: {kinds}; choose a SoC that has one (npusim list socs)"
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
    """Return the chip's name and architecture, which distinguishes NPUs."""
    architecture = device.settings.get("DEVICE_ARCHITECTURE", "") if device.kind != "cpu" else ""
    return f"{device.name} {architecture}".strip()


def operator_profiles(files: Sequence[str | Path], scenario: Scenario) -> list[Profile]:
    """Return the measured times of a network's operators, one profile for each file.

    Parameters
    ----------
    files : sequence of str or Path
        Measurements (`npusim.measurement/1`), one for each device, with a row of this network under these
        techniques that has operator times.

    Raises
    ------
    ConfigError
        Where a file has no such row, or two are of one device; the message lists the available rows.
    """
    profiles: dict[str, Profile] = {}
    for file in files:
        measurement = read_measurement(file)
        kind = measurement.device.kind
        if kind in profiles:
            allowed = "one file for each device"
            raise ConfigError(f"a second profile of the {kind}", file=str(file), allowed=allowed)
        row = _profiled_row(measurement, scenario, str(file))
        times = tuple(OperatorTime((*op.originals, op.name), op.latency_s) for op in row.operators)
        profiles[kind] = Profile(device=kind, chip=measurement.device.name, row=row.id, operators=times)
    return list(profiles.values())


def _profiled_row(measurement: Measurement, scenario: Scenario, file: str) -> Row:
    """Return the row of a scenario's network that has operator times; latency and few requests first."""
    profiled = [row for row in measurement.rows if row.operators]
    fitting = [row for row in profiled if _is_run_by(row.model, scenario)]
    if fitting:
        return min(fitting, key=lambda row: (row.hint != "latency", row.requests))
    network = f"`{name_of(scenario.network)}` with {parse(scenario.techniques)}"
    listed = ", ".join(shown(row.id) for row in profiled) or "none"
    allowed = f"a row of this very network; rows with operator times: {listed}"
    raise ConfigError(f"no operator times of {network}", file=file, allowed=allowed)


def _is_run_by(model: ModelRef, scenario: Scenario) -> bool:
    """Return whether a row runs a scenario's network with its techniques and settings."""
    name, techniques = name_of(scenario.network), str(parse(scenario.techniques))
    if isinstance(model, Workload):
        settings = {".".join(o.path[1:]): str(o.value) for o in split_settings(scenario.settings)[0]}
        own = (Path(model.workload).stem, str(parse(model.techniques)), dict(model.settings))
        return own == (Path(name).stem, techniques, settings)
    if isinstance(model, ModelFile):
        return model.name == Path(name).name and techniques == "none"
    return isinstance(model, Network) and model.network == name
