"""The page of a comparison of technique stacks: figures, waterfall, speed-ups along varied settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from statistics import median
from typing import Any

from rich.text import Text

from npusim.reporting.charts import Figure, add_marks, blank_figure, line_figure, stacked_bars
from npusim.reporting.engineering import Cell, cell, engineering, factor, last_digit, last_digit_of_rate
from npusim.reporting.html import COLOURS, GREY, amount_axis, log_axis, names_axis
from npusim.reporting.machine import KIND_COLUMNS, KINDS, kind_bars
from npusim.reporting.page import Page, Plot, Remark, Section, document_page
from npusim.reporting.tables import Column, Table, fields, grouped, marked
from npusim.reporting.terminal import LongName, bar, conditions
from npusim.studies.comparison import Crossover, Untouched, Variant, WhatIf
from npusim.techniques import NONE

# Longest time that is drawn in full, in medians of all stacks: one slow stack flattens no other.
_TIMES_MEDIAN = 2.0
# Ratio of the longest to the shortest time from which a linear axis would flatten the short ones.
_FLATTENS = 6.0
_Row = Variant | Untouched


def whatif_page(result: WhatIf) -> Page:
    """Return the page of a comparison, with or without `over`."""
    how = f"{conditions(result)}; speed-ups over {result.baseline}"
    if result.over:
        how = f"{conditions(result, 0)}; {_quantity(result)}, and speed-up over {result.baseline}"
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


def _name(row: _Row) -> Cell:
    if isinstance(row, Untouched):
        return Text(f"{NONE} on the {row.device.upper()}", style="dim")
    return LongName(row.techniques)


def _last_digit(row: _Row) -> int | None:
    """Return the last digit of a rate: that of the latency where one inference follows another."""
    single = row.throughput_per_s == 1.0 / row.latency_s
    return last_digit_of_rate(row.latency_interval_s) if single else None


def _time(row: _Row) -> str:
    """Return the time between two inferences, to the digits of the latency where it is that."""
    single = row.throughput_per_s == 1.0 / row.latency_s
    return engineering(_interval_s(row), "s", last_digit(row.latency_interval_s) if single else None)


def _variants(result: WhatIf) -> Table:
    """Return all figures of all stacks; on the terminal the most important, with the untouched network."""
    over, single = bool(result.over), result.requests == 1
    both = any(factor(v.speedup_latency) != factor(v.speedup_throughput) for v in result.variants)

    def rate(row: _Row) -> Cell:
        return cell("throughput_per_s", row.throughput_per_s, _last_digit(row))

    columns = (
        *([Column("", "at", lambda v: _at(v.at), "html")] if over else []),
        Column("stack") if over else Column("techniques", show=_name),
        Column("latency_s"),
        Column("latency_interval_s", only="" if single else "html"),
        Column("throughput_per_s", "rate", rate, only="html" if single else ""),
        *fields("energy_j, dram_bytes"),
        *([Column("speedup_latency", "speed-up\nlatency")] if both else []),
        Column("speedup_throughput", "\nrate" if both else None),
        *fields("speedup_interval, step_speedup, step_interval", "html"),
        Column("bound", show=lambda v: v.bound.removeprefix("npu.")),
        *(Column(f"dram.{kind}", title, only="html") for kind, title in KINDS.items()),
        Column("accuracy"),
    )
    style, only = marked(_best(result.variants)), "html" if over else ""
    rows: Any = {"terminal": _rows(result), "only": only}
    return Table(columns, result.variants, "Figures", "variants", style=style, gap=1, **rows)


def _stack_sections(result: WhatIf) -> list[Section]:
    return [
        Plot(f"Waterfall: {_quantity(result)} of each stack", lambda: _waterfall_figure(result)),
        Plot(_speedup_title(result), lambda: _speedup_figure(result)),
        _variants(result),
        _waterfall(result),
    ]


def _waterfall(result: WhatIf) -> Table:
    """Return a bar for each stack: its time; and what it gains over the stack that it adds to."""
    middle_s = median(map(_interval_s, result.variants))
    longest_s = min(_TIMES_MEDIAN * middle_s, max(map(_interval_s, _rows(result))))
    columns = (
        Column("", "", _name),
        Column("", _quantity(result), lambda row: bar(_interval_s(row), longest_s, width=20), words=True),
        *fields("step_speedup, step_interval, speedup_throughput, speedup_interval"),
    )
    legend = f"step: against the stack that it adds to; bars end at {engineering(longest_s, 's')}"
    style = marked(_best(result.variants))
    return Table(columns, _rows(result), caption=legend, only="terminal", gap=1, style=style)


def _axis(title: str, unit: str, values: Sequence[float]) -> dict[str, Any]:
    """Return an axis on which the shortest bar can be seen: logarithmic where values lie far apart."""
    low, high = min(values), max(values)
    if low > 0.0 and high > _FLATTENS * low:
        return log_axis(title, unit, low, high)
    return amount_axis(title, unit)


def _waterfall_figure(result: WhatIf) -> Figure:
    """Return the time of each stack, and what it saves or loses against the stack that it adds to."""
    time_s = {v.techniques: _interval_s(v) for v in result.variants}
    rows = {}
    for v in result.variants:
        now_s = time_s[v.techniques]
        before_s = time_s.get(v.step_from or "", now_s)
        launch_s = min(v.launch_s or 0.0, now_s, before_s) if result.requests == 1 else 0.0
        rows[v.techniques] = {
            "launch": launch_s,
            _quantity(result): min(now_s, before_s) - launch_s,
            "saved against the stack that it adds to": max(0.0, before_s - now_s),
            "lost against it": max(0.0, now_s - before_s),
        }
    colours = dict(zip(next(iter(rows.values())), (GREY, COLOURS[0], "#bbddbb", COLOURS[1]), strict=True))
    axis = _axis(_quantity(result), "s", list(time_s.values()))
    return stacked_bars(rows, "s", colours).update_layout(xaxis=axis)


def _error(variants: Sequence[Variant]) -> dict[str, object] | None:
    """Return the error bars of speed-ups; None where there are no intervals."""
    spans = [(v.speedup_throughput, *v.speedup_interval) for v in variants if v.speedup_interval is not None]
    if len(spans) < len(variants):
        return None
    above = [max(0.0, high - value) for value, _, high in spans]
    below = [max(0.0, value - low) for value, low, _ in spans]
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1.2}


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
    """Return times, speed-ups and traffic along the first setting, for each combination of the others."""
    axis, *others = result.over
    sections: list[Section] = []
    for combination in product(*(result.over[path] for path in others)):
        fixed = dict(zip(others, combination, strict=True))
        chosen = (variant for variant in result.variants if fixed.items() <= variant.at.items())
        variants = [v for of_stack in grouped(chosen, lambda v: v.stack).values() for v in of_stack]
        best = map(_best, grouped(variants, lambda v: v.at[axis]).values())
        where, style = f" at {_at(fixed)}" if fixed else "", marked(*best)
        point = (
            Column("stack", show=lambda v: LongName(v.stack)),
            Column("", axis.rpartition(".")[2], lambda v: v.at[axis], layout={"no_wrap": True}),
        )
        times = (
            *point,
            Column("", _quantity(result), _time, words=False),
            *fields("speedup_throughput, speedup_interval, energy_j, bound: bound"),
        )
        traffic = (*point, Column("dram_bytes"), *KIND_COLUMNS)
        title = "DRAM traffic by kind"
        on_terminal: Any = {"only": "terminal", "titled": True, "gap": 1}
        bars = {f"{v.at[axis]} {v.stack}": v.dram for v in variants}
        sections += [
            Plot(f"{_quantity(result).capitalize()}{where}", partial(_along, result, axis, variants, False)),
            Plot(f"{_speedup_title(result)}{where}", partial(_along, result, axis, variants, True)),
            Table(times, variants, f"{axis}{where}", style=style, **on_terminal),
            Plot(f"{title}{where}", partial(kind_bars, bars)),
            Table(traffic, variants, f"{title}{where}", style=style, **on_terminal),
        ]
    return [*sections, _variants(result)]


def _along(result: WhatIf, axis: str, variants: Sequence[Variant], speedups: bool) -> Figure:
    """Return times as lines along an axis, or speed-ups as marks with their intervals."""
    series, styles = {}, {}
    for i, (stack, points) in enumerate(grouped(variants, lambda v: v.stack).items()):
        values = [v.speedup_throughput if speedups else _interval_s(v) for v in points]
        series[stack] = ([v.at[axis] for v in points], values)
        colour = COLOURS[i % len(COLOURS)]
        styles[stack] = {
            "line": {"color": colour},
            "marker": {"size": 9 if speedups else 6, "color": colour},
            "error_y": _error(points) if speedups else None,
            "hovertext": [factor(value) if speedups else engineering(value, "s") for value in values],
        }
    along = {"title": axis, "type": "category", "categoryarray": result.over[axis]}
    times_s = [_interval_s(v) for v in result.variants]
    y_axis = _speedup_axis(result.variants) if speedups else _axis(_quantity(result), "s", times_s)
    mode = "markers" if speedups else "lines+markers"
    figure = line_figure(series, along, y_axis, mode=mode, styles=styles)
    # Intervals of several stacks at one value stand side by side.
    return figure.update_layout(scattermode="group" if speedups else "overlay")


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
    for c in crossovers:
        near = f"near {c.axis}={c.near}"
        if c.near is None:
            near = f"between {c.axis}={c.between[0]} and {c.between[1]}"
        fixed = f" ({_at(c.at)})" if c.at else ""
        lines.append(f"{c.first} is faster before, {c.then} after: {near}{fixed}")
    return lines


def _left_out(result: WhatIf) -> list[str]:
    """Return the stacks that were left out, joined by reason and points."""
    points = {tuple(variant.at.items()) for variant in result.variants}
    skipped = grouped(result.skipped, lambda s: (s.techniques, s.reason))
    lines = [result.left_out] if result.left_out else []
    at = {key: tuple(_at(s.at) for s in each) for key, each in skipped.items()}
    for (reason, places), keys in grouped(at, lambda key: (key[1], at[key])).items():
        is_everywhere = not places[0] or len(places) == len(points)
        where = "" if is_everywhere else f" at {'; '.join(places)}"
        lines.append(f"{', '.join(techniques for techniques, _ in keys)}{where}: {reason}")
    return lines
