"""Chrome traces of Intel's NPU profiler and of npusim: reading, comparison by layer."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

import npusim
from npusim.arch import Npu, load_soc, soc_names
from npusim.config.loading import as_model
from npusim.config.reading import read_json
from npusim.config.tables import Choice, MaybeNumber, Number, Text, Word, read_table
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
_MHZ = 1e6
_MOST = 1e16  # largest time or clock of a trace, in its units; times may be Unix time
LAYER, LAUNCH = "Layer", "Launch"
"""Categories of layers, and of npusim's calls of the runtime."""
ENGINES: Mapping[str, str] = {"DPU": "DPU", "SW": "Shave", "Shave": "Shave", "DMA": "DMA", "M2I": "M2I"}
"""Engines by the category of their tasks; for vector processors it depends on the driver: SW or Shave."""
_EVENT = re.compile(r"(traceEvents\.(\d+))(.*)")


class _OfTrace(BaseModel):
    """A part of a trace, of which npusim reads some keys."""

    model_config = ConfigDict(
        frozen=True, allow_inf_nan=False, populate_by_name=True, coerce_numbers_to_str=True
    )


_Seconds = AfterValidator(lambda us: _US * us)


class Event(_OfTrace):
    """A task or layer of a trace; times in s."""

    name: str = Field(min_length=1)
    category: str = Field("", alias="cat")
    """DPU, SW, Shave, DMA, M2I or Layer; npusim's traces have more."""
    start_s: Annotated[float, Field(alias="ts", ge=-_MOST, le=_MOST), _Seconds]
    duration_s: Annotated[float, Field(alias="dur", ge=0.0, le=_MOST), _Seconds]
    process: str = Field("", alias="pid")
    """The tile of a task."""
    args: dict[str, Any] = {}

    @property
    def end_s(self) -> float:
        """End of the event (s)."""
        return self.start_s + self.duration_s

    @property
    def type(self) -> str:
        """Type of a layer, where known."""
        return str(self.args.get("Layer type", ""))

    def with_(self, **fields: Any) -> Event:
        """Return the event with other fields."""
        return self.model_copy(update=fields)


def _without_duration(event: Any) -> Any:
    """Return None in the place of marks, counters and names of tracks."""
    return None if isinstance(event, dict) and event.get("ph") != "X" else event


class _Workpoint(_OfTrace):
    freq: Annotated[float, Field(ge=0.0, le=_MOST)] = 0.0


class Trace(_OfTrace):
    """A Chrome trace, as the NPU's profiler or npusim wrote it."""

    file: str = ""
    listed: list[Annotated[Event | None, BeforeValidator(_without_duration)]] = Field(alias="traceEvents")
    """Events in the order of the file; None without a duration."""
    statistics: dict[str, Annotated[float, Field(ge=-_MOST, le=_MOST)]] = Field({}, alias="taskStatistics")
    """The profiler's own sums (us)."""
    workpoint: _Workpoint = _Workpoint()
    other: dict[str, Any] = Field({}, alias="otherData")

    @property
    def events(self) -> tuple[Event, ...]:
        """The events with a duration."""
        return tuple(event for event in self.listed if event is not None)

    @property
    def clock_hz(self) -> float | None:
        """Clock of the DPU, where known."""
        return _MHZ * self.workpoint.freq or None

    @property
    def simulated(self) -> bool:
        """Whether npusim wrote it."""
        return bool(self.other.get("simulated") == "npusim")

    @property
    def title(self) -> str:
        """Network, machine and techniques, where known."""
        workload, soc, techniques = (
            str(self.other.get(key, "")) for key in ("workload", "soc", "techniques")
        )
        title = f"{workload} on {soc}" if workload and soc else workload
        return f"{title} with {techniques}" if title and techniques not in ("", "none") else title


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
    if isinstance(document.data, list):
        document = replace(document, data={"traceEvents": document.data})
    try:
        return as_model(document, Trace).model_copy(update={"file": document.name})
    except ConfigError as error:
        raise error.with_keys(lambda key: _named(key, document.data)) from None


def _named(key: str, data: Any) -> str:
    """Return a key with the name of its event."""
    match = _EVENT.fullmatch(key)
    event = data["traceEvents"][int(match[2])] if match else None
    name = event.get("name") if isinstance(event, dict) else None
    return f"{match[1]} ({shown(name)}){match[3]}" if match and name else key


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
        old = by_name.setdefault(key, event.with_(name=key))
        if not layers:
            by_name[key] = old.with_(duration_s=max(old.end_s, event.end_s) - old.start_s)
    return list(by_name.values())


def diff_traces(measured: Path, simulated: Path) -> TraceDiff:
    """Align two traces by layer.

    Layers of the same normalised name are matched first. Remaining layers are matched in order where their
    types agree.
    """
    traces = [read_trace(path) for path in (measured, simulated)]
    both = [layers_of(trace.events) for trace in traces]
    for path, layers in zip((measured, simulated), both, strict=True):
        if not layers:
            raise FileError(str(path), "has no layers and no tasks of DPU, SW or DMA")
    begins = [layers[0].start_s for layers in both]
    titles = [trace.title or path.name for trace, path in zip(traces, (measured, simulated), strict=True)]
    launches = [_launch_s(trace.events, begin_s) for trace, begin_s in zip(traces, begins, strict=True)]
    spans = [max(x.end_s for x in layers) - begin_s for layers, begin_s in zip(both, begins, strict=True)]
    pairs = _align(*both)
    alone = []
    for side, (layers, begin_s) in enumerate(zip(both, begins, strict=True)):
        matched = {pair[side] for pair in pairs}
        trace: Literal["first", "second"] = "second" if side else "first"
        alone += [
            LoneLayer(trace=trace, name=x.name, latency_s=x.duration_s, start_s=x.start_s - begin_s)
            for i, x in enumerate(layers)
            if i not in matched
        ]
    return TraceDiff(
        first=titles[0],
        second=titles[1],
        measured_launch_s=launches[0],
        simulated_launch_s=launches[1],
        measured_s=spans[0],
        simulated_s=spans[1],
        layers=[
            LayerPair(
                measured=x.name,
                simulated=y.name,
                measured_s=x.duration_s,
                simulated_s=y.duration_s,
                measured_start_s=x.start_s - begins[0],
                simulated_start_s=y.start_s - begins[1],
            )
            for x, y in ((both[0][i], both[1][j]) for i, j in pairs)
        ],
        only_measured=[x.name for x in alone if x.trace == "first"],
        only_simulated=[x.name for x in alone if x.trace == "second"],
        alone=sorted(alone, key=lambda x: -x.latency_s),
    )


def _launch_s(events: Sequence[Event], begin_s: float) -> float:
    """Return the time from the first call of a runtime to the first layer."""
    calls = [event.start_s for event in events if event.category == LAUNCH]
    return max(0.0, begin_s - min(calls)) if calls else 0.0


def _align(left: list[Event], right: list[Event]) -> list[tuple[int, int]]:
    """Return the matching layers of both traces by their indices."""
    at = {layer_key(layer.name): j for j, layer in reversed(list(enumerate(right)))}
    keys = [layer_key(layer.name) for layer in left]
    named = {i: at[key] for i, key in enumerate(keys) if key in at}
    matched = set(named.values())
    free_left = [i for i in range(len(left)) if i not in named]
    free_right = [j for j in range(len(right)) if j not in matched]
    # Layers without a namesake are matched by type, in order.
    kinds = ([left[i].type for i in free_left], [right[j].type for j in free_right])
    for a, b, size in SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks():
        pairs = zip(free_left[a : a + size], free_right[b : b + size], strict=True)
        named |= {i: j for i, j in pairs if left[i].type}
    return sorted(named.items())


Hint = Literal["latency", "throughput"]

_LATENCY = "latency_ms_sync_int8"
_MS = 1e-3
_COLUMNS = (
    *map(Word, ("release", "platform", "npu", "model", "precision")),
    *(Number("throughput"), Choice("throughput_unit", ("FPS", "tok/s")), MaybeNumber(_LATENCY)),
    *map(Text, ("source", "note")),
)
Lines = list[tuple[int, dict[str, Any]]]
"""Lines of a table by number, and the values of each."""


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
    machines = (load_soc(name) for name in soc_names(variants=False))
    devices = (device for soc in machines for device in soc.devices.values())
    sheets: dict[str, Npu] = {}
    for device in devices:
        if isinstance(device, Npu):
            sheets.setdefault(device.architecture, device)
    platforms = defaultdict[str, Lines](list)
    for line, values in table.rows():
        platforms[values["platform"]].append((line, values))
    return [_of_platform(lines, table.file, sheets) for lines in platforms.values()]


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


def _of_platform(lines: Lines, file: str, sheets: Mapping[str, Npu]) -> Measurement:
    first, (platform, npu) = lines[0][0], (lines[0][1][key] for key in ("platform", "npu"))
    refused = partial(ConfigError, file=file)
    units = dict.fromkeys(values["npu"] for _, values in lines)
    if len(units) > 1:
        found = f"the NPUs {' and '.join(units)} of {shown(platform)}"
        raise refused(found, line=first, key="npu", allowed="one NPU a platform")
    architecture = npu.lower()
    if architecture not in sheets:
        allowed = ", ".join(name.upper() for name in sorted(sheets))
        raise refused(shown(npu), line=first, key="npu", allowed=allowed)
    releases = dict.fromkeys(values["release"] for _, values in lines)
    rows: dict[str, Row] = {}
    for line, values in lines:
        for row in _rows(values, sheets[architecture], several=len(releases) > 1):
            if row.id in rows:
                raise refused(f"{shown(row.id)} a second time", line=line, allowed="each network once")
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


def _rows(line: Mapping[str, Any], npu: Npu, *, several: bool) -> list[Row]:
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
        operators=tuple(
            Counter(name=x.name, type=x.type, executed_as=_engines(x), latency_s=x.duration_s) for x in layers
        ),
        note="one inference, on the device alone, with the profiler on: longer than without",
    )
    warnings: list[str] = []
    total_s = trace.statistics.get("total duration", 0.0) * _US
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
    refused = partial(ConfigError, file=trace.file)
    if trace.simulated:
        raise refused("a trace that npusim simulated", allowed="a profile of a real NPU")
    known = (*ENGINES, LAYER)
    layers: dict[str, tuple[int, Event]] = {}
    for number, event in enumerate(trace.listed):
        if event is None:
            continue
        place, category = f"traceEvents.{number} ({shown(event.name)})", event.category
        if category not in known:
            found, meant = f"the unknown category {shown(category)}", nearest(category, known)
            raise refused(found, key=f"{place}.cat", allowed=", ".join(known), suggestion=meant)
        if category == LAYER and event.name in layers:
            again = f"the layer a second time (first in event {layers[event.name][0]})"
            raise refused(again, key=place, allowed="one inference per file")
        if category == LAYER:
            layers[event.name] = number, event
    if not layers:
        remedy = "a profile with layers (NPU_PRINT_PROFILING=JSON, PERF_COUNT=YES)"
        raise refused("no event of the category `Layer`", allowed=remedy)
    return sorted((layer for _, layer in layers.values()), key=lambda layer: layer.start_s)


def _engines(layer: Event) -> str:
    return "+".join(dict.fromkeys(engine for key, engine in ENGINES.items() if f"{key} time:" in layer.args))
