"""ResNet-50 (He et al., 2016) and MobileNet-v2 (Sandler et al., 2018): classifiers of images."""

from __future__ import annotations

from npusim.graph import Graph
from npusim.workloads.cnn.spec import CnnSpec
from npusim.workloads.network import Network


def build_resnet_50(spec: CnnSpec, name: str) -> Graph:
    """Build ResNet-50 with the stride in the 3x3 convolution of a block (version 1.5)."""
    net = Network(name, spec.model, spec.precision)
    x = net.image(spec.batch, spec.height, spec.width)
    x = net.convolution(x, 64, "stem", 7, 2, "Relu")
    x = net.max_pool(x, "stem/pool", 3, 2)
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            x = _bottleneck(net, x, width, 2 if stage and not block else 1, f"stage{stage}/block{block}")
    x = net.mean_pool(x, "head/pool")
    x = net.reshape(x, (spec.batch, 2048), "head/flatten")
    return net.finish(net.linear(x, spec.classes, "head/classes", to_float=True))


def _bottleneck(net: Network, x: str, width: int, stride: int, name: str) -> str:
    """Three convolutions beside a shortcut, which is a convolution where the shape changes."""
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


def build_mobilenet_v2(spec: CnnSpec, name: str) -> Graph:
    """Build MobileNet-v2 of width 1."""
    net = Network(name, spec.model, spec.precision)
    x = net.image(spec.batch, spec.height, spec.width)
    x = net.convolution(x, 32, "stem", 3, 2, "Clamp")
    for stage, (expansion, width, blocks, stride) in enumerate(_BLOCKS):
        for block in range(blocks):
            place = f"stage{stage}/block{block}"
            x = _inverted_residual(net, x, width, expansion, 1 if block else stride, place)
    x = net.convolution(x, 1280, "head/expand", activation="Clamp")
    x = net.mean_pool(x, "head/pool")
    x = net.reshape(x, (spec.batch, 1280), "head/flatten")
    return net.finish(net.linear(x, spec.classes, "head/classes", to_float=True))


def _inverted_residual(net: Network, x: str, width: int, expansion: int, stride: int, name: str) -> str:
    source, channels = x, net.shape(x)[1]
    if expansion > 1:
        channels *= expansion
        x = net.convolution(x, channels, f"{name}/expand", activation="Clamp")
    x = net.convolution(x, channels, f"{name}/depthwise", 3, stride, "Clamp", groups=channels)
    x = net.convolution(x, width, f"{name}/project")
    return net.add(source, x, f"{name}/add") if net.shape(x) == net.shape(source) else x
