"""DMA transfers between DRAM and the tiles' SRAM: latency + bytes / bandwidth + gaps between rows.

Bandwidth is that of the engines or of DRAM, whichever is less. The numbers stand in a SoC's `npu.dma.model`,
`npu.dma` and `dram.bandwidth`; shares, latencies and the sustained rate of DRAM are fitted to measured
transfers, row gaps to Intel's cost model (`validate/figures`).
"""

from __future__ import annotations

from npusim.cost.architecture import ArchRecord
from npusim.cost.jit import compiled

DDR2CMX = 0
CMX2DDR = 1
CMX2CMX = 2
DDR2DDR = 3


@compiled
def latency_s(arch: ArchRecord, direction: int, payload_bytes: float) -> float:
    """Time before the first byte arrives (s); a copy in DRAM hides its write behind its read.

    A read into SRAM beyond one page of host memory waits once for address translation.
    """
    start_s = arch.dma_start_cycles / arch.vpu_clock_hz
    if direction == CMX2CMX:
        return float(start_s)
    if direction == CMX2DDR:
        return float(start_s + arch.dma_dram_write_latency_s)
    if direction == DDR2CMX and payload_bytes > arch.dma_page_bytes:
        return float(start_s + arch.dma_dram_read_latency_s + arch.dma_page_walk_s)
    return float(start_s + arch.dma_dram_read_latency_s)


@compiled
def width_bytes_per_s(arch: ArchRecord, engines: float) -> float:
    """Rate of `engines` engines at full width (B/s)."""
    return float(arch.dma_engine_bytes_per_cycle * arch.vpu_clock_hz * engines)


@compiled
def bytes_per_s(arch: ArchRecord, direction: int, engines: float) -> float:
    """Rate of `engines` engines on one stream (B/s): their own width, or DRAM where that is narrower.

    A copy from DRAM to DRAM reads at the engines' read share, and DRAM carries each byte twice.
    """
    width = width_bytes_per_s(arch, engines)
    if direction == CMX2CMX:
        return float(width * arch.dma_cmx2cmx_share)
    if direction == CMX2DDR:
        return float(min(width * arch.dma_cmx2ddr_share, arch.dram_bytes_per_s))
    if direction == DDR2CMX:
        return float(min(width * arch.dma_ddr2cmx_share, arch.dram_bytes_per_s))
    return float(min(width * arch.dma_ddr2cmx_share, 0.5 * arch.dram_bytes_per_s))


@compiled
def row_gap_s(arch: ArchRecord, direction: int) -> float:
    """Gap before each further row (s)."""
    cycles = arch.dma_ddr2cmx_row_cycles
    if direction == CMX2CMX:
        cycles = arch.dma_cmx2cmx_row_cycles
    elif direction == CMX2DDR:
        cycles = arch.dma_cmx2ddr_row_cycles
    return float(cycles / arch.vpu_clock_hz)


@compiled
def _payload_s(
    arch: ArchRecord, direction: int, payload_bytes: float, row_bytes: float, engines: float
) -> float:
    """Time of the bytes and the gaps between their rows, without the latency (s)."""
    rate = bytes_per_s(arch, direction, engines)
    moved_s = payload_bytes / rate
    if direction == CMX2CMX:  # a copy runs at full width until its buffer is full
        full = width_bytes_per_s(arch, engines)
        buffered = min(payload_bytes, arch.dma_copy_buffer_bytes * engines)
        moved_s = buffered / full + (payload_bytes - buffered) / rate
    if row_bytes <= 0.0:
        return moved_s
    gaps = max(0.0, payload_bytes / row_bytes - 1.0) / engines
    return moved_s + gaps * row_gap_s(arch, direction)


@compiled
def transfer_s(
    arch: ArchRecord, direction: int, payload_bytes: float, row_bytes: float, engines: float
) -> float:
    """Time of one transfer shared evenly by `engines` engines (s).

    Parameters
    ----------
    row_bytes : float
        Bytes of a contiguous row; 0 where the transfer is one piece.
    """
    if payload_bytes <= 0.0:
        return 0.0
    return latency_s(arch, direction, payload_bytes / engines) + _payload_s(
        arch, direction, payload_bytes, row_bytes, engines
    )


@compiled
def copy_s(arch: ArchRecord, copied_bytes: float) -> float:
    """Time of copies between tiles' SRAM by all engines (s)."""
    return _payload_s(arch, CMX2CMX, copied_bytes, 0.0, arch.dma_engines) if copied_bytes > 0.0 else 0.0
