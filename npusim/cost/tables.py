"""Records of the operator table and of the result tables, and enumerations in their columns.

A row is a numpy record, so compiled code, its twin in the tests and a reader all say `op.in_c`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from npusim.arch.device import ELEMENT_KINDS, ROW_KINDS
from npusim.metrics import METRICS

__all__ = [
    "DSP_KERNEL_DTYPE",
    "OP_DTYPE",
    "RESULT_DTYPE",
    "TOTAL_DTYPE",
    "Bound",
    "DpuOperation",
    "HostFormat",
    "Order",
    "Split",
    "Unit",
]


class Unit(IntEnum):
    """Which unit does an operator's work."""

    VIEW = 0
    """Nobody: the same bytes under another shape, or work fused into another operator."""
    DPU = 1
    DSP = 2
    DMA = 3
    CPU = 4
    GPU = 5

    @property
    def path(self) -> str:
        """Name in documents: npu.dpu, npu.dsp, npu.dma, cpu, gpu, or none for a view."""
        return _UNIT_PATHS[self]

    @property
    def device(self) -> str:
        """Kind of the device that the unit is part of: npu, cpu, gpu; empty for a view."""
        return "" if self is Unit.VIEW else self.path.partition(".")[0]

    @property
    def is_host(self) -> bool:
        """Whether it is a CPU or GPU."""
        return self in (Unit.CPU, Unit.GPU)


_UNIT_PATHS = ("none", "npu.dpu", "npu.dsp", "npu.dma", "cpu", "gpu")


class DpuOperation(IntEnum):
    """What the MAC grid is asked to do."""

    NONE = 0
    MATMUL = 1
    CONVOLUTION = 2
    DEPTHWISE = 3
    MAXPOOL = 4
    AVGPOOL = 5
    ELTWISE = 6


class Split(IntEnum):
    """How a product is spread over tiles."""

    ROWS = 0
    """Each tile has some of the output pixels; weights are broadcast."""
    COLUMNS = 1
    """Each tile has some of the output channels; activations are broadcast."""
    SINGLE = 2
    """One tile does it all."""


class Order(IntEnum):
    """Which operand waits in SRAM while the other streams past."""

    WEIGHTS_HELD = 0
    ACTIVATIONS_HELD = 1
    OUTPUTS_HELD = 2
    """Partial sums stay; both operands stream in chunks of input channels."""


class HostFormat(IntEnum):
    """In which format a host multiplies."""

    INTEGER = 0
    FP16 = 1
    BF16 = 2
    FP32 = 3


class Bound(IntEnum):
    """What an operator waits for."""

    COMPUTE = 0
    DMA = 1
    DSP = 2
    LAUNCH = 3


DSP_KERNEL_DTYPE = np.dtype(
    [
        (name, "f8")
        for name in (
            "fixed_cycles",
            "cycles_per_element",
            "cycles_per_row",
            "small_elements",
            "small_fixed_cycles",
            "small_cycles_per_element",
            "small_counted_elements",
            "row_scalar_cycles",
            "row_scalar_elements",
            "stream_elements",
            "stream_rows",
            "stream_cycles_per_element",
            "stream_cycles_per_row",
            "few_rows",
            "few_rows_fixed_cycles",
            "few_rows_cycles_per_position",
            "one_row_fixed_cycles",
            "vector_share",
            "reference_lanes",
        )
    ]
)
"""One kernel of a DSP (see `npusim.cost.dsp` for what each number means)."""

_OP_FIELDS: list[tuple[str, Any]] = [
    ("unit", "i8"),
    ("dpu_operation", "i8"),
    # Shape of the work (see npusim.ops.Work)
    ("batch", "f8"),
    ("out_w", "f8"),
    ("out_h", "f8"),
    ("in_c", "f8"),
    ("out_c", "f8"),
    ("in_w", "f8"),
    ("in_h", "f8"),
    ("kernel_w", "f8"),
    ("kernel_h", "f8"),
    ("stride_w", "f8"),
    ("stride_h", "f8"),
    ("macs", "f8"),
    ("elements", "f8"),
    ("rows", "f8"),
    ("row_length", "f8"),
    # Bytes an element of activation (a), weight (b) and output (c)
    ("a_item", "f8"),
    ("b_item", "f8"),
    ("c_item", "f8"),
    # Bytes that DMA moves when the operand is passed over once; 0 where it is in SRAM already
    ("a_dram_bytes", "f8"),
    ("b_dram_bytes", "f8"),
    ("c_dram_bytes", "f8"),
    ("extra_dram_bytes", "f8"),  # biases, residuals, further operands: read once
    # Bytes of an operand in SRAM over its dense bytes (zero-value compression)
    ("a_pack", "f8"),
    ("b_pack", "f8"),
    # Whether the operand lies in SRAM as a whole (its bytes are then part of the live bytes below)
    ("a_resident", "i8"),
    ("b_resident", "i8"),
    ("c_resident", "i8"),
    # known before the operator's predecessors end: its first piece can be fetched ahead
    ("a_prefetch", "i8"),
    ("b_prefetch", "i8"),
    ("a_constant", "i8"),  # laid out at compile time in the order of its use
    # SRAM of the NPU taken by tensors that live across this operator, be it on a host: spread over the tiles,
    # or held whole in each
    ("live_spread_bytes", "f8"),
    ("live_copied_bytes", "f8"),
    # Zeros that the MAC grid may skip: density of elements and of the grid's granules, 1 where skipping is
    # off
    ("a_density", "f8"),
    ("a_block_density", "f8"),
    ("b_density", "f8"),
    ("triangle", "i8"),  # the activation operand is a stored triangle (SymG) ...
    ("a_triangle_bytes", "f8"),  # ... of this many bytes, where a_dram_bytes are those of the dense matrix
    ("fused_chain", "i8"),  # operators of one number above 0 are row-fused: they work at the same time
    ("copy_bytes", "f8"),  # bytes that DMA moves within SRAM (operators that only lay out data again)
    ("dsp", DSP_KERNEL_DTYPE),  # the DSP kernel of the SoC's generation
    # Work on a host device
    ("host_macs", "f8"),  # zeros left out where the host works on a list of edges
    ("host_format", "i8"),  # of the operands, see HostFormat
    ("host_results", "f8"),  # of a product
    ("host_elements", (np.float64, (len(ELEMENT_KINDS),))),  # by the kind of work on them
    ("host_rows", (np.float64, (len(ROW_KINDS),))),
    ("host_read_bytes", "f8"),
    ("host_written_bytes", "f8"),
    ("host_handed_bytes", "f8"),  # through DRAM whole: several devices have a part in the inference
    ("host_gathers", "f8"),  # random reads ...
    ("host_scatters", "f8"),  # ... and updates ...
    ("host_reach_bytes", "f8"),  # ... within so many bytes
    ("launches", "f8"),  # 1 where work enters a device: its runtime is called
]

OP_DTYPE = np.dtype(_OP_FIELDS)
"""A row of the operator table; lengths in elements, sizes in bytes."""

RESULT_DTYPE = np.dtype(
    [
        ("latency_s", "f8"),
        ("dpu_s", "f8"),  # busy time of each unit
        ("dsp_s", "f8"),
        ("dma_s", "f8"),
        ("cpu_s", "f8"),
        ("gpu_s", "f8"),
        ("dram_bytes", "f8"),
        ("sram_peak_bytes", "f8"),  # largest working set of all tiles, tensors that live across it included
        ("energy_j", "f8"),
        ("bound", "i8"),
        # The tiling that was chosen
        ("split", "i8"),
        ("order", "i8"),
        ("mode", "i8"),
        ("tiles", "i8"),
        ("row_blocks", "i8"),
        ("column_blocks", "i8"),
        ("channel_chunks", "i8"),
    ]
)
"""What one operator costs on one architecture."""

TOTAL_DTYPE = np.dtype([(name, "f8") for name, metric in METRICS.items() if metric.of is None])
"""What one inference of a graph costs on one architecture."""


def empty_ops(count: int) -> Any:
    """Return a table of `count` operators with neutral settings (density 1, one element of everything)."""
    table = np.zeros(count, OP_DTYPE)
    for name in (
        "batch",
        "out_w",
        "out_h",
        "in_c",
        "out_c",
        "in_w",
        "in_h",
        "kernel_w",
        "kernel_h",
        "stride_w",
        "stride_h",
    ):
        table[name] = 1.0
    for name in ("a_density", "a_block_density", "b_density", "a_pack", "b_pack"):
        table[name] = 1.0
    return table
