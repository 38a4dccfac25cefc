"""PyTorch modules of a workload, and their traced graph under a stack of techniques.

Techniques rewrite the traced graph of a module, as they rewrite a user's: its parameters stay the same.
NodePad has the module on more nodes. SymG, CacheG and GraSp store tensors, which changes no number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from npusim.errors import ConfigError
from npusim.frontends.valued import Array, ValuedNetwork, valued_module
from npusim.gnn_models import views
from npusim.gnn_models.networks import GAT, SAGE, Propagation
from npusim.gnn_models.number_formats import Scores, scores_in
from npusim.gnn_models.planetoid import GraphData
from npusim.graph import Graph
from npusim.techniques import EdgeData, Stack, apply, legal
from npusim.techniques.stack import StackEntry
from npusim.workloads import GnnSpec
from npusim.workloads.gnn.spec import EQUATION_1, BranchChannels, Layer


@dataclass(frozen=True, slots=True)
class ModelInstance:
    """A module with its inputs."""

    module: nn.Module
    inputs: Mapping[str, Tensor]  # inputs by name, in the order of `forward`, with real values


def trainable(spec: GnnSpec, data: GraphData, seed: int) -> nn.Module:
    """Return the model in the form that trains fastest; every form has the same parameters."""
    torch.manual_seed(seed)
    return _trainable(spec, data, seed)


def module_of(spec: GnnSpec, data: GraphData) -> Propagation | GAT:
    """Return a workload's module on the whole graph: gat along edges, others with a sparse matrix."""
    module = _trainable(spec, data, seed=0)
    assert isinstance(module, Propagation | GAT), "GraphSAGE samples its neighbours"
    return module


def _trainable(spec: GnnSpec, data: GraphData, seed: int) -> GAT | SAGE | Propagation:
    edges, loops = _edges_of(spec, data, seed)
    if spec.model in ("gat", "sage-max"):
        return _module(spec, data, views.EdgeView(edges, data.nodes, loops))
    kind = _matrix_of(spec)
    matrix = views.dense_adjacency(edges, data.nodes, loops, kind)
    return _module(spec, data, views.MatrixView({kind: matrix}, constant=True).sparse())


def model_instance(
    spec: GnnSpec, data: GraphData, seed: int = 0, capacity: int | None = None
) -> ModelInstance:
    """Return the module in the form that the workload's graph has without techniques.

    Parameters
    ----------
    capacity : int, optional
        Nodes that it is compiled for; further ones have no features and no edges.
    """
    nodes = capacity or data.nodes
    features = np.zeros((nodes, data.features), dtype=np.float32)
    features[: data.nodes] = data.x
    view = _view_of(spec, data, seed, nodes)
    return ModelInstance(_module(spec, data, view), {"x": torch.from_numpy(features), **view.example})


def trained_instance(
    spec: GnnSpec,
    data: GraphData,
    parameters: Mapping[str, Tensor],
    seed: int = 0,
    capacity: int | None = None,
) -> ModelInstance:
    """Return `model_instance` with trained parameters."""
    instance = model_instance(spec, data, seed, capacity)
    instance.module.load_state_dict(parameters)
    instance.module.eval()
    return instance


@dataclass(frozen=True)
class Rewritten:
    """A network under a stack of techniques."""

    graph: Graph
    model: Any
    """`openvino.Model` in fp32, whatever formats the stack has."""
    inputs: Mapping[str, Array]
    """Value of each input of the model."""

    def scores(self, numbers: str) -> Scores:
        """Return the first result in a number format, as for `scores_in`."""
        return scores_in(numbers, self.graph, self.model, self.inputs)


def rewritten(network: ValuedNetwork, stack: Stack) -> Rewritten:
    """Return a network under a stack, without what only stores tensors, adds nodes or runs in turns."""
    graph = apply(network.graph, Stack(tuple(e for e in stack if _changes_model(network.graph, e))))
    model = network.rewritten(graph)
    return Rewritten(graph, model, network.fed(graph, model))


def _changes_model(graph: Graph, entry: StackEntry) -> bool:
    """Whether a technique is seen in a floating-point model file of the same nodes."""
    technique, alone = entry.technique, Stack((entry,))
    if technique.compiler_only or technique.precision is not None or technique.edges is EdgeData.CAPACITY:
        return False
    if not technique.exact or technique.edges is not None or legal(graph, alone) is not None:
        return True
    return all(op.repeats == 1 for op in apply(graph, alone))


@dataclass(frozen=True)
class TrainedWorkload:
    """A workload with trained parameters, and the graph that npusim builds for it."""

    spec: GnnSpec
    data: GraphData
    graph: Graph
    parameters: Mapping[str, Tensor]
    seed: int = 0
    _networks: dict[int, ValuedNetwork] = field(default_factory=dict, repr=False)
    """Networks by the nodes that they are compiled for."""

    def rewritten(self, stack: Stack) -> Rewritten:
        """Return the workload under a stack; an `IllegalTechniqueError` says that it is not legal."""
        nodes = apply(self.graph, stack).tensors["x"].shape[0]
        if nodes not in self._networks:
            instance = trained_instance(self.spec, self.data, self.parameters, self.seed, nodes)
            self._networks[nodes] = valued_module(instance.module, instance.inputs, self.graph.name)
        return rewritten(self._networks[nodes], stack)


def _module(spec: GnnSpec, data: GraphData, view: views.View) -> GAT | SAGE | Propagation:
    if spec.model == "gcn" or spec.model in EQUATION_1:
        return propagation(spec, data, view)
    widths = spec.widths(data.features, data.classes)
    if spec.model == "gat":
        return GAT(widths, spec.heads, view)
    return SAGE(widths, view, spec.model == "sage-max", spec.order == "aggregate_first")


def propagation(spec: GnnSpec, data: GraphData, view: views.View) -> Propagation:
    """Return the module of gcn or of a model by Eq. 1; a `ConfigError` where it works on batches."""
    if spec.batch is not None:
        raise ConfigError("`batch`", key="workload.batch", allowed="none: a module answers for all nodes")
    transform_first = spec.order == "transform_first"
    if spec.model == "gcn":
        widths = spec.widths(data.features, data.classes)
        layers = tuple(Layer((BranchChannels(order=1, inputs=i, outputs=o),), i) for i, o in widths)
        return Propagation(layers, view, False, transform_first=transform_first, bias=True)
    layers = spec.equation_layers(data.features, data.classes)
    columns = {
        (i, b): torch.arange(branch.inputs)
        for i, layer in enumerate(layers)
        for b, branch in enumerate(layer.branches)
        if branch.inputs < layer.inputs
    }
    jumping, mean = spec.model == "jk", spec.model == "sage-concat"
    return Propagation(
        layers, view, mean, columns, transform_first, jumping=jumping, normalise=spec.normalise
    )


def _edges_of(spec: GnnSpec, data: GraphData, seed: int) -> tuple[views.Nodes, bool]:
    """Return the edges of a model, and whether each node has one to itself."""
    if spec.model not in ("sage-mean", "sage-max"):
        return data.edge_index, spec.model != "sage-concat"
    sampled = views.sample_neighbours(data.edge_index, data.nodes, spec.neighbours, seed)
    return views.sampled_edge_index(*sampled), False


def _matrix_of(spec: GnnSpec) -> str:
    """Return the kind of matrix that a model multiplies by or masks with."""
    if spec.model == "gat":
        return "adjacency"
    return "mean" if spec.model in ("sage-mean", "sage-concat") else "norm"


def _view_of(spec: GnnSpec, data: GraphData, seed: int, capacity: int) -> views.View:
    if spec.form == "gathered":  # an added node counts itself once, as a node without neighbours does
        return views.Rows(
            *views.sample_neighbours(data.edge_index, data.nodes, spec.neighbours, seed, capacity)
        )
    edges, loops = _edges_of(spec, data, seed)
    view = views.EdgeView(edges, data.nodes, loops, capacity)
    return view if spec.form in ("edges", "csr") else views.ScatteredMatrix(view, _matrix_of(spec))
