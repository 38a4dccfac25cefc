r"""1. The MAC grid and how busy it is.

An NPU multiplies matrices on a grid of lanes. Which sizes fill it, and what happens to those that do not?

A product $C = A\,B$ has $M$ rows, $N$ columns, and sums of $K$ terms. One *tile* of this NPU (Intel's NPU 4000) has
{pixels} x {channels} *lanes*. Each lane holds one output and adds {depth} products of fp16
numbers to it each cycle. The grid is laid over the result block by block; where a block reaches beyond the result,
its lanes wait.

Question
--------
A product has 17 rows and 16 columns: one row more than the grid. How busy are the lanes?

- [ ] nearly all: 94 %
- [x] about half: 53 %
- [ ] hardly any: 6 %

The 17th row needs a second block of its own, whose other 15 rows of lanes wait: 17 of 32 rows work.

Exercise
--------
A layer has 40 input channels (K = 40), M = 64 rows and N = 24 outputs. What share of lanes is busy, by the equation?

Answer: 75 %

Round each size up to what the grid works on at once, and divide the real product by the rounded one. Only $N$ is ragged: 24 of 32 columns work, 75 %.

- 25: that is the share that waits; the question is about the other part.
"""

from npusim.course.drawings import busy_share, grid_of, outputs_filling, steps
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import estimate, machine, product
from npusim.reporting.engineering import engineering, percent

GRID = grid_of(machine())


@picture(
    m=Slider("rows $M$", range(1, 65), 17),
    k=Slider("terms of a sum $K$", range(1, 65), 64),
    n=Slider("columns $N$", range(1, 65), 16),
    height=420,
)
def _filling(m: int, k: int, n: int) -> Shown:
    down, deep, across = steps(GRID, m, k, n)
    cost = estimate(product(m, k, n)).operators[0]
    tiles = cost.mapping.tiles if cost.mapping else 1
    text = rf"""
        $$\begin{{aligned}} \text{{busy}} &= \frac{{M\,K\,N}}{{\lceil M/{GRID.pixels}\rceil {GRID.pixels} \cdot
        \lceil K/{GRID.depth}\rceil {GRID.depth} \cdot \lceil N/{GRID.channels}\rceil {GRID.channels}}} \\[1ex]
        &= \frac{{{m} \cdot {k} \cdot {n}}}{{{down * GRID.pixels} \cdot {deep * GRID.depth}
        \cdot {across * GRID.channels}}} = \mathbf{{{100 * busy_share(GRID, m, k, n):.0f}\,\%}} \end{{aligned}}$$

        The whole model adds what an equation of edges leaves out: filling the lanes with operands, writing results back, spreading work over {tiles} tiles, and bringing {engineering(cost.dram_bytes, "B")} from DRAM. With all of that this product takes {engineering(cost.latency_s, "s")} and keeps **{percent(cost.grid_utilisation or 0.0)}** of the lanes busy; what limits it is *{cost.bound}*. Small products never fill a grid; the next lesson shows which large ones do not either.
        """
    return outputs_filling(GRID, m, n), text


LESSON = Lesson(__doc__, _filling, numbers=GRID._asdict())
