"""Elasticity of the time of an inference to each resource of the machine.

The network is mapped and estimated again on each slightly better machine; no formula is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from npusim.arch import Soc, with_overrides
from npusim.engines.estimate import Estimate
from npusim.graph import Graph
from npusim.mapping import Run

__all__ = ["STEP", "Elasticity", "elasticities"]

STEP = 0.10
"""How much more of a resource is tried, where it can be had in parts."""

Estimator = Callable[..., Estimate]
"""An engine: (graph, soc, hint=, requests=, tiles=, device=, swap_operands=) to an estimate."""


@dataclass(frozen=True, slots=True)
class Elasticity:
    """What a little more of one resource gives."""

    resource: str
    """What is changed, in words."""
    setting: str
    """The change as `--set` or `--tiles` would make it."""
    more: float
    """Relative change of the resource, 0.1 for 10 % more."""
    seconds: float
    """Time of an inference with it: latency, or the interval between inferences where several are in flight
    (s).
    """
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


def elasticities(graph: Graph, soc: Soc, run: Run, engine: Estimator) -> list[Elasticity]:
    """Try a little more of each resource.

    Parameters
    ----------
    graph : Graph
    soc : Soc
    run : Run
    engine : callable
        What estimates: `npusim.engines.estimate`, or the event engine.

    Returns
    -------
    list of Elasticity
        The most helpful first.
    """
    before = _seconds(engine, graph, soc, run)
    found = []
    for words, setting, more, machine, tiles in _changes(graph, soc, run):
        changed = Run(run.hint, run.requests, tiles, run.device, run.swap_operands)
        after = _seconds(engine, graph, machine, changed)
        found.append(Elasticity(words, setting, more, after, 1.0 - after / before if before else 0.0))
    return sorted(found, key=lambda e: (-e.elasticity, e.resource))


def _seconds(engine: Estimator, graph: Graph, soc: Soc, run: Run) -> float:
    estimate = engine(
        graph, soc, hint=run.hint, requests=run.requests, tiles=run.tiles, device=run.device,
        swap_operands=run.swap_operands,
    )  # fmt: skip
    if run.requests == 1:
        return estimate.latency_s
    return 1.0 / estimate.throughput_per_s if estimate.throughput_per_s < inf else 0.0


def _changes(graph: Graph, soc: Soc, run: Run) -> list[tuple[str, str, float, Soc, int]]:
    """List (words, setting, relative change, machine, tiles) of every change that the machine allows."""
    found: list[tuple[str, str, float, Soc, int]] = []

    def add(words: str, path: str, text: str, more: float) -> None:
        found.append(
            (words, f"--set {path}={text}", more, with_overrides(soc, [f"{path}={text}"]), run.tiles)
        )

    parts: list[tuple[str, str, str, Callable[[Any], Any]]] = [_DRAM]
    devices = {op.device for op in graph} | {run.device}
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
    if run.tiles < int(soc.npu.tiles):
        found.append(("tiles", f"--tiles {run.tiles + 1}", 1.0 / run.tiles, soc, run.tiles + 1))
    return found


def _text(value: float, unit: str) -> str:
    """A quantity as one would type it."""
    return f"{value / _UNITS[unit]:.6g}{unit}"
