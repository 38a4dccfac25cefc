"""Statistics of the data graph a GNN runs on, and what is known of a network beside its operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from npusim.ops import DType


@dataclass(frozen=True, slots=True)
class GraphStructure:
    """Statistics of one data graph; edges are undirected, deduplicated, without self-loops."""

    name: str
    nodes: int
    edges: int
    """Directed edges without self-loops: each undirected edge counts twice."""
    features: int
    classes: int
    feature_density: float = 1.0
    """Share of non-zeros of the feature matrix."""
    feature_block_density: Mapping[int, float] = field(default_factory=dict)
    """Share of b x b blocks of the feature matrix that hold a non-zero, by block edge b."""
    adjacency_block_density: Mapping[int, float] = field(default_factory=dict)
    """Share of b x b blocks of the adjacency matrix with self-loops that hold a non-zero, by block edge b."""
    degree_histogram: tuple[int, ...] = ()
    """Nodes with degree 0, 1, 2, ... (without the self-loop)."""
    source: str = ""
    test_share: float | None = None
    """Share of the nodes whose answers are asked for."""
    test_degree_ratio: float = 1.0
    """Mean degree of these over the mean degree."""
    unvisited_neighbours: float | None = None
    """Neighbours of a target node without stored hidden features, where batches store them."""
    training_neighbours: float | None = None
    """Share of a node's neighbours that are training or validation nodes."""

    @property
    def nonzeros(self) -> int:
        """Non-zeros of the adjacency matrix with self-loops."""
        return self.edges + self.nodes

    def adjacency_density(self, capacity: int | None = None) -> float:
        """Density of the adjacency matrix with self-loops, padded with empty rows to `capacity` nodes."""
        n = capacity if capacity is not None else self.nodes
        return self.nonzeros / (n * n) if n else 0.0

    def padded_block_density(self, block: int, capacity: int | None = None) -> float | None:
        """Share of non-empty blocks of edge `block` of the padded adjacency; None if not counted."""
        known = self.adjacency_block_density.get(block)
        if known is None:
            return None
        n = capacity if capacity is not None else self.nodes
        blocks, padded = -(-self.nodes // block), -(-n // block)
        return known * (blocks * blocks) / (padded * padded)


@dataclass(frozen=True, slots=True)
class GraphMeta:
    """What is known of a network beside its operators: how it was built, and what techniques changed."""

    model: str = ""
    """Model family, such as "gcn"; the operator of a benchmark."""
    form: str = ""
    """Form it is written in: "edges", "dense", "gathered", "csr"; "benchmark", "imported"."""
    dataset: str = ""
    """Name of the data graph."""
    precision: DType | None = None
    """Format of its products."""
    source_precision: DType | None = None
    """Widest floating-point format of the model file that it was imported from."""
    neighbours: int | None = None
    """Neighbours that are sampled for each node."""
    sampled_edges: int | None = None
    """Edges of the sampled data graph."""
    notes: tuple[str, ...] = ()
    """What an import took for granted."""
    prompt_tokens: int | None = None
    """Tokens of a language model's prompt."""
    new_tokens: int | None = None
    """Tokens that an inference of a language model takes in."""
    dynamic_shapes: bool = False
    """Whether sizes follow from the data of each inference; those of the graph are of one of them."""
    capacity: int | None = None
    """Nodes that it is compiled for, where that is more than the data graph has."""
    npu_forms: tuple[str, ...] = ()
    """Forms in which an NPU can run it, where it has a form that none can."""
