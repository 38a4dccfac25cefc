"""Keys of a workload file of kind `gnn`: which network, on which data graph, in which form."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from npusim.ops import DType
from npusim.units import refuse
from npusim.workloads.spec import WorkloadSpec, default_of_model

Model = Literal["gcn", "gat", "sage-mean", "sage-max"]
Form = Literal["edges", "dense", "gathered"]
Order = Literal["transform_first", "aggregate_first"]
Precision = Literal["fp16", "bf16", "fp32"]

# The form that runs out of the box, first, and the others a model can take. A dense SAGE-max would need a
# tensor [N, N, F]: 21 GB on Cora.
_FORMS: dict[str, tuple[Form, ...]] = {
    "gcn": ("edges", "dense"),
    "gat": ("dense", "edges"),
    "sage-mean": ("gathered", "edges", "dense"),
    "sage-max": ("gathered", "edges"),
}
# SAGE aggregates first, as SAGEConv of PyTorch Geometric does. A mean of transformed rows is the transformed
# mean, so the other order is the same network there; of a maximum it is another. GCN and GAT are defined by
# their transformed features.
_ORDERS: dict[str, tuple[Order, ...]] = {
    "gcn": ("transform_first", "aggregate_first"),
    "gat": ("transform_first",),
    "sage-mean": ("aggregate_first", "transform_first"),
    "sage-max": ("aggregate_first", "transform_first"),
}


class GnnSpec(WorkloadSpec):
    """A network on a data graph."""

    kind: Literal["gnn"] = "gnn"
    """Graph neural networks; a file without `kind` is one."""
    model: Model
    """The network: gcn, gat, sage-mean (GraphSAGE with the mean of its neighbours) or sage-max."""
    dataset: str
    """Whose statistics: a shipped name (cora, citeseer) or the path of a YAML file of statistics."""
    precision: Precision = "fp16"
    """Format of every floating-point tensor; 8-bit integers come from the technique quantgr."""
    layers: Annotated[int, Field(ge=1, le=64)] = 2
    """Layers of the network; the last one gives the classes."""
    hidden: Annotated[int, Field(ge=1, le=65536)] = 64
    """Features between the layers, all heads together."""
    heads: Annotated[int, Field(ge=1, le=1024)] = 1
    """Attention heads of each layer but the last, which has one (gat); they share `hidden`."""
    neighbours: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    """Neighbours that a node aggregates, sampled without replacement (sage)."""
    form: Form = default_of_model({model: forms[0] for model, forms in _FORMS.items()})
    """`edges`: aggregation with Gather and Scatter along the edges; `dense`: a dense matrix [N, N] is made of
    the edges in the graph and multiplied; `gathered`: the sampled neighbours as a tensor [N, neighbours, F]
    (sage). Default: what runs out of the box (gcn edges, gat dense, sage gathered)."""
    order: Order = default_of_model({model: orders[0] for model, orders in _ORDERS.items()})
    """`transform_first` aggregates the layer's output width, `aggregate_first` its input width. Default:
    transform_first, but aggregate_first for sage-mean and sage-max, as SAGEConv of PyTorch Geometric has it;
    of sage-max the other order is another network."""

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
        return list(zip([features, *inner], [*inner, classes], strict=True))
