r"""5. Control flow on a vector processor.

Attention over neighbours compares, selects and gathers. What does that cost, and what replaces it?

A graph attention network scores all pairs of nodes, *selects* those that are neighbours, and takes a softmax over them. Selecting is
control flow: each element asks a question. The MAC grid cannot ask. The DSPs can, some tens of elements in a cycle, and every score passes
through their memory again. GraNNite's remedy is to make arithmetic of it: $\text{Select}(m, x, y) = m \cdot x + (1 - m) \cdot y$ (*EffOp*), then only
$x + \text{mask}$ with a mask of $0$ and $-10^4$ (*GrAx1*), whose softmax is as good as exact.
The scores of all pairs are a sum of two vectors, $s_i + t_j$, spread over $N^2$ elements. *GrAx2* adds the vectors *before* they are spread, so that
sum and LeakyReLU have $N$ elements each. The price: all scores of a row become equal, and attention a plain mean.

Question
--------
Which unit is busiest in a graph attention network, all masks prepared?

- [ ] the MAC grid
- [x] the DSPs
- [ ] DMA

Every pair of nodes has a score, and the DSPs handle each score several times: add, LeakyReLU, mask, softmax.

Exercise
--------
A mask is 1 for neighbours and 0 else. GrAx1 adds a number to scores that are no neighbours' before the softmax. By what power of ten, at least, must
exp shrink for fp16 to see nothing of it? (Smallest fp16 number: about 6e-8; answer with the positive exponent.)

Answer: 8, within 0.001

Look for the power of ten below the smallest number that the format can hold. Below 1e-8 nothing is left in fp16, and exp(-1e4) is far below that.

- 7: 6e-8 itself can still be written; one power further.
"""

from itertools import pairwise

from npusim.course.drawings import UNIT_NAMES, critical_bars
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import estimate, gnn
from npusim.engines.estimate import OperatorCost
from npusim.reporting.engineering import engineering, percent
from npusim.reporting.html import COLOURS, UNIT_COLOURS

STEPS = {
    "StaGr: the mask is a constant": "stagr",
    "+ EffOp: Select becomes arithmetic": "stagr+effop",
    "+ GrAx1: one addition masks": "stagr+effop+grax1",
    "+ GrAx2: scores added before they are spread": "stagr+effop+grax1+grax2",
}
CONTROL_FLOW = "control flow"
COLOURS_OF_PARTS = {UNIT_NAMES[unit]: colour for unit, colour in UNIT_COLOURS.items()} | {
    CONTROL_FLOW: COLOURS[1]
}


@picture(nodes=Slider("nodes", [250, 500, 1000, 1500, 2000, 2708, 3500], 1000), height=320)
def _attention(nodes: int) -> Shown:
    graph = gnn("gat", nodes, 4)
    costs = {name: estimate(graph, techniques=stack) for name, stack in STEPS.items()}
    first, *_, last = costs.values()
    latencies_s = [cost.latency_s for cost in costs.values()]
    gains = [before / after for before, after in pairwise(latencies_s)]
    steps = ", ".join(
        f"{gain:.2f} times by {name.partition(':')[0].removeprefix('+ ')}"
        for name, gain in zip([*costs][1:], gains, strict=True)
    )
    largest = [*costs][1 + gains.index(max(gains))].partition(":")[0].removeprefix("+ ")
    control_s = sum(op.critical_s or 0.0 for op in first.operators if op.control_flow)
    text = rf"""
        $$N^2 = {nodes}^2 = {nodes**2 / 1e6:.2f}\;\text{{million scores, a layer}}$$

        From **{engineering(first.latency_s, "s")}** to **{engineering(last.latency_s, "s")}**: {first.latency_s / last.latency_s:.2f} times
        quicker: {steps}. The largest step is **{largest}**. Operators that only pick (control flow) take {percent(control_s / first.latency_s)} of the first bar's latency.

        Each bar is the critical path, so it ends at the latency; work that others hide is not in it.
        """

    def part_of(op: OperatorCost) -> str:
        return CONTROL_FLOW if op.control_flow else UNIT_NAMES[op.unit]

    return critical_bars(costs, part_of, COLOURS_OF_PARTS), text


LESSON = Lesson(__doc__, _attention)
