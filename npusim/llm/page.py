"""Language models on a machine, as a page for the terminal."""

from __future__ import annotations

from math import floor, log10

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.llm.study import CacheGrowth, LanguageModels, LanguageRow, Speculation
from npusim.report.engineering import engineering, last_digit, percent
from npusim.report.terminal import headed, remarks


def language_page(found: LanguageModels) -> RenderableType:
    """Return a row for each model, format and device, its memory; below passes over the cache and drafts."""
    title = f"{found.soc}; prompt of {found.prompt} tokens, cache of {found.max_sequence}"
    parts: list[RenderableType] = [Text(title), _times(found), Text(), _memory(found)]
    for one in found.growth:
        parts += [Text(), *_growth(one)]
    foot = remarks(
        ("Draft", "", map(speculation_line, found.speculation)),
        ("Packed", "dim", packed_lines(found)),
        ("Left out", "yellow", problem_lines(found)),
    )
    return Group(*parts, Text(), foot) if foot.row_count else Group(*parts)


def _times(found: LanguageModels) -> Table:
    head = ("weights", "on", "token", "tokens", "first", "prefill", "energy")
    table = headed("model", *head, style="cyan", min_width=11)
    for row in found.rows:
        last = last_digit(row.token_interval_s)
        values = (
            (row.token_s, "s"), (row.tokens_per_s, "/s"), (row.first_token_s, "s"), (row.prefill_s, "s"),
            (row.energy_per_token_j, "J"),
        )  # fmt: skip
        digits = [last, *(None if last is None else one_digit(value) for value, _ in values[1:])]
        cells = [
            "-" if value is None else engineering(value, unit, digit)
            for (value, unit), digit in zip(values, digits, strict=True)
        ]
        table.add_row(row.model, row.weights, row.device, *cells)
    return table


def one_digit(value: float | None) -> int | None:
    """Return the place of the first digit: what rests on a number that nobody measured bears no more."""
    return floor(log10(value)) if value else None


def _memory(found: LanguageModels) -> Table:
    head = ("weights", "on", "file", "on device", "cache", "other", "total", "compiling")
    table = headed("memory of", *head, gap=1, style="cyan", min_width=11)
    for row in found.rows:
        if row.memory is not None and row.memory_bytes is not None:
            one = row.memory
            values = (
                one.file_bytes, one.weights_bytes, one.states_bytes, one.other_bytes, row.memory_bytes,
            )  # fmt: skip
            table.add_row(
                row.model, row.weights, row.device, *(engineering(value, "B") for value in values),
                bytes_between(one.compile_interval_bytes),
            )  # fmt: skip
    return table


def bytes_between(interval: tuple[float, float] | None) -> str:
    """Return an interval of bytes to the digit that it bears; a dash for none."""
    if interval is None:
        return "-"
    low, high = (engineering(bound, "B", last_digit(interval)) for bound in interval)
    number, unit = low.split()
    return f"{number}-{high}" if high.endswith(f" {unit}") else f"{low}-{high}"


def _growth(one: CacheGrowth) -> list[RenderableType]:
    last = last_digit(one.growth_interval_s)
    value, low, high = (engineering(s, "s", last) for s in (one.growth_s, *one.growth_interval_s))
    short, long = one.max_sequence
    head = f"{one.model} on {one.device}: a cache of {long} places takes {value} [{low} to {high}] more"
    table = headed(
        "pass of all layers", "type", "by", "DRAM", f"at {short}", f"at {long}", "more", style="cyan"
    )
    for each in one.passes:
        times = (*each.time_s, each.time_s[1] - each.time_s[0])
        shown = [engineering(s, "s") for s in times]
        table.add_row(each.name, each.type, each.unit, engineering(each.dram_bytes[1], "B"), *shown)
    return [Text(f"{head} than one of {short}", style="bold"), table]


def problem_lines(found: LanguageModels) -> list[str]:
    """Return which models do not run, and why."""
    return [f"{row.model} {row.weights} on {row.device}: {row.problem}" for row in found.rows if row.problem]


def packed_lines(found: LanguageModels) -> list[str]:
    """Return the other reading of each row whose device does not multiply packed weights as they are."""
    return [_packed_line(row) for row in found.rows if row.direct_token_s is not None and row.token_s]


def _packed_line(row: LanguageRow) -> str:
    assert row.token_s is not None and row.direct_token_s is not None, "of rows with both readings"
    last = last_digit(row.token_interval_s)
    now = f"{engineering(row.token_s, 's', last)} a token"
    if row.token_interval_s is not None:
        low, high = (engineering(bound, "s", last) for bound in row.token_interval_s)
        now += f" [{low} to {high}: unpacked by operators, how fast is unmeasured]"
    return (
        f"{row.model} {row.weights} on {row.device}: {now}; {engineering(row.direct_token_s, 's')} if it "
        f"multiplied them as they are ({row.device}.packed_weights.{row.weights}=product)"
    )


def speculation_line(one: Speculation) -> str:
    """Return what a draft gives, and from which acceptance on."""
    pays = (
        "it never pays" if one.least_acceptance is None else f"it pays from {percent(one.least_acceptance)}"
    )
    return (
        f"{one.draft} on {one.draft_device} guesses {one.guesses} tokens for {one.target} on {one.device}: "
        f"{engineering(one.token_s, 's')} a token instead of {engineering(one.alone_s, 's')} where "
        f"{percent(one.acceptance)} are accepted; {pays}"
    )
