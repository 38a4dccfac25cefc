"""Figures of pages: bars, lines, marks, spans of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from npusim.reporting.engineering import Amount, engineering, part
from npusim.reporting.html import COLOURS, GREY, amount_axis, names_axis
from npusim.reporting.page import Plot
from npusim.reporting.tables import Column, Table, grouped, summed
from npusim.reporting.terminal import share_bar

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as Figure
else:  # plotly is imported with the first figure
    Figure = object

Span = tuple[float, float, str, str]
"""Begin (s), length (s), track, and what the bar says when touched."""
_OTHERS = "others"
_MOST_MARKS = 1000  # marks from which the graphics card draws them


def blank_figure(**layout: Any) -> Figure:
    """Return a figure without traces; the plotting library is imported on first use."""
    from plotly.graph_objects import Figure

    return Figure(layout=layout)


def bar_figure(
    series: Mapping[str, Mapping[str, float | None]],
    axis: Mapping[str, Any],
    unit: str,
    *,
    mode: str = "group",
    colours: Mapping[str, str] | None = None,
    height: int = 0,
) -> Figure:
    """Return horizontal bars, names down the side.

    Parameters
    ----------
    series : mapping of str to mapping of str to float or None
        Values by name, of each series.
    axis : mapping of str to Any
        Settings of the axis of values.
    mode : {"group", "stack", "overlay"}
        How series share a name's place.
    height : int
        In pixels; 0: what the bars need.
    """
    names = list(dict.fromkeys(name for values in series.values() for name in values))
    rows = len(names) * (len(series) if mode == "group" else 1)
    height = height or (150 + 18 * (rows + len(names)) if mode == "group" else 100 + 34 * rows)
    figure = blank_figure(barmode=mode, xaxis=axis, yaxis=names_axis(names), height=height)
    for number, (label, values) in enumerate(series.items()):
        amounts = [None if value is None else engineering(value, unit) for value in values.values()]
        texts = [f"{escape(name)}, {escape(label)}: {a}" for name, a in zip(values, amounts, strict=True)]
        figure.add_bar(
            x=list(values.values()),
            y=list(values),
            orientation="h",
            name=label,
            marker={"color": (colours or {}).get(label, COLOURS[number % len(COLOURS)])},
            hovertext=texts,
            hoverinfo="text",
        )
    return figure


def stacked_bars(
    rows: Mapping[str, Mapping[str, float]], unit: str, colours: Mapping[str, str] | None = None
) -> Figure:
    """Return a bar for each name, stacked of its parts."""
    names = dict.fromkeys(part for parts in rows.values() for part in parts)
    series = {part: {name: parts.get(part, 0.0) for name, parts in rows.items()} for part in names}
    return bar_figure(series, amount_axis("", unit), unit, mode="stack", colours=colours)


def amount_bars(
    axis: str, unit: str, values: Mapping[str, float | None], colours: Mapping[str, str] | None = None
) -> Figure | None:
    """Return a bar for each name with its amount; None where no name has one."""
    known = {name: value for name, value in values.items() if value is not None}
    if not known:
        return None
    figure = bar_figure({"": known}, amount_axis(axis, unit), unit, height=130 + 30 * len(known))
    figure.update_layout(margin={"r": 70})
    return figure.update_traces(
        marker={"color": [(colours or {}).get(name, COLOURS[0]) for name in known]},
        text=[engineering(value, unit) for value in known.values()],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{y}: %{text}<extra></extra>",
    )


def parts_plot(
    title: str,
    heading: str,
    rows: Mapping[str, Mapping[str, float] | float],
    unit: str,
    whole: float,
    *,
    name: str,
    colours: Mapping[str, str] | None = None,
    caption: str = "",
    most: int = 0,
) -> Plot:
    """Return bars of named amounts and the table of their shares of a whole, both from the same rows.

    Parameters
    ----------
    heading : str
        Heading of the names; the terminal shows the table where details are asked for.
    rows : mapping of str to float, or to mapping of str to float
        An amount by name, or its parts by theirs: a bar is stacked of them.
    whole : float
        What shares are of.
    name : str
        Name of the CSV file.
    most : int
        Bars, and rows on the terminal, at most; 0: all.
    """
    parts = {key: row if isinstance(row, Mapping) else {"": row} for key, row in rows.items()}
    shown = dict(list(parts.items())[: most or None])
    inner = dict.fromkeys(key for row in parts.values() for key in row if key)
    totals = {key: sum(row.values()) for key, row in parts.items()}
    columns = (
        Column("", heading, lambda key: key, layout={"min_width": 14}),
        *(Column("", p, lambda key, p=p: Amount(parts[key].get(p), unit), "html") for p in inner),
        Column("", "in all", lambda key: Amount(totals[key], unit)),
        Column("", "share", lambda key: part(totals[key] / whole)),
        Column("", "", lambda key: share_bar(totals[key] / whole), "terminal"),
    )

    def draw() -> Figure | None:
        if inner:
            return stacked_bars(shown, unit, colours)
        return amount_bars(heading, unit, {key: totals[key] for key in shown}, colours)

    return Plot(title, draw, Table(columns, list(parts), "", name, caption, most=most, detail=True))


def line_figure(
    series: Mapping[str, tuple[Sequence[Any], Sequence[Any]]],
    x_axis: Mapping[str, Any],
    y_axis: Mapping[str, Any],
    *,
    mode: str = "lines",
    height: int = 420,
    styles: Mapping[str, Mapping[str, Any]] | None = None,
) -> Figure:
    """Return a line or dots through the points of each series, x and y; styles are settings of a series."""
    figure = blank_figure(xaxis=x_axis, yaxis=y_axis, height=height)
    for number, (name, (x, y)) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        style = {"line": {"color": colour}} if "lines" in mode else {"marker": {"color": colour, "size": 10}}
        figure.add_scatter(
            **{"x": x, "y": y, "name": name, "mode": mode, **style, **(styles or {}).get(name, {})}
        )
    return figure


def add_marks(
    figure: Figure,
    name: str,
    points: Sequence[Any],
    at: Callable[[Any], tuple[Any, Any]],
    marker: Mapping[str, Any],
    hover: Callable[..., str] | None = None,
    **settings: Any,
) -> None:
    """Draw a mark for each point; `at` returns where, `hover` what it says when touched."""
    places = [at(point) for point in points]
    draw = figure.add_scattergl if len(points) > _MOST_MARKS else figure.add_scatter
    trace = {"mode": "markers", "name": name, "marker": marker, "hoverinfo": "text" if hover else "skip"}
    text = None if hover is None else [hover(point) for point in points]
    draw(x=[x for x, _ in places], y=[y for _, y in places], text=text, **(trace | settings))


def add_groups(
    figure: Figure,
    groups: Mapping[str, Sequence[Any]],
    at: Callable[[Any], tuple[Any, Any]],
    hover: Callable[..., str],
    colours: Mapping[str, str] | None = None,
    **settings: Any,
) -> None:
    """Draw a mark for each point of each group, groups in colours of their own."""
    size = settings.pop("size", 8)
    for number, (name, points) in enumerate(groups.items()):
        colour = (colours or {}).get(name, COLOURS[number % len(COLOURS)])
        marker = {"color": colour, "size": size, "opacity": 0.8}
        if points:
            add_marks(figure, name, points, at, marker, hover, **settings)


def add_spans(figure: Figure, name: str, colour: str, spans: Sequence[Span], **place: int) -> None:
    """Draw spans of time as bars; `place` is the row and column of a figure of several."""
    begins, lengths, tracks, stories = (list(column) for column in zip(*spans, strict=True))
    figure.add_bar(
        base=begins,
        x=lengths,
        y=tracks,
        orientation="h",
        name=name,
        hovertext=stories,
        hoverinfo="text",
        marker={"color": colour, "line": {"width": 0}},
        **place,
    )


def add_tracks(figure: Figure, spans: Sequence[tuple[str, Span]], **place: int) -> None:
    """Draw named spans of time: the names that take longest in colours of their own, all others in grey."""
    spent = summed((name, length_s) for name, (_, length_s, *_) in spans)
    longest = sorted(spent, key=lambda name: -spent[name])[: len(COLOURS)]
    named = grouped(spans, lambda span: span[0] if span[0] in longest else _OTHERS)
    colours = dict(zip((name for name in spent if name in longest), COLOURS, strict=False))
    for name in (*colours, _OTHERS):
        if name in named:
            own = [span for _, span in named[name]]
            add_spans(figure, name, colours.get(name, GREY), own, **place)


def add_launch(figure: Figure, begin_s: float, end_s: float, **place: int) -> None:
    """Draw the launch behind bars, with its length."""
    text = {"text": f"launch {engineering(end_s - begin_s, 's')}", "textangle": -90}
    grey = {"fillcolor": "#dddddd", "opacity": 0.5, "line_width": 0, "layer": "below"}
    figure.add_vrect(begin_s, end_s, annotation=text, annotation_position="top left", **grey, **place)


def add_guides(figure: Figure, ends: tuple[float, float], shares: Iterable[float]) -> None:
    """Draw the line of agreement, and dotted ones so many times above or below it."""
    for share in (1.0, *shares):
        line = {"color": "#999", "width": 1, "dash": "solid" if share == 1.0 else "dot"}
        y = [share * end for end in ends]
        figure.add_scatter(x=list(ends), y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False)
