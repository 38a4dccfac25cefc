"""Pages of trained supernets, of architecture searches, and of MaGNAS's published figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npusim.reporting.accuracy import share
from npusim.reporting.charts import add_marks, blank_figure, line_figure
from npusim.reporting.engineering import engineering, factor
from npusim.reporting.html import COLOURS, GREY, log_axis
from npusim.reporting.page import (
    Amount,
    Cell,
    Column,
    Figures,
    Lines,
    Page,
    Plot,
    Remark,
    Section,
    Table,
    records_table,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from npusim.magnas.documents import (
        ArchitectureSearch,
        MappedArchitecture,
        MappingFigures,
        SupernetTraining,
    )

Explored = Sequence[tuple[float, float, float]]
"""Accuracy, latency (s) and energy (J) of mapped architectures that were tried."""
_MOST_ROWS = 16
_MOST_OF_FRONT = 400
_SEARCHES = {
    "nested": ("nested search", COLOURS[0]),
    "single_unit": ("single units", COLOURS[1]),
    "chance": ("random search", COLOURS[3]),
}


def training_page(training: SupernetTraining) -> Page:
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


def figures_page(figures: MappingFigures) -> Page:
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
    return Page(figures.title, sections=sections, document=figures)


def search_page(search: ArchitectureSearch, archive: Path | None = None) -> Page:
    """Return the page of a search; the architectures that an archive holds are drawn below the fronts."""
    last = search.steps[-1]
    letters = ", ".join(f"{letter} {unit}" for unit, letter in search.units.items())
    return Page(
        "Architectures and mappings",
        (search.workload, search.soc, ""),
        f"{last.evaluated:,} architectures of {search.points:.3g}, {last.generation} generations; {letters}; "
        f"accuracy of {search.scores}",
        [
            _headline(search),
            Plot("Energy over latency", lambda: _fronts(search, archive, 1, 2)),
            Plot("Accuracy over latency", lambda: _fronts(search, archive, 1, 0)),
            Plot(
                "Hypervolume by generation",
                lambda: _hypervolumes(search),
                records_table("steps", search.steps, only="html"),
            ),
            _architectures(search),
            _chosen(search),
            _front(search),
            Lines(_mean_gains(search)),
        ],
        [Remark("Note", _notes(search))],
        _verdict(search),
    )


def _headline(search: ArchitectureSearch) -> Figures:
    last = search.steps[-1]

    def more(value: float, reference: float) -> str:
        return f"{value / reference - 1.0:+.1%}" if reference else "from nothing"

    return Figures(
        [
            ("architectures tried", f"{last.evaluated:,}"),
            ("in the space", f"{search.points:.3g}"),
            ("on the front", f"{len(search.front):,}"),
            ("of these on several units", share(search.distributed_share)),
            ("hypervolume over single units", more(last.nested, last.single_unit)),
            ("over random search", more(last.nested, last.chance)),
        ]
    )


def _dominating(search: ArchitectureSearch, index: int | None) -> str:
    return "none" if index is None else f"{search.front[index].architecture} {search.front[index].mapping}"


def _architectures(search: ArchitectureSearch) -> Table:
    """Return the baselines and the chosen architectures, gains over the reference."""
    reference = search.baselines[search.reference]
    rows: list[dict[str, Any]] = [
        {
            "name": one.operator,
            "of": one,
            "speedup": reference.latency_s / one.latency_s,
            "gain": reference.energy_j / one.energy_j,
            "units": f"{search.units[one.unit]} 100%",
            "dominated": _dominating(search, one.dominated_by),
        }
        for one in search.baselines
    ]
    for i, one in enumerate(search.chosen):
        uses = (f"{search.units[unit]} {use:.0%}" for unit, use in one.unit_use.items() if use)
        name, units = f"a{i} {one.operators}", " ".join(uses)
        gains = {"speedup": one.speedup, "gain": one.energy_gain}
        rows.append({"name": name, "of": one, **gains, "units": units, "style": "green"})
    columns = (
        Column("name", ""),
        Column("of.accuracy", "accuracy"),
        Column("of.latency_s", "latency"),
        Column("of.energy_j", "energy"),
        Column("speedup", "quicker"),
        Column("gain", "less energy"),
        Column("units"),
        Column("dominated", "dominated by", only="html"),
    )
    return Table(columns, rows, "Baselines and chosen architectures", style=lambda row: row.get("style", ""))


def _chosen(search: ArchitectureSearch) -> Table:
    """Return the chosen architectures as Table 2 of the paper has them."""
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
    reference = search.baselines[search.reference]
    meaning = (
        f"Gains are over {reference.operator} throughout on the {reference.unit.upper()}: "
        f"{share(reference.accuracy)}, {engineering(reference.latency_s, 's')}, "
        f"{engineering(reference.energy_j, 'J')}."
    )
    return Table(columns, search.chosen, "Chosen architectures", "chosen", meaning)


def _front(search: ArchitectureSearch) -> Table:
    keys = ("architecture", "mapping", "operating_points", "accuracy", "latency_s", "energy_j")
    left = len(search.front) - _MOST_OF_FRONT
    return Table(
        [Column(key) for key in keys],
        search.front[:_MOST_OF_FRONT],
        "The front",
        "front",
        f"and {left:,} more, which --format json has" if left > 0 else "",
        only="html",
        folded=f"{len(search.front):,} architectures with mappings",
    )


def _mean_gains(search: ArchitectureSearch) -> list[str]:
    """Return what the chosen points gain on average over the reference's operator on each unit."""
    operator = search.baselines[search.reference].operator
    gains = [
        f"{factor(one.speedup)} the speed and {factor(one.energy_gain)} less energy than on the "
        f"{one.unit.upper()}"
        for one in search.gains
    ]
    return [f"on average over the chosen, against {operator} throughout: {', '.join(gains)}"] if gains else []


def _verdict(search: ArchitectureSearch) -> str:
    """Return what the search gained, in one sentence."""
    dominated = sum(one.dominated_by is not None for one in search.baselines)
    best = max(search.chosen, key=lambda one: one.speedup * one.energy_gain)
    reference = search.baselines[search.reference]
    return (
        f"the front dominates {dominated} of {len(search.baselines)} baselines; {best.architecture} is "
        f"{factor(best.speedup)} as fast as {reference.operator} on the {reference.unit.upper()} with "
        f"{factor(best.energy_gain)} less energy, at {share(best.accuracy)} "
        f"against {share(reference.accuracy)}"
    )


def _notes(search: ArchitectureSearch) -> list[str]:
    letters = ", ".join(f"{letter} {unit}" for unit, letter in search.units.items())
    settings = ", ".join(f"{name} {value:g}" for name, value in search.settings.items())
    return [
        f"Accuracies are of {search.scores}; latency and energy are estimates of {search.workload}.",
        "An architecture: operator (M max-relative, E EdgeConv, S GraphSAGE, G GIN), depth, p for "
        "pre-processing, f and the hidden features of feed-forward networks in % of the channels.",
        f"Letters of mappings: {letters}. Settings: {settings}.",
        "Nested search and random search cost every mapping of an architecture's blocks that is not "
        "dominated; the search on single units runs all blocks on one.",
    ]


def _values(one: MappedArchitecture) -> tuple[float, float, float]:
    return one.accuracy, one.latency_s, one.energy_j


def _fronts(search: ArchitectureSearch, archive: Path | None, x: int, y: int) -> go.Figure:
    """Return fronts over the points of an archive; axes are accuracy, latency and energy by number."""
    tried: Explored = ()
    if archive is not None:
        from npusim.magnas.search import explored  # needs the extra `search`

        tried = explored(archive.expanduser())
    figure = blank_figure()
    if tried:
        grey = {"size": 3, "color": GREY, "opacity": 0.4}
        add_marks(figure, "tried", tried, lambda one: (one[x], one[y]), grey)
    groups = (
        (*_SEARCHES["single_unit"], search.single_unit_front, "circle", 6),
        (*_SEARCHES["chance"], search.chance_front, "circle", 6),
        (*_SEARCHES["nested"], search.front, "circle", 6),
        ("one operator on one unit", COLOURS[4], search.baselines, "square", 9),
        ("chosen", "#000000", search.chosen, "star", 12),
    )
    for name, colour, points, symbol, size in groups:
        marker = {"size": size, "color": colour, "symbol": symbol, "line": {"width": 1, "color": "#ffffff"}}
        add_marks(figure, name, points, lambda one: (_values(one)[x], _values(one)[y]), marker, _story)
    drawn = [*tried, *(_values(one) for one in (*search.front, *search.single_unit_front, *search.baselines))]
    figure.update_layout(xaxis=_axis(x, drawn), yaxis=_axis(y, drawn), height=480)
    return figure


def _story(one: MappedArchitecture) -> str:
    figures = f"{share(one.accuracy)}, {engineering(one.latency_s, 's')}, {engineering(one.energy_j, 'J')}"
    return f"{one.architecture}<br>{one.mapping}<br>{figures}"


def _axis(number: int, drawn: Explored) -> dict[str, object]:
    if number == 0:
        return {"title": "accuracy", "tickformat": ".1%"}
    values = [one[number] for one in drawn]
    title, unit = (("latency", "s"), ("energy", "J"))[number - 1]
    return log_axis(title, unit, min(values), max(values))


def _hypervolumes(search: ArchitectureSearch) -> go.Figure:
    generations = [step.generation for step in search.steps]
    series, styles = {}, {}
    for key, (name, colour) in _SEARCHES.items():
        series[name] = (generations, [getattr(step, key) for step in search.steps])
        styles[name] = {"line": {"color": colour}}
    title = "hypervolume over that of all fronts together"
    return line_figure(
        series, {"title": "generation"}, {"title": title}, mode="lines+markers", height=380, styles=styles
    )
