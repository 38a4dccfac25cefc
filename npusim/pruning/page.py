"""The page of channel pruning: accuracy, work and memory by budget and method, and times on machines."""

from __future__ import annotations

from statistics import mean

from npusim.pruning.document import PrunedNetwork, PruningReport
from npusim.reporting.accuracy import share
from npusim.reporting.engineering import Amount
from npusim.reporting.page import Lines, Page, document_page
from npusim.reporting.tables import Column, Table, fields

_MEANING = (
    "lost: points after training again, with the standard error of the mean; cut: channels gone, weights as "
    "they were; refitted: before training again"
)


def pruning_page(report: PruningReport) -> Page:
    """Return the page of a pruning: a table of networks, of machines, and the files written."""
    seeds = sorted({one.seed for network in report.networks for one in network.seeds})
    networks = (
        *fields("budget: times fewer, method: by, accuracy"),
        Column("lost_points", "lost", _lost),
        *fields("cut_accuracy: cut, refitted_accuracy: refitted, macs: work, weight_bytes: weights"),
        Column("pruning_s", "pruning", lambda one: mean(seed.pruning_s for seed in one.seeds)),
        Column("retraining_s", "retraining", lambda one: mean(seed.retraining_s for seed in one.seeds)),
    )
    figures = "accuracy, latency_s, energy_j, dram_peak_bytes: memory"
    runs = fields(f"soc: machine, techniques, budget: times fewer, {figures}")
    return document_page(
        report,
        f"Scheme {report.scheme}, unpruned {share(report.baseline_accuracy)}",
        f"{report.training.epochs} epochs, means of seeds {', '.join(map(str, seeds))}",
        [
            Table(networks, report.networks, "Networks", "pruned-networks", _MEANING),
            Table(runs, report.runs, "Machines", "pruned-runs"),
            Lines([f"wrote {file}" for file in report.files], style="dim"),
        ],
    )


def _lost(network: PrunedNetwork) -> Amount:
    error = "" if network.lost_error_points is None else f" ± {network.lost_error_points:.1f}"
    return Amount(network.lost_points, "", f"{network.lost_points:+.1f}{error}")
