"""GraphSAGE as a PyTorch module, in each form that npusim costs.

The neighbours are sampled beforehand; every form uses the same sample.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from npusim.accuracy.gathered import FinishedRows, GatheredView
from npusim.accuracy.maxima import SparseMaximum, masked_maximum
from npusim.accuracy.views import EdgeView, GraphMatrix, scatter_rows

__all__ = ["SAGE", "sample_neighbours", "sampled_edge_index"]


class SAGE(nn.Module):
    """GraphSAGE: aggregate(x) W^T + (x W_root^T + b) a layer.

    Parameters
    ----------
    widths : list of (int, int)
        Inputs and outputs of each layer.
    view : View
        How it sees the sampled graph; a matrix for the mean only.
    maximum : bool
        Whether the neighbours' maximum is taken instead of their mean.
    masking : str
        How a maximum leaves out missing neighbours, as for `npusim.accuracy.maxima.masked_maximum`.
    aggregate_first : bool
        Whether a layer aggregates its inputs and not its outputs.
    dropout : float
        Share of features and activations dropped while training.
    """

    def __init__(
        self,
        widths: list[tuple[int, int]],
        view: GatheredView | FinishedRows | EdgeView | GraphMatrix,
        maximum: bool,
        aggregate_first: bool,
        masking: str = "select",
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.neighbours = nn.ModuleList(nn.Linear(i, o, bias=False) for i, o in widths)
        self.root = nn.ModuleList(nn.Linear(i, o) for i, o in widths)
        self.view = view
        self.maximum = maximum
        self.masking = masking
        self.sparse_maximum: SparseMaximum | None = None
        """How the maximum of sparse features is taken; training sets it."""
        self.aggregate_first = aggregate_first
        self.dropout = dropout

    def forward(self, x: Tensor, *graph: Tensor) -> Tensor:
        """Return log-probabilities [N, classes] for features [N, F] and the view's inputs."""
        prepared = self._prepare(graph)
        for number, (linear, root) in enumerate(zip(self.neighbours, self.root, strict=True)):
            if number > 0:  # the features' dropout is the trainer's
                x = functional.dropout(x, self.dropout, self.training)
            if self.aggregate_first:
                mixed = linear(self._aggregate(prepared, x))
            else:
                mixed = self._aggregate(prepared, linear(x))
            x = mixed + root(x)
            if number + 1 < len(self.root):
                x = torch.relu(x)
        return torch.log_softmax(x, dim=1)

    def take_sparse(self, features: Tensor) -> None:
        """Make ready for features that are a sparse matrix with the non-zeros of `features` [N, F]."""
        if self.maximum and self.aggregate_first and isinstance(self.view, EdgeView):
            ends = self.view.prepare(*self.view.example.values())
            nodes, width = features.shape
            self.sparse_maximum = SparseMaximum(features.indices(), ends, (nodes, width))

    def _prepare(self, graph: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if isinstance(self.view, GraphMatrix):
            return (self.view.matrix(*graph),)
        if isinstance(self.view, GatheredView):
            return self.view.prepare_rows(self.masking if self.maximum else "mean", *graph)
        if isinstance(self.view, FinishedRows):
            return self.view.prepare_rows(self.masking, *graph)
        source, target = self.view.prepare(*graph)
        if self.maximum:
            return source, target
        count = scatter_rows(self.view.ones_like_edges(), target, self.view.nodes)
        return source, target, count.unsqueeze(1)

    def _aggregate(self, prepared: tuple[Tensor, ...], x: Tensor) -> Tensor:
        if isinstance(self.view, GraphMatrix):
            return torch.matmul(prepared[0], x)
        if isinstance(self.view, GatheredView | FinishedRows):
            gathered = x[prepared[0]]
            if self.maximum:
                return masked_maximum(gathered, prepared[1:], self.masking)
            return (gathered * prepared[1]).sum(dim=1) / prepared[2]
        if x.is_sparse and self.sparse_maximum is not None:
            return self.sparse_maximum(x)
        messages = x.index_select(0, prepared[0])
        if self.maximum:
            return scatter_rows(messages, prepared[1], x.shape[0], "max")
        return scatter_rows(messages, prepared[1], x.shape[0]) / prepared[2]


def sample_neighbours(
    edge_index: npt.NDArray[np.int64], nodes: int, count: int, seed: int, capacity: int | None = None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Draw up to `count` neighbours of each node without replacement.

    Parameters
    ----------
    edge_index : ndarray
        Edges [2, E], source above target.
    nodes : int
        Nodes of the graph.
    count : int
        Neighbours a node keeps.
    seed : int
        Of the draw.
    capacity : int, optional
        Nodes the model is compiled for; added ones have no neighbours.

    Returns
    -------
    neighbours : ndarray
        Node numbers [capacity, count]; the node itself where there is no further neighbour.
    mask : ndarray
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


def sampled_edge_index(
    neighbours: npt.NDArray[np.int64], mask: npt.NDArray[np.float32]
) -> npt.NDArray[np.int64]:
    """Return a draw of `sample_neighbours` as edges [2, E]."""
    target, slot = np.nonzero(mask)
    return np.stack([neighbours[target, slot], target]).astype(np.int64)
