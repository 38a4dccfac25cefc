r"""3. Preprocessing: once, on the CPU, as a matrix.

A GNN begins by counting edges and dividing by degrees. What does moving that to the CPU give, and what else must change?

A graph convolution needs $\text{norm} = D^{-1/2} (A + I) D^{-1/2}$. A framework exports that as operators along the
edges: count the degrees (ScatterAdd), take roots, gather them for both ends of each edge, multiply. None of it needs a MAC grid; all
of it falls to the NPU's vector processors (DSP), one element at a time. And it depends on the edges alone, not on the features.

*GraphSplit* runs it on the CPU, at each inference. *PreG* takes the degrees from the CPU and turns the sums along edges (*aggregation*) into
products with a matrix, which it still builds at each inference. *StaGr* has the finished matrix made once.

Question
--------
GCN on Cora's size, exported as it is. What share of the time do the matrix products on the grid take?

- [ ] about nine tenths
- [ ] about a third
- [x] less than a hundredth

The products finish in microseconds. The sums along edges, which the DSPs do, take nearly all of the rest, preprocessing hardly anything.

Exercise
--------
A graph has 10,000 nodes. How many MB has its dense norm matrix in fp16?

Answer: 200 MB

Square the number of nodes and take 2 bytes for each. That is 200 MB, far more than any NPU's SRAM: it comes from DRAM, every inference.

- 100: that is the number of entries in millions; fp16 has 2 bytes.
"""

from math import floor, isqrt, prod

from npusim.course.drawings import critical_bars, critical_parts, grid_of
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import estimate, gnn, machine
from npusim.engines.estimate import OperatorCost
from npusim.reporting.engineering import engineering, percent
from npusim.reporting.html import COLOURS

GRID = grid_of(machine())
STACKS = {
    "as exported (edges)": "none",
    "GraphSplit: CPU where it pays": "graphsplit",
    "PreG: weights from the CPU, sums as products": "preg",
    "StaGr: the matrix is a constant": "stagr",
}
PREPROCESSING, AGGREGATION = "preprocessing", "aggregation"
PHASE_COLOURS = {PREPROCESSING: COLOURS[5], AGGREGATION: COLOURS[0], "combination": COLOURS[2]}
MATRIX_NODES = isqrt(int(float(machine().dram.capacity) / 2))
"""Nodes whose dense matrix in fp16 fills the machine's DRAM."""


def _phase(op: OperatorCost) -> str:
    return str(op.phase)


def _limit(even: float, is_outgrown: bool) -> str:
    """Return what ends the advantage of the dense matrix first: time, or the capacity of DRAM."""
    rounded = f"{float(f'{even:.1g}'):,.0f}"
    if is_outgrown:
        return f"Time alone would be even at some {rounded} nodes, but long before that, at {MATRIX_NODES:,} nodes, the matrix fills this machine's DRAM."
    return f"Carried on like this, both would take equally long at some {rounded} nodes."


@picture(
    nodes=Slider("nodes", [250, 500, 1000, 2000, 2708, 4000, 6000, 8000], 2708),
    degree=Slider("neighbours of a node", range(2, 33, 2), 4),
    height=320,
)
def _stacks(nodes: int, degree: int) -> Shown:
    graph = gnn("gcn", nodes, degree)
    costs = {name: estimate(graph, techniques=stack) for name, stack in STACKS.items()}
    exported, split, preg, stagr = costs.values()
    parts_s = {name: critical_parts(cost, _phase) for name, cost in costs.items()}
    exported_s, _, preg_s, _ = parts_s.values()
    rows = "\n        ".join(
        f"| {name} | {engineering(cost.latency_s, 's')} | {engineering(parts_s[name].get(PREPROCESSING, 0.0), 's')} |"
        for name, cost in costs.items()
    )
    even = nodes * (exported.latency_s - exported.launch_s) / (stagr.latency_s - stagr.launch_s)
    text = rf"""
        | techniques | latency | preprocessing |
        | --- | ---: | ---: |
        {rows}

        - **The CPU alone** (GraphSplit) makes it {
        exported.latency_s / split.latency_s:.2f} times quicker: as exported, aggregation takes {
        percent(exported_s[AGGREGATION] / exported.latency_s)
    } of the time, preprocessing {percent(exported_s[PREPROCESSING] / exported.latency_s)}.
        - **Sums as products** (PreG) make it {
        exported.latency_s
        / preg.latency_s:.1f} times quicker than as exported. Now preprocessing, which builds the matrix on the DSPs, takes {
        percent(preg_s[PREPROCESSING] / preg.latency_s)
    } of what is left.
        - **Built once on the CPU** (StaGr), it is {preg.latency_s / stagr.latency_s:.1f} times quicker again.

        $$\begin{{aligned}} \text{{matrix}} &= 2\;\text{{B}} \cdot N^2 = 2 \cdot {nodes}^2 = {
        2 * nodes**2 / 1e6:.1f}\;\text{{MB}} \\[1ex]
        \text{{in place of}} &\phantom{{=}}\; {
        nodes * degree / 1e3:g}\;\text{{thousand edges}} \end{{aligned}}$$

        At least {
        floor(1000 * (1 - (degree + 1) / nodes))
        / 10:g} % of these entries are zero, and yet the product wins: the grids of four tiles do {
        4 * prod(GRID):,} multiplications in a cycle. The matrix
        grows with the square of the nodes, the edges only with their number. {
        _limit(even, even > MATRIX_NODES)
    }
        """
    return critical_bars(costs, _phase, PHASE_COLOURS), text


LESSON = Lesson(__doc__, _stacks)
