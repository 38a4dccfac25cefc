"""Whether two graphs are the same work: operator for operator, whatever their tensors are called."""

from collections import Counter

from npusim.graph import Graph


def signature(graph: Graph) -> Counter[tuple[object, ...]]:
    """Type, shapes, formats, MACs and bytes of every operator, with its depth in the graph."""
    depth: dict[str, int] = {}
    found: Counter[tuple[object, ...]] = Counter()
    for op in graph:
        level = 1 + max((depth[t] for t in op.inputs if t in depth), default=-1)
        depth.update(dict.fromkeys(op.outputs, level))
        reads = tuple((t.shape, t.dtype) for t in graph.inputs_of(op))
        writes = tuple((t.shape, t.dtype) for t in graph.outputs_of(op))
        found[(level, op.type, reads, writes, graph.work(op).macs, graph.bytes(op))] += 1
    return found


def assert_agreement(built: Graph, imported: Graph) -> None:
    """Fail with the operators that only one of the graphs has."""
    ours, theirs = signature(built), signature(imported)
    assert ours == theirs, f"built only: {list(ours - theirs)}; in the file only: {list(theirs - ours)}"
    assert built.macs == imported.macs
