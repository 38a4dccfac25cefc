"""Pages of time lines: a simulated run with its stalls and critical path, and two traces on one scale."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

import numpy as np
from rich.text import Text

from npusim.engines.timeline import (
    CAUSES,
    CriticalTask,
    StepFunction,
    TaskKind,
    Timeline,
    critical_path,
    dram_bandwidth,
    idle_causes,
    path_summary,
    power,
    queueing_s,
    sram_in_use,
)
from npusim.measuring.traces import ENGINES, LAUNCH, Event, LayerPair, TraceDiff, layer_key
from npusim.reporting.charts import Figure, Span, add_launch, add_spans, blank_figure
from npusim.reporting.engineering import Amount, Cell, engineering, part, percent
from npusim.reporting.html import COLOURS, GREY, amount_axis, names_axis
from npusim.reporting.page import (
    CYAN,
    FOLD,
    Column,
    Lines,
    Page,
    Plot,
    Section,
    Table,
    cells_table,
    document_page,
    fields,
    grouped,
    summed,
)
from npusim.studies.elasticity import Elasticity

MOST_BARS = 3000
"""Bars that a page shows one by one; more tasks are joined by operator and unit, so that it stays quick."""
_MOST_STEPS = 4000
_MOST_OPERATORS = 6
_ALIKE = 0.002  # part of the run by which tasks of two units may be apart and still share a track
_OTHERS, _LAUNCH, _CRITICAL = "other operators", "launch", "critical path"
_LAUNCH_COLOUR = "#dddddd"
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
_TOUCH_S = 1e-9  # tasks of a layer that lie no further apart become one bar
_DIFFERS = 0.1  # part of a layer's length from which a difference counts


def timeline_page(line: Timeline) -> Page:
    """Return the page of a simulated run: bars by unit, SRAM, DRAM bandwidth, power, critical path."""
    several = f", {line.inferences} inferences" if line.inferences > 1 else ""
    path = critical_path(line)
    by_unit, total_s = path_summary(line, path).by_unit, _length_s(path)
    longest = sorted(by_unit, key=lambda name: -by_unit[name])[:2]
    shares = " and ".join(f"{name} ({percent(by_unit[name] / total_s)})" for name in longest)
    return Page(
        "Time line",
        (line.workload, line.soc, line.techniques),
        sections=timeline_sections(line),
        lead=f"{engineering(line.makespan_s, 's')}{several}; on the critical path is mostly {shares}.",
    )


def _length_s(path: Sequence[CriticalTask]) -> float:
    return sum(task.waited_s + task.worked_s for task in path) or 1.0


def timeline_sections(line: Timeline, helpful: Sequence[Elasticity] = ()) -> list[Section]:
    """Return utilisation, stalls and critical path; what more of each resource would save, where given."""
    path = critical_path(line)
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
    busy, idle, queue = line.busy_s(), idle_causes(line), queueing_s(line)
    working = grouped((unit for unit in line.units if busy[unit.name] > 0.0), lambda unit: unit.group)
    busiest = {group: max(units, key=lambda unit: busy[unit.name]).name for group, units in working.items()}
    rows = [
        {"group": group, **{key: s / line.makespan_s for key, s in seconds.items()}}
        for group, name in busiest.items()
        for seconds in ({"busy": busy[name], **idle[name], "queue": queue[name]},)
    ]
    columns = (
        Column("group", "unit", layout=CYAN),
        Column("busy", text=percent),
        *(Column(cause, _CAUSE_HEADS[cause], text=percent) for cause in CAUSES),
        Column("queue", text="{:.2f}"),
    )
    title = "Units: busy, else waiting for what; queue: tasks waiting for it on average"
    return Table(columns, rows, title, "waits", titled=True, gap=1)


def _path_lines(line: Timeline, path: list[CriticalTask]) -> list[str]:
    """Return what the critical path is made of, and how much of the run was simulated."""
    total, summary = _length_s(path), path_summary(line, path)

    def shares(seconds: dict[str, float], most: int | None = None) -> str:
        longest = sorted(seconds.items(), key=lambda item: -item[1])[:most]
        return ", ".join(f"{name} {percent(s / total)}" for name, s in longest)

    waits = {_WAITS[reason]: seconds for reason, seconds in summary.by_reason.items()}
    waiting = summary.waiting_s > _LEAST_GAIN * total
    latency = f", DMA's latency {percent(summary.waiting_s / total)}" if waiting else ""
    count = sum(line.repeats[task.row] for task in path)
    lines = [
        f"{count:.0f} tasks, {engineering(total, 's')}: {shares(summary.by_unit)}{latency}",
        f"what each waited for last: {shares(waits)}",
        f"longest: {shares(summary.by_operator, _MOST_OPERATORS)}",
    ]
    if line.folded:
        lines.append(
            f"{len(line)} of {len(line) + line.folded:.0f} tasks were simulated: the others are equal steps "
            "or inferences that repeat a period (--every-tile simulates all)"
        )
    return lines


def _help_table(helpful: Sequence[Elasticity]) -> Table:
    """Return what a little more of each resource saves, the most helpful first."""

    def gains(value: float, e: Elasticity, text: str, none: str) -> Amount:
        return Amount(value, "", text.format(value) if abs(e.gain) >= _LEAST_GAIN else none)

    columns = (
        Column("", "more of", lambda e: f"{e.resource} (+{e.more:.0%})", layout=CYAN),
        Column("", "saves", lambda e: gains(e.gain, e, "{:+.1%}", "0 %")),
        Column("", "each percent", lambda e: gains(e.elasticity, e, "{:.2f} %", "-")),
        Column("setting", "try", layout={**FOLD, "style": "dim"}),
    )
    return Table(columns, helpful, "What would help", titled=True)


def _chart(line: Timeline) -> Figure:
    """Return bars by unit above SRAM in use, DRAM bandwidth and power."""
    from plotly.subplots import make_subplots

    heights = [0.55, 0.15, 0.15, 0.15]
    figure = make_subplots(4, 1, shared_xaxes=True, row_heights=heights, vertical_spacing=0.04)
    groups = _groups(line)
    tracks = _bars(figure, line, groups)
    curves: tuple[tuple[str, str, StepFunction, float], ...] = (
        ("SRAM", "B", sram_in_use(line), line.sram_capacity),
        ("DRAM", "B/s", dram_bandwidth(line), line.dram_limit_bytes_per_s),
        ("power", "W", power(line), 0.0),
    )
    for row, (name, unit, steps, limit) in enumerate(curves, 2):
        times, values = _thinned(steps)
        steps_line = {"shape": "hv", "width": 1, "color": COLOURS[0]}
        hover = f"%{{y:.3~s}}{unit} from %{{x:.4~s}}s<extra></extra>"
        trace = {"mode": "lines", "fill": "tozeroy", "line": steps_line, "hovertemplate": hover}
        figure.add_scatter(x=times, y=values, name=name, showlegend=False, row=row, col=1, **trace)
        figure.update_yaxes(row=row, col=1, nticks=4, **amount_axis(name, unit))
        if limit:
            text = f"{'capacity' if unit == 'B' else 'limit'} {engineering(limit, unit)}"
            dashes = {"color": "#000000", "dash": "dash", "width": 1}
            figure.add_hline(limit, row, 1, line=dashes, annotation={"text": text, "font": {"size": 11}})
    figure.update_yaxes(row=1, col=1, **names_axis(tracks))
    figure.update_xaxes(tickformat="~s", ticksuffix="s", nticks=6, range=[0.0, line.makespan_s])
    figure.update_xaxes(title_text="time", row=4, col=1)
    joined = f": {len(line.working)} tasks in {len(groups)} bars" if len(groups) < len(line.working) else ""
    title = f"What happened when{joined}"
    figure.update_layout(barmode="overlay", bargap=0.15, height=470 + 30 * len(tracks), title=title)
    return figure


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


def folded_tracks(line: Timeline) -> dict[str, str]:
    """Return the track of each unit: those that do the same at the same times share one."""
    alike: dict[tuple[str, bytes], list[list[int]]] = {}
    for unit, rows in enumerate(line.by_unit):
        if len(rows):
            folds = alike.setdefault((line.units[unit].group, line.operator[rows].tobytes()), [])
            fold = next((fold for fold in folds if _together(line, fold[0], unit)), None)
            folds.append([unit]) if fold is None else fold.append(unit)
    tracks: dict[str, str] = {}
    for units in (fold for folds in alike.values() for fold in folds):
        names = [line.units[unit].name for unit in units]
        track = names[0].removeprefix("npu.")
        track += f" and {len(names) - 1} alike" if len(names) > 1 else ""
        tracks |= dict.fromkeys(names, track)
    return tracks


def _together(line: Timeline, one: int, other: int) -> bool:
    """Tell whether the tasks of two units begin and end so near to each other that a chart shows the same."""
    first, second = line.by_unit[one], line.by_unit[other]
    apart = (np.abs(times[first] - times[second]).max() for times in (line.start, line.end))
    return all(most <= _ALIKE * line.makespan_s for most in apart)


def _bars(figure: Any, line: Timeline, groups: list[Any]) -> list[str]:
    """Draw the bars, a trace per operator or region, and return the tracks from top to bottom."""
    colours, label = _colours(line)
    tracks = folded_tracks(line)
    leaders = {track: unit for unit, track in reversed(tracks.items())}
    by_name: dict[str, list[Span]] = {name: [] for name in colours}
    launches = []
    for rows in groups:
        first = int(rows[0])
        begin, end = float(line.start[rows].min()), float(line.end[rows].max())
        own = line.track(first)
        if own in tracks and leaders[tracks[own]] != own:
            continue  # drawn once for all units that do the same
        name = label.get(line.operator_of(first), _OTHERS) if line.unit[first] >= 0 else _LAUNCH
        if name == _LAUNCH and line.inferences == 1:
            launches.append((begin, end))
            continue
        by_name[name].append((begin, end - begin, tracks.get(own, own), _story(line, rows, end - begin)))
    for task in critical_path(line):
        name = label.get(line.operator_of(task.row), _OTHERS)
        if line.unit[task.row] >= 0 and task.worked_s > 0.0:
            rows = np.array([task.row])
            story = f"{_story(line, rows, task.worked_s)}<br>waited last for: {task.reason}"
            by_name[name].append((float(line.start[task.row]), task.worked_s, _CRITICAL, story))
    for name, bars in by_name.items():
        if bars:
            add_spans(figure, name, colours[name], bars, row=1, col=1)
    for begin, end in launches:
        add_launch(figure, begin, end, (end - begin) / line.makespan_s, row=1, col=1)
    order = {line.units[u].name: u for u in range(len(line.units))}
    used = {bar[2] for bars in by_name.values() for bar in bars} - {_CRITICAL}
    return [_CRITICAL, *sorted(used, key=lambda track: order.get(leaders.get(track, ""), -1))]


def _colours(line: Timeline) -> tuple[dict[str, str], dict[str, str]]:
    """Return colours by name in the legend, and that name of each operator: itself or its region."""
    rows = line.working[line.operator[line.working] >= 0]
    busy = np.bincount(line.operator[rows], (line.end - line.start)[rows], len(line.operators))
    working = [line.operators[i] for i in np.flatnonzero(busy)]
    label = {name: name for name in working}
    if len(working) > len(COLOURS):
        label = {name: name.rpartition("/")[0] or name for name in working}
    spent = summed((label[line.operators[i]], float(busy[i])) for i in np.flatnonzero(busy))
    longest = sorted(spent, key=lambda name: -spent[name])[: len(COLOURS)]
    ordered = [name for name in spent if name in longest]
    colours = dict(zip(ordered, COLOURS, strict=False)) | {_OTHERS: GREY, _LAUNCH: _LAUNCH_COLOUR}
    return colours, {operator: name for operator, name in label.items() if name in colours}


def _story(line: Timeline, rows: Any, length_s: float) -> str:
    """Return what a bar says when it is touched."""
    first = int(rows[0])
    kind = TaskKind(int(line.kind[first]))
    lines = [
        f"<b>{escape(line.operator_of(first) or 'launch')}</b> {_VERB.get(kind, kind.name)}",
        f"{line.track(first)}, inference {int(line.inference[first])}",
        f"from {engineering(float(line.start[rows].min()), 's')}, {engineering(length_s, 's')}",
    ]
    if len(rows) > 1:
        busy = float((line.end[rows] - line.start[rows]).sum())
        lines.append(f"{len(rows)} tasks, busy {engineering(busy, 's')}")
    else:
        waited = float(line.start[first] - line.ready[first])
        lines.append(f"ready {engineering(waited, 's')} before it began")
    totals = ((float(line.bytes[rows].sum()), "B"), (float(line.macs[rows].sum()), "MAC"))
    return "<br>".join([*lines, *(engineering(total, unit) for total, unit in totals if total)])


def diff_page(
    diff: TraceDiff, read_events: Callable[[], tuple[Sequence[Event], Sequence[Event]]] | None = None
) -> Page:
    """Return the page of two traces; `read_events` returns the events of both for their time lines."""
    parting = _parting(diff)
    runs = {
        f"first: {diff.first}": (diff.measured_launch_s, diff.measured_s),
        f"second: {diff.second}": (diff.simulated_launch_s, diff.simulated_s),
    }
    first_s, second_s = map(sum, runs.values())
    waits = [
        f"the {name.partition(':')[0]} run waits {engineering(launch_s, 's')} for its launch "
        "before its first layer"
        for name, (launch_s, _) in runs.items()
        if launch_s
    ]
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            Amount(launch, "s", None if launch else "not told"),
            *(Amount(s, "s") for s in (layers, launch + layers)),
        )
        for name, (launch, layers) in runs.items()
    ]
    off = second_s / first_s - 1.0 if first_s else None
    rows.append(("second / first - 1", "", "", Amount(off, "", "-" if off is None else f"{off:+.1%}")))
    time_lines = None
    if read_events is not None:
        time_lines = Plot("Both runs on one scale", lambda: _time_lines(diff, *read_events()))
    totals = cells_table(("run", "launch", "layers", "in all"), rows)
    return document_page(
        diff,
        f"Two runs: {diff.first}; {diff.second}",
        sections=[time_lines, totals, Text(parting), *_layers(diff)],
        notes=waits,
        lead=f"First {engineering(first_s, 's')}, second {engineering(second_s, 's')}; {parting}.",
    )


def _parting(diff: TraceDiff) -> str:
    """Return the first layer whose begin differs by a tenth of its length in the first run or more."""
    if not diff.layers:
        return "they have no layer in common"
    for pair in diff.layers:
        off = pair.simulated_start_s - pair.measured_start_s
        if abs(off) > _DIFFERS * max(pair.measured_s, _TOUCH_S) and off:
            return (
                f"they part before {pair.measured}: it begins at "
                f"{engineering(pair.measured_start_s, 's')} in the first, "
                f"{engineering(pair.simulated_start_s, 's')} in the second"
            )
    return "they keep step: every layer begins within a tenth of its length of the other's begin"


def _layers(diff: TraceDiff) -> list[Section]:
    """Return the layers of both runs, largest differences first on the terminal, and those of one alone."""
    paired_s = sum(abs(pair.difference_s) for pair in diff.layers)
    gap_s = paired_s + sum(layer.latency_s for layer in diff.alone)

    def of_all(seconds: float) -> Cell:
        return part(abs(seconds) / gap_s) if gap_s else "-"

    def difference(pair: LayerPair) -> Amount:
        sign = "+" if pair.difference_s >= 0.0 else "-"
        return Amount(pair.difference_s, "s", f"{sign}{engineering(abs(pair.difference_s), 's')}")

    def other_name(pair: LayerPair) -> str:
        return "" if pair.measured == pair.simulated else pair.simulated

    both = (
        Column("measured", "layers of both"),
        Column("simulated", "in the second", other_name, layout=FOLD),
        *fields("measured_s: first, simulated_s: second"),
        Column("difference_s", "difference", difference),
        Column("", "of all", lambda pair: of_all(pair.difference_s)),
    )
    alone = (
        *fields("name: layers of one alone, trace: run, latency_s: time"),
        Column("", "of all", lambda layer: of_all(layer.latency_s)),
        Column("start_s", "begins"),
    )
    ranked = sorted(diff.layers, key=lambda pair: -abs(pair.difference_s))

    def style(pair: LayerPair) -> str:
        return "" if abs(pair.difference_s) <= _DIFFERS * pair.measured_s else "yellow"

    most: Any = {"most": _MOST_ROWS, "whole": True}
    return [
        Table(both, diff.layers, "Layers of both", "layers", "", ranked, style=style, **most),
        Table(alone, diff.alone, "Layers of one alone", "alone", style=lambda _: "yellow", **most),
    ]


def _time_lines(diff: TraceDiff, first: Sequence[Event], second: Sequence[Event]) -> Figure:
    """Return the engines of both runs one above the other, from the begin of each run, coloured by layer."""
    same = {layer_key(pair.simulated): layer_key(pair.measured) for pair in diff.layers}
    names = {layer_key(pair.measured): pair.measured for pair in diff.layers}
    names |= {layer_key(layer.name): layer.name for layer in diff.alone}
    runs: Any = (("first", {}, first), ("second", same, second))
    bars = [
        (f"{_TRACKS[engine]}, {run}", paired.get(key, key), begin_s, length_s)
        for run, paired, events in runs
        for engine, key, begin_s, length_s in _runs_of_work(events)
    ]
    spent = summed((key, length_s) for _, key, _, length_s in bars if key in names)
    longest = sorted(spent, key=lambda key: -spent[key])[: len(COLOURS)]
    colours = {**dict(zip(longest, COLOURS, strict=False)), "": GREY, LAUNCH: _LAUNCH_COLOUR}
    labels = {**names, "": "other layers", LAUNCH: "launch"}
    figure = blank_figure()
    for key in colours:
        of_key = [
            (begin_s, length_s, track, f"<b>{escape(names.get(k, k))}</b><br>{engineering(length_s, 's')}")
            for track, k, begin_s, length_s in bars
            if (k if k in colours else "") == key
        ]
        if of_key:
            add_spans(figure, labels[key], colours[key], of_key)
    used = {track for track, *_ in bars}
    ordered = [f"{track}, {run}" for run in ("first", "second") for track in _TRACKS.values()]
    tracks = [track for track in ordered if track in used]
    cut = f": the first {_MOST_RUNS} bars of each" if len(bars) >= 2 * _MOST_RUNS else ""
    figure.update_layout(
        barmode="overlay",
        xaxis=amount_axis("time", "s"),
        yaxis=names_axis(tracks),
        height=140 + 42 * len(tracks),
        title=f"Both runs on one scale{cut}",
    )
    return figure


def _runs_of_work(events: Sequence[Event]) -> Iterator[tuple[str, str, float, float]]:
    """Yield engine, layer's key, begin and length of work; tasks of a layer that touch become one."""
    shown = [event for event in events if event.category in ENGINES or event.category == LAUNCH]
    if not shown:
        return
    begin_s = min(event.start_s for event in shown)
    running: dict[str, tuple[str, float, float]] = {}
    count = 0
    for event in sorted(shown, key=lambda event: event.start_s):
        engine = ENGINES.get(event.category, "launch")
        key = LAUNCH if event.category == LAUNCH else layer_key(event.name)
        last = running.get(engine)
        if last is not None and last[0] == key and event.start_s <= last[2] + _TOUCH_S:
            running[engine] = (key, last[1], max(last[2], event.end_s))
            continue
        if last is not None:
            yield engine, last[0], last[1] - begin_s, last[2] - last[1]
            count += 1
            if count >= _MOST_RUNS:
                return
        running[engine] = (key, event.start_s, event.end_s)
    for engine, (key, start_s, end_s) in running.items():
        yield engine, key, start_s - begin_s, end_s - start_s
