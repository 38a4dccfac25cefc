"""Imports OpenVINO's published tables of throughput and latency: one measurement per platform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import npusim
from npusim.arch import Npu, load_soc, soc_names
from npusim.config.tables import Choice, Number, Table, Text, read_table
from npusim.errors import ConfigError, NpusimError, UnknownNameError, shown
from npusim.measure.document import Device, Measurement, Network, Row, Spread

Hint = Literal["latency", "throughput"]

_LATENCY = "latency_ms_sync_int8"
_MS = 1e-3
_RATE = Number("throughput")
_TIME = Number(_LATENCY)
_COLUMNS = (
    Text("release"),
    Text("platform"),
    Text("npu"),
    Text("model"),
    Text("precision"),
    _RATE,
    Choice("throughput_unit", ("FPS", "tok/s")),
    Text(_LATENCY),
    Text("source"),
    Text("note"),
)


def from_openvino_benchmarks(file: str | Path) -> list[Measurement]:
    """Return what a table of published figures holds.

    A line makes a row with the throughput hint and, where it has a latency, one with the latency hint; tokens
    are decoded one after another and make one row. Tiles and requests are those that OpenVINO takes by
    itself on that NPU, from its data sheet.

    Parameters
    ----------
    file : str or Path
        A CSV file with the columns of `validate/figures/openvino_published.csv`.

    Raises
    ------
    FileError
        Where the file cannot be read.
    ConfigError
        Where a column is unknown or missing, or a value is not allowed; it names line and column.
    """
    table = read_table(Path(file), _COLUMNS, further=False)
    sheets = _data_sheets()
    names = dict.fromkeys(map(str, table.columns["platform"]))
    return [_of_platform(table, name, sheets) for name in names]


def choose_platform(measurements: Sequence[Measurement], platform: str | None = None) -> Measurement:
    """Return the measurement of a platform.

    Parameters
    ----------
    platform : str, optional
        Its name or a part of it, such as ``288V``; needed where there are several.

    Raises
    ------
    NpusimError
        Where none, or more than one, is called so; it lists them.
    """
    if platform is None and len(measurements) == 1:
        return measurements[0]
    names = [one.device.name for one in measurements]
    if not platform:
        raise NpusimError(f"the table has several platforms: {', '.join(names)}; choose one with --platform")
    named = [one for one in measurements if platform.lower() in one.device.name.lower()]
    exact = [one for one in named if one.device.name.lower() == platform.lower()]
    if not named:
        raise UnknownNameError("platform", platform, names, "a part of a name will do")
    if len(exact or named) > 1:
        listed = ", ".join(one.device.name for one in named)
        raise NpusimError(
            f"several platforms have {shown(platform)} in their names: {listed}; name one of them"
        )
    return (exact or named)[0]


def _of_platform(table: Table, platform: str, sheets: Mapping[str, Npu]) -> Measurement:
    places = [i for i, name in enumerate(table.columns["platform"]) if name == platform]
    releases = dict.fromkeys(str(table.columns["release"][i]) for i in places)
    units = dict.fromkeys(str(table.columns["npu"][i]) for i in places)
    if len(units) > 1:
        raise ConfigError(
            f"the NPUs {' and '.join(units)} of {shown(platform)}", file=table.file,
            line=table.lines[places[0]], key="npu", allowed="one NPU a platform",
        )  # fmt: skip
    npu = _data_sheet(table, places[0], sheets)
    rows: dict[str, Row] = {}
    for i in places:
        for row in _rows(table, i, npu, several=len(releases) > 1):
            if row.id in rows:
                found = f"{shown(row.id)} a second time"
                raise ConfigError(found, file=table.file, line=table.lines[i], allowed="each network once")
            rows[row.id] = row
    return Measurement(
        npusim=npusim.__version__,
        tool="openvino-benchmarks",
        device=Device(
            kind="npu",
            name=platform,
            openvino=next(iter(releases)) if len(releases) == 1 else None,
            settings={"DEVICE_ARCHITECTURE": next(iter(units)).lower().removeprefix("npu")},
        ),
        rows=tuple(rows.values()),
        warnings=("published figures: no spread is given; tiles and requests are OpenVINO's defaults",),
    )


def _data_sheets() -> dict[str, Npu]:
    """Return the NPUs that npusim ships, by architecture."""
    known: dict[str, Npu] = {}
    for name in soc_names(variants=False):
        for device in load_soc(name).devices.values():
            if isinstance(device, Npu):
                known.setdefault(device.architecture, device)
    return known


def _data_sheet(table: Table, place: int, sheets: Mapping[str, Npu]) -> Npu:
    """Return the data sheet of the NPU of a line."""
    wanted = str(table.columns["npu"][place])
    if wanted.lower() not in sheets:
        allowed = ", ".join(architecture.upper() for architecture in sorted(sheets))
        raise ConfigError(shown(wanted), file=table.file, line=table.lines[place], key="npu", allowed=allowed)
    return sheets[wanted.lower()]


def _rows(table: Table, place: int, npu: Npu, *, several: bool) -> list[Row]:
    line: dict[str, Any] = {name: values[place] for name, values in table.columns.items()}
    for name in ("release", "platform", "model", "precision"):
        if not line[name]:
            raise ConfigError("nothing", file=table.file, line=table.lines[place], key=name, allowed="a text")
    precision = line["precision"].removesuffix("(col)")
    name = f"{line['model']} {precision}" + (f" {line['release']}" if several else "")
    network = Network(network=line["model"], precision=precision)
    tokens = "a unit of throughput is a token" if line["throughput_unit"] == "tok/s" else ""
    note = "; ".join(text for text in (f"OpenVINO {line['release']}", tokens, line["note"]) if text)
    time = _spread(table, place, line[_LATENCY])
    hints: list[Hint] = (
        ["latency"] if tokens else ["throughput"] if time is None else ["throughput", "latency"]
    )
    return [
        Row(
            id=f"{name} {hint}",
            model=network,
            hint=hint,
            precision="f16",
            note=note,
            requests=int(getattr(npu.inflight_requests, hint)),
            tiles=npu.tiles_used(hint),
            latency_s=time if hint == "latency" else None,
            throughput_per_s=line["throughput"] if hint == "throughput" or tokens else None,
        )
        for hint in hints
    ]


def _spread(table: Table, place: int, text: str) -> Spread | None:
    """Return a published latency, or None where the field is empty."""
    if not text:
        return None
    time_ms = _TIME.value(text)
    if time_ms is None:
        allowed = f"{_TIME.allowed}, or nothing"
        line = table.lines[place]
        raise ConfigError(shown(text), file=table.file, line=line, key=_LATENCY, allowed=allowed)
    return Spread(median_s=time_ms * _MS, low_s=time_ms * _MS, high_s=time_ms * _MS, repetitions=1)
