"""Pictures of the machine: roofline, storage forms of the graph, block diagram."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from npusim.engines import Estimate
from npusim.engines.estimate import RooflinePoint
from npusim.mapping import Mapped
from npusim.ops import Role, Storage
from npusim.reporting.charts import Figure, add_marks, amount_bars, blank_figure
from npusim.reporting.engineering import engineering, percent
from npusim.reporting.html import COLOURS, GREY, UNIT_COLOURS, log_axis
from npusim.reporting.page import Plot, grouped

_WIDTH = 360  # of a drawing, in pixels: it fits a telephone's screen without being scaled
_LINE = 17
_EDGE = "#555"
_BLOCK_HEIGHT = 48
_GAP = 62
_OF_GRAPH = (Role.NORM, Role.ADJACENCY, Role.MASK)


def roofline_figure(estimate: Estimate) -> Figure:
    """Return each operator's rate over its operations for a byte of DRAM; empty where none uses DRAM."""
    points = [point for point in estimate.roofline.points if point.intensity.get("dram")]
    figure = blank_figure()
    if not points:
        return figure
    low = min(point.intensity["dram"] for point in points) / 4
    high = max(point.intensity["dram"] for point in points) * 4
    _ceilings(figure, estimate, low, high)
    units = grouped(points, lambda point: point.unit)
    for unit, of_unit in units.items():
        marker = {"color": UNIT_COLOURS.get(unit, GREY), "size": 11, "line": {"width": 1, "color": "#fff"}}
        add_marks(figure, unit, of_unit, lambda p: (p.intensity["dram"], p.ops_per_s), marker, _rate_story)
    rates = [point.ops_per_s for point in points]
    tops = [c.ops_per_s for c in estimate.roofline.ceilings if c.ops_per_s and c.unit in units]
    figure.update_layout(
        height=520,
        xaxis=log_axis("operations for each byte of DRAM", "", low, high),
        yaxis=log_axis("operations a second", "op/s", min(rates) / 2, max([*rates, *tops]) * 1.5),
    )
    return figure


def _rate_story(point: RooflinePoint) -> str:
    share = percent(point.ops_per_s / point.ceiling_ops_per_s)
    rate = engineering(point.ops_per_s, "op/s")
    return f"<b>{escape(point.operator)}</b><br>{rate}, {share} of {escape(point.limit)}"


def _ceilings(figure: Figure, estimate: Estimate, low: float, high: float) -> None:
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
        colour = UNIT_COLOURS.get(ceiling.unit, "#777777")
        dash = "solid" if ceiling.ops_per_s else "dot" if "DMA" in ceiling.name else "dash"
        line = {"color": colour, "width": 1.5, "dash": dash}
        figure.add_scatter(x=[low, high], y=heights, mode="lines", name=name, hoverinfo="name", line=line)


def forms_section(mapped: Mapped) -> list[Plot]:
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


def block_diagram(estimate: Estimate, mapped: Mapped) -> str:
    """Return DRAM, SRAM and computing units, with bytes and mean rates of an inference between them."""

    def moved(verb: str, amount: float) -> str:
        rate = engineering(amount * estimate.throughput_per_s, "B/s")
        return f"{verb} {engineering(amount, 'B')}, {rate}"

    written = estimate.dram_bytes - estimate.dram_read_bytes
    bandwidth = engineering(float(mapped.arch.shared["dram_bytes_per_s"]), "B/s")
    drawn = [
        _box(0, 0, _WIDTH, ["DRAM", f"sustains {bandwidth} for the NPU"]),
        _arrows(_BLOCK_HEIGHT, [moved("read", estimate.dram_read_bytes), moved("written", written)]),
    ]
    y = _BLOCK_HEIGHT + _GAP
    used = [name for name, use in estimate.units.items() if use.busy_s > 0.0]
    npu = mapped.npu
    if npu is not None and any("." in name for name in used):
        peak = engineering(estimate.sram_peak_bytes, "B")
        size = f"{estimate.tiles} x {float(npu['sram_tile_bytes']) / 2**20:.3g} MiB, at most {peak} in use"
        stored = estimate.sram_traffic_bytes - estimate.sram_read_bytes
        drawn.append(_box(0, y, _WIDTH, ["SRAM of the NPU", size]))
        labels = [moved("read", estimate.sram_read_bytes), moved("written", stored)]
        drawn.append(_arrows(y + _BLOCK_HEIGHT, labels))
        y += _BLOCK_HEIGHT + _GAP
    names = {"cpu": "CPU", "gpu": "GPU"}
    for device in mapped.arch.arrays:
        of = "" if len(mapped.arch.arrays) == 1 else f" of {device}"
        names |= {f"{device}.dsp": f"DSPs{of}", f"{device}.dma": f"DMA engines{of}"}
        names[f"{device}.dpu"] = f"{int(mapped.arch[device]['tiles'])} MAC grids{of}"
    width = (_WIDTH - 8 * (len(used) - 1)) / max(1, len(used))
    for number, name in enumerate(used):
        use = estimate.units[name]
        lines = [names.get(name, name), f"busy {percent(use.utilisation)}", engineering(use.busy_s, "s")]
        drawn.append(_box(number * (width + 8), y, width, lines))
    # The labels are the text alternative: one line for each box and arrow.
    height, title = y + 70, ". ".join(re.findall(r">([^<]+)</text>", "".join(drawn)))
    return (
        f'<svg class=drawing role=img width="{_WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {_WIDTH} {height:.0f}"><title>{title}</title>{"".join(drawn)}</svg>'
    )


def _box(x: float, y: float, width: float, lines: Sequence[str]) -> str:
    texts = "".join(
        f'<text x="{x + width / 2:.1f}" y="{y + 19 + _LINE * i}" text-anchor="middle"'
        f"{' font-weight=bold' if i == 0 else ''}>{escape(line)}</text>"
        for i, line in enumerate(lines)
    )
    height = _LINE * len(lines) + 14
    frame = f'<rect x="{x + 1:.1f}" y="{y + 1}" width="{width - 2:.1f}" height="{height}" rx="4"'
    return f'{frame} fill="#eef3f8" stroke="{COLOURS[0]}"/>{texts}'


def _arrows(y: float, labels: Sequence[str]) -> str:
    """Return an arrow down and one up, each with its label."""
    down, up, y = 12, _WIDTH - 12, y + 4
    return (
        f'<path d="M{down} {y} v46 m-5 -8 l5 8 l5 -8" fill="none" stroke="{_EDGE}"/>'
        f'<path d="M{up} {y + 46} v-46 m-5 8 l5 -8 l5 8" fill="none" stroke="{_EDGE}"/>'
        f'<text x="{down + 12}" y="{y + 19}">{escape(labels[0])}</text>'
        f'<text x="{up - 12}" y="{y + 39}" text-anchor="end">{escape(labels[1])}</text>'
    )
