"""The document of a comparison: technique stacks side by side, perhaps at several points."""

from typing import ClassVar, Literal

from pydantic import Field

from npusim.documents import Part
from npusim.engines import document_head as head
from npusim.engines.estimate import Compilation, DramByKind
from npusim.studies.elasticity import Elasticity, PerfectScheduler


class Compared(Part):
    """Figures of a network, compared with those of the baseline."""

    latency_s: head.Latency
    throughput_per_s: head.Throughput
    energy_j: head.Energy
    energy_interval_j: head.EnergyInterval = None
    dram_bytes: head.DramBytes
    speedup_throughput: float
    """Throughput over that of the baseline."""
    speedup_interval: head.Interval | None
    """90 % interval of the speed-up in throughput (with one request in flight: in latency too)."""
    latency_interval_s: head.LatencyInterval
    rests_on: head.RestsOn | None = None
    """The uncertain number that carries more than half of its latency; null where there is none."""
    bound: head.Bound


class _Stack(Part):
    techniques: head.Techniques
    stack: str
    """The stack as compared across points: without the quantgr that workload.precision=int8 adds."""
    at: dict[str, str]
    """Settings of the point; empty where there is only one."""


class Variant(Compared, _Stack):
    """One technique stack, compared with the baseline."""

    dram: DramByKind = Field(default_factory=DramByKind)
    """Bytes of DRAM by kind."""
    sram_peak_bytes: float
    """Most SRAM in use at any time, in bytes."""
    speedup_latency: float
    """Latency of the baseline over that of this stack."""
    speedup_uncertain_by: dict[str, float]
    """Share of the interval's variance by number of the data sheet."""
    step_from: str | None
    """The stack before this one that it adds most to; null where there is none."""
    step_speedup: float | None
    """Throughput of this stack over that of `step_from`: what its further techniques give."""
    step_interval: head.Interval | None
    """90 % interval of `step_speedup`; what both stacks share cancels."""
    step_uncertain_by: dict[str, float]
    """Share of the variance of `step_interval` by number of the data sheet."""
    launch_s: float | None = None
    """Time of launching in an inference, in s; part of the latency."""
    launches: int = 1
    """Calls of runtimes in an inference."""
    compilation: Compilation | None = None
    """Time and memory of compiling; null where no NPU of the SoC says what compiles for it."""
    kept_in_sram: dict[str, float]
    """Share of each tensor that cacheg keeps in SRAM across layers."""
    dominated_by: str | None
    """A stack with the same results that dominates it in time, energy and DRAM traffic; null: none."""
    accuracy: float | None = None
    """Share of test nodes that the trained model classifies correctly; null where it was not asked for."""


class _OnDevice(Part):
    device: str
    """npu, cpu or gpu."""


class Untouched(Compared, _OnDevice):
    """The network without any technique on one device of the SoC."""


class Skipped(Part):
    """A stack that this network does not allow, or that cannot run at a point."""

    techniques: str
    """The stack as asked for."""
    reason: str
    """Why not."""
    at: dict[str, str] = Field(default_factory=dict)
    """Settings of the point."""


class Crossover(Part):
    """Two stacks whose order of speed reverses along an axis."""

    axis: str
    """Path of the setting that changes."""
    at: dict[str, str]
    """The other settings."""
    first: str
    """Stack that is faster at the first of the two values."""
    then: str
    """Stack that is faster at the second."""
    between: tuple[str, str]
    """Neighbouring values of the axis."""
    near: str | None
    """Value at which they are equally fast, by bisection; null for an axis without numbers."""


class WhatIf(head.RunConditions, head.OnMachine):
    """A comparison of technique stacks on one workload and one SoC."""

    MAIN_TABLE: ClassVar[str] = "variants"

    schema_: Literal["npusim.whatif/1"] = Field("npusim.whatif/1", alias="schema")
    baseline: str
    """Stack that speed-ups refer to."""
    devices: list[Untouched] = Field(default_factory=list)
    """The network without techniques on each device that can run it; empty with `over`."""
    over: dict[str, list[str]]
    """Settings that were varied, with their values; empty where none was."""
    variants: list[Variant]
    """One entry per stack, in the order asked for; with `over`, point after point."""
    skipped: list[Skipped]
    """Stacks that cannot be applied, with the reason."""
    left_out: str = ""
    """Techniques that no default stack has, by reason; empty where stacks were asked for."""
    tried: list[Elasticity] = Field(default_factory=list)
    """What more of each resource saves with the best stack, the most helpful first; empty with `over`."""
    scheduler: PerfectScheduler | None = None
    """The best stack under a compiler that schedules all that npusim knows; null unless asked for."""
    crossovers: list[Crossover]
    """Where two stacks change places along an axis of `over`."""
    notes: head.Notes
    conclusion: str
    """One sentence: what bounds the best variant, or which stack is best where."""

    def at(self, settings: dict[str, str]) -> list[Variant]:
        """Return the variants of one point."""
        return [variant for variant in self.variants if variant.at == settings]

    @property
    def points(self) -> list[dict[str, str]]:
        """The points in order; one point without settings if nothing was varied."""
        return list({tuple(variant.at.items()): variant.at for variant in self.variants}.values())
