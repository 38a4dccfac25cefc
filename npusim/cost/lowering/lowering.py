"""Lowering of a graph and its mapping decisions to the operator table.

Each column follows from shapes, storage and decisions, and from switches and DSP kernels of the SoC.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from npusim.arch import Npu, Soc
from npusim.cost.lowering import formats, host_lowering
from npusim.cost.lowering.bands import in_bands
from npusim.cost.lowering.execution import execution_of, fill_dsp, own_cycles
from npusim.cost.lowering.liveness import Liveness, Use, fill_reuse, packing_ratio, roots
from npusim.cost.lowering.plans import (
    Decisions,
    Group,
    Plan,
    Plans,
    PlanTable,
    distinct_rows,
    is_state_copy,
    make_table,
)
from npusim.cost.lowering.tables import DpuOperation, Unit, empty_ops
from npusim.errors import ConfigError
from npusim.graph import Graph
from npusim.ops import Family, Operator, Storage, Tensor, TensorKind, Work, WorkClass

_PRODUCTS = (DpuOperation.MATMUL, DpuOperation.CONVOLUTION)
_OUTPUT, _KERNEL = ("out_w", "out_h", "out_c"), ("kernel_w", "kernel_h", "stride_w", "stride_h")
_SIZES = ("batch", *_OUTPUT, "in_w", "in_h", "in_c", *_KERNEL)
_QUANTITIES = ("macs", "elements", "rows", "row_length")


@dataclass(frozen=True, slots=True)
class Lowered:
    """The operator table with the names behind its rows."""

    ops: Any
    """Array of OP_DTYPE, shape (groups,)."""
    groups: tuple[Group, ...]
    warnings: tuple[str, ...]
    transfers: Callable[[], list[Transfers]]
    """What each group reads and writes in one pass over its operands, wherever they lie."""


class Transfer(NamedTuple):
    """What a group reads or writes of a stored tensor in one pass, wherever the tensor lies."""

    name: str
    bytes: float
    share: float
    """Share of the tensor, 0 to 1."""


class Transfers(NamedTuple):
    """What a group reads and writes."""

    read: tuple[Transfer, ...] = ()
    written: tuple[Transfer, ...] = ()


class _Resident(NamedTuple):
    """The columns of a row that depend on residency."""

    live_spread_bytes: float = 0.0
    live_copied_bytes: float = 0.0
    reserved_bytes: float = 0.0
    c_resident: int = 0
    c_dram_bytes: float = 0.0
    a_resident: int = 0
    a_dram_bytes: float = 0.0
    b_resident: int = 0
    b_dram_bytes: float = 0.0
    extra_dram_bytes: float = 0.0
    a_triangle_bytes: float = 0.0


def _pools(op: Operator, inputs: tuple[Tensor, ...]) -> bool:
    """Return whether an operator is the mean of images [N, C, H, W] over their pixels."""
    return op.type == "ReduceMean" and len(inputs[0].shape) == 4 and op.attrs.get("axes") == (2, 3)


def dispatches(graph: Graph, group: Group, npu: Npu) -> float:
    """Return the time of an operator on an NPU that nothing hides, in dispatches."""
    dispatch_s, exposed = float(npu.dispatch_overhead), npu.exposed
    if not dispatch_s:
        return 0.0
    op = graph.operators[group.main]
    inputs, result = graph.inputs_of(op), graph.outputs_of(op)[0]
    call_s, task_s = dispatch_s, float(exposed.task)
    if group.unit is Unit.DMA:
        call_s = dispatch_s if exposed.dma is None else float(exposed.dma)
    elif group.unit is Unit.DPU and op.family is Family.CONVERT:
        if exposed.requantised_element is not None:
            call_s = task_s + result.elements * float(exposed.requantised_element)
    elif group.unit is Unit.DPU:
        call_s = task_s
        if op.family is Family.DEPTHWISE and inputs[0].dtype.is_float:
            call_s += result.elements * math.prod(inputs[1].shape[3:]) * float(exposed.depthwise_tap)
    elif _pools(op, inputs) or (
        op.family is not Family.MOVE and result.elements < float(exposed.small_call or 0.0)
    ):
        call_s = task_s or dispatch_s
    elif op.type == "Transpose" and exposed.transpose is not None:
        call_s = float(exposed.transpose)
    return call_s / dispatch_s


class _Lowering:
    """Rows of the groups of a graph: columns of residency are filled in for each plan, all others once."""

    def __init__(self, graph: Graph, groups: tuple[Group, ...], soc: Soc) -> None:
        self.graph, self.groups, self.soc = graph, groups, soc
        self.root = roots(graph, groups)
        self.shared = host_lowering.shared_tensors(graph, groups, self.root)
        self.copies = {i for i, g in enumerate(groups) if is_state_copy(graph.operators[g.main], g.unit)}
        """Groups that copy states in DRAM."""
        copied = (t for i in self.copies for t in graph.operators[groups[i].main].inputs)
        returned = (*graph.outputs, *graph.passed_between_parts, *copied)
        self.leaving = {stored for name in returned for stored in self.root[name]}
        self.warnings: list[str] = []
        self.uses: dict[int, Use] = {}
        """Operands and results of each group on the NPU."""
        self.uncached = host_lowering.uncached_tensors(graph, groups, self.root, self.leaving)
        self.table = empty_ops(len(groups))
        places = {name: i for devices in (soc.array_devices, soc.hosts) for i, name in enumerate(devices)}
        place = ("", "")
        """Device and part."""
        for i, group in enumerate(groups):
            row = self.table[i]
            row["unit"] = group.unit
            if group.unit is Unit.VIEW:
                continue
            entered = (group.device, graph.operators[group.main].part)
            row["device"] = places[group.device]
            row["repeats"] = float(graph.operators[group.main].repeats)
            row["launches"] = 1.0 if entered != place else 0.0
            if not group.unit.is_host:
                row["dispatches"] = dispatches(graph, group, self._npu(group))
            self._fill(row, i, group, first=entered != place)
            place = entered
        for name in soc.hosts:
            host_groups = [i for i, group in enumerate(groups) if group.device == name]
            self.table["host_network_bytes"][host_groups] = self.table["host_fresh_bytes"][host_groups].sum()
        if not place[0]:  # a network of views calls the runtime too
            self.table["launches"][:1] = 1.0
        shared = {
            name: device.shared_level for name, device in soc.array_devices.items() if device.shared_level
        }
        if shared or any(device.levels for device in soc.array_devices.values()):
            fill_reuse(self.table, graph, groups, self.uses, self.root, self.leaving, shared)
        self.users: dict[str, list[int]] = {}
        """Groups on the NPU that read or write each tensor."""
        for i, use in self.uses.items():
            for name in use.names():
                self.users.setdefault(name, []).append(i)

    def _fill(self, row: Any, index: int, group: Group, first: bool) -> None:
        op = self.graph.operators[group.main]
        inputs = self.graph.inputs_of(op)
        work = self.graph.work(op)
        last = self.graph.operators[group.fused[-1]] if group.fused else op
        results = self.graph.outputs_of(last)
        self._shape(row, op, work, inputs, group)
        if group.unit.is_host:
            device = self.soc.hosts[group.device]
            host_lowering.fill_host_work(
                row, self.graph, group, device, self._handed(group), self.uncached[index]
            )
            return
        cycles = own_cycles(self.graph, op, self._npu(group))
        if group.unit is Unit.DSP and cycles is not None:
            row["dsp"]["per_element"] = cycles / max(1.0, row["elements"])
            row["dsp"]["reference_lanes"] = self._npu(group).dsp.lanes.fp16
        elif group.unit is Unit.DSP:
            fill_dsp(row["dsp"], self.graph, op, self._npu(group), self.warnings)
        elif group.unit is Unit.DMA and index not in self.copies:
            row["copy_bytes"] = sum(t.bytes for t in results)
        self.uses[index] = self._use(row, op, group, inputs, results, first)
        if cycles is not None and group.unit is Unit.DPU:
            if not row["macs"]:
                allowed = "operators that multiply and accumulate, and those of the DSPs"
                raise ConfigError(f"{op.name}, on the MAC grid", key="npu.equations", allowed=allowed)
            form, dpu = formats.grid_format(inputs[:2], self._npu(group), self.soc), self._npu(group).dpu
            row["mac_rate"] = form.rate * row["macs"] / dpu.macs_per_cycle(form.name) / cycles
        if cycles is not None:
            name = self._npu(group).equations[op.type.lower()]
            self.warnings.append(f"{op.name}: {cycles:,.0f} cycles of a unit by the equation {name}")

    def _handed(self, group: Group) -> set[str]:
        """Return the tensors of a group that other devices touch too."""
        members = (self.graph.operators[name] for name in group.members)
        touched = {t for op in members for t in (*op.inputs, *op.outputs)} if self.shared else ()
        return {t for t in touched if not self.shared.isdisjoint(self.root[t])}

    def _shape(self, row: Any, op: Operator, work: Work, inputs: tuple[Tensor, ...], group: Group) -> None:
        for name in _SIZES:
            row[name] = float(getattr(work, name))
        if group.swapped:
            row["out_w"], row["out_c"] = float(work.out_c), float(work.out_w)
        for name in _QUANTITIES:
            row[name] = getattr(work, name)
        if group.unit is Unit.DSP and op.traits.work_class is WorkClass.CONTRACTION:
            row["elements"] = work.macs
        if group.unit is Unit.DPU:
            operation = execution_of(op.traits).dpu
            if operation is DpuOperation.DEPTHWISE and work.in_c > 1:  # a convolution for each group
                operation = DpuOperation.CONVOLUTION
            row["dpu_operation"] = operation
            if operation is DpuOperation.ELTWISE:  # pixels of as many channels as the last axis has
                shape = max(inputs, key=lambda t: t.elements).shape
                channels = shape[-1] if shape else 1
                row["out_c"], row["out_w"] = float(channels), max(1.0, work.elements / max(1, channels))

    def _use(
        self,
        row: Any,
        op: Operator,
        group: Group,
        inputs: tuple[Tensor, ...],
        results: tuple[Tensor, ...],
        first: bool,
    ) -> Use:
        npu = self._npu(group)
        use = Use(group.device, made={t.name: t.bytes * packing_ratio(t, False, npu) for t in results})
        row["c_item"] = results[0].dtype.bytes
        if not inputs:  # made from nothing, such as a Range
            return use
        product = group.unit is Unit.DPU and row["dpu_operation"] in _PRODUCTS
        sums = group.unit is Unit.DPU and row["dpu_operation"] == DpuOperation.ELTWISE
        a = max(inputs, key=lambda t: t.elements) if sums else inputs[0]
        b = inputs[1] if product else None
        if b is not None and group.swapped:
            a, b = b, a
        extra = [t for t in inputs if t is not a and t is not b]
        ops = [self.graph.operators[name] for name in group.members]
        inner = {t for member in ops for t in member.outputs}
        extra += [self.graph.tensors[t] for member in ops[1:] for t in member.inputs if t not in inner]
        row["a_item"] = a.dtype.bytes
        if group.unit is Unit.DPU:
            self._fill_format(row, a, b, npu)
        row["a_prefetch"] = self._is_known(a) and not first
        row["a_constant"] = a.kind is TensorKind.CONSTANT
        use.a = self._stored(a, npu, is_weight=False)
        if op.family is Family.GATHER:  # of a table the gathered rows alone
            share = min(1.0, results[0].elements / max(1, a.elements))
            use.a = {name: size * share for name, size in use.a.items()}
        if b is not None:
            row["b_item"] = b.dtype.bytes
            row["b_prefetch"] = self._is_known(b) and not first
            row["a_pack"] *= packing_ratio(a, False, npu)
            row["b_pack"] = packing_ratio(b, True, npu)
            if row["dpu_operation"] == DpuOperation.CONVOLUTION:  # a transposed one has taps for each phase
                taps = math.prod(b.shape[2 - len(results[0].shape) :])
                row["b_pack"] *= taps / (row["kernel_w"] * row["kernel_h"])
            use.b = self._stored(b, npu, is_weight=True)
            # Densities that the grid may use: it skips zeros of operands with a bitmap alone.
            by_bitmap = [formats.sparse_operand(t, t is b, npu) is None for t in (a, b)]
            if a.storage is Storage.ZVC and npu.sparsity.skip_activations and by_bitmap[0]:
                row["a_density"] = a.density
                row["a_block_density"] = a.block_density if a.block_density is not None else 1.0
            if b.storage is Storage.ZVC and npu.sparsity.skip_weights and by_bitmap[1]:
                row["b_density"] = b.density
            use.triangle_bytes = self._triangle(row, a, op)
        distinct = {t.name: t for t in extra}.values()
        use.extra = tuple(self._stored(t, npu, is_weight=True) for t in distinct)
        return use

    def _fill_format(self, row: Any, a: Tensor, b: Tensor | None, npu: Npu) -> None:
        """Fill the width that the grid computes in, its rate and energy, and what regular zeros save."""
        computed = formats.grid_format((a, b) if b is not None else (a,), npu, self.soc)
        row["mac_rate"], row["mac_energy"] = computed.rate, computed.energy
        if not formats.is_plain(a, computed, npu):
            row["a_item"] = computed.item_bytes
            row["a_pack"] = min(1.0, a.dtype.bytes / computed.item_bytes)
        if b is None:
            return
        if a.dtype in npu.dpu.weights_only:
            allowed = f"weights alone in {', '.join(npu.dpu.weights_only)}; others with workload.activations"
            found = f"activations of a product in {a.dtype}: {a.name}"
            raise ConfigError(found, key="dpu.weights_only", allowed=allowed)
        uses = [formats.widening(tensor, computed, npu) for tensor in (a, b)]
        row["a_widening"], row["b_widening"] = (1.0 / float(use.rate) if use else 0.0 for use in uses)
        if computed.joules:
            joules = formats.widening_j(uses, row["out_c"], row["out_w"] * row["out_h"], npu.dpu)
            row["mac_energy"] += joules / (computed.joules * npu.dpu.energy_factors.convolution)
        reduction = float(row["in_c"] * row["kernel_w"] * row["kernel_h"])
        ratios = [formats.cycles_and_energy_ratios(t, t is b, npu, reduction) for t in (a, b)]
        together = math.prod if npu.dpu.skips_by_both else min
        row["kept"] = together(cycles for cycles, _ in ratios)
        row["mac_rate"] /= row["kept"]
        row["mac_energy"] *= together(energy for _, energy in ratios)

    def _npu(self, group: Group) -> Npu:
        return cast(Npu, self.soc.devices[group.device])

    def _stored(self, tensor: Tensor, npu: Npu, is_weight: bool) -> Mapping[str, float]:
        """Return the bytes of an operand by the stored tensor that they are part of."""
        size = tensor.bytes * packing_ratio(tensor, is_weight, npu)
        return {name: size * share for name, share in self.root[tensor.name].items()}

    def _is_known(self, tensor: Tensor) -> bool:
        stored = (self.graph.tensors[name] for name in self.root[tensor.name])
        return all(tensor.kind is not TensorKind.ACTIVATION for tensor in stored)

    def _triangle(self, row: Any, a: Tensor, op: Operator) -> float:
        """Return the bytes of activations stored as a triangle; 0 for other activations."""
        if a.storage is not Storage.TRIANGLE:
            return 0.0
        if op.family is Family.MATMUL and row["batch"] == 1.0 and row["out_w"] == row["in_c"]:
            row["triangle"] = 1
            return float(a.stored_bytes)
        self.warnings.append(
            f"{op.name}: {a.name} is stored as a triangle, but only a product from its left can use that"
        )
        return 0.0

    def transfers(self) -> list[Transfers]:
        """Return what each group reads and writes in one pass over its operands, wherever they lie."""
        return [self._transfers(i) for i in range(len(self.groups))]

    def _transfers(self, index: int) -> Transfers:
        """Return what a group reads and writes, except inputs and constants that a host may cache."""
        group = self.groups[index]
        if group.unit is Unit.VIEW:
            return Transfers()
        if group.unit.is_host:
            host = self.soc.hosts[group.device]
            read_bytes, written_bytes = host_lowering.host_transfers(
                self.graph, group, host, self.uncached[index]
            )
            return Transfers(
                tuple(self._host_transfers(read_bytes)), tuple(self._host_transfers(written_bytes))
            )
        use, npu = self.uses[index], self._npu(group)
        read = [  # activations, then weights
            Transfer(name, use.triangle_bytes or size, self._share_of(name, size, npu, is_weight=False))
            for name, size in (use.a or {}).items()
        ]
        for weights in (use.b or {}, *use.extra):
            read += [
                Transfer(name, size, self._share_of(name, size, npu, is_weight=True))
                for name, size in weights.items()
            ]
        return Transfers(tuple(read), tuple(Transfer(name, size, 1.0) for name, size in use.made.items()))

    def _share_of(self, name: str, size: float, npu: Npu, is_weight: bool) -> float:
        """Return the share of a stored tensor that `size` bytes of it are."""
        tensor = self.graph.tensors[name]
        return min(1.0, size / max(1.0, tensor.bytes * packing_ratio(tensor, is_weight, npu)))

    def _host_transfers(self, sizes: Mapping[str, float]) -> Iterator[Transfer]:
        for tensor, size in sizes.items():
            for name, share in self.root[tensor].items():
                part = self.graph.tensors[tensor].bytes * share / max(1.0, self.graph.tensors[name].bytes)
                yield Transfer(name, size * share, min(1.0, part))

    def resident(self, index: int, live: Liveness, in_sram: Collection[str]) -> _Resident:
        """Return the columns of a row that depend on residency; tensors `in_sram` never move over DRAM."""
        unit = self.groups[index].unit
        if unit is Unit.VIEW:
            return _Resident()
        spread, copied = live.bytes_at(index)
        if unit.is_host:
            return _Resident(spread, copied)
        use = self.uses[index]
        if index in self.copies:
            in_sram = frozenset()

        def fetched(operand: Mapping[str, float] | None) -> float:
            moved = operand.items() if operand is not None else ()
            return sum(size * live.share_to_fetch(name, index) for name, size in moved if name not in in_sram)

        def stays(operand: Mapping[str, float] | None) -> bool:
            return operand is not None and all(name in in_sram or live.is_resident(name) for name in operand)

        triangle_bytes = use.triangle_bytes
        if use.a is not None and triangle_bytes:
            triangle_bytes *= live.share_to_fetch(next(iter(use.a)), index)
        leaves = self.leaving
        return _Resident(
            live_spread_bytes=spread,
            live_copied_bytes=copied,
            reserved_bytes=live.reserved_at(index),
            c_resident=all(name in in_sram for name in use.made),
            c_dram_bytes=sum(s for name, s in use.made.items() if name in leaves or name not in in_sram),
            a_resident=stays(use.a),
            a_dram_bytes=fetched(use.a),
            b_resident=stays(use.b) or (use.b is not None and index in live.bands),
            b_dram_bytes=fetched(use.b),
            extra_dram_bytes=sum(fetched(operand) for operand in use.extra),
            a_triangle_bytes=triangle_bytes,
        )


def lower(graph: Graph, decisions: Decisions, soc: Soc) -> Lowered:
    """Lower a graph to the operator table, one row per group; rows of unit VIEW are empty."""
    lowering = _Lowering(graph, decisions.groups, soc)
    live = Liveness(graph, decisions, soc)
    table = in_bands(lowering.table, live.bands) if live.bands else lowering.table
    in_sram = decisions.residency.whole | decisions.residency.row_fused
    columns = [lowering.resident(i, live, in_sram) for i in range(len(table))]
    _fill_resident(table, columns)
    table["fused_chain"] = _chain_numbers(live)
    return Lowered(table, decisions.groups, tuple(lowering.warnings), lowering.transfers)


def lower_plans(
    graph: Graph, groups: tuple[Group, ...], soc: Soc, plans: Plans
) -> tuple[PlanTable, tuple[str, ...], Callable[[], list[Transfers]]]:
    """Lower a graph under each residency plan; return the table, and what `Lowered` has besides."""
    lowering = _Lowering(graph, groups, soc)
    distinct, whole_shape_of = distinct_rows(lowering.table)
    shape_of = whole_shape_of
    places: dict[tuple[int, _Resident], int] = {}
    changes: list[tuple[int, int]] = []
    starts, family, waits = [0], list[int](), list[bool]()
    chains: list[Any] = []
    waiting: set[int] = set()
    """Groups while which something stays in the SRAM of another device."""
    for changed, live, in_sram, is_new in _each_plan(lowering, plans):
        if is_new:
            chains.append(_chain_numbers(live))
            shape_of = whole_shape_of
            if live.bands:
                shapes, shape_of = distinct_rows(in_bands(lowering.table, live.bands))
                shape_of, distinct = shape_of + len(distinct), np.concatenate([distinct, shapes])
        for i in changed:
            columns = lowering.resident(i, live, in_sram)
            changes.append((i, places.setdefault((int(shape_of[i]), columns), len(places))))
            (waiting.add if live.waits_elsewhere(i) else waiting.discard)(i)
        starts.append(len(changes))
        family.append(len(chains) - 1)
        waits.append(bool(waiting))
    rows = distinct[[shape for shape, _ in places]]
    _fill_resident(rows, [columns for _, columns in places])
    table = make_table(
        rows=rows,
        changes=np.array(changes, np.int64).reshape(-1, 2),
        change_start=np.array(starts, np.int64),
        family=np.array(family, np.int64),
        fused_chains=np.array(chains, np.int64),
        waits=np.array(waits, bool),
    )
    return table, tuple(lowering.warnings), lowering.transfers


def _each_plan(
    lowering: _Lowering, plans: Plans
) -> Iterator[tuple[Iterable[int], Liveness, Collection[str], bool]]:
    """Yield for each plan (groups to lower again, liveness, tensors in SRAM, whether a family starts)."""
    graph, groups = lowering.graph, lowering.groups
    live, in_sram, last = None, set[str](), Plan(0)
    for step in plans.steps:
        is_new = live is None or step.fusion != last.fusion
        if live is None or is_new:
            residency = plans.fused(step.fusion)
            in_sram = set(residency.row_fused)
            live = Liveness(graph, Decisions(groups, residency), lowering.soc)
            last = Plan(step.fusion)
        is_new_set = (step.resident, step.reserved_bytes) != (last.resident, last.reserved_bytes)
        if is_new_set:
            live.keep_resident(plans.resident[step.resident])
            live.reserve(step.reserved_bytes)
        changed: set[int] = set(range(len(groups)) if is_new or is_new_set else ())
        toggled = [*sorted(step.whole - last.whole), *sorted(last.whole - step.whole)]
        for name in toggled:
            live.keep_or_drop(name)
            in_sram ^= {name}
        if step.share != last.share:
            live.keep_shares(dict.fromkeys(plans.marked, step.share) if step.share else {})
            toggled += plans.marked
        if not changed:
            for name in toggled:
                changed.update(live.affected(name))
                changed.update(lowering.users.get(name, ()))
        yield sorted(changed), live, in_sram, is_new
        last = step


def _fill_resident(table: Any, columns: Sequence[_Resident]) -> None:
    for i, name in enumerate(_Resident._fields):
        table[name] = [values[i] for values in columns]


def _chain_numbers(live: Liveness) -> Any:
    """Return the number of each group's fused chain, 0 for none; int64, shape (groups,)."""
    numbers = np.zeros(len(live.groups), np.int64)
    for number, members in enumerate(live.chains, start=1):
        numbers[list(members)] = number
    return numbers
