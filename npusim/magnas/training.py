"""`npusim.train_supernet`: training of Vision GNNs and supernets (sandwich rule with distillation)."""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch.nn import functional

from npusim.api.asking import Progress, of_workload, telling
from npusim.config.overrides import Settings
from npusim.errors import ConfigError, FileError, NpusimError
from npusim.explore.scoring_pool import Score
from npusim.explore.store import Store, changed_inputs, not_empty
from npusim.explore.sweep import Interrupted
from npusim.files import write_whole
from npusim.magnas import documents
from npusim.magnas.images import Images, Part, read_images
from npusim.magnas.space import Architecture, ArchitectureSpace, parse_architecture, space_of
from npusim.magnas.spec import VisionGnnSpec
from npusim.magnas.vig import Scorer, Supernet, VisionGnn, accuracy, calibrated, one_thread
from npusim.reporting.engineering import flattened
from npusim.workloads import load_of_kind

CHECKPOINT = "supernet.pt"
_FORMAT = "npusim.supernet/2"
_MOST_BYTES = 8 << 30
TRAINING = "training.json"
ALONE = "alone.json"
"""Name of the file there with the accuracies of networks trained alone, so that none is trained twice."""
_GRADIENT = 1.0
"""Largest norm of a step's gradient."""

Tell = Callable[[str, float], None]


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
        buffer = io.BytesIO()
        plain = {"task": _TASK.dump_python(self.task, mode="json"), "losses": list(self.losses)}
        torch.save({"format": _FORMAT} | vars(self) | plain, buffer)
        write_whole(path, buffer.getvalue())

    def refuse_other(self, task: Task, digest: str, path: Path) -> None:
        """Refuse to go on with a training of another task or images; the message names what differs."""
        own, other = (
            flattened(_TASK.dump_python(one, mode="json")) | {"images": images}
            for one, images in ((self.task, self.digest), (task, digest))
        )
        differing = changed_inputs(own, other)
        if differing:
            raise NpusimError(
                f"{path}: cannot be resumed: it holds a training of other {', '.join(differing)}; "
                "train into another directory"
            )


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
    file = path / CHECKPOINT if path.is_dir() else path
    if not file.is_file():
        raise FileError(str(file), "is no file", "train a supernet first: npusim magnas train -o DIR")
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ValueError("too large")
        held = torch.load(file, map_location="cpu", weights_only=True)
        if held.pop("format") != _FORMAT:
            raise ValueError("another format")
        task, losses = _TASK.validate_python(held.pop("task")), tuple(held.pop("losses"))
        checkpoint = Checkpoint(task, losses=losses, **held)
        checkpoint.net()
    except Exception:  # torch raises errors of many kinds for files that are no archives of its own
        problem = "is no checkpoint of a supernet, or damaged"
        raise FileError(str(file), problem, "train again") from None
    return checkpoint


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

    def sandwich(self, epoch: int, teacher: nn.Module | None, tell: Tell) -> float:
        """Train a supernet for an epoch; return the mean loss of its largest subnets."""
        recipe, losses = self.recipe, list[float]()
        for images, classes in self.batches(epoch):
            largest, *others = sampled(self.net.space, self.random, recipe.balanced)
            answers = self.net(images, largest)
            loss = functional.cross_entropy(answers, classes)
            loss.backward()
            losses.append(loss.item())
            taught = functional.softmax((answers if teacher is None else teacher(images)).detach(), 1)
            for one in others:
                own = self.net(images, one)
                by_labels = functional.cross_entropy(own, classes) * (1.0 - recipe.distillation)
                (by_labels + recipe.distillation * functional.cross_entropy(own, taught)).backward()
            tell(f"epoch {epoch + 1}", (epoch + len(losses) / self.steps) / recipe.epochs)
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


def train_supernet(
    images: str = "digits",
    directory: str | Path = "supernet",
    *,
    workload: str = "magnas-digits",
    settings: Settings = (),
    depths: str | Sequence[int] = "2,3,4",
    operators: str | Sequence[str] = "max_relative,edgeconv,graphsage,gin",
    widths: str | Sequence[int] = "30,60,100",
    teacher: str | Path | None = None,
    held: float = 0.5,
    scored: int = 24,
    alone: int = 0,
    resume: bool = False,
    progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
    **recipe: Any,
) -> documents.SupernetTraining:
    """Train a supernet on images: one set of weights for every architecture of the space.

    Sandwich rule: each step trains the largest and the smallest subnet, each with one operator throughout,
    and random ones between, which also learn from the largest. Subnets are scored on images that training
    did not see. The digits take about 3 minutes on one core. Needs the extra `gnn`.

    Parameters
    ----------
    images : str
        digits (scikit-learn's), or a folder of a folder a class.
    directory : str or Path
        New directory for checkpoint and scores.
    workload : str
        Backbone, a workload of kind vision-gnn.
    settings : settings
        Of the workload; paths begin with `workload`.
    depths : sequence of int, or str with commas
        Blocks of a superblock.
    operators : sequence of str, or str with commas
        Graph operators.
    widths : sequence of int, or str with commas
        Hidden features of feed-forward networks, in % of the channels.
    teacher : str or Path, optional
        A supernet trained earlier on the same classes. None: the largest subnet of each step
    held : float
        Images that training does not see: half score, half test.
    scored : int
        Random subnets that are scored afterwards.
    alone : int
        So many of these are trained alone too, to compare the order.
    resume : bool
        Go on with what an earlier run left in the directory.
    progress, stop : callable, optional
        Called with the share that is done, 1.0 and the present step; says whether to stop after the epoch.
    **recipe
        epochs, batch, balanced, learning_rate, weight_decay, dropout, distillation, shift, seed: fields of
        `npusim.magnas.training.Recipe`.

    Command lines
    -------------
        npusim magnas train -o digits
        npusim magnas train --epochs 30 --alone 8 -o digits
        npusim magnas train flowers --workload magnas-vig --epochs 150 --batch 320 -o supernet
        npusim magnas train -o digits --resume
    """
    space, folder = space_of(depths, operators, widths), Path(directory).expanduser()
    own_settings = of_workload(settings, ": training knows no machine")
    backbone = load_of_kind(workload, VisionGnnSpec, own_settings)
    taught_by = None if teacher is None else read_checkpoint(Path(teacher))
    fingerprint = "" if taught_by is None else taught_by.fingerprint
    task = Task(workload, backbone, space, images, held, Recipe(**recipe), fingerprint)
    data, tell = task.images(), telling(progress) or (lambda step, share: None)
    own_backbone = VisionGnnSpec.model_validate(backbone.model_dump() | {"classes": data.classes})
    task = replace(task, backbone=own_backbone)
    guide = None if taught_by is None else _teacher(taught_by, task, data)
    checkpoint = _trained(task, data, folder, resume, guide, tell, stop)
    scorer = Scorer(checkpoint.net(), data)
    subnets = _scored(scorer, task, scored, tell)
    best = subnets[0]
    tested = accuracy(scorer.calibrated(parse_architecture(best.architecture)), data.test)
    known = documents.stored_scores(
        folder / ALONE,
        checkpoint.fingerprint,
        data.digest,
        lambda texts: [accuracy(trained_alone(text, task, data.train), data.unseen) for text in texts],
    )
    compared = _compared(scorer, subnets, alone, known, tell)
    document = documents.SupernetTraining(
        workload=task.workload,
        space=task.space.text,
        images=documents.ImagesUsed(
            name=data.name,
            digest=data.digest,
            classes=data.classes,
            **{part: len(getattr(data, part)) for part in ("train", "score", "test")},
        ),
        recipe=asdict(task.recipe),
        torch=torch.__version__,
        parameters=sum(one.numel() for one in scorer.net.parameters()),
        losses=list(checkpoint.losses),
        subnets=subnets,
        best=documents.BestSubnet(**best.model_dump(), test_accuracy=tested),
        alone=compared,
        rank_correlation=_rank_correlation(compared),
        checkpoint=str(folder / CHECKPOINT),
    )
    document.write(folder / TRAINING)
    return document


def _trained(
    task: Task,
    images: Images,
    directory: Path,
    resume: bool,
    teacher: VisionGnn | None,
    tell: Tell,
    stop: Callable[[], bool],
) -> Checkpoint:
    """Train from the start, or from the checkpoint that a directory holds; return the last checkpoint."""
    Store(directory).make()
    file, checkpoint = directory / CHECKPOINT, Checkpoint(task, images.digest, (), {}, {})
    net = task.new()
    epochs = Epochs(net, images.train, task.recipe)
    if resume and file.is_file():
        checkpoint = read_checkpoint(directory)
        checkpoint.refuse_other(task, images.digest, directory)
        net.load_state_dict(checkpoint.weights)
        epochs.optimiser.load_state_dict(checkpoint.optimiser)
    elif any(entry.name[:1] != "." for entry in directory.iterdir()):
        raise not_empty(directory)
    for epoch in range(len(checkpoint.losses), task.recipe.epochs):
        losses = (*checkpoint.losses, epochs.sandwich(epoch, teacher, tell))
        states = net.state_dict(), epochs.optimiser.state_dict()
        checkpoint = Checkpoint(task, images.digest, losses, *states)
        checkpoint.write(file)
        if len(losses) < task.recipe.epochs and stop():
            raise Interrupted(f"stopped after {len(losses)} of {task.recipe.epochs} epochs; --resume goes on")
    return checkpoint


def _teacher(teacher: Checkpoint, task: Task, images: Images) -> VisionGnn:
    """Return the largest subnet of a trained supernet, of the operator that scores best.

    Raises
    ------
    ConfigError
        Where it does not know the same classes, or looks at images of another size.
    """
    for key in ("classes", "image"):
        own, wanted = getattr(teacher.task.backbone, key), getattr(task.backbone, key)
        if own != wanted:
            raise ConfigError(f"a supernet with {key} {own}", file="--teacher", allowed=f"{key} {wanted}")
    scorer, space = Scorer(teacher.net(), images), teacher.task.space
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
