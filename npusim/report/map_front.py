"""A front of placements as a page for the terminal, and as an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.report.document_html import document_html, titled
from npusim.report.engineering import engineering
from npusim.report.html import COLOURS, amount_axis, plot
from npusim.report.terminal import headed, remarks, title

if TYPE_CHECKING:
    from npusim.studies.map_front_document import MapFront, PlacedChain

_MOST_ROWS = 24


def map_front_page(found: MapFront) -> RenderableType:
    """Return a front for the terminal: devices alone, placements by latency, notes, verdict."""
    letters = ", ".join(f"{letter} {device}" for device, letter in found.devices.items())
    head = f"{len(found.blocks)} {found.granularity}s on {letters}; least latency and energy"
    if found.limits:
        head += f"; within {', '.join(f'{name} {value:.4g}' for name, value in found.limits.items())}"
    return Group(
        title(found.workload, found.soc, found.techniques),
        Text(head, style="dim"),
        Text(),
        _table(found),
        Text(),
        remarks(("Note", "dim", _notes(found))),
        Text(),
        Text(verdict(found), style="bold"),
    )


def _table(found: MapFront) -> Table:
    table = headed("placement", "latency", "energy", "power", "transits")
    for alone in found.alone:
        power = alone.energy_j / alone.latency_s
        table.add_row(
            f"all on the {alone.device.upper()}", engineering(alone.latency_s, "s"),
            engineering(alone.energy_j, "J"), engineering(power, "W"), "0",
        )  # fmt: skip
    if found.given is not None:
        table.add_row(f"as asked: {found.given.mapping}", *_figures(found.given))
    if found.given_chosen is not None:
        best = found.given_points[found.given_chosen]
        table.add_row(f"as asked, best of {len(found.given_points)}:\n{_clocks(best)}", *_figures(best))
    for i in _shown(len(found.points), found.chosen):
        point = found.points[i]
        points = _clocks(point)
        label = f"{point.mapping}\n{points}" if points else point.mapping
        table.add_row(label, *_figures(point), style="bold green" if i == found.chosen else "")
    return table


def _clocks(point: PlacedChain) -> str:
    return ", ".join(f"{device} {name}" for device, name in point.operating_points.items())


def _figures(point: PlacedChain) -> Sequence[str]:
    return (
        engineering(point.latency_s, "s"),
        engineering(point.energy_j, "J"),
        engineering(point.power_w, "W"),
        str(point.transitions),
    )


def _shown(count: int, chosen: int) -> list[int]:
    """Return the points of a long front that a table shows: evenly spread, both ends and the chosen one."""
    if count <= _MOST_ROWS:
        return list(range(count))
    return sorted({chosen, *(round(i * (count - 1) / (_MOST_ROWS - 1)) for i in range(_MOST_ROWS))})


def _notes(found: MapFront) -> list[str]:
    settings = f" at {found.settings} settings of operating points" if found.settings > 1 else ""
    said = [f"exact: no other of {found.placements:.2g} placements{settings} is better in both"]
    if found.evaluations is not None:
        method = "NSGA-II" if found.method == "nsga2" else "drawn at random"
        said = [f"{method}: {found.evaluations} of {found.placements:.2g} placements were costed"]
    if found.hypervolume_share is not None:
        said.append(f"dominates {found.hypervolume_share:.1%} of the area that the exact front does")
    shown = len(_shown(len(found.points), found.chosen))
    if shown < len(found.points):
        said.append(f"{shown} of {len(found.points)} placements are shown; --format json has all")
    if found.granularity == "block" and found.method == "exact":
        said.append("a block costs what it does where one device runs all; between devices lies DRAM")
    return said


def verdict(found: MapFront) -> str:
    """Return the answer in one sentence."""
    point = found.points[found.chosen]
    e, t = found.exponents
    figures = f"{engineering(point.latency_s, 's')}, {engineering(point.energy_j, 'J')}"
    return (
        f"Of {len(found.points)} placements on the front, {point.mapping} has the least product of "
        f"energy^{e:g} and latency^{t:g}: {figures}."
    )


def map_front_html(found: MapFront, command: str = "") -> str:
    """Return a front as HTML: energy over latency, devices alone beside it, and all placements."""
    figure = go.Figure()
    figure.add_scatter(
        x=[point.latency_s for point in found.points],
        y=[point.energy_j for point in found.points],
        mode="lines+markers",
        line={"shape": "hv", "color": COLOURS[1]},
        name="front",
        text=[point.mapping for point in found.points],
        hovertemplate="%{text}<br>%{x:.3~s}s, %{y:.3~s}J<extra></extra>",
    )
    others = [(f"all on {one.device.upper()}", one.latency_s, one.energy_j) for one in found.alone]
    if found.given is not None:
        others.append(("as asked", found.given.latency_s, found.given.energy_j))
    if found.given_chosen is not None:
        best = found.given_points[found.given_chosen]
        others.append((f"as asked, {_clocks(best)}", best.latency_s, best.energy_j))
    for i, (name, latency_s, energy_j) in enumerate(others):
        figure.add_scatter(
            x=[latency_s], y=[energy_j], mode="markers", name=name,
            marker={"size": 12, "symbol": ("square", "diamond", "triangle-up", "star")[i % 4],
                    "color": COLOURS[(i + 2) % len(COLOURS)]},
        )  # fmt: skip
    figure.update_layout(xaxis=amount_axis("latency", "s"), yaxis=amount_axis("energy", "J"))
    picture = plot(figure, 420, "Energy over latency")
    heading = titled("Placements", found.model_dump())
    return document_html(found, command, picture, title=heading, lead=verdict(found))
