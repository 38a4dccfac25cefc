"""Builders of the blocks that convolutional networks repeat, one function for each kind.

A block takes the results of the rows it reads and returns its own. Operators are named `NAME/part`, so that
regions of a graph follow the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from npusim.config import Section
from npusim.ops import DType, Operator, Tensor
from npusim.workloads.network import Network, window

BlockKind = Literal[
    "conv", "pool", "inverted", "basic", "bottleneck", "separable", "aggregation", "shuffle",
    "c2f", "c3k2", "sppf", "c2psa", "upsample", "concat", "detect",
]  # fmt: skip
Activation = Literal["", "Relu", "Clamp", "Swish", "HSwish", "HSigmoid", "Sigmoid"]
Positive = Annotated[int, Field(ge=1, le=100_000)]


class Row(Section):
    """A row of the table: a block and how often it is repeated."""

    block: BlockKind
    """What is built; `concat` joins rows, `detect` is the head without anchors."""
    channels: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Channels of the result at width 1; 0: those of the input."""
    repeat: Annotated[int, Field(ge=1, le=1000)] = 1
    """Repetitions at depth 1; the stride is the first one's."""
    kernel: Positive | list[Positive] = 3
    """Kernel size; a list divides the channels among its sizes."""
    stride: Annotated[int, Field(ge=1, le=8)] = 1
    expansion: Annotated[float, Field(gt=0, le=100)] = 1.0
    """Hidden channels of an inverted residual over its input's."""
    excite: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Channels of squeeze-and-excitation over those that `squeeze_of` names; 0: none."""
    activation: Activation = ""
    """Activation; default: the network's."""
    gate: Activation = "Sigmoid"
    """Activation that ends a squeeze-and-excitation; default: the network's."""
    squeeze_of: Literal["input", "hidden"] = "input"
    """Channels that `excite` is a share of: of the input, or hidden ones, rounded to a multiple of 8."""
    squeeze_activation: Activation = ""
    """Activation inside a squeeze-and-excitation; empty: the block's."""
    split_expand: Positive = 1
    """Groups that the expanding pointwise convolution is split into."""
    split_project: Positive = 1
    """Groups that the projecting pointwise convolution is split into."""
    hidden: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Channels of the inner layers of an aggregation."""
    layers: Positive = 1
    """Inner layers of an aggregation or a CSP block."""
    depthwise: bool = False
    """Whether these are separable."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the channels that a branch of a CSP block has."""
    nested: bool = False
    """Whether the inner layers of a CSP block are CSP blocks."""
    attention: bool = False
    """Whether attention over pixels follows each of them."""
    shortcut: bool = True
    """Whether inner layers have shortcuts."""
    padded: bool = True
    """Whether a convolution is padded."""
    last: bool = True
    """Whether the block is its row's last repetition; only then an aggregation excites its channels."""
    inputs: Annotated[tuple[int, ...], Field(min_length=1, strict=False)] = (-1,)
    """Rows read: their places from 0, or -1 for the row above."""

    @property
    def kernels(self) -> list[int]:
        """Kernel sizes that a depthwise convolution's channels are divided among."""
        return self.kernel if isinstance(self.kernel, list) else [self.kernel]


def rounded_channels(channels: float, lower_share: float = 0.9) -> int:
    """Return the nearest multiple of 8, at least `lower_share` of the number (timm: `round_channels`)."""
    whole = max(8, int(channels + 4) // 8 * 8)
    return whole + 8 if whole < lower_share * channels else whole


def _convolution(net: Network, x: str, b: Row, name: str) -> str:
    return net.convolution(x, b.channels, name, b.kernels[0], b.stride, b.activation, valid=not b.padded)


def _pooling(net: Network, x: str, b: Row, name: str) -> str:
    return net.max_pool(x, name, b.kernels[0], b.stride)


def _divided(channels: int, groups: int) -> list[int]:
    """Divide channels among groups, what is left over to the first."""
    part = channels // groups
    return [channels - part * (groups - 1), *[part] * (groups - 1)]


def _mixed(
    net: Network,
    x: str,
    width: int,
    kernels: Sequence[int],
    name: str,
    activation: str = "",
    stride: int = 1,
    is_depthwise: bool = False,
) -> str:
    """Add a convolution whose channels are divided among kernels (Tan and Le, MixConv, 2019)."""
    if len(kernels) == 1:
        return net.convolution(x, width, name, kernels[0], stride, activation, width if is_depthwise else 1)
    inputs, widths = (_divided(channels, len(kernels)) for channels in (net.shape(x)[1], width))
    parts = net.split(net.rounded(x), inputs, f"{name}/split")
    results = [
        net.convolution(part, own, f"{name}/part{i}", kernel, stride, activation, own if is_depthwise else 1)
        for i, (part, own, kernel) in enumerate(zip(parts, widths, kernels, strict=True))
    ]
    return net.joined(results, f"{name}/concat")


def _inverted(net: Network, x: str, b: Row, name: str) -> str:
    """Expand, filter depthwise, squeeze and excite, project; a shortcut where the shape stays."""
    source, inputs = x, net.shape(x)[1]
    hidden = inputs if b.expansion == 1 else rounded_channels(inputs * b.expansion)
    if b.expansion != 1:
        x = _mixed(net, x, hidden, [1] * b.split_expand, f"{name}/expand", b.activation)
    x = _mixed(net, x, hidden, b.kernels, f"{name}/depthwise", b.activation, b.stride, True)
    if b.excite:
        x = _excited(net, x, inputs, b, name)
    x = _mixed(net, x, b.channels, [1] * b.split_project, f"{name}/project")
    return net.plus(source, x, f"{name}/add") if net.shape(x) == net.shape(source) else x


def _excited(net: Network, x: str, inputs: int, b: Row, name: str) -> str:
    """Squeeze and excitation: channels scaled by two small convolutions of their means."""
    channels = net.shape(x)[1]
    narrow = max(1, round(inputs * b.excite)) if b.squeeze_of == "input" else 0
    narrow = narrow or rounded_channels(channels * b.excite)
    activation = b.squeeze_activation or b.activation
    squeezed = net.mean_pool(x, f"{name}/squeeze")
    squeezed = net.convolution(squeezed, narrow, f"{name}/squeeze/reduce", activation=activation)
    squeezed = net.convolution(squeezed, channels, f"{name}/squeeze/expand", activation=b.gate)
    return net.times(x, squeezed, f"{name}/excite")


def _basic(net: Network, x: str, b: Row, name: str) -> str:
    """Two convolutions 3x3 and a shortcut (ResNet-18, -34)."""
    source = _projected(net, x, b, name)
    x = net.convolution(x, b.channels, f"{name}/spatial0", 3, b.stride, b.activation)
    x = net.convolution(x, b.channels, f"{name}/spatial1", 3)
    return net.activation(b.activation, net.plus(x, source, f"{name}/add"), name)


def _bottleneck(net: Network, x: str, b: Row, name: str) -> str:
    """Three convolutions and a shortcut, the stride in the 3x3 (ResNet-50, version 1.5)."""
    source, width = _projected(net, x, b, name), b.channels // 4
    x = net.convolution(x, width, f"{name}/reduce", 1, 1, b.activation)
    x = net.convolution(x, width, f"{name}/spatial", 3, b.stride, b.activation)
    x = net.convolution(x, b.channels, f"{name}/expand")
    return net.activation(b.activation, net.plus(x, source, f"{name}/add"), name)


def _projected(net: Network, x: str, b: Row, name: str) -> str:
    """Return the shortcut, which is a convolution where the shape changes."""
    if net.shape(x)[1] == b.channels and b.stride == 1:
        return x
    return net.convolution(x, b.channels, f"{name}/shortcut", 1, b.stride)


def _separable(net: Network, x: str, b: Row, name: str) -> str:
    """A depthwise 3x3 without activation, then a pointwise convolution."""
    groups = net.shape(x)[1]
    x = net.convolution(x, groups, f"{name}/depthwise", b.kernels[0], b.stride, groups=groups, bias=False)
    return net.convolution(x, b.channels, f"{name}/pointwise", activation=b.activation)


def _aggregation(net: Network, x: str, b: Row, name: str) -> str:
    """One-shot aggregation (VoVNet): all inner layers joined once; channels excited in the last block."""
    source, parts, inner = x, [x], b.model_copy(update={"channels": b.hidden, "kernel": 3, "stride": 1})
    if b.depthwise and net.shape(x)[1] != b.hidden:
        x = net.convolution(x, b.hidden, f"{name}/reduce", activation=b.activation)
    for i in range(b.layers):
        build = _separable if b.depthwise else _convolution
        x = build(net, x, inner, f"{name}/layer{i}")
        parts.append(x)
    joined = net.joined(parts, f"{name}/concat")
    x = net.convolution(joined, b.channels, f"{name}/fuse", activation=b.activation)
    if b.last:
        squeezed = net.mean_pool(x, f"{name}/squeeze")
        squeezed = net.convolution(squeezed, b.channels, f"{name}/squeeze/expand", activation=b.gate)
        x = net.times(x, squeezed, f"{name}/excite")
    return net.plus(x, source, f"{name}/add") if net.shape(x) == net.shape(source) and b.shortcut else x


def _shuffled(net: Network, x: str, b: Row, name: str) -> str:
    """A unit of ShuffleNet-v2: half of the channels pass, or a second branch halves the image; shuffle."""
    half = b.channels // 2
    inner = b.model_copy(update={"channels": half})
    if b.stride == 1:
        kept, x = net.split(x, (half, half), f"{name}/split")
    else:
        kept = _separable(net, x, inner, f"{name}/branch")
    x = net.convolution(x, half, f"{name}/expand", activation=b.activation)
    x = _separable(net, x, inner, f"{name}/filter")
    x = net.joined((kept, x), f"{name}/concat")
    shape = net.shape(x)
    x = net.reshape(x, (shape[0], 2, half, *shape[2:]), f"{name}/pairs")
    x = net.transpose(x, (0, 2, 1, 3, 4), f"{name}/shuffle")
    return net.reshape(x, shape, f"{name}/joined")


def conv(
    net: Network, x: str, width: int, name: str, kernel: int = 1, stride: int = 1, groups: int = 1
) -> str:
    """Add Ultralytics' `Conv`: a convolution with Swish."""
    return net.convolution(x, width, name, kernel, stride, "Swish", groups)


def _residual(net: Network, x: str, hidden: int, name: str, shortcut: bool) -> str:
    width = net.shape(x)[1]
    y = conv(net, conv(net, x, hidden, f"{name}/conv1", 3), width, f"{name}/conv2", 3)
    return net.plus(x, y, f"{name}/add") if shortcut else y


def halves(net: Network, x: str, width: int, name: str) -> list[str]:
    """Return two branches of a width, by a convolution and a split."""
    return net.split(net.rounded(conv(net, x, 2 * width, f"{name}/conv1")), (width, width), f"{name}/split")


def _csp(net: Network, x: str, b: Row, name: str) -> str:
    """C2f and C3k2: two branches and the result of every inner block along the second, joined."""
    width = int(b.channels * b.share)
    parts = halves(net, x, width, name)
    for i in range(b.layers):
        parts.append(_inner(net, parts[-1], b, f"{name}/block{i}"))
    return conv(net, net.joined(parts, f"{name}/concat"), b.channels, f"{name}/conv2")


def _inner(net: Network, x: str, b: Row, name: str) -> str:
    width = net.shape(x)[1]
    if b.attention:
        x = _residual(net, x, width // 2, name, b.shortcut)
        return _attention_block(net, x, f"{name}/attended")
    if not b.nested:
        return _residual(net, x, width if b.block == "c2f" else width // 2, name, b.shortcut)
    y = conv(net, x, width // 2, f"{name}/conv1")
    for i in range(2):
        y = _residual(net, y, width // 2, f"{name}/block{i}", b.shortcut)
    kept = conv(net, x, width // 2, f"{name}/conv2")
    return conv(net, net.joined((y, kept), f"{name}/concat"), width, f"{name}/conv3")


def _pyramid_pooling(net: Network, x: str, b: Row, name: str) -> str:
    """SPPF: join a map and its maxima over windows of 5, 9 and 13, pooled one after another."""
    source, width = x, net.shape(x)[1] // 2
    parts = [net.rounded(net.convolution(x, width, f"{name}/conv1", activation=b.activation))]
    for i in range(3):
        parts.append(net.max_pool(parts[-1], f"{name}/pool{i}", 5, 1))
    x = conv(net, net.joined(parts, f"{name}/concat"), b.channels, f"{name}/conv2")
    return net.plus(x, source, f"{name}/add") if b.shortcut else x


def _partial_attention(net: Network, x: str, b: Row, name: str) -> str:
    """C2PSA: half of the channels pass through blocks of attention over pixels."""
    half = net.shape(x)[1] // 2
    kept, x = halves(net, x, half, name)
    for i in range(b.layers):
        x = _attention_block(net, x, f"{name}/block{i}" if i else name)
    return conv(net, net.joined((kept, x), f"{name}/concat"), 2 * half, f"{name}/conv2")


def _attention_block(net: Network, x: str, name: str) -> str:
    width = net.shape(x)[1]
    x = net.plus(x, _pixel_attention(net, x, f"{name}/attention"), f"{name}/add")
    y = net.convolution(conv(net, x, 2 * width, f"{name}/feed1"), width, f"{name}/feed2")
    return net.plus(x, y, f"{name}/feed_add")


def _pixel_attention(net: Network, x: str, name: str) -> str:
    """Attention of heads of 64 channels, keys half as long, with a depthwise positional term."""
    batch, channels, height, width = net.shape(x)
    heads = max(1, channels // 64)
    value = channels // heads
    key = value // 2
    y = net.convolution(x, channels + 2 * heads * key, f"{name}/qkv")
    y = net.reshape(y, (batch, heads, 2 * key + value, height * width), f"{name}/heads")
    query, keys, values = net.split(y, (key, key, value), f"{name}/split", axis=2)
    query = net.scaled(query, f"{name}/scale")
    scores = net.product(query, keys, f"{name}/scores", transpose_a=True, to_float=True)
    weights = net.unary("Softmax", scores, f"{name}/softmax", axes=(3,))
    y = net.product(values, weights, f"{name}/values", transpose_b=True)
    y = net.reshape(y, (batch, channels, height, width), f"{name}/join_heads")
    values = net.reshape(values, (batch, channels, height, width), f"{name}/values_map")
    position = net.convolution(values, channels, f"{name}/position", 3, groups=channels)
    return net.convolution(net.plus(y, position, f"{name}/add"), channels, f"{name}/project")


def above(net: Network, x: str, finer: str, name: str) -> str:
    """Join a map, twice as high and wide, with one of that size."""
    height, width = net.shape(finer)[2:]
    larger = net.upsample(net.rounded(x), height, width, f"{name}/upsample")
    return net.joined((larger, finer), f"{name}/concat")


def _doubled(net: Network, x: str, b: Row, name: str) -> str:
    height, width = net.shape(x)[2:]
    return net.upsample(net.rounded(x), 2 * height, 2 * width, name)


BLOCKS: Mapping[str, Callable[[Network, str, Row, str], str]] = {
    "conv": _convolution,
    "pool": _pooling,
    "inverted": _inverted,
    "basic": _basic,
    "bottleneck": _bottleneck,
    "separable": _separable,
    "aggregation": _aggregation,
    "shuffle": _shuffled,
    "c2f": _csp,
    "c3k2": _csp,
    "sppf": _pyramid_pooling,
    "c2psa": _partial_attention,
    "upsample": _doubled,
}
"""Builders of blocks that read one row, by the name in a table."""


def classified(net: Network, x: str, classes: int) -> str:
    """Add the mean over pixels and a linear layer."""
    x = net.mean_pool(x, "head/pool")
    return classes_of(net, x, classes)


def classes_of(net: Network, x: str, classes: int) -> str:
    """Add a linear layer over the channels of one pixel."""
    x = net.reshape(x, net.shape(x)[:2], "head/flatten")
    return net.linear(x, classes, "head/classes", to_float=True)


MOST_DETECTIONS = 300
"""Detections that an end-to-end head returns (Ultralytics: `max_det`)."""


def detections(
    net: Network, maps: Sequence[str], classes: int, bins: int, is_separable: bool, end_to_end: bool
) -> str:
    """Add the head without anchors of YOLO.

    Parameters
    ----------
    maps : sequence of str
        Maps of the pyramid, the finest first.
    bins : int
        Bins of the distribution over a box's distances (`reg_max`); 1: the distance itself.
    is_separable : bool
        Whether the class branch is depthwise and pointwise (YOLO11), or 3x3 (YOLOv8).
    end_to_end : bool
        Whether the best 300 detections are chosen in the network.

    Returns
    -------
    str
        Tensor [N, 4 + classes, A], or [N, 300, 6] end to end.
    """
    first = net.shape(maps[0])[1]
    hidden, wide = max(16, first // 4, 4 * bins), max(first, min(classes, 100))
    boxes, scores = [], []
    for i, x in enumerate(maps):
        y = conv(net, conv(net, x, hidden, f"head{i}/box0", 3), hidden, f"head{i}/box1", 3)
        boxes.append(_rows(net, net.convolution(y, 4 * bins, f"head{i}/box", to_float=True)))
        for step in range(2):
            place, channels = f"head{i}/class{step}", net.shape(x)[1]
            if is_separable:
                x = conv(net, x, channels, f"{place}/depthwise", 3, groups=channels)
            x = conv(net, x, wide, place, 1 if is_separable else 3)
        scores.append(_rows(net, net.convolution(x, classes, f"head{i}/class", to_float=True)))
    net.region = "detections"
    distances = net.joined(boxes, "detections/boxes", 2, to_float=True)
    decoded = _decoded(net, distances, bins, end_to_end)
    joined = net.joined(scores, "detections/classes", 2, to_float=True)
    probabilities = net.activation("Sigmoid", joined, "detections")
    found = net.joined((decoded, probabilities), "detections/output", to_float=True)
    return _best(net, found, classes) if end_to_end else found


def _rows(net: Network, x: str) -> str:
    batch, channels, height, width = net.shape(x)
    return net.reshape(x, (batch, channels, height * width), f"{x}/rows")


def _decoded(net: Network, x: str, bins: int, as_corners: bool) -> str:
    """Boxes [N, 4, A] of distances or of distributions over them, from the anchors' points."""
    place = "detections/decode"
    batch, _, anchors = net.shape(x)
    if bins > 1:
        x = net.reshape(x, (batch, 4, bins, anchors), f"{place}/bins")
        x = net.transpose(x, (0, 2, 1, 3), f"{place}/transpose")
        x = net.unary("Softmax", x, f"{place}/softmax", axes=(1,))
        weight = net.constant(f"{place}/expectation/weight", (1, bins, 1, 1))
        shape = (batch, 1, 4, anchors)
        x = net.op("Convolution", (x, weight), shape, net.dtype, f"{place}/expectation", **window())
        x = net.reshape(x, (batch, 4, anchors), f"{place}/distances")
    near, far = net.split(x, (2, 2), f"{place}/split")
    points = net.constant(f"{place}/points", (1, 2, anchors))
    low = net.eltwise("Subtract", points, near, f"{place}/low")
    high = net.eltwise("Add", points, far, f"{place}/high")
    if not as_corners:
        middle = net.eltwise("Add", low, high, f"{place}/middle")
        half = net.constant(f"{place}/half", (1, 1, 1))
        size = net.eltwise("Subtract", high, low, f"{place}/size")
        low, high = net.eltwise("Multiply", middle, half, f"{place}/centre"), size
    boxes = net.joined((low, high), f"{place}/concat", to_float=True)
    return net.scaled(boxes, f"{place}/stride", (1, 1, anchors))


def _best(net: Network, x: str, classes: int) -> str:
    """Return the best detections [N, 300, 6]: anchors by their best class, then pairs of anchor and class."""
    place = "detections/best"
    x = net.transpose(x, (0, 2, 1), f"{place}/transpose")
    batch, anchors, _ = net.shape(x)
    count = min(MOST_DETECTIONS, anchors)
    boxes, scores = net.split(x, (4, classes), f"{place}/split", axis=2)
    best = net.reduce("ReduceMax", scores, (2,), f"{place}/class")
    chosen = _largest(net, best, count, f"{place}/anchors")
    chosen = net.reshape(chosen, (batch, count, 1), f"{place}/anchors/column")
    scores = _fetched(net, scores, chosen, f"{place}/scores")
    flat = net.reshape(scores, (batch, count * classes), f"{place}/scores/flat")
    pairs = _largest(net, flat, count, f"{place}/pairs")
    values = net.reshape(pairs, (batch, count, 1), f"{place}/pairs/column")
    number = net.constant(f"{place}/classes", (1,), DType.INT32)
    label = net.eltwise("FloorMod", values, number, f"{place}/label")
    label = net.add("Convert", (label,), f"{place}/label/float", net.dtype)
    anchor = net.eltwise("Divide", values, number, f"{place}/anchor")
    boxes = _fetched(net, _fetched(net, boxes, chosen, f"{place}/boxes0"), anchor, f"{place}/boxes")
    score = net.reshape(f"{place}/pairs", (batch, count, 1), f"{place}/score")
    return net.joined((boxes, score, label), f"{place}/output", 2, to_float=True)


def _largest(net: Network, x: str, count: int, name: str) -> str:
    """Add a TopK over the last axis and return the name of its indices; the values have the name itself."""
    batch = net.shape(x)[0]
    number = net.constant(f"{name}/count", (), DType.INT32)
    values = Tensor(name, (batch, count), net.tensors[x].dtype)
    indices = Tensor(f"{name}:1", (batch, count), DType.INT32)
    operator = Operator(name, "TopK", (x, number), (name, indices.name), {"axes": (1,)}, net.region)
    net.add_operator(operator, [values, indices])
    return indices.name


def _fetched(net: Network, x: str, rows: str, name: str) -> str:
    """Add a GatherElements of whole rows: the indices repeated along the last axis."""
    batch, count, _ = net.shape(rows)
    shape = (batch, count, net.shape(x)[2])
    repeated = net.op("Broadcast", (rows,), shape, DType.INT32, f"{name}/rows")
    dtype = net.tensors[x].dtype
    return net.op("GatherElements", (x, repeated), shape, dtype, name, axes=(1,))
