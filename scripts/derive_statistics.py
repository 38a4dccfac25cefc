"""Derive the shipped statistics of Cora and Citeseer from the real Planetoid raw files.

A census taker: reads every house, writes down only totals. Run it as

    NPUSIM_DATA=DIR python scripts/derive_statistics.py            # DIR/cora/raw/ind.cora.x and so on
    python scripts/derive_statistics.py --data DIR --output workloads/statistics

It needs torch_geometric (the extra `gnn`).
"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from npusim.gnn_models.planetoid import GraphData, read_planetoid
from npusim.locate import resource

DATASETS = ("cora", "citeseer")
BLOCKS = (16, 32, 64)
DIGITS = 10  # enough for any use, and few enough that every platform prints the same


_SPLIT = '"the public split of Planetoid"'


def block_density(matrix: sp.coo_matrix, block: int) -> float:
    """Share of `block` x `block` blocks that hold a non-zero; blocks at the right and lower border count as
    whole.
    """
    rows, columns = (-(-n // block) for n in matrix.shape)
    touched = np.unique(matrix.row.astype(np.int64) // block * columns + matrix.col // block)
    return round(len(touched) / (rows * columns), DIGITS)


def statistics_of(data: GraphData) -> dict[str, Any]:
    """Return the statistics of one data set, as its YAML file holds them."""
    nodes = data.nodes
    source, target = data.edge_index
    with_loops = sp.coo_matrix(
        (np.ones(source.size + nodes), (np.r_[target, np.arange(nodes)], np.r_[source, np.arange(nodes)])),
        shape=(nodes, nodes),
    )
    features = sp.coo_matrix(data.x)
    return {
        "name": data.name,
        "source": f"derived by scripts/derive_statistics.py from the Planetoid raw files ind.{data.name}.*",
        "nodes": nodes,
        "edges": int(source.size),
        "features": int(features.shape[1]),
        "classes": data.classes,
        "feature_density": round(features.nnz / (nodes * features.shape[1]), DIGITS),
        "feature_block_density": {b: block_density(features, b) for b in BLOCKS},
        "adjacency_block_density": {b: block_density(with_loops, b) for b in BLOCKS},
        "test_share": {"value": round(float(data.test.mean()), DIGITS), "source": _SPLIT},
        "training_neighbours": {
            "value": round(float((data.train | data.valid)[source].mean()), DIGITS),
            "source": _SPLIT,
        },
        "degree_histogram": np.bincount(np.bincount(target, minlength=nodes)).tolist(),
    }


def to_yaml(statistics: dict[str, Any]) -> str:
    """Return the text of the YAML file."""
    lines = [
        "# Made by scripts/derive_statistics.py; do not edit. What each key means: `npusim schema dataset`."
    ]
    for key, value in statistics.items():
        if isinstance(value, dict):
            value = "{" + ", ".join(f"{k}: {v}" for k, v in value.items()) + "}"
        lines += textwrap.wrap(f"{key}: {value}", 110, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Read the raw files and write the statistics."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, help="folder with cora/raw and citeseer/raw; default: NPUSIM_DATA"
    )
    parser.add_argument("--output", type=Path, default=resource("workloads") / "statistics")
    arguments = parser.parse_args()
    for name in DATASETS:
        text = to_yaml(statistics_of(read_planetoid(name, arguments.data)))
        (arguments.output / f"{name}.yaml").write_text(text, encoding="utf-8")
        print(f"wrote {arguments.output / name}.yaml")


if __name__ == "__main__":
    main()
