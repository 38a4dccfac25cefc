"""Strategies for a changing graph: versions each compiles, and costs per update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from npusim.arch.toolchain import Toolchain
from npusim.graph import Graph, GraphStructure
from npusim.mapping import map_graph
from npusim.ops import Family, TensorKind
from npusim.scenario import Scenario
from npusim.studies.stream.document import Strategy
from npusim.studies.stream.updates import Size
from npusim.techniques import EdgeData, apply, parse, technique_with

_Name = Literal["recompile", "recompile on nodes", "pad and mask"]
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


class Versions:
    """The compiled versions of a network, each compiled and estimated once."""

    def __init__(self, scenario: Scenario, start: GraphStructure, toolchain: Toolchain) -> None:
        self.scenario, self.start, self.toolchain = scenario, start, toolchain
        self._kept: dict[tuple[str, int, int | None], Version] = {}

    def graph(self, stack: str, size: Size, capacity: int | None = None) -> Graph:
        """Return the rewritten network on a graph of some size, padded where there is a capacity."""
        padding = technique_with(edges=EdgeData.CAPACITY).name
        steps = [*parse(stack).to_data(), *([f"{padding}:capacity={capacity}"] if capacity else [])]
        return apply(self.scenario.on_structure(resized(self.start, size)), steps)

    def version(self, stack: str, size: Size, capacity: int | None = None) -> Version:
        """Return the network compiled; of graphs that differ in edges alone the first stands for all."""
        key = (stack, 0 if capacity else size.nodes, capacity)
        if key not in self._kept:
            graph = self.graph(stack, size, capacity)
            mapped = map_graph(graph, self.scenario.machine, self.scenario.run)
            operators = sum(op.family is not Family.VIEW for op in graph)
            constants = sum(t.stored_bytes for t in graph.tensors.values() if t.kind is TensorKind.CONSTANT)
            self._kept[key] = Version(
                float(mapped.total["latency_s"]),
                self.toolchain.compile_s(operators, constants),
                self.toolchain.version_bytes(operators, constants),
            )
        return self._kept[key]

    def by_nodes(self, stack: str, course: Sequence[Size]) -> dict[int, Version]:
        """Return a version for each number of nodes, interpolated where there are many."""
        counts = sorted({size.nodes for size in course})
        by_nodes = {size.nodes: size for size in course}
        places = np.unique(np.linspace(0, len(counts) - 1, KNOTS).round().astype(int))
        knots = [counts[i] for i in places]
        known = [self.version(stack, by_nodes[n]) for n in knots]
        fields = ("latency_s", "compile_s", "memory_bytes")
        lines = {f: np.interp(counts, knots, [getattr(v, f) for v in known]) for f in fields}
        return {n: Version(*(float(lines[f][i]) for f in fields)) for i, n in enumerate(counts)}


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of one strategy, update by update; the first entry is what comes before them."""

    compile_s: Sequence[float]
    mask_s: Sequence[float]
    inference_s: Sequence[float]
    versions: Sequence[Version]
    """Every version that was compiled."""

    def strategy(self, name: _Name, techniques: str) -> Strategy:
        """Return the totals."""
        steps = [sum(parts) for parts in zip(self.compile_s, self.mask_s, self.inference_s, strict=True)]
        return Strategy(
            name=name,
            techniques=techniques,
            compilations=len(self.versions),
            versions=len(self.versions),
            compile_s=sum(self.compile_s),
            mask_s=sum(self.mask_s),
            inference_s=sum(self.inference_s),
            total_s=self.total_s,
            memory_bytes=self.memory_bytes,
            largest_version_bytes=max(version.memory_bytes for version in self.versions),
            cumulative_s=[float(value) for value in np.cumsum(steps)],
        )

    @property
    def total_s(self) -> float:
        """Time in all (s)."""
        return sum(self.compile_s) + sum(self.mask_s) + sum(self.inference_s)

    @property
    def memory_bytes(self) -> float:
        """Memory of all versions (B)."""
        return sum(version.memory_bytes for version in self.versions)


@dataclass(frozen=True, slots=True)
class Course:
    """A stream of updates that a compiled network follows."""

    compiled: Versions
    sizes: Sequence[Size]
    """The graph before the first update and after each."""
    mask_s: Sequence[float]
    """Time to correct the mask at each of them (s)."""
    inferences: int
    """Inferences after each update."""

    @property
    def most(self) -> int:
        """Most nodes at any time."""
        return max(size.nodes for size in self.sizes)

    def frozen(self, stack: str, changed: Sequence[bool]) -> Costs:
        """Compile at each update that changes anything: baked-in edges never come back, and have no mask."""
        return self._recompiled(stack, [0.0] * len(self.mask_s), changed)

    def by_nodes(self, stack: str) -> Costs:
        """Compile for each number of nodes not seen before; a version that was there before is reused."""
        seen, needed = {self.sizes[0].nodes}, []
        for size in self.sizes[1:]:
            needed.append(size.nodes not in seen)
            seen.add(size.nodes)
        return self._recompiled(stack, self.mask_s, needed)

    def _recompiled(self, stack: str, mask_s: Sequence[float], needed: Sequence[bool]) -> Costs:
        versions = self.compiled.by_nodes(stack, self.sizes)
        first, *later = (versions[size.nodes] for size in self.sizes)
        used = [version for version, compiled in zip(later, needed, strict=True) if compiled]
        compile_s = [v.compile_s if compiled else 0.0 for v, compiled in zip(later, needed, strict=True)]
        inference_s = [self.inferences * version.latency_s for version in later]
        return Costs([first.compile_s, *compile_s], mask_s, [0.0, *inference_s], [first, *used])

    def padded(self, stack: str, capacity: int) -> Costs:
        """Compile for a capacity, and again with the same room to spare whenever the graph outgrows it."""
        spare = capacity - self.sizes[0].nodes
        version = self.compiled.version(stack, self.sizes[0], capacity)
        compile_s, inference_s, used = [version.compile_s], [0.0], [version]
        for size in self.sizes[1:]:
            outgrown = size.nodes > capacity
            if outgrown:
                capacity = size.nodes + spare
                version = self.compiled.version(stack, size, capacity)
                used.append(version)
            compile_s.append(version.compile_s if outgrown else 0.0)
            inference_s.append(self.inferences * version.latency_s)
        return Costs(compile_s, self.mask_s, inference_s, used)
