"""The page of a mix: response times of streams, resources, and the time line of the devices."""

from __future__ import annotations

from npusim.reporting.charts import Figure, add_marks, add_spans, blank_figure, line_figure
from npusim.reporting.engineering import Amount, engineering, factor, percent
from npusim.reporting.html import COLOURS, amount_axis, log_axis, names_axis
from npusim.reporting.page import Column, Page, Plot, Remark, Table, document_page, fields
from npusim.system.document import DesignRow, MixResult, MixStudy, StreamAnswer
from npusim.system.statistics import SAME

_FIGURES = ("mean_s", "p50_s", "p90_s", "p99_s", "p999_s")
_SURE = ("mean_s", "p99_s")
"""Figures that are shown with their intervals."""
_WIDE = {"min_width": 18}
_MOST_ROWS = 16
"""Designs beyond which the terminal shows the front alone."""
_SHOWN = 400
"""Spans of the time line in HTML."""


_RESOURCES = (
    Column("name"),
    Column("utilisation", text="{:.1%}"),
    *fields("contexts, preemption"),
)


def mix_page(result: MixResult) -> Page:
    """Return the page of a simulated mix."""
    spans = min(_SHOWN, len(result.spans))
    seconds = f"{result.simulated_s:,.3g} s" if result.simulated_s < 1000 else f"{result.simulated_s:,.0f} s"
    found = result.found_rate
    lines = []
    if found is not None:
        rate, p99 = engineering(found.rate_per_s, "/s"), engineering(found.p99_s, "s")
        lines = [f"{found.stream}: at most {rate}, with a 99th percentile of {p99}"]
    return document_page(
        result,
        "Mix",
        f"{seconds} simulated, scheduler {result.scheduler}, seed {result.seed}; "
        f"{engineering(result.energy_j, 'J')}, {engineering(result.power_w, 'W')}",
        [
            _times(result),
            _loads(result),
            Table(_RESOURCES, result.resources, "Resources", "resources"),
            Plot("Response times", lambda: _time_bars(result)),
            Plot(f"Time line: the first {spans} times of service", lambda: _time_line(result)),
        ],
        [Remark("Largest rate", lines, "cyan")],
        of=(result.title or ", ".join(stream.name for stream in result.streams), result.soc, ""),
    )


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


def _designs(study: MixStudy) -> Table:
    def judged(row: DesignRow) -> StreamAnswer:
        return next(stream for stream in row.streams if stream.name == study.stream)

    def change(row: DesignRow) -> str:
        if row.change is None:
            return "-"
        low, high = row.change
        middle, half = (low + high) / 2.0, (high - low) / 2.0
        if low <= 0.0 <= high:
            return "same" if max(-low, high) <= SAME else f"open: ±{percent(half)}"
        return f"{middle:+.0%} ±{percent(half)}" if middle < 1.0 else f"{factor(1.0 + middle)} ±{half:,.2g}"

    def missed(row: DesignRow) -> str:
        late = [stream.missed_share for stream in row.streams if stream.missed_share is not None]
        return f"{max(late):.2%}" if late else "-"

    def busy(row: DesignRow) -> str:
        return f"{row.contended} {row.utilisation or 0.0:.0%}"

    columns = (
        Column("name", "design", lambda row: f"{row.name}{' *' if row.on_front else ''}", layout=_WIDE),
        Column("p99", f"{study.stream} p99", lambda row: Amount(judged(row).p99_s, "s")),
        Column("mean", show=lambda row: Amount(judged(row).mean_s, "s"), only="html"),
        Column("change", "mean by", change, words=False),
        Column("missed", show=missed),
        Column("busiest", show=busy),
        *fields("power_w, area_mm2: area"),
    )
    rows = [row for row in study.rows if row.refused is None]
    most = max(row.replications for row in study.rows)
    caption = (
        f"mean by: relative change with its 95 % interval, from the same requests (up to {most} seeds); "
        f"same: less than {SAME:.0%}; missed: worst stream"
    )
    few = [row for row in rows if row.on_front or not row.at] if len(rows) > _MOST_ROWS else rows
    caption += f"; {len(rows) - len(few)} more in HTML and JSON" if len(few) < len(rows) else ""
    return Table(columns, rows, "Designs", "rows", caption, few)


def _front_figure(study: MixStudy) -> Figure:
    """Return response time against power, designs of the front apart from the others."""
    names = [stream.name for stream in study.rows[0].streams]
    rows = [row for row in study.rows if row.refused is None]
    points = [(row.power_w or 0.0, row.streams[names.index(study.stream)].p99_s, row) for row in rows]
    power_w, p99_s = [point[0] for point in points], [point[1] for point in points]
    axis = log_axis(f"{study.stream}, 99th percentile", "s", min(p99_s), max(p99_s))
    figure = blank_figure(xaxis=log_axis("power", "W", min(power_w), max(power_w)), yaxis=axis, height=420)
    for number, name in enumerate(("on the front", "others")):
        add_marks(
            figure,
            name,
            [point for point in points if point[2].on_front is (number == 0)],
            lambda point: point[:2],
            {"color": COLOURS[number], "size": 10, "symbol": ("circle", "diamond")[number]},
            lambda point: f"{point[2].name}: {engineering(point[1], 's')}, {engineering(point[0], 'W')}",
        )
    return figure


def _times(result: MixResult) -> Table:
    def within(name: str) -> Column:
        def show(stream: StreamAnswer) -> Amount:
            value, interval = getattr(stream, name), stream.intervals_s[name]
            half = (
                "" if interval is None or name not in _SURE else f" ±{percent((interval[1] - value) / value)}"
            )
            return Amount(value, "s", f"{engineering(value, 's')}{half}")

        return Column(name, _percentile(name), show)

    columns = (Column("name", "stream"), *(within(name) for name in _FIGURES), Column("alone_s", "idle SoC"))
    return Table(columns, result.streams, "Response times", "times", "± half of the 95 % interval")


def _loads(result: MixResult) -> Table:
    columns = (
        *fields("name: stream, throughput_per_s, highest_rate_per_s: below, missed_share"),
        Column("slowdown", "slowed by others", text=factor),
        Column("mean_waiting", "waiting", text="{:.3g}"),
        Column("energy_j"),
        *fields("answers", "html"),
    )
    return Table(columns, result.streams, "Streams", "streams")


def _time_bars(result: MixResult) -> Figure:
    names = [stream.name for stream in result.streams]
    times_s = {key: [getattr(stream, key) for stream in result.streams] for key in _FIGURES}
    known = [time_s for column in times_s.values() for time_s in column if time_s]
    series = {_percentile(key): (column, names) for key, column in times_s.items()}
    axis = (
        log_axis("response time", "s", min(known), max(known)) if known else amount_axis("response time", "s")
    )
    height = 140 + 60 * len(names)
    styles = {name: {"orientation": "h"} for name in series}
    figure = line_figure(series, axis, names_axis(names), mode="markers", height=height, styles=styles)
    return figure.update_layout(scattermode="group")  # marks of equal times stand side by side


def _percentile(key: str) -> str:
    return key.removesuffix("_s").replace("p999", "p99.9")


def _time_line(result: MixResult) -> Figure:
    spans = result.spans[:_SHOWN]
    devices = list(dict.fromkeys(span.device for span in spans))
    axis = amount_axis("time", "s")
    figure = blank_figure(barmode="overlay", xaxis=axis, height=160 + 60 * len(devices))
    for number, stream in enumerate(result.streams):
        own = [
            (one.begin_s, one.end_s - one.begin_s, one.device, f"{one.stream} {one.number}")
            for one in spans
            if one.stream == stream.name
        ]
        if own:
            add_spans(figure, stream.name, COLOURS[number % len(COLOURS)], own)
    return figure
