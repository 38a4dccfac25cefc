"""Which operators ride along with another: the stamp that is put on a parcel before it leaves the counter.

The post-processing engine behind the MAC grid applies biases, activations and requantisation to an output on
its way to SRAM, so these cost nothing of their own. The SoC lists what it can apply (`npu.dpu.fused_ops`).
A CPU's or GPU's runtime joins whole chains of elementwise operators to one pass over the data, whatever other
tensors they read (`cpu.fused_ops`); there each costs its arithmetic. Where devices share a network it may be
cut anywhere, and nothing is joined on a host: so what an operator costs there does not depend on its
neighbours' devices, and placements can be compared by adding up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npusim.arch import Soc
from npusim.cost.decisions import Group
from npusim.cost.tables import Unit
from npusim.graph import Graph
from npusim.mapping.order import in_runs
from npusim.mapping.placement import DeviceChoice, unit_of
from npusim.ops import Family, Operator, TensorKind

__all__ = ["fuse", "fused_on"]

_HOSTS = (Unit.CPU, Unit.GPU)
_DENSE = (Family.MATMUL, Family.CONVOLUTION, Family.DEPTHWISE)


def fuse(graph: Graph, soc: Soc, device: DeviceChoice, swap_operands: bool = False) -> tuple[Group, ...]:
    """Group a graph's operators for a SoC.

    Parameters
    ----------
    graph : Graph
    soc : Soc
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
        fused = _followers(op, units, graph, soc, taken) if alone or unit not in _HOSTS else ()
        taken.update(fused)
        swapped = (
            swap_operands and unit is Unit.DPU and op.family is Family.MATMUL and graph.work(op).batch == 1
        )
        # On a host a follower may read what is made after its group's main operator; nobody else waits for
        # what lies between the two.
        last = place[fused[-1]] if fused and unit in _HOSTS else place[op.name]
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
            follower, result, unit, units[follower.name], graph, soc
        ):
            return tuple(found)
        found.append(follower.name)
        current = follower


def _leads(op: Operator, unit: Unit, soc: Soc) -> bool:
    """Whether other operators may ride along with one: on a host with products, and with each other."""
    if unit in _HOSTS:
        return op.family in _DENSE or op.type.lower() in fused_on(soc, unit)
    return unit is Unit.DPU and op.family is not Family.POOLING


def _rides_along(op: Operator, result: str, unit: Unit, own: Unit, graph: Graph, soc: Soc) -> bool:
    if op.type.lower() not in fused_on(soc, unit):
        return False
    if own is not unit if unit in _HOSTS else own in _HOSTS:
        return False
    if graph.tensors[op.outputs[0]].elements != graph.tensors[result].elements:
        return False
    if unit in _HOSTS:
        return True
    channels = graph.tensors[result].shape[-1]
    others = [graph.tensors[t] for t in op.inputs if t != result]
    # A number for all or one a channel is loaded with the workload; a whole second tensor is not.
    return all(t.kind is TensorKind.CONSTANT and t.elements in (1, channels) for t in others)


def fused_on(soc: Soc, unit: Unit) -> Sequence[str]:
    """Return the operator types that a unit applies to a result on its way out."""
    if unit is Unit.CPU:
        return soc.cpu.fused_ops
    return soc.gpu.fused_ops if unit is Unit.GPU else soc.npu.dpu.fused_ops
