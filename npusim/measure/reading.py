"""Reads measurement documents, and merges several of one device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import npusim
from npusim.config.reading import read_json
from npusim.errors import ConfigError, NpusimError, shown
from npusim.measure.document import UNKNOWN_CHIP, Device, Measurement, Row

_NUMBERED = re.compile(r"(?P<base>.*\S) #\d+")
_ROW = re.compile(r"rows\.(?P<number>\d+)(\.(?P<rest>.*))?")


def read_measurement(path: str | Path) -> Measurement:
    """Read a file of measurements.

    Raises
    ------
    FileError
        Where the file is missing, a directory or not UTF-8.
    ConfigError
        Where it is empty, cut off, of another schema, or a value is not allowed; the message names the line,
        the row, the key, the value and what is allowed.
    """
    try:
        return Measurement.read(path, "`npusim measure`")
    except ConfigError as error:
        raise error.with_keys(lambda key: _row_named(key, Path(path))) from None


def _row_named(key: str, path: Path) -> str:
    """Return a key with its row's number and id: `row 3 (`gemm-64`): latency_s.median_s`."""
    match = _ROW.fullmatch(key)
    if not match:
        return key
    number = int(match["number"])
    row = read_json(path).data["rows"][number]
    id_ = row.get("id") if isinstance(row, dict) else None
    place = f"row {number + 1}" + (f" ({shown(id_)})" if isinstance(id_, str) else "")
    return f"{place}: {match['rest']}" if match["rest"] else place


def merge(measurements: Sequence[Measurement], files: Sequence[str | Path] | None = None) -> Measurement:
    """Join measurements of one device.

    Rows keep their order; a row whose id is taken is called `ID #2`, `ID #3` and so on. What the documents
    agree on stays; what they differ in (driver, version of OpenVINO, clock) becomes null and a warning. The
    result is complete where all are.

    Returns
    -------
    Measurement
        One document; a single measurement comes back as it is.

    Raises
    ------
    NpusimError
        Where there is none, or they are of different chips.
    """
    if not measurements:
        raise NpusimError("no measurements to merge; give at least one file")
    if len(measurements) == 1:
        return measurements[0]
    _refuse_other_chips(measurements, files or [f"number {i + 1}" for i in range(len(measurements))])
    device, warnings = _common_device([one.device for one in measurements])
    told = dict.fromkeys(text for one in measurements for text in one.warnings)
    precisions = [
        ", ".join(sorted({row.precision for row in one.rows if row.precision})) for one in measurements
    ]
    warnings += _differences("precision of floating point", [text or None for text in precisions])
    tools, dates = [one.tool for one in measurements], {one.date for one in measurements}
    return Measurement(
        npusim=npusim.__version__,
        tool=tools[0] if len(set(tools)) == 1 else "npusim",
        date=dates.pop() if len(dates) == 1 else None,
        complete=all(one.complete for one in measurements),
        device=device,
        rows=_with_unique_ids([row for one in measurements for row in one.rows]),
        warnings=tuple(dict.fromkeys([*told, *warnings])),
    )


def _refuse_other_chips(measurements: Sequence[Measurement], files: Sequence[str | Path]) -> None:
    first = measurements[0].device
    for one, file in zip(measurements[1:], files[1:], strict=True):
        other = one.device
        if (other.kind, other.name) != (first.kind, first.name):
            names = (first.name, other.name)
            raise NpusimError(
                "measurements of different devices cannot be merged: "
                f"{files[0]} is of {first.kind} {shown(first.name)}, "
                f"{file} of {other.kind} {shown(other.name)}; "
                "calibrate with the files of one device at a time"
                + ("; --platform NAME names the chip of an import" if UNKNOWN_CHIP in names else "")
            )


def _common_device(devices: Sequence[Device]) -> tuple[Device, list[str]]:
    """Return what all devices agree on, and what they do not."""
    warnings: list[str] = []
    agreed: dict[str, object] = {}
    for field in Device.model_fields:
        values = [getattr(device, field) for device in devices]
        if all(value == values[0] for value in values):
            agreed[field] = values[0]
        elif field == "settings":
            names = dict.fromkeys(name for value in values for name in value)
            found = {name: [value.get(name) for value in values] for name in names}
            agreed[field] = {name: said[0] for name, said in found.items() if len(set(said)) == 1}
            warnings += [text for name, said in found.items() for text in _differences(name, said)]
        else:
            warnings += _differences(field, [None if value is None else str(value) for value in values])
    return Device.model_validate(agreed), warnings


def _differences(what: str, values: Sequence[str | None]) -> list[str]:
    if len(set(values)) == 1:
        return []
    listed = dict.fromkeys("not told" if value is None else value for value in values)
    return [f"the merged measurements differ in {what}: {' and '.join(listed)}"]


def _with_unique_ids(rows: Sequence[Row]) -> tuple[Row, ...]:
    taken: set[str] = set()
    apart: list[Row] = []
    for row in rows:
        name, number = row.id, 2
        match = _NUMBERED.fullmatch(name)
        base = match["base"] if match else name
        while name in taken:
            name, number = f"{base} #{number}", number + 1
        taken.add(name)
        apart.append(row if name == row.id else row.model_copy(update={"id": name}))
    return tuple(apart)
