"""Views of a graph: as edges, as a matrix computed from them, as a constant matrix, as an input.

Every view computes the same sums, so all forms of a model share their trained parameters; what a view holds
is not trained and stands in no state dictionary.

A view is a module with two methods: `prepare(*graph)` makes of the graph's inputs what the layers need, once;
`example` names the inputs and gives a value of each, to trace and to run the model with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn


class View(nn.Module):
    """Inputs and constants by which a model gets its graph."""

    def __init__(self, example: Mapping[str, npt.NDArray[Any]]) -> None:
        super().__init__()
        self.example: dict[str, Tensor] = {name: torch.from_numpy(value) for name, value in example.items()}
        """Inputs beside the features, in the order of `forward`."""

    def hold(self, name: str, value: Tensor) -> None:
        """Keep a tensor that moves with the model but is not trained or stored with the parameters."""
        self.register_buffer(name, value, persistent=False)


class GraphMatrix(View, ABC):
    """A graph that the layers see as a matrix [N, N], wherever it comes from."""

    @abstractmethod
    def matrix(self, *graph: Tensor) -> Tensor:
        """Return the matrix [N, N]."""


class EdgeView(View):
    """The graph as `edge_index` [2, E], source above target; self-loops may be added in the model.

    Parameters
    ----------
    capacity : int, optional
        Nodes the model is compiled for (NodePad); added nodes have no edges, not even to themselves.
    """

    loops: Tensor

    def __init__(
        self,
        edge_index: npt.NDArray[np.int64],
        nodes: int,
        add_loops: bool,
        capacity: int | None = None,
    ) -> None:
        super().__init__({"edge_index": edge_index})
        self.nodes = capacity if capacity is not None else nodes
        self.add_loops = add_loops
        self.count = int(edge_index.shape[1]) + (nodes if add_loops else 0)
        self.hold("loops", torch.arange(nodes).repeat(2, 1))
        self.hold("ones", torch.ones(self.count))

    def prepare(self, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """Return source and target of each edge, [E] each."""
        if self.add_loops:
            edge_index = torch.cat([edge_index, self.loops], dim=1)
        return edge_index[0], edge_index[1]

    def ones_like_edges(self) -> Tensor:
        """Return a one for each edge, [E]."""
        return self.get_buffer("ones")


class InGraphMatrix(EdgeView, GraphMatrix):
    """The graph as `edge_index`, of which the model itself makes a dense matrix [N, N]."""

    def __init__(
        self,
        edge_index: npt.NDArray[np.int64],
        nodes: int,
        add_loops: bool,
        kind: str = "adjacency",
        capacity: int | None = None,
    ) -> None:
        super().__init__(edge_index, nodes, add_loops, capacity)
        self.kind = kind
        """`adjacency`: 0 and 1; `norm`: d^-1/2 A d^-1/2; `mean`: each row divided by its sum."""

    def matrix(self, *graph: Tensor) -> Tensor:
        """Return the matrix [N, N] made of `edge_index`."""
        source, target = self.prepare(*graph)
        cell = target * self.nodes + source
        flat = torch.zeros(self.nodes * self.nodes).scatter(0, cell, self.ones_like_edges())
        adjacency = flat.reshape(self.nodes, self.nodes)
        if self.kind == "norm":
            factor = adjacency.sum(dim=1).pow(-0.5)
            return adjacency * factor.unsqueeze(1) * factor.unsqueeze(0)
        if self.kind == "mean":
            return adjacency / adjacency.sum(dim=1, keepdim=True)
        return adjacency


class WeightedMatrix(EdgeView, GraphMatrix):
    """The graph as edges whose weights, computed (EffOp) or given (PreG), are scattered into a matrix."""

    def __init__(
        self,
        edge_index: npt.NDArray[np.int64],
        nodes: int,
        add_loops: bool,
        kind: str,
        ready: bool,
        capacity: int | None = None,
    ) -> None:
        super().__init__(edge_index, nodes, add_loops, capacity)
        self.kind = kind
        if ready:
            with torch.no_grad():
                source, target = self.prepare(self.example["edge_index"])
                self.example["edge_norm"] = self.weights(source, target)

    def weights(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the normalised weight of each edge, [E]."""
        degree = scatter_rows(self.ones_like_edges(), target, self.nodes)
        if self.kind == "mean":
            return degree.reciprocal().index_select(0, target)
        factor = degree.pow(-0.5)
        return factor.index_select(0, source) * factor.index_select(0, target)

    def matrix(self, *graph: Tensor) -> Tensor:
        """Return the matrix [N, N] made of `edge_index` and, where it is ready, `edge_norm`."""
        source, target = self.prepare(graph[0])
        weights = graph[1] if len(graph) > 1 else self.weights(source, target)
        cell = target * self.nodes + source
        flat = torch.zeros(self.nodes * self.nodes).scatter(0, cell, weights)
        return flat.reshape(self.nodes, self.nodes)


class MatrixView(GraphMatrix):
    """The graph as finished matrices [N, N]: constants of the model (StaGr) or inputs (GrAd)."""

    def __init__(self, matrices: Mapping[str, npt.NDArray[np.float32]], constant: bool) -> None:
        super().__init__({} if constant else matrices)
        self.held = tuple(matrices) if constant else ()
        for name in self.held:
            self.hold(name, torch.from_numpy(matrices[name]))

    def sparse(self) -> MatrixView:
        """Return the view with its constants as sparse matrices, which train faster."""
        for name in self.held:
            self.hold(name, self.get_buffer(name).to_sparse())
        return self

    def matrices(self, *graph: Tensor) -> tuple[Tensor, ...]:
        """Return the matrices."""
        return tuple(self.get_buffer(name) for name in self.held) if self.held else graph

    def matrix(self, *graph: Tensor) -> Tensor:
        """Return the first matrix [N, N]."""
        return self.matrices(*graph)[0]


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
    edge_index: npt.NDArray[np.int64],
    nodes: int,
    loops: bool,
    kind: str,
    capacity: int | None = None,
    padding: str = "zeros",
) -> npt.NDArray[np.float32]:
    """Return the matrix that the host prepares, [capacity, capacity].

    Parameters
    ----------
    loops : bool
        Whether each node has an edge to itself.
    padding : str
        What an added node has: `zeros`, nothing, as GraNNite words it; `loops`, an edge to itself, as its
        authors' program does it.
    """
    size = capacity if capacity is not None else nodes
    matrix = np.zeros((size, size), dtype=np.float32)
    matrix[edge_index[1], edge_index[0]] = 1.0
    if loops:
        matrix[np.arange(nodes), np.arange(nodes)] = 1.0
    if padding == "loops":
        matrix[np.arange(nodes, size), np.arange(nodes, size)] = 1.0
    degree = np.maximum(matrix.sum(axis=1), 1.0)
    if kind == "norm":
        factor = degree**-0.5
        return np.asarray(matrix * factor[:, None] * factor[None, :], dtype=np.float32)
    return np.asarray(matrix / degree[:, None], dtype=np.float32) if kind == "mean" else matrix
