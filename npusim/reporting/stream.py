"""The page of a stream of updates: what each way to keep up costs, by rate and by capacity."""

from __future__ import annotations

import numpy as np

from npusim.reporting.charts import Figure, amount_bars, line_figure
from npusim.reporting.engineering import engineering
from npusim.reporting.html import COLOURS, amount_axis, log_axis
from npusim.reporting.page import Page, Plot, Remark, document_page
from npusim.reporting.tables import Column, Table, cells_table, fields, marked
from npusim.reporting.terminal import counted
from npusim.studies.stream import Followed
from npusim.studies.stream.document import sustained_per_s


def stream_page(result: Followed) -> Page:
    """Return the page of a followed stream: strategies, rates, capacities, break-even."""
    source = "events of a file" if result.seed is None else f"seed {result.seed}"
    each = f"{counted(result.inferences_per_update, 'inference')} each"
    course = f"nodes {_course(result.nodes)}, edges {_course(result.edges)}"
    capacities = {f"{each.capacity} nodes": each.total_s for each in result.capacities}
    best = min((s for s in result.strategies if s.lost_edges == 0.0), key=lambda s: s.total_s)
    chosen = [each for each in result.capacities if each.capacity == result.capacity]
    strategies = fields(
        "name: way to keep up, compilations, compile_s, mask_s, inference_s, total_s, memory_bytes"
    )
    answers = fields(
        "name: at these rates, answer_s: answer mean, answer_p99_s: p99, in_force_s: update in force"
    )
    timed = [way for way in result.strategies if way.answer_s is not None]
    sized = (
        Column("capacity", text="{}"),
        *fields("compilations, latency_s, total_s, memory_bytes"),
    )
    colours = {f"{result.capacity} nodes": COLOURS[2]}
    title = "Ways to keep up"
    return document_page(
        result,
        "Stream of updates",
        f"{result.updates} updates ({source}), {each}; {course}",
        [
            Plot(
                "Best way by rate of updates (shaded), among those that lose no edge",
                lambda: _rate_figure(result),
            ),
            Table(strategies, result.strategies, title, "strategies", style=marked(best), whole=True),
            Table(answers, timed, "Times to an answer", "answers"),
            _rates(result),
            Plot("Time spent, update by update", lambda: _time_figure(result)),
            Plot("Pad and mask, by capacity", lambda: amount_bars("time in all", "s", capacities, colours)),
            Table(sized, result.capacities, "Capacities", "capacities", style=marked(*chosen)),
            *_stored(result),
        ],
        [Remark("Break-even", _even(result), "cyan"), Remark("Lost edges", _lost(result), "yellow")],
        of=(result.workload, result.soc, result.techniques if result.techniques != "none" else ""),
    )


def _course(values: tuple[int, int, int]) -> str:
    start, end, most = values
    peak = f" (at most {most})" if most > max(start, end) else ""
    return f"{start} to {end}{peak}"


def _rates(result: Followed) -> Table:
    """Return which way leaves time for most inferences at which rate of updates."""
    rows = []
    for best in result.best_by_rate:
        begin, end = engineering(best.from_updates_per_s, ""), best.to_updates_per_s
        updates = f"{begin} and more" if end is None else f"{begin} to {engineering(end, '')}"
        ends = (engineering(v, "") for v in (best.from_inferences_per_s, best.to_inferences_per_s))
        rows.append((updates, best.strategy, " to ".join(dict.fromkeys(ends))))
    headings = ("updates a second", "most inferences a second by", "inferences a second")
    return cells_table(headings, rows, "Best way by rate of updates")


def _stored(result: Followed) -> list[Table]:
    """Return batches with stored hidden features, and nodes that arrive batch after batch."""
    stored = result.stored_features
    if stored is None:
        return []
    figures = "skipped_share: skipped, latency_s: latency, latency_stored_s: with store, storing_s: storing"
    counted_figures = ", ".join(f"counted.{figure}" for figure in figures.split(", "))
    batches = fields(f"roots, stored, {figures}, store_bytes: store")
    counted_ = fields(
        f"roots, stored, {counted_figures}, counted.accuracy, counted.accuracy_stored: with store"
    )
    title = "Batches with stored features"
    tables = [
        Table(batches, stored.batches, title, titled=True),
        Table(counted_, [one for one in stored.batches if one.counted], "Counted on real data", titled=True),
    ]
    if stored.arrivals is not None:
        periods = fields(
            "nodes, batches, skipped_share: skipped, refill_s: refill, longest_latency_s: longest, "
            "longest_latency_stored_s: with store, accuracy, accuracy_stored: with store"
        )
        tables.append(Table(periods, stored.arrivals.periods, "Nodes that arrive, up to", titled=True))
    return tables


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
    series = {
        str(way.name): (list(range(len(way.cumulative_s))), way.cumulative_s) for way in result.strategies
    }
    figure = line_figure(series, {"title": "updates"}, amount_axis("time spent so far", "s"))
    return figure.update_traces(line_shape="hv")


def _rate_figure(result: Followed) -> Figure | None:
    """Return inferences a second over updates a second, a line for each way; the best way is shaded."""
    ways = [way for way in result.strategies if way.latency_s > 0.0]
    limits = [way.most_updates_per_s for way in ways if way.most_updates_per_s is not None]
    if not limits:
        return None
    rates = [float(rate) for rate in np.geomspace(0.03 * min(limits), max(limits), 400)]
    series = {}
    for way in ways:
        name = f"{way.name}, {way.lost_edges:.0%} of the edges lost" if way.lost_edges else str(way.name)
        series[name] = (rates, [sustained_per_s(way, rate) for rate in rates])
    updates = log_axis("updates a second", "/s", rates[0], rates[-1])
    inferences = amount_axis("inferences a second", "")
    figure = line_figure(series, updates, inferences, height=460)
    colours = dict(zip((str(way.name) for way in ways), COLOURS, strict=False))
    for best in result.best_by_rate:
        begin, end = max(best.from_updates_per_s, rates[0]), best.to_updates_per_s or rates[-1]
        if end > begin:
            figure.add_vrect(x0=begin, x1=end, fillcolor=colours[best.strategy], opacity=0.12, line_width=0)
    return figure
