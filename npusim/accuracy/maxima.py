"""Maximum over neighbours: over lists of neighbours, or over nearly all-zero features.

Absent neighbours are masked by Select, by multiplying and adding a mask (EffOp), or by 0 (GrAx3), which is
exact where features are not negative.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["ABSENT", "SparseMaximum", "masked_maximum"]

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
    shape : tuple of int
        Nodes and features.
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
