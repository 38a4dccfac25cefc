"""The fitted parameters of the DMA engines: what a transfer costs by its direction.

Like a removal van: loading takes the same whether it holds one chair or ten, then distance and speed decide, and many
small parcels cost more than one large crate.
"""

from npusim.config import Section
from npusim.units import Bandwidth, Duration

__all__ = ["DmaDirection", "DmaModel"]


class DmaDirection(Section):
    """One direction of one engine: latency + rows x row_overhead + bytes / bandwidth."""

    latency: Duration
    """Time from the start of a transfer to its first byte, and its completion."""
    bandwidth: Bandwidth
    """Bandwidth of one engine on long rows."""
    row_overhead: Duration
    """Further time of each contiguous row."""


class DmaModel(Section):
    """Directions between DRAM and the SRAM of the tiles."""

    ddr2cmx: DmaDirection
    """DRAM to SRAM."""
    cmx2ddr: DmaDirection
    """SRAM to DRAM."""
    cmx2cmx: DmaDirection
    """SRAM to SRAM."""
    ddr2ddr: DmaDirection
    """DRAM to DRAM."""
