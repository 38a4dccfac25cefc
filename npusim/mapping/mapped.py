"""A graph with every decision made: which unit runs what, what is fused, what stays in SRAM.

Placement comes first where it is open, then fusion and residency. The analytical engine adds such a graph up,
the event engine simulates it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from npusim.arch import Soc
from npusim.cost import (
    RESULT_DTYPE,
    TOTAL_DTYPE,
    ArchRow,
    Decisions,
    Lowered,
    arch_row,
    evaluate_plans,
    operator_costs,
)
from npusim.errors import InfeasibleError
from npusim.graph import Graph
from npusim.mapping.fusion import DeviceChoice, wished
from npusim.mapping.memory import MemoryUse, memory_use
from npusim.mapping.tables import PlanTables, plan_tables
from npusim.mapping.unpacking import unpacked

SwapOperands = bool | Literal["search"]
"""Whether the operands of products change places; `search` tries both roles for each product."""


@dataclass(frozen=True, slots=True)
class Run:
    """How a network is run: OpenVINO's hints, made definite."""

    hint: str = "latency"
    requests: int = 1
    """Inferences in flight."""
    tiles: int = 1
    """Tiles an inference is compiled for, of the NPU that runs what nobody placed."""
    device: DeviceChoice = "auto"
    swap_operands: SwapOperands = False
    """Lay the right operand of each product on the pixels, so that the left one becomes the weight; `search`:
    of those products that are faster so."""
    tiles_told: bool = False
    """Whether somebody asked for so many tiles: they are then those of every NPU, as far as it has them."""

    def row(self, soc: Soc) -> ArchRow:
        """Return a machine, run like this, as a design point."""
        home = self.home(soc)
        tiles = {
            name: self.tiles if name == home or self.tiles_told else npu.tiles_used(self.hint)
            for name, npu in soc.array_devices.items()
        }
        return arch_row(soc, tiles, self.requests, self.hint)

    def home(self, soc: Soc) -> str | None:
        """Return the array device whose tiles `tiles` are: the one asked for, or the main one; None: none."""
        name = soc.main_device if self.device == "auto" else soc.named(self.device)
        return name if name in soc.array_devices else next(iter(soc.array_devices), None)


@dataclass(frozen=True, slots=True)
class Mapped:
    """A graph mapped to a SoC, with its cost."""

    graph: Graph
    soc: Soc
    run: Run
    decisions: Decisions
    lowered: Lowered
    arch: ArchRow
    """The machine as one design point."""
    results: Any
    """Array of RESULT_DTYPE, a row per group."""
    total: Any
    """Record of TOTAL_DTYPE."""
    uses: Any
    """Array of DEVICE_USE_DTYPE, a row for each device: array devices first, then hosts."""
    memory: MemoryUse
    """What it occupies in DRAM."""

    @property
    def npu(self) -> Any:
        """Record of the array device whose tiles and contexts `run` speaks of; None where there is none."""
        home = self.run.home(self.soc)
        return None if home is None else self.arch[home]

    @property
    def contexts(self) -> int:
        """Inferences that this device works on side by side; 1 where there is none."""
        return int(self.npu["contexts"]) if self.arch.arrays else 1


def map_placed(graph: Graph, soc: Soc, run: Run) -> Mapped:
    """Decide fusion and residency for the least latency; device wishes are obeyed.

    Raises
    ------
    InfeasibleError
        Where some operator fits into SRAM under no plan; it is named. Where the network does not fit into
        DRAM.
    """
    if run.swap_operands == "search":
        return _with_roles_searched(graph, soc, run)
    return _with_roles(graph, soc, run, run.swap_operands)


def _with_roles_searched(graph: Graph, soc: Soc, run: Run) -> Mapped:
    """Map with operands as written, with all swapped, and with those swapped that are faster so.

    The fastest of the three is taken. What a product reads from DRAM, and what stays in SRAM, depends on the
    other products too, so the third need not be the fastest.
    """
    found = [_with_roles(graph, soc, run, False)]
    try:
        found.append(_with_roles(graph, soc, run, True))
    except InfeasibleError:
        return found[0]
    before, after = (
        {g.main: s for g, s in zip(m.decisions.groups, m.results["latency_s"], strict=True)} for m in found
    )
    swapped = {g.main for g in found[1].decisions.groups if g.swapped}
    faster = {name for name in swapped if after[name] < before[name]}
    if faster and faster != swapped:
        found.append(_with_roles(graph, soc, run, faster))
    return min(found, key=lambda mapped: float(mapped.total["latency_s"]))


def _with_roles(graph: Graph, soc: Soc, run: Run, swapped: bool | Collection[str]) -> Mapped:
    """Decide fusion and residency where the products whose operands change places are given."""
    return _under_best_plan(graph, soc, run, plan_tables(graph, soc, run.device, swapped))


def _under_best_plan(graph: Graph, soc: Soc, run: Run, tables: PlanTables) -> Mapped:
    """Choose the residency plan of the least latency on a machine."""
    arch = run.row(soc)
    total, plan = np.zeros(1, TOTAL_DTYPE), np.zeros(1, np.int64)
    uses = evaluate_plans(arch, tables.table, total, plan)
    chosen = int(plan[0])
    decisions, lowered = tables.decisions(max(chosen, 0)), tables.lowered(max(chosen, 0))
    results = np.zeros(len(lowered.groups), RESULT_DTYPE)
    operator_costs(arch.archs, lowered.ops, results)
    if chosen < 0:
        stuck = lowered.groups[int(np.argmax(~np.isfinite(results["latency_s"])))]
        npu = arch[stuck.device]
        raise InfeasibleError(
            f"operator {stuck.main!r} does not fit into {int(npu['tiles'])} x "
            f"{float(npu['sram_tile_bytes']) / 1024:.0f} KiB of SRAM in any way; "
            f"give more: --set {stuck.device}.sram.per_tile=..."
        )
    memory = memory_use(graph, decisions, soc, run.requests)
    _check_capacity(graph, soc, run, memory)
    return Mapped(graph, soc, run, decisions, lowered, arch, results, total[0], uses, memory)


def _check_capacity(graph: Graph, soc: Soc, run: Run, memory: MemoryUse) -> None:
    """Refuse a network that DRAM has no room for."""
    capacity = float(soc.dram.capacity)
    if memory.dram_peak_bytes <= capacity:
        return
    fewer = ", fewer requests" if run.requests > 1 else ""
    need, weights = memory.dram_peak_bytes / 1e9, memory.constants_bytes / 1e9
    raise InfeasibleError(
        f"{graph.name} needs {need:.3g} GB of DRAM ({weights:.3g} GB of constants; most results at operator "
        f"{memory.peak_operator!r}), and {soc.name} has {capacity / 1e9:.3g} GB; use a narrower precision, a "
        f"smaller batch or network{fewer}, or more memory: --set dram.capacity={np.ceil(need):.0f}GB"
    )


@dataclass(frozen=True, slots=True)
class PreparedGraph:
    """A graph on one device, with all that clocks and voltages do not change: made once for many of them."""

    graph: Graph
    run: Run
    tables: PlanTables | None
    """None where the roles of operands are searched, which depends on clocks."""

    def on(self, soc: Soc) -> Mapped:
        """Return the graph mapped to a machine that differs in clocks and voltages; errors as `map_graph`."""
        if self.tables is None:
            return map_placed(self.graph, soc, self.run)
        return _under_best_plan(self.graph, soc, self.run, self.tables)


def prepared(graph: Graph, soc: Soc, run: Run) -> PreparedGraph:
    """Prepare a graph for machines that differ in clocks and voltages.

    Parameters
    ----------
    run : Run
        On a device that is named.

    Raises
    ------
    InfeasibleError
        Where the device cannot run it.
    """
    graph = unpacked(graph, soc, run.device)
    if run.swap_operands == "search":
        return PreparedGraph(graph, run, None)
    return PreparedGraph(graph, run, plan_tables(graph, soc, run.device, run.swap_operands))


def map_graph(graph: Graph, soc: Soc, run: Run) -> Mapped:
    """Decide placement, fusion and residency of a graph on a SoC for the least latency.

    Parameters
    ----------
    graph : Graph
        Techniques applied. What GraphSplit wishes on the CPU goes there as far as that is cheaper; other
        wishes are obeyed.

    Raises
    ------
    InfeasibleError
        Where some operator fits into SRAM under no plan; it is named.
    """
    graph = unpacked(graph, soc, run.device)
    if run.device == "auto" and soc.main_device in soc.array_devices and soc.has("cpu") and wished(graph):
        from npusim.mapping.graphsplit.splitting import split  # it needs this module

        return split(graph, soc, run)
    return map_placed(graph, soc, run)
