"""Estimates beside measured times: each row of a measurement, predicted on a SoC."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from npusim.arch import Soc, load_soc
from npusim.errors import NpusimError
from npusim.graph import Graph
from npusim.mapping import Mapped
from npusim.measure.document import UNKNOWN_CHIP, Device, Measurement, Row
from npusim.measure.models import Sources, graph_of
from npusim.scenario import Scenario


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
