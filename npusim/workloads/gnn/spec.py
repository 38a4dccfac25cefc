"""Keys of a workload file of kind `gnn`: network, data graph, form, kept channels and batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
from pydantic import Field, field_validator, model_validator

from npusim.config import Section
from npusim.errors import ConfigError
from npusim.graph import GraphStructure
from npusim.ops import DType
from npusim.units import refuse
from npusim.workloads.spec import WorkloadSpec, default_of_model

Channels = Annotated[int, Field(ge=1, le=1_000_000)]
Neighbours = Annotated[int, Field(ge=1, le=1_000_000)]
Roots = Annotated[int, Field(ge=1, le=1_000_000_000)]


class BranchChannels(Section):
    """A branch of a layer: A^order h W."""

    order: Annotated[int, Field(ge=0, le=64)]
    """Power of the normalised adjacency; 0: the node's own features."""
    inputs: Channels
    """Rows of the branch's weight: input channels that it reads."""
    outputs: Channels
    """Columns of the branch's weight: channels that it puts out."""


class Pruning(Section):
    """Channel pruning by budget (GCNP, section 3.3): how many channels each layer keeps."""

    budget: Annotated[float, Field(gt=1.0, le=1e6)]
    """How many times fewer channels: 4 keeps a quarter of them."""
    scheme: Literal["full", "batched"] = "full"
    """`full`: inputs of layers 2 and on; `batched`: of layer 2, and of layer 1's neighbours' branch."""
    own_share: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None
    """Share of a layer's kept channels in its own-features branch, which weights decide; None: evenly."""
    multiple: Annotated[int, Field(ge=1, le=4096)] = 1
    """A branch keeps multiples of this many channels; 16 is the width of the MAC grid."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: branches side by side or averaged."""

    branches: tuple[BranchChannels, ...]
    inputs: int
    """Channels that the layer before hands on."""
    average: bool = False
    """Whether branches are averaged; else they lie side by side."""

    @property
    def outputs(self) -> int:
        """Channels that it hands on."""
        widths = [branch.outputs for branch in self.branches]
        return widths[0] if self.average else sum(widths)

    @property
    def propagates(self) -> bool:
        """Whether it aggregates from neighbours; a dense layer does not."""
        return any(branch.order for branch in self.branches)

    @property
    def parameters(self) -> int:
        """Elements of its weights."""
        return sum(branch.inputs * branch.outputs for branch in self.branches)

    def changed(self, key: str, sizes: Sequence[int]) -> Layer:
        """Return the layer with other `inputs` or `outputs` of its branches."""
        pairs = zip(self.branches, sizes, strict=True)
        return replace(self, branches=tuple(b.model_copy(update={key: size}) for b, size in pairs))

    def reading(self, inputs: int) -> Layer:
        """Return the layer where each branch reads `inputs` channels."""
        return replace(self.changed("inputs", [inputs] * len(self.branches)), inputs=inputs)


def attention_layers(widths: Sequence[tuple[int, int]], heads: int = 1) -> tuple[Layer, ...]:
    """Return (inputs, outputs) of each layer as layers with a branch a head; the last layer has one head."""
    layers = []
    for i, (inputs, outputs) in enumerate(widths):
        count = heads if i + 1 < len(widths) else 1
        branch = BranchChannels(order=1, inputs=inputs, outputs=outputs // count)
        layers.append(Layer((branch,) * count, inputs))
    return tuple(layers)


def pruned(layers: Sequence[Layer], pruning: Pruning, jumping: bool = False) -> tuple[Layer, ...]:
    """Return the layers with the channels that a budget leaves, spread evenly over the branches.

    In scheme `batched` the neighbours' branch of layer 1 keeps at least as many attributes as it puts out:
    fewer would bound the rank of its result, and save less than they cost.
    """
    check_budget(layers, pruning)
    last, first = len(layers) - 1, layers[0]
    kept = list(layers)
    for i in range(last if pruning.scheme == "full" else 1):
        kept[i] = kept[i].changed("outputs", _kept_outputs(kept[i], pruning))
    for i in range(1, last + 1):
        before = kept[:i] if jumping and i == last else kept[i - 1 : i]
        kept[i] = kept[i].reading(sum(layer.outputs for layer in before))
    if pruning.scheme == "batched":
        least = kept_channels(first.inputs, pruning)
        read = [
            min(first.inputs, max(least, branch.outputs)) if branch.order else branch.inputs
            for branch in kept[0].branches
        ]
        kept[0] = kept[0].changed("inputs", read)
    return tuple(kept)


def _kept_outputs(layer: Layer, pruning: Pruning) -> list[int]:
    """Return how many channels each branch of a layer keeps."""
    even = [kept_channels(branch.outputs, pruning) for branch in layer.branches]
    if pruning.own_share is None or len(even) != 2:
        return even
    widths = [branch.outputs for branch in layer.branches]
    least, most = max(1, sum(even) - widths[1]), min(widths[0], sum(even) - 1)
    own = min(max(round(sum(even) * pruning.own_share), least), most)
    return [own, sum(even) - own]


def given(layers: Sequence[Layer], channels: Sequence[Sequence[BranchChannels]]) -> tuple[Layer, ...]:
    """Return the layers with the channels that a pruning wrote down, a `ConfigError` where they misfit."""
    key = "workload.channels"
    if len(channels) != len(layers):
        raise ConfigError(f"{len(channels)} layers", key=key, allowed=f"{len(layers)}, as the network has")
    kept: list[Layer] = []
    for i, (layer, branches) in enumerate(zip(layers, channels, strict=True)):
        orders = [branch.order for branch in layer.branches]
        if [branch.order for branch in branches] != orders:
            raise ConfigError(f"layer {i + 1}", key=key, allowed=f"branches of orders {orders}")
        inputs = handed = layer.inputs
        if i:
            jumps = layer.inputs != layers[i - 1].outputs  # it reads all layers side by side
            inputs = max(branch.inputs for branch in branches)
            handed = sum(before.outputs for before in (kept if jumps else kept[-1:]))
        if any(branch.inputs > handed for branch in branches):
            allowed = f"at most the {handed} channels that reach it"
            raise ConfigError(f"layer {i + 1} with {inputs} inputs", key=key, allowed=allowed)
        kept.append(replace(layer, branches=tuple(branches), inputs=handed))
    return tuple(kept)


def check_budget(layers: Sequence[Layer], pruning: Pruning) -> None:
    """Refuse a budget that leaves a branch no channel, or a scheme that the network has no branch for."""
    batched, budget = pruning.scheme == "batched", f"{pruning.budget:g}"
    if len(layers) < 2:
        _refuse("pruning.budget", budget, "no pruning of a network of one layer: attributes are kept")
    if batched and not any(branch.order for branch in layers[0].branches):
        _refuse("pruning.scheme", "batched", "full: layer 1 has no neighbours' branch")
    if batched and len(layers) < 3:
        allowed = "full: layers 1 and 2 of three or more, the classifier included"
        _refuse("pruning.scheme", "batched", allowed)
    most = min(branch.outputs for layer in layers[:-1] for branch in layer.branches)
    if pruning.budget > most:
        _refuse("pruning.budget", budget, f"at most {most}: a branch has {most} channels, and needs one")


def _refuse(key: str, value: str, allowed: str) -> NoReturn:
    raise ConfigError(f"`{value}`", key=f"workload.{key}", allowed=allowed)


def kept_channels(channels: int, pruning: Pruning) -> int:
    """Return how many of a branch's channels a budget leaves, rounded up to the pruning's multiple."""
    kept = max(1, round(channels / pruning.budget))
    return min(channels, -(-kept // pruning.multiple) * pruning.multiple)


class Batch(Section):
    """Inference of a few target nodes (roots) from their neighbourhoods."""

    roots: Roots
    """Target nodes of a batch."""
    hop2: Neighbours = 32
    """Most neighbours sampled of a node that is no root; a root keeps all."""
    stored: Annotated[float, Field(ge=0.0, le=1.0)] | Literal["visited", "training"] = 0.0
    """Share of the roots' neighbours with stored hidden features, or whose share the data set states."""
    counted: Literal["each", "distinct"] = "each"
    """`each`: neighbourhoods one by one (GCNP, Eq. 3); `distinct`: shared nodes once, as NeighborLoader."""
    fetched: bool = False
    """Whether layer 1 gathers a row of attributes for each edge first, as PyTorch's loaders do."""
    capacity: Roots | None = None
    """Supporting nodes that the network is compiled for, roots included; None: as many as a batch has."""


@dataclass(frozen=True, slots=True)
class Support:
    """Nodes and edges of a batch, by layer from the input on."""

    nodes: tuple[int, ...]
    """Nodes whose features each layer reads, then the roots, (layers + 1,)."""
    edges: tuple[int, ...]
    """Edges along which each layer aggregates."""
    stored: int
    """Neighbours of the roots whose hidden features are read from the store."""
    padded: int
    """Rows that only fill the capacity."""


def support_of(batch: Batch, structure: GraphStructure, layers: int) -> Support:
    """Count the nodes that support a batch.

    Parameters
    ----------
    layers : int
        Layers that aggregate from neighbours; the last one's results are the roots.

    Raises
    ------
    ConfigError
        Where the batch is larger than the graph, the capacity smaller than the batch, or `stored` needs a
        number that the data set does not have.
    """
    if batch.roots > structure.nodes:
        _refuse("batch.roots", f"{batch.roots}", f"at most {structure.nodes}, the nodes of the graph")
    share = stored_share(batch, structure)
    count = _distinct if batch.counted == "distinct" else _each
    wanted, edges, stored = count(batch, structure, layers, share)
    nodes = tuple(wanted) if batch.capacity is None else _padded(batch, batch.capacity, wanted)
    return Support(nodes, tuple(round(e) for e in reversed(edges)), stored, nodes[0] - wanted[0])


_Counts = tuple[list[int], list[float], int]
"""Nodes that each layer reads, edges from the last layer on, and stored rows."""


def _each(batch: Batch, structure: GraphStructure, layers: int, share: float) -> _Counts:
    """Return the counts of a batch where neighbourhoods of different roots are counted separately."""
    degree = root_degree(structure)
    fanout = neighbour_degree(structure, batch.hop2)
    computed, edges = [float(batch.roots)], [batch.roots * degree]
    fresh = batch.roots * degree * (1.0 - share)  # neighbours whose own neighbours are needed
    for _ in range(1, layers):
        computed.append(computed[-1] + fresh)
        edges.append(edges[0] + (computed[-1] - batch.roots) * fanout)
        fresh *= fanout
    wanted = [min(structure.nodes, round(n)) for n in (batch.roots + edges[-1], *reversed(computed))]
    return wanted, edges, round(edges[0] * share) if layers > 1 else 0


def _distinct(batch: Batch, structure: GraphStructure, layers: int, share: float) -> _Counts:
    """Return the counts of a batch where a node that several neighbourhoods share counts once."""
    counts = np.array(structure.degree_histogram, float)
    degrees = np.arange(len(counts), dtype=float)
    if not len(counts):
        degrees, counts = np.array([structure.edges / structure.nodes]), np.array([float(structure.nodes)])
    ends = degrees * counts / max(1.0, float((degrees * counts).sum()))
    sampled_share = np.minimum(1.0, batch.hop2 / np.maximum(degrees, 1.0))
    root = batch.roots / structure.nodes
    leads = root  # the chance that a neighbour leads to a node: that it is a root, or was expanded
    computed, edges = [float(batch.roots)], [batch.roots * root_degree(structure)]
    for depth in range(layers):
        visited = (1.0 - root) * (1.0 - (1.0 - leads) ** degrees) * counts  # by degree, roots left out
        if depth + 1 < layers:
            computed.append(batch.roots + (1.0 - share) * float(visited.sum()))
            edges.append(edges[0] + (1.0 - share) * float((visited * degrees * sampled_share).sum()))
        reached = float(visited.sum())
        inner = 1.0 - (1.0 - leads) ** np.maximum(degrees - 1.0, 0.0)
        leads = root + (1.0 - root) * (1.0 - share) * float((ends * inner * sampled_share).sum())
    first = float(((1.0 - root) * (1.0 - (1.0 - root) ** degrees) * counts).sum())
    wanted = [min(structure.nodes, round(n)) for n in (batch.roots + reached, *reversed(computed))]
    return wanted, edges, round(share * first) if layers > 1 else 0


def _padded(batch: Batch, capacity: int, wanted: list[int]) -> tuple[int, ...]:
    """Return the nodes of each layer where the input has room for `capacity` of them."""
    if capacity < batch.roots:
        _refuse("batch.capacity", f"{capacity}", f"at least the {batch.roots} roots")
    if capacity < wanted[0]:
        allowed = f"at least {wanted[0]}: so many nodes support a mean batch of {batch.roots} roots"
        _refuse("batch.capacity", f"{capacity}", allowed)
    ratio = capacity / wanted[0]
    return (capacity, *(min(capacity, math.ceil(n * ratio)) for n in wanted[1:-1]), wanted[-1])


def stored_share(batch: Batch, structure: GraphStructure) -> float:
    """Return the share of the roots' neighbours whose hidden features are stored."""
    if not isinstance(batch.stored, str):
        return float(batch.stored)
    key = "training_neighbours" if batch.stored == "training" else "unvisited_neighbours"
    known: float | None = getattr(structure, key)
    if known is None:
        _refuse("batch.stored", batch.stored, f"a share from 0 to 1: the data set does not say `{key}`")
    return known if batch.stored == "training" else 1.0 - min(1.0, known / root_degree(structure))


def root_degree(structure: GraphStructure) -> float:
    """Return the mean number of neighbours of a target node."""
    return structure.edges / structure.nodes * structure.test_degree_ratio


def neighbour_degree(structure: GraphStructure, most: int) -> float:
    """Return the mean number of sampled neighbours, at most `most`, of a node that an edge leads to."""
    histogram = structure.degree_histogram
    if not histogram:
        return float(most)
    ends = sum(degree * count for degree, count in enumerate(histogram))
    sampled = sum(degree * count * min(degree, most) for degree, count in enumerate(histogram))
    return sampled / ends if ends else 0.0


def overflow_share(batch: Batch, structure: GraphStructure, layers: int) -> float | None:
    """Return the share of batches that need more nodes than the capacity.

    The number of nodes is a sum over independent roots, so it is about normal (central limit theorem). None
    without a capacity, or where the spread of degrees is not known.
    """
    if batch.capacity is None or not structure.degree_histogram:
        return None
    histogram, nodes = structure.degree_histogram, structure.nodes
    fanout = (1.0 + neighbour_degree(structure, batch.hop2)) ** (layers - 1)
    mean = sum(k * n for k, n in enumerate(histogram)) / nodes
    spread = sum((k - mean) ** 2 * n for k, n in enumerate(histogram)) / nodes
    expected = batch.roots * (1.0 + mean * fanout)
    deviation = math.sqrt(batch.roots * spread) * fanout
    if batch.capacity >= nodes:
        return 0.0
    if deviation == 0.0:
        return float(expected > batch.capacity)
    return 0.5 * math.erfc((batch.capacity - expected) / deviation / math.sqrt(2.0))


Model = Literal["gcn", "gat", "sage-mean", "sage-max", "sage-concat", "mixhop", "jk", "sign", "sgc"]
Form = Literal["edges", "dense", "gathered", "csr"]
Order = Literal["transform_first", "aggregate_first"]

EQUATION_1: tuple[Model, ...] = ("sage-concat", "mixhop", "jk", "sign", "sgc")
"""Models that are built by Eq. 1 of GCNP, with `hidden` channels a branch."""
_ONE_LAYER = ("sign", "sgc")
_WITH_POWER = ("mixhop", "sign", "sgc")
_POWER = 2

FORMS: dict[str, tuple[Form, ...]] = {
    "gcn": ("edges", "dense", "csr"),
    "gat": ("dense", "edges", "csr"),
    "sage-mean": ("gathered", "edges", "dense", "csr"),
    "sage-max": ("gathered", "edges"),  # a dense one would need a tensor [N, N, F]: 21 GB on Cora
    **dict.fromkeys(EQUATION_1, ("edges", "dense", "csr")),
}
"""Forms that a model can take; the first runs out of the box."""
# SAGE aggregates first, as SAGEConv of PyTorch Geometric does. A mean of transformed rows is the transformed
# mean, so the other order is the same network there; of a maximum it is another. GCN and GAT are defined by
# their transformed features.
_ORDERS: dict[str, tuple[Order, ...]] = {
    "gcn": ("transform_first", "aggregate_first"),
    "gat": ("transform_first",),
    **dict.fromkeys(("sage-mean", "sage-max", *EQUATION_1), ("aggregate_first", "transform_first")),
}
_OWNERS: dict[str, tuple[str, ...]] = {
    "power": _WITH_POWER,
    "normalise": ("sage-concat",),
    "branch_norm": ("sage-concat",),
    "preprocessed": _ONE_LAYER,
    "pruning": ("gcn", "gat", *EQUATION_1),
    "channels": EQUATION_1,
    "batch": ("sage-concat",),
}


class GnnSpec(WorkloadSpec):
    """A network on a data graph.

    sage-mean and sage-max are GraphSAGE with the mean or maximum of sampled neighbours, added to the node's
    own branch; sage-concat has own and neighbours' branch side by side, all neighbours and a dense
    classifier; jk is jumping knowledge over graph convolutions.

    Form `edges` aggregates with Gather and Scatter along the edges (default of gcn); `dense` makes a dense
    matrix [N, N] of the edges in the graph and multiplies it (gat); `csr` has a matrix in compressed rows, on
    a CPU or GPU; `gathered` has the sampled neighbours as a tensor [N, neighbours, F] (sage).
    """

    kind: Literal["gnn"] = "gnn"
    """Graph neural networks; a file without `kind` is one."""
    model: Model
    """The network: gcn, gat, sage-mean, sage-max; by Eq. 1 of GCNP sage-concat, mixhop, jk, sign or sgc."""
    dataset: str
    """Whose statistics: a shipped name (cora, citeseer) or the path of a YAML file of statistics."""
    precision: Literal["fp16", "bf16", "fp32"] = "fp16"
    """Format of every floating-point tensor; 8-bit integers come from the technique quantgr."""
    layers: Annotated[int, Field(ge=1, le=64)] = 2
    """Layers, without the dense classifier of sage-concat, mixhop, jk and sign; sign and sgc have one."""
    hidden: Annotated[int, Field(ge=1, le=65536)] = 64
    """Features between the layers, all heads together; of models by Eq. 1: of each branch."""
    power: Annotated[int, Field(ge=1, le=16)] | None = None
    """Highest power K of the adjacency (mixhop, sign, sgc); default 2."""
    normalise: bool = False
    """Whether the classifier reads rows of length 1 (sage-concat)."""
    branch_norm: bool = False
    """Whether each branch adds a bias, is activated and then normalised by rows (sage-concat)."""
    preprocessed: bool = False
    """Whether features that do not depend on weights arrive aggregated (sign, sgc)."""
    heads: Annotated[int, Field(ge=1, le=1024)] = 1
    """Attention heads of each layer but the last, which has one (gat); they share `hidden`."""
    neighbours: Neighbours = 10
    """Neighbours that a node aggregates, sampled without replacement (sage)."""
    form: Form = default_of_model({model: forms[0] for model, forms in FORMS.items()})
    """How a layer aggregates: `edges`, `dense`, `csr` or `gathered`. Default: what runs out of the box."""
    order: Order = default_of_model({model: orders[0] for model, orders in _ORDERS.items()})
    """`transform_first` aggregates a layer's output width (gcn, gat), `aggregate_first` its input (sage)."""
    pruning: Pruning | None = None
    """Channel pruning by a budget (models by Eq. 1, gcn, gat); None: every channel is kept."""
    channels: list[list[BranchChannels]] | None = None
    """Channels of each branch of each layer, as `npusim prune` writes them; None: as `pruning` says."""
    batch: Batch | None = None
    """Inference of a batch of target nodes (sage-concat); None: of all nodes."""

    @field_validator("precision", mode="before")
    @classmethod
    def _integers_are_a_technique(cls, value: Any) -> Any:
        if value == "int8":
            refuse("`int8`", "fp16, bf16, fp32; 8-bit integers come from the technique quantgr")
        return value

    @field_validator("form", "order")
    @classmethod
    def _suits_the_model(cls, value: str, info: Any) -> str:
        model = info.data.get("model")
        allowed = (FORMS if info.field_name == "form" else _ORDERS).get(model, (value,))
        if value not in allowed:
            raise ValueError(f"{model} has no {info.field_name} {value!r}; it has {', '.join(allowed)}")
        return value

    @model_validator(mode="after")
    def _keys_suit_the_model(self) -> GnnSpec:
        model = self.model
        if self.heads > 1 and model != "gat":
            refuse(f"`{self.heads}`", f"no heads: {model} has no attention heads, only gat does", at="heads")
        if self.hidden % self.heads:
            refuse(f"`{self.hidden}`", f"a multiple of heads, which is {self.heads}", at="hidden")
        for key, models in _OWNERS.items():
            if getattr(self, key) and model not in models:
                refuse(f"{key} of {model}", f"{key} only of {', '.join(models)}", at=key)
        if self.pruning is not None and self.channels is not None:
            refuse("both `pruning` and `channels`", "one of them", at="channels")
        if model in _ONE_LAYER and self.layers != 1 and "layers" in self.model_fields_set:
            refuse(f"`{self.layers}`", f"1: {model} has one layer", at="layers")
        return self

    def equation_layers(self, features: int, classes: int) -> tuple[Layer, ...]:
        """Return the layers by Eq. 1 for so many features and classes, pruned where the spec says so."""
        highest = (self.power or _POWER) if self.model in _WITH_POWER else 1
        orders = {"jk": (1,), "sgc": (highest,)}.get(self.model, tuple(range(highest + 1)))
        jumping, classifier = self.model == "jk", self.model != "sgc"
        count = 1 if self.model in _ONE_LAYER else self.layers
        layers: list[Layer] = []
        width = features
        for i in range(count):
            last = i + 1 == count and not classifier
            outputs = classes if last else self.hidden
            branches = tuple(BranchChannels(order=k, inputs=width, outputs=outputs) for k in orders)
            layers.append(Layer(branches, width, average=last and len(orders) > 1))
            width = layers[-1].outputs
        if classifier:
            width = sum(layer.outputs for layer in layers) if jumping else width
            layers.append(Layer((BranchChannels(order=0, inputs=width, outputs=classes),), width))
        if self.channels is not None:
            return given(layers, self.channels)
        return tuple(layers) if self.pruning is None else pruned(layers, self.pruning, jumping)

    @property
    def facts(self) -> dict[str, Any]:
        """Data set and form."""
        return {"dataset": self.dataset, "form": self.form}

    @property
    def dtype(self) -> DType:
        """The precision as the format of tensors."""
        return DType(self.precision)

    def widths(self, features: int, classes: int) -> list[tuple[int, int]]:
        """Return (inputs, outputs) of each layer for a data graph of so many features and classes."""
        inner = [self.hidden] * (self.layers - 1)
        if self.pruning is not None:
            if self.pruning.scheme != "full":
                allowed = f"full: {self.model} has one width for all its layers"
                _refuse("pruning.scheme", self.pruning.scheme, allowed)
            whole = list(zip([features, *inner], [*inner, classes], strict=True))
            check_budget(attention_layers(whole, self.heads), self.pruning)
            inner = [self.heads * kept_channels(self.hidden // self.heads, self.pruning)] * len(inner)
        return list(zip([features, *inner], [*inner, classes], strict=True))
