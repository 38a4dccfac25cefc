"""HTML pages of comparisons, placements, streams, accuracies, measurements, searches, with pictures."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from npusim.metrics import METRICS
from npusim.report.document_html import bars, document_html, records_table, titled
from npusim.report.engineering import factor
from npusim.report.html import (
    COLOURS,
    Amount,
    Cell,
    amount_axis,
    log_axis,
    names_axis,
    page,
    plot,
    seconds_axis,
    table,
    text,
)
from npusim.report.placement import verdict
from npusim.studies.stream.rates import sustained_per_s

if TYPE_CHECKING:
    from npusim.accuracy.document import AccuracyReport
    from npusim.explore.search import SearchResult
    from npusim.measure import Measurement
    from npusim.studies.placement_document import Placement
    from npusim.studies.side_by_side import Comparison
    from npusim.studies.stream import Followed

DEVICE_COLOURS = {"npu": COLOURS[0], "cpu": COLOURS[3], "gpu": COLOURS[2]}
_MOST_BARS = 40
_DASHES = ("solid", "dash", "dot", "longdash", "dashdot")


def placement_html(found: Placement, command: str = "") -> str:
    """Return a placement as HTML: all on each device beside the best placement, and each operator's cost."""
    by_energy = found.minimise == "energy"
    unit = "J" if by_energy else "s"
    whole: dict[str, float | None] = {"best placement": found.energy_j if by_energy else found.latency_s}
    whole |= {f"all on {a.device.upper()}": a.energy_j if by_energy else a.latency_s for a in found.alone}
    colours = {f"all on {device.upper()}": colour for device, colour in DEVICE_COLOURS.items()}
    colours["best placement"] = COLOURS[1]
    return document_html(
        found,
        command,
        bars(f"{found.minimise.capitalize()} of an inference", found.minimise, unit, whole, colours=colours),
        _operators(found, unit),
        title=titled("Placement", found.model_dump()),
        lead=verdict(found),
    )


def _operators(found: Placement, unit: str) -> str:
    """Return what each group costs on each device; that on which it is placed is filled."""
    figure = go.Figure()
    groups = found.groups[:_MOST_BARS]
    for device in found.devices:
        costs = [group.costs[device] for group in groups]
        values = [cost.energy_j if unit == "J" else cost.latency_s for cost in costs]
        placed = [1.0 if group.device == device else 0.25 for group in groups]
        figure.add_bar(
            x=values,
            y=[group.name for group in groups],
            orientation="h",
            name=device.upper(),
            marker={"color": DEVICE_COLOURS.get(device, COLOURS[5]), "opacity": placed},
            hovertemplate="%{y} on " + device.upper() + ": %{x:.3~s}" + unit + "<extra></extra>",
        )
    scale = seconds_axis("latency") if unit == "s" else amount_axis("energy", unit, log=True)
    figure.update_layout(barmode="group", xaxis=scale, yaxis=names_axis([group.name for group in groups]))
    title = "Operators by device: a full bar is where it runs"
    return plot(figure, 160 + 16 * len(groups) * len(found.devices), title)


def compare_html(found: Comparison, command: str = "") -> str:
    """Return runs side by side as HTML: latency and energy of each, their operators on one scale, ratios."""
    runs = found.runs
    colours = {run.name: COLOURS[i % len(COLOURS)] for i, run in enumerate(runs)}
    figure = go.Figure()
    shown = found.operators[:_MOST_BARS]
    for number, run in enumerate(runs):
        costs = [op.runs[number] for op in shown]
        figure.add_bar(
            x=[None if cost is None else cost.latency_s for cost in costs],
            y=[op.name for op in shown],
            orientation="h",
            name=run.name,
            marker={"color": colours[run.name]},
            hovertemplate="%{y}: %{x:.3~s}s<extra></extra>",
        )
    names = [op.name for op in shown]
    figure.update_layout(barmode="group", xaxis=seconds_axis("latency", log=False), yaxis=names_axis(names))
    columns = {f"figures.{name}": METRICS[name].title for name in METRICS if name in runs[0].figures}
    listed = records_table("runs", [run.model_dump(mode="json") for run in runs], {"name": "run", **columns})
    about = {key: values.pop() for key in _OF_RUN if len(values := {getattr(run, key) for run in runs}) == 1}
    bars_of = [
        bars(title, title.lower(), unit, {run.name: run.figures[key] for run in runs}, colours=colours)
        for title, key, unit in (("Latency", "latency_s", "s"), ("Energy", "energy_j", "J"))
    ]
    return page(
        titled("Side by side", about),
        text(" beside ".join(run.name for run in runs)),
        *bars_of,
        "<h2>Figures</h2>",
        listed,
        plot(figure, 150 + 18 * len(shown) * (len(runs) + 1), "Operators, each by itself"),
        _compared(found),
        notes=found.notes,
        command=command,
    )


_OF_RUN = ("workload", "soc", "techniques")


def _compared(found: Comparison) -> str:
    """Return the table of operators: time and energy in each run, ratios to the first."""
    heads = [
        "operator",
        *(f"{run.name}: {what}" for run in found.runs for what in ("time", "energy", "of the first")),
    ]
    rows: list[list[Cell]] = []
    for op in found.operators:
        cells: list[Cell] = [op.name]
        for cost, ratio in zip(op.runs, op.ratios, strict=True):
            cells.append(Amount(None if cost is None else cost.latency_s, "s"))
            cells.append(Amount(None if cost is None else cost.energy_j, "J"))
            cells.append(Amount(ratio, "", "" if ratio is None else factor(ratio)))
        rows.append(cells)
    return table(heads, rows, name="compared-operators")


def stream_html(found: Followed, command: str = "") -> str:
    """Return a followed stream as HTML: best way by rate of updates, time by update and by capacity."""
    figure = go.Figure()
    for number, strategy in enumerate(found.strategies):
        line = {"color": COLOURS[number], "shape": "hv", "dash": _DASHES[number % len(_DASHES)]}
        figure.add_scatter(y=strategy.cumulative_s, name=strategy.name, mode="lines", line=line)
    figure.update_layout(xaxis_title="updates", yaxis=seconds_axis("time spent so far", log=False))
    capacities = {f"{each.capacity} nodes": each.total_s for each in found.capacities}
    chosen = {f"{found.capacity} nodes": COLOURS[2]}
    return document_html(
        found,
        command,
        _rates(found),
        plot(figure, 420, "Time spent, update by update"),
        bars("Pad and mask, by capacity", "time in all", "s", capacities, colours=chosen),
        title=titled("Stream of updates", found.model_dump()),
    )


def _rates(found: Followed) -> str:
    """Return inferences a second over updates a second, a line for each way, above it where which is best."""
    figure = go.Figure()
    ways = [way for way in found.strategies if way.latency_s > 0.0]
    limits = [way.most_updates_per_s for way in ways if way.most_updates_per_s is not None]
    if not limits:
        return ""
    rates = [float(rate) for rate in np.geomspace(0.03 * min(limits), max(limits), 400)]
    for number, way in enumerate(ways):
        name = f"{way.name}, {way.lost_edges:.0%} of the edges lost" if way.lost_edges else way.name
        figure.add_scatter(
            x=rates, y=[sustained_per_s(way, rate) for rate in rates], name=name, mode="lines",
            line={"color": COLOURS[number], "dash": "dot" if way.lost_edges else "solid"},
            hovertemplate=f"{escape(name)}: %{{y:.3~s}}/s at %{{x:.3~s}} updates/s<extra></extra>",
        )  # fmt: skip
    colours = {str(way.name): COLOURS[number] for number, way in enumerate(ways)}
    for best in found.best_by_rate:
        begin, end = max(best.from_updates_per_s, rates[0]), best.to_updates_per_s or rates[-1]
        if end > begin:
            figure.add_vrect(x0=begin, x1=end, fillcolor=colours[best.strategy], opacity=0.12, line_width=0)
    figure.update_layout(
        xaxis=log_axis("updates a second", "/s", rates[0], rates[-1]),
        yaxis={"title": "inferences a second", "tickformat": "~s", "rangemode": "tozero"},
    )
    rows: list[list[Cell]] = [
        [
            way.name, Amount(way.startup_s, "s"), Amount(way.update_s, "s"), Amount(way.latency_s, "s"),
            Amount(way.most_updates_per_s, "/s"), Amount(way.memory_bytes, "B"),
            Amount(way.lost_edges, "", f"{way.lost_edges:.0%}"),
            Amount(way.accuracy, "", "" if way.accuracy is None else f"{way.accuracy:.1%}"),
        ]
        for way in ways
    ]  # fmt: skip
    heads = (
        "way to keep up",
        "start",
        "update",
        "inference",
        "most updates",
        "memory",
        "lost edges",
        "accuracy",
    )
    bests = records_table("best-by-rate", [best.model_dump() for best in found.best_by_rate])
    title = "Best way by rate of updates (shaded), among those that lose no edge"
    return plot(figure, 460, title, data=bests) + table(heads, rows, name="ways")


def accuracy_html(found: AccuracyReport, command: str = "") -> str:
    """Return accuracies as HTML: a bar for each stack, by workload."""
    figure = go.Figure()
    for number, workload in enumerate(dict.fromkeys(one.workload for one in found.results)):
        rows = [one for one in found.results if one.workload == workload]
        figure.add_bar(
            x=[100.0 * one.accuracy for one in rows],
            y=[f"{one.techniques}, {one.numbers}" for one in rows],
            orientation="h",
            name=workload,
            marker={"color": COLOURS[number % len(COLOURS)]},
            text=[f"{100.0 * one.accuracy:.1f} %" for one in rows],
        )
    figure.update_layout(
        xaxis={"title": "accuracy (%)", "range": [0, 100]},
        yaxis=names_axis(list(dict.fromkeys(f"{one.techniques}, {one.numbers}" for one in found.results))),
        barmode="group",
    )
    named = ", ".join(dict.fromkeys(one.workload for one in found.results))
    drawn = plot(figure, 160 + 28 * len(found.results), "Accuracy by technique stack") if named else ""
    return document_html(found, command, drawn, title=f"Accuracy: {named}")


def measurement_html(found: Measurement, command: str = "") -> str:
    """Return a measurement as HTML: the latency of each row, its operators, and its conditions."""
    latencies = {row.id: row.latency_s.median_s for row in found.rows[:_MOST_BARS] if row.latency_s}
    operators = [
        {"row": row.id, **counter.model_dump(include={"name", "type", "latency_s"})}
        for row in found.rows
        for counter in row.operators
    ]
    operators.sort(key=lambda one: -one["latency_s"])
    listed = records_table("operators", operators, most=100)
    return document_html(
        found,
        command,
        bars("Median latency", "latency", "s", latencies),
        f"<h2>Operators that take longest</h2>{listed}" if operators else "",
        title=f"Measurement on {found.device.name}",
    )


def search_html(found: SearchResult, command: str = "") -> str:
    """Return a search as HTML: the volume that its front dominates, evaluation by evaluation."""
    figure = go.Figure()
    evaluations = [step.evaluations for step in found.steps]
    for name, values, colour in (
        ("evolution", [step.evolution for step in found.steps], COLOURS[0]),
        ("random search", [step.chance for step in found.steps], COLOURS[1]),
    ):
        figure.add_scatter(x=evaluations, y=values, name=name, mode="lines", line={"color": colour})
    figure.update_layout(xaxis_title="evaluations", yaxis_title="dominated hypervolume (share)")
    return document_html(found, command, plot(figure, 420, "What the search has found"))
