"""What the lessons ask of the model: small networks and their estimates, the machine loaded once."""

from __future__ import annotations

from functools import cache
from typing import Any

import npusim
from npusim.arch import Soc
from npusim.engines import Estimate
from npusim.locate import DEFAULT_SOC
from npusim.workloads import GnnSpec, build_gnn


@cache
def machine(name: str = DEFAULT_SOC, *settings: str) -> Soc:
    """Return a machine by its name, with settings such as ``npu.tiles=4``."""
    return npusim.load_soc(name, list(settings))


def product(rows: int, depth: int, columns: int, dtype: npusim.DType = npusim.DType.FP16) -> npusim.Graph:
    """Return a network of one product: activations [rows, depth] times weights [depth, columns]."""
    editor = npusim.Editor(f"product {rows} x {depth} x {columns}")
    left = editor.input("activations", (rows, depth), dtype)
    right = editor.constant("weights", (depth, columns), dtype)
    editor.outputs.append(editor.matmul(left, right, "product"))
    return editor.finish()


def estimate(
    network: npusim.Graph | str, soc: Soc | None = None, techniques: str = "none", **options: Any
) -> Estimate:
    """Return what an inference costs, without its interval: a slider should not wait for samples."""
    return npusim.estimate(network, soc or machine(), techniques=techniques, interval=False, **options)


def gnn(model: str, nodes: int, degree: float, features: int = 256, **keys: object) -> npusim.Graph:
    """Return a GNN on a random graph of some size; `keys` are those of a workload file of kind gnn.

    Parameters
    ----------
    nodes : int
    degree : float
        Neighbours of a node.
    features : int
        Attributes of a node.
    """
    structure = npusim.GraphStructure("random", nodes, 2 * round(nodes * degree / 2), features, classes=8)
    spec = GnnSpec.model_validate({"model": model, "dataset": "random", **keys})
    return build_gnn(spec, structure)


def layers(rows: int, width: int, count: int = 8, features: int = 64) -> npusim.Graph:
    """Return products one after the other, each [rows, width] times [width, width], with a ReLU."""
    editor = npusim.Editor(f"{count} layers of {width}")
    handed, size = editor.input("x", (rows, features), npusim.DType.FP16), features
    for number in range(count):
        weights = editor.constant(f"w{number}", (size, width), npusim.DType.FP16)
        handed, size = (
            editor.unary("Relu", editor.matmul(handed, weights, f"layer{number}"), f"relu{number}"),
            width,
        )
    editor.outputs.append(handed)
    return editor.finish()
