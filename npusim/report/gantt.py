"""A time line as a Gantt chart in one HTML file.

Above some thousand jobs, bars of the same operator on the same unit become one, so that the page stays
quick.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from npusim.engines.timeline import TaskKind, Timeline, dram_bandwidth, power, sram_in_use
from npusim.report.engineering import engineering

__all__ = ["MOST_BARS", "gantt_page"]

MOST_BARS = 3000
"""Bars that a page shows one by one; more tasks are joined."""
_MOST_STEPS = 4000
_COLOURS = (
    "#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#eeca3b", "#b279a2", "#9d755d", "#bab0ac",
    "#2f4b7c",
)  # fmt: skip
_VERB = {
    TaskKind.DMA_IN: "DMA in",
    TaskKind.DMA_OUT: "DMA out",
    TaskKind.TRANSFER: "copy",
    TaskKind.LAUNCH: "launch",
}
_US = 1e6


def gantt_page(line: Timeline) -> str:
    """Return a time line as a self-contained HTML page: bars by unit, SRAM, DRAM bandwidth, power.

    Parameters
    ----------
    line : Timeline
    """
    groups = _groups(line)
    figure = make_subplots(
        rows=4, cols=1, shared_xaxes=True, row_heights=[0.61, 0.13, 0.13, 0.13], vertical_spacing=0.03
    )
    tracks = _bars(figure, line, groups)
    for row, (name, stairs, scale) in enumerate(
        (
            ("SRAM (MB)", sram_in_use(line), 1e-6),
            ("DRAM (GB/s)", dram_bandwidth(line), 1e-9),
            ("power (W)", power(line), 1.0),
        ),
        2,
    ):
        every = max(1, len(stairs.time_s) // _MOST_STEPS)
        time, value = stairs.time_s[::every] * _US, stairs.value[::every] * scale
        figure.add_trace(
            go.Scatter(
                x=time, y=value, mode="lines", line={"shape": "hv", "width": 1}, name=name, showlegend=False
            ),
            row,
            1,
        )
        figure.update_yaxes(title_text=name, row=row, col=1, rangemode="tozero")
    figure.update_yaxes(categoryorder="array", categoryarray=tracks[::-1], row=1, col=1)
    figure.update_xaxes(title_text="time (µs)", row=4, col=1)
    joined = f"; {len(line.working)} tasks in {len(groups)} bars" if len(groups) < len(line.working) else ""
    title = f"{line.workload} on {line.soc}, {line.techniques}: {engineering(line.makespan_s, 's')}{joined}"
    figure.update_layout(
        title=escape(title),
        barmode="overlay",
        height=420 + 26 * len(tracks),
        template="plotly_white",
        bargap=0.15,
    )
    chart: str = figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<script>{get_plotlyjs()}</script></head><body>{chart}</body></html>\n"
    )


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
    """Draw the bars, a trace a colour, and return the names of the tracks from top to bottom."""
    used: dict[str, float] = {}
    by_colour: dict[str, list[tuple[float, float, str, str]]] = {}
    for rows in groups:
        first = int(rows[0])
        track = line.track(first)
        used.setdefault(track, line.unit[first] if line.unit[first] >= 0 else -1)
        begin, end = float(line.start[rows].min()), float(line.end[rows].max())
        colour = (
            _COLOURS[int(line.operator[first]) % len(_COLOURS)] if line.operator[first] >= 0 else "#d0d0d0"
        )
        by_colour.setdefault(colour, []).append(
            (begin * _US, (end - begin) * _US, track, _story(line, rows, end - begin))
        )
    for colour, bars in by_colour.items():
        begins, lengths, tracks, stories = (list(column) for column in zip(*bars, strict=True))
        figure.add_trace(
            go.Bar(
                base=begins, x=lengths, y=tracks, orientation="h",
                marker={"color": colour, "line": {"width": 0}},
                hovertext=stories, hoverinfo="text", showlegend=False,
            ),
            1, 1,
        )  # fmt: skip
    return sorted(used, key=lambda track: (used[track], track))


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
    for words, amount, unit in (("", line.bytes, "B"), ("", line.macs, "MAC")):
        total = float(amount[rows].sum())
        if total:
            said.append(f"{words}{engineering(total, unit)}")
    return "<br>".join(said)
