"""The log of a search: points and metrics of every generation, for resuming it.

A seeded search asks the same questions in the same order. Resumed, it is answered from the log as far as
the log goes, so it ends where an undisturbed one would have ended.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from npusim.errors import FileError, NpusimError
from npusim.explore.manifest import equations, space_hash
from npusim.explore.spaces import Space
from npusim.explore.store import write_whole

_FILE = "search.npz"
_EVERY = 20
"""Generations between two writings of the log."""


class SearchLog:
    """The log of one search.

    Parameters
    ----------
    seed, population : int
        They belong to the search: with others it would ask other questions.
    """

    def __init__(self, directory: Path, space: Space, seed: int, population: int, resume: bool) -> None:
        self.directory = directory
        self.asked = 0
        self.population = population
        self.file = directory / _FILE
        self._label = f"{space_hash(space)} {equations()} seed {seed} population {population}"
        self._parts: list[tuple[Any, Any, Any]] = []
        self._old: tuple[Any, Any, Any] | None = None
        if resume and os.path.lexists(self.file):
            self._old = self._read()
        elif any(entry.name[:1] != "." for entry in directory.iterdir()):
            raise FileError(
                str(directory), "is not empty", "add --resume to go on with it, or name another directory"
            )

    def answers(self, points: Any, ask: Callable[[Any], tuple[Any, Any]]) -> tuple[Any, Any]:
        """Return (objectives, whether admitted) of points: from the log where it has them, else by asking."""
        start, self.asked = self.asked, self.asked + len(points)
        old = self._old
        if (
            old is not None
            and self.asked <= len(old[0])
            and np.array_equal(old[0][start : self.asked], points)
        ):
            values, good = old[1][start : self.asked], old[2][start : self.asked]
        else:
            values, good = ask(points)
        self._parts.append((points, values, good))
        if old is None and len(self._parts) % _EVERY == 0:
            self.save()
        return values, good

    def all(self) -> tuple[Any, Any, Any]:
        """Return all points, their objectives and whether they are admitted, in the order of asking."""
        points, values, good = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        return points, values, good

    def save(self) -> None:
        """Write the log; FileError where the disk takes no more."""
        points, values, good = self.all()
        buffer = io.BytesIO()
        np.savez(buffer, label=np.array(self._label), points=points, values=values, good=good)
        write_whole(self.file, buffer.getvalue())

    def _read(self) -> tuple[Any, Any, Any]:
        damaged = FileError(
            str(self.file), "is no log of a search, or damaged", "search into another directory"
        )
        if not self.file.is_file():
            raise damaged
        try:
            # What npusim writes is not compressed, so that no more is in memory than on the disk.
            with zipfile.ZipFile(self.file) as packed:
                if any(part.compress_type != zipfile.ZIP_STORED for part in packed.infolist()):
                    raise damaged
            with np.load(self.file, allow_pickle=False) as found:
                label, parts = str(found["label"]), [found[name] for name in ("points", "values", "good")]
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
            raise damaged from None
        if label != self._label:
            raise NpusimError(
                f"{self.directory}: cannot be resumed: it holds a search of another space, seed, "
                "population or version of npusim; search into another directory"
            )
        if [part.ndim for part in parts] != [2, 2, 1] or len({len(part) for part in parts}) != 1:
            raise damaged
        return parts[0], parts[1], parts[2]
