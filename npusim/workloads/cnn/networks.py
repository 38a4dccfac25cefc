"""Convolutional networks without a table of blocks: U-Net, and detectors of the Open Model Zoo."""

import math
from collections.abc import Sequence
from typing import Any

from npusim.graph import Graph
from npusim.workloads.cnn.blocks import above
from npusim.workloads.cnn.table import build_rows, shipped_table
from npusim.workloads.network import Network

_WIDTHS = (64, 128, 256, 512, 1024)


def build_unet(net: Network, x: str, classes: int) -> Graph:
    """Build U-Net: five levels of 64 to 1024 channels, up again by transposed convolutions 2x2."""
    levels = []
    for i, width in enumerate(_WIDTHS):
        if i:
            x = net.max_pool(x, f"down{i}/pool", 2, 2)
        x = _double(net, x, width, f"down{i}")
        levels.append(x)
    for i in reversed(range(len(_WIDTHS) - 1)):
        x = net.upward_convolution(x, _WIDTHS[i], f"up{i}/upsample")
        x = _double(net, net.joined((levels[i], x), f"up{i}/concat"), _WIDTHS[i], f"up{i}")
    return net.finished(net.convolution(x, classes, "classes", to_float=True))


def _double(net: Network, x: str, width: int, name: str) -> str:
    for step in range(2):
        x = net.convolution(x, width, f"{name}/conv{step}", 3, activation="Relu")
    return x


_KEPT = 100
"""Detections of an image that are returned (both configurations of TensorFlow)."""
_MOBILENET_V1 = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *(((512, 1),) * 5), (1024, 2), (1024, 1)
)  # fmt: skip
"""Output channels and stride of the depthwise-separable convolutions (Howard et al., 2017, Table 1)."""


def build_ssd_mobilenet_v1(net: Network, x: str, classes: int) -> Graph:
    """Build `ssd_mobilenet_v1_coco`: 1917 anchors on six maps at 300 x 300."""
    x = net.convolution(x, 32, "backbone/stem", 3, 2, "Clamp")
    maps = []
    for i, (width, stride) in enumerate(_MOBILENET_V1, start=1):
        channels = net.shape(x)[1]
        x = net.convolution(x, channels, f"backbone/block{i}/depthwise", 3, stride, "Clamp", groups=channels)
        x = net.convolution(x, width, f"backbone/block{i}/pointwise", activation="Clamp")
        if i in (11, 13):
            maps.append(x)
    for i, width in enumerate((512, 256, 256, 128), start=2):
        x = net.convolution(x, width // 2, f"extra{i}/reduce", activation="Clamp")
        x = net.convolution(x, width, f"extra{i}/spatial", 3, 2, "Clamp")
        maps.append(x)
    boxes, scores = list[str](), list[str]()
    for i, level in enumerate(maps):
        anchors = 6 if i else 3
        for predictions, length, what in ((boxes, 4, "boxes"), (scores, classes, "scores")):
            x = net.convolution(level, anchors * length, f"head{i}/{what}", to_float=True)
            predictions.append(_flat(net, x, f"head{i}/{what}"))
    return net.finished(_detections(net, boxes, scores, classes))


def _flat(net: Network, x: str, name: str) -> str:
    """Lay the channels of a map innermost and return it as [N, -1]."""
    x = net.transpose(x, (0, 2, 3, 1), f"{name}/nhwc")
    batch, *size = net.shape(x)
    return net.reshape(x, (batch, math.prod(size)), f"{name}/flat")


def _detections(net: Network, boxes: Sequence[str], scores: Sequence[str], classes: int) -> str:
    """Join the maps and add DetectionOutput: [1, 1, N * 100, 7]."""
    net.region = "detections"
    offsets = net.joined(boxes, "detections/boxes", to_float=True)
    joined = net.joined(scores, "detections/scores", to_float=True)
    confidences = net.activation("Sigmoid", joined, "detections")
    batch, length = net.shape(offsets)
    anchors = net.constant("detections/anchors", (1, 2, length))
    inputs = (offsets, confidences, anchors)
    attrs: dict[str, Any] = {"num_classes": classes, "top_k": _KEPT, "keep_top_k": (_KEPT,)}
    shape = (1, 1, batch * _KEPT, 7)
    return net.op("DetectionOutput", inputs, shape, net.dtype, "detections/output", **attrs)


_PYRAMID = 64
"""Channels of the feature pyramid of D0 (Tan et al., 2020, Table 1)."""
_LAYERS = 3
_ANCHORS = 9


def build_efficientdet_d0(net: Network, x: str, classes: int) -> Graph:
    """Build EfficientDet-D0: EfficientNet-B0, three layers of BiFPN, two heads shared by five levels."""
    stages = build_rows(net, x, shipped_table("efficientnet_b0"), "backbone/")[1:]
    maps = [stages[stage] for stage in (2, 4, 6)]
    for layer in range(_LAYERS):
        maps = _pyramid_layer(net, maps, f"pyramid{layer}")
    boxes = _head(net, maps, 4 * _ANCHORS, "boxes")
    scores = _head(net, maps, classes * _ANCHORS, "scores")
    return net.finished(_detections(net, boxes, scores, classes))


def _resampled(net: Network, x: str, height: int, width: int, name: str) -> str:
    """Return a map of the pyramid's channels at a height and width."""
    if net.shape(x)[1] != _PYRAMID:
        x = net.convolution(x, _PYRAMID, name, to_float=True)
    if net.shape(x)[2] > height:
        return net.max_pool(x, f"{name}/pool", 3, 2)
    return x if net.shape(x)[2] == height else net.upsample(x, height, width, f"{name}/upsample")


def _pyramid_layer(net: Network, maps: list[str], name: str) -> list[str]:
    """One BiFPN layer: from the coarsest level down, then up again (Tan et al., 2020, Fig. 2d)."""
    maps = list(maps)
    while len(maps) < 5:
        height, width = (-(-length // 2) for length in net.shape(maps[-1])[2:])
        maps.append(_resampled(net, maps[-1], height, width, f"{name}/level{len(maps) + 3}"))
    down = {4: maps[4]}
    for level in (3, 2, 1, 0):
        down[level] = _fused(net, (maps[level], down[level + 1]), f"{name}/down{level + 3}")
    up = [down[0]]
    for level in (1, 2, 3, 4):
        inputs = (maps[level], down[level], up[-1]) if level < 4 else (maps[level], up[-1])
        up.append(_fused(net, inputs, f"{name}/up{level + 3}"))
    return up


def _fused(net: Network, inputs: Sequence[str], name: str) -> str:
    """The weighted sum of maps at the first one's size, and a separable convolution over it."""
    height, width = net.shape(inputs[0])[2:]
    net.region = name
    total = ""
    for i, x in enumerate(inputs):
        x = _resampled(net, x, height, width, f"{name}/input{i}")
        x = net.scaled(x, f"{name}/input{i}/weighted")
        total = net.eltwise("Add", total, x, f"{name}/sum{i}") if total else x
    x = net.activation("Swish", total, name)
    return _separable(net, x, _PYRAMID, name, to_float=True)


def _separable(
    net: Network, x: str, width: int, name: str, to_float: bool, shared: str = "", activation: str = ""
) -> str:
    """Add a depthwise 3x3 and a pointwise convolution; `shared` is the region whose weights they use."""
    place = shared or name
    x = net.convolution(
        x, _PYRAMID, f"{name}/depthwise", 3, groups=_PYRAMID, bias=False, shared=f"{place}/depthwise"
    )
    pointwise, weights = f"{name}/pointwise", f"{place}/pointwise"
    return net.convolution(x, width, pointwise, activation=activation, to_float=to_float, shared=weights)


def _head(net: Network, maps: Sequence[str], width: int, name: str) -> list[str]:
    """Predict from every level with the same weights; biases (batch normalisation) are each level's own."""
    predictions = []
    for level, x in enumerate(maps, start=3):
        for layer in range(_LAYERS + 1):
            place, shared = (f"head/{name}{i}/layer{layer}" for i in (level, 3))
            last = layer == _LAYERS
            x = _separable(net, x, width if last else _PYRAMID, place, last, shared, "" if last else "Swish")
        predictions.append(_flat(net, x, f"head/{name}{level}"))
    return predictions


def build_yolo_v3_tiny(net: Network, x: str, classes: int) -> Graph:
    """Build YOLO v3 tiny: leaky ReLUs, six poolings, two maps of three anchors, each ending in RegionYolo."""
    for i, width in enumerate((16, 32, 64, 128, 256, 512)):
        x = net.convolution(x, width, f"backbone/conv{i}", 3, activation="PRelu")
        if i == 4:
            fine = x
        x = net.max_pool(x, f"backbone/pool{i}", 2, 1 if i == 5 else 2)
    x = net.convolution(x, 1024, "backbone/conv6", 3, activation="PRelu")
    x = net.convolution(x, 256, "neck/reduce", activation="PRelu")
    predicted = 3 * (5 + classes)
    coarse = net.convolution(x, 512, "head0/conv", 3, activation="PRelu")
    outputs = [_region(net, net.convolution(coarse, predicted, "head0/predict", to_float=True), "head0")]
    x = net.convolution(x, 128, "neck/narrow", activation="PRelu")
    x = net.convolution(above(net, x, fine, "neck"), 256, "head1/conv", 3, activation="PRelu")
    outputs.append(_region(net, net.convolution(x, predicted, "head1/predict", to_float=True), "head1"))
    return net.finished(*outputs)


def _region(net: Network, x: str, name: str) -> str:
    """OpenVINO's RegionYolo: sigmoids of positions and classes of the three anchors."""
    return net.unary("RegionYolo", x, f"{name}/region", num=3, do_softmax=False)
