"""The HTML page of an architecture search: tried points, fronts, hypervolumes, chosen ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from npusim.magnas.page import mean_gains, search_verdict
from npusim.report.accuracy import share
from npusim.report.document_html import records_table, titled
from npusim.report.engineering import engineering, factor
from npusim.report.html import COLOURS, GREY, Amount, Cell, figures, folded, log_axis, page, plot, table, text

if TYPE_CHECKING:
    from npusim.magnas.documents import ArchitectureSearch, MappedArchitecture

_SEARCHES = {
    "nested": ("nested search", COLOURS[0]),
    "single_unit": ("single units", COLOURS[1]),
    "chance": ("random search", COLOURS[3]),
}
Explored = Sequence[tuple[float, float, float]]
_MOST_ROWS = 400


def search_html(found: ArchitectureSearch, explored: Explored, command: str = "") -> str:
    """Return a search as HTML that needs no other file.

    Parameters
    ----------
    explored : sequence of tuple of float
        Accuracy, latency (s) and energy (J) of mapped architectures that were tried.
    """
    last = found.steps[-1]
    headline = [
        ("architectures tried", f"{last.evaluated:,}"),
        ("in the space", f"{found.points:.3g}"),
        ("on the front", f"{len(found.front):,}"),
        ("of these on several units", share(found.distributed_share)),
        ("hypervolume over single units", _more(last.nested, last.single_unit)),
        ("over random search", _more(last.nested, last.chance)),
    ]
    return page(
        titled("Architectures and mappings", found.model_dump(include={"workload", "soc"})),
        figures(headline),
        _picture(found, explored, "Energy over latency", 1, 2),
        _picture(found, explored, "Accuracy over latency", 1, 0),
        _hypervolumes(found),
        _chosen(found),
        _baselines(found),
        "<h2>Mappings</h2>" + _mappings(found),
        "<h2>The front</h2>" + folded(f"{len(found.front):,} architectures with mappings", _front(found)),
        lead=search_verdict(found),
        notes=_notes(found),
        command=command,
    )


def _more(one: float, other: float) -> str:
    return f"{one / other - 1.0:+.1%}" if other else "from nothing"


def _picture(found: ArchitectureSearch, explored: Explored, heading: str, x: int, y: int) -> str:
    """Return fronts over explored points; axes are accuracy, latency and energy by number."""
    figure = go.Figure()
    figure.add_scattergl(
        x=[one[x] for one in explored], y=[one[y] for one in explored], mode="markers", name="tried",
        marker={"size": 3, "color": GREY, "opacity": 0.4}, hoverinfo="skip",
    )  # fmt: skip
    fronts = (
        ("single_unit", found.single_unit_front),
        ("chance", found.chance_front),
        ("nested", found.front),
    )
    for key, points in fronts:
        name, colour = _SEARCHES[key]
        _scatter(figure, points, x, y, name, colour, "circle", 6)
    _scatter(figure, found.baselines, x, y, "one operator on one unit", COLOURS[4], "square", 9)
    _scatter(figure, found.chosen, x, y, "chosen", "#000000", "star", 12)
    drawn = [*explored, *(_values(one) for one in (*found.front, *found.single_unit_front, *found.baselines))]
    figure.update_layout(xaxis=_axis(x, drawn), yaxis=_axis(y, drawn))
    return plot(figure, 480, heading)


def _values(one: MappedArchitecture) -> tuple[float, float, float]:
    return one.accuracy, one.latency_s, one.energy_j


def _scatter(
    figure: go.Figure,
    points: Sequence[MappedArchitecture],
    x: int,
    y: int,
    name: str,
    colour: str,
    symbol: str,
    size: int,
) -> None:
    figure.add_scattergl(
        x=[_values(one)[x] for one in points],
        y=[_values(one)[y] for one in points],
        mode="markers",
        name=name,
        marker={"size": size, "color": colour, "symbol": symbol, "line": {"width": 1, "color": "#ffffff"}},
        text=[
            f"{one.architecture}<br>{one.mapping}<br>{share(one.accuracy)}, "
            f"{engineering(one.latency_s, 's')}, {engineering(one.energy_j, 'J')}"
            for one in points
        ],
        hoverinfo="text",
    )


def _axis(number: int, drawn: Explored) -> dict[str, object]:
    if number == 0:
        return {"title": "accuracy", "tickformat": ".1%"}
    values = [one[number] for one in drawn]
    title, unit = (("latency", "s"), ("energy", "J"))[number - 1]
    return log_axis(title, unit, min(values), max(values))


def _hypervolumes(found: ArchitectureSearch) -> str:
    figure, generations = go.Figure(), [step.generation for step in found.steps]
    for key, (name, colour) in _SEARCHES.items():
        figure.add_scatter(
            x=generations, y=[getattr(step, key) for step in found.steps], mode="lines+markers", name=name,
            line={"color": colour},
        )  # fmt: skip
    figure.update_layout(
        xaxis={"title": "generation"}, yaxis={"title": "hypervolume over that of all fronts together"}
    )
    data = records_table("steps", [step.model_dump() for step in found.steps])
    return plot(figure, 380, "Hypervolume by generation", data=data)


def _chosen(found: ArchitectureSearch) -> str:
    """Return the chosen architectures as Table 2 of the paper has them."""
    heads = ["model", "chosen for", "accuracy", "graph ops", "FFN use", "pre-processing", "latency", "energy"]
    heads += [f"{unit.upper()} use" for unit in found.units] + ["quicker", "less energy"]
    rows: list[list[Cell]] = []
    for i, one in enumerate(found.chosen):
        row: list[Cell] = [
            f"a{i} {one.architecture}", one.chosen_for, share(one.accuracy), one.operators,
            share(one.ffn_use), share(one.preprocess_use),
            Amount(one.latency_s, "s"), Amount(one.energy_j, "J"),
            *(share(one.unit_use[unit]) for unit in found.units),
            factor(one.speedup), factor(one.energy_gain),
        ]  # fmt: skip
        rows.append(row)
    reference = found.baselines[found.reference]
    said = (
        f"Gains are over {reference.operator} throughout on the {reference.unit.upper()}: "
        f"{share(reference.accuracy)}, {engineering(reference.latency_s, 's')}, "
        f"{engineering(reference.energy_j, 'J')}."
    )
    means = "".join(text(f"{one[0].upper()}{one[1:]}.") for one in mean_gains(found))
    return "<h2>Chosen architectures</h2>" + text(said) + means + table(heads, rows, (0, 1, 3), name="chosen")


def _baselines(found: ArchitectureSearch) -> str:
    heads = ["baseline", "accuracy", "latency", "energy", "dominated by"]
    rows: list[list[Cell]] = []
    for one in found.baselines:
        better = None if one.dominated_by is None else found.front[one.dominated_by]
        by = "none" if better is None else f"{better.architecture} {better.mapping}"
        name = f"{one.operator} on the {one.unit.upper()}"
        rows.append([name, share(one.accuracy), Amount(one.latency_s, "s"), Amount(one.energy_j, "J"), by])
    return "<h2>One operator on one unit</h2>" + table(heads, rows, (0, 4), name="baselines")


def _front(found: ArchitectureSearch) -> str:
    shown, clocks = found.front[:_MOST_ROWS], _clocks(found)
    rows: list[list[Cell]] = [
        [
            one.architecture, one.mapping, *([one.operating_points] if clocks else []),
            Amount(one.accuracy, shown=share(one.accuracy)),
            Amount(one.latency_s, "s"), Amount(one.energy_j, "J"),
        ]
        for one in shown
    ]  # fmt: skip
    heads = ("architecture", "mapping", *clocks, "accuracy", "latency", "energy")
    left = len(found.front) - len(rows)
    rest = text(f"and {left:,} more, which --format json has", "note") if left else ""
    return table(heads, rows, (0, 1, 2) if clocks else (0, 1), name="front") + rest


def _mappings(found: ArchitectureSearch) -> str:
    clocks = _clocks(found)
    rows = [
        (f"a{i} {one.architecture}", one.mapping, *([one.operating_points] if clocks else []))
        for i, one in enumerate(found.chosen)
    ]
    return table(("architecture", "stem/graphers/FFNs/head", *clocks), rows, (0, 1, 2) if clocks else (0, 1))


def _clocks(found: ArchitectureSearch) -> tuple[str, ...]:
    """Return the heading of operating points where the search chose some."""
    return ("operating points",) if any(one.operating_points for one in found.front) else ()


def _notes(found: ArchitectureSearch) -> list[str]:
    letters = ", ".join(f"{letter} {unit}" for unit, letter in found.units.items())
    settings = ", ".join(f"{name} {value:g}" for name, value in found.settings.items())
    return [
        f"Accuracies are of {found.scores}; latency and energy are estimates of {found.workload}.",
        "An architecture: operator (M max-relative, E EdgeConv, S GraphSAGE, G GIN), depth, p for "
        "pre-processing, f and the hidden features of feed-forward networks in % of the channels.",
        f"Letters of mappings: {letters}. Settings: {settings}.",
        "Nested search and random search cost every mapping of an architecture's blocks that no other beats; "
        "the search on single units runs all blocks on one.",
    ]
