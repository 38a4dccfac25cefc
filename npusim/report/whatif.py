"""A comparison as a page for the terminal: figures, waterfall, or speed-ups along settings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from npusim.report.engineering import engineering, factor, factors, last_digit
from npusim.report.terminal import LongName, conditions, headed, remarks, title
from npusim.studies.comparison import Untouched, Variant
from npusim.techniques import NONE

if TYPE_CHECKING:
    from npusim.engines.estimate import Compilation
    from npusim.studies.comparison import Crossover, WhatIf

_JOINTS = "+:"
"""Where the text of a stack may be broken: before a technique and before a setting."""
_KEPT, _SAVED, _LOST = "cyan", "green", "red"
_LONGEST = 20
"""Characters of the longest bar of the waterfall."""
_TIMES_MEDIAN = 2.0
"""Longest time that is drawn in full, in medians of all stacks, for the baseline twice that: one slow stack
flattens no other."""


def whatif_page(result: WhatIf) -> RenderableType:
    """Return a comparison of technique stacks for the terminal; the conclusion is the last line."""
    if result.over:
        return over_page(result)
    how = conditions(result.hint, result.requests, result.tiles, result.contexts, result.npu_tiles)
    parts: list[RenderableType] = [
        title(result.workload, result.soc, ""),
        Text(f"{how}; speed-ups over {result.baseline}", style="dim"),
        Text(),
        _table(result),
        Text(),
        *_waterfall(result),
        Text(),
    ]
    skipped = [f"{stack.techniques}: {stack.reason}" for stack in result.skipped]
    foot = remarks(
        ("Dominated", "dim", _dominated(result.variants)),
        ("Left out", "yellow", [*([result.left_out] if result.left_out else []), *skipped]),
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


_Row = Variant | Untouched


def _rows(result: WhatIf) -> list[_Row]:
    """Return the untouched network by device, where no stack asked for shows it, and the stacks."""
    asked = {variant.techniques for variant in result.variants}
    devices = (d for d in result.devices if not (d.device == "npu" and NONE in asked))
    return [*devices, *result.variants]


def _table(result: WhatIf) -> Table:
    best, single = _best(result.variants), result.requests == 1
    both = _speedups_differ(result.variants)
    table = headed("", gap=1, ratio=1)
    table.add_column("latency", justify="right", no_wrap=True)
    table.add_column("90 %" if single else "rate", justify="right", no_wrap=True)
    for heading in ("energy", "DRAM", *(("speed-up\nlatency", "\nrate") if both else ("speed-up",))):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    judged = any(variant.accuracy is not None for variant in result.variants)
    if judged:
        table.add_column("accuracy", justify="right", no_wrap=True)
    for row in _rows(result):
        variant = None if isinstance(row, Untouched) else row
        style = "bold green" if row is best else "dim" if variant and variant.dominated_by else ""
        table.add_row(
            _name(row, ""),
            engineering(row.latency_s, "s", last_digit(row.latency_interval_s)),
            _span(row.latency_interval_s) if single else engineering(row.throughput_per_s, "/s"),
            engineering(row.energy_j, "J"),
            engineering(row.dram_bytes, "B"),
            *([factor(variant.speedup_latency) if variant else ""] if both else []),
            factor(row.speedup_throughput, last_digit(row.speedup_interval)),
            row.bound.removeprefix("npu."),
            *([_accuracy(variant)] if judged else []),
            style=style,
        )
    return table


def _name(row: _Row, style: str) -> RenderableType:
    if isinstance(row, Untouched):
        return Text(f"{NONE} on the {row.device.upper()}", style="dim")
    return LongName(row.techniques, _JOINTS, style)


def _accuracy(variant: Variant | None) -> str:
    return "" if variant is None or variant.accuracy is None else f"{100 * variant.accuracy:.1f} %"


def _span(interval: tuple[float, float] | None) -> str:
    """Return an interval of a time, with the unit once where both ends have the same."""
    if interval is None:
        return ""
    last = last_digit(interval)
    low, high = (engineering(bound, "s", last) for bound in interval)
    number, unit = low.split()
    return f"{number}-{high}" if high.endswith(f" {unit}") else f"{low}-{high}"


def _speedups_differ(variants: Sequence[Variant]) -> bool:
    """Tell whether latency and throughput gain differently: with one request in flight they cannot."""
    return any(factor(v.speedup_latency) != factor(v.speedup_throughput) for v in variants)


def _waterfall(result: WhatIf) -> list[RenderableType]:
    """Return one bar a stack: its time, and how much less or more that is than the stack it adds to."""
    interval_s = {variant.techniques: 1.0 / variant.throughput_per_s for variant in result.variants}
    with_intervals = any(variant.speedup_interval for variant in result.variants)
    rows = _rows(result)
    slowest_s = max(1.0 / row.throughput_per_s for row in rows)
    middle_s, base_s = median(interval_s.values()), interval_s[result.baseline]
    shortest = _TIMES_MEDIAN * middle_s
    longest = min(slowest_s, base_s if shortest < base_s < 2.0 * shortest else shortest)
    what = "latency" if result.requests == 1 else "time between two inferences"
    table = headed("", gap=1, ratio=1)
    table.add_column(what, no_wrap=True)
    table.add_column("step", justify="right", no_wrap=True)
    if with_intervals:
        table.add_column("90 %", justify="right", no_wrap=True)
    table.add_column("speed-up", justify="right", no_wrap=True)
    if with_intervals:
        table.add_column("90 %", justify="right", no_wrap=True)
    best = _best(result.variants)
    for row in rows:
        variant = None if isinstance(row, Untouched) else row
        now_s = 1.0 / row.throughput_per_s
        before_s = interval_s.get((variant.step_from if variant else None) or "", now_s)
        step = variant.step_speedup if variant else None
        step_range = variant.step_interval if variant else None
        cells = ["" if step is None else factor(step, last_digit(step_range))]
        cells += [factors(step_range)] if with_intervals else []
        cells.append(factor(row.speedup_throughput, last_digit(row.speedup_interval)))
        cells += [factors(row.speedup_interval)] if with_intervals else []
        name = _name(row, "bold green" if row is best else "")
        table.add_row(name, _falling(now_s, before_s, longest), *cells)
    return [_legend(slowest_s > longest), table]


def _legend(cut: bool) -> Text:
    saved, lost = ("░ saved", _SAVED), ("▓ lost", _LOST)
    legend = Text.assemble(("█ time", _KEPT), "; against the stack that it adds to: ", saved, ", ", lost)
    return legend.append("; ▶ goes on" if cut else "")


def _falling(now_s: float, before_s: float, longest_s: float) -> Text:
    """Return a bar as long as the longer of two times; what is saved or lost stands apart."""
    now, before = (round(_LONGEST * min(1.0, value / longest_s)) for value in (now_s, before_s))
    bar = Text("█" * max(1, min(now, before)), style=_KEPT)
    if now < before:
        bar.append("░" * (before - now), style=_SAVED)
    else:
        bar.append("▓" * (now - before), style=_LOST)
    if max(now_s, before_s) > longest_s * (1 + 1e-9):
        bar.right_crop(1)
        bar.append("▶", style=_KEPT if now_s > longest_s else _SAVED)
    return bar


_PAYS = 1.005
"""Least speed-up that counts as a gain."""
_NARROWEST = 12
"""Characters that the names of stacks get at least beside the values of a setting."""


def over_page(result: WhatIf) -> RenderableType:
    """Return a comparison over one or more settings for the terminal; the conclusion is the last line."""
    axis = next(iter(result.over))
    how = conditions(result.hint, result.requests, tiles=0)
    what = "latency" if result.requests == 1 else "time between two inferences"
    head = f"{how}; at each point: {what}, speed-up over {result.baseline} and its 90 % interval"
    parts: list[RenderableType] = [title(result.workload, result.soc, ""), Text(head, style="dim")]
    others = {path: values for path, values in result.over.items() if path != axis}
    for values in product(*others.values()):
        fixed = dict(zip(others, values, strict=True))
        parts += [Text(), _Chart(result, axis, fixed)]
    parts += _compiling(result)
    foot = remarks(
        ("Crossover", "yellow", crossing_lines(result.crossovers)),
        ("Left out", "yellow", _left_out(result)),
        ("Note", "dim", result.notes),
    )
    if foot.row_count:
        parts += [Text(), foot]
    return Group(*parts, Text(), Text(result.conclusion, style="bold"))


def compiled_variants(result: WhatIf) -> list[tuple[Variant, Compilation]]:
    """Return the baseline's points with what compiling takes, where their numbers of models differ."""
    found = [(v, v.compilation) for v in result.variants if v.stack == result.baseline and v.compilation]
    return found if len({compilation.models for _, compilation in found}) > 1 else []


def _compiling(result: WhatIf) -> list[RenderableType]:
    """Return launches beside time and memory of compiling, point by point."""
    found = compiled_variants(result)
    if not found:
        return []
    heads = ("models", "launches", "latency", "compile", "90 %", "memory", "90 %")
    table = headed("launches and compiling", *heads, gap=1)
    for variant, one in found:
        last = last_digit(one.memory_peak_interval_bytes)
        span = "-".join(engineering(b, "B", last) for b in one.memory_peak_interval_bytes or ())
        table.add_row(
            ", ".join(f"{path.rpartition('.')[2]}={value}" for path, value in variant.at.items()),
            str(one.models),
            str(variant.launches),
            engineering(variant.latency_s, "s", last_digit(variant.latency_interval_s)),
            engineering(one.compile_s, "s", last_digit(one.compile_interval_s)),
            _span(one.compile_interval_s),
            "-" if one.memory_peak_bytes is None else engineering(one.memory_peak_bytes, "B", last),
            span,
        )
    return [Text(), table, Text(f"memory at the peak of compiling: {found[0][1].source}", style="dim")]


class _Chart:
    """Stacks down the side, values of a setting across the top; more tables where these do not fit."""

    def __init__(self, result: WhatIf, axis: str, fixed: dict[str, str]) -> None:
        self._axis, self._fixed, self._values = axis, fixed, result.over[axis]
        self._at = {
            (variant.stack, variant.at[axis]): variant
            for variant in result.variants
            if all(variant.at[path] == value for path, value in fixed.items())
        }
        self._stacks = list(dict.fromkeys(stack for stack, _ in self._at))
        self._cells = {place: _cell(variant) for place, variant in self._at.items()}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield as many tables as the values take in this width, each headed by the setting's name."""
        cells = (line for cell in self._cells.values() for line in cell)
        width = max(map(len, (*self._values, *cells)))
        names = max((len(stack) for stack in self._stacks), default=0)
        names = min(names, max(_NARROWEST, options.max_width // 3))
        fit = max(1, (options.max_width - names) // (width + 1))
        fixed = "".join(f", {path}={value}" for path, value in self._fixed.items())
        for start in range(0, len(self._values), fit):
            if start:
                yield Text()
            yield Text(f"{self._axis}{fixed}", style="bold")
            yield self._table(self._values[start : start + fit], names)

    def _table(self, values: Sequence[str], names: int) -> Table:
        table = headed("", *values, gap=1, min_width=names, max_width=names)
        for stack in self._stacks:
            row: list[RenderableType] = [LongName(stack, _JOINTS)]
            row += [self._shown(stack, value) for value in values]
            table.add_row(*row)
        return table

    def _shown(self, stack: str, value: str) -> Text:
        variant = self._at.get((stack, value))
        if variant is None:
            return Text("-", style="dim")
        here = [v for (_, at), v in self._at.items() if at == value]
        style = "bold green" if variant is _best(here) else ""
        style = style or ("" if variant.speedup_throughput > _PAYS else "dim")
        return Text("\n".join(filter(None, self._cells[stack, value])), style=style, justify="right")


def _cell(variant: Variant) -> tuple[str, str, str]:
    """Return a time, a speed-up and its interval, each with the digits that it bears."""
    digit = (
        last_digit(variant.latency_interval_s) if variant.throughput_per_s == 1 / variant.latency_s else None
    )
    gain = factor(variant.speedup_throughput, last_digit(variant.speedup_interval))
    return engineering(1.0 / variant.throughput_per_s, "s", digit), gain, factors(variant.speedup_interval)


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
    """Return which stacks were left out, with the reason and the points: a line for each of these."""
    points: dict[tuple[str, str], list[str]] = {}
    for one in result.skipped:
        at = ", ".join(f"{path}={value}" for path, value in one.at.items())
        points.setdefault((one.techniques, one.reason), []).append(at)
    stacks: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (techniques, reason), at_points in points.items():
        stacks.setdefault((reason, tuple(at_points)), []).append(techniques)
    everywhere = len({tuple(variant.at.items()) for variant in result.variants})
    compared = len({variant.stack for variant in result.variants})
    lines = [result.left_out] if result.left_out else []
    for (reason, places), names in stacks.items():
        who = "every stack" if len(names) >= compared and len(names) > 1 else ", ".join(names)
        where = "" if len(places) == everywhere and who != "every stack" else f" at {'; '.join(places)}"
        lines.append(f"{who}{where}: {reason}")
    return lines
