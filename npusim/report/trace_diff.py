"""Two traces for the terminal, layer by layer: the largest differences first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.report.engineering import engineering, percent
from npusim.report.terminal import headed, remarks

if TYPE_CHECKING:
    from npusim.measure.trace_diff import LayerPair, TraceDiff

_MOST_ROWS = 30


def diff_page(diff: TraceDiff) -> RenderableType:
    """Return where two traces part, for the terminal: the largest differences first."""
    table = headed("layer", "measured", "simulated", "difference", "of all", overflow="fold")
    gap = sum(abs(pair.difference_s) for pair in diff.layers)
    for pair in sorted(diff.layers, key=lambda pair: -abs(pair.difference_s))[:_MOST_ROWS]:
        _row(table, pair, gap)
    head = Text("whole run: ", style="bold")
    ratio = diff.simulated_s / diff.measured_s - 1.0 if diff.measured_s else 0.0
    head.append(
        f"{engineering(diff.measured_s, 's')} measured, "
        f"{engineering(diff.simulated_s, 's')} simulated ({ratio:+.1%})"
    )
    unmatched = remarks(
        ("Only measured", "bold yellow", diff.only_measured),
        ("Only simulated", "bold yellow", diff.only_simulated),
    )
    parts: list[RenderableType] = [head, _parting(diff), Text(), table]
    return Group(*parts, Text(), unmatched) if unmatched.row_count else Group(*parts)


def _parting(diff: TraceDiff) -> Text:
    """Return the first layer whose begin differs by a tenth of its measured length or more."""
    for pair in diff.layers:
        off = pair.simulated_start_s - pair.measured_start_s
        if abs(off) > 0.1 * max(pair.measured_s, 1e-9) and off:
            return Text(
                f"they part before {pair.measured}: it begins at "
                f"{engineering(pair.measured_start_s, 's')} measured, "
                f"{engineering(pair.simulated_start_s, 's')} simulated"
            )
    return Text("they keep step: every layer begins within a tenth of its length of the other's begin")


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
