"""Accuracies as a page: each stack's answers beside those of the model without techniques."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.accuracy.document import AccuracyReport, StackAccuracy
from npusim.report.terminal import LongName, headed, remarks

_WORTH_A_LOOK = 0.005
"""A change of accuracy that is shown in colour: half a point."""


def accuracy_page(report: AccuracyReport) -> RenderableType:
    """Return accuracies for the terminal: a table per workload, and the stacks left out with the reason."""
    parts: list[RenderableType] = [
        Text(_circumstances(report), style="dim"),
        Text("agreement: nodes with the baseline's class; difference: largest of a score", style="dim"),
        Text(),
    ]
    for workload in dict.fromkeys(result.workload for result in report.results):
        results = [result for result in report.results if result.workload == workload]
        parts += [Text(workload, style="bold"), _table(results), Text()]
    skipped = [f"{left.workload}, {left.techniques}: {left.reason}" for left in report.skipped]
    foot = remarks(("Left out", "yellow", skipped))
    return Group(*parts, foot) if foot.row_count else Group(*parts[:-1])


def _circumstances(report: AccuracyReport) -> str:
    training = report.training
    if training is None:
        return "a trained module on its own data"
    seeds = sorted({one.seed for result in report.results for one in result.seeds})
    return (
        f"Planetoid's public split; {training.epochs} epochs, learning rate {training.learning_rate:g}, "
        f"weight decay {training.weight_decay:g}; median of seeds {', '.join(map(str, seeds))}"
    )


def share(value: float) -> str:
    """Return a share in percent with one decimal.

    Examples
    --------
    >>> share(0.8123), share(1.0)
    ('81.2 %', '100.0 %')
    """
    return f"{100 * value:.1f} %"


def _table(results: Sequence[StackAccuracy]) -> Table:
    table = headed("techniques", ratio=1)
    table.add_column("numbers", no_wrap=True)
    several = len(results[0].seeds) > 1
    for heading in ("accuracy", *(["of the seeds"] if several else []), "points", "agreement", "difference"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        cells = [share(result.accuracy)]
        if several:
            found = [one.accuracy for one in result.seeds]
            cells.append(f"{100 * min(found):.1f}-{100 * max(found):.1f}")
        table.add_row(
            LongName(result.techniques, "+:"),
            result.numbers,
            *cells,
            _points(result.change),
            share(result.agreement),
            _difference(result.largest_difference),
        )
    return table


def _points(change: float) -> Text:
    points = round(100 * change, 1)
    style = "" if abs(change) < _WORTH_A_LOOK else "green" if change > 0 else "red"
    return Text(f"{points:+.1f}" if points else "0.0", style=style)


def _difference(largest: float | None) -> str:
    if largest is None:
        return "not finite"
    return "0" if largest == 0 else f"{largest:.1e}" if largest < 0.01 else f"{largest:.2f}"
