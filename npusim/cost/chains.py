"""Which groups of operators work at the same time because they hand stripes on: the bucket chains of a plan.

Two people who pass buckets to each other stand in the same chain, and so does everyone they pass buckets to.
As all of a chain work at once, what any of them needs in SRAM lies there for as long as the chain works.
"""

from __future__ import annotations

from collections.abc import Mapping

from npusim.cost.decisions import Decisions
from npusim.cost.tables import Unit
from npusim.graph import Graph

__all__ = ["chains"]


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
