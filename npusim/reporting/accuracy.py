"""The page of accuracies: each stack's answers compared with those of the model without techniques."""

from __future__ import annotations

from npusim.gnn_models.document import AccuracyReport, StackAccuracy
from npusim.reporting.charts import Figure, bar_figure
from npusim.reporting.page import Page, Plot, Remark, document_page
from npusim.reporting.tables import Column, Table, fields, grouped

_MEANING = "agreement: nodes with the baseline's class; difference: largest of a score"


def accuracy_page(report: AccuracyReport) -> Page:
    """Return the page of accuracies: a table per workload, and the stacks left out with the reason."""
    by_workload = grouped(report.results, lambda result: result.workload)
    skipped = [f"{left.workload}, {left.techniques}: {left.reason}" for left in report.skipped]
    bars = Plot("Accuracy by technique stack", lambda: _bars(report))
    tables = (Table(_COLUMNS, results, name, titled=True) for name, results in by_workload.items())
    return document_page(
        report,
        f"Accuracy: {', '.join(by_workload)}",
        f"{_circumstances(report)}; {_MEANING}",
        [bars, *tables],
        [Remark("Left out", skipped, "yellow")],
        lead=_lead(report),
    )


def _lead(report: AccuracyReport) -> str:
    """Return the largest change of accuracy."""
    if not report.results:
        return ""
    largest = max(report.results, key=lambda result: abs(result.change))
    named = f"{largest.techniques} in {largest.numbers}"
    return f"The largest change of accuracy is {100 * largest.change:+.1f} points, of {named}."


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


def _of_seeds(result: StackAccuracy) -> str:
    accuracies = [100 * one.accuracy for one in result.seeds]
    return f"{min(accuracies):.1f}-{max(accuracies):.1f}" if len(accuracies) > 1 else ""


def _difference(result: StackAccuracy) -> str:
    largest = result.largest_difference
    return "not finite" if largest is None else f"{largest:.2g}"


_COLUMNS = (
    *fields("techniques: techniques, numbers, accuracy"),
    Column("", "of the seeds", _of_seeds, words=False),
    Column("change", "points", text=lambda change: f"{100 * change:+.1f}"),
    Column("agreement", text=share),
    Column("", "difference", _difference, words=False),
)


def _bars(report: AccuracyReport) -> Figure:
    """Return a bar for each stack, by workload."""
    series = {
        workload: {f"{r.techniques}, {r.numbers}": 100.0 * r.accuracy for r in results}
        for workload, results in grouped(report.results, lambda result: result.workload).items()
    }
    return bar_figure(series, {"title": "accuracy (%)", "range": [0, 100]}, "%")
