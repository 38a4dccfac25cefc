"""The page of channel pruning: accuracy, work and memory by budget and method, and times on machines."""

from __future__ import annotations

from typing import Any

from npusim.pruning.document import PrunedNetwork, PruningReport
from npusim.reporting.accuracy import share
from npusim.reporting.engineering import Amount
from npusim.reporting.page import Column, Lines, Page, Table

_MEANING = (
    "lost: points after training again, with the standard error of the mean; cut: channels gone, weights as "
    "they were; refitted: before training again"
)


def pruning_page(report: PruningReport) -> Page:
    """Return the page of a pruning: a table of networks, of machines, and the files written."""
    seeds = sorted({one.seed for network in report.networks for one in network.seeds})
    return Page(
        f"{report.workload}, scheme {report.scheme}, unpruned {share(report.baseline_accuracy)}",
        subject=f"{report.training.epochs} epochs, means of seeds {', '.join(map(str, seeds))}",
        sections=[
            Table(_NETWORKS, report.networks, "Networks", "pruned-networks", _MEANING),
            Table(_RUNS, report.runs, "Machines", "pruned-runs"),
            Lines([f"wrote {file}" for file in report.files], style="dim"),
        ],
        document=report,
    )


def _lost(network: PrunedNetwork) -> Amount:
    error = "" if network.lost_error_points is None else f" ± {network.lost_error_points:.1f}"
    return Amount(network.lost_points, "", f"{network.lost_points:+.1f}{error}")


def _mean_s(key: str) -> Any:
    def cell(network: PrunedNetwork) -> Amount:
        return Amount(sum(getattr(seed, key) for seed in network.seeds) / len(network.seeds), "s")

    return cell


_NETWORKS = (
    Column("", "network", lambda one: f"{one.budget:g}x by {one.method}"),
    Column("accuracy"),
    Column("lost_points", "lost", _lost),
    Column("cut_accuracy", "cut"),
    Column("refitted_accuracy", "refitted"),
    Column("macs", "work"),
    Column("weight_bytes", "weights"),
    Column("", "pruning", _mean_s("pruning_s")),
    Column("", "retraining", _mean_s("retraining_s")),
)
_RUNS = (
    Column("soc", "machine"),
    Column("techniques"),
    Column("budget", text="{:g}x"),
    Column("accuracy"),
    Column("latency_s"),
    Column("energy_j"),
    Column("dram_peak_bytes", "memory"),
)
