"""A time line as a Gantt chart in one HTML file.

Above some thousand tasks, bars of the same operator on the same unit become one, so that the page stays
quick.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from npusim.engines.timeline import (
    StepFunction,
    TaskKind,
    Timeline,
    critical_path,
    dram_bandwidth,
    power,
    sram_in_use,
)
from npusim.report.engineering import engineering
from npusim.report.html import COLOURS, GREY, bullets, names_axis, page, plot, table
from npusim.report.timeline import path_lines, stall_figures

MOST_BARS = 3000
"""Bars that a page shows one by one; more tasks are joined."""
_MOST_STEPS = 4000
_ALIKE = 0.002
"""Part of the run by which tasks of two units may be apart and still share a track."""
_OTHERS, _LAUNCH, _CRITICAL = "other operators", "launch", "critical path"
_LAUNCH_COLOUR = "#dddddd"
_VERB = {
    TaskKind.DMA_IN: "DMA in",
    TaskKind.DMA_OUT: "DMA out",
    TaskKind.TRANSFER: "copy",
    TaskKind.LAUNCH: "launch",
}
Bar = tuple[float, float, str, str]
"""Begin, length, track and story."""


def timeline_html(line: Timeline, command: str = "") -> str:
    """Return a time line as HTML that needs no other file: bars by unit, SRAM, DRAM bandwidth, power."""
    several = f", {line.inferences} inferences" if line.inferences > 1 else ""
    return page(
        f"Time line: {line.workload} on {line.soc}"
        + (f" with {line.techniques}" if line.techniques != "none" else ""),
        *timeline_parts(line),
        lead=f"{engineering(line.makespan_s, 's')}{several}",
        command=command,
    )


def timeline_parts(line: Timeline) -> list[str]:
    """Return a time line as parts of a page: chart, units, critical path."""
    groups = _groups(line)
    joined = f": {len(line.working)} tasks in {len(groups)} bars" if len(groups) < len(line.working) else ""
    heads, rows = stall_figures(line)
    path = critical_path(line)
    return [
        _chart(line, groups, f"What happened when{joined}"),
        "<h2>Units: how long busy, and what they waited for when not</h2>",
        table(heads, rows, name="waits"),
        "<h2>Critical path</h2>",
        bullets(path_lines(line)),
        "<details><summary>Its tasks</summary>"
        + table(
            ("task", "on", "begins", "takes", "waited before", "for"),
            [
                (
                    line.operator_of(task.row) or _LAUNCH,
                    line.track(task.row),
                    engineering(float(line.start[task.row]), "s"),
                    engineering(task.worked_s, "s"),
                    engineering(task.waited_s, "s"),
                    task.reason,
                )
                for task in path
            ],
            words=(0, 1, 5),
            name="critical-path",
        )
        + "</details>",
    ]


def _chart(line: Timeline, groups: list[Any], title: str) -> str:
    figure = make_subplots(
        rows=4, cols=1, shared_xaxes=True, row_heights=[0.55, 0.15, 0.15, 0.15], vertical_spacing=0.04
    )
    tracks = _bars(figure, line, groups)
    curves: tuple[tuple[str, str, StepFunction, float], ...] = (
        ("SRAM", "B", sram_in_use(line), line.sram_capacity),
        ("DRAM", "B/s", dram_bandwidth(line), line.dram_limit_bytes_per_s),
        ("power", "W", power(line), 0.0),
    )
    for row, (name, unit, stairs, limit) in enumerate(curves, 2):
        times, values = _thinned(stairs)
        figure.add_trace(
            go.Scatter(
                x=times, y=values, mode="lines", showlegend=False, fill="tozeroy", name=name,
                line={"shape": "hv", "width": 1, "color": COLOURS[0]},
                hovertemplate="%{y:.3~s}" + unit + " from %{x:.4~s}s<extra></extra>",
            ),
            row, 1,
        )  # fmt: skip
        axis = {
            "title_text": name,
            "tickformat": "~s",
            "ticksuffix": unit,
            "rangemode": "tozero",
            "nticks": 4,
        }
        figure.update_yaxes(row=row, col=1, **axis)
        if limit:
            said = {"text": f"capacity {engineering(limit, unit)}", "font": {"size": 11}}
            dashes = {"color": "#000000", "dash": "dash", "width": 1}
            figure.add_hline(limit, row=row, col=1, line=dashes, annotation=said)
    figure.update_yaxes(row=1, col=1, **names_axis(tracks))
    figure.update_xaxes(tickformat="~s", ticksuffix="s", nticks=6, range=[0.0, line.makespan_s])
    figure.update_xaxes(title_text="time", row=4, col=1)
    figure.update_layout(barmode="overlay", bargap=0.15)
    return plot(figure, 470 + 30 * len(tracks), title)


def _thinned(stairs: StepFunction) -> tuple[Any, Any]:
    """Return times and values of a step function; of very many steps the largest of each few."""
    every = -(-len(stairs.time_s) // _MOST_STEPS)
    if every <= 1:
        return stairs.time_s, stairs.value
    starts = np.arange(0, len(stairs.time_s), every)
    return stairs.time_s[starts], np.maximum.reduceat(stairs.value, starts)


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
    found: dict[str, str] = {}
    for units in (fold for folds in alike.values() for fold in folds):
        names = [line.units[unit].name for unit in units]
        shown = names[0].removeprefix("npu.")
        shown += f" and {len(names) - 1} alike" if len(names) > 1 else ""
        found.update(dict.fromkeys(names, shown))
    return found


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
    by_name: dict[str, list[Bar]] = {name: [] for name in colours}
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
        bar = (begin, end - begin, tracks.get(own, own), _story(line, rows, end - begin))
        by_name[name].append(bar)
    for task in critical_path(line):
        name = label.get(line.operator_of(task.row), _OTHERS)
        if line.unit[task.row] >= 0 and task.worked_s > 0.0:
            rows = np.array([task.row])
            story = f"{_story(line, rows, task.worked_s)}<br>waited last for: {task.reason}"
            by_name[name].append((float(line.start[task.row]), task.worked_s, _CRITICAL, story))
    for name, bars in by_name.items():
        if bars:
            begins, lengths, places, stories = (list(column) for column in zip(*bars, strict=True))
            figure.add_trace(
                go.Bar(
                    base=begins, x=lengths, y=places, orientation="h", name=name, hovertext=stories,
                    marker={"color": colours[name], "line": {"width": 0}}, hoverinfo="text",
                ),
                1, 1,
            )  # fmt: skip
    _gaps(figure, launches)
    order = {line.units[u].name: u for u in range(len(line.units))}
    used = {bar[2] for bars in by_name.values() for bar in bars} - {_CRITICAL}
    return [_CRITICAL, *sorted(used, key=lambda track: order.get(leaders.get(track, ""), -1))]


def _gaps(figure: Any, launches: list[tuple[float, float]]) -> None:
    """Draw launches as gaps with their lengths, over all tracks."""
    for begin, end in launches:
        length = f"launch {engineering(end - begin, 's')}"
        figure.add_vrect(
            begin, end, row=1, col=1, fillcolor=_LAUNCH_COLOUR, opacity=0.5, line_width=0, layer="below",
            annotation={"text": length, "textangle": -90, "font": {"size": 12}},
            annotation_position="top left",
        )  # fmt: skip


def _colours(line: Timeline) -> tuple[dict[str, str], dict[str, str]]:
    """Return colours by name in the legend, and that name of each operator: itself or its region."""
    rows = line.working[line.operator[line.working] >= 0]
    busy = np.bincount(line.operator[rows], (line.end - line.start)[rows], len(line.operators))
    working = [line.operators[i] for i in np.flatnonzero(busy)]
    label = {name: name for name in working}
    if len(working) > len(COLOURS):
        label = {name: name.rpartition("/")[0] or name for name in working}
    spent: dict[str, float] = {}
    for i in np.flatnonzero(busy):
        name = label[line.operators[i]]
        spent[name] = spent.get(name, 0.0) + float(busy[i])
    longest = sorted(spent, key=lambda name: -spent[name])[: len(COLOURS)]
    ordered = [name for name in spent if name in longest]
    colours = dict(zip(ordered, COLOURS, strict=False)) | {_OTHERS: GREY, _LAUNCH: _LAUNCH_COLOUR}
    return colours, {name: told for name, told in label.items() if told in colours}


def _story(line: Timeline, rows: Any, length_s: float) -> str:
    """What a bar says when it is touched."""
    first = int(rows[0])
    kind = TaskKind(int(line.kind[first]))
    busy = float((line.end[rows] - line.start[rows]).sum())
    said = [
        f"<b>{escape(line.operator_of(first) or 'launch')}</b> {_VERB.get(kind, kind.name)}",
        f"{line.track(first)}, inference {int(line.inference[first])}",
        f"from {engineering(float(line.start[rows].min()), 's')}, {engineering(length_s, 's')}",
    ]
    if len(rows) > 1:
        said.append(f"{len(rows)} tasks, busy {engineering(busy, 's')}")
    else:
        said.append(f"ready {engineering(float(line.start[first] - line.ready[first]), 's')} before it began")
    for amount, unit in ((line.bytes, "B"), (line.macs, "MAC")):
        total = float(amount[rows].sum())
        if total:
            said.append(engineering(total, unit))
    return "<br>".join(said)
