"""Trained supernets and searched architectures as pages for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.report.accuracy import share
from npusim.report.engineering import engineering, factor
from npusim.report.terminal import headed, title

if TYPE_CHECKING:
    from npusim.magnas.documents import ArchitectureSearch, SupernetTraining

_MOST_ROWS = 16


def training_page(found: SupernetTraining) -> RenderableType:
    """Return a training for the terminal: its subnets by accuracy, some of them trained alone, verdict."""
    images = found.images
    head = (
        f"{found.workload} on {images.name}: {images.train:,} images learnt, {images.score:,} score, "
        f"{images.test:,} test; {found.parameters:,} weights, {len(found.losses)} epochs"
    )
    parts: list[RenderableType] = [Text(head, style="bold"), Text(), _subnets(found)]
    if found.alone:
        parts += [Text(), _alone(found)]
    best = found.best
    verdict = f"best {best.architecture}: {share(best.accuracy)}, test {share(best.test_accuracy)}"
    if found.rank_correlation is not None:
        count = len(found.alone)
        verdict += f"; rank correlation with {count} trained alone {found.rank_correlation:.2f}"
    return Group(*parts, Text(), Text(verdict, style="bold"), Text(f"wrote {found.checkpoint}", style="dim"))


def _subnets(found: SupernetTraining) -> Table:
    table = headed("subnet", ratio=1)
    table.add_column("accuracy", justify="right", no_wrap=True)
    count = len(found.subnets)
    step = max(1, -(-count // _MOST_ROWS))
    for one in found.subnets[::step]:
        table.add_row(one.architecture, share(one.accuracy))
    return table


def _alone(found: SupernetTraining) -> Table:
    table = headed("trained alone too", ratio=1)
    for heading in ("of the supernet", "alone"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found.alone:
        table.add_row(one.architecture, share(one.accuracy), share(one.alone_accuracy))
    return table


def search_page(found: ArchitectureSearch) -> RenderableType:
    """Return a search for the terminal: baselines, chosen architectures, hypervolumes, verdict."""
    letters = ", ".join(f"{letter} {unit}" for unit, letter in found.units.items())
    last = found.steps[-1]
    head = (
        f"{last.evaluated:,} architectures of {found.points:.3g}, {last.generation} generations; "
        f"{letters}; accuracy of {found.scores}"
    )
    hypervolumes = (
        f"hypervolume: nested {last.nested:.3f}, single units {last.single_unit:.3f}, "
        f"random {last.chance:.3f}; {found.distributed_share:.0%} of the front on several units"
    )
    return Group(
        title(found.workload, found.soc, "none"),
        Text(head, style="dim"),
        Text(),
        _architectures(found),
        Text(),
        *(
            Text(
                f"a{i} {one.architecture} {one.mapping} {one.operating_points}".rstrip()
                + f" ({one.chosen_for})",
                style="dim",
            )
            for i, one in enumerate(found.chosen)
        ),
        Text(),
        Text(hypervolumes),
        *(Text(one) for one in mean_gains(found)),
        Text(search_verdict(found), style="bold"),
    )


def _architectures(found: ArchitectureSearch) -> Table:
    table = headed("", "accuracy", "latency", "energy", "quicker", "less energy", "units")
    reference = found.baselines[found.reference]
    for one in found.baselines:
        table.add_row(
            one.operator, share(one.accuracy),
            engineering(one.latency_s, "s"), engineering(one.energy_j, "J"),
            factor(reference.latency_s / one.latency_s), factor(reference.energy_j / one.energy_j),
            f"{found.units[one.unit]} 100%",
        )  # fmt: skip
    for i, chosen in enumerate(found.chosen):
        uses = (f"{found.units[unit]} {use:.0%}" for unit, use in chosen.unit_use.items() if use)
        table.add_row(
            f"a{i} {chosen.operators}",
            share(chosen.accuracy), engineering(chosen.latency_s, "s"), engineering(chosen.energy_j, "J"),
            factor(chosen.speedup), factor(chosen.energy_gain), " ".join(uses), style="green",
        )  # fmt: skip
    return table


def mean_gains(found: ArchitectureSearch) -> list[str]:
    """Return what the chosen points gain on average over the reference's operator on each unit."""
    operator = found.baselines[found.reference].operator
    told = [
        f"{factor(one.speedup)} the speed and {factor(one.energy_gain)} less energy than on the "
        f"{one.unit.upper()}"
        for one in found.gains
    ]
    return [f"on average over the chosen, against {operator} throughout: {', '.join(told)}"] if told else []


def search_verdict(found: ArchitectureSearch) -> str:
    """Return what the search gained, in one sentence."""
    dominated = sum(one.dominated_by is not None for one in found.baselines)
    best = max(found.chosen, key=lambda one: one.speedup * one.energy_gain)
    reference = found.baselines[found.reference]
    return (
        f"the front dominates {dominated} of {len(found.baselines)} baselines; {best.architecture} is "
        f"{factor(best.speedup)} as fast as {reference.operator} on the {reference.unit.upper()} with "
        f"{factor(best.energy_gain)} less energy, at {share(best.accuracy)} "
        f"against {share(reference.accuracy)}"
    )
