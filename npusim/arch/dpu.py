"""The DPU: the output-stationary MAC grid of one tile.

Like a class of pupils who each own one cell of a large multiplication table: numbers are read out to whole
rows and columns, everybody adds to his own cell, and the table is collected at the end.
"""

from pydantic import Field

from npusim.arch.device import DtypeName, OpName
from npusim.arch.dpu_model import DpuModel
from npusim.config import Section
from npusim.errors import UnknownNameError
from npusim.units import Bytes, Frequency, MacsPerCycle, PositiveCount, PositiveRatio

__all__ = ["Dpu", "DpuMode", "EnergyFactors", "Grid"]


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
    """Energy of an ideal cycle of the grid, as a multiple of that of an int8 convolution."""

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


class Dpu(Section):
    """The MAC grid of one tile."""

    clock: Frequency
    """Clock of the grid."""
    grid: Grid
    """Arrangement of the grid."""
    macs_per_mpe: dict[DtypeName, MacsPerCycle]
    """Input channels an MPE multiplies and accumulates in a cycle, by format."""
    modes: dict[str, DpuMode] = Field(min_length=1, max_length=3)
    """Layouts of a stencil; the compiler takes the best for each workload."""
    eltwise_ops: list[OpName]
    """Elementwise operators the grid can run on two tensors; the DSPs run the others."""
    fused_ops: list[OpName]
    """What the post-processing engine applies to an output of the grid for nothing."""
    energy_factors: EnergyFactors
    """Energy of an ideal cycle by kind of operator."""
    model: DpuModel
    """Fitted parameters of the cycle equations."""

    @property
    def mpes(self) -> int:
        """MPEs of one tile: M * M * N * N."""
        return int(self.grid.vpe) ** 2 * int(self.grid.mpe) ** 2

    @property
    def channel_lanes(self) -> int:
        """Output channels the grid works on at once: N * N."""
        return int(self.grid.mpe) ** 2

    def macs_per_cycle(self, dtype: str) -> float:
        """Return the multiply-accumulates of one tile in a cycle of the DPU clock, in a format.

        Raises
        ------
        UnknownNameError
            Where the grid has no rate for the format.
        """
        for name, rate in self.macs_per_mpe.items():
            if name == dtype:
                return self.mpes * rate
        raise UnknownNameError("MAC format of the DPU", dtype, self.macs_per_mpe)
