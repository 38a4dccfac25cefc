"""The explorer: two designs side by side. What its page asks for, and the answers as JSON values."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from npusim.course.design import KNOBS, Design, critical_path, energy_by_part, offered, stacks, totals
from npusim.course.drawings import alternative, critical_bars, gantt
from npusim.course.lesson import Drawing, drawing_spec
from npusim.course.machine_view import FLOWS, MOST, machine_steps
from npusim.course.pages import Address, document, html, places_of, written
from npusim.course.words import word
from npusim.engines.event import event_estimate
from npusim.errors import ConfigError, UnknownNameError
from npusim.locate import DEFAULT_SOC
from npusim.reporting.html import UNIT_COLOURS
from npusim.reporting.machine import roofline_figure
from npusim.reporting.memory import sram_figure

Answer = dict[str, Any]


def explorer_document(address: Address, library: str) -> str:
    """Return the page of the explorer as HTML; see `pages.lesson_document`."""
    machines, networks = offered()
    data = {
        "isExplorer": True,
        "library": library,
        "machines": machines,
        "networks": networks,
        "start": [DEFAULT_SOC, "gcn-cora"],
        "flows": FLOWS,
        "most": MOST,
    }
    shown = (
        f'<p><a href="{address("")}">{word("all_lessons")}</a></p><h1>{word("explorer")}</h1>'
        f'<p>{word("explorer_about")}</p><div id="explorer"></div>'
    )
    return document(word("explorer"), shown, data, "explorer.js")


def offers(machine: str, network: str) -> Answer:
    """Return the stacks of a network, and a slider for each knob of a machine."""
    _known(machine, network)
    sliders = []
    for knob in KNOBS:
        values = knob.values(machine)
        start = values.index(knob.sheet_value(machine))
        sliders.append({"label": word(knob.path), "values": list(map(written, values)), "start": start})
    return {"stacks": stacks(network), "sliders": sliders}


def compared(first: str, second: str) -> Answer:
    """Return totals of two designs, their critical paths as bars, and each as a command and a data sheet."""
    designs = {"A": design_at(first), "B": design_at(second)}
    estimates = {name: design.estimate for name, design in designs.items()}
    bars = critical_bars(estimates, lambda op: op.unit, UNIT_COLOURS)
    return {
        "figures": [_drawn(bars, 240)],
        "totals": html(totals(estimates["A"], estimates["B"])),
        "designs": [
            {
                "latency": design.latency,
                "command": design.command,
                "sheet": design.sheet,
                "file": f"{design.soc}-explored.yaml",
            }
            for design in designs.values()
        ],
    }


def pictures(design: str) -> Answer:
    """Return critical path, energy, roofline and SRAM of a design."""
    one = design_at(design)
    path, steps = critical_path(one.estimate)
    drawings = (
        (path, 110 + 42 * steps),
        (energy_by_part(one.estimate), 180),
        (roofline_figure(one.estimate), 460),
        (sram_figure(one.scenario.mapped), 360),
    )
    return {"figures": [_drawn(*each) for each in drawings]}


def simulated(design: str) -> Answer:
    """Return the time line of a design by the event engine."""
    return {"figures": [_drawn(gantt(event_estimate(design_at(design).scenario).timeline), 380)]}


def product(m: str, k: str, n: str, flow: str) -> Answer:
    """Return a product on one tile, step by step."""
    if flow not in FLOWS:
        raise UnknownNameError("dataflow", flow, FLOWS)
    sizes = places_of(f"{m},{k},{n}", [MOST + 1] * 3)
    if not sizes:
        raise ConfigError(f"{m} x {k} x {n}", file="product", allowed=f"whole numbers from 1 to {MOST}")
    return {"figures": [_drawn(machine_steps(sizes[0], sizes[1], sizes[2], flow), 0)]}


def answer(address: str) -> Answer:
    """Return what an address below the explorer's asks, such as ``pictures/DESIGN``.

    Raises
    ------
    UnknownNameError
        No page asks that.
    NpusimError
        npusim refuses what it names.
    """
    calls: tuple[Callable[..., Answer], ...] = (offers, compared, pictures, simulated, product)
    named = {call.__name__: call for call in calls}
    what, *parts = address.split("/")
    if what not in named or len(parts) != len(signature(named[what]).parameters):
        raise UnknownNameError("address", address, named)
    return named[what](*parts)


def design_at(text: str) -> Design:
    """Return the design of a text such as ``core-ultra-series2;gcn-cora;stagr;2,3,0,4``.

    Raises
    ------
    UnknownNameError
        The page does not offer that.
    """
    parts = text.split(";")
    if len(parts) != 4:
        raise UnknownNameError("design", text, ["MACHINE;NETWORK;STACK;PLACES"])
    machine, network, stack, places = parts
    _known(machine, network)
    if stack not in stacks(network):
        raise UnknownNameError("stack", stack, stacks(network))
    values = [knob.values(machine) for knob in KNOBS]
    at = places_of(places, list(map(len, values)))
    if not at:
        raise UnknownNameError("position of the sliders", places, [",".join("0" * len(KNOBS))])
    chosen = {knob.path: each[i] for knob, each, i in zip(KNOBS, values, at, strict=True)}
    return Design.of(machine, network, stack, chosen)


def _known(machine: str, network: str) -> None:
    for kind, name, names in zip(("machine", "network"), (machine, network), offered(), strict=True):
        if name not in names:
            raise UnknownNameError(kind, name, names)


def _drawn(drawing: Drawing, height: int) -> tuple[str, str]:
    """Return a drawing as JSON with its text alternative."""
    said = alternative(drawing)
    return drawing_spec(drawing, height), said
