r"""11. Calibrating: which measurement tells which number.

A model has numbers that only a measurement gives. Which one tells what?

The simplest model of a copy: $t = t_0 + \text{bytes} / B$, a launch and a bandwidth. Measured times scatter. Which sizes must be measured so that both numbers are known?
Below, a machine with $t_0 = {launch_ms}$ ms and $B = {bandwidth}$ GB/s is "measured" eight times, with noise, between two sizes.

Question
--------
All eight copies have about 1 MB. What do they tell?

- [x] the launch, but hardly the bandwidth
- [ ] the bandwidth, but not the launch
- [ ] both

Moving 1 MB takes 12 microseconds beside 250 for the launch: the noise of the launch hides it.

Exercise
--------
From which size on does a copy take longer to move than to launch, on this machine?

Answer: {even_mb} MB, within 0.03

Set bytes / B equal to the launch. {launch_ms} ms times {bandwidth} GB/s are {even_mb:.0f} MB.
"""

import numpy as np
import plotly.graph_objects as go

from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import machine
from npusim.reporting.html import COLOURS, log_axis

LAUNCH_S = float(machine().npu.launch_overhead)
BANDWIDTH = float(machine().dram.bandwidth)
SIGMAS_OF_90 = 1.645
"""Half the width of the 90 % interval of a normal distribution, in standard deviations."""
EVEN_MB = LAUNCH_S * BANDWIDTH / 1e6


def _stated(value: float, unit: str, digits: int, share: float) -> str:
    """Return a fitted number with its 90 % interval in LaTeX, or that it is not known."""
    if share >= 1 or value <= 0:
        return r"\text{not known: anything fits}"
    return rf"{value:.{digits}f}\;\text{{{unit}}} \pm {100 * share:.1f}\,\%"


@picture(
    sizes=Slider("smallest and largest copy (MB)", [0.01, 0.1, 1, 3, 10, 30, 100, 300, 1000], (0.1, 10)),
    noise=Slider("noise (%)", range(1, 21), 5),
    height=380,
)
def _fit(sizes: tuple[float, float], noise: float) -> Shown:
    copied = np.geomspace(max(sizes[0], 0.01) * 1e6, sizes[1] * 1e6 * 1.001, 8)
    true_s = LAUNCH_S + copied / BANDWIDTH
    measured_s = true_s * (1 + noise / 100 * np.random.default_rng(3).standard_normal(8))
    # Weighted least squares: every time is known to the same share of itself.
    matrix = np.stack([np.ones(8), copied], axis=1) / true_s[:, None]
    fitted, *_ = np.linalg.lstsq(matrix, measured_s / true_s, rcond=None)
    sigma = np.sqrt(np.diag(np.linalg.inv(matrix.T @ matrix))) * noise / 100
    shares = SIGMAS_OF_90 * sigma / np.array([LAUNCH_S, 1 / BANDWIDTH])
    line = np.geomspace(1e4, 1e9, 60)
    fitted_s = np.maximum(fitted[0] + line * fitted[1], 1e-6)
    dashes, dot = {"color": COLOURS[1], "dash": "dash"}, {"color": COLOURS[0], "size": 9}
    figure = go.Figure()
    figure.add_scatter(
        x=line, y=LAUNCH_S + line / BANDWIDTH, mode="lines", name="the machine", line={"color": "#999999"}
    )
    figure.add_scatter(x=line, y=fitted_s, mode="lines", name="fitted", line=dashes)
    figure.add_scatter(x=copied, y=measured_s, mode="markers", name="measured", marker=dot)
    figure.update_layout(xaxis=log_axis("size", "B", 1e4, 1e9), yaxis=log_axis("time", "s", 5e-5, 2e-2))
    text = rf"""
        $$\begin{{aligned}} t_0 &= {_stated(1e3 * fitted[0], "ms", 3, shares[0])} \\ B &= {_stated(1e-9 / fitted[1], "GB/s", 0, shares[1])} \end{{aligned}}$$

        Half the width of the 90 % interval stands behind ±, as everywhere in npusim. {"**Both are known** to a tenth." if max(shares) < 0.1 else "**Not both are known**, however good the fit looks at these sizes: its intervals say so."}
        Widen the range: small copies tell the launch, large ones the bandwidth. `npusim calibrate` does the same with all numbers of a machine
        and marks those that the measurements leave open.
        """
    return figure, text


LESSON = Lesson(
    __doc__,
    _fit,
    numbers={"launch_ms": f"{1e3 * LAUNCH_S:.2f}", "bandwidth": f"{BANDWIDTH / 1e9:.1f}", "even_mb": EVEN_MB},
)
