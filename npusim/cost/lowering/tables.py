"""Records of the operator table and of the result tables, and the enumerations in their columns.

A row is a numpy record, so compiled code, its twin in the tests and a reader all say `op.in_c`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from npusim.arch.array import OUTER_LEVELS
from npusim.arch.device import ELEMENT_KINDS, ROW_KINDS
from npusim.arch.dsp import DspKernel
from npusim.compiling import records
from npusim.compiling.records import Bytes, Elements, Number, Seconds, Share, Vector, dtype_of
from npusim.metrics import METRICS


class Between(NamedTuple):
    """Bytes that pass before each operand is used again, and one more; 0: it was not used before, or lost."""

    a: Bytes = 0.0
    """Activations of a product, or the first operand."""
    b: Bytes = 0.0
    """Weights of a product."""
    extra: Bytes = 0.0
    """All other operands."""
    c: Bytes = 0.0
    """From the operator to the last use of its results; 0: others need them, too."""


class Unit(IntEnum):
    """Unit that runs an operator."""

    VIEW = 0
    """No unit: a view, or work fused into another operator."""
    DPU = 1
    DSP = 2
    DMA = 3
    HOST = 4
    """A CPU or GPU as a whole."""

    @property
    def is_host(self) -> bool:
        """Whether it is a CPU or GPU."""
        return self is Unit.HOST

    @property
    def is_array(self) -> bool:
        """Whether it is part of an array device: an NPU, or a device built like one."""
        return self in (Unit.DPU, Unit.DSP, Unit.DMA)


class DpuOperation(IntEnum):
    """Operation of the MAC grid."""

    NONE = 0
    MATMUL = 1
    CONVOLUTION = 2
    DEPTHWISE = 3
    MAXPOOL = 4
    AVGPOOL = 5
    ELTWISE = 6


class Split(IntEnum):
    """How a product is divided among tiles."""

    ROWS = 0
    """Each tile has some of the output pixels; weights are broadcast."""
    COLUMNS = 1
    """Each tile has some of the output channels; activations are broadcast."""
    SINGLE = 2
    """One tile computes all."""


class Order(IntEnum):
    """Which operand is stationary in SRAM."""

    WEIGHTS_HELD = 0
    ACTIVATIONS_HELD = 1
    OUTPUTS_HELD = 2
    """Partial sums stay; both operands stream in chunks of input channels."""


class Bound(IntEnum):
    """Bottleneck of an operator."""

    COMPUTE = 0
    DMA = 1
    DSP = 2
    LAUNCH = 3
    LEVEL = 4
    """A memory level between SRAM and DRAM, at whose rate the DMA engines transfer."""


VIEW, DPU, DSP, DMA, HOST = map(int, Unit)
_, MATMUL, CONVOLUTION, DEPTHWISE, MAXPOOL, AVGPOOL, ELTWISE = map(int, DpuOperation)
ROWS, COLUMNS, _ = map(int, Split)
WEIGHTS_HELD, ACTIVATIONS_HELD, OUTPUTS_HELD = map(int, Order)
"""Members of the enumerations as the numbers that kernels compare."""


@records.columns_at(DspKernel, {name: name for name in DspKernel.model_fields if name != "source"})
class DspKernelRecord:
    """One kernel of a DSP, with the call of its generation; `npusim.cost.units.dsp` has the equations."""

    reference_lanes: Number
    """fp16 lanes of the DSP that the numbers hold for."""
    serial: Number
    """1 where one DSP does all of it, else 0."""

    if TYPE_CHECKING:  # the columns of the data sheet

        def __getattr__(self, name: str) -> float: ...


class OpRecord:
    """An operator, or fused ones, lowered for a unit; `a` activations, `b` weights, `c` the output."""

    unit: int
    """See `Unit`."""
    device: int
    """Place of its device among the array devices, or among the hosts; 0 for a view."""
    dpu_operation: int
    """See `DpuOperation`."""
    batch: Number
    """Independent products or images; see `npusim.ops.Work` for this and the sizes below."""
    out_w: Elements
    """Output width; rows of a product."""
    out_h: Elements
    """Output height."""
    in_c: Elements
    """Input channels; the reduction of a product."""
    out_c: Elements
    """Output channels; columns of a product."""
    in_w: Elements
    """Input width."""
    in_h: Elements
    """Input height."""
    kernel_w: Elements
    """Width of the window of a convolution or pooling."""
    kernel_h: Elements
    """Height of that window."""
    stride_w: Elements
    """Step of the window along the width."""
    stride_h: Elements
    """Step of the window along the height."""
    macs: Number
    """Multiply-accumulates."""
    elements: Elements
    """Elements that are worked on."""
    rows: Number
    """Rows along the axis of the work."""
    row_length: Elements
    """Elements of such a row."""
    a_item: Bytes
    """An element of the activations."""
    b_item: Bytes
    """An element of the weights."""
    c_item: Bytes
    """An element of the output."""
    a_dram_bytes: Bytes
    """Read from DRAM when the activations are passed over once; 0 where they are in SRAM already."""
    b_dram_bytes: Bytes
    """The same for the weights."""
    c_dram_bytes: Bytes
    """Written to DRAM."""
    extra_dram_bytes: Bytes
    """Biases, residuals, further operands: read once."""
    a_pack: Share
    """Bytes of the activations in SRAM over their dense bytes (zero-value compression)."""
    b_pack: Share
    """The same for the weights."""
    a_resident: int
    """1 where all activations are in SRAM; their bytes then count among the live bytes below."""
    b_resident: int
    """The same for the weights; in a depth-first segment they are fetched once (`b_dram_bytes`)."""
    c_resident: int
    """The same for the output."""
    a_prefetch: int
    """1 where the activations are known beforehand: their first piece is prefetched."""
    b_prefetch: int
    """The same for the weights."""
    a_constant: int
    """1 where the activations are laid out at compile time in the order of their use."""
    live_spread_bytes: Bytes
    """SRAM of the NPU for live tensors that are divided among the tiles."""
    live_copied_bytes: Bytes
    """SRAM of each tile for live tensors that every tile holds whole."""
    reserved_bytes: Bytes
    """Part of `live_spread_bytes` that is free for weights of later operators
    (`npusim.cost.network.prefetch`)."""
    a_density: Share
    """Non-zero activations, where the MAC grid may skip zeros; else 1."""
    a_block_density: Share
    """Granules of the grid with a non-zero activation; else 1."""
    b_density: Share
    """Non-zero weights, where the MAC grid may skip zeros; else 1."""
    mac_rate: Number
    """Rate of the MAC units relative to that of the width `a_item`: a format's own rate, skipped zeros."""
    kept: Share
    """Steps that remain where zeros of a pattern are skipped, over all; part of `mac_rate`."""
    mac_energy: Number
    """Energy of a multiply-accumulate relative to that width's: a format's own, widening, and gated zeros."""
    a_widening: Annotated[float, "cycles"]
    """Cycles in which a tile widens an element of the activations; 0 where it widens none."""
    b_widening: Annotated[float, "cycles"]
    """The same for the weights."""
    triangle: int
    """1 where the activations are a stored triangle (SymG)."""
    a_triangle_bytes: Bytes
    """Bytes of that triangle; `a_dram_bytes` then count the dense matrix."""
    between: Between
    """Bytes that pass between two uses of its operands by the device."""
    between_shared: Between
    """The same for all devices that share a memory level with it; 0 without such a level."""
    a_pinned: int
    """1 where `a` is marked to stay and has room of its own in a memory level (CacheG)."""
    b_pinned: int
    """The same for `b`."""
    pinned_bytes: Bytes
    """Marked operands that the device reads."""
    pinned_shared_bytes: Bytes
    """Marked operands that devices read which share a level with it."""
    fused_chain: int
    """Number of its row-wise fusion, whose operators work at the same time; 0 for none."""
    bands: Number
    """Bands of rows that it runs in depth-first, the last one in part, where `batch` counts it as a whole; 0:
    it runs as a whole (`npusim.cost.lowering.bands`)."""
    copy_bytes: Bytes
    """Moved within SRAM by DMA, by an operator that only changes the layout."""
    dsp: DspKernelRecord
    """The DSP kernel of the SoC's generation."""
    host_macs: Number
    """Multiply-accumulates on a host, zeros left out where it works on a list of edges."""
    host_format: int
    """See `HostFormat`."""
    host_results: Elements
    """Results of a product on a host."""
    host_elements: Annotated[Vector, len(ELEMENT_KINDS), "elements"]
    """Elements by the kind of work on them, see `npusim.arch.device.ELEMENT_KINDS`."""
    host_rows: Annotated[Vector, len(ROW_KINDS), ""]
    """Rows by the kind of work on them."""
    host_read_bytes: Bytes
    """Read by a host."""
    host_written_bytes: Bytes
    """Written by a host."""
    host_handed_bytes: Bytes
    """Exchanged with other devices through DRAM."""
    host_handed_written_bytes: Bytes
    """Part of `host_handed_bytes` that is written."""
    host_fresh_bytes: Bytes
    """Inputs and constants of the network that this operator reads first, from DRAM."""
    host_network_bytes: Bytes
    """Sum of `host_fresh_bytes` over the host's operators in an inference."""
    host_leaving_bytes: Bytes
    """Results of the network."""
    host_gathers: Number
    """Random reads."""
    host_scatters: Number
    """Random updates."""
    host_columns: Number
    """Elements of a row that is scattered; 0 where none is."""
    host_reach_bytes: Bytes
    """Bytes among which random accesses fall."""
    host_fetched_bytes: Bytes
    """Rows that a product along non-zeros fetches, each as often as it is needed."""
    repeats: Number
    """Times that it runs in one inference; other columns are for one time."""
    launches: Number
    """1 where work enters a device and calls its runtime."""
    dispatches: Number
    """1 where it calls the NPU's management processor: DSPs, DMA alone, requantisation by itself."""


class TilingRecord:
    """How one operator is cut: numbers of a mapping, whole ones."""

    split: Number
    """See `Split`."""
    order: Number
    """See `Order`."""
    mode: Number
    """MPE mode: position in the SoC's table of modes."""
    tiles: Number
    """Tiles that have a part in it."""
    row_pieces: Number
    """Pieces along the rows of a tile's share; blocks consist of pieces."""
    strips: Number
    """Vertical strips of the image."""
    row_blocks: Number
    """Blocks of output rows of a strip."""
    column_blocks: Number
    """Blocks of output channels."""
    channel_chunks: Number
    """Chunks of input channels."""
    buffers: Number
    """Buffers of a stationary operand that comes in several blocks, 1 or 2."""
    piece_level: Number
    """Size of the pieces, see `npusim.cost.tilings.tiling.piece_of`."""
    parts: Number
    """1 where the share is cut into parts along channels, 2 along rows, else 0."""


class ResultRecord(TilingRecord):
    """Costs of one operator on one architecture, and its mapping."""

    latency_s: Seconds
    """Latency; infinite where it does not fit into SRAM."""
    critical_s: Seconds
    """Its latency, or its share in the time of a row-wise fusion."""
    dpu_s: Seconds
    """Busy time of the MAC grids."""
    dsp_s: Seconds
    """Busy time of the DSPs."""
    dma_s: Seconds
    """Busy time of the DMA engines."""
    host_s: Seconds
    """Busy time of the CPU or GPU."""
    ahead_s: Seconds
    """Part of `dma_s` during earlier operators (`npusim.cost.network.prefetch`); given."""
    dram_bytes: Bytes
    """Moved between DRAM and the device."""
    dram_read_bytes: Bytes
    """Part of `dram_bytes` that is read."""
    level_bytes: Bytes
    """Moved between memory levels and SRAM instead."""
    shared_bytes: Bytes
    """Part of `level_bytes` that the level moves which several devices share."""
    through_bytes: Annotated[Vector, OUTER_LEVELS, "B"]
    """Bytes that pass through each memory level, DRAM's included, the nearest first; 0: it supplies none."""
    streamed_bytes: Bytes
    """Part of `dram_bytes` that takes time: on a host, bytes that its caches do not hold."""
    sram_peak_bytes: Bytes
    """Largest working set of all tiles, tensors that live across the operator included."""
    sram_read_bytes: Bytes
    """Read in SRAM by the MAC grid, the DSPs and the DMA."""
    sram_written_bytes: Bytes
    """Written in SRAM by them."""
    energy_j: records.Joules
    """Energy of the work, beyond idle power; the sum of its parts."""
    mac_j: records.Joules
    """Energy of the MAC grid."""
    sram_j: records.Joules
    """Energy of SRAM."""
    dram_j: records.Joules
    """Energy of DRAM; of a host part of its own power."""
    dsp_j: records.Joules
    """Energy of the DSPs."""
    cpu_j: records.Joules
    """Energy of a CPU beyond its idle power."""
    gpu_j: records.Joules
    """Energy of a GPU beyond its idle power."""
    bound: int
    """See `Bound`."""
    tile_rows: Elements
    """Output rows of the busiest tile: of a product; lines of an image; elements where neither is made."""
    tile_columns: Elements
    """Output channels of the busiest tile."""


class DeviceUseRecord:
    """Busy times of a device in one inference; a host has work alone."""

    work_s: Seconds
    """Sum of its operators' times, calls of its runtime apart."""
    dpu_s: Seconds
    dsp_s: Seconds
    dma_s: Seconds


DSP_KERNEL_DTYPE, OP_DTYPE = dtype_of(DspKernelRecord), dtype_of(OpRecord)
RESULT_DTYPE, DEVICE_USE_DTYPE = dtype_of(ResultRecord), dtype_of(DeviceUseRecord)
TOTAL_DTYPE = records.rows_of([(name, "f8") for name, metric in METRICS.items() if metric.of is None])
"""What one inference costs on one architecture; `npusim.metrics` has units and meanings."""

_SIZES = OP_DTYPE.names[OP_DTYPE.names.index("batch") : OP_DTYPE.names.index("macs")]
_SHARES = ("a_density", "a_block_density", "b_density", "a_pack", "b_pack", "repeats")
_RATIOS = ("mac_rate", "kept", "mac_energy")


def empty_ops(count: int) -> Any:
    """Return a table of operators of one element and density 1."""
    table = np.zeros(count, OP_DTYPE)
    for name in (*_SIZES, *_SHARES, *_RATIOS):
        table[name] = 1.0
    return table
