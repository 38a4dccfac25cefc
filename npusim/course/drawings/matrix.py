"""The matrix of a graph as dots, cut into blocks, and what zero-value compression makes of it."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from npusim.errors import FileError
from npusim.gnn_models.planetoid import read_planetoid
from npusim.reporting.html import COLOURS

Edges = NDArray[np.int64]
"""Rows and columns of the non-zeros, [2, n]."""


def random_edges(nodes: int, degree: float, seed: int = 0) -> Edges:
    """Return a random graph with some hubs, as citation graphs have, its self-loops included."""
    draw = np.random.default_rng(seed)
    weight = 1.0 / np.arange(1, nodes + 1) ** 0.6
    order = draw.permutation(nodes)
    ends = draw.choice(order, size=(2, round(nodes * degree / 2)), p=weight / weight.sum())
    both = np.concatenate([ends, ends[::-1], np.tile(np.arange(nodes), (2, 1))], axis=1)
    return np.unique(both, axis=1)


def cora_edges() -> Edges | None:
    """Return Cora's graph with self-loops from the raw files in NPUSIM_DATA; None where there are none."""
    try:
        data = read_planetoid("cora")
    except FileError:
        return None
    loops = np.tile(np.arange(data.nodes), (2, 1))
    return np.concatenate([data.edge_index, loops], axis=1)


def filled_share(edges: Edges, nodes: int, block: int) -> float:
    """Return the share of blocks of `block` x `block` entries that hold a non-zero."""
    across = -(-nodes // block)
    held = np.unique(edges[0] // block * across + edges[1] // block)
    return len(held) / across**2


def dots(edges: Edges, nodes: int, block: int) -> go.Figure:
    """Return the matrix with its non-zeros as dots, above the blocks that hold one."""
    across = -(-nodes // block)
    held = np.zeros((across, across))
    held[edges[0] // block, edges[1] // block] = 1
    centre = (np.arange(across) + 0.5) * block
    figure = go.Figure(
        go.Heatmap(
            z=held,
            x=centre,
            y=centre,
            showscale=False,
            hoverinfo="skip",
            colorscale=[(0, "#ffffff"), (1, "#f3c9cf")],
            zmin=0,
            zmax=1,
        )
    )
    marker = {"size": 2, "color": COLOURS[0]}
    figure.add_scattergl(
        x=edges[1] + 0.5, y=edges[0] + 0.5, mode="markers", marker=marker, hoverinfo="skip", showlegend=False
    )
    side = {"range": [0, nodes], "constrain": "domain", "showgrid": False}
    figure.update_layout(
        xaxis={**side, "title": "node"},
        yaxis={**side, "range": [nodes, 0], "scaleanchor": "x", "title": "node"},
    )
    return figure
