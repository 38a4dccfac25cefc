"""Two traces for the terminal, layer by layer: the largest differences first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.report.engineering import engineering, percent
from npusim.report.terminal import headed

if TYPE_CHECKING:
    from npusim.measure.traces import LayerPair, TraceDiff

_MOST_ROWS = 30


def diff_page(diff: TraceDiff) -> RenderableType:
    """Return where two traces part, for the terminal: the largest differences first."""
    parts: list[RenderableType] = [_runs(diff), Text(), Text(parting(diff)), Text(), _layers(diff)]
    return Group(*parts, Text(), _alone(diff)) if diff.alone else Group(*parts)


def _runs(diff: TraceDiff) -> Table:
    """Return both runs by name, with the launch apart from the layers."""
    table = headed("run", "launch", "layers", "in all", overflow="fold", style="bold")
    for name, launch_s, layers_s in (
        (f"first: {diff.first}", diff.measured_launch_s, diff.measured_s),
        (f"second: {diff.second}", diff.simulated_launch_s, diff.simulated_s),
    ):
        launch = engineering(launch_s, "s") if launch_s else "not told"
        table.add_row(name, launch, engineering(layers_s, "s"), engineering(launch_s + layers_s, "s"))
    first, second = diff.measured_launch_s + diff.measured_s, diff.simulated_launch_s + diff.simulated_s
    table.add_row("second / first - 1", "", "", f"{second / first - 1.0:+.1%}" if first else "-", style="dim")
    return table


def parting(diff: TraceDiff) -> str:
    """Return the first layer whose begin differs by a tenth of its length in the first run or more."""
    for pair in diff.layers:
        off = pair.simulated_start_s - pair.measured_start_s
        if abs(off) > 0.1 * max(pair.measured_s, 1e-9) and off:
            return (
                f"they part before {pair.measured}: it begins at "
                f"{engineering(pair.measured_start_s, 's')} in the first, "
                f"{engineering(pair.simulated_start_s, 's')} in the second"
            )
    return "they keep step: every layer begins within a tenth of its length of the other's begin"


def _differing(diff: TraceDiff) -> float:
    """Return the time by which the runs differ, over all layers: of pairs the difference, else the whole."""
    paired = sum(abs(pair.difference_s) for pair in diff.layers)
    return paired + sum(layer.latency_s for layer in diff.alone)


def _layers(diff: TraceDiff) -> Table:
    table = headed("layers of both", "first", "second", "difference", "of all", overflow="fold")
    gap = _differing(diff)
    for pair in sorted(diff.layers, key=lambda pair: -abs(pair.difference_s))[:_MOST_ROWS]:
        _row(table, pair, gap)
    return table


def _row(table: Table, pair: LayerPair, gap: float) -> None:
    name = pair.measured if pair.measured == pair.simulated else f"{pair.measured}\n= {pair.simulated}"
    difference = pair.difference_s
    sign = "+" if difference >= 0.0 else "-"
    table.add_row(
        name,
        engineering(pair.measured_s, "s"),
        engineering(pair.simulated_s, "s"),
        f"{sign}{engineering(abs(difference), 's')}",
        percent(abs(difference) / gap) if gap else "-",
        style="" if abs(difference) <= 0.1 * pair.measured_s else "yellow",
    )


def _alone(diff: TraceDiff) -> Table:
    """Return the layers that one run alone has, with their times."""
    table = headed("layers of one alone", "first", "second", "of all", overflow="fold", style="yellow")
    gap = _differing(diff)
    for layer in diff.alone[:_MOST_ROWS]:
        time = engineering(layer.latency_s, "s")
        cells = (time, "-") if layer.trace == "first" else ("-", time)
        table.add_row(layer.name, *cells, percent(layer.latency_s / gap) if gap else "-")
    left = len(diff.alone) - _MOST_ROWS
    if left > 0:
        table.add_row(f"and {left} more, which --format json has", "", "", "", style="dim")
    return table
