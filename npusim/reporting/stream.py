"""The page of a stream of updates: what each way to keep up costs, by rate and by capacity."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from rich.console import RenderableType

from npusim.reporting.charts import Figure, amount_bars, line_figure
from npusim.reporting.engineering import engineering
from npusim.reporting.html import COLOURS, amount_axis, log_axis
from npusim.reporting.page import Column, Page, Plot, Remark, Section, Table, document_page, fields
from npusim.reporting.terminal import bar, counted
from npusim.studies.stream import Followed
from npusim.studies.stream.document import sustained_per_s

_DASHES = ("solid", "dash", "dot", "longdash", "dashdot")
_CHOSEN = "bold green"


def stream_page(result: Followed) -> Page:
    """Return the page of a followed stream: strategies, rates, capacities, break-even."""
    source = "events of a file" if result.seed is None else f"seed {result.seed}"
    each = f"{counted(result.inferences_per_update, 'inference')} each"
    course = f"nodes {_course(result.nodes)}, edges {_course(result.edges)}"
    capacities = {f"{each.capacity} nodes": each.total_s for each in result.capacities}
    chosen = {f"{result.capacity} nodes": COLOURS[2]}
    rates = "Best way by rate of updates (shaded), among those that lose no edge"
    return document_page(
        result,
        "Stream of updates",
        f"{result.updates} updates ({source}), {each}; {course}",
        [
            Plot(rates, lambda: _rate_figure(result)),
            _strategies(result),
            *_answers(result),
            _rates(result),
            Plot("Time spent, update by update", lambda: _time_figure(result)),
            Plot("Pad and mask, by capacity", lambda: amount_bars("time in all", "s", capacities, chosen)),
            _capacities(result),
            *_stored(result),
        ],
        [Remark("Break-even", _even(result), "cyan"), Remark("Lost edges", _lost(result), "yellow")],
        of=(result.workload, result.soc, result.techniques if result.techniques != "none" else ""),
    )


def _course(values: tuple[int, int, int]) -> str:
    start, end, most = values
    peak = f" (at most {most})" if most > max(start, end) else ""
    return f"{start} to {end}{peak}"


def _strategies(result: Followed) -> Table:
    best = min((s for s in result.strategies if s.lost_edges == 0.0), key=lambda s: s.total_s)
    columns = (
        *fields("name: way to keep up, compilations, compile_s, mask_s, inference_s, total_s"),
        *fields("memory_bytes"),
    )
    rows, title = result.strategies, "Ways to keep up"
    return Table(columns, rows, title, "strategies", style=lambda s: _CHOSEN if s is best else "", whole=True)


def _answers(result: Followed) -> list[Section]:
    """Return the times to an answer, where rates were asked for."""
    columns = (
        Column("name", "at these rates"),
        Column("answer_s", "answer, mean"),
        *fields("answer_p99_s: p99, in_force_s: update in force"),
    )
    rows = [way for way in result.strategies if way.answer_s is not None]
    return [Table(columns, rows, "Times to an answer", "answers")] if rows else []


def _rates(result: Followed) -> Table:
    """Return which way leaves time for most inferences at which rate of updates."""
    longest = max((best.from_inferences_per_s for best in result.best_by_rate), default=0.0)

    def updates(best: Any) -> str:
        begin, end = engineering(best.from_updates_per_s, ""), best.to_updates_per_s
        return f"{begin} and more" if end is None else f"{begin} to {engineering(end, '')}"

    def inferences(best: Any) -> str:
        ends = (engineering(v, "") for v in (best.from_inferences_per_s, best.to_inferences_per_s))
        return " to ".join(dict.fromkeys(ends))

    columns = (
        Column("", "updates a second", updates),
        Column("strategy", "most inferences a second by"),
        Column("", "inferences a second", inferences, words=False),
        Column("", "", lambda best: bar(best.from_inferences_per_s, longest, width=16), "terminal"),
    )
    return Table(columns, result.best_by_rate, "Best way by rate of updates")


def _capacities(result: Followed) -> Table:
    longest = max(each.total_s for each in result.capacities)

    def style(each: Any) -> str:
        return _CHOSEN if each.capacity == result.capacity else ""

    def total_bar(each: Any) -> RenderableType:
        return bar(each.total_s, longest, "green" if style(each) else "cyan", 24)

    columns = (
        Column("capacity", text="{}"),
        *fields("compilations, latency_s, total_s, memory_bytes"),
        Column("", "", total_bar, "terminal"),
    )
    return Table(columns, result.capacities, "Capacities", "capacities", style=style)


def _stored(result: Followed) -> list[Section]:
    """Return batches with stored hidden features, and nodes that arrive batch after batch."""
    stored = result.stored_features
    if stored is None:
        return []

    def columns(heading: str, part: str) -> tuple[Column, ...]:
        return (
            Column("", heading, lambda row: f"{row.roots} roots, {row.stored:.0%} stored"),
            Column(f"{part}skipped_share", "skipped"),
            Column(f"{part}latency_s", "latency"),
            Column(f"{part}latency_stored_s", "with store"),
            Column(f"{part}storing_s", "storing"),
        )

    by_batch = (*columns("batches with stored features", ""), Column("store_bytes", "store"))
    sections: list[Section] = [Table(by_batch, stored.batches)]
    if stored.arrivals is None:
        return sections
    counted_ = (*columns("counted on real data", "counted."), _accuracies(lambda row: row.counted))
    periods = (
        Column("", "nodes that arrive", lambda period: f"up to {period.nodes} nodes"),
        *fields("batches, skipped_share, refill_s: refill, longest_latency_s: longest"),
        *fields("longest_latency_stored_s: with store"),
        _accuracies(lambda period: period),
    )
    return [*sections, Table(counted_, stored.batches), Table(periods, stored.arrivals.periods)]


def _accuracies(of: Any) -> Column:
    def show(row: Any) -> str:
        return f"{100 * of(row).accuracy:.1f} / {100 * of(row).accuracy_stored:.1f} %"

    return Column("", "accuracy", show, words=False)


def _lost(result: Followed) -> list[str]:
    """Return what ways that leave edges out do to the answers."""
    lines = []
    for one in result.strategies:
        if one.lost_edges > 0.0:
            effect = "--accuracy tells what that costs"
            if one.accuracy is not None and one.accuracy_of_all_edges is not None:
                effect = f"accuracy {one.accuracy:.1%} instead of {one.accuracy_of_all_edges:.1%}"
            size = ", ".join(map(str, one.compiled_nodes))
            lines.append(f"{one.name} of {size} nodes lose {one.lost_edges:.0%} of the edges: {effect}")
    return lines


def _even(result: Followed) -> list[str]:
    """Return where padding and recompiling cost the same."""
    if result.breakeven_capacity is None:
        lines = ["no capacity pays on this stream: to recompile each time takes less"]
    else:
        limit = ", where the search ends" if result.breakeven_is_limit else ""
        lines = [f"padding pays up to a capacity of {result.breakeven_capacity} nodes{limit}"]
    if result.breakeven_inferences is not None:
        most = engineering(max(0.0, result.breakeven_inferences), "")
        lines.append(f"at {result.capacity} nodes it pays up to {most} inferences between two updates")
    return lines


def _time_figure(result: Followed) -> Figure:
    series, styles = {}, {}
    for i, way in enumerate(result.strategies):
        line = {"color": COLOURS[i], "shape": "hv", "dash": _DASHES[i % len(_DASHES)]}
        series[str(way.name)] = (list(range(len(way.cumulative_s))), way.cumulative_s)
        styles[str(way.name)] = {"line": line}
    spent = amount_axis("time spent so far", "s")
    return line_figure(series, {"title": "updates"}, spent, styles=styles)


def _rate_figure(result: Followed) -> Figure | None:
    """Return inferences a second over updates a second, a line for each way; the best way is shaded."""
    ways = [way for way in result.strategies if way.latency_s > 0.0]
    limits = [way.most_updates_per_s for way in ways if way.most_updates_per_s is not None]
    if not limits:
        return None
    rates = [float(rate) for rate in np.geomspace(0.03 * min(limits), max(limits), 400)]
    series, styles, colours = {}, {}, {}
    for i, way in enumerate(ways):
        name = f"{way.name}, {way.lost_edges:.0%} of the edges lost" if way.lost_edges else str(way.name)
        colours[str(way.name)] = COLOURS[i]
        series[name] = (rates, [sustained_per_s(way, rate) for rate in rates])
        styles[name] = {
            "line": {"color": COLOURS[i], "dash": "dot" if way.lost_edges else "solid"},
            "hovertemplate": f"{escape(name)}: %{{y:.3~s}}/s at %{{x:.3~s}} updates/s<extra></extra>",
        }
    inferences = {"title": "inferences a second", "tickformat": "~s", "rangemode": "tozero"}
    updates = log_axis("updates a second", "/s", rates[0], rates[-1])
    figure = line_figure(series, updates, inferences, styles=styles, height=460)
    for best in result.best_by_rate:
        begin, end = max(best.from_updates_per_s, rates[0]), best.to_updates_per_s or rates[-1]
        if end > begin:
            figure.add_vrect(x0=begin, x1=end, fillcolor=colours[best.strategy], opacity=0.12, line_width=0)
    return figure
