r"""15. Features in chunks: reuse against reading edges again.

Sum up neighbours in slices of the features: what do memory, DRAM traffic and time gain?

PyTorch Geometric sums up neighbours in three steps: gather a row of features for each edge (a *message*), scale it, add it to its target. Messages are
*edges x features*, often many times the graph itself. As exported, an index goes with every element of a message, in int64 and again in int32. *Feature decomposition* does it in $P$ chunks of the features: messages get $P$ times smaller, and rows of
features may stay in a cache until they are needed again. The price: the list of edges is read $P$ times.

Question
--------
With P = 8 chunks, what becomes of the memory for messages, and of the bytes of edges that are read?

- [x] an eighth, and eight times
- [ ] an eighth, and the same
- [ ] the same, and eight times

Only one chunk's messages exist at a time; each chunk walks over all edges.

Exercise
--------
100 million edges, 256 features of 2 bytes. How many GB have the messages in 16 chunks?

Answer: 3.2 GB

Edges times the features of a chunk times their bytes. 16 features of 2 bytes for each edge: 3.2 GB.

- 51.2: that is the whole; a chunk has a sixteenth.
"""

from functools import cache

from npusim.course.drawings import curves
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import estimate, gnn, machine
from npusim.engines import Estimate
from npusim.reporting.engineering import engineering, percent

FEATURES, ITEM_BYTES, INDEX_BYTES = 64, 2, 8 + 4
SOC, CHUNKS = "generic-cpu", (1, 2, 4, 8, 16, 32)


@cache
def _by_chunks(nodes: int, degree: int) -> dict[int, Estimate]:
    graph = gnn("gcn", nodes, degree, features=FEATURES, hidden=FEATURES)
    stacks = {1: "none"} | {count: f"feature-decomposition:chunks={count}" for count in CHUNKS[1:]}
    return {count: estimate(graph, machine(SOC), stack, device="cpu") for count, stack in stacks.items()}


def _verdict(ratio: float) -> str:
    """Return what chunks do to the time, `ratio` times that of the whole."""
    if abs(ratio - 1) < 0.005:
        return "the same"
    return f"{percent(abs(ratio - 1))} {'less: the caches help' if ratio < 1 else 'more: edges are read again for each chunk'}"


@picture(
    nodes=Slider("nodes", [10_000, 50_000, 100_000, 200_000], 100_000),
    degree=Slider("neighbours", [5, 10, 25, 50], 50),
    chunks=Slider("chunks $P$", CHUNKS, 4),
)
def _chunks(nodes: int, degree: int, chunks: int) -> Shown:
    costs = _by_chunks(nodes, degree).values()
    whole, chosen = _by_chunks(nodes, degree)[1], _by_chunks(nodes, degree)[chunks]
    whole_bytes = whole.memory.dram_peak_bytes
    ticks = {"type": "log", "tickvals": list(CHUNKS), "ticktext": [str(count) for count in CHUNKS]}
    figure = curves(
        CHUNKS,
        {
            "time": [cost.latency_s / whole.latency_s for cost in costs],
            "memory at its peak": [cost.memory.dram_peak_bytes / whole_bytes for cost in costs],
            "bytes from DRAM": [cost.dram_bytes / whole.dram_bytes for cost in costs],
        },
        chunks,
        {"title": "chunks P", **ticks},
        {"title": "against P = 1", "rangemode": "tozero"},
    )
    edges = nodes * (degree + 1)
    messages_bytes = edges * FEATURES / chunks * ITEM_BYTES
    ratio = chosen.latency_s / whole.latency_s
    text = rf"""
        $$\begin{{aligned}} \text{{messages}} &= (\text{{edges}} + N) \cdot \frac{{F}}{{P}} \cdot 2\;\text{{B}} \\[1ex] &=
        {edges / 1e6:.3g}\;\text{{M}} \cdot \frac{{{FEATURES}}}{{{chunks}}} \cdot 2\;\text{{B}} = \mathbf{{{messages_bytes / 1e6:.4g}\;\text{{MB}}}} \end{{aligned}}$$

        Memory at its peak is {engineering(chosen.memory.dram_peak_bytes, "B")} ({engineering(whole_bytes, "B")} whole). While the indices are converted, {INDEX_BYTES} B stand beside the 2 B of each element,
        {engineering(messages_bytes * (1 + INDEX_BYTES / ITEM_BYTES), "B")} together; the rest are lists of edges, features and weights.

        Time: {engineering(whole.latency_s, "s")} whole, {engineering(chosen.latency_s, "s")} in {chunks} chunks on a CPU of 8 cores, {_verdict(ratio)}.
        """
    return figure, text


LESSON = Lesson(__doc__, _chunks)
