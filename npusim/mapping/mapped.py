"""A graph with every decision made: which unit runs what, what is fused, what stays in SRAM.

Placement comes first where it is open (`npusim.mapping.graphsplit.splitting`), then fusion and residency. The
analytical engine sums the costs of such a graph, the event engine simulates it. The operator tables depend on
the network and on the abilities of the machine, never on its speed: a sweep makes them once for all machines
that differ in clocks, sizes and rates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from npusim import cost
from npusim.arch import Soc
from npusim.arch.array import GRID_FORMATS
from npusim.cost import ArchRow, Decisions, Group, Nest, Plans, PlanTable, Residency
from npusim.errors import InfeasibleError, shown
from npusim.graph import Graph
from npusim.mapping.fusion import fuse
from npusim.mapping.memory import MemoryUse, memory_use
from npusim.mapping.placing import DeviceChoice, unpacked
from npusim.mapping.residency import plans

if TYPE_CHECKING:
    from npusim.mapping.nests import OwnMapping

SwapOperands = bool | Literal["search"]
"""Whether the operands of products change places; `search` tries both roles for each product."""
# Numbers of a device that change the tables although the design point holds them too: the pixels of a
# register tile size blocks of rows, a grid without a format leaves it to the DSPs, a host no faster in fp16
# keeps fp32, devices that share a level find there what the other one touched, and energies of formats
# of its own count relative to those of a width.
_READ_BY_LOWERING = (
    "dpu.grid.vpe", "dpu.macs_per_mpe", "dpu.widening", "dpu.sparsity", "dpu.skips_by_both",
    "macs_per_cycle", "shared_level", "dispatch_overhead", "exposed", "equations", "planar",
)  # fmt: skip
# Most bytes of DRAM by byte of a tensor: a host may keep fp8 in fp32.
_WIDEST = 4
# Tensors in SRAM that are named.
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Run:
    """How a network is run: OpenVINO's hints as definite numbers."""

    hint: str = "latency"
    requests: int = 1
    """Inferences in flight."""
    tiles: int = 1
    """Tiles an inference is compiled for, of the NPU that runs operators without a wish."""
    device: DeviceChoice = "auto"
    swap_operands: SwapOperands = False
    """Lay the right operand of each product on the pixels, so that the left one becomes the weight; `search`:
    where that is faster."""
    tiles_told: bool = False
    """Whether the user set the tiles: they then count for every NPU, up to the tiles that it has."""
    own_mapping: OwnMapping | None = None
    """Loop nests, and what stays in SRAM, that the user gives."""

    def row(self, soc: Soc) -> ArchRow:
        """Return a machine in this run as a design point."""
        home = self.home(soc)
        tiles = {
            name: self.tiles if name == home or self.tiles_told else npu.tiles_used(self.hint)
            for name, npu in soc.array_devices.items()
        }
        return cost.arch_row(soc, tiles, self.requests, self.hint)

    def home(self, soc: Soc) -> str | None:
        """Return the array device whose tiles `tiles` sets: the run's device, or the main one; None: none."""
        name = soc.main_device if self.device == "auto" else soc.named(self.device)
        return name if name in soc.array_devices else next(iter(soc.array_devices), None)


@dataclass(frozen=True, slots=True)
class Mapped:
    """A graph mapped to a SoC, with its cost."""

    graph: Graph
    soc: Soc
    run: Run
    decisions: Decisions
    lowered: cost.Lowered
    arch: ArchRow
    """The machine as one design point."""
    results: Any
    """Array of RESULT_DTYPE, a row per group."""
    total: Any
    """Record of TOTAL_DTYPE."""
    uses: Any
    """Array of DEVICE_USE_DTYPE, a row for each device: array devices first, then hosts."""
    transfers: Any
    """Prefetched transfers, array of TRANSFER_DTYPE."""
    memory: MemoryUse
    """What it occupies in DRAM."""
    nests: Sequence[Nest | None] | None = None
    """What the run fixes of the loop nest of each group; None: nothing."""

    @property
    def npu(self) -> Any:
        """Record of the array device that the run's tiles count for; None where there is none."""
        home = self.run.home(self.soc)
        return None if home is None else self.arch[home]

    @property
    def contexts(self) -> int:
        """Inferences that this device runs in parallel; 1 where there is none."""
        return int(self.npu["contexts"]) if self.arch.arrays else 1


def map_placed(graph: Graph, soc: Soc, run: Run) -> Mapped:
    """Decide fusion and residency for the least latency; wishes on devices are obeyed.

    With `swap_operands` "search" it is the fastest of three mappings: operands as written, all swapped, or
    each swapped where that product is faster. Products depend on each other's residency, so the third need
    not be the fastest. A mapping of the user's own that swaps operands replaces this search.

    Raises
    ------
    InfeasibleError
        Where some operator fits into SRAM under no plan; it is named. Where the network does not fit into
        DRAM.
    """

    def with_roles(swapped: bool | Collection[str]) -> Mapped:
        return _under_best_plan(graph, soc, run, plan_tables(graph, soc, run.device, swapped))

    if run.swap_operands != "search":
        return with_roles(run.swap_operands)
    if run.own_mapping is not None and run.own_mapping.swapped():
        return with_roles(run.own_mapping.swapped())
    candidates = [with_roles(False)]
    with suppress(InfeasibleError):  # what fits as written need not fit with operands swapped
        candidates.append(with_roles(True))
        if faster := _faster_swapped(*candidates):
            candidates.append(with_roles(faster))
    return min(candidates, key=lambda mapped: float(mapped.total["latency_s"]))


def _faster_swapped(as_written: Mapped, swapped: Mapped) -> set[str]:
    """Return the products that are faster with operands swapped; none where that is all of them."""
    written_s, swapped_s = (
        {g.main: s for g, s in zip(mapped.decisions.groups, mapped.results["latency_s"], strict=True)}
        for mapped in (as_written, swapped)
    )
    products = {g.main for g in swapped.decisions.groups if g.swapped}
    faster = {name for name in products if swapped_s[name] < written_s[name]}
    return faster if faster != products else set()


def _under_best_plan(graph: Graph, soc: Soc, run: Run, tables: PlanTables) -> Mapped:
    """Return the graph mapped under its fastest residency plan."""
    refuse_too_large(graph, soc, run.requests, tables)
    arch = run.row(soc)
    nests = None
    if run.own_mapping is not None:
        if run.own_mapping.file.stays is not None:
            tables = tables.under(run.own_mapping.plan(tables.plans))
        nests = run.own_mapping.nests(tables.groups, cost.operators_of(tables.table, 0), soc)
    costs = cost.evaluate_plans(arch, tables.table, nests)
    chosen = max(costs.plan, 0)
    decisions = Decisions(tables.groups, tables.plans.residency(chosen))
    ops = cost.operators_of(tables.table, chosen)
    lowered = cost.Lowered(ops, tables.groups, tables.warnings, tables.transfers)
    results, uses, transfers = costs.operators()
    if costs.plan < 0:
        place = int(np.argmax(~np.isfinite(results["latency_s"])))
        stuck = lowered.groups[place]
        npu = arch[stuck.device]
        if run.own_mapping is not None and nests is not None and (nest := nests[place]) is not None:
            raise _broken_nest(run.own_mapping, stuck, arch, lowered.ops[place], nest)
        raise InfeasibleError(
            f"operator {shown(stuck.main)} does not fit into SRAM in any way",
            available=float(npu["tiles"] * npu["sram_tile_bytes"]) / 1024,
            unit="KiB",
            levers=[f"give more: --set {stuck.device}.sram.per_tile=..."],
        )
    memory = memory_use(graph, decisions, soc, run.requests)
    _check_capacity(graph, soc, run.requests, memory)
    return Mapped(
        graph, soc, run, decisions, lowered, arch, results, costs.total, uses, transfers, memory, nests
    )


def _broken_nest(own: OwnMapping, group: Group, arch: ArchRow, op: Any, nest: Nest) -> InfeasibleError:
    """Return the error about a loop nest that exceeds SRAM or agrees with no tiling."""
    npu = arch[group.device]
    free, live = float(npu["sram_tile_bytes"]), float(cost.live_tile_bytes(npu, op))
    needed = cost.least_sram_bytes(arch.archs, op, nest)
    file, line = own.source.place(("operators", group.main))
    place = f"{file}:{line}: operators.{group.main}"
    if np.isfinite(needed):
        return InfeasibleError(
            f"{place}: its blocks do not fit into {group.device}.sram.per_tile, where tensors that stay "
            f"take {live:,.0f} bytes",
            needed=needed,
            available=free,
            unit="bytes",
        )
    against = [key for key in nest if np.isfinite(cost.least_sram_bytes(arch.archs, op, _without(nest, key)))]
    levers = [f"`{key}` disagrees with the rest: leave it out, or change it" for key in against[:1]]
    return InfeasibleError(f"{place}: found a loop nest that no tiling has", levers=levers)


def _without(nest: Nest, key: str) -> Nest:
    return {other: value for other, value in nest.items() if other != key}


def refuse_too_large(graph: Graph, soc: Soc, requests: int = 1, tables: PlanTables | None = None) -> None:
    """Refuse, before any search, a network that exceeds DRAM however it is mapped.

    Parameters
    ----------
    tables : PlanTables, optional
        Groups and residency plans; without them only constants and inputs count.

    Raises
    ------
    InfeasibleError
        Says how much DRAM it needs at least.
    """
    most_bytes = _WIDEST * requests * sum(tensor.stored_bytes for tensor in graph.tensors.values())
    if most_bytes <= soc.dram.capacity:
        return
    if tables is None:
        use = memory_use(graph, Decisions((), Residency()), soc, requests)
        use = use.model_copy(update={"dram_peak_bytes": use.constants_bytes + use.inputs_bytes})
    else:
        residencies = map(tables.plans.residency, range(len(tables.plans.steps)))
        decisions = (Decisions(tables.groups, residency) for residency in residencies)
        uses = (memory_use(graph, decided, soc, requests) for decided in decisions)
        use = min(uses, key=lambda use: use.dram_peak_bytes)
    _check_capacity(graph, soc, requests, use)


def _check_capacity(graph: Graph, soc: Soc, requests: int, memory: MemoryUse) -> None:
    """Raise an InfeasibleError where the network exceeds DRAM."""
    capacity = float(soc.dram.capacity)
    if memory.dram_peak_bytes <= capacity:
        return
    fewer = ", fewer requests" if requests > 1 else ""
    need, weights = memory.dram_peak_bytes / 1e9, memory.constants_bytes / 1e9
    most = f"; most results at operator {shown(memory.peak_operator)}" if memory.peak_operator else ""
    raise InfeasibleError(
        f"{graph.name} does not fit into the DRAM of {soc.name} ({weights:.3g} GB of constants{most})",
        needed=float(f"{need:.3g}"),
        available=float(f"{capacity / 1e9:.3g}"),
        unit="GB",
        levers=[
            f"use a narrower precision, a smaller batch or network{fewer}, or more memory: "
            f"--set dram.capacity={np.ceil(need):.0f}GB"
        ],
    )


@dataclass(frozen=True, slots=True)
class PlanTables:
    """A graph under every residency plan worth costing."""

    groups: tuple[Group, ...]
    plans: Plans
    table: PlanTable
    warnings: tuple[str, ...]
    transfers: Callable[[], list[cost.Transfers]]
    """See `npusim.cost.Lowered`."""

    def under(self, plan: int) -> PlanTables:
        """Return the tables under one plan alone."""
        one = replace(self.plans, steps=(self.plans.steps[plan],))
        return replace(self, plans=one, table=cost.under_plan(self.table, plan))


def plan_tables(
    graph: Graph, soc: Soc, device: DeviceChoice = "auto", swap_operands: bool | Collection[str] = False
) -> PlanTables:
    """Lower a graph under every residency plan worth costing."""
    groups = fuse(graph, soc, device, swap_operands)
    choices = plans(graph, groups, soc)
    return PlanTables(groups, choices, *cost.lower_plans(graph, groups, soc, choices))


@dataclass(frozen=True, slots=True)
class PreparedGraph:
    """A graph on one device, with everything that does not depend on clocks and voltages."""

    graph: Graph
    run: Run
    tables: PlanTables | None
    """None where the roles of operands are searched, which depends on clocks."""

    def on(self, soc: Soc) -> Mapped:
        """Return the graph mapped to a machine with other clocks and voltages; errors as `map_placed`."""
        if self.tables is None:
            return map_placed(self.graph, soc, self.run)
        return _under_best_plan(self.graph, soc, self.run, self.tables)


def prepared(graph: Graph, soc: Soc, run: Run) -> PreparedGraph:
    """Prepare a graph for mapping to machines that differ only in clocks and voltages.

    Parameters
    ----------
    run : Run
        On a named device.

    Raises
    ------
    InfeasibleError
        Where the device cannot run it.
    """
    graph = unpacked(graph, soc, run.device)
    if run.swap_operands == "search":
        return PreparedGraph(graph, run, None)
    return PreparedGraph(graph, run, plan_tables(graph, soc, run.device, run.swap_operands))


def is_read_by_lowering(path: str) -> bool:
    """Return whether lowering reads a number of a device, given its path such as `npu.dpu.grid.vpe`."""
    owner, _, rest = path.partition(".")
    if owner == "technology":
        return rest.startswith("energy.mac.") and rest.rpartition(".")[2] not in GRID_FORMATS
    return rest.startswith(_READ_BY_LOWERING)


KEPT, OWN, RESIDENT, AHEAD = "kept", "own blocks", "kept between inferences", "fetched ahead"
"""Groups of layers of `SramContents`."""
OTHERS = "other tensors that stay"
"""Layer of kept tensors that are not named."""


@dataclass(frozen=True, slots=True)
class SramContents:
    """Bytes in the SRAM of all tiles that an inference uses, while each operator of the NPU runs."""

    operators: tuple[str, ...]
    """Operators of the NPU in the order of execution."""
    ends_s: Any
    """When each ends, if they run one after the other without calls of runtimes: float64, (operators,)."""
    layers: dict[str, dict[str, Any]]
    """Layers by group and name, from the bottom up: float64 arrays, shape (operators,). `KEPT`: the largest
    tensors that stay by name, and the others with row blocks and weights for the next rows. `OWN`: blocks of
    the operator itself, both buffers. `RESIDENT`: weights that stay between inferences. `AHEAD`: weights of
    later operators. The last two where there are any."""
    capacity_bytes: float
    """SRAM of the tiles in use."""

    def group(self, name: str) -> Any:
        """Return the bytes of all layers of a group."""
        return sum(self.layers[name].values(), np.zeros(len(self.operators)))

    @property
    def free(self) -> Any:
        """Bytes that nothing uses: float64, shape (operators,)."""
        return self.capacity_bytes - sum(map(self.group, self.layers))


def sram_contents(mapped: Mapped) -> SramContents:
    """Return the bytes in SRAM while each NPU operator runs; the largest sum is the SRAM peak."""
    ops, arch = mapped.lowered.ops, mapped.npu
    on_npu = [i for i, g in enumerate(mapped.decisions.groups) if g.unit.is_array]
    tiles = float(arch["tiles"])
    live = (ops["live_spread_bytes"] - ops["reserved_bytes"] + tiles * ops["live_copied_bytes"])[on_npu]
    peak = mapped.results["sram_peak_bytes"][on_npu]
    held = {name: bytes_at for name, bytes_at in _held(mapped, on_npu).items() if bytes_at.any()}
    largest = sorted(held, key=lambda name: -float(held[name].max()))[:_MOST_NAMED]
    named = {name: held[name] for name in held if name in largest}
    resident = _live_bytes(mapped, on_npu, Residency(resident=mapped.decisions.residency.resident))
    resident = resident - _live_bytes(mapped, on_npu, Residency())
    others = {OTHERS: np.maximum(0.0, live - resident - sum(named.values()))}
    working = {"tiles of the operator": np.maximum(0.0, peak - live)}
    further = {RESIDENT: {"weights": resident}, AHEAD: {"weights": held_ahead(mapped)[on_npu]}}
    return SramContents(
        tuple(mapped.decisions.groups[i].main for i in on_npu),
        np.cumsum(mapped.results["critical_s"][on_npu]),
        {KEPT: {**named, **others}, OWN: working}
        | {group: layer for group, layer in further.items() if layer["weights"].any()},
        tiles * float(arch["sram_tile_bytes"]),
    )


def held_ahead(mapped: Mapped) -> Any:
    """Return the SRAM of all tiles that prefetched weights take during each group, in bytes.

    Those in a buffer of their operator's own tiling count up to the operator.
    """
    held = np.zeros(len(mapped.decisions.groups))
    for transfer in mapped.transfers:
        end = transfer["operator"] + (0 if transfer["is_own"] else 1)
        held[transfer["during"] : end] += transfer["held_bytes"]
    return held


def _live_bytes(mapped: Mapped, on_npu: list[int], residency: Residency) -> Any:
    """Return the live bytes in all tiles at each NPU operator if some tensors alone stay."""
    live = cost.Liveness(mapped.graph, Decisions(mapped.decisions.groups, residency), mapped.soc)
    spread, copied = np.array([live.bytes_at(i) for i in on_npu]).T.reshape(2, -1)
    return spread + float(mapped.npu["tiles"]) * copied


def _held(mapped: Mapped, on_npu: list[int]) -> dict[str, Any]:
    """Return the bytes that each resident tensor occupies: live bytes with it less live bytes without any."""
    residency = mapped.decisions.residency

    def live(names: set[str]) -> Any:
        cached = {name: residency.cached[name] for name in names & residency.cached.keys()}
        kept = replace(residency, whole=residency.whole & names, cached=cached)
        return _live_bytes(mapped, on_npu, kept)

    without = live(set())
    sizes = {name: mapped.graph.tensors[name].bytes for name in (*residency.whole, *residency.cached)}
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[: 3 * _MOST_NAMED]
    return {name: np.maximum(0.0, live({name}) - without) for name in largest}
