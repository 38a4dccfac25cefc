r"""13. Placing a Vision GNN over units: an exact front beside evolution.

34 blocks on two units have 17 billion placements. Must one search, or can one know?

A Vision GNN is a chain of {blocks} blocks: a stem, graph convolutions (*graphers*) and feed-forward networks by turns, a head. Each may run on the NPU or
the GPU. Where neighbours run elsewhere, features pass through DRAM and the other device is launched (MaGNAS, Eq. 6 and 7).

Two ways that end on the same unit have the same future. So of two of them, one that is slower *and* takes more energy can be dropped at once, block after block:
what is left at the end is every placement worth having, and no guess.

Question
--------
2,000 placements each are tried by evolution (NSGA-II) and at random. Who comes within 5 % of the placements on the exact front?

- [x] evolution of most, chance of none
- [ ] both of most
- [ ] neither of any

Evolution keeps the best and changes a block of them here and there, and yet meets few of the front exactly. Chance mixes both units about equally
and changes at every other block, but what is quickest, and what takes least energy, changes seldom.

Exercise
--------
10 blocks on 3 units: how many placements are there?

Answer: 59049, within 0.001

Each block has 3 choices, whatever the others do. 3 to the power of 10 are 59,049.

- 30: choices multiply, they do not add up.
- 1000: it is the other way round: 3 to the power of 10.
"""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from npusim import Scenario
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import machine
from npusim.mapping import chain_front, transitions_limit
from npusim.reporting.engineering import engineering
from npusim.reporting.html import COLOURS, amount_axis
from npusim.studies.chain import chain_of, chain_problem
from npusim.studies.evolution import Budget, Genes, searched

UNITS = ("npu", "gpu")
SCENARIO = Scenario("magnas-vig", machine())
PROBLEM = chain_problem(SCENARIO, chain_of(SCENARIO.graph), UNITS)
BLOCKS = len(PROBLEM.blocks)
NEAR = 0.05
MOST_DRAWN = 400
"""Random placements that the picture shows: more are a grey cloud of the same shape."""


def reached(points: NDArray[np.float64], front: NDArray[np.float64], excess: float) -> int:
    """Return how many points of a front have a point that is worse by at most a relative excess in both."""
    if not len(points):
        return 0
    worse = (points[None, :, :] / front[:, None, :]).max(axis=2).min(axis=1)
    return int((worse <= 1 + excess).sum())


@picture(
    tries=Slider("placements tried", [200, 500, 1000, 2000, 5000], 2000),
    most=Slider("changes of unit, at most", [*range(8), 10, 12, 14, 16, 18, 20, 24, BLOCKS - 1], BLOCKS - 1),
    height=420,
)
def _fronts(tries: int, most: int) -> Shown:
    def values(placements: NDArray[Any]) -> NDArray[np.float64]:
        costs = np.array(PROBLEM.evaluate(placements))[:, :2]
        costs[(np.diff(placements, axis=1) != 0).sum(axis=1) > most] = np.inf
        return costs

    front = chain_front(PROBLEM, [transitions_limit(PROBLEM, most)])
    exact = np.stack([front.latency_s, front.energy_j], axis=1)
    alone = np.repeat(np.arange(len(UNITS))[:, None], BLOCKS, axis=1)
    evolved = searched(Genes(PROBLEM.allowed, values), "nsga2", Budget(tries), alone).values
    drawn = values(np.random.default_rng(0).integers(0, len(UNITS), (tries, BLOCKS)))
    chance = drawn[np.isfinite(drawn[:, 0])]
    some = f"random, {MOST_DRAWN} of {len(chance):,}" if len(chance) > MOST_DRAWN else "random"
    ring = {"color": COLOURS[2], "size": 13, "symbol": "circle-open", "line": {"width": 2}}
    figure = go.Figure()
    for name, points, marker in (
        (some, chance[:MOST_DRAWN], {"color": "#bbbbbb", "size": 5}),
        ("one unit for all", values(alone), {"color": COLOURS[1], "size": 12, "symbol": "x"}),
        ("evolution", evolved, ring),
        ("exact front", exact, {"color": COLOURS[0], "size": 7, "symbol": "diamond"}),
    ):
        figure.add_scatter(x=points[:, 0], y=points[:, 1], mode="markers", name=name, marker=marker)
    figure.update_layout(xaxis=amount_axis("latency", "s"), yaxis=amount_axis("energy", "J"))
    rows = "\n        ".join(
        f"| {name} | {reached(points, exact, 1e-6)} | {reached(points, exact, 0.01)} | {reached(points, exact, NEAR)} | "
        f"{engineering(float(points[:, 0].min()), 's') if len(points) else '-'} |"
        for name, points in (("evolution", evolved), ("chance", chance), ("exact", exact))
    )
    text = rf"""
        $$\begin{{aligned}} {len(UNITS)}^{{{BLOCKS}}} &= {len(UNITS) ** BLOCKS / 1e9:.0f}\;\text{{billion placements}} \\[1ex]
        \text{{exact front}} &= \mathbf{{{len(exact)}}}\;\text{{worth having}} \end{{aligned}}$$

        Of these {len(exact)}, so many are found after {tries:,} tries: exactly, or another that is no more than so much slower and takes no more than so much more energy:

        | search | exactly | within 1 % | within {100 * NEAR:g} % | quickest |
        | --- | ---: | ---: | ---: | ---: |
        {rows}

        Evolution begins with the two placements on *one unit for all*; chance with nothing. {len(chance):,} of the {tries:,} random placements change units at most {most} times;
        {"nearly all that chance tries breaks the limit, while the exact way never tries it" if len(chance) < tries / 10 else "the limit forbids few of them" if len(chance) > 0.9 * tries else "the others break the limit"}.
        `npusim map magnas-vig --minimise latency,energy` has all three (`--method`), with limits on power and on shares, and clocks (`--dvfs`).
        """
    return figure, text


LESSON = Lesson(__doc__, _fronts, numbers={"blocks": BLOCKS})
