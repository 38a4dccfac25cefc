"""What happens in the machine: DRAM traffic by kind, SRAM, roofline, forms of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape

import numpy as np

from npusim.engines import Estimate, OperatorCost
from npusim.engines.estimate import DramByKind, RooflinePoint
from npusim.mapping import AHEAD, OTHERS, OWN, RESIDENT, Mapped, SramContents, sram_contents
from npusim.ops import Role, Storage
from npusim.reporting.charts import Figure, add_groups, amount_bars, blank_figure, parts_plot, stacked_bars
from npusim.reporting.engineering import Amount, engineering, percent
from npusim.reporting.html import COLOURS, UNIT_COLOURS, amount_axis, log_axis
from npusim.reporting.page import Lines, Plot, Section
from npusim.reporting.tables import Column, Table, cells_table, fields, grouped
from npusim.studies.elasticity import MemoryNeed, memory_needs

KINDS = {
    "compulsory_weights_bytes": "weights, once",
    "compulsory_activations_bytes": "inputs and outputs, once",
    "refetched_bytes": "refetched",
    "spilled_bytes": "spilled",
}
"""What pages call the kinds of DRAM traffic, by field of `DramByKind`."""
KIND_COLOURS = dict(zip(KINDS.values(), (COLOURS[0], COLOURS[4], COLOURS[1], COLOURS[3]), strict=True))
_MEANING = "refetched: bytes that were read before; spilled: results written to DRAM and read back."
SHORT_KINDS = ("weights", "in, out", "refetched", "spilled")
"""What narrow tables call them."""
KIND_COLUMNS = tuple(
    Column(f"dram.{kind}", heading) for kind, heading in zip(KINDS, SHORT_KINDS, strict=True)
)
"""Columns of a record with `dram`."""
_MOST_OPERATORS, _MOST_BARS = 15, 20
_MOST_ROWS = 32  # operators of the map of SRAM on the terminal
_MOST_KEPT = 5
_OF_GRAPH = (Role.NORM, Role.ADJACENCY, Role.MASK)


def by_kind(dram: DramByKind) -> dict[str, float]:
    """Return the bytes of each kind by its name on pages."""
    return {title: getattr(dram, field) for field, title in KINDS.items()}


def _avoidable(op: OperatorCost) -> float:
    return op.dram.refetched_bytes + op.dram.spilled_bytes


def traffic_sections(estimate: Estimate) -> list[Section]:
    """Return DRAM traffic by kind, of the network and of operators; nothing where kinds are unknown."""
    kinds, total = by_kind(estimate.dram), estimate.dram_bytes
    if not any(kinds.values()):
        return []
    title, heading = f"DRAM traffic by kind: {engineering(total, 'B')} an inference", "DRAM traffic by kind"
    busiest = sorted(estimate.operators, key=lambda op: -op.dram_bytes)[:_MOST_BARS]
    by_operator = {op.name: op.dram for op in busiest if op.dram_bytes > 0.0}
    wasteful = sorted(filter(_avoidable, estimate.operators), key=lambda op: -_avoidable(op))
    columns = (*fields("name: moves bytes again"), *KIND_COLUMNS, Column("dram_bytes"))
    return [
        parts_plot(title, heading, kinds, "B", total, name="dram", colours=KIND_COLOURS, caption=_MEANING),
        Plot(
            "Operators that move most bytes of DRAM, by kind",
            partial(kind_bars, by_operator),
            Table(columns, wasteful, only="terminal", most=_MOST_OPERATORS, detail=True, gap=1),
        ),
    ]


def kind_bars(rows: Mapping[str, DramByKind]) -> Figure:
    """Return a bar for each name, stacked of the bytes of each kind."""
    return stacked_bars({name: by_kind(dram) for name, dram in rows.items()}, "B", KIND_COLOURS)


def memory_sections(mapped: Mapped) -> list[Section]:
    """Return what would remove traffic, and what lies in SRAM while each operator runs."""
    needs = [_need_line(need) for need in sorted(memory_needs(mapped), key=lambda need: need.kind)]
    sections: list[Section] = [Lines(needs, "More memory on the chip would remove DRAM traffic")]
    contents = sram_contents(mapped) if mapped.npu is not None else None
    if contents is not None and contents.operators:
        sections += [
            Plot("What lies in SRAM", lambda: sram_figure(mapped), _sram_table(contents)),
            Lines(_kept_lines(contents), "Largest tensors kept in SRAM"),
        ]
    return sections


def _need_line(need: MemoryNeed) -> str:
    left = engineering(need.left_bytes, "B")
    rest = f"leaves {left} with" if need.left_bytes > 0.0 else "gone with"
    return f"{KINDS[need.kind]} {engineering(need.bytes, 'B')}: {rest} --set {need.setting}"


def sram_figure(mapped: Mapped) -> Figure:
    """Return what lies in SRAM over time, tensor by tensor; empty where nothing does."""
    contents = sram_contents(mapped)
    if not contents.operators:
        return blank_figure()
    time = amount_axis("time, operator after operator", "s")
    figure = blank_figure(height=420, xaxis=time, yaxis=amount_axis("bytes in SRAM", "B"))
    begins = np.concatenate(([0.0], contents.ends_s[:-1]))
    named = {name: sizes for group in contents.layers.values() for name, sizes in group.items()}
    used = {name: sizes for name, sizes in (named | {"free": contents.free}).items() if sizes.any()}
    greys = dict.fromkeys(contents.layers[OWN], "#777777") | {"free": "#f6f6f6"}
    for number, (name, sizes) in enumerate(used.items()):
        colour = greys.get(name, COLOURS[number % len(COLOURS)])
        figure.add_scatter(
            x=np.stack([begins, contents.ends_s], axis=1).reshape(-1),
            y=np.repeat(np.maximum(sizes, 0.0), 2),
            stackgroup="sram",
            name=name,
            mode="lines",
            line={"width": 0.5, "color": colour, "shape": "linear"},
            customdata=np.repeat(np.array(contents.operators, object), 2),
            hovertemplate=f"{escape(name)}: %{{y:.3~s}}B<br>at %{{customdata}}<extra></extra>",
        )
    capacity = engineering(contents.capacity_bytes, "B")
    return figure.add_hline(contents.capacity_bytes, line={"dash": "dash"}, annotation_text=capacity)


def _sram_table(contents: SramContents) -> Table:
    """Return the bytes in SRAM by group; the terminal shows of several operators in a row the fullest one."""
    groups = {name: contents.group(name) for name in contents.layers} | {"free": contents.free}
    used, count = contents.capacity_bytes - contents.free, len(contents.operators)
    size = -(-count // _MOST_ROWS)
    begins = np.concatenate(([0.0], contents.ends_s[:-1]))
    rows = [
        (name, Amount(float(begins[i]), "s"), *(Amount(float(s[i]), "B") for s in groups.values()))
        for i, name in enumerate(contents.operators)
    ]
    fullest = [rows[at + int(np.argmax(used[at : at + size]))] for at in range(0, count, size)]
    several = f"; of each {size} operators the one that fills it most" if size > 1 else ""
    caption = f"SRAM: {engineering(contents.capacity_bytes, 'B')}{several}"
    headings = ("SRAM", "begins", *groups)
    return cells_table(headings, rows, "", "sram", caption=caption, terminal=fullest, detail=True, gap=1)


def _kept_lines(contents: SramContents) -> Sequence[str]:
    """Return a line for each of the largest tensors that stay: its bytes, and from when until when."""
    kept = {
        name: sizes
        for group, parts in contents.layers.items()
        for name, sizes in parts.items()
        if group not in (OWN, AHEAD, RESIDENT) and name != OTHERS and sizes.any()
    }
    largest = sorted(kept, key=lambda name: -float(kept[name].max()))
    lines = []
    for name in largest[:_MOST_KEPT]:
        at = np.flatnonzero(kept[name])
        first, last = contents.operators[at[0]], contents.operators[at[-1]]
        span = f"from {first} to {last}" if first != last else f"at {first}"
        lines.append(f"{name}: {engineering(float(kept[name].max()), 'B')}, {span}")
    return lines


def roofline_figure(estimate: Estimate) -> Figure:
    """Return each operator's rate over its operations for a byte of DRAM; empty where none uses DRAM."""
    points = [point for point in estimate.roofline.points if point.intensity.get("dram")]
    figure = blank_figure()
    if not points:
        return figure
    intensities, rates = zip(*((p.intensity["dram"], p.ops_per_s) for p in points), strict=True)
    low, high = min(intensities) / 4, max(intensities) * 4
    _add_ceilings(figure, estimate, low, high)
    units = grouped(points, lambda point: point.unit)
    add_groups(
        figure, units, lambda p: (p.intensity["dram"], p.ops_per_s), _rate_story, UNIT_COLOURS, size=11
    )
    tops = [c.ops_per_s for c in estimate.roofline.ceilings if c.ops_per_s and c.unit in units]
    return figure.update_layout(
        height=520,
        xaxis=log_axis("operations for each byte of DRAM", "", low, high),
        yaxis=log_axis("operations a second", "op/s", min(rates) / 2, max([*rates, *tops]) * 1.5),
    )


def _rate_story(point: RooflinePoint) -> str:
    share = percent(point.ops_per_s / point.ceiling_ops_per_s)
    rate = engineering(point.ops_per_s, "op/s")
    return f"<b>{escape(point.operator)}</b><br>{rate}, {share} of {escape(point.limit)}"


def _add_ceilings(figure: Figure, estimate: Estimate, low: float, high: float) -> None:
    """Draw the ceilings of the units in use: bandwidths as slopes, peak rates as levels."""
    units = {point.unit for point in estimate.roofline.points}
    formats = {(p.unit, f) for p in estimate.roofline.points for f in p.precision.split(" x ")}
    devices = {unit.partition(".")[0] for unit in units}
    for ceiling in estimate.roofline.ceilings:
        if ceiling.unit not in units | devices:
            continue
        in_use = ceiling.precision is None or (ceiling.unit, ceiling.precision) in formats
        if ceiling.ops_per_s and in_use:
            heights = [ceiling.ops_per_s] * 2
            name = f"{ceiling.name} {engineering(ceiling.ops_per_s, 'op/s')}"
        elif ceiling.bytes_per_s and ceiling.level == "dram":
            heights = [low * ceiling.bytes_per_s, high * ceiling.bytes_per_s]
            name = f"{ceiling.name} {engineering(ceiling.bytes_per_s, 'B/s')}"
        else:
            continue
        line = {"color": UNIT_COLOURS.get(ceiling.unit, "#777777"), "width": 1.5}
        figure.add_scatter(x=[low, high], y=heights, mode="lines", name=name, hoverinfo="name", line=line)


def forms_section(mapped: Mapped) -> list[Section]:
    """Return the storage forms of the largest matrix over node pairs; nothing where there is no graph."""
    tensors = mapped.graph.tensors.values()
    matrices = [t for t in tensors if t.role in _OF_GRAPH and len(t.shape) >= 2]
    edges = next((t for t in tensors if t.role is Role.EDGES), None)
    if not matrices and edges is None:
        return []
    sizes: dict[str, float] = {} if edges is None else {f"list of edges {list(edges.shape)}": edges.bytes}
    here = "the graph is read as a list of edges"
    if matrices:
        largest = max(matrices, key=lambda tensor: tensor.elements)
        kind, shape = largest.dtype.value, " x ".join(map(str, largest.shape))
        forms = {
            f"dense {kind}": (Storage.DENSE, True),
            f"bitmap and non-zeros, {kind}": (Storage.ZVC, largest.density < 1.0),
            f"triangle, {kind}": (Storage.TRIANGLE, largest.symmetric),
        }
        for name, (form, applies) in forms.items():
            if applies:
                sizes[name] = largest.with_(storage=form).stored_bytes
        here = (
            f"{largest.name}, {shape}, {percent(largest.density)} non-zero; here its storage is "
            f"{largest.storage.value}"
        )
    title = "The graph in memory: its forms by bytes"
    return [Plot(title, lambda: amount_bars("bytes", "B", sizes), note=here)]


def flow_table(estimate: Estimate, mapped: Mapped) -> Table:
    """Return the bytes and mean rates of an inference between DRAM, SRAM and computing units."""
    flows = {
        "read from DRAM": estimate.dram_read_bytes,
        "written to DRAM": estimate.dram_bytes - estimate.dram_read_bytes,
    }
    about = f"DRAM sustains {engineering(float(mapped.arch.shared['dram_bytes_per_s']), 'B/s')} for the NPU"
    if mapped.npu is not None and estimate.tiles:
        flows["read from SRAM"] = estimate.sram_read_bytes
        flows["written to SRAM"] = estimate.sram_traffic_bytes - estimate.sram_read_bytes
        tile, peak = float(mapped.npu["sram_tile_bytes"]) / 2**20, engineering(estimate.sram_peak_bytes, "B")
        about += f"; SRAM of the NPU: {estimate.tiles} x {tile:.3g} MiB, at most {peak} in use"
    rows = [
        (name, Amount(size, "B"), Amount(size * estimate.throughput_per_s, "B/s"))
        for name, size in flows.items()
    ]
    title, headings = "What flows through the machine in an inference", ("", "bytes", "mean rate")
    return cells_table(headings, rows, title, "flows", caption=about, only="html")
