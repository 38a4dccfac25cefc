"""Convolutional networks: classifiers, U-Net, and detectors as in the Open Model Zoo."""

import math
from collections.abc import Sequence
from typing import Any

from npusim.graph import Graph
from npusim.workloads.network import Network, window


def build_resnet_50(net: Network, x: str, classes: int) -> Graph:
    """Build ResNet-50 with the stride in the 3x3 convolution of a block (version 1.5)."""
    x = net.convolution(x, 64, "stem", 7, 2, "Relu")
    x = net.max_pool(x, "stem/pool", 3, 2)
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            x = _bottleneck(net, x, width, 2 if stage and not block else 1, f"stage{stage}/block{block}")
    return _classified(net, x, classes)


def _classified(net: Network, x: str, classes: int) -> Graph:
    """Return the network with the mean over pixels and a linear layer at its end."""
    x = net.mean_pool(x, "head/pool")
    x = net.reshape(x, net.shape(x)[:2], "head/flatten")
    return net.finish(net.linear(x, classes, "head/classes", to_float=True))


def _bottleneck(net: Network, x: str, width: int, stride: int, name: str) -> str:
    """Add three convolutions and a shortcut, which is a convolution where the shape changes."""
    shortcut = x
    if net.shape(x)[1] != 4 * width:
        shortcut = net.convolution(x, 4 * width, f"{name}/shortcut", 1, stride)
    x = net.convolution(x, width, f"{name}/reduce", 1, 1, "Relu")
    x = net.convolution(x, width, f"{name}/spatial", 3, stride, "Relu")
    x = net.convolution(x, 4 * width, f"{name}/expand")
    return net.activation("Relu", net.add(x, shortcut, f"{name}/add"), name)


_BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, output channels, repetitions and stride of each stage (Table 2 of the paper)."""


def build_mobilenet_v2(net: Network, x: str, classes: int) -> Graph:
    """Build MobileNet-v2 of width 1."""
    x = net.convolution(x, 32, "stem", 3, 2, "Clamp")
    for stage, (expansion, width, blocks, stride) in enumerate(_BLOCKS):
        for block in range(blocks):
            place = f"stage{stage}/block{block}"
            x = _inverted_residual(net, x, width, expansion, 1 if block else stride, place)
    x = net.convolution(x, 1280, "head/expand", activation="Clamp")
    return _classified(net, x, classes)


def _inverted_residual(net: Network, x: str, width: int, expansion: int, stride: int, name: str) -> str:
    source, channels = x, net.shape(x)[1]
    if expansion > 1:
        channels *= expansion
        x = net.convolution(x, channels, f"{name}/expand", activation="Clamp")
    x = net.convolution(x, channels, f"{name}/depthwise", 3, stride, "Clamp", groups=channels)
    x = net.convolution(x, width, f"{name}/project")
    return net.add(source, x, f"{name}/add") if net.shape(x) == net.shape(source) else x


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
        x = _double(net, net.concat((levels[i], x), f"up{i}/concat"), _WIDTHS[i], f"up{i}")
    return net.finish(net.convolution(x, classes, "classes", to_float=True))


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
    return net.finish(_detections(net, boxes, scores, classes))


def _flat(net: Network, x: str, name: str) -> str:
    """Lay the channels of a map innermost and return it as [N, -1]."""
    x = net.transpose(x, (0, 2, 3, 1), f"{name}/nhwc")
    batch, *size = net.shape(x)
    return net.reshape(x, (batch, math.prod(size)), f"{name}/flat")


def _detections(net: Network, boxes: Sequence[str], scores: Sequence[str], classes: int) -> str:
    """Join the maps and add DetectionOutput: [1, 1, N * 100, 7]."""
    net.editor.region = "detections"
    offsets = net.concat(boxes, "detections/boxes", to_float=True)
    joined = net.concat(scores, "detections/scores", to_float=True)
    confidences = net.activation("Sigmoid", joined, "detections")
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
"""Channels of the feature pyramid of D0 (Tan et al., 2020, Table 1)."""
_LAYERS = 3
_ANCHORS = 9


def build_efficientdet_d0(net: Network, x: str, classes: int) -> Graph:
    """Build EfficientDet-D0: EfficientNet-B0, three layers of BiFPN, two heads shared by five levels."""
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
    scores = _head(net, maps, classes * _ANCHORS, "scores")
    return net.finish(_detections(net, boxes, scores, classes))


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
    net.editor.region = name
    total = ""
    for i, x in enumerate(inputs):
        x = _resampled(net, x, height, width, f"{name}/input{i}")
        x = net.scaled(x, f"{name}/input{i}/weighted")
        total = net.editor.eltwise("Add", total, x, f"{name}/sum{i}") if total else x
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


_BINS = 16
"""Bins of the distribution over a box's distance (`reg_max`)."""


def build_yolov8n(net: Network, x: str, classes: int) -> Graph:
    """Build YOLOv8n by `yolov8.yaml` at scale n: depth 1/3, width 1/4."""
    x = _conv(net, x, 16, "model0", 3, 2)
    x = _c2f(net, _conv(net, x, 32, "model1", 3, 2), 32, "model2", 1, True)
    p3 = _c2f(net, _conv(net, x, 64, "model3", 3, 2), 64, "model4", 2, True)
    p4 = _c2f(net, _conv(net, p3, 128, "model5", 3, 2), 128, "model6", 2, True)
    x = _c2f(net, _conv(net, p4, 256, "model7", 3, 2), 256, "model8", 1, True)
    p5 = _pooled(net, x, 256, "model9")
    x = _c2f(net, _above(net, p5, p4, "model11"), 128, "model12", 1, False)
    small = _c2f(net, _above(net, x, p3, "model14"), 64, "model15", 1, False)
    x = net.concat((_conv(net, small, 64, "model16", 3, 2), x), "model17")
    middle = _c2f(net, x, 128, "model18", 1, False)
    x = net.concat((_conv(net, middle, 128, "model19", 3, 2), p5), "model20")
    large = _c2f(net, x, 256, "model21", 1, False)
    return _yolo_detections(net, (small, middle, large), classes, separable=False)


def build_yolo11n(net: Network, x: str, classes: int) -> Graph:
    """Build YOLO11n by `yolo11.yaml` at scale n: depth 1/2, width 1/4."""
    x = _conv(net, x, 16, "model0", 3, 2)
    x = _c3k2(net, _conv(net, x, 32, "model1", 3, 2), 64, "model2", False, 0.25)
    p3 = _c3k2(net, _conv(net, x, 64, "model3", 3, 2), 128, "model4", False, 0.25)
    p4 = _c3k2(net, _conv(net, p3, 128, "model5", 3, 2), 128, "model6", True)
    x = _c3k2(net, _conv(net, p4, 256, "model7", 3, 2), 256, "model8", True)
    p5 = _attended(net, _pooled(net, x, 256, "model9"), "model10")
    x = _c3k2(net, _above(net, p5, p4, "model12"), 128, "model13", False)
    small = _c3k2(net, _above(net, x, p3, "model15"), 64, "model16", False)
    x = net.concat((_conv(net, small, 64, "model17", 3, 2), x), "model18")
    middle = _c3k2(net, x, 128, "model19", False)
    x = net.concat((_conv(net, middle, 128, "model20", 3, 2), p5), "model21")
    large = _c3k2(net, x, 256, "model22", True)
    return _yolo_detections(net, (small, middle, large), classes, separable=True)


def _conv(
    net: Network, x: str, width: int, name: str, kernel: int = 1, stride: int = 1, groups: int = 1
) -> str:
    return net.convolution(x, width, name, kernel, stride, "Swish", groups)


def _yolo_bottleneck(net: Network, x: str, hidden: int, name: str, shortcut: bool) -> str:
    width = net.shape(x)[1]
    y = _conv(net, _conv(net, x, hidden, f"{name}/conv1", 3), width, f"{name}/conv2", 3)
    return net.add(x, y, f"{name}/add") if shortcut else y


def _c2f(net: Network, x: str, width: int, name: str, depth: int, shortcut: bool) -> str:
    """Two branches and the result of every bottleneck along the second, joined."""
    half = width // 2
    parts = _halves(net, x, half, name)
    for i in range(depth):
        parts.append(_yolo_bottleneck(net, parts[-1], half, f"{name}/block{i}", shortcut))
    return _conv(net, net.concat(parts, f"{name}/concat"), width, f"{name}/conv2")


def _halves(net: Network, x: str, width: int, name: str) -> list[str]:
    """Return two branches of a width, by a convolution and a split."""
    return net.split(net.rounded(_conv(net, x, 2 * width, f"{name}/conv1")), (width, width), f"{name}/split")


def _c3k2(net: Network, x: str, width: int, name: str, nested: bool, share: float = 0.5) -> str:
    """C2f of one inner block, a bottleneck or a C3 of two; `share` of the width is each branch's."""
    part = int(width * share)
    parts = _halves(net, x, part, name)
    inner = f"{name}/block0"
    if nested:
        half = part // 2
        y = _conv(net, parts[1], half, f"{inner}/conv1")
        for i in range(2):
            y = _yolo_bottleneck(net, y, half, f"{inner}/block{i}", True)
        shortcut = _conv(net, parts[1], half, f"{inner}/conv2")
        y = _conv(net, net.concat((y, shortcut), f"{inner}/concat"), part, f"{inner}/conv3")
    else:
        y = _yolo_bottleneck(net, parts[1], part // 2, inner, True)
    return _conv(net, net.concat((*parts, y), f"{name}/concat"), width, f"{name}/conv2")


def _pooled(net: Network, x: str, width: int, name: str) -> str:
    """SPPF: join a map and its maxima over windows of 5, 9 and 13, pooled one after another."""
    parts = [net.rounded(_conv(net, x, net.shape(x)[1] // 2, f"{name}/conv1"))]
    for i in range(3):
        parts.append(net.max_pool(parts[-1], f"{name}/pool{i}", 5, 1))
    return _conv(net, net.concat(parts, f"{name}/concat"), width, f"{name}/conv2")


def _above(net: Network, x: str, finer: str, name: str) -> str:
    """Join a map, twice as high and wide, with one of that size."""
    height, width = net.shape(finer)[2:]
    larger = net.upsample(net.rounded(x), height, width, f"{name}/upsample")
    return net.concat((larger, finer), f"{name}/concat")


def _attended(net: Network, x: str, name: str) -> str:
    """C2PSA: half of the channels pass through attention over pixels and a feed-forward block."""
    half = net.shape(x)[1] // 2
    kept, x = _halves(net, x, half, name)
    x = net.add(x, _pixel_attention(net, x, f"{name}/attention"), f"{name}/add")
    y = net.convolution(_conv(net, x, 2 * half, f"{name}/feed1"), half, f"{name}/feed2")
    x = net.add(x, y, f"{name}/feed_add")
    return _conv(net, net.concat((kept, x), f"{name}/concat"), 2 * half, f"{name}/conv2")


def _pixel_attention(net: Network, x: str, name: str) -> str:
    """Attention of heads of 64 channels, keys half as long, with a depthwise positional term."""
    batch, channels, height, width = net.shape(x)
    heads, key = channels // 64, 32
    y = net.convolution(x, channels + 2 * heads * key, f"{name}/qkv")
    y = net.reshape(y, (batch, heads, 2 * key + 64, height * width), f"{name}/heads")
    query, keys, values = net.split(y, (key, key, 64), f"{name}/split", axis=2)
    query = net.scaled(query, f"{name}/scale")
    scores = net.product(query, keys, f"{name}/scores", transpose_a=True, to_float=True)
    weights = net.editor.unary("Softmax", scores, f"{name}/softmax", axes=(3,))
    y = net.product(values, weights, f"{name}/values", transpose_b=True)
    y = net.reshape(y, (batch, channels, height, width), f"{name}/join_heads")
    values = net.reshape(values, (batch, channels, height, width), f"{name}/values_map")
    position = net.convolution(values, channels, f"{name}/position", 3, groups=channels)
    return net.convolution(net.add(y, position, f"{name}/add"), channels, f"{name}/project")


def _yolo_detections(net: Network, maps: Sequence[str], classes: int, separable: bool) -> Graph:
    """The head without anchors: boxes as distributions over distances, and classes, [N, 4 + classes, A]."""
    first = net.shape(maps[0])[1]
    hidden, wide = max(_BINS, first // 4, 4 * _BINS), max(first, min(classes, 100))
    boxes, scores = [], []
    for i, x in enumerate(maps):
        y = _conv(net, _conv(net, x, hidden, f"head{i}/box0", 3), hidden, f"head{i}/box1", 3)
        boxes.append(_rows(net, net.convolution(y, 4 * _BINS, f"head{i}/box", to_float=True)))
        for step in range(2):
            place, channels = f"head{i}/class{step}", net.shape(x)[1]
            if separable:
                x = _conv(net, x, channels, f"{place}/depthwise", 3, groups=channels)
            x = _conv(net, x, wide, place, 1 if separable else 3)
        scores.append(_rows(net, net.convolution(x, classes, f"head{i}/class", to_float=True)))
    net.editor.region = "detections"
    decoded = _decoded(net, net.concat(boxes, "detections/boxes", 2, to_float=True))
    joined = net.concat(scores, "detections/classes", 2, to_float=True)
    probabilities = net.activation("Sigmoid", joined, "detections")
    return net.finish(net.concat((decoded, probabilities), "detections/output", to_float=True))


def _rows(net: Network, x: str) -> str:
    batch, channels, height, width = net.shape(x)
    return net.reshape(x, (batch, channels, height * width), f"{x}/rows")


def _decoded(net: Network, x: str) -> str:
    """Boxes [N, 4, A] of distributions [N, 64, A]: expected distances from the anchors' points."""
    editor, place = net.editor, "detections/decode"
    batch, _, anchors = net.shape(x)
    x = net.reshape(x, (batch, 4, _BINS, anchors), f"{place}/bins")
    x = net.transpose(x, (0, 2, 1, 3), f"{place}/transpose")
    x = editor.unary("Softmax", x, f"{place}/softmax", axes=(1,))
    weight = net.constant(f"{place}/expectation/weight", (1, _BINS, 1, 1))
    shape = (batch, 1, 4, anchors)
    x = editor.op("Convolution", (x, weight), shape, net.dtype, f"{place}/expectation", **window())
    near, far = net.split(net.reshape(x, (batch, 4, anchors), f"{place}/distances"), (2, 2), f"{place}/split")
    points = net.constant(f"{place}/points", (1, 2, anchors))
    low = editor.eltwise("Subtract", points, near, f"{place}/low")
    high = editor.eltwise("Add", points, far, f"{place}/high")
    middle = editor.eltwise("Add", low, high, f"{place}/middle")
    middle = editor.eltwise("Multiply", middle, net.constant(f"{place}/half", (1, 1, 1)), f"{place}/centre")
    size = editor.eltwise("Subtract", high, low, f"{place}/size")
    boxes = net.concat((middle, size), f"{place}/concat", to_float=True)
    return net.scaled(boxes, f"{place}/stride", (1, 1, anchors))


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
    x = net.convolution(_above(net, x, fine, "neck"), 256, "head1/conv", 3, activation="PRelu")
    outputs.append(_region(net, net.convolution(x, predicted, "head1/predict", to_float=True), "head1"))
    return net.finish(*outputs)


def _region(net: Network, x: str, name: str) -> str:
    """OpenVINO's RegionYolo: sigmoids of positions and classes of the three anchors."""
    return net.editor.unary("RegionYolo", x, f"{name}/region", num=3, do_softmax=False)
