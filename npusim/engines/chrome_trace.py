"""A time line as Chrome trace events, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from npusim.engines import timeline
from npusim.engines.timeline import StepFunction, TaskKind, Timeline

_CATEGORY = {
    TaskKind.DPU: "DPU",
    TaskKind.DSP: "SW",
    TaskKind.DMA_IN: "DMA",
    TaskKind.DMA_OUT: "DMA",
    TaskKind.TRANSFER: "DMA",
    TaskKind.CPU: "CPU",
    TaskKind.GPU: "GPU",
    TaskKind.LAUNCH: "Launch",
}
_VERB = {TaskKind.DMA_IN: "read", TaskKind.DMA_OUT: "write", TaskKind.TRANSFER: "copy"}
# Process numbers: layers, DMA engines, host devices; tile t is _TILES + t.
_LAYERS, _DMA, _HOST, _TILES = 1, 2, 3, 10
_US = 1e6
Event = dict[str, Any]
"""An event of the trace, or its arguments."""
# Parts of a microsecond to which times are rounded. Begins and lengths then add up exactly in binary, so
# slices do not overlap by rounding, here or in Perfetto, which cuts both to nanoseconds. No slice is so
# short that JSON would need an exponent, which some readers refuse.
_GRID = 2.0**13


def chrome_trace(line: Timeline) -> str:
    """Return a time line as a JSON document in Chrome's trace event format; times in microseconds."""
    spent_s = line.end - line.start
    statistics = {"total duration": line.makespan_s * _US}
    for name in ("DMA", "DPU", "SW"):
        kinds = [int(kind) for kind, category in _CATEGORY.items() if category == name]
        statistics[f"{name} duration"] = float(spent_s[np.isin(line.kind, kinds)].sum()) * _US
    names = {"workload": line.workload, "soc": line.soc, "techniques": line.techniques}
    document = {
        "traceEvents": _events(line),
        "displayTimeUnit": "ns",
        "taskStatistics": statistics,
        "otherData": {**names, "simulated": "npusim"},
    }
    return json.dumps(document, separators=(",", ":"))


def spans_trace(spans: Sequence[tuple[str, str, str, float, float]]) -> str:
    """Return spans (device, name, category, begin and end in s) as a JSON document, a process a device.

    Spans of a device that overlap stand on tracks of their own.
    """
    devices = list(dict.fromkeys(span[0] for span in spans))
    free_from: dict[str, list[float]] = {device: [] for device in devices}
    events = [_metadata("process_name", pid, 0, name=device) for pid, device in enumerate(devices, 1)]
    for device, name, category, begin_s, end_s in sorted(spans, key=lambda span: span[3:]):
        place = (devices.index(device) + 1, _lane(free_from[device], begin_s, end_s))
        events.append(_slice(name, category, place, begin_s, end_s))
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, separators=(",", ":"))


def _lane(free_from: list[float], begin_s: float, end_s: float) -> int:
    """Return the first lane that is free for a span, which takes it."""
    lane = next((i for i, time in enumerate(free_from) if time <= begin_s), len(free_from))
    free_from[lane : lane + 1] = [end_s]
    return lane


def _events(line: Timeline) -> list[Event]:
    """Return the events: track names, tasks, layers, critical-path arrows, SRAM, DRAM, power."""
    tracks = {row: _place(line, int(row)) for row in line.working}
    return [
        *_names(line, tracks),
        *(_task(line, int(row), tracks[row]) for row in line.working),
        *_layers(line),
        *_arrows(line, tracks),
        *_counter("SRAM", "bytes", timeline.sram_in_use(line)),
        *_counter("DRAM bandwidth", "GB/s", timeline.dram_bandwidth(line), 1e-9),
        *_counter("power", "W", timeline.power(line)),
    ]


def _place(line: Timeline, row: int) -> tuple[int, int]:
    """Return the track of a task: its process and thread number."""
    unit = int(line.unit[row])
    if unit < 0:
        return _HOST, 100 + int(line.slot[line.inference[row]])
    name = line.units[unit].name
    tile = re.search(r"\.tile(\d+)\.", name)
    if tile is not None:
        return _TILES + int(tile[1]), unit
    return (_DMA if ".dma" in name else _HOST), unit


def _names(line: Timeline, places: dict[Any, tuple[int, int]]) -> list[Event]:
    """Return the metadata events that name processes and threads."""
    processes = {_LAYERS: "Layers", _DMA: "DMA", _HOST: "Host"}
    threads: dict[tuple[int, int], str] = {}
    for row, place in places.items():
        if place not in threads:
            threads[place] = line.track(int(row))
    events: list[Event] = []
    for pid in sorted({pid for pid, _ in threads} | {_LAYERS}):
        events.append(_metadata("process_name", pid, 0, name=processes.get(pid, f"Cluster {pid - _TILES}")))
        events.append(_metadata("process_sort_index", pid, 0, sort_index=pid))
    tracks = sorted(threads.items())
    return events + [_metadata("thread_name", pid, tid, name=name) for (pid, tid), name in tracks]


def _metadata(what: str, pid: int, tid: int, **arguments: Any) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": arguments}


def _task(line: Timeline, row: int, place: tuple[int, int]) -> Event:
    """Return the trace slice of a task, with its bytes, MACs and waiting time as arguments."""
    kind = TaskKind(int(line.kind[row]))
    words = (line.operator_of(row), _VERB.get(kind, ""))
    if kind is TaskKind.LAUNCH:
        words = ("launch", _launched(line, row))
    # How long a ready task waited for its unit.
    waited_us = round(float(line.start[row] - line.ready[row]) * _US, 6)
    arguments: Event = {"inference": int(line.inference[row]), "waited us": waited_us}
    amounts = {"bytes": line.bytes[row], "equal tasks": line.repeats[row], "MACs": line.macs[row]}
    least = {"equal tasks": 1.0}
    arguments |= {name: float(n) for name, n in amounts.items() if n > least.get(name, 0.0)}
    name = " ".join(filter(None, words))
    event = _slice(name, _CATEGORY[kind], place, float(line.start[row]), float(line.end[row]))
    return {**event, "args": arguments}


def _launched(line: Timeline, row: int) -> str:
    """Return the part that a runtime call launches; empty for an operator's own call."""
    if line.operator[row] >= 0:
        return ""
    next_operators = line.operator[row : row + line.per_inference]
    first = int(np.argmax(next_operators >= 0))
    return line.parts[int(next_operators[first])] if next_operators[first] >= 0 else ""


def _at(time_s: float) -> float:
    """Return a time in microseconds, rounded to `_GRID`."""
    return round(time_s * _US * _GRID) / _GRID


def _slice(name: str, category: str, place: tuple[int, int], begin_s: float, end_s: float) -> Event:
    """Return a slice event of a track, from `begin_s` to `end_s`."""
    times = {"ts": _at(begin_s), "dur": _at(end_s) - _at(begin_s)}
    return {"ph": "X", "name": name, "cat": category, "pid": place[0], "tid": place[1], **times}


def _layers(line: Timeline) -> list[Event]:
    """Return one slice per layer and inference, from its first task to its last.

    Layers overlap because operands are prefetched. A layer takes the first lane that is free.
    """
    events, free_from = [], list[float]()
    for begin, end, group in sorted(_layer_spans(line), key=lambda span: span[:2]):
        operator, spent_s = int(line.operator[group[0]]), line.end[group] - line.start[group]
        arguments: Event = {"Layer type": line.types[operator]}
        for name, kind in (("DPU time:", TaskKind.DPU), ("Shave time:", TaskKind.DSP)):
            arguments[name] = f"{spent_s[line.kind[group] == kind].sum() * _US:.3f}us"
        if line.parts[operator]:
            arguments["Part"] = line.parts[operator]
        arguments["inference"] = int(line.inference[group[0]])
        event = _slice(line.operators[operator], "Layer", (_LAYERS, _lane(free_from, begin, end)), begin, end)
        events.append({**event, "args": arguments})
    names = [_metadata("thread_name", _LAYERS, lane, name=f"layers {lane}") for lane in range(len(free_from))]
    return names + events


def _layer_spans(line: Timeline) -> Iterator[tuple[float, float, Any]]:
    """Yield begin, end and rows of each layer in each inference."""
    rows = line.working[line.operator[line.working] >= 0]
    key = line.inference[rows].astype(np.int64) * len(line.operators) + line.operator[rows]
    order = np.argsort(key, kind="stable")
    for group in np.split(rows[order], np.flatnonzero(np.diff(key[order])) + 1):
        if len(group):
            yield float(line.start[group].min()), float(line.end[group].max()), group


def _arrows(line: Timeline, places: dict[Any, tuple[int, int]]) -> Iterator[Event]:
    """Yield an arrow for each change of unit on the critical path; its name gives the reason."""
    for number, (before, after) in enumerate(pairwise(timeline.critical_path(line))):
        if places[before.row] == places[after.row]:
            continue
        arrow = {"id": number, "name": f"critical path: {after.reason}", "cat": "flow"}
        # An arrow binds to the task around its time: just inside of the producer's end.
        inside_s = (line.end[before.row] - line.start[before.row]) * 1e-3
        ends = (("s", before.row, line.end[before.row] - inside_s), ("f", after.row, line.start[after.row]))
        for phase, row, time_s in ends:
            pid, tid = places[row]
            event = {"ph": phase, **arrow, "pid": pid, "tid": tid, "ts": _at(float(time_s))}
            yield event | {"bp": "e"} if phase == "f" else event


def _counter(name: str, unit: str, stairs: StepFunction, scale: float = 1.0) -> list[Event]:
    event = {"ph": "C", "name": name, "pid": _LAYERS, "tid": 0}
    return [
        {**event, "ts": _at(float(time)), "args": {unit: float(value) * scale}}
        for time, value in zip(stairs.time_s, stairs.value, strict=True)
    ]
