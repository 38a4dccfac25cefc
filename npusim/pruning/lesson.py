"""14. Pruning channels on a grid of 16s.

Half of the channels are a quarter of the multiplications. Is it a quarter of the time?
"""

import marimo

app = marimo.App(app_title="14. Pruning channels on a grid of 16s", css_file="../learn/lessons/lesson.css")

with app.setup:
    import marimo as mo

    from npusim.course.drawings.curves import curves
    from npusim.course.drawings.mac_grid import grid_of
    from npusim.course.figure import Figure
    from npusim.course.machine import estimate, layers, machine
    from npusim.course.parts import checked, exercise, heading, links, question, reply
    from npusim.reporting.engineering import engineering

    GRID = grid_of(machine())
    FULL = 144
    WIDTHS = sorted({*range(16, FULL + 1, 8), *range(17, FULL, 16), FULL})


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        rf"""
        Channel pruning (GCNP) removes the least useful features of each layer: fewer inputs for one product, fewer outputs for the one before. A layer that
        keeps a share $k$ of its channels has $k^2$ of its multiply-accumulates. But the grid works on channels in {GRID.channels}s.
        """
    )
    return


@app.cell
def _():
    guess = question(
        "Layers of 64 channels grow to 65. How much longer do they take on the grid?",
        ["1.03 times, as the multiplications say", "about 1.2 times", "not longer"],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "about 1.2 times",
        "The 65th channel needs a block of 16 lanes of its own, in every layer.",
    )
    return


@app.cell
def _(guess):
    width = mo.ui.slider(
        steps=WIDTHS, value=64, label="channels of each layer", show_value=True, disabled=guess.value is None
    )
    width
    return (width,)


@app.cell
def _():
    picture = Figure(380)
    picture.place
    return (picture,)


@app.cell
def _():
    found = {width: estimate(layers(1024, width)) for width in WIDTHS}
    times = {width: one.latency_s - one.launch_s for width, one in found.items()}
    macs = {width: one.macs for width, one in found.items()}
    return macs, times


@app.cell
def _(macs, picture, times, width):
    picture.show(
        curves(
            WIDTHS,
            {
                "time, launch apart": [times[one] / times[FULL] for one in WIDTHS],
                "multiply-accumulates": [macs[one] / macs[FULL] for one in WIDTHS],
            },
            width.value,
            {"title": "channels of each of 8 layers"},
            {"title": f"against {FULL} channels", "rangemode": "tozero"},
        )
    )
    _w = width.value
    _round = -(-_w // GRID.channels) * GRID.channels
    mo.md(
        rf"""
        $$\begin{{aligned}} \text{{channels on the grid}} &= \left\lceil \frac{{{_w}}}{{{GRID.channels}}} \right\rceil \cdot {GRID.channels} = {_round} \\[1ex]
        \frac{{\text{{MACs}}}}{{\text{{MACs at {FULL}}}}} &= {macs[_w] / macs[FULL]:.3f} \\[1ex]
        \frac{{\text{{time}}}}{{\text{{time at {FULL}}}}} &= \mathbf{{{times[_w] / times[FULL]:.3f}}} \end{{aligned}}$$

        {engineering(times[_w], "s")} for the layers. Prune to {_round if _round == _w else _round - GRID.channels} rather than to a few channels
        beside it; `npusim prune` snaps budgets to what the machine gains from.
        """
    )
    return


@app.cell
def _():
    answer = exercise(
        "A layer of 128 channels on both sides keeps 96. What share of its multiply-accumulates remains?", "%"
    )
    right = 100 * (96 / 128) ** 2
    answer
    return answer, right


@app.cell
def _(answer, right):
    checked(
        answer.value,
        right,
        "Both sides shrink, so the share counts twice. 0.75 squared is 56 %.",
        hints={"that is one side; inputs shrink as well as outputs.": 75.0},
    )
    return


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
