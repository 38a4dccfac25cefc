"""A stream for the terminal: what each way to keep up costs, by capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.report.engineering import engineering
from npusim.report.terminal import bar, counted, headed, remarks, title

if TYPE_CHECKING:
    from npusim.studies.stream import Followed


def stream_page(result: Followed) -> RenderableType:
    """Return a followed stream for the terminal: strategies, capacities, break-even."""
    source = "events of a file" if result.seed is None else f"seed {result.seed}"
    each = f"{counted(result.inferences_per_update, 'inference')} each"
    course = f"nodes {_course(result.nodes)}, edges {_course(result.edges)}"
    head = f"{result.updates} updates ({source}), {each}; {course}"
    parts: list[RenderableType] = [
        title(result.workload, result.soc, result.techniques if result.techniques != "none" else ""),
        Text(head, style="dim"),
        Text(),
        _strategies(result),
        Text(),
        _rates(result),
        Text(),
        _capacities(result),
        Text(),
        *_stored(result),
        remarks(
            ("Break-even", "cyan", _even(result)),
            ("Lost edges", "yellow", _lost(result)),
            ("Note", "dim", result.notes),
        ),
        Text(),
    ]
    return Group(*parts, Text(result.conclusion, style="bold"))


def _course(values: tuple[int, int, int]) -> str:
    start, end, most = values
    peak = f" (at most {most})" if most > max(start, end) else ""
    return f"{start} to {end}{peak}"


def _strategies(result: Followed) -> Table:
    best = min((s for s in result.strategies if s.lost_edges == 0.0), key=lambda s: s.total_s)
    table = headed("way to keep up", "compiled", "compile", "mask", "inference", "total", "memory")
    for strategy in result.strategies:
        table.add_row(
            strategy.name,
            f"{strategy.compilations}x",
            engineering(strategy.compile_s, "s"),
            engineering(strategy.mask_s, "s"),
            engineering(strategy.inference_s, "s"),
            engineering(strategy.total_s, "s"),
            engineering(strategy.memory_bytes, "B"),
            style="bold green" if strategy is best else "",
        )
    return table


def _stored(result: Followed) -> list[RenderableType]:
    """Return batches with stored hidden features, and nodes that arrive batch after batch."""
    found = result.stored_features
    if found is None:
        return []
    seconds = ("latency_s", "latency_stored_s", "storing_s")
    headings = ("skipped", "latency", "with store", "storing")
    table = headed("batches with stored features", *headings, "store")
    for row in found.batches:
        times = [engineering(getattr(row, name), "s") for name in seconds]
        cells = [f"{row.skipped_share:.0%}", *times, engineering(row.store_bytes, "B")]
        table.add_row(f"{row.roots} roots, {row.stored:.0%} stored", *cells)
    parts: list[RenderableType] = [table, Text()]
    if found.arrivals is None:
        return parts
    real = headed("counted on real data", *headings)
    real.add_column("accuracy", justify="right", no_wrap=True)
    for row in found.batches:
        assert row.counted is not None, "both come from one run"
        times = [engineering(getattr(row.counted, name), "s") for name in seconds]
        judged = f"{100 * row.counted.accuracy:.1f} / {100 * row.counted.accuracy_stored:.1f} %"
        cells = [f"{row.counted.skipped_share:.0%}", *times, judged]
        real.add_row(f"{row.roots} roots, {row.stored:.0%} stored", *cells)
    return [*parts, real, Text(), _periods(result), Text()]


def _periods(result: Followed) -> Table:
    """Return the stream in time, renewal by renewal."""
    assert result.stored_features is not None and result.stored_features.arrivals is not None
    table = headed("nodes that arrive", "batches", "skipped", "refill", "longest", "with store")
    table.add_column("accuracy", justify="right", no_wrap=True)
    for period in result.stored_features.arrivals.periods:
        seconds = (period.refill_s, period.longest_latency_s, period.longest_latency_stored_s)
        table.add_row(
            f"up to {period.nodes} nodes",
            str(period.batches),
            f"{period.skipped_share:.0%}",
            *(engineering(value, "s") for value in seconds),
            f"{100 * period.accuracy:.1f} / {100 * period.accuracy_stored:.1f} %",
        )
    return table


def _rates(result: Followed) -> Table:
    """Return which way leaves time for most inferences at which rate of updates."""
    table = headed("updates a second", overflow="fold")
    table.add_column("most inferences a second by", no_wrap=True)
    table.add_column("inferences a second", justify="right", no_wrap=True)
    table.add_column("", ratio=1)
    most = max((best.from_inferences_per_s for best in result.best_by_rate), default=0.0)
    for best in result.best_by_rate:
        begin, end = engineering(best.from_updates_per_s, ""), best.to_updates_per_s
        rates = f"{begin} and more" if end is None else f"{begin} to {engineering(end, '')}"
        sustained = [engineering(v, "") for v in (best.from_inferences_per_s, best.to_inferences_per_s)]
        told = " to ".join(dict.fromkeys(sustained))
        table.add_row(rates, best.strategy, told, bar(best.from_inferences_per_s, most, width=16))
    return table


def _capacities(result: Followed) -> Table:
    longest = max(each.total_s for each in result.capacities)
    table = headed("capacity", "compiled", "latency", "total", "memory", justify="right")
    table.add_column("total", ratio=1)
    for each in result.capacities:
        chosen = each.capacity == result.capacity
        table.add_row(
            str(each.capacity),
            f"{each.compilations}x",
            engineering(each.latency_s, "s"),
            engineering(each.total_s, "s"),
            engineering(each.memory_bytes, "B"),
            bar(each.total_s, longest, "green" if chosen else "cyan", 24),
            style="bold green" if chosen else "",
        )
    return table


def _lost(result: Followed) -> list[str]:
    """Return what ways that leave edges out do to the answers."""
    lines = []
    for one in result.strategies:
        if one.lost_edges > 0.0:
            told = "--accuracy tells what that costs"
            if one.accuracy is not None and one.accuracy_of_all_edges is not None:
                told = f"accuracy {one.accuracy:.1%} instead of {one.accuracy_of_all_edges:.1%}"
            size = ", ".join(map(str, one.compiled_nodes))
            lines.append(f"{one.name} of {size} nodes lose {one.lost_edges:.0%} of the edges: {told}")
    return lines


def _even(result: Followed) -> list[str]:
    """Return where padding and recompiling cost the same."""
    lines = []
    if result.breakeven_capacity is None:
        lines.append("no capacity pays on this stream: to recompile each time takes less")
    else:
        limit = ", where the search ends" if result.breakeven_is_limit else ""
        lines.append(f"padding pays up to a capacity of {result.breakeven_capacity} nodes{limit}")
    if result.breakeven_inferences is not None:
        most = max(0.0, result.breakeven_inferences)
        lines.append(
            f"at {result.capacity} nodes it pays up to {engineering(most, '')} inferences between two updates"
        )
    return lines
