"""Checkpoints of a supernet: weights, and what a training has to have in common to go on from them."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from npusim.errors import FileError, NpusimError
from npusim.files import write_whole
from npusim.magnas.images import Images, read_images
from npusim.magnas.scoring import Scorer
from npusim.magnas.space import ArchitectureSpace
from npusim.magnas.spec import VisionGnnSpec
from npusim.magnas.vig import Supernet, one_thread

CHECKPOINT = "supernet.pt"
"""Name of the file in the directory of a training."""
_FORMAT = "npusim.supernet/1"
_MOST_BYTES = 8 << 30


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


@dataclass(frozen=True)
class Task:
    """What is learnt, from which images, how."""

    workload: str
    """Name or file of the backbone."""
    backbone: VisionGnnSpec
    space: ArchitectureSpace
    source: str
    """Images: digits, or a folder."""
    held: float
    """Share of the images that training does not see."""
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

    def told(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "workload": self.workload,
            "backbone": self.backbone.model_dump(mode="json"),
            "space": dataclasses.asdict(self.space),
            "source": self.source,
            "held": self.held,
            "recipe": dataclasses.asdict(self.recipe),
            "teacher": self.teacher,
        }


@dataclass(frozen=True)
class Checkpoint:
    """A training after an epoch."""

    task: Task
    digest: str
    """Fingerprint of the images."""
    losses: tuple[float, ...]
    """Of each epoch so far."""
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
        told = hashlib.sha256()
        for name, value in sorted(self.weights.items()):
            told.update(name.encode() + value.numpy().tobytes())
        return told.hexdigest()[:16]

    def scorer(self) -> Scorer:
        """Return what scores the subnets; NpusimError where the images are not those that it learnt from."""
        images = self.task.images()
        if images.digest != self.digest:
            raise NpusimError(
                f"{self.task.source}: the images are not those that the supernet was trained on, so scores "
                "would be of images that it may have learnt; train again"
            )
        return Scorer(self.net(), images)

    def write(self, path: Path) -> None:
        """Write it whole or not at all."""
        held = io.BytesIO()
        content = {
            "format": _FORMAT,
            "task": self.task.told(),
            "digest": self.digest,
            "losses": list(self.losses),
            "weights": self.weights,
            "optimiser": self.optimiser,
        }
        torch.save(content, held)
        write_whole(path, held.getvalue())


def checkpoint_file(path: Path) -> Path:
    """Return the file of a checkpoint that a path names: itself, or that in a directory of a training."""
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
    except (
        OSError,
        EOFError,
        RuntimeError,
        ValueError,
        KeyError,
        pickle.UnpicklingError,
        zipfile.BadZipFile,
    ):
        raise damaged from None
    if not isinstance(held, dict) or held.get("format") != _FORMAT:
        raise damaged
    try:
        task = _task_of(held["task"])
        found = Checkpoint(task, held["digest"], tuple(held["losses"]), held["weights"], held["optimiser"])
        found.net()
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError):
        raise damaged from None
    return found


def _task_of(told: dict[str, Any]) -> Task:
    space = {name: tuple(values) for name, values in told["space"].items()}
    return Task(
        told["workload"],
        VisionGnnSpec.model_validate(told["backbone"]),
        ArchitectureSpace(**space),
        told["source"],
        told["held"],
        Recipe(**told["recipe"]),
        told["teacher"],
    )


def refuse_other(found: Checkpoint, wanted: Task, digest: str, path: Path) -> None:
    """Refuse to go on with a checkpoint of another training; the message names what differs."""
    one, other = found.task.told(), wanted.told()
    differs = [
        f"{part}.{key}" if isinstance(value, dict) else part
        for part, value in other.items()
        for key in (value if isinstance(value, dict) else [""])
        if (value[key] != one[part].get(key) if isinstance(value, dict) else value != one[part])
    ]
    if found.digest != digest and "source" not in differs:
        differs.append("images")
    if differs:
        raise NpusimError(
            f"{path}: cannot be resumed: it holds a training of other {', '.join(differs)}; "
            "train into another directory"
        )
