"""The operator tables of a graph under every residency plan.

Everything here depends on the network and on what the machine is able to do, never on how fast it is: a
sweep makes it once for all machines that differ in clocks, sizes and rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.arch import Soc
from npusim.cost.decisions import Decisions
from npusim.cost.lowering import Lowered, lower
from npusim.graph import Graph
from npusim.mapping.fusion import fuse
from npusim.mapping.order import is_split
from npusim.mapping.placement import DeviceChoice
from npusim.mapping.residency import plans

__all__ = ["READ_BY_LOWERING", "PlanTables", "plan_tables"]

READ_BY_LOWERING = (
    "npu.dpu.grid.vpe",
    "npu.dpu.macs_per_mpe",
    "cpu.macs_per_cycle",
    "gpu.macs_per_cycle",
)
"""Paths of numbers that change the tables although the architecture table holds them too: blocks of
rows are sized by the pixels of a stencil, a grid without a format leaves it to the DSPs, and a host
that is no faster in fp16 keeps fp32."""


@dataclass(frozen=True, slots=True)
class PlanTables:
    """The operator tables of a graph, a residency plan each."""

    decisions: tuple[Decisions, ...]
    """Of each plan."""
    lowered: tuple[Lowered, ...]
    """Of each plan; they differ in what stays in SRAM alone."""
    ops: Any
    """Array of OP_DTYPE, shape (plans, operators)."""


def plan_tables(
    graph: Graph, soc: Soc, device: DeviceChoice = "auto", swap_operands: bool = False
) -> PlanTables:
    """Lower a graph under every residency plan worth costing.

    Parameters
    ----------
    graph : Graph
        Techniques applied.
    soc : Soc
    device : {"auto", "npu", "cpu", "gpu"}
        See `npusim.mapping.placement.unit_of`.
    swap_operands : bool
        See `npusim.mapping.fusion.fuse`.
    """
    groups = fuse(graph, soc, device, swap_operands)
    split = is_split(groups)
    decisions = tuple(Decisions(groups, residency, split) for residency in plans(graph, groups))
    lowered = tuple(lower(graph, one, soc) for one in decisions)
    return PlanTables(decisions, lowered, np.stack([one.ops for one in lowered]))
