"""A time line for the terminal: busy times, stalls, critical path, what would help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.engines.timeline import CAUSES, Timeline, critical_path, idle_causes, path_summary, queueing_s
from npusim.report.engineering import engineering, percent
from npusim.report.terminal import headed

if TYPE_CHECKING:
    from npusim.studies.elasticity import Elasticity

_CAUSE_HEADS = {
    "data": "operands", "work": "other unit", "sram": "SRAM room", "latency": "DMA latency",
    "launch": "launch", "end": "no work",
}  # fmt: skip
_MOST_OPERATORS = 6


def timeline_page(line: Timeline, helpful: Sequence[Elasticity] = ()) -> RenderableType:
    """Return utilisation, stalls, critical path and what would help, for the terminal."""
    parts: list[RenderableType] = [
        Text("Units: busy, else waiting for what; queue: tasks waiting for it on average", style="bold"),
        _stalls(line),
        Text(),
    ]
    parts += [Text("Critical path", style="bold"), *map(Text, path_lines(line))]
    if helpful:
        parts += [Text(), Text("What would help", style="bold"), help_table(helpful)]
    return Group(*parts)


def _stalls(line: Timeline) -> Table:
    heads, rows = stall_figures(line)
    table = headed(*heads, gap=1, style="cyan", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def stall_figures(line: Timeline) -> tuple[list[str], list[list[str]]]:
    """Return headings and a row per group of units: that of its busiest unit."""
    busy, idle, queue = line.busy_s(), idle_causes(line), queueing_s(line)
    shown: dict[str, str] = {}
    for unit in line.units:
        if busy[unit.name] > 0.0 and busy[unit.name] > busy.get(shown.get(unit.group, ""), 0.0):
            shown[unit.group] = unit.name
    rows = []
    for group, name in shown.items():
        shares = [
            percent(seconds / line.makespan_s)
            for seconds in (busy[name], *(idle[name][cause] for cause in CAUSES))
        ]
        rows.append([group, *shares, f"{queue[name] / line.makespan_s:.2f}"])
    return ["unit", "busy", *(_CAUSE_HEADS[cause] for cause in CAUSES), "queue"], rows


def path_lines(line: Timeline) -> list[str]:
    """Return what the critical path is made of, and how much of the run was simulated."""
    path = critical_path(line)
    total = sum(task.waited_s + task.worked_s for task in path) or 1.0
    found = path_summary(line, path)
    parts = sorted(found.by_unit.items(), key=lambda item: -item[1])
    worked = ", ".join(f"{name} {percent(seconds / total)}" for name, seconds in parts)
    reasons = {
        "data": "its operands",
        "unit": "its unit",
        "sram": "room in SRAM",
        "launch": "a launch",
        "begin": "the start of the inference",
    }
    waits = sorted(found.by_reason.items(), key=lambda item: -item[1])
    why = ", ".join(f"{reasons[name]} {percent(seconds / total)}" for name, seconds in waits)
    operators = sorted(found.by_operator.items(), key=lambda item: -item[1])[:_MOST_OPERATORS]
    longest = ", ".join(f"{name} {percent(seconds / total)}" for name, seconds in operators)
    waiting = (
        f", DMA's latency {percent(found.waiting_s / total)}" if found.waiting_s > 0.0005 * total else ""
    )
    count = sum(line.repeats[task.row] for task in path)
    return [
        f"{count:.0f} tasks, {engineering(total, 's')}: {worked}{waiting}",
        f"what each waited for last: {why}",
        f"longest: {longest}",
        *([_folded_line(line)] if line.folded else []),
    ]


def _folded_line(line: Timeline) -> str:
    """Return how much of the run was simulated."""
    return (
        f"{len(line)} of {len(line) + line.folded:.0f} tasks were simulated: the others are equal steps "
        "or inferences that repeat a period of theirs (--every-tile acts out all)"
    )


def help_table(helpful: Sequence[Elasticity]) -> Table:
    """Return what a little more of each resource saves, the most helpful first."""
    table = headed("more of", "saves", "each percent", style="cyan")
    table.add_column("try", style="dim", overflow="fold")
    for e in helpful:
        gain = f"{e.gain:+.1%}" if abs(e.gain) >= 0.0005 else "0 %"
        each = f"{e.elasticity:.2f} %" if abs(e.gain) >= 0.0005 else "-"
        table.add_row(f"{e.resource} (+{e.more:.0%})", gain, each, e.setting)
    return table
