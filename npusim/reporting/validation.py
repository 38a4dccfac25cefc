"""The page of a validation: errors by group with their limits, predicted over measured, residuals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from npusim.reporting.charts import Figure, add_guides, blank_figure
from npusim.reporting.engineering import Amount, Cell
from npusim.reporting.html import COLOURS, GREY, log_axis
from npusim.reporting.page import CYAN, FOLD, Column, Later, Lines, Page, Plot, Section, Table, grouped
from npusim.validation import Judged
from npusim.validation.document import Unmeasured
from npusim.validation.running import GroupErrors

# The terminal shows of a suite with more groups those with a limit and the worst of the others.
_MOST_ROWS = 60
_LEAST_FREE = 10
_MOST_OPEN = 24  # more groups without a limit than this are folded away in HTML
_DETERMINED = ": determined, not tested"
_STATISTICS = {"mean_error": "mean", "median_error": "median", "p90_error": "p90"}
_REST = "all other groups"
_COLUMNS = 3
_CELL_HEIGHT = 290
# A dimension with no more values than this is shown by boxes: points would lie upon each other.
_FEW_VALUES = 12
# A dimension with more words than this (names of operators) is shown by those with the largest errors.
_MOST_WORDS = 24
# A figure with more points is left to the graphics card, which takes only a few such figures.
_MOST_DRAWN = 6000
Trace = tuple[str, str, NDArray[np.int64]]
"""Name, colour and rows of a group."""


def validation_page(suites: Sequence[Judged], held_out: Mapping[str, Judged] | None = None) -> Page:
    """Return the page of a validation; where suites were cross-validated, plots show held-out predictions."""
    held_out = held_out or {}
    explained = "Errors |predicted - measured| / measured in %"
    if held_out:
        explained += "; held out: rows predicted by numbers that were not fitted to them"
    groups = [(judged.name, group) for judged in (*suites, *held_out.values()) for group in judged.groups]
    missed = [f"{suite}: {group.group}" for suite, group in groups if not group.ok]
    limited = any(group.limit is not None or group.rule.max_error is not None for _, group in groups)
    verdict = Text(
        "every limit is kept" if limited else "no group has a limit", style="bold green" if limited else ""
    )
    if missed:
        verdict = Text(f"{len(missed)} limits are not kept: {'; '.join(missed)}", style="bold red")
    return Page(
        f"Validation: {', '.join(judged.name for judged in suites)}",
        subject=explained,
        sections=[
            *(
                section
                for number, judged in enumerate(suites)
                for section in _suite_sections(number, judged, held_out.get(judged.name))
            ),
            verdict,
        ],
        lead=str(verdict),
    )


def _suite_sections(number: int, judged: Judged, held_out: Judged | None) -> list[Section]:
    shown = judged if held_out is None else held_out
    colours = _colours(shown)
    name = f"suites.{number}.rows"
    notes = [*judged.evidence.notes, *judged.suite.notes]

    def plots() -> list[Table | Plot]:
        rows = Table((), judged.result().rows, name=name, whole=True)
        return [
            Plot("", lambda: _scatter(shown, colours), rows),
            Plot(
                "Residuals: predicted / measured against each dimension",
                lambda: _residuals(shown, _traces(shown, colours)),
                least_width=800,
            ),
        ]

    return [
        Lines([judged.suite.title, _counts(judged)], judged.name, "dim", anchor=judged.name),
        *_group_tables(judged, held_out),
        Lines(notes, style="dim"),
        Lines(["The plots show held-out predictions."] if held_out else [], style="dim", only="html"),
        Later(plots),
    ]


def _counts(judged: Judged) -> str:
    """Return how many figures a suite has and how many numbers are fitted to them."""
    rows = len(judged.evidence.ids)
    return (
        f"{rows} figures, {judged.fitted} numbers fitted to them{_DETERMINED if judged.is_determined else ''}"
    )


def _group_tables(judged: Judged, held_out: Judged | None) -> list[Section]:
    """Return a row for each group; below it the errors of held-out rows where there are any."""
    others = {group.group: group for group in held_out.groups} if held_out is not None else {}
    limited = [group for group in judged.groups if group.limit is not None]
    free = [group for group in judged.groups if group.limit is None]
    worst = sorted(free, key=lambda group: -group.mean_error)
    most = max(_LEAST_FREE, _MOST_ROWS - len(limited))
    hidden = worst[most:] if len(judged.groups) > _MOST_ROWS else []
    shown = limited + worst[:most] if len(judged.groups) > _MOST_ROWS else judged.groups

    def rows(groups: Sequence[GroupErrors]) -> list[tuple[GroupErrors, bool]]:
        with_others = ([(group, False), (others.get(group.group), True)] for group in groups)
        return [(group, held) for pair in with_others for group, held in pair if group is not None]

    is_folded = len(free) > _MOST_OPEN and bool(limited)
    open_groups = limited if is_folded else limited + free
    more = [
        f"{len(hidden)} more groups without a limit, mean at most {_percent(g.mean_error)} %" for g in hidden
    ]
    folded = f"{len(free)} groups without a limit"
    return [
        Table(_GROUP_COLUMNS, rows(open_groups), terminal=rows(shown)),
        Lines(more[:1], style="dim", only="terminal"),
        Table(_GROUP_COLUMNS, rows(free) if is_folded else [], only="html", folded=folded),
    ]


def _error(name: str, heading: str) -> Column:
    return Column("", heading, lambda row: Amount(getattr(row[0], name), "", _percent(getattr(row[0], name))))


def _limit(row: tuple[GroupErrors, bool]) -> str:
    group, _ = row
    unit, bounds = " points" if group.error == "points" else "", group.rule.inside
    limits = (
        {} if group.limit is None else {_STATISTICS[group.rule.statistic]: f"{100 * group.limit:.3g}{unit}"}
    )
    further = {"any": group.rule.max_error, "p90": group.rule.p90_limit}
    limits |= {name: f"{100 * most:.3g}" for name, most in further.items() if most is not None}
    if bounds is not None:
        limits["inside"] = f"{100 * bounds[0]:.3g} to {100 * bounds[1]:.3g}"
    return ", ".join(f"{name} {text}" for name, text in limits.items()) or "-"


def _verdict(row: tuple[GroupErrors, bool]) -> Cell:
    group, _ = row
    if group.limit is None and group.rule.inside is None:
        return ""
    if group.ok and group.fitted >= group.rows:
        return Text("determined", style="yellow")
    return Text("kept", style="bold green") if group.ok else Text("missed", style="bold red")


_GROUP_COLUMNS = (
    Column("", "group", lambda row: Text("  held out", "dim") if row[1] else Text(row[0].group, "cyan")),
    Column("", "rows", lambda row: "" if row[1] else Amount(row[0].rows)),
    Column("", "fitted", lambda row: Amount(row[0].fitted) if row[0].fitted and not row[1] else ""),
    _error("mean_error", "mean"),
    _error("median_error", "median"),
    _error("p90_error", "p90"),
    Column(
        "",
        "inside",
        lambda row: "" if row[0].inside is None else Amount(row[0].inside, "", _percent(row[0].inside)),
    ),
    Column("", "unit", lambda row: "points" if row[0].error == "points" else "%", "html"),
    Column("", "limit", _limit, words=False),
    Column("", "", _verdict),
    Column("", "Intel's model", lambda row: "" if row[1] else row[0].rule.yardstick, layout=FOLD),
)


def _percent(part: float) -> str:
    hundredths = 100 * part
    return f"{hundredths:.1f}" if hundredths < 99.95 else f"{hundredths:.0f}"


def unmeasured_page(unmeasured: Unmeasured) -> Page:
    """Return the page of numbers that rest on no measured row, part by part of each data sheet."""
    tables = []
    by_part = grouped(unmeasured.parameters, lambda number: (number.soc, _part(number.path)))
    for (soc, part), numbers in by_part.items():
        prefix = f"{part}."
        columns = (
            Column("", part, lambda number, prefix=prefix: number.path.removeprefix(prefix), layout=CYAN),
            Column("value", "value", words=False),
            Column("uncertainty", "", text=lambda share: f"+-{100 * share:.0f} %"),
            Column("source", "source", layout={**FOLD, "style": "dim"}),
        )
        tables.append(Table(columns, numbers, soc, titled=True))
    note = (
        "Numbers of the units' equations on which no row of measured silicon bears. Every kernel of the DSP "
        "libraries (configs/dsp) rests on a cost model as well."
    )
    return Page("Numbers without a measured row", sections=[*tables, Lines([note], style="dim")])


def _part(path: str) -> str:
    """Return the part of a data sheet that a number stands in: `npu.dpu.model`, `npu.dsp.kernels.NAME`."""
    keys = path.split(".")
    return ".".join(keys[: 4 if keys[2] == "kernels" else 3])


def _names(judged: Judged) -> list[str]:
    """Return what each row is coloured by: the breakdown where it has few parts, else the groups."""
    return judged.row_parts if len(set(judged.row_parts)) <= len(COLOURS) else judged.row_groups


def _colours(judged: Judged) -> dict[str, str]:
    """Return a colour for each name of rows, or where there are many for those with the largest errors."""
    names = set(_names(judged))
    groups = [group for group in judged.groups if group.group in names]
    if len(groups) > len(COLOURS):
        groups = [group for group in groups if not group.group.startswith("unmodelled")]
        groups = sorted(groups, key=lambda group: (group.limit is None, -group.mean_error))[
            : len(COLOURS) - 1
        ]
    return {group.group: colour for group, colour in zip(groups, COLOURS, strict=False)}


def _traces(judged: Judged, colours: Mapping[str, str]) -> list[Trace]:
    """Return (name, colour, rows) of each coloured group, all others first so that they lie below."""
    names = np.array([name if name in colours else _REST for name in _names(judged)], object)
    rows = {name: np.flatnonzero(names == name) for name in (_REST, *colours)}
    return [(name, colours.get(name, GREY), members) for name, members in rows.items() if len(members)]


def _scatter(judged: Judged, colours: Mapping[str, str]) -> Figure:
    """Return predicted over measured, both logarithmic, with the line of agreement and 10 % to both sides."""
    evidence, stories = judged.evidence, _stories(judged)
    both = np.concatenate([evidence.measured, evidence.predicted])
    ends = (float(both[both > 0].min()) / 1.3, float(both.max()) * 1.3)
    unit = "s" if evidence.unit == "s" else ""
    named = f" ({evidence.unit})" if evidence.unit and not unit else ""
    axes = [log_axis(f"{what}{named}", unit, *ends) for what in ("measured", "predicted")]
    figure = blank_figure(xaxis=axes[0], yaxis=axes[1], height=600)
    add_guides(figure, ends, (1.1, 1 / 1.1))
    for name, colour, rows in _traces(judged, colours):
        figure.add_scatter(
            x=_short(evidence.measured[rows]),
            y=_short(evidence.predicted[rows]),
            mode="markers",
            name=name,
            marker={"color": colour, "size": 6, "opacity": 0.7},
            text=[stories[row] for row in rows],
            hovertemplate="%{text}<extra></extra>",
        )
    return figure


def _stories(judged: Judged) -> list[str]:
    """Return what each row says when it is touched: its group, its numbers and its dimensions."""
    evidence = judged.evidence
    columns = {name: values for name, values in evidence.columns.items() if len(set(values)) > 1}
    texts = []
    for row, id_ in enumerate(evidence.ids):
        measured, predicted = evidence.measured[row], evidence.predicted[row]
        known = "<br>".join(f"{name} {_value(values[row])}" for name, values in columns.items())
        head = f"<b>{id_}</b> {escape(judged.row_groups[row])}"
        off = f"{predicted / measured - 1:+.1%}"
        numbers = f"measured {measured:.4g}, predicted {predicted:.4g} {evidence.unit} ({off})"
        texts.append(f"{head}<br>{numbers}<br>{known}")
    return texts


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else escape(str(value))


def _residuals(judged: Judged, traces: Sequence[Trace]) -> Figure:
    """Return predicted / measured against each dimension, groups in the order in which they are drawn."""
    from plotly.subplots import make_subplots

    evidence = judged.evidence
    names = [name for name in evidence.dimensions if len(set(evidence.columns[name])) > 1]
    lines = max(1, -(-len(names) // _COLUMNS))
    figure = make_subplots(
        lines, _COLUMNS, subplot_titles=names, horizontal_spacing=0.06, vertical_spacing=0.38 / lines
    )
    many = len(evidence.ids) * len(names) > _MOST_DRAWN
    ratio = evidence.predicted / evidence.measured
    for place, name in enumerate(names):
        at = {"row": place // _COLUMNS + 1, "col": place % _COLUMNS + 1}
        _draw_dimension(figure, evidence.columns[name], judged, traces, at, many)
        figure.add_hline(1.0, line={"color": "#999", "width": 1}, **at)
    low, high = np.quantile(ratio, [0.005, 0.995])
    figure.update_yaxes(range=[min(0.85, low - 0.05), max(1.15, min(high + 0.05, 3.0))])
    figure.update_layout(boxmode="group", boxgap=0.2, height=_CELL_HEIGHT * lines + 60)
    return figure


def _draw_dimension(
    figure: Figure,
    values: NDArray[Any],
    judged: Judged,
    traces: Sequence[Trace],
    at: dict[str, int],
    many: bool,
) -> None:
    """Draw predicted / measured over one dimension: a box per group and value where few, else each row."""
    evidence = judged.evidence
    axis: dict[str, Any] = {}
    x, kept = values, np.ones(len(values), bool)
    draw = figure.add_scattergl if many else figure.add_scatter
    is_boxed = len(set(values)) <= _FEW_VALUES
    if is_boxed:
        words = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
        order = dict.fromkeys(word for _, word in sorted(zip(values, words, strict=True)))
        axis = {"type": "category", "categoryorder": "array", "categoryarray": list(order)}
        x, draw = np.array(words, object), figure.add_box
    else:
        kept = _worst_words(values, evidence.errors)
        if values.dtype == object:
            axis = {"type": "category", "categoryorder": "category ascending"}
        elif values.min() > 0 and values.max() > 30 * values.min():
            axis = log_axis("", "", values.min(), values.max())
    ids = np.array([str(id_) for id_ in evidence.ids], object)
    ratio = evidence.predicted / evidence.measured
    for group, colour, members in traces:
        rows = members[kept[members]]
        style: dict[str, Any] = {"marker": {"color": colour, "size": 4, "opacity": 0.6}, "text": ids[rows]}
        style |= {"mode": "markers", "hovertemplate": "row %{text}: %{y:.3f} at %{x}"}
        if is_boxed:
            style = {"marker": {"color": colour, "size": 3}, "line": {"width": 1}, "offsetgroup": group}
        draw(x=x[rows], y=_short(ratio[rows]), name=group, showlegend=False, **style, **at)
    figure.update_xaxes(**axis, **at)


def _worst_words(values: NDArray[Any], errors: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which rows to draw: of many words, those of the words with the largest errors."""
    words = sorted(set(values)) if values.dtype == object else []
    if len(words) <= _MOST_WORDS:
        return np.ones(len(values), bool)
    worst = sorted(words, key=lambda word: -float(errors[values == word].mean()))[:_MOST_WORDS]
    return np.isin(values, np.array(worst, object))


def _short(values: NDArray[np.float64]) -> list[float]:
    """Return values with five digits: a page of plots is mostly numbers."""
    return [float(f"{value:.5g}") for value in values]
