"""The page of an estimate: headline figures, where time and energy go, operators, roofline, memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from rich.text import Text

from npusim.engines import Estimate, LanguageFigures
from npusim.graph import Phase
from npusim.metrics import METRICS, unit_of
from npusim.reporting.charts import amount_bars, bar_figure
from npusim.reporting.engineering import engineering, last_digit, last_digit_of_rate, percent
from npusim.reporting.html import COLOURS, GREY, UNIT_COLOURS, seconds_axis
from npusim.reporting.machine import block_diagram, forms_section, roofline_figure, sram_section
from npusim.reporting.page import (
    Amount,
    Cell,
    Column,
    Figures,
    Later,
    Page,
    Plot,
    Remark,
    Section,
    Table,
    part,
    sections_of,
)
from npusim.reporting.terminal import LongName, conditions, counted, share_bar

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from npusim.engines import OperatorCost
    from npusim.engines.estimate import Mapping as OperatorMapping
    from npusim.mapping import Mapped
    from npusim.studies.elasticity import Elasticity

_MOST_OPERATORS = 15
"""Operators that get a line; the JSON document and HTML hold all."""
_MOST_DETAILED = 40
"""Operators that get a line in tables of detail."""
_MOST_BARS = 20
_MOST_BLOCKS = 16
"""Blocks that get a line; the others share one."""
_WORTH_A_LINE = 0.005
"""Part of the latency from which time outside of the operators is shown."""
_JOINTS = "/:"
"""Where an operator's name may be broken."""
LAUNCH = "launch of the inference"
_FIRST = ("latency_s", "throughput_per_s", "energy_j", "power_w", "dram_bytes", "ops_per_j")
_OF_NPU = ("sram_peak_bytes", "sram_traffic_bytes", "area_mm2")
_BOUND_STYLES = {"compute": "green", "dma": "yellow", "dsp": "magenta", "launch": "red"}
_PHASE_COLOURS = dict(zip((phase.value for phase in Phase), COLOURS, strict=False)) | {
    Phase.OTHER.value: GREY
}
_ENERGIES = {
    "mac_j": "MACs",
    "sram_j": "SRAM",
    "dram_j": "DRAM",
    "dsp_j": "DSPs",
    "cpu_j": "CPU",
    "gpu_j": "GPU",
    "static_j": "NPU, static",
    "idle_j": "idle devices",
}
_HELD = {"weights_held": "weights", "activations_held": "activ.", "outputs_held": "outputs"}


def estimate_page(
    estimate: Estimate,
    details: bool = False,
    mapped: Callable[[], Mapped] | None = None,
    helpful: Sequence[Elasticity] = (),
) -> Page:
    """Return the page of an estimate.

    Parameters
    ----------
    details : bool
        Whether the terminal shows regions, energy by part, tilings, traffic and roofline too.
    mapped : callable, optional
        Returns the mapped graph behind it, for pictures of SRAM, of the machine and of the graph's storage.
    helpful : sequence of Elasticity
        What more of each resource would save.
    """
    from npusim.reporting.timeline import timeline_sections

    utilisation = estimate.units[estimate.bound].utilisation
    latency = engineering(estimate.latency_s, "s", last_digit(estimate.latency_interval_s))
    return Page(
        "Estimate",
        (estimate.workload, estimate.soc, estimate.techniques),
        circumstances(estimate),
        [
            _figures(estimate),
            *_regions(time_by_region(estimate), estimate.requests == 1),
            _units(estimate),
            *_operators(estimate),
            *(timeline_sections(estimate.timeline, helpful) if "timeline" in vars(estimate) else ()),
            _energy(estimate),
            *_tilings_and_traffic(estimate),
            _roofline(estimate),
            None if mapped is None else Later(lambda: _of_machine(estimate, mapped())),
            Later(lambda: _memory_and_provenance(estimate)),
        ],
        [
            Remark("Warning", estimate.warnings, "bold yellow"),
            Remark("Note", estimate.provenance.get("notes", [])),
        ],
        lead=f"{latency} an inference; {estimate.bound} is busiest, {percent(utilisation)} of the time.",
        details=details,
    )


def circumstances(estimate: Estimate) -> str:
    """Return the line below the title: machine, formats, how the network runs, engine."""
    machine = estimate.provenance.get("soc_title", estimate.soc)
    on_npu = any("." in op.unit for op in estimate.operators)
    tiles = estimate.tiles if on_npu else 0
    how = conditions(estimate.hint, estimate.requests, tiles, estimate.contexts, estimate.npu_tiles)
    wider = estimate.source_precision not in (None, *re.split(r"\W+", estimate.precision))
    precision = estimate.precision + (f" (the file: {estimate.source_precision})" if wider else "")
    form = estimate.provenance.get("form", "")
    stored = f"form {form}; " if form else ""
    return f"{machine}; {precision}; {stored}{how}; {estimate.engine} engine"


def _figures(estimate: Estimate) -> Figures:
    def figure(name: str) -> tuple[str, str]:
        return METRICS[name].title, engineering(getattr(estimate, name), unit_of(name))

    pairs = dict(map(figure, _FIRST))
    interval = estimate.latency_interval_s
    if interval is not None:
        last = last_digit(interval)
        value, low, high = (engineering(s, "s", last) for s in (estimate.latency_s, *interval))
        pairs[METRICS["latency_s"].title] = f"{value} [{low} to {high}]"
        if estimate.requests == 1:
            rate = engineering(estimate.throughput_per_s, "/s", last_digit_of_rate(interval))
            pairs[METRICS["throughput_per_s"].title] = rate
    pairs[METRICS["power_w"].title] += f", peak {engineering(estimate.peak_power_w, 'W')}"
    pairs["DRAM peak"] = engineering(estimate.memory.dram_peak_bytes, "B")
    pairs["work"] = engineering(estimate.macs, "MAC")
    if estimate.tiles:  # without work for the NPU its own figures say nothing
        pairs |= dict(map(figure, _OF_NPU))
    if estimate.language is not None:
        pairs |= _by_token(estimate.language)
    known = [name for name in METRICS if getattr(estimate, name, None) is not None]
    more = [figure(name) for name in known if name not in (*_FIRST, *_OF_NPU)]
    return Figures(list(pairs.items()), more)


def _by_token(language: LanguageFigures) -> dict[str, str]:
    """Return what a user of a language model sees."""
    return {
        "time of a token": engineering(language.token_s, "s"),
        "tokens": engineering(language.tokens_per_s, "/s"),
        "time to first token": engineering(language.time_to_first_token_s, "s"),
        "energy of a token": engineering(language.energy_per_token_j, "J"),
    }


def part_s(op: OperatorCost) -> float:
    """Return what an operator adds to the latency; with several requests in flight how long it works (s)."""
    return op.busy_s if op.critical_s is None else op.critical_s


@dataclass(frozen=True, slots=True)
class TimeByRegion:
    """Sums of `part_s` over the operators of an estimate, in s."""

    whole_s: float
    """What shares are of: the latency, or the time between two inferences of a context."""
    launch_s: float
    """Calls of runtimes, outside of the operators; 0 with several requests in flight."""
    units: Sequence[str]
    """Units that work, the busiest first."""
    by_phase: dict[Phase, dict[str, float]]
    """Phase, then unit; phases in the order of the enumeration."""
    by_block: dict[str, dict[Phase, float]]
    """Block, in order of execution, then phase."""
    control: dict[str, tuple[int, float]]
    """Types of control-flow operators: how many, and their time; the longest first."""

    @property
    def control_s(self) -> float:
        """Time of all control-flow operators (s)."""
        return sum(seconds for _, seconds in self.control.values())


def time_by_region(estimate: Estimate) -> TimeByRegion:
    """Return where the time of an estimate goes."""
    single = estimate.requests == 1
    units: dict[str, float] = {}
    phases: dict[Phase, dict[str, float]] = {phase: {} for phase in Phase}
    blocks: dict[str, dict[Phase, float]] = {}
    control: dict[str, tuple[int, float]] = {}
    for op in estimate.operators:
        seconds = part_s(op)
        if seconds <= 0.0:
            continue
        units[op.unit] = units.get(op.unit, 0.0) + seconds
        in_phase, in_block = phases[op.phase], blocks.setdefault(op.block, {})
        in_phase[op.unit] = in_phase.get(op.unit, 0.0) + seconds
        in_block[op.phase] = in_block.get(op.phase, 0.0) + seconds
        if op.control_flow:
            count, before = control.get(op.type, (0, 0.0))
            control[op.type] = count + 1, before + seconds
    return TimeByRegion(
        whole_s=estimate.latency_s if single else estimate.contexts / estimate.throughput_per_s,
        launch_s=estimate.launch_s if single else 0.0,
        units=sorted(units, key=lambda unit: -units[unit]),
        by_phase={phase: sums for phase, sums in phases.items() if sums},
        by_block=blocks,
        control=dict(sorted(control.items(), key=lambda item: -item[1][1])),
    )


def _regions(times: TimeByRegion, single: bool) -> list[Section]:
    """Return phases by unit, blocks by phase, and control flow; nothing where nothing works."""
    if not times.by_phase:
        return []

    def row(name: str, seconds: Mapping[Any, float], **more: Any) -> dict[str, Any]:
        total_s = sum(seconds.values())
        parts = {f"{part}_s": s for part, s in seconds.items()}
        return {"name": name, **parts, "total_s": total_s, "share": total_s / times.whole_s, **more}

    phases = [row(phase.value, sums) for phase, sums in times.by_phase.items()]
    launch = [row(LAUNCH, {"": times.launch_s})] if times.launch_s > 0.0 else []
    units = (Column(f"{unit}_s", unit) for unit in times.units)
    blocks = [
        row(name, {phase.value: s for phase, s in sums.items()}, mostly=max(sums, key=sums.__getitem__).value)
        for name, sums in times.by_block.items()
    ]
    ranked = sorted(blocks, key=lambda block: -block["total_s"])
    longest = [block["name"] for block in ranked]
    shown = [block for block in blocks if block["name"] in longest[:_MOST_BLOCKS]]
    others = ranked[_MOST_BLOCKS:]
    rest = row(f"{len(others)} more blocks", {"": sum(block["total_s"] for block in others)})
    left = f", the {len(shown)} longest of {len(longest)}" if others else ""
    of_phases = (Column(f"{phase.value}_s", phase.value, only="html") for phase in times.by_phase)
    control = [row(name, {"": s}, count=count) for name, (count, s) in times.control.items()]
    count = sum(each["count"] for each in control)
    whole = [row("all of them", {"": times.control_s}, count=count)] if len(control) > 1 else []
    what = "the latency" if single else "the time between two inferences of a context"
    return [
        Plot(
            f"Where {what} goes: phases by unit",
            lambda: _stacked(phases, times.units, UNIT_COLOURS),
            _shares("time by phase", "phases", units, phases + launch),
        ),
        Plot(
            f"Blocks of the network by phase{left}",
            lambda: _stacked(shown, [phase.value for phase in times.by_phase], _PHASE_COLOURS),
            _shares("time by block", "blocks", of_phases, blocks, shown + [rest] * bool(others)),
        ),
        _shares(
            "control flow",
            "control",
            [Column("count", "operators")],
            control + whole,
            title=f"Control flow: {percent(times.control_s / times.whole_s)} of the time",
        ),
    ]


def _shares(
    heading: str,
    name: str,
    between: Iterable[Column],
    rows: Sequence[Any],
    terminal: Sequence[Any] | None = None,
    title: str = "",
) -> Table:
    """Return a table of times with their shares, as numbers and as bars."""
    columns = (
        Column("name", heading, layout={"min_width": 14}),
        *between,
        Column("total_s", "in all"),
        Column("share"),
        Column("", "", lambda row: share_bar(row["share"]), "terminal"),
        Column("mostly", "mostly", only="terminal"),
    )
    return Table(columns, rows, title, name, terminal=terminal, detail=True)


def _stacked(rows: Sequence[Any], parts: Sequence[str], colours: Mapping[str, str]) -> go.Figure:
    """Return a bar for each row, stacked of its parts."""
    series = {name: {row["name"]: row.get(f"{name}_s", 0.0) for row in rows} for name in parts}
    return bar_figure(series, seconds_axis("", log=False), "s", mode="stack", colours=colours)


def _units(estimate: Estimate) -> Plot:
    units = [{"name": name, **use.model_dump()} for name, use in estimate.units.items()]
    used = {unit["name"]: unit["busy_s"] for unit in units if unit["busy_s"] > 0}
    busy = sorted((unit for unit in units if unit["busy_s"] > 0), key=lambda unit: -unit["utilisation"])
    if estimate.dispatch_s > 0.0:
        share = estimate.dispatch_s * estimate.throughput_per_s / estimate.contexts
        busy.append({"name": "calls of the NPU", "busy_s": estimate.dispatch_s, "utilisation": share})
    columns = (
        Column("name", "unit", layout={"style": "cyan", "min_width": 8}),
        Column("busy_s", "busy"),
        Column("utilisation", "of the time"),
        Column("", "", lambda unit: share_bar(unit["utilisation"]), "terminal"),
    )
    return Plot(
        "Busy time of the units",
        lambda: amount_bars("busy", "s", used, UNIT_COLOURS),
        Table(columns, units, name="units", terminal=busy),
    )


_OPERATOR_DETAILS = {
    "macs": "MAC",
    "grid_utilisation": "grid used",
    "sram_read_bytes": "SRAM read",
    "sram_written_bytes": "SRAM written",
    "energy_j": "energy",
    "power_w": "power",
    "mapping.split": "split",
    "mapping.tiles": "tiles",
    "mapping.mpe_mode": "MPE mode",
    "mapping.order": "loop order",
    "mapping.row_blocks": "row blocks",
    "mapping.column_blocks": "column blocks",
    "mapping.depth_blocks": "depth blocks",
}


def _operators(estimate: Estimate) -> list[Section]:
    """Return the costliest operators as bars, and a table: of the costliest on the terminal, else of all."""
    single = estimate.requests == 1
    working = sorted((op for op in estimate.operators if op.busy_s > 0), key=lambda op: -part_s(op))
    if not working:
        return [Text("No operator takes time: all are views of their inputs.")]
    whole_s = estimate.latency_s if single else estimate.contexts / estimate.throughput_per_s
    launch: dict[str, Any] = dict.fromkeys(("busy_s", "span_s", "dram_bytes"), "")
    launch["critical_s"] = estimate.launch_s
    has_launch = single and estimate.launch_s > _WORTH_A_LINE * whole_s
    shown = [*working[:_MOST_OPERATORS], *([launch] if has_launch else [])]

    def share(row: Any) -> Cell:
        return part((row["critical_s"] if row is launch else part_s(row)) / whole_s)

    def name(row: Any) -> Cell:
        return Text(LAUNCH, style="dim") if row is launch else LongName(row.name, _JOINTS, below=row.fused)

    def bound(row: Any) -> Cell:
        return "" if row is launch else Text(row.bound, style=_BOUND_STYLES.get(row.bound, ""))

    columns = (
        Column("name", "operator", name),
        Column("block", only="html"),
        Column("phase", only="html"),
        Column("unit", layout={"style": "cyan"}),
        Column("precision", "format", only="html"),
        Column("latency_s", "latency", only="html"),
        *([Column("critical_s", "critical")] if single else []),
        *([] if single else [Column("busy_s", "busy")]),
        Column("", "share", share, "terminal"),
        *([Column("busy_s", "busy")] if single else []),
        Column("span_s", "span", only="terminal"),
        Column("dram_bytes", "DRAM"),
        *(Column(key, heading, only="html") for key, heading in _OPERATOR_DETAILS.items()),
        Column("bound", "bound", bound),
    )
    others = [part_s(op) for op in working[_MOST_OPERATORS:]]
    return [
        _operator_bars(estimate, working[:_MOST_BARS], len(working) - _MOST_BARS),
        Table(
            columns,
            estimate.operators,
            "All operators",
            "operators",
            _other_operators(others, whole_s, single),
            terminal=shown,
            gap=1,
        ),
    ]


def _other_operators(others_s: Sequence[float], whole_s: float, single: bool) -> str:
    meaning = (
        "critical: its part of the latency; busy: its busiest unit's work; span: first transfer to last."
        if single
        else "busy: its busiest unit's work, as a share of the time between two inferences of a context."
    )
    if not others_s:
        return meaning
    longest, count = others_s[0], counted(len(others_s), "more operator")
    return f"{count} of at most {engineering(longest, 's')} each ({percent(longest / whole_s)}). {meaning}"


def _operator_bars(estimate: Estimate, ops: Sequence[OperatorCost], left: int) -> Plot:
    by_name = {op.name: op for op in ops}

    def draw() -> go.Figure:
        series = {
            unit: {op.name: part_s(op) if op.unit == unit else None for op in ops}
            for unit in dict.fromkeys(op.unit for op in ops)
        }
        figure = bar_figure(
            series,
            seconds_axis("", log=False),
            "s",
            mode="overlay",
            colours=UNIT_COLOURS,
            hover=lambda unit, name: _story(by_name[name]),
        )
        figure.update_traces(text=[f"{engineering(part_s(op), 's')}, {op.bound}" for op in ops])
        return figure

    title = "Operators: part of the latency, and what bounds each" if estimate.requests == 1 else "Operators"
    more = f"; {left} more take at most {engineering(part_s(ops[-1]), 's')} each" if left > 0 else ""
    return Plot(title + more, draw)


def _story(op: OperatorCost) -> str:
    fused = f"<br>with {', '.join(map(escape, op.fused))}" if op.fused else ""
    amounts = ((op.macs, "MAC"), (op.dram_bytes, "B of DRAM"), (op.energy_j, "J"))
    return (
        f"<b>{escape(op.name)}</b> ({escape(op.type)}) on {op.unit}, {op.precision}{fused}<br>"
        f"alone {engineering(op.latency_s, 's')}, busy {engineering(op.busy_s, 's')}; {op.bound}<br>"
        f"{', '.join(engineering(value, unit) for value, unit in amounts)}"
    )


def _energy(estimate: Estimate) -> Plot:
    energies = estimate.energy.model_dump().items()
    parts = {_ENERGIES.get(name, name): energy_j for name, energy_j in energies if energy_j > 0.0}
    columns = (
        Column("", "energy by part", lambda row: row[0], layout={"min_width": 14}),
        Column("", "", lambda row: Amount(row[1], "J")),
        Column("", "share", lambda row: part(row[1] / estimate.energy_j)),
        Column("", "", lambda row: share_bar(row[1] / estimate.energy_j), "terminal"),
    )
    return Plot(
        f"Energy by part: {engineering(estimate.energy_j, 'J')} an inference",
        lambda: amount_bars("energy", "J", parts, linear=True),
        Table(columns, list(parts.items()), name="energy", detail=True),
    )


def _tilings_and_traffic(estimate: Estimate) -> list[Section]:
    """Return the tilings and the traffic of operators for the terminal; HTML has them by operator."""
    ops = _slowest(estimate)
    on_npu = [op for op in ops if op.mapping is not None]
    name = Column("", "traffic", lambda op: LongName(op.name, _JOINTS))
    tilings = (
        Column("", "mapping", name.show),
        *(
            Column("", heading, lambda op, i=i: _tiling(op.mapping)[i], words=i < 3)
            for i, heading in enumerate(("split", "mode", "stays", "a tile", "in blocks"))
        ),
        Column("grid_utilisation", "grid"),
    )
    traffic = (
        name,
        Column("dram_read_bytes", "DRAM read"),
        Column("", "written", lambda op: Amount(op.dram_bytes - op.dram_read_bytes, "B")),
        Column("sram_read_bytes", "SRAM read"),
        Column("sram_written_bytes", "written"),
        Column("energy_j", "energy"),
        Column("power_w", "power"),
    )
    return [
        Table(tilings, on_npu, most=_MOST_DETAILED, only="terminal", detail=True),
        Table(traffic, ops, most=_MOST_DETAILED, only="terminal", detail=True),
    ]


def _slowest(estimate: Estimate) -> list[OperatorCost]:
    return sorted((op for op in estimate.operators if op.latency_s > 0), key=lambda op: -op.latency_s)


def _tiling(m: OperatorMapping) -> tuple[str, ...]:
    """Return split, MPE mode, stationary operand, size of a tile and number of blocks."""
    size = f"{m.rows}x{m.columns}" + (f"x{m.depth}" if m.order else "")
    blocks = f"{m.row_blocks}x{m.column_blocks}" + (f"x{m.depth_blocks}" if m.order else "")
    if m.strips > 1:
        blocks = f"{m.strips}x {blocks}"
    split = "1 tile" if m.split == "single" else f"{m.split} / {m.tiles}"
    return split, m.mpe_mode or "", _HELD.get(m.order or "", ""), size, blocks


def _roofline(estimate: Estimate) -> Section:
    """Return each operator's rate, its operations for a byte of DRAM, and its lowest ceiling."""
    points = estimate.roofline.points
    by_name = {point.operator: point for point in points}
    shown = [by_name[op.name] for op in _slowest(estimate) if op.name in by_name]
    levels = dict.fromkeys(level for point in points for level in point.intensity)

    columns = (
        Column("operator", "roofline", lambda point: LongName(point.operator, _JOINTS)),
        Column("ops_per_s", "rate", lambda point: Amount(point.ops_per_s, "OP/s")),
        Column("intensity.dram", "OP/B DRAM", text="{:,.3g}"),
        Column("ceiling_ops_per_s", "ceiling", lambda point: Amount(point.ceiling_ops_per_s, "OP/s")),
        Column("", "reached", lambda point: part(point.ops_per_s / point.ceiling_ops_per_s)),
        Column("limit", "lowest ceiling"),
        Column("unit", only="html"),
        Column("precision", only="html"),
        Column("ops", "operations", only="html"),
        *(Column(f"intensity.{level}", only="html") for level in levels if level != "dram"),
    )
    table = Table(columns, points, name="roofline.points", terminal=shown, most=_MOST_DETAILED, detail=True)
    title = "Roofline: each operator below the ceilings of its unit"
    return Plot(title, lambda: roofline_figure(estimate), table)


def _of_machine(estimate: Estimate, mapped: Mapped) -> list[Plot]:
    title = "What flows through the machine in an inference"
    blocks = Plot(title, lambda: block_diagram(estimate, mapped))
    return [blocks, sram_section(mapped), *forms_section(mapped)]


def _memory_and_provenance(estimate: Estimate) -> list[Section]:
    fields = estimate.model_dump(mode="json", include={"memory", "provenance"})
    fields["provenance"].pop("notes", None)
    return sections_of(fields)
