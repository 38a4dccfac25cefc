"""Networks, machines and estimates of the lessons."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import npusim
from npusim.arch import Soc
from npusim.engines import Estimate
from npusim.locate import DEFAULT_SOC
from npusim.workloads import GnnSpec, build_gnn
from npusim.workloads.network import Network

_PLAIN = threading.Lock()
_calls: list[str] = []
"""Kind of kernels before each call of `uncompiled` that runs, in any thread."""


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run all kernels as plain Python: at small sizes they take less time than compiling them."""
    with _PLAIN:
        _calls.append(_calls[0] if _calls else os.environ.get("NPUSIM_KERNELS", "auto"))
        os.environ["NPUSIM_KERNELS"] = "plain"
    try:
        yield
    finally:
        with _PLAIN:
            before = _calls.pop()
            os.environ["NPUSIM_KERNELS"] = "plain" if _calls else before


@cache
def machine(name: str = DEFAULT_SOC, *settings: str) -> Soc:
    """Return a machine by its name, with settings such as ``npu.tiles=4``."""
    return npusim.load_soc(name, list(settings))


def dram_gb_s(*bandwidths: float, name: str = DEFAULT_SOC) -> list[float]:
    """Return those bandwidths (GB/s) that do not exceed the peak of a machine's DRAM."""
    peak = machine(name).dram.peak_bandwidth
    return [gb_s for gb_s in bandwidths if peak is None or 1e9 * gb_s <= float(peak)]


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
    """Return a GNN on a random graph with `degree` neighbours a node; `keys` as in a workload file."""
    structure = npusim.GraphStructure("random", nodes, 2 * round(nodes * degree / 2), features, classes=8)
    spec = GnnSpec.model_validate({"model": model, "dataset": "random", **keys})
    return build_gnn(spec, structure)


def layers(rows: int, width: int) -> npusim.Graph:
    """Return eight products one after the other, each [rows, width] times [width, width], with a ReLU."""
    editor = npusim.Editor(f"8 layers of {width}")
    value = editor.input("x", (rows, 64), npusim.DType.FP16)
    for number in range(8):
        shape = (width if number else 64, width)
        weights = editor.constant(f"w{number}", shape, npusim.DType.FP16)
        value = editor.unary("Relu", editor.matmul(value, weights, f"layer{number}"), f"relu{number}")
    editor.outputs.append(value)
    return editor.finish()


def convolution(
    size: int, channels: int, width: int, kernel: int = 3, stride: int = 1, groups: int = 1
) -> npusim.Graph:
    """Return one int8 convolution from [channels, size, size] to [width, size / stride, size / stride]."""
    layer = Network(f"convolution {channels} to {width}", "convolution", "int8")
    x = layer.input("image", (1, channels, size, size), npusim.DType.INT8)
    return layer.finished(layer.convolution(x, width, "layer", kernel, stride, groups=groups, bias=False))
