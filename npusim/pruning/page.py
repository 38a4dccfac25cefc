"""Channel pruning as a page: accuracy, work and memory by budget and method, and times on machines."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.pruning.document import PruningReport
from npusim.report.accuracy import share
from npusim.report.engineering import engineering
from npusim.report.terminal import headed

_TOLD = (
    "lost: points after training again, with the standard error of the mean; cut: channels gone, weights as "
    "they were; refitted: before training again"
)


def pruning_page(report: PruningReport) -> RenderableType:
    """Return a pruning for the terminal: a table of networks, of machines, and the files written."""
    training = report.training
    seeds = sorted({one.seed for network in report.networks for one in network.seeds})
    head = (
        f"{report.workload}, scheme {report.scheme}, unpruned {share(report.baseline_accuracy)}; "
        f"{training.epochs} epochs, means of seeds {', '.join(map(str, seeds))}"
    )
    parts: list[RenderableType] = [Text(head, style="bold"), Text(), _networks(report)]
    parts.append(Text(_TOLD, style="dim"))
    if report.runs:
        parts += [Text(), _runs(report)]
    if report.files:
        parts += [Text(), *(Text(f"wrote {file}", style="dim") for file in report.files)]
    return Group(*parts)


def _networks(report: PruningReport) -> Table:
    table = headed("network", ratio=1)
    for heading in ("accuracy", "lost", "cut", "refitted", "work", "weights", "pruning", "retraining"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in report.networks:
        count = len(one.seeds)
        table.add_row(
            f"{one.budget:g}x by {one.method}",
            share(one.accuracy),
            f"{one.lost_points:+.1f}" + _error(one.lost_error_points),
            share(one.cut_accuracy),
            share(one.refitted_accuracy),
            engineering(one.macs, "MAC"),
            engineering(one.weight_bytes, "B"),
            engineering(sum(s.pruning_s for s in one.seeds) / count, "s"),
            engineering(sum(s.retraining_s for s in one.seeds) / count, "s"),
        )
    return table


def _error(points: float | None) -> str:
    return "" if points is None else f" ± {points:.1f}"


def _runs(report: PruningReport) -> Table:
    table = headed("machine", ratio=1)
    table.add_column("techniques")
    for heading in ("budget", "accuracy", "latency", "energy", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    for run in report.runs:
        table.add_row(
            run.soc,
            run.techniques,
            f"{run.budget:g}x",
            share(run.accuracy),
            engineering(run.latency_s, "s"),
            engineering(run.energy_j, "J"),
            engineering(run.dram_peak_bytes, "B"),
        )
    return table
