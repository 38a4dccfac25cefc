"""What the mapping decided, as plain data: groups, their units, and what stays in SRAM.

Costs depend on the decision only, not on who made it or why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from npusim.cost.tables import Unit

__all__ = ["Decisions", "Group", "Residency"]


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
