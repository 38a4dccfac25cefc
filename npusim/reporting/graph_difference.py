"""What a technique stack changes in an operator graph: tables for the terminal, and both graphs drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from npusim.graph import Graph, GraphDifference
from npusim.reporting.engineering import engineering
from npusim.reporting.page import Amount, Column, Page, Plot, Section, Table
from npusim.reporting.terminal import counted

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from npusim.graph.difference import OperatorSummary

_MOST_OPERATORS = 12
_COLOURS = {"unchanged": "#bbbbbb", "removed": "#ee6677", "added": "#228833", "changed": "#ccbb44"}


def difference_page(difference: GraphDifference, graphs: tuple[Graph, Graph] | None = None) -> Page:
    """Return totals before and after, the operators that differ, and in HTML both graphs as pictures."""
    before, after = difference.before, difference.after
    totals = [
        ("operators", str(before.operators), str(after.operators)),
        ("MACs", engineering(before.macs, ""), engineering(after.macs, "")),
        ("bytes read and written", engineering(before.bytes, "B"), engineering(after.bytes, "B")),
    ]
    columns = [
        Column("", heading, lambda row, i=i: row[i], words=not i)
        for i, heading in enumerate(("total", before.techniques, after.techniques))
    ]
    sections: list[Section | None] = [
        Table(columns, totals, "Totals", "totals"),
        _operators("Removed", difference.removed),
        _operators("Added", difference.added),
        _changes(difference),
        *(_pictures(difference, *graphs) if graphs is not None else ()),
    ]
    count = len(difference.removed) + len(difference.added) + len(difference.changed)
    differ = f"{counted(count, 'operator')} differ." if count else "The two graphs are the same."
    title = f"{difference.workload}: {before.techniques} -> {after.techniques}"
    return Page(title, subject=title, sections=sections, conclusion=differ)


def _operators(title: str, operators: Sequence[OperatorSummary]) -> Table | None:
    """Return a table of operators; None where there are none."""

    def results(operator: OperatorSummary) -> str:
        return ", ".join(f"{tensor.shape} {tensor.dtype}" for tensor in operator.outputs)

    columns = [
        Column("name", title.lower()),
        Column("type"),
        Column("outputs", "result", results, words=True),
        Column("macs", "MACs", lambda operator: Amount(operator.macs or None)),
    ]
    return Table(columns, operators, title, title.lower(), most=_MOST_OPERATORS) if operators else None


def _changes(difference: GraphDifference) -> Table | None:
    """Return a table of the operators that both graphs have with differences."""
    columns = [
        Column("name", "changed"),
        Column("type", show=lambda row: " -> ".join(dict.fromkeys((row.before.type, row.after.type)))),
        Column("changes", "what differs", lambda row: ", ".join(row.changes), words=True),
    ]
    rows = difference.changed
    return Table(columns, rows, "Changed", "changed", most=_MOST_OPERATORS) if rows else None


def _pictures(difference: GraphDifference, before: Graph, after: Graph) -> list[Plot]:
    """Return both graphs drawn, operators that differ in colour."""
    removed = dict.fromkeys((operator.name for operator in difference.removed), "removed")
    added = dict.fromkeys((operator.name for operator in difference.added), "added")
    changed = dict.fromkeys((operator.name for operator in difference.changed), "changed")
    return [
        Plot(f"Before: {difference.before.techniques}", lambda: _drawn(before, removed | changed)),
        Plot(f"After: {difference.after.techniques}", lambda: _drawn(after, added | changed)),
    ]


def _drawn(graph: Graph, states: Mapping[str, str]) -> go.Figure:
    """Return one graph as a picture: operators in the layers of their longest path from an input."""
    import networkx as nx
    import plotly.graph_objects as go

    drawn = graph.to_networkx()
    drawn.remove_nodes_from([name for name in list(drawn) if name not in graph.operators])
    layers = list(nx.topological_generations(drawn))
    place = {
        name: (column - (len(layer) - 1) / 2.0, -row)
        for row, layer in enumerate(layers)
        for column, name in enumerate(layer)
    }
    figure = go.Figure()
    ends = [(place[source], place[target], (None, None)) for source, target in drawn.edges]
    points = [point for edge in ends for point in edge]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    figure.add_scatter(x=xs, y=ys, mode="lines", line={"color": "#dddddd"}, hoverinfo="skip", name="tensors")
    for state, colour in _COLOURS.items():
        names = [name for name in place if states.get(name, "unchanged") == state]
        if names:
            figure.add_scatter(
                x=[place[name][0] for name in names],
                y=[place[name][1] for name in names],
                mode="markers",
                marker={"color": colour, "size": 12, "symbol": "square"},
                text=[f"{name}<br>{graph.operators[name].type}" for name in names],
                hoverinfo="text",
                name=state,
            )
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.update_layout(height=max(240, 26 * len(layers)))
    return figure
