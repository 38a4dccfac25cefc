"""StaGr: the mask is a constant of the model, and aggregation a matrix product."""

from __future__ import annotations

from npusim.ops import TensorKind
from npusim.techniques.precompute import can_precompute, precompute
from npusim.techniques.technique import EdgeData, Stage, Technique

STAGR = Technique(
    name="stagr",
    summary=(
        "Aggregation becomes a matrix product with a constant: the norm matrix, attention mask or sampled "
        "adjacency."
    ),
    rationale=(
        "For a graph that stays as it is, everything that follows from the edges is computed once, before "
        "the model is compiled. Degrees, scatter and gather disappear; what is left is MatMul(norm, h), "
        "which the MAC grid does well. The price is a dense N x N constant that must be fetched for each "
        "layer, and a new compilation when an edge changes."
    ),
    numerics="The same sums in another order: equal but for rounding.",
    rewrite=lambda graph, _: precompute(graph, TensorKind.CONSTANT),
    stage=Stage.PRECOMPUTE,
    needs="tensors that the model computes from the edges alone",
    finds=lambda graph, _: can_precompute(graph, TensorKind.CONSTANT),
    excludes={"grad": "the mask is either a constant or an input"},
    edges=EdgeData.CONSTANT,
    source="GraNNite, section IV-A",
)
