"""The integrated GPU of a SoC: wide arithmetic that shares the DRAM with everyone else.

Like a coach: it carries many for little each, but somebody has to wait at every stop (the launch of a
kernel).
"""

from typing import Literal

from npusim.arch.device import RooflineDevice

__all__ = ["Gpu"]


class Gpu(RooflineDevice):
    """An integrated GPU, by its roofline; a core is an Xe core, an SM or their like."""

    kind: Literal["gpu"]
    """Kind of device: gpu."""
