"""Explorer: a machine, a network and techniques; where time and energy go; two designs side by side."""

import marimo

app = marimo.App(app_title="Explorer", css_file="lessons/lesson.css", width="medium")

with app.setup:
    import marimo as mo

    from npusim.engines.event import estimate_with_timeline
    from npusim.learn.design import KNOBS, Design, offered, stacks_for
    from npusim.learn.drawings.curves import stacked
    from npusim.learn.drawings.gantt import gantt
    from npusim.learn.figure import Figure
    from npusim.locate import DEFAULT_SOC
    from npusim.report.engineering import engineering
    from npusim.report.html import UNIT_COLOURS, amount_axis
    from npusim.report.memory_html import sram_figure
    from npusim.report.roofline_html import roofline_figure

    SOCS, KINDS = offered()
    MOST_BARS = 16

    def sliders(soc):
        """Return a slider for each knob, where the data sheet has it."""
        return mo.ui.dictionary(
            {
                knob.path: mo.ui.slider(
                    steps=knob.values(soc), value=knob.sheet_value(soc), label=knob.label, show_value=True
                )
                for knob in KNOBS
            }
        )


@app.cell
def _():
    mo.md(
        """
        [All lessons](/)

        # Explorer

        Two designs side by side. Each is a machine, a network and a stack of techniques; sliders change the machine. Every picture is of the design that is chosen above it.
        """
    )
    return


@app.cell
def _():
    choices = mo.ui.dictionary(
        {
            f"{what} {name}": element
            for name in ("A", "B")
            for what, element in (
                ("machine", mo.ui.dropdown(SOCS, value=DEFAULT_SOC, label=f"{name}: machine")),
                ("network", mo.ui.dropdown(list(KINDS), value="gcn-cora", label="network")),
            )
        }
    )
    mo.hstack(list(choices.elements.values()), justify="start", gap=1, wrap=True)
    return (choices,)


@app.cell
def _(choices):
    stacks = mo.ui.dictionary(
        {
            name: mo.ui.dropdown(
                list(offer), value=offer[min(first, len(offer) - 1)], label=f"{name}: techniques"
            )
            for name, first, offer in (
                (one, first, stacks_for(KINDS[choices.value[f"network {one}"]]))
                for one, first in (("A", 2), ("B", 3))
            )
        }
    )
    knobs_a, knobs_b = sliders(choices.value["machine A"]), sliders(choices.value["machine B"])
    mo.hstack(
        [
            mo.vstack([stacks[name], *knobs.elements.values()])
            for name, knobs in (("A", knobs_a), ("B", knobs_b))
        ],
        justify="start",
        gap=3,
        wrap=True,
    )
    return knobs_a, knobs_b, stacks


@app.cell
def _(choices, knobs_a, knobs_b, stacks):
    designs = {
        name: Design.of(
            choices.value[f"machine {name}"],
            choices.value[f"network {name}"],
            stacks.value[name],
            knobs.value,
        )
        for name, knobs in (("A", knobs_a), ("B", knobs_b))
    }
    found = {name: design.estimate() for name, design in designs.items()}
    return designs, found


@app.cell
def _(designs, found):
    _a, _b = found["A"], found["B"]
    _rows = [
        (
            what,
            *(engineering(getattr(one, field), unit) for one in (_a, _b)),
            getattr(_a, field) / getattr(_b, field),
        )
        for what, field, unit in (
            ("latency", "latency_s", "s"),
            ("energy", "energy_j", "J"),
            ("DRAM traffic", "dram_bytes", "B"),
            ("area of the NPU", "area_mm2", "mm²"),
        )
    ]
    mo.md(
        "| | A | B | A over B |\n| --- | ---: | ---: | ---: |\n"
        + "\n".join(f"| {what} | {a} | {b} | {ratio:.2f} |" for what, a, b, ratio in _rows)
        + f"\n\n`latency_s` A **{_a.latency_s!r}**, B **{_b.latency_s!r}**\n\n"
        + "".join(f"{name}: {design.name}\n\n" for name, design in designs.items())
    )
    return


@app.cell
def _(designs):
    mo.vstack(
        [
            mo.vstack(
                [
                    mo.md(f"**Design {name} as a command**\n\n```console\n{design.command}\n```"),
                    mo.download(
                        design.sheet.encode(),
                        filename=f"{design.soc}-explored.yaml",
                        mimetype="application/yaml",
                        label=f"Download the machine of {name} as YAML",
                    ),
                ]
            )
            for name, design in designs.items()
        ]
    )
    return


@app.cell
def _():
    both = Figure(240)
    both.place
    return (both,)


@app.cell
def _(both, found):
    _units = sorted({unit for one in found.values() for unit, use in one.units.items() if use.busy_s > 0})
    both.show(
        stacked(
            list(found),
            {
                unit: [getattr(one.units.get(unit), "busy_s", 0.0) for one in found.values()]
                for unit in _units
            },
            amount_axis("time that each unit works", "s"),
            UNIT_COLOURS,
        )
    )
    return


@app.cell
def _():
    which = mo.ui.radio(["A", "B"], value="A", inline=True, label="Pictures of design")
    which
    return (which,)


@app.cell
def _():
    waterfall, energy, roof, sram = Figure(420), Figure(220), Figure(460), Figure(360)
    mo.vstack(
        [
            mo.md("### Where the time goes: operators on the critical path"),
            waterfall.place,
            mo.md("### Energy by part"),
            energy.place,
            mo.md("### Roofline"),
            roof.place,
            mo.md("### What lies in SRAM"),
            sram.place,
        ]
    )
    return energy, roof, sram, waterfall


@app.cell
def _(designs, energy, found, roof, sram, waterfall, which):
    _one = found[which.value]
    _path = [("launch", _one.launch_s, "launch")] + [
        (operator.name, operator.critical_s or 0.0, operator.unit) for operator in _one.operators
    ]
    _longest = sorted(_path, key=lambda entry: -entry[1])[:MOST_BARS]
    _shown = [entry for entry in _path if entry in _longest and entry[1] > 0]
    _kinds = list(dict.fromkeys(unit for _, _, unit in _shown))
    waterfall.show(
        stacked(
            [name for name, _, _ in _shown],
            {kind: [time if unit == kind else 0.0 for _, time, unit in _shown] for kind in _kinds},
            amount_axis("part of the latency", "s"),
            {**UNIT_COLOURS, "launch": "#bbbbbb"},
        )
    )
    _parts = {name: value for name, value in _one.energy.model_dump().items() if isinstance(value, float)}
    energy.show(
        stacked(
            ["energy"],
            {name.removesuffix("_j"): [value] for name, value in _parts.items() if value > 0},
            amount_axis("energy of an inference", "J"),
            {},
        )
    )
    roof.show(roofline_figure(_one))
    sram.show(sram_figure(designs[which.value].scenario.mapped))
    return


@app.cell
def _():
    wanted = mo.ui.checkbox(label="Act the design out: time line by the event engine")
    line = Figure(380)
    mo.vstack([wanted, line.place])
    return line, wanted


@app.cell
def _(designs, line, wanted, which):
    if wanted.value:
        line.show(gantt(estimate_with_timeline(designs[which.value].scenario).timeline))
    return


if __name__ == "__main__":
    app.run()
