"""What the mapping decided, as plain data: groups, their units, and what stays in SRAM.

Costs depend on the decision only, not on who made it or why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from npusim.cost.tables import Unit

__all__ = ["Decisions", "Group", "Plan", "Plans", "Residency"]


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
    is_split: bool = False
    """Whether several devices have a part in it: hosts then leave their results in DRAM, where all find
    them."""


class Plan(NamedTuple):
    """A residency plan, by its differences to the others of the same graph."""

    is_row_fused: bool
    """Whether all tensors that can be fused row-wise are."""
    kept: int
    """How many intermediate tensors stay in SRAM as a whole, the smallest first."""
    share: float = 0.0
    """Share of the marked inputs and constants that is kept after their first use."""


@dataclass(frozen=True, slots=True)
class Plans:
    """Residency plans of a graph, in the order in which they are compared.

    Those that agree in `is_row_fused` follow each other, and of these one never keeps fewer tensors as a
    whole than the one before it.
    """

    steps: tuple[Plan, ...]
    row_fused: frozenset[str]
    """Tensors that can be fused row-wise."""
    beside: tuple[str, ...]
    """Intermediate tensors beside these, the smallest first."""
    all_sizes: tuple[str, ...]
    """All intermediate tensors, the smallest first."""
    marked: tuple[str, ...] = ()
    """Inputs and constants of which a share may be kept."""

    def kept_order(self, is_row_fused: bool) -> tuple[str, ...]:
        """Return the intermediate tensors in the order in which plans keep them."""
        return self.beside if is_row_fused or not self.row_fused else self.all_sizes

    def residency(self, plan: int) -> Residency:
        """Return what stays in SRAM under a plan."""
        step = self.steps[plan]
        return Residency(
            frozenset(self.kept_order(step.is_row_fused)[: step.kept]),
            dict.fromkeys(self.marked, step.share) if step.share else {},
            self.row_fused if step.is_row_fused else frozenset(),
        )
