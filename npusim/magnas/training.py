"""Training of Vision GNNs and of supernets (sandwich rule with distillation)."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch.nn import functional

from npusim.errors import ConfigError, FileError, NpusimError
from npusim.explore.scoring_pool import Score
from npusim.explore.store import Store, not_empty
from npusim.explore.sweep import Interrupted
from npusim.files import write_whole
from npusim.magnas import documents
from npusim.magnas.images import Images, Part, read_images
from npusim.magnas.space import Architecture, ArchitectureSpace, parse_architecture
from npusim.magnas.spec import VisionGnnSpec
from npusim.magnas.vig import Scorer, Supernet, VisionGnn, accuracy, calibrated, one_thread
from npusim.reporting.engineering import flattened

CHECKPOINT = "supernet.pt"
_FORMAT = "npusim.supernet/1"
_MOST_BYTES = 8 << 30


@dataclass(frozen=True)
class Recipe:
    """How networks are trained; the learning rate falls by half a cosine.

    The numbers are MaGNAS's except epochs and batch, which suit a small data set.

    Parameters
    ----------
    epochs : int
        Epochs.
    batch : int
        Images of a step.
    balanced : int
        Random subnets of a step beside largest and smallest.
    learning_rate : float
        Of the first step.
    weight_decay : float
        Of all weights.
    dropout : float
        In the classifier.
    distillation : float
        What subnets learn from a teacher.
    shift : float
        Most that images are moved, of their side.
    seed : int
        The same seed gives the same.
    """

    epochs: int = 14
    batch: int = 32
    balanced: int = 2
    learning_rate: float = 0.003
    weight_decay: float = 0.05
    dropout: float = 0.2
    distillation: float = 0.5
    shift: float = 0.1
    seed: int = 0


@dataclass(frozen=True)
class Task:
    """What a training depends on: backbone, space, images and settings."""

    workload: str
    backbone: VisionGnnSpec
    space: ArchitectureSpace
    source: str
    held: float
    recipe: Recipe
    teacher: str = ""
    """Fingerprint of the trained network that teaches; empty: the largest subnet of each step."""

    def images(self) -> Images:
        """Read the images; errors as for `read_images`."""
        return read_images(self.source, self.backbone.image, self.held, self.recipe.seed)

    def of_classes(self, count: int) -> Task:
        """Return the task with as many classes as the images have."""
        backbone = VisionGnnSpec.model_validate(self.backbone.model_dump() | {"classes": count})
        return dataclasses.replace(self, backbone=backbone)

    def new(self) -> Supernet:
        """Return a supernet with initial weights, the same ones for the same seed."""
        with one_thread(self.recipe.seed):
            return Supernet(self.backbone, self.space, self.recipe.dropout)


_TASK = TypeAdapter(Task)


@dataclass(frozen=True)
class Checkpoint:
    """State of a training after an epoch."""

    task: Task
    digest: str
    """Fingerprint of the images."""
    losses: tuple[float, ...]
    """Loss of each epoch so far."""
    weights: dict[str, Any]
    optimiser: dict[str, Any]

    def net(self) -> Supernet:
        """Return the supernet."""
        net = self.task.new()
        net.load_state_dict(self.weights)
        return net

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits over the weights."""
        digest = hashlib.sha256()
        for name, value in sorted(self.weights.items()):
            digest.update(name.encode() + value.numpy().tobytes())
        return digest.hexdigest()[:16]

    def scorer(self) -> Scorer:
        """Return the scorer of the subnets; NpusimError where the images have changed since training."""
        images = self.task.images()
        if images.digest != self.digest:
            raise NpusimError(
                f"{self.task.source}: the images are not those that the supernet was trained on, so scores "
                "would be of images that it may have learnt; train again"
            )
        return Scorer(self.net(), images)

    def write(self, path: Path) -> None:
        """Write it whole or not at all."""
        task = _TASK.dump_python(self.task, mode="json")
        buffer = io.BytesIO()
        torch.save({"format": _FORMAT} | vars(self) | {"task": task, "losses": list(self.losses)}, buffer)
        write_whole(path, buffer.getvalue())


def checkpoint_file(path: Path) -> Path:
    """Return the file of a checkpoint, given the file or the directory of a training."""
    return path / CHECKPOINT if path.is_dir() else path


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, weights alone: nothing in the file is run.

    Parameters
    ----------
    path : Path
        The file, or the directory of a training.

    Raises
    ------
    FileError
        Where there is none, or it is damaged or no checkpoint of a supernet.
    """
    file = checkpoint_file(path)
    if not file.is_file():
        raise FileError(str(file), "is no file", "train a supernet first: npusim magnas train -o DIR")
    damaged = FileError(str(file), "is no checkpoint of a supernet, or damaged", "train again")
    if file.stat().st_size > _MOST_BYTES:
        raise damaged
    try:
        held = torch.load(file, map_location="cpu", weights_only=True)
        if held.pop("format") != _FORMAT:
            raise damaged
        task, losses = _TASK.validate_python(held.pop("task")), tuple(held.pop("losses"))
        checkpoint = Checkpoint(task, losses=losses, **held)
        checkpoint.net()
    except Exception:  # torch raises errors of many kinds for files that are no archives of its own
        raise damaged from None
    return checkpoint


def refuse_other(found: Checkpoint, wanted: Task, digest: str, path: Path) -> None:
    """Refuse to go on with a checkpoint of another training; the message names what differs."""
    own, other = (flattened(_TASK.dump_python(task, mode="json")) for task in (found.task, wanted))
    differs = [name for name, value in other.items() if own.get(name) != value]
    if found.digest != digest and "source" not in differs:
        differs.append("images")
    if differs:
        raise NpusimError(
            f"{path}: cannot be resumed: it holds a training of other {', '.join(differs)}; "
            "train into another directory"
        )


Tell = Callable[[str, float], None]
_GRADIENT = 1.0
"""Largest norm of a step's gradient."""


def sampled(space: ArchitectureSpace, random: np.random.Generator, balanced: int) -> list[Architecture]:
    """Return the subnets of a step: the largest, some drawn at random, the smallest.

    The operator of the largest, and that of the smallest, is drawn once for the whole network, so that no
    operator is favoured.
    """
    largest, smallest = (space.operators[int(random.integers(len(space.operators)))] for _ in range(2))
    between = [space.drawn(random) for _ in range(balanced)]
    return [space.homogeneous(largest, True), *between, space.homogeneous(smallest, False)]


class Epochs:
    """Epochs of batches that train a network by AdamW, each epoch from a seed of its own."""

    def __init__(self, net: nn.Module, part: Part, recipe: Recipe) -> None:
        self.net, self.part, self.recipe = net, part, recipe
        self.optimiser = torch.optim.AdamW(
            net.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay
        )
        self.steps = max(1, len(part) // recipe.batch)
        self.random = np.random.default_rng()

    def batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images, moved at random, and classes; the gradient of a batch makes a step afterwards."""
        recipe = self.recipe
        self.random = np.random.default_rng([recipe.seed, epoch])
        with one_thread(int(self.random.integers(2**62))):
            self.net.train()
            order = torch.from_numpy(self.random.permutation(len(self.part)))
            for step in range(self.steps):
                done = (epoch * self.steps + step) / (self.steps * recipe.epochs)
                for group in self.optimiser.param_groups:
                    group["lr"] = recipe.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))
                images, classes = self.part.batch(order[step * recipe.batch : (step + 1) * recipe.batch])
                self.optimiser.zero_grad()
                yield moved(images, recipe.shift, self.random), classes
                nn.utils.clip_grad_norm_(self.net.parameters(), _GRADIENT)
                self.optimiser.step()


def train_epoch(epochs: Epochs, epoch: int, teacher: nn.Module | None, tell: Tell) -> float:
    """Train a supernet for an epoch; return the mean loss of its largest subnets."""
    net, recipe, losses = epochs.net, epochs.recipe, []
    for images, classes in epochs.batches(epoch):
        largest, *others = sampled(net.space, epochs.random, recipe.balanced)
        answers = net(images, largest)
        loss = functional.cross_entropy(answers, classes)
        loss.backward()
        losses.append(loss.item())
        taught = functional.softmax((answers if teacher is None else teacher(images)).detach(), 1)
        for one in others:
            own = net(images, one)
            by_labels = functional.cross_entropy(own, classes) * (1.0 - recipe.distillation)
            (by_labels + recipe.distillation * functional.cross_entropy(own, taught)).backward()
        tell(f"epoch {epoch + 1}", (epoch + len(losses) / epochs.steps) / recipe.epochs)
    return float(np.mean(losses))


def trained_alone(text: str, task: Task, train: Part) -> VisionGnn:
    """Return an architecture trained in the same way, without others beside it."""
    with one_thread(task.recipe.seed):
        net = VisionGnn(parse_architecture(text).spec(task.backbone), task.recipe.dropout)
    epochs = Epochs(net, train, task.recipe)
    for epoch in range(task.recipe.epochs):
        for images, classes in epochs.batches(epoch):
            functional.cross_entropy(net(images), classes).backward()
    return calibrated(net, train)


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
ALONE = "alone.json"
"""Name of the file there with the accuracies of networks trained alone, so that none is trained twice."""


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
) -> documents.SupernetTraining:
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
        Progress callback (message, fraction); asked after each epoch whether to stop.

    Raises
    ------
    ConfigError, FileError, NpusimError
        For bad images, or a directory that holds something else.
    Interrupted
        Where `stop` said so.
    """
    images = task.images()
    task = task.of_classes(len(images.classes))
    if teacher is not None:
        _refuse_teacher(teacher, task)
    checkpoint = _begun(task, images, directory, resume)
    net = task.new() if checkpoint is None else checkpoint.net()
    epochs = Epochs(net, images.train, task.recipe)
    losses = () if checkpoint is None else checkpoint.losses
    if checkpoint is not None:
        epochs.optimiser.load_state_dict(checkpoint.optimiser)
    taught_by = None if teacher is None else _teacher(teacher, images)
    for epoch in range(len(losses), task.recipe.epochs):
        losses = (*losses, train_epoch(epochs, epoch, taught_by, tell))
        states = net.state_dict(), epochs.optimiser.state_dict()
        checkpoint = Checkpoint(task, images.digest, losses, *states)
        checkpoint.write(directory / CHECKPOINT)
        if len(losses) < task.recipe.epochs and stop():
            raise Interrupted(f"stopped after {len(losses)} of {task.recipe.epochs} epochs; --resume goes on")
    assert checkpoint is not None  # a recipe has at least one epoch
    scorer = Scorer(checkpoint.net(), images)
    subnets = _scored(scorer, task, scored, tell)
    held = documents.stored_scores(
        directory / ALONE,
        checkpoint.fingerprint,
        images.digest,
        lambda texts: [accuracy(trained_alone(text, task, images.train), images.unseen) for text in texts],
    )
    compared = _compared(scorer, subnets, alone, held, tell)
    best = subnets[0]
    tested = accuracy(scorer.calibrated(parse_architecture(best.architecture)), images.test)
    document = documents.SupernetTraining(
        workload=task.workload,
        space=task.space.text,
        images=documents.ImagesUsed(
            name=images.name,
            digest=images.digest,
            classes=len(images.classes),
            **{part: len(getattr(images, part)) for part in ("train", "score", "test")},
        ),
        recipe=dataclasses.asdict(task.recipe),
        torch=torch.__version__,
        parameters=sum(one.numel() for one in scorer.net.parameters()),
        losses=list(losses),
        subnets=subnets,
        best=documents.BestSubnet(**best.model_dump(), test_accuracy=tested),
        alone=compared,
        rank_correlation=_rank_correlation(compared),
        checkpoint=str(directory / CHECKPOINT),
    )
    document.write(directory / TRAINING)
    return document


def _begun(task: Task, images: Images, directory: Path, resume: bool) -> Checkpoint | None:
    """Return the checkpoint to go on from; refuse a directory that holds something else."""
    Store(directory).make()
    if resume and (directory / CHECKPOINT).is_file():
        checkpoint = read_checkpoint(directory)
        refuse_other(checkpoint, task, images.digest, directory)
        return checkpoint
    if any(entry.name[:1] != "." for entry in directory.iterdir()):
        raise not_empty(directory)
    return None


def _refuse_teacher(teacher: Checkpoint, task: Task) -> None:
    """Refuse a teacher that does not know the same classes, or looks at images of another size."""
    for key in ("classes", "image"):
        own, wanted = getattr(teacher.task.backbone, key), getattr(task.backbone, key)
        if own != wanted:
            raise ConfigError(f"a supernet with {key} {own}", file="--teacher", allowed=f"{key} {wanted}")


def _teacher(checkpoint: Checkpoint, images: Images) -> VisionGnn:
    """Return the largest subnet of a trained supernet, of the operator that scores best."""
    scorer = Scorer(checkpoint.net(), images)
    space = checkpoint.task.space
    largest = [space.homogeneous(operator, True) for operator in space.operators]
    return scorer.calibrated(max(largest, key=scorer.score))


def _scored(scorer: Scorer, task: Task, count: int, tell: Tell) -> list[documents.ScoredSubnet]:
    """Score the largest and smallest of each operator, and some drawn at random; the best first."""
    space, random = task.space, np.random.default_rng([task.recipe.seed, 23])
    ends = [space.homogeneous(operator, largest) for operator in space.operators for largest in (True, False)]
    chosen = dict.fromkeys([*ends, *(space.drawn(random) for _ in range(count))])
    subnets = []
    for done, one in enumerate(chosen):
        tell("scoring subnets", done / len(chosen))
        subnets.append(documents.ScoredSubnet(architecture=str(one), accuracy=scorer.score(one)))
    return sorted(subnets, key=lambda one: -one.accuracy)


def _compared(
    scorer: Scorer, subnets: list[documents.ScoredSubnet], count: int, alone: Score, tell: Tell
) -> list[documents.AloneSubnet]:
    """Return some of the subnets, spread evenly over their order, beside the same networks trained alone."""
    places = np.unique(np.linspace(0, len(subnets) - 1, min(count, len(subnets))).round().astype(int))
    compared = []
    for done, place in enumerate(places):
        text = subnets[place].architecture
        tell("training alone", done / len(places))
        shared = accuracy(scorer.calibrated(parse_architecture(text)), scorer.images.unseen)
        compared.append(
            documents.AloneSubnet(architecture=text, accuracy=shared, alone_accuracy=alone([text])[0])
        )
    return compared


def _rank_correlation(compared: list[documents.AloneSubnet]) -> float | None:
    """Return Spearman's correlation between accuracies of subnets and of the same networks trained alone."""
    pairs = np.array([(one.accuracy, one.alone_accuracy) for one in compared]).reshape(-1, 2)
    if len(pairs) < 2 or (pairs.max(0) == pairs.min(0)).any():
        return None
    return float(spearmanr(pairs[:, 0], pairs[:, 1]).statistic)
