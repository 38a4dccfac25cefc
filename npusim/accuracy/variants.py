"""Which PyTorch module stands for a workload under a stack of techniques.

A theatre's wardrobe: the actor (the parameters) stays the same, the costume (how the graph is seen) changes
with the play.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from npusim.accuracy.gat import GAT, LOWERED
from npusim.accuracy.gcn import GCN
from npusim.accuracy.planetoid import GraphData
from npusim.accuracy.sage import SAGE, GatheredView, sample_neighbours, sampled_edge_index
from npusim.accuracy.views import EdgeView, InGraphMatrix, MatrixView, View, dense_adjacency
from npusim.errors import IllegalTechniqueError
from npusim.graph import Graph
from npusim.techniques import Stack
from npusim.workloads import WorkloadSpec

__all__ = ["Variant", "trainable", "variant"]

_SAME_MODULE = frozenset({"graphsplit", "grasp", "symg", "cacheg"})
"""Techniques that say where tensors lie and how they are packed, which no model file can say."""
_IN_THE_MODULE = frozenset({"stagr", "grad", "nodepad", "effop"})
_MATRIX = {"gcn": "norm", "gat": "adjacency", "sage-mean": "mean"}
"""Which matrix a model multiplies by or masks with."""

Edges = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Variant:
    """A module with its inputs."""

    module: nn.Module
    inputs: Mapping[str, Tensor]
    """Inputs by name, in the order of `forward`, with real values."""


def trainable(spec: WorkloadSpec, data: GraphData, seed: int) -> nn.Module:
    """Return the model in the form that trains fastest; its parameters fit every other form."""
    torch.manual_seed(seed)
    edges, loops = _edges_of(spec, data, seed)
    if spec.model in ("gcn", "sage-mean"):
        matrix = dense_adjacency(edges, data.nodes, loops, _MATRIX[spec.model])
        return _module(
            spec, data, MatrixView({_MATRIX[spec.model]: matrix}, constant=True).sparse(), "select"
        )
    return _module(spec, data, EdgeView(edges, data.nodes, loops), "select")


def variant(spec: WorkloadSpec, graph: Graph, stack: Stack, data: GraphData, seed: int = 0) -> Variant:
    """Return the module that computes what a graph describes.

    Parameters
    ----------
    spec : WorkloadSpec
        The workload.
    graph : Graph
        Its graph under the stack: legality was checked when it was made, and it knows the capacity.
    stack : Stack
        The techniques.
    data : GraphData
        The data set.
    seed : int
        Of the neighbours' draw (sage).

    Returns
    -------
    Variant
        The module, untrained.

    Raises
    ------
    IllegalTechniqueError
        When a technique of the stack has no PyTorch form on this model.
    """
    names = set(stack.names)
    for name in stack.names:
        if name not in _SAME_MODULE | _IN_THE_MODULE:
            raise IllegalTechniqueError(name, f"no model file can be exported with it; {_exportable()}")
    capacity = graph.tensors["x"].shape[0]
    masking = "arithmetic" if "effop" in names else "select"
    if names & {"stagr", "grad"}:
        view: View = _finished_view(spec, data, capacity, "stagr" in names, masking, seed)
    elif capacity != data.nodes:
        raise IllegalTechniqueError("nodepad", "its export needs a finished matrix", "add stagr or grad")
    elif "effop" in names and spec.model != "gat":
        raise IllegalTechniqueError(
            "effop", f"no model file of {spec.model} can be exported with it alone", "add stagr"
        )
    else:
        view = _view_of_the_form(spec, data, seed)
    features = np.zeros((capacity, data.features), dtype=np.float32)
    features[: data.nodes] = data.x
    return Variant(_module(spec, data, view, masking), {"x": torch.from_numpy(features), **view.example})


def _exportable() -> str:
    return f"exported are {', '.join(sorted(_SAME_MODULE | _IN_THE_MODULE))}"


def _module(spec: WorkloadSpec, data: GraphData, view: Any, masking: str) -> nn.Module:
    widths = spec.widths(data.features, data.classes)
    first = spec.order == "aggregate_first"
    if spec.model == "gcn":
        return GCN(widths, view, first)
    if spec.model == "gat":
        return GAT(widths, spec.heads, view, masking)
    return SAGE(widths, view, spec.model == "sage-max", first)


def _edges_of(spec: WorkloadSpec, data: GraphData, seed: int) -> tuple[Edges, bool]:
    """Return the edges a model runs along, and whether each node has one to itself."""
    if spec.model in ("gcn", "gat"):
        return data.edge_index, True
    return sampled_edge_index(*sample_neighbours(data.edge_index, data.nodes, spec.neighbours, seed)), False


def _view_of_the_form(spec: WorkloadSpec, data: GraphData, seed: int) -> View:
    if spec.form == "gathered":
        return GatheredView(*sample_neighbours(data.edge_index, data.nodes, spec.neighbours, seed))
    edges, loops = _edges_of(spec, data, seed)
    if spec.form == "edges":
        return EdgeView(edges, data.nodes, loops)
    return InGraphMatrix(edges, data.nodes, loops, _MATRIX[spec.model])


def _finished_view(
    spec: WorkloadSpec, data: GraphData, capacity: int, constant: bool, masking: str, seed: int
) -> View:
    if spec.model == "sage-max" or spec.form == "gathered" or (spec.model == "gat" and spec.form == "edges"):
        technique = "stagr" if constant else "grad"
        reason = f"no model file of {spec.model} in the form {spec.form} can be exported with it"
        raise IllegalTechniqueError(technique, reason)
    edges, loops = _edges_of(spec, data, seed)
    kind = _MATRIX[spec.model]
    matrix = dense_adjacency(edges, data.nodes, loops, kind, capacity)
    name = "mask" if spec.model == "gat" else "norm"
    matrices = {name: matrix}
    if masking == "arithmetic" and spec.model == "gat":
        matrices["mask_negative"] = np.asarray((matrix - 1.0) * LOWERED, dtype=np.float32)
    return MatrixView(matrices, constant)
