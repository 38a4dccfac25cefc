"""Training of Vision GNNs and of supernets (sandwich rule with distillation)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch.nn import functional

from npusim.errors import ConfigError, FileError, NpusimError
from npusim.magnas.checkpoint import CHECKPOINT, Checkpoint, Recipe, Task, read_checkpoint, refuse_other
from npusim.magnas.documents import (
    AloneSubnet,
    BestSubnet,
    ImagesUsed,
    ScoredSubnet,
    StoredScores,
    SupernetTraining,
)
from npusim.magnas.images import Images, Part, joined
from npusim.magnas.scoring import Scorer, accuracy, calibrated
from npusim.magnas.space import Architecture, ArchitectureSpace, parse_architecture
from npusim.magnas.vig import Supernet, VisionGnn, one_thread

Tell = Callable[[str, float], None]
_GRADIENT = 1.0
"""Length to which the gradient of a step is cut."""


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


TRAINING = "training.json"
"""Name of the document in the directory of a training."""
ALONE = "alone.json"
"""Name of the file there with the accuracies of networks trained alone, so that none is trained twice."""


class Stopped(NpusimError):
    """Training was asked to stop; its last epoch is on the disk."""

    exit_status = 130


def run_training(
    task: Task,
    directory: Path,
    *,
    teacher: Checkpoint | None = None,
    scored: int = 24,
    alone: int = 0,
    resume: bool = False,
    tell: Tell = lambda what, share: None,
    stop: Callable[[], bool] = lambda: False,
) -> SupernetTraining:
    """Train a supernet, and judge its subnets on images that training did not see.

    Parameters
    ----------
    directory : Path
        New or empty, or with an earlier part of the same training to `resume`.
    teacher : Checkpoint, optional
        A trained supernet of the same classes and image size, whose largest subnet is the teacher; None: the
        largest subnet of each step.
    scored : int
        Subnets drawn at random that are scored beside the largest and smallest of each operator.
    alone : int
        How many of these are trained alone too.
    tell, stop : callable
        Told what is done and the share of the training; asked after each epoch whether to stop.

    Raises
    ------
    ConfigError, FileError, NpusimError
        For bad images, or a directory that holds something else.
    Stopped
        Where `stop` said so.
    """
    images = task.images()
    task = task.of_classes(len(images.classes))
    if teacher is not None:
        _refuse_teacher(teacher, task)
    checkpoint = _begun(task, images, directory, resume)
    net = _trained(task, images, checkpoint, directory, teacher, tell, stop)
    scorer = Scorer(net.net(), images)
    subnets = _scored(scorer, task, scored, tell)
    kept = directory / ALONE, net.fingerprint, images.digest
    compared = _alone(scorer, task, subnets, alone, kept, tell)
    best = subnets[0]
    tested = accuracy(scorer.calibrated(parse_architecture(best.architecture)), images.test)
    document = SupernetTraining(
        workload=task.workload,
        space=task.space.text,
        images=ImagesUsed(
            name=images.name,
            digest=images.digest,
            classes=len(images.classes),
            train=len(images.train),
            score=len(images.score),
            test=len(images.test),
        ),
        recipe=dataclasses.asdict(task.recipe),
        torch=torch.__version__,
        parameters=sum(one.numel() for one in scorer.net.parameters()),
        losses=list(net.losses),
        subnets=subnets,
        best=BestSubnet(**best.model_dump(), test_accuracy=tested),
        alone=compared,
        rank_correlation=rank_correlation(compared),
        checkpoint=str(directory / CHECKPOINT),
    )
    document.write(directory / TRAINING)
    return document


def _begun(task: Task, images: Images, directory: Path, resume: bool) -> Checkpoint | None:
    """Return the checkpoint to go on from; refuse a directory that holds something else."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(str(directory), f"cannot be made ({error.strerror})") from None
    if resume and (directory / CHECKPOINT).is_file():
        found = read_checkpoint(directory)
        refuse_other(found, task, images.digest, directory)
        return found
    if any(entry.name[:1] != "." for entry in directory.iterdir()):
        remedy = "add --resume to go on with it, or name another directory"
        raise FileError(str(directory), "is not empty", remedy)
    return None


def _trained(
    task: Task,
    images: Images,
    begun: Checkpoint | None,
    directory: Path,
    teacher: Checkpoint | None,
    tell: Tell,
    stop: Callable[[], bool],
) -> Checkpoint:
    """Train the epochs that are left, a checkpoint after each."""
    net = task.new() if begun is None else begun.net()
    optimiser = adam(net, task.recipe)
    if begun is not None:
        optimiser.load_state_dict(begun.optimiser)
    taught_by = None if teacher is None else _teacher(teacher, images)
    losses = [] if begun is None else list(begun.losses)
    found = begun
    for epoch in range(len(losses), task.recipe.epochs):
        losses.append(train_epoch(net, optimiser, images.train, task.recipe, epoch, taught_by, tell))
        state: dict[str, Any] = net.state_dict()
        found = Checkpoint(task, images.digest, tuple(losses), state, optimiser.state_dict())
        found.write(directory / CHECKPOINT)
        if epoch + 1 < task.recipe.epochs and stop():
            raise Stopped(f"stopped after {epoch + 1} of {task.recipe.epochs} epochs; --resume goes on")
    assert found is not None  # a recipe has at least one epoch
    return found


def _refuse_teacher(teacher: Checkpoint, task: Task) -> None:
    """Refuse a teacher that does not know the same classes, or looks at images of another size."""
    for key in ("classes", "image"):
        own, wanted = getattr(teacher.task.backbone, key), getattr(task.backbone, key)
        if own != wanted:
            raise ConfigError(f"a supernet with {key} {own}", file="--teacher", allowed=f"{key} {wanted}")


def _teacher(checkpoint: Checkpoint, images: Images) -> VisionGnn:
    """Return the largest subnet of a trained supernet, the one of its operators that scores best."""
    scorer = Scorer(checkpoint.net(), images)
    space = checkpoint.task.space
    largest = [space.homogeneous(operator, True) for operator in space.operators]
    return scorer.calibrated(max(largest, key=scorer.score))


def _scored(scorer: Scorer, task: Task, count: int, tell: Tell) -> list[ScoredSubnet]:
    """Score the largest and smallest of each operator, and some drawn at random; the best first."""
    space, random = task.space, np.random.default_rng([task.recipe.seed, 23])
    chosen = dict.fromkeys(
        space.homogeneous(operator, largest) for operator in space.operators for largest in (True, False)
    )
    chosen |= dict.fromkeys(space.drawn(random) for _ in range(count))
    found = []
    for done, one in enumerate(chosen):
        tell("scoring subnets", done / len(chosen))
        found.append(ScoredSubnet(architecture=str(one), accuracy=scorer.score(one)))
    return sorted(found, key=lambda one: -one.accuracy)


def _alone(
    scorer: Scorer,
    task: Task,
    subnets: list[ScoredSubnet],
    count: int,
    kept: tuple[Path, str, str],
    tell: Tell,
) -> list[AloneSubnet]:
    """Train some of the subnets alone, spread evenly over their order; each is kept when it is trained."""
    images = scorer.images
    held = joined(images.score, images.test)

    def taught(texts: Sequence[str]) -> list[float]:
        return [accuracy(_taught(text, task, images.train), held) for text in texts]

    alone = StoredScores(*kept, taught)
    places = np.unique(np.linspace(0, len(subnets) - 1, min(count, len(subnets))).round().astype(int))
    found = []
    for done, place in enumerate(places):
        text = subnets[place].architecture
        tell("training alone", done / len(places))
        shared = accuracy(scorer.calibrated(parse_architecture(text)), held)
        found.append(AloneSubnet(architecture=text, accuracy=shared, alone_accuracy=alone([text])[0]))
    return found


def _taught(text: str, task: Task, train: Part) -> VisionGnn:
    """Return an architecture trained alone."""
    with one_thread(task.recipe.seed):
        net = VisionGnn(parse_architecture(text).spec(task.backbone), task.recipe.dropout)
    train_alone(net, train, task.recipe)
    return calibrated(net, train)


def rank_correlation(compared: list[AloneSubnet]) -> float | None:
    """Return Spearman's correlation between accuracies of subnets and of the same networks trained alone."""
    pairs = np.array([(one.accuracy, one.alone_accuracy) for one in compared]).reshape(-1, 2)
    if len(pairs) < 2 or (pairs.max(0) == pairs.min(0)).any():
        return None
    return float(spearmanr(pairs[:, 0], pairs[:, 1]).statistic)
