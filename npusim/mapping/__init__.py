"""Decisions that need costs: what runs where, what is fused, what stays in SRAM."""

from npusim.mapping.mapped import Mapped, Run, map_graph
from npusim.mapping.memory import MemoryUse

__all__ = ["Mapped", "MemoryUse", "Run", "map_graph"]
