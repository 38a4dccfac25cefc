"""What a technique stack changes in an operator graph: tables for the terminal, and both graphs drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.graph import Graph, GraphDifference
from npusim.report.engineering import engineering
from npusim.report.terminal import counted, headed

if TYPE_CHECKING:
    from npusim.graph.difference import OperatorSummary

_MOST_OPERATORS = 12
_COLOURS = {"unchanged": "#bbbbbb", "removed": "#ee6677", "added": "#228833", "changed": "#ccbb44"}


def difference_page(difference: GraphDifference) -> RenderableType:
    """Return totals before and after, and the operators that differ, for the terminal."""
    before, after = difference.before, difference.after
    title = Text(difference.workload, style="bold")
    title.append(f": {before.techniques} -> {after.techniques}")
    totals = headed("", before.techniques, after.techniques, style="cyan", overflow="fold")
    totals.add_row("operators", str(before.operators), str(after.operators))
    totals.add_row("MACs", engineering(before.macs, ""), engineering(after.macs, ""))
    totals.add_row("bytes read and written", engineering(before.bytes, "B"), engineering(after.bytes, "B"))
    parts: list[RenderableType] = [title, Text(), totals]
    parts += _listed("Removed", difference.removed)
    parts += _listed("Added", difference.added)
    if difference.changed:
        table = headed("Changed", "type", "what differs", style="cyan", overflow="fold")
        for change in difference.changed[:_MOST_OPERATORS]:
            types = dict.fromkeys((change.before.type, change.after.type))
            table.add_row(change.name, " -> ".join(types), ", ".join(change.changes))
        parts += [Text(), table, *_more(len(difference.changed))]
    if len(parts) == 3:
        parts += [Text(), Text("The two graphs are the same.", style="dim")]
    return Group(*parts)


def _listed(heading: str, operators: Sequence[OperatorSummary]) -> list[RenderableType]:
    """Return a table of operators below a heading; nothing where there are none."""
    if not operators:
        return []
    table: Table = headed(heading, "type", "result", "MACs", style="cyan", overflow="fold")
    for operator in operators[:_MOST_OPERATORS]:
        shapes = ", ".join(f"{tensor.shape} {tensor.dtype}" for tensor in operator.outputs)
        macs = engineering(operator.macs, "") if operator.macs else ""
        table.add_row(operator.name, operator.type, shapes, macs)
    return [Text(), table, *_more(len(operators))]


def _more(operators: int) -> list[RenderableType]:
    rest = operators - _MOST_OPERATORS
    return [Text(f"{counted(rest, 'more operator')}.", style="dim")] if rest > 0 else []


def difference_html(difference: GraphDifference, command: str, before: Graph, after: Graph) -> str:
    """Return a page with both graphs, layer by layer, operators that differ in colour."""
    from npusim.report.html import page, table

    removed = dict.fromkeys((one.name for one in difference.removed), "removed")
    added = dict.fromkeys((one.name for one in difference.added), "added")
    changed = dict.fromkeys((one.name for one in difference.changed), "changed")
    rows = [(name, state) for name, state in {**removed, **changed, **added}.items()]
    return page(
        f"{difference.workload}: {difference.before.techniques} -> {difference.after.techniques}",
        _drawn(before, f"Before: {difference.before.techniques}", removed | changed),
        _drawn(after, f"After: {difference.after.techniques}", added | changed),
        table(("operator", "change"), rows, words=(0, 1), name="changes"),
        lead=f"{counted(len(rows), 'operator')} differ" if rows else "The two graphs are the same.",
        command=command,
    )


def _drawn(graph: Graph, title: str, states: Mapping[str, str]) -> str:
    """Return one graph as a picture: operators in the layers of their longest path from an input."""
    import networkx as nx
    import plotly.graph_objects as go

    from npusim.report.html import plot

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
    return plot(figure, max(240, 26 * len(layers)), title)
