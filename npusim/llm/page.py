"""The page of language models on a machine: which model fits, how fast it is, and its energy."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, log10
from typing import TYPE_CHECKING, Any

from npusim.llm.study import CacheGrowth, LanguageModels, LanguageRow
from npusim.reporting.charts import add_marks, bar_figure, blank_figure
from npusim.reporting.engineering import Amount, Cell, cell, engineering, last_digit, span
from npusim.reporting.html import COLOURS, UNIT_COLOURS, amount_axis, log_axis, names_axis
from npusim.reporting.page import Page, Plot, Remark, Section, document_page
from npusim.reporting.tables import Column, Table, fields

if TYPE_CHECKING:
    import plotly.graph_objects as go

_COLOURS = {"npu": COLOURS[0], "cpu": UNIT_COLOURS["cpu"], "gpu": UNIT_COLOURS["gpu"]}
_PARTS = {"weights": "weights_bytes", "cache": "states_bytes", "other": "other_bytes"}
_TRAFFIC = ("moved", "weights", "cache", "unpacked", "spilled", "other")
_ROW = (Column("model", layout={"min_width": 11}), *fields("weights, device: on"))
_NOTES = (
    "first: token by token; prefill: a second model for the whole prompt, or for its chunks",
    "direct: if the device multiplied packed weights as they are (DEVICE.packed_weights.FORMAT=product); "
    "90 %: of a token where operators unpack weights, how fast is unmeasured",
    "least: weights and cache, read once; unpacked: weights held in a wider format",
    "pays from: share of guesses that must be accepted",
)


def language_page(models: LanguageModels) -> Page:
    """Return times, memory and energy of each model, format and device; passes over the cache; drafts."""
    problems = [
        f"{row.model} {row.weights} on {row.device}: {row.problem}" for row in models.rows if row.problem
    ]
    return document_page(
        models,
        "Language models",
        f"prompt of {models.prompt} tokens, cache of {models.max_sequence}",
        [
            _by_device(models, "Time of a token", lambda row: row.token_s, "s"),
            _by_device(models, "Time to the first token", _first_s, "s"),
            *_tables([row for row in models.rows if row.token_bytes is not None]),
            Plot("Memory", lambda: _memory_bars(models)),
            _by_device(models, "Energy of a token", lambda row: row.energy_per_token_j, "J"),
            Table(_DRAFTS, models.speculation, "Speculative decoding", "speculation", whole=True),
            *map(_growth, models.growth),
        ],
        [Remark("Left out", problems, "yellow", "What does not run")],
        _NOTES,
    )


def _named(row: LanguageRow) -> str:
    return f"{row.model} {row.weights}"


def _first_s(row: LanguageRow) -> float | None:
    return min((s for s in (row.first_token_s, row.prefill_s) if s is not None), default=None)


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
        for device in dict.fromkeys(row.device for row in models.rows):
            add_marks(
                figure,
                device,
                [row for row in models.rows if row.device == device and value(row) is not None],
                lambda row: (value(row), _named(row)),
                {"color": _COLOURS.get(device, COLOURS[-1]), "size": 12},
                lambda row: f"{_named(row)} on {row.device}: {engineering(value(row) or 0.0, unit)}",
                orientation="h",
            )
        # Marks of equal times stand side by side, which the range of an axis leaves out.
        figure.update_yaxes(autorange=False, range=[len(names) - 0.4, -0.6])
        return figure.update_layout(scattermode="group")

    return Plot(title, draw)


def _rough(key: str, heading: str) -> Column:
    """Return a column whose figures have one digit where they rest on an unmeasured number."""

    def show(row: LanguageRow) -> Cell:
        value = getattr(row, key)
        return cell(key, value, None if row.token_interval_s is None or not value else floor(log10(value)))

    return Column(key, heading, show)


def _tables(rows: list[LanguageRow]) -> list[Section]:
    """Return the tables of times and energy, of the DRAM traffic of a token, and of memory."""

    def times_least(row: Any) -> str:
        return f"{row.token_bytes.moved_bytes / row.token_bytes.least_bytes:.2f}"

    times = (
        *_ROW,
        Column("token_s", "token"),
        _rough("tokens_per_s", "tokens"),
        _rough("first_token_s", "first"),
        _rough("prefill_s", "prefill"),
        _rough("energy_per_token_j", "energy"),
    )
    packed = (*_ROW, *fields("token_s: token, token_interval_s, direct_token_s: direct"))
    unpacking = [row for row in rows if row.direct_token_s is not None]
    parts = [f"token_bytes.{part}_bytes: {part}" for part in _TRAFFIC]
    traffic = (*_ROW, *fields(", ".join(parts)), Column("", "x least", times_least, words=False))
    memory = (
        *_ROW,
        *fields("memory.file_bytes: file, memory.weights_bytes: on device"),
        *fields("memory.states_bytes: cache, memory.other_bytes: other, memory_bytes: total"),
        Column("", "compiling", lambda row: span(row.memory.compile_interval_bytes, "B") or "-", words=False),
    )
    return [
        Table(times, rows, "Figures", "rows", gap=1),
        Table(packed, unpacking, "Packed weights", gap=1, titled=True),
        Table(traffic, rows, "Bytes of a token", "bytes-of-a-token", gap=1, titled=True),
        Table(memory, rows, "Memory in figures", "memory-of-models", gap=1, titled=True),
    ]


def _memory_bars(models: LanguageModels) -> go.Figure | None:
    """Return DRAM by what it holds."""
    memories = {f"{_named(row)} {row.device}": row.memory for row in models.rows if row.memory is not None}
    series = {
        part: {name: float(getattr(memory, key)) for name, memory in memories.items()}
        for part, key in _PARTS.items()
    }
    return bar_figure(series, amount_axis("DRAM", "B"), "B", mode="stack") if memories else None


def _growth(growth: CacheGrowth) -> Table:
    """Return what a longer cache takes, pass by pass."""
    last = last_digit(growth.growth_interval_s)
    value, low, high = (engineering(s, "s", last) for s in (growth.growth_s, *growth.growth_interval_s))
    short, long = growth.max_sequence
    columns = (
        *fields("name: pass of all layers, type, unit: by, count: operators"),
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


_DRAFTS = fields(
    "draft, draft_device: by, target, device: on, guesses, acceptance: accepted, token_s: token, "
    "alone_s: alone, speedup, least_acceptance: pays from"
)
