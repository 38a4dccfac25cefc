"""The arithmetic of attention: scores of all pairs of nodes, and masking of absent edges.

Scores are computed for each pair, or from two vectors (GrAx2). Absent edges are masked by Select, by
multiplying and adding a mask (EffOp), or by adding alone (GrAx1).

Shapes: target scores [.., N, 1] belong to the rows of the softmax, source scores [.., 1, N] to its columns.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["LOWERED", "MASKED", "SLOPE", "masked", "scores_of"]

MASKED = -9e15
"""What stands for minus infinity where a score is replaced."""
LOWERED = 1e4
"""What an absent edge's score is lowered by where scores are masked by arithmetic: fp16 ends at 65504."""
SLOPE = 0.2
"""Slope of LeakyReLU below zero (Velickovic et al., 2018)."""


def scores_of(target: Tensor, source: Tensor, form: str) -> Tensor:
    """Return attention scores behind LeakyReLU.

    Parameters
    ----------
    target, source : Tensor
        A score of each node in either role, [.., N, 1] both.
    form : str
        `pairs`: added by broadcasting, [.., N, N]; `rank2`: the same as [d, 1] [1, s]^T (GrAx2), exact;
        `literal`: added as vectors, [.., N, 1], so that a row of the softmax is constant (GrAx2);
        `source`: the source's score alone, [.., 1, N] (GrAx2).
    """
    across = source.transpose(-1, -2)
    if form == "literal":
        scores = target + source
    elif form == "source":
        scores = across
    elif form == "rank2":
        one = _ones(target.shape)
        left = torch.cat([target, one], dim=-1)
        right = torch.cat([one.transpose(-1, -2), across], dim=-2)
        scores = torch.matmul(left, right)
    else:
        scores = target + across
    return functional.leaky_relu(scores, SLOPE)


def masked(scores: Tensor, masks: tuple[Tensor, ...], masking: str) -> Tensor:
    """Return scores [.., N, N] in which absent pairs count for nothing.

    Parameters
    ----------
    scores : Tensor
        [.., N, N], [.., N, 1] or [.., 1, N].
    masks : tuple of Tensor
        `select`: the condition [N, N]; `arithmetic`: the 0/1 mask and what is added; `additive`: what is
        added.
    masking : str
        `select`: absent scores are replaced; `arithmetic`: multiplied by 0 and lowered (EffOp); `additive`:
        lowered only (GrAx1).
    """
    if masking == "additive":
        return scores + masks[0]
    if masking == "arithmetic":
        return scores * masks[0] + masks[1]
    shape = (*scores.shape[:-2], *masks[0].shape[-2:])
    absent = torch.full_like(scores.expand(shape), MASKED)
    return torch.where(masks[0], scores, absent)


def _ones(shape: torch.Size) -> Tensor:
    """Return ones that a traced module holds as a constant: a trace must know the sizes as plain numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # it says what is meant here
        return torch.ones([int(size) for size in shape])
