"""A comparison as a page for the terminal: figures, waterfall, or speed-ups along settings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.report.engineering import engineering, factor
from npusim.report.terminal import LongName, bar, conditions, grid, headed, remarks, title

if TYPE_CHECKING:
    from npusim.studies.comparison import Crossover, Variant, WhatIf

_JOINTS = "+:"
"""Where the text of a stack may be broken: before a technique and before a setting."""
_KEPT, _SAVED, _LOST = "cyan", "green", "red"
_NO_WIDTH = 0.005
_LONGEST = 24
"""Characters of the longest bar of the waterfall."""


def whatif_page(result: WhatIf) -> RenderableType:
    """Return a comparison of technique stacks for the terminal; the conclusion is the last line."""
    if result.over:
        return over_page(result)
    how = conditions(result.hint, result.requests, result.tiles, result.contexts, result.npu_tiles)
    parts: list[RenderableType] = [
        title(result.workload, result.soc, ""),
        Text(f"{how}; inf/s: inferences per second", style="dim"),
        Text(),
        _table(result),
        Text(),
        _waterfall(result),
        Text(),
    ]
    skipped = [f"{stack.techniques}: {stack.reason}" for stack in result.skipped]
    foot = remarks(
        ("Dominated", "dim", _dominated(result.variants)),
        ("Left out", "yellow", skipped),
        ("Note", "dim", result.notes),
    )
    if foot.row_count:
        parts += [foot, Text()]
    return Group(*parts, Text(result.conclusion, style="bold"))


def _best(variants: Sequence[Variant]) -> Variant:
    return max(variants, key=lambda variant: variant.throughput_per_s)


def _dominated(variants: Sequence[Variant]) -> list[str]:
    """Return a line for each stack that beats others in every respect."""
    beaten_by: dict[str, list[str]] = {}
    for variant in variants:
        if variant.dominated_by:
            beaten_by.setdefault(variant.dominated_by, []).append(variant.techniques)
    return [f"{better} is better than {' and '.join(worse)}" for better, worse in beaten_by.items()]


def _table(result: WhatIf) -> Table:
    best = _best(result.variants)
    headings = ("latency", "inf/s", "energy", "DRAM", *_speedup_headings(result.variants))
    table = headed("techniques", *headings, ratio=1)
    table.add_column("bound", no_wrap=True)
    judged = any(variant.accuracy is not None for variant in result.variants)
    if judged:
        table.add_column("accuracy", justify="right", no_wrap=True)
    for variant in result.variants:
        table.add_row(
            LongName(variant.techniques, _JOINTS),
            engineering(variant.latency_s, "s"),
            engineering(variant.throughput_per_s, ""),
            engineering(variant.energy_j, "J"),
            engineering(variant.dram_bytes, "B"),
            *_speedups(variant, result.variants),
            variant.bound.removeprefix("npu."),
            *(["-" if variant.accuracy is None else f"{100 * variant.accuracy:.1f} %"] if judged else []),
            style="bold green" if variant is best else "dim" if variant.dominated_by else "",
        )
    return table


def _speedups_differ(variants: Sequence[Variant]) -> bool:
    """Tell whether latency and throughput gain differently: with one request in flight they cannot."""
    return any(factor(v.speedup_latency) != factor(v.speedup_throughput) for v in variants)


def _speedup_headings(variants: Sequence[Variant]) -> tuple[str, ...]:
    return ("speed-up\nlatency", "\ninf/s") if _speedups_differ(variants) else ("speed-up",)


def _speedups(variant: Variant, variants: Sequence[Variant]) -> tuple[str, ...]:
    both = (factor(variant.speedup_latency), factor(variant.speedup_throughput))
    return both if _speedups_differ(variants) else both[:1]


def _waterfall(result: WhatIf) -> Table:
    """Return one bar a stack: its time, and how much less or more that is than the stack it adds to."""
    interval_s = {variant.techniques: 1.0 / variant.throughput_per_s for variant in result.variants}
    longest = max(interval_s.values())
    with_intervals = any(variant.speedup_interval for variant in result.variants)
    table = headed(_legend(), ratio=1)
    table.add_column("latency" if result.requests == 1 else "time between two", no_wrap=True)
    table.add_column("step", justify="right", no_wrap=True)
    if with_intervals:
        table.add_column("90 %", justify="right", no_wrap=True)
        table.add_column("speed-up 90 %", justify="right", no_wrap=True)
    best = _best(result.variants)
    for variant in result.variants:
        style = "bold green" if variant is best else ""
        before = interval_s.get(variant.step_from or "", interval_s[variant.techniques])
        row: list[RenderableType] = [
            LongName(variant.techniques, _JOINTS, style),
            _falling(interval_s[variant.techniques], before, longest),
            "" if variant.step_speedup is None else factor(variant.step_speedup),
        ]
        if with_intervals:
            row += [_range(variant.step_interval), _range(variant.speedup_interval)]
        table.add_row(*row)
    return table


def _legend() -> Text:
    legend = Text("█ time ", style=_KEPT)
    legend.append("░ saved ", style=_SAVED)
    legend.append("▓ lost", style=_LOST)
    return legend


def _falling(now_s: float, before_s: float, longest_s: float) -> Text:
    """Return a bar as long as the longer of two times; what is saved or lost stands apart."""
    now, before = (round(_LONGEST * value / longest_s) for value in (now_s, before_s))
    bar = Text("█" * max(1, min(now, before)), style=_KEPT)
    if now < before:
        bar.append("░" * (before - now), style=_SAVED)
    else:
        bar.append("▓" * (now - before), style=_LOST)
    return bar


def _range(interval: tuple[float, float] | None) -> str:
    """Return an interval of a factor; where it has no width, nothing is to be said."""
    if interval is None or interval[1] - interval[0] < _NO_WIDTH:
        return ""
    return f"{interval[0]:.2f}-{interval[1]:.2f}"


_PAYS = 1.005
"""Least speed-up that counts as a gain."""
_BAR = 8
"""Characters of the longest bar."""


def over_page(result: WhatIf) -> RenderableType:
    """Return a comparison over one or more settings for the terminal; the conclusion is the last line."""
    axis = next(iter(result.over))
    how = conditions(result.hint, result.requests, tiles=0)
    head = f"{how}; speed-up over {result.baseline} at each point, and 90 % intervals"
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
    table = headed(axis, gap=1, ratio=1)
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
    interval = _range(variant.speedup_interval)
    return Group(line, Text(interval, style="dim")) if interval else line


def crossing_lines(crossovers: list[Crossover]) -> list[str]:
    """Return one line for each place where the order of stacks changes."""
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
