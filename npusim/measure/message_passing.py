"""Gather and scatter on a CPU: peak memory, and misses of caches and address translation, by chunks.

PyTorch Geometric writes a message for each edge, scales it, and adds it up at its target. Of a chunk of the
features each edge reads two indices, a row of the table of features, and its message twice. A row lies
anywhere in the table, so it misses a level by the share of the table that the level does not hold; messages
and indices pass in order, and prefetchers of the L2 cache fetch them within a page: they miss the L1 cache
line by line, but the levels behind it once a page. A load is a vector register wide.

Rates are those of a processor's counters: L1 and address translation over all loads, the last level over the
loads that reach it.
"""

from __future__ import annotations

from dataclasses import dataclass

from npusim.ops import DType

_INDEX_BYTES, _VALUE_BYTES = float(DType.INT64.bytes), float(DType.FP32.bytes)
"""PyTorch Geometric's node numbers and, as it makes them, features and weights."""
_SORTED_COLUMNS = 16
"""Columns from which PyTorch sorts what it scatters (can_use_expanded_index_path)."""


@dataclass(frozen=True, slots=True)
class CacheHierarchy:
    """Caches and address translation that one core sees."""

    l1_bytes: float
    """Data cache of a core (B)."""
    l2_bytes: float
    """Second level of a core (B)."""
    llc_bytes: float
    """Last level (B)."""
    tlb_entries: float
    """Pages whose addresses the second-level TLB holds."""
    page_bytes: float
    """A page (B)."""
    line_bytes: float
    """A cache line (B)."""
    vector_bytes: float
    """A load (B)."""


@dataclass(frozen=True, slots=True)
class MessagePassing:
    """An aggregation along edges in chunks."""

    nodes: int
    edges: int
    """Edges, self-loops included."""
    width: int
    """Features that are aggregated, all heads together."""
    chunks: int = 1
    """Parts that they are cut into."""
    scaled: bool = True
    """Whether messages are multiplied by a weight: GCN and GAT do, a mean does not."""

    @property
    def chunk_width(self) -> int:
        """Features of the widest chunk."""
        return -(-self.width // self.chunks)


@dataclass(frozen=True, slots=True)
class MissRates:
    """Shares of loads that miss."""

    l1: float
    llc: float
    tlb: float


def peak_memory_bytes(work: MessagePassing, features: int, listed: int, heads: int = 1) -> float:
    """Count what a layer occupies at its worst moment (B).

    Parameters
    ----------
    features : int
        Features of the input, which stays.
    listed : int
        Edges as they are handed in; those with self-loops are a list of their own where there are more.
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
    """Count what an aggregation alone occupies at its worst moment in today's PyTorch Geometric (B).

    There are features, edges and weights all the time. A chunk's messages are fetched while those of the
    chunk before are still held; its messages and their scaled copy are summed, sorted by target where
    they are at least a cache line wide (targets, places, and two lists to sort into); at the end chunks'
    sums and what they are joined to lie side by side, with the last messages. In compressed rows edges
    are sorted, and the sums are held twice.
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
    """Return how many edges are read: all of them for each chunk."""
    return float(work.edges * work.chunks)


def traffic_bytes(work: MessagePassing, caches: CacheHierarchy) -> float:
    """Return the bytes between caches and memory of an aggregation (B).

    Indices and messages stream, messages written and read for each step; rows of the table as far as the last
    level does not hold them.
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
    loads = (
        passes * loads_of_a_row + 2.0 + (1.0 if work.scaled else 0.0) + loads_of_a_row
    )  # sums are read too
    lines = max(1.0, row / caches.line_bytes)
    streamed = 2.0 * _INDEX_BYTES + (passes - 1.0) * row + (_VALUE_BYTES if work.scaled else 0.0)
    l1 = lines * _missed(table, caches.l1_bytes) + streamed / caches.line_bytes
    pages = streamed / caches.page_bytes
    refs = lines * _missed(table, caches.l2_bytes) + pages
    llc = lines * _missed(table, caches.llc_bytes) + pages
    tlb = _missed(table / caches.page_bytes, caches.tlb_entries) + pages
    return MissRates(min(1.0, l1 / loads), llc / refs if refs else 0.0, min(1.0, tlb / loads))


def _missed(reach: float, held: float) -> float:
    """Share of random accesses within `reach` that a level which holds `held` of it misses."""
    return max(0.0, 1.0 - held / reach) if reach > 0.0 else 0.0
