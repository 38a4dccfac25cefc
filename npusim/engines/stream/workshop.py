"""Networks compiled for a size of the graph: what each takes to make, to keep and to run.

Like the lasts of a shoemaker: one for each size, made when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from npusim.arch import Soc
from npusim.arch.toolchain import Toolchain
from npusim.engines.stream.updates import Size
from npusim.graph import Graph, GraphStructure
from npusim.mapping import Run, map_graph
from npusim.ops import Family, TensorKind
from npusim.techniques import apply, parse

__all__ = ["KNOTS", "Builder", "Version", "Workshop", "resized"]

Builder = Callable[[GraphStructure], Graph]
"""Builds the network, without techniques, on a data graph."""
KNOTS = 17
"""Numbers of nodes at which inferences are estimated; between them latency is interpolated."""


def resized(structure: GraphStructure, size: Size) -> GraphStructure:
    """Return the statistics of a data graph with other numbers of nodes and edges, clustered as before."""
    if (size.nodes, 2 * size.edges) == (structure.nodes, structure.edges):
        return structure
    share = (2 * size.edges + size.nodes) / max(1, structure.nonzeros) * (structure.nodes / size.nodes) ** 2
    density = {block: min(1.0, value * share) for block, value in structure.adjacency_block_density.items()}
    return replace(
        structure,
        nodes=size.nodes,
        edges=2 * size.edges,
        adjacency_block_density=density,
        degree_histogram=(),
    )


@dataclass(frozen=True, slots=True)
class Version:
    """A compiled network."""

    latency_s: float
    compile_s: float
    memory_bytes: float


class Workshop:
    """Compiles networks and estimates them, each once."""

    def __init__(
        self, build: Builder, start: GraphStructure, soc: Soc, run: Run, toolchain: Toolchain
    ) -> None:
        self.build, self.start, self.soc, self.run, self.toolchain = build, start, soc, run, toolchain
        self._kept: dict[tuple[str, int, int | None], Version] = {}

    def graph(self, stack: str, size: Size, capacity: int | None = None) -> Graph:
        """Return the rewritten network on a graph of some size, padded where there is a capacity."""
        steps = [*parse(stack).to_data(), *([f"nodepad:capacity={capacity}"] if capacity else [])]
        return apply(self.build(resized(self.start, size)), steps)

    def version(self, stack: str, size: Size, capacity: int | None = None) -> Version:
        """Return the network compiled; of graphs that differ in edges alone the first stands for all."""
        key = (stack, 0 if capacity else size.nodes, capacity)
        if key not in self._kept:
            graph = self.graph(stack, size, capacity)
            mapped = map_graph(graph, self.soc, self.run)
            operators = sum(op.family is not Family.VIEW for op in graph)
            constants = sum(t.stored_bytes for t in graph.tensors.values() if t.kind is TensorKind.CONSTANT)
            self._kept[key] = Version(
                float(mapped.total["latency_s"]),
                self.toolchain.compile_s(operators, constants),
                self.toolchain.version_bytes(operators, constants),
            )
        return self._kept[key]

    def versions(self, stack: str, course: Sequence[Size]) -> dict[int, Version]:
        """Return a version for each number of nodes, interpolated where there are many."""
        counts = sorted({size.nodes for size in course})
        by_nodes = {size.nodes: size for size in course}
        places = np.unique(np.linspace(0, len(counts) - 1, KNOTS).round().astype(int))
        knots = [counts[i] for i in places]
        known = [self.version(stack, by_nodes[n]) for n in knots]
        fields = ("latency_s", "compile_s", "memory_bytes")
        lines = {f: np.interp(counts, knots, [getattr(v, f) for v in known]) for f in fields}
        return {n: Version(*(float(lines[f][i]) for f in fields)) for i, n in enumerate(counts)}
