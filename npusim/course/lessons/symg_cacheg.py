r"""7. SymG and CacheG: a what-if no laptop can run.

Half of a symmetric matrix, kept on chip: what would it give, on which machine?

The norm matrix of an undirected graph is symmetric: $a_{ij} = a_{ji}$. *SymG* stores and moves one triangle with the diagonal and mirrors it on
the way into the grid. *CacheG* keeps the matrix in SRAM between the layers that use it. Both need changes in the NPU's compiler that nobody outside
of it can make. A model can ask anyway.

Question
--------
A GCN of two layers on Cora (2,708 nodes, fp16) on four tiles of 1.5 MB. Can CacheG alone keep the whole matrix?

- [ ] yes
- [ ] no, not even half of it
- [x] no, but with SymG nearly

14.7 MB do not fit into four tiles of 1.5 MB, but what fits need not come again; a triangle has 7.3 MB.

Exercise
--------
How many MB has the triangle, with its diagonal, of 4,000 nodes in int8?

Answer: 8.002 MB

Half of N (N + 1) entries, one byte each. That is 8.0 MB.

- 16.004: that is fp16; int8 has one byte.
"""

from collections.abc import Sequence

from npusim.course.drawings import LAUNCH_COLOUR, stacked
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import dram_gb_s, estimate, gnn, machine
from npusim.engines import Estimate
from npusim.locate import DEFAULT_SOC
from npusim.reporting.engineering import engineering

STACKS = ("stagr", "stagr+cacheg", "stagr+symg", "stagr+symg+cacheg")


BANDWIDTHS = dram_gb_s(20, 40, 60, 80, 100, 120)
FASTEST_GB_S = BANDWIDTHS[-1]
HARDLY = 1.05


def _costs(nodes: int, sram: float, bandwidth: float, stacks: Sequence[str] = STACKS) -> dict[str, Estimate]:
    soc = machine(DEFAULT_SOC, f"npu.sram.per_tile={sram} MB", f"dram.bandwidth={bandwidth} GB/s")
    graph = gnn("gcn", nodes, 4)
    return {stack: estimate(graph, soc, stack) for stack in stacks}


def _gain(nodes: int, sram: float, bandwidth: float) -> float:
    """Return how many times quicker SymG and CacheG together make an inference."""
    plain, both = _costs(nodes, sram, bandwidth, (STACKS[0], STACKS[-1])).values()
    return plain.latency_s / both.latency_s


@picture(
    nodes=Slider("nodes", [500, 1000, 1500, 2000, 2708, 4000, 6000], 2000),
    sram=Slider("SRAM of a tile (MB)", [0.5, 1, 1.5, 2, 3, 4, 8], 1.5),
    bandwidth=Slider("DRAM (GB/s)", BANDWIDTHS, 80),
    height=320,
)
def _stacks(nodes: int, sram: float, bandwidth: float) -> Shown:
    costs = _costs(nodes, sram, bandwidth)
    plain, cached, _, both = costs.values()
    gain = plain.latency_s / both.latency_s
    faster_gain = _gain(nodes, sram, FASTEST_GB_S)
    bars = {
        stack: {"launch": cost.launch_s, "transfers and products": cost.latency_s - cost.launch_s}
        for stack, cost in costs.items()
    }
    text = rf"""
        $$\begin{{aligned}} \text{{triangle}} &= \frac{{N (N + 1)}}{{2}} \cdot 2\;\text{{B}} = \mathbf{{{nodes * (nodes + 1) / 1e6:.2f}\;\text{{MB}}}} \\[1ex]
        \text{{whole matrix}} &= N^2 \cdot 2\;\text{{B}} = {2 * nodes * nodes / 1e6:.2f}\;\text{{MB}} \end{{aligned}}$$

        Both together: **{gain:.2f} times** quicker ({engineering(plain.latency_s, "s")} to {engineering(both.latency_s, "s")}),
        with {engineering(plain.dram_bytes, "B")} and {engineering(both.dram_bytes, "B")} through DRAM.
        CacheG alone: {plain.latency_s / cached.latency_s:.2f} times; SymG then makes it {cached.latency_s / both.latency_s:.2f} times quicker again,
        {"hardly anything: what CacheG keeps need not be halved" if cached.latency_s / both.latency_s < HARDLY else "for a triangle needs half the room and half the transfers"}.
        With {FASTEST_GB_S:g} GB/s both together would give {faster_gain:.2f} times{": a faster DRAM takes away from the gain" if faster_gain < gain - 0.005 else ""}.
        """
    return stacked(bars, "latency", "s", LAUNCH_COLOUR), text


LESSON = Lesson(__doc__, _stacks)
