"""SSD with MobileNet-v1 and EfficientDet-D0: detectors with anchors, as in the Open Model Zoo.

Both end in OpenVINO's DetectionOutput, which decodes boxes against constant anchors and suppresses
non-maxima.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from npusim.graph import Graph
from npusim.workloads.cnn.spec import CnnSpec
from npusim.workloads.network import Network

_KEPT = 100
"""Detections of an image that are returned (both configurations of TensorFlow)."""
_MOBILENET_V1 = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *(((512, 1),) * 5), (1024, 2), (1024, 1)
)  # fmt: skip
"""Output channels and stride of the depthwise-separable convolutions (Howard et al., 2017, Table 1)."""


def build_ssd_mobilenet_v1(spec: CnnSpec, name: str) -> Graph:
    """Build `ssd_mobilenet_v1_coco`: 1917 anchors on six maps at 300 x 300."""
    net = Network(name, spec.model, spec.precision, same_upper=True)
    x = net.image(spec.batch, spec.height, spec.width)
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
    boxes: list[str] = []
    scores: list[str] = []
    for i, level in enumerate(maps):
        anchors = 6 if i else 3
        for found, each, what in ((boxes, 4, "boxes"), (scores, spec.classes, "scores")):
            place = f"head{i}/{what}"
            found.append(_flat(net, net.convolution(level, anchors * each, place, to_float=True), place))
    return net.finish(_detections(net, boxes, scores, spec.classes))


def _flat(net: Network, x: str, name: str) -> str:
    """Lay the channels of a map innermost and return it as [N, -1]."""
    x = net.transpose(x, (0, 2, 3, 1), f"{name}/nhwc")
    batch, *size = net.shape(x)
    return net.reshape(x, (batch, math.prod(size)), f"{name}/flat")


def _detections(net: Network, boxes: Sequence[str], scores: Sequence[str], classes: int) -> str:
    """Join the maps and add DetectionOutput: [1, 1, N * 100, 7]."""
    net.editor.region = "detections"
    offsets = net.concat(boxes, "detections/boxes", to_float=True)
    confidences = net.activation(
        "Sigmoid", net.concat(scores, "detections/scores", to_float=True), "detections"
    )
    batch, length = net.shape(offsets)
    anchors = net.constant("detections/anchors", (1, 2, length))
    inputs = (offsets, confidences, anchors)
    attrs: dict[str, Any] = {"num_classes": classes, "top_k": _KEPT, "keep_top_k": (_KEPT,)}
    shape = (1, 1, batch * _KEPT, 7)
    return net.editor.op("DetectionOutput", inputs, shape, net.dtype, "detections/output", **attrs)


_EFFICIENTNET_B0 = (
    (3, 1, 1, 16, 1), (3, 2, 6, 24, 2), (5, 2, 6, 40, 2), (3, 2, 6, 80, 3), (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4), (3, 1, 6, 320, 1),
)  # fmt: skip
"""Kernel, stride, expansion, output channels and repetitions of a stage (Tan and Le, 2019, Table 1)."""
_PYRAMID = 64
"""Channels of the feature pyramid of D0 (Tan et al., 2020, Table 1); it has 3 layers, the heads too."""
_LAYERS = 3
_ANCHORS = 9


def build_efficientdet_d0(spec: CnnSpec, name: str) -> Graph:
    """Build EfficientDet-D0: EfficientNet-B0, three layers of BiFPN, two heads shared by five levels."""
    net = Network(name, spec.model, spec.precision, same_upper=True)
    x = net.image(spec.batch, spec.height, spec.width)
    x = net.convolution(x, 32, "backbone/stem", 3, 2, "Swish")
    maps = []
    for stage, (kernel, stride, expansion, width, blocks) in enumerate(_EFFICIENTNET_B0):
        for block in range(blocks):
            place = f"backbone/stage{stage}/block{block}"
            x = _mobile_block(net, x, kernel, 1 if block else stride, expansion, width, place)
        if stage in (2, 4, 6):
            maps.append(x)
    for layer in range(_LAYERS):
        maps = _pyramid_layer(net, maps, f"pyramid{layer}")
    boxes = _head(net, maps, 4 * _ANCHORS, "boxes")
    scores = _head(net, maps, spec.classes * _ANCHORS, "scores")
    return net.finish(_detections(net, boxes, scores, spec.classes))


def _mobile_block(
    net: Network, x: str, kernel: int, stride: int, expansion: int, width: int, name: str
) -> str:
    """An inverted residual with squeeze and excitation."""
    source, inputs = x, net.shape(x)[1]
    if expansion > 1:
        x = net.convolution(x, expansion * inputs, f"{name}/expand", activation="Swish")
    channels = expansion * inputs
    x = net.convolution(x, channels, f"{name}/depthwise", kernel, stride, "Swish", groups=channels)
    squeezed = net.mean_pool(x, f"{name}/squeeze")
    squeezed = net.convolution(squeezed, max(1, inputs // 4), f"{name}/squeeze/reduce", activation="Swish")
    squeezed = net.convolution(squeezed, channels, f"{name}/squeeze/expand", activation="Sigmoid")
    x = net.editor.eltwise("Multiply", x, squeezed, f"{name}/excite")
    x = net.convolution(x, width, f"{name}/project")
    return net.add(x, source, f"{name}/add") if net.shape(x) == net.shape(source) else x


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
        height, width = net.shape(maps[-1])[2:]
        maps.append(
            _resampled(net, maps[-1], -(-height // 2), -(-width // 2), f"{name}/level{len(maps) + 3}")
        )
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
    net.editor.region = name
    total = ""
    for i, x in enumerate(inputs):
        x = _resampled(net, x, height, width, f"{name}/input{i}")
        x = net.scaled(x, f"{name}/input{i}/weighted")
        total = net.editor.eltwise("Add", total, x, f"{name}/sum{i}") if total else x
    x = net.activation("Swish", total, name)
    x = net.convolution(x, _PYRAMID, f"{name}/depthwise", 3, groups=_PYRAMID, bias=False)
    return net.convolution(x, _PYRAMID, f"{name}/pointwise", to_float=True)


def _head(net: Network, maps: Sequence[str], width: int, name: str) -> list[str]:
    """Predict from every level with the same weights; biases (batch normalisation) are each level's own."""
    found = []
    for level, x in enumerate(maps, start=3):
        for layer in range(_LAYERS + 1):
            place, first = (f"head/{name}{i}/layer{layer}" for i in (level, 3))
            last = layer == _LAYERS
            x = net.convolution(
                x, _PYRAMID, f"{place}/depthwise", 3, groups=_PYRAMID, bias=False, shared=f"{first}/depthwise"
            )
            x = net.convolution(
                x,
                width if last else _PYRAMID,
                f"{place}/pointwise",
                activation="" if last else "Swish",
                to_float=last,
                shared=f"{first}/pointwise",
            )
        found.append(_flat(net, x, f"head/{name}{level}"))
    return found
