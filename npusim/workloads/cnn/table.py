"""Convolutional networks that a file describes as a table of blocks: families of timm and Ultralytics."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from npusim.config import validate_data
from npusim.config.reading import ParsedFile
from npusim.graph import Graph
from npusim.units import refuse
from npusim.workloads.cnn import ImageSpec, blocks
from npusim.workloads.cnn.blocks import Activation, Positive, Row, rounded_channels
from npusim.workloads.network import Network
from npusim.workloads.spec import WorkloadKind, variant_file


class BlocksSpec(ImageSpec):
    """A convolutional network as a table of blocks."""

    kind: Literal["blocks"]
    """Tables of blocks."""
    model: Literal["classifier", "detector"]
    """`classifier`: ends in a mean over pixels and a linear layer, channels scale as in timm; `detector`:
    the last row is `detect`, channels scale as in Ultralytics."""
    classes: Positive = 1000
    """Classes to tell apart."""
    activation: Activation = "Relu"
    """Activation of blocks that name none."""
    gate: Activation = "Sigmoid"
    """As a row's, for rows that say nothing; so are the next two."""
    squeeze_of: Literal["input", "hidden"] = "input"
    squeeze_activation: Activation = ""
    channel_factor: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Factor of all channels (width multiplier)."""
    depth_factor: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Factor of all repetitions (depth multiplier)."""
    depth_rounding: Literal["up", "nearest"] = "up"
    """How scaled repetitions are rounded."""
    most_channels: Positive = 100_000
    """Channels that none exceeds before they are scaled."""
    fixed_ends: bool = False
    """Whether channels of the first row, and repetitions of the second and the last, are not scaled."""
    features: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Channels of a pointwise convolution before the classifier; 0: none."""
    features_of_mean: bool = False
    """Whether that convolution follows the mean over pixels."""
    nested: bool = False
    """Whether the inner layers of every CSP block without attention are CSP blocks."""
    bins: Positive = 16
    """Bins of the distribution over a box's distances."""
    end_to_end: bool = False
    """Whether the network chooses its best 300 detections itself."""
    rows: Annotated[list[Row], Field(min_length=1, max_length=200)]
    """The table; the first row is the stem."""

    @model_validator(mode="after")
    def _rows_read_rows_above(self) -> BlocksSpec:
        for place, row in enumerate(self.rows):
            for source in row.inputs:
                if not -1 <= source < max(place, 0):
                    refuse(f"row {source}", f"-1 or a row above row {place}", at="rows")
        is_detector = self.rows[-1].block == "detect"
        if is_detector != (self.model == "detector"):
            refuse(f"`{self.rows[-1].block}` as last row", "`detect` for a detector alone", at="rows")
        return self


def shipped_table(name: str, **settings: Any) -> BlocksSpec:
    """Return the table of a shipped variant with other settings, for builders of named networks."""
    document = variant_file(name)
    return validate_data(ParsedFile(document.name, document.data | settings, document.lines), BlocksSpec)


def _scaled(spec: BlocksSpec, channels: int, is_stem: bool) -> int:
    if spec.model == "detector":
        return math.ceil(min(channels, spec.most_channels) * spec.channel_factor / 8) * 8
    return channels if is_stem and spec.fixed_ends else rounded_channels(channels * spec.channel_factor)


def _repetitions(spec: BlocksSpec, place: int) -> int:
    count = spec.rows[place].repeat
    if not place or (spec.fixed_ends and place in (1, len(spec.rows) - 1)):
        return count
    scaled = count * spec.depth_factor
    return max(1, math.ceil(scaled) if spec.depth_rounding == "up" else round(scaled))


_SHARED = ("activation", "gate", "squeeze_of", "squeeze_activation")
"""Keys of the network that rows may have for themselves."""


def build_rows(net: Network, x: str, spec: BlocksSpec, prefix: str = "") -> list[str]:
    """Build the rows of a table and return the result of each; the head `detect` is not built."""
    results: list[str] = []
    for place, row in enumerate(spec.rows):
        sources = [x if source == -1 and not results else results[source] for source in row.inputs]
        name = f"model{place}" if spec.model == "detector" else f"stage{place - 1}" if place else "stem"
        name = f"{prefix}{name}"
        if row.block == "detect":
            break
        if row.block == "concat":
            results.append(net.joined(sources, name))
            continue
        channels = _scaled(spec, row.channels, not place) if row.channels else net.shape(sources[0])[1]
        count = _repetitions(spec, place)
        is_inside = spec.model == "detector"  # repetitions are layers of one block
        common = {key: getattr(spec, key) for key in _SHARED if key not in row.model_fields_set}
        common |= {"channels": channels, "nested": row.nested or spec.nested}
        if is_inside:
            block, result = row.model_copy(update=common | {"layers": count}), sources[0]
            results.append(blocks.BLOCKS[row.block](net, result, block, name))
            continue
        result = sources[0]
        for i in range(count):
            each = {"stride": 1 if i else row.stride, "last": i == count - 1}
            whole = count == 1 and row.block in ("conv", "pool")
            block = row.model_copy(update=common | each)
            result = blocks.BLOCKS[row.block](net, result, block, name if whole else f"{name}/block{i}")
        results.append(result)
    return results


def build_table(net: Network, x: str, spec: BlocksSpec) -> Graph:
    """Build the network of a table on an image [N, 3, H, W]."""
    results = build_rows(net, x, spec)
    if spec.model == "detector":
        maps = [results[place] for place in spec.rows[-1].inputs]
        is_separable = not any(row.block == "c2f" for row in spec.rows)
        return net.finished(
            blocks.detections(net, maps, spec.classes, spec.bins, is_separable, spec.end_to_end)
        )
    x = results[-1]
    if spec.features_of_mean:
        x = net.mean_pool(x, "head/pool")
    if spec.features:
        x = net.convolution(x, spec.features, "head/expand", 1, 1, spec.activation)
    if spec.features_of_mean or net.shape(x)[2:] == (1, 1):
        return net.finished(blocks.classes_of(net, x, spec.classes))
    return net.finished(blocks.classified(net, x, spec.classes))


def _build(spec: BlocksSpec, name: str, _: Path) -> Graph:
    net = Network(name, name, spec.precision)
    return build_table(net, net.image(spec.batch, spec.height, spec.width), spec)


BLOCKS = WorkloadKind("blocks", "convolutional networks as tables of blocks", BlocksSpec, _build)
