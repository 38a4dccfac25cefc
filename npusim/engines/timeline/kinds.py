"""What can happen on a time line, and where: the legend of the map."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["Kind", "Unit"]


class Kind(IntEnum):
    """What a task is."""

    SYNC = 0
    """Nothing is done: a point in time that others wait for."""
    RESERVE = 1
    """Room in SRAM is taken; granted in the order of the program."""
    ENTER = 2
    """A stretch of work enters the NPU: whose turn it is to reserve."""
    LEAVE = 3
    """It has all the room it needs: the next stretch may reserve."""
    DMA_IN = 4
    DMA_OUT = 5
    TRANSFER = 6
    """DMA within SRAM."""
    DPU = 7
    DSP = 8
    CPU = 9
    GPU = 10
    LAUNCH = 11
    """A device's runtime is called."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A thing that does one task at a time."""

    name: str
    """Such as npu.tile0.dpu."""
    group: str
    """Its name in an estimate, such as npu.dpu."""
