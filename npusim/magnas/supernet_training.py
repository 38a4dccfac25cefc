"""Trains a supernet epoch by epoch with checkpoints, scores subnets, and trains some of them alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from npusim.errors import ConfigError, FileError, NpusimError
from npusim.magnas.checkpoint import CHECKPOINT, Checkpoint, Task, read_checkpoint, refuse_other
from npusim.magnas.document import AloneSubnet, BestSubnet, ImagesUsed, ScoredSubnet, SupernetTraining
from npusim.magnas.images import Images, Part, joined
from npusim.magnas.scoring import Scorer, accuracy, calibrated
from npusim.magnas.space import parse_architecture
from npusim.magnas.stored_scores import StoredScores
from npusim.magnas.training import Tell, adam, one_thread, train_alone, train_epoch
from npusim.magnas.vig import VisionGnn

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
