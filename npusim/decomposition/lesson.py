"""15. Features in chunks: reuse against reading edges again.

Sum up neighbours in slices of the features: when do the caches thank you for it?
"""

import marimo

app = marimo.App(
    app_title="15. Features in chunks: reuse against reading edges again",
    css_file="../learn/lessons/lesson.css",
)

with app.setup:
    import marimo as mo

    import npusim
    from npusim.course.drawings.curves import curves
    from npusim.course.figure import Figure
    from npusim.course.machine import gnn, machine
    from npusim.course.parts import checked, exercise, heading, links, question, reply
    from npusim.reporting.engineering import engineering

    SOC, CHUNKS = "threadripper-a6000", (1, 2, 4, 8, 16, 32)


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        r"""
        PyTorch Geometric sums up neighbours in three steps: gather a row of features for each edge (a *message*), scale it, add it to its target. Messages are
        *edges x features*, often many times the graph itself. *Feature decomposition* does it in $P$ chunks of the features: messages get $P$ times smaller, and rows of
        features may stay in a cache until they are needed again. The price: the list of edges is read $P$ times.
        """
    )
    return


@app.cell
def _():
    guess = question(
        "With P = 8 chunks, what becomes of the memory for messages, and of the bytes of edges that are read?",
        ["an eighth, and eight times", "an eighth, and the same", "the same, and eight times"],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "an eighth, and eight times",
        "Only one chunk's messages exist at a time; each chunk walks over all edges.",
    )
    return


@app.cell
def _(guess):
    asleep = guess.value is None
    nodes = mo.ui.slider(
        steps=[10_000, 50_000, 100_000, 200_000, 500_000],
        value=100_000,
        label="nodes",
        show_value=True,
        disabled=asleep,
    )
    degree = mo.ui.slider(
        steps=[5, 10, 25, 50, 100], value=50, label="neighbours", show_value=True, disabled=asleep
    )
    chunks = mo.ui.slider(steps=list(CHUNKS), value=4, label="chunks $P$", show_value=True, disabled=asleep)
    mo.hstack([nodes, degree, chunks], justify="start", gap=2, wrap=True)
    return chunks, degree, nodes


@app.cell
def _():
    picture = Figure(360)
    picture.place
    return (picture,)


@app.cell
def _(degree, nodes):
    _graph = gnn("gcn", nodes.value, degree.value, features=64, hidden=64)
    found = {
        count: npusim.estimate(
            _graph,
            machine(SOC),
            techniques="none" if count == 1 else f"feature-decomposition:chunks={count}",
            device="cpu",
            interval=False,
        )
        for count in CHUNKS
    }
    return (found,)


@app.cell
def _(chunks, degree, found, nodes, picture):
    _whole = found[1]
    picture.show(
        curves(
            CHUNKS,
            {
                "time": [found[count].latency_s / _whole.latency_s for count in CHUNKS],
                "memory at its peak": [
                    found[count].memory.dram_peak_bytes / _whole.memory.dram_peak_bytes for count in CHUNKS
                ],
                "bytes from DRAM": [found[count].dram_bytes / _whole.dram_bytes for count in CHUNKS],
            },
            chunks.value,
            {
                "title": "chunks P",
                "type": "log",
                "tickvals": list(CHUNKS),
                "ticktext": [str(c) for c in CHUNKS],
            },
            {"title": "against P = 1", "rangemode": "tozero"},
        )
    )
    _edges, _now = nodes.value * degree.value, found[chunks.value]
    mo.md(
        rf"""
        $$\begin{{aligned}} \text{{messages}} &= \text{{edges}} \cdot \frac{{F}}{{P}} \cdot 2\,\text{{B}} \\[1ex] &=
        {_edges / 1e6:.3g}\,\text{{M}} \cdot \frac{{64}}{{{chunks.value}}} \cdot 2\,\text{{B}} = \mathbf{{{_edges * 64 / chunks.value * 2 / 1e6:.4g}\,\text{{MB}}}} \end{{aligned}}$$

        {engineering(_whole.latency_s, "s")} whole, {engineering(_now.latency_s, "s")} in {chunks.value} chunks on a CPU of 64 cores;
        {engineering(_whole.memory.dram_peak_bytes, "B")} and {engineering(_now.memory.dram_peak_bytes, "B")} at the peak.
        """
    )
    return


@app.cell
def _():
    answer = exercise(
        "100 million edges, 256 features of 4 bytes. How many GB have the messages in 16 chunks?", "GB"
    )
    right = 100e6 * 256 * 4 / 16 / 1e9
    answer
    return answer, right


@app.cell
def _(answer, right):
    checked(
        answer.value,
        right,
        "Edges times the features of a chunk times their bytes. 16 features of 4 bytes for each edge: 6.4 GB.",
        hints={"that is the whole; a chunk has a sixteenth.": 102.4},
    )
    return


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
