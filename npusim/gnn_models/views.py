"""Views of a graph: edges, a matrix computed from them, finished matrices, sampled neighbours.

Every view computes the same sums, so all forms of a model share their trained parameters. Tensors of a view
are not trained and are in no state dictionary. A view's `example` names the inputs of the graph and gives a
value of each, to trace and to run the model with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

ABSENT = -1e4
"""Stands for a missing neighbour in a maximum."""
Nodes = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]


class View(nn.Module, ABC):
    """Inputs and constants through which a model reads its graph.

    `values` are inputs in the order of `forward`, after the features, or constants of the model.
    """

    def __init__(self, values: Mapping[str, npt.NDArray[Any]], constant: bool = False) -> None:
        super().__init__()
        tensors = {name: torch.from_numpy(value) for name, value in values.items()}
        self.example: dict[str, Tensor] = {} if constant else tensors
        self.held = tuple(values) if constant else ()
        for name in self.held:
            self.hold(name, tensors[name])

    def hold(self, name: str, value: Tensor) -> None:
        """Keep a tensor that moves with the model but is not trained or stored with the parameters."""
        self.register_buffer(name, value, persistent=False)

    def tensors(self, graph: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the values, whether they are constants or inputs."""
        return tuple(self.get_buffer(name) for name in self.held) if self.held else graph

    @abstractmethod
    def operands(self, how: str, *graph: Tensor) -> tuple[Tensor, ...]:
        """Return what `aggregate` reads beside the features, from the view's inputs.

        `how` is `mean`, `norm` (GCN's weights) or `max`.
        """

    @abstractmethod
    def aggregate(self, how: str, operands: tuple[Tensor, ...], x: Tensor) -> Tensor:
        """Return the aggregated features of each node's neighbours, [N, F]."""


class GraphMatrix(View):
    """A graph that the layers read as a matrix [N, N]."""

    @abstractmethod
    def matrix(self, *graph: Tensor) -> Tensor:
        """Return the matrix [N, N]."""

    def operands(self, how: str, *graph: Tensor) -> tuple[Tensor, ...]:
        """Return the matrix; it holds the weights of `how`."""
        return (self.matrix(*graph),)

    def aggregate(self, how: str, operands: tuple[Tensor, ...], x: Tensor) -> Tensor:
        """Return the product with the matrix, [N, F]."""
        both_sparse = x.is_sparse and operands[0].is_sparse
        return torch.sparse.mm(operands[0], x) if both_sparse else torch.matmul(operands[0], x)


class EdgeView(View):
    """The graph as `edge_index` [2, E], source above target; the model may add self-loops.

    Parameters
    ----------
    capacity : int, optional
        Nodes the model is compiled for (NodePad); added nodes have no edges, not even to themselves.
    """

    loops: Tensor

    def __init__(self, edge_index: Nodes, nodes: int, add_loops: bool, capacity: int | None = None) -> None:
        super().__init__({"edge_index": edge_index})
        self.nodes = capacity if capacity is not None else nodes
        self.add_loops = add_loops
        self.hold("loops", torch.arange(nodes).repeat(2, 1))
        self.hold("ones", torch.ones(int(edge_index.shape[1]) + (nodes if add_loops else 0)))

    def prepare(self, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """Return source and target of each edge, [E] each."""
        if self.add_loops:
            edge_index = torch.cat([edge_index, self.loops], dim=1)
        return edge_index[0], edge_index[1]

    def operands(self, how: str, *graph: Tensor) -> tuple[Tensor, ...]:
        """Return source and target of each edge, [E] each, and divisors [N, 1] or weights [E, 1]."""
        source, target = self.prepare(*graph)
        if how == "mean":
            return source, target, self.degree(target).clamp(min=1.0).view(-1, 1)
        if how == "norm":
            return source, target, self.weights(source, target, how).unsqueeze(1)
        return source, target

    def aggregate(self, how: str, operands: tuple[Tensor, ...], x: Tensor) -> Tensor:
        """Return the combined messages of each node, [N, F]."""
        messages = x.index_select(0, operands[0])
        if how == "norm":
            return scatter_rows(messages * operands[2], operands[1], self.nodes)
        if how == "mean":
            return scatter_rows(messages, operands[1], self.nodes) / operands[2]
        return scatter_rows(messages, operands[1], self.nodes, "max")

    def degree(self, target: Tensor) -> Tensor:
        """Return the number of edges that end in each node, [N]."""
        return scatter_rows(self.get_buffer("ones"), target, self.nodes)

    def weights(self, source: Tensor, target: Tensor, kind: str) -> Tensor:
        """Return the normalised weight of each edge, [E]: `mean` or `norm`."""
        degree = self.degree(target)
        if kind == "mean":
            return degree.reciprocal().index_select(0, target)
        factor = degree.pow(-0.5)
        return factor.index_select(0, source) * factor.index_select(0, target)


class ScatteredMatrix(GraphMatrix):
    """The graph as edges, from which the model scatters a matrix [N, N].

    Parameters
    ----------
    kind : str
        `adjacency`: 0 and 1; `norm`: d^-1/2 A d^-1/2; `mean`: each row divided by its sum.
    """

    def __init__(self, edges: EdgeView, kind: str) -> None:
        super().__init__({name: value.numpy() for name, value in edges.example.items()})
        self.edges, self.kind = edges, kind

    def matrix(self, *graph: Tensor) -> Tensor:
        """Return the matrix [N, N]."""
        source, target = self.edges.prepare(graph[0])
        nodes = self.edges.nodes
        flat = torch.zeros(nodes * nodes).scatter(0, target * nodes + source, self.edges.get_buffer("ones"))
        matrix = flat.reshape(nodes, nodes)
        if self.kind == "adjacency":
            return matrix
        if self.kind == "mean":
            return matrix / matrix.sum(dim=1, keepdim=True)
        factor = matrix.sum(dim=1).pow(-0.5)
        return matrix * factor.unsqueeze(1) * factor.unsqueeze(0)


class MatrixView(GraphMatrix):
    """The graph as finished matrices [N, N], constants of the model or its inputs."""

    def sparse(self) -> MatrixView:
        """Return the view with its constants as sparse matrices, which train faster."""
        for name in self.held:
            self.hold(name, self.get_buffer(name).to_sparse())
        return self

    def matrix(self, *graph: Tensor) -> Tensor:
        """Return the first matrix [N, N]."""
        return self.tensors(graph)[0]


class Rows(View):
    """Sampled neighbours side by side: node numbers [N, K], and a mask [N, K], 0 where a node has fewer."""

    def __init__(self, neighbours: Nodes, mask: Weights) -> None:
        super().__init__({"neighbours": neighbours, "mask": mask})

    def operands(self, how: str, *graph: Tensor) -> tuple[Tensor, ...]:
        """Return node numbers [N, K] and the mask [N, K, 1], for a mean with the number of neighbours."""
        neighbours, mask = graph
        deep = mask.unsqueeze(2)
        if how == "mean":
            return neighbours, deep, mask.sum(dim=1, keepdim=True)
        return neighbours, deep > 0

    def aggregate(self, how: str, operands: tuple[Tensor, ...], x: Tensor) -> Tensor:
        """Return the mean or the maximum of the neighbours, [N, F]."""
        gathered = x[operands[0]]
        if how == "mean":
            return (gathered * operands[1]).sum(dim=1) / operands[2]
        return torch.where(operands[1], gathered, ABSENT).amax(dim=1)


def scatter_rows(messages: Tensor, target: Tensor, nodes: int, reduce: str = "sum") -> Tensor:
    """Combine messages [E, ...] at their targets, [nodes, ...]; a node without messages gets 0."""
    blank = torch.zeros(nodes, *messages.shape[1:])
    if messages.dim() == 1:
        return blank.scatter_add(0, target, messages)
    index = target.view(-1, *(1,) * (messages.dim() - 1)).expand(messages.shape)
    if reduce == "max":
        return blank.scatter_reduce(0, index, messages, "amax", include_self=False)
    return blank.scatter_add(0, index, messages)


def dense_adjacency(
    edge_index: Nodes, nodes: int, loops: bool, kind: str, capacity: int | None = None
) -> Weights:
    """Return the matrix that the host prepares, [capacity, capacity]; added nodes have no edges.

    `loops` gives each node an edge to itself. `kind` is `adjacency`, `norm` or `mean`, as for
    `ScatteredMatrix`.
    """
    size = capacity if capacity is not None else nodes
    matrix = np.zeros((size, size), dtype=np.float32)
    matrix[edge_index[1], edge_index[0]] = 1.0
    if loops:
        np.fill_diagonal(matrix[:nodes, :nodes], 1.0)
    degree = np.maximum(matrix.sum(axis=1), 1.0)
    if kind == "norm":
        factor = degree**-0.5
        return np.asarray(matrix * factor[:, None] * factor[None, :], dtype=np.float32)
    return np.asarray(matrix / degree[:, None], dtype=np.float32) if kind == "mean" else matrix


def sample_neighbours(
    edge_index: Nodes, nodes: int, count: int, seed: int, capacity: int | None = None
) -> tuple[Nodes, Weights]:
    """Draw up to `count` neighbours of each node without replacement, from edges [2, E] (source, target).

    Returns node numbers [capacity, count], the node itself where there is no further neighbour, and the mask,
    1 for a neighbour, 0 for filling [capacity, count]; a node without neighbours counts itself once.
    """
    random = np.random.default_rng(seed)
    order = np.lexsort((random.random(edge_index.shape[1]), edge_index[1]))
    source, target = edge_index[:, order]
    start = np.searchsorted(target, np.arange(nodes))
    size = capacity if capacity is not None else nodes
    rank = np.arange(target.size) - start[target]
    kept = rank < count
    neighbours = np.tile(np.arange(size)[:, None], (1, count))
    mask = np.zeros((size, count), dtype=np.float32)
    neighbours[target[kept], rank[kept]] = source[kept]
    mask[target[kept], rank[kept]] = 1.0
    mask[mask.sum(axis=1) == 0, 0] = 1.0
    return neighbours.astype(np.int64), mask


def sampled_edge_index(neighbours: Nodes, mask: Weights) -> Nodes:
    """Return the result of `sample_neighbours` as edges [2, E]."""
    target, slot = np.nonzero(mask)
    return np.stack([neighbours[target, slot], target]).astype(np.int64)
