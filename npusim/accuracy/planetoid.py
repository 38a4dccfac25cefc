"""Reads Cora and Citeseer from the published raw files; nothing is downloaded or kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from npusim.errors import FileError, UnknownNameError
from npusim.locate import DATA_VARIABLE, dataset_root

DATASETS = ("citeseer", "cora")
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
    raw = _raw_folder(name, root)
    from torch_geometric.io import read_planetoid_data  # seconds to import

    data = read_planetoid_data(str(raw), name)
    x = data.x.numpy().astype(np.float32)
    source, target = data.edge_index.numpy()
    keep = source != target
    nodes = x.shape[0]
    unique = np.unique(target[keep] * nodes + source[keep])
    edge_index = np.stack([unique % nodes, unique // nodes]).astype(np.int64)
    masks = (data.train_mask.numpy(), data.val_mask.numpy(), data.test_mask.numpy())
    return GraphData(name, x, edge_index, data.y.numpy(), *masks)


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
