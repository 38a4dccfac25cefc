"""1. The MAC grid and how busy it is.

An NPU multiplies matrices on a grid of lanes. Which sizes fill it, and what happens to those that do not?
"""

import marimo

app = marimo.App(app_title="1. The MAC grid and how busy it is", css_file="lesson.css")

with app.setup:
    import marimo as mo

    from npusim.course.drawings.mac_grid import busy_share, grid_of, outputs_filling, steps
    from npusim.course.figure import Figure
    from npusim.course.machine import estimate, machine, product
    from npusim.course.parts import checked, exercise, heading, links, question, reply
    from npusim.reporting.engineering import engineering, percent

    GRID = grid_of(machine())


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        rf"""
        A product $C = A\,B$ has $M$ rows, $N$ columns, and sums of $K$ terms. One *tile* of this NPU (Intel's NPU 4000) has
        {GRID.pixels} x {GRID.channels} *lanes*. Each lane holds one output and adds {GRID.depth} products of fp16
        numbers to it each cycle. The grid is laid over the result block by block; where a block reaches beyond the result,
        its lanes wait.
        """
    )
    return


@app.cell
def _():
    guess = question(
        "A product has 17 rows and 16 columns: one row more than the grid. How busy are the lanes?",
        ["nearly all: 94 %", "about half: 53 %", "hardly any: 6 %"],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "about half: 53 %",
        "The 17th row needs a second block of its own, whose other 15 rows of lanes wait: 17 of 32 rows work.",
    )
    return


@app.cell
def _(guess):
    asleep = guess.value is None
    m = mo.ui.slider(1, 64, value=17, label="rows $M$", show_value=True, disabled=asleep)
    k = mo.ui.slider(1, 64, value=64, label="terms of a sum $K$", show_value=True, disabled=asleep)
    n = mo.ui.slider(1, 64, value=16, label="columns $N$", show_value=True, disabled=asleep)
    mo.hstack([m, k, n], justify="start", gap=2, wrap=True)
    return k, m, n


@app.cell
def _():
    picture = Figure(420)
    picture.place
    return (picture,)


@app.cell
def _(k, m, n, picture):
    picture.show(outputs_filling(GRID, m.value, n.value))
    _down, _deep, _across = steps(GRID, m.value, k.value, n.value)
    _share = busy_share(GRID, m.value, k.value, n.value)
    mo.md(
        rf"""
        $$\begin{{aligned}} \text{{busy}} &= \frac{{M\,K\,N}}{{\lceil M/{GRID.pixels}\rceil {GRID.pixels} \cdot
        \lceil K/{GRID.depth}\rceil {GRID.depth} \cdot \lceil N/{GRID.channels}\rceil {GRID.channels}}} \\[1ex]
        &= \frac{{{m.value} \cdot {k.value} \cdot {n.value}}}{{{_down * GRID.pixels} \cdot {_deep * GRID.depth}
        \cdot {_across * GRID.channels}}} = \mathbf{{{100 * _share:.0f}\,\%}} \end{{aligned}}$$
        """
    )
    return


@app.cell
def _(k, m, n):
    _cost = estimate(product(m.value, k.value, n.value)).operators[0]
    mo.md(
        f"The whole model adds what an equation of edges leaves out: filling the lanes with operands, writing results back, "
        f"spreading work over {_cost.mapping.tiles} tiles, and bringing {engineering(_cost.dram_bytes, 'B')} from DRAM. With all of that "
        f"this product takes {engineering(_cost.latency_s, 's')} and keeps **{percent(_cost.grid_utilisation)}** of the lanes busy; "
        f"what limits it is *{_cost.bound}*. Small products never fill a grid; the next lesson shows which large ones do not either."
    )
    return


@app.cell
def _():
    answer = exercise(
        "A layer has 40 input channels (K = 40), M = 64 rows and N = 24 outputs. What share of lanes is busy, by the equation?",
        "%",
    )
    answer
    return (answer,)


@app.cell
def _(answer):
    right = 100 * busy_share(GRID, 64, 40, 24)
    checked(
        answer.value,
        right,
        "Round each size up to what the grid works on at once, and divide the real product by the rounded one. "
        "Only $N$ is ragged: 24 of 32 columns work, 75 %.",
        hints={"that is the share that waits; the question is about the other part.": 25.0},
    )
    return (right,)


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
