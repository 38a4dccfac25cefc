"""The memory that all devices of a SoC share.

Like the one loading dock of a warehouse: however fast the forklifts inside, this is what passes in a minute.
"""

from npusim.config import Section
from npusim.units import Bandwidth, Bytes, Duration

__all__ = ["Dram"]


class Dram(Section):
    """Main memory with its controller."""

    title: str
    """Type of memory, its rate and width."""
    capacity: Bytes
    """Size of main memory."""
    peak_bandwidth: Bandwidth
    """Transfer rate times bus width; a reference that limits nothing: a what-if moves `bandwidth`."""
    bandwidth: Bandwidth
    """Bandwidth that the NPU sustains over all its DMA engines."""
    latency: Duration
    """Time of one dependent read that misses every cache."""
