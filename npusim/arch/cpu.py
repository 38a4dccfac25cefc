"""The CPU of a SoC: where preprocessing with its loops and branches runs, and every comparison starts.

Like the caretaker of a factory: does every odd job, none of them at the speed of the machine built for it.
"""

from typing import Literal

from npusim.arch.device import RooflineDevice

__all__ = ["Cpu"]


class Cpu(RooflineDevice):
    """A multi-core processor, by its roofline."""

    kind: Literal["cpu"]
    """Kind of device: cpu."""
