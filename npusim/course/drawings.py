"""Pictures of the lessons as plotly figures: curves, bars, tasks, the MAC grid, matrices, rooflines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import cycle
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from npusim.arch import Soc
from npusim.course.machine_view import MachineSteps
from npusim.engines import Estimate
from npusim.engines.timeline import TaskKind, Timeline
from npusim.errors import FileError
from npusim.gnn_models.planetoid import read_planetoid
from npusim.reporting.charts import line_figure
from npusim.reporting.html import COLOURS, DASHES, GREY, HATCHING, amount_axis, figure_text, log_axis
from npusim.reporting.tables import summed

UNIT_NAMES = {"npu.dpu": "MAC grid", "npu.dsp": "DSPs", "npu.dma": "DMA", "cpu": "CPU", "gpu": "GPU"}
LAUNCH_COLOUR = {"launch": GREY}
_BAR = 0.5
"""Height of a bar in rows; its name stands in the rest."""
_TASKS = {
    TaskKind.DMA_IN: ("DMA in", COLOURS[3]),
    TaskKind.DPU: ("MAC grid", COLOURS[0]),
    TaskKind.DSP: ("DSP", COLOURS[5]),
    TaskKind.DMA_OUT: ("DMA out", COLOURS[1]),
}
_MOST_TASKS = 1500
DOT = 8
"""Entries of a matrix on a side of a dot; blocks are multiples of it."""
_MOST_FRAMES = 36
_FRAME_MS = 120
_LANES = {"outputs": "#a9c1dd", "last block": COLOURS[0], "idle lanes": COLOURS[1]}


def curves(
    x: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    at: float,
    x_axis: Mapping[str, Any],
    y_axis: Mapping[str, Any],
) -> go.Figure:
    """Return curves over one axis, and a line where the slider stands (`at`).

    `lines` has a value for each `x` by name; the axes are settings as from `npusim.reporting.html`.
    """
    named = {name: (list(x), list(values)) for name, values in lines.items()}
    colours = dict(zip(lines, zip(COLOURS, cycle(DASHES), strict=False), strict=False))
    styles = {name: {"line": {"color": c, "dash": dash, "width": 2}} for name, (c, dash) in colours.items()}
    figure = line_figure(named, x_axis, y_axis, styles=styles)
    return figure.add_vline(x=at, line={"color": "#222222", "width": 1})


def stacked(
    bars: Mapping[str, Mapping[str, float | None]],
    title: str,
    unit: str,
    colours: Mapping[str, str] | None = None,
) -> go.Figure:
    """Return horizontal bars below their names, each cut into parts.

    Parameters
    ----------
    bars : mapping of str to mapping of str to float or None
        An amount for each part by name, of each bar; the first bar is on top.
    title, unit : str
        What the axis of amounts says.
    colours : mapping of str to str, optional
        Colour of a part; the others take the next colour. Hatching tells parts apart, too.
    """
    figure = go.Figure()
    for number, name in enumerate(dict.fromkeys(name for parts in bars.values() for name in parts)):
        pattern = {"shape": list(HATCHING)[number % len(HATCHING)], "fgcolor": "#ffffff", "size": 6}
        figure.add_bar(
            y=list(range(len(bars))),
            x=[parts.get(name) for parts in bars.values()],
            name=UNIT_NAMES.get(name, name),
            orientation="h",
            marker={
                "color": (colours or {}).get(name, COLOURS[number % len(COLOURS)]),
                "pattern": pattern,
            },
            width=_BAR,
        )
    place = {"x": 0, "xref": "x", "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    for number, row in enumerate(bars):
        figure.add_annotation(text=escape(row), y=number - _BAR / 2, **place)
    return figure.update_layout(
        barmode="stack",
        xaxis=amount_axis(title, unit),
        yaxis={"range": [len(bars) - 0.5, -0.9], "visible": False},
        legend={"traceorder": "normal"},
    )


def critical_parts(estimate: Estimate, part_of: Callable[[Any], str]) -> dict[str, float]:
    """Return the time on the critical path (s) by part; the parts add up to the latency.

    `part_of` takes an operator of the estimate and names its part.
    """
    of_operators = ((part_of(op), op.critical_s) for op in estimate.operators if op.critical_s)
    return summed([("launch", estimate.launch_s), *of_operators])


def critical_bars(
    estimates: Mapping[str, Estimate], part_of: Callable[[Any], str], colours: Mapping[str, str]
) -> go.Figure:
    """Return the critical path of several estimates as bars of the same parts; a bar ends at the latency."""
    by_name = {name: critical_parts(each, part_of) for name, each in estimates.items()}
    names = dict.fromkeys(part for parts in by_name.values() for part in parts)
    bars = {name: {part: parts.get(part, 0.0) for part in names} for name, parts in by_name.items()}
    return stacked(bars, "time on the critical path", "s", {**colours, **LAUNCH_COLOUR})


def alternative(figure: go.Figure | MachineSteps) -> str:
    """Return a text that says what a figure shows: its axes, and for each trace its values or their range."""
    return figure.alternative if isinstance(figure, MachineSteps) else figure_text(figure)


def _track_name(track: str) -> str:
    """Return the words for a track such as npu.tile0.dpu or npu.dma1."""
    tile = re.fullmatch(r"\w+\.tile(\d+)\.(dpu|dsp)(\d*)", track)
    if tile:
        return f"{'grid' if tile[2] == 'dpu' else f'DSP {tile[3]}'} of tile {tile[1]}".replace("  ", " ")
    dma = re.fullmatch(r"\w+\.dma(\d*)", track)
    return f"DMA {dma[1]}" if dma else track


def gantt(line: Timeline) -> go.Figure:
    """Return the first tasks of one inference by unit, without the launch; time starts at the first task."""
    rows = [row for row in range(len(line)) if line.kind[row] in _TASKS][:_MOST_TASKS]
    begin = min((float(line.start[row]) for row in rows), default=0.0)
    figure = go.Figure()
    for kind, (name, colour) in _TASKS.items():
        members = [row for row in rows if line.kind[row] == kind]
        if members:
            pattern = {"shape": "/" if kind == TaskKind.DMA_OUT else "", "fgcolor": "#ffffff", "size": 6}
            figure.add_bar(
                base=[float(line.start[row]) - begin for row in members],
                x=[float(line.end[row] - line.start[row]) for row in members],
                y=[_track_name(line.track(row)) for row in members],
                orientation="h",
                name=name,
                marker={"color": colour, "line": {"color": "#ffffff", "width": 0.5}, "pattern": pattern},
            )
    tracks = {"type": "category", "autorange": "reversed", "categoryorder": "category ascending"}
    return figure.update_layout(barmode="overlay", xaxis=amount_axis("time", "s"), yaxis=tracks)


class Grid(NamedTuple):
    """The grid of one tile: lanes that each hold an output, and multiplications of a lane in a cycle."""

    pixels: int
    """Rows of a product that it works on at once."""
    channels: int
    """Columns of a product that it works on at once."""
    depth: int
    """Terms of each sum."""


def grid_of(soc: Soc) -> Grid:
    """Return the grid of a machine's NPU for fp16."""
    dpu = soc.npu.dpu
    return Grid(int(dpu.grid.vpe) ** 2, int(dpu.grid.mpe) ** 2, int(dpu.macs_per_mpe["fp16"]))


def steps(grid: Grid, rows: int, depth: int, columns: int) -> tuple[int, int, int]:
    """Return how often the grid is laid along rows, sums and columns of a product."""
    return ceil(rows / grid.pixels), ceil(depth / grid.depth), ceil(columns / grid.channels)


def busy_share(grid: Grid, rows: int, depth: int, columns: int) -> float:
    """Return the share of multiplications of the grid's steps that a product needs."""
    return rows * depth * columns / (prod(steps(grid, rows, depth, columns)) * prod(grid))


def outputs_filling(grid: Grid, rows: int, columns: int) -> go.Figure:
    """Return the outputs of a product as the grid fills them, block by block, with a button that plays it.

    Squares beyond `rows` and `columns` of the result are lanes with nothing to do.
    """
    down, _, across = steps(grid, rows, 1, columns)
    at_row, at_column = np.indices((down * grid.pixels, across * grid.channels))
    block = at_row // grid.pixels * across + at_column // grid.channels
    idle = (at_row >= rows) | (at_column >= columns)
    blocks = down * across
    shown = sorted({round(k) for k in np.linspace(1, blocks, min(blocks, _MOST_FRAMES))})
    scale = [
        (edge / 4, colour) for k, colour in enumerate(("#f4f4f4", *_LANES.values())) for edge in (k, k + 1)
    ]

    def picture(done: int) -> go.Heatmap:
        # 0 not yet, 1 done before, 2 at work, 3 idle
        state = np.where(block >= done, 0, np.where(block == done - 1, 2, 1))
        state = np.where(idle & (block < done), 3, state)
        cells = {"zmin": -0.5, "zmax": 3.5, "xgap": 1, "ygap": 1, "showscale": False, "colorscale": scale}
        return go.Heatmap(z=state.tolist(), hovertemplate="row %{y}, column %{x}<extra></extra>", **cells)

    frames = [go.Frame(data=[picture(done)], name=str(done)) for done in shown]
    figure = go.Figure(picture(blocks), frames=frames)
    for name, colour in _LANES.items():
        is_idle = name == "idle lanes"
        marker: dict[str, Any] = {"color": colour, "line": {"color": "#ffffff", "width": int(is_idle)}}
        marker |= {"symbol": "x", "size": 7} if is_idle else {"symbol": "square", "size": 11}
        at = (at_column[idle], at_row[idle]) if is_idle else ([None], [None])
        figure.add_scatter(x=at[0], y=at[1], mode="markers", name=name, marker=marker, hoverinfo="skip")
    frame = {"duration": _FRAME_MS, "redraw": True}
    timing = {"frame": frame, "transition": {"duration": 0}, "mode": "immediate", "fromcurrent": False}
    play = {"label": "Play", "method": "animate", "args": [None, timing]}
    corner = {"x": 1, "xanchor": "right", "y": -0.1, "yanchor": "top", "pad": {"t": 0, "b": 4}}
    plain = {"constrain": "domain", "showgrid": False, "zeroline": False}
    return figure.update_layout(
        xaxis={"title": "columns N of the result", **plain},
        yaxis={"title": "rows M", "autorange": "reversed", "scaleanchor": "x", **plain},
        updatemenus=[{"type": "buttons", "buttons": [play], "bordercolor": GREY, **corner}],
    )


Edges = NDArray[np.int64]
"""Rows and columns of the non-zeros of a graph's matrix, [2, n]."""


def random_edges(nodes: int, degree: float) -> Edges:
    """Return a random graph with some hubs, as citation graphs have, its self-loops included."""
    draw = np.random.default_rng(0)
    weight = 1.0 / np.arange(1, nodes + 1) ** 0.6
    order = draw.permutation(nodes)
    ends = draw.choice(order, size=(2, round(nodes * degree / 2)), p=weight / weight.sum())
    both = np.concatenate([ends, ends[::-1], np.tile(np.arange(nodes), (2, 1))], axis=1)
    return np.unique(both, axis=1)


def cora_edges() -> Edges | None:
    """Return Cora's graph with self-loops from the raw files in NPUSIM_DATA; None without the files."""
    try:
        data = read_planetoid("cora")
    except FileError:
        return None
    loops = np.tile(np.arange(data.nodes), (2, 1))
    return np.concatenate([data.edge_index, loops], axis=1)


def filled_blocks(edges: Edges, nodes: int, block: int) -> NDArray[np.float64]:
    """Return 1 for each block of `block` x `block` entries that holds a non-zero, else 0."""
    across = -(-nodes // block)
    filled = np.zeros((across, across))
    filled[edges[0] // block, edges[1] // block] = 1
    return filled


def dots(edges: Edges, nodes: int, block: int) -> go.Figure:
    """Return the matrix with its non-zeros as dots, above the blocks that hold one."""
    dotted, filled = (filled_blocks(edges, nodes, size) for size in (DOT, block))
    below = np.kron(filled, np.ones((block // DOT, block // DOT)))[: len(dotted), : len(dotted)]
    place = {"x0": DOT / 2, "y0": DOT / 2, "dx": DOT, "dy": DOT, "zmin": 0, "zmax": 2}
    colours = {"colorscale": [(0, "#ffffff"), (0.5, "#f3c9cf"), (1, COLOURS[0])], "showscale": False}
    state = np.where(dotted > 0, 2, below).astype(np.uint8)
    figure = go.Figure(go.Heatmap(z=state, hoverinfo="skip", **place, **colours))
    side = {"range": [0, nodes], "constrain": "domain", "showgrid": False, "title": "node"}
    return figure.update_layout(xaxis=side, yaxis={**side, "range": [nodes, 0], "scaleanchor": "x"})


def ceilings(estimate: Estimate) -> tuple[dict[str, float], float]:
    """Return the peak rates of the MAC grid in op/s by format, and the bandwidth of DRAM in B/s."""
    roofs = estimate.roofline.ceilings
    peaks = {str(c.precision): c.ops_per_s for c in roofs if c.unit == "npu.dpu" and c.ops_per_s is not None}
    return peaks, next(c.bytes_per_s for c in roofs if c.name == "npu DRAM" and c.bytes_per_s)


def roofline(peak: float, bandwidth: float, name: str, intensity: float, rate: float) -> go.Figure:
    """Return a roof and a named point below it.

    Parameters
    ----------
    peak, rate : float
        In op/s.
    bandwidth : float
        In B/s.
    intensity : float
        Operations for each byte.
    """
    ridge = peak / bandwidth
    low, high = min(ridge, intensity) / 4, max(ridge, intensity) * 4
    roof = ([low, ridge, high], [low * bandwidth, peak, peak])
    marker = {"size": 13, "color": COLOURS[0], "symbol": 0, "line": {"width": 1, "color": "#fff"}}
    styles: dict[str, dict[str, Any]] = {"roof": {"line": {"color": "#444444"}}}
    styles[name] = {"mode": "markers", "marker": marker}
    x_axis = log_axis("operations for each byte of DRAM", "", low, high)
    y_axis = log_axis("operations a second", "op/s", min(rate, peak) / 4, peak * 1.5)
    return line_figure({"roof": roof, name: ([intensity], [rate])}, x_axis, y_axis, styles=styles)
