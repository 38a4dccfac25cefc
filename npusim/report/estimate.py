"""An estimate as a page for the terminal: headline figures, units, operators, notes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.engines import Estimate
from npusim.metrics import METRICS, unit_of
from npusim.report.engineering import engineering, percent
from npusim.report.terminal import LongName, bar, conditions, counted, grid, headed, remarks, title

if TYPE_CHECKING:
    from npusim.engines import OperatorCost

_MOST_OPERATORS = 15
"""Operators that get a line; the JSON document holds all."""
_WORTH_A_LINE = 0.005
"""Part of the latency from which time outside of the operators is shown."""
_JOINTS = "/:"
"""Where an operator's name may be broken."""
_OF_NPU = ("sram_peak_bytes", "area_mm2")
_BOUND_STYLES = {"compute": "green", "dma": "yellow", "dsp": "magenta", "launch": "red"}


def estimate_page(estimate: Estimate) -> RenderableType:
    """Return an estimate for the terminal: headline figures, units, the costliest operators, notes."""
    parts: list[RenderableType] = [
        title(estimate.workload, estimate.soc, estimate.techniques),
        Text(_circumstances(estimate), style="dim"),
        Text(),
        _figures(estimate),
        Text(),
        _units(estimate),
        Text(),
        *_operators(estimate),
    ]
    notes = estimate.provenance.get("notes", [])
    foot = remarks(("Warning", "bold yellow", estimate.warnings), ("Note", "dim", notes))
    if foot.row_count:
        parts += [Text(), foot]
    return Group(*parts)


def _circumstances(estimate: Estimate) -> str:
    machine = estimate.provenance.get("soc_title", estimate.soc)
    how = conditions(estimate.hint, estimate.requests, estimate.tiles, estimate.contexts)
    wider = estimate.source_precision not in (None, *re.split(r"\W+", estimate.precision))
    precision = estimate.precision + (f" (the file: {estimate.source_precision})" if wider else "")
    return f"{machine}; {precision}; {how}; {estimate.engine} engine"


def _figures(estimate: Estimate) -> Table:
    names = [name for name in METRICS if name in Estimate.model_fields]
    if not estimate.tiles:  # without an NPU there is no SRAM of one either
        names = [name for name in names if name not in _OF_NPU]
    cells = {name: engineering(getattr(estimate, name), unit_of(name)) for name in names}
    if estimate.latency_interval_s is not None:
        low, high = (engineering(bound, "s") for bound in estimate.latency_interval_s)
        cells["latency_s"] += f" [{low} to {high}]"
    figures = [(METRICS[name].title, cell) for name, cell in cells.items()]
    figures.insert(5, ("DRAM peak", engineering(estimate.memory.dram_peak_bytes, "B")))
    figures.insert(6, ("work", engineering(estimate.macs, "MAC")))
    table = grid()
    for _ in range(2):
        table.add_column(style="dim")
        table.add_column(style="bold", justify="left", min_width=18)
    for left, right in zip_longest(figures[::2], figures[1::2], fillvalue=("", "")):
        table.add_row(*left, *right)
    return table


def _units(estimate: Estimate) -> Table:
    table = headed("unit", "busy", "of the time", style="cyan", min_width=8)
    table.add_column(min_width=24)
    used = {name: use for name, use in estimate.units.items() if use.busy_s > 0}
    for name, use in sorted(used.items(), key=lambda item: -item[1].utilisation):
        cell = bar(use.utilisation, 1.0, width=24)
        table.add_row(name, engineering(use.busy_s, "s"), percent(use.utilisation), cell)
    return table


def _operators(estimate: Estimate) -> Sequence[RenderableType]:
    """Return the table of the costliest operators and a line on the others."""
    working = sorted((op for op in estimate.operators if op.latency_s > 0), key=lambda op: -op.latency_s)
    if not working:
        return [Text("No operator takes time: all are views of their inputs.")]
    table = headed("operator", overflow="fold", ratio=1)
    table.add_column("unit", style="cyan", no_wrap=True)
    table.add_column("latency", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column(width=8)
    table.add_column("DRAM", justify="right", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    for op in working[:_MOST_OPERATORS]:
        part = op.latency_s / estimate.latency_s
        table.add_row(
            _named(op),
            op.unit,
            engineering(op.latency_s, "s"),
            percent(part),
            bar(op.latency_s, working[0].latency_s, width=8),
            engineering(op.dram_bytes, "B"),
            Text(op.bound, style=_BOUND_STYLES.get(op.bound, "")),
        )
    outside = estimate.latency_s - sum(op.latency_s for op in working)
    if estimate.requests == 1 and outside > _WORTH_A_LINE * estimate.latency_s:
        table.add_row(
            Text("launch of the inference", style="dim"),
            "",
            engineering(outside, "s"),
            percent(outside / estimate.latency_s),
            bar(outside, working[0].latency_s, width=8),
            "",
            Text("launch", style=_BOUND_STYLES["launch"]),
        )
    return [table, Text(_rest(working[_MOST_OPERATORS:], estimate.latency_s), style="dim")]


def _named(op: OperatorCost) -> RenderableType:
    """Return the operator's name and, below it, what rides along."""
    fused = (LongName(f"+ {name}", _JOINTS, "dim") for name in op.fused)
    return Group(LongName(op.name, _JOINTS), *fused)


def _rest(others: Sequence[OperatorCost], latency_s: float) -> str:
    overlap = "Operators overlap: shares of the latency need not add up to 100 %."
    if not others:
        return overlap
    longest = others[0].latency_s
    count = counted(len(others), "more operator")
    return f"{count} of at most {engineering(longest, 's')} each ({percent(longest / latency_s)}). {overlap}"
