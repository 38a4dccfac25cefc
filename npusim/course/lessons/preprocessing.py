r"""3. Why preprocessing belongs on the CPU.

A GNN begins by counting edges and dividing by degrees. Which unit should do that, and how often?

A graph convolution needs $\text{norm} = D^{-1/2} (A + I) D^{-1/2}$. A framework exports that as operators along the
edges: count the degrees (ScatterAdd), take roots, gather them for both ends of each edge, multiply. None of it needs a MAC grid; all
of it falls to the NPU's vector processors (DSP), one element at a time. And it depends on the edges alone, not on the features.
"""

from math import prod

from npusim.course.drawings import busy_bars, grid_of
from npusim.course.lesson import Exercise, Lesson, Picture, Question, Shown, Slider
from npusim.course.machine import estimate, gnn, machine
from npusim.reporting.engineering import engineering
from npusim.reporting.html import UNIT_COLOURS

GRID = grid_of(machine())
STACKS = {
    "as exported (edges)": "none",
    "GraphSplit: CPU where it pays": "graphsplit",
    "PreG: edge weights from the CPU": "preg",
    "StaGr: the matrix is a constant": "stagr",
}


def _stacks(nodes: int, degree: int) -> Shown:
    graph = gnn("gcn", nodes, degree)
    costs = {name: estimate(graph, techniques=stack) for name, stack in STACKS.items()}
    exported, *_, stagr = costs.values()
    even = nodes * (exported.latency_s - exported.launch_s) / (stagr.latency_s - stagr.launch_s)
    text = rf"""
        Latency as exported: **{engineering(exported.latency_s, "s")}**; with StaGr: **{engineering(stagr.latency_s, "s")}**,
        {exported.latency_s / stagr.latency_s:.0f} times less. StaGr turns the sums into a product with a constant matrix:

        $$\begin{{aligned}} \text{{matrix}} &= 2\,\text{{B}} \cdot N^2 = 2 \cdot {nodes}^2 = {2 * nodes**2 / 1e6:.1f}\,\text{{MB}} \\[1ex]
        \text{{in place of}} &\phantom{{=}}\; {nodes * degree / 1e3:g}\,\text{{thousand edges}} \end{{aligned}}$$

        Nearly all of these entries are zero, and yet the product wins: the grids of four tiles do {4 * prod(GRID):,} multiplications in a cycle. The matrix
        grows with the square of the nodes, the edges only with their number: carried on like this, both would be even at some {float(f"{even:.1g}"):,.0f} nodes. *GraphSplit* and *PreG* move what depends on edges alone to the CPU; what stays are the sums of the features.
        """
    return busy_bars(costs, ("npu.dsp", "npu.dpu", "npu.dma", "cpu"), UNIT_COLOURS), text


LESSON = Lesson(
    Question(
        "GCN on Cora's size, exported as it is. What share of the time do the matrix products on the grid take?",
        ["about nine tenths", "about a third", "less than a hundredth"],
        "less than a hundredth",
        "The products finish in microseconds. The sums along edges, which the DSPs do, take all of the rest.",
    ),
    [
        Picture(
            {
                "nodes": Slider("nodes", [250, 500, 1000, 2000, 2708, 4000, 6000, 8000], 2708),
                "degree": Slider("neighbours of a node", range(2, 33, 2), 4),
            },
            _stacks,
            height=320,
        )
    ],
    Exercise(
        "A graph has 10,000 nodes. How many MB has its dense norm matrix in fp16?",
        2 * 10_000**2 / 1e6,
        "Square the number of nodes and take 2 bytes for each. That is 200 MB, far more than any NPU's SRAM: it comes from DRAM, every inference.",
        unit="MB",
        hints={"that is the number of entries in millions; fp16 has 2 bytes.": 100.0},
    ),
)
