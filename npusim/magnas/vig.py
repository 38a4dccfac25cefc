"""Vision GNNs in PyTorch, and the supernet whose subnets share weights."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from npusim.gnn_models import training
from npusim.magnas.images import Images, Part
from npusim.magnas.space import Architecture, ArchitectureSpace, parse_architecture
from npusim.magnas.spec import (
    HEAD_CHANNELS,
    MIXED_GROUPS,
    GraphOperator,
    Stage,
    VisionGnnSpec,
)


def convolution(
    inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Return a convolution with batch normalisation, padded by half its kernel."""
    padding = kernel // 2
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class NearestNeighbours(nn.Module):
    """Places of each node's neighbours: of the nearest `knn * dilation` candidates every `dilation`-th."""

    def __init__(self, knn: int, dilation: int) -> None:
        super().__init__()
        self.knn, self.dilation = knn, dilation

    def forward(self, own: Tensor, others: Tensor | None, positions: Tensor | None) -> Tensor:
        """Return [B, N, knn] for nodes [B, N, C] and candidates [B, M, C], else the nodes."""
        a = functional.normalize(own, dim=2)
        b = a if others is None else functional.normalize(others, dim=2)
        squares = (a * a).sum(2, keepdim=True)
        product = (a @ b.transpose(1, 2)) * -2.0
        other = squares if others is None else (b * b).sum(2, keepdim=True)
        distances = squares + product + other.transpose(1, 2)
        if positions is not None:
            distances = distances + positions
        near = (-distances).topk(self.knn * self.dilation, dim=2).indices
        if self.dilation > 1:
            near = near[:, :, :: self.dilation]
        batch, count = near.shape[0], b.shape[1]
        if batch > 1:
            near = near + torch.arange(0, batch * count, count).reshape(batch, 1, 1)
        return near


def gathered(rows: Tensor, places: Tensor, nodes: int) -> Tensor:
    """Fetch rows [B, M, C] of a batch's candidates, channels first: [B, C, nodes, knn]."""
    batch, _, channels = rows.shape
    found = rows.reshape(-1, channels).index_select(0, places.reshape(-1))
    return found.reshape(batch, nodes, -1, channels).permute(0, 3, 1, 2)


class GraphConvolution(nn.Module):
    """How a node takes in its neighbours: [B, C, H, W] and places to [B, 2 C, H, W]."""

    def __init__(self, operator: GraphOperator, channels: int) -> None:
        super().__init__()
        self.operator = operator
        inputs = channels if operator == "gin" else 2 * channels
        self.mix = nn.Sequential(convolution(inputs, 2 * channels, groups=MIXED_GROUPS), nn.GELU())
        if operator == "gin":
            self.epsilon = nn.Parameter(torch.zeros(1, 1, 1, 1))
        if operator == "graphsage":
            self.transform = nn.Sequential(convolution(channels, channels, groups=MIXED_GROUPS), nn.GELU())

    def forward(self, x: Tensor, own: Tensor, others: Tensor, near: Tensor) -> Tensor:
        """Mix a map with its neighbours, given both as rows of nodes."""
        batch, channels, height, width = x.shape
        nodes = height * width
        neighbours = gathered(others, near, nodes)
        if self.operator == "gin":
            own_share = x.reshape(batch, channels, nodes, 1) * (1.0 + self.epsilon)
            y = self.mix(own_share + neighbours.sum(3, keepdim=True))
        elif self.operator == "graphsage":
            largest = self.transform(neighbours).amax(3, keepdim=True)
            y = self.mix(torch.cat([x.reshape(batch, channels, nodes, 1), largest], 1))
        else:
            which = torch.arange(batch * nodes, dtype=torch.int32).repeat_interleave(near.shape[2])
            centres = gathered(own, which, nodes)
            offsets = neighbours - centres
            if self.operator == "edgeconv":
                y = self.mix(torch.cat([centres, offsets], 1)).amax(3, keepdim=True)
            else:
                largest = offsets.amax(3, keepdim=True)
                both = [part.reshape(batch, channels, 1, nodes, 1) for part in (x, largest)]
                y = self.mix(torch.cat(both, 2).reshape(batch, 2 * channels, nodes, 1))
        return y.reshape(batch, 2 * channels, height, width)


class Grapher(nn.Module):
    """Nearest neighbours by features and a graph operator between two products, with a shortcut.

    Parameters
    ----------
    positions : bool
        Whether distances of places are added to those of features.
    branches : sequence of str
        Operators of which a subnet has one; empty: that of the stage.
    """

    def __init__(
        self, stage: Stage, knn: int, positions: bool, branches: Sequence[GraphOperator] = ()
    ) -> None:
        super().__init__()
        channels, self.reduction = stage.channels, stage.reduction
        self.pre = convolution(channels, channels) if stage.preprocess else nn.Identity()
        self.nearest = NearestNeighbours(knn, stage.dilation)
        self.aggregate = GraphConvolution(stage.operator, channels)
        self.post = convolution(2 * channels, channels)
        candidates = (stage.size // stage.reduction) ** 2
        table = torch.randn(1, stage.size**2, candidates) * 0.02 if positions else None
        self.register_buffer("positions", table)
        if branches:
            del self.aggregate
            self.branches = nn.ModuleDict({one: GraphConvolution(one, channels) for one in branches})

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, C, H, W] of the same."""
        y = self.pre(x)
        own = y.flatten(2).transpose(1, 2)
        others = None
        if self.reduction > 1:
            others = functional.avg_pool2d(y, self.reduction).flatten(2).transpose(1, 2)
        near = self.nearest(own, others, self.positions)
        mixed = self.aggregate(y, own, own if others is None else others, near)
        return torch.add(self.post(mixed), x)


class FeedForward(nn.Module):
    """Two products with a shortcut."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.widen = nn.Sequential(convolution(channels, hidden), nn.GELU())
        self.narrow = convolution(hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, C, H, W] of the same."""
        return torch.add(self.narrow(self.widen(x)), x)


class VisionGnn(nn.Module):
    """A Vision GNN of a specification: images [B, 3, H, W] to scores [B, classes].

    Parameters
    ----------
    dropout : float
        Share of the classifier's hidden features that training sets to zero.
    branches : sequence of str
        See `Grapher`.
    """

    def __init__(
        self, spec: VisionGnnSpec, dropout: float = 0.0, branches: Sequence[GraphOperator] = ()
    ) -> None:
        super().__init__()
        widths, stages = spec.stem_channels, spec.stages
        channels, size = stages[0].channels, stages[0].size
        stem = [
            module
            for inputs, outputs in zip([3, *widths], widths, strict=False)
            for module in (convolution(inputs, outputs, 3, 2), nn.GELU())
        ]
        self.stem = nn.Sequential(*stem, convolution(channels, channels, 3))
        self.positions = nn.Parameter(torch.zeros(1, channels, size, size))
        body: dict[str, nn.Module] = {}
        for i, (before, stage) in enumerate(zip([stages[0], *stages], stages, strict=False)):
            if stage.size < before.size:
                body[f"downsample{i}"] = convolution(before.channels, stage.channels, 3, 2)
            for j, knn in enumerate(stage.knn):
                body[f"grapher{i}_{j}"] = Grapher(stage, knn, spec.model == "pyramid-vig", branches)
                if stage.ffn_hidden:
                    body[f"ffn{i}_{j}"] = FeedForward(stage.channels, stage.ffn_hidden)
        self.body = nn.Sequential(OrderedDict(body))
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            convolution(spec.channels[-1], HEAD_CHANNELS),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Conv2d(HEAD_CHANNELS, spec.classes, 1),
        )

    def forward(self, image: Tensor) -> Tensor:
        """Return scores [B, classes]."""
        return self.head(self.body(self.stem(image) + self.positions)).flatten(1)


_GRAPHER = re.compile(r"body\.grapher(\d)_")


class Supernet(nn.Module):
    """Images [B, 3, H, W] and an architecture to scores [B, classes].

    It holds the weights of the largest architecture, with a branch per graph operator in each grapher.

    Parameters
    ----------
    backbone : VisionGnnSpec
        Image, channels, neighbours, classes; what the space chooses is taken from there.
    dropout : float
        Share of the classifier's hidden features that training sets to zero.
    """

    def __init__(self, backbone: VisionGnnSpec, space: ArchitectureSpace, dropout: float = 0.0) -> None:
        super().__init__()
        self.backbone, self.space, self.dropout = backbone, space, dropout
        largest = space.homogeneous(space.operators[0], largest=True).spec(backbone)
        self.whole = VisionGnn(largest, dropout, space.operators)

    def forward(self, image: Tensor, architecture: Architecture) -> Tensor:
        """Return scores [B, classes] of images, by an architecture."""
        with torch.device("meta"):  # the weights are the supernet's
            net = VisionGnn(architecture.spec(self.backbone), self.dropout).train(self.training)
        scores: Tensor = functional_call(net, self._weights(net, architecture), (image,), strict=True)
        return scores

    def subnet(self, architecture: Architecture) -> VisionGnn:
        """Return an architecture as a network of its own, with its part of the weights."""
        net = VisionGnn(architecture.spec(self.backbone))
        net.train(self.training)
        net.load_state_dict(self._weights(net, architecture))
        return net

    def _weights(self, net: VisionGnn, architecture: Architecture) -> dict[str, Tensor]:
        """Return views of the weights under a subnet's names: of larger ones the first of each dimension."""
        held, weights = self.whole.state_dict(keep_vars=True), {}
        for name, value in net.state_dict().items():
            place, grapher = name, _GRAPHER.match(name)
            if grapher:
                operator = architecture.superblocks[int(grapher[1])].operator
                place = name.replace(".aggregate.", f".branches.{operator}.")
            weights[name] = held[place][tuple(slice(length) for length in value.shape)]
        return weights


@contextmanager
def one_thread(seed: int) -> Iterator[None]:
    """Let torch use one thread and a seed: the order of summation, and so the result, is fixed."""
    with training.one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


_CALIBRATION = 128
"""Training images from which means and variances are taken."""
_BATCH = 256


class Scorer:
    """Scores subnets of a supernet; the same subnet gets the same score in any order."""

    def __init__(self, net: Supernet, images: Images) -> None:
        self.net, self.images = net, images

    def __call__(self, texts: Sequence[str]) -> list[float]:
        """Return the scores of architectures given as texts."""
        return [self.score(parse_architecture(text)) for text in texts]

    def score(self, architecture: Architecture) -> float:
        """Return the share of the scoring images that a subnet classifies correctly."""
        return accuracy(self.calibrated(architecture), self.images.score)

    def calibrated(self, architecture: Architecture) -> VisionGnn:
        """Return a subnet as a network of its own, with its own means and variances, for inference."""
        return calibrated(self.net.subnet(architecture), self.images.train)


def calibrated(net: VisionGnn, train: Part) -> VisionGnn:
    """Return a network whose means and variances are those of training images, for inference."""
    net.eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0  # the means and variances of the last batch alone
            module.train()
    places = np.unique(np.linspace(0, len(train) - 1, min(_CALIBRATION, len(train))).astype(int))
    with one_thread(0), torch.inference_mode():
        net(train.batch(torch.from_numpy(places))[0])
    net.eval()
    return net


def accuracy(net: VisionGnn, part: Part) -> float:
    """Return the share of images that a network classifies correctly."""
    batches = [part.batch(slice(first, first + _BATCH))[0] for first in range(0, len(part), _BATCH)]
    with one_thread(0), torch.inference_mode():
        answers = torch.cat([net(images) for images in batches])
    return float(np.mean((answers.argmax(1) == part.classes).numpy()))
