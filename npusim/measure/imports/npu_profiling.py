"""Imports a profiling.json of Intel's NPU profiler: one inference, layer by layer."""

from __future__ import annotations

from pathlib import Path

import npusim
from npusim.errors import ConfigError, nearest, shown
from npusim.measure.document import UNKNOWN_CHIP, Counter, Device, Measurement, ModelFile, Row, Spread
from npusim.measure.traces import ENGINES, LAYER, Event, Trace, read_trace

_TIMES = {
    "DPU time:": "DPU",
    "Shave time:": "Shave",
    "SW time:": "Shave",
    "DMA time:": "DMA",
    "M2I time:": "M2I",
}
_TOTAL = "total duration"
_APART = 0.01
"""The profiler's own total may be off the events' span by this share; both are rounded to nanoseconds."""


def from_npu_profiling(
    file: str | Path, *, model: str | None = None, name: str | None = None, driver: str | None = None
) -> Measurement:
    """Return the measurement that a profiling.json holds.

    The row's latency is the span from the first begin to the last end of its events, on the device alone and
    with the profiler on; its operators are the layers, which may overlap.

    Parameters
    ----------
    file : str or Path
        What NPU_PRINT_PROFILING=JSON wrote: a Chrome trace of one inference.
    model : str, optional
        File of the model that ran; the trace does not tell. Its folders are not kept; its hash is, where the
        file is at hand.
    name : str, optional
        Name of the chip.
    driver : str, optional
        Version of the driver.

    Returns
    -------
    Measurement
        One row.

    Raises
    ------
    FileError
        Where the file cannot be read.
    ConfigError
        Where it is cut off, no trace, simulated, or has an event that nobody knows; it names the event.
    """
    trace = read_trace(Path(file))
    layers = _layers(trace)
    tasks = [event for event in trace.events if event.category in ENGINES]
    begin, end = min(e.start_s for e in trace.events), max(e.end_s for e in trace.events)
    if not end > begin:
        raise ConfigError("events that take no time", file=trace.file, allowed="a span above 0")
    tiles = {task.process for task in tasks if ENGINES[task.category] in ("DPU", "Shave")}
    ran = ModelFile.at(model or "unknown", present=model is not None)
    row = Row(
        id=ran.stem if model else Path(file).stem,
        model=ran,
        tiles=len(tiles) or None,
        precision="f16",
        latency_s=Spread(median_s=end - begin, low_s=end - begin, high_s=end - begin, repetitions=1),
        operators=tuple(_counter(layer) for layer in layers),
        note="one inference, on the device alone, with the profiler on: longer than without",
    )
    return Measurement(
        npusim=npusim.__version__,
        tool="npu-profiling",
        device=Device(kind="npu", name=name or UNKNOWN_CHIP, driver=driver, clock_hz=trace.clock_hz),
        rows=(row,),
        warnings=tuple(_warnings(trace, end - begin, model)),
    )


def _layers(trace: Trace) -> list[Event]:
    """Return the layers by start time; refuse what is no profile of one real inference."""
    if trace.simulated:
        allowed = "a profile of a real NPU"
        raise ConfigError("a trace that npusim simulated", file=trace.file, allowed=allowed)
    known = (*ENGINES, LAYER)
    seen: dict[str, int] = {}
    for event in trace.events:
        place = f"traceEvents.{event.number} ({shown(event.name)})"
        if event.category not in known:
            raise ConfigError(
                f"the unknown category {shown(event.category)}", file=trace.file, key=f"{place}.cat",
                allowed=", ".join(known), suggestion=nearest(event.category, known),
            )  # fmt: skip
        if event.category == LAYER and event.name in seen:
            raise ConfigError(
                f"the layer a second time (first in event {seen[event.name]})", file=trace.file, key=place,
                allowed="one inference per file",
            )  # fmt: skip
        if event.category == LAYER:
            seen[event.name] = event.number
    layers = [event for event in trace.events if event.category == LAYER]
    if not layers:
        remedy = "a profile with layers (NPU_PRINT_PROFILING=JSON, PERF_COUNT=YES)"
        raise ConfigError("no event of the category `Layer`", file=trace.file, allowed=remedy)
    return sorted(layers, key=lambda layer: layer.start_s)


def _counter(layer: Event) -> Counter:
    engines = dict.fromkeys(engine for key, engine in _TIMES.items() if key in layer.args)
    return Counter(
        name=layer.name,
        type=str(layer.args.get("Layer type", "")),
        executed_as="+".join(engines),
        latency_s=layer.duration_s,
    )


def _warnings(trace: Trace, span_s: float, model: str | None) -> list[str]:
    found: list[str] = []
    total_s = trace.statistics.get(_TOTAL, 0.0) * 1e-6
    if total_s > 0.0 and abs(total_s - span_s) > _APART * span_s:
        found.append(f"the profiler's total is {total_s:.6g} s, its events span {span_s:.6g} s")
    if model is None:
        found.append("the profile does not tell which model ran")
    return found
