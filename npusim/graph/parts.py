"""Division of a graph into parts that are compiled and launched one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import accumulate

from npusim.graph.editor import Editor
from npusim.graph.graph import Graph


def in_parts(graph: Graph, count: int) -> Graph:
    """Return a graph in consecutive parts whose operators read and write about as many bytes."""
    if count == 1:
        return graph
    sizes = [sum(graph.tensors[t].stored_bytes for t in (*op.inputs, *op.outputs)) for op in graph]
    ends = accumulate(sizes)
    middles = [end - size / 2.0 for end, size in zip(ends, sizes, strict=True)]
    whole = max(sum(sizes), 1.0)
    numbers = (min(count - 1, int(count * middle / whole)) for middle in middles)
    return _divided(graph, dict(zip(graph.operators, numbers, strict=True)))


def cut_at(graph: Graph, tensors: Collection[str]) -> Graph:
    """Return a graph in which whatever depends on one of the tensors is a later part than what makes it."""
    part_of, number_of = dict[str, int](), dict[str, int]()
    for op in graph:
        number = max((part_of.get(t, 0) + (t in tensors) for t in op.inputs), default=0)
        part_of |= dict.fromkeys(op.outputs, number)
        number_of[op.name] = number
    return _divided(graph, number_of)


def _divided(graph: Graph, number_of: Mapping[str, int]) -> Graph:
    editor = Editor.of(graph)
    for name, number in number_of.items():
        editor.change_operator(name, part=f"part{number}")
    return editor.finish()
