"""One aggregation with PyTorch Geometric in a process of its own: readings of time, and peak memory.

Times are the process's own processor time on one thread, so that other programs do not count. For the memory
reading the allocator returns freed blocks to the system, and the libraries' pages are touched before.
"""

from __future__ import annotations

import ctypes
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

# Option of mallopt(3): larger allocations return to the system when they are freed.
_M_MMAP_THRESHOLD, _HANDED_BACK_BYTES = -3, 65536
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_WARM_UP = {"nodes": 64, "edges": 256, "hidden": 32, "chunks": 1}
_MOST_READINGS = 20


class Aggregation(MessagePassing):
    """Sums of neighbours' features, scaled by the edges' weights; means without weights."""

    def __init__(self, chunks: int, scaled: bool) -> None:
        super().__init__(aggr="add" if scaled else "mean", decomposed_layers=chunks)

    def forward(self, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> Tensor:
        """Return the aggregate [nodes, features]."""
        return self.propagate(edge_index, x=x, weight=weight)

    def message(self, x_j: Tensor, weight: Tensor | None) -> Tensor:
        """Return the messages [edges, features]."""
        return x_j if weight is None else weight.view(-1, 1) * x_j


def prepared(operator: str, sizes: Mapping[str, int]) -> Callable[[], Tensor]:
    """Return an aggregation along random edges, ready to run."""
    random = torch.Generator().manual_seed(0)
    nodes, edges = sizes["nodes"], sizes["edges"]
    x = torch.randn(nodes, sizes["hidden"], generator=random)
    ends = torch.randint(0, nodes, (2, edges), generator=random)
    if operator == "CsrProduct":
        return lambda: _csr_product(x, ends, nodes)
    scaled = operator == "MessagePassing"
    weight = torch.rand(edges, generator=random) if scaled else None
    module = Aggregation(sizes.get("chunks", 1), scaled)
    return lambda: module(x, ends, weight)


def _csr_product(x: Tensor, ends: Tensor, nodes: int) -> Tensor:
    """Sort the edges by target into compressed rows and multiply."""
    target, order = ends[1].sort()
    starts = torch.zeros(nodes + 1, dtype=torch.int64)
    starts[1:] = torch.bincount(target, minlength=nodes).cumsum(0)
    values = torch.ones(len(target))
    matrix = torch.sparse_csr_tensor(starts, ends[0][order], values, (nodes, nodes), check_invariants=False)
    return matrix @ x


def run(pipe: Connection, operator: str, sizes: Mapping[str, int], seconds: float, memory: bool) -> None:
    """Measure an aggregation and send {"latencies_s": [...]} or {"peak_bytes": ...}, or {"error": ...}."""
    try:
        torch.set_num_threads(1)
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        with torch.no_grad():
            prepared(operator, {**_WARM_UP, **({} if "chunks" in sizes else {"chunks": 1})})()
            answer = _peak(operator, sizes) if memory else _times(operator, sizes, seconds)
        pipe.send(answer)
    except Exception as error:  # the parent process reports it
        pipe.send({"error": f"{type(error).__name__}: {error}"})
    finally:
        pipe.close()


def _times(operator: str, sizes: Mapping[str, int], seconds: float) -> dict[str, Any]:
    call = prepared(operator, sizes)
    call()
    latencies_s: list[float] = []
    while not latencies_s or (sum(latencies_s) < seconds and len(latencies_s) < _MOST_READINGS):
        began = time.process_time()
        call()
        latencies_s.append(time.process_time() - began)
    return {"latencies_s": latencies_s}


def _peak(operator: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _HANDED_BACK_BYTES)
    before = psutil.Process().memory_info().rss
    _forget_peak()
    call = prepared(operator, sizes)
    call()
    peak = _peak_rss()
    grown = 0 if peak is None else peak - before
    return {"peak_bytes": float(grown) if grown > 0 else None}


def _forget_peak() -> None:
    """Reset Linux's memory peak of this process."""
    with suppress(OSError):
        _CLEAR.write_text("5")


def _peak_rss() -> int | None:
    """Return the peak of this process's memory (B); None where it is unknown."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    with suppress(OSError, StopIteration):
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return None
