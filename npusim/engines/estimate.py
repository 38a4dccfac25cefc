"""The document of an estimate: what one inference costs, where the time goes, and what it rests on."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from npusim.documents import Document, Part
from npusim.mapping import MemoryUse


class UnitUse(Part):
    """How busy a unit is during one inference."""

    busy_s: float
    """Time the unit works, in s; DPUs and DSPs: those of the tiles that the inference uses."""
    utilisation: float
    """Share of the time that it works: busy time over the interval between two inferences; of DPUs and DSPs,
    which each context has, over the interval times the contexts."""


class OperatorCost(Part):
    """What one operator costs. Operators overlap: only `critical_s` adds up, to the latency less launches."""

    name: str
    """Name in the graph."""
    type: str
    """OpenVINO operation name."""
    fused: list[str]
    """Operators that ride along."""
    unit: str
    """Unit that runs it: npu.dpu, npu.dsp, npu.dma, cpu, gpu, or none for a view."""
    latency_s: float
    """Time from its start to its end, in s: by the event engine `span_s`, by the analytical one the time that
    it takes with nothing else under way."""
    busy_s: float
    """Time that its busiest unit works on it, in s."""
    critical_s: float | None
    """Its part of the latency, in s: what lies on the critical path. Those of all operators and `launch_s`
    add up to the latency; null with several requests in flight, which wait for each other."""
    span_s: float
    """Time from the start of its first transfer or work to the end of its last, in s; others may run
    meanwhile."""
    energy_j: float
    """Dynamic energy, in J."""
    macs: float
    """Multiply-accumulates, zeros counted."""
    precision: str
    """Format that it computes in; of a product of two formats both, such as `fp16 x int4`."""
    repeats: int
    """Times that it runs in one inference, one after the other; all other figures are of all of them."""
    dram_bytes: float
    """Bytes moved to and from DRAM."""
    swapped: bool
    """Whether the operands of a product changed places: the right one on the pixels, the left one weight."""
    bound: Literal["compute", "dma", "dsp", "launch"]
    """What it waits for."""


class Estimate(Document):
    """The cost of one inference of a workload on a SoC; SI units throughout."""

    schema_: Literal["npusim.estimate/1"] = Field("npusim.estimate/1", alias="schema")
    """Version of this document."""
    workload: str
    """Name of the network."""
    soc: str
    """Name of the SoC."""
    techniques: str
    """Canonical technique stack."""
    engine: str
    """Engine that made the estimate."""
    hint: str
    """Performance hint: latency or throughput."""
    requests: int
    """Inferences in flight."""
    tiles: int
    """NPU tiles that an inference uses."""
    npu_tiles: int
    """Tiles of the NPU; 0 without one."""
    contexts: int
    """Inferences that the NPU works on side by side, each on tiles of its own."""
    latency_s: float
    """Time from the start of an inference to its end, in s."""
    launch_s: float
    """Part of the latency in which runtimes of devices are called, in s."""
    latency_interval_s: tuple[float, float] | None
    """90 % interval of the latency; null where nobody asked and the SoC was not fitted to measurements."""
    throughput_per_s: float
    """Inferences per second in steady state."""
    energy_j: float
    """Energy of one inference, in J."""
    area_mm2: float
    """Area of the NPU, in mm2."""
    dram_bytes: float
    """Bytes an inference moves to and from DRAM."""
    sram_peak_bytes: float
    """Most SRAM in use at any time, over the tiles that an inference uses, in bytes."""
    memory: MemoryUse
    """DRAM that it occupies."""
    macs: float
    """Multiply-accumulates of an inference, zeros counted."""
    precision: str
    """Formats of its products, the one with most work first."""
    source_precision: str | None
    """Widest floating-point format of the model file, compiled to `precision`; null without a file."""
    units: dict[str, UnitUse]
    """Use of each unit by name."""
    operators: list[OperatorCost]
    """One entry per operator, in order of execution."""
    warnings: list[str]
    """What the estimate could not do as one would expect."""
    provenance: dict[str, Any]
    """What the estimate rests on."""

    @property
    def bound(self) -> str:
        """The unit that is busy the largest share of the time."""
        return max(self.units, key=lambda name: self.units[name].utilisation)
