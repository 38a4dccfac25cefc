r"""15. Features in chunks: reuse against reading edges again.

Sum up neighbours in slices of the features: when do the caches thank you for it?

PyTorch Geometric sums up neighbours in three steps: gather a row of features for each edge (a *message*), scale it, add it to its target. Messages are
*edges x features*, often many times the graph itself. *Feature decomposition* does it in $P$ chunks of the features: messages get $P$ times smaller, and rows of
features may stay in a cache until they are needed again. The price: the list of edges is read $P$ times.
"""

from functools import cache

from npusim.course.drawings import curves
from npusim.course.lesson import Exercise, Lesson, Picture, Question, Shown, Slider
from npusim.course.machine import estimate, gnn, machine
from npusim.engines import Estimate
from npusim.reporting.engineering import engineering

SOC, CHUNKS = "threadripper-a6000", (1, 2, 4, 8, 16, 32)


@cache
def _by_chunks(nodes: int, degree: int) -> dict[int, Estimate]:
    graph = gnn("gcn", nodes, degree, features=64, hidden=64)
    stacks = {1: "none"} | {count: f"feature-decomposition:chunks={count}" for count in CHUNKS[1:]}
    return {count: estimate(graph, machine(SOC), stack, device="cpu") for count, stack in stacks.items()}


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
    edges = nodes * degree
    text = rf"""
        $$\begin{{aligned}} \text{{messages}} &= \text{{edges}} \cdot \frac{{F}}{{P}} \cdot 2\,\text{{B}} \\[1ex] &=
        {edges / 1e6:.3g}\,\text{{M}} \cdot \frac{{64}}{{{chunks}}} \cdot 2\,\text{{B}} = \mathbf{{{edges * 64 / chunks * 2 / 1e6:.4g}\,\text{{MB}}}} \end{{aligned}}$$

        {engineering(whole.latency_s, "s")} whole, {engineering(chosen.latency_s, "s")} in {chunks} chunks on a CPU of 64 cores;
        {engineering(whole_bytes, "B")} and {engineering(chosen.memory.dram_peak_bytes, "B")} at the peak.
        """
    return figure, text


LESSON = Lesson(
    Question(
        "With P = 8 chunks, what becomes of the memory for messages, and of the bytes of edges that are read?",
        ["an eighth, and eight times", "an eighth, and the same", "the same, and eight times"],
        "an eighth, and eight times",
        "Only one chunk's messages exist at a time; each chunk walks over all edges.",
    ),
    [
        Picture(
            {
                "nodes": Slider("nodes", [10_000, 50_000, 100_000, 200_000, 500_000], 100_000),
                "degree": Slider("neighbours", [5, 10, 25, 50, 100], 50),
                "chunks": Slider("chunks $P$", CHUNKS, 4),
            },
            _chunks,
        )
    ],
    Exercise(
        "100 million edges, 256 features of 4 bytes. How many GB have the messages in 16 chunks?",
        100e6 * 256 * 4 / 16 / 1e9,
        "Edges times the features of a chunk times their bytes. 16 features of 4 bytes for each edge: 6.4 GB.",
        unit="GB",
        hints={"that is the whole; a chunk has a sixteenth.": 102.4},
    ),
)
