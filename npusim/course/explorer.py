"""Explorer: a machine, a network and techniques; where time and energy go; two designs side by side."""

import marimo

app = marimo.App(app_title="Explorer", css_file="lessons/lesson.css", width="medium")

with app.setup:
    import marimo as mo

    from npusim.course.design import KNOBS, Design, critical_steps, offered, stacks_for
    from npusim.course.drawings.curves import stacked
    from npusim.course.drawings.gantt import gantt
    from npusim.course.figure import Figure
    from npusim.engines.event import event_estimate
    from npusim.locate import DEFAULT_SOC
    from npusim.reporting.engineering import engineering
    from npusim.reporting.html import UNIT_COLOURS, amount_axis
    from npusim.reporting.machine import roofline_figure, sram_figure

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
            f"{what} {name}": mo.ui.dropdown(offer, value=value, label=what)
            for name in ("A", "B")
            for what, offer, value in (
                ("machine", SOCS, DEFAULT_SOC),
                ("network", list(KINDS), "gcn-cora"),
            )
        }
    )
    return (choices,)


@app.cell
def _(choices):
    stacks = mo.ui.dictionary(
        {
            name: mo.ui.dropdown(list(offer), value=offer[min(first, len(offer) - 1)], label="techniques")
            for name, first, offer in (
                (one, first, stacks_for(KINDS[choices.value[f"network {one}"]]))
                for one, first in (("A", 2), ("B", 3))
            )
        }
    )
    knobs_a, knobs_b = sliders(choices.value["machine A"]), sliders(choices.value["machine B"])
    mo.hstack(
        [
            mo.vstack(
                [
                    mo.md(f"### Design {name}"),
                    choices.elements[f"machine {name}"],
                    choices.elements[f"network {name}"],
                    stacks[name],
                    *knobs.elements.values(),
                ],
                gap=0.75,
            )
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
    )
    return


@app.cell
def _(designs, found):
    mo.vstack(
        [
            mo.vstack(
                [
                    mo.md(
                        f"**Design {name} as a command** (`latency_s` {found[name].latency_s!r})\n\n"
                        f"```console\n{design.command}\n```"
                    ),
                    mo.download(
                        design.sheet.encode(),
                        filename=f"{design.soc}-explored.yaml",
                        mimetype="application/yaml",
                        label=f"Download the machine of {name} as YAML",
                    ),
                ],
                align="start",
            )
            for name, design in designs.items()
        ]
    )
    return


@app.cell
def _():
    both = Figure(240)
    mo.vstack([mo.md("### How long each unit works"), both.place])
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
    waterfall, energy, roof, sram = Figure(), Figure(180), Figure(460), Figure(360)
    mo.vstack(
        [
            mo.md("### Where the time goes: launch and operators, one after the other, on the critical path"),
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
    _steps = critical_steps(_one, MOST_BARS)
    _kinds = list(dict.fromkeys(unit for _, _, unit in _steps))
    waterfall.show(
        stacked(
            [f"{name}, {engineering(time, 's')}" for name, time, _ in _steps],
            {kind: [time if unit == kind else None for _, time, unit in _steps] for kind in _kinds},
            amount_axis("time since the inference was asked for", "s"),
            {**UNIT_COLOURS, "launch": "#bbbbbb", "several": "#888888"},
            base=[sum(time for _, time, _ in _steps[:row]) for row in range(len(_steps))],
        ),
        height=110 + 42 * len(_steps),
    )
    _parts = {name: value for name, value in _one.energy.model_dump().items() if isinstance(value, float)}
    energy.show(
        stacked(
            [f"{engineering(_one.energy_j, 'J')} an inference"],
            {name.removesuffix("_j"): [value] for name, value in _parts.items() if value > 0},
            amount_axis("energy", "J"),
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
        line.show(gantt(event_estimate(designs[which.value].scenario).timeline))
    return


if __name__ == "__main__":
    app.run()
