"""GraphSAGE as a PyTorch module, in each form that npusim costs.

The neighbours are sampled beforehand; every form uses the same sample. Absent neighbours of a maximum are
masked by Select, by multiplying and adding a mask (EffOp), or by 0 (GrAx3), which is exact where features are
not negative.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from npusim.accuracy.gat import LOWERED
from npusim.accuracy.views import EdgeView, GraphMatrix, View, scatter_rows

ABSENT = -1e4
"""What stands for a missing neighbour in a maximum."""


def masked_maximum(gathered: Tensor, masks: tuple[Tensor, ...], masking: str) -> Tensor:
    """Return the maximum over neighbours, [N, F].

    Parameters
    ----------
    gathered : Tensor
        Features of the neighbours, [N, K, F].
    masks : tuple of Tensor
        [N, K, 1] each: the condition (`select`), the 0/1 mask and what is added (`arithmetic`), or the 0/1
        mask.
    masking : str
        `select`: missing neighbours are replaced; `arithmetic`: multiplied by 0 and lowered (EffOp);
        `pool` and `reduce`: multiplied by 0 only (GrAx3), the maximum taken by max-pooling or by ReduceMax.
        The last two let the 0 win where all features are negative.
    """
    if masking == "select":
        return torch.where(masks[0], gathered, ABSENT).amax(dim=1)
    kept = gathered * masks[0]
    if masking == "arithmetic":
        return (kept + masks[1]).amax(dim=1)
    if masking == "reduce":
        return kept.amax(dim=1)
    nodes, count, width = kept.shape
    image = kept.reshape(1, nodes, count, width)
    return functional.max_pool2d(image, (count, 1), stride=1).reshape(nodes, width)


class SparseMaximum(nn.Module):
    """The maximum over neighbours of features that are not negative and nearly all zeros.

    Only cells in which some neighbour has a non-zero can have a maximum other than 0, so training touches
    these alone: a hundred times fewer than all.

    Parameters
    ----------
    places : Tensor
        Where the features have non-zeros, [2, Z]: rows in ascending order.
    ends : tuple of Tensor
        Source and target of each edge, [E] both.
    """

    which: Tensor
    cell: Tensor
    cells: Tensor

    def __init__(self, places: Tensor, ends: tuple[Tensor, Tensor], shape: tuple[int, int]) -> None:
        super().__init__()
        source, target = ends
        self.shape = shape
        rows = torch.arange(shape[0] + 1)
        start = torch.searchsorted(places[0].contiguous(), rows)
        length = (start[1:] - start[:-1]).index_select(0, source)
        first = torch.cumsum(length, 0) - length
        within = torch.arange(int(length.sum())) - torch.repeat_interleave(first, length)
        which = torch.repeat_interleave(start.index_select(0, source), length) + within
        key = torch.repeat_interleave(target, length) * shape[1] + places[1].index_select(0, which)
        cells, cell = torch.unique(key, return_inverse=True)
        self.register_buffer("which", which, persistent=False)
        self.register_buffer("cell", cell, persistent=False)
        places_of_cells = torch.stack([cells // shape[1], cells % shape[1]])
        self.register_buffer("cells", places_of_cells, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the maxima of sparse features [N, F] as a sparse matrix [N, F]."""
        values = x.coalesce().values().index_select(0, self.which)
        most = torch.zeros(self.cells.shape[1]).scatter_reduce(0, self.cell, values, "amax")
        return torch.sparse_coo_tensor(
            self.cells, most, self.shape, is_coalesced=True, check_invariants=False
        )


Neighbours = npt.NDArray[np.int64]
Mask = npt.NDArray[np.float32]


class GatheredView(View):
    """The graph as `neighbours` [N, K] and `mask` [N, K], 0 where a node has fewer than K."""

    def __init__(self, neighbours: Neighbours, mask: Mask) -> None:
        super().__init__({"neighbours": neighbours, "mask": mask})

    def prepare_rows(self, masking: str, neighbours: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """Return node numbers [N, K] and the masks [N, K, 1] that a masking, or the mean, takes."""
        deep = mask.unsqueeze(2)
        if masking == "mean":
            return neighbours, deep, mask.sum(dim=1, keepdim=True)
        if masking == "select":
            return neighbours, deep > 0
        return (neighbours, deep, (deep - 1.0) * LOWERED) if masking == "arithmetic" else (neighbours, deep)


class FinishedRows(View):
    """Sampled neighbours with finished masks, prepared by the host.

    Inputs are `neighbours` [N, K] in 32 bits and `mask` [N, K, 1], with EffOp also
    what is added; constants of the model (StaGr) or inputs (GrAd).
    """

    def __init__(self, neighbours: Neighbours, mask: Mask, masking: str, constant: bool) -> None:
        deep = mask[:, :, None]
        finished = {"neighbours": neighbours.astype(np.int32), "mask": deep}
        if masking == "arithmetic":
            finished["mask_negative"] = ((deep - 1.0) * LOWERED).astype(np.float32)
        super().__init__({} if constant else finished)
        self.held = tuple(finished) if constant else ()
        for name in self.held:
            self.hold(name, torch.from_numpy(finished[name]))

    def prepare_rows(self, masking: str, *graph: Tensor) -> tuple[Tensor, ...]:
        """Return node numbers [N, K] and the masks [N, K, 1] that a masking takes."""
        neighbours, *masks = tuple(self.get_buffer(name) for name in self.held) if self.held else graph
        if masking == "select":
            masks = [masks[0] > 0]
        return neighbours, *masks


class GatheredMatrix(GraphMatrix):
    """Sampled neighbours whose weights the model scatters into a matrix [N, N] for the mean.

    Parameters
    ----------
    neighbours, mask : ndarray
        As for `GatheredView`.
    ready : bool
        Whether the weights arrive divided by their number, as `edge_norm` [N, K] (PreG), or the model divides
        (EffOp).
    """

    def __init__(self, neighbours: Neighbours, mask: Mask, ready: bool) -> None:
        norm = np.asarray(mask / mask.sum(axis=1, keepdims=True), dtype=np.float32)
        super().__init__({"neighbours": neighbours, **({"edge_norm": norm} if ready else {"mask": mask})})
        self.ready = ready

    def matrix(self, *graph: Tensor) -> Tensor:
        """Return the matrix [N, N]."""
        neighbours, weights = graph
        blank = torch.zeros(neighbours.shape[0], neighbours.shape[0])
        matrix = blank.scatter_add(1, neighbours, weights)
        return matrix if self.ready else matrix / weights.sum(dim=1, keepdim=True)


class SAGE(nn.Module):
    """GraphSAGE: (aggregate(x) W^T + b) + x W_root^T per layer, as in PyTorch Geometric's SAGEConv.

    Parameters
    ----------
    view : View
        How it sees the sampled graph; a matrix for the mean only.
    maximum : bool
        Whether the neighbours' maximum is taken instead of their mean.
    masking : str
        How a maximum leaves out missing neighbours, as for `npusim.accuracy.sage.masked_maximum`.
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
        self.neighbours = nn.ModuleList(nn.Linear(i, o) for i, o in widths)
        self.root = nn.ModuleList(nn.Linear(i, o, bias=False) for i, o in widths)
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
        return source, target, count.clamp(min=1.0).view(-1, 1)

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
