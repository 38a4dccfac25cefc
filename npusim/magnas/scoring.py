"""Accuracy of subnets on images that training did not see.

Batch normalisation is taken anew for each subnet from training images, as slimmable networks need (Yu and
Huang, 2019): means and variances that all subnets share fit none. Superblocks are worked through one by one,
and what subnets with the same first superblocks share is computed once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from npusim.magnas.images import Images, Part
from npusim.magnas.space import Architecture, Superblock, parse_architecture
from npusim.magnas.vig import Supernet, VisionGnn, one_thread

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
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 1.0  # those of the last batch
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
        return self._accuracy(self._answers(architecture), self.images.score)

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

    @staticmethod
    def _accuracy(answers: Tensor, part: Part) -> float:
        return float((answers.argmax(1) == part.classes).double().mean())


def calibrated(net: VisionGnn, train: Part) -> VisionGnn:
    """Return a network whose means and variances are those of training images, for inference."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
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
    """Let batch normalisation take the batch's own means and variances, or those that are noted."""
    net.eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train(by_batch)


def _calibration(part: Part) -> Tensor:
    """Return training images from all over their order, the same ones always."""
    places = np.unique(np.linspace(0, len(part) - 1, min(_CALIBRATION, len(part))).astype(int))
    return part.batch(torch.from_numpy(places))[0]


def _batches(part: Part) -> list[Tensor]:
    return [part.batch(slice(at, at + _BATCH))[0] for at in range(0, len(part), _BATCH)]
