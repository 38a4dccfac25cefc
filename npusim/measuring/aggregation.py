"""Aggregations of PyTorch Geometric: measured on this CPU, and their memory and misses by chunks.

Measurements run in turns, each in its own process, on one thread.

PyTorch Geometric writes a message for each edge, scales it, and adds it at its target. For each edge of a
chunk of features it reads two indices, a row of the feature table, and its message twice. A row lies
anywhere in the table, so it misses a level by the share of the table that the level does not hold. Messages
and indices pass in order: they miss the L1 cache line by line, and the levels behind it where the prefetchers
come too late. Each pass over a row starts with a load of where it lies, the broadcast product with weights
takes more of them.

Rates are those of a processor's counters: L1 and address translation over all loads, the last level over the
loads that reach it. An instruction takes its own cycles and a share of the latencies of a load's misses.
"""

from __future__ import annotations

import ctypes
import datetime
import multiprocessing
import platform
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

import psutil
import torch
import torch_geometric
from pydantic import Field
from torch import Tensor
from torch_geometric.nn import MessagePassing as Layer

from npusim import __version__
from npusim.config import Section
from npusim.errors import NpusimError
from npusim.measuring.devices import cache_bytes, highest_clock_hz, processor_name
from npusim.measuring.document import Benchmark, Device, Measurement, Row, Spread
from npusim.measuring.running import NothingMeasuredError, noise_warnings
from npusim.measuring.suites import Item
from npusim.ops import DType

_TURNS = 3
_SHARE_OF_MEMORY = 0.8  # part of the free memory that an aggregation may take

Answer = TypeVar("Answer")
Progress = Callable[[float, int, str], None]


def counted_bytes(item: Item) -> float:
    """Return npusim's estimate of a row's memory (B)."""
    return aggregation_bytes(_work(item))


def _work(item: Item) -> MessagePassing:
    assert isinstance(item.model, Benchmark)
    sizes, operator = item.model.sizes, item.model.operator
    nodes, edges, width, chunks = sizes["nodes"], sizes["edges"], sizes["hidden"], sizes.get("chunks", 1)
    scaled, compressed = operator == "MessagePassing", operator == "CsrProduct"
    return MessagePassing(nodes, edges, width, chunks, scaled, compressed)


def refuse_too_large(items: Sequence[Item], free_bytes: float | None = None) -> None:
    """Raise an NpusimError for aggregations that exceed the memory; it names the fewest chunks that fit."""
    free = free_bytes if free_bytes is not None else _SHARE_OF_MEMORY * psutil.virtual_memory().available
    for item in items:
        needed = counted_bytes(item)
        if needed <= free:
            continue
        work = _work(item)
        fitting = fewest_chunks(work, free) if not work.compressed else None
        allowed = f"chunks of at least {fitting}" if fitting else "fewer nodes or edges"
        raise NpusimError(
            f"{item.id}: found {needed / 1e9:.3g} GB of memory needed and {free / 1e9:.3g} GB free; "
            f"allowed: {allowed}"
        )


def fewest_chunks(work: MessagePassing, free_bytes: float) -> int | None:
    """Return the fewest chunks whose aggregation fits a memory; None where no number does."""
    for chunks in range(1, work.width + 1):
        if work.width % chunks == 0 and aggregation_bytes(replace(work, chunks=chunks)) <= free_bytes:
            return chunks
    return None


def measure_aggregations(
    items: Sequence[Item],
    *,
    budget_s: float = 2.0,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Measurement:
    """Measure aggregations with PyTorch Geometric on one thread of this machine's CPU.

    Parameters
    ----------
    items : sequence of Item
        Rows whose operator is one of `npusim.measuring.benchmarks.AGGREGATIONS`.
    budget_s : float
        Time for a row (s), split among its turns; at least one reading each.
    stop : callable, optional
        Asked between processes; once it answers True, what is measured is returned, with ``complete=False``.

    Raises
    ------
    NpusimError
        Where an aggregation would exceed the free memory; nothing has run then.
    NothingMeasuredError
        Where no row could be measured.
    """
    refuse_too_large(items)
    progress, stop = progress or (lambda done, total, what: None), stop or (lambda: False)
    context = _processes()
    turns: dict[str, list[list[float]]] = {item.id: [] for item in items}
    peaks: dict[str, float | None] = {}
    failures: dict[str, str] = {}
    steps = [(turn, item) for turn in range(_TURNS + 1) for item in items]
    for number, (turn, item) in enumerate(steps):
        if stop():
            break
        if item.id in failures:
            continue
        progress(number / (_TURNS + 1), len(items), f"running {item.id}")
        assert isinstance(item.model, Benchmark)
        try:
            with ProcessPoolExecutor(1, context) as process:
                if turn:
                    task = process.submit(_on_one_thread, _times, item.model, budget_s / _TURNS)
                    turns[item.id].append(task.result())
                else:
                    peaks[item.id] = process.submit(_on_one_thread, _peak, item.model).result()
        except BrokenProcessPool:
            failures[item.id] = "the process ended without an answer: it may have run out of memory"
        except Exception as error:  # the row's reason
            failures[item.id] = f"{type(error).__name__}: {error}"
    rows = [
        Row(
            id=item.id,
            model=item.model,
            precision="f32",
            latency_s=Spread.of(turns[item.id]),
            peak_memory_bytes=peaks.get(item.id),
            counted_memory_bytes=counted_bytes(item),
            note="PyTorch Geometric, one thread, processor time",
        )
        for item in items
        if turns[item.id]
    ]
    if not rows:
        raise NothingMeasuredError("CPU", failures)
    device = Device(
        kind="cpu",
        name=processor_name(),
        os=platform.system() or None,
        cores=1,
        clock_hz=highest_clock_hz("cpu"),
        cache_bytes=cache_bytes(1),
        settings={"torch": torch.__version__, "torch_geometric": torch_geometric.__version__},
    )
    return Measurement(
        npusim=__version__,
        date=datetime.date.today().isoformat(),
        complete=not stop(),
        device=device,
        rows=tuple(rows),
        warnings=(*(f"{name}: {why}" for name, why in failures.items()), *noise_warnings(rows)),
    )


def _processes() -> multiprocessing.context.BaseContext:
    """Return a context that starts processes: forks of one with PyTorch, where the system can fork."""
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


# Option of mallopt(3): larger allocations return to the system when they are freed.
_M_MMAP_THRESHOLD, _HANDED_BACK_BYTES = -3, 65536
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_WARM_UP = {"nodes": 64, "edges": 256, "hidden": 32, "chunks": 1}
_MOST_READINGS = 20


class Aggregation(Layer):
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


def _on_one_thread(work: Callable[..., Answer], row: Benchmark, *more: float) -> Answer:
    """Return the answer of a measurement on one thread, after a small run."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
    with torch.no_grad():
        prepared(row.operator, _WARM_UP)()
        return work(row, *more)


def _times(row: Benchmark, seconds: float) -> list[float]:
    """Return readings of the process's own processor time, so that other programs do not count."""
    call = prepared(row.operator, row.sizes)
    call()
    latencies_s: list[float] = []
    while not latencies_s or (sum(latencies_s) < seconds and len(latencies_s) < _MOST_READINGS):
        began = time.process_time()
        call()
        latencies_s.append(time.process_time() - began)
    return latencies_s


def _peak(row: Benchmark) -> float | None:
    """Return the growth of the memory (B); the allocator returns freed blocks to the system meanwhile."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _HANDED_BACK_BYTES)
    before = psutil.Process().memory_info().rss
    with suppress(OSError):
        _CLEAR.write_text("5")  # Linux forgets the peak so far
    prepared(row.operator, row.sizes)()
    peak = _peak_rss()
    return float(peak - before) if peak > before else None


def _peak_rss() -> int:
    """Return the peak of this process's memory (B); 0 where it is unknown."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    with suppress(OSError, StopIteration):
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return 0


_INDEX_BYTES, _VALUE_BYTES = float(DType.INT64.bytes), float(DType.FP32.bytes)
_Positive = Annotated[float, Field(gt=0.0, strict=False)]
_SORTED_COLUMNS = 16  # columns from which PyTorch sorts what it scatters (can_use_expanded_index_path)


class CacheHierarchy(Section):
    """Caches and second-level TLB of one core, bytes of a row that a load brings, latencies (cycles)."""

    l1_bytes: _Positive
    l2_bytes: _Positive
    llc_bytes: _Positive
    tlb_entries: _Positive
    page_bytes: _Positive
    line_bytes: _Positive
    vector_bytes: _Positive
    late_share: Annotated[float, Field(ge=0.0, le=1.0)]
    """Share of the streamed lines that prefetchers bring too late."""
    scaling_loads: Annotated[float, Field(ge=0.0)]
    """Loads that start a row of the product with weights."""
    l2_cycles: _Positive
    llc_cycles: _Positive
    dram_cycles: _Positive
    walk_cycles: _Positive
    busy_cycles: Annotated[float, Field(gt=0.0)]
    """Cycles of an instruction without misses."""
    wait_share: Annotated[float, Field(ge=0.0)]
    """Cycles that an instruction waits, over the latencies of the misses of a load."""


@dataclass(frozen=True, slots=True)
class MessagePassing:
    """An aggregation along edges (self-loops included) in chunks of the features of all heads.

    Messages are multiplied by a weight where `scaled`, as in GCN and GAT. Edges are sorted into a matrix in
    compressed rows where `compressed`.
    """

    nodes: int
    edges: int
    width: int
    chunks: int = 1
    scaled: bool = True
    compressed: bool = False

    @property
    def chunk_width(self) -> int:
        """Number of features of the widest chunk."""
        return -(-self.width // self.chunks)


def aggregation_bytes(work: MessagePassing) -> float:
    """Return the peak memory of an aggregation alone in PyTorch Geometric (B).

    Features, edges and weights are always there. A chunk's messages are fetched while the messages of the
    chunk before are still held. Messages and their scaled copy are summed; wide ones are sorted by target
    first (targets, positions, and two lists to sort into). At the end the chunks' sums, their joined copy and
    the last messages exist together. In compressed rows edges are sorted, and the sums are held twice.
    """
    table = work.nodes * work.width * _VALUE_BYTES
    lists = work.edges * (2.0 * _INDEX_BYTES + (_VALUE_BYTES if work.scaled else 0.0))
    sorting = 4.0 * work.edges * _INDEX_BYTES
    if work.compressed:
        return 3.0 * table + lists + sorting
    messages = work.edges * work.chunk_width * _VALUE_BYTES
    held = messages * (2.0 if work.scaled else 1.0)
    held += sorting if work.chunk_width >= _SORTED_COLUMNS else 0.0
    if work.chunks > 1:
        held = max(held, 2.0 * messages, table + messages)
    return 2.0 * table + lists + held


def miss_rates(work: MessagePassing, caches: CacheHierarchy) -> dict[str, float]:
    """Return the miss rates of an aggregation and its instructions per cycle (`ipc`)."""
    row = work.chunk_width * _VALUE_BYTES
    table = work.nodes * row
    loads_of_a_row = max(1.0, row / caches.vector_bytes)
    passes = 3.0 if work.scaled else 2.0  # gathered, scaled, added up
    starts = passes + (caches.scaling_loads if work.scaled else 0.0)
    # The sums are read, too.
    loads = (passes + 1.0) * loads_of_a_row + 2.0 + (1.0 if work.scaled else 0.0) + starts
    lines = max(1.0, row / caches.line_bytes)
    streamed = 2.0 * _INDEX_BYTES + (passes - 1.0) * row + (_VALUE_BYTES if work.scaled else 0.0)
    l1 = lines * _missed(table, caches.l1_bytes) + streamed / caches.line_bytes
    late = caches.late_share * streamed / caches.line_bytes
    refs = lines * _missed(table, caches.l2_bytes) + late
    llc = lines * _missed(table, caches.llc_bytes) + late
    tlb = _missed(table / caches.page_bytes, caches.tlb_entries) + streamed / caches.page_bytes
    level_1, translation = min(1.0, l1 / loads), min(1.0, tlb / loads)
    latencies = level_1 * caches.l2_cycles + translation * caches.walk_cycles
    latencies += (refs * caches.llc_cycles + llc * caches.dram_cycles) / loads
    cycles = caches.busy_cycles + caches.wait_share * latencies
    return {"l1": level_1, "llc": llc / refs if refs else 0.0, "tlb": translation, "ipc": 1.0 / cycles}


def _missed(reach: float, held: float) -> float:
    """Return the share of random accesses within `reach` that miss a level of size `held`."""
    return max(0.0, 1.0 - held / reach) if reach > 0.0 else 0.0
