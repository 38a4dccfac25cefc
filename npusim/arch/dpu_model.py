"""The fitted parameters of the DPU's equations: what no data sheet tells and measured cycles do.

Like the break-in figures of an engine: displacement and valves stand in the data sheet, friction is measured. `npusim.cost.dpu`,
`npusim.cost.channelwise` and `npusim.cost.sparsity` have the equations.
"""

from npusim.config import Section
from npusim.units import BytesPerCycle, Cycles, PositiveCount, PositiveRatio, Ratio

__all__ = ["DpuModel"]


class DpuModel(Section):
    """Parameters of one DPU generation, in cycles of the DPU clock; a `port` is one of the SRAM's read ports."""

    # Convolution and matrix product
    startup_cycles: Cycles
    """Before the first and after the last stencil of a workload."""
    broadcast_cycles: Cycles
    """Further start-up where the output is written to several tiles."""
    stencil_cycles: Cycles
    """Between two stencils."""
    slot_walk_cycles: Ratio
    """Cycles a step that the operand loader spends on each pixel slot of the mode, used or not."""
    act_bytes_per_port_cycle: BytesPerCycle
    """Activations that a port feeds to the grid."""
    weight_bytes_per_port_cycle: BytesPerCycle
    """Weights that a port feeds to the grid."""
    write_ports: PositiveCount
    """Ports through which outputs leave; only the product with the rates below is determined."""
    drain_bytes_per_port_cycle: BytesPerCycle
    """Outputs that leave through a port for the tile's own SRAM."""
    broadcast_bytes_per_port_cycle: BytesPerCycle
    """The same where outputs are written to several tiles."""
    fp16_output_rate: PositiveRatio
    """Rate at which fp16 outputs are processed and leave, relative to int8."""
    lone_row_taps: Ratio
    """Kernel taps saved where a single row of pixels remains beside vertical padding."""
    # Zeros
    sparse_window_act: PositiveRatio
    """Elements over which the pixel lanes run before they wait for the fullest one."""
    sparse_window_weight: PositiveRatio
    """Elements over which the channel lanes run before they wait for the fullest one."""
    sparse_skip_max: PositiveRatio
    """Most empty steps that pass in the time of a full one."""
    sparse_act_feed: PositiveRatio
    """Feed of sparse activations, read through a table of pointers, relative to dense ones."""
    sparse_restart: Ratio
    """SPARSE_RESTART."""
    sparse_drain_exposed: Ratio
    """SPARSE_DRAIN."""
    # Depthwise convolution, pooling, elementwise
    channelwise_block_bytes: PositiveCount
    """Bytes of channels that one pass handles."""
    channelwise_bytes_per_port_cycle: BytesPerCycle
    """Bytes a port reads where channels do not meet."""
    channelwise_start_cycles: Cycles
    """Start of each block of channels."""
    depthwise_tap_cost: PositiveRatio
    """Time of a kernel tap over the time its bytes need through the ports."""
    depthwise_group_cost: Ratio
    """Further taps' worth of time for each group of pixels."""
    padding_saving: Ratio
    """Share of the taps that read padding which is skipped."""
    stride_conflict: Ratio
    """Further time of a tap of strided pixels with a single block of channels: they fall on the same banks."""
    half_block_cost: PositiveRatio
    """Time of a tap where channels fill at most half a block, relative to a full one."""
    row_reuse_channels: Ratio
    """Up to so many channels the loader keeps a row of pixels for all taps of it; 0: never."""
    row_reuse_kernel_w: Ratio
    """Widest kernel for which it does."""
    row_reuse_cost: PositiveRatio
    """Time of a kept row over the time its bytes need."""
    pool_tap_cost: PositiveRatio
    """Time of a tap of max pooling over the time its bytes need."""
    pool_stencil_cost: Ratio
    """Further groups' worth of time a tap for each stencil."""
    pool_few_slots_cost: PositiveRatio
    """Time of max pooling in modes with fewer pixel slots, relative to the first mode."""
    eltwise_bytes_per_port_cycle: BytesPerCycle
    """Bytes of output a port of an elementwise sum."""
