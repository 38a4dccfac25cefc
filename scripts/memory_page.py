"""Write the tables of docs/memory.md and docs/memory.svg: DRAM traffic by kind over SRAM and level sizes.

    python scripts/memory_page.py

Each row of panels is a network; on the left the SRAM of a tile grows, on the right a memory level.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import npusim
from npusim.reporting.engineering import engineering, factor
from npusim.reporting.machine import KIND_COLOURS, KINDS, SHORT_KINDS, by_kind
from npusim.reporting.tables import grouped
from npusim.studies import Variant

DOCS = Path(__file__).parents[1] / "docs"
NETWORKS = {
    "resnet-50": "none",
    "bert-base": "none",
    "yolov8n": "none",
    "gcn-cora": "stagr",
    "gat-cora": "stagr+effop",
}
"""Technique stack of each network."""
SRAM, LEVEL = "npu.sram.per_tile", "npu.levels.side_cache.capacity"
AXES = {
    SRAM: ("256KiB", "512KiB", "1MiB", "2MiB", "4MiB", "8MiB", "16MiB", "32MiB", "64MiB"),
    LEVEL: ("0B", "4MiB", "8MiB", "16MiB", "32MiB", "64MiB", "128MiB", "256MiB"),
}
"""Values of each setting."""
SET = {SRAM: (), LEVEL: ("npu.levels.side_cache.managed_by=software",)}
"""What else is set along each of them."""
TITLES = {SRAM: "SRAM of a tile", LEVEL: "software-managed memory level"}
BEGIN, END = "<!-- tables: scripts/memory_page.py -->", "<!-- end of tables -->"
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _RIGHT = 470, 190, 62, 34, 26, 58
_LINE = "#222222"
_NEAR = 1.01
"""Latency over the best from which a larger memory pays."""


def points(network: str, axis: str) -> list[Variant]:
    """Return a network at each value of a setting, without intervals."""
    stack, over = NETWORKS[network], {axis: list(AXES[axis])}
    return npusim.whatif(network, stacks=[stack], over=over, settings=SET[axis], samples=0).variants


def command(network: str, axis: str) -> str:
    """Return the command whose figures a table holds."""
    settings = "".join(f" --set {text}" for text in SET[axis])
    return (
        f"npusim whatif {network} --stack {NETWORKS[network]}{settings} --over {axis}={','.join(AXES[axis])}"
    )


def table(network: str, axis: str, variants: Sequence[Variant]) -> list[str]:
    """Return the lines of a table with its command above."""
    lines = [f"    {command(network, axis)}", ""]
    lines += [f"| {TITLES[axis]} | latency | DRAM | {' | '.join(SHORT_KINDS)} |", "| --- |" + " ---: |" * 6]
    for cells, alike in grouped(variants, _cells).items():
        ends = dict.fromkeys((alike[0].at[axis], alike[-1].at[axis]))
        lines.append(f"| {' to '.join(ends)} | {' | '.join(cells)} |")
    return [*lines, ""]


def _cells(v: Variant) -> tuple[str, ...]:
    sizes = (v.dram_bytes, *by_kind(v.dram).values())
    return (engineering(v.latency_s, "s"), *(engineering(size, "B") for size in sizes))


def pays_up_to(axis: str, variants: Sequence[Variant]) -> str:
    """Return how large a memory still pays: the smallest one within 1 % of the largest one's latency."""
    enough = next(v for v in variants if v.latency_s <= _NEAR * variants[-1].latency_s)
    gain = variants[0].latency_s / variants[-1].latency_s
    sizes = f"{variants[0].at[axis]} to {variants[-1].at[axis]}"
    if enough is variants[0]:
        return f"{TITLES[axis]}: {sizes} saves less than 1 %"
    return f"{TITLES[axis]}: {sizes} is {factor(gain)} as fast, and pays up to {enough.at[axis]}"


def panel(network: str, axis: str, variants: Sequence[Variant], left: int, top: int) -> list[str]:
    """Return the marks of a panel: bars of DRAM bytes by kind, and the latency as a line."""
    bottom, height, width = top + _HEIGHT - _BOTTOM, _HEIGHT - _TOP - _BOTTOM, _WIDTH - _LEFT - _RIGHT
    most_bytes, most_s = max(v.dram_bytes for v in variants), max(v.latency_s for v in variants)
    step = width / len(variants)
    title = f"{network}, {NETWORKS[network]}: {TITLES[axis]}"
    parts = [
        _text(left + _LEFT, top + 20, title, "start", "bold"),
        _text(left + _LEFT - 6, bottom - height + 4, engineering(most_bytes, "B"), "end"),
        _text(left + _LEFT - 6, bottom + 4, "0 B", "end"),
        _text(left + _WIDTH - _RIGHT + 6, bottom - height + 4, engineering(most_s, "s"), "start"),
        f'<path d="M{left + _LEFT} {bottom}h{width}" stroke="#999"/>',
    ]
    line = []
    for number, v in enumerate(variants):
        x = left + _LEFT + number * step
        sizes = by_kind(v.dram)
        for (kind, size), upto in zip(sizes.items(), accumulate(sizes.values()), strict=True):
            y, tall = bottom - height * upto / most_bytes, height * size / most_bytes
            parts.append(
                f'<rect x="{x + 4:.1f}" y="{y:.1f}" width="{step - 8:.1f}" height="{tall:.1f}" '
                f'fill="{KIND_COLOURS[kind]}"/>'
            )
        line.append((x + step / 2, bottom - height * v.latency_s / most_s))
        parts.append(_text(x + step / 2, bottom + 16, v.at[axis], "middle"))
    track = " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
    parts.append(f'<polyline points="{track}" fill="none" stroke="{_LINE}" stroke-width="1.5"/>')
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_LINE}"/>' for x, y in line]
    return parts


def _text(x: float, y: float, words: str, anchor: str, weight: str = "normal") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'


def picture(panels: Sequence[str], rows: int) -> str:
    """Return the whole picture with its legend."""
    width, height = 2 * _WIDTH, rows * _HEIGHT + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for x, title in zip((62, 192, 372, 472), KINDS.values(), strict=True):
        parts.append(f'<rect x="{x}" y="10" width="12" height="12" fill="{KIND_COLOURS[title]}"/>')
        parts.append(_text(x + 18, 20, title, "start"))
    parts.append(f'<path d="M560 16h30" stroke="{_LINE}" stroke-width="1.5"/>')
    parts.append(
        f'<circle cx="575" cy="16" r="3" fill="{_LINE}"/>' + _text(598, 20, "latency, from 0", "start")
    )
    return "\n".join([*parts, *panels, "</svg>\n"])


def main() -> None:
    """Cost all networks and write both files."""
    panels: list[str] = []
    lines: list[str] = []
    for row, network in enumerate(NETWORKS):
        found = {axis: points(network, axis) for axis in AXES}
        lines += [f"### {network}", ""]
        lines += [f"- {pays_up_to(axis, variants)}." for axis, variants in found.items()] + [""]
        for column, (axis, variants) in enumerate(found.items()):
            panels += panel(network, axis, variants, column * _WIDTH, 36 + row * _HEIGHT)
            lines += table(network, axis, variants)
    page = DOCS / "memory.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    text = "\n".join([f"{before}{BEGIN}", "", *lines, f"{END}{after}"])
    page.write_text(text, encoding="utf-8")
    (DOCS / "memory.svg").write_text(picture(panels, len(NETWORKS)), encoding="utf-8")


if __name__ == "__main__":
    main()
