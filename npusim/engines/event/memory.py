"""Rates of transfers and of DRAM, by the equations of `npusim.cost.dma`: for one engine, and for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npusim.cost import CMX2DDR, DDR2CMX, ArchRow, bytes_per_s
from npusim.engines.timeline import TaskKind


@dataclass(frozen=True, slots=True)
class TransferRates:
    """Rates of transfers."""

    dram_bytes_per_s: float
    """What DRAM sustains for NPU, CPU and GPU together."""
    speed: tuple[dict[int, tuple[float, bool]], ...]
    """Of each array device by kind of task: how much faster one engine moves alone than as one of all, and
    whether it moves over DRAM.
    """


def transfer_rates(row: ArchRow) -> TransferRates:
    """Return the rates of a machine.

    Notes
    -----
    What DRAM sustains for several devices is not in a data sheet: at least what the greediest of them draws
    alone, and no more is assumed.
    """

    def alone(arch: Any, direction: int) -> float:
        engines = float(arch["dma_engines"])
        return bytes_per_s(arch, direction, 1.0) * engines / bytes_per_s(arch, direction, engines)

    hosts = (float(row[name]["bytes_per_s"]) for name in row.hosts)
    total = max(float(row.shared["dram_bytes_per_s"]), *hosts, 0.0)
    return TransferRates(
        total,
        tuple(
            {
                int(TaskKind.DMA_IN): (alone(row[name], DDR2CMX), True),
                int(TaskKind.DMA_OUT): (alone(row[name], CMX2DDR), True),
                int(TaskKind.TRANSFER): (1.0, False),
            }
            for name in row.arrays
        ),
    )
