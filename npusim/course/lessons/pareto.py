"""10. From one design to a Pareto front.

Many machines could run a network. Which of them are worth looking at?
"""

import marimo

app = marimo.App(app_title="10. From one design to a Pareto front", css_file="lesson.css")

with app.setup:
    import tempfile

    import marimo as mo
    import plotly.graph_objects as go

    import npusim
    from npusim.course.figure import Figure
    from npusim.course.parts import checked, exercise, heading, links, question, reply
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


@app.cell
def _():
    heading(__file__)
    return


@app.cell
def _():
    mo.md(
        r"""
        A design is *dominated* where another is no worse in everything and better in something. What no other dominates is the *Pareto front*: along it,
        more of one thing costs some of another. A model that takes a microsecond a design can look at all of them and need not guess.
        """
    )
    return


@app.cell
def _():
    guess = question(
        "180 designs: 1 to 8 tiles, four sizes of SRAM, three clocks, three bandwidths. How many are worth it in latency and area?",
        ["nearly all", "about half", "some ten"],
    )
    guess
    return (guess,)


@app.cell
def _():
    with tempfile.TemporaryDirectory() as folder:
        designs = npusim.sweep(SPACE, folder).records()
    front, best = [], float("inf")
    for one in sorted(designs, key=lambda design: (design["area_mm2"], design["latency_s"])):
        if one["latency_s"] < best:
            front.append(one)
            best = one["latency_s"]
    return designs, front


@app.cell
def _(designs, front, guess):
    reply(
        guess.value,
        "some ten",
        f"{len(front)} of {len(designs)}. Most designs spend area on what this network does not wait for.",
    )
    return


@app.cell
def _(front, guess):
    _areas = [one["area_mm2"] for one in front]
    budget = mo.ui.slider(
        round(_areas[0] + 0.05, 1),
        round(_areas[-1] + 1, 1),
        step=0.1,
        value=round((_areas[0] + _areas[-1]) / 2, 1),
        label="area that may be spent (mm²)",
        show_value=True,
        disabled=guess.value is None,
    )
    budget
    return (budget,)


@app.cell
def _():
    picture = Figure(420)
    picture.place
    return (picture,)


@app.cell
def _(budget, designs, front, picture):
    _within = [one for one in front if one["area_mm2"] <= budget.value]
    _chosen = _within[-1] if _within else front[0]
    _figure = go.Figure()
    for _name, _points, _marker in (
        ("all designs", designs, {"color": "#cccccc", "size": 6}),
        ("front", front, {"color": COLOURS[0], "size": 9}),
        ("best within the budget", [_chosen], {"color": COLOURS[1], "size": 15, "symbol": "diamond"}),
    ):
        _figure.add_scatter(
            x=[one["area_mm2"] for one in _points],
            y=[one["latency_s"] for one in _points],
            mode="lines+markers" if _name == "front" else "markers",
            line={"shape": "hv"},
            marker=_marker,
            name=_name,
        )
    _figure.add_vline(x=budget.value, line={"color": "#222222", "width": 1})
    picture.show(_figure, xaxis={"title": "area of the NPU (mm²)"}, yaxis=amount_axis("latency", "s"))
    mo.md(
        rf"""
        $$\min_{{\text{{area}} \,\le\, {budget.value:g}\,\text{{mm}}^2}} \text{{latency}} = \mathbf{{{1e3 * _chosen["latency_s"]:.3f}\,\text{{ms}}}}$$

        {_chosen["npu.tiles"]:.0f} tiles with {engineering(_chosen["npu.sram.per_tile"], "B")} each at {engineering(_chosen["npu.dpu.clock"], "Hz")},
        DRAM {engineering(_chosen["dram.bandwidth"], "B/s")}: {_chosen["area_mm2"]:.1f} mm². DRAM's bandwidth is not part of the NPU's area,
        so it is free here; a second budget, on energy or pins, would change that. `npusim sweep` takes spaces of millions.
        """
    )
    return


@app.cell
def _():
    answer = exercise(
        "Four designs (latency, area): (1, 9), (2, 4), (3, 5), (4, 1). How many are on the front?"
    )
    right = 3.0
    answer
    return answer, right


@app.cell
def _(answer, right):
    checked(
        answer.value,
        right,
        "Look for a design that another beats in both. (3, 5) is beaten by (2, 4); the three others are not.",
        within=0.001,
        hints={"look at (3, 5) and (2, 4) once more.": 4.0},
    )
    return


@app.cell
def _():
    links(__file__)
    return


if __name__ == "__main__":
    app.run()
