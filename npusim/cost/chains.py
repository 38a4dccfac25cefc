"""Which groups of operators work at the same time because they hand stripes on: the bucket chains of a plan.

Two people who pass buckets to each other stand in the same chain, and so does everyone they pass buckets to.
As all of a chain work at once, what any of them needs in SRAM lies there for as long as the chain works.
But there are no more buckets on the way than people who can carry one: MAC grid, DSPs, DMA.
"""

from __future__ import annotations

from collections.abc import Mapping

from npusim.arch import Soc
from npusim.cost.decisions import Decisions
from npusim.cost.tables import Unit
from npusim.graph import Graph
from npusim.ops import Tensor

__all__ = ["chains", "stripe_bytes", "stripe_sizes"]

_UNITS = 3


def chains(graph: Graph, decisions: Decisions, root: Mapping[str, str]) -> list[tuple[int, ...]]:
    """Return the groups of each chain, in order.

    Parameters
    ----------
    graph : Graph
    decisions : Decisions
    root : mapping
        The tensor whose bytes each tensor is, from `npusim.cost.liveness.roots`.
    """
    striped = decisions.residency.striped
    found: list[tuple[set[str], set[int]]] = []
    for i, group in enumerate(decisions.groups):
        if group.unit is Unit.VIEW:
            continue
        ops = [graph.operators[name] for name in (group.main, *group.fused)]
        tensors = {root[t] for op in ops for t in (*op.inputs, *op.outputs)} & striped
        if tensors:
            met = [chain for chain in found if chain[0] & tensors]
            found = [chain for chain in found if not chain[0] & tensors]
            found.append((tensors.union(*(c[0] for c in met)), {i}.union(*(c[1] for c in met))))
    return [tuple(sorted(members)) for _, members in found]


def stripe_bytes(tensor: Tensor, soc: Soc) -> float:
    """Return what a tensor that is handed on in stripes takes in a tile: one stripe is made while one is
    read.

    A stripe has as many rows as the grid has pixels.
    """
    rows = 2.0 * float(soc.npu.dpu.grid.vpe) ** 2
    return float(min(tensor.bytes, rows * tensor.shape[-1] * tensor.dtype.bytes))


def stripe_sizes(graph: Graph, decisions: Decisions, root: Mapping[str, str], soc: Soc) -> dict[str, float]:
    """Return the part that each striped tensor has in the room of its chain's stripes, in each tile.

    Notes
    -----
    Grid, DSPs and DMA work on one stripe each at a time, so there are as many stripes on the way, of the size
    of the largest at most.
    """
    found: dict[str, float] = {}
    for members in chains(graph, decisions, root):
        ops = [
            graph.operators[name]
            for i in members
            for name in (decisions.groups[i].main, *decisions.groups[i].fused)
        ]
        tensors = {root[t] for op in ops for t in op.outputs} & decisions.residency.striped
        sizes = {name: stripe_bytes(graph.tensors[name], soc) for name in sorted(tensors)}
        room = min(sum(sizes.values()), _UNITS * max(sizes.values()))
        found.update((name, size * room / sum(sizes.values())) for name, size in sizes.items())
    return found
