"""The page of language models on a machine: which model fits, how fast it is, and its energy."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, log10
from typing import TYPE_CHECKING

from npusim.llm.study import CacheGrowth, LanguageModels, LanguageRow, Speculation
from npusim.reporting.charts import add_marks, bar_figure, blank_figure
from npusim.reporting.engineering import Amount, Cell, cell, engineering, last_digit, percent, span
from npusim.reporting.html import COLOURS, UNIT_COLOURS, amount_axis, log_axis, names_axis
from npusim.reporting.page import Column, Page, Plot, Remark, Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

_COLOURS = {"npu": COLOURS[0], "cpu": UNIT_COLOURS["cpu"], "gpu": UNIT_COLOURS["gpu"]}
_PARTS = {"weights": "weights_bytes", "cache": "states_bytes", "other": "other_bytes"}
_ROW = (Column("weights", "weights"), Column("device", "on"))


def _row(heading: str) -> tuple[Column, ...]:
    """Return the columns that name a row: model, format of weights, device."""
    return Column("model", heading, layout={"style": "cyan", "min_width": 11}), *_ROW


def language_page(models: LanguageModels) -> Page:
    """Return times, memory and energy of each model, format and device; passes over the cache; drafts."""
    problems = [
        f"{row.model} {row.weights} on {row.device}: {row.problem}" for row in models.rows if row.problem
    ]
    packed = []
    for row in models.rows:
        if row.direct_token_s is not None and row.token_s:
            last, now = last_digit(row.token_interval_s), ""
            if row.token_interval_s is not None:
                low, high = (engineering(bound, "s", last) for bound in row.token_interval_s)
                now = f" [{low} to {high}: unpacked by operators, how fast is unmeasured]"
            packed.append(
                f"{row.model} {row.weights} on {row.device}: {engineering(row.token_s, 's', last)} a token"
                f"{now}; {engineering(row.direct_token_s, 's')} if it multiplied them as they are "
                f"({row.device}.packed_weights.{row.weights}=product)"
            )
    return Page(
        "Language models",
        ("", models.soc, ""),
        f"prompt of {models.prompt} tokens, cache of {models.max_sequence}",
        [
            _by_device(models, "Time of a token", lambda row: row.token_s, "s"),
            _by_device(models, "Time to the first token", _first_s, "s"),
            _times(models),
            _bytes(models),
            Plot("Memory", lambda: _memory_bars(models)),
            _memory(models),
            _by_device(models, "Energy of a token", lambda row: row.energy_per_token_j, "J"),
            *map(_growth, models.growth),
        ],
        [
            Remark("Draft", list(map(_draft_line, models.speculation)), "", "Speculative decoding"),
            Remark("Packed", packed, title="Packed weights"),
            Remark("Left out", problems, "yellow", "What does not run"),
            Remark(
                "Note",
                [
                    "first: token by token; prefill: a second model for the whole prompt, or for its chunks",
                    "least: weights and cache, read once; unpacked: weights held in a wider format",
                ],
            ),
        ],
        lead=_lead(models),
    )


def _named(row: LanguageRow) -> str:
    return f"{row.model} {row.weights}"


def _first_s(row: LanguageRow) -> float | None:
    return min((s for s in (row.first_token_s, row.prefill_s) if s is not None), default=None)


def _lead(models: LanguageModels) -> str:
    """Return which device is quickest and which needs least energy for the largest model that runs."""
    running = [row for row in models.rows if row.token_s is not None and row.token_interval_s is None]
    if not running:
        return "None of these models runs on this machine."
    largest = max(running, key=lambda row: row.memory.file_bytes if row.memory else 0.0).model
    rows = [row for row in running if row.model == largest]
    fast = min(rows, key=lambda row: row.token_s or 0.0)
    frugal = min(rows, key=lambda row: row.energy_per_token_j or 0.0)
    rate = engineering(fast.tokens_per_s or 0.0, "/s").removesuffix(" /s")
    return (
        f"The largest model that fits is {largest}: quickest in {fast.weights} on {fast.device}, "
        f"{rate} tokens/s; least energy in {frugal.weights} on {frugal.device}, "
        f"{engineering(frugal.energy_per_token_j or 0.0, 'J')} a token."
    )


def _by_device(
    models: LanguageModels, title: str, value: Callable[[LanguageRow], float | None], unit: str
) -> Plot:
    """Return a chart with a mark for each device, models and formats down the side."""

    def draw() -> go.Figure | None:
        names = list(dict.fromkeys(map(_named, models.rows)))
        known = [v for row in models.rows if (v := value(row)) is not None and v > 0.0]
        if not known:
            return None
        axis = log_axis(title.lower(), unit, min(known), max(known))
        figure = blank_figure(xaxis=axis, yaxis=names_axis(names), height=110 + 34 * len(names))
        for i, device in enumerate(dict.fromkeys(row.device for row in models.rows)):
            add_marks(
                figure,
                device,
                [row for row in models.rows if row.device == device and value(row) is not None],
                lambda row: (value(row), _named(row)),
                {"color": _COLOURS.get(device, COLOURS[i % len(COLOURS)]), "size": 12},
                lambda row: f"{_named(row)} on {row.device}: {engineering(value(row) or 0.0, unit)}",
                orientation="h",
            )
        # Marks of equal times stand side by side, which the range of an axis leaves out.
        figure.update_yaxes(autorange=False, range=[len(names) - 0.4, -0.6])
        return figure.update_layout(scattermode="group")

    return Plot(title, draw)


def _times(models: LanguageModels) -> Table:
    """Return times and energy of each model, to one digit where they rest on an unmeasured number."""

    def figure(key: str, heading: str) -> Column:
        def show(row: LanguageRow) -> Cell:
            value = getattr(row, key)
            if row.token_interval_s is None or not value:
                return cell(key, value)
            last = last_digit(row.token_interval_s) if key == "token_s" else floor(log10(value))
            return cell(key, value, last)

        return Column(key, heading, show)

    columns = (
        *_row("model"),
        figure("token_s", "token"),
        figure("tokens_per_s", "tokens"),
        figure("first_token_s", "first"),
        figure("prefill_s", "prefill"),
        figure("energy_per_token_j", "energy"),
    )
    return Table(columns, models.rows, "Figures", "rows")


def _bytes(models: LanguageModels) -> Table:
    """Return the DRAM traffic of a token beside the least, which is weights and cache once."""

    def times_least(row: LanguageRow) -> str:
        bytes_ = row.token_bytes
        return f"{bytes_.moved_bytes / bytes_.least_bytes:.2f}" if bytes_ else ""

    columns = (
        *_row("bytes of a token"),
        Column("token_bytes.moved_bytes", "moved"),
        Column("token_bytes.weights_bytes", "weights"),
        Column("token_bytes.cache_bytes", "cache"),
        Column("", "x least", times_least, words=False),
        Column("token_bytes.unpacked_bytes", "unpacked"),
        Column("token_bytes.spilled_bytes", "spilled"),
        Column("token_bytes.other_bytes", "other"),
    )
    rows = [row for row in models.rows if row.token_bytes is not None]
    return Table(columns, rows, "Bytes of a token", "bytes-of-a-token", gap=1)


def _memory(models: LanguageModels) -> Table:
    columns = (
        *_row("memory of"),
        Column("memory.file_bytes", "file"),
        Column("memory.weights_bytes", "on device"),
        Column("memory.states_bytes", "cache"),
        Column("memory.other_bytes", "other"),
        Column("memory_bytes", "total"),
        Column("", "compiling", lambda row: span(row.memory.compile_interval_bytes, "B") or "-", words=False),
    )
    rows = [row for row in models.rows if row.memory is not None and row.memory_bytes is not None]
    return Table(columns, rows, "Memory in figures", "memory-of-models", gap=1)


def _memory_bars(models: LanguageModels) -> go.Figure | None:
    """Return DRAM by what it holds."""
    rows = {
        f"{row.model} {row.weights} {row.device}": row.memory for row in models.rows if row.memory is not None
    }
    series = {
        part: {name: float(getattr(memory, key)) for name, memory in rows.items()}
        for part, key in _PARTS.items()
    }
    return bar_figure(series, amount_axis("DRAM", "B"), "B", mode="stack") if rows else None


def _growth(growth: CacheGrowth) -> Table:
    """Return what a longer cache takes, pass by pass."""
    last = last_digit(growth.growth_interval_s)
    value, low, high = (engineering(s, "s", last) for s in (growth.growth_s, *growth.growth_interval_s))
    short, long = growth.max_sequence
    columns = (
        Column("name", "pass of all layers", layout={"style": "cyan"}),
        Column("type", "type"),
        Column("unit", "by"),
        Column("count", "operators", only="html"),
        Column("", "DRAM", lambda each: Amount(each.dram_bytes[1], "B")),
        Column("", f"at {short}", lambda each: Amount(each.time_s[0], "s")),
        Column("", f"at {long}", lambda each: Amount(each.time_s[1], "s")),
        Column("", "more", lambda each: Amount(each.time_s[1] - each.time_s[0], "s")),
    )
    title = (
        f"{growth.model} on {growth.device}: a cache of {long} places takes {value} [{low} to {high}] more "
        f"than one of {short}"
    )
    return Table(columns, growth.passes, title, f"passes_{growth.model}_{growth.device}", titled=True)


def _draft_line(draft: Speculation) -> str:
    """Return what a draft gives, and from which acceptance on."""
    least = draft.least_acceptance
    pays = "it never pays" if least is None else f"it pays from {percent(least)}"
    return (
        f"{draft.draft} on {draft.draft_device} guesses {draft.guesses} tokens for {draft.target} on "
        f"{draft.device}: {engineering(draft.token_s, 's')} a token instead of "
        f"{engineering(draft.alone_s, 's')} where {percent(draft.acceptance)} are accepted; {pays}"
    )
