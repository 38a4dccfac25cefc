r"""4. Graphs that change.

A compiled network has fixed shapes. What if a node arrives every second?

*StaGr* compiles the matrix of the graph into the network. When an edge comes, that constant is wrong. *GrAd* makes the matrix
an input: the CPU writes it, the network stays. But its shape still says $N$. *NodePad* compiles for a *capacity* $C \ge N$ and fills up with
zeros; a new node then takes an empty row. Padding is not free: the matrix has $C^2$ entries, whether they mean something or not.

Question
--------
A graph of {start} nodes is compiled for a capacity of {capacity}. How much longer does an inference take?

- [ ] four times as long
- [x] a little more than twice
- [ ] not longer: zeros are skipped

The matrix has four times the bytes, and the network waits for them. But launching it takes what it took, and so do the features' products.

Exercise
--------
A matrix of 3,000 nodes is padded to 4,000. By what factor do its bytes grow?

Answer: 16/9

Both sides of the matrix grow by 4/3. Its bytes grow by 16/9, 1.78 times.

- 4/3: that is one side; the matrix has two.
"""

from functools import cache

from npusim.course.drawings import curves
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import estimate, gnn
from npusim.reporting.engineering import engineering
from npusim.reporting.html import amount_axis

START, CAPACITIES = 2000, [2000, 2250, 2500, 2750, 3000, 3500, 4000, 5000, 6000]


@cache
def _latency_s(capacity: int) -> float:
    return estimate(gnn("gcn", START, 4), techniques=f"grad+nodepad:capacity={capacity}").latency_s


@picture(
    nodes=Slider("nodes today", range(START, 6001, 50), START),
    compile_s=Slider("time to compile (s)", [1, 2, 5, 10, 20, 30, 60], 10),
)
def _padding(nodes: int, compile_s: int) -> Shown:
    capacity = next(capacity for capacity in CAPACITIES if capacity >= nodes)
    latency_s, exact_s = _latency_s(capacity), _latency_s(nodes)
    padding_s = latency_s - exact_s
    figure = curves(
        CAPACITIES,
        {"an inference at this capacity": [_latency_s(each) for each in CAPACITIES]},
        nodes,
        {"title": "capacity (line: nodes today)"},
        amount_axis("latency", "s"),
    )
    if padding_s > 0:
        inferences = f"{float(f'{compile_s / padding_s:.3g}'):,.0f}".replace(",", "{,}")
        balance = rf"""
        $$\frac{{\text{{compile}}}}{{\text{{padding}}}} = \frac{{{compile_s}\;\text{{s}}}}{{({1e6 * latency_s:.1f} - {1e6 * exact_s:.1f})\;\mu\text{{s}}}}
        = \mathbf{{{inferences}}}$$

        Compiling again pays only with more inferences than that between one new node and the next.
        """
    else:
        balance = rf"""
        $$\text{{padding}} = {1e6 * latency_s:.1f}\;\mu\text{{s}} - {1e6 * exact_s:.1f}\;\mu\text{{s}} = \mathbf{{0}}$$

        Padding costs nothing here, so compiling again would never pay. {"But the next node has no room: it needs the next capacity." if capacity == nodes else ""}
        """
    text = rf"""
        The smallest of these capacities that holds {nodes} nodes is **{capacity}**: {engineering(latency_s, "s")}
        an inference, with room for {capacity - nodes} more nodes. A network compiled for exactly {nodes} nodes takes {engineering(exact_s, "s")}, but each new node
        then costs {compile_s} s of compiling.
        {balance}

        `npusim stream gcn-cora` finds the best of these ways for a graph and a rate of updates of your own.
        """
    return figure, text


LESSON = Lesson(__doc__, _padding, numbers={"start": START, "capacity": 2 * START})
