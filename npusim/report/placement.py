"""A placement as a page for the terminal: operators by device, and what each cut would cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.report.engineering import engineering, factor
from npusim.report.terminal import LongName, conditions, headed, remarks, title

if TYPE_CHECKING:
    from npusim.studies.placement_document import Cut, PlacedGroup, Placement

_JOINTS = "/."
_CHOSEN = "bold green"


def placement_page(result: Placement) -> RenderableType:
    """Return a placement for the terminal: devices compared, operators and cuts, notes, verdict."""
    how = conditions(result.hint, result.requests, result.tiles, result.contexts, result.npu_tiles)
    parts: list[RenderableType] = [
        title(result.workload, result.soc, result.techniques),
        Text(f"{how}; least {_aim(result)}", style="dim"),
        Text(),
        _summary(result),
        Text(),
        _operators(result),
        Text(),
        remarks(("Note", "dim", _notes(result))),
        Text(),
    ]
    return Group(*parts, Text(verdict(result), style="bold"))


def _aim(result: Placement) -> str:
    if result.minimise == "energy":
        return "energy of an inference"
    return "latency" if result.requests == 1 else "time between two inferences"


def _summary(result: Placement) -> Table:
    table = headed("placement", "latency", "rate", "energy", "transfers", "switches")
    for alone in result.alone:
        table.add_row(
            f"all on the {alone.device.upper()}",
            _or_dash(alone.latency_s, "s"),
            _or_dash(alone.throughput_per_s, "/s"),
            _or_dash(alone.energy_j, "J"),
            "0 B",
            "0",
        )
    table.add_row(
        "best",
        engineering(result.latency_s, "s"),
        engineering(result.throughput_per_s, "/s"),
        engineering(result.energy_j, "J"),
        engineering(result.transfer_bytes, "B"),
        str(result.switches),
        style=_CHOSEN,
    )
    return table


def _or_dash(value: float | None, unit: str) -> str:
    return "-" if value is None else engineering(value, unit)


def _pairs(result: Placement) -> list[tuple[str, str]]:
    """Return the pairs of devices that the table shows: what comes first elsewhere, the rest on the NPU."""
    home = next((device for device in result.devices if result.kinds.get(device, device) == "npu"), None)
    others = [device for device in result.devices if device != home]
    if home is not None:
        return [(other, home) for other in others]
    return [(others[0], others[1])] if len(others) > 1 else []


def _figure(result: Placement) -> tuple[Callable[[Cut], float | None], str]:
    """Return what of a cut is shown: what is minimised."""
    if result.minimise == "energy":
        return (lambda cut: cut.energy_j), "J"
    if result.requests == 1:
        return (lambda cut: cut.latency_s), "s"
    return (lambda cut: 1.0 / cut.throughput_per_s if cut.throughput_per_s else None), "s"


def _operators(result: Placement) -> Table:
    """Return one row per group: its cost on each device, where it runs, and the cost of a cut after it."""
    pairs = _pairs(result)
    figure, unit = _figure(result)
    cuts = {(cut.after, cut.first, cut.rest): cut for cut in result.cuts}
    shown = {pair: [figure(cut) for cut in result.cuts if (cut.first, cut.rest) == pair] for pair in pairs}
    least = {pair: min((v for v in values if v is not None), default=None) for pair, values in shown.items()}
    table = headed("operator", *result.devices, gap=1, ratio=1)
    table.add_column("on", no_wrap=True, style=_CHOSEN)
    for first, rest in pairs:
        table.add_column(f"{first} up to\nhere, {rest}", justify="right", no_wrap=True)
    if pairs:
        table.add_column("\ntransfers", justify="right", no_wrap=True)
    for group in result.groups:
        row: list[RenderableType] = [LongName(group.name, _JOINTS)]
        row += [_cost(group, device, result.minimise) for device in result.devices]
        row.append(Text(group.device))
        for pair in pairs:
            value = figure(cuts[group.name, *pair]) if (group.name, *pair) in cuts else None
            style = "bold" if value is not None and value == least[pair] else ""
            row.append(Text(_or_dash(value, unit) if (group.name, *pair) in cuts else "", style=style))
        if pairs:
            cut = cuts.get((group.name, *pairs[0]))
            row.append(Text(engineering(cut.transfer_bytes, "B") if cut else ""))
        table.add_row(*row)
    return table


def _cost(group: PlacedGroup, device: str, minimise: str) -> Text:
    cost = group.costs[device]
    text = _or_dash(cost.latency_s, "s") if minimise == "latency" else _or_dash(cost.energy_j, "J")
    text += "*" if cost.measured and minimise == "latency" else ""
    return Text(text, style=_CHOSEN if device == group.device else "")


def _notes(result: Placement) -> list[str]:
    notes = [result.method]
    if result.exact:
        notes.append("no placement in this order of execution is better")
    else:
        notes.append(f"at most {result.value / result.bound - 1.0:.1%} above the least that the costs allow")
    for one in result.profiles:
        notes.append(
            f"* measured on {one.chip} (row {one.row}): {one.groups} of {len(result.groups)} operators, "
            f"{engineering(one.used_s, 's')}; {engineering(one.unused_s, 's')} belong to no operator of the "
            "network; energy and traffic are the model's, all figures add up the operators' own"
        )
    notes.append(
        "devices share DRAM: a result that another device reads is written there and read again; a split's "
        "figures add up those of its operators"
    )
    return notes


def verdict(result: Placement) -> str:
    """Return one sentence: how many groups run where, and what that gains over the best single device."""
    used = [device for device in result.devices if any(group.device == device for group in result.groups)]
    counts = ", ".join(f"{sum(g.device == d for g in result.groups)} on the {d.upper()}" for d in used)
    best_alone = min(
        (a for a in result.alone if a.energy_j is not None), key=lambda a: _value(result, a), default=None
    )
    text = f"Best: {counts}"
    if best_alone is None:
        return f"{text}; no device can run all of it."
    gain = _value(result, best_alone) / _value(result, result)
    if len(used) == 1:
        return f"{text}: to split it costs more than it saves."
    return f"{text}, {factor(gain)} the best single device ({best_alone.device.upper()})."


def _value(result: Placement, of: object) -> float:
    energy, rate = getattr(of, "energy_j", None), getattr(of, "throughput_per_s", None)
    return float(energy or 0.0) if result.minimise == "energy" else 1.0 / float(rate or 1e-300)
