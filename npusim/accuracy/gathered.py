"""Views of GraphSAGE's sampled neighbours: K per node, with a mask for those that are absent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from npusim.accuracy.attention import LOWERED
from npusim.accuracy.views import GraphMatrix, View

__all__ = ["FinishedRows", "GatheredMatrix", "GatheredView"]

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
    """The same, prepared by the host: `neighbours` [N, K] in 32 bits and `mask` [N, K, 1], with EffOp also
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
