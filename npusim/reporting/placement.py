"""Pages of placements: operators by device with what each cut would cost, and fronts of placements."""

from __future__ import annotations

from functools import partial
from typing import Any

from rich.text import Text

from npusim.reporting.charts import Figure, add_marks, amount_bars, bar_figure, blank_figure
from npusim.reporting.engineering import Amount, Cell, engineering, factor
from npusim.reporting.html import COLOURS, amount_axis
from npusim.reporting.page import Column, Page, Plot, Table, document_page, fields
from npusim.reporting.sustained import divided_sections
from npusim.reporting.terminal import conditions
from npusim.studies.placement_document import Cut, MapFront, PlacedChain, PlacedGroup, Placement

DEVICE_COLOURS = {"npu": COLOURS[0], "cpu": COLOURS[3], "gpu": COLOURS[2]}
_CHOSEN = "bold green"
_MOST_BARS = 40
_MOST_ROWS = 24


def placement_page(result: Placement) -> Page:
    """Return the page of a placement: devices compared, operators and cuts, notes, verdict."""
    aim = "latency" if result.requests == 1 else "time between two inferences"
    aim = "energy of an inference" if result.minimise == "energy" else aim
    return document_page(
        result,
        "Placement",
        f"{conditions(result)}; least {aim}",
        [
            Plot(f"{result.minimise.capitalize()} of an inference", lambda: _bars(result)),
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


def _bars(result: Placement) -> Figure | None:
    name, unit = _minimised(result)
    values = {"best placement": getattr(result, name)}
    values |= {f"all on {alone.device.upper()}": getattr(alone, name) for alone in result.alone}
    colours = {f"all on {device.upper()}": colour for device, colour in DEVICE_COLOURS.items()}
    return amount_bars(result.minimise, unit, values, colours | {"best placement": COLOURS[1]})


def _operator_bars(result: Placement) -> Figure:
    """Return what each group costs on each device; the bar of the device that runs it is filled."""
    name, unit = _minimised(result)
    groups = result.groups[:_MOST_BARS]
    series, colours = {}, {}
    for device in result.devices:
        series[device.upper()] = {group.name: getattr(group.costs[device], name) for group in groups}
        colours[device.upper()] = DEVICE_COLOURS.get(device, COLOURS[5])
    axis = amount_axis(result.minimise, unit, log=True)
    height = 160 + 16 * len(groups) * len(result.devices)
    figure = bar_figure(series, axis, unit, colours=colours, height=height)
    for device, trace in zip(result.devices, figure.data, strict=True):
        trace.marker.opacity = [1.0 if group.device == device else 0.25 for group in groups]
    return figure


def _summary(result: Placement) -> Table:
    columns = (
        Column("", "placement", lambda row: "best" if row is result else f"all on the {row.device.upper()}"),
        *fields("latency_s, throughput_per_s: rate, energy_j"),
        Column("transfer_bytes", "transfers", lambda row: getattr(row, "transfer_bytes", 0.0)),
        Column("switches", show=lambda row: getattr(row, "switches", 0)),
    )
    rows = [*result.alone, result]
    return Table(columns, rows, "Whole placements", style=lambda row: _CHOSEN if row is result else "")


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
    name, unit = _minimised(result)

    def figure(cut: Cut) -> float | None:
        if unit == "s" and result.requests > 1:
            return 1.0 / cut.throughput_per_s if cut.throughput_per_s else None
        value: float | None = getattr(cut, name)
        return value

    def cost_on(device: str, group: PlacedGroup) -> Text:
        cost = group.costs[device]
        value = getattr(cost, name)
        text = "-" if value is None else engineering(value, unit)
        text += "*" if cost.measured and unit == "s" else ""
        return Text(text, style=_CHOSEN if device == group.device else "")

    cuts = {(cut.after, cut.first, cut.rest): cut for cut in result.cuts}
    costs = {pair: [figure(cut) for cut in result.cuts if (cut.first, cut.rest) == pair] for pair in pairs}
    least = {pair: min((v for v in values if v is not None), default=None) for pair, values in costs.items()}

    def cut_cost(pair: tuple[str, str], group: PlacedGroup) -> Cell:
        if (group.name, *pair) not in cuts:
            return ""
        value = figure(cuts[group.name, *pair])
        is_least = value is not None and value == least[pair]
        return Text("-" if value is None else engineering(value, unit), style="bold" if is_least else "")

    def transfers(group: PlacedGroup) -> Cell:
        cut = cuts.get((group.name, *pairs[0]))
        return Amount(cut.transfer_bytes, "B") if cut else ""

    columns = [Column("name", "operator")]
    columns += [Column("", device, partial(cost_on, device), words=False) for device in result.devices]
    columns.append(Column("device", "on", layout={"style": _CHOSEN}))
    for pair in pairs:
        heading = f"{pair[0]} up to\nhere, {pair[1]}"
        columns.append(Column("", heading, partial(cut_cost, pair), words=False))
    columns += [Column("", "\ntransfers", transfers)] if pairs else []
    return Table(columns, result.groups, "Operators", gap=1)


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
    best_alone = min(able, key=lambda alone: _value(result, alone))
    gain = _value(result, best_alone) / _value(result, result)
    if len(used) == 1:
        return f"{text}: to split it costs more than it saves."
    return f"{text}, {factor(gain)} the best single device ({best_alone.device.upper()})."


def _value(result: Placement, of: Any) -> float:
    if result.minimise == "energy":
        return float(of.energy_j or 0.0)
    return 1.0 / float(of.throughput_per_s or 1e-300)


def map_front_page(front: MapFront) -> Page:
    """Return the page of a front: devices alone, placements by latency, notes, verdict."""
    letters = ", ".join(f"{letter} {device}" for device, letter in front.devices.items())
    limits = ", ".join(f"{name} {value:.4g}" for name, value in front.limits.items())
    how = f"{len(front.blocks)} {front.granularity}s on {letters}; least latency and energy"
    how += f"; within {limits}" if limits else ""
    point = front.points[front.chosen]
    energy, time = front.exponents
    return document_page(
        front,
        "Placements",
        how,
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
    chosen = front.points[front.chosen]
    columns = (
        Column("", "placement", lambda row: row[0]),
        Column("latency_s", show=lambda row: row[1].latency_s),
        Column("energy_j", show=lambda row: row[1].energy_j),
        Column("power_w", show=lambda row: row[1].energy_j / row[1].latency_s),
        Column("transitions", "transits", lambda row: getattr(row[1], "transitions", 0)),
    )
    others, title = _others(front), "Devices alone and the front"
    terminal = others + [points[i] for i in _shown(len(points), front.chosen)]
    style = {True: _CHOSEN, False: ""}
    return Table(
        columns, others + points, title, terminal=terminal, style=lambda row: style[row[1] is chosen]
    )


def _clocks(point: PlacedChain) -> str:
    return ", ".join(f"{device} {name}" for device, name in point.operating_points.items())


def _shown(count: int, chosen: int) -> list[int]:
    """Return the points of a long front that a table shows: evenly spread, both ends and the chosen one."""
    if count <= _MOST_ROWS:
        return list(range(count))
    return sorted({chosen, *(round(i * (count - 1) / (_MOST_ROWS - 1)) for i in range(_MOST_ROWS))})


def _front_notes(front: MapFront) -> list[str]:
    settings = f" at {front.settings} settings of operating points" if front.settings > 1 else ""
    notes = [f"exact: no other of {front.placements:.2g} placements{settings} is better in both"]
    if front.evaluations is not None:
        method = "NSGA-II" if front.method == "nsga2" else "drawn at random"
        notes = [f"{method}: {front.evaluations} of {front.placements:.2g} placements were costed"]
    if front.hypervolume_share is not None:
        notes.append(f"dominates {front.hypervolume_share:.1%} of the area that the exact front does")
    shown = len(_shown(len(front.points), front.chosen))
    if shown < len(front.points):
        notes.append(f"{shown} of {len(front.points)} placements are shown; --format json has all")
    if front.granularity == "block" and front.method == "exact":
        notes.append("a block costs what it does where one device runs all; between devices lies DRAM")
    return notes


def _front_figure(front: MapFront) -> Figure:
    """Return energy over latency, with devices alone and the placement that was asked for."""
    axes = amount_axis("latency", "s"), amount_axis("energy", "J")
    figure = blank_figure(xaxis=axes[0], yaxis=axes[1], height=420)

    def place(point: Any) -> tuple[float, float]:
        return point.latency_s, point.energy_j

    steps: Any = {"mode": "lines+markers", "line": {"shape": "hv", "color": COLOURS[1]}}
    steps["hovertemplate"] = "%{text}<br>%{x:.3~s}s, %{y:.3~s}J<extra></extra>"
    add_marks(figure, "front", front.points, place, {}, lambda point: point.mapping, **steps)
    symbols = ("square", "diamond", "triangle-up", "star")
    for i, (name, point) in enumerate(_others(front)):
        marker = {"size": 12, "symbol": symbols[i % 4], "color": COLOURS[(i + 2) % len(COLOURS)]}
        label = name.replace("\n", " ")
        add_marks(figure, label, [point], place, marker, lambda _, label=label: label)
    return figure
