"""U-Net (Ronneberger et al., 2015) with padded convolutions: a class for every pixel."""

from __future__ import annotations

from npusim.graph import Graph
from npusim.workloads.cnn.spec import CnnSpec
from npusim.workloads.network import Network

_WIDTHS = (64, 128, 256, 512, 1024)


def build_unet(spec: CnnSpec, name: str) -> Graph:
    """Build U-Net: five levels of 64 to 1024 channels, up again by transposed convolutions 2x2."""
    net = Network(name, spec.model, spec.precision)
    x = net.image(spec.batch, spec.height, spec.width)
    levels = []
    for i, width in enumerate(_WIDTHS):
        if i:
            x = net.max_pool(x, f"down{i}/pool", 2, 2)
        x = _double(net, x, width, f"down{i}")
        levels.append(x)
    for i in reversed(range(len(_WIDTHS) - 1)):
        x = net.upward_convolution(x, _WIDTHS[i], f"up{i}/upsample")
        x = _double(net, net.concat((levels[i], x), f"up{i}/concat"), _WIDTHS[i], f"up{i}")
    return net.finish(net.convolution(x, spec.classes, "classes", to_float=True))


def _double(net: Network, x: str, width: int, name: str) -> str:
    for step in range(2):
        x = net.convolution(x, width, f"{name}/conv{step}", 3, activation="Relu")
    return x
