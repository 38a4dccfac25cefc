"""The page of a mix: response times of streams, resources, and the time line of the devices."""

from __future__ import annotations

from npusim.reporting.charts import Figure, add_groups, add_tracks, blank_figure, line_figure
from npusim.reporting.engineering import Amount, Cell, engineering, factor, percent
from npusim.reporting.html import amount_axis, log_axis, names_axis
from npusim.reporting.page import Page, Plot, Remark, document_page
from npusim.reporting.tables import Column, Table, cells_table, fields, grouped
from npusim.system.document import DesignRow, MixResult, MixStudy, StreamAnswer
from npusim.system.statistics import SAME

_FIGURES = {"mean_s": "mean", "p50_s": "p50", "p90_s": "p90", "p99_s": "p99", "p999_s": "p99.9"}
_SURE = ("mean_s", "p99_s")
"""Figures that are shown with their intervals."""
_MOST_ROWS = 16
"""Designs that the terminal shows, those of the front first."""
_SHOWN = 400
"""Spans of the time line in HTML."""


def mix_page(result: MixResult) -> Page:
    """Return the page of a simulated mix."""
    spans = min(_SHOWN, len(result.spans))
    seconds = f"{result.simulated_s:,.3g} s" if result.simulated_s < 1000 else f"{result.simulated_s:,.0f} s"
    found, lines = result.found_rate, []
    if found is not None:
        rate, p99 = engineering(found.rate_per_s, "/s"), engineering(found.p99_s, "s")
        lines = [f"{found.stream}: at most {rate}, with a 99th percentile of {p99}"]
    times = (
        Column("name", "stream"),
        *(Column(key, name, lambda s, key=key: _time(s, key)) for key, name in _FIGURES.items()),
        Column("alone_s", "idle SoC"),
    )
    streams = (
        *fields("name: stream, throughput_per_s, highest_rate_per_s: below, missed_share"),
        Column("slowdown", "slowed by others", text=factor),
        Column("mean_waiting", "waiting", text="{:.3g}"),
        Column("energy_j"),
        *fields("answers", "html"),
    )
    resources = (Column("name"), Column("utilisation", text="{:.1%}"), *fields("contexts, preemption"))
    meaning = "± half of the 95 % interval"
    return document_page(
        result,
        "Mix",
        f"{seconds} simulated, scheduler {result.scheduler}, seed {result.seed}; "
        f"{engineering(result.energy_j, 'J')}, {engineering(result.power_w, 'W')}",
        [
            Table(times, result.streams, "Response times", "times", meaning),
            Table(streams, result.streams, "Streams", "streams"),
            Table(resources, result.resources, "Resources", "resources"),
            Plot("Response times", lambda: _time_bars(result)),
            Plot(f"Time line: the first {spans} times of service", lambda: _time_line(result)),
        ],
        [Remark("Largest rate", lines, "cyan")],
        of=(result.title or ", ".join(stream.name for stream in result.streams), result.soc, ""),
    )


def _time(stream: StreamAnswer, key: str) -> Amount:
    value, interval = getattr(stream, key), stream.intervals_s[key]
    half = "" if interval is None or key not in _SURE else f" ±{percent((interval[1] - value) / value)}"
    return Amount(value, "s", f"{engineering(value, 's')}{half}")


def study_page(study: MixStudy) -> Page:
    """Return the page of a mix on many designs."""
    refused = [f"{row.name}: {row.refused}" for row in study.rows if row.refused]
    return document_page(
        study,
        "Designs for a mix",
        f"{len(study.rows)} designs, {study.simulated_s:,.3g} s each, scheduler {study.scheduler}, "
        f"seed {study.seed}; * on the front of {', '.join(study.minimise)}",
        [_designs(study), Plot("Response time and power", lambda: _front_figure(study))],
        [Remark("Refused", refused, "yellow")],
        of=(study.title or ", ".join(each.name for each in study.rows[0].streams), study.soc, ""),
    )


def _judged(study: MixStudy, row: DesignRow) -> StreamAnswer:
    return next(stream for stream in row.streams if stream.name == study.stream)


def _change(row: DesignRow) -> str:
    """Return how the mean changes from the first design, with half of its interval."""
    if row.change is None:
        return "-"
    low, high = row.change
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    if low <= 0.0 <= high:
        return "same" if max(-low, high) <= SAME else f"open: ±{percent(half)}"
    return f"{middle:+.0%} ±{percent(half)}" if middle < 1.0 else f"{factor(1.0 + middle)} ±{half:,.2g}"


def _designs(study: MixStudy) -> Table:
    rows = sorted(
        (row for row in study.rows if row.refused is None), key=lambda row: bool(row.at) and not row.on_front
    )

    def cells(row: DesignRow) -> tuple[Cell, ...]:
        late = [stream.missed_share for stream in row.streams if stream.missed_share is not None]
        return (
            f"{row.name}{' *' if row.on_front else ''}",
            Amount(_judged(study, row).p99_s, "s"),
            Amount(_judged(study, row).mean_s, "s"),
            _change(row),
            f"{max(late):.2%}" if late else "-",
            f"{row.contended} {row.utilisation or 0.0:.0%}",
            Amount(row.power_w, "W"),
            Amount(row.area_mm2, "mm²"),
        )

    most = max(row.replications for row in study.rows)
    caption = (
        f"mean by: relative change with its 95 % interval, from the same requests (up to {most} seeds); "
        f"same: less than {SAME:.0%}; missed: worst stream"
    )
    headings = ("design", f"{study.stream} p99", "mean", "mean by", "missed", "busiest", "power", "area")
    shown = list(map(cells, rows))
    return cells_table(headings, shown, "Designs", "rows", caption=caption, most=_MOST_ROWS)


def _front_figure(study: MixStudy) -> Figure:
    """Return response time against power, designs of the front apart from the others."""
    rows = [row for row in study.rows if row.refused is None]
    response = amount_axis(f"{study.stream}, 99th percentile", "s")
    figure = blank_figure(xaxis=amount_axis("power", "W"), yaxis=response, height=420)

    def place(row: DesignRow) -> tuple[float, float]:
        return row.power_w or 0.0, _judged(study, row).p99_s

    groups = grouped(rows, lambda row: "on the front" if row.on_front else "others")
    add_groups(figure, groups, place, lambda row: row.name, size=10)
    return figure


def _time_bars(result: MixResult) -> Figure:
    names = [stream.name for stream in result.streams]
    times_s = {name: [getattr(s, key) for s in result.streams] for key, name in _FIGURES.items()}
    known = [time_s for column in times_s.values() for time_s in column if time_s]
    series = {name: (column, names) for name, column in times_s.items()}
    axis = amount_axis("response time", "s")
    if known:
        axis = log_axis("response time", "s", min(known), max(known))
    height = 140 + 60 * len(names)
    figure = line_figure(series, axis, names_axis(names), mode="markers", height=height)
    # Marks of equal times stand side by side.
    return figure.update_traces(orientation="h").update_layout(scattermode="group")


def _time_line(result: MixResult) -> Figure:
    spans = result.spans[:_SHOWN]
    height = 160 + 60 * len({span.device for span in spans})
    figure = blank_figure(barmode="overlay", xaxis=amount_axis("time", "s"), height=height)
    bars = [
        (one.stream, (one.begin_s, one.end_s - one.begin_s, one.device, f"{one.stream} {one.number}"))
        for one in spans
    ]
    add_tracks(figure, bars)
    return figure
