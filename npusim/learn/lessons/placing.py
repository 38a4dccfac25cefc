"""13. Placing a Vision GNN over units: an exact front beside chance.

34 blocks on two units have 17 billion placements. Must one search, or can one know?
"""

import marimo

app = marimo.App(
    app_title="13. Placing a Vision GNN over units: an exact front beside chance", css_file="lesson.css"
)

with app.setup:
    import marimo as mo
    import numpy as np
    import plotly.graph_objects as go

    from npusim import Scenario
    from npusim.learn.figure import Figure
    from npusim.learn.machine import machine
    from npusim.learn.parts import checked, exercise, heading, links, question, reply
    from npusim.mapping import chain_front, transitions_limit
    from npusim.report.engineering import engineering
    from npusim.report.html import COLOURS, amount_axis
    from npusim.studies.chain import chain_of, chain_problem

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
        "5,000 placements are drawn at random. How near do the best of them come to the exact front?",
        ["the middle of it, but neither end", "all of it", "nowhere near it"],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "the middle of it, but neither end",
        "Chance mixes both units about equally and changes at every other block. What is quickest, and what takes least energy, changes once or twice.",
    )
    return


@app.cell
def _(guess):
    asleep = guess.value is None
    most = mo.ui.slider(0, 8, value=2, label="changes of unit, at most", show_value=True, disabled=asleep)
    drawn = mo.ui.slider(
        steps=[100, 500, 1000, 5000, 20000],
        value=5000,
        label="random placements",
        show_value=True,
        disabled=asleep,
    )
    mo.hstack([most, drawn], justify="start", gap=2, wrap=True)
    return drawn, most


@app.cell
def _():
    picture = Figure(420)
    picture.place
    return (picture,)


@app.cell
def _(drawn, most, picture):
    _found = chain_front(PROBLEM, [transitions_limit(PROBLEM, most.value)])
    _front = np.stack([_found.latency_s, _found.energy_j], axis=1)
    _chance = PROBLEM.evaluate(np.random.default_rng(0).integers(0, len(UNITS), (drawn.value, BLOCKS)))
    _alone = PROBLEM.evaluate(np.repeat(np.arange(len(UNITS))[:, None], BLOCKS, axis=1))
    _figure = go.Figure()
    for _name, _values, _marker in (
        ("random", _chance, {"color": "#bbbbbb", "size": 5}),
        ("one unit for all", _alone, {"color": COLOURS[1], "size": 12, "symbol": "x"}),
        (
            f"exact, at most {most.value} changes",
            _front,
            {"color": COLOURS[0], "size": 9, "symbol": "diamond"},
        ),
    ):
        _figure.add_scatter(
            x=np.asarray(_values)[:, 0],
            y=np.asarray(_values)[:, 1],
            mode="markers",
            name=_name,
            marker=_marker,
        )
    picture.show(_figure, xaxis=amount_axis("latency", "s"), yaxis=amount_axis("energy", "J"))
    _best, _lucky = (float(np.min(np.asarray(values)[:, 0])) for values in (_front, _chance))
    mo.md(
        rf"""
        $${len(UNITS)}^{{{BLOCKS}}} = {len(UNITS) ** BLOCKS / 1e9:.0f}\,\text{{billion placements}} \;\rightarrow\;
        \mathbf{{{len(_front)}}}\,\text{{worth having with at most {most.value} changes}}$$

        Quickest: {engineering(_best, "s")} exactly, {engineering(_lucky, "s")} by {drawn.value:,} draws. `npusim map magnas-vig --minimise latency,energy`
        does this for any chain, with limits on power and on shares, and over clocks with `--dvfs`.
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
