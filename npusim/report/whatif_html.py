"""A comparison as one HTML file: waterfall of stacks, or speed-ups along varied settings."""

from __future__ import annotations

from html import escape
from itertools import product
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from npusim.report.engineering import engineering, factor
from npusim.report.html import COLOURS, bullets, page, plot, seconds_axis, table, text
from npusim.report.terminal import conditions
from npusim.report.whatif import crossing_lines

if TYPE_CHECKING:
    from npusim.studies.comparison import Variant, WhatIf

_TIME, _LOST, _SAVED = COLOURS[:3]


def whatif_html(result: WhatIf, command: str = "") -> str:
    """Return a comparison, with or without `over`, as HTML that needs no other file."""
    how = conditions(result.hint, result.requests, result.tiles, result.contexts)
    crossings = bullets(crossing_lines(result.crossovers))
    skipped = bullets(f"{s.techniques}: {s.reason}" for s in result.skipped)
    return page(
        f"Technique stacks: {result.workload} on {result.soc}",
        text(f"{how}; baseline {result.baseline}"),
        *(_over_charts(result) if result.over else (_waterfall(result), _bars(result))),
        f"<h2>Crossovers</h2>{crossings}" if crossings else "",
        "<h2>Figures</h2>",
        _table(result),
        f"<h2>Left out</h2>{skipped}" if skipped else "",
        lead=result.conclusion,
        notes=result.notes,
        command=command,
    )


def _interval_s(variant: Variant) -> float:
    return 1.0 / variant.throughput_per_s


def _what(result: WhatIf) -> str:
    return "latency" if result.requests == 1 else "time between two inferences"


def _waterfall(result: WhatIf) -> str:
    """Return the time of each stack, and what it saves or loses against the stack that it adds to."""
    variants = result.variants
    times = {v.techniques: _interval_s(v) for v in variants}
    before = [times.get(v.step_from or "", times[v.techniques]) for v in variants]
    names = [v.techniques for v in variants]
    now = [_interval_s(v) for v in variants]
    told = [
        "" if v.step_speedup is None else f"{factor(v.step_speedup)} {escape(v.step_from or '')}"
        for v in variants
    ]
    figure = go.Figure()
    pairs = list(zip(now, before, strict=True))
    parts = (
        ("time", _TIME, [min(a, b) for a, b in pairs], None),
        ("saved", _SAVED, [max(0.0, b - a) for a, b in pairs], {"shape": "/"}),
        ("lost", _LOST, [max(0.0, a - b) for a, b in pairs], None),
    )
    for name, colour, lengths, pattern in parts:
        figure.add_bar(
            x=lengths,
            y=names,
            orientation="h",
            name=name,
            marker={"color": colour, "pattern": pattern},
            customdata=told,
            hovertemplate="%{y}<br>%{x:.3~s}s " + name + "<br>%{customdata}<extra></extra>",
        )
    figure.update_layout(
        barmode="stack",
        xaxis=seconds_axis(_what(result), log=False),
        yaxis={"autorange": "reversed"},
        legend_traceorder="normal",
    )
    title = "Waterfall: what each stack saves against the one that it adds to"
    return plot(figure, 180 + 26 * len(names), title)


def _error(variants: list[Variant]) -> dict[str, object] | None:
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


def _bars(result: WhatIf) -> str:
    """Return the speed-up of each stack with its interval."""
    variants = result.variants
    figure = go.Figure()
    figure.add_bar(
        x=[v.speedup_throughput for v in variants],
        y=[v.techniques for v in variants],
        orientation="h",
        marker={"color": _TIME},
        error_x=_error(variants),
        hovertemplate="%{y}<br>%{x:.2f}x<extra></extra>",
    )
    figure.add_vline(x=1.0, line={"dash": "dot", "color": "#777"})
    figure.update_layout(
        xaxis_title=f"speed-up over {result.baseline}, with 90 % interval", yaxis={"autorange": "reversed"}
    )
    return plot(figure, 180 + 26 * len(variants), "Speed-up")


def _over_charts(result: WhatIf) -> list[str]:
    """Return speed-ups and times for each combination of all settings but the first: a line a stack."""
    axis, values = next(iter(result.over.items()))
    others = {path: listed for path, listed in result.over.items() if path != axis}
    highest = max((v.speedup_interval or (0.0, v.speedup_throughput))[1] for v in result.variants)
    lowest = 0.97 * min((v.speedup_interval or (v.speedup_throughput, 0.0))[0] for v in result.variants)
    charts = []
    for combination in product(*others.values()):
        fixed = dict(zip(others, combination, strict=True))
        named = f" at {', '.join(f'{path}={value}' for path, value in fixed.items())}" if fixed else ""
        speed, time = _lines(result, axis, fixed)
        for figure in (speed, time):
            figure.update_layout(xaxis={"title": axis, "type": "category", "categoryarray": values})
        speed.update_layout(
            yaxis={"title": f"speed-up over {result.baseline}", "range": [lowest, 1.03 * highest]}
        )
        time.update_layout(yaxis=seconds_axis(_what(result), log=False))
        charts += [
            plot(speed, 460, f"Speed-up{named}"),
            plot(time, 460, f"{_what(result).capitalize()}{named}"),
        ]
    return charts


def _lines(result: WhatIf, axis: str, fixed: dict[str, str]) -> tuple[go.Figure, go.Figure]:
    """Return speed-ups with their intervals, and times, along an axis."""
    speed, time = go.Figure(), go.Figure()
    for i, stack in enumerate(dict.fromkeys(v.stack for v in result.variants)):
        line = [
            v
            for v in result.variants
            if v.stack == stack and all(v.at[path] == value for path, value in fixed.items())
        ]
        style = {"color": COLOURS[i % len(COLOURS)], "dash": "solid" if i < len(COLOURS) else "dot"}
        common = {"x": [v.at[axis] for v in line], "name": stack, "mode": "lines+markers", "line": style}
        speed.add_scatter(
            y=[v.speedup_throughput for v in line],
            error_y=_error(line),
            hovertemplate=f"{escape(stack)}<br>%{{x}}: %{{y:.2f}}x<extra></extra>",
            **common,
        )
        time.add_scatter(
            y=[_interval_s(v) for v in line],
            hovertemplate=f"{escape(stack)}<br>%{{x}}: %{{y:.3~s}}s<extra></extra>",
            **common,
        )
    return speed, time


def _table(result: WhatIf) -> str:
    heads = [*result.over, "stack", "latency", "inf/s", "energy", "DRAM", "speed-up", "90 %", "step", "90 %"]
    rows = [
        (
            *(v.at.get(path, "") for path in result.over),
            v.stack if result.over else v.techniques,
            engineering(v.latency_s, "s"),
            engineering(v.throughput_per_s, ""),
            engineering(v.energy_j, "J"),
            engineering(v.dram_bytes, "B"),
            factor(v.speedup_throughput),
            _range(v.speedup_interval),
            "" if v.step_speedup is None else factor(v.step_speedup),
            _range(v.step_interval),
            v.bound.removeprefix("npu."),
        )
        for v in result.variants
    ]
    return table([*heads, "bound"], rows, words=range(len(result.over) + 1))


def _range(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.2f}-{interval[1]:.2f}"
