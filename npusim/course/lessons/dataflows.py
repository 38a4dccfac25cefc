"""16. Other dataflows: what stays where.

The same product, output-, weight- and row-stationary: what differs, if the multiplications do not?
"""

import marimo

app = marimo.App(app_title="16. Other dataflows: what stays where", css_file="lesson.css")

with app.setup:
    import marimo as mo

    from npusim import DType
    from npusim.course.drawings.curves import stacked
    from npusim.course.figure import Figure
    from npusim.course.machine import estimate, machine, product
    from npusim.course.parts import checked, exercise, heading, links, question, reply
    from npusim.locate import DEFAULT_SOC
    from npusim.reporting.engineering import engineering
    from npusim.reporting.html import amount_axis

    FLOWS = ("output_stationary", "weight_stationary", "row_stationary", "input_stationary")
    SIZES = [16, 64, 128, 256, 512, 1024, 2048]


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        r"""
        A lane needs two operands and a sum for each multiplication. One of the three may *stay* in the lane while the others pass: the sum
        (*output-stationary*, as Intel's NPU), a weight (*weight-stationary*, as TPU v1), an input, or a row of a filter that slides over a row of the image
        (*row-stationary*, as Eyeriss). All compute the same; they differ in how often they read SRAM, and in which sizes fill the array.
        Below, the same NPU with each of them: one line of its data sheet, `npu.dpu.dataflow`.
        """
    )
    return


@app.cell
def _():
    guess = question(
        "A long sum (K large) and few rows. Which one reads and writes partial sums most often?",
        ["output-stationary", "weight-stationary", "all the same"],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "weight-stationary",
        "Its weights stay and the sums travel: each of them leaves the array and comes back for every slice of K that the array holds.",
    )
    return


@app.cell
def _(guess):
    asleep = guess.value is None
    m = mo.ui.slider(steps=SIZES, value=1024, label="rows $M$", show_value=True, disabled=asleep)
    k = mo.ui.slider(steps=SIZES, value=1024, label="terms $K$", show_value=True, disabled=asleep)
    n = mo.ui.slider(steps=SIZES, value=1024, label="columns $N$", show_value=True, disabled=asleep)
    mo.hstack([m, k, n], justify="start", gap=2, wrap=True)
    return k, m, n


@app.cell
def _():
    picture = Figure(320)
    picture.place
    return (picture,)


@app.cell
def _(k, m, n, picture):
    _network = product(m.value, k.value, n.value, DType.INT8)
    _found = {
        flow: estimate(_network, machine(DEFAULT_SOC, f"npu.dpu.dataflow={flow}")).operators[0]
        for flow in FLOWS
    }
    picture.show(
        stacked(
            list(_found),
            {
                "read in SRAM": [one.sram_read_bytes for one in _found.values()],
                "written in SRAM": [one.sram_written_bytes for one in _found.values()],
                "DRAM": [one.dram_bytes for one in _found.values()],
            },
            amount_axis("bytes moved", "B"),
            {},
        )
    )
    _least = min(_found, key=lambda flow: _found[flow].energy.sram_j)
    _quickest = min(_found, key=lambda flow: _found[flow].latency_s)
    _work = m.value * k.value * n.value
    mo.md(
        rf"""
        $$\begin{{aligned}} \text{{reuse}} &= \frac{{\text{{multiply-accumulates}}}}{{\text{{bytes read in SRAM}}}} \\[1ex] &=
        \frac{{{_work / 1e6:.4g}\,\text{{M}}}}{{{_found[_least].sram_read_bytes / 1e6:.3g}\,\text{{MB}}}} = \mathbf{{{_work / _found[_least].sram_read_bytes:.1f}}} \end{{aligned}}$$

        That is {_least.replace("_", "-")}, the best here.
        Least energy in SRAM: **{_least.replace("_", "-")}**, {engineering(_found[_least].energy.sram_j, "J")}. Quickest: **{_quickest.replace("_", "-")}**,
        {engineering(_found[_quickest].latency_s, "s")}; it waits for *{_found[_quickest].bound}*. Compulsory traffic with DRAM is the same for all.
        """
    )
    return


@app.cell
def _():
    answer = exercise(
        "A 256 x 256 weight-stationary array of 8-bit weights: how many KiB of weights does it hold?", "KiB"
    )
    right = 64.0
    answer
    return answer, right


@app.cell
def _(answer, right):
    checked(answer.value, right, "One weight in each lane, one byte each. 65,536 bytes are 64 KiB.")
    return


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
