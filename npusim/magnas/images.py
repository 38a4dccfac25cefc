"""Images to train on and to score with: scikit-learn's digits, or a folder of one folder a class."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from npusim.errors import ConfigError, FileError

DIGITS = "digits"
"""Name of scikit-learn's digits: 1,797 handwritten ones of 8 x 8 pixels in 16 shades (UCI, 1998)."""
_LEAST_PER_CLASS = 4
"""Images of a class from which training, scoring and test each get one."""
_MOST_BYTES = 4 << 30
"""Bytes of all images at the size of the network, which are held in memory."""
_EXTRA = 'install it: pip install "npusim[gnn]"'


@dataclass(frozen=True)
class Part:
    """Images [N, 3, side, side] as bytes, and their classes [N]."""

    images: Tensor
    classes: Tensor

    def batch(self, places: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Return some images as floats around 0, and their classes."""
        return self.images[places].float() / 127.5 - 1.0, self.classes[places]

    def __len__(self) -> int:
        return len(self.classes)


@dataclass(frozen=True)
class Images:
    """Images in three parts that share none."""

    name: str
    classes: int
    """Classes to tell apart."""
    train: Part
    score: Part
    """Images that subnets are scored on."""
    test: Part
    """Images that neither training nor any choice among subnets sees."""
    digest: str
    """Fingerprint of pixels, classes and parts."""

    @property
    def unseen(self) -> Part:
        """Images that training does not see: those that score and those that test."""
        return Part(
            torch.cat([self.score.images, self.test.images]),
            torch.cat([self.score.classes, self.test.classes]),
        )


def read_images(source: str | Path, side: int, held: float, seed: int) -> Images:
    """Read images and divide them, the classes of every part in the same shares.

    Parameters
    ----------
    source : str or Path
        ``digits``, or a folder that holds a folder of images for each class, all of one size.
    side : int
        Height and width that they are brought to.
    held : float
        Share of the images that training does not see; half of them score, half test.
    seed : int
        Of the division.

    Raises
    ------
    FileError
        Where the folder is missing or empty, or a file is no image.
    ConfigError
        Where there are fewer than two classes, too few images of one, or several sizes.
    """
    read = _digits if str(source) == DIGITS else _folder
    pixels, classes = read(Path(source).expanduser(), side)
    parts = _divided(classes, held, seed)
    digest = hashlib.sha256(pixels.tobytes())
    for places in parts:
        digest.update(places.tobytes() + classes[places].tobytes())
    train, score, test = (
        Part(*(torch.from_numpy(one[places]) for one in (pixels, classes))) for places in parts
    )
    return Images(Path(source).name, len(set(classes.tolist())), train, score, test, digest.hexdigest()[:16])


Labelled = tuple[Any, Any]
"""Pixels [N, 3, side, side] and classes [N]."""


def _digits(source: Path, side: int) -> Labelled:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise FileError("scikit-learn", "is not installed, and has the digits", _EXTRA) from None
    digits = load_digits()
    _refuse_too_many(len(digits.images), side, source)
    grey = torch.from_numpy(digits.images.astype(np.float32) * (255.0 / 16.0))[:, None]
    enlarged = functional.interpolate(grey, size=(side, side), mode="bilinear", align_corners=False)
    pixels = enlarged.round().clamp(0, 255).byte().expand(-1, 3, -1, -1).contiguous().numpy()
    return pixels, digits.target.astype(np.int64)


def _refuse_too_many(count: int, side: int, source: Path) -> None:
    """Refuse images that memory would not hold at this size."""
    most = _MOST_BYTES // (3 * side * side)
    if count > most:
        found = f"{count:,} images of {side} x {side} pixels"
        raise ConfigError(found, file=str(source), allowed=f"at most {most:,} of this size")


def _folder(folder: Path, side: int) -> Labelled:
    if not folder.is_dir():
        raise FileError(str(folder), "is no directory", "name `digits` or a folder of one folder a class")
    names = sorted(one.name for one in folder.iterdir() if one.is_dir() and one.name[:1] != ".")
    files = {name: sorted(one for one in (folder / name).iterdir() if one.name[:1] != ".") for name in names}
    if not any(files.values()):
        raise FileError(str(folder), "holds no images", "it has to hold a folder of images for each class")
    if len(names) < 2:
        raise ConfigError(f"one class, `{names[0]}`", file=str(folder), allowed="two classes or more")
    least = min(names, key=lambda name: len(files[name]))
    if len(files[least]) < _LEAST_PER_CLASS:
        found = f"{len(files[least])} images of class `{least}`"
        allowed = f"at least {_LEAST_PER_CLASS}: training, scoring and test need some each"
        raise ConfigError(found, file=str(folder), allowed=allowed)
    paths = [path for name in names for path in files[name]]
    _refuse_too_many(len(paths), side, folder)
    classes = np.repeat(np.arange(len(names)), [len(files[name]) for name in names])
    return _pixels(paths, side), classes


def _pixels(paths: Sequence[Path], side: int) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise FileError("pillow", "is not installed, and reads images", _EXTRA) from None
    pixels, sizes = np.empty((len(paths), 3, side, side), np.uint8), list[tuple[int, int]]()
    for i, path in enumerate(paths):
        try:
            with Image.open(path) as image:
                sizes.append(image.size)
                if sizes[i] == sizes[0]:
                    scaled = image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
                    pixels[i] = np.asarray(scaled).transpose(2, 0, 1)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise FileError(str(path), f"is no image that can be read ({error})", "remove it") from None
        if sizes[i] != sizes[0]:
            own, first = (f"{width} x {height}" for width, height in (sizes[i], sizes[0]))
            allowed = f"images of one size; {paths[0]} has {first}"
            raise ConfigError(f"{own} pixels", file=str(path), allowed=allowed)
    return pixels


def _divided(classes: Any, held: float, seed: int) -> list[Any]:
    """Return the places of training, scoring and test images."""
    random, parts = np.random.default_rng([seed, 17]), list[tuple[Any, Any, Any]]()
    for one in range(int(classes.max()) + 1):
        places = random.permutation(np.flatnonzero(classes == one))
        kept = max(2, round(held * len(places)))
        parts.append((places[kept:], places[: kept // 2], places[kept // 2 : kept]))
    return [np.sort(np.concatenate(part)) for part in zip(*parts, strict=True)]
