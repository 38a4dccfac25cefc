"""Chrome traces of Intel's NPU profiler and of npusim: reading, comparison by layer."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

import npusim
from npusim.arch import Npu, load_soc, soc_names
from npusim.config.reading import ParsedFile, read_json
from npusim.config.tables import Choice, MaybeNumber, Number, Table, Text, Word, read_table
from npusim.documents import Document, Part
from npusim.errors import ConfigError, FileError, NpusimError, UnknownNameError, nearest, shown
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

_US = 1e-6
_MOST = 1e16  # largest time or clock of a trace, in its units; times may be Unix time
_MHZ = 1e6
LAYER, LAUNCH = "Layer", "Launch"
"""Categories of layers, and of npusim's calls of the runtime."""
ENGINES: Mapping[str, str] = {"DPU": "DPU", "SW": "Shave", "Shave": "Shave", "DMA": "DMA", "M2I": "M2I"}
"""Engines by the category of their tasks; for vector processors it depends on the driver: SW or Shave."""
_REMEDY = "a profiling.json (NPU_PRINT_PROFILING=JSON) or a trace of `npusim estimate --trace`"


@dataclass(frozen=True, slots=True)
class Event:
    """A task or layer of a trace; times in s."""

    number: int  # index in `traceEvents`, from 0
    name: str
    category: str  # DPU, SW, Shave, DMA, M2I or Layer; npusim's traces have more
    start_s: float
    duration_s: float
    process: str = ""  # the tile of a task
    args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def end_s(self) -> float:
        """End of the event (s)."""
        return self.start_s + self.duration_s

    @property
    def type(self) -> str:
        """Type of a layer, where known."""
        return str(self.args.get("Layer type", ""))


@dataclass(frozen=True, slots=True)
class Trace:
    """A Chrome trace."""

    file: str
    events: tuple[Event, ...]  # events with a duration, in the order of the file
    statistics: Mapping[str, float]  # the profiler's block `taskStatistics`, in us
    clock_hz: float | None  # clock of the DPU, where known
    simulated: bool  # whether npusim wrote it
    title: str = ""  # network, machine and techniques, where known


def read_trace(path: Path) -> Trace:
    """Read a Chrome trace.

    Raises
    ------
    FileError
        Where the file cannot be read.
    ConfigError
        Where it is cut off or no trace; it names the event by its number, from 0.
    """
    document = read_json(path)
    data = document.data if isinstance(document.data, dict) else {"traceEvents": document.data}
    listed = data.get("traceEvents")
    if not isinstance(listed, list):
        raise ConfigError("no list `traceEvents`", file=document.name, allowed=_REMEDY)
    other = _block(data, "otherData", document)
    statistics = _block(data, "taskStatistics", document)
    clock_mhz = _block(data, "workpoint", document).get("freq")
    if clock_mhz:
        clock_mhz = _number(clock_mhz, "workpoint.freq", document, "a clock in MHz", 0.0)
    events = [_event(event, i, document) for i, event in enumerate(listed)]
    workload, soc, techniques = (str(other.get(key, "")) for key in ("workload", "soc", "techniques"))
    title = f"{workload} on {soc}" if workload and soc else workload
    return Trace(
        file=document.name,
        events=tuple(event for event in events if event is not None),
        statistics={
            name: _number(value, f"taskStatistics.{name}", document, "a time in us")
            for name, value in statistics.items()
        },
        clock_hz=_MHZ * clock_mhz if clock_mhz else None,
        simulated=other.get("simulated") == "npusim",
        title=f"{title} with {techniques}" if title and techniques not in ("", "none") else title,
    )


def _event(event: Any, number: int, document: ParsedFile) -> Event | None:
    """Return an event; None for marks, counters and names of tracks, which have no duration."""
    place = f"traceEvents.{number}"
    if not isinstance(event, dict):
        raise ConfigError(shown(event), file=document.name, key=place, allowed="an event: a mapping")
    if event.get("ph") != "X":
        return None
    name = event.get("name")
    if not isinstance(name, str) or not name:
        raise ConfigError(shown(name), file=document.name, key=f"{place}.name", allowed="a name")
    place += f" ({shown(name)})"
    args = event.get("args", {})
    if not isinstance(args, dict):
        raise ConfigError(shown(args), file=document.name, key=f"{place}.args", allowed="a mapping")
    return Event(
        number=number,
        name=name,
        category=str(event.get("cat", "")),
        start_s=_US * _number(event.get("ts"), f"{place}.ts", document, "a time in us"),
        duration_s=_US * _number(event.get("dur"), f"{place}.dur", document, "a time in us", least=0.0),
        process=str(event.get("pid", "")),
        args=args,
    )


def _number(value: Any, key: str, document: ParsedFile, what: str, least: float = -math.inf) -> float:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not known or value < max(least, -_MOST) or value > _MOST:
        allowed = what + (f" of at least {least:g}" if math.isfinite(least) else "") + f", at most {_MOST:g}"
        raise ConfigError(shown(value), file=document.name, key=key, allowed=allowed)
    return float(value)


def _block(data: dict[str, Any], name: str, document: ParsedFile) -> dict[str, Any]:
    block = data.get(name, {})
    if not isinstance(block, dict):
        raise ConfigError(shown(block), file=document.name, key=name, allowed="a mapping")
    return block


_SUFFIX = re.compile(r"(\?t_\w+.*|/cluster_\d+|/_?fused.*|/convert_\w+| (read|write|copy))$")
_NOISE = re.compile(r"[^a-z0-9]+")


def layer_key(name: str) -> str:
    """Return the name of a layer or task without punctuation and the suffixes of compilers."""
    return _NOISE.sub("", _SUFFIX.sub("", name.lower()))


class LayerPair(Part):
    """A layer in both traces."""

    measured: str
    """Name in the first trace."""
    simulated: str
    """Name in the second trace."""
    measured_s: float
    """Duration in the first trace (s)."""
    simulated_s: float
    """Duration in the second trace (s)."""
    measured_start_s: float
    """Start in the first trace, relative to its first layer (s)."""
    simulated_start_s: float
    """Start in the second trace, relative to its first layer (s)."""

    @property
    def difference_s(self) -> float:
        """Duration in the second trace less that in the first (s)."""
        return self.simulated_s - self.measured_s


class LoneLayer(Part):
    """A layer in only one of the traces."""

    trace: Literal["first", "second"]
    """The trace with the layer."""
    name: str
    """Its name."""
    latency_s: float
    """Duration (s)."""
    start_s: float
    """Start, relative to the trace's first layer (s)."""


class TraceDiff(Document):
    """Two traces of the same network, or of two forms of it, compared by layer."""

    schema_: Literal["npusim.trace-diff/1"] = Field("npusim.trace-diff/1", alias="schema")
    """Version of this document."""
    first: str = ""
    """Network, machine and techniques of the first trace, or its file where they are unknown."""
    second: str = ""
    """The same for the second trace."""
    measured_s: float
    """Duration of the first trace, from the start of its first layer to the end of its last (s)."""
    simulated_s: float
    """Duration of the second trace (s)."""
    measured_launch_s: float = 0.0
    """Time of runtime calls before the first layer of the first trace (s); 0 where unknown."""
    simulated_launch_s: float = 0.0
    """The same for the second trace."""
    layers: list[LayerPair]
    """Layers of both traces, in the order of the first."""
    only_measured: list[str]
    """Layers without a counterpart in the second trace."""
    only_simulated: list[str]
    """Layers without a counterpart in the first."""
    alone: list[LoneLayer] = Field(default_factory=list)
    """Unmatched layers of both traces with their times, the longest first."""


def layers_of(events: Sequence[Event]) -> list[Event]:
    """Return a trace's layers by start time; of several inferences the first counts."""
    layers = [event for event in events if event.category == LAYER]
    tasks = [event for event in events if event.category in ENGINES]
    by_name: dict[str, Event] = {}
    for event in sorted(layers or tasks, key=lambda event: event.start_s):
        key = event.name if layers else _SUFFIX.sub("", event.name)
        old = by_name.get(key)
        if old is None:
            by_name[key] = replace(event, name=key)
        elif not layers:
            by_name[key] = replace(old, duration_s=max(old.end_s, event.end_s) - old.start_s)
    return list(by_name.values())


def diff_traces(measured: Path, simulated: Path) -> TraceDiff:
    """Align two traces by layer.

    Layers of the same normalised name are matched first. Remaining layers are matched in order where their
    types agree.
    """
    first, second = read_trace(measured), read_trace(simulated)
    left, right = layers_of(first.events), layers_of(second.events)
    for path, layers in ((measured, left), (simulated, right)):
        if not layers:
            raise FileError(str(path), "has no layers and no tasks of DPU, SW or DMA")
    pairs = _align(left, right)
    begin_left, begin_right = left[0].start_s, right[0].start_s
    matched_left, matched_right = {i for i, _ in pairs}, {j for _, j in pairs}
    only_left = [layer for i, layer in enumerate(left) if i not in matched_left]
    only_right = [layer for j, layer in enumerate(right) if j not in matched_right]
    alone = [
        LoneLayer(trace=trace, name=x.name, latency_s=x.duration_s, start_s=x.start_s - begin_s)
        for trace, layers, begin_s in (("first", only_left, begin_left), ("second", only_right, begin_right))
        for x in layers
    ]
    return TraceDiff(
        first=first.title or measured.name,
        second=second.title or simulated.name,
        measured_launch_s=_launch_s(first.events, left[0]),
        simulated_launch_s=_launch_s(second.events, right[0]),
        measured_s=max(x.end_s for x in left) - begin_left,
        simulated_s=max(x.end_s for x in right) - begin_right,
        layers=[
            LayerPair(
                measured=left[i].name,
                simulated=right[j].name,
                measured_s=left[i].duration_s,
                simulated_s=right[j].duration_s,
                measured_start_s=left[i].start_s - begin_left,
                simulated_start_s=right[j].start_s - begin_right,
            )
            for i, j in pairs
        ],
        only_measured=[x.name for x in only_left],
        only_simulated=[x.name for x in only_right],
        alone=sorted(alone, key=lambda x: -x.latency_s),
    )


def _launch_s(events: Sequence[Event], first: Event) -> float:
    """Return the time from the first call of a runtime to the first layer."""
    begins = [event.start_s for event in events if event.category == LAUNCH]
    return max(0.0, first.start_s - min(begins)) if begins else 0.0


def _align(left: list[Event], right: list[Event]) -> list[tuple[int, int]]:
    """Return the matching layers of both traces by their indices."""
    at = {layer_key(layer.name): j for j, layer in reversed(list(enumerate(right)))}
    keys = [layer_key(layer.name) for layer in left]
    named = {i: at[key] for i, key in enumerate(keys) if key in at}
    free_left = [i for i in range(len(left)) if i not in named]
    matched = set(named.values())
    free_right = [j for j in range(len(right)) if j not in matched]
    # Layers without a namesake are matched by type, in order.
    kinds = ([left[i].type for i in free_left], [right[j].type for j in free_right])
    for a, b, size in SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks():
        for k in range(size):
            if left[free_left[a + k]].type:
                named[free_left[a + k]] = free_right[b + k]
    return sorted(named.items())


Hint = Literal["latency", "throughput"]

_LATENCY = "latency_ms_sync_int8"
_MS = 1e-3
_COLUMNS = (
    *map(Word, ("release", "platform", "npu", "model", "precision")),
    *(Number("throughput"), Choice("throughput_unit", ("FPS", "tok/s")), MaybeNumber(_LATENCY)),
    *map(Text, ("source", "note")),
)


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
    precision = line["precision"].removesuffix("(col)")
    name = f"{line['model']} {precision}" + (f" {line['release']}" if several else "")
    tokens = "a unit of throughput is a token" if line["throughput_unit"] == "tok/s" else ""
    note = "; ".join(text for text in (f"OpenVINO {line['release']}", tokens, line["note"]) if text)
    has_time = not math.isnan(line[_LATENCY])
    hints: list[Hint] = [] if tokens else ["throughput"]
    hints += ["latency"] if tokens or has_time else []
    return [
        Row(
            id=f"{name} {hint}",
            model=Network(network=line["model"], precision=precision),
            hint=hint,
            precision="f16",
            note=note,
            requests=int(getattr(npu.inflight_requests, hint)),
            tiles=npu.tiles_used(hint),
            latency_s=_without_spread(line[_LATENCY] * _MS) if hint == "latency" and has_time else None,
            throughput_per_s=line["throughput"] if hint == "throughput" or tokens else None,
        )
        for hint in hints
    ]


def _without_spread(time_s: float) -> Spread:
    return Spread(median_s=time_s, low_s=time_s, high_s=time_s, repetitions=1)


_MOST_APART = 0.01  # largest relative difference between the profiler's own total and the span of its events


def from_npu_profiling(file: str | Path, *, model: str | None = None, name: str | None = None) -> Measurement:
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
    name : str, optional
        Name of the chip.

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
        device=Device(kind="npu", name=name or UNKNOWN_CHIP, clock_hz=trace.clock_hz),
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
    engines = dict.fromkeys(engine for key, engine in ENGINES.items() if f"{key} time:" in layer.args)
    return Counter(
        name=layer.name,
        type=layer.type,
        executed_as="+".join(engines),
        latency_s=layer.duration_s,
    )
