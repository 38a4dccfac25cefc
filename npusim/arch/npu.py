"""NPUs (tiles of MAC grid, SRAM and DSPs, fed by DMA), and accelerators without fitted numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from npusim import units
from npusim.arch.array import OUTER_LEVELS, ArrayShape, LevelName, OuterLevel
from npusim.arch.device import (
    DeviceName,
    DeviceSheet,
    FusedOpName,
    OpName,
    PerHint,
    check_at_most,
    check_governor,
)
from npusim.arch.dpu import Dpu, DpuMode, DpuModel, EnergyFactors, Grid
from npusim.arch.dsp import Dsp
from npusim.arch.silicon import NpuPower, rated_power
from npusim.config import Section
from npusim.units import refuse


class NpuPoint(Section):
    """Clocks and voltage of an NPU."""

    dpu_clock: units.Frequency
    """Clock of the MAC grid."""
    vpu_clock: units.Frequency
    """Clock of DSPs, SRAM and DMA."""
    voltage: units.Voltage
    """Supply voltage."""


class Sram(Section):
    """The SRAM (Intel: CMX) of one tile."""

    per_tile: units.Bytes
    """Bytes per tile for tensors."""
    reserved: units.BytesOrZero
    """Bytes per tile that firmware keeps; they count for area only."""
    word: units.Bytes
    """Bytes of a word; reads and writes are whole words."""
    read_ports: units.PositiveCount
    """Words that the DPU can read in a cycle."""
    holds_results: bool = True
    """Whether results may stay in it for the next operator. False: each is written to DRAM."""


_WHOLE_ROWS = "suites of transfers read it; what an estimate writes or copies lies in one piece"


class DmaModel(Section):
    """Parameters of one generation of engines; cycles are of the VPU clock."""

    start_cycles: units.Cycles
    """Fetching a descriptor and starting an engine."""
    dram_read_latency_s: units.Duration
    """Wait for the first bytes out of DRAM."""
    dram_write_latency_s: units.Duration
    """Wait for DRAM to take a write."""
    page_bytes: units.Bytes
    """Larger reads into SRAM wait for address translation once."""
    page_walk_s: units.Duration
    """That wait."""
    ddr2cmx_share: units.Fraction
    """Share of an engine's width in reads from DRAM."""
    cmx2ddr_share: units.Fraction
    """Share of an engine's width in writes to DRAM."""
    cmx2cmx_share: units.Fraction
    """Share of an engine's width in copies within SRAM."""
    copy_buffer_bytes: units.BytesOrZero
    """Bytes that a copy within SRAM moves at full width before its share applies."""
    ddr2cmx_row_cycles: units.Cycles
    """Gap before each further row read from DRAM."""
    cmx2ddr_row_cycles: Annotated[units.Cycles, units.Informative(_WHOLE_ROWS)]
    """Gap before each further row written to DRAM."""
    cmx2cmx_row_cycles: Annotated[units.Cycles, units.Informative(_WHOLE_ROWS)]
    """Gap before each further row copied within SRAM."""


class Dma(Section):
    """The engines that move data between DRAM and the SRAM of the tiles."""

    engines: units.PositiveCount
    """Engines that work in parallel and share the DRAM."""
    width: units.BytesPerCycle
    """Most bytes that an engine moves in a cycle of the VPU clock."""
    model: DmaModel
    """Fitted parameters by direction."""


InPlaceName = Literal["concat", "split", "variadicsplit"]


MappingObjective = Literal["latency", "energy", "edp"]
MAPPING_OBJECTIVES: tuple[MappingObjective, ...] = get_args(MappingObjective)
"""What a mapping may be chosen for; the last is the product of energy and latency."""


class Schedule(Section):
    """Decisions of the compiler."""

    stream_pieces: units.PositiveCount
    """Pieces of an operator without a reduction over channels; DMA and work of pieces overlap."""
    fewest_buffers: Annotated[units.Count, units.CountKind(1, 2)] = units.Count(
        1, source="absent: one where that is faster"
    )
    """Fewest buffers of a stationary operand that comes in several blocks: 1 or 2."""
    objective: MappingObjective = "latency"
    """What the mapping of an operator is chosen for; edp: energy times latency. For latency, the mapping with
    the least traffic is chosen among those within 0.5 % of the fastest."""
    depth_first: bool = False
    """Whether layers on images may run depth-first, band by band, in segments that hold their weights in SRAM
    (vertical fusion). Absent: false, for what a compiler fuses is mostly not public."""
    prefetch: bool = False
    """Whether idle DMA engines fetch weights of later operators into free SRAM."""
    resident_weights: bool = False
    """Whether weights that fit beside the working sets stay in SRAM from one inference to the next."""
    in_place_ops: list[InPlaceName] = Field(default_factory=list)
    """Operators without a copy: producers write into the joined tensor, readers read parts of a split one."""
    in_place_alignment: units.Bytes = units.Quantity(1.0, "B", source="absent: any address")
    """Parts of a buffer start at multiples of this."""


class Sparsity(Section):
    """Support for zeros; compressed operands are a bitmap of one bit per element and the non-zeros."""

    decompress_weights: bool
    """Whether DMA and grid accept a compressed weight operand."""
    decompress_activations: bool
    """Whether DMA can bring in a compressed activation operand."""
    skip_weights: bool
    """Whether the grid skips zeros of the weight operand."""
    skip_activations: bool
    """Whether the grid skips zeros of the activation operand."""


class Symg(Section):
    """Assumptions about a matrix that is stored as a triangle."""

    transposed_read_rate: units.PositiveFraction
    """Rate of a transposed read of a block from SRAM, relative to a straight one."""


ALL_TILES = "absent: all tiles"
"""Source of `tiles_for` where it is not stated."""


def _plain(value: Any) -> Any:
    """Return the value of a quantity as a file holds it."""
    return value.get("value") if isinstance(value, Mapping) else value


_NO_TIME = units.Quantity(0.0, "s", source="absent")


class ExposedTimes(Section):
    """Times of operators beyond the units' equations, which nothing hides; whole networks determine them.

    They hold for the tiles and clock of the sheet.
    """

    task: units.Duration = _NO_TIME
    """A task of the grid: an operator, or the mean of an image over its pixels, which compilers pool."""
    dma: units.Duration | None = None
    """An operator of DMA engines alone. None: `dispatch_overhead`."""
    transpose: units.Duration | None = None
    """A transposition by DSPs. None: `dispatch_overhead`."""
    small_call: units.PositiveRatio | None = None
    """Elements below which a computing operator of DSPs costs a `task`. None: each `dispatch_overhead`."""
    requantised_element: units.Duration | None = None
    """An element of a separate requantisation, which then is a `task`. None: it costs `dispatch_overhead`."""
    depthwise_tap: units.Duration = _NO_TIME
    """A tap of a result of a depthwise convolution in a floating-point format."""


class Npu(DeviceSheet):
    """A neural processing unit of the DPU family."""

    kind: Literal["npu"]
    """Kind of device: npu."""
    architecture: str
    """Generation: npu3720, npu4000, or a name of your own."""
    tiles: units.TileCount
    """Tiles on the chip."""
    tiles_for: PerHint = Field(default=None)  # type: ignore[assignment]  # a validator fills it
    """Tiles that a network is compiled for, by hint. Absent: all; for throughput divided by contexts."""
    inflight_requests: PerHint
    """Inferences in flight, by performance hint."""
    contexts: units.TileCount = units.Count(1, source="absent: one")
    """Most inferences that run in parallel, each on its own tiles; requests and tiles limit them too."""
    dispatch_overhead: units.Duration = units.Quantity(0.0, "s", source="absent")
    """Fixed time of each operator of DSPs or DMA alone, and of each separate requantisation; never hidden."""
    exposed: ExposedTimes = ExposedTimes()
    """Further times that nothing hides. Counted in dispatches: without `dispatch_overhead` there are none."""
    vpu_clock: units.Frequency
    """Clock of DSPs, SRAM and DMA engines."""
    voltage_follows_clock: bool = True
    """Whether another clock moves the voltage along the curve of the process node. An operating point, or a
    setting of the voltage, makes it false."""
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
    """How the compiler divides work."""
    sparsity: Sparsity
    """Operands that may be compressed, or whose zeros are skipped."""
    symg: Symg
    """Assumptions about SymG, which no hardware supports yet."""
    power: NpuPower
    """Power that does not depend on the work."""
    levels: dict[LevelName, OuterLevel] = Field(default_factory=dict, max_length=OUTER_LEVELS)
    """Memory levels between the SRAM of the tiles and DRAM by name, nearest to the tiles first."""
    shared_level: LevelName | None = None
    """Level of the SoC's `levels` outside these, which other devices may share. None: there is none."""
    equations: dict[OpName, str] = Field(default_factory=dict)
    """Cost equation of operators by type: the name of one that an installed package announces in the group
    npusim.equations. Absent: npusim's own."""
    toolchain: str | None = None
    """Its compiler: a name of `configs/toolchains` or a YAML file. None: compilation is not reported."""

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
        check_governor(self.governor, self.operating_points)
        return self

    def tiles_used(self, hint: str) -> int:
        """Return the tiles that a network is compiled for: `tiles_for`, at most those of the chip."""
        return min(int(getattr(self.tiles_for, hint)), int(self.tiles))

    @property
    def has_vector_units(self) -> bool:
        """Whether it has vector units."""
        return self.dsp.kernel_generation != "none"

    def peak_macs_per_s(self, dtype: str, tiles: int | None = None) -> float:
        """Return the multiply-accumulates per second of the grid in a format, on all tiles or some."""
        return self.dpu.macs_per_cycle(dtype) * (self.tiles if tiles is None else tiles) * self.dpu.clock

    def sram_bytes(self, tiles: int | None = None) -> float:
        """Return the bytes of SRAM for tensors, on all tiles or some."""
        return self.sram.per_tile * (self.tiles if tiles is None else tiles)


_ON_ARRAY = ("matmul", "convolution", "groupconvolution", "convolutionbackpropdata")


def _absent(value: Any) -> dict[str, Any]:
    """Return the default of a number that a data sheet leaves out."""
    return {"value": value, "source": "absent"}


def _all(value: Any, *names: str) -> dict[str, Any]:
    return dict.fromkeys(names, _absent(value))


_ONE_MODE = DpuMode.model_validate(_all(1, "groups_w", "groups_h", "groups_c"))


class ArrayUnit(Dpu):
    """A MAC array with its dataflow; no part of it is fitted."""

    array: ArrayShape
    """Axes of PEs, transfer of operands, memories below SRAM; `macs_per_mpe` is per PE."""
    grid: Grid = Grid.model_validate(_all(4, "vpe", "mpe") | _all("4 B", "accumulator"))
    """Groups of work that is shared or fused by rows; bytes of a partial sum."""
    modes: dict[str, DpuMode] = Field(default_factory=lambda: {"array": _ONE_MODE})
    """An array has no register tiles."""
    eltwise_ops: list[OpName] = Field(default_factory=list)
    """Elementwise operators of the array: none."""
    fused_ops: list[FusedOpName] = Field(default_factory=list)
    energy_factors: EnergyFactors = EnergyFactors.model_validate(_all(1.0, *EnergyFactors.model_fields))
    """Energy of a multiply-accumulate by kind of operator, relative to that of a convolution."""
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
    """Engines that move data at their width, limited by DRAM."""

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
    """A fixed-function accelerator: MAC array, SRAM, DMA engines and optional vector units.

    A field without a text has that of an NPU.
    """

    kind: Literal["accelerator"]  # type: ignore[assignment]  # a kind of its own
    """Kind of device: accelerator."""
    architecture: str = "accelerator"
    tiles: units.TileCount = units.Count(1, source="absent")
    """Arrays, each with its own SRAM."""
    inflight_requests: PerHint = PerHint.model_validate(_all(1, "latency", "throughput"))
    operating_points: dict[DeviceName, NpuPoint] = Field(default_factory=dict)
    dpu: ArrayUnit
    """The MAC array."""
    dsp: Dsp = Dsp.model_validate(_NO_VECTOR_UNITS)
    """Vector units for other operators. Absent: there are none."""
    dma: PlainDma
    """Engines between DRAM and SRAM."""
    sparsity: Sparsity = Sparsity.model_validate(dict.fromkeys(Sparsity.model_fields, False))
    """Operands that may be compressed, or whose zeros are skipped: none."""
    symg: Symg = Symg.model_validate(_all(1.0, "transposed_read_rate"))

    @model_validator(mode="before")
    @classmethod
    def _tiles_are_there(cls, data: Any) -> Any:
        return data if not isinstance(data, dict) or "tiles" in data else data | {"tiles": _absent(1)}

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
