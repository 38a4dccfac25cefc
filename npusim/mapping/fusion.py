"""Which operators ride along with another: the stamp that is put on a parcel before it leaves the counter.

The post-processing engine behind the MAC grid applies biases, activations and requantisation to an output on
its way to SRAM, so these cost nothing of their own. The SoC lists what it can apply (`npu.dpu.fused_ops`).
"""

from __future__ import annotations

from npusim.arch import Soc
from npusim.cost.decisions import Group
from npusim.cost.tables import Unit
from npusim.graph import Graph
from npusim.mapping.order import in_runs
from npusim.mapping.placement import DeviceChoice, unit_of
from npusim.ops import Family, Operator, TensorKind

__all__ = ["fuse"]


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
    groups: list[Group] = []
    taken: set[str] = set()
    for op in graph:
        if op.name in taken:
            continue
        unit = unit_of(op, graph, soc, device)
        fused = (
            _followers(op, graph, soc, device) if unit is Unit.DPU and op.family is not Family.POOLING else ()
        )
        taken.update(fused)
        swapped = (
            swap_operands and unit is Unit.DPU and op.family is Family.MATMUL and graph.work(op).batch == 1
        )
        groups.append(Group(op.name, fused, unit, swapped))
    return in_runs(graph, tuple(groups))


def _followers(op: Operator, graph: Graph, soc: Soc, device: DeviceChoice) -> tuple[str, ...]:
    """Operators that can be applied to the result of `op` on its way out, in order."""
    found: list[str] = []
    current = op
    while True:
        result = current.outputs[0]
        readers = graph.readers(result)
        if len(readers) != 1 or result in graph.outputs:
            return tuple(found)
        follower = readers[0]
        if not _rides_along(follower, result, graph, soc, device):
            return tuple(found)
        found.append(follower.name)
        current = follower


def _rides_along(op: Operator, result: str, graph: Graph, soc: Soc, device: DeviceChoice) -> bool:
    if op.type.lower() not in soc.npu.dpu.fused_ops or unit_of(op, graph, soc, device) in (
        Unit.CPU,
        Unit.GPU,
    ):
        return False
    if graph.tensors[op.outputs[0]].elements != graph.tensors[result].elements:
        return False
    channels = graph.tensors[result].shape[-1]
    others = [graph.tensors[t] for t in op.inputs if t != result]
    # A number for all or one a channel is loaded with the workload; a whole second tensor is not.
    return all(t.kind is TensorKind.CONSTANT and t.elements in (1, channels) for t in others)
