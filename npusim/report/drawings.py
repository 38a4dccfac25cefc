"""Drawings in SVG: blocks of the machine with what flows between them, and sizes as areas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import sqrt
from typing import TYPE_CHECKING

from npusim.report.engineering import engineering, percent
from npusim.report.html import COLOURS

if TYPE_CHECKING:
    from npusim.engines import Estimate
    from npusim.mapping import Mapped

_WIDTH = 360
"""Of a drawing, in pixels: it fits a telephone's screen without being scaled."""
_LINE = 17
_EDGE = "#555"


def block_diagram(estimate: Estimate, mapped: Mapped) -> str:
    """Return DRAM, SRAM and computing units, with bytes and mean rates of an inference between them."""
    period_s = 1.0 / estimate.throughput_per_s

    def moved(what: str, amount: float) -> str:
        return f"{what} {engineering(amount, 'B')}, {engineering(amount / period_s, 'B/s')}"

    written = estimate.dram_bytes - estimate.dram_read_bytes
    drawn = [
        _box(
            0,
            0,
            _WIDTH,
            [
                "DRAM",
                f"sustains {engineering(float(mapped.arch.shared['dram_bytes_per_s']), 'B/s')} for the NPU",
            ],
        ),
        _arrows(48, [moved("read", estimate.dram_read_bytes), moved("written", written)]),
    ]
    y = 48 + 62
    used = [name for name, use in estimate.units.items() if use.busy_s > 0.0]
    npu = mapped.npu
    if npu is not None and any("." in name for name in used):
        sram = npu["sram_tile_bytes"]
        peak = engineering(estimate.sram_peak_bytes, "B")
        size = f"{estimate.tiles} x {float(sram) / 2**20:.3g} MiB, at most {peak} in use"
        stored = estimate.sram_traffic_bytes - estimate.sram_read_bytes
        drawn.append(_box(0, y, _WIDTH, ["SRAM of the NPU", size]))
        drawn.append(_arrows(y + 48, [moved("read", estimate.sram_read_bytes), moved("written", stored)]))
        y += 48 + 62
    inner = {"cpu": "CPU", "gpu": "GPU"}
    for device in mapped.arch.arrays:
        of = "" if len(mapped.arch.arrays) == 1 else f" of {device}"
        inner |= {f"{device}.dsp": f"DSPs{of}", f"{device}.dma": f"DMA engines{of}"}
        inner[f"{device}.dpu"] = f"{int(mapped.arch[device]['tiles'])} MAC grids{of}"
    width = (_WIDTH - 8 * (len(used) - 1)) / max(1, len(used))
    for number, name in enumerate(used):
        use = estimate.units[name]
        told = [inner.get(name, name), f"busy {percent(use.utilisation)}", engineering(use.busy_s, "s")]
        drawn.append(_box(number * (width + 8), y, width, told))
    return _svg(y + 70, drawn, "blocks of the machine with what flows between them")


def _box(x: float, y: float, width: float, lines: Sequence[str]) -> str:
    height = _LINE * len(lines) + 14
    said = "".join(
        f'<text x="{x + width / 2:.1f}" y="{y + 19 + _LINE * i}" text-anchor="middle"'
        f"{' font-weight=bold' if i == 0 else ''}>{escape(line)}</text>"
        for i, line in enumerate(lines)
    )
    frame = f'<rect x="{x + 1:.1f}" y="{y + 1}" width="{width - 2:.1f}" height="{height}" rx="4"'
    return f'{frame} fill="#eef3f8" stroke="{COLOURS[0]}"/>{said}'


def _arrows(y: float, labels: Sequence[str]) -> str:
    """Return an arrow down and one up, each with its label."""
    down, up = 12, _WIDTH - 12
    y += 4
    parts = [
        f'<path d="M{down} {y} v46 m-5 -8 l5 8 l5 -8" fill="none" stroke="{_EDGE}"/>',
        f'<path d="M{up} {y + 46} v-46 m-5 8 l5 -8 l5 8" fill="none" stroke="{_EDGE}"/>',
        f'<text x="{down + 12}" y="{y + 19}">{escape(labels[0])}</text>',
        f'<text x="{up - 12}" y="{y + 39}" text-anchor="end">{escape(labels[1])}</text>',
    ]
    return "".join(parts)


def areas(sizes: Mapping[str, float], title: str) -> str:
    """Return squares whose areas are bytes, each with its name and size, the largest first."""
    largest = max(sizes.values())
    drawn, y = [], 0.0
    for number, (name, size) in enumerate(sorted(sizes.items(), key=lambda item: -item[1])):
        side = 110.0 * sqrt(size / largest)
        height = max(side, 20.0)
        colour = COLOURS[number % len(COLOURS)]
        drawn.append(
            f'<rect x="{110 - side:.1f}" y="{y + (height - side) / 2:.1f}" '
            f'width="{side:.1f}" height="{side:.1f}" fill="{colour}"/>'
        )
        drawn.append(
            f'<text x="122" y="{y + height / 2 + 5:.1f}">{escape(name)}: {engineering(size, "B")}</text>'
        )
        y += height + 6
    return _svg(y, drawn, title)


def _svg(height: float, drawn: Sequence[str], title: str) -> str:
    return (
        f'<svg class=drawing role=img width="{_WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {_WIDTH} {height:.0f}"><title>{escape(title)}</title>{"".join(drawn)}</svg>'
    )
