"""Decisions that need costs: what runs where, what is fused, what stays in SRAM."""

from npusim.mapping.mapped import Mapped, Run, map_graph

__all__ = ["Mapped", "Run", "map_graph"]
