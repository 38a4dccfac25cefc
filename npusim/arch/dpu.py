"""The DPU: the output-stationary MAC grid of a tile, with the fitted parameters of its equations.

The equations are in `npusim.cost`; `npusim.calibration` fits the values. `docs/dpu_model.md` says what
the figures do not determine.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from npusim import units
from npusim.arch.array import GRID_FORMATS, OPERANDS, ArrayLevel, ArrayShape, GridOrDataflow
from npusim.arch.device import FusedOpName, OpName
from npusim.config import Section
from npusim.errors import UnknownNameError
from npusim.ops.formats import FormatName
from npusim.ops.sparsity import PatternName
from npusim.units import refuse


class SparseOperand(Section):
    """What a grid does with the zeros of an operand of regular sparsity."""

    operand: Literal["weights", "inputs"]
    """Operand of a product or convolution."""
    structure: PatternName
    """Pattern of its zeros: 2:4 (two of four elements), block:16, channel."""
    action: Literal["gating", "skipping"]
    """`gating` saves the energy of zeros; `skipping` also their cycles, by the share of zeros and no more."""


class Widening(Section):
    """What the operand loaders of a grid need for elements that they widen to the format of a product."""

    rate: units.ElementsPerCycle
    """Elements of an operand that a tile widens in a cycle; a feed takes no less time."""
    energy: units.EnergyPerOp
    """Energy of an element, each time that a register tile reads it."""


class Grid(Section):
    """M x M VPEs of N x N MPEs each; an MPE computes one output element at a time."""

    vpe: units.PositiveCount
    """M: M x M VPEs take a group of M x M output pixels."""
    mpe: units.PositiveCount
    """N: N x N MPEs of a VPE take N * N output channels of a pixel."""
    accumulator: units.Bytes
    """Bytes of a partial sum in SRAM."""
    stages: units.PositiveCount = units.Count(1, source="absent: as built")
    """Pipeline stages of a multiply-accumulate, over those of the silicon that the sheet describes."""


class DpuMode(Section):
    """A layout of outputs on the grid: groups of pixels and channels that a register tile accumulates."""

    groups_w: units.PositiveCount
    """Groups of M pixels along the width."""
    groups_h: units.PositiveCount
    """Groups of M pixels along the height."""
    groups_c: units.PositiveCount
    """Groups of N * N output channels."""


class EnergyFactors(Section):
    """Energy of an ideal cycle (all multipliers busy) of the grid, relative to a convolution."""

    convolution: units.PositiveRatio
    """Convolution and matrix product."""
    depthwise: units.PositiveRatio
    """Depthwise convolution."""
    avgpool: units.PositiveRatio
    """Average pooling."""
    maxpool: units.PositiveRatio
    """Max pooling."""
    eltwise: units.PositiveRatio
    """Elementwise operators."""


_ONE_TILE = "suites of measured workloads read it; in an estimate each tile writes its own SRAM alone"
_NO_PADDING = "suites of measured workloads read it; estimates do not tell padding from pixels"


class DpuModel(Section):
    """Parameters of one DPU generation, in cycles of the DPU clock; a `port` is a read port of the SRAM."""

    startup_cycles: units.Cycles
    """Before the first and after the last register tile of a workload."""
    broadcast_cycles: Annotated[units.Cycles, units.Informative(_ONE_TILE)]
    """Further start-up if several tiles are written."""
    register_tile_cycles: units.Cycles
    """Start of each register tile."""
    slot_walk_cycles: units.Ratio
    """Cycles per step of the operand loader for each pixel slot of the mode, filled or not."""
    feed_piece_bytes: units.Bytes
    """Input channels that the loader reads at once for a pixel or an output channel."""
    act_bytes_per_port_cycle: units.BytesPerCycle
    """Activations that a port feeds to the grid."""
    weight_bytes_per_port_cycle: units.BytesPerCycle
    """Weights that a port feeds to the grid."""
    window_elements: units.PositiveRatio = units.Quantity(1e6, "", source="absent: any")
    """Most elements of a window over all its channels for which all ports feed weights; beyond, one does."""
    write_ports: units.PositiveCount
    """Write ports of outputs; only the product with the rate below is determined."""
    drain_bytes_per_port_cycle: units.BytesPerCycle
    """Outputs that a write port moves to the SRAM of the tile."""
    broadcast_rate: Annotated[units.PositiveRatio, units.Informative(_ONE_TILE)]
    """Rate of outputs to several tiles, relative to the SRAM of the tile."""
    fp16_output_rate: units.PositiveRatio
    """Bytes per cycle of fp16 outputs, relative to int8; also of elementwise sums."""
    lone_row_taps: Annotated[units.Ratio, units.Informative(_NO_PADDING)]
    """Kernel taps saved if a single row of pixels remains next to vertical padding."""
    sparse_window_act: units.PositiveRatio
    """Elements over which the pixel lanes run before they wait for the fullest one."""
    sparse_window_weight: units.PositiveRatio
    """Elements over which the channel lanes run before they wait for the fullest one."""
    sparse_skip_max: units.PositiveRatio
    """Steps that a MAC unit can pass over in a cycle."""
    sparse_restart: units.Ratio
    """Steps lost for each step that is kept, because the pipeline starts again after a skip."""
    sparse_drain_exposed: units.Fraction
    """Exposed share of the shorter of computing and write-back when zeros are skipped."""
    sparse_act_feed: units.PositiveRatio
    """Time to feed sparse activations, read through a table of pointers, relative to dense ones."""
    channelwise_block_bytes: units.Bytes
    """Channels that one pass handles."""
    channelwise_bytes_per_port_cycle: units.BytesPerCycle
    """Most bytes that a port reads in channel-wise work."""
    channelwise_start_cycles: units.Cycles
    """Start of each block of channels."""
    depthwise_tap_cost: units.PositiveRatio
    """Time of a kernel tap relative to that of its bytes through the ports."""
    depthwise_group_cost: units.Ratio
    """Write-back of each group of pixels, in taps."""
    padding_saving: Annotated[units.Fraction, units.Informative(_NO_PADDING)]
    """Share of the taps that read padding which is skipped."""
    stride_conflict: units.Ratio
    """Relative extra time of strided taps with one block of channels: bank conflicts."""
    half_block_cost: units.PositiveRatio
    """Time of a tap with at most half a block of channels, relative to a full one."""
    row_reuse_channels: units.NaturalCount
    """Most channels for which the loader keeps a row of pixels for all its taps; 0: never."""
    row_reuse_kernel_w: units.NaturalCount
    """Widest kernel, in pixels, whose columns the loader shares between taps; 0: none."""
    row_reuse_cost: units.PositiveRatio
    """Reads of a kept row relative to its columns."""
    row_overlap_cost: units.PositiveRatio
    """Reads of overlapping columns without a kept row, relative to separate reads of each tap."""
    pool_tap_cost: units.PositiveRatio
    """Time of a tap of max pooling relative to that of its bytes."""
    pool_register_tile_cost: units.Ratio
    """Extra time per tap for each register tile of max pooling, in groups."""
    pool_few_slots_cost: units.PositiveRatio
    """Time of a tap of max pooling in modes other than the first, relative to it."""
    eltwise_bytes_per_port_cycle: units.BytesPerCycle
    """Bytes of int8 sums per read port of an elementwise operator."""


class Dpu(Section):
    """The MAC grid of one tile."""

    clock: units.Frequency
    """Clock of the grid."""
    grid: Grid
    """Arrangement of the grid."""
    macs_per_mpe: dict[FormatName, units.MacsPerCycle] = Field(min_length=1)
    """Input channels per MPE and cycle, by format; a missing format runs as a wider one, or on the DSPs."""
    widening: dict[FormatName, Widening] = Field(default_factory=dict)
    """Cost of widening operands of a format, in products and convolutions on a grid. Absent: none."""
    weights_only: list[FormatName] = Field(default_factory=list)
    """Formats that weights may have and activations may not. Absent: none."""
    sparsity: list[SparseOperand] = Field(default_factory=list)
    """Regular sparsity of operands that it uses. Absent: none; for bitmaps see `sparsity` of the device."""
    skips_by_both: bool = False
    """Whether zeros of both operands save together, as an intersection of bitmaps or patterns finds them.
    Absent: the operand that saves more leads, and the other one's zeros are computed."""
    modes: dict[str, DpuMode] = Field(min_length=1, max_length=3)
    """Layouts of a register tile; the compiler selects the best for each workload."""
    eltwise_ops: list[OpName]
    """Elementwise operators of the grid on two tensors; the DSPs run the others."""
    channelwise_ops: list[OpName] = Field(default_factory=list)
    """Elementwise operators that the compiler makes a depthwise convolution where one operand has a number
    for each channel: of `multiply` any operand, of others a constant."""
    dataflow: GridOrDataflow = "grid"
    """`grid`: register tiles of outputs, calibrated on silicon. Otherwise a dataflow, by name or in place."""
    array: ArrayShape | None = None
    """MACs as an array for a dataflow. None: pixels along the first axis, channels along the second."""
    fused_ops: list[FusedOpName]
    """Operators that the post-processing engine applies to outputs without extra time."""
    fuse_residual: bool = False
    """Whether it also adds a second tensor of that shape, which no compiler uses."""
    energy_factors: EnergyFactors
    """Energy of an ideal cycle by kind of operator."""
    model: DpuModel
    """Fitted parameters of the cycle equations."""

    @model_validator(mode="after")
    def _has_a_format_by_width(self) -> Self:
        if not set(GRID_FORMATS).intersection(self.macs_per_mpe):
            refuse(", ".join(self.macs_per_mpe), f"one of {', '.join(GRID_FORMATS)} too", at="macs_per_mpe")
        return self

    @property
    def array_levels(self) -> dict[str, ArrayLevel]:
        """Memories between PEs and SRAM by name."""
        return {} if self.array is None else self.array.levels

    @model_validator(mode="after")
    def _array_has_free_memories_that_fit_the_dataflow(self) -> Self:
        for name, level in self.array_levels.items():
            if level.read_energy > 0.0 or level.write_energy is not None:
                allowed = "nothing: technology.energy.mac includes it"
                refuse("an energy", allowed, at=f"array.levels.{name}.read_energy")
        if isinstance(self.dataflow, str):
            return self
        if self.widening:
            refuse("a cost", "nothing with a dataflow: the width of its levels counts", at="widening")
        axes = ["first", "second"] if self.array is None else list(self.array.axes)
        if len(self.dataflow.unroll) > len(axes):
            found = f"loops on {len(self.dataflow.unroll)} axes"
            refuse(found, f"at most {len(axes)}: the array has {', '.join(axes)}", at="dataflow.unroll")
        stays, levels = self.dataflow.stationary, self.array_levels
        if stays in OPERANDS and levels and not any(stays in level.operands for level in levels.values()):
            have = "; ".join(f"{name}: {', '.join(level.operands)}" for name, level in levels.items())
            allowed = f"an operand that some level of the array holds ({have}), none, or any"
            refuse(f"{stays} that stay, with no level to stay in", allowed, at="dataflow")
        return self

    @property
    def channel_lanes(self) -> int:
        """Channels of a result that the grid computes in parallel."""
        return int(self.grid.mpe) ** 2

    @property
    def mpes(self) -> int:
        """MPEs of a tile, M * M * N * N, or PEs of its array."""
        if self.array is not None and self.dataflow != "grid":
            return self.array.pes
        return int(self.grid.vpe) ** 2 * int(self.grid.mpe) ** 2

    def macs_per_cycle(self, dtype: str) -> float:
        """Return the multiply-accumulates per cycle of a tile in a format."""
        for name, rate in self.macs_per_mpe.items():
            if name == dtype:
                return self.mpes * rate
        raise UnknownNameError("MAC format of the DPU", dtype, self.macs_per_mpe)
