"""The page of runs side by side: totals and operators with their ratios to the first run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from npusim.metrics import METRICS, unit_of
from npusim.reporting.charts import Figure, amount_bars, stacked_bars
from npusim.reporting.engineering import Amount, Cell, engineering, factor, times, with_bounds
from npusim.reporting.html import GREY
from npusim.reporting.page import Page, Plot, Remark, document_page
from npusim.reporting.tables import Column, Table
from npusim.reporting.terminal import conditions, counted
from npusim.studies.side_by_side import ComparedOperator, ComparedRun, Comparison

_MOST_OPERATORS = 15
_MOST_RATIOS = 3  # runs beyond which the terminal has no room for ratios
_MOST_NAMES = 6
_OF_NPU = ("sram_peak_bytes", "area_mm2")
_SHOWN = ("latency_s", "throughput_per_s", "energy_j", "power_w", "dram_bytes", "ops_per_j", *_OF_NPU)


def comparison_page(result: Comparison) -> Page:
    """Return the page of runs side by side."""
    runs = result.runs
    shared = {"": "workload", "on ": "soc", "with ": "techniques"}
    named = [
        f"{joint}{getattr(runs[0], key)}"
        for joint, key in shared.items()
        if len({str(getattr(run, key)) for run in runs}) == 1
    ]
    about = f"{' '.join(named)}: " if named else ""
    ways = (f"{conditions(run, 0)}; {run.engine} engine" for run in runs)
    energies = {run.name: run.figures["energy_j"] for run in runs}
    return document_page(
        result,
        f"Side by side: {about}{' | '.join(run.name for run in runs)}",
        " | ".join(dict.fromkeys(ways)),
        [
            Plot("Latency", lambda: _latencies(runs)),
            Plot("Energy", lambda: amount_bars("energy", "J", energies)),
            _totals(runs),
            _operators(result),
        ],
        [Remark("Only in", _alone(runs), "yellow")],
        of=None,
        lead=_lead(runs),
    )


def _lead(runs: Sequence[ComparedRun]) -> str:
    """Return what the quickest run takes, and the times of the others in relation to it."""
    quickest = min(runs, key=lambda run: run.figures["latency_s"])
    least_s = quickest.figures["latency_s"]
    others = [
        f"{run.name} takes {factor(run.figures['latency_s'] / least_s)}"
        for run in runs
        if run is not quickest
    ]
    return f"{quickest.name} is quickest, {engineering(least_s, 's')}; {', '.join(others)} of that."


def _latencies(runs: Sequence[ComparedRun]) -> Figure:
    rows = {}
    for run in runs:
        launch_s = run.launch_s if run.requests == 1 else 0.0
        rows[run.name] = {"launch": launch_s, "after it": run.figures["latency_s"] - launch_s}
    return stacked_bars(rows, "s", {"launch": GREY})


def _columns(
    runs: Sequence[ComparedRun], figure: Callable[[Any, int], Cell], ratio: Callable[[Any, int], float | None]
) -> list[Column]:
    """Return a column for each run and, after the first, for its ratio to the first."""
    columns = []
    for i, run in enumerate(runs):
        fold = {"overflow": "fold"}
        columns += [
            Column("", run.name, lambda row, i=i: figure(row, i), words=False, layout=fold),
            Column(
                "",
                "ratio",
                lambda row, i=i: times(ratio(row, i)),
                "" if len(runs) <= _MOST_RATIOS else "html",
                words=False,
            ),
        ]
    return [columns[0], *columns[2:]]


def _totals(runs: Sequence[ComparedRun]) -> Table:
    def figure(name: str, i: int) -> Cell:
        run = runs[i]
        if name not in run.figures:
            return str(getattr(run, name) or "-")
        if name in _OF_NPU and not run.tiles:
            return "-"
        value, unit = run.figures[name], unit_of(name)
        return Amount(value, unit, with_bounds(value, unit, run.intervals.get(name)))

    def ratio(name: str, i: int) -> float | None:
        return runs[i].ratios.get(name) if runs[i].tiles or name not in _OF_NPU else None

    def title(name: str) -> str:
        return METRICS[name].title if name in METRICS else name.replace("bound", "bound by")

    columns = (Column("", "", title), *_columns(runs, figure, ratio))
    return Table(columns, [*_SHOWN, "precision", "tiles", "bound"], "Figures")


def _operators(result: Comparison) -> Table:
    def latency(op: ComparedOperator, i: int) -> Cell:
        cost = op.runs[i]
        return Amount(cost.latency_s, "s") if cost else "fused" if op.fused_into[i] else "-"

    def energy(op: ComparedOperator, i: int) -> Cell:
        cost = op.runs[i]
        return Amount(cost.energy_j if cost else None, "J")

    columns = (
        Column("", "latency of operator", lambda op: op.name),
        *_columns(result.runs, latency, lambda op, i: op.ratios[i]),
        *(
            Column("", f"{run.name}: energy", lambda op, i=i: energy(op, i), "html")
            for i, run in enumerate(result.runs)
        ),
    )
    ranked = sorted(result.operators, key=_longest_s, reverse=True)
    rest = ranked[_MOST_OPERATORS:]
    longest = engineering(_longest_s(rest[0]), "s") if rest else ""
    left = f"{counted(len(rest), 'more operator')} of at most {longest} each." if rest else ""
    few = ranked[:_MOST_OPERATORS]
    return Table(columns, result.operators, "Operators", "compared-operators", left, terminal=few)


def _longest_s(op: ComparedOperator) -> float:
    return max(cost.latency_s for cost in op.runs if cost is not None)


def _alone(runs: Sequence[ComparedRun]) -> list[str]:
    lines = []
    for run in (run for run in runs if run.alone):
        names = ", ".join(run.alone[:_MOST_NAMES]) + (", ..." if len(run.alone) > _MOST_NAMES else "")
        count, time = counted(len(run.alone), "operator"), engineering(run.alone_s, "s")
        lines.append(f"{run.name}: {count}, {time}: {names}")
    return lines
