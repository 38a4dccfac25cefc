r"""10. From one design to a Pareto front.

Many machines could run a network. Which of them are worth looking at?

A design is *dominated* where another is no worse in everything and better in something. What no other dominates is the *Pareto front*: along it,
more of one thing costs some of another. A model that takes a microsecond a design can look at all of them and need not guess.

Question
--------
180 designs: 1 to 8 tiles, four sizes of SRAM, three clocks, three bandwidths. How many are worth it in latency and area?

- [ ] nearly all
- [ ] about half
- [x] some ten

{front} of {designs}. Most designs spend area on what this network does not wait for.

Exercise
--------
Four designs (latency, area): (1, 9), (2, 4), (3, 5), (4, 1). How many are on the front?

Answer: 3, within 0.001

Look for a design that another beats in both. (3, 5) is beaten by (2, 4); the three others are not.

- 4: look at (3, 5) and (2, 4) once more.
"""

import tempfile
from itertools import accumulate

import plotly.graph_objects as go

import npusim
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.reporting.engineering import engineering
from npusim.reporting.html import COLOURS, amount_axis

SPACE = {
    "schema": "npusim.space/1",
    "workload": "gcn-cora",
    "techniques": "stagr+quantgr",
    "axes": {
        "npu.tiles": {"values": [1, 2, 4, 6, 8]},
        "npu.sram.per_tile": {"values": ["0.5 MB", "1 MB", "1.5 MB", "3 MB"]},
        "npu.dpu.clock": {"values": ["0.9 GHz", "1.3 GHz", "1.85 GHz"]},
        "dram.bandwidth": {"values": ["40 GB/s", "80 GB/s", "120 GB/s"]},
    },
    "keep": "all",
}
with tempfile.TemporaryDirectory() as _folder:
    DESIGNS = npusim.sweep(SPACE, _folder).records()
_BY_AREA = sorted(DESIGNS, key=lambda design: (design["area_mm2"], design["latency_s"]))
_LEAST = [float("inf"), *accumulate((design["latency_s"] for design in _BY_AREA), min)]
FRONT = [design for design, least_s in zip(_BY_AREA, _LEAST, strict=False) if design["latency_s"] < least_s]
LEAST_MM2, MOST_MM2 = FRONT[0]["area_mm2"], FRONT[-1]["area_mm2"]
TENTHS = range(round(10 * (LEAST_MM2 + 0.05)), round(10 * (MOST_MM2 + 1)) + 1)


@picture(
    budget=Slider(
        "area that may be spent (mm²)",
        [tenths / 10 for tenths in TENTHS],
        round((LEAST_MM2 + MOST_MM2) / 2, 1),
    ),
    height=420,
)
def _budget(budget: float) -> Shown:
    chosen = [FRONT[0], *(design for design in FRONT if design["area_mm2"] <= budget)][-1]
    figure = go.Figure()
    for name, designs, marker in (
        ("all designs", DESIGNS, {"color": "#cccccc", "size": 6}),
        ("front", FRONT, {"color": COLOURS[0], "size": 9}),
        ("best within the budget", [chosen], {"color": COLOURS[1], "size": 15, "symbol": "diamond"}),
    ):
        figure.add_scatter(
            x=[design["area_mm2"] for design in designs],
            y=[design["latency_s"] for design in designs],
            mode="lines+markers" if name == "front" else "markers",
            line={"shape": "hv"},
            marker=marker,
            name=name,
        )
    figure.add_vline(x=budget, line={"color": "#222222", "width": 1})
    figure.update_layout(xaxis={"title": "area of the NPU (mm²)"}, yaxis=amount_axis("latency", "s"))
    text = rf"""
        $$\min_{{\text{{area}} \,\le\, {budget:g}\;\text{{mm}}^2}} \text{{latency}} = \mathbf{{{1e3 * chosen["latency_s"]:.3f}\;\text{{ms}}}}$$

        {chosen["npu.tiles"]:.0f} tiles with {engineering(chosen["npu.sram.per_tile"], "B")} each at {engineering(chosen["npu.dpu.clock"], "Hz")},
        DRAM {engineering(chosen["dram.bandwidth"], "B/s")}: {chosen["area_mm2"]:.1f} mm². DRAM's bandwidth is not part of the NPU's area,
        so it is free here; a second budget, on energy or pins, would change that. `npusim sweep` takes spaces of millions.
        """
    return figure, text


LESSON = Lesson(__doc__, _budget, numbers={"front": len(FRONT), "designs": len(DESIGNS)})
