"""Residency plans: which tensors may stay in SRAM between operators.

Two kinds of tensors compete for room. Intermediate results that fit need never see DRAM. A matrix that
several layers read, such as a GCN's norm, can be kept from its first use, as much of it as fits (GraNNite's
CacheG, asked for by the `cached` mark). What is kept takes room from the operators' own tiles, so plans are
costed and the cheapest is taken.

The plans are: for each size in turn, keep all intermediates up to that size; with each of them, keep none to
all of the marked matrices in steps. Intermediates that can be fused row-wise are
(`npusim.mapping.row_fusion`); as blocks of rows and the weights of their readers may not fit side by side,
there are plans without row-wise fusion and marked matrices, too. A plan that is possible with some SRAM is
possible with more, and costs no more there, so more SRAM never hurts. What stays in SRAM while a host works
stays for one request in flight only; the kernel leaves such plans out where there are several.
"""

from __future__ import annotations

from npusim.cost import Group, Plan, Plans, Unit, roots
from npusim.graph import Graph
from npusim.mapping.row_fusion import row_fusable
from npusim.ops import TensorKind

__all__ = ["CACHE_STEPS", "plans"]

CACHE_STEPS = 32
"""Steps between keeping nothing and all of a marked matrix: blocks of about 3 % of it."""


def plans(graph: Graph, groups: tuple[Group, ...]) -> Plans:
    """Return every residency plan worth costing, the one that keeps nothing first.

    Parameters
    ----------
    graph : Graph
    groups : tuple of Group
        From `npusim.mapping.fusion.fuse`.
    """
    root = roots(graph)
    sizes = _intermediates(graph, groups, root)
    marked = _marked(graph, groups, root)
    row_fused = row_fusable(graph, groups, root)
    fuses, order = bool(row_fused), sorted(sizes, key=lambda name: (sizes[name], name))
    beside = [name for name in order if name not in row_fused]
    steps = [Plan(False, 0)]
    if fuses:
        steps.append(Plan(True, 0))
    for kept in dict.fromkeys((_up_to(0.0, beside, sizes), *_ends(beside, sizes))):
        if kept:
            steps.append(Plan(fuses, kept))
        steps += [
            Plan(fuses, kept, step / CACHE_STEPS) for step in range(1, CACHE_STEPS + 1 if marked else 1)
        ]
    if fuses:  # row blocks and the weights of their readers may not fit side by side
        steps += [Plan(False, kept) for kept in _ends(order, sizes)]
    return Plans(tuple(steps), row_fused, tuple(beside), tuple(order), tuple(marked))


def _ends(order: list[str], sizes: dict[str, float]) -> list[int]:
    """Return for each size how many tensors are no larger."""
    last = [i + 1 == len(order) or sizes[order[i + 1]] > sizes[name] for i, name in enumerate(order)]
    return [i + 1 for i, is_last in enumerate(last) if is_last]


def _up_to(limit: float, order: list[str], sizes: dict[str, float]) -> int:
    return sum(sizes[name] <= limit for name in order)


def _intermediates(graph: Graph, groups: tuple[Group, ...], root: dict[str, str]) -> dict[str, float]:
    """Bytes of every tensor that passes from one group on the NPU to others on the NPU only."""
    made: dict[str, float] = {}
    foreign: set[str] = set()
    for group in groups:
        on_npu = not group.unit.is_host
        last = group.fused[-1] if group.fused else group.main
        for tensor in graph.operators[last].outputs:
            if on_npu and group.unit is not Unit.VIEW:
                made[root[tensor]] = graph.tensors[root[tensor]].bytes
        if not on_npu:
            op = graph.operators[group.main]
            foreign.update(root[t] for t in (*op.inputs, *op.outputs))
    return {name: size for name, size in made.items() if name not in foreign}


def _marked(graph: Graph, groups: tuple[Group, ...], root: dict[str, str]) -> list[str]:
    """Inputs and constants with the `cached` mark that more than one group on the NPU reads."""
    readers: dict[str, set[str]] = {}
    for group in groups:
        if group.unit.device != "npu":
            continue
        for tensor in graph.operators[group.main].inputs:
            readers.setdefault(root[tensor], set()).add(group.main)
    return sorted(
        name
        for name, tensor in graph.tensors.items()
        if tensor.cached and tensor.kind is not TensorKind.ACTIVATION and len(readers.get(name, ())) > 1
    )
