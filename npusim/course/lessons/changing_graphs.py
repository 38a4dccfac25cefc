"""4. Graphs that change.

A compiled network has fixed shapes. What if a node arrives every second?
"""

import marimo

app = marimo.App(app_title="4. Graphs that change", css_file="lesson.css")

with app.setup:
    import marimo as mo

    from npusim.course.drawings.curves import curves
    from npusim.course.figure import Figure
    from npusim.course.machine import estimate, gnn
    from npusim.course.parts import checked, exercise, heading, links, question, reply
    from npusim.reporting.engineering import engineering
    from npusim.reporting.html import amount_axis

    START, CAPACITIES = 2000, [2000, 2250, 2500, 2750, 3000, 3500, 4000, 5000, 6000]


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        r"""
        *StaGr* compiles the matrix of the graph into the network. When an edge comes, that constant is wrong. *GrAd* makes the matrix
        an input: the CPU writes it, the network stays. But its shape still says $N$. *NodePad* compiles for a *capacity* $C \ge N$ and fills up with
        zeros; a new node then takes an empty row. Padding is not free: the matrix has $C^2$ entries, whether they mean something or not.
        """
    )
    return


@app.cell
def _():
    guess = question(
        f"A graph of {START} nodes is compiled for a capacity of {2 * START}. How much longer does an inference take?",
        ["four times as long", "a little more than twice", "not longer: zeros are skipped"],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "a little more than twice",
        "The matrix has four times the bytes, and the network waits for them. But launching it takes what it took, and so do the features' products.",
    )
    return


@app.cell
def _(guess):
    asleep = guess.value is None
    nodes = mo.ui.slider(
        START, 6000, step=50, value=START, label="nodes today", show_value=True, disabled=asleep
    )
    recompile = mo.ui.slider(
        steps=[1, 2, 5, 10, 20, 30, 60],
        value=10,
        label="time to compile (s)",
        show_value=True,
        disabled=asleep,
    )
    mo.hstack([nodes, recompile], justify="start", gap=2, wrap=True)
    return nodes, recompile


@app.cell
def _():
    picture = Figure(360)
    picture.place
    return (picture,)


@app.cell
def _():
    base = gnn("gcn", START, 4)
    latencies = {
        capacity: estimate(base, techniques=f"grad+nodepad:capacity={capacity}").latency_s
        for capacity in CAPACITIES
    }
    return (latencies,)


@app.cell
def _(latencies, nodes, picture, recompile):
    picture.show(
        curves(
            list(latencies),
            {"an inference at this capacity": list(latencies.values())},
            nodes.value,
            {"title": "capacity (line: nodes today)"},
            amount_axis("latency", "s"),
        )
    )
    _capacity = next(capacity for capacity in latencies if capacity >= nodes.value)
    _left = _capacity - nodes.value
    _padding_s = latencies[_capacity] - latencies[START]
    _worth = float(f"{recompile.value / _padding_s:.3g}") if _padding_s > 0 else 0.0
    mo.md(
        rf"""
        The smallest of these capacities that holds {nodes.value} nodes is **{_capacity}**: {engineering(latencies[_capacity], "s")}
        an inference, with room for {_left} more nodes. Compiled anew for each node instead, an inference is as quick as it can be, but each new node
        costs {recompile.value} s:

        $$\frac{{\text{{compile}}}}{{\text{{padding}}}} = \frac{{{recompile.value}\,\text{{s}}}}{{({1e6 * latencies[_capacity]:.1f} - {1e6 * latencies[START]:.1f})\,\mu\text{{s}}}}
        = \mathbf{{{f"{_worth:,.0f}".replace(",", "{,}")}}}$$

        Only with more inferences than that between one new node and the next does compiling anew pay.

        `npusim stream gcn-cora` finds the best of these ways for a graph and a rate of updates of your own.
        """
    )
    return


@app.cell
def _():
    answer = exercise(
        "A matrix of 3,000 nodes is padded to 4,000. By what factor do its bytes grow?",
    )
    right = (4000 / 3000) ** 2
    answer
    return answer, right


@app.cell
def _(answer, right):
    checked(
        answer.value,
        right,
        "Both sides of the matrix grow by 4/3. Its bytes grow by 16/9, 1.78 times.",
        hints={"that is one side; the matrix has two.": 4 / 3},
    )
    return


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
