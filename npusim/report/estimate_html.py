"""An estimate as one HTML file: where time and energy go, roofline, SRAM, flow between the blocks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from npusim.graph import Phase
from npusim.metrics import METRICS, unit_of
from npusim.report.document_html import bars, records_table, tables, titled
from npusim.report.drawings import block_diagram
from npusim.report.engineering import engineering, last_digit, percent
from npusim.report.estimate import circumstances
from npusim.report.html import (
    COLOURS,
    GREY,
    UNIT_COLOURS,
    Amount,
    bullets,
    figures,
    names_axis,
    page,
    plot,
    seconds_axis,
    table,
    text,
)
from npusim.report.memory_html import graph_forms, sram_plot
from npusim.report.regions import LAUNCH, TimeByRegion, part_s, time_by_region
from npusim.report.roofline_html import roofline_plot

if TYPE_CHECKING:
    from npusim.engines import Estimate, OperatorCost
    from npusim.mapping import Mapped

_MOST_BARS = 20
_MOST_BLOCKS = 24
_PHASE_COLOURS = dict(zip((phase.value for phase in Phase), COLOURS, strict=False)) | {
    Phase.OTHER.value: GREY
}


def estimate_html(estimate: Estimate, command: str = "", mapped: Mapped | None = None, *further: str) -> str:
    """Return an estimate as HTML that needs no other file.

    Parameters
    ----------
    estimate : Estimate
    command : str
        The command line that asked for it.
    mapped : Mapped, optional
        The mapped graph behind it, which tells what lies in SRAM, in which form the graph is stored, and how
        the machine is built; None leaves these pictures out.
    *further : str
        HTML to stand below the operators, such as that of a time line.
    """
    data = estimate.model_dump(mode="json", by_alias=True)
    of_machine = (
        [_blocks(estimate, mapped), sram_plot(mapped), graph_forms(mapped)] if mapped is not None else []
    )
    latency = engineering(estimate.latency_s, "s", last_digit(estimate.latency_interval_s))
    return page(
        titled("Estimate", data),
        text(circumstances(estimate)),
        bullets(estimate.warnings, "warning"),
        figures(_headline(estimate)),
        _where(estimate),
        _units(estimate),
        _operators(estimate),
        *further,
        roofline_plot(estimate),
        _energy(estimate),
        *of_machine,
        *tables({"memory": data["memory"], "provenance": _plain(data["provenance"])}),
        lead=f"{latency} an inference; {estimate.bound} is busiest, "
        f"{percent(estimate.units[estimate.bound].utilisation)} of the time.",
        notes=estimate.provenance.get("notes", []),
        command=command,
    )


def _plain(provenance: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in provenance.items() if key != "notes"}


def _headline(estimate: Estimate) -> list[tuple[str, str]]:
    shown = [
        (METRICS[name].title, engineering(getattr(estimate, name), unit_of(name)))
        for name in METRICS
        if name in type(estimate).model_fields and getattr(estimate, name) is not None
    ]
    if estimate.latency_interval_s is not None:
        last = last_digit(estimate.latency_interval_s)
        low, high = (engineering(bound, "s", last) for bound in estimate.latency_interval_s)
        shown[0] = (shown[0][0], engineering(estimate.latency_s, "s", last))
        shown.insert(1, ("90 % of the latency", f"{low} to {high}"))
    return [*shown, ("work", engineering(estimate.macs, "MAC"))]


def _where(estimate: Estimate) -> str:
    """Return the latency by block and by phase as bars coloured by phase and by unit, and control flow."""
    found, single = time_by_region(estimate), estimate.requests == 1
    if not found.by_phase:
        return ""
    what = "the latency" if single else "the time between two inferences of a context"
    longest = sorted(found.by_block, key=lambda name: -sum(found.by_block[name].values()))
    shown = [name for name in found.by_block if name in longest[:_MOST_BLOCKS]]
    left = f", the {_MOST_BLOCKS} longest of {len(longest)}" if len(longest) > len(shown) else ""
    blocks = _stacked(
        [
            (phase.value, {name: found.by_block[name].get(phase, 0.0) for name in shown})
            for phase in found.by_phase
        ],
        _PHASE_COLOURS,
    )
    phases = _stacked(
        [
            (unit, {p.value: sums.get(unit, 0.0) for p, sums in found.by_phase.items()})
            for unit in found.units
        ],
        UNIT_COLOURS,
    )
    rows = [
        (phase.value, unit, Amount(s, "s"), percent(s / found.whole_s))
        for phase, sums in found.by_phase.items()
        for unit, s in sums.items()
    ]
    if found.launch_s > 0.0:
        rows.append((LAUNCH, "", Amount(found.launch_s, "s"), percent(found.launch_s / found.whole_s)))
    of_blocks = [
        (name, phase.value, Amount(s, "s"), percent(s / found.whole_s))
        for name, sums in found.by_block.items()
        for phase, s in sums.items()
    ]
    return (
        plot(phases, 90 + 34 * len(found.by_phase), f"Where {what} goes: phases by unit",
             data=table(("phase", "unit", "time", "share"), rows, words=(0, 1), name="phases"))
        + plot(blocks, 90 + 30 * len(shown), f"Blocks of the network by phase{left}",
               data=table(("block", "phase", "time", "share"), of_blocks, words=(0, 1), name="blocks"))
        + _control(found)
    )  # fmt: skip


def _stacked(traces: list[tuple[str, dict[str, float]]], colours: Mapping[str, str]) -> go.Figure:
    """Return horizontal bars, each stacked of what the traces have of it (s)."""
    figure = go.Figure()
    for name, seconds in traces:
        figure.add_bar(
            x=list(seconds.values()), y=list(seconds), orientation="h", name=name,
            marker={"color": colours.get(name, GREY)},
            hovertext=[f"{escape(name)}: {engineering(s, 's')}" for s in seconds.values()], hoverinfo="text",
        )  # fmt: skip
    names = list(traces[0][1])
    figure.update_layout(barmode="stack", xaxis=seconds_axis("", log=False), yaxis=names_axis(names))
    return figure


def _control(found: TimeByRegion) -> str:
    """Return the table of operators by which values decide what is picked, and where."""
    if not found.control:
        return ""
    rows = [
        (name, str(count), Amount(seconds, "s"), percent(seconds / found.whole_s))
        for name, (count, seconds) in found.control.items()
    ]
    title = f"Control flow: {percent(found.control_s / found.whole_s)} of the time"
    return f"<h3>{title}</h3>" + table(("operator type", "operators", "time", "share"), rows, name="control")


def _units(estimate: Estimate) -> str:
    used = {name: use.busy_s for name, use in estimate.units.items() if use.busy_s > 0}
    listed = records_table("units", [{"name": n, **u.model_dump()} for n, u in estimate.units.items()])
    return bars("Busy time of the units", "busy", "s", used, data=listed, colours=UNIT_COLOURS)


def _operators(estimate: Estimate) -> str:
    """Return the costliest operators as bars coloured by their unit, and the table of all."""
    working = sorted((op for op in estimate.operators if part_s(op) > 0), key=part_s, reverse=True)
    shown = working[:_MOST_BARS]
    figure = go.Figure()
    for unit in dict.fromkeys(op.unit for op in shown):
        ops = [op for op in shown if op.unit == unit]
        figure.add_bar(
            x=[part_s(op) for op in ops],
            y=[op.name for op in ops],
            orientation="h",
            name=unit,
            marker={"color": UNIT_COLOURS.get(unit, GREY)},
            text=[f"{engineering(part_s(op), 's')}, {op.bound}" for op in ops],
            hovertext=[_story(op) for op in ops],
            hoverinfo="text",
        )
    figure.update_layout(
        xaxis=seconds_axis("", log=False), yaxis=names_axis([op.name for op in shown]), barmode="overlay"
    )
    left = len(working) - len(shown)
    title = "Operators: part of the latency, and what bounds each" if estimate.requests == 1 else "Operators"
    more = f"; {left} more take at most {engineering(part_s(shown[-1]), 's')} each" if left > 0 else ""
    listed = records_table(
        "operators", [op.model_dump(mode="json") for op in estimate.operators], _columns(estimate)
    )
    return (
        plot(figure, 110 + 36 * len(shown), title + more) + "<h3>All operators</h3>" + listed
        if shown
        else listed
    )


_COLUMNS = {
    "name": "operator", "block": "block", "phase": "phase", "unit": "unit", "precision": "format",
    "latency_s": "latency", "busy_s": "busy",
    "critical_s": "critical", "macs": "MAC", "grid_utilisation": "grid used", "dram_bytes": "DRAM",
    "sram_read_bytes": "SRAM read", "sram_written_bytes": "SRAM written", "energy_j": "energy",
    "power_w": "power", "mapping.split": "split", "mapping.tiles": "tiles", "mapping.mpe_mode": "MPE mode",
    "mapping.order": "loop order", "mapping.row_blocks": "row blocks",
    "mapping.column_blocks": "column blocks", "mapping.depth_blocks": "depth blocks", "bound": "bound",
}  # fmt: skip


def _columns(estimate: Estimate) -> dict[str, str]:
    """Return the columns that any operator fills."""
    ops = [op.model_dump(mode="json") for op in estimate.operators]

    def filled(key: str) -> bool:
        first, _, second = key.partition(".")
        values = [op.get(first) for op in ops]
        return any((v or {}).get(second) if second else v for v in values)

    return {key: head for key, head in _COLUMNS.items() if filled(key)}


def _story(op: OperatorCost) -> str:
    rides = f"<br>with {', '.join(map(escape, op.fused))}" if op.fused else ""
    amounts = ((op.macs, "MAC"), (op.dram_bytes, "B of DRAM"), (op.energy_j, "J"))
    return (
        f"<b>{escape(op.name)}</b> ({escape(op.type)}) on {op.unit}, {op.precision}{rides}<br>"
        f"alone {engineering(op.latency_s, 's')}, busy {engineering(op.busy_s, 's')}; {op.bound}<br>"
        f"{', '.join(engineering(value, unit) for value, unit in amounts)}"
    )


_PARTS = {
    "mac_j": "MAC grid", "sram_j": "SRAM", "dram_j": "DRAM", "dsp_j": "DSP", "cpu_j": "CPU", "gpu_j": "GPU",
    "static_j": "NPU, static", "idle_j": "idle devices",
}  # fmt: skip


def _energy(estimate: Estimate) -> str:
    parts = {
        _PARTS.get(name, name): value for name, value in estimate.energy.model_dump().items() if value > 0.0
    }
    total = sum(parts.values())
    rows = [(name, engineering(value, "J"), percent(value / total)) for name, value in parts.items()]
    title = f"Energy by part: {engineering(estimate.energy_j, 'J')} an inference"
    return bars(
        title, "energy", "J", parts, data=table(("part", "energy", "share"), rows, name="energy"), linear=True
    )


def _blocks(estimate: Estimate, mapped: Mapped) -> str:
    title = "What flows through the machine in an inference"
    return f"<h2>{title}</h2>{block_diagram(estimate, mapped)}"
