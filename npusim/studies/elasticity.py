"""Elasticity of the time of an inference to each resource of the machine.

The network is mapped and estimated again on each slightly better machine; no formula is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

from npusim.arch import with_overrides
from npusim.config import SET_BY_STUDY, parse_override
from npusim.documents import Part
from npusim.engines.estimate import Estimate
from npusim.scenario import Scenario

STEP = 0.10
"""How much more of a resource is tried, where it can be had in parts."""

Engine = Callable[[Scenario], Estimate]
"""What estimates a scenario."""


class Elasticity(Part):
    """What a little more of one resource gives."""

    resource: str
    """What is changed, in words."""
    setting: str
    """The change as `--set` or `--tiles` would make it."""
    more: float
    """Relative change of the resource, 0.1 for 10 % more."""
    seconds: float
    """Time of an inference with it, in s: latency, or with several in flight the time between two."""
    gain: float
    """Share of the time that it saves; negative where it costs."""

    @property
    def elasticity(self) -> float:
        """Elasticity: percent of time saved per percent more of the resource; 0 to 1."""
        return self.gain / self.more


_UNITS = {"GB/s": 1e9, "MHz": 1e6, "KiB": 1024.0, "us": 1e-6}
_DRAM = ("DRAM bandwidth", "dram.bandwidth", "GB/s", lambda soc: soc.dram.bandwidth)
_CPU = (
    ("CPU clock", "cpu.clock", "MHz", lambda soc: soc.cpu.clock),
    ("DRAM bandwidth of the CPU", "cpu.dram_bandwidth", "GB/s", lambda soc: soc.cpu.dram_bandwidth),
)
_PARTS = (
    ("DPU clock", "npu.dpu.clock", "MHz", lambda soc: soc.npu.dpu.clock),
    ("clock of DSPs and DMA", "npu.vpu_clock", "MHz", lambda soc: soc.npu.vpu_clock),
    ("SRAM of a tile", "npu.sram.per_tile", "KiB", lambda soc: soc.npu.sram.per_tile),
)
_PIECES = (
    ("DSPs of a tile", "npu.dsp.per_tile", lambda soc: soc.npu.dsp.per_tile),
    ("DMA engines", "npu.dma.engines", lambda soc: soc.npu.dma.engines),
)


def elasticities(scenario: Scenario, engine: Engine) -> list[Elasticity]:
    """Try a little more of each resource.

    Returns
    -------
    list of Elasticity
        The most helpful first.
    """
    before = _seconds(engine(scenario))
    found = []
    for words, setting, more, changed in _changes(scenario):
        after = _seconds(engine(changed))
        gain = 1.0 - after / before if before else 0.0
        found.append(Elasticity(resource=words, setting=setting, more=more, seconds=after, gain=gain))
    return sorted(found, key=lambda e: (-e.elasticity, e.resource))


def _seconds(estimate: Estimate) -> float:
    if estimate.requests == 1:
        return estimate.latency_s
    return 1.0 / estimate.throughput_per_s if estimate.throughput_per_s < inf else 0.0


def _changes(scenario: Scenario) -> list[tuple[str, str, float, Scenario]]:
    """List (words, setting, relative change, scenario) of every change that the machine allows."""
    soc, run = scenario.machine, scenario.run
    # What the hint chose stays, so that the machine alone changes.
    fixed = scenario.with_(requests=run.requests, tiles=run.tiles or None)
    found: list[tuple[str, str, float, Scenario]] = []

    def add(words: str, path: str, text: str, more: float, on: Scenario = fixed) -> None:
        kind, _, number = path.partition(".")
        path = f"{soc.named(kind) or kind}.{number}"
        setting = replace(parse_override(f"{path}={text}"), source=SET_BY_STUDY)
        found.append((words, setting.origin, more, on.on(with_overrides(soc, [setting]))))

    parts: list[tuple[str, str, str, Callable[[Any], Any]]] = [_DRAM]
    devices = {op.device for op in scenario.graph} | {run.device}
    if not soc.has("npu"):
        parts += _CPU if soc.has("cpu") else ()
    elif "cpu" in devices and soc.has("cpu"):
        parts.append(_CPU[0])
    parts += _PARTS if soc.has("npu") else ()
    for words, path, unit, value in parts:
        add(words, path, _text(float(value(soc)) * (1.0 + STEP), unit), STEP)
    if not soc.has("npu"):
        return found
    for words, path, value in _PIECES:
        count = int(value(soc))
        add(words, path, str(count + 1), 1.0 / count)
    shorter = float(soc.npu.launch_overhead) * (1.0 - STEP)
    if run.requests == 1 and shorter > 0.0:
        add("shorter launch", "npu.launch_overhead", _text(shorter, "us"), STEP)
    wider = fixed.with_(tiles=run.tiles + 1)
    if run.tiles < int(soc.npu.tiles):
        found.append(("tiles", f"--tiles {run.tiles + 1}", 1.0 / run.tiles, wider))
    elif run.requests == 1:
        add("tiles", "npu.tiles", str(run.tiles + 1), 1.0 / run.tiles, wider)
    return found


def _text(value: float, unit: str) -> str:
    """A quantity as one would type it."""
    return f"{value / _UNITS[unit]:.6g}{unit}"
