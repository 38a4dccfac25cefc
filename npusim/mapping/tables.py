"""The operator tables of a graph under every residency plan.

Everything here depends on the network and on what the machine is able to do, never on how fast it is: a
sweep makes it once for all machines that differ in clocks, sizes and rates.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from npusim.arch import Soc
from npusim.cost import Decisions, Group, Lowered, Plans, PlanTable, lower_plans, operators_of
from npusim.graph import Graph
from npusim.mapping.fusion import DeviceChoice, fuse
from npusim.mapping.residency import plans

_READ_BY_LOWERING = ("dpu.grid.vpe", "dpu.macs_per_mpe", "macs_per_cycle", "shared_level")
"""Numbers of a device that change the tables although the design point holds them too: blocks of rows are
sized by the pixels of a stencil, a grid without a format leaves it to the DSPs, a host that is no faster in
fp16 keeps fp32, and devices with a level of both find there what the other touched."""


def is_read_by_lowering(path: str) -> bool:
    """Tell whether a number of a device, by its path such as `npu.dpu.grid.vpe`, changes the tables."""
    return path.partition(".")[2].startswith(_READ_BY_LOWERING)


@dataclass(frozen=True, slots=True)
class PlanTables:
    """A graph under every residency plan worth costing."""

    groups: tuple[Group, ...]
    plans: Plans
    table: PlanTable
    warnings: tuple[str, ...]

    def decisions(self, plan: int) -> Decisions:
        """Return everything that a plan decides."""
        return Decisions(self.groups, self.plans.residency(plan))

    def lowered(self, plan: int) -> Lowered:
        """Return the operator table under a plan."""
        return Lowered(operators_of(self.table, plan), self.groups, self.warnings)


def plan_tables(
    graph: Graph, soc: Soc, device: DeviceChoice = "auto", swap_operands: bool | Collection[str] = False
) -> PlanTables:
    """Lower a graph under every residency plan worth costing."""
    groups = fuse(graph, soc, device, swap_operands)
    choices = plans(graph, groups, soc)
    return PlanTables(groups, choices, *lower_plans(graph, groups, soc, choices))
