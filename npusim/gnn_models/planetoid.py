"""Reads Cora and Citeseer from the published raw files; nothing is downloaded or kept.

The raw files are pickles, and a pickle is a program. This reader knows arrays of numbers, sparse matrices,
dictionaries and lists, and builds each of them itself from the numbers in the file. It refuses anything else.
"""

import io
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.errors import FileError, UnknownNameError, shown
from npusim.files import read_bounded, read_text
from npusim.locate import DATA_VARIABLE, dataset_root

DATASETS = ("citeseer", "cora")
_VALIDATED = 500  # nodes for validation in the public split, the ones after the nodes to train on
_REMEDY = "get them from their publisher again"
_MOST_ELEMENTS = 1 << 29  # most elements of a matrix; Reddit's features are 140 million
_MOST_EDGES = 20_000_000
_FORMAT = re.compile(r"[biuf][1248]")
_FILE_REMEDY = "get the file from its publisher again"
_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


@dataclass(frozen=True, slots=True)
class GraphData:
    """One data set in memory."""

    name: str
    x: npt.NDArray[np.float32]  # features [N, F] as published: 1 for each word that a paper contains
    edge_index: npt.NDArray[np.int64]
    """Directed edges [2, E], source above target, both directions, without duplicates and self-loops."""
    y: npt.NDArray[np.int64]  # class of each node [N]
    train: npt.NDArray[np.bool_]  # nodes to train on [N]; the public Planetoid split
    valid: npt.NDArray[np.bool_]  # nodes to choose the epoch by [N]
    test: npt.NDArray[np.bool_]  # nodes to report the accuracy of [N]

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(self.x.shape[0])

    @property
    def features(self) -> int:
        """Number of features per node."""
        return int(self.x.shape[1])

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1


def read_planetoid(name: str, root: Path | None = None) -> GraphData:
    """Read a data set ("cora" or "citeseer") from its raw files.

    `root` holds `cora/raw/ind.cora.x` and so on (torch_geometric's layout); default: the variable
    NPUSIM_DATA. Citeseer's 15 test nodes that have no features are rows of zeros.

    Raises
    ------
    FileError
        When no folder is named or a raw file is missing; the message says how to get the files.
    UnknownNameError
        When npusim does not know the data set.
    """
    folder = raw_folder(name, root)
    raw = {part: folder / f"ind.{name}.{part}" for part in _PARTS}
    tested = read_numbers(raw["test.index"])
    features, classes = (
        _joined(read_matrix(raw[f"all{part}"]), read_matrix(raw[f"t{part}"]), tested, folder) for part in "xy"
    )
    nodes, trained = len(features), len(read_matrix(raw["y"]))
    source, target = read_neighbours(raw["graph"])
    if len(classes) != nodes or trained + _VALIDATED > nodes or max(source.max(), target.max()) >= nodes:
        raise FileError(str(folder), f"the files do not go together: {nodes} nodes have features", _REMEDY)
    keep = source != target
    unique = np.unique(target[keep] * nodes + source[keep])
    edge_index = np.stack([unique % nodes, unique // nodes]).astype(np.int64)
    places = np.arange(nodes)
    masks = (places < trained, (places >= trained) & (places < trained + _VALIDATED), np.isin(places, tested))
    x, y = features.astype(np.float32), classes.argmax(axis=1).astype(np.int64)
    return GraphData(name, x, edge_index, y, *masks)


def _joined(known: Any, tests: Any, tested: Any, folder: Path) -> Any:
    """Return a row for each node: the known ones, then `tests` at the nodes `tested`; else zeros."""
    first, last = len(known), int(tested.max())
    together = known.shape[1] == tests.shape[1] and len(tested) == len(tests) == len(set(tested.tolist()))
    if not together or tested.min() < first or last >= first + 2 * len(tests):
        raise FileError(str(folder), f"the files do not go together: {len(tests)} test nodes", _REMEDY)
    rows = np.zeros((last + 1, known.shape[1]), known.dtype)
    rows[:first], rows[tested] = known, tests
    return rows


def raw_folder(name: str, root: Path | None) -> Path:
    """Return the folder of raw files of a data set; parameters and errors as for `read_planetoid`."""
    if name not in DATASETS:
        raise UnknownNameError("dataset", name, DATASETS, "real data is read for these only")
    fetch = (
        "torch_geometric fetches the files where there is a network: "
        f"python -c \"from torch_geometric.datasets import Planetoid; Planetoid('DIR', '{name}')\""
    )
    try:
        folder = dataset_root(root)
    except NotADirectoryError as error:
        raise FileError(str(root or f"${DATA_VARIABLE}"), str(error), fetch) from None
    if folder is None:
        raise FileError(name, f"no data folder is named; pass --data DIR or set {DATA_VARIABLE}", fetch)
    raw = folder / name / "raw"
    missing = [f"ind.{name}.{part}" for part in _PARTS if not (raw / f"ind.{name}.{part}").is_file()]
    if missing:
        raise FileError(str(raw), f"raw files are missing: {', '.join(missing)}", fetch)
    return raw


class _Format:
    """A number format: stands for numpy.dtype."""

    def __init__(self, name: Any, *_: Any) -> None:
        if not isinstance(name, str) or not _FORMAT.fullmatch(name):
            raise ValueError(f"an array of {shown(name)}")
        self.name, self.order = name, "|"

    def __setstate__(self, state: Any) -> None:
        self.order = {"<": "<", ">": ">"}.get(state[1], "|")


class _Array:
    """An array of numbers: stands for numpy.ndarray."""

    values: Any = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, data = state
        raw = data.encode("latin-1") if isinstance(data, str) else bytes(data)
        flat = np.frombuffer(raw, np.dtype(kind.order + kind.name))
        self.values = flat.reshape(tuple(map(int, shape)), order="F" if fortran else "C")


class _Sparse:
    """A matrix in compressed rows: stands for scipy.sparse.csr_matrix."""

    def matrix(self) -> Any:
        """Return the matrix [rows, columns], its indices checked."""
        from scipy.sparse import csr_matrix

        parts = vars(self)
        rows, columns = map(int, parts["_shape"])
        if not 0 < rows * columns <= _MOST_ELEMENTS or rows < 0:
            raise ValueError(f"a matrix of {rows} x {columns}")
        arrays = tuple(parts[name].values for name in ("data", "indices", "indptr"))
        matrix = csr_matrix(arrays, (rows, columns))
        matrix.check_format(full_check=True)
        return matrix.toarray()


class _Factory:
    """The default factory of a dictionary; it is never called."""


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
    """An unpickler that builds containers of numbers only."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the class for a name in a file; refuse everything that is no container of numbers."""
        full = f"{module}.{name}"
        plain = _ALIASES.sub(lambda found: "builtins" if found[0] == "__builtin__" else "", full)
        if plain not in _KNOWN:
            raise pickle.UnpicklingError(
                f"it names {shown(full)}; allowed: arrays, matrices, lists, mappings"
            )
        return _KNOWN[plain]


def read_raw(path: Path) -> Any:
    """Return the array [N, F] or the dictionary of a raw file; a `FileError` where it holds anything else."""
    try:
        content = _Reader(io.BytesIO(read_bounded(path)), encoding="latin-1").load()
        if isinstance(content, _Sparse):
            return content.matrix()
        return content.values if isinstance(content, _Array) else content
    except FileError:
        raise
    except Exception as error:  # an ill-formed pickle may raise anything
        raise FileError(str(path), f"is no raw file of numbers ({error})", _FILE_REMEDY) from None


def read_matrix(path: Path) -> Any:
    """Return the matrix [N, F] of a raw file; errors as for `read_raw`."""
    matrix = read_raw(path)
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or not len(matrix):
        raise FileError(str(path), "holds no matrix", _FILE_REMEDY)
    return matrix


def read_neighbours(path: Path) -> Any:
    """Return the edges of a raw file [2, E], nodes above neighbours; errors as for `read_raw`."""
    lists = read_raw(path)
    if not isinstance(lists, dict) or not all(isinstance(others, list) for others in lists.values()):
        raise FileError(str(path), "holds no lists of neighbours", _FILE_REMEDY)
    if sum(map(len, lists.values())) > _MOST_EDGES:
        raise FileError(str(path), "holds too many edges", f"at most {_MOST_EDGES:,} are read")
    pairs = [(node, other) for node, others in lists.items() for other in others]
    if not pairs or not all(type(end) is int and 0 <= end < 1 << 40 for pair in pairs for end in pair):
        raise FileError(str(path), "holds a neighbour that is no number of a node", _FILE_REMEDY)
    return np.array(pairs, np.int64).T


def read_numbers(path: Path) -> Any:
    """Return the whole numbers of a text, one per line; errors as for `read_raw`."""
    lines = read_text(path).split()
    if not lines or not all(re.fullmatch("[0-9]{1,12}", line) for line in lines):
        raise FileError(str(path), "holds no list of whole numbers", _FILE_REMEDY)
    return np.array(lines, np.int64)
