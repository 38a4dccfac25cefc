"""A design of the explorer: machine with numbers set, network, techniques; as command and as YAML."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, reduce
from itertools import accumulate
from typing import Any

import plotly.graph_objects as go
import yaml

from npusim import Scenario
from npusim.course.drawings import stacked
from npusim.course.machine import dram_gb_s, machine
from npusim.course.words import word
from npusim.engines import Estimate
from npusim.engines.analytical import mapped_estimate
from npusim.errors import IllegalTechniqueError
from npusim.reporting.engineering import engineering, last_digit
from npusim.reporting.html import UNIT_COLOURS
from npusim.studies.uncertainty import with_interval
from npusim.workloads import KINDS, load_spec, workload_names

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
_MOST_BARS = 16
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
        cost = self.estimate
        interval = cost.latency_interval_s or (cost.latency_s, cost.latency_s)
        last = last_digit(cost.latency_interval_s)
        value, low, high = (engineering(s, "s", last) for s in (cost.latency_s, *interval))
        return f"{value} [{low} to {high}]" if low != high else value


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


def critical_path(estimate: Estimate) -> tuple[go.Figure, int]:
    """Return launch and operators on the critical path as a waterfall, and the number of bars.

    The longest operators have a bar each; the others share one at the end.
    """
    path = [(op.name, op.critical_s, op.unit) for op in estimate.operators if op.critical_s]
    longest = set(sorted((time for _, time, _ in path), reverse=True)[:_MOST_BARS])
    named = [step for step in path if step[1] in longest][:_MOST_BARS]
    steps = [("launch", estimate.launch_s, "launch"), *named]
    if len(path) > _MOST_BARS:
        rest = sum(time for _, time, _ in path) - sum(time for _, time, _ in named)
        steps.append((f"{len(path) - len(named)} more operators", rest, "several"))
    bars = {f"{name}, {engineering(time, 's')}": {unit: time} for name, time, unit in steps}
    colours = {**UNIT_COLOURS, "launch": "#bbbbbb", "several": "#888888"}
    begins = [0.0, *accumulate(time for _, time, _ in steps[:-1])]
    return stacked(bars, "time since the inference was asked for", "s", colours, begins), len(steps)


def energy_by_part(estimate: Estimate) -> go.Figure:
    """Return the energy of an inference as one bar of its parts."""
    bar = f"{engineering(estimate.energy_j, 'J')} an inference"
    energies = {name: j for name, j in estimate.energy.model_dump().items() if isinstance(j, float) and j > 0}
    parts = {name.removesuffix("_j"): energy_j for name, energy_j in energies.items()}
    return stacked({bar: parts}, "energy", "J")


@cache
def offered() -> tuple[list[str], list[str]]:
    """Return machines with Intel's NPU, and workloads that are quick to cost."""
    from npusim.arch import soc_names

    socs = [name for name in soc_names() if machine(name).has("npu") and name.startswith("core-ultra")]
    kinds = {name: load_spec(name).kind for name in workload_names()}
    return socs, [name for name, kind in kinds.items() if not KINDS[kind].is_large]
