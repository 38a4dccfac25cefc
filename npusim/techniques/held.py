"""Tensors that lie in DRAM before the first operator runs: constants, inputs, and inputs in the number format
they are needed in.

They are the pantry of the kitchen: how they are packed and which stay on the worktop can be decided
beforehand.
"""

from __future__ import annotations

from npusim.graph import Graph
from npusim.ops import Family, Tensor, TensorKind

__all__ = ["held"]


def held(graph: Graph) -> tuple[Tensor, ...]:
    """Return constants, inputs, and what a Convert made of one of them."""
    found = []
    for tensor in graph.tensors.values():
        writer = graph.writer(tensor.name)
        source = tensor
        if writer is not None and writer.family is Family.CONVERT:
            source = graph.tensors[writer.inputs[0]]
        if source.kind in (TensorKind.CONSTANT, TensorKind.INPUT):
            found.append(tensor)
    return tuple(found)
