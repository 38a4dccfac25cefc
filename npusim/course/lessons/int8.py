r"""8. Eight bits instead of sixteen.

Half the bytes and twice the lanes: why is a network not twice as quick, and what does it lose?

*QuantGr* stores weights, features and the norm matrix as 8-bit integers: $q = \mathrm{round}(x / s)$ with one scale $s$ for many values. The largest value
that shall be told apart sets $s$; every value between two steps is moved to one of them.
"""

import numpy as np
import plotly.graph_objects as go

from npusim.course.lesson import Exercise, Lesson, Picture, Question, Shown, Slider
from npusim.course.machine import estimate
from npusim.reporting.engineering import engineering
from npusim.reporting.html import COLOURS

VALUES = np.random.default_rng(0).standard_normal(4000)


def _rounding(bits: int, widest: float) -> Shown:
    steps = 2 ** (bits - 1) - 1
    scale = widest / steps
    rounded = np.clip(np.round(VALUES / scale), -steps, steps) * scale
    error = float(np.sqrt(np.mean((rounded - VALUES) ** 2) / np.mean(VALUES**2)))
    figure = go.Figure()
    bins = {"start": -4.0, "end": 4.0, "size": 0.05}
    for name, values, colour in (("as they were", VALUES, "#bbbbbb"), ("rounded", rounded, COLOURS[0])):
        figure.add_histogram(x=values, xbins=bins, name=name, marker={"color": colour}, opacity=0.75)
    figure.update_layout(barmode="overlay", xaxis={"title": "value"}, yaxis={"title": "how many"})
    text = rf"""
        $$\begin{{aligned}} s &= \frac{{\text{{largest}}}}{{2^{{b-1}} - 1}} = \frac{{{widest:g}}}{{{steps}}} = {scale:.3g} \\[1ex]
        \frac{{\text{{rms error}}}}{{\text{{rms value}}}} &= \mathbf{{{100 * error:.2g}\,\%}} \end{{aligned}}$$

        Too wide a range wastes steps; too narrow a one cuts off what is large. At 8 bits there is room for both.
        """
    return figure, text


def _whole_network() -> str:
    half, byte = (estimate("gcn-cora", techniques=stack) for stack in ("stagr", "stagr+quantgr"))
    return (
        f"The network: {engineering(half.latency_s, 's')} in fp16 and {engineering(byte.latency_s, 's')} in int8, of which {engineering(byte.launch_s, 's')} is the launch. "
        "What the answers lose, on trained models and real data, says `npusim accuracy` (docs/accuracy.md)."
    )


LESSON = Lesson(
    Question(
        "GCN on Cora with StaGr waits for DRAM. How much quicker does int8 make one inference, launch included?",
        ["twice: half the bytes", "about 1.5 times", "four times: half the bytes, twice the lanes"],
        "about 1.5 times",
        "Half the bytes halve the waiting. Launching the network takes a quarter of a millisecond in either format.",
    ),
    [
        Picture(
            {
                "bits": Slider("bits", range(2, 11), 8),
                "widest": Slider(
                    "largest value that is distinguished", np.arange(1, 16.5, 0.5).tolist(), 4.0
                ),
            },
            _rounding,
            height=340,
        )
    ],
    Exercise(
        "Values reach from -3 to 3. What is the scale of symmetric 8-bit integers?",
        3 / 127,
        "Divide the largest value by the largest integer of 8 bits with a sign. That is 127: 0.0236.",
        within=0.012,
        hints={"one bit is the sign: 127 steps on each side.": 3 / 255},
    ),
    closing=_whole_network,
)
