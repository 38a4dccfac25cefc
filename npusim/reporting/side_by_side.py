"""The page of runs side by side: totals and operators with their ratios to the first run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from npusim.metrics import METRICS, unit_of
from npusim.reporting.charts import Figure, amount_bars, bar_figure
from npusim.reporting.engineering import Amount, Cell, engineering, factor, times, with_bounds
from npusim.reporting.html import COLOURS, GREY, amount_axis
from npusim.reporting.page import Column, Only, Page, Plot, Remark, Table, document_page
from npusim.reporting.terminal import conditions, counted
from npusim.studies.side_by_side import ComparedOperator, ComparedRun, Comparison

_MOST_OPERATORS = 15
_MOST_BARS = 40
_MOST_RATIOS = 3  # runs beyond which the terminal has no room for ratios
_MOST_NAMES = 6
_OF_NPU = ("sram_peak_bytes", "area_mm2")
_SHOWN = ("latency_s", "throughput_per_s", "energy_j", "power_w", "dram_bytes", "ops_per_j", *_OF_NPU)


def comparison_page(result: Comparison) -> Page:
    """Return the page of runs side by side."""
    runs = result.runs
    same = {key: {str(getattr(run, key)) for run in runs} for key in ("workload", "soc", "techniques")}
    workload, soc, techniques = (next(iter(values)) if len(values) == 1 else "" for values in same.values())
    about = " ".join(
        f"{joint}{value}" for joint, value in (("", workload), ("on ", soc), ("with ", techniques)) if value
    )
    ways = (f"{conditions(run, 0)}; {run.engine} engine" for run in runs)
    colours = {run.name: COLOURS[i % len(COLOURS)] for i, run in enumerate(runs)}
    named = " | ".join(run.name for run in runs)
    bars = (
        Plot(METRICS[name].title.capitalize(), lambda name=name: _bars(result, name, colours))
        for name in ("latency_s", "energy_j")
    )
    return document_page(
        result,
        f"Side by side: {about}: {named}" if about else f"Side by side: {named}",
        " | ".join(dict.fromkeys(ways)),
        [
            *bars,
            _totals(runs),
            Plot("Operators, each by itself", lambda: _operator_bars(result, colours)),
            _operators(result),
        ],
        [Remark("Only in", _alone(runs), "yellow")],
        of=None,
        lead=_lead(runs),
    )


def _lead(runs: Sequence[ComparedRun]) -> str:
    """Return what the quickest run takes, beside the first one or, if that is the first, the next."""
    quickest = min(runs, key=lambda run: run.figures["latency_s"] or 0.0)
    other = next((run for run in runs if run is not quickest), quickest)
    quick, slow = (
        {key: run.figures[key] or 0.0 for key in ("latency_s", "energy_j")} for run in (quickest, other)
    )
    ratios = [factor(quick[key] / slow[key]) for key in quick if slow[key]]
    return (
        f"{quickest.name} is quickest, {engineering(quick['latency_s'], 's')}: "
        f"{' of the time and '.join(ratios)} of the energy of {other.name}."
    )


def _bars(result: Comparison, name: str, colours: dict[str, str]) -> Figure | None:
    values = {run.name: run.figures[name] for run in result.runs}
    figure = amount_bars(METRICS[name].title, unit_of(name), values, colours)
    if figure is not None and name == "latency_s":
        launches_s = [run.launch_s if run.requests == 1 else 0.0 for run in result.runs]
        place = {"y": list(values), "orientation": "h", "textposition": "inside", "marker": {"color": GREY}}
        figure.add_bar(x=launches_s, text="launch", **place).update_layout(barmode="overlay")
    return figure


def _operator_bars(result: Comparison, colours: dict[str, str]) -> Figure:
    shown = result.operators[:_MOST_BARS]
    series: dict[str, dict[str, float | None]] = {
        run.name: {op.name: cost.latency_s if (cost := op.runs[i]) else None for op in shown}
        for i, run in enumerate(result.runs)
    }
    return bar_figure(series, amount_axis("latency", "s"), "s", colours=colours)


def _columns(
    heading: str,
    runs: Sequence[ComparedRun],
    name: Callable[[Any], Cell],
    figure: Callable[[Any, int], Cell],
    ratio: Callable[[Any, int], float | None],
) -> list[Column]:
    """Return a column for each run and for its ratio to the first."""
    columns = [Column("", heading, name)]
    for i, run in enumerate(runs):
        columns.append(
            Column("", run.name, lambda row, i=i: figure(row, i), words=False, layout={"overflow": "fold"})
        )
        if i:
            only: Only = "" if len(runs) <= _MOST_RATIOS else "html"
            columns.append(Column("", "ratio", lambda row, i=i: times(ratio(row, i)), only, words=False))
    return columns


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

    columns = _columns("", runs, title, figure, ratio)
    return Table(columns, [*_SHOWN, "precision", "tiles", "bound"], "Figures")


def _operators(result: Comparison) -> Table:
    def latency(op: ComparedOperator, i: int) -> Cell:
        cost = op.runs[i]
        return Amount(cost.latency_s, "s") if cost else "fused" if op.fused_into[i] else "-"

    def energy(op: ComparedOperator, i: int) -> Cell:
        cost = op.runs[i]
        return Amount(cost.energy_j if cost else None, "J")

    columns = _columns(
        "latency of operator",
        result.runs,
        lambda op: op.name,
        latency,
        lambda op, i: op.ratios[i],
    )
    columns += [
        Column("", f"{run.name}: energy", lambda op, i=i: energy(op, i), "html")
        for i, run in enumerate(result.runs)
    ]
    ranked = sorted(result.operators, key=_longest_s, reverse=True)
    rest = ranked[_MOST_OPERATORS:]
    longest = engineering(_longest_s(rest[0]), "s") if rest else ""
    return Table(
        columns,
        result.operators,
        "Operators",
        "compared-operators",
        f"{counted(len(rest), 'more operator')} of at most {longest} each." if rest else "",
        terminal=ranked[:_MOST_OPERATORS],
    )


def _longest_s(op: ComparedOperator) -> float:
    return max(cost.latency_s for cost in op.runs if cost is not None)


def _alone(runs: Sequence[ComparedRun]) -> list[str]:
    lines = []
    for run in (run for run in runs if run.alone):
        names = ", ".join(run.alone[:_MOST_NAMES]) + (", ..." if len(run.alone) > _MOST_NAMES else "")
        count, time = counted(len(run.alone), "operator"), engineering(run.alone_s, "s")
        lines.append(f"{run.name}: {count}, {time}: {names}")
    return lines
