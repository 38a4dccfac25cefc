"""What each figure of GraNNite compares, read from `validate/definitions/granite.yaml`.

The baselines and conditions are data, so that another reading of a figure is another line in a file.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal

from pydantic import Field

from npusim.config import Section, load_model
from npusim.locate import resource

Count = Annotated[int, Field(ge=1)]


class Place(Section):
    """Where and how something is run."""

    soc: str
    """Name of a SoC."""
    hint: Literal["latency", "throughput"]
    """OpenVINO's performance hint."""
    tiles: Count
    """NPU tiles."""
    requests: Count | None = None
    """Inferences in flight; None: the SoC's default for the hint."""
    device: Literal["auto", "npu", "cpu", "gpu"] = "auto"
    """Device; auto: the NPU, with preprocessing where a technique wants it."""
    swap_operands: bool | Literal["search"] = False
    """Roles of the operands of products, as for `npusim.mapping.Run`."""


class PublishedVariant(Section):
    """A network as it was run."""

    techniques: str
    """Technique stack; `{capacity}` is the data set's."""
    settings: dict[str, str] = Field(default_factory=dict)
    """Settings of the workload, such as its form."""
    form: Literal["as_built", "by_elements", "each_layer", "formula", "row_scaled", "spread_masks"] = (
        "as_built"
    )
    """What is done to the graph beyond techniques: see `npusim.validation.granite_graphs`."""
    mask_writes: Literal["none", "edge", "all"] = "none"
    """Entries of a kept mask that the CPU writes before each inference, and that is waited for: those that a
    new edge changes, or all, the old ones set to 0 first."""
    serial_cpu: bool = False
    """Whether the CPU's part is waited for in each inference, even with several requests in flight."""
    reason: str
    """Why this is what the figure shows."""


class LayerVariant(PublishedVariant):
    """A single layer as it was run."""

    model: str
    """Model whose first layer it is."""


class LayerGraph(Section):
    """The data graph of Figs. 4 and 5."""

    nodes: Count
    edges: Count
    """Entries of the edge list."""
    features: Count
    classes: Count


class Layers(Section):
    """Figs. 4 and 5."""

    graph: LayerGraph
    graph_conv: LayerVariant
    graph_attn: LayerVariant
    control: list[str]
    """Operator types that Fig. 5 counts as control."""


class Peak(Section):
    """A product that only the MAC grid bounds."""

    m: Count
    k: Count
    n: Count
    place: str


Variants = dict[str, dict[str, PublishedVariant]]


class Alternative(Section):
    """Another reading of some figures: what of the definitions it replaces."""

    title: str
    """What is read otherwise."""
    figures: list[str] = Field(min_length=1)
    """Keys of the figures that it bears on, without `granite.`."""
    variants: Variants = Field(default_factory=dict)
    """Networks that take the place of those of the same name."""
    places: dict[str, Place] = Field(default_factory=dict)
    """Machines and hints that take the place of those of the same name."""
    best_of: dict[str, list[str]] = Field(default_factory=dict)
    """As in `Definitions`, by model."""
    hosts_choose: dict[str, list[str]] = Field(default_factory=dict)
    """As in `Definitions`, by model."""
    settings: list[str] = Field(default_factory=list)
    """Changes of the SoCs, as `--set` takes them."""


class Definitions(Section):
    """All definitions."""

    schema_name: Literal["npusim.granite-definitions/1"] = Field(alias="schema")
    """Version of this file format."""
    places: dict[str, Place]
    """Machines and hints by name."""
    variants: Variants
    """Networks by model and name."""
    capacity: dict[str, Count]
    """Nodes that NodePad pads to, by data set; `{capacity}` in a technique stack stands for it."""
    names: dict[str, str]
    """Stacks as the figures call them, and the variant meant."""
    best_of: dict[str, list[str]]
    """Variants among which each device takes its best, by model."""
    hosts_choose: dict[str, list[str]] = Field(default_factory=dict)
    """Variants among which CPU and GPU take their best, for models where these are others."""
    layers: Layers
    """Figs. 4 and 5."""
    peak: Peak
    """The ratio of int8 over fp16."""
    alternatives: list[Alternative] = Field(default_factory=list)
    """Other readings, each shown beside the one that holds."""

    def with_alternative(self, other: Alternative) -> Definitions:
        """Return the definitions with one other reading."""
        variants = {
            model: {**named, **other.variants.get(model, {})} for model, named in self.variants.items()
        }
        return self.model_copy(
            update={
                "variants": variants,
                "places": {**self.places, **other.places},
                "best_of": {**self.best_of, **other.best_of},
                "hosts_choose": {**self.hosts_choose, **other.hosts_choose},
            }
        )


@cache
def load_definitions() -> Definitions:
    """Return the shipped definitions."""
    return load_model(resource("validate", "definitions", "granite.yaml"), Definitions)
