"""A design of the explorer: machine with numbers set, network, techniques; as command and as YAML."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from npusim import Scenario
from npusim.course.machine import machine
from npusim.engines import Estimate
from npusim.engines.analytical import mapped_estimate
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


@dataclass(frozen=True)
class Knob:
    """A number of a machine that a slider sets."""

    path: str
    """As `--set` has it."""
    label: str
    unit: str
    """Unit that the slider counts in."""
    scale: float
    """SI units in one of these."""

    def sheet_value(self, soc: str) -> float:
        """Return what the data sheet says, in the slider's unit."""
        held: Any = machine(soc)
        for part in self.path.split("."):
            held = getattr(held, part)
        return float(held) / self.scale

    def values(self, soc: str) -> list[float]:
        """Return what the slider offers, the data sheet's own value among it."""
        own = self.sheet_value(soc)
        return sorted(
            {own, *(float(f"{own * share:.3g}") for share in (0.25, 0.5, 0.75, 1.5, 2.0, 3.0, 4.0))}
        )


KNOBS = (
    Knob("npu.sram.per_tile", "SRAM of a tile (KiB)", "KiB", 1024.0),
    Knob("npu.dpu.clock", "clock of the MAC grid (MHz)", "MHz", 1e6),
    Knob("npu.dsp.per_tile", "DSPs of a tile", "", 1.0),
    Knob("dram.bandwidth", "bandwidth of DRAM (GB/s)", "GB/s", 1e9),
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
    def name(self) -> str:
        """What pictures call it."""
        changed = ", ".join(self.settings)
        return f"{self.workload}, {self.stack}, {self.soc}{f' with {changed}' if changed else ''}"

    @property
    def command(self) -> str:
        """The command line that costs it."""
        words = ["npusim", "estimate", self.workload, "--soc", self.soc, "-t", self.stack]
        for setting in self.settings:
            words += ["--set", setting]
        return shlex.join(words)

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
            held = tree
            for section in (["devices"] if sections[0] == "npu" else []) + sections:
                held = held.setdefault(section, {})
            held[key] = {"value": value, "source": "explored"}
        return str(yaml.safe_dump(tree, sort_keys=False))

    @property
    def scenario(self) -> Scenario:
        """The question that it asks."""
        return _scenario(self)

    def estimate(self) -> Estimate:
        """Return what it costs."""
        return mapped_estimate(self.scenario.mapped)


@lru_cache(maxsize=64)
def _scenario(design: Design) -> Scenario:
    return Scenario(design.workload, machine(design.soc, *design.settings), techniques=design.stack)


def critical_steps(estimate: Estimate, most: int) -> list[tuple[str, float, str]]:
    """Return the launch and the operators on the critical path: name, time in s, unit.

    Parameters
    ----------
    estimate : Estimate
    most : int
        Operators that are named, the longest; what the others take is one step at the end.
    """
    path = [(one.name, one.critical_s, one.unit) for one in estimate.operators if one.critical_s]
    longest = set(sorted((time for _, time, _ in path), reverse=True)[:most])
    named = [step for step in path if step[1] in longest][:most]
    rest = sum(time for _, time, _ in path) - sum(time for _, time, _ in named)
    others = [(f"{len(path) - len(named)} more operators", rest, "several")] if len(path) > most else []
    return [("launch", estimate.launch_s, "launch"), *named, *others]


def offered() -> tuple[list[str], dict[str, str]]:
    """Return machines with Intel's NPU, and workloads that are quick to cost with their kind."""
    from npusim.arch import soc_names

    socs = [name for name in soc_names() if machine(name).has("npu") and name.startswith("core-ultra")]
    kinds = {name: load_spec(name).kind for name in workload_names()}
    return socs, {name: kind for name, kind in kinds.items() if not KINDS[kind].is_large}


def stacks_for(kind: str) -> tuple[str, ...]:
    """Return the technique stacks that are offered for a kind of workload."""
    return STACKS.get(kind, STACKS[""])
