"""A comparison of runs as a page for the terminal: totals and operators with ratios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.metrics import METRICS, unit_of
from npusim.report.engineering import engineering, factor
from npusim.report.terminal import LongName, conditions, counted, headed, remarks

if TYPE_CHECKING:
    from npusim.studies.side_by_side import ComparedOperator, ComparedRun, Comparison

_MOST_OPERATORS = 15
_MOST_RATIOS = 3
"""Runs beyond which ratios would not fit beside the figures."""
_MOST_NAMES = 6
_JOINTS = "/:+-"
_SHOWN = (
    "latency_s", "throughput_per_s", "energy_j", "power_w", "dram_bytes", "ops_per_j", "sram_peak_bytes",
    "area_mm2",
)  # fmt: skip
_OF_NPU = ("sram_peak_bytes", "area_mm2")


def comparison_page(result: Comparison) -> RenderableType:
    """Return runs side by side for the terminal."""
    shown = sorted(result.operators, key=_longest_s, reverse=True)
    rest = shown[_MOST_OPERATORS:]
    parts: list[RenderableType] = [_title(result), Text(_circumstances(result.runs), style="dim"), Text()]
    parts += [_totals(result.runs), Text(), _operators(result.runs, shown[:_MOST_OPERATORS])]
    if rest:
        longest = engineering(_longest_s(rest[0]), "s")
        parts.append(Text(f"{counted(len(rest), 'more operator')} of at most {longest} each.", style="dim"))
    foot = remarks(("Only in", "yellow", _alone(result.runs)), ("Note", "dim", result.notes))
    if foot.row_count:
        parts += [Text(), foot]
    return Group(*parts)


def _title(result: Comparison) -> Text:
    text = Text("")
    for what, joint in (("workload", ""), ("soc", " on "), ("techniques", " with ")):
        values = dict.fromkeys(str(getattr(run, what)) for run in result.runs)
        if len(values) == 1:
            text.append(joint if text.plain else "", style="dim").append(next(iter(values)), style="bold")
    return text.append(": " if text.plain else "").append(" | ".join(run.name for run in result.runs))


def _circumstances(runs: Sequence[ComparedRun]) -> str:
    """Return how the runs were made, each way once."""
    ways = (f"{conditions(run.hint, run.requests, 0)}; {run.engine} engine" for run in runs)
    return " | ".join(dict.fromkeys(ways))


def _table(heading: str, runs: Sequence[ComparedRun]) -> Table:
    """Return a table with a column for each run and, for few, for its ratio to the first."""
    table = headed(heading, overflow="fold", ratio=1)
    for i, run in enumerate(runs):
        table.add_column(run.name, justify="right", overflow="fold")
        if i and len(runs) <= _MOST_RATIOS:
            table.add_column("ratio", justify="right", no_wrap=True)
    return table


def _cells(figures: Sequence[str], ratios: Sequence[float | None]) -> list[str]:
    """Return the figures of a row, each but the first with its ratio."""
    cells: list[str] = []
    for i, (figure, ratio) in enumerate(zip(figures, ratios, strict=True)):
        cells.append(figure)
        if i and len(figures) <= _MOST_RATIOS:
            cells.append("" if ratio is None else factor(ratio))
    return cells


def _totals(runs: Sequence[ComparedRun]) -> Table:
    table = _table("", runs)
    for name in _SHOWN:
        told = [run.tiles > 0 or name not in _OF_NPU for run in runs]
        figures = [
            engineering(run.figures[name], unit_of(name)) if tell else "-"
            for run, tell in zip(runs, told, strict=True)
        ]
        ratios = [run.ratios[name] if tell else None for run, tell in zip(runs, told, strict=True)]
        table.add_row(METRICS[name].title, *_cells(figures, ratios))
    for title, words in (
        ("precision", [run.precision for run in runs]),
        ("tiles", [str(run.tiles or "-") for run in runs]),
        ("bound by", [run.bound for run in runs]),
    ):
        table.add_row(title, *_cells(words, [None] * len(runs)))
    return table


def _operators(runs: Sequence[ComparedRun], operators: Sequence[ComparedOperator]) -> Table:
    table = _table("latency of operator", runs)
    for op in operators:
        figures = [
            engineering(found.latency_s, "s") if found else "fused" if fused else "-"
            for found, fused in zip(op.runs, op.fused_into, strict=True)
        ]
        table.add_row(LongName(op.name, _JOINTS), *_cells(figures, op.ratios))
    return table


def _longest_s(op: ComparedOperator) -> float:
    return max(found.latency_s for found in op.runs if found is not None)


def _alone(runs: Sequence[ComparedRun]) -> list[str]:
    lines = []
    for run in (run for run in runs if run.alone):
        names = ", ".join(run.alone[:_MOST_NAMES]) + (", ..." if len(run.alone) > _MOST_NAMES else "")
        count, time = counted(len(run.alone), "operator"), engineering(run.alone_s, "s")
        lines.append(f"{run.name}: {count}, {time}: {names}")
    return lines
