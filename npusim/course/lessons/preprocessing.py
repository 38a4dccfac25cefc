"""3. Why preprocessing belongs on the CPU.

A GNN begins by counting edges and dividing by degrees. Which unit should do that, and how often?
"""

import marimo

app = marimo.App(app_title="3. Why preprocessing belongs on the CPU", css_file="lesson.css")

with app.setup:
    from math import prod

    import marimo as mo

    from npusim.course.drawings.curves import stacked
    from npusim.course.drawings.mac_grid import grid_of
    from npusim.course.figure import Figure
    from npusim.course.machine import estimate, gnn, machine
    from npusim.course.parts import checked, exercise, heading, links, question, reply
    from npusim.reporting.engineering import engineering
    from npusim.reporting.html import UNIT_COLOURS, amount_axis

    GRID = grid_of(machine())
    STACKS = {
        "as exported (edges)": "none",
        "GraphSplit: CPU where it pays": "graphsplit",
        "PreG: edge weights from the CPU": "preg",
        "StaGr: the matrix is a constant": "stagr",
    }


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        r"""
        A graph convolution needs $\text{norm} = D^{-1/2} (A + I) D^{-1/2}$. A framework exports that as operators along the
        edges: count the degrees (ScatterAdd), take roots, gather them for both ends of each edge, multiply. None of it needs a MAC grid; all
        of it falls to the NPU's vector processors (DSP), one element at a time. And it depends on the edges alone, not on the features.
        """
    )
    return


@app.cell
def _():
    guess = question(
        "GCN on Cora's size, exported as it is. What share of the time do the matrix products on the grid take?",
        ["about nine tenths", "about a third", "less than a hundredth"],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "less than a hundredth",
        "The products finish in microseconds. The sums along edges, which the DSPs do, take all of the rest.",
    )
    return


@app.cell
def _(guess):
    asleep = guess.value is None
    nodes = mo.ui.slider(
        steps=[250, 500, 1000, 2000, 2708, 4000, 6000, 8000],
        value=2708,
        label="nodes",
        show_value=True,
        disabled=asleep,
    )
    degree = mo.ui.slider(
        2, 32, step=2, value=4, label="neighbours of a node", show_value=True, disabled=asleep
    )
    mo.hstack([nodes, degree], justify="start", gap=2, wrap=True)
    return degree, nodes


@app.cell
def _():
    picture = Figure(320)
    picture.place
    return (picture,)


@app.cell
def _(degree, nodes, picture):
    _graph = gnn("gcn", nodes.value, degree.value)
    _found = {name: estimate(_graph, techniques=stack) for name, stack in STACKS.items()}
    _units = ("npu.dsp", "npu.dpu", "npu.dma", "cpu")
    picture.show(
        stacked(
            list(_found),
            {unit: [one.units[unit].busy_s for one in _found.values()] for unit in _units},
            amount_axis("time that each unit works", "s"),
            UNIT_COLOURS,
        )
    )
    _none, _stagr = (_found[name] for name in ("as exported (edges)", "StaGr: the matrix is a constant"))
    _bytes = 2 * nodes.value**2
    _even = nodes.value * (_none.latency_s - _none.launch_s) / (_stagr.latency_s - _stagr.launch_s)
    mo.md(
        rf"""
        Latency as exported: **{engineering(_none.latency_s, "s")}**; with StaGr: **{engineering(_stagr.latency_s, "s")}**,
        {_none.latency_s / _stagr.latency_s:.0f} times less. StaGr turns the sums into a product with a constant matrix:

        $$\begin{{aligned}} \text{{matrix}} &= 2\,\text{{B}} \cdot N^2 = 2 \cdot {nodes.value}^2 = {_bytes / 1e6:.1f}\,\text{{MB}} \\[1ex]
        \text{{in place of}} &\phantom{{=}}\; {nodes.value * degree.value / 1e3:g}\,\text{{thousand edges}} \end{{aligned}}$$

        Nearly all of these entries are zero, and yet the product wins: the grids of four tiles do {4 * prod(GRID):,} multiplications in a cycle. The matrix
        grows with the square of the nodes, the edges only with their number: carried on like this, both would be even at some {float(f"{_even:.1g}"):,.0f} nodes. *GraphSplit* and *PreG* move what depends on edges alone to the CPU; what stays are the sums of the features.
        """
    )
    return


@app.cell
def _():
    answer = exercise("A graph has 10,000 nodes. How many MB has its dense norm matrix in fp16?", "MB")
    right = 2 * 10_000**2 / 1e6
    answer
    return answer, right


@app.cell
def _(answer, right):
    checked(
        answer.value,
        right,
        "Square the number of nodes and take 2 bytes for each. That is 200 MB, far more than any NPU's SRAM: it comes from DRAM, every inference.",
        hints={"that is the number of entries in millions; fp16 has 2 bytes.": 100.0},
    )
    return


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
