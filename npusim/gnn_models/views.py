"""Views of a graph: edges, a matrix computed from them, finished matrices, sampled neighbours.

Every view computes the same sums, so all forms of a model share their trained parameters. Tensors of a view
are not trained and are in no state dictionary. A view's `example` names the inputs of the graph and gives a
value of each, to trace and to run the model with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

ABSENT = -1e4
"""Stands for a missing neighbour in a maximum."""
LOWERED = 1e4
"""Arithmetic masking lowers absent scores by this: fp16 ends at 65504."""
Nodes = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]


class View(nn.Module, ABC):
    """Inputs and constants through which a model reads its graph.

    `values` are inputs in the order of `forward`, after the features, or constants of the model.
    """

    def __init__(self, values: Mapping[str, npt.NDArray[Any]], constant: bool = False) -> None:
        super().__init__()
        tensors = {name: torch.from_numpy(value) for name, value in values.items()}
        self.example: dict[str, Tensor] = {} if constant else tensors
        self.held = tuple(values) if constant else ()
        for name in self.held:
            self.hold(name, tensors[name])

    def hold(self, name: str, value: Tensor) -> None:
        """Keep a tensor that moves with the model but is not trained or stored with the parameters."""
        self.register_buffer(name, value, persistent=False)

    def tensors(self, graph: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the values, whether they are constants or inputs."""
        return tuple(self.get_buffer(name) for name in self.held) if self.held else graph

    @abstractmethod
    def operands(self, how: str, *graph: Tensor) -> tuple[Tensor, ...]:
        """Return what `aggregate` reads beside the features, from the view's inputs.

        `how` is `mean`, `norm` (GCN's weights), or the masking of a maximum as for `masked_maximum`.
        """

    @abstractmethod
    def aggregate(self, how: str, operands: tuple[Tensor, ...], x: Tensor) -> Tensor:
        """Return the aggregated features of each node's neighbours, [N, F]."""


class GraphMatrix(View):
    """A graph that the layers read as a matrix [N, N]."""

    @abstractmethod
    def matrix(self, *graph: Tensor) -> Tensor:
        """Return the matrix [N, N]."""

    def operands(self, how: str, *graph: Tensor) -> tuple[Tensor, ...]:
        """Return the matrix; it holds the weights of `how`."""
        return (self.matrix(*graph),)

    def aggregate(self, how: str, operands: tuple[Tensor, ...], x: Tensor) -> Tensor:
        """Return the product with the matrix, [N, F]."""
        both_sparse = x.is_sparse and operands[0].is_sparse
        return torch.sparse.mm(operands[0], x) if both_sparse else torch.matmul(operands[0], x)


class EdgeView(View):
    """The graph as `edge_index` [2, E], source above target; the model may add self-loops.

    Parameters
    ----------
    capacity : int, optional
        Nodes the model is compiled for (NodePad); added nodes have no edges, not even to themselves.
    """

    loops: Tensor

    def __init__(self, edge_index: Nodes, nodes: int, add_loops: bool, capacity: int | None = None) -> None:
        super().__init__({"edge_index": edge_index})
        self.nodes = capacity if capacity is not None else nodes
        self.add_loops = add_loops
        self.hold("loops", torch.arange(nodes).repeat(2, 1))
        self.hold("ones", torch.ones(int(edge_index.shape[1]) + (nodes if add_loops else 0)))

    def prepare(self, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """Return source and target of each edge, [E] each."""
        if self.add_loops:
            edge_index = torch.cat([edge_index, self.loops], dim=1)
        return edge_index[0], edge_index[1]

    def operands(self, how: str, *graph: Tensor) -> tuple[Tensor, ...]:
        """Return source and target of each edge, [E] each, and divisors [N, 1] or weights [E, 1]."""
        source, target = self.prepare(*graph)
        if how == "mean":
            return source, target, self.degree(target).clamp(min=1.0).view(-1, 1)
        if how == "norm":
            return source, target, self.weights(source, target, how).unsqueeze(1)
        return source, target

    def aggregate(self, how: str, operands: tuple[Tensor, ...], x: Tensor) -> Tensor:
        """Return the combined messages of each node, [N, F]."""
        messages = x.index_select(0, operands[0])
        if how == "norm":
            return scatter_rows(messages * operands[2], operands[1], self.nodes)
        if how == "mean":
            return scatter_rows(messages, operands[1], self.nodes) / operands[2]
        return scatter_rows(messages, operands[1], self.nodes, "max")

    def degree(self, target: Tensor) -> Tensor:
        """Return the number of edges that end in each node, [N]."""
        return scatter_rows(self.get_buffer("ones"), target, self.nodes)

    def weights(self, source: Tensor, target: Tensor, kind: str) -> Tensor:
        """Return the normalised weight of each edge, [E]: `mean` or `norm`."""
        degree = self.degree(target)
        if kind == "mean":
            return degree.reciprocal().index_select(0, target)
        factor = degree.pow(-0.5)
        return factor.index_select(0, source) * factor.index_select(0, target)

    def scattered(self, source: Tensor, target: Tensor, values: Tensor) -> Tensor:
        """Return a matrix [N, N] with a value for each edge."""
        flat = torch.zeros(self.nodes * self.nodes).scatter(0, target * self.nodes + source, values)
        return flat.reshape(self.nodes, self.nodes)


class InGraphMatrix(GraphMatrix, EdgeView):
    """The graph as `edge_index`, from which the model computes a dense matrix [N, N].

    Parameters
    ----------
    kind : str
        `adjacency`: 0 and 1; `norm`: d^-1/2 A d^-1/2; `mean`: each row divided by its sum.
    """

    def __init__(
        self, edge_index: Nodes, nodes: int, add_loops: bool, kind: str, capacity: int | None = None
    ) -> None:
        super().__init__(edge_index, nodes, add_loops, capacity)
        self.kind = kind

    def matrix(self, *graph: Tensor) -> Tensor:
        """Return the matrix [N, N]."""
        adjacency = self.scattered(*self.prepare(*graph), self.get_buffer("ones"))
        if self.kind == "norm":
            factor = adjacency.sum(dim=1).pow(-0.5)
            return adjacency * factor.unsqueeze(1) * factor.unsqueeze(0)
        if self.kind == "mean":
            return adjacency / adjacency.sum(dim=1, keepdim=True)
        return adjacency


class WeightedMatrix(GraphMatrix, EdgeView):
    """The graph as edges whose weights the model scatters into a matrix.

    Parameters
    ----------
    ready : bool
        Whether the weights are an input `edge_norm` (PreG); otherwise the model computes them (EffOp).
    """

    def __init__(
        self,
        edge_index: Nodes,
        nodes: int,
        add_loops: bool,
        kind: str,
        ready: bool,
        capacity: int | None = None,
    ) -> None:
        super().__init__(edge_index, nodes, add_loops, capacity)
        self.kind = kind
        if ready:
            with torch.no_grad():
                ends = self.prepare(self.example["edge_index"])
                self.example["edge_norm"] = self.weights(*ends, kind)

    def matrix(self, *graph: Tensor) -> Tensor:
        """Return the matrix [N, N]."""
        source, target = self.prepare(graph[0])
        weights = graph[1] if len(graph) > 1 else self.weights(source, target, self.kind)
        return self.scattered(source, target, weights)


class MatrixView(GraphMatrix):
    """The graph as finished matrices [N, N]: constants of the model (StaGr) or inputs (GrAd)."""

    def sparse(self) -> MatrixView:
        """Return the view with its constants as sparse matrices, which train faster."""
        for name in self.held:
            self.hold(name, self.get_buffer(name).to_sparse())
        return self

    def matrix(self, *graph: Tensor) -> Tensor:
        """Return the first matrix [N, N]."""
        return self.tensors(graph)[0]


def masked_maximum(gathered: Tensor, masks: tuple[Tensor, ...], masking: str) -> Tensor:
    """Return the maximum over neighbours, [N, F].

    Parameters
    ----------
    gathered : Tensor
        Features of the neighbours, [N, K, F].
    masks : tuple of Tensor
        [N, K, 1] each: the condition (`select`), the 0/1 mask and the summand (`arithmetic`), or the
        0/1 mask.
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


class Rows(View):
    """Sampled neighbours side by side, [N, K]."""

    def aggregate(self, how: str, operands: tuple[Tensor, ...], x: Tensor) -> Tensor:
        """Return the mean or the masked maximum of the neighbours, [N, F]."""
        gathered = x[operands[0]]
        if how == "mean":
            return (gathered * operands[1]).sum(dim=1) / operands[2]
        return masked_maximum(gathered, operands[1:], how)


class GatheredView(Rows):
    """The graph as `neighbours` [N, K] and `mask` [N, K], 0 where a node has fewer than K."""

    def __init__(self, neighbours: Nodes, mask: Weights) -> None:
        super().__init__({"neighbours": neighbours, "mask": mask})

    def operands(self, how: str, *graph: Tensor) -> tuple[Tensor, ...]:
        """Return node numbers [N, K] and the masks [N, K, 1] that a masking, or the mean, takes."""
        neighbours, mask = graph
        deep = mask.unsqueeze(2)
        if how == "mean":
            return neighbours, deep, mask.sum(dim=1, keepdim=True)
        if how == "select":
            return neighbours, deep > 0
        return (neighbours, deep, (deep - 1.0) * LOWERED) if how == "arithmetic" else (neighbours, deep)


class FinishedRows(Rows):
    """Sampled neighbours with masks from the host: constants of the model (StaGr) or inputs (GrAd).

    The values are `neighbours` [N, K] in 32 bits and `mask` [N, K, 1], with EffOp also the summand.
    """

    def __init__(self, neighbours: Nodes, mask: Weights, masking: str, constant: bool) -> None:
        deep = mask[:, :, None]
        finished = {"neighbours": neighbours.astype(np.int32), "mask": deep}
        if masking == "arithmetic":
            finished["mask_negative"] = ((deep - 1.0) * LOWERED).astype(np.float32)
        super().__init__(finished, constant)

    def operands(self, how: str, *graph: Tensor) -> tuple[Tensor, ...]:
        """Return node numbers [N, K] and the masks [N, K, 1] that a masking takes."""
        neighbours, *masks = self.tensors(graph)
        return neighbours, *([masks[0] > 0] if how == "select" else masks)


class GatheredMatrix(GraphMatrix):
    """Sampled neighbours whose weights the model scatters into a matrix [N, N] for the mean.

    Parameters
    ----------
    ready : bool
        Whether the weights arrive divided by their number, as `edge_norm` [N, K] (PreG); otherwise the model
        divides (EffOp).
    """

    def __init__(self, neighbours: Nodes, mask: Weights, ready: bool) -> None:
        norm = np.asarray(mask / mask.sum(axis=1, keepdims=True), dtype=np.float32)
        super().__init__({"neighbours": neighbours, **({"edge_norm": norm} if ready else {"mask": mask})})
        self.ready = ready

    def matrix(self, *graph: Tensor) -> Tensor:
        """Return the matrix [N, N]."""
        neighbours, weights = graph
        blank = torch.zeros(neighbours.shape[0], neighbours.shape[0])
        matrix = blank.scatter_add(1, neighbours, weights)
        return matrix if self.ready else matrix / weights.sum(dim=1, keepdim=True)


def scatter_rows(messages: Tensor, target: Tensor, nodes: int, reduce: str = "sum") -> Tensor:
    """Combine messages [E, ...] at their targets, [nodes, ...]; a node without messages gets 0."""
    blank = torch.zeros(nodes, *messages.shape[1:])
    if messages.dim() == 1:
        return blank.scatter_add(0, target, messages)
    index = target.view(-1, *(1,) * (messages.dim() - 1)).expand(messages.shape)
    if reduce == "max":
        return blank.scatter_reduce(0, index, messages, "amax", include_self=False)
    return blank.scatter_add(0, index, messages)


def dense_adjacency(
    edge_index: Nodes,
    nodes: int,
    loops: bool,
    kind: str,
    capacity: int | None = None,
    padding: str = "zeros",
) -> Weights:
    """Return the matrix that the host prepares, [capacity, capacity].

    `loops` gives each node an edge to itself. `kind` is `adjacency`, `norm` or `mean`, as for
    `InGraphMatrix`. Edges of an added node, by `padding`: `zeros`, none, as in GraNNite's text; `loops`, one
    to itself, as in its authors' program.
    """
    size = capacity if capacity is not None else nodes
    matrix = np.zeros((size, size), dtype=np.float32)
    matrix[edge_index[1], edge_index[0]] = 1.0
    if loops:
        matrix[np.arange(nodes), np.arange(nodes)] = 1.0
    if padding == "loops":
        matrix[np.arange(nodes, size), np.arange(nodes, size)] = 1.0
    degree = np.maximum(matrix.sum(axis=1), 1.0)
    if kind == "norm":
        factor = degree**-0.5
        return np.asarray(matrix * factor[:, None] * factor[None, :], dtype=np.float32)
    return np.asarray(matrix / degree[:, None], dtype=np.float32) if kind == "mean" else matrix


def sample_neighbours(
    edge_index: Nodes, nodes: int, count: int, seed: int, capacity: int | None = None
) -> tuple[Nodes, Weights]:
    """Draw up to `count` neighbours of each node without replacement, from edges [2, E] (source, target).

    Returns node numbers [capacity, count], the node itself where there is no further neighbour, and the mask,
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


def sampled_edge_index(neighbours: Nodes, mask: Weights) -> Nodes:
    """Return the result of `sample_neighbours` as edges [2, E]."""
    target, slot = np.nonzero(mask)
    return np.stack([neighbours[target, slot], target]).astype(np.int64)
