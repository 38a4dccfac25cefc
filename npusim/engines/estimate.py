"""The document of an estimate: what one inference costs, where the time goes, and what it rests on."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from npusim.documents import Document, Part
from npusim.engines.roofline import Roofline
from npusim.graph import Phase
from npusim.mapping import MemoryUse


class UnitUse(Part):
    """How busy a unit is during one inference."""

    busy_s: float
    """Time the unit works, in s; DPUs and DSPs: those of the tiles that the inference uses."""
    utilisation: float
    """Share of the time that it works: busy time over the interval between two inferences; of DPUs and DSPs,
    which each context has, over the interval times the contexts."""


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
    """The CPU at work, the memory traffic that it causes included."""
    gpu_j: float
    """The GPU at work, the memory traffic that it causes included."""


class EnergyByPart(EnergyOfWork):
    """Energy of one inference by part, in J; the parts sum to the energy of the package."""

    static_j: float
    """Leakage, fabric, controller and clock tree of the NPU while it works."""
    idle_j: float
    """Idle power of all devices of the package, from one inference to the next."""


class Mapping(Part):
    """How an operator is laid on the NPU, as the search chose it."""

    split: Literal["rows", "columns", "single"]
    """How it is spread over tiles: output rows (pixels), output columns (channels), or all on one tile."""
    tiles: int
    """Tiles that have a part in it."""
    mpe_mode: str | None
    """MPE mode of a product or convolution, by its name in the data sheet; null for what has none."""
    order: Literal["weights_held", "activations_held", "outputs_held"] | None
    """Loop order of a product or convolution: which operand waits in SRAM while the others stream past; null
    for what streams through once."""
    rows: int
    """Output rows (pixels) of the busiest tile, batch apart; elements where no product is made."""
    columns: int
    """Output columns (channels) of the busiest tile."""
    depth: int
    """Input channels that are summed up; 1 where no product is made."""
    row_blocks: int
    """Blocks that a tile's rows are worked in, one after the other: of each strip."""
    column_blocks: int
    """Blocks that a tile's columns are worked in."""
    depth_blocks: int
    """Chunks that the input channels stream in."""
    strips: int
    """Vertical strips that an image is cut into; 1 for a product."""


class OperatorCost(Part):
    """What one operator costs. Operators overlap: only `critical_s` adds up, to the latency less launches."""

    name: str
    """Name in the graph."""
    type: str
    """OpenVINO operation name."""
    region: str = ""
    """Path of the part of the network that it belongs to, as its builder or the model file names it."""
    block: str = ""
    """Block of the network: that path up to its first numbered part, such as `layer0` or `convs.1`."""
    phase: Phase = Phase.OTHER
    """What it does there: `preprocessing` follows from the edges alone; `attention` scores pairs,
    `aggregation` sums over neighbours, `combination` multiplies by weights, `activation` is elementwise
    behind; `other`."""
    control_flow: bool = False
    """Whether values decide what it picks, and where: comparisons, choices, gathers, scatters."""
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
    """Energy of its work, beyond idle power, in J."""
    energy: EnergyOfWork
    """That energy by part."""
    power_w: float
    """Mean power of the package while it works by itself, in W: its energy over its time, and idle power."""
    macs: float
    """Multiply-accumulates, zeros counted."""
    grid_utilisation: float | None
    """Share of the multipliers of all tiles in use that work, over its time; null where the MAC grid has no
    part in it."""
    precision: str
    """Format that it computes in; of a product of two formats both, such as `fp16 x int4`."""
    part: str = ""
    """Part of the network that it belongs to, of one that is compiled in parts."""
    repeats: int
    """Times that it runs in one inference, one after the other; all other figures are of all of them."""
    mapping: Mapping | None
    """How it is laid on the NPU; null on other devices and for a view."""
    dram_bytes: float
    """Bytes moved to and from DRAM."""
    dram_read_bytes: float
    """Of these, read."""
    level_bytes: float = 0.0
    """Bytes that memory levels between SRAM and DRAM serve instead."""
    sram_read_bytes: float
    """Bytes read in the NPU's SRAM, by MAC grid, DSPs and DMA."""
    sram_written_bytes: float
    """Bytes written in the NPU's SRAM by them."""
    swapped: bool
    """Whether the operands of a product changed places: the right one on the pixels, the left one weight."""
    bound: Literal["compute", "dma", "dsp", "launch"]
    """What it waits for."""


class PartCost(Part):
    """What one part of a network costs, of one that is compiled and launched in parts."""

    name: str
    """Name of the part."""
    devices: list[str]
    """Devices that run it."""
    operators: int
    """Operators that do work."""
    launches: int
    """Calls of a device's runtime in an inference."""
    launch_s: float
    """Time of these, in s."""
    latency_s: float | None
    """Its part of the latency, launches included, in s; null with several requests in flight."""
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
    """90 % interval of that, in s."""
    memory_peak_bytes: float | None
    """Most memory in use while a part is compiled, those compiled before included, in bytes; null where the
    data sheet does not tell."""
    memory_peak_interval_bytes: tuple[float, float] | None
    """90 % interval of that, in bytes."""
    largest_part: str
    """Part that takes most; empty of a network in one piece."""
    source: str
    """Where the memory comes from."""


class LanguageFigures(Part):
    """What a user of a language model sees, from one inference."""

    tokens: int
    """Tokens that the inference takes in."""
    prompt_tokens: int
    """Tokens of the prompt."""
    token_s: float
    """Time of a token, in s."""
    tokens_per_s: float
    """Tokens a second."""
    energy_per_token_j: float
    """Energy of the package for a token, in J."""
    time_to_first_token_s: float
    """Time until the first new token is known, in s: as many inferences as the prompt needs, one where the
    model takes it in at once."""


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
    """NPU tiles that an inference uses; 0 where the NPU has no part in it."""
    npu_tiles: int
    """Tiles of the NPU; 0 without one."""
    contexts: int
    """Inferences that the NPU works on side by side, each on tiles of its own."""
    latency_s: float
    """Time from the start of an inference to its end, in s."""
    launch_s: float
    """Part of the latency in which runtimes of devices are called, in s."""
    dispatch_s: float = 0.0
    """Time of all calls of the NPU's management processor in an inference, in s: part of the operators'
    times, while no unit works (`npu.dispatch_overhead`)."""
    latency_interval_s: tuple[float, float] | None
    """90 % interval of the latency; null where nobody asked and the SoC was not fitted to measurements."""
    throughput_per_s: float
    """Inferences per second in steady state."""
    energy_j: float
    """Energy of the package for one inference, idle devices and memory traffic included, in J."""
    energy: EnergyByPart
    """That energy by part."""
    power_w: float
    """Mean power of the package, in W."""
    peak_power_w: float
    """Highest mean power over an operator, in W; of each device's highest together where several inferences
    are in flight."""
    edp_js: float
    """Energy-delay product: energy times latency, in J s."""
    ops_per_j: float
    """Operations per joule, two for a multiply-accumulate; 1e12 are one TOPS/W."""
    area_mm2: float
    """Area of the NPU, in mm2."""
    dram_bytes: float
    """Bytes an inference moves to and from DRAM; inputs, constants and results at least, but for what stays
    in the NPU's SRAM."""
    dram_read_bytes: float
    """Of these, read."""
    level_bytes: float = 0.0
    """Bytes that memory levels between the NPU's SRAM and DRAM serve instead."""
    sram_traffic_bytes: float
    """Bytes that an inference reads and writes in the NPU's SRAM."""
    sram_read_bytes: float
    """Of these, read."""
    sram_peak_bytes: float
    """Most SRAM in use at any time, over the tiles that an inference uses, in bytes."""
    memory: MemoryUse
    """DRAM that it occupies."""
    macs: float
    """Multiply-accumulates of an inference, zeros counted."""
    grid_utilisation: float
    """Share of the multipliers of all tiles in use that work, from one inference to the next; 0 without work
    for the MAC grid."""
    precision: str
    """Formats of its products, the one with most work first."""
    source_precision: str | None
    """Widest floating-point format of the model file, compiled to `precision`; null without a file."""
    units: dict[str, UnitUse]
    """Use of each unit by name."""
    operators: list[OperatorCost]
    """One entry per operator, in order of execution."""
    parts: list[PartCost] = Field(default_factory=list)
    """One entry per part, in order, of a network that is compiled in parts; else empty."""
    compilation: Compilation | None = None
    """Time and memory of compiling; null where no NPU of the SoC says what compiles for it."""
    language: LanguageFigures | None = None
    """Figures by the token, of a language model; else null."""
    roofline: Roofline
    """Rates of the operators and what bounds them."""
    folded_tasks: float = 0.0
    """Tasks of equal steps that the event engine did not act out, as they repeat others (`--every-tile`)."""
    warnings: list[str]
    """What the estimate could not do as one would expect."""
    provenance: dict[str, Any]
    """What the estimate rests on."""

    @property
    def bound(self) -> str:
        """The unit that is busy the largest share of the time."""
        return max(self.units, key=lambda name: self.units[name].utilisation)
