"""Lowers a graph and the decisions about it to the operator table.

Nothing is decided here and nothing is costed; every column follows from shapes, storage, decisions, and the
SoC's switches and DSP kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npusim.arch import Soc
from npusim.cost.decisions import Decisions, Group
from npusim.cost.dsp_table import fill_kernel
from npusim.cost.execution import execution_of
from npusim.cost.host_lowering import fill_host_work
from npusim.cost.liveness import Liveness, fused_chains, packing
from npusim.cost.tables import DpuOperation, Unit, empty_ops
from npusim.graph import Graph
from npusim.ops import Family, Operator, Storage, Tensor, TensorKind, Work, WorkClass

__all__ = ["Lowered", "fill_dsp", "lower"]

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


class _Lowering:
    """Lowers one graph; the parts of a row are filled one after the other."""

    def __init__(self, graph: Graph, decisions: Decisions, soc: Soc) -> None:
        self.graph, self.decisions, self.soc = graph, decisions, soc
        self.live = Liveness(graph, decisions, soc)
        self.root = self.live.root
        self.warnings: list[str] = []

    def run(self) -> Lowered:
        table = empty_ops(len(self.decisions.groups))
        device = ""
        for i, group in enumerate(self.decisions.groups):
            row = table[i]
            row["unit"] = group.unit
            if group.unit is Unit.VIEW:
                continue
            entered = group.unit.device
            row["launches"] = 1.0 if entered != device else 0.0
            self._row(row, i, group, first=entered != device)
            device = entered
        for number, members in enumerate(fused_chains(self.graph, self.decisions, self.root), start=1):
            table["fused_chain"][list(members)] = number
        if not device:  # nothing but views: the runtime is called all the same
            table["launches"][:1] = 1.0
        return Lowered(table, self.decisions.groups, tuple(self.warnings))

    def _row(self, row: Any, index: int, group: Group, first: bool) -> None:
        op = self.graph.operators[group.main]
        inputs = self.graph.inputs_of(op)
        work = self.graph.work(op)
        last = self.graph.operators[group.fused[-1]] if group.fused else op
        results = self.graph.outputs_of(last)
        self._shape(row, op, work, inputs, group)
        row["live_spread_bytes"], row["live_copied_bytes"] = self.live.bytes_at(index)
        if group.unit.is_host:
            device = self.soc.cpu if group.unit is Unit.CPU else self.soc.gpu
            fill_host_work(row, self.graph, group, device, self.decisions.is_split)
            return
        if group.unit is Unit.DSP:
            fill_dsp(row["dsp"], self.graph, op, self.soc, self.warnings)
        elif group.unit is Unit.DMA:
            row["copy_bytes"] = sum(t.bytes for t in results)
        self._operands(row, index, op, group, inputs, results, first)

    def _shape(self, row: Any, op: Operator, work: Work, inputs: tuple[Tensor, ...], group: Group) -> None:
        for name in _SIZES:
            row[name] = float(getattr(work, name))
        if group.swapped:
            row["out_w"], row["out_c"] = float(work.out_c), float(work.out_w)
        for name in _QUANTITIES:
            row[name] = getattr(work, name)
        if group.unit is Unit.DPU:
            row["dpu_operation"] = operation = execution_of(op.traits).dpu
            if operation is DpuOperation.ELTWISE:  # pixels of as many channels as the last axis has
                channels = inputs[0].shape[-1] if inputs[0].shape else 1
                row["out_c"], row["out_w"] = float(channels), max(1.0, work.elements / max(1, channels))

    def _operands(
        self,
        row: Any,
        index: int,
        op: Operator,
        group: Group,
        inputs: tuple[Tensor, ...],
        results: tuple[Tensor, ...],
        first: bool,
    ) -> None:
        product = group.unit is Unit.DPU and execution_of(op.traits).dpu in _PRODUCTS
        row["c_item"] = results[0].dtype.bytes
        row["c_resident"] = all(self._is_resident(t) for t in results)
        row["c_dram_bytes"] = sum(self._written(t) for t in results)
        if not inputs:  # made from nothing, such as a Range
            return
        a = inputs[0]
        b = inputs[1] if product else None
        if b is not None and group.swapped:
            a, b = b, a
        extra = [t for t in inputs if t is not a and t is not b]
        extra += [self.graph.tensors[t] for name in group.fused for t in self._side_operands(name, group)]
        row["a_item"] = a.dtype.bytes
        row["a_dram_bytes"] = self._fetched(a, index, is_weight=False)
        if op.family is Family.GATHER:  # of a table no more than the rows that are taken
            row["a_dram_bytes"] *= min(1.0, results[0].elements / max(1, a.elements))
        row["a_resident"], row["a_prefetch"] = self._is_resident(a), self._is_known(a) and not first
        row["a_constant"] = a.kind is TensorKind.CONSTANT
        if b is not None:
            row["b_item"] = b.dtype.bytes
            row["b_dram_bytes"] = self._fetched(b, index, is_weight=True)
            row["b_resident"], row["b_prefetch"] = self._is_resident(b), self._is_known(b) and not first
            row["a_pack"], row["b_pack"] = self._packing(a, False), self._packing(b, True)
            self._zeros(row, a, b)
            self._triangle(row, a, op, index)
        row["extra_dram_bytes"] = sum(
            self._fetched(t, index, is_weight=True) for t in {t.name: t for t in extra}.values()
        )

    def _side_operands(self, fused: str, group: Group) -> list[str]:
        inner = {t for name in (group.main, *group.fused) for t in self.graph.operators[name].outputs}
        return [t for t in self.graph.operators[fused].inputs if t not in inner]

    def _is_resident(self, tensor: Tensor) -> bool:
        root, residency = self.root[tensor.name], self.decisions.residency
        return root in residency.whole or root in residency.row_fused

    def _is_known(self, tensor: Tensor) -> bool:
        return self.graph.tensors[self.root[tensor.name]].kind is not TensorKind.ACTIVATION

    def _share_to_fetch(self, tensor: Tensor, index: int) -> float:
        """Share of a tensor that is not in SRAM from an earlier use."""
        root = self.root[tensor.name]
        kept = self.decisions.residency.cached.get(root, 0.0)
        return 1.0 - kept if kept and index > self.live.first_use(root) else 1.0

    def _fetched(self, tensor: Tensor, index: int, is_weight: bool) -> float:
        """Bytes that DMA reads when the operand is passed over once."""
        if self._is_resident(tensor):
            return 0.0
        return tensor.bytes * self._packing(tensor, is_weight) * self._share_to_fetch(tensor, index)

    def _packing(self, tensor: Tensor, is_weight: bool) -> float:
        """Bytes of an operand over its dense bytes: below 1 where it is stored with a bitmap."""
        return packing(tensor, is_weight, self.soc)

    def _written(self, result: Tensor) -> float:
        aliases = [name for name, root in self.root.items() if root == result.name]
        leaves = any(name in self.graph.outputs for name in aliases)
        return result.bytes if leaves or not self._is_resident(result) else 0.0

    def _zeros(self, row: Any, a: Tensor, b: Tensor) -> None:
        """Densities that the grid may use: only operands stored with a bitmap are skipped."""
        switches = self.soc.npu.sparsity
        if a.storage is Storage.ZVC and switches.skip_activations:
            row["a_density"] = a.density
            row["a_block_density"] = a.block_density if a.block_density is not None else 1.0
        if b.storage is Storage.ZVC and switches.skip_weights:
            row["b_density"] = b.density

    def _triangle(self, row: Any, a: Tensor, op: Operator, index: int) -> None:
        if a.storage is not Storage.TRIANGLE:
            return
        if op.family is Family.MATMUL and row["batch"] == 1.0 and row["out_w"] == row["in_c"]:
            row["triangle"] = 1
            row["a_triangle_bytes"] = a.stored_bytes * self._share_to_fetch(a, index)
        else:
            self.warnings.append(
                f"{op.name}: {a.name} is stored as a triangle, but only a product from its left can use that"
            )


def lower(graph: Graph, decisions: Decisions, soc: Soc) -> Lowered:
    """Lower a graph to the operator table.

    Parameters
    ----------
    graph : Graph
        The network, techniques applied.
    decisions : Decisions
        Fusion, placement and residency.
    soc : Soc
        For its sparsity switches and DSP kernels.

    Returns
    -------
    Lowered
        One row per group; rows of unit VIEW are empty.
    """
    return _Lowering(graph, decisions, soc).run()


def fill_dsp(record: Any, graph: Graph, op: Operator, soc: Soc, warnings: list[str]) -> None:
    """Fill a record of DSP_KERNEL_DTYPE with an operator's kernel and the copies that it needs beforehand.

    Copies are charged at the rate of Broadcast. An operand that was computed and is smaller than the result
    is spread out first (GraNNite, Fig. 17: broadcasts and a transpose around the sum of scores); a mask or a
    bias is known beforehand and laid out as the kernel likes it. A scatter starts from a copy of the tensor
    that it updates, and one DSP does all of it: indices may meet.
    """
    fill_kernel(record, soc.npu, op, warnings)
    copy = soc.npu.dsp.kernel("broadcast")
    copy_cycles = float(copy[2].per_element) if copy is not None else 0.0
    result = graph.outputs_of(op)[0]
    if op.traits.work_class is WorkClass.POINTWISE:
        known = graph.structural
        computed = [t for t in graph.inputs_of(op) if t.kind is TensorKind.ACTIVATION and t.name not in known]
        small = sum(1 < t.elements < result.elements for t in computed)
        record["cycles_per_element"] += copy_cycles * small
    elif op.family is Family.SCATTER:
        work = graph.work(op)
        alone = work.elements * record["cycles_per_element"] + work.rows * record["cycles_per_row"]
        record["fixed_cycles"] += alone + copy_cycles * result.elements
        record["cycles_per_element"] = record["cycles_per_row"] = 0.0
