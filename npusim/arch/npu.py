"""NPUs: tiles of a MAC grid, SRAM and DSPs, fed by DMA engines; accelerators are NPUs without fitted parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from npusim.arch.array import OUTER_LEVELS, ArrayShape, LevelName, OuterLevel
from npusim.arch.device import (
    DeviceName,
    FusedOpName,
    OpName,
    PackedWeights,
    PerHint,
    StateHandling,
    check_at_most,
)
from npusim.arch.dpu import Dpu, DpuMode, DpuModel, EnergyFactors, Grid
from npusim.arch.dsp import Dsp
from npusim.arch.power import NpuPower, rated_power
from npusim.config import Section
from npusim.units import (
    Bytes,
    BytesOrZero,
    BytesPerCycle,
    Count,
    Cycles,
    Duration,
    Fraction,
    Frequency,
    Informative,
    PositiveCount,
    PositiveFraction,
    Quantity,
    TileCount,
    Voltage,
    refuse,
)


class NpuPoint(Section):
    """Clocks and voltage an NPU can run at."""

    dpu_clock: Frequency
    """Clock of the MAC grid."""
    vpu_clock: Frequency
    """Clock of DSPs, SRAM and DMA."""
    voltage: Voltage
    """Supply voltage."""


class Sram(Section):
    """The SRAM (Intel: CMX) of one tile."""

    per_tile: Bytes
    """Bytes of a tile that tensors may use."""
    reserved: BytesOrZero
    """Bytes of a tile that firmware keeps; they count for area only."""
    word: Bytes
    """Bytes of one word: reads and writes are whole words."""
    read_ports: PositiveCount
    """Words the DPU can read in a cycle."""
    holds_results: bool = True
    """Whether results may wait in it for the next operator. False: each one leaves for DRAM."""


_WHOLE_ROWS = "suites of transfers read it; what an estimate writes or copies lies in one piece"


class DmaModel(Section):
    """Parameters of one generation of engines; cycles are of the VPU clock."""

    start_cycles: Cycles
    """Fetching a descriptor and starting an engine."""
    dram_read_latency_s: Duration
    """Wait for the first bytes out of DRAM."""
    dram_write_latency_s: Duration
    """Wait for DRAM to take a write."""
    page_bytes: Bytes
    """Reads into SRAM beyond this size wait for address translation once."""
    page_walk_s: Duration
    """That wait."""
    ddr2cmx_share: Fraction
    """Share of an engine's width that reads from DRAM reach."""
    cmx2ddr_share: Fraction
    """Share of an engine's width that writes to DRAM reach."""
    cmx2cmx_share: Fraction
    """Share of an engine's width that copies within SRAM reach."""
    copy_buffer_bytes: BytesOrZero
    """A copy within SRAM moves this much at full width before its share applies."""
    ddr2cmx_row_cycles: Cycles
    """Gap before each further row read from DRAM."""
    cmx2ddr_row_cycles: Annotated[Cycles, Informative(_WHOLE_ROWS)]
    """Gap before each further row written to DRAM."""
    cmx2cmx_row_cycles: Annotated[Cycles, Informative(_WHOLE_ROWS)]
    """Gap before each further row copied within SRAM."""


class Dma(Section):
    """The engines that move data between DRAM and the SRAM of the tiles."""

    engines: PositiveCount
    """Engines that work at the same time and share the DRAM."""
    width: BytesPerCycle
    """Bytes an engine moves in a cycle of the VPU clock, at most."""
    model: DmaModel
    """Fitted parameters by direction."""


InPlaceName = Literal["concat", "split", "variadicsplit"]


class Schedule(Section):
    """What the compiler does by rule, without a search."""

    stream_pieces: PositiveCount
    """Pieces that an operator without a reduction over channels is cut into, so that DMA and work overlap."""
    in_place_ops: list[InPlaceName] = Field(default_factory=list)
    """Operators that move nothing where tensors can lie side by side in one buffer: producers write into the
    joined tensor, readers read parts of a split one."""
    in_place_alignment: Bytes = Quantity(1.0, "B", source="absent: any address")
    """Parts of a buffer start at multiples of this."""


class Sparsity(Section):
    """What the hardware can do with zeros (storage: a bitmap of one bit per element, and the non-zeros)."""

    decompress_weights: bool
    """Whether DMA and grid accept a compressed weight operand."""
    decompress_activations: bool
    """Whether DMA can bring in a compressed activation operand."""
    skip_weights: bool
    """Whether the grid skips zeros of the weight operand."""
    skip_activations: bool
    """Whether the grid skips zeros of the activation operand."""


class Symg(Section):
    """What the hardware would do with a matrix stored as a triangle."""

    transposed_read_rate: PositiveFraction
    """Rate at which a block is read transposed from SRAM, relative to reading it straight."""


ALL_TILES = "absent: all tiles"
"""Source of `tiles_for` where nobody said how many tiles are used."""


def _plain(value: Any) -> Any:
    """Return the number of a quantity of a file."""
    return value.get("value") if isinstance(value, Mapping) else value


class Npu(Section):
    """A neural processing unit of the DPU family."""

    kind: Literal["npu"]
    """Kind of device: npu."""
    title: str
    """Commercial name of the part."""
    like: Annotated[DeviceName | None, Informative("read with the file")] = None
    """Device of this SoC that this one starts from: what is left out here stands there."""
    ops: list[OpName] | None = Field(default=None, min_length=1)
    """Operator types it runs. None: all."""
    fallback: DeviceName | None = None
    """Device that runs what this one cannot: results pass from one to the other through DRAM. None: there is
    none, and a network that needs one is refused."""
    architecture: str
    """Generation: npu3720, npu4000, or a name of one's own."""
    tiles: TileCount
    """Tiles on the chip."""
    tiles_for: PerHint = Field(default=None)  # type: ignore[assignment]  # a validator fills it
    """Tiles a network is compiled for, by performance hint; never more than `tiles`. Absent, or where `tiles`
    is set and this is not: all of them, for throughput shared out among the contexts."""
    inflight_requests: PerHint
    """Inferences in flight, by performance hint."""
    contexts: TileCount = Count(1, source="absent: one")
    """Inferences that work side by side, each on tiles of its own: at most; no more than requests and tiles
    allow.
    """
    launch_overhead: Duration
    """Fixed time of one inference: driver, command queue, interrupt. Hidden where several are in flight."""
    dispatch_overhead: Duration = Quantity(0.0, "s", source="absent")
    """Fixed time of each operator that DSPs or DMA engines do by themselves, and of each requantisation that
    rides along with none: the management processor is called. Further requests do not hide it."""
    vpu_clock: Frequency
    """Clock of DSPs, SRAM and DMA engines."""
    voltage: Voltage
    """Supply voltage at these clocks; dynamic energy goes with its square."""
    operating_points: dict[DeviceName, NpuPoint]
    """Named clocks and voltages; `npu.operating_point=NAME` sets all three."""
    dpu: Dpu
    """The MAC grid of a tile."""
    dsp: Dsp
    """The DSPs of a tile."""
    sram: Sram
    """The SRAM of a tile."""
    dma: Dma
    """The DMA engines of the NPU."""
    schedule: Schedule
    """How the compiler cuts work."""
    sparsity: Sparsity
    """Which operands may be compressed, and whose zeros are skipped."""
    symg: Symg
    """Assumptions about SymG, which no hardware does yet."""
    power: NpuPower
    """Power beside that of the work."""
    levels: dict[LevelName, OuterLevel] = Field(default_factory=dict, max_length=OUTER_LEVELS)
    """Memory levels between the SRAM of the tiles and DRAM by name, nearest to the tiles first."""
    shared_level: LevelName | None = None
    """Level of the SoC's `levels` that lies outside these, and that other devices may use, too. None: there
    is none."""
    states: StateHandling = StateHandling()
    """How its runtime keeps states."""
    packed_weights: PackedWeights = PackedWeights()
    """Where it unpacks weights."""
    toolchain: str | None = None
    """Its compiler: a name of `configs/toolchains` or the path of a YAML file. None: time and memory of
    compiling are not told."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("tiles_for") is None and "tiles" in data:
            tiles, contexts = (_plain(data.get(key, 1)) for key in ("tiles", "contexts"))
            whole = isinstance(tiles, int) and isinstance(contexts, int) and contexts > 0
            each = {"latency": tiles, "throughput": max(1, tiles // contexts) if whole else tiles}
            data = data | {"tiles_for": {hint: {"value": n, "source": ALL_TILES} for hint, n in each.items()}}
        if isinstance(data, dict) and "power" in data:
            power = rated_power(data["power"], data.get("vpu_clock"), data.get("voltage"))
            data = data | {"power": power}
        return data

    @model_validator(mode="after")
    def _tiles_exist(self) -> Npu:
        check_at_most(self.tiles_for, self.tiles, "tiles", "tiles_for", "the chip's `tiles`")
        return self

    def tiles_used(self, hint: str) -> int:
        """Return the tiles a network is compiled for: those of `tiles_for`, as far as the chip has them."""
        return min(int(getattr(self.tiles_for, hint)), int(self.tiles))

    def peak_macs_per_s(self, dtype: str, tiles: int | None = None) -> float:
        """Return the multiply-accumulates a second of the grid in a format, on all tiles or on some."""
        return self.dpu.macs_per_cycle(dtype) * (self.tiles if tiles is None else tiles) * self.dpu.clock

    def sram_bytes(self, tiles: int | None = None) -> float:
        """Return the bytes of SRAM that tensors may use, on all tiles or on some."""
        return self.sram.per_tile * (self.tiles if tiles is None else tiles)


_ON_ARRAY = ("matmul", "convolution", "groupconvolution", "convolutionbackpropdata")


def _absent(value: Any) -> dict[str, Any]:
    """Return a number of a data sheet that leaves it out: what an array without fitted parts has."""
    return {"value": value, "source": "absent"}


def _all(value: Any, *names: str) -> dict[str, Any]:
    return dict.fromkeys(names, _absent(value))


_ONE_MODE = DpuMode.model_validate(_all(1, "groups_w", "groups_h", "groups_c"))


class ArrayUnit(Dpu):
    """A MAC array with its dataflow; no part of it is fitted."""

    array: ArrayShape
    """Axes of PEs, how operands reach them, and the memories between them and SRAM. `macs_per_mpe` are the
    multiply-accumulates of a PE."""
    grid: Grid = Grid.model_validate(_all(4, "vpe", "mpe") | _all("4 B", "accumulator"))
    """Groups that work is dealt out in where it is shared or fused by rows; bytes of a partial sum."""
    modes: dict[str, DpuMode] = Field(default_factory=lambda: {"array": _ONE_MODE})
    """An array has no stencils."""
    eltwise_ops: list[OpName] = Field(default_factory=list)
    """Elementwise operators that it runs by itself: none."""
    fused_ops: list[FusedOpName] = Field(default_factory=list)
    """What is applied to an output on its way to SRAM for nothing."""
    energy_factors: EnergyFactors = EnergyFactors.model_validate(_all(1.0, *EnergyFactors.model_fields))
    """Energy of a multiply-accumulate of depthwise work, relative to a convolution's."""
    model: DpuModel | None = None  # type: ignore[assignment]  # an NPU has one
    """None: nothing is fitted."""

    @model_validator(mode="after")
    def _nothing_of_the_grid(self) -> ArrayUnit:
        if self.dataflow == "grid":
            refuse("`grid`", "a dataflow of configs/dataflows.yaml, or one in place", at="dataflow")
        if self.model is not None:
            refuse("fitted parameters", "nothing: they are of an NPU's grid", at="model")
        if self.eltwise_ops:
            refuse(", ".join(self.eltwise_ops), "nothing: vector units run them", at="eltwise_ops")
        return self


class PlainDma(Dma):
    """Engines that move data at their width, as far as DRAM lets them."""

    model: DmaModel = DmaModel.model_validate(
        _all(1.0, "ddr2cmx_share", "cmx2ddr_share", "cmx2cmx_share")
        | _all("0 s", "dram_read_latency_s", "dram_write_latency_s", "page_walk_s")
        | _all("0 cycle", "start_cycles")
        | _all("0 cycle", "ddr2cmx_row_cycles", "cmx2ddr_row_cycles", "cmx2cmx_row_cycles")
        | _all("1e12 B", "page_bytes")
        | _all("0 B", "copy_buffer_bytes")
    )
    """Parameters by direction. Absent: no latency, no gaps, the full width."""


_NO_KERNELS = {"title": "no vector units", "reference_lanes": _absent(1), "kernels": {"unknown": {}}}
_NO_VECTOR_UNITS = {
    "per_tile": _absent(1),
    "lanes": {"fp16": _absent("1 element/cycle")},
    "kernel_generation": "none",
    "kernels": {"none": _NO_KERNELS},
}


class Accelerator(Npu):
    """A fixed-function accelerator: MAC array, SRAM, engines to DRAM, vector units if it has any."""

    kind: Literal["accelerator"]  # type: ignore[assignment]  # a kind of its own
    """Kind of device: accelerator."""
    architecture: str = "accelerator"
    """Generation, where there are several."""
    tiles: TileCount = Count(1, source="absent")
    """Arrays with SRAM of their own."""
    inflight_requests: PerHint = PerHint.model_validate(_all(1, "latency", "throughput"))
    """Inferences in flight, by performance hint."""
    operating_points: dict[DeviceName, NpuPoint] = Field(default_factory=dict)
    """Named clocks and voltages."""
    ops: list[OpName] | None = Field(default=None, min_length=1)
    """Operator types it runs. None: all, which takes vector units."""
    dpu: ArrayUnit
    """The MAC array."""
    dsp: Dsp = Dsp.model_validate(_NO_VECTOR_UNITS)
    """Vector units for what the array cannot do. Absent: there are none."""
    dma: PlainDma
    """Engines between DRAM and SRAM."""
    sparsity: Sparsity = Sparsity.model_validate(dict.fromkeys(Sparsity.model_fields, False))
    """Which operands may be compressed, and whose zeros are skipped: none."""
    symg: Symg = Symg.model_validate(_all(1.0, "transposed_read_rate"))
    """Assumptions about SymG."""

    @model_validator(mode="before")
    @classmethod
    def _tiles_are_there(cls, data: Any) -> Any:
        return data if not isinstance(data, dict) or "tiles" in data else data | {"tiles": _absent(1)}

    @property
    def has_vector_units(self) -> bool:
        """Whether it has units for what the array cannot do."""
        return self.dsp.kernel_generation != "none"

    @model_validator(mode="after")
    def _somebody_runs_the_rest(self) -> Accelerator:
        own = {*_ON_ARRAY, *self.dpu.fused_ops}
        if self.has_vector_units:
            return self
        if self.ops is None:
            refuse("nothing", f"the operator types it runs, some of {', '.join(sorted(own))}", at="ops")
        for name in self.ops:
            if name not in own:
                allowed = f"what the array runs or fuses ({', '.join(sorted(own))}), or vector units (`dsp`)"
                refuse(f"`{name}`, which needs vector units", allowed, at="ops")
        return self
