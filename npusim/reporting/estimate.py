"""The page of an estimate: headline figures, where time and energy go, operators, roofline, memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from npusim.engines import Estimate, OperatorCost
from npusim.engines.estimate import RUNNING_MEAN
from npusim.engines.estimate import Mapping as OperatorMapping
from npusim.graph import Phase
from npusim.mapping import Mapped
from npusim.metrics import METRICS, unit_of
from npusim.reporting import machine
from npusim.reporting.charts import amount_bars, line_figure, parts_plot, stacked_bars
from npusim.reporting.engineering import Amount, engineering, last_digit, part, percent, quantity, with_bounds
from npusim.reporting.html import COLOURS, GREY, UNIT_COLOURS, log_axis
from npusim.reporting.page import Figures, Later, Page, Plot, Section, document_page
from npusim.reporting.placement import divided_sections
from npusim.reporting.tables import CYAN, Column, Table, cells_table, fields, grouped, summed
from npusim.reporting.terminal import LongName, conditions, counted, share_bar

if TYPE_CHECKING:
    from npusim.studies.elasticity import Elasticity

_MOST_OPERATORS = 15
"""Operators that get a line; the JSON document and HTML hold all."""
_MOST_DETAILED = 40
"""Operators that get a line in tables of detail."""
_MOST_BARS = 20
_MOST_BLOCKS = 16
"""Blocks that get a bar, and a line on the terminal."""
LAUNCH = "launch of the inference"
WAITS, CALLS, PAUSES = "waits for DMA", "calls of the NPU", "pauses for the power limit"
CAUSE_COLOURS = UNIT_COLOURS | {
    WAITS: UNIT_COLOURS["npu.dma"],
    CALLS: COLOURS[6],
    LAUNCH: GREY,
    PAUSES: COLOURS[9],
}
"""Colour of what the latency goes to: work of a unit, and what work waits for."""
_ROUNDING = 1e-6
_FIRST = ("latency_s", "throughput_per_s", "energy_j", "power_w", "dram_bytes", "ops_per_j")
_WITH_BOUNDS = ("latency_s", "energy_j", "power_w", "area_mm2")
_OF_NPU = ("sram_peak_bytes", "sram_traffic_bytes", "area_mm2")
_PHASE_COLOURS = dict(zip((phase.value for phase in Phase), COLOURS, strict=False))
_PHASE_COLOURS[Phase.OTHER.value] = GREY
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
_BY_TOKEN = {
    "time of a token": "token_s",
    "tokens": "tokens_per_s",
    "time to first token": "time_to_first_token_s",
    "energy of a token": "energy_per_token_j",
}
_CRITICAL = "critical: its part of the latency; busy: its busiest unit's work; span: first transfer to last."
_BUSY = "busy: its busiest unit's work, as a share of the time between two inferences of a context."


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
        Whether the terminal shows regions, energy by part, DRAM traffic, SRAM, tilings and roofline too.
    mapped : callable, optional
        Returns the mapped graph behind it, for SRAM, flows through the machine and forms of the graph.
    helpful : sequence of Elasticity
        What more of each resource would save.
    """
    simulated: Sequence[Section] = ()
    if "timeline" in vars(estimate):
        from npusim.reporting.timeline import timeline_sections

        simulated = timeline_sections(estimate.timeline, helpful)
    utilisation = estimate.units[estimate.bound].utilisation
    latency = engineering(estimate.latency_s, "s", last_digit(estimate.latency_interval_s))
    launch = percent(estimate.launch_s / estimate.latency_s) if estimate.requests == 1 else ""
    return document_page(
        estimate,
        "",
        _circumstances(estimate),
        [
            _figures(estimate),
            _latency(estimate),
            *_regions(estimate),
            _units(estimate),
            *_operators(estimate),
            *simulated,
            energy_plot(estimate),
            *_sustained(estimate),
            *divided_sections(estimate.divided),
            *machine.traffic_sections(estimate),
            *_details(estimate),
            None if mapped is None else Later(lambda: _of_machine(estimate, mapped())),
        ],
        notes=estimate.provenance.get("notes", []),
        lead=f"{latency} an inference; {estimate.bound} is busiest, {percent(utilisation)} of the time"
        f"{launch and f', and the launch takes {launch}'}.",
        details=details,
    )


def _circumstances(estimate: Estimate) -> str:
    """Return the line below the title: machine, formats, how the network runs, engine."""
    on_npu = any("." in op.unit for op in estimate.operators)
    wider = estimate.source_precision not in (None, *re.split(r"\W+", estimate.precision))
    form = estimate.provenance.get("form", "")
    parts = [
        estimate.provenance.get("soc_title", estimate.soc),
        estimate.precision + (f" (the file: {estimate.source_precision})" if wider else ""),
        f"form {form}" if form else "",
        conditions(estimate, None if on_npu else 0),
    ]
    return "; ".join(filter(None, [*parts, f"{estimate.engine} engine"]))


def _figures(estimate: Estimate) -> Figures:
    intervals = estimate.all_intervals

    def figure(name: str) -> tuple[str, str]:
        value, unit, interval = getattr(estimate, name), unit_of(name), intervals.get(name)
        if name in _WITH_BOUNDS:
            return METRICS[name].title, with_bounds(value, unit, interval)
        return METRICS[name].title, engineering(value, unit, last_digit(interval))

    pairs, language = dict(map(figure, _FIRST)), estimate.language
    pairs["peak power"] = engineering(estimate.peak_power_w, "W", last_digit(intervals.get("power_w")))
    pairs["DRAM peak"] = engineering(estimate.memory.dram_peak_bytes, "B")
    pairs["work"] = engineering(estimate.macs, "MAC")
    if estimate.tiles:  # without work for the NPU its own figures say nothing
        pairs |= dict(map(figure, _OF_NPU))
    if language is not None:
        pairs |= {name: quantity(key, getattr(language, key)) for name, key in _BY_TOKEN.items()}
    return Figures(list(pairs.items()))


def part_s(op: OperatorCost) -> float:
    """Return what an operator adds to the latency; with several requests in flight how long it works (s)."""
    return op.busy_s if op.critical_s is None else op.critical_s


def _causes(op: OperatorCost) -> dict[str, float]:
    """Return what an operator adds to the latency by cause (s); its unit where causes are unknown."""
    if op.critical is None:
        return {op.unit: part_s(op)}
    causes = {op.unit: op.critical.work_s, CALLS: op.critical.calls_s, WAITS: op.critical.waits_s}
    return {cause: seconds for cause, seconds in causes.items() if seconds > 0.0}


def latency_by_cause(estimate: Estimate) -> dict[str, float]:
    """Return what the latency goes to (s), longest first: launch, work of each unit, calls, waits.

    The causes sum to the latency; empty with several requests in flight.
    """
    if estimate.requests > 1:
        return {}
    of_operators = (pair for op in estimate.operators for pair in _causes(op).items())
    parts = summed([(LAUNCH, estimate.launch_s), *of_operators])
    pauses_s = estimate.latency_s - sum(parts.values())
    if pauses_s > _ROUNDING * estimate.latency_s:
        parts[PAUSES] = pauses_s
    return _longest_first({cause: seconds for cause, seconds in parts.items() if seconds > 0.0})


def _longest_first(seconds: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(seconds.items(), key=lambda pair: -pair[1]))


def _latency(estimate: Estimate) -> Plot | None:
    causes, title = latency_by_cause(estimate), f"Where the latency goes: {_time(estimate.latency_s)}"
    if not causes:
        return None
    return parts_plot(
        title, "latency", causes, "s", estimate.latency_s, name="latency", colours=CAUSE_COLOURS
    )


def _time(seconds: float) -> str:
    """Return a time with three digits."""
    return engineering(seconds, "s")


@dataclass(frozen=True, slots=True)
class TimeByRegion:
    """Sums of `part_s` over the operators of an estimate, in s."""

    whole_s: float
    """What shares are of: the latency, or the time between two inferences of a context."""
    launch_s: float
    """Calls of runtimes, outside of the operators; 0 with several requests in flight."""
    by_phase: Mapping[Phase, Mapping[str, float]]
    """Phase, then cause; phases in the order of the enumeration."""
    by_block: Mapping[str, Mapping[Phase, float]]
    """Block, in order of execution, then phase."""
    control: Mapping[str, tuple[int, float]]
    """Types of control-flow operators: how many, and their time; the longest first."""

    @property
    def control_s(self) -> float:
        """Time of all control-flow operators (s)."""
        return sum(seconds for _, seconds in self.control.values())


def time_by_region(estimate: Estimate) -> TimeByRegion:
    """Return where the time of an estimate goes."""
    working = [op for op in estimate.operators if part_s(op) > 0.0]
    phases = {
        phase: summed(pair for op in working if op.phase == phase for pair in _causes(op).items())
        for phase in Phase
    }
    blocks: dict[str, dict[Phase, float]] = {}
    for op in working:
        block = blocks.setdefault(op.block, {})
        block[op.phase] = block.get(op.phase, 0.0) + part_s(op)
    counts = Counter(op.type for op in working if op.control_flow)
    control = _longest_first(summed((op.type, part_s(op)) for op in working if op.control_flow))
    return TimeByRegion(
        _whole_s(estimate),
        estimate.launch_s if estimate.requests == 1 else 0.0,
        {phase: sums for phase, sums in phases.items() if sums},
        blocks,
        {kind: (counts[kind], seconds) for kind, seconds in control.items()},
    )


def _whole_s(estimate: Estimate) -> float:
    """Return the latency, or with several requests the time between two inferences of a context (s)."""
    return estimate.latency_s if estimate.requests == 1 else estimate.contexts / estimate.throughput_per_s


def _regions(estimate: Estimate) -> list[Section]:
    """Return phases by cause, blocks by phase, and control flow; nothing where nothing works."""
    times = time_by_region(estimate)
    if not times.by_phase:
        return []
    phases = {phase.value: causes for phase, causes in times.by_phase.items()}
    if times.launch_s > 0.0:
        phases[LAUNCH] = {LAUNCH: times.launch_s}
    blocks = {name: {phase.value: s for phase, s in sums.items()} for name, sums in times.by_block.items()}
    if len(blocks) > _MOST_BLOCKS:
        blocks = dict(sorted(blocks.items(), key=lambda block: -sum(block[1].values())))
    control = {f"{kind} ({count})": seconds for kind, (count, seconds) in times.control.items()}
    if len(control) > 1:
        control["all of them"] = times.control_s
    what = "the latency" if estimate.requests == 1 else "the time between two inferences of a context"
    share = percent(times.control_s / times.whole_s)
    return [
        parts_plot(title, heading, rows, "s", times.whole_s, name=name, colours=colours, most=_MOST_BLOCKS)
        for title, heading, name, rows, colours in (
            (f"Where {what} goes: phases of the network", "time by phase", "phases", phases, CAUSE_COLOURS),
            ("Blocks of the network by phase", "time by block", "blocks", blocks, _PHASE_COLOURS),
            (f"Control flow: {share} of the time", "control flow", "control", control, None),
        )
    ]


def _units(estimate: Estimate) -> Plot:
    units = [{"name": name, **dict(use)} for name, use in estimate.units.items()]
    used = {name: use.busy_s for name, use in estimate.units.items() if use.busy_s > 0}
    busy = sorted((u for u in units if u["busy_s"] > 0), key=lambda unit: -unit["utilisation"])
    if estimate.dispatch_s > 0.0:
        share = estimate.dispatch_s * estimate.throughput_per_s / estimate.contexts
        busy.append({"name": CALLS, "busy_s": estimate.dispatch_s, "utilisation": share})
    columns = (
        Column("name", "unit", layout={**CYAN, "min_width": 8}),
        *fields("busy_s, utilisation: of the time"),
        Column("", "", lambda unit: share_bar(unit["utilisation"]), "terminal"),
    )
    table = Table(columns, units, name="units", terminal=busy)
    return Plot("Busy time of the units", lambda: amount_bars("busy", "s", used, UNIT_COLOURS), table)


def _costliest(estimate: Estimate) -> list[OperatorCost]:
    return sorted((op for op in estimate.operators if op.busy_s > 0), key=lambda op: -part_s(op))


def _operators(estimate: Estimate) -> list[Section]:
    """Return the costliest operators as bars, and a table: of the costliest on the terminal, else of all."""
    single, whole_s, working = estimate.requests == 1, _whole_s(estimate), _costliest(estimate)
    if not working:
        return [Text("No operator takes time: all are views of their inputs.")]
    columns = (
        Column("name", "operator", lambda op: LongName(op.name, below=op.fused)),
        Column("unit", layout=CYAN),
        *fields("critical_s" if single else "busy_s"),
        Column("", "share", lambda op: part(part_s(op) / whole_s), "terminal"),
        *(fields("busy_s") if single else ()),
        *fields("span_s", "terminal"),
        *fields("dram_bytes, bound: bound"),
    )
    meaning = _CRITICAL if single else _BUSY
    others = working[_MOST_OPERATORS:]
    if others:
        longest, count = part_s(others[0]), counted(len(others), "more operator")
        meaning = f"{count} of at most {_time(longest)} each ({percent(longest / whole_s)}). {meaning}"
    if single and estimate.launch_s > 0.0:
        meaning = f"{LAUNCH}: {_time(estimate.launch_s)}. {meaning}"
    shown, all_ = working[:_MOST_OPERATORS], estimate.operators
    table = Table(columns, all_, "All operators", "operators", meaning, shown, gap=1, whole=True)
    return [operator_plot(estimate), table]


def operator_plot(estimate: Estimate) -> Plot:
    """Return the costliest operators as bars, coloured by unit."""
    working = _costliest(estimate)
    left, rows = working[_MOST_BARS:], {op.name: {op.unit: part_s(op)} for op in working[:_MOST_BARS]}
    title = "Operators: part of the latency" if estimate.requests == 1 else "Operators"
    least = f"; {len(left)} more take at most {_time(part_s(left[0]))} each" if left else ""
    return Plot(f"{title}{least}", lambda: stacked_bars(rows, "s", UNIT_COLOURS))


def energy_plot(estimate: Estimate) -> Plot:
    """Return the energy of an inference by part."""
    energies = estimate.energy.model_dump().items()
    parts = {_ENERGIES.get(name, name): energy_j for name, energy_j in energies if energy_j > 0.0}
    title = f"Energy by part: {engineering(estimate.energy_j, 'J')} an inference"
    return parts_plot(title, "energy by part", parts, "J", estimate.energy_j, name="energy")


def _sustained(estimate: Estimate) -> list[Section]:
    """Return burst and sustained throughput, where they were asked for, and power and heat over time."""
    figures = estimate.sustained
    if figures is None:
        return []

    def row(name: str, of: Any, rate: str, watts: str, limit: str) -> tuple[str, ...]:
        amounts = (
            with_bounds(getattr(of, k), u, of.intervals.get(k)) for k, u in ((rate, "/s"), (watts, "W"))
        )
        return name, *amounts, limit

    lasts = "for ever"
    if figures.burst_s is not None:
        lasts = with_bounds(figures.burst_s, "s", figures.intervals.get("burst_s"))
    rows = [
        row("without limits", estimate, "throughput_per_s", "power_w", ""),
        row(f"burst, {lasts}", figures, "burst_per_s", "burst_w", figures.ends_by),
        row("sustained", figures, "throughput_per_s", "power_w", figures.held_by),
    ]
    times = [moment.time_s for moment in figures.course]
    lines = {"power (W)": (times, [moment.power_w for moment in figures.course])}
    for name in figures.course[0].figures:
        title = f"{name} (K)" if name != RUNNING_MEAN else "running mean of the power (W)"
        lines[title] = (times, [moment.figures[name] for moment in figures.course])
    headings, title = ("again and again", "throughput", "power", "limited by"), "Power and heat, from idle"
    time = log_axis("time", "s", times[0], times[-1])
    return [
        Plot(
            title,
            lambda: line_figure(lines, time, {"title": "W; K above the room"}),
            cells_table(headings, rows, name="sustained"),
        )
    ]


def _details(estimate: Estimate) -> list[Section]:
    """Return tilings and traffic of operators for the terminal, and the roofline: the slowest first."""
    slowest = sorted((op for op in estimate.operators if op.latency_s > 0), key=lambda op: -op.latency_s)
    points = {point.operator: point for point in estimate.roofline.points}
    headings = enumerate(("split", "mode", "stays", "a tile", "in blocks"))
    tilings = (
        Column("name", "mapping"),
        *(Column("", h, lambda op, i=i: _tiling(op.mapping)[i], words=i < 3) for i, h in headings),
        Column("grid_utilisation"),
    )
    traffic = fields(
        "name: traffic, dram_read_bytes, dram_bytes: both ways, sram_read_bytes, sram_written_bytes: "
        "written, energy_j, power_w"
    )
    roofline = (
        Column("operator", "roofline"),
        Column("ops_per_s", "rate", lambda point: Amount(point.ops_per_s, "OP/s")),
        Column("intensity.dram", "OP/B DRAM", text="{:,.3g}"),
        Column("ceiling_ops_per_s", "ceiling", lambda point: Amount(point.ceiling_ops_per_s, "OP/s")),
        Column("", "reached", lambda point: part(point.ops_per_s / point.ceiling_ops_per_s)),
        Column("limit", "lowest ceiling"),
    )
    most: Any = {"most": _MOST_DETAILED, "detail": True}
    on_npu = [op for op in slowest if op.mapping is not None]
    shown = [points[op.name] for op in slowest if op.name in points]
    name, rows = "roofline.points", estimate.roofline.points
    rates = Table(roofline, rows, name=name, terminal=shown, whole=True, **most)
    title = "Roofline: each operator below the ceilings of its unit"
    return [
        Table(tilings, on_npu, only="terminal", **most),
        *_segments(estimate),
        Table(traffic, slowest, only="terminal", **most),
        Plot(title, lambda: machine.roofline_figure(estimate), rates),
    ]


def _segments(estimate: Estimate) -> list[Table]:
    """Return the operators of each depth-first segment and row-wise fusion, for the terminal."""
    of_segment = grouped(estimate.operators, lambda op: op.mapping.segment if op.mapping else "")
    members = [ops for segment, ops in of_segment.items() if segment]
    columns = (
        Column("", "fused from", lambda ops: ops[0].name),
        Column("", "to", lambda ops: ops[-1].name),
        Column("", "operators", lambda ops: str(len(ops))),
        Column("", "bands", lambda ops: str(max(op.mapping.bands for op in ops))),
    )
    return [Table(columns, members, only="terminal", detail=True)] if members else []


def _tiling(m: OperatorMapping) -> tuple[str, ...]:
    """Return split, MPE mode, stationary operand, size of a tile and number of blocks."""
    size = f"{m.rows}x{m.columns}" + (f"x{m.depth}" if m.order else "")
    blocks = f"{m.row_blocks}x{m.column_blocks}" + (f"x{m.depth_blocks}" if m.order else "")
    split = "1 tile" if m.split == "single" else f"{m.split} / {m.tiles}"
    held = (m.order or "").removesuffix("_held").replace("activations", "activ.")
    return split, m.mpe_mode or "", held, size, f"{m.strips}x {blocks}" if m.strips > 1 else blocks


def _of_machine(estimate: Estimate, mapped: Mapped) -> list[Section]:
    return [
        *machine.memory_sections(mapped),
        machine.flow_table(estimate, mapped),
        *machine.forms_section(mapped),
    ]
