"""How transfers move: how fast alone, how fast together. The road map that the DMA engines drive by.

All rates come from the equations of `npusim.cost.dma`, asked once for one engine and once for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npusim.cost.dma import CMX2DDR, DDR2CMX, bytes_per_s
from npusim.engines.timeline.kinds import Kind

__all__ = ["Road", "road_of"]


@dataclass(frozen=True, slots=True)
class Road:
    """Rates of transfers."""

    dram_bytes_per_s: float
    """What DRAM sustains for NPU, CPU and GPU together."""
    speed: dict[int, tuple[float, bool]]
    """By kind of task: how much faster one engine moves alone than as one of all, and whether it moves over
    DRAM.
    """


def road_of(arch: Any) -> Road:
    """Return the rates of a machine.

    Parameters
    ----------
    arch : record of ARCH_DTYPE

    Notes
    -----
    What DRAM sustains for several devices is not in a data sheet: at least what the greediest of them draws
    alone, and no more is assumed.
    """
    engines = float(arch["dma_engines"])

    def alone(direction: int) -> float:
        if engines <= 0.0:  # without an NPU there is nothing to carry
            return 1.0
        return bytes_per_s(arch, direction, 1.0) * engines / bytes_per_s(arch, direction, engines)

    total = max(
        float(arch["dram_bytes_per_s"]), float(arch["cpu"]["bytes_per_s"]), float(arch["gpu"]["bytes_per_s"])
    )
    return Road(
        total,
        {
            int(Kind.DMA_IN): (alone(DDR2CMX), True),
            int(Kind.DMA_OUT): (alone(CMX2DDR), True),
            int(Kind.TRANSFER): (1.0, False),
        },
    )
