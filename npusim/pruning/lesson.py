r"""14. Pruning channels on a grid of 16s.

Half of the channels are a quarter of the multiplications. Is it a quarter of the time?

Channel pruning (GCNP) removes the least useful features of each layer: fewer inputs for one product, fewer outputs for the one before. A layer that
keeps a share $k$ of its channels has $k^2$ of its multiply-accumulates. But the grid works on channels in {channels}s.

Question
--------
Layers of 64 channels grow to 65. How much longer do they take on the grid?

- [ ] 1.03 times, as the multiplications say
- [x] about 1.2 times
- [ ] not longer

The 65th channel needs a block of 16 lanes of its own, in every layer.

Exercise
--------
A layer of 128 channels on both sides keeps 96. What share of its multiply-accumulates remains?

Answer: 56.25 %

Both sides shrink, so the share counts twice. 0.75 squared is 56 %.

- 75: that is one side; inputs shrink as well as outputs.
"""

from functools import cache

from npusim.course.drawings import curves, grid_of
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import estimate, layers, machine
from npusim.reporting.engineering import engineering

CHANNELS = grid_of(machine()).channels
FULL = 144
WIDTHS = sorted({*range(16, FULL + 1, 8), *range(17, FULL, 16), FULL})


@cache
def _cost(width: int) -> tuple[float, float]:
    """Return time without the launch (s) and multiply-accumulates of layers of a width."""
    cost = estimate(layers(1024, width))
    return cost.latency_s - cost.launch_s, cost.macs


@picture(width=Slider("channels of each layer", WIDTHS, 64), height=380)
def _widths(width: int) -> Shown:
    shares = {each: [a / b for a, b in zip(_cost(each), _cost(FULL), strict=True)] for each in WIDTHS}
    time_share, mac_share = shares[width]
    on_grid = -(-width // CHANNELS) * CHANNELS
    figure = curves(
        WIDTHS,
        {
            "time, launch apart": [share for share, _ in shares.values()],
            "multiply-accumulates": [share for _, share in shares.values()],
        },
        width,
        {"title": "channels of each of 8 layers"},
        {"title": f"against {FULL} channels", "rangemode": "tozero"},
    )
    text = rf"""
        $$\begin{{aligned}} \text{{channels on the grid}} &= \left\lceil \frac{{{width}}}{{{CHANNELS}}} \right\rceil \cdot {CHANNELS} = {on_grid} \\[1ex]
        \frac{{\text{{MACs}}}}{{\text{{MACs at {FULL}}}}} &= {mac_share:.3f} \\[1ex]
        \frac{{\text{{time}}}}{{\text{{time at {FULL}}}}} &= \mathbf{{{time_share:.3f}}} \end{{aligned}}$$

        {engineering(_cost(width)[0], "s")} for the layers. Prune to {on_grid if on_grid == width else on_grid - CHANNELS} rather than to a few channels
        beside it; `npusim prune` snaps budgets to what the machine gains from.
        """
    return figure, text


LESSON = Lesson(__doc__, _widths, numbers={"channels": CHANNELS})
