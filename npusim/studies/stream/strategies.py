"""Strategies for a changing graph: versions each compiles, and costs per update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

import numpy as np

from npusim.arch.loading import Toolchain
from npusim.graph import Graph, GraphStructure
from npusim.mapping import map_graph
from npusim.ops import Family, TensorKind
from npusim.scenario import Scenario
from npusim.studies.stream.document import Name, Strategy
from npusim.studies.stream.masks import MaskKeeper
from npusim.studies.stream.updates import Size
from npusim.techniques import EdgeData, apply, parse, technique_with

KNOTS = 17
"""Numbers of nodes at which inferences are estimated; between them latency is interpolated."""


def resized(structure: GraphStructure, size: Size) -> GraphStructure:
    """Return the statistics of a data graph with other numbers of nodes and edges, clustered as before."""
    if (size.nodes, 2 * size.edges) == (structure.nodes, structure.edges):
        return structure
    share = (2 * size.edges + size.nodes) / max(1, structure.nonzeros) * (structure.nodes / size.nodes) ** 2
    density = {block: min(1.0, value * share) for block, value in structure.adjacency_block_density.items()}
    clustered = replace(structure, adjacency_block_density=density, degree_histogram=())
    return replace(clustered, nodes=size.nodes, edges=2 * size.edges)


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
        """Return the compiled network; graphs that differ in edges alone share one version."""
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
        known = np.array([astuple(self.version(stack, by_nodes[n])) for n in knots])
        lines = np.array([np.interp(counts, knots, figure) for figure in known.T])
        return {n: Version(*values) for n, values in zip(counts, lines.T.tolist(), strict=True)}


@dataclass(frozen=True, slots=True)
class BatchJudgement:
    """What it does to the answers that edges between mini-batches are lost."""

    lost_edges: float
    """Share of the edges that run between batches."""
    accuracy: float | None = None
    """Share of the test nodes that a trained model classifies correctly; None where nothing was trained."""
    accuracy_of_all_edges: float | None = None
    """The same with all edges."""


def expected_judgement(nodes: int, batch: int) -> BatchJudgement:
    """Return the expected share of edges between batches: the share of node pairs between batches."""
    full, rest = divmod(nodes, batch)
    within = full * batch * (batch - 1) + rest * (rest - 1)
    return BatchJudgement(1.0 - within / (nodes * (nodes - 1)) if nodes > 1 else 0.0)


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of one strategy, update by update; the first entry is what comes before them."""

    compile_s: Sequence[float]
    mask_s: Sequence[float]
    inference_s: Sequence[float]
    versions: Sequence[Version]
    """Every version that was compiled."""
    inferences: int
    """Inferences after each update."""

    def strategy(
        self,
        name: Name,
        techniques: str,
        nodes: Sequence[int],
        batches: BatchJudgement = BatchJudgement(0.0),
    ) -> Strategy:
        """Return the totals; `nodes` are those that it is compiled for at the start."""
        updates = len(self.compile_s) - 1
        update_s = (sum(self.compile_s[1:]) + sum(self.mask_s)) / updates if updates else 0.0
        steps = [sum(parts) for parts in zip(self.compile_s, self.mask_s, self.inference_s, strict=True)]
        return Strategy(
            name=name,
            techniques=techniques,
            **self.totals,
            versions=len(self.versions),
            compile_s=sum(self.compile_s),
            mask_s=sum(self.mask_s),
            inference_s=sum(self.inference_s),
            largest_version_bytes=max(version.memory_bytes for version in self.versions),
            cumulative_s=np.cumsum(steps).tolist(),
            compiled_nodes=list(nodes),
            startup_s=self.compile_s[0],
            update_s=update_s,
            latency_s=sum(self.inference_s) / (updates * self.inferences) if updates else 0.0,
            most_updates_per_s=1.0 / update_s if update_s > 0.0 else None,
            **asdict(batches),
        )

    @property
    def totals(self) -> dict[str, Any]:
        """Compilations, time (s) and memory (B) in all."""
        memory_bytes = sum(version.memory_bytes for version in self.versions)
        return {"compilations": len(self.versions), "total_s": self.total_s, "memory_bytes": memory_bytes}

    @property
    def total_s(self) -> float:
        """Time in all (s)."""
        return sum(self.compile_s) + sum(self.mask_s) + sum(self.inference_s)


@dataclass(frozen=True, slots=True)
class Course:
    """A stream of updates that a compiled network follows."""

    compiled: Versions
    stack: str
    """Techniques of the ways that write a mask."""
    sizes: Sequence[Size]
    """The graph before the first update and after each."""
    entries: Sequence[float]
    """Entries of the mask that change at each of them; none before the first."""
    keeper: MaskKeeper
    inferences: int
    """Inferences after each update."""

    @property
    def most(self) -> int:
        """Most nodes at any time."""
        return max(size.nodes for size in self.sizes)

    def frozen(self, stack: str, changed: Sequence[bool]) -> Costs:
        """Compile at each update that changes the graph: edges are constants, and there is no mask."""
        return self._recompiled(stack, [0.0] * len(self.sizes), changed)

    def by_nodes(self) -> Costs:
        """Compile for each new number of nodes; earlier versions are reused."""
        seen, needed = {self.sizes[0].nodes}, []
        for size in self.sizes[1:]:
            needed.append(size.nodes not in seen)
            seen.add(size.nodes)
        return self._recompiled(self.stack, self._mask_s([size.nodes for size in self.sizes]), needed)

    def _mask_s(self, compiled_nodes: Sequence[int]) -> list[float]:
        """Return the time at each update to correct the mask, or to rewrite it for another version (s)."""
        mask_s = [self.keeper.update_s(entries) for entries in self.entries]
        for i in range(1, len(mask_s)):
            if compiled_nodes[i] != compiled_nodes[i - 1]:
                mask_s[i] += self.keeper.layout_s(compiled_nodes[i], self.sizes[i])
        return mask_s

    def _recompiled(self, stack: str, mask_s: Sequence[float], needed: Sequence[bool]) -> Costs:
        versions = self.compiled.by_nodes(stack, self.sizes)
        first, *later = (versions[size.nodes] for size in self.sizes)
        used = [version for version, compiled in zip(later, needed, strict=True) if compiled]
        compile_s = [v.compile_s if compiled else 0.0 for v, compiled in zip(later, needed, strict=True)]
        inference_s = [self.inferences * version.latency_s for version in later]
        compile_s = [first.compile_s, *compile_s]
        return Costs(compile_s, mask_s, [0.0, *inference_s], [first, *used], self.inferences)

    def kept(self, capacities: Sequence[int]) -> Costs:
        """Compile for several capacities beforehand, and run the smallest that holds the graph.

        If the graph outgrows the largest, another version is compiled, with the spare capacity that the
        largest had.
        """
        start, known = self.sizes[0], sorted(capacities)
        spare = known[-1] - start.nodes
        versions = {c: self.compiled.version(self.stack, _held(start, c), c) for c in known}
        compile_s, inference_s, run = [sum(v.compile_s for v in versions.values())], [0.0], []
        for size in self.sizes:
            fitting = next((c for c in known if c >= size.nodes), 0)
            outgrown = not fitting
            if outgrown:
                fitting = size.nodes + spare
                known.append(fitting)
                versions[fitting] = self.compiled.version(self.stack, size, fitting)
            run.append(fitting)
            compile_s.append(versions[fitting].compile_s if outgrown else 0.0)
            inference_s.append(self.inferences * versions[fitting].latency_s)
        del compile_s[1], inference_s[1]  # the graph before the first update
        return Costs(compile_s, self._mask_s(run), inference_s, list(versions.values()), self.inferences)

    def batched(self, batch: int, lost_edges: float) -> Costs:
        """Compile for a batch of nodes, and infer batch by batch; edges between batches change nothing."""
        start, share = self.sizes[0], 1.0 - lost_edges
        count = -(-start.nodes // batch)
        size = _held(Size(batch, round(start.edges * share / count)), batch)
        version = self.compiled.version(self.stack, size)
        scenario = self.compiled.scenario
        keeper = MaskKeeper(self.compiled.graph(self.stack, size), scenario.machine, scenario.run, count)
        mask_s = [keeper.update_s(share * entries) for entries in self.entries]
        runs = [self.inferences * -(-size.nodes // batch) for size in self.sizes[1:]]
        inference_s = [times * version.latency_s for times in runs]
        compile_s = [version.compile_s, *(0.0 for _ in runs)]
        return Costs(compile_s, mask_s, [0.0, *inference_s], [version], self.inferences)


def _held(size: Size, capacity: int) -> Size:
    """Return a size limited to a capacity."""
    nodes = min(size.nodes, capacity)
    return Size(nodes, min(size.edges, nodes * (nodes - 1) // 2))
