"""Reads Cora and Citeseer from the published raw files; nothing is downloaded or kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.accuracy.raw_files import read_matrix, read_neighbours, read_numbers
from npusim.errors import FileError, UnknownNameError
from npusim.locate import DATA_VARIABLE, dataset_root

DATASETS = ("citeseer", "cora")
_VALIDATED = 500
"""Nodes that the public split validates with, those behind the nodes to train on."""
_REMEDY = "get them from their publisher again"
_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


@dataclass(frozen=True, slots=True)
class GraphData:
    """One data set in memory."""

    name: str
    x: npt.NDArray[np.float32]
    """Features [N, F] as published: 1 for each word that a paper contains."""
    edge_index: npt.NDArray[np.int64]
    """Directed edges [2, E], source above target, both directions, without duplicates and self-loops."""
    y: npt.NDArray[np.int64]
    """Class of each node [N]."""
    train: npt.NDArray[np.bool_]
    """Nodes to train on [N]; the public Planetoid split."""
    valid: npt.NDArray[np.bool_]
    """Nodes to choose the epoch by [N]."""
    test: npt.NDArray[np.bool_]
    """Nodes to report the accuracy of [N]."""

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(self.x.shape[0])

    @property
    def features(self) -> int:
        """Features of a node."""
        return int(self.x.shape[1])

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1


def read_planetoid(name: str, root: Path | None = None) -> GraphData:
    """Read a data set from its raw files.

    Parameters
    ----------
    name : str
        "cora" or "citeseer".
    root : Path, optional
        Folder that holds `cora/raw/ind.cora.x` and so on (torch_geometric's layout); default: the variable
        NPUSIM_DATA.

    Returns
    -------
    GraphData
        The data set; Citeseer's 15 test nodes that have no features are rows of zeros.

    Raises
    ------
    FileError
        When no folder is named or a raw file is missing; the message says what to set and how to get the
        files.
    UnknownNameError
        When the data set is not one of Planetoid's that npusim knows.
    """
    if name not in DATASETS:
        raise UnknownNameError("dataset", name, DATASETS, "real data is read for these only")
    folder = _raw_folder(name, root)
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
    """Return a row for each node: the known ones, then the test nodes; zeros where one is missing.

    Parameters
    ----------
    known, tests : array, shapes (known, columns) and (tests, columns)
    tested : array of int, shape (tests,)
        Node of each row of `tests`.
    """
    first, last = len(known), int(tested.max())
    together = known.shape[1] == tests.shape[1] and len(tested) == len(tests) == len(set(tested.tolist()))
    if not together or tested.min() < first or last >= first + 2 * len(tests):
        raise FileError(str(folder), f"the files do not go together: {len(tests)} test nodes", _REMEDY)
    rows = np.zeros((last + 1, known.shape[1]), known.dtype)
    rows[:first], rows[tested] = known, tests
    return rows


def _raw_folder(name: str, root: Path | None) -> Path:
    """Return the folder of raw files, or say what is missing and how to come by it."""
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
