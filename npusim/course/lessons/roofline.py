"""2. The roofline, and why norm x H waits for memory.

A graph convolution multiplies a large matrix by a narrow one. Is the MAC grid the limit, or the bytes?
"""

import marimo

app = marimo.App(app_title="2. The roofline, and why norm x H waits for memory", css_file="lesson.css")

with app.setup:
    import marimo as mo

    from npusim import DType
    from npusim.course.drawings.roofline import ceilings, roofline
    from npusim.course.figure import Figure
    from npusim.course.machine import estimate, product
    from npusim.course.parts import checked, exercise, heading, links, question, reply
    from npusim.reporting.engineering import engineering

    NODES = 2708


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        rf"""
        Summing up the features of neighbours is the product $\text{{norm}} \cdot H$: the normalised matrix of the graph,
        $N \times N$, times the features $H$, $N \times F$. Cora has $N = {NODES}$ papers. Each entry of norm comes from DRAM once and
        is used for $F$ multiplications. A *roofline* puts an operator where it stands: to the right, the more work a byte serves; upwards, the
        more work is done in a second. The slope is what DRAM can feed, the level what the grid can do.
        """
    )
    return


@app.cell
def _():
    guess = question(
        "F = 64 features. What does the product wait for?",
        ["for the MAC grid", "for DRAM", "for both about equally"],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "for DRAM",
        "An fp16 entry has 2 bytes and serves 64 multiply-accumulates, 128 operations: 64 operations for each byte. "
        "The grid would need three times as many before it became the limit.",
    )
    return


@app.cell
def _(guess):
    asleep = guess.value is None
    features = mo.ui.slider(
        steps=[8, 16, 32, 64, 128, 192, 256, 384, 512, 1024],
        value=64,
        label="features $F$",
        show_value=True,
        disabled=asleep,
    )
    form = mo.ui.dropdown(["fp16", "int8"], value="fp16", label="format")
    mo.hstack([features, form], justify="start", gap=2, wrap=True)
    return features, form


@app.cell
def _():
    picture = Figure(400)
    picture.place
    return (picture,)


@app.cell
def _(features, form, picture):
    _found = estimate(product(NODES, NODES, features.value, DType(form.value)))
    _point = _found.roofline.points[0]
    _peaks, bandwidth = ceilings(_found)
    _peak, _size = _peaks[form.value], 2 if form.value == "fp16" else 1
    ridges = {name: rate / bandwidth for name, rate in _peaks.items()}
    picture.show(
        roofline(
            _peak,
            bandwidth,
            {f"norm x H, F = {features.value}": (_point.intensity["dram"], _point.ops_per_s)},
        )
    )
    _fed = _point.intensity["dram"] * bandwidth
    mo.md(
        rf"""
        $$\begin{{aligned}} \text{{rate}} &\le \min\!\left(\text{{peak}},\; \frac{{2\,N\,N\,F}}{{\text{{bytes}}}} \cdot \text{{bandwidth}}\right) \\[1ex]
        &= \min({_peak / 1e12:.3g}\,\text{{Top/s}},\; {_point.intensity["dram"]:.3g} \cdot {bandwidth / 1e9:.3g}\,\text{{GB/s}}) \\[1ex]
        &= \mathbf{{{min(_peak, _fed) / 1e12:.3g}\,\text{{Top/s}}}} \end{{aligned}}$$

        The model finds {engineering(_point.ops_per_s, "op/s")} and {engineering(_found.operators[0].latency_s, "s")};
        the matrix alone has {engineering(NODES * NODES * _size, "B")}. Twice the features take
        {"hardly longer: the bytes stay" if _fed < _peak else "twice as long: the grid is full"}.
        """
    )
    return bandwidth, ridges


@app.cell
def _(ridges):
    answer = exercise(
        "From how many operations for each byte on is the grid the limit, in fp16? That point is called the ridge."
    )
    right = ridges["fp16"]
    answer
    return answer, right


@app.cell
def _(answer, right, ridges):
    checked(
        answer.value,
        right,
        "Divide the peak rate of the grid by the bandwidth of DRAM. "
        f"That is {right:.0f} operations for each byte, or {right:.0f} features in fp16, whose entries of 2 bytes serve 2 operations a feature.",
        within=0.04,
        hints={"that is the ridge of int8, whose grid is twice as fast.": ridges["int8"]},
    )
    return


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
