"""Sections of an estimate on request: what a package sustains, and the network on several devices."""

from __future__ import annotations

from npusim.engines.estimate import RUNNING_MEAN, Divided, Estimate, SplitWay, Sustained
from npusim.reporting.charts import line_figure
from npusim.reporting.engineering import Amount, with_bounds
from npusim.reporting.html import log_axis
from npusim.reporting.page import Column, Plot, Section, Table, fields


def sustained_sections(estimate: Estimate) -> list[Section]:
    """Return burst and sustained throughput, where they were asked for, and power and heat over time."""
    figures = estimate.sustained
    if figures is None:
        return []
    lasts = "for ever"
    if figures.burst_s is not None:
        lasts = with_bounds(figures.burst_s, "s", figures.intervals.get("burst_s"))
    rows = [
        ("without limits", "throughput_per_s", "power_w", estimate, ""),
        (f"burst, {lasts}", "burst_per_s", "burst_w", figures, figures.ends_by),
        ("sustained", "throughput_per_s", "power_w", figures, figures.held_by),
    ]

    def amount(owner: Estimate | Sustained, name: str, unit: str) -> Amount:
        value = getattr(owner, name)
        return Amount(value, unit, with_bounds(value, unit, owner.intervals.get(name)))

    columns = (
        Column("", "again and again", lambda row: row[0]),
        Column("", "throughput", lambda row: amount(row[3], row[1], "/s")),
        Column("", "power", lambda row: amount(row[3], row[2], "W")),
        Column("", "limited by", lambda row: row[4]),
    )
    times = [moment.time_s for moment in figures.course]
    lines = {"power (W)": (times, [moment.power_w for moment in figures.course])}
    for name in figures.course[0].figures:
        title = f"{name} (K)" if name != RUNNING_MEAN else "running mean of the power (W)"
        lines[title] = (times, [moment.figures[name] for moment in figures.course])
    return [
        Plot(
            "Power, and temperatures above the room, from idle",
            lambda: line_figure(lines, log_axis("time", "s", times[0], times[-1]), {"title": "W, K"}),
            Table(columns, rows, name="sustained", titled=False),
        )
    ]


def divided_sections(divided: Divided | None) -> list[Section]:
    """Return the ways to divide a network over equal devices, the chosen one marked."""
    if divided is None:
        return []
    columns = (
        Column("name", f"over {', '.join(divided.devices)}"),
        *fields("latency_s, throughput_per_s, energy_j, dram_bytes, exchanged_bytes, exchanges"),
    )
    caption = f"requests and layers: {divided.requests} inferences in flight"

    def style(way: SplitWay) -> str:
        return "bold green" if way.name == divided.chosen else ""

    return [Table(columns, divided.ways, "Devices of a kind", "devices-of-a-kind", caption, style=style)]
