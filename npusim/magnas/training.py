"""Training of a supernet by the sandwich rule, and of one architecture alone in the same way.

Of each batch the largest and the smallest subnet learn, each with one graph operator throughout that is drawn
anew, and some drawn at random between (MaGNAS, section 4.1.3; Yu and Huang, 2019). The largest learns from
labels, the others also from the answers of a teacher: of the largest one, or of a trained network. Every
epoch draws from a seed of its own, so a training that is resumed ends as one that was not stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from npusim.magnas.images import Part
from npusim.magnas.space import Architecture, ArchitectureSpace
from npusim.magnas.supernet import Supernet
from npusim.magnas.vig import VisionGnn

Tell = Callable[[str, float], None]
_GRADIENT = 1.0
"""Length to which the gradient of a step is cut."""


@dataclass(frozen=True)
class Recipe:
    """How networks are trained; MaGNAS's, but for epochs and batch, which suit a small data set."""

    epochs: int = 14
    batch: int = 32
    """Images of a step."""
    balanced: int = 2
    """Subnets drawn at random for each step, beside the largest and the smallest."""
    learning_rate: float = 0.003
    """Of the first step; it falls to 0 by half a cosine."""
    weight_decay: float = 0.05
    dropout: float = 0.2
    distillation: float = 0.5
    """Share of the teacher's answers in what the subnets learn; the rest are the labels."""
    shift: float = 0.1
    """Most that an image is moved while it is learnt, in shares of its side."""
    seed: int = 0


@contextmanager
def one_thread(seed: int) -> Iterator[None]:
    """Let torch use one thread and a seed: the order of summation, and so the result, is fixed."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(before)


def adam(net: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return the optimiser of a training: Adam, weights decay apart from the gradient."""
    return torch.optim.AdamW(net.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay)


def sampled(space: ArchitectureSpace, random: np.random.Generator, balanced: int) -> list[Architecture]:
    """Return the subnets of a step: the largest, those drawn at random, the smallest.

    The operator of the largest, and that of the smallest, is drawn once for the whole network, so that no
    operator is favoured.
    """
    largest, smallest = (space.operators[int(random.integers(len(space.operators)))] for _ in range(2))
    between = [space.drawn(random) for _ in range(balanced)]
    return [space.homogeneous(largest, True), *between, space.homogeneous(smallest, False)]


def train_epoch(
    net: Supernet,
    optimiser: torch.optim.Optimizer,
    part: Part,
    recipe: Recipe,
    epoch: int,
    teacher: nn.Module | None = None,
    tell: Tell = lambda what, share: None,
) -> float:
    """Train a supernet for an epoch; return the mean loss of its largest subnets."""
    losses = []
    steps = Steps(part, recipe, epoch)
    with one_thread(steps.torch_seed):
        net.train()
        for done, (images, classes) in enumerate(steps.batches(optimiser)):
            largest, *others = sampled(net.space, steps.random, recipe.balanced)
            optimiser.zero_grad()
            answers = net(images, largest)
            loss = functional.cross_entropy(answers, classes)
            loss.backward()
            losses.append(loss.item())
            soft = _soft(answers if teacher is None else teacher(images))
            for one in others:
                _distilled(net(images, one), classes, soft, recipe.distillation).backward()
            nn.utils.clip_grad_norm_(net.parameters(), _GRADIENT)
            optimiser.step()
            tell(f"epoch {epoch + 1}", (epoch + (done + 1) / steps.count) / recipe.epochs)
    return float(np.mean(losses))


def train_alone(net: VisionGnn, part: Part, recipe: Recipe) -> None:
    """Train one network in the same way, without others beside it."""
    optimiser = adam(net, recipe)
    net.train()
    for epoch in range(recipe.epochs):
        steps = Steps(part, recipe, epoch)
        with one_thread(steps.torch_seed):
            for images, classes in steps.batches(optimiser):
                optimiser.zero_grad()
                functional.cross_entropy(net(images), classes).backward()
                nn.utils.clip_grad_norm_(net.parameters(), _GRADIENT)
                optimiser.step()


def _soft(answers: Tensor) -> Tensor:
    return functional.softmax(answers.detach(), 1)


def _distilled(answers: Tensor, classes: Tensor, soft: Tensor, share: float) -> Tensor:
    """Return the loss by labels and by a teacher's answers."""
    return functional.cross_entropy(answers, classes) * (1.0 - share) + share * functional.cross_entropy(
        answers, soft
    )


class Steps:
    """The batches of an epoch, from a seed of its own."""

    def __init__(self, part: Part, recipe: Recipe, epoch: int) -> None:
        self.part, self.recipe, self.epoch = part, recipe, epoch
        self.random = np.random.default_rng([recipe.seed, epoch])
        self.torch_seed = int(self.random.integers(2**62))
        self.count = max(1, len(part) // recipe.batch)

    def batches(self, optimiser: torch.optim.Optimizer) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images, moved at random, and classes; the optimiser's rate follows."""
        order = torch.from_numpy(self.random.permutation(len(self.part)))
        total = self.count * self.recipe.epochs
        for step in range(self.count):
            done = (self.epoch * self.count + step) / total
            for group in optimiser.param_groups:
                group["lr"] = self.recipe.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))
            places = order[step * self.recipe.batch : (step + 1) * self.recipe.batch]
            images, classes = self.part.batch(places)
            yield moved(images, self.recipe.shift, self.random), classes


def moved(images: Tensor, share: float, random: np.random.Generator) -> Tensor:
    """Return images moved by up to a share of their side, each its own way; edges are repeated."""
    side = images.shape[-1]
    most = int(share * side)
    if not most:
        return images
    padded = functional.pad(images, (most,) * 4, mode="replicate")
    offsets = random.integers(0, 2 * most + 1, (len(images), 2)).tolist()
    return torch.stack(
        [one[:, y : y + side, x : x + side] for one, (y, x) in zip(padded, offsets, strict=True)]
    )
