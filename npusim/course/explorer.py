"""Explorer: a machine, a network and techniques; where time and energy go; two designs side by side."""

import marimo

app = marimo.App(app_title="Explorer", css_file="lesson.css", width="medium")

with app.setup:
    import marimo as mo

    from npusim.course.design import KNOBS, Design, critical_path, energy_by_part, offered, totals
    from npusim.course.design import stacks as legal_stacks
    from npusim.course.drawings import critical_bars, gantt
    from npusim.course.lesson import Slider
    from npusim.course.machine_view import FLOWS, MOST, machine_steps
    from npusim.course.widgets import Figure, shown, slider
    from npusim.engines.event import event_estimate
    from npusim.locate import DEFAULT_SOC
    from npusim.reporting.html import UNIT_COLOURS
    from npusim.reporting.machine import roofline_figure
    from npusim.reporting.memory import sram_figure

    SOCS, WORKLOADS = offered()

    def sliders(soc):
        """Return a slider for each knob, where the data sheet has it."""
        return mo.ui.dictionary(
            {knob.path: slider(Slider(knob.label, knob.values(soc), knob.sheet_value(soc))) for knob in KNOBS}
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
    _offered = (("machine", SOCS, DEFAULT_SOC), ("network", WORKLOADS, "gcn-cora"))
    choices = mo.ui.dictionary(
        {
            f"{what} {name}": mo.ui.dropdown(offer, value=value, label=what)
            for name in ("A", "B")
            for what, offer, value in _offered
        }
    )
    return (choices,)


@app.cell
def _(choices):
    _offers = {name: legal_stacks(choices.value[f"network {name}"]) for name in ("A", "B")}
    stacks = mo.ui.dictionary(
        {
            name: mo.ui.dropdown(offer, value=offer[min(first, len(offer) - 1)], label="techniques")
            for (name, offer), first in zip(_offers.items(), (2, 3), strict=True)
        }
    )
    knobs_a, knobs_b = sliders(choices.value["machine A"]), sliders(choices.value["machine B"])
    mo.hstack(
        [
            mo.vstack(
                [
                    mo.md(f"## Design {name}"),
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
def _(both, choices, energy, knobs_a, knobs_b, roof, sram, stacks, waterfall):
    _chosen = choices.value
    designs = {
        name: Design.of(
            _chosen[f"machine {name}"], _chosen[f"network {name}"], stacks.value[name], knobs.value
        )
        for name, knobs in (("A", knobs_a), ("B", knobs_b))
    }
    _costed = shown(
        [both, waterfall, energy, roof, sram],
        lambda: {name: design.estimate for name, design in designs.items()},
    )
    mo.stop(not isinstance(_costed, dict), _costed)
    estimates = _costed
    return designs, estimates


@app.cell
def _(estimates):
    mo.md(totals(estimates["A"], estimates["B"]))
    return


@app.cell
def _(designs):
    mo.vstack(
        [
            mo.vstack(
                [
                    mo.md(
                        f"**Design {name} as a command** (latency {design.latency})\n\n"
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
    mo.vstack(
        [
            mo.md(
                "## Where the latency goes: the launch, and the operators of each unit on the critical path"
            ),
            both.place,
        ]
    )
    return (both,)


@app.cell
def _(both, estimates):
    both.show(critical_bars(estimates, lambda op: op.unit, UNIT_COLOURS))
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
            mo.md("## Where the time goes: launch and operators, one after the other, on the critical path"),
            waterfall.place,
            mo.md("## Energy by part"),
            energy.place,
            mo.md("## Roofline"),
            roof.place,
            mo.md("## What lies in SRAM"),
            sram.place,
        ]
    )
    return energy, roof, sram, waterfall


@app.cell
def _(designs, energy, estimates, roof, sram, waterfall, which):
    _estimate = estimates[which.value]
    _path, _steps = critical_path(_estimate)
    waterfall.show(_path, height=110 + 42 * _steps)
    energy.show(energy_by_part(_estimate))
    roof.show(roofline_figure(_estimate))
    sram.show(sram_figure(designs[which.value].scenario.mapped))
    return


@app.cell
def _():
    wanted = mo.ui.checkbox(label="Simulate the design: time line by the event engine")
    line = Figure(380)
    mo.vstack([wanted, line.place])
    return line, wanted


@app.cell
def _(designs, line, wanted, which):
    if wanted.value:
        line.show(gantt(event_estimate(designs[which.value].scenario).timeline))
    else:
        line.clear()
    return


@app.cell
def _():
    sizes = mo.ui.dictionary(
        {
            **{name: mo.ui.number(1, MOST, value=16, label=name.upper()) for name in "mkn"},
            "dataflow": mo.ui.dropdown(FLOWS, value=FLOWS[0], label="dataflow"),
        }
    )
    player = Figure(is_player=True)
    mo.vstack(
        [
            mo.md("### One tile, step by step: a product M x K x N of int8, on a small array of 8 x 8 lanes"),
            mo.hstack(list(sizes.elements.values()), justify="start", wrap=True),
            player.place,
        ]
    )
    return player, sizes


@app.cell
def _(player, sizes):
    player.show(machine_steps(**sizes.value))
    return


if __name__ == "__main__":
    app.run()
