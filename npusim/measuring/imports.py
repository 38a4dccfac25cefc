"""Imports OpenVINO's published tables, and profiles of Intel's NPU profiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import npusim
from npusim.arch import Npu, load_soc, soc_names
from npusim.config.tables import Choice, Number, Table, Text, read_table
from npusim.errors import ConfigError, NpusimError, UnknownNameError, nearest, shown
from npusim.measuring.document import (
    UNKNOWN_CHIP,
    Counter,
    Device,
    Measurement,
    ModelFile,
    Network,
    Row,
    Spread,
)
from npusim.measuring.traces import ENGINES, LAYER, Event, Trace, read_trace

Hint = Literal["latency", "throughput"]

_LATENCY = "latency_ms_sync_int8"
_MS = 1e-3
_TIME = Number(_LATENCY)
_TEXTS = ("release", "platform", "npu", "model", "precision", _LATENCY, "source", "note")
_UNIT = Choice("throughput_unit", ("FPS", "tok/s"))
_COLUMNS = (*map(Text, _TEXTS[:5]), Number("throughput"), _UNIT, *map(Text, _TEXTS[5:]))


def from_openvino_benchmarks(file: str | Path) -> list[Measurement]:
    """Return what a table of published figures holds.

    A line makes a row with the throughput hint and, where it has a latency, one with the latency hint. A
    language model decodes token by token and makes one row. Tiles and requests are OpenVINO's defaults on
    that NPU, from its data sheet.

    Parameters
    ----------
    file : str or Path
        A CSV file with the columns of `validate/figures/openvino_published.csv`.

    Raises
    ------
    FileError, ConfigError
        Where the file cannot be read, a column is unknown or missing, or a value is not allowed.
    """
    table = read_table(Path(file), _COLUMNS, further=False)
    sheets: dict[str, Npu] = {}
    for name in soc_names(variants=False):
        for device in load_soc(name).devices.values():
            if isinstance(device, Npu):
                sheets.setdefault(device.architecture, device)
    platforms = dict.fromkeys(map(str, table.columns["platform"]))
    return [_of_platform(table, platform, sheets) for platform in platforms]


def choose_platform(measurements: Sequence[Measurement], platform: str | None = None) -> Measurement:
    """Return the measurement of a platform.

    Parameters
    ----------
    platform : str, optional
        Its name or a part of it, such as ``288V``; needed where there are several.

    Raises
    ------
    NpusimError
        Where no platform, or more than one, has that name; it lists them.
    """
    if platform is None and len(measurements) == 1:
        return measurements[0]
    by_name = {measurement.device.name: measurement for measurement in measurements}
    if not platform:
        listed = ", ".join(by_name)
        raise NpusimError(f"the table has several platforms: {listed}; choose one with --platform")
    matching = [name for name in by_name if platform.lower() in name.lower()]
    exact = [name for name in matching if name.lower() == platform.lower()]
    if not matching:
        raise UnknownNameError("platform", platform, by_name, "a part of a name will do")
    if len(exact or matching) > 1:
        names = f"several platforms have {shown(platform)} in their names: {', '.join(matching)}"
        raise NpusimError(f"{names}; name one of them")
    return by_name[(exact or matching)[0]]


def _of_platform(table: Table, platform: str, sheets: Mapping[str, Npu]) -> Measurement:
    places = [i for i, name in enumerate(table.columns["platform"]) if name == platform]
    releases = dict.fromkeys(str(table.columns["release"][i]) for i in places)
    units = dict.fromkeys(str(table.columns["npu"][i]) for i in places)
    if len(units) > 1:
        several = f"the NPUs {' and '.join(units)} of {shown(platform)}"
        raise _refusal(table, places[0], "npu", several, "one NPU a platform")
    architecture = next(iter(units)).lower()
    if architecture not in sheets:
        allowed = ", ".join(name.upper() for name in sorted(sheets))
        raise _refusal(table, places[0], "npu", shown(next(iter(units))), allowed)
    rows: dict[str, Row] = {}
    for i in places:
        for row in _rows(table, i, sheets[architecture], several=len(releases) > 1):
            if row.id in rows:
                raise _refusal(table, i, None, f"{shown(row.id)} a second time", "each network once")
            rows[row.id] = row
    return Measurement(
        npusim=npusim.__version__,
        tool="openvino-benchmarks",
        device=Device(
            kind="npu",
            name=platform,
            openvino=next(iter(releases)) if len(releases) == 1 else None,
            settings={"DEVICE_ARCHITECTURE": architecture.removeprefix("npu")},
        ),
        rows=tuple(rows.values()),
        warnings=("published figures: no spread is given; tiles and requests are OpenVINO's defaults",),
    )


def _refusal(table: Table, place: int, key: str | None, found: str, allowed: str) -> ConfigError:
    return ConfigError(found, file=table.file, line=table.lines[place], key=key, allowed=allowed)


def _rows(table: Table, place: int, npu: Npu, *, several: bool) -> list[Row]:
    line: dict[str, Any] = {name: values[place] for name, values in table.columns.items()}
    for name in ("release", "platform", "model", "precision"):
        if not line[name]:
            raise _refusal(table, place, name, "nothing", "a text")
    precision = line["precision"].removesuffix("(col)")
    name = f"{line['model']} {precision}" + (f" {line['release']}" if several else "")
    tokens = "a unit of throughput is a token" if line["throughput_unit"] == "tok/s" else ""
    note = "; ".join(text for text in (f"OpenVINO {line['release']}", tokens, line["note"]) if text)
    time_ms = _TIME.value(line[_LATENCY])
    if line[_LATENCY] and time_ms is None:
        raise _refusal(table, place, _LATENCY, shown(line[_LATENCY]), f"{_TIME.allowed}, or nothing")
    hints: list[Hint] = [] if tokens else ["throughput"]
    hints += ["latency"] if tokens or time_ms else []
    return [
        Row(
            id=f"{name} {hint}",
            model=Network(network=line["model"], precision=precision),
            hint=hint,
            precision="f16",
            note=note,
            requests=int(getattr(npu.inflight_requests, hint)),
            tiles=npu.tiles_used(hint),
            latency_s=_without_spread(time_ms * _MS) if hint == "latency" and time_ms else None,
            throughput_per_s=line["throughput"] if hint == "throughput" or tokens else None,
        )
        for hint in hints
    ]


def _without_spread(time_s: float) -> Spread:
    return Spread(median_s=time_s, low_s=time_s, high_s=time_s, repetitions=1)


_TIMES = {
    "DPU time:": "DPU",
    "Shave time:": "Shave",
    "SW time:": "Shave",
    "DMA time:": "DMA",
    "M2I time:": "M2I",
}
_MOST_APART = 0.01  # largest relative difference between the profiler's own total and the span of its events


def from_npu_profiling(
    file: str | Path, *, model: str | None = None, name: str | None = None, driver: str | None = None
) -> Measurement:
    """Return the measurement that a profiling.json holds.

    The row's latency is the span of its events, on the device alone and with the profiler on. Its operators
    are the layers, which may overlap.

    Parameters
    ----------
    file : str or Path
        Output of NPU_PRINT_PROFILING=JSON: a Chrome trace of one inference.
    model : str, optional
        File of the model that ran, which the trace does not name. Its folders are not kept; its hash is,
        where the file exists.
    name, driver : str, optional
        Name of the chip; version of the driver.

    Raises
    ------
    FileError, ConfigError
        Where the file cannot be read, is cut off, no trace, simulated, or has an unknown event.
    """
    trace = read_trace(Path(file))
    layers = _layers(trace)
    span_s = max(e.end_s for e in trace.events) - min(e.start_s for e in trace.events)
    if not span_s > 0.0:
        raise ConfigError("events that take no time", file=trace.file, allowed="a span above 0")
    units = {event.process for event in trace.events if ENGINES.get(event.category) in ("DPU", "Shave")}
    ran = ModelFile.at(model or "unknown", present=model is not None)
    row = Row(
        id=ran.stem if model else Path(file).stem,
        model=ran,
        tiles=len(units) or None,
        precision="f16",
        latency_s=_without_spread(span_s),
        operators=tuple(_counter(layer) for layer in layers),
        note="one inference, on the device alone, with the profiler on: longer than without",
    )
    warnings: list[str] = []
    total_s = trace.statistics.get("total duration", 0.0) * 1e-6
    if total_s > 0.0 and abs(total_s - span_s) > _MOST_APART * span_s:
        warnings.append(f"the profiler's total is {total_s:.6g} s, its events span {span_s:.6g} s")
    if model is None:
        warnings.append("the profile does not tell which model ran")
    return Measurement(
        npusim=npusim.__version__,
        tool="npu-profiling",
        device=Device(kind="npu", name=name or UNKNOWN_CHIP, driver=driver, clock_hz=trace.clock_hz),
        rows=(row,),
        warnings=tuple(warnings),
    )


def _layers(trace: Trace) -> list[Event]:
    """Return the layers by start time; refuse what is no profile of one real inference."""
    if trace.simulated:
        allowed = "a profile of a real NPU"
        raise ConfigError("a trace that npusim simulated", file=trace.file, allowed=allowed)
    known = (*ENGINES, LAYER)
    layers: dict[str, Event] = {}
    for event in trace.events:
        place = f"traceEvents.{event.number} ({shown(event.name)})"
        if event.category not in known:
            raise ConfigError(
                f"the unknown category {shown(event.category)}",
                file=trace.file,
                key=f"{place}.cat",
                allowed=", ".join(known),
                suggestion=nearest(event.category, known),
            )
        if event.category == LAYER and event.name in layers:
            again = f"the layer a second time (first in event {layers[event.name].number})"
            raise ConfigError(again, file=trace.file, key=place, allowed="one inference per file")
        if event.category == LAYER:
            layers[event.name] = event
    if not layers:
        remedy = "a profile with layers (NPU_PRINT_PROFILING=JSON, PERF_COUNT=YES)"
        raise ConfigError("no event of the category `Layer`", file=trace.file, allowed=remedy)
    return sorted(layers.values(), key=lambda layer: layer.start_s)


def _counter(layer: Event) -> Counter:
    engines = dict.fromkeys(engine for key, engine in _TIMES.items() if key in layer.args)
    return Counter(
        name=layer.name,
        type=str(layer.args.get("Layer type", "")),
        executed_as="+".join(engines),
        latency_s=layer.duration_s,
    )
