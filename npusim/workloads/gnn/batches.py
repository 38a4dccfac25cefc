"""Batched inference: nodes that support a batch of roots, hop by hop, from statistics of the graph.

Every neighbour of a root is taken, and at most `hop2` of each neighbour farther out. A node is met in
proportion to its degree, so the neighbours of neighbours are counted by the degrees of edges' ends; without a
degree histogram each is taken to have `hop2`. Roots' neighbourhoods are counted each for itself (Eq. 3 of
GCNP), up to the nodes of the graph; or each node once, as a loader of neighbourhoods hands them over. A node
is then missed where neither it is a root nor any of its neighbours leads to it, all independent of each other
(the configuration model of a random graph with these degrees).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, NoReturn

import numpy as np
from pydantic import Field

from npusim.config import Section
from npusim.errors import ConfigError
from npusim.graph import GraphStructure


class Batch(Section):
    """Inference of a few target nodes (roots) from their neighbourhoods."""

    roots: Annotated[int, Field(ge=1, le=1_000_000_000)]
    """Target nodes of a batch."""
    hop2: Annotated[int, Field(ge=1, le=1_000_000)] = 32
    """Neighbours taken of a node that is no root, at most; of a root all are."""
    stored: Annotated[float, Field(ge=0.0, le=1.0)] | Literal["visited", "training"] = 0.0
    """Share of the roots' neighbours whose hidden features are stored, so that their own neighbours are not
    needed; `visited`: as the data set's `unvisited_neighbours` says; `training`: as its `training_neighbours`
    does."""
    counted: Literal["each", "distinct"] = "each"
    """`each`: the roots' neighbourhoods each for itself, as Eq. 3 of GCNP counts; `distinct`: a node that
    several of them share counts once, as PyTorch Geometric's NeighborLoader hands it over."""
    capacity: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Supporting nodes that the network is compiled for, roots included; None: as many as a batch has."""


@dataclass(frozen=True, slots=True)
class Support:
    """Nodes and edges of a batch, by layer from the input on."""

    nodes: tuple[int, ...]
    """Nodes whose features each layer reads, then the roots: shape (layers + 1,)."""
    edges: tuple[int, ...]
    """Edges along which each layer aggregates."""
    stored: int
    """Neighbours of the roots whose hidden features are read from the store."""
    padded: int
    """Rows that are only there to fill the capacity."""


def support_of(batch: Batch, structure: GraphStructure, layers: int) -> Support:
    """Count the nodes that support a batch.

    Parameters
    ----------
    layers : int
        Layers that aggregate from neighbours; the last one's results are the roots.

    Raises
    ------
    ConfigError
        Where the batch is larger than the graph, the capacity smaller than the batch, or `stored` asks for a
        number that the data set does not have.
    """
    if batch.roots > structure.nodes:
        _refuse("roots", f"{batch.roots}", f"at most {structure.nodes}, the nodes of the graph")
    share = stored_share(batch, structure)
    if batch.counted == "distinct":
        wanted, edges, held = _distinct(batch, structure, layers, share)
    else:
        wanted, edges, held = _each(batch, structure, layers, share)
    nodes = tuple(wanted) if batch.capacity is None else _padded(batch, batch.capacity, wanted)
    return Support(nodes, tuple(round(e) for e in reversed(edges)), held, nodes[0] - wanted[0])


def _each(
    batch: Batch, structure: GraphStructure, layers: int, share: float
) -> tuple[list[int], list[float], int]:
    """Return nodes that each layer reads, edges from the last layer on, stored rows: roots for themselves."""
    degree = root_degree(structure)
    fanout = neighbour_degree(structure, batch.hop2)
    computed, edges = [float(batch.roots)], [batch.roots * degree]
    fresh = batch.roots * degree * (1.0 - share)  # neighbours whose own neighbours are needed
    for _ in range(1, layers):
        computed.append(computed[-1] + fresh)
        edges.append(edges[0] + (computed[-1] - batch.roots) * fanout)
        fresh *= fanout
    wanted = [min(structure.nodes, round(n)) for n in (batch.roots + edges[-1], *reversed(computed))]
    return wanted, edges, round(edges[0] * share) if layers > 1 else 0


def _distinct(
    batch: Batch, structure: GraphStructure, layers: int, share: float
) -> tuple[list[int], list[float], int]:
    """Return what `_each` does, with nodes that several neighbourhoods share counted once."""
    counts = np.array(structure.degree_histogram, float)
    degrees = np.arange(len(counts), dtype=float)
    if not len(counts):
        degrees, counts = np.array([structure.edges / structure.nodes]), np.array([float(structure.nodes)])
    ends = degrees * counts / max(1.0, float((degrees * counts).sum()))
    taken = np.minimum(1.0, batch.hop2 / np.maximum(degrees, 1.0))
    root = batch.roots / structure.nodes
    leads = root  # the chance that a neighbour leads to a node: that it is a root, or was expanded
    computed, edges = [float(batch.roots)], [batch.roots * root_degree(structure)]
    for depth in range(layers):
        found = (1.0 - root) * (1.0 - (1.0 - leads) ** degrees) * counts  # by degree, roots left out
        if depth + 1 < layers:
            computed.append(batch.roots + (1.0 - share) * float(found.sum()))
            edges.append(edges[0] + (1.0 - share) * float((found * degrees * taken).sum()))
        reached = float(found.sum())
        inner = 1.0 - (1.0 - leads) ** np.maximum(degrees - 1.0, 0.0)
        leads = root + (1.0 - root) * (1.0 - share) * float((ends * inner * taken).sum())
    first = float(((1.0 - root) * (1.0 - (1.0 - root) ** degrees) * counts).sum())
    wanted = [min(structure.nodes, round(n)) for n in (batch.roots + reached, *reversed(computed))]
    return wanted, edges, round(share * first) if layers > 1 else 0


def _padded(batch: Batch, capacity: int, wanted: list[int]) -> tuple[int, ...]:
    """Return the nodes of each layer where the input has room for `capacity` of them."""
    if capacity < batch.roots:
        _refuse("capacity", f"{capacity}", f"at least the {batch.roots} roots")
    if capacity < wanted[0]:
        allowed = f"at least {wanted[0]}: so many nodes support a mean batch of {batch.roots} roots"
        _refuse("capacity", f"{capacity}", allowed)
    ratio = capacity / wanted[0]
    return (capacity, *(min(capacity, math.ceil(n * ratio)) for n in wanted[1:-1]), wanted[-1])


def stored_share(batch: Batch, structure: GraphStructure) -> float:
    """Return the share of the roots' neighbours whose hidden features are stored."""
    if isinstance(batch.stored, float | int):
        return float(batch.stored)
    key, known = {
        "visited": ("unvisited_neighbours", structure.unvisited_neighbours),
        "training": ("training_neighbours", structure.training_neighbours),
    }[batch.stored]
    if known is None:
        _refuse("stored", batch.stored, f"a share from 0 to 1: the data set does not say `{key}`")
    return known if batch.stored == "training" else 1.0 - min(1.0, known / root_degree(structure))


def _refuse(key: str, found: str, allowed: str) -> NoReturn:
    raise ConfigError(f"`{found}`", key=f"workload.batch.{key}", allowed=allowed)


def root_degree(structure: GraphStructure) -> float:
    """Return the mean number of neighbours of a target node."""
    return structure.edges / structure.nodes * structure.test_degree_ratio


def neighbour_degree(structure: GraphStructure, most: int) -> float:
    """Return how many neighbours are taken of a node that an edge leads to, at most `most`."""
    histogram = structure.degree_histogram
    if not histogram:
        return float(most)
    ends = sum(degree * count for degree, count in enumerate(histogram))
    taken = sum(degree * count * min(degree, most) for degree, count in enumerate(histogram))
    return taken / ends if ends else 0.0


def overflow_share(batch: Batch, structure: GraphStructure, layers: int) -> float | None:
    """Return the share of batches that need more nodes than the capacity.

    The sum over independent roots is taken as normal (central limit theorem), each root's as the sum over its
    neighbours of the neighbours taken. None where no capacity is set, or the spread of degrees is not known.
    """
    if batch.capacity is None or not structure.degree_histogram:
        return None
    histogram, nodes = structure.degree_histogram, structure.nodes
    fanout = 1.0
    for _ in range(1, layers):
        fanout += fanout * neighbour_degree(structure, batch.hop2)
    mean = sum(k * n for k, n in enumerate(histogram)) / nodes
    spread = sum((k - mean) ** 2 * n for k, n in enumerate(histogram)) / nodes
    expected = batch.roots * (1.0 + mean * fanout)
    deviation = math.sqrt(batch.roots * spread) * fanout
    if batch.capacity >= nodes:
        return 0.0
    if deviation == 0.0:
        return float(expected > batch.capacity)
    return 0.5 * math.erfc((batch.capacity - expected) / deviation / math.sqrt(2.0))
