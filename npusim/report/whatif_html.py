"""A comparison as one HTML file: waterfall of stacks, or speed-ups and times along varied settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import product
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from npusim.report.document_html import titled
from npusim.report.engineering import engineering, factor, last_digit, last_digit_of_rate
from npusim.report.html import (
    COLOURS,
    Amount,
    Cell,
    bullets,
    log_axis,
    names_axis,
    page,
    plot,
    seconds_axis,
    table,
    text,
)
from npusim.report.terminal import conditions
from npusim.report.whatif import compiled_variants, crossing_lines
from npusim.studies.comparison import Untouched

if TYPE_CHECKING:
    from npusim.studies.comparison import Variant, WhatIf

_TIME, _LOST, _SAVED = COLOURS[:3]
_FLATTENS = 6.0
"""Ratio of the longest to the shortest time from which a linear axis would flatten the short ones."""


def whatif_html(result: WhatIf, command: str = "") -> str:
    """Return a comparison, with or without `over`, as HTML that needs no other file."""
    how = conditions(result.hint, result.requests, result.tiles, result.contexts, result.npu_tiles)
    crossings = bullets(crossing_lines(result.crossovers))
    left_out = [result.left_out] if result.left_out else []
    skipped = bullets([*left_out, *(f"{s.techniques}: {s.reason}" for s in result.skipped)])
    return page(
        titled("Technique stacks", {"workload": result.workload, "soc": result.soc}),
        text(f"{how}; baseline {result.baseline}"),
        *(_over_charts(result) if result.over else (_waterfall(result), _speedups(result))),
        f"<h2>Crossovers</h2>{crossings}" if crossings else "",
        "<h2>Figures</h2>",
        _table(result),
        _compiling(result),
        f"<h2>Without techniques, by device</h2>{_devices(result)}" if result.devices else "",
        f"<h2>Left out</h2>{skipped}" if skipped else "",
        lead=result.conclusion,
        notes=result.notes,
        command=command,
    )


def _interval_s(variant: Variant) -> float:
    return 1.0 / variant.throughput_per_s


def _what(result: WhatIf) -> str:
    return "latency" if result.requests == 1 else "time between two inferences"


def _time_axis(result: WhatIf, times: Sequence[float]) -> dict[str, Any]:
    """Return an axis over times on which the shortest can still be told apart."""
    low, high = min(times), max(times)
    if low > 0.0 and high > _FLATTENS * low:
        return log_axis(_what(result), "s", low, high)
    return seconds_axis(_what(result), log=False)


def _waterfall(result: WhatIf) -> str:
    """Return the time of each stack, and what it saves or loses against the stack that it adds to."""
    variants = result.variants
    times = {v.techniques: _interval_s(v) for v in variants}
    now = list(times.values())
    names = list(times)
    figure = go.Figure()
    for name, colour, sign in (("time saved", _SAVED, 1.0), ("time lost", _LOST, -1.0)):
        steps = [v for v in variants if v.step_from in times]
        steps = [v for v in steps if sign * (times[v.step_from or ""] - times[v.techniques]) > 0.0]
        if steps:
            before = [times[v.step_from or ""] for v in steps]
            after = [times[v.techniques] for v in steps]
            figure.add_bar(
                base=[min(pair) for pair in zip(before, after, strict=True)],
                x=[abs(a - b) for a, b in zip(before, after, strict=True)],
                y=[v.techniques for v in steps],
                orientation="h",
                name=f"{name} against the stack that it adds to",
                marker={"color": colour, "opacity": 0.45},
                customdata=[f"{factor(v.step_speedup or 1.0)} {escape(v.step_from or '')}" for v in steps],
                hovertemplate=f"%{{y}}<br>{name}: %{{customdata}}<extra></extra>",
            )
    figure.add_scatter(
        x=now,
        y=names,
        mode="markers+text",
        name=_what(result),
        marker={"color": _TIME, "size": 11, "symbol": "diamond"},
        text=[
            f" {_amount(v, 'latency_s') if result.requests == 1 else engineering(_interval_s(v), 's')}"
            for v in variants
        ],
        textposition="middle right",
        cliponaxis=False,
        hovertemplate="%{y}: %{text}<extra></extra>",
    )
    axis = _time_axis(result, now)
    figure.update_layout(barmode="overlay", xaxis=axis, yaxis=names_axis(names))
    scale = "; logarithmic axis" if axis.get("type") == "log" else ""
    title = f"Waterfall: {_what(result)} of each stack{scale}"
    return plot(figure, 150 + 34 * len(names), title, margin={"r": 60})


def _error(variants: Sequence[Variant]) -> dict[str, object] | None:
    """Return the error bars of speed-ups; None where there are no intervals."""
    if any(v.speedup_interval is None for v in variants):
        return None
    spans = [(v.speedup_throughput, *(v.speedup_interval or (0.0, 0.0))) for v in variants]
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
    spans = [(v.speedup_throughput, v.speedup_throughput) for v in variants]
    spans += [v.speedup_interval for v in variants if v.speedup_interval is not None]
    low, high = min(span[0] for span in spans), max(span[1] for span in spans)
    if low > 0.0 and high > _FLATTENS * low:
        return log_axis("speed-up", "x", low, high)
    return {"title": "speed-up", "ticksuffix": "x", "rangemode": "tozero"}


def _speedups(result: WhatIf) -> str:
    """Return the speed-up of each stack with its interval."""
    variants = result.variants
    figure = go.Figure()
    figure.add_scatter(
        x=[v.speedup_throughput for v in variants],
        y=[v.techniques for v in variants],
        mode="markers",
        marker={"color": _TIME, "size": 10},
        error_x=_error(variants),
        customdata=[factor(v.speedup_throughput) for v in variants],
        hovertemplate="%{y}: %{customdata}<extra></extra>",
    )
    figure.add_vline(x=1.0, line={"dash": "dot", "color": "#777"})
    figure.update_layout(xaxis=_speedup_axis(variants), yaxis=names_axis([v.techniques for v in variants]))
    return plot(figure, 150 + 34 * len(variants), _speedup_title(result))


def _over_charts(result: WhatIf) -> list[str]:
    """Return times and speed-ups for each combination of all settings but the first: a mark a stack."""
    axis, values = next(iter(result.over.items()))
    others = {path: listed for path, listed in result.over.items() if path != axis}
    times = [_interval_s(v) for v in result.variants]
    charts = []
    for combination in product(*others.values()):
        fixed = dict(zip(others, combination, strict=True))
        named = f" at {', '.join(f'{path}={value}' for path, value in fixed.items())}" if fixed else ""
        speed, time = _lines(result, axis, fixed)
        for figure in (speed, time):
            figure.update_layout(xaxis={"title": axis, "type": "category", "categoryarray": values})
        # Intervals of several stacks at one value stand side by side, not upon each other.
        speed.update_layout(yaxis=_speedup_axis(result.variants), scattermode="group")
        time.update_layout(yaxis=_time_axis(result, times))
        charts += [
            plot(time, 430, f"{_what(result).capitalize()}{named}"),
            plot(speed, 430, f"{_speedup_title(result)}{named}"),
        ]
    return charts


def _lines(result: WhatIf, axis: str, fixed: Mapping[str, str]) -> tuple[go.Figure, go.Figure]:
    """Return speed-ups with their intervals, and times, along an axis."""
    speed, time = go.Figure(), go.Figure()
    for i, stack in enumerate(dict.fromkeys(v.stack for v in result.variants)):
        line = [
            v
            for v in result.variants
            if v.stack == stack and all(v.at[path] == value for path, value in fixed.items())
        ]
        style = {"color": COLOURS[i % len(COLOURS)], "dash": "solid" if i < len(COLOURS) else "dot"}
        common = {"x": [v.at[axis] for v in line], "name": stack, "line": style}
        speed.add_scatter(
            y=[v.speedup_throughput for v in line],
            error_y=_error(line),
            mode="markers",
            marker={"size": 9, "color": style["color"]},
            customdata=[factor(v.speedup_throughput) for v in line],
            hovertemplate=f"{escape(stack)}<br>%{{x}}: %{{customdata}}<extra></extra>",
            **common,
        )
        time.add_scatter(
            y=[_interval_s(v) for v in line],
            mode="lines+markers",
            hovertemplate=f"{escape(stack)}<br>%{{x}}: %{{y:.3~s}}s<extra></extra>",
            **common,
        )
    return speed, time


_COLUMNS = {
    "latency_s": ("latency", "s"),
    "latency_interval_s": ("90 %", "s"),
    "throughput_per_s": ("inferences", "/s"),
    "energy_j": ("energy", "J"),
    "dram_bytes": ("DRAM", "B"),
    "speedup_throughput": ("speed-up", "x"),
    "speedup_interval": ("90 %", "x"),
    "step_speedup": ("step", "x"),
    "step_interval": ("90 %", "x"),
}
"""Heading and unit of the amounts of a variant."""


def _table(result: WhatIf) -> str:
    shown = "stack" if result.over else "techniques"
    rows: list[list[Cell]] = []
    for v in result.variants:
        point = [", ".join(f"{path}={value}" for path, value in v.at.items())] if result.over else []
        amounts = [_amount(v, name) for name in _COLUMNS]
        rows.append([*point, getattr(v, shown), *amounts, v.bound])
    heads = [*(["at"] if result.over else []), "stack", *(head for head, _ in _COLUMNS.values()), "bound"]
    keys = [*([""] if result.over else []), shown, *_COLUMNS, "bound"]
    words = [*range(len(heads) - len(_COLUMNS) - 1), len(heads) - 1]
    return table(heads, rows, words, name="variants", keys=keys)


def _compiling(result: WhatIf) -> str:
    """Return launches beside time and memory of compiling; nothing where no number of models is varied."""
    rows: list[list[Cell]] = [
        [
            ", ".join(f"{path}={value}" for path, value in variant.at.items()),
            Amount(one.models), Amount(variant.launches),
            Amount(one.compile_s, "s"),
            Amount(list(one.compile_interval_s), "s", _span(one.compile_interval_s)),
            Amount(one.memory_peak_bytes, "B"),
            Amount(
                list(one.memory_peak_interval_bytes or ()), "B", _span(one.memory_peak_interval_bytes, "B")
            ),
        ]
        for variant, one in compiled_variants(result)
    ]  # fmt: skip
    heads = ["at", "models", "launches", "compile time", "90 %", "compile memory", "90 %"]
    keys = [
        "", "compilation.models", "launches", "compilation.compile_s", "compilation.compile_interval_s",
        "compilation.memory_peak_bytes", "compilation.memory_peak_interval_bytes",
    ]  # fmt: skip
    shown = table(heads, rows, [0], name="compiling", keys=keys)
    return f"<h2>Launches and compiling</h2>{shown}" if rows else ""


def _span(interval: tuple[float, float] | None, unit: str = "s") -> str:
    last = last_digit(interval)
    return " to ".join(engineering(bound, unit, last) for bound in interval or ())


def _devices(result: WhatIf) -> str:
    """Return the network without techniques on each device."""
    names = [name for name in _COLUMNS if name in Untouched.model_fields]
    rows: list[list[Cell]] = [
        [d.device, *(_amount(d, name) for name in names), d.bound] for d in result.devices
    ]
    heads = ["device", *(_COLUMNS[name][0] for name in names), "bound"]
    keys = ["device", *names, "bound"]
    return table(heads, rows, [0, len(heads) - 1], name="devices", keys=keys)


_INTERVALS = {
    "latency_s": "latency_interval_s",
    "speedup_throughput": "speedup_interval",
    "step_speedup": "step_interval",
}
"""The interval that says how many digits an amount bears."""


def _amount(row: Variant | Untouched, name: str) -> Amount:
    """Return an amount of a row with the digits that it bears."""
    value, unit = getattr(row, name), _COLUMNS[name][1]
    if name == "throughput_per_s" and value == 1.0 / row.latency_s:
        return Amount(value, unit, engineering(value, unit, last_digit_of_rate(row.latency_interval_s)))
    if value is None or name not in (*_INTERVALS, *_INTERVALS.values()):
        return Amount(value, unit)
    last = last_digit(getattr(row, _INTERVALS.get(name, name)))
    ends = list(value) if isinstance(value, tuple) else [value]
    shown = [factor(end, last) if unit == "x" else engineering(end, unit, last) for end in ends]
    if len(ends) == 1:
        return Amount(value, unit, shown[0])
    return Amount(ends, unit, "" if last is None else " to ".join(shown))
