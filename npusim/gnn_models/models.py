"""PyTorch modules of a workload: for training, under a stack of techniques, for pruning.

The parameters stay the same; the view of the graph and the masking of absent neighbours change with the
stack. GraphSplit, GraSp, SymG and CacheG change no number: they place operators and tensors. The storage
formats of GraSp and SymG are applied here: zero-value compression (ZVC) and the lower triangle.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from npusim.errors import ConfigError, IllegalTechniqueError
from npusim.gnn_models import views
from npusim.gnn_models.networks import GAT, SAGE, Propagation
from npusim.gnn_models.planetoid import GraphData
from npusim.graph import Graph
from npusim.ops import Annotation
from npusim.techniques import EdgeData, Stack
from npusim.workloads import GnnSpec
from npusim.workloads.gnn.spec import EQUATION_1, BranchChannels, Layer

Matrix = npt.NDArray[np.float32]


def to_triangle(matrix: Matrix) -> Matrix:
    """Return the lower triangle with the diagonal of a symmetric matrix [N, N], row by row.

    Raises
    ------
    ValueError
        When the matrix is not symmetric to the bit: its upper half would be lost.
    """
    if matrix.ndim != 2 or not np.array_equal(matrix, matrix.T):
        raise ValueError("a triangle holds symmetric matrices only")
    return matrix[np.tril_indices(matrix.shape[0])]


def from_triangle(packed: Matrix) -> Matrix:
    """Return the symmetric matrix [N, N] of its triangle [N (N + 1) / 2]."""
    nodes = (math.isqrt(8 * packed.size + 1) - 1) // 2
    matrix = np.zeros((nodes, nodes), dtype=packed.dtype)
    rows, columns = np.tril_indices(nodes)
    matrix[rows, columns] = packed
    matrix[columns, rows] = packed
    return matrix


def to_zvc(matrix: Matrix) -> tuple[npt.NDArray[np.uint8], Matrix]:
    """Return a bitmap of one bit per element, 8 to a byte, and the non-zeros in order."""
    present = matrix.ravel() != 0
    return np.packbits(present), matrix.ravel()[present]


def from_zvc(bitmap: npt.NDArray[np.uint8], values: Matrix, shape: tuple[int, ...]) -> Matrix:
    """Return the array that `to_zvc` compressed; -0.0 comes back as 0.0."""
    array = np.zeros(int(np.prod(shape)), dtype=values.dtype)
    array[np.unpackbits(bitmap, count=array.size).astype(bool)] = values
    return array.reshape(shape)


def stored(matrix: Matrix, triangle: bool, compressed: bool) -> Matrix:
    """Return a matrix after it was stored and read again."""
    if triangle:
        return from_triangle(to_triangle(matrix))
    return from_zvc(*to_zvc(matrix), matrix.shape) if compressed else matrix


_MATRIX = {
    **dict.fromkeys(EQUATION_1, "norm"),
    "gcn": "norm",
    "gat": "adjacency",
    "sage-mean": "mean",
    "sage-concat": "mean",
}
"""Kind of matrix that a model multiplies by or masks with."""


@dataclass(frozen=True, slots=True)
class ModelInstance:
    """A module with its inputs."""

    module: nn.Module
    inputs: Mapping[str, Tensor]  # inputs by name, in the order of `forward`, with real values


def trainable(spec: GnnSpec, data: GraphData, seed: int) -> nn.Module:
    """Return the model in the form that trains fastest; every form has the same parameters."""
    torch.manual_seed(seed)
    edges, loops = _edges_of(spec, data, seed)
    if spec.model in ("gcn", "sage-mean", *EQUATION_1):
        matrix = views.dense_adjacency(edges, data.nodes, loops, _MATRIX[spec.model])
        view = views.MatrixView({_MATRIX[spec.model]: matrix}, constant=True).sparse()
        return _module(spec, data, view, "select", "pairs")
    return _module(spec, data, views.EdgeView(edges, data.nodes, loops), "select", "pairs")


def model_instance(
    spec: GnnSpec, graph: Graph, stack: Stack, data: GraphData, seed: int = 0
) -> ModelInstance:
    """Return the floating-point module of a graph."""
    capacity = graph.tensors["x"].shape[0]
    masking = _form_of(stack, "masking", "select")
    if masking == "arithmetic" and spec.model not in ("gat", "sage-max"):
        masking = "select"
    view = _view_of(spec, stack, data, capacity, masking, seed)
    features = np.zeros((capacity, data.features), dtype=np.float32)
    features[: data.nodes] = data.x
    if annotates(stack, Annotation.COMPRESSED):
        features = stored(features, triangle=False, compressed=True)
    module = _module(spec, data, view, masking, _form_of(stack, "scores", "pairs"))
    return ModelInstance(module, {"x": torch.from_numpy(features), **view.example})


def _form_of(stack: Stack, key: str, default: str) -> str:
    """Return the form of the masking or the scores: that of the last technique with one."""
    form = default
    for entry in stack:
        technique = entry.technique
        forms = technique.forms(entry.parameters) if technique.forms is not None else {}
        form = forms.get(key, form)
        known = technique.exact or technique.forms or technique.precision or technique.annotation
        if not known:
            raise IllegalTechniqueError(technique.name, "it changes numbers, and does not say in which form")
    return form


def annotates(stack: Stack, annotation: Annotation) -> bool:
    """Whether a technique of a stack annotates tensors in a way."""
    return any(entry.technique.annotation is annotation for entry in stack)


def _module(spec: GnnSpec, data: GraphData, view: Any, masking: str, scores: str) -> nn.Module:
    if spec.model == "gcn" or spec.model in EQUATION_1:
        return propagation(spec, data, view)
    widths = spec.widths(data.features, data.classes)
    if spec.model == "gat":
        return GAT(widths, spec.heads, view, masking, scores)
    return SAGE(widths, view, spec.model == "sage-max", spec.order == "aggregate_first", masking)


def propagation(spec: GnnSpec, data: GraphData, view: Any) -> Propagation:
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
    return Propagation(
        layers,
        view,
        spec.model == "sage-concat",
        columns,
        transform_first,
        jumping=spec.model == "jk",
        normalise=spec.normalise,
    )


def _edges_of(spec: GnnSpec, data: GraphData, seed: int) -> tuple[views.Nodes, bool]:
    """Return the edges of a model, and whether each node has one to itself."""
    if spec.model in EQUATION_1:
        return data.edge_index, spec.model != "sage-concat"
    if spec.model in ("gcn", "gat"):
        return data.edge_index, True
    return views.sampled_edge_index(
        *views.sample_neighbours(data.edge_index, data.nodes, spec.neighbours, seed)
    ), False


def _view_of(
    spec: GnnSpec, stack: Stack, data: GraphData, capacity: int, masking: str, seed: int
) -> views.View:
    edge_data = {entry.technique.edges for entry in stack}
    from_host = bool({EdgeData.CONSTANT, EdgeData.INPUT} & edge_data)
    constant, ready = EdgeData.CONSTANT in edge_data, EdgeData.WEIGHTS in edge_data
    weighted = ready or EdgeData.IN_GRAPH in edge_data
    if from_host and spec.model != "sage-max":
        edges, loops = _edges_of(spec, data, seed)
        matrix = views.dense_adjacency(edges, data.nodes, loops, _MATRIX[spec.model], capacity)
        return views.MatrixView(_finished(spec, stack, matrix, masking), constant)
    if spec.form == "gathered":  # an added node counts itself once, as a node without neighbours does
        rows = views.sample_neighbours(data.edge_index, data.nodes, spec.neighbours, seed, capacity)
        if from_host:
            return views.FinishedRows(*rows, masking, constant)
        return (
            views.GatheredMatrix(*rows, ready)
            if spec.model == "sage-mean" and weighted
            else views.GatheredView(*rows)
        )
    edges, loops = _edges_of(spec, data, seed)
    if ready or (weighted and spec.model in _MATRIX and spec.model != "gat"):
        return views.WeightedMatrix(edges, data.nodes, loops, _MATRIX[spec.model], ready, capacity)
    if spec.form in ("edges", "csr"):
        return views.EdgeView(edges, data.nodes, loops, capacity)
    return views.InGraphMatrix(edges, data.nodes, loops, _MATRIX[spec.model], capacity)


def _finished(spec: GnnSpec, stack: Stack, matrix: Matrix, masking: str) -> dict[str, Matrix]:
    """Return the matrices that the host prepares: the norm, or the masks of a masking."""
    compressed = annotates(stack, Annotation.COMPRESSED)
    if spec.model != "gat":
        return {"norm": stored(matrix, annotates(stack, Annotation.TRIANGLE), compressed)}
    negative = np.asarray((matrix - 1.0) * views.LOWERED, dtype=np.float32)
    masks = {"mask": matrix, "mask_negative": negative}
    if masking != "arithmetic":
        del masks["mask_negative" if masking == "select" else "mask"]
    return {name: stored(mask, triangle=False, compressed=compressed) for name, mask in masks.items()}


def module_of(spec: GnnSpec, data: GraphData) -> Propagation | GAT:
    """Return a workload's module on the whole graph: gat along edges, others with a sparse matrix."""
    if spec.model == "gat":
        widths = spec.widths(data.features, data.classes)
        return GAT(widths, spec.heads, views.EdgeView(data.edge_index, data.nodes, add_loops=True))
    mean = spec.model == "sage-concat"
    kind = "mean" if mean else "norm"
    matrix = views.dense_adjacency(data.edge_index, data.nodes, not mean, kind)
    return propagation(spec, data, views.MatrixView({kind: matrix}, constant=True).sparse())
