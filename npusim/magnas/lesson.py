"""13. Placing a Vision GNN over units: an exact front beside evolution.

34 blocks on two units have 17 billion placements. Must one search, or can one know?
"""

import marimo

app = marimo.App(
    app_title="13. Placing a Vision GNN over units: an exact front beside evolution",
    css_file="../learn/lessons/lesson.css",
)

with app.setup:
    import marimo as mo
    import numpy as np
    import plotly.graph_objects as go

    from npusim import Scenario
    from npusim.course.figure import Figure
    from npusim.course.machine import machine
    from npusim.course.parts import checked, exercise, heading, links, question, reply
    from npusim.mapping import chain_front, transitions_limit
    from npusim.reporting.engineering import engineering
    from npusim.reporting.html import COLOURS, amount_axis
    from npusim.studies.chain import chain_of, chain_problem
    from npusim.studies.evolved_mapping import Budget, Genes, hypervolume, searched

    UNITS = ("npu", "gpu")
    SCENARIO = Scenario("magnas-vig", machine())
    PROBLEM = chain_problem(SCENARIO, chain_of(SCENARIO.graph), UNITS)
    BLOCKS = len(PROBLEM.blocks)


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        rf"""
        A Vision GNN is a chain of {BLOCKS} blocks: a stem, graph convolutions (*graphers*) and feed-forward networks by turns, a head. Each may run on the NPU or
        the GPU. Where neighbours run elsewhere, features pass through DRAM and the other device is launched (MaGNAS, Eq. 6 and 7).

        Two ways that end on the same unit have the same future. So of two of them, one that is slower *and* takes more energy can be dropped at once, block after block:
        what is left at the end is every placement worth having, and no guess.
        """
    )
    return


@app.cell
def _():
    guess = question(
        "2,000 placements each are tried by evolution (NSGA-II) and at random. Who finds the exact front?",
        ["evolution nearly all of it, chance its middle", "both nearly all of it", "neither comes near"],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "evolution nearly all of it, chance its middle",
        "Evolution keeps the best and changes a block of them here and there. Chance mixes both units about equally and changes at every other "
        "block, but what is quickest, and what takes least energy, changes seldom.",
    )
    return


@app.cell
def _(guess):
    asleep = guess.value is None
    tries = mo.ui.slider(
        steps=[200, 500, 1000, 2000, 5000],
        value=2000,
        label="placements tried",
        show_value=True,
        disabled=asleep,
    )
    most = mo.ui.slider(
        0, BLOCKS - 1, value=BLOCKS - 1, label="changes of unit, at most", show_value=True, disabled=asleep
    )
    mo.hstack([tries, most], justify="start", gap=2, wrap=True)
    return most, tries


@app.cell
def _():
    picture = Figure(420)
    picture.place
    return (picture,)


@app.cell
def _(most, picture, tries):
    def _values(placements):
        costs = np.array(PROBLEM.evaluate(placements))[:, :2]
        costs[(np.diff(placements, axis=1) != 0).sum(axis=1) > most.value] = np.inf
        return costs

    _found = chain_front(PROBLEM, [transitions_limit(PROBLEM, most.value)])
    _exact = np.stack([_found.latency_s, _found.energy_j], axis=1)
    _alone = np.repeat(np.arange(len(UNITS))[:, None], BLOCKS, axis=1)
    _ways = {
        method: searched(Genes(PROBLEM.allowed, _values), method, Budget(tries.value), _alone).values
        for method in ("random", "nsga2")
    }
    _worst = 1.05 * np.concatenate([_exact, _values(_alone)]).max(axis=0)
    _shares = {
        method: hypervolume(front, _worst) / hypervolume(_exact, _worst) for method, front in _ways.items()
    }
    _drawn = _values(np.random.default_rng(0).integers(0, len(UNITS), (tries.value, BLOCKS)))
    _figure = go.Figure()
    for _name, _points, _marker in (
        ("random", _drawn[np.isfinite(_drawn[:, 0])], {"color": "#bbbbbb", "size": 5}),
        ("one unit for all", _values(_alone), {"color": COLOURS[1], "size": 12, "symbol": "x"}),
        (
            "evolution",
            _ways["nsga2"],
            {"color": COLOURS[2], "size": 13, "symbol": "circle-open", "line": {"width": 2}},
        ),
        ("exact front", _exact, {"color": COLOURS[0], "size": 7, "symbol": "diamond"}),
    ):
        _figure.add_scatter(x=_points[:, 0], y=_points[:, 1], mode="markers", name=_name, marker=_marker)
    picture.show(_figure, xaxis=amount_axis("latency", "s"), yaxis=amount_axis("energy", "J"))
    mo.md(
        rf"""
        $$\begin{{aligned}} {len(UNITS)}^{{{BLOCKS}}} &= {len(UNITS) ** BLOCKS / 1e9:.0f}\,\text{{billion placements}} \\[1ex]
        \text{{exact front}} &= \mathbf{{{len(_exact)}}}\,\text{{worth having}} \\[1ex]
        \frac{{\text{{area of evolution}}}}{{\text{{area of the exact front}}}} &= \mathbf{{{100 * _shares["nsga2"]:.1f}\,\%}} \\[1ex]
        \frac{{\text{{area of chance}}}}{{\text{{area of the exact front}}}} &= {100 * _shares["random"]:.1f}\,\% \end{{aligned}}$$

        The area is that of latency and energy which a front dominates (*hypervolume*), after {tries.value:,} tries. Quickest: {engineering(float(_exact[0, 0]), "s")} exactly, {engineering(float(_ways["nsga2"][0, 0]), "s")} by evolution, {engineering(float(_ways["random"][0, 0]), "s")} by chance.
        Allow few changes only, and both find hardly anything: nearly all that they try breaks the limit, while the exact way never tries it.
        `npusim map magnas-vig --minimise latency,energy` has all three (`--method`), with limits on power and on shares, and clocks (`--dvfs`).
        """
    )
    return


@app.cell
def _():
    answer = exercise("10 blocks on 3 units: how many placements are there?")
    right = 3.0**10
    answer
    return answer, right


@app.cell
def _(answer, right):
    checked(
        answer.value,
        right,
        "Each block has 3 choices, whatever the others do. 3 to the power of 10 are 59,049.",
        within=0.001,
        hints={
            "choices multiply, they do not add up.": 30.0,
            "it is the other way round: 3 to the power of 10.": 1000.0,
        },
    )
    return


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
