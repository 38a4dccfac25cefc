"""Sections on memory: DRAM traffic by kind, what would remove it, and SRAM over the whole network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

import numpy as np
from rich.text import Text

from npusim.engines import Estimate, OperatorCost
from npusim.engines.estimate import DramByKind
from npusim.mapping import AHEAD, OTHERS, OWN, RESIDENT, Mapped, SramContents, sram_contents
from npusim.reporting.charts import Figure, add_marks, blank_figure, stacked_bars
from npusim.reporting.engineering import Amount, engineering
from npusim.reporting.html import COLOURS, amount_axis
from npusim.reporting.page import Column, Lines, Plot, Section, Table, cells_table
from npusim.reporting.terminal import shares_table
from npusim.studies.memory_needs import MemoryNeed, memory_needs

KINDS = {
    "compulsory_weights_bytes": "weights, once",
    "compulsory_activations_bytes": "inputs and outputs, once",
    "refetched_bytes": "refetched",
    "spilled_bytes": "spilled",
}
"""What pages call the kinds of DRAM traffic, by field of `DramByKind`."""
KIND_COLOURS = dict(zip(KINDS.values(), (COLOURS[0], COLOURS[4], COLOURS[1], COLOURS[3]), strict=True))
_MEANING = "refetched: bytes that were read before; spilled: results written to DRAM and read back."
SHORT_KINDS = ("weights", "in, out", "refetched", "spilled")
"""What narrow tables call them."""
_MOST_OPERATORS, _MOST_BARS = 15, 20
_MOST_ROWS = 32  # rows of the SRAM map on the terminal
_BAR = 18
_MOST_KEPT = 5
# Character and style of a group of layers on the terminal; others are full blocks.
_FILLS = {OWN: ("▒", "yellow"), AHEAD: ("░", "green"), RESIDENT: ("▓", "magenta")}
_OWN_COLOUR, _FREE_COLOUR = "#777777", "#f6f6f6"


def by_kind(dram: DramByKind) -> dict[str, float]:
    """Return the bytes of each kind by its name on pages."""
    return {title: getattr(dram, field) for field, title in KINDS.items()}


def _avoidable(op: OperatorCost) -> float:
    return op.dram.refetched_bytes + op.dram.spilled_bytes


def traffic_sections(estimate: Estimate) -> list[Section]:
    """Return DRAM traffic by kind, of the network and of operators; nothing where kinds are unknown."""
    kinds, total = by_kind(estimate.dram), estimate.dram_bytes
    if not any(kinds.values()):
        return []
    table = shares_table("DRAM traffic by kind", kinds, "B", total, "dram", _MEANING)
    busiest = sorted(estimate.operators, key=lambda op: -op.dram_bytes)[:_MOST_BARS]
    wasteful = sorted(filter(_avoidable, estimate.operators), key=lambda op: -_avoidable(op))
    of_operators = (
        Column("", "moves bytes again", lambda op: op.name),
        *(Column(f"dram.{kind}", title) for kind, title in zip(KINDS, SHORT_KINDS, strict=True)),
        Column("dram_bytes"),
    )
    title = f"DRAM traffic by kind: {engineering(total, 'B')} an inference"
    by_operator = {op.name: op.dram for op in busiest if op.dram_bytes > 0.0}
    return [
        Plot(title, partial(kind_bars, {"all operators": estimate.dram}), table),
        Plot("Operators that move most bytes of DRAM, by kind", partial(kind_bars, by_operator)),
        Table(of_operators, wasteful, only="terminal", most=_MOST_OPERATORS, detail=True, gap=1),
    ]


def kind_bars(rows: Mapping[str, DramByKind]) -> Figure:
    """Return a bar for each name, stacked of the bytes of each kind."""
    return stacked_bars({name: by_kind(dram) for name, dram in rows.items()}, "B", KIND_COLOURS)


def memory_sections(mapped: Mapped) -> list[Section]:
    """Return what would remove traffic, and the map of SRAM; network and machine are mapped again."""
    needs = [_need_line(need) for need in sorted(memory_needs(mapped), key=lambda need: need.kind)]
    return [Lines(needs, "More memory on the chip would remove DRAM traffic"), *sram_sections(mapped)]


def _need_line(need: MemoryNeed) -> str:
    left = engineering(need.left_bytes, "B")
    rest = f"leaves {left} with" if need.left_bytes > 0.0 else "gone with"
    return f"{KINDS[need.kind]} {engineering(need.bytes, 'B')}: {rest} --set {need.setting}"


def sram_sections(mapped: Mapped) -> list[Section]:
    """Return what lies in SRAM while each operator runs: a picture, tables, and the largest tensors kept."""
    contents = sram_contents(mapped) if mapped.npu is not None else None
    if contents is None or not contents.operators:
        return []
    layers = _layers(contents)
    rows = [
        (name, *(Amount(float(sizes[i]), "B") for sizes in layers.values()))
        for i, name in enumerate(contents.operators)
    ]
    table = cells_table(("operator", *layers), rows, "", "sram", only="html")
    return [
        Plot("What lies in SRAM", lambda: sram_figure(mapped), table),
        _sram_map(contents),
        Lines([*_kept_lines(contents)], "Largest tensors kept in SRAM"),
    ]


def _layers(contents: SramContents) -> dict[str, Any]:
    """Return the bytes of each layer while each operator runs, from the bottom up, but for empty ones."""
    named = {name: sizes for group in contents.layers.values() for name, sizes in group.items()}
    return {name: sizes for name, sizes in (named | {"free": contents.free}).items() if sizes.any()}


def sram_figure(mapped: Mapped) -> Figure:
    """Return what lies in SRAM over time, layer by layer; empty where nothing does."""
    contents = sram_contents(mapped)
    if not contents.operators:
        return blank_figure()
    time = amount_axis("time, operator after operator", "s")
    figure = blank_figure(height=420, xaxis=time, yaxis=amount_axis("bytes in SRAM", "B"))
    begins = np.concatenate(([0.0], contents.ends_s[:-1]))
    greys = dict.fromkeys(contents.layers[OWN], _OWN_COLOUR) | {"free": _FREE_COLOUR}
    for number, (name, sizes) in enumerate(_layers(contents).items()):
        colour = greys.get(name, COLOURS[number % len(COLOURS)])
        figure.add_scatter(
            x=np.stack([begins, contents.ends_s], axis=1).reshape(-1),
            y=np.repeat(np.maximum(sizes, 0.0), 2),
            stackgroup="sram",
            name=name,
            mode="lines",
            line={"width": 0.5, "color": colour, "shape": "linear"},
            customdata=np.repeat(np.array(contents.operators, object), 2),
            hovertemplate=f"{escape(name)}: %{{y:.3~s}}B<br>at %{{customdata}}<extra></extra>",
        )
    ends = [(s, contents.capacity_bytes) for s in (0.0, float(contents.ends_s[-1]))]
    line: Any = {"mode": "lines", "line": {"color": "#000000", "dash": "dash", "width": 1.5}}
    capacity = f"capacity {engineering(contents.capacity_bytes, 'B')}"
    add_marks(figure, capacity, ends, lambda end: end, {}, hoverinfo="name", **line)
    return figure


def _sram_map(contents: SramContents) -> Table:
    """Return SRAM over time for the terminal: of several operators in a row the fullest one."""
    groups = {name: contents.group(name) for name in contents.layers}
    used, count = contents.capacity_bytes - contents.free, len(contents.operators)
    size = -(-count // _MOST_ROWS)
    fullest = [at + int(np.argmax(used[at : at + size])) for at in range(0, count, size)]
    begins = np.concatenate(([0.0], contents.ends_s[:-1]))
    columns = (
        Column("", "SRAM", lambda i: contents.operators[i], layout={"min_width": 16}),
        Column("", "begins", lambda i: Amount(float(begins[i]), "s")),
        *(
            Column("", name, lambda i, sizes=sizes: Amount(float(sizes[i]), "B"))
            for name, sizes in groups.items()
        ),
        Column("", "free", lambda i: Amount(max(0.0, float(contents.free[i])), "B")),
        Column("", "", lambda i: _fill_bar({name: sizes[i] for name, sizes in groups.items()}, contents)),
    )
    several = f"; of each {size} operators the one that fills it most" if size > 1 else ""
    marks = {name: _FILLS.get(name, ("█", ""))[0] for name in contents.layers}
    legend = ", ".join(f"{mark} {name}" for name, mark in marks.items())
    caption = f"{legend}, · free of {engineering(contents.capacity_bytes, 'B')}{several}"
    return Table(columns, fullest, caption=caption, only="terminal", detail=True, gap=1)


def _fill_bar(sizes: Mapping[str, float], contents: SramContents) -> Text:
    """Return a bar of what lies in SRAM by group, free room as dots."""
    bar, upto, drawn = Text(), 0.0, 0
    for name, size in sizes.items():
        character, style = _FILLS.get(name, ("█", "cyan"))
        upto += size
        cells = min(_BAR, round(_BAR * upto / contents.capacity_bytes)) - drawn
        bar.append(character * cells, style=style)
        drawn += cells
    return bar.append("·" * (_BAR - drawn), style="dim")


def _kept_lines(contents: SramContents) -> Sequence[str]:
    """Return a line for each of the largest tensors that stay: its bytes, and from when until when."""
    kept = {
        name: sizes
        for group, parts in contents.layers.items()
        for name, sizes in parts.items()
        if group not in (OWN, AHEAD, RESIDENT) and name != OTHERS and sizes.any()
    }
    largest = sorted(kept, key=lambda name: -float(kept[name].max()))
    lines = []
    for name in largest[:_MOST_KEPT]:
        at = np.flatnonzero(kept[name])
        first, last = contents.operators[at[0]], contents.operators[at[-1]]
        span = f"from {first} to {last}" if first != last else f"at {first}"
        lines.append(f"{name}: {engineering(float(kept[name].max()), 'B')}, {span}")
    return lines
