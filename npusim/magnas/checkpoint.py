"""Checkpoints of a supernet: weights, and what a training has to have in common to go on from them."""

from __future__ import annotations

import dataclasses
import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile

import torch
from pydantic import TypeAdapter

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
_DAMAGES = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    UnpicklingError,
    BadZipFile,
)
"""Errors of reading what is no whole checkpoint."""


@dataclass(frozen=True)
class Recipe:
    """How networks are trained; MaGNAS's except epochs and batch, which suit a small data set."""

    epochs: int = 14
    batch: int = 32
    """Images of a step."""
    balanced: int = 2
    """Subnets drawn at random for each step, beside the largest and the smallest."""
    learning_rate: float = 0.003
    """Rate of the first step; it falls to 0 by half a cosine."""
    weight_decay: float = 0.05
    dropout: float = 0.2
    distillation: float = 0.5
    """Weight of the teacher's answers in the loss of the subnets; the rest is of the labels."""
    shift: float = 0.1
    """Largest shift of an image in training, in shares of its side."""
    seed: int = 0


@dataclass(frozen=True)
class Task:
    """What a training depends on: backbone, space, images and settings."""

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


_TASK = TypeAdapter(Task)
"""Turns tasks into plain data and back."""


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
    except _DAMAGES:
        raise damaged from None
    return checkpoint


def refuse_other(found: Checkpoint, wanted: Task, digest: str, path: Path) -> None:
    """Refuse to go on with a checkpoint of another training; the message names what differs."""
    own, other = (_flat(_TASK.dump_python(task, mode="json")) for task in (found.task, wanted))
    differs = [name for name, value in other.items() if own.get(name) != value]
    if found.digest != digest and "source" not in differs:
        differs.append("images")
    if differs:
        raise NpusimError(
            f"{path}: cannot be resumed: it holds a training of other {', '.join(differs)}; "
            "train into another directory"
        )


def _flat(task: dict[str, Any]) -> dict[str, Any]:
    """Return plain data with the keys of its parts as `part.key`."""
    flat: dict[str, Any] = {}
    for part, value in task.items():
        flat |= (
            {f"{part}.{key}": one for key, one in value.items()} if isinstance(value, dict) else {part: value}
        )
    return flat
