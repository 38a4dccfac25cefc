"""Fusion: which operators are applied to another's result on its way out, at no pass of their own.

The post-processing engine behind the MAC grid applies biases, activations and requantisation to an output on
its way to SRAM (`npu.dpu.fused_ops`, a switch for each operator type). An addend or factor that is constant
is one number or one per output channel: the last axis of a matrix product, axis 1 of a convolution (NCHW).
With `npu.dpu.fuse_residual` the sum with a second whole tensor rides along too.

A CPU's or GPU's runtime joins whole chains of elementwise operators to one pass over the data, whatever other
tensors they read (`cpu.fused_ops`); there each costs its arithmetic. Where devices share a network it may be
cut anywhere, and nothing is joined on a host: so what an operator costs there does not depend on its
neighbours' devices, and placements can be compared by adding up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npusim.arch import Soc
from npusim.cost import Group, Unit, listed_as
from npusim.graph import Graph
from npusim.mapping.order import in_runs
from npusim.mapping.placement import DeviceChoice, unit_of
from npusim.ops import Family, Operator, Tensor, TensorKind, WorkClass


def fuse(graph: Graph, soc: Soc, device: DeviceChoice, swap_operands: bool = False) -> tuple[Group, ...]:
    """Group a graph's operators for a SoC.

    Parameters
    ----------
    device : {"auto", "npu", "cpu", "gpu"}
        See `npusim.mapping.placement.unit_of`.
    swap_operands : bool
        Lay the right operand of every product of two 2-D matrices on the pixels, so that the left one is the
        weight.

    Returns
    -------
    tuple of Group
        Each operator in exactly one group, in an order that enters devices seldom.
    """
    groups: list[tuple[int, Group]] = []
    taken: set[str] = set()
    place = {op.name: i for i, op in enumerate(graph)}
    units = {op.name: unit_of(op, graph, soc, device) for op in graph}
    alone = len(set(units.values()) - {Unit.VIEW}) == 1
    for op in graph:
        if op.name in taken:
            continue
        unit = units[op.name]
        fused = _followers(op, units, graph, soc, taken) if alone or not unit.is_host else ()
        taken.update(fused)
        swapped = (
            swap_operands and unit is Unit.DPU and op.family is Family.MATMUL and graph.work(op).batch == 1
        )
        # A follower may read what is made after its group's main operator; nobody else waits for what lies
        # between the two.
        late = unit.is_host or _reads_others(fused, graph)
        last = place[fused[-1]] if fused and late else place[op.name]
        groups.append((last, Group(op.name, fused, unit, swapped)))
    groups.sort(key=lambda placed: placed[0])
    return in_runs(graph, tuple(group for _, group in groups))


def _followers(
    op: Operator, units: Mapping[str, Unit], graph: Graph, soc: Soc, taken: set[str]
) -> tuple[str, ...]:
    """Operators that can be applied to the result of `op` on its way out, in order; none that is `taken`."""
    unit = units[op.name]
    if not _leads(op, unit, soc):
        return ()
    found: list[str] = []
    current = op
    while True:
        result = current.outputs[0]
        readers = graph.readers(result)
        if len(readers) != 1 or result in graph.outputs:
            return tuple(found)
        follower = readers[0]
        if follower.name in taken or not _rides_along(
            follower, op, result, unit, units[follower.name], graph, soc
        ):
            return tuple(found)
        found.append(follower.name)
        current = follower


def _leads(op: Operator, unit: Unit, soc: Soc) -> bool:
    """Whether other operators may ride along with one: on a host with products, and with each other."""
    if unit.is_host:
        return op.traits.work_class is WorkClass.CONTRACTION or _is_listed(op, unit, soc)
    return unit is Unit.DPU


def _rides_along(
    op: Operator, main: Operator, result: str, unit: Unit, own: Unit, graph: Graph, soc: Soc
) -> bool:
    if not _is_listed(op, unit, soc):
        return False
    if own is not unit if unit.is_host else own.is_host:
        return False
    if graph.tensors[op.outputs[0]].elements != graph.tensors[result].elements:
        return False
    if unit.is_host:
        return True
    if graph.tensors[op.outputs[0]].dtype.bits > graph.tensors[result].dtype.bits:
        return False  # outputs are narrowed on their way out, not widened: traced networks do that on DSPs
    others = [graph.tensors[t] for t in op.inputs if t != result]
    if (
        op.type == "Add"
        and soc.npu.dpu.fuse_residual
        and len(others) == 1
        and main.traits.work_class is WorkClass.CONTRACTION
    ):
        return others[0].shape == graph.tensors[result].shape or _is_loaded_with(
            others[0], main, graph.tensors[result]
        )
    return all(_is_loaded_with(t, main, graph.tensors[result]) for t in others)


def _is_listed(op: Operator, unit: Unit, soc: Soc) -> bool:
    """Whether an operator can ride along, and the SoC lists its type for the unit."""
    return op.traits.rides_along and listed_as(op) in fused_on(soc, unit)


def _reads_others(fused: Sequence[str], graph: Graph) -> bool:
    """Whether an operator that rides along reads a computed tensor beside its group's own result."""
    computed = [
        t
        for name in fused
        for t in graph.operators[name].inputs
        if graph.tensors[t].kind is TensorKind.ACTIVATION
    ]
    return len(computed) > len(fused)


def _is_loaded_with(other: Tensor, main: Operator, result: Tensor) -> bool:
    """Whether an operand is loaded with the workload: a constant, one number or one per output channel."""
    if other.kind is not TensorKind.CONSTANT:
        return False
    if other.elements == 1:
        return True
    if main.traits.work_class is not WorkClass.CONTRACTION:
        return False
    rank = len(result.shape)
    axis = rank - 1 if main.family is Family.MATMUL else 1
    along = dict(enumerate(other.shape, start=rank - len(other.shape)))
    return (
        all(length == 1 or i == axis for i, length in along.items()) and other.elements == result.shape[axis]
    )


def fused_on(soc: Soc, unit: Unit) -> Sequence[str]:
    """Return the operator types that a unit applies to a result on its way out."""
    if unit is Unit.CPU:
        return soc.cpu.fused_ops
    return soc.gpu.fused_ops if unit is Unit.GPU else soc.npu.dpu.fused_ops
