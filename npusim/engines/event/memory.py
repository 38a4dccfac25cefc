"""Rates of transfers, by the equations of `npusim.cost.dma`, of DRAM and of shared memory levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npusim.cost import CMX2DDR, DDR2CMX, ArchRow, bytes_per_s, shared_bytes_per_s
from npusim.engines.timeline import TaskKind


@dataclass(frozen=True, slots=True)
class TransferRates:
    """Rates of transfers."""

    dram_bytes_per_s: float
    """What DRAM sustains for NPU, CPU and GPU together."""
    levels_bytes_per_s: tuple[float, ...]
    """What each memory level moves that devices share."""
    level_of: tuple[int, ...]
    """Of each array device the level that it shares with others; -1: none."""
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
    level_of = tuple(int(row[name]["shared_level"]) - 1 for name in row.arrays)
    levels = [0.0] * (1 + max(level_of, default=-1))
    for name, level in zip(row.arrays, level_of, strict=True):
        if level >= 0:
            levels[level] = shared_bytes_per_s(row[name])
    return TransferRates(
        total,
        tuple(levels),
        level_of,
        tuple(
            {
                int(TaskKind.DMA_IN): (alone(row[name], DDR2CMX), True),
                int(TaskKind.DMA_OUT): (alone(row[name], CMX2DDR), True),
                int(TaskKind.TRANSFER): (1.0, False),
            }
            for name in row.arrays
        ),
    )
