"""Memory as part of an HTML page: SRAM over time, and forms of the graph."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from npusim.mapping import sram_contents
from npusim.ops import Role, Storage
from npusim.report.drawings import areas
from npusim.report.engineering import engineering, percent
from npusim.report.html import COLOURS, amount_axis, plot, seconds_axis, table, text

if TYPE_CHECKING:
    from npusim.mapping import Mapped, SramContents


def sram_plot(mapped: Mapped) -> str:
    """Return what lies in SRAM while each operator runs, tensor by tensor, over time, as part of a page."""
    found = sram_contents(mapped)
    if not found.operators:
        return ""
    layers = _layers(found)
    rows = [
        (name, *(engineering(float(held[i]), "B") for held in layers.values()))
        for i, name in enumerate(found.operators)
    ]
    listed = table(("operator", *layers), rows, name="sram")
    return plot(sram_figure(mapped), 420, "What lies in SRAM", data=listed)


def _layers(found: SramContents) -> dict[str, Any]:
    """Return the bytes of each tensor while each operator runs, what is never there left out."""
    layers = {
        **found.tensors,
        "other tensors that stay": found.others,
        "tiles of the operator": found.working,
    }
    return {name: held for name, held in layers.items() if held.any()}


def sram_figure(mapped: Mapped) -> go.Figure:
    """Return what lies in SRAM over time, tensor by tensor; an empty figure where nothing does."""
    found = sram_contents(mapped)
    if not found.operators:
        return go.Figure()
    latency = {
        g.main: float(r["latency_s"]) for g, r in zip(mapped.decisions.groups, mapped.results, strict=True)
    }
    ends = np.cumsum([latency[name] for name in found.operators])
    times = np.concatenate(([0.0], np.repeat(ends, 2)[:-1]))
    figure = go.Figure()
    for number, (name, held) in enumerate(_layers(found).items()):
        colour = "#dddddd" if name == "tiles of the operator" else COLOURS[number % len(COLOURS)]
        figure.add_scatter(
            x=times, y=np.repeat(held, 2), stackgroup="sram", name=name, mode="lines",
            line={"width": 0.5, "color": colour, "shape": "linear"},
            customdata=np.repeat(np.array(found.operators, object), 2),
            hovertemplate=f"{escape(name)}: %{{y:.3~s}}B<br>at %{{customdata}}<extra></extra>",
        )  # fmt: skip
    limit = f"capacity {engineering(found.capacity_bytes, 'B')}"
    figure.add_scatter(
        x=[0.0, float(ends[-1])], y=[found.capacity_bytes] * 2, mode="lines", name=limit,
        line={"color": "#000000", "dash": "dash", "width": 1.5}, hoverinfo="name",
    )  # fmt: skip
    figure.update_layout(
        xaxis=seconds_axis("time, operator after operator", log=False),
        yaxis=amount_axis("bytes in SRAM", "B"),
    )
    return figure


_OF_GRAPH = (Role.NORM, Role.ADJACENCY, Role.MASK)


def graph_forms(mapped: Mapped) -> str:
    """Return forms in which the largest matrix over node pairs could be stored, and that of this network."""
    matrices = [t for t in mapped.graph.tensors.values() if t.role in _OF_GRAPH and len(t.shape) >= 2]
    edges = [t for t in mapped.graph.tensors.values() if t.role is Role.EDGES]
    if not matrices and not edges:
        return ""
    sizes: dict[str, float] = {f"list of edges {list(t.shape)}": t.bytes for t in edges[:1]}
    here = "the graph is read as a list of edges"
    if matrices:
        largest = max(matrices, key=lambda tensor: tensor.elements)
        kind = largest.dtype.value
        sizes[f"dense {kind}"] = largest.with_(storage=Storage.DENSE).stored_bytes
        if largest.density < 1.0:
            sizes[f"bitmap and non-zeros, {kind}"] = largest.with_(storage=Storage.ZVC).stored_bytes
        if largest.symmetric:
            sizes[f"triangle, {kind}"] = largest.with_(storage=Storage.TRIANGLE).stored_bytes
        shape = " x ".join(map(str, largest.shape))
        filled = f"{largest.name}, {shape}, {percent(largest.density)} non-zero"
        here = f"{filled}; here its storage is {largest.storage.value}"
    return f"<h2>The graph in memory</h2>{text(here)}{areas(sizes, 'forms of the graph by their bytes')}"
