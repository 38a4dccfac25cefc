"""Roofline as part of an HTML page: operators as dots below the ceilings of their units."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from npusim.report.document_html import records_table
from npusim.report.engineering import engineering, percent
from npusim.report.html import GREY, UNIT_COLOURS, log_axis, plot

if TYPE_CHECKING:
    from npusim.engines import Estimate


def roofline_plot(estimate: Estimate) -> str:
    """Return the roofline as part of a page, with its table; nothing where no operator uses DRAM."""
    figure = roofline_figure(estimate)
    if not figure.data:
        return ""
    listed = records_table("roofline.points", [p.model_dump(mode="json") for p in estimate.roofline.points])
    return plot(figure, 520, "Roofline: each operator below the ceilings of its unit", data=listed)


def roofline_figure(estimate: Estimate) -> go.Figure:
    """Return each operator between the ceilings of its unit: operations a second over operations per byte."""
    points = [point for point in estimate.roofline.points if point.intensity.get("dram")]
    figure = go.Figure()
    if not points:
        return figure
    low = min(point.intensity["dram"] for point in points) / 4
    high = max(point.intensity["dram"] for point in points) * 4
    rates = [point.ops_per_s for point in points]
    _ceilings(figure, estimate, low, high)
    for unit in dict.fromkeys(point.unit for point in points):
        mine = [point for point in points if point.unit == unit]
        figure.add_scatter(
            x=[point.intensity["dram"] for point in mine],
            y=[point.ops_per_s for point in mine],
            mode="markers",
            name=unit,
            marker={"color": UNIT_COLOURS.get(unit, GREY), "size": 11, "line": {"width": 1, "color": "#fff"}},
            text=[
                f"<b>{escape(p.operator)}</b><br>{engineering(p.ops_per_s, 'op/s')}, "
                f"{percent(p.ops_per_s / p.ceiling_ops_per_s)} of {escape(p.limit)}"
                for p in mine
            ],
            hoverinfo="text",
        )
    tops = [
        c.ops_per_s for c in estimate.roofline.ceilings if c.ops_per_s and c.unit in {p.unit for p in points}
    ]
    figure.update_layout(
        xaxis=log_axis("operations for each byte of DRAM", "", low, high),
        yaxis=log_axis("operations a second", "op/s", min(rates) / 2, max([*rates, *tops]) * 1.5),
    )
    return figure


def _ceilings(figure: go.Figure, estimate: Estimate, low: float, high: float) -> None:
    """Draw the ceilings of the units in use: bandwidths as slopes, peak rates as levels."""
    units = {point.unit for point in estimate.roofline.points}
    formats = {(p.unit, f) for p in estimate.roofline.points for f in p.precision.split(" x ")}
    devices = {unit.partition(".")[0] for unit in units}
    for ceiling in estimate.roofline.ceilings:
        of_unit = ceiling.unit in units | devices
        if (
            ceiling.ops_per_s
            and of_unit
            and (ceiling.precision is None or (ceiling.unit, ceiling.precision) in formats)
        ):
            heights = [ceiling.ops_per_s] * 2
            said = f"{ceiling.name} {engineering(ceiling.ops_per_s, 'op/s')}"
        elif ceiling.bytes_per_s and ceiling.level == "dram" and of_unit:
            heights = [low * ceiling.bytes_per_s, high * ceiling.bytes_per_s]
            said = f"{ceiling.name} {engineering(ceiling.bytes_per_s, 'B/s')}"
        else:
            continue
        colour = UNIT_COLOURS.get(ceiling.unit, "#777777")
        dash = "solid" if ceiling.ops_per_s else "dot" if "DMA" in ceiling.name else "dash"
        figure.add_scatter(
            x=[low, high], y=heights, mode="lines", name=said, hoverinfo="name",
            line={"color": colour, "width": 1.5, "dash": dash},
        )  # fmt: skip
