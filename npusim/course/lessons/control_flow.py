"""5. Control flow on a vector processor.

Attention over neighbours compares, selects and gathers. What does that cost, and what replaces it?
"""

import marimo

app = marimo.App(app_title="5. Control flow on a vector processor", css_file="lesson.css")

with app.setup:
    import marimo as mo

    from npusim.course.drawings.curves import stacked
    from npusim.course.figure import Figure
    from npusim.course.machine import estimate, gnn
    from npusim.course.parts import checked, exercise, heading, links, question, reply
    from npusim.reporting.engineering import engineering, percent
    from npusim.reporting.html import UNIT_COLOURS, amount_axis

    STEPS = {
        "StaGr: the mask is a constant": "stagr",
        "+ EffOp: Select becomes arithmetic": "stagr+effop",
        "+ GrAx1: one addition masks": "stagr+effop+grax1",
        "+ GrAx2: scores broadcast once": "stagr+effop+grax1+grax2",
    }


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        r"""
        A graph attention network scores all pairs of nodes, *selects* those that are neighbours, and takes a softmax over them. Selecting is
        control flow: each element asks a question. The MAC grid cannot ask. The DSPs can, some tens of elements in a cycle, and every score passes
        through their memory again. GraNNite's remedy is to make arithmetic of it: $\text{Select}(m, x, y) = m \cdot x + (1 - m) \cdot y$ (*EffOp*), then only
        $x + \text{mask}$ with a mask of $0$ and $-10^4$ (*GrAx1*), whose softmax is as good as exact.
        """
    )
    return


@app.cell
def _():
    guess = question(
        "Which unit is busiest in a graph attention network, all masks prepared?",
        ["the MAC grid", "the DSPs", "DMA"],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "the DSPs",
        "Every pair of nodes has a score, and the DSPs handle each score several times: add, LeakyReLU, mask, softmax.",
    )
    return


@app.cell
def _(guess):
    asleep = guess.value is None
    nodes = mo.ui.slider(
        steps=[250, 500, 1000, 1500, 2000, 2708, 3500],
        value=1000,
        label="nodes",
        show_value=True,
        disabled=asleep,
    )
    nodes
    return (nodes,)


@app.cell
def _():
    picture = Figure(320)
    picture.place
    return (picture,)


@app.cell
def _(nodes, picture):
    _graph = gnn("gat", nodes.value, 4)
    _found = {name: estimate(_graph, techniques=stack) for name, stack in STEPS.items()}
    picture.show(
        stacked(
            list(_found),
            {
                unit: [one.units[unit].busy_s for one in _found.values()]
                for unit in ("npu.dsp", "npu.dpu", "npu.dma")
            },
            amount_axis("time that each unit works", "s"),
            UNIT_COLOURS,
        )
    )
    _first, _last = (_found[name] for name in (next(iter(STEPS)), list(STEPS)[-1]))
    _flow = sum(one.critical_s or 0.0 for one in _first.operators if one.control_flow)
    _pairs = nodes.value**2
    mo.md(
        rf"""
        $$N^2 = {nodes.value}^2 = {_pairs / 1e6:.2f}\,\text{{million scores, a layer}}$$

        From **{engineering(_first.latency_s, "s")}** to **{engineering(_last.latency_s, "s")}**: {_first.latency_s / _last.latency_s:.2f} times
        quicker. Operators that only pick (control flow) take {percent(_flow / _first.latency_s)} of the first bar's latency.
        """
    )
    return


@app.cell
def _():
    answer = exercise(
        "A mask is 1 for neighbours and 0 else. GrAx1 adds a number to scores that are no neighbours' before the softmax. "
        "By what power of ten, at least, must exp shrink for fp16 to see nothing of it? (Smallest fp16 number: about 6e-8; answer with the positive exponent.)"
    )
    right = 8.0
    answer
    return answer, right


@app.cell
def _(answer, right):
    checked(
        answer.value,
        right,
        "Look for the power of ten below the smallest number that the format can hold. "
        "Below 1e-8 nothing is left in fp16, and exp(-1e4) is far below that.",
        within=0.001,
        hints={"6e-8 itself can still be written; one power further.": 7.0},
    )
    return


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
