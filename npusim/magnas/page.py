"""Pages of trained supernets, of architecture searches, and of MaGNAS's published figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npusim.magnas import documents
from npusim.reporting.accuracy import share
from npusim.reporting.charts import add_marks, blank_figure, line_figure
from npusim.reporting.engineering import Amount, Cell, engineering, factor
from npusim.reporting.html import COLOURS, GREY, log_axis
from npusim.reporting.page import Column, Figures, Lines, Page, Plot, Remark, Section, Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

Explored = Sequence[tuple[float, float, float]]
"""Accuracy, latency (s) and energy (J) of mapped architectures that were tried."""
_MOST_ROWS = 16
_MOST_OF_FRONT = 400
_FRONT_COLUMNS = ("architecture", "mapping", "operating_points", "accuracy", "latency_s", "energy_j")
_SEARCHES = {
    "nested": ("nested search", COLOURS[0]),
    "single_unit": ("single units", COLOURS[1]),
    "chance": ("random search", COLOURS[3]),
}


def training_page(training: documents.SupernetTraining) -> Page:
    """Return the page of a training: its subnets by accuracy, some of them trained alone, verdict."""
    images, best = training.images, training.best
    verdict = f"best {best.architecture}: {share(best.accuracy)}, test {share(best.test_accuracy)}"
    if training.rank_correlation is not None:
        verdict += (
            f"; rank correlation with {len(training.alone)} trained alone {training.rank_correlation:.2f}"
        )
    step = max(1, -(-len(training.subnets) // _MOST_ROWS))
    subnets = (Column("architecture", "subnet"), Column("accuracy"))
    alone = (
        Column("architecture", "trained alone too"),
        Column("accuracy", "of the supernet"),
        Column("alone_accuracy", "alone"),
    )
    return Page(
        f"{training.workload} on {images.name}",
        subject=f"{images.train:,} images learnt, {images.score:,} score, {images.test:,} test; "
        f"{training.parameters:,} weights, {len(training.losses)} epochs; wrote {training.checkpoint}",
        sections=[
            Table(subnets, training.subnets, "Subnets", terminal=training.subnets[::step]),
            Table(alone, training.alone, "Trained alone"),
        ],
        conclusion=verdict,
        document=training,
    )


def figures_page(figures: documents.MappingFigures) -> Page:
    """Return the page of published numbers by table and figure, and below each what the paper says of it."""

    def shown(key: str) -> Callable[[Any], Cell]:
        def cell(row: Any) -> Cell:
            value = getattr(row, key)
            return Amount(value, row.unit, None if value is None or row.unit else f"{value:.3f}")

        return cell

    sections: list[Section] = []
    for name, rows in groupby(figures.figures, key=lambda row: row.figure):
        columns = (
            Column("what", name, layout={"style": "cyan"}),
            Column("quantity", ""),
            Column("ours", show=shown("ours")),
            Column("paper", show=shown("paper")),
        )
        statements = [one for one in figures.statements if one.figure == name]
        for holds, style in ((True, "green"), (False, "yellow")):
            verdict = "Holds" if holds else "Does not"
            lines = [f"{verdict}: {one.says}" for one in statements if one.holds == holds]
            sections.append(Lines(lines, style=style))
        sections.insert(-2, Table(columns, list(rows), name))
    held = sum(one.holds for one in figures.statements)
    lead = f"{held} of {len(figures.statements)} statements of the paper hold in the model."
    return Page(figures.title, sections=sections, lead=lead, document=figures)


def search_page(search: documents.ArchitectureSearch, archive: Path | None = None) -> Page:
    """Return the page of a search; an archive adds what was tried to the plots."""
    last, reference = search.steps[-1], search.baselines[search.reference]
    letters = ", ".join(f"{letter} {unit}" for unit, letter in search.units.items())
    settings = ", ".join(f"{name} {value:g}" for name, value in search.settings.items())
    dominated = sum(one.dominated_by is not None for one in search.baselines)
    best = max(search.chosen, key=lambda one: one.speedup * one.energy_gain)
    gains = [
        f"{factor(one.speedup)} the speed and {factor(one.energy_gain)} less energy than on the "
        f"{one.unit.upper()}"
        for one in search.gains
    ]
    average = f"on average over the chosen, against {reference.operator} throughout: {', '.join(gains)}"
    points = engineering(search.points, "")
    headline = [
        ("architectures tried", f"{last.evaluated:,}"),
        ("in the space", points),
        ("on the front", f"{len(search.front):,}"),
        ("of these on several units", share(search.distributed_share)),
        ("hypervolume over single units", _more(last.nested, last.single_unit)),
        ("over random search", _more(last.nested, last.chance)),
    ]
    notes = [
        f"Accuracies are of {search.scores}; latency and energy are estimates of {search.workload}.",
        "An architecture: operator (M max-relative, E EdgeConv, S GraphSAGE, G GIN), depth, p for "
        "pre-processing, f and the hidden features of feed-forward networks in % of the channels.",
        f"Letters of mappings: {letters}. Settings: {settings}.",
        "Nested search and random search cost every mapping of an architecture's blocks that is not "
        "dominated; the search on single units runs all blocks on one.",
    ]
    return Page(
        "Architectures and mappings",
        (search.workload, search.soc, ""),
        f"{last.evaluated:,} architectures of {points}, {last.generation} generations; {letters}; "
        f"accuracy of {search.scores}",
        [
            Figures(headline),
            Plot("Energy over latency", lambda: _fronts(search, archive, "energy_j")),
            Plot("Accuracy over latency", lambda: _fronts(search, archive, "accuracy")),
            Plot(
                "Hypervolume by generation",
                lambda: _hypervolumes(search),
                Table((), search.steps, name="steps", only="html", whole=True),
            ),
            *_tables(search, reference),
            Lines([average] if gains else []),
        ],
        [Remark("Note", notes)],
        f"The front dominates {dominated} of {len(search.baselines)} baselines; {best.architecture} is "
        f"{factor(best.speedup)} as fast as {reference.operator} on the {reference.unit.upper()} with "
        f"{factor(best.energy_gain)} less energy, at {share(best.accuracy)} "
        f"against {share(reference.accuracy)}",
    )


def _more(value: float, reference: float) -> str:
    return f"{value / reference - 1.0:+.1%}" if reference else "from nothing"


def _tables(search: documents.ArchitectureSearch, reference: documents.HomogeneousBaseline) -> list[Table]:
    """Return the tables of baselines and chosen architectures, of the chosen alone, and of the front."""
    rows: list[dict[str, Any]] = []
    for one in search.baselines:
        gains = {"speedup": reference.latency_s / one.latency_s, "gain": reference.energy_j / one.energy_j}
        better = "none" if one.dominated_by is None else search.front[one.dominated_by]
        dominated = better if isinstance(better, str) else f"{better.architecture} {better.mapping}"
        units = f"{search.units[one.unit]} 100%"
        rows.append({"name": one.operator, "of": one, **gains, "units": units, "dominated": dominated})
    for i, chosen in enumerate(search.chosen):
        units = " ".join(f"{search.units[unit]} {use:.0%}" for unit, use in chosen.unit_use.items() if use)
        gains = {"speedup": chosen.speedup, "gain": chosen.energy_gain}
        name = f"a{i} {chosen.operators}"
        rows.append({"name": name, "of": chosen, **gains, "units": units, "style": "green"})
    compared = (
        Column("name", ""),
        Column("of.accuracy", "accuracy"),
        Column("of.latency_s", "latency"),
        Column("of.energy_j", "energy"),
        Column("speedup", "quicker"),
        Column("gain", "less energy"),
        Column("units"),
        Column("dominated", "dominated by", only="html"),
    )
    columns = (
        Column("", "model", lambda one: f"a{search.chosen.index(one)} {one.architecture}"),
        Column("mapping", "stem/graphers/FFNs/head"),
        Column("operating_points", "operating points"),
        Column("chosen_for", "chosen for"),
        Column("ffn_use", "FFN use", only="html", text=share),
        Column("preprocess_use", "pre-processing", only="html", text=share),
        *(
            Column(f"unit_use.{unit}", f"{unit.upper()} use", only="html", text=share)
            for unit in search.units
        ),
    )
    meaning = f"Gains are over {reference.operator} throughout on the {reference.unit.upper()}: "
    meaning += f"{_figures(reference)}."
    left = len(search.front) - _MOST_OF_FRONT
    return [
        Table(compared, rows, "Baselines and chosen architectures", style=lambda row: row.get("style", "")),
        Table(columns, search.chosen, "Chosen architectures", "chosen", meaning),
        Table(
            [Column(key) for key in _FRONT_COLUMNS],
            search.front[:_MOST_OF_FRONT],
            "The front",
            "front",
            f"and {left:,} more, which --format json has" if left > 0 else "",
            only="html",
            folded=f"{len(search.front):,} architectures with mappings",
        ),
    ]


def _figures(one: documents.MappedArchitecture) -> str:
    return f"{share(one.accuracy)}, {engineering(one.latency_s, 's')}, {engineering(one.energy_j, 'J')}"


def _fronts(search: documents.ArchitectureSearch, archive: Path | None, quantity: str) -> go.Figure:
    """Plot energy or accuracy over latency."""
    tried: Explored = ()
    if archive is not None:
        from npusim.magnas.search import explored  # needs the extra `search`

        tried = explored(archive.expanduser())
    figure = blank_figure()
    place = ("accuracy", "latency_s", "energy_j").index(quantity)
    if tried:
        grey = {"size": 4, "color": GREY, "opacity": 0.8}
        add_marks(figure, "tried", tried, lambda one: (one[1], one[place]), grey)
    groups = (
        (*_SEARCHES["single_unit"], search.single_unit_front, "triangle-up", 8),
        (*_SEARCHES["chance"], search.chance_front, "x", 7),
        (*_SEARCHES["nested"], search.front, "circle", 7),
        ("one operator on one unit", COLOURS[4], search.baselines, "square", 9),
        ("chosen", "#000000", search.chosen, "star", 12),
    )
    for name, colour, points, symbol, size in groups:
        marker = {"size": size, "color": colour, "symbol": symbol, "line": {"width": 1, "color": "#ffffff"}}
        add_marks(
            figure,
            name,
            points,
            lambda one: (one.latency_s, getattr(one, quantity)),
            marker,
            lambda one: f"{one.architecture}<br>{one.mapping}<br>{_figures(one)}",
        )
    drawn = (*search.front, *search.single_unit_front, *search.baselines)

    def axis(title: str, unit: str, key: str, column: int) -> dict[str, object]:
        values = [*(one[column] for one in tried), *(getattr(one, key) for one in drawn)]
        return log_axis(title, unit, min(values), max(values))

    vertical = {"title": "accuracy", "tickformat": ".1%"} if not place else axis("energy", "J", quantity, 2)
    figure.update_layout(xaxis=axis("latency", "s", "latency_s", 1), yaxis=vertical, height=480)
    return figure


def _hypervolumes(search: documents.ArchitectureSearch) -> go.Figure:
    """Plot the hypervolume of each search's front by generation."""
    generations = [step.generation for step in search.steps]
    series = {
        name: (generations, [getattr(step, key) for step in search.steps])
        for key, (name, _) in _SEARCHES.items()
    }
    styles = {name: {"line": {"color": colour}} for name, colour in _SEARCHES.values()}
    title = {"title": "hypervolume (share of all)"}
    return line_figure(
        series, {"title": "generation", "dtick": 1}, title, mode="lines+markers", height=380, styles=styles
    )
