"""A time line as a Gantt chart in one HTML file.

Above some thousand jobs, bars of the same operator on the same unit become one, so that the page stays
quick.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from npusim.engines.timeline import TaskKind, Timeline, dram_bandwidth, power, sram_in_use
from npusim.report.engineering import engineering
from npusim.report.html import COLOURS, GREY, bullets, page, plot, table
from npusim.report.timeline import path_lines, stall_figures

MOST_BARS = 3000
"""Bars that a page shows one by one; more tasks are joined."""
_MOST_STEPS = 4000
_OTHERS, _LAUNCH = "other operators", "launch"
_VERB = {
    TaskKind.DMA_IN: "DMA in",
    TaskKind.DMA_OUT: "DMA out",
    TaskKind.TRANSFER: "copy",
    TaskKind.LAUNCH: "launch",
}


def timeline_html(line: Timeline, command: str = "") -> str:
    """Return a time line as HTML that needs no other file: bars by unit, SRAM, DRAM bandwidth, power."""
    groups = _groups(line)
    joined = [f"{len(line.working)} tasks in {len(groups)} bars"] if len(groups) < len(line.working) else []
    return page(
        f"Time line: {line.workload} on {line.soc}, {line.techniques}",
        _chart(line, groups),
        "<h2>Units: how long busy, and what they waited for when not</h2>",
        table(*stall_figures(line)),
        "<h2>Critical path</h2>",
        bullets(path_lines(line)),
        lead=f"{engineering(line.makespan_s, 's')}, {line.inferences} inferences"
        if line.inferences > 1
        else engineering(line.makespan_s, "s"),
        notes=joined,
        command=command,
    )


def _chart(line: Timeline, groups: list[Any]) -> str:
    figure = make_subplots(
        rows=4, cols=1, shared_xaxes=True, row_heights=[0.61, 0.13, 0.13, 0.13], vertical_spacing=0.03
    )
    tracks = _bars(figure, line, groups)
    for row, (name, unit, stairs) in enumerate(
        (
            ("SRAM", "B", sram_in_use(line)),
            ("DRAM", "B/s", dram_bandwidth(line)),
            ("power", "W", power(line)),
        ),
        2,
    ):
        every = max(1, len(stairs.time_s) // _MOST_STEPS)
        figure.add_trace(
            go.Scatter(
                x=stairs.time_s[::every], y=stairs.value[::every], mode="lines", name=name,
                line={"shape": "hv", "width": 1, "color": COLOURS[0]}, showlegend=False,
            ),
            row, 1,
        )  # fmt: skip
        axis = {"title_text": name, "tickformat": "~s", "ticksuffix": unit, "rangemode": "tozero"}
        figure.update_yaxes(row=row, col=1, **axis)
    figure.update_yaxes(categoryorder="array", categoryarray=tracks[::-1], row=1, col=1)
    figure.update_xaxes(tickformat="~s", ticksuffix="s")
    figure.update_xaxes(title_text="time", row=4, col=1)
    figure.update_layout(barmode="overlay", bargap=0.15)
    return plot(figure, 480 + 26 * len(tracks), least_width=600)


def _groups(line: Timeline) -> list[Any]:
    """Rows of each bar: one task, or an operator's tasks on a unit where there are too many."""
    rows = line.working
    if len(rows) <= MOST_BARS:
        return [rows[i : i + 1] for i in range(len(rows))]
    key = np.stack((line.inference[rows], line.unit[rows], line.operator[rows], line.kind[rows]))
    order = np.lexsort(key)
    cuts = np.flatnonzero((np.diff(key[:, order]) != 0).any(axis=0)) + 1
    return np.split(rows[order], cuts)


def _bars(figure: Any, line: Timeline, groups: list[Any]) -> list[str]:
    """Draw the bars, a trace per operator that works long, and return the tracks from top to bottom."""
    colours = _colours(line)
    used: dict[str, float] = {}
    by_name: dict[str, list[tuple[float, float, str, str]]] = {name: [] for name in colours}
    for rows in groups:
        first = int(rows[0])
        track = line.track(first)
        used.setdefault(track, line.unit[first] if line.unit[first] >= 0 else -1)
        begin, end = float(line.start[rows].min()), float(line.end[rows].max())
        name = line.operator_of(first) or _LAUNCH
        bar = (begin, end - begin, track, _story(line, rows, end - begin))
        by_name[name if name in colours else _OTHERS].append(bar)
    for name, bars in by_name.items():
        if not bars:
            continue
        begins, lengths, tracks, stories = (list(column) for column in zip(*bars, strict=True))
        figure.add_trace(
            go.Bar(
                base=begins, x=lengths, y=tracks, orientation="h", name=name,
                marker={"color": colours[name], "line": {"width": 0}}, hovertext=stories, hoverinfo="text",
            ),
            1, 1,
        )  # fmt: skip
    return sorted(used, key=lambda track: (used[track], track))


def _colours(line: Timeline) -> dict[str, str]:
    """Return the colours of the operators that work longest, of all others, and of launches."""
    rows = line.working[line.operator[line.working] >= 0]
    busy = np.bincount(line.operator[rows], (line.end - line.start)[rows], len(line.operators))
    longest = [line.operators[i] for i in np.argsort(-busy, kind="stable")[: len(COLOURS)] if busy[i] > 0]
    return dict(zip(longest, COLOURS, strict=False)) | {_OTHERS: GREY, _LAUNCH: "#dddddd"}


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
