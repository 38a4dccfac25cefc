"""A roofline of one unit: the slope of a bandwidth, the level of a peak rate, and points below."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from npusim.engines import Estimate
from npusim.reporting.html import COLOURS, log_axis


def ceilings(estimate: Estimate) -> tuple[dict[str, float], float]:
    """Return the peak rates of the MAC grid in op/s by format, and the bandwidth of DRAM in B/s."""
    peaks = {
        str(one.precision): one.ops_per_s
        for one in estimate.roofline.ceilings
        if one.unit == "npu.dpu" and one.ops_per_s is not None
    }
    bandwidth = next(
        one.bytes_per_s for one in estimate.roofline.ceilings if one.name == "npu DRAM" and one.bytes_per_s
    )
    return peaks, bandwidth


def roofline(peak: float, bandwidth: float, points: Mapping[str, tuple[float, float]]) -> go.Figure:
    """Return the roof and points below it.

    Parameters
    ----------
    peak : float
        In op/s.
    bandwidth : float
        In B/s.
    points : mapping of str to (float, float)
        Operations for each byte, and operations a second, by what is shown.
    """
    ridge = peak / bandwidth
    low = min([ridge, *(point[0] for point in points.values())]) / 4
    high = max([ridge, *(point[0] for point in points.values())]) * 4
    figure = go.Figure()
    figure.add_scatter(
        x=[low, ridge, high],
        y=[low * bandwidth, peak, peak],
        mode="lines",
        name="roof",
        line={"color": "#444444"},
    )
    for number, (name, (intensity, rate)) in enumerate(points.items()):
        marker = {
            "size": 13,
            "color": COLOURS[number],
            "symbol": number,
            "line": {"width": 1, "color": "#fff"},
        }
        figure.add_scatter(x=[intensity], y=[rate], mode="markers", name=name, marker=marker)
    rates = [point[1] for point in points.values()]
    figure.update_layout(
        xaxis=log_axis("operations for each byte of DRAM", "", low, high),
        yaxis=log_axis("operations a second", "op/s", min([*rates, peak]) / 4, peak * 1.5),
    )
    return figure
