"""The page of a comparison of technique stacks: figures, waterfall, speed-ups along varied settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from itertools import product
from statistics import median
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from npusim.reporting.charts import Figure, add_launch, add_marks, blank_figure, line_figure
from npusim.reporting.engineering import (
    Cell,
    cell,
    engineering,
    factor,
    factors,
    last_digit,
    last_digit_of_rate,
)
from npusim.reporting.html import COLOURS, amount_axis, log_axis, names_axis
from npusim.reporting.memory import KINDS, SHORT_KINDS, kind_bars
from npusim.reporting.page import Column, Page, Plot, Remark, Section, Table, document_page, fields, grouped
from npusim.reporting.terminal import LongName, conditions, drawn_table
from npusim.studies.comparison import Crossover, Untouched, Variant, WhatIf
from npusim.techniques import NONE

_KEPT, _SAVED, _LOST = "cyan", "green", "red"
_LONGEST = 20  # characters of the longest bar of the waterfall
# Longest time that is drawn in full, in medians of all stacks, for the baseline twice that: one slow stack
# flattens no other.
_TIMES_MEDIAN = 2.0
_PAYS = 1.005  # least speed-up that counts as a gain
_NARROWEST = 12  # least width of stack names beside the values of a setting, in characters
# Ratio of the longest to the shortest time from which a linear axis would flatten the short ones.
_FLATTENS = 6.0
_Row = Variant | Untouched


def whatif_page(result: WhatIf) -> Page:
    """Return the page of a comparison, with or without `over`."""
    how = f"{conditions(result)}; speed-ups over {result.baseline}"
    if result.over:
        how = (
            f"{conditions(result, 0)}; at each point: {_quantity(result)}, "
            f"speed-up over {result.baseline} and its 90 % interval"
        )
    return document_page(
        result,
        "Technique stacks",
        how,
        [*(_over_sections(result) if result.over else _stack_sections(result)), _compiling(result)],
        [
            Remark("Dominated", [] if result.over else _dominated(result.variants)),
            Remark("Crossover", _crossing_lines(result.crossovers), "yellow", "Crossovers"),
            Remark("Left out", _left_out(result), "yellow"),
        ],
    )


def _interval_s(row: _Row) -> float:
    return 1.0 / row.throughput_per_s


def _quantity(result: WhatIf) -> str:
    return "latency" if result.requests == 1 else "time between two inferences"


def _at(at: Mapping[str, str]) -> str:
    return ", ".join(f"{path}={value}" for path, value in at.items())


def _best(variants: Sequence[Variant]) -> Variant:
    return max(variants, key=lambda variant: variant.throughput_per_s)


def _dominated(variants: Sequence[Variant]) -> list[str]:
    """Return a line for each stack that is better than others in every respect."""
    worse = grouped((v for v in variants if v.dominated_by), lambda v: v.dominated_by)
    return [
        f"{better} is better than {' and '.join(v.techniques for v in stacks)}"
        for better, stacks in worse.items()
    ]


def _rows(result: WhatIf) -> list[_Row]:
    """Return the untouched network by device, where no stack shows it, and the stacks."""
    stacks = {variant.techniques for variant in result.variants}
    devices = (d for d in result.devices if not (d.device == "npu" and NONE in stacks))
    return [*devices, *result.variants]


def _name(row: _Row, style: str = "") -> Cell:
    if isinstance(row, Untouched):
        return Text(f"{NONE} on the {row.device.upper()}", style="dim")
    return LongName(row.techniques, style)


def _rate(row: _Row) -> Cell:
    """Return the throughput, to the digits of the latency where one inference follows another."""
    single = row.throughput_per_s == 1.0 / row.latency_s
    last = last_digit_of_rate(row.latency_interval_s) if single else None
    return cell("throughput_per_s", row.throughput_per_s, last)


def _variants(result: WhatIf) -> Table:
    """Return all figures of all stacks; on the terminal the most important, with the untouched network."""
    best, over, single = _best(result.variants), bool(result.over), result.requests == 1
    both = any(factor(v.speedup_latency) != factor(v.speedup_throughput) for v in result.variants)
    columns = (
        *([Column("", "at", lambda v: _at(v.at), "html")] if over else []),
        Column("stack") if over else Column("techniques", show=_name),
        Column("latency_s"),
        Column("latency_interval_s", only="" if single else "html"),
        Column("throughput_per_s", "rate", _rate, only="html" if single else ""),
        *fields("energy_j, dram_bytes"),
        *([Column("speedup_latency", "speed-up\nlatency")] if both else []),
        Column("speedup_throughput", "\nrate" if both else None),
        *fields("speedup_interval, step_speedup, step_interval", "html"),
        Column("bound", show=lambda v: v.bound.removeprefix("npu.")),
        *(Column(f"dram.{kind}", title, only="html") for kind, title in KINDS.items()),
        Column("accuracy"),
    )
    return Table(
        columns,
        result.variants,
        "Figures",
        "variants",
        terminal=_rows(result),
        style=lambda row: "bold green" if row is best else "dim" if getattr(row, "dominated_by", "") else "",
        only="html" if over else "",
        gap=1,
    )


def _stack_sections(result: WhatIf) -> list[Section]:
    return [
        Plot(f"Waterfall: {_quantity(result)} of each stack", lambda: _waterfall_figure(result)),
        Plot(_speedup_title(result), lambda: _speedup_figure(result)),
        _variants(result),
        _waterfall(result),
    ]


def _waterfall(result: WhatIf) -> Table:
    """Return a bar for each stack: its time, and the difference to the stack that it adds to."""
    interval_s = {variant.techniques: _interval_s(variant) for variant in result.variants}
    rows = _rows(result)
    slowest_s = max(map(_interval_s, rows))
    middle_s, base_s = median(interval_s.values()), interval_s[result.baseline]
    shortest_s = _TIMES_MEDIAN * middle_s
    longest_s = min(slowest_s, base_s if shortest_s < base_s < 2.0 * shortest_s else shortest_s)
    best = _best(result.variants)

    def bar(row: _Row) -> Text:
        now_s = _interval_s(row)
        return _falling(now_s, interval_s.get(getattr(row, "step_from", None) or "", now_s), longest_s)

    columns = (
        Column("", "", lambda row: _name(row, "bold green" if row is best else "")),
        Column("", _quantity(result), bar),
        *fields("step_speedup, step_interval, speedup_throughput, speedup_interval"),
    )
    saved, lost = ("░ saved", _SAVED), ("▓ lost", _LOST)
    legend = Text.assemble(("█ time", _KEPT), "; against the stack that it adds to: ", saved, ", ", lost)
    legend.append("; ▶ goes on" if slowest_s > longest_s else "")
    return Table(columns, rows, caption=legend, only="terminal", gap=1)


def _falling(now_s: float, before_s: float, longest_s: float) -> Text:
    """Return a bar as long as the longer of two times; what is saved or lost stands apart."""
    now, before = (round(_LONGEST * min(1.0, value / longest_s)) for value in (now_s, before_s))
    bar = Text("█" * max(1, min(now, before)), style=_KEPT)
    if now < before:
        bar.append("░" * (before - now), style=_SAVED)
    else:
        bar.append("▓" * (now - before), style=_LOST)
    if max(now_s, before_s) > longest_s * (1 + 1e-9):
        bar.right_crop(1)
        bar.append("▶", style=_KEPT if now_s > longest_s else _SAVED)
    return bar


def _axis(title: str, unit: str, values: Sequence[float]) -> dict[str, Any]:
    """Return an axis on which the shortest bar can be seen: logarithmic where values lie far apart."""
    low, high = min(values), max(values)
    if low > 0.0 and high > _FLATTENS * low:
        return log_axis(title, unit, low, high)
    if unit == "s":
        return amount_axis(title, "s")
    return {"title": title, "ticksuffix": unit, "rangemode": "tozero"}


def _waterfall_figure(result: WhatIf) -> Figure:
    """Return the time of each stack, and what it saves or loses against the stack that it adds to."""
    time_s = {v.techniques: _interval_s(v) for v in result.variants}
    axis = _axis(_quantity(result), "s", list(time_s.values()))
    scale = "; logarithmic axis" if axis.get("type") == "log" else ""
    figure = blank_figure(
        title=f"Waterfall: {_quantity(result)} of each stack{scale}",
        barmode="overlay",
        xaxis=axis,
        yaxis=names_axis(list(time_s)),
        height=150 + 34 * len(time_s),
        margin={"r": 60},
    )
    launches_s = [v.launch_s or 0.0 for v in result.variants]
    if result.requests == 1 and not scale and min(launches_s) > 0.0:
        add_launch(figure, 0.0, min(launches_s), min(launches_s) / max(time_s.values()))
    steps = [(v, time_s[v.step_from], time_s[v.techniques]) for v in result.variants if v.step_from in time_s]
    for name, colour, sign in (("time saved", COLOURS[2], 1.0), ("time lost", COLOURS[1], -1.0)):
        bars = [step for step in steps if sign * (step[1] - step[2]) > 0.0]
        if bars:
            figure.add_bar(
                base=[min(before, after) for _, before, after in bars],
                x=[abs(before - after) for _, before, after in bars],
                y=[v.techniques for v, *_ in bars],
                orientation="h",
                name=f"{name} against the stack that it adds to",
                marker={"color": colour, "opacity": 0.45},
                customdata=[f"{factor(v.step_speedup or 1.0)} {escape(v.step_from or '')}" for v, *_ in bars],
                hovertemplate=f"%{{y}}<br>{name}: %{{customdata}}<extra></extra>",
            )

    def label(v: Variant) -> str:
        return f" {Column('latency_s').cell(v) if result.requests == 1 else engineering(_interval_s(v), 's')}"

    add_marks(
        figure,
        _quantity(result),
        result.variants,
        lambda v: (time_s[v.techniques], v.techniques),
        {"color": COLOURS[0], "size": 11, "symbol": "diamond"},
        label,
        mode="markers+text",
        hovertemplate="%{y}: %{text}<extra></extra>",
        textposition="middle right",
        cliponaxis=False,
    )
    return figure


def _error(variants: Sequence[Variant]) -> dict[str, object] | None:
    """Return the error bars of speed-ups; None where there are no intervals."""
    spans = [(v.speedup_throughput, *v.speedup_interval) for v in variants if v.speedup_interval is not None]
    if len(spans) < len(variants):
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(0.0, high - value) for value, _, high in spans],
        "arrayminus": [max(0.0, value - low) for value, low, _ in spans],
        "thickness": 1.2,
    }


def _speedup_title(result: WhatIf) -> str:
    interval = ", with 90 % interval" if _error(result.variants) else ""
    return f"Speed-up over {result.baseline}{interval}"


def _speedup_axis(variants: Sequence[Variant]) -> dict[str, Any]:
    ends = [end for v in variants for end in v.speedup_interval or ()]
    return _axis("speed-up", "x", [*ends, *(v.speedup_throughput for v in variants)])


def _speedup_figure(result: WhatIf) -> Figure:
    variants = result.variants
    names = names_axis([v.techniques for v in variants])
    figure = blank_figure(xaxis=_speedup_axis(variants), yaxis=names, height=150 + 34 * len(variants))
    figure.add_vline(x=1.0, line={"dash": "dot", "color": "#777"})
    add_marks(
        figure,
        "",
        variants,
        lambda v: (v.speedup_throughput, v.techniques),
        {"color": COLOURS[0], "size": 10},
        lambda v: f"{v.techniques}: {factor(v.speedup_throughput)}",
        error_x=_error(variants),
    )
    return figure


def _over_sections(result: WhatIf) -> list[Section]:
    """Return times and speed-ups along the first setting, for each combination of the others."""
    axis, *others = result.over
    sections: list[Section] = []
    for combination in product(*(result.over[path] for path in others)):
        fixed = dict(zip(others, combination, strict=True))
        variants = [variant for variant in result.variants if fixed.items() <= variant.at.items()]
        where = f" at {_at(fixed)}" if fixed else ""
        for title, speedups in ((_quantity(result).capitalize(), False), (_speedup_title(result), True)):
            sections.append(Plot(f"{title}{where}", partial(_along, result, axis, variants, speedups)))
        sections.append(_Chart(variants, axis, ", ".join(filter(None, (axis, _at(fixed))))))
        sections += _traffic(variants, axis, where)
    return [*sections, _variants(result)]


def _traffic(variants: Sequence[Variant], axis: str, where: str) -> list[Section]:
    """Return DRAM traffic by kind along a setting: bars, and a table for the terminal."""
    several = len({variant.stack for variant in variants}) > 1
    names = {f"{v.at[axis]} {v.stack}" if several else v.at[axis]: v.dram for v in variants}
    columns = (
        Column("", axis.rpartition(".")[2], lambda v: v.at[axis], layout={"no_wrap": True}),
        *([Column("", "stack", lambda v: LongName(v.stack))] if several else []),
        *fields("latency_s, dram_bytes"),
        *(Column(f"dram.{kind}", title) for kind, title in zip(KINDS, SHORT_KINDS, strict=True)),
    )
    return [
        Plot(f"DRAM traffic by kind{where}", partial(kind_bars, names)),
        Table(columns, variants, f"DRAM traffic by kind{where}", only="terminal", titled=True, gap=1),
    ]


def _along(result: WhatIf, axis: str, variants: Sequence[Variant], speedups: bool) -> Figure:
    """Return times as lines along an axis, or speed-ups as marks with their intervals."""
    series, styles = {}, {}
    for i, (stack, points) in enumerate(grouped(variants, lambda v: v.stack).items()):
        values = [v.speedup_throughput if speedups else _interval_s(v) for v in points]
        series[stack] = ([v.at[axis] for v in points], values)
        colour = COLOURS[i % len(COLOURS)]
        styles[stack] = {
            "line": {"color": colour, "dash": "solid" if i < len(COLOURS) else "dot"},
            "marker": {"size": 9 if speedups else 6, "color": colour},
            "error_y": _error(points) if speedups else None,
            "customdata": [factor(value) if speedups else engineering(value, "s") for value in values],
            "hovertemplate": f"{escape(stack)}<br>%{{x}}: %{{customdata}}<extra></extra>",
        }
    along = {"title": axis, "type": "category", "categoryarray": result.over[axis]}
    times_s = [_interval_s(v) for v in result.variants]
    y_axis = _speedup_axis(result.variants) if speedups else _axis(_quantity(result), "s", times_s)
    figure = line_figure(
        series, along, y_axis, mode="markers" if speedups else "lines+markers", styles=styles
    )
    if speedups:  # intervals of several stacks at one value stand side by side
        figure.update_layout(scattermode="group")
    return figure


class _Chart:
    """Stacks down the side, values of a setting across the top; more tables where these do not fit."""

    def __init__(self, variants: Sequence[Variant], axis: str, title: str) -> None:
        self._title = title
        self._by_value = grouped(variants, lambda v: v.at[axis])
        self._stacks = list(dict.fromkeys(variant.stack for variant in variants))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield as many tables as the values take in this width, each headed by the setting's name."""
        variants = [variant for members in self._by_value.values() for variant in members]
        lines = [line for variant in variants for line in _point_lines(variant)]
        width = max(map(len, (*self._by_value, *lines)))
        names = max((len(stack) for stack in self._stacks), default=0)
        names = min(names, max(_NARROWEST, options.max_width // 3))
        layout = {"min_width": names, "max_width": names}
        fit = max(1, (options.max_width - names) // (width + 1))
        columns = [
            Column("", value, lambda stack, members=members: self._shown(stack, members), words=False)
            for value, members in self._by_value.items()
        ]
        stacks = Column("", "", lambda stack: stack, layout=layout)
        for start in range(0, len(columns), fit):
            if start:
                yield Text()
            yield Text(self._title, style="bold")
            yield drawn_table(Table((stacks, *columns[start : start + fit]), self._stacks, gap=1))

    @staticmethod
    def _shown(stack: str, members: Sequence[Variant]) -> Text:
        variant = next((variant for variant in members if variant.stack == stack), None)
        if variant is None:
            return Text("-", style="dim")
        style = "" if variant.speedup_throughput > _PAYS else "dim"
        style = "bold green" if variant is _best(members) else style
        return Text("\n".join(filter(None, _point_lines(variant))), style=style, justify="right")


def _point_lines(variant: Variant) -> tuple[str, str, str]:
    """Return a time, a speed-up and its interval, each with the digits that it bears."""
    single = variant.throughput_per_s == 1 / variant.latency_s
    digit = last_digit(variant.latency_interval_s) if single else None
    gain = factor(variant.speedup_throughput, last_digit(variant.speedup_interval))
    return engineering(_interval_s(variant), "s", digit), gain, factors(variant.speedup_interval)


def _compiling(result: WhatIf) -> Table | None:
    """Return launches with time and memory of compiling, where the number of models differs."""
    rows = [v for v in result.variants if v.stack == result.baseline and v.compilation]
    compilations = [v.compilation for v in rows if v.compilation]
    if len({compilation.models for compilation in compilations}) < 2:
        return None
    peak, compiled = "compilation.memory_peak", "compilation.compile"
    columns = (
        Column("", "compiling at", lambda v: _at({axis.rpartition(".")[2]: at for axis, at in v.at.items()})),
        *fields(f"compilation.models: models, launches, latency_s, {compiled}_s: compile time"),
        *fields(f"{compiled}_interval_s, {peak}_bytes: memory, {peak}_interval_bytes"),
    )
    caption = f"memory at the peak of compiling: {compilations[0].source}"
    return Table(columns, rows, "Launches and compiling", "compiling", caption, gap=1)


def _crossing_lines(crossovers: Sequence[Crossover]) -> list[str]:
    """Return one line for each place where the order of stacks changes."""
    lines = []
    for crossings in grouped(
        crossovers, lambda c: (c.axis, *c.at.items(), c.between, c.near, c.first)
    ).values():
        first = crossings[0]
        later = " and ".join(crossing.then for crossing in crossings)
        near = f"near {first.axis}={first.near}"
        if first.near is None:
            near = f"between {first.axis}={first.between[0]} and {first.between[1]}"
        fixed = f" ({_at(first.at)})" if first.at else ""
        lines.append(f"{first.first} is faster before, {later} after: {near}{fixed}")
    return lines


def _left_out(result: WhatIf) -> list[str]:
    """Return the stacks that were left out, joined by reason and points."""
    skipped = grouped(result.skipped, lambda s: (s.techniques, s.reason))
    places = {key: tuple(_at(s.at) for s in points) for key, points in skipped.items()}
    stacks = grouped(places, lambda key: (key[1], places[key]))
    everywhere = len({tuple(variant.at.items()) for variant in result.variants})
    compared = len({variant.stack for variant in result.variants})
    lines = [result.left_out] if result.left_out else []
    for (reason, points), keys in stacks.items():
        is_every_stack = len(keys) >= compared and len(keys) > 1
        who = "every stack" if is_every_stack else ", ".join(techniques for techniques, _ in keys)
        is_everywhere = not points[0] or (len(points) == everywhere and not is_every_stack)
        where = "" if is_everywhere else f" at {'; '.join(points)}"
        lines.append(f"{who}{where}: {reason}")
    return lines
