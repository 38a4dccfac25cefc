"""Decisions of the mapping as plain data, and the table of operators under all residency plans.

Most operators have the same row under most plans. The table holds each distinct row once, and each plan as
its differences to the plan before. So it grows with the number of operators, not with plans times operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from npusim.compiling.records import Ints
from npusim.cost.lowering.tables import Unit
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
        """Names of all its operators."""
        return (self.main, *self.fused)

    @property
    def path(self) -> str:
        """Name of the unit in documents: npu.dpu, the name of a host, or none for a view."""
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
    """Intermediate tensors that operators pass on in blocks of rows, or in bands."""
    bands: Mapping[str, int] = field(default_factory=dict)
    """Those of images that pass in bands of rows, depth-first, with the number of bands."""
    resident: Mapping[str, float] = field(default_factory=dict)
    """Constants that stay from one inference to the next, and the share of each that stays (0 to 1)."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """Everything that was decided about a graph on a SoC."""

    groups: tuple[Group, ...]
    """In the order of execution; every operator of the graph is in exactly one."""
    residency: Residency = Residency()


@dataclass(frozen=True, slots=True)
class Fusion:
    """Tensors that operators pass on row by row, in a family of plans."""

    rows: frozenset[str] = frozenset()
    """Tensors that pass in blocks of rows: row-wise fusion."""
    bands: Mapping[str, int] = field(default_factory=dict)
    """Images that pass in so many bands of rows: depth-first fusion (`npusim.cost.lowering.bands`)."""


class Plan(NamedTuple):
    """A residency plan."""

    fusion: int
    """Which tensors are fused: a place in `Plans.fusions`."""
    whole: frozenset[str] = frozenset()
    """Intermediate tensors that stay in SRAM as a whole."""
    share: float = 0.0
    """Share of the marked inputs and constants that is kept after their first use."""
    resident: int = 0
    """Number of the set of constants that stay between inferences, see `Plans`; 0: none."""
    reserved_bytes: float = 0.0
    """SRAM of all tiles that operators leave free for weights of later ones."""


@dataclass(frozen=True, slots=True)
class Plans:
    """Residency plans of a graph, in the order in which they are compared.

    Those of a fusion follow each other; the fewer tensors change from one to the next, the sooner they are
    lowered.
    """

    steps: tuple[Plan, ...]
    fusions: tuple[Fusion, ...] = (Fusion(),)
    """The first one fuses nothing."""
    marked: tuple[str, ...] = ()
    """Inputs and constants of which a share may be kept."""
    resident: tuple[Mapping[str, float], ...] = ({},)
    """Sets of constants that may stay between inferences, with the share of each; the first is empty."""

    def residency(self, plan: int) -> Residency:
        """Return what stays in SRAM under a plan."""
        step = self.steps[plan]
        fused = self.fused(step.fusion)
        cached = dict.fromkeys(self.marked, step.share) if step.share else {}
        return replace(fused, whole=step.whole, cached=cached, resident=self.resident[step.resident])

    def fused(self, fusion: int) -> Residency:
        """Return what stays in SRAM of a fusion alone."""
        rows, bands = self.fusions[fusion].rows, self.fusions[fusion].bands
        return Residency(row_fused=rows.union(bands), bands=bands)


_HOST, _ARRAY_UNITS = int(Unit.HOST), [int(unit) for unit in Unit if unit.is_array]
NO_LEAF = -(2**62)


class PlanTable(NamedTuple):
    """The operators of a network under each of its residency plans."""

    rows: Any
    """Distinct operators, array of OP_DTYPE; their `fused_chain` is 0."""
    changes: Ints
    """Pairs of an operator and its row from then on, shape (changes, 2)."""
    change_start: Ints
    """First change of each plan, and the end."""
    family: Ints
    """Family of each plan; plans of a family are consecutive, its first changes all operators."""
    fused_chains: Ints
    """Fused chain of each operator in each family, 0 for none, shape (families, operators)."""
    leaf_op: Ints
    """Leaves of the sum in order, shape (families, leaves): operators in no chain, then each chain with its
    operators, then minus their number for its time; `NO_LEAF` for none."""
    leaf_of: Ints
    """Leaf of each operator, -1 for none, shape (families, operators)."""
    chain_leaf: Ints
    """Leaf of the time of its chain, -1 for none, shape (families, operators)."""
    array_of: Ints
    """Place of the array device of each operator, -1 for none."""
    waits: Any
    """Whether each plan keeps bytes in SRAM of a device while another works, bool."""


def _leaves(on_npu: Any, fused_chains: Any) -> tuple[Any, Any, Any]:
    """Return `leaf_op`, `leaf_of` and `chain_leaf` of a plan table."""
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
    rows: Any, changes: Ints, change_start: Ints, family: Ints, fused_chains: Ints, waits: Any
) -> PlanTable:
    """Return a plan table, with the columns that follow from the given ones."""
    order = np.argsort(changes[: fused_chains.shape[1], 0])
    first = rows[changes[order, 1]]
    array_of = np.where(np.isin(first["unit"], _ARRAY_UNITS), first["device"], -1).astype(np.int64)
    leaves = _leaves(array_of >= 0, fused_chains)
    return PlanTable(rows, changes, change_start, family, fused_chains, *leaves, array_of, waits)


def rows_under(table: PlanTable, plan: int) -> Ints:
    """Return the row of each operator under one plan, shape (operators,)."""
    row_of = np.empty(table.fused_chains.shape[1], np.int64)
    changes = table.changes[: table.change_start[plan + 1]]
    row_of[changes[:, 0]] = changes[:, 1]  # the last change of an operator holds
    return row_of


def operators_of(table: PlanTable, plan: int) -> Any:
    """Return the operators under one plan, array of OP_DTYPE, shape (operators,)."""
    ops = table.rows[rows_under(table, plan)]
    ops["fused_chain"] = table.fused_chains[table.family[plan]]
    return ops


def under_plan(table: PlanTable, plan: int) -> PlanTable:
    """Return a table with one of its plans alone; sums keep their order, so figures their last digit."""
    return plan_table(operators_of(table, plan)[np.newaxis])._replace(waits=table.waits[plan : plan + 1])


def distinct_rows(ops: Any) -> tuple[Any, Any]:
    """Return the distinct operators without their `fused_chain`, and each operator's row, shaped as `ops`."""
    without_chains = ops.copy()
    without_chains["fused_chain"] = 0  # it says who works at the same time, not what an operator needs
    places: dict[bytes, int] = {}
    row_of = [places.setdefault(row.tobytes(), len(places)) for row in without_chains.reshape(-1)]
    rows = np.frombuffer(b"".join(places), ops.dtype).copy()
    return rows, np.array(row_of, np.int64).reshape(ops.shape)


def plan_table(ops: Any) -> PlanTable:
    """Return the plan table of operators, shape (plans, operators); each plan is its own family."""
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
