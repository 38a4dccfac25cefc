"""The fitted parameters of the DPU's equations: what no data sheet tells and measured cycles do.

Like the break-in figures of an engine: displacement and valves stand in the data sheet, friction is measured.
"""

from npusim.config import Section
from npusim.units import BytesPerCycle, Cycles, PositiveRatio, Ratio

__all__ = ["DepthwiseModel", "DpuModel", "EltwiseModel", "SkipModel"]


class DepthwiseModel(Section):
    """Depthwise convolution: overhead + units x channel blocks x (per_unit + per_tap x taps)."""

    overhead: Cycles
    """Fixed cycles of a workload."""
    overhead_per_block: Cycles
    """Further cycles for each block of 32 bytes of channels."""
    cycles_per_unit: Ratio
    """Cycles of a unit (a quarter of a 4 x 4 group of pixels, one channel block) beside its taps."""
    cycles_per_tap: PositiveRatio
    """Cycles a unit spends on each element of the kernel."""


class EltwiseModel(Section):
    """Elementwise operator: overhead + bytes of output / rate."""

    overhead: Cycles
    """Fixed cycles of a workload."""
    rate: BytesPerCycle
    """Bytes of output a cycle."""


class SkipModel(Section):
    """Speed-up that skipping zeros reaches however sparse the operand is."""

    activation: PositiveRatio
    """Greatest speed-up from zeros of the activation operand."""
    weight: PositiveRatio
    """Greatest speed-up from zeros of the weight operand."""


class DpuModel(Section):
    """Parameters of one DPU generation, in cycles of the DPU clock."""

    overhead: Cycles
    """Fixed cycles of a workload on a tile: set-up of the stencil walk, filling and emptying the grid."""
    weight_stream: BytesPerCycle
    """Bytes of weights a cycle that reach the grid from SRAM."""
    drain: BytesPerCycle
    """Bytes of output a cycle that leave the grid for the tile's own SRAM."""
    shared_drain: BytesPerCycle
    """The same where outputs are written to several tiles."""
    depthwise: DepthwiseModel
    """Depthwise convolution."""
    eltwise: EltwiseModel
    """Elementwise operators."""
    skip_limit: SkipModel
    """Where the gain of zero skipping ends."""
