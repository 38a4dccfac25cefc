"""Reads Chrome traces of Intel's NPU profiler and of npusim's event engine."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from npusim.config.reading import ParsedFile, read_json
from npusim.documents import Document, Part
from npusim.errors import ConfigError, FileError, shown

_US = 1e-6
_MOST = 1e16
"""Largest time or clock of a trace, in its units; times may count from 1970."""
_MHZ = 1e6
LAYER, LAUNCH = "Layer", "Launch"
"""Categories of layers and of calls of the runtime; the second is npusim's own."""
ENGINES: Mapping[str, str] = {"DPU": "DPU", "SW": "Shave", "Shave": "Shave", "DMA": "DMA", "M2I": "M2I"}
"""Engines by the category of their tasks; vector processors write SW or Shave, by version of the driver."""
_REMEDY = "a profiling.json (NPU_PRINT_PROFILING=JSON) or a trace of `npusim estimate --trace`"


@dataclass(frozen=True, slots=True)
class Event:
    """A task or layer of a trace; times in s."""

    number: int
    """Its place in `traceEvents`, from 0."""
    name: str
    category: str
    """DPU, SW, Shave, DMA, M2I or Layer; npusim's traces know more."""
    start_s: float
    duration_s: float
    process: str = ""
    """Process that it belongs to: the tile of a task."""
    args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def end_s(self) -> float:
        """When it ends."""
        return self.start_s + self.duration_s


@dataclass(frozen=True, slots=True)
class Trace:
    """A Chrome trace."""

    file: str
    """The file, as messages call it."""
    events: tuple[Event, ...]
    """All events that have a length, in the order of the file."""
    statistics: Mapping[str, float]
    """The profiler's block `taskStatistics`, in us."""
    clock_hz: float | None
    """Clock of the DPU, where it is told."""
    simulated: bool
    """Whether npusim wrote it."""
    title: str = ""
    """Network, machine and techniques, where the trace tells them."""


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
    events = data.get("traceEvents")
    if not isinstance(events, list):
        raise ConfigError("no list `traceEvents`", file=document.name, allowed=_REMEDY)
    told = _block(data, "otherData", document)
    return Trace(
        file=document.name,
        events=tuple(
            _event(one, i, document) for i, one in enumerate(events) if _is_complete(one, i, document)
        ),
        statistics=_statistics(data, document),
        clock_hz=_clock(data, document),
        simulated=told.get("simulated") == "npusim",
        title=_title(told),
    )


def _title(told: Mapping[str, Any]) -> str:
    workload, soc, techniques = (str(told.get(key, "")) for key in ("workload", "soc", "techniques"))
    named = f"{workload} on {soc}" if workload and soc else workload
    return f"{named} with {techniques}" if named and techniques not in ("", "none") else named


def _is_complete(event: Any, number: int, document: ParsedFile) -> bool:
    """Whether an event has a length; marks, counters and names of tracks have none."""
    if not isinstance(event, dict):
        key = f"traceEvents.{number}"
        raise ConfigError(shown(event), file=document.name, key=key, allowed="an event: a mapping")
    return bool(event.get("ph") == "X")


def _event(event: dict[str, Any], number: int, document: ParsedFile) -> Event:
    place = f"traceEvents.{number}"
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


def _statistics(data: dict[str, Any], document: ParsedFile) -> dict[str, float]:
    block = _block(data, "taskStatistics", document)
    return {name: _number(value, f"taskStatistics.{name}", document, "a time in us")
            for name, value in block.items()}  # fmt: skip


def _clock(data: dict[str, Any], document: ParsedFile) -> float | None:
    told = _block(data, "workpoint", document).get("freq")
    return None if not told else _MHZ * _number(told, "workpoint.freq", document, "a clock in MHz", 0.0)


_SUFFIX = re.compile(r"(\?t_\w+.*|/cluster_\d+|/_?fused.*|/convert_\w+| (read|write|copy))$")
_NOISE = re.compile(r"[^a-z0-9]+")


def layer_key(name: str) -> str:
    """Return a layer's name, or that of its task, without what compilers add and without punctuation."""
    return _NOISE.sub("", _SUFFIX.sub("", name.lower()))


class LayerPair(Part):
    """A layer in both traces."""

    measured: str
    """Its name in the first trace."""
    simulated: str
    """Its name in the second."""
    measured_s: float
    """From its begin to its end in the first trace, in s."""
    simulated_s: float
    """In the second."""
    measured_start_s: float
    """Begin, from the begin of the first trace's first layer."""
    simulated_start_s: float
    """The same in the second."""

    @property
    def difference_s(self) -> float:
        """How much longer it takes in the second trace."""
        return self.simulated_s - self.measured_s


class LoneLayer(Part):
    """A layer in one of the traces alone."""

    trace: Literal["first", "second"]
    """The trace that has it."""
    name: str
    """Its name."""
    latency_s: float
    """From its begin to its end, in s."""
    start_s: float
    """Begin, from the begin of that trace's first layer."""


class TraceDiff(Document):
    """What two traces say about the same network, or about two forms of it."""

    schema_: Literal["npusim.trace-diff/1"] = Field("npusim.trace-diff/1", alias="schema")
    """Version of this document."""
    first: str = ""
    """What the first trace is of: network, machine and techniques; where it does not tell, its file."""
    second: str = ""
    """The same of the second."""
    measured_s: float
    """Length of the first trace, first layer's begin to last layer's end, in s."""
    simulated_s: float
    """Length of the second."""
    measured_launch_s: float = 0.0
    """Time before the first layer of the first trace in which the runtime is called, in s; 0 where the trace
    does not tell."""
    simulated_launch_s: float = 0.0
    """The same of the second."""
    layers: list[LayerPair]
    """Layers found in both, in the order of the first."""
    only_measured: list[str]
    """Layers without a counterpart in the second trace."""
    only_simulated: list[str]
    """Layers without a counterpart in the first."""
    alone: list[LoneLayer] = Field(default_factory=list)
    """Those of both with their times, the longest first."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of a trace; times in s."""

    name: str
    type: str
    start_s: float
    end_s: float

    @property
    def key(self) -> str:
        """The name without what compilers add to it, and without punctuation."""
        return layer_key(self.name)


def read_layers(path: Path) -> list[Layer]:
    """Return the layers of a Chrome trace by begin; without layers, tasks of one name make one.

    Raises
    ------
    FileError, ConfigError
        Where the file cannot be read or is no trace.
    """
    return layers_of(read_trace(path).events)


def layers_of(events: Sequence[Event]) -> list[Layer]:
    """Return layers by begin from a trace's events; of several inferences the first counts."""
    layers = [event for event in events if event.category == LAYER]
    tasks = [event for event in events if event.category in ENGINES]
    found: dict[str, Layer] = {}
    for event in sorted(layers or tasks, key=lambda event: event.start_s):
        key = event.name if layers else _SUFFIX.sub("", event.name)
        old = found.get(key)
        if old is None:
            found[key] = Layer(key, str(event.args.get("Layer type", "")), event.start_s, event.end_s)
        elif not layers:
            found[key] = Layer(key, old.type, old.start_s, max(old.end_s, event.end_s))
    return list(found.values())


def diff_traces(measured: Path, simulated: Path) -> TraceDiff:
    """Align two traces by layer.

    Layers of the same normalised name are matched first, in order; between two matches, what is left over on
    both sides is matched in order where the types agree.
    """
    traces = read_trace(measured), read_trace(simulated)
    left, right = (layers_of(trace.events) for trace in traces)
    for path, layers in ((measured, left), (simulated, right)):
        if not layers:
            raise FileError(str(path), "has no layers and no tasks of DPU, SW or DMA")
    pairs = _align(left, right)
    begin_left, begin_right = left[0].start_s, right[0].start_s
    taken_left, taken_right = {i for i, _ in pairs}, {j for _, j in pairs}
    lone_left = [x for i, x in enumerate(left) if i not in taken_left]
    lone_right = [x for j, x in enumerate(right) if j not in taken_right]
    alone = _alone("first", lone_left, begin_left) + _alone("second", lone_right, begin_right)
    launches = [
        _launch_s(trace.events, layers[0]) for trace, layers in zip(traces, (left, right), strict=True)
    ]
    return TraceDiff(
        first=traces[0].title or measured.name,
        second=traces[1].title or simulated.name,
        measured_launch_s=launches[0],
        simulated_launch_s=launches[1],
        measured_s=max(x.end_s for x in left) - begin_left,
        simulated_s=max(x.end_s for x in right) - begin_right,
        layers=[
            LayerPair(
                measured=left[i].name, simulated=right[j].name, measured_s=left[i].end_s - left[i].start_s,
                simulated_s=right[j].end_s - right[j].start_s, measured_start_s=left[i].start_s - begin_left,
                simulated_start_s=right[j].start_s - begin_right,
            )
            for i, j in pairs
        ],
        only_measured=[x.name for x in lone_left],
        only_simulated=[x.name for x in lone_right],
        alone=sorted(alone, key=lambda x: -x.latency_s),
    )  # fmt: skip


def _alone(trace: Literal["first", "second"], layers: Sequence[Layer], begin_s: float) -> list[LoneLayer]:
    return [
        LoneLayer(trace=trace, name=x.name, latency_s=x.end_s - x.start_s, start_s=x.start_s - begin_s)
        for x in layers
    ]


def _launch_s(events: Sequence[Event], first: Layer) -> float:
    """Return the time before the first layer from the begin of the first call of a runtime."""
    begins = [event.start_s for event in events if event.category == LAUNCH]
    return max(0.0, first.start_s - min(begins)) if begins else 0.0


def _align(left: list[Layer], right: list[Layer]) -> list[tuple[int, int]]:
    at = {layer.key: j for j, layer in reversed(list(enumerate(right)))}
    named = {i: at[layer.key] for i, layer in enumerate(left) if layer.key in at}
    free_left = [i for i in range(len(left)) if i not in named]
    taken = set(named.values())
    free_right = [j for j in range(len(right)) if j not in taken]
    # What has no namesake is matched by its type, keeping the order.
    kinds = ([left[i].type for i in free_left], [right[j].type for j in free_right])
    for a, b, size in SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks():
        for k in range(size):
            if left[free_left[a + k]].type:
                named[free_left[a + k]] = free_right[b + k]
    return sorted(named.items())
