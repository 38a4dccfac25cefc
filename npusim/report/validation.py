"""A validation as a page for the terminal: each group's errors beside the limit and Intel's own model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.report.terminal import grid, remarks
from npusim.validation import Judged
from npusim.validation.document import Unmeasured
from npusim.validation.running import GroupErrors

_MOST_ROWS = 60
"""A suite with more groups than this shows those with a limit and the worst of the others."""
_STATISTICS = {"mean_error": "mean", "median_error": "median", "p90_error": "p90"}


def validation_page(suites: Sequence[Judged], held_out: Mapping[str, Judged] | None = None) -> RenderableType:
    """Return a validation for the terminal: a table per suite, beside their cross-validations by name."""
    held_out = held_out or {}
    parts: list[RenderableType] = [Text("Errors |predicted - measured| / measured in %", style="dim"), Text()]
    if held_out:
        parts.insert(1, Text("held out: rows predicted by numbers that were not fitted to them", style="dim"))
    for judged in suites:
        parts += [_heading(judged), _table(judged, held_out.get(judged.name)), Text()]
        notes = [*judged.evidence.notes, *judged.suite.notes]
        if notes:
            parts += [remarks(("note", "dim", notes)), Text()]
    failed = [*suites, *held_out.values()]
    short = [f"{judged.name}: {group.name}" for judged in failed for group in judged.groups if not group.ok]
    verdict = Text("every limit is kept", style="bold green")
    if short:
        verdict = Text(f"{len(short)} limits are not kept: {'; '.join(short)}", style="bold red")
    return Group(*parts, verdict)


def unmeasured_page(found: Unmeasured) -> RenderableType:
    """Return the numbers that rest on no measured row, for the terminal, part by part of each data sheet."""
    parts: list[RenderableType] = []
    for (soc, part), numbers in groupby(
        found.parameters, key=lambda number: (number.soc, _part(number.path))
    ):
        table = grid()
        for justify in ("left", "right", "right"):
            table.add_column(no_wrap=True, justify=justify)
        table.add_column(overflow="fold", style="dim")
        for number in numbers:
            spread = "" if number.uncertainty is None else f"+-{100 * number.uncertainty:.0f} %"
            name = number.path.removeprefix(f"{part}.")
            table.add_row(Text(f"  {name}", style="cyan"), number.value, spread, number.source)
        parts += [Text.assemble((soc, "bold"), f"  {part}"), table, Text()]
    note = (
        "Numbers of the units' equations on which no row of measured silicon bears. Every kernel of the DSP "
        "libraries (configs/dsp) rests on a cost model as well."
    )
    return Group(*parts, Text(note, style="dim"))


def _part(path: str) -> str:
    """Return the part of a data sheet that a number stands in: `npu.dpu.model`, `npu.dsp.kernels.NAME`."""
    keys = path.split(".")
    return ".".join(keys[: 4 if keys[2] == "kernels" else 3])


def _heading(judged: Judged) -> Text:
    text = Text(judged.name, style="bold")
    return text.append(f"  {judged.suite.title}", style="dim")


def _table(judged: Judged, held_out: Judged | None) -> Table:
    """Return a line per group; below it, where there was a cross-validation, the errors of held-out rows."""
    table = grid()
    table.show_header, table.header_style = True, "dim"
    others = {} if held_out is None else {group.name: group for group in held_out.groups}
    shown, hidden = _worth_showing(judged.groups)
    compared = any(group.rule and group.rule.yardstick for group in shown)
    for heading in (
        "group",
        "rows",
        "mean",
        "median",
        "p90",
        "limit",
        "",
        "Intel's model" if compared else "",
    ):
        words = heading in ("group", "", "Intel's model")
        table.add_column(heading, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for group in shown:
        yardstick = group.rule.yardstick if group.rule else ""
        name = Text(group.name, style="cyan")
        table.add_row(name, str(len(group.errors)), *_errors(group), *_verdict(group), yardstick)
        other = others.get(group.name)
        if other is not None:
            table.add_row(Text("  held out", style="dim"), "", *_errors(other), *_verdict(other), "")
    if hidden:
        worst = max(group.mean_error for group in hidden)
        more = f"{len(hidden)} more groups without a limit, mean at most {_percent(worst)} %"
        table.add_row(Text(more, style="dim"))
    return table


def _worth_showing(groups: Sequence[GroupErrors]) -> tuple[list[GroupErrors], list[GroupErrors]]:
    if len(groups) <= _MOST_ROWS:
        return list(groups), []
    bound = [group for group in groups if group.limit is not None]
    free = sorted((group for group in groups if group.limit is None), key=lambda group: -group.mean_error)
    kept = max(10, _MOST_ROWS - len(bound))
    return bound + free[:kept], free[kept:]


def _errors(group: GroupErrors) -> list[str]:
    return [_percent(value) for value in (group.mean_error, group.median_error, group.p90_error)]


def _verdict(group: GroupErrors) -> tuple[Text, Text]:
    if group.rule is None or group.limit is None:
        return Text("-", style="dim"), Text("")
    unit = " points" if group.unit == "points" else ""
    limit = Text(f"{_STATISTICS[group.rule.statistic]} {100 * group.limit:.3g}{unit}")
    if group.rule.max_error is not None:
        limit.append(f", any {100 * group.rule.max_error:.3g}")
    return limit, Text("kept", style="green") if group.ok else Text("missed", style="bold red")


def _percent(part: float) -> str:
    hundredths = 100 * part
    return f"{hundredths:.1f}" if hundredths < 99.95 else f"{hundredths:.0f}"
