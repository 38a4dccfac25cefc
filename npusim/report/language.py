"""Language models on a machine, as a page for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from npusim.report.engineering import engineering, percent
from npusim.report.terminal import headed
from npusim.studies.language import LanguageModels, LanguageRow, Speculation


def language_page(found: LanguageModels) -> RenderableType:
    """Return a row for each model, format and device; below it what a draft gives."""
    head = ("weights", "on", "token", "tokens", "first", "prefill", "memory", "energy")
    table = headed("model", *head, style="cyan", min_width=11)
    for row in found.rows:
        table.add_row(row.model, row.weights, row.device, *_cells(row))
    title = f"{found.soc}; prompt of {found.prompt} tokens, cache of {found.max_sequence}"
    notes = [
        Text(f"{row.model} {row.weights} on {row.device}: {row.problem}") for row in found.rows if row.problem
    ]
    return Group(Text(title), table, *notes, *(Text(_sentence(one)) for one in found.speculation))


def _cells(row: LanguageRow) -> list[str]:
    values = (
        (row.token_s, "s"), (row.tokens_per_s, "/s"), (row.first_token_s, "s"), (row.prefill_s, "s"),
        (row.memory_bytes, "B"), (row.energy_per_token_j, "J"),
    )  # fmt: skip
    return ["-" if value is None else engineering(value, unit) for value, unit in values]


def _sentence(one: Speculation) -> str:
    pays = (
        "it never pays" if one.least_acceptance is None else f"it pays from {percent(one.least_acceptance)}"
    )
    return (
        f"{one.draft} on {one.draft_device} guesses {one.guesses} tokens for {one.target} on {one.device}: "
        f"{engineering(one.token_s, 's')} a token instead of {engineering(one.alone_s, 's')} where "
        f"{percent(one.acceptance)} are accepted; {pays}"
    )
