"""A measurement for the terminal: latency, spread and energy of each row, operators by time."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.measure.document import UNKNOWN_CHIP, Benchmark
from npusim.report.engineering import engineering, percent
from npusim.report.terminal import LongName, counted, headed, remarks

if TYPE_CHECKING:
    from npusim.measure import Device, Measurement, Row

_MOST_OPERATORS = 3
_UNAVAILABLE = "not available"


def measurement_page(measurement: Measurement) -> RenderableType:
    """Return a measurement for the terminal: device, a line per row, warnings."""
    device = measurement.device
    head = Text(device.name, style="bold")
    head.append(f" ({device.kind.upper()})", style="dim")
    parts: list[RenderableType] = [
        head,
        Text(_circumstances(device), style="dim"),
        Text(),
        _rows(measurement),
    ]
    notes = [] if measurement.complete else ["the measurement was interrupted: further rows are missing"]
    notes += [] if _has_energy(measurement) else ["energy is not available: no meter told it"]
    notes += _notes_on_predictions(measurement)
    if measurement.tool != "npusim":
        notes += _notes_on_calibrating(measurement)
    foot = remarks(("Warning", "bold yellow", measurement.warnings), ("Note", "dim", notes))
    if foot.row_count:
        parts += [Text(), foot]
    return Group(*parts)


def _notes_on_calibrating(measurement: Measurement) -> list[str]:
    """Return what `npusim calibrate` would lack of what another tool measured."""
    notes = []
    if measurement.device.name == UNKNOWN_CHIP:
        notes.append(
            "the chip is not named, and `npusim calibrate` joins files of one chip: import again with "
            "--platform NAME (the name that `npusim measure` shows on its first line)"
        )
    if not any(isinstance(row.model, Benchmark) for row in measurement.rows):
        notes.append(
            "whole networks check a calibration; what is fitted are the operators of "
            "`npusim measure --suite default` (or add --fit-networks)"
        )
    return notes


def _has_energy(measurement: Measurement) -> bool:
    return any(row.energy_j for row in measurement.rows)


def _circumstances(device: Device) -> str:
    told = [
        f"OpenVINO {device.openvino}" if device.openvino else "",
        f"driver {device.driver}" if device.driver else "",
        device.os or "",
        f"{device.cores} {'threads' if device.kind == 'cpu' else 'execution units'}" if device.cores else "",
        f"{device.tiles} tiles" if device.tiles else "",
        f"at most {engineering(device.clock_hz, 'Hz')}" if device.clock_hz else "",
        f"turbo {'on' if device.turbo else 'off'}" if device.turbo is not None else "",
    ]
    return ", ".join(part for part in told if part)


def _rows(measurement: Measurement) -> Table:
    rows = measurement.rows
    table = headed("row", overflow="fold", ratio=2)
    table.add_column("floats", no_wrap=True)
    has_energy = _has_energy(measurement)
    has_predicted = any(row.predicted_s for row in rows)
    headings = ["latency", "spread", "throughput", *(["energy"] if has_energy else [])]
    headings += ["predicted", "error", "of first"] if has_predicted else []
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    has_memory = any(row.peak_memory_bytes for row in rows)
    for heading in ("memory", "counted") if has_memory else ():
        table.add_column(heading, justify="right", no_wrap=True)
    has_operators = any(row.operators for row in rows) and not has_predicted  # there is no room for both
    if has_operators:
        table.add_column("operators by time", overflow="fold", ratio=3)
    for row in rows:
        cells: list[RenderableType] = [
            LongName(row.id, "-/:@+,"),
            row.precision or "",
            engineering(row.latency_s.median_s, "s") if row.latency_s else _UNAVAILABLE,
            _spread(row),
            _rate(row.throughput_per_s) if row.throughput_per_s else _UNAVAILABLE,
        ]
        if has_energy:
            cells.append(engineering(row.energy_j, "J") if row.energy_j else Text(_UNAVAILABLE, style="dim"))
        cells += _predicted(row, rows[0]) if has_predicted else []
        if has_memory:
            memory = (row.peak_memory_bytes, row.counted_memory_bytes)
            cells += [engineering(value, "B") if value else _UNAVAILABLE for value in memory]
        table.add_row(*cells, *([_operators(row)] if has_operators else []))
    return table


def _predicted(row: Row, first: Row) -> list[RenderableType]:
    """Return the estimate, its error, and measured and predicted time over those of the first row."""
    if row.predicted_s is None:
        return ["", "", ""]
    shares = ""
    if first.predicted_s is not None and (row.hint, row.id) != (first.hint, first.id):
        shares = f"{row.measured_s / first.measured_s:.3g}, {row.predicted_s / first.predicted_s:.3g}"
    error = row.predicted_s / row.measured_s - 1.0
    return [engineering(row.predicted_s, "s"), f"{error:+.0%}", shares]


def _notes_on_predictions(measurement: Measurement) -> list[str]:
    """Return how far estimates lie from what was measured."""
    found = [row for row in measurement.rows if row.predicted_s is not None]
    if not found:
        return []
    errors = [abs(row.predicted_s / row.measured_s - 1.0) for row in found if row.predicted_s]
    machines = ", ".join(dict.fromkeys(str(row.predicted_on) for row in found))
    said = f"predicted on {machines}: median error {median(errors):.1%}, largest {max(errors):.0%}"
    first = measurement.rows[0]
    return [
        f"{said}, of {counted(len(found), 'row')}",
        *([f"of first: measured and predicted time over {first.id}'s"] if len(found) > 1 else []),
    ]


def _rate(per_s: float) -> str:
    """Return a rate; below one per second without a prefix: m/s would read as metres."""
    return engineering(per_s, "/s") if per_s >= 1 else f"{per_s:.3g} /s"


def _spread(row: Row) -> str:
    """Return how far apart the 10 % and 90 % quantiles are, as a share of the median."""
    spread = row.latency_s
    if spread is None or spread.repetitions == 1:
        return ""
    return percent((spread.high_s - spread.low_s) / spread.median_s)


def _operators(row: Row) -> Text:
    """Return the kinds of operators that took longest, with their share of all operators' time."""
    by_type: dict[str, float] = {}
    for counter in row.operators:
        by_type[counter.type] = by_type.get(counter.type, 0.0) + counter.latency_s
    total_s = sum(by_type.values())
    longest = sorted(by_type.items(), key=lambda item: -item[1])[:_MOST_OPERATORS]
    told = [f"{kind} {percent(time_s / total_s)}" for kind, time_s in longest if time_s > 0]
    return Text(", ".join(told), style="dim")
