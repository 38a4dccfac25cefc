"""Where the time of an estimate goes: by phase and unit, by block, and in control flow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from npusim.graph import Phase
from npusim.report.engineering import engineering, percent
from npusim.report.terminal import bar, headed

if TYPE_CHECKING:
    from rich.console import RenderableType

    from npusim.engines import Estimate, OperatorCost

_MOST_BLOCKS = 16
"""Blocks that get a line; the others share one."""
LAUNCH = "launch of the inference"


def part_s(op: OperatorCost) -> float:
    """Return what an operator adds to the latency; with several requests in flight how long it works (s)."""
    return op.busy_s if op.critical_s is None else op.critical_s


@dataclass(frozen=True, slots=True)
class TimeByRegion:
    """Sums of `part_s` over the operators of an estimate, in s."""

    whole_s: float
    """What shares are of: the latency, or the time between two inferences of a context."""
    launch_s: float
    """Calls of runtimes, outside of the operators; 0 with several requests in flight."""
    units: Sequence[str]
    """Units that work, the busiest first."""
    by_phase: dict[Phase, dict[str, float]]
    """Phase, then unit; phases in the order of the enumeration."""
    by_block: dict[str, dict[Phase, float]]
    """Block, in order of execution, then phase."""
    control: dict[str, tuple[int, float]]
    """Types of control-flow operators: how many, and their time; the longest first."""

    @property
    def control_s(self) -> float:
        """Time of all control-flow operators (s)."""
        return sum(seconds for _, seconds in self.control.values())


def time_by_region(estimate: Estimate) -> TimeByRegion:
    """Return where the time of an estimate goes."""
    single = estimate.requests == 1
    units: dict[str, float] = {}
    phases: dict[Phase, dict[str, float]] = {phase: {} for phase in Phase}
    blocks: dict[str, dict[Phase, float]] = {}
    control: dict[str, tuple[int, float]] = {}
    for op in estimate.operators:
        seconds = part_s(op)
        if seconds <= 0.0:
            continue
        units[op.unit] = units.get(op.unit, 0.0) + seconds
        in_phase, in_block = phases[op.phase], blocks.setdefault(op.block, {})
        in_phase[op.unit] = in_phase.get(op.unit, 0.0) + seconds
        in_block[op.phase] = in_block.get(op.phase, 0.0) + seconds
        if op.control_flow:
            count, before = control.get(op.type, (0, 0.0))
            control[op.type] = count + 1, before + seconds
    return TimeByRegion(
        whole_s=estimate.latency_s if single else estimate.contexts / estimate.throughput_per_s,
        launch_s=estimate.launch_s if single else 0.0,
        units=sorted(units, key=lambda unit: -units[unit]),
        by_phase={phase: sums for phase, sums in phases.items() if sums},
        by_block=blocks,
        control=dict(sorted(control.items(), key=lambda item: -item[1][1])),
    )


def region_tables(estimate: Estimate) -> list[RenderableType]:
    """Return the tables for the terminal: phase by unit, blocks, control flow; none where nothing works."""
    found = time_by_region(estimate)
    if not found.by_phase:
        return []
    tables = [_phases(found), _blocks(found)]
    if found.control:
        tables.append(_control(found))
    return list(tables)


def _phases(found: TimeByRegion) -> Table:
    table = headed("time by phase", *found.units, "in all", "share", min_width=14, overflow="fold")
    table.add_column(min_width=24)
    rows = [(phase.value, sums) for phase, sums in found.by_phase.items()]
    for name, sums in rows:
        cells = [engineering(sums[unit], "s") if unit in sums else "" for unit in found.units]
        table.add_row(name, *cells, *_share(sums.values(), found.whole_s))
    if found.launch_s > 0.0:
        table.add_row(LAUNCH, *("" for _ in found.units), *_share([found.launch_s], found.whole_s))
    return table


def _blocks(found: TimeByRegion) -> Table:
    table = headed("time by block", "in all", "share", overflow="fold", min_width=14)
    table.add_column(min_width=24)
    table.add_column("mostly", no_wrap=True)
    longest = sorted(found.by_block, key=lambda name: -sum(found.by_block[name].values()))[:_MOST_BLOCKS]
    for name, sums in found.by_block.items():
        if name in longest:
            table.add_row(name, *_share(sums.values(), found.whole_s), max(sums, key=sums.__getitem__).value)
    others = [sum(sums.values()) for name, sums in found.by_block.items() if name not in longest]
    if others:
        table.add_row(f"{len(others)} more blocks", *_share(others, found.whole_s), "")
    return table


def _control(found: TimeByRegion) -> Table:
    table = headed("control flow", "operators", "in all", "share", min_width=14)
    table.add_column(min_width=24)
    for name, (count, seconds) in found.control.items():
        table.add_row(name, str(count), *_share([seconds], found.whole_s))
    if len(found.control) > 1:
        count = sum(number for number, _ in found.control.values())
        table.add_row("all of them", str(count), *_share([found.control_s], found.whole_s), style="bold")
    return table


def _share(seconds: Iterable[float], whole_s: float) -> tuple[str, str, RenderableType]:
    total_s = sum(seconds)
    share = total_s / whole_s
    return engineering(total_s, "s"), percent(share), bar(share, 1.0, width=24)
