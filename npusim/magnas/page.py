"""Pages of trained supernets, of architecture searches, and of MaGNAS's published figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from npusim.magnas import documents
from npusim.reporting.accuracy import share
from npusim.reporting.charts import add_marks, blank_figure, line_figure
from npusim.reporting.engineering import Amount, engineering, factor
from npusim.reporting.html import COLOURS, GREY, log_axis
from npusim.reporting.page import Lines, Page, Plot, document_page
from npusim.reporting.tables import FOLD, Column, Table, fields, grouped

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST_ROWS = 16
_MOST_OF_FRONT = 400
_SEARCHES = {"nested": "nested search", "single_unit": "single units", "chance": "random search"}


def training_page(training: documents.SupernetTraining) -> Page:
    """Return the page of a training: its subnets by accuracy, some of them trained alone, verdict."""
    images, best = training.images, training.best
    verdict = f"best {best.architecture}: {share(best.accuracy)}, test {share(best.test_accuracy)}"
    if training.rank_correlation is not None:
        verdict += (
            f"; rank correlation with {len(training.alone)} trained alone {training.rank_correlation:.2f}"
        )
    subnets = fields("architecture: subnet, accuracy")
    alone = fields("architecture: trained alone too, accuracy: of the supernet, alone_accuracy: alone")
    return document_page(
        training,
        "Supernet",
        f"{images.train:,} images of {images.name} learnt, {images.score:,} score, {images.test:,} test; "
        f"{training.parameters:,} weights, {len(training.losses)} epochs; wrote {training.checkpoint}",
        [
            Table(subnets, training.subnets, "Subnets", most=_MOST_ROWS),
            Table(alone, training.alone, "Trained alone"),
        ],
        conclusion=verdict,
    )


def figures_page(figures: documents.MappingFigures) -> Page:
    """Return the page of published numbers, and of what the paper says of them."""

    def amount(key: str) -> Column:
        def show(row: Any) -> Amount:
            value = getattr(row, key)
            return Amount(value, row.unit, None if value is None or row.unit else f"{value:.3f}")

        return Column(key, show=show)

    statements = [
        f"{one.figure} {'holds' if one.holds else 'does not hold'}: {one.says}" for one in figures.statements
    ]
    held = sum(one.holds for one in figures.statements)
    tables = [
        Table((Column("what", name), *fields("quantity: "), amount("ours"), amount("paper")), rows, name)
        for name, rows in grouped(figures.figures, lambda row: row.figure).items()
    ]
    return document_page(
        figures,
        figures.title,
        sections=[*tables, Lines(statements, "Statements")],
        lead=f"{held} of {len(figures.statements)} statements of the paper hold in the model.",
    )


def search_page(search: documents.ArchitectureSearch, archive: Path | None = None) -> Page:
    """Return the page of a search; an archive adds what was tried to the plots."""
    last, reference = search.steps[-1], search.baselines[search.reference]
    letters = ", ".join(f"{letter} {unit}" for unit, letter in search.units.items())
    settings = ", ".join(f"{name} {value:g}" for name, value in search.settings.items())
    dominated = sum(one.dominated_by is not None for one in search.baselines)
    best = max(search.chosen, key=lambda one: one.speedup * one.energy_gain)
    points = engineering(search.points, "")
    steps = fields("generation, evaluated, nested, single_unit, chance, distributed_share: several units")
    hypervolumes = Table(steps, search.steps, "Hypervolumes", "steps", terminal=search.steps[-1:])
    return document_page(
        search,
        "Architectures and mappings",
        f"{last.evaluated:,} architectures of {points}, {last.generation} generations; {letters}; "
        f"accuracy of {search.scores}",
        [
            Plot("Energy over latency", lambda: _fronts(search, archive, "energy_j")),
            Plot("Accuracy over latency", lambda: _fronts(search, archive, "accuracy")),
            Plot("Hypervolume by generation", lambda: _hypervolumes(search), hypervolumes),
            *_tables(search, reference),
        ],
        notes=[
            f"Accuracies are of {search.scores}; latency and energy are estimates of {search.workload}.",
            "An architecture: operator (M max-relative, E EdgeConv, S GraphSAGE, G GIN), depth, p for "
            "pre-processing, f and the hidden features of feed-forward networks in % of the channels.",
            f"Parts of a mapping: stem/graphers/FFNs/head; letters: {letters}. Settings: {settings}.",
            "Nested search and random search cost every mapping of an architecture's blocks that is not "
            "dominated; the search on single units runs all blocks on one.",
        ],
        conclusion=f"The front dominates {dominated} of {len(search.baselines)} baselines; "
        f"{best.architecture} is {factor(best.speedup)} as fast as {reference.operator} on the "
        f"{reference.unit.upper()} with {factor(best.energy_gain)} less energy, at {share(best.accuracy)} "
        f"against {share(reference.accuracy)}",
    )


def _tables(search: documents.ArchitectureSearch, reference: documents.HomogeneousBaseline) -> list[Table]:
    """Return the tables of baselines, of chosen architectures, of their mean gains, and of the front."""

    def dominating(baseline: documents.HomogeneousBaseline) -> str:
        place = baseline.dominated_by
        return (
            "none" if place is None else f"{search.front[place].architecture} {search.front[place].mapping}"
        )

    over = f"{reference.operator} throughout on the {reference.unit.upper()}"
    figures = "accuracy, latency_s, energy_j"
    baselines = (
        *fields(f"operator, unit, {figures}"),
        Column("", "quicker", lambda one: factor(reference.latency_s / one.latency_s)),
        Column("", "less energy", lambda one: factor(reference.energy_j / one.energy_j)),
        Column("dominated_by", show=dominating, only="html"),
    )
    place = Column("", "", lambda one: f"a{search.chosen.index(one)}")
    names = fields("architecture: model, mapping: by part, operating_points", layout=FOLD)
    chosen = (place, *fields(f"{figures}, speedup: quicker, energy_gain: less energy, chosen_for"))
    gains = fields("unit: over the same on, speedup: quicker, energy_gain: less energy")
    left = len(search.front) - _MOST_OF_FRONT
    return [
        Table(baselines, search.baselines, "Baselines", "baselines"),
        Table((place, *names), search.chosen, "Architectures that are chosen"),
        Table(chosen, search.chosen, "Chosen architectures", "chosen", f"Gains: over {over}.", whole=True),
        Table(gains, search.gains, "Mean gains of the chosen architectures", titled=True),
        Table(
            fields(f"architecture, mapping, operating_points, {figures}"),
            search.front[:_MOST_OF_FRONT],
            "The front",
            "front",
            f"and {left:,} more, which --format json has" if left > 0 else "",
            only="html",
            folded=f"{len(search.front):,} architectures with mappings",
        ),
    ]


def _fronts(search: documents.ArchitectureSearch, archive: Path | None, quantity: str) -> go.Figure:
    """Plot energy or accuracy over latency."""
    figure, tried = blank_figure(), list[documents.MappedArchitecture]()
    if archive is not None:
        from npusim.magnas.search import explored  # needs the extra `search`

        tried = explored(archive.expanduser())
    groups = (
        ("tried", tried, GREY, "circle", 4),
        ("single units", search.single_unit_front, COLOURS[1], "triangle-up", 8),
        ("random search", search.chance_front, COLOURS[3], "x", 7),
        ("nested search", search.front, COLOURS[0], "circle", 7),
        ("one operator on one unit", search.baselines, COLOURS[4], "square", 9),
        ("chosen", search.chosen, "#000000", "star", 12),
    )
    for name, points, colour, symbol, size in groups:
        add_marks(
            figure,
            name,
            points,
            lambda one: (one.latency_s, getattr(one, quantity)),
            {"size": size, "color": colour, "symbol": symbol},
            _told,
        )
    drawn: list[Any] = [point for _, points, *_ in groups for point in points]

    def axis(title: str, unit: str, key: str) -> dict[str, Any]:
        values = [getattr(one, key) for one in drawn]
        return log_axis(title, unit, min(values), max(values))

    accuracy = {"title": "accuracy", "tickformat": ".1%"}
    vertical = accuracy if quantity == "accuracy" else axis("energy", "J", quantity)
    figure.update_layout(xaxis=axis("latency", "s", "latency_s"), yaxis=vertical, height=480)
    return figure


def _told(one: documents.MappedArchitecture) -> str:
    amounts = f"{share(one.accuracy)}, {engineering(one.latency_s, 's')}, {engineering(one.energy_j, 'J')}"
    return f"{one.architecture}<br>{one.mapping}<br>{amounts}"


def _hypervolumes(search: documents.ArchitectureSearch) -> go.Figure:
    """Plot the hypervolume of each search's front by generation."""
    generations = [step.generation for step in search.steps]
    series = {
        name: (generations, [getattr(step, key) for step in search.steps]) for key, name in _SEARCHES.items()
    }
    axes: Any = {"title": "generation", "dtick": 1}, {"title": "hypervolume (share of all)"}
    return line_figure(series, *axes, mode="lines+markers", height=380)
