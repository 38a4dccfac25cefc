"""GrAd: the mask is an input that the CPU keeps up to date; the model is compiled once."""

from __future__ import annotations

from npusim.ops import TensorKind
from npusim.techniques.precompute import can_precompute, precompute
from npusim.techniques.technique import EdgeData, Stage, Technique

GRAD = Technique(
    name="grad",
    summary=(
        "The norm matrix, attention mask or sampled adjacency becomes an input that the CPU updates at run "
        "time."
    ),
    rationale=(
        "Edges come and go without a new compilation: the host changes entries of the mask and hands it over "
        "with the features. The NPU does what it does under StaGr, but nothing about the mask may be "
        "prepared at compile time: a comparison on it stays in the graph, and it has to be handed over."
    ),
    numerics="The same sums in another order: equal but for rounding.",
    rewrite=lambda graph, _: precompute(graph, TensorKind.INPUT),
    stage=Stage.PRECOMPUTE,
    needs="tensors that the model computes from the edges alone",
    finds=lambda graph, _: can_precompute(graph, TensorKind.INPUT),
    excludes={"stagr": "the mask is either a constant or an input"},
    edges=EdgeData.INPUT,
    source="GraNNite, section IV-A",
)
