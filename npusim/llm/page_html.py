"""Language models on a machine as an HTML page: which model fits, and how fast, on how much energy."""

from __future__ import annotations

from collections.abc import Callable

import plotly.graph_objects as go

from npusim.llm.page import bytes_between, one_digit, packed_lines, problem_lines, speculation_line
from npusim.llm.study import CacheGrowth, LanguageModels, LanguageRow
from npusim.report.document_html import titled
from npusim.report.engineering import engineering
from npusim.report.html import (
    COLOURS,
    UNIT_COLOURS,
    Amount,
    Cell,
    amount_axis,
    bullets,
    log_axis,
    names_axis,
    page,
    plot,
    table,
)

_COLOURS = {"npu": COLOURS[0], **{name: UNIT_COLOURS[name] for name in ("cpu", "gpu")}}


def language_html(found: LanguageModels, command: str = "") -> str:
    """Return times, memory and energy of models as HTML that needs no other file."""
    drafts = bullets(map(speculation_line, found.speculation))
    packed, left_out = bullets(packed_lines(found)), bullets(problem_lines(found))
    return page(
        titled("Language models", {"soc": found.soc}),
        _by_device(found, "Time of a token", lambda row: row.token_s, "s"),
        _by_device(found, "Time to the first token", _first_s, "s"),
        _memory(found),
        _by_device(found, "Energy of a token", lambda row: row.energy_per_token_j, "J"),
        "<h2>Figures</h2>",
        _table(found),
        *(_growth(one) for one in found.growth),
        f"<h2>Speculative decoding</h2>{drafts}" if drafts else "",
        f"<h2>Packed weights</h2>{packed}" if packed else "",
        f"<h2>What does not run</h2>{left_out}" if left_out else "",
        lead=_lead(found),
        notes=[
            f"a prompt of {found.prompt} tokens, a cache of {found.max_sequence} places",
            "time to the first token: the quicker of token by token and a second model for the whole prompt",
        ],
        command=command,
    )


def _first_s(row: LanguageRow) -> float | None:
    given = [one for one in (row.first_token_s, row.prefill_s) if one is not None]
    return min(given, default=None)


def _lead(found: LanguageModels) -> str:
    """Say which device is quickest and which needs least energy for the largest model that runs."""
    running = [row for row in found.rows if row.token_s is not None and row.token_interval_s is None]
    if not running:
        return "None of these models runs on this machine."
    largest = max(running, key=lambda row: row.memory.file_bytes if row.memory else 0.0).model
    rows = [row for row in running if row.model == largest]
    fast = min(rows, key=lambda row: row.token_s or 0.0)
    frugal = min(rows, key=lambda row: row.energy_per_token_j or 0.0)
    return (
        f"The largest model that fits is {largest}: quickest in {fast.weights} on {fast.device}, "
        f"{engineering(fast.tokens_per_s or 0.0, '/s')} tokens; least energy in {frugal.weights} on "
        f"{frugal.device}, {engineering(frugal.energy_per_token_j or 0.0, 'J')} a token."
    )


def _names(found: LanguageModels) -> list[str]:
    return list(dict.fromkeys(f"{row.model} {row.weights}" for row in found.rows))


def _by_device(
    found: LanguageModels, title: str, of: Callable[[LanguageRow], float | None], unit: str
) -> str:
    """Return a chart with a mark for each device, models and formats down the side."""
    names, figure = _names(found), go.Figure()
    known = [value for row in found.rows if (value := of(row)) is not None and value > 0.0]
    if not known:
        return ""
    for i, device in enumerate(dict.fromkeys(row.device for row in found.rows)):
        rows = [row for row in found.rows if row.device == device and of(row) is not None]
        values = [of(row) or 0.0 for row in rows]
        figure.add_scatter(
            x=values,
            y=[f"{row.model} {row.weights}" for row in rows],
            name=device,
            mode="markers",
            marker={"color": _COLOURS.get(device, COLOURS[i % len(COLOURS)]), "size": 12},
            customdata=[engineering(value, unit) for value in values],
            hovertemplate=f"%{{y}} on {device}: %{{customdata}}<extra></extra>",
        )
    axis = log_axis(title.lower(), unit, min(known), max(known))
    figure.update_layout(xaxis=axis, yaxis=names_axis(names))
    return plot(figure, 110 + 34 * len(names), title)


def _memory(found: LanguageModels) -> str:
    """Return DRAM by what it holds."""
    rows = [row for row in found.rows if row.memory is not None]
    names, figure = [f"{row.model} {row.weights} {row.device}" for row in rows], go.Figure()
    parts = {"weights": "weights_bytes", "cache": "states_bytes", "other": "other_bytes"}
    for i, (part, key) in enumerate(parts.items()):
        values = [float(getattr(row.memory, key)) for row in rows]
        figure.add_bar(
            x=values, y=names, name=part, orientation="h", marker={"color": COLOURS[i]},
            customdata=[engineering(value, "B") for value in values],
            hovertemplate=f"%{{y}}: {part} %{{customdata}}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="stack", xaxis=amount_axis("DRAM", "B"), yaxis=names_axis(names))
    return plot(figure, 110 + 36 * len(names), "Memory") if rows else ""


_TIMES = {
    "token_s": ("token", "s"), "tokens_per_s": ("tokens", "/s"), "first_token_s": ("first token", "s"),
    "prefill_s": ("by prefill", "s"), "energy_per_token_j": ("energy", "J"), "memory_bytes": ("memory", "B"),
}  # fmt: skip
_HELD = {
    "file_bytes": "file", "weights_bytes": "weights on device", "states_bytes": "cache",
    "other_bytes": "other",
}  # fmt: skip


def _table(found: LanguageModels) -> str:
    rows: list[list[Cell]] = []
    for row in found.rows:
        cells: list[Cell] = [_amount(row, key, unit) for key, (_, unit) in _TIMES.items()]
        cells += [Amount(getattr(row.memory, key, None), "B") for key in _HELD]
        peak = row.memory.compile_interval_bytes if row.memory is not None else None
        shown = bytes_between(peak) if peak is not None else ""
        cells.append(Amount(None if peak is None else list(peak), "B", shown))
        rows.append([row.model, row.weights, row.device, *cells])
    heads = ["model", "weights", "on", *(head for head, _ in _TIMES.values()), *_HELD.values(), "compiling"]
    keys = ["model", "weights", "device", *_TIMES, *(f"memory.{key}" for key in _HELD)]
    keys.append("memory.compile_interval_bytes")
    return table(heads, rows, [0, 1, 2], name="models", keys=keys)


def _amount(row: LanguageRow, key: str, unit: str) -> Amount:
    """Return a figure, to one digit where it rests on a number that nobody measured."""
    value = getattr(row, key)
    if value is None or row.token_interval_s is None or key == "memory_bytes":
        return Amount(value, unit)
    return Amount(value, unit, engineering(value, unit, one_digit(value)))


def _growth(one: CacheGrowth) -> str:
    short, long = one.max_sequence
    rows: list[list[Cell]] = [
        [
            each.name, each.type, each.unit, Amount(each.count), Amount(each.dram_bytes[1], "B"),
            *(Amount(s, "s") for s in (*each.time_s, each.time_s[1] - each.time_s[0])),
        ]
        for each in one.passes
    ]  # fmt: skip
    heads = ["pass", "type", "by", "operators", f"DRAM at {long}", f"at {short}", f"at {long}", "more"]
    name = f"passes_{one.model}_{one.device}"
    shown = table(heads, rows, [0, 1, 2], name=name, keys=["name", "type", "unit", "count", "", "", "", ""])
    return f"<h2>Passes over the cache: {one.model} on {one.device}</h2>{shown}"
