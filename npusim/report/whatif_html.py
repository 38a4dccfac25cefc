"""A comparison as one HTML file: waterfall of stacks, or speed-ups along varied settings."""

from __future__ import annotations

import html
from itertools import product
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from npusim.report.engineering import engineering, factor
from npusim.report.whatif import crossing_lines

if TYPE_CHECKING:
    from npusim.studies.comparison import Variant, WhatIf

__all__ = ["whatif_html"]

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#885522", "#000000")
"""Colours that stay apart for the colour-blind."""
_TIME, _SAVED, _LOST = "#4477aa", "#228833", "#ee6677"
_FONT = "system-ui, sans-serif"
_STYLE = f"""
body {{ font: 15px/1.5 {_FONT}; color: #222; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #e5e5e5; white-space: nowrap; }}
.wide {{ overflow-x: auto; }}
th:first-child, td:first-child {{ text-align: left; }} th {{ font-weight: 600; color: #555; }}
.note {{ color: #555; }} .verdict {{ font-weight: 600; }}
"""


def whatif_html(result: WhatIf) -> str:
    """Return a comparison as HTML that needs no other file.

    Parameters
    ----------
    result : WhatIf
        With or without `over`.

    Returns
    -------
    str
        The page.
    """
    name = html.escape(f"{result.workload} on {result.soc}")
    tiles = f", {result.tiles} tiles" if result.tiles else ""
    run = f"hint {result.hint}, {result.requests} in flight{tiles}; baseline {result.baseline}"
    charts = _over_charts(result) if result.over else [_plot(_waterfall(result)), _plot(_bars(result))]
    crossings = "".join(f"<li>{html.escape(line)}</li>" for line in crossing_lines(result.crossovers))
    skipped = "".join(f"<li>{html.escape(f'{s.techniques}: {s.reason}')}</li>" for s in result.skipped)
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in result.notes)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>npusim: {name}</title>'
        f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script></head><body><h1>{name}</h1>"
        f"<p class='verdict'>{html.escape(result.conclusion)}</p><p>{html.escape(run)}</p>{''.join(charts)}"
        + (f"<h2>Crossovers</h2><ul>{crossings}</ul>" if crossings else "")
        + f"<h2>Figures</h2>{_table(result)}"
        + (f"<h2>Left out</h2><ul>{skipped}</ul>" if skipped else "")
        + f"<h2>Notes</h2><ul class='note'>{notes}</ul></body></html>\n"
    )


def _plot(figure: go.Figure) -> str:
    text: str = figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False})
    return text


def _layout(figure: go.Figure, title: str, height: int) -> go.Figure:
    figure.update_layout(
        title=title,
        height=height,
        font={"family": _FONT, "size": 13},
        template="plotly_white",
        margin={"l": 10, "r": 10, "t": 60, "b": 40},
        legend={
            "orientation": "h",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 1,
            "xanchor": "right",
            "traceorder": "normal",
        },
    )
    return figure


def _interval_ms(variant: Variant) -> float:
    return 1e3 / variant.throughput_per_s


def _waterfall(result: WhatIf) -> go.Figure:
    """Return the time of each stack, and what it saves or loses against the stack that it adds to."""
    variants = result.variants
    times = {v.techniques: _interval_ms(v) for v in variants}
    before = [times.get(v.step_from or "", times[v.techniques]) for v in variants]
    names = [v.techniques for v in variants]
    now = [_interval_ms(v) for v in variants]
    told = [
        "" if v.step_speedup is None else f"{factor(v.step_speedup)} {html.escape(v.step_from or '')}"
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
            hovertemplate="%{y}<br>%{x:.3f} ms " + name + "<br>%{customdata}<extra></extra>",
        )
    what = "latency" if result.requests == 1 else "time between two inferences"
    figure.update_layout(
        barmode="stack", xaxis_title=f"{what}, ms", yaxis={"autorange": "reversed", "automargin": True}
    )
    return _layout(
        figure, "Waterfall: what each stack saves against the one that it adds to", 180 + 26 * len(names)
    )


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


def _bars(result: WhatIf) -> go.Figure:
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
        xaxis_title=f"speed-up over {result.baseline}, with 90 % interval",
        yaxis={"autorange": "reversed", "automargin": True},
    )
    return _layout(figure, "Speed-up", 180 + 26 * len(variants))


def _over_charts(result: WhatIf) -> list[str]:
    """Return one chart for each combination of all settings but the first: a line per stack."""
    axis, values = next(iter(result.over.items()))
    others = {path: listed for path, listed in result.over.items() if path != axis}
    stacks = list(dict.fromkeys(v.stack for v in result.variants))
    highest = max((v.speedup_interval or (0.0, v.speedup_throughput))[1] for v in result.variants)
    lowest = 0.97 * min((v.speedup_interval or (v.speedup_throughput, 0.0))[0] for v in result.variants)
    charts = []
    for combination in product(*others.values()):
        fixed = dict(zip(others, combination, strict=True))
        figure = go.Figure()
        for i, stack in enumerate(stacks):
            line = [
                v
                for v in result.variants
                if v.stack == stack and all(v.at[path] == text for path, text in fixed.items())
            ]
            figure.add_scatter(
                x=[v.at[axis] for v in line],
                y=[v.speedup_throughput for v in line],
                error_y=_error(line),
                name=stack,
                mode="lines+markers",
                line={"color": _COLOURS[i % len(_COLOURS)], "dash": "solid" if i < len(_COLOURS) else "dot"},
                hovertemplate=f"{html.escape(stack)}<br>%{{x}}: %{{y:.2f}}x<extra></extra>",
            )
        figure.update_layout(
            xaxis={"title": axis, "type": "category", "categoryarray": values},
            yaxis={"title": f"speed-up over {result.baseline}", "range": [lowest, 1.03 * highest]},
        )
        named = ", ".join(f"{path}={text}" for path, text in fixed.items())
        figure = _layout(figure, named or "Speed-up", 460)
        figure.update_layout(
            legend={"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1, "yanchor": "top"}
        )
        charts.append(_plot(figure))
    return charts


def _table(result: WhatIf) -> str:
    heads = [
        "stack",
        *result.over,
        "latency",
        "inf/s",
        "energy",
        "DRAM",
        "speed-up",
        "90 %",
        "step",
        "90 %",
        "bound",
    ]
    rows = []
    for v in result.variants:
        cells = [v.stack if result.over else v.techniques, *(v.at.get(path, "") for path in result.over)]
        cells += [engineering(v.latency_s, "s"), engineering(v.throughput_per_s, "")]
        cells += [engineering(v.energy_j, "J"), engineering(v.dram_bytes, "B")]
        cells += [factor(v.speedup_throughput), _range(v.speedup_interval)]
        cells += ["" if v.step_speedup is None else factor(v.step_speedup), _range(v.step_interval)]
        rows.append(
            "".join(f"<td>{html.escape(cell)}</td>" for cell in (*cells, v.bound.removeprefix("npu.")))
        )
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<div class='wide'><table><tr>{head}</tr>{body}</table></div>"


def _range(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.2f}-{interval[1]:.2f}"
