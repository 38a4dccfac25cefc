"""A comparison as a page: figures and bars for each technique stack, and what to make of them.

Like the results of a race on a notice board: times in the table, the gaps in the picture, the verdict
below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.report.bars import bar
from npusim.report.engineering import engineering, factor
from npusim.report.layout import grid, remarks, title
from npusim.report.long_name import LongName

if TYPE_CHECKING:
    from npusim.engines import Variant, WhatIf

__all__ = ["whatif_page"]

Column = tuple[str, str, "Callable[[Variant], float]"]
"""Heading, colour and figure of a column of bars."""
_JOINTS = "+:"
"""Where the text of a stack may be broken: before a technique and before a setting."""
_LESS_IS_BETTER, _MORE_IS_BETTER = "cyan", "green"
_CHART: tuple[Column, ...] = (
    ("latency", _LESS_IS_BETTER, lambda variant: variant.latency_s),
    ("energy", _LESS_IS_BETTER, lambda variant: variant.energy_j),
    ("DRAM", _LESS_IS_BETTER, lambda variant: variant.dram_bytes),
    ("inf/s", _MORE_IS_BETTER, lambda variant: variant.throughput_per_s),
)


def whatif_page(result: WhatIf) -> RenderableType:
    """Return a comparison of technique stacks for the terminal.

    Parameters
    ----------
    result : WhatIf
        What `npusim.engines.whatif` returned.

    Returns
    -------
    renderable
        Table, bar chart, stacks left out, notes, and the conclusion as the last line.
    """
    requests = f"{result.requests} request{'s' if result.requests != 1 else ''} in flight"
    tiles = f"{result.tiles} tile{'s' if result.tiles != 1 else ''}"
    parts: list[RenderableType] = [
        title(result.workload, result.soc, ""),
        Text(f"hint {result.hint}, {requests}, {tiles}; inf/s: inferences a second", style="dim"),
        Text(),
        _table(result),
        Text(),
        _chart(result),
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
    table = grid()
    table.show_header, table.header_style = True, "dim"
    table.add_column("techniques", ratio=1)
    for heading in ("latency", "inf/s", "energy", "DRAM", *_speedup_headings(result.variants)):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    for variant in result.variants:
        table.add_row(
            LongName(variant.techniques, _JOINTS),
            engineering(variant.latency_s, "s"),
            engineering(variant.throughput_per_s, ""),
            engineering(variant.energy_j, "J"),
            engineering(variant.dram_bytes, "B"),
            *_speedups(variant, result.variants),
            variant.bound.removeprefix("npu."),
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


def _speedup_column(hint: str) -> Column:
    """Return the speed-up that the hint asks about."""
    if hint == "throughput":
        return ("speed-up", _MORE_IS_BETTER, lambda variant: variant.speedup_throughput)
    return ("speed-up", _MORE_IS_BETTER, lambda variant: variant.speedup_latency)


def _chart(result: WhatIf) -> Table:
    """Return bars of every figure; the longest bar of a column is its greatest value."""
    variants, columns = result.variants, (*_CHART, _speedup_column(result.hint))
    table = grid()
    table.expand = True
    table.show_header = True
    table.add_column(Text("↓ less is better, ↑ more", style="dim"), ratio=3)
    for heading, style, _ in columns:
        arrow = "↓" if style == _LESS_IS_BETTER else "↑"
        table.add_column(Text(f"{arrow}{heading}", style=style), ratio=1, min_width=len(heading) + 1)
    longest = [max(value(variant) for variant in variants) for _, _, value in columns]
    best = _best(variants)
    for variant in variants:
        bars = [
            bar(value(variant), most, style) for (_, style, value), most in zip(columns, longest, strict=True)
        ]
        table.add_row(LongName(variant.techniques, _JOINTS, "bold green" if variant is best else ""), *bars)
    return table
