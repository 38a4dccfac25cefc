"""The fitted parameters of the DMA engines: what a transfer costs by its direction.

Like a removal van: loading takes the same whether it holds one chair or ten, then distance and speed decide,
and many small parcels cost more than one large crate. `npusim.cost.dma` has the equations.
"""

from npusim.config import Section
from npusim.units import Bytes, BytesOrZero, Cycles, Duration, Fraction

__all__ = ["DmaModel"]


class DmaModel(Section):
    """Parameters of one generation of engines; cycles are of the VPU clock."""

    start_cycles: Cycles
    """Fetching a descriptor and starting an engine."""
    dram_read_latency_s: Duration
    """Wait for the first bytes out of DRAM."""
    dram_write_latency_s: Duration
    """Wait for DRAM to take a write."""
    page_bytes: Bytes
    """Reads into SRAM beyond this size wait for address translation once."""
    page_walk_s: Duration
    """That wait."""
    ddr2cmx_share: Fraction
    """Share of an engine's width that reads from DRAM reach."""
    cmx2ddr_share: Fraction
    """Share of an engine's width that writes to DRAM reach."""
    cmx2cmx_share: Fraction
    """Share of an engine's width that copies within SRAM reach."""
    copy_buffer_bytes: BytesOrZero
    """A copy within SRAM moves this much at full width before its share applies."""
    ddr2cmx_row_cycles: Cycles
    """Gap before each further row read from DRAM."""
    cmx2ddr_row_cycles: Cycles
    """Gap before each further row written to DRAM."""
    cmx2cmx_row_cycles: Cycles
    """Gap before each further row copied within SRAM."""
