"""Vision GNNs, which classify an image as a graph of its patches, as a kind of workload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from npusim.graph import Graph
from npusim.units import refuse
from npusim.workloads import WorkloadKind
from npusim.workloads.spec import WorkloadSpec, default_of_model

GraphOperator = Literal["max_relative", "edgeconv", "graphsage", "gin"]
"""How a node takes in its neighbours (MaGNAS, section 5.1.1)."""

SUPERBLOCKS = 4
"""Superblocks of a backbone: blocks that share their choices, and of a pyramid their image size."""

_CHOICE = "one value, or a list of four, one a superblock"


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _each(value: Any) -> Any:
    """Return one value of all superblocks as a list."""
    values = value if isinstance(value, list) else [value] * SUPERBLOCKS
    if len(values) != SUPERBLOCKS:
        refuse(f"{len(values)} values", _CHOICE)
    return values


def _listed(of: Any, make: Callable[[Any], Any]) -> BeforeValidator:
    """Take a list of values, or one that a function makes a list of."""
    return BeforeValidator(make, json_schema_input_type=of | list[of])


_Blocks = Annotated[int, Field(ge=1, le=64)]
_Channels = Annotated[int, Field(ge=8, le=8192)]
_Hidden = Annotated[int, Field(ge=0, le=65536)]
_Neighbours = Annotated[int, Field(ge=1, le=4096)]
_Side = Annotated[int, Field(ge=1, le=64)]


class Stage(NamedTuple):
    """Choices of one superblock."""

    depth: int
    channels: int
    operator: GraphOperator
    preprocess: bool
    ffn_hidden: int
    """Hidden channels of the feed-forward network behind each grapher; 0: none."""
    knn: tuple[int, ...]
    """Neighbours of a node, by block."""
    dilation: int
    """Of the nearest nodes every so many is a neighbour."""
    size: int
    """Height and width of the map of nodes."""
    reduction: int
    """Nodes along each side that are averaged to one candidate for a neighbour."""


_BACKBONES = {
    "vig": {"depth": [4] * 4, "channels": [320] * 4, "reduction": [1] * 4},
    "pyramid-vig": {"depth": [2, 2, 16, 2], "channels": [96, 192, 384, 768], "reduction": [4, 2, 1, 1]},
}
_STEM_STRIDE = {"vig": 16, "pyramid-vig": 4}
MIXED_GROUPS = 4
"""Groups of the 1x1 convolutions that mix a node with its neighbours (ViG's published code)."""
HEAD_CHANNELS = 1024
"""Hidden channels of the classifier (the same)."""


def _of_model(key: str) -> Any:
    return default_of_model({model: one[key] for model, one in _BACKBONES.items()})


class VisionGnnSpec(WorkloadSpec):
    """A Vision GNN: superblocks of graphers, each followed by a feed-forward network."""

    kind: Literal["vision-gnn"]
    """Vision GNNs."""
    model: Literal["vig", "pyramid-vig"]
    """The backbone (Han et al., 2022): `vig` keeps 14 x 14 nodes throughout, `pyramid-vig` starts with
    56 x 56 and halves each side between superblocks."""
    precision: Literal["fp16", "bf16", "fp32", "int8"] = "fp16"
    """Format of its tensors; `int8` is a network quantised before it is compiled: convolutions and products
    multiply bytes, what the grid cannot finish stays fp16."""
    batch: Annotated[int, Field(ge=1, le=1024)] = 1
    """Images of one inference."""
    image: Annotated[int, Field(ge=32, le=4096)] = 224
    """Height and width of an image."""
    classes: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Classes to tell apart."""
    depth: Annotated[list[_Blocks], _listed(_Blocks, _each)] = _of_model("depth")
    """Blocks of a superblock: one value, or a list of four. Default: vig 4, pyramid-vig 2, 2, 16, 2."""
    channels: Annotated[list[_Channels], _listed(_Channels, _each)] = _of_model("channels")
    """Features of a node, multiples of 8: one value, or a list of four. Default: vig 320 (ViG-S), pyramid-vig
    96, 192, 384, 768 (PyramidViG-M)."""
    operator: Annotated[list[GraphOperator], _listed(GraphOperator, _each)] = Field(
        default_factory=lambda: list[GraphOperator](["max_relative"]) * SUPERBLOCKS
    )
    """How a node takes in its neighbours: one value, or a list of four. Default: max_relative."""
    preprocess: Annotated[list[bool], _listed(bool, _each)] = Field(
        default_factory=lambda: [True] * SUPERBLOCKS
    )
    """Whether graphers begin with a product of their own: one value, or a list of four. Default: true."""
    ffn_hidden: Annotated[list[_Hidden], _listed(_Hidden, _each)] = Field(
        default_factory=lambda data: [4 * channels for channels in data.get("channels", ())]
    )
    """Hidden channels of the feed-forward network behind each grapher, 0: none; one value, or a list of four.
    Default: four times the channels."""
    knn: Annotated[list[_Neighbours], _listed(_Neighbours, _as_list)] = Field(default_factory=lambda: [9])
    """Neighbours of a node: one value, a list of four, or a list of one a block. Default: 9."""
    reduction: Annotated[list[_Side], _listed(_Side, _each)] = _of_model("reduction")
    """Nodes along each side whose mean is one candidate for a neighbour: one value, or a list of four.
    Default: vig 1, pyramid-vig 4, 2, 1, 1."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> VisionGnnSpec:
        stride = _STEM_STRIDE[self.model] * (8 if self.model == "pyramid-vig" else 1)
        if self.image % stride:
            refuse(f"`{self.image}`", f"a multiple of {stride} for {self.model}", at="image")
        if self.model == "vig" and len(set(self.channels)) > 1:
            refuse(f"`{self.channels}`", "one width throughout, as the model vig has", at="channels")
        for channels in self.channels:
            if channels % 8:
                refuse(f"`{channels}`", "multiples of 8", at="channels")
        blocks = sum(self.depth)
        if len(self.knn) not in (1, SUPERBLOCKS, blocks):
            allowed = f"1, {SUPERBLOCKS} or, one a block, {blocks}"
            refuse(f"{len(self.knn)} values", allowed, at="knn")
        for stage in self.stages:
            if stage.size % stage.reduction:
                refuse(
                    f"`{stage.reduction}`",
                    f"divisors of the {stage.size} nodes along a side",
                    at="reduction",
                )
            candidates = (stage.size // stage.reduction) ** 2
            if max(stage.knn) > candidates:
                refuse(f"`{max(stage.knn)}`", f"at most the {candidates} nodes there are", at="knn")
        return self

    @property
    def stem_channels(self) -> list[int]:
        """Output channels of the stem's convolutions of stride 2."""
        first = self.channels[0]
        return [first // 8, first // 4, first // 2, first] if self.model == "vig" else [first // 2, first]

    @property
    def stages(self) -> list[Stage]:
        """Choices of the superblocks, in order.

        Of the `k d` nearest nodes every d-th is a neighbour, d the number of the superblock as far as there
        are as many nodes (four blocks share a dilation in ViG).
        """
        stages, first, size = [], 0, self.image // _STEM_STRIDE[self.model]
        for i, depth in enumerate(self.depth):
            if len(self.knn) == sum(self.depth):
                knn = tuple(self.knn[first : first + depth])
            else:
                knn = (self.knn[i if len(self.knn) > 1 else 0],) * depth
            candidates = (size // self.reduction[i]) ** 2
            dilation = max(1, min(i + 1, candidates // max(knn)))
            choices = self.operator[i], self.preprocess[i], self.ffn_hidden[i]
            stages.append(Stage(depth, self.channels[i], *choices, knn, dilation, size, self.reduction[i]))
            first += depth
            size = size // 2 if self.model == "pyramid-vig" else size
        return stages

    @property
    def facts(self) -> dict[str, Any]:
        """Shape of the input."""
        return {"input": f"{self.batch}x3x{self.image}x{self.image}"}


def _build(spec: VisionGnnSpec, name: str, _: Path) -> Graph:
    from npusim.magnas.graph import build_vig  # loaded when a network is built

    return build_vig(spec, name)


VISION_GNN = WorkloadKind(
    "vision-gnn",
    "graph networks on the patches of images",
    VisionGnnSpec,
    _build,
    folder=Path(__file__).with_name("workloads"),
    is_large=True,
)
