"""What the lessons ask of the model: small networks and their estimates, the machine loaded once."""

from __future__ import annotations

from functools import cache

import npusim
from npusim.arch import Soc
from npusim.engines import Estimate
from npusim.locate import DEFAULT_SOC


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


def estimate(network: npusim.Graph | str, soc: Soc | None = None, techniques: str = "none") -> Estimate:
    """Return what an inference costs, without its interval: a slider should not wait for samples."""
    return npusim.estimate(network, soc or machine(), techniques=techniques, interval=False)
