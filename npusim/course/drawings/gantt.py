"""What each unit does when: the tasks of the event engine as bars."""

from __future__ import annotations

import re

import plotly.graph_objects as go

from npusim.engines.timeline import TaskKind, Timeline
from npusim.reporting.html import COLOURS, amount_axis

_SHOWN = {
    TaskKind.DMA_IN: ("DMA in", COLOURS[3]),
    TaskKind.DPU: ("MAC grid", COLOURS[0]),
    TaskKind.DSP: ("DSP", COLOURS[5]),
    TaskKind.DMA_OUT: ("DMA out", COLOURS[1]),
}
_MOST = 1500


def _named(track: str) -> str:
    """Return the words for a track such as npu.tile0.dpu or npu.dma1."""
    tile = re.fullmatch(r"\w+\.tile(\d+)\.(dpu|dsp)(\d*)", track)
    if tile:
        return f"{'grid' if tile[2] == 'dpu' else f'DSP {tile[3]}'} of tile {tile[1]}".replace("  ", " ")
    dma = re.fullmatch(r"\w+\.dma(\d*)", track)
    return f"DMA {dma[1]}" if dma else track


def gantt(line: Timeline) -> go.Figure:
    """Return the tasks of one inference by unit, launch left out: times count from the first task.

    Parameters
    ----------
    line : Timeline
        More than some thousand tasks are cut off at the end.
    """
    rows = [row for row in range(len(line)) if line.kind[row] in _SHOWN][:_MOST]
    begin = min((float(line.start[row]) for row in rows), default=0.0)
    figure = go.Figure()
    for kind, (name, colour) in _SHOWN.items():
        mine = [row for row in rows if line.kind[row] == kind]
        if not mine:
            continue
        figure.add_bar(
            base=[float(line.start[row]) - begin for row in mine],
            x=[float(line.end[row] - line.start[row]) for row in mine],
            y=[_named(line.track(row)) for row in mine],
            orientation="h",
            name=name,
            marker={"color": colour, "line": {"color": "#ffffff", "width": 0.5}},
        )
    figure.update_layout(
        barmode="overlay",
        xaxis=amount_axis("time", "s"),
        yaxis={"type": "category", "autorange": "reversed", "categoryorder": "category ascending"},
    )
    return figure
