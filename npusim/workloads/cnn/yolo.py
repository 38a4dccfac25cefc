"""YOLOv8n, YOLO11n (Ultralytics) and YOLO v3 tiny: detectors of one stage."""

from __future__ import annotations

from collections.abc import Sequence

from npusim.graph import Graph
from npusim.workloads.cnn.spec import CnnSpec
from npusim.workloads.network import Network, window

_BINS = 16
"""Bins of the distribution over a box's distance (`reg_max`)."""


def build_yolov8n(spec: CnnSpec, name: str) -> Graph:
    """Build YOLOv8n by `yolov8.yaml` at scale n: depth 1/3, width 1/4."""
    net = Network(name, spec.model, spec.precision)
    x = net.image(spec.batch, spec.height, spec.width)
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
    return _detections(net, (small, middle, large), spec.classes, separable=False)


def build_yolo11n(spec: CnnSpec, name: str) -> Graph:
    """Build YOLO11n by `yolo11.yaml` at scale n: depth 1/2, width 1/4."""
    net = Network(name, spec.model, spec.precision)
    x = net.image(spec.batch, spec.height, spec.width)
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
    return _detections(net, (small, middle, large), spec.classes, separable=True)


def _conv(
    net: Network, x: str, width: int, name: str, kernel: int = 1, stride: int = 1, groups: int = 1
) -> str:
    return net.convolution(x, width, name, kernel, stride, "Swish", groups)


def _bottleneck(net: Network, x: str, hidden: int, name: str, shortcut: bool) -> str:
    width = net.shape(x)[1]
    y = _conv(net, _conv(net, x, hidden, f"{name}/conv1", 3), width, f"{name}/conv2", 3)
    return net.add(x, y, f"{name}/add") if shortcut else y


def _c2f(net: Network, x: str, width: int, name: str, depth: int, shortcut: bool) -> str:
    """Two branches and the result of every bottleneck along the second, joined."""
    half = width // 2
    parts = net.split(net.rounded(_conv(net, x, width, f"{name}/conv1")), (half, half), f"{name}/split")
    for i in range(depth):
        parts.append(_bottleneck(net, parts[-1], half, f"{name}/block{i}", shortcut))
    return _conv(net, net.concat(parts, f"{name}/concat"), width, f"{name}/conv2")


def _c3k2(net: Network, x: str, width: int, name: str, nested: bool, share: float = 0.5) -> str:
    """C2f of one inner block, a bottleneck or a C3 of two; `share` of the width is each branch's."""
    part = int(width * share)
    parts = net.split(net.rounded(_conv(net, x, 2 * part, f"{name}/conv1")), (part, part), f"{name}/split")
    inner = f"{name}/block0"
    if nested:
        half = part // 2
        y = _conv(net, parts[1], half, f"{inner}/conv1")
        for i in range(2):
            y = _bottleneck(net, y, half, f"{inner}/block{i}", True)
        beside = _conv(net, parts[1], half, f"{inner}/conv2")
        y = _conv(net, net.concat((y, beside), f"{inner}/concat"), part, f"{inner}/conv3")
    else:
        y = _bottleneck(net, parts[1], part // 2, inner, True)
    return _conv(net, net.concat((*parts, y), f"{name}/concat"), width, f"{name}/conv2")


def _pooled(net: Network, x: str, width: int, name: str) -> str:
    """SPPF: a map beside its maxima over windows of 5, 9 and 13, pooled one after another."""
    parts = [net.rounded(_conv(net, x, net.shape(x)[1] // 2, f"{name}/conv1"))]
    for i in range(3):
        parts.append(net.max_pool(parts[-1], f"{name}/pool{i}", 5, 1))
    return _conv(net, net.concat(parts, f"{name}/concat"), width, f"{name}/conv2")


def _above(net: Network, x: str, beside: str, name: str) -> str:
    """Join a map, twice as high and wide, with one of that size."""
    height, width = net.shape(beside)[2:]
    return net.concat(
        (net.upsample(net.rounded(x), height, width, f"{name}/upsample"), beside), f"{name}/concat"
    )


def _attended(net: Network, x: str, name: str) -> str:
    """C2PSA: half of the channels pass through attention over pixels and a feed-forward block."""
    half = net.shape(x)[1] // 2
    kept, x = net.split(net.rounded(_conv(net, x, 2 * half, f"{name}/conv1")), (half, half), f"{name}/split")
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


def _detections(net: Network, maps: Sequence[str], classes: int, separable: bool) -> Graph:
    """The head without anchors: boxes as distributions over distances, and classes, [N, 4 + classes, A]."""
    first = net.shape(maps[0])[1]
    hidden, wide = max(_BINS, first // 4, 4 * _BINS), max(first, min(classes, 100))
    boxes, scores = [], []
    for i, x in enumerate(maps):
        y = x
        for step in range(2):
            y = _conv(net, y, hidden, f"head{i}/box{step}", 3)
        boxes.append(_rows(net, net.convolution(y, 4 * _BINS, f"head{i}/box", to_float=True)))
        for step in range(2):
            place, channels = f"head{i}/class{step}", net.shape(x)[1]
            if separable:
                x = _conv(net, x, channels, f"{place}/depthwise", 3, groups=channels)
            x = _conv(net, x, wide, place, 1 if separable else 3)
        scores.append(_rows(net, net.convolution(x, classes, f"head{i}/class", to_float=True)))
    net.editor.region = "detections"
    found = _decoded(net, net.concat(boxes, "detections/boxes", 2, to_float=True))
    joined = net.concat(scores, "detections/classes", 2, to_float=True)
    probabilities = net.activation("Sigmoid", joined, "detections")
    return net.finish(net.concat((found, probabilities), "detections/output", to_float=True))


def _rows(net: Network, x: str) -> str:
    batch, channels, height, width = net.shape(x)
    return net.reshape(x, (batch, channels, height * width), f"{x}/rows")


def _decoded(net: Network, x: str) -> str:
    """Boxes [N, 4, A] of distributions [N, 64, A]: expected distances from the anchors' points."""
    editor, place = net.editor, "detections/decode"
    batch, _, anchors = net.shape(x)
    x = net.reshape(x, (batch, 4, _BINS, anchors), f"{place}/bins")
    x = editor.unary(
        "Softmax", net.transpose(x, (0, 2, 1, 3), f"{place}/transpose"), f"{place}/softmax", axes=(1,)
    )
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


def build_yolo_v3_tiny(spec: CnnSpec, name: str) -> Graph:
    """Build YOLO v3 tiny: leaky ReLUs, six poolings, two maps of three anchors, each ending in RegionYolo."""
    net = Network(name, spec.model, spec.precision, same_upper=True)
    x = net.image(spec.batch, spec.height, spec.width)
    route = ""
    for i, width in enumerate((16, 32, 64, 128, 256, 512)):
        x = route = net.convolution(x, width, f"backbone/conv{i}", 3, activation="PRelu")
        if i == 4:
            fine = route
        x = net.max_pool(x, f"backbone/pool{i}", 2, 1 if i == 5 else 2)
    x = net.convolution(x, 1024, "backbone/conv6", 3, activation="PRelu")
    x = net.convolution(x, 256, "neck/reduce", activation="PRelu")
    predicted = 3 * (5 + spec.classes)
    coarse = net.convolution(x, 512, "head0/conv", 3, activation="PRelu")
    outputs = [_region(net, net.convolution(coarse, predicted, "head0/predict", to_float=True), "head0")]
    x = net.convolution(x, 128, "neck/narrow", activation="PRelu")
    x = net.convolution(_above(net, x, fine, "neck"), 256, "head1/conv", 3, activation="PRelu")
    outputs.append(_region(net, net.convolution(x, predicted, "head1/predict", to_float=True), "head1"))
    return net.finish(*outputs)


def _region(net: Network, x: str, name: str) -> str:
    """OpenVINO's RegionYolo: sigmoids of positions and classes of the three anchors."""
    return net.editor.unary("RegionYolo", x, f"{name}/region", num=3, do_softmax=False)
