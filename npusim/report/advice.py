"""Advice on a network for the terminal: techniques, places to rewrite, the stack to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.report.engineering import engineering, factor, factors, last_digit, percent
from npusim.report.terminal import LongName, conditions, headed, remarks, title

if TYPE_CHECKING:
    from npusim.studies.advice import Advice, Agreement, RewritingAdvice

_STYLES = {"gains": "green", "no gain": "dim", "instead": "dim", "refused": "dim"}
_JOINTS = "+:"
_MEANING = (
    "gain: inferences a second of the stack over those without the technique; today: whether a model file "
    "can hold it."
)


def advice_page(result: Advice) -> RenderableType:
    """Return advice for the terminal; the conclusion is the last line."""
    how = conditions(result.hint, result.requests, result.tiles, result.contexts, result.npu_tiles)
    parts: list[RenderableType] = [
        title(result.workload, result.soc, ""),
        Text(how, style="dim"),
        Text(),
        _stacks(result),
        Text(),
        _techniques(result),
        Text(_MEANING, style="dim"),
        Text(),
    ]
    refused = [one.reason for one in result.techniques if one.verdict == "refused"]
    not_today = [f"{one.technique}: {one.reason}" for one in result.techniques
                 if one.verdict != "refused" and one.reason]  # fmt: skip
    numerics = [f"{one.technique}: {one.numerics}" for one in result.techniques if one.verdict == "gains"]
    foot = remarks(
        ("Results", "cyan", numerics),
        ("Answers", "cyan", map(_agreement, result.agreement)),
        ("Written", "cyan", [f"{result.file}: {result.today.techniques}"] if result.file else []),
        ("Rewrite", "yellow", _rewritings(result)),
        ("Not yet", "yellow", not_today),
        ("Refused", "dim", refused),
        ("Note", "dim", result.notes),
    )
    if foot.row_count:
        parts += [foot, Text()]
    return Group(*parts, Text(result.conclusion, style="bold"))


def _stacks(result: Advice) -> Table:
    judged = result.as_it_is.accuracy is not None
    more = ("accuracy",) if judged else ()
    table = headed("stack", "latency", "inf/s", "energy", "times", "90 %", *more, ratio=1)
    rows = {"as it is": result.as_it_is, "today": result.today, "with a compiler": result.with_compiler}
    for label, variant in rows.items():
        if label == "with a compiler" and variant.techniques == result.today.techniques:
            continue
        bears = last_digit(variant.speedup_interval)
        table.add_row(
            LongName(f"{label}: {variant.techniques}", _JOINTS),
            engineering(variant.latency_s, "s"),
            engineering(variant.throughput_per_s, ""),
            engineering(variant.energy_j, "J"),
            factor(variant.throughput_per_s / result.as_it_is.throughput_per_s, bears),
            factors(variant.speedup_interval),
            *([] if variant.accuracy is None else [f"{variant.accuracy:.1%}"]),
            style="bold green" if label == "today" else "",
        )
    return table


def _techniques(result: Advice) -> Table:
    table = headed("technique", "gain", "90 %", gap=2)
    table.add_column("today", no_wrap=True)
    table.add_column("in the stack", ratio=1)
    for one in result.techniques:
        if one.gain is None:
            continue
        table.add_row(
            one.technique,
            factor(one.gain, last_digit(one.gain_interval)),
            factors(one.gain_interval),
            "yes" if one.today else "no",
            LongName(one.stack or "", _JOINTS),
            style=_STYLES[one.verdict],
        )
    return table


def _rewritings(result: Advice) -> list[str]:
    """Return a line for each kind of rewriting, at the place that takes most time."""
    kinds: dict[tuple[str, ...], list[RewritingAdvice]] = {}
    for one in result.rewritings:
        kinds.setdefault(tuple(one.opens), []).append(one)
    lines = []
    for opens, places in kinds.items():
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        regions = {(place.block, place.phase): place.region_share for place in places}
        where = ", ".join(f"{phase} of {block} {percent(share)}" for (block, phase), share in regions.items())
        lines.append(
            f"{places[0].operator}{more} (of the time: {where}): {places[0].what}. It opens "
            f"{', '.join(opens)}"
        )
    return lines


def _agreement(one: Agreement) -> str:
    half = "" if one.same_answers_fp16 is None else f" ({percent(one.same_answers_fp16)} in fp16)"
    return (
        f"{one.stack}: {percent(one.same_answers)} of the rows answer the same{half}; the largest difference "
        f"is {one.largest_difference:.2g} of {one.largest_output:.3g}"
    )
