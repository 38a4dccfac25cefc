"""Vision GNNs in PyTorch, and the supernet whose subnets share weights."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from npusim.gnn_models import training
from npusim.magnas.images import Images, Part
from npusim.magnas.space import Architecture, ArchitectureSpace, Superblock, parse_architecture
from npusim.magnas.spec import (
    HEAD_CHANNELS,
    MIXED_GROUPS,
    SUPERBLOCKS,
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
    """Nearest neighbours by features and a graph operator between two products, with a shortcut."""

    def __init__(self, stage: Stage, knn: int, positions: bool) -> None:
        super().__init__()
        channels, self.reduction = stage.channels, stage.reduction
        self.pre = convolution(channels, channels) if stage.preprocess else nn.Identity()
        self.nearest = NearestNeighbours(knn, stage.dilation)
        self.aggregate = GraphConvolution(stage.operator, channels)
        self.post = convolution(2 * channels, channels)
        candidates = (stage.size // stage.reduction) ** 2
        table = torch.randn(1, stage.size**2, candidates) * 0.02 if positions else None
        self.register_buffer("positions", table)

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, C, H, W] of the same."""
        return self.through(x, self.pre, self.aggregate)

    def through(self, x: Tensor, pre: nn.Module, aggregate: nn.Module) -> Tensor:
        """Return [B, C, H, W] of the same, with a product and a graph operator of its own or of others."""
        y = pre(x)
        own = y.flatten(2).transpose(1, 2)
        others = None
        if self.reduction > 1:
            others = functional.avg_pool2d(y, self.reduction).flatten(2).transpose(1, 2)
        near = self.nearest(own, others, self.positions)
        mixed = aggregate(y, own, own if others is None else others, near)
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


def stem_of(spec: VisionGnnSpec) -> nn.Sequential:
    """Return the convolutions that make nodes of an image."""
    first, widths = spec.channels[0], spec.stem_channels
    stem: list[nn.Module] = []
    for inputs, outputs in zip([3, *widths], widths, strict=False):
        stem += [convolution(inputs, outputs, 3, 2), nn.GELU()]
    return nn.Sequential(*stem, convolution(first, first, 3))


def downsampling_of(stages: Sequence[Stage], i: int) -> nn.Module:
    """Return what halves the map before a superblock; nothing where it stays as large."""
    if i == 0 or stages[i].size == stages[i - 1].size:
        return nn.Identity()
    return convolution(stages[i - 1].channels, stages[i].channels, 3, 2)


def head_of(spec: VisionGnnSpec, dropout: float) -> nn.Sequential:
    """Return the classifier of a map of nodes."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(1),
        convolution(spec.channels[-1], HEAD_CHANNELS),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Conv2d(HEAD_CHANNELS, spec.classes, 1),
    )


class VisionGnn(nn.Module):
    """A Vision GNN of a specification: images [B, 3, H, W] to scores [B, classes].

    Parameters
    ----------
    dropout : float
        Share of the classifier's hidden features that training sets to zero.
    """

    def __init__(self, spec: VisionGnnSpec, dropout: float = 0.0) -> None:
        super().__init__()
        stages = spec.stages
        self.stem = stem_of(spec)
        size = stages[0].size
        self.positions = nn.Parameter(torch.zeros(1, spec.channels[0], size, size))
        body: list[nn.Module] = []
        for i, stage in enumerate(stages):
            body.append(downsampling_of(stages, i))
            for knn in stage.knn:
                body.append(Grapher(stage, knn, spec.model == "pyramid-vig"))
                if stage.ffn_hidden:
                    body.append(FeedForward(stage.channels, stage.ffn_hidden))
        self.body = nn.Sequential(*body)
        self.head = head_of(spec, dropout)

    def forward(self, image: Tensor) -> Tensor:
        """Return scores [B, classes]."""
        x = self.stem(image) + self.positions
        return self.head(self.body(x)).flatten(1)


class SharedFeedForward(FeedForward):
    """A feed-forward network whose first hidden channels are a narrower one."""

    def narrowed(self, x: Tensor, hidden: int) -> Tensor:
        """Return [B, C, H, W] of the same, through so many hidden channels."""
        (first, norm), activation = self.widen[0], self.widen[1]
        second, last_norm = self.narrow
        y = functional.conv2d(x, first.weight[:hidden], first.bias[:hidden])
        each = norm.running_mean, norm.running_var, norm.weight, norm.bias
        mean, variance, factor, offset = (one[:hidden] for one in each)
        momentum = norm.momentum or 0.0
        y = functional.batch_norm(y, mean, variance, factor, offset, norm.training, momentum, norm.eps)
        y = functional.conv2d(activation(y), second.weight[:, :hidden], second.bias)
        return torch.add(last_norm(y), x)


class SharedBlock(nn.Module):
    """A grapher with a branch for each operator, and a feed-forward network of the largest width."""

    def __init__(self, space: ArchitectureSpace, stage: Stage, knn: int, positions: bool) -> None:
        super().__init__()
        self.grapher = Grapher(stage, knn, positions)
        self.branches = nn.ModuleDict(
            {operator: GraphConvolution(operator, stage.channels) for operator in space.operators}
        )
        del self.grapher.aggregate  # one of the branches, told at each call
        self.ffn = SharedFeedForward(stage.channels, stage.ffn_hidden) if stage.ffn_hidden else None

    def forward(self, x: Tensor, chosen: Superblock, hidden: int) -> Tensor:
        """Return [B, C, H, W] of the same, by the choices of a superblock."""
        pre = self.grapher.pre if chosen.preprocess else nn.Identity()
        x = self.grapher.through(x, pre, self.branches[chosen.operator])
        return self.ffn.narrowed(x, hidden) if self.ffn is not None and hidden else x


class Supernet(nn.Module):
    """Images [B, 3, H, W] and an architecture to scores [B, classes].

    Parameters
    ----------
    backbone : VisionGnnSpec
        Image, channels, neighbours, classes; what the space chooses is taken from there.
    dropout : float
        Share of the classifier's hidden features that training sets to zero.
    """

    def __init__(self, backbone: VisionGnnSpec, space: ArchitectureSpace, dropout: float = 0.0) -> None:
        super().__init__()
        self.backbone, self.space = backbone, space
        largest = space.homogeneous(space.operators[0], largest=True).spec(backbone)
        stages = largest.stages
        self.stem = stem_of(largest)
        size = stages[0].size
        self.positions = nn.Parameter(torch.zeros(1, largest.channels[0], size, size))
        self.downsampling = nn.ModuleList(downsampling_of(stages, i) for i in range(SUPERBLOCKS))
        pyramid = largest.model == "pyramid-vig"
        self.superblocks = nn.ModuleList(
            nn.ModuleList(SharedBlock(space, stage, knn, pyramid) for knn in stage.knn) for stage in stages
        )
        self.head = head_of(largest, dropout)

    def begin(self, image: Tensor) -> Tensor:
        """Return the nodes of images."""
        return self.stem(image) + self.positions

    def superblock(self, x: Tensor, i: int, chosen: Superblock) -> Tensor:
        """Return nodes behind superblock `i`, by its choices."""
        hidden = round(chosen.ffn_percent * self.backbone.channels[i] / 100)
        x = self.downsampling[i](x)
        for block in list(self.superblocks[i])[: chosen.depth]:
            x = block(x, chosen, hidden)
        return x

    def finish(self, x: Tensor) -> Tensor:
        """Return scores [B, classes] of nodes."""
        return self.head(x).flatten(1)

    def forward(self, image: Tensor, architecture: Architecture) -> Tensor:
        """Return scores [B, classes] of images, by an architecture."""
        x = self.begin(image)
        for i, chosen in enumerate(architecture.superblocks):
            x = self.superblock(x, i, chosen)
        return self.finish(x)

    def subnet(self, architecture: Architecture) -> VisionGnn:
        """Return an architecture as a network of its own, with its part of the weights."""
        self.space.refuse_outside(architecture)
        spec = architecture.spec(self.backbone)
        net = VisionGnn(spec)
        net.positions.data.copy_(self.positions.data)
        _copy(self.stem, net.stem)
        _copy(self.head, net.head)
        places = iter(net.body)
        for i, chosen in enumerate(architecture.superblocks):
            _copy(self.downsampling[i], next(places))
            for block in list(self.superblocks[i])[: chosen.depth]:
                grapher = next(places)
                if chosen.preprocess:
                    _copy(block.grapher.pre, grapher.pre)
                _copy(block.grapher.post, grapher.post)
                _copy(block.branches[chosen.operator], grapher.aggregate)
                if grapher.positions is not None:
                    grapher.positions.copy_(block.grapher.positions)
                if chosen.ffn_percent:
                    _copy(block.ffn, next(places))
        net.train(self.training)
        return net


def _copy(source: nn.Module, target: nn.Module) -> None:
    """Copy weights, of those that are larger the first of each dimension."""
    held = source.state_dict()
    with torch.no_grad():
        for name, value in target.state_dict().items():
            value.copy_(held[name][tuple(slice(0, length) for length in value.shape)])


@contextmanager
def one_thread(seed: int) -> Iterator[None]:
    """Let torch use one thread and a seed: the order of summation, and so the result, is fixed."""
    with training.one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


_CALIBRATION = 128
"""Training images from which means and variances are taken."""
_BATCH = 256
_MOST_KEPT_BYTES = 512 << 20
"""Bytes of nodes that are kept for subnets that begin alike."""

_Nodes = list[Tensor]


class Scorer:
    """Scores subnets of a supernet; the same subnet gets the same score in any order."""

    def __init__(self, net: Supernet, images: Images) -> None:
        self.net, self.images = net, images
        self._kept: OrderedDict[tuple[Superblock, ...], _Nodes] = OrderedDict()
        self._bytes = 0

    def __call__(self, texts: Sequence[str]) -> list[float]:
        """Return the scores of architectures given as texts; those that begin alike one after the other."""
        scores = {text: self.score(parse_architecture(text)) for text in sorted(set(texts))}
        return [scores[text] for text in texts]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": OrderedDict(), "_bytes": 0}

    def score(self, architecture: Architecture) -> float:
        """Return the share of the scoring images that a subnet classifies correctly."""
        return float((self._answers(architecture).argmax(1) == self.images.score.classes).double().mean())

    def calibrated(self, architecture: Architecture) -> VisionGnn:
        """Return a subnet as a network of its own, with its own means and variances, for inference."""
        self.net.space.refuse_outside(architecture)
        return calibrated(self.net.subnet(architecture), self.images.train)

    def _answers(self, architecture: Architecture) -> Tensor:
        self.net.space.refuse_outside(architecture)
        with one_thread(0), torch.inference_mode():
            chosen = architecture.superblocks
            nodes = self._behind(chosen)
            return torch.cat(self._through(self.net.finish, nodes)[1:])

    def _behind(self, chosen: tuple[Superblock, ...]) -> _Nodes:
        """Return the nodes behind superblocks: of the calibration images, then of the scoring ones."""
        if chosen in self._kept:
            self._kept.move_to_end(chosen)
            return self._kept[chosen]
        if not chosen:
            images = [_calibration(self.images.train), *_batches(self.images.score)]
            nodes = self._through(self.net.begin, images)
        else:
            i = len(chosen) - 1
            before = self._behind(chosen[:-1])
            nodes = self._through(lambda x: self.net.superblock(x, i, chosen[-1]), before)
        if len(chosen) < len(self.net.superblocks):
            self._keep(chosen, nodes)
        return nodes

    def _through(self, stage: Callable[[Tensor], Tensor], before: _Nodes) -> _Nodes:
        """Take means and variances from the first batch; return what a stage makes of each."""
        _normalise_by_batch(self.net, True)
        first = stage(before[0])
        _normalise_by_batch(self.net, False)
        return [first, *(stage(one) for one in before[1:])]

    def _keep(self, chosen: tuple[Superblock, ...], nodes: _Nodes) -> None:
        def size(held: _Nodes) -> int:
            return sum(one.nbytes for one in held)

        self._kept[chosen] = nodes
        self._bytes += size(nodes)
        while self._bytes > _MOST_KEPT_BYTES:
            self._bytes -= size(self._kept.popitem(last=False)[1])


def calibrated(net: VisionGnn, train: Part) -> VisionGnn:
    """Return a network whose means and variances are those of training images, for inference."""
    with one_thread(0), torch.inference_mode():
        _normalise_by_batch(net, True)
        net(_calibration(train))
    net.eval()
    return net


def accuracy(net: VisionGnn, part: Part) -> float:
    """Return the share of images that a network classifies correctly."""
    with one_thread(0), torch.inference_mode():
        answers = torch.cat([net(images) for images in _batches(part)])
    return float(np.mean((answers.argmax(1) == part.classes).numpy()))


def _normalise_by_batch(net: nn.Module, by_batch: bool) -> None:
    """Let batch normalisation take and note the batch's own means and variances, or those that are noted."""
    net.eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0  # those of the last batch alone
            module.train(by_batch)


def _calibration(part: Part) -> Tensor:
    """Return training images from all over their order, the same ones always."""
    places = np.unique(np.linspace(0, len(part) - 1, min(_CALIBRATION, len(part))).astype(int))
    return part.batch(torch.from_numpy(places))[0]


def _batches(part: Part) -> list[Tensor]:
    return [part.batch(slice(at, at + _BATCH))[0] for at in range(0, len(part), _BATCH)]
