"""Trained supernets and searched architectures as pages for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.report.accuracy import share
from npusim.report.terminal import headed

if TYPE_CHECKING:
    from npusim.magnas.document import SupernetTraining

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
