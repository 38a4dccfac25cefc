"""7. SymG and CacheG: a what-if no laptop can run.

Half of a symmetric matrix, kept on chip: what would it give, on which machine?
"""

import marimo

app = marimo.App(app_title="7. SymG and CacheG: a what-if no laptop can run", css_file="lesson.css")

with app.setup:
    import marimo as mo

    from npusim.course.drawings.curves import stacked
    from npusim.course.figure import Figure
    from npusim.course.machine import estimate, gnn, machine
    from npusim.course.parts import checked, exercise, heading, links, question, reply
    from npusim.locate import DEFAULT_SOC
    from npusim.reporting.engineering import engineering
    from npusim.reporting.html import amount_axis

    STACKS = ("stagr", "stagr+cacheg", "stagr+symg", "stagr+symg+cacheg")


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        r"""
        The norm matrix of an undirected graph is symmetric: $a_{ij} = a_{ji}$. *SymG* stores and moves one triangle with the diagonal and mirrors it on
        the way into the grid. *CacheG* keeps the matrix in SRAM between the layers that use it. Both need changes in the NPU's compiler that nobody outside
        of it can make. A model can ask anyway.
        """
    )
    return


@app.cell
def _():
    guess = question(
        "A GCN of two layers on Cora (2,708 nodes, fp16) on four tiles of 1.5 MB. Can CacheG alone keep the whole matrix?",
        ["yes", "no, not even half of it", "no, but with SymG nearly"],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "no, but with SymG nearly",
        "14.7 MB do not fit into four tiles of 1.5 MB, but what fits need not come again; a triangle has 7.3 MB.",
    )
    return


@app.cell
def _(guess):
    asleep = guess.value is None
    nodes = mo.ui.slider(
        steps=[500, 1000, 1500, 2000, 2708, 4000, 6000],
        value=2000,
        label="nodes",
        show_value=True,
        disabled=asleep,
    )
    sram = mo.ui.slider(
        steps=[0.5, 1, 1.5, 2, 3, 4, 8],
        value=1.5,
        label="SRAM of a tile (MB)",
        show_value=True,
        disabled=asleep,
    )
    bandwidth = mo.ui.slider(
        steps=[20, 40, 60, 80, 120, 200, 400],
        value=80,
        label="DRAM (GB/s)",
        show_value=True,
        disabled=asleep,
    )
    mo.hstack([nodes, sram, bandwidth], justify="start", gap=2, wrap=True)
    return bandwidth, nodes, sram


@app.cell
def _():
    picture = Figure(320)
    picture.place
    return (picture,)


@app.cell
def _(bandwidth, nodes, picture, sram):
    _soc = machine(
        DEFAULT_SOC, f"npu.sram.per_tile={sram.value} MB", f"dram.bandwidth={bandwidth.value} GB/s"
    )
    _graph = gnn("gcn", nodes.value, 4)
    _found = {stack: estimate(_graph, _soc, stack) for stack in STACKS}
    picture.show(
        stacked(
            list(_found),
            {
                "launch": [one.launch_s for one in _found.values()],
                "transfers and products": [one.latency_s - one.launch_s for one in _found.values()],
            },
            amount_axis("latency", "s"),
            {"launch": "#bbbbbb"},
        )
    )
    _n, _plain, _both = nodes.value, _found["stagr"], _found["stagr+symg+cacheg"]
    mo.md(
        rf"""
        $$\begin{{aligned}} \text{{triangle}} &= \frac{{N (N + 1)}}{{2}} \cdot 2\,\text{{B}} = \mathbf{{{_n * (_n + 1) / 1e6:.2f}\,\text{{MB}}}} \\[1ex]
        \text{{whole matrix}} &= N^2 \cdot 2\,\text{{B}} = {2 * _n * _n / 1e6:.2f}\,\text{{MB}} \end{{aligned}}$$

        Both together: **{_plain.latency_s / _both.latency_s:.2f} times** quicker ({engineering(_plain.latency_s, "s")} to {engineering(_both.latency_s, "s")}),
        with {engineering(_plain.dram_bytes, "B")} and {engineering(_both.dram_bytes, "B")} through DRAM.
        Give the machine a faster DRAM and the gain melts; give it more SRAM and CacheG alone does it.
        """
    )
    return


@app.cell
def _():
    answer = exercise("How many MB has the triangle, with its diagonal, of 4,000 nodes in int8?", "MB")
    right = 4000 * 4001 / 2 / 1e6
    answer
    return answer, right


@app.cell
def _(answer, right):
    checked(
        answer.value,
        right,
        "Half of N (N + 1) entries, one byte each. That is 8.0 MB.",
        hints={"that is fp16; int8 has one byte.": 2 * right},
    )
    return


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
