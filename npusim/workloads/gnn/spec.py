"""Keys of a workload file of kind `gnn`: which network, on which data graph, in which form."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from npusim.errors import ConfigError
from npusim.ops import DType
from npusim.units import refuse
from npusim.workloads.gnn.batches import Batch
from npusim.workloads.gnn.channels import (
    BranchChannels,
    Layer,
    Pruning,
    attention_layers,
    check_budget,
    given,
    kept_channels,
    layers_of,
    pruned,
)
from npusim.workloads.spec import WorkloadSpec, default_of_model

Model = Literal["gcn", "gat", "sage-mean", "sage-max", "sage-concat", "mixhop", "jk", "sign", "sgc"]
Form = Literal["edges", "dense", "gathered", "csr"]
Order = Literal["transform_first", "aggregate_first"]
Precision = Literal["fp16", "bf16", "fp32"]

EQUATION_1: tuple[Model, ...] = ("sage-concat", "mixhop", "jk", "sign", "sgc")
"""Models that are built by Eq. 1 of GCNP, with `hidden` channels a branch."""
_ORDERS_UP_TO: dict[str, int] = {"mixhop": 2, "sign": 2, "sgc": 2}

# The form that runs out of the box, first, and the others a model can take. A dense SAGE-max would need a
# tensor [N, N, F]: 21 GB on Cora.
_FORMS: dict[str, tuple[Form, ...]] = {
    "gcn": ("edges", "dense", "csr"),
    "gat": ("dense", "edges", "csr"),
    "sage-mean": ("gathered", "edges", "dense", "csr"),
    "sage-max": ("gathered", "edges"),
    **dict.fromkeys(EQUATION_1, ("edges", "dense", "csr")),
}
# SAGE aggregates first, as SAGEConv of PyTorch Geometric does. A mean of transformed rows is the transformed
# mean, so the other order is the same network there; of a maximum it is another. GCN and GAT are defined by
# their transformed features.
_ORDERS: dict[str, tuple[Order, ...]] = {
    "gcn": ("transform_first", "aggregate_first"),
    "gat": ("transform_first",),
    "sage-mean": ("aggregate_first", "transform_first"),
    "sage-max": ("aggregate_first", "transform_first"),
    **dict.fromkeys(EQUATION_1, ("aggregate_first", "transform_first")),
}


def forms_of(model: str) -> tuple[Form, ...]:
    """Return the forms that a model can take, the one that runs out of the box first."""
    return _FORMS[model]


class GnnSpec(WorkloadSpec):
    """A network on a data graph."""

    kind: Literal["gnn"] = "gnn"
    """Graph neural networks; a file without `kind` is one."""
    model: Model
    """The network: gcn, gat, sage-mean (GraphSAGE with the mean of sampled neighbours, added to the node's
    own branch) or sage-max; by Eq. 1 of GCNP: sage-concat (own and neighbours' branch side by side, all
    neighbours, a dense classifier), mixhop, jk (jumping knowledge over graph convolutions), sign, sgc."""
    dataset: str
    """Whose statistics: a shipped name (cora, citeseer) or the path of a YAML file of statistics."""
    precision: Precision = "fp16"
    """Format of every floating-point tensor; 8-bit integers come from the technique quantgr."""
    layers: Annotated[int, Field(ge=1, le=64)] = 2
    """Layers of the network; the last one gives the classes, but where a dense classifier follows (sage-
    concat, mixhop, jk, sign). sign and sgc have one."""
    hidden: Annotated[int, Field(ge=1, le=65536)] = 64
    """Features between the layers, all heads together; of models by Eq. 1: of each branch."""
    power: Annotated[int, Field(ge=1, le=16)] | None = None
    """Highest power K of the adjacency (mixhop, sign, sgc); default 2."""
    normalise: bool = False
    """Whether the classifier reads rows of length 1 (sage-concat)."""
    preprocessed: bool = False
    """Whether features arrive aggregated, as far as they do not depend on weights (sign, sgc)."""
    heads: Annotated[int, Field(ge=1, le=1024)] = 1
    """Attention heads of each layer but the last, which has one (gat); they share `hidden`."""
    neighbours: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    """Neighbours that a node aggregates, sampled without replacement (sage)."""
    form: Form = default_of_model({model: forms[0] for model, forms in _FORMS.items()})
    """`edges`: aggregation with Gather and Scatter along the edges; `dense`: a dense matrix [N, N] is made
    of the edges in the graph and multiplied; `csr`: a matrix in compressed rows, on a CPU or GPU;
    `gathered`: the sampled neighbours as a tensor [N, neighbours, F] (sage). Default: what runs out of the
    box (gcn edges, gat dense, sage gathered)."""
    order: Order = default_of_model({model: orders[0] for model, orders in _ORDERS.items()})
    """`transform_first` aggregates the layer's output width, `aggregate_first` its input width. Default:
    transform_first, but aggregate_first for sage-mean and sage-max, as SAGEConv of PyTorch Geometric has it;
    of sage-max the other order is another network."""
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
        allowed = (_FORMS if info.field_name == "form" else _ORDERS).get(model, (value,))
        if value not in allowed:
            raise ValueError(f"{model} has no {info.field_name} {value!r}; it has {', '.join(allowed)}")
        return value

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> GnnSpec:
        if self.heads > 1 and self.model != "gat":
            refuse(
                f"`{self.heads}`", f"no heads: {self.model} has no attention heads, only gat does", at="heads"
            )
        if self.hidden % self.heads:
            refuse(f"`{self.hidden}`", f"a multiple of heads, which is {self.heads}", at="hidden")
        return self

    @model_validator(mode="after")
    def _keys_suit_the_model(self) -> GnnSpec:
        owners: dict[str, tuple[str, ...]] = {
            "power": tuple(_ORDERS_UP_TO),
            "normalise": ("sage-concat",),
            "preprocessed": ("sign", "sgc"),
            "pruning": ("gcn", "gat", *EQUATION_1),
            "channels": EQUATION_1,
            "batch": ("sage-concat",),
        }
        for key, models in owners.items():
            if getattr(self, key) and self.model not in models:
                refuse(f"{key} of {self.model}", f"{key} only of {', '.join(models)}", at=key)
        if self.pruning is not None and self.channels is not None:
            refuse("both `pruning` and `channels`", "one of them", at="channels")
        if self.model in ("sign", "sgc") and self.layers != 1 and "layers" in self.model_fields_set:
            refuse(f"`{self.layers}`", f"1: {self.model} has one layer", at="layers")
        return self

    def equation_layers(self, features: int, classes: int) -> tuple[Layer, ...]:
        """Return the layers by Eq. 1 for so many features and classes, pruned where that is asked for."""
        highest = self.power or _ORDERS_UP_TO.get(self.model, 1)
        orders = {"jk": (1,), "sgc": (highest,)}.get(self.model, tuple(range(highest + 1)))
        jumping = self.model == "jk"
        count = 1 if self.model in ("sign", "sgc") else self.layers
        found = layers_of(
            features, classes, self.hidden, count, orders, classifier=self.model != "sgc", jumping=jumping
        )
        if self.channels is not None:
            return given(found, self.channels)
        return pruned(found, self.pruning, jumping) if self.pruning is not None else found

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
        whole = list(zip([features, *inner], [*inner, classes], strict=True))
        if self.pruning is None:
            return whole
        if self.pruning.scheme != "full":
            key, allowed = "workload.pruning.scheme", f"full: {self.model} has one width for all its layers"
            raise ConfigError(f"`{self.pruning.scheme}`", key=key, allowed=allowed)
        check_budget(attention_layers(whole, self.heads), self.pruning)
        inner = [self.heads * kept_channels(self.hidden // self.heads, self.pruning)] * (self.layers - 1)
        return list(zip([features, *inner], [*inner, classes], strict=True))
