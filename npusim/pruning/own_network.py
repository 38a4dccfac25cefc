"""Trained modules of users as networks that can be pruned: graph convolutions with ReLUs between."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.nn import GCNConv

from npusim.errors import ConfigError
from npusim.frontends.pyg import as_arrays, module_at
from npusim.gnn_models.networks import Propagation
from npusim.gnn_models.planetoid import GraphData
from npusim.gnn_models.views import MatrixView, dense_adjacency
from npusim.workloads.gnn.spec import BranchChannels, GnnSpec, Layer

_CLOSE = 1e-3
"""Largest difference of a log-probability to the module's."""
_MASKS = ("train_mask", "val_mask", "test_mask")


def own_network(what: str) -> tuple[GnnSpec, GraphData, Propagation]:
    """Return a module of a user's file as a gcn, its data and its trained parameters.

    Raises
    ------
    ConfigError
        Where its answers are not those of graph convolutions with ReLUs between them, or its example inputs
        are no data object with classes and masks of the nodes.
    """
    named = module_at(what)
    absent = [key for key in ("x", "edge_index", "y", *_MASKS) if getattr(named.example, key, None) is None]
    if absent:
        found = f"no `{absent[0]}` in the example inputs of {what}"
        raise ConfigError(found, allowed=f"a data object with x, edge_index, y, {', '.join(_MASKS)}")
    convolutions = [layer for layer in named.module.modules() if isinstance(layer, GCNConv)]
    inner = {layer.out_channels for layer in convolutions[:-1]}
    if not convolutions or len(inner) > 1:
        found = f"{type(named.module).__name__} with {len(convolutions)} GCNConv"
        raise ConfigError(found, allowed="one or more GCNConv, with one width between them")
    arrays = as_arrays({key: getattr(named.example, key) for key in ("x", "edge_index", "y", *_MASKS)})
    ends = arrays["edge_index"][:, arrays["edge_index"][0] != arrays["edge_index"][1]]
    masks = (arrays[key].astype(bool) for key in _MASKS)
    data = GraphData(named.name, arrays["x"], np.unique(ends, axis=1), arrays["y"].reshape(-1), *masks)
    widths = [(layer.in_channels, layer.out_channels) for layer in convolutions]
    layers = tuple(Layer((BranchChannels(order=1, inputs=i, outputs=o),), i) for i, o in widths)
    matrix = dense_adjacency(data.edge_index, data.nodes, True, "norm")
    network = Propagation(layers, MatrixView({"norm": matrix}, constant=True).sparse(), False, bias=True)
    parameters = dict[str, torch.Tensor]()
    for i, layer in enumerate(convolutions):
        bias = torch.zeros(layer.out_channels) if layer.bias is None else layer.bias.detach()
        parameters |= {f"layers.{i}.0.weight": layer.lin.weight.detach(), f"layers.{i}.0.bias": bias}
    network.load_state_dict(parameters)
    with torch.no_grad():
        ours = network.eval()(torch.from_numpy(data.x))
        theirs = torch.log_softmax(named.module(*named.inputs.values()), dim=1)
    if ours.shape != theirs.shape or float((ours - theirs).abs().max()) > _CLOSE:
        found = f"{type(named.module).__name__} answers otherwise than its GCNConv with ReLUs between them"
        raise ConfigError(found, allowed="such a network, on edges in both directions, in its trained state")
    hidden = {"hidden": inner.pop()} if inner else {}
    keys = {"model": "gcn", "dataset": "own", "layers": len(widths), "precision": "fp32", **hidden}
    return GnnSpec.model_validate(keys), data, network
