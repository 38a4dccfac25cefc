"""Modules of torch of many families, small: each a function that returns a module and its inputs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

IMAGE = (1, 3, 64, 64)


class Applied(nn.Module):
    """A module whose `forward` is a function of its parts and inputs."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleDict(parts)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self.parts, *inputs)


def image(module: nn.Module, *shape: int) -> tuple[nn.Module, Any]:
    return module, torch.randn(*(shape or IMAGE))


def block(inputs: int, outputs: int, activation: nn.Module, stride: int = 1, groups: int = 1) -> nn.Module:
    """Convolution, normalisation, activation."""
    conv = nn.Conv2d(inputs, outputs, 3, stride, 1, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), activation)


def inverted_residual() -> Any:
    def forward(parts: Any, x: Any) -> Any:
        x = parts["stem"](x)
        return parts["head"](x + parts["body"](x))

    body = nn.Sequential(
        nn.Conv2d(16, 96, 1), nn.ReLU6(), block(96, 96, nn.ReLU6(), groups=96), nn.Conv2d(96, 16, 1)
    )
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return image(Applied(forward, stem=block(3, 16, nn.ReLU6(), 2), body=body, head=head))


def residual() -> Any:
    def forward(parts: Any, x: Any) -> Any:
        x = parts["stem"](x)
        return F.relu(parts["body"](x) + parts["short"](x))

    body = nn.Sequential(block(16, 32, nn.ReLU(), 2), nn.Conv2d(32, 32, 3, 1, 1), nn.BatchNorm2d(32))
    stem = nn.Sequential(block(3, 16, nn.ReLU(), 2), nn.MaxPool2d(3, 2, 1))
    return image(Applied(forward, stem=stem, body=body, short=nn.Conv2d(16, 32, 1, 2)))


def squeeze_excitation() -> Any:
    def forward(parts: Any, x: Any) -> Any:
        x = parts["stem"](x)
        return parts["head"](x * parts["gate"](x))

    gate = nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 8, 1), nn.ReLU(), nn.Conv2d(8, 16, 1), nn.Hardsigmoid()
    )
    return image(
        Applied(forward, stem=block(3, 16, nn.Hardswish(), 2), gate=gate, head=block(16, 24, nn.Hardswish()))
    )


def unet() -> Any:
    def forward(parts: Any, x: Any) -> Any:
        wide = parts["down"](x)
        deep = parts["deep"](F.max_pool2d(wide, 2))
        return parts["last"](torch.cat([wide, parts["up"](deep)], dim=1))

    return image(
        Applied(
            forward,
            down=block(3, 16, nn.ReLU()),
            deep=block(16, 32, nn.ReLU()),
            up=nn.ConvTranspose2d(32, 16, 2, 2),
            last=nn.Conv2d(32, 2, 1),
        )
    )


def dilated_segmentation() -> Any:
    def forward(parts: Any, x: Any) -> Any:
        rates = [parts[f"rate{rate}"](x) for rate in (1, 2, 4)]
        return F.interpolate(torch.cat(rates, 1), scale_factor=4.0, mode="bilinear", align_corners=False)

    parts = {f"rate{rate}": nn.Conv2d(3, 8, 3, 1, rate, rate) for rate in (1, 2, 4)}
    return image(Applied(forward, **parts))


def channel_shuffle() -> Any:
    def forward(parts: Any, x: Any) -> Any:
        x = parts["first"](x)
        x = x.view(1, 4, 6, 32, 32).transpose(1, 2).reshape(1, 24, 32, 32)
        return parts["second"](x)

    first, second = nn.Conv2d(3, 24, 3, 2, 1), block(24, 24, nn.ReLU(), groups=4)
    return image(Applied(forward, first=first, second=second))


def gated_convolution() -> Any:
    """The convolution module of a Conformer."""
    body = nn.Sequential(
        nn.Conv1d(64, 128, 1),
        nn.GLU(1),
        nn.Conv1d(64, 64, 15, 1, 7, groups=64),
        nn.BatchNorm1d(64),
        nn.SiLU(),
    )
    return image(body, 1, 64, 100)


def transformer(layers: int = 2) -> Any:
    torch.backends.mha.set_fastpath_enabled(False)  # its fused operator has no name in ONNX
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, activation="gelu")
    return image(nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), 1, 32, 64)


def decoder_attention() -> Any:
    def forward(parts: Any, x: Any) -> Any:
        q, k, v = (parts[name](x).view(1, 32, 4, 16).transpose(1, 2) for name in "qkv")
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return parts["out"](out.transpose(1, 2).reshape(1, 32, 64))

    return image(Applied(forward, **{name: nn.Linear(64, 64) for name in ("q", "k", "v", "out")}), 1, 32, 64)


def gated_mlp() -> Any:
    def forward(parts: Any, x: Any) -> Any:
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return parts["down"](F.silu(parts["gate"](x)) * parts["up"](x))

    parts = {"gate": nn.Linear(64, 172), "up": nn.Linear(64, 172), "down": nn.Linear(172, 64)}
    return image(Applied(forward, **parts), 1, 16, 64)


def patches() -> Any:
    def forward(parts: Any, x: Any) -> Any:
        x = parts["embed"](x).flatten(2).transpose(1, 2)
        return parts["head"](parts["norm"](x + parts["mlp"](x)).mean(1))

    mlp = nn.Sequential(nn.LayerNorm(48), nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48))
    return image(
        Applied(forward, embed=nn.Conv2d(3, 48, 8, 8), mlp=mlp, norm=nn.LayerNorm(48), head=nn.Linear(48, 10))
    )


def convnext() -> Any:
    def forward(parts: Any, x: Any) -> Any:
        x = parts["stem"](x)
        y = parts["wide"](x).permute(0, 2, 3, 1)
        return x + parts["mlp"](parts["norm"](y)).permute(0, 3, 1, 2)

    mlp = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))
    return image(
        Applied(
            forward, stem=nn.Conv2d(3, 32, 4, 4), wide=nn.Conv2d(32, 32, 7, 1, 3, groups=32),
            norm=nn.LayerNorm(32), mlp=mlp,
        )
    )  # fmt: skip


def diffusion_block() -> Any:
    def forward(parts: Any, x: Any, time: Any) -> Any:
        y = parts["first"](x) + parts["time"](time)[:, :, None, None]
        return x + parts["second"](y)

    parts = {
        "first": nn.Sequential(nn.GroupNorm(4, 32), nn.SiLU(), nn.Conv2d(32, 32, 3, 1, 1)),
        "second": nn.Sequential(nn.GroupNorm(4, 32), nn.SiLU(), nn.Conv2d(32, 32, 3, 1, 1)),
        "time": nn.Sequential(nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 32)),
    }
    return Applied(forward, **parts), torch.randn(1, 32, 16, 16), torch.randn(1, 64)


def recurrent(kind: str, layers: int = 1, both: bool = False) -> Callable[[], Any]:
    def build() -> Any:
        layer = getattr(nn, kind)(32, 48, layers, batch_first=True, bidirectional=both)
        head = nn.Linear(96 if both else 48, 8)
        return image(
            Applied(lambda parts, x: parts["head"](parts["layer"](x)[0]), layer=layer, head=head), 1, 40, 32
        )

    return build


def text_classifier() -> Any:
    def forward(parts: Any, tokens: Any) -> Any:
        return parts["head"](parts["embed"](tokens).mean(1))

    parts = Applied(forward, embed=nn.Embedding(1000, 64), head=nn.Linear(64, 4))
    return parts, torch.randint(0, 1000, (1, 24))


MODULES: dict[str, Callable[[], Any]] = {
    "inverted residuals (MobileNetV2)": inverted_residual,
    "residuals (ResNet)": residual,
    "squeeze and excitation (MobileNetV3)": squeeze_excitation,
    "U-Net": unet,
    "dilated segmentation (DeepLab)": dilated_segmentation,
    "channel shuffle (ShuffleNet)": channel_shuffle,
    "gated convolution (Conformer)": gated_convolution,
    "transformer encoder": transformer,
    "causal attention": decoder_attention,
    "gated MLP with RMS norm": gated_mlp,
    "patches (MLP-Mixer, ViT)": patches,
    "ConvNeXt block": convnext,
    "diffusion block": diffusion_block,
    "LSTM": recurrent("LSTM"),
    "two layers of bidirectional GRU": recurrent("GRU", 2, True),
    "RNN": recurrent("RNN"),
    "text classifier": text_classifier,
    "grouped convolutions (ResNeXt)": lambda: image(
        nn.Sequential(block(3, 32, nn.ReLU()), block(32, 64, nn.ReLU(), 2, 8), nn.AvgPool2d(2))
    ),
    "SiLU network (EfficientNet)": lambda: image(
        nn.Sequential(block(3, 16, nn.SiLU(), 2), block(16, 16, nn.SiLU(), 1, 16), block(16, 24, nn.SiLU()))
    ),
    "sub-pixel super-resolution (ESPCN)": lambda: image(
        nn.Sequential(nn.Conv2d(3, 32, 5, 1, 2), nn.Tanh(), nn.Conv2d(32, 12, 3, 1, 1), nn.PixelShuffle(2))
    ),
    "3-D convolutions (C3D)": lambda: image(
        nn.Sequential(nn.Conv3d(3, 16, 3, 1, 1), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(16, 24, 3, 1, 1)),
        1, 3, 8, 32, 32,
    ),
    "autoencoder with transposed convolutions": lambda: image(
        nn.Sequential(
            nn.Conv2d(3, 16, 4, 2, 1), nn.PReLU(16), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.InstanceNorm2d(16), nn.ELU(),
            nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Sigmoid(),
        )
    ),
    "perceptron": lambda: image(
        nn.Sequential(nn.Linear(128, 256), nn.Mish(), nn.Linear(256, 64), nn.Softplus(), nn.Softmax(-1)),
        8, 128,
    ),
}  # fmt: skip
