"""What the mapping decided, as plain data: groups, their units, and what stays in SRAM.

Costs depend on the decision only, not on who made it or why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from npusim.cost.tables import Unit
from npusim.ops import Operator

STATE_TYPES = ("Assign", "ReadValue")
"""Operators that write and read states."""


def is_state_copy(op: Operator, unit: Unit) -> bool:
    """Whether an operator is a copy of a state by the NPU's driver: in DRAM, whatever SRAM holds."""
    return op.type in STATE_TYPES and unit is Unit.DMA


@dataclass(frozen=True, slots=True)
class Group:
    """An operator and those that are applied to its result on the way out."""

    main: str
    """The operator that is costed."""
    fused: tuple[str, ...] = ()
    """Operators that cost nothing of their own, in order."""
    unit: Unit = Unit.DPU
    swapped: bool = False
    """Whether the operands of a product change places: the right one is laid on the pixels."""
    device: str = "npu"
    """Name of the device that the unit is part of; empty for a view."""

    @property
    def path(self) -> str:
        """Name of the unit in documents, such as npu.dpu: of a host its own name; none for a view."""
        if self.unit is Unit.VIEW:
            return "none"
        return self.device if self.unit.is_host else f"{self.device}.{self.unit.name.lower()}"


@dataclass(frozen=True, slots=True)
class Residency:
    """Which tensors stay in SRAM between operators."""

    whole: frozenset[str] = frozenset()
    """Intermediate tensors that never see DRAM."""
    cached: Mapping[str, float] = field(default_factory=dict)
    """Inputs and constants kept after their first use, and the share of each that is kept (0 to 1)."""
    row_fused: frozenset[str] = frozenset()
    """Intermediate tensors that never exist as a whole: a block of rows is passed on as soon as it is made.
    """


@dataclass(frozen=True, slots=True)
class Decisions:
    """Everything that was decided about a graph on a SoC."""

    groups: tuple[Group, ...]
    """In the order of execution; every operator of the graph is in exactly one."""
    residency: Residency = Residency()

    @property
    def is_split(self) -> bool:
        """Whether several devices have a part in it."""
        return len({group.device for group in self.groups if group.unit is not Unit.VIEW}) > 1


class Plan(NamedTuple):
    """A residency plan."""

    is_row_fused: bool
    """Whether all tensors that can be fused row-wise are."""
    whole: frozenset[str] = frozenset()
    """Intermediate tensors that stay in SRAM as a whole."""
    share: float = 0.0
    """Share of the marked inputs and constants that is kept after their first use."""


@dataclass(frozen=True, slots=True)
class Plans:
    """Residency plans of a graph, in the order in which they are compared.

    Those that agree in `is_row_fused` follow each other; the fewer tensors change from one to the next, the
    sooner they are lowered.
    """

    steps: tuple[Plan, ...]
    row_fused: frozenset[str] = frozenset()
    """Tensors that can be fused row-wise."""
    marked: tuple[str, ...] = ()
    """Inputs and constants of which a share may be kept."""

    def residency(self, plan: int) -> Residency:
        """Return what stays in SRAM under a plan."""
        step = self.steps[plan]
        return Residency(
            step.whole,
            dict.fromkeys(self.marked, step.share) if step.share else {},
            self.row_fused if step.is_row_fused else frozenset(),
        )
