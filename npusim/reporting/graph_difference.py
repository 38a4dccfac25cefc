"""What a technique stack changes in an operator graph: tables for the terminal, and both graphs drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from npusim.graph import Graph, GraphDifference
from npusim.graph.difference import OperatorSummary
from npusim.reporting.charts import Figure, add_groups, add_marks, blank_figure
from npusim.reporting.engineering import Amount
from npusim.reporting.page import Page, Plot, document_page
from npusim.reporting.tables import Column, Table, cells_table
from npusim.reporting.terminal import counted

_MOST_OPERATORS = 12
_COLOURS = {"unchanged": "#bbbbbb", "removed": "#ee6677", "added": "#228833", "changed": "#ccbb44"}


def difference_page(difference: GraphDifference, graphs: tuple[Graph, Graph] | None = None) -> Page:
    """Return totals before and after, the operators that differ, and in HTML both graphs as pictures."""
    both = difference.before, difference.after
    totals = [
        ("operators", *(Amount(side.operators, "", str(side.operators)) for side in both)),
        ("MACs", *(Amount(side.macs) for side in both)),
        ("bytes read and written", *(Amount(side.bytes, "B") for side in both)),
    ]
    states = {
        operator.name: state
        for state in ("removed", "added", "changed")
        for operator in getattr(difference, state)
    }
    changes = (
        Column("name", "changed"),
        Column("type", show=lambda row: " -> ".join(dict.fromkeys((row.before.type, row.after.type)))),
        Column("changes", "what differs", lambda row: ", ".join(row.changes), words=True),
    )
    return document_page(
        difference,
        f"{difference.workload}: {both[0].techniques} -> {both[1].techniques}",
        "",
        [
            cells_table(("total", *(side.techniques for side in both)), totals, "Totals", "totals"),
            _operators("Removed", difference.removed),
            _operators("Added", difference.added),
            Table(changes, difference.changed, "Changed", "changed", most=_MOST_OPERATORS),
            *(
                Plot(f"{when}: {side.techniques}", partial(_drawn, graph, states))
                for when, side, graph in zip(("Before", "After"), both, graphs or (), strict=False)
            ),
        ],
        of=None,
        conclusion=f"{counted(len(states), 'operator')} differ."
        if states
        else "The two graphs are the same.",
    )


def _operators(title: str, operators: Sequence[OperatorSummary]) -> Table:
    def results(operator: OperatorSummary) -> str:
        return ", ".join(f"{tensor.shape} {tensor.dtype}" for tensor in operator.outputs)

    columns = (
        Column("name", title.lower()),
        Column("type"),
        Column("outputs", "result", results, words=True),
        Column("macs", "MACs", lambda operator: Amount(operator.macs or None)),
    )
    return Table(columns, operators, title, title.lower(), most=_MOST_OPERATORS)


def _drawn(graph: Graph, states: Mapping[str, str]) -> Figure:
    """Return one graph as a picture: operators in the layers of their longest path from an input."""
    import networkx as nx

    drawn = graph.to_networkx()
    drawn.remove_nodes_from([name for name in list(drawn) if name not in graph.operators])
    layers = list(nx.topological_generations(drawn))
    place = {
        name: (column - (len(layer) - 1) / 2.0, -row)
        for row, layer in enumerate(layers)
        for column, name in enumerate(layer)
    }
    figure = blank_figure(height=max(240, 26 * len(layers)))
    ends = [at for source, target in drawn.edges for at in (place[source], place[target], (None, None))]
    add_marks(figure, "tensors", ends, lambda at: at, {}, mode="lines", line={"color": "#dddddd"})
    groups = {state: [n for n in place if states.get(n, "unchanged") == state] for state in _COLOURS}
    add_groups(
        figure, groups, place.__getitem__, lambda n: f"{n}<br>{graph.operators[n].type}", _COLOURS, size=12
    )
    return figure.update_xaxes(visible=False).update_yaxes(visible=False)
