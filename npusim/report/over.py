"""A comparison at several points as a page: where each stack pays, and where two change places.

Like a table of tides: places down the side, hours across the top, and a mark where high water turns to low.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.report.bars import bar
from npusim.report.engineering import factor
from npusim.report.layout import grid, remarks, title
from npusim.report.long_name import LongName

if TYPE_CHECKING:
    from npusim.studies.comparison import Crossover, Variant, WhatIf

__all__ = ["over_page"]

_JOINTS = "+:"
_PAYS = 1.005
"""Least speed-up that counts as a gain."""
_NO_WIDTH = 0.005
_BAR = 8
"""Characters of the longest bar."""


def over_page(result: WhatIf) -> RenderableType:
    """Return a comparison over one or more settings for the terminal.

    Parameters
    ----------
    result : WhatIf
        With `over`.

    Returns
    -------
    renderable
        A chart of speed-ups for each combination of all settings but the first, crossovers, notes, and the
        conclusion as the last line.
    """
    axis = next(iter(result.over))
    requests = f"{result.requests} request{'s' if result.requests != 1 else ''} in flight"
    head = (
        f"hint {result.hint}, {requests}; speed-up over {result.baseline} at each point, and 90 % intervals"
    )
    parts: list[RenderableType] = [title(result.workload, result.soc, ""), Text(head, style="dim")]
    others = {path: values for path, values in result.over.items() if path != axis}
    for values in product(*others.values()):
        fixed = dict(zip(others, values, strict=True))
        parts += [Text(), Text(", ".join(f"{path}={value}" for path, value in fixed.items()), style="bold")]
        parts.append(_chart(result, axis, fixed))
    foot = remarks(
        ("Crossover", "yellow", crossing_lines(result.crossovers)),
        ("Left out", "yellow", _left_out(result)),
        ("Note", "dim", result.notes),
    )
    if foot.row_count:
        parts += [Text(), foot]
    return Group(*parts, Text(), Text(result.conclusion, style="bold"))


def _chart(result: WhatIf, axis: str, fixed: dict[str, str]) -> Table:
    """Return stacks down the side and the values of the first setting across the top."""
    values = result.over[axis]
    cells = {
        (variant.stack, variant.at[axis]): variant
        for variant in result.variants
        if all(variant.at[path] == value for path, value in fixed.items())
    }
    stacks = dict.fromkeys(stack for stack, _ in cells)
    best = {
        value: max(
            (v for (_, at), v in cells.items() if at == value), key=lambda v: v.throughput_per_s, default=None
        )
        for value in values
    }
    longest = max(variant.speedup_throughput for variant in cells.values())
    table = grid(gap=1)
    table.show_header, table.header_style = True, "dim"
    table.add_column(axis, ratio=1)
    for value in values:
        table.add_column(value, no_wrap=True)
    for stack in stacks:
        row: list[RenderableType] = [LongName(stack, _JOINTS)]
        row += [_cell(cells.get((stack, value)), best[value], longest) for value in values]
        table.add_row(*row)
    return table


def _cell(variant: Variant | None, best: Variant | None, longest: float) -> RenderableType:
    """Return a speed-up with its bar, and below it the interval."""
    if variant is None:
        return Text("-", style="dim")
    gain = variant.speedup_throughput
    style, colour = ("", "cyan") if gain > _PAYS else ("dim", "white")
    if variant is best:
        style, colour = "bold green", "green"
    line = grid(gap=0)
    line.add_row(Text(f"{factor(gain)} ", style=style), bar(gain, longest, colour, _BAR))
    interval = variant.speedup_interval
    if interval is None or interval[1] - interval[0] < _NO_WIDTH:
        return line
    return Group(line, Text(f"{interval[0]:.2f}-{interval[1]:.2f}", style="dim"))


def crossing_lines(crossovers: list[Crossover]) -> list[str]:
    """Return one line for each place where stacks change order; stacks that change at the same place share
    it.
    """
    places: dict[tuple[object, ...], list[Crossover]] = {}
    for crossing in crossovers:
        where = (crossing.axis, tuple(crossing.at.items()), crossing.between, crossing.near, crossing.first)
        places.setdefault(where, []).append(crossing)
    lines = []
    for same in places.values():
        one = same[0]
        fixed = ", ".join(f"{path}={value}" for path, value in one.at.items())
        later = " and ".join(crossing.then for crossing in same)
        near = f"near {one.axis}={one.near}"
        if one.near is None:
            near = f"between {one.axis}={one.between[0]} and {one.between[1]}"
        lines.append(f"{one.first} is faster before, {later} after: {near}{f' ({fixed})' if fixed else ''}")
    return lines


def _left_out(result: WhatIf) -> list[str]:
    """Return each stack that was left out with its reason, and at which points."""
    reasons: dict[tuple[str, str], list[dict[str, str]]] = {}
    for stack in result.skipped:
        reasons.setdefault((stack.techniques, stack.reason), []).append(stack.at)
    lines = []
    for (techniques, reason), points in reasons.items():
        places = "; ".join(", ".join(f"{path}={value}" for path, value in at.items()) for at in points)
        everywhere = len(points) == len({tuple(v.at.items()) for v in result.variants})
        lines.append(f"{techniques}{'' if everywhere else f' at {places}'}: {reason}")
    return lines
