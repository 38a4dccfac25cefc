r"""8. Eight bits instead of sixteen.

Half the bytes and twice the lanes: why is a network not twice as quick, and what does it lose?

*QuantGr* stores weights, features and the norm matrix as 8-bit integers: $q = \mathrm{round}(x / s)$ with one scale $s$ for many values. The largest value
that shall be told apart sets $s$; every value between two steps is moved to one of them.

Question
--------
GCN on Cora with StaGr waits for DRAM. How much quicker does int8 make one inference, launch included?

- [ ] twice: half the bytes
- [x] about 1.5 times
- [ ] four times: half the bytes, twice the lanes

Half the bytes halve the waiting. Launching the network takes a quarter of a millisecond in either format.

Exercise
--------
Values reach from -3 to 3. What is the scale of symmetric 8-bit integers?

Answer: 3/127, within 0.012

Divide the largest value by the largest integer of 8 bits with a sign. That is 127: 0.0236.

- 1/85: one bit is the sign: 127 steps on each side.
"""

import numpy as np
import plotly.graph_objects as go

from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import estimate
from npusim.reporting.engineering import engineering, percent
from npusim.reporting.html import COLOURS

CUT_MUCH, WIDE_STEP = 0.02, 0.25
VALUES = np.random.default_rng(0).standard_normal(4000)


def _loss(cut: float, scale: float) -> str:
    """Return what loses more: values that are cut off (a share of all), or the width of a step."""
    if cut > CUT_MUCH:
        return f"{percent(cut)} of the values are larger than the largest and are cut off: the range is too narrow."
    if scale > WIDE_STEP:
        return "Steps are wide against the values, whose standard deviation is 1: fewer bits or a wide range waste them."
    return "The steps are fine and hardly any value is cut off."


@picture(
    bits=Slider("bits", range(2, 11), 8),
    widest=Slider("largest value that is distinguished", np.arange(1, 16.5, 0.5).tolist(), 4.0),
    height=340,
)
def _rounding(bits: int, widest: float) -> Shown:
    steps = 2 ** (bits - 1) - 1
    scale = widest / steps
    rounded = np.clip(np.round(VALUES / scale), -steps, steps) * scale
    error = float(np.sqrt(np.mean((rounded - VALUES) ** 2) / np.mean(VALUES**2)))
    # Each bar stands for the same odd number of steps: other bins would beat with the steps (moire).
    in_bar = max(1, round(0.05 / scale)) // 2 * 2 + 1
    width = in_bar * scale
    bars, counts = np.unique(np.round(rounded / width), return_counts=True)
    figure = go.Figure()
    density, edges = np.histogram(VALUES, 160, (-4.0, 4.0), density=True)
    figure.add_bar(
        x=edges[:-1] + 0.025, y=density, width=0.05, name="as they were", marker={"color": "#bbbbbb"}
    )
    marker = {"color": COLOURS[0], "line": {"width": 0.5, "color": "#ffffff"}}
    heights = counts / (len(VALUES) * width)
    figure.add_bar(x=bars * width, y=heights, width=width, name="rounded", marker=marker, opacity=0.6)
    figure.update_layout(
        barmode="overlay",
        xaxis={"title": "value", "range": [-4.2, 4.2]},
        yaxis={"title": "share of the values, for each unit of value"},
    )
    text = rf"""
        $$\begin{{aligned}} s &= \frac{{\text{{largest}}}}{{2^{{b-1}} - 1}} = \frac{{{widest:g}}}{{{steps}}} = {scale:.3g} \\[1ex]
        \frac{{\text{{rms error}}}}{{\text{{rms value}}}} &= \mathbf{{{100 * error:.2g}\,\%}} \end{{aligned}}$$

        A blue bar is {"one step" if in_bar == 1 else f"{in_bar} steps"} wide. {_loss(float(np.mean(np.abs(VALUES) > widest)), scale)}
        """
    return figure, text


def _whole_network() -> str:
    half, byte = (estimate("gcn-cora", techniques=stack) for stack in ("stagr", "stagr+quantgr"))
    return (
        f"The network: {engineering(half.latency_s, 's')} in fp16 and {engineering(byte.latency_s, 's')} in int8, of which {engineering(byte.launch_s, 's')} is the launch. "
        "What the answers lose, on trained models and real data, says `npusim accuracy` (docs/accuracy.md)."
    )


LESSON = Lesson(__doc__, _rounding, closing=_whole_network)
