"""The page of a validation: errors by group with their limits, predicted over measured, residuals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from npusim.reporting.charts import Figure, add_groups, add_guides, blank_figure
from npusim.reporting.engineering import Amount, Cell
from npusim.reporting.html import COLOURS, GREY, log_axis
from npusim.reporting.page import Later, Lines, Page, Plot, Section
from npusim.reporting.tables import FOLD, Column, Table, cells_table, grouped
from npusim.validation import Judged
from npusim.validation.document import Unmeasured
from npusim.validation.running import GroupErrors

_MOST_ROWS = 60
_STATISTICS = {"mean_error": "mean", "median_error": "median", "p90_error": "p90"}
_REST = "all other groups"
_COLUMNS = 3
_CELL_HEIGHT = 290
_HEADINGS = ("group", "rows", "fitted", "mean", "median", "p90", "inside", "limit", "", "Intel's model")
Groups = tuple[dict[str, list[int]], dict[str, str]]
"""Rows by group, and the colours of groups."""


def validation_page(suites: Sequence[Judged], held_out: Mapping[str, Judged] | None = None) -> Page:
    """Return the page of a validation; where suites were cross-validated, plots show held-out predictions."""
    held_out = held_out or {}
    explained = "Errors |predicted - measured| / measured in %"
    if held_out:
        explained += "; held out: rows predicted by numbers that were not fitted to them"
    groups = [(judged.name, group) for judged in (*suites, *held_out.values()) for group in judged.groups]
    missed = [f"{suite}: {group.group}" for suite, group in groups if not group.ok]
    limited = any(group.limit is not None or group.rule.max_error is not None for _, group in groups)
    verdict = "every limit is kept" if limited else "no group has a limit"
    if missed:
        verdict = f"{len(missed)} limits are not kept: {'; '.join(missed)}"
    sections = [_suite_sections(i, judged, held_out.get(judged.name)) for i, judged in enumerate(suites)]
    return Page(
        f"Validation: {', '.join(judged.name for judged in suites)}",
        subject=explained,
        sections=[section for of_suite in sections for section in of_suite],
        conclusion=verdict,
    )


def _suite_sections(number: int, judged: Judged, held_out: Judged | None) -> list[Section]:
    shown = judged if held_out is None else held_out
    counts = f"{len(judged.evidence.ids)} figures, {judged.fitted} numbers fitted to them"
    if judged.is_determined:
        counts += ": determined, not tested"
    notes = [*judged.evidence.notes, *judged.suite.notes]

    def plots() -> list[Table | Plot]:
        rows = Table((), judged.result().rows, name=f"suites.{number}.rows", whole=True)
        title, groups = "Residuals: predicted / measured against each dimension", _groups(shown)
        return [
            Plot("", lambda: _scatter(shown, groups), rows),
            Plot(title, lambda: _residuals(shown, groups), least_width=800),
        ]

    return [
        Lines([judged.suite.title, counts], judged.name, "dim"),
        _group_table(judged, held_out),
        Lines(notes, style="dim"),
        Lines(["The plots show held-out predictions."] if held_out else [], style="dim", only="html"),
        Later(plots),
    ]


def _group_table(judged: Judged, held_out: Judged | None) -> Table:
    """Return a row for each group, those with a limit first; below it that of held-out rows."""
    others = {group.group: group for group in held_out.groups} if held_out is not None else {}
    groups = judged.groups
    if len(groups) > _MOST_ROWS:
        groups = sorted(groups, key=lambda group: (group.limit is None, -group.mean_error))
    rows = []
    for group in groups:
        rows.append(_group_row(group, False))
        if group.group in others:
            rows.append(_group_row(others[group.group], True))
    return cells_table(_HEADINGS, rows, most=_MOST_ROWS)


def _group_row(group: GroupErrors, is_held_out: bool) -> tuple[Cell, ...]:
    errors = (group.mean_error, group.median_error, group.p90_error, group.inside)
    first = Text("  held out", "dim") if is_held_out else Text(group.group, "cyan")
    verdict = Text("kept", style="bold green") if group.ok else Text("missed", style="bold red")
    if group.ok and group.fitted >= group.rows:
        verdict = Text("determined", style="yellow")
    return (
        first,
        "" if is_held_out else Amount(group.rows),
        Amount(group.fitted) if group.fitted and not is_held_out else "",
        *("" if error is None else Amount(error, "", _percent(error)) for error in errors),
        _limit(group),
        "" if group.limit is None and group.rule.inside is None else verdict,
        "" if is_held_out else group.rule.yardstick,
    )


def _limit(group: GroupErrors) -> str:
    unit, bounds = " points" if group.error == "points" else "", group.rule.inside
    most = {"any": group.rule.max_error, "p90": group.rule.p90_limit}
    limits = {name: f"{100 * limit:.3g}" for name, limit in most.items() if limit is not None}
    if group.limit is not None:
        limits = {_STATISTICS[group.rule.statistic]: f"{100 * group.limit:.3g}{unit}"} | limits
    if bounds is not None:
        limits["inside"] = f"{100 * bounds[0]:.3g} to {100 * bounds[1]:.3g}"
    return ", ".join(f"{name} {text}" for name, text in limits.items()) or f"-{unit}"


def _percent(part: float) -> str:
    hundredths = 100 * part
    return f"{hundredths:.1f}" if hundredths < 99.95 else f"{hundredths:.0f}"


def unmeasured_page(unmeasured: Unmeasured) -> Page:
    """Return the page of numbers that rest on no measured row, by data sheet."""
    columns = (
        Column("path", "number", layout=FOLD),
        Column("value", "value", words=False),
        Column("uncertainty", "", text=lambda share: f"+-{100 * share:.0f} %"),
        Column("source", "source", layout={**FOLD, "style": "dim"}),
    )
    by_soc = grouped(unmeasured.parameters, lambda number: number.soc)
    note = (
        "Numbers of the units' equations on which no row of measured silicon bears. Every kernel of the DSP "
        "libraries (configs/dsp) rests on a cost model as well."
    )
    tables = [Table(columns, numbers, soc, titled=True) for soc, numbers in by_soc.items()]
    return Page("Numbers without a measured row", sections=[*tables, Lines([note], style="dim")])


def _groups(judged: Judged) -> Groups:
    """Return the rows of the groups with the largest errors, below them all others, and the colours.

    Rows are named by the breakdown where it has few parts, else by their group.
    """
    names = judged.row_parts if len(set(judged.row_parts)) <= len(COLOURS) else judged.row_groups
    groups = [group for group in judged.groups if group.group in names]
    if len(groups) > len(COLOURS):
        modelled = (group for group in groups if not group.group.startswith("unmodelled"))
        groups = sorted(modelled, key=lambda group: (group.limit is None, -group.mean_error))
    colours = {group.group: colour for group, colour in zip(groups, COLOURS, strict=False)}
    members = grouped(range(len(names)), lambda row: names[row] if names[row] in colours else _REST)
    rows = {name: members[name] for name in (_REST, *colours) if name in members}
    return rows, {_REST: GREY, **colours}


def _scatter(judged: Judged, groups: Groups) -> Figure:
    """Return predicted over measured, both logarithmic, with the line of agreement and 10 % to both sides."""
    evidence = judged.evidence
    both = np.concatenate([evidence.measured, evidence.predicted])
    ends = (float(both[both > 0].min()) / 1.3, float(both.max()) * 1.3)
    unit = "s" if evidence.unit == "s" else ""
    named = f" ({evidence.unit})" if evidence.unit and not unit else ""
    axes = [log_axis(f"{what}{named}", unit, *ends) for what in ("measured", "predicted")]
    figure = blank_figure(xaxis=axes[0], yaxis=axes[1], height=600)
    add_guides(figure, ends, (1.1, 1 / 1.1))

    def place(row: int) -> tuple[float, float]:
        return _short(evidence.measured[row]), _short(evidence.predicted[row])

    rows, colours = groups
    add_groups(figure, rows, place, lambda row: _story(judged, row), colours, size=6)
    return figure


def _story(judged: Judged, row: int) -> str:
    """Return what a row says when it is touched: its group, its numbers and its dimensions."""
    evidence = judged.evidence
    measured, predicted = evidence.measured[row], evidence.predicted[row]
    lines = [
        f"<b>{evidence.ids[row]}</b> {escape(judged.row_groups[row])}",
        f"measured {measured:.4g}, predicted {predicted:.4g} {evidence.unit}",
        f"off by {predicted / measured - 1:+.1%}",
        *(f"{name} {_word(evidence.columns[name][row])}" for name in evidence.dimensions),
    ]
    return "<br>".join(lines)


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else escape(str(value))


def _residuals(judged: Judged, groups: Groups) -> Figure:
    """Return predicted / measured against each dimension, groups in the order in which they are drawn."""
    from plotly.subplots import make_subplots

    evidence = judged.evidence
    names = [name for name in evidence.dimensions if len(set(evidence.columns[name])) > 1]
    lines = max(1, -(-len(names) // _COLUMNS))
    figure = make_subplots(
        lines, _COLUMNS, subplot_titles=names, horizontal_spacing=0.06, vertical_spacing=0.38 / lines
    )
    ratio = evidence.predicted / evidence.measured

    def story(row: int) -> str:
        return f"row {evidence.ids[row]}: {ratio[row]:.3f}"

    for number, name in enumerate(names):
        values = evidence.columns[name]
        at: dict[str, Any] = {"row": number // _COLUMNS + 1, "col": number % _COLUMNS + 1}

        def place(row: int, values: NDArray[Any] = values) -> tuple[Any, float]:
            return values[row], _short(ratio[row])

        add_groups(figure, groups[0], place, story, groups[1], size=4, showlegend=False, **at)
        figure.add_hline(1.0, line={"color": "#999", "width": 1}, **at)
        figure.update_xaxes(**_dimension_axis(values), **at)
    low, high = np.quantile(ratio, [0.005, 0.995])
    figure.update_yaxes(range=[min(0.85, low - 0.05), max(1.15, min(high + 0.05, 3.0))])
    return figure.update_layout(height=_CELL_HEIGHT * lines + 60)


def _dimension_axis(values: NDArray[Any]) -> dict[str, Any]:
    if values.dtype == object:
        return {"type": "category", "categoryorder": "category ascending"}
    if values.min() > 0 and values.max() > 30 * values.min():
        return log_axis("", "", values.min(), values.max())
    return {}


def _short(value: float) -> float:
    """Return a value with five digits: a page of plots is mostly numbers."""
    return float(f"{value:.5g}")
