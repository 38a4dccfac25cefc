"""Aggregations of PyTorch Geometric: measured on this CPU, and their memory and misses by chunks.

Measurements run in turns, each in its own process, on one thread.

PyTorch Geometric writes a message for each edge, scales it, and adds it at its target. For each edge of a
chunk of features it reads two indices, a row of the feature table, and its message twice. A row lies
anywhere in the table, so it misses a level by the share of the table that the level does not hold. Messages
and indices pass in order, and the L2 prefetchers fetch them within a page: they miss the L1 cache line by
line, but the levels behind it once per page. A load is as wide as a vector register.

Rates are those of a processor's counters: L1 and address translation over all loads, the last level over the
loads that reach it.
"""

from __future__ import annotations

import datetime
import multiprocessing
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psutil
import torch
import torch_geometric

from npusim import __version__
from npusim.errors import NpusimError
from npusim.measuring import aggregation_process
from npusim.measuring.devices import cache_bytes, highest_clock_hz, processor_name
from npusim.measuring.document import Benchmark, Device, Measurement, Row, Spread
from npusim.measuring.running import NothingMeasuredError, noise_warnings
from npusim.ops import DType

if TYPE_CHECKING:
    from npusim.measuring.suites import Item

_TURNS = 3
_SHARE_OF_MEMORY = 0.8  # part of the free memory that an aggregation may take
_PATIENCE_S = 600.0  # longest time of one turn (s)

Progress = Callable[[float, int, str], None]


def counted_bytes(item: Item) -> float:
    """Return npusim's estimate of a row's memory (B)."""
    assert isinstance(item.model, Benchmark)
    return aggregation_bytes(*_work(item.model))


def _work(model: Benchmark) -> tuple[MessagePassing, bool]:
    sizes, compressed = model.sizes, model.operator == "CsrProduct"
    chunks = sizes.get("chunks", 1)
    scaled = model.operator == "MessagePassing"
    return MessagePassing(sizes["nodes"], sizes["edges"], sizes["hidden"], chunks, scaled), compressed


def refuse_too_large(items: Sequence[Item], free_bytes: float | None = None) -> None:
    """Raise an NpusimError for aggregations that exceed the memory; it names the fewest chunks that fit."""
    free = free_bytes if free_bytes is not None else _SHARE_OF_MEMORY * psutil.virtual_memory().available
    for item in items:
        needed = counted_bytes(item)
        if needed <= free:
            continue
        assert isinstance(item.model, Benchmark)
        work, compressed = _work(item.model)
        fitting = fewest_chunks(work, free) if not compressed else None
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
    start = _processes()
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
        answer = _turn(start, item, budget_s / _TURNS, memory=turn == 0)
        if "error" in answer:
            failures[item.id] = str(answer["error"])
        elif turn == 0:
            peaks[item.id] = answer["peak_bytes"]
        else:
            turns[item.id].append(answer["latencies_s"])
    rows = [_row(item, turns[item.id], peaks.get(item.id)) for item in items if turns[item.id]]
    if not rows:
        raise NothingMeasuredError("CPU", failures)
    return Measurement(
        npusim=__version__,
        date=datetime.date.today().isoformat(),
        complete=not stop(),
        device=_device(),
        rows=tuple(rows),
        warnings=(*(f"{name}: {why}" for name, why in failures.items()), *noise_warnings(rows)),
    )


def _processes() -> Any:
    """Return a context that starts processes: forks of one with PyTorch, where the system can fork."""
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([aggregation_process.__name__])
    return context


def _turn(context: Any, item: Item, seconds: float, memory: bool) -> dict[str, Any]:
    assert isinstance(item.model, Benchmark)
    ours, theirs = context.Pipe()
    arguments = (theirs, item.model.operator, dict(item.model.sizes), seconds, memory)
    process = context.Process(target=aggregation_process.run, args=arguments)
    process.start()
    theirs.close()
    try:
        answered = ours.poll(_PATIENCE_S)
        return dict(ours.recv()) if answered else {"error": f"no answer within {_PATIENCE_S:.0f} s"}
    except EOFError:
        return {"error": "the process ended without an answer: it may have run out of memory"}
    finally:
        process.join(1.0)
        if process.is_alive():
            process.kill()
            process.join()


def _row(item: Item, turns: list[list[float]], peak: float | None) -> Row:
    return Row(
        id=item.id,
        model=item.model,
        precision="f32",
        latency_s=Spread.of(turns),
        peak_memory_bytes=peak,
        counted_memory_bytes=counted_bytes(item),
        note="PyTorch Geometric, one thread, processor time",
    )


def _device() -> Device:
    return Device(
        kind="cpu",
        name=processor_name(),
        os=platform.system() or None,
        cores=1,
        clock_hz=highest_clock_hz("cpu"),
        cache_bytes=cache_bytes(1),
        settings={"torch": torch.__version__, "torch_geometric": torch_geometric.__version__},
    )


# PyTorch Geometric's node numbers and, as it makes them, features and weights.
_INDEX_BYTES, _VALUE_BYTES = float(DType.INT64.bytes), float(DType.FP32.bytes)
_SORTED_COLUMNS = 16  # columns from which PyTorch sorts what it scatters (can_use_expanded_index_path)


@dataclass(frozen=True, slots=True)
class CacheHierarchy:
    """Caches and address translation of one core."""

    l1_bytes: float
    l2_bytes: float
    llc_bytes: float
    tlb_entries: float  # pages of the second-level TLB
    page_bytes: float
    line_bytes: float
    vector_bytes: float  # width of a load (B)


@dataclass(frozen=True, slots=True)
class MessagePassing:
    """An aggregation along edges in chunks."""

    nodes: int
    edges: int  # edges, self-loops included
    width: int  # aggregated features, all heads together
    chunks: int = 1
    scaled: bool = True  # whether messages are multiplied by a weight, as in GCN and GAT

    @property
    def chunk_width(self) -> int:
        """Number of features of the widest chunk."""
        return -(-self.width // self.chunks)


@dataclass(frozen=True, slots=True)
class MissRates:
    """Shares of loads that miss a level."""

    l1: float
    llc: float
    tlb: float


def peak_memory_bytes(work: MessagePassing, features: int, listed: int, heads: int = 1) -> float:
    """Return the peak memory of a layer (B).

    Parameters
    ----------
    features : int
        Features of the input, which stays in memory.
    listed : int
        Edges of the input list; with self-loops there is a second list.
    heads : int
        Weights of an edge.

    Notes
    -----
    Input features, transformed features and sums; the list of edges, its copy with self-loops, weights;
    messages and their scaled copy, both as wide as a chunk.
    """
    copies = 2.0 if work.scaled else 1.0
    tables = work.nodes * (features + 2.0 * work.width) * _VALUE_BYTES
    lists = 2.0 * _INDEX_BYTES * (listed + (work.edges if work.edges != listed else 0))
    weights = work.edges * heads * _VALUE_BYTES if work.scaled else work.nodes * _VALUE_BYTES
    return tables + lists + weights + copies * work.edges * work.chunk_width * _VALUE_BYTES


def aggregation_bytes(work: MessagePassing, compressed: bool = False) -> float:
    """Return the peak memory of an aggregation alone in PyTorch Geometric (B).

    Features, edges and weights are always there. A chunk's messages are fetched while the messages of the
    chunk before are still held. Messages and their scaled copy are summed; wide ones are sorted by target
    first (targets, positions, and two lists to sort into). At the end the chunks' sums, their joined copy and
    the last messages exist together. In compressed rows edges are sorted, and the sums are held twice.
    """
    table = work.nodes * work.width * _VALUE_BYTES
    lists = work.edges * (2.0 * _INDEX_BYTES + (_VALUE_BYTES if work.scaled else 0.0))
    sorting = 4.0 * work.edges * _INDEX_BYTES
    if compressed:
        return 3.0 * table + lists + sorting
    messages = work.edges * work.chunk_width * _VALUE_BYTES
    held = messages * (2.0 if work.scaled else 1.0)
    held += sorting if work.chunk_width >= _SORTED_COLUMNS else 0.0
    if work.chunks > 1:
        held = max(held, 2.0 * messages, table + messages)
    return 2.0 * table + lists + held


def edges_read(work: MessagePassing) -> float:
    """Return the number of edges read: all of them for each chunk."""
    return float(work.edges * work.chunks)


def traffic_bytes(work: MessagePassing, caches: CacheHierarchy) -> float:
    """Return the traffic of an aggregation between caches and memory (B).

    Indices and messages stream; each step writes and reads the messages. Rows of the table cause traffic
    where the last level does not hold them.
    """
    row = work.chunk_width * _VALUE_BYTES
    steps = 4.0 if work.scaled else 2.0  # written and read, and so the scaled copy
    streams = 2.0 * _INDEX_BYTES + steps * row + (_VALUE_BYTES if work.scaled else 0.0)
    lines = max(row, caches.line_bytes)
    rows = _missed(work.nodes * row, caches.llc_bytes) * lines
    return edges_read(work) * (streams + rows) + 2.0 * work.nodes * work.width * _VALUE_BYTES


def miss_rates(work: MessagePassing, caches: CacheHierarchy) -> MissRates:
    """Return the miss rates of an aggregation."""
    row = work.chunk_width * _VALUE_BYTES
    table = work.nodes * row
    loads_of_a_row = max(1.0, row / caches.vector_bytes)
    passes = 3.0 if work.scaled else 2.0  # gathered, scaled, added up
    # The sums are read, too.
    loads = passes * loads_of_a_row + 2.0 + (1.0 if work.scaled else 0.0) + loads_of_a_row
    lines = max(1.0, row / caches.line_bytes)
    streamed = 2.0 * _INDEX_BYTES + (passes - 1.0) * row + (_VALUE_BYTES if work.scaled else 0.0)
    l1 = lines * _missed(table, caches.l1_bytes) + streamed / caches.line_bytes
    pages = streamed / caches.page_bytes
    refs = lines * _missed(table, caches.l2_bytes) + pages
    llc = lines * _missed(table, caches.llc_bytes) + pages
    tlb = _missed(table / caches.page_bytes, caches.tlb_entries) + pages
    return MissRates(min(1.0, l1 / loads), llc / refs if refs else 0.0, min(1.0, tlb / loads))


def _missed(reach: float, held: float) -> float:
    """Return the share of random accesses within `reach` that miss a level of size `held`."""
    return max(0.0, 1.0 - held / reach) if reach > 0.0 else 0.0
