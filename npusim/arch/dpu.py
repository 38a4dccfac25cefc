"""The DPU: the output-stationary MAC grid of one tile, with the fitted parameters of its equations.

The equations stand in `npusim.cost.grid`, `npusim.cost.grid`, `npusim.cost.grid` and
`npusim.cost.grid`; `npusim.calibrate.dpu_fit` fits the values, and `docs/dpu_model.md` says what the
figures do not determine.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from npusim.arch.array import ArrayShape, GridOrDataflow
from npusim.arch.device import FusedOpName, GridFormat, OpName
from npusim.arch.levels import OPERANDS
from npusim.config import Section
from npusim.errors import UnknownNameError
from npusim.units import (
    Bytes,
    BytesPerCycle,
    Cycles,
    Fraction,
    Frequency,
    Informative,
    MacsPerCycle,
    NaturalCount,
    PositiveCount,
    PositiveRatio,
    Ratio,
    refuse,
)


class Grid(Section):
    """M x M VPEs of N x N MPEs each, one output element an MPE at a time."""

    vpe: PositiveCount
    """M: the VPEs stand M x M and take a group of M x M output pixels."""
    mpe: PositiveCount
    """N: the N x N MPEs of a VPE take N * N output channels of a pixel."""
    accumulator: Bytes
    """Bytes of a partial sum that is put down in SRAM."""


class DpuMode(Section):
    """A way to lay outputs on the grid: groups of pixels and channels that a stencil accumulates."""

    groups_w: PositiveCount
    """Groups of M pixels along the width."""
    groups_h: PositiveCount
    """Groups of M pixels along the height."""
    groups_c: PositiveCount
    """Groups of N * N output channels."""


class EnergyFactors(Section):
    """Energy of an ideal cycle of the grid, as a multiple of a convolution's.

    In an ideal cycle all multipliers have an operation.
    """

    convolution: PositiveRatio
    """Convolution and matrix product."""
    depthwise: PositiveRatio
    """Depthwise convolution."""
    avgpool: PositiveRatio
    """Average pooling."""
    maxpool: PositiveRatio
    """Max pooling."""
    eltwise: PositiveRatio
    """Elementwise operators."""


_ONE_TILE = "suites of measured workloads read it; in an estimate each tile writes its own SRAM alone"
_NO_PADDING = "suites of measured workloads read it; estimates do not tell padding from pixels"


class DpuModel(Section):
    """Parameters of one DPU generation, in cycles of the DPU clock; a `port` is a read port of the SRAM."""

    # Convolution and matrix product
    startup_cycles: Cycles
    """Before the first and after the last stencil of a workload."""
    broadcast_cycles: Annotated[Cycles, Informative(_ONE_TILE)]
    """Further start-up where the output is written to several tiles."""
    stencil_cycles: Cycles
    """Start of each stencil."""
    slot_walk_cycles: Ratio
    """Cycles per step that the operand loader spends on each pixel slot of the mode, filled or not."""
    feed_piece_bytes: Bytes
    """Input channels that the loader reads at a time for a pixel or an output channel."""
    act_bytes_per_port_cycle: BytesPerCycle
    """Activations that a port feeds to the grid."""
    weight_bytes_per_port_cycle: BytesPerCycle
    """Weights that a port feeds to the grid."""
    write_ports: PositiveCount
    """Ports through which outputs leave; only the product with the rate below is determined."""
    drain_bytes_per_port_cycle: BytesPerCycle
    """Outputs that leave through a write port for the tile's own SRAM."""
    broadcast_rate: Annotated[PositiveRatio, Informative(_ONE_TILE)]
    """Rate at which outputs leave for several tiles, relative to the tile's own SRAM."""
    fp16_output_rate: PositiveRatio
    """Bytes per cycle of fp16 outputs, relative to int8; also of elementwise sums."""
    lone_row_taps: Annotated[Ratio, Informative(_NO_PADDING)]
    """Kernel taps saved where a single row of pixels remains beside vertical padding."""
    # Zeros
    sparse_window_act: PositiveRatio
    """Elements over which the pixel lanes run before they wait for the fullest one."""
    sparse_window_weight: PositiveRatio
    """Elements over which the channel lanes run before they wait for the fullest one."""
    sparse_skip_max: PositiveRatio
    """Steps that a MAC unit can pass over in a cycle."""
    sparse_restart: Ratio
    """Steps lost for each step that is kept, because the pipeline starts again after a skip."""
    sparse_drain_exposed: Fraction
    """Share of the shorter of computing and write-back that nothing hides where zeros are skipped."""
    sparse_act_feed: PositiveRatio
    """Time to feed sparse activations, read through a table of pointers, relative to dense ones."""
    # Depthwise convolution, pooling, elementwise
    channelwise_block_bytes: Bytes
    """Channels that one pass handles."""
    channelwise_bytes_per_port_cycle: BytesPerCycle
    """Bytes that a port reads at most where channels do not meet."""
    channelwise_start_cycles: Cycles
    """Start of each block of channels."""
    depthwise_tap_cost: PositiveRatio
    """Time of a kernel tap over the time its bytes need through the ports."""
    depthwise_group_cost: Ratio
    """Further taps' worth of time for each group of pixels: its write-back."""
    padding_saving: Annotated[Fraction, Informative(_NO_PADDING)]
    """Share of the taps that read padding which is skipped."""
    stride_conflict: Ratio
    """Further time, relative, of strided taps with one block of channels: they fall on the same banks."""
    half_block_cost: PositiveRatio
    """Time of a tap where channels fill at most half a block, relative to a full one."""
    row_reuse_channels: NaturalCount
    """Up to so many channels the loader keeps a row of pixels for all taps along it; 0: never."""
    row_reuse_kernel_w: NaturalCount
    """Widest kernel, in pixels, whose columns the loader shares between taps; 0: none."""
    row_reuse_cost: PositiveRatio
    """Reads of a kept row over its columns."""
    row_overlap_cost: PositiveRatio
    """Reads of overlapping columns where no row is kept, over reads of each tap by itself."""
    pool_tap_cost: PositiveRatio
    """Time of a tap of max pooling over the time its bytes need."""
    pool_stencil_cost: Ratio
    """Further groups' worth of time a tap for each stencil of max pooling."""
    pool_few_slots_cost: PositiveRatio
    """Time of a tap of max pooling in modes other than the first, relative to it."""
    eltwise_bytes_per_port_cycle: BytesPerCycle
    """Bytes of int8 sums, for each read port, of an elementwise operator."""


class Dpu(Section):
    """The MAC grid of one tile."""

    clock: Frequency
    """Clock of the grid."""
    grid: Grid
    """Arrangement of the grid."""
    macs_per_mpe: dict[GridFormat, MacsPerCycle] = Field(min_length=1)
    """Input channels an MPE multiplies and accumulates in a cycle, by format. Without int4 it is computed as
    int8, without fp32 as fp16 and the other way round; integers without int8 run on the DSPs."""
    modes: dict[str, DpuMode] = Field(min_length=1, max_length=3)
    """Layouts of a stencil; the compiler takes the best for each workload."""
    eltwise_ops: list[OpName]
    """Elementwise operators the grid can run on two tensors; the DSPs run the others."""
    dataflow: GridOrDataflow = "grid"
    """How products and convolutions are laid on the MACs of a tile. `grid`: stencils of outputs, as `modes`
    and `model` say, calibrated on silicon. Else a dataflow of configs/dataflows.yaml by its name, or in
    place: the same MACs as `array` arranges them, by first principles."""
    array: ArrayShape | None = None
    """Arrangement of the MACs for a dataflow. None: M * M times the MACs of an MPE along the first axis,
    N * N along the second, operands broadcast."""
    fused_ops: list[FusedOpName]
    """What the post-processing engine applies to an output of the grid for nothing."""
    fuse_residual: bool = False
    """Whether a sum with a second tensor of that shape is applied there too, which no compiler does."""
    energy_factors: EnergyFactors
    """Energy of an ideal cycle by kind of operator."""
    model: DpuModel
    """Fitted parameters of the cycle equations."""

    @model_validator(mode="after")
    def _memories_of_the_array_are_free(self) -> Self:
        for name, level in self.array.levels.items() if self.array is not None else ():
            if level.read_energy > 0.0 or level.write_energy is not None:
                allowed = "nothing: technology.energy.mac includes it"
                refuse("an energy", allowed, at=f"array.levels.{name}.read_energy")
        return self

    @model_validator(mode="after")
    def _the_dataflow_fits_the_array(self) -> Self:
        if isinstance(self.dataflow, str):
            return self
        axes = ["first", "second"] if self.array is None else list(self.array.axes)
        if len(self.dataflow.unroll) > len(axes):
            found = f"loops on {len(self.dataflow.unroll)} axes"
            refuse(found, f"at most {len(axes)}: the array has {', '.join(axes)}", at="dataflow.unroll")
        stays, levels = self.dataflow.stationary, self.array.levels if self.array is not None else {}
        if stays in OPERANDS and levels and not any(stays in one.operands for one in levels.values()):
            have = "; ".join(f"{name}: {', '.join(one.operands)}" for name, one in levels.items())
            allowed = f"an operand that some level of the array holds ({have}), none, or any"
            refuse(f"{stays} that stay, with no level to stay in", allowed, at="dataflow")
        return self

    @property
    def channel_lanes(self) -> int:
        """Channels of a result that the grid works on side by side."""
        return int(self.grid.mpe) ** 2

    @property
    def mpes(self) -> int:
        """MPEs of one tile: M * M * N * N, or the PEs of an array."""
        if self.array is not None and self.dataflow != "grid":
            return self.array.pes
        return int(self.grid.vpe) ** 2 * int(self.grid.mpe) ** 2

    def macs_per_cycle(self, dtype: str) -> float:
        """Return the multiply-accumulates of one tile in a cycle of the DPU clock, in a format."""
        for name, rate in self.macs_per_mpe.items():
            if name == dtype:
                return self.mpes * rate
        raise UnknownNameError("MAC format of the DPU", dtype, self.macs_per_mpe)
