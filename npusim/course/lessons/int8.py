"""8. Eight bits instead of sixteen.

Half the bytes and twice the lanes: why is a network not twice as quick, and what does it lose?
"""

import marimo

app = marimo.App(app_title="8. Eight bits instead of sixteen", css_file="lesson.css")

with app.setup:
    import marimo as mo
    import numpy as np
    import plotly.graph_objects as go

    from npusim.course.figure import Figure
    from npusim.course.machine import estimate
    from npusim.course.parts import checked, exercise, heading, links, question, reply
    from npusim.reporting.engineering import engineering
    from npusim.reporting.html import COLOURS

    VALUES = np.random.default_rng(0).standard_normal(4000)


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        r"""
        *QuantGr* stores weights, features and the norm matrix as 8-bit integers: $q = \mathrm{round}(x / s)$ with one scale $s$ for many values. The largest value
        that shall be told apart sets $s$; every value between two steps is moved to one of them.
        """
    )
    return


@app.cell
def _():
    guess = question(
        "GCN on Cora with StaGr waits for DRAM. How much quicker does int8 make one inference, launch included?",
        ["twice: half the bytes", "about 1.5 times", "four times: half the bytes, twice the lanes"],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "about 1.5 times",
        "Half the bytes halve the waiting. Launching the network takes a quarter of a millisecond in either format.",
    )
    return


@app.cell
def _(guess):
    asleep = guess.value is None
    bits = mo.ui.slider(2, 10, value=8, label="bits", show_value=True, disabled=asleep)
    widest = mo.ui.slider(
        1.0,
        16.0,
        step=0.5,
        value=4.0,
        label="largest value that is told apart",
        show_value=True,
        disabled=asleep,
    )
    mo.hstack([bits, widest], justify="start", gap=2, wrap=True)
    return bits, widest


@app.cell
def _():
    picture = Figure(340)
    picture.place
    return (picture,)


@app.cell
def _(bits, picture, widest):
    _steps = 2 ** (bits.value - 1) - 1
    _scale = widest.value / _steps
    _kept = np.clip(np.round(VALUES / _scale), -_steps, _steps) * _scale
    _error = float(np.sqrt(np.mean((_kept - VALUES) ** 2) / np.mean(VALUES**2)))
    _figure = go.Figure()
    _edges = {"start": -4.0, "end": 4.0, "size": 0.05}
    for _name, _what, _colour in (("as they were", VALUES, "#bbbbbb"), ("rounded", _kept, COLOURS[0])):
        _figure.add_histogram(x=_what, xbins=_edges, name=_name, marker={"color": _colour}, opacity=0.75)
    picture.show(_figure, barmode="overlay", xaxis={"title": "value"}, yaxis={"title": "how many"})
    mo.md(
        rf"""
        $$\begin{{aligned}} s &= \frac{{\text{{largest}}}}{{2^{{b-1}} - 1}} = \frac{{{widest.value:g}}}{{{_steps}}} = {_scale:.3g} \\[1ex]
        \frac{{\text{{rms error}}}}{{\text{{rms value}}}} &= \mathbf{{{100 * _error:.2g}\,\%}} \end{{aligned}}$$

        Too wide a range wastes steps; too narrow a one cuts off what is large. At 8 bits there is room for both.
        """
    )
    return


@app.cell
def _():
    _half, _byte = (estimate("gcn-cora", techniques=stack) for stack in ("stagr", "stagr+quantgr"))
    mo.md(
        f"The network: {engineering(_half.latency_s, 's')} in fp16 and {engineering(_byte.latency_s, 's')} in int8, of which {engineering(_byte.launch_s, 's')} is the launch. "
        "What the answers lose, on trained models and real data, says `npusim accuracy` (docs/accuracy.md)."
    )
    return


@app.cell
def _():
    answer = exercise("Values reach from -3 to 3. What is the scale of symmetric 8-bit integers?")
    right = 3 / 127
    answer
    return answer, right


@app.cell
def _(answer, right):
    checked(
        answer.value,
        right,
        "Divide the largest value by the largest integer of 8 bits with a sign. That is 127: 0.0236.",
        within=0.012,
        hints={"one bit is the sign: 127 steps on each side.": 3 / 255},
    )
    return


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
