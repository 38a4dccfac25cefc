"""Pages of placements: operators by device with what each cut would cost, and fronts of placements."""

from __future__ import annotations

from functools import partial
from typing import Any

from rich.text import Text

from npusim.engines.estimate import Divided
from npusim.reporting.charts import Figure, add_groups, add_marks, amount_bars, bar_figure, blank_figure
from npusim.reporting.engineering import Amount, Cell, engineering, factor
from npusim.reporting.html import COLOURS, amount_axis
from npusim.reporting.page import Page, Plot, document_page
from npusim.reporting.tables import Column, Table, cells_table, fields, marked
from npusim.reporting.terminal import conditions
from npusim.studies.placement_document import Cut, MapFront, PlacedChain, PlacedGroup, Placement

_DEVICE_COLOURS = {"NPU": COLOURS[0], "CPU": COLOURS[3], "GPU": COLOURS[2]}
_MOST_BARS = 40
_MOST_ROWS = 24


def placement_page(result: Placement) -> Page:
    """Return the page of a placement: devices compared, operators and cuts, notes, verdict."""
    aim = "latency" if result.requests == 1 else "time between two inferences"
    aim = "energy of an inference" if result.minimise == "energy" else aim
    key, unit = _minimised(result)
    wholes = {"best placement": result, **{f"all on {a.device.upper()}": a for a in result.alone}}
    values = {name: getattr(one, key) for name, one in wholes.items()}
    return document_page(
        result,
        "Placement",
        f"{conditions(result)}; least {aim}",
        [
            Plot(
                f"{result.minimise.capitalize()} of an inference",
                lambda: amount_bars(result.minimise, unit, values),
            ),
            _summary(result),
            Plot("Operators by device: a full bar is where it runs", lambda: _operator_bars(result)),
            _operators(result),
            *divided_sections(result.divided),
        ],
        notes=_notes(result),
        conclusion=_verdict(result),
    )


def _minimised(result: Placement) -> tuple[str, str]:
    """Return the field that is minimised, and its unit."""
    return ("energy_j", "J") if result.minimise == "energy" else ("latency_s", "s")


def _operator_bars(result: Placement) -> Figure:
    """Return what each group costs on each device; the bar of the device that runs it is filled."""
    key, unit = _minimised(result)
    groups = result.groups[:_MOST_BARS]
    series = {
        device.upper(): {group.name: getattr(group.costs[device], key) for group in groups}
        for device in result.devices
    }
    axis = amount_axis(result.minimise, unit, log=True)
    figure = bar_figure(series, axis, unit, colours=_DEVICE_COLOURS)
    for device, trace in zip(result.devices, figure.data, strict=True):
        trace.marker.opacity = [1.0 if group.device == device else 0.25 for group in groups]
    return figure


def _summary(result: Placement) -> Table:
    columns = (
        Column("", "placement", lambda row: "best" if row is result else f"all on the {row.device.upper()}"),
        *fields("latency_s, throughput_per_s: rate, energy_j, transfer_bytes: transfers, switches"),
    )
    return Table(columns, [*result.alone, result], "Whole placements", style=marked(result))


def _pairs(result: Placement) -> list[tuple[str, str]]:
    """Return the pairs of devices of which cuts are shown: each other device first, the rest on the NPU."""
    home = next((device for device in result.devices if result.kinds.get(device, device) == "npu"), None)
    others = [device for device in result.devices if device != home]
    if home is not None:
        return [(other, home) for other in others]
    return [(others[0], others[1])] if len(others) > 1 else []


def _operators(result: Placement) -> Table:
    """Return one row per group: its cost on each device, where it runs, and the cost of a cut after it."""
    pairs = _pairs(result)
    key, unit = _minimised(result)
    cuts = {(cut.after, cut.first, cut.rest): cut for cut in result.cuts}

    def cost_on(device: str, group: PlacedGroup) -> Cell:
        value, is_measured = getattr(group.costs[device], key), group.costs[device].measured and unit == "s"
        text = "-" if value is None else engineering(value, unit) + "*" * is_measured
        return Text(text, style="bold green" if device == group.device else "")

    def cut_cost(pair: tuple[str, str], group: PlacedGroup) -> Cell:
        cut = cuts.get((group.name, *pair))
        return "" if cut is None else Amount(_figure(result, cut), unit)

    def transfers(group: PlacedGroup) -> Cell:
        cut = cuts.get((group.name, *pairs[0]))
        return Amount(cut.transfer_bytes, "B") if cut else ""

    columns = (
        Column("name", "operator"),
        *(Column("", device, partial(cost_on, device), words=False) for device in result.devices),
        Column("device", "on"),
        *(
            Column("", f"{first} up to\nhere, {rest}", partial(cut_cost, (first, rest)))
            for first, rest in pairs
        ),
        *([Column("", "\ntransfers", transfers)] if pairs else []),
    )
    return Table(columns, result.groups, "Operators", gap=1)


def _figure(result: Placement, of: Cut) -> float | None:
    """Return what is minimised; with several requests the time between two inferences."""
    if result.minimise == "latency" and result.requests > 1:
        return 1.0 / of.throughput_per_s if of.throughput_per_s else None
    value: float | None = getattr(of, _minimised(result)[0])
    return value


def _notes(result: Placement) -> list[str]:
    above = f"at most {result.value / result.bound - 1.0:.1%} above the least that the costs allow"
    notes = [result.method, "no placement in this order of execution is better" if result.exact else above]
    for profile in result.profiles:
        notes.append(
            f"* measured on {profile.chip} (row {profile.row}): {profile.groups} of {len(result.groups)} "
            f"operators, {engineering(profile.used_s, 's')}; {engineering(profile.unused_s, 's')} belong to "
            "no operator of the network; energy and traffic are the model's, all figures add up the "
            "operators' own"
        )
    notes.append(
        "devices share DRAM: a result that another device reads is written there and read again; a split's "
        "figures add up those of its operators"
    )
    return notes


def _verdict(result: Placement) -> str:
    """Return how many groups run where, and what that gains over the best single device."""
    used = [device for device in result.devices if any(group.device == device for group in result.groups)]
    counts = ", ".join(f"{sum(g.device == d for g in result.groups)} on the {d.upper()}" for d in used)
    able = [alone for alone in result.alone if alone.energy_j is not None]
    text = f"Best: {counts}"
    if not able:
        return f"{text}; no device can run all of it."
    if len(used) == 1:
        return f"{text}: to split it costs more than it saves."
    best_alone = min(able, key=lambda alone: _value(result, alone))
    gain = _value(result, best_alone) / _value(result, result)
    return f"{text}, {factor(gain)} the best single device ({best_alone.device.upper()})."


def _value(result: Placement, of: Any) -> float:
    if result.minimise == "energy":
        return float(of.energy_j or 0.0)
    return 1.0 / float(of.throughput_per_s or 1e-300)


def divided_sections(divided: Divided | None) -> list[Table]:
    """Return the ways to divide a network over equal devices, the chosen one marked."""
    if divided is None:
        return []
    columns = fields(
        f"name: over {' + '.join(divided.devices)}, latency_s, throughput_per_s, energy_j, dram_bytes, "
        "exchanged_bytes, exchanges"
    )
    caption = f"requests and layers: {divided.requests} inferences in flight"
    chosen = [way for way in divided.ways if way.name == divided.chosen]
    title, name = "Devices of a kind", "devices-of-a-kind"
    return [Table(columns, divided.ways, title, name, caption, style=marked(*chosen))]


def map_front_page(front: MapFront) -> Page:
    """Return the page of a front: devices alone, placements by latency, notes, verdict."""
    letters = ", ".join(f"{letter} {device}" for device, letter in front.devices.items())
    limits = ", ".join(f"{name} {value:.4g}" for name, value in front.limits.items())
    how = f"{len(front.blocks)} {front.granularity}s on {letters}; least latency and energy"
    point = front.points[front.chosen]
    energy, time = front.exponents
    return document_page(
        front,
        "Placements",
        f"{how}; within {limits}" if limits else how,
        [Plot("Energy over latency", lambda: _front_figure(front)), _front_table(front)],
        notes=_front_notes(front),
        conclusion=f"Of {len(front.points)} placements on the front, {point.mapping} has the least product "
        f"of energy^{energy:g} and latency^{time:g}: {engineering(point.latency_s, 's')}, "
        f"{engineering(point.energy_j, 'J')}.",
    )


def _others(front: MapFront) -> list[tuple[str, Any]]:
    """Return devices alone and the placement that was asked for, each with its name."""
    others: list[tuple[str, Any]] = [(f"all on the {alone.device.upper()}", alone) for alone in front.alone]
    if front.given is not None:
        others.append((f"as asked: {front.given.mapping}", front.given))
    if front.given_chosen is not None:
        best = front.given_points[front.given_chosen]
        others.append((f"as asked, best of {len(front.given_points)}:\n{_clocks(best)}", best))
    return others


def _front_table(front: MapFront) -> Table:
    points = [("\n".join(filter(None, (point.mapping, _clocks(point)))), point) for point in front.points]
    rows = [
        (
            name,
            Amount(point.latency_s, "s"),
            Amount(point.energy_j, "J"),
            Amount(point.energy_j / point.latency_s, "W"),
            Amount(getattr(point, "transitions", 0)),
        )
        for name, point in (*_others(front), *points)
    ]
    headings, title = ("placement", "latency", "energy", "power", "transits"), "Devices alone and the front"
    chosen = rows[front.chosen - len(points)]
    return cells_table(headings, rows, title, most=_MOST_ROWS, style=marked(chosen))


def _clocks(point: PlacedChain) -> str:
    return ", ".join(f"{device} {name}" for device, name in point.operating_points.items())


def _front_notes(front: MapFront) -> list[str]:
    settings = f" at {front.settings} settings of operating points" if front.settings > 1 else ""
    notes = [f"exact: no other of {front.placements:.2g} placements{settings} is better in both"]
    if front.evaluations is not None:
        method = "NSGA-II" if front.method == "nsga2" else "drawn at random"
        notes = [f"{method}: {front.evaluations} of {front.placements:.2g} placements were costed"]
    if front.hypervolume_share is not None:
        notes.append(f"dominates {front.hypervolume_share:.1%} of the area that the exact front does")
    if front.granularity == "block" and front.method == "exact":
        notes.append("a block costs what it does where one device runs all; between devices lies DRAM")
    return notes


def _front_figure(front: MapFront) -> Figure:
    """Return energy over latency, with devices alone and the placement that was asked for."""
    axes = amount_axis("latency", "s"), amount_axis("energy", "J")
    figure = blank_figure(xaxis=axes[0], yaxis=axes[1], height=420)

    def place(point: Any) -> tuple[float, float]:
        return point.latency_s, point.energy_j

    line = {"mode": "lines+markers", "line": {"shape": "hv", "color": COLOURS[1]}}
    add_marks(figure, "front", front.points, place, {}, lambda point: point.mapping, **line)
    others = {name.replace("\n", " "): [point] for name, point in _others(front)}
    add_groups(figure, others, place, lambda point: getattr(point, "mapping", ""), size=12)
    return figure
