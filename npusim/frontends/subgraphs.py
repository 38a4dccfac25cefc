"""Example inputs on a part of a graph: partitions with halos, and sampled neighbourhoods.

All counts are exact; nothing here works edge by edge in Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from npusim.graph import Graph, GraphStructure
from npusim.graph.known import Array

Inputs: TypeAlias = Mapping[str, Array]
Numbers = npt.NDArray[np.int64]
_WORD = 64


@dataclass(frozen=True)
class ExampleGraph:
    """The graph in a module's example inputs: one list of edges [2, E] among the nodes of one type.

    `edge_input` names the list.
    """

    nodes: int
    edge_input: str
    inputs: Inputs

    @classmethod
    def of(cls, inputs: Inputs) -> ExampleGraph | None:
        """Find the graph; None where there are several lists of pairs, or no rows of features."""
        pairs = [key for key, a in inputs.items() if a.dtype.kind in "iu" and a.ndim == 2 and len(a) == 2]
        features = [a.shape[0] for a in inputs.values() if a.dtype.kind == "f" and a.ndim > 1]
        if len(pairs) != 1 or not features or not inputs[pairs[0]].size:
            return None
        ends = inputs[pairs[0]]
        nodes = next((rows for rows in features if rows > ends.max()), None)
        if nodes is None or nodes == ends.shape[1] or ends.min() < 0:
            return None
        return cls(nodes, pairs[0], inputs)

    @property
    def sources(self) -> Array:
        """Node that each edge comes from, (E,)."""
        return np.asarray(self.inputs[self.edge_input][0])

    @property
    def targets(self) -> Array:
        """Node that each edge leads to, (E,)."""
        return np.asarray(self.inputs[self.edge_input][1])

    @property
    def edges(self) -> int:
        """Number of edges."""
        return len(self.sources)

    @cached_property
    def _by_source(self) -> tuple[Array, Array, Array]:
        """Targets of the edges in the order of their sources, nodes that have edges, their first edge."""
        degrees = np.bincount(self.sources, minlength=self.nodes)
        senders = np.flatnonzero(degrees)
        order = np.argsort(self.sources, kind="stable")
        return self.targets[order], senders, (np.cumsum(degrees) - degrees)[senders]

    def structure(self, graph: Graph) -> GraphStructure:
        """Return the statistics of the graph, which a network is built on."""
        features = next(a.shape[1] for a in self.inputs.values() if a.dtype.kind == "f" and a.ndim > 1)
        result = graph.tensors[graph.outputs[0]].shape
        return GraphStructure(
            name=graph.name,
            nodes=self.nodes,
            edges=int(np.count_nonzero(self.sources != self.targets)),
            features=features,
            classes=result[-1] if result else 1,
        )

    def resized(self, nodes: int, edges: int) -> dict[str, Array]:
        """Return inputs of another size: rows are repeated, edges are random pairs of different nodes."""
        pairs = np.random.default_rng(0).choice(
            nodes * (nodes - 1), min(edges, nodes * (nodes - 1)), replace=False
        )
        sources, steps = pairs // (nodes - 1), pairs % (nodes - 1) + 1
        rows_of = {self.nodes: np.arange(nodes) % self.nodes, self.edges: np.arange(len(pairs)) % self.edges}
        arrays = {key: a[rows_of.get(len(a), ...)] if a.ndim else a for key, a in self.inputs.items()}
        return arrays | {self.edge_input: np.stack([sources, (sources + steps) % nodes])}

    def inputs_on(self, nodes: Numbers, edges: Numbers) -> dict[str, Array]:
        """Return the inputs on some nodes and edges between them; what follows neither stays as it is."""
        place, rows_of = np.full(self.nodes, -1, np.int64), {self.edges: edges, self.nodes: nodes}
        place[nodes] = np.arange(len(nodes))
        arrays = {key: a[rows_of.get(len(a), ...)] if a.ndim else a for key, a in self.inputs.items()}
        return arrays | {self.edge_input: place[self.inputs[self.edge_input][:, edges]]}

    def with_halo(self, is_own: npt.NDArray[np.bool_], hops: int) -> tuple[Numbers, Numbers]:
        """Return the nodes and edges that exact answers of some nodes need after some hops."""
        inside, is_read = is_own.copy(), np.zeros(self.edges, np.bool_)
        for _ in range(hops):
            is_read = inside[self.targets]
            inside[self.sources[is_read]] = True
        return np.flatnonzero(inside), np.flatnonzero(is_read)

    def nodes_with_halos(self, part_of: Numbers, hops: int) -> Numbers:
        """Count the nodes of each part and its halo; node i is in part `part_of[i]`.

        The parts that need a node are bits of a word; a hop combines the words of an edge's targets at its
        source.
        """
        (targets, senders, starts), sizes = self._by_source, list[int]()
        parts = int(part_of.max()) + 1
        for first in range(0, parts, _WORD):
            bits = np.left_shift(np.uint64(1), (part_of % _WORD).astype(np.uint64))
            bits[part_of // _WORD != first // _WORD] = 0
            for _ in range(hops):
                bits[senders] |= np.bitwise_or.reduceat(bits[targets], starts)
            count = min(_WORD, parts - first)
            sizes += [int(np.count_nonzero(bits & np.uint64(1 << bit))) for bit in range(count)]
        return np.array(sizes)


def sample(
    graph: ExampleGraph, seeds: Numbers, fan_out: Sequence[int], seed: int = 0
) -> tuple[Numbers, Numbers]:
    """Return nodes (seeds first) and edges of a batch with a bounded fan-out by hop.

    Neighbours are drawn without replacement, each node is expanded once, as PyTorch Geometric's
    NeighborLoader does.
    """
    random, order = np.random.default_rng(seed), np.argsort(graph.targets, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(graph.targets, minlength=graph.nodes))])
    known = np.zeros(graph.nodes, np.bool_)
    known[seeds] = True
    nodes, edges, frontier = [seeds], [np.zeros(0, np.int64)], seeds
    for most in fan_out:
        degrees = starts[frontier + 1] - starts[frontier]
        owner = np.repeat(np.arange(len(frontier)), degrees)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
        shuffled = np.lexsort((random.random(len(owner)), owner))
        kept = shuffled[within < most]
        chosen = order[np.repeat(starts[frontier], degrees)[kept] + within[kept]]
        edges.append(chosen)
        reached = np.unique(graph.sources[chosen])
        frontier = reached[~known[reached]]
        known[frontier] = True
        nodes.append(frontier)
    return np.concatenate(nodes), np.concatenate(edges)
