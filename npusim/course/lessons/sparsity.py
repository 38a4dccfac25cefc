"""6. Zeros: what they save, and what they do not.

Cora's matrix is 99.8 % zeros. Why is a product with it not 500 times quicker?
"""

import marimo

app = marimo.App(app_title="6. Zeros: what they save, and what they do not", css_file="lesson.css")

with app.setup:
    import marimo as mo

    from npusim.course.drawings.curves import curves
    from npusim.course.drawings.matrix import cora_edges, dots, filled_share, random_edges
    from npusim.course.figure import Figure
    from npusim.course.machine import estimate, machine
    from npusim.course.parts import checked, exercise, heading, links, question, reply
    from npusim.reporting.engineering import engineering
    from npusim.reporting.html import log_axis

    NODES = 2708
    FOUND = cora_edges()
    EDGES = FOUND if FOUND is not None else random_edges(NODES, 3.9)
    WHOSE = (
        "Cora's own matrix"
        if FOUND is not None
        else "a random matrix of Cora's size (`npusim learn --data DIR` shows the real one)"
    )
    SKIPS = machine().npu.dpu.model.sparse_skip_max


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        rf"""
        Two things can use a zero. *Storage*: zero-value compression (ZVC) keeps one bit for each entry and then only the others, so that fewer bytes
        cross DRAM. *The grid*: a lane looks at the bitmap and skips multiplications by zero. But a lane looks at a step of the bitmap even if
        all of it is zero, and lanes wait for the fullest among them. The picture shows {WHOSE}; pink blocks hold at least one non-zero.
        """
    )
    return


@app.cell
def _():
    guess = question(
        "99.8 % of the entries are zero. How much smaller is the matrix in fp16 with one bit for each entry?",
        ["about 500 times", "about 15 times", "about twice"],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "about 15 times",
        "The bitmap stays, one bit where 16 stood: no more than 16 times can be saved, whatever the zeros.",
    )
    return


@app.cell
def _(guess):
    block = mo.ui.slider(
        steps=[8, 16, 32, 64, 128, 256],
        value=64,
        label="edge of a block",
        show_value=True,
        disabled=guess.value is None,
    )
    block
    return (block,)


@app.cell
def _():
    picture = Figure(480)
    picture.place
    return (picture,)


@app.cell
def _(block, picture):
    picture.show(dots(EDGES, NODES, block.value))
    _share = filled_share(EDGES, NODES, block.value)
    _blocks = (-(-NODES // block.value)) ** 2
    mo.md(
        rf"""
        $$\begin{{aligned}} \text{{filled}} &= \frac{{\text{{blocks with a non-zero}}}}{{\text{{blocks}}}} \\[1ex] &= \frac{{{round(_share * _blocks)}}}{{\lceil {NODES} / {block.value} \rceil^2}}
        = \mathbf{{{100 * _share:.1f}\,\%}} \end{{aligned}}$$

        These cannot be left out. Blocks as large as what a grid works on at once are hardly ever empty, for neighbours stand anywhere; only very small ones could be
        skipped whole.
        """
    )
    return


@app.cell
def _(guess):
    density = mo.ui.slider(
        steps=[0.002, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0],
        value=0.1,
        label="share of non-zeros",
        show_value=True,
        disabled=guess.value is None,
    )
    density
    return (density,)


@app.cell
def _():
    curve = Figure(340)
    curve.place
    return (curve,)


@app.cell
def _(curve, density):
    _shares = [k / 100 for k in (0.2, 1, 3, 10, 20, 40, 60, 80, 100)]
    _dense = 2 * NODES**2
    _stored = [NODES**2 / 8 + _dense * share for share in _shares]
    _scanned = [max(share, 1 / SKIPS) for share in _shares]
    curve.show(
        curves(
            _shares,
            {
                "bytes of the matrix, against dense": [stored / _dense for stored in _stored],
                "steps of the grid, at best": _scanned,
            },
            density.value,
            log_axis("share of non-zeros", "", _shares[0], _shares[-1]),
            {"title": "share of the dense", "rangemode": "tozero"},
        )
    )
    bitmap = NODES**2 / 8
    _bytes = bitmap + _dense * density.value
    mo.md(
        rf"""
        $$\begin{{aligned}} \text{{bytes}} &= \frac{{N^2}}{{8}} + 2\,N^2 \cdot \text{{share}} \\[1ex]
        &= {bitmap / 1e6:.2f}\,\text{{MB}} + {_dense / 1e6:.2f}\,\text{{MB}} \cdot {density.value:g} = \mathbf{{{_bytes / 1e6:.2f}\,\text{{MB}}}} \end{{aligned}}$$

        A step of zeros still takes a {SKIPS:.3g}th of a full one (fitted to Intel's cost model): the grid is at best {SKIPS:.3g} times quicker, in practice less,
        because lanes wait for each other. And where DRAM is the bound, even that is worth 1.0: only the bytes count.
        """
    )
    return


@app.cell
def _():
    _found = {
        "dense (`-t stagr`)": estimate("gcn-cora", techniques="stagr"),
        "ZVC, norm as input (`-t stagr+grasp`)": estimate("gcn-cora", techniques="stagr+grasp"),
        "ZVC, norm as weights (`--swap-operands search`)": estimate(
            "gcn-cora", techniques="stagr+grasp", swap_operands="search"
        ),
    }
    mo.md(
        "The whole network, Cora by a GCN:\n\n| | latency | through DRAM |\n| --- | ---: | ---: |\n"
        + "\n".join(
            f"| {name} | {engineering(one.latency_s, 's')} | {engineering(one.dram_bytes, 'B')} |"
            for name, one in _found.items()
        )
        + "\n\nThis NPU's DMA decompresses *weights* on their way in, but not *inputs*. In norm x H the matrix of the graph is the input: "
        "ZVC changes nothing. Transposed, H' x norm', it takes the place of the weights, and few bytes are left to wait for."
    )
    return


@app.cell
def _():
    answer = exercise("How many times smaller does ZVC make an int8 matrix of zeros alone, at most?", "times")
    right = 8.0
    answer
    return answer, right


@app.cell
def _(answer, right):
    checked(
        answer.value,
        right,
        "The bitmap stays: compare one bit with what an entry took. An int8 entry has 8 bits, so 8 times at most.",
        hints={"that is fp16, whose entries have 16 bits.": 16.0},
    )
    return


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
