"""The page of a measurement: latency, spread and energy of each row, operators by time."""

from __future__ import annotations

from statistics import median
from typing import Any

from npusim.measuring import Device, Measurement, Row
from npusim.measuring.document import UNKNOWN_CHIP, Benchmark, SingleOperator
from npusim.reporting.charts import amount_bars
from npusim.reporting.engineering import Amount, engineering, percent
from npusim.reporting.page import Page, Plot, document_page
from npusim.reporting.tables import FOLD, Column, Table, fields, summed
from npusim.reporting.terminal import counted
from npusim.rounding import factor

_MOST_TYPES = 3
_MOST_BARS = 40
_MOST_OPERATORS = 100


def measurement_page(measurement: Measurement) -> Page:
    """Return the page of a measurement: device, a line per row, warnings."""
    device, rows = measurement.device, measurement.rows
    latencies = {row.id: row.latency_s.median_s for row in rows[:_MOST_BARS] if row.latency_s}
    lead = ""
    if latencies:
        longest = max(latencies, key=lambda name: latencies[name])
        count, time = counted(len(latencies), "median time"), engineering(latencies[longest], "s")
        lead = f"{count}; the longest is {time}, of {longest}."
    return document_page(
        measurement,
        f"Measurement on {device.name} ({device.kind.upper()})",
        _circumstances(device),
        [
            Plot("Median latency", lambda: amount_bars("latency", "s", latencies)),
            _rows(measurement),
            _longest_operators(measurement),
        ],
        notes=_notes(measurement),
        lead=lead,
    )


def _notes(measurement: Measurement) -> list[str]:
    """Return what is missing, the errors of estimates, and what `npusim calibrate` would lack."""
    rows, notes = measurement.rows, []
    beside = measurement.comparison
    if beside is not None:
        rates = ", ".join(f"{factor(rate)} ({hint})" for hint, rate in beside.speedups.items())
        notes.append(
            f"{beside.file} has {rates or 'an unknown multiple of'} the rate of {beside.original}; "
            f"{percent(beside.same_answers)} of its answers are the same on the example inputs, and the "
            f"largest error is {beside.error:.2g} of the largest output"
        )
    if not measurement.complete:
        notes.append("the measurement was interrupted: further rows are missing")
    if not any(row.energy_j for row in rows):
        notes.append("energy is not available: no meter told it")
    notes += _notes_on_predictions(measurement)
    if measurement.tool != "npusim" and measurement.device.name == UNKNOWN_CHIP:
        notes.append(
            "the chip is not named, and `npusim calibrate` joins files of one chip: import again with "
            "--platform NAME (the name that `npusim measure` shows on its first line)"
        )
    if measurement.tool != "npusim" and not any(
        isinstance(row.model, Benchmark | SingleOperator) for row in rows
    ):
        notes.append(
            "whole networks check a calibration; what is fitted are the operators of `npusim measure --suite "
            "default` (or add --fit-networks)"
        )
    return notes


def _circumstances(device: Device) -> str:
    facts = [
        f"OpenVINO {device.openvino}" if device.openvino else "",
        f"driver {device.driver}" if device.driver else "",
        device.os or "",
        f"{device.cores} {'threads' if device.kind == 'cpu' else 'execution units'}" if device.cores else "",
        f"{device.tiles} tiles" if device.tiles else "",
        f"at most {engineering(device.clock_hz, 'Hz')}" if device.clock_hz else "",
        f"turbo {'on' if device.turbo else 'off'}" if device.turbo is not None else "",
    ]
    return ", ".join(filter(None, facts))


def _rows(measurement: Measurement) -> Table:
    rows = measurement.rows
    is_predicted = any(row.predicted_s for row in rows)
    columns = (
        *fields("id: row, precision: floats, latency_s.median_s: latency"),
        Column("", "spread", _spread, words=False),
        *fields("throughput_per_s, energy_j, predicted_s"),
        Column("", "error", lambda row: "" if row.predicted_s is None else _signed(row)),
        Column("", "of first", lambda row: _shares(row, rows[0]), words=False),
        *fields("peak_memory_bytes: memory, counted_memory_bytes: counted"),
        # The terminal has no room for operators with predictions.
        Column("", "operators by time", _types, "html" if is_predicted else "", layout=FOLD),
    )
    return Table(columns, rows, "Rows", "measured")


def _error(row: Row) -> float:
    """Return the relative error of the estimate."""
    assert row.predicted_s is not None
    return row.predicted_s / row.measured_s - 1.0


def _signed(row: Row) -> Amount:
    return Amount(_error(row), "", f"{_error(row):+.0%}")


def _shares(row: Row, first: Row) -> str:
    """Return measured and predicted time over those of the first row."""
    if row.predicted_s is None or first.predicted_s is None or (row.hint, row.id) == (first.hint, first.id):
        return ""
    return f"{row.measured_s / first.measured_s:.3g}, {row.predicted_s / first.predicted_s:.3g}"


def _notes_on_predictions(measurement: Measurement) -> list[str]:
    """Return the errors of estimates."""
    rows = [row for row in measurement.rows if row.predicted_s is not None]
    if not rows:
        return []
    errors = [abs(_error(row)) for row in rows if row.predicted_s]
    machines = ", ".join(dict.fromkeys(str(row.predicted_on) for row in rows))
    notes = [
        f"predicted on {machines}: median error {median(errors):.1%}, largest {max(errors):.0%}, of "
        f"{counted(len(rows), 'row')}"
    ]
    if len(rows) > 1:
        notes.append(f"of first: measured and predicted time over {measurement.rows[0].id}'s")
    return notes


def _spread(row: Row) -> str:
    """Return the range from the 10 % to the 90 % quantile, as a share of the median."""
    spread = row.latency_s
    if spread is None or spread.repetitions == 1:
        return ""
    return percent((spread.high_s - spread.low_s) / spread.median_s)


def _types(row: Row) -> str:
    """Return the types of operators that took longest, with their share of all operators' time."""
    by_type = summed((counter.type, counter.latency_s) for counter in row.operators)
    total_s = sum(by_type.values())
    longest = sorted(by_type.items(), key=lambda item: -item[1])[:_MOST_TYPES]
    return ", ".join(f"{kind} {percent(time_s / total_s)}" for kind, time_s in longest if time_s > 0)


def _longest_operators(measurement: Measurement) -> Table:
    operators: list[dict[str, Any]] = [
        {"row": row.id, **dict(counter)} for row in measurement.rows for counter in row.operators
    ]
    operators.sort(key=lambda one: -one["latency_s"])
    left = len(operators) - _MOST_OPERATORS
    more = f"and {left:,} more, which --format json has" if left > 0 else ""
    title, shown = "Operators that take longest", operators[:_MOST_OPERATORS]
    return Table(fields("row, name, type, latency_s"), shown, title, "operators", more, only="html")
