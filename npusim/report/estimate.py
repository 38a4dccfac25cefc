"""An estimate as a page for the terminal: headline figures, units, operators, notes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.engines import Estimate, LanguageFigures
from npusim.metrics import METRICS, unit_of
from npusim.report.engineering import engineering, last_digit, last_digit_of_rate, percent
from npusim.report.regions import LAUNCH, part_s
from npusim.report.terminal import LongName, bar, conditions, counted, grid, headed, remarks, title

if TYPE_CHECKING:
    from npusim.engines import OperatorCost

_MOST_OPERATORS = 15
"""Operators that get a line; the JSON document holds all."""
_WORTH_A_LINE = 0.005
"""Part of the latency from which time outside of the operators is shown."""
_JOINTS = "/:"
"""Where an operator's name may be broken."""
_SHOWN = (
    "latency_s", "throughput_per_s", "energy_j", "power_w", "dram_bytes", "ops_per_j", "sram_peak_bytes",
    "sram_traffic_bytes", "area_mm2",
)  # fmt: skip
_OF_NPU = ("sram_peak_bytes", "sram_traffic_bytes", "area_mm2")
_BOUND_STYLES = {"compute": "green", "dma": "yellow", "dsp": "magenta", "launch": "red"}


def estimate_page(estimate: Estimate, details: bool = False) -> RenderableType:
    """Return an estimate for the terminal: headline figures, units, the costliest operators, notes."""
    parts: list[RenderableType] = [
        title(estimate.workload, estimate.soc, estimate.techniques),
        Text(circumstances(estimate), style="dim"),
        Text(),
        _figures(estimate),
        Text(),
        _units(estimate),
        Text(),
        *_operators(estimate),
    ]
    if details:
        from npusim.report.estimate_details import details_page

        parts.append(details_page(estimate))
    notes = estimate.provenance.get("notes", [])
    foot = remarks(("Warning", "bold yellow", estimate.warnings), ("Note", "dim", notes))
    if foot.row_count:
        parts += [Text(), foot]
    return Group(*parts)


def circumstances(estimate: Estimate) -> str:
    """Return the line below the title: machine, formats, how the network runs, engine."""
    machine = estimate.provenance.get("soc_title", estimate.soc)
    e, on_npu = estimate, any("." in op.unit for op in estimate.operators)
    how = conditions(e.hint, e.requests, e.tiles if on_npu else 0, e.contexts, e.npu_tiles)
    wider = estimate.source_precision not in (None, *re.split(r"\W+", estimate.precision))
    precision = estimate.precision + (f" (the file: {estimate.source_precision})" if wider else "")
    form = estimate.provenance.get("form", "")
    written = f"form {form}; " if form else ""
    return f"{machine}; {precision}; {written}{how}; {estimate.engine} engine"


def _figures(estimate: Estimate) -> Table:
    # Without work for the NPU its own figures say nothing.
    names = [name for name in _SHOWN if estimate.tiles or name not in _OF_NPU]
    cells = {name: engineering(getattr(estimate, name), unit_of(name)) for name in names}
    if estimate.latency_interval_s is not None:
        last = last_digit(estimate.latency_interval_s)
        value, low, high = (
            engineering(s, "s", last) for s in (estimate.latency_s, *estimate.latency_interval_s)
        )
        cells["latency_s"] = f"{value} [{low} to {high}]"
        if estimate.requests == 1:
            last = last_digit_of_rate(estimate.latency_interval_s)
            cells["throughput_per_s"] = engineering(estimate.throughput_per_s, "/s", last)
    cells["power_w"] += f", peak {engineering(estimate.peak_power_w, 'W')}"
    figures = [(METRICS[name].title, cell) for name, cell in cells.items()]
    figures.insert(6, ("DRAM peak", engineering(estimate.memory.dram_peak_bytes, "B")))
    if estimate.language is not None:
        figures += _by_token(estimate.language)
    figures.insert(7, ("work", engineering(estimate.macs, "MAC")))
    table = grid()
    for _ in range(2):
        table.add_column(style="dim")
        table.add_column(style="bold", justify="left", min_width=18)
    for left, right in zip_longest(figures[::2], figures[1::2], fillvalue=("", "")):
        table.add_row(*left, *right)
    return table


def _by_token(found: LanguageFigures) -> list[tuple[str, str]]:
    """Return what a user of a language model sees."""
    return [
        ("time of a token", engineering(found.token_s, "s")),
        ("tokens", engineering(found.tokens_per_s, "/s")),
        ("time to first token", engineering(found.time_to_first_token_s, "s")),
        ("energy of a token", engineering(found.energy_per_token_j, "J")),
    ]


def _units(estimate: Estimate) -> Table:
    table = headed("unit", "busy", "of the time", style="cyan", min_width=8)
    table.add_column(min_width=24)
    used = {name: use for name, use in estimate.units.items() if use.busy_s > 0}
    for name, use in sorted(used.items(), key=lambda item: -item[1].utilisation):
        cell = bar(use.utilisation, 1.0, width=24)
        table.add_row(name, engineering(use.busy_s, "s"), percent(use.utilisation), cell)
    if estimate.dispatch_s > 0.0:
        share = estimate.dispatch_s * estimate.throughput_per_s / estimate.contexts
        table.add_row(
            "calls of the NPU",
            engineering(estimate.dispatch_s, "s"),
            percent(share),
            bar(share, 1.0, width=24),
        )
    return table


def _operators(estimate: Estimate) -> Sequence[RenderableType]:
    """Return the table of the costliest operators and a line on the others."""
    single = estimate.requests == 1
    parts = {op.name: part_s(op) for op in estimate.operators}
    working = sorted((op for op in estimate.operators if op.busy_s > 0), key=lambda op: -parts[op.name])
    if not working:
        return [Text("No operator takes time: all are views of their inputs.")]
    whole_s = estimate.latency_s if single else estimate.contexts / estimate.throughput_per_s
    times = ("critical", "share", "busy", "span") if single else ("busy", "share", "span")
    table = headed("operator", gap=1, overflow="fold", ratio=1)
    table.add_column("unit", style="cyan", no_wrap=True)
    for heading in (*times, "DRAM"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    for op in working[:_MOST_OPERATORS]:
        cells = {
            "critical": engineering(parts[op.name], "s"),
            "share": percent(parts[op.name] / whole_s),
            "busy": engineering(op.busy_s, "s"),
            "span": engineering(op.span_s, "s"),
        }
        dram = engineering(op.dram_bytes, "B")
        bound = Text(op.bound, style=_BOUND_STYLES.get(op.bound, ""))
        table.add_row(_named(op), op.unit, *(cells[heading] for heading in times), dram, bound)
    if single and estimate.launch_s > _WORTH_A_LINE * whole_s:
        share = percent(estimate.launch_s / whole_s)
        name = Text(LAUNCH, style="dim")
        table.add_row(name, "", engineering(estimate.launch_s, "s"), share, "", "", "", "")
    others = [parts[op.name] for op in working[_MOST_OPERATORS:]]
    return [table, Text(_rest(others, whole_s, single), style="dim")]


def _named(op: OperatorCost) -> RenderableType:
    """Return the operator's name and, below it, what rides along."""
    fused = (LongName(f"+ {name}", _JOINTS, "dim") for name in op.fused)
    return Group(LongName(op.name, _JOINTS), *fused)


def _rest(others_s: Sequence[float], whole_s: float, single: bool) -> str:
    meaning = (
        "critical: its part of the latency; busy: its busiest unit's work; span: first transfer to last."
        if single
        else "busy: its busiest unit's work, as a share of the time between two inferences of a context."
    )
    if not others_s:
        return meaning
    longest, count = others_s[0], counted(len(others_s), "more operator")
    return f"{count} of at most {engineering(longest, 's')} each ({percent(longest / whole_s)}). {meaning}"
