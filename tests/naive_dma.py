"""Twin of the DMA equations that the operators' costs use, in the terms of the paper napkin: bytes over
rate, plus gaps."""

from typing import Any

import numpy as np


def read_rate(arch: Any) -> float:
    """Bytes per second from DRAM: all engines at their read share, or the DRAM."""
    engines = arch.dma_engines * arch.dma_engine_bytes_per_cycle * arch.vpu_clock_hz
    return min(engines * arch.dma_ddr2cmx_share, arch.dram_bytes_per_s)


def write_rate(arch: Any) -> float:
    """Bytes per second to DRAM."""
    engines = arch.dma_engines * arch.dma_engine_bytes_per_cycle * arch.vpu_clock_hz
    return min(engines * arch.dma_cmx2ddr_share, arch.dram_bytes_per_s)


def stream_s(arch: Any, read: Any, written: Any) -> Any:
    """Time of a steady stream in one piece."""
    return read / read_rate(arch) + written / write_rate(arch)


def read_gaps_s(arch: Any, payload: Any, row_bytes: Any) -> Any:
    """Time lost between rows of a read in many rows, shared by the engines."""
    further_rows = np.maximum(0.0, payload / row_bytes - 1.0)
    return further_rows / arch.dma_engines * arch.dma_ddr2cmx_row_cycles / arch.vpu_clock_hz


def copy_s(arch: Any, copied: float) -> float:
    """Time of a copy within SRAM: full width until the engines' buffers are full, then their share of it."""
    if copied <= 0.0:
        return 0.0
    width = arch.dma_engines * arch.dma_engine_bytes_per_cycle * arch.vpu_clock_hz
    quick = min(copied, arch.dma_copy_buffer_bytes * arch.dma_engines)
    return quick / width + (copied - quick) / (width * arch.dma_cmx2cmx_share)


def first_byte_s(arch: Any) -> float:
    """Wait for the first byte from DRAM."""
    return arch.dma_start_cycles / arch.vpu_clock_hz + arch.dma_dram_read_latency_s


def waits_s(arch: Any, first: Any, reads: bool, writes: bool) -> Any:
    """Waits that nothing hides: for the first byte, for the address of a first piece, for the last write."""
    time = np.zeros_like(first, dtype=float)
    if reads:
        time = time + first_byte_s(arch)
        time = time + np.where(np.asarray(first) > arch.dma_page_bytes, arch.dma_page_walk_s, 0.0)
    if writes:
        time = time + arch.dma_start_cycles / arch.vpu_clock_hz + arch.dma_dram_write_latency_s
    return time


def overlapped_s(work: Any, moving: Any, edges: Any, refilling: Any) -> Any:
    """Time of pieces that come in, are worked on and go out, without the waits that nothing hides."""
    work_bound, dma_bound = work + edges, moving
    # Two buffers, each taken while its piece is waited for, moved and used.
    room_bound = (work + moving) / 2 + refilling
    return np.maximum(np.maximum(work_bound, dma_bound), room_bound)
