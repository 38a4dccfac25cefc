"""Pages of time lines: a simulated run with its stalls and critical path, and two traces on one scale."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby, islice
from typing import Any

import numpy as np

from npusim.engines import timeline as simulated
from npusim.engines.timeline import CAUSES, CriticalTask, StepFunction, TaskKind, Timeline
from npusim.measuring.traces import ENGINES, LAUNCH, Event, LayerPair, TraceDiff, layer_key
from npusim.reporting.charts import Figure, Span, add_launch, add_tracks, blank_figure
from npusim.reporting.engineering import Amount, engineering, part, percent
from npusim.reporting.html import COLOURS, amount_axis, names_axis
from npusim.reporting.page import Lines, Page, Plot, Section, document_page
from npusim.reporting.tables import FOLD, Column, Table, cells_table, fields
from npusim.studies.elasticity import Elasticity

MOST_BARS = 3000
"""Bars that a page shows one by one; more tasks are joined by operator and unit, so that it stays quick."""
_MOST_STEPS = 4000
_MOST_OPERATORS = 6
_ALIKE = 0.004  # part of the run to which times of two units are rounded: equal ones share a track
_LAUNCH, _CRITICAL = "launch", "critical path"
_VERB = {
    TaskKind.DMA_IN: "DMA in",
    TaskKind.DMA_OUT: "DMA out",
    TaskKind.TRANSFER: "copy",
    TaskKind.LAUNCH: "launch",
}
_CAUSE_HEADS = {
    "data": "operands",
    "work": "other unit",
    "sram": "SRAM room",
    "latency": "DMA latency",
    "launch": "launch",
    "end": "no work",
}
_WAITS = {
    "data": "its operands",
    "unit": "its unit",
    "sram": "room in SRAM",
    "launch": "a launch",
    "begin": "the start of the inference",
}
_LEAST_GAIN = 0.0005  # gain below which a resource does not help
_MOST_ROWS = 30
_TRACKS = {"launch": "launch", "DMA": "DMA", "DPU": "DPU", "Shave": "DSP", "M2I": "M2I"}
_MOST_RUNS = 4000
_DIFFERS = 0.1  # part of a layer's length from which a difference counts


def timeline_page(line: Timeline) -> Page:
    """Return the page of a simulated run: bars by unit, SRAM, DRAM bandwidth, power, critical path."""
    several = f", {line.inferences} inferences" if line.inferences > 1 else ""
    path = simulated.critical_path(line)
    mostly = _shares(simulated.path_summary(line, path).by_unit, _length_s(path), 2)
    return Page(
        "Time line",
        (line.workload, line.soc, line.techniques),
        sections=timeline_sections(line),
        lead=f"{engineering(line.makespan_s, 's')}{several}; on the critical path is mostly {mostly}.",
    )


def _length_s(path: Sequence[CriticalTask]) -> float:
    return sum(task.waited_s + task.worked_s for task in path) or 1.0


def _shares(seconds: Mapping[str, float], whole_s: float, most: int | None = None) -> str:
    longest = sorted(seconds.items(), key=lambda item: -item[1])[:most]
    return ", ".join(f"{name} {percent(s / whole_s)}" for name, s in longest)


def timeline_sections(line: Timeline, helpful: Sequence[Elasticity] = ()) -> list[Section]:
    """Return utilisation, stalls and critical path; what more of each resource would save, where given."""
    path = simulated.critical_path(line)
    tasks = (
        Column("", "task", lambda task: line.operator_of(task.row) or _LAUNCH),
        Column("", "on", lambda task: line.track(task.row)),
        Column("start_s", "begins", lambda task: float(line.start[task.row])),
        *fields("worked_s, waited_s, reason: for"),
    )
    return [
        Plot("What happened when", lambda: _chart(line)),
        _stalls(line),
        Lines(_path_lines(line, path), "Critical path"),
        Table(tasks, path, name="critical-path", only="html", folded="Its tasks"),
        _help_table(helpful),
    ]


def _stalls(line: Timeline) -> Table:
    """Return shares of the busiest unit of each group."""
    busy, idle, queue = line.busy_s(), simulated.idle_causes(line), simulated.queueing_s(line)
    busiest: dict[str, str] = {}
    for unit in sorted(line.units, key=lambda unit: -busy[unit.name]):
        if busy[unit.name] > 0.0:
            busiest.setdefault(unit.group, unit.name)
    rows = [
        (
            group,
            part(busy[name] / line.makespan_s),
            *(part(idle[name][cause] / line.makespan_s) for cause in CAUSES),
            Amount(queue[name], "", f"{queue[name] / line.makespan_s:.2f}"),
        )
        for group, name in busiest.items()
    ]
    title = "Units: busy, else waiting for what; queue: tasks waiting for it on average"
    headings = ("unit", "busy", *(_CAUSE_HEADS[cause] for cause in CAUSES), "queue")
    return cells_table(headings, rows, title, "waits", titled=True, gap=1)


def _path_lines(line: Timeline, path: list[CriticalTask]) -> list[str]:
    """Return what the critical path is made of, and how much of the run was simulated."""
    total, summary = _length_s(path), simulated.path_summary(line, path)
    waits = {_WAITS[reason]: seconds for reason, seconds in summary.by_reason.items()}
    waiting = summary.waiting_s > _LEAST_GAIN * total
    latency = f", DMA's latency {percent(summary.waiting_s / total)}" if waiting else ""
    count = sum(line.repeats[task.row] for task in path)
    lines = [
        f"{count:.0f} tasks, {engineering(total, 's')}: {_shares(summary.by_unit, total)}{latency}",
        f"what each waited for last: {_shares(waits, total)}",
        f"longest: {_shares(summary.by_operator, total, _MOST_OPERATORS)}",
    ]
    if line.folded:
        lines.append(
            f"{len(line)} of {len(line) + line.folded:.0f} tasks were simulated: the others are equal steps "
            "or inferences that repeat a period (--every-tile simulates all)"
        )
    return lines


def _help_table(helpful: Sequence[Elasticity]) -> Table:
    """Return what a little more of each resource saves, the most helpful first."""
    columns = (
        Column("", "more of", lambda e: f"{e.resource} (+{e.more:.0%})"),
        Column("gain", "saves", text="{:+.1%}"),
        Column("elasticity", "each percent", text="{:.2f} %"),
        Column("setting", "try", layout=FOLD),
    )
    return Table(columns, helpful, "What would help", titled=True)


def _chart(line: Timeline) -> Figure:
    """Return bars by unit above SRAM in use, DRAM bandwidth and power."""
    from plotly.subplots import make_subplots

    heights = [0.55, 0.15, 0.15, 0.15]
    figure = make_subplots(4, 1, shared_xaxes=True, row_heights=heights, vertical_spacing=0.04)
    tracks, count = _add_tasks(figure, line)
    curves: tuple[tuple[str, str, StepFunction, float], ...] = (
        ("SRAM", "B", simulated.sram_in_use(line), line.sram_capacity),
        ("DRAM", "B/s", simulated.dram_bandwidth(line), line.dram_limit_bytes_per_s),
        ("power", "W", simulated.power(line), 0.0),
    )
    for row, (name, unit, steps, limit) in enumerate(curves, 2):
        times, values = _thinned(steps)
        steps_line = {"shape": "hv", "width": 1, "color": COLOURS[0]}
        trace = {"mode": "lines", "fill": "tozeroy", "line": steps_line, "showlegend": False}
        figure.add_scatter(x=times, y=values, name=name, row=row, col=1, **trace)
        figure.update_yaxes(row=row, col=1, nticks=4, **amount_axis(name, unit))
        if limit:
            text = f"{'capacity' if unit == 'B' else 'limit'} {engineering(limit, unit)}"
            figure.add_hline(limit, row, 1, line={"dash": "dash", "width": 1}, annotation={"text": text})
    figure.update_yaxes(row=1, col=1, **names_axis(tracks))
    figure.update_xaxes(tickformat="~s", ticksuffix="s", nticks=6, range=[0.0, line.makespan_s])
    figure.update_xaxes(title_text="time", row=4, col=1)
    joined = f": {len(line.working)} tasks in {count} bars" if count < len(line.working) else ""
    height, title = 470 + 30 * len(tracks), f"What happened when{joined}"
    return figure.update_layout(barmode="overlay", bargap=0.15, height=height, title=title)


def _thinned(steps: StepFunction) -> tuple[Any, Any]:
    """Return times and values of a step function; of very many steps the largest of each few."""
    every = max(1, -(-len(steps.time_s) // _MOST_STEPS))
    starts = np.arange(0, len(steps.time_s), every)
    return steps.time_s[starts], np.maximum.reduceat(steps.value, starts)


def _groups(line: Timeline) -> list[Any]:
    """Return the rows of each bar: one task, or an operator's tasks on a unit where there are too many."""
    rows = line.working
    if len(rows) <= MOST_BARS:
        return [rows[i : i + 1] for i in range(len(rows))]
    key = np.stack((line.inference[rows], line.unit[rows], line.operator[rows], line.kind[rows]))
    order = np.lexsort(key)
    cuts = np.flatnonzero((np.diff(key[:, order]) != 0).any(axis=0)) + 1
    return np.split(rows[order], cuts)


def _tracks(line: Timeline) -> dict[str, str]:
    """Return the track of each unit: those that do the same at the same times share one."""
    alike: dict[tuple[str, bytes, bytes], list[str]] = {}
    for unit, rows in enumerate(line.by_unit):
        if len(rows):
            times = np.stack((line.start[rows], line.end[rows])) / (_ALIKE * line.makespan_s)
            key = line.units[unit].group, line.operator[rows].tobytes(), times.round().tobytes()
            alike.setdefault(key, []).append(line.units[unit].name)
    return {
        name: names[0].removeprefix("npu.") + (f" and {len(names) - 1} alike" if len(names) > 1 else "")
        for names in alike.values()
        for name in names
    }


def _add_tasks(figure: Any, line: Timeline) -> tuple[list[str], int]:
    """Draw bars named by operator, or by region; return the tracks from top to bottom and how many bars."""
    tracks, groups = _tracks(line), _groups(line)
    first = {track: unit for unit, track in reversed(tracks.items())}
    by_region = len(np.unique(line.operator[line.working])) > len(COLOURS)
    spans: list[tuple[str, Span]] = []

    def add(rows: Any, track: str, length_s: float, more: str = "") -> None:
        name = line.operator_of(int(rows[0])) if line.unit[rows[0]] >= 0 else ""
        name = (by_region and name.rpartition("/")[0]) or name or _LAUNCH
        story = _story(line, rows, length_s) + more
        spans.append((name, (float(line.start[rows].min()), length_s, track, story)))

    for rows in groups:
        own, length_s = line.track(int(rows[0])), float(line.end[rows].max() - line.start[rows].min())
        if own not in tracks or first[tracks[own]] == own:  # drawn once for all units that do the same
            add(rows, tracks.get(own, own), length_s)
    for task in simulated.critical_path(line):
        if line.unit[task.row] >= 0 and task.worked_s > 0.0:
            add(np.array([task.row]), _CRITICAL, task.worked_s, f"<br>waited last for: {task.reason}")
    if line.inferences == 1:
        for name, (begin_s, length_s, *_) in spans:
            if name == _LAUNCH:
                add_launch(figure, begin_s, begin_s + length_s, row=1, col=1)
        spans = [span for span in spans if span[0] != _LAUNCH]
    add_tracks(figure, spans, row=1, col=1)
    order = [tracks.get(unit.name, unit.name) for unit in line.units]
    used = {track for _, (_, _, track, _) in spans}
    outside = sorted(used.difference(order, [_CRITICAL]))
    return [_CRITICAL, *outside, *(track for track in dict.fromkeys(order) if track in used)], len(groups)


def _story(line: Timeline, rows: Any, length_s: float) -> str:
    """Return what a bar says when it is touched."""
    first = int(rows[0])
    kind = TaskKind(int(line.kind[first]))
    lines = [
        f"<b>{escape(line.operator_of(first) or 'launch')}</b> {_VERB.get(kind, kind.name)}",
        f"{line.track(first)}, inference {int(line.inference[first])}",
        f"from {engineering(float(line.start[rows].min()), 's')}, {engineering(length_s, 's')}",
        f"ready {engineering(float(line.start[first] - line.ready[first]), 's')} before it began",
    ]
    if len(rows) > 1:
        busy = float((line.end[rows] - line.start[rows]).sum())
        lines[-1] = f"{len(rows)} tasks, busy {engineering(busy, 's')}"
    totals = ((float(line.bytes[rows].sum()), "B"), (float(line.macs[rows].sum()), "MAC"))
    return "<br>".join([*lines, *(engineering(total, unit) for total, unit in totals if total)])


def diff_page(
    diff: TraceDiff, read_events: Callable[[], tuple[Sequence[Event], Sequence[Event]]] | None = None
) -> Page:
    """Return the page of two traces; `read_events` returns the events of both for their time lines."""
    runs = {
        f"first: {diff.first}": (diff.measured_launch_s, diff.measured_s),
        f"second: {diff.second}": (diff.simulated_launch_s, diff.simulated_s),
    }
    first_s, second_s = map(sum, runs.values())
    totals = [
        (name, Amount(launch or None, "s"), Amount(layers, "s"), Amount(launch + layers, "s"))
        for name, (launch, layers) in runs.items()
    ]
    time_lines = None
    if read_events is not None:
        time_lines = Plot("Both runs on one scale", lambda: _time_lines(diff, *read_events()))
    off = f" ({second_s / first_s - 1.0:+.1%})" if first_s else ""
    return document_page(
        diff,
        f"Two runs: {diff.first}; {diff.second}",
        sections=[time_lines, cells_table(("run", "launch", "layers", "in all"), totals), *_layers(diff)],
        conclusion=f"First {engineering(first_s, 's')}, second {engineering(second_s, 's')}{off}; "
        f"{_parting(diff)}.",
    )


def _parting(diff: TraceDiff) -> str:
    """Return the first layer whose begin differs by a tenth of its length in the first run or more."""
    if not diff.layers:
        return "they have no layer in common"
    for pair in diff.layers:
        begins = pair.measured_start_s, pair.simulated_start_s
        if abs(begins[1] - begins[0]) > _DIFFERS * pair.measured_s:
            first, second = (engineering(begin_s, "s") for begin_s in begins)
            return (
                f"they part before {pair.measured}: it begins at {first} in the first, {second} in the second"
            )
    return "they keep step: every layer begins within a tenth of its length of the other's begin"


def _layers(diff: TraceDiff) -> list[Section]:
    """Return the layers of both runs, largest differences first on the terminal, and those of one alone."""
    gap_s = sum(abs(pair.difference_s) for pair in diff.layers) + sum(one.latency_s for one in diff.alone)

    def difference(pair: LayerPair) -> Amount:
        sign = "+" if pair.difference_s >= 0.0 else "-"
        return Amount(pair.difference_s, "s", f"{sign}{engineering(abs(pair.difference_s), 's')}")

    both = (
        Column("measured", "layers of both"),
        Column("simulated", "in the second", layout=FOLD),
        *fields("measured_s: first, simulated_s: second"),
        Column("difference_s", "difference", difference),
        Column("", "of all", lambda pair: part(abs(pair.difference_s) / (gap_s or 1.0))),
    )
    alone = fields("name: layers of one alone, trace: run, latency_s: time, start_s: begins")
    ranked = sorted(diff.layers, key=lambda pair: -abs(pair.difference_s))
    most: Any = {"most": _MOST_ROWS, "whole": True}
    return [
        Table(both, diff.layers, "Layers of both", "layers", "", ranked, **most),
        Table(alone, diff.alone, "Layers of one alone", "alone", **most),
    ]


def _time_lines(diff: TraceDiff, first: Sequence[Event], second: Sequence[Event]) -> Figure:
    """Return the engines of both runs one above the other, from the begin of each run, coloured by layer."""
    same = {layer_key(pair.simulated): layer_key(pair.measured) for pair in diff.layers}
    names = {layer_key(pair.measured): pair.measured for pair in diff.layers}
    names |= {layer_key(layer.name): layer.name for layer in diff.alone}
    runs: Any = (("first", {}, first), ("second", same, second))
    spans = [
        (name, (begin_s, length_s, f"{_TRACKS[engine]}, {run}", escape(name)))
        for run, paired, events in runs
        for engine, key, begin_s, length_s in islice(_runs_of_work(events), _MOST_RUNS)
        for name in (names.get(paired.get(key, key), key),)
    ]
    figure = blank_figure()
    add_tracks(figure, spans)
    used = {track for _, (_, _, track, _) in spans}
    ordered = [f"{track}, {run}" for run in ("first", "second") for track in _TRACKS.values()]
    tracks = [track for track in ordered if track in used]
    cut = f": the first {_MOST_RUNS} bars of each" if len(spans) >= 2 * _MOST_RUNS else ""
    return figure.update_layout(
        barmode="overlay",
        xaxis=amount_axis("time", "s"),
        yaxis=names_axis(tracks),
        height=140 + 42 * len(tracks),
        title=f"Both runs on one scale{cut}",
    )


def _runs_of_work(events: Sequence[Event]) -> Iterator[tuple[str, str, float, float]]:
    """Yield engine, layer's key, begin and length of work; tasks of a layer in a row become one."""

    def place(event: Event) -> tuple[str, str]:
        is_launch = event.category == LAUNCH
        return ENGINES.get(event.category, "launch"), LAUNCH if is_launch else layer_key(event.name)

    shown = [event for event in events if event.category in ENGINES or event.category == LAUNCH]
    first_s = min((event.start_s for event in shown), default=0.0)
    for (engine, key), tasks in groupby(sorted(shown, key=lambda e: (place(e)[0], e.start_s)), place):
        run = list(tasks)
        yield engine, key, run[0].start_s - first_s, max(e.end_s for e in run) - run[0].start_s
