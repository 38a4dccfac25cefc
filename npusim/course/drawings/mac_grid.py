"""The MAC grid at work: blocks of outputs, one after the other, and the lanes that have none."""

from __future__ import annotations

from math import ceil, prod
from typing import Literal, NamedTuple

import numpy as np
import plotly.graph_objects as go

from npusim.arch import Soc
from npusim.reporting.html import COLOURS, GREY

_MOST_FRAMES = 36
_FRAME_MS = 120


class Grid(NamedTuple):
    """The grid of one tile: lanes that each hold an output, and multiplications of a lane in a cycle."""

    pixels: int
    """Rows of a product that it works on at once."""
    channels: int
    """Columns."""
    depth: int
    """Terms of each sum."""


def grid_of(soc: Soc, dtype: Literal["int8", "fp16"] = "fp16") -> Grid:
    """Return the grid of a machine's NPU for a format."""
    dpu = soc.npu.dpu
    return Grid(int(dpu.grid.vpe) ** 2, int(dpu.grid.mpe) ** 2, int(dpu.macs_per_mpe[dtype]))


def steps(grid: Grid, rows: int, depth: int, columns: int) -> tuple[int, int, int]:
    """Return how often the grid is laid along rows, sums and columns of a product."""
    return ceil(rows / grid.pixels), ceil(depth / grid.depth), ceil(columns / grid.channels)


def busy_share(grid: Grid, rows: int, depth: int, columns: int) -> float:
    """Return the share of multiplications of the grid's steps that a product needs."""
    return rows * depth * columns / (prod(steps(grid, rows, depth, columns)) * prod(grid))


def outputs_filling(grid: Grid, rows: int, columns: int) -> go.Figure:
    """Return the outputs of a product as the grid fills them, block by block, with a button that plays it.

    Parameters
    ----------
    grid : Grid
    rows, columns : int
        Of the result; squares beyond it are lanes with nothing to do.
    """
    down, _, across = steps(grid, rows, 1, columns)
    at_row, at_column = np.indices((down * grid.pixels, across * grid.channels))
    block = at_row // grid.pixels * across + at_column // grid.channels
    idle = (at_row >= rows) | (at_column >= columns)
    done_last = down * across
    shown = sorted({round(k) for k in np.linspace(1, done_last, min(done_last, _MOST_FRAMES))})

    def picture(done: int) -> go.Heatmap:
        # 0 not yet, 1 done before, 2 at work, 3 idle
        state = np.where(block >= done, 0, np.where(block == done - 1, 2, 1))
        state = np.where(idle & (block < done), 3, state)
        colours = ("#f4f4f4", "#a9c1dd", COLOURS[0], COLOURS[1])
        scale = [(edge / 4, colour) for k, colour in enumerate(colours) for edge in (k, k + 1)]
        return go.Heatmap(
            z=state.tolist(), zmin=-0.5, zmax=3.5, colorscale=scale, showscale=False, xgap=1, ygap=1,
            hovertemplate="row %{y}, column %{x}<extra></extra>",
        )  # fmt: skip

    figure = go.Figure(
        picture(done_last),
        frames=[go.Frame(data=[picture(done)], name=str(done)) for done in shown],
    )
    for name, colour in (("outputs", "#a9c1dd"), ("last block", COLOURS[0]), ("idle lanes", COLOURS[1])):
        figure.add_scatter(x=[None], y=[None], mode="markers", name=name,
                           marker={"color": colour, "symbol": "square", "size": 11})  # fmt: skip
    play = {
        "label": "Play", "method": "animate",
        "args": [None, {"frame": {"duration": _FRAME_MS, "redraw": True}, "transition": {"duration": 0},
                        "mode": "immediate", "fromcurrent": False}],
    }  # fmt: skip
    figure.update_layout(
        xaxis={"title": "columns N of the result", "constrain": "domain", "showgrid": False,
               "zeroline": False},
        yaxis={"title": "rows M", "autorange": "reversed", "scaleanchor": "x", "constrain": "domain",
               "showgrid": False, "zeroline": False},
        updatemenus=[{"type": "buttons", "buttons": [play], "x": 1, "xanchor": "right", "y": -0.1,
                      "yanchor": "top", "bordercolor": GREY, "pad": {"t": 0, "b": 4}}],
    )  # fmt: skip
    return figure
