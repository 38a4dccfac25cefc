"""Raw files of Planetoid: pickles, read without running anything that they name.

A pickle is a program. This reader knows arrays of numbers, sparse matrices, dictionaries and lists, and makes
each of them itself from the numbers in the file; whatever else a file asks for is refused.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from npusim.errors import FileError, shown
from npusim.files import read_bounded, read_text

_MOST_ELEMENTS = 1 << 29
"""Elements of a matrix; Reddit's features are 140 million."""
_MOST_EDGES = 20_000_000
_FORMAT = re.compile(r"[biuf][1248]")
_REMEDY = "get the file from its publisher again"


class _Format:
    """A number format: what the pickle of a numpy.dtype makes."""

    def __init__(self, name: Any, *_: Any) -> None:
        if not isinstance(name, str) or not _FORMAT.fullmatch(name):
            raise ValueError(f"an array of {shown(name)}")
        self.name, self.order = name, "|"

    def __setstate__(self, state: Any) -> None:
        self.order = {"<": "<", ">": ">"}.get(state[1], "|")


class _Array:
    """An array of numbers: what the pickle of a numpy.ndarray makes."""

    values: Any = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, data = state
        raw = data.encode("latin-1") if isinstance(data, str) else bytes(data)
        flat = np.frombuffer(raw, np.dtype(kind.order + kind.name))
        self.values = flat.reshape(tuple(map(int, shape)), order="F" if fortran else "C")


class _Sparse:
    """A matrix in compressed rows: what the pickle of a scipy.sparse.csr_matrix makes."""

    def matrix(self) -> Any:
        """Return the matrix [rows, columns], its indices checked."""
        from scipy.sparse import csr_matrix

        parts = vars(self)
        rows, columns = map(int, parts["_shape"])
        if not 0 < rows * columns <= _MOST_ELEMENTS or rows < 0:
            raise ValueError(f"a matrix of {rows} x {columns}")
        found = csr_matrix(
            tuple(parts[name].values for name in ("data", "indices", "indptr")), (rows, columns)
        )
        found.check_format(full_check=True)
        return found.toarray()


class _Factory:
    """What a dictionary would fill gaps with; nothing asks it to."""


_KNOWN: dict[str, Callable[..., Any]] = {
    "collections.defaultdict": lambda *_: {},
    "numpy.dtype": _Format,
    "numpy.ndarray": _Array,
    "scipy.sparse.csr_matrix": _Sparse,
    "multiarray._reconstruct": lambda *_: _Array(),
    "builtins.list": _Factory,
}
_ALIASES = re.compile(r"^__builtin__(?=\.)|^numpy\.(_?core)\.(?=multiarray)|(?<=scipy\.sparse)\._?csr(?=\.)")


class _Reader(pickle.Unpickler):
    """An unpickler that makes numbers only."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the maker of what a file names; refuse everything that is no container of numbers."""
        full = f"{module}.{name}"
        plain = _ALIASES.sub(lambda found: "builtins" if found[0] == "__builtin__" else "", full)
        if plain not in _KNOWN:
            raise pickle.UnpicklingError(
                f"it names {shown(full)}; allowed: arrays, matrices, lists, mappings"
            )
        return _KNOWN[plain]


def read_raw(path: Path) -> Any:
    """Return what a raw file holds: an array [N, F] of a matrix, or a dictionary.

    Raises
    ------
    FileError
        Where it cannot be read, or holds anything but numbers.
    """
    try:
        found = _Reader(io.BytesIO(read_bounded(path)), encoding="latin-1").load()
        if isinstance(found, _Sparse):
            return found.matrix()
        return found.values if isinstance(found, _Array) else found
    except FileError:
        raise
    except Exception as error:  # an ill-formed pickle may raise anything
        raise FileError(str(path), f"is no raw file of numbers ({error})", _REMEDY) from None


def read_matrix(path: Path) -> Any:
    """Return the matrix [N, F] of a raw file; errors as for `read_raw`."""
    found = read_raw(path)
    if not isinstance(found, np.ndarray) or found.ndim != 2 or not len(found):
        raise FileError(str(path), "holds no matrix", _REMEDY)
    return found


def read_neighbours(path: Path) -> Any:
    """Return the edges of a raw file [2, E], nodes above neighbours; errors as for `read_raw`."""
    found = read_raw(path)
    if not isinstance(found, dict) or not all(isinstance(others, list) for others in found.values()):
        raise FileError(str(path), "holds no lists of neighbours", _REMEDY)
    if sum(map(len, found.values())) > _MOST_EDGES:
        raise FileError(str(path), "holds too many edges", f"at most {_MOST_EDGES:,} are read")
    pairs = [(node, other) for node, others in found.items() for other in others]
    if not pairs or not all(type(end) is int and 0 <= end < 1 << 40 for pair in pairs for end in pair):
        raise FileError(str(path), "holds a neighbour that is no number of a node", _REMEDY)
    return np.array(pairs, np.int64).T


def read_numbers(path: Path) -> Any:
    """Return the whole numbers of a text, one a line; errors as for `read_raw`."""
    lines = read_text(path).split()
    if not lines or not all(re.fullmatch("[0-9]{1,12}", line) for line in lines):
        raise FileError(str(path), "holds no list of whole numbers", _REMEDY)
    return np.array(lines, np.int64)
