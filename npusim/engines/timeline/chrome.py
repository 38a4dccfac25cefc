"""A time line as Chrome trace events, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from npusim.engines.timeline import StepFunction, TaskKind, Timeline, dram_bandwidth, power, sram_in_use

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
_LAYERS, _DMA, _HOST, _TILES = 1, 2, 3, 10
"""Process numbers: layers, DMA engines, host devices; tile t is _TILES + t."""
_US = 1e6


def chrome_trace(line: Timeline) -> str:
    """Return a time line as a JSON document in Chrome's trace event format; times in microseconds."""
    spent = line.end - line.start
    kinds = {
        name: float(spent[np.isin(line.kind, [int(k) for k in _CATEGORY if _CATEGORY[k] == name])].sum())
        * _US
        for name in ("DMA", "DPU", "SW")
    }
    document = {
        "traceEvents": trace_events(line),
        "displayTimeUnit": "ns",
        "taskStatistics": {
            "total duration": line.makespan_s * _US,
            **{f"{k} duration": v for k, v in kinds.items()},
        },
        "otherData": {
            "workload": line.workload,
            "soc": line.soc,
            "techniques": line.techniques,
            "simulated": "npusim",
        },
    }
    return json.dumps(document, separators=(",", ":"))


def trace_events(line: Timeline) -> list[dict[str, Any]]:
    """Return the events: names of tracks, tasks, layers, arrows, counters."""
    places = {row: _place(line, int(row)) for row in line.working}
    events = _names(line, places)
    events += [_task(line, int(row), places[row]) for row in line.working]
    events += _layers(line)
    events += _arrows(line, places)
    events += _counter("SRAM", "bytes", sram_in_use(line))
    events += _counter("DRAM bandwidth", "GB/s", dram_bandwidth(line), 1e-9)
    events += _counter("power", "W", power(line))
    return events


def _place(line: Timeline, row: int) -> tuple[int, int]:
    """Process and thread of a task."""
    unit = int(line.unit[row])
    if unit < 0:
        return _HOST, 100 + int(line.slot[line.inference[row]])
    name = line.units[unit].name
    if name.startswith("npu.tile"):
        return _TILES + int(name[len("npu.tile") :].partition(".")[0]), unit
    return (_DMA if name.startswith("npu.dma") else _HOST), unit


def _names(line: Timeline, places: dict[Any, tuple[int, int]]) -> list[dict[str, Any]]:
    processes = {_LAYERS: "Layers", _DMA: "DMA", _HOST: "Host"}
    threads: dict[tuple[int, int], str] = {}
    for row, place in places.items():
        if place not in threads:
            threads[place] = line.track(int(row))
            processes.setdefault(place[0], f"Cluster {place[0] - _TILES}")
    used = {pid for pid, _ in threads} | {_LAYERS}
    events: list[dict[str, Any]] = []
    for pid in sorted(used):
        events.append(
            {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": processes[pid]}}
        )
        events.append(
            {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
        )
    for (pid, tid), name in sorted(threads.items()):
        events.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}})
    return events


def _task(line: Timeline, row: int, place: tuple[int, int]) -> dict[str, Any]:
    kind = TaskKind(int(line.kind[row]))
    operator = line.operator_of(row)
    name = "launch" if kind is TaskKind.LAUNCH else " ".join(filter(None, (operator, _VERB.get(kind, ""))))
    arguments: dict[str, Any] = {"inference": int(line.inference[row]), "waited us": _waited(line, row)}
    if line.bytes[row]:
        arguments["bytes"] = float(line.bytes[row])
    if line.macs[row]:
        arguments["MACs"] = float(line.macs[row])
    return {
        "ph": "X", "name": name, "cat": _CATEGORY[kind], "pid": place[0], "tid": place[1],
        "ts": float(line.start[row]) * _US, "dur": float(line.end[row] - line.start[row]) * _US,
        "args": arguments,
    }  # fmt: skip


def _waited(line: Timeline, row: int) -> float:
    """Time a task that had all it needs waited for its unit (us)."""
    return round(float(line.start[row] - line.ready[row]) * _US, 6)


def _layers(line: Timeline) -> list[dict[str, Any]]:
    """One event a layer and inference, from its first task to its last."""
    rows = line.working[line.operator[line.working] >= 0]
    key = line.inference[rows].astype(np.int64) * len(line.operators) + line.operator[rows]
    order = np.argsort(key, kind="stable")
    events = []
    for group in np.split(rows[order], np.flatnonzero(np.diff(key[order])) + 1):
        if not len(group):
            continue
        begin, end = float(line.start[group].min()), float(line.end[group].max())
        spent = {
            name: float((line.end - line.start)[group[line.kind[group] == int(kind)]].sum()) * _US
            for name, kind in (("DPU time:", TaskKind.DPU), ("Shave time:", TaskKind.DSP))
        }
        operator = int(line.operator[group[0]])
        events.append(
            {
                "ph": "X", "name": line.operators[operator], "cat": "Layer", "pid": _LAYERS,
                "tid": int(line.slot[line.inference[group[0]]]), "ts": begin * _US,
                "dur": (end - begin) * _US,
                "args": {"Layer type": line.types[operator], **{k: f"{v:.3f}us" for k, v in spent.items()}},
            }
        )  # fmt: skip
    return events


def _arrows(line: Timeline, places: dict[Any, tuple[int, int]]) -> list[dict[str, Any]]:
    """Arrows from a task to its direct successors, and through a point in time."""
    starts, followers = line.followers
    each = line.per_inference
    events: list[dict[str, Any]] = []
    pairs: set[tuple[int, int]] = set()
    for row in line.working:
        local = int(row) % each
        base = int(row) - local
        pairs.update(
            (int(row), base + int(f))
            for f in followers[starts[local] : starts[local + 1]]
            if base + f in places
        )
        cause = int(line.cause[row])
        while cause >= 0 and cause not in places:
            cause = int(line.cause[cause])
        if cause >= 0:
            pairs.add((cause, int(row)))
    for number, (producer, consumer) in enumerate(sorted(pairs)):
        for phase, row, at in (("s", producer, line.end[producer]), ("f", consumer, line.start[consumer])):
            pid, tid = places[row]
            # An arrow binds to the task around its time: just inside of the producer's end.
            inside = (line.end[row] - line.start[row]) * 1e-3 if phase == "s" else 0.0
            event = {
                "ph": phase, "id": number, "name": "data", "cat": "flow", "pid": pid, "tid": tid,
                "ts": float(at - inside) * _US,
            }  # fmt: skip
            events.append(event | {"bp": "e"} if phase == "f" else event)
    return events


def _counter(name: str, unit: str, stairs: StepFunction, scale: float = 1.0) -> list[dict[str, Any]]:
    return [
        {
            "ph": "C",
            "name": name,
            "pid": _LAYERS,
            "tid": 0,
            "ts": float(time) * _US,
            "args": {unit: float(value) * scale},
        }
        for time, value in zip(stairs.time_s, stairs.value, strict=True)
    ]
