"""The page of an estimate: headline figures, where time and energy go, operators, roofline, memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

from rich.text import Text

from npusim.engines import Estimate, OperatorCost
from npusim.engines.estimate import Mapping as OperatorMapping
from npusim.graph import Phase
from npusim.mapping import Mapped
from npusim.metrics import METRICS, unit_of
from npusim.reporting.charts import Figure, amount_bars, bar_figure, stacked_bars
from npusim.reporting.engineering import (
    Amount,
    Cell,
    engineering,
    last_digit,
    part,
    percent,
    quantity,
    with_bounds,
)
from npusim.reporting.html import COLOURS, GREY, UNIT_COLOURS, amount_axis
from npusim.reporting.machine import block_diagram, forms_section, roofline_figure
from npusim.reporting.memory import memory_sections, traffic_sections
from npusim.reporting.page import (
    CYAN,
    Column,
    Figures,
    Later,
    Page,
    Plot,
    Section,
    Table,
    document_page,
    fields,
    summed,
)
from npusim.reporting.sustained import divided_sections, sustained_sections
from npusim.reporting.terminal import LongName, conditions, counted, share_bar, shares_table

if TYPE_CHECKING:
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
_BOUND_STYLES = {"compute": "green", "dma": "yellow", "dsp": "magenta", "launch": "red", "level": "blue"}
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
_BY_TOKEN = {
    "time of a token": "token_s",
    "tokens": "tokens_per_s",
    "time to first token": "time_to_first_token_s",
    "energy of a token": "energy_per_token_j",
}
_WIDE = {"min_width": 14}
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
        Returns the mapped graph behind it, for SRAM, for pictures of the machine and of the graph's storage.
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
        circumstances(estimate),
        [
            _figures(estimate),
            _latency(estimate),
            *_regions(estimate),
            _units(estimate),
            *_operators(estimate),
            *simulated,
            _energy(estimate),
            *sustained_sections(estimate),
            *divided_sections(estimate.divided),
            *traffic_sections(estimate),
            *_memory(mapped, details),
            *_details(estimate),
            None if mapped is None else Later(lambda: _of_machine(estimate, mapped())),
        ],
        notes=estimate.provenance.get("notes", []),
        lead=f"{latency} an inference; {estimate.bound} is busiest, {percent(utilisation)} of the time"
        f"{launch and f', and the launch takes {launch}'}.",
        details=details,
    )


def circumstances(estimate: Estimate) -> str:
    """Return the line below the title: machine, formats, how the network runs, engine."""
    machine = estimate.provenance.get("soc_title", estimate.soc)
    on_npu = any("." in op.unit for op in estimate.operators)
    wider = estimate.source_precision not in (None, *re.split(r"\W+", estimate.precision))
    precision = estimate.precision + (f" (the file: {estimate.source_precision})" if wider else "")
    form = estimate.provenance.get("form", "")
    parts = [machine, precision, f"form {form}" if form else "", conditions(estimate, None if on_npu else 0)]
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
    return {
        cause: parts[cause] for cause in sorted(parts, key=lambda cause: -parts[cause]) if parts[cause] > 0.0
    }


def _latency(estimate: Estimate) -> Plot | None:
    """Return the latency as one bar by cause."""
    causes = latency_by_cause(estimate)
    if not causes:
        return None
    return Plot(
        f"Where the latency goes: {engineering(estimate.latency_s, 's')}",
        lambda: stacked_bars({"latency": causes}, "s", CAUSE_COLOURS),
        shares_table("latency", causes, "s", estimate.latency_s, "latency"),
    )


def _whole_s(estimate: Estimate) -> float:
    """Return the latency, or with several requests the time between two inferences of a context (s)."""
    return estimate.latency_s if estimate.requests == 1 else estimate.contexts / estimate.throughput_per_s


@dataclass(frozen=True, slots=True)
class TimeByRegion:
    """Sums of `part_s` over the operators of an estimate, in s."""

    whole_s: float
    """What shares are of: the latency, or the time between two inferences of a context."""
    launch_s: float
    """Calls of runtimes, outside of the operators; 0 with several requests in flight."""
    units: Sequence[str]
    """Units that work, the busiest first."""
    by_phase: Mapping[Phase, Mapping[str, float]]
    """Phase, then unit; phases in the order of the enumeration."""
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
    working = [(op, part_s(op)) for op in estimate.operators if part_s(op) > 0.0]
    units = summed((op.unit, s) for op, s in working)
    phases = {phase: summed((op.unit, s) for op, s in working if op.phase == phase) for phase in Phase}
    blocks = dict.fromkeys(op.block for op, _ in working)
    control = summed((op.type, s) for op, s in working if op.control_flow)
    counts = Counter(op.type for op, _ in working if op.control_flow)
    return TimeByRegion(
        whole_s=_whole_s(estimate),
        launch_s=estimate.launch_s if estimate.requests == 1 else 0.0,
        units=sorted(units, key=lambda unit: -units[unit]),
        by_phase={phase: sums for phase, sums in phases.items() if sums},
        by_block={block: summed((op.phase, s) for op, s in working if op.block == block) for block in blocks},
        control={kind: (counts[kind], control[kind]) for kind in sorted(control, key=lambda k: -control[k])},
    )


def _regions(estimate: Estimate) -> list[Section]:
    """Return phases by cause, blocks by phase, and control flow; nothing where nothing works."""
    times, single = time_by_region(estimate), estimate.requests == 1
    if not times.by_phase:
        return []

    def row(name: str, seconds: Mapping[Any, float], **more: Any) -> dict[str, Any]:
        total_s = sum(seconds.values())
        parts = {f"{part}_s": s for part, s in seconds.items()}
        return {"name": name, **parts, "total_s": total_s, "share": total_s / times.whole_s, **more}

    by_phase = {phase.value: sums for phase, sums in times.by_phase.items()}
    by_block = {name: {p.value: s for p, s in sums.items()} for name, sums in times.by_block.items()}
    causes = {
        phase: summed(pair for op in estimate.operators if op.phase == phase for pair in _causes(op).items())
        for phase in by_phase
    }
    launch = []
    if times.launch_s > 0.0:
        launch, causes[LAUNCH] = [row(LAUNCH, {"": times.launch_s})], {LAUNCH: times.launch_s}
    blocks = [row(name, sums, mostly=max(sums, key=sums.__getitem__)) for name, sums in by_block.items()]
    others = sorted(blocks, key=lambda block: -block["total_s"])[_MOST_BLOCKS:]
    shown = [block for block in blocks if block not in others]
    rest = row(f"{len(others)} more blocks", {"": sum(block["total_s"] for block in others)})
    left = f", the {len(shown)} longest of {len(blocks)}" if others else ""
    control = [row(name, {"": s}, count=count) for name, (count, s) in times.control.items()]
    count = sum(count for count, _ in times.control.values())
    whole = [row("all of them", {"": times.control_s}, count=count)] if len(control) > 1 else []
    what = "the latency" if single else "the time between two inferences of a context"
    units = [Column(f"{unit}_s", unit) for unit in times.units]
    of_phases = [Column(f"{name}_s", name, only="html") for name in by_phase]
    phases = _shares("time by phase", "phases", units, [row(*each) for each in by_phase.items()] + launch)
    by_type = _shares("control flow", "control", fields("count: operators"), control + whole)
    share = percent(times.control_s / times.whole_s)
    bars = {block["name"]: by_block[block["name"]] for block in shown}
    return [
        Plot(
            f"Where {what} goes: phases of the network",
            lambda: stacked_bars(causes, "s", CAUSE_COLOURS),
            phases,
        ),
        Plot(
            f"Blocks of the network by phase{left}",
            lambda: stacked_bars(bars, "s", _PHASE_COLOURS),
            _shares("time by block", "blocks", of_phases, blocks, shown + [rest] * bool(others)),
        ),
        replace(by_type, title=f"Control flow: {share} of the time"),
    ]


def _shares(
    heading: str, name: str, between: Iterable[Column], rows: Sequence[Any], terminal: Any = None
) -> Table:
    """Return a table of times with their shares, as numbers and as bars."""
    columns = (
        Column("name", heading, layout=_WIDE),
        *between,
        *fields("total_s: in all, share"),
        Column("", "", lambda row: share_bar(row["share"]), "terminal"),
        Column("mostly", "mostly", only="terminal"),
    )
    return Table(columns, rows, "", name, terminal=terminal, detail=True)


def _units(estimate: Estimate) -> Plot:
    units = [{"name": name, **dict(use)} for name, use in estimate.units.items()]
    used = {name: use.busy_s for name, use in estimate.units.items() if use.busy_s > 0}
    busy = sorted((u for u in units if u["busy_s"] > 0), key=lambda unit: -unit["utilisation"])
    if estimate.dispatch_s > 0.0:
        share = estimate.dispatch_s * estimate.throughput_per_s / estimate.contexts
        busy.append({"name": "calls of the NPU", "busy_s": estimate.dispatch_s, "utilisation": share})
    columns = (
        Column("name", "unit", layout={**CYAN, "min_width": 8}),
        *fields("busy_s, utilisation: of the time"),
        Column("", "", lambda unit: share_bar(unit["utilisation"]), "terminal"),
    )
    table = Table(columns, units, name="units", terminal=busy)
    return Plot("Busy time of the units", lambda: amount_bars("busy", "s", used, UNIT_COLOURS), table)


def _operators(estimate: Estimate) -> list[Section]:
    """Return the costliest operators as bars, and a table: of the costliest on the terminal, else of all."""
    single, whole_s = estimate.requests == 1, _whole_s(estimate)
    working = sorted((op for op in estimate.operators if op.busy_s > 0), key=lambda op: -part_s(op))
    if not working:
        return [Text("No operator takes time: all are views of their inputs.")]
    launch = {"busy_s": "", "span_s": "", "dram_bytes": "", "critical_s": estimate.launch_s}
    has_launch = single and estimate.launch_s > _WORTH_A_LINE * whole_s

    def share(row: Any) -> Cell:
        return part((estimate.launch_s if row is launch else part_s(row)) / whole_s)

    def name(row: Any) -> Cell:
        return Text(LAUNCH, style="dim") if row is launch else LongName(row.name, below=row.fused)

    def bound(row: Any) -> Cell:
        return "" if row is launch else Text(row.bound, style=_BOUND_STYLES.get(row.bound, ""))

    columns = (
        Column("name", "operator", name),
        Column("unit", layout=CYAN),
        *fields("critical_s" if single else "busy_s"),
        Column("", "share", share, "terminal"),
        *(fields("busy_s") if single else ()),
        *fields("span_s", "terminal"),
        Column("dram_bytes"),
        Column("bound", "bound", bound),
    )
    meaning = _CRITICAL if single else _BUSY
    others = working[_MOST_OPERATORS:]
    if others:
        longest, count = part_s(others[0]), counted(len(others), "more operator")
        share_text = percent(longest / whole_s)
        meaning = f"{count} of at most {engineering(longest, 's')} each ({share_text}). {meaning}"
    shown = [*working[:_MOST_OPERATORS], *([launch] if has_launch else [])]
    operators = estimate.operators
    table = Table(columns, operators, "All operators", "operators", meaning, shown, gap=1, whole=True)
    return [_operator_bars(single, working), table]


def _operator_bars(single: bool, working: Sequence[OperatorCost]) -> Plot:
    """Return the costliest operators as bars, coloured by unit."""
    by_name = {op.name: op for op in working[:_MOST_BARS]}
    ops = by_name.values()

    def draw() -> Figure:
        series = {
            unit: {op.name: part_s(op) if op.unit == unit else None for op in ops}
            for unit in dict.fromkeys(op.unit for op in ops)
        }
        how: dict[str, Any] = {"mode": "overlay", "hover": lambda _, name: _story(by_name[name])}
        figure = bar_figure(series, amount_axis("", "s"), "s", colours=UNIT_COLOURS, **how)
        return figure.update_traces(text=[f"{engineering(part_s(op), 's')}, {op.bound}" for op in ops])

    title = "Operators: part of the latency, and what bounds each" if single else "Operators"
    left = len(working) - _MOST_BARS
    least = engineering(min(map(part_s, ops)), "s")
    return Plot(f"{title}; {left} more take at most {least} each" if left > 0 else title, draw)


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
    return Plot(
        f"Energy by part: {engineering(estimate.energy_j, 'J')} an inference",
        lambda: amount_bars("energy", "J", parts),
        shares_table("energy by part", parts, "J", estimate.energy_j, "energy"),
    )


def _details(estimate: Estimate) -> list[Section]:
    """Return tilings and traffic of operators for the terminal, and the roofline: the slowest first."""
    slowest = sorted((op for op in estimate.operators if op.latency_s > 0), key=lambda op: -op.latency_s)
    points = {point.operator: point for point in estimate.roofline.points}
    tilings = (
        Column("", "mapping", lambda op: op.name),
        *(
            Column("", heading, lambda op, i=i: _tiling(op.mapping)[i], words=i < 3)
            for i, heading in enumerate(("split", "mode", "stays", "a tile", "in blocks"))
        ),
        Column("grid_utilisation"),
    )
    traffic = (
        Column("", "traffic", lambda op: op.name),
        Column("dram_read_bytes"),
        Column("", "written", lambda op: Amount(op.dram_bytes - op.dram_read_bytes, "B")),
        *fields("sram_read_bytes, sram_written_bytes: written, energy_j, power_w"),
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
        Plot(title, lambda: roofline_figure(estimate), rates),
    ]


def _segments(estimate: Estimate) -> list[Table]:
    """Return the operators of each depth-first segment and row-wise fusion, for the terminal."""
    members: dict[str, list[OperatorCost]] = {}
    for op in estimate.operators:
        if op.mapping is not None and op.mapping.segment:
            members.setdefault(op.mapping.segment, []).append(op)
    columns = (
        Column("", "fused from", lambda ops: ops[0].name),
        Column("", "to", lambda ops: LongName(ops[-1].name)),
        Column("", "operators", lambda ops: str(len(ops))),
        Column("", "bands", lambda ops: str(max(op.mapping.bands for op in ops))),
    )
    return [Table(columns, list(members.values()), only="terminal", detail=True)] if members else []


def _tiling(m: OperatorMapping) -> tuple[str, ...]:
    """Return split, MPE mode, stationary operand, size of a tile and number of blocks."""
    size = f"{m.rows}x{m.columns}" + (f"x{m.depth}" if m.order else "")
    blocks = f"{m.row_blocks}x{m.column_blocks}" + (f"x{m.depth_blocks}" if m.order else "")
    if m.strips > 1:
        blocks = f"{m.strips}x {blocks}"
    split = "1 tile" if m.split == "single" else f"{m.split} / {m.tiles}"
    return split, m.mpe_mode or "", _HELD.get(m.order or "", ""), size, blocks


def _of_machine(estimate: Estimate, mapped: Mapped) -> list[Plot]:
    title = "What flows through the machine in an inference"
    blocks = Plot(title, lambda: block_diagram(estimate, mapped))
    return [blocks, *forms_section(mapped)]


def _memory(mapped: Callable[[], Mapped] | None, details: bool) -> Sequence[Section]:
    """Return the sections on memory that need the mapped graph; without details HTML alone builds them."""
    if mapped is None:
        return []
    return memory_sections(mapped()) if details else [Later(lambda: memory_sections(mapped()))]
