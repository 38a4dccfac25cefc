"""A weight-sharing supernet: one set of weights of which every architecture of a space uses a part.

Blocks of a superblock are shared between depths, the first channels of a feed-forward network between widths
(Yu and Huang, 2019), and graph operators are branches between the same two products (MaGNAS, section 5.1.1).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from npusim.magnas.space import Architecture, ArchitectureSpace, Superblock
from npusim.magnas.spec import SUPERBLOCKS, Stage, VisionGnnSpec
from npusim.magnas.vig import (
    FeedForward,
    GraphConvolution,
    Grapher,
    VisionGnn,
    downsampling_of,
    head_of,
    stem_of,
)


class SharedFeedForward(FeedForward):
    """A feed-forward network whose first hidden channels are a narrower one."""

    def narrowed(self, x: Tensor, hidden: int) -> Tensor:
        """Return [B, C, H, W] of the same, through so many hidden channels."""
        (first, norm), activation = self.widen[0], self.widen[1]
        second, last_norm = self.narrow
        y = functional.conv2d(x, first.weight[:hidden], first.bias[:hidden])
        y = functional.batch_norm(
            y, norm.running_mean[:hidden], norm.running_var[:hidden], norm.weight[:hidden],
            norm.bias[:hidden], norm.training, norm.momentum or 0.0, norm.eps,
        )  # fmt: skip
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
