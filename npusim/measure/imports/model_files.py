"""Reference to the model file that another tool ran, without its folders."""

from __future__ import annotations

import hashlib
from pathlib import Path

from npusim.measure.document import ModelFile

__all__ = ["model_file", "stem"]


def model_file(path: str, *, at_hand: bool = False) -> ModelFile:
    """Return the reference to a model's file.

    Parameters
    ----------
    path : str
        Its path, as Windows or Linux writes it; the folders are not kept.
    at_hand : bool, optional
        Whether the path is of this machine and of now, so that the file may be hashed.
    """
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2] or "unknown"
    if not at_hand or not Path(path).is_file():
        return ModelFile(name=name)
    return ModelFile(name=name, sha256=hashlib.sha256(Path(path).read_bytes()).hexdigest())


def stem(model: ModelFile) -> str:
    """Return the name of a model's file without its suffix."""
    return model.name.rpartition(".")[0] or model.name
