"""Work of a group of operators on a CPU or GPU: the host columns of the operator table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from npusim.arch import Cpu, Gpu
from npusim.arch.device import ELEMENT_KINDS, ROW_KINDS
from npusim.cost.lowering.execution import execution_of
from npusim.cost.lowering.plans import Group
from npusim.cost.machine.hosts import HostFormat
from npusim.graph import Graph
from npusim.ops import CSR_INDEX_BYTES, DType, Family, Operator, Storage, Tensor, TensorKind, WorkClass


def fill_host_work(
    row: Any,
    graph: Graph,
    group: Group,
    device: Cpu | Gpu,
    handed: Collection[str] = (),
    uncached: Collection[str] = (),
) -> None:
    """Fill the host columns of the row of a group, whose shape is filled in already.

    Parameters
    ----------
    handed : collection of str
        Tensors that other devices touch too: they pass through DRAM, even if caches hold them.
    uncached : collection of str
        See `uncached_tensors`.
    """
    members = [graph.operators[name] for name in group.members]
    traffic = _Traffic(graph, members, device)
    main = members[0]
    row["host_format"] = _format(graph.inputs_of(main))
    if main.traits.work_class is WorkClass.CONTRACTION:
        row["host_macs"] = row["macs"] / _layout_rate(graph, main, device)
        is_by_channel = main.family is Family.DEPTHWISE and graph.work(main).in_c == 1
        row["host_results"] = _FOR_ALL_CORES if is_by_channel else graph.outputs_of(main)[0].elements
    for op in members:
        _add_elements(row, graph, op)
    read, written = traffic.read(), graph.outputs_of(members[-1])
    row["host_read_bytes"] = sum(traffic.read_of(t) for t in read)
    row["host_written_bytes"] = sum(traffic.size(t) for t in written)
    row["host_fresh_bytes"] = sum(traffic.read_of(t) for t in read if t.name in uncached)
    row["host_leaving_bytes"] = sum(traffic.size(t) for t in written if t.name in uncached)
    for tensor in (*read, *written):
        # The runtime has Booleans in a format of its own, and converts what comes in and goes out.
        outside = tensor.kind is TensorKind.INPUT or tensor.name in graph.outputs
        if tensor.dtype is DType.BOOL and outside:
            row["host_elements"][ELEMENT_KINDS.index("boolean")] += tensor.elements
    if _is_sparse_product(graph, main):
        _fill_sparse_product(row, graph, main, traffic, uncached)
    hand_over(row, graph, group, device, handed)
    if main.traits.work_class is WorkClass.INDEXED:
        _random(row, graph, main, device)


def _layout_rate(graph: Graph, product: Operator, device: Cpu | Gpu) -> float:
    """Return the rate of a product in the layout that the runtime takes for the network."""
    planar = device.planar
    if planar is None or not graph.inputs_of(product)[0].dtype.is_float:
        return 1.0
    return float(planar.rate) if any(op.type.lower() in planar.ops for op in graph) else 1.0


_WIDEST_INTEGER_BYTES = 4.0
"""OpenVINO's CPU plugin computes 64-bit integers in 32 bits: its profile of GraphSAGE along edges names the
Broadcast of node numbers `ref_i32`, and holds no Convert of them."""


def held_bytes(dtype: DType) -> float:
    """Return the bytes of an element in a host's runtime, if floating point is not widened."""
    return float(dtype.bytes) if dtype.is_float else min(float(dtype.bytes), _WIDEST_INTEGER_BYTES)


def _is_sparse_product(graph: Graph, op: Operator) -> bool:
    """Return whether a product visits only the non-zeros of its left operand, which is stored sparse."""
    if op.family is Family.AGGREGATE:
        return True
    return op.family is Family.MATMUL and graph.inputs_of(op)[0].storage is Storage.ZVC


_FOR_ALL_CORES = float("inf")
"""Results of a product that keeps all cores busy, however few it has (`busy_outputs` of a data sheet): cores
divide the channels of a depthwise convolution, or the non-zeros of a sparse operand."""


def _fill_sparse_product(
    row: Any, graph: Graph, op: Operator, traffic: _Traffic, uncached: Collection[str]
) -> None:
    """Fill in a product along the non-zeros of its left operand.

    Each non-zero fetches the row of the right operand that it multiplies. Fetches scatter over that operand:
    over all of it, or over as many cache lines as there are fetches. A right operand among `uncached` comes
    from DRAM as a whole (`uncached_tensors`).
    """
    left, right = graph.inputs_of(op)[:2]
    if op.family is not Family.AGGREGATE:  # an aggregation counts the products of non-zeros alone
        row["host_macs"] *= left.density
    nonzeros, right_bytes = float(left.nonzeros), traffic.size(right)
    row_bytes = right_bytes * row["out_c"] / max(1, right.elements)
    row["host_results"] = _FOR_ALL_CORES  # cores divide the non-zeros, so few results leave none idle
    row["host_rows"][ROW_KINDS.index("aggregate")] += nonzeros
    row["host_gathers"] = nonzeros
    row["host_fetched_bytes"] = nonzeros * row_bytes
    row["host_reach_bytes"] = min(right_bytes, nonzeros * _line_bytes(row_bytes, traffic.device))
    row["host_fresh_bytes"] += right_bytes if right.name in uncached else 0.0


def _line_bytes(row_bytes: float, device: Cpu | Gpu) -> float:
    """Return the bytes of the cache lines that a row touches; at least one."""
    line = host_facts(device).cache_line
    return max(1.0, -(-row_bytes // line)) * line


def hand_over(row: Any, graph: Graph, group: Group, device: Cpu | Gpu, handed: Collection[str]) -> None:
    """Count `handed` tensors of a group as DRAM traffic in its row, whose host columns are filled in."""
    if not handed:
        return
    traffic = _Traffic(graph, [graph.operators[name] for name in group.members], device)
    for tensor in traffic.read():
        if tensor.name in handed:
            size = min(traffic.read_of(tensor), float(row["host_read_bytes"]))
            row["host_handed_bytes"] += size
            row["host_read_bytes"] -= size
            row["host_fresh_bytes"] = min(row["host_fresh_bytes"], row["host_read_bytes"])
    for tensor in graph.outputs_of(traffic.members[-1]):
        if tensor.name in handed:
            size = traffic.size(tensor)
            row["host_handed_bytes"] += size
            row["host_handed_written_bytes"] += size
            row["host_written_bytes"] -= size
            row["host_leaving_bytes"] = min(row["host_leaving_bytes"], row["host_written_bytes"])


def shared_tensors(
    graph: Graph, groups: Iterable[Group], roots: Mapping[str, Collection[str]]
) -> frozenset[str]:
    """Return the stored tensors of computed values that several devices read or write."""
    touched: dict[str, set[str]] = {}
    for group in groups:
        for op in (graph.operators[name] for name in group.members if group.device):
            for name in (*op.inputs, *op.outputs):
                for stored in roots[name]:
                    touched.setdefault(stored, set()).add(group.device)
    return frozenset(
        name
        for name, devices in touched.items()
        if len(devices) > 1 and graph.tensors[name].kind is TensorKind.ACTIVATION
    )


def uncached_tensors(
    graph: Graph, groups: Sequence[Group], roots: Mapping[str, Collection[str]], leaving: Collection[str]
) -> dict[int, set[str]]:
    """Return for each group on a host the tensors that go through DRAM even if its caches have room.

    They are inputs, constants and states at their first read, results of the network (`leaving`), and tensors
    passed between its separately compiled parts. `roots` gives the stored tensors that hold the bytes of each
    tensor. Keys are places in `groups`.
    """
    external = {name for name, tensor in graph.tensors.items() if tensor.kind is not TensorKind.ACTIVATION}
    external.update(graph.passed_between_parts)
    fetched, uncached = set[str](), dict[int, set[str]]()
    for i, group in enumerate(groups):
        if group.unit.is_host:
            members = [graph.operators[name] for name in group.members]
            unread = {t: external.intersection(roots[t]) - fetched for op in members for t in op.inputs}
            results = {t for op in members for t in op.outputs if not set(roots[t]).isdisjoint(leaving)}
            uncached[i] = results | {name for name, stored in unread.items() if stored}
            fetched.update(*unread.values())
    return uncached


def host_transfers(
    graph: Graph, group: Group, device: Cpu | Gpu, uncached: Collection[str]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the bytes that a group on a host reads and writes by tensor.

    Inputs, constants and states are left out but for their first read (`uncached_tensors`).
    """
    members = [graph.operators[name] for name in group.members]
    traffic = _Traffic(graph, members, device)
    is_external = {t.name: t.kind is not TensorKind.ACTIVATION for t in traffic.read()}
    read = {
        t.name: traffic.read_of(t) or (traffic.size(t) if _is_sparse_product(graph, members[0]) else 0.0)
        for t in traffic.read()
        if t.name in uncached or not is_external[t.name]
    }
    return read, {t.name: traffic.size(t) for t in graph.outputs_of(members[-1])}


def _format(inputs: tuple[Tensor, ...]) -> HostFormat:
    dtype = inputs[0].dtype if inputs else DType.INT32
    if not dtype.is_float:
        return HostFormat.INTEGER
    if dtype is DType.BF16:
        return HostFormat.BF16
    return HostFormat.FP16 if dtype.bytes <= 2 else HostFormat.FP32


def _add_elements(row: Any, graph: Graph, op: Operator) -> None:
    if op.traits.work_class in (WorkClass.CONTRACTION, WorkClass.STATE):
        return
    work, inputs = graph.work(op), graph.inputs_of(op)
    execution = execution_of(op.traits)
    kind = execution.element_kind(op, inputs, graph.outputs_of(op))
    row["host_elements"][ELEMENT_KINDS.index(kind)] += work.elements
    for row_kind, count in execution.row_counts(op, inputs, work).items():
        row["host_rows"][ROW_KINDS.index(row_kind)] += count


def _random(row: Any, graph: Graph, op: Operator, device: Cpu | Gpu) -> None:
    """Fill in the scattered rows of an operator: each starts with a random access and continues in order."""
    inputs, work = graph.inputs_of(op), graph.work(op)
    table = inputs[0]
    row_bytes = work.row_length * table.dtype.bytes
    row["host_reach_bytes"] = min(float(table.bytes), work.rows * _line_bytes(row_bytes, device))
    row["host_gathers" if op.family is Family.GATHER else "host_scatters"] = work.rows
    if op.family is not Family.GATHER:
        row["host_columns"] = work.row_length


class HostFacts(NamedTuple):
    """Properties of a device that the host columns depend on."""

    widens: bool
    """Whether it computes fp16 in fp32, because it multiplies fp16 no faster."""
    cache_line: float
    """Bytes."""


def host_facts(device: Cpu | Gpu) -> HostFacts:
    """Return the properties of a device that its host columns depend on."""
    rates = device.macs_per_cycle
    return HostFacts(rates.get("fp16", 0.0) <= rates.get("fp32", 0.0), float(device.cache_line or 1))


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Tensors that a group reads and writes; tensors between its members are neither."""

    graph: Graph
    members: list[Operator]
    device: Cpu | Gpu

    def size(self, tensor: Tensor) -> float:
        """Return the bytes of a tensor in the format of the device; one without fp16 arithmetic uses fp32."""
        if tensor.storage is Storage.CSR:
            widened = tensor.with_(dtype=DType.FP32) if self._widens(tensor) else tensor
            return widened.stored_bytes
        each = max(4.0, tensor.dtype.bytes) if self._widens(tensor) else held_bytes(tensor.dtype)
        return float(tensor.elements * each + tensor.scales_bytes)

    def _widens(self, tensor: Tensor) -> bool:
        moves = not execution_of(self.members[0].traits).computes
        return tensor.dtype.is_float and host_facts(self.device).widens and not moves

    def read(self) -> list[Tensor]:
        """Return the tensors that the group reads and does not make itself."""
        inner = {name for op in self.members for name in op.outputs}
        names = dict.fromkeys(name for op in self.members for name in op.inputs if name not in inner)
        return [self.graph.tensors[name] for name in names]

    def read_of(self, tensor: Tensor) -> float:
        """Return the bytes that the group reads of a tensor.

        A gather reads only its rows of a table; a scatter reads no zeros that it overwrites. A sparse product
        reads the non-zeros of its left operand with their indices; the fetched rows of its right operand are
        counted apart.
        """
        main = self.members[0]
        if main.inputs and _is_sparse_product(self.graph, main):
            left, table = main.inputs[:2]
            if tensor.name == table and tensor.name != left:
                return 0.0
            if tensor.name == left and tensor.storage is Storage.ZVC:
                return tensor.density * (self.size(tensor) + float(CSR_INDEX_BYTES * tensor.elements))
        if not main.inputs or tensor.name != main.inputs[0]:
            return self.size(tensor)
        if main.family is Family.GATHER:
            return self.size(self.graph.outputs_of(main)[0])
        if main.family is Family.SCATTER and tensor.kind is TensorKind.CONSTANT and not tensor.density:
            return 0.0
        return self.size(tensor)
