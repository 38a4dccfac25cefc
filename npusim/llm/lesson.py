"""12. Why a token takes as long as reading all weights.

A language model writes one token after the other. What does each of them wait for?
"""

import marimo

app = marimo.App(
    app_title="12. Why a token takes as long as reading all weights", css_file="../learn/lessons/lesson.css"
)

with app.setup:
    from functools import cache

    import marimo as mo

    import npusim
    from npusim.course.drawings.curves import curves
    from npusim.course.figure import Figure
    from npusim.course.machine import machine
    from npusim.course.parts import checked, exercise, heading, links, question, reply
    from npusim.reporting.engineering import engineering
    from npusim.reporting.html import amount_axis

    MODEL, SOC = "llama3.2-1b", "core-ultra-nitro"
    SHORT, LONG = 128, 2048
    FORMATS = ["fp16", "int8", "int4"]

    @cache
    def token(weights, length, device):
        """Return the estimate of a token."""
        settings = [f"workload.weights={weights}", f"workload.max_sequence={length}"]
        return npusim.estimate(MODEL, machine(SOC), settings=settings, device=device, interval=False)


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        r"""
        To write a token, a decoder multiplies *one row* by every weight matrix it has. Each weight is read, used once, and dropped: two operations for
        2 bytes, far left on the roofline of lesson 2. Llama 3.2 with 1.24 billion weights reads 2.5 GB for each token. An NPU is compiled for fixed shapes, so the
        *cache* of earlier keys and values has its full length from the first token on, and attention reads all of it (NITRO).
        """
    )
    return


@app.cell
def _():
    guess = question(
        "DRAM gives 80 GB/s. At most how many tokens a second, with 2.5 GB of weights in fp16?",
        ["about 3", "about 32", "about 320"],
    )
    guess
    return (guess,)


@app.cell
def _(guess):
    reply(
        guess.value,
        "about 32",
        "80 GB/s divided by 2.5 GB. No grid, however large, changes that; fewer bytes do.",
    )
    return


@app.cell
def _(guess):
    asleep = guess.value is None
    weights = mo.ui.dropdown(FORMATS, value="fp16", label="weights")
    device = mo.ui.dropdown(["gpu", "npu", "cpu"], value="gpu", label="device")
    length = mo.ui.slider(
        steps=[128, 256, 512, 1024, 1536, 2048],
        value=128,
        label="length of the cache (tokens)",
        show_value=True,
        disabled=asleep,
    )
    mo.hstack([weights, device, length], justify="start", gap=2, wrap=True)
    return device, length, weights


@app.cell
def _():
    picture = Figure(360)
    picture.place
    return (picture,)


@app.cell
def _(device, weights):
    ends = [token(weights.value, length, device.value) for length in (SHORT, LONG)]
    return (ends,)


@app.cell
def _(device, ends, length, picture):
    _slope = (ends[1].latency_s - ends[0].latency_s) / (LONG - SHORT)
    _now = ends[0].latency_s + _slope * (length.value - SHORT)
    _bandwidth = ends[0].dram_bytes / ends[0].latency_s
    _bytes = ends[0].memory.constants_bytes
    _lengths = [SHORT, LONG]
    picture.show(
        curves(
            _lengths,
            {
                f"a token on the {device.value}": [one.latency_s for one in ends],
                "of which reading the weights": [_bytes / _bandwidth] * 2,
            },
            length.value,
            {"title": "length of the cache (tokens)"},
            amount_axis("time of a token", "s"),
        )
    )
    mo.md(
        rf"""
        $$\begin{{aligned}} \text{{token}} &= \frac{{\text{{weights}}}}{{\text{{bandwidth}}}} + \text{{cache and the rest}} \\[1ex]
        &= \frac{{{_bytes / 1e9:.2f}\,\text{{GB}}}}{{{_bandwidth / 1e9:.1f}\,\text{{GB/s}}}} + {1e3 * (_now - _bytes / _bandwidth):.1f}\,\text{{ms}} = \mathbf{{{1e3 * _now:.1f}\,\text{{ms}}}} \end{{aligned}}$$

        That is {1 / _now:.1f} tokens a second. The bandwidth is what the {device.value} attains of the {float(machine(SOC).dram.bandwidth) / 1e9:.0f} GB/s of this machine's DRAM.
        {engineering(_slope, "s")} more for each token that the cache is longer (a straight line between estimates at {SHORT} and {LONG}).
        On the NPU packed weights do not help today: the driver unpacks them in DRAM. `npusim llm` compares models, formats and devices.
        """
    )
    return


@app.cell
def _():
    answer = exercise(
        "A model has 8 billion weights in int4; DRAM gives 100 GB/s. At most how many tokens a second?"
    )
    right = 25.0
    answer
    return answer, right


@app.cell
def _(answer, right):
    checked(
        answer.value,
        right,
        "Divide the bandwidth by the bytes of all weights. Half a byte each: 4 GB, 25 tokens a second.",
        hints={"that is one byte for each weight; int4 has half.": 12.5, "that is fp16.": 6.25},
    )
    return


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
