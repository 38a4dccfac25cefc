"""Example inputs on a part of a graph: partitions with halos, and sampled neighbourhoods.

All counts are exact; nothing here works edge by edge in Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.graph.known import Array

Numbers = npt.NDArray[np.int64]
_WORD = 64
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class ExampleGraph:
    """The graph in a module's example inputs: one list of edges [2, E] among the nodes of one type.

    `sources` and `targets` have the shape (E,); `edge_input` names the list.
    """

    nodes: int
    edge_input: str
    sources: npt.NDArray[Any]
    targets: npt.NDArray[Any]

    @classmethod
    def of(cls, inputs: Mapping[str, Array]) -> ExampleGraph | None:
        """Find the graph; None where there are several lists of pairs, or no rows of features."""
        pairs = [key for key, a in inputs.items() if a.dtype.kind in "iu" and a.ndim == 2 and len(a) == 2]
        features = [a.shape[0] for a in inputs.values() if a.dtype.kind == "f" and a.ndim > 1]
        if len(pairs) != 1 or not features or not inputs[pairs[0]].size:
            return None
        ends = inputs[pairs[0]]
        nodes = next((rows for rows in features if rows > ends.max()), None)
        if nodes is None or nodes == ends.shape[1] or ends.min() < 0:
            return None
        return cls(nodes, pairs[0], ends[0], ends[1])

    @property
    def edges(self) -> int:
        """Number of edges."""
        return len(self.sources)

    @cached_property
    def incoming(self) -> tuple[Numbers, Numbers]:
        """Edges by target: where each node's begin, (nodes + 1,), and their numbers in order, (E,)."""
        starts = np.concatenate([[0], np.cumsum(np.bincount(self.targets, minlength=self.nodes))])
        return starts, np.argsort(self.targets, kind="stable")

    def inputs_on(self, inputs: Mapping[str, Array], nodes: Numbers, edges: Numbers) -> dict[str, Array]:
        """Return the inputs on some nodes and edges between them; what follows neither stays as it is."""
        place = np.full(self.nodes, -1, np.int64)
        place[nodes] = np.arange(len(nodes))
        return {
            name: np.stack([place[self.sources[edges]], place[self.targets[edges]]])
            if name == self.edge_input
            else self._rows_of(array, nodes, edges)
            for name, array in inputs.items()
        }

    def _rows_of(self, array: Array, nodes: Numbers, edges: Numbers) -> Array:
        if array.ndim and array.shape[0] in (self.nodes, self.edges):
            return array[nodes if array.shape[0] == self.nodes else edges]
        return array


@dataclass(frozen=True)
class Halos:
    """Parts of a graph, and the nodes within some hops that each part's answers need.

    Each edge is owned by the part of its target; a part's network reads `nodes` and `edges`.
    """

    nodes: Numbers  # (parts,): owned nodes and halo
    edges: Numbers  # (parts,): edges into all nodes within one hop less
    members: npt.NDArray[np.uint64]  # (nodes, words): bit p of a row is set where part p reads the node
    targets: npt.NDArray[np.uint64]  # the same within one hop less: nodes whose edges the part reads

    def of_part(self, graph: ExampleGraph, part: int) -> tuple[Numbers, Numbers]:
        """Return the nodes and edges of a part."""
        inner, all_ = (_bit(words, part) for words in (self.targets, self.members))
        return np.flatnonzero(all_), np.flatnonzero(inner[graph.targets])


def _bit(words: npt.NDArray[np.uint64], part: int) -> npt.NDArray[np.bool_]:
    word, bit = divmod(part, _WORD)
    return np.asarray((words[:, word] >> np.uint64(bit)) & np.uint64(1), np.bool_)


def parts_in_order(place: Numbers, parts: int) -> Numbers:
    """Return the part of each node, of equal sizes along an order in which node i stands at `place[i]`."""
    return np.asarray(place * parts // max(1, len(place)), np.int64)


def halos(graph: ExampleGraph, part_of: Numbers, hops: int) -> Halos:
    """Count the nodes and edges that each part needs for exact answers after some hops.

    The parts that need a node are bits of a row; a hop combines the rows of an edge's targets at its source.
    """
    parts = int(part_of.max()) + 1
    members = np.zeros((graph.nodes, -(-parts // _WORD)), np.uint64)
    members[np.arange(graph.nodes), part_of // _WORD] = np.uint64(1) << (part_of % _WORD).astype(np.uint64)
    order = np.argsort(graph.sources, kind="stable")
    targets = graph.targets[order]
    counts = np.bincount(graph.sources, minlength=graph.nodes)
    senders = np.flatnonzero(counts)
    starts = (np.cumsum(counts) - counts)[senders]
    inner = members
    for _ in range(hops):
        inner = members.copy()
        for word in range(members.shape[1]):
            needed = np.bitwise_or.reduceat(inner[targets, word], starts)
            members[senders, word] |= needed
    degrees = np.bincount(graph.targets, minlength=graph.nodes)
    return Halos(
        _totals(members, np.ones(graph.nodes), parts),
        _totals(inner, degrees, parts),
        members,
        inner,
    )


def _totals(words: npt.NDArray[np.uint64], weights: npt.NDArray[Any], parts: int) -> Numbers:
    """Sum the weights of the nodes that each part reads."""
    totals = np.zeros(words.shape[1] * _WORD)
    for start in range(0, len(words), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        bits = np.unpackbits(words[rows].astype("<u8").view(np.uint8), axis=1, bitorder="little")
        totals += weights[rows].astype(np.float64) @ bits  # whole numbers below 2^53: exact
    return totals[:parts].astype(np.int64)


def sample(
    graph: ExampleGraph, seeds: Numbers, fan_out: Sequence[int], seed: int = 0
) -> tuple[Numbers, Numbers]:
    """Return nodes (seeds first) and edges of a batch with a bounded fan-out by hop.

    Neighbours are drawn without replacement, each node is expanded once, as PyTorch Geometric's
    NeighborLoader does.
    """
    random, (starts, order) = np.random.default_rng(seed), graph.incoming
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
