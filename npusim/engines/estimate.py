"""The document of an estimate: cost of one inference, where the time goes, and what it rests on."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from npusim.documents import Part
from npusim.engines.document_head import ByEngine, RunConditions
from npusim.errors import ConfigError
from npusim.graph import Phase
from npusim.mapping import MemoryUse

if TYPE_CHECKING:
    from npusim.engines.timeline import Timeline


class UnitUse(Part):
    """How busy a unit is during one inference."""

    busy_s: float
    """Time the unit works, in s; DPUs and DSPs: of the tiles that the inference uses."""
    utilisation: float
    """Busy time over the interval between inferences; of DPUs and DSPs, over interval times contexts."""


class EnergyOfWork(Part):
    """Energy of work beyond idle power, by part, in J."""

    mac_j: float
    """Multiply-accumulates and other work of the MAC grid."""
    sram_j: float
    """Bytes read and written in the NPU's SRAM, and in memory levels between it and DRAM."""
    dram_j: float
    """Bytes that the NPU moves to and from DRAM."""
    dsp_j: float
    """Operations of the DSPs."""
    cpu_j: float
    """The CPU at work, with its memory traffic."""
    gpu_j: float
    """The GPU at work, with its memory traffic."""


class EnergyByPart(EnergyOfWork):
    """Energy of one inference by part, in J; the parts sum to the energy of the package."""

    static_j: float
    """Leakage, fabric, controller and clock tree of the NPU while it works."""
    idle_j: float
    """Idle power of all devices of the package, from one inference to the next."""


class DramByKind(Part):
    """Bytes moved to and from DRAM by what they are; the kinds sum to the traffic.

    Stored bytes count: those of the non-zeros and bitmaps of a tensor that is moved packed. Bytes that a
    memory level serves are deducted from what is read again and read back in proportion.
    """

    compulsory_weights_bytes: float = 0.0
    """Constants, each once: no mapping avoids them."""
    compulsory_activations_bytes: float = 0.0
    """Inputs, outputs and states of the network, each once."""
    refetched_bytes: float = 0.0
    """Read before: by tiling within the operator, or by another operator."""
    spilled_bytes: float = 0.0
    """Intermediate results, written to DRAM and read back once."""

    @property
    def compulsory_bytes(self) -> float:
        """Bytes that no mapping avoids."""
        return self.compulsory_weights_bytes + self.compulsory_activations_bytes


class Mapping(Part):
    """How an operator is mapped to the NPU, as the search chose it."""

    split: Literal["rows", "columns", "single"]
    """How it is spread over tiles: output rows (pixels), output columns (channels), or all on one tile."""
    tiles: int
    """Tiles that work on it."""
    mpe_mode: str | None
    """MPE mode of a product or convolution, by its name in the data sheet; null for other operators."""
    order: Literal["weights_held", "activations_held", "outputs_held"] | None
    """Loop order of a product: the operand that is stationary in SRAM; null where all stream through once."""
    rows: int
    """Output rows (pixels) of the busiest tile, per batch element; elements of other operators."""
    columns: int
    """Output columns (channels) of the busiest tile."""
    depth: int
    """Input channels that are summed; 1 for other operators."""
    row_blocks: int
    """Blocks of a tile's rows in each strip, one after the other."""
    column_blocks: int
    """Blocks of a tile's columns."""
    depth_blocks: int
    """Chunks of the input channels."""
    strips: int
    """Vertical strips of an image; 1 for a product."""
    buffers: int
    """Buffers of a stationary operand in several blocks; with 1, work waits for the next block."""
    bands: int = 1
    """Bands of rows that it runs in depth-first, each as the other fields say; tiles divide their columns."""
    segment: str = ""
    """First operator of the depth-first segment or row-wise fusion that it runs in; empty: it runs alone."""


class CriticalTime(Part):
    """What an operator's part of the critical path goes to, in s; the causes sum to it."""

    work_s: float
    """Its unit works: MAC grids, DSPs, CPU or GPU."""
    calls_s: float
    """The NPU's management processor is called, and work waits for that."""
    waits_s: float
    """Work waits for DMA; in a row-wise fusion also for the operator before. DMA alone: it moves bytes."""


class OperatorCost(Part):
    """Cost of one operator. Operators overlap: only `critical_s` adds up, to the latency less launches."""

    name: str
    """Name in the graph."""
    type: str
    """OpenVINO operation name."""
    region: str = ""
    """Path of its part of the network, as its builder or the model file names it."""
    block: str = ""
    """Block of the network: the path up to its first numbered part, such as `layer0` or `convs.1`."""
    phase: Phase = Phase.OTHER
    """Its role in a GNN, such as `aggregation` over neighbours, `combination` with weights, or `other`."""
    control_flow: bool = False
    """Whether values decide which elements it picks: comparisons, choices, gathers, scatters."""
    fused: list[str]
    """Operators fused into this one."""
    unit: str
    """Unit that runs it: npu.dpu, npu.dsp, npu.dma, cpu, gpu, or none for a view."""
    latency_s: float
    """Time from its start to its end, in s; by the analytical engine its time alone."""
    busy_s: float
    """Time that its busiest unit works on it, in s."""
    critical_s: float | None
    """Its part of the critical path, in s; with `launch_s` the latency. Null with several requests."""
    critical: CriticalTime | None = None
    """That part by cause; null with several requests."""
    span_s: float
    """Time from the start of its first transfer or work to the end of its last, in s, overlaps included."""
    energy_j: float
    """Energy of its work, beyond idle power, in J."""
    energy: EnergyOfWork
    """Energy of its work by part."""
    power_w: float
    """Mean power of the package while it runs alone, in W: its energy over its time, and idle power."""
    macs: float
    """Multiply-accumulates, zeros counted."""
    grid_utilisation: float | None
    """Mean share of the multipliers of all tiles in use that work; null for operators off the MAC grid."""
    precision: str
    """Format that it computes in; both formats of a mixed product, such as `fp16 x int4`."""
    part: str = ""
    """Its part, of a network that is compiled in parts."""
    repeats: int
    """Times that it runs in one inference, one after the other; other figures are totals over them."""
    mapping: Mapping | None
    """How it is mapped to the NPU; null on other devices and for a view."""
    dram_bytes: float
    """Bytes moved to and from DRAM."""
    dram_read_bytes: float
    """Bytes read from DRAM."""
    dram: DramByKind = Field(default_factory=DramByKind)
    """Bytes of DRAM by kind."""
    level_bytes: float = 0.0
    """Bytes that memory levels between SRAM and DRAM serve instead."""
    sram_read_bytes: float
    """Bytes that MAC grid, DSPs and DMA read from the NPU's SRAM."""
    sram_written_bytes: float
    """Bytes that MAC grid, DSPs and DMA write to the NPU's SRAM."""
    prefetched_bytes: float
    """Part of `dram_read_bytes` that idle DMA engines fetch during earlier operators."""
    swapped: bool
    """Whether the operands of a product changed places: the right one on the pixels, the left one weight."""
    bound: Literal["compute", "dma", "dsp", "launch", "level"]
    """Resource that limits it; `level`: a memory level, at whose rate the DMA engines transfer."""


class PartCost(Part):
    """Cost of one part of a network that is compiled and launched in parts."""

    name: str
    """Name of the part."""
    devices: list[str]
    """Devices that run it."""
    operators: int
    """Operators that do work."""
    launches: int
    """Calls of a device's runtime in an inference."""
    launch_s: float
    """Time of these calls, in s."""
    latency_s: float | None
    """Its part of the latency, with launches, in s; null with several requests in flight."""
    energy_j: float
    """Energy of its work, beyond idle power, in J."""
    dram_bytes: float
    """Bytes that it moves to and from DRAM."""
    constants_bytes: float
    """Weights and other constants that it reads, in bytes."""


class Compilation(Part):
    """What compiling a network for its NPU takes, by the data sheet of the compiler."""

    toolchain: str
    """Name of the compiler's data sheet."""
    models: int
    """Models that are compiled: one, or one for each part."""
    compile_s: float
    """Time to compile all, in s."""
    compile_interval_s: tuple[float, float]
    """90 % interval of the time to compile, in s."""
    memory_peak_bytes: float | None
    """Most memory in use while compiling, with earlier parts, in bytes; null where it is unknown."""
    memory_peak_interval_bytes: tuple[float, float] | None
    """90 % interval of the memory, in bytes."""
    largest_part: str
    """Part that takes most; empty of a network in one piece."""
    source: str
    """Where the memory comes from."""


class LanguageFigures(Part):
    """Figures per token of a language model, from one inference."""

    tokens: int
    """Tokens that the inference processes."""
    prompt_tokens: int
    """Tokens of the prompt."""
    token_s: float
    """Time of a token, in s."""
    tokens_per_s: float
    """Tokens a second."""
    energy_per_token_j: float
    """Energy of the package for a token, in J."""
    time_to_first_token_s: float
    """Time to the first new token, in s: of all inferences that the prompt needs."""


class Ceiling(Part):
    """Highest rate of a unit: operations per second in a format, or bytes per second at a memory level."""

    name: str
    """What pages call it, such as `npu.dpu int8` or `npu DRAM`."""
    unit: str
    """Unit whose work it bounds: npu.dpu, npu.dsp, cpu, gpu; npu for both of the NPU's."""
    precision: str | None = None
    """Format of the operations; null for memory, and for a unit that has one rate for all."""
    level: str | None = None
    """Memory level: sram, dram, cache, or the name of a level between SRAM and DRAM; null for arithmetic."""
    ops_per_s: float | None = None
    """Operations a second; null for memory."""
    bytes_per_s: float | None = None
    """Bytes a second; null for arithmetic."""


class RooflinePoint(Part):
    """One operator between the ceilings."""

    operator: str
    """Name of the operator."""
    unit: str
    """Unit that runs it."""
    precision: str
    """Format that it computes in."""
    ops: float
    """Operations that are carried out, skipped zeros left out."""
    ops_per_s: float
    """Rate attained over its time."""
    intensity: dict[str, float]
    """Operations for each byte, by memory level that it moves bytes through."""
    ceiling_ops_per_s: float
    """The lowest ceiling at these intensities."""
    limit: str
    """Name of the lowest ceiling."""


class Roofline(Part):
    """Ceilings and points; the tiles that an inference uses, all cores that work."""

    ceilings: list[Ceiling]
    """Ceilings of every device of the machine."""
    points: list[RooflinePoint]
    """Operators that compute, in order of execution."""


RUNNING_MEAN = "power limit"
"""Name of the limit of the running mean of the power."""


class Moment(Part):
    """Power and heat at a time after the start from idle."""

    time_s: float
    """Time, in s."""
    power_w: float
    """Mean power of the package from then on, in W."""
    figures: dict[str, float]
    """What is limited: the running mean of the power in W, temperatures above that of the room in K."""


class Sustained(Part):
    """A network that runs again and again from idle: the burst, and what follows."""

    burst_per_s: float
    """Inferences per second during the burst."""
    burst_w: float
    """Mean power of the package during the burst, in W."""
    burst_s: float | None
    """Length of the burst, in s; null where it never ends."""
    ends_by: str
    """What ends it: power limit, die or skin; empty where it never ends."""
    held_by: str
    """What limits the power in the end; empty where nothing does."""
    throughput_per_s: float
    """Inferences per second after it."""
    power_w: float
    """Mean power of the package after it, in W."""
    energy_j: float
    """Energy of the package for one inference after it, pauses included, in J."""
    intervals: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """90 % intervals of figures by name, where asked for; none of a burst that never ends on some machine."""
    course: list[Moment] = Field(default_factory=list)
    """Power and heat from the start until all is steady."""


class SplitWay(Part):
    """A network over several equal devices, divided in one way."""

    name: str
    """one device; requests: each device runs whole inferences; rows, channels: each has its share of every
    operator; layers: one follows the other."""
    latency_s: float
    """Time of an inference, in s."""
    throughput_per_s: float
    """Inferences per second: by requests and layers with an inference in flight for each device or more."""
    energy_j: float
    """Energy of an inference, all devices and the idle package, in J."""
    dram_bytes: float
    """DRAM traffic of an inference, all devices, in bytes."""
    exchanged_bytes: float = 0.0
    """Bytes of it that devices read of each other's results."""
    exchanges: int = 0
    """How often they do so; each time another part of the network is launched."""


class Divided(Part):
    """A network over several devices of a kind."""

    devices: list[str]
    """The devices."""
    requests: int
    """Inferences in flight by requests and layers."""
    ways: list[SplitWay]
    """The ways to divide it; a way that divides nothing is left out."""
    chosen: str
    """The way of least latency with one request, of most throughput with several."""


class Estimate(RunConditions, ByEngine):
    """The cost of one inference of a workload on a SoC; SI units throughout."""

    schema_: Literal["npusim.estimate/1"] = Field("npusim.estimate/1", alias="schema")
    """Version of this document."""
    latency_s: float
    """Time from the start of an inference to its end, in s."""
    launch_s: float
    """Part of the latency for calls of runtimes, in s."""
    dispatch_s: float = 0.0
    """Time of calls of the NPU's management processor, in s, as part of operators' times."""
    latency_interval_s: tuple[float, float] | None
    """90 % interval of the latency; null unless requested or the SoC was fitted to measurements."""
    intervals: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """90 % intervals of other metrics by name, in the metric's unit; empty where the latency has none."""
    throughput_per_s: float
    """Inferences per second in steady state."""
    energy_j: float
    """Energy of the package for one inference, with idle devices and memory traffic, in J."""
    energy: EnergyByPart
    """Energy of the package by part."""
    power_w: float
    """Mean power of the package, in W."""
    peak_power_w: float
    """Highest mean power over an operator, in W; with several inferences in flight the sum over devices."""
    edp_js: float
    """Energy-delay product: energy times latency, in J s."""
    ops_per_j: float
    """Operations per joule, two for a multiply-accumulate; 1e12 are one TOPS/W."""
    area_mm2: float
    """Area of the NPU, in mm2."""
    dram_bytes: float
    """Bytes that an inference moves to and from DRAM."""
    dram_read_bytes: float
    """Bytes read from DRAM."""
    dram: DramByKind = Field(default_factory=DramByKind)
    """Bytes of DRAM by kind."""
    level_bytes: float = 0.0
    """Bytes that memory levels between the NPU's SRAM and DRAM serve instead."""
    sram_traffic_bytes: float
    """Bytes that an inference reads and writes in the NPU's SRAM."""
    sram_read_bytes: float
    """Bytes read from the NPU's SRAM."""
    sram_peak_bytes: float
    """Most SRAM in use at any time, over the tiles that an inference uses, in bytes."""
    memory: MemoryUse
    """DRAM that it occupies."""
    resident_bytes: float
    """Weights that stay in SRAM from one inference to the next, in bytes."""
    macs: float
    """Multiply-accumulates of an inference, zeros counted."""
    grid_utilisation: float
    """Mean share of the multipliers of all tiles in use that work; 0 without work for the MAC grid."""
    precision: str
    """Formats of its products, the one with most work first."""
    source_precision: str | None
    """Widest floating-point format of the model file, compiled to `precision`; null without a file."""
    units: dict[str, UnitUse]
    """Use of each unit by name."""
    operators: list[OperatorCost]
    """One entry per operator, in order of execution."""
    parts: list[PartCost] = Field(default_factory=list)
    """One entry per part, in order; empty for a network that is compiled as one."""
    compilation: Compilation | None = None
    """Time and memory of compiling; null where no NPU of the SoC names its compiler."""
    language: LanguageFigures | None = None
    """Figures per token of a language model; else null."""
    roofline: Roofline
    """Rates of the operators and their bounds."""
    sustained: Sustained | None = None
    """Burst and sustained throughput under the limits of the package; null unless requested."""
    divided: Divided | None = None
    """The network over several devices of a kind; null unless requested."""
    folded_tasks: float = 0.0
    """Tasks that the event engine did not simulate, as they repeat others (`--every-tile`)."""
    warnings: list[str]
    """Deviations from what one would expect."""
    provenance: dict[str, Any]
    """What the estimate rests on."""

    @property
    def pace_s(self) -> float:
        """Time of an inference, in s: its latency, or with several in flight the time between two."""
        return self.latency_s if self.requests == 1 else 1.0 / self.throughput_per_s

    @property
    def all_intervals(self) -> dict[str, tuple[float, float]]:
        """90 % intervals of metrics by name, the latency's first."""
        own = {} if self.latency_interval_s is None else {"latency_s": self.latency_interval_s}
        return own | self.intervals

    @property
    def bound(self) -> str:
        """The unit that is busy the largest share of the time.

        Where these are DMA engines, and operators that wait for a memory level keep them busy longer than
        other operators that are bound by DMA, it is the busiest level of the device.
        """
        use = {name: unit.utilisation for name, unit in self.units.items()}
        levels = [name for name in use if "." in name and not name.endswith((".dpu", ".dsp", ".dma"))]
        busiest = max(use.keys() - set(levels), key=lambda name: use[name], default="")
        device = busiest.removesuffix("dma")
        paced_s = {"dma": 0.0, "level": 0.0}
        for op in self.operators:
            if op.unit.startswith(device) and op.bound in paced_s:
                paced_s[op.bound] += op.busy_s
        own = [name for name in levels if busiest.endswith(".dma") and name.startswith(device)]
        return max(own, key=lambda name: use[name]) if own and paced_s["level"] > paced_s["dma"] else busiest

    @cached_property
    def timeline(self) -> Timeline:
        """The time line of the event engine's run; not part of the JSON document.

        Raises
        ------
        ConfigError
            Where the estimate is of the analytical engine, or was read from a file.

        Examples
        --------
        >>> import npusim
        >>> estimate = npusim.estimate("gcn-cora", techniques="stagr", engine="event")
        >>> estimate.timeline.makespan_s == estimate.latency_s
        True
        """
        raise ConfigError(
            f"an estimate of the {self.engine} engine without a time line",
            allowed='estimate(..., engine="event"), whose result has one until it is stored',
        )

    def plot(self) -> Any:
        """Return the time of each operator, by unit, as a plotly figure.

        Examples
        --------
        >>> import npusim
        >>> figure = npusim.estimate("gcn-cora", techniques="stagr").plot()
        >>> [bars.name for bars in figure.data]
        ['npu.dpu', 'npu.dsp']
        """
        figure = import_module("plotly.graph_objects").Figure()
        for unit in dict.fromkeys(op.unit for op in self.operators if op.latency_s > 0.0):
            operators = [op for op in self.operators if op.unit == unit]
            times_ms = [op.latency_s * 1e3 for op in operators]
            figure.add_bar(name=unit, orientation="h", x=times_ms, y=[op.name for op in operators])
        order = {"categoryorder": "array", "categoryarray": [op.name for op in reversed(self.operators)]}
        figure.update_layout(
            title=f"{self.workload} on {self.soc}, {self.techniques}",
            xaxis_title="time of the operator (ms)",
            yaxis=order,
            legend_title="unit",
        )
        return figure
