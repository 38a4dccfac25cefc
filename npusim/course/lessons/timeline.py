"""9. The time line: double buffering and stalls.

Data come while the grid works. When does the grid wait all the same?
"""

import marimo

app = marimo.App(app_title="9. The time line: double buffering and stalls", css_file="lesson.css")

with app.setup:
    import marimo as mo

    from npusim import Scenario
    from npusim.course.drawings.gantt import gantt
    from npusim.course.figure import Figure
    from npusim.course.machine import machine, product
    from npusim.course.parts import checked, exercise, heading, links, question, reply
    from npusim.engines.event import event_estimate
    from npusim.locate import DEFAULT_SOC
    from npusim.reporting.engineering import engineering, percent


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        r"""
        Operands do not fit into SRAM at once, so a product is cut into *blocks*. While the grid works on one, DMA brings the next into a second
        buffer: *double buffering*. The first block has nobody to hide behind (*prologue*), the last result neither (*epilogue*). In between, the
        slower of the two sets the pace, and the other one waits.
        """
    )
    return


@app.cell
def _():
    guess = question(
        "A block takes DMA 3 µs and the grid 2 µs; there are 10 blocks. How long does it all take, about?",
        [
            "50 µs: one after the other",
            "32 µs: ten times the slower, and the last block's work",
            "30 µs exactly",
        ],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "32 µs: ten times the slower, and the last block's work",
        "DMA never stops, 30 µs; when the last block has arrived, the grid still has its 2 µs to do.",
    )
    return


@app.cell
def _(guess):
    asleep = guess.value is None
    rows = mo.ui.slider(
        steps=[256, 512, 1024, 2048], value=1024, label="rows $M$", show_value=True, disabled=asleep
    )
    columns = mo.ui.slider(
        steps=[16, 64, 256, 512, 1024], value=256, label="columns $N$", show_value=True, disabled=asleep
    )
    bandwidth = mo.ui.slider(
        steps=[10, 20, 40, 80, 160], value=80, label="DRAM (GB/s)", show_value=True, disabled=asleep
    )
    mo.hstack([rows, columns, bandwidth], justify="start", gap=2, wrap=True)
    return bandwidth, columns, rows


@app.cell
def _():
    picture = Figure(380)
    picture.place
    return (picture,)


@app.cell
def _(bandwidth, columns, picture, rows):
    _soc = machine(DEFAULT_SOC, f"dram.bandwidth={bandwidth.value} GB/s")
    _run = event_estimate(Scenario(product(rows.value, 2048, columns.value), _soc))
    picture.show(gantt(_run.timeline))
    _cost = _run.operators[0]
    _dma, _grid = (_run.units[unit].busy_s for unit in ("npu.dma", "npu.dpu"))
    mo.md(
        rf"""
        $$\begin{{aligned}} \text{{time}} &= \max(\text{{DMA}}, \text{{grid}}) + \text{{rest}} \\[1ex]
        {1e6 * _cost.span_s:.1f}\,\mu\text{{s}} &= \max({1e6 * _dma:.1f},\, {1e6 * _grid:.1f}) + {1e6 * (_cost.span_s - max(_dma, _grid)):.1f} \end{{aligned}}$$

        The rest is what nothing hides: the first block's transfer, the last result's, and launches. The grid's tiles are busy {percent(_grid / _cost.span_s)} of {engineering(_cost.span_s, "s")}, DMA {percent(_dma / _cost.span_s)}.
        `npusim estimate ... --engine event --trace run.html` shows this picture for a whole network.
        """
    )
    return


@app.cell
def _():
    answer = exercise(
        "20 blocks, each 2 µs of DMA and 5 µs of work. How long does it take with double buffering?", "µs"
    )
    right = 102.0
    answer
    return answer, right


@app.cell
def _(answer, right):
    checked(
        answer.value,
        right,
        "Count the slower one for every block and add what the first block has to wait for. That is 2 + 20 x 5 = 102 µs.",
        within=0.001,
        hints={
            "that leaves out the first block, for which the grid has to wait.": 100.0,
            "that is one after the other; DMA works meanwhile.": 140.0,
        },
    )
    return


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
