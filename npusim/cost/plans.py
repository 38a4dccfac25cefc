"""Decisions of the mapping as plain data, and the table of operators under all residency plans.

A decision names groups, their units, and what stays in SRAM. Costs depend on the decision only.

Under most plans most operators need the same. The table holds each distinct row once, and each plan as its
differences to the plan before. So it grows with the number of operators, not with plans times operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from npusim.cost.tables import Unit
from npusim.ops import Operator

STATE_TYPES = ("Assign", "ReadValue")
"""Operators that write and read states."""


def is_state_copy(op: Operator, unit: Unit) -> bool:
    """Whether an operator is a copy of a state by the NPU's driver: in DRAM, whatever SRAM holds."""
    return op.type in STATE_TYPES and unit is Unit.DMA


@dataclass(frozen=True, slots=True)
class Group:
    """An operator and the operators fused into it."""

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
    def members(self) -> tuple[str, ...]:
        """All its operators, the main one first."""
        return (self.main, *self.fused)

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


_HOST, _ARRAY_UNITS = int(Unit.HOST), [int(unit) for unit in Unit if unit.is_array]
NO_LEAF = -(2**62)


class PlanTable(NamedTuple):
    """The operator tables of a network, a residency plan each."""

    rows: Any
    """Distinct operators, array of OP_DTYPE, shape (rows,); their `fused_chain` is 0."""
    changes: Any
    """Pairs of an operator and the row it has from then on, int64, shape (changes, 2)."""
    change_start: Any
    """Where the changes of each plan start in this list, int64, shape (plans + 1,)."""
    family: Any
    """Family of each plan, int64, shape (plans,): plans of a family follow each other; its first changes all.
    """
    fused_chains: Any
    """Fused chain of each operator in each family, 0 for none, int64, shape (families, operators)."""
    leaf_op: Any
    """What is added up in each family, in this order: operators on array devices in no chain, then of each
    chain its operators and its time; operators by number, the time of a chain as minus the number of its
    operators, nothing as `NO_LEAF`; int64, shape (families, leaves)."""
    leaf_of: Any
    """Where each operator stands in that order, -1 where it is on none; int64, shape (families,
    operators).
    """
    chain_leaf: Any
    """Where the time of each operator's chain stands, -1 for none; int64, shape (families, operators)."""
    array_of: Any
    """Place of each operator's device among the array devices, -1 where it is on none; int64, shape
    (operators,).
    """
    waits: Any
    """Whether each plan keeps something in the SRAM of a device while another works, bool, shape (plans,)."""


def _leaves(on_npu: Any, fused_chains: Any) -> tuple[Any, Any, Any]:
    """Return `leaf_op`, `leaf_of` and `chain_leaf` of a table."""
    families, count = fused_chains.shape
    order = np.full((families, count + int(fused_chains.max(initial=0))), NO_LEAF)
    leaf_of, chain_leaf = np.full((2, families, count), -1)
    for family, chains in enumerate(fused_chains):
        leaf = 0
        by_chain = np.argsort(np.where(on_npu, chains, -1), kind="stable")
        members = by_chain[np.count_nonzero(~on_npu) :]
        ends = np.searchsorted(chains[members], np.arange(int(chains.max(initial=0)) + 1), side="right")
        for chain, (start, end) in enumerate(pairwise((0, *ends))):
            ops = members[start:end]
            order[family, leaf : leaf + len(ops)] = ops
            leaf_of[family, ops] = np.arange(leaf, leaf + len(ops))
            leaf += len(ops)
            if chain > 0:
                order[family, leaf] = -len(ops)
                chain_leaf[family, ops] = leaf
                leaf += 1
    return order, leaf_of, chain_leaf


def make_table(
    rows: Any, changes: Any, change_start: Any, family: Any, fused_chains: Any, waits: Any
) -> PlanTable:
    """Return a table with what follows from its other columns."""
    order = np.argsort(changes[: fused_chains.shape[1], 0])
    first = rows[changes[order, 1]]
    array_of = np.where(np.isin(first["unit"], _ARRAY_UNITS), first["device"], -1).astype(np.int64)
    leaves = _leaves(array_of >= 0, fused_chains)
    return PlanTable(rows, changes, change_start, family, fused_chains, *leaves, array_of, waits)


def operators_of(table: PlanTable, plan: int) -> Any:
    """Return the operators under one plan, array of OP_DTYPE, shape (operators,)."""
    row_of = np.empty(table.fused_chains.shape[1], np.int64)
    changes = table.changes[: table.change_start[plan + 1]]
    row_of[changes[:, 0]] = changes[:, 1]  # the last change of an operator holds
    ops = table.rows[row_of]
    ops["fused_chain"] = table.fused_chains[table.family[plan]]
    return ops


def distinct_rows(ops: Any) -> tuple[Any, Any]:
    """Return the operators that differ, whatever their fused chains, and the row of each operator.

    Parameters
    ----------
    ops : array of OP_DTYPE

    Returns
    -------
    rows : array of OP_DTYPE, shape (rows,)
    row_of : array of int64, of the shape of `ops`
    """
    alike = ops.copy()
    alike["fused_chain"] = 0  # it says who works at the same time, not what an operator needs
    places: dict[bytes, int] = {}
    row_of = [places.setdefault(row.tobytes(), len(places)) for row in alike.reshape(-1)]
    rows = np.frombuffer(b"".join(places), ops.dtype).copy()
    return rows, np.array(row_of, np.int64).reshape(ops.shape)


def plan_table(ops: Any) -> PlanTable:
    """Return the table of plans that are given operator by operator, each a family of its own.

    Parameters
    ----------
    ops : array of OP_DTYPE, shape (plans, operators)
    """
    plans, count = ops.shape
    rows, row_of = distinct_rows(ops)
    operators = np.tile(np.arange(count), plans)
    waits = (ops["unit"] == _HOST) & (ops["live_spread_bytes"] + ops["live_copied_bytes"] > 0.0)
    return make_table(
        rows=rows,
        changes=np.stack([operators, row_of.reshape(-1)], axis=1),
        change_start=np.arange(plans + 1) * count,
        family=np.arange(plans),
        fused_chains=ops["fused_chain"].astype(np.int64),
        waits=waits.any(axis=1),
    )
