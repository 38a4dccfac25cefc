"""Reads Chrome traces of Intel's NPU profiler and of npusim's event engine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npusim.config.reading import ParsedFile, read_json
from npusim.errors import ConfigError, shown

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
