"""The explorer: two designs side by side. What its page asks for, and the answers as JSON values.

A design is a machine with numbers set, a network and techniques; it is shown as command and as YAML.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, reduce
from inspect import signature
from typing import Any

import plotly.graph_objects as go
import yaml

from npusim import Scenario
from npusim.arch import soc_names
from npusim.course.drawings import alternative, critical_bars, gantt
from npusim.course.lesson import Drawing, drawing_spec
from npusim.course.machine import dram_gb_s, machine
from npusim.course.machine_view import FLOWS, MOST, machine_steps
from npusim.course.pages import Address, document, html, places_of, written
from npusim.course.words import word
from npusim.engines import Estimate
from npusim.engines.analytical import mapped_estimate
from npusim.engines.event import event_estimate
from npusim.errors import ConfigError, IllegalTechniqueError, UnknownNameError
from npusim.locate import DEFAULT_SOC
from npusim.reporting.engineering import engineering, last_digit, with_bounds
from npusim.reporting.estimate import energy_plot, operator_plot
from npusim.reporting.html import UNIT_COLOURS
from npusim.reporting.machine import roofline_figure, sram_figure
from npusim.studies.uncertainty import with_interval
from npusim.workloads import KINDS, load_spec, workload_names

Answer = dict[str, Any]

STACKS = {
    "gnn": (
        "none",
        "graphsplit",
        "stagr",
        "stagr+quantgr",
        "stagr+quantgr+grasp",
        "stagr+quantgr+symg+cacheg",
    ),
    "": ("none", "quantgr"),
}
"""Technique stacks that are offered, by kind of workload."""
_SHARES = (0.25, 0.5, 0.75, 1.5, 2.0, 3.0, 4.0)
_TOTALS = {"latency_s": "s", "energy_j": "J", "dram_bytes": "B", "area_mm2": "mm²"}
"""Totals that are compared, with their units."""


@dataclass(frozen=True)
class Knob:
    """A number of a machine that a slider sets."""

    path: str
    """As `--set` has it."""
    unit: str
    """Unit that the slider counts in."""
    scale: float
    """SI units in one of these."""
    is_count: bool = False
    """Whether only whole numbers are possible."""

    def sheet_value(self, soc: str) -> float:
        """Return what the data sheet says, in the slider's unit."""
        value: Any = reduce(getattr, self.path.split("."), machine(soc))
        return float(value) / self.scale

    def values(self, soc: str) -> list[float]:
        """Return what the slider offers, the data sheet's own value among it."""
        own = self.sheet_value(soc)
        values = [float(f"{own * share:.3g}") for share in _SHARES]
        if self.path == "dram.bandwidth":
            values = dram_gb_s(*values, name=soc)
        if self.path == "npu.dpu.clock":
            highest_hz = machine(soc).highest_clocks("npu").get("dpu.clock", float("inf"))
            values = [value for value in values if value * self.scale <= highest_hz]
        return sorted({own, *(value for value in values if value.is_integer() or not self.is_count)})


KNOBS = (
    Knob("npu.sram.per_tile", "KiB", 1024.0),
    Knob("npu.dpu.clock", "MHz", 1e6),
    Knob("npu.dsp.per_tile", "", 1.0, is_count=True),
    Knob("dram.bandwidth", "GB/s", 1e9),
)


@dataclass(frozen=True)
class Design:
    """What is costed."""

    soc: str
    workload: str
    stack: str
    settings: tuple[str, ...] = ()

    @classmethod
    def of(cls, soc: str, workload: str, stack: str, values: Mapping[str, float]) -> Design:
        """Return a design; `values` are those of sliders by path, of which the sheet's own are left out."""
        changed = [
            f"{knob.path}={values[knob.path]:g}{knob.unit and ' '}{knob.unit}"
            for knob in KNOBS
            if abs(values[knob.path] - knob.sheet_value(soc)) > 1e-9 * knob.sheet_value(soc)
        ]
        return cls(soc, workload, stack, tuple(changed))

    @property
    def command(self) -> str:
        """The command line that costs it."""
        words = ["npusim", "estimate", self.workload, "--soc", self.soc, "-t", self.stack]
        for setting in self.settings:
            words += ["--set", setting]
        return shlex.join([*words, "--interval"])

    @property
    def sheet(self) -> str:
        """A data sheet of its machine, as YAML."""
        tree: dict[str, Any] = {
            "schema": "npusim.soc/1",
            "extends": self.soc,
            "name": f"{self.soc}-explored",
            "title": f"{machine(self.soc).title}, explored",
        }
        for setting in self.settings:
            path, _, value = setting.partition("=")
            *sections, key = path.split(".")
            branch = tree
            for section in (["devices"] if sections[0] == "npu" else []) + sections:
                branch = branch.setdefault(section, {})
            branch[key] = {"value": value, "source": "explored"}
        return str(yaml.safe_dump(tree, sort_keys=False))

    @cached_property
    def scenario(self) -> Scenario:
        """The question that it asks."""
        return Scenario(self.workload, machine(self.soc, *self.settings), techniques=self.stack)

    @property
    def estimate(self) -> Estimate:
        """What it costs, with the interval of its latency."""
        return _estimate(self)

    @property
    def latency(self) -> str:
        """Latency with its 90 % interval, to the last digit that the interval bears."""
        return with_bounds(self.estimate.latency_s, "s", self.estimate.latency_interval_s)


@lru_cache(64)
def _estimate(design: Design) -> Estimate:
    mapped = design.scenario.mapped
    return with_interval(mapped_estimate(mapped), mapped)


@cache
def stacks(workload: str) -> list[str]:
    """Return the technique stacks that are offered for a workload: those that are legal."""
    offers = STACKS.get(load_spec(workload).kind, STACKS[""])
    return [stack for stack in offers if _is_legal(workload, stack)]


def _is_legal(workload: str, stack: str) -> bool:
    try:
        return bool(Scenario(workload, machine(), techniques=stack).graph)
    except IllegalTechniqueError:
        return False


def totals(a: Estimate, b: Estimate) -> str:
    """Return the totals of two designs side by side, as a table in Markdown."""
    lines = [f"| {word('total')} | A | B | {word('ratio')} |", "| --- | ---: | ---: | ---: |"]
    for field, unit in _TOTALS.items():
        first, second = getattr(a, field), getattr(b, field)
        # The latency alone has an interval.
        digits = [last_digit(each.latency_interval_s) if field == "latency_s" else None for each in (a, b)]
        amounts = " | ".join(
            engineering(value, unit, last) for value, last in zip((first, second), digits, strict=True)
        )
        lines.append(f"| {word(field)} | {amounts} | {first / second:.2f} |")
    return "\n".join(lines)


@cache
def offered() -> tuple[list[str], list[str]]:
    """Return machines with Intel's NPU, and workloads that are quick to cost."""
    socs = [name for name in soc_names() if machine(name).has("npu") and name.startswith("core-ultra")]
    kinds = {name: load_spec(name).kind for name in workload_names()}
    return socs, [name for name, kind in kinds.items() if not KINDS[kind].is_large]


def explorer_document(address: Address, library: str) -> str:
    """Return the page of the explorer as HTML; see `pages.lesson_document`."""
    machines, networks = offered()
    data = {
        "isExplorer": True,
        "library": library,
        "machines": machines,
        "networks": networks,
        "start": [DEFAULT_SOC, "gcn-cora"],
        "flows": FLOWS,
        "most": MOST,
    }
    shown = (
        f'<p><a href="{address("")}">{word("all_lessons")}</a></p><h1>{word("explorer")}</h1>'
        f'<p>{word("explorer_about")}</p><div id="explorer"></div>'
    )
    return document(word("explorer"), shown, data, "explorer.js")


def offers(machine: str, network: str) -> Answer:
    """Return the stacks of a network, and a slider for each knob of a machine."""
    _known(machine, network)
    sliders = []
    for knob in KNOBS:
        values = knob.values(machine)
        start = values.index(knob.sheet_value(machine))
        sliders.append({"label": word(knob.path), "values": list(map(written, values)), "start": start})
    return {"stacks": stacks(network), "sliders": sliders}


def compared(first: str, second: str) -> Answer:
    """Return totals of two designs, their critical paths as bars, and each as a command and a data sheet."""
    designs = {"A": design_at(first), "B": design_at(second)}
    estimates = {name: design.estimate for name, design in designs.items()}
    bars = critical_bars(estimates, lambda op: op.unit, UNIT_COLOURS)
    return {
        "figures": [_drawn(bars, 240)],
        "totals": html(totals(estimates["A"], estimates["B"])),
        "designs": [
            {
                "latency": design.latency,
                "command": design.command,
                "sheet": design.sheet,
                "file": f"{design.soc}-explored.yaml",
            }
            for design in designs.values()
        ],
    }


def pictures(design: str) -> Answer:
    """Return critical path, energy, roofline and SRAM of a design."""
    one = design_at(design)
    drawn: list[go.Figure | None] = [
        operator_plot(one.estimate).draw(),
        energy_plot(one.estimate).draw(),
        roofline_figure(one.estimate),
        sram_figure(one.scenario.mapped),
    ]
    return {"figures": [_drawn(figure, figure.layout.height) for figure in drawn if figure is not None]}


def simulated(design: str) -> Answer:
    """Return the time line of a design by the event engine."""
    return {"figures": [_drawn(gantt(event_estimate(design_at(design).scenario).timeline), 380)]}


def product(m: str, k: str, n: str, flow: str) -> Answer:
    """Return a product on one tile, step by step."""
    if flow not in FLOWS:
        raise UnknownNameError("dataflow", flow, FLOWS)
    sizes = places_of(f"{m},{k},{n}", [MOST + 1] * 3)
    if not sizes:
        raise ConfigError(f"{m} x {k} x {n}", file="product", allowed=f"whole numbers from 1 to {MOST}")
    return {"figures": [_drawn(machine_steps(sizes[0], sizes[1], sizes[2], flow), 0)]}


def answer(address: str) -> Answer:
    """Return what an address below the explorer's asks, such as ``pictures/DESIGN``.

    Raises
    ------
    UnknownNameError
        No page asks that.
    NpusimError
        npusim refuses what it names.
    """
    calls: tuple[Callable[..., Answer], ...] = (offers, compared, pictures, simulated, product)
    named = {call.__name__: call for call in calls}
    what, *parts = address.split("/")
    if what not in named or len(parts) != len(signature(named[what]).parameters):
        raise UnknownNameError("address", address, named)
    return named[what](*parts)


def design_at(text: str) -> Design:
    """Return the design of a text such as ``core-ultra-series2;gcn-cora;stagr;2,3,0,4``.

    Raises
    ------
    UnknownNameError
        The page does not offer that.
    """
    parts = text.split(";")
    if len(parts) != 4:
        raise UnknownNameError("design", text, ["MACHINE;NETWORK;STACK;PLACES"])
    machine, network, stack, places = parts
    _known(machine, network)
    if stack not in stacks(network):
        raise UnknownNameError("stack", stack, stacks(network))
    values = [knob.values(machine) for knob in KNOBS]
    at = places_of(places, list(map(len, values)))
    if not at:
        raise UnknownNameError("position of the sliders", places, [",".join("0" * len(KNOBS))])
    chosen = {knob.path: each[i] for knob, each, i in zip(KNOBS, values, at, strict=True)}
    return Design.of(machine, network, stack, chosen)


def _known(machine: str, network: str) -> None:
    for kind, name, names in zip(("machine", "network"), (machine, network), offered(), strict=True):
        if name not in names:
            raise UnknownNameError(kind, name, names)


def _drawn(drawing: Drawing, height: int) -> tuple[str, str]:
    """Return a drawing as JSON with its text alternative."""
    said = alternative(drawing)
    return drawing_spec(drawing, height), said
