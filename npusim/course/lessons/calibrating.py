"""11. Calibrating: which measurement tells which number.

A model has numbers that only a measurement gives. Which one tells what?
"""

import marimo

app = marimo.App(app_title="11. Calibrating: which measurement tells which number", css_file="lesson.css")

with app.setup:
    import marimo as mo
    import numpy as np
    import plotly.graph_objects as go

    from npusim.course.figure import Figure
    from npusim.course.machine import machine
    from npusim.course.parts import checked, exercise, heading, links, question, reply
    from npusim.reporting.html import COLOURS, log_axis

    LAUNCH_S = float(machine().npu.launch_overhead)
    BANDWIDTH = float(machine().dram.bandwidth)

    def stated(value, unit, digits, share):
        """Return a fitted number with its standard error in LaTeX, or that it is open."""
        if share >= 1 or value <= 0:
            return r"\text{not known: anything fits}"
        return rf"{value:.{digits}f}\,{unit} \pm {100 * share:.1f}\,\%"


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        rf"""
        The simplest model of a copy: $t = t_0 + \text{{bytes}} / B$, a launch and a bandwidth. Measured times scatter. Which sizes must be measured so that both numbers are known?
        Below, a machine with $t_0 = {1e3 * LAUNCH_S:.2f}$ ms and $B = {BANDWIDTH / 1e9:.1f}$ GB/s is "measured" eight times, with noise, between two sizes.
        """
    )
    return


@app.cell
def _():
    guess = question(
        "All eight copies have about 1 MB. What do they tell?",
        ["the launch, but hardly the bandwidth", "the bandwidth, but not the launch", "both"],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "the launch, but hardly the bandwidth",
        "Moving 1 MB takes 12 microseconds beside 250 for the launch: the noise of the launch hides it.",
    )
    return


@app.cell
def _(guess):
    asleep = guess.value is None
    sizes = mo.ui.range_slider(
        steps=[0.01, 0.1, 1, 3, 10, 30, 100, 300, 1000],
        value=[0.1, 10],
        label="smallest and largest copy (MB)",
        show_value=True,
        disabled=asleep,
    )
    noise = mo.ui.slider(1, 20, value=5, label="noise (%)", show_value=True, disabled=asleep)
    mo.hstack([sizes, noise], justify="start", gap=2, wrap=True)
    return noise, sizes


@app.cell
def _():
    picture = Figure(380)
    picture.place
    return (picture,)


@app.cell
def _(noise, picture, sizes):
    _bytes = np.geomspace(max(sizes.value[0], 0.01) * 1e6, sizes.value[1] * 1e6 * 1.001, 8)
    _true = LAUNCH_S + _bytes / BANDWIDTH
    _seen = _true * (1 + noise.value / 100 * np.random.default_rng(3).standard_normal(8))
    # Weighted least squares: every time is known to the same share of itself.
    _matrix = np.stack([np.ones(8), _bytes], axis=1) / _true[:, None]
    _found, *_rest = np.linalg.lstsq(_matrix, _seen / _true, rcond=None)
    _sigma = np.sqrt(np.diag(np.linalg.inv(_matrix.T @ _matrix))) * noise.value / 100
    _shares = _sigma / np.array([LAUNCH_S, 1 / BANDWIDTH])
    _line = np.geomspace(1e4, 1e9, 60)
    _figure = go.Figure()
    _figure.add_scatter(
        x=_line, y=LAUNCH_S + _line / BANDWIDTH, mode="lines", name="the machine", line={"color": "#999999"}
    )
    _figure.add_scatter(
        x=_line,
        y=np.maximum(_found[0] + _line * _found[1], 1e-6),
        mode="lines",
        name="fitted",
        line={"color": COLOURS[1], "dash": "dash"},
    )
    _figure.add_scatter(
        x=_bytes, y=_seen, mode="markers", name="measured", marker={"color": COLOURS[0], "size": 9}
    )
    picture.show(_figure, xaxis=log_axis("size", "B", 1e4, 1e9), yaxis=log_axis("time", "s", 5e-5, 2e-2))
    _launch = stated(1e3 * _found[0], r"\text{ms}", 3, _shares[0])
    _bandwidth = stated(1e-9 / _found[1], r"\text{GB/s}", 0, _shares[1])
    mo.md(
        rf"""
        $$\begin{{aligned}} t_0 &= {_launch} \\ B &= {_bandwidth} \end{{aligned}}$$

        {"**Both are known.**" if max(_shares) < 0.1 else "**Not both are known**, however good the fit looks at these sizes: its intervals say so."}
        Widen the range: small copies tell the launch, large ones the bandwidth. `npusim calibrate` does the same with all numbers of a machine
        and marks those that the measurements leave open.
        """
    )
    return


@app.cell
def _():
    answer = exercise(
        "From which size on does a copy take longer to move than to launch, on this machine?", "MB"
    )
    right = LAUNCH_S * BANDWIDTH / 1e6
    answer
    return answer, right


@app.cell
def _(answer, right):
    checked(
        answer.value,
        right,
        f"Set bytes / B equal to the launch. {1e3 * LAUNCH_S:.2f} ms times {BANDWIDTH / 1e9:.1f} GB/s are {right:.0f} MB.",
        within=0.03,
    )
    return


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
